"""Unsafe actions: U_unsafe as the caller declares it, each part with a label.

Source: F4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias, Unpack

from mat.core.allowed import Allowed, describe, is_allow_list
from mat.core.endpoint import MISSING, values_at
from mat.core.errors import SpecError
from mat.core.record import Record
from mat.core.verdict import Obligation
from mat.monitor.compile import contract
from mat.monitor.contract import KEEP, Contract, Violated
from mat.monitor.normal_form import union
from mat.monitor.temporal import Formula, always
from mat_contracts._shared import TOOL_CALLS, all_of, judged, let_through
from mat_contracts._values import touches
from mat_contracts.catalogue import Options, template

UnsafePart: TypeAlias = str | Mapping[str, Mapping[str, Allowed] | None] | Callable[[Record], bool] | Formula
"""A tool's name; tool -> parameter -> the values that make the call unsafe; a predicate on a record; a formula."""
Unsafe: TypeAlias = Mapping[str, UnsafePart | Iterable[UnsafePart]]
"""label -> the unsafe actions. Usual labels: exfiltration, unauthorized use, irreversible action."""
_REMEMBERED: Final = 1_000
"""The most (kind, name) pairs of actions for which the parts that concern them are remembered."""


@template
def declared_unsafe(
    unsafe: Unsafe,
    **options: Unpack[Options],
) -> Contract:
    """No action is in U_unsafe.

    `unsafe` declares the parts of U_unsafe by label; the label is the violation's instance. A part is
    the name of a tool (every call is unsafe), a mapping tool -> parameter -> values (a call is unsafe if every listed parameter
    is present with such a value, however it is written, alone or in a list; None: every call), a predicate on the record, or a
    formula (the action at which it becomes true is unsafe). "body.amount" names a nested value. Names match exactly. A call
    that the mediator rewrote is judged as rewritten. The violation's stage is "attempted" if the action was blocked or is known
    to have done nothing, otherwise "effected". `mat.measure.agency` measures excessive agency, the rate of such actions.

    Raises `mat.MatError` if `unsafe` is empty, or holds something that is not one of these descriptions.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> never = declared_unsafe({"irreversible action": ["drop_table", {"delete": {"count": lambda count: count > 1}}]})
    >>> broken(never, trace(record("tool_call", "delete", {"count": 1}, effect="write")))
    ()
    >>> broken(never, trace(record("tool_call", "delete", {"count": 9}, effect="write")))
    (0,)

    Source: Sec. III-B, F4, A2.F4.
    """
    parts = unsafe_parts(unsafe)
    states, concerned = tuple(part.start for part in parts), concerned_parts(parts)

    def step(state: tuple[Any, ...], record: Record) -> tuple[Any, ...] | Violated:
        places = concerned(record)
        if not places:
            return state
        new, found = fold_parts(parts, places, state, record)
        return judged(found, new)

    def finish(state: tuple[Any, ...]) -> Violated | None:
        closing = [(part, part.finish(item)) for part, item in zip(parts, state, strict=True) if part.finish is not None]
        return all_of([_labelled(part, item) for part, item in closing if item is not None])

    def obligations(state: tuple[Any, ...]) -> tuple[Obligation, ...]:
        return tuple(
            item
            for part, own in zip(parts, state, strict=True)
            if part.obligations is not None
            for item in part.obligations(own)
        )

    labels = tuple(dict.fromkeys(part.id for part in parts))
    return Contract(
        id="unsafe.declared", step=step, start=states, finish=finish, obligations=obligations,
        kinds=union(*(part.kinds for part in parts)),
        repair="do not do this: refuse, ask for approval, or do what is reversible and within the task",
        text=f"no action is unsafe: {', '.join(labels)}",
    )  # fmt: skip


def unsafe_parts(unsafe: Unsafe) -> tuple[Contract, ...]:
    """Each declared part as a contract whose id is the label. SpecError if nothing is declared."""
    if not isinstance(unsafe, Mapping) or not unsafe:
        raise SpecError(what=f"unsafe={unsafe!r} declares no unsafe actions", fix='write {"irreversible action": ["delete"]}')
    parts = [_part(label, item) for label, given in unsafe.items() for item in _part_list(label, given)]
    if not parts:
        raise SpecError(what="the labels of unsafe= contain no actions", fix='write {"irreversible action": ["delete"]}')
    return tuple(parts)


def concerned_parts(parts: tuple[Contract, ...]) -> Callable[[Record], tuple[int, ...]]:
    """A function that returns the indices of the parts that a record may concern: by its kind and, for calls, by its tool."""
    known: dict[tuple[str, str], tuple[int, ...]] = {}

    def concerned(record: Record) -> tuple[int, ...]:
        asked = (record.action.kind, record.action.name)
        places = known.get(asked)
        if places is None:
            if len(known) >= _REMEMBERED:
                known.clear()
            places = known[asked] = tuple(place for place, part in enumerate(parts) if _concerns(part, *asked))
        return places

    return concerned


def _concerns(part: Contract, kind: str, name: str) -> bool:
    tools = getattr(part.step, "tools", None)
    return (part.kinds is None or kind in part.kinds) and (tools is None or name in tools)


def fold_parts(
    parts: tuple[Contract, ...], places: tuple[int, ...], state: tuple[Any, ...], record: Record
) -> tuple[tuple[Any, ...], list[Violated]]:
    """The states of all parts after a record that concerns the parts at `places`, and one violation for each label."""
    after = state
    found: dict[tuple[str, int], Violated] = {}
    for place in places:
        part, before = parts[place], state[place]
        stepped = part.step(before, record)
        new = stepped
        if isinstance(stepped, Violated):
            new = before if stepped.state is KEEP else stepped.state
            for item in (stepped, *stepped.more):
                step = item.step if item.step is not None else record.step
                found.setdefault((part.id, step), replace(_labelled(part, item), witness=item.witness or (step,)))
        if new is not before:
            after = (*after[:place], new, *after[place + 1 :])
    return after, list(found.values())


def _labelled(part: Contract, violated: Violated) -> Violated:
    return replace(
        violated, message=f"{part.id}: {violated.message}", instance=part.id, state=KEEP, more=(),
        wanted=violated.wanted or f"no action that is {part.id}",
    )  # fmt: skip


def _part_list(label: str, given: UnsafePart | Iterable[UnsafePart]) -> list[Any]:
    if not isinstance(label, str) or not label:
        raise SpecError(what=f"{label!r} is not a label", fix='name what is unsafe about the action: "exfiltration"')
    several = isinstance(given, Iterable) and not isinstance(given, str | Mapping | Formula)
    return list(given) if several else [given]  # type: ignore[arg-type]


def _part(label: str, item: Any) -> Contract:
    if isinstance(item, Formula):
        return contract(label, always(~item))
    if isinstance(item, str) and item:
        return _tools_part(label, {item: None})
    if isinstance(item, Mapping):
        return _tools_part(label, item)
    if callable(item):
        return _predicate_part(label, item)
    raise SpecError(
        what=f"{label!r} contains {item!r}, which does not describe an action",
        why="an unsafe action is a tool, a tool with arguments, a predicate or a formula",
        fix='write "delete", {"delete": {"count": (2, 1000)}}, a function of the record, or mat.temporal.tool_call("delete")',
    )


def _tools_part(label: str, tools: Mapping[str, Mapping[str, Allowed] | None]) -> Contract:
    problems = [
        f"{tool}: {name}={allowed!r} is not a list of values"
        for tool, parameters in tools.items()
        for name, allowed in (parameters or {}).items()
        if not is_allow_list(allowed)
    ]
    if problems:
        raise SpecError(
            what=f"{label!r}: {'; '.join(problems)}", why="a plain string would allow each of its substrings",
            fix="give a set of values, a (least, most) tuple of numbers, or a predicate",
        )  # fmt: skip

    listed = {tool: sorted((parameters or {}).items()) for tool, parameters in tools.items()}

    def step(state: None, record: Record) -> Violated | None:
        if record.action.name not in listed:
            return state
        arguments, filters = let_through(record), listed[record.action.name]
        if all(_holds(arguments, name, allowed) for name, allowed in filters):
            why = f" with {', '.join(_unsafe_argument(name, arguments, allowed) for name, allowed in filters)}"
            return Violated(f"{record.agent} called {record.action.name}{why if filters else ''}")
        return state

    step.tools = frozenset(listed)  # type: ignore[attr-defined]  # `concerned_parts` reads it
    return Contract(id=label, step=step, kinds=TOOL_CALLS)


def _predicate_part(label: str, predicate: Callable[[Record], bool]) -> Contract:
    name = getattr(predicate, "__name__", "the predicate")

    def step(state: None, record: Record) -> Violated | None:
        return Violated(f"{name} forbids {record.action.kind} {record.action.name!r}") if predicate(record) else state

    return Contract(id=label, step=step)


def _holds(arguments: Mapping[str, Any], name: str, declared: Allowed) -> bool:
    """Whether a parameter is present with a declared value."""
    return any(value is not MISSING and touches(declared, value) for value in values_at(arguments, name))


def _unsafe_argument(name: str, arguments: Mapping[str, Any], declared: Allowed) -> str:
    """An argument and the rule that declares it unsafe."""
    value = next(item for item in values_at(arguments, name) if item is not MISSING and touches(declared, item))
    if callable(declared):
        return f"{name}={value!r}, which {getattr(declared, '__name__', 'the predicate')} forbids"
    return f"{name}={value!r} in {describe(declared)}"

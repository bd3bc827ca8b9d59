"""The first difference between two runs that should be the same: the step, what differs in it, and the likely cause."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from mat.core.digest import canonical
from mat.core.record import Record, mediation_facts, observed
from mat.core.run import Run
from mat.core.spec import RunSpec

Aspect: TypeAlias = Literal[
    "call", "arguments", "time", "state", "provenance", "governance", "executed", "fault", "invocation", "reply", "effect",
    "order", "missing", "extra", "end", "spec",
]  # fmt: skip
_CAUSES: Final[dict[str, str]] = {
    "call": "the agent made another call although its inputs were the same: its code or prompts changed, a model "
    "reply is not taped, or its choice depends on set order or on state shared between runs",
    "arguments": "the agent used other arguments although its inputs were the same: its code changed, or the "
    "value depends on state shared between runs",
    "time": "the clock: something before this step took a different time, or reads a clock outside the run",
    "state": "mat.state(...) got other values: the code changed, or state shared between runs enters them",
    "provenance": "a step was built from other supports or texts than recorded",
    "governance": "the mediator decided differently: a rule, a capability or an approval changed",
    "executed": "the port got other arguments than recorded: a rewrite rule or an operator changed",
    "fault": "the schedule acted differently: the code or the grid of an operator changed, or another call reaches its site",
    "invocation": "the port was run more or less often than recorded: a retry layer below the boundary, or the tape, changed",
    "reply": "the port gave another reply to the same request: state shared between runs (a module global, a file, a row in a "
    "database), changed data, or changed code of the tool",
    "effect": "the recording differs on whether the effect happened: the port's code or the operator changed",
    "order": "steps overlap in another order: threads, or tasks that the run does not schedule",
    "missing": "the run ended earlier than recorded: the agent changed, or it stopped on an error",
    "extra": "the run continues after the recorded end: the agent changed, or a task outlived its test",
    "end": "the steps are equal, but the end differs: the test body changed, or something slept after the last step",
    "spec": "the steps are the same, but the test, its contracts, its configuration or its schedule changed since",
}
_ID: Final = re.compile(r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{16,}\b")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_SHOWN: Final = 300
_SHORT: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first difference between two runs. `step` is the recorded step, or the number of records if an end differs.

    `field`: the path to the first values that differ, which are `one` and `other`; "" if the facts differ as a whole.
    """

    step: int
    aspect: Aspect
    recorded: str
    again: str
    cause: str
    field: str = ""
    one: str = ""
    other: str = ""


def first_difference(recorded: Run, again: Run) -> Difference | None:
    """The first step that differs, and how; None if both runs have the same head."""
    if recorded.head == again.head:
        return None
    for one, other in zip(recorded.records, again.records, strict=False):
        for aspect, before, after in _aspects(one, other):
            if canonical(before) != canonical(after):
                return _with_spec_change(_difference(one.step, aspect, before, after), recorded, again)
    return _difference_of_ends(recorded, again)


def _aspects(one: Record, other: Record) -> Iterator[tuple[Aspect, Any, Any]]:
    """The facts of two records, in the order of their causes: asked, decided, done, observed."""
    yield "call", _call(one), _call(other)
    yield "arguments", one.action.arguments, other.action.arguments
    yield "time", one.at_ms, other.at_ms
    yield "state", [one.role, one.state], [other.role, other.state]
    yield "governance", _mediation(one), _mediation(other)
    yield "fault", _faults(one), _faults(other)
    yield "executed", one.executed, other.executed
    yield "invocation", one.invoked, other.invoked
    yield "reply", one.raw and observed(one.raw), other.raw and observed(other.raw)
    yield "reply", observed(one.observation), observed(other.observation)
    yield "effect", one.effected, other.effected
    yield "time", one.sealed_ms, other.sealed_ms
    yield "provenance", _links(one), _links(other)
    yield "order", [one.asked_seq, one.sealed_seq], [other.asked_seq, other.sealed_seq]


def _call(record: Record) -> list[Any]:
    return [record.agent, record.action.kind, record.action.name, record.site, record.action.effect, record.action.impact]


def _mediation(record: Record) -> list[Any] | None:
    found = record.mediation
    return None if found is None else mediation_facts(found)


def _faults(record: Record) -> list[Any]:
    return [[note.operator, note.parameters, note.effect, note.changed] for note in record.faults]


def _links(record: Record) -> list[Any]:
    return [[link.src, link.rel, link.dst] for link in record.links]


def _difference_of_ends(recorded: Run, again: Run) -> Difference:
    one, other = len(recorded.records), len(again.records)
    if one > other:
        return _with_spec_change(_difference(other, "missing", _call(recorded.records[other]), None), recorded, again)
    if other > one:
        return _with_spec_change(_difference(one, "extra", None, _call(again.records[one])), recorded, again)
    ends = [[run.termination, run.elapsed_ms] for run in (recorded, again)]
    if ends[0] != ends[1]:
        return _difference(one, "end", *ends)
    return _difference(one, "spec", *_spec_difference(recorded, again))


def _with_spec_change(found: Difference, recorded: Run, again: Run) -> Difference:
    """Add a change of the spec to the cause, because it explains more than a differing step."""
    if recorded.id == again.id:
        return found
    changed, _ = _spec_difference(recorded, again)
    return replace(found, cause=f"{', '.join(changed)} changed since the recording; at this step, {found.cause}")


def _spec_difference(recorded: Run, again: Run) -> tuple[Any, Any]:
    one, other = recorded.spec, again.spec
    parts: list[tuple[str, Any, Any]] = [
        (name, getattr(one, name), getattr(other, name)) for name in ("task", "seed", "clock", "horizon_steps", "horizon_ms")
    ]
    names = sorted({*one.config, *other.config})
    parts += [(f"config.{name}", one.config.get(name), other.config.get(name)) for name in names]
    parts.append(("schedule", _schedule(one), _schedule(other)))
    changed = [(name, before, after) for name, before, after in parts if canonical(before) != canonical(after)]
    return {name: before for name, before, _ in changed}, {name: after for name, _, after in changed}


def _schedule(spec: RunSpec) -> list[Any]:
    return [[item.operator, str(item.site), item.parameters] for item in spec.schedule]


def _difference(step: int, aspect: Aspect, before: Any, after: Any) -> Difference:
    field, one, other = _field(before, after)
    if aspect == "reply":  # its first part is the value, which readers know; the others are its error, whether it was cut, ...
        first, _, rest = field.partition(".")
        field = rest if first == "0" else field
    elif isinstance(before, list):
        field = ""
    return Difference(
        step=step, aspect=aspect, recorded=_value_text(before), again=_value_text(after), cause=_cause(aspect, one, other),
        field=field, one=_value_text(one), other=_value_text(other),
    )  # fmt: skip


def _value_text(value: Any) -> str:
    text = canonical(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _reordered(before: list[Any], after: list[Any]) -> bool:
    one, other = ([canonical(item) for item in items] for items in (before, after))
    return one != other and Counter(one) == Counter(other)


def _cause(aspect: Aspect, one: Any, other: Any) -> str:
    """The likely cause in words; the first values that differ say more than their position."""
    if aspect in ("arguments", "reply", "state", "executed"):
        if isinstance(one, list) and isinstance(other, list) and _reordered(one, other):
            return "the same things in another order: set order, a query without ORDER BY, or tasks that race"
        if isinstance(one, str) and isinstance(other, str):
            if _TIME.search(one) and _TIME.search(other):
                return "a time of day that the run does not control: a clock read outside the run or by native code"
            if _ID.search(one) and _ID.search(other):
                return "an id drawn outside the run's entropy: by a service, a database, native code, or before the run"
    return _CAUSES[aspect]


def in_words(found: Difference) -> str:
    """The field that differs and its two values, in short: "its reply at id: 17, then 18"."""
    values = [each if len(each) <= _SHORT else f"{each[: _SHORT - 3]}..." for each in (found.one, found.other)]
    return f"its {found.aspect}{f' at {found.field}' if found.field else ''}: {values[0]}, then {values[1]}"


def _field(before: Any, after: Any, path: str = "") -> tuple[str, Any, Any]:
    """The path to the first values that differ, and both; lists that hold the same in another order differ as a whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        pairs = [(str(key), before.get(key), after.get(key)) for key in sorted({*before, *after}, key=str)]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after) and not _reordered(before, after):
        pairs = [(str(index), one, other) for index, (one, other) in enumerate(zip(before, after, strict=True))]
    else:
        return path, before, after
    key, one, other = next((key, one, other) for key, one, other in pairs if canonical(one) != canonical(other))
    return _field(one, other, f"{path}.{key}" if path else key)

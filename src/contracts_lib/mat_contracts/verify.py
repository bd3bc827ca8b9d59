"""Verify before acting: a check comes shortly before each act.

Source: Sec. IV-B.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, Unpack

from mat.core.errors import plural
from mat.core.record import ActionKind, Record
from mat.monitor.contract import Contract, Violated
from mat_contracts._about import About, about_arguments, about_text, contradicts, single_targets
from mat_contracts._shared import count_of, label, let_through, names_of, too_many
from mat_contracts.catalogue import Options, template

CHECKS: Final = 1_000
"""Checks of different things within the window that one contract remembers. With more it is unknown."""
LOOKED_UP: Final = 32
"""Latest calls whose ids are remembered, because a check may be supported by their replies."""
_KINDS: Final[frozenset[ActionKind]] = frozenset(("verification", "tool_call", "retrieval"))


class _Check(NamedTuple):
    """The latest check of one thing."""

    step: int
    passed: bool
    about: About


_State: TypeAlias = tuple[tuple[_Check, ...], tuple[tuple[str, Mapping[str, Any]], ...]]
"""The latest check of each thing, oldest first; and the arguments of the latest calls, by the artifact of their reply."""


@template
def verify_before_act(
    tool: str | Iterable[str],
    *,
    within: int = 5,
    check: str | None = None,
    **options: Unpack[Options],
) -> Contract:
    """Each call of the tool comes at most `within` steps after a verification of the same thing, and the latest one passed.

    `tool` names one tool or several. With `check`, only verifications of this name count. Blocked and failed
    calls are judged, because they were attempted.

    A later failed check undoes a passed one. A check is bound to the ids that it names, in its name ("order A17 belongs to the
    sender"), in its arguments, or in the arguments of the calls whose replies support it. It does not count for a call that
    names another id of the same noun; one that names no id counts for every call. A call about several ids needs a check of
    each.

    Raises `mat.MatError` for an empty name and an invalid window.

    Precision 1.00, recall 1.00 on 38 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> checked = record("verification", "order belongs to the sender", {"passed": True})
    >>> refund = record("tool_call", "refund", {"order": "A1"}, effect="write")
    >>> broken(verify_before_act("refund", within=1), trace(checked, refund))
    ()
    >>> broken(verify_before_act("refund", within=1), trace(refund))
    (0,)

    Source: Sec. IV-B, A1.9.
    """
    tools = names_of(tool, "tool")
    count_of(within, "within", least=1)
    wanted = "verification" if check is None else f"verification {check!r}"

    def step(state: _State, record: Record) -> _State | Violated:
        action = record.action
        if action.kind == "verification":
            return state if check not in (None, action.name) else _with_check(state, record, within)
        arguments = let_through(record)
        if action.kind != "tool_call" or action.name not in tools:
            return (state[0], (*state[1], (record.artefact, arguments))[-LOOKED_UP:]) if arguments else state
        about = about_arguments(arguments)
        recent = [item for item in state[0] if record.step - item.step <= within]
        bound = [_bound(recent, target, action.name) for target in single_targets(about)]
        if all(item is not None and item.passed for item in bound):
            return state
        missing = next(item for item in bound if item is None or not item.passed)
        other = missing or next((item for item in reversed(recent) if item.passed), None)
        if other is None:
            return Violated(
                f"{label(tools)} was called without a passed {wanted} in the {plural(within, 'step')} before", state=state
            )
        why = f"was about {_ids(other.about)}" if other.passed else "had failed"
        return Violated(
            f"{label(tools)} was called after the {wanted} at step {other.step}, which {why}", state=state,
            witness=(other.step, record.step), wanted=f"a passed {wanted} of {_ids(about) or 'this call'}",
        )  # fmt: skip

    return Contract(
        id=f"{label(tools)}.verified_before_act", step=step, start=((), ()), kinds=_KINDS,
        repair=f"pass a {wanted} at most {plural(within, 'step')} before {label(tools)}",
        text=f"{label(tools)} comes at most {plural(within, 'step')} after a passed {wanted} of the same thing",
    )  # fmt: skip


def _bound(recent: list[_Check], target: About, tool: str) -> _Check | None:
    """The latest check that is not about another thing than the call, None if there is none."""
    return next((item for item in reversed(recent) if not contradicts(item.about, target, tool)), None)


def _with_check(state: _State, record: Record, within: int) -> _State:
    """The state after a check. It replaces an earlier one of the same thing."""
    checks, calls = state
    arguments = record.action.arguments
    sources = {link.src for link in record.links if link.rel == "supports"}
    about = {*about_text(record.action.name), *about_arguments(arguments)}
    if sources:
        about.update(pair for artefact, given in calls if artefact in sources for pair in about_arguments(given))
    item = _Check(record.step, arguments.get("passed") is True, tuple(sorted(about)))
    kept = tuple(old for old in checks if old.about != item.about and record.step - old.step < within)
    if len(kept) >= CHECKS:
        raise too_many(f"more than {CHECKS} checks of different things in {within} steps", "give a smaller within=")
    return (*kept, item), calls


def _ids(about: About) -> str:
    return ", ".join(f"{noun} {item}".strip() for noun, item in about)

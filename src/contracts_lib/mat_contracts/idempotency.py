"""Idempotency: what is meant to happen once happens once, whatever was lost on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from mat.core.digest import digest
from mat.core.errors import LimitReached, SpecError
from mat.core.record import ActionKind, Record
from mat.core.value import EMPTY, FrozenDict
from mat.core.verdict import Severity
from mat.monitor.contract import Contract, ContractPolicy, Violated
from mat_contracts._shared import label, let_through, names_of

Key: TypeAlias = str | Iterable[str] | Callable[[Mapping[str, Any]], Any]
EFFECTS: Final = 1_000
"""Different effects one contract remembers: as many as a run has steps by default. Past it the contract is unknown."""
_TOOL_CALLS: Final[frozenset[ActionKind]] = frozenset(("tool_call",))


def no_duplicate_effect(
    tool: str | Iterable[str],
    *,
    key: Key | None = None,
    id: str = "",
    severity: Severity = "hard",
    weight: float = -1.0,
    policy: ContractPolicy = "observe",
    repair: str = "",
) -> Contract:
    """The same effect, a tool with the same key arguments, is done at most once.

    `key` names the arguments that make two effects the same (by default all), or computes that from the arguments. Done
    means `effected` is "yes"; a call whose port ran more than once did it more than once. Where it is "unknown" (the
    port failed midway) nothing is held against the agent, but a later violation says so. A proposed call counts as done,
    so that `policy="block"` stops the second one.

    >>> from mat_contracts.traces import broken, record, trace
    >>> refund = record("tool_call", "refund", {"order": "A1", "amount": 5}, effect="write")
    >>> other = record("tool_call", "refund", {"order": "B2", "amount": 5}, effect="write")
    >>> broken(no_duplicate_effect("refund", key="order"), trace(refund, other))
    ()
    >>> broken(no_duplicate_effect("refund", key="order"), trace(refund, refund))
    (1,)
    """
    tools = names_of(tool, "tool")
    said_tools = label(tools)
    key_of = _key(key)

    def step(state: FrozenDict, record: Record) -> FrozenDict | Violated:
        if record.action.name not in tools or record.effected == "no":
            return state
        effect = digest([record.action.name, key_of(let_through(record))])[:32]
        done, unsure = state.get(effect, (-1, -1))
        if record.effected == "unknown" and record.invoked == 1:
            return _noted(state, effect, done, record.step if unsure < 0 else unsure)
        new = _noted(state, effect, record.step, unsure)
        said, witness = _double(record, done, unsure)
        return Violated(said, state=new, witness=witness, instance=effect[:8]) if said else new

    return Contract(
        id=id or f"{said_tools}.no_duplicate_effect", step=step, start=EMPTY, kinds=_TOOL_CALLS, severity=severity,
        weight=weight, policy=policy,
        repair=repair or f"send an idempotency key, or ask the service what happened before calling {said_tools} again",
        text=f"{said_tools} has the same effect at most once",
    )  # fmt: skip


def _double(record: Record, done: int, unsure: int) -> tuple[str, tuple[int, ...]]:
    """What is wrong with this effect, and the steps that show it; an empty text where nothing is."""
    name, parts, witness = record.action.name, [], [record.step]
    if done >= 0:
        parts.append(f"{name} had the same effect at steps {done} and {record.step}")
        witness.insert(0, done)
    if record.invoked > 1:
        parts.append(f"the one call at step {record.step} ran {name} {record.invoked} times")
    if parts and unsure >= 0:
        parts.append(f"the call at step {unsure} may have had it as well")
    return "; ".join(parts), tuple(witness)


def _noted(state: FrozenDict, effect: str, done: int, unsure: int) -> FrozenDict:
    if effect not in state and len(state) >= EFFECTS:
        raise LimitReached(
            what=f"more than {EFFECTS} different effects in one trace",
            why="a monitor's state is bounded",
            fix="judge shorter episodes, or give a coarser key=",
        )
    return FrozenDict({**state, effect: (done, unsure)})


def _key(key: Key | None) -> Callable[[Mapping[str, Any]], Any]:
    if key is None:
        return dict
    if callable(key):
        return key
    names = names_of(key, "key")

    def named(arguments: Mapping[str, Any]) -> Any:
        missing = [name for name in names if name not in arguments]
        if missing:
            raise SpecError(
                what=f"no argument {', '.join(map(repr, missing))} in a call that has {', '.join(sorted(arguments)) or 'none'}",
                why="without its key two effects cannot be told apart",
                fix="correct key=, or do not exclude the parameter from the record",
            )
        return [arguments[name] for name in names]

    return named

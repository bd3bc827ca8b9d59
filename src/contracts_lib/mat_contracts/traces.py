"""Small traces by hand, for the examples in docstrings and for tests of contracts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from mat.core.record import (
    NOTHING,
    Action,
    ActionKind,
    Effect,
    Effected,
    ErrorFact,
    FaultNote,
    Link,
    Mediation,
    Observation,
    Record,
)
from mat.core.site import escape
from mat.core.value import EMPTY, snapshot, snapshot_arguments
from mat.core.verdict import Violation
from mat.monitor.contract import Contract
from mat.monitor.judge import judge

STEP_MS: Final = 1000
"""Run time between two records of a trace made here."""
_BOUNDARIES: Final[Mapping[str, str]] = {
    "tool_call": "service",
    "retrieval": "retrieval",
    "memory_read": "memory",
    "memory_write": "memory",
    "model_call": "model",
    "delegation": "delegation",
    "message": "delegation",
}


def record(
    kind: ActionKind,
    name: str = "",
    arguments: Mapping[str, object] = EMPTY,
    /,
    *,
    agent: str = "main",
    state: Mapping[str, object] = EMPTY,
    value: object = None,
    error: str = "",
    effect: Effect = "none",
    effected: Effected | None = None,
    invoked: int | None = None,
    blocked: bool = False,
    faults: Iterable[str] = (),
    supports: Iterable[str] = (),
    raw: object = None,
    boundary: str | None = None,
) -> Record:
    """One record; `trace` gives it its step and times.

    `error` is an error kind (timeout, connection, ...), `faults` are operator ids whose effect changed the call, `supports`
    artefacts such as "step#0" that support it, `raw` what the port said where a fault delivered something else.
    """
    crosses = _BOUNDARIES.get(kind, "") if boundary is None else boundary
    ran = (0 if blocked else 1) if invoked is None else invoked
    if blocked:
        error = "blocked"
    return Record(
        step=0, at_ms=0, sealed_ms=0, asked_seq=0, sealed_seq=1, agent=agent, role="",
        state=snapshot_arguments(state, "state"), site=f"{escape(agent)}/{crosses or kind}:{escape(name)}#1",
        action=Action(kind=kind, name=name, arguments=snapshot_arguments(arguments, name), effect=effect, boundary=crosses),
        observation=_observation(value, error), effected=effected or _effected(error, ran),
        mediation=Mediation(decision="block", rule="example", reason="blocked") if blocked else None,
        links=tuple(Link(src=source, rel="supports", dst="") for source in supports),
        executed=None, raw=None if raw is None else _observation(raw, ""), invoked=ran,
        faults=tuple(FaultNote(operator=operator, parameters=EMPTY, effect="Replace") for operator in faults), taped=False,
    )  # fmt: skip


def _observation(value: object, error: str) -> Observation:
    if error:
        return Observation(error=ErrorFact(type=error.title(), message=error, kind=error))
    return NOTHING if value is None else Observation(value=snapshot(value))


def _effected(error: str, invoked: int) -> Effected:
    if not error:
        return "yes"
    return "unknown" if invoked else "no"


def trace(*records: Record) -> tuple[Record, ...]:
    """The records as one trace: steps from 0, one every STEP_MS milliseconds, links completed."""
    return tuple(_placed(item, step) for step, item in enumerate(records))


def _placed(item: Record, step: int) -> Record:
    artefact = f"{'claim' if item.action.kind == 'claim' else 'step'}#{step}"
    return replace(
        item, step=step, at_ms=step * STEP_MS, sealed_ms=step * STEP_MS, asked_seq=2 * step, sealed_seq=2 * step + 1,
        links=tuple(replace(link, dst=artefact) for link in item.links),
    )  # fmt: skip


def violations(contract: Contract, records: Iterable[Record]) -> tuple[Violation, ...]:
    """What one contract says of a finished trace. AssertionError where it raised: an example has no unknown outcome."""
    _, (outcome,) = judge(records, [contract])
    assert not outcome.error, outcome.error
    return outcome.violations


def broken(contract: Contract, records: Iterable[Record]) -> tuple[int, ...]:
    """The steps at which a finished trace breaks a contract, in the order they were found."""
    return tuple(violation.step for violation in violations(contract, records))

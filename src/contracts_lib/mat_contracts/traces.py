"""Small handmade traces, for examples in docstrings and for tests of contracts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from mat.core.artifact import Issued, Lacking, Used, as_facts, issued, used
from mat.core.damage import Damage
from mat.core.record import (
    NOTHING,
    Action,
    ActionKind,
    DeclaredEffect,
    Effected,
    ErrorFact,
    FaultNote,
    Link,
    Mediation,
    Observation,
    Record,
)
from mat.core.site import escape
from mat.core.value import EMPTY, FrozenDict, snapshot, snapshot_arguments
from mat.core.verdict import Violation
from mat.monitor.contract import Contract
from mat.monitor.judge import judge

STEP_MS: Final = 1000
"""Milliseconds of run time between two records of such a trace."""
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
    effect: DeclaredEffect = "none",
    effected: Effected | None = None,
    invoked: int | None = None,
    blocked: bool = False,
    faults: Iterable[str] = (),
    supports: Iterable[str] = (),
    raw: object = None,
    boundary: str | None = None,
    issues: Iterable[tuple[str, int | None]] = (),
    supersedes: bool = False,
    uses: Iterable[str | tuple[str, Damage]] = (),
    lacks: Iterable[tuple[str, str]] = (),
) -> Record:
    """One record; `trace` sets its step and times.

    `error` is an error kind (timeout, connection, ...). `faults` are the operator ids whose effect changed the call. `supports`
    names artifacts such as "step#0" that support it. `raw` is the port's own reply if a fault delivered a different one.
    `issues`: (name, validity in milliseconds) of artifacts in the reply; with `supersedes` they end earlier ones of the same
    name. `uses`: names of artifacts in the arguments ("url" for the latest, or "url#1"), or (name, damage). `lacks`: (name,
    "absent" or "foreign").
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
        artefacts=_artefacts(issues, uses, lacks, supersedes=supersedes),
    )  # fmt: skip


def _artefacts(
    issues: Iterable[tuple[str, int | None]],
    uses: Iterable[str | tuple[str, Damage]],
    lacks: Iterable[tuple[str, str]],
    *,
    supersedes: bool,
) -> FrozenDict:
    """Facts without numbers and times; `trace` adds these."""
    brought = [
        Issued(id="", name=name, at="", issued_ms=0, ttl_ms=ttl, integrity="sha256", delivered=True, supersedes=supersedes)
        for name, ttl in issues
    ]
    carried = [_use_of(item, "") if isinstance(item, str) else _use_of(*item) for item in uses]
    missing = [Lacking(name=name, at="", what=what) for name, what in lacks]
    found = {"issued": tuple(brought), "used": tuple(carried), "lacking": tuple(missing)}
    return FrozenDict({name: as_facts(items) for name, items in found.items() if items})


def _use_of(name: str, damage: Damage) -> Used:
    return Used(
        id=name, name=name.partition("#")[0], at="", damage=damage, intact=not damage, handle=False, issued_ms=0, ttl_ms=None,
        superseded=False,
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
    placed, known = [], dict[str, list[Issued]]()
    for step, item in enumerate(records):
        placed.append(_numbered(_placed(item, step), known))
    return tuple(placed)


def _numbered(item: Record, known: dict[str, list[Issued]]) -> Record:
    """The record with the numbers and times of its artifacts."""
    if not item.artefacts:
        return item
    facts = dict(item.artefacts)
    carried = []
    for use in used(item):
        number = use.id.partition("#")[2]
        latest = known[use.name][-1]
        source = known[use.name][int(number) - 1] if number else latest
        ended = latest.supersedes and source is not latest
        carried.append(replace(use, id=source.id, issued_ms=source.issued_ms, ttl_ms=source.ttl_ms, superseded=ended))
    if carried:
        facts["used"] = as_facts(tuple(carried))
    brought = []
    for fact in issued(item):
        count = len(known.setdefault(fact.name, [])) + 1
        brought.append(replace(fact, id=f"{fact.name}#{count}", issued_ms=item.sealed_ms))
        known[fact.name].append(brought[-1])
    if brought:
        facts["issued"] = as_facts(tuple(brought))
    return replace(item, artefacts=FrozenDict(facts))


def _placed(item: Record, step: int) -> Record:
    artefact = f"{'claim' if item.action.kind == 'claim' else 'step'}#{step}"
    return replace(
        item, step=step, at_ms=step * STEP_MS, sealed_ms=step * STEP_MS, asked_seq=2 * step, sealed_seq=2 * step + 1,
        links=tuple(replace(link, dst=artefact) for link in item.links),
    )  # fmt: skip


def violations(contract: Contract, records: Iterable[Record]) -> tuple[Violation, ...]:
    """The violations of one contract on a finished trace. AssertionError if the contract raised an error."""
    _, (outcome,) = judge(records, [contract])
    assert not outcome.error, outcome.error
    return outcome.violations


def broken(contract: Contract, records: Iterable[Record]) -> tuple[int, ...]:
    """The steps at which a finished trace breaks a contract, in the order in which they were found."""
    return tuple(violation.step for violation in violations(contract, records))

"""The report of a session as a value: every table and number that the renderings (terminal, JSON, Markdown) show."""

from __future__ import annotations

from dataclasses import dataclass

from mat.core.campaign import Status
from mat.evidence.artifact import Replay
from mat.measure.estimate import Estimate, Spread
from mat.measure.reliability import ContractProfile, FaultProfile, MediationShares
from mat.measure.rows import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemLine:
    """One test item. `cost`, `contract`, `step` and `agent` are those of its cheapest counterexample, None or "" without one.

    `bound` and `proven` are the certificate's, None where nothing was searched.
    """

    id: str
    status: Status
    cost: int | None
    executions: int
    bound: int | None
    proven: bool | None
    reason: str
    contract: str
    step: int | None
    agent: str
    category: str
    replays: tuple[str, ...]
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NominalLine:
    """Runs without disturbance of one item, or of all: then `item` is "all"."""

    item: str
    runs: int
    success: Estimate
    non_termination: Estimate
    violations: Estimate
    steps: Spread
    tool_calls: Spread
    tokens: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernanceLine:
    """What the mediator decided under one condition."""

    condition: Condition
    shares: MediationShares


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    name: str
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """`runs` counts the rows it was built from. Lines stand in the order in which the items ran."""

    runs: int = 0
    items: tuple[ItemLine, ...] = ()
    nominal: tuple[NominalLine, ...] = ()
    faults: tuple[FaultProfile, ...] = ()
    governance: tuple[GovernanceLine, ...] = ()
    violations: tuple[ContractProfile, ...] = ()
    counterexamples: tuple[Replay, ...] = ()
    metrics: tuple[Metric, ...] = ()

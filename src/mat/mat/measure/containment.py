"""Containment rates: how the faults of a set of runs were handled, by operator, boundary or kind. Source: CR of A6.2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from mat.core.record import MediationDecision
from mat.measure.estimate import Estimate
from mat.measure.interval import CONFIDENCE
from mat.measure.rows import FaultRow, RunRow, counted
from mat.measure.sampling import TASKS, Sampling, Trials, share, task_of

Grouping: TypeAlias = Literal["operator", "boundary", "kind"]
"""operator: `service.timeout`, `observed.timeout`; boundary: where it entered; kind: the operator without its boundary."""
_NO_BOUNDARY: Final = "none"
"""The group of faults that crossed no boundary: an error of the run's approver."""
_NO_ACTIONS: Final = Estimate(value=None, low=None, high=None, n=0, confidence=CONFIDENCE, method="wilson")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCount:
    """How many faults a rule of `mat.monitor.faults` accounts for."""

    rule: str
    faults: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultProfile:
    """The outcomes of the faults of one group; `operator` is the name of the group.

    The unit is the fault; `runs` is the number of runs with these faults. If a run has several, the intervals are those of
    clustered data (see `clustered`). `detected`: within w; `mitigated`: detected, and mitigated within w' of that;
    `contained`: mitigated, and the run breaks no hard contract (CR); `final_ok`: the run breaks none, mitigated or not, so 1 -
    `final_ok` is the share of faults in runs that fail. `detected_by` and `mitigated_by`: the rules that did it, the most
    frequent first. `allow`, `rewrite`, `block`: the decisions on actions proposed in these runs, to distinguish recovery from
    blocking.
    """

    operator: str
    injected: bool
    detected: Estimate
    mitigated: Estimate
    contained: Estimate
    final_ok: Estimate
    boundary: str = ""
    runs: int = 0
    detected_by: tuple[RuleCount, ...] = ()
    mitigated_by: tuple[RuleCount, ...] = ()
    allow: Estimate = _NO_ACTIONS
    rewrite: Estimate = _NO_ACTIONS
    block: Estimate = _NO_ACTIONS


def containment(rows: Iterable[RunRow], sampling: Sampling = TASKS) -> Estimate:
    """The containment rate: the share of injected and reached faults that satisfy the rules and final contracts."""
    return fault_share(rows, lambda fault: fault.contained, sampling)


def fault_share(rows: Iterable[RunRow], fact: Callable[[FaultRow], bool], sampling: Sampling = TASKS) -> Estimate:
    """The share of injected and reached faults with a fact. Faults of one run, and of one task, are dependent."""
    found = [(row, [fact(fault) for fault in row.faults if fault.injected]) for row in counted(rows)]
    return share(
        (Trials(task=task_of(row), seed=row.seed, won=sum(facts), trials=len(facts)) for row, facts in found), sampling
    )


def fault_profile(rows: Iterable[RunRow], *, by: Grouping = "operator", sampling: Sampling = TASKS) -> tuple[FaultProfile, ...]:
    """One profile per group: injected faults first, then observed ones, each by name. Empty without faults."""
    groups: dict[tuple[bool, str], list[tuple[RunRow, list[FaultRow]]]] = {}
    for row in counted(rows):
        found: dict[tuple[bool, str], list[FaultRow]] = {}
        for fault in row.faults:
            found.setdefault((not fault.injected, group_of(fault, by)), []).append(fault)
        for key, faults in found.items():
            groups.setdefault(key, []).append((row, faults))
    return tuple(_profile(name, not observed, groups[observed, name], sampling) for observed, name in sorted(groups))


def group_of(fault: FaultRow, by: Grouping) -> str:
    if by == "operator":
        return fault.operator
    return fault.operator.partition(".")[2] or fault.operator if by == "kind" else fault.boundary or _NO_BOUNDARY


def _profile(name: str, injected: bool, runs: Sequence[tuple[RunRow, Sequence[FaultRow]]], sampling: Sampling) -> FaultProfile:
    clusters = [faults for _, faults in runs]
    faults = [fault for cluster in clusters for fault in cluster]
    boundaries = {fault.boundary for fault in faults}

    def having(fact: Callable[[FaultRow], bool]) -> Estimate:
        return share(
            (Trials(task=task_of(row), seed=row.seed, won=sum(map(fact, found)), trials=len(found)) for row, found in runs),
            sampling,
        )

    return FaultProfile(
        operator=name, injected=injected, detected=having(lambda fault: fault.detected),
        mitigated=having(lambda fault: fault.mitigated), contained=having(lambda fault: fault.contained),
        final_ok=having(lambda fault: fault.final_ok), boundary=boundaries.pop() if len(boundaries) == 1 else "",
        runs=len(clusters), detected_by=_rule_counts(fault.detected_by for fault in faults),
        mitigated_by=_rule_counts(fault.mitigated_by for fault in faults), allow=_decision_share(runs, "allow", sampling),
        rewrite=_decision_share(runs, "rewrite", sampling), block=_decision_share(runs, "block", sampling),
    )  # fmt: skip


def _decision_share(runs: Sequence[tuple[RunRow, object]], decision: MediationDecision, sampling: Sampling) -> Estimate:
    return share(
        (
            Trials(
                task=task_of(row), seed=row.seed,
                won=sum(action.count for action in row.actions if action.decision == decision),
                trials=sum(action.count for action in row.actions),
            )
            for row, _ in runs
        ),
        sampling,
    )  # fmt: skip


def _rule_counts(names: Iterable[str]) -> tuple[RuleCount, ...]:
    counts = Counter(name for name in names if name)
    return tuple(
        RuleCount(rule=rule, faults=count) for rule, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )

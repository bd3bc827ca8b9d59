"""Containment rates: how the faults of a set of runs were handled, by operator, boundary or kind. Source: CR of A6.2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final, Literal, TypeAlias

from mat.core.record import MediationDecision
from mat.measure.estimate import Estimate
from mat.measure.interval import CONFIDENCE, t_quantile, wilson
from mat.measure.rows import FaultRow, RunRow, counted

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


def containment(rows: Iterable[RunRow]) -> Estimate:
    """The containment rate: the share of injected and reached faults that satisfy the rules and final contracts, by run."""
    clusters = [[fault.contained for fault in row.faults if fault.injected] for row in counted(rows)]
    return clustered([(sum(cluster), len(cluster)) for cluster in clusters])


def fault_profile(rows: Iterable[RunRow], *, by: Grouping = "operator") -> tuple[FaultProfile, ...]:
    """One profile per group: injected faults first, then observed ones, each by name. Empty without faults."""
    groups: dict[tuple[bool, str], list[tuple[RunRow, list[FaultRow]]]] = {}
    for row in counted(rows):
        found: dict[tuple[bool, str], list[FaultRow]] = {}
        for fault in row.faults:
            found.setdefault((not fault.injected, group_of(fault, by)), []).append(fault)
        for key, faults in found.items():
            groups.setdefault(key, []).append((row, faults))
    return tuple(_profile(name, not observed, groups[observed, name]) for observed, name in sorted(groups))


def group_of(fault: FaultRow, by: Grouping) -> str:
    if by == "operator":
        return fault.operator
    return fault.operator.partition(".")[2] or fault.operator if by == "kind" else fault.boundary or _NO_BOUNDARY


def _profile(name: str, injected: bool, runs: Sequence[tuple[RunRow, Sequence[FaultRow]]]) -> FaultProfile:
    clusters = [faults for _, faults in runs]
    faults = [fault for cluster in clusters for fault in cluster]
    boundaries = {fault.boundary for fault in faults}

    def share(fact: Callable[[FaultRow], bool]) -> Estimate:
        return clustered([(sum(map(fact, cluster)), len(cluster)) for cluster in clusters])

    return FaultProfile(
        operator=name, injected=injected, detected=share(lambda fault: fault.detected),
        mitigated=share(lambda fault: fault.mitigated), contained=share(lambda fault: fault.contained),
        final_ok=share(lambda fault: fault.final_ok), boundary=boundaries.pop() if len(boundaries) == 1 else "",
        runs=len(clusters), detected_by=_rule_counts(fault.detected_by for fault in faults),
        mitigated_by=_rule_counts(fault.mitigated_by for fault in faults), allow=_decision_share(runs, "allow"),
        rewrite=_decision_share(runs, "rewrite"), block=_decision_share(runs, "block"),
    )  # fmt: skip


def _decision_share(runs: Sequence[tuple[RunRow, object]], decision: MediationDecision) -> Estimate:
    return clustered(
        [
            (sum(action.count for action in row.actions if action.decision == decision), sum(a.count for a in row.actions))
            for row, _ in runs
        ]
    )


def _rule_counts(names: Iterable[str]) -> tuple[RuleCount, ...]:
    counts = Counter(name for name in names if name)
    return tuple(
        RuleCount(rule=rule, faults=count) for rule, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


def clustered(clusters: Iterable[tuple[int, int]], confidence: float = CONFIDENCE) -> Estimate:
    """The share of successes in clusters of (successes, trials), with Wilson's interval at the effective sample size.

    Trials of one cluster (faults of one run) are dependent, so n of them count as n / deff: deff is the variance of the share
    between clusters (the ratio estimator's) over that of independent trials, at least 1 and at most the value that makes each
    cluster one trial; k clusters scale it by (z / t_{k-1})^2 as well. If the clusters do not show deff (a single cluster, or
    equal trials), each cluster is one trial. With one trial per cluster, this is plain Wilson, and `method` says so. Source:
    E. L. Korn, B. I. Graubard, Survey Methodology 24 (1998), with Wilson's interval instead of the exact one.
    """
    counted = [(won, trials) for won, trials in clusters if trials]
    n, successes = sum(trials for _, trials in counted), sum(won for won, _ in counted)
    plain = wilson(successes, n, confidence)
    if n == len(counted):
        return plain
    least = float(len(counted))
    effective = min(max(_effective(counted) * _few_factor(len(counted), confidence), least), float(n))
    share = successes / n
    shares = wilson(share * effective, effective, confidence)  # type: ignore[arg-type]  # a sample size need not be whole
    return replace(plain, low=shares.low, high=shares.high, method="wilson-clustered")


def _few_factor(clusters: int, confidence: float) -> float:
    """The factor by which few clusters reduce the effective size, because their variance is itself estimated."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    return (z / t_quantile(clusters - 1, confidence)) ** 2 if clusters > 1 else 0.0


def _effective(counted: Sequence[tuple[int, int]]) -> float:
    """n / deff, or 0 if the clusters do not show deff."""
    k, n = len(counted), sum(trials for _, trials in counted)
    successes = sum(won for won, _ in counted)
    if k < 2 or successes in (0, n):
        return 0.0
    spread = sum(
        (won * n - successes * trials) ** 2 for won, trials in counted
    )  # an integer, so that equal shares give exactly 0
    share, between = successes / n, k / (k - 1) * spread / n**4
    return share * (1 - share) / between if spread else float(n)

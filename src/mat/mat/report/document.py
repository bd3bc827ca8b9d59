"""Represents a session's report as a value with every number that a rendering shows. `build` makes it, `tables` lays it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mat.core.campaign import Covered, ItemStatus, Recorded, StagedSignature, Standing
from mat.core.verdict import Outcome, Severity, Stage
from mat.evidence.replay_file import Replay
from mat.measure import metrics as measures
from mat.measure.containment import FaultProfile
from mat.measure.distribution import Distribution, ShareOf
from mat.measure.estimate import Estimate, Spread
from mat.measure.governance import VariantLine
from mat.measure.paired import PairedShares
from mat.measure.regression import RunOutcome
from mat.measure.reliability import ContractProfile
from mat.measure.robustness import Curve
from mat.measure.rows import RunCondition


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemLine:
    """One test item. `cost`, `contract`, `step` and `agent` are those of its cheapest counterexample, None or "" without one.

    `bound` and `proven` come from the certificate, and `covered` is what the search covered; None without a search.
    `recorded`: how far recorded replies of external ports reached in it; None without any.
    `relative_to`: what the certificate takes as given, "" for nothing. `outcomes_left_out` counts runs under faults that are
    not in the table `outcomes`. `notes`: what the status does not say. `reused`: the day on which its certificate was made, if
    it was not searched again; `executions` are those of this session.
    `estimate`: without a proof, the share of random schedules within the budget that break a contract.

    Source: A6.5.
    """

    id: str
    status: ItemStatus
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
    outcomes_left_out: int = 0
    covered: Covered | None = None
    recorded: Recorded | None = None
    relative_to: str = ""
    notes: tuple[str, ...] = ()
    reused: str = ""
    estimate: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingLine:
    """A run that breaks contracts, as one entry: a counterexample, a replay, or (`causes` empty) a nominal run.

    `standing`: "new" fails its test; `remark` and `until` are those of an acceptance. `contract` is the first that is broken,
    at `step` by `agent`, with its `message` and `repair`; `contracts` are all. `causes`: the schedule in words. `place`: the
    line of the agent's call, `file:line`, "" if it is not known. `replay`: the replay file. `reproduced` in `executions`
    repetitions. `replayed`: a replay of the same run fails in this session, too, and has no entry of its own.
    `test`: the node id of the test, which is not that of its replay.
    """

    item: str
    test: str
    standing: Standing
    contract: str
    contracts: tuple[str, ...]
    severity: Severity
    stage: Stage
    step: int
    agent: str
    cost: int
    message: str
    repair: str
    causes: tuple[str, ...]
    place: str
    replay: str
    signatures: tuple[StagedSignature, ...]
    remark: str = ""
    until: str = ""
    executions: int = 0
    reproduced: int = 0
    replayed: bool = False

    @property
    def flaky(self) -> bool:
        """Whether only some of its repetitions showed it again."""
        return self.reproduced < self.executions


@dataclass(frozen=True, slots=True, kw_only=True)
class NominalLine:
    """The nominal runs of one item, or of all (`item` "all"), without runs whose infrastructure failed."""

    item: str
    runs: int
    success: Estimate
    non_termination: Estimate
    violations: Estimate
    steps: Spread
    tool_calls: Spread
    tokens: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricLine:
    """A metric by its name. `unit`: share, steps, ms, tokens, calls or score."""

    name: str
    estimate: Estimate
    unit: str = "share"


def unit_of(name: str) -> str:
    """The unit of a metric by its name, such as `nominal.steps` or `score.politeness`; "share" unless one is declared."""
    short = name.partition(".")[2]
    for known in (name, short):
        if known.startswith("score."):
            return "score"
        if known in measures.METRICS:
            return measures.METRICS[known].unit
    return "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationLine:
    """One cell of the evaluation: the runs of a condition, a workload category and a governance variant.

    `category` "all" includes items without a category. `infrastructure`: how many of the `runs` failed for reasons of
    infrastructure; they are in no metric. `k`: the runs that every task has, for success@k. `metrics`: the known ones of
    `mat.measure.metrics.METRICS`, in that order, with `success@j`, `success@j.unbiased` and `pass^j` for each j up to k, if
    k > 1.

    Source: A6.1, A6.6.
    """

    condition: RunCondition
    category: str
    variant: str
    items: int
    runs: int
    infrastructure: int
    k: int
    metrics: tuple[MetricLine, ...]

    def get(self, name: str) -> Estimate | None:
        """A metric by name; None if it is unknown in this cell."""
        return next((metric.estimate for metric in self.metrics if metric.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionLine:
    """The distribution of a number over the runs of one condition; `unit` is steps or ms.

    `name`: steps_to_termination, steps_to_failure, first_violation (the first violating step of failing runs) or latency_ms.
    """

    condition: RunCondition
    name: str
    unit: str
    distribution: Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstViolationLine:
    """The first violations of failing runs under one condition, by agent or action kind: shares, most frequent first."""

    condition: RunCondition
    by: Literal["agent", "action_kind"]
    shares: tuple[ShareOf, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InfrastructureLine:
    """Runs of one condition, under any variant, that say nothing about the system because of an infrastructure failure.

    `reason` names the failure. `left_out_of`: the only metric that misses these runs, if a scorer failed; "" if all do.
    """

    condition: RunCondition
    reason: str
    runs: int
    left_out_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantPair:
    """Two governance variants on the same items and seeds of one condition: what the second changes.

    Under structured faults, pairs have equal schedules too. Adversarial schedules are chosen for each variant, so a pair is the
    worst run of each. `old` is the variant without governance ("none"), if it was run.

    `aspect`: task success, or compliance (no hard contract broken). `tokens`: how many more the second uses in a run of both,
    if usage is known. Pairs in which a run's infrastructure failed are only in `paired.apart`.
    """

    condition: RunCondition
    aspect: Literal["success", "compliance"]
    old: str
    new: str
    paired: PairedShares
    tokens: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSuccess:
    """One task under one condition, schedule and variant: `solved` of its `runs` succeed.

    `any_of` and `all_of`: for k = 1, 2, ... up to `runs`, the unbiased estimates of success@k and pass^k.

    Source: Sec. V-C 1b.
    """

    condition: RunCondition
    variant: str
    task: str
    schedule: str
    category: str
    runs: int
    solved: int
    any_of: tuple[float, ...]
    all_of: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftLine:
    """Role drift of one agent under one condition. `score`: the mean share of its actions that lie outside its role, D_i.

    `drifted`: the share of runs with any; `absent`: runs in which it never acted; `unjudged`: runs in which a contract was
    unknown. Neither share counts these.

    Source: A2.F3.
    """

    condition: RunCondition
    agent: str
    score: Estimate
    drifted: Estimate
    absent: int
    unjudged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgencyLine:
    """Unsafe actions under one condition: `rate` of the proposed actions, `effected` of them that were not stopped, `runs` with
    any. `epsilon`: the bound that `verdict` is about, None without one.

    Source: A2.F4.
    """

    condition: RunCondition
    rate: Estimate
    effected: Estimate
    runs: Estimate
    epsilon: float | None
    verdict: Outcome | Literal[""]
    labels: tuple[tuple[str, int], ...] = ()
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """Task success of the runs of one row and column. `why`: the most frequent reason of failed runs, "" without any."""

    success: Estimate
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """A row of a heat map: `cells` in the order of the columns, None without a judged run. Rows of one `group` are adjacent."""

    name: str
    group: str
    cells: tuple[HeatCell | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Task success by two variables: `down` names the variable of the rows, `across` that of the columns."""

    title: str
    down: str
    across: str
    columns: tuple[str, ...]
    rows: tuple[HeatRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of a report, under their names and in their order in the JSON report."""

    nominal: tuple[NominalLine, ...] = ()
    faults: tuple[FaultProfile, ...] = ()
    governance: tuple[VariantLine, ...] = ()
    violations: tuple[ContractProfile, ...] = ()
    outcomes: tuple[RunOutcome, ...] = ()
    evaluation: tuple[EvaluationLine, ...] = ()
    distributions: tuple[DistributionLine, ...] = ()
    first_violations: tuple[FirstViolationLine, ...] = ()
    infrastructure: tuple[InfrastructureLine, ...] = ()
    variant_pairs: tuple[VariantPair, ...] = ()
    tasks: tuple[TaskSuccess, ...] = ()
    other_outcomes: tuple[RunOutcome, ...] = ()
    drift: tuple[DriftLine, ...] = ()
    agency: tuple[AgencyLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(Tables):
    """The report of a session. `runs` counts the rows it was built from; lines are in the order in which the items ran.

    `variant`: with runs of several governance variants, the one that all tables except `evaluation`, `governance`,
    `infrastructure` and `variant_pairs` show. `interrupted`: the session ended before all tests had run. `outcomes` has a line
    for each run of a variant whose outcome decides whether its test passes, `other_outcomes` one for each run of others, for
    programs only. `findings`: the runs that break contracts, one line each. `heat_maps` exist
    if several variants, or parameters of one test, were run.
    """

    runs: int = 0
    items: tuple[ItemLine, ...] = ()
    curves: tuple[Curve, ...] = ()
    counterexamples: tuple[Replay, ...] = ()
    metrics: tuple[MetricLine, ...] = ()
    variant: str = ""
    interrupted: bool = False
    heat_maps: tuple[HeatMap, ...] = ()
    findings: tuple[FindingLine, ...] = ()

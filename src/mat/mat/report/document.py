"""The report of a session as a value: every number that a rendering shows, once. `build` makes it, `tables` lays it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mat.core.campaign import Covered, ItemStatus
from mat.evidence.artifact import Replay
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

    `bound` and `proven` are the certificate's, None where nothing was searched; so is `covered`, what the search met (A6.5).
    `outcomes_left_out` counts its runs under faults that the table `outcomes` does not hold.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NominalLine:
    """Runs without disturbance of one item, or of all: then `item` is "all". Those lost to their infrastructure are in none."""

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
    """A number by its name. `unit`: share, steps, ms, tokens, calls or score."""

    name: str
    estimate: Estimate
    unit: str = "share"


def unit_of(name: str) -> str:
    """The unit of a number of the report by its name, as `nominal.steps` or `score.politeness`: share, unless one says else."""
    short = name.partition(".")[2]
    for known in (name, short):
        if known.startswith("score."):
            return "score"
        if known in measures.METRICS:
            return measures.METRICS[known].unit
    return "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationLine:
    """One cell of the evaluation: the runs of a condition, a workload category and a governance variant (A6.1, A6.6).

    `category` "all" stands for all of them, those without one included. `infrastructure` of its `runs` failed and are in no
    metric. `k`: runs that every task has, for success@k. `metrics`: those of `mat.measure.metrics.METRICS` of which the cell
    knows anything, in that order, with `success@k`, `success@k.unbiased` and `pass^k` where k > 1.
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
        """A metric by name; None where the cell knows nothing of it."""
        return next((metric.estimate for metric in self.metrics if metric.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionLine:
    """How a number of the runs of one condition is spread; `unit` is steps or ms.

    `name`: steps_to_termination, steps_to_failure, first_violation (the first violating step of failing runs) or latency_ms.
    """

    condition: RunCondition
    name: str
    unit: str
    distribution: Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstViolationLine:
    """Who and what failing runs first go wrong with, under one condition: shares of the failing runs, most often first."""

    condition: RunCondition
    by: Literal["agent", "action_kind"]
    shares: tuple[ShareOf, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InfrastructureLine:
    """Runs of one condition, under any variant, that say nothing about the system, because what stands in `reason` failed.

    `left_out_of`: the one metric that they are missing from, where a scorer failed; "" for a run that is in no metric at all.
    """

    condition: RunCondition
    reason: str
    runs: int
    left_out_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantPair:
    """Two governance variants on the same items, seeds and schedules of one condition: what the second changes.

    `aspect`: success of the task, or compliance, which is no hard contract broken. `tokens`: what the second uses more in a
    run of both. Pairs of runs of which one is lost to its infrastructure stand in `paired.apart` alone.
    """

    condition: RunCondition
    aspect: Literal["success", "compliance"]
    old: str
    new: str
    paired: PairedShares
    tokens: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """Task success of the runs of one row and column. `why`: what most of those that failed failed with, "" where none did."""

    success: Estimate
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """`cells` stand as the columns do; None where nothing was run that is judged. Rows of one `group` stand together."""

    name: str
    group: str
    cells: tuple[HeatCell | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Task success by two things: `rows` are of the kind `down`, columns of the kind `across`; say tests and variants."""

    title: str
    down: str
    across: str
    columns: tuple[str, ...]
    rows: tuple[HeatRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of a report by the names that they have in its JSON, in that order; a line each."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(Tables):
    """`runs` counts the rows it was built from. Lines stand in the order in which the items ran.

    `variant`: where runs of several governance variants were given, the one that all but `evaluation`, `governance`,
    `infrastructure` and `variant_pairs` speak of. `interrupted`: the session was ended before all tests had run. `outcomes`
    has a line for each run; it is for programs, so the renderings for people leave it out. `heat_maps`: where several variants,
    or parameters of one test, were run.
    """

    runs: int = 0
    items: tuple[ItemLine, ...] = ()
    curves: tuple[Curve, ...] = ()
    counterexamples: tuple[Replay, ...] = ()
    metrics: tuple[MetricLine, ...] = ()
    variant: str = ""
    interrupted: bool = False
    heat_maps: tuple[HeatMap, ...] = ()

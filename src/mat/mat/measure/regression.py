"""Regressions between two configurations of a system, separately for success, contracts and governance. Source: V-D c, A6.4."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from mat.core.record import Impact, MediationDecision
from mat.core.verdict import Outcome
from mat.measure.estimate import Estimate
from mat.measure.interval import CONFIDENCE, wilson
from mat.measure.paired import Pair, paired_by_task
from mat.measure.rows import DecisionRow, RunCondition, RunRow
from mat.measure.sampling import TASKS, Trials, share

Under: TypeAlias = Literal["nominal", "faults"]
DECISIONS: Final[tuple[MediationDecision, ...]] = get_args(MediationDecision)
_FREEDOM: Final[dict[MediationDecision, int]] = {"block": 0, "rewrite": 1, "allow": 2}
"""How permissive a decision is. A change to a more permissive one is a loosening, the opposite a tightening."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The outcome of one run, as a report states it, for the comparison of two reports.

    `success` is Y, None if nothing judges it; `outcome` the outcome of all hard contracts; `broken` the hard contracts it
    breaks. `schedule`, `armed`, `decisions`, `variant`, `category` and `infrastructure` are as in RunRow; "" if an older report
    does not state them.
    """

    item: str
    condition: RunCondition
    seed: int
    schedule: str
    cost: int
    success: bool | None
    outcome: Outcome
    broken: tuple[str, ...]
    steps: int
    armed: tuple[str, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()
    faults: int = 0
    contained: int = 0
    variant: str = ""
    category: str = ""
    infrastructure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPair:
    """One run under both configurations: item, seed and schedule are the same. `why` says what it lost or gained."""

    item: str
    seed: int
    schedule: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One aspect over matched runs.

    `old` and `new`: the share of runs that have it, under each configuration. `rate`: the regression rate R_reg, the share of
    runs that lost it among those that had it. `difference`: new minus old. `p_value`: the exact test of old = new, two-sided,
    which flips the signs of whole items (`paired.sign_flip`); None if no pair differs. The sampling unit is the item, because
    its runs under several seeds or schedules are dependent.
    """

    aspect: Literal["pass", "success", "compliance"]
    old: Estimate
    new: Estimate
    rate: Estimate
    p_value: float | None
    regressed: tuple[RunPair, ...]
    improved: tuple[RunPair, ...]
    difference: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The number of matched actions whose decision changed from `old` to `new`."""

    old: MediationDecision
    new: MediationDecision
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionChange:
    """One action, by its site in a run, with a changed decision of the mediator."""

    item: str
    seed: int
    schedule: str
    site: str
    impact: Impact
    old: MediationDecision
    new: MediationDecision

    @property
    def loosened(self) -> bool:
        return _FREEDOM[self.new] > _FREEDOM[self.old]


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernanceComparison:
    """Decisions on the actions that both configurations propose at the same site of the same run.

    `table` holds all nine transitions, `changed` the share of matched actions with another decision. `loosened` and
    `tightened` count matched actions; `only_old` and `only_new` count actions that only one of them proposes.
    """

    matched: int
    table: tuple[Transition, ...]
    changed: Estimate
    loosened: Estimate
    tightened: Estimate
    changes: tuple[ActionChange, ...]
    only_old: int
    only_new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Disarmed:
    """Hard contracts that judged an item before and no longer do."""

    item: str
    contracts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """The comparison of two reports. `runs` and `items` are in both; `unjudged` runs have no success on a side.

    `high` is about actions of high impact, `all_actions` about all. `only_old` and `only_new` name items that have no run in
    the other report, `variants` the governance variants ("none -> shield") of runs whose variant changed.
    """

    under: Under
    runs: int
    items: int
    unjudged: int
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]
    unmatched_old: int
    unmatched_new: int
    passed: Comparison
    success: Comparison
    compliance: Comparison
    high: GovernanceComparison
    all_actions: GovernanceComparison
    disarmed: tuple[Disarmed, ...]
    variants: tuple[str, ...] = ()

    @property
    def regressed(self) -> bool:
        """Whether a run lost its success or its contracts, or governance became more permissive on a high-impact action."""
        loosened = any(change.loosened for change in self.high.changes)
        return bool(self.success.regressed or self.compliance.regressed or loosened)


def outcome_of(row: RunRow) -> RunOutcome:
    return RunOutcome(
        item=row.item,
        condition=row.condition,
        seed=row.seed,
        schedule=row.schedule,
        cost=row.cost,
        success=row.success,
        outcome=row.outcome,
        broken=tuple(sorted({found.contract for found in row.hard})),
        steps=row.steps,
        armed=row.armed,
        decisions=row.decisions,
        faults=sum(fault.injected for fault in row.faults),
        contained=sum(fault.injected and fault.contained for fault in row.faults),
        variant=row.variant,
        category=row.category,
        infrastructure=row.infrastructure,
    )


def compare(old: Iterable[RunOutcome], new: Iterable[RunOutcome], *, under: Under = "nominal") -> Regression:
    """Compare the outcomes of two configurations on the same items, seeds and schedules.

    `under="nominal"`: runs without a schedule. `under="faults"`: replays, and schedules that both searches executed.
    Source: Sec. V-D c. Pass(x, kappa) = 1 if the run succeeds and keeps all its hard contracts; a contract that could
    not be judged counts as not kept. The sampling unit is the item.
    """
    before, after = _by_key(old, under), _by_key(new, under)
    keys = sorted(before.keys() & after.keys())
    pairs = [(before[key], after[key]) for key in keys]
    names = [{key[0] for key in side} for side in (before, after)]
    decided = [(one, other) for one, other in pairs if "fault" not in (one.condition, other.condition)]
    judged = [(one, other) for one, other in pairs if one.success is not None and other.success is not None]
    return Regression(
        under=under,
        runs=len(pairs),
        items=len({one.item for one, _ in pairs}),
        unjudged=len(pairs) - len(judged),
        only_old=tuple(sorted(names[0] - names[1])),
        only_new=tuple(sorted(names[1] - names[0])),
        unmatched_old=len(before) - len(pairs),
        unmatched_new=len(after) - len(pairs),
        passed=_comparison("pass", judged),
        success=_comparison("success", judged),
        compliance=_comparison("compliance", pairs),
        high=_governance(decided, only_high=True),
        all_actions=_governance(decided, only_high=False),
        disarmed=_disarmed(decided),
        variants=other_variants(pairs),
    )


def other_variants(pairs: Iterable[tuple[RunOutcome, RunOutcome]]) -> tuple[str, ...]:
    """The governance variants that differ within pairs, because governance changed or the wrong runs are compared."""
    found = {
        f"{old.variant} -> {new.variant}" for old, new in pairs if old.variant and new.variant and old.variant != new.variant
    }
    return tuple(sorted(found))


_RunKey: TypeAlias = tuple[str, int, str]
_Pairs: TypeAlias = Sequence[tuple[RunOutcome, RunOutcome]]


def _by_key(outcomes: Iterable[RunOutcome], under: Under) -> dict[_RunKey, RunOutcome]:
    """The outcomes by item, seed and schedule. A replay takes precedence over a search, because it has decisions."""
    found: dict[_RunKey, RunOutcome] = {}
    for outcome in outcomes:
        if (outcome.condition == "nominal" and not outcome.schedule) is not (under == "nominal"):
            continue
        key = (outcome.item, outcome.seed, outcome.schedule)
        if key not in found or (found[key].condition, outcome.condition) == ("fault", "replay"):
            found[key] = outcome
    return found


def _has(aspect: str, outcome: RunOutcome) -> bool:
    kept = outcome.outcome == "pass"
    if aspect == "compliance":
        return kept
    return bool(outcome.success) and (aspect == "success" or kept)


def _comparison(aspect: Literal["pass", "success", "compliance"], pairs: _Pairs) -> Comparison:
    held = [(_has(aspect, one), _has(aspect, other)) for one, other in pairs]
    lost = [pair for pair, state in zip(pairs, held, strict=True) if state == (True, False)]
    gained = [pair for pair, state in zip(pairs, held, strict=True) if state == (False, True)]
    found = paired_by_task(
        (
            Pair(task=one.item, seed=one.seed, old=old, new=new)
            for (one, _), (old, new) in zip(pairs, held, strict=True)
        )
    )  # fmt: skip
    had = [(one, new) for (one, _), (old, new) in zip(pairs, held, strict=True) if old]
    return Comparison(
        aspect=aspect,
        old=found.old,
        new=found.new,
        rate=share((Trials(task=one.item, seed=one.seed, won=int(not new)) for one, new in had), TASKS),
        p_value=found.p_value,
        regressed=tuple(_pair(other, _why(other, aspect)) for _, other in lost),
        improved=tuple(_pair(one, _why(one, aspect)) for one, _ in gained),
        difference=found.difference,
    )


def _pair(outcome: RunOutcome, why: str) -> RunPair:
    return RunPair(item=outcome.item, seed=outcome.seed, schedule=outcome.schedule, why=why)


def _why(worse: RunOutcome, aspect: str) -> str:
    """Why the worse run of a pair is worse."""
    reasons = []
    if aspect != "compliance" and not worse.success:
        reasons.append("the task fails")
    if aspect != "success" and worse.outcome != "pass":
        broken = ", ".join(worse.broken)
        reasons.append(f"breaks {broken}" if broken else "a contract could not be judged")
    return "; ".join(reasons)


def _governance(pairs: _Pairs, *, only_high: bool) -> GovernanceComparison:
    counts = {(old, new): 0 for old in DECISIONS for new in DECISIONS}
    changes: list[ActionChange] = []
    alone = [0, 0]
    for one, other in pairs:
        before, after = ({row.site: row for row in side.decisions} for side in (one, other))
        shared = before.keys() & after.keys()
        # An action that is high on one side counts as high, so that a lowered label hides no change.
        risky = {site for side in (before, after) for site, row in side.items() if row.impact == "high" or not only_high}
        alone[0] += len((before.keys() - shared) & risky)
        alone[1] += len((after.keys() - shared) & risky)
        for site in sorted(shared & risky):
            old, new = before[site].decision, after[site].decision
            counts[old, new] += 1
            if old != new:
                impact: Impact = "high" if "high" in (before[site].impact, after[site].impact) else "low"
                changes.append(
                    ActionChange(
                        item=one.item, seed=one.seed, schedule=one.schedule, site=site, impact=impact, old=old, new=new
                    )
                )
    matched = sum(counts.values())
    loosened = sum(change.loosened for change in changes)
    return GovernanceComparison(
        matched=matched,
        table=tuple(Transition(old=old, new=new, count=count) for (old, new), count in counts.items()),
        changed=wilson(len(changes), matched, CONFIDENCE),
        loosened=wilson(loosened, matched, CONFIDENCE),
        tightened=wilson(len(changes) - loosened, matched, CONFIDENCE),
        changes=tuple(changes),
        only_old=alone[0],
        only_new=alone[1],
    )


def _disarmed(pairs: _Pairs) -> tuple[Disarmed, ...]:
    lost: dict[str, set[str]] = {}
    for one, other in pairs:
        lost.setdefault(one.item, set()).update(set(one.armed) - set(other.armed))
    return tuple(Disarmed(item=item, contracts=tuple(sorted(lost[item]))) for item in sorted(lost) if lost[item])

"""Is B better than A, on what kind of task, and how sure is that? Paired by task and seed, by category and overall.

A pair is one draw (a task at a seed) under both sides. Under structured faults, a pair has one schedule; adversarial schedules
are chosen for each side, so there a pair is the worst run of each.

The overall interval holds at 95 %. Those of the categories hold together: each at 1 - 5 % / c for c categories (Bonferroni),
and their p-values are Holm's.

Sources: A6.3; S. Holm, Scandinavian Journal of Statistics 6 (1979); `mat.measure.paired` for the test and the interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from mat.measure.estimate import Estimate
from mat.measure.interval import CONFIDENCE
from mat.measure.paired import ExcludedPairs, Pair, PairedShares, Side, paired_by_task
from mat.measure.regression import RunOutcome
from mat.measure.sampling import TASKS, Sampling

ComparisonVerdict: TypeAlias = Literal["better", "worse", "equivalent", "open", "nothing"]
"""Of B: better or worse (the test rejects); equivalent (no difference larger than the margin is plausible); open; nothing
to say, without a pair."""
ComparedAspect: TypeAlias = Literal["success", "compliance"]
CompareUnder: TypeAlias = Literal["nominal", "faults", "adversarial"]
MARGIN: Final = 0.05
"""The difference that a comparison rules out by default where it finds none."""
ALL: Final = "all"
_CONDITION: Final[dict[CompareUnder, str]] = {"nominal": "nominal", "faults": "fault", "adversarial": "adversarial"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryComparison:
    """One category, or "all". `p_value` is Holm's for a category. `tasks_needed`: about how many tasks like these would settle
    what is open; `seeds_needed`: how many seeds, for these tasks alone; None if nothing is open, or nothing tells."""

    category: str
    tasks: int
    verdict: ComparisonVerdict
    paired: PairedShares
    p_value: float | None
    tasks_needed: int | None = None
    seeds_needed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlippedTask:
    """A task whose outcome differs between A and B: on `gained` seeds only B has it, on `lost` only A. `why`: what went wrong
    on the worse side, at the first of these seeds."""

    task: str
    category: str
    gained: tuple[int, ...]
    lost: tuple[int, ...]
    why: str
    replays: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemComparison:
    """B against A. `overall` is about all tasks, `categories` about those of each category, if there are several.

    `identical`: every pair has equal outcomes. `repeated`: runs that another run of their draw replaced, the newest. `only_a`
    and `only_b`: tasks that only one side has. `unpaired`: draws of shared tasks that only one side has.
    """

    under: CompareUnder
    aspect: ComparedAspect
    margin: float
    overall: CategoryComparison
    categories: tuple[CategoryComparison, ...]
    flipped: tuple[FlippedTask, ...]
    identical: bool
    apart: tuple[ExcludedPairs, ...]
    unpaired: int
    repeated: int
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]


def compare_systems(
    a: Iterable[RunOutcome],
    b: Iterable[RunOutcome],
    *,
    under: CompareUnder = "nominal",
    aspect: ComparedAspect = "success",
    margin: float = MARGIN,
    sampling: Sampling = TASKS,
    replays: Mapping[str, tuple[str, ...]] | None = None,
) -> SystemComparison:
    """Compare two systems on the draws that both have. `replays`: the replay files of each task."""
    (old, repeated_a), (new, repeated_b) = _draws(a, under), _draws(b, under)
    apart: Counter[tuple[Side, str]] = Counter()
    pairs: list[tuple[RunOutcome, RunOutcome]] = []
    for key in (key for key in old if key in new):
        one, other = old[key], new[key]
        excluded = [(side, why) for side, each in _sides(one, other) if (why := _excluded(each, aspect))]
        apart.update(excluded)
        if not excluded:
            pairs.append((one, other))
    tasks_a, tasks_b = ({outcome.item for outcome in side.values()} for side in (old, new))
    names = sorted({_category(pair) for pair in pairs} - {""})
    groups = [[pair for pair in pairs if _category(pair) == name] for name in names] if len(names) > 1 else []
    confidence = 1 - (1 - CONFIDENCE) / max(len(groups), 1)
    found = [_compared(name, group, aspect, sampling, confidence) for name, group in zip(names, groups, strict=False)]
    adjusted = _holm([each.p_value for each in found])
    categories = [
        _judged(replace(each, p_value=p), group, aspect, sampling, margin)
        for each, p, group in zip(found, adjusted, groups, strict=True)
    ]
    return SystemComparison(
        under=under,
        aspect=aspect,
        margin=margin,
        overall=_judged(_compared(ALL, pairs, aspect, sampling, CONFIDENCE), pairs, aspect, sampling, margin),
        categories=tuple(categories),
        flipped=_flipped(pairs, aspect, replays or {}),
        identical=bool(pairs) and all(_facts(pair) == _facts(pair[::-1]) for pair in pairs),
        apart=tuple(ExcludedPairs(side=side, reason=reason, pairs=apart[side, reason]) for side, reason in sorted(apart)),
        unpaired=sum(
            outcome.item in tasks_a & tasks_b
            for side, other in ((old, new), (new, old))
            for key, outcome in side.items()
            if key not in other
        ),
        repeated=repeated_a + repeated_b,
        only_a=tuple(sorted(tasks_a - tasks_b)),
        only_b=tuple(sorted(tasks_b - tasks_a)),
    )


def _sides(one: RunOutcome, other: RunOutcome) -> tuple[tuple[Side, RunOutcome], ...]:
    return ("old", one), ("new", other)


def _draws(outcomes: Iterable[RunOutcome], under: CompareUnder) -> tuple[dict[Hashable, RunOutcome], int]:
    """The outcome of each draw, and how many others there were. The newest run of a draw counts."""
    found: dict[Hashable, RunOutcome] = {}
    count = 0
    for outcome in outcomes:
        if outcome.condition == _CONDITION[under]:
            count += 1
            found[(outcome.item, outcome.seed, outcome.schedule if under == "faults" else "")] = outcome
    return found, count - len(found)


def _excluded(outcome: RunOutcome, aspect: ComparedAspect) -> str:
    if outcome.infrastructure:
        return outcome.infrastructure
    return "unjudged" if _fact(outcome, aspect) is None else ""


def _fact(outcome: RunOutcome, aspect: ComparedAspect) -> bool | None:
    if aspect == "success":
        return outcome.success
    return None if outcome.outcome == "unknown" else outcome.outcome == "pass"


def _facts(pair: tuple[RunOutcome, RunOutcome]) -> tuple[object, ...]:
    one = pair[0]
    return one.success, one.outcome, one.broken, one.steps


def _category(pair: tuple[RunOutcome, RunOutcome]) -> str:
    return pair[1].category or pair[0].category


def _compared(
    name: str, pairs: Sequence[tuple[RunOutcome, RunOutcome]], aspect: ComparedAspect, sampling: Sampling, confidence: float
) -> CategoryComparison:
    paired = paired_by_task(
        (
            Pair(task=one.item, seed=one.seed, old=bool(_fact(one, aspect)), new=bool(_fact(other, aspect)))
            for one, other in pairs
        ),
        sampling,
        confidence=confidence,
    )
    return CategoryComparison(
        category=name, tasks=len({one.item for one, _ in pairs}), verdict="nothing", paired=paired, p_value=paired.p_value
    )


def _judged(
    found: CategoryComparison,
    pairs: Sequence[tuple[RunOutcome, RunOutcome]],
    aspect: ComparedAspect,
    sampling: Sampling,
    margin: float,
) -> CategoryComparison:
    """With the verdict, and what would settle an open one."""
    difference = found.paired.difference
    if difference.value is None or difference.low is None or difference.high is None:
        return found
    if found.p_value is not None and found.p_value <= 1 - CONFIDENCE:
        return replace(found, verdict="better" if difference.value > 0 else "worse")
    if -margin <= difference.low and difference.high <= margin:
        return replace(found, verdict="equivalent")
    seeds = len({(one.item, one.seed) for one, _ in pairs}) / found.tasks
    within = replace(sampling, unit="task", population="these tasks")
    alone = _compared(found.category, pairs, aspect, within, difference.confidence).paired.difference
    return replace(
        found, verdict="open", tasks_needed=_needed(difference, found.tasks, margin, 1),
        seeds_needed=_needed(alone, seeds, margin, found.tasks),
    )  # fmt: skip


def _needed(difference: Estimate, units: float, margin: float, signs: int) -> int | None:
    """About how many units make the interval as narrow as the larger of the difference and the margin: widths go with the root.

    A difference next to the margin cannot be told from it, so this is for the difference as it was observed. Each unit has
    `signs` signs to flip, and the exact test cannot reject with k signs while 2^(1-k) is above its level.
    """
    value, low, high = difference.value, difference.low, difference.high
    if value is None or low is None or high is None or not margin:
        return None
    target = abs(value) if abs(value) >= margin else margin - abs(value) if abs(value) < margin / 2 else margin / 2
    least = math.ceil(math.ceil(1 - math.log2(1 - difference.confidence)) / signs) if abs(value) >= margin else 1
    return max(math.ceil(units) + 1, least, math.ceil(units * ((high - low) / 2 / target) ** 2))


def _holm(values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p-values; None stays None, but counts."""
    order = sorted((p, place) for place, p in enumerate(values) if p is not None)
    found: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (p, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * p))
        found[place] = largest
    return found


def _flipped(
    pairs: Sequence[tuple[RunOutcome, RunOutcome]], aspect: ComparedAspect, replays: Mapping[str, tuple[str, ...]]
) -> tuple[FlippedTask, ...]:
    """The tasks that differ, those that B lost first."""
    tasks: dict[str, list[tuple[RunOutcome, RunOutcome]]] = {}
    for one, other in pairs:
        if _fact(one, aspect) != _fact(other, aspect):
            tasks.setdefault(one.item, []).append((one, other))
    found = [
        FlippedTask(
            task=task, category=_category(those[0]),
            gained=tuple(sorted({other.seed for _, other in those if _fact(other, aspect)})),
            lost=tuple(sorted({other.seed for _, other in those if not _fact(other, aspect)})),
            why=_why(those[0][0] if _fact(those[0][1], aspect) else those[0][1]), replays=replays.get(task, ()),
        )
        for task, those in tasks.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda each: (len(each.gained) - len(each.lost), each.task)))


def _why(worse: RunOutcome) -> str:
    if worse.broken:
        return f"breaks {', '.join(worse.broken)}"
    return "the task fails" if worse.outcome != "unknown" else "a contract could not be judged"

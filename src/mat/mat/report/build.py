"""Builds a session's report (`Document`) from the results of items and the rows of runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Final, Literal, get_args

from mat.core import limits
from mat.core.campaign import BrokenRun, Certificate, ItemResult
from mat.evidence.replay_file import Replay
from mat.govern.variant import NONE
from mat.measure import conduct, containment, paired, reliability
from mat.measure import metrics as measures
from mat.measure.estimate import Estimate, spread
from mat.measure.governance import GovernedRow, SearchRow, by_variant, is_governed
from mat.measure.regression import RunOutcome, outcome_of
from mat.measure.robustness import Curve, CurveRow
from mat.measure.robustness import curves as curves_of
from mat.measure.rows import RunCondition, RunRow, Score, counted
from mat.measure.sampling import TASKS, Sampling, described, task_of
from mat.measure.scores import mean_score, score_names
from mat.report import heat, words
from mat.report.document import (
    AgencyLine,
    DistributionLine,
    Document,
    DriftLine,
    EvaluationLine,
    FirstViolationLine,
    InfrastructureLine,
    MetricLine,
    NominalLine,
    TaskSuccess,
    VariantPair,
)
from mat.report.findings import finding_lines, item_line

ALL: Final = "all"
"""The category of a line over all categories."""
_ALWAYS: Final = ("success", "non_termination", "violations")
"""Metrics that a report lists even if they are unknown."""
_EVALUATED: Final[tuple[RunCondition, ...]] = ("nominal", "fault", "adversarial")
"""The three conditions of the protocol. Replays were selected because they failed, so their rates mean nothing."""
_NOT_SEARCHED: Final = Certificate(proven=False, reason="nothing was searched")


def build(
    results: Sequence[ItemResult],
    rows: Sequence[RunRow],
    *,
    governed: Sequence[GovernedRow] = (),
    searches: Sequence[SearchRow] = (),
    curves: Sequence[CurveRow] = (),
    sampling: Sampling = TASKS,
    epsilon: float | None = None,
    policies: Collection[str] | None = None,
    broken: Mapping[str, Sequence[BrokenRun]] = MappingProxyType({}),
) -> Document:
    """The report of a session. Rates under faults describe the schedules that were run, not a population of them.

    `governed` are the runs under each governance variant, `searches` the searches under them, `curves` the points that each
    search adds to the robustness curves. With rows of several variants, `evaluation` has lines for each; everything else shows
    the deciding variant of an item, which is that of its first row. `sampling`: what intervals are for. `epsilon`: the
    bound on the probability of an unsafe action, None for no verdict. `policies`: the contracts that residual harm counts, None
    for all hard ones.
    """
    drawn = curves_of(curves)
    every, rows = rows, _rows_of_deciding_variants(rows)
    unsearched = [row for row in rows if row.condition != "adversarial"]  # a worst case is not a rate
    outcomes, left_out = _outcomes(rows)
    own = set(map(id, rows))
    return Document(
        runs=len(rows),
        items=tuple(item_line(result, left_out.get(result.id, 0)) for result in results),
        nominal=_nominal_lines(results, rows, sampling),
        faults=containment.fault_profile(unsearched, sampling=sampling),
        governance=by_variant(governed, searches, sampling=sampling) if any(map(is_governed, governed)) else (),
        violations=reliability.profile(unsearched, sampling),
        outcomes=outcomes,
        curves=drawn,
        counterexamples=tuple(
            Replay(
                item=result.id,
                counterexample=found,
                certificate=(result.certificate or _NOT_SEARCHED).below(found.cost),
                expected=result.standing(index).kind == "expected" or result.status == "expected",
            )
            for result in results
            for index, found in enumerate(result.counterexamples)
        ),
        metrics=(*_metrics(rows, unsearched, sampling, policies), *curve_metrics(drawn)),
        variant=_shown_variant(every, rows),
        evaluation=_evaluation_lines(every, sampling, policies),
        variant_pairs=_variant_pairs(every, sampling),
        tasks=tuple(line for condition in _EVALUATED for line in _task_lines(condition, every)),
        other_outcomes=_outcomes([row for row in every if id(row) not in own])[0],
        distributions=tuple(
            line for condition in _EVALUATED for line in _distribution_lines(condition, _in_condition(rows, condition))
        ),
        first_violations=tuple(
            line for condition in _EVALUATED for line in _first_violation_lines(condition, _in_condition(rows, condition))
        ),
        infrastructure=tuple(line for condition in get_args(RunCondition) for line in _infrastructure_lines(condition, every)),
        heat_maps=heat.heat_maps(every),
        findings=finding_lines(results, broken),
        drift=tuple(
            DriftLine(condition=condition, **{each.name: getattr(line, each.name) for each in fields(line)})
            for condition in _EVALUATED
            for line in conduct.role_drift(_in_condition(rows, condition), sampling)
        ),
        agency=tuple(line for condition in _EVALUATED for line in _agency_lines(condition, rows, sampling, epsilon)),
    )


def _agency_lines(
    condition: RunCondition, rows: Sequence[RunRow], sampling: Sampling, epsilon: float | None
) -> Iterable[AgencyLine]:
    found = conduct.unsafe_actions(_in_condition(rows, condition), sampling, epsilon=epsilon)
    if found is not None:
        yield AgencyLine(
            condition=condition, rate=found.rate, effected=found.effected, runs=found.runs, epsilon=epsilon,
            verdict="" if epsilon is None else found.verdict, labels=found.labels, errors=found.errors,
        )  # fmt: skip


def _rows_of_deciding_variants(rows: Sequence[RunRow]) -> list[RunRow]:
    """The rows of each item under its deciding variant, the first that it runs under."""
    own: dict[str, str] = {}
    for row in rows:
        own.setdefault(row.item, row.variant)
    return [row for row in rows if row.variant == own[row.item]]


def _shown_variant(every: Sequence[RunRow], deciding: Sequence[RunRow]) -> str:
    """The variant that tables without a variant column show; "" with a single variant."""
    if len({row.variant for row in every}) < 2:
        return ""
    names = list(dict.fromkeys(row.variant for row in deciding))
    return names[0] if len(names) == 1 else words.FIRST_VARIANTS


# -- the evaluation ---------------------------------------------------------------------------------------------------


def _evaluation_lines(
    rows: Sequence[RunRow], sampling: Sampling, policies: Collection[str] | None
) -> tuple[EvaluationLine, ...]:
    """A line per condition, category and variant with runs: categories by name, then all; variants by first appearance."""
    cells: dict[tuple[RunCondition, str, str], list[RunRow]] = {}
    for row in rows:
        for category in dict.fromkeys((row.category or ALL, ALL)):
            cells.setdefault((row.condition, category, row.variant), []).append(row)
    variants = list(dict.fromkeys(row.variant for row in rows))
    keys = sorted(
        (key for key in cells if key[0] in _EVALUATED),
        key=lambda key: (_EVALUATED.index(key[0]), key[1] == ALL, key[1], variants.index(key[2])),
    )
    return tuple(_evaluation_line(*key, cells[key], sampling, policies) for key in keys)


def _variant_pairs(rows: Sequence[RunRow], sampling: Sampling) -> tuple[VariantPair, ...]:
    """Each variant compared with the run without governance, or with the first one, under each condition of both."""
    variants = list(dict.fromkeys(row.variant for row in rows)) or [""]
    first = NONE if NONE in variants else variants[0]
    found: list[VariantPair] = []
    for condition in _EVALUATED:
        key = paired.same_draw if condition == "adversarial" else _same_schedule
        by_variant: dict[str, dict[Hashable, RunRow]] = {}
        for row in _in_condition(rows, condition):  # if a run was executed again, its first execution counts
            by_variant.setdefault(row.variant, {}).setdefault(key(row), row)
        for variant in variants:
            if variant != first and first in by_variant and variant in by_variant:
                sides = (first, by_variant[first]), (variant, by_variant[variant])
                found += _compare_variants(condition, *sides, key=key, sampling=sampling)
    return tuple(found)


def _same_schedule(row: RunRow) -> Hashable:
    return row.item, row.seed, row.schedule


def _compare_variants(
    condition: RunCondition,
    old: tuple[str, dict[Hashable, RunRow]],
    new: tuple[str, dict[Hashable, RunRow]],
    *,
    key: Callable[[RunRow], Hashable],
    sampling: Sampling,
) -> Iterable[VariantPair]:
    aspects: dict[Literal["success", "compliance"], paired.Fact] = {
        "success": lambda row: row.success,
        "compliance": compliance,
    }
    pairs = [(row, new[1][place]) for place, row in old[1].items() if place in new[1]]
    used = [
        (task_of(one), one.tokens, other.tokens)
        for one, other in pairs
        if not (one.infrastructure or other.infrastructure) and one.tokens is not None and other.tokens is not None
    ]
    tokens = paired.paired_difference(
        ((before, after) for _, before, after in used), by=[task for task, _, _ in used] if sampling.unit == "task" else None
    )
    tokens = described(replace(tokens, n=len(used)), (task for task, _, _ in used), sampling)
    for aspect, fact in aspects.items():
        yield VariantPair(
            condition=condition, aspect=aspect, old=old[0], new=new[0], tokens=tokens,
            paired=paired.compare_rows(old[1].values(), new[1].values(), fact=fact, key=key, sampling=sampling),
        )  # fmt: skip


def compliance(row: RunRow) -> bool | None:
    """Whether a run breaks no hard contract; None if no contract judged it."""
    return None if row.outcome == "unknown" or not row.judged else not row.hard


def _task_lines(condition: RunCondition, rows: Sequence[RunRow]) -> Iterable[TaskSuccess]:
    """Success in k runs of each task, for every k, by variant."""
    chosen = _in_condition(rows, condition)
    for variant in dict.fromkeys(row.variant for row in chosen):
        own = [row for row in chosen if row.variant == variant]
        categories = {row.item: row.category for row in own}
        for line in reliability.by_task(own):
            if line.runs > 1:
                yield TaskSuccess(
                    condition=condition, variant=variant, task=line.task, schedule=line.schedule,
                    category=categories[line.task], runs=line.runs, solved=line.solved, any_of=line.any_of, all_of=line.all_of,
                )  # fmt: skip


def _evaluation_line(
    condition: RunCondition,
    category: str,
    variant: str,
    rows: Sequence[RunRow],
    sampling: Sampling,
    policies: Collection[str] | None,
) -> EvaluationLine:
    kept = counted(rows)
    k = reliability.runs_per_task(kept)
    return EvaluationLine(
        condition=condition,
        category=category,
        variant=variant,
        items=len({row.item for row in rows}),
        runs=len(rows),
        infrastructure=len(rows) - len(kept),
        k=k,
        metrics=(
            *_registered_metrics(kept, sampling, policies, known=True),
            *_metrics_of_k_runs(kept, k),
            *_score_metrics(kept, sampling),
        ),
    )


def _registered_metrics(
    rows: Sequence[RunRow], sampling: Sampling, policies: Collection[str] | None, *, known: bool
) -> list[MetricLine]:
    """The registered metrics that are known from these rows; without `known`, also those that a report always lists."""
    found = (
        MetricLine(
            name=name, unit=metric.unit,
            estimate=measures.residual_harm(rows, sampling, policies=policies) if name == "residual_harm"
            else metric.function(rows, sampling),
        )
        for name, metric in measures.METRICS.items()
    )  # fmt: skip
    return [metric for metric in found if metric.estimate.known or (not known and metric.name in _ALWAYS)]


def _metrics_of_k_runs(rows: Sequence[RunRow], k: int) -> list[MetricLine]:
    """The metrics of success in k runs of a task; none for one run, where they equal the success rate."""
    if k < 2:
        return []
    estimates: dict[str, Estimate] = {}
    for each in (*range(1, min(k, _MOST_K) + 1), *([k] if k > _MOST_K else [])):
        if each > 1:
            estimates[f"success@{each}"] = reliability.success_at(rows, each)
        estimates[f"success@{each}.unbiased"] = reliability.success_at_unbiased(rows, each)
        estimates[f"pass^{each}"] = reliability.pass_hat(rows, each)
    return [MetricLine(name=name, estimate=estimate) for name, estimate in estimates.items()]


_MOST_K: Final = 32
"""The number up to which there is a metric for every k; beyond it, only for the largest."""


def _score_metrics(rows: Sequence[RunRow], sampling: Sampling) -> list[MetricLine]:
    return [
        MetricLine(name=f"score.{name}", estimate=mean_score(rows, name, sampling), unit="score")
        for name in score_names(rows)
    ]  # fmt: skip


def _infrastructure_lines(condition: RunCondition, rows: Sequence[RunRow]) -> Iterable[InfrastructureLine]:
    """The infrastructure failures of a condition: runs by reason, then scores by scorer and kind of error."""
    under = _in_condition(rows, condition)
    for share in reliability.infrastructure(under):
        yield InfrastructureLine(condition=condition, reason=share.name, runs=share.count)
    failed: dict[tuple[str, str], list[Score]] = {}
    for score in (score for row in counted(under) for score in row.scores if score.error):
        failed.setdefault((score.name, _kind_of_error(score.error)), []).append(score)
    for name, kind in sorted(failed):  # messages of one kind may differ between runs; the first is reported
        first, *others = failed[name, kind]
        yield InfrastructureLine(
            condition=condition, reason=f"scorer {name}: {first.error}", runs=1 + len(others), left_out_of=f"score.{name}"
        )


def _kind_of_error(error: str) -> str:
    """The type of the exception that a scorer raised; "" if it returned something that is not a number."""
    kind, separator, _ = error.partition(": ")
    return kind if separator and kind.isidentifier() else ""


def _distribution_lines(condition: RunCondition, rows: Sequence[RunRow]) -> tuple[DistributionLine, ...]:
    if not rows:
        return ()
    found = (
        ("steps_to_termination", "steps", reliability.steps_to_termination(rows)),
        ("steps_to_failure", "steps", reliability.steps_to_failure(rows)),
        ("first_violation", "steps", reliability.first_violations(rows).steps),
        ("latency_ms", "ms", measures.latency(rows)),
    )
    return tuple(
        DistributionLine(condition=condition, name=name, unit=unit, distribution=spread_out)
        for name, unit, spread_out in found
        if spread_out.n
    )


def _first_violation_lines(condition: RunCondition, rows: Sequence[RunRow]) -> tuple[FirstViolationLine, ...]:
    found = reliability.first_violations(rows)
    lines: tuple[FirstViolationLine, ...] = (
        FirstViolationLine(condition=condition, by="agent", shares=found.agents),
        FirstViolationLine(condition=condition, by="action_kind", shares=found.action_kinds),
    )
    return tuple(line for line in lines if line.shares)


# -- the session ------------------------------------------------------------------------------------------------------


def _outcomes(rows: Sequence[RunRow]) -> tuple[tuple[RunOutcome, ...], dict[str, int]]:
    """The outcomes of all nominal runs, replays and the cheapest runs under faults; and how many are left out per item.

    Keeping the cheapest makes two reports keep the same runs. Runs whose infrastructure failed cannot be compared.
    """
    rows = counted(rows)
    faults: dict[str, list[RunRow]] = {}
    for row in rows:
        if row.condition == "fault":
            faults.setdefault(row.item, []).append(row)
    kept = [row for row in rows if row.condition != "fault"]
    for found in faults.values():
        found.sort(key=lambda row: (row.cost, row.schedule, row.seed))
        kept += found[: limits.FAULT_OUTCOMES]
    left_out = {
        item: len(found) - limits.FAULT_OUTCOMES for item, found in faults.items() if len(found) > limits.FAULT_OUTCOMES
    }
    return tuple(map(outcome_of, kept)), left_out


def _nominal_lines(results: Sequence[ItemResult], rows: Sequence[RunRow], sampling: Sampling) -> tuple[NominalLine, ...]:
    by_item: dict[str, list[RunRow]] = {result.id: [] for result in results}
    for row in counted(rows):
        if row.condition == "nominal":
            by_item.setdefault(row.item, []).append(row)
    lines = [_nominal_line(item, found, sampling) for item, found in by_item.items() if found]
    if len(lines) > 1:
        lines.append(_nominal_line("all", [row for found in by_item.values() for row in found], sampling))
    return tuple(lines)


def _nominal_line(item: str, rows: Sequence[RunRow], sampling: Sampling) -> NominalLine:
    return NominalLine(
        item=item,
        runs=len(rows),
        success=reliability.success(rows, sampling),
        non_termination=reliability.non_termination(rows, sampling),
        violations=reliability.violation_rate(rows, sampling),
        steps=spread(row.steps for row in rows),
        tool_calls=spread(row.tool_calls for row in rows),
        tokens=spread(row.tokens for row in rows if row.tokens is not None),
    )


def _metrics(
    rows: Sequence[RunRow], unsearched: Sequence[RunRow], sampling: Sampling, policies: Collection[str] | None
) -> tuple[MetricLine, ...]:
    """The metrics by condition, and containment over all faults that no search selected for their damage."""
    found = []
    for condition in get_args(RunCondition):
        chosen = _in_condition(rows, condition)
        if chosen:
            numbers = [
                *_registered_metrics(chosen, sampling, policies, known=False),
                *_metrics_of_k_runs(chosen, reliability.runs_per_task(chosen)),
                *_score_metrics(chosen, sampling),
            ]
            found += [MetricLine(name=f"{condition}.{one.name}", estimate=one.estimate, unit=one.unit) for one in numbers]
    found.append(MetricLine(name="containment", estimate=containment.containment(unsearched, sampling)))
    for by in ("operator", "boundary"):
        profiles = containment.fault_profile(unsearched, by=by, sampling=sampling)
        found += [
            MetricLine(name=f"containment.{line.operator}", estimate=line.contained) for line in profiles if line.injected
        ]
    return tuple(found)


def curve_metrics(curves: Sequence[Curve]) -> tuple[MetricLine, ...]:
    """The metrics of robustness curves: `robustness.<kind>.<measure>.area` and `.last`, with `[category]` for a category."""
    found = []
    for curve in curves:
        name = f"robustness.{curve.kind}.{curve.measure}"
        part = "" if curve.category == ALL else f"[{words.clean(curve.category)}]"
        found += [
            MetricLine(name=f"{name}.area{part}", estimate=curve.area),
            MetricLine(name=f"{name}.last{part}", estimate=curve.last.estimate),
        ]
    return tuple(found)


def _in_condition(rows: Iterable[RunRow], condition: str) -> list[RunRow]:
    return [row for row in rows if row.condition == condition]

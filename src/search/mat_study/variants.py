"""An item under its other governance variants: its own decides the outcome, the others are run and reported. Source: A5.5."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from mat.core.errors import MatError
from mat_study.evaluation import Evaluated, EvaluationLost, Lost, Plan
from mat_study.means import Means, Subject
from mat_study.measuring import Gathered, search_row
from mat_study.searches import Searches
from mat_study.stress import note


def compare(
    subject: Subject, means: Means, gathered: Gathered, searches: Searches, variants: Sequence[str], *, stress: bool
) -> list[str]:
    """Run all seeds under each variant, with a search each under stress. Returns what could not be compared; fails nothing."""
    others = gathered.of_variants()
    problems = []
    for variant in variants:
        first = _run_seeds(subject, means, others, variant)
        if first is None:
            problems.append(f"the governance variant {variant} was not compared: the test did not finish under it")
        elif stress:
            with suppress(EvaluationLost, MatError):
                result, _ = searches.search(first, note=lambda given: note(others, given), restart=others.mark())
                others.searches.append(search_row(subject.task, variant, result))
    return problems


def _run_seeds(subject: Subject, means: Means, others: Gathered, variant: str) -> Evaluated | None:
    """Run all seeds under a variant; returns the first execution, or None if a seed gave no run."""
    first: Evaluated | None = None
    for seed in range(subject.settings.seeds):
        given = means.evaluate(Plan(mode="compare", seed=seed, variant=variant))
        if isinstance(given, Lost):
            return None
        others.note(given, "nominal")
        first = first or given
    return first

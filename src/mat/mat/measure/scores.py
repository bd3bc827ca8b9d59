"""Optional scorers of runs: faithfulness, context relevance, or any other function of the caller. Source: A6.2.

A scorer is a function from a run to a number, or to None if it cannot score the run. Callers provide scorers; this module calls
no model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import TypeAlias

from mat.core.run import Run
from mat.measure.estimate import Estimate
from mat.measure.interval import CONFIDENCE
from mat.measure.rows import RunRow, Score, counted
from mat.measure.sampling import TASKS, Number, Sampling, Trials, mean, share, task_of

Scorer: TypeAlias = Callable[[Run], float | None]


def scored(run: Run, scorers: Mapping[str, Scorer]) -> tuple[Score, ...]:
    """The score of each scorer for a run, by name, for its row.

    A scorer that raises, or returns no finite number, gives no value; `error` gives the reason.
    """
    return tuple(_score(run, name, scorers[name]) for name in sorted(scorers))


def _score(run: Run, name: str, scorer: Scorer) -> Score:
    try:
        value = scorer(run)
    except Exception as error:  # a scorer that crashes does not fail the run: its score is unknown
        return Score(name=name, value=None, error=f"{type(error).__name__}: {error}")
    if value is None:
        return Score(name=name, value=None)
    if isinstance(value, int | float) and math.isfinite(value):
        return Score(name=name, value=float(value))
    return Score(name=name, value=None, error=f"{value!r:.60} is not a finite number")


def score_names(rows: Iterable[RunRow]) -> tuple[str, ...]:
    """The names of the scorers in these rows."""
    return tuple(sorted({score.name for row in rows for score in row.scores}))


def mean_score(
    rows: Iterable[RunRow], name: str, sampling: Sampling = TASKS, *, confidence: float = CONFIDENCE
) -> Estimate:  # fmt: skip
    """The mean of one score over the runs that have it, with its interval: that of a share if all scores are in [0, 1]."""
    found = [
        (row, score.value)
        for row in counted(rows)
        for score in row.scores
        if score.name == name and score.value is not None
    ]  # fmt: skip
    if all(0 <= value <= 1 for _, value in found):
        shares = (Trials(task=task_of(row), seed=row.seed, won=Fraction(value)) for row, value in found)
        return share(shares, sampling, confidence=confidence)
    return mean((Number(task=task_of(row), seed=row.seed, x=value) for row, value in found), sampling, confidence=confidence)

"""Optional scorers (A6.2): faithfulness, context relevance, or whatever else a caller's function says of a run.

A scorer is a function of a run to a number, or to None where it cannot say. It is given by whoever has one; nothing here calls
a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from mat.core.run import Run
from mat.measure.bootstrap import mean_of, share_of
from mat.measure.estimate import Estimate
from mat.measure.interval import CONFIDENCE
from mat.measure.rows import RunRow, Score, counted

Scorer: TypeAlias = Callable[[Run], float | None]


def scored(run: Run, scorers: Mapping[str, Scorer]) -> tuple[Score, ...]:
    """What each scorer says of a run, by name, for its row.

    One that raises, or gives no finite number, has no value, and `error` says why.
    """
    return tuple(_score(run, name, scorers[name]) for name in sorted(scorers))


def _score(run: Run, name: str, scorer: Scorer) -> Score:
    try:
        value = scorer(run)
    except Exception as error:  # a scorer that crashes takes no run with it: its score is unknown
        return Score(name=name, value=None, error=f"{type(error).__name__}: {error}")
    if value is None:
        return Score(name=name, value=None)
    if isinstance(value, int | float) and math.isfinite(value):
        return Score(name=name, value=float(value))
    return Score(name=name, value=None, error=f"{value!r:.60} is not a finite number")


def score_names(rows: Iterable[RunRow]) -> tuple[str, ...]:
    """The scorers that these rows know of, by name."""
    return tuple(sorted({score.name for row in rows for score in row.scores}))


def mean_score(rows: Iterable[RunRow], name: str, *, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of one score over the runs that have it, with its interval: that of a share where all lie in [0, 1]."""
    found = [score.value for row in counted(rows) for score in row.scores if score.name == name and score.value is not None]
    if all(0 <= value <= 1 for value in found):
        return share_of(found, confidence=confidence)
    return mean_of(found, confidence=confidence)

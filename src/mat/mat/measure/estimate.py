"""Numbers that carry their uncertainty (STYLE rule 12): no data is None with n = 0, never 0.0."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from mat.core.errors import SpecError

SamplingUnit: TypeAlias = Literal["task", "run"]
"""What is drawn from the population: tasks, each with all its runs, or independent runs."""


def check_confidence(confidence: float) -> None:
    """SpecError unless a confidence lies strictly between 0 and 1.

    >>> check_confidence(95)
    Traceback (most recent call last):
    mat.core.errors.SpecError: confidence=95 is out of range
      why: it must lie strictly between 0 and 1
      fix: write 0.95 for 95 %
    """
    if not 0 < confidence < 1:
        raise SpecError(
            what=f"confidence={confidence} is out of range",
            why="it must lie strictly between 0 and 1",
            fix="write 0.95 for 95 %",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its interval at `confidence`, from `n` observations by `method`. Without data value, low, high are None.

    With a value, an end is None if the data do not bound it, as for the tokens of one run or a ratio to very few successes.
    `sampling_unit` and `population` say what the interval is for, such as "task" and "new tasks like these 8"; "" if nothing
    was measured, or if the number describes its runs alone. Estimates with equal numbers are equal.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    confidence: float
    method: str
    sampling_unit: SamplingUnit | Literal[""] = field(default="", compare=False)
    population: str = field(default="", compare=False)

    @property
    def known(self) -> bool:
        return self.value is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A summary of observed values, without inference: n, least, median (the lower of two middle ones) and most."""

    n: int
    least: int | None
    median: int | None
    most: int | None


def spread(values: Iterable[int]) -> Spread:
    ordered = sorted(values)
    if not ordered:
        return Spread(n=0, least=None, median=None, most=None)
    return Spread(n=len(ordered), least=ordered[0], median=ordered[(len(ordered) - 1) // 2], most=ordered[-1])

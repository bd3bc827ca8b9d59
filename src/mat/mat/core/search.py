"""The settings of a search for counterexamples, as a value for the marker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal, TypeAlias, get_args

from mat.core.errors import did_you_mean

StrategyName: TypeAlias = Literal[
    "exhaustive", "anytime", "portfolio", "random", "beam", "evolutionary", "adversary", "statistical"
]
Stop: TypeAlias = Literal["budget", "cheapest", "first"]
STRATEGIES: Final[tuple[StrategyName, ...]] = get_args(StrategyName)
STOPS: Final[tuple[Stop, ...]] = get_args(Stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How `pytest --mat-stress` searches a test: `@pytest.mark.mat(search=mat.Search(strategy="random"))`.

    `strategy` chooses the schedules (default: portfolio). The search executes at most `max_runs` of them (2,000), and at most
    `shrink_runs` more to shrink one counterexample (as many as that needs). It stops at "budget" (all costs up to the budget
    are done; the default), at the "cheapest" counterexample or at the "first" one. `curve`: how many random chains of
    schedules to draw for robustness curves (0). `target`: the statistical strategy asks whether the share of random schedules
    that break a contract is below it, between 0 and 1 (1 in 20).

    None leaves a field to an outer marker, the configuration file or the default. The plugin checks the fields when it reads
    the marker, and reports all problems at once as a `mat.MatError`.

    >>> mat.Search(strategy="random", max_runs=500)
    Search(strategy='random', max_runs=500, shrink_runs=None, stop=None, curve=None, target=None)

    Source: A3.2, A3.3.
    """

    strategy: StrategyName | None = None
    max_runs: int | None = None
    shrink_runs: int | None = None
    stop: Stop | None = None
    curve: int | None = None
    target: Fraction | float | str | None = None


SEARCH_FIELDS: Final = tuple(Search.__dataclass_fields__)


def search_problems(found: Mapping[str, Any]) -> list[str]:
    """The problems of the given fields of a Search, a sentence each."""
    problems = []
    for name, least in (("max_runs", 1), ("shrink_runs", 0), ("curve", 0)):
        value = found.get(name, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            problems.append(f"{name}={value!r} is not an integer >= {least}")
    for name, allowed in (("strategy", STRATEGIES), ("stop", STOPS)):
        value = found.get(name, allowed[0])
        if value not in allowed:
            problems.append(f"{name}={value!r} is not one of {', '.join(allowed)}{did_you_mean(str(value), allowed)}")
    if "target" in found and not is_share(found["target"]):
        problems.append(f"target={found['target']!r} is not a share between 0 and 1, such as 0.05")
    return problems


def is_share(value: object) -> bool:
    """Whether a value is a share between 0 and 1, both excluded."""
    try:
        return not isinstance(value, bool) and 0 < Fraction(str(value)) < 1
    except (ValueError, ZeroDivisionError):
        return False

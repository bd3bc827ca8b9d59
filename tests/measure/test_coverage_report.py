"""The committed report on coverage is what its benchmark says, and the benchmark calls what lies below, below."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "benchmarks" / "coverage.md"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    found = importlib.util.spec_from_file_location("benchmark_coverage", ROOT / "benchmarks" / "coverage.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["benchmark_coverage"] = module  # dataclasses look their module up
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tables(benchmark: ModuleType) -> list[list[tuple[str, ...]]]:
    """The tables of the report, each as rows of cells: what covers, and what no run shows."""
    head = benchmark.MARKDOWN.format(*benchmark.HEADER)
    parts = REPORT.read_text(encoding="utf-8").split(head + "\n")[1:]
    return [
        [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in part.split("\n\n")[0].splitlines()[1:]]
        for part in parts
    ]


def test_no_line_lies_below_and_each_verdict_follows_from_its_numbers(tables: list[list[tuple[str, ...]]]) -> None:
    assert len(tables[0]) > 100
    for method, data, n, coverage, error, _, opened, closed, verdict in tables[0]:
        place = (method, data, n)
        if verdict == "no interval":
            assert (coverage, opened, int(n) < 10) == ("", "100", True), place
            continue
        assert verdict == "covers", place
        if error == "exact":
            continue
        least = 95 - 3 * float(error) - 0.1  # both are rounded
        assert float(error) <= 1, place
        assert float(coverage) >= least, place
        assert not closed or float(closed) >= 95 - 3 * float(error) / (1.001 - float(opened) / 100) ** 0.5 - 0.1, place


def test_every_method_is_in_the_report(tables: list[list[tuple[str, ...]]]) -> None:
    methods = {row[0] for row in tables[0]}
    assert methods >= {
        "wilson", "clopper-pearson", "beta-binomial (anytime)", "newcombe", "order statistics", "percentile, mean",
        "percentile, ratio", "bca, mean", "bca, ratio", "abc, mean", "abc, ratio", "wilson-clustered", "percentile by task",
        "mean of shares", "wilson-mean", "robustness, over items", "paired bootstrap", "mtbf, censored",
        "paired betting (anytime)", "cohen, wilson",
    }  # fmt: skip


def test_enumerated_lines_are_those_of_the_benchmark(tables: list[list[tuple[str, ...]]], benchmark: ModuleType) -> None:
    from mat.measure.interval import clopper_pearson, wilson

    again = [
        benchmark.of_shares("wilson", wilson, 10, "mean"), benchmark.of_shares("clopper-pearson", clopper_pearson, 30, "least"),
        benchmark.of_differences(10), benchmark.of_quantile(90, 50),
    ]  # fmt: skip
    assert {benchmark.row(line) for line in again} <= set(tables[0])


@pytest.mark.full
def test_lines_from_sums_are_those_of_the_benchmark(tables: list[list[tuple[str, ...]]], benchmark: ModuleType) -> None:
    again = [line for numbers in benchmark.NUMBERS[2:] for line in benchmark.at_once(numbers, 10, 20_000)]
    assert {benchmark.row(line) for line in again} <= set(tables[0])
    (beyond, *_) = benchmark.at_once(benchmark.RETRIES, 10, 20_000)
    assert benchmark.row(beyond) in tables[1]
    assert beyond.verdict == "below"


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ({"coverage": 0.9455, "times": 20_000, "closed": 20_000, "both": 0.9455}, "covers"),
        ({"coverage": 0.9450, "times": 20_000, "closed": 20_000, "both": 0.9450}, "below"),
        ({"coverage": 0.9450, "times": 2_000, "closed": 2_000, "both": 0.9450}, "covers"),
        ({"coverage": 0.9900, "times": 20_000, "closed": 9_000, "both": 0.9400}, "below"),
        ({"coverage": 1.0, "times": 20_000, "closed": 0}, "no interval"),
        ({"coverage": 0.9501, "least": 0.83}, "covers"),
        ({"coverage": 0.9499, "least": 0.83}, "below"),
        ({"coverage": 0.97, "least": 0.9499, "promise": "least"}, "below"),
    ],
)
def test_the_verdict_allows_three_standard_errors_and_nothing_else(
    numbers: dict[str, float], verdict: str, benchmark: ModuleType
) -> None:
    assert benchmark.Line(method="m", data="d", n=10, **numbers).verdict == verdict

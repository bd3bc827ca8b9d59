"""Plots: what is drawn is what was measured, in shapes and in words."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mat.core.curve import ScheduleResult
from mat.measure.distribution import bins
from mat.measure.estimate import Estimate
from mat.measure.interval import wilson
from mat.measure.reliability import MediationShares
from mat.measure.robustness import CurveRow, curves
from mat.report.page import plots
from mat.report.page.plots import Bar, _ticks
from mat.report.page.view import svg as drawing


def drawn_by(plot: Callable[..., Element | None]) -> Callable[..., str]:
    """The plot as it stands in a page; "" where there is nothing to draw."""

    def draw(*given: Any, **options: Any) -> str:
        made = plot(*given, **options)
        return "" if made is None else str(drawing(made))

    return draw


bars, curve_panel, histogram, shares = map(drawn_by, (plots.bars, plots.curve_panel, plots.histogram, plots.shares))


class Drawn(HTMLParser):
    def __init__(self, svg: str) -> None:
        super().__init__()
        self.shapes: list[tuple[str, dict[str, str]]] = []
        self.feed(svg)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.shapes.append((tag, {name: value or "" for name, value in attrs}))

    handle_startendtag = handle_starttag

    def of(self, name: str, style: str) -> list[dict[str, str]]:
        return [shape for tag, shape in self.shapes if tag == name and style in shape.get("class", "").split()]


def said(svg: str) -> str:
    found = re.search(r"<desc[^>]*>(.*?)</desc>", svg)
    assert found is not None
    return found[1]


def panel(bound: int = 4) -> str:
    executed = (ScheduleResult(cost=0, success=True), ScheduleResult(cost=3, success=False, broken=("c",)))
    found = curves([CurveRow(item=item, budget=4, bound=bound, executed=executed[: 1 + (item == "a")]) for item in "ab"])
    return curve_panel("p", "Task success", [curve for curve in found if curve.measure == "success"])


def test_a_curve_is_drawn_as_steps_with_the_band_of_its_intervals() -> None:
    drawn = Drawn(panel())
    (line,), (area,) = drawn.of("path", "curve"), drawn.of("path", "area")
    points = [tuple(map(float, point.split())) for point in line["d"][1:].split("L")]
    heights = [y for _, y in points]
    assert heights == sorted(heights)  # R never rises, and down is up in a picture
    assert len({y for _, y in points}) == 2  # 100 % to budget 3, then 50 %
    assert all(one[0] == other[0] or one[1] == other[1] for one, other in pairwise(points))
    band = [float(point.split()[1]) for point in area["d"][1:].removesuffix("Z").split("L")]
    assert min(band) <= min(heights) <= max(heights) < max(band)
    assert said(panel()) == "Adversarial schedules: 100% from budget 0, 50% from budget 3, up to 4."


def test_upper_bounds_are_hollow_and_said_to_be_bounds() -> None:
    assert Drawn(panel()).of("circle", "hollow") == []
    assert len(Drawn(panel(bound=2)).of("circle", "hollow")) == 2  # budgets 3 and 4
    assert "at most 50% from budget 3" in said(panel(bound=2))


@given(st.lists(st.integers(0, 500), min_size=1, max_size=60))
def test_bars_of_a_histogram_stand_as_high_as_their_counts(values: list[int]) -> None:
    found = bins(values)
    drawn = Drawn(histogram("h", found, title="t", unit="steps")).of("rect", "bin")
    counts = [part.count for part in found if part.count]
    assert len(drawn) == len(counts)
    tallest = max(counts)
    for shape, count in zip(drawn, counts, strict=True):
        assert float(shape["height"]) == pytest.approx(108 * count / tallest, abs=0.06)
    counted = f"{len(values):,} run{'s' if len(values) != 1 else ''}, from"
    assert counted in said(histogram("h", found, title="t", unit="steps"))


def test_nothing_to_draw_is_nothing() -> None:
    none = Estimate(value=None, low=None, high=None, n=0, confidence=0.95, method="wilson")
    assert histogram("h", (), title="t", unit="steps") == ""
    assert bars("b", [], title="t") == ""
    assert shares("s", [("x", MediationShares(allow=none, rewrite=none, block=none))], title="t") == ""


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20)), min_size=1, max_size=8))
def test_bars_are_as_long_as_their_shares_on_one_scale(pairs: list[tuple[int, int]]) -> None:
    found = [
        Bar(label=f"c{n}", estimate=wilson(min(won, total), total), style="soft" if n % 2 else "hard")
        for n, (won, total) in enumerate(pairs)
    ]
    drawn = Drawn(bars("b", found, title="t"))
    shapes = [shape for tag, shape in drawn.shapes if tag == "rect"]
    values = [bar.estimate.value or 0.0 for bar in found]
    longest = max(values)
    for shape, value in zip(shapes, values, strict=True):
        width = float(shape["width"])
        assert (
            width == pytest.approx(value / longest * max(float(other["width"]) for other in shapes), abs=0.3)
            if longest
            else width == 0
        )
    right = float(re.findall(r'viewBox="0 0 (\d+)', bars("b", found, title="t"))[0])
    assert all(float(shape["x2"]) <= right for shape in drawn.of("line", "whisker"))


def test_governance_shares_fill_the_whole_bar_and_are_reported() -> None:
    part = MediationShares(allow=wilson(5, 10), rewrite=wilson(2, 10), block=wilson(3, 10))
    svg = shares("s", [("shield", part)], title="t")
    widths = [float(shape["width"]) for shape in Drawn(svg).of("rect", "share")][:3]
    assert sum(widths) == pytest.approx(370, abs=0.3)
    assert said(svg) == "shield: 50% allowed, 20% rewritten, 30% blocked."


@given(st.integers(0, 10**9), st.integers(2, 8))
def test_ticks_are_few_and_round(largest: int, parts: int) -> None:
    found = _ticks(largest, parts)
    assert found[0] == 0
    assert found[-1] <= largest
    assert len(found) <= parts + 1 or largest < parts
    if len(found) > 1:
        assert str(found[1])[0] in "125"
        assert set(str(found[1])[1:]) <= {"0"}

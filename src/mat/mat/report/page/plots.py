"""Draws the plots of the page as SVG: robustness curves, first violations, violation profile, governance shares.

Drawn without a plotting library: the page stays small, its style sheet sets the colours, and every plot has a title and a
description with its numbers. Shape, dashes or words distinguish what colour distinguishes.

Source: A6.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from xml.etree.ElementTree import Element

from mat.core.errors import printable
from mat.measure.distribution import Bin
from mat.measure.estimate import Estimate
from mat.measure.reliability import MediationShares
from mat.measure.robustness import Curve
from mat.report.words import rounded_percent as percent

__all__ = ["Bar", "bars", "curve_panel", "histogram", "shares"]

_Scale: TypeAlias = Callable[[float], float]
_LABEL: Final = 44
"""The most characters of a bar's label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: its label, its share with interval, and its style (`hard` or `soft`)."""

    label: str
    estimate: Estimate
    style: str = "hard"


def _shape(name: str, /, *children: Element | str, **attributes: str | float) -> Element:
    """An SVG element. In attribute names, `class_` means class and `_` a hyphen. Invisible characters are escaped."""
    shape = Element(name)
    for key, value in attributes.items():
        shape.set(key if key == "viewBox" else key.rstrip("_").replace("_", "-"), printable(str(value)))
    for child in children:
        if isinstance(child, str):
            shape.text = printable(child)
        else:
            shape.append(child)
    return shape


def _figure(name: str, title: str, description: str, *children: Element, width: float, height: float) -> Element:
    """An SVG with an accessible name and description. `name` is unique in the page."""
    return _shape(
        "svg",
        _shape("title", title, id=f"{name}-title"),
        _shape("desc", description, id=f"{name}-desc"),
        *children,
        class_="plot", role="img", aria_labelledby=f"{name}-title", aria_describedby=f"{name}-desc",
        width=round(width), height=round(height), viewBox=f"0 0 {round(width)} {round(height)}",
    )  # fmt: skip


def _label(x: float, y: float, text: str, *, anchor: str = "start", style: str = "label") -> Element:
    return _shape("text", text, x=round(x, 1), y=round(y, 1), text_anchor=anchor, class_=style)


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> Element:
    return _shape("line", x1=round(x1, 1), y1=round(y1, 1), x2=round(x2, 1), y2=round(y2, 1), class_=style)


# -- robustness -------------------------------------------------------------------------------------------------------


def curve_panel(name: str, title: str, curves: Sequence[Curve]) -> Element:
    """R(B) of one measure and category as step curves: adversarial solid, random dashed, each with a band of intervals.

    A hollow point is an upper bound: not everything within that budget was searched.
    """
    width, height, left, top, right, bottom = 300, 176, 38, 14, 10, 30
    known = [curve for curve in curves if any(point.estimate.known for point in curve.points)]
    largest = max((curve.largest for curve in known), default=0)
    inner, tall = width - left - right, height - top - bottom

    def x(budget: float) -> float:
        return left + inner * budget / max(largest, 1)

    def y(share: float) -> float:
        return top + tall * (1 - share)

    grid = (
        *(
            part
            for share in (0.0, 0.5, 1.0)
            for part in (
                _line(left, y(share), width - right, y(share), "grid"),
                _label(left - 6, y(share) + 3.5, percent(share), anchor="end"),
            )
        ),
        *(_label(x(budget), height - bottom + 14, str(budget), anchor="middle") for budget in _ticks(largest)),
        _label(left + inner / 2, height - 3, "budget B", anchor="middle", style="axis"),
    )
    drawn = (_curve(curve, x, y) for curve in sorted(known, key=lambda curve: curve.kind))
    return _figure(name, title, " ".join(map(_curve_in_words, curves)), *grid, *drawn, width=width, height=height)


def _curve(curve: Curve, x: _Scale, y: _Scale) -> Element:
    """One curve. Costs are integers, so a value holds from its budget to the next."""
    points = [
        (point.budget, point.estimate.value, point.estimate.low, point.estimate.high, point.proven)
        for point in curve.points
        if point.estimate.value is not None and point.estimate.low is not None and point.estimate.high is not None
    ]
    values = [(budget, value) for budget, value, *_ in points]
    lows = [(budget, low) for budget, _, low, _, _ in points]
    highs = [(budget, high) for budget, _, _, high, _ in points]
    band = [*_steps(highs, x, y), *reversed(_steps(lows, x, y))]
    style = "one" if curve.kind == "adversarial" else "two"
    last, _, _, _, proven_at_last = points[-1]
    if len(points) > 1:
        drawn = [_shape("path", d=_path(band) + "Z", class_=f"area {style}")]
    else:
        drawn = [_line(x(0), y(lows[0][1]), x(0), y(highs[0][1]), f"whisker {style}")]
    drawn.append(_shape("path", d=_path(_steps(values, x, y)), class_=f"curve {style}"))
    drawn += [_point(x(budget), y(value), f"{style} hollow") for budget, value, _, _, proven in points if proven is False]
    if proven_at_last is not False:
        drawn.append(_point(x(last), y(points[-1][1]), f"{style} end"))
    return _shape("g", *drawn)


def _point(x: float, y: float, style: str) -> Element:
    return _shape("circle", cx=round(x, 1), cy=round(y, 1), r=2.6, class_=style)


def _steps(points: Sequence[tuple[int, float]], x: _Scale, y: _Scale) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for budget, share in points:
        if found:
            found.append((x(budget), found[-1][1]))
        found.append((x(budget), y(share)))
    return found


def _path(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{round(px, 1)} {round(py, 1)}" for px, py in points)


def _ticks(largest: int, parts: int = 6) -> list[int]:
    """Round numbers from 0 to the largest, at most one more than `parts`."""
    if largest <= 0:
        return [0]
    rough = largest / parts
    size = 10 ** math.floor(math.log10(rough)) if rough >= 1 else 1
    step = next(int(size * factor) for factor in (1, 2, 5, 10) if size * factor >= rough)
    return list(range(0, largest + 1, max(step, 1)))


def _curve_in_words(curve: Curve) -> str:
    """A curve in words: its first value, each change with its budget, and the largest budget."""
    parts, last = [], object()
    for point in curve.points:
        if point.estimate.value != last:
            bound = "at most " if point.proven is False else ""
            parts.append(f"{bound}{percent(point.estimate.value)} from budget {point.budget}")
            last = point.estimate.value
    return f"{curve.kind.capitalize()} schedules: {', '.join(parts)}, up to {curve.largest}."


# -- distributions ----------------------------------------------------------------------------------------------------


def histogram(name: str, bins: Sequence[Bin], *, title: str, unit: str) -> Element | None:
    """A histogram with bars of equal width over integers; None without runs."""
    total = sum(part.count for part in bins)
    if not total:
        return None
    width, height, left, top, bottom, tallest = 300, 150, 40, 10, 32, max(part.count for part in bins)
    each = min((width - left - 12) / len(bins), 34.0)
    tall, wide, floor = height - top - bottom, each * len(bins), height - bottom
    marks = [value for value in _ticks(tallest, 3) if value]
    rails = [
        part
        for value in marks
        for part in (
            _line(left, floor - tall * value / tallest, left + wide, floor - tall * value / tallest, "grid"),
            _label(left - 6, floor - tall * value / tallest + 3.5, f"{value:,}", anchor="end"),
        )
    ]
    drawn = (
        _bin_bar(part, left + place * each, each, floor, tall * part.count / tallest, unit)
        for place, part in enumerate(bins)
        if part.count
    )
    longest = 7 * len(f"{bins[-1].least:,}") + 10
    every = max(1, math.ceil(longest / each))
    axis = (
        _line(left, floor, left + wide, floor, "base"),
        *(
            _label(left + (place + 0.5) * each, floor + 14, f"{bins[place].least:,}", anchor="middle")
            for place in range(0, len(bins), every)
        ),
        _label(left + wide / 2, height - 3, _bin_unit(bins[0], unit), anchor="middle", style="axis"),
    )
    peak = max(bins, key=lambda part: (part.count, -part.least))
    counted = f"{total:,} run{'s' if total != 1 else ''}"
    description = (
        f"{counted}, from {bins[0].least} to {bins[-1].most} {unit}; most ({peak.count:,}) at {_bin_range(peak)} {unit}."
    )
    return _figure(name, title, description, *rails, *drawn, *axis, width=width, height=height)


def _bin_bar(part: Bin, x: float, each: float, floor: float, high: float, unit: str) -> Element:
    shape = _shape(
        "rect", x=round(x + 0.5, 1), y=round(floor - high, 1), width=round(each - 1, 1), height=round(high, 1), class_="bin"
    )
    return _shape("g", _shape("title", f"{_bin_range(part)} {unit}: {part.count:,}"), shape)


def _bin_range(part: Bin) -> str:
    return str(part.least) if part.least == part.most else f"{part.least} to {part.most}"


def _bin_unit(part: Bin, unit: str) -> str:
    size = part.most - part.least + 1
    return unit if size == 1 else f"{unit}, bars of {size:,}"


# -- shares -----------------------------------------------------------------------------------------------------------


def bars(name: str, found: Sequence[Bar], *, title: str) -> Element | None:
    """Shares as horizontal bars, with their intervals as whiskers; None without any."""
    if not found:
        return None
    left, inner, row = _margin(bar.label for bar in found), 280, 22
    width, height = left + inner + 70, row * len(found) + 26
    widest = max((bar.estimate.high or 0.0) for bar in found) or 1.0
    scale = next((limit for limit in (0.05, 0.1, 0.25, 0.5) if widest <= limit), 1.0)
    drawn = []
    for place, bar in enumerate(found):
        middle = place * row + row / 2 + 2
        value, low, high = bar.estimate.value, bar.estimate.low, bar.estimate.high
        drawn.append(_label(left - 8, middle + 4, _shorten_label(bar.label), anchor="end"))
        if value is None or low is None or high is None:
            drawn.append(_label(left + 4, middle + 4, "-"))
            continue
        drawn += [
            _shape("rect", x=left, y=middle - 6, width=round(inner * value / scale, 1), height=12, class_=f"fill {bar.style}"),
            _line(left + inner * low / scale, middle, left + inner * high / scale, middle, "whisker"),
            _line(left + inner * low / scale, middle - 3, left + inner * low / scale, middle + 3, "whisker"),
            _line(left + inner * high / scale, middle - 3, left + inner * high / scale, middle + 3, "whisker"),
            _label(left + inner * high / scale + 7, middle + 4, f"{percent(value)}{' soft' if bar.style == 'soft' else ''}"),
        ]
    parts = (0.0, 0.5, 1.0)
    axis = [_label(left + inner * part, height - 6, percent(scale * part), anchor="middle", style="axis") for part in parts]
    rail = [_line(left + inner * part, 2, left + inner * part, height - 20, "grid") for part in parts]
    description = "; ".join(f"{bar.label} {percent(bar.estimate.value)}" for bar in found)
    return _figure(name, title, f"{description}.", *rail, *drawn, *axis, width=width, height=height)


def shares(name: str, found: Sequence[tuple[str, MediationShares]], *, title: str) -> Element | None:
    """The mediator's decisions as stacked bars, one per variant: allowed, rewritten, blocked; None without decisions."""
    known = [(label, part) for label, part in found if part.allow.n]
    if not known:
        return None
    left, inner, row = _margin(label for label, _ in known), 370, 24
    width, height = left + inner + 80, row * len(known) + 24
    drawn, description = [], []
    for place, (label, part) in enumerate(known):
        top = place * row + 3
        drawn.append(_label(left - 8, top + 13, _shorten_label(label), anchor="end"))
        drawn.append(_label(left + inner + 8, top + 13, f"n={part.allow.n:,}"))
        at, words = float(left), []
        for style, estimate in (("allowed", part.allow), ("rewritten", part.rewrite), ("blocked", part.block)):
            share = estimate.value or 0.0
            long = inner * share
            if share:
                drawn.append(_shape("rect", x=round(at, 1), y=top, width=round(long, 1), height=18, class_=f"share {style}"))
                if long >= 34:
                    drawn.append(_label(at + long / 2, top + 13, percent(share), anchor="middle", style=f"on {style}"))
            words.append(f"{percent(share)} {style}")
            at += long
        description.append(f"{label}: {', '.join(words)}")
    key, at = [], float(left)
    for style in ("allowed", "rewritten", "blocked"):
        key.append(_shape("rect", x=at, y=height - 13, width=10, height=10, class_=f"share {style}"))
        key.append(_label(at + 15, height - 4, style, style="axis"))
        at += 92
    return _figure(name, title, f"{'; '.join(description)}.", *drawn, *key, width=width, height=height)


def _margin(labels: Iterable[str]) -> int:
    """The width of the left margin, for the longest label."""
    return 20 + round(6.7 * max(len(_shorten_label(label)) for label in labels))


def _shorten_label(label: str) -> str:
    return label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}…"

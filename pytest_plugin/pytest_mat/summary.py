"""What the controller keeps of each item, prints at the end and writes to reports. Workers send it with their reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mat.core.campaign import ItemResult
from mat.core.codec import decode, encode
from pytest_mat.options import asked_variants

_payloads: list[Any] = []


def payload(
    result: ItemResult,
    rows: Sequence[Any],
    *,
    governed: Sequence[Any] = (),
    searches: Sequence[Any] = (),
    curves: Sequence[Any] = (),
) -> Any:
    """JSON data of an item's result and of its runs, small enough to travel with a report.

    `governed` and `searches` are what the item's runs and searches say of governance variants, `curves` what its search gives
    to robustness curves.
    """
    kinds = (("rows", rows), ("governed", governed), ("searches", searches), ("curves", curves))
    return {"result": encode(result), **{name: [encode(item) for item in items] for name, items in kinds}}


def collected(data: Any) -> None:
    _payloads.append(data)


def forget() -> None:
    _payloads.clear()


def _in_order(config: pytest.Config) -> list[Any]:
    """As the items were collected: several processes (xdist) finish in an order that says nothing."""
    from pytest_mat import _COLLECTED

    names: list[str] = config.stash.get(_COLLECTED, [])
    places = {name: place for place, name in enumerate(names)}
    return sorted(_payloads, key=lambda data: places.get(data["result"]["id"], len(places)))


def _compares(asked: Sequence[str]) -> bool:
    """Whether the command line asks for a comparison of governance variants."""
    return len(asked) > 1 or "all" in asked


def _unused(asked: Sequence[str], governed: Sequence[Any]) -> list[str]:
    """Variants that were asked for and that nothing ran under: a slip of the pen, or a session without governance."""
    used = {row.variant for row in governed} | {"all", "none"}
    return [name for name in asked if name not in used]


def print_summary(reporter: Any, config: pytest.Config) -> None:
    """The closing section, and the reports asked for by --mat-report."""
    if not _payloads:
        return
    from mat.measure.governance import GovernedRow, SearchRow
    from mat.measure.robustness import CurveRow
    from mat.measure.rows import RunRow
    from mat.report.build import build
    from mat.report.document import write
    from mat.report.terminal import summary

    payloads = _in_order(config)
    results = [decode(ItemResult, data["result"], where="item result") for data in payloads]
    rows = [decode(RunRow, row, where="run row") for data in payloads for row in data["rows"]]
    governed = [decode(GovernedRow, row, where="governed row") for data in payloads for row in data["governed"]]
    searches = [decode(SearchRow, row, where="search row") for data in payloads for row in data["searches"]]
    curves = [decode(CurveRow, row, where="curve row") for data in payloads for row in data["curves"]]
    document = build(results, rows, governed=governed, searches=searches, curves=curves)
    asked = asked_variants(config)
    if config.getoption("mat_stress") or config.getoption("mat_replay") or config.getoption("verbose") > 0 or _compares(asked):
        reporter.section("mat")
        reporter.write_line(summary(document))
    for name in _unused(asked, governed):
        reporter.write_line(f"mat: no test of this session has a governance variant {name!r}")
    for name in config.getoption("mat_report") or ():
        path = Path(config.invocation_params.dir, name)
        write(document, path)
        reporter.write_line(f"mat report: {name}")

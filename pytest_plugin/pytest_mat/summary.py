"""What the controller keeps of each item, prints at the end and writes to reports. Workers send it with their reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mat.core.campaign import ItemResult
from mat.core.codec import decode, encode

_payloads: list[Any] = []


def payload(result: ItemResult, rows: Sequence[Any]) -> Any:
    """JSON data of an item's result and of its runs, small enough to travel with a report."""
    return {"result": encode(result), "rows": [encode(row) for row in rows]}


def collected(data: Any) -> None:
    _payloads.append(data)


def forget() -> None:
    _payloads.clear()


def print_summary(reporter: Any, config: pytest.Config) -> None:
    """The closing section, and the reports asked for by --mat-report."""
    if not _payloads:
        return
    from mat.measure.rows import RunRow
    from mat.report.build import build
    from mat.report.document import write
    from mat.report.terminal import summary

    results = [decode(ItemResult, data["result"], where="item result") for data in _payloads]
    rows = [decode(RunRow, row, where="run row") for data in _payloads for row in data["rows"]]
    document = build(results, rows)
    if config.getoption("mat_stress") or config.getoption("verbose") > 0:
        reporter.section("mat")
        reporter.write_line(summary(document))
    for name in config.getoption("mat_report") or ():
        path = Path(config.invocation_params.dir, name)
        write(document, path)
        reporter.write_line(f"mat report: {name}")

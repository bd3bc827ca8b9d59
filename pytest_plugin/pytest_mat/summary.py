"""What the controller keeps of each item, prints at the end and writes to reports. Workers send it with their reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from mat.core.campaign import ItemResult
from mat.core.codec import decode, encode
from mat.core.errors import MatError
from pytest_mat.options import asked_variants

if TYPE_CHECKING:
    from mat.report.document import Document

_NARROWEST: Final = 60
"""Columns that tables are laid out for at least."""

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


def _unused(asked: Sequence[str], payloads: Sequence[Any]) -> list[str]:
    """Variants that were asked for and that nothing ran under: a slip of the pen, or a session without governance."""
    used = {row["variant"] for data in payloads for row in data["governed"]} | {"all", "none"}
    return [name for name in asked if name not in used]


def print_summary(reporter: Any, config: pytest.Config, *, interrupted: bool = False) -> None:
    """The closing section, and the reports asked for by --mat-report.

    Numbers with intervals cost time: they are computed where somebody is going to see them.
    """
    if not _payloads:
        return
    payloads = _in_order(config)
    names: Sequence[str] = config.getoption("mat_report") or ()
    printed = _is_printed(config)
    document = replace(_document(payloads), interrupted=interrupted) if printed or names else None
    if document is not None and printed:
        reporter.section("mat")
        reporter.write_line(_text(document, reporter, config))
    for name in _unused(asked_variants(config), payloads):
        reporter.write_line(f"mat: no test of this session has a governance variant {name!r}")
    if document is not None:
        _write(document, names, reporter, config)


def _is_printed(config: pytest.Config) -> bool:
    asked = any(config.getoption(name) for name in ("mat_stress", "mat_replay", "mat_evaluate"))
    return asked or config.getoption("verbose") > 0 or _compares(asked_variants(config))


def _document(payloads: Sequence[Any]) -> Document:
    from mat.measure.governance import GovernedRow, SearchRow
    from mat.measure.robustness import CurveRow
    from mat.measure.rows import RunRow
    from mat.report.build import build

    return build(
        [decode(ItemResult, data["result"], where="item result") for data in payloads],
        [decode(RunRow, row, where="run row") for data in payloads for row in data["rows"]],
        governed=[decode(GovernedRow, row, where="governed row") for data in payloads for row in data["governed"]],
        searches=[decode(SearchRow, row, where="search row") for data in payloads for row in data["searches"]],
        curves=[decode(CurveRow, row, where="curve row") for data in payloads for row in data["curves"]],
    )


def _text(document: Document, reporter: Any, config: pytest.Config) -> str:
    """All tables of an evaluation, else the short ones; of the terminal's width, where there is a terminal."""
    from mat.report.terminal import summary, whole

    width = max(_NARROWEST, reporter._tw.fullwidth) if reporter.isatty else None
    return (whole if config.getoption("mat_evaluate") else summary)(document, width=width)


def _write(document: Document, names: Sequence[str], reporter: Any, config: pytest.Config) -> None:
    """Write the reports. One that cannot be written ends the session with a message and an exit code, after the others."""
    from mat.report.files import write

    failed: list[str] = []
    for name in names:
        try:
            write(document, Path(config.invocation_params.dir, name))
        except MatError as error:
            failed.append(str(error))
        else:
            reporter.write_line(f"mat report: {name}")
    if failed:
        pytest.exit("\n".join(failed), returncode=pytest.ExitCode.USAGE_ERROR)

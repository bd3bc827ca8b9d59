"""What the controller keeps of each item, prints at the end and writes to reports. Workers send it with their reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mat.core.campaign import ItemResult
from mat.core.codec import decode, encode
from mat.core.errors import MatError
from mat.core.run import Run
from pytest_mat.options import COLLECTED, asked_variants, width_of

if TYPE_CHECKING:
    from mat.report.document import Document
    from mat.report.files import Besides

_payloads: list[Any] = []


def payload(
    result: ItemResult,
    rows: Sequence[Any],
    *,
    governed: Sequence[Any] = (),
    searches: Sequence[Any] = (),
    curves: Sequence[Any] = (),
    runs: Sequence[Any] = (),
    kept: int = 0,
) -> Any:
    """JSON data of an item's result and of its runs, small enough to travel with a report.

    `governed` and `searches` are what the item's runs and searches say of governance variants, `curves` what its search gives
    to robustness curves, `runs` what a page shows besides its counterexamples (`pytest_mat.page`); `kept` counts the runs
    that went into the store.
    """
    kinds = (("rows", rows), ("governed", governed), ("searches", searches), ("curves", curves), ("runs", runs))
    return {"result": encode(result), "kept": kept, **{name: [encode(item) for item in items] for name, items in kinds}}


def collected(data: Any) -> None:
    _payloads.append(data)


def forget() -> None:
    _payloads.clear()


def _in_order(config: pytest.Config) -> list[Any]:
    """As the items were collected: several processes (xdist) finish in an order that says nothing."""
    names: list[str] = config.stash.get(COLLECTED, [])
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
    """The closing section, and the reports asked for by --mat-report; where nothing ran, these are empty, and said to be.

    Numbers with intervals cost time: they are computed where somebody is going to see them.
    """
    payloads = _in_order(config)
    names: Sequence[str] = config.getoption("mat_report") or ()
    printed = bool(payloads) and _is_printed(config)
    document = replace(_document(payloads), interrupted=interrupted) if printed or names else None
    if document is not None and printed:
        reporter.section("mat")
        reporter.write_line(_text(document, config))
    for name in _unused(asked_variants(config), payloads) if payloads else ():
        reporter.write_line(f"mat: no test of this session has a governance variant {name!r}")
    if document is not None:
        _write(document, names, _besides(document, payloads, config), reporter, config)
    kept = config.getoption("mat_store")
    if kept is not None:
        from mat.report.words import plural

        reporter.write_line(f"mat store: {kept} ({plural(sum(data['kept'] for data in payloads), 'run')})")


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


def _text(document: Document, config: pytest.Config) -> str:
    """All tables of an evaluation, else the short ones."""
    from mat.report.terminal import summary, whole

    return (whole if config.getoption("mat_evaluate") else summary)(document, width=width_of(config))


def _besides(document: Document, payloads: Sequence[Any], config: pytest.Config) -> Besides:
    """What reports say besides the document: traces to look at, and of a gate's session what it was compared with."""
    from mat.report.files import Besides
    from pytest_mat.page import looked_at, page_is_asked

    runs = [decode(Run, run, where="run") for data in payloads for run in data["runs"]] if page_is_asked(config) else []
    besides = Besides(traces=looked_at(document.counterexamples, runs))
    if config.getoption("mat_gate"):
        from pytest_mat.gate import compared

        besides = compared(config, document, besides)
    return besides


def _write(document: Document, names: Sequence[str], besides: Besides, reporter: Any, config: pytest.Config) -> None:
    """Write the reports. One that cannot be written ends the session with a message and an exit code, after the others."""
    from mat.report.files import write

    failed: list[str] = []
    for name in names:
        try:
            write(document, Path(config.invocation_params.dir, name), besides)
        except MatError as error:
            failed.append(str(error))
        else:
            empty = "" if _payloads else " (empty: no test of this session was run by pytest-mat)"
            reporter.write_line(f"mat report: {name}{empty}")
    if failed:
        pytest.exit("\n".join(failed), returncode=pytest.ExitCode.USAGE_ERROR)

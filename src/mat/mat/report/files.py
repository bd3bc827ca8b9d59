"""Writes reports as files; the suffix selects the format.

    .json     everything, as data (mat.report.to_json.as_data)
    .md       tables and counterexamples as Markdown, for a pull request
    .html     one self-contained page with plots and a trace viewer
    .txt      what broke and what is open, as at the end of a session, then all tables
    .sarif    the findings, for code scanning and editors (SARIF 2.1.0)
    .csv      every number of every table, one per line
    .parquet  the same lines, typed

A CSV or Parquet report is one table with the columns `mat.report.flat.FIELDS`: the table and keys of a number (item,
condition, category, variant, subject), its name, unit, value, interval, n, confidence and method; `text` holds facts that are
not numbers. `write_folder` writes each table to a file of its own. Individual runs are in the store (`mat query`, `mat export`)
and in JSON. Equal reports give equal bytes in every format.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mat.core.errors import MatError, SpecError, did_you_mean
from mat.core.extras import require
from mat.core.files import write_whole
from mat.core.redact import cleaned
from mat.report.document import Document
from mat.report.source_lines import REPOSITORY_ROOT, SourceFolders

if TYPE_CHECKING:
    from mat.measure.regression import Regression
    from mat.measure.suite import Cover
    from mat.report.page.trace import Traced

__all__ = ["FORMS", "ReportExtras", "check_path", "form_of", "refused", "rendered", "write", "write_bytes", "write_folder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportExtras:
    """Optional additions to a report: a comparison with an earlier report, a regression suite, further traces.

    Pages show all of them; text, Markdown and JSON include the comparison, JSON also the suite. `names` are those of the old
    and the new report, `nodes` the node ids of the suite's replay files. `folders`: where a SARIF report finds source files.
    """

    regression: Regression | None = None
    names: tuple[str, str] = ("the baseline", "this report")
    suite: Cover | None = None
    nodes: Mapping[str, str] = field(default_factory=dict)
    traces: Sequence[Traced] = ()
    folders: SourceFolders = REPOSITORY_ROOT


NOTHING: Final = ReportExtras()


def _json(document: Document, extras: ReportExtras) -> bytes:
    from mat.report.regression import regression_data
    from mat.report.suite import SuiteReport, suite_data
    from mat.report.to_json import to_json

    more: dict[str, Any] = {}
    if extras.regression is not None:
        more["comparison"] = regression_data(extras.regression)
    if extras.suite is not None:
        names = (*(item.name for item in extras.suite.chosen), *(item.name for item in extras.suite.left_out))
        nodes = {name: extras.nodes.get(name, name) for name in names}
        more["suite"] = suite_data(SuiteReport(cover=extras.suite, nodes=nodes, flaky={}))
    return to_json(document, **more).encode()


def _markdown(document: Document, extras: ReportExtras) -> bytes:
    from mat.report.markdown import comparison, to_markdown

    text = to_markdown(document)
    if extras.regression is not None:
        text += f"\n{comparison(extras.regression, names=extras.names)}"
    return text.encode()


def _text(document: Document, extras: ReportExtras) -> bytes:
    from mat.report.regression import regression_blocks
    from mat.report.terminal import blocks_in_text, report_text

    text = report_text(document)
    if extras.regression is not None:
        text += f"\n{blocks_in_text(regression_blocks(extras.regression, names=extras.names))}"
    return text.encode()


def _html(document: Document, extras: ReportExtras) -> bytes:
    from mat.report.page import render

    return render(document, regression=extras.regression, suite=extras.suite, traces=extras.traces).encode()


def _csv(document: Document, extras: ReportExtras) -> bytes:
    from mat.report.table_csv import numbers_csv
    from mat.report.tables import tables_of

    return numbers_csv(tables_of(document)).encode()


def _parquet(document: Document, extras: ReportExtras) -> bytes:
    from mat.report.table_parquet import numbers_parquet
    from mat.report.tables import tables_of

    return numbers_parquet(tables_of(document))


def _sarif(document: Document, extras: ReportExtras) -> bytes:
    from mat.report.sarif import sarif_text

    return sarif_text(document, folders=extras.folders).encode()


_FORMS: Final[dict[str, Callable[[Document, ReportExtras], bytes]]] = {
    "html": _html, "md": _markdown, "json": _json, "csv": _csv, "parquet": _parquet, "txt": _text, "sarif": _sarif,
}  # fmt: skip
_NEEDED: Final = {
    "html": ("report", "an HTML report", "write .txt, .md or .json"),
    "parquet": ("store", "a Parquet report", "write .csv"),
}
"""The extra that a format needs, what needs it, and what can be written without it."""
FORMS: Final = tuple(_FORMS)
"""The formats, named by their suffix without the dot."""


def form_of(path: Path) -> str:
    """The format that a path's suffix selects; MatError for an unknown suffix."""
    form = Path(path).suffix.lower().removeprefix(".")
    if form not in _FORMS:
        raise refused(path)
    return form


def check_path(path: Path) -> None:
    """MatError if no report can be written to the path; called before the session runs."""
    form = form_of(path)
    if form in _NEEDED:
        extra, what, otherwise = _NEEDED[form]
        require(extra, what, otherwise=otherwise, where=str(path))
    path = Path(path)
    if path.is_dir():
        raise MatError(f"{path} is a folder", why="a report is one file", fix="name a file in it", where=str(path))
    folder = next(each for each in path.absolute().parents if each.exists())
    if not (os.access(path, os.W_OK) if path.exists() else can_hold_files(folder)):
        raise MatError(f"cannot write {path}", why=f"{folder} cannot be written to", fix="use another path", where=str(path))


def can_hold_files(folder: Path) -> bool:
    """Whether a file can be created in the folder; tried out, because permissions alone do not show it."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def refused(path: Path) -> MatError:
    """The error for a path whose suffix is no report format."""
    suffix = Path(path).suffix.lower()
    why = f"no report format ends in {suffix!r}{did_you_mean(suffix[1:], FORMS)}" if suffix else "its name has no suffix"
    *others, last = (f".{form}" for form in FORMS)
    return MatError(
        f"cannot write a report to {Path(path).name}", why=why, fix=f"use a path that ends in {', '.join(others)} or {last}",
        where=str(path),
    )  # fmt: skip


def rendered(document: Document, form: str, extras: ReportExtras = NOTHING) -> bytes:
    """The report in one of the formats `FORMS`, as bytes (text in UTF-8), without declared secrets."""
    if form not in _FORMS:
        raise SpecError(what=f"unknown report format {form!r}", fix=f"use one of {', '.join(FORMS)}")
    return _FORMS[form](cleaned(document), cleaned(extras))


def write(document: Document, path: Path, extras: ReportExtras = NOTHING) -> None:
    """Write the report in the format of the path's suffix. MatError for an unknown suffix, or if writing fails."""
    form = form_of(path)
    write_bytes(path, rendered(document, form, extras))


def write_folder(document: Document, folder: Path, form: str) -> tuple[Path, ...]:
    """Write each table to a file of its own, `<table>.csv` or `<table>.parquet`, and return the paths.

    An estimate takes several columns: its value under the column's name, and `_low`, `_high`, `_n`, `_method`.
    """
    from mat.report.table import shown
    from mat.report.table_csv import table_csv
    from mat.report.table_parquet import table_parquet
    from mat.report.tables import tables_of

    writers: dict[str, Callable[..., bytes]] = {"csv": lambda table: table_csv(table).encode(), "parquet": table_parquet}
    if form not in writers:
        raise SpecError(
            what=f"cannot write a folder of {form} tables", why="single tables are written as csv or parquet",
            fix="use csv or parquet, or name a file",
        )  # fmt: skip
    paths = []
    for table in shown(tables_of(cleaned(document)), "files"):
        paths.append(Path(folder, f"{table.name}.{form}"))
        write_bytes(paths[-1], writers[form](table))
    return tuple(paths)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole, and create its folder if needed. MatError if that fails; then no part of it is left."""
    path = Path(path)
    try:
        write_whole(path, content)
    except OSError as error:
        raise MatError(
            f"cannot write the report: {error.strerror}", fix="check the folder and its permissions", where=str(path)
        ) from error

"""`mat query "SQL"`: rows of the store, as a table or as JSON."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mat.commands.shared import PASS, Add, count, print_json, width
from mat.core.errors import MatError, SpecError

if TYPE_CHECKING:
    from mat.core.run import Finding
    from mat.evidence.store import Answer, Store

_TEXT: Final = "ask the store of recorded runs in SQL"
_EXAMPLES: Final = """mat query "SELECT category, avg(success::INT) FROM runs GROUP BY ALL"
         mat query "SELECT contract, count(*) FROM violations GROUP BY ALL"
         mat query "SELECT item, steps FROM runs WHERE condition = 'nominal'"
         mat query "SUMMARIZE steps" --json
         mat query "SELECT count(*) FROM runs" --parquet 'exports/*.parquet'

tables: runs, steps, violations, perturbations, mediations, usage, contracts, scores, findings; DESCRIBE runs lists columns
the query reads these tables and nothing else: it changes nothing and opens no file
exit codes: 0 the query was answered, 2 a wrong query or a store that cannot be read"""
_NARROW: Final = 8
"""No column is cut to less."""


def add_parser(add: Add) -> None:
    parser = add("query", _TEXT, _EXAMPLES)
    parser.add_argument("sql", metavar="SQL", help="one SELECT, DESCRIBE, SUMMARIZE, SHOW or EXPLAIN")
    add_store(parser)
    parser.add_argument("--parquet", metavar="GLOB", help="ask exported files instead: a folder or a pattern of mat export")
    parser.add_argument("--limit", type=count, default=200, metavar="N", help="rows to show (default 200; 0 for all)")


def add_store(parser: argparse.ArgumentParser) -> None:
    """The option that says which store is meant."""
    parser.add_argument(
        "--store", type=Path, default=Path(".mat", "store"), metavar="FOLDER",
        help="the folder of the store and its log, as pytest --mat-store has it (default %(default)s)",
    )  # fmt: skip


def file_of(options: argparse.Namespace) -> Path:
    """The store's file. Its log is the folder."""
    from mat.evidence.store import NAME

    return Path(options.store, NAME)


def query(options: argparse.Namespace) -> int:
    with undamaged(file_of(options)), ExitStack() as stack:
        store = stack.enter_context(_store(options))
        store.seal()
        answer = store.query(options.sql, limit=options.limit or None)
    if options.json:
        print_json(answer_data(answer))
    else:
        print(table(answer, width=width(piped=None)), end="")
    return PASS


def _store(options: argparse.Namespace) -> Store:
    from mat.evidence.store import Store

    if options.parquet is None:
        return opened(options)
    store = Store(None)
    try:
        store.read_parquet(options.parquet)
    except BaseException:
        store.close()
        raise
    return store


def opened(options: argparse.Namespace) -> Store:
    """The store that the options name, for reading, with what its log has more."""
    from mat.evidence.runlog import SUFFIX
    from mat.evidence.store import Store, bring_up_to_date

    folder = Path(options.store)
    if os.path.isdir(folder) and not file_of(options).exists() and not any(folder.glob(f"*{SUFFIX}")):
        raise SpecError(
            what=f"{folder} holds no store and no log", why=f"nothing was recorded there, seen from {Path.cwd()}",
            fix="run pytest --mat-store, or name the folder with --store", where=str(folder),
        )  # fmt: skip
    say(bring_up_to_date(file_of(options), options.store))
    return Store(file_of(options), mode="read")


def say(findings: Sequence[Finding]) -> None:
    """Findings on stderr: they may quote names of files from outside."""
    from mat.evidence.artifact import printable

    for finding in findings:
        print(f"mat: {finding.code}: {printable(finding.message)}", file=sys.stderr)


_MENDED: Final = {
    "log-torn": "import it when its process has ended; if that was killed, no more can be had",
    "log-damaged": "copy it again from where it was written",
    "log-foreign": "read it with the pytest-mat that wrote it",
}


def lost(findings: Iterable[Finding], *files: Path) -> tuple[MatError, ...]:
    """Findings by which runs of a log are lost, as errors.

    A file of a folder may end in the middle of a line, as killed processes leave it; one that is given by its name is whole,
    or not what was meant.
    """
    named = {path.name: str(path) for path in files}
    return tuple(
        MatError(
            finding.message, why="what cannot be read is left out; the rest is there", fix=_MENDED[finding.code],
            where=named.get(finding.message.partition(": ")[0], ""),
        )
        for finding in findings
        if finding.code in _MENDED and (finding.code != "log-torn" or finding.message.partition(": ")[0] in named)
    )  # fmt: skip


@contextmanager
def undamaged(file: Path) -> Iterator[None]:
    """What DuckDB raises of a damaged file, as an error of ours."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise MatError(
            f"{file.name} cannot be read as a store", why=str(error).partition("\n")[0],
            fix="make it again from its log: mat import --rebuild", where=str(file),
        ) from None  # fmt: skip


# -- rendering --------------------------------------------------------------------------------------------------------


def answer_data(answer: Answer) -> dict[str, Any]:
    """As JSON data. What JSON has no form for is text."""
    return {
        "columns": [{"name": name, "type": kind} for name, kind in zip(answer.columns, answer.kinds, strict=True)],
        "rows": [[_json(value) for value in row] for row in answer.rows],
        "more": answer.more,
    }


def _json(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _json(item) for key, item in value.items()}
    return value.hex() if isinstance(value, bytes) else str(value)


def table(answer: Answer, *, width: int | None = None) -> str:
    """As text, in columns; of a width where one is given, the longest texts cut. NULL is shown as -.

    Rows of more columns than have room beside each other are told a column a line.
    """
    from mat.report.words import plural

    cells = [[_cell(value) for value in row] for row in answer.rows]
    right = [all(isinstance(row[place], int | float) or row[place] is None for row in answer.rows) for place in
             range(len(answer.columns))]  # fmt: skip
    heads = [_cell(name) for name in answer.columns]
    rows = f"({plural(len(cells), 'row')}{', and more: raise --limit' if answer.more else ''})\n"
    if width is not None and len(heads) * (_NARROW + 2) - 2 > width:
        return _records(heads, cells, width) + rows
    widths = _fitted([max(map(len, column)) for column in zip(heads, *cells, strict=True)], width)
    lines = [heads, ["-" * size for size in widths], *cells]
    text = "".join(
        "  ".join(_padded(cell, size, side) for cell, size, side in zip(line, widths, right, strict=True)).rstrip() + "\n"
        for line in lines
    )
    return text + rows


def _records(heads: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> str:
    """Rows one under another, each a block of names and values; a long value is folded."""
    from mat.report.words import filler

    size, fill = max(map(len, heads)), filler(width)
    lines = []
    for number, row in enumerate(cells, 1):
        lines.append(f"row {number}")
        lines += [
            fill(f"{name.ljust(size)}  {cell}", indent="  ", hanging=" " * (size + 4))
            for name, cell in zip(heads, row, strict=True)
        ]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _cell(value: Any) -> str:
    from mat.evidence.artifact import printable

    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else printable(str(value))


def _padded(cell: str, size: int, right: bool) -> str:
    cell = cell if len(cell) <= size else f"{cell[: size - 1]}…"
    return cell.rjust(size) if right else cell.ljust(size)


def _fitted(widths: list[int], width: int | None) -> list[int]:
    """Widths that fit a line where they can; the widest column gives way first."""
    room = None if width is None else width - 2 * (len(widths) - 1)
    while room is not None and sum(widths) > room and max(widths) > _NARROW:
        widest = widths.index(max(widths))
        widths[widest] = max(_NARROW, widths[widest] - (sum(widths) - room))
    return widths

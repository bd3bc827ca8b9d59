"""`mat query "SQL"`: query the store of recorded runs, and print rows as a table or as JSON."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from mat.commands.shared import PASS, Add, count, print_json, width
from mat.commands.stores import add_store, exported, file_of, opened, undamaged

if TYPE_CHECKING:
    from mat.evidence.store import QueryResult

_TEXT: Final = "query the store of recorded runs in SQL"
_EXAMPLES: Final = """mat query "SELECT category, avg(success::INT) FROM runs GROUP BY ALL"
         mat query "SELECT contract, count(*) FROM violations GROUP BY ALL"
         mat query "SELECT item, steps FROM runs WHERE condition = 'nominal'"
         mat query "SUMMARIZE steps" --json
         mat query "SELECT count(*) FROM runs" --parquet 'exports/*.parquet'

tables: runs, steps, violations, perturbations, mediations, usage, contracts, scores, findings; DESCRIBE runs lists columns
views: by_task, by_category, by_variant, by_session, by_operator, by_contract, by_agent, by_tool, first_violations
a query can read these tables only: it cannot change the store or open files
exit codes: 0 the query succeeded, 2 a wrong query or an unreadable store"""
_NARROW: Final = 8
"""The narrowest width, in characters, to which a column is cut."""


def add_parser(add: Add) -> None:
    parser = add("query", _TEXT, _EXAMPLES)
    parser.add_argument("sql", metavar="SQL", help="one SELECT, DESCRIBE, SUMMARIZE, SHOW or EXPLAIN statement")
    add_store(parser)
    parser.add_argument(
        "--parquet", metavar="GLOB", help="query exported files instead: a folder or a pattern of files of mat export"
    )
    parser.add_argument("--limit", type=count, default=200, metavar="N", help="show at most N rows (default 200; 0 for all)")


def query(options: argparse.Namespace) -> int:
    with undamaged(file_of(options)), ExitStack() as stack:
        store = stack.enter_context(opened(options) if options.parquet is None else exported(options.parquet))
        store.seal()
        answer = store.query(options.sql, limit=options.limit or None)
    if options.json:
        print_json(answer_data(answer))
    else:
        print(table(answer, width=width(piped=None)), end="")
    return PASS


# -- rendering --------------------------------------------------------------------------------------------------------


def answer_data(answer: QueryResult) -> dict[str, Any]:
    """The answer as JSON data. Values that JSON cannot represent become text."""
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


def table(answer: QueryResult, *, width: int | None = None) -> str:
    """The answer as a text table. If `width` is given, the longest texts are cut to fit. NULL is shown as -.

    If the columns do not fit side by side, each row becomes a block with one column per line.
    """
    from mat.core.errors import plural

    cells = [[_cell(value) for value in row] for row in answer.rows]
    right = [all(isinstance(row[place], int | float) or row[place] is None for row in answer.rows) for place in
             range(len(answer.columns))]  # fmt: skip
    heads = [_cell(name) for name in answer.columns]
    count = plural(len(cells), "row")
    rows = f"(the first {count}; raise --limit to show more)\n" if answer.more else f"({count})\n"
    if width is not None and len(heads) * (_NARROW + 2) - 2 > width:
        return _records(heads, cells, width) + rows
    widths = _fit_widths([max(map(len, column)) for column in zip(heads, *cells, strict=True)], width)
    lines = [heads, ["-" * size for size in widths], *cells]
    text = "".join(
        "  ".join(_pad(cell, size, side) for cell, size, side in zip(line, widths, right, strict=True)).rstrip() + "\n"
        for line in lines
    )
    return text + rows


def _records(heads: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> str:
    """Rows as blocks of names and values; long values are wrapped."""
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
    from mat.core.errors import printable

    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else printable(str(value))


def _pad(cell: str, size: int, right: bool) -> str:
    cell = cell if len(cell) <= size else f"{cell[: size - 1]}…"
    return cell.rjust(size) if right else cell.ljust(size)


def _fit_widths(widths: list[int], width: int | None) -> list[int]:
    """Column widths that fit into a line, if possible; the widest column shrinks first."""
    room = None if width is None else width - 2 * (len(widths) - 1)
    while room is not None and sum(widths) > room and max(widths) > _NARROW:
        widest = widths.index(max(widths))
        widths[widest] = max(_NARROW, widths[widest] - (sum(widths) - room))
    return widths

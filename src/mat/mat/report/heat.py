"""Makes heat maps: task success of nominal runs by two variables, for workloads that run in several ways.

`heat_maps` finds three kinds in the rows of a session: tests by governance variant; the grid of a test with two parameters,
such as a task and an agent; tests by a parameter that all of them take. `heat_map` makes any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from mat.measure.reliability import success
from mat.measure.rows import RunRow, counted
from mat.report.document import HeatCell, HeatMap, HeatRow

__all__ = ["heat_map", "heat_maps"]

_LEAST: Final = 2
"""The least number of rows and of columns of a heat map; with fewer, a list says as much."""
_WIDEST: Final = 40
"""The most columns that fit on a page. A map with more is transposed, and left out if it is still too wide."""


def heat_map(
    rows: Iterable[RunRow],
    *,
    title: str,
    down: str = "test",
    across: str = "variant",
    row: Callable[[RunRow], str] = lambda row: row.item,
    column: Callable[[RunRow], str] = lambda row: row.variant,
    group: Callable[[RunRow], str] = lambda row: row.category,
    why: Callable[[RunRow], str] | None = None,
) -> HeatMap:
    """Task success of the judged runs by the values of `row` and `column`, each in order of first appearance.

    `why` gives the reason of a failed run: by default the first hard contract it broke, or how it ended. Rows of one `group`
    are adjacent. Runs whose infrastructure failed are in no cell.
    """
    reason = _failure_reason if why is None else why
    cells: dict[str, dict[str, list[RunRow]]] = {}
    groups: dict[str, str] = {}
    columns: dict[str, None] = {}
    for each in _judged_rows(rows):
        columns[column(each)] = None
        cells.setdefault(row(each), {}).setdefault(column(each), []).append(each)
        groups.setdefault(row(each), group(each))
    places = {name: place for place, name in enumerate(dict.fromkeys(groups.values()))}
    return HeatMap(
        title=title, down=down, across=across, columns=tuple(columns),
        rows=tuple(
            HeatRow(
                name=name, group=groups[name], cells=tuple(_heat_cell(cells[name].get(each, ()), reason) for each in columns)
            )
            for name in sorted(cells, key=lambda name: places[groups[name]])
        ),
    )  # fmt: skip


def heat_maps(rows: Iterable[RunRow]) -> tuple[HeatMap, ...]:
    """The heat maps of a session's nominal runs that have at least two rows and two columns."""
    nominal = [row for row in _judged_rows(rows) if row.condition == "nominal"]
    own: dict[str, str] = {}
    for row in nominal:
        own.setdefault(row.item, row.variant)
    deciding = [row for row in nominal if row.variant == own[row.item]]
    found = [heat_map(nominal, title="Task success by test and variant")]
    found += [_by_parameter(title, places, deciding) for title, places in _grids(list(own))]
    fitted = (_transpose(each) if len(each.columns) > _WIDEST else each for each in found)
    return tuple(each for each in fitted if len(each.rows) >= _LEAST and _LEAST <= len(each.columns) <= _WIDEST)


def _transpose(found: HeatMap) -> HeatMap:
    """The heat map with rows and columns exchanged."""
    cells = zip(*(row.cells for row in found.rows), strict=True)
    return HeatMap(
        title=found.title, down=found.across, across=found.down, columns=tuple(row.name for row in found.rows),
        rows=tuple(HeatRow(name=name, group="", cells=each) for name, each in zip(found.columns, cells, strict=True)),
    )  # fmt: skip


def _by_parameter(title: str, places: Mapping[str, tuple[str, str]], rows: Iterable[RunRow]) -> HeatMap:
    return heat_map(
        [row for row in rows if row.item in places],
        title=title, down="parameter" if title.endswith("parameters") else "test", across="parameter",
        row=lambda row: places[row.item][0], column=lambda row: places[row.item][1],
    )  # fmt: skip


def _judged_rows(rows: Iterable[RunRow]) -> list[RunRow]:
    return [row for row in counted(list(rows)) if row.success is not None]


def _heat_cell(rows: Sequence[RunRow], why: Callable[[RunRow], str]) -> HeatCell | None:
    if not rows:
        return None
    reasons = Counter(why(row) for row in rows if not row.success)
    most = min(reasons, key=lambda name: (-reasons[name], name), default="")
    return HeatCell(success=success(rows), why=most)


def _failure_reason(row: RunRow) -> str:
    first = min(row.hard, key=lambda item: item.step, default=None)
    if first is not None:
        return first.contract
    return "the task was not done" if row.termination in ("completed", "implicit") else row.termination


# -- parameters of tests ----------------------------------------------------------------------------------------------


def _grids(items: Sequence[str]) -> list[tuple[str, Mapping[str, tuple[str, str]]]]:
    """Titles, and the row and column of items: for each test with two parameters, and for tests with the same parameter."""
    tests: dict[str, dict[str, str]] = {}
    for item in items:
        name, opened, inside = item.partition("[")
        if opened and inside.endswith("]"):
            tests.setdefault(name, {})[inside[:-1]] = item
    found: list[tuple[str, Mapping[str, tuple[str, str]]]] = []
    shared: dict[frozenset[str], dict[str, tuple[str, str]]] = {}
    for name, by_parameters in tests.items():
        split = _split_names(list(by_parameters))
        if split:
            title = f"Task success of {name.rpartition('::')[2]} by its parameters"
            found.append((title, {by_parameters[inside]: place for inside, place in split.items()}))
        elif len(by_parameters) >= _LEAST:
            shared.setdefault(frozenset(by_parameters), {}).update(
                {item: (name, inside) for inside, item in by_parameters.items()}
            )
    found += [("Task success by test and parameter", places) for places in shared.values()]
    return found


def _split_names(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Split texts "row-column" so that every row occurs with every column; {} if there is no way to do that.

    Both parts may contain hyphens. Among several ways, the one with the fewest columns wins.
    """
    after: dict[str, dict[str, None]] = {}
    before: dict[str, dict[str, None]] = {}
    for name in names:
        for seam in (place for place, letter in enumerate(name) if letter == "-" and 0 < place < len(name) - 1):
            after.setdefault(name[:seam], {})[name[seam + 1 :]] = None
            before.setdefault(name[seam + 1 :], {})[name[:seam]] = None
    ways: dict[int, dict[str, tuple[str, str]]] = {}
    for rows in {tuple(found): None for found in before.values() if _LEAST <= len(found) <= len(names) // _LEAST}:
        columns = [name for name in after[rows[0]] if all(name in after[row] for row in rows)]
        whole = {f"{row}-{column}": (row, column) for row in rows for column in columns}
        if len(columns) >= _LEAST and len(whole) == len(rows) * len(columns) == len(names):
            ways.setdefault(len(columns), whole)
    return {name: ways[min(ways)][name] for name in names} if ways else {}

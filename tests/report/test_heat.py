"""Heat maps: there where a workload was run in several ways, and nowhere else; the same numbers in every form."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from mat.core.errors import printable
from mat.measure.interval import wilson
from mat.measure.rows import RunRow
from mat.report.build import build
from mat.report.document import Document, HeatMap
from mat.report.files import rendered
from mat.report.flat import numbers
from mat.report.from_json import restored
from mat.report.heat import _split_names, heat_map, heat_maps
from mat.report.page import render
from mat.report.tables import tables_of
from mat.report.to_json import as_data, to_json


class Table(HTMLParser):
    """The heat maps of a page: for each row its cells as (element, class, text, tooltip)."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[list[str]]] = []
        self._inside = self._open = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "table":
            self._inside = found.get("class") == "heat"
        elif self._inside and tag == "tr":
            self.rows.append([])
        elif self._inside and tag in ("td", "th"):
            self._open = True
            self.rows[-1].append([tag, found.get("class", ""), "", found.get("title", "")])

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.rows[-1][-1][2] += data


@pytest.fixture(scope="session")
def row(desk: Any) -> Any:
    """A run of an item, under a variant, that passed or broke a contract."""

    def making(item: str, variant: str = "none", *, success: bool | None = True, seed: int = 0, **changes: Any) -> RunRow:
        plain = replace(desk.row("planning", 0, "nominal", "none", seed), category="", violations=())
        return replace(plain, item=item, variant=variant, success=success, **changes)

    return making


def shape(found: HeatMap) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[float | None, ...]], ...]]:
    return found.columns, tuple(
        (line.name, tuple(None if cell is None else cell.success.value for cell in line.cells)) for line in found.rows
    )


# -- where there is one -----------------------------------------------------------------------------------------------


def test_tests_under_several_variants_have_one(row: Any) -> None:
    rows = [row(f"t.py::{test}", variant, success=test == variant) for test in "ab" for variant in "ab"]
    (found,) = heat_maps(rows)
    assert (found.down, found.across) == ("test", "variant")
    assert shape(found) == (("a", "b"), (("t.py::a", (1.0, 0.0)), ("t.py::b", (0.0, 1.0))))


@pytest.mark.parametrize("names", [("t.py::a",), ("t.py::a", "t.py::b")])
def test_one_variant_has_none(row: Any, names: tuple[str, ...]) -> None:
    assert heat_maps([row(name) for name in names]) == ()


def test_one_test_under_several_variants_has_none(row: Any) -> None:
    assert heat_maps([row("t.py::a", variant) for variant in "ab"]) == ()


def test_the_grid_of_a_test_with_two_parameters_has_one(row: Any) -> None:
    tasks, agents = ("get-token", "get-token-twice"), ("oracle", "stale-cache", "cache")
    rows = [row(f"t.py::test_api[{task}-{agent}]", success=agent != "cache") for task in tasks for agent in agents]
    (found,) = heat_maps(rows)
    assert found.title == "Task success of test_api by its parameters"
    assert shape(found) == (agents, tuple((task, (1.0, 1.0, 0.0)) for task in tasks))


def test_a_grid_with_a_hole_has_none(row: Any) -> None:
    rows = [row(f"t.py::test_api[{task}-{agent}]") for task in "ab" for agent in "xyz"]
    assert len(heat_maps(rows)) == 1
    assert heat_maps(rows[:-1]) == ()


def test_tests_that_share_a_parameter_have_one_and_others_stay_out(row: Any) -> None:
    rows = [row(f"t.py::{test}[{model}]") for test in ("one", "two") for model in ("small", "large")]
    rows += [row("t.py::three[huge]"), row("t.py::four"), row("t.py::five[1]"), row("t.py::five[2]")]
    (found,) = heat_maps(rows)
    assert shape(found) == (("small", "large"), (("t.py::one", (1.0, 1.0)), ("t.py::two", (1.0, 1.0))))


@pytest.mark.full
def test_what_has_too_many_columns_is_turned_or_left_out(row: Any) -> None:
    rows = [row(f"t.py::{test}[{case}]", success=test == "one") for test in ("one", "two") for case in range(50)]
    (found,) = heat_maps(rows)
    assert (found.down, found.across) == ("parameter", "test")
    assert shape(found) == (("t.py::one", "t.py::two"), tuple((str(case), (1.0, 0.0)) for case in range(50)))
    assert heat_maps([row(f"t.py::test_{test}[{case}]") for test in range(50) for case in range(50)]) == ()


def test_only_undisturbed_runs_that_are_judged_and_whose_infrastructure_held_count(row: Any) -> None:
    rows = [row(f"t.py::{test}", variant) for test in "ab" for variant in "xy"]
    more = [
        row("t.py::a", "x", success=False, seed=1, infrastructure="crash"),
        replace(row("t.py::a", "x", success=False, seed=2), condition="fault"),
        row("t.py::a", "x", success=None, seed=3),
    ]
    assert heat_maps([*rows, *more]) == heat_maps(rows)
    assert heat_maps([replace(each, success=None) for each in rows]) == ()


def parts(alphabet: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.text(alphabet, min_size=1, max_size=4), min_size=2, max_size=4, unique=True)


@given(left=parts("ab"), right=parts("cd"))
def test_a_whole_grid_is_always_found(left: list[str], right: list[str]) -> None:
    assert _split_names([f"{one}-{other}" for one in left for other in right]) == {
        f"{one}-{other}": (one, other) for one in left for other in right
    }


@given(left=parts("ab-"), right=parts("cd-"), more=st.lists(st.text("abcd-", min_size=1, max_size=6), max_size=2))
def test_what_is_taken_apart_is_a_whole_grid(left: list[str], right: list[str], more: list[str]) -> None:
    names = list(dict.fromkeys([*(f"{one}-{other}" for one in left for other in right), *more]))
    found = _split_names(names)
    assert all("-".join(place) == name for name, place in found.items())
    if found:
        assert set(found) == set(names)
        rows, columns = {place[0] for place in found.values()}, {place[1] for place in found.values()}
        assert len(rows) * len(columns) == len(names)
        assert min(len(rows), len(columns)) >= 2


# -- what a cell says -------------------------------------------------------------------------------------------------


def test_a_cell_has_its_share_with_interval_and_what_most_failures_failed_with(row: Any, desk: Any) -> None:
    broken = desk.row("policy", 2, "fault", "none", 1).violations  # one that breaks refund.verified
    assert broken
    rows = [row("a", "x", seed=0), row("a", "x", seed=1, success=False, violations=broken)]
    rows += [row("a", "x", seed=seed, success=False) for seed in (2, 3)]
    rows += [row("a", "x", seed=4, success=False, termination="horizon")]
    (line,) = heat_map(rows, title="").rows
    (cell,) = line.cells
    assert cell is not None
    assert cell.success == wilson(1, 5)
    assert cell.why == "the task was not done"
    (line,) = heat_map([*rows, *(replace(rows[1], seed=seed) for seed in (5, 6))], title="").rows
    assert line.cells[0] is not None
    assert line.cells[0].why == "refund.verified"


def test_rows_of_one_group_stand_together_in_the_order_of_the_groups(row: Any) -> None:
    rows = [replace(row(name, "x"), category=group) for name, group in (("a", "two"), ("b", "one"), ("c", "two"))]
    found = heat_map(rows, title="")
    assert [(line.group, line.name) for line in found.rows] == [("two", "a"), ("two", "c"), ("one", "b")]


def test_a_place_without_a_run_is_none(row: Any) -> None:
    found = heat_map([row("a", "x"), row("b", "y")], title="")
    assert shape(found) == (("x", "y"), (("a", (1.0, None)), ("b", (None, 1.0))))


# -- the report -------------------------------------------------------------------------------------------------------


@pytest.fixture
def document(row: Any) -> Document:
    rows = [
        row(f"t.py::{test}", variant, seed=seed, success=test == "a" or (variant == "x" and not seed))
        for test in "ab" for variant in "xy" for seed in range(2)
    ]  # fmt: skip
    return build([], rows)


def test_a_cell_tells_its_number_in_words_not_by_its_shade_alone(document: Document) -> None:
    rows = Table(render(document)).rows
    assert [[cell[:3] for cell in line] for line in rows] == [
        [["th", "", "test"], ["th", "", "x"], ["th", "", "y"]],
        [["th", "", "t.py::a"], ["td", "h3", "100%"], ["td", "h3", "100%"]],
        [["th", "", "t.py::b"], ["td", "h2", "50%the task was not done"], ["td", "h0", "0%the task was not done"]],
    ]
    assert rows[2][2][3] == "0% to 66%, 2 runs; most often: the task was not done"


@pytest.mark.full
def test_a_report_without_one_keeps_its_bytes(document: Document, row: Any) -> None:
    plain = build([], [row("t.py::a"), row("t.py::b")])
    assert plain.heat_maps == ()
    assert "heat" not in as_data(plain)
    html = render(plain)
    assert ".heat" not in html
    assert 'id="heat"' not in html
    without = replace(document, heat_maps=())
    assert {key: value for key, value in as_data(document).items() if key != "heat_maps"} == as_data(without)
    for form in ("md", "txt"):
        assert rendered(document, form) == rendered(without, form)


def test_json_brings_it_back(document: Document) -> None:
    back = restored(json.loads(to_json(document)), where="report.json").document
    assert back.heat_maps == document.heat_maps
    assert render(back) == render(document)


def test_files_hold_every_cell(document: Document) -> None:
    found = [line for line in numbers(tables_of(document)) if line.table == "heat_map"]
    assert [(line.subject, line.value) for line in found if line.name == "success"] == [
        ("t.py::a / x", 1.0), ("t.py::a / y", 1.0), ("t.py::b / x", 0.5), ("t.py::b / y", 0.0),
    ]  # fmt: skip
    assert [line.text for line in found if line.name == "why"] == ["the task was not done"] * 2


@given(name=st.text(min_size=1, max_size=20))
def test_names_from_outside_are_shown_as_text(name: str) -> None:
    from mat.report.document import HeatCell, HeatRow

    cell = HeatCell(success=wilson(1, 2), why=name)
    line = HeatRow(name=name, group=name, cells=(cell, None))
    found = HeatMap(
        title=name, down="test", across="variant", columns=(name, "other"), rows=(line, replace(line, group="more"))
    )
    html = render(Document(heat_maps=(found,)))
    assert html.count("<script") == render(Document()).count("<script")
    assert html.count(f"<caption>{escape(printable(name))}</caption>") == 1


def test_every_form_of_a_report_can_hold_it(document: Document, tmp_path: Path) -> None:
    for form in ("json", "html", "csv", "md", "txt"):
        assert rendered(document, form)

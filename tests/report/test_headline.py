"""The first line of a summary counts tests by result."""

from __future__ import annotations

from typing import get_args

import pytest

from mat.core.campaign import ItemResult, ItemStatus
from mat.report.brief import headline
from mat.report.findings import item_line


def line_of(*statuses: ItemStatus, stress: bool = True) -> str:
    items = [ItemResult(id=f"t.py::test_{number}", status=status, executions=700) for number, status in enumerate(statuses)]
    return str(headline(list(map(item_line, items)), seconds=31.4, stress=stress))


def test_the_first_line_counts_what_was_certified_broken_expected_vacuous_and_not_proven() -> None:
    said = line_of("certified", "certified", "counterexample", "violated", "expected", "replayed", "not_proven")
    assert said == "mat: 2 certified, 2 broken, 1 expected, 1 replay passes, 0 vacuous, 1 not proven  (4,900 executions, 31 s)"


def test_without_a_search_it_counts_what_broke_and_what_was_vacuous() -> None:
    said = line_of("nominal", "vacuous", stress=False)
    assert said == "mat: 1 nominal run passes, 0 broken, 1 vacuous  (1,400 executions, 31 s)"


@pytest.mark.parametrize("status", get_args(ItemStatus))
def test_every_status_is_counted_once(status: ItemStatus) -> None:
    """A status that somebody adds must be counted, too."""
    counts = [part.split()[0] for part in line_of(status).removeprefix("mat: ").partition("  (")[0].split(", ")]
    assert sorted(counts) == ["0"] * (len(counts) - 1) + ["1"]

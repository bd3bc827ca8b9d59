"""What a test draws depends on its seed and its node id, in every session and process and in its replays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mat.kernel.world import World

TESTS = """
import json
import pathlib
import random
import uuid


@pytest.fixture
def order():
    return str(uuid.uuid4())


@pytest.mark.parametrize("task", ["a", "b", "c"])
@pytest.mark.mat(budget=4, faults=FAULTS)
def test_task(mat_run, order, task, no_double):
    drawn = [order, random.random(), str(uuid.uuid4()), random.Random().random()]
    with open("drawn.jsonl", "a") as file:
        print(json.dumps([task, mat_run.seed, drawn]), file=file)
    shop.naive(order=order)
"""


def drawn_by(shop: Any, *arguments: str, **options: Any) -> dict[tuple[str, int], list[Any]]:
    """What each task drew at each seed; every execution of one must have drawn the same."""
    found: dict[tuple[str, int], list[Any]] = {}
    path = shop.path / "drawn.jsonl"
    path.unlink(missing_ok=True)
    shop.run(*arguments, **options)
    for line in path.read_text().splitlines():
        task, seed, drawn = json.loads(line)
        assert found.setdefault((task, seed), drawn) == drawn
    return found


def draws_repeat(found: dict[tuple[str, int], list[Any]]) -> bool:
    columns = zip(*found.values(), strict=True)
    return any(len(set(column)) < len(column) for column in columns)


@pytest.mark.covers("law", ["L1"])
def test_tests_draw_apart_at_one_seed_and_the_same_in_any_order_and_number(shop: Any) -> None:
    shop.tests(TESTS)
    found = drawn_by(shop)
    assert sorted(found) == [("a", 0), ("b", 0), ("c", 0)]
    assert not draws_repeat(found)
    some = drawn_by(shop, "test_shop.py::test_task[c]", "test_shop.py::test_task[a]")
    assert some == {key: drawn for key, drawn in found.items() if key[0] != "b"}


@pytest.mark.nightly
@pytest.mark.parametrize("hash_seed", ["0", "1", "77"])
def test_tests_draw_the_same_in_other_processes(shop: Any, monkeypatch: pytest.MonkeyPatch, hash_seed: str) -> None:
    shop.tests(TESTS)
    found = drawn_by(shop, "--mat-seeds", "2")
    assert (len(found), draws_repeat(found)) == (6, False)
    monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
    assert drawn_by(shop, "--mat-seeds", "2", "test_shop.py::test_task[b]", process=True) == {
        key: drawn for key, drawn in found.items() if key[0] == "b"
    }


def test_a_world_seeded_by_the_seed_alone_is_seen(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: no task in the world that the plugin makes."""
    monkeypatch.setattr("pytest_mat.execution.World", lambda seed, clock, task: World(seed, clock))
    shop.tests(TESTS)
    assert draws_repeat(drawn_by(shop))


@pytest.mark.full
def test_all_executions_of_a_search_and_its_replays_draw_the_same(shop: Any) -> None:
    shop.tests(TESTS)
    found = drawn_by(shop, "--mat-stress", "test_shop.py::test_task[a]")
    assert len(found) == 1
    (path,) = shop.replays
    data = json.loads(path.read_text())
    assert (data["mat"], data["spec"]["task"]) == (2, "test_shop.py::test_task[a]")
    assert drawn_by(shop, "-k", "replay") == found

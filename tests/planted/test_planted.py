"""pytest-mat says the truth about agents whose state outlives a run, and the oracle that knows it is right."""

from __future__ import annotations

import importlib
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RATE = """
import pytest
import mat

LAST = {}
FAULTS = (TimeoutError, ConnectionError)


@mat.tool(effect="read")
def fx():
    return 11


@mat.tool(effect="write")
def pay(amount):
    return "paid"


@mat.trace_contract(start=0)
def enough(seen, record):
    return mat.Violated("too little") if record.action.name == "pay" and record.action.arguments["amount"] == 0 else seen


@pytest.mark.mat(budget=8, faults=["service.timeout"], contracts=[enough])
def test_rate(mat_run):
    try:
        LAST["fx"] = fx()
    except FAULTS:
        pass
    try:
        pay(100 * LAST.get("fx", ELSE))
    except FAULTS:
        pass
"""


def planted(name: str) -> Any:
    """A module of this package."""
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module(f"tests.planted.{name}")
    finally:
        sys.path.remove(str(ROOT))


def by_hand(otherwise: int) -> Any:
    return planted("agents").Agent(
        name="rate", kind="breakable", store="dict", touch="success", decides="amount", variant="cold", budget=8,
        faults=("service.timeout",), files={"test_rate.py": RATE.replace("ELSE", str(otherwise))},
    )  # fmt: skip


# -- the oracle and the tally ---------------------------------------------------------------------------------------------


def test_the_oracle_finds_the_schedule_that_only_a_process_shows_that_executed_nothing() -> None:
    (truth,) = planted("oracle").truths([by_hand(0)]).values()
    assert (truth.cost, truth.warm, truth.errors) == (4, None, ())
    assert truth.schedules == ([["fx", 1, "service.timeout", 0]],)


def test_the_oracle_tries_all_schedules_of_an_agent_that_nothing_breaks() -> None:
    (truth,) = planted("oracle").truths([by_hand(10)]).values()
    assert (truth.cost, truth.warm, truth.tried) == (None, None, 4)


def test_a_false_word_is_seen() -> None:
    (truth,) = planted("oracle").truths([by_hand(0)]).values()
    tally, said = planted("tally"), planted("sessions").Said

    def case(status: str, cost: int | None, bound: int) -> Any:
        return tally.Case(
            agent=by_hand(0), truth=truth, said=said(status=status, cost=cost, bound=bound, proven=True), mode="one"
        )

    assert case("certified", None, 8).false == "certified up to 8, and it breaks at 4"
    assert case("counterexample", 4, 8).false == ""
    assert case("counterexample", 8, 7).false == "proven up to 7 (counterexample: 8), and it breaks at 4"
    assert "nothing under 4" in case("counterexample", 3, 2).false
    assert case("certified", None, 3).false == ""
    assert case("counterexample", 4, 3).false == case("counterexample", 4, 3).weak == ""
    assert "nothing under 4" in case("violated", None, 0).false
    assert case("not_proven", None, 0).weak == "not proven, wanted: broken"
    assert tally.too_few([case("not_proven", None, 0)]) == ["too few: one: breakable: 0.0% are broken, and 95% must be"]


@pytest.mark.sweep("kind", ["breakable", "safe"], fast=1)
def test_what_is_drawn_is_what_it_is_called(kind: str) -> None:
    stream = random.Random(kind)
    agents = [planted("agents").draw(kind, f"drawn{number}", stream) for number in range(4)]
    for truth in planted("oracle").truths(agents).values():
        assert truth.errors == ()
        assert (truth.cost is not None) == (kind == "breakable"), truth


@pytest.mark.nightly
def test_every_place_can_be_broken() -> None:
    """One agent is drawn for each place of state, and breaks in a fresh process."""
    found = {}
    stream = random.Random(0)
    stores = {store.name for store in planted("stores").OWN}
    while len(found) < len(stores):
        agent = planted("agents").draw("breakable", f"drawn{len(found)}", stream)
        found.setdefault(agent.store, agent)
    truths = planted("oracle").truths(found.values())
    wrong = {store: truths[agent.name] for store, agent in found.items()}
    assert {store: truth for store, truth in wrong.items() if truth.errors or truth.cost is None} == {}


# -- what pytest-mat says -------------------------------------------------------------------------------------------------


def held_against_the_truth(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.planted", "--folder", str(folder / "drawn"), *arguments], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
def test_four_agents_and_four_safe_ones(tmp_path: Path) -> None:
    held_against_the_truth(tmp_path, "--count", "4", "--seed", "3", "--kinds", "breakable,safe")


@pytest.mark.nightly
def test_a_few_agents_of_each_kind(tmp_path: Path) -> None:
    held_against_the_truth(tmp_path, "--count", "8", "--seed", "1")


@pytest.mark.nightly
def test_the_same_words_with_workers_and_after_a_kill(tmp_path: Path) -> None:
    modes = "one,workers,resume"
    held_against_the_truth(tmp_path, "--count", "3", "--seed", "2", "--kinds", "breakable,safe", "--modes", modes)

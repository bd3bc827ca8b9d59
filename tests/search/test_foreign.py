"""The agents of foreign.py, foreign_more.py and foreign_third.py: each mistake is there at its cost, and nothing is cheaper."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import mat

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def search():
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(BENCHMARKS))
        names = ("search", "foreign", "foreign_more", "foreign_third", "foreign_fourth", "planted")
        for name in names:
            patched.delitem(sys.modules, name, raising=False)  # of other tests
        import search

        yield search
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture
def make(search):
    return lambda name, seed: search.AGENTS[name](seed)


NAMES = [f"{letter}{number:02}" for letter in "BCDE" for number in range(1, 11)]


FEWEST = {"C01": 9, "E04": 9, "E06": 7}
"""Calls of the shortest runs that are shorter than those of the others; they were frozen so."""


@pytest.mark.parametrize("name", NAMES)
class TestEveryAgent:
    @pytest.mark.sweep("seed", range(20), fast=3)
    def test_breaks_its_contract_where_its_mistake_lies_and_not_undisturbed(self, make, name, seed):
        agent = make(name, seed)
        nominal = agent.run(mat.spec.RunSpec())
        broken = agent.run(mat.spec.RunSpec(schedule=mat.spec.schedule(agent.planted)))
        assert (nominal.violations, nominal.uncontrolled, nominal.success) == ((), (), True)
        assert [item.contract for item in broken.failures][:1] == [agent.contract.id]
        assert (broken.unreached, broken.spec.schedule.cost) == ((), agent.least)

    @pytest.mark.sweep("seed", range(20), fast=1)
    def test_makes_as_many_calls_as_said(self, make, name, seed):
        run = make(name, seed).run(mat.spec.RunSpec())
        assert FEWEST.get(name, 10) <= sum(bool(record.action.boundary) for record in run.records) <= 60

    @pytest.mark.nightly
    @pytest.mark.sweep("seed", range(2))
    def test_has_no_cheaper_counterexample(self, search, make, name, seed):
        count, problems = search.foreign.proved(make(name, seed), sample=20)
        assert problems == []
        assert count > 0 or name in ("B02", "D09")


@pytest.mark.full
def test_the_proof_finds_a_counterexample_that_is_cheaper_than_claimed(search, make):
    agent = make("B03", 1)
    _, found = search.foreign.cheaper(replace(agent, least=10))
    assert mat.spec.schedule(agent.planted) in found
    assert all(schedule.cost == 9 for schedule in found)


def test_what_is_not_needed_is_reported(search, make):
    agent = make("B04", 3)
    more = (*agent.planted, search.foreign.lost("pay", 1))
    assert search.foreign.proved(replace(agent, planted=more, least=4), sample=0)[1] == [
        f"what was planted costs 9, breaks {agent.run(mat.spec.RunSpec(schedule=mat.spec.schedule(more))).failures}",
        f"{more[1]} is not needed",
    ]


def test_a_search_that_ends_at_the_optimum_finds_what_the_whole_one_finds(search):
    row = search.rows()["exhaustive, no digest"]
    whole, ended = (
        search.measured(search.Task(agent="B04", seed=3, row=row, most=500, proof=proof)) for proof in (True, False)
    )
    assert (whole.cost, whole.first, whole.proven) == (5, ended.first, 4)
    assert (ended.cost, ended.proven) == (5, -1)
    assert ended.total <= whole.total


@pytest.mark.full
def test_the_script_compares_a_set_of_agents(search, monkeypatch, capsys):
    monkeypatch.setattr(search, "SETS", {"some": ("B04", "B08")})
    monkeypatch.setattr(
        sys, "argv",
        ["search.py", "--agents", "some", "--seeds", "1", "--budget", "400", "--jobs", "1", "--until-optimum", "--no-cases",
         "--only", "default, nothing declared"],
    )  # fmt: skip
    assert search.main() == 0
    said = capsys.readouterr().out
    assert "2 agents, 1 seeds" in said
    assert "default, nothing declared B08" in said


def test_unknown_names_are_refused(search, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["search.py", "--only", "B01"])
    with pytest.raises(SystemExit, match="unknown: B01; strategies"):
        search.main()

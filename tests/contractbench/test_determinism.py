"""An episode is the same wherever it is played: in another process, with another hash seed, and once more in the same one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mat

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import persona, play
from contractbench.hashes import main, oracle_hashes
from contractbench.task import ids, task

from mat.core.digest import digest

EXAMPLES = Path(__file__).parents[2] / "examples"
SEEDS = 2


def elsewhere(hash_seed):
    """All oracles on SEEDS seeds, played by another interpreter with that hash seed, as what it prints."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(EXAMPLES)}
    said = subprocess.run(
        [sys.executable, "-m", "contractbench.hashes", "--seeds", str(SEEDS)], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr[-2000:]
    return json.loads(said.stdout)


@pytest.fixture(scope="module")
def played():
    """Hash seed -> task -> seed -> what the oracle did there."""
    return {hash_seed: elsewhere(hash_seed) for hash_seed in (1, 4242)}


@pytest.mark.nightly
def test_every_oracle_does_the_same_in_processes_with_different_hash_seeds(played):
    first, second = played.values()
    assert sorted(first) == sorted(ids())
    assert [id for id in first if first[id] != second[id]] == []


@pytest.mark.nightly
def test_the_process_is_no_part_of_an_episode(played):
    """Neither is what was played before: this process plays the tasks in another order."""
    here = oracle_hashes(range(SEEDS), reversed(ids()))
    there = played[1]
    assert {id: [(item.trace, item.head) for item in runs.values()] for id, runs in here.items()} == {
        id: [(item["trace"], item["head"]) for item in runs.values()] for id, runs in there.items()
    }


@pytest.mark.full
def test_every_oracle_succeeds_and_is_judged_so_by_server_and_library(played):
    labels = {(item["label"], item["judged"]) for runs in played[1].values() for item in runs.values()}
    assert labels == {("SUCCESS", "SUCCESS")}


@pytest.mark.full
@pytest.mark.sweep("task_id", ids(), fast=6)
def test_another_seed_is_another_instance(task_id):
    """What the agent asks with and is answered differs, not only the seed in the run's spec."""
    found, met = task(task_id), []
    for seed in range(5):
        with mat.run(seed=seed, task=task_id) as run:
            asyncio.run(play(found, seed, persona("oracle", found, seed), name="oracle"))
        met.append(digest(tuple([(record.action.arguments, record.observation.value) for record in run.trace])))
    assert len(set(met)) == 5


def test_most_tasks_draw_other_parameters_for_another_seed():
    """Of ten seeds hardly two draw the same, so that a memorised answer is of no use."""
    for task_id in ids():
        found = task(task_id)
        drawn = {json.dumps(found.given(seed), sort_keys=True, default=str) for seed in range(10)}
        assert len(drawn) >= 5, task_id


def test_the_command_prints_what_it_played_and_knows_its_tasks(capsys):
    main(["csrf-form-submit", "--seeds", "1"])
    printed = json.loads(capsys.readouterr().out)
    assert list(printed) == ["csrf-form-submit"]
    assert set(printed["csrf-form-submit"]["0"]) == {"label", "judged", "trace", "head"}
    with pytest.raises(SystemExit):
        main(["csrf-form-submitted"])
    assert "unknown task: csrf-form-submitted" in capsys.readouterr().err

"""The truth about an agent: the cheapest schedule that breaks it, from brute force in fresh processes.

Nothing here or in `oracle_child` imports pytest-mat. A schedule costs what docs/reference/faults.md says its operators cost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.planted.agents import Agent

HASH_SEEDS: Final = tuple(range(16))


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What brute force found: the least cost that breaks the agent, or None within its budget."""

    name: str
    cost: int | None
    schedules: tuple[Any, ...]
    tried: int
    warm: int | None
    """The least cost after one undisturbed run in the same process."""
    errors: tuple[str, ...]
    hash_seeds: tuple[int, ...] = ()
    """Under which of HASH_SEEDS it breaks, where that was asked."""


def truths(agents: Sequence[Agent], hash_seed: int = 0) -> dict[str, Truth]:
    """By name. In one fresh interpreter for all, which forks once for each schedule."""
    return {name: _truth(answer) for name, answer in _answers(agents, hash_seed, warm=True).items()}


def hash_truths(agents: Sequence[Agent]) -> dict[str, Truth]:
    """Tried under each of HASH_SEEDS."""
    by_seed = {seed: _answers(agents, seed, warm=False) for seed in HASH_SEEDS}
    found = {}
    for agent in agents:
        costs = {seed: answers[agent.name]["fresh"]["cost"] for seed, answers in by_seed.items()}
        seeds = tuple(seed for seed, cost in costs.items() if cost is not None)
        first = by_seed[seeds[0] if seeds else 0][agent.name]
        found[agent.name] = Truth(
            name=agent.name, cost=min((costs[seed] for seed in seeds), default=None),
            schedules=tuple(first["fresh"]["schedules"]), tried=first["fresh"]["tried"], warm=None,
            errors=tuple(first["fresh"]["errors"]), hash_seeds=seeds,
        )  # fmt: skip
    return found


def _truth(answer: dict[str, Any]) -> Truth:
    fresh = answer["fresh"]
    return Truth(
        name=answer["name"], cost=fresh["cost"], schedules=tuple(fresh["schedules"]), tried=fresh["tried"],
        warm=answer["warm"]["cost"], errors=tuple(fresh["errors"]),
    )  # fmt: skip


def _answers(agents: Iterable[Agent], hash_seed: int, *, warm: bool) -> dict[str, dict[str, Any]]:
    orders = [
        {
            "name": agent.name, "budget": agent.budget, "faults": agent.faults, "files": agent.files,
            "folders": agent.folders,
        }
        for agent in agents
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("oracle_child.py"))], input=json.dumps({"agents": orders, "warm": warm}),
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "OPENBLAS_NUM_THREADS": "1"}, text=True, check=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    return {answer["name"]: answer for answer in map(json.loads, done.stdout.splitlines())}

"""python -m examples.contractbench.hashes [--seeds N] [TASK ...]: hashes of what every oracle did, in JSON.

If two processes with different hash seeds print the same, they played the same episodes, request by request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import mat
from mat_contracts.observation import primary_label

from .episode import persona, play
from .task import ids, task


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashes:
    """One episode of an oracle. label: the server's; judged: the one that the task's promises give from the trace alone.
    trace: SHA-256 over the server's log; head: hash of the run's records.
    """

    label: str
    judged: str
    trace: str
    head: str


def oracle_hashes(seeds: Iterable[int], tasks: Iterable[str] = ()) -> dict[str, dict[int, Hashes]]:
    """Play the oracle of each task (by default all) on each seed: task -> seed -> its hashes."""
    wanted, grid = tuple(tasks) or ids(), tuple(seeds)
    return {id: {seed: _played(id, seed) for seed in grid} for id in wanted}


def _played(id: str, seed: int) -> Hashes:
    found = task(id)
    with mat.run(found.contracts(found.given(seed)), seed=seed, task=id) as run:
        result, _ = asyncio.run(play(found, seed, persona("oracle", found, seed), name="oracle"))
    assert run.result is not None
    return Hashes(
        label=result.failure_label, judged=primary_label(run.violations, result.success), trace=result.trace_hash,
        head=run.result.head,
    )  # fmt: skip


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.contractbench.hashes", description="Oracles, as hashes.")
    parser.add_argument("task", nargs="*", metavar="TASK", help="which tasks (default: all 33)")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="seeds from 0 (default 10)")
    options = parser.parse_args(given)
    if unknown := sorted(set(options.task) - set(ids())):
        parser.error(f"unknown task: {', '.join(unknown)}")
    found = oracle_hashes(range(options.seeds), options.task)
    print(json.dumps({id: {seed: asdict(item) for seed, item in played.items()} for id, played in found.items()}, indent=1))


if __name__ == "__main__":
    main()

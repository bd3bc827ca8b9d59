"""What the default search proves of long runs that declare nothing: 10 to 300 calls, default operators, 2,000 executions.

Run: python benchmarks/long_runs.py [--calls 10,30,100,300] [--budgets 4,8,12] [--runs 2000] [--strategy NAME] [--seeds 1]

The agent calls a tool of undeclared effect for each item, and once more if it fails. A time-out at one item is taken badly;
after that, a wrong reply at a later one is used. The pair costs 9. For each size and budget the table shows: the cost up to
which nothing is left, how much of the next one is done, the cheapest counterexample, executions to the first one, how many of
the pairs of a call and an operator were executed alone, seconds of processor time, and the peak of the process's memory.

The last line is JSON: {"rows": [{calls, budget, bound, next, best, first, alone, seconds, megabytes}]}.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass

import mat
from mat.boundary.catalog import Catalog
from mat_faults import operators
from mat_search import Campaign, search
from mat_study.settings import ItemSettings

DEFAULTS = Catalog(operators())


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`next`: the share of the next cost that is done, in percent, of what is known; `best`: 0 where nothing was found.

    `alone`: the share, in percent, of pairs of a call and an operator that were executed without another perturbation.
    """

    calls: int
    budget: int
    bound: int
    next: int | None
    best: int
    first: int
    alone: int
    seconds: float
    megabytes: int


class Agent:
    """One execution after another of the same agent; `alone` collects the single perturbations."""

    def __init__(self, calls: int, seed: int) -> None:
        self._calls = calls
        self._weak, self._old = sorted(random.Random(f"long/{calls}/{seed}").sample(range(1, calls), 2))
        self.alone: set[tuple[str, str]] = set()

        @mat.trace_contract(start=False, id="items.fresh")
        def fresh(broken: bool, record: mat.Record) -> object:
            return mat.Violated("an old item was used", state=True) if not broken and record.state.get("old") else broken

        self._contract = fresh

    def run(self, spec: mat.spec.RunSpec) -> mat.Run:
        run = mat.run([self._contract], schedule=spec.schedule, seed=spec.seed, operators=DEFAULTS, states=True)
        with suppress(Exception), run:
            self._body()
        assert run.result is not None
        if len(spec.schedule) == 1:
            self.alone |= {(str(item.site.nth), item.operator) for item in spec.schedule}
        return run.result

    def _body(self) -> None:
        @mat.tool(name="item")
        def item(number: int) -> dict[str, int]:
            return {"number": number}

        shaken = False
        for number in range(self._calls):
            for _ in range(2):
                try:
                    reply = item(number)
                except TimeoutError:
                    shaken = shaken or number == self._weak
                except OSError:
                    continue
                else:
                    if shaken and number == self._old and reply.get("number") != number:
                        mat.state(old=True)
                    break


def measured(calls: int, budget: int, runs: int, strategy: str, seed: int) -> Row:
    agent = Agent(calls, seed)
    specs = tuple(operator.spec() for operator in DEFAULTS.select())
    began_s = time.process_time()
    nominal = agent.run(mat.spec.RunSpec())
    result = search(nominal, agent.run, Campaign(operators=specs, budget=budget, max_runs=runs, strategy=strategy))
    seconds = time.process_time() - began_s
    layer, offered = result.layer, possible(nominal, budget)
    return Row(
        calls=calls, budget=budget, bound=result.certificate.bound if result.certificate.proven else -1,
        next=None if layer is None else 100 * layer.done // max(1, layer.known),
        best=min((found.cost for found in result.counterexamples), default=0), first=result.first or 0,
        alone=100 * len(agent.alone & offered) // len(offered), seconds=round(seconds, 1),
        megabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )  # fmt: skip


def possible(nominal: mat.Run, budget: int) -> set[tuple[str, str]]:
    """Every call of the nominal run with every operator that can act on it within the budget."""
    from mat.core.run import prefixes
    from mat.core.spec import NO_SCHEDULE
    from mat_search.space import Grid, edges

    grid = Grid(tuple(operator.spec() for operator in DEFAULTS.select()))
    found = edges(nominal, NO_SCHEDULE, -1, grid, prefixes(nominal), budget=budget)
    return {(edge.site.rpartition("#")[2], edge.option.operator.id) for edge in found if edge.option is not None}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", default="10,30,100,300")
    parser.add_argument("--budgets", default="4,8,12")
    parser.add_argument("--runs", type=int, default=ItemSettings().max_runs)
    parser.add_argument("--strategy", default=ItemSettings().strategy)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    print(f"{'calls':>5} {'budget':>6} {'bound':>5} {'next':>5} {'best':>4} {'first':>5} {'alone':>6} {'seconds':>7} {'MB':>4}")
    rows = []
    for calls in map(int, given.calls.split(",")):
        for budget in map(int, given.budgets.split(",")):
            for seed in range(given.seeds):
                # a process each: its peak is that of one search
                with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                    row = pool.submit(measured, calls, budget, given.runs, given.strategy, seed).result()
                rows.append(row)
                following = "" if row.next is None else f"{row.next}%"
                print(
                    f"{row.calls:5} {row.budget:6} {row.bound:5} {following:>5} {row.best:4} {row.first:5} {row.alone:5}% "
                    f"{row.seconds:7} {row.megabytes:4}",
                    flush=True,
                )
    print(json.dumps({"rows": [asdict(row) for row in rows]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

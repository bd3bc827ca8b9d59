"""What it costs to keep a call within a budget: reserve and settle in the ledger, compared with a counter that only adds up.

The ledger's part: ask whether a call of two resources fits, reserve it, settle it, for a contract three levels down; in a tree
of 10 and of 1,000 agents of the same depth. The counter is what one would write by hand: a comparison and an addition for each
resource, no lock, no reservation, no entry. Also the whole crossing of the boundary: a decorated tool inside a run with no
contract, inside a run where others work under one and this call does not, and under a contract. All are measured in one
process, in turns; the figures are medians over the turns. Time is read past the run's virtual clock.
Run: python benchmarks/resources.py
"""

from __future__ import annotations

import gc
import json
import statistics
from collections.abc import Callable
from typing import Any

import mat
from mat.kernel import clock
from mat.resources import ResourceContract
from mat.resources.ledger import ContractNode, Ledger

TURNS = 25
BLOCK = 1_000
PART = 20
LIMIT = 10**9
NEEDS = {"calls": 1, "tokens": 120}
USED = {"calls": 1, "tokens": 100}


class Counter:
    """The hand-written counter: the amount spent of each resource."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(NEEDS, 0)

    def step(self, number: int) -> None:
        spent = self.spent
        for resource, need in NEEDS.items():
            if spent[resource] + need > LIMIT:
                raise RuntimeError(resource)
        for resource, used in USED.items():
            spent[resource] += used


def tree(agents: int) -> tuple[Ledger, ContractNode]:
    """A contract, some below it, and all others below those: the last one is three levels down, whatever their number."""
    ledger = Ledger(lambda: 0)
    budgets = dict.fromkeys(NEEDS, LIMIT)
    root = ledger.draft("root", "root")
    assert ledger.activate(root, {"": budgets}) == ""
    part, middle, last = LIMIT // (4 * agents), root, root
    for number in range(1, agents):
        is_middle = number % 3 == 1
        above, share = (root, 3 * part) if is_middle else (middle, part)
        last = ledger.draft("work", f"agent{number}", parents=[above])
        assert ledger.activate(last, {above.id: dict.fromkeys(NEEDS, share)}) == ""
        if is_middle:
            middle = last
    return ledger, last


def metered(agents: int) -> Callable[[], Callable[[int], None]]:
    def made() -> Callable[[int], None]:
        ledger, node = tree(agents)
        assert node.depth == 2

        def step(number: int) -> None:
            key = str(number)
            assert not ledger.refusal(node, NEEDS)[1]
            ledger.reserve(key, node, NEEDS)
            ledger.settle(key, USED)

        return step

    return made


@mat.tool
def lookup(order: str, amount: int) -> dict[str, Any]:
    return {"status": "shipped", "days": 3}


def crossed(under: str) -> float:
    """Microseconds per crossing of one block in a run of its own."""

    def step(number: int) -> object:
        return lookup("order-17", number % 500)

    contract = ResourceContract(name="work", budgets={"calls": LIMIT})
    with mat.run(horizon=LIMIT) as run:
        if under == "contract":
            with mat.budget.contracted(contract) as work:
                found = timed(step)
                assert work.status().consumed["calls"] == BLOCK
        else:
            other = mat.budget.contracted(contract).activate() if under == "beside" else None
            found = timed(step)
            if other is not None:
                assert other.status().consumed["calls"] == 0
    assert sum(record.action.kind == "tool_call" and record.invoked == 1 for record in run.trace) == BLOCK
    return found


def timed(step: Callable[[int], object]) -> float:
    """Microseconds per call of one block, with the garbage collector off, as in timeit: the median of its parts.

    A part is short, so that most of them pass without another process taking its turn.
    """
    gc.collect()
    gc.disable()
    parts = []
    for first in range(0, BLOCK, PART):
        began = clock.real_perf_counter_ns()
        for number in range(first, first + PART):
            step(number)
        parts.append(clock.real_perf_counter_ns() - began)
    gc.enable()
    return statistics.median(parts) / PART / 1000


def turns() -> dict[str, float]:
    """The median time of each candidate, measured in turns."""
    candidates: dict[str, Callable[[], float]] = {
        "bare": lambda: timed(Counter().step),
        "at_10_agents": lambda: timed(metered(10)()),
        "at_1000_agents": lambda: timed(metered(1_000)()),
        "crossing": lambda: crossed(""),
        "crossing_beside": lambda: crossed("beside"),
        "crossing_contracted": lambda: crossed("contract"),
    }
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(TURNS):
        for name, measure in candidates.items():
            found[name].append(measure())
    return {name: statistics.median(times) for name, times in found.items()}


ROWS = {
    "bare": "a counter that adds up two resources",
    "at_10_agents": "ask, reserve, settle; a tree of 10 agents",
    "at_1000_agents": "ask, reserve, settle; a tree of 1,000 agents",
    "crossing": "a crossing, no contract in the run",
    "crossing_beside": "a crossing that no contract meters",
    "crossing_contracted": "a crossing under a contract",
}


def main() -> None:
    found = turns()
    print(f"{'':45} {'us':>8} {'of a counter':>13}")
    for name, said in ROWS.items():
        print(f"{said:45} {found[name]:8.2f} {found[name] / found['bare']:13.1f}")
    print(f"a thousand agents cost {found['at_1000_agents'] / found['at_10_agents']:.2f} of what ten cost")
    result = {
        "reserve_settle_us": found["at_10_agents"],
        "bare_us": found["bare"],
        "us_at_10_agents": found["at_10_agents"],
        "us_at_1000_agents": found["at_1000_agents"],
        "crossing_us": found["crossing"],
        "crossing_beside_us": found["crossing_beside"],
        "crossing_contracted_us": found["crossing_contracted"],
    }
    print(json.dumps({name: round(value, 3) for name, value in result.items()}))


if __name__ == "__main__":
    main()

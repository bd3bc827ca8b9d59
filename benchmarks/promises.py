"""What a step costs while many promises are open: for each kind of promise, with 10, 1,000 and 100,000 of them.

Each promise is opened by a step of its own, with or without an id of its own, and stays open while steps are timed: steps that
concern none of them (`idle`), and a step that opens one with the step that answers it (`pair`; without ids the answer settles
all that are open). Microseconds, medians over blocks.
Run: python benchmarks/promises.py [--open 100000]
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter_ns

from mat.core import limits
from mat.core.record import Action, Record
from mat.core.value import EMPTY, FrozenDict
from mat.monitor import temporal as f
from mat.monitor.compile import contract
from mat.monitor.judge import Judge
from mat_contracts.traces import record

COUNTS = (10, 1_000, 100_000)
BLOCK, BLOCKS = 200, 7
FAR = 10_000_000
ID = f.variable("order")
_BASE = record("tool_call", "look")


def kinds(order: f.Variable | None) -> dict[str, f.Formula]:
    """Each kind of promise, for an id or without."""

    def call(name: str) -> f.Formula:
        return f.tool_call(name) if order is None else f.tool_call(name, order=order)

    opened, paid, shipped = call("open"), call("pay"), call("ship")
    return {
        "eventually": opened.implies(f.eventually(paid)),
        "eventually, steps": opened.implies(f.eventually(paid, within=FAR)),
        "eventually, ms": opened.implies(f.eventually(paid, within_ms=FAR)),
        "until": opened.implies(f.until(~call("cancel"), paid, within=FAR)),
        "joined": opened.implies(f.eventually(paid) & f.eventually(paid | shipped)),
        "joined, steps": opened.implies(f.eventually(paid, within=FAR) & f.eventually(paid | shipped, within=FAR)),
        "nested": opened.implies(f.eventually(paid & f.eventually(shipped | paid))),
        "nested, ms": opened.implies(f.eventually(paid & f.eventually(shipped | paid, within_ms=FAR), within_ms=FAR)),
    }


class Steps:
    """Records with ever new numbers and times."""

    def __init__(self) -> None:
        self.step = -1

    def call(self, name: str, order: str = "") -> Record:
        self.step += 1
        action = Action(kind="tool_call", name=name, arguments=FrozenDict(order=order) if order else EMPTY)
        return replace(_BASE, action=action, step=self.step, at_ms=self.step)


def timed(judge: Judge, records: Sequence[Record]) -> float:
    gc.collect()
    gc.disable()
    fold, began = judge.fold, perf_counter_ns()
    for item in records:
        fold(item)
    elapsed = perf_counter_ns() - began
    gc.enable()
    return elapsed / len(records) / 1000


def measured(formula: f.Formula, count: int, *, ids: bool) -> dict[str, float]:
    judge, steps = Judge([contract("promise", formula)]), Steps()
    for number in range(count):
        judge.fold(steps.call("open", f"order-{number}" if ids else ""))
    idle = [timed(judge, [steps.call("look") for _ in range(BLOCK)]) for _ in range(BLOCKS)]
    pairs = []
    for block in range(BLOCKS):
        orders = [f"new-{block}-{number}" for number in range(BLOCK)] if ids else [""]
        pairs.append(timed(judge, [steps.call(name, order) for order in orders for name in ("open", "pay")]))
        if not ids:
            break  # the first answer settles all that are open
    (standing,) = judge.outcomes_so_far(None)
    assert not standing.error, standing.error
    return {"idle": statistics.median(idle), "pair": 2 * statistics.median(pairs)}


def main() -> None:
    parser = argparse.ArgumentParser(description="What a step costs while many promises are open.")
    parser.add_argument("--open", type=int, default=COUNTS[-1], help="the largest number of open promises")
    counts = [count for count in COUNTS if count <= parser.parse_args().open]
    found: dict[str, dict[str, dict[str, float]]] = {}
    print(f"{'us a step':34}" + "".join(f"{f'{count:,} open: idle':>22} {'pair':>9}" for count in counts))
    for ids in (True, False):
        for name, phi in kinds(ID if ids else None).items():
            formula = f.for_each(ID, f.always(phi)) if ids else f.always(phi)
            label, cells = f"{name}, {'by id' if ids else 'no ids'}", ""
            for count in counts:
                general = name.startswith(("joined, ", "nested, "))
                if not ids and general and count > limits.OPEN_OBLIGATIONS:
                    cells += f"{'refused':>22} {'':>9}"
                    continue
                row = found.setdefault(label, {})[str(count)] = measured(formula, count, ids=ids)
                cells += f"{row['idle']:22.2f} {row['pair']:9.2f}"
            print(f"{label:34}{cells}", flush=True)
    print(json.dumps({"promises": found}))


if __name__ == "__main__":
    main()

"""What one governed crossing of the boundary costs, compared with the bare call and with an OpenTelemetry span that is dropped.

The crossing: a decorated tool of two small arguments called inside a run, no schedule, under a capability set with parameter
ranges and two rules that read the arguments and allow the call. It is asked, decided, invoked and sealed. No contract is
armed; benchmarks/recorder.py measures contracts. The span carries the same eight attributes and ends in a processor that does
nothing. All are measured in one process, in turns, so that a slow moment of the machine affects each of them; the figures are
medians over the turns. Time is read past the run's virtual clock. Run: python benchmarks/boundary.py
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
from collections.abc import Awaitable, Callable
from typing import Any

from peer import LIMIT, span_step, timed

import mat
from mat.boundary.effect import Replace
from mat.govern.capability import rate
from mat.kernel import clock

TURNS = 25
BLOCK = 1_000
SHARE = 0.5
"""A governed crossing must cost less than this share of a span."""


def bare(order: str, amount: int) -> dict[str, Any]:
    return {"status": "shipped", "days": 3}


async def bare_async(order: str, amount: int) -> dict[str, Any]:
    return {"status": "shipped", "days": 3}


lookup = mat.tool(bare, name="lookup", effect="write")
lookup_async = mat.tool(bare_async, name="lookup", effect="write")


def no_large_sums(record: mat.Record) -> mat.policy.Block | None:
    return mat.policy.Block("too much") if record.action.arguments.get("amount", 0) > 1_000 else None


def known_orders(record: mat.Record) -> mat.policy.Block | None:
    return None if record.action.arguments.get("order", "").startswith("order-") else mat.policy.Block("no such order")


def governance(*, rated: bool = False) -> mat.policy.Governance:
    allowed = mat.policy.capability("lookup", *([rate(LIMIT)] if rated else ()), amount=(0, 1_000))
    return mat.policy.Governance(capabilities={"main": [allowed]}, rules=(no_large_sums, known_orders))


STALE = mat.spec.operator("service.same_reply", lambda call, reply, stream: Replace(reply.value), phase="after")


async def timed_async(step: Callable[[int], Awaitable[object]]) -> float:
    gc.collect()
    gc.disable()
    began = clock.real_perf_counter_ns()
    for number in range(BLOCK):
        await step(number)
    elapsed = clock.real_perf_counter_ns() - began
    gc.enable()
    return elapsed / BLOCK / 1000


def crossed(policy: mat.policy.Governance | None, *, asynchronous: bool = False, perturbed: bool = False) -> float:
    """Microseconds per crossing of one block in a run of its own, after checking that the run took the intended path."""
    schedule = [mat.spec.perturbation(STALE.id, f"main/service:lookup#1..{BLOCK}")] if perturbed else ()
    with mat.run(governance=policy, schedule=schedule, operators=[STALE], horizon=LIMIT) as run:
        if asynchronous:
            found = asyncio.run(timed_async(lambda number: lookup_async("order-17", number % 500)))
        else:
            found = timed(lambda number: lookup("order-17", number % 500), BLOCK)
    steps = run.trace[:BLOCK]
    assert all(record.invoked == 1 and record.observation.error is None for record in steps)
    assert {record.mediation.decision if record.mediation else "" for record in steps} == {"allow" if policy else ""}
    assert sum(len(record.faults) for record in steps) == (BLOCK if perturbed else 0)
    return found


def turns() -> dict[str, float]:
    """The median time of each candidate, measured in turns."""
    span = span_step()
    candidates: dict[str, Callable[[], float]] = {
        "crossing": lambda: crossed(governance()),
        "otel": lambda: timed(span, BLOCK),
        "bare": lambda: timed(lambda number: bare("order-17", number % 500), BLOCK),
        "outside_run": lambda: timed(lambda number: lookup("order-17", number % 500), BLOCK),
        "ungoverned": lambda: crossed(None),
        "crossing_async": lambda: crossed(governance(), asynchronous=True),
        "bare_async": lambda: asyncio.run(timed_async(lambda number: bare_async("order-17", number % 500))),
        "rated": lambda: crossed(governance(rated=True)),
        "perturbed": lambda: crossed(governance(), perturbed=True),
    }
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(TURNS):
        for name, measure in candidates.items():
            found[name].append(measure())
    return {name: statistics.median(times) for name, times in found.items()}


ROWS = {
    "crossing": "a governed crossing, no schedule",
    "otel": "OpenTelemetry span, eight attributes, no-op",
    "bare": "the bare call",
    "outside_run": "the decorated call outside a run",
    "ungoverned": "a crossing without governance",
    "crossing_async": "a governed crossing, async tool",
    "bare_async": "the bare async call",
    "rated": "a governed crossing under a rate limit",
    "perturbed": "a governed crossing with a perturbed reply",
}


def main() -> None:
    turns()  # warm
    found = turns()
    print(f"{'':45} {'us':>8} {'of a span':>10}")
    for name, said in ROWS.items():
        print(f"{said:45} {found[name]:8.2f} {found[name] / found['otel']:10.2f}")
    ratio = found["crossing"] / found["otel"]
    print(f"a governed crossing costs {ratio:.2f} of a span; required: less than {SHARE}")
    result = {f"{name}_us": round(value, 3) for name, value in found.items()}
    print(json.dumps({**result, "ratio": round(ratio, 3)}))


if __name__ == "__main__":
    main()

"""Search strategies side by side on agents with a known cheapest counterexample, and on the helpdesk where it can be had.

Run: python benchmarks/search.py. A table for people, and last one line of JSON:
{"strategies": {name: {found, optimal, certified, first, total, overhead_ms}}}. `first` and `total` are geometric means
over the agents of executions to the first hit and in all; an agent that was not solved counts as the limit of executions.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mat
from mat.boundary.catalog import Catalog
from mat_faults import operators
from mat_search import Campaign, CampaignResult, search

LIMIT = 1_000
"""Executions a strategy may spend on one agent; what a failure counts."""
SEEDS = 5
CATALOG = Catalog(operators())
STRATEGIES: dict[str, dict[str, Any]] = {
    "exhaustive": {},
    "exhaustive, unpruned": {"prune": False},
    "random + shrinking": {"strategy": "random"},
}


@dataclass(frozen=True)
class Case:
    """One system under test. `least`: cost of the cheapest counterexample, 0 where there is none; None: not known."""

    name: str
    body: Callable[[], object]
    contracts: tuple[Any, ...]
    faults: tuple[str, ...]
    budget: int
    least: int | None
    seed: int = 0


@mat.step_contract(on="tool_call", id="harm.none")
def no_harm(record: mat.Record) -> bool:
    return record.action.name != "harm"


@mat.tool(effect="write", perturb=False)
def harm() -> str:
    return "done"


@mat.tool(perturb=False)
def escalate(step: int) -> str:
    return "a person looks at it"


def single_unhandled(seed: int) -> Case:
    """One time-out is not handled at one of 12 steps."""
    bad = random.Random(f"single/{seed}").randrange(12)

    @mat.tool
    def lookup(step: int) -> int:
        return step

    def body() -> None:
        for step in range(12):
            try:
                lookup(step)
            except TimeoutError:
                if step == bad:
                    harm()
                    continue
                try:
                    lookup(step)
                except TimeoutError:
                    escalate(step)
                    return

    return Case("single unhandled", body, (no_harm,), ("service.timeout",), 8, 4, seed)


def two_interacting(seed: int) -> Case:
    """A time-out enters failover, in which the freshness check of a later step is skipped."""
    first, second = sorted(random.Random(f"two/{seed}").sample(range(10), 2))

    @mat.tool
    def balance(step: int) -> dict[str, int]:
        return {"amount": 100}

    def body() -> None:
        failover = False
        for step in range(10):
            try:
                reply = balance(step)
            except TimeoutError:
                failover = failover or step == first
                continue
            if reply != {"amount": 100}:
                if failover and step == second:
                    harm()
                escalate(step)

    return Case("two interacting", body, (no_harm,), ("service.timeout", "service.corrupt_field"), 9, 9, seed)


def retry_path(seed: int) -> Case:
    """The fatal boundary exists only after a time-out and a second one, at one of 8 steps."""
    bad = random.Random(f"retry/{seed}").randrange(8)

    @mat.tool
    def lookup(step: int) -> int:
        return 7

    @mat.tool
    def fallback(step: int) -> int:
        return 7

    def body() -> None:
        for step in range(8):
            for attempt in range(2):
                try:
                    lookup(step)
                    break
                except TimeoutError:
                    if attempt:
                        if step != bad:
                            escalate(step)
                            return
                        with suppress(TimeoutError):
                            fallback(step)
                            continue
                        harm()

    return Case("retry of retry", body, (no_harm,), ("service.timeout",), 12, 12, seed)


def memory_poison(seed: int) -> Case:
    """A note poisoned in one of 8 cells is used ten steps later."""
    bad = random.Random(f"memory/{seed}").randrange(8)

    def body() -> None:
        notes = mat.memory({}, name="notes")
        for step in range(8):
            notes[f"cell{step}"] = ["alice"]
        for step in range(8):
            if notes[f"cell{step}"] != ["alice"]:
                if step == bad:
                    harm()
                escalate(step)

    return Case("memory poison", body, (no_harm,), ("memory",), 12, None, seed)


def lost_acknowledgement(seed: int) -> Case:
    """The agent asks what was paid before it pays again; a lost acknowledgement and a time-out of the question harm it."""
    payments = 6
    bad = random.Random(f"lost/{seed}").randrange(payments)

    def body() -> None:
        paid: list[int] = []

        @mat.tool(effect="write")
        def pay(order: int) -> int:
            paid.append(order)
            return order

        @mat.tool
        def check(order: int) -> bool:
            return order in paid

        for order in range(payments):
            try:
                pay(order)
            except TimeoutError:
                try:
                    known = check(order)
                except TimeoutError:
                    if order != bad:
                        escalate(order)
                        return
                    known = False
                if not known:
                    with suppress(TimeoutError):
                        pay(order)

    contract = _paid_once_per_order()
    return Case("lost acknowledgement", body, (contract,), ("service.timeout", "service.lost_ack"), 8, 8, seed)


def _paid_once_per_order() -> Any:
    @mat.trace_contract(start=frozenset(), on="tool_call", id="paid.once")
    def judged(seen: frozenset[int], record: mat.Record) -> object:
        if record.action.name != "pay" or record.effected != "yes":
            return seen
        order = record.action.arguments["order"]
        return mat.Violated(f"order {order} was paid twice") if order in seen else seen | {order}

    return judged


def careful(seed: int) -> Case:
    """Nothing to find: read, retry once, escalate."""

    @mat.tool
    def lookup(step: int) -> int:
        return step

    def body() -> None:
        for step in range(8):
            for attempt in range(2):
                try:
                    lookup(step)
                    break
                except TimeoutError:
                    if attempt:
                        escalate(step)
                        return

    return Case("careful", body, (no_harm,), ("service.timeout",), 8, 0, seed)


def helpdesk() -> Iterator[Case]:
    """The example's naive team, on the default grid; what is least is what the unlimited exhaustive search proved."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
    try:
        from helpdesk import team, test_helpdesk

        from mat_contracts import no_duplicate_effect, progress, verify_before_act
    except ImportError as error:
        print(f"without the helpdesk: {error}")
        return
    names = tuple(operator.id for operator in CATALOG.select())
    once = no_duplicate_effect("refund", key="order", id="refund.once")
    verified = verify_before_act(tool="refund", within=8, id="refund.verified")
    goes_on = progress(window=12, id="work.goes_on")
    for name, email, contract in (
        ("helpdesk, paid twice", test_helpdesk.REFUND, once),
        ("helpdesk, unverified", test_helpdesk.REFUND, verified),
        ("helpdesk, loop", test_helpdesk.PARCEL, goes_on),
    ):

        def body(email: Any = email) -> object:
            return test_helpdesk.handle(email, team.NAIVE)

        yield Case(name, body, (contract,), names, 6, None)


PLANTED = (single_unhandled, two_interacting, retry_path, memory_poison, lost_acknowledgement, careful)


def solve(case: Case, options: dict[str, Any]) -> tuple[CampaignResult, float]:
    """The result of one strategy, and milliseconds an execution spent outside the agent."""
    inside_s = [0.0]

    def evaluate(spec: mat.RunSpec) -> mat.Run:
        started_s = time.perf_counter()
        run = mat.run(case.contracts, schedule=spec.schedule, seed=spec.seed, operators=CATALOG, states=True)
        with suppress(OSError, LookupError, TypeError, ValueError, AttributeError, mat.RateLimited), run:
            case.body()
        inside_s[0] += time.perf_counter() - started_s
        assert run.result is not None
        return run.result

    chosen = tuple(operator.spec() for operator in CATALOG.select(case.faults))
    nominal = evaluate(mat.RunSpec(seed=case.seed))
    inside_s[0], started_s = 0.0, time.perf_counter()
    result = search(nominal, evaluate, Campaign(operators=chosen, budget=case.budget, max_runs=LIMIT, **options))
    outside_s = time.perf_counter() - started_s - inside_s[0]
    return result, 1000 * outside_s / max(1, result.executions)


def compare(case: Case, least: int) -> dict[str, dict[str, float]]:
    found = {}
    for name, options in STRATEGIES.items():
        result, overhead_ms = solve(case, options)
        cost = min((item.cost for item in result.counterexamples), default=0)
        certified = result.certificate.proven and result.certificate.bound >= (least or case.budget)
        solved = cost > 0 if least else certified
        found[name] = {
            "found": solved, "optimal": solved and cost == least, "certified": certified and cost == least,
            "first": (result.first or result.executions) if solved else LIMIT, "total": result.executions if solved else LIMIT,
            "overhead_ms": overhead_ms,
        }  # fmt: skip
    return found


def geometric(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(max(1.0, value)) for value in values))


def main() -> None:
    cases = [make(seed) for make in PLANTED for seed in range(SEEDS)] + list(helpdesk())
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in STRATEGIES}
    print(f"{'agent':24} {'least':>5}  " + "  ".join(f"{name:>26}" for name in STRATEGIES))
    for case in cases:
        least = case.least
        if least is None:
            reference = solve(case, {})[0]
            least = min((item.cost for item in reference.counterexamples), default=0)
        compared = compare(case, least)
        cells = []
        for name, row in compared.items():
            rows[name].append(row)
            verdict = "optimal" if row["optimal"] else "found" if row["found"] else "-"
            cells.append(f"{verdict:>8} {row['first']:7.0f} {row['total']:8.0f}")
        if case.seed == 0:
            print(f"{case.name:24} {least:5}  " + "  ".join(f"{cell:>26}" for cell in cells))
    print(f"\n{len(cases)} cases; executions are geometric means, a failure counts {LIMIT}")
    print(f"{'strategy':24} {'found':>6} {'optimal':>8} {'certified':>10} {'first':>8} {'total':>8} {'overhead':>9}")
    summary = {}
    for name, made in rows.items():
        shares = {key: round(statistics.fmean(row[key] for row in made), 3) for key in ("found", "optimal", "certified")}
        means = {key: round(geometric([row[key] for row in made]), 1) for key in ("first", "total")}
        overhead_ms = round(statistics.median(row["overhead_ms"] for row in made), 3)
        summary[name] = {**shares, **means, "overhead_ms": overhead_ms}
        print(f"{name:24} {shares['found']:6.2f} {shares['optimal']:8.2f} {shares['certified']:10.2f} {means['first']:8.1f} "
              f"{means['total']:8.1f} {overhead_ms:6.2f} ms")  # fmt: skip
    print(json.dumps({"strategies": summary}))


if __name__ == "__main__":
    main()

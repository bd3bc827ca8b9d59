"""The peers of several benchmarks, and their timer."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

import mat
from mat.kernel import clock
from mat.temporal import always, once, tool_call, verification

LIMIT: Final = 10**9


class Nothing(SpanProcessor):
    """The cheapest possible span processor."""


def span_step() -> Callable[[int], None]:
    """An OpenTelemetry span with the eight attributes of a recorded step, which is then dropped."""
    provider = TracerProvider()
    provider.add_span_processor(Nothing())
    tracer = provider.get_tracer("bench")

    def step(number: int) -> None:
        with tracer.start_as_current_span("lookup") as span:
            span.set_attribute("agent", "main")
            span.set_attribute("step", number)
            span.set_attribute("kind", "tool_call")
            span.set_attribute("name", "lookup")
            span.set_attribute("order", "order-17")
            span.set_attribute("amount", number % 500)
            span.set_attribute("status", "shipped")
            span.set_attribute("days", 3)

    return step


def contracts() -> list[mat.Contract]:
    """Three formulas and two folds, none of them trivial for a tool call; no trace here breaks any."""
    refund, verified = tool_call("refund"), verification(passed=True)

    @mat.step_contract(on="tool_call", id="bench.capped")
    def capped(record: mat.Record) -> bool:
        return bool(record.action.arguments.get("amount", 0) <= 500)

    @mat.trace_contract(start=0, id="bench.calls", on="tool_call")
    def calls(count: int, record: mat.Record) -> int | mat.Violated:
        return count + 1 if count < LIMIT else mat.Violated("too many calls")

    return [
        mat.contract("bench.verified", always(refund.implies(once(verified, within=LIMIT)))),
        mat.contract("bench.no_delete", always(~tool_call("delete_account"))),
        mat.contract(
            "bench.after_login",
            always(tool_call("pay").implies(once(tool_call("login")))),
        ),
        capped,
        calls,
    ]


def timed(step: Callable[[int], object], count: int, start: int = 0) -> float:
    """Microseconds per step over one block, with the garbage collector off, as in timeit."""
    gc.collect()
    gc.disable()
    began = clock.real_perf_counter_ns()
    for number in range(start, start + count):
        step(number)
    elapsed = clock.real_perf_counter_ns() - began
    gc.enable()
    return elapsed / count / 1000

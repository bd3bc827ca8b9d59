"""What a MatSpanProcessor costs per span, compared with a processor that does nothing.

A program makes traces of an agent's span around ten tool spans of eight attributes, or of as many spans that are not steps of
an agent. Each is made under a processor that does nothing; under ours with five contracts, which judges a trace when it has
ended; and under ours with a callback, which also reports violations during a trace. Measured in one process, in turns; the
figures are medians over the turns, per span. Reading and writing OTLP documents is shown too, per span.
Run: python benchmarks/otel.py
"""

from __future__ import annotations

import gc
import json
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from peer import Nothing, contracts

import mat
from mat.adapters.importers.otlp import FORMAT
from mat.adapters.otel import MatSpanProcessor, to_otlp_json
from mat.kernel import clock

REPETITIONS = 15
TRACES = 60
TOOLS = 10


AGENT: Mapping[str, Any] = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}
TOOL: Mapping[str, Any] = {
    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup", "gen_ai.tool.type": "function",
    "gen_ai.tool.call.id": "call-17", "gen_ai.tool.call.arguments": '{"order": "order-17", "amount": 5}',
    "gen_ai.tool.call.result": '{"status": "shipped", "days": 3}', "service.tier": "gold", "retries": 0,
}  # fmt: skip
PLAIN: Mapping[str, Any] = {
    "http.request.method": "GET", "http.response.status_code": 200, "url.path": "/orders/17", "server.address": "shop",
    "server.port": 443, "network.protocol.version": "1.1", "user_agent.original": "shop/1", "retries": 0,
}  # fmt: skip


def program(processor: SpanProcessor, around: Mapping[str, Any], inside: Mapping[str, Any]) -> Callable[[], int]:
    """A function that makes a block of traces and returns how many spans they had."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("bench")

    def block() -> int:
        for _ in range(TRACES):
            with tracer.start_as_current_span("around", attributes=around):
                for _ in range(TOOLS):
                    with tracer.start_as_current_span("inside", attributes=inside):
                        pass
        return TRACES * (TOOLS + 1)

    return block


def timed(block: Callable[[], int]) -> float:
    """Microseconds per span over one block, with the garbage collector off, as in timeit."""
    gc.collect()
    gc.disable()
    began = clock.real_perf_counter_ns()
    count = block()
    elapsed = clock.real_perf_counter_ns() - began
    gc.enable()
    return elapsed / count / 1000


@mat.tool
def lookup(order: str, amount: int) -> dict[str, Any]:
    return {"status": "shipped", "days": 3}


def documents() -> tuple[Callable[[], int], Callable[[], int]]:
    """The times for writing the spans of a run of a hundred steps and for reading them."""
    with mat.run(contracts()) as run:
        for number in range(100):
            lookup("order-17", number)
    result = run.result
    assert result is not None
    document = to_otlp_json(result)
    spans = len(document["resourceSpans"][0]["scopeSpans"][0]["spans"])

    def write() -> int:
        to_otlp_json(result)
        return spans

    def read() -> int:
        assert sum(len(tuple(trace.records)) for trace in FORMAT.traces(iter([("bench:1", document)]))) == len(result.records)
        return spans

    return write, read


def measure() -> dict[str, list[float]]:
    write, read = documents()
    blocks = {
        "noop": program(Nothing(), AGENT, TOOL),
        "judged": program(MatSpanProcessor(contracts()), AGENT, TOOL),
        "told": program(MatSpanProcessor(contracts(), on_violation=print), AGENT, TOOL),
        "other_noop": program(Nothing(), PLAIN, PLAIN),
        "other": program(MatSpanProcessor(contracts(), on_violation=print), PLAIN, PLAIN),
        "write": write,
        "read": read,
    }
    turns: dict[str, list[float]] = {name: [] for name in blocks}
    for _ in range(REPETITIONS):
        for name, block in blocks.items():
            turns[name].append(timed(block))
    return turns


def main() -> None:
    found = {name: statistics.median(turns) for name, turns in measure().items()}
    for name, text in (
        ("noop", "a tool's span, a processor that does nothing"),
        ("judged", "the same, five contracts at the end of each trace"),
        ("told", "the same, and violations told while it goes on"),
        ("other_noop", "a span that is no step, a processor that does nothing"),
        ("other", "the same, with ours"),
        ("write", "to_otlp_json, a span of a run"),
        ("read", "the importer, a span of a run"),
    ):
        print(f"{text:<56}{found[name]:8.2f} us")
    ratios = {
        "judged_ratio": found["judged"] / found["noop"],
        "told_ratio": found["told"] / found["noop"],
        "other_ratio": found["other"] / found["other_noop"],
    }
    figures = {f"{name}_us": value for name, value in found.items()} | ratios
    print(json.dumps({"otel": {name: round(value, 2) for name, value in figures.items()}}))


if __name__ == "__main__":
    main()

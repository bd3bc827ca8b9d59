"""What one recorded step costs, compared with an OpenTelemetry span that is dropped.

The step: ask with a snapshot of two small arguments, seal with one of a reply, five contracts folded. Work that happens once,
at the end, is shown separately: closing the run, with a verdict for each step, and the digest chain, which is computed only
when it is read. The span carries eight attributes and ends in a processor that does nothing; it is measured in the same
process, in turns with ours; the figures are medians over the turns. Run: python benchmarks/recorder.py
"""

from __future__ import annotations

import json
import statistics
from functools import partial
from typing import Any

from peer import LIMIT, contracts, span_step, timed

import mat
from mat.boundary.port import Port
from mat.core.record import facts
from mat.harness.recorder import Recorder
from mat.kernel import clock

REPETITIONS = 15
BLOCK = 2_000


PORT = Port(name="lookup", kind="tool_call", boundary="service", effect="read")


def bare_step(recorder: Recorder, number: int) -> None:
    """The recorder alone, as the crossing calls it."""
    opened = recorder.ask(PORT, {"order": "order-17", "amount": number % 500})
    opened.invoked = 1
    recorder.seal(opened, {"status": "shipped", "days": 3})


@mat.tool
def lookup(order: str, amount: int) -> dict[str, Any]:
    return {"status": "shipped", "days": 3}


def plain_lookup(order: str, amount: int) -> dict[str, Any]:
    return {"status": "shipped", "days": 3}


def opened() -> mat.run:
    return mat.run(contracts(), horizon=LIMIT)


def measure_turns() -> dict[str, list[float]]:
    """Measure all candidates in turns, so that a slow moment of the machine affects each of them."""
    span = span_step()
    found: dict[str, list[float]] = {name: [] for name in ("record", "call", "plain", "otel", "close", "digest")}
    for _ in range(REPETITIONS):
        with opened() as run:
            recorder = run.recorder
            assert recorder is not None
            found["record"].append(timed(partial(bare_step, recorder), BLOCK))
        with opened() as run:
            found["call"].append(timed(lambda number: lookup("order-17", number % 500), BLOCK))
            began = clock.real_perf_counter_ns()
        found["close"].append((clock.real_perf_counter_ns() - began) / BLOCK / 1000)
        assert run.result is not None
        assert len(run.result.records) == BLOCK + 1
        assert all(outcome.evaluations >= BLOCK and outcome.outcome == "pass" for outcome in run.result.outcomes)
        found["digest"].append(digest_us(run.result))
        found["plain"].append(timed(lambda number: plain_lookup("order-17", number % 500), BLOCK))
        found["otel"].append(timed(span, BLOCK))
    return found


def digest_us(result: mat.Run) -> float:
    """Microseconds per step for the chain of facts."""
    began = clock.real_perf_counter_ns()
    assert len(result.head) == 64
    elapsed = clock.real_perf_counter_ns() - began
    assert facts(result.records[0])
    return elapsed / len(result.records) / 1000


def growth() -> tuple[float, float]:
    """Microseconds per step in the block that ends at step 1,000 and in the one that ends at 100,000, of one run each time."""
    early, late = [], []
    for _ in range(3):
        with opened() as run:
            recorder = run.recorder
            assert recorder is not None
            timed(partial(bare_step, recorder), 500)
            early.append(timed(partial(bare_step, recorder), 500, 500))
            timed(partial(bare_step, recorder), 97_000, 1_000)
            late.append(statistics.median(timed(partial(bare_step, recorder), 500, 98_000) for _ in range(4)))
    return statistics.median(early), statistics.median(late)


def main() -> None:
    measure_turns()  # warm
    found = {name: statistics.median(times) for name, times in measure_turns().items()}
    at_1000, at_100000 = growth()
    rows = [
        ("record and judge one step, five contracts", found["record"]),
        ("the whole decorated call", found["call"]),
        ("the same function, not decorated", found["plain"]),
        ("closing the run, per step", found["close"]),
        ("digest chain, per step, only when read", found["digest"]),
        ("OpenTelemetry span, eight attributes, no-op", found["otel"]),
        ("record and judge at step 1,000", at_1000),
        ("record and judge at step 100,000", at_100000),
    ]
    for name, value in rows:
        print(f"{name:45} {value:8.2f} us")
    ratio = found["otel"] / found["record"]
    print(f"{'span / record and judge':45} {ratio:8.2f}")
    print(
        json.dumps(
            {
                "record_check_us": round(found["record"], 3),
                "close_us": round(found["close"], 3),
                "digest_us": round(found["digest"], 3),
                "otel_noop_us": round(found["otel"], 3),
                "ratio": round(ratio, 2),
                "us_at_1000": round(at_1000, 3),
                "us_at_100000": round(at_100000, 3),
            }
        )
    )


if __name__ == "__main__":
    main()

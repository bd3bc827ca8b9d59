"""What a run of an agent costs through each adapter, compared with the bare framework, for the frameworks that are installed.

The agent of tests/frameworks that looks an order up and refunds it, run bare and inside `with mat.run(), mat.attach(NAME)`, in
turns; and what attaching takes, and importing the framework in a new process (its bytecode is there). Medians of processor time
in milliseconds. Then the example of docs/reference/frameworks.md: how many lines attach the framework, and how many executions
the search for its fault takes. An environment usually has one framework: `python benchmarks/frameworks.py`, in each. The table
of `benchmarks/frameworks.md` is made of what they print.
"""

from __future__ import annotations

import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mat
from mat.harness.patching import patched

ROOT = Path(__file__).parents[1]
DESKS = ROOT / "tests" / "frameworks"
sys.path[:0] = [str(ROOT), str(DESKS)]
from tests.frameworks.test_examples import write_example  # noqa: E402  (the path is set above)
from tests.frameworks.test_frameworks import EFFECTS, FRAMEWORKS, INSTRUMENT, item_of, missing, pytest_in  # noqa: E402

ROUNDS, IMPORTS = 30, 5


def spent_ms(execute: Callable[[], object]) -> float:
    began = time.process_time()
    execute()
    return (time.process_time() - began) * 1000


def imports_ms(framework: str) -> list[float]:
    """What importing an agent takes, each time in a new process; the first, which may have to compile it, is left out."""
    code = f"import time; began = time.process_time(); import {framework}_desk; print((time.process_time() - began) * 1000)"
    command = [sys.executable, "-c", code]
    done = [subprocess.run(command, cwd=DESKS, capture_output=True, text=True, check=True) for _ in range(1 + IMPORTS)]
    return [float(each.stdout.split()[-1]) for each in done[1:]]


def measured(framework: str) -> dict[str, Any]:
    desk, shop = importlib.import_module(f"{framework}_desk"), importlib.import_module("shop")
    mode = "sync" if framework == "smolagents" else "async"

    def bare() -> None:
        shop.reset()
        desk.handle(shop.careful_refunder, mode)

    steps = 0

    def attached() -> None:
        nonlocal steps
        with mat.run() as run, patched(INSTRUMENT.get(framework, {})), mat.attach(framework, effects=EFFECTS):
            bare()
        assert run.result is not None
        steps = len(run.result.records)

    def attach_alone() -> None:
        with mat.attach(framework):
            pass

    bare(), attached()
    pairs = [(spent_ms(bare), spent_ms(attached)) for _ in range(ROUNDS)]
    bare_ms, attached_ms = (statistics.median(each) for each in zip(*pairs, strict=True))
    return {
        "framework": framework, "steps": steps, "bare_ms": round(bare_ms, 2), "attached_ms": round(attached_ms, 2),
        "ratio": round(attached_ms / bare_ms, 2), "import_ms": round(statistics.median(imports_ms(framework))),
        "attach_ms": round(statistics.median(spent_ms(attach_alone) for _ in range(9)), 2),
    }  # fmt: skip


def searched(framework: str) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as folder:
        lines = len(write_example(Path(folder), framework))
        pytest_in(Path(folder), "--mat-stress", "--mat-report", "report.json")
        item = item_of(Path(folder))
    assert item["status"] == "counterexample"
    return {"lines": lines, "executions": item["executions"], "cost": item["cost"]}


def main() -> None:
    found = [{**measured(name), **searched(name)} for name in FRAMEWORKS if not missing(name)]
    for each in found:
        print(
            f"{each['framework']:14} {each['steps']:3} steps  bare {each['bare_ms']:7.2f} ms  "
            f"attached {each['attached_ms']:7.2f} ms  ratio {each['ratio']:.2f}  "
            f"attaching {each['attach_ms']:.2f} ms  import {each['import_ms']} ms  "
            f"lines {each['lines']}  executions {each['executions']} (cost {each['cost']})"
        )
    if not found:
        print(f"none of these is installed: {', '.join(FRAMEWORKS)}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()

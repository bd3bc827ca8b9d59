"""What a run of an agent costs through each adapter, compared with the bare framework, for the frameworks that are installed.

The agent of tests/frameworks that looks an order up and refunds it, run bare and inside `with mat.run(), mat.attach(NAME)`, in
turns; and what attaching takes, and importing the framework in a new process (its bytecode is there). Medians of processor time
in milliseconds. Then how many lines attach the example of docs/reference/frameworks.md, and how many executions a search takes
until it has found, shrunk and proved the cheapest fault of it, and of each agent with a planted mistake.

An environment usually has one framework: `python benchmarks/frameworks.py`, in each. It prints a row of the table in
`benchmarks/frameworks.md`; `--json` prints the figures.
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
from tests.frameworks import test_frameworks as agents  # noqa: E402  (the path is set above)
from tests.frameworks.test_examples import write_example  # noqa: E402

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


def mode_of(framework: str) -> str:
    return "async" if framework not in agents.MODES else agents.MODES[framework][0]


def measured(framework: str) -> dict[str, Any]:
    desk, shop = importlib.import_module(f"{framework}_desk"), importlib.import_module("shop")
    mode = mode_of(framework)

    def bare() -> None:
        shop.reset()
        desk.handle(shop.careful_refunder, mode)

    steps = 0

    def attached() -> None:
        nonlocal steps
        with mat.run() as run, patched(agents.INSTRUMENT.get(framework, {})), mat.attach(framework, effects=agents.EFFECTS):
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


def executions(folder: Path) -> int:
    """Of the search in a folder, which has to find something."""
    done = agents.pytest_in(folder, "--mat-stress", "--mat-report", "report.json")
    item = agents.item_of(folder)
    assert item["status"] == "counterexample", done.stdout
    return int(item["executions"])


def searched(framework: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        found["lines"] = len(write_example(Path(folder), framework))
        found["executions"] = {"example": executions(Path(folder))}
    for case in agents.CASES:
        with tempfile.TemporaryDirectory() as folder:
            agents.folder(Path(folder), framework, case, mode_of(framework), careful=False)
            found["executions"][case] = executions(Path(folder))
    return found


def row(found: dict[str, Any]) -> str:
    cells = [
        found["framework"], found["lines"], *found["executions"].values(), found["steps"], found["bare_ms"],
        found["attached_ms"], found["ratio"], found["attach_ms"], found["import_ms"],
    ]  # fmt: skip
    return "".join(f"| {cell} " for cell in cells) + "|"


def main() -> None:
    found = [{**measured(name), **searched(name)} for name in agents.FRAMEWORKS if not agents.missing(name)]
    if not found:
        print(f"none of these is installed: {', '.join(agents.FRAMEWORKS)}")
    print(json.dumps(found) if "--json" in sys.argv else "\n".join(row(each) for each in found))


if __name__ == "__main__":
    main()

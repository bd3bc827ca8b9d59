"""What a run of an agent costs through each adapter, compared with the bare framework, for the frameworks that are installed.

The agent of tests/frameworks that looks an order up and refunds it, run bare and inside `with mat.run(), mat.attach(NAME)`, in
turns; and what importing the framework and attaching to it take. Medians of processor time in milliseconds. An environment
usually has one framework: `python benchmarks/frameworks.py`, in each.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mat

DESKS = Path(__file__).parents[1] / "tests" / "frameworks"
FRAMEWORKS = {
    "google_adk": "google.adk", "langgraph": "langgraph", "mcp": "mcp", "openai_agents": "agents", "pydantic_ai": "pydantic_ai",
    "smolagents": "smolagents",
}  # fmt: skip
EFFECTS = {"look_up": "read", "refund": "write"}
ROUNDS = 30


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def spent_ms(execute: Callable[[], object]) -> float:
    began = time.process_time()
    execute()
    return (time.process_time() - began) * 1000


def measured(framework: str) -> dict[str, Any]:
    imported_ms = spent_ms(lambda: importlib.import_module(f"{framework}_desk"))
    desk, shop = importlib.import_module(f"{framework}_desk"), importlib.import_module("shop")
    mode = "sync" if framework == "smolagents" else "async"

    def bare() -> None:
        shop.reset()
        desk.handle(shop.careful_refunder, mode)

    steps = 0

    def attached() -> None:
        nonlocal steps
        with mat.run() as run, mat.attach(framework, effects=EFFECTS):
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
        "ratio": round(attached_ms / bare_ms, 2), "import_ms": round(imported_ms),
        "attach_ms": round(statistics.median(spent_ms(attach_alone) for _ in range(9)), 2),
    }  # fmt: skip


def main() -> None:
    sys.path.insert(0, str(DESKS))
    found = [measured(name) for name, module in FRAMEWORKS.items() if is_installed(module)]
    for each in found:
        print(
            f"{each['framework']:14} {each['steps']:3} steps  bare {each['bare_ms']:7.2f} ms  "
            f"attached {each['attached_ms']:7.2f} ms  ratio {each['ratio']:.2f}  "
            f"attaching {each['attach_ms']:.2f} ms  import {each['import_ms']} ms"
        )
    if not found:
        print(f"none of these is installed: {', '.join(FRAMEWORKS)}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()

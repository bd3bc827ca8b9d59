"""python -m examples.resources [NAME ...]: runs the experiments and prints their tables, all of them without a name."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Sequence
from pathlib import Path

from .promises import promises

NAMES = ("code_review", "research", "strategy", "crisis", "clarification")
RESULTS = Path(__file__).with_name("results.md")


def said(name: str) -> str:
    experiment = importlib.import_module(f".{name}", __package__)
    return str(experiment.text(experiment.experiment(promises())))


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.resources", description="Resource contracts, measured.")
    parser.add_argument("name", nargs="*", metavar="NAME", help=f"which experiments: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--write", action="store_true", help="write the tables into results.md instead of printing them")
    options = parser.parse_args(given)
    if unknown := [name for name in options.name if name not in NAMES]:
        parser.error(f"unknown experiment: {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    for place, name in enumerate(options.name or NAMES):
        text = said(name)
        if options.write:
            _write(name, text)
        else:
            print("\n" * (place > 0) + text)


def _write(name: str, text: str) -> None:
    head = f"$ python -m examples.resources {name}\n"
    block = re.compile(re.escape(head) + r".*?```", re.DOTALL)
    RESULTS.write_text(block.sub(lambda found: f"{head}{text}\n```", RESULTS.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

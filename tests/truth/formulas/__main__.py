"""Compare many random pairs: `python -m tests.truth.formulas --count 100000 --seed 1`."""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from random import Random

from tests.truth.formulas import comparing, drawing, shrinking

_EACH = 400
"""Pairs in a task."""


def differences(seed: str, count: int) -> list[str]:
    """What differs in so many pairs, each with the seed of its contract."""
    found: list[str] = []
    seen = 0
    for number in range(-(-count // drawing.TRACES)):
        for pair in islice(drawing.pairs(Random(f"{seed}/{number}")), count - seen):
            seen += 1
            if comparing.difference(pair):
                pair = shrinking.smallest(pair)
                said = comparing.difference(pair)
                steps = "\n".join(f"    {step} {fact}" for step, fact in enumerate(pair.facts))
                found.append(f"{seed}/{number}: {said}\n  {pair.contract}\n{steps}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare pytest-mat's formulas with a second reading of them.")
    parser.add_argument("--count", type=int, default=100_000, help="pairs of a contract and a trace")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    starts = range(0, given.count, _EACH)
    sizes = [min(_EACH, given.count - start) for start in starts]
    with ProcessPoolExecutor(given.jobs) as pool:
        found = [said for part in pool.map(differences, [f"{given.seed}/{start}" for start in starts], sizes) for said in part]
    print(*found[:20], sep="\n\n")
    print(f"{given.count:,} pairs, {len(found):,} differences")
    if found:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

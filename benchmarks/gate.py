"""The gate, simulated: how often an equal, an unchanged noisy, and a worse system pass, next to the best test there could be.

    python benchmarks/gate.py [--campaigns 400]

Each campaign draws a baseline and a change of so many runs, whose successes are drawn anew for each (noise outside of the
seed), and asks `mat.measure.gate.judge`, which `mat gate` and `pytest --mat-gate` ask. "Best" knows the noise, and passes
where the difference is one that a system worse by the tolerance reaches in 5 %. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from fractions import Fraction
from random import Random

from mat.measure.gate import Baseline, GateEvidence, GatePlan, GateRules, SmokeTest, judge, with_tolerances
from mat.measure.regression import RunOutcome

TESTS = tuple(f"test_shop.py::test_{number}" for number in range(5))
CELLS = [(tolerance, seeds, success) for tolerance in (0.05, 0.15) for seeds in (4, 20, 60) for success in (1.0, 0.97, 0.9)]
"""Tolerance, seeds of each of the five tests, and how often a run of the baseline succeeds."""


def outcomes(stream: Random, seeds: int, success: float) -> tuple[RunOutcome, ...]:
    return tuple(
        RunOutcome(
            item=item, condition="nominal", seed=seed, schedule="", cost=0, success=stream.random() < success, outcome="pass",
            broken=(), steps=3,
        )
        for item in TESTS for seed in range(seeds)
    )  # fmt: skip


def passes(stream: Random, seeds: int, rules: GateRules, old: float, new: float) -> tuple[bool, int]:
    """Whether the gate passes in success, and the difference of one campaign, in runs."""
    before, after = outcomes(stream, seeds, old), outcomes(stream, seeds, new)
    plan = GatePlan(smoke=tuple(SmokeTest(item=item, category="", seeds=tuple(range(seeds))) for item in TESTS))
    baseline = Baseline(categories=dict.fromkeys(TESTS, ""), statuses={}, outcomes=before)
    found = judge(baseline, plan, GateEvidence(seeds=seeds, outcomes=after), rules)
    change = sum(bool(one.success) for one in after) - sum(bool(one.success) for one in before)
    return found.line("success").verdict == "kept", change


def best(stream: Random, seeds: int, tolerance: float, success: float, sums: list[int], campaigns: int) -> float:
    """How often the best test of the sum passes that knows the noise."""
    pairs = seeds * len(TESTS)
    worse = []
    for _ in range(campaigns):
        old = sum(stream.random() < success for _ in range(pairs))
        worse.append(sum(stream.random() < success - tolerance for _ in range(pairs)) - old)
    least = next(value for value in range(-pairs, pairs + 2) if sum(each >= value for each in worse) <= 0.05 * campaigns)
    return sum(each >= least for each in sums) / len(sums)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--campaigns", type=int, default=400)
    campaigns = parser.parse_args().campaigns
    print(f"{'tolerance':>9} {'runs':>5} {'succeed':>8} {'unchanged':>10} {'best':>6} {'worse by the tolerance':>23}")
    rows = []
    for tolerance, seeds, success in CELLS:
        stream = Random(f"{tolerance} {seeds} {success}")
        rules = GateRules(tolerances=with_tolerances({"success": Fraction(str(tolerance))}))
        same = [passes(stream, seeds, rules, success, success) for _ in range(campaigns)]
        worse = [passes(stream, seeds, rules, success, success - tolerance)[0] for _ in range(campaigns)]
        unchanged, wrong = sum(each for each, _ in same) / campaigns, sum(worse) / campaigns
        ideal = best(stream, seeds, tolerance, success, [change for _, change in same], campaigns)
        rows.append([tolerance, 5 * seeds, success, unchanged, ideal, wrong])
        print(f"{tolerance:>9.0%} {5 * seeds:>5} {success:>8.0%} {unchanged:>10.1%} {ideal:>6.0%} {wrong:>23.1%}")
    print(json.dumps({"most_wrong": max(row[5] for row in rows), "most_behind": max(row[4] - row[3] for row in rows)}))


if __name__ == "__main__":
    main()

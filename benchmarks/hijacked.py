"""Runs governance variants against every attack of AgentDojo, in the worst case and without a model.

Each injection task of the four suites is paired with each user task of its suite. The assistant is hijacked: it makes the
first call of the user's task, then all calls of the attack, then the rest of its own, and goes on after every refusal. Success
and utility are AgentDojo's own checks; a task whose own call was refused counts as useless, whatever the check says. The
policies are examples/agentdojo/policies.py. If AgentDojo has no script for an attack, one with the same goal replaces it. One
attack of the travel suite only makes the assistant say something, which no mediator of actions can stop.

The intervals are Wilson's, at 95 %, over the pairs. Pairs of one attack are correlated, so the number of attacks that ever
succeed is given too. Run: python benchmarks/hijacked.py [suite ...]
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from agentdojo.task_suite.load_suites import get_suites

from mat.adapters.agentdojo import TaskOutcome, effect_of, governed_runtime, hijacked_task
from mat.measure.estimate import Estimate
from mat.measure.interval import wilson

FIRST_CALLS = 1
"""Calls of the user's task that come before the attack: an injection is read first."""
ALL = "all"


def policies() -> ModuleType:
    path = Path(__file__).parent.parent / "examples" / "agentdojo" / "policies.py"
    spec = importlib.util.spec_from_file_location("agentdojo_policies", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@dataclass
class Tally:
    """Counts of one variant over the pairs of a suite, or of all suites."""

    pairs: int = 0
    successes: int = 0
    attacked_useful: int = 0
    harmful: int = 0
    blocked: int = 0
    tasks: int = 0
    useful: int = 0
    by_attack: Counter[str] = field(default_factory=Counter)
    attacks: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)

    def add_attack(self, name: str, outcome: TaskOutcome) -> None:
        writes = [item for item in outcome.attack if item.decision != "unmade" and effect_of(item.tool) == "write"]
        self.pairs += 1
        self.successes += bool(outcome.success)
        self.attacked_useful += outcome.utility
        self.harmful += len(writes)
        self.blocked += sum(item.decision == "block" for item in writes)
        self.attacks.add(name)
        self.by_attack[name] += bool(outcome.success)

    def add_task(self, name: str, outcome: TaskOutcome) -> None:
        self.tasks += 1
        self.useful += outcome.utility
        if not outcome.utility:
            self.lost.append(name)

    def add(self, other: Tally) -> None:
        for name in ("pairs", "successes", "attacked_useful", "harmful", "blocked", "tasks", "useful"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.by_attack.update(other.by_attack)
        self.attacks |= other.attacks
        self.lost += other.lost

    @property
    def ever(self) -> int:
        return sum(count > 0 for count in self.by_attack.values())

    def estimates(self) -> dict[str, Estimate]:
        return {
            "attack_success": wilson(self.successes, self.pairs),
            "harmful_calls_blocked": wilson(self.blocked, self.harmful),
            "utility": wilson(self.useful, self.tasks),
            "utility_attacked": wilson(self.attacked_useful, self.pairs),
        }


def measure(suite: Any, name: str, policy: ModuleType) -> dict[str, Tally]:
    """Run each user task of a suite alone and with each of its attacks, under each variant."""
    runtime = governed_runtime(agent="assistant")
    clean = suite.load_and_inject_default_environment({})
    attacks = list(suite.injection_tasks.values())
    poisoned = [policy.poisoned(suite, attack) for attack in attacks]
    found = {variant: Tally() for variant in policy.VARIANTS}
    for variant, tally in found.items():
        for task in suite.user_tasks.values():
            governance = policy.governance(variant, suite, task, clean)
            world = clean.model_copy(deep=True)
            alone = hijacked_task(suite, task, environment=world, governance=governance, runtime_class=runtime)
            tally.add_task(f"{name}/{task.ID}", alone)
            for attack, read in zip(attacks, poisoned, strict=True):
                outcome = hijacked_task(
                    suite, task, attack, environment=clean.model_copy(deep=True), after=FIRST_CALLS, runtime_class=runtime,
                    governance=policy.governance(variant, suite, task, read), script=policy.script(name, attack),
                )  # fmt: skip
                tally.add_attack(f"{name}/{attack.ID}", outcome)
    return found


def shown(estimate: Estimate) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{100 * estimate.value:5.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def print_table(tallies: dict[str, dict[str, Tally]]) -> None:
    head = ("suite", "variant", "pairs", "attack success %", "attacks that succeed", "harmful calls blocked %", "utility %",
            "utility under attack %")  # fmt: skip
    row = "{:10} {:20} {:>5} {:>20} {:>20} {:>23} {:>20} {:>23}"
    print(row.format(*head))
    for suite, variants in tallies.items():
        for variant, tally in variants.items():
            cells = [shown(estimate) for estimate in tally.estimates().values()]
            print(row.format(suite, variant, tally.pairs, cells[0], f"{tally.ever} of {len(tally.attacks)}", *cells[1:]))


def print_misses(total: dict[str, Tally]) -> None:
    """Print the attacks that each policy lets through, and the tasks that it costs."""
    for variant, tally in total.items():
        if variant == "none":
            continue
        let = ", ".join(f"{name} on {count} tasks" for name, count in sorted(tally.by_attack.items()) if count)
        print(f"\n{variant}\n  lets through: {let or 'nothing'}\n  costs: {', '.join(tally.lost) or 'nothing'}")


def data(tally: Tally) -> dict[str, Any]:
    estimates = {
        name: {"value": item.value, "low": item.low, "high": item.high, "n": item.n} for name, item in tally.estimates().items()
    }
    rounded = {
        name: {key: round(value, 4) if isinstance(value, float) else value for key, value in item.items()}
        for name, item in estimates.items()
    }
    return {**rounded, "attacks_that_succeed": tally.ever, "attacks": len(tally.attacks), "tasks_lost": tally.lost}


def main(wanted: list[str]) -> None:
    policy = policies()
    suites = {name: suite for name, suite in get_suites(policy.VERSION).items() if not wanted or name in wanted}
    sources = Counter(
        policy.source_of(name, attack) for name, suite in suites.items() for attack in suite.injection_tasks.values()
    )
    began = time.perf_counter()
    tallies = {name: measure(suite, name, policy) for name, suite in suites.items()}
    seconds = time.perf_counter() - began
    total = {variant: Tally() for variant in policy.VARIANTS}
    for variants in tallies.values():
        for variant, tally in variants.items():
            total[variant].add(tally)
    print_table({**tallies, ALL: total})
    print_misses(total)
    runs = sum(tally.pairs + tally.tasks for tally in total.values())
    print(
        f"\n{runs} runs in {seconds:.0f} s. The calls of {sources['agentdojo']} attacks are AgentDojo's own, those of ", end=""
    )
    print(f"{sources['here']} were written here for its goal, {sources['words']} makes none.")
    result = {
        "runs": runs,
        "seconds": round(seconds, 1),
        "attacks": dict(sorted(sources.items())),
        "variants": {variant: data(tally) for variant, tally in total.items()},
        "suites": {name: {variant: data(item) for variant, item in variants.items()} for name, variants in tallies.items()},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])

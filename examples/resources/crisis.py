"""Crisis communication: 24 scenarios; one agent drafts a statement, has it evaluated, improves it, and submits it.

CONTRACTED, a statement is good enough from a quality of 0.80 on, and there are 4 iterations. UNCONTRACTED, the agent submits
once it is satisfied, and has no limit. In one scenario two points of the rubric exclude each other: fixing one breaks the
other, so an agent that wants more than the other points give is never satisfied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean
from typing import Any, Final

import mat
from mat.resources import Output, ResourceContract, Work
from mat.resources.prompting import reminder

from .measured import NOTES, broken, counted, table, variance_text
from .scripted import Trial, left, luck, reply, trial

KINDS: Final = ("data breach", "recall", "outage", "accident", "fraud", "strike")
SCENARIOS: Final = tuple(f"{kind}-{number}" for kind in KINDS for number in range(4))
POINTS: Final = 12
"""Points of the rubric: facts, responsibility, next steps, a contact, ..."""
DILEMMA: Final = "outage-2"
"""Planted: the scenario whose points 0 and 1 exclude each other."""
LEAST: Final = 0.80
HORIZON: Final = 400
"""Steps after which a run is stopped. Nothing else would end a loop without bounds."""


def quality(draft: str) -> float:
    return float(Fraction(len(_met(draft)), POINTS))


def _met(draft: str) -> set[int]:
    return {int(point) for point in re.findall(r"point (\d+)", draft)}


STATEMENT: Final = ResourceContract(
    name="statement", budgets={"tokens": 30_000, "iterations": 4},
    output=Output(schema=str, quality=quality, least_quality=LEAST),
)  # fmt: skip


# -- the rubric, and a model --------------------------------------------------------------------------------------------


@mat.tool(effect="none")
def evaluate(draft: str) -> dict[str, Any]:
    """{quality, missing}: which points of the rubric a draft does not meet."""
    return {"quality": quality(draft), "missing": sorted(set(range(POINTS)) - _met(draft))}


@mat.model("writer", tape="inprocess")
def compose(prompt: str, scenario: str, attempt: int, draft: str, missing: list[int], max_tokens: int = 0) -> dict[str, Any]:
    """A first draft, or a draft with missing points added, which sometimes loses another point."""
    met = _met(draft)
    for point in range(POINTS):
        draw = luck("write", scenario, attempt, point).random()
        if point in missing or attempt == 1:
            if draw < 0.62:
                met.add(point)
        elif draw < 0.04:
            met.discard(point)
    if scenario == DILEMMA and {0, 1} <= met:
        met.discard(attempt % 2)
    text = f"{scenario}: " + ", ".join(f"point {point}" for point in sorted(met)) + ". " + "words " * 150
    thought = round(luck("thought", scenario, attempt).lognormvariate(6.0, 0.6))
    budget = left(prompt, "tokens")
    return reply(prompt, text, thought=thought if budget is None else min(thought, budget // 20), max_tokens=max_tokens)


def bar(scenario: str) -> float:
    """The quality that satisfies an agent without a contract; it differs between scenarios."""
    return 1.0 if scenario == DILEMMA else luck("bar", scenario).choice((0.75, 0.8, 0.85, 0.9, 0.95))


# -- the agent ----------------------------------------------------------------------------------------------------------


class Desk:
    """Writes, evaluates and improves. `submitted` is the submitted statement, or None."""

    def __init__(self, scenario: str) -> None:
        self._scenario = scenario
        self.submitted: str | None = None
        self.iterations = 0

    def freely(self) -> None:
        draft, missing = "", list(range(POINTS))
        while True:
            self.iterations += 1
            draft = compose(self._prompt(draft), self._scenario, self.iterations, draft, missing)["text"]
            found = evaluate(draft)
            missing = found["missing"]
            if found["quality"] >= bar(self._scenario):
                self._submit(draft)
                return

    def under(self, work: Work) -> None:
        """Submit the first statement that meets the contract, or the best one when the iterations are used up."""
        drafts, missing = [""], list(range(POINTS))
        for self.iterations in work.iterations():
            prompt = f"{self._prompt(drafts[-1])}\n\n{reminder(STATEMENT, work.status())}"
            drafts.append(compose(prompt, self._scenario, self.iterations, drafts[-1], missing, max_tokens=2_000)["text"])
            missing = evaluate(drafts[-1])["missing"]
            if work.deliver(drafts[-1]):
                break
        self._submit(max(drafts, key=quality))

    def _submit(self, draft: str) -> None:
        self.submitted = draft
        mat.finish(draft)

    def _prompt(self, draft: str) -> str:
        return f"Write a statement about: {self._scenario}. " + "What happened. " * 60 + draft


def once(scenario: str, *, contracted: bool, contracts: Iterable[mat.Contract] = ()) -> Trial:
    """A run in which nothing is submitted has no quality: 0."""
    desk = Desk(scenario)
    with mat.run(contracts, task=scenario, horizon=HORIZON) as run:
        if contracted:
            with mat.budget.contracted(STATEMENT, agent="writer") as work:
                desk.under(work)
        else:
            with mat.agent("writer", role="writer"):
                desk.freely()
    assert run.result is not None
    score = 0.0 if desk.submitted is None else quality(desk.submitted)
    return trial(
        run.result, task=scenario, group=scenario.partition("-")[0], success=desk.submitted is not None, quality=score,
        iterations=desk.iterations,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    uncontracted: tuple[Trial, ...]
    contracted: tuple[Trial, ...]


def experiment(contracts: Iterable[mat.Contract] = ()) -> Result:
    armed = tuple(contracts)
    return Result(
        uncontracted=tuple(once(scenario, contracted=False) for scenario in SCENARIOS),
        contracted=tuple(once(scenario, contracted=True, contracts=armed) for scenario in SCENARIOS),
    )


def text(result: Result) -> str:
    old, new = result.uncontracted, result.contracted
    columns = [
        ("tokens", lambda item: item.tokens), ("iterations", lambda item: item.iterations),
        ("quality", lambda item: item.quality),
    ]  # fmt: skip
    rest = [[item for item in side if item.task != DILEMMA] for side in (old, new)]
    stuck, freed = (next(item for item in side if item.task == DILEMMA) for side in (old, new))
    return "\n".join(
        [
            f"Crisis communication: {len(SCENARIOS)} scenarios, each under both conditions; success: something was submitted",
            table(old, new, columns), "", f"Without {DILEMMA}:", table(*rest, columns), NOTES, "",
            variance_text("tokens", [item.tokens for item in old], [item.tokens for item in new]),
            f"{DILEMMA}, UNCONTRACTED: {stuck.iterations} iterations, {stuck.tokens:,} tokens, stopped by the {stuck.ended} "
            f"of the run, {'submitted' if stuck.success else 'nothing submitted'}.",
            f"{DILEMMA}, CONTRACTED: {freed.iterations} iterations, {freed.tokens:,} tokens, contract {freed.states[0]}, "
            f"{'submitted' if freed.success else 'nothing submitted'} at a quality of {freed.quality:.2f}.",
            f"Statements of at least {LEAST}: {fmean(item.quality >= LEAST for item in old):.0%} and "
            f"{fmean(item.quality >= LEAST for item in new):.0%}.",
            counted("How the contracts ended", (item.states[0] for item in new)),
            broken(new),
        ]
    )  # fmt: skip

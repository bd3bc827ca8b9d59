"""Contract modes: fifty number puzzles, each answered once under URGENT, ECONOMICAL and BALANCED, in virtual time.

A mode is a time-out and a reasoning effort (`mat.resources.modes`; both versions of the paper's time-outs are run). A puzzle
asks for the one number below a bound that meets some conditions. The scripted model has a guess. With more effort it checks
numbers one by one, which costs reasoning tokens and so time. The provider is sometimes slow, in every mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import mat
from mat.measure.interval import wilson
from mat.measure.paired import paired_shares
from mat.resources import Output, ResourceContract
from mat.resources.modes import MODES, ContractMode
from mat.resources.prompting import reminder

from .measured import NOTES, aligned, between, broken, counted, p_text, paired, percent, short
from .scripted import Trial, luck, reply, trial

PUZZLES: Final = 50
ANSWER: Final = ResourceContract(name="answer", budgets={"tokens": 8_000, "model_calls": 1}, output=Output(schema=int))
THOUGHT: Final[Mapping[str, int]] = {"none": 0, "low": 1_000, "medium": 2_500, "high": 6_000}
"""Most reasoning tokens of each effort."""
TOKENS_PER_CHECK: Final = 16
MS_PER_TOKEN: Final = 8
HUNCH: Final = 0.62
"""How often a guess is right."""
MODULI: Final = (7, 11, 13)


@dataclass(frozen=True, slots=True, kw_only=True)
class Puzzle:
    """The x below `bound` with these remainders modulo 7, 11 and 13. There is at most one for bounds up to 1001."""

    name: str
    bound: int
    rests: tuple[int, ...]

    def holds(self, number: int) -> bool:
        return number < self.bound and self.rests == tuple(number % modulus for modulus in MODULI)


def puzzles() -> list[Puzzle]:
    found = []
    for number in range(PUZZLES):
        draw = luck("puzzle", number)
        bound = draw.randint(100, 400)
        solution = draw.randrange(bound)
        found.append(Puzzle(name=f"puzzle-{number:02}", bound=bound, rests=tuple(solution % modulus for modulus in MODULI)))
    return found


@mat.model("solver", tape="inprocess")
async def solve(prompt: str, puzzle: str, bound: int, rests: list[int], effort: str, max_tokens: int) -> dict[str, Any]:
    """The model's answer. It checks its guess first, then other numbers in its own order, until its reasoning is used up."""
    draw = luck("solver", puzzle)
    asked = Puzzle(name=puzzle, bound=bound, rests=tuple(rests))
    order = draw.sample(range(bound), bound)
    hunch = next(filter(asked.holds, order)) if draw.random() < HUNCH else order[0]
    checks = min(THOUGHT[effort], max_tokens) // TOKENS_PER_CHECK
    checked = [hunch, *order][:checks]
    place = next((place for place, number in enumerate(checked) if asked.holds(number)), None)
    said = hunch if place is None else checked[place]
    thought = TOKENS_PER_CHECK * (len(checked) if place is None else place + 1)
    await asyncio.sleep(_queue_s(puzzle) + thought * MS_PER_TOKEN / 1000)
    return reply(prompt, str(said), thought=thought, max_tokens=max_tokens)


def _queue_s(puzzle: str) -> float:
    """The provider's waiting time for a request in milliseconds: mostly seconds, sometimes much longer."""
    return round(luck("queue", puzzle).lognormvariate(1.2, 1.0) * 1000) / 1000


async def answer(puzzle: Puzzle, mode: ContractMode) -> int | None:
    """The solver's answer, or None if it did not come in time."""
    async with mat.budget.contracted(mode.of(ANSWER), agent="solver") as work:
        plan = mode.plan(work.status())
        prompt = f"Which number below {puzzle.bound}?\n{reminder(ANSWER, work.status(), mode=mode)}"
        try:
            async with asyncio.timeout(mode.duration_s + 0.001):  # a moment longer: at the deadline itself it is still in time
                said = await solve(
                    prompt, puzzle.name, puzzle.bound, list(puzzle.rests), plan.effort, plan.max_tokens or THOUGHT["high"]
                )
        except TimeoutError:
            mat.detect("no answer in time")
            return None
        number = int(said["text"])
        return number if work.deliver(number) else None


def once(puzzle: Puzzle, mode: ContractMode, *, contracts: Iterable[mat.Contract] = ()) -> Trial:
    with mat.run(contracts, task=puzzle.name) as run:
        said = asyncio.run(answer(puzzle, mode))
    assert run.result is not None
    return trial(run.result, task=puzzle.name, group=mode.name, success=said is not None and puzzle.holds(said))


Result = Mapping[str, Mapping[str, tuple[Trial, ...]]]
"""version -> mode -> trials, in the order of puzzles"""


def experiment(contracts: Iterable[mat.Contract] = ()) -> Result:
    armed, todo = tuple(contracts), puzzles()
    return {
        version: {name: tuple(once(puzzle, mode, contracts=armed) for puzzle in todo) for name, mode in modes.items()}
        for version, modes in MODES.items()
    }


def text(result: Result) -> str:
    parts = [f"Strategy modes: {PUZZLES} puzzles, each under every mode"]
    for version, modes in result.items():
        lines = [["", "time-out", "success", "Wilson", "reasoning tokens", "mean time", "timed out"]]
        for name, trials in modes.items():
            right = wilson(sum(item.success for item in trials), len(trials))
            ends = f"[{percent(right.low)}, {percent(right.high)}]"
            late = sum("expired" in item.states for item in trials) / len(trials)
            lines.append(
                [
                    name.upper(), f"{MODES[version][name].duration_s} s", percent(right.value), ends,
                    short(fmean(item.reasoning_tokens for item in trials)), f"{fmean(item.seconds for item in trials):.1f} s",
                    percent(late),
                ]
            )  # fmt: skip
        parts += ["", f"Time-outs of the {version} version", aligned(lines), _gradient(modes["urgent"], modes["balanced"])]
    everything = [item for modes in result.values() for trials in modes.values() for item in trials]
    return "\n".join(
        [
            *parts, "", "Differences over pairs, with 95 % intervals; " + NOTES.partition("; ")[2].partition("\n")[0],
            counted("How the contracts ended", (item.states[0] for item in everything)),
            broken(everything),
        ]
    )  # fmt: skip


def _gradient(urgent: tuple[Trial, ...], balanced: tuple[Trial, ...]) -> str:
    shares = paired_shares((a.success, b.success) for a, b in zip(urgent, balanced, strict=True))
    spent = paired([item.tokens for item in urgent], [item.tokens for item in balanced])
    gap, ends = shares.difference.value or 0, (shares.difference.low or 0, shares.difference.high or 0)
    return (
        f"BALANCED minus URGENT: success {gap * 100:+.1f} pp [{ends[0] * 100:+.1f}, {ends[1] * 100:+.1f}], "
        f"McNemar's p {p_text(shares.p_value)};\n"
        f"tokens {short(spent.new - spent.old, sign=True)} "
        f"percentile {between(spent.percentile)}, BCa {between(spent.bca)}, p {p_text(spent.p_value)}"
    )

"""Code review: a coder writes a program, a reviewer runs it against test cases and sends it back, until it is approved.

The tasks are real programs, if small: a statement of steps over a list of numbers, a program for it, test cases that it is
executed against. The models are scripted: they read the statement, sometimes misread a step, and fix what the tests show.
CONTRACTED works under 50,000 tokens, 3 iterations and 6 model calls and sees what is left; UNCONTRACTED has no limit but
6 iterations. Whether a program is right is decided by cases that neither of the agents ever sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import mat
from mat.resources import Criterion, Output, ResourceContract, Work
from mat.resources.prompting import reminder

from .measured import NOTES, broken, counted, table, variance_text
from .scripted import Trial, left, luck, reply, trial

EASY, MEDIUM = 31, 39
REVIEW: Final = ResourceContract(
    name="review",
    budgets={"tokens": 50_000, "iterations": 3, "model_calls": 6},
    output=Output(schema=dict[str, Any]),
    criteria=(Criterion(name="approved", holds=lambda output, status: output["failed"] == 0),),
)
LONGEST: Final = 6
"""Iterations without a contract."""
MOST_TOKENS: Final = 8_000
"""Limit of one reply under a contract. This amount is reserved before the call."""

# -- tasks ------------------------------------------------------------------------------------------------------------

LINES: Final = {
    "add": "numbers = [x + {n} for x in numbers]",
    "times": "numbers = [x * {n} for x in numbers]",
    "above": "numbers = [x for x in numbers if x > {n}]",
    "skip": "numbers = numbers[{n}:]",
    "every": "numbers = numbers[::{n}]",
    "running": "numbers = [sum(numbers[: i + 1]) % {n} for i in range(len(numbers))]",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    name: str
    difficulty: str
    statement: str
    shown: tuple[tuple[int, ...], ...]
    """lists that the reviewer may try"""
    hidden: tuple[tuple[int, ...], ...]
    """lists that decide whether the program is right"""


def tasks() -> list[Task]:
    return [_task(number, "easy" if number < EASY else "medium") for number in range(EASY + MEDIUM)]


def _task(number: int, difficulty: str) -> Task:
    draw = luck("task", number)
    kinds = draw.choices(sorted(LINES), k=draw.randint(2, 3) if difficulty == "easy" else draw.randint(4, 6))
    steps = [f"{place}. {kind} {draw.randint(2, 9 if kind != 'every' else 3)}" for place, kind in enumerate(kinds, 1)]
    lists = [tuple(draw.randint(-5, 30) for _ in range(draw.randint(5, 12))) for _ in range(16)]
    statement = "\n".join(["Write solve(numbers). Do, in this order, and return the sum:", *steps])
    return Task(
        name=f"task-{number:02}", difficulty=difficulty, statement=statement, shown=tuple(lists[:4]), hidden=tuple(lists[4:])
    )


def steps_of(statement: str) -> list[tuple[str, int]]:
    return [(kind, int(n)) for kind, n in re.findall(r"^\d+\. (\w+) (\d+)$", statement, re.MULTILINE)]


def program(steps: Iterable[tuple[str, int]]) -> str:
    body = [LINES[kind].format(n=n) for kind, n in steps]
    return "\n    ".join(["def solve(numbers):", *body, "return sum(numbers)"])


def run_program(source: str, numbers: Iterable[int]) -> object:
    """The output of a program for a list. The program is executed and can use only arithmetic."""
    names: dict[str, Any] = {"__builtins__": {"sum": sum, "len": len, "range": range}}
    try:
        exec(source, names)
        return names["solve"](list(numbers))
    except Exception as error:
        return type(error).__name__


# -- boundaries: two models and a tool ----------------------------------------------------------------------------------


@mat.model("coder", tape="inprocess")
def write(prompt: str, max_tokens: int = 0) -> dict[str, Any]:
    """A program. The model thinks longer after each failure. If it sees a budget, it uses a part of it."""
    statement = prompt.partition("\n\n")[0]
    attempt = prompt.count("def solve") + 1
    told = re.findall(r"^    (numbers = .*)$", prompt.rpartition("def solve")[2], re.MULTILINE)
    lines = [
        LINES[kind].format(n=_read(statement, place, kind, n, attempt, told))
        for place, (kind, n) in enumerate(steps_of(statement))
    ]
    source = "\n    ".join(["def solve(numbers):", *lines, "return sum(numbers)"])
    thought = round(luck("thought", statement, attempt).lognormvariate(6.0, 1.3)) * 2 ** (attempt - 1)
    budget = left(prompt, "tokens")
    return reply(prompt, source, thought=thought if budget is None else min(thought, budget // 30), max_tokens=max_tokens)


def _read(statement: str, place: int, kind: str, n: int, attempt: int, told: list[str]) -> int:
    """The number that the model reads in a step. It gets some steps right, fixes some, and never understands others."""
    never = luck("never", statement, place).random() < 0.07
    misread = luck("misread", statement, place).random() < 0.13
    right = LINES[kind].format(n=n)
    mended = attempt > 1 and (told[place] == right or luck("mend", statement, place, attempt).random() < 0.6)
    return n + 1 if never or (misread and not mended) else n


@mat.model("reviewer", tape="inprocess")
def judge(prompt: str, max_tokens: int = 0) -> dict[str, Any]:
    """Chooses the case to try, or judges the result of a try."""
    tried = "failed" in prompt
    text = ("Approved." if " 0 failed" in prompt else "Look at the failing cases again.") if tried else "Run every case."
    thought = round(luck("review", prompt.partition("\n\n")[0], prompt.count("def solve"), tried).lognormvariate(4.5, 1.0))
    budget = left(prompt, "tokens")
    return reply(prompt, text, thought=thought if budget is None else min(thought, budget // 100), max_tokens=max_tokens)


class Bench:
    """The tool that tries programs; it knows the cases of its task."""

    def __init__(self, task: Task) -> None:
        self._task = task

    @mat.tool(effect="read")
    def test_code(self, source: str) -> dict[str, Any]:
        """Executes the program on the shown cases: {passed, failed, first}."""
        solution = program(steps_of(self._task.statement))
        wrong = [case for case in self._task.shown if run_program(source, case) != run_program(solution, case)]
        return {"passed": len(self._task.shown) - len(wrong), "failed": len(wrong), "first": list(wrong[0]) if wrong else []}


# -- the agents ---------------------------------------------------------------------------------------------------------


class Pair:
    """Coder and reviewer at one task: the same script with and without a contract.

    `work`: the contract, or None. `told`: whether the models see what is left, and replies have a limit.
    """

    def __init__(self, task: Task, work: Work | None, *, told: bool = True) -> None:
        self._task, self._work, self._told, self._bench = task, work, told, Bench(task)
        self._log: list[str] = [task.statement]
        self.iterations = 0

    def solve(self) -> str:
        source = ""
        rounds = range(1, LONGEST + 1) if self._work is None else self._work.iterations()
        try:
            for self.iterations in rounds:
                source = self._asked(write)
                self._log.append(source)
                if self._review(source):
                    break
        except mat.budget.BudgetSpent as spent:
            mat.detect(f"stopped: {spent.resource or spent.contract}")
        return source

    def _review(self, source: str) -> bool:
        with mat.agent("reviewer", role="reviewer"):
            calls = self._work.left("model_calls") if self._work is not None else None
            if calls is None or not self._told or calls > 3:  # with few calls left, try the program at once
                self._asked(judge)
            found = self._bench.test_code(source)
            self._log.append(f"{found['passed']} passed, {found['failed']} failed, first at {found['first']}")
            if self._work is not None and self._work.deliver({"source": source, **found}):
                return True
            said = self._asked(judge)
            self._log.append(said)
            return said == "Approved."

    def _asked(self, model: Any) -> str:
        """A model's reply. Under a contract the model sees what is left, and the reply has a limit, which is reserved."""
        if self._work is None or not self._told:
            return model("\n\n".join(self._log))["text"]
        return model("\n\n".join([*self._log, reminder(REVIEW, self._work.status())]), max_tokens=MOST_TOKENS)["text"]


def once(task: Task, *, contracted: bool, told: bool = True, contracts: Iterable[mat.Contract] = ()) -> Trial:
    with mat.run(contracts, task=task.name) as run:
        if contracted:
            with mat.budget.contracted(REVIEW, agent="coder") as work:
                pair = Pair(task, work, told=told)
                source = pair.solve()
        else:
            with mat.agent("coder", role="coder"):
                pair = Pair(task, None)
                source = pair.solve()
    assert run.result is not None
    solution = program(steps_of(task.statement))
    right = all(run_program(source, case) == run_program(solution, case) for case in task.hidden)
    return trial(run.result, task=task.name, group=task.difficulty, success=right, iterations=pair.iterations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The same tasks three times. `deaf`: under the contract, but the agents do not see it; only hard limits apply."""

    uncontracted: tuple[Trial, ...]
    contracted: tuple[Trial, ...]
    deaf: tuple[Trial, ...]


def experiment(contracts: Iterable[mat.Contract] = ()) -> Result:
    armed, todo = tuple(contracts), tasks()
    return Result(
        uncontracted=tuple(once(task, contracted=False) for task in todo),
        contracted=tuple(once(task, contracted=True, contracts=armed) for task in todo),
        deaf=tuple(once(task, contracted=True, told=False, contracts=armed) for task in todo),
    )


def text(result: Result) -> str:
    old, new, deaf = result.uncontracted, result.contracted, result.deaf
    rows = table(
        old, new,
        [("tokens", lambda item: item.tokens), ("iterations", lambda item: item.iterations),
            ("model calls", lambda item: item.model_calls)],
    )  # fmt: skip
    parts = [f"Code review: {len(old)} tasks ({EASY} easy, {MEDIUM} medium), each under both conditions", rows, NOTES, ""]
    parts.append(variance_text("tokens", [item.tokens for item in old], [item.tokens for item in new]))
    for group in ("easy", "medium"):
        spent = [sum(item.tokens for item in side if item.group == group) for side in (old, new)]
        parts.append(f"Tokens saved at {group} tasks: {1 - spent[1] / spent[0]:.0%}.")
    parts += [
        f"Most tokens in one run: {most(old):,} and {most(new):,}.",
        counted("How the contracts ended", (item.states[0] for item in new)),
        counted("Calls that were blocked", (why for item in new for why in item.blocked)),
        "",
        "The same contract, where the models' prompts do not mention it and their replies are not cut:",
        f"{sum(item.tokens for item in deaf) / len(deaf):,.0f} tokens on average, {most(deaf):,} at most.",
        counted("How the contracts ended", (item.states[0] for item in deaf)),
        counted("Calls that were blocked", (why or "ended" for item in deaf for why in item.blocked)),
        "",
        broken([*new, *deaf]),
    ]
    return "\n".join(parts)


def most(trials: Iterable[Trial]) -> int:
    return max(item.tokens for item in trials)

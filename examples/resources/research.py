"""A research pipeline: researcher, analyzer, reporter, each under a sub-contract of one project with 100,000 tokens in all.

The project keeps a reserve and divides the rest in proportion to how hard the work is; the researcher may search 6 times. In
one of the fifty topics the researcher's model runs away: one reply of 56,000 tokens under a budget of 40,000, which nothing can
stop while it is written. Then the researcher is stopped: its contract is violated, the next agent does not begin, and the
project has 56,000 tokens less. The rest is divided again, among agents whose replies have a limit.

UNCONTRACTED, the same agents search until they feel that they know enough, and nobody notices the runaway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any, Final

import mat
from mat.core.resources import entries_of
from mat.core.run import Run
from mat.resources import ResourceContract, Work
from mat.resources.prompting import reminder
from mat.resources.work import Delegated

from .measured import NOTES, broken, counted, table, variance_text
from .scripted import ENDED, Trial, left, luck, reply, trial

CATEGORIES: Final = ("technology", "science", "business", "health", "society")
TOPICS: Final = tuple(f"{category}-{number:02}" for category in CATEGORIES for number in range(10))
RUNAWAY: Final = "science-04"
"""Planted: the topic in which the researcher's model runs away."""
RUNAWAY_TOKENS: Final = 56_000
PROJECT: Final = ResourceContract(
    name="project", budgets={"tokens": 100_000, "tool:web_search": 12}, reserve_percent=10, depth=1
)
SHARES: Final = {"researcher": 4, "analyzer": 3, "reporter": 2}
"""The expected difficulty of the parts."""
SEARCHES: Final = 6
FACTS: Final = 12
"""The number of facts about a topic."""
AGAIN_MOST: Final = 4_000
"""Token limit of a reply when the work is repeated."""


# -- the web, and three models ------------------------------------------------------------------------------------------


class Web:
    """The content of the web about a topic: facts, each found by some searches, and rumors that look like facts."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    @mat.tool(effect="read")
    def web_search(self, query: str) -> list[str]:
        draw = luck("web", self._topic, query)
        facts = [f"fact {draw.randrange(FACTS)}" for _ in range(4)]
        noise = [f"rumour {draw.randrange(40)}" for _ in range(draw.choice((0, 1, 1, 2)))]
        return [*facts, *noise]


@mat.model("researcher", tape="inprocess")
def find_out(prompt: str, topic: str, notes: list[str], searches: int, max_tokens: int = 0) -> dict[str, Any]:
    """The next query, or "enough". A model that does not see a budget, or ignores it, decides on its own when to stop."""
    draw = luck("researcher", topic, searches)
    if topic == RUNAWAY and not max_tokens and searches == 2:
        return reply(prompt, "the topic, considered from every side", thought=RUNAWAY_TOKENS)
    allowed = left(prompt, "calls of web_search")
    habit = round(luck("patience", topic).lognormvariate(1.7, 0.6))
    deaf = luck("deaf", topic).random() < 0.1
    known = len({note for note in notes if note.startswith("fact")})
    done = known == FACTS or (searches >= habit if allowed is None or deaf else allowed == 0)
    thought = round(draw.lognormvariate(6.3, 0.7))
    return reply(prompt, "enough" if done else f"{topic}, part {searches + 1}", thought=thought, max_tokens=max_tokens)


@mat.model("analyzer", tape="inprocess")
def analyze(prompt: str, topic: str, notes: list[str], max_tokens: int = 0) -> dict[str, Any]:
    """The notes that the model accepts. With more notes, more rumors pass."""
    draw = luck("analyzer", topic)
    trusted = 0.05 + 0.01 * len(notes)
    kept = sorted({note for note in notes if note.startswith("fact") or draw.random() < trusted})
    return reply(prompt, "; ".join(kept), thought=round(draw.lognormvariate(7.0, 0.5)), max_tokens=max_tokens)


@mat.model("reporter", tape="inprocess")
def report(prompt: str, topic: str, findings: str, max_tokens: int = 0) -> dict[str, Any]:
    draw = luck("reporter", topic)
    return reply(prompt, findings, thought=round(draw.lognormvariate(6.8, 0.4)), max_tokens=max_tokens)


def quality(text: str) -> float:
    """The quality of a report from 0 to 100: the share of facts in it, less two points for every rumour."""
    told = {item for item in text.split("; ") if item}
    facts = sum(item.startswith("fact") for item in told)
    return max(0.0, 100 * facts / FACTS - 2 * (len(told) - facts))


# -- the agents ---------------------------------------------------------------------------------------------------------


def research(topic: str, work: Work | None, *, most: int = 0) -> list[str]:
    """All notes on a topic. If a search or a reply is refused, the agent goes on with the notes so far."""
    web, notes, searches = Web(topic), list[str](), 0
    try:
        while True:
            asked = find_out(_prompt(topic, notes, work), topic, notes, searches, max_tokens=most)["text"]
            if asked == "enough":
                return notes
            if not asked.startswith(topic):  # no query: the runaway reply is the only result
                return [*notes, *(f"rumour {number}" for number in range(15))]
            notes += web.web_search(asked)
            searches += 1
    except mat.budget.BudgetSpent as spent:
        mat.detect(f"research stopped: {spent.resource or spent.contract}")
        return notes


def _prompt(topic: str, notes: Sequence[str], work: Work | None) -> str:
    """The prompt: the topic, all notes with their sources, and the rest of the budget, if there is one."""
    told = "\n".join(f"{note}: {'source ' * 40}" for note in notes)
    return "\n\n".join([topic, told, *([reminder(work.contract, work.status())] if work is not None else [])])


def uncontracted(topic: str) -> str:
    with mat.agent("orchestrator", role="planner"):
        with mat.delegate("researcher", task=topic):
            notes = research(topic, None)
        with mat.delegate("analyzer", task=topic):
            findings = analyze(_prompt(topic, notes, None), topic, notes)["text"]
        with mat.delegate("reporter", task=topic):
            text: str = report(_prompt(topic, [findings], None), topic, findings)["text"]
    return text


def contracted(topic: str) -> str:
    with mat.budget.contracted(PROJECT, agent="orchestrator", role="planner") as project:
        try:
            return pipeline(topic, project)
        except mat.budget.BudgetSpent as spent:  # an agent overran its budget, and nobody after it begins
            mat.detect(f"pipeline stopped: {spent}")
        mat.mitigate("replan", reason="the pool is smaller: divide what is left, and limit every reply")
        return pipeline(topic, project, most=AGAIN_MOST)


def pipeline(topic: str, project: Work, *, most: int = 0) -> str:
    """The report. BudgetSpent if an agent does not begin because an earlier one did not fulfill its contract."""
    budgets = project.split(SHARES, ["tokens"])
    budgets["researcher"]["tool:web_search"] = SEARCHES
    before: list[Work] = []

    def part(name: str) -> Delegated:
        contract = ResourceContract(name=name).with_units(budgets[name])
        return project.delegate(contract, agent=name, task=topic, after=before)

    with part("researcher") as work:
        notes = research(topic, work, most=most)
    before.append(work)
    with part("analyzer") as work:
        findings = analyze(_prompt(topic, notes, work), topic, notes, max_tokens=most)["text"]
    before.append(work)
    with part("reporter") as work:
        text: str = report(_prompt(topic, [findings], work), topic, findings, max_tokens=most)["text"]
    return text


# -- the experiment -----------------------------------------------------------------------------------------------------

GOOD: Final = 60.0
"""The least quality of a useful report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    uncontracted: tuple[Trial, ...]
    contracted: tuple[Trial, ...]
    runaway: Run
    """the contracted run of the topic in which the researcher runs away"""


def run(topic: str, *, under_contract: bool, contracts: Iterable[mat.Contract] = ()) -> tuple[Run, str]:
    with mat.run(contracts, task=topic) as found:
        text = contracted(topic) if under_contract else uncontracted(topic)
    assert found.result is not None
    return found.result, text


def once(topic: str, *, under_contract: bool, contracts: Iterable[mat.Contract] = ()) -> Trial:
    found, text = run(topic, under_contract=under_contract, contracts=contracts)
    searches = sum(record.action.name == "web_search" and not record.blocked for record in found.records)
    score = quality(text)
    return trial(found, task=topic, group=topic.partition("-")[0], success=score >= GOOD, quality=score, iterations=searches)


def experiment(contracts: Iterable[mat.Contract] = ()) -> Result:
    armed = tuple(contracts)
    return Result(
        uncontracted=tuple(once(topic, under_contract=False) for topic in TOPICS),
        contracted=tuple(once(topic, under_contract=True, contracts=armed) for topic in TOPICS),
        runaway=run(RUNAWAY, under_contract=True, contracts=armed)[0],
    )


def text(result: Result) -> str:
    old, new = result.uncontracted, result.contracted
    rows = table(
        old, new,
        [("tokens", lambda item: item.tokens), ("searches", lambda item: item.iterations),
            ("quality", lambda item: item.quality)],
    )  # fmt: skip
    points = [[item.quality for item in side] for side in (old, new)]
    others = [[item.quality for item in side if item.task != RUNAWAY] for side in (old, new)]
    return "\n".join(
        [
            f"Research pipeline: {len(TOPICS)} topics in {len(CATEGORIES)} categories, each under both conditions",
            rows, NOTES, "",
            f"Quality, standard deviation: {stdev(points[0]):.1f} and {stdev(points[1]):.1f}.",
            variance_text("quality", *points),
            f"Without {RUNAWAY}: {variance_text('quality', *others)}",
            f"Most searches in one run: {max(item.iterations for item in old)} and {max(item.iterations for item in new)}.",
            counted("How the contracts ended", (state for item in new for state in item.states)),
            counted("Calls that were blocked", (why or "ended" for item in new for why in item.blocked)),
            broken(new),
            "",
            f"{RUNAWAY}, what became of the contracts:",
            *incident(result.runaway),
        ]
    )  # fmt: skip


def incident(found: Run) -> list[str]:
    """How each contract of a run began and ended, in the order of the ledger."""
    entries = sorted((entry for record in found.records for entry in entries_of(record)), key=lambda entry: entry.number)
    lines = []
    for entry in entries:
        if entry.event == "activated":
            given = sum(amounts.get("tokens", 0) for amounts in entry.facts["allocations"].values())
            lines.append(f"  {entry.contract} begins with {given:,} tokens")
        elif entry.event in ENDED:
            used = entry.facts["consumed"].get("tokens", 0)
            why = f": {entry.facts['cause']}" if entry.facts["cause"] else ""
            lines.append(f"  {entry.contract} is {entry.event} at {used:,} tokens{why}")
    return lines

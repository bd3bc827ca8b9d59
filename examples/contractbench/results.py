"""Tasks x agents x seeds: played, labeled twice, counted, reported.

Each episode has two labels: the server's and the validator's, out of the HTTP log (`Result`), and the library's, out of the
trace alone. Success rates come with Wilson's interval over episodes, as in the seed's section 3.2; because the seeds of one
task are correlated, each comes with an interval over tasks, too.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import multiprocessing
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import groupby
from typing import Any

import mat
from mat.core.campaign import ItemResult
from mat.measure.distribution import ShareOf, shares
from mat.measure.estimate import Estimate
from mat.measure.interval import wilson
from mat.measure.rows import Labels, RunRow, row_of
from mat.measure.sampling import clustered
from mat.report import words
from mat.report.build import build
from mat.report.document import Document
from mat.report.heat import heat_map
from mat.report.table import Column, Reworded, Table
from mat.report.terminal import in_text
from mat.report.words import rounded_percent as percent
from mat_contracts.observation import OTHER, SEVERITY, SUCCESS, axis, primary_label

from .desk import Levers
from .episode import Agent, Result, persona, play
from .hands import GaveUp, Habits
from .personas import PERSONAS
from .task import PATTERNS, QUADRANTS, Task, ids
from .task import task as the_task
from .toolbox import OutOfBudget, Tools

SCRIPTED = (Habits.name, *PERSONAS)
"""Agents by name: the oracle and the personas."""
NO_LEVERS = Levers()
NOTES = {
    "EXPIRED_BEFORE_USE": "something was used after it had expired",
    "RATE_LIMITED": "more requests were sent than the rate limit allows",
    "SCHEDULED_UNAVAILABLE": "a service was called while it was down for maintenance",
    "VERSION_CONFLICT": "something was written on the strength of a version that was out of date",
    "WRONG_VALUE": "a field was there, but its value was wrong",
    "MISSING_CONSTRAINT": "something that the protocol requires was left out",
    "MUTATED_TOKEN": "a token, URL or other artifact was not passed on byte by byte",
    "SIGNATURE_MISMATCH": "a signature did not fit what it was to sign",
    "COMPENSATION_FAILURE": "an operation failed half-way, and what had been done before was not undone",
    "WRONG_HASH": "a digest was computed wrongly",
    "SHORTCUT_TAKEN": "an easier way was taken in place of the one that was asked for",
    "MISSING_TOKEN": "a request was sent without the token that it needs",
    "BACKOFF_VIOLATION": "a request was repeated before the time that the server had asked to wait",
    OTHER: "the task was not done",
}
"""The text of a note for each label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One episode. `judged`: the label by the contracts, from the trace alone. `row`: the run in numbers.

    levers: the agent's levers. crashed: contracts that could not judge, which counts as a disagreement. raised: the exception
    of a custom agent, which ends its episode; an exception in a script ends everything.
    """

    result: Result
    judged: str
    row: RunRow
    levers: Levers = NO_LEVERS
    crashed: tuple[str, ...] = ()
    raised: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.result.task_id, self.result.agent, self.result.seed

    @property
    def agrees(self) -> bool:
        return not self.crashed and self.result.failure_label == self.judged

    def record(self) -> dict[str, Any]:
        """The result record (seed 003, appendix G), and the library's label."""
        return self.result.data() | {"library_label": self.judged}


# -- playing ----------------------------------------------------------------------------------------------------------


def played(task: Task, seed: int, agent: str | Agent, *, name: str = "", levers: Levers = NO_LEVERS) -> Episode:
    """One episode in a run of its own. `agent`: a name of `SCRIPTED`, "module:function", or the function itself."""
    name = name or (agent if isinstance(agent, str) else getattr(agent, "__name__", "agent"))
    raised: list[str] = []
    function = _function(agent, task, seed, levers, raised)
    with mat.run(contracts=task.contracts(task.given(seed)), seed=seed, task=task.id) as run:
        result, _ = asyncio.run(play(task, seed, function, name=name, levers=levers))
    found = run.result
    row = row_of(
        found, item=task.id, condition="nominal",
        labels=Labels(category=f"{task.quadrant} {task.category}", variant=name),
    )  # fmt: skip
    return Episode(
        result=result, judged=primary_label(found.violations, result.success), row=replace(row, success=result.success),
        levers=levers, crashed=tuple(item.contract for item in found.outcomes if item.outcome == "unknown"),
        raised="".join(raised),
    )  # fmt: skip


def _function(agent: str | Agent, task: Task, seed: int, levers: Levers, raised: list[str]) -> Agent:
    """The agent as a function. Exceptions of a custom agent, except at the end of its budget, are added to `raised`."""
    if isinstance(agent, str) and agent in SCRIPTED:
        return persona(agent, task, seed, levers=levers, note=levers.note)
    function = imported(agent) if isinstance(agent, str) else agent
    note = f"\n\nYour last attempt failed ({levers.note}): {NOTES[levers.note]}." if levers.note else ""

    async def guarded(instruction: str, tools: Tools) -> object:
        try:
            return await function(instruction + note, tools)
        except (OutOfBudget, GaveUp):
            raise
        except Exception as error:
            raised.append(f"{type(error).__name__}: {error}")
            raise GaveUp(raised[-1]) from error

    return guarded


def imported(name: str) -> Agent:
    """The agent function "module:function"; LookupError if it does not exist."""
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]
    except (ImportError, AttributeError) as error:
        raise LookupError(f"no agent {name!r} can be imported: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The episodes of one agent at one task: seeds, and the levers of each."""

    task: str
    name: str
    agent: str | Agent
    episodes: tuple[tuple[int, Levers], ...]

    def play(self) -> list[Episode]:
        task = the_task(self.task)
        return [played(task, seed, self.agent, name=self.name, levers=levers) for seed, levers in self.episodes]


def play_cells(cells: Sequence[Cell], *, jobs: int = 1) -> list[Episode]:
    """All episodes of cells, in their order, whatever the number of processes."""
    if jobs < 2:
        return [episode for cell in cells for episode in cell.play()]
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        return [episode for found in pool.map(Cell.play, cells, chunksize=4) for episode in found]


def suite(
    tasks: Iterable[str] = (),
    agents: Mapping[str, str | Agent] | Iterable[str] = SCRIPTED,
    *,
    seeds: int = 10,
    levers: Levers = NO_LEVERS,
    jobs: int = 1,
) -> list[Episode]:
    """Play tasks (by default all) x agents (names, or functions by name) x seeds 0 to `seeds` - 1."""
    by_name = dict(agents) if isinstance(agents, Mapping) else {name: name for name in agents}
    cells = [
        Cell(task=id, name=name, agent=agent, episodes=tuple((seed, levers) for seed in range(seeds)))
        for id in tasks or ids()
        for name, agent in by_name.items()
    ]
    return play_cells(cells, jobs=jobs)


# -- counting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Successes among episodes: Wilson's interval over episodes, and an interval over whole tasks (`by_task`)."""

    name: str
    episodes: Estimate
    by_task: Estimate


def rates(episodes: Iterable[Episode], by: Callable[[Episode], str]) -> tuple[Rate, ...]:
    """The success rate of each group, in order of first appearance."""
    groups = grouped(episodes, by)
    return tuple(
        Rate(name=name, episodes=success(found), by_task=_by_task(found, lambda item: item.result.success))
        for name, found in groups.items()
    )


def success(episodes: Sequence[Episode]) -> Estimate:
    return wilson(sum(item.result.success for item in episodes), len(episodes))


def _by_task(episodes: Iterable[Episode], fact: Callable[[Episode], bool]) -> Estimate:
    groups = grouped(episodes, lambda item: item.result.task_id)
    return clustered((sum(map(fact, found)), len(found)) for found in groups.values())


def grouped(episodes: Iterable[Episode], by: Callable[[Episode], str]) -> dict[str, list[Episode]]:
    groups: dict[str, list[Episode]] = {}
    for item in episodes:
        groups.setdefault(by(item), []).append(item)
    return groups


def labels(episodes: Iterable[Episode]) -> tuple[ShareOf, ...]:
    """How the failed episodes are distributed over labels: each label's share of them, with Wilson's interval."""
    return shares(item.result.failure_label for item in episodes if not item.result.success)


def agent_of(episode: Episode) -> str:
    return episode.result.agent


def task_of(episode: Episode) -> str:
    return episode.result.task_id


def quadrant_of(episode: Episode) -> str:
    return the_task(episode.result.task_id).quadrant


def pattern_of(episode: Episode) -> str:
    return the_task(episode.result.task_id).pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Episodes of one agent at one task that server and library label differently. `reason`: the task's, if any."""

    task: str
    agent: str
    server: str
    judged: str
    seeds: tuple[int, ...]
    reason: str = ""


def agreement(episodes: Sequence[Episode]) -> Rate:
    """The share of episodes with the same label by server and library."""
    return Rate(
        name="agreement", episodes=wilson(sum(item.agrees for item in episodes), len(episodes)),
        by_task=_by_task(episodes, lambda item: item.agrees),
    )  # fmt: skip


def disagreements(episodes: Iterable[Episode]) -> tuple[Disagreement, ...]:
    found: dict[tuple[str, str, str, str], list[Episode]] = {}
    for item in episodes:
        if not item.agrees:
            said = f"crashed: {', '.join(item.crashed)}" if item.crashed else item.judged
            found.setdefault((item.result.task_id, item.result.agent, item.result.failure_label, said), []).append(item)
    return tuple(
        Disagreement(
            task=task, agent=agent, server=server, judged=judged, seeds=tuple(item.result.seed for item in items),
            reason=_reason(task, agent),
        )
        for (task, agent, server, judged), items in found.items()
    )  # fmt: skip


def _reason(task: str, agent: str) -> str:
    """What the task's promises say about a disagreement: DISAGREEMENTS, by agent."""
    promises = importlib.import_module(f"{__package__}.tasks.{task.replace('-', '_')}.promises")
    return str(getattr(promises, "DISAGREEMENTS", {}).get(agent, ""))


def unstable(episodes: Iterable[Episode]) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Agents whose label on a task depends on the seed: (task, agent, labels)."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for item in episodes:
        found.setdefault(item.key[:2], {})[item.result.failure_label] = None
    return tuple((task, agent, tuple(sorted(said))) for (task, agent), said in found.items() if len(said) > 1)


def digest(episodes: Iterable[Episode]) -> str:
    """SHA-256 over the trace hashes of all episodes with their keys: equal for equal suites, in any order."""
    lines = sorted(f"{'/'.join(map(str, item.key))} {item.result.trace_hash}" for item in episodes)
    return sha256("\n".join(lines).encode()).hexdigest()


# -- as data ----------------------------------------------------------------------------------------------------------


def as_data(episodes: Sequence[Episode]) -> dict[str, Any]:
    """The result records and their summary. Nothing in them depends on the machine or the time of day."""
    return {
        "episodes": [item.record() for item in episodes],
        "summary": {
            "trace_hash": digest(episodes),
            "success": {
                by: {rate.name: _rate(rate) for rate in rates(episodes, key)}
                for by, key in (("agent", agent_of), ("quadrant", quadrant_of), ("pattern", pattern_of), ("task", task_of))
            },
            "pass_rate": {
                task: {agent: success(found).value for agent, found in grouped(of_task, agent_of).items()}
                for task, of_task in grouped(episodes, task_of).items()
            },
            "labels": {
                "all": _shares(episodes),
                **{
                    by: {name: _shares(found) for name, found in grouped(episodes, key).items() if labels(found)}
                    for by, key in (("agent", agent_of), ("quadrant", quadrant_of), ("pattern", pattern_of))
                },
            },
            "agreement": _rate(agreement(episodes)),
            "disagreements": [asdict(item) for item in disagreements(episodes)],
            "raised": [
                {"task": item.result.task_id, "agent": item.result.agent, "seed": item.result.seed, "error": item.raised}
                for item in episodes
                if item.raised
            ],
            "unstable": [{"task": task, "agent": agent, "labels": said} for task, agent, said in unstable(episodes)],
        },
    }


def _rate(rate: Rate) -> dict[str, Any]:
    return asdict(rate.episodes) | {"by_task": {"low": rate.by_task.low, "high": rate.by_task.high}}


def _shares(episodes: Iterable[Episode]) -> dict[str, Any]:
    return {share.name: {"count": share.count} | asdict(share.share) for share in labels(episodes)}


def to_json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


# -- as text ----------------------------------------------------------------------------------------------------------

SHORT = {
    "EXPIRED_BEFORE_USE": "EX", "MUTATED_TOKEN": "MU", "SIGNATURE_MISMATCH": "SM", "WRONG_HASH": "WH", "SHORTCUT_TAKEN": "ST",
    "COMPENSATION_FAILURE": "CF", "VERSION_CONFLICT": "VC", "WRONG_VALUE": "WV", "MISSING_TOKEN": "MT",
    "MISSING_CONSTRAINT": "MC", "BACKOFF_VIOLATION": "BV", "RATE_LIMITED": "RL", "SCHEDULED_UNAVAILABLE": "SU", OTHER: "OT",
}  # fmt: skip
"""Two letters of each label, for narrow tables."""


_WIDE = 132
"""The width of the table of all tasks and agents, unless the terminal is narrower."""


def text(episodes: Sequence[Episode], *, failures: bool = False, width: int | None = None) -> str:
    """The summary of the suite, for a terminal. `failures`: with the first failed episode of every task and agent."""
    tables = [_by_agent(episodes), _by_pattern(episodes), _by_label(episodes)]
    said = [in_text([table for table in tables if table.rows], width=width)]
    said.append(in_text([_matrix(episodes)], width=width or _WIDE))
    if seen := [label for label in SEVERITY if any(item.result.failure_label == label != SUCCESS for item in episodes)]:
        said.append(words.wrap(f"{', '.join(f'{SHORT[label]} {label}' for label in seen)}.", width=width or words.WIDTH))
    if failures:
        said.append(in_text([_details(episodes)], width=width))
    return "\n\n".join([*(each.strip("\n") for each in said if each), _agreed(episodes, width), _repeatable(episodes)])


def _by_agent(episodes: Sequence[Episode]) -> Table:
    of_agent = grouped(episodes, agent_of)
    return Table(
        name="agents", title="Success rate by agent",
        note="shares of episodes with Wilson's 95% interval; by task: the interval if each task counts as one observation",
        n_in="episodes",
        columns=(
            Column(name="agent", key=True), Column(name="episodes"), Column(name="success"), Column(name="by task"),
            *(Column(name=f"{quadrant} {name}") for quadrant, name in QUADRANTS.items()),
        ),
        rows=tuple(
            (
                rate.name, rate.episodes.n, rate.episodes, _ends(rate.by_task),
                *(_share(item for item in of_agent[rate.name] if quadrant_of(item) == quadrant) for quadrant in QUADRANTS),
            )
            for rate in rates(episodes, agent_of)
        ),
    )  # fmt: skip


def _by_pattern(episodes: Sequence[Episode]) -> Table:
    """Results by topic for all agents together, without the oracle, which would hide the others' failures."""
    among = [item for item in episodes if item.result.agent != Habits.name] or list(episodes)
    groups = [(name, [item for item in among if quadrant_of(item) == name]) for name in QUADRANTS]
    groups += [(name, [item for item in among if pattern_of(item) == name]) for name in PATTERNS]
    return Table(
        name="patterns", title="Success rate by quadrant and pattern", n_in="episodes",
        note="all agents but the oracle",
        columns=(
            Column(name="of", title="quadrant or pattern", key=True), Column(name="tasks"), Column(name="episodes"),
            Column(name="success"), Column(name="by task"), Column(name="labels", title="failed with"),
        ),
        rows=tuple(
            (
                f"{name} {QUADRANTS[name]}" if name in QUADRANTS else name, len(grouped(found, task_of)), len(found),
                success(found), _ends(_by_task(found, lambda item: item.result.success)), _most(labels(found)),
            )
            for name, found in groups
            if found
        ),
    )  # fmt: skip


def _by_label(episodes: Sequence[Episode]) -> Table:
    failed = [item for item in episodes if not item.result.success]
    of_label = grouped(failed, lambda item: item.result.failure_label)
    return Table(
        name="labels", title=f"Labels of {words.plural(len(failed), 'failed episode')}", n_in="failed",
        note="share of the failed episodes with Wilson's interval; by quadrant: episodes",
        columns=(
            Column(name="label", key=True), Column(name="axis"), Column(name="episodes"), Column(name="share"),
            *(Column(name=quadrant) for quadrant in QUADRANTS), Column(name="agents"),
        ),
        rows=tuple(
            (
                share.name, axis(share.name), share.count, share.share,
                *(sum(quadrant_of(item) == quadrant for item in of_label[share.name]) for quadrant in QUADRANTS),
                len(grouped(of_label[share.name], agent_of)),
            )
            for share in labels(failed)
        ),
    )  # fmt: skip


def _matrix(episodes: Sequence[Episode]) -> Table:
    """The pass rate of every task and agent, and the label that most of its failures have."""
    agents = list(grouped(episodes, agent_of))
    rows = []
    for task, of_task in grouped(sorted(episodes, key=quadrant_of), task_of).items():
        of_agent = grouped(of_task, agent_of)
        rows.append((f"{the_task(task).quadrant} {task}", *(_pass_rate(of_agent.get(agent, [])) for agent in agents)))
    return Table(
        name="tasks", title="Pass rate by task and agent", note="per cent of the seeds, with the most frequent label",
        columns=(Column(name="task", key=True), *(Column(name=agent) for agent in agents)), rows=tuple(rows),
    )  # fmt: skip


def _pass_rate(episodes: Sequence[Episode]) -> Reworded | None:
    if not episodes:
        return None
    share, found = success(episodes).value or 0.0, labels(episodes)
    return Reworded(text=f"{100 * share:.0f}" + (f" {SHORT[found[0].name]}" if found else ""), value=share)


def _details(episodes: Sequence[Episode]) -> Table:
    rows = []
    for (task, agent), items in groupby(episodes, key=lambda item: item.key[:2]):
        failed = [item.result for item in items if not item.result.success]
        if failed:
            detail = ", ".join(f"{key}={value}" for key, value in failed[0].failure_detail.items() if value not in ("", None))
            rows.append((task, agent, len(failed), failed[0].failure_label, detail))
    names = ("task", "agent", "failed", "label", "first failure")
    return Table(
        name="failures", title="Failures", columns=tuple(Column(name=name, key=name in names[:2]) for name in names),
        rows=tuple(rows),
    )  # fmt: skip


def _agreed(episodes: Sequence[Episode], width: int | None) -> str:
    rate, found = agreement(episodes), disagreements(episodes)
    said = f"Server and library agree on {words.quantity(rate.episodes, 'share')} episodes, by task {_ends(rate.by_task)}."
    table = Table(
        name="disagreements", title="Disagreements",
        columns=(
            Column(name="task", key=True), Column(name="agent", key=True), Column(name="server"), Column(name="library"),
            Column(name="episodes"), Column(name="reason"),
        ),
        rows=tuple((item.task, item.agent, item.server, item.judged, len(item.seeds), item.reason) for item in found),
    )  # fmt: skip
    return said + (f"\n{in_text([table], width=width)}" if found else "")


def _repeatable(episodes: Sequence[Episode]) -> str:
    varied = unstable(episodes)
    said = "Each agent has one label at each task, on every seed." if not varied else "\n".join(
        f"{agent} has several labels at {task}: {', '.join(found)}." for task, agent, found in varied
    )  # fmt: skip
    if crashed := [item for item in episodes if item.raised]:
        (task, agent, seed), error = crashed[0].key, crashed[0].raised
        told = f"{words.plural(len(crashed), 'episode')} ended by what an agent raised"
        said = f"{told}; {agent} at {task}, seed {seed}: {error}\n{said}"
    return f"{said}\nTrace hash of {words.plural(len(episodes), 'episode')}: {digest(episodes)}"


def _ends(estimate: Estimate) -> str:
    return "" if estimate.low is None else f"[{percent(estimate.low)}, {percent(estimate.high)}]"


def _share(episodes: Iterable[Episode]) -> str:
    found = success(list(episodes)).value
    return "-" if found is None else percent(found)


def _most(found: Sequence[ShareOf]) -> str:
    return ", ".join(f"{SHORT[share.name]} {share.count}" for share in found[:4])


# -- as a page --------------------------------------------------------------------------------------------------------


def document(episodes: Sequence[Episode]) -> Document:
    """The episodes as a `mat` report. Agents take the place of governance variants, so its heat map is tasks x agents.

    Its cells name the server's label; everything else comes from the library.
    """
    said = {(item.row.item, item.row.variant, item.row.seed): item.result.failure_label for item in episodes}
    results = [
        ItemResult(
            id=task, status="nominal" if all(item.agrees for item in of_task) else "missed", category=quadrant_of(of_task[0])
        )
        for task, of_task in grouped(episodes, task_of).items()
    ]
    rows = [item.row for item in episodes]
    heat = heat_map(
        sorted(rows, key=lambda row: row.category), title="Pass rate by task and agent", down="task", across="agent",
        why=lambda row: said[row.item, row.variant, row.seed],
    )  # fmt: skip
    return replace(build(results, rows), heat_maps=(heat,))

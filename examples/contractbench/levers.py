"""Levers: help that a stack can give its agents, compared on the same tasks, agents and seeds (seed 003, appendix A, 4.4).

    ttl      a field of each reply says when its artifacts expire
    handles  an agent gets and passes on a short handle instead of an artifact
    backoff  the client waits as long as the server requests before it sends the next request to that place
    note     a failed episode is played again with a note that names its label ("correct"), one that is far from it ("wrong"),
             or nothing ("none", a naive retry)

A pair is one episode without and one with the lever. Differences have two intervals: one over episodes (Newcombe), and one in
which whole tasks are resampled, because the seeds of a task are correlated. In McNemar's test an observation is a task and an
agent; it passes if all of its seeds do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from mat.measure.estimate import Estimate
from mat.measure.paired import PairedShares, mcnemar, paired_difference, paired_shares
from mat.report import words
from mat.report.table import Column, Table
from mat.report.terminal import in_text
from mat.report.words import rounded_percent as percent
from mat_contracts.observation import FAILURES, INTEGRITY, SEVERITY, VALIDITY, axis

from .desk import Levers
from .episode import Agent
from .results import Cell, Episode, agreement, disagreements, labels, play_cells
from .results import task_of as _task

CONDITIONS: dict[str, Levers] = {"ttl": Levers(ttl=True), "handles": Levers(handles=True), "backoff": Levers(backoff=True)}
Note = Literal["none", "wrong", "correct"]
NOTES: tuple[Note, ...] = ("none", "wrong", "correct")


def far(label: str) -> str:
    """The label that a wrong note names: the label of the other axis that is farthest away in the severity order.

    OTHER is on no axis; its wrong note names the farthest of all labels.
    """
    among = {"validity": INTEGRITY, "integrity": VALIDITY}.get(axis(label), FAILURES)
    return max(among, key=lambda other: abs(SEVERITY.index(other) - SEVERITY.index(label)))


def noted(label: str, note: Note) -> str:
    """The label that a note names after an episode that ended with `label`; "" for no note."""
    return {"none": "", "wrong": far(label), "correct": label}[note]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of a condition over pairs of episodes: success, new minus old.

    by_task: the interval in which whole tasks are resampled. p_value: McNemar's, over pairs of (task, agent).
    """

    name: str
    old: str
    new: str
    episodes: PairedShares
    by_task: Estimate
    p_value: float | None


def effect(name: str, old: Sequence[Episode], new: Sequence[Episode], *, names: tuple[str, str]) -> Effect:
    """Two conditions on the same episodes, in the same order. ValueError if the episodes differ."""
    if [item.key for item in old] != [item.key for item in new]:
        raise ValueError("a pair is the same task, agent and seed under each condition")
    pairs = [(one.result.success, other.result.success) for one, other in zip(old, new, strict=True)]
    cells: dict[tuple[str, str], list[tuple[bool, bool]]] = {}
    for item, pair in zip(old, pairs, strict=True):
        cells.setdefault(item.key[:2], []).append(pair)
    whole = [(all(one for one, _ in found), all(other for _, other in found)) for found in cells.values()]
    return Effect(
        name=name, old=names[0], new=names[1], episodes=paired_shares(pairs),
        by_task=paired_difference(((float(one), float(other)) for one, other in pairs), by=[_task(item) for item in old]),
        p_value=mcnemar(sum(one and not other for one, other in whole), sum(other and not one for one, other in whole)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """Failed episodes of one label ("all" for all): their number, and how many passed after each note."""

    label: str
    failed: int
    passed: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The effects of the levers, those of the notes on failed episodes, and these by label."""

    levers: tuple[Effect, ...]
    by_agent: Mapping[str, tuple[Effect, ...]]
    notes: tuple[Effect, ...]
    retried: tuple[Retried, ...]
    episodes: Mapping[str, Sequence[Episode]]


def measured(base: Sequence[Episode], agents: Mapping[str, str | Agent], *, jobs: int = 1) -> Measured:
    """Replay the episodes of `base` that have no levers with each lever, and the failed ones with each note."""
    under = {name: _again(base, agents, [levers] * len(base), jobs) for name, levers in CONDITIONS.items()}
    found = tuple(effect(name, base, new, names=("off", "on")) for name, new in under.items())
    failed = [item for item in base if not item.result.success]
    retries = {
        note: _again(failed, agents, [Levers(note=noted(item.result.failure_label, note)) for item in failed], jobs)
        for note in NOTES
    }
    pairs: tuple[tuple[Note, Note], ...] = (("none", "correct"), ("none", "wrong"), ("wrong", "correct"))
    return Measured(
        levers=found,
        by_agent={
            agent: tuple(
                effect(name, _of(agent, base), _of(agent, new), names=("off", "on")) for name, new in under.items()
            )
            for agent in agents
        },
        notes=tuple(effect("note", retries[old], retries[new], names=(old, new)) for old, new in pairs) if failed else (),
        retried=_retried(failed, retries),
        episodes={**under, **{f"note {note}": again for note, again in retries.items()}},
    )  # fmt: skip


def _again(
    episodes: Sequence[Episode], agents: Mapping[str, str | Agent], levers: Sequence[Levers], jobs: int
) -> list[Episode]:
    """The same episodes with other levers, a cell for each run of episodes of one task and agent."""
    cells: list[Cell] = []
    for item, with_levers in zip(episodes, levers, strict=True):
        task, name, seed = item.key
        if cells and (cells[-1].task, cells[-1].name) == (task, name):
            cells[-1] = replace(cells[-1], episodes=(*cells[-1].episodes, (seed, with_levers)))
        else:
            cells.append(Cell(task=task, name=name, agent=agents[name], episodes=((seed, with_levers),)))
    return play_cells(cells, jobs=jobs)


def _of(agent: str, episodes: Sequence[Episode]) -> list[Episode]:
    return [item for item in episodes if item.result.agent == agent]


def _retried(failed: Sequence[Episode], retries: Mapping[Note, Sequence[Episode]]) -> tuple[Retried, ...]:
    found = []
    for label in (*(share.name for share in labels(failed)), "all"):
        places = [place for place, item in enumerate(failed) if label in (item.result.failure_label, "all")]
        passed = {note: sum(again[place].result.success for place in places) for note, again in retries.items()}
        found.append(Retried(label=label, failed=len(places), passed=passed))
    return tuple(found) if failed else ()


def as_data(found: Measured) -> dict[str, Any]:
    """The effects, and the result record of every episode under every condition."""
    return {
        "levers": [asdict(each) for each in found.levers],
        "by_agent": {agent: [asdict(each) for each in effects] for agent, effects in found.by_agent.items()},
        "notes": [asdict(each) for each in found.notes],
        "disagreements": {name: [asdict(each) for each in disagreements(items)] for name, items in found.episodes.items()},
        "retried": [{"label": each.label, "failed": each.failed, "passed": dict(each.passed)} for each in found.retried],
        "episodes": {
            name: [item.record() | {"levers": asdict(item.levers)} for item in items] for name, items in found.episodes.items()
        },
    }


# -- as text ----------------------------------------------------------------------------------------------------------


def text(found: Measured, *, width: int | None = None) -> str:
    tables = [_effects("Levers, all agents", found.levers), _by_agent(found)]
    if found.notes:
        tables += [_effects("Notes on failed episodes", found.notes), _retries(found)]
    told = [f"{name} {percent(agreement(items).episodes.value)}" for name, items in found.episodes.items() if items]
    agreed = words.wrap(f"Server and library agree: {', '.join(told)}.", width=width or words.WIDTH)
    tables.append(_apart(found))
    shown = in_text([table for table in tables if table.rows], width=width)
    return "\n\n".join((shown.strip("\n"), agreed))


def _effects(title: str, effects: Sequence[Effect]) -> Table:
    names = ("lever", "of", "pairs", "passed", "then", "lost", "gained", "points", "Newcombe", "by task", "McNemar's p")
    return Table(
        name="levers", title=title, columns=tuple(Column(name=name, key=name in ("lever", "of")) for name in names),
        note="paired by task, agent and seed; p counts each task with one agent as one observation",
        rows=tuple(
            (
                each.name, f"{each.old} -> {each.new}", each.episodes.table.pairs, percent(each.episodes.old.value),
                percent(each.episodes.new.value), each.episodes.table.only_old, each.episodes.table.only_new,
                _points(each.episodes.difference.value), _between(each.episodes.difference), _between(each.by_task),
                "-" if each.p_value is None else "< 0.0001" if each.p_value < 0.0001 else f"{each.p_value:.4f}",
            )
            for each in effects
        ),
    )  # fmt: skip


def _by_agent(found: Measured) -> Table:
    """Success without levers, and what each lever changes, agent by agent."""
    return Table(
        name="levers_by_agent", title="Levers by agent", note="points of the success rate, interval by task",
        columns=(Column(name="agent", key=True), Column(name="off"), *(Column(name=name) for name in CONDITIONS)),
        rows=tuple(
            (
                agent, percent(effects[0].episodes.old.value),
                *(f"{_points(each.episodes.difference.value)} {_between(each.by_task)}" for each in effects),
            )
            for agent, effects in found.by_agent.items()
        ),
    )  # fmt: skip


def _retries(found: Measured) -> Table:
    return Table(
        name="retries", title="Passed on the second attempt, by the label of the first",
        note="far: the label that the wrong note names",
        columns=(
            Column(name="label", key=True), Column(name="failed"), *(Column(name=f"note {note}") for note in NOTES),
            Column(name="far"),
        ),
        rows=tuple(
            (each.label, each.failed, *(each.passed[note] for note in NOTES), "" if each.label == "all" else far(each.label))
            for each in found.retried
        ),
    )  # fmt: skip


def _apart(found: Measured) -> Table:
    names = ("condition", "task", "agent", "server", "library")
    return Table(
        name="disagreements", title="Disagreements of server and library under levers",
        columns=(*(Column(name=name, key=name in names[:3]) for name in names), Column(name="episodes")),
        rows=tuple(
            (name, each.task, each.agent, each.server, each.judged, len(each.seeds))
            for name, items in found.episodes.items()
            for each in disagreements(items)
        ),
    )  # fmt: skip


def _points(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f}"


def _between(estimate: Estimate) -> str:
    low, high = ("..." if end is None else f"{100 * end:+.1f}" for end in (estimate.low, estimate.high))
    return f"[{low}, {high}]"

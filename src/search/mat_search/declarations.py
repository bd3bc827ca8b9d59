"""What declaring the effect of a tool would save: the same search once more, over the runs that it executed, as if declared.

Nothing is estimated. A search without the declaration has executed every run that a search with it asks for, but for those
that it skipped because an equal state came from a point that the declaration leaves out; these are executed. Contracts are
not judged again: a contract that breaks only because an undeclared call counts as a write is counted as broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from mat.core.record import Record
from mat.core.run import Run
from mat.core.spec import RunSpec, Schedule
from mat_search.campaign import Campaign, SearchStopped
from mat_search.engine import STRATEGIES, search


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclarationSaving:
    """`effect="read"` at these tools saves `saves` of the `executions` that the search takes today."""

    tools: tuple[str, ...]
    saves: int
    executions: int


class _KnownRuns:
    """The runs of a finished search by schedule, shown as if some tools were declared to read; others are executed."""

    def __init__(self, known: Mapping[Schedule, Run], execute: Callable[[Schedule], Run]) -> None:
        self._known, self._execute = dict(known), execute

    def run(self, schedule: Schedule, tools: frozenset[str]) -> Run:
        found = self._known.get(schedule)
        if found is None:
            found = self._known[schedule] = self._execute(schedule)
        return _as_declared(found, tools)


def undeclared(runs: Iterable[Run]) -> tuple[str, ...]:
    """The tools of unknown effect that these runs called."""
    actions = (record.action for run in runs for record in run.records)
    return tuple(sorted({action.name for action in actions if action.effect == "unknown"}))


def savings(
    nominal: Run, known: Mapping[Schedule, Run], execute: Callable[[Schedule], Run], campaign: Campaign
) -> tuple[DeclarationSaving, ...]:
    """What declaring each undeclared tool a read would save, alone and (last) all together; most first, none without a saving.

    `known`: the runs of the search from `nominal`. `execute` makes a run that is not among them. Only searches that prove
    something are counted: others execute as many runs as they may.
    """
    strategy, names = STRATEGIES.get(campaign.strategy), undeclared(known.values())
    if strategy is None or not getattr(strategy, "proves", False) or not names:
        return ()
    runs = _KnownRuns({**known, nominal.spec.schedule: nominal}, execute)
    campaign = replace(campaign, curve=0)
    try:
        before = _executions(nominal, runs, campaign, frozenset())
        groups = [(name,) for name in names] + ([names] if len(names) > 1 else [])
        counted = [(group, before - _executions(nominal, runs, campaign, frozenset(group))) for group in groups]
    except SearchStopped:
        return ()
    found = [DeclarationSaving(tools=group, saves=saves, executions=before) for group, saves in counted if saves > 0]
    return tuple(sorted(found, key=lambda item: (len(item.tools), -item.saves, item.tools)))


def _executions(nominal: Run, runs: _KnownRuns, campaign: Campaign, tools: frozenset[str]) -> int:
    def evaluate(spec: RunSpec) -> Run:
        return runs.run(spec.schedule, tools)

    return search(_as_declared(nominal, tools), evaluate, campaign).executions


def _as_declared(run: Run, tools: frozenset[str]) -> Run:
    """The run as it would be recorded if these tools were declared to read."""
    if not tools:
        return run
    return replace(run, records=tuple(_declared_record(record, tools) for record in run.records))


def _declared_record(record: Record, tools: frozenset[str]) -> Record:
    action = record.action
    if action.effect != "unknown" or action.name not in tools:
        return record
    return replace(record, action=replace(action, effect="read"))

"""Confirmation in fresh processes (`--mat-confirm`): `confirmer` in the session, `answer` in the process that it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pytest

from mat.core.errors import MatError
from mat.core.run import Run
from mat.core.spec import Schedule
from mat_study.evaluation import Evaluated, Lost, Plan
from mat_study.fresh import FreshAnswer, FreshBatch, FreshFrame, FreshProcesses, HashSeed
from mat_study.pristine import SendFrame
from mat_study.settings import ItemSettings
from mat_study.sources import Sources
from pytest_mat.evaluators import ItemEvaluator, LostItem, reports_of
from pytest_mat.fresh_item import fresh_item
from pytest_mat.options import session_began_ns
from pytest_mat.protocol import Reports
from pytest_mat.reused import sources_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedBatch:
    """In a fresh process: the batch to execute, its plans and those that come later, and where its answers go."""

    batch: FreshBatch
    plans: Iterable[Plan]
    send: SendFrame

    def answer(self, given: Evaluated | Lost, sources: Sources) -> None:
        """Send an answer; `sources` knows those that had been imported when the item was collected."""
        answer = FreshAnswer.of(given)
        if isinstance(given, LostItem):
            answer = replace(answer, detail=_failure(given.reports))
        if self.batch.more:
            answer = replace(answer, sources=tuple(sources.since_first().items()))
            self.send(FreshFrame(kind="answer", packed=answer.packed()))
        else:
            self.send(FreshFrame(kind="answer", answer=answer))


def _failure(reports: Sequence[pytest.TestReport]) -> str:
    """The exception of the first report that failed."""
    crash = next((getattr(each.longrepr, "reprcrash", None) for each in reports if each.failed), None)
    return "" if crash is None else str(crash.message)


BATCH: Final = pytest.StashKey[RequestedBatch]()


def confirmer(
    item: pytest.Item, processes: FreshProcesses, variant: str, hash_seed: HashSeed, *, recorded: bool
) -> Callable[[Sequence[Schedule]], Iterator[Run | str]]:
    """How the study of this item confirms schedules: a function that executes them in one fresh process.

    It yields each run as soon as it is ready; for a lost one, why it is.
    """

    def confirm(schedules: Sequence[Schedule]) -> Iterator[Run | str]:
        plans = _plans(variant, schedules)
        found = processes.execute(fresh_item(item, recorded=recorded), plans, hash_seed=hash_seed, runs_only=True)
        for answer in found:
            why = (each.partition("\n")[0] for each in (answer.why, answer.detail) if each)
            yield answer.run or ": ".join(why)

    return confirm


def begin(
    item: pytest.Item, processes: FreshProcesses, variant: str, batches: Sequence[tuple[HashSeed, Sequence[Schedule]]], *,
    recorded: bool,
) -> bool:  # fmt: skip
    """Begin what such functions will be asked for next; returns whether that is done at the same time."""
    return processes.begin_batches(
        fresh_item(item, recorded=recorded), [(seed, _plans(variant, schedules)) for seed, schedules in batches]
    )


def _plans(variant: str, schedules: Sequence[Schedule]) -> list[Plan]:
    return [Plan(mode="search", schedule=schedule, variant=variant) for schedule in schedules]


def requested_settings(item: pytest.Item, settings: ItemSettings) -> ItemSettings:
    """In a fresh process: the settings under which the item is executed there."""
    batch = item.config.stash[BATCH].batch
    variants = tuple(dict.fromkeys(plan.variant for plan in batch.plans if plan.variant))
    return replace(settings, variants=variants, live_calls=0 if batch.item.recorded else settings.live_calls)


def ends_at_once(item: pytest.Item) -> bool:
    """Whether this is a fresh process in which it does not matter what its one execution leaves behind."""
    return bool(item.config.getoption("mat_confirm")) and item.config.stash[BATCH].batch.ends_at_once


def answer(item: pytest.Item, evaluate: ItemEvaluator) -> Reports:
    """In a fresh process: execute the requested plans. Returns the reports of the last, which nobody reads."""
    requested, reports = item.config.stash[BATCH], Reports()
    sources = Sources(session_began_ns())
    if requested.batch.more:
        sources.new()
        requested.send(FreshFrame(kind="collected", sources=sources_of(item)))
    for plan in requested.plans:
        try:
            given = evaluate.here(plan)
        except (KeyboardInterrupt, SystemExit, pytest.exit.Exception) as ended:
            requested.answer(Lost(plan=plan, why=f"{type(ended).__name__} ended it", outcome="error"), sources)
        else:
            requested.answer(given, sources)
            reports = reports_of(given)
            if any(each.remedy == "fork" for each in given.outlived):
                break  # the rest is executed in another process
    return reports


def refuse(item: pytest.Item, error: MatError) -> None:
    """In a fresh process: answer that no plan has a run, because the item's settings are invalid there."""
    requested = item.config.stash[BATCH]
    if requested.batch.more:
        requested.send(FreshFrame(kind="failed", text=str(error)))
        return
    for plan in requested.plans:
        requested.answer(Lost(plan=plan, why=str(error), refused=True), Sources(session_began_ns()))

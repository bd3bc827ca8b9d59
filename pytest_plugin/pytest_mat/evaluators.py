"""The evaluator of one item: it runs set-up, body and tear-down in this process, in a fork of it, or in a fresh process.

Each returns what a study needs, together with pytest's reports, which only the plugin uses.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import pytest
from _pytest.outcomes import TEST_OUTCOME

from mat.boundary.cassette import LiveCallsSpent
from mat.core.codec import decode, encode
from mat.core.errors import MatError
from mat.core.run import Run
from mat.kernel.isolation import OutlivedState
from mat.kernel.reads import Read
from mat.measure.workload import Workload
from mat_study.evaluation import REPORTED, Evaluated, Evaluator, Lost, Plan, TestOutcome
from mat_study.fresh import FreshEvaluator
from mat_study.live import LiveCalls, unanswered
from mat_study.searches import HASH_SEEDS
from mat_study.settings import ItemSettings
from mat_study.tasks import Judged
from pytest_mat.execution import EXECUTION, Execution, tear_down
from pytest_mat.fresh_item import fresh_item
from pytest_mat.isolated import IsolatedItem
from pytest_mat.protocol import Reports, SlimProtocol, execute_in_full, why_in_full
from pytest_mat.session import session_of


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedItem(Evaluated):
    reports: Reports


@dataclass(frozen=True, slots=True, kw_only=True)
class LostItem(Lost):
    reports: Reports


class ItemEvaluator:
    """Executes plans of one item. Under stress and in an evaluation, a run that made live calls is executed again, until all of
    its replies come from the cassette: only such a run is repeatable. `alone`: the process ends after one execution.
    """

    def __init__(self, item: pytest.Item, settings: ItemSettings, live: LiveCalls, *, alone: bool = False) -> None:
        self._item, self._settings, self._live = item, settings, live
        self._repeats = item.config.getoption("mat_stress") or item.config.getoption("mat_evaluate")
        self._task = session_of(item.config).workloads.get(item.nodeid, Workload())
        self._known: EvaluatedItem | None = None
        self._confirms = bool(item.config.getoption("mat_confirm"))
        alone = alone or not (self._repeats or self._confirms)
        self._isolated = None if alone else IsolatedItem(item, recorded=live.recorded)

    @cached_property
    def _slim(self) -> SlimProtocol | None:
        return SlimProtocol(self._item) if isinstance(self._item, pytest.Function) and not why_in_full(self._item) else None

    def __call__(self, plan: Plan) -> EvaluatedItem | LostItem:
        if not self._repeats:
            return self.here(plan)
        left: dict[OutlivedState, None] = {}
        given = self._live.until_served(
            lambda: self.here(plan),
            lambda execution: isinstance(execution, LostItem) and (bool(execution.unanswered) or plan.mode == "search"),
            discard=lambda: left.update(dict.fromkeys(() if self._isolated is None else self._isolated.discard())),
        )
        return replace(given, outlived=(*left, *given.outlived)) if left else given

    def forked(self, known: Evaluated) -> Evaluator:
        """An evaluator that executes each plan in a new process that has executed nothing; a plan with an adversary in a fork
        of this process. `known`: an execution of the item; contracts, workload and variants are taken from it.
        """
        self.put_back()
        session = session_of(self._item.config)
        fresh = FreshEvaluator(
            session.fresh, fresh_item(self._item, recorded=self._live.recorded), known, hash_seed=HASH_SEEDS[0]
        )

        def execute(plan: Plan) -> Evaluated | Lost:
            return self.in_fork(plan) if plan.adversary is not None else self._live.until_recorded(fresh, self, plan)

        return execute

    def here(self, plan: Plan) -> EvaluatedItem | LostItem:
        """In this process: the whole item once more, unreported, from the state before its first execution."""
        if self._isolated is None:
            return self._execute_item(plan)
        given, outlived = self._isolated.execute(lambda: self._execute_item(plan))
        if self._confirms:  # whoever asked for this execution does not see what it read
            return replace(given, outlived=outlived, read=self.read())
        return replace(given, outlived=outlived) if outlived else given

    def read(self) -> tuple[Read, ...]:
        """What executions in this process have read so far."""
        return () if self._isolated is None else self._isolated.read

    def finish(self) -> None:
        """Leave the process as it was before a search; a single execution leaves what it likes."""
        if self._isolated is not None:
            self._isolated.finish()

    def put_back(self) -> None:
        """Put back what the last execution left. Called before another process begins from this one, which inherits it."""
        if self._isolated is not None:
            self._isolated.put_back()

    def shares(self) -> bool:
        """Whether executions at the same time could meet: by what they write, where they listen, or whom they call."""
        return self._isolated is None or self._isolated.shares

    def look_apart(self) -> tuple[OutlivedState, ...]:
        """What the last executions have changed in the modules of other tests."""
        return () if self._isolated is None else self._isolated.look_apart()

    def looks(self) -> int | None:
        """How often nothing had changed there; None if there are no others."""
        return None if self._isolated is None else self._isolated.looks

    def settle(self, function: Callable[[], object]) -> None:
        """Call a function whose changes belong to the state to begin from. An execution must have taken place."""
        if self._isolated is None:
            function()
        else:
            self._isolated.settle(function)

    def _execute_item(self, plan: Plan) -> EvaluatedItem | LostItem:
        execution = self._item.stash[EXECUTION] = Execution.of(plan, self._settings, self._live, task=self._task)
        try:
            reports = self._run_protocol(plan)
        finally:
            del self._item.stash[EXECUTION]
        outcome, plan = _outcome(reports), execution.plan
        if execution.run is not None and (outcome == "passed" or plan.mode in REPORTED):
            self._known = EvaluatedItem(
                plan=plan, run=execution.run, outcome=outcome, task=execution.task, judged=execution.judged,
                contracts=execution.contracts, shared=execution.shared, variants=execution.variants, reports=reports,
            )  # fmt: skip
            return self._known
        failed_outside = outcome == "error"
        refused = None if execution.tape is None else execution.tape.refused
        return LostItem(
            plan=plan, why=_lost_reason(reports, execution), outcome=outcome, refused=execution.refused and not failed_outside,
            unanswered=unanswered(refused), missing=refused.missing if isinstance(refused, LiveCallsSpent) else None,
            task=execution.task, variants=execution.variants, reports=reports,
        )  # fmt: skip

    def _run_protocol(self, plan: Plan) -> Reports:
        """Execute the whole item once. Nobody reads the reports of a search, unless an execution gives no run."""
        item = self._item
        try:
            if plan.mode != "search" or self._slim is None:
                return execute_in_full(item)
            return self._slim.execute()
        except BaseException:
            _reset_item(item)
            raise

    def in_fork(self, plan: Plan) -> EvaluatedItem | LostItem:
        """In a forked child, which has a copy of this process's memory: an adversary is a function, which cannot be sent."""
        if not hasattr(os, "fork"):
            raise MatError(
                "an adversary cannot search this item on this platform",
                why="its runs need forked processes, which this platform does not have",
                fix="use another strategy", where=self._item.nodeid,
            )  # fmt: skip
        known = self._known
        assert known is not None  # the first execution of an item is reported, and takes place in this process
        self.put_back()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(reading)
                evaluated = self.here(plan)
                if isinstance(evaluated, EvaluatedItem):
                    data = json.dumps([encode(evaluated.run), encode(evaluated.judged)]).encode()
                    with os.fdopen(writing, "wb") as stream:
                        stream.write(data)
                    status = 0
            finally:
                os._exit(status)
        os.close(writing)
        with os.fdopen(reading, "rb") as stream:
            received = stream.read()
        os.waitpid(child, 0)
        if not received:
            return self.here(plan)  # fails here too, and reports why
        run, task = json.loads(received)
        return replace(
            known, plan=plan, run=decode(Run, run, where="fork"), judged=decode(Judged, task, where="fork"), outcome="passed",
            reports=[],
        )  # fmt: skip


def reports_of(execution: Evaluated | Lost) -> Reports:
    """The reports of an execution that an `ItemEvaluator` made."""
    assert isinstance(execution, EvaluatedItem | LostItem)
    return execution.reports


def _reset_item(item: pytest.Item) -> None:
    """Undo what an interrupt left half-way: the next execution must not see its remains, even if a tear-down fails too."""
    with suppress(*TEST_OUTCOME, BaseExceptionGroup):
        item.session._setupstate.teardown_exact(item.parent)  # type: ignore[arg-type]
    tear_down(item)
    item._request = False  # type: ignore[attr-defined]
    item.funcargs = None  # type: ignore[attr-defined]


def _outcome(reports: Sequence[pytest.TestReport]) -> TestOutcome:
    if any(report.failed and report.when != "call" for report in reports):
        return "error"
    if any(report.failed for report in reports):
        return "failed"
    return "skipped" if any(report.skipped for report in reports) else "passed"


def _lost_reason(reports: Sequence[pytest.TestReport], execution: Execution) -> str:
    """Why an execution gave no run. Equal causes give equal texts."""
    bad = next((each for each in reports if not each.passed), None)
    if bad is None:
        return "no run"
    if bad.skipped:
        return "skipped"
    return _PHASE_FAILURES.get(bad.when or "") or execution.why or "body failed"


_PHASE_FAILURES: Final = {"setup": "set-up failed", "teardown": "tear-down failed"}

"""The one place where a schedule becomes a Run: it is known, was recorded, was begun by a worker, or is executed now.

A search asks in one order, whoever executes. Workers only begin early what will probably be asked; what they give is taken
when the search asks for it, and thrown away where it never does. So neither workers nor a resumed journal change a result:
the counts are those of a search that executed everything itself, in its own order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Protocol, TypeAlias

from mat.core import limits
from mat.core.adversary import Choose
from mat.core.run import Run
from mat.core.spec import RunSpec, Schedule

Evaluate: TypeAlias = Callable[[RunSpec], Run]
Adapt: TypeAlias = Callable[[RunSpec, Choose], Run]
"""A run during which somebody chooses perturbations; its spec carries what was chosen."""


class Journal(Protocol):
    """Finished executions that outlive the process. What is given back is what was executed by the same code, or nothing."""

    def recall(self, schedule: Schedule) -> Run | None: ...
    def keep(self, schedule: Schedule, run: Run) -> None: ...


class Executions:
    """Executes schedules under one spec. `count` is how many executions the search has asked for."""

    def __init__(
        self,
        spec: RunSpec,
        evaluate: Evaluate,
        *,
        vary: Evaluate | None = None,
        adapt: Adapt | None = None,
        executor: Executor | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._spec, self._evaluate = spec, evaluate
        self._vary, self._adapt = vary or evaluate, adapt
        self._executor, self._journal = executor, journal
        self._begun: OrderedDict[Schedule, Future[Run]] = OrderedDict()
        self._asked: OrderedDict[Schedule, Run] = OrderedDict()
        self._plain: OrderedDict[Schedule, Run] = OrderedDict() if vary is not None else self._asked
        self.lookahead = 0 if executor is None else 8
        self.same_as_plain = vary is None
        self.count = 0
        self.recalled = 0

    def explore(self, schedule: Schedule) -> Run:
        """The run that a strategy asks for; it may be one that tells what perturbations could be exchanged for."""
        known = self._asked.get(schedule)
        if known is not None:
            return known
        run = self._recalled(schedule)
        if run is None:
            begun = self._begun.pop(schedule, None)
            run = self._vary(self._spec.under(schedule)) if begun is None else begun.result()
            if self._journal is not None:
                self._journal.keep(schedule, run)
        self.count += 1
        return _kept(self._asked, schedule, run)

    def _recalled(self, schedule: Schedule) -> Run | None:
        run = None if self._journal is None else self._journal.recall(schedule)
        self.recalled += run is not None
        return run

    def adapted(self, policy: Choose) -> Run:
        """A run during which `policy` chooses."""
        assert self._adapt is not None
        self.count += 1
        return self._adapt(self._spec, policy)

    def plain(self, schedule: Schedule) -> Run:
        """A plain run, as a person would execute it; executed once."""
        known = self._plain.get(schedule)
        return self.again(schedule) if known is None else known

    def again(self, schedule: Schedule) -> Run:
        """A plain run executed now, whatever is known: for repetitions."""
        run = self._evaluate(self._spec.under(schedule))
        self.count += 1
        return _kept(self._plain, schedule, run)

    def begin(self, schedules: Iterable[Schedule]) -> None:
        """Let workers begin what will probably be explored."""
        if self._executor is None:
            return
        for schedule in schedules:
            if schedule not in self._begun and schedule not in self._asked:
                self._begun[schedule] = self._executor.submit(self._vary, self._spec.under(schedule))

    def close(self) -> None:
        """Give up what was begun and never asked for."""
        for begun in self._begun.values():
            begun.cancel()
        self._begun.clear()


def _kept(runs: OrderedDict[Schedule, Run], schedule: Schedule, run: Run) -> Run:
    """Keep a run for as long as there is room; the oldest goes first."""
    runs[schedule] = run
    if len(runs) > limits.RUNS_KEPT:
        runs.popitem(last=False)
    return run

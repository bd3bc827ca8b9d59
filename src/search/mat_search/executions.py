"""The only place where a schedule becomes a Run: it is known already, kept in a journal, executed by a worker, or executed now.

A search requests runs in one order, whoever executes them. Workers only start probable requests early; their runs are used when
the search requests them, and discarded if it never does. So neither workers nor a resumed journal change a result: the counts
are those of a search that executed everything itself, in its own order. If a worker fails for any reason, the schedule is
executed in this process, where an error shows as it would without workers.

`explore` serves strategies; `plain` and `again` serve checks, shrinking and confirmation; `adapted` is for runs in which a
policy chooses. A journal separates these kinds and returns executions in their recorded order: the n-th execution
of a schedule is recalled as the n-th.
"""

from __future__ import annotations

import os
import platform
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from functools import partial
from pickle import PicklingError
from threading import Lock
from typing import Any, Final, Protocol, TypeAlias

from mat.core import limits
from mat.core.adversary import Choose
from mat.core.errors import SpecError
from mat.core.run import Finding, Run
from mat.core.spec import NO_SCHEDULE, RunSpec, Schedule
from mat.kernel.clock import real_monotonic

Evaluate: TypeAlias = Callable[[RunSpec], Run]
Adapt: TypeAlias = Callable[[RunSpec, Choose], Run]
"""Executes a run in which a policy chooses perturbations; the run's spec has the chosen schedule."""
Note: TypeAlias = Callable[[Run], None]
"""Called with every execution that a search takes, once and in order, whoever executed it."""

_PER_WORKER: Final = 2
"""Schedules begun per worker: the current one and the next."""
_FAILURES: Final = 3
"""The search goes on without workers after they failed on this many schedules that this process could execute."""
_FIRST_S: Final = 60.0
"""The least real seconds to wait as long as no worker has answered: a cluster may lose a task silently."""
_PATIENCE_S: Final = 15.0
"""The least real seconds to wait for a worker once others have answered; meanwhile this process could have executed it."""
_PATIENCE: Final = 10
"""A worker may take this many times as long as the slowest one so far."""


class RunJournal(Protocol):
    """Finished executions that survive the end of the process. Recalls only what the same code executed."""

    def recall(self, kind: str, schedule: Schedule) -> Run | None:
        """The next execution that was kept under this kind and schedule; each is recalled once."""

    def holds(self, kind: str, schedule: Schedule) -> bool:
        """Whether `recall` would return a run."""

    def keep(self, kind: str, schedule: Schedule, run: Run) -> None:
        """Keep a run, which then survives the end of the process. Called from any thread."""


class Executions:
    """Executes schedules under one spec. `count` is how many executions the search has requested.

    `executor`: any whose tasks run in other processes; SpecError for one whose tasks run in this process. `findings` reports
    problems with it. `recalled` counts runs from the journal.
    """

    def __init__(
        self,
        spec: RunSpec,
        evaluate: Evaluate,
        *,
        vary: Evaluate | None = None,
        adapt: Adapt | None = None,
        executor: Executor | None = None,
        journal: RunJournal | None = None,
        note: Note | None = None,
    ) -> None:
        if isinstance(executor, ThreadPoolExecutor):
            raise _in_this_process("a ThreadPoolExecutor runs its tasks in this process")
        self._spec, self._evaluate = spec, evaluate
        self._vary, self._adapt = vary or evaluate, adapt
        self._executor, self._journal, self._note = executor, journal, note
        self._worker_runs: OrderedDict[Schedule, _WorkerRun] = OrderedDict()
        self._explored: OrderedDict[Schedule, Run] = OrderedDict()
        self._plain: OrderedDict[Schedule, Run] = OrderedDict() if vary is not None else self._explored
        self._records = 0
        self._failures = self._late = 0
        self._answered = False
        self._longest_s = 0.0
        self._workers = 0 if executor is None else _worker_count(executor)
        self.same_as_plain = vary is None
        self.count = 0
        self.recalled = 0
        self.findings: tuple[Finding, ...] = ()

    # -- what a search asks for -------------------------------------------------------------------------------------

    def explore(self, schedule: Schedule) -> Run:
        """The run that a strategy asks for, which may report equivalence classes of perturbations."""
        known = self._explored.get(schedule)
        if known is not None:
            return known
        run = self._recall("explore", schedule)
        if run is None:
            run = self._from_worker(schedule)
        return self._store(self._explored, schedule, run)

    def adapted(self, policy: Choose) -> Run:
        """A run in which `policy` chooses perturbations."""
        assert self._adapt is not None
        run = self._recall("adapted", NO_SCHEDULE)
        if run is None:
            run = self._adapt(self._spec, policy)
            self._keep("adapted", NO_SCHEDULE, run)
        return self._count_run(run)

    def plain(self, schedule: Schedule) -> Run:
        """A plain run, without concolic values; each schedule is executed once."""
        known = self._plain.get(schedule)
        return self.again(schedule) if known is None else known

    def again(self, schedule: Schedule) -> Run:
        """A plain run executed now, even if the schedule is known: for repetitions."""
        run = self._recall("plain", schedule)
        if run is None:
            run = self._evaluate(self._spec.under(schedule))
            self._keep("plain", schedule, run)
        return self._store(self._plain, schedule, run)

    def _store(self, runs: OrderedDict[Schedule, Run], schedule: Schedule, run: Run) -> Run:
        """Keep a run as long as there is room; the oldest is dropped first."""
        replaced = runs.pop(schedule, None)
        self._records += len(run.records) - (0 if replaced is None else len(replaced.records))
        runs[schedule] = run
        while len(runs) > 1 and (len(runs) > limits.RUNS_KEPT or self._records > limits.RECORDS_KEPT):
            self._records -= len(runs.popitem(last=False)[1].records)
        return self._count_run(run)

    def _count_run(self, run: Run) -> Run:
        self.count += 1
        if self._note is not None:
            self._note(run)
        return run

    # -- the journal ------------------------------------------------------------------------------------------------

    def _recall(self, kind: str, schedule: Schedule) -> Run | None:
        run = None if self._journal is None else self._journal.recall(kind, schedule)
        self.recalled += run is not None
        return run

    def _keep(self, kind: str, schedule: Schedule, run: Run) -> None:
        if self._journal is not None:
            self._journal.keep(kind, schedule, run)

    # -- workers ----------------------------------------------------------------------------------------------------

    @property
    def lookahead(self) -> int:
        """How many schedules workers should have; 0 without workers."""
        return 0 if self._executor is None else _PER_WORKER * (getattr(self._executor, "_max_workers", None) or self._workers)

    def begin(self, schedules: Iterable[Schedule]) -> None:
        """Let workers start schedules that will probably be explored. Runs they finish are kept at once.

        An executor with an attribute `batch` sends so many together, and so gets so many together.
        """
        waiting, lookahead = sum(not begun.future.done() for begun in self._worker_runs.values()), self.lookahead
        if lookahead - waiting < getattr(self._executor, "batch", 1):
            return
        for schedule in schedules:
            if self._executor is None or waiting >= lookahead:
                break
            if schedule in self._worker_runs or schedule in self._explored or self._in_journal(schedule):
                continue
            try:
                future = self._executor.submit(work, self._vary, self._spec.under(schedule), _this_process())
            except RuntimeError as error:  # broken, or shut down by its owner
                self._give_up(f"no work could be sent to them: {_error_text(error)}")
                break
            self._worker_runs[schedule] = begun = _WorkerRun(future, partial(self._keep, "explore", schedule))
            future.add_done_callback(begun.finished)
            waiting += 1
            if len(self._worker_runs) > limits.RUNS_KEPT:
                self._worker_runs.popitem(last=False)

    def _in_journal(self, schedule: Schedule) -> bool:
        return self._journal is not None and self._journal.holds("explore", schedule)

    def _from_worker(self, schedule: Schedule) -> Run:
        """A worker's run of a schedule; executed here if no worker began or finished it."""
        begun = self._worker_runs.pop(schedule, None)
        failure = None if begun is None else self._wait_for(begun)
        if begun is not None and begun.run is not None:
            return begun.run
        run = self._vary(self._spec.under(schedule))
        if failure is not None:
            self._note_failure(failure)
        self._keep("explore", schedule, run)
        return run

    def _wait_for(self, begun: _WorkerRun) -> BaseException | None:
        """Wait for a worker, much longer than for any other so far; returns its failure, or None."""
        least_s = _PATIENCE_S if self._answered else _FIRST_S
        failure = begun.wait(max(least_s, _PATIENCE * self._longest_s))
        if failure is None:
            self._longest_s = max(self._longest_s, real_monotonic() - begun.began_s)
            self._answered, self._late = True, 0
        return failure

    def _note_failure(self, error: BaseException) -> None:
        """Note that a worker failed on a schedule that this process could execute."""
        if self._executor is None or isinstance(error, Declined):
            return
        late = isinstance(error, TimeoutError)  # one slow worker among others that answer is no reason to give up all of them
        self._late += late
        self._failures += not late
        if isinstance(error, BrokenExecutor):
            self._give_up(f"a worker died: {_error_text(error)}")
        elif self._failures >= _FAILURES:
            self._give_up(f"{self._failures} runs failed in workers but not in the searching process: {_error_text(error)}")
        elif self._late >= _FAILURES:
            self._give_up(f"{self._late} runs in a row were not answered: {_error_text(error)}")

    def _give_up(self, why: str) -> None:
        """Continue without workers; runs they finished are still used, and no other is waited for."""
        self._executor = None
        for schedule, begun in list(self._worker_runs.items()):
            if not begun.future.done():
                begun.abandon()
                del self._worker_runs[schedule]
        self.findings += (Finding(code="workers-lost", message=f"the search continued without workers: {why}"),)

    def close(self) -> None:
        """Cancel what was begun but never requested."""
        for begun in self._worker_runs.values():
            begun.future.cancel()
        self._worker_runs.clear()


class _WorkerRun:
    """A run requested from a worker. `keep` is called with it once, as soon as it is finished."""

    def __init__(self, future: Future[Run], keep: Callable[[Run], None]) -> None:
        self.future = future
        self.began_s = real_monotonic()
        self.run: Run | None = None
        self._keep: Callable[[Run], None] | None = keep
        self._lock = Lock()

    def finished(self, future: Future[Run]) -> None:
        """Called when the future is done, perhaps in another thread."""
        with self._lock:  # a second caller finds `_keep` cleared
            if self._keep is None or future.cancelled() or future.exception() is not None:
                return
            keep, self._keep = self._keep, None
            self.run = future.result()
            keep(self.run)

    def abandon(self) -> None:
        """This process executes the schedule: an answer that comes later counts for nothing."""
        with self._lock:
            self._keep = None
        self.future.cancel()

    def wait(self, most_s: float) -> BaseException | None:
        """Wait for the run, at most `most_s` real seconds; returns the failure, or None."""
        if self.future.cancelled():
            return None
        try:
            failure = self.future.exception(timeout=most_s)
        except CancelledError:
            return None
        except TimeoutError:
            self.abandon()
            return TimeoutError(f"a worker did not answer within {most_s:.0f} s")
        if failure is None:
            self.finished(self.future)
        elif isinstance(failure, UnfitWorkersError):
            raise failure
        elif isinstance(failure, PicklingError) or (
            isinstance(failure, AttributeError | TypeError) and "pickle" in str(failure)
        ):
            raise SpecError(
                what=f"the search cannot be sent to another process: {failure}",
                why="workers receive evaluate and a RunSpec and return a Run, all of them pickled",
                fix="pass a module-level function as evaluate, not a lambda or a nested function",
            )
        return failure


def work(evaluate: Evaluate, spec: RunSpec, asked_by: tuple[str, int]) -> Run:
    """Execute a spec in a worker. SameProcessError if this is not another process."""
    if asked_by == _this_process():
        raise _in_this_process("the executor runs its tasks in the process that searches")
    return evaluate(spec)


class Declined(Exception):  # noqa: N818  (it is an answer)
    """A worker leaves a schedule to the searching process; this is not an error."""


class UnfitWorkersError(SpecError):
    """Workers that must not be used: what they execute could differ from what this process does. It ends the search."""


class SameProcessError(UnfitWorkersError):
    """An executor whose tasks run in the searching process."""


def _in_this_process(what: str) -> SameProcessError:
    return SameProcessError(
        what=what,
        why="a run controls the clock, the randomness and the threads of its whole process",
        fix="use processes: concurrent.futures.ProcessPoolExecutor, dask's Client(processes=True), or --mat-workers",
    )


def _this_process() -> tuple[str, int]:
    return platform.node(), os.getpid()


def _worker_count(executor: Executor) -> int:
    """How many tasks an executor runs at once, as far as it reports that."""
    count = getattr(executor, "_max_workers", None)
    client: Any = getattr(executor, "_client", None)  # of dask.distributed
    if count is None and hasattr(client, "nthreads"):
        count = sum(client.nthreads().values())
    return count or os.cpu_count() or 1


def _error_text(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

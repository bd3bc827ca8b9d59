"""Jobs of executors inside a run: they inherit the submitter's context and run one at a time, in the order submitted.

Submitted from an event loop, a job starts when the loop has nothing else to do, and the loop waits for it. Submitted from
plain code, it runs to its end before `submit` returns. A job that has not ended after a grace of real time (because it
waits for something its submitter does later) goes on in parallel, and the run is marked: its order is not controlled.
Plain threads inherit the context too; a step they take marks the run.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Final

from mat.core import limits
from mat.kernel import clock as clocks

_REPORT_S: Final = 0.2
"""Real seconds a loop waits for the result of an ended job; a job whose result nobody awaits never reports."""


class Job:
    """One call handed to an executor. `future` is what its submitter waits for, where it is known."""

    __slots__ = ("_call", "_context", "_gate", "_jobs", "calls_loop", "done", "future")

    def __init__(self, jobs: Jobs, call: Callable[[], Any], context: Context | None) -> None:
        self._jobs, self._call, self._context = jobs, call, context
        self._gate = threading.Event()
        self.done = threading.Event()
        self.future: Any = None
        self.calls_loop = False

    @property
    def cancelled(self) -> bool:
        return self.future is not None and bool(self.future.cancelled())

    def open(self) -> None:
        self._jobs.running.append(self)
        self._gate.set()

    def __call__(self) -> Any:
        self._gate.wait()
        jobs, ident = self._jobs, threading.get_ident()
        jobs.owned.add(ident)
        jobs.controlled.add(ident)
        jobs.by_thread[ident] = self
        try:
            return self._call() if self._context is None else self._context.run(self._call)
        finally:
            jobs.owned.discard(ident)
            jobs.controlled.discard(ident)
            jobs.by_thread.pop(ident, None)
            if jobs.reports:
                jobs.reporting[ident] = clocks.real_monotonic()
            if self in jobs.running:
                jobs.running.remove(self)
            self.done.set()


class Jobs:
    """The jobs and threads of one world. `owned` holds the idents of the threads that belong to the run.

    `reporting` holds threads that have ended a job and not yet told their loop: until then the loop is not idle.
    """

    __slots__ = ("_note", "by_thread", "controlled", "helpers", "owned", "plain", "reporting", "reports", "running", "waiting")

    def __init__(self, note: Callable[[str, str], None]) -> None:
        self.owned: set[int] = {threading.get_ident()}
        self.controlled: set[int] = set(self.owned)
        self.by_thread: dict[int, Job] = {}
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.reports = False
        self.reporting: dict[int, float] = {}
        self.plain: list[threading.Thread] = []
        self.helpers: list[threading.Thread] = []
        self._note = note

    def submit(self, call: Callable[[], Any], hand_over: Callable[[Job], Any], *, from_loop: bool) -> Any:
        """Give a call to an executor through `hand_over`, which returns the executor's future."""
        job = Job(self, call, copy_context())
        if from_loop:
            job.future = hand_over(job)
            self.reports = True
            self.waiting.append(job)
            return job.future
        job.open()
        try:
            job.future = hand_over(job)
        except BaseException:  # the executor refused it: it will never run
            self.running.remove(job)
            raise
        if not job.done.wait(limits.THREAD_GRACE_S):
            self._note("order-not-controlled", "an executor's job waits for its submitter, so the two run in parallel")
        return job.future

    def queue(self, call: Callable[[], Any], future: Any) -> Job:
        """A call that a library hands to a worker thread of its own."""
        job = Job(self, call, None)
        job.future = future
        self.reports = True
        self.waiting.append(job)
        return job

    def busy(self) -> bool:
        """Whether a job runs or has a result on its way to the loop; opens the next waiting one if none runs."""
        self.running = [job for job in self.running if not job.cancelled]
        if self.running:
            return True
        if self.reporting:
            since = clocks.real_monotonic() - _REPORT_S
            self.reporting = {ident: ended for ident, ended in self.reporting.items() if ended > since}
            if self.reporting:
                return True
        while self.waiting:
            job = self.waiting.popleft()
            if not job.cancelled:
                job.open()
                return True
        return False

    def called_loop(self) -> None:
        """The calling thread has told its loop something: the end of a job, or something in its middle."""
        ident = threading.get_ident()
        job = self.by_thread.get(ident)
        if job is not None:
            job.calls_loop = True
        self.reporting.pop(ident, None)

    def waits_for_loop(self) -> bool:
        """Whether every running job has called the loop, and so may be waiting for an answer."""
        return bool(self.running) and all(job.calls_loop for job in self.running)

    def open_all(self) -> None:
        """At the end of a world nothing may stay behind a closed gate."""
        while self.waiting:
            self.waiting.popleft().open()

    def adopt(self, thread: threading.Thread) -> None:
        """A plain thread started inside a run: it inherits the context, its order is not ours."""
        context, run = copy_context(), thread.run

        def inherited() -> None:
            self.owned.add(threading.get_ident())
            try:
                context.run(run)
            finally:
                self.owned.discard(threading.get_ident())

        thread.run = inherited  # type: ignore[method-assign]
        self.plain.append(thread)

    def controls_thread(self) -> bool:
        """Whether the calling thread's turn is decided here: the run's own, or a job."""
        return threading.get_ident() in self.controlled

    def helpers_alive(self) -> bool:
        self.helpers = [thread for thread in self.helpers if thread.is_alive()]
        return bool(self.helpers)

    def threads_alive(self) -> bool:
        self.plain = [thread for thread in self.plain if thread.is_alive()]
        return bool(self.plain)

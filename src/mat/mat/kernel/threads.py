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
from typing import Any

from mat.core import limits


class Job:
    """One call handed to an executor."""

    __slots__ = ("_call", "_context", "_gate", "_jobs", "done")

    def __init__(self, jobs: Jobs, call: Callable[[], Any], context: Context) -> None:
        self._jobs, self._call, self._context = jobs, call, context
        self._gate = threading.Event()
        self.done = threading.Event()

    def open(self) -> None:
        self._jobs.running.append(self)
        self._gate.set()

    def __call__(self) -> Any:
        self._gate.wait()
        ident = threading.get_ident()
        self._jobs.owned.add(ident)
        self._jobs.controlled.add(ident)
        try:
            return self._context.run(self._call)
        finally:
            self._jobs.owned.discard(ident)
            self._jobs.controlled.discard(ident)
            if self in self._jobs.running:
                self._jobs.running.remove(self)
            self.done.set()


class Jobs:
    """The jobs and threads of one world. `owned` holds the idents of the threads that belong to the run."""

    __slots__ = ("_note", "controlled", "helpers", "owned", "plain", "running", "waiting")

    def __init__(self, note: Callable[[str, str], None]) -> None:
        self.owned: set[int] = {threading.get_ident()}
        self.controlled: set[int] = set(self.owned)
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.plain: list[threading.Thread] = []
        self.helpers: list[threading.Thread] = []
        self._note = note

    def submit(self, call: Callable[[], Any], hand_over: Callable[[Job], Any], *, from_loop: bool) -> Any:
        """Give a call to an executor through `hand_over`, which returns the executor's future."""
        job = Job(self, call, copy_context())
        if from_loop:
            self.waiting.append(job)
            return hand_over(job)
        job.open()
        future = hand_over(job)
        if not job.done.wait(limits.THREAD_GRACE_S):
            self._note("order-not-controlled", "an executor's job waits for its submitter, so the two run in parallel")
        return future

    def open_next(self) -> bool:
        """Let the next waiting job run, if none is running."""
        if self.running:
            return True
        if self.waiting:
            self.waiting.popleft().open()
            return True
        return False

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

"""Executors whose results are received when somebody asks for one: this process starts no thread for them.

A run waits for threads around it, and the search executes some of its runs in this process.
"""

from __future__ import annotations

from abc import abstractmethod
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any

from mat.kernel.clock import real_monotonic


class WorkerDied(BrokenExecutor):
    """A worker ended without an answer: it was killed, or its agent ended the process."""


class WorkerFailed(Exception):  # noqa: N818  (named after what happened)
    """A task raised an exception in a worker, with its text; repeating the task here raises the exception itself."""


class ReceivingExecutor(Executor):
    """Its futures call `take`, which receives what is available; `closed`: nothing will come any more."""

    closed = False

    @abstractmethod
    def take(self, timeout: float | None = 0) -> None:
        """Receive the available results, waiting at most `timeout` real seconds, and hand out waiting tasks."""

    def until(self, answer: Future[Any], timeout: float | None) -> None:
        """Receive results until that of `answer` is among them."""
        deadline = None if timeout is None else real_monotonic() + timeout
        while not Future.done(answer):
            left = None if deadline is None else deadline - real_monotonic()
            if self.closed or (left is not None and left <= 0):
                return
            self.take(left)


class Answer(Future[Any]):
    """A future whose result is received when somebody asks for it."""

    def __init__(self, pool: ReceivingExecutor) -> None:
        super().__init__()
        self._pool = pool

    def done(self) -> bool:
        if not super().done():
            self._pool.take()
        return super().done()

    def result(self, timeout: float | None = None) -> Any:
        self._pool.until(self, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._pool.until(self, timeout)
        return super().exception(0)

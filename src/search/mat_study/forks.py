"""Worker processes that evaluate one item (--mat-workers): forked when its search begins, ended with it.

A fork inherits the collected item and its module and session fixtures as they are at that moment, so nothing is
imported, collected or set up again. Its changes to them stay in the fork: this process alone tears them down, once. A worker
reads schedules from a pipe and writes runs into it, and nothing else: it has no terminal, no report and no files of this
session, and it exits without the exit handlers of this process.
"""

from __future__ import annotations

import os
import pickle
import signal
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from io import BytesIO
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Final, TypeVar, cast

from mat.core.errors import MatError
from mat_search.executions import Declined
from mat_study.receiving import Answer, ReceivingExecutor, WorkerDied, WorkerFailed

T = TypeVar("T")
_SMALL: Final = 16_384
"""A task of at most so many bytes is sent to a worker that has not answered its current one. It fits into the pipe, so this
process never waits for a worker that waits for this process."""
_DECISIONS: Final = ("SearchStopped", "LiveCallsSpent", "Unanswered")
"""Raised by an evaluation that must not go on; the searching process has to make that decision itself."""


class Forked(ReceivingExecutor):
    """An Executor that runs tasks in forks of this process, started at the first task.

    `inherited`: objects that tasks may refer to without pickling, because every fork has them. `put_back` is called here before
    each fork, to put back what the last execution left: the fork would inherit it. `prepare` is called in each new fork.
    `sidecar(result)` is called there after each task, and `unpack(result, sidecar)` here before anybody gets the result.
    `failed` is called here with the name of the exception that ended a task.
    Results are received whenever somebody asks for one or submits a task.
    """

    def __init__(
        self,
        count: int,
        *,
        inherited: Sequence[object] = (),
        put_back: Callable[[], None] = lambda: None,
        prepare: Callable[[], None] = lambda: None,
        sidecar: Callable[[Any], Any] = lambda result: None,
        unpack: Callable[[Any, Any], None] = lambda result, sidecar: None,
        failed: Callable[[str], object] = lambda kind: None,
    ) -> None:
        refuse_without_fork()
        self._max_workers = count
        self._inherited = tuple(inherited)
        self._put_back, self._prepare, self._sidecar, self._unpack = put_back, prepare, sidecar, unpack
        self._failed = failed
        self._workers: list[_Worker] = []
        self._waiting: deque[tuple[Answer, bytes]] = deque()

    def submit(self, function: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        if self.closed:
            raise RuntimeError("the workers have exited")
        task = _pickle((function, arguments, named), self._inherited)
        while len(self._workers) < self._max_workers:
            self._workers.append(self._fork())
        answer: Answer = Answer(self)
        self._waiting.append((answer, task))
        self.take()
        return answer

    def take(self, timeout: float | None = 0) -> None:
        """Receive the available results, waiting at most `timeout` real seconds, and hand out waiting tasks."""
        self._hand_out()
        busy = {worker.pipe: worker for worker in self._workers if worker.tasks}
        for pipe in wait(list(busy), timeout) if busy else ():
            self._receive(busy[cast(Connection, pipe)])
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting:
            alive = [worker for worker in self._workers if worker.alive]
            if not alive:
                _fail(self._waiting.popleft()[0], WorkerDied("no worker is left"))
                continue
            worker = min(alive, key=lambda each: len(each.tasks))
            answer, task = self._waiting[0]
            if worker.tasks and (len(worker.tasks) > 1 or len(task) > _SMALL):
                return
            self._waiting.popleft()
            worker.give(answer, task)

    def _receive(self, worker: _Worker) -> None:
        try:
            good, value, sidecar = pickle.loads(worker.pipe.recv_bytes())
        except (EOFError, OSError):
            _fail(worker.next(), WorkerDied(f"worker {worker.process} {worker.wait()}"))
            self._waiting.extendleft(reversed(worker.tasks))
            worker.tasks.clear()
            return
        except Exception as error:  # an answer that cannot be unpickled here
            _fail(worker.next(), WorkerFailed(f"{type(error).__name__}: {error}"))
            return
        except BaseException:  # half an answer was read, and its other half would corrupt the next answer
            worker.end()
            raise
        answer = worker.next()
        if not good:
            self._failed(sidecar)
            _fail(answer, Declined(value) if sidecar in _DECISIONS else WorkerFailed(value))
        elif not answer.cancelled():
            self._unpack(value, sidecar)
            answer.set_result(value)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers and abandon their current tasks: whoever needs a result has waited for it."""
        self.closed = True
        while self._waiting:
            answer, _ = self._waiting.popleft()
            if not answer.cancel():  # it was the task of a worker that died
                _fail(answer, WorkerDied("the workers were shut down"))
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    # -- in the fork ------------------------------------------------------------------------------------------------

    def _fork(self) -> _Worker:
        self._put_back()
        here, there = Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about threads that are not a run's: no run has begun
            process = os.fork()
        if process:
            there.close()
            return _Worker(process, here)
        status = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the searching process
            here.close()
            for sibling in self._workers:  # else their pipes would outlive this process's parent
                sibling.pipe.close()
            self._prepare()
            self._serve(there)
            status = 0
        finally:
            os._exit(status)

    def _serve(self, pipe: Connection) -> None:
        with suppress(EOFError, OSError):  # the parent has exited, or has no more tasks
            while True:
                pipe.send_bytes(self._run_task(pipe.recv_bytes()))

    def _run_task(self, task: bytes) -> bytes:
        try:
            function, arguments, named = _unpickle(task, self._inherited)
            result = function(*arguments, **named)
            return pickle.dumps((True, result, self._sidecar(result)), pickle.HIGHEST_PROTOCOL)
        except BaseException as error:
            kind = type(error).__name__
            return pickle.dumps((False, f"{kind}: {error}", kind))


class _Worker:
    """A forked process, this end of its pipe, and its tasks: the current one and the next."""

    def __init__(self, process: int, pipe: Connection) -> None:
        self.process, self.pipe = process, pipe
        self.tasks: deque[tuple[Answer, bytes]] = deque()
        self.alive = True

    def give(self, answer: Answer, task: bytes) -> None:
        """Send a task, unless it is the only one and was cancelled."""
        if not self.tasks and not _begins(answer):
            return
        self.tasks.append((answer, task))
        with suppress(OSError):  # it is dead, which the end of its pipe will show
            self.pipe.send_bytes(task)

    def next(self) -> Answer:
        """Go on to the next task. Returns the answer of the one that has ended."""
        answer, _ = self.tasks.popleft()
        if self.tasks:
            _begins(self.tasks[0][0])  # if it was cancelled, its result is dropped
        return answer

    def wait(self) -> str:
        """Wait for the process, which has closed its pipe; returns how it ended."""
        self.alive = False
        self.pipe.close()
        try:
            _, status = os.waitpid(self.process, 0)
        except ChildProcessError:
            return "is gone"
        code = os.waitstatus_to_exitcode(status)
        return f"was killed by signal {-code}" if code < 0 else f"exited with {code}"

    def end(self) -> None:
        if not self.alive:
            return
        if self.tasks:
            with suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)
        self.wait()
        while self.tasks:
            _fail(self.next(), WorkerDied("the workers were shut down"))


def _begins(answer: Answer) -> bool:
    """Whether the task of this answer begins, or has begun; a task that was cancelled does not."""
    return answer.running() or (not answer.cancelled() and answer.set_running_or_notify_cancel())


def _fail(answer: Answer, error: Exception) -> None:
    if not answer.cancelled():
        answer.set_exception(error)


class _Pickler(pickle.Pickler):
    def __init__(self, file: BytesIO, inherited: Sequence[object]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._numbers = {id(each): number for number, each in enumerate(inherited)}

    def persistent_id(self, item: object) -> int | None:
        return self._numbers.get(id(item))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BytesIO, inherited: Sequence[object]) -> None:
        super().__init__(file)
        self._inherited = inherited

    def persistent_load(self, number: int) -> object:
        return self._inherited[number]


def _pickle(task: object, inherited: Sequence[object]) -> bytes:
    file = BytesIO()
    _Pickler(file, inherited).dump(task)
    return file.getvalue()


def _unpickle(data: bytes, inherited: Sequence[object]) -> Any:
    return _Unpickler(BytesIO(data), inherited).load()


def refuse_without_fork() -> None:
    """Raise MatError if the platform has no fork."""
    if not hasattr(os, "fork"):
        raise MatError(
            "--mat-workers is not available on this platform",
            why="workers are forked from the process that holds the item, and this platform cannot fork",
            fix="leave it out; with pytest-xdist (-n), several items are searched at once",
        )

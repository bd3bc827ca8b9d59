"""The process between a session and a cluster: it has the client of dask.distributed, whose threads no run should meet.

It reads tasks from a connection, gives them to the cluster, and writes what becomes of each. It ends when the session does, and
a local cluster with it. Nothing else of pytest-mat imports dask.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Final, Literal, TypeAlias
from uuid import uuid4

from mat_study.closure import is_own
from mat_study.remote import RemoteReply

_CONNECT_S: Final = 15.0
_FIRST_WORKER_S: Final = 60.0
"""Real seconds until a worker must be there, when a session begins, and once all were lost."""
_NO_WORKER_S: Final = 20.0
_DEATHS: Final = 20
"""How many workers a task may lose on a cluster of this machine. A scheduler elsewhere has a limit of its own."""
_GONE: Final = "the scheduler is gone"
_REASON_CHARS: Final = 200
_LOOK_S: Final = 1.0
"""Real seconds between two looks at the cluster."""
_BATCH: Final = 4
_BATCH_S: Final = 0.1
"""Tasks of one item go to a worker together: so many at most, and so many that they take about these real seconds at most. With
them, dask has less to do for each (`benchmarks/workers.md`).
"""
_GATHER_S: Final = 0.001
"""Real seconds that a task waits for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTasks:
    """Functions that workers can import. `execute` gets (the digest of the session's versions, an item, a plan); `release`
    gets the name of a client, and ends its processes on the worker.
    """

    execute: Callable[[str, bytes, bytes], RemoteReply]
    release: Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFrame:
    """What the link writes: that the cluster has `threads` to execute with (again), each of them `batch` tasks at a time; that
    it is gone, or cannot be reached; the reply to a task, or why there is none; `unfit`: no worker can be used; `given-up`: a
    worker that cannot execute the item of a task, which another one executes.
    """

    kind: Literal["ready", "gone", "failed", "reply", "lost", "unfit", "given-up"]
    threads: int = 0
    batch: int = 1
    text: str = ""
    number: int = -1
    reply: RemoteReply | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTask:
    """What the session writes: a task, or None in place of `plan` to give it up."""

    number: int
    item: bytes = b""
    plan: bytes | None = None


WriteFrame: TypeAlias = Callable[[LinkFrame], None]


def serve(connection: Connection, tasks: ClusterTasks, *, address: str, workers: int, versions: str, client: str) -> None:
    """Serve a client until it closes the connection. `address` "": a cluster of `workers` processes on this machine."""
    frames: SimpleQueue[LinkFrame | None] = SimpleQueue()
    link = _Link(tasks, frames.put, versions=versions, client=client)

    def write() -> None:  # in a thread: the session reads when it has time
        try:
            with suppress(OSError):
                while (frame := frames.get()) is not None:
                    connection.send(frame)
        finally:
            link.end()

    def read() -> None:
        try:
            with suppress(EOFError, OSError):
                while True:
                    link.begin(connection.recv())
        finally:
            link.end()

    writer = Thread(target=write, daemon=True)
    writer.start()
    asyncio.run(link.serve(Thread(target=read, daemon=True), address, workers))
    frames.put(None)
    writer.join(_LOOK_S)
    os._exit(0)  # a thread may still wait for a connection


def on_worker(
    execute: Callable[[str, bytes, bytes], RemoteReply], versions: str, item: bytes, plans: Sequence[bytes]
) -> tuple[str, list[RemoteReply], float]:
    """What a worker executes: its address, replies to plans of one item, and the real seconds that they took.

    After a reply without a run there may be no more of them; nor after an exception, which is raised for the first plan only.
    """
    distributed: Any = import_module("distributed")
    began_s = monotonic()
    replies: list[RemoteReply] = []
    for plan in plans:
        try:
            replies.append(execute(versions, item, plan))
        except Exception:
            if not replies:
                raise
            break
        if replies[-1][0] != "answer":
            break
    return distributed.get_worker().address, replies, monotonic() - began_s


@dataclass(slots=True, eq=False)
class _Batch:
    """Tasks of one item that the cluster has: the addresses of the workers that may execute them, None for all."""

    tasks: list[LinkTask]
    future: Any
    able: frozenset[str] | None


class _Link:
    """`begin` and `end` are called by other threads."""

    def __init__(self, tasks: ClusterTasks, write: WriteFrame, *, versions: str, client: str) -> None:
        self._tasks, self._write, self._versions, self._name = tasks, write, versions, client
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[LinkTask] = []
        self._sent: dict[int, _Batch] = {}
        self._unable: dict[bytes, dict[str, str]] = {}
        self._workers: frozenset[str] = frozenset()
        self._running: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._connected = False
        self._prefix = f"mat-{uuid4().hex[:12]}"
        self._count = 0
        self._told = (-1, 0)
        self._threads, self._task_s = 0, 0.0
        self._batch = 1

    def begin(self, task: LinkTask) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._begin_task, task)

    def end(self) -> None:
        if not self._connected:
            os._exit(0)  # no worker knows of this client, and those of this machine end with this process
        assert self._loop is not None
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._over.set)

    async def serve(self, reader: Thread, address: str, workers: int) -> None:
        self._loop = asyncio.get_running_loop()
        reader.start()
        async with AsyncExitStack() as stack:
            try:
                await self._connect(stack, address, workers)
            except Exception as error:
                self._write(LinkFrame(kind="failed", text=_error_text(error)))
                return
            self._connected = True
            self._spawn(self._watch())
            await self._over.wait()
            for each in list(self._running):
                each.cancel()
            with suppress(Exception):
                await asyncio.wait_for(self._client.run(self._tasks.release, self._name, on_error="ignore"), 5)

    async def _connect(self, stack: AsyncExitStack, address: str, workers: int) -> None:
        dask: Any = import_module("dask")
        distributed: Any = import_module("distributed")
        where: Any = address
        if not address:
            dask.config.set({"distributed.scheduler.allowed-failures": _DEATHS, "distributed.worker.profile.enabled": False})
            local = distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, asynchronous=True, dashboard_address=None,
                memory_limit=0, silence_logs=logging.CRITICAL,
            )  # fmt: skip
            where = await stack.enter_async_context(local)
        self._client = await stack.enter_async_context(
            distributed.Client(where, asynchronous=True, set_as_default=False, timeout=_CONNECT_S)
        )
        await self._client.wait_for_workers(1, timeout=_FIRST_WORKER_S)
        await self._count_threads()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    # -- tasks ----------------------------------------------------------------------------------------------------------

    def _begin_task(self, task: LinkTask) -> None:
        if task.plan is not None:
            self._waiting.append(task)
            if len(self._waiting) == 1:
                asyncio.get_running_loop().call_later(_GATHER_S, self._send_waiting)
            return
        self._waiting = [each for each in self._waiting if each.number != task.number]
        batch = self._sent.pop(task.number, None)
        if batch is not None and batch not in self._sent.values():
            self._spawn(_ignoring(batch.future.cancel()))

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        while waiting:
            item = waiting[0].item
            size = self._batch_size(len(waiting))
            alike = [task for task in waiting if task.item == item][:size]
            waiting = [task for task in waiting if task not in alike]
            self._submit(alike)

    def _batch_size(self, waiting: int) -> int:
        """As many as a worker gets at a time, or fewer while threads of the cluster have nothing to execute."""
        idle = self._threads - len(set(map(id, self._sent.values())))
        return max(1, min(self._batch, -(-waiting // idle) if idle > 0 else self._batch))

    def _submit(self, tasks: list[LinkTask]) -> None:
        """Give tasks of one item to the workers that are not known to be unable to execute it."""
        item = tasks[0].item
        unable = self._unable.get(item, {})
        able = self._workers - unable.keys() if unable and self._workers else None
        if able is not None and not able:
            self._lose(tasks, f"no worker is left: {'; '.join(unable.values())}")
            return
        self._count += 1
        try:
            future = self._client.submit(
                on_worker, self._tasks.execute, self._versions, item, [task.plan for task in tasks],
                key=f"{self._prefix}-{self._count:09}", pure=False, workers=None if able is None else sorted(able),
            )  # fmt: skip
        except Exception as error:  # the client is closed
            self._lose(tasks, _error_text(error))
        else:
            batch = _Batch(tasks, future, able)
            self._sent |= dict.fromkeys((task.number for task in tasks), batch)
            self._spawn(self._report(batch))

    def _lose(self, tasks: Sequence[LinkTask], text: str, kind: Literal["lost", "unfit"] = "lost") -> None:
        for task in tasks:
            self._sent.pop(task.number, None)
            self._write(LinkFrame(kind=kind, number=task.number, text=text))

    async def _report(self, batch: _Batch) -> None:
        """Write what becomes of tasks. What a lost worker had is executed by another, which is the cluster's business."""
        replies: list[RemoteReply] = []
        error: BaseException | None = None
        address = ""
        try:
            address, replies, took_s = await batch.future
            self._learn(took_s / len(replies))
        except (Exception, CancelledError) as raised:
            error = raised
            if self._client.status != "running":
                self._tell(0, _GONE)
        wanted = [task for task in batch.tasks if self._sent.get(task.number) is batch]  # by the session, and not sent again
        if error is not None and len(batch.tasks) == 1:
            self._lose(wanted, _error_text(error), "unfit" if _is_other_code(error) else "lost")
            return
        for task, reply in zip(batch.tasks, replies, strict=False):
            if task not in wanted:
                continue
            if reply[0] == "failed":
                self._give_up(address, reply[1], task)
                break
            wanted.remove(task)
            del self._sent[task.number]
            self._write(LinkFrame(kind="reply", number=task.number, reply=reply))
        for task in wanted:  # alone, because what happened may be the fault of one of them
            self._submit([task])

    def _learn(self, task_s: float) -> None:
        """Learn what a task takes, and with that how many go to a worker together."""
        self._task_s = task_s if not self._task_s else (self._task_s + task_s) / 2
        self._batch = max(1, min(_BATCH, int(_BATCH_S / max(self._task_s, 1e-6))))
        if self._told[0] > 0:
            self._tell(self._told[0], "")

    def _give_up(self, address: str, facts: Mapping[str, str], task: LinkTask) -> None:
        """A worker gets no task of this item any more."""
        text = f"{facts.get('worker', address)}: {reason_of(facts.get('why', ''))}"
        unable = self._unable.setdefault(task.item, {})
        if address not in unable:
            unable[address] = text
            self._write(LinkFrame(kind="given-up", number=task.number, text=text))

    def _send_again(self) -> None:
        """Tasks wait forever for workers that are gone, where only those may execute them."""
        for batch in set(self._sent.values()):
            if batch.able is not None and self._workers and not batch.able & self._workers:
                self._spawn(_ignoring(batch.future.cancel()))
                self._submit([task for task in batch.tasks if self._sent.get(task.number) is batch])

    # -- the cluster ----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Write how many threads the cluster has, whenever that changes; 0 for some time: it is gone."""
        since_s = monotonic()
        while True:
            threads, why = await self._count_threads()
            if threads:
                since_s = monotonic()
                self._send_again()
            if threads or why or monotonic() - since_s > _NO_WORKER_S:  # otherwise new workers may be starting
                self._tell(threads, why or "no worker is left")
            await asyncio.sleep(_LOOK_S)

    def _tell(self, threads: int, why: str) -> None:
        batch = self._batch if threads else 0
        if (threads, batch) != self._told:
            self._told = threads, batch
            ready = LinkFrame(kind="ready", threads=threads, batch=batch)
            self._write(ready if threads else LinkFrame(kind="gone", text=why))

    async def _count_threads(self) -> tuple[int, str]:
        """The threads of all workers; 0 with the reason if the scheduler does not answer."""
        if self._client.status != "running":
            return 0, _GONE
        try:
            threads = await asyncio.wait_for(self._client.nthreads(), _CONNECT_S)
            self._workers, self._threads = frozenset(threads), sum(threads.values())
            return self._threads, ""
        except Exception as error:
            return 0, f"the scheduler does not answer: {_error_text(error)}"


async def _ignoring(work: Awaitable[Any]) -> None:
    with suppress(Exception):
        await work


def _is_other_code(error: BaseException) -> bool:
    """Whether a worker could not import the task: it has not pytest-mat, or another version of it or of what it needs."""
    return isinstance(error, ModuleNotFoundError) or (isinstance(error, ImportError) and is_own(error.name or ""))


def reason_of(text: str) -> str:
    """The line of an output that says most: the last error that pytest marks, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["without a message"]
    marked = [line.removeprefix("E").strip() for line in lines if line.startswith("E  ")]
    return (marked or lines)[-1][:_REASON_CHARS]


def _error_text(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

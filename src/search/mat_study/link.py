"""The process between a session and a cluster: it has the client of dask.distributed, whose threads no run should meet.

It reads tasks from a connection, gives them to the cluster, and writes what becomes of each. It ends when the session does, and
a local cluster with it. Nothing else of pytest-mat imports dask.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTasks:
    """Functions that workers can import. `execute` gets (the digest of the session's versions, an item, a plan); `release`
    gets the name of a client, and ends its processes on the worker.
    """

    execute: Callable[[str, bytes, bytes], RemoteReply]
    release: Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFrame:
    """What the link writes: that the cluster has `threads` to execute with (again), that it is gone, or cannot be reached;
    the reply to a task, or why there is none; `unfit`: no worker can be used; `given-up`: a worker that cannot execute the item
    of a task, which another one executes.
    """

    kind: Literal["ready", "gone", "failed", "reply", "lost", "unfit", "given-up"]
    threads: int = 0
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


def on_worker(execute: Callable[..., RemoteReply], *arguments: object) -> tuple[str, RemoteReply]:
    """What a worker executes: its reply, with its address."""
    distributed: Any = import_module("distributed")
    return distributed.get_worker().address, execute(*arguments)


@dataclass(slots=True)
class _Sent:
    """A task that the cluster has: the addresses of the workers that may execute it, None for all."""

    task: LinkTask
    future: Any
    able: frozenset[str] | None


class _Link:
    """`begin` and `end` are called by other threads."""

    def __init__(self, tasks: ClusterTasks, write: WriteFrame, *, versions: str, client: str) -> None:
        self._tasks, self._write, self._versions, self._name = tasks, write, versions, client
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sent: dict[int, _Sent] = {}
        self._unable: dict[bytes, dict[str, str]] = {}
        self._workers: frozenset[str] = frozenset()
        self._running: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._connected = False
        self._prefix = f"mat-{uuid4().hex[:12]}"
        self._count = 0
        self._told = -1

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
        await self._threads()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    # -- tasks ----------------------------------------------------------------------------------------------------------

    def _begin_task(self, task: LinkTask) -> None:
        if task.plan is not None:
            self._submit(task)
        elif (sent := self._sent.pop(task.number, None)) is not None:
            self._spawn(_ignoring(sent.future.cancel()))

    def _submit(self, task: LinkTask) -> None:
        """Give a task to the workers that are not known to be unable to execute its item."""
        unable = self._unable.get(task.item, {})
        able = self._workers - unable.keys() if unable and self._workers else None
        if able is not None and not able:
            self._sent.pop(task.number, None)
            self._write(LinkFrame(kind="lost", number=task.number, text=f"no worker is left: {'; '.join(unable.values())}"))
            return
        self._count += 1
        try:
            future = self._client.submit(
                on_worker, self._tasks.execute, self._versions, task.item, task.plan, key=f"{self._prefix}-{self._count:09}",
                pure=False, workers=None if able is None else sorted(able),
            )  # fmt: skip
        except Exception as error:  # the client is closed
            self._sent.pop(task.number, None)
            self._write(LinkFrame(kind="lost", number=task.number, text=_error_text(error)))
        else:
            sent = self._sent[task.number] = _Sent(task, future, able)
            self._spawn(self._report(sent))

    async def _report(self, sent: _Sent) -> None:
        """Write what becomes of a task. One that a lost worker had is executed by another, which is the cluster's business."""
        number = sent.task.number
        try:
            address, reply = await sent.future
            frame = LinkFrame(kind="reply", number=number, reply=reply)
        except (Exception, CancelledError) as error:
            address, reply = "", None
            frame = LinkFrame(kind="unfit" if _is_other_code(error) else "lost", number=number, text=_error_text(error))
            if self._client.status != "running":
                self._tell(0, _GONE)
        if self._sent.get(number) is not sent:  # nobody needs it any more, or it was sent again
            return
        if reply is not None and reply[0] == "failed":
            self._give_up(address, reply[1], sent.task)
            self._submit(sent.task)
        else:
            del self._sent[number]
            self._write(frame)

    def _give_up(self, address: str, facts: Mapping[str, str], task: LinkTask) -> None:
        """A worker gets no task of this item any more."""
        text = f"{facts.get('worker', address)}: {reason_of(facts.get('why', ''))}"
        unable = self._unable.setdefault(task.item, {})
        if address not in unable:
            unable[address] = text
            self._write(LinkFrame(kind="given-up", number=task.number, text=text))

    def _send_again(self) -> None:
        """Tasks wait forever for workers that are gone, where only those may execute them."""
        for sent in list(self._sent.values()):
            if sent.able is not None and self._workers and not sent.able & self._workers:
                self._spawn(_ignoring(sent.future.cancel()))
                self._submit(sent.task)

    # -- the cluster ----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Write how many threads the cluster has, whenever that changes; 0 for some time: it is gone."""
        since_s = monotonic()
        while True:
            threads, why = await self._threads()
            if threads:
                since_s = monotonic()
                self._send_again()
            if threads or why or monotonic() - since_s > _NO_WORKER_S:  # otherwise new workers may be starting
                self._tell(threads, why or "no worker is left")
            await asyncio.sleep(_LOOK_S)

    def _tell(self, threads: int, why: str) -> None:
        if threads != self._told:
            self._told = threads
            self._write(LinkFrame(kind="ready", threads=threads) if threads else LinkFrame(kind="gone", text=why))

    async def _threads(self) -> tuple[int, str]:
        """The threads of all workers; 0 with the reason if the scheduler does not answer."""
        if self._client.status != "running":
            return 0, _GONE
        try:
            threads = await asyncio.wait_for(self._client.nthreads(), _CONNECT_S)
            self._workers = frozenset(threads)
            return sum(threads.values()), ""
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

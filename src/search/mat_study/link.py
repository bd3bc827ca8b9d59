"""The process between a session and a cluster: it has the client of dask.distributed, whose threads no run should meet.

It reads tasks from a connection, gives them to the cluster, and writes what becomes of each. It ends when the session does, and
a local cluster with it. Nothing else of pytest-mat imports dask.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
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

from mat_study.remote import RemoteReply

_CONNECT_S: Final = 15.0
_FIRST_WORKER_S: Final = 60.0
"""Real seconds until a worker must be there, when a session begins, and once all were lost."""
_NO_WORKER_S: Final = 20.0
_DEATHS: Final = 20
"""How many workers a task may lose on a cluster of this machine. A scheduler elsewhere has a limit of its own."""
_GONE: Final = "the scheduler is gone"
_LOOK_S: Final = 1.0
"""Real seconds between two looks at the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTasks:
    """Functions that workers can import. `execute` gets (the digest of the session's versions, an item, a plan); `release`
    gets a session, and ends its processes on the worker.
    """

    execute: Callable[[str, bytes, bytes], RemoteReply]
    release: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFrame:
    """What the link writes: that the cluster has `threads` to execute with (again), that it is gone, or cannot be reached;
    the reply to a task, or why there is none; `unfit`: no worker can be used.
    """

    kind: Literal["ready", "gone", "failed", "reply", "lost", "unfit"]
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


def serve(connection: Connection, tasks: ClusterTasks, *, address: str, workers: int, versions: str, session: str) -> None:
    """Serve a session until it closes the connection. `address` "": a cluster of `workers` processes on this machine."""
    frames: SimpleQueue[LinkFrame | None] = SimpleQueue()

    def write() -> None:  # in a thread: the session reads when it has time
        with suppress(OSError):
            while (frame := frames.get()) is not None:
                connection.send(frame)

    writer = Thread(target=write, daemon=True)
    writer.start()
    link = _Link(tasks, frames.put, versions=versions, session=session)
    asyncio.run(link.serve(connection, address, workers))
    frames.put(None)
    writer.join(_LOOK_S)
    os._exit(0)  # a thread may still wait for a connection


class _Link:
    def __init__(self, tasks: ClusterTasks, write: WriteFrame, *, versions: str, session: str) -> None:
        self._tasks, self._write, self._versions, self._session = tasks, write, versions, session
        self._client: Any = None
        self._futures: dict[int, Any] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._name = f"mat-{uuid4().hex[:12]}"
        self._told = -1

    async def serve(self, connection: Connection, address: str, workers: int) -> None:
        loop = asyncio.get_running_loop()

        def read() -> None:
            with suppress(EOFError, OSError):
                while True:
                    task: LinkTask = connection.recv()
                    loop.call_soon_threadsafe(self._begin_task, task)
            loop.call_soon_threadsafe(self._over.set)

        async with AsyncExitStack() as stack:
            Thread(target=read, daemon=True).start()
            try:
                await self._connect(stack, address, workers)
            except Exception as error:
                self._write(LinkFrame(kind="failed", text=_error_text(error)))
                return
            self._spawn(self._watch())
            await self._over.wait()
            for each in list(self._running):
                each.cancel()
            with suppress(Exception):
                await asyncio.wait_for(self._client.run(self._tasks.release, self._session, on_error="ignore"), 5)

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

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    # -- tasks ----------------------------------------------------------------------------------------------------------

    def _begin_task(self, task: LinkTask) -> None:
        if task.plan is None:
            future = self._futures.pop(task.number, None)
            if future is not None:
                self._spawn(_ignoring(future.cancel()))
            return
        try:
            future = self._futures[task.number] = self._client.submit(
                self._tasks.execute, self._versions, task.item, task.plan, key=f"{self._name}-{task.number:09}", pure=False
            )
        except Exception as error:  # the client is closed
            self._write(LinkFrame(kind="lost", number=task.number, text=_error_text(error)))
        else:
            self._spawn(self._report(task.number, future))

    async def _report(self, number: int, future: Any) -> None:
        """Write what becomes of a task. One that a lost worker had is executed by another, which is the cluster's business."""
        try:
            frame = LinkFrame(kind="reply", number=number, reply=await future)
        except ImportError as error:  # of pytest-mat, on a worker
            frame = LinkFrame(kind="unfit", number=number, text=_error_text(error))
        except (Exception, CancelledError) as error:
            frame = LinkFrame(kind="lost", number=number, text=_error_text(error))
            if self._client.status != "running":
                self._tell(0, _GONE)
        if self._futures.pop(number, None) is not None:
            self._write(frame)

    # -- the cluster ----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Write how many threads the cluster has, whenever that changes; 0 for some time: it is gone."""
        since_s = monotonic()
        while True:
            threads, why = await self._threads()
            if threads:
                since_s = monotonic()
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
            return sum((await asyncio.wait_for(self._client.nthreads(), _CONNECT_S)).values()), ""
        except Exception as error:
            return 0, f"the scheduler does not answer: {_error_text(error)}"


async def _ignoring(work: Awaitable[Any]) -> None:
    with suppress(Exception):
        await work


def _error_text(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

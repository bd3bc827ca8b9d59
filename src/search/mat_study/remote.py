"""The far end of a cluster: executes plans in processes of this machine that have collected their items.

A task of the cluster calls `RemoteItems.execute` with bytes. The processes are those of `mat_study.fresh`. One of them executes
plan after plan, as a worker that is a fork does; if it is killed, another one executes the plan again. A worker with several
threads has several processes.
"""

from __future__ import annotations

import os
import pickle
import platform
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Final, Literal, TypeAlias

from mat.core.digest import digest
from mat.core.errors import MatError
from mat_study.evaluation import Plan
from mat_study.fresh import FreshItem, FreshPlace, FreshProcesses, FreshStream, HashSeed, StreamEnded

RemoteReply: TypeAlias = tuple[Literal["answer", "lost", "differs", "refused"], dict[str, str], bytes]
"""What a task returns, in types that every version of pytest-mat has: an answer, packed; or why there is none.

`differs`: facts by name (versions or sources), of which some are not those of the session; "worker" names the worker.
"""
_ITEMS_KEPT: Final = 8
"""Items whose processes a worker keeps, besides those it is executing."""
_ATTEMPTS: Final = 2
"""How often a plan is executed whose process is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A file that executions read, by the digest of its first `size` bytes. `grows`: there may be more of it."""

    path: str
    size: int
    digest: str
    grows: bool = False

    @classmethod
    def of(cls, path: Path, *, grows: bool = False) -> KnownFile | None:
        try:
            content = path.read_bytes()
        except OSError:
            return None
        return cls(path=str(path), size=len(content), digest=sha256(content).hexdigest()[:32], grows=grows)

    def is_same_here(self) -> bool:
        try:
            content = Path(self.path).read_bytes()
        except OSError:
            return False
        fits = len(content) >= self.size if self.grows else len(content) == self.size
        return fits and sha256(content[: self.size]).hexdigest()[:32] == self.digest


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteItem:
    """An item of a session as another machine finds it.

    `command` starts the fresh processes, as arguments of Python. `sources`: the digest of its sources (`sources_digest`).
    `files`: what it reads, as far as that is known. `forked`: each execution needs a process of its own.
    """

    session: str
    command: tuple[str, ...]
    place: FreshPlace
    item: FreshItem
    hash_seed: HashSeed
    sources: str
    files: tuple[KnownFile, ...] = ()
    forked: bool = False


def facts_digest(facts: Mapping[str, str]) -> str:
    """A short text that is equal for equal facts."""
    return digest(sorted([name, value] for name, value in facts.items()))[:32]


@dataclass(slots=True)
class _Held:
    """The processes of one item on this worker: those that wait for a plan, and how many execute one."""

    asked: RemoteItem
    processes: FreshProcesses
    idle: list[FreshStream] = field(default_factory=list)
    busy: int = 0


class RemoteItems:
    """The items that a worker has collected, the one used last at the end. `python` starts their processes."""

    def __init__(self, python: str) -> None:
        self._python = python
        self._items: OrderedDict[bytes, _Held] = OrderedDict()
        self._sessions: dict[str, FreshProcesses] = {}
        self._lock, self._opening = Lock(), Lock()

    def execute(self, item: bytes, plan: bytes) -> RemoteReply:
        """Execute a pickled plan of a pickled and compressed RemoteItem."""
        held, stream = self._reserve(item)
        try:
            return self._reply(held.asked, stream, pickle.loads(plan))
        except MatError as error:
            return "refused", with_worker(why=error.why or error.what), b""
        finally:
            self._give_back(held, stream)

    def _reply(self, asked: RemoteItem, stream: FreshStream, plan: Plan) -> RemoteReply:
        killed = 0
        while True:
            try:
                if stream.is_open:
                    return "answer", {}, stream.answer(plan)
                differing = {} if os.path.isdir(asked.place.folder) else {asked.place.folder: "missing"}
                differing |= {file.path: "another content" for file in asked.files if not file.is_same_here()}
                if not differing:
                    with self._opening:
                        sources = dict(stream.open(plan))
                    differing = {} if facts_digest(sources) == asked.sources else sources
                if differing:
                    stream.close()
                    return "differs", {**differing, **with_worker()}, b""
                return "answer", {}, stream.answer()
            except StreamEnded as ended:
                killed += not ended.finished
                if killed == _ATTEMPTS:
                    return "lost", with_worker(why=str(ended)), b""

    def _reserve(self, item: bytes) -> tuple[_Held, FreshStream]:
        with self._lock:
            held = self._items.get(item)
            if held is None:
                asked: RemoteItem = pickle.loads(zlib.decompress(item))
                held = self._items[item] = _Held(asked, self._processes(asked))
                self._tidy()
            self._items.move_to_end(item)
            held.busy += 1
            stream = held.idle.pop() if held.idle else None
        return held, stream or FreshStream(held.processes, held.asked.item, hash_seed=held.asked.hash_seed)

    def _processes(self, asked: RemoteItem) -> FreshProcesses:
        known = self._sessions.get(asked.session)
        if known is None:
            place = asked.place
            known = self._sessions[asked.session] = FreshProcesses(
                [self._python, *asked.command], Path(place.folder), place.environment, roots=place.roots
            )
        return known

    def _give_back(self, held: _Held, stream: FreshStream) -> None:
        if held.asked.forked:
            stream.close()
        with self._lock:
            held.busy -= 1
            if stream.is_open:
                held.idle.append(stream)

    def _tidy(self) -> None:
        """End the processes of items that were not used for the longest time."""
        unused = [item for item, held in self._items.items() if not held.busy]
        self._retire(unused[:-_ITEMS_KEPT])

    def release(self, session: str) -> None:
        """End the processes of a session."""
        with self._lock:
            self._retire([item for item, held in self._items.items() if held.asked.session == session])

    def _retire(self, items: list[bytes]) -> None:
        for item in items:
            held = self._items.pop(item)
            for stream in held.idle:
                stream.close()
            left = [other.asked for other in self._items.values() if other.asked.session == held.asked.session]
            with self._opening:
                if not left:
                    self._sessions.pop(held.asked.session).close()
                elif all(other.item.arguments != held.asked.item.arguments for other in left):
                    held.processes.forget(held.asked.item)


def with_worker(**facts: str) -> dict[str, str]:
    """Facts of a reply, with a name of this worker."""
    return {**facts, "worker": f"{platform.node()}, process {os.getpid()}"}

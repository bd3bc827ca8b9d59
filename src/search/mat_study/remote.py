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
from pathlib import Path
from threading import Lock
from typing import Final, Literal, TypeAlias

from mat.core.digest import digest
from mat_study.contents import ABSENCES, content_of
from mat_study.evaluation import Plan
from mat_study.fresh import FreshItem, FreshPlace, FreshProcesses, FreshStream, HashSeed, StreamEnded

RemoteReply: TypeAlias = tuple[Literal["answer", "lost", "differs", "failed"], dict[str, str], bytes]
"""What a task returns, in types that every version of pytest-mat has: an answer, packed; or why there is none.

`differs`: facts by name (versions, sources or files), of which some are not those of the session. `lost`: the process that
executed this plan died. `failed`: this worker cannot execute the item, for a reason of its own. "worker" names the worker,
"why" says the reason.
"""
_ITEMS_KEPT: Final = 8
"""Items whose processes a worker keeps, besides those it is executing."""
_RELEASED_KEPT: Final = 1000
"""Clients that a worker remembers as gone: a task of theirs that comes late begins nothing."""
_ATTEMPTS: Final = 2
"""How often a plan is executed whose process is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """What executions found at a path: a file whose first `size` bytes have the digest `content`, else why there is none.

    `grows`: there may be more of it. `made`: it was written after the session began, perhaps by a fixture, which executions of
    a worker have, too; so there it is compared after the first of them.
    """

    path: str
    size: int
    content: str
    grows: bool = False
    made: bool = False

    @classmethod
    def of(cls, path: str, *, grows: bool = False, made: bool = False) -> KnownFile:
        size = _size(path)
        return cls(path=path, size=size, content=content_of(path, size=size), grows=grows, made=made)

    def difference(self) -> str:
        """What is different on this machine; "" if nothing is."""
        found, size = content_of(self.path, size=self.size), _size(self.path)
        if found == self.content and (size == self.size or (self.grows and size > self.size)):
            return ""
        if found in ABSENCES:
            return f"{found} there"
        return f"a file there, {self.content} here" if self.content in ABSENCES else "another content"


def _size(path: str) -> int:
    """The size of a file; 0 if there is none."""
    try:
        return os.path.getsize(path) if os.path.isfile(path) else 0
    except OSError:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteItem:
    """An item of a session as another machine finds it.

    `client` names one of the processes of the session, which all search. `command` starts the fresh processes, as arguments of
    Python. `sources`: the digest of its sources (`facts_digest`); `names`: their names, relative to `root` or absolute.
    `files`: what it reads, as far as that is known. `forked`: each execution needs a process of its own.
    """

    session: str
    client: str
    command: tuple[str, ...]
    place: FreshPlace
    item: FreshItem
    hash_seed: HashSeed
    root: str
    names: tuple[str, ...]
    sources: str
    files: tuple[KnownFile, ...] = ()
    forked: bool = False

    def differing(self) -> dict[str, str]:
        """What is different on this machine before anything is collected: the folder, files, or sources (all, with digests)."""
        if not os.path.isdir(self.place.folder):
            return {self.place.folder: "missing there"}
        sources = {name: content_of(os.path.join(self.root, name)) for name in self.names}
        return self.differing_files(made=False) or ({} if facts_digest(sources) == self.sources else sources)

    def differing_files(self, *, made: bool) -> dict[str, str]:
        """The files that are different on this machine: of those that an execution may make, or of the others."""
        compared = ((each.path, each.difference()) for each in self.files if each.made == made)
        return {path: found for path, found in compared if found}


def facts_digest(facts: Mapping[str, str]) -> str:
    """A short text that is equal for equal facts."""
    return digest(sorted([name, value] for name, value in facts.items()))[:32]


@dataclass(slots=True)
class _Held:
    """The processes of one item on this worker: those that wait for a plan, and those that execute one."""

    asked: RemoteItem
    processes: FreshProcesses
    idle: list[FreshStream] = field(default_factory=list)
    busy: list[FreshStream] = field(default_factory=list)


class RemoteItems:
    """The items that a worker has collected, the one used last at the end. `python` starts their processes.

    `_lock` is held for moments, `_opening` while processes are begun or ended; who needs both takes `_opening` first.
    """

    def __init__(self, python: str) -> None:
        self._python = python
        self._items: OrderedDict[bytes, _Held] = OrderedDict()
        self._processes: dict[bytes, FreshProcesses] = {}
        self._released: OrderedDict[str, None] = OrderedDict()
        self._lock, self._opening = Lock(), Lock()

    def execute(self, item: bytes, plan: bytes) -> RemoteReply:
        """Execute a pickled plan of a pickled and compressed RemoteItem. MatError if this worker cannot collect the item."""
        reserved = self._reserve(item)
        if reserved is None:
            return "lost", with_worker(why="its session is over"), b""
        held, stream = reserved
        try:
            return self._reply(held.asked, stream, pickle.loads(plan))
        except BaseException:
            stream.close()
            raise
        finally:
            self._give_back(held, stream)

    def _reply(self, asked: RemoteItem, stream: FreshStream, plan: Plan) -> RemoteReply:
        killed = 0
        while True:
            try:
                if stream.is_open:
                    return "answer", {}, stream.answer(plan)
                differing = asked.differing()
                if not differing:
                    with self._opening:
                        sources = dict(stream.open(plan))
                    differing = {} if facts_digest(sources) == asked.sources else sources
                packed = b"" if differing else stream.answer()
                differing = differing or asked.differing_files(made=True)
                if differing:
                    stream.close()
                    return "differs", {**differing, **with_worker()}, b""
                return "answer", {}, packed
            except StreamEnded as ended:
                killed += not ended.finished
                if killed == _ATTEMPTS or stream.is_ended:
                    return "lost", with_worker(why=str(ended)), b""

    def _reserve(self, item: bytes) -> tuple[_Held, FreshStream] | None:
        """A stream that nobody else uses; None if the session is over."""
        with self._lock:
            held = self._items.get(item)
            if held is None:
                asked: RemoteItem = pickle.loads(zlib.decompress(item))
                if asked.client in self._released:
                    return None
                held = self._items[item] = _Held(asked, self._processes_of(asked))
            self._items.move_to_end(item)
            stream = held.idle.pop() if held.idle else _stream(held)
            held.busy.append(stream)
            unused = [key for key, other in self._items.items() if not other.busy]
            left = self._take_out(unused[:-_ITEMS_KEPT])
        self._end_processes(left)
        return held, stream

    def _processes_of(self, asked: RemoteItem) -> FreshProcesses:
        key, place = _key(asked), asked.place
        if key not in self._processes:
            self._processes[key] = FreshProcesses(
                [self._python, *asked.command], Path(place.folder), place.environment, roots=place.roots, session=asked.session
            )
        return self._processes[key]

    def _give_back(self, held: _Held, stream: FreshStream) -> None:
        with self._lock:
            held.busy.remove(stream)
            kept = stream.is_open and not (stream.is_ended or held.asked.forked)
            if kept:
                held.idle.append(stream)
        if not kept:
            stream.close()

    def release(self, client: str) -> None:
        """End the processes of a client, also those that execute; it can take as long as another item is being collected."""
        with self._lock:
            self._released[client] = None
            while len(self._released) > _RELEASED_KEPT:
                self._released.popitem(last=False)
            left = self._take_out([key for key, held in self._items.items() if held.asked.client == client])
            streams = [stream for held in left for stream in (*held.idle, *held.busy)]
        for stream in streams:
            stream.end()
        self._end_processes(left)

    def _take_out(self, items: list[bytes]) -> list[_Held]:
        return [self._items.pop(item) for item in items]

    def _end_processes(self, left: list[_Held]) -> None:
        """End the processes of items that were taken out, as far as no other item needs them."""
        if not left:
            return
        with self._opening:
            for held in left:
                for stream in held.idle:
                    stream.close()
                with self._lock:
                    others = [other.asked.item for other in self._items.values() if other.processes is held.processes]
                    is_last = not others and self._processes.get(_key(held.asked)) is held.processes
                    if is_last:
                        del self._processes[_key(held.asked)]
                if is_last:
                    held.processes.close()
                elif others and all(other.arguments != held.asked.item.arguments for other in others):
                    held.processes.forget(held.asked.item)


def _stream(held: _Held) -> FreshStream:
    return FreshStream(held.processes, held.asked.item, hash_seed=held.asked.hash_seed)


def _key(asked: RemoteItem) -> bytes:
    """What is equal for items that the same processes can collect."""
    return pickle.dumps((asked.session, asked.command, asked.place))


def with_worker(**facts: str) -> dict[str, str]:
    """Facts of a reply, with a name of this worker."""
    return {**facts, "worker": f"{platform.node()}, process {os.getpid()}"}

"""Finished executions on disk: a search that was killed goes on where it was.

A journal is a file of JSON lines. The first says what the search is: its key. Each further line is one finished execution,
or a source that executions rest on, with its digest. A line begins with a checksum over itself and the checksum before it,
so that a line that is damaged, lost or moved shows:

    {"sum":"5c1d...","mat":1,"key":{"item":"test_shop.py::test_refund", ...}}
    {"sum":"09ab...","source":"shop.py","digest":"e3b0..."}
    {"sum":"77fe...","kind":"explore","of":"4f53...","more":null,"run":[...]}

`keep` returns once the line is written to the operating system: what comes after may kill the process at any moment. A last
line without its end is where a process was killed, and is cut off. Anything else that is not as it was written, another key
or a source that has changed since, sets the whole file aside, with the reason: edited code never meets old executions.

A journal is read by the search that wrote it and by nobody else. Still it is JSON only, read within limits, and no name in it
is ever imported. One process at a time has it; a second one goes without.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias

from mat.core import limits
from mat.core.codec import FORMAT
from mat.core.digest import digest
from mat.core.errors import CodecError
from mat.core.packed import pack, unpack
from mat.core.run import Run
from mat.core.spec import RunSpec, Schedule

More: TypeAlias = Callable[[Run], Any]
"""JSON data to keep beside a run."""
Restore: TypeAlias = Callable[[Run, Any], None]
"""Told of a run that is given back, with what was kept beside it."""
Confirm: TypeAlias = Callable[[Sequence[Schedule]], Iterable[Run | None]]

_HEAD: Final = re.compile(rb'^\{"sum":"([0-9a-f]{16})",')
_RUN: Final = re.compile(rb'"kind":"([a-z0-9 -]+)","of":"([0-9a-f]{32})",')
_BODY: Final = len('{"sum":"0123456789abcdef",')
_START: Final = b"0" * 16


def no_digest(source: str) -> str:
    """For searches whose code cannot change between two of them."""
    return ""


class Journal:
    """One search's finished executions; made by `open_journal`. `found` counts those that were there, `recalled` those taken.

    `said` is why a file that was there is not used, or why nothing is kept any more; "" where all is well.
    """

    def __init__(
        self, file: _File | None, spec: RunSpec, said: str = "", *, more: More | None = None, restore: Restore | None = None
    ) -> None:
        self._file, self._spec = file, spec
        self.path = None if file is None else file.path
        self._more, self._restore = more, restore
        self._kept: dict[tuple[str, str], deque[tuple[int, int]]] = {}
        self._sources: dict[str, str] = {}
        self._lock = Lock()
        self.said = said
        self.recalled = 0
        self.found = 0

    def recall(self, kind: str, schedule: Schedule) -> Run | None:
        """The next execution that was kept under this kind and schedule; each is given back once."""
        if not self._kept:
            return None
        with self._lock:
            waiting = self._kept.get((kind, _of(schedule)))
            if not waiting or self._file is None:
                return None
            data = json.loads(self._file.read(*waiting.popleft()))
        try:
            run = unpack(data["run"], self._spec)
        except CodecError:
            return None  # the line is as it was written, so it was written by other code; execute it again
        if self._restore is not None:
            self._restore(run, data["more"])
        self.recalled += 1
        return run

    def holds(self, kind: str, schedule: Schedule) -> bool:
        """Whether `recall` would find one."""
        return bool(self._kept and self._kept.get((kind, _of(schedule))))

    def keep(self, kind: str, schedule: Schedule, run: Run) -> None:
        """Write one finished execution; once this returns, it outlives the process."""
        if self._file is None:
            return
        try:
            text = pack(run, self._spec)
        except CodecError:  # it will be executed again
            return
        more = "null" if self._more is None else json.dumps(self._more(run))
        self._write(f'"kind":"{kind}","of":"{_of(schedule)}","more":{more},"run":{text}}}\n')

    def learn(self, sources: Mapping[str, str]) -> None:
        """Note what executions rest on: names with their digests. Call it before the executions that do."""
        for name, found in sources.items():
            if self._sources.get(name) != found:
                self._sources[name] = found
                self._write(f'"source":{json.dumps(name)},"digest":{json.dumps(found)}}}\n')

    def confirming(self, confirm: Confirm) -> Callable[[Sequence[Schedule]], Sequence[Run | None]]:
        """`confirm`, asked only for what it had not executed before; each run is kept as soon as it is given."""

        def through(schedules: Sequence[Schedule]) -> Sequence[Run | None]:
            runs = [self.recall("fresh", schedule) for schedule in schedules]
            missing = [index for index, run in enumerate(runs) if run is None]
            answers = confirm([schedules[index] for index in missing]) if missing else ()
            for index, run in zip(missing, answers, strict=True):
                runs[index] = run
                if run is not None:
                    self.keep("fresh", schedules[index], run)
            return runs

        return through

    def once(self, kind: str, schedule: Schedule, execute: Callable[[], Run]) -> Run:
        """What was kept, or else what `execute` gives: for executions beside the search's own."""
        run = self.recall(kind, schedule)
        if run is None:
            run = execute()
            self.keep(kind, schedule, run)
        return run

    def _write(self, body: str) -> None:
        with self._lock:
            if self._file is None:
                return
            try:
                if not self._file.append(body):
                    self._stop(f"the journal has reached its limit of {limits.JOURNAL_BYTES} bytes; what follows is not kept")
            except OSError as error:
                self._stop(f"the journal could not be written: {error}")

    def _stop(self, why: str) -> None:
        self.said = why
        self.close()

    def close(self) -> None:
        """Let go of the file; it stays."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """The search is finished and said: nothing is left to resume."""
        if self._file is not None:
            self._file.path.unlink(missing_ok=True)
            self.close()


def open_journal(
    path: Path,
    spec: RunSpec,
    *,
    key: Mapping[str, Any],
    source_digest: Callable[[str], str] = no_digest,
    more: More | None = None,
    restore: Restore | None = None,
) -> Journal:
    """The journal of a search of `spec`, at `path`; a new one where none is there that fits.

    `key`: JSON data by name that must be the same for executions to be the same: the item, what the search is, versions.
    `source_digest` gives the digest that a source has now. `more` and `restore`: what is kept beside each run. The file that
    does not fit is renamed to `*.aside.jsonl`.
    """
    try:
        file = _File.opened(path)
    except OSError as error:
        return Journal(None, spec, f"no journal is kept: {error}")
    if file is None:
        return Journal(None, spec, "another process searches the same; what this one executes is not kept")
    journal = Journal(file, spec, more=more, restore=restore)
    wanted = json.loads(json.dumps(key))
    try:
        _load(journal, file, wanted, source_digest)
    except _UnfitError as unfit:
        try:
            file = file.replaced()
        except OSError as error:
            return Journal(None, spec, f"no journal is kept: {error}")
        journal = Journal(file, spec, f"an interrupted search was set aside: {unfit}", more=more, restore=restore)
    if file.empty:
        journal._write(f'"mat":{FORMAT},"key":{json.dumps(wanted)}}}\n')
    return journal


class _UnfitError(Exception):
    """Why a journal is not used."""


def _load(journal: Journal, file: _File, key: Any, source_digest: Callable[[str], str]) -> None:
    """Find what a file holds, check all of it, and cut off a last line that is not whole."""
    changed: list[str] = []
    for number, (offset, line) in enumerate(file.lines()):
        if number == 0:
            _check_key(line, key)
            continue
        run = _RUN.match(line, _BODY)
        if run is not None:
            where = (offset, len(line))
            journal._kept.setdefault((run[1].decode(), run[2].decode()), deque()).append(where)
            journal.found += 1
            continue
        data = _data(line)
        name, noted = data.get("source"), data.get("digest")
        if not isinstance(name, str) or not isinstance(noted, str):
            raise _UnfitError(f"line {number + 1} is of another version")
        journal._sources[name] = noted
        if source_digest(name) != noted:
            changed.append(name)
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise _UnfitError(f"{', '.join(changed[:3])}{more} changed since")


def _check_key(line: bytes, key: Mapping[str, Any]) -> None:
    data = _data(line)
    found = data.get("key")
    if data.get("mat") != FORMAT or not isinstance(found, dict):
        raise _UnfitError("it is of another version")
    differing = sorted(name for name in {*found, *key} if found.get(name) != key.get(name) or (name in found) != (name in key))
    if differing:
        raise _UnfitError(f"it was another search ({', '.join(differing)})")


def _data(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise _UnfitError("a line of it is no JSON") from None
    if not isinstance(data, dict):
        raise _UnfitError("a line of it is of another version")
    return data


def _of(schedule: Schedule) -> str:
    return digest([item.key for item in schedule])[:32]


class _File:
    """A file of checked lines, which this process alone has open. A line is there as a whole, or not at all."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor
        self._end = (_START, 0)  # checksum and offset in one value, so that no interrupt can part them

    @classmethod
    def opened(cls, path: Path) -> _File | None:
        """None where another process has it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
        if _locked(descriptor):
            return cls(path, descriptor)
        os.close(descriptor)
        return None

    @property
    def empty(self) -> bool:
        return self._end[1] == 0

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Offset and line, checked one after the other; a last one without its end is cut off. Read it to its end, once."""
        with open(self._descriptor, "rb", closefd=False) as stream:  # closing any descriptor of the file would end the lock
            while line := stream.readline(limits.FILE_BYTES + 1):
                before, offset = self._end
                if not line.endswith(b"\n"):
                    if len(line) > limits.FILE_BYTES:
                        raise _UnfitError(f"it has a line of more than {limits.FILE_BYTES} bytes")
                    break
                head = _HEAD.match(line)
                if head is None or head[1] != _checksum(before, line[_BODY:]):
                    raise _UnfitError(f"it is damaged at byte {offset}")
                self._end = (head[1], offset + len(line))
                yield offset, line
        os.ftruncate(self._descriptor, self._end[1])

    def read(self, offset: int, length: int) -> bytes:
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        parts = []
        while length and (part := os.read(self._descriptor, length)):
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def append(self, body: str) -> bool:
        """Write a line; False where there is no room for it. Of a line whose writing was ended early nothing stays."""
        before, size = self._end
        data = body.encode("ascii")
        total = _checksum(before, data)
        line = b'{"sum":"' + total + b'",' + data
        if size + len(line) > limits.JOURNAL_BYTES or len(line) > limits.FILE_BYTES:
            return False
        if os.lseek(self._descriptor, 0, os.SEEK_END) != size:  # an interrupt came while the last one was written
            os.ftruncate(self._descriptor, size)
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        self._end = (total, size + len(line))
        return True

    def replaced(self) -> _File:
        """A new file in this one's place, which is set aside."""
        os.replace(self.path, self.path.with_suffix(".aside.jsonl"))
        self.close()
        file = _File.opened(self.path)
        if file is None:
            raise BlockingIOError("another process searches the same")
        return file

    def close(self) -> None:
        os.close(self._descriptor)


def _checksum(before: bytes, body: bytes) -> bytes:
    return sha256(before + body).hexdigest()[:16].encode()


def _locked(descriptor: int) -> bool:
    """Take the file for this process, not for those it forks; where the platform cannot, go without."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

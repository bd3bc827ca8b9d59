"""The artefact log: finished runs, appended by many processes at once, read back by one. The store is made from it.

    log = RunLog(".mat/store", session="nightly-17")
    log.append(Entry(item="test_shop.py::test_refund", condition="nominal", run=run))
    reading = read(".mat/store")
    for entry in reading: ...
    reading.findings                      # what could not be read, and why

A folder holds shards (`*.mat.log`); each process writes one of its own, so that nobody waits for anybody. A shard is a file of
lines of plain ASCII. Each has its number in the shard, the size of what follows, a checksum over number and content, and the
content, which is JSON:

    0 1873 9f2c... {"mat":1,"log":"nightly-17","layout":{...}}
    1 5724 0b7e... {"item":"test_shop.py::test_refund","condition":"nominal",...,"run":[...]}

`append` returns once its line is with the operating system: from then on it outlives the process, however that ends (not a
failure of the machine: nothing is synced to the disk). What a killed process had half written is the end of its shard and is
left out by the reader, which says so. A line that was damaged later is left out in the same way; the lines after it stand,
and the numbers tell how many are missing. Runs are in recorded form, so what was redacted is in no log.

Shards come from other machines too: JSON only, read within limits, no name in them is ever imported.
"""

from __future__ import annotations

import json
import os
import re
from ast import literal_eval
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import IO, Any, ClassVar, Final, TypeAlias, cast, get_args, get_origin, get_type_hints

from mat.core import limits
from mat.core.codec import FORMAT, decode, encode
from mat.core.digest import digest, plain
from mat.core.errors import CodecError, LimitReached, SpecError
from mat.core.packed import absent, fields_of, pack, unpack
from mat.core.run import Finding, Run, TapeEntry
from mat.core.site import Site
from mat.core.spec import RunSpec, Schedule
from mat.measure.rows import NO_LABELS, ClaimCount, Condition, Labels, RunRow, Score, row_of
from mat.monitor.faults import RULES, Rules

__all__ = ["FOLDER", "START", "SUFFIX", "Entry", "Mark", "Reading", "RunLog", "Shard", "read", "shards"]

FOLDER: Final = Path(".mat", "store")
"""Where a project keeps its log, and the store that is made from it."""
SUFFIX: Final = ".mat.log"
_PLAIN: Final = RunSpec()
"""The spec that packing and unpacking share; a run that differs from it tells its own."""
_SAID: Final = ("item", "condition", "labels", "claims", "scores", "session", "repeat", "written_at")
_LINE: Final = re.compile(rb"(\d{1,12}) (\d{1,9}) ([0-9a-f]{16}) ")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.\-]+")
_NAME_CHARS: Final = 60
_LINE_BYTES: Final = limits.FILE_BYTES + 64
"""A content of the largest size, and what stands before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One finished run with what it stands for: everything that a row of numbers is made of (`row`).

    `session` is the pytest session or the import it belongs to. `repeat` tells deliberate repetitions of one spec apart;
    without it the same run recorded twice in a session is one run. `written_at` is a wall-clock time for people, in ISO 8601,
    "" where the caller gives none: nothing is computed from it.
    """

    item: str
    condition: Condition
    run: Run
    labels: Labels = NO_LABELS
    claims: ClaimCount | None = None
    scores: tuple[Score, ...] = ()
    session: str = ""
    repeat: int = 0
    written_at: str = ""

    @property
    def key(self) -> str:
        """What tells runs apart in a store: what the entry says, the spec and the facts of the run, not the verdicts on it."""
        return self.key_with(self.run.head)

    def key_with(self, head: str) -> str:
        """The key, where the head of the run is known already."""
        labels = self.labels
        said = [self.session, self.item, self.condition, labels.category, labels.input, labels.variant, labels.episode]
        return digest([*said, labels.place, self.repeat, self.run.id, head, self.run.success])

    def row(self, rules: Rules = RULES) -> RunRow:
        """The run in numbers."""
        return row_of(
            self.run, item=self.item, condition=self.condition, rules=rules, labels=self.labels, claims=self.claims,
            scores=self.scores,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """An entry without its run, as it is read."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    item: str
    condition: Condition
    labels: Labels = NO_LABELS
    claims: ClaimCount | None = None
    scores: tuple[Score, ...] = ()
    session: str = ""
    repeat: int = 0
    written_at: str = ""


# -- writing ----------------------------------------------------------------------------------------------------------


class RunLog:
    """Appends entries to a shard of its own in a folder; use one per process, a forked child gets another by itself.

    `session` is what entries belong to that name none. Nothing is created before the first entry. Threads may share it.
    """

    def __init__(self, folder: str | Path, *, session: str = "") -> None:
        self.folder, self.session = Path(folder), session
        self._lock = Lock()
        self._shard: _Writer | None = None

    @property
    def path(self) -> Path | None:
        """The shard of this process, None before its first entry."""
        return self._shard.path if self._shard is not None and self._shard.process == os.getpid() else None

    def append(self, entry: Entry) -> None:
        """Write one finished run; once this returns, it outlives the process.

        CodecError where the run cannot be packed or the file not be written, LimitReached where it is larger than a reader
        would take. After an error nothing of the entry is in the log, and the next one can be appended.
        """
        entry = entry if entry.session else replace(entry, session=self.session)
        said = {name: encode(value) for name in _SAID if (value := getattr(entry, name))}
        text = f'{json.dumps(said, allow_nan=False)[:-1]},"run":{pack(entry.run, _PLAIN)}}}'
        with self._lock:
            try:
                self._opened().append(text.encode("ascii"))
            except OSError as error:
                raise CodecError(
                    what=f"cannot write the artefact log: {error.strerror or error}", fix="check the folder and the disk",
                    where=str(self.folder),
                ) from error  # fmt: skip

    def close(self) -> None:
        """Let go of the file; it stays. A later entry opens another one."""
        with self._lock:
            if self._shard is not None:
                self._shard.close()
                self._shard = None

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self) -> _Writer:
        if self._shard is None or self._shard.process != os.getpid():  # the shard of a parent process is not ours
            self._shard = _Writer.opened(self.folder, self.session)
        return self._shard


class _Writer:
    """A new file that one process appends lines to. A line is there as a whole, or will be cut off."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self.process = path, os.getpid()
        self._descriptor = descriptor
        self._end = (0, 0)  # count of lines and bytes in one value, so that no interrupt can part them

    @classmethod
    def opened(cls, folder: Path, session: str) -> _Writer:
        """A file that nobody had; its header is written with its first entry."""
        folder.mkdir(parents=True, exist_ok=True)
        stem = _UNSAFE.sub("-", session)[:_NAME_CHARS] or "runs"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
        number = 0
        while True:  # the system gives numbers of ended processes again
            path = folder / f"{stem}-{os.getpid()}-{number}{SUFFIX}"
            try:
                writer = cls(path, os.open(path, flags, 0o600))
            except FileExistsError:
                number += 1
                continue
            writer.append(json.dumps({"mat": FORMAT, "log": session, "layout": layout()}).encode("ascii"))
            return writer

    def append(self, content: bytes) -> None:
        count, size = self._end
        if len(content) > limits.FILE_BYTES:
            raise LimitReached(
                what=f"a run of {len(content)} bytes does not go into the artefact log",
                why=f"no reader takes a line of more than {limits.FILE_BYTES} bytes",
                fix="record smaller values, or lower the horizon", where=str(self.path),
            )  # fmt: skip
        line = b"%d %d %s %s\n" % (count, len(content), _checksum(count, content), content)
        if os.lseek(self._descriptor, 0, os.SEEK_END) != size:  # the last line was not written to its end
            os.ftruncate(self._descriptor, size)
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        self._end = (count + 1, size + len(line))

    def close(self) -> None:
        if self.process == os.getpid():
            os.close(self._descriptor)


def _checksum(number: int, content: bytes) -> bytes:
    return sha256(b"%d " % number + content).hexdigest()[:16].encode("ascii")


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far a shard was read: the next line's number, the byte where it begins, and the last line, to know it again.

    `last` is the byte where that line begins and its checksum.
    """

    number: int
    offset: int
    last: tuple[int, str] = (0, "")


START: Final = Mark(number=0, offset=0)


def shards(folder: str | Path) -> tuple[Path, ...]:
    """The shards of a folder, by name; SpecError where there is no such folder. A shard may be named itself."""
    folder = Path(folder)
    if folder.is_file():
        return (folder,)
    if not folder.is_dir():
        raise SpecError(
            what=f"there is no artefact log {folder}", why="a log is a folder of *.mat.log files, or one of them",
            fix="record runs first, or name the folder they were recorded in", where=str(folder),
        )  # fmt: skip
    return tuple(sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX) and path.is_file()))


def read(*folders: str | Path) -> Reading:
    """All entries of one or more logs: shard by shard in the order of their names, each in the order it was written."""
    return Reading(path for folder in folders for path in shards(folder))


class Reading:
    """Entries of several shards, one in memory at a time. `findings` says what was left out, once they are read."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = tuple(paths)
        self.findings: tuple[Finding, ...] = ()

    def __iter__(self) -> Iterator[Entry]:
        self.findings = ()
        for path in self.paths:
            shard = Shard(path)
            yield from shard
            self.findings += shard.findings


class Shard:
    """One file of a log, read from a mark on. While it is read, `mark` is behind the last whole line that was given.

    `findings` are those of lines behind the mark that was given at first: `log-damaged` for lines in the middle, `log-torn`
    for an end that was not written, or not yet: the process may be at it. `log-foreign`: another version wrote it.
    CodecError where the file cannot be opened.
    """

    def __init__(self, path: str | Path, mark: Mark = START) -> None:
        self.path, self.mark = Path(path), mark
        self.findings: tuple[Finding, ...] = ()
        self._layout: _Layout = {}

    def __iter__(self) -> Iterator[Entry]:
        try:
            with self.path.open("rb") as stream:
                problem = self._header(stream.readline(_LINE_BYTES))
                if problem is not None:
                    self._tell(*problem)
                    return
                if not self._resumed(stream):
                    stream.seek(0)
                    self.mark = Mark(number=1, offset=len(stream.readline(_LINE_BYTES)))
                yield from self._entries(stream)
        except OSError as error:
            raise CodecError(
                what=f"cannot read {self.path}: {error.strerror or error}", fix="check the file", where=str(self.path)
            ) from None

    def _resumed(self, stream: IO[bytes]) -> bool:
        """Go to the mark; False where the file is not the one it was made in."""
        start, checksum = self.mark.last
        if not start:
            return False
        stream.seek(start)
        line = stream.readline(_LINE_BYTES)
        found = _LINE.match(line)
        return stream.tell() == self.mark.offset and found is not None and found[3].decode() == checksum

    def _header(self, line: bytes) -> tuple[str, str] | None:
        """(code, message) of what keeps the shard from being read."""
        if not line.endswith(b"\n"):
            return "log-torn", f"it breaks off in its first line, at byte {len(line)}; it holds no run"
        content = _content(line, 0)
        try:
            header = json.loads(content) if content is not None else None
        except ValueError:
            header = None
        if not isinstance(header, dict) or type(header.get("mat")) is not int:
            return "log-damaged", "its first line is not that of an artefact log, so nothing of it is read"
        if header["mat"] > FORMAT:
            return "log-foreign", f"it has format {header['mat']}, this pytest-mat reads {FORMAT}; upgrade pytest-mat"
        if not _fits(header.get("layout")):
            return "log-foreign", "another version of pytest-mat wrote it, whose runs have other fields; read it with that one"
        self._layout = header["layout"]
        return None

    def _entries(self, stream: IO[bytes]) -> Iterator[Entry]:
        lost: list[int] = []  # offsets of lines that were left out since the last good one
        while line := stream.readline(_LINE_BYTES):
            end = stream.tell()
            number = self.mark.number
            entry, found = _entry(line, self._layout)
            if entry is None or found < number:
                lost.append(end - len(line))
                if not line.endswith(b"\n") and len(line) < _LINE_BYTES:
                    break
                continue
            if found > number or lost:
                self._damaged(found - number, end - len(line))
                lost = []
            checksum = cast(re.Match[bytes], _LINE.match(line))[3].decode()
            self.mark = Mark(number=found + 1, offset=end, last=(end - len(line), checksum))
            yield entry
        if lost:
            self._tell(
                "log-torn",
                f"line {self.mark.number}, at byte {self.mark.offset}, is not whole: {stream.tell() - self.mark.offset} bytes "
                "are left out; the process that wrote it was ended, or is still writing",
            )

    def _damaged(self, count: int, end: int) -> None:
        runs = "1 run is" if count == 1 else f"{count} runs are" if count else "no run is"
        self._tell("log-damaged", f"bytes {self.mark.offset} to {end} are not as they were written: {runs} left out")

    def _tell(self, code: str, message: str) -> None:
        self.findings += (Finding(code=code, message=f"{self.path.name}: {message}"),)


def _content(line: bytes, number: int) -> bytes | None:
    """The content of a whole line that has this number, None of any other."""
    found = _LINE.match(line)
    if found is None or int(found[1]) != number or not line.endswith(b"\n"):
        return None
    content = line[found.end() : -1]
    return content if len(content) == int(found[2]) and found[3] == _checksum(number, content) else None


def _entry(line: bytes, written: _Layout) -> tuple[Entry | None, int]:
    """The entry of a line and its number; None where the line is not as it was written."""
    found = _LINE.match(line)
    number = int(found[1]) if found is not None else 0
    content = _content(line, number) if number else None
    if content is None:
        return None, number
    try:
        data = json.loads(content)
        packed = data.pop("run")
        run = unpack(packed if written == layout() else _aligned(packed, written), _PLAIN)
        said = decode(_Said, data)
    except (CodecError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None, number  # its checksum holds, so it was made by hand
    return Entry(run=run, **{name: getattr(said, name) for name in _SAID}), number


# -- the layout of packed runs ----------------------------------------------------------------------------------------

_Layout: TypeAlias = dict[str, list[list[str]]]
_fields_of: Final = lru_cache(maxsize=64)(fields_of)


@lru_cache(maxsize=1)
def layout() -> _Layout:
    """The fields of each class in a packed run, in the order in which they are written: what a text rests on."""
    found = {}
    for kind in _kinds():
        common, rare = _fields_of(kind)
        found[kind.__name__] = [[name for name, _ in common], [name for name, _ in rare]]
    return dict(sorted(found.items()))


@lru_cache(maxsize=1)
def _kinds() -> tuple[Any, ...]:
    """The classes of which a packed run is made."""
    found: list[Any] = []
    waiting: list[Any] = [Run]
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.append(kind)
            waiting += [part for hint in get_type_hints(kind, include_extras=True).values() for part in _classes(hint)]
    return tuple(found)


def _classes(hint: Any) -> Iterator[Any]:
    """The classes of ours in a type hint that are written field by field."""
    if is_dataclass(hint) and hint is not Site:
        yield hint
    for inner in get_args(hint):
        yield from _classes(inner)


def _fits(old: Any) -> bool:
    """Whether runs of this layout can be read: fields have come since, with a default or empty as a rule, and none has gone.

    A field that went while another came may have got another name, so that what it said would be lost. Entries of tapes are
    written without some of their fields, so nothing of them may differ.
    """
    if old == layout():
        return True
    if not isinstance(old, dict) or "Run" not in old or not all(map(_is_listed, old.values())):
        return False
    for kind in _kinds():
        now, was = layout()[kind.__name__], old.get(kind.__name__)
        if was is None:  # a class that came with a field of another
            continue
        common, rare = _fields_of(kind)
        known = (hint for name, hint in (*common, *rare) if name in was[0] or name in was[1])
        if any(part.__name__ not in old for hint in known for part in _classes(hint)):
            return False
        gone = {*was[0], *was[1]} - {*now[0], *now[1]}
        come = {*now[0], *now[1]} - {*was[0], *was[1]}
        defaults = {field.name for field in fields(kind) if field.default is not MISSING}
        if gone or not come <= defaults | {*now[1]} or (kind is TapeEntry and now != was):
            return False
    return True


def _is_listed(found: Any) -> bool:
    """Whether this is two lists of names."""
    listed = isinstance(found, list) and len(found) == 2 and all(isinstance(part, list) for part in found)
    return listed and all(type(name) is str for part in found for name in part)


def _aligned(packed: Any, old: _Layout) -> Any:
    """A run that was packed in another layout as it is packed in this one."""
    schedule, run, tape = packed
    return [None if schedule is None else _moved(schedule, Schedule, old), _moved(run, Run, old), tape]


def _moved(data: Any, kind: Any, old: _Layout) -> list[Any]:
    common, rare = _fields_of(kind)
    was = old[kind.__name__]
    said = dict(zip(was[0], data, strict=False)) | (dict(zip(was[1], data[-1], strict=True)) if len(data) > len(was[0]) else {})
    defaults = {field.name: field.default for field in fields(kind) if field.default is not MISSING}

    def value(name: str, hint: Any) -> Any:
        if name in said:
            return _part(said[name], hint, old)
        return plain(defaults[name]) if name in defaults else literal_eval(absent(hint))

    found = [value(name, hint) for name, hint in common]
    return [*found, [value(name, hint) for name, hint in rare]] if any(name in said for name, _ in rare) else found


def _part(data: Any, hint: Any, old: _Layout) -> Any:
    """The value of a field: of one of our classes, of several or none of them, or as it is."""
    kind = next(_classes(hint), None)
    if kind is None or data is None:
        return data
    return [_moved(item, kind, old) for item in data] if get_origin(hint) is tuple else _moved(data, kind, old)

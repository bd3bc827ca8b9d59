"""Checkpoint logs: append-only files that outlive the process that writes them, however it ends.

    log = claim(path, kind="search", key={"item": "test_shop.py::test_refund"})
    for line in log.lines():          # what an earlier process appended, up to the first line that is torn or damaged
        line.data()
    log.append('{"kind":"explore"}')  # once this returns, a kill -9 does not lose it
    log.note()                        # why existing content is not used; "" if all of it is

Every line is a JSON array of a checksum, its number and the content; line 0 is the header:

    ["5c1d09ab77fe4f53",0,{"format":"pytest-mat log","version":1,"kind":"search","key":{"item":"test_shop.py::test_refund"}}]
    ["09ab4f5377fe5c1d",1,{"source":"shop.py","digest":"e3b0..."}]

`key` is JSON data by name that must be equal for the content to be valid. A checksum covers the number, the content and the
header, so a line that was damaged, moved, or copied from another log shows. `append` hands the whole line to the operating
system in one write (nothing is synced to the disk: a log does not outlive a failure of the machine). A process that is killed
while it writes leaves a torn last line, which nobody reads and the next `append` cuts off.

Three ways to write, by who else writes:

- `claim`: one process at a time has the log. A log with another key or of another version is set aside.
- `share`: several processes append in turn, each while it holds the lock.
- `create`: a file of its own for each process, in a folder that several write to.

Logs come from other machines and from version control too: JSON only, read within limits, no name in them is imported.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import IO, Any, Final, Literal, TypeAlias

from mat.core import limits
from mat.core.errors import CodecError, LimitReached, enumeration
from mat.core.files import PRIVATE, make_folder, write_whole
from mat.core.value import fast_constructor

__all__ = [
    "START",
    "Gap",
    "Header",
    "Log",
    "LogLine",
    "Mark",
    "Parse",
    "Unusable",
    "claim",
    "create",
    "lock",
    "read_header",
    "resume",
    "scan",
    "share",
    "tidy",
]  # fmt: skip

VERSION: Final = 1
_FORMAT: Final = "pytest-mat log"
_LINE: Final = re.compile(rb'\["([0-9a-f]{16})",(\d{1,12}),')
_COVERED: Final = len('["0123456789abcdef",')
"""Where a line begins to be covered by its checksum."""
_OLDER: Final = b'{"sum":"'
"""How the journals of searches and evaluations began before they were checkpoint logs."""
_END: Final = b"]\n"
_AROUND: Final = 64
"""An upper bound on the bytes of a line apart from its content."""
_BUFFER: Final = 256 * 1024
"""Bytes read at a time: Python's own choice, a page, asks the system for every few lines."""


Problem: TypeAlias = Literal["torn", "damaged", "version", "key"]


class Unusable(CodecError):  # noqa: N818  (named after what happened)
    """The content of a log cannot be used, because of its header. `what` is the reason as the end of a sentence.

    `problem`: "torn" where the header was not written to its end, "damaged" where the file does not begin like a log,
    "version" where another version of pytest-mat wrote it, "key" where it belongs to something else.
    """

    def __init__(self, what: str, *, problem: Problem = "damaged", why: str = "", fix: str = "", where: str = "") -> None:
        super().__init__(what, why=why, fix=fix, where=where)
        self.problem: Problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far a log was read: the number of the next line, the byte where it begins, and the last line, to recognise the log.

    `last` is the byte where that line begins and its checksum.
    """

    number: int
    offset: int
    last: tuple[int, str] = (0, "")


START: Final = Mark(number=0, offset=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """An undamaged line. `offset` and `end`: the bytes of the file where it begins and ends."""

    number: int
    checksum: bytes
    offset: int
    end: int
    content: bytes

    @property
    def place(self) -> tuple[int, int]:
        """Where the content is in the file, for `Log.content`: byte and size."""
        size = len(self.content)
        return self.end - len(_END) - size, size

    @property
    def mark(self) -> Mark:
        """The place behind this line."""
        return Mark(number=self.number + 1, offset=self.end, last=(self.offset, self.checksum.decode()))

    def data(self) -> Any:
        """The content as JSON data; CodecError if it is not JSON, although the checksum is right."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            raise CodecError(what=f"line {self.number} of a log is not JSON", why="it was not written by pytest-mat") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Damaged or torn bytes, from `offset` to `end`.

    `missing`: how many lines are lost, by the number of the next whole line. `last`: no whole line follows. `torn`: only the
    end of the last line is missing, which is what a killed process leaves, and what a line looks like while it is written.
    """

    offset: int
    end: int
    missing: int
    last: bool
    torn: bool


_line: Final = fast_constructor(LogLine)


Parse: TypeAlias = Callable[[bytes, int], LogLine | None]
"""(bytes of a line, byte where it begins) -> the LogLine; None if the line is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a log: what kind of log it is, and what its content is valid for."""

    kind: str
    key: Mapping[str, Any]
    checksum: bytes
    end: int

    @property
    def name(self) -> str:
        """The kind, as messages call it: headers of run logs have another word."""
        return "run" if self.kind == "artefact" else self.kind

    @property
    def mark(self) -> Mark:
        """The place behind the header."""
        return Mark(number=1, offset=self.end, last=(0, self.checksum.decode()))

    @property
    def parse(self) -> Parse:
        """Reads the lines of this log."""
        return _parser(self.checksum)


def _parser(seed: bytes) -> Parse:
    """Reads lines whose checksums cover `seed`. A closure, with the seed hashed once: opening a log calls it for every line."""
    seeded, match = sha256(seed), _LINE.match

    def parse(line: bytes, offset: int) -> LogLine | None:
        head = match(line)
        if head is None or line[-2:] != _END:
            return None
        checksum, number = head.groups()
        if checksum != _checksum(seeded, line[_COVERED:-2]):
            return None
        return _line(int(number), checksum, offset, offset + len(line), line[head.end() : -2])

    return parse


def _checksum(seeded: Any, covered: bytes) -> bytes:
    """`seeded`: a SHA-256 that has got the seed; it stays as it is."""
    hashed = seeded.copy()
    hashed.update(covered)
    text: str = hashed.hexdigest()
    return text[:16].encode()


def _written(seed: bytes, number: int, content: bytes) -> tuple[bytes, bytes]:
    """A line and its checksum."""
    covered = b"%d,%b" % (number, content)
    checksum = _checksum(sha256(seed), covered)
    return b'["%b",%b]\n' % (checksum, covered), checksum


# -- reading ----------------------------------------------------------------------------------------------------------


def read_header(line: bytes) -> Header:
    """The header of a log from its first line; Unusable if that is not a header of this version."""
    if not line.endswith(b"\n") and _is_torn_header(line):
        raise Unusable(f"it ends within its first line, at byte {len(line)}", problem="torn")
    if line.startswith(_OLDER):
        raise Unusable("an older version of pytest-mat wrote it", problem="version")
    found = _parser(b"")(line, 0)
    try:
        data = found.data() if found is not None and found.number == 0 else None
    except CodecError:  # somebody has computed a checksum for it
        data = None
    if found is None or not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise Unusable("its first line is damaged, or not written by pytest-mat")
    version, kind, key = data.get("version"), data.get("kind"), data.get("key")
    if version != VERSION or not isinstance(kind, str) or not isinstance(key, dict):
        fix = "upgrade pytest-mat" if type(version) is int and version > VERSION else ""
        raise Unusable("another version of pytest-mat wrote it", problem="version", fix=fix)
    return Header(kind=kind, key=key, checksum=found.checksum, end=found.end)


def _is_torn_header(line: bytes) -> bool:
    """Whether an unfinished line is what a process leaves behind that is killed while it writes a header."""
    checksum = line[2:18]
    begin = b'["%b",0,{"format":"%b",' % (checksum, _FORMAT.encode())
    return not checksum.strip(b"0123456789abcdef") and (line.startswith(begin) or begin.startswith(line))


def scan(stream: IO[bytes], mark: Mark, parse: Parse) -> Iterator[LogLine | Gap]:
    """The lines of a file from a mark on, and what is damaged between them or torn at the end.

    `stream` stands at the mark. One line is in memory at a time; one that is longer than a reader takes is damage.
    """
    number, end, lost = mark.number, mark.offset, -1
    torn, longest = False, limits.FILE_BYTES + _AROUND
    while line := stream.readline(longest):
        offset, end = end, end + len(line)
        found = parse(line, offset)
        if found is None or found.number < number:
            torn = lost < 0 and not line.endswith(b"\n") and len(line) < longest
            lost = offset if lost < 0 else lost
            continue
        if found.number > number or lost >= 0:
            start = offset if lost < 0 else lost
            yield Gap(offset=start, end=offset, missing=found.number - number, last=False, torn=False)
        number, lost = found.number + 1, -1
        yield found
    if lost >= 0:
        yield Gap(offset=lost, end=end, missing=0, last=True, torn=torn)


def resume(stream: IO[bytes], mark: Mark, parse: Parse) -> bool:
    """Go to the mark; False if the mark belongs to another file."""
    offset = mark.last[0]
    stream.seek(offset)
    found = parse(stream.readline(limits.FILE_BYTES + _AROUND), offset) if offset else None
    return found is not None and found.mark == mark


# -- writing ----------------------------------------------------------------------------------------------------------


class Log:
    """A log that this process appends to; made by `claim`, `share` or `create`. Threads may use it.

    `mark` is behind the last line that was read or appended. `gap` is where reading had to end before the end of the file.
    """

    def __init__(self, path: Path, descriptor: int, header: Header, mark: Mark, *, size_limit: int | None = None) -> None:
        self.path, self.header = path, header
        self._mark: Mark | LogLine = mark
        self.gap: Gap | None = None
        self._descriptor, self._size_limit = descriptor, size_limit
        self._note = ""
        self._read, self._damaged = False, False
        self._lock = Lock()

    @property
    def mark(self) -> Mark:
        return self._mark if isinstance(self._mark, Mark) else self._mark.mark

    def lines(self) -> Iterator[LogLine]:
        """The whole lines behind `mark`, which moves with them, up to the first that is torn or damaged (`gap`).

        Take all that you want before you call `append` or `content`: both move the place where the file is read.
        """
        # closing any descriptor of the file would end the lock
        with open(self._descriptor, "rb", buffering=_BUFFER, closefd=False) as stream:
            stream.seek(self.mark.offset)
            for found in scan(stream, self.mark, self.header.parse):
                if isinstance(found, Gap):
                    self.gap, self._damaged = found, not found.torn
                    break
                self._mark = found
                yield found
        self._read = True

    def content(self, place: tuple[int, int]) -> bytes:
        """The content of a line again, by its `place`."""
        offset, size = place
        parts = []
        with self._lock:
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            while size and (part := os.read(self._descriptor, size)):
                parts.append(part)
                size -= len(part)
        return b"".join(parts)

    def append(self, content: str) -> None:
        """Write one line; `content` is JSON text of one line, in ASCII. Once this returns, the line outlives the process.

        What follows the last whole line is cut off first (`cut`). OSError where it cannot be written, LimitReached where the
        line or the file would become larger than a reader takes.
        After an error nothing of the line is in the log, and the next one can be appended.
        """
        with self._lock:
            if not self._read:
                for _ in self.lines():
                    pass
            before = self.mark
            data = content.encode("ascii")
            line, checksum = _written(self.header.checksum, before.number, data)
            self._check_size(len(data), before.offset + len(line))
            self._cut()
            _write(self._descriptor, line)
            last = (before.offset, checksum.decode())
            self._mark = Mark(number=before.number + 1, offset=before.offset + len(line), last=last)

    def cut(self) -> None:
        """Cut off what follows the last whole line; if that is more than a torn line, keep a copy of the file next to it."""
        with self._lock:
            self._cut()

    def _cut(self) -> None:
        if os.lseek(self._descriptor, 0, os.SEEK_END) == self.mark.offset:
            return
        if self._damaged:
            self._copy(_aside(self.path))
            self._damaged = False
        os.ftruncate(self._descriptor, self.mark.offset)

    def _copy(self, path: Path) -> None:
        with open(self._descriptor, "rb", closefd=False) as stream, path.open("wb") as copy:  # as in `lines`
            stream.seek(0)
            shutil.copyfileobj(stream, copy)

    def _check_size(self, size: int, total: int) -> None:
        if size > limits.FILE_BYTES:
            raise LimitReached(
                what=f"an entry of {size} bytes is too large for the {self.header.name} log",
                why=f"readers accept lines of at most {limits.FILE_BYTES} bytes",
                fix="record smaller values, or lower the horizon", where=str(self.path),
            )  # fmt: skip
        if self._size_limit is not None and total > self._size_limit:
            raise LimitReached(
                what=f"the {self.header.name} log has reached its limit of {self._size_limit} bytes",
                why="files have a size limit", where=str(self.path),
            )  # fmt: skip

    def set_aside(self, why: str) -> None:
        """Begin a new log: rename the existing file to `*.aside.*`; `note` reports why.

        OSError where that cannot be done, BlockingIOError where another process has begun the new file; the log is closed then.
        """
        try:
            os.replace(self.path, _aside(self.path))
        finally:
            self.close()
        self._descriptor = _locked_file(self.path)
        try:
            self.header = _opened(self._descriptor, self.header.kind, self.header.key)
        except BaseException:
            self.close()
            raise
        self._mark, self.gap, self._damaged = self.header.mark, None, False
        self._note = f"an interrupted {self.header.kind} was set aside: {why}"

    def note(self) -> str:
        """What a user should know about the existing file; "" if all of it is used, except for a torn last line."""
        if self.gap is not None and not self.gap.torn:
            return (
                f"an interrupted {self.header.kind} is damaged at byte {self.gap.offset}: everything before it is used; "
                f"the damaged file is copied to {_aside(self.path).name} before more is written"
            )
        return self._note

    def close(self) -> None:
        """Let go of the file; it stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def claim(path: Path, *, kind: str, key: Mapping[str, Any], size_limit: int | None = None) -> Log | None:
    """The log at `path`, which this process alone has until it is closed or the process ends (not those that it forks).

    None if another process has it. A log with another key, of another version, or that does not begin like a log is renamed
    to `*.aside.*`; `note` reports why. OSError where no file can be made.
    """
    make_folder(path.parent)
    try:
        descriptor = _locked_file(path)
    except BlockingIOError:
        return None
    log = Log(path, descriptor, Header(kind=kind, key=key, checksum=b"", end=0), START, size_limit=size_limit)
    try:
        log.header = _opened(descriptor, kind, key)
        log._mark = log.header.mark
    except Unusable as unusable:
        try:
            log.set_aside(unusable.what)
        except BlockingIOError:
            return None
    except BaseException:
        log.close()
        raise
    return log


@contextmanager
def share(path: Path, mark: Mark, *, kind: str, key: Mapping[str, Any], size_limit: int | None = None) -> Iterator[Log]:
    """The log at `path` while no other process writes it, read up to `mark`; `lines` are what others have appended since.

    Unusable where the file is not this log, or is not the one that `mark` was made in.
    """
    make_folder(path.parent)
    descriptor = os.open(path, _FLAGS, PRIVATE)
    try:
        lock(descriptor)
        header = _opened(descriptor, kind, key)
        if mark.number > 1:
            with open(descriptor, "rb", closefd=False) as stream:
                if not resume(stream, mark, header.parse):
                    raise Unusable(f"{path.name} was replaced while it was in use", problem="key", fix="run the session again")
        yield Log(path, descriptor, header, header.mark if mark.number <= 1 else mark, size_limit=size_limit)
    except Unusable as unusable:
        raise Unusable(unusable.what, problem=unusable.problem, fix=unusable.fix, where=str(path)) from None
    finally:
        os.close(descriptor)


def create(path: Path, *, kind: str, key: Mapping[str, Any]) -> Log:
    """A new log at `path`; FileExistsError where there is a file."""
    make_folder(path.parent)
    descriptor = os.open(path, _FLAGS | os.O_EXCL, PRIVATE)
    try:
        header = _begun(descriptor, kind, key)
    except BaseException:
        os.close(descriptor)
        path.unlink()
        raise
    return Log(path, descriptor, header, header.mark)


_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)


def lock(file: int | IO[bytes]) -> None:
    """Wait for other writers of an open file; the lock goes with the handle. Without file locks (Windows) nobody waits."""
    try:
        import fcntl
    except ImportError:
        return
    fcntl.flock(file, fcntl.LOCK_EX)


def _locked_file(path: Path) -> int:
    """The file open and locked for this process, not for those it forks; BlockingIOError where another process has it."""
    try:
        import fcntl
    except ImportError:  # without it, one process at a time may write
        return os.open(path, _FLAGS, PRIVATE)
    while True:
        descriptor = os.open(path, _FLAGS, PRIVATE)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # whoever had it has removed or renamed it meanwhile: nobody would find what is written there


def _opened(descriptor: int, kind: str, key: Mapping[str, Any]) -> Header:
    """The header that is there, or that is written now; Unusable where it is that of another log."""
    with open(descriptor, "rb", closefd=False) as stream:
        stream.seek(0)
        first = stream.readline(limits.FILE_BYTES + _AROUND)
    try:
        header = read_header(first)
    except Unusable as unusable:
        if unusable.problem != "torn":
            raise
        os.ftruncate(descriptor, 0)
        return _begun(descriptor, kind, key)
    if header.kind != kind:
        raise Unusable(f"it is a {header.name} log", problem="key")
    wanted = json.loads(json.dumps(key))
    differing = sorted(name for name in {*header.key, *wanted} if header.key.get(name, _NONE) != wanted.get(name, _NONE))
    if differing:
        raise Unusable(f"it has a different {enumeration(differing)}", problem="key")
    return header


_NONE: Final = object()


def _begun(descriptor: int, kind: str, key: Mapping[str, Any]) -> Header:
    data = json.dumps({"format": _FORMAT, "version": VERSION, "kind": kind, "key": key}, separators=(",", ":"))
    line, checksum = _written(b"", 0, data.encode("ascii"))
    _write(descriptor, line)
    return Header(kind=kind, key=key, checksum=checksum, end=len(line))


def _write(descriptor: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:  # once, as a rule: the system takes all of it
        rest = rest[os.write(descriptor, rest) :]


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.stem}.aside{path.suffix}")


def tidy(folder: Path, *, kept: int, pattern: str = "*.jsonl") -> None:
    """Keep version control away from the folder above, and remove the oldest logs that nobody took up again."""
    try:
        note = folder.parent / ".gitignore"
        if not note.exists():
            write_whole(note, b"# made by pytest-mat\n*\n")
        for path in sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)[:-kept]:
            path.unlink(missing_ok=True)
    except OSError:  # a folder that cannot be written to, or another session that tidies too
        return

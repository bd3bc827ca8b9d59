"""The stream format of traces (`*.mat.jsonl`): one JSON object per line, so that runs can be appended and judged while reading.

    {"mat": 1, "trace": "test_shop.py::test_refund", "labels": {...}}      opens a trace
    {"step": 0, "at_ms": 0, ..., "action": {...}, ...}                     its records, numbered from 0, all fields
    {"end": 2}                                                             closes it: it had two records

The records are those of a replay file. A trace without its end line was cut off: its records count, and it is not finished.
A line that is not JSON, at the end of the file or right before the next header, shows where a writer was interrupted;
everything before it is kept and its position is reported. Anywhere else it is an error. Files are untrusted: JSON only, limits
on the size and depth of a line, every field checked.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, Final, Protocol, TypeAlias, cast

from mat.core import limits
from mat.core.checkpoint import lock
from mat.core.codec import FORMAT, decode, encode, load_json
from mat.core.digest import plain
from mat.core.errors import CodecError, MatError, SpecError
from mat.core.record import Record
from mat.core.redact import cleaned
from mat.core.run import Run
from mat.core.value import EMPTY, FrozenDict, snapshot_arguments

__all__ = ["SUFFIX", "LoggedTrace", "Stored", "is_header", "parse", "read", "recognises", "write"]

SUFFIX: Final = ".mat.jsonl"
LINE_BYTES: Final = limits.FILE_BYTES
"""The largest size of a line that is read."""
_STRICT: Final = {"extra": "forbid"}
_GZIP: Final = b"\x1f\x8b"
_FIX: Final = "record it again, or truncate the file before this line"
TraceLine: TypeAlias = tuple[str, Any]
"""(position as `file:line`, JSON data or the CodecError of a line that is not JSON)."""


class Stored(Protocol):
    """A stored trace of any format. Take its records once and before the next trace; then `finished` is known."""

    @property
    def id(self) -> str: ...
    @property
    def records(self) -> Iterable[Record]: ...
    @property
    def labels(self) -> Mapping[str, Any]: ...
    @property
    def finished(self) -> bool: ...


class LoggedTrace:
    """A trace stored in our format. Take its `records` once and before the next trace: they are read on demand.

    `where` is the `file:line` of its header. `finished` and `torn` are known once the records are taken. `finished`: it has
    its end line. `torn`: where and how the file breaks off inside this trace, "" if it does not.
    """

    __slots__ = ("finished", "id", "labels", "records", "torn", "where")

    def __init__(self, id: str, labels: FrozenDict, where: str) -> None:
        self.id, self.labels, self.where = id, labels, where
        self.finished, self.torn = False, ""
        self.records: Iterator[Record] = iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    __pydantic_config__: ClassVar[Any] = _STRICT
    mat: int
    trace: str
    labels: FrozenDict = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    __pydantic_config__: ClassVar[Any] = _STRICT
    end: int


# -- to text ----------------------------------------------------------------------------------------------------------


def write(
    path: str | Path,
    records: Run | Iterable[Record],
    *,
    trace: str = "",
    labels: Mapping[str, object] | None = None,
    finished: bool = True,
) -> int:
    """Append one trace to a file and return how many records it has.

    `records` may be lazy: each is written when it comes, and if the iterable raises, the trace has no end line. For a Run, the
    default id is its task with its seed, and labels say how it ended. A half-written line of an earlier writer stays in the
    file, and readers continue after it. Two processes may append to one file: if the system has file locks (not on Windows),
    one waits for the other.

    CodecError if the file cannot be written; SpecError for a trace without an id or records not numbered 0, 1, 2, ...
    """
    if isinstance(records, Run):
        run, records = records, records.records
        trace = trace or f"{run.spec.task or 'run'} seed {run.spec.seed}"
        labels = {"termination": run.termination, "success": run.success, "elapsed_ms": run.elapsed_ms, **(labels or {})}
    if not trace or not trace.isprintable():
        raise SpecError(
            what=f"trace {trace!r} has no printable id",
            why="reports name traces by their id",
            fix='call write(..., trace="case 1")',
        )
    given = cleaned(snapshot_arguments(labels or {}, f"labels of {trace}"))
    header = {"mat": FORMAT, "trace": cleaned(trace), "labels": plain(given)}
    try:
        with _open_to_append(Path(path)) as stream:
            return _write(stream, header, records, finished)
    except OSError as error:
        raise CodecError(what=f"cannot write {path}: {error.strerror}", fix="check the folder", where=str(path)) from error


def _write(stream: IO[bytes], header: dict[str, Any], records: Iterable[Record], finished: bool) -> int:
    count = 0
    stream.write(_text(header))
    for record in records:
        if record.step != count:
            raise SpecError(
                what=f"record {count} of trace {header['trace']!r} has step {record.step}",
                why="the records of a trace are numbered 0, 1, 2, ...",
                fix="write the records of one run, all of them and in their order",
            )
        stream.write(_text(encode(cleaned(record))))
        count += 1
    if finished:
        stream.write(_text({"end": count}))
    return count


def _text(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


@contextmanager
def _open_to_append(path: Path) -> Iterator[IO[bytes]]:
    """The file open at its end, locked, and at the beginning of a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+") as stream:
        lock(stream)
        end = stream.seek(0, os.SEEK_END)
        if end:
            stream.seek(end - 1)
            if stream.read(1) != b"\n":
                stream.write(b"\n")
        yield stream


# -- from text --------------------------------------------------------------------------------------------------------


def is_header(data: object) -> bool:
    """Whether a line opens a trace in our format, of any version."""
    return isinstance(data, Mapping) and "mat" in data and "trace" in data


def recognises(path: str | Path) -> bool:
    """Whether a file begins with the header of a trace in our format; CodecError if it cannot be read."""
    first = next(_lines(str(path)), None)
    return first is not None and is_header(first[1])


def read(path: str | Path) -> Iterator[LoggedTrace]:
    """The traces of a file, plain or gzipped, in order, with one record in memory at a time.

    CodecError with `file:line` when reading reaches the first broken line.
    """
    return parse(_lines(str(path)))


def parse(lines: Iterator[TraceLine]) -> Iterator[LoggedTrace]:
    """The traces in lines that have positions."""
    ahead = _Ahead(_check_torn(lines))
    while (line := ahead.take()) is not None:
        where, data = line
        if isinstance(data, CodecError):  # a half-written header
            trace = LoggedTrace("", EMPTY, where)
            trace.torn = _torn(data)
            yield trace
            continue
        trace = _open_trace(where, data)
        trace.records = _records(trace, ahead)
        yield trace
        for _ in trace.records:  # skip records that the caller did not take
            pass


class _Ahead:
    """An iterator of lines in which one line can be put back."""

    __slots__ = ("_back", "_lines")

    def __init__(self, lines: Iterator[TraceLine]) -> None:
        self._lines, self._back = lines, cast("TraceLine | None", None)

    def take(self) -> TraceLine | None:
        back, self._back = self._back, None
        return back if back is not None else next(self._lines, None)

    def put_back(self, line: TraceLine) -> None:
        self._back = line


def _records(trace: LoggedTrace, ahead: _Ahead) -> Iterator[Record]:
    count = 0
    while (line := ahead.take()) is not None:
        where, data = line
        if isinstance(data, CodecError):
            trace.torn = _torn(data)
            return
        if is_header(data):
            ahead.put_back(line)
            return
        if isinstance(data, dict) and "end" in data:
            end = decode(_End, data, where=where, name="end line").end
            if end != count:
                raise _wrong(f"the end line of trace {trace.id!r} counts {end} records, but the trace has {count}", where)
            trace.finished = True
            return
        record = decode(Record, data, where=where)
        if record.step != count:
            raise _wrong(f"record {count} of trace {trace.id!r} has step {record.step}", where)
        count += 1
        yield record


def _open_trace(where: str, data: Any) -> LoggedTrace:
    if not is_header(data):
        raise _wrong("this line is not part of a trace", where)
    version = data["mat"]
    if type(version) is int and version != FORMAT:
        age = "a newer" if version > FORMAT else "an older"
        raise CodecError(
            what=f"trace of format {version}; this pytest-mat reads format {FORMAT}",
            why=f"{age} version wrote it, and its records have a different meaning",
            fix="upgrade pytest-mat" if version > FORMAT else "record it again",
            where=where,
        )
    header = decode(_Header, data, where=where, name="header line")
    return LoggedTrace(header.trace, header.labels, where)


def _wrong(what: str, where: str) -> CodecError:
    return CodecError(what=what, why="a trace is a header, its records 0, 1, 2, ... and an end line", fix=_FIX, where=where)


def _torn(error: CodecError) -> str:
    return f"{error.where}: the file is cut off here; the lines before this one are kept"


def _check_torn(lines: Iterator[TraceLine]) -> Iterator[TraceLine]:
    """The lines. Only the last line of a trace may be torn: at the end of the file, or before the header of the next trace.

    At the end of the file it is torn only if it has no end: a line that was written whole and is invalid is an error.
    """
    torn: TraceLine | None = None
    for where, data in lines:
        if torn is not None:
            if not is_header(data):
                raise cast(CodecError, torn[1])
            yield torn
            torn = None
        if isinstance(data, CodecError):
            torn = where, data
        else:
            yield where, data
    if torn is not None:
        yield torn


def _lines(path: str) -> Iterator[TraceLine]:
    number, data, ended = 0, None, True
    try:
        with _open_file(path) as stream:
            while line := stream.readline(LINE_BYTES + 1):
                number += 1
                where = f"{path}:{number}"
                if len(line) > LINE_BYTES:
                    raise CodecError(
                        what=f"a line of more than {LINE_BYTES} bytes", why="each line has a size limit",
                        fix="record it again, with smaller values", where=where,
                    )  # fmt: skip
                if line.strip():
                    data, ended = _parse_line(line, where), line.endswith(b"\n")
                    yield where, data
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None)
        raise CodecError(
            what=f"cannot read {path}: {reason or error}",
            why="" if reason else "the compressed file is truncated or damaged",
            fix="check the path and its permissions" if reason else "copy the file again", where=f"{path}:{number + 1}",
        ) from None  # fmt: skip
    if isinstance(data, CodecError) and ended:  # whoever wrote this line wrote all of it
        raise data


def _parse_line(line: bytes, where: str) -> Any:
    try:
        return load_json(line.decode("utf-8", "replace"), where=where)
    except MatError as error:
        return CodecError(error.what, why=error.why, fix=_FIX, where=where)


def _open_file(path: str) -> IO[bytes]:
    with open(path, "rb") as probe:
        packed = probe.read(2) == _GZIP
    return cast("IO[bytes]", gzip.open(path, "rb")) if packed else open(path, "rb")

"""The base of all importers: read files of rows, formats, stored traces, and make records.

A file is read as a stream: one row in memory at a time, so that memory does not grow with the file. Nothing is dropped
silently: a row that cannot be read is a MatError with `file:line`, and the rows before it have been delivered by then.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias, TypeVar, cast

from mat.core import limits
from mat.core.codec import load_json
from mat.core.errors import CodecError, MatError, SpecError
from mat.core.record import (
    ACTION_KINDS,
    Action,
    ActionKind,
    DeclaredEffect,
    Effected,
    ErrorFact,
    Impact,
    Link,
    Observation,
    Record,
)
from mat.core.site import escape
from mat.core.value import EMPTY, snapshot, snapshot_arguments

__all__ = [
    "HARNESS", "Format", "RecordMaker", "Row", "StoredTrace", "error_kind", "field_of", "interleave",
    "misfit", "one_trace_a_row", "read_rows", "structured", "text_of",
]  # fmt: skip

HARNESS: Final = "harness"
"""The agent of records that belong to no agent of the source, such as the end of the run."""
Row: TypeAlias = tuple[str, Mapping[str, Any]]
"""A row of a file with its position, `file:line`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrace:
    """One recorded run.

    `records` may be lazy: iterate it once. `labels` holds what the source states about the run besides its steps (reward,
    condition, annotated step ...) under names each format documents, and `origin` (`file:line`). Labels the importers here
    always give: `format`; `timed`, whether `at_ms` is time (if the source has no times, it is always 0, and contracts over
    milliseconds are meaningless); `source_steps`, the source's own index of each of our steps, None for a step the source
    does not count, and `our_steps`, the step of each source index (of several, the last). Where people said which step went
    wrong: `annotated_step` (ours; None where the source has no such step), `annotated_source_step` (as the source states it),
    `annotated_agent`. `finished`: the run ended, so obligations still open are violations.
    """

    id: str
    records: Iterable[Record]
    labels: Mapping[str, Any]
    finished: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A recorded format. `accepts` looks at the first row; `traces` turns rows with their positions into traces, lazily."""

    name: str
    text: str
    accepts: Callable[[Mapping[str, Any]], bool]
    traces: Callable[[Iterator[Row]], Iterator[StoredTrace]]


# -- rows of a file ---------------------------------------------------------------------------------------------------

_CHUNK: Final = 1 << 16
_OUTSIDE: Final = re.compile(rb'["{}\[\]]')
_INSIDE: Final = re.compile(rb'["\\]')


def read_rows(path: str | Path) -> Generator[Row]:
    """The rows of a file with their positions: JSON lines, one JSON array of rows, or JSON objects over several lines.

    MatError with `file:line` if the file is cut off, is not JSON in UTF-8, or contains a row that is not an object.
    """
    with _open_file(path) as stream:
        _refuse_encoding(path, stream)
        texts = _lines(path, stream) if _is_lines(stream) else _objects_in(path, stream)
        for position, text in texts:
            try:
                row = load_json(text, where=position)
            except CodecError as error:
                fix = "copy the file again, or remove the row"
                raise CodecError(error.what, why=error.why, fix=fix, where=position) from None
            if not isinstance(row, dict):
                raise CodecError(
                    what=f"{position} contains a {type(row).__name__}, not an object",
                    why="each row of a recorded format is a JSON object",
                    where=position,
                )
            yield position, row


@contextmanager
def _open_file(path: str | Path) -> Generator[IO[bytes]]:
    """The bytes of a file, decompressed if they are gzipped, regardless of the file's name."""
    try:
        with open(path, "rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            if not packed:
                yield plain
                return
            with gzip.GzipFile(fileobj=plain) as unpacked:
                yield cast(IO[bytes], unpacked)
    except EOFError:
        raise CodecError(what=f"{path} is cut off", why="its gzip stream has no end", fix="copy the file again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise CodecError(
            what=f"{path} is damaged: {error}", why="it cannot be decompressed", fix="copy the file again"
        ) from None
    except OSError as error:
        raise MatError(f"{path} cannot be read", why=str(error), fix="give the path of a file of recorded runs") from None


def _refuse_encoding(path: str | Path, stream: IO[bytes]) -> None:
    """Refuse UTF-16 and UTF-32, which some editors and shells write. They have zero bytes next to each JSON character."""
    start = stream.read(4)
    stream.seek(0)
    encoding = json.detect_encoding(start)
    if not encoding.startswith("utf-8") and start.strip(b"\0"):
        raise CodecError(
            what=f"{path} is in {encoding.upper()}",
            why="rows are read as UTF-8",
            fix=f"convert the file: iconv -f {encoding.upper()} -t UTF-8",
        )


def _is_lines(stream: IO[bytes]) -> bool:
    """Whether each line is a row: the first line that is not blank is a complete object, or does not begin one."""
    while (line := stream.readline(_CHUNK)) and not line.removeprefix(codecs.BOM_UTF8).strip():
        pass
    start = line.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if start == b"{":
        line += stream.readline(limits.FILE_BYTES) if not line.endswith(b"\n") else b""
    stream.seek(0)
    return start != b"[" and (start != b"{" or _is_json(line))


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _lines(path: str | Path, stream: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    number = 0
    while line := stream.readline(limits.FILE_BYTES + 1):
        number += 1
        if not line.strip():
            continue
        if not line.endswith(b"\n") and len(line) <= limits.FILE_BYTES:
            _refuse_torn(line, f"{path}:{number}")
        yield f"{path}:{number}", line


def _refuse_torn(line: bytes, position: str) -> None:
    """Raise an error if the last line was cut off. A complete last line without a line end is fine."""
    try:
        json.loads(line)
    except ValueError as error:
        if line.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"["):
            raise _torn(position, str(error)) from None


def _torn(position: str, why: str) -> CodecError:
    return CodecError(
        what=f"{position} is cut off: the last row of the file is incomplete",
        why=why,
        fix="copy the file again, or remove the unfinished row",
        where=position,
    )


def _objects_in(path: str | Path, stream: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """The objects of a file, in sequence or in one array, regardless of lines. It keeps one object in memory."""
    cutter = _Cutter(path)
    while chunk := stream.read(_CHUNK):
        yield from cutter.feed(chunk)
    cutter.end()


class _Cutter:
    """Cuts a stream of bytes into its outermost objects, by counting brackets outside texts."""

    def __init__(self, path: str | Path) -> None:
        self._path, self._line, self._begun = path, 1, 1
        self._depth, self._in_array, self._in_text, self._escaped = 0, False, False, False
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[tuple[str, bytes]]:
        start, place, self._escaped = 0, int(self._escaped), False
        while found := (_INSIDE if self._in_text else _OUTSIDE).search(chunk, place):
            place, sign = found.end(), found[0]
            if self._in_text:
                if sign == b"\\":
                    place += 1
                    self._escaped = place > len(chunk)
                else:
                    self._in_text = False
            elif self._depth == 0:
                self._skip_between(chunk[start : found.start()])
                start = self._open(sign, chunk, found.start())
            elif sign == b'"':
                self._in_text = True
            else:
                self._depth += 1 if sign in b"{[" else -1
                if self._depth == 0:
                    yield self._take_object(chunk[start:place])
                    start = place
        self._keep(chunk[start:])

    def _skip_between(self, text: bytes) -> None:
        self._line += text.count(b"\n")
        if stray := text.removeprefix(codecs.BOM_UTF8).strip(b" \t\r\n,"):
            raise CodecError(
                what=f"{self._path}:{self._line} is not JSON: {stray[:40].decode(errors='replace')!r} is not part of a row",
                why="a file of rows contains JSON objects, one after another or in one array",
                where=f"{self._path}:{self._line}",
            )

    def _open(self, sign: bytes, chunk: bytes, place: int) -> int:
        """Handle bytes outside all rows. Returns the position of the first byte that it did not handle."""
        if sign == b"{":
            self._depth, self._begun = 1, self._line
            return place
        if (sign == b"[") == self._in_array or sign not in b"[]":
            self._skip_between(chunk[place : place + 40].split(b"\n")[0])
        self._in_array = sign == b"["
        return place + 1

    def _keep(self, text: bytes) -> None:
        if self._depth == 0:
            self._skip_between(text)
            return
        self._parts.append(text)
        self._size += len(text)
        if self._size > limits.FILE_BYTES:
            raise CodecError(
                what=f"{self._path}:{self._begun} has more than {limits.FILE_BYTES} bytes in one row",
                why="each row has a size limit",
                where=f"{self._path}:{self._begun}",
            )

    def _take_object(self, last: bytes) -> tuple[str, bytes]:
        text = b"".join((*self._parts, last))
        self._parts, self._size = [], 0
        self._line += text.count(b"\n")
        return f"{self._path}:{self._begun}", text

    def end(self) -> None:
        if self._depth:
            raise _torn(f"{self._path}:{self._begun}", "a bracket or a text is not closed")
        if self._in_array:
            raise _torn(f"{self._path}:{self._line}", "the array of rows is not closed")


# -- reading a row ----------------------------------------------------------------------------------------------------

T = TypeVar("T")
_REQUIRED: Final = object()
_KINDS: Final[Mapping[type, str]] = {str: "a text", dict: "an object", list: "a list", int: "an integer", bool: "true or false"}


def misfit(position: str, field: str, problem: str) -> MatError:
    """The error of a row that cannot be read: where, which field, and why."""
    return MatError(
        f"{position}: {field} {problem}",
        why="the row does not fit the format, so no run can be read from it",
        fix="restore the row, or name another format",
        where=f"{position}, field {field}",
    )


def field_of(row: Mapping[str, Any], name: str, kind: type[T], position: str, *, path: str = "", default: Any = _REQUIRED) -> T:
    """A field of a row, of the given JSON type; `default` (if given) if it is absent or null. MatError names the field."""
    value = row.get(name)
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    if value is None and default is not _REQUIRED:
        return cast(T, default)
    raise misfit(position, f"{path}{name}", f"is {'absent' if value is None else repr(value)[:60]}, not {_KINDS[kind]}")


def text_of(content: object) -> str:
    """The text of a message's content: a text, the joined texts of a list of parts, "" for None, else its JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text for text in map(text_of, content) if text)
    if isinstance(content, Mapping):
        inner = content.get("text", content.get("content"))
        if isinstance(inner, str | list):
            return text_of(inner)
    return json.dumps(content, ensure_ascii=False)


def structured(text: str) -> Any:
    """Parse a text that contains a JSON object or list; return any other text unchanged."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


_ERROR_KINDS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("timeout", r"tim(?:ed|e)[\s_-]?out|deadline exceeded"),
        ("rate_limit", r"rate[\s_-]?limit|too many requests|token limit is exceeded|quota"),
        ("connection", r"connection[\s_-]?(?:was )?(?:aborted|reset|refused|error|closed|failed)|unreachable|name resolution"),
        ("auth", r"unauthori[sz]ed|forbidden|permission|access denied|not authori[sz]ed"),
        ("server_error", r"internal server error|service unavailable|bad gateway"),
        ("not_found", r"not found|no such|does not exist|notfounderror"),
    )
)


def error_kind(text: str, otherwise: str = "") -> str:
    """The kind of an error by its text: timeout, rate_limit, connection, auth, server_error, not_found, or `otherwise`."""
    return next((kind for kind, pattern in _ERROR_KINDS if pattern.search(text)), otherwise)


def one_trace_a_row(
    name: str, accepts: Callable[[Mapping[str, Any]], bool], convert: Callable[[str, Mapping[str, Any]], StoredTrace]
) -> Callable[[Iterator[Row]], Iterator[StoredTrace]]:
    """`Format.traces` for a format with one run per row. Each row must have the format."""

    def traces(rows: Iterator[Row]) -> Iterator[StoredTrace]:
        for position, row in rows:
            if not accepts(row):
                raise misfit(
                    position, "the row", f"is not of the format {name}: it has the fields {', '.join(sorted(row)[:12])}"
                )
            try:
                yield convert(position, row)
            except CodecError as error:  # a value too deep to record
                raise CodecError(f"{position}: {error.what}", why=error.why, where=position) from None

    return traces


# -- making records ---------------------------------------------------------------------------------------------------

_BOUNDARIES: Final[Mapping[str, str]] = {
    "tool_call": "service",
    "retrieval": "retrieval",
    "memory_read": "memory",
    "memory_write": "memory",
    "model_call": "model",
    "delegation": "delegation",
    "message": "delegation",
}


class RecordMaker:
    """Makes the records of one trace: steps from 0, sites numbered, values in recorded form. `records` has them."""

    __slots__ = ("_agent", "_now_ms", "_nth", "_role", "_seq", "our_steps", "records", "source_steps")

    def __init__(self, *, agent: str = "main", role: str = "") -> None:
        self._agent, self._role = agent, role
        self._nth: dict[tuple[str, str, str], int] = {}
        self._now_ms = self._seq = 0
        self.records: list[Record] = []
        self.source_steps: list[Any] = []
        self.our_steps: dict[Any, int] = {}

    def add(
        self,
        kind: ActionKind,
        name: str,
        arguments: Mapping[str, object] = EMPTY,
        /,
        *,
        agent: str | None = None,
        role: str | None = None,
        value: object = None,
        error: str | None = None,
        error_kind: str = "",
        error_type: str = "Error",
        cancelled: bool = False,
        usage: Mapping[str, object] = EMPTY,
        effect: DeclaredEffect = "none",
        impact: Impact = "low",
        effected: Effected | None = None,
        boundary: str | None = None,
        state: Mapping[str, object] = EMPTY,
        links: Iterable[Link] = (),
        at_ms: int | None = None,
        sealed_ms: int | None = None,
        asked_seq: int | None = None,
        sealed_seq: int | None = None,
        source: Any = None,
        source_end: Any = None,
    ) -> Record:
        """Add the next record, in ask order.

        Times count from the start of the run; a step without a time has the latest time so far. Without `asked_seq` and
        `sealed_seq`, each step ends before the next begins. If calls ran concurrently, give both for all steps (see
        `interleave`). `effected` is "yes" by default, and "unknown" after an error or a cancellation. `source` is the source's
        own index of the step, `source_end` that of its result if the source counts it separately. CodecError for a value that
        has no recorded form.
        """
        if kind not in ACTION_KINDS:
            raise SpecError(what=f"unknown action kind: {kind!r}", fix=f"use one of {', '.join(ACTION_KINDS)}")
        who = self._agent if agent is None else agent
        crosses = _BOUNDARIES.get(kind, "") if boundary is None else boundary
        failed = error is not None or cancelled
        start_ms = self._now_ms if at_ms is None else at_ms
        end_ms = start_ms if sealed_ms is None else max(start_ms, sealed_ms)
        record = Record(
            step=len(self.records), at_ms=start_ms, sealed_ms=end_ms,
            asked_seq=self._seq if asked_seq is None else asked_seq,
            sealed_seq=self._seq + 1 if sealed_seq is None else sealed_seq,
            agent=who, role=self._role if role is None else role, state=snapshot_arguments(state, "state"),
            site=self._site(who, crosses or kind, name),
            action=Action(
                kind=kind, name=name, arguments=snapshot_arguments(arguments, f"{kind} {name}"),
                effect=effect, impact=impact, boundary=crosses,
            ),
            observation=Observation(
                value=snapshot(value, f"result of {name}"), cancelled=cancelled,
                error=None if error is None else ErrorFact(type=error_type, message=error, kind=error_kind),
                usage=snapshot_arguments(usage, "usage"),
            ),
            effected=effected or ("unknown" if failed else "yes"), mediation=None, links=tuple(links), executed=None, raw=None,
            invoked=1 if crosses else 0, faults=(), taped=False,
        )  # fmt: skip
        self._now_ms = max(self._now_ms, end_ms)
        self._seq = max(self._seq, record.sealed_seq) + 1
        self.records.append(record)
        self.source_steps.append(source)
        self.our_steps.update((index, record.step) for index in (source, source_end) if index is not None)
        return record

    def end(self, status: str, *, error: str | None = None, value: object = None, at_ms: int | None = None) -> Record:
        """Add the termination record of a run: completed, aborted, failed, exception, horizon, implicit."""
        kind = "" if error is None else error_kind(error)
        return self.add("termination", status, agent=HARNESS, value=value, error=error, error_kind=kind, at_ms=at_ms)

    def labels(self, format: str, position: str, **stated: Any) -> dict[str, Any]:
        """The labels of the trace: those of every importer, and those of the source."""
        return {
            "format": format, "origin": position, "timed": False, "source_steps": tuple(self.source_steps),
            "our_steps": dict(self.our_steps), **stated,
        }  # fmt: skip

    def _site(self, agent: str, boundary: str, name: str) -> str:
        nth = self._nth[agent, boundary, name] = self._nth.get((agent, boundary, name), 0) + 1
        return f"{escape(agent)}/{boundary}:{escape(name)}#{nth}"


def interleave(intervals: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """(asked_seq, sealed_seq) of each interval (start, end) of time, in the given order.

    At one moment, calls that end come first, then calls without duration, then calls that start.
    """
    moments: list[tuple[tuple[int, int, int, int], int, int]] = []
    for index, (start, end) in enumerate(intervals):
        if end <= start:
            moments += [((start, 1, index, 0), index, 0), ((start, 1, index, 1), index, 1)]
        else:
            moments += [((start, 2, index, 0), index, 0), ((end, 0, index, 1), index, 1)]
    found = [[0, 0] for _ in intervals]
    for seq, (_, index, phase) in enumerate(sorted(moments)):
        found[index][phase] = seq
    return tuple((asked, sealed) for asked, sealed in found)

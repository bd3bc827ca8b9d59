"""The run log: finished runs, appended by many processes at once and read by one to make the store.

    log = RunLog(".mat/store", session="nightly-17")
    log.append(Entry(item="test_shop.py::test_refund", condition="nominal", run=run))
    reading = read(".mat/store")
    for entry in reading: ...
    reading.findings                      # what could not be read, and why

A folder contains shards (`*.mat.log`); each process writes its own, so that no process waits for another. A shard is a
checkpoint log (`mat.core.checkpoint`) whose header has the session and the layout of the runs, and each entry is one run:

    {"item":"test_shop.py::test_refund","condition":"nominal",...,"run":[...]}

`append` returns once the operating system has its line: from then on it survives any end of the process (but not a failure of
the machine: nothing is synced to the disk). The half-written line of a killed process is the end of its shard; the reader
leaves it out and reports that. A line that was damaged later is left out in the same way; the lines after it are kept, and the
line numbers show how many are missing. Runs are in recorded form, so no log contains redacted values. Shards from before the
checkpoint log can still be read.

Shards also come from other machines: they are JSON only, read within limits, and no name in them is ever imported.
"""

from __future__ import annotations

import json
import os
import re
from ast import literal_eval
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import lru_cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Final, TypeAlias, cast, get_args, get_origin, get_type_hints

from mat.core import limits
from mat.core.checkpoint import START, Gap, Log, LogLine, Mark, Parse, Unusable, create, read_header, resume, scan
from mat.core.codec import decode, encode
from mat.core.digest import digest, plain
from mat.core.errors import CodecError, SpecError, plural
from mat.core.files import make_folder
from mat.core.packed import absent, fields_of, pack, unpack
from mat.core.redact import cleaned
from mat.core.run import Finding, Run, TapeEntry
from mat.core.site import Site
from mat.core.spec import RunSpec, Schedule
from mat.measure.rows import NO_LABELS, ClaimCount, Labels, RunCondition, RunRow, Score, row_of
from mat.monitor.faults import RULES, DetectionRules

__all__ = ["FOLDER", "SUFFIX", "RunEntry", "RunLog", "Shard", "ShardReading", "read", "shards"]

FOLDER: Final = Path(".mat", "store")
"""The folder of a project's log, and of the store made from it."""
SUFFIX: Final = ".mat.log"
_PLAIN: Final = RunSpec()
"""The default spec of packing and unpacking; a run with another spec includes it."""
_ENTRY_FIELDS: Final = ("item", "condition", "labels", "claims", "scores", "session", "repeat", "written_at")
_KIND: Final = "artefact"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.\-]+")
_NAME_CHARS: Final = 60
_OLD_LINE: Final = re.compile(rb"(\d{1,12}) (\d{1,9}) ([0-9a-f]{16}) ")
"""A line of a shard from before the checkpoint log: number, size and checksum of the content, which follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """One finished run with its context: everything needed for its row of numbers (`row`).

    `session` is the pytest session or the import it belongs to. `repeat` distinguishes deliberate repetitions of one spec;
    without it the same run recorded twice in a session is one run. `written_at` is a wall-clock time for people, in ISO 8601,
    "" if the caller gives none: nothing is computed from it.
    """

    item: str
    condition: RunCondition
    run: Run
    labels: Labels = NO_LABELS
    claims: ClaimCount | None = None
    scores: tuple[Score, ...] = ()
    session: str = ""
    repeat: int = 0
    written_at: str = ""

    @property
    def key(self) -> str:
        """The identity of a run in a store: the entry's fields, the spec and the facts of the run, but not its verdicts."""
        return self.key_with(self.run.head)

    def key_with(self, head: str) -> str:
        """The key, from the known head of the run."""
        labels = self.labels
        facts = [self.session, self.item, self.condition, labels.category, labels.input, labels.variant, labels.episode]
        return digest([*facts, labels.place, self.repeat, self.run.id, head, self.run.success])

    def row(self, rules: DetectionRules = RULES) -> RunRow:
        """The run as a row of numbers."""
        return row_of(
            self.run, item=self.item, condition=self.condition, rules=rules, labels=self.labels, claims=self.claims,
            scores=self.scores,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _EntryFields:
    """The fields of an entry without its run."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    item: str
    condition: RunCondition
    labels: Labels = NO_LABELS
    claims: ClaimCount | None = None
    scores: tuple[Score, ...] = ()
    session: str = ""
    repeat: int = 0
    written_at: str = ""


# -- writing ----------------------------------------------------------------------------------------------------------


class RunLog:
    """Appends entries to its own shard in a folder; use one RunLog per process (a forked child gets its own shard).

    `session` is the default session of entries. Nothing is created before the first entry. Threads may share a RunLog.
    """

    def __init__(self, folder: str | Path, *, session: str = "") -> None:
        self.folder, self.session = Path(folder), session
        self._lock = Lock()
        self._log: Log | None = None
        self._process = 0

    @property
    def path(self) -> Path | None:
        """The shard of this process, None before its first entry."""
        return self._log.path if self._log is not None and self._process == os.getpid() else None

    def append(self, entry: RunEntry) -> None:
        """Write one finished run, which then survives the end of the process.

        CodecError if the run cannot be packed or the file cannot be written, LimitReached if it is larger than readers accept.
        After an error, the log contains nothing of the entry, and the next one can be appended.
        """
        entry = cleaned(entry if entry.session else replace(entry, session=self.session))
        data = {name: encode(value) for name in _ENTRY_FIELDS if (value := getattr(entry, name))}
        text = f'{json.dumps(data, allow_nan=False)[:-1]},"run":{pack(entry.run, _PLAIN)}}}'
        with self._lock:
            try:
                self._current_log().append(text)
            except OSError as error:
                raise CodecError(
                    what=f"cannot write the run log: {error.strerror or error}", fix="check the folder and the disk",
                    where=str(self.folder),
                ) from error  # fmt: skip

    def close(self) -> None:
        """Close the file without removing it. A later entry opens another one."""
        with self._lock:
            if self._log is not None and self._process == os.getpid():
                self._log.close()
            self._log = None

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _current_log(self) -> Log:
        if self._log is None or self._process != os.getpid():  # a parent process owns the other shard
            self._log, self._process = self._new_shard(), os.getpid()
        return self._log

    def _new_shard(self) -> Log:
        """Create a new shard."""
        stem = _UNSAFE.sub("-", cleaned(self.session))[:_NAME_CHARS] or "runs"
        key = {"session": cleaned(self.session), "layout": layout()}
        make_folder(self.folder)  # FileExistsError if it is a file, which must end the loop below
        for number in count():  # the system reuses process numbers
            with suppress(FileExistsError):
                return create(self.folder / f"{stem}-{os.getpid()}-{number}{SUFFIX}", kind=_KIND, key=key)
        raise AssertionError("unreachable: count() is infinite")


# -- reading ----------------------------------------------------------------------------------------------------------


def shards(folder: str | Path) -> tuple[Path, ...]:
    """The shards of a folder, by name; SpecError if there is no such folder. `folder` may also be a shard."""
    folder = Path(folder)
    if folder.is_file():
        return (folder,)
    if not folder.is_dir():
        raise SpecError(
            what=f"there is no run log {folder}", why="a log is a folder of *.mat.log files, or one of them",
            fix="record runs first, or name the folder they were recorded in", where=str(folder),
        )  # fmt: skip
    return tuple(sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX) and path.is_file()))


def read(*folders: str | Path) -> ShardReading:
    """All entries of one or more logs: shard by shard in the order of their names, each in the order it was written."""
    return ShardReading(path for folder in folders for path in shards(folder))


class ShardReading:
    """Entries of several shards, one in memory at a time. `findings` reports what was left out, after reading."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = tuple(paths)
        self.findings: tuple[Finding, ...] = ()

    def __iter__(self) -> Iterator[RunEntry]:
        self.findings = ()
        for path in self.paths:
            shard = Shard(path)
            yield from shard
            self.findings += shard.findings


class Shard:
    """One file of a log, read from a mark on. During reading, `mark` is the position after the last line that was returned.

    `findings` are about lines after the initial mark: `log-damaged` for lines in the middle, `log-torn` for an end that was
    not written, perhaps not yet. `log-foreign`: another version wrote it. CodecError if the file cannot be opened.
    """

    def __init__(self, path: str | Path, mark: Mark = START) -> None:
        self.path, self.mark = Path(path), mark
        self.findings: tuple[Finding, ...] = ()
        self._layout: _Layout = {}

    def __iter__(self) -> Iterator[RunEntry]:
        try:
            with self.path.open("rb") as stream:
                try:
                    self._layout, start, parse = _read_start(stream.readline(limits.FILE_BYTES))
                except Unusable as unusable:
                    self._add_finding(_CODES[unusable.problem], unusable.what + (f"; {unusable.fix}" if unusable.fix else ""))
                    return
                if not resume(stream, self.mark, parse):
                    self.mark = start
                    stream.seek(start.offset)
                yield from self._entries(scan(stream, self.mark, parse))
        except OSError as error:
            raise CodecError(
                what=f"cannot read {self.path}: {error.strerror or error}",
                why="the system cannot read it",
                fix="check the file",
                where=str(self.path),
            ) from None

    def _entries(self, lines: Iterable[LogLine | Gap]) -> Iterator[RunEntry]:
        for line in lines:
            if isinstance(line, Gap):
                self._add_finding(*_gap(line, self.mark.number))
                continue
            self.mark = line.mark
            entry = _entry(line, self._layout)
            if entry is None:
                self._add_finding("log-damaged", f"line {line.number}, at byte {line.offset}, is not a run: 1 run is left out")
            else:
                yield entry

    def _add_finding(self, code: str, message: str) -> None:
        self.findings += (Finding(code=code, message=f"{self.path.name}: {message}"),)


_CODES: Final = {"torn": "log-torn", "damaged": "log-damaged", "version": "log-foreign", "key": "log-damaged"}


def _gap(gap: Gap, number: int) -> tuple[str, str]:
    """The code and the message of a finding. `number` is the number of the expected line."""
    if gap.last:
        return "log-torn", (
            f"line {number}, at byte {gap.offset}, is incomplete: {plural(gap.end - gap.offset, 'byte')} left out; "
            "the process that wrote it was killed, or is still writing"
        )
    runs = {0: "no run is", 1: "1 run is"}.get(gap.missing, f"{gap.missing} runs are")
    return "log-damaged", f"bytes {gap.offset} to {gap.end} have changed since they were written: {runs} left out"


def _read_start(first: bytes) -> tuple[_Layout, Mark, Parse]:
    """From the first line of a shard: the layout of its runs, their start, and the parser of a line. Raises Unusable."""
    old = _old_line(first, 0)
    if old is None:
        header = read_header(first)
        if header.kind != _KIND:
            raise Unusable(f"it is a {header.kind} log, which contains no runs", problem="key")
        found, mark, parse = header.key.get("layout"), header.mark, header.parse
    else:
        data = old.data()
        found, mark, parse = data.get("layout") if isinstance(data, dict) else None, old.mark, _old_line
    found = _in_todays_names(found)
    if not _fits(found):
        raise Unusable(
            "another version of pytest-mat wrote it, and its runs have other fields; read it with that version",
            problem="version",
        )
    return cast(_Layout, found), mark, parse


def _old_line(line: bytes, offset: int) -> LogLine | None:
    found = _OLD_LINE.match(line)
    content = line[found.end() : -1] if found is not None and line.endswith(b"\n") else b""
    if found is None or len(content) != int(found[2]):
        return None
    number = int(found[1])
    if found[3] != sha256(b"%d " % number + content).hexdigest()[:16].encode("ascii"):
        return None
    return LogLine(number=number, checksum=found[3], offset=offset, end=offset + len(line), content=content)


def _entry(line: LogLine, written: _Layout) -> RunEntry | None:
    """The entry of a line; None for a line without a valid entry (written by hand, because its checksum is right)."""
    try:
        data = line.data()
        packed = data.pop("run")
        run = unpack(packed if written == layout() else _convert(packed, written), _PLAIN)
        entry = decode(_EntryFields, data, name="run entry")
    except (CodecError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return RunEntry(run=run, **{name: getattr(entry, name) for name in _ENTRY_FIELDS})


# -- the layout of packed runs ----------------------------------------------------------------------------------------

_Layout: TypeAlias = dict[str, list[list[str]]]
_fields_of: Final = lru_cache(maxsize=64)(fields_of)
_RENAMED: Final = {"Alike": "EquivalenceClass", "alike": "equivalence_classes"}
"""Classes and fields by the names that an earlier version gave them."""


@lru_cache(maxsize=1)
def layout() -> _Layout:
    """The fields of each class in a packed run, in the order in which they are written."""
    found = {}
    for kind in _kinds():
        common, rare = _fields_of(kind)
        found[kind.__name__] = [[name for name, _ in common], [name for name, _ in rare]]
    return dict(sorted(found.items()))


@lru_cache(maxsize=1)
def _kinds() -> tuple[Any, ...]:
    """The classes that a packed run consists of."""
    found: list[Any] = []
    waiting: list[Any] = [Run]
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.append(kind)
            waiting += [part for hint in get_type_hints(kind, include_extras=True).values() for part in _classes(hint)]
    return tuple(found)


def _classes(hint: Any) -> Iterator[Any]:
    """Our classes in a type hint that are written field by field."""
    if is_dataclass(hint) and hint is not Site:
        yield hint
    for inner in get_args(hint):
        yield from _classes(inner)


def _fits(old: Any) -> bool:
    """Whether runs of this layout can be read: fields were added, usually with a default or empty, and none was removed.

    If a field was removed while another was added, it may have been renamed, and its value would be lost. Entries of tapes are
    written without some of their fields, so their fields must be equal.
    """
    if old == layout():
        return True
    if not isinstance(old, dict) or "Run" not in old or not all(map(_is_two_lists, old.values())):
        return False
    for kind in _kinds():
        now, was = layout()[kind.__name__], old.get(kind.__name__)
        if was is None:  # a class that was added later, with a new field
            continue
        common, rare = _fields_of(kind)
        known = (hint for name, hint in (*common, *rare) if name in was[0] or name in was[1])
        if any(part.__name__ not in old for hint in known for part in _classes(hint)):
            return False
        removed = {*was[0], *was[1]} - {*now[0], *now[1]}
        added = {*now[0], *now[1]} - {*was[0], *was[1]}
        defaults = {field.name for field in fields(kind) if field.default is not MISSING}
        if removed or not added <= defaults | {*now[1]} or (kind is TapeEntry and now != was):
            return False
    return True


def _in_todays_names(old: Any) -> Any:
    if not isinstance(old, dict) or not all(map(_is_two_lists, old.values())):
        return old
    return {
        _RENAMED.get(kind, kind): [[_RENAMED.get(name, name) for name in names] for names in both] for kind, both in old.items()
    }


def _is_two_lists(found: Any) -> bool:
    """Whether a value is two lists of names."""
    two_lists = isinstance(found, list) and len(found) == 2 and all(isinstance(part, list) for part in found)
    return two_lists and all(type(name) is str for part in found for name in part)


def _convert(packed: Any, old: _Layout) -> Any:
    """Convert a packed run from another layout to this one."""
    schedule, run, tape = packed
    return [None if schedule is None else _convert_fields(schedule, Schedule, old), _convert_fields(run, Run, old), tape]


def _convert_fields(data: Any, kind: Any, old: _Layout) -> list[Any]:
    common, rare = _fields_of(kind)
    was = old[kind.__name__]
    values = dict(zip(was[0], data, strict=False)) | (
        dict(zip(was[1], data[-1], strict=True)) if len(data) > len(was[0]) else {}
    )
    defaults = {field.name: field.default for field in fields(kind) if field.default is not MISSING}

    def value(name: str, hint: Any) -> Any:
        if name in values:
            return _convert_value(values[name], hint, old)
        return plain(defaults[name]) if name in defaults else literal_eval(absent(hint))

    found = [value(name, hint) for name, hint in common]
    return [*found, [value(name, hint) for name, hint in rare]] if any(name in values for name, _ in rare) else found


def _convert_value(data: Any, hint: Any, old: _Layout) -> Any:
    """The value of a field in this layout, if it contains our classes; any other value is unchanged."""
    kind = next(_classes(hint), None)
    if kind is None or data is None:
        return data
    return (
        [_convert_fields(item, kind, old) for item in data] if get_origin(hint) is tuple else _convert_fields(data, kind, old)
    )

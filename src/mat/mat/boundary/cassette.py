"""Cassettes: the replies of external ports to one test item, kept in a file, so that each of its runs can be repeated.

A reply is found again by the seed of the run, the port, the digest of the request, and the request's occurrence number in the
run: a prompt that is sampled twice gets two replies, in every run the same two. Seeds are distinguished, because another seed
is another sample; schedules are not, because two runs with the same request must get the same reply.

The file is a checkpoint log (`mat.core.checkpoint`) whose key is the test; each entry is one reply:

    {"seed":0,"port":"model:planner","nth":1,"reply":{"request":"9c1f...","value":{"text":"refund it"}, ...},"asked":{...}}

`asked` is the request for people, and for the error of one that is not recorded: without secrets, and long texts are cut.
Files of earlier versions lack it, and so do entries in the second half of a file that grows to its limit.

Processes share it: each reads what others have added before a run begins. Replies that hold secrets, or that a port's
`record=` keeps out of files, are served in the process that received them and never written. An unfinished last line means
that a process was killed: it is cut off, and that call is made again. If any other line is damaged, the file is refused,
because half a recording shows behaviour that never happened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mat.core import limits
from mat.core.campaign import CallKey, MissingReply
from mat.core.checkpoint import START, Log, Unusable, share
from mat.core.codec import decode, encode, load_json
from mat.core.digest import canonical
from mat.core.errors import CodecError, LimitReached, MatError
from mat.core.nearest import in_words, nearest
from mat.core.redact import cleaned
from mat.core.run import TapeEntry
from mat.core.value import EMPTY, SPARSE, FrozenDict, snapshot_arguments

RECORDED_REPLIES: Final = "the recorded replies"
"""What a certificate is relative to if replies came from a cassette."""
_KIND: Final = "cassette"
_KEPT: Final = 20_000
"""Characters that are kept of a text of a request; fewer if the whole would be longer than `_WHOLE`."""
_KEPT_LEAST: Final = 50
_WHOLE: Final = 100_000
"""Characters that are kept of a whole request."""
_EXPLAINED: Final = 100
"""Misses in a process whose nearest recorded request is looked for."""


class LiveCallsSpent(MatError):  # noqa: N818  (named after what happened)
    """No recorded reply answers a request, and no live call is left. `missing` names the request, where a run made it."""

    missing: MissingReply | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """One entry of the file, without the site, because the same request can come from another site."""

    seed: int
    port: str
    nth: int
    reply: TapeEntry
    asked: FrozenDict = field(default=EMPTY, metadata=SPARSE)

    @property
    def key(self) -> CallKey:
        return self.seed, self.port, self.reply.request, self.nth


class Cassette:
    """The replies recorded for one item. `live`: how many live calls may be made for missing ones; `spent`: those made.

    `path` None: kept in this process only. `item` is the test's id, so that no file serves another test. `served` counts
    the replies that were served again. `notes`: what a person should know about the file.
    """

    def __init__(self, path: Path | None = None, *, item: str = "", live: int = 0) -> None:
        self.path, self.item, self.live = path, item, live
        self.spent = 0
        self.served = 0
        self.only_serves = False
        self.notes: list[str] = []
        self._replies: dict[CallKey, TapeEntry] = {}
        self._asked: dict[str, dict[str, FrozenDict]] = {}
        self._explained = 0
        self._mark = START
        if path is not None and path.exists():
            if not path.is_file():  # opening a pipe would wait for a writer
                raise _damaged_error(
                    path, f"{path.name} is not a file", "name another file for the cassette, or remove what is at its path"
                )
            self._read_new(ours=False)

    def __len__(self) -> int:
        return len(self._replies)

    @property
    def used(self) -> bool:
        """Whether any run got a reply from the cassette, or recorded one."""
        return self.served > 0 or self.spent > 0

    def reply(self, key: CallKey) -> TapeEntry | None:
        found = self._replies.get(key)
        self.served += found is not None
        return found

    def spend(self, port: str, *, where: str, asked: FrozenDict = EMPTY) -> None:
        """Count one live call; LiveCallsSpent, which says how the nearest recorded request differs, if none is left."""
        if self.only_serves:
            raise LiveCallsSpent(
                f"no recorded reply of {port} for this request",
                why="this process only serves recorded replies; the searching process makes the live calls",
                fix="no action is needed if the search continues: its process makes the call",
                where=where,
            )
        if self.spent >= self.live:
            raise LiveCallsSpent(
                f"no recorded reply of {port} for this request, and {spent_reason(self.live)}",
                why=f"a request that differs from every recorded one needs a call of the real port{self._nearest(port, asked)}",
                fix=f"raise --mat-live-calls (or live_calls=) above {self.live}; recorded requests are not sent again",
                where=where,
            )
        self.spent += 1

    def _nearest(self, port: str, asked: FrozenDict) -> str:
        """How the nearest recorded request of this port differs from what was asked, as the end of a sentence."""
        recorded = self._asked.get(port, {}).values()
        self._explained += 1
        if self._explained > _EXPLAINED:  # a search explains only the first ones
            return ""
        found = nearest(_cut(asked), recorded) if asked else None
        if found is None:
            return "; no request to this port is recorded" if asked and not recorded else ""
        return (
            f"; the nearest differs in {in_words(found)}"
            if found
            else "; this request was recorded fewer times than it is made, or for other seeds"
        )

    def keep(self, key: CallKey, reply: TapeEntry, *, written: bool, asked: FrozenDict = EMPTY) -> None:
        """Keep the reply of a live call. `written`: also in the file, for other processes and later sessions."""
        asked = _cut(asked)
        self._learn_request(key[1], reply.request, asked)
        if self.path is not None and written and cleaned(reply) is reply:
            seed, port, _, nth = key
            readable = asked if self._mark.offset < limits.FILE_BYTES // 2 else EMPTY  # the rest is for replies
            entry = encode(_Recorded(seed=seed, port=port, nth=nth, reply=reply, asked=cleaned(readable)))
            self._exchange(ours=True, append=_reply_text(entry))
        self._replies.setdefault(key, reply)

    def _learn_request(self, port: str, request: str, asked: FrozenDict) -> None:
        if asked:
            self._asked.setdefault(port, {}).setdefault(request, asked)

    def catch_up(self) -> None:
        """Read what other processes have added. Entries of this process's forks count as its own live calls."""
        if self.path is not None:
            self._read_new(ours=True)

    # -- the file ---------------------------------------------------------------------------------------------------

    def _read_new(self, *, ours: bool) -> None:
        """Read the entries that were added since the last read. `ours`: they count as live calls of this process."""
        assert self.path is not None
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            size = 0
        if size > limits.FILE_BYTES:
            raise _size_error(self.path)
        if size < self._mark.offset:
            raise _damaged_error(self.path, f"{self.path.name} was replaced while it was in use", "run the session again")
        if size > self._mark.offset:
            self._exchange(ours=ours)

    def _exchange(self, *, ours: bool, append: str = "") -> None:
        """Read the added entries, then append `append`, while no other process writes."""
        assert self.path is not None
        try:
            with (
                _system_errors(self.path),
                share(self.path, self._mark, kind=_KIND, key={"item": cleaned(self.item)}, size_limit=limits.FILE_BYTES) as log,
            ):
                self._read(log, ours=ours)
                if append:
                    log.append(append)
                self._mark = log.mark
        except Unusable as unusable:
            fix = unusable.fix or "delete the file to record it again, or restore the one that belongs to the test"
            raise _damaged_error(self.path, f"this is not the cassette of {self.item}: {unusable.what}", fix) from None
        except LimitReached:
            raise _size_error(self.path) from None

    def _read(self, log: Log, *, ours: bool) -> None:
        for line in log.lines():
            where = f"{log.path} at byte {line.offset}"
            found = decode(_Recorded, load_json(line.content, where=where), where=where, name="recorded call")
            self._replies.setdefault(found.key, found.reply)
            self._learn_request(found.port, found.reply.request, found.asked)
            self.spent += ours
        if log.gap is not None and not log.gap.torn:
            what = f"the cassette of {self.item} has changed since it was written"
            raise _damaged_error(
                log.path, what, "restore it from version control, or delete it and record again", at=log.gap.offset
            )
        if log.gap is not None:
            log.cut()
            self.notes.append(f"the last line of {log.path.name} was half-written, and was cut off; that call is made again")


def _cut(asked: FrozenDict) -> FrozenDict:
    """The request with long texts cut in their middle: the shorter, the more of them there are."""
    kept, text = _KEPT, canonical(asked)
    if len(text) <= kept:
        return asked
    while kept >= _KEPT_LEAST:
        found = {name: _cut_value(item, kept) for name, item in asked.items()}
        if len(canonical(found)) <= _WHOLE:
            return snapshot_arguments(found, "a request")
        kept //= 2
    return snapshot_arguments({"request": _cut_value(text, _WHOLE)}, "a request")


def _cut_value(value: Any, kept: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= kept else f"{value[: kept // 2]} [...] {value[-kept // 2 :]}"
    if isinstance(value, Mapping):
        return {name: _cut_value(item, kept) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cut_value(item, kept) for item in value]
    return value


def _reply_text(entry: object) -> str:
    return json.dumps(entry, allow_nan=False, separators=(",", ":"))


@contextmanager
def _system_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CodecError(
            what=f"the cassette {path.name} cannot be read or written: {error.strerror or error}",
            why="a live reply is stored before it is served", fix="check the folder and the disk", where=str(path),
        ) from error  # fmt: skip


def spent_reason(live: int) -> str:
    """Why no live call may be made, if `live` of them are allowed."""
    if live == 0:
        return "no live calls are allowed"
    return "the one live call of this item is used up" if live == 1 else f"all {live} live calls of this item are used up"


def _size_error(path: Path) -> CodecError:
    return CodecError(
        what=f"{path.name} has reached the limit of {limits.FILE_BYTES} bytes",
        why="files have a size limit, because they may come from others",
        fix="delete it and record with fewer runs, or split the test",
        where=str(path),
    )


def _damaged_error(path: Path, what: str, fix: str, *, at: int = 0) -> CodecError:
    return CodecError(what=what, why="runs depend on every recorded reply", fix=fix, where=f"{path} at byte {at}")

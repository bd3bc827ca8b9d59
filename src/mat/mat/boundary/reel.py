"""A reel: what external ports replied to one test item, kept in a file, so that each of its runs can be repeated.

A reply is found again by the seed of the run, the port, the digest of the request, and the how-manieth such request of the
run it is: a prompt that is sampled twice gets two replies, in every run the same two. Seeds are apart, because a further seed
is to be a further sample; schedules are not, because two runs that ask the same are to hear the same.

The file is JSON lines, one reply each, only ever appended to:

    {"mat":1,"reel":"test_shop.py::test_refund"}
    {"seed":0,"port":"model:planner","nth":1,"reply":{"request":"9c1f...","value":{"text":"refund it"}, ...}}

Processes share it: each reads what others have added before a run begins, and writes under a lock. Replies that hold secrets,
or that a port's `record=` keeps out of artefacts, are served in the process that heard them and never written. A last line
without its end is where a process was killed: it is cut off, and that call will be made again. Any other line that cannot be
read refuses the file, because what follows from half a recording is nobody's behaviour.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from mat.core import limits
from mat.core.codec import FORMAT, decode, encode, load_json
from mat.core.errors import CodecError, MatError
from mat.core.run import TapeEntry

Key: TypeAlias = tuple[int, str, str, int]
"""Seed, port, digest of the request, how-manieth such request of its run."""

RECORDED_REPLIES: Final = "the recorded replies"
"""What a certificate takes as given where replies came from a reel."""


class LiveCallsSpent(MatError):  # noqa: N818  (named after what happened)
    """A request that no recorded reply answers, and no live call may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One line of the file; the port's site is not in it, because requests move."""

    seed: int
    port: str
    nth: int
    reply: TapeEntry

    @property
    def key(self) -> Key:
        return self.seed, self.port, self.reply.request, self.nth


class Reel:
    """The replies recorded for one item. `live`: calls that may still be made for what is missing; `spent`: those made.

    `path` None: kept in this process only. `item` is the test's id, so that no file serves another test. `served` counts
    the replies given again. `notes` say what a person should know of the file.
    """

    def __init__(self, path: Path | None = None, *, item: str = "", live: int = 0) -> None:
        self.path, self.item, self.live = path, item, live
        self.spent = 0
        self.served = 0
        self.only_serves = False
        self.notes: list[str] = []
        self._replies: dict[Key, TapeEntry] = {}
        self._read = 0
        if path is not None and path.exists():
            with _locked(path) as stream:
                self._mend(stream)
            self._take_in(ours=False)

    def __len__(self) -> int:
        return len(self._replies)

    @property
    def used(self) -> bool:
        """Whether any run heard something from here, or left something here."""
        return self.served > 0 or self.spent > 0

    def reply(self, key: Key) -> TapeEntry | None:
        found = self._replies.get(key)
        self.served += found is not None
        return found

    def spend(self, port: str, *, where: str) -> None:
        """Count one live call; LiveCallsSpent where none is left."""
        if self.only_serves:
            raise LiveCallsSpent(
                f"no recorded reply of {port} for this request",
                why="this process only serves what was recorded: live calls are made by the one that searches",
                fix="nothing is to be done where the searching process goes on by itself",
                where=where,
            )
        if self.spent >= self.live:
            raise LiveCallsSpent(
                f"no recorded reply of {port} for this request, and {_calls(self.live)}",
                why="a request that differs from every recorded one needs a call of the real port",
                fix=f"raise --mat-live-calls (or live_calls=) above {self.live}; what is recorded is not asked again",
                where=where,
            )
        self.spent += 1

    def keep(self, key: Key, reply: TapeEntry, *, written: bool) -> None:
        """Keep the reply of a live call; `written`: also for other processes and for later."""
        if self.path is None or not written:
            self._replies.setdefault(key, reply)
            return
        seed, port, _, nth = key
        line = json.dumps(encode(_Line(seed=seed, port=port, nth=nth, reply=reply)), allow_nan=False, separators=(",", ":"))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path) as stream:
            self._mend(stream)
            self._take_in(ours=True)
            head = "" if self._read else json.dumps({"mat": FORMAT, "reel": self.item}, separators=(",", ":")) + "\n"
            data = f"{head}{line}\n".encode("ascii")
            if self._read + len(data) > limits.FILE_BYTES:
                raise _full(self.path)
            stream.write(data)
            stream.flush()
            self._read += len(data)
        self._replies.setdefault(key, reply)

    def catch_up(self) -> None:
        """Take in what other processes have added; what forks of this one have added counts as calls of its own."""
        if self.path is not None:
            self._take_in(ours=True)

    # -- the file ---------------------------------------------------------------------------------------------------

    def _take_in(self, *, ours: bool) -> None:
        """Read the whole lines from where reading ended."""
        assert self.path is not None
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            size = 0
        if size < self._read:
            raise CodecError(
                what=f"{self.path.name} was replaced while it was in use",
                why="a reel is only ever appended to, and runs already rest on what was in it",
                fix="run the session again",
                where=str(self.path),
            )
        if size == self._read:
            return
        if size > limits.FILE_BYTES:
            raise _full(self.path)
        with open(self.path, "rb") as stream:
            stream.seek(self._read)
            data = stream.read()
        data = data[: data.rfind(b"\n") + 1]
        for line in data.split(b"\n")[:-1]:
            where = f"{self.path} at byte {self._read}"
            if self._read == 0:
                self._check_head(load_json(line, where=where), where)
            else:
                found = decode(_Line, load_json(line, where=where), where=where)
                self._replies.setdefault(found.key, found.reply)
                self.spent += ours
            self._read += len(line) + 1

    def _check_head(self, data: Any, where: str) -> None:
        said = data if isinstance(data, dict) else {}
        if said.get("mat") != FORMAT or said.get("reel") != self.item:
            raise CodecError(
                what=f"this is no reel of {self.item}",
                why=f"its first line says format {said.get('mat')!r}, item {said.get('reel')!r}",
                fix="delete the file to record anew, or put back the one that belongs to the test",
                where=where,
            )

    def _mend(self, stream: IO[bytes]) -> None:
        """Cut off the line that a killed process left half-written; the caller holds the lock, so nobody is writing it."""
        assert self.path is not None
        size = stream.seek(0, os.SEEK_END)
        back = min(size, limits.VALUE_CHARS)
        while True:
            stream.seek(size - back)
            tail = stream.read(back)
            end = tail.rfind(b"\n") + 1
            if end or back == size:
                break
            back = min(size, back * 4)
        if end == len(tail):
            return
        stream.truncate(size - back + end)
        stream.seek(0, os.SEEK_END)
        self.notes.append(f"the last line of {self.path.name} was half-written, and was cut off; that call is made again")


def _calls(live: int) -> str:
    if live == 0:
        return "no live calls are allowed"
    return "the one live call of this item is spent" if live == 1 else f"all {live} live calls of this item are spent"


def _full(path: Path) -> CodecError:
    return CodecError(
        what=f"{path.name} has reached the limit of {limits.FILE_BYTES} bytes",
        why="files from outside are read within limits",
        fix="delete it and record with fewer runs, or split the test",
        where=str(path),
    )


@contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """The file open for appending, with every other writer waiting; the lock goes with the handle."""
    with open(path, "ab+") as stream:
        try:
            import fcntl
        except ImportError:  # without it, one process at a time may record
            pass
        else:
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield stream

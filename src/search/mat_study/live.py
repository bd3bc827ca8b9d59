"""Live calls of an item (--mat-live-calls, live_calls=): its cassette, and the consequences of recorded replies.

Without a number, nothing is recorded and every run calls external ports, which is right for scripted models: they give equal
replies to equal requests. With a number, every run of the item gets recorded replies, and a run that made live calls is
executed again: only a run served entirely from the cassette is repeatable, whatever a client draws or waits for.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

from mat.boundary.cassette import RECORDED_REPLIES, Cassette
from mat.boundary.tape import Tape
from mat.core.campaign import Certificate, LiveCost, Recorded
from mat.core.errors import MatError
from mat.core.run import Run
from mat.core.site import parse_site
from mat.kernel.folders import writable
from mat_search import CampaignResult
from mat_search.reach import cost_in_words
from mat_study.evaluation import Evaluated, Evaluator, Lost, Plan

T = TypeVar("T")

FOLDER: Final = Path(".mat", "cassettes")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME_CHARS: Final = 60
_DIFFERENCE: Final = "likely causes:"
"""Marks the reason of a certificate that failed because a repeated run differed."""


class LiveCalls:
    """The recorded replies of one item, of the test `task`. `most` None: nothing is recorded, no live calls are counted."""

    def __init__(self, root: Path, task: str, *, most: int | None, warn: Callable[[str], None]) -> None:
        self._root, self._task, self._most, self._warn = root, task, most, warn
        self._cassette: Cassette | None = None

    def tape_for(self, seed: int, given: Tape | None) -> Tape | None:
        """The replies for the next run: the given tape, else the cassette (read once per session), else None (the ports)."""
        if given is not None or self._most is None:
            return given
        if self._cassette is None:
            self._cassette = Cassette(self._cassette_path(), item=self._task, live=self._most)
            for note in self._cassette.notes:
                self._warn(note)
        return Tape(cassette=self._cassette, seed=seed)

    def _cassette_path(self) -> Path:
        """The path of the cassette. Where its folder cannot be written, a copy in the spare folder, unless that is newer."""
        folder = writable(self._root / FOLDER)
        if not folder.why:
            return path_of(self._root, self._task)
        path = name_of(self._task)
        kept, copy = self._root / FOLDER / path, folder.path / path
        if kept.is_file() and (not copy.exists() or copy.stat().st_mtime_ns < kept.stat().st_mtime_ns):
            shutil.copy2(kept, copy)
        self._warn(f"recorded replies are in {copy}, because {folder.why}")
        return copy

    @property
    def path(self) -> Path | None:
        """The cassette's file; None without one."""
        return None if self._cassette is None else self._cassette.path

    @property
    def recorded(self) -> bool:
        """Whether runs of this item get recorded replies."""
        return self._cassette is not None

    def estimate(self, planned: LiveCost) -> str:
        """A line that says before a search what its live calls would cost; "" if none are allowed."""
        cassette = self._cassette
        if cassette is None or cassette.spent >= cassette.live:
            return ""
        left = cassette.live - cassette.spent
        return (
            f"the search of {self._task} may need about {cost_in_words(planned)} "
            f"(replies recorded: {len(cassette)}; live calls allowed: {left})"
        )

    def reached(self, result: CampaignResult, planned: LiveCost | None) -> Recorded | None:
        """How far recorded replies reached in a search; None where the item has none."""
        if self._cassette is None or not (self._cassette.used or result.recorded):
            return None
        found = result.recorded or Recorded(reached=result.searched, unreached=0, missing=LiveCost(calls=0))
        return replace(found, planned=planned, made=self._live_calls_made())

    def until_served(self, execute: Callable[[], T], unanswered: Callable[[T], bool], *, discard: Callable[[], None]) -> T:
        """The result of `execute`, repeated until an execution makes no live calls, or `unanswered` is true of its result.

        `discard` is called after each execution that is repeated. One whose live calls gave no reply that could be recorded is
        not: it would make them again.
        """
        while True:
            before = self._replies_recorded()
            result = execute()
            if self._replies_recorded() == before or unanswered(result):
                return result
            discard()

    def until_recorded(self, elsewhere: Evaluator, here: Evaluator, plan: Plan) -> Evaluated | Lost:
        """The execution of a plan in a process that makes no live calls. Where it needs one, this process records it."""
        while True:
            given = elsewhere(plan)
            if isinstance(given, Evaluated) or not given.unanswered:
                return given
            before = self._replies_recorded()
            recording = here(plan)
            if isinstance(recording, Lost) and recording.unanswered:
                return recording
            if self._replies_recorded() == before:
                return given

    def _replies_recorded(self) -> int:
        """Replies on the cassette so far, including those of forks; 0 before there is one."""
        self._live_calls_made()
        return 0 if self._cassette is None else len(self._cassette)

    def _live_calls_made(self) -> int:
        """Live calls so far, including those of forks; 0 before there is a cassette."""
        if self._cassette is None or self._cassette.only_serves:
            return 0
        self._cassette.catch_up()
        return self._cassette.spent

    def serve_only(self) -> None:
        """In a worker: make no live calls. The searching process makes them, in one order for any number of workers."""
        if self._cassette is not None:
            self._cassette.only_serves = True

    def relative(self, certificate: Certificate, run: Run) -> Certificate:
        """The certificate, marked as relative to recorded replies; if it failed for lack of them, its reason says so.

        `run`: a run of the item, whose external ports are named.
        """
        if self._cassette is not None:
            return replace(certificate, relative_to=RECORDED_REPLIES) if self._cassette.used else certificate
        ports = [] if certificate.proven or _DIFFERENCE not in certificate.reason else _external_ports(run)
        if not ports:
            return certificate
        reason = f"{certificate.reason}; replies of {', '.join(ports)} are not recorded: --mat-live-calls N records them"
        return replace(certificate, reason=reason)


def path_of(root: Path, task: str) -> Path:
    """The path of a test's cassette (a readable name and a digest)."""
    return next((root / FOLDER).glob(f"*-{_digest(task)}.jsonl"), root / FOLDER / name_of(task))


def name_of(task: str) -> str:
    """The file name of a test's cassette: without parameters, which may hold anything; the digest distinguishes them."""
    name = _UNSAFE.sub("_", task.partition("[")[0].rpartition("::")[2])[:_NAME_CHARS].strip("._-") or "cassette"
    return f"{name}-{_digest(task)}.jsonl"


def _digest(task: str) -> str:
    return sha256(task.encode()).hexdigest()[:12]


def unanswered(error: MatError | None) -> str:
    """A refused live call as one line for a certificate; "" if every request was answered."""
    if error is None:
        return ""
    _, _, nearest = error.why.partition("; ")
    text = f"{error.what}; {nearest}" if nearest else error.what
    return f"{text} (at {error.where}): {error.fix}" if error.where else f"{text}: {error.fix}"


def _external_ports(run: Run) -> list[str]:
    """The external ports that a run called, as boundary:port."""
    sites = [parse_site(entry.site) for entry in run.tape if entry.mode == "external"]
    return sorted({f"{site.boundary}:{site.name}" for site in sites})

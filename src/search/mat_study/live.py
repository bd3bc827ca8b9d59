"""Live calls of an item (--mat-live-calls, live_calls=): its reel, and what follows from replies that were recorded.

Without a number nothing is recorded, and external ports are called in every run: right for scripted models, which reply the
same to the same. With one, every run of the item hears recorded replies, and a run that had to make live calls is executed
once more: only a run that was served wholly from the reel can be repeated, whatever a client draws or waits for on its way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

from mat.boundary.reel import RECORDED_REPLIES, Reel
from mat.boundary.tape import Tape
from mat.core.campaign import Certificate
from mat.core.errors import MatError
from mat.core.run import Run
from mat.core.site import parse_site

T = TypeVar("T")

FOLDER: Final = Path(".mat", "reels")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME_CHARS: Final = 60
_DIFFERED: Final = "likely causes:"
"""In the reason of a certificate: a run was not the one that it repeated."""


class LiveCalls:
    """The recorded replies of one item, of the test `task`. `most` None: nothing is recorded, no live calls are counted."""

    def __init__(self, root: Path, task: str, *, most: int | None, warn: Callable[[str], None]) -> None:
        self._root, self._task, self._most, self._warn = root, task, most, warn
        self._reel: Reel | None = None

    def tape_for(self, seed: int, given: Tape | None) -> Tape | None:
        """What the next run hears: the tape it is given, else the reel, read once a session, else the ports themselves."""
        if given is not None or self._most is None:
            return given
        if self._reel is None:
            self._reel = Reel(path_of(self._root, self._task), item=self._task, live=self._most)
            for note in self._reel.notes:
                self._warn(note)
        return Tape(reel=self._reel, seed=seed)

    @property
    def recorded(self) -> bool:
        """Whether runs of this item hear recorded replies."""
        return self._reel is not None

    def until_served(self, execute: Callable[[], T], unanswered: Callable[[T], bool]) -> T:
        """What `execute` gives, executed again as long as it had to make live calls and got them.

        It ends: what was called for is recorded, and the number of live calls is limited.
        """
        while True:
            before = self._spent()
            result = execute()
            if self._spent() == before or unanswered(result):
                return result

    def _spent(self) -> int:
        """Live calls made so far, those of forks included; 0 before there is a reel."""
        if self._reel is None or self._reel.only_serves:
            return 0
        self._reel.catch_up()
        return self._reel.spent

    def serve_only(self) -> None:
        """In a worker: live calls are the searching process's, which makes them in one order however many workers there are."""
        if self._reel is not None:
            self._reel.only_serves = True

    def relative(self, certificate: Certificate, run: Run) -> Certificate:
        """The certificate, which says so where it stands on recorded replies; where it fell for want of them, its reason does.

        `run`: one of the item's, whose external ports are named.
        """
        if self._reel is not None:
            return replace(certificate, relative_to=RECORDED_REPLIES) if self._reel.used else certificate
        ports = [] if certificate.proven or _DIFFERED not in certificate.reason else _external(run)
        if not ports:
            return certificate
        said = f"{certificate.reason}; replies of {', '.join(ports)} are not recorded: --mat-live-calls N records them"
        return replace(certificate, reason=said)


def path_of(root: Path, task: str) -> Path:
    """Where the reel of a test lies: its name to be recognised by, its digest to be told from others."""
    name = _UNSAFE.sub("_", task.rpartition("::")[2])[:_NAME_CHARS].strip("._-") or "reel"
    return root / FOLDER / f"{name}-{sha256(task.encode()).hexdigest()[:12]}.jsonl"


def unanswered(error: MatError | None) -> str:
    """A refusal to call live on one line, for a certificate; "" where every request was answered."""
    if error is None:
        return ""
    return f"{error.what} (at {error.where}): {error.fix}" if error.where else f"{error.what}: {error.fix}"


def _external(run: Run) -> list[str]:
    """The external ports that a run called, as boundary:port."""
    sites = [parse_site(entry.site) for entry in run.tape if entry.mode == "external"]
    return sorted({f"{site.boundary}:{site.name}" for site in sites})

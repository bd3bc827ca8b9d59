"""The journal of an item's search (`.mat/campaigns`), and what has to be as it was for it to be taken up again.

The journal fits where the item, the campaign and the reported run are the same, and the code is: every source outside the
standard library and the installation that was loaded then has the same contents now, and the same distributions are
installed. A source that was changed while the session ran never fits, because what ran is not what is on disk.

A finished search's journal stays until its session is over, so that a session that is killed later need not repeat it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest

from mat.core import limits
from mat.core.codec import decode, encode
from mat.core.digest import digest
from mat.core.operator import grid_digest
from mat.core.run import Run
from mat.core.spec import NO_SCHEDULE, Schedule
from mat_search import Campaign
from mat_search.journal import Journal, open_journal
from pytest_mat.options import session_began_ns
from pytest_mat.runtime import variant_of
from pytest_mat.tasks import JUDGED, Judged

FOLDER: Final = Path(".mat", "campaigns")
_INSTALLED: Final = ("site-packages", "dist-packages")
_GONE: Final = "gone"
_EDITED: Final = "changed while the session ran"


class Sources:
    """The loaded modules that are no part of the installation, with the digests of their files."""

    def __init__(self) -> None:
        self._modules = 0
        self._known: set[str] = set()

    def new(self) -> dict[str, str]:
        """Those that were not there at the last call; cheap where nothing was imported since."""
        if len(sys.modules) == self._modules:
            return {}
        self._modules = len(sys.modules)
        found = {path: source_digest(path) for path in _loaded() if path not in self._known}
        self._known.update(found)
        return found


def _loaded() -> Iterator[str]:
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and not _installed(path):
            yield path


@lru_cache(maxsize=10_000)
def _installed(path: str) -> bool:
    """Whether a file belongs to Python or to an installed distribution, which has a version."""
    parts = Path(path).parts
    if any(name in parts for name in _INSTALLED):
        return True
    return any(path.startswith(root + os.sep) for root in _STANDARD)


_STANDARD: Final = tuple(filter(None, (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))))


def source_digest(path: str) -> str:
    """The digest of a file as it is now; of one that was changed after this session began, what fits no digest."""
    try:
        status = os.stat(path)
        return _digest(path, status.st_mtime_ns, status.st_size, status.st_mtime_ns > session_began_ns())
    except OSError:
        return _GONE


@lru_cache(maxsize=10_000)
def _digest(path: str, mtime_ns: int, size: int, edited: bool) -> str:
    return f"{_EDITED} at {mtime_ns}" if edited else sha256(Path(path).read_bytes()).hexdigest()[:32]


def installed_digest() -> str:
    """Of all that is installed where modules are found now."""
    return _distributions(tuple(path for path in sys.path if path))


@lru_cache(maxsize=4)
def _distributions(places: tuple[str, ...]) -> str:
    """The digest of what is installed: the folders that name a distribution and its version, and when they were made."""
    found = []
    for place in places:
        try:
            with os.scandir(place) as entries:
                found += [(entry.name, entry.stat().st_mtime_ns) for entry in entries if entry.name.endswith(_METADATA)]
        except OSError:
            continue
    return digest([list(each) for each in sorted(found)])


_METADATA: Final = (".dist-info", ".egg-info")


class Aside:
    """What the searches of one item have beside them: journals, workers, and what travels with a run but is not in it."""

    def __init__(self, item: pytest.Item) -> None:
        self._item, self._sources = item, Sources()
        self._judged: dict[str, Judged] = {}
        self._journals: list[Journal] = []

    def journal(self, nominal: Run, campaign: Campaign) -> Journal:
        """Open the journal of a search, under the present governance variant."""
        item = self._item
        folder = item.config.rootpath / FOLDER
        path = folder / f"{digest([item.nodeid, variant_of(item)])[:20]}.jsonl"
        if item.config.getoption("mat_fresh"):
            path.unlink(missing_ok=True)
        journal = open_journal(
            path, nominal.spec.under(NO_SCHEDULE), key=_key(item, nominal, campaign), source_digest=source_digest,
            more=lambda run: encode(self._said(run)), restore=self._restore,
        )  # fmt: skip
        journal.learn(self._sources.new())
        tidy(folder)
        self._journals.append(journal)
        return journal

    @contextmanager
    def workers(self, *inherited: object) -> Iterator[Executor | None]:
        """As many as --mat-workers asks for, gone at the end; None where this process is to do it alone."""
        count = self._item.config.getoption("mat_workers") or 1
        if count == 1:
            yield None
            return
        from pytest_mat.workers import Forked

        pool = Forked(
            count, inherited=inherited, prepare=self._prepare,
            luggage=lambda run: (encode(self._item.stash.get(JUDGED, Judged())), self._sources.new()), unpack=self._unpack,
        )  # fmt: skip
        with pool:
            yield pool

    def _prepare(self) -> None:
        """In a fork: the terminal is not its own, and calls to the world outside are made by one process only."""
        from pytest_mat import live
        from pytest_mat.workers import silence

        silence(self._item.config)
        live.serve_only(self._item)

    def note(self, run: Run) -> None:
        """The search takes a run: what travelled with it is the item's now, as if it had been executed here just now."""
        self._item.stash[JUDGED] = self._said(run)
        self._judged.pop(run.id, None)

    def once(self, kind: str, schedule: Schedule, execute: Callable[[], Run]) -> Run:
        """An execution that belongs to the latest search, beside its own; `note` it when it is taken."""

        def executed() -> Run:
            run = execute()
            self._judged[run.id] = self._item.stash.get(JUDGED, Judged())
            return run

        return self._journals[-1].once(kind, schedule, executed)

    def _said(self, run: Run) -> Judged:
        return self._judged.get(run.id) or self._item.stash.get(JUDGED, Judged())

    def _restore(self, run: Run, data: Any) -> None:
        self._judged[run.id] = decode(Judged, data, where="journal")

    def _unpack(self, run: Run, luggage: Any) -> None:
        data, sources = luggage
        self._restore(run, data)
        self._journals[-1].learn(sources)

    def said(self) -> list[dict[str, Any]]:
        """What travels with the item's report: its journals, how much was taken from them, and what went wrong."""
        return [
            {"item": self._item.nodeid, "path": str(each.path or ""), "recalled": each.recalled, "said": each.said}
            for each in self._journals
        ]

    def close(self) -> None:
        for journal in self._journals:
            journal.close()


def _key(item: pytest.Item, nominal: Run, campaign: Campaign) -> dict[str, Any]:
    plan = {field.name: getattr(campaign, field.name) for field in fields(campaign)}
    return {
        "item": item.nodeid,
        "variant": variant_of(item),
        "spec": nominal.spec.base,
        "the reported run": nominal.head,
        "operators": grid_digest(campaign.operators),
        **{name: value for name, value in plan.items() if isinstance(value, str | int)},
        "python": sys.version,
        "distributions": installed_digest(),
    }


def tidy(folder: Path, kept: int = limits.JOURNALS_KEPT) -> None:
    """Keep git away from the folder, and forget the oldest journals that nobody took up again."""
    try:
        note = folder.parent / ".gitignore"
        if not note.exists():
            note.write_text("# made by pytest-mat\n*\n", encoding="utf-8")
        for path in sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)[:-kept]:
            path.unlink(missing_ok=True)
    except OSError:  # a folder that cannot be written to, or another session that tidies too
        return


# -- what the session says and forgets ------------------------------------------------------------------------------------

_told: list[dict[str, Any]] = []


def told(entries: list[dict[str, Any]]) -> None:
    """Called where reports arrive: in the controller, or in the only process."""
    _told.extend(entries)


def lines(status: int) -> list[str]:
    """For the terminal. `status` is the session's exit code."""
    found = []
    for each in _told:
        if each["recalled"]:
            count = each["recalled"]
            found.append(
                f"{each['item']}: resumed: {count} execution{'s' if count != 1 else ''} taken from an interrupted search"
            )
        if each["said"]:
            found.append(f"{each['item']}: {each['said']}")
    if any(name in each for each in _told for name in ("category", "untasked", "unevaluated")):
        from pytest_mat.evaluate import summed_up

        found += summed_up(sorted(_told, key=lambda each: str(each["item"])))
    if status == pytest.ExitCode.INTERRUPTED and any(each["path"] for each in _told):
        what = next((each["what"] for each in _told if "what" in each), "search")
        found.append(f"interrupted: run the same again, and the {what} goes on where it was")
    return found


def session_over(status: int) -> None:
    """Remove the journals of finished searches; they are kept where the session was ended before its end."""
    if status not in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR):
        for each in _told:
            if each["path"]:
                Path(each["path"]).unlink(missing_ok=True)


def forget() -> None:
    _told.clear()

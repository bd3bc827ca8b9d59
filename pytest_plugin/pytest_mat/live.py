"""Live calls of an item (--mat-live-calls, live_calls=): its cassette, and what follows from replies that were recorded.

Without a number nothing is recorded, and external ports are called in every run: right for scripted models, which reply the
same to the same. With one, every run of the item hears recorded replies, and a run that had to make live calls is executed
once more: only a run that was served wholly from the cassette can be repeated, whatever a client draws or waits for on its way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import pytest

from mat.boundary.cassette import RECORDED_REPLIES, Cassette
from mat.boundary.tape import Tape
from mat.core.campaign import Certificate
from mat.core.errors import MatError
from mat.core.site import parse_site
from pytest_mat.options import Settings

P = ParamSpec("P")
T = TypeVar("T")

FOLDER: Final = Path(".mat", "cassettes")
_BEFORE: Final = Path(".mat", "reels")
"""The folder of earlier versions."""
_CASSETTE: Final = pytest.StashKey[Cassette]()
_PLAYED: Final = pytest.StashKey[Tape]()
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME_CHARS: Final = 60
_DIFFERED: Final = "likely causes:"
"""In the reason of a certificate: a run was not the one that it repeated."""


def cassette_of(item: pytest.Item, settings: Settings, task: str) -> Cassette | None:
    """The cassette of the test `task`, read once a session; None where no live calls are counted."""
    if settings.live_calls is None:
        return None
    found = item.stash.get(_CASSETTE, None)
    if found is None:
        path = path_of(item.config.rootpath, task)
        found = item.stash[_CASSETTE] = Cassette(path, item=task, live=settings.live_calls)
        for note in found.notes:
            item.warn(pytest.PytestWarning(note))
    return found


def path_of(root: Path, task: str) -> Path:
    """Where the cassette of a test is, moved there from the folder of earlier versions: a name for people, and a digest."""
    name = _UNSAFE.sub("_", task.rpartition("::")[2])[:_NAME_CHARS].strip("._-") or "cassette"
    digest = sha256(task.encode()).hexdigest()[:12]
    path = root / FOLDER / f"{name}-{digest}.jsonl"
    before = next((root / _BEFORE).glob(f"*-{digest}.jsonl"), None)
    if before is not None and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        before.replace(path)
    return path


def tape_for(item: pytest.Item, settings: Settings, task: str, *, seed: int, given: Tape | None) -> Tape | None:
    """What the next run hears: the tape it is given, else the cassette, else the ports themselves."""
    cassette = None if given is not None else cassette_of(item, settings, task)
    tape = given if cassette is None else Tape(cassette=cassette, seed=seed)
    if tape is not None:
        item.stash[_PLAYED] = tape
    elif _PLAYED in item.stash:
        del item.stash[_PLAYED]
    return tape


def refusal(item: pytest.Item) -> MatError | None:
    """Why the latest run in this process heard nothing to one of its requests, whether or not the agent let that show."""
    tape = item.stash.get(_PLAYED, None)
    return None if tape is None else tape.refused


def refused(item: pytest.Item) -> str:
    """The same on one line, for a certificate; "" where every request was answered."""
    error = refusal(item)
    return (
        ""
        if error is None
        else f"{error.what} (at {error.where}): {error.fix}"
        if error.where
        else f"{error.what}: {error.fix}"
    )


def served(item: pytest.Item, execute: Callable[P, T]) -> Callable[P, T]:
    """Under --mat-stress and --mat-evaluate, `execute` called again as long as what it executed had to make live calls.

    It ends: what was called for is recorded, and the number of live calls is limited.
    """
    if not (item.config.getoption("mat_stress") or item.config.getoption("mat_evaluate")):
        return execute

    def until_served(*args: P.args, **kwargs: P.kwargs) -> T:
        while True:
            before = _spent(item)
            result = execute(*args, **kwargs)
            if _spent(item) == before or refusal(item) is not None:
                return result

    return until_served


def _spent(item: pytest.Item) -> int:
    """Live calls made so far, those of forks included; 0 before there is a cassette."""
    cassette = item.stash.get(_CASSETTE, None)
    if cassette is None or cassette.only_serves:
        return 0
    cassette.catch_up()
    return cassette.spent


def serve_only(item: pytest.Item) -> None:
    """In a worker: live calls are the searching process's, which makes them in one order however many workers there are."""
    cassette = item.stash.get(_CASSETTE, None)
    if cassette is not None:
        cassette.only_serves = True


def arguments(item: pytest.Item) -> list[str]:
    """For the fresh process that confirms: it reads the same cassette, and makes no call."""
    return ["--mat-live-calls", "0"] if _CASSETTE in item.stash else []


def relative(item: pytest.Item, certificate: Certificate) -> Certificate:
    """The certificate, which says so where it stands on recorded replies; where it fell for want of them, its reason does."""
    cassette = item.stash.get(_CASSETTE, None)
    if cassette is not None:
        return replace(certificate, relative_to=RECORDED_REPLIES) if cassette.used else certificate
    ports = [] if certificate.proven or _DIFFERED not in certificate.reason else _external(item)
    if not ports:
        return certificate
    said = f"{certificate.reason}; replies of {', '.join(ports)} are not recorded: --mat-live-calls N records them"
    return replace(certificate, reason=said)


def _external(item: pytest.Item) -> list[str]:
    """The external ports that the item's latest run called, as boundary:port."""
    from pytest_mat.runtime import RESULT

    run = item.stash.get(RESULT, None)
    sites = [parse_site(entry.site) for entry in run.tape if entry.mode == "external"] if run is not None else []
    return sorted({f"{site.boundary}:{site.name}" for site in sites})

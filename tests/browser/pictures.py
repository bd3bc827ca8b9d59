"""Makes the pictures of docs/images from sessions that really run: `python -m tests.browser.pictures`.

`green`, `broken` and `half` are pytest in a process of its own, whose page a real browser opens; `terminal` is a command of
the README, with the files that the README shows, as a terminal shows it. `--only NAME` makes the pictures of one. The search of
the green session, `examples/helpdesk`, takes a minute; `--page green=FILE` takes the page of one that has run
(`pytest --mat-stress --mat-report FILE examples/helpdesk`).

`.ci/run` makes them for the site that it builds, and fails if one cannot be made. Those that are committed are made by hand:
after you change what the terminal or the page shows, make them, look at them and commit them.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.browser.chromium import NO_CHROMIUM, Chromium, Page, chromium_path, running
from tests.browser.looks import unseen
from tests.browser.terminal import COLUMNS, RED, terminal_page
from tests.repo.guides import blocks, run, typed, write

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = ROOT / "docs" / "images"
SESSIONS: Final = Path(__file__).parent / "sessions"
LARGEST: Final = 150_000
"""The most bytes of a picture."""
WIDE: Final = (1280, 800)
SMALL: Final = (390, 844)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session whose page is photographed. `source`: its folder in this repository, or its only file. `verdict`: a pattern of
    how the first line of its page begins. `shots`: by picture, the address in the page and the size of the screen."""

    source: Path
    options: tuple[str, ...]
    verdict: str
    shots: dict[str, tuple[str, tuple[int, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """A command that a guide shows with its output. `shows`: texts that the picture must show."""

    guide: str
    command: str
    shows: tuple[str, ...]


def first_screens(name: str) -> dict[str, tuple[str, tuple[int, int]]]:
    return {f"page-{name}-{size[0]}": ("", size) for size in (WIDE, SMALL)}


MADE: Final = {
    "green": Session(
        source=ROOT / "examples" / "helpdesk", options=("--mat-no-reuse",), verdict=r"\d+ certified",
        shots=first_screens("green"),
    ),
    "broken": Session(
        source=SESSIONS / "refunds.py", options=(), verdict="1 broken",
        shots={**first_screens("broken"), "viewer": ("#trace=0&step=2", WIDE), "viewer-390": ("#trace=0&step=2", SMALL)},
    ),
    "half": Session(
        source=SESSIONS / "triage.py", options=("--mat-max-runs", "60"), verdict="1 not proven", shots=first_screens("half")
    ),
}  # fmt: skip
TERMINAL: Final = Typed(
    guide="README.md", command="pytest -q --mat-stress test_refund.py",
    shows=("BROKEN test_refund", "(test_refund.py:17) when the reply", "repair: send", "mat show mat_replays/test_refund-"),
)  # fmt: skip
NAMES: Final = (*MADE, "terminal")
PICTURES: Final = (*(name for session in MADE.values() for name in session.shots), "terminal")
"""All that are made, without `.png`."""


def page_of(session: Session, folder: Path) -> Path:
    """Run the session, a single file in a folder of its own, and return its page."""
    home, target = ROOT, session.source
    if target.is_file():
        home = folder
        target = Path(shutil.copy(target, folder / f"test_{target.name}"))
        (folder / "pytest.ini").write_text("[pytest]\n")
    page = folder / "page.html"
    command = [sys.executable, "-m", "pytest", "-q", "--mat-stress", f"--mat-report={page}", *session.options, str(target)]
    subprocess.run(command, cwd=home, check=False, stdout=sys.stderr)
    return page


def take(browser: Chromium, page: Path, session: Session) -> None:
    if not page.is_file():
        raise SystemExit(f"{session.source.name}: there is no page {page}")
    for name, (fragment, (width, height)) in session.shots.items():
        shown = Page(browser, width=width, height=height)
        shown.dark(False)
        shown.open(page, fragment)
        shown.frame()
        verdict = shown.run("document.querySelector('.verdict')?.textContent ?? ''")
        if not re.match(session.verdict, verdict):
            raise SystemExit(f"{session.source.name}: the page begins with {verdict!r}, not with {session.verdict!r}")
        keep(shown, name)


def printed(shown: Typed, folder: Path) -> str:
    """What the command prints in colours, after all that the guide does before it."""
    for block in blocks(shown.guide):
        if block["file"]:
            write(block, folder)
            continue
        command, _ = typed(block)
        done = run(command, folder, COLUMNS=str(COLUMNS), PY_COLORS="1")
        if command == shown.command:
            return done.stdout
    raise SystemExit(f"{shown.guide} does not run {shown.command!r}")


def lacking(shown: Page) -> list[str]:
    """What the picture of the terminal must show, and this tab does not."""
    red = f"""[...document.querySelectorAll('main span')]
        .some((span) => span.textContent === 'BROKEN' && getComputedStyle(span).color === 'rgb{RED}')"""
    return [*shown.run(unseen(TERMINAL.shows)), *([] if shown.run(red) else ["BROKEN in red"])]


def fit(shown: Page) -> None:
    """Make a tab as large as what it shows of a terminal."""
    shown.resize(*shown.run("['offsetWidth', 'offsetHeight'].map((side) => document.querySelector('main')[side])"))
    shown.frame()


def take_terminal(browser: Chromium, folder: Path) -> None:
    page = folder / "terminal.html"
    page.write_text(terminal_page(TERMINAL.command, printed(TERMINAL, folder)), encoding="utf-8")
    shown = Page(browser)
    shown.open(page)
    if missing := lacking(shown):
        raise SystemExit(f"{TERMINAL.command}: the picture does not show {missing}")
    fit(shown)
    keep(shown, "terminal")


def keep(shown: Page, name: str) -> None:
    """Write the picture of what a tab shows, if it is not too large, and close the tab, which must not have complained."""
    picture = IMAGES / f"{name}.png"
    shown.screenshot(picture)
    complaints = shown.complaints()
    shown.close()
    if complaints:
        raise SystemExit(f"{name}: {complaints}")
    if picture.stat().st_size > LARGEST:
        raise SystemExit(f"{picture} has {picture.stat().st_size:,} bytes, and may have {LARGEST:,}")


def draw(browser: Chromium, name: str, pages: Mapping[str, Path]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if name == "terminal":
            take_terminal(browser, Path(folder))
        else:
            take(browser, pages.get(name) or page_of(MADE[name], Path(folder)), MADE[name])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=NAMES, help="the pictures of this session alone")
    parser.add_argument(
        "--page", action="append", default=[], metavar="SESSION=FILE", help="the page of a session that has run"
    )
    parser.add_argument("--where-possible", action="store_true", help="without Chromium, leave the pictures as they are")
    given = parser.parse_args(arguments)
    pages = {name: Path(file) for name, _, file in (page.partition("=") for page in given.page)}
    if unknown := [name for name in pages if name not in MADE]:
        parser.error(f"--page: no session with a page is called {', '.join(unknown)}; choose from: {', '.join(MADE)}")
    path = chromium_path()
    if path is None and given.where_possible:
        print(f"the pictures stay as they are: {NO_CHROMIUM}")
        return
    if path is None:
        raise SystemExit(NO_CHROMIUM)
    with running(path) as browser:
        for name in given.only or NAMES:
            draw(browser, name, pages)


if __name__ == "__main__":
    main()

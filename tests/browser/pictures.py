"""Makes the pictures of docs/images from real sessions: `python -m tests.browser.pictures`.

Each session is pytest in a process of its own. A real browser opens its page, or what it printed. The search of the green one,
`examples/helpdesk`, takes a minute; `--page green=FILE` takes a page that is there.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from tests.browser.chromium import Chromium, Page, chromium_path, running
from tests.repo.test_readme import blocks, environment

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = ROOT / "docs" / "images"
SESSIONS: Final = Path(__file__).parent / "sessions"
LARGEST: Final = 150_000
"""The most bytes of a picture."""
WIDE: Final = (1280, 800)
SMALL: Final = (390, 844)
TUTORIAL: Final = "docs/tutorial.md"
COLUMNS: Final = 100
THEME: Final = TerminalTheme(
    (18, 22, 28), (216, 222, 228),
    [
        (18, 22, 28), (255, 107, 107), (126, 211, 133), (240, 200, 100),
        (110, 160, 255), (200, 140, 255), (108, 200, 210), (216, 222, 228),
    ],
)  # fmt: skip
PAGE: Final = """<!doctype html><meta charset="utf-8">
<style>body {{ margin: 0; background: {background}; color: {foreground} }}
pre {{ display: inline-block; margin: 0; padding: 20px; font: 16px/19px "DejaVu Sans Mono", monospace }}</style>
<pre>{code}</pre>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session to take pictures of. `source`: its folder in this repository, or its only file. `shots`: by picture, the
    address in the page and the size of the screen."""

    source: Path
    options: tuple[str, ...]
    shots: dict[str, tuple[str, tuple[int, int]]]


def first_screens(name: str) -> dict[str, tuple[str, tuple[int, int]]]:
    return {f"page-{name}-{size[0]}": ("", size) for size in (WIDE, SMALL)}


MADE: Final = {
    "green": Session(source=ROOT / "examples" / "helpdesk", options=("--mat-no-reuse",), shots=first_screens("green")),
    "broken": Session(
        source=SESSIONS / "refunds.py", options=(),
        shots={**first_screens("broken"), "viewer": ("#trace=0&step=2", WIDE), "viewer-390": ("#trace=0&step=2", SMALL)},
    ),
    "half": Session(source=SESSIONS / "triage.py", options=("--mat-max-runs", "60"), shots=first_screens("half")),
}  # fmt: skip


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
    for name, (fragment, (width, height)) in session.shots.items():
        shown = Page(browser, width=width, height=height)
        shown.dark(False)
        shown.open(page, fragment)
        shown.frame()
        _save(shown, IMAGES / f"{name}.png")


def tutorial_session(folder: Path) -> str:
    """What the first command of the tutorial prints in a terminal with colours, below the command."""
    made = blocks(TUTORIAL)
    first = next(number for number, block in enumerate(made) if block["file"] is None)
    for block in made[:first]:
        (folder / block["file"]).write_text(block["body"] + "\n", encoding="utf-8")
    command = made[first]["body"].partition("\n")[0]
    words = shlex.split(command.removeprefix("$ "))
    done = subprocess.run(
        [sys.executable, "-m", *words, "--color=yes", "-p", "no:cacheprovider", "-p", "no:xdist"], cwd=folder,
        env={**environment(), "COLUMNS": str(COLUMNS)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"\x1b[1m{command}\x1b[0m\n{done.stdout.rstrip()}"


def terminal_page(printed: str) -> str:
    """A page that shows what was printed, with its colours."""
    console = Console(record=True, width=COLUMNS + 1, file=StringIO(), force_terminal=True, color_system="standard")
    console.print(Text.from_ansi(printed), soft_wrap=True)
    return console.export_html(theme=THEME, code_format=PAGE, inline_styles=True)


def take_terminal(browser: Chromium, images: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "terminal.html")
        page.write_text(terminal_page(tutorial_session(Path(folder))), encoding="utf-8")
        shown = Page(browser, width=1280, height=800)
        shown.open(page)
        width, height = shown.run("(box => [box.width, box.height])(document.querySelector('pre').getBoundingClientRect())")
        shown.resize(round(width), round(height))
        shown.frame()
        _save(shown, images / "terminal.png")


def _save(shown: Page, picture: Path) -> None:
    shown.screenshot(picture)
    shown.close()
    if picture.stat().st_size > LARGEST:
        raise SystemExit(f"{picture} has {picture.stat().st_size:,} bytes, and may have {LARGEST:,}")


def names() -> list[str]:
    """The pictures that are made."""
    return sorted(["terminal", *(name for session in MADE.values() for name in session.shots)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=["terminal", *MADE], help="the pictures of this session alone")
    parser.add_argument(
        "--page", action="append", default=[], metavar="SESSION=FILE", help="the page of a session that has run"
    )
    parser.add_argument("--where-possible", action="store_true", help="without Chromium, make none and exit with 0")
    options = parser.parse_args()
    pages = dict(page.split("=", 1) for page in options.page)
    path = chromium_path()
    if path is None:
        print("no Chromium: apt-get install chromium, or name one in MAT_CHROMIUM", file=sys.stderr)
        raise SystemExit(not options.where_possible)
    with running(path) as browser:
        for name in options.only or ["terminal", *MADE]:
            if name == "terminal":
                take_terminal(browser, IMAGES)
                continue
            with tempfile.TemporaryDirectory() as folder:
                page = Path(pages[name]) if name in pages else page_of(MADE[name], Path(folder))
                take(browser, page, MADE[name])


if __name__ == "__main__":
    main()

"""Makes the pictures of docs/images from real sessions: `python -m tests.browser.pictures [green] [broken] [half]`.

Each session is pytest in a process of its own, whose page a real browser opens. A session named on the command line is made
alone; the search of the green one, `examples/helpdesk`, takes a minute.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.browser.chromium import Chromium, Page, chromium_path, running

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = ROOT / "docs" / "images"
SESSIONS: Final = Path(__file__).parent / "sessions"
LARGEST: Final = 150_000
"""The most bytes of a picture."""
WIDE: Final = (1280, 800)
SMALL: Final = (390, 844)


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
        picture = IMAGES / f"{name}.png"
        shown.screenshot(picture)
        shown.close()
        if picture.stat().st_size > LARGEST:
            raise SystemExit(f"{picture} has {picture.stat().st_size:,} bytes, and may have {LARGEST:,}")


def main(names: Sequence[str]) -> None:
    path = chromium_path()
    if path is None:
        raise SystemExit("no Chromium: apt-get install chromium, or name one in MAT_CHROMIUM")
    with running(path) as browser:
        for name in names or MADE:
            with tempfile.TemporaryDirectory() as folder:
                take(browser, page_of(MADE[name], Path(folder)), MADE[name])


if __name__ == "__main__":
    main(sys.argv[1:])

"""Each picture of the guides is one that `python -m tests.browser.pictures` makes, and shows a terminal as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.browser import pictures

ROOT: Final = Path(__file__).parents[2]
SHOWN: Final = re.compile(r"images/([\w-]+)\.png")


def test_every_picture_that_a_guide_shows_is_made_and_every_one_that_is_made_is_there() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))]
    shown = {name for text in texts for name in SHOWN.findall(text)}
    assert "terminal" in shown
    assert shown <= set(pictures.names())
    assert sorted(path.stem for path in (ROOT / "docs" / "images").iterdir()) == pictures.names()


def test_a_terminal_keeps_its_colours_and_shows_marks_as_they_are() -> None:
    page = pictures.terminal_page("\x1b[31m\x1b[1mBROKEN\x1b[0m test <b>&amp;</b>\n\x1b[36m===\x1b[0m plain")
    styles = {text: style for style, text in re.findall(r'<span style="([^"]*)">([^<]*)</span>', page)}
    assert "#ff6b6b" in styles["BROKEN"]
    assert "font-weight: bold" in styles["BROKEN"]
    assert "#6cc8d2" in styles["==="]
    assert "test &lt;b&gt;&amp;amp;&lt;/b&gt;" in page
    assert not any("plain" in text for text in styles)


def test_the_session_of_the_terminal_is_that_of_the_tutorial(tmp_path: Path) -> None:
    first, *lines = pictures.tutorial_session(tmp_path).splitlines()
    assert first == "\x1b[1m$ pytest -q --mat-stress test_clerk.py\x1b[0m"
    assert any("BROKEN" in line and "\x1b[31m" in line for line in lines)
    assert any("mat show" in line for line in lines)
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in lines) <= pictures.COLUMNS + 10

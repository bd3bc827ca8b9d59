"""The pictures of the README and the guides are those that `python -m tests.browser.pictures` makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.browser.chromium import NO_CHROMIUM
from tests.browser.pictures import IMAGES, PICTURES, TERMINAL, main, printed
from tests.browser.terminal import COLUMNS
from tests.repo.guides import ROOT, blocks, typed

NAMED = re.compile(r"\]\((?!https?:)([^)\s]+\.(?:png|svg|gif|jpe?g|webp))\)")
MADE = {IMAGES / f"{name}.png" for name in PICTURES}


def test_every_picture_of_the_readme_and_the_guides_is_made_by_the_script() -> None:
    guides = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = {(guide.parent / name).resolve(): guide.name for guide in guides for name in NAMED.findall(guide.read_text())}
    assert len(named) > 4
    assert {picture.name: guide for picture, guide in named.items() if picture not in MADE} == {}


def test_the_pictures_that_are_kept_are_those_that_the_script_makes() -> None:
    assert len(MADE) == len(PICTURES)
    assert set(IMAGES.iterdir()) == MADE


def test_the_picture_of_the_terminal_is_of_a_command_that_its_guide_runs_and_shows_what_the_guide_does() -> None:
    (shown,) = [
        shown
        for block in blocks(TERMINAL.guide)
        if block["file"] is None
        for command, shown in [typed(block)]
        if command == TERMINAL.command
    ]
    text = " ".join(shown.split())
    assert [part for part in TERMINAL.shows if part not in text] == []


@pytest.mark.full
def test_the_session_of_the_terminal_really_runs_in_colours_and_prints_no_line_wider_than_the_terminal(tmp_path: Path) -> None:
    lines = printed(TERMINAL, tmp_path).splitlines()
    assert [line for line in lines if re.match(r"(\x1b\[31m|\x1b\[1m){2}BROKEN\x1b\[0m test_refund  cost 4  ", line)] != []
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert [part for part in TERMINAL.shows if part not in " ".join(" ".join(plain).split())] == []
    assert max(map(len, plain)) == COLUMNS
    assert [line for line in plain if str(tmp_path) in line] == []


def test_without_a_chromium_the_script_fails_unless_it_may_leave_the_pictures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("MAT_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=NO_CHROMIUM):
        main([])
    main(["--where-possible"])
    assert NO_CHROMIUM in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "said"), [
    (["--only", "grene"], "invalid choice: 'grene'"),
    (["--page", "terminal=page.html"], "no session with a page is called terminal;"),
])  # fmt: skip
def test_a_name_that_no_session_has_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err

"""The picture of a terminal: the colours of the session, its texts as texts, and no more room than they need."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.browser.chromium import Page
from tests.browser.looks import CONTRAST, OVERFLOW
from tests.browser.pictures import TERMINAL, fit, lacking
from tests.browser.terminal import terminal_page

BROKEN = """\x1b[31m\x1b[1mBROKEN\x1b[0m test_refund  cost 4  refund.no_duplicate_effect
  refund had the same effect at steps 1 and 2 (test_refund.py:17) when the reply of the 1st refund
    call by main is lost after the effect happened
  repair: send an idempotency key
  mat show mat_replays/test_refund-825770.mat.json
\x1b[36m\x1b[1m================== short test summary info ==================\x1b[0m
\x1b[31mFAILED\x1b[0m test_refund.py::\x1b[1mtest_refund\x1b[0m
"""
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> &lt; {0} [bold]x[/bold] \x1b[2J\x1b[999mend"


def test_bold_colours_and_resets_become_html() -> None:
    html = terminal_page("pytest", "\x1b[31m\x1b[1mboth\x1b[0m none \x1b[36mcyan\x1b[0m default \x1b[1mbold\x1b[0m")
    assert re.search(r">\$ pytest</span>\n<span", html)
    span = r'<span style="([^"]*)">'
    ((both, cyan, bold),) = re.findall(f"{span}both</span> none {span}cyan</span> default {span}bold</span>", html)
    assert ("#ff6b6b" in both, "bold" in both) == (True, True)
    assert ("#6ecedc" in cyan, "bold" in cyan) == (True, False)
    assert ("#" in bold, "bold" in bold) == (False, True)


def test_hostile_text_is_escaped_and_its_control_codes_are_left_out() -> None:
    html = terminal_page("pytest <b>", HOSTILE)
    (code,) = re.findall("<pre>(.*)</pre>", html, re.DOTALL)
    assert "$ pytest &lt;b&gt;" in code
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt; &amp;lt; {0} [bold]x[/bold] end" in code
    assert set(re.findall(r"<[^ >]*", code)) == {"<span", "</span"}
    assert set(code) & {"\x1b"} == set()


def test_durations_are_left_out_and_other_numbers_are_not() -> None:
    html = terminal_page("pytest", "(15 executions, 11 s)\n\x1b[31m in 12.70s\x1b[0m\nsteps 1 and 2, 3 steps, 1s-2, 4 seconds")
    for text in ("(15 executions, ... s)", "> in ...s<", "steps 1 and 2, 3 steps, ...s-2, 4 seconds"):
        assert text in html


@pytest.mark.full
def test_the_page_shows_what_the_picture_must_in_colours_that_can_be_read(opened: Callable[..., Page]) -> None:
    page = opened(terminal_page(TERMINAL.command, BROKEN))
    assert lacking(page) == []
    looked, faint = page.run(CONTRAST)
    assert (looked > 5, faint) == (True, [])


@pytest.mark.full
def test_a_page_without_its_colours_or_without_a_part_is_not_taken(opened: Callable[..., Page]) -> None:
    plain = re.sub(r"\x1b\[\d+m", "", BROKEN)
    assert lacking(opened(terminal_page(TERMINAL.command, plain))) == ["BROKEN in red"]
    without = BROKEN.replace("repair: send", "repair: do not send").replace(":17", "")
    assert lacking(opened(terminal_page(TERMINAL.command, without))) == [TERMINAL.shows[1], TERMINAL.shows[2]]
    assert lacking(opened(terminal_page(TERMINAL.command, "\n" * 60 + BROKEN))) == list(TERMINAL.shows)


@pytest.mark.full
def test_the_picture_is_as_large_as_its_text(opened: Callable[..., Page]) -> None:
    sizes = []
    for text in (BROKEN, BROKEN * 3, "F\n"):
        page = opened(terminal_page("pytest", text))
        fit(page)
        assert page.run(OVERFLOW) == 0
        empty = """(() => {
            const text = document.querySelector('pre').getBoundingClientRect();
            return [text.left, text.top, innerWidth - text.right, innerHeight - text.bottom].map(Math.round);
        })()"""
        assert page.run(empty) == [20, 20, 20, 20]
        sizes.append(page.run("[innerWidth, innerHeight]"))
    assert sizes[0][1] < sizes[1][1]
    assert sizes[2][0] < sizes[0][0] == sizes[1][0]


@pytest.mark.full
def test_hostile_text_is_shown_and_does_nothing(opened: Callable[..., Page]) -> None:
    page = opened(terminal_page("pytest", HOSTILE))
    assert "<script>alert(1)</script><img src=x onerror=alert(1)> &lt; {0} [bold]x[/bold] end" in page.run(
        "document.querySelector('pre').textContent"
    )
    assert page.run("document.querySelectorAll('pre img, pre script, pre a').length") == 0

"""The first screen of the page, at three widths, light and dark: what broke, why, what to do, and what is not proven."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.browser.chromium import Page
from tests.browser.looks import CONTRAST, OVERFLOW, WIDTHS, unseen

import mat
from mat.core.campaign import NOT_JUDGED, Certificate, ItemResult
from mat.report.build import build
from mat.report.document import Document, FindingLine
from mat.report.findings import findings_of
from mat.report.page import render, trace_page

NAME = "tests/test_triage.py::test_"
LINKS = "[...document.querySelectorAll('.tabs a')]"
REASON = "60 executions do not cover the budget of 12; cost 4 is complete, nothing found"


@pytest.fixture(scope="session")
def finding(shown: Any) -> FindingLine:
    (found,) = findings_of(shown.document)
    return replace(found, place="shop/desk.py:28")


@pytest.fixture(scope="session")
def broken(shown: Any, finding: FindingLine) -> Any:
    """The page of a session in which one test breaks a contract."""
    return replace(shown, document=replace(shown.document, findings=(finding,)))


@pytest.fixture(scope="session")
def half() -> Document:
    """A session in which one test is not proven, and disturbed runs of two were not judged."""
    note = f"2 of 3 disturbed runs ended in an exception (TimeoutError 2) {NOT_JUDGED}"
    proof = Certificate(proven=True, bound=4)
    return build(
        [
            ItemResult(id=f"{NAME}many", status="not_proven", certificate=replace(proof, proven=False), reason=REASON),
            *(ItemResult(id=f"{NAME}{name}", status="certified", certificate=proof, notes=(note,)) for name in "ab"),
        ],
        [],
    )


def looks(opened: Callable[..., Page], html: str) -> Iterator[Page]:
    """A page at three widths, light and dark."""
    page = opened(html)
    for width in WIDTHS:
        page.resize(width, 800)
        for dark in (False, True):
            page.dark(dark)
            yield page


def parts(found: FindingLine) -> list[str]:
    """What a tired person has to see of a finding without scrolling."""
    return [
        found.contract, found.message, f"when {found.causes[0]}", found.place, found.repair, f"mat show {found.replay}",
    ]  # fmt: skip


@pytest.mark.full
def test_the_first_screen_has_cause_place_repair_and_command_and_nothing_is_wider_than_it(
    opened: Callable[..., Page], broken: Any, finding: FindingLine
) -> None:
    for page in looks(opened, broken.html):
        assert page.run(unseen(["1 broken", *parts(finding)])) == []
        assert page.run(OVERFLOW) == 0
        assert page.run(CONTRAST)[1] == []


@pytest.mark.full
def test_the_check_of_the_first_screen_sees_what_is_hidden_cut_below_or_too_wide(
    opened: Callable[..., Page], broken: Any, finding: FindingLine
) -> None:
    faults = {
        "display: none": parts(finding)[1:2], "opacity: 0": parts(finding)[1:2], "margin-top: 790px": parts(finding)[1:],
        "max-width: 60px; overflow: hidden; white-space: nowrap": parts(finding)[1:2],
    }  # fmt: skip
    page = opened(broken.html)
    for style, lost in faults.items():
        page.run(f"Object.assign(document.querySelector('.finding .message').style, {{ cssText: {style!r} }})")
        assert page.run(unseen(parts(finding))) == lost, style
    page.run("document.querySelector('.finding .message').style.cssText = 'width: 3000px; max-width: none'")
    assert page.run(OVERFLOW) > 1000


@pytest.mark.full
def test_what_is_not_proven_and_not_judged_is_on_the_first_screen(opened: Callable[..., Page], half: Document) -> None:
    wanted = ["1 not proven", "2 certified", REASON, "in 2 tests, disturbed runs failed the test's own asserts"]
    for page in looks(opened, render(half)):
        assert page.run(unseen(wanted)) == []
        assert page.run(OVERFLOW) == 0
        assert page.run(CONTRAST)[1] == []
    green = replace(half, items=tuple(replace(line, status="certified", reason="", notes=()) for line in half.items))
    page = opened(render(green))
    assert page.run(unseen(wanted)) == wanted
    assert page.run(unseen(["3 certified"])) == []


@pytest.mark.full
def test_no_tab_is_wider_than_the_screen_or_too_faint(opened: Callable[..., Page], broken: Any) -> None:
    for page in looks(opened, broken.html):
        for at in range(page.run(f"{LINKS}.length")):
            page.run(f"{LINKS}[{at}].click()")
            assert page.run(OVERFLOW) == 0
            assert page.run("document.querySelectorAll('.panel:not([hidden])').length") == 1


@pytest.mark.full
def test_tabs_are_reached_and_changed_by_keys(opened: Callable[..., Page], broken: Any) -> None:
    page = opened(broken.html)
    chosen = "document.querySelector('.tabs [aria-selected=true]').textContent"
    open_panel = "document.querySelector('.panel:not([hidden])').id"
    for _ in range(3):  # the link to the content, then the chosen tab
        page.press("Tab")
        if page.run("document.activeElement.getAttribute('role')") == "tab":
            break
    assert page.run("document.activeElement.textContent") == page.run(chosen) == "Overview"
    for key, name, panel in (
        ("ArrowRight", "Counterexamples", "panel-counterexamples"), ("End", "Metrics", "panel-metrics"),
        ("ArrowRight", "Overview", "panel-overview"), ("ArrowLeft", "Metrics", "panel-metrics"),
        ("Home", "Overview", "panel-overview"),
    ):  # fmt: skip
        page.press(key)
        assert (page.run(chosen), page.run("document.activeElement.textContent"), page.run(open_panel)) == (name, name, panel)
    page.press("Tab")
    assert page.run("document.activeElement.id") == "theme"  # one stop for all tabs
    page.run("document.querySelector('.tabs').replaceWith(document.querySelector('.tabs').cloneNode(true))")
    page.run(f"{LINKS}[0].focus()")
    page.press("ArrowRight")
    assert page.run(chosen) == "Overview"  # without its listeners the check fails


@pytest.mark.full
def test_links_of_a_finding_lead_into_other_tabs_and_back(opened: Callable[..., Page], broken: Any) -> None:
    page = opened(broken.html)
    page.click(".finding .links a:nth-child(2)")
    assert page.run("document.querySelector('.panel:not([hidden])').id") == "panel-counterexamples"
    page.run("history.back()")
    page.wait("document.querySelector('.panel:not([hidden])').id === 'panel-overview'")
    page.click(".finding .links a:nth-child(1)")
    assert page.run("document.querySelector('.panel:not([hidden])').id") == "panel-traces"
    page.wait("document.querySelectorAll('#v-rows > .row').length > 5")


# -- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_every_table_of_numbers_says_what_they_mean_and_how_intervals_are_made(
    opened: Callable[..., Page], broken: Any
) -> None:
    page = opened(broken.html)
    silent = """[...document.querySelectorAll('table.data')].filter((table) => table.querySelector('td.rate'))
        .filter((table) => table.dataset.name !== 'metrics' && table.getAttribute('aria-label') !== 'All metrics of each cell')
        .filter((table) => !/9[05]% interval/.test(table.parentElement.nextElementSibling?.textContent ?? ''))
        .map((table) => table.dataset.name || table.caption?.textContent)"""
    assert page.run(silent) == []
    unexplained = """[...document.querySelectorAll('table[data-name=metrics] tbody tr')]
        .filter((row) => !row.cells[3].textContent.includes('(')).map((row) => row.cells[0].textContent)"""
    assert page.run(unexplained) == []
    page.run("document.querySelector('table[data-name=nominal]').parentElement.nextElementSibling.remove()")
    assert page.run(silent) == ["nominal"]


# -- traces on a small screen -----------------------------------------------------------------------------------------

CUT = """[...document.querySelectorAll('#v-rows .row .call')]
    .filter((call) => call.scrollWidth > call.clientWidth || call.clientWidth < 200).map((call) => call.textContent)"""
"""The calls of a comparison that nobody can read."""


@pytest.mark.full
def test_two_traces_are_compared_readably_on_a_small_screen_and_a_call_is_shown_in_full(
    opened: Callable[..., Page], shown: Any
) -> None:
    page = opened(shown.html, "#trace=0")
    page.resize(390, 844)
    page.wait("document.querySelectorAll('#v-rows .row.stacked').length > 5")
    assert page.run("document.getElementById('v-against').selectedOptions[0].text") == "nominal"
    assert [call for call in page.run(CUT) if len(call) <= 34] == []
    texts = page.run("[...document.querySelectorAll('#v-rows .row')].map((row) => row.textContent)")
    assert any("refund(order=" in text and "TimeoutError" in text for text in texts)
    assert page.run(OVERFLOW) == 0
    page.click("#v-rows .row.changed")
    panel = page.run("document.getElementById('v-step').innerText")
    assert "A-777" in panel
    assert "first" in panel
    assert "second" in panel
    page.resize(1280, 800)
    assert page.run("document.querySelectorAll('#v-rows .row.stacked').length") > 5
    assert [call for call in page.run(CUT) if len(call) <= 90] == []
    page.resize(1600, 900)
    page.wait("document.querySelectorAll('#v-rows .row.stacked').length === 0")
    page.run("document.querySelector('#v-rows .row .call').style.width = '80px'")
    assert page.run(CUT) != []


@pytest.mark.full
def test_a_prompt_that_is_kept_as_a_hash_says_so_and_names_the_option(opened: Callable[..., Page]) -> None:
    def asked(record: Any) -> str:
        @mat.model("planner", **record)
        def plan(prompt: str) -> str:
            return "refund it"

        with mat.run([], task="t") as run, mat.agent("clerk"):
            plan("Order A17 arrived broken.")
        assert run.result is not None
        page = opened(trace_page(run.result))
        page.wait("document.getElementById('v-rows')?.textContent.includes('planner')")
        return page.run("document.getElementById('v-rows').textContent + document.getElementById('v-step').textContent")

    said = asked({})
    assert "planner(prompt=<hash of 25 characters>)" in said
    assert 'record="keep" of mat.model' in said
    kept = asked({"record": "keep"})
    assert "Order A17 arrived broken." in kept
    assert "hash" not in kept


@pytest.mark.full
def test_one_trace_shows_its_calls_on_a_small_screen_with_dots_in_their_lanes(opened: Callable[..., Page], shown: Any) -> None:
    page = opened(shown.html, "#trace=0&with=none")
    page.resize(390, 844)
    page.wait("document.querySelectorAll('#v-rows .row.stacked').length > 5")
    assert [call for call in page.run(CUT) if len(call) <= 25] == []
    off = """(() => {
        const middle = (node) => { const box = node.getBoundingClientRect(); return Math.round(box.y + box.height / 2); };
        const rows = [...document.querySelectorAll('#v-rows > .row')].map(middle);
        const dots = [...document.querySelectorAll('.lanes-svg circle')];
        return dots.filter((dot, at) => Math.abs(middle(dot) - rows[at]) > 1).length;
    })()"""
    assert page.run("document.querySelectorAll('.lanes-svg circle').length") > 5
    assert page.run(off) == 0
    # in one evaluation: the page may draw its rows again at any moment
    assert page.run(f"document.querySelector('.lanes-svg').style.top = '40px', {off}") > 5
    page.click("#row-2")
    assert page.run("document.querySelector('#v-rows [aria-selected=true] .step').textContent") == "2"

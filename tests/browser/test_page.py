"""The report's page in a real browser: it complains of nothing, needs nothing, and everything on it works."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

STATUS = "document.getElementById('v-status').textContent"
SELECTED = "document.querySelector('#v-rows [aria-selected=true] .step').textContent"
PANEL = "document.getElementById('v-step').textContent"
FOCUS = "document.activeElement.id"


@pytest.fixture
def compared(opened: Callable[..., Any], shown: Any) -> Any:
    """The traces as they open: the counterexample next to its nominal run."""
    return opened(shown.html, "#traces")


@pytest.fixture
def report(compared: Any) -> Any:
    """The page with the counterexample alone."""
    compared.choose("#v-against", "nothing")
    return compared


def step_of(page: Any) -> int:
    return int(page.run(SELECTED))


def steps(page: Any) -> list[str]:
    return page.run("[...document.querySelectorAll('#v-rows > .row .step')].map((node) => node.textContent)")


@pytest.mark.full
def test_the_page_loads_nothing_but_itself_and_complains_of_nothing(report: Any) -> None:
    assert report.complaints() == []
    assert [url.partition("?")[0][-9:] for url in report.requests if not url.startswith("data:")] == ["page.html"]


@pytest.mark.full
def test_every_section_of_a_full_report_is_there_and_linked(report: Any) -> None:
    sections = report.run("[...document.querySelectorAll('main section')].map((node) => node.id)")
    assert sections == [
        "overview", "counterexamples", "traces", "evaluation", "nominal", "violations", "distributions", "faults", "coverage",
        "robustness", "governance", "regression", "suite", "metrics",
    ]  # fmt: skip
    panels = report.run("[...document.querySelectorAll('.panel')].map((one) => [...one.children].map((node) => node.id))")
    assert [name for panel in panels for name in panel] == sections
    links = report.run("[...document.querySelectorAll('.bar nav a')].map((link) => link.hash.slice(1))")
    assert links == [panel[0] for panel in panels]


@pytest.mark.full
def test_a_header_sorts_its_table_up_then_down_and_then_as_it_was(report: Any) -> None:
    report.click("a[href='#overview']")
    rows = "[...document.querySelectorAll('table[data-name=items] tbody tr')].map((row) => row.cells[%d].textContent)"
    before = report.run(rows % 6)
    assert before == ["215", "9"]
    report.click("table[data-name=items] th:nth-child(7) button")
    assert report.run(rows % 6) == ["9", "215"]
    assert report.run("document.querySelector('table[data-name=items] th:nth-child(7)').ariaSort") == "ascending"
    report.click("table[data-name=items] th:nth-child(7) button")
    assert report.run(rows % 6) == ["215", "9"]
    report.click("table[data-name=items] th:nth-child(3) button")  # no value stays last, whichever way
    assert report.run(rows % 2) == ["4", "-"]
    report.click("table[data-name=items] th:nth-child(3) button")
    assert report.run(rows % 2) == ["4", "-"]


@pytest.mark.full
def test_the_theme_follows_the_system_until_the_reader_chooses(report: Any) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    report.dark(False)
    light = report.run(ground)
    report.dark(True)
    dark = report.run(ground)
    assert light != dark
    report.click("#theme")
    assert (report.run(ground), report.run("document.getElementById('theme').textContent")) == (light, "Theme: light")
    report.click("#theme")
    report.dark(False)
    assert report.run(ground) == dark
    report.click("#theme")
    assert report.run(ground) == light


@pytest.mark.full
def test_folded_parts_open(report: Any) -> None:
    report.click("a[href='#overview']")
    report.click("#overview > details:last-of-type summary")
    assert report.run("document.querySelector('#overview > details:last-of-type').open")
    assert "searched" in report.run("document.querySelector('#overview > details:last-of-type').textContent")


# -- the viewer -------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_the_viewer_opens_at_the_violation_and_shows_its_window_and_marks(report: Any) -> None:
    broken = report.run("document.querySelector('#v-rows .row.hard .step').textContent")
    assert report.run(SELECTED) == broken
    assert "refunded twice" in report.run(PANEL)
    assert "send an idempotency key" in report.run(PANEL)
    assert report.run("document.querySelector('#v-rows .row.hard .marks').textContent") == "refund.oncerefund.small"
    assert report.run("document.querySelectorAll('#v-rows .row.region').length") >= 2
    assert "fault service.lost_ack" in report.run("document.getElementById('v-rows').textContent")


@pytest.mark.full
def test_filters_by_agent_kind_mark_and_text_leave_what_they_say(report: Any) -> None:
    count = len(steps(report))
    report.choose("#v-agent", "mailer")
    assert set(report.run("[...document.querySelectorAll('#v-rows .agent')].map((node) => node.textContent)")) == {"mailer"}
    report.choose("#v-kind", "tool call")
    assert set(report.run("[...document.querySelectorAll('#v-rows .kind')].map((node) => node.textContent)")) == {"tool call"}
    assert report.run(STATUS) == f"3 of {count} steps"
    report.click("#v-clear")
    assert (len(steps(report)), report.run("document.getElementById('v-agent').value")) == (count, "")
    report.click("#v-chips button:nth-child(1)")
    assert report.run("document.querySelector('#v-chips button').ariaPressed") == "true"
    assert report.run("[...document.querySelectorAll('#v-rows > .row')].every((row) => /hard|soft/.test(row.className))")
    report.click("#v-chips button:nth-child(2)")  # what is violating or under a fault
    assert report.run("document.querySelectorAll('#v-rows > .row').length") == 2
    report.click("#v-clear")
    report.click("#v-find")
    report.type("IDEMPOTENCY no such text")
    assert report.run("document.querySelector('#v-rows .empty').textContent") == "No step fits these filters."
    assert report.run(PANEL) == "No step is selected."
    report.click("#v-clear")
    report.click("#v-find")
    report.type("say so")  # stands in the middle of a retrieved passage, far from what the row shows
    report.wait(f"{STATUS}.includes(' of ')")
    assert set(report.run("[...document.querySelectorAll('#v-rows .kind')].map((node) => node.textContent)")) == {"retrieval"}


@pytest.mark.full
def test_a_step_is_chosen_by_mouse_and_by_key_and_its_address_leads_back_to_it(report: Any) -> None:
    report.click("#row-2")
    assert step_of(report) == 2
    assert report.run(FOCUS) == "v-list"
    for key, step in (("j", 3), ("ArrowDown", 4), ("k", 3), ("ArrowUp", 2), ("Home", 0), ("End", len(steps(report)) - 1)):
        report.press(key)
        assert step_of(report) == step, key
    report.press("Home")
    report.press("PageDown")
    assert step_of(report) > 4
    report.press("PageUp")
    assert step_of(report) == 0
    assert report.run("location.hash") == "#trace=0&step=0&with=none"
    assert report.run("document.getElementById('v-list').getAttribute('aria-activedescendant')") == "row-0"


@pytest.mark.full
def test_keys_lead_to_violations_faults_and_along_provenance(report: Any) -> None:
    report.click("#row-0")
    report.press("f")
    fault = step_of(report)
    assert "service.lost_ack" in report.run(PANEL)
    report.press("v")
    assert step_of(report) >= fault
    report.press("Home")
    report.press("e")
    assert "TimeoutError" in report.run(PANEL)
    report.press("e")
    assert report.run(STATUS) == "No further error among these steps."
    report.press("Home")
    report.press("v", shift=True)
    assert report.run(STATUS) == "No earlier violation among these steps."
    claim = report.run("document.querySelector('#v-rows .row[aria-label*=\"claim\"] .step').textContent")
    report.click(f"#row-{claim}")
    report.press("[")
    assert "kb-1" in report.run(PANEL)
    assert "retrieval" in report.run("document.querySelector('#v-step h3').textContent")
    report.press("]")
    assert step_of(report) == int(claim)
    assert report.run("document.querySelectorAll('.lanes-svg .way').length") >= 1


@pytest.mark.full
def test_provenance_links_in_the_panel_lead_to_the_other_step(report: Any) -> None:
    reading = report.run("document.querySelector('#v-rows .row[aria-label*=\"memory read\"] .step').textContent")
    report.click(f"#row-{reading}")
    assert "Made from" in report.run(PANEL)
    report.click("#v-step ul.links button")
    assert "memory write" in report.run("document.querySelector('#v-step h3').textContent")


@pytest.mark.full
def test_enter_reads_the_step_escape_returns_and_a_slash_searches(report: Any) -> None:
    report.click("#row-1")
    report.press("Enter")
    assert report.run(FOCUS) == "v-step"
    report.press("Escape")
    assert report.run(FOCUS) == "v-list"
    report.press("/")
    assert report.run(FOCUS) == "v-find"
    report.press("v")  # a letter like any other there
    assert report.run("document.getElementById('v-find').value") == "v"
    report.press("Escape")
    report.press("c")
    assert report.run("document.getElementById('v-find').value") == ""


@pytest.mark.full
def test_the_keys_are_explained_and_the_explanation_closes(report: Any) -> None:
    report.click("#v-help")
    assert report.run("document.getElementById('v-keys').open")
    report.click("#v-keys button")
    assert not report.run("document.getElementById('v-keys').open")
    report.click("#row-0")
    report.press("?")
    assert report.run("document.getElementById('v-keys').open")
    report.press("Escape")
    assert not report.run("document.getElementById('v-keys').open")


@pytest.mark.full
def test_letters_do_nothing_while_the_focus_is_elsewhere(report: Any) -> None:
    before = step_of(report)
    report.run("document.querySelector('.bar nav a').focus()")
    report.press("j")
    assert step_of(report) == before


@pytest.mark.full
def test_the_timeline_chooses_the_step_where_it_is_clicked_by_steps_and_by_time(report: Any) -> None:
    report.run("document.getElementById('v-strip').scrollIntoView({ block: 'center' })")
    box = report.run("document.getElementById('v-strip').getBoundingClientRect().toJSON()")
    left, right, top = box["left"], box["right"], box["top"]
    report.click_at(left + 99, top + 20)
    assert step_of(report) == 0
    report.click_at(right - 13, top + 20)
    assert step_of(report) == len(steps(report)) - 1
    report.choose("#v-axis", "time")
    report.click_at(left + 99, top + 20)
    assert step_of(report) == 0
    painted = report.run(
        "document.getElementById('v-strip').getContext('2d').getImageData(0, 0, 400, 40).data.some((one) => one > 0)"
    )
    assert painted


@pytest.mark.full
def test_a_counterexample_opens_its_trace_at_its_step(report: Any) -> None:
    report.choose("#v-trace", "nominal")
    assert report.run("document.getElementById('v-trace').value") == "1"
    report.click("a[href='#counterexamples']")
    report.click(".counterexample .button")
    assert report.run("document.getElementById('v-trace').value") == "0"
    assert "refunded twice" in report.run(PANEL)
    assert report.run(FOCUS) == "v-list"


@pytest.mark.full
def test_a_counterexample_opens_next_to_its_undisturbed_run_with_what_it_breaks_marked(compared: Any) -> None:
    compared.resize(1600, 900)
    compared.wait("document.querySelectorAll('#v-rows .row.stacked').length === 0")
    assert compared.run("document.getElementById('v-against').selectedOptions[0].text") == "nominal"
    assert re.fullmatch(r"\d+ steps: \d+ equal, \d+ changed, \d+ only in the first, 0 only in the second", compared.run(STATUS))
    broken = compared.run("document.querySelector('#v-rows .row.hard .marks').textContent")
    assert broken.startswith("refund.oncerefund.small")
    assert compared.run("document.querySelector('#v-rows [aria-selected=true]').className").split()[:2] == ["row", "left-only"]
    assert "violates refund.once" in compared.run("document.querySelector('#v-rows .row.hard').ariaLabel")
    assert compared.run("document.querySelectorAll('#v-rows .row.region').length") >= 2
    assert "fault service.lost_ack" in compared.run("document.getElementById('v-rows').textContent")
    assert "refunded twice" in compared.run(PANEL)
    assert "send an idempotency key" in compared.run(PANEL)


@pytest.mark.full
def test_a_reader_who_wants_a_trace_alone_keeps_it_alone(compared: Any, opened: Callable[..., Any], shown: Any) -> None:
    compared.click("a[href='#overview']")
    compared.click(".finding .button")
    step = step_of(compared)
    assert compared.run("location.hash") == f"#trace=0&step={step}"
    compared.choose("#v-against", "nothing")
    alone = compared.run("location.hash")
    assert alone == f"#trace=0&step={step}&with=none"
    page = opened(shown.html, alone)
    assert page.run("document.getElementById('v-against').selectedOptions[0].text") == "nothing"
    assert page.run("document.querySelectorAll('#v-rows .stepwise').length") > 5
    page.choose("#v-trace", "nominal")  # there is nothing that a nominal run is compared with by itself
    assert page.run("document.getElementById('v-against').selectedOptions[0].text") == "nothing"


@pytest.mark.full
def test_provenance_is_followed_in_a_comparison_too(compared: Any) -> None:
    compared.run("document.getElementById('v-list').focus()")
    compared.press("End")
    while "claim" not in compared.run("document.querySelector('#v-step h3').textContent"):
        compared.press("ArrowUp")
    compared.press("[")
    assert "retrieval" in compared.run("document.querySelector('#v-step h3').textContent")


@pytest.mark.full
def test_an_address_opens_a_trace_at_a_step_next_to_another(opened: Callable[..., Any], shown: Any) -> None:
    page = opened(shown.html, "#trace=1&step=3&with=0")
    assert page.run("[document.getElementById('v-trace').value, document.getElementById('v-against').value]") == ["1", "0"]
    assert step_of(page) == 3


@pytest.mark.full
@pytest.mark.parametrize(
    "fragment", ["#trace=9", "#trace=x&step=y", "#trace=-1&step=0", "#trace=0&step=99999&with=77", "#%E0%A4%A"]
)
def test_an_address_that_means_nothing_does_no_harm(opened: Callable[..., Any], shown: Any, fragment: str) -> None:
    page = opened(shown.html, fragment)
    page.wait("document.querySelectorAll('#v-rows > .row').length > 5")


@pytest.mark.full
def test_two_traces_are_compared_step_by_step(report: Any) -> None:
    report.resize(1600, 900)
    report.choose("#v-against", "nominal")
    report.choose("#v-trace", "nominal")
    report.choose("#v-against", "1. refund.once, cost 4: tests/test_desk.py::test_desk_answers[order 7]")
    assert re.fullmatch(r"\d+ steps: \d+ equal, \d+ changed, 0 only in the first, \d+ only in the second", report.run(STATUS))
    report.click("a[href='#counterexamples']")
    report.click(".counterexample .button")
    assert re.fullmatch(r"\d+ steps: \d+ equal, \d+ changed, \d+ only in the first, 0 only in the second", report.run(STATUS))
    report.click("#v-chips button:nth-child(1)")
    kinds = report.run("[...document.querySelectorAll('#v-rows > .row')].map((row) => row.className)")
    assert {kind for row in kinds for kind in row.split()[1:2]} == {"changed", "left-only"}
    report.run("document.getElementById('v-list').focus()")
    report.press("Home")
    assert "Reply" in report.run("document.querySelector('#v-rows .row.changed').ariaLabel")
    assert report.run("document.querySelectorAll('#v-step .sides.differs').length") >= 1
    report.choose("#v-against", "nothing")
    assert report.run("document.querySelectorAll('#v-rows .changed').length") == 0


@pytest.mark.full
def test_what_a_sentence_names_is_a_click_away_even_behind_a_filter(report: Any) -> None:
    report.choose("#v-agent", "triage")
    report.click("#v-about button")
    assert "refunded twice" in report.run(PANEL)
    assert report.run("document.getElementById('v-agent').value") == ""


@pytest.mark.full
def test_long_texts_and_lists_open_on_demand(opened: Callable[..., Any], long_values: str) -> None:
    page = opened(long_values)
    assert page.run(PANEL).count("word") < 1000
    page.click("#v-step .text button")
    assert page.run(PANEL).count("word") == 1000
    page.click("#v-step ol button")
    assert page.run("document.querySelectorAll('#v-step ol li').length") == 300


@pytest.mark.full
def test_without_scripts_the_page_still_tells_what_broke(tab: Any, tmp_path: Any, shown: Any) -> None:
    path = tmp_path / "page.html"
    path.write_text(shown.html, encoding="utf-8")
    tab.send("Emulation.setScriptExecutionDisabled", value=True)
    tab.open(path)
    tab.send("Emulation.setScriptExecutionDisabled", value=False)
    text = tab.run("document.body.innerText")
    assert "refunded twice" in text
    assert "The trace viewer needs JavaScript" in text
    assert tab.run("document.getElementById('viewer').hidden")


# -- paper and small screens ------------------------------------------------------------------------------------------


@pytest.mark.full
def test_paper_gets_the_steps_as_a_table_and_no_controls(report: Any) -> None:
    report.run(
        "addEventListener('beforeprint', () => { window.printed = document.querySelectorAll('#v-print tbody tr').length })"
    )
    report.run("addEventListener('beforeprint', () => { window.heads = document.querySelectorAll('th button').length })")
    pdf = report.pdf()
    assert pdf.startswith(b"%PDF")
    assert report.run("window.printed") == len(steps(report))
    assert (report.run("window.heads"), report.run("document.querySelectorAll('th button').length > 0")) == (0, True)
    report.send("Emulation.setEmulatedMedia", media="print")
    shown = "[...document.querySelectorAll('%s')].filter((node) => node.getClientRects().length > 0).length"
    assert report.run(shown % "button:not(th button), select, input, nav, canvas, .button") == 0
    assert report.run(shown % "h2, table, svg.plot") > 10
    assert report.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.full
@pytest.mark.parametrize("width", [320, 768, 1400])
def test_the_page_never_scrolls_sideways_as_a_whole(report: Any, width: int) -> None:
    report.resize(width, 800)
    report.frame()
    assert report.run("document.documentElement.scrollWidth") <= width

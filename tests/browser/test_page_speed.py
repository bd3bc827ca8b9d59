"""Long traces: measured in the browser, with room for a slow machine; what is seen on an idle one is a tenth of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mat.core.record import Action, FaultNote, Link, Mediation, Observation, Record
from mat.core.value import FrozenDict
from mat.core.verdict import Violation
from mat.report.page import Traced, trace_page

AGENTS = ("planner", "verifier", "mailer", "auditor")
STATUS = "document.getElementById('v-status').textContent"
WATCH = """(() => {
    window.gaps = [];
    let last = performance.now();
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
        const now = performance.now();
        window.gaps.push(now - last);
        last = now;
        channel.port2.postMessage(0);
    };
    channel.port2.postMessage(0);
})()"""
"""How long the page is busy at a stretch: the time between two messages that it sends itself."""


def long_trace(count: int) -> Traced:
    """A trace of many steps by four agents, with faults, decisions, provenance and two violations."""
    kinds = ("tool_call", "message", "model_call", "memory_read", "claim")
    records = tuple(
        Record(
            step=n, at_ms=n * 13, sealed_ms=n * 13 + 5, asked_seq=2 * n, sealed_seq=2 * n + 1, agent=AGENTS[n % 4],
            role=AGENTS[n % 4], state=FrozenDict({"open": n % 5}), site=f"{AGENTS[n % 4]}/service:tool{n % 9}#{n // 36 + 1}",
            action=Action(
                kind=kinds[n % 5], name=f"tool{n % 9}", boundary="service", effect="write" if n % 6 == 0 else "read",
                arguments=FrozenDict({"order": f"A{n}", "text": f"Please look at order {n} and say what happened to it. " * 3}),
            ),
            observation=Observation(value=FrozenDict({"id": n, "note": f"The parcel left the house on day {n}. " * 6})),
            effected="yes" if n % 6 == 0 else "unknown",
            mediation=Mediation(decision="block", rule="limits") if n % 97 == 0 else None,
            links=(Link(src=f"step#{n - 3}", rel="derived_from", dst=f"step#{n}"),) if n > 5 else (),
            executed=None, raw=None, invoked=1, taped=False,
            faults=(FaultNote(operator="service.timeout", parameters=FrozenDict(), effect="raise"),) if n % 401 == 0 else (),
        )
        for n in range(count)
    )  # fmt: skip
    broken = tuple(
        Violation(
            contract="refund.once", severity="hard", stage="effected", step=step, agent="mailer", role="mailer",
            message="refunded twice", region=(step - 9, step),
        )
        for step in (count // 2, count - 20)
    )  # fmt: skip
    return Traced(name="one", records=records, violations=broken, verdict=broken[0])


def other_trace(trace: Traced) -> Traced:
    """The same with a step left out here and another reply there."""
    records = tuple(
        replace(record, observation=Observation(value="else")) if record.step % 50 == 7 else record
        for record in trace.records
        if record.step % 1000 != 5
    )
    return Traced(name="two", records=records)


@pytest.fixture(scope="module")
def pages() -> dict[int, str]:
    short = long_trace(5_000)
    return {5_000: trace_page([short, other_trace(short)]), 50_000: trace_page([long_trace(50_000)])}


def busy(page: Any, act: Callable[[], object], until: str = "true") -> float:
    """The longest stretch, in ms, for which an act keeps the page from answering, until it is drawn."""
    page.run("window.gaps.length = 0")
    act()
    page.wait(until)
    page.frame()
    return float(page.run("Math.max(0, ...window.gaps)"))


@pytest.mark.nightly
@pytest.mark.parametrize("count", [5_000, 50_000])
def test_a_long_trace_opens_filters_and_scrolls_with_a_screen_of_rows(
    opened: Callable[..., Any], pages: dict[int, str], count: int, record_property: Callable[[str, object], None]
) -> None:
    """What it costs is counted in rows that are drawn. How long it took is in --junitxml, and judged by nobody here."""
    page = opened(pages[count])
    record_property(f"{count}.opened_ms", page.run("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert page.run("document.querySelectorAll('#v-rows > .row').length") < 120  # what is seen, and a little around it
    page.run(WATCH)
    times = {
        "agent": busy(page, lambda: page.choose("#v-agent", "mailer")),
        "kind": busy(page, lambda: page.choose("#v-kind", "message")),
    }
    assert page.run(STATUS).startswith(f"{count // 20:,} of {count:,}")
    times["clear"] = busy(page, lambda: page.click("#v-clear"))
    times["governance"] = busy(page, lambda: page.click("#v-chips button:nth-child(3)"))
    assert page.run(STATUS) == f"{-(-count // 97):,} of {count:,} steps"
    page.click("#v-clear")
    page.click("#v-find")
    found = f"!{STATUS}.startsWith('Search')"
    times["find"] = busy(page, lambda: page.type(f"order {count - 1} and"), found)
    assert page.run(STATUS) == f"1 of {count:,} steps"
    assert page.run("document.querySelector('#v-rows .step').textContent") == str(count - 1)
    page.click("#v-clear")
    page.run("document.getElementById('v-list').focus()")
    for key in ("End", "PageUp", "Home", "v", "f", "]"):
        times[key] = busy(page, lambda key=key: page.press(key))
    times["scroll"] = busy(page, lambda: page.run("document.getElementById('v-list').scrollTop = 24 * 3333"))
    page.press("v")
    page.press("v")
    assert page.run("document.querySelector('#v-rows [aria-selected=true] .step').textContent") == str(count - 20)
    for name, time in times.items():
        record_property(f"{count}.{name}_ms", round(time))
    assert page.run("document.querySelectorAll('#v-rows > .row').length") < 120


@pytest.mark.nightly
def test_two_long_traces_are_compared_with_a_screen_of_rows(
    opened: Callable[..., Any], pages: dict[int, str], record_property: Callable[[str, object], None]
) -> None:
    page = opened(pages[5_000])
    page.run(WATCH)
    time = busy(page, lambda: page.choose("#v-against", "two"))
    changed, gone = len(range(7, 5_000, 50)), len(range(5, 5_000, 1000))
    told = f"{5_000 - changed - gone} equal, {changed} changed, {gone} only in the first, 0 only in the second"
    assert page.run(STATUS) == f"5,000 steps: {told}"
    record_property("compared_ms", round(time))
    assert page.run("document.querySelectorAll('#v-rows > .row').length") < 120


@pytest.mark.full
def test_a_search_gives_way_to_the_reader_and_to_the_next_search(opened: Callable[..., Any], pages: dict[int, str]) -> None:
    page = opened(pages[50_000])
    page.click("#v-find")
    page.send("Input.insertText", text="happened")  # in every step: it takes a while
    page.send("Input.insertText", text=" nowhere at all")
    page.wait(f"{STATUS} === '0 of 50,000 steps'")
    page.click("#v-clear")
    assert page.run(STATUS) == "50,000 steps"

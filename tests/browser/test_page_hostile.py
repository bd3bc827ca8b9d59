"""What a trace holds is untrusted: whatever stands in it is shown as text, and nothing of it ever runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mat.core.record import Action, ErrorFact, FaultNote, Link, Mediation, Observation, Record
from mat.core.value import FrozenDict, FrozenList
from mat.core.verdict import Violation
from mat.report.page import Traced, render, trace_page

MARKUP = (
    "</script><img src=x onerror='window.hacked=1'><script>window.hacked=1</script>",
    "<!--<script>--><svg onload=window.hacked=1>",
    '" onmouseover=window.hacked=1 autofocus onfocus=window.hacked=1 x=\'"',
    "{{constructor.constructor('window.hacked=1')()}}${window.hacked=1}`",
    "&lt;b&gt; &#x3c;i&#x3e; &amp;amp; ]]> \\u003cb>",
)
INVISIBLE = (
    "one\u2028two\u2029three",
    "refund \u202egnp.exe \u2066hidden\u2069 \u200bnothing\ufeff\u00a0",
    "bell\x07 null\x00 escape\x1b[31m return\r del\x7f next\x85",
    "broken \ud800 pair \udfff",
)
ATTACKS = {
    "markup": "".join(MARKUP),
    "invisible": "".join(INVISIBLE),
    "a link": "javascript:window.hacked=1",
    "a prototype": "__proto__",
}


def hostile(text: str) -> tuple[Record, ...]:
    """Records with the text in every field that text can stand in."""
    values = FrozenDict({text: FrozenList([text, FrozenDict({"inner": text})]), "__proto__": text, "constructor": text})
    seen = Observation(value=values, usage=FrozenDict({text: 3}))
    failed = Observation(error=ErrorFact(type=text, message=text, kind=text))
    mediation = Mediation(
        decision="rewrite", rule=text, reason=text, arguments=values, approval=text, grant=text, under=(text,)
    )
    first = Record(
        step=0, at_ms=0, sealed_ms=1, asked_seq=0, sealed_seq=1, agent=text, role=f"{text} role", state=values, site=text,
        action=Action(kind="tool_call", name=text, arguments=values, effect="write", impact="high"), observation=seen,
        effected="yes", mediation=mediation, links=(Link(src=text, rel=text, dst="step#0"),), executed=values, raw=failed,
        invoked=1, faults=(FaultNote(operator=text, parameters=values, effect=text),), taped=True,
    )  # fmt: skip
    link = Link(src="step#0", rel=text, dst="step#1")
    return first, replace(first, step=1, asked_seq=2, sealed_seq=3, observation=failed, links=(link,))


def broken(text: str) -> Violation:
    return Violation(
        contract=text, severity="hard", stage="effected", step=1, agent=text, role=text, message=text, repair=text, wanted=text,
        instance=text, region=(0, 1), witness=(0,),
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("name", ATTACKS)
def test_hostile_text_is_shown_as_text_and_nothing_runs(opened: Callable[..., Any], name: str) -> None:
    text = ATTACKS[name]
    about = ((text, text),)
    one = Traced(name=text, records=hostile(text), violations=(broken(text),), verdict=broken(text), item=text, about=about)
    other = Traced(name=f"{text} again", records=hostile(text + "!"), schedule=((text, 0, 3),), item=text)
    page = opened(trace_page([one, other], title=text))
    elements = page.run("document.querySelectorAll('img, iframe, object, embed, [onerror], [onload], [onfocus]').length")
    assert elements == 0
    wanted = spelled(text)
    assert wanted in page.run("document.getElementById('v-step').textContent")
    assert wanted in page.run("document.getElementById('v-about').textContent")
    assert wanted in page.run("document.querySelector('#v-rows .agent').textContent")
    assert page.run("document.querySelector('#v-agent option:nth-child(2)').textContent") == wanted
    for act in ("f", "[", "]", "v"):
        page.click("#row-0")
        page.press(act)
    page.choose("#v-against", wanted + " again")
    page.click("#v-chips button")
    page.click("#row-0")
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert wanted in page.run("document.getElementById('v-print').textContent")
    page.click("#v-find")
    page.type("gnp")
    assert page.run("typeof window.hacked") == "undefined"
    assert page.run("({}).inner === undefined && Object.keys(Object.prototype).length === 0")
    assert page.complaints() == []


def spelled(text: str) -> str:
    """As a page shows it: what is invisible is spelled out. A browser shows half a character as it can."""
    hidden = {char for char in text if not char.isprintable()}
    return "".join(f"\\u{ord(char):04x}" if char in hidden else char for char in text)


@pytest.mark.full
@pytest.mark.parametrize("name", ATTACKS)
def test_a_report_about_hostile_names_runs_nothing(opened: Callable[..., Any], shown: Any, name: str) -> None:
    text = ATTACKS[name]
    document = shown.document
    found = document.counterexamples[0].counterexample
    verdict = broken(text)
    run = replace(
        found.run,
        records=hostile(text),
        outcomes=tuple(replace(outcome, violations=(verdict,), contract=text) for outcome in found.run.outcomes),
        error=text,
    )
    line = replace(document.items[0], id=text, contract=text, reason=text, agent=text, category=text, findings=(text,))
    hostile_document = replace(
        document,
        items=(line, *document.items),
        nominal=tuple(replace(item, item=text) for item in document.nominal),
        faults=tuple(replace(item, operator=text, boundary=text) for item in document.faults),
        governance=tuple(replace(item, variant=text) for item in document.governance),
        violations=tuple(replace(item, contract=text, agent=text, action_kind=text) for item in document.violations),
        curves=tuple(replace(item, category=text) for item in document.curves),
        evaluation=tuple(replace(item, category=text, variant=text) for item in document.evaluation),
        metrics=tuple(replace(item, name=text) for item in document.metrics),
        counterexamples=(
            replace(document.counterexamples[0], item=text, counterexample=replace(found, run=run, verdict=verdict)),
        ),
    )  # fmt: skip
    page = opened(render(hostile_document, regression=shown.regression, suite=shown.suite, title=text))
    assert page.run("document.querySelectorAll('img, iframe, object, embed, [onerror], [onload], [onfocus]').length") == 0
    assert page.run("[...document.querySelectorAll('a')].every((link) => link.getAttribute('href').startsWith('#'))")
    assert page.run("typeof window.hacked") == "undefined"
    assert page.run("document.querySelectorAll('main section').length") == 14
    assert page.complaints() == []


@pytest.mark.full
def test_the_policy_stops_what_would_come_from_outside_the_page(opened: Callable[..., Any], shown: Any) -> None:
    page = opened(shown.html)
    refused = page.run(
        """(async () => {
            const found = [];
            try { document.body.innerHTML = '<b>x</b>'; } catch { found.push('html'); }
            try { await fetch('data:,x'); } catch { found.push('fetch'); }
            try { (0, eval)('1'); } catch { found.push('eval'); }
            const script = document.createElement('script');
            try { script.textContent = 'window.hacked = 1'; document.body.append(script); } catch { found.push('script'); }
            return [found, typeof window.hacked];
        })()"""
    )
    assert refused == [["html", "fetch", "eval", "script"], "undefined"]
    assert page.complaints()
    page.forgive()

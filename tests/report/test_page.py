"""The report's page as text: whole, self-contained, equal for equal reports, and escaped; tests/browser opens it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mat.core.campaign import NOT_JUDGED, Counterexample, Covered, ItemResult
from mat.core.curve import ScheduleResult
from mat.core.errors import MatError, printable
from mat.core.record import Record
from mat.core.spec import Perturbation, Schedule
from mat.core.value import FrozenDict
from mat.measure.estimate import Estimate
from mat.measure.governance import GovernedRow
from mat.measure.paired import paired_shares
from mat.measure.regression import Regression, compare
from mat.measure.robustness import CurveRow
from mat.measure.rows import row_of
from mat.measure.suite import Cover, candidates, select
from mat.report import brief, page
from mat.report.build import build
from mat.report.document import AgencyLine, Document, DriftLine, HeatCell, HeatMap, HeatRow, Tables, VariantPair
from mat.report.findings import findings_of
from mat.report.page import Traced, render, trace_page, undisturbed
from mat.report.page.sections import _is_trace_of
from mat.report.page.view import environment, grid, script_json
from mat.report.table import Column, Reworded, Table, UnitEstimate
from mat.report.words import quantity, rounded_percent


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.said.append(data)

    @property
    def told(self) -> list[str]:
        """Its texts, without the blanks between elements."""
        return [text for text in self.said if text.strip()]

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for element, attributes in self.found if element == name]


@pytest.fixture
def document(shop_tests: Any, found: Counterexample) -> Document:
    item = shop_tests.item
    results = [
        ItemResult(
            id=item, status="counterexample", counterexamples=(found,), certificate=shop_tests.proven, executions=215,
            replays=("mat_replays/x.mat.json",), category="misuse",
        ),
        ItemResult(id="t.py::test_b", status="vacuous", reason="no contract armed"),
    ]  # fmt: skip
    rows = [row_of(shop_tests.run(), item=item, condition="nominal"), row_of(found.run, item=item, condition="fault")]
    governed = [
        GovernedRow(
            item=item, variant=variant, condition="nominal", seed=0, input="benign", category="", success=True, violated=False,
            harm=None, actions=(),
        )
        for variant in ("none", "shield")
    ]  # fmt: skip
    executed = (ScheduleResult(cost=0, success=True), ScheduleResult(cost=3, success=False, broken=("refund.once",)))
    return build(results, rows, governed=governed, curves=[CurveRow(item=item, budget=4, bound=4, executed=executed)])


# -- the page as a whole ----------------------------------------------------------------------------------------------


def test_equal_reports_give_equal_bytes(document: Document) -> None:
    assert render(document) == render(replace(document))


def test_the_page_refers_to_nothing_outside_itself(document: Document) -> None:
    elements = Elements(render(document))
    for name, attributes in elements.found:
        for key in ("src", "href", "action", "data", "poster", "srcset", "xlink:href"):
            assert (attributes.get(key) or "#").startswith(("#", "data:,")), (name, attributes)
    assert not {"img", "iframe", "object", "embed", "base", "video", "audio"} & {name for name, _ in elements.found}
    style = re.search(r"<style>(.*?)</style>", render(document), re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_the_policy_names_exactly_the_script_and_the_style_of_the_page(document: Document) -> None:
    html = render(document)
    policy = next(
        attributes["content"] for attributes in Elements(html).named("meta") if attributes.get("http-equiv")
    )  # fmt: skip
    assert policy is not None
    for directive, pattern in (("script-src", r"<script>(.*?)</script>"), ("style-src", r"<style>(.*?)</style>")):
        inside = re.findall(pattern, html, re.DOTALL)
        assert len(inside) == 1
        digest = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "require-trusted-types-for 'script'" in policy
    assert not [attributes for _, attributes in Elements(html).found if "style" in attributes]


def test_the_first_screen_says_what_the_end_of_the_session_says(document: Document) -> None:
    """From the same values, in the same words: cause, place, repair, command, and what is open with its fix."""
    (found,) = findings_of(document)
    found = replace(found, place="shop.py:22", replayed=True, executions=3, reproduced=1)
    accepted = replace(found, standing="accepted", until="2999-01-01", remark="ada: ticket 4711", message="paid twice")
    other = document.items[1]
    items = (
        *document.items,
        *(replace(other, id=f"t.py::test_{at}", status="not_proven", reason=f"{at} runs are not enough") for at in range(5)),
        replace(other, id="t.py::test_stale", status="stale", reason="no call is made"),
        *(replace(other, id=f"t.py::test_{at}", notes=(f"2 of {at} runs failed {NOT_JUDGED}",)) for at in (7, 8)),
    )
    whole = replace(document, items=items, findings=(found, accepted))
    name = brief.namer(line.id for line in items)
    printed = [
        *brief.broken_lines([found], name, width=10_000), *brief.held_lines([accepted], name, width=10_000),
        *brief.open_lines(items, name, width=10_000),
    ]  # fmt: skip
    terminal = " ".join(map(str, printed))
    page = " ".join(" ".join(Elements(render(whole)).said).split())
    entries = [entry for group in brief.open_groups(items) for entry in group[: brief.SHOWN]]
    assert {entry.label for entry in entries} >= {"NOT PROVEN", "STALE", "not judged"}
    for said in (
        brief.contracts_text(found), brief.replay_text(found), found.message, brief.under_text(found), found.place,
        found.repair, brief.open_command(found), *brief.remarks(found), accepted.message, brief.held_text(accepted),
        *(text for entry in entries for text in (entry.text, entry.fix)),
    ):  # fmt: skip
        assert said in terminal, said
        assert said in page, said
    assert "4 runs are not enough" in page  # folded, where the terminal counts


def test_the_script_never_makes_html_of_text_nor_code(document: Document) -> None:
    script = page._file("viewer.js")
    forbidden = (
        "innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function(", "srcdoc", "parseFromString",
        "createContextualFragment", "fetch(", "XMLHttpRequest", "import(", "WebSocket", "sendBeacon",
    )  # fmt: skip
    for word in forbidden:
        assert word not in script, word
    assert "</" not in re.sub(r"//.*|/\*.*?\*/", "", script)
    assert script.isascii() or all(char.isprintable() or char == "\n" for char in script)


def test_the_parts_of_an_empty_report_are_left_out() -> None:
    elements = Elements(render(Document()))
    sections = [attributes["id"] for attributes in elements.named("section")]
    assert sections == ["overview"]
    assert elements.named("table") == []


def test_every_id_of_the_page_is_given_once(document: Document) -> None:
    ids = [attributes["id"] for _, attributes in Elements(render(document)).found if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_links_inside_the_page_lead_somewhere(document: Document) -> None:
    elements = Elements(render(document))
    ids = {attributes["id"] for _, attributes in elements.found if "id" in attributes}
    for link in elements.named("a"):
        target = str(link["href"]).removeprefix("#")
        assert target in ids or target.startswith("trace=")


def test_a_report_says_what_broke_under_what_and_how_to_see_it_again(document: Document, shop_tests: Any) -> None:
    said = " ".join(Elements(render(document)).said)
    for wanted in (
        "refunded twice", "the reply of the 1st refund call by mailer is lost after the effect happened", "cost 4",
        "No cheaper counterexample exists on this grid: 212 executions", "It was reproduced in 3 of 3 executions",
        "send an idempotency key", "pytest --mat-replay mat_replays/x.mat.json", "no contract armed", shop_tests.item,
    ):  # fmt: skip
        assert wanted in said.replace("\n", " "), wanted


def test_a_comparison_and_a_suite_have_their_sections(document: Document, found: Counterexample) -> None:
    worse = [replace(row, success=False, outcome="fail", broken=("refund.once",)) for row in document.outcomes]
    html = render(
        document, regression=compare(document.outcomes, worse), suite=select(candidates({"a.json": found, "b.json": found}))
    )
    said = " ".join(Elements(html).said)
    assert "Regressions: task success (1)" in said
    assert "the task fails" in said
    assert "1 of 2 replays covers 1 hard contract, 1 failure signature; fewer are not enough (exact)." in said
    assert "Left out (1)" in said


def test_a_long_list_is_cut_and_says_so(document: Document) -> None:
    many = [replace(document.outcomes[0], seed=seed) for seed in range(203)]
    worse = [replace(row, success=False) for row in many]
    said = " ".join(Elements(render(document, regression=compare(many, worse))).said)
    assert "Regressions: task success (203)" in said
    assert "3 more are in the JSON report." in said


class Counted(tuple[Any, ...]):
    """A tuple that counts how often somebody goes through it."""

    passes = 0

    def __iter__(self) -> Iterator[Any]:
        Counted.passes += 1
        return super().__iter__()


def passes(document: Document) -> int:
    Counted.passes = 0
    render(document)
    return Counted.passes


def test_the_page_goes_through_its_tests_no_more_often_where_more_of_them_have_reasons(document: Document) -> None:
    told = [replace(document.items[1], id=f"t.py::test_{number}", findings=("one", "two")) for number in range(40)]
    few, many = (replace(document, items=Counted(told[:count])) for count in (2, 40))
    assert passes(few) == passes(many) > 0


def test_what_a_search_met_and_never_met_is_reported(document: Document) -> None:
    covered = Covered(
        contracts=("refund.once",), idle=("mail.private",), interfaces=("service:lookup", "service:refund"),
        perturbed=("service:refund",), failing=("service:refund",), risks=("high/block",),
    )  # fmt: skip
    html = render(replace(document, items=(replace(document.items[0], covered=covered), *document.items[1:])))
    said = Elements(html[html.index('id="coverage"') :]).told
    start = said.index("1 of 2")
    assert said[start : start + 6] == ["1 of 2", "mail.private", "1 of 2", "service:lookup", "service:refund", "high/block"]


def test_quantiles_that_a_report_of_another_version_lacks_are_dashes(evaluated: Document) -> None:
    line = evaluated.distributions[0]
    few = replace(line.distribution, quantiles=tuple(part for part in line.distribution.quantiles if part.percent == 50))
    html = render(replace(evaluated, distributions=(replace(line, distribution=few),)))
    said = Elements(html[html.index('data-name="distributions"') :]).told
    assert said[: said.index("What these numbers mean")][-2:] == ["-", "-"]


def test_governance_variants_in_pairs_tell_the_difference_in_points(document: Document) -> None:
    pairs = paired_shares([(True, True)] * 6 + [(True, False)] * 3 + [(False, True)])
    tokens = Estimate(value=None, low=None, high=None, n=0, confidence=0.95, method="bootstrap")
    line = VariantPair(condition="nominal", aspect="success", old="none", new="shield", paired=pairs, tokens=tokens)
    html = render(replace(document, variant_pairs=(line,)))
    said = Elements(html[html.index('data-name="variant-pairs"') :]).told
    start = said.index("none")
    assert said[start : start + 6] == ["none", "shield", "10", "3", "1", "-20 points"]
    low, high = pairs.difference.low, pairs.difference.high
    assert low is not None
    assert high is not None
    assert said[start + 6] == f"[{100 * low:.3g} to {100 * high:.3g}]"


def test_a_counterexample_without_records_tells_its_story_and_opens_no_trace(document: Document) -> None:
    replay = document.counterexamples[0]
    run = replay.counterexample.run
    bare = replace(replay.counterexample, run=replace(run, records=(), spec=replace(run.spec, seed=9)))
    elements = Elements(render(replace(document, counterexamples=(replace(replay, counterexample=bare), replay))))
    opening = [link["href"] for link in elements.named("a") if str(link["href"]).startswith("#trace=")]
    assert opening == [f"#trace=0&step={replay.counterexample.verdict.step}"]
    assert [each["class"] for each in elements.named("article")] == ["finding"] * 2 + ["counterexample"] * 2
    assert traces(render(replace(document, counterexamples=(replace(replay, counterexample=bare),)))) == []


def test_traces_that_would_make_the_page_too_large_are_left_out_and_that_is_said(
    document: Document, shop_tests: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shop_tests.run()
    count = len(document.counterexamples[0].counterexample.run.records)
    extra = [Traced.of(run, name=f"extra {number}") for number in range(3)]
    monkeypatch.setattr(page, "RECORDS", count + 2 * len(run.records))
    html = render(document, traces=extra)
    assert [trace["name"] for trace in traces(html)][1:] == ["extra 0", "extra 1"]
    assert "1 more trace is not in this file" in " ".join(Elements(html).said)
    monkeypatch.setattr(page, "RECORDS", 1)
    assert len(traces(trace_page(run))) == 1  # one is always shown


def test_of_many_runs_the_undisturbed_one_of_each_counterexample_is_found_once(found: Counterexample, shop_tests: Any) -> None:
    plain, again = shop_tests.run(), shop_tests.run()
    others = [
        shop_tests.run(seed=1), shop_tests.run(config={"model": "other"}), shop_tests.run(horizon=50),
        shop_tests.run(schedule=[shop_tests.lost]),
    ]  # fmt: skip
    (partner,) = undisturbed([found.run, found.run], [*others, plain, again])
    assert (partner.records, partner.name) == (plain.records, f"nominal, seed 0: {shop_tests.item}")
    assert undisturbed([found.run], others) == ()
    assert undisturbed([], [plain]) == ()
    assert undisturbed([found.run, plain], [again]) == ()  # it is shown already, because it breaks something itself


def test_a_counterexample_is_compared_with_its_undisturbed_run_and_with_no_other(
    document: Document, found: Counterexample, shop_tests: Any
) -> None:
    plain, other, disturbed = (
        Traced.of(shop_tests.run(**options), name=name)
        for name, options in (("plain", {}), ("other", {"seed": 1}), ("disturbed", {"schedule": [shop_tests.lost]}))
    )
    html = render(document, traces=[other, plain, disturbed])
    assert [(trace["name"], trace.get("against")) for trace in traces(html)[1:]] == [
        ("other", None), ("plain", None), ("disturbed", 2),
    ]  # fmt: skip
    assert traces(html)[0]["against"] == 2
    assert "against" not in traces(render(document, traces=[other]))[0]
    stored = Traced(name="stored", records=plain.records, undisturbed=True)  # nobody knows of what
    assert "against" not in traces(trace_page([Traced(name="one", records=plain.records), stored]))[0]


def test_undisturbed_runs_make_room_for_counterexamples_and_are_said_where_they_have_none(
    document: Document, found: Counterexample, shop_tests: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = replace(document.counterexamples[0], item="t.py::test_b")
    document = replace(document, counterexamples=(*document.counterexamples, second))
    plain = Traced.of(shop_tests.run(), name="plain")
    monkeypatch.setattr(page, "RECORDS", 2 * len(found.run.records) + len(plain.records) - 1)
    html = render(document, traces=[plain])
    assert ["against" in trace for trace in traces(html)] == [False, False]
    assert "1 more trace is not in this file (1 of nominal runs, for comparison)" in " ".join(Elements(html).said)


def test_a_stored_trace_is_shown_alone_with_what_it_breaks(found: Counterexample) -> None:
    html = trace_page(iter(found.run.records), violations=[found.verdict], title="case 7")
    assert traces(html) == [{"name": "case 7", "item": "", "steps": len(found.run.records)}]
    assert "<title>case 7</title>" in html
    assert [attributes["id"] for attributes in Elements(html).named("section")] == ["traces"]


def test_a_trace_without_a_step_is_a_page_all_the_same() -> None:
    assert traces(trace_page([])) == [{"name": "Trace", "item": "", "steps": 0}]


def traces(html: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="trace-list">(.*?)</script>', html)
    return json.loads(found[1]) if found else []


# -- what comes from a run --------------------------------------------------------------------------------------------

HOSTILE = "<img src=x onerror=alert(1)>\"'`</script><!--{{ 7 * 7 }}{% raw %}"


def poisoned(value: Any, kind: Any) -> Any:
    """The value with every text in it replaced, however deep it lies; words of a closed set (`Literal`) stay."""
    if isinstance(value, str):
        return HOSTILE if kind is str else value
    if is_dataclass(value) and not isinstance(value, type):
        kinds = get_type_hints(type(value), vars(sys.modules[type(value).__module__]) | {"FrozenDict": FrozenDict})
        names = [each.name for each in fields(value) if not (isinstance(value, Record) and each.name == "site")]
        return copied(value, {name: poisoned(getattr(value, name), kinds[name]) for name in names})
    if isinstance(value, Schedule):
        return Schedule(tuple(poisoned(item, Perturbation) for item in value))
    if isinstance(value, FrozenDict):
        return FrozenDict((f"{HOSTILE}{name}", poisoned(item, str)) for name, item in value.items())
    if isinstance(value, tuple):
        inner = next((each for each in get_args(kind) if each is not Ellipsis), str)
        return tuple(poisoned(item, inner) for item in value)
    return value


def copied(value: Any, given: dict[str, Any]) -> Any:
    try:
        return replace(value, **given)
    except MatError:  # a place or a number that refuses to be any text
        return value


def test_no_text_of_any_field_becomes_an_element(document: Document, evaluated: Document, found: Counterexample) -> None:
    worse = [replace(row, success=False, outcome="fail", broken=("refund.once",)) for row in document.outcomes]
    line = HeatRow(name="r", group="g", cells=(HeatCell(success=evaluated.nominal[0].success, why="w"),))
    covered = Covered(contracts=("c",), idle=("i",), interfaces=("s",), perturbed=("s",), failing=("s",), risks=("high/",))
    share = evaluated.nominal[0].success
    drift = DriftLine(condition="nominal", agent="clerk", score=share, drifted=share, absent=0, unjudged=0)
    agency = AgencyLine(
        condition="nominal", rate=share, effected=share, runs=share, epsilon=0.1, verdict="fail", labels=(("delete", 3),)
    )
    named = {each.name: getattr(evaluated, each.name) for each in fields(Tables)} | {
        "items": tuple(replace(item, covered=covered) for item in document.items),
        "counterexamples": document.counterexamples, "curves": document.curves,
        "heat_maps": (HeatMap(title="t", down="d", across="a", columns=("c",), rows=(line,)),), "variant": "x",
        "interrupted": True, "drift": (drift,), "agency": (agency,),
    }  # fmt: skip
    whole = replace(evaluated, **named)
    html = render(
        poisoned(whole, Document),
        regression=poisoned(compare(document.outcomes, worse), Regression),
        suite=poisoned(select(candidates({"a.json": found, "b.json": found})), Cover),
        traces=[poisoned(Traced.of(found.run, name="x"), Traced)],
        title=HOSTILE,
    )
    elements, plain = Elements(html), Elements(render(whole))
    assert [attributes["id"] for attributes in elements.named("section")] == page_sections()
    assert {name for name, _ in elements.found} <= {name for name, _ in plain.found} | {"article", "wbr", "ul", "li"}
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]
    assert all(str(link["href"]).startswith("#") for link in elements.named("a"))
    assert html.count("</script>") == html.count("<script")
    assert html.count("{{ 7 * 7 }}") > 100


def test_texts_that_only_some_reports_show_become_no_element_either(document: Document, evaluated: Document) -> None:
    rows = tuple(
        HeatRow(name="r", group=group, cells=(HeatCell(success=evaluated.nominal[0].success),)) for group in (HOSTILE, "b")
    )
    cell = evaluated.evaluation[0]
    metric = replace(cell.metrics[0], name=f"success@{HOSTILE}")
    shown = replace(
        document,
        items=(replace(document.items[0], replays=(HOSTILE,)), *document.items[1:]),
        heat_maps=(HeatMap(title="t", down="d", across="a", columns=("c",), rows=rows),),
        evaluation=(replace(cell, metrics=(*cell.metrics, metric)),),
    )
    others = [replace(row, item=HOSTILE) for row in document.outcomes]
    html = render(shown, regression=compare([*document.outcomes, *others], document.outcomes))
    said = Elements(html).told
    assert "img" not in {name for name, _ in Elements(html).found}
    told = (HOSTILE, f"success@{HOSTILE}".replace("_", " "), f"only in the old report: {HOSTILE}")
    assert all(text in said for text in told)
    assert any(text.startswith("pytest --mat-replay '<img") for text in said)


def page_sections() -> list[str]:
    told: Any = environment().get_template("sections.html.jinja").module
    return [name for tab in told.TABS for name in tab]


@given(st.text())
def test_any_text_comes_out_as_the_text_it_is_with_the_invisible_spelled_out(said: str) -> None:
    made = environment().from_string('<p title="{{ said }}">{{ said }}</p><p>{{ said|breakable }}</p>').render(said=said)
    elements = Elements(made)
    assert {name for name, _ in elements.found} <= {"p", "wbr"}
    assert elements.named("p")[0]["title"] == printable(said)
    assert "".join(elements.said) == 2 * printable(said)


@pytest.mark.full
@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_any_data_comes_out_of_a_script_as_it_went_in_and_cannot_end_it(data: Any) -> None:
    made = script_json(data)
    assert json.loads(made) == data
    assert made.isascii()
    assert not set("<>&") & set(made)


def laid(*rows: tuple[Any, ...], style: str = "", unit: str = "share") -> Elements:
    """A table of the page, by a template of its own."""
    names = [f"c{place}" for place in range(len(rows[0]))]
    table = Table(name="t", title="t", columns=tuple(Column(name=name, unit=unit) for name in names), rows=rows)
    told: Any = environment().get_template("parts.html.jinja").module
    return Elements(told.data(grid(table, [(name, name, style) for name in names]), label="t"))


def test_a_table_sorts_by_numbers_and_shows_no_value_as_a_dash() -> None:
    none = Estimate(value=None, low=None, high=None, n=0, confidence=0.95, method="wilson")
    half = Estimate(value=0.5, low=0.25, high=0.75, n=8, confidence=0.95, method="wilson")
    made = laid((1_000, half, Reworded(text="x", value=3)), (None, none, Reworded(text="y", value=-1)))
    assert [cell["data-by"] for cell in made.named("td")] == ["1000", "0.5", "3", "", "", "-1"]
    said = ["c0", "c1", "c2", "1,000", "50%", "[25–75]", "n=8", "x", "-", "-", "y"]
    assert made.told[: len(said)] == said
    assert made.told[len(said) :] == [
        "What these numbers mean", "[low–high]", "95% interval, wilson; n is what the number was computed from",
    ]  # fmt: skip
    assert grid(Table(name="t", title="t", columns=(Column(name="a"),), rows=()), [("a", "a")]) is None


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0, "0%"), (1.0, "100%"), (0.5, "50%"), (0.0004, "<0.1%"), (0.004, "0.4%"), (0.0994, "9.9%"), (0.0999, "10%"),
        (0.9996, ">99.9%"), (0.994, "99.4%"), (0.9001, "90%"), (None, "unknown"),
    ],
)  # fmt: skip
def test_a_share_near_the_ends_is_never_rounded_onto_them(share: float | None, said: str) -> None:
    assert rounded_percent(share) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(12.25, "12.2"), (99.96, "100"), (123.4, "123"), (999.6, "1,000"), (-999.6, "-1,000"), (1234.5, "1,234")],
)
def test_an_amount_is_reported_on_the_page_as_in_the_terminal(value: float, said: str) -> None:
    steps = Estimate(value=value, low=value, high=None, n=4, confidence=0.95, method="exponential")
    assert laid((steps,), unit="steps").told[1] == f"{said} steps"
    assert quantity(steps, "steps").split()[0] == said


def test_an_end_that_the_data_do_not_bound_is_open_and_units_are_said() -> None:
    steps = Estimate(value=12.25, low=3.5, high=None, n=4, confidence=0.9, method="exponential")
    made = laid((UnitEstimate(estimate=steps, unit="steps"),))
    assert made.told[:4] == ["c0", "12.2 steps", "[3.5–…]", "n=4"]
    assert made.named("span")[0]["title"] == "90% interval, exponential, n = 4"
    assert laid((steps,), unit="score").told[:4] == ["c0", "12.2", "[3.5–…]", "n=4"]


@pytest.mark.parametrize(("cause", "opens"), [("the 1st refund call by main times out", True), ("a passage is missing", False)])
def test_a_finding_opens_the_run_under_its_own_schedule(cause: str, opens: bool) -> None:
    verdict = SimpleNamespace(contract="refund.once", step=3)
    traced = Traced(
        name="", records=(), verdict=verdict, item="test_refund",  # type: ignore[arg-type]
        schedule=(("the 1st refund call by main times out", 2, 4),),
    )  # fmt: skip
    found = SimpleNamespace(item="test_refund", test="", contract="refund.once", step=3, causes=(cause,))
    assert _is_trace_of(found, traced) is opens  # type: ignore[arg-type]

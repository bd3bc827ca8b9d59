from __future__ import annotations

import json

import pytest

from mat.core.curve import ScheduleResult
from mat.measure.robustness import CurveRow, curves
from mat.report import words
from mat.report.build import curve_metrics
from mat.report.document import Document
from mat.report.markdown import in_markdown
from mat.report.robustness import tables
from mat.report.terminal import in_text
from mat.report.to_json import as_data


def result(cost, success=True, *broken):
    return ScheduleResult(cost=cost, success=success, broken=broken)


def row(item, category, *, bound=8, fails_at=None, chains=()):
    executed = (result(0), *(() if fails_at is None else (result(fails_at, True, "pay.once"),)))
    return CurveRow(item=item, category=category, budget=8, bound=bound, executed=executed, chains=chains)


def table(found):
    return in_text([each for each in tables(found) if each.brief], width=words.WIDTH)


def markdown(found):
    return in_markdown(tables(found))


@pytest.fixture
def searched():
    chains = ((result(0), result(4, True, "pay.once")), (result(0), result(5), result(8)))
    return curves(
        [
            row("a", "refunds", fails_at=4, chains=chains),
            row("b", "refunds", chains=chains[1:]),
            row("c", "mail", bound=5, chains=chains[1:]),
        ]
    )


def test_a_terminal_shows_three_budgets_and_the_area_of_each_category_and_kind(searched):
    assert table([each for each in searched if each.measure == "compliance"]).splitlines() == [
        "Robustness: no hard contract broken within budget B (<=: at most; not everything was searched)",
        "category  schedules    R(0)               R(4)               R(8)                 area",
        "mail      random       100% [21-100] n=1  100% [21-100] n=1  100% [21-100] n=1    100% [21-100] n=1",
        "mail      adversarial  100% [21-100] n=1  100% [21-100] n=1  <= 100% [0-100] n=1  <= 100% [0-100] n=1",
        "refunds   random       100% [34-100] n=2  75% [9-100] n=2    75% [9-100] n=2      88% [9-100] n=2",
        "refunds   adversarial  100% [34-100] n=2  50% [9-91] n=2     50% [9-91] n=2       75% [9-100] n=2",
        "all       random       100% [44-100] n=3  83% [21-100] n=3   83% [21-100] n=3     92% [21-100] n=3",
        "all       adversarial  100% [44-100] n=3  67% [21-94] n=3    <= 67% [6-94] n=3    <= 83% [21-100] n=3",
    ]


def test_what_was_searched_to_the_end_has_no_sign_of_an_upper_bound():
    unknown = CurveRow(
        item="c", category="unjudged", budget=8, bound=8, executed=(ScheduleResult(cost=0, success=None, unjudged=True),)
    )
    text = table(curves([row("a", "mail", chains=((result(0),),)), row("b", "refunds", fails_at=4), unknown]))
    assert "<=" not in text
    assert "Robustness: no hard contract broken within budget B\n" in text


def test_a_measure_nothing_is_known_of_has_no_table_and_a_category_without_data_a_dash():
    unjudged = ScheduleResult(cost=0, success=None)
    found = curves([CurveRow(item="a", category="x", budget=4, bound=4, executed=(unjudged,))])
    assert [part.title.partition(" within")[0] for part in tables(found)] == ["Robustness: no hard contract broken"]
    chained = CurveRow(item="b", category="y", budget=4, bound=4, executed=(result(0),), chains=((result(0),),))
    lines = table(curves([CurveRow(item="a", category="x", budget=4, bound=4, executed=(result(0),)), chained])).splitlines()
    assert lines[2].split() == ["x", "random", "-", "-", "-", "-"]


def test_a_single_item_is_reported_by_its_line_among_the_items_unless_chains_say_more():
    alone = [row("a", "mail", fails_at=4)]
    assert table(curves(alone)) == ""
    assert "R(8)" in markdown(curves(alone))
    assert "R(8)" in table(curves([*alone, row("b", "mail")]))
    assert "random" in table(curves([row("a", "mail", chains=((result(0),),))]))


def test_a_small_budget_shows_each_of_its_points_once():
    for budget, shown in ((0, ["R(0)"]), (1, ["R(0)", "R(1)"]), (7, ["R(0)", "R(3)", "R(7)"])):
        (part,) = tables([each for each in curves([row("a", "")], budget=budget) if each.measure == "success"])
        assert [column.name for column in part.columns] == ["category", "schedules", *shown, "area"]


def test_the_data_hold_every_point_with_its_interval(searched):
    data = as_data(Document(curves=searched))["curves"]
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert [(each["category"], each["measure"], each["kind"]) for each in data][-4:] == [
        ("all", "success", "random"), ("all", "success", "adversarial"),
        ("all", "compliance", "random"), ("all", "compliance", "adversarial"),
    ]  # fmt: skip
    found, curve = data[-1], searched[-1]
    assert list(found) == ["category", "kind", "measure", "points", "area", "last"]
    assert [point["budget"] for point in found["points"]] == list(range(9))
    for point, said in zip(curve.points, found["points"], strict=True):
        estimate = point.estimate
        assert (said["value"], said["low"], said["high"], said["n"]) == (estimate.value, estimate.low, estimate.high, 3)
        assert said["proven"] is (point.budget <= 5)
    assert (found["area"]["value"], found["area"]["proven"]) == (curve.area.value, False)
    assert (found["last"]["value"], found["last"]["proven"]) == (2 / 3, False)
    assert {point["proven"] for point in data[-2]["points"]} == {None}


def test_the_scalars_have_names_for_all_items_and_for_each_category(searched):
    found = {metric.name: metric.estimate for metric in curve_metrics(searched)}
    assert len(found) == 3 * 2 * 2 * 2
    assert found["robustness.adversarial.compliance.area"] == searched[-1].area
    assert found["robustness.adversarial.compliance.last"].value == 2 / 3
    assert found["robustness.random.compliance.last[refunds]"].value == 0.75
    assert found["robustness.random.success.area[mail]"].n == 1


def test_every_line_of_a_terminal_table_fits(searched):
    text = table(searched)
    assert max(len(line) for line in text.splitlines()) <= words.WIDTH
    assert text.count("adversarial") == text.count("random") == 6


def test_markdown_is_escaped():
    found = curves([row("a", "<b>|x|", fails_at=4)])
    assert "<b>" not in markdown(found)
    assert "&lt;b&gt;\\|x\\|" in markdown(found)


def test_a_category_cannot_write_control_characters_to_a_terminal():
    found = curves([row("a", "mail\x1b[31m"), row("b", "mail\x1b[31m")])
    assert "\x1b" not in table(found)
    assert "\x1b" not in "".join(metric.name for metric in curve_metrics(found))


def test_nothing_known_is_nothing_shown():
    assert (table(()), markdown(()), curve_metrics(()), tables(())) == ("", "", (), ())

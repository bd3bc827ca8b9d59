from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mat.core.campaign import Certificate
from mat.core.codec import decode, encode
from mat.core.curve import ScheduleResult
from mat.core.errors import SpecError
from mat.measure import robustness
from mat.measure.bootstrap import expanded
from mat.measure.interval import wilson
from mat.measure.robustness import CurveRow, curve_row, curves


def life(cost, success=True, *broken, unjudged=False):
    return ScheduleResult(cost=cost, success=success, broken=broken, unjudged=unjudged)


def row(item="a", category="", budget=8, bound=8, executed=(), chains=()):
    return CurveRow(item=item, category=category, budget=budget, bound=bound, executed=tuple(executed), chains=tuple(chains))


def curve(rows, kind="adversarial", measure="success", category="all", **options):
    found = [each for each in curves(rows, **options) if (each.kind, each.measure, each.category) == (kind, measure, category)]
    assert len(found) == 1
    return found[0]


def values(found):
    return [point.estimate.value for point in found.points]


# -- adversarial ----------------------------------------------------------------------------------------------------------


def test_the_worst_executed_schedule_within_each_budget_counts():
    rows = [
        row("robust", executed=[life(0), life(4), life(8)]),
        row("brittle", executed=[life(0), life(6, False), life(4), life(8)]),
    ]
    found = curve(rows)
    assert values(found) == [1, 1, 1, 1, 1, 1, 0.5, 0.5, 0.5]
    assert [point.budget for point in found.points] == list(range(9))
    assert found.last.estimate.value == 0.5
    assert found.area.value == pytest.approx((6 * 1 + 2 * 0.5) / 8)
    assert all(point.proven for point in found.points)
    for point in found.points:
        expected = wilson(2 if point.budget < 6 else 1, 2)
        assert (point.estimate.low, point.estimate.high, point.estimate.n) == (expected.low, expected.high, 2)


def test_success_and_compliance_are_two_curves():
    rows = [row(executed=[life(0), life(4, False), life(5, True, "pay.once")])]
    assert values(curve(rows, measure="success")) == [1, 1, 1, 1, 0, 0, 0, 0, 0]
    assert values(curve(rows, measure="compliance")) == [1, 1, 1, 1, 1, 0, 0, 0, 0]


def test_an_item_that_fails_undisturbed_fails_at_every_budget():
    found = curve([row(executed=[life(0, False), life(4)])])
    assert values(found) == [0] * 9
    assert (found.area.value, found.last.estimate.value) == (0, 0)


def test_what_was_not_searched_to_the_end_is_an_upper_bound_and_its_interval_reaches_down():
    rows = [
        row("done", executed=[life(0), life(8)]),
        row("open", bound=5, executed=[life(0), life(8)]),
        row("witness", bound=-1, executed=[life(0, False)]),
    ]
    found = curve(rows)
    assert values(found) == [2 / 3] * 9
    assert [point.proven for point in found.points] == [True] * 6 + [False] * 3  # a failure that was seen needs no proof
    assert found.at(5).estimate == wilson_over(2, 3)
    assert (found.at(6).estimate.low, found.at(6).estimate.high) == (wilson(1, 3).low, wilson(2, 3).high)
    assert found.at(6).estimate.method == "wilson over items, unproven items fail at the low end"
    assert found.area_proven is False
    assert found.area.low < curve([row("done", executed=[life(0)]), row("w", executed=[life(0, False)])]).area.value


def wilson_over(successes, n):
    found = wilson(successes, n)
    return type(found)(
        value=found.value, low=found.low, high=found.high, n=n, confidence=found.confidence, method="wilson over items"
    )


def test_nothing_proven_leaves_the_low_end_at_nothing():
    found = curve([row(str(number), bound=-1, executed=[life(0)]) for number in range(20)])
    assert {(point.estimate.value, point.estimate.low, point.proven) for point in found.points} == {(1.0, 0.0, False)}


def test_what_could_not_be_judged_proves_nothing_from_its_cost_on():
    found = curve([row(executed=[life(0), life(4, unjudged=True)])], measure="compliance")
    assert values(found) == [1] * 9
    assert [point.proven for point in found.points] == [True] * 4 + [False] * 5


costs = st.integers(0, 8)
result = st.builds(
    ScheduleResult,
    cost=costs,
    success=st.sampled_from([True, False, None]),
    broken=st.sampled_from([(), ("a",)]),
    unjudged=st.booleans(),
)


def chains_of(links):
    return st.lists(links, max_size=4).map(lambda found: (life(0), *sorted(found, key=lambda each: each.cost)))


chain = chains_of(result)
judged = chains_of(st.builds(ScheduleResult, cost=costs, success=st.booleans(), broken=st.sampled_from([(), ("a",)])))
some_rows = st.lists(
    st.builds(
        lambda item, category, certificate, executed, chains: curve_row(
            item=item, category=category, budget=8, certificate=certificate, executed=executed, chains=chains
        ),
        st.sampled_from("abcdef"), st.sampled_from(["", "x", "y", "all"]),
        st.builds(Certificate, proven=st.booleans(), bound=costs), st.lists(result, max_size=6), st.lists(chain, max_size=3),
    ),
    max_size=6,
)  # fmt: skip


@pytest.mark.full
@settings(max_examples=60, deadline=None)
@given(some_rows, st.randoms(use_true_random=False))
def test_curves_are_bounded_nested_and_do_not_depend_on_the_order_of_rows(rows, random):
    found = curves(rows)
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert curves(shuffled) == found
    for each in found:
        estimates = [*(point.estimate for point in each.points), each.area]
        assert len({estimate.n for estimate in estimates}) == 1
        for estimate in estimates:
            if estimate.n == 0:
                assert (estimate.value, estimate.low, estimate.high) == (None, None, None)
            else:
                assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
        if each.kind == "adversarial" and each.area.n:
            for one, other in zip(each.points, each.points[1:], strict=False):
                assert one.estimate.value >= other.estimate.value
                assert one.estimate.low >= other.estimate.low
        if each.kind == "random":
            assert {point.proven for point in each.points} == {None}


@pytest.mark.full
@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(judged, min_size=1, max_size=3), min_size=1, max_size=5))
def test_the_worst_is_never_better_than_what_random_schedules_came_to(chained):
    rows = [
        curve_row(item=str(number), budget=8, certificate=None, executed=(), chains=each) for number, each in enumerate(chained)
    ]
    for measure in ("success", "compliance"):
        worst, drawn = curve(rows, "adversarial", measure), curve(rows, "random", measure)
        assert all(one <= other for one, other in zip(values(worst), values(drawn), strict=True))


@settings(deadline=None)
@given(st.lists(result, max_size=12), costs)
def test_a_row_of_the_frontier_gives_the_curves_of_all_lives(executed, bound):
    small = curve_row(item="a", budget=8, certificate=Certificate(proven=True, bound=bound), executed=executed)
    assert len(small.executed) <= 6
    assert curves([small]) == curves([row(bound=bound, executed=executed)])


def test_a_row_travels_as_data():
    made = curve_row(
        item="a", category="c", budget=8, certificate=Certificate(proven=True, bound=7),
        executed=[life(0), life(4, False, "x", "y")], chains=[(life(0), life(4, None, unjudged=True))],
    )  # fmt: skip
    assert decode(CurveRow, encode(made)) == made
    assert made.bound == 7
    assert curve_row(item="a", budget=8, certificate=Certificate(proven=False, bound=7), executed=[]).bound == -1
    assert curve_row(item="a", budget=8, certificate=None, executed=[]).bound == -1


# -- random ---------------------------------------------------------------------------------------------------------------


def test_a_chain_stands_for_its_longest_part_within_the_budget():
    chains = [(life(0), life(4, False), life(8)), (life(0), life(5), life(7, False))]
    found = curve([row(executed=[life(0)], chains=chains)], "random")
    assert values(found) == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0, 0.5]
    assert found.area.value == pytest.approx((4 + 3 * 0.5) / 8)
    assert found.last.estimate.value == 0.5
    assert found.last.proven is None


def test_items_weigh_alike_however_many_chains_they_have():
    many = row("many", chains=[(life(0), life(4, False))] * 9)
    one = row("one", chains=[(life(0), life(4))])
    assert values(curve([many, one], "random"))[-1] == 0.5


def test_what_could_not_be_judged_counts_neither_way():
    chains = [(life(0), life(4, None)), (life(0), life(4, False)), (life(0), life(4))]
    assert values(curve([row(chains=chains)], "random"))[-1] == 0.5
    unknown = [(life(0, None), life(4, None))]
    found = curve([row("a", chains=unknown), row("b", chains=chains)], "random")
    assert (values(found)[-1], found.last.estimate.n) == (0.5, 1)


def test_several_rows_of_an_item_are_one_item():
    rows = [row("a", executed=[life(0), life(4, False)]), row("a", executed=[life(0)]), row("b", executed=[life(0)])]
    found = curve(rows)
    assert (found.last.estimate.value, found.last.estimate.n) == (0.75, 2)


def test_there_are_random_curves_only_where_there_are_chains():
    assert {each.kind for each in curves([row(executed=[life(0)])])} == {"adversarial"}
    with_chains = [row("a", "x", executed=[life(0)], chains=[(life(0),)]), row("b", "y", executed=[life(0)])]
    assert {each.kind for each in curves(with_chains)} == {"random", "adversarial"}
    nothing = curve(with_chains, "random", category="y")
    assert (nothing.area.value, nothing.area.low, nothing.area.n) == (None, None, 0)
    assert {point.estimate.n for point in nothing.points} == {0}


# -- categories, range, errors --------------------------------------------------------------------------------------------


def test_each_category_has_its_curves_and_all_comes_last():
    rows = [
        row("a", "refund", executed=[life(0), life(4, False)]),
        row("b", "mail", executed=[life(0)]),
        row("c", "mail", executed=[life(0)]),
        row("d", "", executed=[life(0), life(4, False)]),
    ]
    assert [each.category for each in curves(rows) if each.measure == "success"] == ["mail", "refund", "all"]
    assert values(curve(rows, category="mail"))[-1] == 1
    assert values(curve(rows, category="refund"))[-1] == 0
    assert values(curve(rows))[-1] == 0.5
    assert [curve(rows, category=name).area.n for name in ("mail", "refund", "all")] == [2, 1, 4]


def test_a_category_called_all_is_no_category_of_its_own():
    rows = [row("a", "all", executed=[life(0)]), row("b", "mail", executed=[life(0), life(4, False)])]
    assert [each.category for each in curves(rows) if each.measure == "success"] == ["mail", "all"]
    assert curve(rows).area.n == 2


def test_where_nothing_is_known_nothing_is_proven():
    found = curve([row(executed=[life(0, None)])])
    assert {(point.estimate.n, point.estimate.value, point.proven) for point in found.points} == {(0, None, False)}
    assert found.area_proven is False


def test_curves_end_where_the_shortest_search_ended():
    rows = [row("long", budget=12, executed=[life(0), life(10, False)]), row("short", budget=6, bound=6, executed=[life(0)])]
    assert curve(rows).largest == 6
    assert curve(rows, budget=3).largest == 3
    assert len(curve(rows, budget=0).points) == 1
    assert curve(rows, budget=0).area.value == 1
    with pytest.raises(SpecError, match=r"is larger than the budget that was searched for short \(6\)"):
        curves(rows, budget=7)
    with pytest.raises(SpecError, match="budget=-1 is negative; confidence=2"):
        curves(rows, budget=-1, confidence=2)
    with pytest.raises(SpecError, match="the curve has no point at budget 7"):
        curve(rows).at(7)


def test_no_rows_give_no_curves_and_rows_without_a_life_count_for_nothing():
    assert curves([]) == ()
    assert curves([row()]) == ()
    assert curve([row("a", executed=[life(0)]), row("b", budget=2)]).largest == 8


def test_an_item_without_an_undisturbed_life_takes_no_part():
    found = curve([row("a", executed=[life(4, False)]), row("b", executed=[life(0)])])
    assert (found.area.n, values(found)[-1]) == (1, 1)


# -- intervals ------------------------------------------------------------------------------------------------------------


def chained(answers, cost=4):
    """Chains of one item, each of one perturbation, which fails or does not."""
    return [(life(0), life(cost, answer)) for answer in answers]


def test_the_method_is_named_and_the_bootstrap_is_the_same_each_time():
    few = curve([row(str(item), chains=chained([True, item > 1])) for item in range(5)], "random")
    many = [row(str(item), chains=chained([True, item > 3])) for item in range(12)]
    assert few.last.estimate.method == "wilson over items, as if binary"
    assert curve(many, "random").last.estimate.method == "percentile bootstrap over items, expanded, guarded"
    assert curve(many, "random").at(0).estimate.method == "wilson over items"
    assert curve(many, "random") == curve(many[::-1], "random")
    equal = [row(str(item), chains=chained([True, False])) for item in range(12)]
    estimate = curve(equal, "random").last.estimate
    assert (estimate.low, estimate.high) == (wilson(6, 12).low, wilson(6, 12).high)  # equal resamples would claim certainty


def test_a_higher_confidence_gives_a_wider_interval():
    rows = [row(str(item), chains=chained([True, item % 3 > 0, item % 4 > 1])) for item in range(15)]
    widths = []
    for confidence in (0.5, 0.9, 0.99, 0.9999):
        estimate = curve(rows, "random", confidence=confidence).last.estimate
        assert estimate.confidence == confidence
        widths.append(estimate.high - estimate.low)
    assert widths == sorted(set(widths))


def even(random):
    return random.random()


def mostly_robust(random):
    return 1.0 if random.random() < 0.75 else 0.5


def alike(random):
    return 0.8


MEANS = {even: 0.5, mostly_robust: 0.875, alike: 0.8}


def coverage(population, items, interval, times=300, chains=5):
    """How often the interval holds the mean of the population that items are drawn from."""
    random, held = Random(20_26), 0
    for _ in range(times):
        shares = [population(random) for _ in range(items)]
        drawn = [[random.random() < share for _ in range(chains)] for share in shares]
        low, high = interval(drawn)
        held += low <= MEANS[population] <= high
    return held / times


def of_curve(drawn):
    rows = [row(f"{item:03}", budget=1, chains=chained(answers, cost=1)) for item, answers in enumerate(drawn)]
    estimate = curve(rows, "random").last.estimate
    return estimate.low, estimate.high


def as_if_chains_were_items(drawn):
    answers = [answer for each in drawn for answer in each]
    estimate = wilson(sum(answers), len(answers))
    return estimate.low, estimate.high


@pytest.mark.nightly
@pytest.mark.parametrize("population", [even, mostly_robust, alike])
@pytest.mark.parametrize("items", [4, 10, 25])
def test_random_curves_cover_at_their_rate(monkeypatch, population, items):
    monkeypatch.setattr(robustness, "RESAMPLES", 999)
    assert coverage(population, items, of_curve) >= 0.92


def test_taking_chains_of_an_item_as_independent_would_fail_that_test():
    assert coverage(even, 25, as_if_chains_were_items) < 0.85


@pytest.mark.full
@pytest.mark.parametrize("searched", [1.0, 0.5, 0.0])
def test_adversarial_curves_cover_what_a_whole_search_would_give(monkeypatch, searched):
    """Items fall at a cost of 0 to 14; searches prove only a part, and see a fall only if they went that far."""
    monkeypatch.setattr(robustness, "RESAMPLES", 999)
    random, held, times = Random(7), [0, 0, 0], 150
    truth = [sum(fall > budget for fall in range(15)) / 15 for budget in range(9)]
    for _ in range(times):
        rows = []
        for item in range(12):
            fall = random.randrange(15)
            reach = 8 if random.random() < searched else random.randrange(-1, 8)
            executed = [life(0, fall > 0), *([life(fall, False)] if fall <= max(0, reach) else [])]
            rows.append(row(str(item), bound=reach, executed=executed))
        found = curve(rows)
        area = sum(truth[:8]) / 8
        for index, (estimate, true) in enumerate(
            ((found.at(4).estimate, truth[4]), (found.last.estimate, truth[8]), (found.area, area))
        ):
            held[index] += estimate.low <= true <= estimate.high
    assert min(held) / times >= 0.92


@pytest.mark.full
def test_areas_of_random_curves_cover_at_their_rate(monkeypatch):
    monkeypatch.setattr(robustness, "RESAMPLES", 999)
    random, held, times = Random(3), 0, 200
    true = (4 + 4 * 0.5) / 8  # undisturbed up to a cost of 4, then a share that is even over items
    for _ in range(times):
        shares = [random.random() for _ in range(15)]
        rows = [row(str(item), chains=chained(random.random() < share for _ in range(4))) for item, share in enumerate(shares)]
        area = curve(rows, "random").area
        held += area.low <= true <= area.high
    assert held / times >= 0.92


def test_the_level_is_that_of_a_t_interval():
    """For normal resampled means the expanded percentiles are the t interval with the unbiased spread."""
    from scipy.stats import norm, t

    n, confidence = 12, 0.95
    reach = norm.ppf((1 + expanded(n, confidence)) / 2) / n**0.5  # in plug-in standard deviations
    assert reach * ((n - 1) / n) ** 0.5 == pytest.approx(t.ppf(0.975, n - 1) / n**0.5)


def test_adversarial_curves_of_whole_items_do_not_import_scipy():
    code = (
        "import sys; from mat.core.curve import ScheduleResult; from mat.measure.robustness import *; "
        "r = [CurveRow(item=str(i), budget=4, bound=4, executed=(ScheduleResult(cost=0, success=True),)) for i in range(20)]; "
        "assert curves(r)[0].area.n == 20; sys.exit('scipy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_sums_are_exact():
    thirds = [(life(0), life(4, False)), (life(0), life(4)), (life(0), life(4))]
    found = curve([row(str(item), budget=4, chains=thirds) for item in range(3)], "random")
    assert found.last.estimate.value == float(Fraction(2, 3))

"""The gate: its statistics under continuous looking, and each aspect caught by its own line and by no other."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.core.campaign import Counterexample, Stability
from mat.core.codec import decode, encode
from mat.core.errors import SpecError
from mat.measure import gate
from mat.measure.gate import (
    ASPECTS,
    Baseline,
    ExcludedRuns,
    GateEvidence,
    GatePlan,
    GateRules,
    ReplayEnd,
    SmokeTest,
    Unrun,
    judge,
    next_seeds,
    with_tolerances,
)
from mat.measure.noninferiority import decision, difference, further, units_of
from mat.measure.paired import PairTable
from mat.measure.paired import difference as newcombe
from mat.measure.regression import RunOutcome
from mat.measure.rows import DecisionRow
from mat.report.gate import gate_blocks, gate_data
from mat.report.markdown import gate_summary as gate_markdown
from mat.report.terminal import blocks_in_text

TOLERANCE, ALPHA = Fraction(1, 20), Fraction(1, 40)
CAMPAIGNS, UNITS = 200, 300


def gate_text(found, *, baseline):
    return blocks_in_text(gate_blocks(found, baseline=baseline))


def units(lost: int, alike: int, gained: int = 0) -> dict[Fraction, int]:
    """Units of one pair each."""
    counts = {Fraction(-1): lost, Fraction(0): alike, Fraction(1): gained}
    return {value: count for value, count in counts.items() if count}


def table(lost: int, alike: int, gained: int = 0) -> PairTable:
    return PairTable(both=alike, only_old=lost, only_new=gained, neither=0)


# -- the statistics ---------------------------------------------------------------------------------------------------


@cache
def by_betting(counts: tuple[tuple[Fraction, int], ...]) -> str:
    return decision(dict(counts), TOLERANCE, ALPHA)


def by_newcombe(counts: tuple[tuple[Fraction, int], ...]) -> str:
    """The decision by an interval that is made for one look, of units of one pair."""
    found = dict(counts)
    said = newcombe(table(found.get(Fraction(-1), 0), found.get(Fraction(0), 0), found.get(Fraction(1), 0)))
    assert said.low is not None
    assert said.high is not None
    return "kept" if said.low > -TOLERANCE else "lost" if said.high < -TOLERANCE else ""


def exactly(lost: float, method=by_betting) -> tuple[dict[str, float], float]:
    """Probabilities to end kept, lost and open, and units taken on average, with a look after every unit.

    Units are lost with probability `lost`, or do not differ; no simulation: all numbers of losses are followed at once.
    """
    ends, taken = {"kept": 0.0, "lost": 0.0, "": 0.0}, 0.0
    going = {0: 1.0}
    for n in range(1, UNITS + 1):
        after: dict[int, float] = {}
        for losses, chance in going.items():
            after[losses] = after.get(losses, 0.0) + chance * (1 - lost)
            after[losses + 1] = after.get(losses + 1, 0.0) + chance * lost
        taken += sum(going.values())
        going = {}
        for losses, chance in after.items():
            said = method(tuple(units(losses, n - losses).items()))
            if said:
                ends[said] += chance
            elif chance > 1e-12:
                going[losses] = chance
    ends[""] = sum(going.values())
    return ends, taken


def test_at_the_tolerance_each_answer_comes_no_more_often_than_stated_though_one_looks_after_every_seed():
    ends, _ = exactly(0.05)
    assert 0 < ends["kept"] <= ALPHA
    assert 0 < ends["lost"] <= ALPHA


def test_an_interval_for_a_fixed_number_of_pairs_does_not_hold_when_one_looks_after_every_pair():
    ends, _ = exactly(0.05, by_newcombe)
    assert ends["kept"] > 2 * ALPHA


@pytest.mark.parametrize(
    ("lost", "said", "least", "most"),
    [(0.0, "kept", 1.0, 83), (0.005, "kept", 0.97, 140), (0.1, "lost", 0.8, 200), (0.3, "lost", 1.0, 30)],
)
def test_what_is_clear_is_decided_with_a_part_of_the_seeds_that_are_allowed(lost, said, least, most):
    ends, taken = exactly(lost)
    assert ends[said] >= least - 1e-9
    assert taken <= most < UNITS


def one_test(lost: float, gained: float):
    """A seed of one test that loses and gains at these rates."""

    def draw(stream: Random) -> Fraction:
        drawn = stream.random()
        return Fraction(-1 if drawn < lost else 1 if drawn < lost + gained else 0)

    return draw


def several_tests(*lost: float):
    """A seed of several tests that lose at these rates, each by its own draw."""

    def draw(stream: Random) -> Fraction:
        return Fraction(-sum(stream.random() < rate for rate in lost), len(lost))

    return draw


def campaigns(draw) -> tuple[dict[str, float], float]:
    """Shares of campaigns that end kept, lost and open, and seeds taken on average; a look after every seed."""
    stream, ends, taken = Random(1), {"kept": 0, "lost": 0, "": 0}, 0
    for _ in range(CAMPAIGNS):
        counts: dict[Fraction, int] = {}
        said = ""
        while not said and sum(counts.values()) < UNITS:
            drawn = draw(stream)
            counts[drawn] = counts.get(drawn, 0) + 1
            said = by_betting(tuple(sorted(counts.items())))
        ends[said] += 1
        taken += sum(counts.values())
    return {said: count / CAMPAIGNS for said, count in ends.items()}, taken / CAMPAIGNS


CHANCE = 2 * (float(ALPHA) / CAMPAIGNS) ** 0.5
"""What a share of campaigns may lie above ALPHA by chance."""


@pytest.mark.nightly
@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(one_test(0.06, 0.01), id="losses and gains"),
        pytest.param(several_tests(0.1, 0.0), id="one bad test of two"),
        pytest.param(several_tests(0.05, 0.05), id="two tests apart from each other"),
    ],
)
def test_simulated_campaigns_at_the_tolerance_are_decided_no_more_often_than_stated(draw):
    ends, _ = campaigns(draw)
    assert ends["kept"] <= ALPHA + CHANCE
    assert ends["lost"] <= ALPHA + CHANCE


def test_tests_that_are_not_alike_may_be_units_of_their_own_where_they_share_nothing():
    """One bad test of five, looked at after each round of all five: the mean over them is what is judged."""
    stream, passed = Random(1), 0
    for _ in range(CAMPAIGNS):
        lost = alike = 0
        said = ""
        while not said and lost + alike < UNITS:
            bad = stream.random() < 0.25
            lost, alike = lost + bad, alike + 5 - bad
            said = by_betting(tuple(units(lost, alike).items()))
        passed += said == "kept"
    assert passed / CAMPAIGNS <= ALPHA + CHANCE


def test_more_tests_that_fail_apart_from_each_other_need_fewer_seeds():
    _, alone = exactly(0.02)
    ends, together = campaigns(several_tests(0.02, 0.02, 0.02))
    assert together < 0.75 * alone
    assert ends["kept"] > 0.9


def test_83_units_without_a_loss_are_the_fewest_that_pass_at_five_percent_and_seven_losses_fail():
    assert [decision(units(0, n), TOLERANCE, ALPHA) for n in (82, 83)] == ["", "kept"]
    assert [decision(units(n, 0), TOLERANCE, ALPHA) for n in (6, 7)] == ["", "lost"]


VALUES = st.fractions(-1, 1, max_denominator=5)
COUNTS = st.dictionaries(VALUES, st.integers(1, 120), min_size=1, max_size=4)
SHARES = st.fractions(Fraction(1, 100), Fraction(1, 2), max_denominator=100)


@pytest.mark.full
@settings(deadline=None, max_examples=60)
@given(COUNTS, SHARES)
def test_the_exact_rule_agrees_with_the_interval(counts, tolerance):
    found = difference(counts)
    assert -1 <= found.low <= found.value <= found.high <= 1
    if min(abs(found.low + tolerance), abs(found.high + tolerance)) < 1e-9:
        return  # closer than floats can tell
    expected = "kept" if found.low > -tolerance else "lost" if found.high < -tolerance else ""
    assert decision(counts, tolerance, ALPHA) == expected


@settings(deadline=None, max_examples=30)
@given(COUNTS)
def test_swapping_the_sides_turns_the_interval_round(counts):
    found, turned = difference(counts), difference({-value: count for value, count in counts.items()})
    assert (turned.low, turned.high) == (pytest.approx(-found.high, abs=1e-9), pytest.approx(-found.low, abs=1e-9))


@settings(deadline=None, max_examples=60)
@given(st.tuples(st.integers(0, 8), st.integers(0, 200), st.integers(0, 8)), st.sampled_from([Fraction(1, 20), Fraction(1, 8)]))
def test_as_many_further_units_as_it_says_decide_and_one_less_does_not(counts, tolerance):
    lost, alike, gained = counts
    more = further(units(*counts), tolerance, ALPHA)
    assert more is not None
    assert decision(units(lost, alike + more, gained), tolerance, ALPHA) == "kept"
    assert not more or decision(units(lost, alike + more - 1, gained), tolerance, ALPHA) != "kept"


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([-1, 0, 1])), max_size=40))
def test_units_are_the_means_of_their_pairs_in_whatever_order_they_come(pairs):
    found = units_of(pairs)
    assert sum(found.values()) == len({unit for unit, _ in pairs})
    assert units_of(reversed(pairs)) == found
    assert units_of([("one", -1), ("one", 0), ("two", 1)]) == {Fraction(-1, 2): 1, Fraction(1): 1}


@pytest.mark.parametrize(("tolerance", "alpha"), [(Fraction(1), ALPHA), (Fraction(0), ALPHA), (TOLERANCE, Fraction(0))])
def test_what_is_no_share_is_refused(tolerance, alpha):
    with pytest.raises(SpecError):
        decision(units(0, 1), tolerance, alpha)


# -- the judgement ----------------------------------------------------------------------------------------------------

TESTS = ("test_a.py::test_one", "test_a.py::test_two", "test_b.py::test_three", "test_b.py::test_four", "test_c.py::test_five")
SEEDS = 100
REPLAY = "test_a.py::test_one[replay-3f2a91]"
FAULT = "service.lost_ack at clerk/service:refund#1"
BLOCKED = DecisionRow(site="clerk/service:refund#1", impact="high", decision="block")


def outcome(item: str, seed: int = 0, **facts) -> RunOutcome:
    base = RunOutcome(
        item=item, condition="nominal", seed=seed, schedule="", cost=0, success=True, outcome="pass", broken=(), steps=4,
        armed=("refund.once",), decisions=(BLOCKED,),
    )  # fmt: skip
    return replace(base, **facts)


def replayed(**facts) -> RunOutcome:
    return outcome(TESTS[0], condition="replay", schedule=FAULT, cost=4, faults=2, contained=2, **facts)


OLD = Baseline(
    categories={item: "tool use" if "test_a" in item else "planning" for item in TESTS},
    statuses={REPLAY: "replayed"},
    outcomes=(*(outcome(item, seed) for item in TESTS for seed in range(SEEDS)), replayed()),
)
PLAN = GatePlan(
    smoke=tuple(SmokeTest(item=item, category=OLD.categories[item], seeds=tuple(range(SEEDS))) for item in TESTS),
    replays=(REPLAY,),
)
SAME = GateEvidence(seeds=SEEDS, outcomes=OLD.outcomes, replays=(ReplayEnd(id=REPLAY, status="replayed"),))
RULES = GateRules(tolerances=with_tolerances({}))
BY_SEED = replace(RULES, unit="seed")


def but(change, evidence: GateEvidence = SAME) -> GateEvidence:
    """The evidence with each outcome as `change` makes it; what gives None stays."""
    return replace(evidence, outcomes=tuple(change(one) or one for one in evidence.outcomes))


def verdicts(
    evidence: GateEvidence, rules: GateRules = RULES, baseline: Baseline = OLD, plan: GatePlan = PLAN
) -> dict[str, str]:
    return {line.aspect: line.verdict for line in judge(baseline, plan, evidence, rules).lines}


def on(test: str, seeds: range, **facts):
    return lambda one: replace(one, **facts) if one.item == test and one.seed in seeds and not one.schedule else None


def in_replay(**facts):
    return lambda one: replace(one, **facts) if one.schedule else None


def test_a_change_that_changes_nothing_passes_in_every_aspect():
    found = judge(OLD, PLAN, SAME, RULES)
    assert found.passed
    assert {line.verdict for line in found.lines} == {"kept"}
    assert found.settled
    assert (found.line("success").table.pairs, found.line("success").difference.n) == (500, 500)
    assert (found.line("governance").table.pairs, found.line("governance").difference.n) == (501, 501)


LOOSER = replace(BLOCKED, decision="allow")
PLANTED = {
    "success": but(lambda one: replace(one, success=False) if one.seed % 3 == 0 and not one.schedule else None),
    "compliance": but(on(TESTS[2], range(1), outcome="fail", broken=("refund.once",))),
    "containment": but(in_replay(contained=1)),
    "governance": but(on(TESTS[3], range(7, 8), decisions=(LOOSER,))),
    "replays": replace(SAME, replays=(ReplayEnd(id=REPLAY, status="violated", why="refunded twice"),)),
    "replay_success": but(in_replay(success=False)),
}


@pytest.mark.parametrize("aspect", ASPECTS)
def test_a_planted_regression_is_caught_by_its_own_line_alone(aspect):
    found = judge(OLD, PLAN, PLANTED[aspect], RULES)
    assert found.failures == (aspect,)
    assert {line.aspect: line.verdict for line in found.lines} == {
        name: "lost" if name == aspect else "kept" for name in ASPECTS
    }
    assert found.line(aspect).lost[0].why


def test_a_decision_loosened_in_a_replay_is_caught_too():
    assert verdicts(but(in_replay(decisions=(LOOSER,))))["governance"] == "lost"


@pytest.mark.parametrize(
    "evidence",
    [
        pytest.param(
            but(on(TESTS[0], range(SEEDS), decisions=(replace(BLOCKED, impact="low", decision="block"),))), id="label"
        ),
        pytest.param(but(on(TESTS[0], range(SEEDS), armed=("refund.once", "one.more"))), id="one more contract"),
        pytest.param(but(on(TESTS[0], range(SEEDS), decisions=())), id="the action is not proposed any more"),
        pytest.param(but(on(TESTS[0], range(SEEDS), steps=9)), id="other steps"),
        pytest.param(but(in_replay(faults=3, contained=3)), id="one more fault, contained"),
    ],
)
def test_near_misses_are_silent(evidence):
    assert judge(OLD, PLAN, evidence, RULES).passed


def test_a_stricter_decision_and_a_gained_success_are_no_loss():
    old = replace(OLD, outcomes=but(on(TESTS[0], range(3), success=False, decisions=(LOOSER,))).outcomes)
    found = judge(old, PLAN, SAME, RULES)
    assert found.passed
    assert (found.line("success").table.only_new, found.line("governance").table.only_old) == (3, 0)


def test_an_action_whose_impact_is_lowered_while_it_is_let_through_counts_as_high():
    lowered = replace(BLOCKED, impact="low", decision="allow")
    assert verdicts(but(on(TESTS[0], range(1), decisions=(lowered,))))["governance"] == "lost"


def test_a_contract_that_judges_no_more_is_not_kept_unless_the_change_waives_it_by_name():
    evidence = but(on(TESTS[0], range(SEEDS), armed=()))
    found = judge(OLD, PLAN, evidence, RULES)
    assert found.failures == ("compliance",)
    assert found.line("compliance").lost[0].why == "no longer judged by refund.once"
    assert judge(OLD, PLAN, evidence, replace(RULES, waived=frozenset({"refund.once"}))).passed
    assert not judge(OLD, PLAN, evidence, replace(RULES, waived=frozenset({"refund.twice"}))).passed


def test_a_contract_that_cannot_be_judged_any_more_is_not_kept():
    found = judge(OLD, PLAN, but(on(TESTS[0], range(1), outcome="unknown")), RULES)
    assert found.line("compliance").lost[0].why == "a contract could not be judged"


@pytest.mark.full
def test_one_lost_test_is_found_among_many_good_ones_that_would_hide_it():
    many, seeds = tuple(f"test_many.py::test_{number}" for number in range(120)), tuple(range(100))
    old = Baseline(
        categories=dict.fromkeys(many, ""), statuses={},
        outcomes=tuple(outcome(name, seed, decisions=()) for name in many for seed in seeds),
    )  # fmt: skip
    plan = GatePlan(smoke=tuple(SmokeTest(item=name, category="", seeds=seeds) for name in many))
    evidence = GateEvidence(seeds=100, outcomes=tuple(replace(one, success=one.item != many[7]) for one in old.outcomes))
    line = judge(old, plan, evidence, RULES).line("success")
    assert line.difference.low > -TOLERANCE
    assert line.verdict == "lost"
    assert [item.item for item in line.items if item.alone] == [many[7]]


def test_a_few_losses_within_the_tolerance_pass_and_are_listed():
    found = judge(OLD, PLAN, but(on(TESTS[0], range(2), success=False)), RULES)
    assert found.passed
    assert [(pair.item, pair.seed) for pair in found.line("success").lost] == [(TESTS[0], 0), (TESTS[0], 1)]
    assert not found.line("success").items[0].alone


def test_the_unit_is_the_seed_unless_runs_are_said_to_share_nothing():
    few = replace(SAME, outcomes=tuple(one for one in SAME.outcomes if one.seed < 20))
    by_seed, by_run = (judge(OLD, PLAN, few, replace(RULES, unit=unit)).line("success") for unit in ("seed", "run"))
    assert (by_seed.difference.n, by_seed.verdict, by_seed.needed) == (20, "undecided", 63)
    assert (by_run.difference.n, by_run.verdict) == (100, "kept")


FEW = replace(SAME, outcomes=tuple(one for one in SAME.outcomes if one.seed < 20))


def test_too_few_pairs_are_undecided_which_fails_in_words_of_its_own_and_passes_on_request():
    found = judge(OLD, PLAN, FEW, BY_SEED)
    assert found.failures == ("success",)
    assert found.line("success").verdict == "undecided"
    assert found.line("success").needed == 83 - 20
    text = gate_text(found, baseline="old.json")
    assert "The gate fails. Undecided: success." in text
    undecided = (
        "20 seeds do not decide a tolerance of 5%; 63 more seeds without a loss would decide it (in all, 163\n"
        "    seeds of each test, in the baseline too)"
    )
    assert undecided in text
    assert judge(OLD, PLAN, FEW, replace(BY_SEED, undecided="pass")).passed


def test_noise_outside_of_the_seeds_leaves_an_aspect_undecided_with_the_chance_and_the_number_that_it_takes():
    def noisy(one: RunOutcome) -> RunOutcome | None:  # a tenth fails then, another tenth now
        return replace(one, success=False) if one.item == TESTS[0] and one.seed % 10 == 3 else None

    before = but(noisy, SAME).outcomes
    now = but(lambda one: replace(one, success=False) if one.item == TESTS[0] and one.seed % 10 == 7 else None)
    plan = replace(PLAN, smoke=PLAN.smoke[:1])
    evidence = replace(now, outcomes=tuple(one for one in now.outcomes if one.item == TESTS[0] or one.condition == "replay"))
    found = judge(replace(OLD, outcomes=before), plan, evidence, RULES)
    line = found.line("success")
    assert (line.verdict, line.table.only_old, line.table.only_new) == ("undecided", 10, 10)
    assert line.chance == pytest.approx(0.27, abs=0.05)
    text = " ".join(gate_text(found, baseline="old.json").split())
    assert "20 pairs of 100 differ; an unchanged system whose pairs differ as often passes with a probability of 2" in text
    assert "%; for a probability of 80%, run " in text
    assert "seeds of each test, in the baseline too" in text


def test_few_runs_are_compared_with_several_executions_which_count_only_where_nothing_differs():
    old = replace(OLD, outcomes=tuple(one for one in OLD.outcomes if one.seed < 2))
    plan = gate.plan(old, tests=TESTS, replays={}, least=RULES.least)
    assert (RULES.least, len(plan.smoke), plan.executions) == (59, 5, 6)
    times = tuple(one for one in SAME.outcomes if one.seed < 2) * plan.executions
    assert judge(old, plan, GateEvidence(seeds=2, outcomes=times), RULES).line("success").verdict == "kept"
    assert (
        judge(old, plan, GateEvidence(seeds=2, outcomes=times[: len(times) // 2]), RULES).line("success").verdict == "undecided"
    )
    wrong = (*times[:-1], replace(times[-1], success=False))
    line = judge(old, plan, GateEvidence(seeds=2, outcomes=wrong), RULES).line("success")
    assert (line.verdict, line.table.pairs) == ("undecided", 10)
    broken = (*times[:-1], replace(times[-1], outcome="fail"))  # a tolerance of 0: any execution decides
    assert judge(old, plan, GateEvidence(seeds=2, outcomes=broken), RULES).line("compliance").verdict == "lost"


def test_a_regression_fails_even_where_the_undecided_may_pass():
    evidence = replace(FEW, outcomes=tuple(replace(one, success=False) for one in FEW.outcomes))
    assert "success" in judge(OLD, PLAN, evidence, replace(RULES, undecided="pass")).failures


@pytest.mark.full
def test_replays_that_were_broken_before_are_no_loss_and_new_or_stale_ones_that_break_are():
    old = replace(OLD, statuses={REPLAY: "violated", "test_a.py::test_two[replay-aaaaaa]": "replayed"})
    still = replace(SAME, replays=(ReplayEnd(id=REPLAY, status="violated"),))
    assert verdicts(still, baseline=old)["replays"] == "kept"
    stale = replace(SAME, replays=(ReplayEnd(id="test_a.py::test_two[replay-aaaaaa]", status="stale"),))
    assert verdicts(stale, baseline=old)["replays"] == "lost"
    new = replace(SAME, replays=(ReplayEnd(id="test_a.py::test_two[replay-bbbbbb]", status="violated"),))
    found = judge(old, PLAN, new, RULES)
    assert found.line("replays").lost[0].why == "violated (new)"


def test_containment_is_judged_where_both_runs_met_faults_and_success_where_both_were_judged():
    assert verdicts(but(in_replay(faults=0, contained=0)))["containment"] == "nothing"
    unjudged = judge(OLD, PLAN, but(on(TESTS[0], range(SEEDS), success=None)), RULES)
    assert unjudged.line("success").table.pairs == 400


def test_a_baseline_of_which_nothing_is_left_to_run_does_not_pass():
    gone = GatePlan(removed_tests=TESTS, removed_replays=(REPLAY,), emptied=("planning", "tool use"))
    found = judge(OLD, gone, GateEvidence(), RULES)
    assert found.failures == ("success", "compliance", "replays", "removed")
    assert "no run of the baseline can be compared" in gate_text(found, baseline="old.json")
    assert judge(Baseline(categories={}, statuses={}, outcomes=()), GatePlan(), GateEvidence(), RULES).failures == ("empty",)


@pytest.mark.full
def test_a_test_that_gives_no_run_fails_and_one_that_is_skipped_where_removals_do():
    broken = replace(SAME, unrun=(Unrun(item=TESTS[0], why="its setup failed", skipped=False),))
    assert judge(OLD, PLAN, broken, RULES).failures == ("unrun",)
    skipped = replace(SAME, unrun=(Unrun(item=TESTS[0], why="it was skipped", skipped=True),))
    listed = replace(RULES, removed="list")
    assert judge(OLD, PLAN, skipped, listed).passed
    assert "Without a run on each seed\n  test_a.py::test_one: it was skipped" in gate_text(
        judge(OLD, PLAN, skipped, listed), baseline="x"
    )
    assert judge(OLD, PLAN, skipped, RULES).failures == ("unrun",)
    assert judge(OLD, replace(PLAN, removed_replays=("x",)), SAME, RULES).failures == ("removed",)


# -- the plan ---------------------------------------------------------------------------------------------------------


@mat.tool(effect="write", impact="high")
def refund(order: str) -> str:
    return order


@mat.tool
def look(order: str) -> str:
    return order


def found_by(calls: list[str]) -> Counterexample:
    never = [
        mat.step_contract(on="tool_call", id=f"no.{name}")(lambda record, name=name: record.action.name != name)
        for name in ("refund", "look")
    ]
    with mat.run(never, task="test_a.py::test_one") as run:
        for name in calls:
            {"refund": refund, "look": look}[name]("A7")
    assert run.result is not None
    return Counterexample(verdict=run.result.failures[0], run=run.result, stability=Stability(runs=1, reproduced=1))


def test_the_plan_takes_passing_tests_by_category_on_the_baselines_seeds_and_names_all_it_leaves():
    failing = "test_d.py::test_failing"
    old = replace(
        OLD,
        categories={**OLD.categories, failing: "tool use", "test_e.py::test_gone": "misuse", "test_f.py::test_far": ""},
        outcomes=(
            *OLD.outcomes, outcome(failing, success=False), outcome("test_e.py::test_gone"), outcome("test_f.py::test_far"),
        ),
    )  # fmt: skip
    replays = {"r1": found_by(["look"]), "r2": found_by(["refund", "look"])}
    found = gate.plan(
        old, tests=[*TESTS, failing, "test_a.py::test_new"], replays=replays, broken=["b"], smoke=1, seeds=3,
        there=lambda item: "test_f" in item,
    )  # fmt: skip
    assert [(test.item, test.category, test.seeds) for test in found.smoke] == [
        ("test_b.py::test_four", "planning", (0, 1, 2)),
        ("test_a.py::test_one", "tool use", (0, 1, 2)),
    ]
    assert (found.replays, found.left_out, found.new_replays, found.broken) == (("r2",), ("r1",), ("r1", "r2"), ("b",))
    assert (found.new_tests, found.removed_tests) == (("test_a.py::test_new",), ("test_e.py::test_gone",))
    assert (found.removed_replays, found.elsewhere) == ((REPLAY,), ("test_f.py::test_far",))
    assert found.emptied == ("", "misuse")
    every = gate.plan(old, tests=[*TESTS, failing], replays=replays, smoke=None, all_replays=True)
    assert {test.item for test in every.smoke} == {*TESTS, failing}
    assert every.replays == ("r1", "r2")
    assert every.seeds == SEEDS


@pytest.mark.full
def test_rounds_double_stop_at_a_judgement_and_do_not_look_beyond_where_one_is_possible():
    def at(seeds: int, change=lambda one: None, rules=BY_SEED) -> int:
        outcomes = tuple(one for one in SAME.outcomes if one.seed < seeds)
        return next_seeds(judge(OLD, PLAN, but(change, replace(SAME, seeds=seeds, outcomes=outcomes)), rules))

    assert [at(4), at(16), at(64), at(83)] == [16, 64, 83, 83]  # 83 are the first that decide where nothing is lost
    assert [at(seeds, rules=RULES) for seeds in (4, 16, 64, 100)] == [16, 64, 100, 100]  # a test of a fixed number
    assert at(4, on(TESTS[0], range(1), success=False)) == 8  # slower where a loss may be found soon
    assert at(4, on(TESTS[0], range(1), outcome="fail")) == 4  # lost: nothing more is asked
    assert at(60, on(TESTS[0], range(60), success=False)) == 60


def test_a_test_under_suspicion_alone_keeps_the_gate_from_passing_early():
    names, seeds = tuple(f"t.py::test_{number}" for number in range(40)), tuple(range(100))
    old = Baseline(
        categories=dict.fromkeys(names, ""),
        statuses={},
        outcomes=tuple(outcome(n, s, decisions=()) for n in names for s in seeds),
    )
    plan = GatePlan(smoke=tuple(SmokeTest(item=name, category="", seeds=seeds) for name in names))

    def at(seeds: int, lost: int) -> gate.Gate:
        rows = [
            replace(one, success=not (one.item == names[0] and one.seed < lost)) for one in old.outcomes if one.seed < seeds
        ]
        return judge(old, plan, GateEvidence(seeds=seeds, outcomes=tuple(rows)), BY_SEED)

    assert at(90, 0).settled
    assert at(90, 8).line("success").verdict == "kept"
    assert at(90, 8).line("success").items[0].suspect
    assert not at(90, 8).settled


# -- how it is reported ------------------------------------------------------------------------------------------------


def test_plan_and_evidence_come_back_from_json_as_they_were():
    assert decode(GatePlan, encode(PLAN), where="") == PLAN
    assert decode(GateEvidence, encode(SAME), where="") == SAME


def test_the_json_has_every_line_and_all_that_was_not_judged():
    plan = replace(PLAN, new_tests=("n",), removed_tests=("r",), elsewhere=("e",), left_out=("l",))
    evidence = replace(PLANTED["governance"], apart=(ExcludedRuns(item="a", reason="model timeout", runs=2),))
    data = gate_data(judge(OLD, plan, evidence, RULES), baseline="old.json")
    assert (data["passed"], data["failures"], data["baseline"]) == (False, ["governance", "removed"], "old.json")
    line = next(line for line in data["lines"] if line["aspect"] == "governance")
    assert line["verdict"] == "lost"
    assert line["lost"] == [{"item": TESTS[3], "seed": 7, "schedule": "", "why": f"{BLOCKED.site}: block -> allow"}]
    assert {name: data["plan"][name] for name in ("new_tests", "removed_tests", "elsewhere", "left_out")} == {
        "new_tests": ["n"], "removed_tests": ["r"], "elsewhere": ["e"], "left_out": ["l"],
    }  # fmt: skip
    assert data["apart"] == [{"item": "a", "reason": "model timeout", "runs": 2}]
    assert data["lines"][0]["tolerance"] == 0.05


@pytest.mark.parametrize("render", [gate_text, gate_markdown])
def test_both_renderings_say_what_was_lost_and_what_is_new_removed_or_elsewhere(render):
    plan = replace(
        PLAN, new_tests=("new",), removed_tests=("gone",), removed_replays=("lost",), elsewhere=("far",), emptied=("",)
    )
    text = render(judge(OLD, plan, PLANTED["replays"], RULES), baseline="old.json")
    for said in ("fails. Lost: replays", "violated: refunded twice", "New tests", "new", "gone", "lost", "far", "category"):
        assert said in text
    assert "LOST" in text


def test_markdown_from_a_run_cannot_break_out_of_the_summary():
    evil = 'x](http://evil) <img src=1> | `"'
    evidence = replace(SAME, replays=(ReplayEnd(id=REPLAY, status="violated", why=evil),))
    text = gate_markdown(judge(OLD, PLAN, evidence, RULES), baseline="a|b")
    assert "<img" not in text
    assert "x\\](http" in text
    assert "a\\|b" in text


def test_many_losses_are_reported_by_test_with_the_first_of_each():
    found = judge(OLD, PLAN, PLANTED["success"], RULES)
    assert len(found.line("success").lost) > 10
    assert "test_a.py::test_one: 34 of 100 runs, worse on its own; first: seed 0: the task fails" in gate_text(
        found, baseline="old.json"
    )

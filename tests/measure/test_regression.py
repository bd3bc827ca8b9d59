from __future__ import annotations

import random
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.boundary.catalog import operator
from mat.boundary.effect import Raise
from mat.measure.interval import wilson
from mat.measure.paired import mcnemar
from mat.measure.regression import Comparison, RunOutcome, compare, outcome_of
from mat.measure.rows import DecisionRow, row_of, schedule_text

TIMEOUT = operator("service.timeout", lambda call, reply, stream: Raise("timeout"), grid=[{"magnitude": 1}])


def outcome(item: str = "t", *, good: bool = True, kept: str = "pass", **facts: object) -> RunOutcome:
    base = dict(
        condition="nominal", seed=0, schedule="", cost=0, success=good, outcome=kept, steps=3,
        broken=("c",) if kept == "fail" else (), armed=("c",), decisions=(),
    )  # fmt: skip
    return RunOutcome(item=item, **{**base, **facts})  # type: ignore[arg-type]


def decided(**decisions: str) -> tuple[DecisionRow, ...]:
    """site=decision; sites that begin with low are of low impact."""
    return tuple(
        DecisionRow(site=site, impact="low" if site.startswith("low") else "high", decision=decision)  # type: ignore[arg-type]
        for site, decision in decisions.items()
    )


def test_the_regression_rate_counts_lost_passes_among_old_passes_with_its_interval() -> None:
    old = [outcome("a"), outcome("b"), outcome("c"), outcome("d", good=False), outcome("e", kept="fail")]
    new = [outcome("a", good=False), outcome("b", kept="fail"), outcome("c"), outcome("d"), outcome("e", good=False)]
    found = compare(old, new)
    assert (found.passed.rate, found.passed.old, found.passed.new) == (wilson(2, 3), wilson(3, 5), wilson(2, 5))
    assert (found.success.rate, found.compliance.rate) == (wilson(2, 4), wilson(1, 4))
    assert [pair.item for pair in found.success.regressed] == ["a", "e"]
    assert [(pair.item, pair.why) for pair in found.compliance.regressed] == [("b", "breaks c")]
    assert [(pair.item, pair.why) for pair in found.passed.improved] == [("d", "the task fails")]
    assert found.passed.p_value == 1.0
    assert found.regressed


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.booleans()] * 4), min_size=1, max_size=30))
def test_rates_agree_with_their_definition(cases: list[tuple[bool, bool, bool, bool]]) -> None:
    old = [outcome(f"t{n}", good=case[0], kept="pass" if case[1] else "fail") for n, case in enumerate(cases)]
    new = [outcome(f"t{n}", good=case[2], kept="pass" if case[3] else "fail") for n, case in enumerate(cases)]
    random.Random(len(cases)).shuffle(new)
    found = compare(old, new)
    definitions = ((found.passed, (0, 1), (2, 3)), (found.success, (0,), (2,)), (found.compliance, (1,), (3,)))
    part: Comparison
    for part, before, after in definitions:
        had = [all(case[place] for place in before) for case in cases]
        has = [all(case[place] for place in after) for case in cases]
        lost = sum(one and not other for one, other in zip(had, has, strict=True))
        assert part.rate.n == sum(had)
        assert part.rate.value == (lost / sum(had) if any(had) else None)
        assert len(part.regressed) == lost
        assert len(part.improved) == sum(other and not one for one, other in zip(had, has, strict=True))
    assert found.regressed is bool(found.success.regressed or found.compliance.regressed)


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemars_exact_test_is_the_binomial_one(lost: int, gained: int) -> None:
    n = lost + gained
    if n == 0:
        assert mcnemar(lost, gained) is None
        return
    tail = sum(comb(n, k) for k in range(min(lost, gained) + 1)) / 2**n
    assert mcnemar(lost, gained) == pytest.approx(min(1.0, 2 * tail))
    assert mcnemar(lost, gained) == mcnemar(gained, lost)


def test_a_contract_that_could_not_be_judged_is_not_kept() -> None:
    found = compare([outcome()], [outcome(kept="unknown")])
    assert [pair.why for pair in found.compliance.regressed] == ["a contract could not be judged"]
    assert found.regressed


def test_equal_reports_have_no_regression_and_no_data_is_no_zero() -> None:
    found = compare([outcome()], [outcome()])
    assert (found.regressed, found.passed.p_value) == (False, None)
    never_passed = compare([outcome(good=False)], [outcome(good=False)])
    assert (never_passed.success.rate.value, never_passed.success.rate.n) == (None, 0)


def test_runs_are_matched_by_item_seed_and_schedule_and_the_rest_is_named() -> None:
    old = [outcome("a"), outcome("a", seed=1), outcome("gone", good=False)]
    new = [outcome("a", good=False), outcome("a", seed=2, good=False), outcome("new")]
    found = compare(old, new)
    assert (found.runs, found.items) == (1, 1)
    assert (found.only_old, found.only_new) == (("gone",), ("new",))
    assert (found.unmatched_old, found.unmatched_new) == (2, 2)
    assert len(found.success.regressed) == 1


def test_without_a_success_on_a_side_the_contracts_alone_are_compared() -> None:
    found = compare([outcome(success=None)], [outcome(good=False, kept="fail")])
    assert (found.unjudged, found.success.old.n, found.compliance.old.n) == (1, 0, 1)
    assert [pair.item for pair in found.compliance.regressed] == ["t"]


def test_faults_are_compared_only_where_they_are_asked_for() -> None:
    faulty = dict(condition="fault", schedule="s")
    old, new = [outcome(), outcome(**faulty)], [outcome(), outcome(good=False, **faulty)]
    assert not compare(old, new).regressed
    found = compare(old, new, under="faults")
    assert [(pair.schedule, pair.why) for pair in found.success.regressed] == [("s", "the task fails")]
    assert found.runs == 1


def test_a_replay_stands_before_the_same_schedule_met_in_a_search() -> None:
    replay = outcome(condition="replay", schedule="s", decisions=decided(pay="block"))
    search = outcome(condition="fault", schedule="s")
    new = outcome(condition="replay", schedule="s", decisions=decided(pay="allow"))
    for old in ([replay, search], [search, replay]):
        assert len(compare(old, [new], under="faults").high.changes) == 1
    assert compare([search], [new], under="faults").high.matched == 0  # a search keeps no decisions: nothing is compared
    assert compare([search], [new], under="faults").all_actions.only_new == 0


def test_the_table_of_decisions_has_nine_cells_and_tells_loosened_from_tightened() -> None:
    old = decided(a="allow", b="block", c="rewrite", d="block", low_e="block", gone="allow")
    new = decided(a="allow", b="allow", c="block", d="rewrite", low_e="allow", new="allow")
    found = compare([outcome(decisions=old)], [outcome(decisions=new)])
    cells = {(cell.old, cell.new): cell.count for cell in found.high.table}
    assert len(cells) == 9
    assert {key: count for key, count in cells.items() if count} == {
        ("allow", "allow"): 1, ("block", "allow"): 1, ("rewrite", "block"): 1, ("block", "rewrite"): 1,
    }  # fmt: skip
    assert (found.high.changed, found.high.loosened, found.high.tightened) == (wilson(3, 4), wilson(2, 4), wilson(1, 4))
    assert [change.site for change in found.high.changes if change.loosened] == ["b", "d"]
    assert (found.all_actions.matched, len(found.all_actions.changes)) == (5, 4)
    assert (found.high.only_old, found.high.only_new) == (1, 1)
    assert found.regressed


@pytest.mark.parametrize(
    ("site", "before", "after", "regressed"),
    [("pay", "block", "allow", True), ("pay", "allow", "block", False), ("low_pay", "block", "allow", False)],
)
def test_governance_regresses_where_it_lets_more_of_a_high_impact_action_happen(
    site: str, before: str, after: str, regressed: bool
) -> None:
    found = compare([outcome(decisions=decided(**{site: before}))], [outcome(decisions=decided(**{site: after}))])
    assert found.regressed is regressed
    assert len(found.all_actions.changes) == 1


def test_an_action_that_only_one_side_calls_high_counts_as_high() -> None:
    low = (DecisionRow(site="pay", impact="low", decision="allow"),)
    found = compare([outcome(decisions=decided(pay="block"))], [outcome(decisions=low)])
    assert [change.impact for change in found.high.changes] == ["high"]
    assert found.regressed


def test_contracts_that_are_not_armed_any_more_are_named() -> None:
    found = compare([outcome(armed=("a", "b"))], [outcome(armed=("b", "c"))])
    assert [(line.item, line.contracts) for line in found.disarmed] == [("t", ("a",))]


# -- from runs --------------------------------------------------------------------------------------------------------


@mat.tool(effect="write", impact="high")
def pay(amount: int) -> str:
    return "paid"


@mat.tool
def look() -> str:
    return "seen"


def block_pay(record: mat.Record) -> mat.policy.Block | None:
    return mat.policy.Block("too much") if record.action.name == "pay" else None


never_pay = mat.step_contract(on="tool_call", id="never.pay")(lambda record: record.action.name != "pay")


def row(condition: str = "nominal", **options: object) -> RunOutcome:
    with mat.run([never_pay], task="t.py::test", operators=[TIMEOUT], **options) as run:  # type: ignore[arg-type]
        mat.claim("no boundary is crossed here")
        for call in (look, lambda: pay(3), lambda: pay(4)):
            try:
                call()
            except (mat.Blocked, TimeoutError):
                mat.mitigate("block")
    assert run.result is not None
    return outcome_of(row_of(run.result, item="t.py::test", condition=condition))  # type: ignore[arg-type]


def test_a_run_keeps_what_became_of_each_proposed_action_by_site() -> None:
    found = row(governance=mat.policy.Governance(rules=[block_pay], default="allow"))
    assert [(item.site, item.impact, item.decision) for item in found.decisions] == [
        ("main/service:look#1", "low", "allow"), ("main/service:pay#1", "high", "block"),
        ("main/service:pay#2", "high", "block"),
    ]  # fmt: skip
    assert [item.decision for item in row().decisions] == ["allow"] * 3
    assert (found.armed, found.broken, found.outcome) == (("never.pay",), ("never.pay",), "fail")


def test_runs_of_a_search_keep_no_decisions_and_name_their_schedule() -> None:
    schedule = [mat.spec.perturbation("service.timeout", "main/service:look#1", {"magnitude": 1}, cost=4)]
    found = row("fault", schedule=schedule)
    assert (found.decisions, found.armed, found.cost) == ((), (), 4)
    assert found.schedule == 'service.timeout{"magnitude":1} at main/service:look#1'
    dearer = [mat.spec.perturbation("service.timeout", "main/service:look#1", {"magnitude": 1}, cost=9)]
    assert row("fault", schedule=dearer).schedule == found.schedule
    assert row().schedule == ""


def test_a_long_schedule_is_reported_shortly_and_still_apart() -> None:
    texts = [
        schedule_text(mat.spec.schedule([mat.spec.perturbation("prompt.splice", "a/prompt:mail#1", {"text": "x" * 900 + end})]))
        for end in "ab"
    ]
    assert max(map(len, texts)) < 330
    assert texts[0] != texts[1]


def test_runs_under_another_governance_variant_are_compared_and_said() -> None:
    old = [outcome("a", variant="none"), outcome("b", variant="none"), outcome("c")]
    new = [outcome("a", variant="shield"), outcome("b", variant="none"), outcome("c", variant="shield")]
    assert compare(old, new).variants == ("none -> shield",)
    assert compare(new, new).variants == ()

"""Trust: the formula stays in its bounds and forgets; events move it; low trust shrinks, routes, mediates more strictly."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import mat
from mat.core.errors import SpecError
from mat.core.verdict import Violation
from mat.govern.mediator import NeedsApproval
from mat.govern.sandbox import sandbox
from mat.govern.trust import EVENTS, RAISING, UNITS, Level, Trust, TrustLedger, decayed, moved, route, units
from mat.temporal import action, always, eventually, tool_call

VALUES = st.integers(0, UNITS)
HALF_LIVES = st.integers(1, 10_000_000)


@given(value=VALUES, prior=VALUES, half_life=HALF_LIVES, elapsed=st.integers(0, 10**12))
def test_decay_stays_between_where_it_was_and_the_prior(value: int, prior: int, half_life: int, elapsed: int) -> None:
    after = decayed(value, elapsed=elapsed, prior=prior, half_life=half_life)
    assert min(value, prior) <= after <= max(value, prior)


@given(
    value=VALUES, prior=VALUES, half_life=st.integers(1, 10_000), elapsed=st.integers(0, 100_000), more=st.integers(0, 1_000)
)
def test_decay_never_goes_away_from_the_prior(value: int, prior: int, half_life: int, elapsed: int, more: int) -> None:
    sooner = decayed(value, elapsed=elapsed, prior=prior, half_life=half_life)
    later = decayed(value, elapsed=elapsed + more, prior=prior, half_life=half_life)
    assert abs(later - prior) <= abs(sooner - prior)


@given(value=VALUES, prior=VALUES, half_life=HALF_LIVES, times=st.integers(0, 20))
def test_the_distance_from_the_prior_halves_every_half_life_and_ends(
    value: int, prior: int, half_life: int, times: int
) -> None:
    after = decayed(value, elapsed=times * half_life, prior=prior, half_life=half_life)
    assert abs(after - prior) == abs(value - prior) >> times
    assert decayed(value, elapsed=14 * half_life, prior=prior, half_life=half_life) == prior


@given(distance=st.integers(1, UNITS), half_life=st.integers(1, 100_000), elapsed=st.integers(0, 500_000))
@example(distance=UNITS, half_life=100_000, elapsed=99_999)
def test_decay_is_the_stated_power_of_two_within_a_unit(distance: int, half_life: int, elapsed: int) -> None:
    after = decayed(distance, elapsed=elapsed, prior=0, half_life=half_life)
    exact = distance * math.pow(2, -elapsed / half_life)
    assert exact - 1.001 < after <= exact + 0.001


@given(low=VALUES, high=VALUES, prior=VALUES, half_life=st.integers(1, 1_000), elapsed=st.integers(0, 10_000))
def test_decay_keeps_the_order_of_two_agents(low: int, high: int, prior: int, half_life: int, elapsed: int) -> None:
    low, high = sorted((low, high))
    rates: dict[str, int] = dict(elapsed=elapsed, prior=prior, half_life=half_life)
    assert decayed(low, **rates) <= decayed(high, **rates)


@given(value=VALUES, weight=VALUES, up=st.booleans())
def test_an_event_moves_trust_its_own_way_and_never_out_of_bounds(value: int, weight: int, up: bool) -> None:
    after = moved(value, weight, up=up)
    assert 0 <= after <= UNITS
    assert after >= value if up else after <= value
    if weight and value not in (0, UNITS):
        assert after != value


@given(low=VALUES, high=VALUES, weight=VALUES, up=st.booleans())
def test_an_event_keeps_the_order_of_two_agents(low: int, high: int, weight: int, up: bool) -> None:
    low, high = sorted((low, high))
    assert moved(low, weight, up=up) <= moved(high, weight, up=up)


@given(
    events=st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 30)), max_size=40),
    prior=st.integers(0, 100),
    half_life=st.integers(1, 200),
    place=st.integers(0, 39),
)
def test_any_history_stays_in_bounds_and_one_more_good_event_never_lowers_trust(
    events: list[tuple[Any, int]], prior: int, half_life: int, place: int
) -> None:
    trust = Trust(prior=Fraction(prior, 100), half_life=half_life)

    def after(history: list[tuple[Any, int]]) -> int:
        ledger = trust.fresh()
        for event, pause in history:
            ledger._now += pause
            if event is not None:
                ledger._apply_event("a", event)
            assert 0 <= ledger.of("a", at=ledger._now) <= UNITS
        return ledger.of("a", at=ledger._now + 5)

    without = [*events[:place], (None, 0), *events[place:]]
    assert after([*events[:place], ("verified", 0), *events[place:]]) >= after(without) - 1  # a unit is lost in rounding
    assert after([*events[:place], ("blocked", 0), *events[place:]]) <= after(without) + 1


def test_old_merit_does_not_outweigh_one_hard_violation() -> None:
    ledger = Trust().fresh()
    for _ in range(1_000):
        ledger._apply_event("a", "clean_write")
    assert ledger.of("a", at=0) == UNITS
    ledger._apply_event("a", "hard_violation")
    assert ledger.of("a", at=0) == 6_000


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.1, 1_000), ("0.35", 3_500), (1, UNITS), (0, 0), (Fraction(1, 4), 2_500), (0.1 + 0.2, None), (-0.1, None),
        (1.1, None), ("much", None), (True, None), (0.00001, None), (float("nan"), None), (None, None),
    ],
)  # fmt: skip
def test_shares_are_read_exactly_or_refused(share: Any, expected: int | None) -> None:
    if expected is None:
        with pytest.raises(SpecError):
            units(share)
    else:
        assert units(share) == expected


def test_all_mistakes_in_a_formula_are_named_at_once_with_what_was_meant() -> None:
    with pytest.raises(SpecError) as raised:
        Trust(prior=2, half_life=0, weights={"block": 0.1, "blocked": 7}, start={"a": -1}, clock="days")  # type: ignore[arg-type]
    for part in (
        "prior is 2",
        "half_life=0",
        "'block'; did you mean 'blocked'",
        "weight of blocked is 7",
        "start of a",
        "clock=",
    ):
        assert part in str(raised.value)


def test_a_level_from_which_nothing_follows_is_refused() -> None:
    with pytest.raises(SpecError, match="it has no consequence: give keep="):
        Level(below=0.5)
    with pytest.raises(SpecError, match="did you mean 'approve'"):
        Level(below=0.5, high_impact="aprove")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="keep contains a rate"):
        Level(below=0.5, keep=[mat.policy.Capability(tool="refund", rates=(rate(3),))])


def rate(most: int) -> Any:
    from mat.govern.capability import rate

    return rate(most)


# -- what a run says ----------------------------------------------------------------------------------------------------


@mat.tool(effect="write", impact="high")
def refund(order: str = "A") -> str:
    return f"refunded {order}"


@mat.tool(effect="read")
def lookup(order: str = "A") -> dict[str, str]:
    return {"order": order, "owner": "Ann"}


@mat.step_contract(on="tool_call", id="no.b")
def no_b(record: mat.Record) -> bool:
    return record.action.arguments["order"] != "B"


@mat.step_contract(on="tool_call", id="soft.b", severity="soft")
def soft_b(record: mat.Record) -> bool:
    return record.action.arguments["order"] != "B"


def scores(body: Any, *contracts: Any, rules: tuple[Any, ...] = (), **options: Any) -> dict[str, int]:
    """Trust after a run, by agent, in units, without decay worth the name."""
    trust = Trust(half_life=10**9, prior=0.5)
    with mat.run(contracts, governance=mat.policy.Governance(rules=(*rules, trust), **options)) as run:
        body()
    assert run.result is not None
    return {agent: (units(share) + 5) // 10 * 10 for agent, share in trust.after(run.result).start.items()}  # rounding apart


def quietly(call: Any, *arguments: Any) -> None:
    try:  # noqa: SIM105
        call(*arguments)
    except mat.Blocked:
        pass


def test_clean_effects_raise_trust_and_writes_more_than_reads() -> None:
    assert scores(lookup) == {"main": 5_050}
    assert scores(refund) == {"main": 5_250}


def test_violations_lower_trust_by_their_severity_and_undo_no_merit_twice() -> None:
    assert scores(lambda: refund("B"), no_b) == {"main": 3_000}
    assert scores(lambda: refund("B"), soft_b) == {"main": 4_500}
    assert scores(lambda: refund("A"), no_b) == {"main": 5_250}


def test_a_violation_counts_against_the_agent_that_is_to_blame() -> None:
    @mat.trace_contract(start=-1, on="tool_call", id="blames")
    def blames(first: int, record: mat.Record) -> Any:
        if record.action.name == "refund":
            return record.step
        return mat.Violated("looked too late", step=first, state=-1) if first >= 0 else first

    def body() -> None:
        with mat.agent("clerk"):
            refund()
        with mat.agent("auditor"):
            lookup()

    assert scores(body, blames) == {"auditor": 5_050, "clerk": 3_150}


def test_blocks_and_rewrites_lower_trust_once_even_where_a_contract_blocks() -> None:
    assert scores(lambda: quietly(refund), rules=(lambda record: mat.policy.Block("no"),)) == {"main": 4_000}
    assert scores(refund, rules=(lambda record: mat.policy.Rewrite({"order": "C"}),)) == {"main": 4_750}
    gate = mat.step_contract(on="tool_call", id="gate", policy="block")(lambda record: record.action.arguments["order"] != "B")
    assert scores(lambda: quietly(refund, "B"), gate) == {"main": 3_000}


def test_a_check_speaks_of_the_agent_whose_result_it_was_made_on() -> None:
    def body() -> None:
        with mat.agent("clerk"):
            row = lookup()
        with mat.agent("auditor"):
            mat.verify("row", passed=False, supports=[row])

    assert scores(body) == {"clerk": 4_040}
    assert scores(lambda: mat.verify("something", passed=True)) == {"main": 5_500}


def test_a_rejected_approval_counts_once_against_the_agent_that_wanted_to_act() -> None:
    asks = (lambda record: NeedsApproval() if record.action.name == "refund" else None,)
    assert scores(lambda: quietly(refund), rules=asks, approver=lambda what, arguments: False) == {"main": 3_500}
    assert scores(lambda: quietly(refund), rules=asks, approver=lambda what, arguments: True) == {"main": 5_250}
    assert scores(lambda: mat.approval("refund"), approver=lambda what, arguments: False) == {"main": 3_500}


def test_a_call_that_failed_or_never_happened_is_no_merit() -> None:
    @mat.tool(effect="write")
    def broken() -> None:
        raise TimeoutError

    def body() -> None:
        with pytest.raises(TimeoutError):
            broken()

    assert scores(body) == {}


def test_what_an_episode_owed_at_its_end_counts_in_the_next() -> None:
    told = mat.contract(
        "told",
        always(tool_call("refund").implies(eventually(action("message", "user")))),
    )
    trust = Trust(prior=0.5, half_life=10**9, levels=(Level(below=0.4, high_impact="block"),))
    with mat.run([told], governance=mat.policy.Governance(rules=(trust,))) as run:
        assert run.recorder is not None
        with run.recorder.episode("one"):
            refund()
        with run.recorder.episode("two"):
            with pytest.raises(mat.Blocked, match=r"trust in main is 0\.315\d, below 0\.4000"):
                refund()
            mat.message("user", "no")
    assert 3_150 <= units(trust.after(run.result).start["main"]) < 3_160  # type: ignore[arg-type]


class Seen:
    """A rule that keeps what a run made of it."""

    def __init__(self, trust: Trust) -> None:
        self.trust, self.ledgers = trust, list[TrustLedger]()

    def fresh(self) -> TrustLedger:
        self.ledgers.append(self.trust.fresh())
        return self.ledgers[-1]

    def __call__(self, record: mat.Record) -> None: ...


@pytest.mark.parametrize("half_life", [1, 3, 50])
def test_trust_read_off_a_finished_run_is_the_trust_the_run_ended_with(half_life: int) -> None:
    told = mat.contract(
        "told",
        always(tool_call("refund").implies(eventually(action("message", "user")))),
    )
    seen = Seen(Trust(half_life=half_life))
    rules = (seen, lambda record: mat.policy.NeedsApproval() if record.action.arguments.get("order") == "C" else None)
    with mat.run([told, no_b], governance=mat.policy.Governance(rules=rules, approver=lambda what, arguments: False)) as run:
        assert run.recorder is not None
        for number, orders in enumerate(("AB", "C", "A")):
            with run.recorder.episode(str(number)), mat.agent(f"agent {number % 2}"):
                for order in orders:
                    quietly(refund, order)
                mat.verify("row", passed=number == 2, supports=[lookup()])
        refund("B")
    assert run.result is not None
    (ledger,) = seen.ledgers
    ended = ledger.values(step=len(run.result.records), at_ms=run.result.elapsed_ms)
    assert dict(seen.trust.after(run.result).start) == ended
    assert set(ended) == {"agent 0", "agent 1", "main"}


def test_trust_is_carried_to_the_next_run_as_a_value() -> None:
    trust = Trust(levels=(Level(below=0.45, high_impact="block"),))
    with mat.run([no_b], governance=mat.policy.Governance(rules=(trust,))) as run:
        refund("B")
    later = trust.after(run.result)  # type: ignore[arg-type]
    assert trust.start == {}
    with mat.run(governance=mat.policy.Governance(rules=(later,))) as run, pytest.raises(mat.Blocked):
        refund()
    with mat.run(governance=mat.policy.Governance(rules=(trust,))):
        assert refund() == "refunded A"


def test_an_agent_is_forgiven_as_time_goes_by() -> None:
    trust = Trust(half_life=60_000, clock="ms", start={"main": 0}, levels=(Level(below=0.5, high_impact="block"),))
    import time

    with mat.run(governance=mat.policy.Governance(rules=(trust,))):
        with pytest.raises(mat.Blocked, match=r"trust in main is 0\.0000"):
            refund()
        time.sleep(120)
        assert refund() == "refunded A"  # 0.7 * (1 - 1/4) = 0.525


def test_time_goes_forward_where_who_asked_first_ends_last() -> None:
    import asyncio

    @mat.tool(effect="write")
    async def work(seconds: int) -> None:
        await asyncio.sleep(seconds)

    async def body() -> None:
        await asyncio.gather(work(100), work(1))

    seen = Seen(Trust(clock="ms", prior=0.5))
    with mat.run(governance=mat.policy.Governance(rules=(seen,))):
        asyncio.run(body())
    assert [at for _, _, at in seen.ledgers[0].state()] == [100_000]


# -- what follows from it -----------------------------------------------------------------------------------------------


def under(level: Level, body: Any = refund, *, trust: str = "0.3", approver: Any = None) -> mat.Record:
    """The record of one call by an agent that is trusted so far."""
    policy = mat.policy.Governance(rules=(Trust(start={"main": trust}, levels=(level,)),), approver=approver)
    with mat.run(governance=policy) as run:
        quietly(body)
    return next(record for record in run.trace if record.action.kind == "tool_call")


def test_below_a_threshold_the_capability_set_shrinks_and_above_it_does_not() -> None:
    level = Level(below=0.5, keep=["lookup"])
    record = under(level)
    assert record.mediation is not None
    assert (record.mediation.decision, record.mediation.rule) == ("block", "trust")
    assert "trust in main is 0.3000, below 0.5000" in record.mediation.reason
    assert not under(level, lookup).blocked
    assert not under(level, trust="0.5").blocked
    assert under(Level(below=0.5, keep=[mat.policy.capability("refund", order={"Z"})])).blocked


def test_what_is_kept_never_widens_the_agents_own_set() -> None:
    trust = Trust(start={"main": 0}, levels=(Level(below=0.5, keep=["refund"]),))
    with (
        mat.run(governance=mat.policy.Governance(rules=(trust,), capabilities={"main": ["lookup"]})),
        pytest.raises(mat.Blocked),
    ):
        refund()


def test_actions_are_routed_to_the_verifier_and_not_to_the_runs_approver() -> None:
    asked = []

    def reviewer(what: str, arguments: Any) -> bool:
        asked.append((what, arguments["order"]))
        return True

    level = Level(below=0.5, verify=reviewer, verifier="reviewer")
    record = under(level, approver=lambda what, arguments: False)
    assert (record.effected, asked) == ("yes", [("refund", "A")])
    assert record.mediation is not None
    assert "trust in main is 0.3000" in record.mediation.reason
    assert under(Level(below=0.5, verify=lambda what, arguments: False), approver=lambda what, arguments: True).blocked
    assert under(level, lookup).mediation.approval == ""  # type: ignore[union-attr]
    assert under(Level(below=0.5, verify=reviewer, on="all"), lookup).mediation.approval != ""  # type: ignore[union-attr]


def test_high_impact_is_mediated_more_strictly_and_low_impact_is_not() -> None:
    assert under(Level(below=0.5, high_impact="block")).blocked
    assert not under(Level(below=0.5, high_impact="block"), lookup).blocked
    assert under(Level(below=0.5, high_impact="approve"), approver=lambda what, arguments: False).blocked
    assert not under(Level(below=0.5, high_impact="approve"), approver=lambda what, arguments: True).blocked
    assert under(Level(below=0.5, high_impact="approve")).blocked  # nobody to ask


def test_rules_of_a_level_are_added_and_what_they_change_is_recorded_with_the_trust() -> None:
    record = under(Level(below=0.5, rules=(lambda record: mat.policy.Rewrite({"order": "capped"}),)))
    assert record.executed == {"order": "capped"}
    assert record.mediation is not None
    assert record.mediation.reason == "trust in main is 0.3000, below 0.5000"
    assert under(Level(below=0.5, rules=(lambda record: "yes",))).blocked  # type: ignore[return-value, arg-type]
    assert under(Level(below=0.5, rules=(lambda record: 1 / 0,))).blocked  # type: ignore[return-value, arg-type]


def test_a_sandbox_answers_writes_and_lets_reads_through() -> None:
    from mat.govern.sandbox import StandIns

    level = Level(below=0.5, sandbox=StandIns(replies={"refund": lambda order: f"pretended {order}"}))
    record = under(level)
    assert (record.effected, record.invoked, record.observation.value) == ("no", 0, "pretended A")
    assert under(level, lookup).effected == "yes"


def test_levels_add_up_and_the_gravest_decision_holds() -> None:
    block, route_ = Level(below=0.9, high_impact="block"), Level(below=0.5, verify=lambda what, arguments: True)
    for levels in ((block, route_), (route_, block)):
        trust = Trust(start={"main": "0.3"}, levels=levels)
        with mat.run(governance=mat.policy.Governance(rules=(trust,))), pytest.raises(mat.Blocked, match=r"below 0\.9000"):
            refund()


def test_what_was_done_for_lack_of_trust_is_no_evidence_against_the_agent() -> None:
    trust = Trust(prior=0.3, half_life=10**9, levels=(Level(below=0.5, high_impact="block"),))
    with mat.run(governance=mat.policy.Governance(rules=(trust,))) as run:
        for _ in range(5):
            quietly(refund)
    assert trust.after(run.result).start == {}  # type: ignore[arg-type]


def test_what_a_sandbox_answers_is_no_evidence_and_what_another_rule_rewrites_is() -> None:
    trust = Trust(prior=0.3, half_life=10**9)
    elsewhere = mat.policy.Rewrite({"order": "B"}, "only B")

    def rewrites(record: mat.Record) -> mat.policy.Rewrite | None:
        return elsewhere if record.action.arguments["order"] == "A" else None

    found = []
    for rule in (sandbox("main"), rewrites):
        with mat.run(governance=mat.policy.Governance(rules=(rule, trust))) as run:
            refund("A")
        assert [record.mediation.decision for record in run.trace if record.mediation] == ["rewrite"]
        found.append(trust.after(run.result).start)
    assert found == [{}, {"main": Fraction(2851, UNITS)}]  # five hundredths down, and the least unit of decay up


def test_two_runs_under_one_policy_do_not_share_their_trust() -> None:
    governance = mat.policy.Governance(rules=(Trust(levels=(Level(below=0.5, high_impact="block"),)),))
    for _ in range(2):
        with mat.run([no_b], governance=governance):
            refund("B")
            with pytest.raises(mat.Blocked):
                refund("A")


def test_the_state_holds_what_the_future_depends_on() -> None:
    ledger = Trust(start={"b": 0.5, "a": 1}).fresh()
    assert isinstance(ledger, TrustLedger)
    assert ledger.state() == (("a", UNITS, 0), ("b", 5_000, 0))
    violation = Violation(contract="c", severity="hard", stage="effected", step=0, agent="a", role="", message="m")
    ledger.ended([violation])
    assert ledger.state() == (("a", 6_000, 0), ("b", 5_000, 0))


def test_a_route_needs_the_verifiers_yes_whatever_the_trust_is() -> None:
    answers = {True: "yes", False: "no"}
    for answer, effected in answers.items():
        rule = route(lambda what, arguments, answer=answer: answer)  # type: ignore[misc]
        with mat.run(governance=mat.policy.Governance(rules=(rule,))) as run:
            quietly(refund)
            lookup()
        found = {record.action.name: record for record in run.trace if record.action.kind == "tool_call"}
        assert (found["refund"].effected, found["lookup"].effected) == (effected, "yes")
        assert found["lookup"].mediation.approval == ""  # type: ignore[union-attr]


def test_every_event_has_a_weight_and_a_direction() -> None:
    assert set(RAISING) < set(EVENTS)
    ledger = Trust(prior=0.5).fresh()
    for event in EVENTS:
        ledger._scores.clear()
        ledger._apply_event("a", event)  # type: ignore[arg-type]
        assert (ledger.of("a", at=0) > 5_000) is (event in RAISING)

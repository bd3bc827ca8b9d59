"""Governance: capabilities, rules, approvals. It denies by default and fails closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import mat
from mat.core.errors import SpecError
from mat.govern.capability import capability_sets
from mat.govern.mediator import ConvertToApproval, NeedsApproval, Sandbox
from mat.temporal import action, eventually


def attempt(
    governance: mat.policy.Governance | None, *, contracts: Any = (), **arguments: Any
) -> tuple[list[dict[str, Any]], mat.Record]:
    """What reached the tool, and the record of the one call."""
    done: list[dict[str, Any]] = []

    @mat.tool(effect="write")
    def refund(order: str = "A", amount: int = 10) -> str:
        done.append({"order": order, "amount": amount})
        return "ok"

    with mat.run(contracts, governance=governance) as run:
        try:  # noqa: SIM105
            refund(**arguments)
        except mat.Blocked:
            pass
    return done, run.trace[0]


def allowed(*items: Any) -> mat.policy.Governance:
    return mat.policy.Governance(capabilities={"main": items})


@pytest.mark.parametrize(
    ("granted", "runs"),
    [
        (["refund"], True),
        ([], False),
        (["refun", "refund_all", "refund*", "Refund"], False),
        ([mat.policy.capability("refund", amount=(0, 10))], True),
        ([mat.policy.capability("refund", amount=(0, 9))], False),
        ([mat.policy.capability("refund", order={"A", "B"})], True),
        ([mat.policy.capability("refund", order={"AB"})], False),
        ([mat.policy.capability("refund", amount=lambda amount: amount % 2 == 0)], True),
        ([mat.policy.capability("refund", missing={1})], False),
        ([mat.policy.capability("refund", amount=(0, 9)), mat.policy.capability("refund", order={"A"})], True),
    ],
)
def test_a_declared_set_allows_what_it_names_exactly_and_nothing_else(granted: list[Any], runs: bool) -> None:
    done, record = attempt(allowed(*granted))
    assert bool(done) is runs
    assert record.effected == ("yes" if runs else "no")
    assert record.blocked is not runs


def test_a_boolean_is_no_number_in_a_range() -> None:
    assert attempt(allowed(mat.policy.capability("refund", amount=(0, 5))), amount=True)[0] == []


def test_an_agent_without_a_declared_set_may_do_nothing_unless_the_policy_says_so() -> None:
    done, record = attempt(mat.policy.Governance(capabilities={"other": []}))
    assert (done, record.mediation.rule) == ([], "default")
    assert "has no capability set" in record.mediation.reason
    assert attempt(mat.policy.Governance(capabilities={"other": []}, default="allow"))[0] == [{"order": "A", "amount": 10}]
    assert attempt(mat.policy.Governance(rules=(lambda record: None,)))[0] == [{"order": "A", "amount": 10}]


@pytest.mark.parametrize("wrong", ["A", b"A", 5])
def test_an_allow_list_that_would_match_by_containment_is_refused(wrong: Any) -> None:
    with pytest.raises(SpecError):
        mat.policy.capability("refund", order=wrong)
    with pytest.raises(SpecError):
        capability_sets({"main": "refund"})


def ruled(*rules: Any, **options: Any) -> mat.policy.Governance:
    return mat.policy.Governance(rules=rules, **options)


def test_a_blocked_action_is_recorded_as_attempted_and_never_reaches_the_tool() -> None:
    @mat.step_contract(on="tool_call", id="no.refund")
    def no_refund(record: mat.Record) -> bool:
        return record.action.name != "refund"

    done, record = attempt(ruled(lambda record: mat.policy.Block("not today")), contracts=[no_refund])
    assert done == []
    assert (record.effected, record.invoked, record.observation.error.kind) == ("no", 0, "blocked")  # type: ignore[union-attr]
    assert record.mediation is not None
    assert record.mediation.reason == "not today"
    assert mat.judge([record], [no_refund])[1][0].violations[0].stage == "attempted"


def test_a_rewrite_changes_what_runs_and_both_are_recorded() -> None:
    done, record = attempt(ruled(lambda record: mat.policy.Rewrite({"amount": 5})), order="B")
    assert done == [{"order": "B", "amount": 5}]
    assert record.action.arguments == {"order": "B", "amount": 10}
    assert record.executed == {"order": "B", "amount": 5}


def test_a_rewrite_that_only_changes_the_type_is_a_rewrite() -> None:
    done, record = attempt(ruled(lambda record: mat.policy.Rewrite({"amount": True})), amount=1)
    assert done[0]["amount"] is True
    assert record.mediation is not None
    assert record.mediation.decision == "rewrite"


def test_a_rewritten_action_is_judged_again_by_capabilities_and_by_rules() -> None:
    raise_it = ruled(lambda record: mat.policy.Rewrite({"amount": 500}))
    limits = {"main": [mat.policy.capability("refund", amount=(0, 100))]}
    assert attempt(mat.policy.Governance(rules=raise_it.rules, capabilities=limits))[0] == []

    def cap(record: mat.Record) -> Any:
        return mat.policy.Block("too much") if record.action.arguments["amount"] > 100 else None

    assert attempt(ruled(cap, *raise_it.rules))[0] == []


def test_a_rewrite_without_an_end_is_blocked() -> None:
    done, record = attempt(ruled(lambda record: mat.policy.Rewrite({"amount": record.action.arguments["amount"] + 1})))
    assert done == []
    assert record.blocked


@pytest.mark.parametrize(
    "rule", [lambda record: 1 / 0, lambda record: True, lambda record: "allow", lambda record: mat.policy.Allow]
)
def test_a_rule_that_crashes_or_returns_no_decision_blocks(rule: Any) -> None:
    assert attempt(ruled(rule))[0] == []


@pytest.mark.parametrize("rewrite", [{"amount": object()}, None, "x", {b"k": 2}])
def test_a_rewrite_that_cannot_be_recorded_blocks(rewrite: Any) -> None:
    done, record = attempt(ruled(lambda record: mat.policy.Rewrite(rewrite)))
    assert done == []
    assert record.blocked


@pytest.mark.parametrize(
    ("approver", "runs"),
    [
        (lambda what, arguments: True, True),
        (lambda what, arguments: False, False),
        (lambda what, arguments: "yes", False),
        (None, False),
    ],
)
def test_only_the_answer_true_of_the_runs_approver_approves(approver: Any, runs: bool) -> None:
    done, record = attempt(ruled(lambda record: mat.policy.NeedsApproval("refund"), approver=approver))
    assert bool(done) is runs
    assert record.blocked is not runs


def test_an_async_approver_is_awaited_in_async_code_and_refused_in_plain_code() -> None:
    async def approver(what: str, arguments: Any) -> bool:
        await asyncio.sleep(60)
        return bool(arguments["amount"] < 100)

    done = []

    @mat.tool(effect="write")
    async def wire(amount: int) -> None:
        done.append(amount)

    async def body() -> None:
        await wire(5)
        with pytest.raises(mat.Blocked):
            await wire(500)

    governance = ruled(lambda record: mat.policy.NeedsApproval(), approver=approver)
    with mat.run(governance=governance):
        asyncio.run(body())
    assert done == [5]
    with pytest.raises(SpecError, match="approver is async"):
        attempt(governance)


def test_a_blocking_contract_blocks_the_step_that_would_break_it() -> None:
    capped = mat.step_contract(on="tool_call", id="capped", policy="block")(
        lambda record: record.action.arguments["amount"] <= 10
    )
    assert attempt(None, contracts=[capped])[0] == [{"order": "A", "amount": 10}]
    done, record = attempt(None, contracts=[capped], amount=11)
    assert done == []
    assert record.mediation is not None
    assert record.mediation.rule == "capped"


def test_two_concurrent_actions_see_each_other_before_either_is_done() -> None:
    @mat.trace_contract(start=0, on="tool_call", id="one.at.most", policy="block")
    def one_at_most(count: int, record: mat.Record) -> Any:
        return mat.Violated("a second one") if count and not record.blocked else count + (not record.blocked)

    done = []

    @mat.tool(effect="write")
    async def wire(tag: str) -> None:
        await asyncio.sleep(1)
        done.append(tag)

    async def body() -> None:
        results = await asyncio.gather(wire("a"), wire("b"), return_exceptions=True)
        assert [type(item).__name__ for item in results] == ["NoneType", "Blocked"]

    with mat.run([one_at_most]):
        asyncio.run(body())
    assert done == ["a"]


def test_an_approved_rewrite_says_both_why_it_was_rewritten_and_that_it_was_approved() -> None:
    def cap(record: mat.Record) -> mat.policy.Rewrite | mat.policy.NeedsApproval | None:
        if record.action.arguments["amount"] > 50:
            return mat.policy.Rewrite({"amount": 50}, reason="capped")
        return mat.policy.NeedsApproval("refund")

    @mat.tool(effect="write", impact="high")
    def refund(order: str, amount: int) -> int:
        return amount

    governance = mat.policy.Governance(rules=(cap,), approver=lambda what, arguments: True)
    with mat.run(governance=governance) as run:
        assert refund("A", 900) == 50
    (mediation,) = [record.mediation for record in run.trace if record.action.kind == "tool_call"]
    assert mediation is not None
    assert (mediation.decision, mediation.reason) == ("rewrite", "capped; approved")


@pytest.mark.parametrize(
    "decision",
    [
        mat.policy.Block(5),  # type: ignore[arg-type]
        mat.policy.Rewrite({"amount": 1}, reason=None),  # type: ignore[arg-type]
        mat.policy.NeedsApproval(5),  # type: ignore[arg-type]
        mat.policy.NeedsApproval(approver=5),  # type: ignore[arg-type]
        NeedsApproval(reason=5),  # type: ignore[arg-type]
        ConvertToApproval(what=None),  # type: ignore[arg-type]
        Sandbox("reply", reason=b"x"),  # type: ignore[arg-type]
        type("Allow", (mat.policy.Allow,), {})(),
    ],
)
def test_a_malformed_decision_blocks_with_the_reason_in_the_trace(decision: Any) -> None:
    done, record = attempt(ruled(lambda record: decision, approver=lambda what, arguments: True))
    assert done == []
    assert record.mediation is not None
    assert record.mediation.reason.startswith("rule <lambda> returned")


class Watching:
    """A rule with a memory of its run."""

    def __init__(self) -> None:
        self.seen = 0

    def fresh(self) -> Watching:
        return Watching()

    def observe(self, record: mat.Record, verdict: Any) -> None:
        self.seen += 1
        if record.action.name == "poison":
            raise ZeroDivisionError

    def ended(self, violations: Any) -> None:
        self.seen += 100 * len(violations)

    def state(self) -> object:
        return self.seen

    def __call__(self, record: mat.Record) -> mat.policy.Block | None:
        return mat.policy.Block(f"seen {self.seen}") if self.seen >= 2 else None


def test_a_rule_with_a_memory_has_a_new_one_for_each_run_and_sees_each_sealed_record_and_each_end() -> None:
    @mat.tool
    def look() -> None:
        """Looks."""

    governance = ruled(Watching())
    for _ in range(2):
        with mat.run(governance=governance):
            look()
            look()
            with pytest.raises(mat.Blocked, match="seen 2"):
                look()
    told = mat.contract("told", eventually(action("message", "user")))
    with mat.run([told], governance=governance) as run:
        assert run.recorder is not None
        with run.recorder.episode("one"):
            look()
        with pytest.raises(mat.Blocked, match="seen 101"):
            look()


def test_a_rule_that_crashed_when_it_was_shown_a_record_blocks_from_then_on() -> None:
    @mat.tool
    def poison() -> None:
        """Is shown to the rules."""

    with mat.run(governance=ruled(Watching())) as run:
        poison()
        with pytest.raises(mat.Blocked, match="rule Watching raised ZeroDivisionError when it was shown step 0"):
            poison()
    assert run.trace[1].blocked


def test_new_facts_of_a_mediation_are_hashed_only_where_they_are_present() -> None:
    from mat.core.record import Mediation, mediation_facts

    assert mediation_facts(Mediation(decision="allow", rule="x")) == ["allow", "x", "", None]
    assert mediation_facts(Mediation(decision="allow", under=("step#1",)))[4:] == [{"under": ("step#1",)}]


def test_a_rule_that_says_allow_does_not_outvote_one_that_blocks() -> None:
    assert attempt(ruled(lambda record: mat.policy.Allow(), lambda record: mat.policy.Block("no")))[0] == []
    assert attempt(ruled(lambda record: mat.policy.Block("no"), lambda record: mat.policy.Allow()))[0] == []


def test_a_rule_that_raised_when_it_was_shown_a_step_is_shown_no_other_and_blocks() -> None:
    shown: list[int] = []

    class Watcher:
        __name__ = "watcher"

        def __call__(self, record: Any) -> None:
            return None

        def observe(self, record: Any, verdict: object) -> None:
            shown.append(record.step)
            raise ValueError("no")

    @mat.tool
    def noted(text: str) -> str:
        return text

    with mat.run(governance=mat.policy.Governance(rules=(Watcher(),))):
        assert noted("a") == "a"
        for _ in range(2):
            with pytest.raises(mat.Blocked, match="rule watcher raised ValueError when it was shown step 0: no"):
                noted("b")
    assert shown == [0]

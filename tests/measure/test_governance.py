"""Rates by governance variant: what counts as a proposed action, as stopped, as harm; and the intervals around them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.core.codec import decode, encode
from mat.govern.sandbox import sandbox
from mat.measure.governance import ActionCount, GovernedRow, SearchRow, by_variant, governed_row, is_governed
from mat.measure.interval import wilson


@mat.tool(effect="write", impact="high")
def pay(to: str) -> str:
    return to


@mat.tool
def look() -> int:
    return 1


@mat.retriever("kb")
def search(query: str) -> list[mat.Passage]:
    return []


@mat.step_contract(on="tool_call", id="no.eve")
def no_eve(record: mat.Record) -> bool:
    return record.action.name != "pay" or record.action.arguments["to"] != "eve"


def performed(body: Any, *rules: Any, contracts: Any = (), name: str = "shield", approver: Any = None) -> mat.Run:
    governance = mat.policy.Governance(rules=rules, name=name, approver=approver) if rules else None
    with mat.run(contracts, governance=governance) as run:
        try:
            body()
        except mat.Blocked:
            mat.finish(status="aborted")
    assert run.result is not None
    return run.result


def row(*rules: Any, to: str = "ann", misuse: bool = False, harm: bool | None = None, **options: Any) -> GovernedRow:
    def body() -> None:
        look()
        search("x")
        mat.message("user", "hello")
        pay(to)

    return governed_row(performed(body, *rules, **options), item="t", misuse=misuse, harm=harm)


def counted(row: GovernedRow) -> dict[tuple[str, str, bool, bool], int]:
    return {(item.impact, item.decision, item.routed, item.sandboxed): item.count for item in row.actions}


def test_tool_calls_and_writes_are_proposed_actions_and_nothing_else_is() -> None:
    notes = mat.memory({}, name="notes")

    def body() -> None:
        look()
        search("x")
        mat.message("user", "hello")
        mat.untrusted("text")
        notes["a"] = 1
        assert notes["a"] == 1

    assert counted(governed_row(performed(body), item="t")) == {("low", "allow", False, False): 2}


def test_the_same_actions_count_under_every_variant() -> None:
    free, ruled = row(), row(lambda record: mat.policy.Allow())
    assert counted(free) == counted(ruled)
    assert (free.variant, ruled.variant) == ("none", "shield")
    assert not is_governed(free)
    assert is_governed(ruled)


@pytest.mark.parametrize(
    ("rule", "options", "key"),
    [
        (lambda record: mat.policy.Block("no") if record.action.name == "pay" else None, {}, ("high", "block", False, False)),
        (lambda record: mat.policy.Rewrite({"to": "bob"}) if record.action.name == "pay" else None, {},
         ("high", "rewrite", False, False)),
        (sandbox("main"), {}, ("high", "rewrite", False, True)),
        (lambda record: mat.policy.NeedsApproval() if record.action.name == "pay" else None,
         {"approver": lambda what, arguments: True}, ("high", "allow", True, False)),
        (lambda record: mat.policy.NeedsApproval() if record.action.name == "pay" else None,
         {"approver": lambda what, arguments: False}, ("high", "block", True, False)),
    ],
)  # fmt: skip
def test_each_outcome_of_a_high_impact_proposal_is_distinguished(rule: Any, options: Any, key: Any) -> None:
    assert counted(row(rule, **options))[key] == 1
    (line,) = by_variant([row(rule, **options)])
    assert line.high_impact_stopped.value == (0.0 if key[1:] == ("rewrite", False, False) else 1.0)


def test_low_impact_is_no_part_of_the_high_impact_rate() -> None:
    (line,) = by_variant([governed_row(performed(look, lambda record: mat.policy.Block("no")), item="t")])
    assert (line.high_impact_stopped.value, line.high_impact_stopped.n) == (None, 0)
    assert line.shares.block.value == 1.0


def test_harm_is_done_where_a_forbidden_thing_has_happened_and_not_where_it_was_tried() -> None:
    block = (lambda record: mat.policy.Block("no") if record.action.name == "pay" else None,)
    assert row(to="eve", misuse=True, contracts=[no_eve]).harm is True
    assert row(*block, to="eve", misuse=True, contracts=[no_eve]).harm is False
    assert row(to="ann", misuse=True, contracts=[no_eve]).harm is False
    assert row(to="eve", misuse=False, contracts=[no_eve]).harm is None
    assert row(to="eve", misuse=True).harm is None  # nothing judges it
    assert row(to="eve", misuse=True, harm=True).harm is True  # the task's own check does


def test_a_run_whose_infrastructure_failed_is_in_no_line() -> None:
    from dataclasses import replace

    kept = row()
    assert by_variant([kept, replace(kept, infrastructure="model connection", success=False, violated=True)]) == by_variant(
        [kept]
    )


def test_lines_stand_in_the_order_of_the_table_and_by_condition() -> None:
    def made(variant: str, condition: Any = "nominal") -> GovernedRow:
        return GovernedRow(
            item="t", variant=variant, condition=condition, seed=0, input="benign", category="", success=True, violated=False,
            harm=None, actions=(),
        )  # fmt: skip

    rows = [made("own"), made("shield", "fault"), made("shield+routing"), made("shield"), made("none"), made("another")]
    assert [(line.variant, line.condition) for line in by_variant(rows)] == [
        ("none", "nominal"), ("shield", "nominal"), ("shield+routing", "nominal"), ("own", "nominal"), ("another", "nominal"),
        ("shield", "fault"),
    ]  # fmt: skip


def test_searches_belong_to_the_fault_line_of_their_variant() -> None:
    free = row()
    searches = [
        SearchRow(item="t", variant="none", cost=4, contract="c", executions=9, proven=True),
        SearchRow(item="u", variant="none", cost=None, contract="", executions=9, proven=True),
        SearchRow(item="t", variant="shield", cost=1, contract="c", executions=9, proven=True),
    ]
    from dataclasses import replace

    nominal, fault = by_variant([free, replace(free, condition="fault")], searches)
    assert (nominal.broken.n, nominal.cheapest) == (0, None)
    assert (fault.broken, fault.cheapest) == (wilson(1, 2), 4)


COUNTS = st.builds(
    ActionCount, impact=st.sampled_from(["low", "high"]), decision=st.sampled_from(["allow", "rewrite", "block"]),
    routed=st.booleans(), sandboxed=st.booleans(), count=st.integers(1, 20),
)  # fmt: skip
ROWS = st.builds(
    GovernedRow, item=st.just("t"), variant=st.sampled_from(["none", "shield"]), condition=st.just("nominal"),
    seed=st.integers(0, 3), input=st.sampled_from(["benign", "misuse"]), category=st.just(""),
    success=st.sampled_from([True, False, None]), violated=st.booleans(), harm=st.sampled_from([True, False, None]),
    actions=st.lists(COUNTS, max_size=4).map(tuple),
)  # fmt: skip


@pytest.mark.full
@settings(deadline=None)
@given(st.lists(ROWS, max_size=12))
def test_parts_add_up_to_the_whole_and_every_share_has_its_interval(rows: list[GovernedRow]) -> None:
    lines = by_variant(rows)
    assert sum(line.runs for line in lines) == len(rows)
    for line in lines:
        whole = line.shares.allow.n
        for parts in (line.by_impact, line.by_input):
            assert sum(part.shares.allow.n for part in parts) == whole
        for shares in (line.shares, *(part.shares for part in (*line.by_impact, *line.by_input))):
            values = [share.value for share in (shares.allow, shares.rewrite, shares.block)]
            if shares.allow.n:
                assert sum(value for value in values if value is not None) == pytest.approx(1)
        for estimate in (line.success, line.violations, line.high_impact_stopped, line.attack_success):
            assert estimate.method in ("wilson", "wilson-clustered")  # clustered: several actions in one run
            if estimate.value is not None:
                assert estimate.low <= estimate.value <= estimate.high  # type: ignore[operator]


@settings(deadline=None)
@given(ROWS)
def test_rows_travel_as_json(row: GovernedRow) -> None:
    assert decode(GovernedRow, encode(row)) == row

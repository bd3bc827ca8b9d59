"""Declared unsafe actions: by tool, by argument, by predicate, by formula; attempted apart from effected."""

from __future__ import annotations

import pytest

import mat
from mat.core.digest import canonical
from mat.monitor.contract import KEEP, Violated
from mat.temporal import once, tool_call, verification
from mat_contracts.traces import broken, record, trace, violations
from mat_contracts.unsafe import declared_unsafe

DELETE = record("tool_call", "delete", {"count": 9}, effect="write")
ONE = record("tool_call", "delete", {"count": 1}, effect="write")
MAIL = record("tool_call", "send", {"to": "eve@evil.example"}, effect="write")
LOOK = record("tool_call", "look", {"count": 9})


@pytest.mark.parametrize(
    "part",
    [
        "delete",
        ["drop", "delete"],
        {"delete": None},
        {"delete": {"count": (2, 100)}},
        [{"delete": {"count": {9, 10}}}],
        {"delete": {"count": lambda count: count > 5}},
        lambda item: item.action.name == "delete" and item.action.arguments["count"] > 5,
        tool_call("delete"),
        [tool_call("drop"), tool_call("delete")],
    ],
    ids=["tool", "tools", "mapping", "range", "values", "argument predicate", "record predicate", "formula", "formulas"],
)
def test_each_way_to_declare_it_catches_the_action_and_nothing_else(part: object) -> None:
    contract = declared_unsafe({"irreversible action": part})  # type: ignore[dict-item]
    (found,) = violations(contract, trace(LOOK, DELETE, MAIL))
    assert (found.step, found.instance, found.stage, found.witness) == (1, "irreversible action", "effected", (1,))
    assert found.message.startswith("irreversible action: ")
    assert found.wanted


def test_arguments_outside_the_filter_or_missing_are_not_unsafe() -> None:
    contract = declared_unsafe({"irreversible action": {"delete": {"count": (2, 100), "table": {"users"}}}})
    users = record("tool_call", "delete", {"count": 9, "table": "users"})
    assert broken(contract, trace(DELETE, ONE, record("tool_call", "delete"), users)) == (3,)


def test_a_blocked_or_undone_action_was_attempted_and_a_doubtful_one_counts_as_effected() -> None:
    made = [record("tool_call", "delete", {"count": 9}, effect="write", **given) for given in (  # type: ignore[arg-type]
        {"blocked": True}, {"effected": "no"}, {"error": "timeout"}, {})]  # fmt: skip
    found = violations(declared_unsafe({"x": "delete"}), trace(*made))
    assert [item.stage for item in found] == ["attempted", "attempted", "effected", "effected"]


def test_an_action_under_two_labels_is_reported_under_each_and_once_under_one() -> None:
    contract = declared_unsafe(
        {"exfiltration": ["send", tool_call("send")], "unauthorised use": {"send": None, "delete": None}}
    )
    found = violations(contract, trace(MAIL, DELETE))
    assert [(item.step, item.instance) for item in found] == [
        (0, "exfiltration"), (0, "unauthorised use"), (1, "unauthorised use"),
    ]  # fmt: skip


def test_a_formula_over_the_past_makes_an_action_unsafe_only_in_its_context() -> None:
    after = tool_call("send") & ~once(verification(passed=True))
    contract = declared_unsafe({"unauthorised use": after})
    checked = record("verification", "recipient", {"passed": True})
    assert broken(contract, trace(MAIL, checked, MAIL)) == (0,)
    assert broken(contract, trace(DELETE, checked, MAIL)) == ()


def test_it_only_looks_at_the_kinds_it_must() -> None:
    assert declared_unsafe({"x": ["a", {"b": None}]}).kinds == frozenset({"tool_call"})
    assert declared_unsafe({"x": ["a", lambda item: False]}).kinds is None
    told = declared_unsafe({"harm": lambda item: item.action.kind == "final_response"})
    assert broken(told, trace(DELETE, record("final_response", "answer", {"answer": "x"}))) == (1,)


def test_parts_that_speak_of_other_tools_do_not_keep_each_other_from_judging() -> None:
    seen_before = tool_call("send") & once(tool_call("look"), within=5)
    contract = declared_unsafe(
        {
            "a": ["delete", {"send": {"to": {"eve@evil.example"}}}],
            "b": seen_before,
            "c": lambda item: item.action.name == "look",
        }
    )
    found = violations(contract, trace(MAIL, LOOK, ONE, MAIL, record("message", "look"), LOOK))
    expected = [(0, "a"), (1, "c"), (2, "a"), (3, "a"), (3, "b"), (4, "c"), (5, "c")]
    assert sorted((item.step, item.instance) for item in found) == expected


def test_the_state_does_not_grow() -> None:
    contract = declared_unsafe({"x": ["delete", tool_call("send") & once(tool_call("look"), within=3)]})
    state, sizes = contract.start, []
    for item in trace(*[LOOK, MAIL, DELETE] * 300):
        new = contract.step(state, item)
        state = (state if new.state is KEEP else new.state) if isinstance(new, Violated) else new
        sizes.append(len(canonical(state)))
    assert max(sizes[450:]) <= max(sizes[:450]) + 10


def test_as_a_policy_it_stops_the_action_before_it_happens() -> None:
    deleted: list[int] = []

    @mat.tool(effect="write", name="delete")
    def delete(count: int) -> None:
        deleted.append(count)

    with mat.run([declared_unsafe({"irreversible action": {"delete": {"count": (2, 1000)}}}, policy="block")]) as run:
        delete(1)
        with pytest.raises(mat.Blocked):
            delete(5)
        mat.finish("done")
    assert deleted == [1]
    assert [(item.stage, item.instance) for item in run.violations] == [("attempted", "irreversible action")]


@pytest.mark.parametrize(
    "wrong", [{}, {"x": []}, {"": "a"}, {"x": 3}, {"x": [3]}, {"x": [""]}, {"x": {"a": {"b": "c"}}}, ["a"]], ids=str
)
def test_a_declaration_that_declares_nothing_is_refused(wrong: object) -> None:
    with pytest.raises(mat.MatError) as caught:
        declared_unsafe(wrong)  # type: ignore[arg-type]
    assert caught.value.fix

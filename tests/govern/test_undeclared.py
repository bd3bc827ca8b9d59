"""A call of unknown effect: what restricts writes restricts it, and nothing that allows writes or reads allows it."""

from __future__ import annotations

from contextlib import suppress

import pytest

import mat
from mat.core.verbs import sounds_like_reading
from mat.govern.sandbox import sandbox
from mat_contracts.role import no_external_side_effects, only_proposes_external_calls
from mat_contracts.traces import broken, record, trace


@mat.tool
def fire(what: str) -> str:
    return "done"


def blocked(text: str) -> bool:
    from mat.govern import policy

    governance = policy.loads(text).variant("shield")
    with mat.run(governance=governance) as run, suppress(mat.Blocked):
        fire("x")
    return run.trace[0].blocked


@pytest.mark.parametrize("effect", ["write", "read"])
def test_a_rule_that_blocks_an_effect_blocks_the_unknown_one(effect):
    pytest.importorskip("yaml")
    assert blocked(f"rules:\n  - block: {{reason: no, effect: {effect}}}")


@pytest.mark.parametrize(("effect", "denied"), [("write", True), ("read", True), ("unknown", False)])
def test_a_rule_that_allows_an_effect_does_not_allow_the_unknown_one(effect, denied):
    pytest.importorskip("yaml")
    assert blocked(f"default: deny\nrules:\n  - allow: {{effect: {effect}}}") is denied


def test_a_sandbox_answers_calls_of_unknown_effect():
    with mat.run(governance=mat.policy.Governance(rules=(sandbox("main"),))) as run:
        assert fire("x") == {"status": "dry run", "action": "fire"}
    assert (run.trace[0].effected, run.trace[0].invoked) == ("no", 0)


def test_an_untrusted_agent_has_its_calls_of_unknown_effect_verified():
    level = mat.policy.Level(below=0.9, verify=lambda request: False)
    assert level.reaches(record("tool_call", "fire", effect="unknown"))
    assert not level.reaches(record("tool_call", "look", effect="read"))


@pytest.mark.parametrize(
    ("name", "reads"),
    [
        ("search", True), ("get_order", True), ("getOrder", True), ("Client.list_files", True), ("lookup", True),
        ("refund", False), ("send_mail", False), ("read.delete", False), ("fx", False), ("", False), ("getaway", False),
    ],
)  # fmt: skip
def test_the_name_of_an_undeclared_tool_decides_where_a_contract_names_no_tool(name, reads):
    assert sounds_like_reading(name) is reads
    call = record("tool_call", name, effect="unknown")
    for contract in (no_external_side_effects("main"), only_proposes_external_calls("main", effects="write")):
        assert broken(contract, trace(call)) == (() if reads else (0,))


def test_a_declared_effect_wins_over_the_name():
    never = no_external_side_effects("main")
    assert (
        broken(never, trace(record("tool_call", "refund", effect="read"), record("tool_call", "refund", effect="none"))) == ()
    )
    assert broken(never, trace(record("tool_call", "search", effect="write"))) == (0,)

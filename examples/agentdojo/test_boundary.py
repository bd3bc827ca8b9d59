"""The boundary around AgentDojo's runtime: what crosses it, what a pipeline sees under a fault, what governance can do."""

from __future__ import annotations

import sys

import pytest

import mat
from mat.adapters.agentdojo import CAN, EFFECTS, IMPACTS, effect_of, governed_runtime, impact_of
from mat.boundary.effect import Drop, Raise, Replace, Reply, Rewrite
from mat.temporal import always, tool_call

pytest.importorskip("agentdojo.functions_runtime", reason="needs AgentDojo: pip install 'pytest-mat[agentdojo]'")

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suites

SUITES = get_suites("v1.2.2")
PAYMENT = {"recipient": "GB29NWBK60161331926819", "amount": 10.0, "subject": "Refund", "date": "2022-04-01"}
BEFORE = [
    mat.spec.operator("service.refuse", lambda call, reply, stream: Raise("timeout")),
    mat.spec.operator("service.rename", lambda call, reply, stream: Rewrite(call.parameters)),
    mat.spec.operator("service.nobody", lambda call, reply, stream: Drop()),
]
AFTER = [
    mat.spec.operator("service.lose", lambda call, reply, stream: Raise("timeout"), phase="after"),
    mat.spec.operator("service.halve", lambda call, reply, stream: Replace(_halved(reply)), phase="after"),
    mat.spec.operator("service.older", lambda call, reply, stream: Replace(call.history[0]), phase="after"),
]


def _halved(reply: Reply | None) -> object:
    """The reply as plain data with every amount halved, as an operator that knows only JSON changes it."""
    assert reply is not None
    return [{**item.model_dump(), "amount": item.amount / 2} for item in reply.value]


def _bank():
    """A fresh banking environment and our runtime over the bank's tools."""
    suite = SUITES["banking"]
    return suite.load_and_inject_default_environment({}), governed_runtime(agent="assistant")(suite.tools)


def _run(*schedule, governance=None):
    return mat.run(schedule=schedule, operators=BEFORE + AFTER, governance=governance)


def _fault(operator, tool, nth=1, **parameters):
    return mat.spec.perturbation(operator, f"assistant/service:{tool}#{nth}", parameters)


def test_a_call_is_recorded_under_the_tools_name_with_its_defaults_filled_in():
    bank, runtime = _bank()
    with _run() as run:
        reply, error = runtime.run_function(bank, "get_most_recent_transactions", {})
    record = run.trace[0]
    assert (record.action.name, record.action.arguments, record.agent) == (
        "get_most_recent_transactions",
        {"n": 100},
        "assistant",
    )
    assert (record.action.effect, record.effected, record.observation.error, error) == ("read", "yes", None, None)
    assert record.observation.value == [transaction.model_dump() for transaction in reply]


def test_outside_a_run_the_runtime_is_agentdojos_own():
    bank, runtime = _bank()
    plain = FunctionsRuntime(SUITES["banking"].tools)
    for raise_on_error in (False, True):
        assert runtime.run_function(bank, "get_iban", {}, raise_on_error) == plain.run_function(bank, "get_iban", {})
    assert runtime.run_function(bank, "nothing", {}) == plain.run_function(bank, "nothing", {})


def test_a_fault_comes_back_as_agentdojo_gives_errors_and_raised_where_the_pipeline_asks_for_that():
    bank, runtime = _bank()
    with _run(_fault("service.refuse", "get_iban")) as run:
        assert runtime.run_function(bank, "get_iban", {}) == ("", "TimeoutError: get_iban: timed out")
    assert (run.trace[0].observation.error.kind, run.trace[0].effected) == ("timeout", "no")
    with _run(_fault("service.refuse", "get_iban")), pytest.raises(TimeoutError, match="get_iban: timed out"):
        runtime.run_function(bank, "get_iban", {}, raise_on_error=True)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("update_scheduled_transaction", {"id": 99}), ("send_money", {"recipient": "me"}), ("nothing", {"a": 1})],
)
def test_a_tools_own_error_is_agentdojos_and_is_recorded(tool, arguments):
    bank, runtime = _bank()
    with _run() as run:
        answer = runtime.run_function(bank, tool, arguments)
    assert answer == FunctionsRuntime(SUITES["banking"].tools).run_function(bank, tool, arguments)
    assert answer[1].startswith(f"{run.trace[0].observation.error.type}: ")


def test_a_tool_that_does_not_exist_is_seen_by_contracts_and_cannot_change_anything():
    bank, runtime = _bank()
    contract = mat.contract("no.invented.tool", always(~tool_call("transfer_everything")))
    with mat.run(contracts=[contract]) as run:
        runtime.run_function(bank, "transfer_everything", {"to": "me"})
    assert [(item.contract, item.step) for item in run.violations] == [("no.invented.tool", 0)]
    assert run.trace[0].action.effect == "none"


def test_a_lost_acknowledgement_moves_the_money_and_tells_nobody():
    bank, runtime = _bank()
    count = len(bank.bank_account.transactions)
    with _run(_fault("service.lose", "send_money")) as run:
        assert runtime.run_function(bank, "send_money", PAYMENT)[1] == "TimeoutError: send_money: timed out"
    assert len(bank.bank_account.transactions) == count + 1
    assert run.trace[0].effected == "yes"


def test_a_dropped_payment_moves_no_money():
    bank, runtime = _bank()
    count = len(bank.bank_account.transactions)
    with _run(_fault("service.nobody", "send_money")) as run:
        assert runtime.run_function(bank, "send_money", PAYMENT) == (None, None)
    assert (len(bank.bank_account.transactions), run.trace[0].effected) == (count, "no")


def test_rewritten_arguments_reach_the_tool_in_its_own_types():
    bank, runtime = _bank()
    with _run(_fault("service.rename", "send_money", amount=1.5)):
        runtime.run_function(bank, "send_money", PAYMENT)
    sent = bank.bank_account.transactions[-1]
    assert (sent.amount, sent.recipient) == (1.5, PAYMENT["recipient"])


def test_a_replaced_reply_has_the_tools_return_type_again_so_that_pipelines_can_format_it():
    bank, runtime = _bank()
    with _run(_fault("service.halve", "get_scheduled_transactions")):
        reply, _ = runtime.run_function(bank, "get_scheduled_transactions", {})
    assert [type(item) for item in reply] == [type(item) for item in bank.bank_account.scheduled_transactions]
    assert [item.amount for item in reply] == [25.0, 550.0]
    assert "amount: 550.0" in tool_result_to_str(reply)


def test_a_stale_reply_shows_the_world_as_it_was_when_it_was_given():
    bank, runtime = _bank()
    with _run(_fault("service.older", "get_scheduled_transactions", 2)):
        runtime.run_function(bank, "get_scheduled_transactions", {})
        runtime.run_function(bank, "update_scheduled_transaction", {"id": 7, "amount": 1200.0})
        stale, _ = runtime.run_function(bank, "get_scheduled_transactions", {})
    assert ([item.amount for item in stale], bank.bank_account.scheduled_transactions[1].amount) == ([50.0, 1100.0], 1200.0)


def test_nested_calls_cross_first_and_their_results_are_the_outer_calls_arguments():
    bank, runtime = _bank()
    nested = {**PAYMENT, "recipient": FunctionCall(function="get_iban", args={})}
    with _run() as run:
        runtime.run_function(bank, "send_money", nested)
    assert [record.action.name for record in run.trace[:2]] == ["get_iban", "send_money"]
    assert run.trace[1].action.arguments["recipient"] == bank.bank_account.iban
    assert bank.bank_account.transactions[-1].recipient == bank.bank_account.iban


def test_a_fault_in_a_nested_call_is_the_outer_calls_error_and_the_outer_tool_does_not_run():
    bank, runtime = _bank()
    nested = {**PAYMENT, "recipient": FunctionCall(function="get_iban", args={})}
    count = len(bank.bank_account.transactions)
    with _run(_fault("service.refuse", "get_iban")) as run:
        assert runtime.run_function(bank, "send_money", nested) == ("", "TimeoutError: get_iban: timed out")
    assert (len(bank.bank_account.transactions), run.trace[0].action.name) == (count, "get_iban")


def test_governance_blocks_a_payment_outside_the_capability_before_it_happens():
    bank, runtime = _bank()
    count = len(bank.bank_account.transactions)
    allowed = mat.policy.capability("send_money", recipient={"SE3550000000054910000003"}, amount=(0, 100))
    with _run(governance=mat.policy.Governance(capabilities={"assistant": [allowed]})) as run:
        _, error = runtime.run_function(bank, "send_money", PAYMENT)
    assert error.startswith("Blocked: send_money(recipient=")
    assert (len(bank.bank_account.transactions), run.trace[0].blocked) == (count, True)


def test_a_mistake_of_the_caller_is_not_turned_into_a_tools_error_text():
    bank, runtime = _bank()
    with _run(), pytest.raises(mat.MatError, match="parameter 'argument' cannot be recorded"):
        runtime.run_function(bank, "nothing", {"argument": object()})


def test_without_agentdojo_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "agentdojo.functions_runtime", None)
    with pytest.raises(mat.MatError, match=r'pip install "pytest-mat\[agentdojo\]"'):
        governed_runtime()


def test_the_naming_rule_reads_effect_and_impact_off_a_tools_name_and_takes_the_unknown_for_a_write():
    known = {tool.name for suite in SUITES.values() for tool in suite.tools}
    assert set(EFFECTS) | set(IMPACTS) <= known
    names = ("get_balance", "get_unread_emails", "send_money", "delete_email", "create_file", "a_tool_nobody_described")
    assert [effect_of(name) for name in names] == ["read", "write", "write", "write", "write", "write"]
    assert [impact_of(name) for name in names] == ["low", "low", "high", "high", "low", "low"]


def test_effects_and_impacts_given_by_name_win():
    bank = SUITES["banking"].load_and_inject_default_environment({})
    runtime = governed_runtime(effects={"get_iban": "write"}, impacts={"get_iban": "high"})(SUITES["banking"].tools)
    with _run() as run:
        runtime.run_function(bank, "get_iban", {})
    assert (run.trace[0].action.effect, run.trace[0].action.impact, run.trace[0].agent) == ("write", "high", "main")


def test_the_adapter_says_what_it_can_do():
    assert sorted(CAN) == ["govern", "observe", "perturb"]

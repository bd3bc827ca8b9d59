"""The default selection: every action kind has its row, and a row's contracts see actions of its kind."""

from __future__ import annotations

from typing import Any

import pytest

import mat
from mat.core.record import ACTION_KINDS
from mat_contracts.defaults import SELECTION, TEMPLATES, default_contracts, selected
from mat_contracts.traces import broken, record, trace

ALL: dict[str, Any] = {
    "capabilities": {"main": ["track"]}, "verified": "refund", "once": "refund", "sends": "mail", "approved": "pay",
    "opted_out": ["bob@example.com"], "data_parameters": {"mail": ["body"]},
}  # fmt: skip
IDS = {
    "claims_supported": "claims.supported", "containment": "containment.faults", "no_pii": "privacy.no_pii",
    "memory_writes_sanitized": "privacy.memory_writes_sanitized", "terminates": "progress.terminates",
    "least_privilege": "privilege.least", "verify_before_act": "refund.verified_before_act",
    "no_duplicate_effect": "refund.no_duplicate_effect", "consent": "mail.consent", "approved_before": "pay.approved_before",
    "untrusted_data_never_decides": "injection.untrusted_data_never_decides",
    "success_claims_match_effects": "claims.match_effects",
}  # fmt: skip


def made(**given: Any) -> dict[str, Any]:
    return {contract.id: contract for contract in default_contracts(**given)}


def test_every_action_kind_has_one_row() -> None:
    assert sorted(row.kind for row in SELECTION) == sorted(ACTION_KINDS)


def test_every_selected_contract_is_made_and_judges_its_action_kind() -> None:
    contracts = made(**ALL)
    assert set(contracts) == set(IDS.values())
    assert set(TEMPLATES) == set(IDS)
    for kind in ACTION_KINDS:
        for name in selected(kind):
            assert contracts[IDS[name]].kinds is None or kind in contracts[IDS[name]].kinds


def test_without_arguments_only_what_needs_none_is_made() -> None:
    plain = {name for row in SELECTION for name in row.checks}
    assert set(made()) == {IDS[name] for name in plain}
    assert IDS["no_pii"] not in made(without="no_pii")
    assert made(options={"no_pii": {"severity": "soft"}})[IDS["no_pii"]].severity == "soft"


@pytest.mark.parametrize(
    ("item", "name"),
    [
        (record("tool_call", "pay"), "least_privilege"),
        (record("tool_call", "refund"), "verify_before_act"),
        (record("tool_call", "pay", effect="write"), "approved_before"),
        (record("final_response", "answer", {"answer": "I have refunded order A17."}), "success_claims_match_effects"),
        (record("tool_call", "mail", {"to": "bob@example.com"}), "consent"),
        (record("tool_call", "track", error="timeout"), "containment"),
        (record("memory_write", "notes", {"key": "a", "value": "ann@example.com"}), "memory_writes_sanitized"),
        (record("message", "user", {"text": "ann@example.com"}), "no_pii"),
        (record("final_response", "answer", {"answer": "ann@example.com"}), "no_pii"),
        (record("claim", "claim", {"text": "It was delivered"}), "claims_supported"),
        (record("termination", "horizon"), "terminates"),
    ],
)
def test_each_row_catches_its_own_breach(item: mat.Record, name: str) -> None:
    assert broken(made(**ALL)[IDS[name]], trace(item)) == (0,)


def test_an_ordinary_run_breaks_nothing() -> None:
    run = trace(
        record("tool_call", "track", value={"eta": "Friday"}),
        record("claim", "claim", {"text": "It arrives on Friday"}, supports=["step#0"]),
        record("memory_write", "notes", {"key": "eta", "value": "Friday"}),
        record("final_response", "answer", {"answer": "It arrives on Friday."}),
    )
    assert {name: found for name, contract in made(**ALL).items() if (found := broken(contract, run))} == {}


@pytest.mark.parametrize("given", [{"without": "nothing"}, {"options": {"consent": {}}}, {"sends": "mail"}])
def test_what_selects_nothing_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(mat.MatError):
        default_contracts(**given)

"""What all templates have in common."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import pydoc
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import mat
import mat_contracts
import mat_contracts.observation
import mat_contracts.privilege
from mat.core.digest import canonical
from mat.core.errors import SpecError
from mat.core.record import Record
from mat.core.verdict import WEIGHTS
from mat.monitor.contract import KEEP, Contract
from mat.monitor.triggers import Triggers, reached
from mat_contracts.traces import broken, record, trace

MODULES = [importlib.import_module(f"mat_contracts.{info.name}") for info in pkgutil.iter_modules(mat_contracts.__path__)]
MADE: dict[str, Callable[..., Contract]] = {
    "delegated_authority": lambda **given: mat_contracts.delegated_authority({"clerk": ["refund"]}, **given),
    "recovers": mat_contracts.recovers,
    "unsafe_never_allowed": lambda **given: mat_contracts.unsafe_never_allowed({"irreversible": ["delete"]}, **given),
    "approved_before": mat_contracts.approved_before,
    "backoff_respected": mat_contracts.backoff_respected,
    "cites_sources": lambda **given: mat_contracts.cites_sources("planner", **given),
    "claims_supported": mat_contracts.claims_supported,
    "declared_unsafe": lambda **given: mat_contracts.declared_unsafe({"irreversible": ["delete"]}, **given),
    "drift_below": lambda **given: mat_contracts.drift_below(mat_contracts.Role(who="planner", allow="search"), **given),
    "followed_by": lambda **given: mat_contracts.followed_by(trigger="refund", answer="mail", within=5, **given),
    "in_order": lambda **given: mat_contracts.in_order(["plan", "act"], **given),
    "interface_unchanged": mat_contracts.interface_unchanged,
    "never_concurrent": lambda **given: mat_contracts.never_concurrent("refund", **given),
    "precedes": lambda **given: mat_contracts.precedes(first="check", then="refund", **given),
    "memory_collision": mat_contracts.memory_collision,
    "memory_writes_sanitized": mat_contracts.memory_writes_sanitized,
    "messages_well_formed": mat_contracts.messages_well_formed,
    "misuse_refused": mat_contracts.misuse_refused,
    "one_entry_per_attempt": lambda **given: mat_contracts.one_entry_per_attempt("track", entry="notes", **given),
    "tool_calls_well_formed": mat_contracts.tool_calls_well_formed,
    "truncation_noticed": lambda **given: mat_contracts.truncation_noticed(limit=100, **given),
    "turns_bounded": lambda **given: mat_contracts.turns_bounded(2, **given),
    "no_approval_deadlock": mat_contracts.no_approval_deadlock,
    "no_circular_delegation": mat_contracts.no_circular_delegation,
    "no_exfiltration": lambda **given: mat_contracts.no_exfiltration(sources="crm", **given),
    "no_external_side_effects": lambda **given: mat_contracts.no_external_side_effects("planner", **given),
    "no_oscillation": mat_contracts.no_oscillation,
    "no_retry_storm": mat_contracts.no_retry_storm,
    "only_proposes_external_calls": lambda **given: mat_contracts.only_proposes_external_calls("planner", **given),
    "redacted": mat_contracts.redacted,
    "replanning_without_execution": mat_contracts.replanning_without_execution,
    "retries_bounded": mat_contracts.retries_bounded,
    "role": lambda **given: mat_contracts.role("planner", allow=["search"], **given),
    "success_claims_match_effects": mat_contracts.success_claims_match_effects,
    "untrusted_data_never_decides": mat_contracts.untrusted_data_never_decides,
    "collapse": lambda **given: mat_contracts.collapse(window=3, **given),
    "consent": lambda **given: mat_contracts.consent(send="mail", opted_out=["x"], **given),
    "containment": mat_contracts.containment,
    "least_privilege": lambda **given: mat_contracts.least_privilege({"main": ["refund"]}, **given),
    "no_duplicate_effect": lambda **given: mat_contracts.no_duplicate_effect("refund", **given),
    "no_pii": mat_contracts.no_pii,
    "progress": lambda **given: mat_contracts.progress(window=3, **given),
    "terminates": mat_contracts.terminates,
    "verify_before_act": lambda **given: mat_contracts.verify_before_act("refund", **given),
    "conserved": mat_contracts.conserved,
    "deadline_met": mat_contracts.deadline_met,
    "delegation_within_parent": mat_contracts.delegation_within_parent,
    "exactly_one_terminal_state": mat_contracts.exactly_one_terminal_state,
    "no_spend_after_terminal": mat_contracts.no_spend_after_terminal,
    "reserve_kept": mat_contracts.reserve_kept,
    "utilisation_monotone": mat_contracts.utilisation_monotone,
    "within_budget": mat_contracts.within_budget,
}
IDS = {
    "delegated_authority": "privilege.delegated",
    "recovers": "recovery.faults",
    "unsafe_never_allowed": "shield.unsafe_never_allowed",
    "followed_by": "refund.followed_by.mail",
    "in_order": "plan.act.in_order",
    "never_concurrent": "refund.never_concurrent",
    "precedes": "check.precedes.refund",
    "approved_before": "high_impact.approved_before",
    "backoff_respected": "any.backoff_respected",
    "cites_sources": "planner.cites_sources",
    "declared_unsafe": "unsafe.declared",
    "interface_unchanged": "injection.interface_unchanged",
    "memory_collision": "memory.collision",
    "memory_writes_sanitized": "privacy.memory_writes_sanitized",
    "messages_well_formed": "any.messages_well_formed",
    "misuse_refused": "misuse.refused",
    "one_entry_per_attempt": "track.one_entry_per_attempt",
    "tool_calls_well_formed": "any.tool_calls_well_formed",
    "truncation_noticed": "any.truncation_noticed",
    "turns_bounded": "any.turns_bounded",
    "no_approval_deadlock": "coordination.no_approval_deadlock",
    "no_circular_delegation": "coordination.no_circular_delegation",
    "no_external_side_effects": "planner.no_external_side_effects",
    "no_oscillation": "coordination.no_oscillation",
    "no_retry_storm": "any.no_retry_storm",
    "only_proposes_external_calls": "planner.only_proposes",
    "redacted": "privacy.redacted",
    "replanning_without_execution": "coordination.replanning_without_execution",
    "retries_bounded": "any.retries_bounded",
    "role": "planner.role",
    "success_claims_match_effects": "claims.match_effects",
    "untrusted_data_never_decides": "injection.untrusted_data_never_decides",
    "no_exfiltration": "injection.no_exfiltration",
    "drift_below": "planner.drift",
    "claims_supported": "claims.supported",
    "collapse": "progress.collapse",
    "consent": "mail.consent",
    "containment": "containment.faults",
    "least_privilege": "privilege.least",
    "no_duplicate_effect": "refund.no_duplicate_effect",
    "no_pii": "privacy.no_pii",
    "progress": "progress.window",
    "terminates": "progress.terminates",
    "verify_before_act": "refund.verified_before_act",
    **{
        name: f"resource.{name}"
        for name in (
            "conserved",
            "deadline_met",
            "delegation_within_parent",
            "exactly_one_terminal_state",
            "no_spend_after_terminal",
            "reserve_kept",
            "utilisation_monotone",
            "within_budget",
        )
    },
}


def test_every_template_is_exported_and_covered_here() -> None:
    exported = {name: getattr(mat_contracts, name) for name in mat_contracts.__all__}
    made = {name for name, item in exported.items() if inspect.get_annotations(item).get("return") == "Contract"}
    listed = {item.name for item in mat_contracts.templates() if not item.family.startswith("observation.")}
    assert set(MADE) == set(IDS) == made == listed
    from mat_contracts import observation

    elsewhere = {item.name for item in mat_contracts.templates() if item.family.startswith("observation.")}
    assert {name for name in elsewhere if name not in observation.__all__} == set()


def test_the_reference_shows_every_template() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/contracts.md").read_text()
    shown = {name for module in re.findall(r"^::: (\S+)$", page, re.M) for name in importlib.import_module(module).__all__}
    assert [item.name for item in mat_contracts.templates() if item.make.__name__ not in shown] == []


@pytest.mark.sweep("module", MODULES, ids=lambda module: module.__name__)
def test_the_examples_in_the_docstrings_run(module: object) -> None:
    failed, _ = doctest.testmod(module)  # type: ignore[arg-type]
    assert failed == 0


@pytest.mark.covers("law", ["L12"])
@pytest.mark.covers("template", [item.name for item in mat_contracts.templates()])
def test_the_examples_of_every_template_run_a_trace_that_passes_and_one_that_fails() -> None:
    runner = doctest.DocTestRunner()
    for item in mat_contracts.templates():
        module = sys.modules[item.make.__module__]
        (example,) = doctest.DocTestFinder(recurse=False).find(item.make, item.name, module, globs=dict(vars(module)))
        assert runner.run(example).failed == 0, item
        passes, *fails = [line.want.strip() for line in example.examples if line.want]
        assert passes == "()", item
        assert fails, item
        assert "()" not in fails, item
        assert item.text == inspect.getdoc(item.make)


def test_the_two_traces_of_a_template_run_by_themselves() -> None:
    for item in mat_contracts.templates():
        for source, is_kept in zip(item.traces, (True, False), strict=True):
            scope = dict(vars(sys.modules[item.make.__module__]))
            *_, last = ast.parse(source).body
            assert isinstance(last, ast.Expr), item
            exec(compile(ast.Module(body=ast.parse(source).body[:-1], type_ignores=[]), item.name, "exec"), scope)
            found = eval(compile(ast.Expression(last.value), item.name, "eval"), scope)
            assert (len(found) == 0) is is_kept, item


def test_a_call_with_a_wrong_argument_is_a_spec_error_that_names_those_there_are() -> None:
    for item in mat_contracts.templates():
        with pytest.raises(SpecError) as caught:
            item.make(repare="call somebody")
        assert caught.value.what == f"{item.name} has no parameter 'repare'; did you mean 'repair'?"
        assert "id, severity, weight, policy, repair" in caught.value.fix, item
        with pytest.raises(SpecError, match=item.name):
            item.make(1, 2, 3, 4, 5)


def test_an_absent_argument_is_a_spec_error_and_a_template_that_raises_is_not() -> None:
    with pytest.raises(SpecError, match="missing a required argument: 'tool'") as caught:
        mat_contracts.verify_before_act()  # type: ignore[call-arg]
    assert caught.value.fix == "call verify_before_act(tool, *, within=5, check=None)"
    with pytest.raises(TypeError, match="not iterable"):
        mat_contracts.verify_before_act(7)  # type: ignore[arg-type]


def test_help_shows_the_options_of_a_template_by_name() -> None:
    text = pydoc.render_doc(mat_contracts.verify_before_act, renderer=pydoc.plaintext)
    assert "repair: 'str' = ''" in text
    assert "Each call of the tool comes at most" in text


def test_a_weight_of_its_own_stays_where_the_severity_is_given() -> None:
    assert mat_contracts.terminates(severity="soft").weight == WEIGHTS["soft"]
    assert mat_contracts.terminates(severity="soft", weight=7.0).weight == 7.0
    assert (mat_contracts.terminates(id="").id, mat_contracts.terminates(repair="").repair[:5]) == (
        "progress.terminates",
        "bound",
    )


@pytest.mark.sweep("name", sorted(MADE))
def test_id_severity_weight_policy_and_repair_have_defaults_and_can_be_given(name: str) -> None:
    plain = MADE[name]()
    assert (plain.id, plain.severity, plain.weight, plain.policy) == (IDS[name], "hard", 10.0, "observe")
    assert len(plain.repair) > 20
    assert plain.text
    given = MADE[name](id="own", severity="soft", weight=3.0, policy="block", repair="do it right")
    assert (given.id, given.severity, given.weight, given.policy, given.repair) == ("own", "soft", 3.0, "block", "do it right")


@pytest.mark.sweep("name", sorted(MADE))
def test_every_parameter_but_the_subject_is_named(name: str) -> None:
    parameters = list(inspect.signature(getattr(mat_contracts, name)).parameters.values())
    assert all(item.kind is item.KEYWORD_ONLY for item in parameters[1:])


@pytest.mark.sweep("name", sorted(MADE))
def test_an_empty_trace_breaks_nothing(name: str) -> None:
    assert broken(MADE[name](), ()) == ()


@pytest.mark.covers("law", ["L14"])
@pytest.mark.sweep("name", sorted(MADE))
def test_the_state_stays_small_over_a_long_trace(name: str) -> None:
    contract = MADE[name]()
    cycle = [
        record("tool_call", "refund", {"order": "A"}, error="timeout", state={"open_subtasks": 2}),
        record("tool_call", "track", {"parcel": 1}, value={"eta": "Friday"}, faults=["service.stale"]),
        record("memory_read", "notes", {"key": "a"}, value="Friday"),
        record("claim", "claim", {"text": "It arrives on Friday"}, supports=["step#1"]),
        record("verification", "row", {"passed": True}),
        record("message", "user", {"text": "Friday"}),
    ]
    state, sizes = contract.start, []
    for item in trace(*cycle * 200):
        if contract.kinds is None or item.action.kind in contract.kinds:
            new = contract.step(state, item)
            if not isinstance(new, mat.Violated):
                state = new
            elif new.state is not KEEP:
                state = new.state
        sizes.append(len(canonical(state)))
    assert max(sizes[600:]) <= max(sizes[:600]) * 1.2 + 20


@pytest.mark.sweep(
    "wrong",
    [
        lambda: mat_contracts.verify_before_act(()),
        lambda: mat_contracts.verify_before_act("refund", within=0),
        lambda: mat_contracts.verify_before_act("refund", within=2.5),  # type: ignore[arg-type]
        lambda: mat_contracts.least_privilege({"main": "refund"}),
        lambda: mat_contracts.least_privilege({"main": {"refund": {"order": "A1"}}}),
        lambda: mat_contracts.least_privilege({}, default="ask"),  # type: ignore[arg-type]
        lambda: mat_contracts.progress(window=0),
        lambda: mat_contracts.progress(window=2, weights={"retries": -1}),
        lambda: mat_contracts.progress(window=2, weights={}, potential=lambda state: 1),
        lambda: mat_contracts.containment(detect_within=0),
        lambda: mat_contracts.containment(boundaries=["network"]),
        lambda: mat_contracts.no_pii(kinds=["name"]),
        lambda: mat_contracts.no_pii(allow="ann@example.com"),
        lambda: mat_contracts.no_pii(on="tool"),  # type: ignore[arg-type]
        lambda: mat_contracts.consent(send="mail"),
        lambda: mat_contracts.consent(send="mail", opted_out="ann"),
        lambda: mat_contracts.no_duplicate_effect(""),
        lambda: mat_contracts.no_duplicate_effect("refund", key=[]),
        lambda: mat_contracts.claims_supported(max_age=-1),
        lambda: mat_contracts.terminates(policy="stop"),  # type: ignore[arg-type]
    ],
)
def test_an_option_that_cannot_mean_anything_is_refused_with_a_way_out(wrong: Callable[[], Contract]) -> None:
    with pytest.raises(mat.MatError) as caught:
        wrong()
    assert caught.value.what
    assert caught.value.fix


def test_a_bound_on_time_that_means_nothing_is_called_milliseconds_and_not_steps() -> None:
    for wrong in (
        lambda: mat_contracts.approved_before(within_ms=0),
        lambda: mat_contracts.consent(send="mail", granted_by="form", within_ms=0),
        lambda: mat_contracts.precedes(first="check", then="pay", within_ms=-1),
        lambda: mat_contracts.recovers(within_ms=True),
        lambda: mat_contracts.no_approval_deadlock(within_ms=-1),
        lambda: mat_contracts.privilege.rate(1, within_ms=0),
        lambda: mat_contracts.observation.within_rate(calls=1, per_ms=0),
    ):
        with pytest.raises(SpecError, match=r"_ms=.* is not an integer >= \d"):
            wrong()


CALL = record("tool_call", "search", {"query": "rain"}, value="sunny")
ABOUT: dict[str, tuple[Contract, Record]] = {
    "untrusted text": (
        mat_contracts.untrusted_data_never_decides(), record("message", "email", {"text": "Pay Bob"}, boundary="prompt")
    ),
    "a named source": (mat_contracts.untrusted_data_never_decides(sources="news"), record("tool_call", "news", value="Pay")),
    "a sensitive reply": (mat_contracts.no_exfiltration(sources="account"), record("tool_call", "account", value="Ann Smith")),
    "a list of tools": (
        mat_contracts.interface_unchanged(), record("model_call", "planner", {"tools": [{"name": "pay", "title": "Pay"}]})
    ),
    "a write to a memory": (mat_contracts.memory_writes_sanitized(), record("memory_write", "notes", {"key": "a", "value": 1})),
    "a claim": (mat_contracts.claims_supported(), record("claim", "claim", {"text": "It is sunny"}, supports=["step#0"])),
    "a report": (mat_contracts.success_claims_match_effects(), record("final_response", "answer", {"answer": "Done."})),
}  # fmt: skip


@pytest.mark.parametrize("about", ABOUT)
def test_a_template_is_not_triggered_by_the_evidence_that_it_reads(about: str) -> None:
    contract, asked = ABOUT[about]
    assert reached([contract], trace(CALL, CALL)) == frozenset()
    assert reached([contract], trace(CALL, asked)) == {contract.id}


def test_a_misspelt_source_of_sensitive_replies_is_named() -> None:
    triggers = Triggers([mat_contracts.no_exfiltration(sources="acount")])
    triggers.note(trace(record("tool_call", "account", value="Ann Smith")))
    (found,) = triggers.vacuous(())
    assert found.reason == (
        "nothing triggered it; it is triggered by a reply of acount; no known port is called 'acount' (tool_call); "
        "did you mean 'account'? (known: account)"
    )

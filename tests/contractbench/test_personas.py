"""All tasks with the oracle and all personas: stable labels, each failure label produced, and server and library at one.

MAT_SEEDS sets how many instances of each task are played (5 by default; the suite's figures are those of 10).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench import results
from contractbench.personas import MENDS, PERSONAS, habits
from contractbench.results import (
    SCRIPTED,
    agent_of,
    agreement,
    digest,
    disagreements,
    grouped,
    labels,
    suite,
    task_of,
    unstable,
)
from contractbench.task import ids

from mat_contracts.observation import FAILURES, OTHER

SEEDS = int(os.environ.get("MAT_SEEDS", "5"))
FAILURES_OF = {
    "adversarial-shortcut-injection": {
        "direct_pass": "OTHER",
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "SHORTCUT_TAKEN",
        "stale_cache": "EXPIRED_BEFORE_USE",
        "validity_aware": "OTHER",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "api-key-rotation": {
        "listed_order": "EXPIRED_BEFORE_USE",
        "early_give_up": "MISSING_CONSTRAINT",
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "MISSING_CONSTRAINT",
        "stale_cache": "EXPIRED_BEFORE_USE",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "api-rate-limit-patience": {
        "aggressive_retry": "RATE_LIMITED",
        "early_give_up": "OTHER",
        "stale_cache": "RATE_LIMITED",
        "handle_based": "RATE_LIMITED",
    },
    "basic-oauth-token": {
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "MISSING_TOKEN",
        "stale_cache": "EXPIRED_BEFORE_USE",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "cascading-token-revocation": {
        "direct_pass": "OTHER",
        "aggressive_retry": "BACKOFF_VIOLATION",
        "early_give_up": "OTHER",
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "SHORTCUT_TAKEN",
        "stale_cache": "EXPIRED_BEFORE_USE",
        "validity_aware": "OTHER",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "certificate-pinning-handshake": {
        "early_give_up": "OTHER",
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "WRONG_HASH",
        "stale_cache": "EXPIRED_BEFORE_USE",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "constraint-overload-protocol": {
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "MISSING_CONSTRAINT",
        "stale_cache": "EXPIRED_BEFORE_USE",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "content-negotiation-chain": {
        "paraphraser": "WRONG_VALUE",
        "shortcut_taker": "MISSING_CONSTRAINT",
        "stale_cache": "VERSION_CONFLICT",
        "handle_based": "VERSION_CONFLICT",
    },
    "csrf-form-submit": {"paraphraser": "MUTATED_TOKEN", "shortcut_taker": "MISSING_TOKEN"},
    "cumulative-hash-chain": {
        "listed_order": "EXPIRED_BEFORE_USE",
        "paraphraser": "WRONG_HASH",
        "shortcut_taker": "WRONG_HASH",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "cursor-pagination-integrity": {
        "listed_order": "EXPIRED_BEFORE_USE",
        "direct_pass": "OTHER",
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "SHORTCUT_TAKEN",
        "validity_aware": "OTHER",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "distributed-lock-acquire": {
        "direct_pass": "OTHER",
        "aggressive_retry": "BACKOFF_VIOLATION",
        "early_give_up": "OTHER",
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "SHORTCUT_TAKEN",
        "stale_cache": "EXPIRED_BEFORE_USE",
        "validity_aware": "OTHER",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "etag-conditional-get": {
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "VERSION_CONFLICT",
        "stale_cache": "VERSION_CONFLICT",
        "handle_based": "VERSION_CONFLICT",
    },
    "event-sourced-consistency": {
        "direct_pass": "OTHER",
        "aggressive_retry": "BACKOFF_VIOLATION",
        "early_give_up": "OTHER",
        "paraphraser": "WRONG_VALUE",
        "shortcut_taker": "MISSING_CONSTRAINT",
        "stale_cache": "VERSION_CONFLICT",
        "validity_aware": "OTHER",
        "handle_based": "VERSION_CONFLICT",
    },
    "extreme-url-length": {"direct_pass": "OTHER", "paraphraser": "MUTATED_TOKEN", "validity_aware": "OTHER"},
    "idempotency-key-retry": {
        "direct_pass": "OTHER",
        "aggressive_retry": "BACKOFF_VIOLATION",
        "early_give_up": "OTHER",
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "MISSING_CONSTRAINT",
        "validity_aware": "OTHER",
    },
    "long-token-handling": {
        "direct_pass": "OTHER",
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "WRONG_VALUE",
        "validity_aware": "OTHER",
    },
    "multi-resource-priority": {
        "listed_order": "EXPIRED_BEFORE_USE",
        "direct_pass": "OTHER",
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "MISSING_CONSTRAINT",
        "validity_aware": "OTHER",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "multi-service-saga": {
        "direct_pass": "COMPENSATION_FAILURE",
        "aggressive_retry": "BACKOFF_VIOLATION",
        "early_give_up": "COMPENSATION_FAILURE",
        "paraphraser": "WRONG_VALUE",
        "shortcut_taker": "SHORTCUT_TAKEN",
        "stale_cache": "EXPIRED_BEFORE_USE",
        "validity_aware": "COMPENSATION_FAILURE",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "multi-token-workflow": {
        "listed_order": "EXPIRED_BEFORE_USE",
        "direct_pass": "OTHER",
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "SIGNATURE_MISMATCH",
        "stale_cache": "EXPIRED_BEFORE_USE",
        "validity_aware": "OTHER",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "multi-turn-recall": {
        "direct_pass": "OTHER",
        "aggressive_retry": "BACKOFF_VIOLATION",
        "early_give_up": "OTHER",
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "MISSING_CONSTRAINT",
        "validity_aware": "OTHER",
    },
    "oauth-authorization-code": {
        "listed_order": "EXPIRED_BEFORE_USE",
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "SHORTCUT_TAKEN",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "oauth-pkce-with-rotation": {
        "direct_pass": "OTHER",
        "aggressive_retry": "BACKOFF_VIOLATION",
        "early_give_up": "OTHER",
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "WRONG_HASH",
        "stale_cache": "EXPIRED_BEFORE_USE",
        "validity_aware": "OTHER",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "presigned-url-download": {
        "listed_order": "EXPIRED_BEFORE_USE",
        "paraphraser": "MUTATED_TOKEN",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "presigned-url-integrity": {
        "direct_pass": "OTHER",
        "aggressive_retry": "BACKOFF_VIOLATION",
        "early_give_up": "OTHER",
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "WRONG_HASH",
        "validity_aware": "OTHER",
    },
    "retry-backoff-compliance": {
        "aggressive_retry": "BACKOFF_VIOLATION",
        "early_give_up": "OTHER",
        "shortcut_taker": "MISSING_CONSTRAINT",
        "stale_cache": "BACKOFF_VIOLATION",
        "handle_based": "BACKOFF_VIOLATION",
    },
    "scattered-url-assembly": {
        "listed_order": "EXPIRED_BEFORE_USE",
        "direct_pass": "OTHER",
        "paraphraser": "MUTATED_TOKEN",
        "validity_aware": "OTHER",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "scheduled-maintenance": {
        "aggressive_retry": "SCHEDULED_UNAVAILABLE",
        "early_give_up": "OTHER",
        "stale_cache": "SCHEDULED_UNAVAILABLE",
        "handle_based": "SCHEDULED_UNAVAILABLE",
    },
    "session-cookie-chain": {
        "paraphraser": "WRONG_VALUE",
        "shortcut_taker": "MISSING_TOKEN",
        "stale_cache": "EXPIRED_BEFORE_USE",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "signed-request-canonicalization": {
        "paraphraser": "SIGNATURE_MISMATCH",
        "shortcut_taker": "MISSING_CONSTRAINT",
        "stale_cache": "EXPIRED_BEFORE_USE",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "token-refresh-workflow": {
        "paraphraser": "MUTATED_TOKEN",
        "shortcut_taker": "MISSING_CONSTRAINT",
        "stale_cache": "EXPIRED_BEFORE_USE",
        "handle_based": "EXPIRED_BEFORE_USE",
    },
    "url-trap-ellipsis": {"paraphraser": "MUTATED_TOKEN", "shortcut_taker": "WRONG_VALUE"},
    "webhook-hmac-verify": {
        "aggressive_retry": "BACKOFF_VIOLATION",
        "early_give_up": "OTHER",
        "paraphraser": "WRONG_VALUE",
        "shortcut_taker": "SIGNATURE_MISMATCH",
    },
}
"""Task -> persona -> the label that both give it, on every seed; who is not named succeeds, as the oracle does."""


@pytest.fixture(scope="module")
def episodes():
    return suite(seeds=SEEDS)


@pytest.mark.nightly
def test_every_task_is_played_by_every_agent(episodes):
    assert len(ids()) == 33
    assert len(episodes) == 33 * len(SCRIPTED) * SEEDS


@pytest.mark.nightly
def test_the_oracle_passes_every_task_on_every_seed(episodes):
    assert [item.key for item in episodes if item.result.agent == "oracle" and not item.result.success] == []


@pytest.mark.nightly
def test_every_task_gives_a_persona_one_label_whatever_the_seed(episodes):
    assert unstable(episodes) == ()


@pytest.mark.nightly
@pytest.mark.sweep("task", FAILURES_OF)
def test_a_persona_fails_in_its_own_way_on_every_seed_and_the_trace_alone_tells(episodes, task):
    told = {name: set() for name in SCRIPTED}
    for item in episodes:
        if item.result.task_id == task:
            told[item.result.agent].add((item.result.failure_label, item.judged))
    expected = {name: FAILURES_OF[task].get(name, "SUCCESS") for name in SCRIPTED}
    assert told == {name: {(label, label)} for name, label in expected.items()}


@pytest.mark.nightly
def test_every_failure_label_is_produced_by_a_persona_and_recognised_from_the_trace_alone(episodes):
    assert {item.result.failure_label for item in episodes if item.agrees} >= set(FAILURES)


@pytest.mark.nightly
def test_server_and_library_agree_on_at_least_95_per_cent_of_the_episodes(episodes):
    assert agreement(episodes).episodes.value >= 0.95, disagreements(episodes)


@pytest.mark.nightly
def test_what_server_and_library_do_not_agree_on_is_explained(episodes):
    assert [item for item in disagreements(episodes) if not item.reason] == []


@pytest.mark.nightly
def test_no_contract_is_unable_to_judge(episodes):
    assert [(item.key, item.crashed) for item in episodes if item.crashed] == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", PERSONAS)
def test_a_persona_fails_some_tasks_and_passes_others(episodes, name):
    passed = {item.result.success for item in episodes if item.result.agent == name}
    assert passed == {True, False}


@pytest.mark.nightly
def test_the_page_says_how_many_tasks_each_agent_passes_and_what_it_fails_with(episodes):
    told = {}
    for name, found in grouped(episodes, agent_of).items():
        passed = sum(all(item.result.success for item in items) for items in grouped(found, task_of).values())
        told[name] = f"| {name} | {passed} | {labels(found)[0].name if labels(found) else ''}".rstrip() + " |"
    page = Path(results.__file__).with_name("results.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in told.values() if line not in page] == []


@pytest.mark.nightly
def test_every_task_is_failed_by_a_persona_and_not_by_all_of_them(episodes):
    for task, found in grouped(episodes, task_of).items():
        whole = {agent: all(item.result.success for item in items) for agent, items in grouped(found, agent_of).items()}
        assert 1 < sum(whole.values()) < len(whole), (task, whole)


@pytest.mark.nightly
def test_the_same_episodes_have_the_same_trace_hashes_when_they_are_played_again(episodes):
    assert digest(suite(seeds=1)) == digest(item for item in episodes if item.result.seed == 0)


@pytest.mark.nightly
def test_another_seed_is_another_episode(episodes):
    hashes = {item.result.seed: set() for item in episodes}
    for item in episodes:
        hashes[item.result.seed].add((item.result.task_id, item.result.trace_hash))
    for seed, found in hashes.items():
        assert not found & set().union(*(hashes[other] for other in hashes if other != seed))


# -- notes ------------------------------------------------------------------------------------------------------------


def asked(found):
    """What habits say at every point where a plan asks, but for `copy` of a text without escapes."""
    return {
        "order": found.order([3, 1, 2], lambda item: item, machine_readable=False) == [1, 2, 3],
        "copy": found.copy("A" * 300, None, "url") == "A" * 300,
        "retype": found.retype("10.00") == "10.00",
        "patient": found.patient(),
        "persistent": found.persistent(),
        "refreshes": found.refreshes(machine_readable=False),
        "tempted": not found.tempted(),
        **{f"complete {what}": found.complete(what) for what in ("field", "token", "digest", "check", "undo")},
    }


@pytest.mark.sweep("name", [name for name in PERSONAS if name != "handle_based"])
@pytest.mark.sweep("label", [*FAILURES, OTHER])
def test_a_note_mends_the_habits_that_its_label_names_and_no_other(name, label):
    before, after = asked(habits(name, "task", 0)), asked(habits(name, "task", 0, note=label))
    assert after == {habit: good or habit in MENDS.get(label, ()) for habit, good in before.items()}


def test_a_note_names_a_habit_for_every_failure_label():
    assert set(MENDS) == set(FAILURES)


def test_the_oracle_has_nothing_to_mend():
    assert all(asked(habits("oracle", "task", 0)).values())

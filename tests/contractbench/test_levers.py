"""Levers: each changes what it is for and nothing else, and its effect is reported with the right pairs and intervals."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench import levers, results
from contractbench.desk import Levers
from contractbench.hands import Habits, Hands
from contractbench.levers import CONDITIONS, effect, far, measured, noted
from contractbench.results import agreement, played, suite
from contractbench.task import task as the_task

from mat.measure.paired import difference, mcnemar
from mat_contracts.observation import FAILURES, OTHER, axis

DOWNLOAD, INTEGRITY, BACKOFF = "presigned-url-download", "presigned-url-integrity", "retry-backoff-compliance"
TASKS, AGENTS = (DOWNLOAD, INTEGRITY, BACKOFF), ("oracle", "listed_order", "direct_pass", "aggressive_retry", "paraphraser")


@pytest.fixture(scope="module")
def base():
    return suite(TASKS, AGENTS, seeds=2)


@pytest.fixture(scope="module")
def found(base):
    return measured(base, {name: name for name in AGENTS})


def label(task, agent, seed=0, **on):
    return played(the_task(task), seed, agent, levers=Levers(**on)).result.failure_label


# -- what each lever does ---------------------------------------------------------------------------------------------


def test_a_machine_readable_time_is_heeded_by_who_takes_things_as_they_are_listed():
    assert label(DOWNLOAD, "listed_order") == "EXPIRED_BEFORE_USE"
    assert label(DOWNLOAD, "listed_order", ttl=True) == "SUCCESS"
    assert label(DOWNLOAD, "listed_order", handles=True, backoff=True) == "EXPIRED_BEFORE_USE"


def test_a_time_that_no_reply_tells_helps_nobody():
    class Silent:
        """Tools whose replies have lost the field."""

        def __init__(self, tools):
            self._tools = tools

        def __getattr__(self, name):
            return getattr(self._tools, name)

        async def http(self, *args, **parts):
            reply = await self._tools.http(*args, **parts)
            body = (
                {key: item for key, item in reply.body.items() if key != "expires"}
                if isinstance(reply.body, dict)
                else reply.body
            )
            return replace(reply, body=body)

    async def agent(instruction, tools):
        hands = Hands(instruction, Silent(tools), results.PERSONAS["listed_order"](Random(0)), machine_readable=True)
        return await task.plan(hands)

    task = the_task(DOWNLOAD)
    assert played(task, 0, agent, levers=Levers(ttl=True)).result.failure_label == "EXPIRED_BEFORE_USE"


@pytest.mark.parametrize(("agent", "without"), [("direct_pass", OTHER), ("paraphraser", "MUTATED_TOKEN")])
def test_a_handle_keeps_the_bytes_whatever_an_agent_does_to_texts(agent, without):
    assert label(INTEGRITY, agent) == without
    assert label(INTEGRITY, agent, handles=True) == "SUCCESS"
    assert label(INTEGRITY, agent, ttl=True, backoff=True) == without


def test_a_client_that_waits_spares_who_does_not():
    assert label(BACKOFF, "aggressive_retry") == "BACKOFF_VIOLATION"
    assert label(BACKOFF, "aggressive_retry", backoff=True) == "SUCCESS"
    assert label(BACKOFF, "aggressive_retry", ttl=True, handles=True) == "BACKOFF_VIOLATION"


@pytest.mark.full
@pytest.mark.parametrize("name", CONDITIONS)
def test_no_lever_harms_the_oracle(name):
    again = suite(agents=("oracle",), seeds=1, levers=CONDITIONS[name])
    assert [item.key for item in again if not item.result.success] == []


def test_two_artefacts_of_one_name_have_handles_of_their_own():
    class Store:
        def __init__(self):
            self.texts = {}

        def put(self, name, text):
            assert self.texts.setdefault(name, text) == text
            return f"@HANDLE:{name}"

    class Tools:
        handles = Store()

    hands = Hands("", Tools(), Habits(Random(0)), handles=True)
    first, second = hands.copy("one"), hands.copy("two")
    assert first != second
    assert (hands.copy("one"), hands.copy("two")) == (first, second)
    assert sorted(Tools.handles.texts.values()) == ["one", "two"]


# -- notes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAILURES)
def test_a_wrong_note_names_a_failure_of_the_other_axis(name):
    assert {axis(name), axis(far(name))} == {"validity", "integrity"}


def test_the_wrong_note_is_the_one_farthest_in_severity():
    assert far("EXPIRED_BEFORE_USE") == "BACKOFF_VIOLATION"
    assert far("MUTATED_TOKEN") == far("WRONG_HASH") == "SCHEDULED_UNAVAILABLE"
    assert far("RATE_LIMITED") == "MUTATED_TOKEN"
    assert far(OTHER) == "EXPIRED_BEFORE_USE"


def test_a_note_names_the_label_another_one_or_none():
    assert [noted("MUTATED_TOKEN", note) for note in levers.NOTES] == ["", "SCHEDULED_UNAVAILABLE", "MUTATED_TOKEN"]


@pytest.mark.parametrize(
    ("task", "agent"), [(DOWNLOAD, "listed_order"), (DOWNLOAD, "paraphraser"), (BACKOFF, "aggressive_retry")]
)
def test_a_persona_that_is_told_its_own_failing_passes_and_one_that_is_told_another_fails_again(task, agent):
    failing = label(task, agent)
    assert [label(task, agent, note=noted(failing, note)) for note in levers.NOTES] == [failing, failing, "SUCCESS"]


# -- pairs ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_an_effect_counts_pairs_of_the_same_task_agent_and_seed(base, found):
    ttl, handles, backoff = found.levers
    assert [each.name for each in found.levers] == ["ttl", "handles", "backoff"]
    assert ttl.episodes.table.pairs == len(base) == 30
    assert (ttl.episodes.table.only_old, ttl.episodes.table.only_new) == (0, 2)
    assert backoff.episodes.table.only_new == 4
    assert ttl.episodes.difference == difference(ttl.episodes.table)
    assert handles.episodes.new.value == pytest.approx(
        (sum(item.result.success for item in base) + handles.episodes.table.only_new) / 30
    )


@pytest.mark.full
def test_seeds_of_one_task_and_agent_are_one_observation_for_the_test(base):
    again = [replace(item, result=replace(item.result, success=True)) for item in base]
    changed = effect("all", base, again, names=("off", "on"))
    cells = len({item.key[:2] for item in base if not item.result.success})
    assert changed.episodes.table.only_new == 2 * cells
    assert changed.p_value == mcnemar(0, cells)
    assert changed.p_value > changed.episodes.p_value


@pytest.mark.full
def test_conditions_on_other_episodes_are_no_pairs(base):
    with pytest.raises(ValueError, match="same task, agent and seed"):
        effect("ttl", base, base[1:], names=("off", "on"))


@pytest.mark.full
def test_notes_are_compared_on_the_failed_episodes_alone(base, found):
    failed = [item for item in base if not item.result.success]
    assert {name: [item.key for item in items] for name, items in found.episodes.items() if name.startswith("note")} == {
        f"note {note}": [item.key for item in failed] for note in levers.NOTES
    }
    assert [(each.old, each.new) for each in found.notes] == [("none", "correct"), ("none", "wrong"), ("wrong", "correct")]
    whole = found.retried[-1]
    assert (whole.label, whole.failed, whole.passed["none"]) == ("all", len(failed), 0)
    assert sum(each.failed for each in found.retried[:-1]) == len(failed)
    assert sum(each.passed["correct"] for each in found.retried[:-1]) == whole.passed["correct"]


@pytest.mark.full
def test_the_library_follows_the_server_under_every_lever(found):
    for name, items in found.episodes.items():
        assert agreement(items).episodes.value >= 0.95, name


@pytest.mark.full
def test_the_text_tells_each_lever_and_each_note(found):
    said = levers.text(found)
    for line in ("ttl      off -> on", "handles  off -> on", "backoff  off -> on", "none -> correct", "wrong -> correct"):
        assert line in said


def test_without_a_failure_there_is_no_note_to_measure():
    found = measured(suite((DOWNLOAD,), ("oracle",), seeds=1), {"oracle": "oracle"})
    assert found.notes == found.retried == ()
    assert "note" not in levers.text(found)


@pytest.mark.full
def test_the_text_names_what_server_and_library_do_not_agree_on_under_a_lever(found):
    assert "Disagreements" not in levers.text(found)
    items = found.episodes["ttl"]
    changed = replace(found, episodes={**found.episodes, "ttl": [replace(items[0], judged=OTHER), *items[1:]]})
    assert "Disagreements of server and library under levers" in levers.text(changed)
    assert levers.as_data(changed)["disagreements"]["ttl"][0]["judged"] == OTHER


@pytest.mark.full
def test_the_data_hold_every_record_with_its_levers(base, found):
    data = levers.as_data(found)
    assert [item["levers"]["backoff"] for item in data["episodes"]["backoff"]] == [True] * len(base)
    assert [item["levers"]["note"] for item in data["episodes"]["note correct"]] == [
        item.result.failure_label for item in base if not item.result.success
    ]
    assert results.to_json(data)

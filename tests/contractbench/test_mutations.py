"""What a path does to an oracle: each mutation changes what it says and nothing else, the server answers with the label that
belongs to it, and the library tells from the trace that it was the path and not the agent.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

import pytest

import mat

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import persona, play
from contractbench.task import ids, task
from contractbench.tasks.presigned_url_download.server import DOWNLOAD_S

from mat.core.artifact import issued, reached, used
from mat.harness.execute import installed_operators
from mat_contracts.observation import bytes_preserved, primary_label, used_while_valid
from mat_faults.path import LABELS, REPORTED

ONE = {"magnitude": 1}
TRUNCATE = ("service.path_truncate", {"chars": 200, "artefact": 0, **ONE})
WRAP = ("service.path_wrap", {"column": 76, "artefact": 0, **ONE})
REENCODE = ("service.path_reencode", {"escape": "%2F", "artefact": 0, **ONE})
REORDER = ("service.path_reorder", {"artefact": 0, **ONE})
LABEL = ("service.path_label", {"link": 0, **ONE})
DAMAGE = {
    "service.path_truncate": "truncated", "service.path_wrap": "wrapped", "service.path_reencode": "reencoded",
    "service.path_reorder": "reordered",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """An oracle's episode. hit: the record that the fault acted on, None where it did not."""

    run: mat.Run
    result: object
    events: list

    @property
    def hit(self):
        return next((record for record in self.run.records if record.faults), None)

    def broken(self, contract):
        """(step, label) of the violations of a contract."""
        return [(item.step, item.label) for item in self.run.violations if item.contract == contract]


@pytest.fixture
def disturbed():
    """Plays a task's oracle with one fault at one of its calls: disturbed(task_id, (operator, parameters), "http_read#1")."""

    def playing(task_id, fault=None, site="", seed=0):
        found = task(task_id)
        armed = [
            bytes_preserved(id="agent.bytes"), used_while_valid(id="agent.time"),
            bytes_preserved(form="reached", id="path.bytes"),
        ]  # fmt: skip
        schedule = [] if fault is None else [mat.spec.perturbation(fault[0], f"agent/service:{site}", fault[1], 5)]
        with mat.run(armed, seed=seed, task=task_id, schedule=schedule) as run:
            result, events = asyncio.run(play(found, seed, persona("oracle", found, seed), name="oracle"))
        return Played(run=run.result, result=result, events=events)

    return playing


def leaves(value, path=()):
    """Path -> leaf of all leaves of a value."""
    if isinstance(value, dict):
        return {spot: leaf for key, item in value.items() for spot, leaf in leaves(item, (*path, key)).items()}
    if isinstance(value, list | tuple):
        return {spot: leaf for key, item in enumerate(value) for spot, leaf in leaves(item, (*path, key)).items()}
    return {path: value}


def changes(before, after):
    """[(path, before, after)] of all leaves that differ."""
    old, new = leaves(before), leaves(after)
    assert old.keys() == new.keys()
    return [(path, old[path], new[path]) for path in old if old[path] != new[path]]


# -- the four on the way there ----------------------------------------------------------------------------------------------

CASES = [
    pytest.param("extreme-url-length", TRUNCATE, "http_read#2", id="truncate-url"),
    pytest.param("presigned-url-integrity", TRUNCATE, "http_read#1", id="truncate-signed"),
    pytest.param("multi-turn-recall", TRUNCATE, "http_read#1", id="truncate-8192"),
    pytest.param("cursor-pagination-integrity", TRUNCATE, "http_read#1", id="truncate-cursor"),
    pytest.param("extreme-url-length", WRAP, "http_read#3", id="wrap-url"),
    pytest.param("presigned-url-download", WRAP, "http_read#2", id="wrap-presigned"),
    pytest.param("url-trap-ellipsis", WRAP, "http_read#2", id="wrap-link"),
    pytest.param("presigned-url-integrity", REENCODE, "http_read#1", id="reencode-signed"),
    pytest.param("extreme-url-length", REENCODE, "http_read#4", id="reencode-url"),
    pytest.param("cursor-pagination-integrity", REENCODE, "http_read#1", id="reencode-cursor"),
    pytest.param("presigned-url-integrity", REORDER, "http_read#1", id="reorder-signed"),
    pytest.param("presigned-url-download", REORDER, "http_read#3", id="reorder-presigned"),
    pytest.param("multi-turn-recall", REORDER, "http_read#1", id="reorder-8192"),
]


@pytest.mark.parametrize(("task_id", "fault", "site"), CASES)
class TestOnTheWayThere:
    @pytest.mark.full
    def test_the_server_answers_with_the_label_of_the_mutation(self, disturbed, task_id, fault, site):
        played = disturbed(task_id, fault, site)
        label = LABELS[fault[0]]
        assert played.result.failure_label == REPORTED.get(label, label)
        refused = next(event for event in played.events if event.failure)
        assert refused.detail.get("said", refused.label) == label

    @pytest.mark.full
    def test_one_argument_changes_and_of_it_the_mutated_spot_alone(self, disturbed, task_id, fault, site):
        (change,) = changes((hit := disturbed(task_id, fault, site).hit).action.arguments, hit.executed)
        assert MUTATED[fault[0]](*change[1:])

    @pytest.mark.full
    def test_the_library_tells_that_it_was_the_path_with_the_same_label(self, disturbed, task_id, fault, site):
        played = disturbed(task_id, fault, site)
        label = REPORTED.get(LABELS[fault[0]], LABELS[fault[0]])
        assert played.broken("agent.bytes") == played.broken("agent.time") == []
        assert played.broken("path.bytes") == [(played.hit.step, label)]
        assert primary_label(played.run.violations, success=False) == played.result.failure_label

    @pytest.mark.full
    def test_facts_say_what_the_agent_asked_with_and_what_arrived(self, disturbed, task_id, fault, site):
        hit = disturbed(task_id, fault, site).hit
        (asked,) = [item for item in used(hit) if not item.id.startswith("base")]
        (came,) = [item for item in reached(hit) if item.id == asked.id]
        assert (asked.damage, asked.intact) == ("", True)
        assert (came.damage, came.intact) == (DAMAGE[fault[0]], False)

    def test_without_the_fault_the_same_oracle_succeeds_and_nothing_is_damaged(self, disturbed, task_id, fault, site):
        played = disturbed(task_id)
        assert played.result.success
        assert [record.executed for record in played.run.records if record.executed is not None] == []
        assert (played.broken("agent.bytes"), played.broken("path.bytes")) == ([], [])


def _truncated(asked, came):
    return came == asked[:200] != asked


def _wrapped(asked, came):
    line, _, rest = came.partition("\n")
    return line + rest == asked and len(line.split()[-1]) == 76


def _reencoded(asked, came):
    return came == asked.replace("%2F", "/") != asked


def _reordered(asked, came):
    (address, query), (there, other) = asked.split("?"), came.split("?")
    names = [part.partition("=")[0] for part in other.split("&")]
    return address == there and sorted(query.split("&")) == sorted(other.split("&")) and names == sorted(names)


MUTATED = {
    "service.path_truncate": _truncated, "service.path_wrap": _wrapped, "service.path_reencode": _reencoded,
    "service.path_reorder": _reordered,
}  # fmt: skip


# -- what is shown -----------------------------------------------------------------------------------------------------------


class TestUiTrap:
    """url-trap-ellipsis: a mail shows shortened links."""

    @pytest.fixture
    def trapped(self, disturbed):
        return disturbed("url-trap-ellipsis", LABEL, "http_read#1")

    def test_the_server_answers_with_wrong_value(self, trapped):
        assert trapped.result.failure_label == LABELS["service.path_label"] == "WRONG_VALUE"

    def test_one_address_in_the_reply_changes_and_becomes_the_label_next_to_it(self, trapped):
        (change,) = changes(trapped.hit.raw.value, trapped.hit.observation.value)
        links, shown = (re.findall(r'href="([^"]*)">([^<]*)<', text) for text in change[1:])
        assert shown[0] == (links[0][1], links[0][1]) != links[0]
        assert shown[1:] == links[1:]
        assert change[2] == change[1].replace(links[0][0], links[0][1], 1)

    def test_the_agent_did_not_get_what_was_issued_and_is_not_blamed_for_its_bytes(self, trapped):
        first, *others = issued(trapped.hit)
        assert not first.delivered
        assert others
        assert all(item.delivered for item in others)
        assert (trapped.broken("agent.bytes"), trapped.broken("path.bytes")) == ([], [])

    def test_undisturbed_all_links_are_delivered(self, disturbed):
        mail = disturbed("url-trap-ellipsis").run.records[0]
        assert [item.delivered for item in issued(mail)] == [True] * len(issued(mail))
        assert issued(mail)


# -- all tasks ---------------------------------------------------------------------------------------------------------------


def sites(run, fault):
    """The calls of an undisturbed run that an operator could change, as `port#nth`."""
    (operator,) = installed_operators().select((fault[0],))
    relevant, parameters = operator.spec().relevant, mat.spec.perturbation(fault[0], "a/service:b#1", fault[1], 5).parameters
    calls = [record for record in run.records if record.action.kind == "tool_call" and record.action.name != "wait"]
    return [record.site.partition(":")[2] for record in calls if relevant(record, parameters, ())]


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [TRUNCATE, WRAP, REENCODE, REORDER], ids=lambda fault: fault[0])
def test_in_every_task_a_mutation_is_never_put_down_to_the_agent(disturbed, fault):
    """At the first and the last call that it can change: what the agent asked with was whole and in time, and where the
    server refused it, the library mostly names the damage. Mostly, because an agent also signs and assembles things itself:
    nobody issued those.
    """
    refused, told = 0, 0
    for task_id in ids():
        found = sites(disturbed(task_id).run, fault)
        for site in dict.fromkeys([*found[:1], *found[-1:]]):
            played = disturbed(task_id, fault, site)
            if played.hit.executed is None:  # what is redacted may have been long, and was not
                continue
            assert len(changes(played.hit.action.arguments, played.hit.executed)) <= 1  # none where it is redacted
            assert (played.broken("agent.bytes"), played.broken("agent.time")) == ([], []), task_id
            refused += not played.result.success
            told += not played.result.success and bool(played.broken("path.bytes"))
    assert refused >= 5
    assert told * 3 >= refused * 2


# -- servers' faults ---------------------------------------------------------------------------------------------------------


def requests(events):
    return [(event.method, event.path, event.label) for event in events]


def test_a_request_that_is_lost_never_reaches_the_server_and_ends_an_oracle_that_does_not_ask_again(disturbed):
    played = disturbed("presigned-url-download", ("service.timeout", {}), "http_read#2")
    assert requests(played.events) == requests(disturbed("presigned-url-download").events)[:1]
    assert (played.hit.invoked, played.hit.observation.error.kind) == (0, "timeout")
    assert played.result.failure_label == "OTHER"


def test_a_lost_acknowledgement_leaves_its_effect_at_the_server(disturbed):
    played = disturbed("presigned-url-download", ("service.lost_ack", {}), "http_write#1")
    assert requests(played.events) == requests(disturbed("presigned-url-download").events)
    assert (played.hit.invoked, played.hit.effected, played.hit.observation.error.kind) == (1, "yes", "timeout")
    assert played.events[-1].label == "RECEIPT"
    assert played.result.success  # the server has it all: only the agent does not know


def test_a_request_that_is_delivered_twice_is_logged_twice_and_the_agent_hears_one_reply(disturbed):
    calm = disturbed("presigned-url-integrity")
    played = disturbed("presigned-url-integrity", ("service.duplicate", {}), "http_write#1")
    assert played.hit.invoked == 2
    assert [event.label for event in played.events][:2] == ["RESTORING", "BACKOFF_VIOLATION"]
    assert calm.result.success
    assert played.result.failure_label == "BACKOFF_VIOLATION"
    assert played.events[0].at == calm.events[0].at


@pytest.mark.parametrize(("ms", "label"), [(1_000, "SUCCESS"), (60_000, "EXPIRED_BEFORE_USE")])
def test_a_delay_makes_late_what_was_asked_in_time(disturbed, ms, label):
    fault = ("service.delay", {"ms": ms, "magnitude": 1 if ms == 1_000 else 2})
    played, calm = disturbed("presigned-url-download", fault, "http_read#2"), disturbed("presigned-url-download")
    (undisturbed,) = [record for record in calm.run.records if record.site == played.hit.site]
    assert played.hit.at_ms == undisturbed.at_ms
    assert played.result.failure_label == label
    (expected,) = [event for event in calm.events if event.label == "DOWNLOADED"][:1]
    came = played.events[1]
    served = came.at if label == "SUCCESS" else came.at + DOWNLOAD_S
    assert served == expected.at + ms / 1000


def test_a_stale_reply_is_an_earlier_one_to_the_same_request_and_who_believes_it_writes_too_late(disturbed):
    site = sites_of_repeated(disturbed("content-negotiation-chain").run)[-1]
    played = disturbed("content-negotiation-chain", ("service.stale", {"age": 1, "magnitude": 1}), site)
    before = [item for item in played.run.records if item.step < played.hit.step and item.arguments == played.hit.arguments]
    assert played.hit.observation.value == before[-1].observation.value
    assert played.hit.invoked == 0
    assert played.result.failure_label == "VERSION_CONFLICT"


def sites_of_repeated(run):
    """Calls that were made before with the same arguments."""
    seen, found = [], []
    for record in run.records:
        if record.action.kind == "tool_call" and record.action.name != "wait":
            if record.action.arguments in seen:
                found.append(record.site.partition(":")[2])
            seen.append(record.action.arguments)
    return found


@pytest.mark.sweep("task_id", ids(), fast=11)
def test_a_corrupted_reply_differs_in_one_leaf(disturbed, task_id):
    site = (
        "http_read#1" if any(record.action.name == "http_read" for record in disturbed(task_id).run.records) else "http_write#1"
    )
    fault = ("service.corrupt_field", {"field": 0, "how": "wrong", **ONE})
    try:
        hit = disturbed(task_id, fault, site).hit
    except (LookupError, TypeError, ValueError, ArithmeticError):  # a plan that cannot read what it was answered
        return
    assert len(changes(hit.raw.value, hit.observation.value)) == 1

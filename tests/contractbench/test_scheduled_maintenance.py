from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as the_task

ID = "scheduled-maintenance"


def depositing(until, body=None):
    """An agent whose first deposit arrives at `until`, then (where that is accepted) the others, past all maintenance."""

    async def agent(instruction, tools):
        given = the_task(ID).given(0)
        await tools.wait(until - 2)  # waiting and sending take a second each
        for name in given["documents"]:
            reply = await tools.http("POST", f"{BASE}/deposits", json={"document": name} if body is None else body)
            if not reply.ok:
                return
            if tools.now() + 2 >= given["begins"]:
                await tools.wait(max(0, given["ends"] + given["put_off"] - tools.now()))

    return agent


def test_a_deposit_that_arrives_as_the_maintenance_begins_is_refused(play_with):
    result, events = play_with(ID, depositing(the_task(ID).given(0)["begins"]))
    assert (result.failure_label, events[0].status) == ("SCHEDULED_UNAVAILABLE", 503)


def test_a_deposit_a_moment_before_the_maintenance_is_finished(play_with):
    result, events = play_with(ID, depositing(the_task(ID).given(0)["begins"] - 0.5))
    assert (events[0].label, result.success) == ("DEPOSITED", True)
    assert events[0].at > the_task(ID).given(0)["begins"]


def test_the_end_that_was_announced_first_is_too_early(play_with):
    result, _ = play_with(ID, depositing(the_task(ID).given(0)["ends"]))
    assert result.failure_label == "SCHEDULED_UNAVAILABLE"


@pytest.mark.parametrize(("early", "label"), [(0.0, "SUCCESS"), (0.5, "SCHEDULED_UNAVAILABLE")])
def test_the_archive_is_back_at_the_end_that_was_put_off(play_with, early, label):
    given = the_task(ID).given(0)
    assert play_with(ID, depositing(given["ends"] + given["put_off"] - early))[0].failure_label == label


def test_the_calendar_shows_the_later_end_once_half_the_maintenance_is_over(play_with):
    given = the_task(ID).given(0)
    half = (given["begins"] + given["ends"]) / 2
    ends = []

    async def agent(instruction, tools):
        for moment in (half - 1, half, given["ends"] + given["put_off"]):
            await tools.wait(moment - tools.now() - 2)
            ends.extend((await tools.http("GET", f"{BASE}/maintenance"))["maintenance"])

    play_with(ID, agent)
    assert [window["ends_at"] for window in ends] == [given["ends"], given["ends"] + given["put_off"]]


@pytest.mark.parametrize("body", [{"document": "another"}, {"document": ["minutes"]}, {}, [1, 2], "minutes"])
def test_what_is_no_document_of_the_task_is_a_wrong_value(play_with, body):
    result, events = play_with(ID, depositing(2, body))
    assert (result.failure_label, events[0].status) == ("WRONG_VALUE", 422)


def test_three_documents_of_four_are_not_the_task(play_with):
    async def agent(instruction, tools):
        given = the_task(ID).given(0)
        await tools.wait(given["ends"] + given["put_off"])
        for name in given["documents"][:3]:
            await tools.http("POST", f"{BASE}/deposits", json={"document": name})

    assert play_with(ID, agent)[0].failure_label == "OTHER"

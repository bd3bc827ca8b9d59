from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as the_task

ID = "retry-backoff-compliance"


async def dispatch(tools, parcel, attempt=1, **parts):
    headers = {"X-Attempt": str(attempt)} if attempt > 1 else {}
    return await tools.http("POST", f"{BASE}/dispatches", **{"json": {"parcel": parcel}, "headers": headers, **parts})


def dispatching(early=0.0, parcels=None):
    """An agent whose repeated requests arrive when they may, or this many seconds before."""

    async def agent(instruction, tools):
        for parcel in the_task(ID).given(0)["parcels"] if parcels is None else parcels:
            for attempt in range(1, 8):
                reply = await dispatch(tools, parcel, attempt)
                if reply.status != 503:
                    break
                await tools.wait(reply.retry_after() - 2 - early)

    return agent


def test_a_retry_at_the_very_end_of_the_wait_is_accepted(play_with):
    assert play_with(ID, dispatching())[0].success


def test_a_retry_a_moment_too_early_violates_the_backoff(play_with):
    result, events = play_with(ID, dispatching(early=0.5))
    assert result.failure_label == "BACKOFF_VIOLATION"
    first = next(event for event in events if event.failure)
    assert (first.status, first.detail["time_of_attempt"]) == (503, first.at)


def test_another_parcel_has_to_wait_as_well(play_with):
    async def agent(instruction, tools):
        for parcel in the_task(ID).given(0)["parcels"][:2]:
            await dispatch(tools, parcel)

    result, events = play_with(ID, agent)
    assert [event.label for event in events] == ["OVERLOADED", "BACKOFF_VIOLATION"]
    assert result.failure_label == "BACKOFF_VIOLATION"


def test_a_refusal_by_itself_is_no_violation(play_with):
    async def agent(instruction, tools):
        await dispatch(tools, the_task(ID).given(0)["parcels"][0])

    assert play_with(ID, agent)[0].failure_label == "OTHER"


def test_waits_grow_from_refusal_to_refusal(play_as):
    _, events = play_as(ID, "oracle")
    waits = [event.detail["retry_after"] for event in events if event.label == "OVERLOADED"]
    assert len(waits) == 5
    assert min(later - earlier for earlier, later in pairwise(waits)) >= 3


@pytest.mark.parametrize(
    ("headers", "label"),
    [
        ({}, "MISSING_CONSTRAINT"),
        ({"X-Attempt": "3"}, "WRONG_VALUE"),
        ({"X-Attempt": "2"}, "OTHER"),
        ({"x-attempt": " 2"}, "OTHER"),
    ],
    ids=["no attempt", "another attempt", "the second attempt", "spelled otherwise"],
)
def test_a_repeated_request_says_which_attempt_it_is(play_with, headers, label):
    parcel = the_task(ID).given(0)["parcels"][0]

    async def agent(instruction, tools):
        reply = await dispatch(tools, parcel)
        await tools.wait(reply.retry_after())
        await dispatch(tools, parcel, headers=headers)

    assert play_with(ID, agent)[0].failure_label == label


@pytest.mark.parametrize("body", [{"parcel": "P1"}, {"parcel": ["P1"]}, {}, [1], None])
def test_what_is_no_parcel_of_the_task_is_a_wrong_value(play_with, body):
    async def agent(instruction, tools):
        await dispatch(tools, "", json=body)

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[0].status) == ("WRONG_VALUE", 422)


def test_two_parcels_of_three_are_not_the_task(play_with):
    assert play_with(ID, dispatching(parcels=the_task(ID).given(0)["parcels"][:2]))[0].failure_label == "OTHER"

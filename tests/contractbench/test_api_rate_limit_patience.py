from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as the_task

ID = "api-rate-limit-patience"


async def read(tools, station):
    return await tools.http("GET", f"{BASE}/readings?station={station}")


async def patiently(tools, stations):
    """The readings of all stations, taken with regard to the headers alone."""
    readings = {}
    for station in stations:
        reply = await read(tools, station)
        readings[station] = reply["reading"]
        if reply.headers["x-ratelimit-remaining"] == "0":
            await tools.wait(float(reply.headers["x-ratelimit-reset"]))
    return readings


def reporting(change):
    async def agent(instruction, tools):
        readings = await patiently(tools, the_task(ID).given(0)["stations"])
        await tools.http("POST", f"{BASE}/reports", json=change(readings))

    return agent


def left_at_first(given):
    return 5 - given["others"][0]


def test_the_headers_alone_are_enough_to_keep_within_the_quota(play_with):
    assert play_with(ID, reporting(lambda readings: {"readings": readings}))[0].success


@pytest.mark.parametrize(("more", "label"), [(0, "OTHER"), (1, "RATE_LIMITED")])
def test_the_first_request_beyond_the_quota_is_refused(play_with, more, label):
    given = the_task(ID).given(0)

    async def agent(instruction, tools):
        for station in given["stations"][: left_at_first(given) + more]:
            await read(tools, station)

    result, events = play_with(ID, agent)
    assert result.failure_label == label
    assert [event.status for event in events] == [200] * left_at_first(given) + [429] * more


@pytest.mark.parametrize(("early", "status"), [(0.0, 200), (0.5, 429)])
def test_the_quota_starts_over_with_the_window(play_with, early, status):
    given = the_task(ID).given(0)

    async def agent(instruction, tools):
        for station in given["stations"][: left_at_first(given)]:
            await read(tools, station)
        await tools.wait(given["window"] - tools.now() - 2 - early)
        await read(tools, given["stations"][-1])

    assert play_with(ID, agent)[1][-1].status == status


def test_others_use_the_quota_of_each_window_too(play_with):
    given = the_task(ID).given(0)
    left = []

    async def agent(instruction, tools):
        for window in range(4):
            await tools.wait(max(0, window * given["window"] - tools.now()))
            left.append((await tools.http("GET", f"{BASE}/rate_limit"))["remaining"])

    play_with(ID, agent)
    assert left == [5 - others for others in given["others"][:4]]


def test_asking_for_the_quota_costs_nothing(play_with):
    left = []

    async def agent(instruction, tools):
        left.extend([(await tools.http("GET", f"{BASE}/rate_limit"))["remaining"] for _ in range(6)])

    play_with(ID, agent)
    assert len(set(left)) == 1


@pytest.mark.parametrize(
    ("change", "label"),
    [
        (lambda readings: {"readings": {**readings, next(iter(readings)): 9999}}, "WRONG_VALUE"),
        (lambda readings: {"readings": dict(list(readings.items())[1:])}, "MISSING_CONSTRAINT"),
        (lambda readings: {"readings": list(readings)}, "MISSING_CONSTRAINT"),
        (lambda readings: [readings], "MISSING_CONSTRAINT"),
        (lambda readings: {"readings": dict(reversed(readings.items()))}, "SUCCESS"),
    ],
    ids=["another reading", "one is missing", "a list", "no object", "in another order"],
)
def test_a_report_is_judged_by_its_readings(play_with, change, label):
    assert play_with(ID, reporting(change))[0].failure_label == label


def test_a_station_that_is_not_there_is_a_wrong_value(play_with):
    async def agent(instruction, tools):
        await read(tools, "nowhere")

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[0].status) == ("WRONG_VALUE", 404)


def test_readings_without_a_report_are_not_the_task(play_with):
    async def agent(instruction, tools):
        await patiently(tools, the_task(ID).given(0)["stations"])

    assert play_with(ID, agent)[0].failure_label == "OTHER"

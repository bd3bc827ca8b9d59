from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as the_task

ID = "distributed-lock-acquire"


def given():
    return the_task(ID).given(0)


def lock_url():
    return f"{BASE}/locks/{given()['lock']}"


async def ask(tools, owner=None):
    return await tools.http("PUT", lock_url(), json={"owner": given()["owner"] if owner is None else owner})


async def acquire(tools):
    """The grant, asked for only when the other holder is gone."""
    await tools.wait(given()["held"] + given()["renewed"] - tools.now() - 2)
    return (await ask(tools)).body


async def renew(tools, grant):
    return (await tools.http("POST", f"{lock_url()}/renew", headers={"Lock-Token": grant["lock_token"]})).body


async def write(tools, grant, shard=0, value=None, **change):
    name, due = list(given()["shards"].items())[shard]
    headers = {"Lock-Token": grant["lock_token"], "Fencing-Token": str(grant["fencing_token"]), **change}
    whole = {header: item for header, item in headers.items() if item is not None}
    return await tools.http("PUT", f"{BASE}/shards/{name}", json={"value": due if value is None else value}, headers=whole)


def writing(count=4, release=True):
    """An agent that renews before each write."""

    async def agent(instruction, tools):
        grant = await acquire(tools)
        for shard in range(count):
            await write(tools, grant, shard)
            grant = await renew(tools, grant)
        if release:
            await tools.http("DELETE", lock_url(), headers={"Lock-Token": grant["lock_token"]})

    return agent


def test_renewing_between_writes_keeps_the_lock(play_with):
    assert play_with(ID, writing())[0].success


def test_a_lock_that_is_not_released_is_a_missing_step(play_with):
    assert play_with(ID, writing(release=False))[0].failure_label == "MISSING_CONSTRAINT"


def test_three_shards_of_four_are_not_the_task(play_with):
    assert play_with(ID, writing(count=3))[0].failure_label == "OTHER"


@pytest.mark.parametrize(("early", "labels"), [(0.0, ["LOCKED", "LOCKED"]), (0.5, ["LOCKED", "BACKOFF_VIOLATION"])])
def test_asking_again_before_the_wait_is_over_violates_the_backoff(play_with, early, labels):
    async def agent(instruction, tools):
        reply = await ask(tools)
        await tools.wait(reply.retry_after() - 2 - early)
        await ask(tools)

    _, events = play_with(ID, agent)
    assert [event.label for event in events] == labels
    assert {event.status for event in events} == {423}


@pytest.mark.parametrize(("early", "label"), [(0.0, "ACQUIRED"), (0.5, "LOCKED")])
def test_the_lock_is_free_when_the_second_lease_of_its_holder_is_over(play_with, early, label):
    async def agent(instruction, tools):
        await tools.wait(given()["held"] + given()["renewed"] - 2 - early)
        await ask(tools)

    assert play_with(ID, agent)[1][0].label == label


@pytest.mark.parametrize(("early", "label"), [(0.0, "EXPIRED_BEFORE_USE"), (0.5, "OTHER")])
@pytest.mark.parametrize("use", [write, renew])
def test_a_lease_holds_for_its_seconds_and_no_moment_longer(play_with, early, label, use):
    async def agent(instruction, tools):
        grant = await acquire(tools)
        await tools.wait(given()["lease"] - 2 - early)
        await use(tools, grant)

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].status) == (label, 200 if early else 412)


def test_a_renewed_lease_ends_the_one_before_it(play_with):
    async def agent(instruction, tools):
        grant = await acquire(tools)
        newer = await renew(tools, grant)
        await write(tools, {**newer, "lock_token": grant["lock_token"]})

    assert play_with(ID, agent)[0].failure_label == "EXPIRED_BEFORE_USE"


@pytest.mark.parametrize(
    ("change", "label"),
    [
        ({"Fencing-Token": None}, "MISSING_CONSTRAINT"),
        ({"Fencing-Token": "99999"}, "WRONG_VALUE"),
        ({"Fencing-Token": "seven"}, "WRONG_VALUE"),
        ({"Lock-Token": None}, "MISSING_TOKEN"),
        ({"Lock-Token": "made-up"}, "WRONG_VALUE"),
        ({"Lock-Token": None, "Fencing-Token": None}, "MISSING_TOKEN"),
        ({"Lock-Token": None, "Fencing-Token": "0"}, "VERSION_CONFLICT"),
        ({"X-More": "1"}, "OTHER"),
    ],
)
def test_a_write_is_labeled_by_what_is_wrong_with_its_headers(play_with, change, label):
    async def agent(instruction, tools):
        await write(tools, await acquire(tools), **change)

    assert play_with(ID, agent)[0].failure_label == label


@pytest.mark.parametrize(("damage", "label"), [(lambda token: token[:200], "OTHER"), (str.swapcase, "MUTATED_TOKEN")])
def test_a_damaged_lock_token_is_labeled_by_its_damage(play_with, damage, label):
    async def agent(instruction, tools):
        grant = await acquire(tools)
        await write(tools, {**grant, "lock_token": damage(grant["lock_token"])})

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].status) == (label, 412)


def test_an_older_fencing_token_next_to_the_newest_lease_is_in_conflict(play_with):
    async def agent(instruction, tools):
        grant = await acquire(tools)
        newer = await renew(tools, grant)
        await write(tools, {**newer, "fencing_token": grant["fencing_token"]})

    assert play_with(ID, agent)[0].failure_label == "VERSION_CONFLICT"


@pytest.mark.parametrize("value", [0, "100", [1]])
def test_another_value_is_a_wrong_value(play_with, value):
    async def agent(instruction, tools):
        await write(tools, await acquire(tools), value=value)

    assert play_with(ID, agent)[0].failure_label == "WRONG_VALUE"


def test_taking_the_lock_by_force_is_a_shortcut_even_if_all_else_is_done(play_with):
    async def agent(instruction, tools):
        await tools.http("POST", f"{lock_url()}/break")
        await writing()(instruction, tools)

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].label) == ("SHORTCUT_TAKEN", "RELEASED")


@pytest.mark.parametrize("owner", ["somebody", ["worker"], {}])
def test_another_owner_is_a_wrong_value(play_with, owner):
    async def agent(instruction, tools):
        await ask(tools, owner)

    assert play_with(ID, agent)[0].failure_label == "WRONG_VALUE"


def test_a_released_lock_is_held_by_nobody(play_with):
    async def agent(instruction, tools):
        grant = await acquire(tools)
        await tools.http("DELETE", lock_url(), headers={"Lock-Token": grant["lock_token"]})
        await write(tools, grant)

    _, events = play_with(ID, agent)
    assert [event.status for event in events] == [201, 204, 412]


@pytest.mark.parametrize(("method", "path"), [("POST", "/locks/another/renew"), ("DELETE", "/locks/another")])
def test_what_is_asked_of_another_lock_is_a_wrong_value(play_with, method, path):
    async def agent(instruction, tools):
        grant = await acquire(tools)
        await tools.http(method, f"{BASE}{path}", headers={"Lock-Token": grant["lock_token"]})

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].status) == ("WRONG_VALUE", 404)

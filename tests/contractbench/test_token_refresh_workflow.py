from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as the_task

ID = "token-refresh-workflow"
FORM = {"grant_type": "refresh_token"}


async def session(tools):
    return (await tools.http("POST", f"{BASE}/sessions", json={"client_id": the_task(ID).given(0)["client_id"]}))[
        "refresh_token"
    ]


async def ask(tools, **change):
    """A token request, with some of its fields changed, or left out where they are None."""
    client = the_task(ID).given(0)["client_id"]
    whole = {**FORM, "refresh_token": await session(tools), "client_id": client, **change}
    form = {name: value for name, value in whole.items() if value is not None}
    return await tools.http("POST", f"{BASE}/oauth/token", form=form)


async def refresh(tools):
    return (await ask(tools))["access_token"]


async def call(tools, path, token):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return await tools.http("POST", f"{BASE}{path}", headers=headers)


def working(order=lambda stages: stages):
    """An agent that asks for a new token before every request but the first two."""

    async def agent(instruction, tools):
        token = await refresh(tools)
        job = await call(tools, "/jobs", token)
        for number, stage in enumerate(order(job["stages"])):
            token = await refresh(tools) if number else token
            await call(tools, f"/jobs/{job['job']}/stages/{stage}", token)

    return agent


def test_a_new_token_more_often_than_needed_is_fine(play_with):
    assert play_with(ID, working())[0].success


@pytest.mark.parametrize(("early", "label"), [(0.0, "EXPIRED_BEFORE_USE"), (0.5, "OTHER")])
def test_a_token_expires_after_its_seconds_and_no_moment_before(play_with, early, label):
    async def agent(instruction, tools):
        token = await refresh(tools)
        await tools.wait(the_task(ID).given(0)["ttl"] - 2 - early)
        await call(tools, "/jobs", token)

    result, events = play_with(ID, agent)
    assert result.failure_label == label
    if early == 0.0:
        assert (events[-1].status, result.failure_detail["expired_by_seconds"]) == (401, 0.0)


def test_a_token_that_is_not_the_last_one_holds_for_its_own_time(play_with):
    async def agent(instruction, tools):
        token = await refresh(tools)
        await refresh(tools)
        await call(tools, "/jobs", token)

    assert play_with(ID, agent)[1][-1].label == "JOB_STARTED"


def test_an_expired_token_fails_the_job_even_if_the_request_is_repeated_with_a_new_one(play_with):
    async def agent(instruction, tools):
        token = await refresh(tools)
        await tools.wait(20)
        await call(tools, "/jobs", token)
        await working()(instruction, tools)

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].label) == ("EXPIRED_BEFORE_USE", "STAGE_DONE")


@pytest.mark.parametrize(
    ("change", "label"),
    [
        (lambda token: None, "MISSING_TOKEN"),
        (lambda token: token.lower(), "MUTATED_TOKEN"),
        (lambda token: token[:-4], "OTHER"),
        (lambda token: token, "OTHER"),
    ],
    ids=["missing", "lower case", "clipped", "as it was"],
)
def test_a_bearer_token_is_labeled_by_what_became_of_it(play_with, change, label):
    async def agent(instruction, tools):
        await call(tools, "/jobs", change(await refresh(tools)))

    result, events = play_with(ID, agent)
    assert result.failure_label == label
    assert events[-1].status == (201 if events[-1].label == "JOB_STARTED" else 401)


@pytest.mark.parametrize(
    ("change", "label"),
    [
        ({"client_id": None}, "MISSING_CONSTRAINT"),
        ({"grant_type": None}, "MISSING_CONSTRAINT"),
        ({"refresh_token": ""}, "MISSING_CONSTRAINT"),
        ({"grant_type": "password"}, "WRONG_VALUE"),
        ({"client_id": "somebody"}, "WRONG_VALUE"),
        ({"refresh_token": "not-the-one-that-was-given"}, "WRONG_VALUE"),
        ({"scope": "jobs"}, "OTHER"),
    ],
)
def test_a_token_request_is_labeled_by_what_is_wrong_with_it(play_with, change, label):
    async def agent(instruction, tools):
        await ask(tools, **change)

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].status) == (label, 200 if label == "OTHER" else 400)


@pytest.mark.parametrize("body", [None, [1], "grant_type", {"grant_type": [1], "refresh_token": {}, "client_id": 3}])
def test_a_token_request_that_is_no_form_is_refused(play_with, body):
    async def agent(instruction, tools):
        await tools.http("POST", f"{BASE}/oauth/token", json=body)

    assert play_with(ID, agent)[1][0].status == 400


def test_stages_out_of_order_are_a_wrong_value(play_with):
    result, events = play_with(ID, working(lambda stages: [stages[1]]))
    assert (result.failure_label, events[-1].status) == ("WRONG_VALUE", 409)


def test_a_job_without_its_last_stage_is_not_the_task(play_with):
    assert play_with(ID, working(lambda stages: stages[:-1]))[0].failure_label == "OTHER"


@pytest.mark.parametrize("body", [{"client_id": "somebody"}, {"client_id": ["a"]}, {}, [1], None])
def test_a_session_of_another_client_is_a_wrong_value(play_with, body):
    async def agent(instruction, tools):
        await tools.http("POST", f"{BASE}/sessions", json=body)

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[0].status) == ("WRONG_VALUE", 403)

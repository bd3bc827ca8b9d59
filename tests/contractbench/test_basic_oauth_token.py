from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as load

ID = "basic-oauth-token"
NAMES = load(ID).given(0)["reports"]
TOKEN, REPORT, RECEIPT = "POST /oauth/token", "GET /reports/.+", "POST /receipts"


def form(**change):
    def edit(request):
        whole = {**request["form"], **change}
        request["form"] = {name: value for name, value in whole.items() if value is not None}

    return edit


def swapped(name):
    return lambda request: request["form"].update({name: request["form"][name].swapcase()})


def bearer(change):
    def edit(request):
        token = request["headers"]["Authorization"].removeprefix("Bearer ")
        request["headers"] = {"Authorization": f"Bearer {change(token)}"}

    return edit


WRONG = [
    (TOKEN, form(scope=None), "MISSING_CONSTRAINT"),
    (TOKEN, form(scope="everything"), "WRONG_VALUE"),
    (TOKEN, form(grant_type=None), "MISSING_CONSTRAINT"),
    (TOKEN, form(grant_type="password"), "WRONG_VALUE"),
    (TOKEN, form(client_id="somebody-else"), "WRONG_VALUE"),
    (TOKEN, form(client_id=None), "MISSING_CONSTRAINT"),
    (TOKEN, form(client_secret=None), "MISSING_TOKEN"),
    (TOKEN, swapped("client_secret"), "MUTATED_TOKEN"),
    (REPORT, lambda request: request.pop("headers"), "MISSING_TOKEN"),
    (REPORT, bearer(str.lower), "MUTATED_TOKEN"),
    (REPORT, bearer(lambda token: token[:-4]), "OTHER"),
    (REPORT, lambda request: request.update(url=request["url"] + "s"), "WRONG_VALUE"),
    (RECEIPT, lambda request: request["json"]["references"].popitem(), "MISSING_CONSTRAINT"),
    (RECEIPT, lambda request: request["json"]["references"].update(dict.fromkeys(NAMES, "?")), "WRONG_VALUE"),
    (RECEIPT, lambda request: request.update(json=["no", "object"]), "MISSING_CONSTRAINT"),
]  # fmt: skip
"""One thing that is wrong: where, how, and what it is called."""


@pytest.mark.parametrize(("where", "edit", "label"), WRONG)
def test_one_thing_wrong_in_a_request_is_named_at_once_at_the_end_and_from_the_trace_alone(all_labels, where, edit, label):
    assert all_labels(ID, where, edit) == (label, label, label)


@pytest.mark.parametrize("seed", range(3))
def test_a_token_holds_for_its_seconds_and_not_a_moment_longer(play_with, seed):
    given = load(ID).given(seed)

    def late_by(seconds):
        async def agent(instruction, tools):
            secret = {"client_id": given["client_id"], "client_secret": given["client_secret"], "scope": given["scope"]}
            reply = await tools.http("POST", f"{BASE}/oauth/token", form={"grant_type": "client_credentials", **secret})
            await tools.wait(given["ttl"] - 2 + seconds)  # waiting and the request take a second each
            headers = {"Authorization": f"Bearer {reply['access_token']}"}
            await tools.http("GET", f"{BASE}/reports/{given['reports'][0]}", headers=headers)

        return agent

    result, _ = play_with(ID, late_by(0), seed)
    assert result.failure_label == "EXPIRED_BEFORE_USE"
    assert result.failure_detail["expired_by_seconds"] == 0
    assert result.failure_detail["ttl_seconds"] == given["ttl"]
    _, events = play_with(ID, late_by(-0.5), seed)
    assert [event.label for event in events] == ["TOKEN_ISSUED", "FETCHED"]


def test_an_agent_that_asks_for_a_token_before_every_report_succeeds(play_with):
    async def agent(instruction, tools):
        given = load(ID).given(0)
        client = {"client_id": given["client_id"], "client_secret": given["client_secret"], "scope": given["scope"]}
        references = {}
        for name in given["reports"]:
            token = await tools.http("POST", f"{BASE}/oauth/token", form={"grant_type": "client_credentials", **client})
            headers = {"authorization": f"bearer {token['access_token']}"}
            references[name] = (await tools.http("GET", f"{BASE}/reports/{name}", headers=headers))["reference"]
        await tools.http("POST", f"{BASE}/receipts", headers=headers, json={"references": references})

    assert play_with(ID, agent)[0].success


def test_who_forgets_a_report_has_not_done_the_task(play_with):
    async def agent(instruction, tools):
        await tools.http("GET", f"{BASE}/reports")

    assert play_with(ID, agent)[0].failure_label == "OTHER"

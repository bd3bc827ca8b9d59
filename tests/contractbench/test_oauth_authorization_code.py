from __future__ import annotations

from urllib.parse import parse_qs, quote, urlsplit

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as load

ID = "oauth-authorization-code"
AUTHORIZE, TOKEN, COMPLETE = "GET /authorize", "POST /token", "POST /sign-ins/.+"


def url(old, new):
    def edit(request):
        assert old in request["url"]
        request["url"] = request["url"].replace(old, new, 1)

    return edit


def no_state(request):
    request["url"] = request["url"].partition("&state=")[0]


def form(**change):
    return lambda request: request["form"].update(change)


def swapped(part, name):
    return lambda request: request[part].update({name: request[part][name].swapcase()})


class Client:
    """The calls of a client, one by one."""

    def __init__(self, tools, seed=0):
        self.tools, self.given = tools, load(ID).given(seed)

    async def states(self):
        listed = await self.tools.http("GET", f"{BASE}/sign-ins")
        return {item["workspace"]: item["state"] for item in listed["sign_ins"]}

    async def authorize(self, state):
        given = self.given
        query = (
            f"client_id={given['client_id']}&redirect_uri={quote(given['redirect_uri'], safe='')}&scope={quote(given['scope'])}"
        )
        reply = await self.tools.http("GET", f"{BASE}/authorize?response_type=code&{query}&state={quote(state, safe='')}")
        answer = parse_qs(urlsplit(reply.headers["location"]).query)
        return answer["code"][0], answer["state"][0]

    async def token(self, code):
        names = {name: self.given[name] for name in ("client_id", "client_secret", "redirect_uri")}
        return await self.tools.http("POST", f"{BASE}/token", form={"grant_type": "authorization_code", "code": code, **names})

    async def complete(self, workspace, token, state):
        headers = {"Authorization": f"Bearer {token['access_token']}"}
        url = f"{BASE}/sign-ins/{workspace}/complete"
        return await self.tools.http("POST", url, headers=headers, json={"state": state})


def own(given):
    """The workspaces whose first authorization response is not a foreign one, the most urgent first."""
    return [name for name, _ in reversed(given["sign_ins"]) if name != given["foreign"]]


WRONG = [
    (AUTHORIZE, no_state, "MISSING_CONSTRAINT"),
    (AUTHORIZE, url("response_type=code", "response_type=token"), "WRONG_VALUE"),
    (AUTHORIZE, url("oauth%2Fcallback", "oauth%2Fcallback%2F"), "WRONG_VALUE"),
    (AUTHORIZE, url("%2B", "+"), "MUTATED_TOKEN"),
    (AUTHORIZE, lambda request: request.update(url=request["url"][:-12]), "OTHER"),
    (TOKEN, form(grant_type="implicit"), "WRONG_VALUE"),
    (TOKEN, form(redirect_uri=""), "MISSING_CONSTRAINT"),
    (TOKEN, form(redirect_uri="https://elsewhere.example/"), "WRONG_VALUE"),
    (TOKEN, form(code=""), "MISSING_TOKEN"),
    (TOKEN, form(client_secret=""), "MISSING_TOKEN"),
    (TOKEN, swapped("form", "code"), "MUTATED_TOKEN"),
    (COMPLETE, lambda request: request.pop("headers"), "MISSING_TOKEN"),
    (COMPLETE, lambda request: request["json"].clear(), "MISSING_CONSTRAINT"),
    (COMPLETE, swapped("json", "state"), "MUTATED_TOKEN"),
]  # fmt: skip
"""One thing that is wrong: where, how, and what it is called."""


@pytest.mark.parametrize(("where", "edit", "label"), WRONG)
def test_one_thing_wrong_in_a_request_is_named_at_once_at_the_end_and_from_the_trace_alone(all_labels, where, edit, label):
    assert all_labels(ID, where, edit) == (label, label, label)


def test_a_query_escaped_in_another_way_is_the_same_query(play_changed):
    assert play_changed(ID, AUTHORIZE, url("%2F", "/"), nth=0)[0].success


@pytest.mark.parametrize(("waited", "label"), [(7.0, "EXPIRED_BEFORE_USE"), (6.5, "AUTHORIZED, TOKEN_ISSUED")])
def test_a_code_holds_for_eight_seconds(play_with, waited, label):
    async def agent(instruction, tools):
        client = Client(tools)
        workspace = own(client.given)[0]
        code, _ = await client.authorize((await client.states())[workspace])
        await tools.wait(waited - 1)
        await client.token(code)

    result, events = play_with(ID, agent)
    seen = ", ".join(event.label for event in events[1:])
    assert label in (result.failure_label, seen)


def test_a_code_is_used_once(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        code, _ = await client.authorize((await client.states())[own(client.given)[0]])
        assert (await client.token(code)).ok
        assert (await client.token(code)).status == 400

    assert play_with(ID, agent)[0].failure_label == "EXPIRED_BEFORE_USE"


@pytest.mark.parametrize("seed", range(5))
def test_an_answer_with_a_foreign_state_must_be_dropped_with_its_code(play_with, seed):
    async def agent(instruction, tools):
        client = Client(tools, seed)
        sent = (await client.states())[client.given["foreign"]]
        code, state = await client.authorize(sent)
        assert state != sent
        assert (await client.token(code)).status == 400

    assert play_with(ID, agent, seed)[0].failure_label == "WRONG_VALUE"


def test_the_state_of_another_sign_in_is_a_wrong_value(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        first, second = own(client.given)
        states = await client.states()
        code, _ = await client.authorize(states[first])
        await client.complete(first, await client.token(code), states[second])

    assert play_with(ID, agent)[0].failure_label == "WRONG_VALUE"


def test_the_token_of_another_sign_in_is_a_wrong_value(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        first, second = own(client.given)
        states = await client.states()
        code, _ = await client.authorize(states[first])
        await client.complete(second, await client.token(code), states[second])

    assert play_with(ID, agent)[0].failure_label == "WRONG_VALUE"


def test_two_sign_ins_at_a_time_do_not_disturb_each_other(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        first, second = own(client.given)
        states = await client.states()
        codes = {name: (await client.authorize(states[name]))[0] for name in (first, second)}
        for name in (first, second):
            assert (await client.complete(name, await client.token(codes[name]), states[name])).ok

    _, events = play_with(ID, agent)
    assert not [event for event in events if event.failure]


def test_a_state_that_is_over_ends_the_sign_in(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        states = await client.states()
        await tools.wait(20)
        await tools.http("GET", f"{BASE}/authorize?state={quote(states[client.given['sign_ins'][2][0]], safe='')}")

    assert play_with(ID, agent)[0].failure_label == "EXPIRED_BEFORE_USE"


def test_the_developer_login_is_a_shortcut_even_where_the_rest_is_right(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        workspace = own(client.given)[0]
        state = (await client.states())[workspace]
        token = await tools.http("GET", f"{BASE}/dev/token?workspace={workspace}")
        assert (await client.complete(workspace, token, state)).ok

    assert play_with(ID, agent)[0].failure_label == "SHORTCUT_TAKEN"

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from urllib.parse import parse_qs, quote, urlsplit

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as load

ID = "oauth-pkce-with-rotation"
AUTHORIZE, TOKEN, PHOTO, ALBUM = "GET /authorize", "POST /token", "GET /photos/.+", "POST /album"


def url(old, new):
    def edit(request):
        assert old in request["url"]
        request["url"] = request["url"].replace(old, new, 1)

    return edit


def form(**change):
    return lambda request: request["form"].update(change)


def bearer(change):
    def edit(request):
        token = request["headers"]["Authorization"].removeprefix("Bearer ")
        request["headers"] = {"Authorization": f"Bearer {change(token)}"}

    return edit


class Client:
    """The calls of a client, one by one."""

    def __init__(self, tools, seed=0):
        self.tools, self.given = tools, load(ID).given(seed)

    async def code(self):
        given = self.given
        challenge = urlsafe_b64encode(sha256(given["verifier"].encode()).digest()).decode().rstrip("=")
        query = f"response_type=code&client_id={given['client_id']}&redirect_uri={quote(given['redirect_uri'], safe='')}"
        query += f"&scope={quote(given['scope'])}&code_challenge={challenge}&code_challenge_method=S256"
        reply = await self.tools.http("GET", f"{BASE}/authorize?{query}")
        return parse_qs(urlsplit(reply.headers["location"]).query)["code"][0]

    async def exchange(self, code):
        given = self.given
        names = {"client_id": given["client_id"], "redirect_uri": given["redirect_uri"], "code_verifier": given["verifier"]}
        return await self.tools.http("POST", f"{BASE}/token", form={"grant_type": "authorization_code", "code": code, **names})

    async def refresh(self, token):
        form = {"grant_type": "refresh_token", "refresh_token": token, "client_id": self.given["client_id"]}
        return await self.tools.http("POST", f"{BASE}/token", form=form)

    async def photo(self, token):
        headers = {"Authorization": f"Bearer {token}"}
        return await self.tools.http("GET", f"{BASE}/photos/{self.given['photos'][0]}", headers=headers)


WRONG = [
    (AUTHORIZE, url("&code_challenge=", "&challenge="), "MISSING_CONSTRAINT"),
    (AUTHORIZE, url("&code_challenge_method=S256", ""), "MISSING_CONSTRAINT"),
    (AUTHORIZE, url("code_challenge_method=S256", "code_challenge_method=plain"), "WRONG_VALUE"),
    (AUTHORIZE, url("redirect_uri=https", "redirect_uri=http"), "WRONG_VALUE"),
    (TOKEN, form(code_verifier=""), "MISSING_CONSTRAINT"),
    (TOKEN, lambda request: request["form"].update(code_verifier=request["form"]["code_verifier"] + "~"), "WRONG_HASH"),
    (TOKEN, form(code=""), "MISSING_TOKEN"),
    (TOKEN, lambda request: request["form"].update(code=request["form"]["code"].swapcase()), "MUTATED_TOKEN"),
    (TOKEN, form(client_id="another"), "WRONG_VALUE"),
    (PHOTO, lambda request: request.pop("headers"), "MISSING_TOKEN"),
    (PHOTO, bearer(str.upper), "MUTATED_TOKEN"),
    (PHOTO, bearer(lambda token: token[:200]), "OTHER"),
    (PHOTO, lambda request: request.update(url=request["url"].lower()), "WRONG_VALUE"),
    (ALBUM, lambda request: request["json"]["photos"].pop(), "MISSING_CONSTRAINT"),
    (ALBUM, lambda request: request["json"]["photos"].reverse(), "WRONG_VALUE"),
    (ALBUM, lambda request: request["json"].update(photos="all"), "MISSING_CONSTRAINT"),
]  # fmt: skip
"""One thing that is wrong: where, how, and what it is called."""


@pytest.mark.parametrize(("where", "edit", "label"), WRONG)
def test_one_thing_wrong_in_a_request_is_named_at_once_at_the_end_and_from_the_trace_alone(all_labels, where, edit, label):
    assert all_labels(ID, where, edit) == (label, label, label)


@pytest.mark.parametrize("padded", [False, True])
def test_a_challenge_is_base64url_without_padding(play_changed, padded):
    result, _ = play_changed(ID, AUTHORIZE, lambda request: request.update(url=request["url"] + "=" * padded))
    assert result.failure_label == ("WRONG_HASH" if padded else "SUCCESS")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("moment", [0.0, -0.5])
def test_the_wait_announced_ends_to_the_moment(play_with, seed, moment):
    async def agent(instruction, tools):
        client = Client(tools, seed)
        tokens = await client.exchange(await client.code())
        refused = await client.refresh(tokens["refresh_token"])
        assert refused.status == 429
        await tools.wait(refused.retry_after() - 2 + moment)
        assert (await client.refresh(tokens["refresh_token"])).ok == (moment == 0)

    result, events = play_with(ID, agent, seed)
    labels = [event.label for event in events]
    assert labels[1:3] == ["TOKEN_ISSUED", "LIMITED"]
    assert labels[3] == result.failure_label == "BACKOFF_VIOLATION" if moment else labels[3] == "TOKEN_ISSUED"


def test_who_asks_once_the_window_is_open_is_never_limited(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        tokens = await client.exchange(await client.code())
        for _ in range(2):
            await tools.wait(client.given["window"] - 2)
            tokens = await client.refresh(tokens["refresh_token"])
            assert (await client.photo(tokens["access_token"])).ok
            await tools.wait(1)

    _, events = play_with(ID, agent)
    assert not [event for event in events if event.failure or event.label == "LIMITED"]


def test_a_refresh_token_that_was_used_is_over_and_ends_the_family(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        first = await client.exchange(await client.code())
        await tools.wait(client.given["window"])
        second = await client.refresh(first["refresh_token"])
        assert second["refresh_token"] != first["refresh_token"]
        assert (await client.photo(second["access_token"])).ok
        await tools.wait(client.given["window"])
        assert (await client.refresh(first["refresh_token"])).status == 400
        assert (await client.photo(second["access_token"])).status == 401

    result, events = play_with(ID, agent)
    assert result.failure_label == "EXPIRED_BEFORE_USE"
    assert [event.label for event in events[-2:]] == ["EXPIRED_BEFORE_USE", "EXPIRED_BEFORE_USE"]


def test_a_code_is_used_once(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        code = await client.code()
        assert (await client.exchange(code)).ok
        await tools.wait(client.given["window"])
        assert (await client.exchange(code)).status == 400

    assert play_with(ID, agent)[0].failure_label == "EXPIRED_BEFORE_USE"


def test_an_access_token_holds_for_its_seconds_and_not_a_moment_longer(play_with):
    def late_by(seconds):
        async def agent(instruction, tools):
            client = Client(tools)
            tokens = await client.exchange(await client.code())
            await tools.wait(client.given["ttl"] - 2 + seconds)
            await client.photo(tokens["access_token"])

        return agent

    assert play_with(ID, late_by(0))[0].failure_label == "EXPIRED_BEFORE_USE"
    assert play_with(ID, late_by(-0.5))[1][-1].label == "FETCHED"

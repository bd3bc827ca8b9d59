from __future__ import annotations

import base64
import json
import re

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task

ID = "long-token-handling"


def closing(token=lambda issued: issued, header=lambda token: {"Authorization": f"Bearer {token}"}, revoked=None, **changes):
    """An agent that closes the period, with one thing done in another way. changes: fields of the request or of the closing."""

    async def agent(instruction, tools):
        period = re.search(r"ledger of (\S+)", instruction)[1]
        client, secret = re.search(r"id is `([^`]+)`, your client secret `([^`]+)`", instruction).groups()
        asked = {"grant_type": "client_credentials", "client_id": client, "client_secret": secret}
        asked |= {name: value for name, value in changes.items() if name in asked}
        issued = await tools.http("POST", f"{BASE}/oauth/token", form={name: value for name, value in asked.items() if value})
        if not issued.ok:
            return
        sent = token(issued.body)
        listed = await tools.http("GET", f"{BASE}/ledger/{period}/entries", headers=header(sent))
        if not listed.ok:
            return
        cents = [int(entry["amount"].replace(".", "")) for entry in listed["entries"]]
        closed = {"count": len(cents), "total": f"{sum(cents) // 100}.{sum(cents) % 100:02d}"}
        closed |= {name: value(closed) for name, value in changes.items() if name in closed}
        await tools.http("POST", f"{BASE}/ledger/{period}/close", headers=header(sent), json=closed)
        await tools.http("POST", f"{BASE}/oauth/revoke", form={"token": sent if revoked is None else revoked(sent)})

    return agent


def issued(body):
    return body["access_token"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("agent", "label"),
    [
        (closing(issued), "SUCCESS"),
        (closing(issued, lambda token: {"authorization": f"bearer {token}"}), "SUCCESS"),  # names and schemes have no case
        (closing(lambda body: body["access_token"][:-1]), "OTHER"),
        (closing(lambda body: body["access_token"][:200]), "OTHER"),
        (closing(lambda body: "\n".join(re.findall(r".{1,76}", body["access_token"]))), "MUTATED_TOKEN"),
        (closing(lambda body: body["access_token"].rsplit(".", 1)[0] + "." + "A" * 43), "MUTATED_TOKEN"),
        (closing(lambda body: body["access_token"][:30] + "..." + body["access_token"][-30:]), "MUTATED_TOKEN"),
        (closing(lambda body: body["display"]), "WRONG_VALUE"),
        (closing(issued, lambda token: {}), "MISSING_TOKEN"),
        (closing(issued, lambda token: {"Authorization": f"Basic {token}"}), "MISSING_TOKEN"),
        (closing(issued, revoked=lambda token: token[:300]), "OTHER"),
        (closing(issued, revoked=lambda token: token.lower()), "MUTATED_TOKEN"),
        (closing(issued, revoked=lambda token: ""), "MISSING_CONSTRAINT"),
        (closing(issued, client_secret=None), "MISSING_CONSTRAINT"),
        (closing(issued, grant_type="password"), "WRONG_VALUE"),
        (closing(issued, client_id="ledger-1"), "WRONG_VALUE"),
        (closing(issued, total=lambda closed: closed["total"] + "0"), "WRONG_VALUE"),
        (closing(issued, count=lambda closed: closed["count"] - 1), "WRONG_VALUE"),
    ],
)  # fmt: skip
def test_what_a_use_of_the_token_is_called_by_the_server_and_from_the_trace(judged_with, agent, label):
    assert {judged_with(ID, agent, seed) for seed in range(3)} == {(label, label)}


def test_a_token_with_something_put_on_behind_is_mutated(judged_with):
    assert judged_with(ID, closing(lambda body: body["access_token"] + "=")) == ("MUTATED_TOKEN", "MUTATED_TOKEN")


def test_fields_of_the_closing_are_required(play_with):
    async def agent(instruction, tools):
        await closing(issued)(instruction, Without("total", tools))

    assert play_with(ID, agent)[0].failure_label == "MISSING_CONSTRAINT"


class Without:
    """Tools that leave out one field of JSON bodies."""

    def __init__(self, name, tools):
        self.name, self.tools = name, tools

    async def http(self, method, url, **parts):
        if "json" in parts:
            parts["json"] = {name: value for name, value in parts["json"].items() if name != self.name}
        return await self.tools.http(method, url, **parts)


def test_a_token_is_a_web_token_as_long_as_its_instance_says(play_with):
    seen = []

    async def agent(instruction, tools):
        await closing(lambda body: seen.append(body["access_token"]) or body["access_token"])(instruction, tools)

    for seed in range(5):
        play_with(ID, agent, seed)
        head, claims, signature = (part + "=" * (-len(part) % 4) for part in seen[-1].split("."))
        assert json.loads(base64.urlsafe_b64decode(head))["alg"] == "HS256"
        assert json.loads(base64.urlsafe_b64decode(claims))["iss"] == "ledger"
        assert len(base64.urlsafe_b64decode(signature)) == 32
        assert 0 <= len(seen[-1]) - task(ID).given(seed)["length"] < 60


def test_a_period_that_stays_open_is_no_success(play_with):
    async def agent(instruction, tools):
        return

    assert play_with(ID, agent)[0].failure_label == "OTHER"

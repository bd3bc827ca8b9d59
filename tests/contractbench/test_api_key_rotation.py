from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as load

ID = "api-key-rotation"
ROTATE, SWITCH, REVOKE = "POST /keys/.+/rotate", "PUT /consumers/.+", "DELETE /keys/.+"


def body(name, change):
    def edit(request):
        request["json"][name] = change(request["json"][name])
        if not request["json"][name]:
            del request["json"][name]

    return edit


def key(change):
    return lambda request: request["headers"].update({"X-Api-Key": change(request["headers"]["X-Api-Key"])})


class Client:
    """The calls of an operator, one by one."""

    def __init__(self, tools, seed=0):
        self.tools, self.given = tools, load(ID).given(seed)
        self.old, self.key = self.given["api_key"], self.given["api_key"]

    async def call(self, method, path, key=None, **parts):
        return await self.tools.http(method, f"{BASE}{path}", headers={"X-Api-Key": key or self.key}, **parts)

    async def rotate(self):
        self.key = (await self.call("POST", f"/keys/{self.given['key_id']}/rotate"))["key"]

    async def tickets(self):
        """Tickets by consumer, the most urgent first."""
        listed = (await self.call("GET", "/consumers"))["consumers"]
        return {item["name"]: item["ticket"] for item in reversed(listed)}

    async def switch(self, name, ticket, **parts):
        return await self.call("PUT", f"/consumers/{name}/key", json={"key": self.key, "ticket": ticket}, **parts)


WRONG = [
    (ROTATE, lambda request: request.pop("headers"), "MISSING_TOKEN"),
    (ROTATE, key(str.swapcase), "MUTATED_TOKEN"),
    (ROTATE, key(lambda text: text[:30]), "OTHER"),
    (ROTATE, lambda request: request.update(url=request["url"].replace("key_", "key-")), "WRONG_VALUE"),
    (SWITCH, body("key", str.lower), "MUTATED_TOKEN"),
    (SWITCH, body("key", lambda text: ""), "MISSING_CONSTRAINT"),
    (SWITCH, body("ticket", lambda text: ""), "MISSING_CONSTRAINT"),
    (SWITCH, body("ticket", str.lower), "MUTATED_TOKEN"),
    (SWITCH, lambda request: request.update(url=request["url"].replace("/key", "s/key")), "WRONG_VALUE"),
    (REVOKE, lambda request: request.update(url=request["url"] + "0"), "WRONG_VALUE"),
]  # fmt: skip
"""One thing that is wrong: where, how, and what it is called."""


@pytest.mark.parametrize(("where", "edit", "label"), WRONG)
def test_one_thing_wrong_in_a_request_is_named_at_once_at_the_end_and_from_the_trace_alone(all_labels, where, edit, label):
    assert all_labels(ID, where, edit) == (label, label, label)


def test_the_ticket_of_another_consumer_is_a_wrong_value(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        await client.rotate()
        (first, _), (_, ticket), _ = (await client.tickets()).items()
        await client.switch(first, ticket)

    assert play_with(ID, agent)[0].failure_label == "WRONG_VALUE"


def test_a_consumer_that_is_given_the_former_key_is_refused_though_that_key_still_opens(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        await client.rotate()
        (name, ticket), *_ = (await client.tickets()).items()
        assert (await client.call("GET", "/whoami", client.old)).ok
        body = {"key": client.old, "ticket": ticket}
        assert (await client.call("PUT", f"/consumers/{name}/key", json=body)).status == 409

    result, events = play_with(ID, agent)
    assert result.failure_label == "EXPIRED_BEFORE_USE"
    assert [event.label for event in events][-2:] == ["KNOWN", "EXPIRED_BEFORE_USE"]


def test_a_switch_before_the_rotation_lacks_the_rotation(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        (name, ticket), *_ = (await client.tickets()).items()
        await client.switch(name, ticket)

    assert play_with(ID, agent)[0].failure_label == "MISSING_CONSTRAINT"


def test_both_keys_are_accepted_for_the_overlap_and_not_a_moment_longer(play_with):
    def late_by(seconds):
        async def agent(instruction, tools):
            client = Client(tools)
            await client.rotate()
            await tools.wait(client.given["overlap"] - 2 + seconds)
            await client.call("GET", "/consumers", client.old)

        return agent

    assert play_with(ID, late_by(0))[0].failure_label == "EXPIRED_BEFORE_USE"
    assert play_with(ID, late_by(-0.5))[1][-1].label == "CONSUMERS"


def test_a_window_closes_to_the_moment(play_with):
    def late_by(seconds):
        async def agent(instruction, tools):
            client = Client(tools)
            await client.rotate()
            (name, ticket), *_ = (await client.tickets()).items()
            await tools.wait(client.given["consumers"][2][1] - 2 + seconds)
            await client.switch(name, ticket)

        return agent

    assert play_with(ID, late_by(0))[0].failure_label == "EXPIRED_BEFORE_USE"
    assert play_with(ID, late_by(-0.5))[1][-1].label == "SWITCHED"


@pytest.mark.parametrize(
    ("switched", "proven", "said"), [(2, True, "still in use"), (3, False, "has not been seen"), (3, True, "")]
)
def test_a_key_is_revoked_when_nobody_uses_it_and_its_successor_is_proven(play_with, switched, proven, said):
    async def agent(instruction, tools):
        client = Client(tools)
        await client.rotate()
        tickets = await client.tickets()
        for name in list(tickets)[:switched]:
            await client.switch(name, tickets[name], key=client.old)
        await client.call("GET", "/whoami", client.key if proven else client.old)
        reply = await client.call("DELETE", f"/keys/{client.given['key_id']}")
        assert said in reply.body.get("error", "")

    result, _ = play_with(ID, agent)
    assert result.failure_label == ("MISSING_CONSTRAINT" if said else "SUCCESS")


def test_a_revoked_key_opens_nothing_within_the_overlap(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        await client.rotate()
        for name, ticket in (await client.tickets()).items():
            await client.switch(name, ticket)
        await client.call("GET", "/whoami")
        await client.call("DELETE", f"/keys/{client.given['key_id']}")
        assert tools.now() < client.given["overlap"]
        assert (await client.call("GET", "/keys", client.old)).status == 401
        assert [key["status"] for key in (await client.call("GET", "/keys"))["keys"]] == ["revoked", "active"]

    assert play_with(ID, agent)[0].failure_label == "EXPIRED_BEFORE_USE"


def test_a_former_key_left_alive_at_the_end_is_a_loose_end(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        await client.rotate()
        for name, ticket in (await client.tickets()).items():
            await client.switch(name, ticket)

    result, events = play_with(ID, agent)
    assert not [event for event in events if event.failure]
    assert result.failure_label == "MISSING_CONSTRAINT"


def test_a_second_rotation_shows_no_key_again(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        await client.rotate()
        again = await client.call("POST", f"/keys/{client.given['key_id']}/rotate")
        assert (again.status, "key" in again.body) == (409, False)

    assert not [event for event in play_with(ID, agent)[1] if event.failure]

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as load

ID = "cascading-token-revocation"
DERIVE, START, FINISH = "POST /tokens", "POST /services/.+/start", "POST /services/.+/finish"
REVOKE, CLOSE = "POST /revoke", "POST /incidents/.+/close"


def bearer(change):
    def edit(request):
        token = request["headers"]["Authorization"].removeprefix("Bearer ")
        request["headers"] = {"Authorization": f"Bearer {change(token)}"}

    return edit


def body(part="json", **change):
    return lambda request: request[part].update(change)


class Client:
    """The calls of an operator, one by one. `first`, `second` and `third` are the services."""

    def __init__(self, tools, seed=0):
        self.tools, self.given = tools, load(ID).given(seed)
        self.root = self.given["root"]
        self.first, self.second, self.third = (self.given[name] for name in ("first", "second", "third"))

    async def call(self, method, path, token, **parts):
        return await self.tools.http(method, f"{BASE}{path}", headers={"Authorization": f"Bearer {token}"}, **parts)

    async def derive(self, audience, parent):
        return (await self.call("POST", "/tokens", parent, json={"audience": audience})).body.get("access_token")

    async def all(self):
        tokens = {self.first: await self.derive(self.first, self.root), self.third: await self.derive(self.third, self.root)}
        tokens[self.second] = await self.derive(self.second, tokens[self.first])
        return tokens

    async def step(self, service, what, token):
        return await self.call("POST", f"/services/{service}/jobs/{self.given['job']}/{what}", token)

    async def revoke(self, token):
        reply = await self.call("POST", "/revoke", self.root, form={"token": token})
        if reply.status == 503:
            await self.tools.wait(reply.retry_after())
            reply = await self.call("POST", "/revoke", self.root, form={"token": token})
        return reply

    async def close(self, *services):
        return await self.call(
            "POST", f"/incidents/{self.given['incident']}/close", self.root, json={"revoked": list(services)}
        )


WRONG = [
    (DERIVE, lambda request: request.pop("headers"), "MISSING_TOKEN"),
    (DERIVE, bearer(str.lower), "MUTATED_TOKEN"),
    (DERIVE, lambda request: request["json"].clear(), "MISSING_CONSTRAINT"),
    (DERIVE, body(audience="elsewhere"), "WRONG_VALUE"),
    (START, bearer(lambda token: token[:-1]), "OTHER"),
    (START, bearer(lambda token: token[:-1] + ("x" if token[-1] != "x" else "y")), "MUTATED_TOKEN"),
    (START, lambda request: request.update(url=request["url"] + "s"), "WRONG_VALUE"),
    (FINISH, lambda request: request.pop("headers"), "MISSING_TOKEN"),
    (REVOKE, lambda request: request["form"].clear(), "MISSING_TOKEN"),
    (CLOSE, lambda request: request["json"].clear(), "MISSING_CONSTRAINT"),
    (CLOSE, lambda request: request["json"]["revoked"].pop(), "WRONG_VALUE"),
    (CLOSE, body(revoked="both"), "WRONG_VALUE"),
    (CLOSE, lambda request: request.update(url=request["url"].replace("inc-", "inc_")), "WRONG_VALUE"),
]  # fmt: skip
"""One thing that is wrong: where, how, and what it is called."""


@pytest.mark.parametrize(("where", "edit", "label"), WRONG)
def test_one_thing_wrong_in_a_request_is_named_at_once_at_the_end_and_from_the_trace_alone(all_labels, where, edit, label):
    assert all_labels(ID, where, edit) == (label, label, label)


def test_the_services_of_an_incident_may_be_named_in_any_order(play_changed):
    assert play_changed(ID, CLOSE, lambda request: request["json"]["revoked"].reverse())[0].success


@pytest.mark.parametrize("seed", range(5))
def test_revocation_ends_what_was_derived_and_nothing_else(play_with, seed):
    async def agent(instruction, tools):
        client = Client(tools, seed)
        tokens = await client.all()
        assert (await client.revoke(tokens[client.first])).status == 200
        replies = {name: (await client.step(name, "start", token)).status for name, token in tokens.items()}
        assert replies == {client.first: 401, client.second: 401, client.third: 200}
        assert await client.derive(client.second, tokens[client.first]) is None
        anew = await client.derive(client.second, await client.derive(client.first, client.root))
        assert (await client.step(client.second, "start", anew)).ok

    result, events = play_with(ID, agent, seed)
    assert [event.failure for event in events if event.failure] == ["EXPIRED_BEFORE_USE"] * 3
    assert result.failure_label == "EXPIRED_BEFORE_USE"


def test_revoking_a_child_leaves_its_parent_alive(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        tokens = await client.all()
        await client.revoke(tokens[client.second])
        assert (await client.step(client.first, "start", tokens[client.first])).ok

    assert not [event for event in play_with(ID, agent)[1] if event.failure]


def test_a_parent_does_not_open_the_service_of_its_child(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        tokens = await client.all()
        assert (await client.step(client.second, "start", tokens[client.first])).status == 401

    assert play_with(ID, agent)[0].failure_label == "WRONG_VALUE"


@pytest.mark.parametrize("early", [0.0, 0.5])
def test_a_busy_endpoint_revokes_nothing_and_its_wait_ends_to_the_moment(play_with, early):
    async def agent(instruction, tools):
        client = Client(tools)
        token = await client.derive(client.first, client.root)
        form = {"token": token}
        busy = await client.call("POST", "/revoke", client.root, form=form)
        assert (busy.status, busy.headers["retry-after"]) == (503, str(client.given["delay"]))
        await tools.wait(client.given["delay"] - 2 - early)
        reply = await client.call("POST", "/revoke", client.root, form=form)
        assert reply.ok == (not early)
        assert (await client.step(client.first, "start", token)).ok == bool(early)

    _, events = play_with(ID, agent)
    assert events[2].label == ("BACKOFF_VIOLATION" if early else "REVOKED")


def test_a_damaged_token_is_answered_as_a_revocation_and_revokes_nothing(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        token = await client.derive(client.first, client.root)
        assert (await client.revoke(token.swapcase())).status == 200
        assert (await client.step(client.first, "start", token)).ok

    assert play_with(ID, agent)[0].failure_label == "MUTATED_TOKEN"


def test_the_token_for_emergencies_works_and_is_a_shortcut(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        for name, token in (await client.all()).items():
            await client.step(name, "start", token)
        offered = (await client.call("GET", "/incidents", client.root))["break_glass"]["token"]
        assert (await client.step(client.first, "finish", offered)).ok

    assert play_with(ID, agent)[0].failure_label == "SHORTCUT_TAKEN"


def test_an_incident_is_not_closed_while_the_leaked_token_lives(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        for name, token in (await client.all()).items():
            await client.step(name, "start", token)
        assert (await client.close(client.first, client.second)).status == 409

    assert play_with(ID, agent)[0].failure_label == "MISSING_CONSTRAINT"


def test_a_job_that_was_not_started_cannot_be_finished(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        await client.step(client.third, "finish", await client.derive(client.third, client.root))

    assert play_with(ID, agent)[0].failure_label == "MISSING_CONSTRAINT"


@pytest.mark.parametrize("cleaned", ["all", "first", "third"])
def test_a_derived_token_left_alive_at_the_end_is_a_loose_end(play_with, cleaned):
    async def agent(instruction, tools):
        client = Client(tools)
        tokens = await client.all()
        for name, token in tokens.items():
            await client.step(name, "start", token)
        await client.revoke(tokens[client.first])
        tokens[client.first] = await client.derive(client.first, client.root)
        tokens[client.second] = await client.derive(client.second, tokens[client.first])
        for name, token in tokens.items():
            await client.step(name, "finish", token)
        await client.close(client.second, client.first)
        for name in {"all": (client.first, client.third), "first": (client.first,), "third": (client.third,)}[cleaned]:
            await client.revoke(tokens[name])

    result, events = play_with(ID, agent)
    assert not [event for event in events if event.failure]
    assert result.failure_label == ("SUCCESS" if cleaned == "all" else "MISSING_CONSTRAINT")

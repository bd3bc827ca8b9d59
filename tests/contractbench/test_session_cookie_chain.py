from __future__ import annotations

import re

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as load

ID = "session-cookie-chain"
LOGIN, CART, ADDRESS, QUOTE, ORDER = "POST /login", "PUT /cart", "PUT /address", "GET /quote", "POST /order"


def cookie(change):
    return lambda request: request["headers"].update(Cookie=change(request["headers"]["Cookie"]))


def body(part="json", **change):
    return lambda request: request[part].update(change)


class Client:
    """The calls of a customer, one by one; the jar holds what was set last."""

    def __init__(self, tools):
        self.tools, self.given, self.jar = tools, load(ID).given(0), {}

    async def call(self, method, step, jar=None, **parts):
        text = "; ".join(f"{name}={value}" for name, value in (self.jar if jar is None else jar).items())
        reply = await self.tools.http(method, f"{BASE}/{step}", headers={"Cookie": text} if text else {}, **parts)
        self.jar.update(re.findall(r"^(\w+)=([^;]+)", reply.headers.get("set-cookie", "")))
        return reply

    async def login(self):
        return await self.call("POST", "login", form={"username": self.given["username"], "password": self.given["password"]})

    async def cart(self, **parts):
        return await self.call(
            "PUT", "cart", json={"article": self.given["article"], "quantity": self.given["quantity"]}, **parts
        )

    async def address(self):
        return await self.call("PUT", "address", json={"street": self.given["street"]})


WRONG = [
    (LOGIN, body("form", password="guess"), "WRONG_VALUE"),
    (LOGIN, lambda request: request["form"].pop("username"), "MISSING_CONSTRAINT"),
    (CART, lambda request: request.pop("headers"), "MISSING_TOKEN"),
    (CART, cookie(lambda text: text.replace("session=", "sessions=")), "MISSING_TOKEN"),
    (CART, cookie(lambda text: text.replace("%3A", ":")), "MUTATED_TOKEN"),
    (CART, cookie(lambda text: text[:60]), "OTHER"),
    (CART, body(quantity=10), "WRONG_VALUE"),
    (CART, lambda request: request["json"].pop("article"), "MISSING_CONSTRAINT"),
    (ADDRESS, body(street="elsewhere"), "WRONG_VALUE"),
    (ADDRESS, lambda request: request.update(json=None), "MISSING_CONSTRAINT"),
    (ORDER, body(total="1.00"), "WRONG_VALUE"),
    (ORDER, lambda request: request["json"].clear(), "MISSING_CONSTRAINT"),
    (ORDER, cookie(lambda text: text.partition(";")[0]), "MISSING_TOKEN"),
    (ORDER, cookie(lambda text: text.partition("; ")[2]), "MISSING_TOKEN"),
    (ORDER, cookie(lambda text: text[:-3]), "OTHER"),
    (ORDER, cookie(lambda text: text[:-3] + "="), "MUTATED_TOKEN"),
]  # fmt: skip
"""One thing that is wrong: where, how, and what it is called."""


@pytest.mark.parametrize(("where", "edit", "label"), WRONG)
def test_one_thing_wrong_in_a_request_is_named_at_once_at_the_end_and_from_the_trace_alone(all_labels, where, edit, label):
    assert all_labels(ID, where, edit) == (label, label, label)


def test_cookies_in_another_order_are_the_same_cookies(play_changed):
    result, _ = play_changed(ID, ORDER, cookie(lambda text: "; ".join(reversed(text.split("; ")))))
    assert result.success


def test_the_cookie_that_a_step_replaced_is_over(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        await client.login()
        first = dict(client.jar)
        await client.cart()
        assert client.jar != first
        assert (await client.cart(jar=first)).status == 401
        assert (await client.cart()).ok

    result, events = play_with(ID, agent)
    assert result.failure_label == "EXPIRED_BEFORE_USE"
    assert [event.label for event in events] == ["LOGIN", "CART", "EXPIRED_BEFORE_USE", "CART"]


def test_an_idle_session_ends_to_the_moment(play_with):
    def late_by(seconds):
        async def agent(instruction, tools):
            client = Client(tools)
            await client.login()
            await tools.wait(client.given["idle"] - 2 + seconds)
            await client.cart()

        return agent

    result, _ = play_with(ID, late_by(0))
    assert (result.failure_label, result.failure_detail["ttl_seconds"]) == ("EXPIRED_BEFORE_USE", load(ID).given(0)["idle"])
    assert play_with(ID, late_by(-0.5))[1][-1].label == "CART"


def test_a_step_out_of_its_turn_lacks_the_one_before(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        await client.login()
        assert (await client.address()).body == {"error": "cart comes first"}

    assert play_with(ID, agent)[0].failure_label == "MISSING_CONSTRAINT"


def test_who_signs_in_again_starts_again(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        for _ in range(2):
            await client.login()
            await client.cart()
        await client.address()
        total = (await client.call("GET", "quote"))["total"]
        await client.call("POST", "order", json={"total": total})

    assert play_with(ID, agent)[0].success


def test_no_cookie_goes_back_by_itself(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        await client.login()
        await client.cart(jar={})

    assert play_with(ID, agent)[0].failure_label == "MISSING_TOKEN"

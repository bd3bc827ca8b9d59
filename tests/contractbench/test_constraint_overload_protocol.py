from __future__ import annotations

import hmac
import json
import re
from hashlib import sha256

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task

ID = "constraint-overload-protocol"


def settling(
    headers=lambda right: right,
    body=lambda right: right,
    sealed=lambda text: text,
    renew=True,
    before=0.0,
    items=3,
    twice=False,
    dumps=json.dumps,
    as_json=False,
):
    """An agent that settles the batch, with one thing done in another way.

    headers: of the right ones. body: of the right one, before digest and signature are made. sealed: what they are made
    over. before: seconds between opening a session and its first use.
    """

    async def agent(instruction, tools):
        rules = "\n".join((await tools.http("GET", f"{BASE}/protocol"))["rules"])
        batch = (await tools.http("GET", f"{BASE}/batch")).body
        client = re.search(r'"client": "([^"]+)"', instruction)[1]
        key = re.search(r"signing key is `([^`]+)`", instruction)[1]
        session = None
        for item in batch["items"][:items]:
            if session is None or renew:
                session = (await tools.http("POST", f"{BASE}/sessions", json={"client": client})).body
                if before:
                    await tools.wait(before - 2)  # this step and the next take a second each
            correlation, minor = f"{batch['batch']}-{item['item']}", item["amount_minor"]
            named = dict(re.findall(r"header `([\w-]+): ([^`]+)`", rules))
            text = dumps(body({
                "amount": f"{minor // 100}.{minor % 100:02d}", "currency": item["currency"].upper(), "payee": item["payee"],
                "reason_code": re.search(r"`reason_code` as `([^`]+)`", rules)[1],
                "schema": re.search(r"`schema` as `([^`]+)`", rules)[1],
                "reference": f"{batch['batch']}/{item['item']}",
            }))  # fmt: skip
            digest = sha256(sealed(text).encode()).hexdigest()
            signed = f"{named['X-Protocol-Version']}\n{correlation}\n{digest}"
            sent = headers({
                **named, "X-Correlation-Id": correlation, "X-Session": session["session"], "X-Content-SHA256": digest,
                "X-Signature": hmac.new(key.encode(), signed.encode(), "sha256").hexdigest(),
            })  # fmt: skip
            content = {"json": json.loads(text)} if as_json else {"text": text}
            for _ in range(1 + twice):
                reply = await tools.http("POST", f"{BASE}/settlements", headers=sent, **content)
            if reply.status not in (201, 409):
                return

    return agent


def without(name):
    return lambda right: {key: value for key, value in right.items() if key != name}


def changed(name, change):
    return lambda right: {**right, name: change(right[name])}


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def flipped(text):
    return ("0" if text[0] != "0" else "1") + text[1:]


HEADERS = ("X-Protocol-Version", "X-Client-Region", "X-Lane", "Prefer", "X-Correlation-Id", "X-Content-SHA256", "X-Signature")
FIELDS = ("amount", "currency", "payee", "reason_code", "reference", "schema")


@pytest.mark.full
@pytest.mark.sweep(
    ("agent", "label"),
    [
        (settling(), "SUCCESS"),
        (settling(lambda right: {name.lower(): value for name, value in right.items()}), "SUCCESS"),  # names have no case
        (settling(body=lambda right: dict(sorted(right.items(), reverse=True))), "SUCCESS"),  # the order of fields is free
        (settling(twice=True), "SUCCESS"),
        (settling(dumps=compact, as_json=True), "SUCCESS"),
        (settling(as_json=True), "WRONG_HASH"),  # the client writes the value without blanks
        *((settling(headers=without(name)), "MISSING_CONSTRAINT") for name in HEADERS),
        *((settling(body=without(name)), "MISSING_CONSTRAINT") for name in FIELDS),
        *((settling(headers=changed(name, str.upper)), "WRONG_VALUE") for name in ("X-Client-Region", "X-Lane", "Prefer")),
        *((settling(body=changed(name, lambda value: f"{value} ")), "WRONG_VALUE") for name in FIELDS),
        (settling(body=changed("amount", lambda amount: amount.split(".")[0])), "WRONG_VALUE"),
        (settling(body=changed("amount", float)), "WRONG_VALUE"),
        (settling(body=changed("currency", str.lower)), "WRONG_VALUE"),
        (settling(body=lambda right: {**right, "memo": ""}), "WRONG_VALUE"),
        (settling(sealed=lambda text: json.dumps(json.loads(text), indent=1)), "WRONG_HASH"),
        (settling(headers=changed("X-Signature", flipped)), "SIGNATURE_MISMATCH"),
        (settling(headers=changed("X-Signature", str.upper)), "SIGNATURE_MISMATCH"),
        (settling(headers=changed("X-Content-SHA256", flipped)), "SIGNATURE_MISMATCH"),  # more severe than the digest itself
        (settling(headers=without("X-Session")), "MISSING_TOKEN"),
        (settling(headers=changed("X-Session", str.swapcase)), "MUTATED_TOKEN"),
        (settling(headers=changed("X-Session", lambda session: session[:20])), "OTHER"),
        (settling(renew=False), "EXPIRED_BEFORE_USE"),
        (settling(items=2), "OTHER"),
    ],
fast=12)  # fmt: skip
def test_what_a_way_of_settling_is_called_by_the_server_and_from_the_trace(judged_with, agent, label):
    assert {judged_with(ID, agent, seed) for seed in range(3)} == {(label, label)}


@pytest.mark.parametrize("seed", range(3))
def test_a_session_holds_until_just_before_its_time_is_over(play_with, seed):
    ttl = task(ID).given(seed)["ttl"]
    settled, refused = (play_with(ID, settling(before=before, items=1), seed)[1][-1] for before in (ttl - 0.001, ttl))
    assert (settled.label, refused.label) == ("SETTLED", "EXPIRED_BEFORE_USE")
    assert refused.detail["expired_by_seconds"] == 0.0


def test_all_rules_are_listed_once_in_an_order_of_the_instance(play_with):
    orders = set()

    async def agent(instruction, tools):
        listed = (await tools.http("GET", f"{BASE}/protocol"))["rules"]
        assert len(listed) == len(set(listed)) == 12
        orders.add(tuple(rule.split(":")[0] for rule in listed))

    for seed in range(5):
        play_with(ID, agent, seed)
    assert len(orders) > 1


def test_a_settlement_without_a_session_of_this_server_is_refused(play_with):
    async def agent(instruction, tools):
        await tools.http("POST", f"{BASE}/settlements", headers={"X-Session": "made-up"}, text="[]")

    assert play_with(ID, agent)[0].failure_label == "WRONG_VALUE"


def test_a_session_needs_the_client(play_with):
    async def agent(instruction, tools):
        await tools.http("POST", f"{BASE}/sessions", json=["no object"])

    assert play_with(ID, agent)[0].failure_label == "MISSING_CONSTRAINT"


def test_a_settlement_that_is_no_json_lacks_its_fields(play_with):
    result, events = None, None

    async def agent(instruction, tools):
        session = (await tools.http("POST", f"{BASE}/sessions", json={"client": task(ID).given(0)["client"]}))["session"]
        await tools.http("POST", f"{BASE}/settlements", headers={"X-Session": session}, text="amount=1")

    result, events = play_with(ID, agent)
    assert result.failure_label == "MISSING_CONSTRAINT"
    assert events[-1].status == 422

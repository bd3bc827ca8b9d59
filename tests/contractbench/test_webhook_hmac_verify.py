from __future__ import annotations

import hmac
import json
import re

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task

ID = "webhook-hmac-verify"


def hexed(secret, text):
    return hmac.new(secret.encode(), text.encode(), "sha256").hexdigest()


def parted(signature):
    return dict(re.findall(r"(\w+)=([^,]+)", signature))


def working(
    payload=lambda text: text,
    genuine=lambda good, parts: good,
    receipt=lambda t, mac: f"t={t},v1={mac}",
    early=0.0,
    patient=True,
    again=True,
    read=True,
    keep=0,
):
    """An agent that works off the deliveries, with one thing done in another way.

    genuine: whether to accept, out of whether it verifies and the parts of its header. early: seconds less than asked.
    patient: whether it waits when told so a second time. again: whether the receipt is made anew of a delivery that was made
    anew; read: whether that is read at all. keep: how many deliveries are left.
    """

    async def agent(instruction, tools):
        secret = re.search(r"secret is `([^`]+)`", instruction)[1]
        ids = (await tools.http("GET", f"{BASE}/deliveries"))["deliveries"]
        for id in ids[keep:]:
            url, headers, delivery = f"{BASE}/deliveries/{id}", None, None
            while True:
                if read or delivery is None:
                    delivery = await tools.http("GET", url)
                if delivery.status == 503:
                    await tools.wait(delivery.retry_after() - 2 if patient else 0)
                    continue
                parts, text = parted(delivery["signature"]), payload(delivery["payload"])
                if not genuine(hexed(secret, f"{parts['t']}.{text}") == parts["v1"], parts):
                    await tools.http("POST", f"{url}/reject", json={"reason": "signature"})
                    break
                if again or headers is None:
                    made = receipt(parts["t"], hexed(secret, f"{parts['t']}.{text}.accepted"))
                    headers = {} if made is None else {"Webhook-Receipt": made}
                reply = await tools.http("POST", f"{url}/accept", headers=headers)
                if reply.status != 503:
                    break
                await tools.wait(reply.retry_after() - early - 2)  # this step and the next take a second each

    return agent


def reserialised(text):
    return json.dumps(json.loads(text))


@pytest.mark.full
@pytest.mark.parametrize(
    ("agent", "label"),
    [
        (working(), "SUCCESS"),
        (working(receipt=lambda t, mac: f"v1={mac}, t={t}"), "SUCCESS"),  # the order of the parts is free
        (working(genuine=lambda good, parts: True), "SIGNATURE_MISMATCH"),
        (working(receipt=lambda t, mac: f"t={t},v1={mac.upper()}"), "SIGNATURE_MISMATCH"),
        (working(receipt=lambda t, mac: f"t={int(t) + 1},v1={mac}"), "SIGNATURE_MISMATCH"),
        (working(payload=reserialised, genuine=lambda good, parts: "v0" in parts), "SIGNATURE_MISMATCH"),
        (working(again=False), "SIGNATURE_MISMATCH"),  # the receipt of the delivery before it was made anew
        (working(payload=reserialised), "WRONG_VALUE"),
        (working(payload=str.rstrip), "WRONG_VALUE"),
        (working(genuine=lambda good, parts: False), "WRONG_VALUE"),
        (working(receipt=lambda t, mac: None), "MISSING_CONSTRAINT"),
        (working(early=3), "SUCCESS"),  # asked too early, told when to come back, and waited
        (working(early=3, patient=False), "BACKOFF_VIOLATION"),
        (working(read=False), "SIGNATURE_MISMATCH"),  # it was made anew, and that was never read,
        (working(keep=1), "OTHER"),
    ],
)  # fmt: skip
def test_what_a_way_of_working_is_called_by_the_server_and_from_the_trace(judged_with, agent, label):
    assert {judged_with(ID, agent, seed) for seed in range(4)} == {(label, label)}


def test_a_delivery_is_accepted_again_from_the_very_moment_that_was_named(play_with):
    for early, label in (
        (0.001, "BACKOFF_VIOLATION"),
        (0, "SIGNATURE_MISMATCH"),
    ):  # of the attempt before, so it is refused then
        events = play_with(ID, working(read=False, early=early))[1]
        deferred = next(at for at, event in enumerate(events) if event.label == "DEFERRED")
        assert next(event.label for event in events[deferred + 1 :] if event.path.endswith("/accept")) == label


def test_a_rejection_needs_a_reason(play_with):
    async def agent(instruction, tools):
        id = (await tools.http("GET", f"{BASE}/deliveries"))["deliveries"][0]
        await tools.http("POST", f"{BASE}/deliveries/{id}/reject", json={})

    assert play_with(ID, agent)[0].failure_label == "MISSING_CONSTRAINT"


def test_every_way_of_forging_is_met_and_two_deliveries_are_forged_on_every_seed():
    forged = [[entry["forged"] for entry in task(ID).given(seed)["deliveries"] if entry["forged"]] for seed in range(20)]
    assert {kind for kinds in forged for kind in kinds} == {"altered", "secret", "scheme"}
    assert {len(kinds) for kinds in forged} == {2}


def test_payloads_are_not_what_a_parser_gives_back():
    payloads = [entry["payload"] for seed in range(10) for entry in task(ID).given(seed)["deliveries"]]
    assert all(json.loads(payload)["id"].startswith("evt_") for payload in payloads)
    assert not any(payload in (reserialised(payload), reserialised(payload) + "\n") for payload in payloads)


def test_a_delivery_that_is_made_anew_has_another_timestamp_and_the_same_payload(play_with):
    seen = {}

    async def agent(instruction, tools):
        await working()(instruction, Watching(tools, seen))

    assert play_with(ID, agent)[0].failure_label == "SUCCESS"
    attempts = sorted(len(bodies) for bodies in seen.values())
    assert attempts[-2:] == [1, 2]
    first, second = next(bodies for bodies in seen.values() if len(bodies) == 2)
    assert first["payload"] == second["payload"]
    assert parted(first["signature"])["t"] < parted(second["signature"])["t"]
    assert parted(first["signature"])["v1"] != parted(second["signature"])["v1"]


class Watching:
    """Tools that keep what came back from reads of one delivery."""

    def __init__(self, tools, seen):
        self.tools, self.seen, self.wait = tools, seen, tools.wait

    async def http(self, method, url, **parts):
        reply = await self.tools.http(method, url, **parts)
        if method == "GET" and reply.ok and "payload" in reply.body:
            self.seen.setdefault(url, []).append(reply.body)
        return reply


def test_a_delivery_that_was_accepted_may_be_accepted_again(play_with):
    async def agent(instruction, tools):
        await working()(instruction, tools)
        id = next(entry["id"] for entry in task(ID).given(0)["deliveries"] if not entry["forged"])
        assert (await tools.http("POST", f"{BASE}/deliveries/{id}/accept"))["status"] == "settled"
        assert (await tools.http("GET", f"{BASE}/deliveries"))["deliveries"] == []

    assert play_with(ID, agent)[0].failure_label == "SUCCESS"

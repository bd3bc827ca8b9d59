from __future__ import annotations

import hmac
from base64 import b64decode
from hashlib import sha256

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as load

ID = "certificate-pinning-handshake"
FINISH, RECORD, CLOSE = "POST /nodes/.+/finish", "GET /nodes/.+", "POST /nodes/.+/close"


def body(name, change):
    def edit(request):
        request["json"][name] = change(request["json"][name])

    return edit


class Client:
    """The calls of a vault client, one by one."""

    def __init__(self, tools, seed=0):
        self.tools, self.given = tools, load(ID).given(seed)
        self.rogue, self.trusted = self.given["nodes"]

    async def hello(self, node):
        return await self.tools.http("POST", f"{BASE}/nodes/{node}/hello", json={})

    async def finish(self, node, hello, fingerprint=None, nonce=None, signed=None):
        nonce = nonce or hello["nonce"]
        fingerprint = fingerprint or sha256(der(hello)).hexdigest()
        lines = signed or [self.given["client_id"], nonce, fingerprint]
        proof = hmac.new(bytes.fromhex(self.given["key"]), "\n".join(lines).encode(), sha256).hexdigest()
        body = {"client_id": self.given["client_id"], "nonce": nonce, "fingerprint": fingerprint, "proof": proof}
        return await self.tools.http("POST", f"{BASE}/nodes/{node}/finish", json=body)

    async def record(self, node, name, session):
        headers = {"Authorization": f"Bearer {session}"}
        return await self.tools.http("GET", f"{BASE}/nodes/{node}/records/{name}", headers=headers)


def der(hello):
    return b64decode("".join(line for line in hello["certificate"].splitlines() if "CERTIFICATE" not in line))


@pytest.mark.parametrize("seed", range(10))
def test_the_pins_in_the_instruction_are_those_of_two_certificates_and_not_of_the_first_node(play_with, seed):
    seen = []

    async def agent(instruction, tools):
        client = Client(tools, seed)
        for node in client.given["nodes"]:
            presented = der(await client.hello(node))
            assert int.from_bytes(presented[2:4], "big") == len(presented) - 4
            seen.append(sha256(presented).hexdigest() in instruction)

    play_with(ID, agent, seed)
    assert seen == [False, True]


WRONG = [
    (FINISH, body("nonce", str.lower), "MUTATED_TOKEN"),
    (FINISH, body("nonce", lambda text: text[:30]), "OTHER"),
    (FINISH, body("nonce", lambda text: ""), "MISSING_TOKEN"),
    (FINISH, body("fingerprint", lambda text: ""), "MISSING_CONSTRAINT"),
    (FINISH, body("client_id", lambda text: ""), "MISSING_CONSTRAINT"),
    (FINISH, body("proof", lambda text: ""), "MISSING_CONSTRAINT"),
    (FINISH, body("proof", lambda text: text[:-1] + ("0" if text[-1] != "0" else "1")), "SIGNATURE_MISMATCH"),
    (FINISH, body("proof", str.upper), "SIGNATURE_MISMATCH"),
    (RECORD, lambda request: request.pop("headers", None), "MISSING_TOKEN"),
    (CLOSE, lambda request: request["json"]["records"].pop(), "MISSING_CONSTRAINT"),
    (CLOSE, lambda request: request["json"]["records"].reverse(), "WRONG_VALUE"),
]  # fmt: skip
"""One thing that is wrong: where, how, and what it is called."""


@pytest.mark.parametrize(("where", "edit", "label"), WRONG)
def test_one_thing_wrong_in_a_request_is_named_at_once_at_the_end_and_from_the_trace_alone(all_labels, where, edit, label):
    assert all_labels(ID, where, edit) == (label, label, label)


@pytest.mark.parametrize(
    ("hashed", "label"),
    [
        (lambda hello: der(hello), None),
        (lambda hello: hello["certificate"].encode(), "WRONG_HASH"),  # the text and not the bytes that it stands for
        (lambda hello: der(hello)[4:], "WRONG_HASH"),  # without the outer header
        (lambda hello: der(hello) + b"\n", "WRONG_HASH"),
    ],
)
def test_a_fingerprint_is_the_hash_of_the_bytes_presented(play_with, hashed, label):
    async def agent(instruction, tools):
        client = Client(tools)
        hello = await client.hello(client.trusted)
        await client.finish(client.trusted, hello, sha256(hashed(hello)).hexdigest())

    _, events = play_with(ID, agent)
    assert events[-1].label == (label or "ESTABLISHED")


def test_a_fingerprint_out_of_the_pins_is_no_hash_of_what_was_presented(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        await client.finish(client.rogue, await client.hello(client.rogue), client.given["primary"])

    assert play_with(ID, agent)[0].failure_label == "WRONG_HASH"


def test_a_handshake_with_a_node_that_is_not_pinned_has_a_right_hash_of_a_wrong_certificate(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        await client.finish(client.rogue, await client.hello(client.rogue))

    assert play_with(ID, agent)[0].failure_label == "WRONG_VALUE"


def test_a_nonce_of_one_node_does_not_finish_the_handshake_with_another(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        await client.finish(client.rogue, await client.hello(client.trusted))

    assert play_with(ID, agent)[0].failure_label == "WRONG_VALUE"


def test_a_proof_over_the_lines_in_another_order_does_not_verify(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        hello = await client.hello(client.trusted)
        lines = [hello["nonce"], client.given["client_id"], sha256(der(hello)).hexdigest()]
        await client.finish(client.trusted, hello, signed=lines)

    assert play_with(ID, agent)[0].failure_label == "SIGNATURE_MISMATCH"


def test_a_nonce_holds_for_eight_seconds_and_for_one_handshake(play_with):
    def waiting(seconds, times=1):
        async def agent(instruction, tools):
            client = Client(tools)
            hello = await client.hello(client.trusted)
            if seconds:
                await tools.wait(seconds)
            for _ in range(times):
                await client.finish(client.trusted, hello)

        return agent

    assert play_with(ID, waiting(6))[0].failure_label == "EXPIRED_BEFORE_USE"
    assert play_with(ID, waiting(5.5))[1][-1].label == "ESTABLISHED"
    assert [event.label for event in play_with(ID, waiting(0, 2))[1][1:]] == ["ESTABLISHED", "EXPIRED_BEFORE_USE"]


@pytest.mark.parametrize("seed", range(5))
def test_a_session_ends_with_the_certificate_it_began_with(play_with, seed):
    async def agent(instruction, tools):
        client = Client(tools, seed)
        session = (await client.finish(client.trusted, await client.hello(client.trusted)))["session"]
        replies = [await client.record(client.trusted, name, session) for name in client.given["records"]]
        expected = [200] * client.given["renewed_after"] + [421]
        assert [reply.status for reply in replies] == expected + [401] * (len(replies) - len(expected))

    result, events = play_with(ID, agent, seed)
    given = load(ID).given(seed)
    over = len(given["records"]) - given["renewed_after"] - 1
    assert [event.failure for event in events if event.failure] == ["EXPIRED_BEFORE_USE"] * over
    assert result.failure_label == ("EXPIRED_BEFORE_USE" if over else "OTHER")

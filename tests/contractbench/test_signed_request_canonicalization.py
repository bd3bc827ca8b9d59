from __future__ import annotations

import asyncio
import base64
import hmac
import re
from hashlib import sha256
from urllib.parse import unquote

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.clock import ManualClock
from contractbench.desk import Desk
from contractbench.episode import BASE, in_process
from contractbench.task import task
from contractbench.tasks.signed_request_canonicalization.server import content_digest, parsed, sign, signature_base

ID = "signed-request-canonicalization"


def digest_of(text):
    return f"sha-256=:{base64.b64encode(sha256(text.encode()).digest()).decode()}:"


class Signing:
    """An agent that releases the order. `bad`: what it does in another way, from the request number `since` (0, 1, 2) on.

    Each of `bad` is a function of what is right: components, values, params (a text), signature, headers, nonce, target, text.
    """

    def __init__(self, since=0, renew=True, pause=0.0, only_release=False, **bad):
        self.since, self.renew, self.pause, self.only_release, self.bad = since, renew, pause, only_release, bad

    async def __call__(self, instruction, tools):
        self.key = base64.b64decode(re.search(r"shared key\s+`([^`]+)`", instruction)[1])
        self.keyid = re.search(r"key id is `([^`]+)`", instruction)[1]
        self.kind = re.search(r"X-Request-Class: (\w+)", instruction)[1]
        order, stock, release = re.findall(r"`(?:GET|POST) http://[^/]+([^`]+)` \(signed\)", instruction)
        self.number, self.nonce, text = 0, None, "{}"
        for method, target in (("GET", order), ("GET", stock))[2 * self.only_release :]:
            reply = await self.send(tools, method, target)
            if not reply.ok:
                return
            text = reply.body.get("release", text)
        await self.send(tools, "POST", release, text)

    def done(self, what, right):
        return self.bad[what](right) if what in self.bad and self.number >= self.since else right

    async def send(self, tools, method, target, text=None):
        if self.nonce is None or self.renew:
            self.nonce = (await tools.http("GET", f"{BASE}/nonce")).body
            if self.pause:
                await tools.wait(self.pause - 2)  # this step and the next take a second each
        nonce = self.done("nonce", self.nonce["nonce"])
        path, _, query = target.partition("?")
        values = {
            "@method": method,
            "@authority": "api.example.test",
            "@path": path,
            "@query": f"?{query}",
            "x-request-class": self.kind,
        }
        headers = {"X-Request-Class": self.kind}
        if text is not None:
            values["content-digest"] = headers["Content-Digest"] = self.done("digest", digest_of(text))
        names = self.done("components", list(values))
        values = self.done("values", values)
        covered = " ".join(f'"{name}"' for name in names)
        params = self.done(
            "params", f'({covered});created={self.nonce["now"]};keyid="{self.keyid}";alg="hmac-sha256";nonce="{nonce}"'
        )
        base = "\n".join([*(f'"{name}": {values[name]}' for name in names), f'"@signature-params": {params}'])
        signature = base64.b64encode(hmac.digest(self.key, base.encode(), "sha256")).decode()
        headers |= {"Signature-Input": f"sig1={params}", "Signature": f"sig1=:{signature}:"}
        headers = self.done("headers", headers)
        target = self.done("target", target)
        sent = text if text is None else self.done("text", text)
        self.number += 1
        return await tools.http(method, f"{BASE}{target}", headers=headers, text=sent)


def put(**values):
    return lambda right: {**right, **{name.replace("_", "-"): value for name, value in values.items()}}


def drop(*names):
    return lambda right: {name: value for name, value in right.items() if name not in names}


def changed(name, change):
    return lambda right: {**right, name: change(right[name])}


def swapped(components):
    return [*components[1:], components[0]]


def parameter(pattern, new):
    return lambda right: re.sub(pattern, new, right)


@pytest.mark.full
@pytest.mark.sweep(
    ("agent", "label"),
    [
        (Signing(), "SUCCESS"),
        (Signing(components=swapped), "SUCCESS"),  # their order is free as long as it is the one that was signed
        (Signing(params=parameter(r";alg=\S+?(?=;)(.*)", r'\1;alg="hmac-sha256"')), "SUCCESS"),  # so is that of the parameters
        (Signing(target=lambda target: re.sub(r"(%[89A-F][0-9A-F])+", lambda found: unquote(found[0]), target)), "SUCCESS"),
        (Signing(values=changed("@query", lambda query: query[1:])), "SIGNATURE_MISMATCH"),
        (Signing(values=changed("@query", unquote)), "SIGNATURE_MISMATCH"),
        (Signing(since=1, values=changed("@path", unquote)), "SIGNATURE_MISMATCH"),
        (Signing(values=changed("@method", str.lower)), "SIGNATURE_MISMATCH"),
        (Signing(values=changed("x-request-class", lambda kind: f"{kind} ")), "SIGNATURE_MISMATCH"),
        (Signing(headers=changed("Signature", lambda signature: signature.replace(":", ""))), "SIGNATURE_MISMATCH"),
        (Signing(headers=changed("Signature-Input", parameter('nonce="', 'nonce="x'))), "SIGNATURE_MISMATCH"),
        (Signing(target=lambda target: target.replace("&empty=", "").replace("%2C", ",")), "SIGNATURE_MISMATCH"),
        (Signing(since=2, text=lambda text: text.strip()), "WRONG_HASH"),
        (Signing(since=2, digest=lambda digest: digest_of("{}")), "WRONG_HASH"),
        (Signing(since=2, components=lambda names: names[:-1]), "MISSING_CONSTRAINT"),
        (Signing(since=2, components=lambda names: names[:-1], headers=drop("Content-Digest")), "MISSING_CONSTRAINT"),
        (Signing(components=lambda names: names[:3]), "MISSING_CONSTRAINT"),
        (Signing(params=parameter(r";nonce=.*", "")), "MISSING_CONSTRAINT"),
        (Signing(headers=drop("Signature-Input")), "MISSING_CONSTRAINT"),
        (Signing(headers=drop("X-Request-Class")), "MISSING_CONSTRAINT"),
        (Signing(headers=drop("Signature", "Signature-Input")), "MISSING_TOKEN"),
        (Signing(nonce=str.swapcase), "MUTATED_TOKEN"),
        (Signing(nonce=lambda nonce: nonce[:18]), "OTHER"),
        (Signing(params=parameter("client_", "key_")), "WRONG_VALUE"),
        (Signing(params=parameter(r"created=\d+", "created=now")), "WRONG_VALUE"),
        (Signing(values=put(x_request_class="vip"), headers=put(**{"X-Request-Class": "vip"})), "WRONG_VALUE"),
        (Signing(since=2, only_release=True), "WRONG_VALUE"),  # a body that is signed well, but is not the document
        (Signing(renew=False), "EXPIRED_BEFORE_USE"),
    ],
)  # fmt: skip
def test_what_a_way_of_signing_is_called_by_the_server_and_from_the_trace(judged_with, agent, label):
    assert {judged_with(ID, agent, seed) for seed in range(3)} == {(label, label)}


@pytest.mark.parametrize("seed", range(3))
def test_a_nonce_holds_until_just_before_its_time_is_over(play_with, seed):
    ttl = task(ID).given(seed)["ttl"]
    agent = Signing(pause=ttl - 0.001)
    first = play_with(ID, agent, seed)[1][1]
    assert (first.label, first.at) == ("ORDER", 1 + ttl - 0.001 + task(ID).given(seed)["work"])
    assert play_with(ID, Signing(pause=ttl), seed)[0].failure_label == "EXPIRED_BEFORE_USE"


@pytest.mark.parametrize(("age", "label"), [(60, "SUCCESS"), (61, "EXPIRED_BEFORE_USE"), (-1, "SUCCESS"), (-2, "WRONG_VALUE")])
def test_a_signature_is_at_most_a_minute_old_and_not_of_the_future(app, age, label):
    assert app(created=1000 - age) == label


@pytest.fixture
def app():
    """The label of one signed read at the second 1000, with a nonce of that moment."""

    def reading(created):
        given = task(ID).given(0)
        clock = ManualClock()
        desk = Desk(given, seed="test", clock=clock)
        application = desk.app(task(ID).routes(desk))

        async def run():
            await clock.sleep(1000)
            async with in_process(application) as client:
                nonce = (await client.get("/nonce")).json()["nonce"]
                path, _, query = given["order_target"].partition("?")
                values = {"@method": "GET", "@authority": "api.example.test", "@path": path, "@query": f"?{query}",
                          "x-request-class": given["request_class"]}  # fmt: skip
                covered = " ".join(f'"{name}"' for name in values)
                line = f'({covered});created={created};keyid="{given["keyid"]}";alg="hmac-sha256";nonce="{nonce}"'
                signature = sign(given["key"], signature_base(values, values, line))
                headers = {"X-Request-Class": given["request_class"], "Signature": f"sig1=:{signature}:"}
                await client.get(given["order_target"], headers={**headers, "Signature-Input": f"sig1={line}"})

        asyncio.run(run())
        return desk.events[-1].failure or "SUCCESS"

    return reading


def test_the_signature_is_that_of_the_published_example():
    """RFC 9421, B.2.5: signing a request using hmac-sha256."""
    key = "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ=="
    values = {"date": "Tue, 20 Apr 2021 02:07:55 GMT", "@authority": "example.com", "content-type": "application/json"}
    components, params, line = parsed('sig1=("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret"')
    assert (components, params) == (tuple(values), {"created": "1618884473", "keyid": "test-shared-secret"})
    assert sign(key, signature_base(values, components, line)) == "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8="


def test_the_digest_is_that_of_the_published_example():
    """RFC 9530, appendix B.1."""
    assert content_digest(b'{"hello": "world"}\n') == "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"


def test_an_order_that_was_not_released_is_no_success(play_with):
    async def agent(instruction, tools):
        await tools.http("GET", f"{BASE}/nonce")

    assert play_with(ID, agent)[0].failure_label == "OTHER"

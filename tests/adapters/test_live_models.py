"""A model behind an HTTP endpoint: recorded once, and never asked again; a request that was not recorded is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

KEY = "sk-test-0123456789abcdefghijklmnop"
DESK = """
import json
import httpx

MODEL = httpx.Client(base_url="{url}/v1", headers={{"authorization": "Bearer {key}"}})

def refund(order): return "refunded"

def handle():
    messages = [{{"role": "user", "content": "Refund A17"}}]
    for _ in range(6):
        reply = MODEL.post("/chat/completions", json={{"model": "gpt-test", "messages": messages}}).json()
        message = reply["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            try:
                said = refund(**json.loads(call["function"]["arguments"]))
            except TimeoutError:
                said = "error: timed out"
            messages.append({{"role": "tool", "tool_call_id": call["id"], "content": said}})
"""
TEST = """
import desk, pytest
from mat_contracts import no_duplicate_effect

@pytest.fixture
def mat_instrument(): return {"desk.refund": {"effect": "write", "errors": "builtin"}}

@pytest.fixture
def once(): return no_duplicate_effect("refund", key="order")

@pytest.mark.mat(budget=4, faults=["service.timeout", "service.lost_ack"])
def test_refund(mat_run, once): assert desk.handle() == "refunded"
"""


class Model(BaseHTTPRequestHandler):
    """An endpoint in the shape of OpenAI's: it calls the tool again where it failed, under a new id each time."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def do_POST(self) -> None:
        Model.asked += 1
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = [each["content"] for each in body["messages"] if each["role"] == "tool"]
        message: dict[str, Any] = {"role": "assistant", "content": "refunded"}
        if "refunded" not in said:
            function = {"name": "refund", "arguments": '{"order": "A17"}'}
            call = {"id": f"call_{Model.asked}", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
        content = json.dumps({"id": f"c{Model.asked}", "model": body["model"], "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *given: Any) -> None:
        return None


@pytest.fixture
def desk(pytester: pytest.Pytester) -> Iterator[pytest.Pytester]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    Thread(target=server.serve_forever, daemon=True).start()
    Model.asked = 0
    pytester.makepyfile(desk=DESK.format(url=f"http://127.0.0.1:{server.server_address[1]}", key=KEY), test_desk=TEST)
    pytester.makeini("[pytest]\nmat_attach = httpx\nmat_prices = gpt-test = 250/1000 USD\n")
    yield pytester
    server.shutdown()


@pytest.mark.nightly
def test_replies_are_recorded_once_and_serve_every_session_after(desk: pytest.Pytester) -> None:
    assert desk.runpytest_subprocess("--mat-live-calls", "8").ret == 0
    assert Model.asked == 2
    assert desk.runpytest_subprocess("--mat-live-calls", "0").ret == 0
    assert Model.asked == 2
    kept = "".join(path.read_text() for path in (desk.path / ".mat" / "cassettes").iterdir())
    assert '"refund"' in kept or "refund" in kept
    assert KEY not in kept


@pytest.mark.nightly
def test_a_branch_that_was_not_recorded_is_named_and_found_once_it_is(desk: pytest.Pytester) -> None:
    desk.runpytest_subprocess("--mat-live-calls", "8")
    missed = " ".join(desk.runpytest_subprocess("--mat-live-calls", "0", "--mat-stress").stdout.str().split())
    assert (
        "no recorded reply of model:gpt-test for this request, and no live calls are allowed; the nearest differs in "
        "body.messages.2.content: recorded 'refunded', asked 'error: timed out'" in missed
    )
    assert (
        "1 of 3 schedules (33%) were reached with recorded replies; the others ask models something new: at least 1 live call, "
        "13 tokens, 0.0055 USD" in missed
    )
    assert "more live calls (--mat-live-calls)" in missed
    assert Model.asked == 2
    found = desk.runpytest_subprocess("--mat-live-calls", "8", "--mat-stress").stdout.str()
    assert "the reply of the 1st refund call by main is lost after the effect" in " ".join(found.split())
    asked = Model.asked
    again = desk.runpytest_subprocess("--mat-live-calls", "0", "--mat-stress").stdout.str()
    assert "the reply of the 1st refund call by main is lost after the effect" in " ".join(again.split())
    assert Model.asked == asked


def recorded(desk: pytest.Pytester, *options: str) -> dict[str, Any]:
    """How far recorded replies reach, as the JSON report of a session says."""
    desk.runpytest_subprocess("--mat-stress", "--mat-report", "report.json", *options)
    found: dict[str, Any] = json.loads((desk.path / "report.json").read_text())["items"][0]["recorded"]
    return found


def money(calls: int) -> dict[str, Any]:
    """The cost of calls of this endpoint: each reads 10 tokens at 250 USD a million and writes 3 at 1,000."""
    return {"calls": calls, "tokens": 13 * calls, "price": 5_500 * calls, "currency": "USD", "unpriced": []}


@pytest.mark.nightly
def test_what_is_missing_is_recorded_call_by_call_and_nothing_is_asked_twice(desk: pytest.Pytester) -> None:
    desk.runpytest_subprocess("--mat-live-calls", "8")
    nothing_new = recorded(desk, "--mat-live-calls", "0")
    assert nothing_new == {"reached": 1, "unreached": 2, "missing": money(1), "planned": money(4), "made": 0}
    one_call = recorded(desk, "--mat-live-calls", "1")
    assert one_call == {"reached": 1, "unreached": 2, "missing": money(1), "planned": money(4), "made": 1}
    assert Model.asked == 3
    rest = recorded(desk, "--mat-live-calls", "8")
    assert (rest["reached"], rest["unreached"], rest["made"]) == (3, 0, 1)
    assert Model.asked == 4  # two of the undisturbed run, two that faults lead to: none of them is sent again
    assert len(set(requests(desk))) == len(requests(desk)) == 4


def requests(desk: pytest.Pytester) -> list[str]:
    [path] = (desk.path / ".mat" / "cassettes").iterdir()
    entries = [json.loads(line)[2] for line in path.read_text().splitlines()[1:]]
    return [json.dumps(entry["asked"]) for entry in entries]


@pytest.mark.full
def test_what_a_search_may_cost_is_told_before_its_first_call(desk: pytest.Pytester) -> None:
    told = " ".join(desk.runpytest_subprocess("--mat-live-calls", "8", "--mat-stress").stdout.str().split())
    estimate = (
        "mat: the search of test_desk.py::test_refund may need about 4 live calls, 52 tokens, 0.03 USD "
        "(replies recorded: 2; live calls allowed: 6)"
    )
    assert estimate in told
    assert told.index(estimate) < told.index("refund.no_duplicate_effect")


@pytest.mark.full
def test_prices_that_are_none_are_named(desk: pytest.Pytester) -> None:
    desk.makeini("[pytest]\nmat_attach = httpx\nmat_prices =\n  gpt-test 2.50\n  other = 1/2 EUR\n  third = 1/2 USD\n")
    refused = desk.runpytest_subprocess("--mat-live-calls", "8").stdout.str()
    assert "'gpt-test 2.50' is not a price; several currencies: EUR, USD" in " ".join(refused.split())

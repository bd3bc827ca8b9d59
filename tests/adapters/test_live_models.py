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
    pytester.makeini("[pytest]\nmat_attach = httpx\n")
    yield pytester
    server.shutdown()


@pytest.mark.full
def test_replies_are_recorded_once_and_serve_every_session_after(desk: pytest.Pytester) -> None:
    assert desk.runpytest_subprocess("--mat-live-calls", "8").ret == 0
    assert Model.asked == 2
    assert desk.runpytest_subprocess("--mat-live-calls", "0").ret == 0
    assert Model.asked == 2
    kept = "".join(path.read_text() for path in (desk.path / ".mat" / "cassettes").iterdir())
    assert '"refund"' in kept or "refund" in kept
    assert KEY not in kept


@pytest.mark.full
def test_a_branch_that_was_not_recorded_is_named_and_found_once_it_is(desk: pytest.Pytester) -> None:
    desk.runpytest_subprocess("--mat-live-calls", "8")
    missed = " ".join(desk.runpytest_subprocess("--mat-live-calls", "0", "--mat-stress").stdout.str().split())
    assert (
        "no recorded reply of model:gpt-test for this request, and no live calls are allowed; the nearest differs in "
        "body.messages.2.content: recorded 'refunded', asked 'error: timed out'" in missed
    )
    assert (
        "1 of 3 schedules (33%) were reached with recorded replies; the others need at least 2 live calls, about 26 tokens"
        in missed
    )
    assert Model.asked == 2
    found = desk.runpytest_subprocess("--mat-live-calls", "8", "--mat-stress").stdout.str()
    assert "the reply of the 1st refund call by main is lost after the effect" in found
    asked = Model.asked
    again = desk.runpytest_subprocess("--mat-live-calls", "0", "--mat-stress").stdout.str()
    assert "the reply of the 1st refund call by main is lost after the effect" in again
    assert Model.asked == asked

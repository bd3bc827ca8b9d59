"""`mat mcp-proxy` by itself: it records a session, disturbs it, and answers from a recording, over stdio and HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mat.core.nearest import differences, in_words, nearest

HERE = Path(__file__).parent / "programs"
SERVER = [sys.executable, str(HERE / "server.py")]
INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
stdio = pytest.mark.skipif(sys.platform == "win32", reason="pipes cannot be waited for together")
pytestmark = pytest.mark.full


class Session:
    """A client of the proxy, line by line, so that what passes can be compared byte by byte."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "mat", "mcp-proxy", *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.send, self.receive = self.process.stdin, self.process.stdout
        self.lines: list[bytes] = []

    def ask(self, number: int, method: str, **params: Any) -> dict[str, Any]:
        self.tell({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        while True:
            self.lines.append(self.receive.readline())
            message: dict[str, Any] = json.loads(self.lines[-1])
            if message.get("id") == number and "method" not in message:
                return message

    def tell(self, message: Any) -> None:
        self.send.write(json.dumps(message).encode() + b"\n")
        self.send.flush()

    def refund(self, number: int, order: str) -> dict[str, Any]:
        return self.ask(number, "tools/call", name="refund", arguments={"order": order})

    def open(self) -> Session:
        self.ask(1, "initialize", **INITIALIZE)
        self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def close(self) -> str:
        self.send.close()
        self.process.wait(10)
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


def trace_of(path: Path) -> list[dict[str, Any]]:
    return [found for line in path.read_text().splitlines() if "step" in (found := json.loads(line))]


@stdio
def test_every_byte_of_the_server_passes_where_nothing_is_changed(tmp_path: Path) -> None:
    plain = subprocess.run(
        [*SERVER, str(tmp_path / "one")], capture_output=True, timeout=20, check=True,
        input=b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"balance","arguments":{"order":"A17"}}}\n',
    ).stdout  # fmt: skip
    session = Session("--record", str(tmp_path / "r.mat.jsonl"), "--", *SERVER, str(tmp_path / "two"))
    session.ask(1, "tools/call", name="balance", arguments={"order": "A17"})
    session.close()
    assert b"".join(session.lines) == plain


@stdio
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_a_recorded_session_is_a_trace_that_other_commands_judge(tmp_path: Path, end: str) -> None:
    record = tmp_path / "session.mat.jsonl"
    session = Session("--record", str(record), "--", *SERVER, str(tmp_path / "ledger")).open()
    session.refund(2, "A17")
    session.refund(3, "A17")
    if end == "killed":
        session.process.terminate()
        session.process.wait(10)
    else:
        session.close()
    assert [each["action"]["name"] for each in trace_of(record)][:3] == ["initialize", "refund", "refund"]
    (tmp_path / "rules.py").write_text(
        "from mat_contracts import no_duplicate_effect\nONCE = no_duplicate_effect('refund', key='order')\n"
    )
    judged = subprocess.run(
        [sys.executable, "-m", "mat", "check", str(record), "--contracts", "rules:ONCE"], cwd=tmp_path, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert judged.returncode == 1, judged.stderr
    assert "refund.no_duplicate_effect" in judged.stdout


@stdio
def test_a_schedule_disturbs_a_session_and_what_was_not_reached_is_said(tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.json"
    lost = {"operator": "service.lost_ack", "site": "main/service:refund#1"}
    schedule.write_text(json.dumps([lost, {**lost, "site": "main/service:refund#7"}]))
    session = Session("--schedule", str(schedule), "--", *SERVER, str(tmp_path / "ledger")).open()
    assert session.refund(2, "A17")["error"]["code"] == -32001
    assert "result" in session.refund(3, "A17")
    assert "service.lost_ack at main/service:refund#7 was not reached" in session.close()
    assert (tmp_path / "ledger").read_text() == "A17\nA17\n"


@stdio
def test_a_recording_answers_without_the_server_and_says_how_another_request_differs(tmp_path: Path) -> None:
    record = tmp_path / "session.mat.jsonl"
    first = Session("--record", str(record), "--", *SERVER, str(tmp_path / "ledger")).open()
    answer = first.refund(2, "A17")
    first.close()
    again = Session("--replay", str(record)).open()
    del answer["result"]["_meta"]  # what may differ from run to run is not recorded
    assert again.refund(2, "A17") == answer
    missed = again.refund(3, "A18")["error"]["message"]
    assert "the nearest recorded request differs in order: recorded 'A17', asked 'A18'" in missed
    assert "nothing is recorded of balance" in again.ask(4, "tools/call", name="balance", arguments={})["error"]["message"]
    again.close()
    assert (tmp_path / "ledger").read_text() == "A17\n"


@stdio
def test_a_cancelled_call_gets_no_answer_and_the_next_one_does(tmp_path: Path) -> None:
    session = Session("--record", str(tmp_path / "r.mat.jsonl"), "--", *SERVER, str(tmp_path / "ledger")).open()
    session.tell({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "slow", "arguments": {}}})
    time.sleep(0.3)
    session.tell({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
    assert session.refund(3, "A17")["id"] == 3
    session.close()
    assert not any(b'"id": 2' in line or b'"id":2' in line for line in session.lines)


@stdio
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "has no server"),
        (["--url", "http://127.0.0.1:1/mcp", "--", "x"], "has two servers"),
        (["--schedule", "{folder}/none.json", "--", "x"], "none.json"),
        (["--schedule", "{folder}/wrong.json", "--", "x"], "holds no schedule"),
    ],
)
def test_a_wrong_line_is_an_error_with_its_fix(tmp_path: Path, options: list[str], said: str) -> None:
    (tmp_path / "wrong.json").write_text('{"operator": "service.timeout"}')
    command = [sys.executable, "-m", "mat", "mcp-proxy", *(each.format(folder=tmp_path) for each in options)]
    found = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30, check=False)
    assert found.returncode == 2
    assert said in found.stderr
    assert "fix:" in found.stderr


# -- streamable HTTP ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["json", "events"])
def remote(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[str]]]:
    """A server of streamable HTTP, written from the specification: it answers as JSON or as events. Yields address, refunds."""
    made: list[str] = []

    class Server(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *given: Any) -> None:
            pass

        def respond(self, status: int, kind: str, content: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if message["method"] == "initialize":
                result: Any = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
                answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
                self.respond(200, "application/json", answer, **{"Mcp-Session-Id": "s-1"})
                return
            if self.headers["Mcp-Session-Id"] != "s-1":
                self.respond(404, "text/plain", b"no session")
                return
            if "id" not in message:
                self.respond(202, "text/plain", b"")
                return
            made.append(message["params"]["arguments"]["order"])
            result = {"content": [{"type": "text", "text": "refunded"}]}
            answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            if request.param == "json":
                self.respond(200, "application/json", answer)
            else:
                note = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}).encode()
                self.respond(200, "text/event-stream", b"data: " + note + b"\n\nevent: message\ndata: " + answer + b"\n\n")

        def do_DELETE(self) -> None:
            self.respond(200, "text/plain", b"bye")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/mcp", made
    server.shutdown()


def post(url: str, message: Any, **headers: str) -> tuple[Any, Any, str]:
    request = urllib.request.Request(
        url, data=json.dumps({"jsonrpc": "2.0", **message}).encode(), method="POST",
        headers={"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=20) as response:
        text = response.read().decode()
        events = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
        return json.loads(events[-1] if events else text or "null"), response.headers, text


def test_a_server_of_streamable_http_is_recorded_and_disturbed(tmp_path: Path, remote: tuple[str, list[str]]) -> None:
    address, made = remote
    schedule, record = tmp_path / "schedule.json", tmp_path / "session.mat.jsonl"
    schedule.write_text(json.dumps([{"operator": "service.lost_ack", "site": "main/service:refund#1"}]))
    proxy = subprocess.Popen(
        [sys.executable, "-m", "mat", "mcp-proxy", "--url", address, "--schedule", str(schedule), "--record", str(record)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert proxy.stdout is not None
    url = proxy.stdout.readline().split()[-1]
    try:
        greeted, headers, _ = post(url, {"id": 1, "method": "initialize", "params": INITIALIZE})
        session = {"Mcp-Session-Id": headers["Mcp-Session-Id"]}
        assert greeted["result"]["serverInfo"]["name"] == "s"
        post(url, {"method": "notifications/initialized"}, **session)
        call = {"method": "tools/call", "params": {"name": "refund", "arguments": {"order": "A17"}}}
        assert post(url, {"id": 2, **call}, **session)[0]["error"]["code"] == -32001
        answer, _, text = post(url, {"id": 3, **call}, **session)
        assert answer["result"]["content"][0]["text"] == "refunded"
        assert text.count("notifications/progress") == (1 if text.startswith("data:") else 0)
        gone = urllib.request.Request(url, method="DELETE", headers=session)
        assert urllib.request.urlopen(gone, timeout=20).read() == b"bye"
    finally:
        proxy.terminate()
        proxy.wait(10)
    assert made == ["A17", "A17"]
    assert [each["effected"] for each in trace_of(record) if each["action"]["name"] == "refund"] == ["yes", "yes"]


# -- the nearest request --------------------------------------------------------------------------------------------------


def test_the_nearest_request_has_the_fewest_differing_fields_then_the_most_common_text() -> None:
    asked = {"messages": [{"role": "user", "content": "Refund order A18, please, it arrived broken"}], "model": "m"}
    far = {"messages": [{"role": "system", "content": "Be kind"}], "model": "m"}
    near = {"messages": [{"role": "user", "content": "Refund order A17, please, it arrived broken"}], "model": "m"}
    other = {"messages": [{"role": "user", "content": "Hello"}], "model": "m"}
    found = nearest(asked, [far, other, near])
    assert found is not None
    assert in_words(found) == (
        "messages.0.content: recorded 'Refund order A17, please, it arrived broken', "
        "asked 'Refund order A18, please, it arrived broken'"
    )
    assert nearest(asked, []) is None
    assert nearest(asked, [asked]) == ()


def test_differences_are_limited_and_name_what_is_missing() -> None:
    assert [str(each) for each in differences({"a": 1}, {"b": 2})] == [
        "a: recorded 1, asked nothing", "b: recorded nothing, asked 2"
    ]  # fmt: skip
    assert len(differences(list(range(200)), list(range(1, 201)))) == 50

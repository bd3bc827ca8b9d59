"""Streams over HTTP, chunk by chunk, through every client: recorded, replayed, disturbed and left half-read."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import mat
import mat_faults
from mat.adapters import http_streams
from mat.boundary import calls
from mat.boundary.cassette import Cassette
from mat.boundary.tape import Tape

CATALOG = mat_faults.operators()
WORDS = ("The", " refund", " is", " due.")
CHAT: tuple[bytes, ...] = (
    *(b'data: {"choices": [{"index": 0, "delta": {"content": %s}}]}\n\n' % json.dumps(word).encode() for word in WORDS),
    b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}}\n\n',
    b"data: [DONE]\n\n",
)
CLAUDE: tuple[bytes, ...] = (
    b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}\n\n',
    b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}}\n\n',
    b": a comment\n\n",
    b'event: message_delta\ndata: {"type": "message_delta", "usage": {"output_tokens": 4}}\n\n',
    b'event: message_stop\ndata: {"type": "message_stop"}\n\n',
)
OLLAMA: tuple[bytes, ...] = (
    b'{"message": {"content": "The"}, "done": false}\n',
    b'{"message": {"content": " end"}, "done": true, "prompt_eval_count": 9, "eval_count": 4}\n',
)
GEMINI: tuple[bytes, ...] = (
    b'data: {"candidates": [{"content": {"parts": [{"text": "The"}]}}]}\n\n',
    b'data: {"candidates": [{"content": {"parts": [{"text": " end"}]}}], "usageMetadata": {"promptTokenCount": 9}}\n\n',
)
RESPONSES: tuple[bytes, ...] = (
    b'event: response.created\ndata: {"type": "response.created"}\n\n',
    b'event: response.completed\ndata: {"type": "response.completed", "response": {}}\n\n',
)
SHORT: tuple[bytes, ...] = (CHAT[0], CHAT[-1])
NEWS: tuple[bytes, ...] = tuple(b"id: %d\r\ndata: tick %d\r\n\r\n" % (number, number) for number in range(3))


EVENTS = {
    "/short/chat/completions": SHORT, "/openai/responses": RESPONSES, "/v1/models/m-1:streamGenerateContent": GEMINI,
    "/v2/chat": NEWS,
}  # fmt: skip
"""Streams of other providers, by path."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []
    left: ClassVar[Event] = Event()
    """Set when the client has left a stream that says nothing more."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        Handler.asked.append(self.path)
        if self.path == "/v1/chat/completions":
            self._stream("text/event-stream", CHAT)
        elif self.path == "/v1/messages":
            self._stream("text/event-stream; charset=utf-8", CLAUDE)
        elif self.path == "/api/chat":
            self._stream("application/x-ndjson", OLLAMA)
        elif self.path == "/silent/chat/completions":
            self._fall_silent()
        elif self.path in EVENTS:
            self._stream("text/event-stream", EVENTS[self.path])
        else:
            self._send(429, b'{"error": {"message": "slow down"}}')

    def do_GET(self) -> None:
        Handler.asked.append(self.path)
        self._stream("text/event-stream", NEWS)

    def _stream(self, kind: str, events: tuple[bytes, ...]) -> None:
        """In parts that do not end where the events do."""
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        content = b"".join(events)
        with suppress(ConnectionError):  # of a client that leaves early
            for part in (content[:7], content[7:200], content[200:]):
                time.sleep(0.01)  # the client has read the others
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part) if part else b"")
            self.wfile.write(b"0\r\n\r\n")

    def _fall_silent(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(CHAT[0]), CHAT[0]))
        Handler.left.wait(15)
        self.close_connection = True

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *given: Any) -> None:
        return None


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()


@pytest.fixture
def url(server: ThreadingHTTPServer) -> str:
    Handler.asked.clear()
    return f"http://127.0.0.1:{server.server_address[1]}"


@dataclass
class Read:
    """What an agent has read of a stream: the status, the parts in which it came, and what ended it."""

    status: int = 0
    parts: list[bytes] = field(default_factory=list)
    error: str = ""

    @property
    def content(self) -> bytes:
        return b"".join(self.parts)


@dataclass(frozen=True)
class Ask:
    """A request for a stream. `most`: parts that the agent reads before it leaves; `timeout_s`: how long it waits for one."""

    path: str = "/v1/chat/completions"
    most: int = 1_000
    timeout_s: float | None = 60.0

    @property
    def method(self) -> str:
        return "GET" if self.path == "/news" else "POST"

    @property
    def body(self) -> dict[str, Any]:
        return {"model": "m-1", "messages": [{"role": "user", "content": "Refund A17?"}], "stream": True}

    @property
    def headers(self) -> dict[str, str]:
        return {"accept": "text/event-stream"} if self.method == "GET" else {}


def by_httpx(url: str, ask: Ask) -> Read:
    import httpx

    read = Read()
    with (
        httpx.Client(timeout=ask.timeout_s) as client,
        client.stream(ask.method, url + ask.path, json=ask.body, headers=ask.headers) as reply,
    ):
        read.status = reply.status_code
        try:
            for number, part in enumerate(reply.iter_bytes(), 1):
                read.parts.append(part)
                if number == ask.most:
                    break
        except httpx.HTTPError as error:
            read.error = type(error).__name__
    return read


def by_httpx_async(url: str, ask: Ask) -> Read:
    import httpx

    async def asked() -> Read:
        read = Read()
        async with (
            httpx.AsyncClient(timeout=ask.timeout_s) as client,
            client.stream(ask.method, url + ask.path, json=ask.body, headers=ask.headers) as reply,
        ):
            read.status = reply.status_code
            try:
                async for part in reply.aiter_bytes():
                    read.parts.append(part)
                    if len(read.parts) == ask.most:
                        break
            except httpx.HTTPError as error:
                read.error = type(error).__name__
        return read

    return asyncio.run(asked())


def by_requests(url: str, ask: Ask) -> Read:
    import requests

    read = Read()
    options: dict[str, Any] = {"json": ask.body, "headers": ask.headers, "stream": True, "timeout": ask.timeout_s}
    with requests.Session() as session, session.request(ask.method, url + ask.path, **options) as reply:
        read.status = reply.status_code
        try:
            for part in reply.iter_content(chunk_size=None):
                read.parts.append(part)
                if len(read.parts) == ask.most:
                    break
        except requests.RequestException as error:
            read.error = type(error).__name__
    return read


def by_urllib3(url: str, ask: Ask) -> Read:
    import urllib3

    read = Read()
    with urllib3.PoolManager(retries=False, timeout=ask.timeout_s) as pool:
        reply = pool.request(ask.method, url + ask.path, json=ask.body, headers=ask.headers or None, preload_content=False)
        read.status = reply.status
        try:
            for part in reply.stream():
                read.parts.append(part)
                if len(read.parts) == ask.most:
                    break
        except urllib3.exceptions.HTTPError as error:
            read.error = type(error).__name__
        reply.close()
    return read


def by_aiohttp(url: str, ask: Ask) -> Read:
    import aiohttp

    async def asked() -> Read:
        read = Read()
        timeout = aiohttp.ClientTimeout(sock_read=ask.timeout_s)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(ask.method, url + ask.path, json=ask.body, headers=ask.headers) as reply,
        ):
            read.status = reply.status
            try:
                async for part in reply.content.iter_any():
                    read.parts.append(part)
                    if len(read.parts) == ask.most:
                        break
            except (aiohttp.ClientError, TimeoutError) as error:
                read.error = type(error).__name__
        return read

    return asyncio.run(asked())


CLIENTS: dict[str, tuple[str, Callable[[str, Ask], Read]]] = {
    "httpx": ("httpx", by_httpx), "httpx-async": ("httpx", by_httpx_async), "requests": ("requests", by_requests),
    "urllib3": ("urllib3", by_urllib3), "aiohttp": ("aiohttp", by_aiohttp),
}  # fmt: skip
ERRORS = {
    # client: what it raises where a stream breaks off, and where it is silent for too long
    "httpx": ("RemoteProtocolError", "ReadTimeout"),
    "httpx-async": ("RemoteProtocolError", "ReadTimeout"),
    "requests": ("ChunkedEncodingError", "ConnectionError"),
    "urllib3": ("ProtocolError", "ReadTimeoutError"),
    "aiohttp": ("ClientPayloadError", "ServerTimeoutError"),
}


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if importlib.util.find_spec(CLIENTS[name][0]) is None:
        pytest.skip(f"{CLIENTS[name][0]} is not installed")
    return name


def read(client: str, url: str, ask: Ask = Ask(), tape: Tape | None = None, **operator: Any) -> tuple[Read, Any]:
    """What the client reads in a run, under an operator if one is named, and the record of the call."""
    package, by = CLIENTS[client]
    schedule = []
    if operator:
        name = operator.pop("operator")
        endpoint = f"{ask.method} 127.0.0.1{ask.path}"  # a free port of this machine is not part of the name
        boundary, port = ("service", endpoint) if ask.path == "/news" else ("model", "m-1")
        site = mat.spec.Site(agent="main", boundary=boundary, name=port, nth=1, last=1)  # type: ignore[arg-type]
        schedule = [mat.spec.perturbation(name, site, operator, cost=4)]
    clock = "real" if tape is None else "virtual"
    with mat.run(schedule=schedule, operators=CATALOG, tape=tape, clock=clock) as run, mat.attach(package):  # type: ignore[arg-type]
        found = by(url, ask)
    [record] = [record for record in run.trace if record.action.boundary]
    return found, record


STREAMS = {"/v1/chat/completions": CHAT, "/v1/messages": CLAUDE, "/api/chat": OLLAMA, "/news": NEWS}


@pytest.mark.parametrize("path", STREAMS)
def test_each_event_is_a_chunk_and_the_client_reads_what_was_sent(client: str, url: str, path: str) -> None:
    found, record = read(client, url, Ask(path=path))
    assert found == Read(200, list(STREAMS[path]))
    assert record.observation.chunks == len(STREAMS[path]) + 1  # the head is one
    assert record.observation.value[0]["status"] == 200
    assert not record.observation.cancelled
    if path != "/news":
        assert (record.observation.usage["input_tokens"], record.observation.usage["output_tokens"]) == (9, 4)


def test_events_are_recorded_as_data(client: str, url: str) -> None:
    _, record = read(client, url, Ask(path="/v1/messages"))
    assert record.observation.value[2] == {
        "event": "content_block_delta",
        "data": {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}},
        "text": CLAUDE[1].decode(),
    }
    assert record.observation.value[3] == {"text": ": a comment\n\n"}
    _, record = read(client, url, Ask(path="/news"))
    assert record.observation.value[1:] == [
        {"id": f"{number}", "data": f"tick {number}", "text": NEWS[number].decode()} for number in range(3)
    ]


@pytest.mark.parametrize(
    "content",
    [
        b'data: {"a":1}\n\n', b'data: {"a": 1}\n\n', b'data: {"a": 1', b'data: {"a": 1e999}\n\n', b"data: a\ndata: b\n\n",
        b'event: x\r\ndata:{"a":1}\r\n\r\n', b'{"a": 1}\n', b'{"a":1}', b": comment\n\n", b"\xff\n\n", b'data: {"a":NaN}\n\n',
    ],
)  # fmt: skip
def test_the_bytes_of_an_event_are_made_again_exactly_from_what_is_recorded(content: bytes) -> None:
    assert http_streams.content_of(http_streams.Chunk(data=http_streams.event_data(content))) == content


def test_an_event_that_a_fault_has_changed_is_made_of_its_data() -> None:
    data = {**http_streams.event_data(b'data: {"a": 1}\n\n'), "data": {"a": 2}}
    assert http_streams.content_of(http_streams.Chunk(data=data)) == b'data: {"a":2}\n\n'


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_chunks_are_the_same_whatever_parts_they_come_in(size: int) -> None:
    body = b"".join((*CLAUDE, *NEWS, b"data: half"))
    splitter, found = http_streams.EventSplitter("events"), []
    for start in range(0, len(body), size):
        found += splitter.add(body[start : start + size])
    found += splitter.rest()
    assert [chunk.content for chunk in found] == [*CLAUDE, *NEWS, b"data: half"]


def test_a_refusal_of_a_stream_is_one_reply(client: str, url: str) -> None:
    found, record = read(client, url, Ask(path="/v1/responses"))
    assert (found.status, json.loads(found.content)) == (429, {"error": {"message": "slow down"}})
    [reply] = record.observation.value
    assert (reply["status"], reply["body"]) == (429, {"error": {"message": "slow down"}})


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat"])
def test_a_recorded_stream_comes_again_chunk_by_chunk(client: str, url: str, path: str, tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    live, recorded = read(client, url, Ask(path=path), tape=Tape(cassette=Cassette(file, item="t", live=1)))
    again, served = read(client, "http://127.0.0.1:9", Ask(path=path), tape=Tape(cassette=Cassette(file, item="t", live=0)))
    assert len(Handler.asked) == 1
    assert live.parts == list(STREAMS[path])
    assert len(again.parts) == len(live.parts)
    assert [_parsed(part) for part in again.parts] == [_parsed(part) for part in live.parts]
    assert served.observation == recorded.observation


def _parsed(part: bytes) -> Any:
    """An event without the blanks in its JSON."""
    return [
        json.loads(found) if (found := line.removeprefix("data: "))[:1] == "{" else line for line in part.decode().splitlines()
    ]


def test_a_stream_that_is_left_half_read_is_recorded_as_that_and_the_same_in_a_replay(
    client: str, url: str, tmp_path: Path
) -> None:
    file = tmp_path / "c.jsonl"
    live, recorded = read(client, url, Ask(most=2), tape=Tape(cassette=Cassette(file, item="t", live=1)))
    assert live.parts == list(CHAT[:2])
    assert (recorded.observation.cancelled, recorded.observation.chunks, dict(recorded.observation.usage)) == (True, 3, {})
    again, served = read(client, url, Ask(most=2), tape=Tape(cassette=Cassette(file, item="t", live=0)))
    assert len(again.parts) == 2
    assert served.observation == recorded.observation
    further, whole = read(client, url, tape=Tape(cassette=Cassette(file, item="t", live=0)))  # the rest is recorded, too
    assert len(Handler.asked) == 1
    assert len(further.parts) == len(CHAT)
    assert whole.observation.usage["total_tokens"] == 13


def test_the_rest_of_a_stream_that_falls_silent_is_awaited_for_a_limited_time(
    client: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "STREAM_REST_S", 0.2)
    timeout_s = 0.5 if client == "httpx" else None  # a read of httpx ends by its own time-out only
    Handler.left.clear()
    began = time.perf_counter()
    try:
        tape = Tape(cassette=Cassette(tmp_path / "c.jsonl", item="t", live=1))
        found, record = read(client, url, Ask(path="/silent/chat/completions", most=1, timeout_s=timeout_s), tape=tape)
        assert time.perf_counter() - began < 10
    finally:
        Handler.left.set()
    assert found.parts == [CHAT[0]]
    assert (record.observation.cancelled, record.observation.chunks) == (True, 2)


def test_a_client_that_closes_after_the_last_word_has_read_the_whole_stream(client: str, url: str) -> None:
    found, record = read(client, url, Ask(most=len(CHAT)))
    assert found.parts == list(CHAT)
    assert not record.observation.cancelled
    assert record.effected == "yes"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/news"])
def test_a_connection_that_breaks_after_some_chunks_is_the_clients_own_exception(client: str, url: str, path: str) -> None:
    operator = "service.stream_cut" if path == "/news" else "model.cut"
    found, record = read(client, url, Ask(path=path), operator=operator, chunks=2, kind="connection")
    assert (found.status, found.parts, found.error) == (200, [STREAMS[path][0]], ERRORS[client][0])
    assert record.observation.error.kind == "connection"
    quiet, record = read(client, url, Ask(path=path), operator=operator, chunks=2)
    assert quiet == Read(200, [STREAMS[path][0]])
    assert record.observation.chunks == 2


@pytest.mark.parametrize("chunks", [3, 4])
def test_a_failure_after_the_last_word_does_not_happen_to_a_client_that_closes_there(
    client: str, url: str, chunks: int
) -> None:
    path, most = "/short/chat/completions", len(SHORT)
    _, calm = read(client, url, Ask(path=path, most=most))
    found, record = read(client, url, Ask(path=path, most=most), operator="model.stream_error", chunks=chunks)
    assert found == Read(200, list(SHORT))
    assert record.observation == calm.observation
    assert [note.changed for note in record.faults] == [False]
    found, record = read(client, url, Ask(path=path), operator="model.stream_error", chunks=chunks)  # reads on
    assert found.parts[most].startswith(b'data: {"error"')
    assert [note.changed for note in record.faults] == [True]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["", "connection"])
def test_a_stream_that_is_cut_before_its_head_was_asked_for(client: str, url: str, kind: str) -> None:
    Handler.asked.clear()
    ending = {"kind": kind} if kind else {}
    if kind:
        with pytest.raises(Exception, match="the stream broke after 0 chunks"):
            read(client, url, operator="model.cut", chunks=0, **ending)
    else:
        found, record = read(client, url, operator="model.cut", chunks=0)
        assert found.parts == []
        assert record.effected == "yes"
    assert Handler.asked == ["/v1/chat/completions"]


def test_a_chunk_that_comes_twice(client: str, url: str) -> None:
    found, record = read(client, url, operator="model.stream_repeat", chunk=3)
    assert found.parts == [CHAT[0], CHAT[1], CHAT[1], *CHAT[2:]]
    assert record.observation.chunks == len(CHAT) + 2
    assert len(record.raw.value) == len(CHAT) + 1


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/chat/completions", b'data: {"error":{"message":'),
        ("/v1/messages", b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"'),
        ("/api/chat", b'{"error":"m-1: the stream broke after 2 chunks"}\n'),
        ("/openai/responses", b'event: error\ndata: {"type":"error","code":"server_error"'),
        ("/v1/models/m-1:streamGenerateContent", b'data: {"error":{"code":503,"message":'),
    ],
)
@pytest.mark.parametrize("chunks", [1, 2])
def test_a_failure_in_the_middle_is_an_event_as_the_provider_sends_it(
    client: str, url: str, path: str, said: bytes, chunks: int
) -> None:
    found, record = read(client, url, Ask(path=path), operator="model.stream_error", chunks=chunks)
    assert (found.status, found.error) == (200, "")
    assert found.parts[:-1] == list((STREAMS | EVENTS)[path][: chunks - 1])  # the head is a chunk
    assert found.parts[-1].startswith(said.replace(b"2 chunks", b"%d chunks" % chunks))
    assert (record.observation.error.kind, record.observation.chunks) == ("server_error", chunks)


@pytest.mark.parametrize("path", ["/news", "/v2/chat"])
@pytest.mark.parametrize("chunks", [1, 2])
def test_a_failure_in_a_stream_without_a_form_for_it_is_a_broken_connection(
    client: str, url: str, path: str, chunks: int
) -> None:
    operator = "service.stream_error" if path == "/news" else "model.stream_error"
    found, record = read(client, url, Ask(path=path), operator=operator, chunks=chunks)
    assert (found.status, found.parts, found.error) == (200, list(NEWS[: chunks - 1]), ERRORS[client][0])
    assert (record.observation.error.kind, record.observation.chunks) == ("server_error", chunks)


def test_a_stream_that_stalls_takes_time_or_the_clients_patience(client: str, url: str, tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    read(client, url, tape=Tape(cassette=Cassette(file, item="t", live=1)))
    began = time.perf_counter()
    patient = Ask(timeout_s=60)
    found, record = read(
        client, url, patient, Tape(cassette=Cassette(file, item="t")), operator="model.stream_stall", chunks=2, ms=30_000
    )
    assert len(found.parts) == len(CHAT)
    assert record.sealed_ms - record.at_ms == 30_000
    hasty = Ask(timeout_s=5)
    found, record = read(
        client, url, hasty, Tape(cassette=Cassette(file, item="t")), operator="model.stream_stall", chunks=2, ms=30_000
    )
    assert (len(found.parts), found.error) == (1, ERRORS[client][1])
    assert record.sealed_ms - record.at_ms == 5_000
    assert record.observation.error.kind == "timeout"
    assert time.perf_counter() - began < 20  # the silence is virtual


def test_a_limit_of_the_rate_is_a_status_before_any_chunk(client: str, url: str) -> None:
    found, _ = read(client, url, operator="model.rate_limit")
    assert found.status == 429
    assert Handler.asked == []


@pytest.mark.parametrize(
    ("given", "waits"),
    [
        ({"total": 0}, None),
        ({"sock_read": 0, "total": 7}, 7),
        ({"sock_read": 3, "total": 7}, 3),
        ({"total": 300, "sock_read": 30}, 30),
    ],
)
def test_no_limit_of_aiohttp_is_0(given: dict[str, float], waits: float | None) -> None:
    aiohttp = pytest.importorskip("aiohttp")
    from mat.adapters.aiohttp import _patience_s

    assert _patience_s(SimpleNamespace(timeout=None), {"timeout": aiohttp.ClientTimeout(**given)}) == waits


def test_urllib3_streams_under_a_total_and_with_read1(url: str) -> None:
    urllib3 = pytest.importorskip("urllib3")
    with mat.run(clock="real"), mat.attach("urllib3"):
        reply = urllib3.PoolManager(timeout=urllib3.Timeout(total=5)).request(
            "GET", f"{url}/news", preload_content=False, headers={"accept": "text/event-stream"}
        )
        parts = []
        while part := reply.read1():
            parts.append(part)
    assert b"".join(parts) == b"".join(NEWS)

"""A fake model endpoint on loopback, in the shapes of OpenAI, Anthropic and Gemini, whole and as streams of events.

It thinks like the careless clerk of the shop, counts what it is asked, and wants its key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

from tests.frameworks import shop

KEY = "sk-test-0123456789abcdefghijklmnop"
PLAIN = "plainkey42plainkey42"
"""A key that nobody takes for one by its looks."""
Event = tuple[str, Any]
"""The name of an event, "" without one, and its data."""


def thought_of(messages: list[dict[str, Any]]) -> list[shop.Call] | str:
    """What the clerk does next, from the messages of an OpenAI request."""
    names = {
        call["id"]: call["function"]["name"]
        for each in messages
        for call in each.get("tool_calls") or ()
        if each.get("role") == "assistant"
    }
    results = [
        shop.Result(each.get("name") or names[each["tool_call_id"]], str(each["content"]), "error" in str(each["content"]))
        for each in messages
        if each["role"] == "tool"
    ]
    return shop.refunder(results)


def openai_reply(body: dict[str, Any], number: int) -> dict[str, Any]:
    thought = thought_of(body["messages"])
    message: dict[str, Any] = {"role": "assistant", "content": thought if isinstance(thought, str) else None}
    if not isinstance(thought, str):
        message["tool_calls"] = [
            {"id": f"call_{number}_{index}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for index, (name, arguments) in enumerate(thought)
        ]
    finish = "stop" if isinstance(thought, str) else "tool_calls"
    return {
        "id": f"c{number}", "object": "chat.completion", "created": 1, "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13},
    }  # fmt: skip


def openai_events(body: dict[str, Any], number: int) -> Iterator[Event]:
    whole = openai_reply(body, number)
    choice = whole["choices"][0]
    head = {**whole, "object": "chat.completion.chunk", "usage": None}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> Event:
        return "", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for word in (choice["message"]["content"] or "").split(" "):
        yield chunk({"content": f"{word} "})
    for index, call in enumerate(choice["message"].get("tool_calls") or ()):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": function}]})
        text = call["function"]["arguments"]
        for part in (text[:5], text[5:]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield chunk({}, choice["finish_reason"])
    yield "", {**head, "choices": [], "usage": whole["usage"]}
    yield "", "[DONE]"


def anthropic_reply(body: dict[str, Any], number: int) -> dict[str, Any]:
    content = [
        {"type": "text", "text": "größer: 30 €"},
        {"type": "tool_use", "id": f"t{number}", "name": "refund", "input": {"order": "A17"}},
    ]
    return {
        "id": f"m{number}", "type": "message", "role": "assistant", "model": body["model"], "content": content,
        "stop_reason": "tool_use", "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 3},
    }  # fmt: skip


def anthropic_events(body: dict[str, Any], number: int) -> Iterator[Event]:
    whole = anthropic_reply(body, number)
    began = {**whole, "content": [], "stop_reason": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    yield "message_start", {"type": "message_start", "message": began}
    text, tool = whole["content"]
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for part in (text["text"][:4], text["text"][4:]):
        yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    yield "content_block_start", {"type": "content_block_start", "index": 1, "content_block": {**tool, "input": {}}}
    for part in ('{"order"', ': "A17"}'):
        delta = {"type": "input_json_delta", "partial_json": part}
        yield "content_block_delta", {"type": "content_block_delta", "index": 1, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": 1}
    ended = {"stop_reason": "tool_use", "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 3}}
    yield "message_stop", {"type": "message_stop"}


def gemini_reply(body: dict[str, Any], number: int) -> dict[str, Any]:
    parts = [{"text": "Let me see"}, {"functionCall": {"name": "refund", "args": {"order": "A17"}}}]
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 3, "totalTokenCount": 13}
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": usage, "responseId": f"r{number}",
    }  # fmt: skip


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked = 0
    paths: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        Endpoint.asked += 1
        Endpoint.paths.append(self.path)
        body, number = json.loads(self.rfile.read(int(self.headers["content-length"]))), Endpoint.asked
        keys = [str(self.headers[name]) for name in ("authorization", "x-api-key", "x-goog-api-key")]
        if not any(KEY in each for each in keys) and f"key={PLAIN}" not in self.path:
            return self._send(401, "application/json", b'{"error": {"message": "no key"}}')
        path = self.path.partition("?")[0]
        if path.endswith(":streamGenerateContent"):
            return self._stream([("", gemini_reply(body, number))])
        if path.endswith(":generateContent"):
            return self._send_data(gemini_reply(body, number))
        reply, events = (anthropic_reply, anthropic_events) if path.endswith("/messages") else (openai_reply, openai_events)
        return self._stream(list(events(body, number))) if body.get("stream") else self._send_data(reply(body, number))

    def _send_data(self, data: Any) -> None:
        self._send(200, "application/json", json.dumps(data, ensure_ascii=False).encode())

    def _stream(self, events: list[Event]) -> None:
        lines = []
        for name, data in events:
            text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
            lines.append(f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n")
        self._send(200, "text/event-stream; charset=utf-8", "".join(lines).encode())

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *given: Any) -> None:
        return None


@contextmanager
def served() -> Iterator[str]:
    """The address of an endpoint that has been asked nothing."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    Thread(target=server.serve_forever, daemon=True).start()
    Endpoint.asked = 0
    Endpoint.paths.clear()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()

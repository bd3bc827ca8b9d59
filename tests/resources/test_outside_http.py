"""Budgets outside of runs through attached HTTP clients: whole replies and streams, which their callers get as they come."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import httpx
import pytest

import mat
from mat.adapters import http
from mat.resources import ResourceContract

URL: Final = "https://api.openai.com/v1/chat/completions"
USAGE: Final = {"prompt_tokens": 1_000, "completion_tokens": 300, "total_tokens": 1_300}
WHOLE: Final = {"choices": [{"message": {"content": "hello"}}], "usage": USAGE}
EVENTS: Final = [{"choices": [{"delta": {"content": word}}]} for word in ("hel", "lo")] + [{"choices": [], "usage": USAGE}]
PARTS: Final = [f"data: {json.dumps(each)}\n\n".encode() for each in EVENTS] + [b"data: [DONE]\n\n"]


class Flow(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body in parts. `sent`: how many have been asked for."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts, self.sent, self.closed = parts, 0, False

    def __iter__(self) -> Iterator[bytes]:
        for part in self.parts:
            self.sent += 1
            yield part

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            self.sent += 1
            yield part

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


def client(answer: Callable[[httpx.Request], httpx.Response]) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(answer))


def whole(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json=WHOLE)


def contract(**budgets: int) -> Any:
    return mat.budget.contracted(ResourceContract(name="work", budgets=budgets))


def ask(of: httpx.Client, **options: Any) -> Any:
    return of.post(URL, json={"model": "gpt", "messages": [], **options}).json()


def test_a_whole_reply_is_charged_and_the_next_is_refused() -> None:
    made: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        made.append(request.url.path)
        return whole(request)

    with mat.attach("httpx"), client(answer) as model, contract(tokens=2_000, model_calls=9) as work:
        assert [ask(model), ask(model)] == [WHOLE, WHOLE]
        with pytest.raises(mat.budget.BudgetSpent):
            ask(model)
    assert dict(work.status().consumed) == {"tokens": 2_600, "model_calls": 2}
    assert len(made) == 2


def test_a_stream_reaches_its_caller_part_by_part_and_is_charged_at_its_end() -> None:
    flow = Flow(PARTS)
    with mat.attach("httpx"), contract(tokens=9_000, model_calls=9) as work:
        with (
            client(lambda request: httpx.Response(200, stream=flow)) as model,
            model.stream("POST", URL, json={"model": "gpt", "stream": True}) as reply,
        ):
            parts = reply.iter_raw()
            assert (next(parts), flow.sent) == (PARTS[0], 1)
            assert [*parts] == PARTS[1:]
        assert flow.closed
        assert dict(work.status().consumed) == {"tokens": 1_300, "model_calls": 1}


def test_an_async_stream_that_is_compressed_is_charged() -> None:
    body = gzip.compress(b"".join(PARTS))
    flow = Flow([body[:40], body[40:]])

    async def read() -> list[str]:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, headers={"content-encoding": "gzip"}, stream=flow))
        async with (
            httpx.AsyncClient(transport=transport) as model,
            model.stream("POST", URL, json={"model": "gpt", "stream": True}) as reply,
        ):
            return [line async for line in reply.aiter_lines()]

    with mat.attach("httpx"), contract(tokens=9_000) as work:
        assert "data: [DONE]" in asyncio.run(read())
        assert dict(work.status().consumed) == {"tokens": 1_300}


@pytest.mark.parametrize("given_up", ["closed", "forgotten"])
def test_a_stream_that_is_given_up_counts_no_less_than_it_reserved(given_up: str) -> None:
    with mat.attach("httpx"), client(lambda request: httpx.Response(200, stream=Flow(PARTS))) as model:
        with contract(tokens=9_000) as work:
            request = model.build_request("POST", URL, json={"model": "gpt", "stream": True, "max_tokens": 700})
            reply = model.send(request, stream=True)
            next(reply.iter_raw())
            if given_up == "closed":
                reply.close()
            del reply
            gc.collect()
            assert work.status().consumed["tokens"] >= 700
            assert not any(work.status().reserved.values())


def test_a_stream_without_usage_refuses_the_next_call_that_needs_tokens() -> None:
    with mat.attach("httpx"), client(lambda request: httpx.Response(200, stream=Flow(PARTS[:2]))) as model:
        with contract(tokens=9_000):
            with model.stream("POST", URL, json={"model": "gpt", "stream": True}) as reply:
                reply.read()
            with pytest.raises(mat.budget.BudgetSpent):
                ask(model)


def test_a_reply_that_refuses_the_request_consumes_no_tokens_and_blocks_nothing() -> None:
    statuses = [429, 503]

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(statuses.pop(), json={"error": "busy"}) if statuses else whole(request)

    with mat.attach("httpx"), client(answer) as model, contract(tokens=9_000, model_calls=9) as work:
        assert [ask(model) for _ in range(3)] == [{"error": "busy"}, {"error": "busy"}, WHOLE]
        assert dict(work.status().consumed) == {"tokens": 1_300, "model_calls": 3}


def test_other_requests_count_as_calls_of_a_tool_and_their_uploads_stay_streams() -> None:
    sent: list[int] = []

    def upload() -> Iterator[bytes]:
        for number in range(3):
            sent.append(number)
            yield b"x"

    class Shop(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            assert sent == []  # nothing has read it before the transport
            return httpx.Response(200, content=request.read())

    with mat.attach("httpx"), httpx.Client(transport=Shop()) as shop, contract(tool_calls=1):
        assert shop.post("https://shop.test/files", content=upload()).text == "xxx"
        with pytest.raises(mat.budget.BudgetSpent):
            shop.get("https://shop.test/orders")


def test_a_model_that_is_instrumented_and_asked_through_an_attached_client_is_charged_once() -> None:
    with mat.attach("httpx"), client(whole) as model, contract(tokens=9_000, calls=9) as work:
        instrumented = mat.model("planner")(lambda prompt: ask(model))
        assert instrumented("x") == WHOLE
        assert dict(work.status().consumed) == {"tokens": 1_300, "calls": 1}
        ask(model)  # by itself it counts
        assert dict(work.status().consumed) == {"tokens": 2_600, "calls": 2}


def test_the_model_call_of_an_instrumented_stream_counts_once_while_the_caller_asks_for_others_between_its_parts() -> None:
    with mat.attach("httpx"), client(whole) as model, contract(tokens=9_000, calls=9) as work:

        @mat.model("planner")
        def planner() -> Iterator[Any]:
            yield "thinking"
            yield ask(model)

        chunks = planner()
        assert next(chunks) == "thinking"
        ask(model)
        assert [*chunks] == [WHOLE]
        assert dict(work.status().consumed) == {"tokens": 2_600, "calls": 2}


def test_a_stream_that_is_too_long_to_keep_has_an_unknown_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STREAMED_BYTES", 50)
    with mat.attach("httpx"), client(lambda request: httpx.Response(200, stream=Flow(PARTS))) as model:
        with contract(tokens=9_000) as work:
            with model.stream("POST", URL, json={"model": "gpt", "stream": True}) as reply:
                assert reply.read() == b"".join(PARTS)
            assert work.status().consumed["tokens"] == 0
            with pytest.raises(mat.budget.BudgetSpent):
                ask(model)


def test_without_a_contract_an_attached_client_is_plain() -> None:
    flow = Flow(PARTS)
    with mat.attach("httpx"), client(lambda request: httpx.Response(200, stream=flow)) as model:
        reply = model.send(model.build_request("POST", URL, json={}), stream=True)
        assert type(reply.stream).__module__.startswith("httpx")
        reply.close()

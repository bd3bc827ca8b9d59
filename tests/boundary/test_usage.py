"""Token usage is read from the shapes that providers document: mappings, dataclasses and pydantic models, whole and streamed.

Each shape is written from the provider's published documentation, which is named next to it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import create_model

import mat
from mat.adapters.http import HTTPRequest, reply_of
from mat.boundary.usage import usage_of
from mat.core.errors import MatError
from mat.core.resources import tokens_of


@dataclass(frozen=True)
class Shape:
    """A reply, or the chunks of one, and the tokens that it stands for. `bills`: all tokens that the call consumed."""

    reply: Any
    bills: int
    usage: dict[str, int]


def usage(read: int, wrote: int, **more: int) -> dict[str, int]:
    return {"input_tokens": read, "output_tokens": wrote, **more}


WHOLE: Final = {
    # https://platform.openai.com/docs/api-reference/chat/object
    "openai chat": Shape(
        {
            "id": "chatcmpl-1", "object": "chat.completion", "choices": [{"index": 0, "message": {"content": "so"}}],
            "usage": {
                "prompt_tokens": 1000, "completion_tokens": 300, "total_tokens": 1300,
                "prompt_tokens_details": {"cached_tokens": 900, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 200, "accepted_prediction_tokens": 0},
            },
        },
        1300, usage(1000, 300, total_tokens=1300, reasoning_tokens=200, cached_tokens=900),
    ),
    # https://platform.openai.com/docs/api-reference/responses/object
    "openai responses": Shape(
        {
            "id": "resp_1", "object": "response", "output": [],
            "usage": {
                "input_tokens": 1000, "input_tokens_details": {"cached_tokens": 900}, "output_tokens": 300,
                "output_tokens_details": {"reasoning_tokens": 200}, "total_tokens": 1300,
            },
        },
        1300, usage(1000, 300, total_tokens=1300, reasoning_tokens=200, cached_tokens=900),
    ),
    # https://docs.claude.com/en/docs/build-with-claude/prompt-caching: the input is the sum of the three
    "anthropic": Shape(
        {
            "id": "msg_1", "type": "message", "content": [{"type": "text", "text": "so"}],
            "usage": {
                "input_tokens": 50, "cache_creation_input_tokens": 248, "cache_read_input_tokens": 702, "output_tokens": 300,
                "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 48},
            },
        },
        1300, usage(1000, 300, cached_tokens=702),
    ),
    # https://ai.google.dev/api/generate-content#UsageMetadata
    "gemini": Shape(
        {
            "candidates": [],
            "usageMetadata": {
                "promptTokenCount": 900, "cachedContentTokenCount": 100, "candidatesTokenCount": 200,
                "toolUsePromptTokenCount": 100, "thoughtsTokenCount": 100, "totalTokenCount": 1300,
            },
        },
        1300, usage(1000, 200, reasoning_tokens=100, cached_tokens=100, total_tokens=1300),
    ),
    # https://googleapis.github.io/python-genai/: the same in the client's names; the total is left out here
    "google-genai": Shape(
        {"usage_metadata": {"prompt_token_count": 1000, "candidates_token_count": 200, "thoughts_token_count": 100}},
        1300, usage(1000, 200, reasoning_tokens=100, total_tokens=1300),
    ),
    # https://python.langchain.com/api_reference/core/messages/langchain_core.messages.ai.UsageMetadata.html
    "langchain": Shape(
        {
            "content": "so",
            "usage_metadata": {
                "input_tokens": 1000, "output_tokens": 300, "total_tokens": 1300,
                "input_token_details": {"audio": 10, "cache_creation": 200, "cache_read": 100},
                "output_token_details": {"audio": 10, "reasoning": 200},
            },
            "response_metadata": {"token_usage": {"prompt_tokens": 1000, "completion_tokens": 300, "total_tokens": 1300}},
        },
        1300, usage(1000, 300, total_tokens=1300, reasoning_tokens=200, cached_tokens=100),
    ),
    # https://python.langchain.com/api_reference/core/outputs/langchain_core.outputs.llm_result.LLMResult.html
    "langchain result": Shape(
        {"llm_output": {"token_usage": {"prompt_tokens": 1000, "completion_tokens": 300, "total_tokens": 1300}}},
        1300, usage(1000, 300, total_tokens=1300),
    ),
    # https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html
    "bedrock converse": Shape(
        {
            "output": {"message": {"role": "assistant", "content": [{"text": "so"}]}}, "stopReason": "end_turn",
            "usage": {
                "inputTokens": 50, "outputTokens": 300, "totalTokens": 1300,
                "cacheReadInputTokens": 702, "cacheWriteInputTokens": 248,
            },
        },
        1300, usage(1000, 300, total_tokens=1300, cached_tokens=702),
    ),
    # https://docs.aws.amazon.com/bedrock/latest/userguide/inference-invoke.html
    "bedrock invoke": Shape(
        {
            "ResponseMetadata": {
                "HTTPHeaders": {"x-amzn-bedrock-input-token-count": "1000", "x-amzn-bedrock-output-token-count": "300"}
            },
            "body": "...",
        },
        1300, usage(1000, 300),
    ),
    # https://github.com/ollama/ollama/blob/main/docs/api.md
    "ollama": Shape(
        {"model": "llama3.2", "message": {"content": "so"}, "done": True, "prompt_eval_count": 1000, "eval_count": 300},
        1300, usage(1000, 300),
    ),
    # https://docs.cohere.com/v1/reference/chat: counts are numbers with a fraction of 0; fewer tokens are billed than processed
    "cohere v1": Shape(
        {
            "text": "so",
            "meta": {
                "api_version": {"version": "1"}, "billed_units": {"input_tokens": 900.0, "output_tokens": 290.0},
                "tokens": {"input_tokens": 1000.0, "output_tokens": 300.0},
            },
        },
        1300, usage(1000, 300),
    ),
    # https://docs.cohere.com/reference/chat
    "cohere v2": Shape(
        {
            "message": {"role": "assistant", "content": []},
            "usage": {
                "billed_units": {"input_tokens": 900, "output_tokens": 290},
                "tokens": {"input_tokens": 1000, "output_tokens": 300},
            },
        },
        1300, usage(1000, 300),
    ),
}  # fmt: skip
STREAMS: Final = {
    # stream_options={"include_usage": true}: https://platform.openai.com/docs/api-reference/chat/create#chat-create-stream_options
    "openai chat": Shape(
        [
            {"id": "chatcmpl-1", "choices": [{"delta": {"content": "so"}}], "usage": None},
            {"id": "chatcmpl-1", "choices": [], "usage": WHOLE["openai chat"].reply["usage"]},
        ],
        1300, WHOLE["openai chat"].usage,
    ),
    # https://platform.openai.com/docs/api-reference/responses-streaming
    "openai responses": Shape(
        [
            {"type": "response.created", "response": {"id": "resp_1", "usage": None}},
            {"type": "response.output_text.delta", "delta": "so"},
            {"type": "response.completed", "response": WHOLE["openai responses"].reply},
        ],
        1300, WHOLE["openai responses"].usage,
    ),
    # https://docs.claude.com/en/docs/build-with-claude/streaming: the counts of message_delta are cumulative
    "anthropic": Shape(
        [
            {
                "type": "message_start",
                "message": {"usage": {"input_tokens": 298, "cache_read_input_tokens": 702, "output_tokens": 1}},
            },
            *[{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "so"}}] * 9,
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 300}},
            {"type": "message_stop"},
        ],
        1300, usage(1000, 300, cached_tokens=702),
    ),
    # https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent: each chunk has the counts so far
    "gemini": Shape(
        [
            {"usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 10, "totalTokenCount": 1010}},
            {"usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 300, "totalTokenCount": 1300}},
        ],
        1300, usage(1000, 300, total_tokens=1300),
    ),
    # https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
    "bedrock converse": Shape(
        [
            {"contentBlockDelta": {"delta": {"text": "so"}, "contentBlockIndex": 0}},
            {"messageStop": {"stopReason": "end_turn"}},
            {"metadata": {"usage": {"inputTokens": 1000, "outputTokens": 300, "totalTokens": 1300}}},
        ],
        1300, usage(1000, 300, total_tokens=1300),
    ),
    # https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InvokeModelWithResponseStream.html
    "bedrock invoke": Shape(
        [
            {"chunk": {"bytes": b'{"type": "content_block_delta"}'}},
            {
                "chunk": {
                    "bytes": json.dumps(
                        {
                            "type": "message_stop",
                            "amazon-bedrock-invocationMetrics": {"inputTokenCount": 1000, "outputTokenCount": 300},
                        }
                    ).encode()
                }
            },
        ],
        1300, usage(1000, 300),
    ),
    # https://github.com/ollama/ollama/blob/main/docs/api.md: the last object has done=true and the counts
    "ollama": Shape(
        [{"message": {"content": "so"}, "done": False}, {"done": True, "prompt_eval_count": 1000, "eval_count": 300}],
        1300, usage(1000, 300),
    ),
    # https://docs.cohere.com/v1/reference/chat-stream
    "cohere v1": Shape(
        [{"event_type": "text-generation", "text": "so"}, {"event_type": "stream-end", "response": WHOLE["cohere v1"].reply}],
        1300, usage(1000, 300),
    ),
    # https://docs.cohere.com/reference/chat-stream
    "cohere v2": Shape(
        [
            {"type": "content-delta", "delta": {"message": {"content": {"text": "so"}}}},
            {"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": WHOLE["cohere v2"].reply["usage"]}},
        ],
        1300, usage(1000, 300),
    ),
    # chunks are added: https://python.langchain.com/api_reference/core/messages/langchain_core.messages.ai.AIMessageChunk.html
    "langchain": Shape(
        [
            {"content": "s", "usage_metadata": {"input_tokens": 1000, "output_tokens": 1, "total_tokens": 1001}},
            {"content": "o", "usage_metadata": None},
            {"content": "", "usage_metadata": {"input_tokens": 0, "output_tokens": 299, "total_tokens": 299}},
        ],
        1300, usage(1000, 300, total_tokens=1300),
    ),
}  # fmt: skip
CASES: Final = [
    *((f"{name}, whole", shape) for name, shape in WHOLE.items()),
    *((f"{name}, streamed", shape) for name, shape in STREAMS.items()),
]


def same(value: Any) -> Any:
    return value


def as_dataclass(value: Any) -> Any:
    """The same, as a client's dataclasses; what has names that no attribute can have stays a mapping."""
    if isinstance(value, list):
        return [as_dataclass(item) for item in value]
    if not isinstance(value, dict) or not all(name.isidentifier() for name in value):
        return value
    return make_dataclass("Reply", list(value))(**{name: as_dataclass(item) for name, item in value.items()})


def as_model(value: Any) -> Any:
    """The same, as a client's pydantic models."""
    if isinstance(value, list):
        return [as_model(item) for item in value]
    if not isinstance(value, dict) or not all(name.isidentifier() for name in value):
        return value
    fields: dict[str, Any] = dict.fromkeys(value, (Any, ...))
    return create_model("Reply", **fields)(**{name: as_model(item) for name, item in value.items()})


@pytest.mark.filterwarnings("ignore:Field name")
@pytest.mark.parametrize("form", [same, as_dataclass, as_model])
@pytest.mark.parametrize("shape", [shape for _, shape in CASES], ids=[name for name, _ in CASES])
def test_every_documented_shape_is_read_and_nothing_is_counted_twice(shape: Shape, form: Callable[[Any], Any]) -> None:
    found = usage_of(form(shape.reply))
    assert dict(found) == shape.usage
    assert tokens_of(found)["tokens"] == shape.bills


@pytest.mark.parametrize("shape", [shape for _, shape in CASES], ids=[name for name, _ in CASES])
def test_what_was_read_is_read_again_as_the_same(shape: Shape) -> None:
    assert usage_of({"usage": dict(usage_of(shape.reply))}) == usage_of(shape.reply)


def test_a_stream_that_is_closed_early_names_what_it_has_named_so_far() -> None:
    assert dict(usage_of(STREAMS["anthropic"].reply[:3])) == usage(1000, 1, cached_tokens=702)
    assert dict(usage_of(STREAMS["openai chat"].reply[:1])) == {}


def test_a_total_of_bedrock_that_lacks_the_cache_is_completed() -> None:
    stated = {"inputTokens": 50, "outputTokens": 300, "totalTokens": 350, "cacheReadInputTokens": 950}
    assert dict(usage_of({"usage": stated})) == usage(1000, 300, total_tokens=1300, cached_tokens=950)


@pytest.mark.parametrize(
    "reply", [None, "so", b"so", 3, {}, {"usage": None}, {"usage": {}}, {"usage": {"input_tokens": True}}, [], [None, "so"]]
)
def test_a_reply_without_usage_names_none(reply: Any) -> None:
    assert dict(usage_of(reply)) == {}


class Broken:
    @property
    def usage(self) -> Any:
        raise RuntimeError("no connection")


def test_a_property_of_a_client_that_fails_leaves_the_usage_unknown() -> None:
    assert dict(usage_of(Broken())) == {}


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["usage", "meta", "tokens", "input_tokens", "chunk", "message", "x"]), inner)
    ),
    max_leaves=12,
)


@given(json_like)
def test_whatever_a_reply_holds_reading_it_raises_nothing_and_finds_integers(reply: Any) -> None:
    assert all(type(count) is int for count in usage_of(reply).values())


class TestOwnShapes:
    def test_a_function_reads_a_shape_of_ones_own(self) -> None:
        @mat.model("house", usage=lambda reply: {"input_tokens": reply["in"], "output_tokens": reply["out"]})
        def ask(prompt: str) -> dict[str, int]:
            return {"in": 12, "out": 3}

        with mat.run() as run:
            ask("x")
        assert dict(run.trace[0].observation.usage) == usage(12, 3)

    def test_it_gets_all_chunks_of_a_stream(self) -> None:
        @mat.model("house", usage=lambda chunks: {"output_tokens": len(chunks)})
        def ask(prompt: str) -> Any:
            yield from "abc"

        with mat.run() as run:
            list(ask("x"))
        assert dict(run.trace[0].observation.usage) == {"output_tokens": 3}

    def test_it_may_return_the_usage_of_a_known_client(self) -> None:
        found = usage_of({"inner": WHOLE["openai chat"].reply}, lambda reply: reply["inner"])
        assert dict(found) == WHOLE["openai chat"].usage

    def test_one_that_fails_leaves_the_usage_unknown_and_says_so(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "mat.budget"):
            assert dict(usage_of({}, lambda reply: reply["in"])) == {}
        assert [str(item.exc_info[1]) for item in caplog.records if item.exc_info] == ["'in'"]

    def test_what_is_no_function_is_refused(self) -> None:
        async def read(reply: Any) -> None: ...

        for wrong in ("usage", read):
            with pytest.raises(MatError, match="usage="):
                mat.model("house", usage=wrong)(lambda prompt: prompt)  # type: ignore[arg-type]


class TestOverHTTP:
    def test_the_lines_of_a_stream_and_the_headers_of_bedrock_are_read(self) -> None:
        lines = "\n".join(json.dumps(event) for event in STREAMS["ollama"].reply)
        events = "\n\n".join(f"data: {json.dumps(event)}" for event in [*STREAMS["anthropic"].reply, "x"]) + "\n\ndata: [DONE]"
        headers = list(WHOLE["bedrock invoke"].reply["ResponseMetadata"]["HTTPHeaders"].items())
        assert reply_of(200, [("content-type", "application/x-ndjson")], lines.encode())["usage"] == usage(1000, 300)
        assert reply_of(200, [], events.encode())["usage"] == STREAMS["anthropic"].usage
        assert reply_of(200, headers, b'{"completion": "so"}')["usage"] == usage(1000, 300)
        assert "usage" not in reply_of(200, [], b"so")

    @pytest.mark.parametrize(
        ("url", "model"),
        [
            ("https://api.cohere.com/v2/chat", "command-a"),
            ("https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude-v2%3A1/converse", "anthropic.claude-v2:1"),
            ("https://bedrock-runtime.us-east-1.amazonaws.com/model/nova/invoke-with-response-stream", "nova"),
            ("https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:streamGenerateContent", "gemini-2.5-pro"),
            ("https://shop.test/model/7/invoices", ""),
        ],
    )
    def test_requests_to_a_model_are_recognised(self, url: str, model: str) -> None:
        asked = HTTPRequest(method="POST", url=url, content=b'{"model": "command-a"}', headers={})
        assert asked.model == model

    @pytest.mark.parametrize(
        ("url", "endpoint"),
        [
            ("http://127.0.0.1:41234/orders/17", "GET 127.0.0.1/orders/{id}"),
            ("http://localhost:55555/orders", "GET localhost/orders"),
            ("http://[::1]:55555/orders", "GET [::1]/orders"),
            ("http://localhost:8000/orders", "GET localhost:8000/orders"),
            ("http://shop.test:41234/orders", "GET shop.test:41234/orders"),
        ],
    )
    def test_a_port_that_the_system_chose_is_no_part_of_the_name_of_an_endpoint(self, url: str, endpoint: str) -> None:
        assert HTTPRequest(method="GET", url=url, content=b"", headers={}).endpoint == endpoint

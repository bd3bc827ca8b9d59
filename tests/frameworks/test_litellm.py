"""LiteLLM: model calls of whichever provider, also for those who imported `completion` before the attachment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import mat
import mat_faults

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
litellm = pytest.importorskip("litellm")

from litellm import acompletion, completion  # noqa: E402  (before the attachment, as in users' modules)

CATALOG = mat_faults.operators()
CALL = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order": "A17"}'}}
ASKED = {"model": "shop/scripted", "messages": [{"role": "user", "content": "Refund A17"}]}


class Provider(litellm.CustomLLM):
    """A model without a network: it calls a tool."""

    def completion(self, *given: Any, **options: Any) -> Any:
        message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
        return litellm.ModelResponse(
            choices=[{"index": 0, "finish_reason": "tool_calls", "message": message}],
            usage={"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17},
        )

    async def acompletion(self, *given: Any, **options: Any) -> Any:
        return self.completion()

    def streaming(self, *given: Any, **options: Any) -> Iterator[Any]:
        for index, text in enumerate(("Let ", "me ", "see")):
            yield {"text": text, "is_finished": index == 2, "finish_reason": "stop" if index == 2 else "", "index": 0,
                   "tool_use": None, "usage": None}  # fmt: skip

    async def astreaming(self, *given: Any, **options: Any) -> AsyncIterator[Any]:
        for each in self.streaming():
            yield each


@pytest.fixture(autouse=True)
def provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm, "custom_provider_map", [{"provider": "shop", "custom_handler": Provider()}])
    litellm.utils.custom_llm_setup()


def ask(mode: str) -> Any:
    if mode == "sync":
        return completion(**ASKED)
    if mode == "async":
        return asyncio.run(acompletion(**ASKED))
    if mode == "stream":
        return [each.choices[0].delta.content for each in completion(**ASKED, stream=True)]

    async def streamed() -> list[Any]:
        return [each.choices[0].delta.content async for each in await acompletion(**ASKED, stream=True)]

    return asyncio.run(streamed())


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_call_is_one_step_with_its_usage_and_the_caller_gets_the_very_reply(mode: str) -> None:
    with mat.run() as run, mat.attach("litellm"):
        reply = ask(mode)
    assert isinstance(reply, litellm.ModelResponse)
    assert reply.choices[0].message.tool_calls[0].function.name == "refund"
    [record] = [each for each in run.trace if each.action.boundary]
    assert (record.action.kind, record.action.name) == ("model_call", "shop/scripted")
    assert dict(record.observation.usage)["input_tokens"] == 12
    assert record.observation.value["choices"][0]["finish_reason"] == "tool_calls"  # type: ignore[index, call-overload]


@pytest.mark.parametrize("mode", ["stream", "astream"])
def test_a_stream_comes_in_chunks_and_can_break(mode: str) -> None:
    whole = ask(mode)
    with mat.run() as run, mat.attach("litellm"):
        assert ask(mode) == whole
    [record] = [each for each in run.trace if each.action.boundary]
    assert record.observation.chunks == len(whole)
    cut = mat.spec.perturbation("model.cut", "main/model:shop%2f;scripted#1", {"chunks": 1, "kind": "connection"})
    with mat.run(schedule=[cut], operators=CATALOG), mat.attach("litellm"), pytest.raises(litellm.APIConnectionError):
        ask(mode)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_fault_is_the_exception_of_litellm(mode: str) -> None:
    limit = mat.spec.perturbation("model.rate_limit", "main/model:shop%2f;scripted#1", cost=1)
    with mat.run(schedule=[limit], operators=CATALOG), mat.attach("litellm"), pytest.raises(litellm.RateLimitError):
        ask(mode)


def test_after_the_block_and_outside_of_a_run_everything_is_as_before() -> None:
    code = completion.__code__
    with mat.attach("litellm"):
        assert ask("sync").choices[0].finish_reason == "tool_calls"
    assert completion.__code__ is code
    assert ask("async").choices[0].finish_reason == "tool_calls"


def test_two_runs_of_one_seed_are_one_run() -> None:
    heads = set()
    for _ in range(2):
        with mat.run() as run, mat.attach("litellm"):
            ask("sync"), ask("async")
        assert run.result is not None
        heads.add(run.result.head)
    assert len(heads) == 1

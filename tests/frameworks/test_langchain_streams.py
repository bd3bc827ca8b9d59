"""A chat model that is asked for a stream directly: recorded, disturbed, governed and replayed, as by `invoke`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mat
import mat_faults
from mat.boundary.cassette import Cassette
from mat.boundary.tape import Tape

pytest.importorskip("langchain_core")
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

CATALOG = mat_faults.operators()
WORDS = ("The refund", " is", " due.")


class Talker(BaseChatModel):
    """It speaks in three chunks, then asks for a refund in two, and names its usage in the first and in the last."""

    model: str = "talker"
    asked: Any = None

    @property
    def _llm_type(self) -> str:
        return "talker"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        self.asked.append("whole")
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content="".join(WORDS)))])

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
        self.asked.append("stream")
        for number, word in enumerate(WORDS):
            usage = {"input_tokens": 10, "output_tokens": 0, "total_tokens": 10} if number == 0 else None
            yield ChatGenerationChunk(message=AIMessageChunk(content=word, usage_metadata=usage))
        for part in ('{"order":', ' "A17"}'):
            call = {
                "name": "refund" if part[0] == "{" else None,
                "args": part,
                "id": "c1",
                "index": 0,
                "type": "tool_call_chunk",
            }
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))
        usage = {"input_tokens": 0, "output_tokens": 4, "total_tokens": 4}
        last = AIMessageChunk(content="", usage_metadata=usage, response_metadata={"finish_reason": "tool_calls"})
        yield ChatGenerationChunk(message=last, generation_info={"finish_reason": "tool_calls"})


def by_stream(model: Any, most: int = 100) -> list[Any]:
    found = []
    for chunk in model.stream("Refund A17?"):
        found.append(chunk)
        if len(found) == most:
            break
    return found


def by_astream(model: Any, most: int = 100) -> list[Any]:
    async def asked() -> list[Any]:
        found = []
        chunks = model.astream("Refund A17?")
        async for chunk in chunks:
            found.append(chunk)
            if len(found) == most:
                break
        await chunks.aclose()
        return found

    return asyncio.run(asked())


@pytest.fixture(params=[by_stream, by_astream], ids=["stream", "astream"])
def ask(request: pytest.FixtureRequest) -> Callable[..., list[Any]]:
    found: Callable[..., list[Any]] = request.param
    return found


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Talker:
    """A model that does not belong to the project, so that its replies are recorded."""
    monkeypatch.setattr(Talker, "__module__", "langchain_core.language_models")
    return Talker(asked=[])


def joined(chunks: list[Any]) -> tuple[str, list[tuple[str, Any]], Any]:
    """What the chunks say together: the text, the calls of tools, and the usage."""
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return whole.content, [(call["name"], call["args"]) for call in whole.tool_calls], whole.usage_metadata["total_tokens"]


def test_a_stream_is_one_step_and_its_tokens_count_once(model: Talker, ask: Callable[..., list[Any]]) -> None:
    bare = ask(model)
    with mat.run() as run, mat.attach("langchain"):
        found = ask(model)
    assert joined(found) == joined(bare) == ("The refund is due.", [("refund", {"order": "A17"})], 14)
    [record] = [record for record in run.trace if record.action.kind == "model_call"]
    assert record.action.name == "talker"
    assert record.observation.chunks == len(found)
    assert dict(record.observation.usage) == {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14}
    assert [chunk["content"] for chunk in record.observation.value[:3]] == list(WORDS)


def test_a_recorded_stream_comes_again_without_the_model(model: Talker, ask: Callable[..., list[Any]], tmp_path: Path) -> None:
    def tape(live: int) -> Tape:
        return Tape(cassette=Cassette(tmp_path / "c.jsonl", item="t", live=live))

    with mat.run(tape=tape(1)) as first, mat.attach("langchain"):
        live = ask(model)
    with mat.run(tape=tape(0)) as second, mat.attach("langchain"):
        again = ask(model)
    assert model.asked == ["stream"]
    assert len(again) == len(live)
    assert joined(again) == joined(live)
    assert again[-2].response_metadata["finish_reason"] == "tool_calls"
    assert first.trace[0].observation == second.trace[0].observation
    with mat.run(tape=tape(0)) as third, mat.attach("langchain"):
        assert len(ask(model, 2)) == 2
    assert (third.trace[0].observation.cancelled, third.trace[0].observation.chunks) == (True, 2)


def test_a_stream_is_disturbed_and_governed(model: Talker, ask: Callable[..., list[Any]]) -> None:
    cut = mat.spec.perturbation("model.cut", "main/model:talker#1", {"chunks": 2, "kind": "connection"})
    with mat.run(schedule=[cut], operators=CATALOG), mat.attach("langchain"), pytest.raises(ConnectionError):
        ask(model)
    twice = mat.spec.perturbation("model.stream_repeat", "main/model:talker#1", {"chunk": 2})
    with mat.run(schedule=[twice], operators=CATALOG), mat.attach("langchain"):
        assert joined(ask(model))[0] == "The refund is is due."
    model.asked.clear()
    nothing = mat.policy.Governance(rules=(lambda record: mat.policy.Block("no models here"),))
    with mat.run(governance=nothing), mat.attach("langchain"), pytest.raises(mat.Blocked):
        ask(model)
    assert model.asked == []


def test_a_model_that_cannot_stream_is_asked_as_a_whole(ask: Callable[..., list[Any]]) -> None:
    class Silent(Talker):
        _stream = BaseChatModel._stream

    with mat.run() as run, mat.attach("langchain"):
        [found] = ask(Silent(asked=[]))
    assert found.content == "The refund is due."
    [record] = [record for record in run.trace if record.action.kind == "model_call"]
    assert record.observation.chunks is None

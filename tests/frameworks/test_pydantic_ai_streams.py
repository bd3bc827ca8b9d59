"""The streams of Pydantic AI's models, however an agent reads them: recorded once, disturbed, governed and replayed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import mat
import mat_faults
from mat.boundary.cassette import Cassette
from mat.boundary.tape import Tape

pytest.importorskip("pydantic_ai")
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, PartDeltaEvent, PartStartEvent
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.run import AgentRunResultEvent

CATALOG = mat_faults.operators()
WORDS = ("The refund", " is", " due.")
SITE = "clerk/model:talker"
Ask = Callable[[Any], tuple[list[str], str]]


class Talker:
    """The function of a model that first looks the order up, and then speaks in three chunks. Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def stream(self, messages: Any, info: AgentInfo) -> AsyncIterator[Any]:
        self.asked += 1
        if len(messages) == 1 and info.function_tools:
            for part in ('{"order":', ' "A17"}'):
                yield {0: DeltaToolCall(name="look_up" if part[0] == "{" else None, json_args=part, tool_call_id="c1")}
            return
        for word in WORDS:
            yield word


def agent_of(model: Any) -> Agent[None, str]:
    agent = Agent(model, name="clerk")

    @agent.tool_plain
    def look_up(order: str) -> str:
        return f"{order}: 30 paid"

    return agent


def by_run_stream(model: Any) -> tuple[list[str], str]:
    async def asked() -> tuple[list[str], str]:
        async with agent_of(model).run_stream("Refund A17?") as result:
            found = [text async for text in result.stream_text(delta=True, debounce_by=None)]
            return found, str(await result.get_output())

    return asyncio.run(asked())


def text_in(event: Any) -> str:
    if isinstance(event, PartStartEvent):
        return str(getattr(event.part, "content", ""))
    return str(getattr(event.delta, "content_delta", "")) if isinstance(event, PartDeltaEvent) else ""


def by_run_stream_events(model: Any) -> tuple[list[str], str]:
    async def asked() -> tuple[list[str], str]:
        found, output = list[str](), ""
        async with agent_of(model).run_stream_events("Refund A17?") as events:
            async for event in events:
                found += [text] if (text := text_in(event)) else []
                output = str(event.result.output) if isinstance(event, AgentRunResultEvent) else output
        return found, output

    return asyncio.run(asked())


@pytest.fixture(params=[by_run_stream, by_run_stream_events], ids=["run_stream", "run_stream_events"])
def ask(request: pytest.FixtureRequest) -> Ask:
    found: Ask = request.param
    return found


def asked_directly(model: Any, most: int = 100) -> tuple[list[Any], Any]:
    """The events of a stream that is asked for without an agent, and the response at its end."""

    async def asked() -> tuple[list[Any], Any]:
        found: list[Any] = []
        messages = [ModelRequest.user_text_prompt("Refund A17?")]
        async with model.request_stream(messages, None, ModelRequestParameters()) as stream:
            async for event in stream:
                found.append(event)
                if len(found) == most:
                    break
            return found, stream.get()

    return asyncio.run(asked())


@pytest.fixture
def talker(monkeypatch: pytest.MonkeyPatch) -> Talker:
    """One that does not belong to the project, so that its replies are recorded."""
    monkeypatch.setattr(Talker.stream, "__module__", "pydantic_ai.models.function")
    return Talker()


@pytest.fixture
def model(talker: Talker) -> FunctionModel:
    return FunctionModel(stream_function=talker.stream, model_name="talker")


def tape(path: Path, live: int) -> Tape:
    return Tape(cassette=Cassette(path / "c.jsonl", item="t", live=live))


def model_calls(run: mat.Run) -> list[Any]:
    return [record for record in run.trace if record.action.kind == "model_call"]


def test_a_stream_is_one_step_whose_chunks_are_those_of_the_model(model: FunctionModel, ask: Ask) -> None:
    bare = ask(model)
    with mat.run() as run, mat.attach("pydantic_ai"):
        assert ask(model) == bare == (list(WORDS), "The refund is due.")
    calls, words = model_calls(run)
    assert (calls.site, words.site) == (f"{SITE}#1", f"{SITE}#2")
    assert (calls.observation.chunks, words.observation.chunks) == (3, 4)
    assert words.observation.value[-1]["response"]["parts"][0]["content"] == "The refund is due."
    assert calls.observation.usage["output_tokens"] > 0


def test_a_recorded_stream_comes_again_without_its_model(
    model: FunctionModel, talker: Talker, ask: Ask, tmp_path: Path
) -> None:
    with mat.run(tape=tape(tmp_path, 2)) as first, mat.attach("pydantic_ai"):
        live = ask(model)
    with mat.run(tape=tape(tmp_path, 0)) as second, mat.attach("pydantic_ai"):
        assert ask(model) == live == (list(WORDS), "The refund is due.")
    assert talker.asked == 2
    assert [record.observation for record in second.trace] == [record.observation for record in first.trace]


def test_a_stream_without_an_agent_is_recorded_and_comes_again(model: FunctionModel, talker: Talker, tmp_path: Path) -> None:
    with mat.run(tape=tape(tmp_path, 1)), mat.attach("pydantic_ai"):
        live, whole = asked_directly(model)
    with mat.run(tape=tape(tmp_path, 0)), mat.attach("pydantic_ai"):
        again, same = asked_directly(model)
    with mat.run(tape=tape(tmp_path, 0)) as left, mat.attach("pydantic_ai"):
        asked_directly(model, 2)
    assert talker.asked == 1
    assert again == live
    assert (same.parts, same.usage, same.model_name, same.state) == (whole.parts, whole.usage, "talker", "complete")
    [record] = model_calls(left)
    assert record.observation.cancelled


def test_a_stream_is_disturbed_on_its_way(model: FunctionModel, ask: Ask) -> None:
    twice = mat.spec.perturbation("model.stream_repeat", f"{SITE}#2", {"chunk": 2})
    with mat.run(schedule=[twice], operators=CATALOG), mat.attach("pydantic_ai"):
        assert ask(model)[0] == ["The refund", " is", " is", " due."]
    cut = mat.spec.perturbation("model.cut", f"{SITE}#2", {"chunks": 2, "kind": "connection"})
    with mat.run(schedule=[cut], operators=CATALOG), mat.attach("pydantic_ai"), pytest.raises(ConnectionError):
        ask(model)


def test_a_stream_that_says_something_else_says_nothing_of_what_it_said(model: FunctionModel, ask: Ask) -> None:
    shorter = mat.spec.perturbation("model.truncated", f"{SITE}#2", {"percent": 50})
    with mat.run(schedule=[shorter], operators=CATALOG), mat.attach("pydantic_ai"):
        told, output = ask(model)
    assert "".join(told) == output
    assert output != "The refund is due."
    assert "The refund is due.".startswith(output)


def test_a_blocked_stream_asks_no_model(model: FunctionModel, talker: Talker, ask: Ask) -> None:
    nothing = mat.policy.Governance(rules=(lambda record: mat.policy.Block("no models here"),))
    with mat.run(governance=nothing), mat.attach("pydantic_ai"), pytest.raises(mat.Blocked):
        ask(model)
    assert talker.asked == 0


def test_a_model_that_asks_others_is_one_step(talker: Talker, ask: Ask) -> None:
    async def broken(messages: Any, info: AgentInfo) -> AsyncIterator[Any]:
        from pydantic_ai.exceptions import ModelHTTPError

        raise ModelHTTPError(503, "broken")
        yield ""

    models = [
        FunctionModel(stream_function=each, model_name=name) for name, each in (("broken", broken), ("talker", talker.stream))
    ]
    with mat.run() as run, mat.attach("pydantic_ai"):
        assert ask(FallbackModel(*models)) == (list(WORDS), "The refund is due.")
    assert [record.action.name for record in model_calls(run)] == ["fallback:broken,talker"] * 2

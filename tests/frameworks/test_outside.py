"""Budgets outside of runs through every adapter: calls stop where they should, and as many tokens count as in a run."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.frameworks.endpoint import KEY, served
from tests.frameworks.test_frameworks import EFFECTS, FRAMEWORKS, HERE, MODES, missing

import mat

pytestmark = pytest.mark.full

MODELLED = [name for name in FRAMEWORKS if name != "mcp"]


@pytest.fixture
def work(framework: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Lets the framework's agent work as a mind of the shop."""
    if missing(framework):
        pytest.skip(f"{framework} is not installed")
    if mode not in MODES.get(framework, (mode,)):
        pytest.skip(f"{framework} has no {mode} form")
    monkeypatch.syspath_prepend(str(HERE))
    shop, desk = importlib.import_module("shop"), importlib.import_module(f"{framework}_desk")
    shop.reset()
    return lambda mind: desk.handle(getattr(shop, mind) if isinstance(mind, str) else mind, mode)


def forgetful(results: list[Any]) -> Any:
    return "enough" if any(each.failed for each in results) or len(results) > 7 else [("look_up", {"order": "A17"})]


def spent(work: Any, mind: Any, framework: str, **budgets: int) -> tuple[dict[str, int], str]:
    """What a contract is charged outside of runs, and why it ended."""
    contract = mat.budget.ResourceContract(name="desk", budgets=budgets)
    with mat.attach(framework, effects=EFFECTS), mat.budget.contracted(contract) as budget, suppress(Exception):
        work(mind)
    return dict(budget.status().consumed), budget.cause


def spent_in_a_run(work: Any, mind: Any, framework: str, **budgets: int) -> dict[str, int]:
    contract = mat.budget.ResourceContract(name="desk", budgets=budgets)
    with mat.run(), mat.attach(framework, effects=EFFECTS), mat.budget.contracted(contract) as budget:
        work(mind)
    return dict(budget.status().consumed)


@pytest.mark.parametrize("mode", ["sync", "async", "stream"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_budget_outside_of_runs_counts_what_it_counts_in_one(framework: str, mode: str, work: Callable[..., Any]) -> None:
    budgets = {"calls": 100, "tool_calls": 100, **({"tokens": 100_000, "input_tokens": 90_000} if framework != "mcp" else {})}
    counted, _ = spent(work, "careful_refunder", framework, **budgets)
    assert all(counted.values()) or framework == "litellm"  # which has no tools
    importlib.import_module("shop").reset()
    assert counted == spent_in_a_run(work, "careful_refunder", framework, **budgets)


@pytest.mark.parametrize("mode", ["sync", "async", "stream"])
@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "litellm"])
def test_a_budget_of_calls_outside_of_runs_stops_a_tool(framework: str, mode: str, work: Callable[..., Any]) -> None:
    made: list[str] = []

    def noting(results: list[Any]) -> Any:
        made[:] = [each.text for each in results if not each.failed]
        return forgetful(results)

    counted, _ = spent(work, noting, framework, **{"tool:look_up": 3})
    assert counted == {"tool:look_up": 3}
    assert len(made) <= 3


@pytest.mark.parametrize("mode", ["sync", "async", "stream"])
@pytest.mark.parametrize("framework", MODELLED)
def test_a_budget_of_tokens_outside_of_runs_stops_a_model(framework: str, mode: str, work: Callable[..., Any]) -> None:
    whole, _ = spent(work, "careful_refunder", framework, tokens=100_000, model_calls=100)
    asked: list[int] = []

    def counting(results: list[Any]) -> Any:
        asked.append(len(results))
        return forgetful(results)

    counted, cause = spent(work, counting, framework, tokens=1, model_calls=100)
    assert len(asked) == counted["model_calls"] == 1
    assert counted["tokens"] > 1
    assert whole["model_calls"] > 1
    assert "the consumption of tokens" in cause


@pytest.mark.parametrize("mode", ["async"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_after_the_budget_block_outside_of_runs_nothing_is_refused(framework: str, mode: str, work: Callable[..., Any]) -> None:
    with mat.attach(framework, effects=EFFECTS):
        with mat.budget.contracted(mat.budget.ResourceContract(name="desk", budgets={"calls": 0})), suppress(Exception):
            work("careful_refunder")
        importlib.import_module("shop").reset()
        assert work("careful_refunder") == "refunded"


def streamed_by_requests(url: str, options: dict[str, Any]) -> list[bytes]:
    requests = importlib.import_module("requests")
    with requests.post(url, stream=bool(options["json"].get("stream")), **options) as reply:
        return list(reply.iter_lines())


def streamed_by_aiohttp(url: str, options: dict[str, Any]) -> list[bytes]:
    aiohttp = importlib.import_module("aiohttp")

    async def read() -> list[bytes]:
        async with aiohttp.ClientSession() as session, session.post(url, **options) as reply:
            return [line.strip() async for line in reply.content]

    return asyncio.run(read())


CLIENTS = {"requests": streamed_by_requests, "aiohttp": streamed_by_aiohttp}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_budget_outside_of_runs_meters_the_clients_that_litellm_brings(client: str, stream: bool) -> None:
    pytest.importorskip(client)
    read = CLIENTS[client]
    body = {
        "model": "gpt", "stream": stream, "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "Refund A17"}],
    }  # fmt: skip
    with served() as address:
        url, options = f"{address}/v1/chat/completions", {"json": body, "headers": {"authorization": f"Bearer {KEY}"}}
        plain = read(url, options)
        contract = mat.budget.ResourceContract(name="desk", budgets={"tokens": 20, "calls": 9})
        with mat.attach(client), mat.budget.contracted(contract) as budget:
            assert (len(read(url, options)), budget.status().consumed["tokens"]) == (len(plain), 13)
            refused = {**options, "headers": {"authorization": "Bearer none"}}
            read(url, refused)
            assert dict(budget.status().consumed) == {"tokens": 13, "calls": 2}
            read(url, options)
            with pytest.raises(Exception, match="over the budget"):  # requests has an exception of its own around it
                read(url, options)
        assert dict(budget.status().consumed) == {"tokens": 26, "calls": 3}


def test_a_budget_outside_of_runs_meters_a_stream_that_langgraph_code_asks_a_model_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langgraph")
    from langchain_core.messages import AIMessageChunk
    from langchain_core.outputs import ChatGenerationChunk

    monkeypatch.syspath_prepend(str(HERE))
    desk: Any = importlib.import_module("langgraph_desk")

    class Streaming(desk.ScriptedModel):  # type: ignore[misc]
        def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
            usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
            for word, named in (("do", None), ("ne", None), ("", usage)):
                yield ChatGenerationChunk(message=AIMessageChunk(content=word, usage_metadata=named))

    async def asked(model: Any) -> str:
        return "".join([chunk.content async for chunk in model.astream("hi")])

    contract = mat.budget.ResourceContract(name="desk", budgets={"tokens": 40, "calls": 9})
    with mat.attach("langgraph"), mat.budget.contracted(contract) as budget:
        streams, whole = Streaming(mind=None), desk.ScriptedModel(mind=lambda results: "done")
        assert "".join(chunk.content for chunk in streams.stream("hi")) == "done"
        assert asyncio.run(asked(streams)) == "done"
        assert dict(budget.status().consumed) == {"tokens": 30, "calls": 2}
        assert [chunk.content for chunk in whole.stream("hi")] == ["done"]  # it cannot stream, and is charged once
        assert dict(budget.status().consumed) == {"tokens": 45, "calls": 3}
        with pytest.raises(mat.budget.BudgetSpent):
            next(iter(streams.stream("hi")))

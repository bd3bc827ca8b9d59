"""Budgets outside of runs, in real time: what production code spends is metered and refused, whatever client it uses."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final
from unittest.mock import MagicMock

import pytest
from tests.boundary.test_usage import STREAMS, WHOLE, as_dataclass, as_model, same, usage

import mat
from mat.adapters import Attachment
from mat.boundary import instrument
from mat.boundary.calls import cross_stream, cross_stream_async
from mat.core.errors import SpecError
from mat.kernel import inheritance
from mat.resources import Price, ResourceContract, Skill, Work, outside
from mat.resources.ledger import Ledger

FORMS: Final[dict[str, Callable[[Any], Any]]] = {"mappings": same, "dataclasses": as_dataclass, "models": as_model}
CLIENTS: Final = (
    "openai chat",
    "openai responses",
    "anthropic",
    "gemini",
    "bedrock converse",
    "ollama",
    "cohere v2",
    "langchain",
)
"""Every call of each consumes 1,300 tokens."""
BUDGET, EACH = 5_000, 1_300


def of(**budgets: Any) -> ResourceContract:
    return ResourceContract(name="work", budgets=budgets)


def spend_all(call: Callable[[], object], contract: ResourceContract, most: int = 50) -> tuple[int, Work]:
    """How many of 50 calls a contract lets through."""
    made = 0
    with mat.budget.contracted(contract) as work:
        try:
            for _ in range(most):
                call()
                made += 1
        except mat.budget.BudgetSpent:
            pass
    return made, work


def plain(reply: Any) -> Callable[..., object]:
    return mat.model("m")(lambda prompt, max_tokens=0: reply)


@pytest.mark.filterwarnings("ignore:Field name")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("client", CLIENTS)
class TestEveryClient:
    """5,000 tokens are 3 calls and one that overruns; if each call names its limit, the fourth is refused."""

    def check(self, call: Callable[[int], object]) -> None:
        made, work = spend_all(lambda: call(0), of(tokens=BUDGET))
        assert (made, work.state, work.status().consumed["tokens"]) == (4, "violated", 4 * EACH)
        made, work = spend_all(lambda: call(EACH), of(tokens=BUDGET))
        assert (made, work.state, work.status().consumed["tokens"]) == (3, "fulfilled", 3 * EACH)

    def test_a_plain_call(self, client: str, form: Callable[[Any], Any]) -> None:
        reply = form(WHOLE[client].reply)
        ask = mat.model("m")(lambda prompt, max_tokens: reply)
        self.check(lambda most: ask("", max_tokens=most))

    def test_an_async_call(self, client: str, form: Callable[[Any], Any]) -> None:
        reply = form(WHOLE[client].reply)

        @mat.model("m")
        async def ask(prompt: str, max_tokens: int) -> Any:
            return reply

        self.check(lambda most: asyncio.run(ask("", max_tokens=most)))

    def test_a_function_that_returns_an_awaitable(self, client: str, form: Callable[[Any], Any]) -> None:
        reply = form(WHOLE[client].reply)

        async def create(prompt: str) -> Any:
            return reply

        ask = mat.model("m")(lambda prompt, max_tokens: create(prompt))

        async def body(most: int) -> None:
            await ask("", max_tokens=most)

        self.check(lambda most: asyncio.run(body(most)))

    def test_a_generator_of_chunks(self, client: str, form: Callable[[Any], Any]) -> None:
        chunks = form(STREAMS[client].reply)

        @mat.model("m")
        def ask(prompt: str, max_tokens: int) -> Iterator[Any]:
            yield from chunks

        self.check(lambda most: list(ask("", max_tokens=most)))

    def test_an_async_generator_of_chunks(self, client: str, form: Callable[[Any], Any]) -> None:
        chunks = form(STREAMS[client].reply)

        @mat.model("m")
        async def ask(prompt: str, max_tokens: int) -> AsyncIterator[Any]:
            for chunk in chunks:
                yield chunk

        async def body(most: int) -> None:
            assert [chunk async for chunk in ask("", max_tokens=most)] == chunks

        self.check(lambda most: asyncio.run(body(most)))

    def test_a_stream_object_of_the_client(self, client: str, form: Callable[[Any], Any]) -> None:
        chunks = form(STREAMS[client].reply)
        ask = mat.model("m")(lambda prompt, max_tokens: ClientStream(chunks))

        def read(most: int) -> None:
            with ask("", max_tokens=most) as stream:
                assert list(stream) == chunks
                assert stream.request_id == "r1"

        self.check(read)

    def test_an_async_stream_object_of_the_client(self, client: str, form: Callable[[Any], Any]) -> None:
        chunks = form(STREAMS[client].reply)

        @mat.model("m")
        async def ask(prompt: str, max_tokens: int) -> Any:
            return AsyncClientStream(chunks)

        async def read(most: int) -> None:
            async with await ask("", max_tokens=most) as stream:
                assert [chunk async for chunk in stream] == chunks

        self.check(lambda most: asyncio.run(read(most)))

    def test_in_a_run_as_outside(self, client: str, form: Callable[[Any], Any]) -> None:
        reply, chunks = form(WHOLE[client].reply), form(STREAMS[client].reply)

        @mat.model("streamed")
        def stream(prompt: str, max_tokens: int) -> Iterator[Any]:
            yield from chunks

        ask = mat.model("m")(lambda prompt, max_tokens: reply)
        for call in (ask, lambda prompt, max_tokens: list(stream(prompt, max_tokens))):
            with mat.run():
                self.check(lambda most, call=call: call("", max_tokens=most))  # type: ignore[misc]


class ClientStream:
    """What openai.Stream offers: https://github.com/openai/openai-python/blob/main/src/openai/_streaming.py"""

    request_id = "r1"

    def __init__(self, chunks: list[Any]) -> None:
        self._chunks = iter(chunks)
        self.closed = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._chunks)

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> ClientStream:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class AsyncClientStream:
    """openai.AsyncStream: `close` is a coroutine."""

    def __init__(self, chunks: list[Any]) -> None:
        self._chunks = iter(chunks)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        for chunk in self._chunks:
            return chunk
        raise StopAsyncIteration

    async def close(self) -> None: ...

    async def __aenter__(self) -> AsyncClientStream:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()


OPENAI: Final = STREAMS["openai chat"].reply
ANTHROPIC: Final = STREAMS["anthropic"].reply


class TestStreamsThatEndEarly:
    def test_what_the_chunks_named_counts_and_no_less_than_was_reserved(self) -> None:
        @mat.model("m")
        def ask(prompt: str, max_tokens: int = 0) -> Iterator[Any]:
            yield from ANTHROPIC

        with mat.budget.contracted(of(tokens=BUDGET, output_tokens=BUDGET)) as work:
            stream = ask("12345678", max_tokens=400)
            next(stream)
            assert work.status().reserved["tokens"] == 402
            stream.close()
        assert dict(work.status().consumed) == {"tokens": 1_400, "output_tokens": 400}
        assert dict(work.status().reserved) == {"tokens": 0, "output_tokens": 0}

    @pytest.mark.parametrize("ends", ["closed", "forgotten", "broken"])
    def test_a_stream_that_named_nothing_leaves_the_budget_unknown(self, ends: str) -> None:
        def chunks() -> Iterator[Any]:
            yield OPENAI[0]
            raise ConnectionError("down")

        ask = mat.model("m")(lambda prompt: ClientStream(chunks()))  # type: ignore[arg-type]
        with mat.budget.contracted(of(tokens=BUDGET)) as work:
            stream = ask("x")
            next(stream)
            if ends == "closed":
                stream.close()
            elif ends == "forgotten":
                del stream
                gc.collect()
            else:
                with pytest.raises(ConnectionError):
                    next(stream)
            with pytest.raises(mat.budget.BudgetSpent, match="what is left is unknown, because model:m named no usage"):
                ask("y")
        assert work.state == "fulfilled"

    @pytest.mark.parametrize("form", [ClientStream, AsyncClientStream])
    def test_a_stream_that_is_read_in_another_way_leaves_the_budget_unknown(self, form: Any) -> None:
        ask = mat.model("m")(lambda prompt: form(OPENAI))
        with mat.budget.contracted(of(tokens=BUDGET)) as work:
            assert [chunk["id"] for chunk in ask("x")._chunks] == ["chatcmpl-1"] * 2
            gc.collect()
            assert work.status().unmetered == ("tokens",)

    def test_a_reply_that_could_be_iterated_and_names_its_usage_is_whole(self) -> None:
        reply = MagicMock(usage=as_dataclass(usage(1_000, 300)))
        ask = mat.model("m")(lambda prompt: reply)
        with mat.budget.contracted(of(tokens=BUDGET)) as work:
            assert ask("x") is reply
            assert work.status().consumed["tokens"] == EACH

    def test_one_that_fails_before_its_first_chunk_consumed_what_was_reserved(self) -> None:
        @mat.model("m")
        def ask(prompt: str, max_tokens: int = 0) -> Iterator[Any]:
            raise ConnectionError("down")
            yield

        with mat.budget.contracted(of(tokens=BUDGET)) as work:
            with pytest.raises(ConnectionError):
                list(ask("", max_tokens=400))
            assert work.status().consumed["tokens"] == 400

    def test_a_stream_that_is_collected_in_the_midst_of_an_act_is_settled_after_it(self) -> None:
        ask = mat.model("m")(lambda prompt, max_tokens: ClientStream(ANTHROPIC))
        with mat.budget.contracted(of(tokens=BUDGET)) as work:
            streams = [ask("", max_tokens=400)]
            next(streams[0])

            def collects(ledger: Ledger) -> int:
                streams.clear()
                gc.collect()
                return ledger.nodes["work#1"].accounts["tokens"].held

            assert work.keeper.account(collects) == 400
            assert work.status().reserved["tokens"] == 0


class TestUnknownUsage:
    def test_a_reply_without_usage_is_reported_and_the_next_call_refused(self, caplog: pytest.LogCaptureFixture) -> None:
        ask = plain({"text": "so"})
        with caplog.at_level(logging.WARNING, "mat.budget"):
            made, work = spend_all(lambda: ask("x"), of(tokens=BUDGET))
        assert (made, work.status().consumed["tokens"]) == (1, 0)
        assert work.status().line() == "Budget: at least 0/5,000 tokens"
        assert caplog.messages == ["work#1 of main: model:m named no usage, so what is left of tokens is unknown"]

    def test_money_is_as_unknown_as_tokens(self) -> None:
        priced = ResourceContract(name="work", budgets={"money": 1}, prices={"model": Price(output=10), "tool": Price(call=1)})
        ask = plain({"text": "so"})
        assert spend_all(lambda: ask("x"), priced)[0] == 1
        flat = ResourceContract(name="work", budgets={"money": 1}, prices={"model": Price(call="0.1")})
        assert spend_all(lambda: ask("x"), flat)[0] == 10

    def test_a_limit_of_the_call_stands_for_what_its_reply_does_not_name(self) -> None:
        ask = plain({"text": "so"})
        made, work = spend_all(lambda: ask("", max_tokens=1_000), of(tokens=BUDGET))
        assert (made, work.status().consumed["tokens"]) == (5, 5_000)

    @pytest.mark.parametrize(
        "arguments",
        [
            {"max_completion_tokens": 1_000},
            {"body": {"max_tokens": 1_000}},
            {"body": {"generationConfig": {"maxOutputTokens": 1_000}}},
            {"inferenceConfig": {"maxTokens": 1_000}},
            {"options": {"num_predict": 1_000}},
            {"config": as_dataclass({"max_output_tokens": 1_000})},
        ],
    )
    def test_a_limit_is_read_where_clients_put_it(self, arguments: dict[str, Any]) -> None:
        ask = mat.model("m")(lambda **options: {"text": "so"})
        assert spend_all(lambda: ask(**arguments), of(tokens=BUDGET))[0] == 5

    def test_other_budgets_and_other_calls_go_on(self) -> None:
        ask, look = plain({"text": "so"}), mat.tool(lambda order: "found", name="look")
        assert spend_all(lambda: ask("x"), of(model_calls=7))[0] == 7
        with mat.budget.contracted(of(tokens=BUDGET)):
            ask("x")
            look("A17")

    def test_code_may_count_what_a_reply_does_not_name(self) -> None:
        ask = plain({"text": "so"})
        with mat.budget.contracted(of(tokens=BUDGET)) as work:
            for _ in range(3):
                ask("x")
                work.spend(tokens=EACH)
            assert work.status().consumed["tokens"] == 3 * EACH

    def test_a_function_names_the_usage_of_a_shape_of_ones_own(self) -> None:
        ask = mat.model("m", usage=lambda reply: {"total_tokens": reply["units"]})(lambda prompt: {"units": EACH})
        assert spend_all(lambda: ask("x"), of(tokens=BUDGET))[0] == 4

    def test_the_contract_above_does_not_know_either(self) -> None:
        ask = plain({"text": "so"})
        with mat.budget.contracted(of(tokens=BUDGET)):
            with mat.budget.contracted(of(tokens=1_000)):
                ask("x")
            with pytest.raises(mat.budget.BudgetSpent, match="tokens of work#1: what is left is unknown"):
                ask("x")

    def test_in_a_run_it_is_reported_and_not_refused(self) -> None:
        ask = plain({"text": "so"})
        with mat.run() as run:
            made, _ = spend_all(lambda: ask("x"), of(tokens=BUDGET))
        assert made == 50
        (told,) = [record.action.arguments for record in run.trace if record.action.name == "unmetered"]
        assert (told["resources"], told["call"]) == (["tokens"], "model:m at step 2")
        assert run.result is not None
        assert [(item.code, item.message) for item in run.result.findings] == [
            ("usage-unknown", "replies of m name no usage: tokens cannot be limited")
        ]

    def test_a_ledger_that_forgets_it_lets_calls_through(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Ledger, "_mark_unmetered", lambda self, node, unknown, call: None)
        ask = plain({"text": "so"})
        assert spend_all(lambda: ask("x"), of(tokens=BUDGET))[0] == 50


class TestEnforcement:
    def test_tools_retrievers_and_ports_are_counted_and_skills_enforced(self) -> None:
        look = mat.tool(lambda order: "found", name="look")
        find = mat.retriever("kb")(lambda question: ["text"])
        made, work = spend_all(lambda: (look("A17"), find("?")), of(calls=9, searches=4, **{"tool:look": 50}))
        assert (made, dict(work.status().consumed)) == (4, {"calls": 9, "searches": 4, "tool:look": 5})
        skilled = ResourceContract(name="work", skills=(Skill(name="look"),))
        with mat.budget.contracted(skilled), pytest.raises(mat.budget.BudgetSpent, match="no skill retriever:kb"):
            find("?")

    def test_a_deadline_is_one_of_the_real_clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now_s = [100.0]
        monkeypatch.setattr(outside.time, "monotonic", lambda: now_s[0])
        ask = plain(WHOLE["anthropic"].reply)
        with mat.budget.contracted(ResourceContract(name="work", duration_s=60, budgets={"seconds": 50})) as work:
            now_s[0] += 60
            ask("in time")
            now_s[0] += 0.001
            with pytest.raises(mat.budget.BudgetSpent, match="its time ended at 60000 ms"):
                ask("late")
        assert work.state == "expired"

    def test_nested_contracts_share_one_budget(self) -> None:
        ask = plain(WHOLE["anthropic"].reply)
        with mat.budget.contracted(of(tokens=BUDGET, calls=4)) as team:
            with mat.budget.contracted(of(tokens=2_000)) as member:
                ask("x")
                assert team.left("tokens") == 3_000
            assert (member.state, team.left("tokens")) == ("fulfilled", BUDGET - EACH)
            with team.delegate(of(tokens=1_000), agent="other") as other:
                ask("y")
            assert (other.state, dict(team.status().consumed)) == ("violated", {"tokens": 2 * EACH, "calls": 2})
        assert team.state == "fulfilled"

    def test_a_run_inside_of_the_block_is_not_charged_to_it(self) -> None:
        ask = plain(WHOLE["anthropic"].reply)
        with mat.budget.contracted(of(calls=1)) as work:
            with mat.run() as run:
                ask("x")
                ask("y")
            calls = [record for record in run.trace if record.action.kind == "model_call"]
        assert (len(calls), work.status().consumed["calls"]) == (2, 0)

    def test_what_an_adapter_crosses_is_metered_once(self) -> None:
        port, stream_port = Attachment().model("m"), Attachment().model("m", stream=True)
        reply, chunks = WHOLE["anthropic"].reply, STREAMS["anthropic"].reply

        def nested(changed: Any) -> Any:
            return mat.cross(port, {}, lambda changed: reply)

        async def replied(changed: Any) -> Any:
            return reply

        async def streamed(changed: Any) -> AsyncIterator[Any]:
            for chunk in chunks:
                yield chunk

        async def body() -> None:
            await mat.cross_async(port, {}, replied)
            assert [chunk async for chunk in cross_stream_async(stream_port, {}, streamed)] == chunks

        with mat.budget.contracted(of(tokens=90_000, calls=4)) as work:
            mat.cross(port, {}, nested)
            assert list(cross_stream(stream_port, {}, lambda changed: iter(chunks))) == chunks
            asyncio.run(body())
            with pytest.raises(mat.budget.BudgetSpent):
                mat.cross(port, {}, nested)
        assert dict(work.status().consumed) == {"tokens": 4 * EACH, "calls": 4}

    def test_without_a_contract_calls_are_plain(self) -> None:
        stream = ClientStream([])
        ask = mat.model("m")(lambda prompt: stream)
        assert ask("x") is stream

    def test_what_fails_and_what_is_exceeded_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        ask = plain(WHOLE["anthropic"].reply)
        with caplog.at_level(logging.WARNING, "mat.budget"):
            spend_all(lambda: ask("x"), ResourceContract(name="work", budgets={"tokens": 2_000}, warn_at=(60,)))
        assert caplog.messages == [
            "work#1 of main: 60 % of tokens is used, 1,300 of 2,000",
            "work#1 of main is violated: the consumption of tokens is 2,600, over the budget of 2,000",
        ]

    def test_nothing_is_enforced_where_calls_do_not_ask_for_the_meter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(instrument, "meter_of", lambda port: None)
        ask = plain(WHOLE["anthropic"].reply)
        assert spend_all(lambda: ask("x"), of(tokens=BUDGET))[0] == 50


class TestConcurrency:
    """Many callers at once. Each call needs 100 of 1,000 tokens, so 10 of 30 get through."""

    @staticmethod
    def model(inside: Callable[[], object] = lambda: None) -> Callable[[int], bool]:
        @mat.model("m")
        def ask(prompt: str, max_tokens: int) -> Any:
            inside()
            return {"usage": {"input_tokens": 0, "output_tokens": 100, "total_tokens": 100}}

        def attempt(number: int) -> bool:
            try:
                ask("", max_tokens=100)
            except mat.budget.BudgetSpent:
                return False
            return True

        return attempt

    def test_jobs_of_executors_work_under_the_contract_of_who_submits_them(self) -> None:
        attempt = self.model()
        with mat.budget.contracted(of(tokens=1_000)) as work, concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(attempt, range(30))) == 10
        assert work.status().consumed["tokens"] == 1_000

    def test_threads_work_under_the_contract_of_who_starts_them(self) -> None:
        done: list[bool] = []
        barrier = threading.Barrier(10)
        attempt = self.model(barrier.wait)  # all ten calls are in flight at once
        with mat.budget.contracted(of(tokens=1_000)) as work:
            threads = [threading.Thread(target=lambda number=number: done.append(attempt(number))) for number in range(30)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert (sum(done), work.status().consumed["tokens"], work.state) == (10, 1_000, "fulfilled")

    def test_tasks_and_their_threads_work_under_the_contract(self) -> None:
        attempt = self.model()

        async def body() -> int:
            async with mat.budget.contracted(of(tokens=1_000)):
                loop = asyncio.get_running_loop()
                tasks = [asyncio.to_thread(attempt, number) for number in range(15)]
                jobs = [loop.run_in_executor(None, attempt, number) for number in range(15)]
                return sum(await asyncio.gather(*tasks, *jobs))

        assert asyncio.run(body()) == 10

    def test_contracts_of_concurrent_tasks_are_apart(self) -> None:
        attempt = self.model()

        async def user(budget: int) -> int:
            async with mat.budget.contracted(of(tokens=budget)):
                made = 0
                for number in range(30):
                    made += attempt(number)
                    await asyncio.sleep(0)
                return made

        async def body() -> list[int]:
            return await asyncio.gather(*map(user, (300, 0, 500)))

        assert asyncio.run(body()) == [3, 0, 5]

    def test_a_worker_that_outlives_the_block_serves_others_without_a_contract(self) -> None:
        attempt = self.model()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with mat.budget.contracted(of(tokens=100)) as work:
                assert pool.submit(attempt, 0).result()
            assert all(pool.map(attempt, range(5)))
        assert work.status().consumed["tokens"] == 100

    def test_a_thread_that_the_block_did_not_start_has_no_contract(self) -> None:
        attempt = self.model()
        go, done = threading.Event(), list[bool]()
        thread = threading.Thread(target=lambda: (go.wait(), done.append(attempt(0))))
        thread.start()
        with mat.budget.contracted(of(tokens=0)):
            assert not attempt(0)
            go.set()
            thread.join()
        assert done == [True]

    def test_the_standard_library_is_as_it_was_after_the_last_block(self) -> None:
        before = threading.Thread.start, concurrent.futures.ThreadPoolExecutor.submit
        with mat.budget.contracted(of(tokens=1)):
            with mat.budget.contracted(of(tokens=1)), mat.run():
                pass
            assert threading.Thread.start is not before[0]
        assert (threading.Thread.start, concurrent.futures.ThreadPoolExecutor.submit) == before

    def test_threads_that_inherit_nothing_spend_without_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(inheritance, "_wanted", lambda: [])
        attempt = self.model()
        with mat.budget.contracted(of(tokens=1_000)), concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(attempt, range(30))) == 30


class TestBeforeACall:
    def test_a_hook_refuses_calls_in_and_outside_of_runs(self) -> None:
        asked = []

        def before(port: str, needs: Any, status: Any) -> str | None:
            asked.append((port, needs["tokens"], status.consumed["tokens"]))
            return "enough for today" if status.consumed["tokens"] >= 1_300 else None

        ask = plain(WHOLE["anthropic"].reply)

        def body() -> None:
            with mat.budget.contracted(of(tokens=BUDGET), before=before), mat.budget.contracted(of(calls=9)):
                ask("", max_tokens=7)
                with pytest.raises(mat.budget.BudgetSpent, match="work#1 refuses model:m: enough for today"):
                    ask("", max_tokens=7)

        body()
        with mat.run():
            body()
        assert asked == [("model:m", 7, 0), ("model:m", 7, 1_300)] * 2

    def test_only_none_allows(self) -> None:
        ask = plain(WHOLE["anthropic"].reply)
        hook: Any = lambda port, needs, status: True  # noqa: E731
        with mat.budget.contracted(of(calls=9), before=hook), pytest.raises(SpecError, match="returned True"):
            ask("x")


# -- the same agent, in production and in a test -------------------------------------------------------------------------


class Client:
    """A client like openai.AsyncOpenAI."""

    async def create(self, *, messages: list[str], max_tokens: int = 0) -> Any:
        await asyncio.sleep(0)
        return as_dataclass(WHOLE["openai chat"].reply)


async def agent(client: Client) -> tuple[int, Work]:
    """An ordinary agent, with a budget in five lines."""
    ask = mat.model("gpt")(client.create)
    answers = 0
    async with mat.budget.contracted(ResourceContract(name="agent", budgets={"tokens": 3_000}, duration_s=60)) as work:
        try:
            while True:
                answers += len((await ask(messages=["go on"], max_tokens=1_000)).choices)
        except mat.budget.BudgetSpent:
            return answers, work


class SlowClient(Client):
    async def create(self, *, messages: list[str], max_tokens: int = 0) -> Any:
        await asyncio.sleep(40)
        return await super().create(messages=messages)


def test_one_agent_works_under_one_budget_in_production_and_in_a_test() -> None:
    answers, work = asyncio.run(agent(Client()))
    assert (answers, work.state, work.status().consumed["tokens"]) == (2, "fulfilled", 2_600)
    with mat.run() as run:
        answers, work = asyncio.run(agent(Client()))
    assert (answers, work.state, work.status().consumed["tokens"]) == (2, "fulfilled", 2_600)
    with mat.run() as run:
        answers, work = asyncio.run(agent(SlowClient()))
    assert (answers, work.state) == (2, "expired")
    assert run.result is not None
    assert max(record.sealed_ms for record in run.result.records) == 80_000

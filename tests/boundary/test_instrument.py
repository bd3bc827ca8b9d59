"""Instrumented code: harmless outside a run, recorded inside, whatever its shape."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import mat
from mat.boundary.tape import Tape
from mat.core.errors import CodecError, SpecError


@mat.tool
def double(number: int, *, step: int = 1) -> int:
    if number < 0:
        raise ValueError("negative")
    return number * 2 * step


@mat.tool
async def double_later(number: int) -> int:
    await asyncio.sleep(1)
    return number * 2


class Shop:
    """Methods of every kind."""

    closed: list[str] = []

    @mat.tool(effect="write")
    def pay(self, cents: int) -> int:
        return cents

    @classmethod
    @mat.tool
    def rate(cls, day: str) -> str:
        return f"{cls.__name__} {day}"

    @mat.tool
    @staticmethod
    def tax(cents: int) -> int:
        return cents // 5


@mat.tool
class Client:
    def __init__(self, base: str) -> None:
        self.base = base

    def get(self, path: str) -> str:
        return self._join(path)

    async def fetch(self, path: str) -> str:
        return self._join(path)

    @staticmethod
    def version() -> int:
        return 2

    def _join(self, path: str) -> str:
        return self.base + path


@mat.tool
def count(upto: int) -> Iterator[int]:
    try:
        for number in range(upto):
            if number == 3:
                raise LookupError("no more")
            yield number
    finally:
        Shop.closed.append("count")


@mat.tool
async def count_later(upto: int) -> AsyncIterator[int]:
    try:
        for number in range(upto):
            await asyncio.sleep(1)
            yield number
    finally:
        Shop.closed.append("count_later")


@pytest.fixture(autouse=True)
def _open_shop():
    Shop.closed.clear()


def asked(run: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(item.action.name, dict(item.action.arguments)) for item in run.trace if item.action.kind == "tool_call"]


@pytest.mark.full
def test_outside_a_run_everything_is_a_plain_call():
    assert (double(2), asyncio.run(double_later(2)), Shop().pay(3), Shop.rate("mon"), Shop.tax(10)) == (4, 4, 3, "Shop mon", 2)
    with pytest.raises(ValueError, match="negative"):
        double(-1)
    with pytest.raises(TypeError, match="missing 1 required"):
        double()
    assert double(number=object.__sizeof__(1) * 0) == 0
    assert list(count(2)) == [0, 1]
    assert (mat.untrusted("x"), mat.message("a", "x"), mat.claim("x"), mat.verify("x", True), mat.approval("x")) == (
        "x", "x", "x", True, False,
    )  # fmt: skip
    notes = mat.memory({}, name="notes")
    notes["a"] = object
    assert (notes["a"], list(notes), "b" in notes) == (object, ["a"], False)
    mat.finish("x")
    mat.state(a=1)


def test_a_wrapper_is_of_the_kind_of_what_it_wraps():
    assert inspect.iscoroutinefunction(double_later)
    assert inspect.isgeneratorfunction(count)
    assert inspect.isasyncgenfunction(count_later)
    assert (double.__name__, inspect.signature(double), double.__wrapped__(2)) == (
        "double", inspect.signature(double.__wrapped__), 4,
    )  # fmt: skip


def test_arguments_are_named_completed_and_copied_and_the_receiver_is_left_out():
    listed = [1]

    @mat.tool
    def gather(first: Any, /, *rest: Any, **more: Any) -> None:
        listed.append(2)

    with mat.run() as run:
        double(2)
        Shop().pay(3)
        Shop.rate("mon")
        Shop.tax(10)
        gather(listed, 5, key="v")
    assert asked(run) == [
        ("double", {"number": 2, "step": 1}), ("pay", {"cents": 3}), ("rate", {"day": "mon"}), ("tax", {"cents": 10}),
        ("gather", {"first": [1], "rest": [5], "key": "v"}),
    ]  # fmt: skip
    assert listed == [1, 2]


def test_public_methods_of_a_class_cross_and_private_ones_do_not():
    client = Client("http://x/")
    with mat.run() as run:
        assert (client.get("a"), asyncio.run(client.fetch("b")), Client.version()) == ("http://x/a", "http://x/b", 2)
    assert asked(run) == [("Client.get", {"path": "a"}), ("Client.fetch", {"path": "b"}), ("Client.version", {})]


def test_a_call_that_does_not_fit_the_signature_fails_as_it_would_and_leaves_no_record():
    with mat.run() as run:
        with pytest.raises(TypeError):
            double(1, 2, 3)
        with pytest.raises(TypeError):
            double(nmber=1)
        with pytest.raises(TypeError):
            double(1, 2)
        with pytest.raises(TypeError):
            double(1, number=2)
    assert asked(run) == []


def test_a_value_without_canonical_form_is_an_error_that_names_the_parameter_and_nothing_is_recorded():
    done: list[Any] = []

    @mat.tool(effect="write")
    def pay(cents: int, connection: object) -> None:
        done.append(cents)

    notes = mat.memory({}, name="notes")
    with pytest.raises(CodecError, match="call of pay") as ended, mat.run() as run:  # noqa: PT012  (it is the end that raises)
        with pytest.raises(CodecError, match="call of pay, parameter 'connection' cannot be recorded") as caught:
            pay(5, object())
        with pytest.raises(CodecError, match="call of notes, parameter 'value'"):
            notes["a"] = object()
        assert double(1) == 2
    assert "exclude=" in caught.value.fix
    assert ended.value is caught.value
    assert (done, [item.site for item in run.trace][:1]) == ([], ["main/service:double#1"])


def test_excluded_parameters_are_not_recorded_and_reach_the_port():
    handle = object()

    @mat.tool(exclude=["connection"])
    def pay(cents: int, connection: object) -> bool:
        return connection is handle

    with mat.run() as run:
        assert pay(5, handle)
    assert asked(run) == [("pay", {"cents": 5})]
    with pytest.raises(SpecError, match="exclude names unknown parameters: conection"):
        mat.tool(exclude=["conection"])(lambda connection: None)


def test_a_partial_of_async_code_is_async():
    async def fetch(base: str, path: str) -> str:
        return base + path

    wrapped = mat.tool(functools.partial(fetch, "x/"), name="fetch")
    with mat.run() as run:
        assert asyncio.run(wrapped("y")) == "x/y"
    assert run.trace[0].observation.value == "x/y"


@pytest.mark.parametrize(
    ("taken", "chunks", "error", "cancelled"), [(9, 3, "LookupError", False), (2, 2, "GeneratorExit", True)]
)
def test_a_stream_that_ends_early_is_sealed_with_the_chunks_the_agent_got(taken, chunks, error, cancelled):
    with mat.run() as run:
        stream, got = count(9), []
        if taken == 9:
            with pytest.raises(LookupError):
                got.extend(stream)
        else:
            got = [next(stream), next(stream)]
            stream.close()
            assert Shop.closed == ["count"], "the port cleaned up before its step was sealed"
    seen = run.trace[0].observation
    assert (seen.chunks, seen.error.type, seen.cancelled, seen.value) == (chunks, error, cancelled, list(range(chunks)))
    assert run.trace[0].effected == "unknown"


def test_an_exhausted_stream_is_sealed_once_with_all_chunks():
    with mat.run() as run:
        assert list(count(2)) == [0, 1]
    assert [(item.observation.chunks, item.observation.value) for item in run.trace[:-1]] == [(2, [0, 1])]


@pytest.mark.parametrize("how", ["exhausted", "closed", "cancelled"])
def test_an_async_stream_is_sealed_however_it_ends(how):
    async def consume() -> list[int]:
        stream, got = count_later(3), []
        async for number in stream:
            got.append(number)
            if how == "closed":
                break
        await stream.aclose()
        assert Shop.closed == ["count_later"], "the port cleaned up before its step was sealed"
        return got

    async def impatient() -> Any:
        return await asyncio.wait_for(consume(), 1.5 if how == "cancelled" else 60)

    with mat.run() as run:
        if how == "cancelled":
            with pytest.raises(TimeoutError):
                asyncio.run(impatient())
        else:
            asyncio.run(impatient())
    seen = run.trace[0].observation
    assert Shop.closed == ["count_later"]
    assert (seen.chunks, seen.cancelled) == {"exhausted": (3, False), "closed": (1, True), "cancelled": (1, True)}[how]
    assert run.trace[0].effected == ("yes" if how == "exhausted" else "unknown")


def test_a_truncated_stream_pulls_no_chunk_more_than_it_gives():
    from mat.boundary.effect import Truncate

    pulled: list[int] = []

    @mat.tool
    def numbers() -> Iterator[int]:
        for number in range(9):
            pulled.append(number)
            yield number

    cut = mat.spec.operator("service.cut", lambda call, reply, stream: Truncate(2))
    with mat.run(operators=[cut], schedule=[mat.spec.perturbation("service.cut", "main/service:numbers#1", {}, 4)]):
        assert list(numbers()) == [0, 1]
    assert pulled == [0, 1]


def test_a_taped_stream_is_streamed_again_in_its_own_type():
    calls: list[int] = []

    @mat.tool(tape="external")
    def tokens() -> Iterator[tuple[int, str]]:
        calls.append(1)
        yield (1, "a")
        yield (2, "b")

    with mat.run() as first:
        said = list(tokens())
    with mat.run(tape=Tape(first.result.tape)) as again:
        assert list(tokens()) == said == [(1, "a"), (2, "b")]
    assert calls == [1]
    assert again.result.head == first.result.head


def test_the_value_a_generator_returns_is_kept_outside_a_run():
    @mat.tool
    def total() -> Any:
        yield 1
        return 7

    def outer() -> Any:
        return (yield from total())

    steps = outer()
    next(steps)
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value == 7


@pytest.mark.parametrize("callables", [False, True])
def test_a_memory_records_reads_writes_and_what_is_missing(callables):
    store: dict[str, Any] = {"a": 1}
    if callables:
        notes = mat.memory(get=store.__getitem__, put=store.__setitem__, name="notes")
    else:
        notes = mat.memory(store, name="notes")
    with mat.run() as run:
        notes["b"] = [2]
        assert (notes["b"], notes.get("c", 0), "a" in notes) == ([2], 0, True)
        if not callables:
            assert sorted(notes) == ["a", "b"]
            del notes["a"]
    kinds = [(item.action.kind, item.action.arguments.get("key")) for item in run.trace[:4]]
    assert kinds == [("memory_write", "b"), ("memory_read", "b"), ("memory_read", "c"), ("memory_read", "a")]
    assert run.trace[2].observation.error.type == "KeyError"
    assert run.trace[1].links[0].src == "memory:notes/b"
    assert store == ({"a": 1, "b": [2]} if callables else {"b": [2]})


def test_secrets_and_bearer_tokens_are_in_no_record():
    token = "Bearer abcdefghijklmnop123456"

    @mat.tool
    def call(header: str, body: dict[str, Any]) -> str:
        if body.get("fail"):
            raise ValueError(f"{token} {body['password']}")
        return f"{header} {body}"

    with mat.run() as run:
        password = mat.secret("hunter2-hunter2")
        assert password in call(token, {"password": password, "note": f"my {password}"}), "the agent gets the real reply"
        with pytest.raises(ValueError, match="hunter2"):
            call(token, {"password": password, "fail": True})
        mat.claim(f"it is {password}")
        mat.state(key=password)
        mat.finish(password)
    text = repr(run.result)
    assert password not in text
    assert "abcdefghijklmnop123456" not in text


def test_model_prompts_are_hashed_and_token_usage_is_read():
    @mat.model("planner")
    def ask(prompt: str) -> dict[str, Any]:
        return {"text": "hello", "usage": {"prompt_tokens": 7, "completion_tokens": 2}}

    with mat.run() as run:
        ask("tell me about Ann")
    record = run.trace[0]
    assert set(record.action.arguments["prompt"]) == {"sha256", "length", "pii"}
    assert "Ann" not in repr(run.trace)
    assert record.observation.usage == {"input_tokens": 7, "output_tokens": 2}


def test_a_reply_that_comes_back_as_an_argument_is_linked_to_where_it_came_from():
    with mat.run() as run:
        order = Client("order/").get("A17")
        Client("x").get(order)
        mat.claim("it is A17", supports=[order])
    assert [(link.src, link.rel, link.dst) for link in run.trace[1].links] == [("step#0", "derived_from", "step#1")]
    assert ("step#0", "supports", "claim#2") in [(link.src, link.rel, link.dst) for link in run.trace[2].links]


def test_a_patched_function_crosses_until_it_is_undone():
    import textwrap

    original = textwrap.shorten
    patch = mat.patch("textwrap.shorten", name="shorten")
    try:
        with mat.run() as run:
            assert textwrap.shorten("a b c", width=5) == "a b c"
    finally:
        patch.undo()
    assert asked(run) == [("shorten", {"text": "a b c", "width": 5})]
    assert textwrap.shorten is original


@pytest.mark.parametrize(
    ("target", "says"), [("textwrap.shrten", "has no 'shrten'"), ("nowhere.x", "no module"), ("x", "dotted")]
)
def test_a_patch_of_nothing_is_refused(target, says):
    with pytest.raises(SpecError, match=says):
        mat.patch(target)


def test_every_mistake_in_a_ports_options_is_said_in_one_go():
    with pytest.raises(SpecError) as caught:
        mat.tool(effect="writes", impact="huge", tape="vhs", record="shred")(double.__wrapped__)
    assert all(part in caught.value.what for part in ("effect='writes'", "impact='huge'", "tape='vhs'", "record='shred'"))


@pytest.mark.parametrize("given", ["store", mat.artifact.handles, mat.artifact.Handles])
def test_handles_that_are_no_store_are_refused_when_the_port_is_made(given):
    with pytest.raises(SpecError, match="is not a store"):
        mat.tool(handles=given)(double.__wrapped__)


@pytest.mark.parametrize("decorate", [mat.tool, mat.model("planner"), mat.retriever("kb")])
def test_outside_a_run_a_generator_takes_what_is_sent_and_returns_its_value(decorate: Any) -> None:
    @decorate
    def talk() -> Any:
        got = yield "first"
        yield f"got {got}"
        return "end"

    talking = talk()
    assert [next(talking), talking.send(5)] == ["first", "got 5"]
    with pytest.raises(StopIteration) as stopped:
        next(talking)
    assert stopped.value.value == "end"

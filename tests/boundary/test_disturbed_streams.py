"""Faults of streams on their way: they are recorded where they happened, and a cut stream is not recorded as whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import mat
import mat_faults
from mat.adapters import Attachment, cross_stream, cross_stream_async
from mat.boundary import calls
from mat.boundary.cassette import Cassette
from mat.boundary.tape import Tape

CATALOG = mat_faults.operators()
WORDS = ["Dear", "Ann", "your", "parcel"]
AFTER_TWO: dict[str, dict[str, Any]] = {
    "cut": {"operator": "model.cut", "chunks": 2},
    "broken": {"operator": "model.cut", "chunks": 2, "kind": "connection"},
    "error": {"operator": "model.stream_error", "chunks": 2},
    "silent": {"operator": "model.stream_stall", "chunks": 2, "ms": 30_000},
    "repeated": {"operator": "model.stream_repeat", "chunk": 2},
}
"""A fault after the second chunk, or of it."""


@mat.model("talker", tape="external")
def talk(count: int) -> Iterator[str]:
    yield from WORDS[:count]


@mat.model("talker", tape="external")
async def talk_later(count: int) -> AsyncIterator[str]:
    for word in WORDS[:count]:
        yield word


def schedule(operator: str, **parameters: Any) -> list[Any]:
    return [mat.spec.perturbation(operator, "main/model:talker#1", parameters, 5)] if operator else []


@contextmanager
def failing() -> Iterator[None]:
    """An agent that goes on after any error of its model."""
    try:
        yield
    except mat.MatError:
        raise
    except Exception:
        return


def listen(
    count: int, *, most: int = 9, tape: Tape | None = None, asynchronous: bool = False, operator: str = "", **parameters: Any
) -> tuple[list[str], Any]:
    """What an agent hears that leaves after `most` chunks of a stream of `count`, and the run."""
    heard: list[str] = []

    def leaves(chunk: str) -> bool:
        heard.append(chunk)
        return len(heard) == most

    async def later() -> None:
        chunks: Any = talk_later(count)
        with failing():
            async for chunk in chunks:
                if leaves(chunk):
                    break
        await chunks.aclose()

    with mat.run(schedule=schedule(operator, **parameters), operators=CATALOG, tape=tape) as run:
        if asynchronous:
            asyncio.run(later())
        else:
            chunks: Any = talk(count)
            with failing():
                for chunk in chunks:
                    if leaves(chunk):
                        break
            chunks.close()
    return heard, run.result


def changed(run: Any) -> bool:
    [note] = run.records[0].faults
    assert note.effect != "Pass"
    return bool(note.changed)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("fault", AFTER_TWO)
def test_a_fault_of_a_stream_is_recorded_as_a_change_where_it_happened(fault: str, asynchronous: bool) -> None:
    heard, run = listen(4, asynchronous=asynchronous, **AFTER_TWO[fault])
    assert changed(run)
    again, served = listen(4, asynchronous=asynchronous, tape=Tape(run.tape, live=0), **AFTER_TWO[fault])
    assert (again, served.head) == (heard, run.head)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("fault", ["cut", "silent", "repeated"])
def test_a_fault_that_a_short_stream_never_came_to_is_no_change(fault: str, asynchronous: bool) -> None:
    heard, run = listen(1, asynchronous=asynchronous, **AFTER_TWO[fault])
    assert heard == WORDS[:1]
    assert not changed(run)
    assert run.view == listen(1, asynchronous=asynchronous)[1].view


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("fault", AFTER_TWO)
def test_a_fault_after_the_agent_has_left_is_no_change(fault: str, asynchronous: bool) -> None:
    heard, run = listen(4, most=2, asynchronous=asynchronous, **AFTER_TWO[fault])
    assert heard == WORDS[:2]
    assert not changed(run)
    assert run.records[0].observation.cancelled


def test_a_silent_cut_where_a_recorded_stream_ends_is_no_change() -> None:
    _, recorded = listen(2)
    _, run = listen(2, tape=Tape(recorded.tape, live=0), **AFTER_TWO["cut"])
    assert not changed(run)
    assert run.view == recorded.view


# -- an agent that leaves after the last word ------------------------------------------------------------------------------


def leave_after_the_last_word(
    rest: list[Any], *, asynchronous: bool, tape: Tape | None = None, operator: str = "", **parameters: Any
) -> Any:
    """The run of an agent that closes a stream after "parcel", the last of four chunks. `rest`: what its port sends then."""
    port = Attachment().model("talker", stream=True)

    def send() -> Iterator[str]:
        for item in [*WORDS, *rest]:
            if isinstance(item, Exception):
                raise item
            yield item

    async def send_later() -> AsyncIterator[str]:
        for item in send():
            yield item

    async def later() -> None:
        chunks: Any = cross_stream_async(port, {}, lambda given: send_later(), ends=WORDS[-1].__eq__)
        assert [await anext(chunks) for _ in WORDS] == WORDS
        await chunks.aclose()

    with mat.run(schedule=schedule(operator, **parameters), operators=CATALOG, tape=tape) as run:
        if asynchronous:
            asyncio.run(later())
        else:
            chunks: Any = cross_stream(port, {}, lambda given: send(), ends=WORDS[-1].__eq__)
            assert [next(chunks) for _ in WORDS] == WORDS
            chunks.close()
    return run.result


AFTER_ALL: list[dict[str, Any]] = [
    {"operator": "model.stream_error", "chunks": 4},
    {"operator": "model.cut", "chunks": 4, "kind": "connection"},
    {"operator": "model.cut", "chunks": 4},
    {"operator": "model.stream_stall", "chunks": 4, "ms": 30_000},
    {"operator": "model.stream_repeat", "chunk": 4},
]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("fault", AFTER_ALL, ids=lambda fault: "-".join(map(str, fault.values())))
def test_no_fault_happens_after_the_last_word_to_an_agent_that_leaves_there(fault: dict[str, Any], asynchronous: bool) -> None:
    run = leave_after_the_last_word([], asynchronous=asynchronous, **fault)
    assert not changed(run)
    assert run.view == leave_after_the_last_word([], asynchronous=asynchronous).view
    assert run.records[0].observation.error is None
    assert run.elapsed_ms == 0


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_port_that_breaks_after_its_last_word_is_not_recorded_as_whole(asynchronous: bool) -> None:
    run = leave_after_the_last_word([ConnectionError("lost")], asynchronous=asynchronous)
    assert run.records[0].observation.value == WORDS
    assert run.records[0].observation.cancelled
    again = leave_after_the_last_word([], asynchronous=asynchronous, tape=Tape(run.tape, live=0))
    assert again.head == run.head


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_an_error_of_a_declaration_is_raised_where_the_agent_closes(asynchronous: bool) -> None:
    with pytest.raises(mat.MatError, match="misdeclared"):
        leave_after_the_last_word([mat.MatError("misdeclared", why="", fix="")], asynchronous=asynchronous)


# -- what the tape says ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("fault", ["cut", "broken", "error"])
def test_the_tape_of_a_cut_stream_does_not_say_that_it_was_whole(fault: str, asynchronous: bool) -> None:
    _, run = listen(4, asynchronous=asynchronous, **AFTER_TWO[fault])
    with pytest.raises(mat.MatError, match="ends where its agent left it"):
        listen(4, asynchronous=asynchronous, tape=Tape(run.tape, live=0))


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_cassette_keeps_no_cut_stream_whose_rest_breaks(asynchronous: bool, tmp_path: Path) -> None:
    port = Attachment().model("talker", stream=True)
    sent: list[str] = []

    def send() -> Iterator[str]:
        for word in WORDS:
            sent.append(word)
            yield word
        if len(sent) == len(WORDS):
            raise ConnectionError("lost")

    async def send_later() -> AsyncIterator[str]:
        for word in send():
            yield word

    async def later() -> list[str]:
        return [word async for word in cross_stream_async(port, {}, lambda given: send_later())]

    def hear(**fault: Any) -> list[str]:
        tape = Tape(cassette=Cassette(tmp_path / "c.jsonl", item="t", live=2))
        with mat.run(schedule=schedule(**fault), operators=CATALOG, tape=tape):
            return asyncio.run(later()) if asynchronous else list(cross_stream(port, {}, lambda given: send()))

    assert hear(**AFTER_TWO["cut"]) == WORDS[:2]
    assert hear(operator="") == WORDS  # asked again


# -- the rest of a stream that was left -------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_the_rest_of_an_endless_stream_is_read_for_a_limited_time(
    asynchronous: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "STREAM_REST_S", 0.2)
    monkeypatch.setattr(calls, "STREAMED_CHUNKS", 10**9)
    port = Attachment().model("talker", stream=True)
    sent = 0

    def send() -> Iterator[int]:
        nonlocal sent
        while sent < 3_000_000:
            sent += 1
            yield sent

    async def send_later() -> AsyncIterator[int]:
        for number in send():
            yield number

    async def later() -> None:
        chunks: Any = cross_stream_async(port, {}, lambda given: send_later())
        assert await anext(chunks) == 1
        await chunks.aclose()

    with mat.run(tape=Tape(cassette=Cassette(tmp_path / "c.jsonl", item="t", live=1))) as run:
        if asynchronous:
            asyncio.run(later())
        else:
            chunks: Any = cross_stream(port, {}, lambda given: send())
            assert next(chunks) == 1
            chunks.close()
    assert 1 < sent < 3_000_000
    assert run.trace[0].observation.cancelled


def test_the_rest_of_a_silent_stream_is_awaited_for_a_limited_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "STREAM_REST_S", 0.2)
    port, closed = Attachment().model("talker", stream=True), []

    async def send() -> AsyncIterator[str]:
        try:
            yield "Dear"
            await asyncio.sleep(3_600)
            yield "Ann"
        finally:
            closed.append(True)

    async def agent() -> str:
        chunks: Any = cross_stream_async(port, {}, lambda given: send())
        heard = await anext(chunks)
        await chunks.aclose()
        await asyncio.sleep(1)  # it goes on
        return str(heard)

    with mat.run(tape=Tape(cassette=Cassette(tmp_path / "c.jsonl", item="t", live=1))) as run:
        assert asyncio.run(agent()) == "Dear"
    assert closed == [True]
    assert run.result is not None
    assert 1_000 <= run.result.elapsed_ms <= 1_200  # some of the limit has passed in real time

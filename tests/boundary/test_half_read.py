"""A stream that its agent leaves early, or that breaks: recorded as that, and the same when it is served again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import mat
from mat.boundary.tape import Tape

ASKED: list[str] = []


@mat.model("talker", tape="external")
def talk(prompt: str) -> Iterator[str]:
    ASKED.append(prompt)
    yield from ("The", " refund", " is")
    if prompt == "break":
        raise ConnectionError("lost")
    yield " due."


def listen(prompt: str, most: int, tape: Tape | None = None) -> tuple[list[str], str, Any]:
    """What the agent hears before it leaves, the error that it meets, and the run."""
    heard, error = [], ""
    with mat.run(tape=tape) as run:
        chunks: Any = talk(prompt)
        try:
            for chunk in chunks:
                heard.append(chunk)
                if len(heard) == most:
                    break
        except ConnectionError as found:
            error = str(found)
        chunks.close()
    return heard, error, run.result


@pytest.mark.parametrize(("prompt", "most"), [("go on", 2), ("break", 9), ("go on", 9)])
def test_a_replay_gives_the_same_chunks_and_ends_as_the_recorded_run_did(prompt: str, most: int) -> None:
    heard, error, run = listen(prompt, most)
    ASKED.clear()
    again, met, replayed = listen(prompt, most, Tape(run.tape, live=0))
    assert (again, met) == (heard, error)
    assert ASKED == []
    assert replayed.head == run.head
    assert replayed.records[0].observation.cancelled is (most == 2)


def test_a_run_that_reads_on_where_the_recorded_one_left_is_refused() -> None:
    _, _, run = listen("go on", 2)
    with pytest.raises(mat.MatError, match="ends where its agent left it"):
        listen("go on", 9, Tape(run.tape, live=0))

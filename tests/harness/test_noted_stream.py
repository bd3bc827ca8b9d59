"""A noted stream draws like the stream it stands for, and copies it only if it is drawn from."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from mat.harness.noted_stream import NotedStream

DRAWS: dict[str, Callable[[Random], object]] = {
    "random": lambda stream: stream.random(),
    "getrandbits": lambda stream: stream.getrandbits(70),
    "randrange": lambda stream: stream.randrange(10**30),
    "choice": lambda stream: stream.choice("abcdef"),
    "shuffle": lambda stream: stream.shuffle([1, 2, 3]),
    "sample": lambda stream: stream.sample(range(100), 7),
    "gauss": lambda stream: stream.gauss(0, 1),
    "normalvariate": lambda stream: stream.normalvariate(0, 1),
    "randbytes": lambda stream: stream.randbytes(9),
    "seed": lambda stream: stream.seed(3),
    "setstate": lambda stream: stream.setstate(Random(5).getstate()),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_of_the_stream_and_move_it(name: str) -> None:
    plain, stream = Random(7), Random(7)
    for _ in range(3):  # gauss keeps a number for its next call, which another stand-in makes
        noted = NotedStream(stream)
        assert not noted.drawn()
        assert DRAWS[name](noted) == DRAWS[name](plain)
        assert stream.getstate() == plain.getstate()
    assert NotedStream(Random(7)).drawn() is False


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("first", [False, True])
def test_draws_from_a_copy_begin_where_the_stream_began_and_leave_it_alone(name: str, first: bool) -> None:
    stream, plain = Random(7), Random(7)
    noted = NotedStream(stream)
    if first:
        noted.random()
    after = stream.getstate()
    copy = NotedStream(stream, origin=noted)
    assert not copy.drawn()
    assert DRAWS[name](copy) == DRAWS[name](plain)
    assert copy.drawn()
    assert stream.getstate() == after


def test_looking_at_the_state_is_no_draw() -> None:
    noted = NotedStream(Random(7))
    assert noted.getstate() == Random(7).getstate()
    assert not noted.drawn()


def test_a_stream_that_nobody_draws_from_is_not_copied() -> None:
    class Counting(Random):
        copies = 0

        def getstate(self) -> object:
            Counting.copies += 1
            return super().getstate()

    noted = NotedStream(Counting(7))
    NotedStream(Counting(7), origin=noted).drawn()
    assert not noted.drawn()
    assert Counting.copies == 0

"""A stream of randomness that notes whether it was drawn from, without copying its state unless it was."""

from __future__ import annotations

from random import Random
from typing import Any


class NotedStream(Random):
    """Stands for a stream while an operator decides; its draws are those of the stream.

    `drawn()`: whether they have moved it. With `origin`, they are taken from a copy of what `origin` found, and
    the stream itself stays as it is. A state has 625 numbers, so it is copied only at the first draw: most operators do not
    draw at all, and are asked about every point of their grid.
    """

    def __new__(cls, *given: Any, **named: Any) -> NotedStream:
        return super().__new__(cls, 0)  # type: ignore[call-arg]  # without an argument, it would read the system's entropy

    def __init__(self, stream: Random, *, origin: NotedStream | None = None) -> None:
        self._stream, self._origin = stream, origin
        self._before: Any = None

    def drawn(self) -> bool:
        return self._before is not None and self._stream.getstate() != self._before

    def begun(self) -> Any:
        """The state of the stream before anything was drawn."""
        return self._stream.getstate() if self._before is None else self._before

    def _touched(self) -> Random:
        if self._before is None:
            if self._origin is not None:
                self._before, self._stream = self._origin.begun(), Random(0)
                self._stream.setstate(self._before)
            else:
                self._before = self._stream.getstate()
        return self._stream

    def random(self) -> float:
        return self._touched().random()

    def getrandbits(self, k: int, /) -> int:
        return self._touched().getrandbits(k)

    def seed(self, *given: Any, **named: Any) -> None:
        self._touched().seed(*given, **named)

    def getstate(self) -> Any:
        return self._touched().getstate()

    def setstate(self, state: Any) -> None:
        self._touched().setstate(state)

    @property
    def gauss_next(self) -> Any:
        """The second number of a pair that `gauss` makes, which it keeps for the next call."""
        return self._touched().gauss_next  # type: ignore[attr-defined]

    @gauss_next.setter
    def gauss_next(self, value: Any) -> None:
        self._touched().gauss_next = value  # type: ignore[attr-defined]

"""Formulas that are nested deeply: room for the functions that follow them, and what is remembered of each part."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

Node = TypeVar("Node")
Answer = TypeVar("Answer")

SHALLOW: Final = 25
"""Formulas up to this depth need no more room than Python gives."""
_FRAMES: Final = 8
"""How many frames a level takes at most."""
_REMEMBERED: Final = 20_000


@contextmanager
def room_for(depth: int) -> Iterator[None]:
    """Let functions call themselves for each level of a formula. Python counts frames, and a level takes several."""
    before, needed = sys.getrecursionlimit(), 1000 + _FRAMES * depth
    if depth <= SHALLOW or needed <= before:
        yield
        return
    sys.setrecursionlimit(needed)
    try:
        yield
    finally:
        if sys.getrecursionlimit() == needed:
            sys.setrecursionlimit(before)


def remembered(function: Callable[[Node], Answer]) -> Callable[[Node], Answer]:
    """A function of a part of a formula that is asked again at every level above it, so its answers are kept for a while."""
    known: dict[int, tuple[Node, Answer]] = {}  # with the part, so that its id is not given to another

    def ask(node: Node) -> Answer:
        found = known.get(id(node))
        if found is None:
            answer = function(node)
            if len(known) >= _REMEMBERED:
                known.clear()
            found = known[id(node)] = (node, answer)
        return found[1]

    ask.__doc__ = function.__doc__
    return ask


def bottom_up(
    children: Callable[[Any], tuple[Any, ...]],
) -> Callable[[Callable[[Any, list[Answer]], Answer]], Callable[[Any], Answer]]:
    """Make a function of (part, the answers for its children) a remembered function of the part, which calls itself nowhere."""

    def decorate(combine: Callable[[Any, list[Answer]], Answer]) -> Callable[[Any], Answer]:
        known: dict[int, tuple[Any, Answer]] = {}

        def ask(node: Any) -> Answer:
            if id(node) in known:
                return known[id(node)][1]
            if len(known) >= _REMEMBERED:
                known.clear()
            waiting = [node]
            while waiting:
                part = waiting[-1]
                inner = children(part)
                missing = [child for child in inner if id(child) not in known]
                if missing:
                    waiting += missing
                    continue
                known[id(part)] = (part, combine(part, [known[id(child)][1] for child in inner]))
                waiting.pop()
            return known[id(node)][1]

        return ask

    return decorate


def depth_of(node: Any, children: Callable[[Any], tuple[Any, ...]]) -> int:
    """How many levels a tree has."""
    deepest, waiting = 1, [(node, 1)]
    while waiting:
        part, level = waiting.pop()
        deepest = max(deepest, level)
        waiting += [(child, level + 1) for child in children(part)]
    return deepest

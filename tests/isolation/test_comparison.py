"""Comparing many places together finds the same as asking each."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

import pytest

from mat.kernel.comparison import NodeComparison
from mat.kernel.nodes import CellNode, ClassNode, DictNode, FunctionNode, InstanceNode, ListNode, Node, SetNode, WatchNode

NAMES = [chr(97 + number) for number in range(12)]


def _dict(dice: random.Random) -> tuple[Node, list[Callable[[], object]]]:
    held: dict[Any, Any] = dict.fromkeys(dice.sample(NAMES, dice.randrange(6)))
    return DictNode(held), [
        lambda: held.__setitem__("new", 1),
        lambda: held.popitem() if held else held.update(z=0),
        lambda: held.update({name: object() for name in held} or {"z": 0}),
        lambda: held.update([(f"{name}2", held.pop(name)) for name in list(held)] or [("z", 0)]),  # other keys, the same values
    ]


def _class(dice: random.Random) -> tuple[Node, list[Callable[[], object]]]:
    held = type("Desk", (), dict.fromkeys(dice.sample(NAMES, 3)))
    return ClassNode(held), [lambda: setattr(held, "COUNT", 1), lambda: setattr(held, "__doc__", "changed")]


def _list(dice: random.Random) -> tuple[Node, list[Callable[[], object]]]:
    held = [None] * dice.randrange(4)
    return ListNode(held), [lambda: held.append(None), lambda: held.__setitem__(slice(None), [object(), *held])]


def _deque(dice: random.Random) -> tuple[Node, list[Callable[[], object]]]:
    held = deque([None] * dice.randrange(4), maxlen=9)
    return ListNode(held), [lambda: held.append(None)]


def _set(dice: random.Random) -> tuple[Node, list[Callable[[], object]]]:
    held = set(dice.sample(NAMES, dice.randrange(4)))
    return SetNode(held), [lambda: held.add("new"), lambda: held.pop() if held else held.add("z")]


def _cell(dice: random.Random) -> tuple[Node, list[Callable[[], object]]]:
    held = CellType(*([] if dice.random() < 0.1 else [None]))
    return CellNode(held), [lambda: setattr(held, "cell_contents", object())]


def _library(dice: random.Random) -> tuple[Node, list[Callable[[], object]]]:
    held = type("Client", (), {"retries": 1})
    names = dice.choice([(), ("retries",), ("hook",)])
    change = [lambda: setattr(held, "retries", 2)] if "retries" in names else []
    return WatchNode(held, names), [lambda: setattr(held, "hook", None), *change]


def _function(dice: random.Random) -> tuple[Node, list[Callable[[], object]]]:
    def held(one: int = 1, *, two: int = 2) -> None: ...

    def other() -> None: ...

    assert isinstance(held, FunctionType)
    return FunctionNode(held), [
        lambda: setattr(held, "__defaults__", (3,)),
        lambda: setattr(held, "__kwdefaults__", {"two": 3}),
        lambda: setattr(held, "__code__", other.__code__),
        lambda: setattr(held, "__name__", "other"),
    ]


def _instance(dice: random.Random) -> tuple[Node, list[Callable[[], object]]]:
    one, two = (type(name, (), {}) for name in ("One", "Two"))
    bare = type("Bare", (), {"__slots__": ()})
    held: Any = dice.choice([one, bare])()
    if type(held) is bare:
        return InstanceNode(held), [lambda: setattr(held, "__class__", type("Other", (), {"__slots__": ()}))]
    return InstanceNode(held), [lambda: setattr(held, "__class__", two), lambda: setattr(held, "__dict__", {})]


KINDS = [_dict, _class, _list, _deque, _set, _cell, _library, _function, _instance]


@pytest.mark.sweep("number", range(60), fast=6)
def test_many_places_together_differ_where_each_alone_does(number: int) -> None:
    dice = random.Random(number)
    nodes: list[Node] = []
    changes: list[list[Callable[[], object]]] = []
    comparison = NodeComparison(nodes)
    for _ in range(4):
        for _ in range(dice.randrange(200)):
            node, changing = dice.choice(KINDS)(dice)
            nodes.append(node)
            changes.append(changing)
        assert comparison.differing() == []
        changed = dice.sample(range(len(nodes)), min(len(nodes), dice.randrange(5)))
        for index in changed:
            dice.choice(changes[index])()
        found = comparison.differing()
        assert found == sorted(changed) == [index for index, node in enumerate(nodes) if not node.same()]
        for index in found:
            if dice.random() < 0.5:
                nodes[index].put_back()
            nodes[index].keep()


def test_a_comparison_calls_no_code_of_the_user() -> None:
    class Loud:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = object.__hash__

    class Table(dict[str, object]):
        def __iter__(self) -> Any:
            raise AssertionError("iterated")

        def __len__(self) -> int:
            raise AssertionError("counted")

    held: dict[str, Any] = {"one": Loud()}
    table = Table(one=1)
    comparison = NodeComparison([DictNode(held), ListNode([Loud()]), DictNode(table)])
    assert comparison.differing() == []
    held["one"] = Loud()
    table["one"] = 2
    assert comparison.differing() == [0, 2]

"""Every pattern of the wheel, kept under a name or written in a call of `re`, reads its own worst texts in about linear time.

The texts are made from the pattern: its words and a character of each of its classes, repeated alone and in pairs, with and
without a beginning, and an end that breaks the match. Reading 15 kB takes a linear pattern some milliseconds at most, and a
quadratic one a third of a second.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations, product
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

ROOTS: Final = ("mat", "mat_contracts", "mat_faults", "mat_search", "mat_study", "pytest_mat")
SIZE: Final = 15_000
LIMIT_S: Final = 0.1
"""Thirty times what a linear pattern takes, and a third of what a quadratic one takes."""
SHORT: Final = 5
"""A part of the text is read first: what is quick there by the square of this is quick for the whole, were it quadratic."""
_ENDS: Final = ("", "!", "\n", "\x00")
_WORDS: Final = 9
"""Words and characters of a pattern that are combined."""
_WINDOWS: Final = 5
"""How often other words are combined."""


def modules() -> Iterator[ModuleType]:
    for root in ROOTS:
        package = importlib.import_module(root)
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{root}."):
            if found.name.rpartition(".")[2] == "__main__":
                continue
            try:
                yield importlib.import_module(found.name)
            except ImportError:  # an adapter whose framework is not installed
                continue


@lru_cache(maxsize=1)
def patterns() -> dict[str, re.Pattern[Any]]:
    """The patterns in the names of all modules, also those inside of lists and dictionaries."""
    found: dict[str, re.Pattern[Any]] = {}
    for module in modules():
        for name, value in vars(module).items():
            for place, pattern in enumerate(inside(value)):
                found.setdefault(f"{module.__name__}.{name}" + (f"[{place}]" if place else ""), pattern)
    known = {pattern.pattern for pattern in found.values()}
    found |= {name: pattern for name, pattern in written() if pattern.pattern not in known}
    return dict(sorted(found.items()))


def written() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """The constant patterns in calls such as re.search(r"...", text). Patterns that a call puts together are not seen."""
    for source in sources():
        tree = ast.parse(source)
        bound = {
            id(node.value): node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
        }  # re.compile(...).match
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re"), attr=attr),
                    args=[ast.Constant(value=str() | bytes() as text), *_],
                ):
                    yield f"re.{bound.get(id(node), attr)} {text!r}", re.compile(text)


def inside(value: Any, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, dict):
        for item in (*value, *value.values()):
            yield from inside(item, depth - 1)
    elif depth and isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from inside(item, depth - 1)


def reads_whole_texts(name: str) -> bool:
    """Whether a pattern is only asked whether a text begins with it or is it, so that it never starts in the middle."""
    if name.startswith("re."):
        return name.startswith(("re.match ", "re.fullmatch "))
    module, _, own = name.partition("[")[0].rpartition(".")
    private = [Path(str(importlib.import_module(module).__file__)).read_text()]
    used = {
        match[1]
        for text in (private if own.startswith("_") else sources())
        for match in re.finditer(rf"\b{re.escape(own)}\.([a-z]+)\(", text)
    }
    return bool(used) and used <= {"match", "fullmatch"}


@lru_cache(maxsize=1)
def sources() -> list[str]:
    folders = {Path(str(importlib.import_module(root).__file__)).parent for root in ROOTS}
    return [path.read_text() for folder in folders for path in folder.rglob("*.py")]


# -- texts ------------------------------------------------------------------------------------------------------------


def words_of(pattern: re.Pattern[Any]) -> list[str]:
    """The words of a pattern, and a character or two of each of its classes, the rarer ones last."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    flags = pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    tree = importlib.import_module("re._parser").parse(text, flags)
    found: dict[str, None] = {}
    collect(tree, found)
    return list(found)


def collect(tree: Any, found: dict[str, None]) -> None:
    word = ""
    for kind, argument in tree:
        name = str(kind)
        if name == "LITERAL":
            word += chr(argument)
            continue
        if word:
            found.setdefault(word)
            word = ""
        for part in parts(name, argument):
            collect(part, found)
        for character in characters(name, argument):
            found.setdefault(character)
    if word:
        found.setdefault(word)


def parts(name: str, argument: Any) -> list[Any]:
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return [argument[2]]
    if name == "SUBPATTERN":
        return [argument[3]]
    if name == "BRANCH":
        return list(argument[1])
    if name in ("ASSERT", "ASSERT_NOT"):
        return [argument[1]]
    return [argument] if name == "ATOMIC_GROUP" else []


def characters(name: str, argument: Any) -> Iterator[str]:
    if name == "ANY":
        yield "x"
    elif name == "NOT_LITERAL":
        yield "x" if argument != ord("x") else "y"
    elif name == "IN":
        negated = str(argument[0][0]) == "NEGATE"
        taken = re.compile("[^x]") if negated else None
        for kind, value in argument:
            word = str(kind)
            if word == "LITERAL" and taken is None:
                yield chr(value)
            elif word == "RANGE" and taken is None:
                yield chr(value[0])
            elif word == "CATEGORY":
                yield {"CATEGORY_DIGIT": "0", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a"}.get(str(value), "-")
        if negated:
            yield from ("a", " ")


def texts(pattern: re.Pattern[Any]) -> Iterator[str]:
    every = words_of(pattern)
    seen: set[str] = set()
    step = max(_WORDS // 2, len(every) // _WINDOWS)
    for start in range(0, max(1, len(every) - _WORDS // 2), step):
        words = every[start : start + _WORDS]
        units = [("", unit) for unit in (*words, *("".join(pair) for pair in permutations(words, 2)))]
        for first, unit in (*units, *product(words[:4], words)):
            if first + "\0" + unit not in seen:
                seen.add(first + "\0" + unit)
                yield first + unit * (SIZE // len(unit) + 1)


def seconds(pattern: re.Pattern[Any], text: str, *, whole: bool = False, limit_s: float = LIMIT_S) -> float:
    worst = 0.0
    for end in _ENDS:
        read: Any = text + end if isinstance(pattern.pattern, str) else (text + end).encode("latin-1", "replace")
        began = time.process_time()
        if whole:
            pattern.match(read)
            pattern.fullmatch(read)
        else:
            sum(1 for _ in pattern.finditer(read))
        worst = max(worst, time.process_time() - began)
        if worst < limit_s / 30:
            return worst  # an end of another kind changes nothing of that size
    return worst


def is_linear(pattern: re.Pattern[Any], text: str, *, whole: bool = False) -> bool:
    short_s = LIMIT_S / SHORT**2
    quick = seconds(pattern, text[: SIZE // SHORT], whole=whole, limit_s=short_s) < short_s
    return quick or seconds(pattern, text, whole=whole) < LIMIT_S


@pytest.mark.full
@pytest.mark.parametrize("name", patterns())
def test_a_pattern_reads_its_worst_text_in_linear_time(name: str) -> None:
    pattern, whole = patterns()[name], reads_whole_texts(name)
    for text in texts(pattern):
        assert is_linear(pattern, text, whole=whole), f"{name} on {text[:40]!r}..."


@pytest.mark.parametrize(
    ("expression", "text"), [(r"\s+x", " " * SIZE), (r"\beyJ[\w\-]{8,}\.x", "eyJ-" * (SIZE // 4)), (r"(?:a+)+b", "a" * 23)]
)
def test_a_slow_pattern_is_slow_here(expression: str, text: str) -> None:
    pattern = re.compile(expression)
    assert any(text[:8] in made for made in texts(pattern))
    assert not is_linear(pattern, text)

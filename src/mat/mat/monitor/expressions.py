"""Join, negate and indent generated lines and conditions, and drop unused values. All are plain strings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

TRUE: Final = "True"
FALSE: Final = "False"
_OPPOSITE: Final = {"==": "!=", "!=": "==", "<=": ">", ">": "<=", "<": ">=", ">=": "<", "in": "not in"}
_TURNED: Final = re.compile(r"(?<= )(?:[=!<>]=|[<>]|in)(?= )")
_LITERAL: Final = re.compile(r"""(['"])(?:\\.|(?!\1)[^\\])*+(?:\1|\\?$)""")
_WORD: Final = re.compile(r"\w+")
_DEEP: Final = 40
_VALUE: Final = re.compile(r"\s*(v\d+) = ")


def negated(expression: str) -> str:
    """The negation of a condition; a single comparison is reversed."""
    if expression in (TRUE, FALSE):
        return FALSE if expression == TRUE else TRUE
    if expression.isidentifier():
        return f"not {expression}"
    if expression.startswith("not ") and expression[4:].isidentifier():
        return expression[4:]
    code = _LITERAL.sub(lambda literal: "_" * len(literal[0]), expression)  # a literal may contain anything, even operators
    found = list(_TURNED.finditer(code))
    if len(found) == 1 and not {"and", "or", "not", "if", ":="} & set(code.split(" ")):
        start, end = found[0].span()
        return f"{expression[:start]}{_OPPOSITE[found[0][0]]}{expression[end:]}"
    return f"not ({expression})"


def conjunction(parts: Sequence[str]) -> str:
    return _join(parts, " and ", neutral=TRUE, absorbing=FALSE)


def disjunction(parts: Sequence[str]) -> str:
    return _join(parts, " or ", neutral=FALSE, absorbing=TRUE)


def _join(parts: Sequence[str], word: str, *, neutral: str, absorbing: str) -> str:
    if absorbing in parts:
        return absorbing
    kept = [part for part in dict.fromkeys(parts) if part != neutral]
    if len(kept) <= 1:
        return kept[0] if kept else neutral
    return word.join(part if part.isidentifier() else f"({part})" for part in kept)


def is_deep(expression: str) -> bool:
    """Whether an expression is nested so deeply that it should be cut: Python compiles two hundred levels of parentheses."""
    if expression.count("(") < _DEEP:
        return False
    level = deepest = 0
    for character in expression:
        level += (character == "(") - (character == ")")
        deepest = max(deepest, level)
    return deepest >= _DEEP


def block(header: str, lines: Sequence[str]) -> list[str]:
    """Lines indented under a header; nothing if there are no lines."""
    return [header, *indented(lines)] if lines else []


def indented(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]


def guarded(condition: str, lines: Sequence[str]) -> list[str]:
    """Lines under a condition, which may be constant."""
    if condition == FALSE:
        return []
    return list(lines) if condition == TRUE else block(f"if {condition}:", lines)


def used(lines: list[str]) -> list[str]:
    """Drop the assignments whose values are not read."""
    text = "\n".join(lines)
    words = Counter(_WORD.findall(text))
    return [line for line in lines if not ((found := _VALUE.match(line)) and words[found[1]] == 1 and ":=" not in line)]

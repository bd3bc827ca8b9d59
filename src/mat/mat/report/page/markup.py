"""HTML by construction: whatever is not `Markup` is text, and text is cleaned and escaped on its way into the page."""

from __future__ import annotations

import re
from html import escape
from typing import Final, TypeAlias

from mat.evidence.artifact import printable

__all__ = ["Child", "Markup", "breakable", "joined", "script_json", "tag", "text"]

_SEAMS: Final = re.compile(r"(?<=[_/\[])|(?<=::)")
"""Where a node id may be broken over lines."""
_VOID: Final = frozenset({"meta", "wbr", "input", "line", "rect", "circle", "path", "polyline", "br"})
_SCRIPT: Final = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


class Markup(str):
    """HTML that is made of our own tags and of escaped text, and may stand in the page as it is."""

    __slots__ = ()


Child: TypeAlias = "str | int | None"


def text(value: str | int) -> Markup:
    """Text as it is shown: what nobody could see (controls, bidirectional marks) is spelled out, then all is escaped."""
    return Markup(escape(printable(str(value)), quote=True))


def tag(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """An element. Children that are None are left out. Attributes: `class_` is class, `_` a hyphen, True stands alone."""
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None and value is not False)
    if name in _VOID:
        return Markup(f"<{name}{given}/>" if name not in ("meta", "input", "br", "wbr") else f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: Child) -> Markup:
    """Children side by side, each escaped unless it is markup."""
    return Markup("".join(_child(child) for child in children if child is not None))


def _child(child: str | int) -> str:
    return child if isinstance(child, Markup) else text(child)


def _attribute(name: str, value: str | int | float | bool) -> str:
    shown = name if name == "viewBox" else name.rstrip("_").replace("_", "-")
    return f" {shown}" if value is True else f' {shown}="{text(str(value))}"'


def breakable(name: str) -> Markup:
    """A long name, such as a node id, that may be broken at its seams."""
    return Markup(tag("wbr").join(text(part) for part in _SEAMS.split(printable(name))))


def script_json(ascii_json: str) -> Markup:
    """JSON (in ASCII) for a `<script type="application/json">`: no character in it can end the element or begin another."""
    return Markup(ascii_json.translate(_SCRIPT))

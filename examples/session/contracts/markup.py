"""The XML transport's texts (section 11): invocation tags, tool-response notices, and the per-turn instructions XML-NEXT.

Tags are found by substring, as in the document; there is no XML parser here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mat.core.value import EMPTY, FrozenDict

_OPEN: Final = re.compile(r"<ai-agent-([0-9a-f]{8})-(\d{4}|FINAL|PROGRESS)((?:\s+[\w-]+=\"[^\"]*\")*)\s*>")
_ATTRIBUTE: Final = re.compile(r"([\w-]+)=\"([^\"]*)\"")
_NOTICE: Final = re.compile(r"System Notice: tool response for ([0-9a-f]{8}-\d{4}|[0-9a-f]{8}-[A-Z]+) \(([^)\n]*)\)")
_FINAL_SLOT: Final = re.compile(r"<ai-agent-([0-9A-Za-z]+)-FINAL\b")
_SLOT: Final = re.compile(r"<ai-agent-([0-9A-Za-z]+)-(\w+)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """One invocation in a reply. `slot` is NONCE-0001 and the like; `closed`: its closing tag is there."""

    nonce: str
    slot: str
    tool: str
    attributes: FrozenDict
    payload: str
    closed: bool


def tags(text: str) -> tuple[Tag, ...]:
    """The tags of a reply in order. Inside a closed tag all is payload; an open one goes on to the next tag or the end."""
    found, at = [], 0
    while (start := _OPEN.search(text, at)) is not None:
        nonce, slot, attributes = start[1], f"{start[1]}-{start[2]}", FrozenDict(dict(_ATTRIBUTE.findall(start[3])))
        end = text.find(f"</ai-agent-{slot}>", start.end())
        if end >= 0:
            payload, at, closed = text[start.end() : end], end, True
        else:
            following = _OPEN.search(text, start.end())
            at = len(text) if following is None else following.start()
            payload, closed = text[start.end() : at], False
        found.append(
            Tag(nonce=nonce, slot=slot, tool=attributes.get("tool", ""), attributes=attributes, payload=payload, closed=closed)
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One tool response inside a user message: the slot, the tool, and the text of its block."""

    slot: str
    tool: str
    text: str


def responses(text: str) -> tuple[Response, ...]:
    """The tool responses that a user message carries, each from its notice to the next."""
    heads = list(_NOTICE.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)] if heads else []
    return tuple(
        Response(slot=head[1], tool=head[2], text=text[head.end() : end]) for head, end in zip(heads, ends, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """An XML-NEXT message: the nonce, the numbered slots it offers, whether a progress slot, and its text."""

    nonce: str
    slots: tuple[str, ...]
    progress: bool
    text: str
    data: FrozenDict = EMPTY


def instructions(text: str) -> Instructions | None:
    """The per-turn instructions in a message, known by the slot for the final report; None without any."""
    final = _FINAL_SLOT.search(text)
    if final is None:
        return None
    offered = dict.fromkeys(f"{match[1]}-{match[2]}" for match in _SLOT.finditer(text))
    return Instructions(
        nonce=final[1],
        slots=tuple(slot for slot in offered if slot.rpartition("-")[2].isdigit()),
        progress=any(slot.endswith("-PROGRESS") for slot in offered),
        text=text,
    )

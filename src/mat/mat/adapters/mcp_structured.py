"""Structured content of MCP tools as passages, so that faults of retrieval reach it.

A result has two views of the same: text blocks, and `structuredContent`. A passage stands for an entry of both. It is the text
of the entry, and `structured`, the rest of it:

    {"type": "text", "text": "Paid within 14 days.", "structured": {"id": 7, "score": 0.9}, "of": {...}}

`of` says how the two views are made of the passages again, so that they stay consistent whatever a fault changes. An operator
that wants them to differ gives a passage `only`: "text" or "structured", and it is in that view alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

TextStyle: TypeAlias = Literal["json", "entries", "own"]
"""What the text is: the structured content as JSON, a block for each entry, or a text of the server's own."""
_TEXTS: Final = ("text", "content", "page_content", "passage", "snippet", "body", "summary", "description", "message")
_OF: Final = "of"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """How a result is made of its entries.

    `key`: the field of the structured content that holds them; "" if the whole is one entry. `at`: the field of an entry that
    holds its text; "" if the entry is its text. `listed`: the field holds a list of them. `rest`: the other fields.
    `spaced`: the JSON text has line breaks.
    """

    key: str
    at: str
    listed: bool
    style: TextStyle
    rest: Mapping[str, Any]
    spaced: bool

    @property
    def data(self) -> dict[str, Any]:
        return {
            "key": self.key, "at": self.at, "listed": self.listed, "style": self.style, "rest": dict(self.rest),
            "spaced": self.spaced,
        }  # fmt: skip

    def structured(self, entries: Sequence[Any]) -> dict[str, Any] | None:
        """The structured content of entries; several in the place of a single one are joined as texts."""
        if self.listed:
            return {**self.rest, self.key: list(entries)}
        if not entries:
            return None
        first, *others = entries
        text = "\n".join(str(self._text(entry)) for entry in (first, *others) if self._text(entry) is not None)
        whole = first if not others else {**first, self.at: text} if isinstance(first, Mapping) and self.at else text
        return {**self.rest, self.key: whole} if self.key else dict(whole) if isinstance(whole, Mapping) else {"result": whole}

    def blocks(self, entries: Sequence[Any]) -> list[dict[str, Any]]:
        """The text blocks that say the same as the structured content of these entries."""
        if self.style == "entries" and self.listed:
            return [_block(entry if isinstance(entry, str) else _json(entry, spaced=self.spaced)) for entry in entries]
        structured = self.structured(entries)
        if structured is None:
            return []
        if self.style == "entries":
            inner = structured[self.key]
            return [_block(inner if isinstance(inner, str) else _json(inner, spaced=self.spaced))]
        return [_block(_json(structured, spaced=self.spaced))]

    def passage(self, entry: Any) -> dict[str, Any]:
        """An entry as a passage."""
        only = {"only": "structured"} if self.style == "own" else {}
        if not self.at:
            return {"type": "text", "text": entry, "structured": None, _OF: self.data, **only}
        rest = {name: item for name, item in entry.items() if name != self.at}
        return {"type": "text", "text": entry.get(self.at, ""), "structured": rest, _OF: self.data, **only}

    def entry(self, passage: Any) -> Any:
        """The entry that a passage stands for, which may be a text that a fault has added."""
        text = passage.get("text", "") if isinstance(passage, Mapping) else str(passage)
        rest = passage.get("structured") if isinstance(passage, Mapping) else {}
        return {**(rest or {}), self.at: text} if self.at else text

    def _text(self, entry: Any) -> Any:
        return entry.get(self.at) if isinstance(entry, Mapping) else entry


def with_structured(content: Sequence[Any], structured: Any) -> list[Any] | None:
    """The passages of a result with structured content; None if it has no entries with a text."""
    if not isinstance(structured, Mapping) or not structured:
        return None
    found = _list_entries(content, structured) or _single_entry(content, structured)
    if found is None:
        return None
    layout, entries = found
    own = list(content) if layout.style == "own" else []
    return [*own, *(layout.passage(entry) for entry in entries)]


def _list_entries(content: Sequence[Any], structured: Mapping[str, Any]) -> tuple[_Layout, list[Any]] | None:
    """The first list of texts, or of mappings with a text, among the fields."""
    for key, entries in structured.items():
        if not isinstance(entries, list | tuple) or not entries:
            continue
        at = _text_field(entries)
        if at is None:
            continue
        texts = [_text_of(block) for block in content]
        style: TextStyle = "own"
        if len(texts) == len(entries) and all(map(_says, texts, entries)):
            style = "entries"
        elif len(texts) == 1 and (_says(texts[0], structured) or _says(texts[0], entries)):
            style = "json"
        rest = {name: item for name, item in structured.items() if name != key}
        layout = _Layout(key=key, at=at, listed=True, style=style, rest=rest, spaced=_is_spaced(texts))
        return layout, list(entries)
    return None


def _single_entry(content: Sequence[Any], structured: Mapping[str, Any]) -> tuple[_Layout, list[Any]] | None:
    """The structured content as one entry: the text of its only field, or the whole."""
    texts = [_text_of(block) for block in content]
    if len(structured) == 1:
        ((key, entry),) = structured.items()
        if isinstance(entry, str):
            style: TextStyle = "entries" if texts == [entry] else "json" if _all_say(texts, structured) else "own"
            return _Layout(key=key, at="", listed=False, style=style, rest={}, spaced=_is_spaced(texts)), [entry]
    at = _text_field([structured])
    if not at:
        return None
    style = "json" if _all_say(texts, structured) else "own"
    return _Layout(key="", at=at, listed=False, style=style, rest={}, spaced=_is_spaced(texts)), [dict(structured)]


def of_structured(passages: Sequence[Any]) -> dict[str, Any] | None:
    """The result again, of its passages; None if they have no structured content."""
    known = next((each[_OF] for each in passages if isinstance(each, Mapping) and isinstance(each.get(_OF), Mapping)), None)
    if known is None:
        return None
    layout = _Layout(**{**known, "rest": dict(known["rest"])})
    own = [each for each in passages if layout.style == "own" and not _is_entry(each)]
    entries = [each for each in passages if _is_entry(each) or layout.style != "own"]
    in_text = [layout.entry(each) for each in entries if _only(each) in ("", "text")]
    in_structured = [layout.entry(each) for each in entries if _only(each) in ("", "structured")]
    blocks = [_block(str(layout._text(entry))) for entry in in_text] if layout.style == "own" else layout.blocks(in_text)
    found: dict[str, Any] = {"content": [*map(_plain_block, own), *blocks]}
    structured = layout.structured(in_structured)
    return found if structured is None else {**found, "structuredContent": structured}


def _is_entry(passage: Any) -> bool:
    return isinstance(passage, Mapping) and _OF in passage


def _only(passage: Any) -> str:
    return str(passage.get("only", "")) if isinstance(passage, Mapping) else ""


def _text_field(entries: Sequence[Any]) -> str | None:
    """The field of each entry that holds its text, "" if the entries are texts; None if they have none."""
    if all(isinstance(entry, str) for entry in entries):
        return ""
    if not all(isinstance(entry, Mapping) for entry in entries):
        return None
    first = {name: item for name, item in entries[0].items() if isinstance(item, str)}
    named = [name for name in _TEXTS if name in first]
    return named[0] if named else max(first, key=lambda name: len(first[name]), default=None)


def _text_of(block: Any) -> str | None:
    return block.get("text") if isinstance(block, Mapping) and block.get("type", "text") == "text" else None


def _says(text: str | None, entry: Any) -> bool:
    """Whether a text says the same as an entry, as itself or as JSON."""
    if text is None:
        return False
    if isinstance(entry, str):
        return text == entry
    try:
        return bool(json.loads(text) == entry)
    except (ValueError, RecursionError):
        return False


def _all_say(texts: Sequence[str | None], structured: Any) -> bool:
    return len(texts) == 1 and _says(texts[0], structured)


def _is_spaced(texts: Sequence[str | None]) -> bool:
    return any("\n" in text for text in texts if text is not None)


def _json(value: Any, *, spaced: bool) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2 if spaced else None)


def _block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _plain_block(item: Any) -> Any:
    return _block(item) if isinstance(item, str) else item


__all__ = ["of_structured", "with_structured"]

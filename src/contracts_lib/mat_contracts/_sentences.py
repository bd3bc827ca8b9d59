"""Split texts into sentences: what a person would read as one statement. English only, by rules, without a model."""

from __future__ import annotations

import re
from typing import Final

_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\[\]]*)\]\(([^()\s]*)\)")
_EMPHASIS = re.compile(r"(\*\*|__|`)(?=\S)(.{1,200}?)(?<=\S)\1")
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s")
_BULLET = re.compile(r"^\s*(?:[-*+•–—▪◦]|\(?\d{1,3}[.)]|\(?[a-z][.)]|\(?[A-Z]\))\s+(?=\S)")
_RULE = re.compile(r"^[\s|:*_=-]*$")
_TERMINAL: Final = (".", "!", "?", ":", ";", "。")
_KEYED = re.compile(r"^\s*[A-Z][\w /()-]{0,30}:\s+\S")

_ABBREVIATIONS: Final = (
    "mr mrs ms dr prof st sr jr vs eg ie cf approx est dept fig sec art nr no nos vol pp ed al ca resp incl excl max min "
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun e.g i.e z.b ave blvd rd"
)
_ALWAYS: Final = frozenset(_ABBREVIATIONS.split())
"""Abbreviations, without their last dot, that never end a sentence."""
_FINAL_ABBREVIATIONS: Final = "etc inc ltd co corp a.m p.m am pm u.s u.k u.s.a e.u ph.d b.sc m.sc"
_SOMETIMES: Final = frozenset(_FINAL_ABBREVIATIONS.split())
"""Abbreviations that end a sentence if a capital follows, unless that begins a day, month or time zone."""
_CALENDAR = re.compile(
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?"
    r"|Oct|Nov|Dec|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday|[ECMP][SD]?T|UTC|GMT|CES?T)\b"
)
_END = re.compile(r"(?P<mark>[.!?…]+|。)(?P<close>[\"'”’)\]]*)(?P<space>\s+|$)")
_LAST_WORD = re.compile(r"(?:(?<![^\W_])|(?=[^\W\d_]\.))(?:[^\W\d_]\.){0,20}[^\W_]+$")
_WINDOW: Final = 40
"""Characters around a mark that decide whether it ends a sentence."""
_NUMBERED = re.compile(r"(?:^|\s)(?:No|Nos|Nr|Fig|Sec|Art|Vol)$", re.IGNORECASE)
_STARTS = re.compile(r"[\"'“‘(\[]*[^\Wa-z_]|[\"“‘(\[*•→]")


def plain_text(text: str) -> str:
    """A text without Markdown: code blocks are left out, links and emphasis are replaced by their words."""
    if "`" in text or "~~~" in text:
        text = _FENCE.sub("\n", text)
    if "](" in text:
        text = _LINK.sub(r"\1", text)
    return _EMPHASIS.sub(r"\2", text) if "**" in text or "__" in text or "`" in text else text


def units(text: str) -> tuple[tuple[str, bool], ...]:
    """The paragraphs, lines and list items of a text, each with whether it is a list item. Headings and rules are left out.

    A line continues in the next one if it has no terminal mark and the next begins with a lower-case letter or a digit.
    """
    found: list[tuple[str, bool]] = []
    is_open = False
    for line in plain_text(text).splitlines():
        bullet = _BULLET.match(line)
        content = " ".join((line[bullet.end() :] if bullet else line).strip().strip("|").split())
        if not content or _RULE.match(line) or _HEADING.match(line):
            is_open = False
            continue
        if is_open and not bullet and not _KEYED.match(line) and (content[0].islower() or content[0].isdigit()):
            found[-1] = (f"{found[-1][0]} {content}", found[-1][1])
        else:
            found.append((content, bullet is not None))
        is_open = not content.endswith(_TERMINAL)
    return tuple(found)


def sentences(text: str) -> tuple[str, ...]:
    """The sentences of one line or paragraph.

    A mark ends a sentence if white space and a capital, digit, quotation mark or bracket follow. It does not end one after an
    abbreviation or an initial, inside a number, an address or a file name (no white space follows), or between a day and its
    month ("3. May").
    """
    found, begin = [], 0
    for match in _END.finditer(text):
        if match["space"] and not _is_end(text, match):
            continue
        found.append(text[begin : match.end()].strip())
        begin = match.end()
    found.append(text[begin:].strip())
    return tuple(item for item in found if item)


def _is_end(text: str, match: re.Match[str]) -> bool:
    """Whether a matched mark ends a sentence of the text."""
    rest = text[match.end() : match.end() + _WINDOW]
    if not rest:
        return True
    if not (_STARTS.match(rest) or rest[0].isdigit()):
        return False
    if match["mark"] != "." or match["close"]:
        return True
    before = text[max(0, match.start() - _WINDOW) : match.start()]
    last = _LAST_WORD.search(before)
    word = last[0] if last else ""
    if rest[0].isdigit():
        return not _NUMBERED.search(before) and word.casefold() not in _ALWAYS
    if word.isdigit():
        return not _CALENDAR.match(rest)
    if len(word) == 1 and word.isupper() and word != "I":
        return False
    low = word.casefold()
    if low in _SOMETIMES:
        return not _CALENDAR.match(rest)
    # "No." is a sentence if nothing precedes it
    return low not in _ALWAYS or (low == "no" and not before[: last.start() if last else 0].strip())

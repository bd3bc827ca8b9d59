"""Text spans that operators move, cut or keep: tokens, sentences, list items, and what must stay as it is."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from mat.boundary.cost import changed_tokens, tokens


@dataclass(frozen=True, slots=True)
class TextSpan:
    """A part of a text, from `start` to `end` as in a slice."""

    start: int
    end: int

    def of(self, text: str) -> str:
        return text[self.start : self.end]

    def meets(self, other: TextSpan) -> bool:
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class Edit:
    """New text in the place of a span."""

    span: TextSpan
    new: str


def token_spans(text: str) -> list[TextSpan]:
    """The spans of the tokens that the cost rule counts."""
    found, position = [], 0
    for token in tokens(text):
        start = text.index(token, position)
        position = start + len(token)
        found.append(TextSpan(start, position))
    return found


def is_within_limit(before: str, after: str, limit: int) -> bool:
    """Whether at most `limit` tokens were changed, as the cost rule counts; in linear time for a fixed limit."""
    one, other = tokens(before), tokens(after)
    if abs(len(one) - len(other)) > limit:
        return False
    start = 0
    while start < len(one) and start < len(other) and one[start] == other[start]:
        start += 1
    one, other = one[start:], other[start:]
    far = limit + 1
    row = {index: index for index in range(min(len(other), limit) + 1)}
    for i, left in enumerate(one, 1):
        new: dict[int, int] = {}
        for j in range(max(0, i - limit), min(len(other), i + limit) + 1):
            best = min(row.get(j, far), new.get(j - 1, far)) + 1
            if j:
                best = min(best, row.get(j - 1, far) + (left != other[j - 1]))
            new[j] = min(best, far)
        if min(new.values(), default=far) >= far:
            return False
        row = new
    return row.get(len(other), far) <= limit


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The text with edits applied, whose spans must not overlap."""
    found, position = [], 0
    for edit in sorted(edits, key=lambda item: item.span.start):
        found += [text[position : edit.span.start], edit.new]
        position = edit.span.end
    return "".join([*found, text[position:]])


def edit_tokens(text: str, edit: Edit) -> int:
    """The largest cost of an edit. Its borders are moved outward to those of the tokens that it cuts."""
    start, end = edit.span.start, edit.span.end
    while (
        start > 0 and _is_word_char(text[start - 1]) and (_is_word_char(text[start : start + 1]) or _is_word_char(edit.new[:1]))
    ):
        start -= 1
    while end < len(text) and _is_word_char(text[end]) and (_is_word_char(text[end - 1 : end]) or _is_word_char(edit.new[-1:])):
        end += 1
    before, after = text[start : edit.span.start], text[edit.span.end : end]
    return changed_tokens(text[start:end], f"{before}{edit.new}{after}")


def _is_word_char(char: str) -> bool:
    return char.isalnum() or char == "_"


# -- protected spans -------------------------------------------------------------------------------------------------------

_QUOTED = re.compile(
    r"```.{0,4000}?```|`[^`\n]+`|\"[^\"\n]*\"|“[^“”\n]{0,400}”|„[^„“”\n]{0,400}[“”]|«[^«»\n]{0,400}»"
    r"|(?<!\w)'[^'\n]+'(?!\w)|‘[^‘’\n]{0,400}’(?!\w)"
    r"|<[^<>\n]+>|\{[^{}\n]*\}|(?:https?|ftp|file|mailto)://?[^\s<>\"]+|www\.[^\s<>\"]+",
    re.DOTALL,
)
_CHUNK = re.compile(r"\S+")
_MARKS: Final = frozenset("_/\\@#=|~^$€£¥%<>{}[]*+&")
_PUNCTUATION: Final = ".,;:!?()\"'“”‘’…"
_FIRST_PERSON: Final = re.compile(r"I(?:['’](?:m|ll|ve|d))?")
_STARTS: Final = frozenset(".!?:;\n•-*–>)(")


def quoted(text: str) -> list[TextSpan]:
    """Quotations, code, tags, placeholders and web addresses: spans that are not the writer's own words."""
    return [TextSpan(*match.span()) for match in _QUOTED.finditer(text)]


def protected(text: str, *, except_for: re.Pattern[str] | None = None) -> list[TextSpan]:
    """The spans that a change of wording must leave as they are, in order: `quoted`, names, ids, numbers, paths and addresses.

    Spans that `except_for` matches in full are left out, because the caller knows how to change them.
    """
    found = quoted(text)
    for match in _CHUNK.finditer(text):
        core = match[0].strip(_PUNCTUATION)
        if core and _is_protected(core, text, match.start()) and not (except_for is not None and except_for.fullmatch(core)):
            start = match.start() + match[0].index(core)
            found.append(TextSpan(start, start + len(core)))
    return sorted(found, key=lambda span: (span.start, span.end))


def _is_protected(core: str, text: str, start: int) -> bool:
    if any(char.isdigit() or char in _MARKS for char in core) or "." in core or any(char.isupper() for char in core[1:]):
        return True
    if not core[0].isupper() or _FIRST_PERSON.fullmatch(core):
        return False
    before = text[:start].rstrip(" \t\r\"'“‘") if start < 64 else text[start - 64 : start].rstrip(" \t\r\"'“‘")
    return bool(before) and before[-1] not in _STARTS


class Fence:
    """Spans that edits must not overlap."""

    __slots__ = ("_spans", "_starts")

    def __init__(self, spans: Sequence[TextSpan]) -> None:
        self._spans: list[TextSpan] = []
        for span in sorted(spans, key=lambda item: (item.start, item.end)):
            last = self._spans[-1] if self._spans else None
            if last is not None and span.start < last.end:
                self._spans[-1] = TextSpan(last.start, max(last.end, span.end))
            else:
                self._spans.append(span)
        self._starts = [span.start for span in self._spans]

    def meets(self, span: TextSpan) -> bool:
        position = bisect_right(self._starts, span.start)
        near = self._spans[max(0, position - 1) : position + 1]
        return any(span.meets(item) for item in near)


# -- sentences and items ---------------------------------------------------------------------------------------------------

_END = re.compile(r"(?<![.!?…])[.!?…]+[\"')\]”’]*(?=\s)|[。！？]+")
_SHORT: Final = frozenset({
    "mr", "mrs", "ms", "dr", "prof", "st", "no", "nr", "vs", "etc", "e.g", "i.e", "cf", "approx", "inc", "ltd", "co", "jr",
    "sr", "fig", "dept", "est", "p", "pp", "vol", "art", "sec", "tel", "ca",
})  # fmt: skip
_ITEM = re.compile(r"[ \t]*(?:[-*•–+]|\(?\d{1,3}[.)]|\(?[a-z][.)])[ \t]+(?=\S)")
_LINE = re.compile(r"[^\n]+")


def abbreviated(text: str, dot: int, start: int = 0) -> bool:
    """Whether the dot at this place ends an abbreviation; words before `start` do not count."""
    word = text[start:dot].rpartition(" ")[2].lower().lstrip("(")
    return word in _SHORT or len(word) == 1


def sentences(text: str, block: TextSpan) -> list[TextSpan]:
    """The sentences of a block, without the white space between them."""
    fence = Fence(quoted(text))
    found, position = [], block.start
    for match in _END.finditer(text, block.start, block.end):
        follows = text[match.end() : block.end].lstrip()[:1]
        short = match[0] == "." and abbreviated(text, match.start(), position)
        if short or follows.islower() or fence.meets(TextSpan(match.start(), match.start() + 1)):
            continue
        found.append(_strip(text, position, match.end()))
        position = match.end()
    found.append(_strip(text, position, block.end))
    return [span for span in found if span.start < span.end]


def _strip(text: str, start: int, end: int) -> TextSpan:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return TextSpan(start, end)


def lists(text: str) -> list[list[TextSpan]]:
    """The lists of a text, each as its items without bullets and numbers. An indented line continues the item above."""
    found: list[list[TextSpan]] = []
    open_list: list[TextSpan] = []
    indent = 0
    for line in _LINE.finditer(text):
        marker = _ITEM.match(text, line.start(), line.end())
        depth = len(line[0]) - len(line[0].lstrip())
        goes_on = bool(open_list) and line[0].strip() and text[open_list[-1].end : line.start()].count("\n") == 1
        if goes_on and depth > indent:
            open_list[-1] = TextSpan(open_list[-1].start, _strip(text, line.start(), line.end()).end)
        elif goes_on and depth == indent and marker is not None:
            open_list.append(_strip(text, marker.end(), line.end()))
        else:
            found.append(open_list)
            open_list = [_strip(text, marker.end(), line.end())] if marker is not None else []
            indent = depth
    found.append(open_list)
    return [items for items in found if len(items) > 1]


def paragraphs(text: str) -> list[TextSpan]:
    """The lines of a text that are not list items."""
    return [TextSpan(*line.span()) for line in _LINE.finditer(text) if _ITEM.match(line[0]) is None and line[0].strip()]


def entry_spans(text: str) -> list[TextSpan]:
    """The entries of a text: its lines if there are several, otherwise its sentences, otherwise its tokens."""
    lines = [TextSpan(*line.span()) for line in _LINE.finditer(text) if line[0].strip()]
    if len(lines) > 1:
        return lines
    found_sentences = sentences(text, TextSpan(0, len(text)))
    return found_sentences if len(found_sentences) > 1 else token_spans(text)


def reordered(text: str, *, limit: int) -> str:
    """The text with the items of a list, or the sentences of a paragraph, in another order; itself if no order is close enough.

    Takes the first of these orders that changes at most `limit` tokens: reversed, the last one first, the first one last, two
    neighbors swapped. No part is lost, and the numbers of a list keep their places.
    """
    groups = lists(text)
    groups += [found_sentences for block in paragraphs(text) if len(found_sentences := sentences(text, block)) > 1]
    for group in groups:
        contents = [span.of(text) for span in group]
        for order in _orders(len(group)):
            edits = [
                Edit(group[slot], contents[index]) for slot, index in enumerate(order) if contents[slot] != contents[index]
            ]
            if edits and is_within_limit(*_changed_stretch(text, edits), limit):
                return edited(text, edits)
    return text


def _changed_stretch(text: str, edits: Sequence[Edit]) -> tuple[str, str]:
    """The stretch from the first edit to the last, before and after the edits."""
    start, end = edits[0].span.start, edits[-1].span.end
    moved = [Edit(TextSpan(edit.span.start - start, edit.span.end - start), edit.new) for edit in edits]
    return text[start:end], edited(text[start:end], moved)


def _orders(count: int) -> Iterator[list[int]]:
    in_order = list(range(count))
    yield in_order[::-1]
    yield [in_order[-1], *in_order[:-1]]
    yield [*in_order[1:], in_order[0]]
    for one, other in pairwise(in_order):
        yield [*in_order[:one], other, one, *in_order[other + 1 :]]


def shortened(text: str, *, count: int, part: str) -> str:
    """A text without `count` tokens of its tail, head or middle; itself if it has no more tokens than that."""
    found = token_spans(text)
    if not 0 < count < len(found):
        return text
    if part == "head":
        return text[found[count].start :]
    if part == "middle":
        first = (len(found) - count + 1) // 2
        return f"{text[: found[first - 1].end]} {text[found[first + count].start :]}" if first + count < len(found) else text
    return text[: found[-count].start].rstrip()

"""Find an artifact, whole or damaged, in the arguments of a later call, and name the damage.

Everything is derived from two texts: the artifact as it was issued, and a string of the arguments. `Wanted` and `TextReading`
cache what is derived from each of them, because many artifacts are looked for in many texts. This module is in core because
the recorder and contract templates must use the same names for damage.

Source: seed 003, appendix J.
"""

from __future__ import annotations

import html
import json
import operator
import re
import unicodedata
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote, unquote_plus

Damage: TypeAlias = Literal["", "truncated", "wrapped", "reencoded", "reordered", "other"]

SHORTEST: Final = 8
"""Shorter artifacts are recognized only where a port declares that it consumes them, and only undamaged."""
_GRAM: Final = 4
_TOKEN_HEADER: Final = re.compile(r"eyJ[\w-]+\.(?=[\w-]+\.)", re.ASCII)
"""The first part of a JSON Web Token (RFC 7515, 7.1): it names the algorithm, as in every token of its issuer."""
_ALIKE: Final = 0.6
"""The share of an artifact's distinctive pieces that a text must contain to be a damaged copy; half of it in its own place."""
_CHANGES: Final = 3
"""In a random text, at least one in this many characters is of another kind than the one before it."""
_PROBED: Final = 8
"""Pieces of an artifact that are looked up in a text before all others."""
_PIECES: Final = 4_096
"""The most pieces that are kept of a long artifact, at equal distances."""
_MARKED: Final = 256
"""The most pieces of an artifact by which it is looked up in its own place."""
_ENDS: Final = 5
"""The pieces of four characters that lie in the first or the last eight of a text."""
_NESTED: Final = 3
"""How deeply nested formats are decoded: a URL in the query of a URL, JSON in a form."""
_BETWEEN: Final = "\x01"
_VALUE: Final = "\x02"
"""Marks the beginning of a value that a format delimits."""
_REMEMBERED: Final = 256
"""Readings, and artifacts, that are remembered: the executions of a search meet the same texts again."""
_REMEMBERED_CHARS: Final = 1_024
"""Characters of the longest of these."""
_START: Final = 4
"""Characters at the beginning of an artifact that must be together; otherwise a blank between two words would count as a line
break inside an artifact."""

_PIECE: Final = re.compile(r"[^&;,?\s\x02]+")
_BLANK: Final = re.compile(r"[\s\u00ad\u200b-\u200d\u2060\ufeff]+")
_ESCAPED: Final = re.compile(r"\\(?:([\"\\/bfnrt])|u([0-9a-fA-F]{4}))")
_CONTROL: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_TAG: Final = re.compile(r"<[A-Za-z/!]")
_ROW: Final = re.compile(r'(?:^|[,;\t\n])"[^"]*""(?:[^"]|"")*"(?:$|[,;\t\r\n])')
"""A field of a CSV file that holds quotes, which are doubled there (RFC 4180)."""
_WORD: Final = re.compile(r"[^\s\"'<>(){}\[\]]+")
_PARAMETER: Final = re.compile(r"[?&;#]")
_CODED: Final = re.compile(r"={0,2}[A-Za-z0-9+/_\-]{12,}")
"""A word in base64 or hexadecimal, read from its end."""
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^/?#\s]*")
_AFTER_CUT: Final = re.compile(r"(?:$|[\s<>,;&)\]}/?#%:=]|[\"'](?![A-Za-z0-9])|\.(?:\s|$))")
_BEFORE_CUT: Final = re.compile(r"(?:$|[\s\x02<>,;&(\[{=:\"'])")
_ELIDED: Final = re.compile(r"\.{2,}|\u2026|\*{2,}|[\[(<](?:\.{2,}|\u2026|truncated|snip|cut)[^\])>\n]{0,40}[\])>]")
"""Marks of omission."""
_PARTS: Final = frozenset("&;,#? ")
"""Separators between complete parts of a text."""
_EDGES: Final = frozenset(("", _BETWEEN, _VALUE, *" \"'=&;"))
"""What may be next to a value that begins or ends with a blank."""
_BORDERS: Final = frozenset("-_.:/=%~+") | _PARTS
_BASE64: Final = re.compile(r"(?=[^0-9]*[0-9])(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[A-Za-z0-9+/_\-.]{16,}={0,2}")
_CASES: Final = re.compile(r"[a-z][A-Z]")
_GLUED: Final = re.compile(r"[A-Za-z0-9._~+%\-!*]{1,7}")
_SCHEME: Final = re.compile(r"(?i:bearer|basic|digest|token|api-?key|dpop|signature|hmac) (?=\S+\Z)")
_BEFORE: Final = frozenset(("", _VALUE, *" \"'<=,;&?#|([{:/\\"))
_AFTER: Final = frozenset(("", *"\"'>,;&?#|)]}:/\\"))
"""What may touch an artifact in a place where only the artifact belongs."""


# -- the texts in a text ------------------------------------------------------------------------------------------------


def readings(text: str) -> tuple[str, ...]:
    """The decoded parts of a text in a known format: a URL or form, JSON, HTML, basic authentication, nested in each other.

    A part that the format delimits as a value begins with the character _VALUE. A decoded word of a URL or form does not, so
    if one begins with an artifact, the whole word is the artifact in another encoding.
    """
    return tuple(dict.fromkeys(item for item in _decoded_parts(text, _NESTED) if item != text))


def _decoded_parts(text: str, depth: int) -> Iterator[str]:
    if depth == 0:
        return
    if "%" in text or "+" in text:
        for word in _WORD.findall(text):
            if "%" in word or "+" in word:
                yield from _decoded_word(word, depth)
    leaves = _json_strings(text)
    if leaves is not None:
        for leaf in leaves:
            yield _VALUE + leaf
            yield from _decoded_parts(leaf, depth - 1)
    elif "\\" in text and ("{" in text or "[" in text or text[0] == '"'):
        yield _VALUE + _unescaped(text)
    if "&" in text and _TAG.search(text):
        yield _VALUE + html.unescape(text)
    if '""' in text and _ROW.search(text):
        yield _VALUE + text.replace('""', '"')
    if text[:6].lower() == "basic ":
        with suppress(ValueError):
            yield _VALUE + b64decode(text[6:], validate=True).decode()


def _decoded_word(word: str, depth: int) -> Iterator[str]:
    """Decode a run of characters without blanks and quotes, such as a URL, a form or a cookie."""
    yield unquote(word)
    if "+" in word:
        yield unquote_plus(word)
    for parameter in _PARAMETER.split(word) if "=" in word else ():
        value = parameter.partition("=")[2]
        for inner in dict.fromkeys((unquote_plus(value), unquote(value))):
            if inner != value:
                yield _VALUE + inner
                yield from _decoded_parts(inner, depth - 1)


def _json_strings(text: str) -> list[str] | None:
    """The strings in a JSON document; None if the text is not JSON."""
    if text[:1] not in "{[" or not text or '"' not in text:
        return None
    try:
        return list(_strings_in(json.loads(text)))
    except (ValueError, RecursionError):
        return None


def _strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _strings_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings_in(item)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[2], 16)) if found[2] else _CONTROL.get(found[1], found[1]), text)


class TextReading:
    """A text in the arguments of a call, and what is derived from it, computed once for all artifacts.

    header: the text is the value of a header field: blanks around it mean nothing (RFC 9110, 5.5), and it may be quoted.
    address: the text is only a URL, so a blank after it is part of it.
    """

    def __init__(self, text: str, *, header: bool = False, address: bool = False) -> None:
        self.text = text.strip() if header else text
        self.header, self.address = header, address

    @cached_property
    def decoded(self) -> tuple[str, ...]:
        return readings(self.text)

    @cached_property
    def document(self) -> bool:
        """Whether the text is JSON; its quotes are then not part of a value."""
        return _json_strings(self.text) is not None

    @cached_property
    def views(self) -> tuple[str, ...]:
        """The text and its decoded parts; for JSON, only the decoded parts."""
        return self.decoded if self.document and self.decoded else (self.text, *self.decoded)

    @cached_property
    def joined(self) -> str:
        """All views in one text, for a quick search."""
        return _BETWEEN.join(self.views)

    @cached_property
    def everything(self) -> str:
        """The text and all its decoded parts, in one text."""
        return _BETWEEN.join((self.text, *self.decoded))

    @cached_property
    def packed(self) -> str:
        """All views without blanks."""
        return _BLANK.sub("", self.joined)

    @cached_property
    def normal(self) -> str:
        return _BETWEEN.join(dict.fromkeys(normal(view) for view in self.views))

    @cached_property
    def base64(self) -> str:
        """All views with the characters of URL-safe base64 replaced by those of standard base64."""
        return self.joined.translate(_ALPHABET)

    @cached_property
    def coded(self) -> tuple[str, ...]:
        """The last words, decoded from base64 and from hexadecimal."""
        return tuple(dict.fromkeys(item for view in self.views for item in _decoded_last_word(view)))

    def encodes(self, artifact: str) -> bool:
        """Whether the text, or a value in it, is base64 or hexadecimal of an artifact, or of a text that holds it whole."""
        return any(whole(artifact, item) for item in self.coded)

    @cached_property
    def elided(self) -> bool:
        return _ELIDED.search(self.text) is not None

    @cached_property
    def held(self) -> frozenset[str]:
        """The four-character substrings of all views and decoded words."""
        return grams(_BETWEEN.join(dict.fromkeys((self.joined, self.normal, *self.coded, self.text))))


_ALPHABET: Final = str.maketrans("-_", "+/")


def _decoded_last_word(text: str) -> tuple[str, ...]:
    found, last = [], _CODED.match(text[::-1])
    if last is not None:
        word = last[0][::-1].rstrip("=").translate(_ALPHABET)
        with suppress(ValueError):
            found.append(b64decode(word + "=" * (-len(word) % 4)).decode())
        with suppress(ValueError):
            found.append(bytes.fromhex(word).decode())
    return tuple(item for item in found if len(item) >= SHORTEST and item.isprintable())


@lru_cache(maxsize=_REMEMBERED)
def _remembered_reading(text: str, header: bool, address: bool) -> TextReading:
    return TextReading(text, header=header, address=address)


def reading_of(text: str, *, header: bool = False, address: bool = False) -> TextReading:
    """A TextReading that may have been read before."""
    read = _remembered_reading if type(text) is str and len(text) <= _REMEMBERED_CHARS else _remembered_reading.__wrapped__
    return read(text, header, address)


class Wanted:
    """An artifact as it was issued, and the pieces by which it is recognized."""

    def __init__(self, text: str) -> None:
        self.text = text
        own = distinctive(text)
        substrings = _grams(own)
        code = _code_pieces(own)
        if len(code) < _GRAM:
            code = _code_pieces(text)
        self.coded = len(code) >= _GRAM
        """Whether it mixes digits and letters, as keys and signatures do, instead of words and numbers that are common."""
        self.own_size = len(own)
        """The length of its distinctive part."""
        self.pieces = _sampled(code if self.coded else substrings)
        """Its distinctive pieces."""
        base = len(text) - len(own)
        self.head = text[: max(SHORTEST, min(base + _GRAM, (len(text) + 1) // 2))]
        self.tail = text[-max(SHORTEST, len(text) // 2) :]
        self._ends = (_grams(self.head)[-1], _grams(self.tail)[0]) if text else ("", "")
        ordered = sorted(self.pieces)
        self._probe = tuple(ordered[:: 1 + len(ordered) // _PROBED])

    @cached_property
    def marks(self) -> frozenset[str]:
        """Substrings of which any text contains at least one if it holds the artifact, or if a closer look is worthwhile.

        Except for texts with a mark of omission, which `start` finds.
        """
        return frozenset((*self._ends, *self._probe, *_grams(self.opened[:_GRAM])))

    @cached_property
    def whole_marks(self) -> frozenset[str]:
        """Substrings all of which a text contains if it holds the artifact whole."""
        return frozenset((*self._ends, *self._probe))

    @property
    def start(self) -> str:
        """How the artifact begins, which a text with a mark of omission repeats."""
        return self.text[:_GRAM].casefold()

    @cached_property
    def own_marks(self) -> frozenset[str]:
        """Substrings of which a text contains at least one if it may be the artifact, damaged, in the artifact's own place.

        Of a long artifact, `_MARKED` of them at equal distances, and its ends.
        """
        found = _grams(self.text[len(self.text) - self.own_size :])
        ends = (found[:_ENDS], found[-_ENDS:], _grams(self.opened)[:_MARKED])
        return frozenset((*found[:: 1 + len(found) // _MARKED], *(gram for end in ends for gram in end), *self._ends))

    @property
    def base(self) -> str:
        """What it has in common with others of its kind, without the question mark of a URL."""
        return self.text[: len(self.text) - self.own_size].rstrip("?")

    @cached_property
    def normal(self) -> str:
        return normal(self.text)

    @cached_property
    def bare(self) -> str:
        """The artifact without blanks."""
        return _BLANK.sub("", self.text)

    @cached_property
    def opened(self) -> str:
        """The artifact decoded from base64, in which cursors and states are often written; "" if that is no text."""
        return next((item for item in _decoded_last_word(self.text) if len(item) >= 2 * SHORTEST), "")

    @property
    def phrase(self) -> bool:
        """Whether it consists of words. A changed phrase is damaged; a changed number or link is another number or link."""
        return not self.coded and not _URL.match(self.text) and not any(char.isdigit() for char in self.text)

    def likeness(self, reading: TextReading) -> float:
        """The share of its distinctive pieces that a text contains, between 0 and 1, ignoring case."""
        return share(self.pieces, reading.held)

    def perhaps(self, reading: TextReading) -> bool:
        """Whether a closer look is worthwhile: the text contains half of the artifact, its beginning, or its end."""
        held = reading.held
        first, last = self._ends
        if (first in held and self.head in reading.joined) or (last in held and self.tail in reading.joined):
            return True
        if reading.elided and self.text[:_GRAM] in reading.joined:
            return True
        if sum([piece in held for piece in self._probe]) * 4 >= len(self._probe) and 2 * self.likeness(reading) >= 1:
            return True
        return self.opened != "" and self.opened in reading.joined

    def anywhere(self, reading: TextReading) -> bool:
        """Whether the text, or a decoded part of it, contains the artifact, alone or with further characters attached."""
        return self.text in reading.everything


@lru_cache(maxsize=_REMEMBERED)
def _remembered_artifact(text: str) -> Wanted:
    return Wanted(text)


def wanted_of(text: str) -> Wanted:
    """A Wanted that may have been made before."""
    return _remembered_artifact(text) if type(text) is str and len(text) <= _REMEMBERED_CHARS else Wanted(text)


def _code_pieces(text: str) -> list[str]:
    """Pieces without separators that mix digits and letters, or cases, as words and numbers do not."""
    found = [text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1)]
    return [piece.casefold() for piece in found if piece.isalnum() and _mixed(piece)]


def _mixed(piece: str) -> bool:
    return not (piece.isalpha() or piece.isdigit()) or _CASES.search(piece) is not None


def _looks_random(text: str) -> bool:
    """Whether a text mixes digits and letters of both cases throughout, like base64 and unlike words."""
    kinds = [(char.isdigit(), char.isupper()) for char in text if _alphanumeric(char)]
    changes = sum(first != second for first, second in pairwise(kinds))
    return len(kinds) >= SHORTEST and len(set(kinds)) == 3 and _CHANGES * changes >= len(kinds)


def _sampled(found: list[str]) -> frozenset[str]:
    return frozenset(found[:: 1 + len(found) // _PIECES])


# -- whole --------------------------------------------------------------------------------------------------------------


def whole(artifact: str, text: str, read: Sequence[str] | None = None) -> bool:
    """Whether a text contains an artifact byte by byte: as it is, or encoded as the surrounding format requires.

    Inside a URL it may be percent-encoded, inside JSON escaped, in basic authentication encoded in base64. It is not whole if
    the text is only the artifact in another encoding, because its reader gets other bytes, or if further letters or digits
    follow. `read`: the readings of the text, if they are known.
    """
    reading = TextReading(text)
    if read is not None:
        reading.__dict__["decoded"] = tuple(read)
    return _contains(artifact, reading, exact=False)


def holds(wanted: Wanted, reading: TextReading, *, exact: bool = False) -> bool:
    """Like `whole`, for a TextReading. exact: the text is where an artifact belongs, so only separators may touch it."""
    return wanted.anywhere(reading) and _contains(wanted.text, reading, exact=exact)


def _contains(artifact: str, reading: TextReading, *, exact: bool) -> bool:
    text = reading.text
    if artifact in text and not (reading.document and '"' in (artifact[0], artifact[-1])):
        if artifact == text:
            return True
        if text.strip() == artifact:
            return False
        if reading.address and _URL.match(artifact) and not _continued(artifact, text):
            return False
        if not _glued(artifact, text) and _occurs(artifact, text, exact=exact, quoted=reading.header):
            return True
    return any(
        artifact in item and not item.startswith(artifact) and _occurs(artifact, item, exact=exact) for item in reading.decoded
    )


def _continued(artifact: str, text: str) -> bool:
    """Whether a URL that contains another one continues it, or holds it as a parameter; no other text may touch a URL."""
    before, _, after = text.partition(artifact)
    if before:
        return _URL.match(before) is not None
    return after[0] in "/?&#"


def _glued(artifact: str, text: str) -> bool:
    """Whether a text is an artifact, perhaps after the scheme of an authorization, followed by a few more characters."""
    found = _SCHEME.match(text)
    start = 0 if text.startswith(artifact) or found is None else found.end()
    return text.startswith(artifact, start) and _GLUED.fullmatch(text, start + len(artifact)) is not None


def _occurs(artifact: str, text: str, *, exact: bool, quoted: bool = False) -> bool:
    """Whether a text contains an artifact that no other text touches. quoted: quotes around it belong to the format."""
    start = text.find(artifact)
    while start >= 0:
        end = start + len(artifact)
        before, after = text[start - 1 : start] if start else "", text[end : end + 1]
        if not exact:
            if not (_alphanumeric(before) or _alphanumeric(after)):
                return True
        elif before in _BEFORE and after in _AFTER - _continuations(artifact) and (quoted or start != 1 or before not in "\"'"):
            return True
        start = text.find(artifact, end)
    return False


def _continuations(artifact: str) -> frozenset[str]:
    """The characters after an artifact that make it the beginning of a different URL."""
    if "://" not in artifact:
        return frozenset()
    return frozenset("&?") if "?" in artifact else frozenset("&")


def _alphanumeric(char: str) -> bool:
    return char.isascii() and char.isalnum()


# -- damaged ------------------------------------------------------------------------------------------------------------


def damage(artifact: str, text: str, *, sure: bool = False) -> Damage | None:
    """The kind of damage to an artifact in a text that does not contain it whole; None if the text is unrelated.

    sure: the text is where this artifact belongs, so a weak resemblance is enough.
    """
    return damage_in(Wanted(artifact), TextReading(text), sure=sure)


def damage_in(wanted: Wanted, reading: TextReading, *, sure: bool = False) -> Damage | None:
    """Like `damage`, for a Wanted and a TextReading."""
    artifact = wanted.text
    if not reading.text or not artifact:
        return None
    if len(artifact) < SHORTEST:
        return "other" if sure and likeness(artifact, reading.text) >= _ALIKE / 2 else None
    if wanted.anywhere(reading) and _has_attached(artifact, reading):
        return _attached_damage(wanted, reading, sure=sure)
    if wanted.bare in reading.packed and _has_blanks_inside(artifact, reading.joined):
        return "wrapped"
    if _reencoded(wanted, reading):
        return "reencoded"
    if reading.elided and any(_elided(wanted, view, sure=sure) for view in reading.views):
        return "other"
    if _reordered(artifact, reading):
        return "reordered"
    if (
        sure
        and artifact.startswith(reading.text)
        and len(reading.text) >= max(2 * SHORTEST, len(artifact) - wanted.own_size - 1)
    ):
        return "truncated"
    if (sure or wanted.coded or wanted.phrase) and _truncated(wanted, reading):
        return "truncated"
    if artifact[-1] == "=" and _contains_normal(wanted.normal.rstrip("="), reading.normal):  # the padding is lost
        return "reencoded"
    if sure:
        return "other" if _resembles(wanted, reading) else None
    if not (wanted.coded or wanted.phrase) or wanted.own_size < 2 * SHORTEST:
        return None
    return "other" if wanted.likeness(reading) >= _ALIKE or _exchanged(artifact, reading) else None


def _exchanged(artifact: str, reading: TextReading) -> bool:
    """Whether a value is the artifact with two characters exchanged, which leaves few pieces of a short one alike."""
    for view in reading.views:
        value = view.removeprefix(_VALUE)[-len(artifact) :]
        if sum(map(operator.ne, value, artifact)) == 2 and sorted(value) == sorted(artifact):
            return True
    return False


def _has_attached(artifact: str, reading: TextReading) -> bool:
    if reading.text.startswith(artifact):
        return True
    return any(artifact in view and not view.startswith(artifact) for view in reading.views)


def _attached_damage(wanted: Wanted, reading: TextReading, *, sure: bool) -> Damage | None:
    """The damage if further characters touch the artifact. None for a number with more digits, which is another number."""
    if reading.text.strip() == wanted.text:
        return "wrapped" if "\n" in reading.text else "other"
    more = reading.text.removeprefix(wanted.text)
    more_of_it = _GLUED.fullmatch(more) is not None or reading.address
    return "other" if wanted.coded or sure or (more_of_it and not more[0].isalnum()) else None


def _resembles(wanted: Wanted, reading: TextReading) -> bool:
    """Whether a text in an artifact's place resembles it: it shares a few pieces, or its beginning or end."""
    own = distinctive(wanted.text)
    ends = (own[:SHORTEST], own[-SHORTEST:])
    if wanted.own_size > SHORTEST and any(end in reading.joined for end in ends):
        return True
    return share(grams(own), reading.held) >= _ALIKE / 2


def _has_blanks_inside(artifact: str, view: str) -> bool:
    """Whether there are blanks inside the artifact, not only before it."""
    return artifact not in view and artifact[:_START] in view


def _reencoded(wanted: Wanted, reading: TextReading) -> bool:
    """Whether a text holds an artifact in another encoding: percent, HTML, JSON, Unicode, base64, hexadecimal."""
    artifact = wanted.text
    if artifact in reading.joined or any(artifact in item for item in reading.coded):
        return True
    if len(wanted.normal) >= SHORTEST and _contains_normal(wanted.normal, reading.normal):
        return True
    if wanted.opened and wanted.opened in reading.joined:
        return True
    bare = artifact.rstrip("=")
    return bool(_BASE64.fullmatch(artifact)) and bare.translate(_ALPHABET) in reading.base64 and bare not in reading.joined


def normal(text: str) -> str:
    """A text without percent, HTML, JSON and Unicode encodings, even nested ones; a plus sign becomes a blank."""
    for _ in range(4):
        decoded = html.unescape(unquote(text))
        if "\\" in decoded:
            decoded = _unescaped(decoded)
        if decoded == text:
            break
        text = decoded
    return unicodedata.normalize("NFKC", text).replace("+", " ")


def _contains_normal(artifact: str, text: str) -> bool:
    """Whether a text contains an artifact; both are given in their `normal` forms.

    A blank at the artifact's beginning or end may have been a plus sign, so a mere blank between two words does not match it.
    """
    start = text.find(artifact) if artifact else -1
    while start >= 0:
        end = start + len(artifact)
        before, after = text[start - 1 : start] if start else "", text[end : end + 1]
        if (artifact[0] != " " or before in _EDGES) and (artifact[-1] != " " or after in _EDGES):
            return True
        start = text.find(artifact, start + 1)
    return False


def _reordered(artifact: str, reading: TextReading) -> bool:
    """Whether a text consists of exactly the separated parts of an artifact, in another order."""
    base, mark, query = artifact.partition("?")
    if not mark:
        base, query = "", artifact
    parts = sorted(_PIECE.findall(query))
    held = reading.joined
    if len(parts) < (2 if mark else 3) or base + mark not in held or not all(part in held for part in parts):
        return False
    if mark:
        return any(_has_query(base + mark, parts, len(query), view) for view in reading.views)
    return any(_has_in_a_row(parts, view) for view in reading.views)


def _has_query(base: str, parts: list[str], size: int, text: str) -> bool:
    """Whether a text holds a URL with this base and a query of these parts and this size, perhaps before a full stop."""
    start = text.find(base)
    while start >= 0:
        found = _WORD.match(text, start + len(base), start + len(base) + size + SHORTEST)
        query = "" if found is None else found[0]
        if parts in (sorted(_PIECE.findall(query)), sorted(_PIECE.findall(query.rstrip(".,;:!")))):
            return True
        start = text.find(base, start + 1)
    return False


def _has_in_a_row(parts: list[str], text: str) -> bool:
    """Whether a text holds these parts, in any order, with nothing else between them."""
    held = [part.strip("\"'<>()[]{}") for part in _PIECE.findall(text)]
    known = frozenset(parts)
    at = [index for index, part in enumerate(held) if part in known]
    return bool(at) and sorted(held[at[0] : at[-1] + 1]) == parts


def _truncated(wanted: Wanted, reading: TextReading) -> bool:
    """Whether a text ends or begins in the middle of an artifact and contains enough of it to identify it."""
    if wanted.head in reading.joined and any(_ends_within(wanted, view) for view in reading.views):
        return True
    if wanted.tail not in reading.joined:
        return False
    artifact = wanted.text[::-1]
    return any(
        2 * at >= len(artifact) and _BEFORE_CUT.match(back, end)
        for back in (view[::-1] for view in reading.views)
        for at, end in _beginnings(artifact, wanted.tail[::-1], back)
    )


def _ends_within(wanted: Wanted, text: str) -> bool:
    """Whether a text breaks off within an artifact. If the artifact's end follows, its middle is missing: not a truncation."""
    artifact = wanted.text
    for at, end in _beginnings(artifact, wanted.head, text):
        if not _AFTER_CUT.match(text, end) or _continues_decoded(artifact[at : at + 12], text[end : end + 1]):
            continue
        if _identifies(wanted, at) and text.find(artifact[-SHORTEST:], end) < 0:
            return True
    return False


def _continues_decoded(code: str, char: str) -> bool:
    """Whether a character continues an artifact in another encoding; `code` is how the artifact continues."""
    return char != "" and char in (unquote_plus(code)[:1], unquote(html.unescape(code))[:1])


def _elided(wanted: Wanted, text: str, *, sure: bool) -> bool:
    """Whether a text has the beginning of an artifact, a mark of omission, and enough of the rest to identify it."""
    artifact, own_size = wanted.text, wanted.own_size
    for at, end in _beginnings(artifact, artifact[: max(_GRAM, min(SHORTEST, len(artifact) // 4))], text):
        mark = _ELIDED.match(text, end)
        if mark is None:
            continue
        if _identifies(wanted, at):
            return True
        found = _WORD.match(text, mark.end())
        rest = found[0].rstrip(".,;:!?") if found else ""
        inside = at - (len(artifact) - own_size) + len(rest)
        if len(rest) >= _GRAM and artifact.endswith(rest) and (sure or 2 * inside >= own_size):
            return True
    return False


def _beginnings(artifact: str, head: str, text: str) -> Iterator[tuple[int, int]]:
    """(length, end in the text) of each beginning of an artifact in a text; `head` is the shortest that counts."""
    start = text.find(head)
    while start >= 0:
        least, most = len(head), min(len(artifact) - 1, len(text) - start)
        while least < most:
            middle = (least + most + 1) // 2
            least, most = (middle, most) if text.startswith(artifact[:middle], start) else (least, middle - 1)
        yield least, start + least
        start = text.find(head, start + 1 + least - len(head))


def _identifies(wanted: Wanted, length: int) -> bool:
    """Whether the first `length` characters identify an artifact. If they end between two parts, or in a number, more of them
    are needed, because they may be another text.
    """
    artifact, own_size = wanted.text, wanted.own_size
    inside = length - (len(artifact) - own_size)
    sides = {artifact[length - 1], artifact[length]}
    if sides & _PARTS or _in_number(artifact, length):
        part = artifact[length - inside : length]
        return 3 * inside >= 2 * own_size or (3 * inside >= own_size and len(_code_pieces(part)) >= _GRAM)
    if _URL.match(artifact):
        run = next((count for count in range(length) if artifact[length - 1 - count] in _BORDERS), length)
        return inside >= _GRAM if "?" in artifact else 2 * length >= len(artifact) and run >= SHORTEST
    if wanted.coded and (_code_pieces(artifact[:length]) or _looks_random(artifact[:length])):
        return not sides & _BORDERS or 3 * length >= len(artifact)
    return 3 * length >= 2 * len(artifact)


def _in_number(artifact: str, length: int) -> bool:
    """Whether the place after `length` characters is between two digits of a number."""
    first = last = length
    while first and _alphanumeric(artifact[first - 1]):
        first -= 1
    while last < len(artifact) and _alphanumeric(artifact[last]):
        last += 1
    return first < length < last and artifact[first:last].isdigit()


# -- likeness -----------------------------------------------------------------------------------------------------------


def distinctive(artifact: str) -> str:
    """What distinguishes an artifact from others of its kind.

    Of a JSON Web Token that is what follows its header; of a URL its query, or else what follows the host.
    """
    header = _TOKEN_HEADER.match(artifact)
    if header is not None:
        return artifact[header.end() :]
    found = _URL.match(artifact)
    if found is None:
        return artifact
    rest = artifact[found.end() :]
    return rest.partition("?")[2] or rest


def likeness(artifact: str, text: str) -> float:
    """The share of the four-character substrings of an artifact's distinctive part that a text contains, ignoring case."""
    return share(grams(distinctive(artifact)), grams(text))


def grams(text: str) -> frozenset[str]:
    """The four-character substrings of a text, in lower case; a shorter text is its only one."""
    return frozenset(_grams(text))


def _grams(text: str) -> list[str]:
    folded = text.casefold()
    size = min(_GRAM, len(folded))
    return [folded[at : at + size] for at in range(len(folded) - size + 1)] if size else []


def share(wanted: frozenset[str], held: frozenset[str]) -> float:
    return len(wanted & held) / len(wanted) if wanted else 0.0

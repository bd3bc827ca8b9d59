"""Find an artifact, whole or damaged, in what an agent passes on, and name the damage (seed 003, appendix J).

Everything is derived from two texts: the artifact as it was issued, and a string of the arguments of a later call. `Wanted`
and `TextReading` cache what is derived from each of them, because many artifacts are looked for in many texts. This is here
because the recorder and contract templates must use the same names for damage.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote, unquote_plus

Damage: TypeAlias = Literal["", "truncated", "wrapped", "reencoded", "reordered", "other"]

SHORTEST: Final = 8
"""Shorter artifacts are recognised only where a port says that it consumes them, and only as a whole."""
_GRAM: Final = 4
_TOKEN_HEADER: Final = re.compile(r"eyJ[\w-]+\.(?=[\w-]+\.)", re.ASCII)
"""The first part of a JSON Web Token (RFC 7515, 7.1): it names the algorithm, as in every token of its issuer."""
_ALIKE: Final = 0.6
"""The share of an artifact's four-character pieces that a text must contain to count as a damaged copy of it."""
_CHANGES: Final = 3
"""In a random text, at least one of this many characters is of another kind than the one before it."""
_PROBED: Final = 8
"""Pieces of an artifact that are looked up first, in each text."""
_PIECES: Final = 4_096
"""Pieces that a long artifact is known by at most, taken at equal distances."""
_NESTED: Final = 3
"""Formats inside each other that are read: a URL in the query of a URL, JSON in a form."""
_BETWEEN: Final = "\x01"
_VALUE: Final = "\x02"
"""Marks the beginning of a value that a format delimits."""
_START: Final = 4
"""Characters at the beginning of an artifact that no line break separates: a blank between two words is not one."""

_PIECE: Final = re.compile(r"[^&;,?\s\x02]+")
_BLANK: Final = re.compile(r"[\s\u00ad\u200b-\u200d\u2060\ufeff]+")
_ESCAPED: Final = re.compile(r"\\(?:([\"\\/bfnrt])|u([0-9a-fA-F]{4}))")
_CONTROL: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_TAG: Final = re.compile(r"<[A-Za-z/!]")
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
"""What is next to a value that begins or ends with a blank."""
_BORDERS: Final = frozenset("-_.:/=%~+") | _PARTS
_BASE64: Final = re.compile(r"(?=[^0-9]*[0-9])(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[A-Za-z0-9+/_\-.]{16,}={0,2}")
_CASES: Final = re.compile(r"[a-z][A-Z]")
_GLUED: Final = re.compile(r"[A-Za-z0-9._~+%\-!*]{1,7}")
_SCHEME: Final = re.compile(r"(?i:bearer|basic|digest|token|api-?key|dpop|signature|hmac) (?=\S+\Z)")
_BEFORE: Final = frozenset(("", _VALUE, *" \"'<=,;&?#|([{:/\\"))
_AFTER: Final = frozenset(("", *"\"'>,;&?#|)]}:/\\"))
"""What may touch an artifact in a place where only the artifact belongs."""


# -- what a text says ---------------------------------------------------------------------------------------------------


def readings(text: str) -> tuple[str, ...]:
    """Decode the parts of a text by the format it is written in: a URL or form, JSON, HTML, basic
    authentication, and such formats inside each other.

    What a format holds as a value of its own begins with a mark here; a word of a URL or form does not, so that one that
    begins with an artifact can be told: it is the artifact in another encoding.
    """
    return tuple(dict.fromkeys(item for item in _read(text, _NESTED) if item != text))


def _read(text: str, depth: int) -> Iterator[str]:
    if depth == 0:
        return
    if "%" in text or "+" in text:
        for word in _WORD.findall(text):
            if "%" in word or "+" in word:
                yield from _read_word(word, depth)
    leaves = _leaves(text)
    if leaves is not None:
        for leaf in leaves:
            yield _VALUE + leaf
            yield from _read(leaf, depth - 1)
    elif "\\" in text and ("{" in text or "[" in text or text[0] == '"'):
        yield _VALUE + _unescaped(text)
    if "&" in text and _TAG.search(text):
        yield _VALUE + html.unescape(text)
    if text[:6].lower() == "basic ":
        with suppress(ValueError):
            yield _VALUE + b64decode(text[6:], validate=True).decode()


def _read_word(word: str, depth: int) -> Iterator[str]:
    """Decode a run of characters without blanks and quotes, such as a URL, a form or a cookie."""
    yield unquote(word)
    if "+" in word:
        yield unquote_plus(word)
    for parameter in _PARAMETER.split(word) if "=" in word else ():
        value = parameter.partition("=")[2]
        for inner in dict.fromkeys((unquote_plus(value), unquote(value))):
            if inner != value:
                yield _VALUE + inner
                yield from _read(inner, depth - 1)


def _leaves(text: str) -> list[str] | None:
    """The strings in a JSON document; None if the text is not JSON."""
    if text[:1] not in "{[" or not text or '"' not in text:
        return None
    try:
        return list(_texts(json.loads(text)))
    except (ValueError, RecursionError):
        return None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[2], 16)) if found[2] else _CONTROL.get(found[1], found[1]), text)


class TextReading:
    """A text in the arguments of a call, with what is derived from it once for all artifacts.

    header: it is the value of a header field, around which blanks mean nothing (RFC 9110, 5.5) and which may be quoted.
    address: it is a URL and nothing else, so a blank behind one is part of it.
    """

    def __init__(self, text: str, *, header: bool = False, address: bool = False) -> None:
        self.text = text.strip() if header else text
        self.header, self.address = header, address

    @cached_property
    def read(self) -> tuple[str, ...]:
        return readings(self.text)

    @cached_property
    def document(self) -> bool:
        """Whether it is JSON, whose own quotes belong to no value."""
        return _leaves(self.text) is not None

    @cached_property
    def views(self) -> tuple[str, ...]:
        """The text and its decoded parts; of JSON, only the decoded parts."""
        return self.read if self.document and self.read else (self.text, *self.read)

    @cached_property
    def said(self) -> str:
        """All views in one text, for a first look."""
        return _BETWEEN.join(self.views)

    @cached_property
    def everything(self) -> str:
        return _BETWEEN.join((self.text, *self.read))

    @cached_property
    def packed(self) -> str:
        return _BLANK.sub("", self.said)

    @cached_property
    def normal(self) -> str:
        return _BETWEEN.join(dict.fromkeys(normal(view) for view in self.views))

    @cached_property
    def base64(self) -> str:
        return self.said.translate(_ALPHABET)

    @cached_property
    def coded(self) -> tuple[str, ...]:
        """The last words, decoded from base64 and from hexadecimal."""
        return tuple(dict.fromkeys(item for view in self.views for item in _decoded(view)))

    @cached_property
    def elided(self) -> bool:
        return _ELIDED.search(self.text) is not None

    @cached_property
    def held(self) -> frozenset[str]:
        """The four-character pieces of all views and decoded words."""
        return pieces(_BETWEEN.join(dict.fromkeys((self.said, self.normal, *self.coded, self.text))))


_ALPHABET: Final = str.maketrans("-_", "+/")


def _decoded(text: str) -> tuple[str, ...]:
    found, last = [], _CODED.match(text[::-1])
    if last is not None:
        word = last[0][::-1].rstrip("=").translate(_ALPHABET)
        with suppress(ValueError):
            found.append(b64decode(word + "=" * (-len(word) % 4)).decode())
        with suppress(ValueError):
            found.append(bytes.fromhex(word).decode())
    return tuple(item for item in found if len(item) >= SHORTEST and item.isprintable())


class Wanted:
    """An artifact as it was issued, and by what it is recognised."""

    def __init__(self, text: str) -> None:
        self.text = text
        told = distinctive(text)
        grams = _grams(told)
        code = _code(told)
        if len(code) < _GRAM:
            code = _code(text)
        self.coded = len(code) >= _GRAM
        """It is made of digits and letters, as keys and signatures are, and not of words or numbers that others are made of."""
        self.told = len(told)
        self.telling = _sampled(code if self.coded else grams)
        base = len(text) - len(told)
        self.head = text[: max(SHORTEST, min(base + _GRAM, (len(text) + 1) // 2))]
        self.tail = text[-max(SHORTEST, len(text) // 2) :]
        self._ends = (_grams(self.head)[-1], _grams(self.tail)[0]) if text else ("", "")
        few = sorted(self.telling)
        self._probe = tuple(few[:: 1 + len(few) // _PROBED])

    @cached_property
    def normal(self) -> str:
        return normal(self.text)

    @cached_property
    def bare(self) -> str:
        return _BLANK.sub("", self.text)

    @cached_property
    def opened(self) -> str:
        """The artifact decoded from base64, which cursors and states are often written in."""
        return next((item for item in _decoded(self.text) if len(item) >= 2 * SHORTEST), "")

    @property
    def phrase(self) -> bool:
        """Words, in which a change is one of these; of a number, or of a link of words and numbers, it makes another one."""
        return not self.coded and not _URL.match(self.text) and not any(char.isdigit() for char in self.text)

    def likeness(self, reading: TextReading) -> float:
        """The share of its distinctive pieces that a text contains, between 0 and 1, ignoring case."""
        return share(self.telling, reading.held)

    def perhaps(self, reading: TextReading) -> bool:
        """Whether a closer look is worthwhile: a text contains half of an artifact, its beginning, or its end."""
        held = reading.held
        first, last = self._ends
        if (first in held and self.head in reading.said) or (last in held and self.tail in reading.said):
            return True
        if reading.elided and self.text[:_GRAM] in reading.said:
            return True
        if sum([piece in held for piece in self._probe]) * 4 >= len(self._probe) and 2 * self.likeness(reading) >= 1:
            return True
        return self.opened != "" and self.opened in reading.said

    def anywhere(self, reading: TextReading) -> bool:
        """Whether a text, or a decoded part, contains the artifact: whole, or with further characters attached."""
        return self.text in reading.everything


def _code(text: str) -> list[str]:
    """Pieces without separators that mix digits and letters, or cases, as words and numbers do not."""
    found = [text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1)]
    return [piece.casefold() for piece in found if piece.isalnum() and _mixed(piece)]


def _mixed(piece: str) -> bool:
    return not (piece.isalpha() or piece.isdigit()) or _CASES.search(piece) is not None


def _drawn(text: str) -> bool:
    """Whether a text mixes digits and letters of both cases throughout, as base64 does between its signs and words do not."""
    kinds = [(char.isdigit(), char.isupper()) for char in text if _alphanumeric(char)]
    changes = sum(first != second for first, second in pairwise(kinds))
    return len(kinds) >= SHORTEST and len(set(kinds)) == 3 and _CHANGES * changes >= len(kinds)


def _sampled(found: list[str]) -> frozenset[str]:
    return frozenset(found[:: 1 + len(found) // _PIECES])


# -- whole --------------------------------------------------------------------------------------------------------------


def whole(artefact: str, text: str, read: Sequence[str] | None = None) -> bool:
    """Whether a text contains an artifact byte by byte: as it is, or encoded as the surrounding format requires.

    Inside a URL it may be percent-encoded, inside JSON escaped, in basic authentication encoded in base64. A text that is
    nothing but the artifact in another encoding is not whole: whoever reads it gets other bytes; neither is one that goes on
    with further letters or digits. `read`: the text's readings, where they are known.
    """
    reading = TextReading(text)
    if read is not None:
        reading.__dict__["read"] = tuple(read)
    return _holds(artefact, reading, exact=False)


def holds(wanted: Wanted, reading: TextReading, *, exact: bool = False) -> bool:
    """Like `whole`, for a TextReading. exact: the text is where an artifact belongs, and only separators touch the artifact."""
    return wanted.anywhere(reading) and _holds(wanted.text, reading, exact=exact)


def _holds(artefact: str, reading: TextReading, *, exact: bool) -> bool:
    text = reading.text
    if artefact in text and not (reading.document and '"' in (artefact[0], artefact[-1])):
        if artefact == text:
            return True
        if text.strip() == artefact:
            return False
        if reading.address and text.startswith(artefact) and text[len(artefact)].isspace():
            return False
        if not _glued(artefact, text) and _occurs(artefact, text, exact=exact, quoted=reading.header):
            return True
    return any(
        artefact in item and not item.startswith(artefact) and _occurs(artefact, item, exact=exact) for item in reading.read
    )


def _glued(artefact: str, text: str) -> bool:
    """Whether a text is an artifact, or one behind the scheme of an authorization, and a few characters more."""
    found = _SCHEME.match(text)
    start = 0 if text.startswith(artefact) or found is None else found.end()
    return text.startswith(artefact, start) and _GLUED.fullmatch(text, start + len(artefact)) is not None


def _occurs(artefact: str, text: str, *, exact: bool, quoted: bool = False) -> bool:
    """Whether a text contains an artifact that nothing else touches. quoted: quotes around it belong to the format."""
    start = text.find(artefact)
    while start >= 0:
        end = start + len(artefact)
        before, after = text[start - 1 : start] if start else "", text[end : end + 1]
        if not exact:
            if not (_alphanumeric(before) or _alphanumeric(after)):
                return True
        elif before in _BEFORE and after in _AFTER - _goes_on(artefact) and (quoted or start != 1 or before not in "\"'"):
            return True
        start = text.find(artefact, end)
    return False


def _goes_on(artefact: str) -> frozenset[str]:
    """Whether what follows makes it a different URL."""
    if "://" not in artefact:
        return frozenset()
    return frozenset("&?") if "?" in artefact else frozenset("&")


def _alphanumeric(char: str) -> bool:
    return char.isascii() and char.isalnum()


# -- damaged ------------------------------------------------------------------------------------------------------------


def damage(artefact: str, text: str, *, sure: bool = False) -> Damage | None:
    """How an artifact was damaged on its way into a text that does not contain it whole; None if the text is unrelated.

    sure: the text is where this artifact belongs, so little likeness is enough.
    """
    return lesion(Wanted(artefact), TextReading(text), sure=sure)


def lesion(wanted: Wanted, reading: TextReading, *, sure: bool = False) -> Damage | None:
    """Like `damage`, for a Wanted and a TextReading."""
    artefact = wanted.text
    if not reading.text or not artefact:
        return None
    if len(artefact) < SHORTEST:
        return "other" if sure and likeness(artefact, reading.text) >= _ALIKE / 2 else None
    if wanted.anywhere(reading) and _within(artefact, reading):
        return _stuck(wanted, reading, sure=sure)
    if wanted.bare in reading.packed and _broken(artefact, reading.said):
        return "wrapped"
    if _encoded(wanted, reading):
        return "reencoded"
    if reading.elided and any(_elided(wanted, view, sure=sure) for view in reading.views):
        return "other"
    if _reordered(artefact, reading):
        return "reordered"
    if sure and len(reading.text) >= max(2 * SHORTEST, len(artefact) - wanted.told - 1) and artefact.startswith(reading.text):
        return "truncated"
    if (sure or wanted.coded or wanted.phrase) and _truncated(wanted, reading):
        return "truncated"
    if artefact[-1] == "=" and _says(wanted.normal.rstrip("="), reading.normal):  # the padding is lost
        return "reencoded"
    if sure:
        return "other" if _meant(wanted, reading) else None
    if not (wanted.coded or wanted.phrase) or wanted.told < 2 * SHORTEST:
        return None
    return "other" if wanted.likeness(reading) >= _ALIKE else None


def _within(artefact: str, reading: TextReading) -> bool:
    if reading.text.startswith(artefact):
        return True
    return any(artefact in view and not view.startswith(artefact) for view in reading.views)


def _stuck(wanted: Wanted, reading: TextReading, *, sure: bool) -> Damage | None:
    """The name of the damage where further characters touch an artifact. A number with more digits is another number."""
    if reading.text.strip() == wanted.text:
        return "wrapped" if "\n" in reading.text else "other"
    more = reading.text.removeprefix(wanted.text)
    more_of_it = _GLUED.fullmatch(more) is not None or reading.address
    return "other" if wanted.coded or sure or (more_of_it and not more[0].isalnum()) else None


def _meant(wanted: Wanted, reading: TextReading) -> bool:
    """Whether a text in an artifact's place is related to it: it shares a few pieces, or its beginning or end."""
    told = distinctive(wanted.text)
    ends = (told[:SHORTEST], told[-SHORTEST:])
    if wanted.told > SHORTEST and any(end in reading.said for end in ends):
        return True
    return share(pieces(told), reading.held) >= _ALIKE / 2


def _broken(artefact: str, view: str) -> bool:
    """Whether there are blanks inside the artifact, not only before it."""
    return artefact not in view and artefact[:_START] in view


def _encoded(wanted: Wanted, reading: TextReading) -> bool:
    """Whether a text holds an artifact in another encoding: percent, HTML, JSON, Unicode, base64, hexadecimal."""
    artefact = wanted.text
    if artefact in reading.said or any(artefact in item for item in reading.coded):
        return True
    if len(wanted.normal) >= SHORTEST and _says(wanted.normal, reading.normal):
        return True
    if wanted.opened and wanted.opened in reading.said:
        return True
    bare = artefact.rstrip("=")
    return bool(_BASE64.fullmatch(artefact)) and bare.translate(_ALPHABET) in reading.base64 and bare not in reading.said


def normal(text: str) -> str:
    """A text with percent, HTML, JSON and Unicode encodings undone repeatedly; a plus sign counts as a blank."""
    for _ in range(4):
        read = html.unescape(unquote(text))
        if "\\" in read:
            read = _unescaped(read)
        if read == text:
            break
        text = read
    return unicodedata.normalize("NFKC", text).replace("+", " ")


def _says(artefact: str, text: str) -> bool:
    """Whether a text contains an artifact when the encodings of both are undone.

    A blank at its beginning or end was a plus sign, perhaps: the one between two words stands for none.
    """
    start = text.find(artefact) if artefact else -1
    while start >= 0:
        end = start + len(artefact)
        before, after = text[start - 1 : start] if start else "", text[end : end + 1]
        if (artefact[0] != " " or before in _EDGES) and (artefact[-1] != " " or after in _EDGES):
            return True
        start = text.find(artefact, start + 1)
    return False


def _reordered(artefact: str, reading: TextReading) -> bool:
    """Whether a text consists of exactly the separated parts of an artifact, in another order."""
    base, mark, query = artefact.partition("?")
    if not mark:
        base, query = "", artefact
    parts = sorted(_PIECE.findall(query))
    if len(parts) < (2 if mark else 3) or base + mark not in reading.said or not all(part in reading.said for part in parts):
        return False
    if mark:
        return any(_sent(base + mark, parts, len(query), view) for view in reading.views)
    return any(_listed(parts, view) for view in reading.views)


def _sent(base: str, parts: list[str], size: int, text: str) -> bool:
    """Whether a URL of this base has these parts of a query of so many characters, and perhaps the end of a sentence."""
    start = text.find(base)
    while start >= 0:
        found = _WORD.match(text, start + len(base), start + len(base) + size + SHORTEST)
        query = "" if found is None else found[0]
        if parts in (sorted(_PIECE.findall(query)), sorted(_PIECE.findall(query.rstrip(".,;:!")))):
            return True
        start = text.find(base, start + 1)
    return False


def _listed(parts: list[str], text: str) -> bool:
    """Whether these parts are adjacent."""
    held = [part.strip("\"'<>()[]{}") for part in _PIECE.findall(text)]
    known = frozenset(parts)
    at = [index for index, part in enumerate(held) if part in known]
    return bool(at) and sorted(held[at[0] : at[-1] + 1]) == parts


def _truncated(wanted: Wanted, reading: TextReading) -> bool:
    """Whether a text ends or begins in the middle of an artifact and contains enough of it to identify it."""
    if wanted.head in reading.said and any(_cut(wanted, view) for view in reading.views):
        return True
    if wanted.tail not in reading.said:
        return False
    artefact = wanted.text[::-1]
    return any(
        2 * at >= len(artefact) and _BEFORE_CUT.match(back, end)
        for back in (view[::-1] for view in reading.views)
        for at, end in _beginnings(artefact, wanted.tail[::-1], back)
    )


def _cut(wanted: Wanted, text: str) -> bool:
    """Whether a text ends within an artifact and does not go on with the artifact's end: a missing middle is not clipping."""
    artefact = wanted.text
    for at, end in _beginnings(artefact, wanted.head, text):
        if not _AFTER_CUT.match(text, end) or _decodes(artefact[at : at + 12], text[end : end + 1]):
            continue
        if _enough(wanted, at) and text.find(artefact[-SHORTEST:], end) < 0:
            return True
    return False


def _decodes(code: str, char: str) -> bool:
    """Whether a text continues as the artifact does, in another encoding."""
    return char != "" and char in (unquote_plus(code)[:1], unquote(html.unescape(code))[:1])


def _elided(wanted: Wanted, text: str, *, sure: bool) -> bool:
    """Whether a text has the beginning of an artifact, a mark of omission, and enough of the rest to identify it."""
    artefact, told = wanted.text, wanted.told
    for at, end in _beginnings(artefact, artefact[: max(_GRAM, min(SHORTEST, len(artefact) // 4))], text):
        mark = _ELIDED.match(text, end)
        if mark is None:
            continue
        if _enough(wanted, at):
            return True
        found = _WORD.match(text, mark.end())
        rest = found[0].rstrip(".,;:!?") if found else ""
        inside = at - (len(artefact) - told) + len(rest)
        if len(rest) >= _GRAM and artefact.endswith(rest) and (sure or 2 * inside >= told):
            return True
    return False


def _beginnings(artefact: str, head: str, text: str) -> Iterator[tuple[int, int]]:
    """(how much of an artifact stands there, where in the text that ends) of each beginning of it that has its head."""
    start = text.find(head)
    while start >= 0:
        least, most = len(head), min(len(artefact) - 1, len(text) - start)
        while least < most:
            middle = (least + most + 1) // 2
            least, most = (middle, most) if text.startswith(artefact[:middle], start) else (least, middle - 1)
        yield least, start + least
        start = text.find(head, start + 1 + least - len(head))


def _enough(wanted: Wanted, length: int) -> bool:
    """Whether a beginning identifies an artifact: one that ends between two parts, or in a number, may be another text."""
    artefact, told = wanted.text, wanted.told
    inside = length - (len(artefact) - told)
    sides = {artefact[length - 1], artefact[length]}
    if sides & _PARTS or _in_number(artefact, length):
        return 3 * inside >= 2 * told or (3 * inside >= told and len(_code(artefact[length - inside : length])) >= _GRAM)
    if _URL.match(artefact):
        run = next((count for count in range(length) if artefact[length - 1 - count] in _BORDERS), length)
        return inside >= _GRAM if "?" in artefact else 2 * length >= len(artefact) and run >= SHORTEST
    if wanted.coded and (_code(artefact[:length]) or _drawn(artefact[:length])):
        return not sides & _BORDERS or 3 * length >= len(artefact)
    return 3 * length >= 2 * len(artefact)


def _in_number(artefact: str, length: int) -> bool:
    """Whether a place is between two digits of a run that has no letters."""
    first = last = length
    while first and _alphanumeric(artefact[first - 1]):
        first -= 1
    while last < len(artefact) and _alphanumeric(artefact[last]):
        last += 1
    return first < length < last and artefact[first:last].isdigit()


# -- likeness -----------------------------------------------------------------------------------------------------------


def distinctive(artefact: str) -> str:
    """What distinguishes an artifact from others of its kind.

    Of a JSON Web Token that is what follows its header; of a URL its query, or else what follows the host.
    """
    header = _TOKEN_HEADER.match(artefact)
    if header is not None:
        return artefact[header.end() :]
    found = _URL.match(artefact)
    if found is None:
        return artefact
    rest = artefact[found.end() :]
    return rest.partition("?")[2] or rest


def likeness(artefact: str, text: str) -> float:
    """The share of an artifact's four-character pieces that a text contains, between 0 and 1, ignoring case."""
    return share(pieces(distinctive(artefact)), pieces(text))


def pieces(text: str) -> frozenset[str]:
    """The pieces of four characters of a text, or of as many as it has."""
    return frozenset(_grams(text))


def _grams(text: str) -> list[str]:
    folded = text.casefold()
    size = min(_GRAM, len(folded))
    return [folded[at : at + size] for at in range(len(folded) - size + 1)] if size else []


def share(wanted: frozenset[str], held: frozenset[str]) -> float:
    return len(wanted & held) / len(wanted) if wanted else 0.0

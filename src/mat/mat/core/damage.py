"""Where an artefact stands in what an agent passes on, whole or damaged, and what the damage is called (seed 003, appendix J).

Everything is worked out from two texts: the artefact as it was issued, and a string of the arguments of a later call.
"""

from __future__ import annotations

import html
import re
import unicodedata
from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote, unquote_plus

Damage: TypeAlias = Literal["", "truncated", "wrapped", "reencoded", "reordered", "other"]

SHORTEST: Final = 8
"""Shorter artefacts are recognised only where a port says that it consumes them, and only as a whole."""
_GRAM: Final = 4
_ALIKE: Final = 0.6
"""The share of an artefact's pieces of four characters that a text must hold to be taken for it, damaged."""
_PIECE: Final = re.compile(r"[^&;,?\s]+")
_ESCAPED: Final = re.compile(r"\\(?:([\"\\/])|u([0-9a-fA-F]{4}))")
_STUCK: Final = re.compile(r"[\w.~+%!*-]")
_AFTER_CUT: Final = re.compile(r"$|[\s\"'<>,;&)\]}]")


def readings(text: str) -> tuple[str, ...]:
    """What the parts of a text say to whoever reads the format it is written in: a URL, JSON, HTML, basic authentication."""
    found = []
    if "%" in text or "+" in text:
        found += [unquote(text), unquote_plus(text)]
    if "\\" in text:
        found.append(_ESCAPED.sub(lambda escape: chr(int(escape[2], 16)) if escape[2] else escape[1], text))
    if "&" in text:
        found.append(html.unescape(text))
    if text[:6].lower() == "basic ":
        with suppress(ValueError):
            found.append(" " + b64decode(text[6:], validate=True).decode())
    return tuple(dict.fromkeys(item for item in found if item != text))


def whole(artefact: str, text: str, read: Sequence[str] | None = None) -> bool:
    """Whether a text holds an artefact byte by byte: as it is, or written as the format around it demands.

    Inside a URL it may be percent-encoded, inside JSON escaped, in basic authentication encoded in base64. A text that is
    nothing but the artefact in another encoding is not whole: whoever reads it gets other bytes. `read`: the text's
    readings, where they are known.
    """
    return artefact in text or any(
        artefact in item and len(item) > len(artefact) for item in (readings(text) if read is None else read)
    )


def glued(artefact: str, text: str, *, alone: bool) -> bool:
    """Whether a text that holds an artefact has more of a token stuck to it, so that whoever reads it reads another one.

    alone: the text stands where the artefact belongs, and nothing but a scheme, quotes and separators may be beside it. In
    other texts an artefact may end a sentence; one that is nearly the whole text may not.
    """
    if text == artefact or artefact not in text:
        return False
    if text.strip() == artefact:
        return True
    rest = len(text) - len(artefact)
    if not alone and (rest >= SHORTEST or re.search(r"[\s\"'<>,;=&?#|()\[\]{}:/]", text.replace(artefact, "", 1))):
        return False
    start = text.find(artefact)
    while start >= 0:
        around = text[start - 1 : start] + text[start + len(artefact) : start + len(artefact) + 1]
        if not _STUCK.search(around):
            return False
        start = text.find(artefact, start + 1)
    return True


def damage(artefact: str, text: str, *, sure: bool = False) -> Damage | None:
    """What happened to an artefact on its way into a text that does not hold it whole; None where the text is another one.

    sure: the text stands where this artefact belongs, so little likeness is enough.
    """
    if len(artefact) < SHORTEST or not text:
        return "other" if sure and text and likeness(artefact, text) >= _ALIKE / 2 else None
    bare, packed = re.sub(r"\s+", "", artefact), re.sub(r"\s+", "", text)
    if packed != text and bare in packed:
        return "wrapped"
    if normal(artefact) in normal(text):
        return "reencoded"
    if _reordered(artefact, text):
        return "reordered"
    if _truncated(artefact, text):
        return "truncated"
    least = _ALIKE / 2 if sure else _ALIKE
    if len(distinctive(artefact)) < 2 * SHORTEST and not sure:
        return None
    return "other" if likeness(artefact, text) >= least else None


def normal(text: str) -> str:
    """A text without the traces of encodings: percent, HTML, Unicode and base64 alphabets, to the end."""
    for _ in range(4):
        read = html.unescape(unquote(text))
        if read == text:
            break
        text = read
    return unicodedata.normalize("NFKC", text).replace("+", " ").replace("-", " ").replace("_", "/").rstrip("=")


def _reordered(artefact: str, text: str) -> bool:
    """Whether a text has all parts of an artefact between its separators, in another order."""
    parts = _PIECE.findall(artefact)
    if len(parts) < 3:  # an address and two parameters, or three items of a list
        return False
    held = Counter(_PIECE.findall(text))
    return not Counter(parts) - held


def _truncated(artefact: str, text: str) -> bool:
    """Whether a text breaks off, or begins, in the middle of an artefact, and holds enough of it to be no other one.

    What is abbreviated with dots was not clipped on the way: somebody has put bytes in.
    """
    least = max(SHORTEST, len(artefact) - len(distinctive(artefact)) + SHORTEST // 2)
    return _cut(artefact, text, least) or _cut(artefact[::-1], text[::-1], max(SHORTEST, len(artefact) // 2))


def _cut(artefact: str, text: str, least: int) -> bool:
    start = text.find(artefact[:SHORTEST])
    while start >= 0:
        length = next(
            (at for at, (left, right) in enumerate(zip(artefact, text[start:], strict=False)) if left != right),
            min(len(artefact), len(text) - start),
        )
        if least <= length < len(artefact) and _AFTER_CUT.match(text, start + length):
            return True
        start = text.find(artefact[:SHORTEST], start + 1)
    return False


def distinctive(artefact: str) -> str:
    """What tells an artefact from others of its kind: of a URL, what follows the host, or the query where there is one."""
    found = re.match(r"[A-Za-z][A-Za-z0-9+.\-]*://[^/?#\s]*", artefact)
    if found is None:
        return artefact
    rest = artefact[found.end() :]
    return rest.partition("?")[2] or rest


def likeness(artefact: str, text: str) -> float:
    """The share of an artefact's pieces of four characters that a text holds, between 0 and 1; case does not count."""
    return share(pieces(distinctive(artefact)), pieces(text))


def pieces(text: str) -> frozenset[str]:
    """The pieces of four characters of a text, or of as many as it has."""
    folded = text.casefold()
    size = min(_GRAM, len(folded))
    return frozenset([folded[at : at + size] for at in range(len(folded) - size + 1)]) if size else frozenset()


def share(wanted: frozenset[str], held: frozenset[str]) -> float:
    return len(wanted & held) / len(wanted) if wanted else 0.0

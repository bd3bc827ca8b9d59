"""What an action or a check is about: the ids that it names, by parameter and in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from mat.core.redact import iban_valid
from mat.core.verbs import words_of
from mat_contracts._facts import ids_of
from mat_contracts._values import id_text

About: TypeAlias = tuple[tuple[str, str], ...]
"""Pairs of a noun and an id in normal form, sorted. The noun is "" where none is known."""
IDS: Final = 64
"""Ids that are read from one action, at most; a call about more is bound to the first ones."""
_NOUNS: Final = frozenset((
    "account", "appointment", "booking", "branch", "card", "case", "claim", "client", "contract", "customer", "device",
    "document", "employee", "entry", "event", "file", "flight", "iban", "invoice", "issue", "item", "job", "meeting", "member",
    "message", "order", "package", "parcel", "passenger", "patient", "payment", "policy", "product", "project", "record",
    "request", "reservation", "return", "room", "row", "seat", "shipment", "subscription", "task", "ticket", "transaction",
    "user",
))  # fmt: skip
"""Nouns whose parameter names a thing by its id, even if the id is a plain number or a word."""
_GRAMMAR: Final = frozenset((
    "a", "about", "against", "an", "and", "as", "at", "by", "called", "for", "from", "has", "have", "id", "ids", "in", "is",
    "it", "named", "no", "nr", "number", "of", "on", "or", "ref", "that", "the", "this", "to", "was",
    "were", "with",
))  # fmt: skip
"""Words before an id that say nothing about what it is the id of."""
_SUFFIX = re.compile(r"(?:^|_)(?:ids?|uuid|number|no|nr|ref|reference|code|key)$")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BEFORE = re.compile(r"(?<![a-z])([a-z]{1,60})(?:\s{1,8}(?:id|number|no\.?|nr\.?))?\s{0,8}[:#]?\s{0,8}#?$")
"""The noun before an id, at the end of a text."""
_ONE: Final = r"#?(?<![\w\-])(?:[^\W\d]|-)*+\d[\w\-]*+"
_EACH = re.compile(_ONE)
_LISTED = re.compile(rf"\b([a-z]{{2,}})\s+({_ONE}(?:(?:,?\s+(?:and|or|&)\s+|,\s*){_ONE})+)")
"""A noun before several ids: "orders A17, B9 and 18"."""
_GROUPED = re.compile(r"\b[A-Z]{2}\d\d(?: [A-Z0-9]{4}){2,7}(?: [A-Z0-9]{1,3})?\b")


def _packed(text: str) -> str:
    """An IBAN without the spaces between its groups; any other text as it is."""
    packed = text.replace(" ", "")
    return packed if iban_valid(packed) else text


_NUMBERED = re.compile(r"\b([a-z]{2,})\s*+(?:id|number|no\.?|nr\.?)?\s*+[#:]?\s*+#?(\d+)\b(?![.,:/-]\d|%)")


def about_arguments(arguments: Mapping[str, Any]) -> About:
    """The ids in the arguments of a call: of parameters that name a thing, and texts with digits or addresses.

    >>> about_arguments({"order_id": "A17", "amount": 30, "reason": "damaged"})
    (('order', 'a17'),)
    """
    found: list[tuple[str, str]] = []
    for name, value in arguments.items():
        noun, named = _noun_of(name)
        kind = type(value)
        if kind is str:
            if len(value) <= 64 and (named or _is_id(value)) and value:
                found.append((noun, id_text(value)))
            continue
        if kind is float or kind is bool or value is None:
            continue
        for item in value if isinstance(value, list | tuple) else (value,):
            if type(item) is str:
                if item and len(item) <= 64 and (named or _is_id(item)):
                    found.append((noun, id_text(item)))
            elif type(item) is int and named:
                found.append((noun, f"{item}"))
            elif isinstance(item, Mapping):
                found += about_arguments(item)
    return tuple(sorted(set(found[:IDS])))


@lru_cache(maxsize=2048)
def about_text(text: str) -> About:
    """The ids in a text, each with the noun before it.

    >>> about_text("order A17 belongs to ann@example.com")
    (('', 'ann@example.com'), ('order', 'a17'))
    """
    text = _GROUPED.sub(lambda match: _packed(match[0]), text)
    low = " ".join(text.casefold().split())
    found: list[tuple[str, str]] = []
    for item in ids_of(text):
        before = _BEFORE.search(low[: max(low.find(item), 0)])
        noun = before[1] if before else ""
        noun = "" if noun in _GRAMMAR else _singular(noun)
        found.append((noun, id_text(item)))
    for match in _LISTED.finditer(low):
        if match[1] not in _GRAMMAR:
            noun, listed = _singular(match[1]), [id_text(item) for item in _EACH.findall(match[2])]
            found = [pair for pair in found if pair[1] not in listed] + [(noun, item) for item in listed]
    found += [(_singular(match[1]), match[2]) for match in _NUMBERED.finditer(low) if _is_noun(match)]
    return tuple(sorted(set(found[:IDS])))


def _is_noun(match: re.Match[str]) -> bool:
    """Whether a matched word is the noun of its number: "order 17", but not "the 17" and not the letters of "DE8937"."""
    return match[1] not in _GRAMMAR and not match.string.startswith(match[2], match.end(1))


def contradicts(check: About, act: About, tool: str) -> bool:
    """Whether a check is about another thing than a call of a tool: both name ids of one noun, and none is the same.

    An id without a noun is compared with the ids of the call that look alike: "A17" with "A18", not with "ann@example.com".
    """
    if not check or not act:
        return False
    by_noun = _by_noun(act)
    every = {item for _, item in act}
    matched = any(item in every for _, item in check)
    doing = words_of(tool)
    for noun, ids in _by_noun(check).items():
        if not ids.isdisjoint(every):
            if noun in by_noun and ids.isdisjoint(by_noun[noun]):
                return True
            continue
        if noun in by_noun and noun:
            return True
        if matched:  # an id that looks alike may name another thing
            continue
        like = every if not noun or noun in doing else by_noun.get("", set())
        if not {_shape(item) for item in like}.isdisjoint(map(_shape, ids)):
            return True
    return False


def single_targets(act: About) -> Iterable[About]:
    """What a call is about, once for each id if it names several of one noun: each of them needs a check of its own."""
    several = [noun for noun, ids in _by_noun(act).items() if len(ids) > 1]
    if not several:
        return (act,)
    return [(pair, *(other for other in act if other[0] not in several)) for pair in act if pair[0] in several]


def _by_noun(about: About) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for noun, item in about:
        found.setdefault(noun, set()).add(item)
    return found


@lru_cache(maxsize=2048)
def _noun_of(parameter: str) -> tuple[str, bool]:
    """The noun of a parameter, and whether its values are ids whatever they look like: order_id, orderIds, account."""
    snake = _CAMEL.sub("_", parameter).casefold()
    bare = _SUFFIX.sub("", snake)
    noun = _singular(bare.rpartition("_")[2] if bare.rpartition("_")[2] in _NOUNS or bare.endswith("s") else bare)
    return noun, bare != snake or noun in _NOUNS


_SAME: Final = {"iban": "account", "acct": "account"}
"""Nouns with the same meaning as another one."""


def _singular(noun: str) -> str:
    noun = _SAME.get(noun, noun)
    return noun[:-1] if len(noun) > 3 and noun.endswith("s") and not noun.endswith("ss") else noun


@lru_cache(maxsize=4096)
def _is_id(text: str) -> bool:
    """Whether a text is one id: an address, or a word of letters and digits."""
    return " " not in text.strip() and _MARKED.search(text) is not None and ids_of(text) != ()


_MARKED = re.compile(r"[\d@#]")


_HASH = re.compile(r"[0-9a-f]{4,64}").fullmatch
"""An id that is hexadecimal, as those of commits are: where its digits and letters stand says nothing."""


@lru_cache(maxsize=4096)
def _shape(item: str) -> str:
    """An id without its letters and digits: A17 and B2 have the same shape, and so have all IBANs."""
    if len(item) > 14 and item.isalnum() and item.isascii() and iban_valid(item.upper()):
        return "iban"
    found = re.sub(r"\d+", "9", re.sub(r"[^\W\d_]+", "a", item))
    return "hash" if len(found) > 2 and _HASH(item) else found

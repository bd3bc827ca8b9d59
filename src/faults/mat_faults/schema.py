"""Damage to fields that breaks the schema a caller relies on, and changes of a reply's metadata.

`KEEPING` kinds keep a field's type and give it a value that no schema would allow; `CHANGING` kinds change the type, or add or
remove fields. `METADATA` kinds change versions, content types, entity tags, times, status codes and ids. A reply that is a JSON
text is damaged inside and stays JSON.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from mat_faults.mutators import FieldPath, apply_inside, at, json_inside, leaves, mappings, parts, with_leaf, without

KEEPING: Final = ("negative", "huge", "enum", "overlong", "date", "encoding")
CHANGING: Final = ("null", "missing", "type", "array", "extra")
METADATA: Final = ("version", "etag", "timestamp", "id", "status", "content_type")
OVERLONG: Final = 10_000
"""The length of an overlong text in characters; a text that has this length already is doubled."""
EXTRA_KEY: Final = "unexpected"

_ENUM = re.compile(r"[A-Za-z]{2,}(?:[ _-][A-Za-z]+){0,3}")
_DATE = re.compile(r"(?<![\w-])\d{4}-\d\d-\d\d(?=$|[T ])")
_NUMBER = re.compile(r"[+-]?\d{1,30}(?:\.\d{1,30})?")


def damaged(value: Any, how: str, index: int) -> tuple[Any] | None:
    """A copy of a reply with damage to the `index`-th field that this kind of damage fits; None if there is no such field."""
    return apply_inside(value, lambda inner: _damage(inner, how, index))


def could_damage(value: Any, how: str, index: int) -> bool:
    """Whether `damaged` would change a reply, judged from its recorded form, in which decimals and enum members are texts."""
    counted: list[int] = [0]

    def count(inner: Any) -> None:
        counted[0] = sum(1 for _ in spots(inner, how, recorded=True))

    apply_inside(value, count)
    return counted[0] > index


def spots(value: Any, how: str, *, recorded: bool = False) -> Iterator[FieldPath]:
    """The paths where a kind of damage fits: of mappings for "extra", of their keys for "missing", of fields for the others."""
    if how == "extra":
        yield from (path for path, found in mappings(value) if EXTRA_KEY not in found)
    elif how == "missing":
        yield from ((*path, key) for path, found in mappings(value) for key in sorted(found, key=str))
    else:
        for path, leaf in leaves(value):
            number = recorded and how in ("negative", "huge") and isinstance(leaf, str) and _NUMBER.fullmatch(leaf)
            if number or _leaf_damage(leaf, how) is not None:
                yield path


def _damage(value: Any, how: str, index: int) -> tuple[Any] | None:
    found = next((path for place, path in enumerate(spots(value, how)) if place == index), None)
    if found is None:
        return None
    if how == "missing":
        return (without(value, found),)
    if how == "extra":
        return (with_leaf(value, (*found, EXTRA_KEY), True),)
    new = _leaf_damage(at(value, found), how)
    return None if new is None else (with_leaf(value, found, new[0]),)


def _leaf_damage(leaf: Any, how: str) -> tuple[Any] | None:
    """The damaged field in a one-tuple; None if this kind of damage does not fit it."""
    if how == "null":
        return (None,)
    if how == "array":
        return ([leaf],)
    if how == "type":
        return (_other_type(leaf),)
    return _FIELD_DAMAGE[how](leaf)


def _other_type(leaf: Any) -> Any:
    """The nearest value of another JSON type: numbers and booleans become texts, texts numbers, as careless clients write."""
    if isinstance(leaf, bool):
        return "true" if leaf else "false"
    if isinstance(leaf, int | float | decimal.Decimal):
        return str(leaf)
    if isinstance(leaf, str):
        return int(leaf) if re.fullmatch(r"[+-]?\d{1,18}", leaf, re.ASCII) else len(leaf)
    if isinstance(leaf, bytes):
        return leaf.hex()
    return str(leaf.isoformat())


def _negative(leaf: Any) -> tuple[Any] | None:
    """Below any minimum of a count or an amount."""
    if not _is_number(leaf) or leaf < 0:
        return None
    return (type(leaf)(-leaf - 1),)


def _huge(leaf: Any) -> tuple[Any] | None:
    """Beyond 64 bits for integers, near the end of the range for floats."""
    if not _is_number(leaf):
        return None
    huge = type(leaf)(2**63) if not isinstance(leaf, float) else type(leaf)(1e308)
    return None if leaf == huge else (huge,)


def _is_number(leaf: Any) -> bool:
    return (
        isinstance(leaf, int | float | decimal.Decimal)
        and not isinstance(leaf, bool)
        and (isinstance(leaf, int) or math.isfinite(leaf))
    )


def _enum(leaf: Any) -> tuple[Any] | None:
    """A word that looks like a member of an enumeration but is none."""
    if not isinstance(leaf, str) or len(leaf) > 40 or not _ENUM.fullmatch(leaf):
        return None
    return (leaf + ("_UNKNOWN" if leaf.isupper() else "_unknown"),)


def _overlong(leaf: Any) -> tuple[Any] | None:
    if not isinstance(leaf, str):
        return None
    unit = leaf or "x"
    return (unit + unit if len(unit) >= OVERLONG else (unit * (OVERLONG // len(unit) + 1))[:OVERLONG],)


def _date(leaf: Any) -> tuple[Any] | None:
    """A day that no calendar has; for date objects, which cannot hold one, a day before all records."""
    if isinstance(leaf, str):
        broken = _DATE.sub(lambda match: match[0][:4] + "-13-45", leaf, count=1)
        return None if broken == leaf else (broken,)
    if isinstance(leaf, datetime.date):
        early = leaf.replace(year=1, month=1, day=1)
        return (early if early != leaf else leaf.replace(year=9999),)
    return None


def _encoding(leaf: Any) -> tuple[Any] | None:
    """UTF-8 decoded as Latin-1; where that changes nothing, with a garbled byte order mark in front."""
    if isinstance(leaf, bytes):
        return (b"\xff\xfe" + leaf,)
    if not isinstance(leaf, str):
        return None
    garbled = leaf.encode("utf-8", "surrogatepass").decode("latin-1")
    return (garbled if garbled != leaf else "\u00ef\u00bb\u00bf" + leaf,)


_FIELD_DAMAGE: Final[dict[str, Callable[[Any], tuple[Any] | None]]] = {
    "negative": _negative, "huge": _huge, "enum": _enum, "overlong": _overlong, "date": _date, "encoding": _encoding,
}  # fmt: skip


# -- metadata of a reply ---------------------------------------------------------------------------------------------------

_NAMES: Final[dict[str, frozenset[str]]] = {
    "version": frozenset({"version", "apiversion", "xapiversion", "schemaversion", "resourceversion", "revision", "rev"}),
    "etag": frozenset({"etag", "checksum", "hash", "digest", "sha256", "contentmd5", "ifmatch"}),
    "timestamp": frozenset(
        {"timestamp", "date", "time", "createdat", "updatedat", "modifiedat", "lastmodified", "modified", "expires",
         "expiresat", "issuedat", "fetchedat", "asof", "validuntil", "created", "updated"}
    ),
    "id": frozenset({"id", "requestid", "xrequestid", "correlationid", "traceid", "messageid", "transactionid", "operationid"}),
    "status": frozenset({"status", "statuscode", "code", "httpstatus"}),
    "content_type": frozenset({"contenttype", "mimetype", "mediatype"}),
}  # fmt: skip
_DAY_S: Final = 86_400


def changed_metadata(value: Any, how: str, older: Sequence[Any] = ()) -> tuple[Any] | None:
    """A copy of a reply with its first metadata field of this kind changed; None if it has none.

    version: the next one. etag: that of an earlier reply (`older`, oldest first) if it differs, otherwise a wrong one.
    timestamp: a day earlier. id: another one. status: 202 for any other success code, 200 for all other codes.
    content_type: text/html, or application/octet-stream if it was HTML.
    """
    return apply_inside(value, lambda inner: _changed_metadata(inner, how, older))


def _changed_metadata(value: Any, how: str, older: Sequence[Any]) -> tuple[Any] | None:
    for path, leaf in leaves(value):
        if _name_of(value, path) not in _NAMES[how]:
            continue
        new = _other_etag(path, leaf, older) if how == "etag" else _METADATA_CHANGES[how](leaf)
        if new is not None:
            return (with_leaf(value, path, new[0]),)
    return None


def _name_of(value: Any, path: FieldPath) -> str:
    """The plain name of a field, or of the header if the field is a value in a list of pairs or of {name, value} mappings."""
    if not path:
        return ""
    last, siblings = path[-1], dict(parts(at(value, path[:-1])))
    if last == 1 and len(siblings) == 2:  # [["ETag", "x"], ...]
        last = siblings[0]
    elif last == "value" and "name" in siblings:  # [{"name": "ETag", "value": "x"}, ...]
        last = siblings["name"]
    return _plain_name(last) if isinstance(last, str) else ""


def _plain_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _other_etag(path: FieldPath, leaf: Any, older: Sequence[Any]) -> tuple[Any] | None:
    if not isinstance(leaf, str):
        return None
    for reply in reversed(older):
        for other, tag in leaves(json_inside(reply) or reply):
            if other == path and isinstance(tag, str) and tag != leaf:
                return (tag,)
    return _other_identifier(leaf)


def _other_identifier(leaf: Any) -> tuple[Any] | None:
    """An identifier that differs in its last letter or digit."""
    if isinstance(leaf, int) and not isinstance(leaf, bool):
        return (leaf + 1,)
    if not isinstance(leaf, str):
        return None
    for place in range(len(leaf) - 1, -1, -1):
        if leaf[place].isascii() and leaf[place].isalnum():
            other = "0" if leaf[place] != "0" else "1"
            return (leaf[:place] + other + leaf[place + 1 :],)
    return None


def _next_version(leaf: Any) -> tuple[Any] | None:
    if isinstance(leaf, int) and not isinstance(leaf, bool):
        return (leaf + 1,)
    if not isinstance(leaf, str):
        return None
    number = re.search(r"\d{1,18}", leaf, re.ASCII)  # the major part of 1.2.3: its change breaks callers
    return None if number is None else (f"{leaf[: number.start()]}{int(number[0]) + 1}{leaf[number.end() :]}",)


def _day_earlier(leaf: Any) -> tuple[Any] | None:
    """A day earlier, in the form the time already has: seconds, milliseconds, ISO 8601, HTTP date or a date object."""
    if isinstance(leaf, bool):
        return None
    if isinstance(leaf, int | float):
        if not 1e8 < leaf < 1e14:
            return None
        return (leaf - (_DAY_S if leaf < 1e11 else _DAY_S * 1000),)
    if isinstance(leaf, datetime.date):
        return (leaf - datetime.timedelta(days=1),) if leaf.toordinal() > 2 else None
    if not isinstance(leaf, str):
        return None
    found = re.match(r"\d{4}-\d\d-\d\d(?=$|[T ])", leaf)
    try:
        if found is not None:
            day = datetime.date.fromisoformat(found[0]) - datetime.timedelta(days=1)
            return (day.isoformat() + leaf[found.end() :],)
        return _http_day_earlier(leaf)
    except (ValueError, OverflowError):
        return None


def _http_day_earlier(leaf: str) -> tuple[Any] | None:
    import email.utils

    if not leaf.endswith(" GMT"):
        return None
    try:
        moment = email.utils.parsedate_to_datetime(leaf)
    except (TypeError, ValueError):
        return None
    return (email.utils.format_datetime(moment - datetime.timedelta(days=1), usegmt=True),)


def _other_status(leaf: Any) -> tuple[Any] | None:
    """Another HTTP code; None for a status in words, which is data."""
    if isinstance(leaf, bool) or not (isinstance(leaf, int) or (isinstance(leaf, str) and re.fullmatch(r"[1-5]\d\d", leaf))):
        return None
    code = int(leaf)
    if not 100 <= code <= 599:
        return None
    return (type(leaf)(202 if code // 100 == 2 and code != 202 else 200),)


def _other_content(leaf: Any) -> tuple[Any] | None:
    if not isinstance(leaf, str) or "/" not in leaf:
        return None
    return ("application/octet-stream" if leaf.startswith("text/html") else "text/html; charset=utf-8",)


_METADATA_CHANGES: Final[dict[str, Callable[[Any], tuple[Any] | None]]] = {
    "version": _next_version, "timestamp": _day_earlier, "id": _other_identifier, "status": _other_status,
    "content_type": _other_content,
}  # fmt: skip

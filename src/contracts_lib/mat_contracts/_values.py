"""When two recorded values are the same: one normaliser for numbers, ids, dates and addresses, used by all templates.

| written | same |
|---|---|
| numbers | 30, 30.0, "30", "30.00"; 1250, "1,250.00", "1.250,00 EUR", "€1250" (a bare number has the currency of the other) |
| ids and other texts | "A17", " a17 ", "#A17"; "Ann  Smith", "ANN SMITH" |
| dates | "2024-05-15", "15 May 2024", "May 15, 2024", "15.05.2024", "2024-05-15T00:00:00" |
| accounts | "DE89 3704 0044 0532 0130 00", "DE89370400440532013000" (an IBAN, by its check digits) |
| addresses | ann@example.com, "Ann <ann@example.com>", "mailto:ann@example.com", {"email": "ann@example.com"} |

Never the same: True and 1; "007" and 7 (leading zeros belong to an id); 30 EUR and 30 USD; 03/04/2024 and any other notation,
because it has two readings.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from mat.core.allowed import Allowed, is_range, within
from mat.core.redact import iban_valid
from mat.core.value import FrozenDict, FrozenList
from mat_contracts._facts import facts_of, whole_day, whole_quantity

Normal: TypeAlias = Any
"""A value in normal form: None, a bool, a text, a tuple of normal forms, or a tuple of sorted (name, normal form)."""
_LONGEST: Final = 64
"""Characters of the longest text that may be a number, a date or an address alone."""
_INVISIBLE: Final = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?", re.IGNORECASE)
_PLAIN: Final = re.compile(r"[a-z_][a-z_.:/\-]*").fullmatch
"""A text that is its own normal form: it has no digit, no space and no capital."""
_ID: Final = re.compile(r"#?[a-z_][^\s€$£¥₹₩]*|[1-9]\d{0,17}|0").fullmatch
"""A folded text that is neither a date nor an amount, or a whole number as it is written shortest."""
_ONE_ADDRESS: Final = re.compile(
    r"(?:\"[^\"<>@]*\"|[^\"<>@,;]*)\s?<\s*(?:mailto:)?([^\s<>@]+@[^\s<>@]+)\s*>|mailto:([^\s<>@?,;]+@[^\s<>@?,;]+)"
).fullmatch
"""A mail address with the name of its owner, or as a link."""
_GROUPED_IBAN: Final = re.compile(r"[a-z]{2}\d\d(?:[ -]?[a-z0-9]){11,30}").fullmatch
_VERSIONS: Final = frozenset(("version", "versions", "tag", "release"))
"""Parameters whose values look like numbers and are none: version 1.10 is not version 1.1."""


# -- values -------------------------------------------------------------------------------------------------------------


def normal(value: Any) -> Normal:
    """A recorded value in normal form: two values are the same if their normal forms are equal. Currencies are left out.

    >>> normal(30) == normal(30.0) == normal("30") == normal(" 30.00 EUR")
    True
    >>> normal("A17") == normal(" a17 "), normal("15 May 2024") == normal("2024-05-15"), normal("007") == normal(7)
    (True, True, False)
    """
    kind = type(value)
    if kind is str:
        return _normal_text(value) if len(value) <= _LONGEST else _long_text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return f"{value}"
    if kind is float:
        return _float_text(value)
    if kind in _MAPPINGS:
        return normal_arguments(value)
    if kind in _SEQUENCES:
        return tuple([normal(item) for item in value])
    return _normal_other(value)


_MAPPINGS: Final[frozenset[type]] = frozenset((dict, FrozenDict))
_SEQUENCES: Final[frozenset[type]] = frozenset((list, tuple, FrozenList))


def _normal_other(value: Any) -> Normal:
    """The normal form of a value of a type that records do not hold."""
    if isinstance(value, int | float | Decimal):
        return _number_text(Decimal(str(value)))
    if isinstance(value, Mapping):
        return normal_arguments(value)
    if isinstance(value, list | tuple):
        return tuple(map(normal, value))
    if isinstance(value, set | frozenset):  # of a key= function; records hold lists
        return tuple(sorted(map(normal, value), key=repr))
    if isinstance(value, datetime.date):  # of hand-made arguments; records hold texts
        return normal(value.isoformat())
    return value


def normal_arguments(arguments: Mapping[str, Any]) -> Normal:
    """The normal form of arguments: (name, normal form) sorted by name. Arguments that are None are as if not given."""
    found = []
    for name, item in arguments.items():
        if type(item) is str:  # nearly always
            if name in _VERSIONS:
                item = _folded(item)
            else:
                item = _normal_text(item) if len(item) <= _LONGEST else _long_text(item)
        elif item is None:
            continue
        else:
            item = normal(item)
        found.append((name, item))
    if len(found) > 1:
        found.sort(key=_first)
    return tuple(found)


_first: Final = itemgetter(0)
_NO_CURRENCY: Final[tuple[str, ...]] = ()


def currencies(value: Any) -> tuple[str, ...]:
    """The currencies of all amounts in a value, in order. Two values of one normal form are the same if these agree."""
    kind = type(value)
    if kind is str:
        found = _currency(value) if len(value) <= _LONGEST else ""
        return (found,) if found else _NO_CURRENCY
    if kind in _SEQUENCES:
        return tuple([name for item in value for name in currencies(item)])
    if kind not in _MAPPINGS and not isinstance(value, Mapping):
        return _NO_CURRENCY
    by_name: list[tuple[str, tuple[str, ...]]] = []
    for name, item in value.items():
        if type(item) is str:
            if len(item) <= _LONGEST and (unit := _currency(item)):
                by_name.append((name, (unit,)))
        elif item is not None and (units := currencies(item)):
            by_name.append((name, units))
    return tuple([unit for _, units in sorted(by_name, key=_first) for unit in units]) if by_name else _NO_CURRENCY


def currencies_agree(one: tuple[str, ...], two: tuple[str, ...]) -> bool:
    """Whether two values of one normal form may be in the same currencies: a bare amount has the currency of the other."""
    return not one or not two or one == two


def same(one: Any, two: Any) -> bool:
    """Whether two recorded values are the same.

    >>> same("1.250,00 EUR", 1250), same("30 EUR", "30 USD"), same(True, 1)
    (True, False, False)
    """
    return bool(normal(one) == normal(two)) and currencies_agree(currencies(one), currencies(two))


def whole_numbers(value: Any) -> Any:
    """A recorded value in which 5.0 is written as 5; all else is as it was, for comparisons that are otherwise exact."""
    if type(value) is float and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return FrozenDict({name: whole_numbers(item) for name, item in value.items()})
    return FrozenList(map(whole_numbers, value)) if isinstance(value, list | tuple) else value


def id_text(value: Any) -> str:
    """A value as the text by which ids are compared; the same for values that are the same."""
    found = normal(value)
    return found if isinstance(found, str) else f"{found}"


def number_of(value: Any) -> Decimal | None:
    """The number that a value is or that a text states, None if there is none. A bool is no number.

    >>> number_of("1.250,00 EUR"), number_of(30.0), number_of("A17"), number_of(True)
    (Decimal('1250.00'), Decimal('30.0'), None, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float | Decimal):
        return Decimal(str(value))
    if not isinstance(value, str) or len(value) > _LONGEST:
        return None
    text = value.strip()
    try:
        return Decimal(text) if re.fullmatch(r"[-+]?\d+(?:\.\d+)?", text) else _amount(text)
    except InvalidOperation:
        return None


def allows(allowed: Allowed, value: Any) -> bool:
    """Whether an allow-list holds a value or one that is the same. A predicate sees the value as it was recorded.

    >>> allows({"A17"}, " a17 "), allows((0, 100), "99.50"), allows((0, 100), "900"), allows((0, 1), True)
    (True, True, False, False)
    """
    if callable(allowed):
        return within(allowed, value)
    if is_range(allowed):
        least, most = allowed
        number = number_of(value)
        return within(allowed, value) or (
            number is not None and number.is_finite() and Decimal(str(least)) <= number <= Decimal(str(most))
        )
    return within(allowed, value) or any(same(item, value) for item in allowed) or _are_recipients(allowed, value, every=True)


def touches(declared: Allowed, value: Any) -> bool:
    """Whether a value, or a part of a list of values or recipients, is one that an allow-list holds.

    >>> touches({"eve@evil.example"}, "ann@example.com, Eve <eve@evil.example>"), touches({"A17"}, ["a16", "a17 "])
    (True, True)
    """
    if allows(declared, value):
        return True
    if callable(declared):
        return False
    if isinstance(value, list | tuple):
        return any(touches(declared, item) for item in value)
    return not is_range(declared) and _are_recipients(declared, value, every=False)


def _are_recipients(allowed: Collection[Any], value: Any, *, every: bool) -> bool:
    """Whether a value names mail addresses of a collection: all of its recipients, or one of them."""
    if not isinstance(value, str | Mapping) or "@" not in f"{value}":
        return False
    known = {address(item) for item in allowed if isinstance(item, str)}
    found = [name in known for name in recipients(value, known) or ()]
    return bool(found) and (all(found) if every else any(found))


@lru_cache(maxsize=4096)
def _float_text(number: float) -> str:
    return _number_text(Decimal(str(number)))


_REMEMBERED: Final = 4_000
"""Characters of the longest text whose folded form is remembered."""


def _long_text(text: str) -> str:
    return _remembered_long(text) if len(text) <= _REMEMBERED else _folded(text)


@lru_cache(maxsize=256)
def _remembered_long(text: str) -> str:
    return _folded(text)


@lru_cache(maxsize=8192)
def _normal_text(text: str) -> str:
    if _PLAIN(text):
        return text
    plain = _folded(text)
    if "@" in plain and (match := _ONE_ADDRESS(plain)):
        return address(match[1] or match[2])
    if len(plain) > 14 and _GROUPED_IBAN(plain) and iban_valid(packed := squeezed(plain).upper()):
        return packed.casefold()
    if _ID(plain):
        return plain[1:] if plain[0] == "#" and len(plain) > 1 else plain
    if not any(char.isdigit() for char in plain):
        return plain
    if _STAMP.fullmatch(plain):
        return _moment(plain)
    day = whole_day(plain)
    if day is not None:
        return f"{day.year:04}-{day.month:02}-{day.day:02}" if day.year else f"--{day.month:02}-{day.day:02}"
    number = _amount(plain)
    if number is not None:
        return _number_text(number)
    return plain[1:] if plain.startswith("#") and plain[1:2].isalnum() else plain


def _folded(text: str) -> str:
    """A text without regard to case, width, invisible characters and spaces around and between words."""
    plain = text if text.isascii() else _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    return " ".join(plain.casefold().split())


def _moment(text: str) -> str:
    """A time stamp in normal form, with a zone in UTC. Midnight without a zone is the day."""
    try:
        found = datetime.datetime.fromisoformat(text.upper())
    except ValueError:
        return text
    if found.tzinfo is not None:
        return found.astimezone(datetime.UTC).isoformat()
    return found.date().isoformat() if found.time() == datetime.time() else found.isoformat()


def _amount(text: str) -> Decimal | None:
    """The number of a text that is a bare number or an amount of money; None for an id, or a number with leading zeros."""
    found = whole_quantity(text)
    if found is None or (found.dimension and len(found.dimension) != 3):
        return None
    return None if re.match(r"\D*0\d", text) else found.value


_MONEY: Final = re.compile(r"[$€£¥₹₩]|\d\s?[a-z]{3,7}\s*$|^\s*[a-z]{3}\s\s?\d", re.IGNORECASE)


@lru_cache(maxsize=8192)
def _currency(text: str) -> str:
    if _MONEY.search(text) is None:
        return ""
    found = whole_quantity(text.strip())
    return found.dimension if found is not None and len(found.dimension) == 3 else ""


def _number_text(number: Decimal) -> str:
    """A number as text: 30, 30.0 and 3E+1 have the same."""
    if not number.is_finite():
        return f"{number}".casefold()
    if not number:
        return "0"
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# -- addresses ----------------------------------------------------------------------------------------------------------

COPIES: Final = ("cc", "bcc")
"""Arguments that hold further recipients of a message, in any case."""
_FIELDS: Final = ("email", "address", "mail", "email_address", "emailAddress", "addr", "phone", "number", "id", "name")
"""Fields of a recipient that is written as an object; the first that is there is its address."""
_MAILS: Final = frozenset(("email", "mail", "email_address", "emailAddress", "addr"))
"""Fields that hold an address: an object with one of them is one recipient."""
_SPEC: Final = r"[\w.!#$%&'*+/=?^`{|}~\-]+@[^\s<>()\[\],;:\"@]+"
_ADDRESS: Final = re.compile(rf"(?<![\w.!#$%&'*+/=?^`{{|}}~\-]){_SPEC}")
_ANGLES: Final = re.compile(r"<\s*+(?:mailto:\s*+)?([^<>\s]++)\s*+>", re.IGNORECASE)
_SCHEME: Final = re.compile(r"\s*(?:mailto|smtp|tel|sms|sip|sips):(?://)?", re.IGNORECASE)
_SEPARATOR: Final = re.compile(r"[;\n\t|]+")
_COMMA: Final = re.compile(",")
"""What separates recipients, outside of quotation marks. A comma may also separate the parts of a name."""
_PHONE: Final = re.compile(r"\+?[\d\s().\-/]{7,24}")


def recipients(value: Any, whole: Collection[str] = ()) -> tuple[str, ...] | None:
    """The recipients that a value names, in normal form and without repetitions; None if one of them cannot be read.

    A text may hold several, separated by commas or semicolons. `whole`: texts in normal form that are one recipient, such as
    the name "Smith, Ann" of a list.

    >>> recipients("Ann <Ann@Example.com>; mailto:bob@example.com, +49 30 123-456")
    ('ann@example.com', 'bob@example.com', '+4930123456')
    >>> recipients([{"email": "ann@example.com"}, "Smith, Ann"], whole=["smith, ann"])
    ('ann@example.com', 'smith, ann')
    """
    if type(value) is str:  # nearly always
        return _recipients_of_text(value, frozenset(whole)) or None
    found = list(_recipients(value, frozenset(whole)))
    return None if None in found or not found else tuple(dict.fromkeys(item for item in found if item))


def _recipients(value: Any, whole: frozenset[str]) -> Iterator[str | None]:
    if isinstance(value, str):
        yield from _recipients_of_text(value, whole)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield f"{value}"
    elif isinstance(value, Mapping) and not ("pii" in value and ("sha256" in value or "redacted" in value)):
        yield from _recipients_of_object(value, whole)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _recipients(item, whole)
    else:
        yield None


def _recipients_of_object(value: Mapping[str, Any], whole: frozenset[str]) -> Iterator[str | None]:
    """The recipients in an object: its address if it is one recipient, otherwise those in its fields and inner objects."""
    name = next((name for name in _FIELDS if value.get(name)), "")
    if name:
        yield from _recipients(value[name], whole)
    inner = [
        item for item in value.values() if isinstance(item, Mapping | list | tuple) and item and item is not value.get(name)
    ]
    if name and name not in _MAILS:  # {"name": "board", "members": [...]}
        inner = [item for item in inner if "@" in f"{item}"]
    elif name:
        return
    texts = () if name else [item for item in value.values() if isinstance(item, str) and item.strip()]
    written = [item for item in texts if "@" in item] or ([] if inner else texts)
    if not name and not written and not inner:
        yield None
    for item in (*written, *inner):
        yield from _recipients(item, whole)


@lru_cache(maxsize=4096)
def _recipients_of_text(text: str, whole: frozenset[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, _recipients_in(text, whole))))


def _recipients_in(text: str, whole: frozenset[str]) -> Iterator[str]:
    plain = _folded(text)
    if not plain or plain in whole:
        yield from (plain,) if plain else ()
        return
    scheme = _SCHEME.match(text)
    if scheme and "?" in text:  # mailto:ann@example.com?cc=bob@example.com
        text, _, query = text.partition("?")
        for part in query.split("&"):
            name, _, more = part.partition("=")
            if name.casefold() in ("to", *COPIES):
                yield from _recipients_in(unquote(more), whole)
    for listed in _split_unquoted(_SEPARATOR, unquote(text) if scheme else text):
        for part in _rejoined([part for part in _split_unquoted(_COMMA, listed) if part.strip()]):
            several = _ADDRESS.findall(part) if "<" not in part else ()
            yield from map(address, several) if len(several) > 1 else (address(part),)


def _split_unquoted(separator: re.Pattern[str], text: str) -> Iterator[str]:
    """The parts of a text between separators that an even number of quotation marks follows."""
    quotes, counted, start = text.count('"'), 0, 0
    for match in separator.finditer(text):
        quotes -= text.count('"', counted, match.end())
        counted = match.end()
        if quotes % 2 == 0:
            yield text[start : match.start()]
            start = match.end()
    yield text[start:]


def _rejoined(parts: list[str]) -> list[str]:
    """The parts between commas, with halved names put together again: "Smith" before "Ann <ann@example.com>"."""
    found: list[str] = []
    for part in parts:
        if found and "@" not in found[-1] and _ANGLES.search(part) and re.search(r"\w", _ANGLES.sub("", part)):
            found[-1] = f"{found[-1]}, {part}"
        else:
            found.append(part)
    return found


@lru_cache(maxsize=8192)
def address(text: str) -> str:
    """One recipient in normal form: a mail address without name and comment, a phone number's digits, or a folded name.

    >>> address('"Smith, Ann" <Ann@EXAMPLE.com.>'), address("Ann (ann@example.com)"), address(" ANN ")
    ('ann@example.com', 'ann@example.com', 'ann')
    """
    scheme = _SCHEME.match(text)
    plain = _folded(text[scheme.end() :].partition("?")[0] if scheme else text)
    angles = _ANGLES.search(plain)
    if angles is not None:
        plain = angles[1]
    found = _ADDRESS.search(plain)
    if found is not None:
        local, _, host = found[0].strip("'`").rpartition("@")
        return f"{local}@{_host(host)}"
    if _PHONE.fullmatch(plain) and sum(char.isdigit() for char in plain) >= 7:
        digits = re.sub(r"\D", "", plain)
        return f"+{digits}" if plain.startswith("+") else f"+{digits[2:]}" if digits.startswith("00") else digits
    return plain.strip("\"'<>")


def _host(host: str) -> str:
    host = host.rstrip(".'`")
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


def without_tag(recipient: str) -> str:
    """A mail address without its tag: mail to ann+news@example.com reaches ann@example.com."""
    local, at, host = recipient.rpartition("@")
    return f"{local.partition('+')[0]}@{host}" if at and "+" in local.lstrip("+") else recipient


# -- personal data ------------------------------------------------------------------------------------------------------


def squeezed(text: str) -> str:
    """The letters and digits of a folded text. Card, account and phone numbers are the same however they are grouped."""
    return "".join(char for char in _folded(text) if char.isalnum())


def numbers_in(text: str) -> tuple[str, ...]:
    """The numbers in a text, in normal form."""
    return tuple(dict.fromkeys(_number_text(item.stated) for item in facts_of(text).quantities))


def dates_in(text: str) -> tuple[str, ...]:
    """The dates with a year in a text, in ISO form. A date with two readings is left out."""
    days = [readings[0] for readings in facts_of(text).days if len(readings) == 1 and readings[0].year]
    return tuple(dict.fromkeys(f"{day.year:04}-{day.month:02}-{day.day:02}" for day in days))

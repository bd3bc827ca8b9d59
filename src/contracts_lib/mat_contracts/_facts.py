"""Read numbers, dates and ids from a text, normalized so that different spellings of one value compare equal."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from decimal import Context, Decimal, InvalidOperation
from typing import Final, NamedTuple

MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH: Final = "|".join(f"{name[:3]}(?:{name[3:]})?" if name != "september" else "sept?(?:ember)?" for name in MONTHS)
_ISO = re.compile(r"(?<![\d-])(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d\d?)(?P=mark)(?P<day>\d\d?)(?![\d-]|[/.]\d)")
_DAY: Final = r"(?P<day>3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?(?![\d%]|[.,:]\d)"
_YEAR: Final = r"(?:,?\s+(?P<year>(?:19|20)\d\d)(?![\d%]))?"
_MONTH_FIRST = re.compile(rf"\b(?P<month>{_MONTH})\b\.?\s+{_DAY}{_YEAR}", re.IGNORECASE)
_DAY_FIRST = re.compile(rf"(?<![\w.,/-]){_DAY}(?:\.|\s+of)?\s*(?P<month>{_MONTH})\b\.?{_YEAR}", re.IGNORECASE)
WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SHORT = re.compile(r"(?<![\d/.-])(?P<one>\d\d?)(?P<mark>[/.])(?P<two>\d\d?)(?P=mark)(?P<year>(?:19|20)?\d\d)(?![\d/-]|\.\d)")
_WEEKDAY = re.compile(r"\b(" + "|".join(WEEKDAYS) + r")s?\b", re.IGNORECASE)
_CLOCK = re.compile(
    r"(?<![\d:.,])(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d)(?:\.\d+)?)?\s*(?P<half>[ap]\.?m\b\.?)?"
    r"|(?<![\w:.,$€£])(?P<hour12>1[0-2]|0?[1-9])\s*(?P<half12>[ap]\.?m\b\.?)",
    re.IGNORECASE,
)
_RANGE = re.compile(r"(?<=(?<![\w-])\d)\s?[-–]\s?(?=\d+(?![\w-]))|(?<=(?<![\w-])\d\d)\s?[-–]\s?(?=\d+(?![\w-]))|(?<=\d)–(?=\d)")
"""The dash of a range such as "5-7 days", but not the one in "555-1234"."""
_STAMP = re.compile(r"(?<=\d)T(?=\d\d:)")


class Day(NamedTuple):
    """A calendar day. `year` is 0 if the text names none."""

    year: int
    month: int
    day: int

    def agrees(self, other: Day) -> bool:
        """Whether both are the same day. A day without a year agrees with that day of any year."""
        return self[1:] == other[1:] and (self.year == other.year or not self.year or not other.year)


_EXACT: Final = Context(prec=1_000)
"""Python's own context keeps 28 digits, so that two long ids would be one; a test may also have set another one."""


class PhysicalQuantity(NamedTuple):
    """A number with a unit, converted to the base unit of its dimension: "2 h" has the value 7200 and the dimension "time".

    A bare number has the dimension "", and each currency is a dimension of its own. `stated` is the number before conversion,
    `written` the text that was matched.
    """

    value: Decimal
    dimension: str
    stated: Decimal
    written: str

    def agrees(self, other: PhysicalQuantity, tolerance: Decimal) -> bool:
        """Whether both are the same quantity. A bare number, as in most data, is taken to have the unit of the other."""
        if self.dimension == other.dimension:
            return _is_close(self.value, other.value, tolerance)
        one, two = (self, other) if not self.dimension else (other, self)
        if one.dimension:
            return False
        if _is_close(one.value, two.stated, tolerance):
            return True
        return two.dimension == "percent" and _is_close(_EXACT.multiply(one.value, Decimal(100)), two.stated, tolerance)


class Facts(NamedTuple):
    """The facts in a text. Each entry of `days` holds the possible readings of one date: 03/04/2024 has two."""

    days: tuple[tuple[Day, ...], ...]
    weekdays: frozenset[str]
    times: frozenset[str]
    quantities: tuple[PhysicalQuantity, ...]


def facts_of(text: str) -> Facts:
    """The dates, weekdays, times and quantities in a text. Digits of a date, a time or an id are not quantities."""
    text = _STAMP.sub(" ", text)
    days: list[tuple[Day, ...]] = []
    text = _ISO.sub(lambda match: _add_day(days, [_day(match["year"], match["month"], match["day"])], match), text)
    for pattern in (_DAY_FIRST, _MONTH_FIRST):
        text = pattern.sub(lambda match: _add_day(days, [_day_in_words(match)], match), text)
    text = _SHORT.sub(lambda match: _add_day(days, _days_in_digits(match), match), text)
    times: list[str] = []
    text = _CLOCK.sub(lambda match: _add_time(times, match), text)
    weekdays = frozenset(match[1].casefold() for match in _WEEKDAY.finditer(text))
    return Facts(tuple(days), weekdays, frozenset(times), tuple(_quantities(_RANGE.sub(" to ", text))))


def _add_day(days: list[tuple[Day, ...]], readings: Iterable[Day | None], match: re.Match[str]) -> str:
    """Append the valid readings of a matched date to `days`. Returns what replaces the match: itself if no reading is valid."""
    valid = tuple(day for day in readings if day is not None)
    if not valid:
        return match[0]
    days.append(valid)
    return " "


def _day_in_words(match: re.Match[str]) -> Day | None:
    """The day of a match with the name of a month, None if it is not a date."""
    month = match["month"]
    if month in ("may", "mar", "march") and not match["year"]:  # without a capital these are ordinary words
        return None
    number = next(place for place, name in enumerate(MONTHS, start=1) if name.startswith(month.casefold()[:3]))
    return _day(match["year"] or "0", str(number), match["day"])


def _days_in_digits(match: re.Match[str]) -> list[Day | None]:
    """The readings of a date in digits: 03.04.2024 puts the day first, 03/04/2024 may put either first."""
    year = match["year"] if len(match["year"]) == 4 else f"20{match['year']}"
    day_first = _day(year, match["two"], match["one"])
    return [day_first] if match["mark"] == "." else [day_first, _day(year, match["one"], match["two"])]


def _day(year: str, month: str, day: str) -> Day | None:
    found = Day(int(year), int(month), int(day))
    try:
        datetime.date(found.year or 2024, found.month, found.day)
    except ValueError:
        return None
    return found


_NAMED_WEEKDAY = re.compile(r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b[.,]*\s+", re.IGNORECASE)


def whole_day(text: str) -> Day | None:
    """The day that a text is, apart from its weekday; None if it is no date or has two readings, as 03/04/2024 has.

    >>> whole_day("Wednesday, 15 May 2024"), whole_day("due 15 May 2024")
    (Day(year=2024, month=5, day=15), None)
    """
    weekday = _NAMED_WEEKDAY.match(text)
    plain = text[weekday.end() :] if weekday else text
    iso = _ISO.fullmatch(plain)
    if iso is not None:
        return _day(iso["year"], iso["month"], iso["day"])
    for pattern in (_DAY_FIRST, _MONTH_FIRST):
        words = pattern.fullmatch(plain.title())
        if words is not None:
            return _day_in_words(words)
    digits = _SHORT.fullmatch(plain)
    readings = [] if digits is None else [day for day in _days_in_digits(digits) if day is not None]
    return readings[0] if len(set(readings)) == 1 else None


def whole_quantity(text: str) -> PhysicalQuantity | None:
    """The number or quantity that a text is; None if it says anything else.

    >>> whole_quantity("1.250,00 EUR").value, whole_quantity("A17")
    (Decimal('1250.00'), None)
    """
    found = list(_quantities(text))
    return found[0] if len(found) == 1 and found[0].written == text.strip() else None


def weekday_of(day: Day) -> str:
    """The weekday of a day, "" if its year is unknown."""
    return WEEKDAYS[datetime.date(*day).weekday()] if day.year else ""


def _add_time(times: list[str], match: re.Match[str]) -> str:
    """Append a matched time of day to `times`. Returns what replaces the match: itself if it is not a time."""
    hour = int(match["hour"] or match["hour12"])
    half = (match["half"] or match["half12"] or "").casefold()
    if half and not 1 <= hour <= 12:
        return match[0]
    if half:
        hour = hour % 12 + (12 if half.startswith("p") else 0)
    second = match["second"] or "00"
    times.append(f"{hour:02}:{match['minute'] or '00'}" + ("" if second == "00" else f":{second}"))
    return " "


_CURRENCIES: Final = {"$": "USD", "us$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "₩": "KRW", "dollar": "USD",
                      "dollars": "USD", "euro": "EUR", "euros": "EUR", "pound": "GBP", "pounds": "GBP",
                      "yen": "JPY"}  # fmt: skip
_CODES: Final = ("USD", "EUR", "GBP", "JPY", "CHF", "CAD", "AUD", "CNY", "INR", "SEK", "NOK", "DKK", "PLN", "KRW", "BRL", "MXN")
_UNITS: Final[dict[str, tuple[str, Decimal]]] = {
    name: (dimension, Decimal(factor))
    for dimension, table in {
        "time": {"ms millisecond milliseconds": "0.001", "s sec secs second seconds": "1", "min mins minute minutes": "60",
                 "h hr hrs hour hours": "3600", "d day days": "86400", "week weeks": "604800"},
        "month": {"month months": "1", "year years yr yrs": "12"},
        "mass": {"mg": "0.001", "g gram grams": "1", "kg kilogram kilograms": "1000", "lb lbs": "453.59237",
                 "oz": "28.349523125"},
        "length": {"mm": "0.001", "cm": "0.01", "m metre metres meter meters": "1",
                   "km kilometre kilometres kilometer kilometers":
                   "1000", "mi mile miles": "1609.344", "ft feet foot": "0.3048"},
        "volume": {"ml": "0.001", "l litre litres liter liters": "1"},
        "data": {"kb": "1000", "mb": "1000000", "gb": "1000000000", "tb": "1000000000000"},
        "percent": {"% percent": "1"},
        "celsius": {"°c": "1"},
        "fahrenheit": {"°f": "1"},
    }.items()
    for names, factor in table.items()
    for name in names.split()
}  # fmt: skip
_SCALES: Final = {"thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000, "k": 1_000, "bn": 1_000_000_000}
_WORDS: Final = "|".join(
    sorted((re.escape(word) for word in (*_UNITS, *_CURRENCIES, *_CODES)), key=lambda word: (-len(word), word))
)
_QUANTITY = re.compile(
    rf"(?<![\w.@/#-])(?P<sign>[-−+])?(?P<before>us\$|[$€£¥₹₩]|\b(?:{'|'.join(_CODES)})\s)?\s?(?P<inner>[-−])?"
    r"(?P<number>\d{1,3}(?:(?P<mark>[,.'’\u00a0\u202f ])\d{3})(?:(?P=mark)\d{3})*(?:[.,]\d+)?(?!\d)|\d+(?:[.,]\d+)?|\.\d+)"
    rf"(?:\s?(?P<scale>thousand|million|billion|bn|k)\b)?(?:[\s-]?(?P<unit>{_WORDS})(?![\w%]))?(?![\w/@]|-\w|[.,]\d)",
    re.IGNORECASE,
)


def _quantities(text: str) -> Iterable[PhysicalQuantity]:
    for match in _QUANTITY.finditer(text):
        value = _number(match["number"], match["mark"])
        if value is None:
            continue
        if match["scale"]:
            value = _EXACT.multiply(value, _SCALES[match["scale"].casefold()])
        if "-" in (sign := (match["sign"] or "") + (match["inner"] or "")) or "−" in sign:
            value = value.copy_negate()
        dimension, factor = _unit(match)
        base = value if factor == 1 else _EXACT.multiply(value, factor)
        yield PhysicalQuantity(base, dimension, value, match[0].strip())


def _unit(match: re.Match[str]) -> tuple[str, Decimal]:
    """The dimension of a matched quantity and the factor to its base unit."""
    for text in (match["before"], match["unit"]):
        word = (text or "").strip()
        if not word:
            continue
        if word.upper() in _CODES:
            return word.upper(), Decimal(1)
        known = _CURRENCIES.get(word.casefold())
        if known:
            return known, Decimal(1)
        if word.casefold() in _UNITS:
            return _UNITS[word.casefold()]
    return "", Decimal(1)


def _number(text: str, mark: str | None) -> Decimal | None:
    """The value of a number; `mark` separates its thousands. 1,250.00, 1.250,00, 1 250 and 1250 are equal.

    A single comma before three digits separates thousands. A single point never does: 1.250 is one and a quarter.
    """
    if mark and not (mark == "." and text.count(".") == 1 and "," not in text):
        whole, last = text, ""
        for decimal in (".", ","):
            if decimal != mark and decimal in text:
                whole, _, last = text.rpartition(decimal)
        text = whole.replace(mark, "") + (f".{last}" if last else "")
    else:
        text = text.replace(",", ".")
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def plain_number(text: str) -> str:
    """A number in its shortest form: 1250 for 1,250.00, 3 for 03."""
    if text.isdecimal() and text[0] != "0":
        return text
    sign = "-" if text.startswith("-") else ""
    whole, _, fraction = text.lstrip("-").replace(",", "").partition(".")
    fraction = fraction.rstrip("0")
    return sign + (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")


def _is_close(one: Decimal, two: Decimal, tolerance: Decimal) -> bool:
    return one == two or _EXACT.subtract(one, two).copy_abs() <= _EXACT.multiply(tolerance, max(one.copy_abs(), two.copy_abs()))


_TIME_OF_DAY = re.compile(r"\d?\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z\b)?")
_EMAIL = re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_ID = re.compile(r"#?(?<![\w@])(?=[\w-]{0,64}\d)(?=[\w-]{0,64}[A-Za-z_])\w+(?:-\w+)*(?![\w@])|#\w+")
_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th|s|k|x|h|m|am|pm|kg|g|km|cm|mm|ms|gb|mb|kb|ml|l)", re.IGNORECASE)


def ids_of(text: str) -> tuple[str, ...]:
    """The tokens that look like ids, in lower case and without a leading #: e-mail addresses, #17, and words with a digit.

    Plain numbers, dates and tokens such as "3rd", "10kg" and "2pm" are not ids.
    """
    found = [match[0].casefold().rstrip(".") for match in _EMAIL.finditer(text)]
    rest = _STAMP.sub(" ", _EMAIL.sub(" ", text))
    for pattern in (_ISO, _TIME_OF_DAY, _DAY_FIRST, _MONTH_FIRST):
        rest = pattern.sub(" ", rest)
    for match in _ID.finditer(rest):
        token = match[0].casefold()
        if not _ORDINAL.fullmatch(token) and not _is_phrase(token):
            found.append(token.lstrip("#"))
    return tuple(dict.fromkeys(found))


def _is_phrase(token: str) -> bool:
    """Whether a token is a phrase such as "5-day" or "24-hour"."""
    return bool(re.fullmatch(r"\d+(?:-[a-z]+)+", token))

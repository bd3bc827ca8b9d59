"""Personal data by kind: how each kind is recognized and masked.

| kind | rule | not matched |
|---|---|---|
| email | local part, @, a domain whose last label is letters | pkg@1.2.3, logo@2x.png, git@example.com:a/b |
| card | 13 to 19 digits, an issuer's range and length, Luhn (ISO/IEC 7812-1) | in UUIDs, decimals and longer words, after + |
| iban | country code, that country's length, mod 97 (ISO 13616) | other lengths |
| phone | `phonenumbers`: international with +, or national as written in one of `regions` | plain runs of digits, ISBNs |
| ssn | US: AAA-GG-SSSS by the rules of the SSA; without hyphens only after "SSN" or "social security" | 000, 666, 9xx areas |
| dni | ES: DNI and NIE with their letter (mod 23) | other letters |
| nir | FR: 15 digits with their key (mod 97) | other keys, impossible months and departments |
| ip | the address of one host, IPv4 or IPv6 | versions, networks, loopback, multicast, reserved |
| birth_date | a date after a word such as "born" or "date of birth" | dates without such a word |

No rule finds names of people or postal addresses reliably: they need a model, see `presidio`. An order number in an issuer's
range is a valid card number in one of ten cases, and no rule can tell the two apart: list such numbers in `allow=`.

Source: A1.8.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

from mat.core.errors import SpecError
from mat.core.extras import require
from mat.core.redact import birth_dates, iban_valid, ip_addresses, luhn_valid
from mat.core.value import FrozenDict, FrozenList
from mat_contracts._shared import names_of

KINDS: Final = ("email", "phone", "iban", "card", "ssn", "ip", "birth_date", "dni", "nir")
"""The kinds that the rules find. `mat.core.redact` notes all but the last two on values that are not kept in the clear."""
REGIONS: Final = ("US", "GB", "DE", "FR")
"""Regions whose national phone number formats are recognized by default (ISO 3166-1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A piece of personal data: its kind, and its position text[start:end]."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """Finds personal data in a text. `find` returns pieces that do not overlap, in text order; `kinds` lists what it finds.

    Any function will do that returns the same pieces for the same text whenever a trace is judged again.
    """

    kinds: tuple[str, ...]
    find: Callable[[str], tuple[Found, ...]] = field(repr=False)


Mask: TypeAlias = Callable[[str], str]


def rules(kinds: str | Iterable[str] = KINDS, *, regions: str | Iterable[str] = REGIONS) -> Detector:
    """A detector that applies the rules in the table above.

    It finds the given `kinds`. National phone numbers are recognized in the formats of `regions`.

    >>> [item.kind for item in rules().find("Card 4111 1111 1111 1111, order 4111 1111 1111 1112, app 1.2.3.4.5")]
    ['card']
    """
    chosen = tuple(kind for kind in KINDS if kind in known_kinds(kinds, KINDS))
    countries = tuple(region.upper() for region in names_of(regions, "regions"))
    odd = [region for region in countries if not re.fullmatch("[A-Z]{2}", region)]
    if odd:
        raise SpecError(what=f"not a region code: {', '.join(odd)}", fix='use two-letter codes, such as "US" or "DE"')
    finders: list[Callable[[str], Iterable[Found]]] = [_BY_RULE[kind] for kind in _FIRST if kind in chosen]
    phone = "phone" in chosen
    if phone:
        require("pii", "a detector of phone numbers", otherwise='leave "phone" out of its kinds')
    others = tuple(_BY_RULE[kind] for kind in _FIRST if kind not in chosen) if phone else ()

    def find(text: str) -> tuple[Found, ...]:
        if not _MAY_HOLD(text):
            return ()
        found = [item for finder in finders for item in finder(text)]
        if phone and _PHONE.search(text):  # a piece of another kind is no phone number, even if that kind is not wanted
            elsewhere = [*found, *(item for finder in others for item in finder(text))]
            found += _apart(_phones(text, countries), elsewhere)
        return _ordered(found)

    return Detector(kinds=chosen, find=find)


def known_kinds(kinds: str | Iterable[str], known: Iterable[str]) -> frozenset[str]:
    """The kinds that a user gives. SpecError if one is not known."""
    wanted, known = frozenset(names_of(kinds, "kinds")), tuple(known)
    unknown = sorted(wanted - set(known))
    if unknown:
        raise SpecError(what=f"unknown kind of personal data: {', '.join(unknown)}", fix=f"choose from {', '.join(known)}")
    return wanted


_MAY_HOLD: Final = re.compile(
    r"@|\d.{0,40}?\d|::", re.DOTALL
).search  # rules out most texts quickly: nearly all kinds hold two digits


def _ordered(found: Iterable[Found]) -> tuple[Found, ...]:
    """The pieces in text order. Of two that overlap, the one that starts first stays, then the longer one."""
    kept: list[Found] = []
    for item in sorted(found, key=lambda item: (item.start, -item.end, item.kind)):
        if not kept or item.start >= kept[-1].end:
            kept.append(item)
    return tuple(kept)


def _apart(found: Iterable[Found], taken: Iterable[Found]) -> list[Found]:
    """The pieces that overlap nothing in `taken`."""
    spans = sorted((item.start, item.end) for item in taken)
    kept, index = [], 0
    for item in sorted(found, key=lambda item: item.start):
        while index < len(spans) and spans[index][1] <= item.start:
            index += 1
        if index == len(spans) or spans[index][0] >= item.end:
            kept.append(item)
    return kept


_EMAIL = re.compile(
    r"(?<![\w.%+\-*])[\w.%+'\-]{1,64}@[^\W_](?:[\w\-]{0,62}\.){1,8}(?P<last>[^\W\d_]{2,24}|xn--[a-z0-9\-]{2,40})(?![\w@]|-\w)"
)
_FILES: Final = frozenset(("bmp", "css", "gif", "ico", "jpeg", "jpg", "js", "json", "pdf", "png", "svg", "webp"))


def _emails(text: str) -> Iterator[Found]:
    if "@" in text:
        for match in _EMAIL.finditer(text):
            if match["last"].lower() not in _FILES and not _is_remote(text, match):
                yield Found(kind="email", start=match.start(), end=match.end())


_REMOTE_PATH = re.compile(r":(?!//)(?:[\w.~\-]*/[\w./~\-]*|[\w.\-]+\.git\b)")
_REMOTE_SCHEME = re.compile(r"(?i)\b(?:git|ssh|git\+ssh|rsync|sftp|scp)://$")


def _is_remote(text: str, match: re.Match[str]) -> bool:
    """Whether an address is that of a host and a path on it, as git@example.com:team/project.git."""
    before = text[max(match.start() - 12, 0) : match.start()]
    return _REMOTE_PATH.match(text, match.end()) is not None or _REMOTE_SCHEME.search(before) is not None


_UUID = re.compile(r"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])")
_RUN = re.compile(r"(?<![\w.,])\d+(?:[ \u00a0\-]\d+)*(?![\w]|[.,]\d)")
_GROUP = re.compile(r"\d+")
_CARD_LENGTHS: Final = tuple(range(19, 12, -1))
_ISSUERS: Final[tuple[tuple[str, str, frozenset[int]], ...]] = (
    ("34", "34", frozenset((15,))), ("37", "37", frozenset((15,))),  # American Express
    ("300", "305", frozenset(range(14, 20))), ("3095", "3095", frozenset(range(14, 20))),  # Diners Club
    ("36", "36", frozenset(range(14, 20))), ("38", "39", frozenset(range(14, 20))),
    ("3528", "3589", frozenset(range(16, 20))),  # JCB
    ("4", "4", frozenset((13, 16, 19))),  # Visa
    ("2221", "2720", frozenset((16,))), ("51", "55", frozenset((16,))),  # Mastercard
    ("2200", "2204", frozenset(range(16, 20))),  # Mir
    ("5018", "5018", frozenset(range(13, 20))), ("5020", "5020", frozenset(range(13, 20))),  # Maestro
    ("5038", "5038", frozenset(range(13, 20))), ("5893", "5893", frozenset(range(13, 20))),
    ("6304", "6304", frozenset(range(13, 20))), ("6759", "6763", frozenset(range(13, 20))),
    ("6011", "6011", frozenset(range(16, 20))), ("644", "649", frozenset(range(16, 20))),  # Discover
    ("65", "65", frozenset(range(16, 20))),
    ("62", "62", frozenset(range(16, 20))), ("81", "81", frozenset(range(16, 20))),  # UnionPay
)  # fmt: skip
"""The range of first digits (first, last) and the possible lengths (ISO/IEC 7812; issuers' public tables)."""


_LONGEST_PHONE: Final = 15
"""Digits of the longest phone number with a country code (ITU-T E.164)."""


def issued(digits: str) -> bool:
    """Whether an issuer has cards with these first digits and this length."""
    return any(
        first <= digits[: len(first)] <= last for first, last, lengths in _ISSUERS if len(digits) in lengths
    )  # texts of one length compare as numbers do


def _cards(text: str) -> Iterator[Found]:
    """Card numbers made of whole groups of digits: "17 4111 1111 1111 1111" holds one, although it starts with 17."""
    unique = [match.span() for match in _UUID.finditer(text)] if text.count("-") > 3 else []
    for run in _RUN.finditer(text):
        if run.end() - run.start() < 13 or any(start <= run.start() < end for start, end in unique):
            continue
        if text[: run.start()].endswith(("+", "+ ")) and sum(map(str.isdigit, run[0])) <= _LONGEST_PHONE:
            continue
        groups = [match.span() for match in _GROUP.finditer(text, run.start(), run.end())]
        position = 0
        while position < len(groups):
            last = _card_from(text, groups, position)
            if last >= 0:
                yield Found(kind="card", start=groups[position][0], end=groups[last][1])
            position = last + 1 if last >= 0 else position + 1


def _card_from(text: str, groups: list[tuple[int, int]], first: int) -> int:
    """The last group of a card number that begins with group `first`, or -1 if there is none."""
    digits, longest = "", -1
    if text[groups[first][0]] not in "234568":  # no card number begins with another digit
        return longest
    for index in range(first, min(first + 19, len(groups))):
        digits += text[groups[index][0] : groups[index][1]]
        if len(digits) > _CARD_LENGTHS[0]:
            break
        if len(digits) >= _CARD_LENGTHS[-1] and issued(digits) and luhn_valid(digits):
            longest = index
    return longest


IBAN_LENGTHS: Final[Mapping[str, int]] = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29, "BY": 28,
    "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18,
    "FK": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HN": 28, "HR": 21, "HU": 28,
    "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20,
    "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MN": 20, "MR": 27, "MT": 31, "MU": 30, "NI": 28,
    "NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "RU": 33, "SA": 24,
    "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26,
    "UA": 29, "VA": 22, "VG": 24, "XK": 20, "YE": 30,
}  # fmt: skip
"""The length of an IBAN by country (SWIFT IBAN registry)."""
_IBAN = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}\d{2}(?=[ \-\u00a0]?[0-9A-Za-z])")
_IBAN_REST = re.compile(r"[0-9A-Za-z]|[ \-\u00a0](?=[0-9A-Za-z])")


def _ibans(text: str) -> Iterator[Found]:
    for match in _IBAN.finditer(text):
        length = IBAN_LENGTHS.get(match[0][:2].upper())
        packed, end = match[0].upper(), match.end()
        while length is not None and len(packed) < length:
            following = _IBAN_REST.match(text, end)
            if following is None:
                break
            packed, end = packed + following[0].strip(" -\u00a0").upper(), following.end()
        whole = len(packed) == length and not text[end : end + 1].isalnum()
        if whole and packed.isascii() and iban_valid(packed):
            yield Found(kind="iban", start=match.start(), end=end)


_SSN = re.compile(
    r"(?i)(?<![\w\-.])(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w\-])"
    r"|(?<![A-Za-z])(?:ssn|social[ ]security(?:[ ](?:number|no\.?))?)(?![A-Za-z])[^\d\n]{0,12}"
    r"(?P<number>(?!000|666|9\d\d)\d{3}[ ]?(?!00)\d{2}[ ]?(?!0000)\d{4})(?![\w\-])"
)


def _ssns(text: str) -> Iterator[Found]:
    for match in _SSN.finditer(text):
        group = "number" if match["number"] is not None else 0
        yield Found(kind="ssn", start=match.start(group), end=match.end(group))


_DNI = re.compile(r"(?<![\w\-])(?P<number>\d{8}|[XYZ]\d{7})-?(?P<letter>[A-Z])(?![\w])")
_DNI_LETTERS: Final = "TRWAGMYFPDXBNJZSQVHLCKE"
_NIR = re.compile(
    r"(?<![\w\-])[12][ ]?\d\d[ ]?(?:0[1-9]|1[0-2])[ ]?(?:0[1-9]|[1-8]\d|9[0-8]|2[AB])[ ]?\d{3}[ ]?\d{3}[ ]?\d\d(?![\w\-])"
)


def dni_valid(number: str, letter: str) -> bool:
    """Whether the letter of a Spanish DNI or NIE matches its number (Real Decreto 1553/2005; mod 23)."""
    return _DNI_LETTERS[int(number.translate(str.maketrans("XYZ", "012"))) % 23] == letter


def nir_valid(text: str) -> bool:
    """Whether the last two of the 15 characters of a French NIR match the others (INSEE: 97 less the number mod 97)."""
    packed = text.replace(" ", "").replace("2A", "19").replace("2B", "18")
    return 97 - int(packed[:-2]) % 97 == int(packed[-2:])


def _dnis(text: str) -> Iterator[Found]:
    for match in _DNI.finditer(text):
        if match[0].isascii() and dni_valid(match["number"], match["letter"]):
            yield Found(kind="dni", start=match.start(), end=match.end())


def _nirs(text: str) -> Iterator[Found]:
    for match in _NIR.finditer(text):
        if match[0].isascii() and nir_valid(match[0]):
            yield Found(kind="nir", start=match.start(), end=match.end())


def _spans(find: Callable[[str], Iterable[tuple[str, int, int]]]) -> Callable[[str], Iterator[Found]]:
    return lambda text: (Found(kind=kind, start=start, end=end) for kind, start, end in find(text))


_BY_RULE: Final[Mapping[str, Callable[[str], Iterable[Found]]]] = {
    "email": _emails, "iban": _ibans, "card": _cards, "ssn": _ssns, "ip": _spans(ip_addresses),
    "birth_date": _spans(birth_dates), "dni": _dnis, "nir": _nirs,
}  # fmt: skip
_FIRST: Final = tuple(_BY_RULE)
_PHONE = re.compile(r"(?<![\w.,@/=#\-])(?:\+[ ]?|00[ ]?(?=[1-9]))?\(?\d(?:[ \u00a0().\-/]{0,3}\d){6,16}(?![\w]|[.,\-/]\d)")
_NORTH_AMERICAN = re.compile(r"(?:\+?1[ .\-])?(?:\([2-9]\d\d\)[ ]?|[2-9]\d\d[ .\-])\d{3}[ .\-]\d{4}")


def _phones(text: str, regions: tuple[str, ...]) -> Iterator[Found]:
    for match in _PHONE.finditer(text):
        if _is_phone(match[0], regions):
            yield Found(kind="phone", start=match.start(), end=match.end())


@lru_cache(maxsize=4096)
def _is_phone(candidate: str, regions: tuple[str, ...]) -> bool:
    """Whether a text is a phone number: a country code with a possible length, or a region's format other than bare digits.

    Numbers reserved for fiction (555) are never valid, but tests use them like real ones. So the North American layout is
    enough, and an international number only has to be possible.
    """
    import phonenumbers

    if candidate.startswith("+"):
        try:
            return phonenumbers.is_possible_number(phonenumbers.parse(candidate, None))
        except phonenumbers.NumberParseException:
            return False
    if candidate.isdigit():
        return False
    if not {"US", "CA"}.isdisjoint(regions) and _NORTH_AMERICAN.fullmatch(candidate):
        return True
    return any(
        match.start == 0 and match.end == len(candidate)
        for region in regions
        for match in phonenumbers.PhoneNumberMatcher(candidate, region, leniency=phonenumbers.Leniency.STRICT_GROUPING)
    )


class Result(Protocol):
    """A piece of personal data as presidio's analyzer returns it."""

    entity_type: str
    start: int
    end: int
    score: float


class Analyzer(Protocol):
    """The part of presidio_analyzer.AnalyzerEngine that is used."""

    def analyze(self, text: str, language: str, entities: list[str]) -> Iterable[Result]: ...


ENTITIES: Final[Mapping[str, str]] = {
    "email": "EMAIL_ADDRESS", "phone": "PHONE_NUMBER", "iban": "IBAN_CODE", "card": "CREDIT_CARD", "ssn": "US_SSN",
    "ip": "IP_ADDRESS", "dni": "ES_NIF", "person": "PERSON", "location": "LOCATION", "date": "DATE_TIME", "nrp": "NRP",
    "passport": "US_PASSPORT", "license": "US_DRIVER_LICENSE", "nhs": "UK_NHS", "crypto": "CRYPTO", "url": "URL",
}  # fmt: skip
"""The kinds that `presidio` finds -> its names for them."""


def presidio(
    kinds: str | Iterable[str] = ("person", "location"),
    *,
    language: str = "en",
    score: float = 0.5,
    analyzer: Analyzer | None = None,
) -> Detector:
    """A detector that uses Microsoft Presidio, for kinds that need a language model: `detector=presidio()`, alone or in `both`.

    `language` is the language of the texts. `score` is the least confidence that counts, from 0 to 1. `analyzer` is the engine;
    by default one is created when the first text is read. The result depends on the installed model, so another model may judge
    the same trace differently. MatError if presidio is not installed.
    """
    wanted = known_kinds(kinds, ENTITIES)
    if not 0 <= score <= 1:
        raise SpecError(what=f"score={score!r} is not a confidence", fix="give score as a number from 0 to 1")
    if analyzer is None:
        require(
            "presidio", "presidio()", why="a language model finds names and places",
            otherwise="use rules(); the spaCy model of your language is a package of its own",
        )  # fmt: skip
    names = {ENTITIES[kind]: kind for kind in sorted(wanted)}
    engine: list[Analyzer] = [] if analyzer is None else [analyzer]

    def find(text: str) -> tuple[Found, ...]:
        if not engine:
            import presidio_analyzer

            engine.append(presidio_analyzer.AnalyzerEngine())
        results = engine[0].analyze(text=text, language=language, entities=list(names))
        return _ordered(
            Found(kind=names[item.entity_type], start=item.start, end=item.end)
            for item in results
            if item.score >= score and item.entity_type in names
        )

    return Detector(kinds=tuple(sorted(wanted)), find=find)


def both(*detectors: Detector) -> Detector:
    """A detector that finds what any of `detectors` finds.

    Of two pieces that overlap it keeps the one that starts first; if both start together, the longer one.
    """
    kinds = tuple(dict.fromkeys(kind for detector in detectors for kind in detector.kinds))
    return Detector(kinds=kinds, find=lambda text: _ordered(item for detector in detectors for item in detector.find(text)))


_BIRTH_KEY = re.compile(r"(?i)(?:.*[_\- ])?(?:dob|born(?:[_\- ]?on)?|birth[_\- ]?(?:date|day)|date[_\- ]?of[_\- ]?birth)")


def personal_data(value: Any, detector: Detector) -> list[tuple[str, str]]:
    """(kind, text) of all personal data inside a recorded value, keys included.

    The text is empty if the value was hashed or redacted when it was recorded, so that only the kinds in it are known.
    """
    if isinstance(value, str):
        return [(item.kind, value[item.start : item.end]) for item in detector.find(value)]
    if isinstance(value, dict):
        if is_withheld(value):
            return [(kind, "") for kind in value["pii"] if kind in detector.kinds]
        return [found for key, item in value.items() for found in _personal_data_under(key, item, detector)]
    if isinstance(value, list):
        return [found for item in value for found in personal_data(item, detector)]
    return []


def _personal_data_under(key: str, item: Any, detector: Detector) -> list[tuple[str, str]]:
    """The personal data in one field of a mapping. A date is a birth date if the field's name says so."""
    found = [*personal_data(key, detector), *personal_data(item, detector)]
    if isinstance(item, str) and not found and len(item) <= 40 and _is_birth_field(key, detector):
        found = [("birth_date", item[start - 5 : end - 5]) for _, start, end in birth_dates(f"born {item}")]
    return found


def _is_birth_field(key: str, detector: Detector) -> bool:
    return "birth_date" in detector.kinds and _BIRTH_KEY.fullmatch(key) is not None


def is_withheld(value: Any) -> bool:
    """Whether a value was recorded only as a digest or a mark, with the kinds of personal data in it."""
    return isinstance(value, dict) and "pii" in value and ("sha256" in value or "redacted" in value)


def _show_last(count: int, *, first: int = 0) -> Mask:
    """A mask that replaces letters and digits by stars, except the last `count` and the first `first` ones."""

    def mask(text: str) -> str:
        letters = [index for index, char in enumerate(text) if char.isalnum()]
        hidden = set(letters[first : max(first, len(letters) - count)])
        return "".join("*" if index in hidden else char for index, char in enumerate(text))

    return mask


MASKS: Final[Mapping[str, Mask]] = {
    "email": lambda text: "***@" + text.rpartition("@")[2],
    "card": _show_last(4),
    "iban": _show_last(4, first=2),
    "phone": _show_last(2),
    "ssn": _show_last(4),
    "dni": lambda text: "[dni]",
    "nir": lambda text: "[nir]",
    "ip": lambda text: "[ip]",
    "birth_date": lambda text: "[birth date]",
}
"""The default mask of each kind. Pieces of other kinds are replaced by the kind's name in brackets."""


_ROUNDS: Final = 8
"""How often a masked text is searched again. A model may keep finding its own marks, so there is a limit."""


def _bracketed(kind: str) -> Mask:
    return lambda text: f"[{kind}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactions:
    """The rewrite rule text -> masked text, made from a detector and masks. `value` masks all texts of a recorded value.

    Masking twice changes nothing more, and the detector finds nothing in a masked text.
    """

    detector: Detector
    masks: Mapping[str, Mask] = field(repr=False)

    def __call__(self, text: str) -> str:
        found = self.detector.find(text)
        if not found:
            return text
        text = _replace(text, found, lambda kind, piece: self.masks.get(kind, _bracketed(kind))(piece))
        for _ in range(_ROUNDS):  # the digits that a mask shows may form another piece with their neighbors
            found = self.detector.find(text)
            if not found:
                break
            text = _replace(text, found, lambda kind, piece: f"[{kind}]")
        return text

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return value if is_withheld(value) else FrozenDict(self._field(key, item) for key, item in value.items())
        return FrozenList(map(self.value, value)) if isinstance(value, list) else value

    def _field(self, key: str, item: Any) -> tuple[str, Any]:
        clean = self.value(item)
        if isinstance(clean, str) and clean == item and _personal_data_under(key, item, self.detector):
            clean = self.masks.get("birth_date", _bracketed("birth_date"))(item)
        return self(key), clean


def _replace(text: str, found: Iterable[Found], mask: Callable[[str, str], str]) -> str:
    """The text with each piece replaced by mask(kind, piece)."""
    parts, position = [], 0
    for item in found:
        parts += [text[position : item.start], mask(item.kind, text[item.start : item.end])]
        position = item.end
    return "".join((*parts, text[position:]))


def redactions(
    kinds: str | Iterable[str] | None = None, *, detector: Detector | None = None, masks: Mapping[str, Mask] | None = None
) -> Redactions:
    """Redaction rules as a function text -> masked text, which a governance rule can use as a rewrite.

    The masks are stable. They show the domain of an e-mail address, the last four characters of a card, an IBAN or an SSN, and
    the last two digits of a phone number. `masks` (kind -> function) replaces some of them. If the detector finds a masked
    piece again, the piece becomes its kind in brackets. `kinds` limits the rules, by default to all kinds of the detector;
    `detector` is `rules()` by default.

    >>> redactions()("Ann, ann@example.com, card 4111 1111 1111 1111, from 203.0.113.7")
    'Ann, ***@example.com, card **** **** **** 1111, from [ip]'
    """
    found = narrowed(detector, kinds)
    extra = sorted(set(masks or ()) - set(found.kinds))
    if extra:
        raise SpecError(
            what=f"masks= names {', '.join(extra)}, which the detector does not find",
            fix=f"choose from {', '.join(found.kinds)}",
        )
    return Redactions(detector=found, masks={**MASKS, **(masks or {})})


def narrowed(detector: Detector | None, kinds: str | Iterable[str] | None) -> Detector:
    """A detector for some kinds only: the rules for them, or `detector` without all other kinds."""
    if detector is None:
        return rules(KINDS if kinds is None else kinds)
    if kinds is None:
        return detector
    wanted, find_all = known_kinds(kinds, detector.kinds), detector.find
    return Detector(
        kinds=tuple(kind for kind in detector.kinds if kind in wanted),
        find=lambda text: tuple(item for item in find_all(text) if item.kind in wanted),
    )


_HALF_MASKED = re.compile(r"(?<![\w*•#])(?=[\d \-]{0,24}[*•xX#])(?:[\d*•xX#][ \-]?){12,18}[\d*•xX#](?![\w*•#])")
_HALF_SSN = re.compile(r"(?<![\w*•#\-])(?:[*•xX#]{3}-\d{2}|\d{3}-[*•xX#]{2})-\d{4}(?![\w\-])")
CARD_SHOWN: Final = 4
"""The most digits of a card that a mask may show."""


def half_masked(text: str) -> tuple[str, ...]:
    """The kinds of the numbers in a text whose mask shows too much: more than four digits of a card, or than the serial number
    of an SSN."""
    if not _MAY_HOLD(text):
        return ()
    found = ["card" for match in _HALF_MASKED.finditer(text) if sum(char.isdigit() for char in match[0]) > CARD_SHOWN]
    return (*found, *("ssn" for _ in _HALF_SSN.finditer(text)))

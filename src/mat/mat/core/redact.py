"""Redaction: cut secrets and tokens out of values before sealing, and keep, hash or redact fields.

A redacted text reads `[redacted:kind#n]`. The number counts distinct texts within the run, so equal texts stay equal and
nothing can be computed back from the artifact, as it could from a keyed digest whose key the run's seed gives away.

Source: A1.8.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast, get_origin, get_type_hints

from mat.core import limits
from mat.core.digest import canonical, digest
from mat.core.site import clean_site
from mat.core.value import FrozenDict, FrozenList, HiddenText, SecretText, Value

RedactionPolicy: TypeAlias = Literal["keep", "hash", "redact"]
POLICIES: Final = ("keep", "hash", "redact")

_PREFIXED: Final = "|".join((
    r"(?:sk|pk|rk)[-_](?=[-_a-z]{0,40}[A-Z0-9]|[a-z]{16})",  # OpenAI, Anthropic, Stripe and many others
    "gh[oprsu]_", "github_pat_", "glpat-", "gldt-", "glrt-",
    "xox[abeprs]-", "xapp-",  # Slack
    "AIza", "GOCSPX-", r"ya29\.",  # Google
    "hf_", "npm_", "pypi-", "do[opr]_v1_", "shp(?:at|ca|pa|ss)_", "sq0[a-z]{3}-", "dapi(?=[0-9a-f]{32})", "NRAK-", "lin_api_",
    "ATATT", "r8_",
))  # fmt: skip
"""How keys of well-known services begin, as their documentation says."""
_TOKENS = re.compile(
    r"(?P<bearer>(?i:bearer|basic)\s+[A-Za-z0-9._~+/=\-]{12,})"
    rf"|(?P<key>\b(?:(?:{_PREFIXED})[-_A-Za-z0-9]{{14,}}|(?:AKIA|ASIA)[A-Z0-9]{{14,}}"
    r"|SG\.[-_A-Za-z0-9]{16,}\.[-_A-Za-z0-9]{16,}|\d{8,10}:AA[-_A-Za-z0-9]{33}\b))"  # SendGrid, Telegram
    r"|(?P<jwt>\beyJ(?:(?!\beyJ)[A-Za-z0-9_\-]){8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,})"
    r"|(?P<private_key>-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----))+-----END [A-Z ]{0,40}PRIVATE KEY-----)"
    # user and password of a URL; in a quoted one they end with the quote
    r"|(?<=://)(?P<password>[^\s/:@?#\[\]\"'\\<>]{0,64}:(?:[^\s/@?#\"'\\<>]|'(?![,:\]})])){1,256})@(?=[\w\[])"
    r"|(?:(?<=AccountKey=)|(?<=SharedAccessKey=))(?P<account_key>[A-Za-z0-9+/]{40,}={0,2})"
    r"|[?&](?:(?i:access_token|api[_-]?key|auth_token|client_secret|id_token|password|refresh_token|secret|token)="
    r"|(?i:key)=(?=[-\w]{16}))"
    r"(?P<parameter>[^\s&#\"'<>]{8,})"
)
CUT_OUT: Final = re.compile(rf"\[redacted:(?:secret|{'|'.join(_TOKENS.groupindex)})#\d+\]")
"""The mark of a declared secret or of a token, in a record."""
_MARKS: Final = (
    "eyJ", "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_", "glpat-", "gldt-",
    "glrt-", "xox", "xapp-", "AKIA", "ASIA", "AIza", "GOCSPX-", "ya29.", "hf_", "npm_", "pypi-", "_v1_", "shp", "sq0", "dapi",
    "NRAK-", "lin_api_", "ATATT", "r8_", "SG.", ":AA", "PRIVATE KEY-----", "AccountKey=", "SharedAccessKey=",
)  # fmt: skip
"""Every token contains one of these, or one of _LOWER_MARKS in lower case, or is a password of a URL."""
_LOWER_MARKS: Final = ("bearer", "basic", "token=", "secret=", "password=", "key=")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORDS: Final = frozenset((
    "password", "passwd", "pwd", "passphrase", "passcode", "secret", "secrets", "apikey", "authtoken",
    "accesstoken", "bearertoken", "refreshtoken", "sessiontoken", "secretkey", "privatekey", "clientsecret", "credential",
    "credentials", "authorization", "bearer", "jwt", "otp", "totp", "cvv", "cvc", "mnemonic",
))  # fmt: skip
"""Names whose last word is one of these hold a secret."""
_SECRET_KEYS: Final = frozenset((
    "api", "secret", "access", "auth", "private", "master", "signing", "encryption", "account", "session", "shared", "ssh",
    "pgp", "gpg", "hmac", "license", "webhook",
))  # fmt: skip
"""Words that make a key a secret one: api_key."""
_SECRET_PAIRS: Final = frozenset((
    ("connection", "string"), ("security", "code"), ("security", "answer"), ("recovery", "code"), ("backup", "code"),
    ("mfa", "code"), ("seed", "phrase"), ("card", "number"), ("pin", "code"),
))  # fmt: skip
_SECRET_TOKENS: Final = frozenset((
    "api", "auth", "access", "refresh", "session", "id", "bearer", "personal", "private", "secret", "service", "bot", "client",
    "device", "oauth", "sas", "github", "gitlab", "slack", "npm", "hf", "aws", "registry", "deploy", "admin", "root", "login",
))  # fmt: skip
"""Words that make a token a secret one. A token or cookie alone may be an artifact that contracts judge in a trace."""
_SHORTEST_TOKEN: Final = 16
"""The length of the shortest token that is looked for."""

# every repetition is bounded and starts at a border, so that a megabyte of any text is read in linear time
_EMAIL = re.compile(r"(?<![A-Za-z0-9._%+\-])[A-Za-z0-9._%+\-]{1,64}@[A-Za-z0-9\-]{1,63}(?:\.[A-Za-z0-9\-]{1,63}){1,8}")
_PHONE = re.compile(r"(?<![\w.])\+?\(?\d[\d\s().\-]{7,24}\d(?!\w)")
_CARD = re.compile(r"(?<!\d)(?:\d[ \-]?){12,18}\d(?!\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{1,4}){3,8}\b")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d.*)?")
_SSN = re.compile(r"(?<![\d\-])(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d\-])")
_IP = re.compile(
    r"(?<![\w.:\-])(?:(?:\d{1,3}\.){3}\d{1,3}(?!\w|[.\-/]\d)|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:]|[./]\d))"
)
_VERSION_BEFORE = re.compile(r"(?i)\b(?:version|ver|release|build|firmware|rev|revision|section|chapter)\b[\s:=.#]{0,3}$")
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_BIRTH = re.compile(
    r"(?i)(?<![A-Za-z])(?:born|birth[ _\-]?(?:date|day)|date[ _\-]of[ _\-]birth|d\.?o\.?b\b\.?|geboren"
    r"|geburts(?:datum|tag)|née? le)"
    r"(?![A-Za-z])[^\d\n]{0,20}?"
    r"(?P<date>\d{4}[\-/.]\d{1,2}[\-/.]\d{1,2}|\d{1,2}[\-/.]\d{1,2}[\-/.](?:\d{4}|\d{2})"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?\.?[ ](?:of[ ])?{_MONTH},?[ ]\d{{4}}|{_MONTH}[ ]\d{{1,2}}(?:st|nd|rd|th)?,?[ ]\d{{4}})(?!\d)"
)


def find_pii(text: str) -> tuple[tuple[str, str], ...]:
    """(kind, text) for each personal identifier found; cards and IBANs only if their checksum is correct.

    These are the rules at sealing, quick and rather too eager: what is not kept can be judged later by the kinds noted only.
    `mat_contracts.pii` judges texts in the clear by stricter ones.
    """
    found: list[tuple[str, str]] = [("email", match[0]) for match in _EMAIL.finditer(text)]
    taken: list[str] = []
    for match in _IBAN.finditer(text):
        if iban_valid(match[0]):
            found.append(("iban", match[0]))
            taken.append(match[0])
    for match in _CARD.finditer(text):
        if luhn_valid(match[0]):
            found.append(("card", match[0]))
            taken.append(match[0])
    for match in _SSN.finditer(text):
        found.append(("ssn", match[0]))
        taken.append(match[0])
    others = [(kind, text[start:end]) for kind, start, end in (*ip_addresses(text), *birth_dates(text))]
    taken += [item for kind, item in others if kind == "ip"]
    for match in _PHONE.finditer(text):
        digits = sum(char.isdigit() for char in match[0])
        grouped = match[0].startswith(("+", "(")) or any(char in " -." for char in match[0].strip())
        known = any(match[0].strip() in other or other in match[0] for other in taken) or _DATE.fullmatch(match[0].strip())
        if 9 <= digits <= 15 and grouped and not known:
            found.append(("phone", match[0].strip()))
    return (*found, *others)


def ip_addresses(text: str) -> tuple[tuple[str, int, int], ...]:
    """("ip", start, end) of the addresses of single hosts, of both versions.

    Four numbers after a word such as "version" are not an address; networks (10.0.0.0/8) and loopback, unspecified,
    multicast and reserved addresses are left out, because they identify nobody.
    """
    if text.count(".") < 3 and text.count(":") < 2:
        return ()
    import ipaddress

    found = []
    for match in _IP.finditer(text):
        try:
            address = ipaddress.ip_address(match[0])
        except ValueError:  # 999.1.1.1, 012.1.1.1 and 12:30:45 are no addresses
            continue
        plain = address.is_loopback or address.is_unspecified or address.is_multicast or address.is_reserved
        words = address.version == 6 and not any(char.isdigit() for char in match[0])  # a::b is rather a name in a program
        if not plain and not words and not _VERSION_BEFORE.search(text, max(0, match.start() - 16), match.start()):
            found.append(("ip", match.start(), match.end()))
    return tuple(found)


def birth_dates(text: str) -> tuple[tuple[str, int, int], ...]:
    """("birth_date", start, end) of the dates that follow a word such as "born" or "date of birth"."""
    return tuple(("birth_date", match.start("date"), match.end("date")) for match in _BIRTH.finditer(text))


def luhn_valid(text: str) -> bool:
    """Whether the 13 to 19 digits of a text pass the check of ISO/IEC 7812-1, annex B; other characters do not count."""
    digits = [int(char) for char in text if char.isdigit()]
    doubled = [
        digit if index % 2 else (digit * 2 - 9 if digit > 4 else digit * 2)
        for index, digit in enumerate(digits, len(digits) % 2)
    ]
    return 13 <= len(digits) <= 19 and sum(doubled) % 10 == 0


def iban_valid(text: str) -> bool:
    """Whether a text of letters, digits and spaces passes the check of ISO 13616 (mod 97-10 of ISO 7064)."""
    packed = text.replace(" ", "")
    if not 15 <= len(packed) <= 34:
        return False
    return int("".join(str(int(char, 36)) for char in packed[4:] + packed[:4])) % 97 == 1


def shares_piece(text: str, other: str, least: int = 4) -> bool:
    """Whether two texts have `least` characters in a row in common."""
    pieces = {other[start : start + least] for start in range(len(other) - least + 1)}
    return any(text[start : start + least] in pieces for start in range(len(text) - least + 1))


_SHORTEST_ENCODED: Final = 8
"""Characters of the shortest secret in hex or base64 that is looked for: a shorter one occurs in other texts by chance."""
_MANY: Final = 500
"""From this many needles on, a text is read once for all of them, and not once for each."""
_SAFE: Final = re.compile(r"[A-Za-z0-9_.\-]+")
"""Characters that no usual escape changes."""
_ENTITIES: Final = {"<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_CONTROLS: Final = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}


@lru_cache(maxsize=1_000)
def _form_pattern(secret: str) -> str:
    """A pattern of the forms in which a secret may stand in a text, without groups that capture.

    As it is; escaped by JSON, `repr`, HTML or a URL, as a whole or in part, to any depth (JSON inside JSON); in hex; in base64,
    standard and URL-safe, with and without padding, also where it begins in the middle of a longer encoded text. It reads any
    text in linear time: what repeats is possessive, and begins where it cannot have begun earlier.
    """
    parts: list[str] = []
    for index, char in enumerate(secret):
        if char != "\\":
            parts.append(_char_pattern(char, first=index == 0, escaped=index > 0 and secret[index - 1] == "\\"))
        elif not index or secret[index - 1] != "\\":  # escapes double them, so that their number says nothing
            run = r"(?<!\\)\\++" if not index else r"\\++"
            parts.append(rf"(?:{run}(?i:u005c|x5c)|{run}|%(?:25)*+5[Cc])")
    encoded = sorted(_encoded(secret), key=lambda form: (-len(form), form))
    return "|".join(("".join(parts), *(_encoded_pattern(form) for form in encoded)))


def _char_pattern(char: str, *, first: bool, escaped: bool) -> str:
    """A pattern of one character, which is no backslash. `first` of the secret; `escaped`: it has a backslash in front.

    That one has taken all the backslashes that there are.
    """
    code = ord(char)
    units = char.encode("utf-16-be", "surrogatepass").hex()
    data = char.encode("utf-8", "surrogatepass").hex()
    before = r"\\*+" if escaped else r"(?<!\\)\\++" if first else r"\\++"
    perhaps = "" if first else r"\\*+"
    slashes = (r"u" + r"\\++u".join(units[start : start + 4] for start in range(0, len(units), 4)),
               r"\\++".join(f"x{data[start : start + 2]}" for start in range(0, len(data), 2)),
               *((f"x{code:02x}",) if code < 256 else (f"U{code:08x}",)))  # fmt: skip
    found = [f"{before}(?i:{'|'.join(dict.fromkeys(slashes))})"]
    quoted = (f"%(?:25)*+{data[start : start + 2]}" for start in range(0, len(data), 2))
    found.append("%(?:25)++" if char == "%" else f"(?i:{''.join(quoted)})")
    if char == "&":
        found.append(f"{perhaps}&(?:amp;)++")
    elif not _SAFE.match(char):
        names = (*filter(None, (_ENTITIES.get(char),)), f"#0*+{code}", f"#x0*+{code:x}")
        found.append(f"{perhaps}&(?:amp;)*+(?i:{'|'.join(names)});")
    if char in _CONTROLS:
        found.append(before + _CONTROLS[char])
    if char == " ":
        found.append(r"\+")
    found.append(re.escape(char) if _SAFE.match(char) else f"{perhaps}{re.escape(char)}")
    return f"(?:{'|'.join(found)})"


def _encoded(secret: str) -> dict[str, None]:
    """The secret, as it is and inside JSON, in hex and base64: each the part that does not depend on what surrounds it."""
    found: dict[str, None] = {}
    for text in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        data = text.encode("utf-8", "surrogatepass")
        found |= dict.fromkeys((data.hex(), *_base64_cores(data)))
    return {form: None for form in found if len(form) >= _SHORTEST_ENCODED}


def _base64_cores(data: bytes) -> Iterable[str]:
    """The characters in base64 that depend on `data` alone: where it stands alone, and where others precede and follow it."""
    yield base64.b64encode(data).decode("ascii").rstrip("=")
    for before in range(3):
        whole = base64.b64encode(bytes(before) + data).decode("ascii").rstrip("=")
        last = len(whole) - ((before + len(data)) % 3 > 0)
        yield whole[(0, 2, 3)[before] : last]


def _encoded_pattern(form: str) -> str:
    if not form.strip("0123456789abcdef"):
        return f"(?i:{form})"
    return form.replace("+", r"(?:[+\-]|%2[Bb])").replace("/", r"(?:\\*+/|_|%2[Ff])")


@lru_cache(maxsize=1_000)
def _needles(secret: str) -> tuple[str, ...]:
    """Texts of which one stands in every form of the secret."""
    found: dict[str, None] = {}
    core = max(_SAFE.findall(secret), key=len, default="")
    first = core[:1] or secret[0]
    if core or len(secret) == secret.count("\\"):
        found[core or "\\"] = None
    else:  # none of its characters stays as it is: the first one in each form
        found |= dict.fromkeys((first, *filter(None, (_ENTITIES.get(first),)), "amp", "apos", "#"))
        if first in _CONTROLS:
            found["\\" + _CONTROLS[first]] = None
        if first == " ":
            found["+"] = None
        if first == "\\":
            found["%5"] = None
    data, unit = first.encode("utf-8", "surrogatepass").hex()[:2], first.encode("utf-16-be", "surrogatepass").hex()[:4]
    found |= dict.fromkeys((f"u{unit}", f"u{unit.upper()}", f"x{data}", f"x{data.upper()}", f"%{data}", f"%{data.upper()}"))
    found |= dict.fromkeys((f"25{data}", f"25{data.upper()}"))
    if ord(first) < 256:
        found |= dict.fromkeys((f"x{ord(first):02x}", f"x{ord(first):02X}"))
    else:
        found |= dict.fromkeys((f"U{ord(first):08x}", f"U{ord(first):08X}"))
    for form in _encoded(secret):
        if not form.strip("0123456789abcdef"):
            found |= dict.fromkeys((form, form.upper()))
        else:
            found[max(re.split("[+/]", form), key=len)] = None
    return tuple(found)


class Finder:
    """Finds secrets in texts, in all their forms."""

    __slots__ = ("_heads", "_needles", "_size", "secrets")

    def __init__(self) -> None:
        self.secrets: dict[str, tuple[str, ...]] = {}
        self._needles: dict[str, None] = {}
        self._size, self._heads = 0, frozenset[str]()

    def __bool__(self) -> bool:
        return bool(self.secrets)

    def add(self, secret: str) -> None:
        """Look for this secret, too; "" is none."""
        if secret and secret not in self.secrets:
            needles = self.secrets[secret] = _needles(secret)
            self._needles |= dict.fromkeys(needles)
            self._size = 0

    def may_be_in(self, text: str) -> bool:
        """Whether a text may hold a secret. Most texts hold none, and the pattern of `replaced` reads much more slowly."""
        if len(self._needles) < _MANY:
            return any(needle in text for needle in self._needles)
        if not self._size:
            self._size = min(map(len, self._needles))
            self._heads = frozenset(needle[: self._size] for needle in self._needles)
        size, heads = self._size, self._heads
        return any(text[start : start + size] in heads for start in range(len(text) - size + 1))

    def replaced(self, text: str, mark: Callable[[str], str]) -> str:
        """The text with `mark(secret)` in place of each form of a secret."""
        found = [secret for secret, needles in self.secrets.items() if any(needle in text for needle in needles)]
        if not found:
            return text
        longest_first = tuple(sorted(found, key=lambda secret: (-len(secret), secret)))  # one may lie inside another
        return _pattern_of(longest_first).sub(lambda match: mark(longest_first[(match.lastindex or 1) - 1]), text)


@lru_cache(maxsize=256)
def _pattern_of(secrets: tuple[str, ...]) -> re.Pattern[str]:
    """A pattern of the forms of these secrets, with a group for each."""
    return re.compile("|".join(f"({_form_pattern(secret)})" for secret in secrets))


# -- what was declared, and documents ---------------------------------------------------------------------------------


class Declarations:
    """The secrets that were declared in this process. `everywhere`: those that all runs cut out."""

    __slots__ = ("_numbers", "everywhere", "finder")

    def __init__(self) -> None:
        self.everywhere: dict[str, None] = {}
        self.finder = Finder()
        self._numbers: dict[str, int] = {}

    def add(self, secret: str) -> None:
        if secret and secret not in self._numbers:
            self._numbers[secret] = len(self._numbers) + 1
            self.finder.add(secret)

    def clean(self, text: str) -> str:
        """A text of a document without declared secrets; its marks are numbered in the order of declaration."""
        return self.finder.replaced(text, self._mark) if self.finder.may_be_in(text) else text

    def _mark(self, secret: str) -> str:
        return f"[redacted:secret#{self._numbers[secret]}]"


_declared = Declarations()
T = TypeVar("T")


def declare(secret: str, *, everywhere: bool) -> None:
    """Note that a text is a secret: no document that this process writes from now on contains it.

    `everywhere`: also all runs that begin from now on cut it out. Otherwise only the run that declares it does.
    """
    plain = str.__str__(secret)
    if everywhere:
        _declared.everywhere[plain] = None
    _declared.add(plain)


def process_secrets() -> dict[str, None]:
    """The secrets that all runs of this process cut out."""
    return dict(_declared.everywhere)


def cleaned(document: T) -> T:
    """A document without declared secrets: every text in it, of dataclasses, mappings (keys, too), lists and paths.

    Whoever writes a file, a report or a line on the terminal passes it through here, whoever composed it. What contains no
    secret is returned unchanged, as the same object.
    """
    return clean_texts(document, _declared.clean) if _declared.finder else document


def clean_texts(value: T, clean: Callable[[str], str], *, kept: frozenset[str] = frozenset()) -> T:
    """The value with `clean` applied to every text in it; the same object if nothing changes.

    `kept`: names of fields of dataclasses that stay as they are.
    """
    return cast(T, _clean_texts(value, clean, kept))


def _clean_texts(value: Any, clean: Callable[[str], str], kept: frozenset[str]) -> Any:
    kind = type(value)
    if kind is str:
        after: Any = clean(value)
        return value if after == value else after
    if value is None or kind in _NUMBERS:
        return value
    if kind is bytes:
        text = value.decode("utf-8", "surrogateescape")
        after = clean(text)
        return value if after == text else after.encode("utf-8", "surrogateescape")
    if isinstance(value, dict):
        pairs = [(_clean_texts(key, clean, kept), _clean_texts(item, clean, kept)) for key, item in value.items()]
        if all(new[0] is key and new[1] is item for new, (key, item) in zip(pairs, value.items(), strict=True)):
            return value
        return FrozenDict(pairs) if kind is FrozenDict else dict(pairs)
    if isinstance(value, list | tuple | frozenset | set):
        items = [_clean_texts(item, clean, kept) for item in value]
        if all(new is item for new, item in zip(items, value, strict=True)):
            return value
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    if isinstance(value, str | PurePath):
        text = str.__str__(value) if isinstance(value, str) else str(value)
        after = clean(text)
        return value if after == text else after if isinstance(value, str) else kind(after)
    if is_dataclass(value) and not isinstance(value, type):
        return _clean_fields(value, clean, kept)
    return value


@lru_cache(maxsize=256)
def _closed_fields(kind: Any) -> frozenset[str]:
    """The fields of a dataclass whose values are words of ours (a Literal): none is a text of anybody, even if it is equal."""
    try:
        hints = get_type_hints(kind)
    except (NameError, TypeError):  # a name that only a type checker knows
        return frozenset()
    return frozenset(name for name, hint in hints.items() if get_origin(hint) is Literal)


def _clean_fields(value: Any, clean: Callable[[str], str], kept: frozenset[str]) -> Any:
    changed = {}
    closed = _closed_fields(cast(Hashable, type(value)))
    for field in fields(value):
        if not field.init or field.name in kept or field.name in closed:
            continue
        before = getattr(value, field.name)
        if field.name == "site" and type(before) is str:
            after: Any = clean_site(before, clean)
        else:
            after = _clean_texts(before, clean, kept)
        if after is not before:
            changed[field.name] = after
    return replace(value, **changed) if changed else value


class Redactor:
    """The redaction of one run. It numbers the texts that it cuts out, in the order of the trace."""

    __slots__ = ("_digest", "_finder", "_numbers")

    def __init__(self, secrets: Mapping[str, None] | None = None) -> None:
        self._finder = Finder()
        self._numbers: dict[tuple[str, str], int] = {}
        self._digest = (0, "")
        for secret in secrets or ():
            self.add_secret(secret)

    @property
    def knows_secrets(self) -> bool:
        """Whether any secret was declared."""
        return bool(self._finder)

    @property
    def secrets(self) -> int:
        """How many secrets are known."""
        return len(self._finder.secrets)

    def digest(self) -> str:
        """A digest of everything cut out so far, in order; "" if nothing was. Only for the search's keys, never for files.

        Numbers distinguish texts within one run, not between two: a token damaged in two different ways gets the same number.
        """
        if self._digest[0] != len(self._numbers):
            self._digest = (len(self._numbers), digest([list(pair) for pair in self._numbers]))
        return self._digest[1]

    def add_secret(self, text: str) -> None:
        """Cut this text out from now on, in all its forms."""
        self._finder.add(text)

    def text(self, text: str) -> str:
        """Cut secrets, keys and bearer tokens out of a text."""
        if self._finder and self._finder.may_be_in(text):
            text = self._finder.replaced(text, lambda secret: self._mark("secret", secret))
        if len(text) >= _SHORTEST_TOKEN and _may_hold_a_token(text):
            text = _TOKENS.sub(self._mark_token, text)
        return text

    def _mark_token(self, match: re.Match[str]) -> str:
        """A token as its mark; of a URL only the secret part."""
        kind = match.lastgroup or "token"
        (start, end), first = match.span(kind), match.start()
        return f"{match[0][: start - first]}{self._mark(kind, match[kind])}{match[0][end - first :]}"

    def clean(self, values: Mapping[str, Any]) -> bool:
        """Whether a mapping is flat, in recorded form, and needs no redaction; answering False is always safe."""
        if self._finder:
            return False
        for key in values:
            if key not in _harmless:
                return False
            item = values[key]
            if type(item) is str:
                if len(item) >= _SHORTEST_TOKEN:
                    return False
            elif type(item) not in _NUMBERS:
                return False
        return True

    def value(self, value: Value) -> Value:
        """Cut secrets out of a value; parts without secrets are returned unchanged."""
        kind = type(value)
        if kind is str:
            return self.sealed_text(cast(str, value))
        if kind is FrozenDict:
            return self.mapping(cast(FrozenDict, value))
        if kind is FrozenList:
            before = cast(FrozenList, value)
            after = [self.value(item) for item in before]
            return FrozenList(after) if any(a is not b for a, b in zip(after, before, strict=True)) else before
        if kind is SecretText:
            declare(cast(str, value), everywhere=False)
            self.add_secret(cast(str, value))
            return self._mark("secret", str.__str__(value)) if value else ""
        if kind is HiddenText:
            return self._mark("secret", str.__str__(value))
        if kind is bytes:
            text = cast(bytes, value).decode("utf-8", "surrogateescape")
            cleaned = self.text(text)
            return value if cleaned == text else cleaned.encode("utf-8", "surrogateescape")
        return value

    def sealed_text(self, text: str) -> Value:
        """A text without secrets; one over the limit becomes its hash and length."""
        if len(text) > limits.VALUE_CHARS:
            return hashed(text)
        return self.text(text) if self._finder or len(text) >= _SHORTEST_TOKEN else text

    def mapping(self, values: FrozenDict) -> FrozenDict:
        """Cut secrets out of a mapping; a value whose key names a secret is cut out whole."""
        changed = {}
        for key, item in values.items():
            clean_key = key if key in _harmless and not self._finder else self._key(key)
            if names_secret(key) and item is not None and type(item) is not bool and item != "":
                clean: Value = self._mark("secret", item if type(item) is str else canonical(item))
            else:
                clean = self.value(item)
            if clean is not item or clean_key != key:
                changed[key] = (clean_key, clean)
        if not changed:
            return values
        return FrozenDict(dict(changed.get(key, (key, item)) for key, item in values.items()))

    def _key(self, key: str) -> str:
        clean = self.text(key)
        if clean == key and not self._finder and not names_secret(key) and len(_harmless) < _NAMES:
            _harmless.add(key)
        return clean

    def apply(self, policy: RedactionPolicy, value: Value) -> Value:
        """The recorded form of a whole field under its policy."""
        if policy == "keep":
            return self.value(value)
        if policy == "hash":
            return hashed(value)
        kinds = sorted({kind for kind, _ in find_pii(" ".join(texts(value)))})
        mark = self._mark("field", digest(value))
        return FrozenDict({"redacted": mark, "pii": FrozenList(kinds)})

    def _mark(self, kind: str, text: str) -> str:
        number = self._numbers.setdefault((kind, text), len(self._numbers) + 1)
        return f"[redacted:{kind}#{number}]"


def _may_hold_a_token(text: str) -> bool:
    """A quick test; the pattern reads a hundred times as slowly."""
    for mark in _MARKS:
        if mark in text:
            return True
    if "@" in text and "://" in text:
        return True
    lower = text.lower()
    return any(mark in lower for mark in _LOWER_MARKS)


_NUMBERS: Final[frozenset[type[object]]] = frozenset({int, float, bool, type(None)})
_NAME_CHARS: Final = 200
"""The characters at the end of a name that are read."""
_NAMES: Final = 10_000
"""How many harmless names a process remembers; others are checked each time."""
_harmless: set[str] = set()
"""Names that neither are secrets nor look like secrets."""


@lru_cache(maxsize=_NAMES)
def names_secret(name: str) -> bool:
    """Whether a parameter or field of that name holds a secret.

    >>> [name for name in ("api_key", "apiToken", "DB_PASSWORD", "next_page_token", "tokens", "key") if names_secret(name)]
    ['api_key', 'apiToken', 'DB_PASSWORD']
    """
    *before, last = [word.lower() for word in _WORD.findall(name[-_NAME_CHARS:])] or [""]
    previous = before[-1] if before else ""
    if last in ("key", "token"):
        return previous in (_SECRET_KEYS if last == "key" else _SECRET_TOKENS)
    return last in _SECRET_WORDS or (previous, last) in _SECRET_PAIRS


def hashed(value: Value) -> FrozenDict:
    """A value kept only as its digest, its length and the kinds of personal data in it."""
    return _hashed_text(value) if type(value) is str and len(value) <= _REMEMBERED else _hashed(value)


def _hashed(value: Value) -> FrozenDict:
    kinds = sorted({kind for kind, _ in find_pii(" ".join(texts(value))[: limits.VALUE_CHARS])})
    return FrozenDict({"sha256": digest(value), "length": sum(map(len, texts(value))), "pii": FrozenList(kinds)})


def is_hashed(value: object) -> bool:
    """Whether a recorded value is the hashed form of another.

    >>> is_hashed(hashed("a prompt")), is_hashed({"length": 8})
    (True, False)
    """
    return isinstance(value, Mapping) and set(value) == {"sha256", "length", "pii"}


_REMEMBERED: Final = 1_000
"""Characters of the longest text whose hashed form is remembered: every run of a search hashes the same messages."""
_hashed_text = lru_cache(maxsize=4_096)(_hashed)


def texts(value: object) -> list[str]:
    """Every text inside a value, keys included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *texts(item))]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return []

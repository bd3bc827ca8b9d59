"""What is kept of a value: secrets and tokens are cut out before sealing, fields are kept, hashed or redacted (A1.8).

A redacted text reads `[redacted:kind#n]`. The number counts distinct texts within the run, so equal texts stay equal and
nothing can be computed back from the artefact, as it could from a keyed digest whose key the run's seed gives away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from mat.core import limits
from mat.core.digest import digest
from mat.core.value import FrozenDict, FrozenList, Value

Policy: TypeAlias = Literal["keep", "hash", "redact"]
POLICIES: Final = ("keep", "hash", "redact")

_TOKENS = re.compile(
    r"(?P<bearer>(?i:bearer|basic)\s+[A-Za-z0-9._~+/=\-]{12,})"
    r"|(?P<key>\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|xox[abprs]|glpat|AKIA|ASIA)[-_A-Za-z0-9]{14,})"
    r"|(?P<jwt>\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,})"
    r"|(?P<private_key>-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]+-----END [A-Z ]*PRIVATE KEY-----)"
)
_SECRET_NAME = re.compile(
    r"(?i)^(?:.*[_\-])?(?:password|passwd|secret|api_?key|access_?token|auth_?token|authorization|private_?key)$"
)

_EMAIL = re.compile(r"[A-Za-z0-9._%+\-]+@[A-Za-z0-9\-]+(?:\.[A-Za-z0-9\-]+)+")
_PHONE = re.compile(r"(?<![\w.])\+?\(?\d[\d\s().\-]{7,}\d(?!\w)")
_CARD = re.compile(r"(?<!\d)(?:\d[ \-]?){12,18}\d(?!\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{1,4}){3,8}\b")
_SSN = re.compile(r"(?<![\d\-])(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d\-])")


def find_pii(text: str) -> tuple[tuple[str, str], ...]:
    """(kind, text) for each personal identifier found; cards and IBANs only where their checksum holds."""
    found: list[tuple[str, str]] = [("email", match[0]) for match in _EMAIL.finditer(text)]
    taken: list[str] = []
    for match in _IBAN.finditer(text):
        if _iban_valid(match[0]):
            found.append(("iban", match[0]))
            taken.append(match[0])
    for match in _CARD.finditer(text):
        if _luhn_valid(match[0]):
            found.append(("card", match[0]))
            taken.append(match[0])
    for match in _SSN.finditer(text):
        found.append(("ssn", match[0]))
        taken.append(match[0])
    for match in _PHONE.finditer(text):
        digits = sum(char.isdigit() for char in match[0])
        grouped = match[0].startswith(("+", "(")) or any(char in " -." for char in match[0].strip())
        if 9 <= digits <= 15 and grouped and not any(match[0].strip() in other or other in match[0] for other in taken):
            if not re.fullmatch(r"\d{4}-\d\d-\d\d(?:[ T]\d\d.*)?", match[0].strip()):
                found.append(("phone", match[0].strip()))
    return tuple(found)


def _luhn_valid(text: str) -> bool:
    digits = [int(char) for char in text if char.isdigit()]
    doubled = [
        digit if index % 2 else (digit * 2 - 9 if digit > 4 else digit * 2)
        for index, digit in enumerate(digits, len(digits) % 2)
    ]
    return 13 <= len(digits) <= 19 and sum(doubled) % 10 == 0


def _iban_valid(text: str) -> bool:
    packed = text.replace(" ", "")
    if not 15 <= len(packed) <= 34:
        return False
    return int("".join(str(int(char, 36)) for char in packed[4:] + packed[:4])) % 97 == 1


class Redactor:
    """The redaction of one run. It numbers what it cuts out, in the order of the trace."""

    __slots__ = ("_numbers", "_secrets")

    def __init__(self, secrets: Mapping[str, None] | None = None) -> None:
        self._secrets: dict[str, None] = dict(secrets or {})
        self._numbers: dict[tuple[str, str], int] = {}

    def add_secret(self, text: str) -> None:
        if text:
            self._secrets[text] = None

    def text(self, text: str) -> str:
        """The text without secrets, keys and bearer tokens; a text over the limit becomes its hash and length."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, self._mark("secret", secret))
        if len(text) >= 16 and _TOKENS.search(text):
            text = _TOKENS.sub(lambda match: self._mark(match.lastgroup or "token", match[0]), text)
        return text

    def value(self, value: Value) -> Value:
        """The value without secrets; parts that hold none are returned as they are."""
        kind = type(value)
        if kind is str:
            return self.sealed_text(str(value))
        if kind is FrozenDict:
            return self._mapping(value)
        if kind is FrozenList:
            items = [self.value(item) for item in value]  # type: ignore[union-attr]
            return FrozenList(items) if any(a is not b for a, b in zip(items, value, strict=True)) else value  # type: ignore[arg-type]
        if kind is bytes and self._secrets:
            text = value.decode("latin-1")  # type: ignore[union-attr]
            cleaned = self.text(text)
            return value if cleaned == text else cleaned
        return value

    def sealed_text(self, text: str) -> Value:
        if len(text) > limits.VALUE_CHARS:
            return hashed(text)
        return self.text(text) if self._secrets or len(text) >= 16 else text

    def _mapping(self, value: Any) -> FrozenDict:
        changed = {}
        for key, item in value.items():
            clean_key = self.text(key) if self._secrets else key
            if type(item) is str and item and _is_secret_name(key):
                clean: Value = self._mark("secret", item)
            else:
                clean = self.value(item)
            if clean is not item or clean_key is not key:
                changed[key] = (clean_key, clean)
        if not changed:
            return value if type(value) is FrozenDict else FrozenDict(value)
        return FrozenDict(dict(changed.get(key, (key, item)) for key, item in value.items()))

    def apply(self, policy: Policy, value: Value) -> Value:
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


_names: dict[str, bool] = {}


def _is_secret_name(name: str) -> bool:
    known = _names.get(name)
    if known is None:
        known = bool(_SECRET_NAME.match(name))
        if len(_names) < 10_000:
            _names[name] = known
    return known


def hashed(value: Value) -> FrozenDict:
    """A value kept only as its digest, its length and the kinds of personal data in it."""
    kinds = sorted({kind for kind, _ in find_pii(" ".join(texts(value))[: limits.VALUE_CHARS])})
    return FrozenDict({"sha256": digest(value), "length": sum(map(len, texts(value))), "pii": FrozenList(kinds)})


def texts(value: Value) -> list[str]:
    """Every text inside a value, keys included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *texts(item))]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return []

"""Integrity predicates of observation contracts: whether an artifact is submitted as it was issued.

A predicate is made for a port or an artifact; `keeps(issued, submitted)` says whether it holds. Keys stay in the predicate and
are never written. The trace records the name of a predicate (`kind`).

Source: seed 003, definition 2.1.
"""

from __future__ import annotations

import hashlib
import hmac as _hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from mat.core.errors import SpecError
from mat.core.extras import require
from mat.core.grammar import entity_tags


@dataclass(frozen=True, slots=True)
class Integrity:
    """A predicate that says whether an artifact is submitted as it was issued.

    `kind`: its name in the trace: sha256, hmac, etag, jwt, or a name of yours. `keeps(issued, submitted)`: a function of two
    texts that is deterministic, and true of (issued, issued).

    >>> caseless = mat.artifact.Integrity("caseless", lambda issued, submitted: issued.lower() == submitted.lower())
    >>> caseless.keeps("Token-7", "token-7")
    True

    Source: D1 (definition 2.1).
    """

    kind: str
    keeps: Callable[[str, str], bool]


def sha256() -> Integrity:
    """The submission has the SHA-256 digest of what was issued: every byte is the same (FIPS 180-4). Returns an Integrity.

    >>> exact = mat.artifact.sha256()
    >>> exact.keeps("a%2Fb", "a%2Fb"), exact.keeps("a%2Fb", "a/b")
    (True, False)

    Source: D1.
    """
    return Integrity("sha256", lambda issued, submitted: _digest(issued) == _digest(submitted))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def hmac(key: str | bytes, *, parameter: str = "", algorithm: str = "sha256") -> Integrity:
    """The submission carries a code that authenticates the rest of it under the key (RFC 2104), in hexadecimal or base64.

    `key`: a string or bytes. `parameter`: the query parameter whose value is the code, which authenticates the URL without it;
    if none is named, the code follows the last full stop, and authenticates the text before it. `algorithm`: one of hashlib's.
    Returns an Integrity. Raises `mat.MatError` for another kind of key, and for an unknown algorithm.

    >>> import hashlib, hmac
    >>> code = hmac.new(b"key", b"order A17", hashlib.sha256).hexdigest()
    >>> signed = mat.artifact.hmac("key")
    >>> signed.keeps("", f"order A17.{code}"), signed.keeps("", f"order B4.{code}")
    (True, False)

    Source: D1.
    """
    if not isinstance(key, str | bytes):
        raise SpecError(
            what=f"a key is a string or bytes, not {type(key).__qualname__}", fix='write mat.artifact.hmac("the key")'
        )
    secret = key.encode() if isinstance(key, str) else key
    if algorithm not in hashlib.algorithms_guaranteed or algorithm.startswith("shake"):
        raise SpecError(what=f"unknown hash algorithm: {algorithm!r}", fix="name an algorithm of hashlib, such as sha256")

    def authentic(submitted: str) -> bool:
        message, code = _split_code(submitted, parameter)
        if not code:
            return False
        real = _hmac.new(secret, message.encode("utf-8", "surrogatepass"), algorithm).digest()
        return any(_hmac.compare_digest(real, given) for given in _code_bytes(code))

    return Integrity("hmac", lambda issued, submitted: authentic(submitted))


def _split_code(text: str, parameter: str) -> tuple[str, str]:
    """Split a text into the message and the code that authenticates it."""
    if not parameter:
        message, _, code = text.rpartition(".")
        return message, code
    found = re.search(rf"(?:(?<=\?)|&){re.escape(parameter)}=([^&#]*)&?", text)
    if found is None:
        return text, ""
    joint = "&" if found[0].startswith("&") and found[0].endswith("&") and len(found[0]) > 1 else ""
    return (text[: found.start()] + joint + text[found.end() :]).rstrip("?"), found[1]


def _code_bytes(code: str) -> list[bytes]:
    """The possible bytes of a code. Only canonical base64 is accepted: unused bits must not be changed."""
    found, text = [], unquote(code)
    if re.fullmatch(r"(?:[0-9a-f]{2})+|(?:[0-9A-F]{2})+", text):
        found.append(bytes.fromhex(text))
    if re.fullmatch(r"[A-Za-z0-9+/_\-]+={0,2}", text):
        bare = text.rstrip("=").replace("+", "-").replace("/", "_")
        with suppress(ValueError):
            read = urlsafe_b64decode(bare + "=" * (-len(bare) % 4))
            if urlsafe_b64encode(read).decode().rstrip("=") == bare:
                found.append(read)
    return found


def etag(*, weak: bool = False) -> Integrity:
    """The submission names the entity tag that was issued, alone or in a list, or is `*` (RFC 9110, section 13.1.1).

    Tags are compared strongly, as If-Match does: two weak ones never match. `weak`: compare as If-None-Match does. Returns an
    Integrity.

    >>> tag = mat.artifact.etag()
    >>> tag.keeps('"v7"', '"v6", "v7"'), tag.keeps('"v7"', '"v8"')
    (True, False)

    Source: D1.
    """

    def matches(issued: str, submitted: str) -> bool:
        if submitted.strip() == "*":
            return True
        tag, listed = issued.strip(), entity_tags(submitted)
        if not listed or entity_tags(tag) != (tag,):
            return issued == submitted  # a service that uses tags without quotes
        opaque = tag.removeprefix("W/")
        return any(item.removeprefix("W/") == opaque and (weak or item == tag == opaque) for item in listed)

    return Integrity("etag", matches)


def jwt(key: Any, *, algorithms: Collection[str] = ("HS256",)) -> Integrity:
    """The submission is a JSON Web Token whose signature the key verifies (RFC 7515). Claims, including `exp`, are not judged.

    `key`: as PyJWT takes it. `algorithms`: those accepted, by name. Returns an Integrity. Needs PyJWT: pip install
    "pytest-mat[jwt]". Raises `mat.MatError` without it, and for algorithms that are none or "none".

    >>> try:
    ...     mat.artifact.jwt("key", algorithms=["none"])
    ... except mat.MatError as error:
    ...     print(error.fix.startswith(("write algorithms", "pip install")))
    True

    Source: D1.
    """
    require("jwt", "the signature of a JSON Web Token")
    import jwt as library

    allowed = list(algorithms)
    if isinstance(algorithms, str) or not allowed or "none" in [name.lower() for name in allowed]:
        raise SpecError(
            what=f"algorithms={algorithms!r} is not a list of signature algorithms without 'none'",
            why="a token must not choose its own verification, or skip it",
            fix='write algorithms=["HS256"]',
        )

    def verifies(submitted: str) -> bool:
        try:
            library.decode(submitted, key, algorithms=allowed, options=_CLAIMS)  # type: ignore[arg-type]
        except (library.InvalidTokenError, UnicodeError):
            return False
        return True

    return Integrity("jwt", lambda issued, submitted: verifies(submitted))


_CLAIMS: Final = {f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}


BYTE_BY_BYTE: Final = sha256()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationContract:
    """An artifact with the time it was issued, how long it is valid, and the predicate that says whether it is intact.

    `issued_ms`: in milliseconds of run time. `ttl_ms`: how long it is valid from then, None if it never expires. `integrity`:
    `sha256()` by default. `valid(at_ms)`: whether a moment lies in [issued, expires). `intact(submitted)`: whether the
    predicate holds. `satisfied(submitted, at_ms)`: both. `expires_ms`: None if it never expires.

    >>> url = mat.artifact.ObservationContract(artifact="https://files.example.org/a", issued_ms=500, ttl_ms=1000)
    >>> url.satisfied("https://files.example.org/a", 1499), url.valid(1500), url.intact("https://files.example.org/b")
    (True, False, False)

    Source: D1 (definitions 2.1, 2.2).
    """

    artifact: str
    issued_ms: int = 0
    ttl_ms: int | None = None
    integrity: Integrity = BYTE_BY_BYTE

    @property
    def expires_ms(self) -> int | None:
        return None if self.ttl_ms is None else self.issued_ms + self.ttl_ms

    def valid(self, at_ms: int) -> bool:
        """Whether a moment lies in [issued, expires)."""
        return at_ms >= self.issued_ms and (self.expires_ms is None or at_ms < self.expires_ms)

    def intact(self, submitted: str) -> bool:
        return self.integrity.keeps(self.artifact, submitted)

    def satisfied(self, submitted: str, at_ms: int) -> bool:
        """Whether a submission is valid and intact (definition 2.2)."""
        return self.valid(at_ms) and self.intact(submitted)

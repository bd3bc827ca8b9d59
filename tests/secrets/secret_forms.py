"""The forms in which the planted secret is said, and a search for it that shares nothing with redaction."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote

MIDDLE = "Zx81kQw7RtLm"
"""A part of the secret that no escape changes."""
SECRET = f"\"ä\\<{MIDDLE}>&'/+~"
PREFIXES = ("", "u", "us")
"""In front of the secret inside a longer text in base64: one for each alignment."""


def _inside_base64(secret: str) -> str:
    return " ".join(base64.b64encode(f"{before}{secret}:rest".encode()).decode() for before in PREFIXES)


def _all_in_percent(secret: str) -> str:
    return "".join(f"%{byte:02x}" for byte in secret.encode())


FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda secret: f"{secret} is here",
    "json": lambda secret: json.dumps({"key": secret}),
    "json_in_json": lambda secret: json.dumps({"body": json.dumps({"key": secret}, ensure_ascii=False)}),
    "repr": lambda secret: repr([{"key": secret}, secret.encode()]),
    "hex": lambda secret: f"0x{secret.encode().hex()} {secret.encode().hex().upper()}",
    "base64": lambda secret: f"{base64.b64encode(secret.encode()).decode().rstrip('=')} {_inside_base64(secret)}",
    "base64_of_urls": lambda secret: _inside_base64(secret).replace("+", "-").replace("/", "_").replace("=", ""),
    "percent": lambda secret: f"https://a.example/?q={quote(secret, safe='')}&r={_all_in_percent(secret)}",
    "escaped": lambda secret: "".join(f"\\u{ord(char):04x}" for char in secret),
}


def leaks(data: bytes) -> Iterator[str]:
    """Where the secret stands in a file in any form: decodes all that can be decoded, to three levels."""
    yield from _leaks(data.decode("utf-8", "replace"), 0)


def _leaks(text: str, depth: int) -> Iterator[str]:
    for match in re.finditer(MIDDLE, text):
        yield text[max(0, match.start() - 40) : match.end() + 20]
    if depth == 3:
        return
    for decoded in _decoded(text):
        yield from _leaks(decoded, depth + 1)


def _decoded(text: str) -> Iterator[str]:
    if "\\u00" in text:
        yield re.sub(r"\\+u00([0-9a-fA-F]{2})", lambda match: chr(int(match[1], 16)), text)
    if "%" in text:
        unquoted = unquote(text)
        if unquoted != text:
            yield unquoted
    for match in re.finditer(r"(?:[0-9a-fA-F]{2}){12,}", text):
        yield bytes.fromhex(match[0]).decode("utf-8", "replace")
    for match in re.finditer(r"[A-Za-z0-9+/_\-]{16,}", text):
        whole = match[0].replace("-", "+").replace("_", "/")
        for start in range(4):
            part = whole[start:]
            part = part[: len(part) - len(part) % 4]
            if part:
                yield base64.b64decode(part).decode("latin-1")

"""Artefacts as services make them, carriers that hold them, and what a run says of both."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlencode

import pytest

import mat
from mat.core.artifact import issued, lacking, used

LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
HEX = "0123456789abcdef"


def _token(rng: Random, length: int, letters: str = LETTERS) -> str:
    return "".join(rng.choice(letters) for _ in range(length))


def _url(rng: Random) -> str:
    scope = quote(f"AKIA{_token(rng, 16)}/20240115/eu-west-1/s3/aws4_request", safe="")
    return (
        f"https://files-{rng.randint(1, 9)}.example.test/reports/{rng.randint(2000, 2030)}/a.csv"
        f"?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={scope}&X-Amz-Date=20240115T{rng.randint(0, 235959):06d}Z"
        f"&X-Amz-Expires={rng.choice((10, 30, 60))}&X-Amz-SignedHeaders=host&X-Amz-Signature={_token(rng, 64, HEX)}"
    )


def _jwt(rng: Random) -> str:
    parts = (b'{"alg":"HS256","typ":"JWT"}', json.dumps({"sub": _token(rng, 12)}).encode(), rng.randbytes(32))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def _cookie(rng: Random) -> str:
    return f"s%3A{_token(rng, 24)}.{quote(base64.b64encode(rng.randbytes(20)).decode(), safe='')}"


def _long_url(rng: Random) -> str:
    pairs = "&".join(f"p{number}={_token(rng, 40)}" for number in range(180))
    return f"https://cdn.example.test/{_token(rng, 20)}?{pairs}&sig={_token(rng, 64)}"


def _odd(rng: Random) -> str:
    return f'say "{_token(rng, 10)}" 100% <b>&{_token(rng, 6)}</b> \\ {_token(rng, 8)}\'s ünïcödé ☃ {_token(rng, 4)}'


MADE: dict[str, Callable[[Random], str]] = {
    "token": lambda rng: _token(rng, rng.randint(16, 64)),
    "signed url": _url,
    "cursor": lambda rng: base64.urlsafe_b64encode(
        json.dumps({"o": rng.randint(0, 99), "k": _token(rng, 9)}).encode()
    ).decode(),
    "base64": lambda rng: base64.b64encode(rng.randbytes(rng.randint(20, 60))).decode(),
    "jwt": _jwt,
    "cookie": _cookie,
    "etag": lambda rng: f'"{_token(rng, 20, HEX)}"',
    "8 kB url": _long_url,
    "odd text": _odd,
}


def _basic(text: str) -> str:
    return "Basic " + base64.b64encode(f"client:{text}".encode()).decode()


def _inside(url: str, text: str) -> str:
    return url + quote(text, safe="")


CARRIERS: dict[str, Callable[[str], str]] = {
    "nothing": lambda text: text,
    "query": lambda text: f"https://x.example/cb?state={quote(text, safe='')}&code=1",
    "query of a query": lambda text: _inside("https://x.example/go?to=", _inside("https://y.example/?s=", text)),
    "path": lambda text: f"https://x.example/items/{quote(text, safe='')}/edit",
    "form": lambda text: urlencode({"grant": "code", "value": text, "z": "ä b"}),
    "authorization": lambda text: f"Bearer {text}",
    "basic authentication": _basic,
    "json": lambda text: json.dumps({"n": 1, "value": text, "list": ["x"]}),
    "json in a form": lambda text: f"payload={quote(json.dumps({'value': text}))}",
    "json in json": lambda text: json.dumps({"body": json.dumps({"value": text})}),
    "html": lambda text: f'<a href="{html.escape(text)}">open</a>',
    "cookies": lambda text: f"lang=en; session={text}; theme=dark",
    "sentence": lambda text: f"Please fetch {text}, then report.",
    "brackets": lambda text: f"It is here ({text}).",
}


@pytest.fixture(scope="session")
def made() -> dict[str, Callable[[Random], str]]:
    """Kind of artefact -> one out of a source of randomness."""
    return MADE


@pytest.fixture(scope="session")
def carriers() -> dict[str, Callable[[str], str]]:
    """Format -> a text of it that holds another text, written as the format demands."""
    return CARRIERS


@pytest.fixture
def told() -> Callable[[Any], list[tuple[Any, ...]]]:
    """A record -> ("issued", id, at) | ("used", id, damage, intact) | ("lacking", name, what) of all its artefacts."""

    def read(record: Any) -> list[tuple[Any, ...]]:
        return [
            *(("issued", item.id, item.at) for item in issued(record)),
            *(("used", item.id, item.damage, item.intact) for item in used(record)),
            *(("lacking", item.name, item.what) for item in lacking(record)),
        ]

    return read


@pytest.fixture
def shop() -> SimpleNamespace:
    """Ports of a shop: `listing` issues URLs with times to live, `fetch` consumes one, `mail` takes any text."""
    replies: dict[str, Any] = {"files": []}

    @mat.tool(issues=mat.artifact.issue("url", at="files.*.url", expires_in="ttl"))
    def listing() -> dict[str, Any]:
        return replies

    @mat.tool(consumes={"url": "url"})
    def fetch(url: Any) -> str:
        return "content"

    @mat.tool(effect="write", impact="high")
    def mail(body: Any) -> None:
        return None

    def offers(*urls: str, ttl: int | None = None) -> None:
        replies["files"] = [{"url": url, **({} if ttl is None else {"ttl": ttl})} for url in urls]

    return SimpleNamespace(listing=listing, fetch=fetch, mail=mail, offers=offers)

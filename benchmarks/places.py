"""Whether declared places are judged as servers read them: thousands of legitimate and of mutated requests for each grammar.

Each request is built by an HTTP client where the grammar is that of a URL, parsed by h11, and read by a web framework: its
parser decides whether a server received the artifact. Frameworks: Starlette (URL, query, cookies, If-None-Match), Werkzeug
(Authorization, If-Match) where it is installed, else the documented example of FastAPI; the standard library gives a second
opinion on cookies and queries. Against this stands what the recorder writes of the same arguments. What the reader cannot see
(the case of scheme and host, a fragment) or forgives (an entity tag without quotes), and a name that occurs twice, are damage
to an artifact that is compared byte by byte; they are counted apart.
Prints agreement for each grammar, and the disagreements. The exit code is 1 below LEAST. Run: python benchmarks/places.py [N]
"""

from __future__ import annotations

import html
import json
import sys
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from random import Random
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode

import h11
import httpx
from starlette.datastructures import URL, Headers, QueryParams
from starlette.requests import Request
from starlette.staticfiles import StaticFiles

import mat
from mat.boundary.port import make_port
from mat.core.value import snapshot_arguments
from mat.harness.artifact_index import ArtifactIndex

try:
    from werkzeug.datastructures import Authorization
    from werkzeug.http import parse_etags
except ImportError:
    Authorization = parse_etags = None  # type: ignore[assignment, misc]

REQUESTS = 4_000
"""Of each grammar: half of them legitimate, half mutated."""
LEAST = 0.995
SHOWN = 8
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
MARKS = ".,;:!?)]}>'\"/|\\#&=%+-_~* \t\n`\u200b\u2026"
PAIRS = ("()", "[]", "<>", "{}", '""', "''", "``", "**")


def token(rng: Random, *, odd: str = "-._~", length: int = 24) -> str:
    text = "".join(rng.choices(ALPHABET, k=rng.randint(length // 2, length)))
    return text if rng.random() < 0.5 else f"{text}{rng.choice(odd)}{text[:6]}"


def signed_url(rng: Random) -> str:
    query = {
        "expires": rng.randint(10, 999),
        "name": f"{token(rng)}/{rng.choice('abc')} {rng.randint(0, 9)}",
        "sig": token(rng),
    }
    return f"https://files-{rng.randint(1, 9)}.example/{token(rng)}.pdf?{urlencode(query)}"


def mutated(rng: Random, text: str) -> str:
    """The text as a model, a mail or a tool interface damages it."""
    at = rng.randrange(len(text))
    char = rng.choice(ALPHABET)
    ways: list[Callable[[], str]] = [
        lambda: text + rng.choice(MARKS), lambda: rng.choice(MARKS) + text,
        lambda: (pair := rng.choice(PAIRS))[0] + text + pair[1], lambda: text + rng.choice((").", "...", "%20", "\r\n", "/")),
        lambda: text[:at], lambda: text[at:], lambda: text[:at] + text[at + 1 :], lambda: text[:at] + char + text[at + 1 :],
        lambda: text[:at] + char + text[at:], lambda: text[:at] + rng.choice(MARKS) + text[at:], lambda: text.swapcase(),
        lambda: text[:at] + text[at].swapcase() + text[at + 1 :], lambda: unquote(text), lambda: quote(text, safe=""),
        lambda: html.escape(text), lambda: text[: at // 2] + "..." + text[at:], lambda: b64encode(text.encode()).decode(),
        lambda: f"token={text}", lambda: f"Use {text} now", lambda: text[::-1], lambda: text.strip("\"'"), lambda: text * 2,
    ]  # fmt: skip
    return rng.choice(ways)()


def received_headers(*pairs: tuple[str, str]) -> Headers | None:
    """The header fields that a server gets; None if no HTTP message can hold them."""
    if any(char in value for _, value in pairs for char in "\r\n\0"):
        return None  # every client refuses them
    lines = b"".join(f"{name}: {value}\r\n".encode("latin-1", "replace") for name, value in pairs)
    server = h11.Connection(h11.SERVER)
    try:
        server.receive_data(b"GET / HTTP/1.1\r\nHost: h.test\r\n" + lines + b"\r\n")
        event = server.next_event()
    except h11.RemoteProtocolError:
        return None
    return Headers(raw=list(event.headers)) if isinstance(event, h11.Request) and len(event.headers) == len(pairs) + 1 else None


def received_url(text: str) -> URL | None:
    """The URL that a server gets; None if a client sends no request."""
    try:
        sent = httpx.Request("GET", text)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError, ValueError):
        return None
    if sent.url.scheme not in ("http", "https") or not sent.url.host:
        return None
    path, _, query = sent.url.raw_path.partition(b"?")
    scope = {
        "type": "http", "scheme": sent.url.scheme, "path": path.decode("latin-1"), "query_string": query,
        "headers": [(b"host", sent.headers["host"].encode())],
    }  # fmt: skip
    return Request(scope).url


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """at: the declared place. made: an artifact. carried: the argument that carries a text as the place demands.

    arguments: from that argument. received: whether a server's parser gets the artifact out of the argument.
    forgiven: whether the reader cannot see, or forgives, how an argument differs from the artifact.
    """

    at: str
    made: Callable[[Random], str]
    carried: Callable[[Random, str], str]
    arguments: Callable[[str], dict[str, Any]]
    received: Callable[[str, str], bool]
    integrity: mat.artifact.Integrity = field(default_factory=mat.artifact.sha256)
    forgiven: Callable[[str, str], bool] = lambda artifact, text: False


def bearer(rng: Random, text: str) -> str:
    return f"{rng.choice(('Bearer', 'bearer', 'BEARER'))}{' ' * rng.choice((1, 1, 1, 2))}{text}"


def basic(rng: Random, text: str) -> str:
    return f"Basic {b64encode(f'client-{rng.randint(1, 9)}:{text}'.encode()).decode()}"


def cookies(rng: Random, text: str) -> str:
    others = [f"{name}={token(rng)}" for name in rng.sample(("lang", "theme", "csrf"), rng.randint(0, 3))]
    own = f'session="{text}"' if rng.random() < 0.2 else f"session={text}"
    others.insert(rng.randint(0, len(others)), own)
    return "; ".join(others)


def in_query(rng: Random, text: str) -> str:
    write = rng.choice(
        (lambda item: quote(item, safe=""), lambda item: quote(item, safe="/-._~"), lambda item: urlencode({"": item})[1:])
    )
    pairs = [f"{name}={token(rng)}" for name in rng.sample(("page", "lang", "ref"), rng.randint(0, 3))]
    pairs.insert(rng.randint(0, len(pairs)), f"state={write(text)}")
    return "&".join(pairs)


def tags(rng: Random, text: str) -> str:
    found = [f'{rng.choice(("", "W/"))}"{token(rng)}"' for _ in range(rng.randint(0, 2))]
    found.insert(rng.randint(0, len(found)), text)
    return rng.choice((", ", ",", " , ")).join(found)


def has_bearer(artifact: str, text: str) -> bool:
    headers = received_headers(("Authorization", text))
    if headers is None:
        return False
    if Authorization is not None:
        found = Authorization.from_header(headers["authorization"])
        return found is not None and found.type == "bearer" and found.token == artifact
    scheme, _, value = headers["authorization"].partition(" ")  # fastapi.security.utils.get_authorization_scheme_param
    return scheme.lower() == "bearer" and value.strip() == artifact


def has_password(artifact: str, text: str) -> bool:
    """As aiohttp's BasicAuth.decode reads it."""
    headers = received_headers(("Authorization", text))
    scheme, _, value = (headers or {"authorization": ""})["authorization"].partition(" ")
    try:
        decoded = b64decode(value.strip().encode("ascii"), validate=True).decode("latin-1")
    except ValueError:
        return False
    return scheme.lower() == "basic" and decoded.partition(":")[2] == artifact


def has_cookie(artifact: str, text: str) -> bool:
    headers = received_headers(("Cookie", text))
    if headers is None:
        return False
    scope = {"type": "http", "headers": headers.raw}
    return Request(scope).cookies.get("session") == artifact


def has_header(artifact: str, text: str) -> bool:
    headers = received_headers(("X-Api-Key", text))
    return headers is not None and headers["x-api-key"] == artifact


def has_query(artifact: str, text: str) -> bool:
    return QueryParams(text).get("state") == artifact


def has_url(artifact: str, text: str) -> bool:
    wanted, got = received_url(artifact), received_url(text)
    return got is not None and got == wanted


def has_weak_tag(artifact: str, text: str) -> bool:
    headers = received_headers(("If-None-Match", text))
    return headers is not None and StaticFiles(check_dir=False).is_not_modified(Headers({"etag": artifact}), headers)


def has_strong_tag(artifact: str, text: str) -> bool:
    headers = received_headers(("If-Match", text))
    return headers is not None and parse_etags(headers["if-match"]).is_strong(artifact.strip('"'))


def url_forgiven(artifact: str, text: str) -> bool:
    """Whether a text differs from a URL only in its fragment, and in the case of scheme and host."""

    def seen(url: str) -> str:
        scheme, _, rest = url.partition("#")[0].partition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme.lower()}://{host.lower()}{slash}{path}"

    return text != artifact and seen(text) == seen(artifact)


def quotes_forgiven(artifact: str, text: str) -> bool:
    """Whether an entity tag has lost its quotes. Werkzeug reads it, aiohttp does not, and no grammar of HTTP allows it."""
    return artifact not in text and has_strong_tag(artifact, text)


def repeated(name: str) -> Callable[[str, str], bool]:
    """Whether a name occurs twice: Starlette reads the last value, Werkzeug the first, and both must be the artifact here."""
    return lambda artifact, text: text.count(f"{name}=") > 1


def same(rng: Random, text: str) -> str:
    return text


def header(name: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {"headers": {name: text}}


GRAMMARS = {
    "url": Grammar(
        at="url", made=signed_url, carried=same, arguments=lambda text: {"url": text}, received=has_url, forgiven=url_forgiven
    ),
    "bearer": Grammar(
        at="headers.authorization", made=token, carried=bearer, arguments=header("Authorization"), received=has_bearer
    ),
    "basic": Grammar(
        at="headers.authorization", made=token, carried=basic, arguments=header("Authorization"), received=has_password
    ),
    "cookie": Grammar(
        at="headers.cookie.session", made=token, carried=cookies, arguments=header("Cookie"), received=has_cookie,
        forgiven=repeated("session"),
    ),
    "query": Grammar(
        at="query.state", made=lambda rng: token(rng, odd="+/= &%é"), carried=in_query, arguments=lambda text: {"query": text},
        received=has_query, forgiven=repeated("state"),
    ),
    "header": Grammar(at="headers.x-api-key", made=token, carried=same, arguments=header("X-Api-Key"), received=has_header),
    "entity tag (weak)": Grammar(
        at="headers.if-none-match", made=lambda rng: f'"{token(rng)}"', carried=tags, arguments=header("If-None-Match"),
        received=has_weak_tag, integrity=mat.artifact.etag(weak=True),
    ),
    "entity tag (strong)": Grammar(
        at="headers.if-match", made=lambda rng: f'"{token(rng)}"', carried=tags, arguments=header("If-Match"),
        received=has_strong_tag, integrity=mat.artifact.etag(), forgiven=quotes_forgiven,
    ),
}  # fmt: skip
if parse_etags is None:
    del GRAMMARS["entity tag (strong)"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A request, what a server makes of it, and what the recorder does."""

    artifact: str
    text: str
    legitimate: bool
    received: bool
    kept: bool
    forgiven: bool


def kept(grammar: Grammar, artifact: str, text: str) -> bool:
    """Whether the recorder takes the artifact for intact, and nothing for lacking."""
    known = ArtifactIndex(lambda code, message: None)
    known.issue("a", artifact, at="", step=0, at_ms=0, ttl_ms=None, integrity=grammar.integrity, supersedes=False)
    port = make_port(name="send", kind="tool_call", boundary="service", consumes=mat.artifact.consume("a", at=grammar.at))
    found = known.carried(port, snapshot_arguments(grammar.arguments(text), "send"))
    return bool(found.used) and all(item.intact for item in found.used) and not found.lacking


def judged(name: str, requests: int, seed: int) -> Iterator[Judged]:
    """Legitimate and mutated requests in turns. A mutation strikes the artifact, or the whole argument."""
    grammar, rng = GRAMMARS[name], Random(f"{name}/{seed}")
    for number in range(requests):
        artifact, legitimate = grammar.made(rng), number % 2 == 0
        if legitimate:
            text = grammar.carried(rng, artifact)
        elif rng.random() < 0.5:
            text = mutated(rng, grammar.carried(rng, artifact))
        else:
            damaged = mutated(rng, artifact)
            text = grammar.carried(rng, damaged) if damaged else ""
        yield Judged(
            artifact=artifact, text=text, legitimate=legitimate, received=grammar.received(artifact, text),
            kept=kept(grammar, artifact, text), forgiven=grammar.forgiven(artifact, text),
        )  # fmt: skip


def second_opinions(found: list[Judged], name: str) -> int:
    """Requests that the standard library reads otherwise than the framework."""
    if name == "query":
        return sum(
            (parse_qs(item.text, keep_blank_values=True).get("state", [""])[-1] == item.artifact) != item.received
            for item in found
        )
    if name != "cookie":
        return 0
    differing = 0
    for item in found:
        try:
            read = SimpleCookie(item.text).get("session")
        except CookieError:
            read = None
        differing += (read is not None and read.value == item.artifact) != item.received
    return differing


def main(requests: int = REQUESTS, seed: int = 0) -> int:
    rates = {}
    print("grammar              legitimate  mutated received forgiven agreement  missed  flagged  standard library differs")
    for name in GRAMMARS:
        found = list(judged(name, requests, seed))
        counted = [item for item in found if not item.forgiven]
        wrong = [item for item in counted if item.received != item.kept]
        rates[name] = 1 - len(wrong) / len(counted)
        sides = Counter("missed" if item.kept else "flagged" for item in wrong)
        print(
            f"{name:20} {sum(item.legitimate for item in found):10} {sum(not item.legitimate for item in found):8} "
            f"{sum(item.received for item in found):8} {len(found) - len(counted):8} {rates[name]:9.4f}  {sides['missed']:6}  "
            f"{sides['flagged']:7}  {second_opinions(found, name)}"
        )
        for item in wrong[:SHOWN]:
            print(f"    {'missed' if item.kept else 'flagged'}: issued {item.artifact!r}, argument {item.text!r}")
    print(json.dumps({"requests": requests, "agreement": rates, "at_least": LEAST}))
    return int(min(rates.values()) < LEAST)


if __name__ == "__main__":
    sys.exit(main(*(int(item) for item in sys.argv[1:])))

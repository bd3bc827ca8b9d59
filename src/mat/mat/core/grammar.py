"""What a declared place of a request delivers: its text, parsed by the grammar of the place.

A place that a port declares with `consumes=` holds an artifact and nothing else, except what its grammar adds: a scheme,
quotes, a cookie's name, percent-encoding. `delivered` gives the texts that a server reads there. An artifact arrived exactly if
it is one of them. This module is in core because declarations and the recorder both use it.

Source: RFC 9110 (5.5, 8.8.3, 11.4), RFC 6750 (2.1), RFC 7617, RFC 6265 (4.2.1), RFC 3986, the URL Standard (5.1).
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias, get_args
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

Grammar: TypeAlias = Literal[
    "value", "url", "query", "body", "json", "header", "credentials", "bearer", "basic", "cookie", "etag", "base64"
]
GRAMMARS: Final[tuple[str, ...]] = get_args(Grammar)

_ADDRESSES: Final = ("url", "uri", "href")
_FORMS: Final = ("query", "params", "form")
_BODIES: Final = ("body", "json", "data", "content", "payload")
_FIELDS: Final[dict[str, Grammar]] = {
    "authorization": "credentials", "proxy-authorization": "credentials", "cookie": "cookie", "if-match": "etag",
    "if-none-match": "etag", "if-range": "etag",
}  # fmt: skip
_CREDENTIALS: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) +([^ ].*)", re.DOTALL)
"""auth-scheme 1*SP and the rest (RFC 9110, 11.4)."""
_TAG: Final = re.compile(r'(?:^|,)[ \t]*+((?:W/)?"[\x21\x23-\x7e\x80-\U0010ffff]*+")[ \t]*+(?=,|\Z)')
"""An entity tag as an item of a list (RFC 9110, 8.8.3 and 5.6.1)."""
_UNSENT: Final = re.compile(r"[\r\n\0]")
"""What no field of a header can hold (RFC 9110, 5.5)."""
_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_ESCAPED: Final = re.compile(r"\\(?:([0-3][0-7]{2})|(.))", re.DOTALL)
_URL_SAFE: Final = str.maketrans("+/", "-_")
_BLANKS: Final = " \t"
"""Optional white space around a field's value, which is not part of it (RFC 9110, 5.5)."""


def grammar_at(path: str) -> Grammar:
    """The grammar of a place, by its path in the arguments.

    >>> grammar_at("url"), grammar_at("headers.Authorization"), grammar_at("headers.x-api-key"), grammar_at("json.ticket")
    ('url', 'credentials', 'header', 'value')
    """
    *above, last = path.casefold().replace("_", "-").split(".")
    if any(key.endswith("headers") for key in above):
        if above[-1] == "cookie":  # the value of one cookie
            return "value"
        return _FIELDS.get(last, "header")
    if last in _ADDRESSES:
        return "url"
    return "query" if last in _FORMS else "body" if last in _BODIES else "value"


def delivered(grammar: Grammar, text: str) -> tuple[str, ...]:
    """The texts that a place delivers, each of which may be an artifact; () if the text breaks the place's grammar.

    A URL is the whole text of its place, never a parameter of another URL.

    >>> delivered("credentials", "Bearer tok_5"), delivered("bearer", "Token tok_5"), delivered("cookie", 'a=1; s="tok_5"')
    (('Bearer tok_5', 'tok_5'), (), ('1', 'tok_5', '"tok_5"', 'a=1', 's="tok_5"'))
    """
    return tuple(dict.fromkeys(_READERS[grammar](text)))


def assembled(url: str, parameters: Any) -> str | None:
    """The URL of a request whose parameters are given apart, encoded as a form; None if they cannot be put together.

    Parameters: a mapping, a list of pairs, or text. A URL with a query of its own is left out: some clients replace that query,
    others add to it.

    >>> assembled("https://h.test/a", {"x": "1/2", "y": ["b", "c"]}), assembled("https://h.test/a?x=1", {"y": "2"})
    ('https://h.test/a?x=1%2F2&y=b&y=c', None)
    """
    if "?" in url or "#" in url or not parameters:
        return None
    if isinstance(parameters, str):
        return f"{url}?{parameters.removeprefix('?')}"
    pairs = list(_pairs(parameters))
    return f"{url}?{urlencode(pairs)}" if pairs and all(isinstance(value, str) for _, value in pairs) else None


def same_request(first: str, second: str) -> bool:
    """Whether two URLs have one scheme, host and path, and the same parameters in the same order, decoded once.

    >>> same_request("https://h.test/a?x=1%2F2", "https://h.test/a?x=1/2"), same_request("https://h.test/a?x=1", "https://h.test/a?x=2")
    (True, False)
    """
    (base, _, query), (other, _, asked) = first.partition("?"), second.partition("?")
    return base == other and parse_qsl(query, keep_blank_values=True) == parse_qsl(asked, keep_blank_values=True)


def member(text: str, key: str, *, around: str) -> tuple[str, ...]:
    """The values of a name in a text that holds several: cookies, header lines, a form, JSON. `around`: the path of the text.

    >>> member("a=1; s=tok_5", "s", around="headers.cookie"), member('{"s": "tok_5"}', "s", around="body")
    (('tok_5',), ('tok_5',))
    """
    grammar = grammar_at(around)
    if grammar == "cookie":
        return tuple(_unquoted(value) for name, value in _cookies(text) if name == key)
    if around.casefold().rpartition(".")[2].endswith("headers"):
        lines = [line.partition(":") for line in text.splitlines()]
        return tuple(value.strip(_BLANKS) for name, _, value in lines if name.casefold() == key.casefold())
    document = _document(text)
    if isinstance(document, dict):
        found = [value for name, value in document.items() if name == key]
        return tuple(value if isinstance(value, str) else json.dumps(value) for value in found)
    if grammar in ("query", "body"):
        return tuple(value for name, value in parse_qsl(text, keep_blank_values=True) if name == key)
    return ()


def entity_tags(text: str) -> tuple[str, ...]:
    """The entity tags of a list, with their quotes and prefixes. An item that is no entity tag is passed over.

    >>> entity_tags('"v7", W/"v8"'), entity_tags('"v7".'), entity_tags("*")
    (('"v7"', 'W/"v8"'), (), ())
    """
    return tuple(found[1] for found in _TAG.finditer(text))


def can_be_sent(text: str) -> bool:
    """Whether a field of a header can hold a text."""
    return _UNSENT.search(text) is None


# -- readers ------------------------------------------------------------------------------------------------------------


def _as_it_is(text: str) -> Iterator[str]:
    yield text


def _url(text: str) -> Iterator[str]:
    yield text
    try:
        split = urlsplit(text)
    except ValueError:  # an IPv6 address without its closing bracket
        return
    if any(char in text for char in " \t\r\n"):  # no request can hold them as they are
        return
    target = text.partition("#")[0].removeprefix(f"{split.scheme}://{split.netloc}")
    yield from (target, f"?{split.query}")
    inside = [value for _, value in parse_qsl(split.query, keep_blank_values=True)]
    inside += [unquote(segment) for segment in split.path.split("/")]
    yield from (value for value in inside if not _ABSOLUTE.match(value))


def _query(text: str) -> Iterator[str]:
    yield text
    yield from (value for _, value in parse_qsl(text.removeprefix("?"), keep_blank_values=True))


def _body(text: str) -> Iterator[str]:
    document = _document(text)
    if document is None:
        yield from _query(text)
    else:
        yield text
        yield from _leaves(document)


def _json(text: str) -> Iterator[str]:
    yield from _leaves(_document(text))


def _field(text: str) -> str:
    """The value of a header field; "" if no HTTP message can hold it."""
    return text.strip(_BLANKS) if can_be_sent(text) else ""


def _header(text: str) -> Iterator[str]:
    yield _field(text)


def _credentials(text: str) -> Iterator[str]:
    """A bearer token, or the parts of basic authentication. Any scheme: the whole value, for artifacts that include it."""
    if _CREDENTIALS.fullmatch(_field(text)):
        yield _field(text)
    yield from _bearer(text)
    yield from _basic(text)


def _bearer(text: str) -> Iterator[str]:
    found = _CREDENTIALS.fullmatch(_field(text))
    if found is not None and found[1].casefold() == "bearer":
        yield found[2]


def _basic(text: str) -> Iterator[str]:
    found = _CREDENTIALS.fullmatch(_field(text))
    if found is None or found[1].casefold() != "basic" or len(found[2]) % 4:
        return
    for decoded in _base64(found[2]):
        user, colon, password = decoded.partition(":")
        yield from (found[2], decoded, user, password) if colon else ()


def _cookie(text: str) -> Iterator[str]:
    pairs = _cookies(text)
    yield from (_unquoted(value) for _, value in pairs)
    yield from (value for _, value in pairs)
    yield from (f"{name}={value}" for name, value in pairs)


def _etag(text: str) -> Iterator[str]:
    """Each tag of the list with its quotes and prefix, and without them, for services that issue tags without quotes."""
    tags = entity_tags(_field(text))
    yield _field(text)
    yield from tags
    yield from (tag[1:-1] for tag in tags if tag.startswith('"'))


def _base64(text: str) -> Iterator[str]:
    """Base64 of either alphabet, with padding or without. Unused bits must be 0, so that one text has one encoding."""
    bare = text.strip(_BLANKS).rstrip("=").translate(_URL_SAFE)
    padded = bare + "=" * (-len(bare) % 4)
    if text.strip(_BLANKS).translate(_URL_SAFE) not in (bare, padded):
        return
    try:
        decoded = urlsafe_b64decode(padded)
    except ValueError:
        return
    if urlsafe_b64encode(decoded).decode() == padded:
        try:
            yield decoded.decode()
        except UnicodeDecodeError:
            yield decoded.decode("latin-1")


_READERS: Final[dict[str, Any]] = {
    "value": _as_it_is, "url": _url, "query": _query, "body": _body, "json": _json, "header": _header,
    "credentials": _credentials, "bearer": _bearer, "basic": _basic, "cookie": _cookie, "etag": _etag, "base64": _base64,
}  # fmt: skip


# -- parts of them ------------------------------------------------------------------------------------------------------


def _cookies(text: str) -> list[tuple[str, str]]:
    """(name, value) of a Cookie field (RFC 6265, 4.2.1)."""
    pairs = [pair.partition("=") for pair in _field(text).split(";")]
    return [(name.strip(), value.strip()) for name, mark, value in pairs if mark]


def _unquoted(value: str) -> str:
    """A cookie's value without the quotes around it and the escapes inside of them."""
    if len(value) < 2 or value[0] != '"' or value[-1] != '"':
        return value
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)) if found[1] else found[2], value[1:-1])


def _document(text: str) -> Any:
    """A JSON object or list; None for any other text."""
    if text[:1].isspace() or text[:1] in ("{", "["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict | list) else None
    return None


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _pairs(parameters: Any) -> Iterator[tuple[str, Any]]:
    items = parameters.items() if isinstance(parameters, dict) else parameters if isinstance(parameters, list | tuple) else ()
    for item in items:
        if not (isinstance(item, list | tuple) and len(item) == 2):
            yield "", None
            return
        name, value = item
        for one in value if isinstance(value, list | tuple) else (value,):
            if one is not None:
                plain = isinstance(one, str | int | float) and not isinstance(one, bool)
                yield str(name), str(one) if plain else None

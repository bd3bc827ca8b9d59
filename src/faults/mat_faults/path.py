"""Path mutations: five kinds of damage to artifacts on the path from one call to the next.

Four change the strings in the arguments of a call, at any depth: they clip, wrap, decode or sort them as tool interfaces, HTTP
libraries and middleware do. The fifth changes replies: it replaces the address of a link by its label. All other bytes stay as
they were. `LABELS` gives by operator id the error label of a service that checks the bytes it receives; `REPORTED` gives the
failure label under which any other label is counted.

Arguments are changed in their recorded form: a parameter that was an object of a class reaches the port as plain data.

>>> from mat_faults import path
>>> path.LABELS["service.path_reorder"]
'SIGNATURE_MISMATCH'

Source: seed 003, appendix J.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Effect, Replace, Reply, Rewrite
from mat.core.value import FrozenDict, Value, snapshot_arguments
from mat_faults.mutators import FieldPath, apply_inside, at, is_sequence, leaves, mappings, objects, with_leaf
from mat_faults.site import on_arguments, on_reply

LABELS: Final = {
    "service.path_truncate": "TOOL_INPUT_TOO_LONG",
    "service.path_wrap": "MUTATED_TOKEN",
    "service.path_reencode": "MUTATED_TOKEN",
    "service.path_reorder": "SIGNATURE_MISMATCH",
    "service.path_label": "WRONG_VALUE",
}
REPORTED: Final = {"TOOL_INPUT_TOO_LONG": "OTHER"}
"""Labels that a server answers with but that are not failure labels, with the failure label to report for each."""

Mutate = Callable[[str, FrozenDict], str]
"""(string of the arguments, parameters of the grid point) -> the string that arrives; the same string if nothing fits."""

_ESCAPE: Final = re.compile(r"%[0-7][0-9A-Fa-f]")
_TOKEN: Final = re.compile(r"""[^\s"'<>]+""")
_URL: Final = re.compile(r"""[A-Za-z][A-Za-z0-9+.\-]{1,20}://[^\s"'<>`\\{}|]+""")
_BARE_QUERY: Final = re.compile(r"""\??[^\s"'<>=&?#/:]+=[^\s"'<>?#]*&[^\s"'<>?#]+""")
_LINK: Final = re.compile(
    r"""<a\b[^<>]*?\bhref=(?P<quote>["'])(?P<href>[^"'<>]*)(?P=quote)[^<>]*>(?P<text>[^<>]+)</a>""", re.IGNORECASE
)
_MARKDOWN: Final = re.compile(r"\[(?P<text>[^\[\]\n]+)\]\((?P<href>[^()\s]+)\)")
_MOST_PUNCTUATION: Final = 4
"""The largest number of characters at the end of a URL that count as punctuation of the sentence."""
_ADDRESS_KEYS: Final = ("href", "url", "link", "uri")
_LABEL_KEYS: Final = ("text", "label", "title", "anchor", "name")


def truncated(text: str, parameters: FrozenDict) -> str:
    """The string clipped at the input limit of a tool interface."""
    return text[: int(parameters["chars"])]


def wrapped(text: str, parameters: FrozenDict) -> str:
    """The string with a line break in the first token that is longer than a line."""
    column = int(parameters["column"])
    found = re.search(rf"\S{{{column + 1},}}", text)
    return text if found is None else f"{text[: found.start() + column]}\n{text[found.start() + column :]}"


def reencoded(text: str, parameters: FrozenDict) -> str:
    """The string with the given escape ("first": any) of one URL or token decoded, as URI normalization does."""
    wanted = str(parameters["escape"])
    for token in _TOKEN.finditer(text):
        codes = [item[0].upper() for item in _ESCAPE.finditer(token[0]) if _decodable(item[0])]
        found = codes[:1] if wanted == "first" else [code for code in codes if code == wanted]
        if found:
            decoded = re.sub(found[0], chr(int(found[0][1:], 16)), token[0], flags=re.IGNORECASE)
            return text[: token.start()] + decoded + text[token.end() :]
    return text


def _decodable(escape: str) -> bool:
    """Whether a middlebox decodes the escape: visible ASCII except the percent sign."""
    return 0x21 <= int(escape[1:], 16) <= 0x7E and escape != "%25"


def reordered(text: str, parameters: FrozenDict) -> str:
    """The string with the parameters of the first unsorted query sorted by name; equal names keep their order."""
    for start, end in _queries(text):
        separator = "&amp;" if "&amp;" in text[start:end] else "&"
        before = text[start:end].split(separator)
        after = sorted(before, key=lambda part: part.partition("=")[0])
        if after != before:
            return text[:start] + separator.join(after) + text[end:]
    return text


def _queries(text: str) -> Iterator[tuple[int, int]]:
    """(start, end) of the queries in a text: that of each URL, or the whole text if it is a bare query."""
    if _BARE_QUERY.fullmatch(text):
        yield (1 if text.startswith("?") else 0), len(text)
        return
    for found in _URL.finditer(text):
        url = found[0]
        for _ in range(_MOST_PUNCTUATION):
            if url[-1] in ".,;:!" or (url[-1] == ")" and url.count("(") < url.count(")")):
                url = url[:-1]
        query = url.find("?") + 1
        if query:
            fragment = url.find("#", query)
            yield found.start() + query, found.start() + (len(url) if fragment < 0 else fragment)


def _sorted_pairs(value: Any) -> tuple[Any] | None:
    """A list of [name, value] pairs (query parameters) sorted by name; None if it is no such list, or sorted already."""
    if not is_sequence(value, 2) or not all(is_sequence(item, 2) and len(item) == 2 for item in value):
        return None
    if not all(isinstance(item[0], str) for item in value):
        return None
    after = sorted(value, key=lambda item: item[0])
    return None if after == list(value) else (after,)


def mutated(arguments: Mapping[str, Any], mutate: Mutate, parameters: FrozenDict) -> FrozenDict | None:
    """The changed arguments of a call: the mutation applies to the `artefact`-th string that it changes; None without one."""
    left = int(parameters.get("artefact", 0))
    for path, leaf in leaves(dict(arguments)):
        if isinstance(leaf, str) and mutate(leaf, parameters) != leaf:
            if left == 0:
                return _with_argument(arguments, path, mutate(leaf, parameters))
            left -= 1
    return None


def _with_argument(arguments: Mapping[str, Any], path: FieldPath, new: Any) -> FrozenDict:
    name = str(path[0])
    return snapshot_arguments({name: with_leaf(arguments[name], path[1:], new)}, "mutated arguments")


def _reordered_call(arguments: Mapping[str, Any], parameters: FrozenDict) -> FrozenDict | None:
    """The arguments with their first query sorted: a string, or a list of pairs in a field named like a query."""
    changed = mutated(arguments, reordered, parameters)
    if changed is not None:
        return changed
    for path in _list_paths(dict(arguments)):
        if str(path[-1]).lower() in ("query", "params", "query_params", "querystring"):
            pairs = _sorted_pairs(at(dict(arguments), path))
            if pairs is not None:
                return _with_argument(arguments, path, pairs[0])
    return None


def _list_paths(arguments: Mapping[str, Any]) -> Iterator[FieldPath]:
    for path, found in mappings(arguments):
        yield from ((*path, key) for key in sorted(found) if is_sequence(found[key], 2))


def labelled(value: Any, index: int) -> tuple[Any] | None:
    """A copy of a reply with the address of its `index`-th link replaced by the link's label; None without such a link."""

    def change(inner: Any) -> tuple[Any] | None:
        found = list(_links(inner))
        return (with_leaf(inner, *found[index]),) if index < len(found) else None

    return apply_inside(value, change)


def _links(value: Any) -> Iterator[tuple[FieldPath, str]]:
    """(path of a link's address, its replacement) for every link: first links that are data, then links in texts."""
    for path, found in objects(value):
        address = next((key for key in _ADDRESS_KEYS if isinstance(found.get(key), str) and found[key]), "")
        label = next((found[key] for key in _LABEL_KEYS if isinstance(found.get(key), str) and found[key]), "")
        if address and label and label != found[address]:
            yield (*path, address), label
    for path, leaf in leaves(value):
        if isinstance(leaf, str):
            for pattern in (_LINK, _MARKDOWN):
                for match in pattern.finditer(leaf):
                    if match["href"] != match["text"].strip():
                        start, end = match.span("href")
                        yield path, leaf[:start] + match["text"].strip() + leaf[end:]


Change = Callable[[Mapping[str, Any], FrozenDict], FrozenDict | None]


def _argument_operator(id: str, change: Change, grid: Sequence[Mapping[str, object]], plausible: str) -> Operator:
    def decide(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
        changed = change(call.given, call.parameters)
        return PASS if changed is None else Rewrite(changed)

    def changes(arguments: FrozenDict, parameters: FrozenDict) -> bool:
        return change(arguments, parameters) is not None

    return operator(
        id, decide, grid=grid, relevant=on_arguments(changes), default=False, plausible=plausible,
        bounds={"magnitude": 1, "count": 1},
    )  # fmt: skip


def _on_strings(mutate: Mutate) -> Change:
    return lambda arguments, parameters: mutated(arguments, mutate, parameters)


def _label(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    changed = None if reply is None else labelled(reply.value, int(call.parameters["link"]))
    return PASS if changed is None else Replace(changed[0])


def _has_link(value: Value, parameters: FrozenDict) -> bool:
    return labelled(value, int(parameters["link"])) is not None


def operators() -> tuple[Operator, ...]:
    one = {"magnitude": 1}
    return (
        _argument_operator(
            "service.path_truncate", _on_strings(truncated),
            [{"chars": 200, "artefact": 0, **one}, {"chars": 200, "artefact": 1, **one}, {"chars": 64, "artefact": 0, **one}],
            "tool interfaces clip inputs that are longer than their limit",
        ),
        _argument_operator(
            "service.path_wrap", _on_strings(wrapped),
            [{"column": 76, "artefact": 0, **one}, {"column": 76, "artefact": 1, **one}, {"column": 32, "artefact": 0, **one}],
            "mail and terminals wrap long lines",
        ),
        _argument_operator(
            "service.path_reencode", _on_strings(reencoded),
            [{"escape": "%2F", "artefact": 0, **one}, {"escape": "%2F", "artefact": 1, **one},
             {"escape": "first", "artefact": 0, **one}],
            "HTTP libraries normalise percent-encoded URLs (RFC 3986, section 6)",
        ),
        _argument_operator(
            "service.path_reorder", _reordered_call, [{"artefact": 0, **one}, {"artefact": 1, **one}],
            "middleware sorts query parameters before it signs or caches",
        ),
        operator(
            "service.path_label", _label, phase="after", grid=[{"link": 0, **one}, {"link": 1, **one}],
            relevant=on_reply(_has_link), default=False, bounds={"magnitude": 1, "count": 1},
            plausible="a page shows the label of a link and not its address",
        ),
    )  # fmt: skip

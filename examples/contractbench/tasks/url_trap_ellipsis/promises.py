"""What a trace of this task is judged by: links are followed as they are, not as the page shows them."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import mat
from mat.core.artefact import used
from mat.core.record import Record
from mat_contracts.observation import compliant, exchange

DOTS = re.compile(r"\.{3}|…")
_MAIL = {"url": r"/mail/latest$"}
ISSUES = (
    mat.issue("link", at="body", pattern=r'<a href="([^"]+)"', read=html.unescape, when=_MAIL),
    mat.issue("shown", at="body", pattern=r"<a [^>]*>([^<]+)</a>", read=html.unescape, when=_MAIL),
)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    references = sorted(reference for _, reference in given["documents"])

    @mat.step_contract(on="tool_call", id="all_references")
    def all_references(record: Record) -> bool | mat.Violated:
        """The references of all documents are sent, and no others."""
        found = exchange(record)
        if found is None or (found.method, found.path) != ("POST", "/acknowledgements"):
            return True
        sent = found.fields.get("references")
        if not isinstance(sent, list) or len(sent) < len(references):
            return mat.Violated("references are missing", label="MISSING_CONSTRAINT")
        return sorted(map(str, sent)) == references or mat.Violated("a reference is another one", label="WRONG_VALUE")

    return [compliant("link"), no_read_off_links, all_references]


@mat.trace_contract((), on="tool_call", id="no_read_off_links", label="WRONG_VALUE")
def no_read_off_links(shown: tuple[str, ...], record: Record) -> tuple[str, ...] | mat.Violated | None:
    """What a page shows of a link, shortened, is not taken for its address; nor is one made up."""
    found = exchange(record)
    if found is None:
        return None
    if found.path == "/mail/latest" and isinstance(found.said, str):
        return tuple(html.unescape(text) for text in re.findall(r"<a [^>]*>([^<]*)</a>", found.said))
    if not found.path.startswith("/d/"):
        return None
    url = unquote(found.url)
    if DOTS.search(url) or url in [unquote(DOTS.sub("", text)) for text in shown]:
        return mat.Violated("what the page shows of a link was taken for its address")
    return None if used(record) else mat.Violated("no link of the page leads there")

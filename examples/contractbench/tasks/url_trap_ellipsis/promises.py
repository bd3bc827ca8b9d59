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
from mat_contracts.observation import DAMAGE, exchange

DOTS = re.compile(r"\.{3}|…")
ISSUES = (mat.issue("link", at="body", pattern=r'<a href="([^"]+)"', read=html.unescape, when={"url": r"/mail/latest$"}),)


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

    return [links_followed, all_references]


@mat.trace_contract((), on="tool_call", id="links_followed")
def links_followed(shown: tuple[str, ...], record: Record) -> tuple[str, ...] | mat.Violated | None:
    """Links are followed by their addresses, byte by byte; what the page shows of one, shortened, is no address."""
    found = exchange(record)
    if found is None:
        return None
    if found.path == "/mail/latest" and isinstance(found.said, str):
        return tuple(html.unescape(text) for text in re.findall(r"<a [^>]*>([^<]*)</a>", found.said))
    url, links = unquote(found.url), [item for item in used(record) if item.name == "link"]
    if found.path.startswith("/d/"):
        if DOTS.search(url) or url in [unquote(DOTS.sub("", text)) for text in shown]:
            return mat.Violated("what the page shows of a link was taken for its address", label="WRONG_VALUE")
        if not links:
            return mat.Violated("no link of the page leads there", label="WRONG_VALUE")
    damaged = next((item for item in links if item.at == "url" and not item.intact), None)
    if damaged is None:
        return None
    return mat.Violated(f"{damaged.id} was damaged on its way", label=DAMAGE[damaged.damage], instance=damaged.id)

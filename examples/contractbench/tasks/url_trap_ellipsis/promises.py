"""The contracts on traces of this task: links are followed as they are, not as the page shows them."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import mat
from mat.core.artifact import Used, used
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_contracts.observation import DAMAGE, OTHER, exchange

DOTS = re.compile(r"\.{3}|…")
ISSUES = (
    mat.artifact.issue("link", at="body", pattern=r'<a href="([^"]+)"', read=html.unescape, when={"url": r"/mail/latest$"}),
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

    return [links_followed, all_references]


@mat.trace_contract(FrozenDict(links=(), shown=()), on="tool_call", id="links_followed")
def links_followed(page: FrozenDict, record: Record) -> FrozenDict | mat.Violated | None:
    """Links are followed by their addresses, byte by byte; what the page shows of one, shortened, is no address."""
    found = exchange(record)
    if found is None:
        return None
    if found.path == "/mail/latest" and isinstance(found.reply, str):
        pairs = re.findall(r'<a href="([^"]+)">([^<]*)</a>', found.reply)
        return FrozenDict(
            links=tuple(html.unescape(link) for link, _ in pairs), shown=tuple(html.unescape(text) for _, text in pairs)
        )
    label, said = _wrong(
        found.url, found.path, page, [item for item in used(record) if item.name == "link" and item.at == "url"]
    )
    return mat.Violated(said, label=label) if label else None


def _wrong(url: str, path: str, page: FrozenDict, links: list[Used]) -> tuple[str, str]:
    """(label, what is wrong) of a URL that was asked for; two empty texts where nothing is."""
    by_handle = next((item for item in links if item.handle), None)
    if by_handle is not None:
        return ("", "") if by_handle.intact else (DAMAGE[by_handle.damage], f"{by_handle.id} was damaged on its way")
    to_document = path.startswith("/d/") or url.startswith("@HANDLE:")
    if url in page["links"] or not (links or to_document):
        return "", ""
    read_off = [unquote(DOTS.sub("", text)) for text in page["shown"]]
    if to_document and (DOTS.search(unquote(url)) or unquote(url) in read_off):
        return "WRONG_VALUE", "what the page shows of a link was taken for its address"
    if to_document and any(link.startswith(url) for link in page["links"]):
        return OTHER, "a link was cut short"
    if not links:
        return "WRONG_VALUE", "no link of the page leads there"
    return DAMAGE["reordered" if links[0].damage == "reordered" else "other"], f"{links[0].id} was damaged on its way"

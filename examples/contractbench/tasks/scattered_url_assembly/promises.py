"""The contracts on traces of this task: parts are used while they hold, and the URL is what they make, byte by byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import mat
from mat.core.damage import damage
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_contracts.observation import DAMAGE, exchange, used_while_valid

ISSUES = (mat.artifact.issue("part", at="body.text", expires_in="body.max_age", when={"url": r"/parts/"}),)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    return [used_while_valid("part"), assembled]


@mat.trace_contract(FrozenDict(positions=FrozenDict(), texts=FrozenDict()), on="tool_call", id="assembled")
def assembled(state: FrozenDict, record: Record) -> FrozenDict | mat.Violated | None:
    """The URL asked for is the parts that were read, in order of their positions."""
    found = exchange(record)
    if found is None:
        return None
    said = found.reply if found.succeeded else None
    if found.path.startswith("/assets/") and isinstance(said, Mapping):
        positions = {str(part["name"]): int(part["position"]) for part in said["parts"]}
        return FrozenDict(state, positions=FrozenDict(positions))
    if found.path.startswith("/parts/") and isinstance(said, Mapping):
        known = (*state["texts"].get(said["name"], ()), said["text"])
        return FrozenDict(state, texts=FrozenDict({**state["texts"], said["name"]: known}))
    if not found.path.startswith("/media/"):
        return None
    return _judged(state, found.url)


def _judged(state: FrozenDict, url: str) -> mat.Violated | None:
    """What became of the URL. Of a part that was read several times, the one that the URL has in it is meant."""
    order = sorted(state["positions"], key=state["positions"].__getitem__)
    if not order or any(name not in state["texts"] for name in order):
        return mat.Violated("a part was not read", label="MISSING_CONSTRAINT")
    path, *query = (_meant(state["texts"][name], url) for name in order)
    split = urlsplit(url)
    whole = f"{split.scheme}://{split.netloc}{path}?{'&'.join(query)}"
    if url == whole:
        return None
    sent = split.query.split("&")
    left_out = [
        item.partition("=")[0] for item in query if not any(one.startswith(item.partition("=")[0] + "=") for one in sent)
    ]
    clipped = len(url) >= 16 and whole.startswith(url) and whole[len(url)] not in "?&"
    if left_out and not clipped:
        return mat.Violated(f"the URL lacks {', '.join(left_out)}", label="MISSING_CONSTRAINT")
    lesion = "truncated" if clipped else damage(whole, url) or "other"
    return mat.Violated(f"the URL is not what its parts make: {lesion}", label=DAMAGE[lesion])


def _meant(texts: tuple[str, ...], url: str) -> str:
    return next((text for text in reversed(texts) if text in url), texts[-1])

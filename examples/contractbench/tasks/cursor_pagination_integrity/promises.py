"""The contracts on traces of this task: cursors are followed in time and as they came, to the end, and the sums are right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mat
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat_contracts.observation import compliant, exchange, expected, no_shortcut, required

ISSUES = (
    mat.artifact.issue("cursor", at="body.exports.*.next", expires_in="cursor_holds", when={"url": r"/exports$"}),
    mat.artifact.issue("cursor", at="body.next", expires_in="cursor_holds", when={"url": r"/pages\?"}),
)
CONSUMES = (mat.artifact.consume("cursor", at="url", when={"url": r"/pages"}),)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    feeds = (given["first"], given["second"])
    return [
        compliant("cursor"),
        no_shortcut("GET /feeds/{feed}/rows"),
        required("POST /exports", "body.feeds"),
        expected("POST /exports", {"body.feeds": lambda asked: isinstance(asked, str) or set(asked) <= set(feeds)}),
        required("POST /reconciliations", ["body.feed", "body.count", "body.total_cents"]),
        expected("POST /reconciliations", {"body.feed": feeds}),
        reconciled,
    ]


@mat.trace_contract(FrozenDict(), on="tool_call", id="reconciled", label="WRONG_VALUE")
def reconciled(feeds: FrozenDict, record: Record) -> FrozenDict | mat.Violated | None:
    """Count and total are those of all rows of a feed, read to the end. A row is counted once, however often it was read."""
    found = exchange(record)
    if found is None:
        return None
    said = found.reply if found.succeeded and isinstance(found.reply, Mapping) else {}
    if "items" in said:  # known by what came back: the URL may stand behind a handle
        feed = said["feed"]
        before = feeds.get(feed, FrozenDict(rows=FrozenDict(), ended=False))
        rows = FrozenDict({**before["rows"], **{item["id"]: item["cents"] for item in said["items"]}})
        ended = before["ended"] or said.get("next") is None
        return FrozenDict({**feeds, feed: FrozenDict(rows=rows, ended=ended)})
    feed, count, total = (found.value(f"body.{name}") for name in ("feed", "count", "total_cents"))
    if found.path != "/reconciliations" or None in (feed, count, total):
        return None
    read = feeds.get(str(feed))
    if read is None or not read["ended"] or (count, total) != (len(read["rows"]), sum(read["rows"].values())):
        return mat.Violated(f"the count or total of {feed} differs from the rows that were read")
    return None

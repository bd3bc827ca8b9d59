"""The contracts on traces of this task: each URL is used in time, and as it was signed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mat
from mat_contracts.observation import compliant, expected, required


def _ttl_ms(url: str, reply: object) -> int | None:
    found = re.search(r"X-Amz-Expires=(\d+)", url)
    return None if found is None else int(found[1]) * 1000


ISSUES = (mat.artifact.issue("download_url", at="body.files.*.url", ttl_ms=_ttl_ms, when={"url": r"/exports$"}),)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    names = [name for name, _ in given["files"]]
    places = [f"body.files.{at}" for at in range(len(names))]
    return [
        compliant("download_url"),
        required("POST /receipts", places),
        expected("POST /receipts", dict.fromkeys(places, names)),
    ]

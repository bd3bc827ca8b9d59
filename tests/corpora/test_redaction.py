"""Undeclared redaction leaves ordinary texts alone: not one in a thousand texts of the recorded runs is changed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mat.core.redact import Redactor


def texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from texts(item)
        case list():
            for item in value:
                yield from texts(item)


def test_recorded_texts_are_left_as_they_are(corpus: Callable[[str], Path]) -> None:
    seen: set[str] = set()
    for file in sorted(corpus("README.md").parent.rglob("*.jsonl.gz")):
        for line in gzip.decompress(file.read_bytes()).splitlines():
            seen.update(texts(json.loads(line)))
    changed = [text for text in seen if Redactor().text(text) != text]
    assert len(seen) > 10_000
    assert len(changed) <= len(seen) / 1000, changed[:3]

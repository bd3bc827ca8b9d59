"""The examples of docstrings as code blocks: without a fence, Markdown reads `>>>` as a quotation in a quotation.

An extension of Griffe, which reads the docstrings for the reference.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import griffe


def fenced(text: str) -> str:
    """A docstring with each of its examples in a fence. An example ends at an empty line, as in doctest."""
    paragraphs = []
    for empty, lines in groupby(text.splitlines(), lambda line: not line.strip()):
        block = "\n".join(lines)
        example = not empty and block.lstrip().startswith(">>>")
        paragraphs.append(f"```pycon\n{block}\n```" if example else block)
    return "\n".join(paragraphs)


class Examples(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

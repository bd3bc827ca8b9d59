"""The recorded corpora as traces: a module for each format, read through `mat.adapters.importers` like any format of a user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from corpora.formats import agentdojo_groundtruth, agentrx, bfcl, massim, tau2, tau_bench, tau_contract, whowhen
from mat.adapters import importers
from mat.adapters.importers import Format, StoredTrace

FORMATS: Final[tuple[Format, ...]] = (
    massim.FORMAT, agentrx.FORMAT, tau_contract.FORMAT, tau_bench.FORMAT, whowhen.FORMAT, agentdojo_groundtruth.FORMAT,
    bfcl.FORMAT, tau2.FORMAT,
)  # fmt: skip
"""The first that accepts a row wins: formats that extend another stand before it."""


def read_traces(path: str | Path, format: str | None = None) -> Iterator[StoredTrace]:
    """The traces of a file of a corpus, by its first row or by the name of its format."""
    return importers.read_traces(path, format, known=FORMATS)

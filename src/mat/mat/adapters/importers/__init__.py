"""Importers: runs that others recorded, as traces that contracts can judge.

    for stored in read_traces("runs.jsonl.gz"):
        verdicts, outcomes = judge(stored.records, contracts)

A format is one module here with a `FORMAT`; `formats()` lists them. See `base` for what every format promises.
"""

from __future__ import annotations

from mat.adapters.importers.base import Format, RecordMaker, StoredTrace, formats, read_traces

__all__ = ["Format", "RecordMaker", "StoredTrace", "formats", "read_traces"]

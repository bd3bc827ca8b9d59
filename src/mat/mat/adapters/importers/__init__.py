"""Importers: read runs that other tools recorded as traces that contracts can judge.

    for stored in read_traces("runs.jsonl.gz"):
        verdicts, outcomes = judge(stored.records, contracts)

`formats()` lists what can be read. A format of your own is a value of type `Format`; see `base` for what every format
promises and for helpers to write one, and `conversation` for runs that are stored as messages.
"""

from __future__ import annotations

from mat.adapters.importers.base import Format, RecordMaker, StoredTrace
from mat.adapters.importers.reading import formats, read_traces

__all__ = ["Format", "RecordMaker", "StoredTrace", "formats", "read_traces"]

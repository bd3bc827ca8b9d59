"""The store: recorded runs as tables, for SQL and for numbers over very many of them."""

from __future__ import annotations

from mat.evidence.store.database import NAME, STORE, AccessMode, QueryResult, Store, StoreInUse, Taken, bring_up_to_date
from mat.evidence.store.files import FileFormat
from mat.evidence.store.metrics import GroupMetrics

__all__ = [
    "NAME", "STORE", "AccessMode", "FileFormat", "GroupMetrics", "QueryResult", "Store", "StoreInUse", "Taken",
    "bring_up_to_date",
]  # fmt: skip

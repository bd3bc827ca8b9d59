"""Python's garbage collector during a search: it looks rarely, and only at what the search has made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_YOUNG: Final = 50_000
"""Allocations between two collections of the youngest generation. Turned off, memory more than doubles."""
_MIDDLE, _OLD = 20, 1_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect rarely, and never look at objects that exist already; restored on exit. Cycles are freed later than usual.

    Changes nothing if the collector is off, or if somebody has frozen objects, because they would be unfrozen too.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()

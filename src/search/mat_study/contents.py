"""The content of a path as a short text that is equal wherever the content is: a digest, or why there is no file.

Files are read piece by piece, so their size does not matter. A digest is kept as long as the file's size and times stay.
"""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from hashlib import sha256
from typing import Final

ABSENCES: Final = ("a folder", "unreadable", "missing")
_DIGITS: Final = 32
_PIECE_BYTES: Final = 1_000_000


def content_of(path: str, *, size: int | None = None) -> str:
    """The digest of a file's content, or of its first `size` bytes; else "a folder", "unreadable" or "missing"."""
    return digest_of(path, size=size) or absence_of(path)


def digest_of(path: str, *, size: int | None = None) -> str | None:
    """The digest of a file's content, or of its first `size` bytes; None if there is no such file, or it cannot be read."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return None
        return _digest(path, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_size if size is None else size)
    except OSError:
        return None


def absence_of(path: str) -> str:
    """Why there is no file to read."""
    return "a folder" if os.path.isdir(path) else "unreadable" if os.path.lexists(path) else "missing"


@lru_cache(maxsize=10_000)
def _digest(path: str, mtime_ns: int, ctime_ns: int, size: int, first: int) -> str:
    found = sha256()
    with open(path, "rb") as stream:
        while first > 0 and (piece := stream.read(min(first, _PIECE_BYTES))):
            found.update(piece)
            first -= len(piece)
    return found.hexdigest()[:_DIGITS]

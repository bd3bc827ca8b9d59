"""Files: written whole or not at all; and who may read them, which is decided here.

What is in `.mat` (logs, recorded replies, the store) is for its owner alone. Replay files, reports and what the commands write
are for whoever the umask admits, because they are made to be shared.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from threading import get_ident
from typing import Final

PRIVATE: Final = 0o600
"""The mode of files in `.mat`."""
FOLDER: Final = ".mat"


def is_private(path: Path) -> bool:
    """Whether a file is in `.mat`."""
    return FOLDER in path.parts[:-1]


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, as far as they are missing; `.mat` and what is in it for their owner alone. OSError."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent)
    folder.mkdir(mode=0o700 if FOLDER in folder.parts else 0o777, exist_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file through a temporary one: no reader sees half of it, and neither a crash nor a full disk leaves half of it.

    A file that was there keeps its mode. OSError if it cannot be written; then the earlier file is still there, and no other.
    """
    path = Path(os.path.realpath(path))
    make_folder(path.parent)
    there = path.stat() if path.exists() else None
    if there is not None and not path.is_file():  # a pipe, a device
        path.write_bytes(content)
        return
    draft = path.with_name(f".mat-{os.getpid()}-{get_ident()}.tmp")
    mode = PRIVATE if is_private(path) else 0o666
    try:
        try:
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
        except PermissionError:
            if there is None:
                raise
            path.write_bytes(content)  # the folder admits no new file, but this one can be written
            return
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if there is not None:
            os.chmod(draft, there.st_mode & 0o7777)
        os.replace(draft, path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)

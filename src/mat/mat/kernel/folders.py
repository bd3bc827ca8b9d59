"""Folders to write to: the one wanted or, where nothing can be written (a read-only checkout), one in the temporary folder.

The spare folder of a folder is the same in every session, so that what one leaves there the next finds.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mat.core.digest import digest
from mat.core.files import make_folder

_DIGITS: Final = 12
"""Hex digits that distinguish spare folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFolder:
    """A folder that can be written to. `why`: why it is not the one wanted; "" if it is. `is_lost`: nothing can be written."""

    path: Path
    why: str = ""
    is_lost: bool = False


def writable(wanted: Path) -> OutputFolder:
    """The folder, which is made if it is missing; its spare folder if nothing can be written there.

    If nothing can be written in the temporary folder either, the folder itself, with both reasons.
    """
    try:
        _try_writing(wanted)
    except OSError as error:
        why = f"{wanted} cannot be written ({error.strerror or error})"
        try:
            return OutputFolder(path=spare(wanted), why=why)
        except OSError as other:
            why = f"{why}, nor the temporary folder ({other.strerror or other})"
            return OutputFolder(path=wanted, why=why, is_lost=True)
    return OutputFolder(path=wanted)


def spare(wanted: Path) -> Path:
    """A folder of the same name in the temporary folder, which belongs to this user alone."""
    above = Path(tempfile.gettempdir(), f"pytest-mat-{digest(os.path.abspath(wanted))[:_DIGITS]}")
    with suppress(FileExistsError):
        above.mkdir(mode=0o700)
    if not _is_ours(above):
        above = Path(tempfile.mkdtemp(prefix="pytest-mat-"))
    found = above / wanted.name
    found.mkdir(exist_ok=True)
    return found


def _try_writing(folder: Path) -> None:
    make_folder(folder)
    descriptor, name = tempfile.mkstemp(prefix=".mat-", dir=folder)
    os.close(descriptor)
    os.unlink(name)


def _is_ours(folder: Path) -> bool:
    """Whether nobody else can write there: the names in a shared temporary folder can be guessed."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        return False
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o077)

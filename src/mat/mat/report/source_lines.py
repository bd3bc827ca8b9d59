"""Where a finding is in the source: the line of the agent's call, or else the file of the test."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mat.report.document import FindingLine

_PLACE: Final = re.compile(r"(.+):([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFolders:
    """The folders that paths in a report are relative to, as paths in the repository: "" for its root.

    `calls`: that of agents' calls, where the session was started. `tests`: that of node ids, pytest's root.
    """

    calls: str = ""
    tests: str = ""


REPOSITORY_ROOT: Final = SourceFolders()
"""All paths are relative to the root of the repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A file in the repository, with forward slashes, and a line in it; None if the line is not known."""

    file: str
    line: int | None = None


def line_of(found: FindingLine, folders: SourceFolders) -> SourceLine | None:
    """The place of a finding; None if no file is known. A report may come from others: no path leads out of the repository."""
    match = _PLACE.fullmatch(found.place)
    file = None if match is None else _inside(folders.calls, match[1])
    if match is not None and file is not None:
        return SourceLine(file=file, line=int(match[2]))
    return test_file(found.test, folders)


def test_file(item: str, folders: SourceFolders) -> SourceLine | None:
    """The file of a test."""
    file = _inside(folders.tests, item.partition("::")[0])
    return None if file is None else SourceLine(file=file)


def _inside(folder: str, path: str) -> str | None:
    """A path in the repository; None if it leads out of it, or is not a path."""
    parts = PurePosixPath(path.replace("\\", "/"))
    text = (PurePosixPath(folder) / parts).as_posix()
    outside = parts.is_absolute() or ".." in parts.parts or ":" in path
    return None if outside or not path or not text.isprintable() else text

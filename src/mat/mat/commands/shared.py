"""What the commands share: exit codes, output and errors, types of arguments, and the width to print at."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from mat.core.errors import MatError, SpecError, did_you_mean
from mat.core.files import write_whole

if TYPE_CHECKING:
    from mat.evidence.replay_file import Replay


class Add(Protocol):
    """Adds a command to the command line: name, help and examples -> its parser."""

    def __call__(self, name: str, text: str, example: str) -> argparse.ArgumentParser: ...


PASS: Final = 0
VIOLATION: Final = 1
USAGE: Final = 2
UNDER: Final = ("nominal", "faults")
"""The runs of two reports that `--under` selects for a comparison."""
_NARROWEST: Final = 60
"""The least width of output, in columns."""


def print_json(data: Any) -> None:
    print(json.dumps(data, ensure_ascii=True, indent=1))


def complain(error: MatError) -> None:
    """Print an error on stderr."""
    print(f"mat: {error}", file=sys.stderr)


def error_data(error: MatError) -> dict[str, str]:
    return {"what": error.what, "why": error.why, "fix": error.fix, "where": error.where}


def width(*, piped: int | None = 80) -> int | None:
    """The width to print at, as pytest and rich do: COLUMNS, else the terminal's, else `piped`. At least 60."""
    columns = shutil.get_terminal_size((0, 24)).columns or piped
    return columns and max(_NARROWEST, columns)


# -- arguments --------------------------------------------------------------------------------------------------------


def count(text: str) -> int:
    """An argument's type: an integer of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer >= 0")
    return int(text)


def one_of(*names: str) -> Callable[[str], str]:
    """An argument's type: one of these names. Used in addition to `choices`, because it suggests the closest name."""

    def chosen(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not one of {', '.join(filter(None, names))}{did_you_mean(text, names)}"
            )
        return text

    return chosen


def check_files(*paths: Path, fix: str, folders: bool = False) -> None:
    """SpecError that names every path that cannot be read as a file (or as a folder, if `folders`)."""
    found = {path: why for path in paths if (why := _unreadable(path, folders=folders))}
    if not found:
        return
    missing = [path for path, why in found.items() if why == _MISSING]
    problems = [f"no such file: {path}{_suggestion(path)}" for path in missing]
    problems += [f"{path} {why}" for path, why in found.items() if why != _MISSING]
    why = f"paths are relative to {Path.cwd()}" if missing else "a readable file is needed"
    raise SpecError(what="; ".join(problems), why=why, fix=fix, where=", ".join(map(str, found)))


_MISSING: Final = "does not exist"
_FOLDER: Final = "is a folder"


def _unreadable(path: Path, *, folders: bool) -> str:
    """Why a path cannot be read; "" if it can."""
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return _MISSING
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except ValueError as error:  # an invalid file name
        return f"cannot be read: {error}"
    return _FOLDER if is_folder and not folders else ""


def _suggestion(path: Path) -> str:
    """A suggestion: the file as a path from a folder above or below this one, or one in its folder with a similar name."""
    if not path.is_absolute():
        parts = path.parts
        above = [Path(*[".."] * depth, path) for depth in range(1, len(Path.cwd().parts))]
        below = [Path(*parts[start:]) for start in range(1, len(parts))]
        found = next((each for each in (*above, *below) if not _unreadable(each, folders=True)), None)
        if found is not None:
            return f"; did you mean {str(found)!r}?"
    try:
        return did_you_mean(path.name, sorted(os.listdir(path.parent)))
    except OSError:
        return ""


def replay_of(path: Path) -> Replay:
    """Read a replay file. An error states what, why, fix and where."""
    from mat.evidence import replay_file

    check_files(path, fix="name a file in mat_replays/ that pytest --mat-stress wrote")
    with reading(path):
        return replay_file.read(path)


@contextmanager
def reading(path: Path, *, fix: str = "restore it from version control, or write it again") -> Iterator[None]:
    """Complete an error about a file with why, fix and where, as far as its reader left them empty."""
    try:
        yield
    except MatError as error:
        if error.why and error.fix and error.where:
            raise
        raise type(error)(
            error.what, why=error.why or "it is truncated, damaged, or another kind of file", fix=error.fix or fix,
            where=error.where or str(path),
        ) from error  # fmt: skip


def write_text(path: Path, text: str, *, mode: Literal["w", "a", "x"] = "w") -> None:
    """Write a text file in UTF-8 with \\n line ends. MatError if that fails."""
    try:
        if mode == "w":
            write_whole(path, text.encode())
            return
        with path.open(mode, encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except OSError as error:
        raise MatError(
            f"cannot write {path.name}: {error.strerror}", fix="check the folder and its permissions", where=str(path)
        ) from error

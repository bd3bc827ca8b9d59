"""What the commands share: exit codes, the ways out, types of arguments, and the width to print for."""

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

if TYPE_CHECKING:
    from mat.evidence.artifact import Replay


class Add(Protocol):
    """How the command line makes a command: name, help, examples -> its parser."""

    def __call__(self, name: str, text: str, example: str) -> argparse.ArgumentParser: ...


PASS: Final = 0
VIOLATION: Final = 1
USAGE: Final = 2
UNDER: Final = ("nominal", "faults")
"""Runs of two reports that can be compared."""
_NARROWEST: Final = 60
"""Columns that output is laid out for at least."""


def print_json(data: Any) -> None:
    print(json.dumps(data, ensure_ascii=True, indent=1))


def complain(error: MatError) -> None:
    """On stderr, and nothing in it that a terminal would obey: it may quote a file from outside."""
    from mat.evidence.artifact import printable

    print("mat:", "\n".join(printable(line) for line in str(error).split("\n")), file=sys.stderr)


def error_data(error: MatError) -> dict[str, str]:
    return {"what": error.what, "why": error.why, "fix": error.fix, "where": error.where}


def width(*, piped: int | None = 80) -> int | None:
    """Columns to print for, as pytest and rich take them: COLUMNS, else the terminal's, else `piped`. At least 60."""
    told = shutil.get_terminal_size((0, 24)).columns or piped
    return told and max(_NARROWEST, told)


# -- arguments --------------------------------------------------------------------------------------------------------


def count(text: str) -> int:
    """An argument's type: a whole number that is not below 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a count")
    return int(text)


def one_of(*names: str) -> Callable[[str], str]:
    """An argument's type: one of these names. Said beside `choices`, so that a slip of the pen is told what was meant."""

    def chosen(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not one of {', '.join(filter(None, names))}{did_you_mean(text, names)}"
            )
        return text

    return chosen


def check_files(*paths: Path, fix: str, folders: bool = False) -> None:
    """SpecError that names every path that cannot be read as a file, or as a folder where `folders` may be given."""
    found = {path: why for path in paths if (why := _unreadable(path, folders=folders))}
    if not found:
        return
    missing = [path for path, why in found.items() if why == _MISSING]
    said = [f"no such file: {', '.join(f'{path}{_beside(path)}' for path in missing)}"] if missing else []
    said += [f"{path} {why}" for path, why in found.items() if why != _MISSING]
    why = f"paths are taken from {Path.cwd()}" if missing else "a file is read here"
    raise SpecError(what="; ".join(said), why=why, fix=fix, where=", ".join(map(str, found)))


_MISSING: Final = "is not there"
_FOLDER: Final = "is a folder"


def _unreadable(path: Path, *, folders: bool) -> str:
    """What keeps a path from being read; "" where nothing does."""
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return _MISSING
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except ValueError as error:  # a name that no file can have
        return f"cannot be read: {error}"
    return _FOLDER if is_folder and not folders else ""


def _beside(path: Path) -> str:
    """What may have been meant, of what lies in the same folder."""
    try:
        return did_you_mean(path.name, sorted(os.listdir(path.parent)))
    except OSError:
        return ""


def replay_of(path: Path) -> Replay:
    """A replay file, or an error that says all four parts."""
    from mat.evidence import artifact

    check_files(path, fix="give a file of mat_replays/, as pytest --mat-stress left it")
    with reading(path):
        return artifact.read(path)


@contextmanager
def reading(path: Path, *, fix: str = "restore it from version control, or write it again") -> Iterator[None]:
    """What is raised about a file says all four parts: those that its reader left open are filled in."""
    try:
        yield
    except MatError as error:
        if error.why and error.fix and error.where:
            raise
        raise type(error)(
            error.what, why=error.why or "it is cut short, damaged, or no file of this kind", fix=error.fix or fix,
            where=error.where or str(path),
        ) from error  # fmt: skip


def write_text(path: Path, text: str, *, mode: Literal["w", "a", "x"] = "w") -> None:
    """Write a text file, in UTF-8 and with plain line ends. MatError where that cannot be done."""
    try:
        with path.open(mode, encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except OSError as error:
        raise MatError(f"cannot write {path.name}: {error.strerror}", fix="check the folder", where=str(path)) from error

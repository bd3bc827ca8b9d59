"""Find the formats that can be read, and read the traces of a file.

Further formats come from installed packages, as entry points of the group `mat.importers` that name a `Format`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mat.adapters.importers.base import Format, StoredTrace, read_rows
from mat.core.errors import MatError, SpecError

__all__ = ["GROUP", "formats", "read_traces"]

GROUP: Final = "mat.importers"
"""The entry point group for formats of other packages."""


def formats() -> tuple[Format, ...]:
    """The formats that can be read, in the order in which they are tried: those of other packages, then our own."""
    from importlib.metadata import entry_points

    from mat.adapters.importers import chat, inspect_log, otlp

    found = []
    for entry in sorted(entry_points(group=GROUP), key=lambda item: item.name):
        try:
            given = entry.load()
        except (ImportError, AttributeError) as error:
            raise SpecError(
                what=f"the entry point {entry.name} = {entry.value} cannot be loaded: {error}",
                why=f"an installed package registers it under {GROUP}",
                fix="repair or uninstall that package",
            ) from error
        if not isinstance(given, Format):
            raise SpecError(
                what=f"the entry point {entry.name} = {entry.value} is not a Format",
                why=f"entry points under {GROUP} read recorded runs",
                fix="name a mat.adapters.importers.Format there",
            )
        found.append(given)
    return (*found, otlp.FORMAT, inspect_log.FORMAT, chat.FORMAT)


def read_traces(
    path: str | Path, format: str | Format | None = None, *, known: Sequence[Format] | None = None
) -> Iterator[StoredTrace]:
    """Read the traces of a file, one after another: .json or .jsonl, plain or gzipped.

    `format` is a Format, or the name of one; by default, the first of `known` (default: `formats()`) that accepts the first
    row. MatError if the file cannot be opened, contains no row, or has no known format; and later, during iteration, at the
    first row that is broken or does not fit the format, with `file:line`.
    """
    rows = read_rows(path)
    position, row = next(rows, ("", None))
    rows.close()
    if row is None:
        raise MatError(
            f"{path} contains no rows",
            why="it is empty, or has only blank lines or an empty list",
            fix="give a file of recorded runs",
        )
    if not isinstance(format, Format):
        format = _format(format, formats() if known is None else known, position, row)
    return format.traces(read_rows(path))


def _format(name: str | None, known: Sequence[Format], position: str, row: Mapping[str, Any]) -> Format:
    for item in known:
        if item.name == name or (name is None and item.accepts(row)):
            return item
    listed = "; ".join(f"{item.name} ({item.text})" for item in known)
    if name is not None:
        raise SpecError(what=f"unknown format: {name!r}", fix=f"use one of the known formats: {listed}")
    raise MatError(
        f"{position} does not have a known format",
        why=f"the row has the fields {', '.join(sorted(row)[:12])}" if row else "the row has no fields",
        fix=f"give a file in one of the known formats: {listed}",
        where=position,
    )

"""Findings as workflow commands of GitHub Actions, which shows them at their lines: `::error file=...,line=...::...`.

Text from runs cannot end a command or begin another one: %, line ends and control characters are escaped, and in properties
also `:` and `,`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from mat.core.campaign import ItemStatus
from mat.report import words
from mat.report.document import Document, FindingLine, ItemLine
from mat.report.source_lines import SourceFolders, SourceLine, line_of, test_file

AnnotationLevel: TypeAlias = Literal["error", "warning", "notice"]
MOST: Final = 10
"""The annotations of one level that GitHub shows of a step; the last of more says how many there are."""
_MOST_CHARS: Final = 2_000
_ERRORS: Final[tuple[ItemStatus, ...]] = ("flaky", "missed", "stale")
_WARNINGS: Final[tuple[ItemStatus, ...]] = ("vacuous", "not_proven", "not_judged")


def annotation_lines(document: Document, *, folders: SourceFolders) -> list[str]:
    """The commands for a session, a line each: errors for what fails, warnings for what is open, notices for what is accepted.

    Items that failed by themselves are left to those who show their traceback.
    """
    new = [_of_finding(each, "error", folders) for each in document.findings if each.standing == "new"]
    held = [_of_finding(each, "notice", folders) for each in document.findings if each.standing in ("accepted", "known")]
    errors = [_of_item(each, "error", folders) for each in document.items if each.status in _ERRORS]
    warnings = [_of_item(each, "warning", folders) for each in document.items if each.status in _WARNINGS]
    return [*_few([*new, *errors], "error"), *_few(warnings, "warning"), *_few(held, "notice")]


def _few(lines: Sequence[str], level: AnnotationLevel) -> list[str]:
    unique = list(dict.fromkeys(lines))
    if len(unique) <= MOST:
        return unique
    more = len(unique) - MOST + 1
    return [*unique[: MOST - 1], command(level, f"{more} more are in the report", title="mat")]


def _of_finding(found: FindingLine, level: AnnotationLevel, folders: SourceFolders) -> str:
    cause = f"when {'; '.join(found.causes)}" if found.causes else "in the nominal run"
    lines = [f"{found.message} {cause}"]
    lines += [f"repair: {found.repair}"] if found.repair else []
    lines += [f"accepted until {found.until}: {found.remark}"] if found.until else [found.remark] if found.remark else []
    lines += [words.show_command(found.replay)] if found.replay else [f"in {found.test}"]
    cost = f"cost {found.cost}" if found.causes else "nominal run"
    title = f"{'broken' if level == 'error' else found.standing}: {', '.join(found.contracts)} ({cost})"
    return command(level, *lines, title=title, line=line_of(found, folders))


def _of_item(item: ItemLine, level: AnnotationLevel, folders: SourceFolders) -> str:
    title = f"{item.status.replace('_', ' ')}: {item.id.partition('::')[2] or item.id}"
    return command(level, item.reason or item.id, title=title, line=test_file(item.id, folders))


def command(level: AnnotationLevel, *lines: str, title: str, line: SourceLine | None = None) -> str:
    """One workflow command. `lines` become the lines of its message; each is text from anywhere."""
    properties = {"title": words.shorten(words.clean(title), 200)}
    if line is not None:
        properties = {"file": line.file, **({"line": str(line.line)} if line.line else {}), **properties}
    given = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    message = "\n".join(words.shorten(words.clean(each), _MOST_CHARS) for each in lines)
    return f"::{level} {given}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")

"""`mat accept FILE --reason "..."`: keep a known counterexample from failing its test until a date; `--list`, `--remove`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from mat.commands.shared import PASS, VIOLATION, Add, print_json, replay_of, width
from mat.core.codec import encode
from mat.core.errors import MatError, SpecError, did_you_mean, plural
from mat.core.known import Acceptance
from mat.evidence import acceptance, replay_file

_TEXT: Final = "accept a counterexample until a date: it is shown, but fails no test until then"
_EXAMPLES: Final = """mat accept tests/mat_replays/test_refund-3f2a91.mat.json --reason "ticket 4711" --until 2027-03-01
         mat accept --list
         mat accept --remove tests/mat_replays/test_refund-3f2a91.mat.json

exit codes: 0 done, 1 --list shows an acceptance that has ended, 2 a usage error or an unusable file"""
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "build", "dist"})


def add_parser(add: Add) -> None:
    parser = add("accept", _TEXT, _EXAMPLES)
    parser.add_argument(
        "files",
        type=Path,
        nargs="*",
        metavar="FILE",
        help="replay files; with --list, folders to search (default: this folder)",
    )
    parser.add_argument("--reason", metavar="TEXT", help="why it may stay, for those who review the change")
    parser.add_argument(
        "--until", type=_date, metavar="YYYY-MM-DD",
        help=f"the last day on which it fails no test, in UTC (default: {acceptance.DAYS} days from today)",
    )  # fmt: skip
    parser.add_argument("--by", default="", metavar="NAME", help="who accepts it")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="list what is accepted, and until when")
    what.add_argument("--remove", action="store_true", help="end the acceptance of these replay files")


def _date(text: str) -> date:
    """An argument's type: a date."""
    found = acceptance.day_of(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date of the form YYYY-MM-DD")
    return found


def accept(options: argparse.Namespace) -> int:
    today = datetime.now(UTC).date()
    if options.list or options.remove:
        given = [name for name in ("reason", "until", "by") if getattr(options, name)]
        if given:
            raise SpecError(
                what=f"--{given[0]} cannot be combined with --{'list' if options.list else 'remove'}",
                why="it describes a new acceptance", fix="leave it out",
            )  # fmt: skip
    if options.list:
        return _list(options, today)
    if not options.files:
        raise SpecError(
            what="no replay file is named", why="a counterexample is accepted by its replay file",
            fix="name a file in mat_replays/, or list what is accepted with --list",
        )  # fmt: skip
    return _remove(options) if options.remove else _accept(options, today)


def _accept(options: argparse.Namespace, today: date) -> int:
    if not (options.reason or "").strip():
        raise SpecError(
            what="an acceptance needs a reason" if options.reason is None else "the reason is empty",
            why="people who review the acceptance or see the finding read it",
            fix='say why the finding may stay: --reason "fixed by the vendor in March, ticket 4711"',
        )  # fmt: skip
    made: dict[Path, Acceptance] = {}
    also: dict[Path, list[str]] = {}
    for file in options.files:
        replay = replay_of(file)
        _check_folder(file)
        made[file] = acceptance.acceptance_of(
            replay, file.name, reason=options.reason, by=options.by, today=today, until=options.until
        )
        also[file] = sorted({each.contract for each in replay.counterexample.run.failures} - {made[file].contract})
    renewed = {file: _store(file, [found]) for file, found in made.items()}
    if options.json:
        print_json({"accepted": [_as_data(each, today) for each in made.values()]})
        return PASS
    for file, found in made.items():
        for line in _told(file, found, also[file], renewed=renewed[file], by_default=options.until is None):
            print(line)
    return PASS


def _told(file: Path, found: Acceptance, also: list[str], *, renewed: bool, by_default: bool) -> Iterator[str]:
    """What was done."""
    from mat.report import words

    default = f" ({acceptance.DAYS} days; --until names another day)" if by_default else ""
    again = " again" if renewed else ""
    yield words.clean(f"accepted{again} until {found.until}{default}: {found.contract}, cost {found.cost}, in {found.test}")
    yield words.clean(f"  commit {acceptance.file_in(file.parent.parent)} with {file.name}")
    if also:
        yield words.clean(
            f"  its run also breaks {', '.join(also)}, which fails the test unless that is accepted by its own replay file"
        )


def _check_folder(file: Path) -> None:
    if file.absolute().parent.name != replay_file.FOLDER:
        raise SpecError(
            what=f"{file.name} is not in a folder {replay_file.FOLDER}", why="an acceptance is kept next to its replay file",
            fix=f"move the file to {replay_file.FOLDER}/ next to its test", where=str(file),
        )  # fmt: skip


def _store(file: Path, found: list[Acceptance]) -> bool:
    """Write acceptances in the place of those of a replay file. Returns whether there were any."""
    path = file.absolute().parent / acceptance.FILE
    kept = acceptance.read(path)
    others = [each for each in kept if each.replay != file.name]
    try:
        acceptance.write(path, [*others, *found])
    except OSError as error:
        raise MatError(
            f"cannot write {path.name}: {error.strerror}", fix="check the folder and its permissions", where=str(path)
        ) from error
    return len(others) < len(kept)


def _remove(options: argparse.Namespace) -> int:
    for file in options.files:
        path = file.absolute().parent / acceptance.FILE
        names = [each.replay for each in acceptance.read(path)]
        if file.name not in names:
            raise SpecError(
                what=f"{file.name} is not accepted{did_you_mean(file.name, names)}",
                why=f"{path.name} names {plural(len(names), 'other replay file')}" if names else f"there is no {path.name}",
                fix="list what is accepted with mat accept --list", where=str(path),
            )  # fmt: skip
    for file in options.files:
        _store(file, [])
    if options.json:
        print_json({"removed": [str(file) for file in options.files]})
    else:
        for file in options.files:
            print(f"removed: {file.name} fails its test again if it breaks a contract")
    return PASS


# -- the list ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    path: Path
    found: Acceptance

    @property
    def orphan(self) -> bool:
        """Whether its replay file is gone."""
        return not (self.path.parent / self.found.replay).is_file()


def _list(options: argparse.Namespace, today: date) -> int:
    listed = [_Listed(path=path, found=each) for path in _files(options.files or [Path()]) for each in acceptance.read(path)]
    ended = [each for each in listed if each.found.ended(today.isoformat())]
    if options.json:
        print_json({"accepted": [{**_as_data(each.found, today), "file": str(each.path)} for each in listed]})
    elif not listed:
        print("nothing is accepted here")
    else:
        for each in listed:
            print(_entry(each, today))
    return VIOLATION if ended else PASS


def _entry(listed: _Listed, today: date) -> str:
    from mat.report import words

    found = listed.found
    ended = " (expired: it fails its test again)" if found.ended(today.isoformat()) else ""
    gone = "; its replay file is gone" if listed.orphan else ""
    lines = [
        f"until {found.until}{ended}  {found.contract}  cost {found.cost}  {found.test}",
        f"in calls of {', '.join(dict.fromkeys(each.interface for each in found.signatures))}",
        f"{found.in_words()}{gone}",
        str(listed.path.parent / found.replay),
    ]
    first, *rest = (words.clean(line) for line in lines)
    columns = width() or words.WIDTH
    return "\n".join([
        words.wrap(first, hanging="  ", width=columns), *(words.wrap(line, indent="  ", width=columns) for line in rest)
    ])  # fmt: skip


def _as_data(found: Acceptance, today: date) -> dict[str, Any]:
    return {**encode(found), "contract": found.contract, "ended": found.ended(today.isoformat())}


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files of acceptances in these folders, those in a folder mat_replays, or the files themselves."""
    for path in paths:
        if not path.exists():
            raise SpecError(what=f"no such folder: {path}", why=f"paths are relative to {Path.cwd()}", fix="name a folder")
        if path.is_file():
            yield path
            continue
        for name, folders, files in os.walk(path):
            folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in _SKIPPED)
            if acceptance.FILE in files and Path(os.path.abspath(name)).name == replay_file.FOLDER:
                yield Path(name) / acceptance.FILE

"""Accepted findings as a file, `mat_replays/accepted.json`: next to the replay files, to be reviewed in a pull request.

It is untrusted input, like replay files: JSON only, within limits, every field checked. One acceptance stands on one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, ClassVar, Final

from mat.core import limits
from mat.core.campaign import signatures_in
from mat.core.codec import FORMAT, decode, encode, load_json
from mat.core.errors import CodecError, MatError, SpecError, printable
from mat.core.files import write_whole
from mat.core.known import Acceptance
from mat.core.redact import cleaned
from mat.evidence.replay_file import FOLDER, SUFFIX, Replay

FILE: Final = "accepted.json"
DAYS: Final = 90
"""How long a finding is accepted if nobody says until when."""
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOST_CHARS: Final = 1_000
_FIX: Final = "restore the file from version control, or correct it; `mat accept` writes it"


@dataclass(frozen=True, slots=True, kw_only=True)
class _AcceptanceFile:
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    mat: int
    accepted: tuple[Acceptance, ...]


def file_in(folder: Path) -> Path:
    """The file of the tests in a folder."""
    return folder / FOLDER / FILE


def read(path: Path) -> tuple[Acceptance, ...]:
    """The acceptances of a file, () if there is none. MatError names every problem."""
    where = str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(limits.FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise MatError(f"cannot read {path.name}: {error.strerror}", fix="check the file", where=where) from error
    try:
        data = load_json(raw, where=where)
        if isinstance(data, dict) and type(data.get("mat")) is int and data["mat"] != FORMAT:
            newer = data["mat"] > FORMAT
            raise MatError(
                what=f"accepted findings of format {data['mat']}; this pytest-mat reads format {FORMAT}",
                why=f"{'a newer' if newer else 'an older'} version wrote them",
                fix="upgrade pytest-mat" if newer else _FIX,
                where=where,
            )
        found = decode(_AcceptanceFile, data, where=where, name="file of accepted findings").accepted
    except CodecError as error:
        raise CodecError(what=printable(error.what), why=error.why, fix=_FIX, where=where) from None
    problems = [f"accepted.{index}: {text}" for index, each in enumerate(found) for text in _problems(each)]
    if problems:
        raise SpecError(what=printable("; ".join(problems[:10])), why="the file was edited by hand", fix=_FIX, where=where)
    return found


def _problems(found: Acceptance) -> Iterator[str]:
    for name in ("test", "replay", "reason"):
        if not getattr(found, name).strip():
            yield f"{name} is empty"
    for name in ("test", "replay", "reason", "by"):
        text = getattr(found, name)
        if not text.isprintable() or len(text) > _MOST_CHARS:
            yield f"{name} contains control characters, or more than {_MOST_CHARS} characters"
    if "/" in found.replay or "\\" in found.replay or not found.replay.endswith(SUFFIX):
        yield f"replay: {found.replay!r} is not the name of a replay file"
    if not found.signatures:
        yield "signatures is empty"
    if len({each.contract for each in found.signatures}) > 1:
        yield "signatures: one acceptance is about one contract"
    if found.cost < 0:
        yield f"cost: {found.cost} is negative"
    for name in ("since", "until"):
        if day_of(getattr(found, name)) is None:
            yield f"{name}: {getattr(found, name)!r} is not a date of the form YYYY-MM-DD"


def day_of(text: str) -> date | None:
    """A date of the form YYYY-MM-DD; None for anything else."""
    try:
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def write(path: Path, accepted: Sequence[Acceptance]) -> None:
    """Write the acceptances, sorted; remove the file if there are none. OSError if that fails."""
    if not accepted:
        path.unlink(missing_ok=True)
        return
    ordered = sorted(cleaned(tuple(accepted)), key=lambda each: (each.test, each.contract, each.stage, each.cost, each.replay))
    lines = ",\n".join(f"  {json.dumps(encode(each), ensure_ascii=True)}" for each in ordered)
    write_whole(path, f'{{\n "mat": {FORMAT},\n "accepted": [\n{lines}\n ]\n}}\n'.encode("ascii"))


def acceptance_of(replay: Replay, name: str, *, reason: str, by: str, today: date, until: date | None) -> Acceptance:
    """The acceptance of a replay's finding. SpecError for a reason, a name or a date that cannot stand, or a finding that
    fails nothing.

    Without `until`, for `DAYS` days. It covers every signature that the contract has in the run, because a contract may be
    broken at several interfaces, and all these are one counterexample.
    """
    found = replay.counterexample
    verdict = found.verdict
    again = [
        each.signature for each in signatures_in(found.run, [verdict.contract])
        if verdict.stage in (each.stage, "effected")
    ]  # fmt: skip
    made = Acceptance(
        replay=name, test=replay.item, stage=verdict.stage, cost=found.cost,
        signatures=tuple(dict.fromkeys([found.signature, *again])),
        reason=reason.strip(), by=by.strip(), since=today.isoformat(),
        until=(until or today + timedelta(days=DAYS)).isoformat(),
    )  # fmt: skip
    if until is not None and until < today:
        raise SpecError(
            what=f"--until {until} is in the past: today is {today} (UTC)",
            why="an acceptance ends, and then the test fails again",
            fix="name a future date; `mat accept --remove FILE` ends an acceptance now",
        )  # fmt: skip
    problems = list(_problems(made))
    if problems:
        raise SpecError(
            what=f"cannot accept {name}: {'; '.join(problems)}", why="those who review the acceptance read it",
            fix='say why the finding may stay, as in --reason "fixed by the vendor in March, ticket 4711"',
        )  # fmt: skip
    if replay.expected:
        raise SpecError(
            what=f"{name} needs no acceptance", why=f"its test expects {verdict.contract} to be broken (expect=)",
            fix="remove the contract from expect= first, if you want an end date",
        )  # fmt: skip
    if verdict.severity != "hard":
        raise SpecError(
            what=f"{name} needs no acceptance", why=f"{verdict.contract} is soft, and fails no test", fix="leave it as it is"
        )
    return made

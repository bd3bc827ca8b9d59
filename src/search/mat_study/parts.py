"""What the parts of an evaluation give, and their journal."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from mat.core.campaign import Certificate, Counterexample, Covered
from mat.core.codec import decode, encode
from mat.core.errors import CodecError
from mat.core.run import Run
from mat.core.spec import Schedule
from mat.measure.governance import GovernedRow, SearchRow
from mat.measure.robustness import CurveRow
from mat.measure.rows import RunRow
from mat_study.sources import Sources, installed_digest, tidy

FOLDER: Final = Path(".mat", "evaluations")
_KEPT: Final = 10_000
"""Journals kept of evaluations that were never taken up again; the oldest go first."""


@dataclass(slots=True, kw_only=True)
class Part:
    """What one part gave: a condition, a seed and a variant.

    Of a nominal part, `schedules` are the fault matrix of its seed, where it decides that, and `met` the boundaries and
    channels that its run crossed, by name. `undisturbed` are the runs that those in `found` are compared with. `notes` say
    what a person should know of how the part was made.
    """

    rows: list[RunRow] = field(default_factory=list)
    governed: list[GovernedRow] = field(default_factory=list)
    searches: list[SearchRow] = field(default_factory=list)
    curves: list[CurveRow] = field(default_factory=list)
    found: list[Counterexample] = field(default_factory=list)
    undisturbed: list[Run] = field(default_factory=list)
    certificates: list[Certificate] = field(default_factory=list)
    covered: list[Covered] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)
    met: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    executions: int = 0

    def take(self, other: Part) -> None:
        """Add what another part gave."""
        for kind in KINDS:
            getattr(self, kind).extend(getattr(other, kind))
        self.executions += other.executions


KINDS: Final[dict[str, type[Any]]] = {
    "rows": RunRow, "governed": GovernedRow, "searches": SearchRow, "curves": CurveRow, "found": Counterexample,
    "undisturbed": Run,
    "certificates": Certificate, "covered": Covered, "schedules": Schedule, "met": str, "notes": str,
}  # fmt: skip
"""What a part holds lists of."""


class Parts:
    """The journal of one item's evaluation: a line for what it fits, then one for each finished part, a checksum in each.

    It fits where its key and all sources that were loaded are as they were; otherwise it is begun anew. It is read up to the
    first line that is not as it was written: what a killed process had half written, or somebody changed, is executed again.
    `session` is the name that its first session had, under which runs are kept (`--mat-store`).
    """

    def __init__(self, path: Path, key: dict[str, Any], *, began_ns: int, session: str = "", fresh: bool = False) -> None:
        self.path, self.recalled, self.session = path, 0, session
        self._sources = Sources(began_ns)
        self._known: dict[str, Any] = {}
        key = {**key, "installed": installed_digest(), "python": sys.version}
        path.parent.mkdir(parents=True, exist_ok=True)
        lines, size = ([], 0) if fresh else _lines(path)
        if lines and lines[0].get("key") == key and self._unchanged(lines[1:]):
            self.session = lines[0]["session"]
            self._known = {line["part"]: line["gave"] for line in lines[1:]}
            os.truncate(path, size)
        else:
            path.write_bytes(_line({"key": key, "session": session}))
        tidy(path.parent, kept=_KEPT)

    def recall(self, name: str) -> Part | None:
        """A finished part; None where it has to be executed."""
        gave = self._known.get(name)
        if gave is None:
            return None
        try:
            kept = {kind: [decode(of, each, where=str(self.path)) for each in gave[kind]] for kind, of in KINDS.items()}
        except CodecError:  # written by another version of this file, under the same version of the distribution
            return None
        self.recalled += 1
        return Part(**kept, executions=gave["executions"])

    def _unchanged(self, parts: list[dict[str, Any]]) -> bool:
        """Whether all sources that were loaded for these lines are as they were."""
        return all(self._sources.digest(path) == was for line in parts for path, was in line["sources"].items())

    def keep(self, name: str, part: Part) -> None:
        """Once this returns, the part outlives the process."""
        gave = {kind: [encode(each) for each in getattr(part, kind)] for kind in KINDS}
        line = _line({"part": name, "gave": {**gave, "executions": part.executions}, "sources": self._sources.new()})
        with self.path.open("ab") as stream:
            stream.write(line)


_SUM: Final = 16
_HEAD: Final = len('{"sum":"') + _SUM + len('",')


def _line(content: dict[str, Any]) -> bytes:
    """A line of the journal: an object whose first member is the checksum of the others."""
    rest = json.dumps(content)[1:]
    return f'{{"sum":"{sha256(rest.encode()).hexdigest()[:_SUM]}",{rest}\n'.encode()


def _lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The lines of a journal up to the first that is not as it was written, and the size of these."""
    found: list[dict[str, Any]] = []
    size = 0
    try:
        data = path.read_bytes()
    except OSError:
        return found, size
    for line in data.splitlines(keepends=True):
        rest = line[_HEAD:].removesuffix(b"\n")
        if line != b'{"sum":"' + sha256(rest).hexdigest()[:_SUM].encode() + b'",' + rest + b"\n":
            break
        found.append(json.loads(line))
        size += len(line)
    return found, size

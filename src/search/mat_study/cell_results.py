"""The results of an evaluation's cells, and their journal."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mat.core.campaign import Certificate, Counterexample, Covered
from mat.core.checkpoint import Log, claim, tidy
from mat.core.codec import decode, encode
from mat.core.errors import CodecError, LimitReached
from mat.core.redact import cleaned
from mat.core.run import Run
from mat.core.spec import Schedule
from mat.kernel.entropy import KEYED
from mat.measure.governance import GovernedRow, SearchRow
from mat.measure.robustness import CurveRow
from mat.measure.rows import RunRow
from mat_study.sources import Sources, installed_digest

_JOURNALS_KEPT: Final = 10_000
"""How many journals of evaluations that nobody resumed are kept; the oldest are removed first."""


@dataclass(slots=True, kw_only=True)
class CellResults:
    """The results of one cell: a condition, a seed and a variant.

    In a nominal cell, `schedules` are the fault matrix of its seed, if this cell draws it, and `met` the names of the
    boundaries and channels that its run crossed. `undisturbed` are the nominal runs with which those in `found` are compared.
    `notes` are remarks for the reader on how the cell was made.
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

    def take(self, other: CellResults) -> None:
        """Add the results of another cell."""
        for kind in KINDS:
            getattr(self, kind).extend(getattr(other, kind))
        self.executions += other.executions


KINDS: Final[dict[str, type[Any]]] = {
    "rows": RunRow, "governed": GovernedRow, "searches": SearchRow, "curves": CurveRow, "found": Counterexample,
    "undisturbed": Run,
    "certificates": Certificate, "covered": Covered, "schedules": Schedule, "met": str, "notes": str,
}  # fmt: skip
"""The fields of a cell that are lists."""


class CellJournal:
    """The journal of one item's evaluation: a checkpoint log with an entry for each finished cell.

    It is valid as long as its key and all loaded sources are unchanged; otherwise it starts anew, and `note` gives the reason.
    `session` is the name of its first session, under which runs are stored (`--mat-store`). `path` is None if no journal can
    be kept.
    """

    def __init__(self, path: Path, key: dict[str, Any], *, began_ns: int, session: str = "", fresh: bool = False) -> None:
        self.path: Path | None = path
        self.recalled, self.session, self._problem = 0, session, ""
        self._sources = Sources(began_ns)
        self._recorded: dict[str, Any] = {}
        self._log: Log | None = None
        try:
            if fresh:
                path.unlink(missing_ok=True)
            facts = {"draws": KEYED, "installed": installed_digest(), "python": sys.version}
            self._log = claim(path, kind="evaluation", key={**cleaned(key), **facts})
            if self._log is None:
                self._stop_keeping("another process runs the same evaluation; executions of this process are not kept")
            else:
                self._load(self._log)
        except (OSError, CodecError) as error:
            self._stop_keeping(f"no journal is kept: {error}")
        tidy(path.parent, kept=_JOURNALS_KEPT)

    def _load(self, log: Log) -> None:
        found: dict[str, Any] = {}
        changed: set[str] = set()
        session = self.session
        for line in log.lines():
            match line.data():
                case {"part": str(name), "session": str(session), "sources": dict(sources), "gave": dict(gave)}:
                    found[name] = gave
                    changed |= {path for path, was in sources.items() if self._sources.digest(path) != was}
                case _:
                    log.set_aside(f"line {line.number} was written by another version")
                    return
        if changed:
            log.set_aside(f"{', '.join(sorted(changed)[:3])} changed since")
        else:
            self.session, self._recorded = session, found

    @property
    def note(self) -> str:
        """Why the previous journal is not used, or why nothing is kept; "" without a problem."""
        return self._problem or ("" if self._log is None else self._log.note())

    def recall(self, name: str) -> CellResults | None:
        """A finished cell; None if it has to be executed."""
        gave = self._recorded.get(name)
        if gave is None:
            return None
        try:
            kept = {kind: [decode(of, each, where=str(self.path)) for each in gave[kind]] for kind, of in KINDS.items()}
            results = CellResults(**kept, executions=decode(int, gave["executions"]))
        except (CodecError, KeyError, TypeError):  # written by other code under the same version of the distribution
            return None
        self.recalled += 1
        return results

    def keep(self, name: str, results: CellResults) -> None:
        """Keep a cell, which then survives the end of the process."""
        if self._log is None:
            return
        if any(cleaned(each) is not each for kind in KINDS for each in getattr(results, kind)):
            return  # a secret stands in a name; a resumed evaluation executes the cell again
        gave: dict[str, Any] = {kind: [encode(each) for each in getattr(results, kind)] for kind in KINDS}
        gave["executions"] = results.executions
        entry = {"part": name, "session": self.session, "sources": self._sources.new(), "gave": gave}
        try:
            self._log.append(json.dumps(entry))
        except (OSError, LimitReached) as error:
            self._stop_keeping(f"the results of a cell could not be kept: {error}")

    def _stop_keeping(self, why: str) -> None:
        """Continue without a journal, because of `why`."""
        self._problem = why
        self.close()
        self.path = None

    def close(self) -> None:
        """Close the file without removing it."""
        if self._log is not None:
            self._problem = self.note
            self._log.close()
            self._log = None

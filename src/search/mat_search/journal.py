"""Finished executions on disk: a search that was killed goes on where it was.

A journal is a checkpoint log (`mat.core.checkpoint`) whose key is what the search is. Each entry is one finished execution, or
a source that executions rest on, with its digest:

    {"source":"shop.py","digest":"e3b0..."}
    {"kind":"explore","of":"4f53...","more":null,"run":[...]}

Another key, or a source that has changed since, sets the whole file aside, with the reason: edited code never meets old
executions. Of a damaged file the executions before the damage are used. A journal is read by the search that wrote it and by
nobody else. One process at a time has it; a second one goes without.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias

from mat.core import limits
from mat.core.checkpoint import Log, claim
from mat.core.digest import digest
from mat.core.errors import CodecError, LimitReached, MatError
from mat.core.packed import pack, unpack
from mat.core.run import Run
from mat.core.spec import RunSpec, Schedule

More: TypeAlias = Callable[[Run], Any]
"""JSON data to keep beside a run."""
Restore: TypeAlias = Callable[[Run, Any], None]
"""Told of a run that is given back, with what was kept beside it."""
ConfirmInOrder: TypeAlias = Callable[[Sequence[Schedule]], Iterable[Run | None]]

_RUN: Final = re.compile(rb'\{"kind":"([a-z0-9 -]+)","of":"([0-9a-f]{32})",')


def no_digest(source: str) -> str:
    """For searches whose code cannot change between two of them."""
    return ""


class SearchJournal:
    """One search's finished executions; made by `open_journal`. `found` counts those that were there, `recalled` those taken.

    `said` is why a file that was there is not used, or why nothing is kept any more; "" where all is well.
    """

    def __init__(
        self, log: Log | None, spec: RunSpec, said: str = "", *, more: More | None = None, restore: Restore | None = None
    ) -> None:
        self._log, self._spec = log, spec
        self.path = None if log is None else log.path
        self._more, self._restore = more, restore
        self._kept: dict[tuple[str, str], deque[tuple[int, int]]] = {}
        self._sources: dict[str, str] = {}
        self._lock = Lock()
        self.said = said
        self.recalled = 0
        self.found = 0

    def recall(self, kind: str, schedule: Schedule) -> Run | None:
        """The next execution that was kept under this kind and schedule; each is given back once."""
        if not self._kept:
            return None
        with self._lock:
            waiting = self._kept.get((kind, _of(schedule)))
            if not waiting or self._log is None:
                return None
            data = json.loads(self._log.content(waiting.popleft()))
        try:
            run = unpack(data["run"], self._spec)
        except CodecError:
            return None  # the line is as it was written, so it was written by other code; execute it again
        if self._restore is not None:
            self._restore(run, data["more"])
        self.recalled += 1
        return run

    def holds(self, kind: str, schedule: Schedule) -> bool:
        """Whether `recall` would find one."""
        return bool(self._kept and self._kept.get((kind, _of(schedule))))

    def keep(self, kind: str, schedule: Schedule, run: Run) -> None:
        """Write one finished execution; once this returns, it outlives the process."""
        if self._log is None:
            return
        try:
            text = pack(run, self._spec)
        except CodecError:  # it will be executed again
            return
        more = "null" if self._more is None else json.dumps(self._more(run))
        self._write(f'{{"kind":"{kind}","of":"{_of(schedule)}","more":{more},"run":{text}}}')

    def learn(self, sources: Mapping[str, str]) -> None:
        """Note what executions rest on: names with their digests. Call it before the executions that do."""
        for name, found in sources.items():
            if self._sources.get(name) != found:
                self._sources[name] = found
                self._write(json.dumps({"source": name, "digest": found}))

    def confirming(self, confirm: ConfirmInOrder) -> Callable[[Sequence[Schedule]], Sequence[Run | None]]:
        """`confirm`, asked only for what it had not executed before; each run is kept as soon as it is given."""

        def through(schedules: Sequence[Schedule]) -> Sequence[Run | None]:
            runs = [self.recall("fresh", schedule) for schedule in schedules]
            missing = [index for index, run in enumerate(runs) if run is None]
            answers = confirm([schedules[index] for index in missing]) if missing else ()
            for index, run in zip(missing, answers, strict=True):
                runs[index] = run
                if run is not None:
                    self.keep("fresh", schedules[index], run)
            return runs

        return through

    def once(self, kind: str, schedule: Schedule, execute: Callable[[], Run]) -> Run:
        """What was kept, or else what `execute` gives: for executions beside the search's own."""
        run = self.recall(kind, schedule)
        if run is None:
            run = execute()
            self.keep(kind, schedule, run)
        return run

    def _write(self, text: str) -> None:
        with self._lock:
            if self._log is None:
                return
            try:
                self._log.append(text)
            except LimitReached as reached:
                self._stop(f"{reached.what}; later executions are not kept")
            except OSError as error:
                self._stop(f"the journal could not be written: {error}")

    def _stop(self, why: str) -> None:
        self.said = why
        self.close()

    def close(self) -> None:
        """Let go of the file; it stays."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def remove(self) -> None:
        """The search is finished and said: nothing is left to resume."""
        if self._log is not None:
            self._log.path.unlink(missing_ok=True)
            self.close()


def open_journal(
    path: Path,
    spec: RunSpec,
    *,
    key: Mapping[str, Any],
    source_digest: Callable[[str], str] = no_digest,
    more: More | None = None,
    restore: Restore | None = None,
) -> SearchJournal:
    """The journal of a search of `spec`, at `path`; a new one where none is there that fits.

    `key`: JSON data by name that must be the same for executions to be the same: the item, what the search is, versions.
    `source_digest` gives the digest that a source has now. `more` and `restore`: what is kept beside each run. The file that
    does not fit is renamed to `*.aside.jsonl`.
    """
    log = None
    try:
        log = claim(path, kind="search", key=key, size_limit=limits.JOURNAL_BYTES)
        if log is None:
            return SearchJournal(None, spec, "another process runs the same search; executions of this process are not kept")
        journal = SearchJournal(log, spec, more=more, restore=restore)
        unfit = _load(journal, log, source_digest)
        if unfit:
            log.set_aside(unfit)
            journal = SearchJournal(log, spec, more=more, restore=restore)
    except (OSError, MatError) as error:
        if log is not None:
            log.close()
        return SearchJournal(None, spec, f"no journal is kept: {error}")
    journal.said = log.said()
    return journal


def _load(journal: SearchJournal, log: Log, source_digest: Callable[[str], str]) -> str:
    """Find what a log holds; returns why it cannot be used, "" where it can."""
    changed: list[str] = []
    for line in log.lines():
        run = _RUN.match(line.content)
        if run is not None:
            journal._kept.setdefault((run[1].decode(), run[2].decode()), deque()).append(line.place)
            journal.found += 1
            continue
        match line.data():
            case {"source": str(name), "digest": str(noted)}:
                pass
            case _:
                return f"line {line.number} was written by another version"
        journal._sources[name] = noted
        if source_digest(name) != noted:
            changed.append(name)
    if not changed:
        return ""
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    return f"{', '.join(changed[:3])}{more} changed since"


def _of(schedule: Schedule) -> str:
    return digest([item.key for item in schedule])[:32]

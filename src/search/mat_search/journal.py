"""The journal of a search: finished executions on disk, so that a killed search can resume.

A journal is a checkpoint log (`mat.core.checkpoint`) whose key identifies the search. Each entry is one finished execution, or
a source that executions depend on, with its digest:

    {"source":"shop.py","digest":"e3b0..."}
    {"kind":"explore","of":"4f53...","more":null,"run":[...]}

If the key differs or a source has changed, the whole file is set aside, with the reason: edited code never uses old executions.
If a file is damaged, the executions before the damage are used. Only the search that wrote a journal reads it. One process at a
time owns it; a second one runs without a journal.
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
from mat.core.redact import cleaned
from mat.core.run import Run
from mat.core.spec import RunSpec, Schedule
from mat_search.campaign import Confirm

More: TypeAlias = Callable[[Run], Any]
"""Returns JSON data to keep with a run."""
Restore: TypeAlias = Callable[[Run, Any], None]
"""Called with a recalled run and the data kept with it."""
Looks: TypeAlias = Callable[[], int | None]
"""Returns how often it was seen that executions before the last one began as they should; None if they need no such look."""
ConfirmInOrder: TypeAlias = Callable[[Sequence[Schedule]], Iterable[Run | str | None]]

_RUN: Final = re.compile(rb'\{"kind":"([a-z0-9 -]+)","of":"([0-9a-f]{32})",')


def no_digest(source: str) -> str:
    """For searches whose code cannot change between sessions."""
    return ""


class SearchJournal:
    """One search's finished executions; made by `open_journal`. `found` counts those in the file, `recalled` those used.

    `note`: why an existing file is not used, or why nothing more is kept; "" without a problem. `looks`: how often
    executions were looked at; one is written after the next look.
    """

    def __init__(
        self, log: Log | None, spec: RunSpec, note: str = "", *, more: More | None = None, restore: Restore | None = None,
        looks: Looks = lambda: None,
    ) -> None:  # fmt: skip
        self._log, self._spec = log, spec
        self.path = None if log is None else log.path
        self._more, self._restore = more, restore
        self._kept: dict[tuple[str, str], deque[tuple[int, int]]] = {}
        self._sources: dict[str, str] = {}
        self._lock = Lock()
        self._looks, self._seen_looks = looks, looks()
        self._pending: list[str] = []
        self.note = note
        self.recalled = 0
        self.found = 0

    def recall(self, kind: str, schedule: Schedule) -> Run | None:
        """The next execution that was kept under this kind and schedule; each is recalled once."""
        if not self._kept:
            return None
        with self._lock:
            waiting = self._kept.get((kind, _schedule_digest(schedule)))
            if not waiting or self._log is None:
                return None
            data = json.loads(self._log.content(waiting.popleft()))
        try:
            run = unpack(data["run"], self._spec)
        except CodecError:
            return None  # the line is undamaged, so other code wrote it: execute the schedule again
        if self._restore is not None:
            self._restore(run, data["more"])
        self.recalled += 1
        return run

    def holds(self, kind: str, schedule: Schedule) -> bool:
        """Whether `recall` would return a run."""
        return bool(self._kept and self._kept.get((kind, _schedule_digest(schedule))))

    def keep(self, kind: str, schedule: Schedule, run: Run) -> None:
        """Write one finished execution, which then survives the end of the process."""
        if self._log is None:
            return
        if cleaned(run) is not run:
            return  # a secret stands in a name; a resumed search executes it again
        try:
            text = pack(run, self._spec)
        except CodecError:  # a resumed search will execute it again
            return
        more = "null" if self._more is None else json.dumps(self._more(run))
        looks = self._looks()
        if looks != self._seen_looks:
            self._seen_looks = looks
            self.flush()
        self._pending.append(f'{{"kind":"{kind}","of":"{_schedule_digest(schedule)}","more":{more},"run":{text}}}')
        if looks is None:
            self.flush()

    def flush(self) -> None:
        """Write the executions that were waiting for a look, which has been taken."""
        pending, self._pending = self._pending, []
        for line in pending:
            self._write(line)

    def learn(self, sources: Mapping[str, str]) -> None:
        """Note the sources that executions depend on, with their digests. Call it before those executions."""
        for name, found in sources.items():
            if self._sources.get(name) != found:
                self._sources[name] = found
                self._write(json.dumps({"source": name, "digest": found}))

    def confirming(self, confirm: ConfirmInOrder, kind: str) -> Confirm:
        """Wrap `confirm` so that it executes only what is not kept yet; each run is kept as soon as it is ready."""

        def confirm_missing(schedules: Sequence[Schedule]) -> Sequence[Run | str | None]:
            runs: list[Run | str | None] = [self.recall(kind, schedule) for schedule in schedules]
            missing = [index for index, run in enumerate(runs) if run is None]
            answers = confirm([schedules[index] for index in missing]) if missing else ()
            for index, run in zip(missing, answers, strict=True):
                runs[index] = run
                if isinstance(run, Run):
                    self.keep(kind, schedules[index], run)
            return runs

        return confirm_missing

    def once(self, kind: str, schedule: Schedule, execute: Callable[[], Run]) -> Run:
        """The kept run, else that of `execute`, which is then kept: for executions that are not part of the search itself."""
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
        self.note = why
        self.close()

    def close(self) -> None:
        """Close the file without removing it."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def remove(self) -> None:
        """Remove the file of a search that is finished and reported."""
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
    looks: Looks = lambda: None,
) -> SearchJournal:
    """The journal of a search of `spec`, at `path`; a new one if no file there matches.

    `key`: JSON data by name that must be equal for executions to be equal: the item, the search, versions. `source_digest`
    returns the current digest of a source. `more` and `restore`: data kept with each run. `looks`: see `SearchJournal`. What
    does not match is renamed to `*.aside.jsonl`.
    """
    log = None
    try:
        log = claim(path, kind="search", key=cleaned(key), size_limit=limits.JOURNAL_BYTES)
        if log is None:
            return SearchJournal(None, spec, "another process runs the same search; executions of this process are not kept")
        journal = SearchJournal(log, spec, more=more, restore=restore, looks=looks)
        unfit = _load(journal, log, source_digest)
        if unfit:
            log.set_aside(unfit)
            journal = SearchJournal(log, spec, more=more, restore=restore, looks=looks)
    except (OSError, MatError) as error:
        if log is not None:
            log.close()
        return SearchJournal(None, spec, f"no journal is kept: {error}")
    journal.note = log.note()
    return journal


def _load(journal: SearchJournal, log: Log, source_digest: Callable[[str], str]) -> str:
    """Load a log; returns why it cannot be used, "" if it can."""
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


def _schedule_digest(schedule: Schedule) -> str:
    return digest([item.key for item in schedule])[:32]

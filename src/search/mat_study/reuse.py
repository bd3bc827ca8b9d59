"""Certificates are not made twice: the record of an item's last search, and whether its certificate still holds.

A record is a file in `.mat/searches`, named after the item. It says when the item was searched, for how long and with which
result; of a certified item it also holds the result, its rows, and the inputs that the certificate rests on
(`mat_study.inputs`). The certificate is reused only if all of them are what they were, and the nominal run is, too.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mat.core import limits
from mat.core.campaign import ItemResult
from mat.core.checkpoint import tidy
from mat.core.codec import decode, encode, load_json
from mat.core.digest import digest
from mat.core.errors import MatError
from mat.core.files import write_whole
from mat.core.redact import cleaned
from mat.core.run import Run
from mat.core.value import EXACT_FIELDS
from mat.kernel.folders import writable
from mat.kernel.reads import Read, watched
from mat.measure.governance import GovernedRow, SearchRow
from mat.measure.robustness import CurveRow
from mat.measure.rows import RunRow
from mat_study.allotment import Waiting
from mat_study.closure import ImportGraph
from mat_study.evaluation import Evaluated
from mat_study.inputs import (
    CertificateInputs,
    InputReader,
    ItemFacts,
    UnknownInput,
    change,
    contract_facts,
    interpreter_variables,
    settings_facts,
)
from mat_study.settings import ItemSettings

FOLDER: Final = Path(".mat", "searches")
_VERSION: Final = 1
_SUFFIX: Final = ".json.z"
_GROWTH: Final = 2.0
"""How many times as long as before a search probably takes that a limit of time ended."""
_FOUND: Final = ("counterexample", "flaky", "missed", "failed", "vacuous", "expected")
"""Results of searches that found something."""
_NOT_OF_THE_SEARCH: Final = ("contracts", "known", "timeout_s", "require_proof", "evaluation_runs", "evaluation_strategy")
"""Settings that change no certificate, or that are compared in another way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """The result of a certified item and its rows, with the inputs it rests on; `head` is that of the nominal run."""

    __pydantic_config__ = EXACT_FIELDS
    result: ItemResult
    head: str
    inputs: CertificateInputs
    rows: tuple[RunRow, ...] = ()
    governed: tuple[GovernedRow, ...] = ()
    searches: tuple[SearchRow, ...] = ()
    curves: tuple[CurveRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRecord:
    """The last search of an item. `day`: when, as YYYY-MM-DD. `status`: of its result. `finished`: no limit of time ended it.

    `sources`: a digest of its source files, "" if unknown. `unknown`: why its certificate was not kept, "" if it was, or if
    there was none.
    """

    __pydantic_config__ = EXACT_FIELDS
    item: str
    day: str
    seconds: float
    status: str
    finished: bool = True
    sources: str = ""
    unknown: str = ""
    certified: Certified | None = None


class SearchRecords:
    """The records of a project's searches. `reuse`: whether certificates are reused; records are written in any case."""

    def __init__(self, root: Path, *, reuse: bool) -> None:
        self.root, self.reuse = root, reuse
        self.graph = ImportGraph()

    def read(self, item: str) -> SearchRecord | None:
        """The record of an item; None without one, or if it cannot be read, or was written by another version."""
        for folder in (self.root / FOLDER, writable(self.root / FOLDER).path):
            path = folder / _file_name(item)
            with suppress(OSError, MatError, zlib.error, KeyError, TypeError):
                text = zlib.decompressobj().decompress(path.read_bytes(), limits.FILE_BYTES)
                data = load_json(text, where=str(path))
                if data["mat"] == _VERSION and data["sum"] == digest(data["record"]):
                    record = decode(SearchRecord, data["record"], where=str(path))
                    return record if record.item == item else None
        return None

    def write(self, record: SearchRecord) -> None:
        """Write a record in place of the last one; a folder that cannot be written keeps nothing."""
        with suppress(OSError, MatError):
            folder = writable(self.root / FOLDER).path
            data = encode(cleaned(record))
            text = json.dumps({"mat": _VERSION, "sum": digest(data), "record": data}, separators=(",", ":"))
            if len(text) <= limits.FILE_BYTES:
                write_whole(folder / _file_name(record.item), zlib.compress(text.encode(), 6))
            tidy(folder, kept=limits.SEARCHES_KEPT, pattern=f"*{_SUFFIX}")

    def clear(self) -> None:
        """Remove all records (`--cache-clear`)."""
        with suppress(OSError):
            for path in sorted((self.root / FOLDER).glob(f"*{_SUFFIX}")):
                path.unlink(missing_ok=True)


def _file_name(item: str) -> str:
    return f"{digest(item)[:20]}{_SUFFIX}"


class Reuse:
    """One item's certificate: found again before a search, and kept after it.

    `known`: what the plugin knows of the item. `taken`: what its executions in this process have read so far.
    """

    def __init__(
        self, item: str, records: SearchRecords, known: ItemFacts, *, began_ns: int, taken: Callable[[], Iterable[Read]]
    ) -> None:
        self._item, self._records, self._known, self._taken = item, records, known, taken
        self._reader = InputReader(records.root, records.graph, known, began_ns=began_ns)
        self._facts: tuple[tuple[str, str], ...] = ()
        self._unknown: str = ""

    def find(self, settings: ItemSettings, nominal: Evaluated, key: dict[str, Any]) -> tuple[SearchRecord | None, str]:
        """The record whose certificate holds; or None, with the reason, "" if the item was never certified.

        `key`: the facts of the search (`searches.search_key`). Called after the nominal run, before the search.
        """
        self._facts, self._unknown = self._facts_of(settings, nominal, key), _unknowable(nominal, settings)
        record = self._records.read(self._item)
        if record is None:
            return None, ""
        if record.certified is None:
            return None, record.unknown and f"its last certificate was not kept: {record.unknown}"
        if not self._records.reuse:
            return None, "reuse is turned off"
        try:
            reason = self._unknown or self._changed(record.certified, nominal.run)
        except UnknownInput as unknown:
            reason = str(unknown)
        return (record, "") if not reason else (None, reason)

    def seems_to_hold(self) -> bool:
        """Whether a search will probably not be needed, as far as that is known before the item is executed."""
        record = self._records.read(self._item) if self._records.reuse else None
        if record is None or record.certified is None:
            return False
        kept = record.certified.inputs
        known = dict(kept.facts)
        try:
            sources, _ = self._reader.sources()
            return all(known.get(name) == value for name, value in self._known.facts.items()) and not change(
                kept, CertificateInputs(facts=kept.facts, sources=sources), self._reader
            )
        except UnknownInput:
            return False

    def expected(self) -> Waiting:
        """What the search of the item will probably need, and whether it goes first when time is short."""
        record = self._records.read(self._item)
        if record is None:
            return Waiting(needs_s=None, first=True)
        if self.seems_to_hold():
            return Waiting(needs_s=0.0)
        needs_s = record.seconds if record.finished else _GROWTH * record.seconds
        return Waiting(needs_s=needs_s, first=record.status in _FOUND or record.sources != self.sources_digest())

    def _changed(self, certified: Certified, nominal: Run) -> str:
        sources, _ = self._reader.sources()
        changed = change(certified.inputs, CertificateInputs(facts=self._facts, sources=sources), self._reader)
        return changed or ("" if certified.head == nominal.head else "the nominal run changed")

    def _facts_of(self, settings: ItemSettings, nominal: Evaluated, key: dict[str, Any]) -> tuple[tuple[str, str], ...]:
        found = {
            **self._known.facts,
            **interpreter_variables(self._known.environment),
            **settings_facts(settings, left_out=_NOT_OF_THE_SEARCH),
            **contract_facts(nominal.contracts),
            **{name: digest(value) for name, value in key.items() if name != "the reported run"},
        }
        return tuple(sorted(found.items()))

    def inputs(self, elsewhere: Iterable[Read]) -> CertificateInputs:
        """The inputs of a certificate that was made now; UnknownInput if they cannot be known. `elsewhere`: what executions
        in other processes have read."""
        for why in (self._unknown, *self._reader.unknown):
            if why:
                raise UnknownInput(why)
        if watched() is None:
            raise UnknownInput("what it read was not watched")
        sources, closure = self._reader.sources()
        read = self._reader.read([*self._taken(), *elsewhere], watched(), closure)
        return CertificateInputs(facts=self._facts, sources=sources, read=read)

    def sources_digest(self) -> str:
        """A digest of the item's sources, "" if they cannot be known."""
        try:
            return digest([list(pair) for pair in self._reader.sources()[0]])
        except UnknownInput:
            return ""

    def keep(
        self, result: ItemResult, nominal: Evaluated, elsewhere: Iterable[Read], *, seconds: float, finished: bool,
        resumed: bool, rows: Sequence[RunRow], governed: Sequence[GovernedRow], searches: Sequence[SearchRow],
        curves: Sequence[CurveRow],
    ) -> None:  # fmt: skip
        """Write the record of a search, with its certificate if there is one. `resumed`: some of its executions are of an
        earlier session, and what they read is not known."""
        record = SearchRecord(
            item=self._item, day=f"{datetime.now(UTC):%Y-%m-%d}", seconds=round(seconds, 3), status=result.status,
            finished=finished, sources=self.sources_digest(),
        )  # fmt: skip
        if result.status == "certified":
            try:
                if resumed:
                    raise UnknownInput("its search was resumed")
                inputs = self.inputs(elsewhere)
            except UnknownInput as unknown:
                record = replace(record, unknown=str(unknown))
            else:
                certified = Certified(
                    result=result, head=nominal.run.head, inputs=inputs, rows=tuple(rows), governed=tuple(governed),
                    searches=tuple(searches), curves=tuple(curves),
                )  # fmt: skip
                record = replace(record, certified=certified)
        self._records.write(record)


def _unknowable(nominal: Evaluated, settings: ItemSettings) -> str:
    """Why a certificate of this item cannot be compared with another session; "" if it can."""
    if len(nominal.variants) > 1:
        return "several governance variants are compared"
    if settings.clock == "real":
        return "its runs use the machine's clock"
    if settings.strategy == "adversary":
        return "an adversary searches it"
    if settings.loopback:
        return "it may ask servers of this machine, whose code and state are not known"
    if settings.live_calls is None and any(entry.mode == "external" for entry in nominal.run.tape):
        return "replies of external ports are not recorded"
    return ""

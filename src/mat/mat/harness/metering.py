"""Metering: what agents consume under resource contracts, reserved before a call and settled after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from threading import RLock
from typing import Final, TypeAlias, TypeVar

from mat.boundary.emit import acting
from mat.boundary.port import Port
from mat.core.errors import Blocked
from mat.core.record import ActionKind, Mediation, Observation, new_mediation, new_observation
from mat.core.redact import Redactor
from mat.core.resources import PER_PORT
from mat.core.value import FrozenDict, snapshot_arguments
from mat.harness.open_step import OpenStep
from mat.harness.run_time import RunTime
from mat.harness.search_state import SearchState
from mat.monitor.judge import HARNESS
from mat.resources.contract import ResourceContract
from mat.resources.ledger import BudgetSpent, Ledger
from mat.resources.work import Work, working

T = TypeVar("T")
_UNDER_CONTRACT: Final = Mediation(decision="allow", rule="budget")


Write: TypeAlias = Callable[[ActionKind, str, str, FrozenDict], None]
"""(kind, name, agent, arguments): adds a record that is sealed from the start."""


def _write_nothing(kind: ActionKind, name: str, agent: str, arguments: FrozenDict) -> None:
    """The run is closed and takes no more records."""


def _no_step() -> None:
    """The run is closed and has no horizon."""


def _note_nothing(code: str, message: str) -> None:
    """The run is closed and takes no more notes."""


class Metering:
    """The ledger of a run, and the contracts that governance gives to agents. `active`: some agent may work under one.

    `write` records ledger entries; `check_horizon` raises if the horizon allows no further step; `note` adds a finding. They
    are methods of the recorder, which owns this object; `close` drops the references, so that a finished run is freed at once.
    """

    __slots__ = (
        "_check_horizon",
        "_contracts",
        "_lock",
        "_metered",
        "_note",
        "_redactor",
        "_time",
        "_works",
        "_write",
        "active",
        "ledger",
        "search",
    )  # fmt: skip

    def __init__(
        self,
        contracts: Mapping[str, ResourceContract],
        *,
        time: RunTime,
        lock: RLock,
        redactor: Redactor,
        write: Write,
        check_horizon: Callable[[], object],
        note: Callable[[str, str], object],
    ) -> None:
        self._contracts, self._time, self._lock, self._redactor = contracts, time, lock, redactor
        self._write, self._check_horizon, self._note = write, check_horizon, note
        self.search: SearchState | None = None
        self._works: dict[str, Work] = {}
        self._metered: dict[int, Work] = {}
        self.active = bool(contracts)
        self.ledger: Ledger | None = None

    @property
    def elapsed_ms(self) -> int:
        return self._time.now_ms()

    def state(self) -> object:
        """The accounts, as state for the search; None without any."""
        return None if self.ledger is None else self.ledger.state()

    def account(self, act: Callable[[Ledger], T], *, step: bool = False) -> T:
        """Apply an operation to the ledger exclusively, and record its entries. `step`: it counts towards the horizon."""
        with self._lock:
            self._time.now_ms()
            if step:
                self._check_horizon()
            if self.ledger is None:
                self.ledger, self.active = Ledger(self._time.now_ms), True
                if self.search is not None:
                    self.search.forgo_equivalence()
            try:
                return act(self.ledger)
            finally:
                self.write_entries()

    def work_of(self, agent: str) -> Work | None:
        """The contract that governance gives to an agent, activated on first use; None if there is none."""
        name = agent if agent in self._contracts else "*"
        if name not in self._contracts:
            return None
        with self._lock:
            work = self._works.get(name)
            if work is None:
                above = self.work_of("*") if name != "*" else None
                whom = name if name != "*" else HARNESS
                work = Work(self._contracts[name], agent=whom, parents=() if above is None else (above,))
                self._works[name] = work
                work.activate()
        return work

    @property
    def governs(self) -> bool:
        """Whether governance has a contract for an agent of this run."""
        return bool(self._contracts)

    def begin(self, port: Port) -> None:
        """Activate the contracts of a step before it is asked, so that their records precede it in the trace."""
        if self._contracts and port.kind in PER_PORT:
            with suppress(BudgetSpent):
                self.work_of(acting.get()[0])

    def reserve(self, opened: OpenStep) -> Blocked | None:
        """Reserve what a call may consume, after mediation and before faults; the error to raise if the budget is too small."""
        port, name = opened.port, opened.action.name
        if port.kind not in PER_PORT:
            return None
        work = working.get()
        if work is None or work.keeper is not self:
            work = self.work_of(opened.agent)
        ledger = self.ledger
        if work is None or ledger is None:
            return None
        needs, why = work.needs(port.kind, f"{PER_PORT[port.kind]}:{name}", opened.current_arguments)
        with self._lock:
            resource = ""
            if not why:
                resource, why = ledger.refusal(work.node, needs)
            mediation = opened.mediation or _UNDER_CONTRACT
            if why:
                opened.mediation = replace(mediation, decision="block", rule=_UNDER_CONTRACT.rule, reason=why)
                opened.error_kind = "blocked"
                self.write_entries()
                return BudgetSpent(why, work.id, resource)
            call = f"{PER_PORT[port.kind]}:{name} at step {opened.step}"
            facts = FrozenDict(ledger.reserve(str(opened.step), work.node, needs, call))
            if mediation is _UNDER_CONTRACT:
                opened.mediation = new_mediation("allow", mediation.rule, "", None, "", "", "", "", (), facts)
            else:
                opened.mediation = replace(mediation, reserved=facts)
            self._metered[opened.step] = work
            self.write_entries()
        return None

    def charged(self, opened: OpenStep, observation: Observation) -> Observation:
        """Settle a call with what it consumed."""
        work = self._metered.pop(opened.step, None)
        if work is None or self.ledger is None:
            return observation
        blocked = opened.mediation is not None and opened.mediation.decision == "block"  # the approved call had changed
        seen, action, needs = observation, opened.action, self.ledger.holds[str(opened.step)].needs
        replied = seen.error is None and not seen.cancelled
        actual = {} if blocked else work.consumption(
            action.kind, action.name, invoked=opened.invoked, elapsed_ms=self.elapsed_ms - opened.at_ms, usage=seen.usage,
            needs=needs, whole=replied,
        )  # fmt: skip
        unknown: tuple[str, ...] = ()
        if (replied or seen.chunks) and (opened.invoked or opened.taped):
            unknown = work.unknown(action.kind, action.name, usage=seen.usage, needs=needs)
            if limited := [name for name in unknown if name in work.node.tracked]:
                self._note("usage-unknown", f"replies of {action.name} name no usage: {', '.join(limited)} cannot be limited")
        facts = FrozenDict(self.ledger.settle(str(opened.step), actual, unknown))
        return new_observation(seen.value, seen.error, seen.cancelled, seen.chunks, seen.opaque, seen.usage, facts)

    def write_entries(self) -> None:
        """Record the ledger's new entries. They are facts about the run and no agent's steps, so the horizon ignores them."""
        for entry in () if self.ledger is None else self.ledger.take_notices():
            facts = self._redactor.mapping(snapshot_arguments(entry.facts, f"contract {entry.event}"))
            self._write("contract", entry.event, entry.agent, facts)

    def close(self) -> None:
        """End the run: contracts that require no output are fulfilled."""
        if self.ledger is not None:
            for work in reversed(self._works.values()):
                self.ledger.expire(work.node, self.elapsed_ms)
                if work.live and not work.asks_for_output:
                    self.ledger.end(work.node, "fulfilled")
            self.ledger.close()
            self.write_entries()
        self._write, self._check_horizon, self._note, self.search = _write_nothing, _no_step, _note_nothing, None

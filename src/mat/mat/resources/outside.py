"""Resource contracts outside of runs: a ledger for each tree of contracts, in real time, and the calls under them."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from mat.boundary.port import Port
from mat.boundary.session import CallEnd
from mat.core.resources import PER_PORT, Amounts, shown
from mat.core.value import FrozenDict
from mat.resources.ledger import BudgetSpent, ContractNode, Ledger, LedgerNotice

T = TypeVar("T")
_log: Final = logging.getLogger("mat.budget")


class Spender(Protocol):
    """What the meter needs from the work under a contract; see `mat.resources.work.Work`."""

    @property
    def id(self) -> str: ...
    @property
    def node(self) -> ContractNode: ...
    def needs(self, kind: str, port: str, arguments: Mapping[str, Any]) -> tuple[dict[str, int], str]: ...
    def consumption(
        self, kind: str, name: str, *, invoked: int, elapsed_ms: int, usage: Mapping[str, Any], needs: Amounts, whole: bool
    ) -> dict[str, int]: ...
    def unknown(self, kind: str, name: str, *, usage: Mapping[str, Any], needs: Amounts) -> tuple[str, ...]: ...


class OutsideRuns:
    """The ledger of contracts outside of runs, in real time, for all threads. It logs their warnings and failures."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._start = time.monotonic()
        self._busy = False
        self._late: deque[Callable[[Ledger], object]] = deque()
        self._unlogged: deque[LedgerNotice] = deque()
        self.ledger = Ledger(lambda: self.elapsed_ms, refuses_unmetered=True)

    @property
    def elapsed_ms(self) -> int:
        return int((time.monotonic() - self._start) * 1000)

    def work_of(self, agent: str) -> None:
        return None

    def account(self, act: Callable[[Ledger], T], *, step: bool = False) -> T:
        try:
            with self._lock:
                if self._busy:  # an act of this thread asks something, such as the status
                    return act(self.ledger)
                self._busy = True
                try:
                    return act(self.ledger)
                finally:
                    while self._late:
                        self._late.popleft()(self.ledger)
                    self._unlogged += self.ledger.take_notices()
                    self._busy = False
        finally:
            self._log_notices()

    def settle(self, act: Callable[[Ledger], object]) -> None:
        """Like `account`. In the midst of another act, where a forgotten stream can be collected as garbage, it waits."""
        with self._lock:
            if self._busy:
                self._late.append(act)
                return
        self.account(act)

    def _log_notices(self) -> None:
        while self._unlogged and not self._busy:
            try:
                notice = self._unlogged.popleft()
            except IndexError:  # another thread was faster
                return
            text = _log_line(notice)
            if text:
                _log.warning("%s", text)


def _log_line(notice: LedgerNotice) -> str:
    """An entry as a line of the log, or "" if it is not worth one."""
    facts, whose = notice.facts, f"{notice.facts['contract']} of {notice.agent}"
    match notice.event:
        case "warned":
            scaled = "seconds" if facts["resource"] == "time" else facts["resource"]
            used, budget = shown(scaled, facts["consumed"]), shown(scaled, facts["budget"])
            return f"{whose}: {facts['percent']} % of {facts['resource']} is used, {used} of {budget}"
        case "unmetered":
            return f"{whose}: {facts['call']} named no usage, so what is left of {', '.join(facts['resources'])} is unknown"
        case "violated" | "expired":
            return f"{whose} is {notice.event}: {facts['cause']}"
    return ""


class OutsideMeter:
    """Charges the calls outside of runs to one contract."""

    __slots__ = ("_keeper", "_work")

    def __init__(self, work: Spender, keeper: OutsideRuns) -> None:
        self._work, self._keeper = work, keeper

    def admit(self, port: Port, arguments: Mapping[str, Any]) -> OutsideCharge:
        work = self._work
        name = f"{PER_PORT[port.kind]}:{port.name}"
        needs, missing = work.needs(port.kind, name, arguments)

        def reserve(ledger: Ledger) -> tuple[str, str, str]:
            resource, why = ("", missing) if missing else ledger.refusal(work.node, needs)
            key = "" if why else f"call#{ledger.numbered()}"
            if key:
                ledger.reserve(key, work.node, needs, name)
            return key, resource, why

        key, resource, why = self._keeper.account(reserve)
        if why:
            raise BudgetSpent(why, work.id, resource)
        return OutsideCharge(work, self._keeper, port, key, needs)


class OutsideCharge:
    """One call outside of runs, from its admission to its settlement."""

    __slots__ = ("_began_ms", "_keeper", "_key", "_needs", "_port", "_work")

    def __init__(self, work: Spender, keeper: OutsideRuns, port: Port, key: str, needs: Amounts) -> None:
        self._work, self._keeper, self._port, self._key, self._needs = work, keeper, port, key, needs
        self._began_ms = keeper.elapsed_ms

    def settle(self, usage: FrozenDict, ending: CallEnd) -> None:
        work, kind, name = self._work, self._port.kind, self._port.name
        actual = work.consumption(
            kind, name, invoked=1, elapsed_ms=self._keeper.elapsed_ms - self._began_ms, usage=usage, needs=self._needs,
            whole=ending == "reply",
        )  # fmt: skip
        unknown = () if ending == "failed" else work.unknown(kind, name, usage=usage, needs=self._needs)
        self._keeper.settle(lambda ledger: ledger.settle(self._key, actual, unknown))

"""Approvals: who is asked, how long an answer may take, and which action it covers.

An approval is pending, approved, rejected or expired. It binds to the digest of the tool, its arguments, the version of the
policy and the trace before the call. An approver that raises, answers anything but yes, or takes too long approves nothing.

Source: A5.3.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from mat.boundary.port import Port
from mat.core.approval import approval_digest, bound_call, granted, status_of
from mat.core.digest import chain
from mat.core.errors import raised_text
from mat.core.record import Record, facts
from mat.core.value import FrozenDict
from mat.kernel import world as worlds

Approver: TypeAlias = Callable[[str, FrozenDict], Any]
"""(what, arguments) -> True, Approved or Rejected; anything else means no. In async code it can be a coroutine function."""
ApprovalStatus: TypeAlias = Literal["approved", "rejected", "expired", "pending"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """The approver said yes. `by` names the person if the approver speaks for several."""

    approved: ClassVar[bool] = True
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The approver said no, and why."""

    approved: ClassVar[bool] = False
    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """The approver did not answer in time."""

    approved: ClassVar[bool] = False
    reason: str = ""


class Desk(Protocol):
    """The mediator's view of the run, used only if an approval needs a digest or a rule has `peeks`."""

    def settled(self) -> Sequence[Record]:
        """The sealed and judged records, from the first on, without a gap."""

    def pending(self, step: int) -> Sequence[Record]:
        """The records asked after the settled ones and before `step`, as far as they are known."""

    def recorded(self, step: int, arguments: FrozenDict) -> FrozenDict:
        """The recorded form of arguments that replace those of a step."""


def now_ms() -> int:
    """Milliseconds of run time; 0 outside a run."""
    world = worlds.current()
    return 0 if world is None else world.clock.now_ns() // 1_000_000


def name_of(thing: object) -> str:
    """The name of an approver or a rule in the trace."""
    name = getattr(thing, "name", None) or getattr(thing, "__name__", None)
    return name if isinstance(name, str) else type(thing).__name__


def ask(approver: Approver, what: str, arguments: FrozenDict, timeout_ms: int | None) -> Any:
    """The approver's answer, or an awaitable of it; Rejected if it raised, Expired if it took longer than allowed.

    A synchronous approver cannot be interrupted: its time is compared afterwards.
    """
    began = now_ms()
    try:
        answer = approver(what, arguments)
    except Exception as error:  # fail closed
        return _rejection(error)
    if inspect.isawaitable(answer):
        return ApprovalAnswer(answer, timeout_ms, began)
    return _unless_late(answer, timeout_ms, began)


def _rejection(error: Exception) -> Rejected:
    return Rejected(reason=f"the approver {raised_text(error)}")


def _unless_late(answer: Any, timeout_ms: int | None, began: int) -> Any:
    took = now_ms() - began
    return Expired(reason=f"answered after {took} ms, {timeout_ms} allowed") if _exceeds(took, timeout_ms) else answer


def _exceeds(took: int, allowed: int | None) -> bool:
    return allowed is not None and took > allowed


class ApprovalAnswer:
    """An async approver's answer, awaited with a timeout."""

    __slots__ = ("_awaitable", "_began", "_timeout_ms")

    def __init__(self, awaitable: Awaitable[Any], timeout_ms: int | None, began: int) -> None:
        self._awaitable, self._timeout_ms, self._began = awaitable, timeout_ms, began

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._wait().__await__()

    def close(self) -> None:
        """Close the awaitable, because nobody will await it."""
        if inspect.iscoroutine(self._awaitable):
            self._awaitable.close()

    async def _wait(self) -> Any:
        try:
            if self._timeout_ms is None:
                answer = await self._awaitable
            else:
                timed_out, answer = await _await_answer(self._awaitable, self._timeout_ms)
                if timed_out:
                    return Expired(reason=f"no answer in {self._timeout_ms} ms")
        except Exception as error:  # fail closed
            return _rejection(error)
        return _unless_late(answer, self._timeout_ms, self._began)


async def _await_answer(awaitable: Awaitable[Any], timeout_ms: int) -> tuple[bool, Any]:
    """(whether it timed out, the answer), in asyncio, else in trio."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        import trio

        with trio.move_on_after(timeout_ms / 1000) as trio_scope:
            return False, await awaitable
        return bool(trio_scope.cancelled_caught), None
    try:
        async with asyncio.timeout(timeout_ms / 1000) as scope:
            return False, await awaitable
    except TimeoutError:
        if not scope.expired():  # the approver raised it
            raise
    return True, None


def outcome_of(answer: Any, approver: str) -> tuple[ApprovalStatus, str, str]:
    """(status, who, reason) of an approver's answer."""
    if answer is True:
        return "approved", approver, ""
    if isinstance(answer, Approved):
        return "approved", answer.by or approver, answer.reason
    if isinstance(answer, Rejected):
        return "rejected", answer.by or approver, answer.reason
    if isinstance(answer, Expired):
        return "expired", approver, answer.reason
    return "rejected", approver, "" if answer is False else f"the approver returned {type(answer).__name__}, not True"


def approval_observation(status: ApprovalStatus, by: str, reason: str) -> FrozenDict:
    """The observation in the record of an approval."""
    return FrozenDict({"status": status, "by": by, "reason": reason})


def approval_port(what: str) -> Port:
    return Port(name=what, kind="approval", boundary="", effect="none")


class Prefixes:
    """The digest of the trace before a call, as `settled steps:chain of their facts`; each record is digested once."""

    __slots__ = ("_count", "_link")

    def __init__(self) -> None:
        self._count, self._link = 0, ""

    def of(self, settled: Sequence[Record]) -> str:
        for record in settled[self._count :]:
            self._link = chain(self._link, facts(record))
        self._count = len(settled)
        return f"{self._count}:{self._link}"


@dataclass(slots=True)
class _OwnApproval:
    """An approval, the agent that asked for it, and the time of the answer."""

    step: int
    agent: str
    answered_ms: int


class OwnApprovals:
    """Approvals that agents asked for, by the digest of the call they bind.

    Each can be used once, by the agent that asked for it; a later refusal voids it.
    """

    __slots__ = ("_count", "_open", "_seen")

    def __init__(self) -> None:
        self._open: dict[str, list[_OwnApproval]] = {}
        self._seen: set[int] = set()
        self._count = 0

    def read(self, settled: Sequence[Record], pending: Sequence[Record]) -> None:
        """Note the approvals asked since the last call. A pending record counts only if it is sealed: it has an answer."""
        for record in settled[self._count :]:
            self._note(record)
        self._count = len(settled)
        for record in pending:
            if record.sealed_seq > record.asked_seq:
                self._note(record)

    def _note(self, record: Record) -> None:
        """Note an approval once; the mediator's own approvals bind one step and are skipped."""
        if record.action.kind != "approval" or record.step in self._seen or "action" in record.action.arguments:
            return
        self._seen.add(record.step)
        bound = bound_call(record)
        binding = bound if isinstance(bound, str) else approval_digest(*bound)
        if granted(record) and binding:
            self._open.setdefault(binding, []).append(_OwnApproval(record.step, record.agent, record.sealed_ms))
        elif status_of(record) == "rejected":
            self._open.pop(binding, None)

    def find(self, binding: str, agent: str, at_ms: int, within_ms: int | None) -> _OwnApproval | None:
        """The oldest unused approval of this agent that is still valid."""
        own = (item for item in self._open.get(binding, ()) if item.agent == agent)
        return next((item for item in own if not _exceeds(at_ms - item.answered_ms, within_ms)), None)

    def use(self, binding: str, item: _OwnApproval) -> None:
        self._open[binding].remove(item)

"""Authority during a run: capability sets, what delegation removes from them, what grants add, and rates.

An agent that acts on a delegated task may do only what all its delegators, and the agent itself, may do. If its call is inside
`mat.agent` blocks of other agents, these count as delegators. A grant widens what its holder may do. It removes a delegator's
limits only in the delegation in which it was made, and in delegations by its grantor. An agent cannot pass on what it was
granted.

Source: A5.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from mat.boundary.emit import DelegatedTask, delegated, enclosing, tasks
from mat.core.allowed import is_range
from mat.core.endpoint import allowed_from
from mat.core.errors import MatError, SpecError, plural
from mat.core.record import ActionKind, Record
from mat.govern.approval import Desk
from mat.govern.capability import LIMITED, Capability, RateLimit, Sets, capability, covers, refusal
from mat.kernel.threads import real_rlock

Default = Literal["allow", "deny"]


class Bucket:
    """The calls that count against one rate."""

    __slots__ = ("rate", "times")

    def __init__(self, rate: RateLimit) -> None:
        self.rate = rate
        self.times: deque[int] = deque()

    def full(self, at_ms: int) -> bool:
        window_ms, times = self.rate.window_ms, self.times
        if window_ms is not None:
            while times and at_ms - times[0] >= window_ms:
                times.popleft()
        return len(times) >= self.rate.most

    def state(self) -> tuple[int, ...]:
        """The times of the calls in the window; for a whole run only their count."""
        return (len(self.times),) if self.rate.window_ms is None else tuple(self.times)

    def excess(self) -> str:
        """The rate in words, for a refusal."""
        window = "a run" if self.rate.window_ms is None else f"{self.rate.window_ms} ms"
        return f"more than {plural(self.rate.most, 'time')} in {window}"


class Held:
    """A capability that an agent holds, with the calls that count against it."""

    __slots__ = ("_ranges", "_simple", "agent", "buckets", "capability")

    def __init__(self, agent: str, held: Capability) -> None:
        self.agent, self.capability = agent, held
        self.buckets = tuple(Bucket(item) for item in held.rates)
        ranges: list[tuple[str, Any, Any]] = []
        for name, allowed in held.parameters.items():
            if "." not in name and is_range(allowed):
                ranges.append((name, *cast("tuple[float, float]", allowed)))
        self._simple = len(ranges) == len(held.parameters) and not held.rates
        self._ranges = tuple(ranges)

    def covers(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the capability covers a call and no rate counts it. This is fast if all parameters are ranges."""
        if not self._simple:
            return not self.buckets and not self.capability.refuses(arguments)
        for name, least, most in self._ranges:
            value = arguments.get(name)
            if type(value) not in _NUMBERS or not least <= value <= most:
                return not self.capability.refuses(arguments)
        return True

    def refuses(self, record: Record) -> str:
        """Why the capability does not cover a call, or ""."""
        return self.capability.refuses(record.action.arguments) or self.rate_refusal(record)

    def rate_refusal(self, record: Record) -> str:
        """Why the rates do not allow one more call, or ""."""
        for bucket in self.buckets:
            if bucket.full(record.at_ms):
                return f"{self.agent} may not call {self.capability.name} {bucket.excess()}"
        return ""


@dataclass(slots=True, eq=False)
class Grant:
    """A permission given during the run.

    `made_in`: the delegated tasks in which it was made, outermost first, without those of the grantor itself.
    """

    step: int
    grantor: str
    holder: str
    capability: Capability
    calls: int | None
    until_ms: int | None
    made_in: tuple[DelegatedTask, ...]
    held: tuple[Held, ...]
    used: int = 0

    def refuses(self, record: Record) -> str:
        """Why the grant does not cover a call, or ""."""
        name = f"the grant at step {self.step}"
        if any(task.ended for task in self.made_in):
            return f"{name} has ended with the delegation it was made in"
        if self.until_ms is not None and record.at_ms > self.until_ms:
            return f"{name} has expired"
        if self.calls is not None and self.used >= self.calls:
            return f"{name} was for {plural(self.calls, 'call')} and is used up"
        why = self.capability.refuses(record.action.arguments)
        return why or next((why for item in self.held if (why := item.rate_refusal(record))), "")

    def lifts(self, task: DelegatedTask) -> bool:
        """Whether the grant removes the limits that the delegator of this task sets."""
        return task.delegator == self.grantor or task in self.made_in


@dataclass(slots=True, eq=False)
class AuthorityUse:
    """The capabilities and grants that an action uses. `undeclared`: the agent, of those that count, without a declared set.

    `refused`: why the action is not allowed, or "".
    """

    at_ms: int
    held: list[Held] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)
    under: tuple[DelegatedTask, ...] = ()
    undeclared: str = ""
    refused: str = ""

    @property
    def grant(self) -> str:
        return f"step#{self.grants[0].step}" if self.grants else ""


_NUMBERS: Final[frozenset[type[object]]] = frozenset((int, float))
NOTHING: Final = AuthorityUse(0)


class Authority:
    """Decides who may do what in one run."""

    __slots__ = ("_by_kind", "_default", "_granters", "_grants", "_handbacks", "_lock", "_open_tasks", "limits")

    def __init__(self, sets: Sets, granters: Sets, default: Default) -> None:
        self._granters, self._default = granters, default
        self._by_kind: dict[str, dict[ActionKind, dict[str, tuple[Held, ...]]]] = {}
        for agent, table in sets.items():
            known: dict[int, Held] = {}  # a memory's reads and writes are one capability, and share its rates
            self._by_kind[agent] = {
                kind: {
                    name: tuple(known.setdefault(id(item), Held(agent, item)) for item in items)
                    for name, items in names.items()
                }
                for kind, names in table.items()
            }
        self._grants: list[Grant] = []
        self._open_tasks: dict[str, list[DelegatedTask]] = {}
        self._handbacks: set[int] = set()
        self._lock = real_rlock()
        self.limits = bool(sets) or default == "deny"

    # -- claims ---------------------------------------------------------------------------------------------------------

    def claim(self, record: Record, desk: Desk | None) -> AuthorityUse:
        """What the proposed action uses, or why it is not allowed."""
        if self._open_tasks and desk is not None:
            self._end_handed_back((*desk.settled(), *desk.pending(record.step)))
        action = record.action
        kind = action.kind
        if kind not in LIMITED:
            return NOTHING if kind != "grant" else self._judge_grant(record)
        chain = tasks.get()
        if chain or self._open_tasks or enclosing():
            chain = self._chain(record.agent, chain)
            if chain:
                return self._claim_in_chain(record, chain)
        table = self._by_kind.get(record.agent)
        if table is not None:
            for item in table[kind].get(action.name, ()):
                if item.covers(action.arguments):
                    return NOTHING
        elif self._default == "allow":
            return NOTHING
        return self._claim_in_chain(record, ())

    def _claim_in_chain(self, record: Record, chain: tuple[DelegatedTask, ...]) -> AuthorityUse:
        """What the action uses, given the delegators in the chain: the sets of all of them, or a grant that replaces some."""
        claim = AuthorityUse(record.at_ms, under=chain)
        why = self._own_refusal(record.agent, record, claim) or self._delegator_refusal(record, chain, claim)
        if not why:
            return claim
        for grant in self._grants:
            if grant.holder != record.agent or not _permits(grant.capability, record):
                continue
            refused = grant.refuses(record)
            claim = AuthorityUse(record.at_ms, grants=[grant], under=chain)
            refused = refused or self._delegator_refusal(record, tuple(task for task in chain if not grant.lifts(task)), claim)
            if not refused:
                return claim
            why = f"{why}; {refused}"
        return AuthorityUse(record.at_ms, under=chain, refused=why)

    def _own_refusal(self, agent: str, record: Record, claim: AuthorityUse) -> str:
        """Why an agent's own set does not cover an action, or "". Adds the capability that it uses to the claim."""
        table = self._by_kind.get(agent)
        if table is None:
            if self._default == "deny":
                claim.undeclared = claim.undeclared or agent
            return ""
        action = record.action
        held = table[action.kind].get(action.name, ())
        reasons = []
        for item in held:
            why = item.refuses(record)
            if not why:
                if item.buckets:
                    claim.held.append(item)
                return ""
            reasons.append(why)
        return reasons[0] if reasons else refusal(agent, action.kind, action.name, action.arguments, ())

    def _delegator_refusal(self, record: Record, chain: Iterable[DelegatedTask], claim: AuthorityUse) -> str:
        """Why the set of a delegator does not cover an action, or "". Adds the grants that it needs to the claim."""
        asked = {record.agent}
        for task in chain:
            if task.delegator in asked:
                continue
            asked.add(task.delegator)
            why = self._own_refusal(task.delegator, record, claim)
            if why:
                grant = next(self._usable_grants(task.delegator, record), None)
                if grant is None:
                    acts = (
                        f"for {task.delegator} (step {task.step})"
                        if task.step >= 0
                        else f"inside a `with mat.agent` block of {task.delegator}"
                    )
                    return f"{record.agent} acts {acts}: {why}"
                claim.grants.append(grant)
        return ""

    def _usable_grants(self, holder: str, record: Record) -> Iterator[Grant]:
        for grant in self._grants:
            if grant.holder == holder and _permits(grant.capability, record) and not grant.refuses(record):
                yield grant

    def take(self, claim: AuthorityUse) -> str:
        """Count the calls. Returns why they cannot be counted if a rate or a grant was used up in the meantime, or ""."""
        if claim is NOTHING or not (claim.held or claim.grants):
            return ""
        with self._lock:
            for item in claim.held:
                if any(bucket.full(claim.at_ms) for bucket in item.buckets):
                    return f"{item.agent} may not call {item.capability.name} so often"
            if any(grant.calls is not None and grant.used >= grant.calls for grant in claim.grants):
                return "the grant is used up"
            for bucket in _buckets(claim):
                bucket.times.append(claim.at_ms)
            for grant in claim.grants:
                grant.used += 1
        return ""

    def give_back(self, claim: AuthorityUse) -> None:
        """Undo `take`: the action was blocked and does not count."""
        with self._lock:
            for bucket in _buckets(claim):
                if claim.at_ms in bucket.times:
                    bucket.times.remove(claim.at_ms)
            for grant in claim.grants:
                grant.used -= 1

    # -- delegation -----------------------------------------------------------------------------------------------------

    def _chain(self, agent: str, entered: tuple[DelegatedTask, ...]) -> tuple[DelegatedTask, ...]:
        """The tasks that an agent works on: those of its context, else its open tasks without a separate context.

        They come after the agents whose `mat.agent` blocks surround the call, which count as delegators with step -1.
        """
        chain = tuple(task for task in entered if task.owner is self)
        if self._open_tasks and all(task.agent != agent for task in chain):
            for task in self._open_tasks.get(agent, ()):
                if not task.entered and not task.ended:
                    chain += tuple(item for item in (*task.outer, task) if item not in chain)
        around = tuple(DelegatedTask(-1, name, agent, (), self) for name in enclosing() if name != agent)
        return (*around, *chain) if around else chain

    def delegated(self, record: Record) -> None:
        """Note a delegation that was let through: it limits the delegate until the delegate hands back."""
        outer = self._chain(record.agent, tasks.get())
        task = DelegatedTask(record.step, record.agent, record.action.name, outer, self)
        delegated.set(task)
        self._open_tasks.setdefault(task.agent, []).append(task)

    def _end_handed_back(self, records: Iterable[Record]) -> None:
        """End the tasks that were handed back, the oldest first, and forget tasks with a separate context."""
        for record in records:
            if record.action.kind != "handback" or record.step in self._handbacks:
                continue
            self._handbacks.add(record.step)
            if "task" in record.action.arguments:  # a task with a separate context has ended already
                continue
            agent = record.action.arguments.get("agent")
            for task in self._open_tasks.get(agent, ()) if isinstance(agent, str) else ():
                if task.delegator == record.action.name and task.step < record.step and not task.ended:
                    task.ended = True
                    break
        self._open_tasks = {
            agent: waiting
            for agent, items in self._open_tasks.items()
            if (waiting := [item for item in items if not item.entered and not item.ended])
        }

    # -- grants ---------------------------------------------------------------------------------------------------------

    def _judge_grant(self, record: Record) -> AuthorityUse:
        """Decide whether the acting agent may grant this."""
        chain = self._chain(record.agent, tasks.get())
        try:
            wanted, _, _ = grant_of(record.action.arguments)
        except MatError as error:
            return AuthorityUse(record.at_ms, under=chain, refused=f"the grant cannot be read: {error.what}")
        held = self._grant_basis(record.agent, wanted, chain)
        return AuthorityUse(record.at_ms, under=chain, refused=held if isinstance(held, str) else "")

    def _grant_basis(self, grantor: str, wanted: Capability, chain: tuple[DelegatedTask, ...]) -> tuple[Held, ...] | str:
        """The capabilities that a grant is based on, or why it cannot be made.

        A declared granter may grant, in a delegation, what its delegators do not hold. Inside another agent's block it may not,
        because any agent can open a block in the name of a granter.
        """
        found = []
        granter = any(covers(item, wanted) for item in _granted_capabilities(self._granters.get(grantor), wanted))
        limiting = (task.delegator for task in chain if not granter or task.step < 0)
        for agent in dict.fromkeys((grantor, *limiting)):
            if any(covers(item, wanted) for item in _granted_capabilities(self._granters.get(agent), wanted)):
                continue
            table = self._by_kind.get(agent)
            if table is None:
                if self._default == "deny":
                    return f"{grantor} cannot grant {wanted.name}: {agent} has no capabilities of its own"
                continue
            held = [item for item in table[wanted.kinds[0]].get(wanted.tool, ()) if covers(item.capability, wanted)]
            if not held:
                acting = "" if agent == grantor else f", for whom {grantor} acts,"
                return f"{grantor} cannot grant {wanted.name}: {agent}{acting} does not hold all of it"
            found.append(held[0])
        return tuple(found)

    def granted(self, record: Record) -> None:
        """Note a grant that was let through. It is valid from now on."""
        wanted, calls, within_ms = grant_of(record.action.arguments)
        chain = self._chain(record.agent, tasks.get())
        held = self._grant_basis(record.agent, wanted, chain)
        made_in = tuple(task for task in chain if task.step >= 0 and task.agent != record.agent)
        self._grants.append(
            Grant(
                record.step, record.agent, record.action.name, wanted, calls,
                None if within_ms is None else record.at_ms + within_ms, made_in, held if isinstance(held, tuple) else (),
            )
        )  # fmt: skip

    def state(self) -> tuple[object, ...]:
        """Calls counted, grants and delegations, as a value with a canonical form."""
        calls = [
            (agent, kind, name, index, *(bucket.state() for bucket in item.buckets))
            for agent, table in sorted(self._by_kind.items())
            for kind, names in sorted(table.items())
            for name, items in sorted(names.items())
            for index, item in enumerate(items)
            if any(bucket.times for bucket in item.buckets)
        ]
        grants = [(item.step, item.used, any(task.ended for task in item.made_in)) for item in self._grants]
        by_agent = [
            (agent, *(task.step for task in items if not task.entered and not task.ended))
            for agent, items in sorted(self._open_tasks.items())
        ]
        open_tasks = [item for item in by_agent if len(item) > 1]
        return (tuple(calls), tuple(grants), tuple(open_tasks)) if calls or grants or open_tasks else ()


def _buckets(claim: AuthorityUse) -> Iterator[Bucket]:
    seen: list[Bucket] = []
    for held in (*claim.held, *(item for grant in claim.grants for item in grant.held)):
        for bucket in held.buckets:
            if not any(bucket is known for known in seen):
                seen.append(bucket)
                yield bucket


def _permits(granted: Capability, record: Record) -> bool:
    return granted.tool == record.action.name and record.action.kind in granted.kinds


def _granted_capabilities(
    table: Mapping[ActionKind, Mapping[str, tuple[Capability, ...]]] | None, wanted: Capability
) -> Sequence[Any]:
    return () if table is None else table[wanted.kinds[0]].get(wanted.tool, ())


def grant_of(arguments: Mapping[str, Any]) -> tuple[Capability, int | None, int | None]:
    """(capability, calls, milliseconds) of a recorded grant. SpecError or CodecError if it cannot be read."""
    tool, parameters = arguments.get("tool"), arguments.get("parameters", {})
    if not isinstance(tool, str) or not isinstance(parameters, Mapping):
        raise SpecError(what=f"a grant of {tool!r}", fix="record it with mat.grant")
    limits = []
    for name in ("calls", "within_ms"):
        value = arguments.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise SpecError(what=f"{name}={value!r} is not an integer >= 1", fix="correct it, or leave it out")
        limits.append(value)
    allowed = {name: allowed_from(data, f"grant of {tool}, {name}") for name, data in parameters.items()}
    return capability(tool, **allowed), limits[0], limits[1]

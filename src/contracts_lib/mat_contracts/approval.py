"""Approvals (A5.3): a high-impact action is done only as it was approved, once, and while the approval holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias, Unpack

from mat.core.approval import approval_digest, bound_call, granted, status_of
from mat.core.digest import canonical, digest
from mat.core.errors import SpecError
from mat.core.record import ActionKind, Record
from mat.core.value import EMPTY, FrozenDict, snapshot_arguments
from mat.core.verdict import Obligation
from mat.monitor.contract import Contract, Violated
from mat_contracts._shared import PastWindow, any_names, label, let_through, listed, put, short, too_many
from mat_contracts.catalogue import Options, template

Binds: TypeAlias = Callable[[Record], Any]
"""approval record -> (tool, arguments), a digest as `approval_digest` gives it, or None where it binds nothing."""
OPEN: Final = 1_000
"""Unused approvals one contract remembers. Past it the contract is unknown; `within` or `within_ms` keep it from that."""
PAST: Final = 16
"""Approvals that no longer serve (used, refused, expired, or binding nothing), the latest ones, kept to say what happened."""
APPROVED: Final = "approved"
"""The reason the mediator notes on an action whose approver said yes to exactly its arguments."""
_KINDS: Final[frozenset[ActionKind]] = frozenset(("tool_call", "approval"))
_Fate: TypeAlias = Literal["granted", "used", "refused", "expired", "unanswered"]


class _Approval(NamedTuple):
    """What was approved. `binding` is empty where it binds nothing; `tool` and `arguments` are unknown of a bare digest."""

    step: int
    asked_ms: int
    sealed_seq: int
    what: str
    binding: str
    tool: str
    arguments: FrozenDict
    fate: _Fate
    used_at: int = -1


class _Awaiting(NamedTuple):
    """A call that the mediator let pass on an approval whose record comes next, with what was let through."""

    step: int
    tool: str
    arguments: FrozenDict


@dataclass(frozen=True, slots=True)
class _Approvals:
    """Unused grants by what they bind, oldest first, the latest that serve no longer, and calls whose approval comes next."""

    open: FrozenDict = EMPTY
    past: tuple[_Approval, ...] = ()
    awaiting: FrozenDict = EMPTY


_NONE: Final = _Approvals()


@template
def approved_before(
    *,
    tools: str | Iterable[str] = (),
    where: Callable[[Mapping[str, Any]], bool] | None = None,
    within: int | None = None,
    within_ms: int | None = None,
    ignore: Iterable[str] = (),
    binds: Binds | None = None,
    **options: Unpack[Options],
) -> Contract:
    """Each call of `tools`, by default each of high impact, was approved before, in exactly the form it was executed.

    A5.3, Sec. IV-E. An approval binds to the digest of a tool's name and canonical arguments. It says what it binds in one of
    three ways, or as `binds` reads it:

    - `mat.approval(what, tool="refund", arguments={...})`,
    - `mat.approval(what, digest=approval_digest("refund", {...}))`,
    - `mat.approval("refund", order="A1", amount=5)`: the tool's name, and its arguments as details.

    One that names no call binds nothing and serves nothing. `where` says of executed arguments whether such a call needs
    approval, for instance above an amount; by default each does. The rules:

    - Granted: its answer was True, and it was given before the call was asked (happens-before).
    - Used once: a second identical call needs a second approval. A call that had no effect uses none.
    - Expires: after `within` steps or `within_ms` milliseconds from when it was asked for. By default never.
    - Void: when the call has other arguments than were approved, whoever changed them (a rewrite included), or when the same
      thing was refused later. `ignore` names parameters that are not bound on either side.
    - A call that the mediator let pass because its approver said yes is approved: it was asked about exactly that call. Where
      the approval has a record of its own, that record must say so, and what was executed must be what it binds.

    Calls that had no effect (blocked, never run) are not judged; an unknown effect is. Do not arm this with
    `policy="block"` beside a rule that asks for approval by itself: the contract is asked before that rule's approver.

    >>> from mat_contracts.traces import broken, record, trace
    >>> approved = record("approval", "refund", {"order": "A1", "amount": 5}, value=True)
    >>> as_approved = record("tool_call", "refund", {"order": "A1", "amount": 5}, effect="write")
    >>> changed = record("tool_call", "refund", {"order": "A1", "amount": 50}, effect="write")
    >>> broken(approved_before(tools="refund"), trace(approved, as_approved))
    ()
    >>> broken(approved_before(tools="refund"), trace(approved, changed))
    (1,)
    """
    wanted, window = any_names(tools, "tools"), PastWindow.of(within, within_ms, least_ms=1)
    if where is not None and not callable(where):
        raise SpecError(what=f"where={where!r} is no function", fix="give a function of the executed arguments")
    if binds is not None and not callable(binds):
        raise SpecError(what=f"binds={binds!r} is no function", fix="give a function of the approval's record")
    unbound = frozenset(listed(ignore, "ignore"))

    def step(state: _Approvals, record: Record) -> _Approvals | Violated:
        action = record.action
        if action.kind == "approval":
            if state.awaiting and record.artefact in state.awaiting:
                return _confirmed(state, record)
            return _noted(_unexpired(state, record, window), _approval(record, binds, unbound))
        if (action.name not in wanted) if wanted else (action.impact != "high"):
            return state
        if record.effected == "no":
            return state
        if where is not None and not where(_executed(record)):
            return state
        executed = _bound(_executed(record), unbound)
        if _mediated(record):
            if canonical(executed) != canonical(_bound(let_through(record), unbound)):
                return _changed(record, executed, state)
            following = _follows(record)
            if following:
                item = _Awaiting(record.step, action.name, FrozenDict(let_through(record)))
                return _Approvals(state.open, state.past, FrozenDict({**state.awaiting, following: item}))
            if not record.mediation or not record.mediation.approval:
                return state
        state = _unexpired(state, record, window)
        binding = digest([action.name, executed])
        grants = [item for item in state.open.get(binding, ()) if item.sealed_seq < record.asked_seq]
        if grants:
            return _closed(state, grants[0], grants[0]._replace(fate="used", used_at=record.step))
        return _unapproved(record, executed, binding, state)

    said = label(wanted) or "an action of high impact"
    return Contract(
        id=f"{label(wanted) or 'high_impact'}.approved_before", step=step, start=_NONE, kinds=_KINDS,
        obligations=_obligations, finish=_unconfirmed,
        repair=f"ask for approval of exactly this call, then make it once and in time: {said} was not",
        text=f"{said} is approved before, exactly as executed, for one use",
    )  # fmt: skip


def _executed(record: Record) -> Mapping[str, Any]:
    """The arguments the port got: here a change on the way counts, because nobody approved it."""
    return record.executed if record.executed is not None else let_through(record)


def _mediated(record: Record) -> bool:
    mediation = record.mediation
    if mediation is None or mediation.decision == "block":
        return False
    return bool(mediation.approval) or mediation.reason == APPROVED or mediation.reason.endswith(f"; {APPROVED}")


def _follows(record: Record) -> str:
    """The artefact of the approval that the mediator asked for after the call was asked; empty where it came before."""
    approval = "" if record.mediation is None else record.mediation.approval
    step = approval.removeprefix("step#")
    return approval if step.isdecimal() and int(step) > record.step else ""


def _changed(record: Record, executed: FrozenDict, state: _Approvals) -> Violated:
    """What was approved and what ran are two things: somebody changed it in between."""
    name = record.action.name
    said = _changes(_bound(let_through(record), frozenset()), executed)
    return Violated(
        f"{name} was changed after approval: {said}", state=state, witness=(record.step,), instance=name,
        wanted="the call as it was approved",
    )  # fmt: skip


def _confirmed(state: _Approvals, record: Record) -> _Approvals | Violated:
    """The record of an approval that a call already rests on: it was given, and for exactly that call."""
    item: _Awaiting = state.awaiting[record.artefact]
    rest = FrozenDict({name: other for name, other in state.awaiting.items() if name != record.artefact})
    details = record.action.arguments
    after = _Approvals(state.open, state.past, rest)
    binding = approval_digest(item.tool, item.arguments, details.get("policy", ""), details.get("prefix", ""))
    if granted(record) and details.get("digest") == binding and details.get("action") == f"step#{item.step}":
        return after
    why = "binds another call" if granted(record) else f"is {status_of(record)}"
    return Violated(
        f"{item.tool} at step {item.step} rests on an approval that {why}", state=after, witness=(item.step, record.step),
        instance=item.tool, wanted=f"an approval of {item.tool}({_said(item.arguments)})",
    )  # fmt: skip


def _unconfirmed(state: _Approvals) -> Violated | None:
    """Calls whose approval has no record at all."""
    missing = [(artefact, item) for artefact, item in state.awaiting.items()]
    if not missing:
        return None
    artefact, item = missing[0]
    return Violated(
        f"{item.tool} at step {item.step} rests on the approval {artefact}, which is not in the trace", step=item.step,
        witness=(item.step,), instance=item.tool,
    )  # fmt: skip


def _bound(arguments: Mapping[str, Any], unbound: frozenset[str]) -> FrozenDict:
    return FrozenDict({name: value for name, value in arguments.items() if name not in unbound})


_FATES: Final[dict[str, _Fate]] = {"approved": "granted", "rejected": "refused", "expired": "expired"}


def _approval(record: Record, binds: Binds | None, unbound: frozenset[str]) -> _Approval:
    fate = _FATES.get(status_of(record), "unanswered")
    if fate == "granted" and "action" in record.action.arguments:  # the mediator's own: it serves the step it names, no other
        fate = "used"
    binding, tool, arguments = _binding(record, binds, unbound)
    return _Approval(record.step, record.at_ms, record.sealed_seq, record.action.name, binding, tool, arguments, fate)


def _binding(record: Record, binds: Binds | None, unbound: frozenset[str]) -> tuple[str, str, FrozenDict]:
    """(digest, tool, arguments) of what an approval speaks of, as far as it says so."""
    found: Any
    if binds is not None:
        found = binds(record)
    else:
        found = bound_call(record)
    if found is None or isinstance(found, str):
        return found or "", "", EMPTY
    tool, arguments = found
    kept = _bound(snapshot_arguments(arguments, "approval"), unbound)
    return digest([tool, kept]), tool, kept


def _noted(state: _Approvals, item: _Approval) -> _Approvals:
    if item.fate != "granted" or not item.binding:
        if item.fate != "refused" or item.binding not in state.open:
            return _Approvals(state.open, (*state.past, item)[-PAST:], state.awaiting)
        rest = FrozenDict({binding: grants for binding, grants in state.open.items() if binding != item.binding})
        return _Approvals(rest, (*state.past, item)[-PAST:], state.awaiting)
    if sum(map(len, state.open.values())) >= OPEN:
        raise too_many(
            f"more than {OPEN} approvals were given and not used", "give within= or within_ms=, so that approvals expire"
        )
    grants = (*state.open.get(item.binding, ()), item)
    return _Approvals(FrozenDict({**state.open, item.binding: grants}), state.past, state.awaiting)


def _unexpired(state: _Approvals, record: Record, window: PastWindow) -> _Approvals:
    """The state without what has expired by now."""
    if not window.is_bounded:
        return state
    for item in _unused(state):
        if not window.holds(record.step - item.step, record.at_ms - item.asked_ms):
            state = _closed(state, item, item._replace(fate="expired"))
    return state


def _closed(state: _Approvals, grant: _Approval, after: _Approval) -> _Approvals:
    """The state where a grant serves no longer."""
    rest = tuple(item for item in state.open[grant.binding] if item is not grant)
    return _Approvals(put(state.open, grant.binding, rest), (*state.past, after)[-PAST:], state.awaiting)


def _unused(state: _Approvals) -> list[_Approval]:
    """The grants that nobody has used, in the order of their steps."""
    return sorted((item for grants in state.open.values() for item in grants), key=lambda item: item.step)


def _unapproved(record: Record, executed: FrozenDict, binding: str, state: _Approvals) -> Violated:
    """Why no approval covers the call: the nearest one that was given, and what is wrong with it."""
    name = record.action.name
    nearest = _nearest(name, binding, state)
    why, witness = "no approval of it was given", [record.step]
    if nearest is not None:
        why = _difference(nearest, record, executed, binding)
        used = [nearest.used_at] if nearest.fate == "used" and nearest.binding == binding else []
        witness = [nearest.step, *used, record.step]
    return Violated(
        f"{name} was executed without approval: {why}", state=state, witness=tuple(witness), instance=name,
        wanted=f"a granted, unused approval that binds {name}({_said(executed)}), digest {binding[:12]}",
    )  # fmt: skip


def _nearest(tool: str, binding: str, state: _Approvals) -> _Approval | None:
    """The latest approval of the same call, or of the same tool, or one that says no call at all."""
    known = sorted([*_unused(state), *state.past], key=lambda item: item.step)
    choices = (
        [item for item in known if item.binding == binding],
        [item for item in known if item.tool == tool],
        [item for item in known if not item.tool or tool.casefold() in item.what.casefold()],
    )
    return next((found[-1] for found in choices if found), None)


def _difference(item: _Approval, record: Record, executed: FrozenDict, binding: str) -> str:
    asked = f"the approval {item.what!r} at step {item.step}"
    if item.binding == binding:
        match item.fate:
            case "used":
                return f"{asked} was used up at step {item.used_at}"
            case "refused":
                return f"{asked} was refused"
            case "expired":
                return f"{asked} had expired, {record.step - item.step} steps and {record.at_ms - item.asked_ms} ms before"
            case "unanswered":
                return f"{asked} was not answered"
            case "granted":
                return f"{asked} was answered only after the call was asked"
    if not item.binding:
        return f"{asked} does not say which call it approves"
    if not item.tool:
        return f"{asked} binds {item.binding[:12]}, executed was {binding[:12]}"
    if item.tool != record.action.name:
        return f"{asked} binds no call of {record.action.name}: it names neither the tool nor its arguments"
    return f"{asked} was for other arguments: {_changes(item.arguments, executed)}"


def _changes(approved: Mapping[str, Any], executed: Mapping[str, Any]) -> str:
    """What differs between two sets of arguments; typed, so that 1 and True differ."""
    parts = []
    for name in sorted({*approved, *executed}):
        if name not in executed:
            parts.append(f"approved {name}={short(approved[name])}, executed without {name}")
        elif name not in approved:
            parts.append(f"executed {name}={short(executed[name])}, approved without {name}")
        elif canonical(approved[name]) != canonical(executed[name]):
            parts.append(f"approved {name}={short(approved[name])}, executed {name}={short(executed[name])}")
    return "; ".join(parts)


def _said(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={short(value)}" for name, value in sorted(arguments.items()))


def _obligations(state: _Approvals) -> tuple[Obligation, ...]:
    """Unused approvals: nothing must follow, and nothing else may be done on them."""
    return tuple(
        Obligation(text=f"the approval {item.what!r} is unused", since=item.step, instance=item.tool, met=True)
        for item in _unused(state)
    )

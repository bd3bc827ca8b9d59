"""The policy mediator (Eq. 11): allow, rewrite or block a proposed action, before it reaches the world. Fails closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from mat.boundary.crossing import Pending
from mat.core.digest import canonical
from mat.core.errors import SpecError
from mat.core.record import Mediation, Record
from mat.core.value import FrozenDict, snapshot_arguments
from mat.core.verdict import Verdict, Violation
from mat.govern.capability import Capability, authorise, capability_sets


@dataclass(frozen=True, slots=True)
class Allow:
    """The rule has no objection; later rules are still asked."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Run it with these parameters changed. The rewritten action is judged again before it runs."""

    arguments: Mapping[str, object]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """Do not run it. The reason is what the agent is told."""

    reason: str


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """Run it only if the run's approver says yes to exactly these arguments."""

    what: str = ""


Decision: TypeAlias = Allow | Rewrite | Block | NeedsApproval
Rule: TypeAlias = Callable[[Record], Decision | None]
Approver: TypeAlias = Callable[[str, FrozenDict], Any]
"""(what, arguments) -> truth, or an awaitable of it in async code."""
Peek: TypeAlias = Callable[[Record], tuple[Violation, ...]]

_PASSES: Final = 4
"""Times a rewrite may be rewritten before the action is blocked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Governance:
    """A policy: capability sets by agent, rules asked in order, an approver. `name` stands for it in kappa."""

    capabilities: Mapping[str, Iterable[str | Capability]] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    approver: Approver | None = None
    name: str = "shield"


class Mediator:
    """Judges proposed actions. A rule that raises, or returns something else, blocks, with the reason in the trace."""

    def __init__(self, governance: Governance | None, peek: Peek | None = None) -> None:
        self._sets = capability_sets(governance.capabilities) if governance else {}
        self._rules = tuple(governance.rules) if governance else ()
        self._approver = governance.approver if governance else None
        self._peek = peek
        for rule in self._rules:
            if not callable(rule):
                raise SpecError(what=f"{rule!r} is not a rule", fix="give a function of the proposed record")

    @property
    def active(self) -> bool:
        return bool(self._sets or self._rules or self._peek)

    @property
    def watches(self) -> bool:
        """Whether sealed records are to be shown to `observe`."""
        return False

    def observe(self, record: Record, verdict: Verdict | tuple[str, ...]) -> None:
        """A sealed and judged record, in ask order."""

    def mediate(self, proposed: Record) -> Mediation | Pending | None:
        """The decision on a proposed action; None where nothing had anything to say."""
        record, why, wants = proposed, ("", ""), None
        for _ in range(_PASSES):
            refusal = authorise(self._sets, record)
            if refusal:
                return Mediation(decision="block", rule="capability", reason=refusal)
            rewritten = None
            for rule in self._rules:
                name = getattr(rule, "__name__", type(rule).__name__)
                decision = _ask(rule, record)
                if isinstance(decision, Block):
                    return Mediation(decision="block", rule=name, reason=decision.reason)
                if isinstance(decision, NeedsApproval):
                    wants = (name, decision.what or record.action.name)
                if isinstance(decision, Rewrite):
                    try:
                        rewritten = _rewritten(record, decision)
                    except Exception as error:  # fail closed, as for a crashed rule
                        reason = f"rule {name} rewrote to what cannot be recorded: {type(error).__name__}: {error}"
                        return Mediation(decision="block", rule=name, reason=reason)
                    if rewritten is not None:
                        why = (name, decision.reason)
                        break
            if rewritten is None:
                return self._settled(proposed, record, why, wants)
            record = rewritten
        return Mediation(decision="block", rule=why[0], reason=f"rewritten {_PASSES} times without an end")

    def _settled(
        self, proposed: Record, record: Record, why: tuple[str, str], wants: tuple[str, str] | None
    ) -> Mediation | Pending | None:
        for violation in self._peek(record) if self._peek else ():
            return Mediation(
                decision="block", rule=violation.contract, reason=violation.repair or violation.message or violation.contract
            )
        changed = record is not proposed
        decided = (
            Mediation(decision="rewrite", rule=why[0], reason=why[1], arguments=record.action.arguments)
            if changed
            else Mediation(decision="allow", rule=wants[0] if wants else "", reason="")
        )
        if wants is None:
            return decided if changed or self._sets or self._rules else None
        return self._pending(decided, record, wants)

    def _pending(self, decided: Mediation, record: Record, wants: tuple[str, str]) -> Mediation | Pending:
        rule, what = wants
        approver = self._approver
        if approver is None:
            return Mediation(decision="block", rule=rule, reason=f"{what} needs approval, and this run has no approver")
        arguments = record.action.arguments

        def settle(answer: Any) -> Mediation:
            if answer is True:
                reason = f"{decided.reason}; approved" if decided.reason else "approved"
                return replace(decided, rule=decided.rule or rule, reason=reason)
            return Mediation(decision="block", rule=rule, reason=f"{what} was not approved")

        return Pending(call=lambda: approver(what, arguments), settle=settle)


def _ask(rule: Rule, record: Record) -> Decision | None:
    name = getattr(rule, "__name__", type(rule).__name__)
    try:
        decision = rule(record)
    except Exception as error:  # fail closed: a crashed rule blocks
        return Block(f"rule {name} raised {type(error).__name__}: {error}")
    if decision is None or isinstance(decision, Allow | Rewrite | Block | NeedsApproval):
        return decision
    return Block(f"rule {name} returned {type(decision).__name__}, which is no decision")


def _rewritten(record: Record, decision: Rewrite) -> Record | None:
    """The record as rewritten, or None where the rewrite changes nothing."""
    changed = snapshot_arguments(decision.arguments, "rewrite")
    arguments = FrozenDict({**record.action.arguments, **changed})
    if canonical(arguments) == canonical(record.action.arguments):  # typed: 1, 1.0 and True are three arguments
        return None
    return replace(record, action=replace(record.action, arguments=arguments))


def governance_name(governance: Governance | None) -> str:
    return "none" if governance is None else governance.name

"""The policy mediator: it allows, rewrites or blocks a proposed action before it is done, and fails closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, cast

from mat.boundary.session import MediationOutcome, Pending, Settled, StandIn
from mat.core.approval import approval_digest
from mat.core.digest import canonical, digest
from mat.core.errors import SpecError, raised_text
from mat.core.record import Mediation, Record
from mat.core.value import FrozenDict, snapshot_arguments, thaw
from mat.core.verdict import Verdict, Violation
from mat.govern.approval import (
    ApprovalStatus,
    Approver,
    Desk,
    OwnApprovals,
    Prefixes,
    approval_observation,
    approval_port,
    ask,
    name_of,
    now_ms,
    outcome_of,
)
from mat.govern.capability import Capability, capability_sets
from mat.govern.grants import NOTHING, Authority, AuthorityUse
from mat.resources.contract import ResourceContract

__all__ = [
    "Allow",
    "Approver",
    "Block",
    "ContractCheck",
    "ConvertToApproval",
    "Decision",
    "Desk",
    "Governance",
    "Mediator",
    "NeedsApproval",
    "Rewrite",
    "Rule",
    "Sandbox",
    "governance_name",
    "policy_version",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Allow:
    """What a rule returns where it has no objection; later rules are still asked.

    With `mat.policy.Governance(default="deny")`, an action needs an Allow, or a capability, to be done.

    >>> def reads(record):
    ...     return mat.policy.Allow() if record.action.effect == "read" else None
    >>> @mat.tool(effect="read")
    ... def look_up(order): return "found"
    >>> with mat.run(governance=mat.policy.Governance(rules=(reads,), default="deny")):
    ...     look_up("A17")
    'found'

    Source: A5.2 (Eq. 11).
    """


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What a rule returns to have the action done with other arguments; it is judged again before it runs.

    `arguments`: parameter -> new value, for those that change. `reason`: why, for the trace.

    >>> def capped(record):
    ...     return mat.policy.Rewrite({"amount": 500}) if record.action.arguments["amount"] > 500 else None
    >>> @mat.tool(effect="write")
    ... def refund(order, amount): return f"refunded {amount}"
    >>> with mat.run(governance=mat.policy.Governance(rules=(capped,))):
    ...     refund("A17", amount=900)
    'refunded 500'

    Source: A5.2 (Eq. 11).
    """

    arguments: Mapping[str, object]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """What a rule returns to keep an action from being done; the agent gets `mat.Blocked` with the `reason`.

    >>> def no_writes(record):
    ...     return mat.policy.Block("reading only") if record.action.may_write else None
    >>> @mat.tool(effect="write")
    ... def refund(order): return "refunded"
    >>> with mat.run(governance=mat.policy.Governance(rules=(no_writes,))):
    ...     refund("A17")
    Traceback (most recent call last):
        ...
    mat.core.errors.Blocked: reading only

    Source: A5.2 (Eq. 11).
    """

    reason: str


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """What a rule returns to have an action done only if an approver says yes to exactly these arguments; the agent waits.

    `what`: what the approver decides about, by default the tool. `approver`, a function of (what, arguments), is asked
    instead of the run's, and `timeout_ms`, in run time, replaces the policy's. `own`: an earlier `mat.approval` of exactly
    this call by the same agent, unused and in time, suffices. `reason`: why the rule requires it, for the trace. Without a
    yes the agent gets `mat.Blocked`.

    >>> def careful(record):
    ...     return mat.policy.NeedsApproval() if record.action.impact == "high" else None
    >>> @mat.tool(effect="write", impact="high")
    ... def refund(order, amount): return "refunded"
    >>> policy = mat.policy.Governance(rules=(careful,), approver=lambda what, arguments: arguments["amount"] <= 100)
    >>> with mat.run(governance=policy):
    ...     refund("A17", amount=30)
    'refunded'

    Source: A5.3.
    """

    what: str = ""
    own: bool = False
    approver: Approver | None = None
    timeout_ms: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ConvertToApproval:
    """What a rule returns to turn an action into a request for approval: it is not done, and the agent does not wait.

    The agent gets `{"status": "pending approval", "approval": "step#n", "digest": ...}`. `what`: what is asked for, by default
    the tool. `own`: after a `mat.approval` of exactly this call, repeating the call runs it. `reason`: why, for the trace.

    >>> def later(record):
    ...     return mat.policy.ConvertToApproval() if record.action.kind == "tool_call" else None
    >>> @mat.tool(effect="write")
    ... def refund(order): return "refunded"
    >>> with mat.run(governance=mat.policy.Governance(rules=(later,))):
    ...     refund("A17")["status"]
    'pending approval'

    Source: A5.2, A5.3.
    """

    what: str = ""
    own: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What a rule returns to answer a call in the place of its port, which is not called.

    `reply`: the answer, or a function of the arguments (a dict) that returns it, plain or async. `reason`: why, for the trace.

    >>> def apart(record):
    ...     return mat.policy.Sandbox(lambda arguments: f"refunded {arguments['order']} in the sandbox")
    >>> @mat.tool(effect="write")
    ... def refund(order): return "refunded"
    >>> with mat.run(governance=mat.policy.Governance(rules=(apart,))) as run:
    ...     refund("A17")
    'refunded A17 in the sandbox'
    >>> run.trace[0].invoked
    0

    Source: A5.4.
    """

    reply: Any
    reason: str = ""


Decision: TypeAlias = Allow | Rewrite | Block | NeedsApproval | ConvertToApproval | Sandbox
Rule: TypeAlias = Callable[[Record], Decision | None]
"""proposed record -> decision, or None without an opinion.

A rule with a method `fresh()` creates a new rule with it at the start of each run. That rule may have `observe(record,
verdict)`, called with each sealed and judged record in ask order, `ended(violations)`, called with the violations of an
episode's end, and `state()`, a value with a canonical form that is part of the run's state. If `peeks` is true, it is also
called with the records asked before the proposed one and not judged yet: `rule(record, pending)`.
"""
ContractCheck: TypeAlias = Callable[[Record], tuple[Violation, ...]]
"""The violations that a proposed record would be, if it were done."""

_ROUNDS: Final = 4
"""Rounds of the rules over one action; if they still rewrite it in the last, it is blocked."""
CHANGED: Final = "changed after approval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Governance:
    """One policy in force: who may do what, and what happens to an action before it is done. Give it to `mat.run(governance=)`.

    - `capabilities`: agent -> what it may do, tool names or `mat.policy.capability(...)`; a listed agent may do nothing
      else. `granters`: agent -> what it may grant without holding it.
    - `rules`: functions of the proposed `mat.Record` that return a decision (`mat.policy.Block`, `Rewrite`, ...) or None,
      asked in order.
    - `approver`: a function of (what, arguments), asked if a rule requires approval; only True is a yes. Without one, the
      answer is no. `timeout_ms`: how long it may take; `approve_within_ms`: how long an approval is valid; in milliseconds of
      run time, None for no limit.
    - `default`: "deny" blocks what neither a capability nor a rule's Allow covers, "allow" lets it pass. Without it, a policy
      with capabilities denies, and a policy of rules alone allows.
    - `contracts`: agent -> resource contract that it works under; "*" is one for the whole run.
    - `name` represents it in the run's configuration. `version` represents it in approvals; by default a digest of the policy.

    Raises `mat.MatError` for invalid parts, all of them at once. A rule that raises blocks.

    >>> policy = mat.policy.Governance(capabilities={"clerk": ["look_up", mat.policy.capability("refund", amount=(1, 500))]})
    >>> @mat.tool(effect="write")
    ... def refund(order, amount): return "refunded"
    >>> with mat.run(governance=policy), mat.agent("clerk"):
    ...     refund("A17", amount=30)
    'refunded'

    Source: A5.1, A5.2 (Eq. 11).
    """

    capabilities: Mapping[str, Iterable[str | Capability]] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    approver: Approver | None = None
    name: str = "shield"
    default: Literal["allow", "deny", ""] = ""
    granters: Mapping[str, Iterable[str | Capability]] = field(default_factory=dict)
    contracts: Mapping[str, ResourceContract] = field(default_factory=dict)
    timeout_ms: int | None = None
    approve_within_ms: int | None = None
    version: str = ""

    def __post_init__(self) -> None:
        problems = []
        if self.default not in ("allow", "deny", ""):
            problems.append(f"default={self.default!r} is neither 'allow' nor 'deny'")
        for name in ("timeout_ms", "approve_within_ms"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                problems.append(f"{name}={value!r} is not a duration")
        if self.approver is not None and not callable(self.approver):
            problems.append(f"{self.approver!r} is not an approver")
        problems += [f"{rule!r} is not a rule" for rule in self.rules if not callable(rule)]
        problems += [
            f"{who!r} has no resource contract in {item!r}"
            for who, item in self.contracts.items()
            if not isinstance(item, ResourceContract)
        ]
        if problems:
            raise SpecError(
                what=f"policy {self.name!r}: {'; '.join(problems)}",
                fix="correct these; a rule is a function of the proposed record",
            )

    @property
    def denies(self) -> bool:
        """Whether actions that no capability set and no rule covers are denied."""
        return self.default == "deny" or (self.default == "" and bool(self.capabilities))


_ALLOWED: Final = Mediation(decision="allow")


@dataclass(slots=True)
class _Case:
    """One proposed action on its way through the rules: what it uses, how it was rewritten, and what the rules decided.

    `proposed` has the arguments that would run, `sealed` their recorded form, which digests and records are made of.
    """

    proposed: Record
    sealed: FrozenDict
    desk: Desk | None
    record: Record
    claim: AuthorityUse = NOTHING
    rule: str = ""
    reason: str = ""
    wants: list[tuple[str, NeedsApproval]] = field(default_factory=list)
    approved_ms: list[int] = field(default_factory=list)
    request: tuple[str, ConvertToApproval] | None = None
    stand_in: tuple[str, Sandbox] | None = None
    allowed: bool = False

    def begin(self, record: Record, claim: AuthorityUse) -> None:
        """Begin a new round with the current form of the action."""
        self.record, self.claim, self.allowed, self.request, self.stand_in = record, claim, False, None, None
        self.wants.clear()

    def note(self, rule: str, decision: Allow | NeedsApproval | ConvertToApproval | Sandbox) -> None:
        """Note a decision that lets further rules be asked. A conversion to an approval takes precedence over a stand-in."""
        if isinstance(decision, Allow):
            self.allowed = True
        elif isinstance(decision, NeedsApproval):
            self.wants.append((rule, decision))
        elif isinstance(decision, ConvertToApproval):
            self.request = self.request or (rule, decision)
        else:
            self.stand_in = self.stand_in or (rule, decision)

    @property
    def changed(self) -> bool:
        return self.record is not self.proposed

    @property
    def arguments(self) -> FrozenDict:
        """The arguments that would run, in recorded form."""
        if not self.changed:
            return self.sealed
        arguments = self.record.action.arguments
        return arguments if self.desk is None else self.desk.recorded(self.proposed.step, arguments)

    @property
    def recorded(self) -> Record:
        """The current form of the action, as contracts see it."""
        return replace(self.record, action=replace(self.record.action, arguments=self.arguments))

    @property
    def shows_all(self) -> bool:
        """Whether the recorded form of the arguments is what would run: nothing is redacted, hashed or behind a handle."""
        return canonical(self.arguments) == canonical(self.record.action.arguments)

    def mediation(
        self, decision: Literal["allow", "rewrite", "block"], rule: str, reason: str, approval: str = ""
    ) -> Mediation:
        """Make the Mediation of a decision on this case."""
        tool, asked = self.proposed.action.name, self.sealed
        digests = self.changed or bool(approval)
        return Mediation(
            decision=decision, rule=rule, reason=reason, arguments=self.record.action.arguments if self.changed else None,
            asked_digest=approval_digest(tool, asked) if digests else "",
            allowed_digest=approval_digest(tool, self.arguments) if digests else "",
            approval=approval, grant=self.claim.grant,
            under=tuple(f"step#{task.step}" for task in self.claim.under if task.step >= 0),
        )  # fmt: skip

    def block(self, rule: str, reason: str, approval: str = "") -> Mediation:
        return self.mediation("block", rule, reason, approval)

    def let_through(self, rule: str, reason: str, approval: str = "") -> Mediation:
        """Let the action through, as it was asked or rewritten."""
        if self.changed:
            return self.mediation("rewrite", self.rule, _join_reasons(self.reason, reason), approval)
        return self.mediation("allow", rule, reason, approval)


class Mediator:
    """Decides on the proposed actions of one run. A rule that raises, or returns something invalid, blocks, with the reason."""

    def __init__(self, governance: Governance | None, peek: ContractCheck | None = None) -> None:
        policy = governance or Governance()
        self.governance = governance
        self._policy, self._peek = policy, peek
        sets, granters = capability_sets(policy.capabilities), capability_sets(policy.granters)
        authority = Authority(sets, granters, "deny" if policy.denies else "allow")
        self._authority = authority if authority.limits else None
        self._rules = tuple(_AskedRule.of(rule) for rule in policy.rules)
        self._active = bool(self._rules or peek) or authority.limits
        self._records_allow = bool(self._rules) or authority.limits
        self._watching = tuple(each for each in self._rules if hasattr(each.rule, "observe"))
        self._own_approvals = OwnApprovals()
        self._prefixes = Prefixes()
        self._answers: dict[str, tuple[int, AuthorityUse]] = {}
        self._version = policy.version

    @property
    def active(self) -> bool:
        return self._active

    @property
    def watches(self) -> bool:
        """Whether `observe` needs the sealed records."""
        return bool(self._watching)

    @property
    def approver(self) -> Approver | None:
        """The run's approver, within the policy's time-out: what `mat.approval` asks."""
        approver, timeout_ms = self._policy.approver, self._policy.timeout_ms
        if approver is None or timeout_ms is None:
            return approver

        def timed(what: str, arguments: FrozenDict) -> Any:
            return ask(approver, what, arguments, timeout_ms)

        return timed

    def observe(self, record: Record, verdict: Verdict | tuple[str, ...]) -> None:
        """Take a sealed and judged record, in ask order."""
        for each in self._watching:
            try:
                cast(Any, each.rule).observe(record, verdict)
            except Exception as error:  # fail closed: a rule that did not see this record cannot judge later ones
                self._block_from_now_on(each.name, raised_text(error, f"when it was shown step {record.step}"))

    def ended(self, violations: Sequence[Violation]) -> None:
        """Take the violations that the end of an episode, or of the run, revealed."""
        for each in self._rules:
            end = getattr(each.rule, "ended", None)
            try:
                if end is not None:
                    end(violations)
            except Exception as error:  # fail closed
                self._block_from_now_on(each.name, raised_text(error, "at the end of an episode"))

    def _block_from_now_on(self, name: str, why: str) -> None:
        """Replace a crashed rule by one that blocks every action."""

        def blocks(record: Record) -> Decision:
            return Block(f"rule {name} {why}")

        blocking = _AskedRule(rule=blocks, name=name, peeks=False, recorded=False)
        self._rules = tuple(blocking if each.name == name else each for each in self._rules)
        self._watching = tuple(each for each in self._watching if each.name != name)

    def state(self) -> tuple[object, ...]:
        """The mediator's state, as a value with a canonical form; empty if there is none."""
        rules = [(each.name, each.rule.state()) for each in self._rules if hasattr(each.rule, "state")]
        authority = () if self._authority is None else self._authority.state()
        found = (authority, tuple(rules))
        return found if any(found) else ()

    # -- judging --------------------------------------------------------------------------------------------------------

    def mediate(self, proposed: Record, desk: Desk | None = None, recorded: Record | None = None) -> MediationOutcome | None:
        """The decision on a proposed action; None if it is allowed and this policy records no decision for it.

        `recorded`: the action in its recorded form, if that is another: contracts judge it, rules and capabilities judge what
        would run.
        """
        case: _Case | None = None
        record = proposed
        sealed = (recorded or proposed).action.arguments
        for _ in range(_ROUNDS):
            claim = NOTHING if self._authority is None else self._authority.claim(record, desk)
            if claim is not NOTHING or case is not None:
                case = case or _Case(proposed, sealed, desk, record)
                case.begin(record, claim)
                if claim.refused:
                    return case.block("capability", claim.refused)
            for asked in self._rules:
                shown = record
                if asked.recorded and (recorded is not None or case is not None):
                    shown = (case or _Case(proposed, sealed, desk, record)).recorded
                decision, name = asked.decision(shown, desk), asked.name
                if decision is None:
                    continue
                if case is None:
                    case = _Case(proposed, sealed, desk, record)
                if isinstance(decision, Block):
                    return case.block(name, decision.reason)
                if isinstance(decision, Rewrite):
                    rewritten, problem = _rewrite(record, decision, name)
                    case.record = rewritten
                    if problem:
                        return case.block(name, problem)
                    if rewritten is not record:
                        record, case.rule, case.reason = rewritten, name, decision.reason
                        break
                else:
                    case.note(name, decision)
            else:
                return self._undecided(record, sealed, desk) if case is None else self._conclude(case)
        assert case is not None
        return case.block(case.rule, f"the rules still rewrite {record.action.name} after {_ROUNDS} rounds")

    def _undecided(self, record: Record, sealed: FrozenDict, desk: Desk | None) -> MediationOutcome | None:
        """The outcome for an action on which no rule decided and that uses no capability or grant; None as in `mediate`."""
        if self._peek is None and record.action.kind not in _AUTHORITY_KINDS:
            return _ALLOWED if self._records_allow else None
        return self._conclude(_Case(record, sealed, desk, record))

    def _conclude(self, case: _Case) -> MediationOutcome | None:
        """The outcome if no rule blocked the action: apply the default, the contracts, stand-ins and approvals."""
        record, claim = case.record, case.claim
        if claim.undeclared and not case.allowed:
            why = f"{claim.undeclared} has no capability set and no rule allows {record.action.name}"
            return case.block("default", f"{why}: actions that nothing allows are denied")
        for violation in self._peek(case.recorded) if self._peek else ():
            return case.block(violation.contract, violation.repair or violation.message or violation.contract)
        replacing = case.request or case.stand_in
        if replacing is not None and record.action.kind in _AUTHORITY_KINDS:
            return case.block(replacing[0], f"a {record.action.kind} cannot be replaced by a request or a stand-in")
        if case.request is not None:
            return self._turn_into_request(case, *case.request)
        if case.stand_in is not None:
            return _stand_in(case, *case.stand_in)
        if case.wants:
            return self._ask_approvals(case)
        used_up = self._use_authority(case)
        if used_up:
            return case.block("capability", used_up)
        self._note_authority(case)
        if not case.changed and claim is NOTHING:
            return _ALLOWED if self._records_allow else None
        return case.let_through("", "")

    def _use_authority(self, case: _Case) -> str:
        return "" if self._authority is None else self._authority.take(case.claim)

    def _return_authority(self, case: _Case) -> None:
        if self._authority is not None:
            self._authority.give_back(case.claim)

    def _note_authority(self, case: _Case) -> None:
        """Note a delegation or grant that is let through: it changes what agents may do from now on."""
        kind = case.record.action.kind
        if self._authority is None or kind not in _AUTHORITY_KINDS:
            return
        if kind == "delegation":
            self._authority.delegated(case.record)
        else:
            self._authority.granted(case.record)

    # -- approvals ------------------------------------------------------------------------------------------------------

    def _ask_approvals(self, case: _Case) -> MediationOutcome:
        """Ask for each required approval, one after another, and only then let the action through."""
        used_up = self._use_authority(case)
        if used_up:
            return case.block("capability", used_up)
        return self._ask_next(case, list(case.wants), "", "", "")

    def _ask_next(
        self, case: _Case, wants: list[tuple[str, NeedsApproval]], rule: str, approval: str, why: str
    ) -> MediationOutcome:
        if not wants:
            if case.stand_in is not None:
                return _stand_in(case, *case.stand_in)
            self._note_authority(case)
            return case.let_through(rule, f"{why}; approved" if why else "approved", approval)
        (rule, wish), *rest = wants
        why = _join_reasons(why, wish.reason)
        what = wish.what or case.record.action.name
        if wish.own:
            used = self._use_own_approval(case)
            if used:
                return self._ask_next(case, rest, rule, used, why)
        approver = wish.approver or self._policy.approver
        if approver is None:
            self._return_authority(case)
            return case.block(rule, _join_reasons(why, f"{what} needs approval, and this run has no approver"))
        timeout_ms = self._policy.timeout_ms if wish.timeout_ms is None else wish.timeout_ms
        arguments = case.record.action.arguments

        def settle(answer: Any, artifact: str) -> Settled:
            status, by, reason = outcome_of(answer, name_of(approver))
            if status == "approved":
                case.approved_ms.append(now_ms())
                self._answers[artifact] = (min(case.approved_ms), case.claim)  # all must still hold when the call runs
                observation = approval_observation(status, by, reason)
                return Settled(observation=observation, decision=self._ask_next(case, rest, rule, artifact, why))
            self._return_authority(case)
            refused = _REFUSED[status].format(what=what)
            blocked = case.block(rule, _join_reasons(why, f"{refused}: {reason}" if reason else refused), artifact)
            return Settled(observation=approval_observation(status, by, reason), decision=blocked)

        return Pending(
            port=approval_port(what),
            request=self._approval_request(case),
            call=lambda: ask(approver, what, arguments, timeout_ms),
            settle=settle,
            abandon=lambda: self._return_authority(case),
        )

    def _approval_request(self, case: _Case) -> FrozenDict:
        """The arguments of an approval record: the action that waits for it."""
        tool, arguments = case.record.action.name, case.arguments
        version = self.version()
        prefix = self._prefixes.of(case.desk.settled()) if case.desk is not None else ""
        return FrozenDict(
            {
                "tool": tool, "arguments": arguments, "digest": approval_digest(tool, arguments, version, prefix),
                "policy": version, "prefix": prefix, "action": f"step#{case.proposed.step}",
            }
        )  # fmt: skip

    def version(self) -> str:
        """The policy's version, which approvals bind."""
        if not self._version:
            self._version = policy_version(self._policy)
        return self._version

    def _use_own_approval(self, case: _Case) -> str:
        """Use up an earlier approval of exactly this call that the agent asked for. Returns its step, or "".

        An approval is recorded in redacted form, so it cannot say that it is for a call of which something is redacted.
        """
        if not case.shows_all:
            return ""
        if case.desk is not None:
            self._own_approvals.read(case.desk.settled(), case.desk.pending(case.proposed.step))
        binding = approval_digest(case.record.action.name, case.arguments)
        found = self._own_approvals.find(binding, case.proposed.agent, case.proposed.at_ms, self._policy.approve_within_ms)
        if found is None:
            return ""
        self._own_approvals.use(binding, found)
        artifact = f"step#{found.step}"
        case.approved_ms.append(now_ms() - (case.proposed.at_ms - found.answered_ms))
        self._answers[artifact] = (min(case.approved_ms), case.claim)
        return artifact

    def _turn_into_request(self, case: _Case, rule: str, decision: ConvertToApproval) -> MediationOutcome:
        """Replace the call by a request: the agent gets the status "pending approval", unless it has an approval of its own."""
        what = decision.what or case.record.action.name
        if decision.own:
            used_up = self._use_authority(case)
            if used_up:
                return case.block("capability", used_up)
            used = self._use_own_approval(case)
            if used:
                return self._ask_next(case, list(case.wants), rule, used, "")
            self._return_authority(case)
        request = self._approval_request(case)
        binding = approval_digest(case.record.action.name, case.arguments)

        def settle(answer: Any, artifact: str) -> Settled:
            reply = {"status": "pending approval", "approval": artifact, "what": what, "digest": binding}
            mediation = case.mediation(
                "rewrite", rule, _join_reasons(decision.reason, f"turned into a request: {what} needs approval"), artifact
            )
            return Settled(
                observation=approval_observation("pending", "", ""),
                decision=StandIn(mediation=mediation, call=lambda arguments: dict(reply)),
            )

        return Pending(port=approval_port(what), request=request, call=None, settle=settle, abandon=lambda: None)

    def confirm(self, record: Record, mediation: Mediation, changed: Sequence[str] = ()) -> Mediation | None:
        """Check an approved call again before the port gets it; returns a block if it has changed or the approval has expired.

        `record.executed` holds the arguments that would run. Like those of `mediation`, they have the recorded form. `changed`:
        the parameters that have another value than the one that was approved.
        """
        tool = record.action.name
        running = record.action.arguments if record.executed is None else record.executed
        since, claim = self._answers.get(mediation.approval, (now_ms(), NOTHING))
        late = now_ms() - since
        within_ms = self._policy.approve_within_ms
        if changed or approval_digest(tool, running) != mediation.allowed_digest:
            names = ", ".join(changed or changed_names(mediation.arguments or record.action.arguments, running))
            why = f"{tool} was {CHANGED}: {names}"
        elif within_ms is not None and late > within_ms:
            why = f"the approval of {tool} expired: it was given {late} ms earlier and is valid for {within_ms} ms"
        else:
            return None
        return self._take_back(mediation, claim, "approval", why)

    def refuse_changed(self, record: Record, mediation: Mediation, names: list[str]) -> Mediation:
        """Block an action that the caller changed, in these parameters, between the judgement and the call."""
        _, claim = self._answers.get(mediation.approval, (0, NOTHING))
        when = CHANGED if mediation.approval else "changed after it was judged"
        return self._take_back(mediation, claim, "changed", f"{record.action.name} was {when}: {', '.join(names)}")

    def _take_back(self, mediation: Mediation, claim: AuthorityUse, rule: str, why: str) -> Mediation:
        if self._authority is not None:
            self._authority.give_back(claim)
        return replace(mediation, decision="block", rule=rule, reason=why)


_AUTHORITY_KINDS: Final = frozenset(("delegation", "grant"))
"""The kinds of action that change what an agent may do."""
_REFUSED: Final[dict[ApprovalStatus, str]] = {
    "rejected": "{what} was not approved", "expired": "the approval of {what} expired", "pending": "{what} waits for approval",
    "approved": "{what} was approved",
}  # fmt: skip


_DECISIONS: Final = frozenset((Allow, Rewrite, Block, NeedsApproval, ConvertToApproval, Sandbox))


@dataclass(frozen=True, slots=True, kw_only=True)
class _AskedRule:
    """A rule in one run. `peeks`: it also gets the records that were asked before the proposed one and are not judged yet.

    `recorded`: it gets the action in its recorded form, as it gets all others.
    """

    rule: Rule
    name: str
    peeks: bool
    recorded: bool

    @classmethod
    def of(cls, rule: Rule) -> _AskedRule:
        fresh = getattr(rule, "fresh", None)
        made = rule if fresh is None else fresh()
        if not callable(made):
            raise SpecError(
                what=f"{name_of(rule)}.fresh() returned {made!r}, which is not a rule", fix="give a function of the record"
            )
        name = getattr(made, "__name__", None) or type(made).__name__
        return cls(
            rule=made, name=name, peeks=bool(getattr(made, "peeks", False)), recorded=bool(getattr(made, "recorded", False))
        )

    def decision(self, record: Record, desk: Desk | None) -> Decision | None:
        """The rule's decision; a Block if it raises, or returns something invalid."""
        try:
            if self.peeks:
                found = self.rule(record, () if desk is None else desk.pending(record.step))  # type: ignore[call-arg]
            else:
                found = self.rule(record)
        except Exception as error:  # fail closed: a crashed rule blocks
            return Block(f"rule {self.name} {raised_text(error)}")
        if found is None:
            return None
        if type(found) not in _DECISIONS:
            return Block(f"rule {self.name} returned {type(found).__name__}, which is not a decision")
        return _checked_decision(found, self.name)


def _checked_decision(decision: Decision, name: str) -> Decision:
    """Check the parts of a decision. Returns the decision, or a Block that names the invalid part."""
    problem = ""
    if not isinstance(decision, Allow) and not isinstance(decision.reason, str):
        problem = f"a reason of type {type(decision.reason).__name__}"
    elif isinstance(decision, NeedsApproval | ConvertToApproval) and not isinstance(decision.what, str):
        problem = f"what={decision.what!r}"
    elif isinstance(decision, NeedsApproval) and decision.approver is not None and not callable(decision.approver):
        problem = f"approver={decision.approver!r}"
    return Block(f"rule {name} returned {type(decision).__name__} with {problem}") if problem else decision


def _rewrite(record: Record, decision: Rewrite, name: str) -> tuple[Record, str]:
    """(the rewritten record, or the same object if nothing changes; why the rewrite is invalid, or "")."""
    try:
        changed = snapshot_arguments(decision.arguments, "rewrite")
        arguments = FrozenDict({**record.action.arguments, **changed})
        if canonical(arguments) == canonical(record.action.arguments):  # typed: 1, 1.0 and True are three arguments
            return record, ""
    except Exception as error:  # fail closed, as for a crashed rule
        return record, f"rule {name} rewrote arguments to values that cannot be recorded: {type(error).__name__}: {error}"
    rewritten = replace(record, action=replace(record.action, arguments=arguments))
    unknown = sorted(set(changed) - set(record.action.arguments))
    if not unknown:
        return rewritten, ""
    known = ", ".join(record.action.arguments) or "none"
    return (
        rewritten,
        f"rule {name} set {', '.join(unknown)}, but the parameters of {record.action.name} are {known}",
    )


def _stand_in(case: _Case, rule: str, decision: Sandbox) -> StandIn:
    reply = decision.reply
    reason = f"sandbox: {decision.reason}" if decision.reason else "sandbox"
    mediation = case.mediation("rewrite", rule, reason)
    return StandIn(
        mediation=mediation, call=(lambda arguments: reply(thaw(arguments))) if callable(reply) else (lambda arguments: reply)
    )


def _join_reasons(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def changed_names(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The parameters whose values differ, also in type."""
    return [
        name for name in sorted({*one, *other})
        if name not in one or name not in other or canonical(one[name]) != canonical(other[name])
    ]  # fmt: skip


def policy_version(governance: Governance) -> str:
    """A digest of the parts of a policy that are data: names, sets, limits, and its rules by name."""
    from mat.core.allowed import describe

    def limits(item: Capability) -> list[tuple[str, str]]:
        return sorted((path, describe(allowed)) for path, allowed in item.parameters.items())

    def sets(declared: Mapping[str, Iterable[str | Capability]]) -> list[object]:
        return [
            [agent, kind, name, [[limits(item), [[each.most, each.window_ms] for each in item.rates]] for item in items]]
            for agent, table in sorted(capability_sets(declared).items())
            for kind, names in sorted(table.items())
            for name, items in sorted(names.items())
        ]  # fmt: skip

    rules = [name_of(rule) for rule in governance.rules]
    approver = "" if governance.approver is None else name_of(governance.approver)
    terms = ["deny" if governance.denies else "allow", governance.timeout_ms, governance.approve_within_ms]
    budgets = [[[who, item.name, item.units, item.duration_ms] for who, item in sorted(governance.contracts.items())]]
    return digest(
        [governance.name, sets(governance.capabilities), sets(governance.granters), rules, approver, *terms]
        + (budgets if governance.contracts else [])
    )


def governance_name(governance: Governance | None) -> str:
    return "none" if governance is None else governance.name

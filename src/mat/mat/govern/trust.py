"""Trust per agent: a number in [0, 1] from contract outcomes and policy events, and the consequences of low trust.

It is a heuristic for routing and sandboxing, not a guarantee. Between events trust decays towards a prior p with a
half-life h, so that recent behavior counts most; an event moves it by its weight w:

    T(t) = p + (T(u) - p) * 2 ** -((t - u) / h)         from the last event at u
    T <- T * (1 - w)                                    a violation, a block, a rewrite, a refuted check, a rejection
    T <- 1 - (1 - T) * (1 - w)                          a clean effect, a check that passed

All of it is integer arithmetic in units of 1/10,000. Decay is rounded towards the prior, so that the prior is
reached. An event moves T by at least one unit, so that every event counts, and T stays in [0, 1]. An event takes a share of
the current value: after any amount of good behavior, one hard violation with w = 0.4 leaves at most 0.6.

Source: A5.4, Sec. IV-E.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import groupby
from math import isqrt
from typing import Final, Literal, TypeAlias, get_args

from mat.boundary.emit import around
from mat.core.errors import SpecError, did_you_mean
from mat.core.record import ActionKind, Record
from mat.core.run import Run
from mat.core.value import FrozenDict
from mat.core.verdict import Verdict, Violation
from mat.govern.capability import Capability, capability_sets, refusal_by_sets
from mat.govern.mediator import (
    Allow,
    Approver,
    Block,
    ConvertToApproval,
    Decision,
    NeedsApproval,
    Rewrite,
    Rule,
    Sandbox,
)
from mat.govern.sandbox import StandIns
from mat.monitor.judge import EPISODE, HARNESS

UNITS: Final = 10_000
"""Trust, weights and thresholds are counted in units of 1/10,000."""
TrustShare: TypeAlias = Fraction | Decimal | float | str
"""A number in [0, 1] with at most four decimals. A float is read as it is written: 0.1 is one tenth."""
TrustEvent: TypeAlias = Literal[
    "hard_violation",  # the agent's step breaks a hard contract
    "soft_violation",  # the agent's step breaks a soft contract
    "rejected",  # an approver said no to its action
    "refuted",  # a check of its work did not pass
    "blocked",  # the mediator blocked its action
    "rewritten",  # the mediator rewrote its action
    "verified",  # a check of its work passed
    "clean_write",  # it changed something, as it asked to, and broke nothing
    "clean_read",  # it got something, as it asked to, and broke nothing
]
EVENTS: Final[tuple[str, ...]] = get_args(TrustEvent)
RAISING: Final = frozenset(("verified", "clean_write", "clean_read"))
WEIGHTS: Final[Mapping[str, Fraction]] = {
    "hard_violation": Fraction(40, 100), "soft_violation": Fraction(10, 100), "rejected": Fraction(30, 100),
    "refuted": Fraction(20, 100), "blocked": Fraction(20, 100), "rewritten": Fraction(5, 100), "verified": Fraction(10, 100),
    "clean_write": Fraction(5, 100), "clean_read": Fraction(1, 100),
}  # fmt: skip
"""Default weight of each event."""
RULE: Final = "trust"
"""The rule name of mediations for lack of trust."""


def units(share: TrustShare, what: str = "trust") -> int:
    """A share in units of 1/10,000, exactly; SpecError if it is outside [0, 1] or has more decimals."""
    problem = _not_a_share(share)
    if problem:
        raise SpecError(what=f"{what} {problem}", fix="give a number from 0 to 1 with at most four decimals")
    return int(_fraction(share) * UNITS)


def _fraction(share: TrustShare) -> Fraction:
    return Fraction(repr(share)) if isinstance(share, float) else Fraction(share)


def _not_a_share(share: object) -> str:
    """Why a value is not a share, or ""."""
    if isinstance(share, bool) or not isinstance(share, Fraction | Decimal | float | int | str):
        return f"is {share!r}, which is not a number"
    try:
        number = _fraction(share)
    except (ValueError, OverflowError, ZeroDivisionError):
        return f"is {share!r}, which is not a number"
    if not 0 <= number <= 1:
        return f"is {share}, which is outside 0 to 1"
    return "" if (number * UNITS).denominator == 1 else f"is {share}, which has more than four decimals"


def shown(value: int) -> str:
    """Units as a decimal number: 0.3120."""
    return f"{value // UNITS}.{value % UNITS:04d}"


# -- the formula ------------------------------------------------------------------------------------------------------

_BITS: Final = 64
_STEPS: Final = 32


def _roots() -> tuple[int, ...]:
    """2 ** -(1/2), 2 ** -(1/4), 2 ** -(1/8), ... in units of 2 ** -64, by integer square roots."""
    found, one = [], 1 << _BITS
    value = one >> 1
    for _ in range(_STEPS):
        value = isqrt(value << _BITS)
        found.append(value)
    return tuple(found)


_ROOTS: Final = _roots()


@lru_cache(maxsize=4096)
def _halving(elapsed: int, half_life: int) -> int:
    """2 ** -(elapsed / half_life) in units of 2 ** -64, for elapsed < half_life; exactly 2 ** 64 at 0."""
    value, exponent = 1 << _BITS, (elapsed << _STEPS) // half_life
    for place, root in enumerate(_ROOTS, 1):
        if exponent >> (_STEPS - place) & 1:
            value = value * root >> _BITS
    return value


def decayed(value: int, *, elapsed: int, prior: int, half_life: int) -> int:
    """Trust after `elapsed` steps (or milliseconds) without an event: its distance from the prior halves every half-life."""
    distance = abs(value - prior)
    if not distance or elapsed <= 0:
        return value
    halvings, rest = divmod(elapsed, half_life)
    if halvings > UNITS.bit_length():
        return prior
    left = distance * _halving(rest, half_life) >> (_BITS + halvings)
    return prior + left if value > prior else prior - left


def moved(value: int, weight: int, *, up: bool) -> int:
    """Trust after an event: it moves from its value towards 0 or 1, by at least one unit unless it is already there."""
    if up:
        return UNITS - (UNITS - weight) * (UNITS - value) // UNITS
    return (UNITS - weight) * value // UNITS


# -- evidence ---------------------------------------------------------------------------------------------------------

_EFFECTS: Final = frozenset(("tool_call", "retrieval", "memory_read", "memory_write"))
_NOT_EVIDENCE: Final = (RULE, "sandbox")
"""Rules that act for lack of trust. Their decisions are not evidence, because distrust must not reinforce itself."""


def events_of(record: Record, violations: Sequence[Violation] = ()) -> tuple[TrustEvent, ...]:
    """The trust events of a sealed step for the agent that took it. For other agents, see `evidence`.

    Each violation counts. A block or rewrite also counts, unless it was decided for lack of trust, by a contract of one of
    those violations, or by an approver (whose answer is an event of its own). Without any of these, a requested effect that
    took place is clean.
    """
    found: list[TrustEvent] = ["hard_violation" if item.severity == "hard" else "soft_violation" for item in violations]
    mediation = record.mediation
    if mediation is not None and mediation.decision != "allow":
        if (
            mediation.rule not in _NOT_EVIDENCE
            and not mediation.approval
            and all(item.contract != mediation.rule for item in violations)
        ):
            found.append("blocked" if mediation.decision == "block" else "rewritten")
    elif not found and _is_clean(record):
        found.append("clean_write" if record.action.effect == "write" else "clean_read")
    return tuple(found)


def _is_clean(record: Record) -> bool:
    action = record.action
    return (
        action.kind in _EFFECTS
        and bool(action.boundary)
        and action.effect != "none"
        and record.effected == "yes"
        and record.observation.error is None
    )


def evidence(record: Record, violations: Sequence[Violation], agents: Mapping[int, str]) -> Iterator[tuple[str, TrustEvent]]:
    """(agent, event) for every trust event of a sealed step. `agents`: who took this step and the earlier ones.

    A check is about the agents whose results it checked (`supports=`), or about the one that made it if it names none;
    an approver's refusal is about the agent that asked, or whose action it was.
    """
    for item in violations:
        if item.step != record.step:  # a contract may blame an earlier step, and another agent
            blamed = item.agent or agents.get(item.step, record.agent)
            yield blamed, "hard_violation" if item.severity == "hard" else "soft_violation"
    own = [item for item in violations if item.step == record.step]
    for event in events_of(record, own):
        yield record.agent, event
    kind, arguments = record.action.kind, record.action.arguments
    if kind == "verification":
        sources = {agents[step] for link in record.links if link.rel == "supports" and (step := _step_of(link.src)) in agents}
        for agent in sorted(sources) or [record.agent]:
            yield agent, "verified" if arguments.get("passed") is True else "refuted"
    elif kind == "approval" and _is_refusal(record.observation.value):
        yield agents.get(_step_of(str(arguments.get("action", ""))), record.agent), "rejected"


def _step_of(artifact: str) -> int:
    """The step that made an artifact such as `step#3` or `claim#3`; -1 if no step of the run made it."""
    kind, _, number = artifact.partition("#")
    return int(number) if kind in ("step", "claim") and number.isdecimal() else -1


def _is_refusal(answer: object) -> bool:
    """Whether an approver said no, in its answer or in the status that the mediator recorded. No answer is not a refusal."""
    return answer is False or (isinstance(answer, dict) and answer.get("status") == "rejected")


# -- consequences -----------------------------------------------------------------------------------------------------

Stricter: TypeAlias = Literal["", "approve", "block"]
Reach: TypeAlias = Literal["write", "high", "all"]
KeptSet: TypeAlias = Mapping[ActionKind, Mapping[str, tuple[Capability, ...]]]
_STRICTER: Final = ("", "approve", "block")
_REACH: Final = ("write", "high", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The restrictions of an agent while its trust is below a threshold. Levels add up: all with a higher threshold apply.

    A block takes precedence over a stand-in, a rewrite and an approval; of two of a kind, the lower level's does.

    - `below`: the threshold, a share from 0 to 1 with at most four decimals.
    - `keep`: limits its calls to these capabilities, in addition to its own set, so they never widen it.
    - `verify`: routes its actions to a verifier, called as an approver is, which `verifier` names; `on` says which actions:
      those that "write" or may (undeclared; default), those of "high" impact, or "all" that cross a boundary.
    - `high_impact`: "approve" asks the run's approver for actions of high impact, "block" blocks them.
    - `rules`: functions of the proposed record, asked in addition to the policy's. `sandbox`: answers its writes with
      stand-ins.

    Raises `mat.MatError` for invalid parts, and for a level without a consequence.

    >>> low = mat.policy.Level(below=0.5, high_impact="approve")
    >>> policy = mat.Policy(trust=mat.policy.Trust(prior=0.7, levels=(low,)))
    >>> low.below, low.on
    (Fraction(1, 2), 'write')

    Source: A5.4.
    """

    below: TrustShare
    keep: Iterable[str | Capability] | None = None
    verify: Approver | None = None
    verifier: str = "verifier"
    on: Reach = "write"
    high_impact: Stricter = ""
    rules: tuple[Rule, ...] = ()
    sandbox: StandIns | None = None

    def __post_init__(self) -> None:
        problems = [f"below {problem}" for problem in (_not_a_share(self.below),) if problem]
        for name, value, known in (("on", self.on, _REACH), ("high_impact", self.high_impact, _STRICTER)):
            if value not in known:
                problems.append(
                    f"{name}={value!r} is not one of {', '.join(filter(None, known))}{did_you_mean(str(value), known)}"
                )
        if self.verify is not None and not callable(self.verify):
            problems.append(f"verify={self.verify!r} cannot be called")
        if isinstance(self.rules, str) or not all(callable(rule) for rule in self.rules):
            problems.append("rules contains something that is not a rule")
        if isinstance(self.keep, str):
            problems.append(f"keep is a single string; write [{self.keep!r}]")
        if self.keep is None and self.verify is None and not self.high_impact and not self.rules and self.sandbox is None:
            problems.append("it has no consequence: give keep=, verify=, high_impact=, rules= or sandbox=")
        if problems:
            raise SpecError(what=f"level of trust: {'; '.join(problems)}", fix="correct the arguments of mat.policy.Level")
        object.__setattr__(self, "below", _fraction(self.below))
        object.__setattr__(self, "rules", tuple(self.rules))
        if self.keep is not None:
            object.__setattr__(self, "keep", tuple(self.keep))
            if any(isinstance(item, Capability) and item.rates for item in self.keep):
                raise SpecError(
                    what="level of trust: keep contains a rate limit", why="calls are counted in the agent's own set",
                    fix="leave the rate out of keep, and in the capabilities of the agent",
                )  # fmt: skip
            _kept_set(self)

    def reaches(self, record: Record) -> bool:
        action = record.action
        return self.on == "all" or (action.may_write if self.on == "write" else action.impact == "high")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The parameters of trust and its levels: a governance rule that learns during a run.

    Trust is a share from 0 to 1 for each agent: it falls with violations, blocks and refuted checks, rises with clean effects
    and checks that passed, and goes back to `prior` (7 in 10) with `half_life`, in steps of the run (50), or in milliseconds
    of run time with `clock="ms"`. `start`: agent -> trust, of agents that are already known, such as `trust.after(run).start`.
    `weights`: event -> share, overriding the defaults. `levels`: what follows from low trust, see `mat.policy.Level`. The
    formula is at the top of `mat.govern.trust`.

    Raises `mat.MatError` for a share outside 0 to 1, an unknown event or a half-life below 1.

    >>> trust = mat.policy.Trust(prior=0.7, half_life=50)
    >>> with mat.run() as run, mat.agent("clerk"):
    ...     mat.verify("the order is the sender's", passed=False)
    False
    >>> trust.after(run.result).start["clerk"]
    Fraction(5639, 10000)

    Source: A5.4.
    """

    prior: TrustShare = Fraction(7, 10)
    half_life: int = 50
    clock: Literal["steps", "ms"] = "steps"
    start: Mapping[str, TrustShare] = field(default_factory=dict)
    weights: Mapping[str, TrustShare] = field(default_factory=dict)
    levels: tuple[Level, ...] = ()

    def __post_init__(self) -> None:
        problems = [f"prior {problem}" for problem in (_not_a_share(self.prior),) if problem]
        if not isinstance(self.half_life, int) or isinstance(self.half_life, bool) or self.half_life < 1:
            problems.append(f"half_life={self.half_life!r} is not an integer >= 1")
        if self.clock not in ("steps", "ms"):
            problems.append(f"clock={self.clock!r} is neither steps nor ms")
        unknown = sorted(set(self.weights) - set(EVENTS))
        problems += [f"unknown event: {name!r}{did_you_mean(name, EVENTS)}" for name in unknown]
        for table, values in (("start", self.start), ("weight", self.weights)):
            problems += [f"{table} of {name} {problem}" for name, share in values.items() if (problem := _not_a_share(share))]
        problems += [f"{level!r} is not a Level" for level in self.levels if not isinstance(level, Level)]
        if problems:
            raise SpecError(
                what=f"trust: {'; '.join(problems)}", fix=f"events are {', '.join(EVENTS)}; shares lie between 0 and 1"
            )
        object.__setattr__(self, "prior", _fraction(self.prior))
        object.__setattr__(self, "start", _as_fractions(self.start))
        object.__setattr__(self, "weights", _as_fractions(self.weights))
        object.__setattr__(self, "levels", tuple(sorted(self.levels, key=lambda level: _fraction(level.below))))

    def fresh(self) -> TrustLedger:
        """The trust of one run, from its start."""
        return TrustLedger(self)

    def __call__(self, record: Record) -> Decision | None:
        """Decide by the initial trust, as the rule does outside a run."""
        return self.fresh()(record)

    def after(self, run: Run) -> Trust:
        """The same parameters, starting from the trust at the end of a run, to carry it over to the next task."""
        ledger = self.fresh()
        verdicts, at_end = {verdict.step: verdict for verdict in run.verdicts}, _end_violations(run)
        for _, group in groupby(run.records, key=lambda record: record.state.get(EPISODE)):
            steps = range(0)
            for record in group:
                ledger.observe(record, verdicts.get(record.step, ()))
                steps = range(steps.start if steps else record.step, record.step + 1)
            ledger.ended([violation for violation in at_end if violation.step in steps])
        values = ledger.values(step=len(run.records), at_ms=run.elapsed_ms)
        return replace(self, start={**self.start, **values})


def _as_fractions(values: Mapping[str, TrustShare]) -> FrozenDict:
    return FrozenDict({name: _fraction(values[name]) for name in sorted(values)})


def _end_violations(run: Run) -> list[Violation]:
    """Violations that only the end of the run or of an episode revealed."""
    in_verdicts = Counter(_key(violation) for verdict in run.verdicts for violation in verdict.violations)
    found = []
    for violation in run.violations:
        if in_verdicts[_key(violation)]:
            in_verdicts[_key(violation)] -= 1
        else:
            found.append(violation)
    return found


def _key(violation: Violation) -> tuple[str, int, str, str]:
    """The parts of a violation that stay the same when the end of the run blames the agent of an earlier step."""
    return (violation.contract, violation.step, violation.instance, violation.message)


class TrustLedger:
    """The trust of each agent in one run. It is a rule; its decisions name the trust that they are based on."""

    __name__ = RULE

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._prior = units(trust.prior)
        self._half_life, self._in_steps = trust.half_life, trust.clock == "steps"
        self._weights = {name: units({**WEIGHTS, **trust.weights}[name]) for name in EVENTS}
        self._levels = tuple((units(level.below), level, _kept_set(level)) for level in trust.levels)
        self._highest = max((below for below, _, _ in self._levels), default=0)
        self._scores = {agent: (units(share), 0) for agent, share in trust.start.items()}
        self._agents: dict[int, str] = {}
        self._now = 0

    def of(self, agent: str, *, at: int) -> int:
        """The trust in an agent at a step, or millisecond, of the run, in units."""
        value, since = self._scores.get(agent, (self._prior, at))
        return decayed(value, elapsed=at - since, prior=self._prior, half_life=self._half_life)

    def values(self, *, step: int, at_ms: int) -> dict[str, Fraction]:
        """Trust by agent, as shares, at a moment of the run."""
        at = step if self._in_steps else at_ms
        return {agent: Fraction(self.of(agent, at=at), UNITS) for agent in sorted(self._scores)}

    def state(self) -> tuple[tuple[str, int, int], ...]:
        """The state that later decisions depend on: agent, trust at its last event in units, and the time of that event."""
        return tuple((agent, value, at) for agent, (value, at) in sorted(self._scores.items()))

    def observe(self, record: Record, verdict: Verdict | tuple[str, ...]) -> None:
        """Take a sealed and judged step, in ask order."""
        self._agents[record.step] = record.agent
        self._now = record.step if self._in_steps else max(self._now, record.sealed_ms)  # a step asked early can be sealed late
        violations = verdict.violations if type(verdict) is Verdict else ()
        if not violations and record.action.kind in _EFFECTS:  # what most steps are
            mediation = record.mediation
            if mediation is None or mediation.decision == "allow":
                if _is_clean(record):
                    self._apply_event(record.agent, "clean_write" if record.action.effect == "write" else "clean_read")
                return
        for agent, event in evidence(record, violations, self._agents):
            self._apply_event(agent, event)

    def ended(self, violations: Iterable[Violation]) -> None:
        """Take the violations that only the end of an episode revealed: obligations that were not met."""
        for item in violations:
            agent = item.agent or self._agents.get(item.step, "")
            self._apply_event(agent, "hard_violation" if item.severity == "hard" else "soft_violation")

    def _apply_event(self, agent: str, event: TrustEvent) -> None:
        if not agent or agent == HARNESS:
            return
        before = self.of(agent, at=self._now)
        self._scores[agent] = (moved(before, self._weights[event], up=event in RAISING), self._now)

    def __call__(self, record: Record) -> Decision | None:
        action = record.action
        if not action.boundary or action.boundary == "prompt" or not self._levels:
            return None
        agents = (record.agent, *(agent for agent, _ in around()))
        # Between events, trust stays between its last value and the prior.
        value = min(self._scores.get(agent, (self._prior, 0))[0] for agent in agents)
        if value >= self._highest and self._prior >= self._highest:
            return None
        at = record.step if self._in_steps else record.at_ms
        value, least = min((self.of(agent, at=at), agent) for agent in agents)
        if value >= self._highest:
            return None
        decisions = []
        for below, level, kept in self._levels:  # the lowest threshold first: it takes precedence
            if value < below:
                why = f"trust in {least} is {shown(value)}, below {shown(below)}"
                decisions.append(_level_decision(level, kept, record, why))
        return _strictest(decisions)


def route(verify: Approver, *, on: Reach = "high", verifier: str = "verifier") -> Rule:
    """Make a rule that routes actions to a verifier regardless of trust: those that write, those of high impact, or all."""
    level = Level(below=1, verify=verify, verifier=verifier, on=on)

    def route(record: Record) -> Decision | None:
        if not record.action.boundary or record.action.boundary == "prompt" or not level.reaches(record):
            return None
        return NeedsApproval(record.action.name, approver=verify, reason=f"routed to {verifier}")

    return route


def _kept_set(level: Level) -> KeptSet | None:
    return None if level.keep is None else capability_sets({"kept": level.keep})["kept"]


def _level_decision(level: Level, kept: KeptSet | None, record: Record, why: str) -> Decision | None:
    """The decision of one level: blocks take precedence over changes, and changes over approvals."""
    action = record.action
    refusal = "" if kept is None else refusal_by_sets(record, {record.agent: kept})
    if refusal:
        return Block(f"{why}: {refusal}")
    if level.high_impact == "block" and action.impact == "high":
        return Block(f"{why}: {action.name} has high impact")
    by_rules = _strictest(_rule_decision(rule, record, why) for rule in level.rules)
    if isinstance(by_rules, Block):
        return by_rules
    stand_in = None if level.sandbox is None else level.sandbox.answer(record, why)
    approval: Decision | None = None
    if level.verify is not None and level.reaches(record):
        approval = NeedsApproval(action.name, approver=level.verify, reason=f"{why}: asked {level.verifier}")
    elif level.high_impact == "approve" and action.impact == "high":
        approval = NeedsApproval(action.name, reason=why)
    return _strictest((stand_in, by_rules, approval))


def _rule_decision(rule: Rule, record: Record, why: str) -> Decision | None:
    """The decision of one of a level's rules; its reason names the trust that made the rule apply."""
    decision = rule(record)
    if isinstance(decision, Rewrite | Block | Sandbox | NeedsApproval | ConvertToApproval):
        return replace(decision, reason=f"{why}: {decision.reason}" if decision.reason else why)
    if decision is None or isinstance(decision, Allow):
        return None
    name = getattr(rule, "__name__", type(rule).__name__)
    return Block(f"{why}: rule {name} returned {type(decision).__name__}, which is not a decision")


_STRICTEST_FIRST: Final = (Block, Sandbox, Rewrite, ConvertToApproval, NeedsApproval)
"""Of several decisions, the first of these kinds takes precedence; of one kind, the first decision."""


def _strictest(decisions: Iterable[Decision | None]) -> Decision | None:
    ordered = [decision for decision in decisions if decision is not None]
    return min(ordered, key=lambda decision: _STRICTEST_FIRST.index(type(decision)), default=None)

"""Judge a trace online, offline or for a proposed action, by one fold."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mat.core import limits
from mat.core.digest import digest, plain
from mat.core.errors import MatError, SpecError, raised_text
from mat.core.record import Record
from mat.core.value import fast_constructor
from mat.core.verdict import UNJUDGED, ContractOutcome, Obligation, PrefixVerdict, Verdict, Violation, merge
from mat.monitor.contract import KEEP, Contract, Violated
from mat.monitor.explain import id_text
from mat.monitor.joint import Fold, JointMonitor
from mat.monitor.state_digests import joint_digest, state_digest

_new_verdict = fast_constructor(Verdict)
_new_violation = fast_constructor(Violation)


class Judge:
    """Folds records, in ask order, into verdicts, and holds the states of the armed contracts.

    A contract that raises has not judged that step. That is a violation, or makes its outcome unknown (`on_error`), and it goes
    on with the next step.

    `fold` judges one record (and, if a contract needs it, the record before redaction); for a step that breaks nothing
    it returns only the ids of the contracts that judged it (see `verdicts`). `fold` is one generated function for all contracts
    and is replaced when a contract crashes, so always look it up as an attribute.
    """

    fold: Fold

    def __init__(self, contracts: Iterable[Contract], *, online: bool = True) -> None:
        self.contracts = tuple(contracts)
        _check_contracts(self.contracts)
        self._errors: dict[int, str] = {}
        """The first reason why a contract could not judge, by index."""
        self._violations: list[list[Violation]] = [[] for _ in self.contracts]
        self._index = {contract.id: index for index, contract in enumerate(self.contracts)}
        self._evaluations = [0] * len(self.contracts)
        for index, contract in enumerate(self.contracts):
            if contract.raw and not online:
                self._errors[index] = "reads raw values, which are judged online only"
        self._arm([index for index in range(len(self.contracts)) if index not in self._errors], None)

    def _arm(self, armed: list[int], states: Sequence[Any] | None) -> None:
        """Make one function for some contracts, given by their indexes, with their states; by default they begin."""
        self._armed = armed
        self._joint = JointMonitor([self.contracts[index] for index in armed], self, states)
        self.fold = self._joint.fold
        self._goals = [
            (contract, explained)
            for contract in self._joint.contracts
            if contract.formula is not None
            for explained in contract.formula.texts
        ]
        """The contract and the texts of each goal of the joint formulas."""
        self._formula_ids = tuple(self.contracts[armed[position]].id for position in self._joint.places)
        self._alone = [self.contracts[index] for index in armed if self.contracts[index].formula is None]
        self._digested: list[Any] = [_UNSEEN] * len(self._alone)
        self._texts = [""] * (1 + len(self._alone))
        """The digests of the joint formulas and of each state in `_digested`."""

    def _count(self) -> list[int]:
        """How often each contract has judged a step."""
        counted = list(self._evaluations)
        for index, count in zip(self._armed, self._joint.evaluations(), strict=True):
            counted[index] += count
        return counted

    def step(self, record: Record, raw: Record | None = None) -> Verdict:
        """Fold one record. `raw` is the record before redaction, for the contracts that need it."""
        folded = self.fold(record, raw)
        return folded if isinstance(folded, Verdict) else _new_verdict(record.step, folded, (), "")

    # What the joint monitor needs from its host.

    def formula_violated(
        self, goal: int, record: Record, found: list[Violation] | None, key: Any, start: int, seen: tuple[int, ...]
    ) -> list[Violation]:
        contract, explained = self._goals[goal]
        step, mediation = record.step, record.mediation
        since = step if start < 0 else start
        witness, wanted = explained.shown(step, start, seen)
        blocked = mediation is not None and mediation.decision == "block"
        stage = "attempted" if blocked or (record.effected == "no" and record.action.effect == "write") else "effected"
        violation = _new_violation(
            contract.id, contract.severity, stage, step, record.agent, record.role, explained.message, contract.weight,
            explained.repair or contract.repair, (min(witness) if since == step else min(since, *witness), step), witness,
            id_text(key), wanted, contract.label,
        )  # fmt: skip
        return [violation] if found is None else [*found, violation]

    def violated(self, position: int, new: Violated, record: Record, found: list[Violation] | None) -> list[Violation]:
        violations = _violations(self.contracts[self._armed[position]], new, record)
        return violations if found is None else found + violations

    def crashed(self, position: int, record: Record, error: Exception, found: list[Violation] | None) -> list[Violation] | None:
        """Note that a contract could not judge a step. Only its first such step is a violation."""
        index = self._armed[position]
        contract, known = self.contracts[index], index in self._errors
        self._errors.setdefault(index, raised_text(error, f"at step {record.step}"))
        if known or contract.on_error == "unknown":
            return found
        return [*(found or ()), _violation(contract, _unjudged(error), record)]

    def partly(
        self, record: Record, checked: tuple[str, ...], crashed: tuple[int, ...], found: list[Violation] | None
    ) -> Verdict | tuple[str, ...]:
        """The result of a step that some contracts could not judge."""
        for position in crashed:
            self._evaluations[self._armed[position]] -= 1
        without = {self.contracts[self._armed[position]].id for position in crashed}
        checked = tuple(name for name in checked if name not in without)
        return checked if found is None else self.verdict(record, checked, found)

    def formulas_crashed(self, record: Record, raw: Record | None, error: Exception) -> Verdict | tuple[str, ...]:
        """A formula's predicate raised before any state changed: fold the step again without the contracts it belongs to."""
        before, armed = self._joint.states(), self._armed
        culprits: dict[int, Exception] = {}
        for position in self._joint.places:
            try:
                self.contracts[armed[position]].step(before[position], record)
            except Exception as own:
                culprits[position] = own
        culprits = culprits or dict.fromkeys(self._joint.places, error)  # it does not raise again: its contract is not known
        found: list[Violation] | None = None
        for position, raised in culprits.items():
            found = self.crashed(position, record, raised, found)
        self._rearm([position for position in range(len(armed)) if position not in culprits], before)
        folded = self.fold(record, raw)
        after = {**dict(zip(armed, before, strict=True)), **self.states()}
        self._evaluations = self._count()
        self._arm(armed, [after[index] for index in armed])
        if found is None:
            return folded
        if not isinstance(folded, Verdict):
            return self.verdict(record, folded, found)
        missed = self.verdict(record, folded.checked, found)
        return replace(folded, violations=tuple(sorted((*folded.violations, *missed.violations), key=self._order)))

    def _rearm(self, positions: Sequence[int], states: Sequence[Any]) -> None:
        """Go on with some of the armed contracts only."""
        self._evaluations = self._count()
        self._arm([self._armed[position] for position in positions], [states[position] for position in positions])

    def verdict(self, record: Record, checked: tuple[str, ...], found: list[Violation]) -> Verdict:
        if len(found) > 1:
            found.sort(key=self._order)
        for violation in found:
            self._violations[self._index[violation.contract]].append(violation)
        return _new_verdict(record.step, checked, tuple(found), _mitigation(record))

    def _order(self, violation: Violation) -> tuple[int, tuple[int, int], str, str]:
        """Sort violations by contract. Ids of one formula whose deadlines pass at the same step have no order of their own."""
        index = self._index[violation.contract]
        if self.contracts[index].formula is None:
            return (index, (0, 0), "", "")
        return (index, violation.region, violation.instance, violation.message)

    def states(self) -> dict[int, Any]:
        """The states of the armed contracts, by index."""
        return dict(zip(self._armed, self._joint.states(), strict=True))

    def peek(self, proposed: Record, pending: Sequence[Record] = (), *, blocking: bool = False) -> tuple[Violation, ...]:
        """The violations that a proposed action would add after the earlier unsealed actions. Changes no state.

        `blocking`: only of contracts with policy="block".
        """
        found: list[Violation] = []
        for position in self._joint.judging(proposed.action.kind):
            index = self._armed[position]
            contract = self.contracts[index]
            if contract.raw or (blocking and contract.policy != "block"):
                continue
            if contract.policy == "block" and index in self._errors:
                continue  # see _crashed_violations
            try:
                broken = self._violations_after(position, contract, [*pending, proposed])
            except Exception as error:  # a crashed policy must block the action: fail closed
                broken = [Violated(f"{contract.id} {raised_text(error)}")]
            for new in broken:
                found.extend(_violations(contract, new, proposed))
        found.sort(key=self._order)
        return tuple(found) + self._crashed_violations(proposed) if self._errors else tuple(found)

    def _violations_after(self, position: int, contract: Contract, records: Sequence[Record]) -> list[Violated]:
        """The violations of one contract that the last of several records would add, after the others."""
        if contract.formula is not None and not contract.formula.ahead:
            return self._joint.tried(position, records)
        state, new = self._joint.state(position), None
        for record in records:
            new = None
            if contract.kinds is None or record.action.kind in contract.kinds:
                new = contract.step(state, record)
                state = (state if new.state is KEEP else new.state) if isinstance(new, Violated) else new
        return [new] if isinstance(new, Violated) else []

    def _crashed_violations(self, proposed: Record) -> tuple[Violation, ...]:
        """Violations for blocking contracts that have missed a step: no action in their scope passes any more."""
        return tuple(
            _violation(contract, Violated(f"{contract.id} {self._errors[index]}"), proposed)
            for index, contract in enumerate(self.contracts)
            if index in self._errors
            and contract.policy == "block"
            and not contract.raw
            and (contract.kinds is None or proposed.action.kind in contract.kinds)
        )

    def finish(self, last: Record | None) -> tuple[ContractOutcome, ...]:
        """Close open obligations and return one outcome per contract. Call once."""
        outcomes = []
        evaluations, states = self._count(), self.states()
        for index, contract in enumerate(self.contracts):
            if index in states and contract.finish is not None:
                try:
                    closing = contract.finish(states[index])
                except Exception as error:  # as in step
                    known = index in self._errors
                    self._errors.setdefault(index, raised_text(error, "at the end"))
                    closing = None if known or contract.on_error == "unknown" else _unjudged(error)
                if closing is not None:
                    self._violations[index].extend(_violations(contract, closing, last))
            crashed = self._errors.get(index, "")
            outcomes.append(self._outcome(index, evaluations[index], crashed, "presumably_false" if crashed else "true"))
        return tuple(outcomes)

    def outcomes_so_far(self, last: Record | None) -> tuple[ContractOutcome, ...]:
        """The verdict of each contract on the prefix so far, as if the run ended now (RV-LTL). Closes no obligation.

        A contract that is not broken is presumably false if something must still happen (its outcome is unknown), else
        presumably true. `open` lists its obligations with the steps since which they are open. May be called at any time.
        """
        outcomes = []
        evaluations, states = self._count(), self.states()
        for index, contract in enumerate(self.contracts):
            error = self._errors.get(index, "")
            waiting: tuple[Obligation, ...] = ()
            if index in states:
                try:
                    state = states[index]
                    waiting = contract.obligations(state) if contract.obligations is not None else ()
                    presumed = contract.finish is None or contract.finish(state) is None
                except Exception as raised:  # as in step
                    error = error or raised_text(raised, f"after step {-1 if last is None else last.step}")
            standing: PrefixVerdict = "presumably_true" if not error and presumed else "presumably_false"
            outcomes.append(self._outcome(index, evaluations[index], error, standing, waiting))
        return tuple(outcomes)

    def _outcome(
        self, index: int, evaluations: int, error: str, standing: PrefixVerdict, waiting: tuple[Obligation, ...] = ()
    ) -> ContractOutcome:
        """The outcome of a contract; `standing` is the verdict if it is not broken."""
        contract, found = self.contracts[index], tuple(self._violations[index])
        return ContractOutcome(
            contract=contract.id,
            severity=contract.severity,
            outcome="fail" if found else "unknown" if standing == "presumably_false" else "pass",
            violations=found,
            error=error,
            evaluations=evaluations,
            standing="false" if found else standing,
            open=waiting,
        )

    def digest(self) -> str:
        """Digest of all monitor states, computed anew only for states that changed."""
        if not self.contracts:
            return ""
        formulas, alone = self._joint.canonical()
        texts, digested = self._texts, self._digested
        texts[0] = state_digest(self._formula_ids, formulas, plain)
        for place, state in enumerate(alone):
            if state is not digested[place]:
                contract = self._alone[place]
                texts[place + 1] = state_digest(contract.id, state, partial(_canonical_state, contract))
                digested[place] = state
        return digest([texts, sorted(self._errors.items())]) if self._errors else joint_digest(tuple(texts))


_UNSEEN: Any = object()


def verdicts(folded: Iterable[Verdict | tuple[str, ...]]) -> tuple[Verdict, ...]:
    """The verdicts of all steps from what Judge.fold returned for them; made only at the end."""
    return tuple(item if isinstance(item, Verdict) else _new_verdict(step, item, (), "") for step, item in enumerate(folded))


def _canonical_state(contract: Contract, state: Any) -> Any:
    try:
        return plain(state)
    except Exception as error:
        raise SpecError(
            what=f"the state of contract {contract.id!r} has no canonical form: {type(state).__qualname__}",
            why="a monitor's state is part of what the search compares",
            fix="keep plain data, tuples, frozensets, enums or frozen dataclasses in the state",
        ) from error


def _check_contracts(contracts: Sequence[Contract]) -> None:
    seen: dict[str, Contract] = {}
    for contract in contracts:
        if not isinstance(contract, Contract):
            raise SpecError(
                what=f"{contract!r} is not a contract",
                fix="use mat.contract, @mat.step_contract, @mat.trace_contract or a template of mat_contracts",
            )
        if contract.id in seen:
            raise SpecError(
                what=f"two armed contracts have the id {contract.id!r}",
                why="verdicts and replay files name contracts by id",
                fix="give one of them another id=",
            )
        seen[contract.id] = contract


def _violations(contract: Contract, violated: Violated, record: Record | None) -> list[Violation]:
    return [_violation(contract, item, record) for item in (violated, *violated.more)]


def _violation(contract: Contract, violated: Violated, record: Record | None) -> Violation:
    step = violated.step if violated.step is not None else record.step if record is not None else 0
    own = record is not None and record.step == step
    blocked = own and record is not None and (record.blocked or (record.action.effect == "write" and record.effected == "no"))
    since = min((step, *violated.witness, step if violated.since is None else violated.since))
    agent, role = (record.agent, record.role) if own and record is not None else ("", "")
    return _new_violation(
        contract.id, contract.severity, "attempted" if blocked else "effected", step, agent, role, violated.message,
        contract.weight, violated.repair or contract.repair, (since, step), violated.witness, violated.instance,
        violated.wanted, violated.label or contract.label,
    )  # fmt: skip


def _unjudged(error: Exception) -> Violated:
    """What a contract that raised says: it has not judged. Addresses of objects differ from run to run and are left out."""
    text = _ADDRESS.sub("", str(error).split("\n")[0])[: limits.ERROR_CHARS]
    return Violated(
        f"could not be judged: {type(error).__name__}: {text}".rstrip(": "),
        repair=(isinstance(error, MatError) and error.fix)
        or 'make the contract judge this record without an error, or set on_error="unknown"',
        label=UNJUDGED,
    )


_ADDRESS: Final = re.compile(r" (?:object )?at 0x[0-9a-fA-F]+")


def _mitigation(record: Record) -> str:
    """The mediator's decision, for the verdict's mitigation field."""
    return "" if record.mediation is None or record.mediation.decision == "allow" else record.mediation.decision


_WORST: Final[tuple[PrefixVerdict, ...]] = ("true", "presumably_true", "presumably_false", "false")
HARNESS: Final = "harness"
"""The agent of records that the harness adds."""
EPISODE: Final = "episode"
"""The key of the state projection that names a record's episode; contracts start anew where it changes."""


def judge(records: Iterable[Record], contracts: Iterable[Contract]) -> tuple[tuple[Verdict, ...], tuple[ContractOutcome, ...]]:
    """Judge the records of a finished trace by contracts, offline, with the same verdicts as online.

    `records`: of one run, in the order of their steps; each of its episodes is judged from the start. Returns two tuples: one
    `mat.Verdict` for each record, and one outcome for each contract, in their order. An outcome has `contract`, `severity`,
    `outcome` ("pass", "unknown" or "fail"), `violations`, and `error`, which says why it could not judge: the contract raised,
    or it reads raw values. Raises `mat.MatError` if two contracts have the same id.

    >>> @mat.tool
    ... def look_up(order): return {"order": order}
    >>> with mat.run() as run:
    ...     reply = look_up("A17")
    >>> read_only = mat.contract("read_only", mat.temporal.always(mat.temporal.field("effect") != "write"))
    >>> verdicts, outcomes = mat.judge(run.trace, [read_only])
    >>> verdicts[0].checked, outcomes[0].outcome, outcomes[0].evaluations
    (('read_only',), 'pass', 2)

    Source: A1.4, A1.5.
    """
    trace, armed = list(records), tuple(contracts)
    said: list[Verdict] = []
    episodes: list[tuple[ContractOutcome, ...]] = []
    for _, group in itertools.groupby(trace, key=lambda record: record.state.get(EPISODE)):
        judge, records = Judge(armed, online=False), list(group)
        for record in records:
            folded = judge.fold(record)
            said.append(folded if isinstance(folded, Verdict) else _new_verdict(record.step, folded, (), ""))
        if not episodes or speaks(records):
            episodes.append(attribute(judge.finish(records[-1]), trace))
    return tuple(said), merged(episodes or [Judge(armed, online=False).finish(None)])


def speaks(records: Iterable[Record]) -> bool:
    """Whether an agent acted: the harness's own closing record after the last episode is not an episode to judge."""
    return any(record.agent != HARNESS for record in records)


def merged(episodes: Sequence[tuple[ContractOutcome, ...]]) -> tuple[ContractOutcome, ...]:
    """One outcome per contract over all episodes of a run."""
    if len(episodes) == 1:
        return episodes[0]
    return tuple(
        replace(
            outcomes[0],
            outcome=merge(item.outcome for item in outcomes),
            violations=tuple(violation for item in outcomes for violation in item.violations),
            error="; ".join(item.error for item in outcomes if item.error),
            evaluations=sum(item.evaluations for item in outcomes),
            standing=max((item.standing for item in outcomes), key=_WORST.index),
            open=tuple(item for outcome in outcomes for item in outcome.open),
        )
        for outcomes in zip(*episodes, strict=True)
    )


def attribute(outcomes: tuple[ContractOutcome, ...], records: Sequence[Record]) -> tuple[ContractOutcome, ...]:
    """Set the agent and role of violations that blame an earlier step than the one that revealed them."""
    by_step = {record.step: record for record in records}

    def named(violation: Violation) -> Violation:
        record = by_step.get(violation.step)
        if record is None or violation.agent:
            return violation
        return replace(violation, agent=record.agent, role=record.role)

    return tuple(
        replace(outcome, violations=tuple(named(item) for item in outcome.violations)) if outcome.violations else outcome
        for outcome in outcomes
    )

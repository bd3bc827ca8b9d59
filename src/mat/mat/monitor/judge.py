"""One fold for online, offline and peeking (DESIGN decision 7). A judge holds the states of the armed contracts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

from mat.core.digest import digest, plain
from mat.core.errors import SpecError
from mat.core.record import Record
from mat.core.value import fast_constructor
from mat.core.verdict import ContractOutcome, Obligation, Outcome, Standing, Verdict, Violation, merge
from mat.monitor.compile import Formulas
from mat.monitor.contract import KEEP, Contract, Violated

_new_verdict = fast_constructor(Verdict)
Fold: TypeAlias = Callable[[Record, Record, list[Any]], list[Violation] | None]


class Bench:
    """The contracts that judge one action kind: their indexes and ids, one function for all, and how often it ran."""

    __slots__ = ("checked", "count", "fold", "indexes")

    def __init__(self, indexes: tuple[int, ...], checked: tuple[str, ...], fold: Fold) -> None:
        self.indexes, self.checked, self.fold, self.count = indexes, checked, fold, 0


class Judge:
    """Folds records, in ask order, into verdicts, dispatching contracts by action kind; one that raises is unknown."""

    def __init__(self, contracts: Iterable[Contract], *, online: bool = True) -> None:
        self.contracts = tuple(contracts)
        _refuse_doubles(self.contracts)
        self._states: list[Any] = [contract.start for contract in self.contracts]
        self._errors: dict[int, str] = {}
        self._violations: list[list[Violation]] = [[] for _ in self.contracts]
        self._evaluations = [0] * len(self.contracts)
        self._fused: tuple[Any, str] = (_UNSEEN, "")
        self._digests: list[tuple[Any, str]] = [(_UNSEEN, "")] * len(self.contracts)
        self._benches: dict[str, Bench] = {}
        for index, contract in enumerate(self.contracts):
            if contract.raw and not online:
                self._errors[index] = "reads raw values, which are judged online only"
        self._places: list[int] = []
        self._formulas: Formulas | None = None
        self._fuse([index for index, contract in enumerate(self.contracts) if contract.formula is not None])

    def _fuse(self, places: list[int], states: Sequence[Any] = ()) -> None:
        """The contracts of formulas as one fold; `places` are their indexes."""
        self._places = places
        spoken = [self.contracts[index].formula for index in places]
        self._formulas = Formulas(spoken, self._broken, states) if places else None

    def _broken(self, place: int, new: Violated, record: Record, found: list[Violation] | None) -> list[Violation]:
        return self._violated(self._places[place], new, record, found)

    def _state(self, index: int) -> Any:
        if self._formulas is None or index not in self._places:
            return self._states[index]
        return self._formulas.state(self._places.index(index))

    def _bench(self, kind: str) -> Bench:
        """Made when the first action of a kind comes, and anew after a contract crashed."""
        bench = self._benches.get(kind)
        if bench is None:
            indexes = tuple(
                index
                for index, contract in enumerate(self.contracts)
                if index not in self._errors and (contract.kinds is None or kind in contract.kinds)
            )
            alone = [index for index in indexes if self.contracts[index].formula is None]
            fused = self._formulas.function(kind) if self._formulas is not None and len(alone) < len(indexes) else None
            make = _unrolled(tuple((index, self.contracts[index].raw) for index in alone), fused is not None)
            fold = make([self.contracts[index].step for index in alone], fused, self._violated, self._crash, self._unfuse)
            bench = self._benches[kind] = Bench(indexes, tuple(self.contracts[index].id for index in indexes), fold)
        return bench

    def _count(self) -> None:
        """Evaluations are counted by action kind while folding, and told apart by contract when somebody asks."""
        for bench in self._benches.values():
            for index in bench.indexes:
                self._evaluations[index] += bench.count
            bench.count = 0

    @property
    def needs_raw(self) -> bool:
        return any(contract.raw for contract in self.contracts)

    def step(self, record: Record, raw: Record | None = None) -> Verdict:
        """Fold one record. `raw` is the record before redaction, for the contracts that ask for it."""
        folded = self.fold(record, raw)
        return folded if isinstance(folded, Verdict) else _new_verdict(record.step, folded, (), "")

    def fold(self, record: Record, raw: Record | None = None) -> Verdict | tuple[str, ...]:
        """The same, but of a step that breaks nothing only the ids of the contracts that judged it; see `verdicts`."""
        kind = record.action.kind
        try:
            bench = self._benches[kind]
        except KeyError:
            bench = self._bench(kind)
        bench.count += 1
        found = bench.fold(record, record if raw is None else raw, self._states)
        if self._errors:  # one may have crashed just now: it has judged nothing
            bench = self._bench(kind)
        if found is None:
            return bench.checked
        if len(found) > 1:
            found.sort(key=self._order)
        return _new_verdict(record.step, bench.checked, tuple(found), _mitigation(record))

    def _order(self, violation: Violation) -> int:
        return next(index for index, contract in enumerate(self.contracts) if contract.id == violation.contract)

    def _violated(self, index: int, new: Violated, record: Record, found: list[Violation] | None) -> list[Violation]:
        if new.state is not KEEP:
            self._states[index] = new.state
        violations = _violations(self.contracts[index], new, record)
        self._violations[index].extend(violations)
        return [*(found or ()), *violations]

    def _crash(self, index: int, record: Record, error: Exception) -> None:
        self._errors[index] = f"raised {type(error).__name__} at step {record.step}: {error}"
        self._count()
        self._benches.clear()

    def _unfuse(self, record: Record, error: Exception) -> list[Violation] | None:
        """A formula's predicate raised, before anything was changed: go on without the contracts it belongs to."""
        assert self._formulas is not None
        kept, states = [], []
        for place, index in enumerate(self._places):
            state = self._formulas.state(place)
            try:
                self.contracts[index].step(state, record)
            except Exception as own:
                self._crash(index, record, own)
            else:
                kept.append(index)
                states.append(state)
        if len(kept) == len(self._places):  # a predicate that does not raise twice: nobody can be told from the others
            for index in kept:
                self._crash(index, record, error)
            kept, states = [], []
        self._fuse(kept, states)
        if self._formulas is None:
            return None
        found: list[Violation] | None = self._formulas.function(record.action.kind)(record, None)
        return found

    def peek(self, proposed: Record, pending: Sequence[Record] = (), *, blocking: bool = False) -> tuple[Violation, ...]:
        """What a proposed action would newly break, with the asked but unsealed ones before it. Changes nothing (L4).

        `blocking`: only of contracts whose policy is to block.
        """
        found: list[Violation] = []
        for index in self._bench(proposed.action.kind).indexes:
            contract = self.contracts[index]
            if contract.raw or (blocking and contract.policy != "block"):
                continue
            state = self._state(index)
            try:
                for record in pending:
                    if contract.kinds is None or record.action.kind in contract.kinds:
                        new = contract.step(state, record)
                        state = (state if new.state is KEEP else new.state) if isinstance(new, Violated) else new
                new = contract.step(state, proposed)
            except Exception as error:  # a policy that crashes must not let the action pass: fail closed
                new = Violated(f"{contract.id} raised {type(error).__name__}: {error}")
            if isinstance(new, Violated):
                found.extend(_violations(contract, new, proposed))
        return tuple(found) + self._crashed(proposed) if self._errors else tuple(found)

    def _crashed(self, proposed: Record) -> tuple[Violation, ...]:
        """Blocking contracts that crashed before: they guard no more, so what they would have judged does not pass."""
        return tuple(
            _violation(contract, Violated(f"{contract.id} {self._errors[index]}"), proposed)
            for index, contract in enumerate(self.contracts)
            if index in self._errors
            and contract.policy == "block"
            and not contract.raw
            and (contract.kinds is None or proposed.action.kind in contract.kinds)
        )

    def finish(self, last: Record | None) -> tuple[ContractOutcome, ...]:
        """Close open obligations and give one outcome per contract. Call once."""
        outcomes = []
        self._count()
        for index, contract in enumerate(self.contracts):
            if index not in self._errors and contract.finish is not None:
                try:
                    closing = contract.finish(self._state(index))
                except Exception as error:  # as in step
                    self._errors[index] = f"raised {type(error).__name__} at the end: {error}"
                    closing = None
                if closing is not None:
                    self._violations[index].extend(_violations(contract, closing, last))
            found = tuple(self._violations[index])
            error_text = self._errors.get(index, "")
            outcome: Outcome = "fail" if found else "unknown" if error_text else "pass"
            outcomes.append(
                ContractOutcome(
                    contract=contract.id,
                    severity=contract.severity,
                    outcome=outcome,
                    violations=found,
                    error=error_text,
                    evaluations=self._evaluations[index],
                    standing="false" if found else "true",
                )
            )
        return tuple(outcomes)

    def standing(self, last: Record | None) -> tuple[ContractOutcome, ...]:
        """What the contracts say of the prefix so far, without closing it: presumed from how it would end now (RV-LTL).

        A contract that is not broken is presumably false where something must still happen (its outcome is unknown), else
        presumably true. `open` lists what it waits for, and since which step. May be called at any time.
        """
        self._count()
        outcomes = []
        for index, contract in enumerate(self.contracts):
            found, error = tuple(self._violations[index]), self._errors.get(index, "")
            waiting: tuple[Obligation, ...] = ()
            if not error:
                try:
                    state = self._state(index)
                    waiting = contract.obligations(state) if contract.obligations is not None else ()
                    presumed = contract.finish is None or contract.finish(state) is None
                except Exception as raised:  # as in step
                    error = f"raised {type(raised).__name__} after step {-1 if last is None else last.step}: {raised}"
            standing: Standing = "false" if found else "presumably_true" if not error and presumed else "presumably_false"
            outcome: Outcome = "fail" if found else "pass" if standing == "presumably_true" else "unknown"
            outcomes.append(
                ContractOutcome(
                    contract=contract.id,
                    severity=contract.severity,
                    outcome=outcome,
                    violations=found,
                    error=error,
                    evaluations=self._evaluations[index],
                    standing=standing,
                    open=waiting,
                )
            )
        return tuple(outcomes)

    def digest(self) -> str:
        """Digest of all monitor states, computed anew only for states that changed."""
        parts = []
        if self._formulas is not None:
            state = self._formulas.save()
            if state != self._fused[0]:
                ids = [self.contracts[index].id for index in self._places]
                self._fused = (state, digest([ids, plain(state)]))
            parts.append(self._fused[1])
        for index, state in enumerate(self._states):
            if self.contracts[index].formula is not None:
                continue
            known, text = self._digests[index]
            if known is not state:
                text = digest([self.contracts[index].id, _canonical_state(self.contracts[index], state)])
                self._digests[index] = (state, text)
            parts.append(text)
        return digest([parts, sorted(self._errors.items())]) if parts else ""


_UNSEEN: Any = object()


@lru_cache(maxsize=256)
def _unrolled(seats: tuple[tuple[int, bool], ...], fused: bool) -> Callable[..., Fold]:
    """A loop over contracts, written out: every step of every run goes through it. One (index, raw) for each contract.

    Returns a function of the contracts' steps, of the fold of all formulas (where `fused`), and of what to do with a
    violation and a crash. One that crashes is left out from then on and does not keep the others from judging (decision 11).
    Only numbers enter the code.
    """
    steps = "".join(f"step{index}, " for index, _ in seats)
    lines = [
        "def make(steps, formulas, violated, crash, unfuse):",
        f"    ({steps}) = steps",
        "    def fold(record, raw, states):",
    ]
    if fused:
        lines += [
            "        try:",
            "            found = formulas(record, None)",
            "        except Exception as error:",
            "            found = unfuse(record, error)",
        ]
    else:
        lines.append("        found = None")
    for index, raw in seats:
        lines += [
            f"        old = states[{index}]",
            "        try:",
            f"            new = step{index}(old, {'raw' if raw else 'record'})",
            "        except Exception as error:",
            f"            crash({index}, record, error)",
            "        else:",
            "            if new is not old:",
            "                if type(new) is Violated:",
            f"                    found = violated({index}, new, record, found)",
            "                else:",
            f"                    states[{index}] = new",
        ]
    lines += ["        return found", "    return fold"]
    scope: dict[str, Any] = {"Violated": Violated}
    exec(compile("\n".join(lines), "<contracts>", "exec"), scope)
    return cast("Callable[..., Fold]", scope["make"])


def verdicts(folded: Iterable[Verdict | tuple[str, ...]]) -> tuple[Verdict, ...]:
    """What Judge.fold said of all steps from the first one on, as verdicts: made at the end, when somebody may read them."""
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


def _refuse_doubles(contracts: Sequence[Contract]) -> None:
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
    since = min([step, *violated.witness, *([violated.since] if violated.since is not None else [])])
    return Violation(
        contract=contract.id,
        severity=contract.severity,
        stage="attempted" if blocked else "effected",
        step=step,
        agent=record.agent if own and record is not None else "",
        role=record.role if own and record is not None else "",
        message=violated.message,
        weight=contract.weight,
        repair=violated.repair or contract.repair,
        region=(since, step),
        witness=violated.witness,
        instance=violated.instance,
        wanted=violated.wanted,
    )


def _mitigation(record: Record) -> str:
    """How the mediator answered, for the verdict's mitigation field."""
    return "" if record.mediation is None or record.mediation.decision == "allow" else record.mediation.decision


HARNESS: Final = "harness"
"""The agent of records that the harness adds."""
EPISODE: Final = "episode"
"""The key of the state projection that names a record's episode; contracts start anew where it changes."""


def judge(records: Iterable[Record], contracts: Iterable[Contract]) -> tuple[tuple[Verdict, ...], tuple[ContractOutcome, ...]]:
    """Judge a finished trace offline; the same fold as online (L3), anew for each episode."""
    trace, armed = list(records), tuple(contracts)
    said: list[Verdict] = []
    episodes: list[tuple[ContractOutcome, ...]] = []
    for _, group in itertools.groupby(trace, key=lambda record: record.state.get(EPISODE)):
        court, records = Judge(armed, online=False), list(group)
        said += [court.step(record) for record in records]
        if not episodes or speaks(records):
            episodes.append(attribute(court.finish(records[-1]), trace))
    return tuple(said), merged(episodes or [Judge(armed, online=False).finish(None)])


def speaks(records: Iterable[Record]) -> bool:
    """Whether an agent acted: the harness's own closing record after the last episode is no case to judge."""
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
        )
        for outcomes in zip(*episodes, strict=True)
    )


def attribute(outcomes: tuple[ContractOutcome, ...], records: Sequence[Record]) -> tuple[ContractOutcome, ...]:
    """Name agent and role of violations that blame an earlier step than the one that revealed them."""
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

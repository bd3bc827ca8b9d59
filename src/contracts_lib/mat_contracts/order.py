"""Order over happens-before: what must come first, what must never overlap, what must follow. Every occurrence is judged.

A call happens before another if it was sealed before the other was asked (`Record.happened_before`). Of two calls in flight
at the same time neither came first, whatever their step numbers: a call that is not sealed is not done. Records arrive in the
order in which they were asked, so one comparison decides each pair. A contract remembers only the calls in flight, the open
triggers, and one or a few records for each id.

A selector of records is the name of a tool or several names, a formula without operators over time such as
`mat.temporal.tool_call("pay", big=True)` or `mat.temporal.verification(passed=True)`, or a predicate on a record. `key` tells
ids apart: the name of an argument, "agent", "role", a path such as "value.id" (see `mat.temporal.field`), several of these, a
field, or a function of the record. Ids are compared in normal form, so 17 and "17" are equal, and "A17" and " a17 ". A record
without the id is not judged.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from typing import Any, Final, TypeAlias, Unpack

from mat.core.errors import SpecError
from mat.core.record import Action, ActionKind, ErrorFact, Mediation, Observation, Record
from mat.core.verdict import Obligation
from mat.monitor.contract import Contract, Violated
from mat.monitor.normal_form import true_kinds, union
from mat.monitor.temporal import And, Atom, Compare, Field, Formula, Not, Or, children, field, text
from mat_contracts._outcome import succeeded
from mat_contracts._shared import (
    TOOL_CALLS,
    CountedBy,
    PastWindow,
    all_of,
    judged,
    label,
    let_through,
    names_of,
    one_of,
    too_many,
)
from mat_contracts._state import PersistentTable
from mat_contracts._values import id_text
from mat_contracts.catalogue import Options, template

Which: TypeAlias = str | Iterable[str] | Formula | Callable[[Record], bool]
OrderKey: TypeAlias = str | Iterable[str] | Field | Callable[[Record], Any]

IDS: Final = 100_000
"""The most ids that one contract tells apart. Beyond that its outcome is unknown."""
MAX_OPEN: Final = 1_000
"""The most open triggers of a contract, or calls that it remembers for one id. Beyond that its outcome is unknown."""
_IN_FLIGHT: Final = 1 << 62
"""The seal of a call that is not sealed: later than every real one."""


# -- first, then ------------------------------------------------------------------------------------------------------


@template
def precedes(
    *,
    first: Which,
    then: Which,
    within: int | None = None,
    within_ms: int | None = None,
    key: OrderKey | None = None,
    once_each: bool = False,
    effected: bool = False,
    **options: Unpack[Options],
) -> Contract:
    """Every `then` is asked after a `first` was sealed: a `first` for the same id if there is a `key`.

    Verify-before-act over happens-before. `first` and `then` select records. `within`: the `then` comes at
    most that many steps after the `first`. `within_ms`: it comes at most that many milliseconds of run time after the `first`
    was sealed. `once_each`: a `first` serves only one `then`, which uses up the `first` that expires soonest (the oldest one if
    `within` is given, otherwise the one sealed first). `effected`: a `first` counts only if it succeeded, that is, it took
    effect without an error and was not cancelled. A blocked `first` never counts. A blocked or failed `then` is judged, because
    it was attempted, but a blocked one does not use up a `first`.

    Raises `mat.MatError` for a formula about more than one record, for a key of the previous step, and for an invalid
    window.

    Precision 1.00, recall 1.00 on 31 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> check, pay = record("tool_call", "check", {"order": 1}), record("tool_call", "pay", {"order": 1})
    >>> broken(precedes(first="check", then="pay", key="order"), trace(check, pay))
    ()
    >>> broken(precedes(first="check", then="pay", key="order"), trace(record("tool_call", "check", {"order": 2}), pay))
    (1,)

    Source: Sec. IV-B, A1.9.
    """
    one, two, id_of = _selector(first, "first"), _selector(then, "then"), _key(key)
    window = PastWindow.of(within, within_ms)
    bounds = _bounds(window)
    wanted = f"{'its own' if once_each else 'a'} {one.text} that {'succeeded' if effected else 'finished'} before it{bounds}"

    def step(state: PersistentTable, record: Record) -> PersistentTable | Violated:
        is_first = one.test(record) and (succeeded(record) if effected else not record.blocked)
        is_then = two.test(record)
        owner = id_of(record) if is_first or is_then else None
        if owner is None:
            return state
        before: tuple[_Done, ...] = state.get(owner.normal) or ()

        def is_fresh(item: _Done) -> bool:
            return window.holds(record.step - item.step, record.at_ms - item.sealed_ms)

        known = tuple(filter(is_fresh, before)) if window.is_bounded else before
        done = [item for item in known if item.sealed_seq < record.asked_seq]
        running = tuple(item for item in known if item.sealed_seq >= record.asked_seq)
        if once_each:
            done.sort(key=lambda item: (item.step, 0) if within is not None else (item.sealed_seq, item.step))
        else:
            done = _newest(done, window)
        broken = is_then and not done
        if once_each and is_then and not record.blocked:
            done = done[1:]
        added = (_done(record),) if is_first else ()
        after = (*done, *running, *added)
        new = state if after == before else _stored(state, owner.normal, after, is_fresh if window.is_bounded else None)
        if not broken:
            return new
        begun = tuple(item.step for item in running)
        if begun:
            why = f"{two.text} began before {one.text} at step {', '.join(map(str, begun))} had finished"
        else:
            why = f"no {'unused ' if once_each else ''}{one.text} came before {two.text}{bounds}"
        return Violated(why, state=new, instance=owner.text, witness=(*begun, record.step), wanted=wanted)

    return Contract(
        id=f"{one.name}.precedes.{two.name}", step=step, start=PersistentTable(), kinds=union(one.kinds, two.kinds),
        repair=f"wait for {one.text} to finish before {two.text} begins",
        text=f"every {two.text} is preceded by {wanted}",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Done:
    """A finished call and when it was sealed."""

    step: int
    sealed_seq: int
    sealed_ms: int


def _done(record: Record) -> _Done:
    return _Done(record.step, _seal(record), record.sealed_ms)


def _newest(done: list[_Done], window: PastWindow) -> list[_Done]:
    """The calls that no other call outlasts: one, or several if the steps and the times order them differently."""
    if len(done) < 2:
        return done
    timed = window.milliseconds is not None
    if timed and window.steps is None:
        return [max(done, key=lambda item: (item.sealed_ms, item.step))]
    done = sorted(done, key=lambda item: -item.step)
    kept = done[:1]
    if timed:
        for item in done[1:]:
            if item.sealed_ms > kept[-1].sealed_ms:
                kept.append(item)
    return kept


# -- never at the same time -------------------------------------------------------------------------------------------


@template
def never_concurrent(
    tools: Which,
    *,
    key: OrderKey | None = None,
    by: CountedBy = "run",
    **options: Unpack[Options],
) -> Contract:
    """No two of these calls overlap: each is asked after all earlier ones were sealed. With a `key`, calls of other ids may
    overlap.

    `tools` selects the calls. `by="agent"` lets calls of different agents overlap. Each call that begins
    while others are in flight is one violation; its witness is all of them. A call made from inside another overlaps it. A
    blocked call is judged, because it was attempted, but it is never in flight.

    Raises `mat.MatError` for a formula about more than one record, and for a key of the previous step.

    Precision 1.00, recall 1.00 on 22 traces written without knowledge of this template.

    >>> from dataclasses import replace
    >>> from mat_contracts.traces import broken, record, trace
    >>> one, two = trace(record("tool_call", "pay"), record("tool_call", "pay"))
    >>> broken(never_concurrent("pay"), (one, two))
    ()
    >>> broken(never_concurrent("pay"), (replace(one, sealed_seq=9), two))
    (1,)

    Source: A1.9; happens-before (Lamport 1978).
    """
    calls, id_of = _selector(tools, "tools"), _key(key)
    one_of(by, "by", ("run", "agent"))

    def step(state: tuple[_Running, ...], record: Record) -> tuple[_Running, ...] | Violated:
        if not calls.test(record):
            return state
        owner = id_of(record)
        if owner is None:
            return state
        running = tuple(item for item in state if item.sealed_seq >= record.asked_seq)
        mine = record.agent if by == "agent" else ""
        others = [item for item in running if item.owner == owner and item.agent == mine]
        new = running if record.blocked else (*running, _Running(owner, mine, record.action.name, record.step, _seal(record)))
        if not others:
            return new
        in_flight = ", ".join(f"{item.name} at step {item.step}" for item in others)
        return Violated(
            f"{record.action.name} began while {in_flight} was in flight", state=new, instance=owner.text or mine,
            witness=(*(item.step for item in others), record.step),
            wanted=f"{record.action.name} after {in_flight} is done",
        )  # fmt: skip

    return Contract(
        id=f"{calls.name}.never_concurrent", step=step, start=(), kinds=calls.kinds,
        repair=f"take a lock, or await one {calls.text} before you start the next",
        text=f"no two of {calls.text} are in flight at the same time",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Running:
    """A call that may be in flight. `agent` is set only if calls of other agents do not matter."""

    owner: _Id
    agent: str
    name: str
    step: int
    sealed_seq: int


# -- stage after stage ------------------------------------------------------------------------------------------------


@template
def in_order(
    sequence: Iterable[Which],
    *,
    key: OrderKey | None = None,
    strict: bool = False,
    **options: Unpack[Options],
) -> Contract:
    """Stages come one after the other: none is skipped, and none begins before all calls of earlier stages are sealed.

    Over happens-before. `sequence` holds the stages; each selects records. A stage may hold any number of calls, and they
    may overlap. Going back to an earlier stage starts a new pass from there: the later stages must come again. `strict` allows
    one pass for each id: going back is a violation, and so is a trace that ends before the last stage. A call that several
    stages select belongs to the first of them. A blocked call is judged, but does not advance the pass.

    Raises `mat.MatError` for fewer than two stages, for a formula about more than one record, and for a key of the previous
    step.

    Precision 1.00, recall 1.00 on 22 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> plan, act, check = (record("tool_call", name) for name in ("plan", "act", "check"))
    >>> broken(in_order(["plan", "act", "check"]), trace(plan, act, act, check))
    ()
    >>> broken(in_order(["plan", "act", "check"]), trace(plan, check))
    (1,)

    Source: A1.9.
    """
    items = (sequence,) if isinstance(sequence, str | Formula) or callable(sequence) else tuple(sequence)
    if len(items) < 2:
        raise SpecError(what=f"sequence={sequence!r} has fewer than two stages", fix='write ["plan", "act"]')
    stages = tuple(_selector(item, f"stage {index + 1} of sequence") for index, item in enumerate(items))
    id_of = _key(key)
    last = len(stages) - 1

    def step(state: PersistentTable, record: Record) -> PersistentTable | Violated:
        reached = next((index for index, stage in enumerate(stages) if stage.test(record)), None)
        owner = None if reached is None else id_of(record)
        if reached is None or owner is None:
            return state
        (progress,) = state.get(owner.normal) or (_Pass(owner.text),)
        found = _out_of_order(progress, reached, record, stages, owner.text, strict=strict)
        if record.blocked:
            return found or state
        new = _stored(state, owner.normal, (_advance(progress, reached, record, strict=strict),))
        return replace(found, state=new) if found else new

    def finish(state: PersistentTable) -> Violated | None:
        return all_of([
            Violated(
                f"{stages[item.stage].text} was the last stage that began; {stages[item.stage + 1].text} never came",
                step=item.step, witness=(item.step,), instance=item.owner, wanted=f"{stages[item.stage + 1].text} after it",
            )
            for item in _unfinished(state)
        ])  # fmt: skip

    def obligations(state: PersistentTable) -> tuple[Obligation, ...]:
        return tuple(
            Obligation(text=f"{stages[item.stage + 1].text} must come", since=item.step, instance=item.owner)
            for item in _unfinished(state)
        )

    def _unfinished(state: PersistentTable) -> list[_Pass]:
        found = [item for _, (item,) in state.items() if item.stage < last]
        return sorted(found, key=lambda item: (item.step, item.owner))

    return Contract(
        id=f"{'.'.join(stage.name for stage in stages)}.in_order", step=step, start=PersistentTable(),
        finish=finish if strict else None, obligations=obligations if strict else None,
        kinds=union(*(stage.kinds for stage in stages)),
        repair="await every call of a stage before the next stage begins, and skip no stage",
        text=f"{', then '.join(stage.text for stage in stages)}{', once' if strict else ''}",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Pass:
    """How far an id has come: its stage, the latest call of that stage, the latest seals of that stage and of earlier ones."""

    owner: str
    stage: int = -1
    step: int = -1
    sealed_seq: int = -1
    sealing: int = -1
    """The step whose seal is `sealed_seq`."""
    earlier_seq: int = -1
    earlier: int = -1


def _out_of_order(
    progress: _Pass, reached: int, record: Record, stages: tuple[_Selector, ...], owner: str, *, strict: bool
) -> Violated | None:
    now = stages[reached].text
    if reached < progress.stage:
        if not strict:
            return None
        message, witness = f"{now} began again after {stages[progress.stage].text} had begun", (progress.step, record.step)
        return Violated(message, witness=witness, instance=owner, wanted=f"one pass, no {now} after step {progress.step}")
    seal, begun = _latest_seal_before(progress, reached)
    wanted = f"{stages[max(reached - 1, 0)].text} done before {now} begins"
    if reached > progress.stage + 1:
        missing = ", ".join(stages[index].text for index in range(progress.stage + 1, reached))
        return Violated(
            f"{now} began without {missing}", witness=(*((progress.step,) if progress.step >= 0 else ()), record.step),
            instance=owner, wanted=wanted,
        )  # fmt: skip
    if seal >= record.asked_seq:
        return Violated(
            f"{now} began before the previous stage had finished its call at step {begun}", witness=(begun, record.step),
            instance=owner, wanted=wanted,
        )  # fmt: skip
    return None


def _latest_seal_before(progress: _Pass, reached: int) -> tuple[int, int]:
    """The latest seal of the stages before `reached` in this pass, and the step that it belongs to."""
    if reached > progress.stage and progress.sealed_seq > progress.earlier_seq:
        return (progress.sealed_seq, progress.sealing)
    return (progress.earlier_seq, progress.earlier)


def _advance(progress: _Pass, reached: int, record: Record, *, strict: bool) -> _Pass:
    """The pass after a call of the stage `reached`."""
    seal = _seal(record)
    if reached < progress.stage:
        return progress if strict else _Pass(progress.owner, reached, record.step, seal, record.step)
    if reached == progress.stage:
        later = seal > progress.sealed_seq
        return replace(
            progress,
            step=record.step,
            sealed_seq=max(seal, progress.sealed_seq),
            sealing=record.step if later else progress.sealing,
        )
    earlier_seq, earlier = _latest_seal_before(progress, reached)
    return _Pass(progress.owner, reached, record.step, seal, record.step, earlier_seq, earlier)


# -- what has to follow -----------------------------------------------------------------------------------------------


@template
def followed_by(
    *,
    trigger: Which,
    answer: Which,
    within: int | None = None,
    within_ms: int | None = None,
    key: OrderKey | None = None,
    once_each: bool = False,
    effected: bool = False,
    **options: Unpack[Options],
) -> Contract:
    """Every `trigger` that is not blocked is followed by an `answer`, asked after the trigger was sealed, for the same id.

    Obligations over happens-before. `trigger` and `answer` select records. `within`: the answer comes at most that many
    steps after the trigger. `within_ms`: it comes at most that many milliseconds of run time after the trigger was sealed. An
    answer that begins while the trigger is in flight does not count. One answer serves all triggers that were done before it;
    with `once_each`, only the oldest of them. A blocked answer does not count; with `effected`, nor does one that failed. A
    trigger that is open at the end of the trace is a violation. Violations blame the trigger.

    Raises `mat.MatError` for a formula about more than one record, for a key of the previous step, and for an invalid
    window.

    Precision 1.00, recall 1.00 on 25 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> lock, release = record("tool_call", "lock", {"row": 1}), record("tool_call", "release", {"row": 1})
    >>> broken(followed_by(trigger="lock", answer="release", key="row"), trace(lock, release))
    ()
    >>> broken(followed_by(trigger="lock", answer="release", key="row"), trace(lock, release, lock))
    (2,)

    Source: A1.4.
    """
    one, two, id_of = _selector(trigger, "trigger"), _selector(answer, "answer"), _key(key)
    window = PastWindow.of(within, within_ms)
    bounds = _bounds(window)
    wanted = f"{two.text} after it is done{bounds}"

    def step(state: tuple[_Unanswered, ...], record: Record) -> tuple[_Unanswered, ...] | Violated:
        triggers = one.test(record) and not record.blocked
        if not state and not triggers:
            return state
        answers = two.test(record) and (succeeded(record) if effected else not record.blocked)
        owner = id_of(record) if answers or triggers else None
        waiting, late = state, list[_Unanswered]()
        if within_ms is not None:  # an answer that comes too late does not count
            late, waiting = _split_late(waiting, lambda item: record.at_ms - item.sealed_ms > within_ms)
        if answers and owner is not None:
            waiting = _without_answered(waiting, record, owner, once_each=once_each)
        if within is not None and not _is_proposed(record):
            over, waiting = _split_late(waiting, lambda item: record.step - item.step >= within)
            late += over
        if triggers and owner is not None:
            if len(waiting) >= MAX_OPEN:
                raise too_many(f"{MAX_OPEN} calls wait for {two.text}", "give within=, or judge shorter episodes")
            waiting = (*waiting, _Unanswered(owner, record.step, _seal(record), record.sealed_ms))
        if _is_proposed(record):
            return waiting
        return judged([_unanswered(item, one, two, wanted, f" by step {record.step}") for item in _by_step(late)], waiting)

    def finish(state: tuple[_Unanswered, ...]) -> Violated | None:
        return all_of([_unanswered(item, one, two, wanted, " before the trace ended") for item in _by_step(state)])

    def obligations(state: tuple[_Unanswered, ...]) -> tuple[Obligation, ...]:
        return tuple(
            Obligation(text=f"{two.text} must follow{bounds}", since=item.step, instance=item.owner.text)
            for item in _by_step(state)
        )

    return Contract(
        id=f"{one.name}.followed_by.{two.name}", step=step, start=(), finish=finish, obligations=obligations,
        kinds=None if window.is_bounded else union(one.kinds, two.kinds),  # any step may be the one at which it is too late
        repair=f"follow {one.text} with {two.text}{bounds}, even if something fails in between",
        text=f"every {one.text} is followed by {wanted}",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Unanswered:
    """A trigger without an answer. `early`: the step of an answer that began before the trigger was done, or -1."""

    owner: _Id
    step: int
    sealed_seq: int
    sealed_ms: int
    early: int = -1


def _without_answered(
    waiting: tuple[_Unanswered, ...], record: Record, owner: _Id, *, once_each: bool
) -> tuple[_Unanswered, ...]:
    """The triggers that still wait after this answer."""
    left: list[_Unanswered] = []
    served = False
    for item in waiting:  # oldest first
        if item.owner != owner:
            left.append(item)
        elif item.sealed_seq >= record.asked_seq:
            left.append(replace(item, early=record.step))
        elif once_each and served:
            left.append(item)
        else:
            served = True
    return tuple(left)


def _split_late(
    waiting: tuple[_Unanswered, ...], is_late: Callable[[_Unanswered], bool]
) -> tuple[list[_Unanswered], tuple[_Unanswered, ...]]:
    """The triggers whose answer is late, and the others."""
    late = [item for item in waiting if is_late(item)]
    return late, tuple(item for item in waiting if not is_late(item)) if late else waiting


def _by_step(waiting: Iterable[_Unanswered]) -> list[_Unanswered]:
    return sorted(waiting, key=lambda item: item.step)


def _unanswered(item: _Unanswered, one: _Selector, two: _Selector, wanted: str, when: str) -> Violated:
    early = f"; {two.text} at step {item.early} began before {one.text} was done" if item.early >= 0 else ""
    return Violated(
        f"{one.text} at step {item.step} was not followed by {two.text}{when}{early}", step=item.step, instance=item.owner.text,
        witness=(item.step, *((item.early,) if item.early >= 0 else ())), wanted=wanted,
    )  # fmt: skip


# -- shared helpers ---------------------------------------------------------------------------------------------------


def _is_proposed(record: Record) -> bool:
    """Whether a record is asked and not sealed: contracts see proposed actions and calls in flight like that."""
    return record.sealed_seq == record.asked_seq and record.effected == "unknown"


def _seal(record: Record) -> int:
    return _IN_FLIGHT if _is_proposed(record) else record.sealed_seq


def _stored(
    state: PersistentTable, owner: str, entries: tuple[Any, ...], alive: Callable[[Any], bool] | None = None
) -> PersistentTable:
    """The table with these entries for an id. `alive` says which entries still matter; ids without any are dropped."""
    new = state.put({owner: entries}, None if alive is None else lambda kept: any(map(alive, kept)))
    if new.count > IDS or len(entries) > MAX_OPEN:
        raise too_many(
            f"more than {IDS} ids" if new.count > IDS else f"{MAX_OPEN} calls are remembered for {owner or 'the run'}",
            "judge shorter episodes, or give within= or a coarser key=",
        )
    return new


@dataclass(frozen=True, slots=True)
class _Selector:
    """Selects records: a test, the action kinds that can pass it, a name for contract ids and a text for sentences."""

    test: Callable[[Record], bool]
    kinds: frozenset[ActionKind] | None
    name: str
    text: str


def _selector(selector: Which, what: str) -> _Selector:
    if isinstance(selector, Formula):
        return _selector_of_formula(selector, what)
    if callable(selector):
        name = getattr(selector, "__name__", "predicate")
        return _Selector(selector, None, name, name)
    names = frozenset(names_of(selector, what))

    def called(record: Record) -> bool:
        return record.action.kind == "tool_call" and record.action.name in names

    return _Selector(called, TOOL_CALLS, label(sorted(names)), " or ".join(sorted(names)))


def _selector_of_formula(formula: Formula, what: str) -> _Selector:
    if not _is_of_one_record(formula):
        raise SpecError(
            what=f"{what}={text(formula)} depends on more than one record",
            why="an order contract tests each record alone",
            fix="give atoms joined by &, | and ~; use key= to match ids and within= to bound the distance",
        )
    name = "+".join(_atom_names(formula)) or "formula"
    return _Selector(_predicate(formula), true_kinds(formula), name, text(formula))


def _predicate(node: Any) -> Callable[[Record], bool]:
    """A formula on one record as a function. Tests compare it with the compiled formula."""
    match node:
        case Not(part=part):
            inner = _predicate(part)
            return lambda record: not inner(record)
        case And(parts=parts):
            every = [_predicate(part) for part in parts]
            return lambda record: all(part(record) for part in every)
        case Or(parts=parts):
            either = [_predicate(part) for part in parts]
            return lambda record: any(part(record) for part in either)
        case Compare(left=left, operator=sign, right=right):
            return _compared(_reader(left), sign, right)
    kinds, name, test = node.kinds, node.name, node.test
    filters = [_filter(item) for item in node.compares]

    def atom(record: Record) -> bool:
        action = record.action
        return (
            (kinds is None or action.kind in kinds)
            and (name is None or action.name == name)
            and all(passes(record) for passes in filters)
            and (test is None or bool(test(record)))
        )

    return atom


def _filter(item: Compare) -> Callable[[Record], bool]:
    """An argument filter of an atom. A missing argument passes no filter, not even None."""
    path, wanted = item.left.paths[0] if item.left.paths else (), item.right
    if path[:2] != ("action", "arguments") or len(path) != 3 or isinstance(wanted, Field):
        return _compared(_reader(item.left), item.operator, wanted)
    name = path[2]
    if item.operator == "test":
        return lambda record: name in record.action.arguments and bool(wanted(record.action.arguments[name]))
    return lambda record: name in record.action.arguments and bool(record.action.arguments[name] == wanted)


def _compared(read: Callable[[Record], Any], sign: str, right: Any) -> Callable[[Record], bool]:
    compare = _SIGNS[sign]
    other = _reader(right) if isinstance(right, Field) else lambda record: right

    def compared(record: Record) -> bool:
        one, two = read(record), other(record)
        if sign not in ("==", "!=", "in") and (one is None or two is None):
            return False
        return bool(compare(one, two))

    return compared


_SIGNS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "in": lambda one, several: one in several,
}  # fmt: skip


def _reader(source: Field) -> Callable[[Record], Any]:
    if source.function is not None:
        return source.function
    readers = [_path(path) for path in source.paths]
    return readers[0] if len(readers) == 1 else lambda record: tuple(reader(record) for reader in readers)


def _is_of_one_record(node: Any) -> bool:
    match node:
        case Compare(left=left, right=right):
            return not left.before and not (isinstance(right, Field) and right.before) and type(right).__name__ != "Variable"
        case Atom(compares=compares):
            return all(map(_is_of_one_record, compares))
        case Not() | And() | Or():
            return all(map(_is_of_one_record, children(node)))
        case _:
            return False


def _atom_names(node: Any) -> list[str]:
    if isinstance(node, Atom):
        return [node.name or "+".join(sorted(node.kinds or ())) or node.text]
    return [name for part in children(node) for name in _atom_names(part)]


@dataclass(frozen=True, slots=True)
class _Id:
    """The id of a record: its normal form, by which ids are compared, and the text that messages show."""

    normal: str
    text: str = field_of(compare=False)


_NO_ID: Final = _Id("", "")
"""The id of every record if there is no `key`."""


def _key(key: OrderKey | None) -> Callable[[Record], _Id | None]:
    """A function that returns the id of a record, or None if the record has no id."""
    if key is None:
        return lambda record: _NO_ID
    if isinstance(key, Field):
        if key.before:
            raise SpecError(what="key= reads the previous step", fix="read the id from the record itself")
        readers = [key.function] if key.function is not None else [_path(path) for path in key.paths]
    elif callable(key):
        readers = [key]
    else:
        readers = [_read_by_name(name) for name in ((key,) if isinstance(key, str) else tuple(key))]
        names_of(key, "key")

    def read(record: Record) -> _Id | None:
        found = [reader(record) for reader in readers]
        if any(item is None for item in found):
            return None
        return _Id(", ".join(map(id_text, found)), ", ".join(map(str, found)))

    return read


def _read_by_name(name: str) -> Callable[[Record], Any]:
    if name in ("agent", "role") or "." in str(name):
        return _path(field(name).paths[0])
    return lambda record: let_through(record).get(name)


def _path(path: tuple[str, ...]) -> Callable[[Record], Any]:
    def read(record: Record) -> Any:
        found: Any = record
        for part in path:
            if isinstance(found, dict):
                found = found.get(part)
            elif isinstance(found, Record | Action | Observation | ErrorFact | Mediation):
                found = getattr(found, part)
            else:
                return None
        return found

    return read


def _bounds(window: PastWindow) -> str:
    return f", within {window}" if window.is_bounded else ""

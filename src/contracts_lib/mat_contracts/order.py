"""Order over happens-before: what is done before what, what never overlaps, what has to follow. Every occurrence counts.

A call happens before another iff it had sealed before the other was asked (`Record.happened_before`). Of two calls in flight at
once neither came first, whatever their step numbers say: a call that has not sealed yet is not done. Records arrive in the
order they were asked, so one comparison settles each pair, and only calls in flight, what is still open, and one or a few
records for each id are remembered.

What selects records is a tool's name or several, a formula without operators over time such as `mat.temporal.tool_call("pay",
big=True)` or `mat.temporal.verification(passed=True)`, or a predicate on a record. `key` tells ids apart: the name of an
argument, "agent", "role", a path such as "value.id" (see `mat.temporal.field`), several of these, a field, or a function of
the record. Ids are compared as texts (17 and "17" are one); a record without the id concerns none and is not judged.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, Unpack

from mat.core.errors import SpecError
from mat.core.record import Action, ActionKind, ErrorFact, Mediation, Observation, Record
from mat.core.verdict import Obligation
from mat.monitor.contract import Contract, Violated
from mat.monitor.normal_form import true_kinds, union
from mat.monitor.temporal import And, Atom, Compare, Field, Formula, Not, Or, children, field, text
from mat_contracts._reading import succeeded
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
from mat_contracts.catalogue import Options, template

Which: TypeAlias = str | Iterable[str] | Formula | Callable[[Record], bool]
OrderKey: TypeAlias = str | Iterable[str] | Field | Callable[[Record], Any]

IDS: Final = 100_000
"""Ids one contract tells apart. Past it the contract is unknown."""
OPEN: Final = 1_000
"""What one contract waits for, or holds in store for one id, at the same time. Past it the contract is unknown."""
_IN_FLIGHT: Final = 1 << 62
"""The seal of a call that is not sealed: later than any."""


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
    """Every `then` was asked after a `first` had sealed, for the same id where there is a `key`.

    Verify-before-act (Sec. IV-B, A1.9) over happens-before. `within`: at most that many steps after the `first`. `within_ms`:
    at most that many milliseconds of run time after it had sealed. With `once_each` a `first` serves one `then` only, and the
    one that expires soonest is used up (by steps where there are steps, else the one sealed first). With `effected` a `first`
    counts only where it succeeded: it took effect, without an error and not cancelled. One that was blocked never counts; a
    `then` counts even if it was blocked or failed, because it was attempted, but a blocked one uses up none.

    >>> from mat_contracts.traces import broken, record, trace
    >>> check, pay = record("tool_call", "check", {"order": 1}), record("tool_call", "pay", {"order": 1})
    >>> broken(precedes(first="check", then="pay", key="order"), trace(check, pay))
    ()
    >>> broken(precedes(first="check", then="pay", key="order"), trace(record("tool_call", "check", {"order": 2}), pay))
    (1,)
    """
    one, two, id_of = _which(first, "first"), _which(then, "then"), _key(key)
    window = PastWindow.of(within, within_ms)
    bounds = _bounds(window)
    wanted = f"{'its own' if once_each else 'a'} {one.text} that {'succeeded' if effected else 'finished'} before{bounds}"

    def step(state: PersistentTable, record: Record) -> PersistentTable | Violated:
        is_first = one.test(record) and (succeeded(record) if effected else not record.blocked)
        is_then = two.test(record)
        owner = id_of(record) if is_first or is_then else None
        if owner is None:
            return state
        before: tuple[_Done, ...] = state.get(owner) or ()

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
        new = state if after == before else _stored(state, owner, after, is_fresh if window.is_bounded else None)
        if not broken:
            return new
        begun = tuple(item.step for item in running)
        if begun:
            why = f"{two.text} began when {one.text} of step {', '.join(map(str, begun))} had not finished"
        else:
            why = f"{two.text}: no {one.text} {'was left for it' if once_each else 'came before'}{bounds}"
        return Violated(why, state=new, instance=owner, witness=(*begun, record.step), wanted=wanted)

    return Contract(
        id=f"{one.name}.precedes.{two.name}", step=step, start=PersistentTable(), kinds=union(one.kinds, two.kinds),
        repair=f"wait for {one.text} to finish before {two.text} begins",
        text=f"every {two.text} is preceded by {wanted}",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Done:
    """A call, and when it was sealed."""

    step: int
    sealed_seq: int
    sealed_ms: int


def _done(record: Record) -> _Done:
    return _Done(record.step, _seal(record), record.sealed_ms)


def _newest(done: list[_Done], window: PastWindow) -> list[_Done]:
    """Those that none of the others outlasts: one, or as many as steps and time disagree about."""
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
    """No two of these calls overlap: each is asked after those asked before it had sealed; with a `key`, of one id.

    A2.F1, collisions of what must stand alone. `by="agent"` lets calls of different agents overlap. Every call that begins
    while others are in flight is one violation, its witness all of them. A call made from inside another overlaps it. A
    blocked call was attempted, but is never in flight.

    >>> from dataclasses import replace
    >>> from mat_contracts.traces import broken, record, trace
    >>> one, two = trace(record("tool_call", "pay"), record("tool_call", "pay"))
    >>> broken(never_concurrent("pay"), (one, two))
    ()
    >>> broken(never_concurrent("pay"), (replace(one, sealed_seq=9), two))
    (1,)
    """
    calls, id_of = _which(tools, "tools"), _key(key)
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
        said = ", ".join(f"{item.name} of step {item.step}" for item in others)
        return Violated(
            f"{record.action.name} began while {said} was in flight", state=new, instance=owner or mine,
            witness=(*(item.step for item in others), record.step), wanted=f"{record.action.name} asked after {said} was done",
        )  # fmt: skip

    return Contract(
        id=f"{calls.name}.never_concurrent", step=step, start=(), kinds=calls.kinds,
        repair=f"take a lock, or await one {calls.text} before asking for the next",
        text=f"no two of {calls.text} are in flight at the same time",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Running:
    """A call that may be in flight; `agent` only where calls of others do not matter."""

    owner: str
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
    """Stages come one after the other: none is skipped, and none begins before all calls of the stages before have sealed.

    A1.9 over happens-before. A stage may hold any number of calls, which may overlap. Going back to an earlier stage begins a
    new pass there (rework: what comes after it has to come again); with `strict` there is one pass for each id, so that going
    back is a violation, and so is a trace that ends before the last stage. A call that several stages select belongs to the
    first of them. A blocked call is judged, but does not move the pass.

    >>> from mat_contracts.traces import broken, record, trace
    >>> plan, act, check = (record("tool_call", name) for name in ("plan", "act", "check"))
    >>> broken(in_order(["plan", "act", "check"]), trace(plan, act, act, check))
    ()
    >>> broken(in_order(["plan", "act", "check"]), trace(plan, check))
    (1,)
    """
    given = (sequence,) if isinstance(sequence, str | Formula) or callable(sequence) else tuple(sequence)
    if len(given) < 2:
        raise SpecError(what=f"sequence={sequence!r} holds no two stages", fix='write ["plan", "act"]')
    stages = tuple(_which(item, f"stage {index + 1} of sequence") for index, item in enumerate(given))
    id_of = _key(key)
    last = len(stages) - 1

    def step(state: PersistentTable, record: Record) -> PersistentTable | Violated:
        reached = next((index for index, stage in enumerate(stages) if stage.test(record)), None)
        owner = None if reached is None else id_of(record)
        if reached is None or owner is None:
            return state
        (passed,) = state.get(owner) or (_Pass(),)
        found = _out_of_order(passed, reached, record, stages, owner, strict=strict)
        if record.blocked:
            return found or state
        new = _stored(state, owner, (_moved(passed, reached, record, strict=strict),))
        return replace(found, state=new) if found else new

    def finish(state: PersistentTable) -> Violated | None:
        return all_of([
            Violated(
                f"{stages[item.stage].text} was the last stage that began; {stages[item.stage + 1].text} never came",
                step=item.step, witness=(item.step,), instance=owner, wanted=f"{stages[item.stage + 1].text} after it",
            )
            for owner, item in _unfinished(state)
        ])  # fmt: skip

    def obligations(state: PersistentTable) -> tuple[Obligation, ...]:
        return tuple(
            Obligation(text=f"{stages[item.stage + 1].text} has to come", since=item.step, instance=owner)
            for owner, item in _unfinished(state)
        )

    def _unfinished(state: PersistentTable) -> list[tuple[str, _Pass]]:
        found = [(owner, item) for owner, (item,) in state.items() if item.stage < last]
        return sorted(found, key=lambda pair: (pair[1].step, pair[0]))

    return Contract(
        id=f"{'.'.join(stage.name for stage in stages)}.in_order", step=step, start=PersistentTable(),
        finish=finish if strict else None, obligations=obligations if strict else None,
        kinds=union(*(stage.kinds for stage in stages)),
        repair="await every call of a stage before the next stage begins, and leave none out",
        text=f"{', then '.join(stage.text for stage in stages)}{', once' if strict else ''}",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Pass:
    """How far an id has come: the stage it is in, the latest call of it, and the latest seals of it and of earlier stages."""

    stage: int = -1
    step: int = -1
    sealed_seq: int = -1
    sealing: int = -1
    """The step whose seal is `sealed_seq`."""
    earlier_seq: int = -1
    earlier: int = -1


def _out_of_order(
    passed: _Pass, reached: int, record: Record, stages: tuple[_Which, ...], owner: str, *, strict: bool
) -> Violated | None:
    now = stages[reached].text
    if reached < passed.stage:
        if not strict:
            return None
        said, witness = f"{now} began again when {stages[passed.stage].text} had begun", (passed.step, record.step)
        return Violated(said, witness=witness, instance=owner, wanted=f"one pass, no {now} after step {passed.step}")
    seal, begun = _before(passed, reached)
    wanted = f"{stages[max(reached - 1, 0)].text} done before {now} begins"
    if reached > passed.stage + 1:
        missing = ", ".join(stages[index].text for index in range(passed.stage + 1, reached))
        return Violated(
            f"{now} began without {missing}", witness=(*((passed.step,) if passed.step >= 0 else ()), record.step),
            instance=owner, wanted=wanted,
        )  # fmt: skip
    if seal >= record.asked_seq:
        return Violated(
            f"{now} began when the stage before it, at step {begun}, had not finished", witness=(begun, record.step),
            instance=owner, wanted=wanted,
        )  # fmt: skip
    return None


def _before(passed: _Pass, reached: int) -> tuple[int, int]:
    """The latest seal of all stages before that one in this pass, and the step it belongs to."""
    if reached > passed.stage and passed.sealed_seq > passed.earlier_seq:
        return (passed.sealed_seq, passed.sealing)
    return (passed.earlier_seq, passed.earlier)


def _moved(passed: _Pass, reached: int, record: Record, *, strict: bool) -> _Pass:
    seal = _seal(record)
    if reached < passed.stage:
        return passed if strict else _Pass(reached, record.step, seal, record.step)
    if reached == passed.stage:
        later = seal > passed.sealed_seq
        return replace(
            passed, step=record.step, sealed_seq=max(seal, passed.sealed_seq), sealing=record.step if later else passed.sealing
        )
    earlier_seq, earlier = _before(passed, reached)
    return _Pass(reached, record.step, seal, record.step, earlier_seq, earlier)


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
    """After every `trigger` that was not blocked an `answer` is asked, once the trigger has sealed; of the same id.

    Obligations over happens-before (A1.4). `within`: at most that many steps after the trigger. `within_ms`: at most that many
    milliseconds of run time after it had sealed. An answer that ran beside the trigger answers nothing. One answer serves all
    triggers that were done before it; with `once_each` the oldest of them only. A blocked answer is none; with `effected`
    neither is one that failed. What is open when the trace is finished is a violation. Violations blame the trigger.

    >>> from mat_contracts.traces import broken, record, trace
    >>> lock, release = record("tool_call", "lock", {"row": 1}), record("tool_call", "release", {"row": 1})
    >>> broken(followed_by(trigger="lock", answer="release", key="row"), trace(lock, release))
    ()
    >>> broken(followed_by(trigger="lock", answer="release", key="row"), trace(lock, release, lock))
    (2,)
    """
    one, two, id_of = _which(trigger, "trigger"), _which(answer, "answer"), _key(key)
    window = PastWindow.of(within, within_ms)
    bounds = _bounds(window)
    wanted = f"{two.text} asked after it was done{bounds}"

    def step(state: tuple[_Open, ...], record: Record) -> tuple[_Open, ...] | Violated:
        triggers = one.test(record) and not record.blocked
        if not state and not triggers:
            return state
        answers = two.test(record) and (succeeded(record) if effected else not record.blocked)
        owner = id_of(record) if answers or triggers else None
        waiting, late = state, list[_Open]()
        if within_ms is not None:  # an answer too late in time is none
            late, waiting = _split(waiting, lambda item: record.at_ms - item.sealed_ms > within_ms)
        if answers and owner is not None:
            waiting = _answered(waiting, record, owner, once_each=once_each)
        if within is not None and not _is_proposed(record):
            over, waiting = _split(waiting, lambda item: record.step - item.step >= within)
            late += over
        if triggers and owner is not None:
            if len(waiting) >= OPEN:
                raise too_many(f"{OPEN} calls wait for {two.text}", "give within=, or judge shorter episodes")
            waiting = (*waiting, _Open(owner, record.step, _seal(record), record.sealed_ms))
        if _is_proposed(record):
            return waiting
        return judged([_unanswered(item, one, two, wanted, f" by step {record.step}") for item in _by_step(late)], waiting)

    def finish(state: tuple[_Open, ...]) -> Violated | None:
        return all_of([_unanswered(item, one, two, wanted, " before the trace ended") for item in _by_step(state)])

    def obligations(state: tuple[_Open, ...]) -> tuple[Obligation, ...]:
        return tuple(
            Obligation(text=f"{two.text} has to follow{bounds}", since=item.step, instance=item.owner)
            for item in _by_step(state)
        )

    return Contract(
        id=f"{one.name}.followed_by.{two.name}", step=step, start=(), finish=finish, obligations=obligations,
        kinds=None if window.is_bounded else union(one.kinds, two.kinds),  # any step may be the one at which it is too late
        repair=f"ask for {two.text} once {one.text} is done{bounds}, also where something failed in between",
        text=f"every {one.text} is followed by {wanted}",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Open:
    """A trigger without its answer. `early`: the step of an answer that did not wait for it, or -1."""

    owner: str
    step: int
    sealed_seq: int
    sealed_ms: int
    early: int = -1


def _answered(waiting: tuple[_Open, ...], record: Record, owner: str, *, once_each: bool) -> tuple[_Open, ...]:
    left: list[_Open] = []
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


def _split(waiting: tuple[_Open, ...], is_late: Callable[[_Open], bool]) -> tuple[list[_Open], tuple[_Open, ...]]:
    """Those that are late, and the others."""
    late = [item for item in waiting if is_late(item)]
    return late, tuple(item for item in waiting if not is_late(item)) if late else waiting


def _by_step(waiting: Iterable[_Open]) -> list[_Open]:
    return sorted(waiting, key=lambda item: item.step)


def _unanswered(item: _Open, one: _Which, two: _Which, wanted: str, when: str) -> Violated:
    beside = f"; the one of step {item.early} began before it was done" if item.early >= 0 else ""
    return Violated(
        f"{one.text} at step {item.step} was not followed by {two.text}{when}{beside}", step=item.step, instance=item.owner,
        witness=(item.step, *((item.early,) if item.early >= 0 else ())), wanted=wanted,
    )  # fmt: skip


# -- what they share --------------------------------------------------------------------------------------------------


def _is_proposed(record: Record) -> bool:
    """Asked and not sealed, as a proposed action and those in flight are shown to a contract."""
    return record.sealed_seq == record.asked_seq and record.effected == "unknown"


def _seal(record: Record) -> int:
    return _IN_FLIGHT if _is_proposed(record) else record.sealed_seq


def _stored(
    state: PersistentTable, owner: str, entries: tuple[Any, ...], alive: Callable[[Any], bool] | None = None
) -> PersistentTable:
    """With what is kept for an id. With `alive`, ids that can no longer matter are forgotten on the way."""
    new = state.put({owner: entries}, None if alive is None else lambda kept: any(map(alive, kept)))
    if new.count > IDS or len(entries) > OPEN:
        raise too_many(
            f"more than {IDS} ids" if new.count > IDS else f"{OPEN} calls in store for {owner or 'the run'}",
            "judge shorter episodes, or give within= or a coarser key=",
        )
    return new


@dataclass(frozen=True, slots=True)
class _Which:
    """What selects records: a test, the action kinds it can be true of, a name for ids and a text for sentences."""

    test: Callable[[Record], bool]
    kinds: frozenset[ActionKind] | None
    name: str
    text: str


def _which(given: Which, what: str) -> _Which:
    if isinstance(given, Formula):
        return _of_formula(given, what)
    if callable(given):
        said = getattr(given, "__name__", "predicate")
        return _Which(given, None, said, said)
    names = frozenset(names_of(given, what))

    def called(record: Record) -> bool:
        return record.action.kind == "tool_call" and record.action.name in names

    return _Which(called, TOOL_CALLS, label(sorted(names)), " or ".join(sorted(names)))


def _of_formula(given: Formula, what: str) -> _Which:
    if not _is_of_one_record(given):
        raise SpecError(
            what=f"{what}={text(given)} looks beyond the record",
            why="an order contract asks of each record by itself what it is",
            fix="give atoms joined by &, | and ~; key= tells ids apart, and within= bounds the distance",
        )
    name = "+".join(_atom_names(given)) or "formula"
    return _Which(_holds(given), true_kinds(given), name, text(given))


def _holds(node: Any) -> Callable[[Record], bool]:
    """A formula of one record as a function; tests hold it to what the compiled language says of that record."""
    match node:
        case Not(part=part):
            inner = _holds(part)
            return lambda record: not inner(record)
        case And(parts=parts):
            every = [_holds(part) for part in parts]
            return lambda record: all(part(record) for part in every)
        case Or(parts=parts):
            either = [_holds(part) for part in parts]
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
    """An argument filter of an atom: an argument that is not there passes none, not even None."""
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


def _reader(given: Field) -> Callable[[Record], Any]:
    if given.function is not None:
        return given.function
    readers = [_path(path) for path in given.paths]
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


def _key(key: OrderKey | None) -> Callable[[Record], str | None]:
    """Reads the id of a record as a text; None where it has none."""
    if key is None:
        return lambda record: ""
    if isinstance(key, Field):
        if key.before:
            raise SpecError(what="key= is read from the step before", fix="read the id from the record itself")
        readers = [key.function] if key.function is not None else [_path(path) for path in key.paths]
    elif callable(key):
        readers = [key]
    else:
        readers = [_named(name) for name in ((key,) if isinstance(key, str) else tuple(key))]
        names_of(key, "key")

    def read(record: Record) -> str | None:
        found = [reader(record) for reader in readers]
        if any(item is None for item in found):
            return None
        return ", ".join(map(str, found))

    return read


def _named(name: str) -> Callable[[Record], Any]:
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

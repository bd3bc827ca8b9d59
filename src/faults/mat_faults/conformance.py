"""Check that fault operators do what they declare: a conformance kit for your own operators, and for ours.

    import mat
    from mat.boundary.effect import PASS, Replace
    from mat_faults.conformance import assert_conforms

    def shout(call, reply, stream):
        return Replace(reply.value.upper()) if isinstance(reply.value, str) else PASS

    def is_text(record, parameters, before):
        return isinstance(record.observation.value, str)

    def test_shouting_conforms():
        assert_conforms(
            mat.spec.operator("service.shout", shout, phase="after", relevant=is_text, bounds={"magnitude": 1},
                         plausible="a service that is in a bad mood")
        )

`check` runs the operator at every grid point on a library of sample calls (`mat_faults.samples`), and on samples of yours,
through real runs with plain and with async ports, and reports what it finds:

    changes nothing     no sample run differs at a grid point
    breaks a bound      more latency, magnitude, staleness, count, tokens or turns than `bounds` names
    names no bound      it has such an effect, and `bounds` does not limit it
    alters in place     it changed a reply, or an earlier one, instead of a copy
    not deterministic   two decisions for one call and one stream of random numbers; or sync and async differ
    crashes             the decision, `relevant` or the effect fails, or the decision is no effect
    misses              `relevant` returns no though the run changes: the search would lose counterexamples
    always relevant     `relevant` never returns no, though some samples do not change: the search would waste runs
    grid order          grid points are not simplest (cheapest, smallest) first, or more costs less
    parameters          a parameter that a replay file cannot hold
    implausible         the plausibility note is empty

The size of a change is counted as follows. `magnitude`: leaves changed, and items or keys added or removed, in a reply or in
arguments; another order of the same items counts as one, as does an emptied container or text. `tokens`: the token edit
distance of all changed texts (`mat.boundary.cost.changed_tokens`). `latency_ms`: the time that a delay or an error adds to one
call. `staleness`: how many replies to the same request back. `count`: calls a grid point covers, or deliveries it adds. An
operator that changes values names `magnitude` or `tokens`.

`relevant` does not look at the declared effect of a call. Where a point makes the run of another point, or of none, at calls
that are declared to change nothing (a second delivery; an error in place of the reply), say so with `covered=`: the search
relies on it only where that other run is executed (`mat_search.covering`).

`FindingKind` is the type of these names:

>>> from typing import get_args
>>> from mat_faults.conformance import FindingKind
>>> get_args(FindingKind)[:3]
('changes nothing', 'breaks a bound', 'names no bound')
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from itertools import combinations
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from mat.boundary import effect as effects
from mat.boundary.catalog import KINDS, Operator
from mat.boundary.cost import DEFAULT_COST, changed_tokens
from mat.boundary.effect import PASS, Call, Effect, Reply
from mat.boundary.instrument import instrument
from mat.boundary.session import active
from mat.core.digest import canonical
from mat.core.errors import MatError, ProcessCrashed, SpecError, raised_text
from mat.core.record import ActionKind, Record
from mat.core.run import Run
from mat.core.site import ABOUT_CALLS, Site, name_about, parse_site
from mat.core.spec import Perturbation, perturbation
from mat.core.value import EMPTY, FrozenDict, snapshot, thaw
from mat_faults.samples import SAMPLES, Sample, Turn

__all__ = ["ConformanceReport", "FindingKind", "OperatorProblem", "Sample", "Turn", "assert_conforms", "check", "distance"]

FindingKind: TypeAlias = Literal[
    "changes nothing",
    "breaks a bound",
    "names no bound",
    "alters in place",
    "not deterministic",
    "crashes",
    "misses",
    "always relevant",
    "grid order",
    "parameters",
    "implausible",
]
REPEATS: Final = 4
"""The largest number of calls that a sample makes for a grid point that covers many."""
ASYNC_SAMPLES: Final = 2
"""Samples on which a grid point is tried in async code as well."""
ALIGNED_CELLS: Final = 2_500
"""The largest number of pairs of items that are compared to match the items of two lists."""
_BOUND_PARAMETERS: Final = ("ms", "latency_ms", "calls", "age", "magnitude", "tokens", "count", "times", "turns")
"""Parameters that make a fault stronger as they grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorProblem:
    """One problem of an operator: the grid point, and the sample that showed it, if they matter.

    `kind`: one of `FindingKind`. `message`: what is wrong, in a sentence. `parameters`: parameter -> value, the grid point.
    `sample`: the name of the sample.

    >>> from mat_faults.conformance import OperatorProblem
    >>> str(OperatorProblem(kind="implausible", message="its plausibility note is empty"))
    'implausible: its plausibility note is empty'

    Source: A3.4.
    """

    kind: FindingKind
    message: str
    parameters: FrozenDict = EMPTY
    sample: str = ""

    def __str__(self) -> str:
        where = [f"at {dict(self.parameters)}" if self.parameters else "", f"on {self.sample!r}" if self.sample else ""]
        return " ".join([f"{self.kind}: {self.message}", *(part for part in where if part)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceReport:
    """The findings of the kit. `runs`: perturbed runs made; `changed`: how many of them differ from their nominal run.

    `operator`: its id. `findings`: a tuple of `OperatorProblem`s; `conforms` is true if there are none.

    >>> from mat_faults.conformance import ConformanceReport
    >>> ConformanceReport(operator="service.shout", findings=(), runs=12, changed=3).conforms
    True

    Source: A3.4.
    """

    operator: str
    findings: tuple[OperatorProblem, ...]
    runs: int
    changed: int

    @property
    def conforms(self) -> bool:
        return not self.findings

    def kinds(self) -> tuple[FindingKind, ...]:
        """The kinds of findings, each once, in the order they were found."""
        return tuple(dict.fromkeys(item.kind for item in self.findings))

    def __str__(self) -> str:
        head = f"{self.operator}: {len(self.findings)} findings, {self.changed} of {self.runs} runs changed"
        return "\n".join([head, *(f"  {item}" for item in self.findings)])


def check(operator: Operator, *, samples: Iterable[Sample] = (), accept: Collection[FindingKind] = ()) -> ConformanceReport:
    """Run an operator on the samples of its boundary, the library's and yours, and report its problems.

    `accept` leaves out intended kinds of findings: an operator that is relevant only after an approval "misses" calls
    without one on purpose. Raises `mat.MatError` for an unknown kind, and inside a run or an event loop, because the kit
    makes its own runs and loops. Returns a `ConformanceReport`.

    >>> from mat_faults.conformance import check
    >>> from mat.boundary.effect import PASS
    >>> idle = mat.spec.operator("service.idle", lambda call, reply, stream: PASS, bounds={"magnitude": 1}, plausible="never")
    >>> check(idle).kinds()
    ('changes nothing',)

    Source: A3.4.
    """
    _require_plain_code()
    _require_kinds(accept)
    log = _FindingLog(operator)
    _check_declaration(log)
    chosen = [item for item in (*SAMPLES, *samples) if _fits(operator, item)]
    for point in operator.grid:
        _check_point(log, point, chosen)
    _check_idle(log)
    found = tuple(item for item in log.findings if item.kind not in accept)
    return ConformanceReport(operator=operator.id, findings=found, runs=log.runs, changed=log.changed)


def assert_conforms(operator: Operator, *, samples: Iterable[Sample] = (), accept: Collection[FindingKind] = ()) -> None:
    """Raise AssertionError with all findings of `check`, if there are any.

    `operator`, `samples` and `accept` are as in `check`. Raises `AssertionError` for findings, and `mat.MatError` where
    `check` does.

    >>> from mat_faults.conformance import assert_conforms
    >>> from mat_faults import order
    >>> assert_conforms(order.operators()[0])

    Source: A3.4.
    """
    report = check(operator, samples=samples, accept=accept)
    if not report.conforms:
        raise AssertionError(str(report))


def _require_kinds(accept: Collection[FindingKind]) -> None:
    known = get_args(FindingKind)
    unknown = sorted({accept} if isinstance(accept, str) else set(accept) - set(known))
    if unknown:
        close = get_close_matches(unknown[0], known, n=1)
        raise SpecError(
            what=f"accept: unknown kind of finding: {', '.join(map(repr, unknown))}"
            + (f"; did you mean [{close[0]!r}]?" if close else ""),
            fix=f"give a list of these: {', '.join(known)}",
        )


def _require_plain_code() -> None:
    try:
        asyncio.get_running_loop()
        where = "in a running event loop"
    except RuntimeError:
        where = "inside a run" if active() is not None else ""
    if where:
        raise SpecError(
            what=f"the conformance kit was called {where}",
            why="it makes its own runs, and its own event loops for async ports",
            fix="call it from a plain test function without mat_run",
        )


def _fits(operator: Operator, sample: Sample) -> bool:
    if operator.boundary in ABOUT_CALLS:
        return sample.kind in operator.spec().kinds and not sample.stream and not sample.prompt
    if sample.kind not in operator.spec().kinds:
        return False
    return sample.kind != "message" or sample.prompt == (operator.boundary == "prompt")


class _FindingLog:
    """The findings about one operator so far; each kind is kept once per grid point."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.findings: list[OperatorProblem] = []
        self.runs = self.changed = 0
        self.idle: list[bool] = []
        self._known: set[tuple[str, str, FrozenDict]] = set()

    def find(
        self, kind: FindingKind, message: str, parameters: FrozenDict = EMPTY, sample: str = "", *, about: str = ""
    ) -> None:
        key = (kind, about or message, parameters)
        if key not in self._known:
            self._known.add(key)
            self.findings.append(OperatorProblem(kind=kind, message=message, parameters=parameters, sample=sample))


# -- what an operator declares ---------------------------------------------------------------------------------------------


def _check_declaration(log: _FindingLog) -> None:
    operator = log.operator
    if not operator.plausible.strip():
        log.find("implausible", "its plausibility note is empty: who or what would do this?")
    for point in operator.grid:
        problem = _json_problem(point)
        if problem:
            log.find("parameters", problem, point)
        span = point.get("calls", 1)
        if type(span) is not int or span < 1:
            log.find("parameters", f"calls={span!r} is not a number of calls", point)
    if len({canonical(point) for point in operator.grid}) < len(operator.grid):
        log.find("grid order", "a grid point occurs twice")
    _check_costs(log)


def _json_problem(point: FrozenDict) -> str:
    try:
        back = json.loads(json.dumps(thaw(point), allow_nan=False))
    except (TypeError, ValueError) as error:
        return f"JSON cannot hold them: {error}"
    return "" if canonical(back) == canonical(point) else "a round trip through JSON changes them"


def _check_costs(log: _FindingLog) -> None:
    operator = log.operator
    try:
        costs = [operator.price(point, DEFAULT_COST) for point in operator.grid]
    except Exception as error:
        log.find("crashes", f"price {raised_text(error)}")
        return
    if costs != sorted(costs):
        log.find("grid order", f"costs {costs} do not rise along the grid, whose order is the shrink order")
    for (one, cost), (other, other_cost) in combinations(zip(operator.grid, costs, strict=True), 2):
        if _is_stronger(one, other):
            log.find("grid order", f"{dict(one)} goes further than {dict(other)}, which comes after it")
        if (_is_stronger(one, other) and cost < other_cost) or (_is_stronger(other, one) and other_cost < cost):
            log.find("grid order", f"of {dict(one)} and {dict(other)}, the stronger one costs less")


def _is_stronger(one: FrozenDict, other: FrozenDict) -> bool:
    """Whether two points differ only in bounds, and the first goes further in each of them."""
    if one.keys() != other.keys() or one == other:
        return False
    differing = [name for name in one if one[name] != other[name]]
    return all(
        name in _BOUND_PARAMETERS and type(one[name]) is type(other[name]) is int and one[name] > other[name]
        for name in differing
    )


# -- grid points -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The result of a perturbed run."""

    differs: bool


def _check_point(log: _FindingLog, point: FrozenDict, samples: Sequence[Sample]) -> None:
    ran = changed = 0
    for sample in samples:
        nominal = _play(log.operator, sample, _repeats(point), asynchronous=False)
        outcome = _perturbed(log, point, sample, nominal, asynchronous=False)
        if outcome is None:
            continue
        ran += 1
        changed += outcome.differs
        _check_relevant(log, point, sample, nominal, outcome)
        if outcome.differs and changed <= ASYNC_SAMPLES:
            _check_async(log, point, sample)
    if not changed and (ran or not samples):  # if every run failed, a finding reports it already
        log.find("changes nothing", f"none of {ran} sample runs differs from its nominal run", point)


def _repeats(point: FrozenDict) -> int:
    span = point.get("calls", 1)
    return max(1, min(span, REPEATS)) if type(span) is int else 1


def _perturbed(log: _FindingLog, point: FrozenDict, sample: Sample, nominal: Run, *, asynchronous: bool) -> _Outcome | None:
    """The run of a sample with the operator at its first call; None if the operator makes the run itself fail."""
    spy = _Spy(log, point, sample.name)
    spied = replace(log.operator, decide=spy)
    added = perturbation(spied.id, _perturbed_site(log.operator, sample, nominal, point), point, 1)
    try:
        run = _play(spied, sample, _repeats(point), asynchronous=asynchronous, schedule=(added,))
        again = _play(log.operator, sample, _repeats(point), asynchronous=asynchronous, schedule=(added,))
    except MatError as error:
        if not spy.crashed:  # otherwise a finding reports it already
            log.find("crashes", error.what, point, sample.name)
        return None
    if spy.crashed:
        return None
    if again.head != run.head:
        log.find("not deterministic", "two runs with one schedule differ", point, sample.name)
    differs = run.view != nominal.view
    log.runs += 1
    log.changed += differs
    return _Outcome(differs=differs)


def _check_async(log: _FindingLog, point: FrozenDict, sample: Sample) -> None:
    nominal = _play(log.operator, sample, _repeats(point), asynchronous=True)
    outcome = _perturbed(log, point, sample, nominal, asynchronous=True)
    if outcome is not None and not outcome.differs:
        log.find("not deterministic", "a plain port is changed, but the same port in async code is not", point, sample.name)


def _check_relevant(log: _FindingLog, point: FrozenDict, sample: Sample, nominal: Run, outcome: _Outcome) -> None:
    first = _first_own_call(log.operator, sample, nominal)
    try:
        is_relevant = bool(log.operator.relevant(first, point, nominal.records[: first.step]))
    except Exception as error:
        log.find("crashes", f"relevant {raised_text(error)}", point, sample.name)
        return
    if not outcome.differs:
        log.idle.append(is_relevant)
    elif not is_relevant:
        log.find("misses", "relevant returned no, but the run changes", point, sample.name)


def _check_idle(log: _FindingLog) -> None:
    if log.changed and log.idle and all(log.idle):
        log.find(
            "always relevant",
            f"relevant returned true for all {len(log.idle)} runs in which nothing changed; give it relevant=",
        )


# -- runs ------------------------------------------------------------------------------------------------------------------


def _play(
    operator: Operator, sample: Sample, repeats: int, *, asynchronous: bool, schedule: Sequence[Perturbation] = ()
) -> Run:
    """Run the sample's past calls, then its own call `repeats` times."""
    import mat

    own = Turn(reply=sample.reply, arguments=sample.arguments)
    turns = [*sample.past, *([own] * repeats)]
    with mat.run(schedule=schedule, operators=[operator]) as run, suppress(ProcessCrashed):
        caller = _Caller(sample, asynchronous=asynchronous)
        if operator.boundary == "order":
            _race(caller, own, asynchronous=asynchronous)
        elif asynchronous:
            asyncio.run(_call_each(caller, turns))
        else:
            for turn in turns:
                with mat.agent(turn.agent):
                    caller.call(turn)
    assert run.result is not None
    return run.result


async def _call_each(caller: _Caller, turns: Sequence[Turn]) -> None:
    import mat

    for turn in turns:
        with mat.agent(turn.agent):
            await caller.call_async(turn)


def _race(caller: _Caller, turn: Turn, *, asynchronous: bool) -> None:
    """Two agents that make the same calls at the same time, as tasks or as threads."""
    import threading

    import mat

    async def task(agent: str) -> None:
        await _call_each(caller, [replace(turn, agent=agent)] * 2)

    async def both() -> None:
        await asyncio.gather(task("one"), task("two"))

    def work(agent: str) -> None:
        with mat.agent(agent):
            caller.call(turn)
            caller.call(turn)

    if asynchronous:
        asyncio.run(both())
        return
    threads = [threading.Thread(target=work, args=(agent,)) for agent in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _first_own_call(operator: Operator, sample: Sample, run: Run) -> Record:
    """The record of the first call that is the sample's own; in a race, the first call of the agent that starts."""
    crossings = [item for item in run.records if item.action.boundary]
    if operator.boundary == "order":
        return next(item for item in crossings if item.agent == "one")
    return crossings[len(sample.past)]


def _perturbed_site(operator: Operator, sample: Sample, nominal: Run, point: FrozenDict) -> Site:
    found = parse_site(_first_own_call(operator, sample, nominal).site)
    span = point.get("calls", 1)
    last = found.nth + (span if type(span) is int and span > 0 else 1) - 1
    if operator.boundary in ABOUT_CALLS:
        return replace(found, boundary=operator.boundary, name=name_about(found.boundary, found.name), last=last)
    return replace(found, last=last)


class _Caller:
    """The ports of a sample. The caller catches errors and goes on, like an agent that catches everything."""

    def __init__(self, sample: Sample, *, asynchronous: bool) -> None:
        self._sample, self._asynchronous = sample, asynchronous
        self._reply: Any = None
        self._ports = {kind: self._port(kind) for kind in (sample.kind, *(turn.kind for turn in sample.past)) if kind}

    def call(self, turn: Turn) -> None:
        self._reply = turn.reply
        try:
            answer = self._call(turn)
            if self._sample.stream:
                list(answer)
        except MatError:
            raise
        except Exception:
            return

    async def call_async(self, turn: Turn) -> None:
        self._reply = turn.reply
        try:
            answer = self._call(turn)
            if self._sample.stream:
                async for _ in answer:
                    pass
            elif inspect.isawaitable(answer):
                await answer
        except MatError:
            raise
        except Exception:
            return

    def _call(self, turn: Turn) -> Any:
        import mat

        arguments = copy.deepcopy(dict(self._sample.arguments if turn.arguments is None else turn.arguments))
        kind = turn.kind or self._sample.kind
        if self._sample.approved:
            mat.approval("port")
        if kind == "message" and self._sample.prompt:
            return mat.untrusted(arguments["text"], channel="port")
        if kind == "message":
            return mat.message("port", arguments["text"])
        if kind == "delegation":
            return mat.delegate("port", arguments["task"]).task
        return self._ports[kind](**arguments)

    def _port(self, kind: ActionKind) -> Callable[..., Any]:
        """An instrumented function of any arguments that returns a fresh copy of the current turn's reply."""

        def plain(**arguments: Any) -> Any:
            return copy.deepcopy(self._reply)

        async def later(**arguments: Any) -> Any:
            await asyncio.sleep(0)
            return copy.deepcopy(self._reply)

        def chunks(**arguments: Any) -> Any:
            yield from copy.deepcopy(self._reply)

        async def later_chunks(**arguments: Any) -> Any:
            for chunk in copy.deepcopy(self._reply):
                await asyncio.sleep(0)
                yield chunk

        choices = (plain, later, chunks, later_chunks)
        target = choices[2 * self._sample.stream + self._asynchronous]
        if kind in ("message", "delegation"):
            return plain
        writes = kind == "memory_write" or (kind == self._sample.kind and self._sample.effect == "write")
        boundary = next(name for name, kinds in KINDS.items() if kind in kinds)
        options = {"effect": "write" if writes else "read"}
        made = instrument(target, kind=kind, boundary=boundary, name=self._sample.port or "port", options=options)
        return cast("Callable[..., Any]", made)


# -- decisions -------------------------------------------------------------------------------------------------------------


class _Spy:
    """Replaces the operator's decision function: calls it twice and checks its arguments and results."""

    def __init__(self, log: _FindingLog, point: FrozenDict, sample: str) -> None:
        self._log, self._point, self._sample = log, point, sample
        self._decide = log.operator.decide
        self.crashed = False

    def __call__(self, call: Call, reply: Reply | None, stream: random.Random) -> Effect:
        spare = None if reply is None else Reply(copy.deepcopy(reply.value))
        given, state = _input_text(call, reply), stream.getstate()
        effect = self._decision(call, reply, stream)
        if effect is None:
            return PASS
        if _input_text(call, reply) != given:
            self._find("alters in place", "it changed its arguments; build a changed copy instead")
            return effect
        after = stream.getstate()
        stream.setstate(state)
        again = self._decision(call, spare, stream)
        stream.setstate(after)
        if again is not None and _effect_text(again) != _effect_text(effect):
            self._find("not deterministic", f"two decisions on the same call: {_shortened(effect)}, then {_shortened(again)}")
        self._check_bounds(effect, call, reply)
        return effect

    def _decision(self, call: Call, reply: Reply | None, stream: random.Random) -> Effect | None:
        try:
            effect: object = self._decide(call, reply, stream)
        except Exception as error:
            self.crashed = True
            if isinstance(error, TypeError) and "is part of a record" in str(error):
                self._find("alters in place", str(error))
            else:
                self._find("crashes", f"it {raised_text(error)}")
            return None
        if isinstance(effect, Effect):
            return effect
        self.crashed = True
        self._find("crashes", f"it decided {type(effect).__name__}, which is not an effect of mat.boundary.effect")
        return None

    def _check_bounds(self, effect: Effect, call: Call, reply: Reply | None) -> None:
        bounds, point = self._log.operator.bounds, self._point
        found = _effect_size(effect, call, reply, bounds)
        span = point.get("calls", 1)
        if type(span) is int and span > 1:
            found["count"] = max(span, found.get("count", 0))
        for name, value in found.items():
            if name in bounds and value > bounds[name]:
                self._find("breaks a bound", f"{name} {value}, and its bound is {bounds[name]}", about=name)
        text = {"magnitude", "tokens"} & bounds.keys()
        for name, value in found.items():
            if value and name not in bounds and not (name in ("magnitude", "tokens") and text):
                wanted = "magnitude or tokens" if name in ("magnitude", "tokens") else name
                self._find("names no bound", f"it acts with {name} {value}, and bounds= does not name {wanted}", about=name)
                return

    def _find(self, kind: FindingKind, message: str, *, about: str = "") -> None:
        self._log.find(kind, message, self._point, self._sample, about=about or kind)


def _input_text(call: Call, reply: Reply | None) -> str:
    return _text([None if reply is None else _text(reply.value), *(_text(item.value) for item in call.past)])


def _effect_text(effect: Effect) -> str:
    return _text([type(effect).__name__, *(_text(getattr(effect, item.name)) for item in fields(effect))])


def _text(value: Any) -> str:
    """A text that is equal for equal values; the repr of a value without a canonical form."""
    try:
        return canonical(snapshot(value))
    except Exception:
        return repr(value)


def _shortened(effect: Effect) -> str:
    text = repr(effect)
    return text if len(text) <= 80 else text[:77] + "..."


def _effect_size(effect: Effect, call: Call, reply: Reply | None, bounds: Mapping[str, int]) -> dict[str, int]:
    """The size of an effect, by the names of bounds."""
    match effect:
        case effects.Delay(ms=ms) | effects.Stall(ms=ms):
            return {"latency_ms": ms}
        case effects.Raise(delay_ms=ms):
            return {"latency_ms": ms}
        case effects.Duplicate(times=times):
            return {"count": times}
        case effects.Hold(turns=turns):
            return {"turns": turns}
        case effects.Rewrite(arguments=changed):
            given = {name: call.given.get(name) for name in changed}
            return {"magnitude": distance(given, changed), "tokens": token_distance(given, changed)}
        case effects.Replace(value=value):
            age = _staleness(value, call)
            if age and (reply is None or "staleness" in bounds):
                return {"staleness": age}
            before = None if reply is None else reply.value
            return {"magnitude": distance(before, value), "tokens": token_distance(before, value)}
        case effects.Repeat():
            return {"count": 1}
        case effects.Pass() | effects.Drop() | effects.Truncate() | effects.Crash():
            return {}


def _staleness(value: Any, call: Call) -> int:
    """The age of a value: how many replies to the same request back it was returned, else how many of the port; 0 for never."""
    wanted = _text(value)
    same = [_text(item.value) for item in call.past if (item.kind, item.arguments) == (call.kind, call.arguments)]
    written = [item.arguments.get("value") if item.kind == "memory_write" else item.value for item in call.past]
    for replies in (same, [_text(item) for item in written]):
        if wanted in replies:
            return replies[::-1].index(wanted) + 1
    return 0


# -- distances -------------------------------------------------------------------------------------------------------------


def distance(before: Any, after: Any) -> int:
    """Leaves changed, and items or keys added or removed, from one value to another; see the module's docstring.

    `before`, `after`: plain data, such as two replies. Returns a count, 0 for equal values.

    >>> from mat_faults.conformance import distance
    >>> distance({"eta": "Friday", "depot": 4}, {"eta": "Monday", "depot": 4}), distance([1, 2], [2, 1, 3])
    (1, 2)

    Source: A3.4.
    """
    try:
        return _distance(snapshot(before), snapshot(after))
    except MatError:  # without canonical form: only identity can be compared
        return int(before is not after)


def _distance(before: Any, after: Any) -> int:
    if canonical(before) == canonical(after):
        return 0
    if after is None or after in ("", b"") or (isinstance(after, dict | list) and not after):
        return 1
    if isinstance(before, dict) and isinstance(after, dict):
        return sum(_distance(before[key], after[key]) if key in before and key in after else 1 for key in {**before, **after})
    if isinstance(before, list) and isinstance(after, list):
        return _list_distance(before, after)
    return 1


def _list_distance(before: list[Any], after: list[Any]) -> int:
    """The smallest of three counts: by position, as moved items, and as items inserted and deleted."""
    found = [_item_distance(before, after)]
    before, after = _without_common_ends(before, after)
    if len(before) == len(after):
        found.append(sum(_distance(one, other) for one, other in zip(before, after, strict=True)))
    if len(before) * len(after) <= ALIGNED_CELLS:
        found.append(_aligned_distance(before, after))
    return min(found)


def _without_common_ends(before: list[Any], after: list[Any]) -> tuple[list[Any], list[Any]]:
    """Two lists without their common prefix and suffix."""
    was, now = list(map(canonical, before)), list(map(canonical, after))
    start, most = 0, min(len(was), len(now))
    while start < most and was[start] == now[start]:
        start += 1
    end = 0
    while end < most - start and was[-1 - end] == now[-1 - end]:
        end += 1
    return before[start : len(was) - end], after[start : len(now) - end]


def _item_distance(before: list[Any], after: list[Any]) -> int:
    """Count order and items separately: the changes of items, plus one if the others have another order."""
    common = Counter(map(canonical, before)) & Counter(map(canonical, after))
    (kept, gone), (left, new) = _split_common(before, common), _split_common(after, common)
    return _matched_distance(gone, new) + (kept != left)


def _split_common(items: list[Any], common: Counter[str]) -> tuple[list[str], list[Any]]:
    """The items that occur in both lists, in canonical form, and the other ones."""
    left, kept, rest = Counter(common), [], []
    for item in items:
        text = canonical(item)
        if left[text]:
            left[text] -= 1
            kept.append(text)
        else:
            rest.append(item)
    return kept, rest


def _matched_distance(gone: list[Any], new: list[Any]) -> int:
    """A removed and an added item that differ in one leaf count as one change, any others as two."""
    if len(gone) * len(new) > ALIGNED_CELLS:
        return len(gone) + len(new)
    left = list(new)
    for item in gone:
        like = next((index for index, other in enumerate(left) if _distance(item, other) == 1), None)
        if like is not None:  # one change; without a match, one item is gone
            del left[like]
    return len(gone) + len(left)


def _aligned_distance(before: list[Any], after: list[Any]) -> int:
    """The edit distance of two lists; replacing an item costs the distance of the two items."""
    row = list(range(len(after) + 1))
    for i, one in enumerate(before, 1):
        previous, row[0] = row[0], i
        for j, other in enumerate(after, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + _distance(one, other))
    return row[-1]


def token_distance(before: Any, after: Any) -> int:
    """Tokens changed (edit distance) in all texts, from one value to another; added and removed texts count in full.

    A new item of a list counts for its difference from the most similar item: a copy of a neighbor with one other text counts
    for that text.
    """
    try:
        return _token_distance(snapshot(before), snapshot(after))
    except MatError:  # without canonical form: no text is known
        return 0


def _token_distance(before: Any, after: Any) -> int:
    if canonical(before) == canonical(after):
        return 0
    total = 0
    if isinstance(before, str) or isinstance(after, str):
        total += changed_tokens(before if isinstance(before, str) else "", after if isinstance(after, str) else "")
    if isinstance(before, dict) or isinstance(after, dict):
        was = before if isinstance(before, dict) else {}
        now = after if isinstance(after, dict) else {}
        total += sum(_token_distance(was.get(key), now.get(key)) for key in {**was, **now})
    if isinstance(before, list) or isinstance(after, list):
        total += _item_tokens(before if isinstance(before, list) else [], after if isinstance(after, list) else [])
    return total


def _item_tokens(before: list[Any], after: list[Any]) -> int:
    """Items that occur in both lists cost nothing, wherever they are; the others are compared in order."""
    common = Counter(map(canonical, before)) & Counter(map(canonical, after))
    (_, gone), (_, new) = _split_common(before, common), _split_common(after, common)
    total = sum(_token_distance(one, other) for one, other in zip(gone, new, strict=False))
    total += sum(_token_distance(one, None) for one in gone[len(new) :])
    return total + sum(min(_token_distance(like, item) for like in (None, *before)) for item in new[len(gone) :])

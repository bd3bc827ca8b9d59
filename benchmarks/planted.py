"""Twelve agents with planted faults, each with a known cheapest counterexample, and the operators that can provoke it.

Every agent is plain code on real boundaries: tools, a memory, hand-offs to a worker, checks. The seed decides where its fault
lies. `least` is the cost of the cheapest schedule that breaks its contract; no cheaper one exists on this grid. Each agent can
report its complete state: its control point, the values it still knows, and the contents of its memory.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import mat
from mat.boundary.catalog import Catalog
from mat.boundary.effect import Call, Delay, Drop, Duplicate, Effect, Raise, Replace, Reply, Rewrite
from mat.core.value import FrozenDict

BUDGET: Final = 12
"""The largest cost of a schedule; every planted counterexample lies well within."""

# -- the grid -----------------------------------------------------------------------------------------------------------

Decide = Callable[[Call, Reply | None, random.Random], Effect]


def _raise_error(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Raise("connection")


def _delay(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Delay(1000 * call.parameters["s"])


def _older_value(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    """The reply of some versions ago, computed from the trend that the service reports."""
    assert reply is not None
    value, versions = reply.value, call.parameters["versions"]
    return Replace({**value, "value": value["value"] - value["trend"] * versions, "age": value["age"] + versions})


def _wrong_value(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    assert reply is not None
    return Replace({**reply.value, "value": reply.value["value"] + call.parameters["by"]})


def _older_cell(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    assert reply is not None
    return Replace({**reply.value, "version": reply.value["version"] - call.parameters["versions"]})


def _poison_cell(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    return Rewrite(FrozenDict({"value": POISON + call.parameters["value"]}))


def _priced(price: Callable[[FrozenDict], int]) -> Callable[[FrozenDict, Any], int]:
    return lambda point, model: price(point)


def _operator(id: str, decide: Decide, price: Callable[[FrozenDict], int], kind: str, **options: Any) -> mat.spec.Operator:
    return mat.spec.operator(id, decide, price=_priced(price), kinds=[kind], **options)


POISON: Final = 200
"""The first of the eight values that a poisoned cell may hold."""
_SECONDS: Final = [{"s": seconds} for seconds in range(1, 5)]
_VERSIONS: Final = [{"versions": versions} for versions in range(1, 5)]
_STEPS: Final = [{"by": sign * size} for size in range(1, 9) for sign in (1, -1)]
_READS: Final = ("service.fails", "service.late", "service.older", "service.wrong")
_CHECKS: Final = ("service.check_fails", "service.check_passes")

OPERATORS: Final = (
    _operator("service.fails", _raise_error, lambda point: 2, "tool_call"),
    _operator("service.late", _delay, lambda point: 1 + point["s"], "tool_call", grid=_SECONDS),
    _operator("service.older", _older_value, lambda point: 2 + point["versions"], "tool_call", grid=_VERSIONS, phase="after"),
    _operator("service.wrong", _wrong_value, lambda point: 4 - -abs(point["by"]) // 4, "tool_call", grid=_STEPS, phase="after"),
    _operator("service.check_fails", _raise_error, lambda point: 2, "tool_call"),
    _operator("service.check_passes", lambda call, reply, stream: Replace(True), lambda point: 5, "tool_call"),
    _operator("memory.older", _older_cell, lambda point: 2 + point["versions"], "memory_read", grid=_VERSIONS, phase="after"),
    _operator("memory.lost", lambda call, reply, stream: Drop(), lambda point: 4, "memory_write"),
    _operator("memory.poisoned", _poison_cell, lambda point: 6, "memory_write", grid=[{"value": value} for value in range(8)]),
    _operator("delegation.lost", lambda call, reply, stream: Drop(), lambda point: 2, "delegation"),
    _operator("delegation.twice", lambda call, reply, stream: Duplicate(), lambda point: 3, "delegation"),
    _operator("delegation.late", _delay, lambda point: 1 + point["s"], "delegation", grid=_SECONDS),
)  # fmt: skip
CATALOG: Final = Catalog(OPERATORS)

# -- what the agents are made of ----------------------------------------------------------------------------------------


class Place:
    """The state of an agent: its control point, the values it still knows there, and the signals it has reported."""

    def __init__(self) -> None:
        self._here: tuple[object, ...] = ()
        self._said: dict[str, object] = {}

    def begin(self) -> None:
        self._here, self._said = (), {}

    def at(self, *here: object) -> None:
        """Called before each crossing: the control point, then all that is read again before it is assigned again."""
        self._here = here

    def say(self, **signals: object) -> None:
        """Project signals for the contract. The next record carries them, so they are part of the state until then."""
        self._said.update(signals)
        mat.state(**signals)

    def now(self) -> object:
        return [self._here, self._said]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One agent. `plant`: where its fault lies. `clocked`: its behavior depends on the time at which something begins."""

    name: str
    seed: int
    plant: Mapping[str, int]
    least: int
    contract: mat.Contract
    agent: Callable[[Place], None]
    clocked: bool = False
    budget: int = BUDGET
    operators: tuple[mat.spec.Operator, ...] = OPERATORS
    place: Place = field(default_factory=Place)

    def body(self) -> None:
        self.place.begin()
        self.agent(self.place)

    @property
    def digest(self) -> mat.spec.StateDigest:
        """The agent's state digest: the state decides what follows, and replies stay in Python code."""
        return mat.spec.StateDigest(self.place.now, complete=True, clock=self.clocked, concolic=True)

    def run(
        self, spec: mat.spec.RunSpec, *, digest: bool = True, vary: bool = False, adversary: Any = None, states: bool = True
    ) -> mat.Run:
        """One execution under the grid's operators."""
        run = mat.run(
            [self.contract], schedule=spec.schedule, seed=spec.seed, operators=CATALOG, states=states,
            state_digest=self.digest if digest else None, vary=vary, adversary=adversary,
        )  # fmt: skip
        with run:
            self.body()
        assert run.result is not None
        return run.result


Stand = Callable[[mat.Record], int]
"""The margin of a record in thousandths; below 0, the record breaks the contract."""


def kept(id: str, message: str, stand: Stand, *, graded: bool = False) -> mat.Contract:
    """A contract that the first record with `stand` below 0 breaks; `graded`: the least `stand` of a trace is its margin."""

    def robustness(records: Sequence[mat.Record]) -> float:
        return min((stand(record) / 1000 for record in records), default=1.0)

    @mat.trace_contract(start=False, id=id, margin=robustness if graded else None)
    def judged(broken: bool, record: mat.Record) -> object:
        return mat.Violated(message, state=True) if not broken and stand(record) < 0 else broken

    return judged


def unless(signal: str) -> Stand:
    """A contract margin that is negative once the agent has reported `signal`."""
    return lambda record: -1000 if record.state.get(signal) else 1000


def _from_mitigations(field: str, stand: Callable[[int], int]) -> Stand:
    """The margin computed from a field of the agent's mitigation records."""

    def read(record: mat.Record) -> int:
        told = record.action.kind == "mitigation" and field in record.action.arguments
        return stand(record.action.arguments[field]) if told else 1000

    return read


def reader(name: str, value: Callable[[int], int], *, trend: int = 0) -> Callable[[int], dict[str, int]]:
    """A service that answers with a value, its age in versions, and by how much it moves from one version to the next."""

    @mat.tool(name=name, perturb=_READS)
    def read(step: int) -> dict[str, int]:
        return {"value": value(step), "age": 0, "trend": trend}

    return read


def _worker() -> tuple[list[int], Callable[[int], object]]:
    """A worker's inbox, and the hand-off to it, which may be lost, late, or arrive twice."""
    inbox: list[int] = []

    @mat.handoff("worker", perturb=("delegation",))
    def hand(step: int) -> None:
        inbox.append(step)

    return inbox, hand


def tried(call: Callable[[int], Any], step: int) -> Any:
    """The reply, or None if the service failed."""
    try:
        return call(step)
    except ConnectionError:
        return None


def _try_twice(place: Place, call: Callable[[int], Any], step: int, *knows: object) -> Any:
    """A read with one retry, at the control point `knows`; None if both attempts fail."""
    place.at(*knows)
    reply = tried(call, step)
    if reply is None:
        place.at("again", *knows)
        reply = tried(call, step)
    return reply


def _stream_of(name: str, seed: int) -> random.Random:
    return random.Random(f"{name}/{seed}")


# -- the agents ---------------------------------------------------------------------------------------------------------


def single_unhandled(seed: int) -> Planted:
    """A failure is not handled at exactly one of 20 steps."""
    bug = _stream_of("A01_single_unhandled", seed).randrange(20)
    read = reader("read", lambda step: step)

    def agent(place: Place) -> None:
        for step in range(20):
            place.at("read", step)
            if tried(read, step) is None:
                if step == bug:
                    place.say(unbacked=True)
                    continue
                place.at("again", step)
                if tried(read, step) is None:
                    return

    contract = kept("commits.backed", "a step was committed without a reply", unless("unbacked"))
    return Planted(name="A01", seed=seed, plant={"bug": bug}, least=2, contract=contract, agent=agent)


def two_interacting(seed: int) -> Planted:
    """A failure at one step enters failover, which does not check the freshness of a later reply."""
    first, second = sorted(_stream_of("A02_two_interacting", seed).sample(range(20), 2))
    read = reader("read", lambda step: 100, trend=1)
    recover = reader("recover", lambda step: 100)

    def agent(place: Place) -> None:
        failover = False
        for step in range(20):
            place.at("read", step, failover)
            reply = tried(read, step)
            if reply is None:
                failover = failover or step == first
                _try_twice(place, recover, step, "recover", step, failover)
            elif reply["value"] != 100:
                if step == second and failover and reply["value"] < 100:
                    place.say(stale=True)
                else:
                    _try_twice(place, recover, step, "refresh", step, failover)

    contract = kept("replies.fresh", "an old reply was used in failover", unless("stale"))
    plant = {"first": first, "second": second}
    return Planted(name="A02", seed=seed, plant=plant, least=5, contract=contract, agent=agent)


def timing(seed: int) -> Planted:
    """Two failures at most two steps apart, in a zone of five, trip a breaker that loses a side effect."""
    zone = _stream_of("A03_timing", seed).randrange(2, 16)
    read = reader("read", lambda step: step)

    def agent(place: Place) -> None:
        last, gap = None, None
        for step in range(24):
            place.at("read", step, last, gap)
            if tried(read, step) is None:
                place.at("again", step, last, gap)
                tried(read, step)
                if zone <= step < zone + 5:
                    if last is not None and (gap is None or step - last < gap):
                        gap = step - last
                        place.say(gap=gap)
                    last = step

    def stand(record: mat.Record) -> int:
        return 1000 if "gap" not in record.state else 200 * record.state["gap"] - 500

    contract = kept("effects.kept", "the breaker tripped and lost a side effect", stand, graded=True)
    return Planted(name="A03", seed=seed, plant={"zone": zone}, least=4, contract=contract, agent=agent)


def needle_parameter(seed: int) -> Planted:
    """One of 16 wrong values at one step passes range and checksum."""
    drawn = _stream_of("A04_needle_param", seed)
    needle, by = drawn.randrange(18), drawn.choice([size for size in range(-8, 9) if size])
    read = reader("read", lambda step: 1000)

    def agent(place: Place) -> None:
        for step in range(18):
            reply = _try_twice(place, read, step, "read", step)
            if reply is not None and reply["value"] != 1000:
                if step == needle and reply["value"] - 1000 == by:
                    place.say(wrong=True)
                    continue
                place.at("refresh", step)
                tried(read, step)

    contract = kept("values.valid", "a wrong value passed the checks", unless("wrong"))
    plant, least = {"step": needle, "by": by}, 4 - -abs(by) // 4
    return Planted(name="A04", seed=seed, plant=plant, least=least, contract=contract, agent=agent)


def memory_poison(seed: int) -> Planted:
    """A poisoned cell is used ten steps after it was written; one poison of eight survives the check at use."""
    drawn = _stream_of("A05_memory_poison", seed)
    cell, poison = drawn.randrange(8), drawn.randrange(8)
    read = reader("read", lambda step: step)

    def agent(place: Place) -> None:
        cells: dict[str, int] = {}
        notes = mat.memory(cells, name="notes", perturb=("memory.lost", "memory.poisoned"))
        for step in range(24):
            place.at("work", step, cells)
            if step < 12:
                notes[f"cell{step}"] = 100
            else:
                tried(read, step)
            if 10 <= step < 22:
                place.at("use", step, cells)
                if notes.get(f"cell{step - 10}") == POISON + poison and step - 10 == cell:
                    place.say(used=True)

    contract = kept("notes.genuine", "a poisoned note was used", unless("used"))
    plant = {"cell": cell, "poison": poison}
    return Planted(name="A05", seed=seed, plant=plant, least=6, contract=contract, agent=agent)


def stale_cache(seed: int) -> Planted:
    """A failure at one step falls back to a cell that was read earlier; harmful if that was three versions old or more."""
    drawn = _stream_of("A06_stale_cache_retry", seed)
    filled = drawn.randrange(0, 8)
    used = drawn.randrange(filled + 2, 20)
    read = reader("read", lambda step: step)

    def agent(place: Place) -> None:
        cells = {f"cell{step}": {"value": 7, "version": 10} for step in range(8)}
        notes = mat.memory(cells, name="notes", perturb=("memory.older",))
        versions: list[int] = []
        for step in range(20):
            if step < 8:
                place.at("recall", step, versions)
                versions = [*versions, notes[f"cell{step}"]["version"]]
            place.at("read", step, versions)
            if tried(read, step) is None:
                if step == used:
                    mat.mitigate("alternate", age=10 - versions[filled])
                else:
                    place.at("again", step, versions)
                    tried(read, step)

    contract = kept("cache.fresh", "an old cell was used", _from_mitigations("age", lambda age: 500 - 200 * age), graded=True)
    plant = {"filled": filled, "used": used}
    return Planted(name="A06", seed=seed, plant=plant, least=7, contract=contract, agent=agent)


def deceptive(seed: int) -> Planted:
    """Wrong values shrink the margin and never break it; what does is one hand-off lost and a later one made twice."""
    first, second = sorted(_stream_of("A07_deceptive", seed).sample(range(12), 2))
    read = reader("read", lambda step: 50)

    inbox, hand = _worker()

    def agent(place: Place) -> None:
        drift, lost = 0, False
        for step in range(12):
            place.at("read", step, drift, lost)
            reply = tried(read, step)
            if reply is not None and reply["value"] != 50:
                drift = min(9000, drift + 800 * abs(reply["value"] - 50))
                place.say(drift=drift)
            inbox.clear()
            place.at("hand", step, drift, lost, inbox)
            hand(step)
            if not inbox:
                if step == first:
                    lost = True
                else:
                    place.at("again", step, drift, lost, inbox)
                    hand(step)
            elif len(inbox) == 2 and step == second and lost:
                place.say(harmed=True)

    def stand(record: mat.Record) -> int:
        return -1000 if record.state.get("harmed") else 1000 - record.state.get("drift", 0) // 10

    contract = kept("orders.once", "an order was lost and the next one made twice", stand, graded=True)
    plant = {"first": first, "second": second}
    return Planted(name="A07", seed=seed, plant=plant, least=5, contract=contract, agent=agent)


def masking(seed: int) -> Planted:
    """A failure or a slow or old reply makes the agent careful; one wrong value harms it while it is not."""
    drawn = _stream_of("A08_masking", seed)
    weak, sign = drawn.randrange(6, 18), drawn.choice((1, -1))
    read = reader("read", lambda step: 100)

    def agent(place: Place) -> None:
        careful = False
        for step in range(18):
            place.at("read", step, careful)
            began_s = time.monotonic()
            reply = tried(read, step)
            if reply is None or time.monotonic() > began_s or reply["age"] > 0:
                careful = True
            if reply is None:
                place.at("again", step)
                tried(read, step)
            elif reply["value"] != 100:
                if step == weak and not careful and (reply["value"] - 100) * sign >= 5:
                    place.say(harmed=True)
                else:
                    careful = True

    contract = kept("values.plausible", "a wrong value was acted on", unless("harmed"))
    plant = {"step": weak, "sign": sign}
    return Planted(name="A08", seed=seed, plant=plant, least=6, contract=contract, agent=agent)


def retry_path(seed: int) -> Planted:
    """The fatal call exists only where a read has failed twice: a wrong reply of the fallback."""
    weak = _stream_of("A09_retry_path", seed).randrange(16)
    read = reader("read", lambda step: 7)
    fall_back = reader("fallback", lambda step: 7)

    def agent(place: Place) -> None:
        for step in range(16):
            if _try_twice(place, read, step, "read", step) is None:
                if step != weak:
                    return
                place.at("fallback", step)
                reply = tried(fall_back, step)
                if reply is not None:
                    mat.mitigate("alternate", off=abs(reply["value"] - 7))

    stand = _from_mitigations("off", lambda off: (1500 - 1000 * off) // 8)
    contract = kept("fallback.sound", "the fallback's reply was off and was used", stand, graded=True)
    return Planted(name="A09", seed=seed, plant={"step": weak}, least=9, contract=contract, agent=agent)


def retry_exhaustion(seed: int) -> Planted:
    """A hand-off is made up to four times; one of ten has no watchdog, and is lost with the fourth."""
    weak = _stream_of("A10_retry_exhaustion", seed).randrange(10)

    inbox, hand = _worker()

    def agent(place: Place) -> None:
        for step in range(10):
            inbox.clear()
            lost = 0
            while lost < 4:
                place.at("hand", step, lost, inbox)
                hand(step)
                if inbox:
                    break
                lost += 1
            if step == weak and lost:
                mat.mitigate("retry", lost=lost)

    stand = _from_mitigations("lost", lambda lost: 875 - 250 * lost)
    contract = kept("orders.delivered", "an order was given up in silence", stand, graded=True)
    return Planted(name="A10", seed=seed, plant={"step": weak}, least=8, contract=contract, agent=agent)


def deadline(seed: int) -> Planted:
    """Delays add up against a deadline; at one step they count twice."""
    weak = _stream_of("A11_deadline_knapsack", seed).randrange(15)
    read = reader("read", lambda step: step)

    def agent(place: Place) -> None:
        spent_ms = 0
        for step in range(15):
            place.at("read", step, spent_ms)
            began_s = time.monotonic()
            if tried(read, step) is None:
                place.at("again", step, spent_ms)
                tried(read, step)
            spent_ms += round(1000 * (time.monotonic() - began_s)) * (2 if step == weak else 1)
            place.say(spent_ms=spent_ms)

    def stand(record: mat.Record) -> int:
        return (8500 - record.state.get("spent_ms", 0)) // 9

    contract = kept("work.in_time", "the deadline was missed", stand, graded=True)
    return Planted(name="A11", seed=seed, plant={"step": weak}, least=7, contract=contract, agent=agent, clocked=True)


def haystack(seed: int) -> Planted:
    """60 calls, 50 of them telemetry that nobody reads; harmful are a check that passes wrongly and a later failure."""
    real = sorted(_stream_of("A12_haystack", seed).sample(range(60), 10))
    checked, weak = real[2], real[7]
    read = reader("read", lambda step: step)
    log = reader("log", lambda step: step)

    @mat.tool(name="check", perturb=_CHECKS)
    def check(step: int, again: bool) -> bool:
        return again

    def agent(place: Place) -> None:
        misled = False
        for step in range(60):
            place.at("log" if step not in real else "check" if step == checked else "read", step, misled)
            if step not in real:
                with suppress(ConnectionError):
                    log(step)
            elif step == checked:
                misled = _try_check(check, step, False) is True
                if not misled:
                    place.at("check again", step, misled)
                    _try_check(check, step, True)
            elif tried(read, step) is None:
                if step == weak and misled:
                    place.say(harmed=True)
                else:
                    place.at("read again", step, misled)
                    tried(read, step)

    contract = kept("checks.real", "a failure met an agent that a check had misled", unless("harmed"))
    plant = {"check": checked, "step": weak}
    return Planted(name="A12", seed=seed, plant=plant, least=7, contract=contract, agent=agent)


def _try_check(check: Callable[[int, bool], bool], step: int, again: bool) -> bool | None:
    try:
        return check(step, again)
    except ConnectionError:
        return None


AGENTS: Final[dict[str, Callable[[int], Planted]]] = {
    make(0).name: make
    for make in (
        single_unhandled, two_interacting, timing, needle_parameter, memory_poison, stale_cache, deceptive, masking,
        retry_path, retry_exhaustion, deadline, haystack,
    )
}  # fmt: skip

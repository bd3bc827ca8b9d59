"""What judging a step costs: formulas compared with hand-written monitors and with an OpenTelemetry span.

Three tables. First, five properties of agent traces as formulas, compared with hand-written O(1) classes
(../shared/bench/monitors, left out with a reason where that folder is absent): the same steps, in blocks that take turns, each
block freshly made for both sides; the counts of violations must be equal at every size. Second, formulas of many shapes with
parameters from a seed, each compared with a class that an engineer would write for the same records. Third, every contract
template armed at once on a helpdesk-like trace, compared with a span with eight attributes and a processor that does nothing.

All figures are medians over blocks, in microseconds a step; the garbage collector is off on both sides while a block is timed,
and one row has it on, on both. Run: python benchmarks/monitors.py [--steps 1000000] [--seed 0]
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import inspect
import json
import math
import random
import statistics
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns
from types import ModuleType
from typing import Any

from peer import span_step

import mat_contracts
from mat.core.digest import canonical, plain
from mat.core.errors import MatError
from mat.core.record import NOTHING, Action, ErrorFact, Link, Observation, Record, new_action, new_record
from mat.core.value import EMPTY, FrozenDict
from mat.monitor import temporal as f
from mat.monitor.compile import contract
from mat.monitor.contract import Contract
from mat.monitor.judge import Judge, judge

SIZES = (10_000, 100_000, 1_000_000)
BLOCK = 2_000
REFERENCE = Path(__file__).resolve().parents[1].parent / "shared" / "bench" / "monitors"
OFFLINE_STEPS, OFFLINE_TURNS = 10_000, 9
FORMULA_STEPS, DRAWS = 20_000, 3
TEMPLATES, TEMPLATE_STEPS = 30, 8_000
"""At least as many contracts are armed in the third table."""


# ---- the clock -----------------------------------------------------------------------------------------------------


def timed(work: Callable[[Any], None], items: Sequence[Any], *, collector: bool = False) -> float:
    """Microseconds an item of one block."""
    gc.collect()
    if not collector:
        gc.disable()
    began = perf_counter_ns()
    work(items)
    elapsed = perf_counter_ns() - began
    gc.enable()
    return elapsed / len(items) / 1000


def folding(court: Judge) -> Callable[[Sequence[Record]], None]:
    fold = court.fold

    def work(records: Sequence[Record]) -> None:
        for record in records:
            fold(record)

    return work


def stepping(monitors: Sequence[Any]) -> Callable[[Sequence[Any]], None]:
    """Hand-written monitors, each called at every step."""
    steps = [monitor.step for monitor in monitors]
    if len(steps) == 1:
        (only,) = steps

        def alone(items: Sequence[Any]) -> None:
            for item in items:
                only(item)

        return alone

    def work(items: Sequence[Any]) -> None:
        for item in items:
            for step in steps:
                step(item)

    return work


def state_bytes(court: Judge) -> int:
    """The states of all armed contracts as canonical text."""
    return len(canonical(plain([state for _, state in sorted(court.states().items())])))


# ---- five properties, as formulas -------------------------------------------------------------------------------------


def five(reference: ModuleType) -> list[Contract]:
    """P1 to P5 of the reference as formulas."""
    allowed = [(agent, tool) for agent, tools in reference.ALLOW.items() for tool in sorted(tools)]
    effect, verified = f.tool_call() & (f.field("effect") == "write"), f.verification()
    decreased = f.field("state.phi") < f.previous(f.field("state.phi"))
    fault, detect, mitigate = (f.field(f"state.{name}") == True for name in ("fault", "detect", "mitigate"))  # noqa: E712
    contained = f.eventually(detect & f.eventually(mitigate, within=reference.W_MITIGATE), within=reference.W_DETECT)
    id, window = f.variable("id"), reference.W_PROGRESS - 1
    used, issued = f.tool_call(use=id), f.tool_call(issue=id)
    return [
        contract("P1", f.always(effect.implies(f.once(verified, within=(1, reference.H_VERIFY))))),
        contract("P2", f.always((f.field("step") >= window).implies(f.once(decreased, within=window)))),
        contract("P3", f.always(fault.implies(contained))),
        contract("P4", f.always(f.tool_call().implies(f.field("agent", "name").among(allowed)))),
        contract("P5", f.for_each(id, f.always(used.implies(f.once(issued, within=(1, reference.TTL)))))),
    ]


def as_record(step: Any) -> Record:
    """A step of the reference trace as a `mat.Record`."""
    kind, name = ("tool_call", step.tool) if step.tool is not None else (step.action_type, step.action_type)
    if kind != "tool_call":
        kind = "verification" if step.is_verify else "model_call"
    state = FrozenDict({"phi": step.phi, "fault": step.fault, "detect": step.detect, "mitigate": step.mitigate})
    action = new_action(kind, name, FrozenDict(step.params), "write" if step.side_effect else "none", "low", "service")
    return placed(step.t, 1000 * step.t, step.agent, state, action, NOTHING)


def placed(
    step: int, at_ms: int, agent: str, state: FrozenDict, action: Action, observation: Observation, links: tuple[Link, ...] = ()
) -> Record:
    return new_record(
        step, at_ms, at_ms, 2 * step, 2 * step + 1, agent, "", state, "main/service:tool#1", action, observation, "yes",
        None, links, None, None, 1, (), False, EMPTY,
    )  # fmt: skip


@dataclass
class Sizes:
    """The measurements for one size of the reference trace."""

    ours: list[float] = field(default_factory=list)
    hand: list[float] = field(default_factory=list)
    fused: list[float] = field(default_factory=list)
    state: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    hand_counts: dict[str, int] = field(default_factory=dict)

    @property
    def us(self) -> tuple[float, float, float]:
        return statistics.median(self.ours), statistics.median(self.hand), statistics.median(self.fused)


def measure(reference: ModuleType, hand: ModuleType, size: int, *, collector: bool = False) -> Sizes:
    """One pass over `size` steps. The records live for one block only, so that memory does not grow with the trace."""
    trace = reference.generate(size)
    gc.collect()
    gc.freeze()
    court, monitors, (fused, _) = (
        Judge(five(reference)),
        {name: kind() for name, kind in hand.CLASSES.items()},
        hand.make_fused(),
    )
    found, last = Sizes(), None
    for start in range(0, size, BLOCK):
        sides: list[tuple[list[float], Callable[[Any], None], list[Any]]] = [
            (found.ours, folding(court), [as_record(step) for step in trace[start : start + BLOCK]]),
            (found.hand, stepping(list(monitors.values())), [fresh(step) for step in trace[start : start + BLOCK]]),
            (found.fused, stepping([_Step(fused)]), [fresh(step) for step in trace[start : start + BLOCK]]),
        ]
        turn = start // BLOCK % 3
        for times, work, items in sides[turn:] + sides[:turn]:
            times.append(timed(work, items, collector=collector))
        found.state = max(found.state, state_bytes(court))
        last = sides[0][2][-1]
    found.counts = closed(court, last)
    found.hand_counts = {name: monitor.bad for name, monitor in monitors.items()}
    gc.unfreeze()
    return found


def offline_us(reference: ModuleType, hand: ModuleType) -> tuple[float, float]:
    """Microseconds a step for judging a whole trace at once, with all verdicts, and for the classes over the same trace."""
    steps = reference.generate(OFFLINE_STEPS)
    contracts, records = five(reference), [as_record(step) for step in steps]
    ours, theirs = [], []
    gc.freeze()
    for _ in range(OFFLINE_TURNS):
        ours.append(timed(lambda items: judge(items, contracts), records))
        theirs.append(timed(lambda items: hand.run_hand(items), steps))
    gc.unfreeze()
    return statistics.median(ours), statistics.median(theirs)


@dataclass
class _Step:
    step: Callable[[Any], None]


def fresh(step: Any) -> Any:
    """A fresh copy, so that both sides read from warm memory."""
    made = copy(step)
    made.params = dict(step.params)
    return made


def closed(court: Judge, last: Record | None) -> dict[str, int]:
    """Violations of each contract, without obligations still open at the end, which the reference does not count."""
    return {
        outcome.contract: sum(
            not (item.witness and outcome.contract == "P3" and item.step == item.witness[0]) for item in outcome.violations
        )
        for outcome in court.finish(last)
    }


def load_reference() -> tuple[ModuleType, ModuleType]:
    """The trace and the hand-written classes. They import each other as top-level modules."""
    known = sys.modules.get("trace")
    try:
        trace = load("trace", REFERENCE / "trace.py")
        return trace, load("mat_benchmark_hand", REFERENCE / "hand.py")
    finally:
        if known is None:
            sys.modules.pop("trace", None)
        else:
            sys.modules["trace"] = known


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# ---- formulas of many shapes, each beside a class as one would write it by hand ------------------------------------------

TOOLS = ("refund", "track", "mail", "cancel", "lookup", "ship")
NEVER = -(10**9)


WRITES = frozenset(("refund", "mail", "cancel", "ship"))
TIMEOUT = Observation(error=ErrorFact(type="TimeoutError", message="carrier", kind="timeout"))


def helpdesk(size: int, seed: int) -> Iterator[Record]:
    """A helpdesk's steps: calls about orders that come and go, checks, claims with their sources, messages; irregular times."""
    dice = random.Random(f"helpdesk/{seed}")
    at_ms, open_subtasks, source = 0, 5, (0, "order-0")
    for step in range(size):
        at_ms += dice.choice((0, 20, 50, 200, 1000))
        open_subtasks = open_subtasks + dice.choice((-1, -1, 0, 1)) if open_subtasks else 8
        state = FrozenDict({"open_subtasks": open_subtasks, "approvals": 0, "retries": dice.randrange(3)})
        agent, kind = dice.choice(("triage", "planner", "mailer")), dice.random()
        if kind < 0.60:
            order = f"order-{step // 400 + dice.randrange(8)}"
            action, observation = call(dice, order), TIMEOUT
            agent = "triage" if agent == "planner" and action.effect == "write" else agent
            if dice.random() > 0.03:
                observation = Observation(value=FrozenDict({"order": order, "status": "shipped"}))
                source = (step, order)
            yield placed(step, at_ms, agent, state, action, observation)
        elif kind < 0.63:
            action = new_action("claim", "claim", FrozenDict({"text": f"{source[1]} is shipped"}), "none", "low", "")
            link = Link(src=f"step#{source[0]}", rel="supports", dst=f"claim#{step}")
            yield placed(step, at_ms, agent, state, action, NOTHING, (link,))
        else:
            yield placed(step, at_ms, agent, state, other(dice, kind), NOTHING)


def call(dice: random.Random, order: str) -> Action:
    name = dice.choice(TOOLS)
    arguments = FrozenDict({"order": order, "amount": dice.randrange(600)})
    return new_action("tool_call", name, arguments, "write" if name in WRITES else "read", "low", "service")


def other(dice: random.Random, kind: float) -> Action:
    if kind < 0.75:
        return new_action("verification", "row", FrozenDict({"passed": dice.random() < 0.9}), "none", "low", "")
    if kind < 0.85:
        return new_action("model_call", "planner", FrozenDict({"prompt": "next?"}), "read", "low", "model")
    if kind < 0.98:
        return new_action(
            "message", dice.choice(("user", "mailer")), FrozenDict({"text": "It is on its way."}), "none", "low", ""
        )
    return new_action("mitigation", dice.choice(("retry", "escalate")), EMPTY, "none", "low", "")


class Monitor:
    """The base of the hand-written classes: it counts violations; `finish` does nothing unless overridden."""

    bad = 0

    def finish(self) -> None:
        """Count obligations that are open at the end of the trace as violations."""


class Precedence(Monitor):
    """A call only within n steps after a passed check."""

    def __init__(self, tool: str, within: int) -> None:
        self.tool, self.within, self.last = tool, within, NEVER

    def step(self, record: Record) -> None:
        action = record.action
        if action.kind == "verification":
            if action.arguments.get("passed") is True:
                self.last = record.step
        elif action.kind == "tool_call" and action.name == self.tool and record.step - self.last > self.within:
            self.bad += 1


class Recent(Monitor):
    """A call only within so many milliseconds after another."""

    def __init__(self, tool: str, before: str, within_ms: int) -> None:
        self.tool, self.before, self.within_ms, self.last = tool, before, within_ms, NEVER

    def step(self, record: Record) -> None:
        action = record.action
        if action.kind == "tool_call":
            if action.name == self.before:
                self.last = record.at_ms
            elif action.name == self.tool and record.at_ms - self.last > self.within_ms:
                self.bad += 1


class Quiet(Monitor):
    """A call only where nothing failed within the last steps."""

    def __init__(self, tool: str, within: int) -> None:
        self.tool, self.within, self.failed = tool, within, NEVER

    def step(self, record: Record) -> None:
        if record.observation.error is not None:
            self.failed = record.step
        action = record.action
        if action.kind == "tool_call" and action.name == self.tool and record.step - self.failed <= self.within:
            self.bad += 1


class Rate(Monitor):
    """At most n calls in any so many steps (or milliseconds)."""

    def __init__(self, tool: str, count: int, within: int, *, timed: bool) -> None:
        self.tool, self.count, self.within, self.timed = tool, count, within, timed
        self.seen: deque[int] = deque()

    def step(self, record: Record) -> None:
        action = record.action
        if action.kind == "tool_call" and action.name == self.tool:
            now, seen = record.at_ms if self.timed else record.step, self.seen
            seen.append(now)
            while now - seen[0] > self.within:
                seen.popleft()
            if len(seen) > self.count:
                self.bad += 1


class Unlocked(Monitor):
    """A claim only while a lock is open: a check opens it, a mitigation closes it."""

    def __init__(self, locks: str) -> None:
        self.locks, self.open = locks, False

    def step(self, record: Record) -> None:
        action = record.action
        kind = action.kind
        if kind == "verification":
            self.open = True
        elif kind == "mitigation" and action.name == self.locks:
            self.open = False
        elif kind == "claim" and not self.open:
            self.bad += 1


class Response(Monitor):
    """A call is answered by another within n steps."""

    def __init__(self, tool: str, answer: str, within: int) -> None:
        self.tool, self.answer, self.within = tool, answer, within
        self.open: deque[int] = deque()

    def step(self, record: Record) -> None:
        action, step, waiting = record.action, record.step, self.open
        if action.kind == "tool_call":
            if action.name == self.answer:
                waiting.clear()
            elif action.name == self.tool:
                waiting.append(step)
        while waiting and step - waiting[0] >= self.within:
            waiting.popleft()
            self.bad += 1

    def finish(self) -> None:
        self.bad += len(self.open)


class Until(Monitor):
    """After an error nothing is claimed until something is checked, within n steps."""

    def __init__(self, within: int) -> None:
        self.within = within
        self.open: deque[int] = deque()

    def step(self, record: Record) -> None:
        waiting = self.open
        if record.observation.error is not None:
            waiting.append(record.step)
        if not waiting:
            return
        kind = record.action.kind
        if kind == "verification":
            waiting.clear()
        elif kind == "claim":
            self.bad += len(waiting)
            waiting.clear()
        while waiting and record.step - waiting[0] >= self.within:
            waiting.popleft()
            self.bad += 1

    def finish(self) -> None:
        self.bad += len(self.open)


class Following(Monitor):
    """The step after an error is never a call of one tool."""

    def __init__(self, tool: str) -> None:
        self.tool, self.failed = tool, False

    def step(self, record: Record) -> None:
        if self.failed:
            action = record.action
            if action.kind == "tool_call" and action.name == self.tool:
                self.bad += 1
        self.failed = record.observation.error is not None


class Capped(Monitor):
    """An argument of a call has a limit."""

    def __init__(self, tool: str, limit: int) -> None:
        self.tool, self.limit = tool, limit

    def step(self, record: Record) -> None:
        action = record.action
        if action.kind == "tool_call" and action.name == self.tool and action.arguments.get("amount", 0) > self.limit:
            self.bad += 1


class Falling(Monitor):
    """The open subtasks become fewer at least once in any n steps."""

    def __init__(self, within: int) -> None:
        self.within, self.last, self.before = within, -1, None

    def step(self, record: Record) -> None:
        now = record.state.get("open_subtasks")
        if self.before is not None and now < self.before:
            self.last = record.step
        elif record.step - self.last > self.within:
            self.bad += 1
        self.before = now


class OncePerOrder(Monitor):
    """At most n calls for each order, ever."""

    def __init__(self, tool: str, count: int) -> None:
        self.tool, self.count = tool, count
        self.seen: dict[str, int] = {}

    def step(self, record: Record) -> None:
        action = record.action
        if action.kind == "tool_call" and action.name == self.tool:
            order = action.arguments["order"]
            count = self.seen[order] = self.seen.get(order, 0) + 1
            if count > self.count:
                self.bad += 1


class PrecedencePerOrder(Monitor):
    """A call only within n steps after another for the same order."""

    def __init__(self, tool: str, before: str, within: int) -> None:
        self.tool, self.before, self.within = tool, before, within
        self.last: dict[str, int] = {}

    def step(self, record: Record) -> None:
        action = record.action
        if action.kind == "tool_call":
            if action.name == self.before:
                self.last[action.arguments["order"]] = record.step
            elif action.name == self.tool and record.step - self.last.get(action.arguments["order"], NEVER) > self.within:
                self.bad += 1


class ResponsePerOrder(Monitor):
    """A call is answered by another for the same order, within n steps."""

    def __init__(self, tool: str, answer: str, within: int) -> None:
        self.tool, self.answer, self.within = tool, answer, within
        self.open: deque[tuple[int, str]] = deque()
        self.waiting: dict[str, int] = {}
        """How many promises of an order are in the queue and not yet kept."""
        self.kept: dict[str, int] = {}
        """Up to which step those of an order are kept."""

    def step(self, record: Record) -> None:
        action, step, queue = record.action, record.step, self.open
        if action.kind == "tool_call":
            if action.name == self.answer:
                self.kept[action.arguments["order"]] = step
            elif action.name == self.tool:
                queue.append((step, action.arguments["order"]))
        while queue and step - queue[0][0] >= self.within:
            self._settle(*queue.popleft())

    def _settle(self, since: int, order: str) -> None:
        if self.kept.get(order, -1) < since:
            self.bad += 1

    def finish(self) -> None:
        for since, order in self.open:
            self._settle(since, order)


class Either(Monitor):
    """A call is by one agent, or after a claim within n steps, or cheap."""

    def __init__(self, tool: str, agent: str, within: int, limit: int) -> None:
        self.tool, self.agent, self.within, self.limit, self.claimed = tool, agent, within, limit, NEVER

    def step(self, record: Record) -> None:
        action = record.action
        if action.kind == "claim":
            self.claimed = record.step
        elif action.kind == "tool_call" and action.name == self.tool:
            if record.agent == self.agent or action.arguments.get("amount", 0) <= self.limit:
                return
            if record.step - self.claimed > self.within:
                self.bad += 1


class Contained(Monitor):
    """An error is followed by a check within n steps, and that by a message to the user within m."""

    def __init__(self, detect: int, mitigate: int) -> None:
        self.detect, self.mitigate = detect, mitigate
        self.faults: deque[int] = deque()
        self.detected: deque[int] = deque()

    def step(self, record: Record) -> None:
        action, step, faults, detected = record.action, record.step, self.faults, self.detected
        while detected and step - detected[0] > self.mitigate:
            detected.popleft()
        if record.observation.error is not None:
            faults.append(step)
        if action.kind == "verification":
            detected.append(step)
        if not faults:
            return
        if detected and action.kind == "message" and action.name == "user":
            self.faults = faults = deque(fault for fault in faults if not self._seen(fault))
        while faults and step - faults[0] >= self.detect + self.mitigate:
            faults.popleft()
            self.bad += 1

    def _seen(self, fault: int) -> bool:
        return any(0 <= at - fault <= self.detect for at in self.detected)

    def finish(self) -> None:
        self.bad += len(self.faults)


Shape = Callable[[random.Random], tuple[f.Formula, Monitor]]
ERROR = f.field("error") != None  # noqa: E711


def pick(dice: random.Random, count: int) -> list[str]:
    return dice.sample(TOOLS, count)


def precedence(dice: random.Random) -> tuple[f.Formula, Monitor]:
    (tool,), within = pick(dice, 1), dice.randint(25, 60)
    checked = f.verification(passed=True)
    return f.always(f.tool_call(tool).implies(f.once(checked, within=within))), Precedence(tool, within)


def recent(dice: random.Random) -> tuple[f.Formula, Monitor]:
    (tool, before), within = pick(dice, 2), 100 * dice.randint(80, 200)
    return f.always(f.tool_call(tool).implies(f.once(f.tool_call(before), within_ms=within))), Recent(tool, before, within)


def quiet(dice: random.Random) -> tuple[f.Formula, Monitor]:
    (tool,), within = pick(dice, 1), dice.randint(0, 2)
    return f.always(f.tool_call(tool).implies(f.historically(~ERROR, within=within))), Quiet(tool, within)


def rate(dice: random.Random) -> tuple[f.Formula, Monitor]:
    (tool,), count, within = pick(dice, 1), dice.randint(4, 7), dice.randint(8, 25)
    return f.always(f.at_most(count, f.tool_call(tool), within=within)), Rate(tool, count, within, timed=False)


def rate_ms(dice: random.Random) -> tuple[f.Formula, Monitor]:
    (tool,), count, within = pick(dice, 1), dice.randint(3, 5), 500 * dice.randint(2, 6)
    return f.always(f.at_most(count, f.tool_call(tool), within_ms=within)), Rate(tool, count, within, timed=True)


def unlocked(dice: random.Random) -> tuple[f.Formula, Monitor]:
    locks = dice.choice(("retry", "escalate"))
    unlocked_now = f.since(~f.action("mitigation", locks), f.verification())
    return f.always(f.action("claim").implies(unlocked_now)), Unlocked(locks)


def response(dice: random.Random) -> tuple[f.Formula, Monitor]:
    (tool, answer), within = pick(dice, 2), dice.randint(20, 60)
    promised = f.eventually(f.tool_call(answer), within=within)
    return f.always(f.tool_call(tool).implies(promised)), Response(tool, answer, within)


def until(dice: random.Random) -> tuple[f.Formula, Monitor]:
    within = dice.randint(20, 40)
    return f.always(ERROR.implies(f.until(~f.action("claim"), f.verification(), within=within))), Until(within)


def following(dice: random.Random) -> tuple[f.Formula, Monitor]:
    (tool,) = pick(dice, 1)
    return f.always(~(f.tool_call(tool) & f.previous(ERROR))), Following(tool)


def capped(dice: random.Random) -> tuple[f.Formula, Monitor]:
    (tool,), limit = pick(dice, 1), dice.randint(550, 598)
    return f.always(f.tool_call(tool).implies(f.field("arguments.amount") <= limit)), Capped(tool, limit)


def falling(dice: random.Random) -> tuple[f.Formula, Monitor]:
    within, open_now = dice.randint(5, 15), f.field("state.open_subtasks")
    fell = f.once(open_now < f.previous(open_now), within=within)
    return f.always((f.field("step") >= within).implies(fell)), Falling(within)


def once_per_order(dice: random.Random) -> tuple[f.Formula, Monitor]:
    (tool,), count = pick(dice, 1), dice.randint(45, 65)
    call = f.tool_call(tool)
    return f.for_each("arguments.order", f.always(f.at_most(count, call))), OncePerOrder(tool, count)


def precedence_per_order(dice: random.Random) -> tuple[f.Formula, Monitor]:
    (tool, before), within, id = pick(dice, 2), dice.randint(300, 600), f.variable("order")
    seen = f.once(f.tool_call(before, order=id), within=within)
    formula = f.for_each(id, f.always(f.tool_call(tool, order=id).implies(seen)))
    return formula, PrecedencePerOrder(tool, before, within)


def response_per_order(dice: random.Random) -> tuple[f.Formula, Monitor]:
    (tool, answer), within, id = pick(dice, 2), dice.randint(300, 600), f.variable("order")
    promised = f.eventually(f.tool_call(answer, order=id), within=within)
    formula = f.for_each(id, f.always(f.tool_call(tool, order=id).implies(promised)))
    return formula, ResponsePerOrder(tool, answer, within)


def either(dice: random.Random) -> tuple[f.Formula, Monitor]:
    (tool,), within, limit = pick(dice, 1), dice.randint(1, 15), dice.randint(450, 590)
    cheap, claimed = f.field("arguments.amount") <= limit, f.once(f.action("claim"), within=within)
    allowed = (f.field("agent") == "triage") | cheap | claimed
    return f.always(f.tool_call(tool).implies(allowed)), Either(tool, "triage", within, limit)


def contained(dice: random.Random) -> tuple[f.Formula, Monitor]:
    detect, mitigate = dice.randint(15, 25), dice.randint(40, 60)
    then = f.eventually(f.verification() & f.eventually(f.action("message", "user"), within=mitigate), within=detect)
    return f.always(ERROR.implies(then)), Contained(detect, mitigate)


SHAPES: tuple[Shape, ...] = (
    precedence, recent, quiet, rate, rate_ms, unlocked, response, until, following, capped, falling, once_per_order,
    precedence_per_order, response_per_order, either, contained,
)  # fmt: skip


@dataclass
class Beside:
    """One formula compared with its hand-written class."""

    shape: str
    formula: f.Formula
    ours: float
    hand: float
    counts: tuple[int, int]

    @property
    def ratio(self) -> float:
        return self.ours / self.hand


def beside(shape: str, formula: f.Formula, monitor: Monitor, records: Sequence[Record]) -> Beside:
    court = Judge([contract("one", formula)])
    times: tuple[list[float], list[float]] = ([], [])
    for number, start in enumerate(range(0, len(records), BLOCK)):
        block = records[start : start + BLOCK]
        sides = [(times[0], folding(court)), (times[1], stepping([monitor]))]
        for found, work in sides if number % 2 else sides[::-1]:
            found.append(timed(work, block))
    monitor.finish()
    (outcome,) = court.finish(records[-1])
    ours, hand = (statistics.median(found) for found in times)
    return Beside(shape, formula, ours, hand, (len(outcome.violations), monitor.bad))


def random_formulas(seed: int) -> list[Beside]:
    dice = random.Random(f"shapes/{seed}")
    drawn = [(shape.__name__, *shape(dice)) for shape in SHAPES for _ in range(DRAWS)]
    records = list(helpdesk(FORMULA_STEPS, seed))
    gc.freeze()
    found = [beside(*one, records) for one in drawn]
    gc.unfreeze()
    return found


def all_together(seed: int) -> tuple[float, float]:
    """Microseconds a step for the same formulas armed at once, and for all their classes in one loop."""
    dice = random.Random(f"shapes/{seed}")
    drawn = [shape(dice) for shape in SHAPES for _ in range(DRAWS)]
    court = Judge([contract(f"c{number}", formula) for number, (formula, _) in enumerate(drawn)])
    monitors = [monitor for _, monitor in drawn]
    records, ours, hand = list(helpdesk(FORMULA_STEPS, seed)), [], []
    for start in range(0, len(records), BLOCK):
        ours.append(timed(folding(court), records[start : start + BLOCK]))
        hand.append(timed(stepping(monitors), records[start : start + BLOCK]))
    return statistics.median(ours), statistics.median(hand)


def in_fives(seed: int) -> list[float]:
    """Ratios for the same formulas in groups of five, like the five properties: one judge against a loop over five classes."""
    dice = random.Random(f"shapes/{seed}")
    drawn = [shape(dice) for shape in SHAPES for _ in range(DRAWS)]
    dice.shuffle(drawn)
    records, ratios = list(helpdesk(FORMULA_STEPS, seed)), []
    for group in (drawn[start : start + 5] for start in range(0, len(drawn) - 4, 5)):
        court = Judge([contract(f"c{number}", formula) for number, (formula, _) in enumerate(group)])
        work, by_hand, ours, hand = folding(court), stepping([monitor for _, monitor in group]), [], []
        for start in range(0, len(records), BLOCK):
            ours.append(timed(work, records[start : start + BLOCK]))
            hand.append(timed(by_hand, records[start : start + BLOCK]))
        ratios.append(statistics.median(ours) / statistics.median(hand))
    return ratios


# ---- every template at once --------------------------------------------------------------------------------------------

GIVEN: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "approved_before": ((), {"tools": "delete"}),
    "cites_sources": (("triage",), {"on": "claim"}),
    "collapse": ((), {"window": 5}),
    "consent": ((), {"send": "mail", "opted_out": ["order-3"], "recipient": "order"}),
    "declared_unsafe": (({"irreversible": ["delete", {"refund": {"amount": lambda amount: amount > 1000}}]},), {}),
    "drift_below": (
        (mat_contracts.Role(who=("planner",), allow=("tool_call:track", "tool_call:lookup", "message", "model_call")),),
        {"eps": 0.9},
    ),
    "least_privilege": (({agent: dict.fromkeys(TOOLS) for agent in ("triage", "planner", "mailer")},), {}),
    "no_duplicate_effect": (("refund",), {"key": ["order", "amount"]}),
    "no_exfiltration": ((), {"sources": "lookup", "public": ["shipped"]}),
    "no_external_side_effects": (("planner",), {}),
    "only_proposes_external_calls": (("planner",), {"external": ["refund", "mail"]}),
    "progress": ((), {"window": 10}),
    "role": (("planner",), {"allow": ["tool_call", "message"]}),
    "unsafe_parts": (({"account gone": ["delete"], "order gone": [{"cancel": {"amount": lambda amount: amount > 1000}}]},), {}),
    "verify_before_act": (("refund",), {"within": 20}),
}
"""Arguments of templates for this trace. A template with required parameters and no entry here is not armed, but listed."""


def armed_templates() -> tuple[list[Contract], list[str]]:
    """Every template that mat_contracts exports, and the names of those without arguments in this script."""
    found: dict[str, Contract] = {}
    missing = []
    for name in sorted(mat_contracts.__all__):
        template = getattr(mat_contracts, name)
        if not inspect.isfunction(template) or "Contract" not in str(inspect.signature(template).return_annotation):
            continue
        positional, named = GIVEN.get(name, ((), {}))
        try:
            made = template(*positional, **named)
        except (TypeError, MatError):
            missing.append(name)
            continue
        for one in made if isinstance(made, Iterable) else (made,):
            if isinstance(one, Contract):
                found.setdefault(one.id, one)
    return list(found.values()), missing


@dataclass
class Armed:
    templates: int
    contracts: int
    missing: list[str]
    errors: list[str]
    costly: list[tuple[float, str]]
    """Microseconds a step alone, the fold around it included, the most costly first."""
    ours: float
    span: float


def alone_us(one: Contract, records: Sequence[Record]) -> float:
    court = Judge([one])
    return statistics.median(timed(folding(court), records[start : start + BLOCK]) for start in range(0, len(records), BLOCK))


def templates(seed: int) -> Armed:
    contracts, missing = armed_templates()
    count, dice = len(contracts), random.Random(f"templates/{seed}")
    shapes = iter(SHAPES * 2)
    while len(contracts) < TEMPLATES:
        shape = next(shapes)
        contracts.append(contract(f"{shape.__name__}.{len(contracts)}", shape(dice)[0]))
    court, span = Judge(contracts), span_step()

    def spans(numbers: Sequence[int]) -> None:
        for number in numbers:
            span(number)

    records, ours, theirs = list(helpdesk(TEMPLATE_STEPS, seed)), [], []
    for start in range(0, len(records), BLOCK):
        ours.append(timed(folding(court), records[start : start + BLOCK]))
        theirs.append(timed(spans, range(BLOCK)))
    errors = [f"{outcome.contract}: {outcome.error}" for outcome in court.finish(records[-1]) if outcome.error]
    costly = sorted(((alone_us(one, records), one.id) for one in contracts), reverse=True)[:8]
    return Armed(count, len(contracts), missing, errors, costly, statistics.median(ours), statistics.median(theirs))


# ---- the tables ----------------------------------------------------------------------------------------------------------


def properties_table(largest: int) -> dict[str, Any]:
    if not (REFERENCE / "hand.py").exists():
        print(f"five properties: left out, because {REFERENCE.name}/hand.py is not next to the project")
        return {"us": None, "hand_us": None, "ratio": None, "violations_equal": None, "us_at": {}, "skipped": "no reference"}
    reference, hand = load_reference()
    measure(reference, hand, BLOCK)  # warm
    offline, beside_it = offline_us(reference, hand)
    us_at, equal, found = {}, True, Sizes()
    print(
        f"{'five properties, us a step':38} {'formulas':>9} {'by hand':>9} {'fused':>9} {'ratio':>7} {'state':>9}  violations"
    )
    for size in [size for size in SIZES if size < largest] + [largest]:
        found = measure(reference, hand, size)
        ours, theirs, fused = found.us
        us_at[str(size)] = round(ours, 3)
        equal = equal and found.counts == found.hand_counts
        said = "equal: " if found.counts == found.hand_counts else f"by hand {found.hand_counts}, ours: "
        said += " ".join(f"{name} {count}" for name, count in found.counts.items())
        label = f"{size:,} steps"
        print(f"{label:38} {ours:9.3f} {theirs:9.3f} {fused:9.3f} {ours / theirs:7.2f} {found.state:7} B  {said}")
    print(f"{'mat.judge, a verdict for each step':38} {offline:9.3f} {beside_it:9.3f} {'':9} {offline / beside_it:7.2f}")
    on = measure(reference, hand, min(largest, SIZES[1]), collector=True).us
    print(f"{'with the garbage collector on':38} {on[0]:9.3f} {on[1]:9.3f} {on[2]:9.3f} {on[0] / on[1]:7.2f}")
    ours, theirs, fused = found.us
    return {
        "us": round(ours, 3),
        "hand_us": round(theirs, 3),
        "fused_us": round(fused, 3),
        "ratio": round(ours / theirs, 3),
        "violations_equal": equal,
        "us_at": us_at,
        "judge_us": round(offline, 3),
        "state_bytes": found.state,
    }


def formulas_table(seed: int) -> dict[str, Any]:
    random_formulas(seed)  # warm
    found = random_formulas(seed)
    print(f"\n{'random formulas, us a step':38} {'formula':>9} {'by hand':>9} {'broken':>9} {'worst':>7}")
    for shape in SHAPES:
        rows = [one for one in found if one.shape == shape.__name__]
        ours, hand = (statistics.median(getattr(one, side) for one in rows) for side in ("ours", "hand"))
        wrong = "".join(f"  {f.text(one.formula)}: {one.counts}" for one in rows if one.counts[0] != one.counts[1])
        share = statistics.fmean(one.counts[0] for one in rows) / FORMULA_STEPS
        worst = max(one.ratio for one in rows)
        print(f"{shape.__name__:38} {ours:9.3f} {hand:9.3f} {share:9.2%} {worst:7.2f}  {wrong or 'equal'}")
    mean = math.exp(statistics.fmean(math.log(one.ratio) for one in found))
    worst = max(one.ratio for one in found)
    print(f"{f'{len(found)} formulas alone: mean, worst':38} {'':19} {'':9} {mean:7.2f} {worst:.2f}")
    fives = in_fives(seed)
    five_mean = math.exp(statistics.fmean(map(math.log, fives)))
    print(f"{f'{len(fives)} groups of five: mean, worst':38} {'':19} {'':9} {five_mean:7.2f} {max(fives):.2f}")
    ours, hand = all_together(seed)
    print(f"{'all of them armed at once':38} {ours:9.3f} {hand:9.3f} {'':9} {ours / hand:7.2f}")
    return {
        "random_formula_ratio": round(five_mean, 3),
        "random_formula_worst": round(max(fives), 3),
        "alone_ratio": round(mean, 3),
        "alone_worst": round(worst, 3),
        "random_formulas_equal": all(one.counts[0] == one.counts[1] for one in found),
        "together_ratio": round(ours / hand, 3),
    }


def templates_table(seed: int) -> dict[str, Any]:
    found = templates(seed)
    label = f"{found.contracts} contracts armed, {found.templates} of them templates"
    print(f"\n{label:58} {found.ours:9.3f} us a step\n{'OpenTelemetry span, eight attributes, no-op':58} {found.span:9.3f} us")
    print(f"{'span / all contracts':58} {found.span / found.ours:9.2f}")
    print(f"the most costly alone: {', '.join(f'{name} {us:.1f}' for us, name in found.costly)}")
    if found.missing:
        print(f"not armed, because arguments are missing: {', '.join(found.missing)}")
    for error in found.errors:
        print(f"crashed: {error}")
    return {
        "templates": {
            "contracts": found.contracts,
            "templates": found.templates,
            "us": round(found.ours, 3),
            "otel_us": round(found.span, 3),
            "ratio": round(found.span / found.ours, 2),
            "crashed": len(found.errors),
        }
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What judging a step costs.")
    parser.add_argument("--steps", type=int, default=SIZES[-1], help="the largest trace of the five properties")
    parser.add_argument("--seed", type=int, default=0, help="draws the parameters of the random formulas")
    given = parser.parse_args()
    found = properties_table(given.steps) | formulas_table(given.seed) | templates_table(given.seed)
    print(json.dumps(found))
    if found["violations_equal"] is False or not found["random_formulas_equal"]:
        raise SystemExit("a formula and the class written by hand do not agree")


if __name__ == "__main__":
    main()

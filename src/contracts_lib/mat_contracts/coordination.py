"""Coordination collapse: cycles, circular delegation, unanswered approvals, plans without action, lost updates.

Source: F1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, Unpack

from mat.core.digest import canonical, digest
from mat.core.errors import SpecError, did_you_mean, plural
from mat.core.record import ACTION_KINDS, ActionKind, Record
from mat.core.value import EMPTY, FrozenDict
from mat.core.verdict import Obligation
from mat.monitor.contract import Contract, Violated, kinds_of
from mat_contracts._outcome import effect_of
from mat_contracts._reading import is_inbound
from mat_contracts._shared import (
    CountedBy,
    PastWindow,
    all_of,
    count_of,
    cut,
    folded,
    judged,
    label,
    names_of,
    names_or_all,
    one_of,
    put,
    steps_text,
    too_many,
)
from mat_contracts._values import id_text, normal, normal_arguments
from mat_contracts.catalogue import Options, template

Compared: TypeAlias = Literal["actions", "names", "states"] | Callable[[Record], Any]
Along: TypeAlias = Literal["open", "task"]
RecordReader: TypeAlias = Callable[[Record], str | None]
"""Reads an id or a name from a record; None or "" if it has none."""
EXECUTES: Final[frozenset[ActionKind]] = frozenset(("tool_call", "retrieval", "memory_write", "delegation", "final_response"))
"""Actions that carry out a plan if they take effect."""
FAN_OUT: Final = 64
"""Latest delegations that are remembered although they may have ended without a record of it."""
OPEN: Final = 1_000
"""Delegations, or requests for approval, that may be open at once. With more the contract is unknown."""
_TEXT: Final = 40
"""Characters of one part of a cycle in a message."""


# -- oscillation ----------------------------------------------------------------------------------------------------------


_Runs: TypeAlias = tuple[tuple[int, int], ...]
"""For each period from 1: how many entries in a row equal the entry one period earlier, and the first step of that run."""
_Track: TypeAlias = tuple[tuple[Any, ...], tuple[int, ...], _Runs]
"""The keys of the latest entries, oldest first; their steps; and the runs."""


@template
def no_oscillation(
    *,
    max_period: int = 4,
    times: int = 3,
    min_period: int = 2,
    compare: Compared = "actions",
    signals: str | Iterable[str] | None = None,
    by: CountedBy = "run",
    kinds: ActionKind | Iterable[ActionKind] | None = None,
    **options: Unpack[Options],
) -> Contract:
    """No cycle of `min_period` to `max_period` actions (or states) occurs `times` times in a row.

    A cycle counts with its shortest period, and again after every further `times` rounds. A step costs at most `max_period`
    comparisons, whatever `times` is.

    - `max_period`, `min_period`: the longest and the shortest cycle, in entries. A cycle of period 1 is a repetition, which
      `no_retry_storm` judges, so the default begins at 2.
    - `times`: how often in a row a cycle must occur to be a violation.
    - `compare`: what makes two entries equal. "actions" compares agent, action and arguments ("A17" and " a17 " are the same),
      "names" the same without the arguments, "states" the state projection each time it changes (an unchanged state is the
      subject of `progress`). A
      function of the record returns plain data to compare, or None to skip the record.
    - `signals`: the signals that "states" compares, by default all.
    - `by`: "run" compares all entries in the order of their steps, "agent" those of each agent separately.
    - `kinds`: the action kinds that are compared, by default all.

    Raises `mat.MatError` for a period or a count below its minimum, for an unknown action kind, and for `signals` without
    `compare="states"`.

    Precision 1.00, recall 1.00 on 22 traces written without knowledge of this template.

    Source: A2.F1.

    >>> from mat_contracts.traces import broken, record, trace
    >>> ask, tell = record("message", "writer", agent="critic"), record("message", "critic", agent="writer")
    >>> broken(no_oscillation(times=2), trace(ask, tell, ask))
    ()
    >>> broken(no_oscillation(times=2), trace(ask, tell, ask, tell))
    (3,)
    """
    count_of(min_period, "min_period", least=1)
    count_of(max_period, "max_period", least=min_period)
    count_of(times, "times", least=2)
    one_of(by, "by", ("run", "agent"))
    if not callable(compare):
        one_of(compare, "compare", ("actions", "names", "states"))
    if signals is not None and compare != "states":
        raise SpecError(
            what="signals= is given without compare='states'",
            why="signals are parts of a state",
            fix="add compare='states', or omit signals=",
        )
    chosen = None if signals is None else names_of(signals, "signals")
    key_of, describe = _comparison(compare, chosen)
    blank: _Runs = ((0, -1),) * max_period
    fresh: _Track = ((), (), blank)
    periods = tuple(range(min_period, max_period + 1))
    actions, changing, everyone = compare == "actions", compare == "states", by == "run"

    def step(state: Any, record: Record) -> Any:
        action = record.action  # inlined for speed: this is the default
        key: Any = (record.agent, action.kind, action.name, normal_arguments(action.arguments)) if actions else key_of(record)
        if key is None:
            return state
        keys, steps, runs = state if everyone else state.get(record.agent, fresh)
        if changing and keys and keys[-1] == key:
            return state
        came = key in keys
        runs = _runs_after(keys, steps, runs, key, times=times) if came else blank
        if len(keys) == max_period:
            keys, steps = keys[1:], steps[1:]
        new: _Track = ((*keys, key), (*steps, record.step), runs)
        after = new if everyone else put(state, record.agent, new)
        if not came:
            return after
        who = "" if everyone else record.agent
        found = [
            _cycle_violation(new, period, times, describe, who) for period in periods if _completes_cycle(runs, period, times)
        ]
        return judged(found, after)

    what = "states" if compare == "states" else "actions"
    return Contract(
        id="coordination.no_oscillation", step=step, start=fresh if everyone else EMPTY, kinds=_known_kinds(kinds),
        repair="count the rounds: after the second round, change the plan, ask for help, or end the run",
        text=f"no cycle of {min_period} to {max_period} {what} occurs {times} times in a row",
    )  # fmt: skip


def _comparison(compare: Compared, signals: Sequence[str] | None) -> tuple[Callable[[Record], Any], Callable[[Any], str]]:
    """A function that maps a record to its compared key, and one that renders a key for a message."""
    if callable(compare):
        return compare, _key_text
    if compare == "names":
        return lambda record: (record.agent, record.action.kind, record.action.name), _action_text
    if compare == "actions":
        return lambda record: (record.agent, record.action.kind, record.action.name, record.action.arguments), _action_text
    if signals is None:
        return lambda record: record.state or None, _key_text

    def projected(record: Record) -> FrozenDict | None:
        return FrozenDict({name: record.state[name] for name in signals if name in record.state}) or None

    return projected, _key_text


def _action_text(key: tuple[Any, ...]) -> str:
    return f"{key[0]}:{key[2] or key[1]}"


def _key_text(value: Any) -> str:
    return cut(value if isinstance(value, str) else canonical(value), _TEXT)


def _runs_after(keys: tuple[Any, ...], steps: tuple[int, ...], runs: _Runs, key: Any, *, times: int) -> _Runs:
    """The runs after one more entry. A long run is shortened by whole cycles, so that the state stays finite."""
    found = [(0, -1)] * len(runs)
    for place, entry in enumerate(reversed(keys)):
        if entry == key:
            length, since = runs[place]
            period = place + 1
            if length == 0:
                since = steps[-period]
            length += 1
            if length >= (2 * len(runs) + period) * times:
                length -= period * times
            found[place] = (length, since)
    return tuple(found)


def _completes_cycle(runs: _Runs, period: int, times: int) -> bool:
    """Whether this entry completes `times` rounds, or a multiple of them, of a cycle with this shortest period."""
    beyond = runs[period - 1][0] - period * (times - 1)
    if beyond < 0 or beyond % (period * times):
        return False
    return not any(period % part == 0 and runs[part - 1][0] + part >= period * times for part in range(1, period))


def _cycle_violation(track: _Track, period: int, times: int, describe: Callable[[Any], str], who: str) -> Violated:
    keys, steps, runs = track
    since = runs[period - 1][1]
    cycle = " -> ".join(describe(key) for key in keys[-period:])
    return Violated(
        f"a cycle of period {period} occurred {times} times in a row, since step {since}: {cycle}",
        instance=who, since=since, witness=tuple(sorted({since, *steps[-period:]})),
        wanted=f"at most {times - 1} rounds in a row",
    )  # fmt: skip


# -- delegation -----------------------------------------------------------------------------------------------------------


_Path: TypeAlias = tuple[tuple[str, int], ...]
"""(agent, the step at which it delegated or asked), in order."""


@dataclass(frozen=True, slots=True)
class _Edge:
    """A delegation. `live`: the delegator waits. Otherwise it may have ended; if the delegate acts again, it has not."""

    delegator: str
    delegate: str
    step: int
    sealed_seq: int
    live: bool = True


@dataclass(frozen=True, slots=True)
class _Graph:
    """Open delegations, oldest first, and task digest -> (its holders as (agent, step), the step of the latest hand-off)."""

    edges: tuple[_Edge, ...] = ()
    tasks: FrozenDict = EMPTY


@template
def no_circular_delegation(
    *,
    along: Along | Iterable[Along] = ("open", "task"),
    within: int = 200,
    **options: Unpack[Options],
) -> Contract:
    """No delegation closes a circle A -> B -> ... -> A, of agents that wait for each other or that hand on the same task.

    A violation names the circle and the delegation that closes it. A delegation that failed or was blocked hands over nothing;
    a blocked one that would close a circle counts as attempted. An agent that delegates to its own name is a circle only if the
    record names the delegator.

    - `along`: which circles count, one or both of these:
      - "open": circles of open delegations. A trace records when a delegation begins, but not always when it ends. It counts as
        ended when it is handed back (its `with` block ends), when the delegate answers (a message to the delegator, or a final
        response), or when the delegator acts again, which also ends all delegations below it. A delegator that delegates again
        may be waiting for both delegates (a fan-out): its earlier delegation counts as ended until that delegate acts without a
        new request.
      - "task": circles of hand-offs of one task, which is the same non-empty text apart from case, spaces and final
      punctuation. An agent
        that answers an earlier holder of the task gives the task back.
    - `within`: a task is forgotten if no agent hands it on for this many steps.

    Raises `mat.MatError` for a window below 1 and for another `along` than "open" and "task".

    Precision 1.00, recall 1.00 on 24 traces written without knowledge of this template.

    Source: A2.F1.

    >>> from mat_contracts.traces import broken, record, trace
    >>> down = record("delegation", "worker", {"task": "count"}, agent="lead")
    >>> up, answer = record("delegation", "lead", {"task": "add"}, agent="worker"), record("message", "lead", agent="worker")
    >>> broken(no_circular_delegation(), trace(down, answer, up))
    ()
    >>> broken(no_circular_delegation(), trace(down, up))
    (1,)
    """
    count_of(within, "within", least=1)
    ways = names_of(along, "along")
    for way in ways:
        one_of(way, "along", ("open", "task"))

    def step(state: _Graph, record: Record) -> _Graph | Violated:
        kind = record.action.kind
        if (kind != "delegation" and not state.edges and not state.tasks) or is_inbound(record):
            return state
        edges = _edges_after(state.edges, record) if state.edges else state.edges
        tasks = _tasks_after_answer(state.tasks, record) if state.tasks and kind == "message" else state.tasks
        delegation = _delegation(record)
        if delegation is None:
            return state if edges is state.edges and tasks is state.tasks else _Graph(edges, tasks)
        delegator, delegate = delegation
        old = _Graph(edges, tasks)
        circle: _Path = ()
        again: _Path = ()
        if "open" in ways:
            circle = _circle(edges, delegator, delegate, record.step)
            edges = _with_edge(edges, _Edge(delegator, delegate, record.step, record.sealed_seq))
        if "task" in ways:
            tasks, again = _tasks_after_hand_off(tasks, delegator, delegate, record, within)
        new = old if record.blocked else _Graph(edges, tasks)
        if circle:
            return _circle_violation(circle, delegate, record.step, "that are all open", new)
        return _circle_violation(again, delegate, record.step, "of one task", new) if again else new

    return Contract(
        id="coordination.no_circular_delegation", step=step, start=_Graph(),
        repair="let each agent answer whoever asked it, and refuse a task that it had before",
        text="delegations form no cycle of agents",
    )  # fmt: skip


def _delegation(record: Record) -> tuple[str, str] | None:
    """(delegator, delegate) of a delegation that was not refused; None for any other record."""
    if record.action.kind != "delegation" or (record.observation.error is not None and not record.blocked):
        return None
    delegator = record.action.arguments.get("delegator")
    if isinstance(delegator, str) and delegator:
        return delegator, record.action.name
    return None if record.agent == record.action.name else (record.agent, record.action.name)


def _edges_after(edges: tuple[_Edge, ...], record: Record) -> tuple[_Edge, ...]:
    """The open delegations after a record: its agent may resume one, answer one, or end those that it made."""
    agent, kind, name = record.agent, record.action.kind, record.action.name
    if kind == "handback":
        delegate = record.action.arguments.get("agent", agent)
        return tuple(edge for edge in edges if (edge.delegator, edge.delegate) != (name, delegate))
    edges = _reopened(edges, agent)
    mine = [edge for edge in edges if edge.delegate == agent]
    answers = kind == "message" and not record.blocked
    if (answers and any(edge.delegator == name for edge in mine)) or (mine and kind in ("final_response", "termination")):
        edges = tuple(e for e in edges if e.delegate != agent or (kind == "message" and e.delegator != name))
    if not any(edge.delegator == agent and edge.sealed_seq < record.asked_seq for edge in edges):
        return edges
    ended, below = _ended_delegations(edges, agent, record.asked_seq)
    if kind == "delegation":
        edges = tuple(replace(edge, live=False) if index in ended else edge for index, edge in enumerate(edges))
        dropped = [edge for edge in edges if not edge.live][:-FAN_OUT]
        return tuple(edge for edge in edges if edge not in dropped) if dropped else edges
    return tuple(edge for index, edge in enumerate(edges) if index not in ended and (edge.live or edge.delegator not in below))


def _reopened(edges: tuple[_Edge, ...], agent: str) -> tuple[_Edge, ...]:
    """Mark the latest delegation to an active agent as live if none is, then do the same for its delegator, and so on."""
    climbed: set[str] = set()
    while agent not in climbed:
        climbed.add(agent)
        mine = [edge for edge in edges if edge.delegate == agent]
        if not mine or any(edge.live for edge in mine):
            break
        edges = tuple(replace(edge, live=True) if edge is mine[-1] else edge for edge in edges)
        agent = mine[-1].delegator
    return edges


def _ended_delegations(edges: Sequence[_Edge], top: str, asked_seq: int) -> tuple[frozenset[int], frozenset[str]]:
    """(indices of the delegations that end when `top` acts, the agents that made them)."""
    ended: set[int] = set()
    reached, waiting = {top}, [top]
    while waiting:
        agent = waiting.pop()
        for index, edge in enumerate(edges):
            if edge.delegator != agent or not edge.live or (agent == top and edge.sealed_seq >= asked_seq):
                continue
            ended.add(index)
            asked_by_others = any(
                other.live and other.delegate == edge.delegate and place not in ended for place, other in enumerate(edges)
            )
            if edge.delegate not in reached and not asked_by_others:
                reached.add(edge.delegate)
                waiting.append(edge.delegate)
    return frozenset(ended), frozenset(reached)


def _with_edge(edges: tuple[_Edge, ...], new: _Edge) -> tuple[_Edge, ...]:
    others = tuple(edge for edge in edges if (edge.delegator, edge.delegate) != (new.delegator, new.delegate))
    if len(others) >= OPEN:
        raise too_many(
            f"more than {OPEN} delegations are open at once", "judge shorter episodes, or let delegates answer with a message"
        )
    return (*others, new)


def _circle(edges: Sequence[_Edge], delegator: str, delegate: str, step: int) -> _Path:
    """The shortest way from the delegate back to the delegator over open delegations, as (agent, step it delegated at)."""
    if delegator == delegate:
        return ((delegator, step),)
    came: dict[str, _Edge | None] = {delegate: None}
    waiting = [delegate]
    for agent in waiting:
        for edge in edges:
            if edge.live and edge.delegator == agent and edge.delegate not in came:
                came[edge.delegate] = edge
                waiting.append(edge.delegate)
    path = [(delegator, step)]
    back = came.get(delegator)
    while back is not None:
        path.insert(0, (back.delegator, back.step))
        back = came[back.delegator]
    return tuple(path) if len(path) > 1 else ()


def _tasks_after_answer(tasks: FrozenDict, record: Record) -> FrozenDict:
    """The tasks after a message: a holder that answers an earlier holder gives the task back."""
    to, holder, changed = record.action.name, record.agent, {}
    for task, (path, last) in tasks.items():
        if path[-1][0] == holder and holder != to and not record.blocked:
            place = next((index for index, (agent, _) in enumerate(path) if agent == to), None)
            if place is not None:
                changed[task] = (path[: place + 1], last)
    return FrozenDict({**tasks, **changed}) if changed else tasks


def _tasks_after_hand_off(
    tasks: FrozenDict, delegator: str, delegate: str, record: Record, within: int
) -> tuple[FrozenDict, _Path]:
    """The tasks after one more hand-off, and the circle that it closes, if any."""
    text = record.action.arguments.get("task")
    kept = {task: known for task, known in tasks.items() if record.step - known[1] <= within}
    if not isinstance(text, str) or not folded(text) or delegator == delegate:
        return (tasks if len(kept) == len(tasks) else FrozenDict(kept)), ()
    task = digest(_task(text))[:32]
    path, _ = kept.pop(task, ((), 0))
    agents = [agent for agent, _ in path]
    path = path[: agents.index(delegator)] if delegator in agents else ()
    if delegate in agents and agents.index(delegate) < len(path):
        start = agents.index(delegate)
        circle = (*path[start:], (delegator, record.step))
        kept[task] = ((*path[:start], (delegate, record.step)), record.step)
        return FrozenDict(kept), circle
    kept[task] = ((*path, (delegator, record.step), (delegate, record.step)), record.step)
    return FrozenDict(kept), ()


def _task(text: str) -> str:
    """A task in normal form: without case, spaces around and between words, and punctuation at its end."""
    return id_text(text).rstrip(" .!")


def _circle_violation(circle: Sequence[tuple[str, int]], delegate: str, step: int, how: str, state: _Graph) -> Violated:
    names = " -> ".join([*(agent for agent, _ in circle), delegate])
    steps = tuple(sorted({*(at for _, at in circle), step}))
    last = circle[-1][0]
    return Violated(
        f"{names}: a cycle of delegations {how}", state=state, instance=names, witness=steps,
        wanted=f"{last} answers or does the work, instead of delegating to {delegate}",
    )  # fmt: skip


# -- approvals ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request for approval. `sealed_seq` is -1 while no answer is recorded. `dropped`: the wait was cancelled."""

    request: str
    asker: str
    approver: str
    step: int
    at_ms: int
    sealed_seq: int
    dropped: bool = False


@template
def no_approval_deadlock(
    *,
    within: int = 20,
    within_ms: int | None = None,
    asks: RecordReader | None = None,
    approver: RecordReader | None = None,
    answers: RecordReader | None = None,
    **options: Unpack[Options],
) -> Contract:
    """Every request for approval is answered or withdrawn in time, and no agents wait for each other's approval.

    A circle of requests (A waits for B, B for A, or longer) is a violation when it closes, even if it is resolved later. A
    request that is open at the end of the trace is a violation too. If a trace records requests but not their answers, all of
    them are open; give `answers`.

    By default an approval record is a request. It is answered if the record holds a reply or an error (`mat.approval` records
    both), or by a message from its approver to its asker. A request whose wait was cancelled is withdrawn when its asker goes
    on.

    - `within`: the number of steps in which a request must be answered or withdrawn.
    - `within_ms`: the same limit in milliseconds of run time, in addition.
    - `asks`: record -> the id of the request that it makes. By default the argument `id` of an approval record, else its agent
      and name.
    - `approver`: record -> the agent that it asks. By default the argument `approver` or `to`, else the run's approver.
    - `answers`: record -> the id of the request that it answers or withdraws, in addition to the default.

    Raises `mat.MatError` for an invalid window.

    Precision 1.00, recall 1.00 on 21 traces written without knowledge of this template.

    Source: A2.F1.

    >>> from mat_contracts.traces import broken, record, trace
    >>> a, b = record("approval", "a", {"approver": "bo"}, agent="al"), record("approval", "b", {"approver": "al"}, agent="bo")
    >>> yes, no = record("message", "al", agent="bo"), record("message", "bo", agent="al")
    >>> broken(no_approval_deadlock(), trace(a, yes, b, no))
    ()
    >>> broken(no_approval_deadlock(), trace(a, b, yes, no))
    (1,)
    """
    window = PastWindow.of(within, within_ms)
    asked, asked_of = asks or _approval_id, approver or _approver
    wanted = f"an answer, or the request withdrawn, within {window}"

    def unanswered(item: _Asked, record: Record) -> Violated:
        whom = f" {item.approver}" if item.approver else ""
        return Violated(
            f"{item.asker} asked{whom} for {item.request} at step {item.step} and got no answer within {window}",
            step=item.step, instance=item.request, witness=(item.step, record.step), wanted=wanted,
        )  # fmt: skip

    def step(state: tuple[_Asked, ...], record: Record) -> tuple[_Asked, ...] | Violated:
        if not state and asks is None and record.action.kind != "approval":
            return state
        answered = answers(record) if answers is not None else None
        waiting = tuple(
            item for item in state if not 0 <= item.sealed_seq < record.asked_seq and not _is_withdrawn(item, record)
        )
        late = [item for item in waiting if not window.holds(record.step - item.step, record.at_ms - item.at_ms)]
        found = [unanswered(item, record) for item in late]
        pending = tuple(item for item in waiting if item not in late and not _is_answer(item, record, answered))
        request = asked(record)
        if request:
            new = _request(record, request, asked_of(record) or "", pending)
            found += _approval_circle(pending, new)
            pending = tuple(item for item in pending if item.request != request)
            if new.sealed_seq >= 0 and not window.holds(0, record.sealed_ms - new.at_ms):
                found.append(unanswered(new, record))
            else:
                pending = (*pending, new)
            if len(pending) > OPEN:
                raise too_many(f"more than {OPEN} requests for approval are open", "give a smaller within=")
        if found:
            return judged(found, pending)
        return state if pending == state else pending

    def finish(state: tuple[_Asked, ...]) -> Violated | None:
        return all_of([
            Violated(
                f"{item.asker} asked for {item.request} at step {item.step} and got no answer by the end of the trace",
                step=item.step, instance=item.request, witness=(item.step,), wanted=wanted,
            )
            for item in state
            if item.sealed_seq < 0
        ])  # fmt: skip

    def obligations(state: tuple[_Asked, ...]) -> tuple[Obligation, ...]:
        return tuple(
            Obligation(text=f"{item.request} is answered or withdrawn", since=item.step, instance=item.request)
            for item in state
            if item.sealed_seq < 0
        )

    return Contract(
        id="coordination.no_approval_deadlock", step=step, start=(), finish=finish, obligations=obligations,
        repair="give requests a timeout and a deputy, and let no agent approve while it waits for an approval itself",
        text=f"approvals are answered within {within} steps, and no agents wait for each other's",
    )  # fmt: skip


def _approval_id(record: Record) -> str | None:
    if record.action.kind != "approval":
        return None
    request = record.action.arguments.get("id")
    return _id_text(request) or f"{record.agent}/{record.action.name or 'approval'}"


def _approver(record: Record) -> str | None:
    arguments = record.action.arguments
    return next((arguments[name] for name in ("approver", "to") if _id_text(arguments.get(name))), None)


def _id_text(value: object) -> str:
    """An id as text; "" if the value is no id."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _request(record: Record, request: str, approver: str, pending: Sequence[_Asked]) -> _Asked:
    """The request that a record makes. If the same request is still open, the wait counts from the first one."""
    seen = record.observation
    own = record.action.kind == "approval"
    closed = own and not seen.cancelled and (seen.value is not None or seen.error is not None)
    before = next((item for item in pending if item.request == request and item.sealed_seq < 0), None)
    step, at_ms = (record.step, record.at_ms) if before is None else (before.step, before.at_ms)
    return _Asked(
        request, record.agent, approver, step, at_ms, record.sealed_seq if closed else -1, dropped=own and seen.cancelled
    )


def _is_withdrawn(item: _Asked, record: Record) -> bool:
    """Whether the wait was cancelled and this record shows that the asker goes on."""
    return item.dropped and record.agent == item.asker


def _is_answer(item: _Asked, record: Record, answered: str | None) -> bool:
    if answered == item.request:
        return True
    talks = record.action.kind == "message" and not record.blocked
    return bool(item.approver) and talks and record.agent == item.approver and record.action.name == item.asker


def _approval_circle(pending: Sequence[_Asked], new: _Asked) -> list[Violated]:
    """The violation of a circle of waiting agents that a new request closes, in a list; empty if it closes none."""
    if not new.approver:
        return []
    edges = [_Edge(item.asker, item.approver, item.step, item.sealed_seq) for item in pending if item.approver]
    circle = _circle(edges, new.asker, new.approver, new.step)
    if not circle:
        return []
    names = " -> ".join([*(agent for agent, _ in circle), new.approver])
    return [
        Violated(
            f"{names}: each waits for the approval of the next", instance=names, witness=tuple(sorted(at for _, at in circle)),
            wanted=f"{new.asker} answers what it was asked before it asks {new.approver}",
        )
    ]  # fmt: skip


# -- plans ----------------------------------------------------------------------------------------------------------------


@template
def replanning_without_execution(
    *,
    times: int = 3,
    planning: Callable[[Record], bool] | None = None,
    effective: Callable[[Record], bool] | None = None,
    by: CountedBy = "run",
    **options: Unpack[Options],
) -> Contract:
    """Plans are carried out: there are never `times` plans in a row without an effective action between them.

    Each further `times` plans without an action are one more violation. By default a plan is a `mat.mitigate("replan")`, and an
    effective action is one of EXECUTES that took effect without an error. A call that was blocked or failed, or whose reply
    reports a failure, carries nothing out.

    - `times`: how many plans in a row are a violation.
    - `planning`: record -> whether it is a plan too, such as a model call of the planner or a message with a plan.
    - `effective`: record -> whether it is an effective action, instead of the default.
    - `by`: "run" lets one agent plan and another act, "agent" counts the plans and actions of each agent separately.

    Raises `mat.MatError` for a count below 1.

    Precision 1.00, recall 1.00 on 21 traces written without knowledge of this template.

    Source: A2.F1.

    >>> from mat_contracts.traces import broken, record, trace
    >>> replan, call = record("mitigation", "replan"), record("tool_call", "book")
    >>> broken(replanning_without_execution(times=2), trace(replan, call, replan))
    ()
    >>> broken(replanning_without_execution(times=2), trace(replan, record("tool_call", "book", error="timeout"), replan))
    (2,)
    """
    count_of(times, "times", least=1)
    one_of(by, "by", ("run", "agent"))
    done = effective or _took_effect

    def step(state: FrozenDict, record: Record) -> FrozenDict | Violated:
        who = record.agent if by == "agent" else ""
        if _is_replan(record) or (planning is not None and planning(record)):
            plans = (*state.get(who, ()), record.step)
            if len(plans) < times:
                return put(state, who, plans)
            return Violated(
                f"{plural(times, 'plan')} ({steps_text(plans)}) without an action that took effect between them",
                state=put(state, who, ()), instance=who, witness=plans,
                wanted="an action that takes effect before the next plan",
            )  # fmt: skip
        return put(state, who, ()) if who in state and done(record) else state

    own = planning is not None or effective is not None
    return Contract(
        id="coordination.replanning_without_execution", step=step, start=EMPTY,
        kinds=None if own else EXECUTES | {"mitigation"},
        repair="carry out the first step of a plan before making another, or report what prevents it",
        text=f"never {times} plans in a row without an effective action",
    )  # fmt: skip


def _is_replan(record: Record) -> bool:
    return record.action.kind == "mitigation" and record.action.name == "replan"


def _took_effect(record: Record) -> bool:
    return record.action.kind in EXECUTES and record.observation.error is None and effect_of(record) == "yes"


# -- memory ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cell:
    """The last write of one memory key, and who has read it since, (agent, when the read was sealed)."""

    agent: str
    step: int
    sealed_seq: int
    value: Any
    readers: tuple[tuple[str, int], ...] = ()


@template
def memory_collision(
    memory: str | Iterable[str] | None = None,
    *,
    within: int = 20,
    **options: Unpack[Options],
) -> Contract:
    """No agent overwrites another agent's write of a memory key without having read it: there are no lost updates.

    The contract judges two writes of one key by different agents. The second agent has read the first value if it read the key
    before it asked to write, and that read was asked after the first write was sealed or returned the written value. If a fault
    changed the reply of the read, only the returned value counts. Writing the same value again loses nothing. Blocked writes do
    not count, and neither do first writes that may have failed.

    - `memory`: the names of the memories that are judged, by default all.
    - `within`: the largest distance of the two writes, in steps. Concurrent writes (neither was sealed before the other was
      asked) are judged at any distance; with 0, only they are.

    Raises `mat.MatError` for a window below 0 and an empty name.

    Precision 1.00, recall 1.00 on 25 traces written without knowledge of this template.

    Source: A2.F1.

    >>> from mat_contracts.traces import broken, record, trace
    >>> one, two = (record("memory_write", "notes", {"key": "k", "value": who}, agent=who) for who in ("al", "bo"))
    >>> broken(memory_collision(), trace(one, record("memory_read", "notes", {"key": "k"}, agent="bo", value="al"), two))
    ()
    >>> broken(memory_collision(), trace(one, two))
    (1,)
    """
    count_of(within, "within", least=0)
    names = names_or_all(memory, "memory")

    def step(state: FrozenDict, record: Record) -> FrozenDict | Violated:
        arguments = record.action.arguments
        if "key" not in arguments or (names is not None and record.action.name not in names):
            return state
        cell_key = f"{record.action.name}/{_id_text(arguments['key']) or canonical(arguments['key'])}"
        cell: _Cell | None = state.get(cell_key)
        if record.action.kind == "memory_read":
            if cell is None or not _has_seen(record, cell):
                return state
            others = tuple(item for item in cell.readers if item[0] != record.agent)
            first = min((sealed for agent, sealed in cell.readers if agent == record.agent), default=record.sealed_seq)
            seen = (*others, (record.agent, min(first, record.sealed_seq)))
            return put(state, cell_key, replace(cell, readers=seen))
        if record.effected == "no":
            return state
        value = ("deleted",) if "value" not in arguments else ("value", arguments["value"])
        found = None if cell is None else _collision(cell, record, value, within, cell_key)
        if record.effected == "yes" or cell is None:
            kept = {key: old for key, old in state.items() if key != cell_key and _is_close(old, record, within)}
            if record.effected == "yes":
                kept[cell_key] = _Cell(record.agent, record.step, record.sealed_seq, value)
            state = FrozenDict(kept)
        return state if found is None else replace(found, state=state)

    return Contract(
        id=f"{'memory' if names is None else label(names)}.collision", step=step, start=EMPTY,
        kinds=frozenset(("memory_read", "memory_write")),
        repair="read the key before writing it, write under a lock, or give each agent a key of its own",
        text="nobody overwrites another agent's write of a memory key without having read it",
    )  # fmt: skip


def _has_seen(record: Record, cell: _Cell) -> bool:
    seen, error = record.observation, record.observation.error
    if record.agent == cell.agent or (error is not None and error.type != "KeyError") or seen.cancelled:
        return False
    if error is None and ("value", seen.value) == cell.value:
        return True
    return record.raw is None and cell.sealed_seq < record.asked_seq


def _collision(cell: _Cell, record: Record, value: tuple[Any, ...], within: int, key: str) -> Violated | None:
    if cell.agent == record.agent or normal(cell.value) == normal(value) or not _is_close(cell, record, within):
        return None
    if any(agent == record.agent and sealed < record.asked_seq for agent, sealed in cell.readers):
        return None
    concurrent = cell.sealed_seq >= record.asked_seq
    how = "while that write was in progress" if concurrent else "without having read it"
    return Violated(
        f"{record.agent} wrote {key} at step {record.step} over the value that {cell.agent} wrote at step {cell.step}, {how}",
        instance=key, witness=(cell.step, record.step),
        wanted=f"{record.agent} reads {key} after step {cell.step} before it writes",
    )  # fmt: skip


def _is_close(cell: _Cell, record: Record, within: int) -> bool:
    return record.step - cell.step <= within or cell.sealed_seq >= record.asked_seq


# -- arguments ------------------------------------------------------------------------------------------------------------


def _known_kinds(kinds: ActionKind | Iterable[ActionKind] | None) -> frozenset[ActionKind] | None:
    chosen = kinds_of(kinds)
    unknown = sorted((chosen or frozenset()) - set(ACTION_KINDS))
    if unknown:
        raise SpecError(
            what=f"unknown action kind: {', '.join(map(repr, unknown))}{did_you_mean(unknown[0], ACTION_KINDS)}",
            fix=f"choose from {', '.join(ACTION_KINDS)}",
        )
    return chosen

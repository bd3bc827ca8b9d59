"""The dynamic tree: which injections a finished run offers, and the key by which equal ones are skipped.

A child injects one perturbation at a site that its parent's run reached, called after every site injected so far. So
sites that exist only after a fault (a retry, a fallback) need no special case, and every schedule whose perturbations are
all reached has exactly one path: its perturbations in the order in which their sites are asked in its own run. That holds
with concurrency too, because a perturbation acts after its site is asked and cannot change what was asked before.

What the tree leaves out of the grid, and why each cut is sound:
- Operators of another boundary or action kind, and ports that do not allow the operator: they cannot bind.
- Calls that governance blocked: the fault layer lies behind the mediator, so nothing would be injected there.
- Sites in the range of an earlier perturbation: a call carries one effect.
- Grid points for which the operator says, from the unperturbed record, that nothing would change, and those that another
  executed point covers because the call is declared to change nothing (`mat_search.covering`). A range is left out only where
  that holds for each ask it covers: until the first that matters, the run is the parent's own. If calls of one
  port overlap, what the operator would have seen is uncertain, so it is not called. The same holds if another affordable
  injection could come between: into a call inside this one, or between the calls of a range.
- Injections that cost more than the rest of the budget.
- Exceptions of other clients than those that the port raises (`Run.errors`): each point that injects a failure stands once for
  each of them, and for no more.
- Who goes first, if nothing else could run when the call was asked: holding the call would change nothing. A site of the order
  boundary represents a call of another boundary, and its perturbation, too, acts after the call was asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, TypeAlias

from mat.core.digest import canonical, digest
from mat.core.operator import ERRORS, GridPoint, OperatorSpec, always_relevant, with_errors
from mat.core.record import Record
from mat.core.run import PortErrors, Run
from mat.core.site import ABOUT_CALLS, Site, parse_site, port_about, site_about, site_text
from mat.core.spec import NO_SCHEDULE, Perturbation, Schedule
from mat.core.value import FrozenDict, fast_constructor
from mat_search.covering import Covering

GridKey: TypeAlias = tuple[str, str]
"""(digest of everything the future depends on at a site, the injection there)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One grid point of one operator; `text` identifies it. `errors`: the client whose exceptions it injects, "" for any."""

    operator: OperatorSpec
    choice: GridPoint
    text: str
    errors: str = ""

    @property
    def parameters(self) -> FrozenDict:
        return with_errors(self.choice.parameters, self.errors)


class Grid:
    """The operators' grid, in an order that does not depend on the order of the operators.

    `covering` decides which of its points are left out; by default those that the grid's own points cover.
    """

    def __init__(self, operators: Sequence[OperatorSpec], covering: Covering | None = None) -> None:
        self.covering = Covering(operators) if covering is None else covering
        options: dict[str, Option] = {}
        for operator in sorted(operators, key=lambda item: item.id):
            for choice in operator.choices:
                text = canonical([operator.id, choice.parameters, choice.span])
                options.setdefault(text, Option(operator=operator, choice=choice, text=text))
        self.options = tuple(options.values())
        self._named: dict[tuple[str, str], Option] = {}
        self._guessed: dict[str, PortErrors] = {}
        self.least = min((option.choice.cost for option in self.options), default=1)

    def texts(self, operator: str, points: Sequence[FrozenDict]) -> tuple[str, ...]:
        """The texts of an operator's grid points, by their parameters."""
        if not points:
            return ()
        wanted = {canonical(point) for point in points}
        clients = sorted({str(point.get(ERRORS, "")) for point in points})
        mine = [option for option in self.options if option.operator.id == operator]
        named = [self.naming(option, client) for client in clients for option in mine]
        return tuple(option.text for option in named if canonical(option.parameters) in wanted)

    def naming(self, option: Option, client: str) -> Option:
        """The option with the exceptions of a client; "" leaves them to the port."""
        if not client:
            return option
        found = self._named.get((option.text, client))
        if found is None:
            text = canonical([option.operator.id, with_errors(option.choice.parameters, client), option.choice.span])
            found = self._named[option.text, client] = replace(option, text=text, errors=client)
        return found

    def by_client(self, option: Option, port: PortErrors | None) -> tuple[Option, ...]:
        """The points that stand for an option at a port: one for each client whose exceptions may be injected there."""
        if port is None:
            return (option,)
        kinds = option.operator.failures(option.choice.parameters)
        clients = dict.fromkeys(str(name) for kind in kinds for name in _listed(port.kinds.get(kind)))
        if clients and port.guess:
            self._guessed[port.port] = port
        return tuple(self.naming(option, client) for client in clients) or (option,)

    def naming_clients(self, schedule: Schedule, run: Run) -> Schedule:
        """The schedule with the likeliest client in each perturbation of `run` that injects a failure and names none."""
        ports, operators = {item.port: item for item in run.errors}, {item.operator.id: item.operator for item in self.options}
        named = []
        for item in schedule:
            port, operator = ports.get(f"{item.site.boundary}:{item.site.name}"), operators.get(item.operator)
            kinds = () if port is None or operator is None else operator.failures(item.parameters)
            clients = [str(name) for kind in kinds for name in _listed(port.kinds.get(kind) if port else None)]
            if clients and ERRORS not in item.parameters:
                item = replace(item, parameters=with_errors(item.parameters, clients[0]))
            named.append(item)
        return Schedule(tuple(named))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The guesses that points rest on, in words, and the declarations for which points were left out."""
        ports: dict[str, list[str]] = {}
        for name in sorted(self._guessed):
            item = self._guessed[name]
            ports.setdefault(f"those of {' or '.join(item.clients)} ({item.guess})", []).append(_port_name(item.port))
        errors = [f"{', '.join(names)} {'raises' if len(names) == 1 else 'raise'} {guess}" for guess, names in ports.items()]
        return (*([f"errors guessed: {'; '.join(errors)}"] if errors else []), *self.covering.assumptions)

    def affordable(self, rest: int) -> dict[str, list[Option]]:
        """The options that cost at most `rest`, by boundary."""
        found: dict[str, list[Option]] = {}
        for option in self.options:
            if option.choice.cost <= rest:
                found.setdefault(option.operator.boundary, []).append(option)
        return found


def _listed(names: Any) -> Sequence[Any]:
    return () if names is None else names


def _port_name(port: str) -> str:
    """A port as assumptions name it: tools by their names, others with their boundary ("model planner")."""
    boundary, _, name = port.partition(":")
    return name if boundary == "service" else f"{boundary} {name}"


@dataclass(frozen=True, slots=True)
class Edge:
    """One injection into one parent. `state` is the history digest at the site, `step` where it will be asked.

    `key`: two edges with one key lead to the same run from there on; None for the root, the empty schedule. `loose` is the key
    with the user's complete state digest (mat.spec.StateDigest with complete=True) instead of the history; it holds for
    injections that decide by the call alone. `lineage` holds eight bytes of the history digest for each step of the parent, to
    name the first step that differs. The edges of one run share their large fields, so that a queue of them stays small.
    """

    parent: Schedule
    option: Option | None
    site: str
    cost: int
    size: int
    step: int
    state: str
    key: GridKey | None
    lineage: bytes
    loose: GridKey | None = None

    @property
    def added(self) -> Perturbation | None:
        if self.option is None:
            return None
        choice, site = self.option.choice, _parsed(self.site)
        if choice.span > 1:
            site = replace(site, last=site.nth + choice.span - 1)
        return Perturbation(operator=self.option.operator.id, site=site, parameters=self.option.parameters, cost=choice.cost)

    @property
    def schedule(self) -> Schedule:
        added = self.added
        return self.parent if added is None else self.parent.add(added)


ROOT: Final = Edge(NO_SCHEDULE, None, "", 0, 0, -1, "", None, b"")
_new_edge = fast_constructor(Edge)


def free(schedule: Schedule) -> Edge:
    """An edge for any schedule, for strategies that do not walk the tree: it has no parent to compare with."""
    return Edge(schedule, None, "", schedule.cost, len(schedule), -1, "", None, b"")


_parsed = lru_cache(maxsize=100_000)(parse_site)
_DIGITS: Final = 16
"""Hex digits of the history digest kept per step of a lineage."""


def lineage(states: Sequence[str]) -> bytes:
    """The first digits of the history digest of each step of a run, as bytes."""
    return bytes.fromhex("".join([state[:_DIGITS] for state in states]))


def first_difference(one: bytes, states: Sequence[str]) -> int | None:
    """The first step at which a lineage and another run's history digests differ."""
    other = lineage(states)
    width = _DIGITS // 2
    for start in range(0, min(len(one), len(other)), width):
        if one[start : start + width] != other[start : start + width]:
            return start // width
    return None if len(one) == len(other) else min(len(one), len(other)) // width


class Offers:
    """The children of a run under `schedule`, whose last injection was asked at `step`; computed on demand.

    A search by cost never looks at most of them, and calling the operators is the expensive part.
    """

    def __init__(self, run: Run, schedule: Schedule, step: int, grid: Grid, states: Sequence[str], *, budget: int) -> None:
        self._run, self._schedule, self._step, self._states, self._budget = run, schedule, step, states, budget
        self._grid, self._covering = grid, grid.covering
        self._errors = {item.port: item for item in run.errors}
        self.cost, self.records = schedule.cost, len(run.records)
        self._options = grid.affordable(budget - self.cost)
        self._spare = budget - self.cost - grid.least
        self._held_steps = _held_steps(run, schedule, step)
        crossed = {record.action.boundary for record in run.records if record.step > step or record.step in self._held_steps}
        if crossed:
            crossed.add("process")
        if run.contended:
            crossed.add("order")
        reached = (self._options.get(boundary, ()) for boundary in crossed)
        self.costs: tuple[int, ...] = tuple(sorted({option.choice.cost for options in reached for option in options}))
        """The possible costs of an injection here, cheapest first; some of them may have no injection."""

    def __iter__(self) -> Iterator[Edge]:
        """All edges, in the order of their calls."""
        return self._edges(self._options)

    def at(self, cost: int) -> Iterator[Edge]:
        """The edges whose injection costs this much, in the order of their calls."""
        return self._edges(
            {
                boundary: [option for option in options if option.choice.cost == cost]
                for boundary, options in self._options.items()
            }
        )

    def ahead(self, cost: int, grid: Grid) -> list[Edge]:
        """The edges of `at` as another grid like this one gives them: this one notes nothing."""
        offers = Offers(self._run, self._schedule, self._step, grid, self._states, budget=self._budget)
        return list(offers.at(cost))

    @cached_property
    def _context(self) -> tuple[_Trace, list[_Pending], bytes, frozenset[int]]:
        trace = _Trace(self._run, self._covering)
        alone = _quiet_steps(self._run) if self._run.complete else frozenset()
        return trace, trace.pending(self._schedule), lineage(self._states), alone

    @property
    def history_readers(self) -> Set[str]:
        """Operators whose decision was seen to read earlier calls."""
        return self._context[0].history_readers

    @cached_property
    def _bases(self) -> dict[int, tuple[str, str]]:
        return {}

    def _base(self, record: Record) -> tuple[str, str]:
        """The common parts of the keys at a call: by the history, and by the user's complete state digest ("" without one)."""
        found = self._bases.get(record.step)
        if found is None:
            _, pending, _, alone = self._context
            by_state = _digest_base(self._run, record, pending) if record.step in alone else ""
            found = self._bases[record.step] = _base(record, self._states[record.step], pending), by_state
        return found

    def _edges(self, offered: Mapping[str, Sequence[Option]]) -> Iterator[Edge]:
        run, schedule, states = self._run, self._schedule, self._states
        if not any(offered.values()):
            return
        trace, pending, short, _ = self._context
        contended = frozenset(run.contended) if offered.get("order") else frozenset()
        for record in run.records:
            held = record.step in self._held_steps
            if (record.step <= self._step and not held) or not record.action.boundary:
                continue
            errors = self._errors.get(f"{record.action.boundary}:{record.action.name}") if self._errors else None
            for site, boundary in sites(record, contended, ends="process" in offered):
                options = offered.get(boundary)
                if not options or (held and boundary == "order"):
                    continue
                port, _, nth = site.rpartition("#")
                if any(item.port == port and item.last >= int(nth) for item in pending):
                    continue
                for option in options:
                    if not trace.matters(option, record, more=option.choice.cost <= self._spare):
                        continue
                    base, by_state = self._base(record)
                    for point in self._grid.by_client(option, errors):
                        yield _new_edge(
                            schedule, point, site, self.cost + option.choice.cost, len(schedule) + 1, record.step,
                            states[record.step], (base, point.text), short, (by_state, point.text) if by_state else None,
                        )  # fmt: skip


def edges(run: Run, schedule: Schedule, step: int, grid: Grid, states: Sequence[str], *, budget: int) -> Iterator[Edge]:
    """The children of a run under `schedule`, whose last injection was asked at `step`, in ask order."""
    return iter(Offers(run, schedule, step, grid, states, budget=budget))


def sites(record: Record, contended: Container[int], *, ends: bool = False) -> tuple[tuple[str, str], ...]:
    """(site, boundary) at which a call can be perturbed: its own, and those about the call.

    The order boundary's if another thread could go first, the process boundary's if the process may end there (`ends`).
    """
    found: tuple[tuple[str, str], ...] = ((record.site, record.action.boundary),)
    if record.step in contended:
        found += ((site_about("order", record.site), "order"),)
    return (*found, (site_about("process", record.site), "process")) if ends else found


def _base(record: Record, state: str, pending: Sequence[_Pending]) -> str:
    """Everything the future depends on: the history digest, the call itself, and the pending effects of earlier perturbations.

    The history digest covers what earlier perturbations did to sealed crossings. It does not cover what they are doing to
    crossings in flight (a timeout and a lost acknowledgement that both still wait), the rest of their ranges, or the order of
    runnable threads after one of them was held.
    """
    going_on = [item.text for item in pending if item.acts_after(record)]
    return digest([state, record.site, record.action.arguments, record.at_ms, going_on])


def _digest_base(run: Run, record: Record, pending: Sequence[_Pending]) -> str:
    """Like _base, but with the user's complete state digest at the call instead of the history.

    The occurrence number is left out: runs that differ only in these numbers continue equally, under renumbered sites. For the
    same reason pending effects are counted from this call. Time is left out if nothing looks at it.
    """
    port = record.site.rpartition("#")[0]
    at_ms = record.at_ms if run.clocked else None
    left = [item.remaining(record) for item in pending if item.acts_after(record)]
    return digest([run.states[record.step], port, record.action.arguments, at_ms, left])


def _held_steps(run: Run, schedule: Schedule, step: int) -> frozenset[int]:
    """The step of the last injection if that held the call: the call itself runs later and can be perturbed too."""
    if not 0 <= step < len(run.records):
        return frozenset()
    site = run.records[step].site
    holds = {str(replace(item.site, last=item.site.nth)) for item in schedule if item.site.boundary == "order"}
    own = {str(replace(item.site, last=item.site.nth)) for item in schedule}
    return frozenset({step} if site_about("order", site) in holds and site not in own else ())


def undisturbed(run: Run, asks: Sequence[Record]) -> bool:
    """Whether nothing else can be injected between the start of the first of these calls and the end of the last.

    `asks`: calls of one port, in order, that one injection covers. Calls inside them or concurrent with them could be
    perturbed, and so could the order at the later ones.
    """
    until_seq, mine = max(record.sealed_seq for record in asks), {record.step for record in asks}
    if any(record.step in run.contended for record in asks[1:]):
        return False
    for record in run.records[asks[0].step + 1 :]:
        if record.asked_seq > until_seq:
            return True
        if record.step not in mine and record.action.boundary:
            return False
    return True


def _quiet_steps(run: Run) -> frozenset[int]:
    """The steps at which nothing else was in flight or runnable; no state digest covers what other code is about to do."""
    found, until_seq, contended = set(), -1, frozenset(run.contended)
    for record in run.records:
        if until_seq < record.asked_seq and record.step not in contended:
            found.add(record.step)
        until_seq = max(until_seq, record.sealed_seq)
    return frozenset(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """A perturbation of the run: the port and last ask it binds to, and when the last crossing it acts on was sealed.

    `steps` are those of the port's asks, in order; `kind` the perturbation without its place.
    """

    port: str
    first: int
    last: int
    until_seq: int | None
    text: str
    kind: str
    about: bool
    steps: Sequence[int]

    def acts_after(self, record: Record) -> bool:
        """Whether the perturbation may still change something after this record is asked."""
        return self.about or self.until_seq is None or self.until_seq > record.asked_seq

    def remaining(self, record: Record) -> str:
        """The rest of the perturbation as text, counted from a call: how many calls it has covered, and how many are left."""
        if self.about:
            return self.text
        asked = bisect_left(self.steps, record.step)
        return f"{self.kind} {self.port} {asked - self.first + 1} {self.last - asked}"


class _Trace:
    """Facts about a run that all its edges need, collected once."""

    def __init__(self, run: Run, covering: Covering) -> None:
        self._run, self._covering = run, covering
        self._asks: dict[str, list[Record]] = {}
        self._by_seal: list[Record] | None = None
        self._known: dict[tuple[int, int], bool] = {}
        self.history_readers: set[str] = set()
        overlapping: dict[tuple[str, str], int] = {}
        self._overlaps: set[tuple[str, str]] = set()
        for record in run.records:
            boundary, name = record.action.boundary, record.action.name
            if not boundary:
                continue
            self._asks.setdefault(record.site.rpartition("#")[0], []).append(record)
            until_seq = overlapping.get((boundary, name), -1)
            if until_seq > record.asked_seq:
                self._overlaps.add((boundary, name))
            overlapping[boundary, name] = max(until_seq, record.sealed_seq)

    def pending(self, schedule: Schedule) -> list[_Pending]:
        found = []
        for item in schedule:
            site: Site = item.site
            port = site_text(site.agent, site.boundary, site.name, 1).rpartition("#")[0]
            about = site.boundary in ABOUT_CALLS
            asked = port_about(site.agent, site.name) if about else port
            covered = self._asks.get(asked, [])[site.nth - 1 : site.last]
            complete = len(covered) == site.last - site.nth + 1
            until_seq = max((record.sealed_seq for record in covered), default=-1) if complete else None
            found.append(
                _Pending(
                    port=port, first=site.nth, last=site.last, until_seq=until_seq, text=canonical(item.key),
                    kind=canonical(item.key[1:]), about=about, steps=[record.step for record in self._asks.get(asked, [])],
                )
            )  # fmt: skip
        return found

    def matters(self, option: Option, record: Record, *, more: bool) -> bool:
        """Whether injecting this option from this call on could change anything. `more`: another injection may follow it."""
        span = option.choice.span
        port, _, nth = record.site.rpartition("#")
        covered = self._asks[port][int(nth) - 1 : int(nth) - 1 + span]
        if more and not self._is_undisturbed(covered, span):
            return self._allowed(option.operator, record) and (span > 1 or record.action.kind in option.operator.kinds)
        return any(self._matters_at(option, item) for item in covered)

    def _is_undisturbed(self, covered: Sequence[Record], span: int) -> bool:
        """Whether later injections cannot change the calls that an injection covers."""
        key = (covered[0].step, span)
        if key not in self._known:
            self._known[key] = len(covered) == span and undisturbed(self._run, covered)
        return self._known[key]

    def _matters_at(self, option: Option, record: Record) -> bool:
        operator = option.operator
        if record.action.kind not in operator.kinds or record.blocked or not self._allowed(operator, record):
            return False
        if (record.action.boundary, record.action.name) in self._overlaps:
            return True
        if operator.relevant is always_relevant and operator.covered is None:
            return True
        before = _EarlierRecords(self._earlier_records, record)
        matters = operator.relevant(record, option.choice.parameters, before)
        if matters and operator.covered is not None:
            matters = not self._covering.covers(operator, option.choice, record, before, self._run)
        if before.looked:
            self.history_readers.add(operator.id)
        return matters

    def _allowed(self, operator: OperatorSpec, record: Record) -> bool:
        return self._covering.allows(operator, record, self._run)

    def _earlier_records(self, record: Record) -> Sequence[Record]:
        """The records that had ended when this one was asked, in the order of their ends."""
        if self._by_seal is None:
            self._by_seal = sorted(self._run.records, key=_sealed_seq)
        return self._by_seal[: bisect_left(self._by_seal, record.asked_seq, key=_sealed_seq)]


class _EarlierRecords(Sequence[Record]):
    """The records that ended before one was asked; `looked` is True once an operator has read any of them."""

    __slots__ = ("_found", "_record", "looked")

    def __init__(self, found: Callable[[Record], Sequence[Record]], record: Record) -> None:
        self._found, self._record, self.looked = found, record, False

    def _all(self) -> Sequence[Record]:
        self.looked = True
        return self._found(self._record)

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, index: Any) -> Any:
        return self._all()[index]

    def __iter__(self) -> Iterator[Record]:
        return iter(self._all())


_sealed_seq: Callable[[Record], int] = lambda record: record.sealed_seq  # noqa: E731  (a sort key with its type)

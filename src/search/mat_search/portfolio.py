"""The default search: a proof from the cheapest cost on, and several ways of guessing above it, in turn.

The bound comes from one lane alone, `mat_search.exhaust`: the cheapest schedules, all of them. The other lanes guess, because
a search without a state digest cannot execute everything up to an interesting cost:

- single faults out of order (they count for the proof), the extreme points of each operator at each call first;
- probes (`mat_search.probes`): many perturbations at once, even beyond the budget;
- chases (`mat_search.chase`): calls that exist only because of a fault, also after faults that the proof has executed;
- rare answers (`mat_search.rare`): calls that react to a fault as few others do;
- pairs at random, and evolution (`mat_search.evolve`).

What fails is reduced at once (`mat_search.reduction`). Only schedules within the budget count as found. Once every contract is
broken, the lanes look only for cheaper schedules, and end when many in a row are not.

Guessing takes at most a third of the executions; the rest goes to the proof. Where that cannot complete the next cost, room is
kept for the single faults, and then most executions are guesses. There are no guesses where the proof alone is expected to need
no more than half of the executions (`mat_search.forecast`): then this is the exhaustive search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Literal, TypeAlias

from mat.core.adversary import Choose
from mat.core.run import Run
from mat.core.spec import NO_SCHEDULE, Schedule
from mat_search.campaign import Layer
from mat_search.chase import Chase, Chasing
from mat_search.coverage import Nearness
from mat_search.evolve import Evolutionary
from mat_search.exhaust import Exhaustive
from mat_search.forecast import Forecast
from mat_search.probes import draw_few, draw_probe
from mat_search.rare import RareAnswers
from mat_search.reduction import Reduction, Steps
from mat_search.space import ROOT, Edge, GridKey, edges, free
from mat_search.strategy import EdgeOutcome, SearchPlan
from mat_search.vocabulary import Vocabulary

Lane: TypeAlias = Literal["proof", "single", "probe", "chase", "rare", "pair", "evolve", "reduction"]

_FIRST: Final[tuple[Lane, ...]] = (*4 * ("single", "probe", "chase", "rare", "probe", "proof"), "evolve", "pair")
_LATER: Final[tuple[Lane, ...]] = (*4 * ("single", "probe", "chase", "rare", "chase", "proof"), "evolve", "pair")
"""The lanes while anything within the budget is wanted: what probes can find, they find early."""
_EARLY: Final = 300
"""Guesses after which chases have two turns, and probes one."""
_CHEAPER: Final[tuple[Lane, ...]] = ("proof", "single", "evolve", "probe", "chase", "rare")
"""The lanes while something cheaper is wanted."""
_SHARE: Final = 3
"""Guessing takes at most one in this many of the executions."""
_LEAST: Final = 10
"""Guessing may take one in this many of the executions, however many single faults there are."""
_ALONE: Final = 2
"""The proof is alone where it is expected to take at most one in this many of the executions."""
_DOUBT: Final = 20
"""One in this many of the executions that the proof is expected to take may come on top."""
_EARLY_DOUBT: Final = 3
"""The same while single faults are left: what they do decides how many schedules there are."""
_PATIENCE: Final = 600
"""Guesses without anything cheaper, once every contract is broken, after which the proof is alone."""
_ATTEMPTS: Final = 200
"""Draws in a row that may give known schedules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """An edge, and the lane that asks for it."""

    lane: Lane
    edge: Edge
    chasing: Chasing | None = None


class Portfolio:
    """A lane that proves, and lanes that guess."""

    proves = True

    def __init__(self, plan: SearchPlan) -> None:
        self._plan = plan
        self._proof = Exhaustive(plan)
        self._guesses: _Guesses | None = None
        self._asked: _Asked | None = None
        self.skipped = self._proof.skipped

    def ask(self, most: int | None = None) -> Edge | None:
        """The next edge of the lane whose turn it is; None when the proof has nothing left."""
        guesses = self._guesses
        self._asked = None
        if guesses is not None:
            limit = guesses.limit if most is None else min(guesses.limit, most)
            left, reduces = self._guesses_left(guesses, limit)
            self._asked = guesses.ask(limit, left, reduces=reduces)
            if self._asked is None and not self._completes_next(guesses):
                self._asked = guesses.next_single(limit)
        if self._asked is not None:
            return self._asked.edge
        edge = self._proof.ask(most)
        if edge is not None:
            self._asked = _Asked(lane="proof", edge=edge)
        return edge

    def _guesses_left(self, guesses: _Guesses, limit: int) -> tuple[int, bool]:
        """How many more guesses may be made; 0 or less if it is the proof's turn alone. And whether what failed is reduced:
        not where the proof can just be completed, because it finds everything itself.
        """
        most, made, proof = self._plan.max_runs, guesses.made, sum(self._proof.executed)
        if limit <= self._proof.bound or (limit < self._plan.budget and guesses.since >= _PATIENCE):
            return 0, True
        left = guesses.forecast.left(self._proof.bound, limit, self._proof.executed)
        expected = proof + left
        if expected <= most // _ALONE:
            return 0, True
        share = most // _SHARE
        if expected <= most:
            doubt = left // (_EARLY_DOUBT if guesses.singles_left else _DOUBT)
            may = min(share, most - expected - doubt) - made
            return may, may > 0 or expected + made > most
        if guesses.has_singles:
            room = most - proof - guesses.singles_left
            return max(most // _LEAST, min(share, room)) - made, True
        return share - made if self._completes_next(guesses) else most, True

    def _completes_next(self, guesses: _Guesses) -> bool:
        """Whether the executions that are left are expected to complete the next cost."""
        bound, executed = self._proof.bound, self._proof.executed
        needed = sum(executed) + guesses.forecast.left(bound, bound + 1, executed)
        return needed + guesses.made <= self._plan.max_runs

    def tell(self, edge: Edge, outcome: EdgeOutcome) -> None:
        asked = self._asked
        assert asked is not None
        if asked.lane in ("proof", "single"):
            self._proof.tell(edge, outcome)
        if self._guesses is None:
            self._guesses = _Guesses(self._plan, self._proof, outcome)
        else:
            self._guesses.tell(asked, outcome)

    def lose(self, edge: Edge) -> None:
        """Go on without an edge that cannot be executed."""
        asked = self._asked
        assert asked is not None
        if asked.lane == "proof":
            self._proof.lose(edge)
        elif self._guesses is not None:
            self._guesses.lose(asked)

    def upcoming(self, count: int) -> Sequence[Edge]:
        drawn = [] if self._guesses is None else self._guesses.drawn
        return [*drawn, *self._proof.upcoming(count)][:count]

    def policy(self, edge: Edge) -> Choose | None:
        return None

    @property
    def seen(self) -> Set[GridKey]:
        return self._proof.seen

    @property
    def bound(self) -> int:
        return self._proof.bound

    @property
    def layer(self) -> Layer | None:
        return self._proof.layer


class _Guesses:
    """The lanes that guess, and the turns of all lanes. `made`: guesses so far, `since`: since one was worth something.

    `limit`: the largest cost of a schedule that would be worth something. `singles_left`: how many single faults were not
    executed.
    """

    def __init__(self, plan: SearchPlan, proof: Exhaustive, nominal: EdgeOutcome) -> None:
        run = nominal.run
        self._budget, self._proof, self._stream = plan.budget, proof, plan.stream
        own = replace(plan, stream=Random(plan.stream.getrandbits(64)))  # its grid notes no assumptions of the proof
        singles = list(edges(run, NO_SCHEDULE, -1, own.grid, nominal.states, budget=plan.budget))
        self.forecast = Forecast(_costs_by_call(singles), plan.budget)
        self._nominal_calls = _calls(run)
        self._vocabulary = Vocabulary(own.grid, plan.budget)
        self._vocabulary.learn_edges(singles)
        self._vocabulary.learn(run)
        self._singles = deque(_extremes_first(singles, plan.stream))
        self.singles_left = len(singles)
        self._chase = Chase(self._vocabulary, run, plan.stream)
        self._rare = RareAnswers(run, plan.stream)
        self._evolution = Evolutionary(own)
        root = self._evolution.ask()
        assert root is ROOT
        self._evolution.tell(root, nominal)
        self._nearness = Nearness(run).least
        kept = {each.contract for each in run.outcomes if each.severity == "hard"}
        self._unbroken = kept - {each.contract for each in run.violations}
        self._cheapest: dict[str, int] = {}
        self._failing: list[Schedule] = []
        self._tried: set[Schedule] = set()
        self._round: deque[_Asked | None] = deque()
        self._reductions: deque[tuple[Reduction, Steps]] = deque()
        self._answer: EdgeOutcome | None = None
        self._over = frozenset[Lane]()
        self.made = self.since = 0

    @property
    def limit(self) -> int:
        if self._unbroken or not self._cheapest:
            return self._budget
        return max(self._cheapest.values()) - 1

    @property
    def drawn(self) -> list[Edge]:
        return [asked.edge for asked in self._round if asked is not None]

    # -- asking -----------------------------------------------------------------------------------------------------

    def ask(self, limit: int, left: int, *, reduces: bool) -> _Asked | None:
        """The next edge of any lane but the proof; None if it is the proof's turn. `left`: guesses that may still be made."""
        asked = self._next_of_reduction() if reduces else None
        if asked is not None:
            return asked
        if left <= 0:
            singles = [each.edge for each in self._round if each is not None and each.lane == "single"]
            self._singles.extendleft(reversed(singles))
            self._round.clear()
            return None
        if not self._round:
            self._round.extend(self._draw_round(limit))
        while self._round:
            drawn = self._round.popleft()
            if drawn is None or self._is_worthwhile(drawn, limit):
                return drawn
        return None

    def _is_worthwhile(self, asked: _Asked, limit: int) -> bool:
        if asked.lane == "single":
            return self._proof.is_needed(asked.edge)
        return asked.lane == "probe" or asked.edge.cost <= limit

    def _next_of_reduction(self) -> _Asked | None:
        while self._reductions:
            reduction, steps = self._reductions[0]
            try:
                schedule = next(steps) if self._answer is None else steps.send(self._answer)
            except StopIteration:
                self._reductions.popleft()
                self._failing += [each for each in reduction.minimal if each not in self._failing]
                self._answer = None
            else:
                self._answer = None
                return _Asked(lane="reduction", edge=free(schedule))
        return None

    def _draw_round(self, limit: int) -> list[_Asked | None]:
        """One turn of each lane; None is the turn of the proof."""
        found: list[_Asked | None] = []
        wide = _FIRST if self.made < _EARLY else _LATER
        for lane in wide if limit == self._budget else _CHEAPER:
            if lane == "proof":
                found.append(None)
            elif lane not in self._over:
                asked = self._draw(lane, limit)
                found += [] if asked is None else [asked]
        return found

    def _draw(self, lane: Lane, limit: int) -> _Asked | None:
        if lane == "single":
            return self.next_single(limit)
        if lane == "chase":
            chasing = self._chase.draw(limit)
            return None if chasing is None else _Asked(lane=lane, edge=free(chasing.schedule), chasing=chasing)
        if lane == "rare":
            pair = self._rare.draw(limit)
            return None if pair is None else _Asked(lane=lane, edge=free(pair))
        if lane == "evolve":
            self._evolution.narrow(limit)
            edge_or_none = self._evolution.ask()
            return None if edge_or_none is None else _Asked(lane=lane, edge=edge_or_none)
        schedule = self._draw_untried(lane, limit)
        return None if schedule is None else _Asked(lane=lane, edge=free(schedule))

    @property
    def has_singles(self) -> bool:
        return bool(self._singles)

    def next_single(self, limit: int) -> _Asked | None:
        while self._singles:
            edge = self._singles.popleft()
            if edge.cost <= limit and self._proof.is_needed(edge):
                return _Asked(lane="single", edge=edge)
        return None

    def _draw_untried(self, lane: Lane, limit: int) -> Schedule | None:
        """A probe or a pair that was not drawn before; the lane is over if many draws in a row give none."""
        for _ in range(_ATTEMPTS):
            if lane == "probe":
                schedule = draw_probe(self._vocabulary, self._stream, self._failing)
            else:
                schedule = draw_few(self._vocabulary, self._stream, limit)
            if len(schedule) >= (1 if lane == "probe" else 2) and schedule not in self._tried:
                self._tried.add(schedule)
                return schedule
        self._over |= {lane}
        return None

    # -- learning ---------------------------------------------------------------------------------------------------

    def tell(self, asked: _Asked, outcome: EdgeOutcome) -> None:
        edge, lane = asked.edge, asked.lane
        if lane not in ("proof", "single"):
            self.made += 1
            self.since += 1
        if lane in ("proof", "single") and edge.size == 1:
            self.singles_left -= 1
            self.forecast.learn(edge.site, edge.cost, _calls(outcome.run) - self._nominal_calls)
        self._vocabulary.learn(outcome.run)
        if lane == "reduction":
            self._answer = outcome
        elif lane == "evolve":
            self._evolution.tell(edge, outcome)
        elif asked.chasing is not None:
            self._chase.learn(asked.chasing, outcome)
        elif edge.size == 1 and edge.option is not None:
            self._chase.learn_single(edge.schedule, outcome)
            if not outcome.hit and not outcome.run.unreached:
                self._rare.learn(edge.schedule.perturbations[0], outcome.run)
        elif lane == "proof" and edge.option is not None:
            self._chase.learn_path(edge.parent, edge.site, edge.schedule, outcome)
        if outcome.hit:
            self._note_hit(asked, outcome)

    def lose(self, asked: _Asked) -> None:
        self.made += 1
        self.since += 1
        if asked.lane == "reduction":
            self._answer = None  # the generator goes on with None: the schedule counts as one that does not fail

    def _note_hit(self, asked: _Asked, outcome: EdgeOutcome) -> None:
        """Note what is broken and at what cost; reduce a guess if it can lead to something new or cheaper."""
        cost = asked.edge.schedule.cost
        worth = frozenset(name for name in outcome.broken if self._cheapest.get(name, cost + 1) > self._proof.bound + 1)
        new = outcome.broken - self._cheapest.keys()
        if cost <= self._budget:
            for name in outcome.broken:
                if cost < self._cheapest.get(name, cost + 1):
                    self._cheapest[name] = cost
                    self.since = 0
            self._unbroken -= outcome.broken
        if asked.lane not in ("proof", "single", "reduction") and worth:
            reduction = Reduction(
                self._vocabulary, budget=self._budget, wanted=frozenset(new) or worth, nearness=self._nearness,
                stream=self._stream,
            )  # fmt: skip
            self._reductions.append((reduction, reduction.steps(asked.edge.schedule, outcome)))


def _costs_by_call(singles: Sequence[Edge]) -> dict[str, list[int]]:
    by_call: dict[str, list[int]] = {}
    for edge in singles:
        by_call.setdefault(edge.site, []).append(edge.cost)
    return by_call


def _calls(run: Run) -> int:
    return sum(record.action.boundary != "" for record in run.records)


def _extremes_first(singles: Sequence[Edge], stream: Random) -> list[Edge]:
    """Single faults in an order that tries every operator at every call early: its last point, some others, then the rest.

    Within these the pairs of a port and an operator take turns, and the calls are drawn at random.
    """
    ranked: dict[int, dict[tuple[str, str], list[Edge]]] = {0: {}, 1: {}, 2: {}}
    for edge in singles:
        assert edge.option is not None
        operator, port = edge.option.operator, edge.site.rpartition("#")[0]
        place, last = operator.choices.index(edge.option.choice), len(operator.choices) - 1
        rank = 0 if place == last else 1 if place in (0, last - 1, last // 2) else 2
        ranked[rank].setdefault((port, operator.id), []).append(edge)
    found = []
    for rank in sorted(ranked):
        groups = list(ranked[rank].values())
        for group in groups:
            stream.shuffle(group)
        longest = max(map(len, groups), default=0)
        found += [group[turn] for turn in range(longest) for group in groups if turn < len(group)]
    return found

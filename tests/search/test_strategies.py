"""The strategies behind ask and tell, each driven by itself: what they find, in what order, and what they may say of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

import mat
from mat.boundary.effect import Raise, Replace
from mat.core.run import prefixes
from mat_search.anytime import Anytime, Greedy
from mat_search.beam import Beam
from mat_search.coverage import Coverage, Covered, Nearness
from mat_search.evolve import Evolutionary
from mat_search.exhaust import Exhaustive
from mat_search.sample import RandomSearch
from mat_search.space import ROOT
from mat_search.strategy import Plan, Strategy, Told

STRATEGIES = {"exhaustive": Exhaustive, "anytime": Anytime, "random": RandomSearch, "beam": Beam, "evolutionary": Evolutionary}
UNPROVEN = ("random", "beam", "evolutionary")
EVERY = pytest.mark.parametrize("name", STRATEGIES)


@dataclass
class Driven:
    """A strategy driven to its end: the edges asked for, in order, and those that were hits."""

    strategy: Strategy
    asked: list = field(default_factory=list)
    hits: list = field(default_factory=list)
    runs: dict = field(default_factory=dict)
    first: int | None = None

    @property
    def schedules(self):
        return [edge.schedule for edge in self.asked]

    @property
    def executed(self) -> int:
        """Executions: a schedule asked for twice is known from before."""
        return len(self.runs)


def plan(lab, *, budget=8, max_runs=2_000, seed=0, prune=True):
    return Plan(operators=lab.specs, budget=budget, max_runs=max_runs, stream=random.Random(seed), prune=prune)


def drive(lab, strategy, *, most=2_000, stop="first", peek=0):
    """As a campaign does it. `stop`: "hit" at once, "first" when nothing can be cheaper, "budget" with the budget."""
    driven = Driven(strategy)
    wanted = None
    while driven.executed < most and (edge := strategy.ask(wanted)) is not None:
        driven.asked.append(edge)
        if peek:
            strategy.ahead(peek)
        if edge.schedule not in driven.runs:
            driven.runs[edge.schedule] = lab.evaluate(mat.RunSpec(seed=lab.seed, schedule=edge.schedule), vary=True)
        run = driven.runs[edge.schedule]
        broken = frozenset(item.contract for item in run.failures)
        strategy.tell(edge, Told(run=run, states=prefixes(run), broken=broken))
        if broken:
            driven.hits.append(edge)
            driven.first = driven.first or driven.executed
            if stop == "hit":
                break
            if stop == "first":
                wanted = min(item.cost for item in driven.hits) - 1
    return driven


# -- systems ------------------------------------------------------------------------------------------------------------


def kept(signal, *, margin=None):
    @mat.trace_contract(start=False, id=f"never.{signal}", margin=margin)
    def judged(broken: bool, record: mat.Record) -> object:
        return mat.Violated(f"it said {signal}", state=True) if not broken and record.state.get(signal) else broken

    return judged


def staged(first, second, steps=8):
    """A time-out at `first` is taken badly; then so is one at `second`. All others are retried."""

    @mat.tool(name="read")
    def read(step):
        return step

    def body():
        shaken = False
        for step in range(steps):
            try:
                read(step)
            except TimeoutError:
                if step == second and shaken:
                    mat.state(harmed=True)
                    mat.claim("lost")
                    return
                if step == first:
                    shaken = True
                    mat.state(shaken=True)
                with suppress_timeouts():
                    read(step)

    return body


@contextmanager
def suppress_timeouts() -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        pass


def wrong_by(grid):
    return mat.operator(
        "service.off", lambda call, reply, stream: Replace(reply.value + call.parameters["by"]), phase="after",
        grid=[{"by": by, "magnitude": by} for by in grid],
    )  # fmt: skip


def nothing():
    """An agent that crosses no boundary."""


@pytest.fixture
def stage(lab):
    def make(seed):
        first, second = sorted(random.Random(f"stage/{seed}").sample(range(8), 2))
        return lab(
            staged(first, second), [kept("harmed")], ("service.timeout", "service.slow", "service.wrong"),
            extra=[], seed=seed,
        )  # fmt: skip

    return make


# -- what holds for all -------------------------------------------------------------------------------------------------


class TestEveryStrategy:
    @EVERY
    def test_asks_for_the_empty_schedule_first(self, name, stage):
        assert STRATEGIES[name](plan(stage(0))).ask() is ROOT

    @EVERY
    def test_asks_the_same_from_the_same_stream_whether_or_not_somebody_looks_ahead(self, name, stage):
        lab = stage(1)
        one, two = (drive(lab, STRATEGIES[name](plan(lab, seed=3)), most=80, peek=peek) for peek in (0, 7))
        assert one.schedules == two.schedules

    @EVERY
    def test_stays_within_its_budget_and_asks_for_no_schedule_twice(self, name, stage):
        lab = stage(2)
        driven = drive(lab, STRATEGIES[name](plan(lab, budget=6, max_runs=400)), most=200, stop="budget")
        asked = driven.schedules
        assert max(schedule.cost for schedule in asked) <= 6
        assert max(edge.cost for edge in driven.asked) <= 6
        if name == "anytime":  # its second phase begins afresh, with runs that are known
            greedy = next(index for index in range(1, len(asked)) if asked[index] == ROOT.schedule)
            assert len(set(asked[greedy:])) == len(asked[greedy:])
            asked = asked[:greedy]
        assert len(set(asked)) == len(asked)

    @EVERY
    def test_ends_at_once_where_there_is_nothing_to_inject(self, name, lab):
        empty = lab(nothing, [kept("harmed")])
        driven = drive(empty, STRATEGIES[name](plan(empty)))
        assert driven.executed == 1
        assert driven.strategy.ask() is None

    @EVERY
    def test_ends_when_a_small_space_is_used_up(self, name, lab):
        small = lab(staged(1, 2, steps=3), [kept("never")], ("service.timeout",))
        driven = drive(small, STRATEGIES[name](plan(small, budget=4, max_runs=10_000)), most=10_000, stop="budget")
        everything = drive(small, Exhaustive(plan(small, budget=4, prune=False)), stop="budget")
        assert set(driven.schedules) <= set(everything.schedules)
        assert driven.strategy.ask() is None
        if name == "beam":  # it comes back to what it left out
            assert set(driven.schedules) == set(everything.schedules)

    @EVERY
    def test_goes_on_after_a_hit_where_dearer_ones_are_wanted(self, name, stage):
        lab = stage(0)
        driven = drive(lab, STRATEGIES[name](plan(lab)), most=600, stop="budget")
        assert driven.first is not None
        assert driven.executed > driven.first

    @pytest.mark.parametrize("name", UNPROVEN)
    def test_without_a_proof_it_ends_with_the_first_hit_where_only_cheaper_ones_are_wanted(self, name, stage):
        lab = stage(0)
        driven = drive(lab, STRATEGIES[name](plan(lab)), most=2_000, stop="first")
        assert [len(driven.hits), driven.first] == [1, driven.executed]
        assert not driven.strategy.proves
        assert driven.strategy.bound == 0

    @pytest.mark.parametrize("name", UNPROVEN)
    def test_what_it_says_to_come_next_comes_next_unless_something_is_told(self, name, stage):
        lab = stage(3)
        strategy = STRATEGIES[name](plan(lab, seed=5))
        driven = drive(lab, strategy, most=30, stop="budget")
        assert driven.executed == 30
        ahead = [edge.schedule for edge in strategy.ahead(4)]
        assert ahead
        assert [strategy.ask().schedule for _ in ahead] == ahead


# -- what they find -----------------------------------------------------------------------------------------------------


class TestAPlantedFault:
    """Two time-outs in order, among 8 reads with five injections each: of 1 + 40 + some 800 schedules a handful is harmful."""

    SEEDS = range(20)

    def firsts(self, name, stage):
        found = []
        for seed in self.SEEDS:
            lab = stage(seed)
            driven = drive(lab, STRATEGIES[name](plan(lab, seed=seed)), stop="hit", most=2_000)
            assert driven.hits
            found.append(driven.first)
        return found

    def test_is_found_by_every_strategy_and_greedily_in_less_than_half_of_what_random_draws(self, stage):
        firsts = {name: sorted(self.firsts(name, stage)) for name in STRATEGIES}
        median = {name: (values[9] + values[10]) // 2 for name, values in firsts.items()}
        print(median, {name: values[-1] for name, values in firsts.items()})
        assert 2 * median["anytime"] < median["random"]
        assert max(firsts["anytime"]) < 150

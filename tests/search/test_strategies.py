"""The strategies behind ask and tell, each driven by itself: what they find, in what order, and what they may say of it."""

from __future__ import annotations

import dataclasses
import random
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

import mat
from mat.boundary.effect import Raise, Replace
from mat.core.campaign import Covered
from mat.core.run import prefixes
from mat_search.anytime import Anytime, Greedy
from mat_search.beam import Beam
from mat_search.coverage import Coverage, CoverageTally, Nearness
from mat_search.evolve import Evolutionary
from mat_search.exhaust import Exhaustive
from mat_search.sample import RandomSearch
from mat_search.space import ROOT, free
from mat_search.strategy import EdgeOutcome, SearchPlan, Strategy

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
    return SearchPlan(operators=lab.specs, budget=budget, max_runs=max_runs, stream=random.Random(seed), prune=prune)


def drive(lab, strategy, *, most=2_000, stop="first", peek=0):
    """As a campaign does it. `stop`: "hit" at once, "first" when nothing can be cheaper, "budget" with the budget."""
    driven = Driven(strategy)
    wanted = None
    while driven.executed < most and (edge := strategy.ask(wanted)) is not None:
        driven.asked.append(edge)
        if peek:
            strategy.upcoming(peek)
        if edge.schedule not in driven.runs:
            driven.runs[edge.schedule] = lab.evaluate(mat.spec.RunSpec(seed=lab.seed, schedule=edge.schedule), vary=True)
        run = driven.runs[edge.schedule]
        broken = frozenset(item.contract for item in run.failures)
        strategy.tell(edge, EdgeOutcome(run=run, states=prefixes(run), broken=broken))
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
                with suppress(TimeoutError):
                    read(step)

    return body


def wrong_by(grid):
    return mat.spec.operator(
        "service.off", lambda call, reply, stream: Replace(reply.value + call.parameters["by"]), phase="after",
        grid=[{"by": by, "magnitude": by} for by in grid],
    )  # fmt: skip


def soft(contract):
    return dataclasses.replace(contract, severity="soft")


QUICK = mat.spec.operator("service.fails", lambda call, reply, stream: Raise("timeout"))


def nothing():
    """An agent that crosses no boundary."""


@pytest.fixture
def stage(lab):
    def make(seed):
        first, second = sorted(random.Random(f"stage/{seed}").sample(range(8), 2))
        return lab(staged(first, second), [kept("harmed")], ("service.timeout", "service.slow", "service.wrong"), seed=seed)

    return make


# -- what holds for all -------------------------------------------------------------------------------------------------


class TestEveryStrategy:
    @EVERY
    def test_asks_for_the_empty_schedule_first(self, name, stage):
        assert STRATEGIES[name](plan(stage(0))).ask() is ROOT

    @pytest.mark.full
    @EVERY
    def test_asks_the_same_from_the_same_stream_whether_or_not_somebody_looks_ahead(self, name, stage):
        lab = stage(1)
        one, two = (drive(lab, STRATEGIES[name](plan(lab, seed=3)), most=80, peek=peek) for peek in (0, 7))
        assert one.schedules == two.schedules

    @pytest.mark.full
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

    @pytest.mark.full
    @EVERY
    def test_goes_on_after_a_hit_where_dearer_ones_are_wanted(self, name, stage):
        lab = stage(0)
        driven = drive(lab, STRATEGIES[name](plan(lab)), most=600, stop="budget")
        assert driven.first is not None
        assert driven.executed > driven.first

    @pytest.mark.full
    @pytest.mark.parametrize("name", UNPROVEN)
    def test_without_a_proof_it_ends_with_the_first_hit_where_only_cheaper_ones_are_wanted(self, name, stage):
        lab = stage(0)
        driven = drive(lab, STRATEGIES[name](plan(lab)), most=2_000, stop="first")
        assert [len(driven.hits), driven.first] == [1, driven.executed]
        assert not driven.strategy.proves
        assert driven.strategy.bound == 0

    @pytest.mark.parametrize("name", UNPROVEN)
    def test_what_it_says_to_come_next_comes_next_unless_something_is_reported(self, name, stage):
        lab = stage(3)
        strategy = STRATEGIES[name](plan(lab, seed=5))
        driven = drive(lab, strategy, most=30, stop="budget")
        assert driven.executed == 30
        ahead = [edge.schedule for edge in strategy.upcoming(4)]
        assert ahead
        assert [strategy.ask().schedule for _ in ahead] == ahead


@pytest.mark.full
def test_workers_hear_of_the_children_of_a_run_before_they_are_queued_and_nothing_changes(stage):
    """At every turn there are four schedules to execute ahead, until the last ones; most of them are executed next."""
    lab = stage(3)
    still, peeking = Exhaustive(plan(lab)), Exhaustive(plan(lab))
    told = []
    ahead = peeking.upcoming
    peeking.upcoming = lambda count: told.append((len(told), [edge.schedule for edge in ahead(count)]))
    one = drive(lab, still, most=300, stop="budget")
    two = drive(lab, peeking, most=300, stop="budget", peek=4)
    assert one.schedules == two.schedules
    assert still.skipped.by_reason() == peeking.skipped.by_reason()
    short = [turn for turn, schedules in told[1:-4] if len(schedules) < 4]
    assert not short
    later = [two.schedules[turn + 1 : turn + 30] for turn, _ in told]
    announced = [schedule in later[turn] for turn, schedules in told[1:-30] for schedule in schedules]
    assert sum(announced) > 0.9 * len(announced)


# -- what they find -----------------------------------------------------------------------------------------------------


class TestAPlantedFault:
    """A time-out at one of 12 reads leads to a fallback, and only the largest wrong reply of that one does harm."""

    SEEDS = range(20)
    OFF = tuple(range(1, 9))

    def system(self, lab, seed):
        weak = random.Random(f"fallback/{seed}").randrange(12)

        @mat.tool(name="read")
        def read(step):
            return step

        @mat.tool(name="fallback")
        def fallback(step):
            return step

        def body():
            for step in range(12):
                try:
                    read(step)
                except TimeoutError:
                    if step == weak and fallback(step) >= step + 8:
                        mat.state(harmed=True)
                        mat.claim("harm")

        return lab(body, [kept("harmed")], ("service.slow",), extra=[QUICK, wrong_by(self.OFF)], seed=seed)

    def firsts(self, name, lab, most):
        found = []
        for seed in self.SEEDS:
            system = self.system(lab, seed)
            driven = drive(system, STRATEGIES[name](plan(system, budget=20, seed=seed)), stop="hit", most=most)
            found.append(driven.first or most)
        return found

    @pytest.mark.nightly
    def test_is_found_greedily_within_60_and_in_less_than_half_of_what_random_takes(self, lab):
        greedy, drawn = self.firsts("anytime", lab, 100), self.firsts("random", lab, 100)  # not found counts 100
        assert max(greedy) <= 60
        assert 2 * sum(greedy) < sum(drawn)

    @pytest.mark.full
    @pytest.mark.parametrize("name", ["beam", "evolutionary"])
    def test_is_found_by_those_that_draw_too(self, name, stage):
        for seed in range(4):
            lab = stage(seed)
            assert drive(lab, STRATEGIES[name](plan(lab, seed=seed)), stop="hit").hits

    def test_a_margin_leads_to_it(self, lab):
        """Three wrong replies are too much; with the margin each step towards that is seen."""

        @mat.tool(name="read")
        def read(step):
            return step

        def body():
            total = 0
            for step in range(6):
                total += max(0, read(step) - step)
                mat.state(total=total)
            mat.claim("done")

        def judged(margin):
            @mat.trace_contract(start=False, id="total.small", margin=margin)
            def small(broken: bool, record: mat.Record) -> object:
                return mat.Violated("too much", state=True) if not broken and record.state.get("total", 0) > 20 else broken

            return small

        def left(records):
            return min((21 - record.state.get("total", 0) for record in records), default=21) / 21

        firsts = []
        for margin in (left, None):
            system = lab(body, [judged(margin)], (), extra=[wrong_by(range(1, 9))])
            firsts.append(drive(system, Anytime(plan(system, budget=60)), stop="hit", most=90).first or 90)
        assert 3 * firsts[0] < firsts[1]


# -- what they may say --------------------------------------------------------------------------------------------------


class TestAnytime:
    @pytest.mark.full
    def test_proves_what_the_exhaustive_search_proves_and_finds_no_dearer(self, stage):
        for seed in (0, 1, 4):
            lab = stage(seed)
            one, other = (drive(lab, strategy(plan(lab))) for strategy in (Anytime, Exhaustive))
            least = min(edge.cost for edge in other.hits)
            assert min(edge.cost for edge in one.hits) == least
            assert [one.strategy.bound >= least - 1, other.strategy.bound >= least - 1] == [True, True]
            assert one.strategy.ask(least - 1) is None

    def test_its_second_phase_is_the_exhaustive_search_whatever_the_first_skipped(self, stage):
        lab = stage(1)
        one = drive(lab, Anytime(plan(lab, budget=6, max_runs=300)), stop="budget")
        other = drive(lab, Exhaustive(plan(lab, budget=6)), stop="budget")
        begin = next(index for index in range(1, len(one.asked)) if one.asked[index] is ROOT)
        assert one.schedules[begin:] == other.schedules
        assert [one.strategy.bound, one.strategy.seen, len(one.strategy.skipped)] == [
            other.strategy.bound, other.strategy.seen, len(other.strategy.skipped)
        ]  # fmt: skip

    def test_has_no_bound_before_its_second_phase(self, stage):
        lab = stage(0)
        driven = drive(lab, Anytime(plan(lab)), most=5, stop="budget")
        assert driven.strategy.bound == -1
        assert driven.strategy.proves

    def test_its_first_phase_takes_no_more_than_a_fifth_of_the_executions(self, stage):
        lab = stage(0)
        driven = drive(lab, Greedy(plan(lab, max_runs=100)), stop="budget")
        assert driven.executed == 20

    @pytest.mark.full
    def test_its_first_phase_ends_where_it_goes_nowhere(self, lab):
        """30 reads that nobody looks at: nothing that is done to them shows."""

        @mat.tool(name="read")
        def read(step):
            return step

        def body():
            for step in range(30):
                with suppress(TimeoutError):
                    read(step)

        dull = lab(body, [kept("harmed")], ("service.timeout", "service.wrong"))
        driven = drive(dull, Greedy(plan(dull, budget=20, max_runs=10_000)), stop="budget", most=400)
        assert 50 <= driven.executed < 150

    def test_extreme_grid_points_come_first_and_no_operator_starves_the_others(self, lab):
        many = lab(staged(2, 5), [kept("never")], ("service.timeout",), extra=[wrong_by(range(1, 9))])
        driven = drive(many, Anytime(plan(many, budget=20)), most=4, stop="budget")
        added = [edge.added for edge in driven.asked[1:]]
        assert {item.operator for item in added} == {"service.timeout", "service.off"}
        assert {item.parameters["by"] for item in added if item.operator == "service.off"} == {8}


class TestWhatIsGrown:
    @pytest.mark.full
    def test_beam_grows_no_hit(self, stage):
        lab = stage(0)
        driven = drive(lab, Beam(plan(lab, budget=12)), most=300, stop="budget")
        assert driven.hits
        assert {edge.schedule for edge in driven.hits} & {edge.parent for edge in driven.asked} == set()

    def test_evolution_cuts_what_a_run_did_not_reach(self, lab):
        @mat.tool(name="read")
        def read(step):
            return step

        def body():
            with suppress(TimeoutError):
                for step in range(6):
                    read(step)

        short = lab(body, [kept("harmed")], ("service.slow",), extra=[QUICK])
        slow, fails = ("service.slow", {"ms": 1_000, "magnitude": 0}), ("service.fails", {})
        items = [
            mat.spec.perturbation(operator, f"main/service:read#{nth}", point, 4)
            for nth, (operator, point) in ((1, slow), (3, fails), (5, slow))
        ]
        run = short.evaluate(mat.spec.RunSpec(schedule=mat.spec.schedule(items)))
        assert run.unreached == (items[2],)
        strategy = Evolutionary(plan(short, budget=16))
        strategy.tell(free(run.spec.schedule), EdgeOutcome(run=run, states=prefixes(run)))
        assert strategy.ask() is ROOT
        offspring = [edge.schedule for edge in iter(strategy.ask, None)]
        assert any(items[1] in schedule for schedule in offspring)
        assert {item.site.nth for schedule in offspring for item in schedule} == {1, 2, 3}


# -- coverage -----------------------------------------------------------------------------------------------------------


class TestCoverage:
    def run(self, lab, *items):
        return lab.evaluate(mat.spec.RunSpec(seed=lab.seed, schedule=mat.spec.schedule(items)))

    def test_a_run_shows_nothing_new_the_second_time(self, stage):
        lab, coverage = stage(0), Coverage()
        first, second = (coverage.add(self.run(lab)) for _ in range(2))
        assert first.behavior > 0
        assert (second.behavior, second.states, second.worth) == (0, 0, 0)

    def test_a_failing_interface_is_new_once_wherever_it_fails(self, stage):
        lab, coverage, tally = stage(3), Coverage(), CoverageTally()
        first, second = sorted(random.Random("stage/3").sample(range(8), 2))
        others = [step for step in range(2, 7) if step not in (first, second)]
        assert len(others) >= 2
        runs = [self.run(lab)] + [
            self.run(lab, mat.spec.perturbation("service.timeout", f"main/service:read#{step + 1}", {}, 4))
            for step in (*others[:2], first)
        ]
        news = [coverage.add(run) for run in runs][1:]
        tally.note(runs[0])
        assert (tally.covered.interfaces, tally.covered.failing) == (("service:read",), ())
        assert news[0].behavior > 0
        assert news[1].behavior == 0
        assert news[2].behavior > 0  # the agent says that it is shaken
        for run in runs:
            tally.note(run)
        assert tally.covered == Covered(
            contracts=("never.harmed",), boundaries=("service",), interfaces=("service:read",), perturbed=("service:read",),
            failing=("service:read",), risks=tally.covered.risks,
        )  # fmt: skip
        assert tally.covered.risks

    def test_nearness_is_that_of_hard_contracts_which_the_nominal_run_keeps(self, lab):
        def body():
            mat.state(broken=True)
            mat.claim("done")

        near = {"broken": -1.0, "kept": 0.25, "soft": 0.125}
        contracts = [kept(signal, margin=lambda records, margin=margin: margin) for signal, margin in near.items()]
        contracts[2] = soft(contracts[2])
        run = lab(body, contracts).nominal()
        assert set(run.margins) == {"never.broken", "never.kept", "never.soft"}
        assert Nearness(run).least(run) == 250

"""L7 and L15 on agents that nobody thought of: small automata that react to faults at a few sites."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import mat
from mat.core import limits
from mat.core.campaign import Certificate
from mat.core.operator import GridPoint, OperatorSpec
from mat.core.run import prefixes
from mat.core.spec import Perturbation, Schedule
from mat.core.value import FrozenDict
from mat.core.verdict import Violation
from mat_search.exhaust import Exhaustive
from mat_search.shrink import order, shrink, simpler
from mat_search.space import Grid, edges
from mat_search.strategy import EdgeOutcome, SearchPlan

STATES, SITES = 3, 3


@mat.trace_contract(start=0, on="tool_call", id="count.small")
def writes_stay_few(count, record):
    count += record.action.effect == "write" and record.effected == "yes"
    return mat.Violated("too many writes", state=0) if count > 3 else count


@mat.step_contract(on="tool_call", id="state.good")
def no_bad_state(record):
    return record.action.arguments.get("state") != STATES - 1 or record.action.name != "report"


@dataclass(frozen=True)
class Automaton:
    """state -> site -> what came of it (0 fine, 1 error, 2 wrong) -> (next state, asks again)."""

    table: tuple

    def body(self):
        world = []

        @mat.tool(effect="write")
        def act(site: int, state: int) -> int:
            world.append(state)
            return len(world)

        @mat.tool
        def report(state: int, seen: int) -> int:
            return 0

        state = seen = 0
        for site in range(SITES):
            for _ in range(2):
                try:
                    reply = act(site, state)
                    outcome = 2 if reply < 0 else 0
                    seen = reply
                except (TimeoutError, ConnectionError):
                    outcome = 1
                state, again = self.table[state][site][outcome]
                if not again:
                    break
        report(state, seen)


cells = st.tuples(st.integers(0, STATES - 1), st.booleans())
fine = st.tuples(st.integers(0, 1), st.just(False))
rows = st.tuples(fine, cells, cells)
automata = st.builds(Automaton, st.tuples(*[st.tuples(*[rows] * SITES)] * STATES))
many = settings(
    max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.full
@many
@given(automaton=automata)
def test_pruned_unpruned_and_brute_force_agree_on_random_agents(lab, found, automaton):
    made = lab(automaton.body, [writes_stay_few, no_bad_state], ("service.timeout", "service.lost_ack", "service.wrong"))
    pruned, unpruned = made.search(budget=8), made.search(budget=8, prune=False)
    nominal = {violation.contract for violation in made.nominal().failures}
    brute = {contract: cost for contract, cost in made.brute_force(8).items() if contract not in nominal}
    assert found(pruned) == found(unpruned) == brute
    assert (pruned.certificate.proven, unpruned.certificate.proven) == (True, True)
    assert pruned.certificate.bound == 8


@pytest.mark.full
@many
@given(automaton=automata)
def test_every_reached_schedule_has_one_path_in_the_unpruned_tree(lab, automaton):
    made = lab(automaton.body, [], ("service.timeout", "service.outage"))
    strategy = Exhaustive(SearchPlan(operators=made.specs, budget=8, max_runs=2_000, stream=Random(0), prune=False))
    executed = []
    while (edge := strategy.ask()) is not None:
        run = made.evaluate(mat.spec.RunSpec(schedule=edge.schedule))
        assert not run.unreached
        executed.append(edge.schedule)
        strategy.tell(edge, EdgeOutcome(run=run, states=prefixes(run)))
    assert len(executed) == len(set(executed))
    made.executed.clear()
    made.brute_force(8)
    reached = {item for item in tuple(made.executed) if not made.evaluate(mat.spec.RunSpec(schedule=item)).unreached}
    assert set(executed) == reached


@pytest.mark.full
@many
@given(automaton=automata)
def test_first_hit_search_is_optimal_and_its_bound_is_true(lab, found, automaton):
    made = lab(automaton.body, [no_bad_state], ("service.timeout", "service.wrong"))
    result = made.search(budget=8, stop="cheapest")
    if made.nominal().failures:
        return
    brute = made.brute_force(8)
    assert found(result) == brute
    assert result.certificate.proven
    assert all(cost <= result.certificate.bound for cost in brute.values())


@pytest.mark.full
@many
@given(automaton=automata, max_runs=st.sampled_from((20, 60, 150, 2_000)), kept=st.sampled_from((0, 40, 50_000)))
def test_the_bound_of_a_search_that_guesses_is_true_wherever_it_ends(lab, found, automaton, max_runs, kept):
    """`kept`: with little room, runs are executed again for their children."""
    made = lab(automaton.body, [writes_stay_few, no_bad_state], ("service.timeout", "service.lost_ack", "service.wrong"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "RECORDS_KEPT", kept)
        result = made.search(budget=8, strategy="portfolio", max_runs=max_runs)
    nominal = {violation.contract for violation in made.nominal().failures}
    brute = {contract: cost for contract, cost in made.brute_force(8).items() if contract not in nominal}
    assert result.certificate.proven
    costs = found(result)
    assert costs.items() >= {contract: cost for contract, cost in brute.items() if cost <= result.certificate.bound}.items()
    assert all(cost >= brute[contract] for contract, cost in costs.items())
    assert result.certificate.bound == 8 or max_runs < 2_000


# -- shrinking ----------------------------------------------------------------------------------------------------------

GRID = (
    OperatorSpec(
        id="service.a", boundary="service", kinds=frozenset({"tool_call"}),
        choices=tuple(GridPoint(parameters=FrozenDict({"level": level}), cost=4 + level, span=span)
                      for level, span in ((0, 1), (1, 2), (2, 3))),
    ),
    OperatorSpec(id="service.b", boundary="service", kinds=frozenset({"tool_call"}),
                 choices=tuple(GridPoint(parameters=FrozenDict({"word": word}), cost=4) for word in "xyz")),
)  # fmt: skip
PORTS = ("p", "q", "r", "s")
WANTED = Violation(contract="c", severity="hard", stage="effected", step=0, agent="", role="", message="")
OTHER = Violation(contract="c", severity="hard", stage="attempted", step=0, agent="", role="", message="")


def SHOWS(run, judged):
    return WANTED in judged


def placed(port, operator, choice):
    site = mat.spec.Site(agent="main", boundary="service", name=port, nth=1, last=choice.span)
    return Perturbation(operator=operator.id, site=site, parameters=choice.parameters, cost=choice.cost)


@st.composite
def schedules(draw):
    ports = draw(st.sets(st.sampled_from(PORTS), min_size=1))
    items = []
    for port in sorted(ports):
        operator = draw(st.sampled_from(GRID))
        items.append(placed(port, operator, draw(st.sampled_from(operator.choices))))
    return Schedule(tuple(items))


def world(seed, whole):
    """A deterministic, arbitrary answer to any schedule: shows WANTED, another stage of it, or nothing; may not reach some."""
    import random

    @cache
    def execute(schedule):
        dice = random.Random(f"{seed}/{[item.key for item in schedule]}")
        stays = dice.random() < 0.5 or schedule == whole
        unreached = tuple(item for item in schedule if schedule != whole and dice.random() < 0.2)
        return SimpleNamespace(unreached=unreached, schedule=schedule), (WANTED,) if stays else (OTHER,)

    return execute


@pytest.mark.covers("law", ["L7"])
@settings(max_examples=200, deadline=None)
@given(schedule=schedules(), seed=st.integers(0, 10_000))
def test_shrinking_keeps_the_same_violation_never_costs_more_is_minimal_and_idempotent(schedule, seed):
    execute = world(seed, schedule)
    start, _ = execute(schedule)
    result = shrink(schedule, start, SHOWS, operators=GRID, execute=execute, most=10_000)
    run, violations = execute(result.schedule)
    assert result.finished
    assert violations == (WANTED,)
    assert run is result.run
    assert not run.unreached
    assert result.schedule.cost <= schedule.cost
    assert order(result.schedule, GRID) <= order(schedule, GRID)
    for candidate in simpler(result.schedule, GRID):
        again, found = execute(candidate)
        assert found != (WANTED,) or again.unreached
    once_more = shrink(result.schedule, result.run, SHOWS, operators=GRID, execute=execute, most=10_000)
    assert once_more.schedule == result.schedule


@settings(max_examples=100, deadline=None)
@given(schedule=schedules(), seed=st.integers(0, 10_000), most=st.integers(0, 6))
def test_shrinking_within_a_limit_keeps_the_violation_and_says_whether_it_finished(schedule, seed, most):
    execute = world(seed, schedule)
    start, _ = execute(schedule)
    result = shrink(schedule, start, SHOWS, operators=GRID, execute=execute, most=most)
    full = shrink(schedule, start, SHOWS, operators=GRID, execute=execute, most=10_000)
    assert result.executions <= most
    assert execute(result.schedule)[1] == (WANTED,)
    assert result.finished == (full.executions <= most)


def test_what_was_not_reached_is_left_out_of_the_shrunk_schedule():
    """Without p, q is not reached and the violation stays: q and p both go, in one step."""
    first, second, third = (placed(port, GRID[1], GRID[1].choices[0]) for port in "pqr")
    whole = Schedule((first, second, third))

    def execute(schedule):
        idle = (second,) if second in schedule and first not in schedule else ()
        return SimpleNamespace(unreached=idle), (WANTED,) if third in schedule and (first in schedule or idle or
                                                                                    second not in schedule) else ()  # fmt: skip

    result = shrink(whole, execute(whole)[0], SHOWS, operators=GRID, execute=execute, most=100)
    assert result.schedule == Schedule((third,))


def test_a_cheaper_grid_point_with_a_longer_range_that_meets_another_perturbation_is_passed_over():
    cheap_and_long = OperatorSpec(
        id="service.c", boundary="service", kinds=frozenset({"tool_call"}),
        choices=(GridPoint(parameters=FrozenDict(), cost=4, span=5), GridPoint(parameters=FrozenDict({"n": 1}), cost=6)),
    )  # fmt: skip
    one = Perturbation(operator="service.c", site=mat.core.site.parse_site("main/service:p#1"),
                       parameters=FrozenDict({"n": 1}), cost=6)  # fmt: skip
    other = Perturbation(operator="service.b", site=mat.core.site.parse_site("main/service:p#3"), cost=4)
    both = Schedule((one, other))

    def execute(schedule):
        return SimpleNamespace(unreached=()), (WANTED,) if len(schedule) == 2 else ()

    assert shrink(both, execute(both)[0], SHOWS, operators=[cheap_and_long], execute=execute, most=100).schedule == both


# -- the tree -----------------------------------------------------------------------------------------------------------


def test_edges_share_what_they_can_and_leave_out_what_is_not_relevant_or_too_dear(lab):
    @mat.tool(effect="read")
    def read() -> int:
        return 1

    made = lab(read, [], ("service.timeout", "service.lost_ack", "service.outage", "service.nothing"))
    run = made.nominal()
    offered = list(edges(run, Schedule(), -1, Grid(made.specs), prefixes(run), budget=12))
    assert [(str(edge.added.site), edge.added.operator) for edge in offered] == [
        ("main/service:read#1..3", "service.outage"), ("main/service:read#1", "service.timeout"),
    ]  # fmt: skip
    assert len({id(edge.lineage) for edge in offered}) == 1
    assert [edge.cost for edge in edges(run, Schedule(), -1, Grid(made.specs), prefixes(run), budget=4)] == [4]


@pytest.mark.parametrize(("perturb", "ids"), [(False, []), (["service.timeout"], ["service.timeout"]),
                                               (["service"], ["service.timeout", "service.wrong"])])  # fmt: skip
def test_a_port_is_offered_only_the_operators_it_allows(lab, perturb, ids):
    @mat.tool(perturb=perturb)
    def read() -> int:
        return 1

    made = lab(read, [], ("service.timeout", "service.wrong"))
    run = made.nominal()
    offered = edges(run, Schedule(), -1, Grid(made.specs), prefixes(run), budget=12)
    assert [edge.added.operator for edge in offered] == ids


def test_a_certificate_names_its_grid_and_seed(lab):
    made = lab(lambda: None, [], ("service.timeout",), seed=5)
    certificate = made.search().certificate
    assert isinstance(certificate, Certificate)
    assert certificate.grid == {"service.timeout": [[{}, 4, 1]]}
    assert certificate.seeds == (5,)

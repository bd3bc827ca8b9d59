from __future__ import annotations

import pickle
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.core.adversary import Seen
from mat.core.curve import ScheduleResult, frontier, schedule_result
from mat.core.errors import SpecError
from mat.core.operator import GridPoint, OperatorSpec
from mat.core.record import Mediation
from mat.core.run import prefixes
from mat.core.spec import Schedule
from mat.core.value import FrozenDict
from mat_search.curve import Chains, RandomPolicy, chain_seed, chains, random_policy
from mat_search.exhaust import Exhaustive
from mat_search.strategy import EdgeOutcome, SearchPlan

FAULTS = ("service.timeout", "service.lost_ack", "service.slow", "service.wrong")


@mat.tool(effect="write")
def pay(order):
    return order


@mat.tool(effect="read")
def look(order):
    return order


@mat.trace_contract(start=0, id="pay.once")
def paid_once(count, record):
    count += record.action.name == "pay" and record.effected == "yes"
    return mat.Violated("paid twice", state=0) if count > 1 else count


def careful():
    """Looks, pays, and pays again where no answer came."""
    look(1)
    for _ in range(2):
        try:
            pay(1)
            break
        except TimeoutError:
            pass
    look(2)


def patient():
    """Four looks, whatever comes of them."""
    for number in range(4):
        with suppress(TimeoutError, ConnectionError):
            look(number)


@pytest.fixture
def shop(lab):
    return lab(careful, [paid_once], FAULTS)


@pytest.fixture
def looker(lab):
    return lab(patient, [], FAULTS)


def execute(made):
    return lambda schedule: made.evaluate(mat.spec.RunSpec(schedule=schedule))


def remembered(made):
    """Executes a schedule once; for tests that look at many chains."""
    known = {}

    def run(schedule):
        if schedule not in known:
            known[schedule] = made.evaluate(mat.spec.RunSpec(schedule=schedule))
        return known[schedule]

    return run


# -- what a life says ---------------------------------------------------------------------------------------------------


def test_a_life_tells_cost_success_and_the_hard_contracts_broken(shop):
    lost = mat.spec.perturbation("service.lost_ack", "main/service:pay#1", cost=4)
    nominal, broken = shop.nominal(), shop.evaluate(mat.spec.RunSpec(schedule=Schedule((lost,))))
    assert schedule_result(nominal) == ScheduleResult(cost=0, success=nominal.success)
    assert schedule_result(broken) == ScheduleResult(cost=4, success=broken.success, broken=("pay.once",))


def test_a_soft_contract_is_none_of_those_broken():
    @mat.step_contract(on="tool_call", id="look.never", severity="soft")
    def never(record):
        return False

    with mat.run([never]) as run:
        look(1)
    assert run.result.violations
    assert schedule_result(run.result).complied is True


def test_a_crashed_contract_leaves_compliance_open_and_a_broken_one_settles_it():
    @mat.step_contract(on="tool_call", id="crash.always")
    def crashes(record):
        raise RuntimeError("no idea")

    with mat.run([crashes]) as run:
        look(1)
    assert schedule_result(run.result) == ScheduleResult(cost=0, success=run.result.success, unjudged=True)
    assert schedule_result(run.result).complied is None
    assert ScheduleResult(cost=0, success=True).complied is True
    assert ScheduleResult(cost=0, success=True, broken=("a",), unjudged=True).complied is False


executed = st.lists(
    st.builds(
        ScheduleResult, cost=st.integers(0, 6), success=st.sampled_from([True, False, None]),
        broken=st.sampled_from([(), ("a",), ("b",)]), unjudged=st.booleans(),
    ),
    max_size=12,
)  # fmt: skip


@given(executed, st.integers(0, 6))
def test_the_frontier_answers_every_budget_as_all_lives_do(found, budget):
    def said(some):
        within = [life for life in some if life.cost <= budget]
        return {life.success for life in within}, {life.complied for life in within}

    few = frontier(found)
    assert said(few) == said(found)
    assert len(few) <= 6
    assert frontier(reversed(found)) == few == frontier(few)


# -- chains -------------------------------------------------------------------------------------------------------------


def test_every_distinct_part_of_all_chains_is_executed_once_and_nothing_else(shop):
    growing = Chains(shop.specs, budget=12, count=25, seed=7)
    found = growing.finish(execute(shop))
    assert len(found) == 25
    assert len(shop.executed) == len(set(shop.executed)) == growing.executions
    assert growing.executions < sum(len(chain) for chain in found)  # the empty schedule alone is shared by all
    assert shop.executed[0] == Schedule()
    for schedule in shop.executed[1:]:
        assert any(schedule.without(item) in shop.executed for item in schedule)


def test_what_a_campaign_executed_is_not_executed_again(shop):
    strategy = Exhaustive(SearchPlan(operators=shop.specs, budget=8, max_runs=500, stream=Random(0), prune=False))
    growing = Chains(shop.specs, budget=8, count=20, seed=1)
    while (edge := strategy.ask()) is not None:
        run = shop.evaluate(mat.spec.RunSpec(schedule=edge.schedule))
        strategy.tell(edge, EdgeOutcome(run=run, states=prefixes(run)))
        growing.note(run)
    known = set(shop.executed)
    shop.executed.clear()
    found = growing.finish(execute(shop))
    assert not known & set(shop.executed)
    assert len(shop.executed) == len(set(shop.executed)) == growing.executions
    assert found == chains(shop.specs, execute(shop), budget=8, count=20, seed=1)


def test_a_campaign_that_executed_everything_leaves_nothing_to_execute(looker):
    strategy = Exhaustive(SearchPlan(operators=looker.specs, budget=8, max_runs=2_000, stream=Random(0), prune=False))
    growing = Chains(looker.specs, budget=8, count=20)
    while (edge := strategy.ask()) is not None:  # no fault keeps this agent from anything, so the tree holds every schedule
        run = looker.evaluate(mat.spec.RunSpec(schedule=edge.schedule))
        strategy.tell(edge, EdgeOutcome(run=run, states=prefixes(run)))
        growing.note(run)
    assert len(growing.finish(execute(looker))) == 20
    assert growing.executions == 0


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["exhaustive", "random"])
def test_a_search_grows_chains_from_its_own_runs_and_executes_only_what_is_missing(shop, strategy):
    plain = shop.search(budget=8, strategy=strategy)
    alone = list(shop.executed)
    shop.executed.clear()
    result = shop.search(budget=8, strategy=strategy, curve=12)
    extra = shop.executed[len(alone) :]
    assert shop.executed[: len(alone)] == alone
    assert len(extra) == len(set(extra)) == result.executions - plain.executions
    assert not set(extra) & set(alone)
    assert result.chains == chains(shop.specs, execute(shop), budget=8, count=12, seed=chain_seed(result.nominal))
    assert result.certificate == plain.certificate
    assert (plain.chains, min(life.cost for life in plain.executed)) == ((), 0)


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["exhaustive", "random"])
def test_the_lives_of_a_search_hold_the_cheapest_failure_it_executed(shop, strategy):
    result = shop.search(budget=8, strategy=strategy)
    runs = [shop.evaluate(mat.spec.RunSpec(schedule=schedule)) for schedule in tuple(shop.executed)]
    assert result.executed == frontier(schedule_result(run) for run in runs)
    assert min(life.cost for life in result.executed if life.broken) == 4


@pytest.mark.full
@pytest.mark.parametrize("budget", [0, 3, 4, 5, 12, 40])
def test_a_chain_begins_undisturbed_rises_in_cost_and_stays_within_the_budget(shop, budget):
    run = remembered(shop)
    for chain in chains(shop.specs, run, budget=budget, count=20):
        costs = [life.cost for life in chain]
        assert costs[0] == 0
        assert costs == sorted(set(costs))
        assert costs[-1] <= budget
        assert chain[0] == schedule_result(run(Schedule()))
    if budget < 4:
        assert shop.executed == [Schedule()]


def test_a_chain_ends_only_where_nothing_affordable_is_left(looker):
    for chain in chains(looker.specs, remembered(looker), budget=12, count=30):
        assert chain[-1].cost > 12 - 4  # four asks take three injections of cost 4: the budget is what ends a chain
    for chain in chains(looker.specs, remembered(looker), budget=100, count=30):
        assert len(chain) == 1 + 4  # one injection an ask


def test_one_injection_is_drawn_evenly_over_asks_then_operators_then_grid_points(lab):
    def body():
        look(1)
        pay(1)

    made = lab(body, [], ("service.timeout", "service.slow", "service.lost_ack"))
    run, drawn = remembered(made), Counter()
    for seed in range(1_200):
        growing = Chains(made.specs, budget=6, count=1, seed=seed)
        growing.note(run(Schedule()))
        wanted = growing._chains[0].wanted
        for item in wanted:
            drawn[item.site.name, item.operator, item.cost] += 1
    expected = {
        ("look", "service.timeout", 4): 300, ("look", "service.slow", 4): 150, ("look", "service.slow", 6): 150,
        ("pay", "service.timeout", 4): 200, ("pay", "service.slow", 4): 100, ("pay", "service.slow", 6): 100,
        ("pay", "service.lost_ack", 4): 200,
    }  # fmt: skip
    assert set(drawn) == set(expected)
    for point, count in expected.items():
        assert drawn[point] == pytest.approx(count, abs=4 * count**0.5)


def test_a_further_injection_lies_before_the_first_as_often_as_after_it(looker):
    before = after = 0
    run = remembered(looker)
    for seed in range(150):
        growing = Chains(looker.specs, budget=8, count=1, seed=seed)
        growing.note(run(Schedule()))
        first = growing._chains[0].wanted
        growing.note(run(first))
        (one,) = first
        for other in growing._chains[0].wanted:
            before += other.site.nth < one.site.nth
            after += other.site.nth > one.site.nth
    assert before + after > 100
    assert abs(before - after) < 4 * (before + after) ** 0.5


def test_ranges_never_share_an_ask(lab):
    made = lab(patient, [], ("service.timeout", "service.outage"))
    found = chains(made.specs, execute(made), budget=20, count=40)
    assert max(len(chain) for chain in found) == 5
    for schedule in made.executed:  # Schedule refuses two perturbations that share an ask
        items = list(schedule)
        assert not any(one.site.overlaps(other.site) for one in items for other in items if one is not other)
    assert any(item.site.last > item.site.nth for schedule in made.executed for item in schedule)


def test_what_an_operator_declares_without_effect_is_not_injected(lab):
    made = lab(patient, [], ("service.nothing", "service.lost_ack", "service.timeout"))
    chains(made.specs, execute(made), budget=12, count=20)
    assert {item.operator for schedule in made.executed for item in schedule} == {"service.timeout"}


def test_an_injection_that_is_no_longer_reached_stays_in_the_schedule_and_costs(lab):
    def gives_up():
        look(1)
        look(2)

    made = lab(gives_up, [], ("service.timeout",))
    run = remembered(made)
    found = chains(made.specs, run, budget=8, count=40)
    assert {tuple(life.cost for life in chain) for chain in found} == {(0, 4), (0, 4, 8)}
    both = next(schedule for schedule in made.executed if len(schedule) == 2)
    assert run(both).unreached


def test_equal_seeds_give_equal_chains_and_more_chains_change_none(shop):
    run = remembered(shop)
    some = chains(shop.specs, run, budget=12, count=5, seed="a")
    assert chains(tuple(reversed(shop.specs)), run, budget=12, count=9, seed="a")[:5] == some
    assert chains(shop.specs, run, budget=12, count=20, seed="b") != chains(shop.specs, run, budget=12, count=20, seed="a")


def test_the_order_in_which_runs_are_noted_changes_nothing(shop):
    run = remembered(shop)
    expected = chains(shop.specs, run, budget=12, count=10)
    runs = [run(schedule) for schedule in tuple(shop.executed)]
    for order in range(5):
        growing = Chains(shop.specs, budget=12, count=10)
        Random(order).shuffle(runs)
        for known in runs:
            growing.note(known)
        assert growing.finish(run) == expected


def test_an_interrupted_growth_keeps_whole_chains_and_goes_on_without_repeating_anything(shop):
    expected = chains(shop.specs, remembered(shop), budget=12, count=10)
    shop.executed.clear()
    growing, left = Chains(shop.specs, budget=12, count=10), [9]

    def run(schedule):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return shop.evaluate(mat.spec.RunSpec(schedule=schedule))

    with pytest.raises(KeyboardInterrupt):
        growing.finish(run)
    kept = growing.grown
    assert 0 < len(kept) < 10
    assert kept == expected[: len(kept)]
    left[0] = 1_000
    assert growing.finish(run) == expected
    assert len(shop.executed) == len(set(shop.executed))


def test_no_chains_execute_nothing(shop):
    assert chains(shop.specs, execute(shop), budget=12, count=0) == ()
    assert shop.executed == []


def test_a_grid_without_operators_gives_undisturbed_chains(shop):
    assert chains((), execute(shop), budget=12, count=3) == ((schedule_result(shop.nominal()),),) * 3


def test_all_that_is_wrong_is_said_at_once(shop):
    with pytest.raises(SpecError) as raised:
        Chains(shop.specs, budget=-1, count=-2)
    assert raised.value.what == "budget=-1 and count=-2 must not be below 0"
    with pytest.raises(SpecError):
        random_policy(shop.nominal(), shop.specs, budget=-1)


# -- the policy ---------------------------------------------------------------------------------------------------------

EVERY = (*FAULTS, "service.outage")


def seen(number=1, rest=12, operators=EVERY, **changed):
    facts = {"kind": "tool_call", "boundary": "service", "name": "look", "agent": "main", "role": "", "impact": "low",
             "effect": "read", "site": f"main/service:look#{number}"}  # fmt: skip
    return Seen(step=number, rest=rest, operators=operators, **{**facts, **changed})


def policy_of(made, budget=12, nominal=None, operators=None, **options):
    found = random_policy(nominal or made.nominal(), made.specs if operators is None else operators, budget=budget, **options)
    assert found.budget == budget
    assert isinstance(found.choose, RandomPolicy)
    return found.choose


@pytest.fixture(scope="module")
def eager(lab):
    """A policy that injects wherever it can."""
    return replace(policy_of(lab(patient, [], EVERY)), hit=1, of=1)


def test_a_policy_is_a_value_that_answers_alike_wherever_it_is_asked(looker):
    policy = replace(policy_of(looker, seed="z", episode=3), hit=1, of=2)
    answers = [policy(seen(number)) for number in range(1, 41)]
    assert [policy(seen(number)) for number in range(40, 0, -1)] == answers[::-1]
    assert [pickle.loads(pickle.dumps(policy))(seen(number)) for number in range(1, 41)] == answers
    assert [replace(policy, episode=4)(seen(number)) for number in range(1, 41)] != answers
    assert [replace(policy, seed="y")(seen(number)) for number in range(1, 41)] != answers
    assert None in answers
    assert any(answers)


@given(rest=st.integers(0, 12), number=st.integers(1, 50), episode=st.integers(0, 50))
def test_a_policy_stays_within_what_is_left_and_binds_to_the_call(eager, rest, number, episode):
    found = replace(eager, episode=episode)(seen(number, rest))
    if found is None:
        assert rest < 4
    else:
        assert found.cost <= rest
        assert str(found.site).startswith(f"main/service:look#{number}")


def test_a_range_covers_as_many_asks_as_its_grid_point_says(eager):
    found = [eager(seen(number)) for number in range(1, 61)]
    spans = {(item.operator, item.site.last - item.site.nth + 1) for item in found}
    assert spans == {*((name, 1) for name in FAULTS), ("service.outage", 3)}


def test_a_policy_injects_only_what_can_act_there(eager):
    some = ("service.wrong", "service.timeout", "order.hold")
    assert {eager(seen(number, operators=some)).operator for number in range(1, 60)} == {"service.wrong", "service.timeout"}
    assert eager(seen(operators=("order.hold",))) is None
    assert eager(seen(operators=())) is None


def test_the_operators_at_a_call_are_drawn_alike_and_their_grid_points_too(eager):
    drawn = Counter()
    for episode in range(1_000):
        found = replace(eager, episode=episode)(seen())
        drawn[found.operator, found.cost] += 1
    assert set(drawn) == {("service.slow", 4), ("service.slow", 6), ("service.outage", 5), *((name, 4) for name in FAULTS)}
    for (operator, _), count in drawn.items():
        assert count == pytest.approx(100 if operator == "service.slow" else 200, abs=50)


@pytest.mark.full
@pytest.mark.parametrize("budget", [5, 12, 30])
def test_the_budget_is_what_a_policy_may_be_expected_to_spend(lab, budget):
    def long():
        for number in range(40):
            look(number)

    made = lab(long, [], EVERY)
    policy = policy_of(made, budget=budget)
    spent = 0
    for episode in range(400):
        mine = replace(policy, episode=episode)
        spent += sum(found.cost for number in range(1, 41) if (found := mine(seen(number, rest=budget))) is not None)
    assert spent / 400 == pytest.approx(budget, rel=0.1)


def test_an_agent_with_few_calls_is_injected_at_each(looker):
    policy = policy_of(looker, budget=100)
    assert (policy.hit, policy.of) == (1, 1)
    assert all(policy(seen(number, rest=100)) for number in range(1, 20))


def test_what_cannot_be_injected_does_not_count(looker):
    """The odds are those of the calls that something affordable can act on, as the undisturbed run shows them."""
    open_to_all = policy_of(looker)
    closed = replace(looker.nominal(), restricted=FrozenDict({"service:look": ()}))
    other = replace(looker.nominal(), restricted=FrozenDict({"service:pay": ()}))
    assert policy_of(looker, nominal=closed).hit == 0
    assert policy_of(looker, nominal=other) == open_to_all
    point = (GridPoint(parameters=FrozenDict(), cost=1),)
    elsewhere = (
        OperatorSpec(id="memory.forget", boundary="memory", kinds=frozenset(["tool_call"]), choices=point),
        OperatorSpec(id="service.other", boundary="service", kinds=frozenset(["message"]), choices=point),
    )
    more = policy_of(looker, operators=(*elsewhere, *looker.specs))
    assert (more.hit, more.of) == (open_to_all.hit, open_to_all.of)
    first, *others = looker.nominal().records
    stopped = replace(first, mediation=Mediation(decision="block", rule="never"))
    three = policy_of(looker, nominal=replace(looker.nominal(), records=(stopped, *others)))
    assert Fraction(three.hit, three.of) == Fraction(open_to_all.hit, open_to_all.of) * 4 / 3
    assert policy_of(looker, budget=4).hit == 1
    assert policy_of(looker, budget=3).hit == 0
    assert policy_of(looker, operators=()).hit == 0


def test_a_run_under_a_policy_carries_what_was_drawn_and_stays_within_the_budget(lab):
    made = lab(patient, [], EVERY)
    nominal, costs = made.nominal(), []
    for episode in range(30):
        policy = random_policy(nominal, made.specs, budget=9, seed=1, episode=episode)
        with mat.run([], operators=made.catalog, states=True, adversary=policy) as run:
            patient()
        drawn = run.result.spec.schedule
        costs.append(drawn.cost)
        assert made.evaluate(mat.spec.RunSpec(schedule=drawn)).head == run.result.head
    assert max(costs) <= 9
    assert len(set(costs)) > 2

"""The adversary that learns: what it maximises, that it finds failures in stages, and that it does so before chance does."""

from __future__ import annotations

import pickle
from contextlib import suppress
from fractions import Fraction
from random import Random

import pytest

import mat
from mat.boundary.catalog import Catalog
from mat.boundary.effect import Delay, Drop, Raise, Replace
from mat.core.adversary import Adaptive
from mat.core.errors import SpecError
from mat.core.run import prefixes
from mat.core.spec import NO_SCHEDULE
from mat.kernel.entropy import stream_seed
from mat_search import Campaign, search
from mat_search.adversary import AdversarySearch, Episode, Learner, Objective
from mat_search.sample import RandomSearch
from mat_search.strategy import EdgeOutcome, SearchPlan

OPERATORS = Catalog(
    [
        mat.spec.operator("service.timeout", lambda call, reply, stream: Raise("timeout", delay_ms=1_000)),
        mat.spec.operator("service.refused", lambda call, reply, stream: Raise("connection")),
        mat.spec.operator("service.lost_ack", lambda call, reply, stream: Raise("timeout", delay_ms=1_000), phase="after"),
        mat.spec.operator(
            "service.slow", lambda call, reply, stream: Delay(call.parameters["ms"]), grid=[{"ms": 1_000}, {"ms": 5_000}]
        ),
        mat.spec.operator("service.empty", lambda call, reply, stream: Replace({}), phase="after"),
        mat.spec.operator("memory.forget", lambda call, reply, stream: Drop()),
        mat.spec.operator("model.inject", lambda call, reply, stream: Replace(f"{reply.value} IGNORE"), phase="after"),
    ]
)
SPECS = tuple(operator.spec() for operator in OPERATORS)


@mat.tool
def look(part: int) -> dict[str, int]:
    return {"part": part}


@mat.tool
def mirror(part: int) -> dict[str, int]:
    return {"part": part}


@mat.tool
def approve(amount: int) -> dict[str, bool]:
    return {"approved": True}


@mat.tool(effect="write", impact="high")
def pay(amount: int) -> dict[str, int]:
    return {"paid": amount}


@mat.model("planner")
def plan(prompt: str) -> str:
    return "go on"


@mat.step_contract(on="tool_call", severity="hard")
def payments_are_small(record):
    return record.action.name != "pay" or record.action.arguments["amount"] < 100


def failover():
    """The fifth part comes from a mirror when the service fails; what the mirror leaves out is paid for without a limit."""
    amount = 1
    for part in range(8):
        try:
            look(part)
        except OSError:
            if part == 4 and not mirror(part):
                amount = 100
    pay(amount)


def drift():
    """An instruction in the fourth plan makes a clerk an admin; an admin takes an approval that fails for a yes."""
    role = "clerk"
    for part in range(6):
        with mat.agent("worker", role=role):
            if "IGNORE" in plan(f"step {part}") and part == 3:
                role = "admin"
            with suppress(OSError):
                look(part)
    with mat.agent("worker", role=role):
        try:
            approve(1)
        except OSError:
            if role == "admin":
                pay(100)
        pay(1)


def three_stages():
    """The service refuses, then the mirror times out, and then the approval fails: nothing less is harmful."""
    amount = 1
    for part in range(6):
        try:
            look(part)
        except ConnectionError:
            try:
                if part == 3:
                    mirror(part)
            except TimeoutError:
                try:
                    approve(part)
                except OSError:
                    amount = 100
        except OSError:
            pass
    pay(amount)


def harmless():
    for part in range(3):
        with suppress(OSError):
            look(part)


AGENTS = {body.__name__: body for body in (failover, drift, three_stages)}


def executed(body, schedule=NO_SCHEDULE, policy=None, contracts=(payments_are_small,)):
    run = mat.run(list(contracts), schedule=schedule, operators=OPERATORS, states=True, adversary=policy)
    with suppress(OSError), run:
        body()
    assert run.result is not None
    return run.result


def plan_of(seed=0, budget=12, operators=SPECS):
    return SearchPlan(operators=operators, budget=budget, max_runs=1_000, stream=Random(stream_seed(seed, "search/test")))


def told(run, known=frozenset()):
    broken = frozenset(violation.contract for violation in run.failures) - known
    return EdgeOutcome(run=run, states=prefixes(run), broken=broken)


def hunted(body, strategy, *, most, stop=True, contracts=(payments_are_small,)):
    """The runs of a strategy, up to the first failure or `most`."""
    runs = []
    while len(runs) < most and (edge := strategy.ask()) is not None:
        runs.append(executed(body, edge.schedule, strategy.policy(edge), contracts))
        if stop and runs[-1].failures:
            break
        strategy.tell(edge, told(runs[-1]))
    return runs


def first_failure(body, strategy, *, most):
    runs = hunted(body, strategy, most=most)
    return len(runs) if runs[-1].failures else most + 1


class TestFailuresInStages:
    @pytest.mark.nightly
    @pytest.mark.parametrize(("name", "most", "times"), [("failover", 160, 1), ("three_stages", 200, 2)])
    def test_it_finds_every_one_in_fewer_executions_than_chance(self, name, most, times):
        """Over 20 seeds; where chance has not found it within `most`, it counts as having found it then."""
        body = AGENTS[name]
        learned = [first_failure(body, AdversarySearch(plan_of(seed)), most=most) for seed in range(20)]
        drawn = [first_failure(body, RandomSearch(plan_of(seed)), most=most) for seed in range(20)]
        assert max(learned) <= most
        assert sum(learned) * times < sum(drawn)

    @pytest.mark.full
    def test_role_drift_then_authority(self):
        learned = [first_failure(drift, AdversarySearch(plan_of(seed)), most=400) for seed in range(4)]
        assert max(learned) <= 400

    @pytest.mark.full
    @pytest.mark.parametrize("name", AGENTS)
    def test_the_first_injection_pays_nothing_by_itself(self, name):
        """What makes these failures staged: no single injection breaks the contract."""
        body = AGENTS[name]
        for record in executed(body).records:
            for spec in SPECS:
                if record.action.boundary == spec.boundary and record.action.kind in spec.kinds:
                    for choice in spec.choices:
                        item = mat.spec.perturbation(spec.id, record.site, choice.parameters, choice.cost)
                        assert executed(body, mat.spec.schedule([item])).failures == ()

    @pytest.mark.full
    @pytest.mark.parametrize("name", AGENTS)
    def test_the_realised_schedule_fails_plainly_too(self, name):
        runs = hunted(AGENTS[name], AdversarySearch(plan_of(3)), most=400)
        again = executed(AGENTS[name], runs[-1].spec.schedule)
        assert (again.head, len(again.failures)) == (runs[-1].head, 1)


class TestTheObjective:
    def test_it_is_equation_9(self):
        """By hand: a violation of weight 10 at step 2, an injection of cost 4 at step 0, half of the re-executions differ."""

        def body():
            with suppress(OSError):
                look(0)
            look(1)
            pay(100)

        run = executed(body, mat.spec.schedule([mat.spec.perturbation("service.timeout", "main/service:look#1", {}, 4)]))
        objective = Objective(gamma=(9, 10), beta=(1, 8), lam=(3, 1))
        expected = Fraction(81, 100) * 10 - Fraction(1, 8) * 4 - 3 * Fraction(1, 2)
        assert objective.value(run, instability=Fraction(1, 2)) == expected
        assert objective.value(run, known={"payments_are_small"}) == -Fraction(1, 2)

    def test_what_was_not_reached_costs_nothing(self):
        schedule = mat.spec.schedule([mat.spec.perturbation("service.timeout", "main/service:look#99", {}, 4)])
        assert Objective().value(executed(harmless, schedule)) == 0

    @pytest.mark.parametrize(
        "wrong", [{"gamma": (3, 2)}, {"beta": (-1, 2)}, {"lam": (1, 0)}, {"explore": (2, 1)}, {"gamma": (0.9, 1)}]
    )
    def test_ratios_that_mean_nothing_are_refused(self, wrong):
        with pytest.raises(SpecError, match=next(iter(wrong))):
            Objective(**wrong)

    @pytest.mark.full
    def test_what_it_learned_to_do_is_worth_more_than_what_it_did_at_first(self):
        """The mean of Eq. 9 over its last episodes that exploit is that of a violation at almost no cost."""
        strategy = AdversarySearch(plan_of(1), objective=Objective(explore=(1, 4)), attempts=10_000)
        runs = hunted(failover, strategy, most=300, stop=False)
        values = [Objective().value(run) for run in runs]
        assert sum(values[-60:]) / 60 > 5 > 1 > sum(values[:40]) / 40

    def test_of_two_ways_to_break_the_same_it_keeps_to_the_cheaper_one(self):
        cheap = mat.spec.operator("service.cheap", lambda call, reply, stream: Raise("timeout"), price=lambda point, model: 1)
        dear = mat.spec.operator("service.dear", lambda call, reply, stream: Raise("timeout"), price=lambda point, model: 9)

        def body():
            try:
                look(0)
            except OSError:
                pay(100)

        learner, catalog = Learner([cheap.spec(), dear.spec()], Objective(beta=(1, 2))), Catalog([cheap, dear])
        stream = Random(1)
        for _ in range(20):
            run = mat.run([payments_are_small], operators=catalog, adversary=learner.episode(stream))
            with suppress(OSError), run:
                body()
            learner.learn(run.result)
        best = Episode(knowledge=learner.knowledge, mode="exploit", seed=0)
        with mat.run([payments_are_small], operators=catalog, adversary=best) as run:
            body()
        assert [item.operator for item in run.result.spec.schedule] == ["service.cheap"]

    def test_schedules_that_do_not_repeat_are_given_up_and_stable_ones_kept(self):
        """Instab: what a schedule pays is taken away again where its re-executions differ."""

        def body():
            try:
                look(0)
            except OSError:
                pay(100)

        def learned(instability):
            learner, stream = Learner(SPECS), Random(1)
            for _ in range(40):
                run = executed(body, policy=learner.episode(stream))
                learner.learn(run, instability=instability if run.failures else Fraction(0))
            return executed(body, policy=Episode(knowledge=learner.knowledge, mode="exploit", seed=0))

        assert learned(Fraction(0)).failures
        assert not learned(Fraction(1)).failures


class TestThePolicy:
    def test_equal_seeds_give_equal_episodes_and_others_others(self):
        def schedules(seed):
            return [run.spec.schedule for run in hunted(failover, AdversarySearch(plan_of(seed)), most=30, stop=False)]

        assert schedules(5) == schedules(5) != schedules(6)

    def test_it_travels_and_decides_the_same_there(self):
        strategy = AdversarySearch(plan_of(2))
        hunted(drift, strategy, most=40, stop=False)
        edge = strategy.ask()
        policy = strategy.policy(edge)
        copy = pickle.loads(pickle.dumps(policy))
        assert executed(drift, policy=copy).head == executed(drift, policy=policy).head

    def test_no_float_decides(self):
        strategy = AdversarySearch(plan_of(2))
        runs = hunted(failover, strategy, most=60, stop=False)
        knowledge = strategy.learner.knowledge
        for run in runs:
            for seen in run.seen:
                state = knowledge.state(seen)
                assert all(type(score) is int for score in knowledge.scores(state, knowledge.affordable(seen), "exploit"))

    def test_what_it_may_spend_is_kept(self):
        for budget in (0, 3, 4, 8):
            strategy = AdversarySearch(plan_of(0, budget=budget))
            runs = hunted(failover, strategy, most=25, stop=False)
            assert max(run.spec.schedule.cost for run in runs) == budget // 4 * 4
        strategy = AdversarySearch(plan_of(0))
        strategy.tell(strategy.ask(), told(executed(failover)))
        policy = strategy.policy(strategy.ask(most=5))
        assert isinstance(policy, Adaptive)
        assert policy.budget == 5
        assert strategy.ask(most=3) is None


class TestTheStrategy:
    def test_the_undisturbed_run_comes_first_and_what_it_breaks_pays_nothing(self):
        def body():
            pay(100)
            harmless()

        strategy = AdversarySearch(plan_of(0))
        edge = strategy.ask()
        assert (edge.schedule, strategy.policy(edge)) == (NO_SCHEDULE, None)
        run = executed(body)
        strategy.tell(edge, told(run))
        for _ in range(20):
            edge = strategy.ask()
            run = executed(body, edge.schedule, strategy.policy(edge))
            strategy.tell(edge, told(run, frozenset({"payments_are_small"})))
        assert [violation.contract for violation in run.failures] == ["payments_are_small"]
        assert not strategy.learner.knowledge.paid

    def test_a_schedule_that_hit_is_executed_plainly_once_more(self):
        strategy = AdversarySearch(plan_of(0))
        while True:
            edge = strategy.ask()
            run = executed(failover, edge.schedule, strategy.policy(edge))
            strategy.tell(edge, told(run))
            if run.failures:
                break
        again = strategy.ask()
        assert (again.schedule, strategy.policy(again)) == (run.spec.schedule, None)
        strategy.tell(again, told(executed(failover, again.schedule)))
        assert strategy.policy(strategy.ask()) is not None

    def test_it_ends_where_there_is_nothing_new(self):
        strategy = AdversarySearch(plan_of(0, operators=SPECS[:1]))
        runs = hunted(harmless, strategy, most=2_000, stop=False)
        assert len(runs) < 2_000
        assert strategy.ask() is None

    def test_nothing_to_inject_is_one_run(self):
        strategy = AdversarySearch(plan_of(0, operators=()))
        assert len(hunted(harmless, strategy, most=100, stop=False)) <= 60

    def test_it_proves_nothing(self):
        strategy = AdversarySearch(plan_of(0))
        hunted(harmless, strategy, most=20, stop=False)
        assert (strategy.proves, strategy.bound, strategy.upcoming(4), len(strategy.skipped)) == (False, 0, (), 0)
        assert strategy.seen

    @pytest.mark.nightly
    @pytest.mark.parametrize("name", AGENTS)
    def test_a_campaign_of_it_gives_the_counterexample_shrunk(self, name):
        body = AGENTS[name]
        result = search(
            executed(body), lambda spec: executed(body, spec.schedule),
            Campaign(operators=SPECS, strategy="adversary", max_runs=300, stop="first"),
            adapt=lambda spec, policy: executed(body, spec.schedule, policy),
        )  # fmt: skip
        (found,) = result.counterexamples
        assert found.cost == {"failover": 8, "drift": 8, "three_stages": 12}[name]
        assert found.stability.stable
        assert not result.certificate.proven

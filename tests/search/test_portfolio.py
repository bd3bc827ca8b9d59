"""The default search: it is the exhaustive one where that ends soon, and guesses above the proven bound where it does not."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import mat
from mat.boundary.effect import Raise, Replace
from mat.core import limits
from mat.core.operator import CoveredBy
from mat.core.run import prefixes
from mat.core.spec import NO_SCHEDULE, Schedule
from mat_search import Campaign, search
from mat_search.chase import Chase
from mat_search.exhaust import Exhaustive
from mat_search.forecast import Forecast
from mat_search.portfolio import Portfolio
from mat_search.probes import draw_few, draw_probe
from mat_search.reduction import Reduction
from mat_search.space import Grid, edges
from mat_search.strategy import EdgeOutcome, SearchPlan
from mat_search.vocabulary import Vocabulary
from mat_study.settings import ItemSettings

ROOT = Path(__file__).resolve().parents[2]
FAILS = mat.spec.operator("service.fails", lambda call, reply, stream: Raise("timeout"), price=lambda point, model: 2)
OFF = mat.spec.operator(
    "service.off", lambda call, reply, stream: Replace(reply.value + call.parameters["by"]), phase="after",
    grid=[{"by": by} for by in range(1, 9)], price=lambda point, model: 2 + point["by"],
)  # fmt: skip


def _load(name):
    found = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    sys.modules[module.__name__] = module
    found.loader.exec_module(module)
    return module


planted = _load("planted")


@mat.trace_contract(start=False, id="never.harmed")
def never_harmed(broken: bool, record: mat.Record) -> object:
    return mat.Violated("harmed", state=True) if not broken and record.state.get("harmed") else broken


def reading(body, steps):
    """An agent that hands each failure and each wrong value to `body(step, what)`."""

    @mat.tool(name="read")
    def read(step):
        return step

    def agent():
        for step in range(steps):
            for attempt in range(2):
                try:
                    if read(step) != step:
                        body(step, "wrong")
                    break
                except TimeoutError:
                    body(step, "failed" if attempt else "first")

    return agent


def two_apart(first, second, steps):
    """A failure of one step and a wrong value at a later one do harm together."""
    seen = set()

    def body(step, what):
        if (step, what) == (0, "first"):
            pass
        seen.add((step, what))
        if (step, what) == (second, "wrong") and (first, "first") in seen:
            mat.state(harmed=True)
            mat.claim("harm")

    agent = reading(body, steps)

    def fresh():
        seen.clear()
        agent()

    return fresh


def harmless():
    return lambda step, what: None


def fragile():
    """Seven failures do harm together."""
    failed = set()

    def body(step, what):
        failed.add(step)
        if len(failed) == 7:
            mat.state(harmed=True)
            mat.claim("harm")

    return body


@pytest.fixture
def large(lab):
    """40 calls: far more schedules than any search here executes."""
    return lab(two_apart(11, 29, 40), [never_harmed], (), extra=[FAILS, OFF])


def plan(lab, *, budget=12, max_runs=2_000, seed=0):
    return SearchPlan(operators=lab.specs, budget=budget, max_runs=max_runs, stream=random.Random(seed))


def drive(lab, strategy, *, most, wanted=None):
    """The schedules that a strategy asks for, in order, with its bound after each."""
    asked, runs = [], {}
    while len(runs) < most and (edge := strategy.ask(wanted)) is not None:
        schedule = edge.schedule
        if schedule not in runs:
            runs[schedule] = lab.evaluate(mat.spec.RunSpec(seed=lab.seed, schedule=schedule))
        run = runs[schedule]
        broken = frozenset(item.contract for item in run.failures)
        strategy.tell(edge, EdgeOutcome(run=run, states=prefixes(run), broken=broken))
        asked.append((schedule, strategy.bound))
    return asked, runs


class TestWhereTheProofEndsSoon:
    def test_it_executes_what_the_exhaustive_search_executes_and_certifies_the_same(self, lab):
        small = lab(two_apart(1, 3, 5), [never_harmed], (), extra=[FAILS])
        results = []
        for strategy in ("exhaustive", "portfolio"):
            small.executed.clear()
            results.append((small.search(budget=6, strategy=strategy), list(small.executed)))
        (one, executed), (other, also) = results
        assert also == executed
        assert other == one
        assert other.certificate.proven
        assert other.certificate.bound == 6

    @pytest.mark.parametrize("stop", ["budget", "cheapest", "first"])
    def test_what_it_never_executed_is_no_assumption(self, lab, stop):
        """Declared reads matter to points that cost more than where the search stops."""

        @mat.tool(name="look", effect="read")
        def look(step):
            return step

        @mat.tool(name="pay", effect="write")
        def pay(step):
            return step

        def body():
            look(1)
            try:
                pay(1)
            except TimeoutError:
                mat.state(harmed=True)
                mat.claim("harm")

        costly = mat.spec.operator(
            "service.lost_ack", lambda call, reply, stream: Raise("timeout", delay_ms=1_000), phase="after",
            covered=CoveredBy(by=""), price=lambda point, model: 5,
        )  # fmt: skip
        small = lab(body, [never_harmed], (), extra=[FAILS, costly])
        one, other = (small.search(budget=6, strategy=name, stop=stop) for name in ("exhaustive", "portfolio"))
        assert other == one
        assert any("look" in text for text in one.certificate.assumptions) == (stop == "budget")

    def test_it_is_the_default_of_pytest_under_stress(self):
        assert ItemSettings().strategy == "portfolio"


class TestWhereItDoesNot:
    @pytest.mark.full
    def test_a_pair_far_above_the_proven_bound_is_found_and_reduced(self, large):
        result = large.search(budget=12, strategy="portfolio", max_runs=500)
        assert [item.cost for item in result.counterexamples] == [5]
        assert sorted(str(item.site) for item in result.counterexamples[0].run.spec.schedule) == [
            "main/service:read#12", "main/service:read#31",
        ]  # fmt: skip
        plain = large.search(budget=12, strategy="exhaustive", max_runs=500)
        assert plain.counterexamples == ()

    @pytest.mark.full
    def test_only_schedules_within_the_budget_are_counterexamples(self, large):
        result = large.search(budget=4, strategy="portfolio", max_runs=300)
        assert result.counterexamples == ()
        assert max(schedule.cost for schedule in large.executed) > 4

    @pytest.mark.full
    def test_its_bound_is_never_more_than_what_was_executed(self, large):
        asked, _ = drive(large, Portfolio(plan(large, max_runs=400)), most=400)
        for index, (_, bound) in enumerate(asked):
            if index % 40 == 0:
                done = {schedule for schedule, _ in asked[: index + 1]}
                missing = [each for each in cheap(large, bound) if each not in done]
                assert missing == []
        assert asked[-1][1] >= 2

    @pytest.mark.full
    def test_guesses_and_the_proof_share_the_executions(self, large):
        strategy = Portfolio(plan(large, max_runs=600))
        asked, _ = drive(large, strategy, most=600)
        guessed = sum(1 for schedule, _ in asked if len(schedule) > 2 or schedule.cost > 12)
        assert 100 <= guessed <= 450

    @pytest.mark.full
    @pytest.mark.parametrize(("body", "room"), [(harmless, 1.1), (harmless, 1.9), (fragile, 1.1), (fragile, 1.3)])
    def test_where_the_proof_can_end_at_most_a_third_are_guesses(self, lab, body, room):
        """Whatever the guesses meet beyond the budget."""
        safe = lab(lambda: reading(body(), 12)(), [never_harmed], (), extra=[FAILS, OFF])
        proof = {schedule for schedule, _ in drive(safe, Exhaustive(plan(safe, budget=6)), most=3_000)[0]}
        most = int(len(proof) * room)
        asked, _ = drive(safe, Portfolio(plan(safe, budget=6, max_runs=most)), most=most)
        assert proof <= {schedule for schedule, _ in asked}, "the proof ended"
        guesses = len(asked) - len(proof)  # some of them are of the proof, too
        assert 0 < guesses <= most // 3

    @pytest.mark.full
    def test_every_single_fault_is_executed_where_there_is_room_for_little_more(self, lab):
        safe = lab(reading(lambda step, what: None, 60), [never_harmed], (), extra=[FAILS, OFF])
        nominal = safe.nominal()
        singles = {edge.schedule for edge in edges(nominal, NO_SCHEDULE, -1, Grid(safe.specs), prefixes(nominal), budget=12)}
        assert len(singles) == 60 * 9
        asked, _ = drive(safe, Portfolio(plan(safe, max_runs=640)), most=640)
        assert singles <= {schedule for schedule, _ in asked}

    @pytest.mark.full
    def test_the_same_stream_gives_the_same_schedules_and_looking_ahead_changes_nothing(self, large):
        one, two = Portfolio(plan(large, seed=3)), Portfolio(plan(large, seed=3))
        first, _ = drive(large, one, most=150)
        ask = two.ask
        two.ask = lambda most=None: (two.upcoming(5), ask(most))[1]
        second, _ = drive(large, two, most=150)
        assert first == second

    @pytest.mark.full
    def test_what_cannot_be_executed_is_left_out_and_the_bound_stays_below_it(self, large):
        strategy = Portfolio(plan(large, max_runs=300))
        lost = None
        for _ in range(300):
            edge = strategy.ask()
            if edge is None:
                break
            if edge.cost == 2 and lost in (None, edge.schedule):
                lost = edge.schedule
                strategy.lose(edge)
                continue
            run = large.evaluate(mat.spec.RunSpec(schedule=edge.schedule))
            broken = frozenset(item.contract for item in run.failures)
            strategy.tell(edge, EdgeOutcome(run=run, states=prefixes(run), broken=broken))
        assert lost is not None
        assert strategy.bound < 2


def cheap(lab, most):
    """Every schedule up to a cost, grown from the nominal run at every call, before or after what is there."""
    found, waiting = {NO_SCHEDULE}, [NO_SCHEDULE]
    while waiting:
        schedule = waiting.pop()
        run = lab.evaluate(mat.spec.RunSpec(schedule=schedule))
        for record in run.records:
            for operator in lab.specs if record.action.boundary else ():
                for choice in operator.choices:
                    if schedule.cost + choice.cost > most:
                        continue
                    added = mat.spec.perturbation(operator.id, record.site, choice.parameters, choice.cost)
                    with suppress(mat.MatError):
                        grown = schedule.add(added)
                        if grown not in found:
                            found.add(grown)
                            waiting.append(grown)
    return found


@pytest.mark.full
@pytest.mark.parametrize("name", ["A03", "A07", "A10"])
def test_planted_faults_are_found_at_their_cost_though_nothing_is_declared(name):
    agent = planted.AGENTS[name](5)
    nominal = agent.run(mat.spec.RunSpec(seed=5), digest=False)
    campaign = Campaign(
        operators=tuple(operator.spec() for operator in agent.operators), budget=agent.budget, max_runs=600,
        strategy="portfolio", stop="first",
    )  # fmt: skip
    result = search(nominal, lambda spec: agent.run(spec, digest=False), campaign)
    assert min(item.cost for item in result.counterexamples) == agent.least
    assert result.certificate.bound < agent.least


# -- its parts ----------------------------------------------------------------------------------------------------------


class Retrying:
    """An agent that makes some calls, tries one that failed again up to so often, and gives up after so many failures.

    `schedules` counts, by cost, the sets of faults that can act on it, one call after another.
    """

    def __init__(self, costs: Sequence[Sequence[int]], *, retries: int, patience: int) -> None:
        self._costs, self._retries, self._patience = costs, retries, patience

    def schedules(self, budget: int) -> list[int]:
        found = [0] * (budget + 1)
        for cost in self._from(0, self._retries, self._patience, budget):
            found[cost] += 1
        return found

    def calls(self, faulty: int | None) -> int:
        """How many calls it makes if one of them, by its number, fails once."""
        if faulty is None:
            return len(self._costs)
        return len(self._costs) + 1 if self._patience > 1 and self._retries else faulty + 1

    def _from(self, call: int, retries: int, patience: int, left: int) -> Iterator[int]:
        if call == len(self._costs):
            yield 0
            return
        yield from self._from(call + 1, self._retries, patience, left)
        for cost in self._costs[call]:
            if cost > left:
                continue
            if patience == 1 or not retries:
                yield cost
                continue
            yield from (cost + rest for rest in self._from(call, retries - 1, patience - 1, left - cost))


def taught(agent: Retrying, costs: Sequence[Sequence[int]], budget: int) -> Forecast:
    """A forecast that has seen every single fault."""
    forecast = Forecast(sites(costs), budget)
    for call, offered in enumerate(costs):
        for cost in offered:
            forecast.learn(str(call), cost, agent.calls(call) - agent.calls(None))
    return forecast


def sites(costs: Sequence[Sequence[int]]) -> dict[str, Sequence[int]]:
    return {str(call): offered for call, offered in enumerate(costs)}


class TestForecast:
    def test_counts_combinations_of_at_most_one_perturbation_at_a_call(self):
        done = [1] + [0] * 5
        lefts = [Forecast(sites([[2, 3], [2]]), budget=5).left(0, cost, done) for cost in range(2, 6)]
        assert lefts == [2, 3, 4, 5]

    def test_is_scaled_by_what_the_last_complete_cost_took(self):
        forecast = Forecast(sites([[2]] * 10), budget=6)
        assert forecast.left(3, 4, [1, 0, 10, 0, 0, 0, 0]) == 45
        assert forecast.left(5, 6, [1, 0, 10, 0, 9, 0, 0]) == 24

    def test_less_is_left_as_executions_are_made(self):
        assert Forecast(sites([[2]] * 10), budget=4).left(3, 4, [1, 0, 10, 0, 40]) == 5

    @pytest.mark.parametrize("retries", [0, 1, 2, 3])
    def test_pairs_are_those_of_an_agent_whose_single_faults_were_seen(self, retries):
        """Calls that a fault adds, and calls that it takes away, whatever is offered at each."""
        costs = [[2, 3], [2], [2, 2, 3], [3], [2, 3]]
        agent = Retrying(costs, retries=retries, patience=2)
        real = agent.schedules(6)
        forecast = taught(agent, costs, 6)
        assert [forecast.left(3, cost, [*real[:4], 0, 0, 0]) for cost in (4, 5)] == [real[4], real[4] + real[5]]

    def test_triples_are_nearer_than_without_what_single_faults_did(self):
        costs = [[2, 2]] * 10
        agent = Retrying(costs, retries=2, patience=3)
        real = agent.schedules(6)
        done = [*real[:6], 0]
        seen, unseen = taught(agent, costs, 6), Forecast(sites(costs), 6)
        assert abs(seen.left(5, 6, done) - real[6]) * 10 < real[6] < abs(unseen.left(5, 6, done) - real[6]) * 10

    def test_a_fault_that_was_not_seen_changes_nothing(self):
        forecast = Forecast(sites([[2, 2]] * 3), budget=4)
        forecast.learn("0", 2, -2)
        assert forecast.left(3, 4, [1, 0, 6, 0, 0]) == 12 - 4


@pytest.fixture
def vocabulary(large):
    made = Vocabulary(Grid(large.specs), 12)
    made.learn(large.nominal())
    return made


def test_a_vocabulary_has_each_port_with_its_calls_and_points(vocabulary):
    assert vocabulary.asks == {"main/service:read": 40}
    assert [point.cost for point in vocabulary.points_at("main/service:read")] == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    placed = vocabulary.points["main/service:read"]["service.fails"][0].at("main/service:read", 7)
    assert (str(placed.site), placed.operator, placed.cost) == ("main/service:read#7", "service.fails", 2)


def test_probes_are_dense_and_contain_no_known_way_to_fail(vocabulary):
    stream = random.Random(1)
    drawn = [draw_probe(vocabulary, stream, ()) for _ in range(60)]
    assert max(map(len, drawn)) > 30
    known = [Schedule((item,)) for item in drawn[0]]
    assert all(not set(draw_probe(vocabulary, stream, known)) & set(drawn[0]) for _ in range(60))


def test_few_perturbations_stay_within_the_limit(vocabulary):
    stream = random.Random(1)
    drawn = [draw_few(vocabulary, stream, 9) for _ in range(100)]
    assert max(schedule.cost for schedule in drawn) <= 9
    assert {len(schedule) for schedule in drawn} >= {2, 3}


def reduce(lab, vocabulary, schedule, **options):
    def outcome(schedule):
        run = lab.evaluate(mat.spec.RunSpec(schedule=schedule))
        return EdgeOutcome(run=run, states=prefixes(run), broken=frozenset(item.contract for item in run.failures))

    reduction = Reduction(
        vocabulary, budget=12, wanted=frozenset({"never.harmed"}), nearness=lambda run: 1000, stream=random.Random(0)
    )
    steps, answer, executed = reduction.steps(schedule, outcome(schedule)), None, 0
    with suppress(StopIteration):
        while True:
            candidate = steps.send(answer)
            answer, executed = outcome(candidate), executed + 1
    return reduction.minimal[-1], executed


def test_a_reduction_ends_with_the_cheapest_part_though_retries_renumber_the_calls(large, vocabulary):
    """Every call before the harmful one fails once: without a failure its retry is missing, and all later calls move."""
    fails = vocabulary.points["main/service:read"]["service.fails"][0]
    wrong = vocabulary.points["main/service:read"]["service.off"][7]
    schedule = Schedule(
        (*(fails.at("main/service:read", 1 + 2 * step) for step in range(29)), wrong.at("main/service:read", 59))
    )
    least, executed = reduce(large, vocabulary, schedule)
    assert [(str(item.site), item.cost) for item in least] == [("main/service:read#12", 2), ("main/service:read#31", 3)]
    assert executed < 200


def test_a_chase_goes_on_at_the_calls_that_a_fault_has_caused(large, vocabulary):
    chase = Chase(vocabulary, large.nominal(), random.Random(0))
    fails = vocabulary.points["main/service:read"]["service.fails"][0]
    single = Schedule((fails.at("main/service:read", 4),))
    run = large.evaluate(mat.spec.RunSpec(schedule=single))
    chase.learn_single(single, EdgeOutcome(run=run, states=prefixes(run)))
    drawn = [chase.draw(12) for _ in range(6)]
    assert {chasing.parent.schedule for chasing in drawn} == {single}
    assert {"main/service:read#5"} < {str(item.site) for chasing in drawn for item in chasing.schedule}
    assert chase.draw(1) is None


def chasing(lab, singles):
    """A chase that has learnt from each single fault's run."""
    vocabulary = Vocabulary(Grid(lab.specs), 12)
    nominal = lab.nominal()
    vocabulary.learn(nominal)
    runs = [(single, lab.evaluate(mat.spec.RunSpec(schedule=single))) for single in singles]
    for _, run in runs:
        vocabulary.learn(run)
    chase = Chase(vocabulary, nominal, random.Random(0))
    for single, run in runs:
        chase.learn_single(single, EdgeOutcome(run=run, states=prefixes(run)))
    return chase


def failing(lab, port, nth):
    site = mat.spec.Site(agent="main", boundary="service", name=port, nth=nth, last=nth)
    return Schedule((mat.spec.perturbation("service.fails", site, {}, 2),))


def test_a_chase_begins_at_each_call_as_often_as_at_the_others(large):
    chase = chasing(large, [failing(large, "read", nth) for nth in range(1, 13)])
    drawn = [chase.draw(12).parent.schedule for _ in range(36)]
    counts = Counter(drawn)
    assert len(counts) == 12
    assert max(counts.values()) - min(counts.values()) <= 2


@pytest.fixture
def twice(lab):
    """20 calls, each of which is made again if it fails, and then replaced by one of another port."""
    read, backup = (mat.tool(lambda step: step, name=name) for name in ("read", "backup"))

    def agent():
        for step in range(20):
            try:
                read(step=step)
            except TimeoutError:
                with suppress(TimeoutError):
                    read(step=step)
                    continue
                with suppress(TimeoutError):
                    backup(step=step)

    return lab(agent, [never_harmed], (), extra=[FAILS, OFF])


def test_a_chase_goes_on_from_a_pair_that_the_proof_executed(twice):
    single = failing(twice, "read", 4)
    chase = chasing(twice, [single])
    at_retry, elsewhere = (failing(twice, "read", nth).perturbations[0] for nth in (5, 9))
    for added in (at_retry, elsewhere):
        pair = single.add(added)
        run = twice.evaluate(mat.spec.RunSpec(schedule=pair))
        chase.learn_path(single, str(added.site), pair, EdgeOutcome(run=run, states=prefixes(run)))
    drawn = [each for _ in range(60) if (each := chase.draw(12)) is not None]
    assert {each.parent.schedule for each in drawn} == {single, single.add(at_retry)}
    assert single.add(at_retry) not in {each.schedule for each in drawn}


def test_a_chase_prefers_the_calls_of_a_port_that_only_faults_reach(lab):
    read, backup = (mat.tool(lambda step: step, name=name) for name in ("read", "backup"))

    def agent():
        for step in range(20):
            try:
                read(step=step)
            except TimeoutError:
                with suppress(TimeoutError):
                    read(step=step)
                    backup(step=step)

    twice = lab(agent, [never_harmed], (), extra=[FAILS, OFF])
    chase = chasing(twice, [failing(twice, "read", nth) for nth in range(1, 21)])
    drawn = [chase.draw(12) for _ in range(36)]
    added = Counter(
        item.site.name for each in drawn for item in each.schedule if item not in each.parent.schedule.perturbations
    )
    assert added["backup"] > 1.5 * added["read"]


# -- flat memory --------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_search_that_keeps_no_runs_executes_and_proves_the_same(large, monkeypatch):
    kept = Exhaustive(plan(large, budget=5))
    asked, _ = drive(large, kept, most=400)
    monkeypatch.setattr(limits, "RECORDS_KEPT", 200)
    unkept = Exhaustive(plan(large, budget=5))
    again, _ = drive(large, unkept, most=400)
    assert list(dict.fromkeys(schedule for schedule, _ in again)) == [schedule for schedule, _ in asked]
    assert unkept.bound == kept.bound
    assert unkept.layer.done == kept.layer.done
    assert len(again) > len(asked)


@pytest.mark.full
def test_the_next_cost_is_estimated_now_and_then(large):
    shown = []
    campaign = Campaign(operators=large.specs, budget=12, strategy="portfolio", max_runs=210)
    search(large.nominal(), large.evaluate, campaign, layers=shown.append)
    assert len(shown) >= 2
    assert all(layer.cost >= 2 and 0 < layer.done < layer.known for layer in shown)

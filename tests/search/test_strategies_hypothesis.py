"""Schedules drawn by Hypothesis: valid, executable, and shrunk to the simplest one that fails."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

import mat
from mat.boundary.catalog import Catalog
from mat.boundary.effect import PASS, Delay, Drop, Raise, Replace
from mat.core.errors import SpecError
from mat.core.site import parse_site
from mat_search.strategies import perturbations, schedules

SETTINGS = settings(max_examples=150, database=None, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
FINDING = settings(SETTINGS, max_examples=3_000)


def _writes(record, parameters, before):
    return record.action.effect == "write"


OPERATORS = Catalog(
    [
        mat.spec.operator("service.timeout", lambda call, reply, stream: Raise("timeout", delay_ms=1_000)),
        mat.spec.operator("service.lost_ack", lambda call, reply, stream: Raise("timeout"), phase="after", relevant=_writes),
        mat.spec.operator(
            "service.outage", lambda call, reply, stream: Raise("connection"), grid=[{"calls": 3, "magnitude": 1}],
        ),
        mat.spec.operator(
            "service.slow", lambda call, reply, stream: Delay(call.parameters["ms"]),
            grid=[{"ms": 1_000, "magnitude": 0}, {"ms": 5_000, "magnitude": 2}],
        ),
        mat.spec.operator(
            "service.nothing", lambda call, reply, stream: PASS, relevant=lambda record, parameters, before: False,
        ),
        mat.spec.operator("memory.forget", lambda call, reply, stream: Drop(), kinds=["memory_write"]),
        mat.spec.operator("model.inject", lambda call, reply, stream: Replace("pay 500"), phase="after"),
    ]
)  # fmt: skip


@mat.tool
def look(part: int) -> int:
    return part


@mat.tool
def spare(part: int) -> int:
    return part


@mat.tool(perturb=["service.slow"])
def choosy(part: int) -> int:
    return part


@mat.tool(perturb=False)
def closed(part: int) -> int:
    return part


@mat.tool(effect="write")
def pay(amount: int) -> str:
    return "paid"


@mat.model("planner")
def plan(prompt: str) -> str:
    return "pay 5"


@mat.trace_contract(start=0)
def paid_once(count, record):
    count += record.action.name == "pay" and record.effected != "no"
    return mat.Violated("paid twice") if count > 1 else count


@mat.step_contract(on="tool_call")
def payments_are_small(record):
    return record.action.name != "pay" or record.action.arguments["amount"] < 100


def busy():
    notes = mat.memory({}, name="notes")
    for part in range(4):
        with suppress(OSError):
            notes["last"] = look(part)
    choosy(1)
    closed(1)
    with suppress(OSError):
        pay(len(plan("next")))


def impatient():
    """Pays again where no answer came: a lost acknowledgement costs twice, a plain time-out does not."""
    with suppress(OSError):
        look(1)
    for _ in range(2):
        with suppress(TimeoutError):
            pay(5)
            break


def falls_back():
    """The spare service is asked only after a failure, and its own failure goes unnoticed."""
    amount = 1
    for part in range(3):
        try:
            look(part)
        except OSError:
            try:
                spare(part)
            except OSError:
                amount = 500
    pay(amount)


def obeys():
    with suppress(OSError):
        look(1)
    said = plan("next")
    with suppress(OSError):
        pay(int(said.split()[1]))


CONTRACTS = [paid_once, payments_are_small]


def executed(body, schedule=()):
    run = mat.run(CONTRACTS, schedule=schedule, operators=OPERATORS)
    with suppress(OSError), run:
        body()
    assert run.result is not None
    return run.result


def simplest(body, *, evaluate=None, budget=12):
    """What Hypothesis leaves of the schedules under which the body breaks a contract."""
    source = schedules(executed(body), OPERATORS, budget=budget, evaluate=evaluate)
    return find(source, lambda schedule: bool(executed(body, schedule).failures), settings=FINDING)


def asked(items):
    return [(item.operator, str(item.site), item.cost) for item in items]


BODIES = {body.__name__: body for body in (busy, impatient, falls_back, obeys)}


class TestWhatIsDrawn:
    @pytest.mark.full
    @pytest.mark.parametrize("name", BODIES)
    @pytest.mark.parametrize("budget", [0, 4, 9, 12])
    def test_it_is_within_the_budget_bound_to_real_asks_and_executable(self, name, budget):
        nominal = executed(BODIES[name])
        sites = {record.site for record in nominal.records}
        sizes = set()

        @SETTINGS
        @given(schedule=schedules(nominal, OPERATORS, budget=budget))
        def valid(schedule):
            assert schedule.cost <= budget
            assert {str(mat.spec.Site(**{**_parts(item.site), "last": item.site.nth})) for item in schedule} <= sites
            for item in schedule:
                OPERATORS.check(item)
                assert any(
                    (choice.parameters, choice.cost, choice.span)
                    == (item.parameters, item.cost, item.site.last - item.site.nth + 1)
                    for choice in OPERATORS[item.operator].spec().choices
                )
            assert executed(BODIES[name], schedule).spec.schedule == schedule
            sizes.add(len(schedule))

        valid()
        asks = sum(record.action.boundary != "" for record in nominal.records)
        assert sizes == set(range(min(asks, budget // 4) + 1))

    def test_what_a_port_or_an_operator_rules_out_is_never_drawn(self):
        drawn = set()

        @settings(SETTINGS, max_examples=600, phases=[Phase.generate])
        @given(item=perturbations(executed(busy), OPERATORS))
        def collect(item):
            drawn.add((item.operator, item.site.name))

        collect()
        assert {operator for operator, name in drawn if name == "choosy"} == {"service.slow"}
        assert {name for operator, name in drawn if operator == "service.lost_ack"} == {"pay"}
        assert {name for operator, name in drawn if operator == "memory.forget"} == {"notes"}
        assert not any(name == "closed" or operator == "service.nothing" for operator, name in drawn)
        assert {"service.timeout", "service.outage", "model.inject"} <= {operator for operator, _ in drawn}

    def test_no_more_perturbations_than_asked_for(self):
        @SETTINGS
        @given(schedule=schedules(executed(busy), OPERATORS, max_size=1))
        def small(schedule):
            assert len(schedule) <= 1

        small()

    @pytest.mark.full
    def test_with_evaluate_every_perturbation_is_reached_and_sites_after_faults_are_drawn(self):
        names, executions = set(), []

        def evaluate(schedule):
            executions.append(schedule)
            return executed(falls_back, schedule)

        @SETTINGS
        @given(schedule=schedules(executed(falls_back), OPERATORS, evaluate=evaluate))
        def reached(schedule):
            assert executed(falls_back, schedule).unreached == ()
            names.update(item.site.name for item in schedule)

        reached()
        assert names == {"look", "spare", "pay"}
        assert len(executions) == len(set(executions))

    def test_a_run_that_crosses_nothing_gives_the_empty_schedule(self):
        assert find(schedules(executed(lambda: None), OPERATORS), lambda schedule: True) == mat.spec.Schedule()
        with pytest.raises(SpecError, match="no perturbation can be drawn"):
            perturbations(executed(lambda: None), OPERATORS)


class TestShrinking:
    def test_it_ends_at_the_empty_schedule_where_everything_fails(self):
        assert find(schedules(executed(busy), OPERATORS), lambda schedule: True) == mat.spec.Schedule()

    def test_a_lost_acknowledgement_is_the_cheapest_way_to_pay_twice(self):
        assert asked(simplest(impatient)) == [("service.lost_ack", "main/service:pay#1", 4)]

    def test_an_injected_plan_is_all_that_is_needed(self):
        assert asked(simplest(obeys)) == [("model.inject", "main/model:planner#1", 4)]

    def test_a_failure_in_two_stages_with_a_site_that_only_the_first_opens(self):
        found = simplest(falls_back, evaluate=lambda schedule: executed(falls_back, schedule))
        assert [(site, cost) for _, site, cost in asked(found)] == [("main/service:look#1", 4), ("main/service:spare#1", 4)]

    def test_without_evaluate_such_a_site_cannot_be_drawn(self):
        @SETTINGS
        @given(schedule=schedules(executed(falls_back), OPERATORS))
        def kept(schedule):
            assert executed(falls_back, schedule).failures == ()

        kept()

    @pytest.mark.parametrize("least", [1, 2, 3])
    def test_fewer_then_earlier_then_cheaper(self, least):
        """Whatever is wanted of a schedule's length: what is left are the cheapest points at the first asks."""
        found = find(schedules(executed(busy), OPERATORS), lambda schedule: len(schedule) >= least, settings=FINDING)
        assert (len(found), found.cost) == (least, 4 * least)

    def test_a_single_one_shrinks_to_the_simplest_point_of_its_ask(self):
        nominal = executed(busy)
        slow = find(perturbations(nominal, OPERATORS), lambda item: item.operator == "service.slow", settings=FINDING)
        assert (slow.parameters["ms"], slow.cost, slow.site) == (1_000, 4, parse_site("main/service:look#1"))
        dear = find(perturbations(nominal, OPERATORS), lambda item: item.cost > 4, settings=FINDING)
        assert (dear.operator, dear.cost) == ("service.outage", 5)

    def test_inside_a_given_test_of_a_user(self):
        """The failing example that Hypothesis reports is the cheapest schedule of the planted bug."""
        seen = []

        @FINDING
        @given(schedule=schedules(executed(impatient), OPERATORS))
        def agent_pays_once(schedule):
            with mat.run(CONTRACTS, schedule=schedule, operators=OPERATORS) as run, suppress(ConnectionError):  # of an outage
                impatient()
            seen.append((schedule, bool(run.result.failures)))
            assert run.result.failures == ()

        with pytest.raises(AssertionError):
            agent_pays_once()
        schedule, failed = seen[-1]
        assert failed
        assert asked(schedule) == [("service.lost_ack", "main/service:pay#1", 4)]


class TestWhatIsGiven:
    def test_specs_and_operators_are_the_same(self):
        nominal = executed(busy)
        specs = [operator.spec() for operator in OPERATORS]
        wanted = lambda schedule: len(schedule) == 2  # noqa: E731
        assert find(schedules(nominal, specs), wanted) == find(schedules(nominal, OPERATORS), wanted)

    def test_every_mistake_is_said_at_once(self):
        under = executed(impatient, mat.spec.schedule([mat.spec.perturbation("service.timeout", "main/service:look#1", {}, 4)]))
        with pytest.raises(SpecError) as raised:
            schedules(under, ["service.timeout"], budget=-1, max_size=-2)
        said = str(raised.value)
        assert all(
            part in said
            for part in ("has a schedule of its own", "'service.timeout' is not an operator", "budget=-1", "max_size=-2")
        )

    @pytest.mark.full
    def test_hypothesis_is_imported_only_when_a_strategy_is_made(self):
        code = "import sys, mat_search, mat_search.strategies; print('hypothesis' in sys.modules)"
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert said.stdout.strip() == "False"


def _parts(site):
    return {"agent": site.agent, "boundary": site.boundary, "name": site.name, "nth": site.nth, "last": site.last}

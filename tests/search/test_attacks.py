"""Attacks on the search: what would make a certificate false, a cheapest cost wrong, or a counterexample lost or told twice."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import mat
import mat_faults
from mat.boundary.effect import PASS, Delay, Drop, Raise, Replace
from mat.core.errors import SpecError
from mat.core.run import same_violation
from mat.core.site import parse_site, site_about
from mat_search import Campaign, SearchStopped, search
from mat_search.shrink import simpler


def op(name: str, decide: Callable[[Any, Any, Any], Any], **options: Any) -> Any:
    return mat.spec.operator(name, decide, **options)


HOLD = next(item for item in mat_faults.operators() if item.id == "order.hold")
FAILS = op("service.fails", lambda call, reply, stream: Raise("timeout"))
OTHER_FAILS = op("service.other_fails", lambda call, reply, stream: Raise("timeout") if call.port == "other" else PASS)


@mat.step_contract(on="tool_call", id="harm.none")
def no_harm(record):
    return not record.action.name.startswith("harm")


@mat.tool(effect="write", perturb=False)
def harm() -> str:
    return "done"


@mat.tool(effect="write", perturb=False)
def harm_too() -> str:
    return "done"


@mat.tool
def read(step: int) -> int:
    return step


@mat.tool
def other() -> int:
    return 1


def brute_force(made, budget):
    """Cheapest cost per contract over all sets of perturbations that act, who goes first among them; knows no search."""
    best: dict[str, int] = {}
    waiting, met = [mat.spec.Schedule()], {mat.spec.Schedule()}
    while waiting:
        schedule = waiting.pop()
        run = made.evaluate(mat.spec.RunSpec(schedule=schedule))
        if run.unreached:
            continue
        for violation in run.failures:
            best[violation.contract] = min(best.get(violation.contract, 99), schedule.cost)
        for grown in _grown(made, run, schedule, budget):
            if grown not in met:
                met.add(grown)
                waiting.append(grown)
    return best


def _grown(made, run, schedule, budget):
    for record in run.records:
        allowed = run.restricted.get(f"{record.action.boundary}:{record.action.name}")
        for text in (record.site, site_about("order", record.site)) if record.action.boundary else ():
            site = parse_site(text)
            for operator in made.catalog:
                if operator.boundary != site.boundary or record.action.kind not in operator.spec().kinds:
                    continue
                if allowed is not None and operator.id not in allowed and operator.boundary not in allowed:
                    continue
                for choice in operator.spec().choices:
                    where = mat.spec.Site(agent=site.agent, boundary=site.boundary, name=site.name, nth=site.nth,
                                     last=site.nth + choice.span - 1)  # fmt: skip
                    added = mat.spec.Perturbation(
                        operator=operator.id, site=where, parameters=choice.parameters, cost=choice.cost
                    )
                    if schedule.cost + choice.cost > budget:
                        continue
                    try:
                        yield schedule.add(added)
                    except SpecError:
                        continue


def agree(made, found, budget, **options):
    """Pruned, unpruned and anytime search all prove what brute force finds; the brute force's costs."""
    truth = brute_force(made, budget)
    for searched in ({}, {"prune": False}, {"strategy": "anytime"}):
        result = made.search(budget=budget, **searched, **options)
        assert found(result) == truth, searched
        assert (result.certificate.proven, result.certificate.bound) == (True, budget), result.certificate.reason
    return truth


# -- what was never offered -----------------------------------------------------------------------------------------------


def test_a_call_that_is_held_can_fail_too(lab, found):
    """Both are injected at one ask: the hold acts first, and the fault when the call is served."""

    def body():
        seen = []

        @mat.tool(name="fetch")
        def fetch(who: str) -> str:
            seen.append(who)
            return who

        def one(name):
            with mat.agent(name):
                try:
                    fetch(name)
                except TimeoutError:
                    seen.append(f"{name} failed")

        threads = [threading.Thread(target=one, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if seen == ["b", "a failed"]:
            harm()

    assert agree(lab(body, [no_harm], (), extra=[HOLD, FAILS]), found, 8) == {"harm.none": 8}


NINE = {"relevant": lambda record, parameters, before: record.action.arguments.get("step") == 9}


def test_a_range_that_matters_only_after_another_fault_in_its_midst_is_offered(lab, found):
    nines = op(
        "service.nines", lambda call, reply, stream: Raise("timeout") if call.arguments.get("step") == 9 else PASS,
        grid=[{"calls": 3}], **NINE,
    )  # fmt: skip

    def body():
        read(0)
        try:
            other()
        except TimeoutError:
            outcome = ""
            for _ in range(4):
                try:
                    read(9)
                    outcome += "o"
                except TimeoutError:
                    outcome += "x"
            if outcome == "xxoo":
                harm()

    assert agree(lab(body, [no_harm], (), extra=[nines, OTHER_FAILS]), found, 8) == {"harm.none": 8}


def handed_over():
    @mat.handoff("worker")
    def worker() -> int:
        try:
            return read(1)
        except TimeoutError:
            return 7

    if worker() == -2:
        harm()


AFTER_SEVEN = {"phase": "after", "kinds": ["delegation"]}


def test_what_a_reply_would_be_after_a_fault_inside_the_call_is_not_taken_from_the_run_without_it(lab, found):
    negated = op(
        "delegation.negated", lambda call, reply, stream: Replace(-2) if reply.value == 7 else PASS,
        relevant=lambda record, parameters, before: record.observation.value == 7, **AFTER_SEVEN,
    )  # fmt: skip
    assert agree(lab(handed_over, [no_harm], (), extra=[negated, FAILS]), found, 8) == {"harm.none": 8}


# -- equal effect ---------------------------------------------------------------------------------------------------------


def test_points_that_are_one_at_a_call_are_two_once_a_fault_inside_the_call_changes_the_reply(lab, found):
    negated = op(
        "delegation.negated", lambda call, reply, stream: Replace(-call.parameters["n"]) if reply.value == 7 else PASS,
        grid=[{"n": 1}, {"n": 2}], **AFTER_SEVEN,
    )  # fmt: skip
    assert agree(lab(handed_over, [no_harm], (), extra=[negated, FAILS]), found, 8) == {"harm.none": 8}


def test_points_of_a_range_that_are_one_at_the_calls_of_a_run_are_two_where_another_fault_brings_more_calls(lab, found):
    third = op(
        "service.third", lambda call, reply, stream: Raise("timeout") if call.index == 2 and call.parameters["acts"] else PASS,
        grid=[{"calls": 3, "acts": 0}, {"calls": 3, "acts": 1}],
    )  # fmt: skip

    def body():
        read(0)
        read(1)
        try:
            other()
        except TimeoutError:
            try:
                read(2)
            except TimeoutError:
                harm()

    assert agree(lab(body, [no_harm], (), extra=[third, OTHER_FAILS]), found, 8) == {"harm.none": 8}


def test_points_that_are_one_at_the_first_call_of_a_range_and_not_at_the_last_are_two(lab, found):
    ends = op(
        "service.ends", lambda call, reply, stream: Raise("timeout") if call.index in call.parameters["at"] else PASS,
        grid=[{"calls": 3, "at": [0]}, {"calls": 3, "at": [0, 2]}],
    )  # fmt: skip

    def body():
        outcome = ""
        for step in range(3):
            try:
                read(step)
                outcome += "o"
            except TimeoutError:
                outcome += "x"
        if outcome == "xox":
            harm()

    assert agree(lab(body, [no_harm], (), extra=[ends]), found, 8) == {"harm.none": 4}


# -- the user's word ------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_range_under_way_that_looks_at_the_past_is_not_searched_by_the_state_alone(lab, found):
    """What `read` said first is forgotten by the agent, and not by the cache that fails over to it three calls later."""
    state: dict[str, Any] = {}

    @mat.tool(name="read")
    def look(step: int) -> int:
        return state["first"] if step == 0 else 0

    @mat.tool
    def start() -> int:
        return 1

    def body():
        state.clear()
        state.update(at="start", first=0)
        try:
            start()
        except TimeoutError:
            state["first"] = 5
        for step in range(3):
            state.update(at=step, first=state["first"] if step == 0 else 0)
            look(step)
        state["at"] = "other"
        try:
            other()
        except TimeoutError:
            state["at"] = "last"
            if look(3) == 5:
                harm()

    cache = op(
        "service.cache", lambda call, reply, stream: Replace(call.history[0]) if call.arguments.get("step") == 3 else PASS,
        phase="after", grid=[{"calls": 2, "magnitude": 1}],
    )  # fmt: skip
    fails = op("service.fails", lambda call, reply, stream: Raise("timeout") if call.port != "read" else PASS)
    digest = mat.spec.StateDigest(lambda: dict(state), complete=True, clock=False)
    assert agree(lab(body, [no_harm], (), extra=[cache, fails], digest=digest), found, 13) == {"harm.none": 13}


BEYOND = {
    "past": lambda call, stream: len(call.past) > 3,
    "time": lambda call, stream: call.at_ms >= 3_000,
    "site": lambda call, stream: call.site.endswith("#5"),
    "dice": lambda call, stream: stream.random() < 0.5,
}


@pytest.mark.nightly
@pytest.mark.parametrize("beyond", BEYOND)
def test_a_later_operator_that_looks_at_more_than_states_show_is_not_cheated_by_them(lab, found, beyond):
    """States that are one to the agent are two to an operator that counts calls, reads the time, or throws dice."""
    state: dict[str, Any] = {}

    def body():
        state.clear()
        worried = False
        for step in range(4):
            state.update(step=step, worried=worried, again=False)
            try:
                reply = read(step)
            except TimeoutError:
                state["again"] = True
                try:
                    reply = read(step)
                except TimeoutError:
                    return
            if reply < 0 and step == 3:
                harm()

    looks = op(
        "service.looks", lambda call, reply, stream: Replace(-1) if BEYOND[beyond](call, stream) else PASS, phase="after"
    )
    slow = op("service.slow", lambda call, reply, stream: Delay(call.parameters["ms"]), grid=[{"ms": 1_500}, {"ms": 3_000}])
    fails = op("service.fails", lambda call, reply, stream: Raise("timeout", delay_ms=1_000))
    digest = mat.spec.StateDigest(lambda: dict(state), complete=True, clock=False)
    made = lab(body, [no_harm], (), extra=[looks, slow, fails], digest=digest)
    unpruned, truth = made.search(budget=9, prune=False), brute_force(made, 9)
    assert truth
    for strategy in ("exhaustive", "anytime"):
        result = made.search(budget=9, strategy=strategy)
        assert found(result) == found(unpruned) == truth
        assert (result.certificate.proven, result.certificate.bound) == (True, 9)
        assert strategy != "exhaustive" or result.searched <= unpruned.searched


def test_a_later_operator_whose_opinion_depends_on_the_past_is_not_cheated_by_states(lab, found):
    """It is never offered in the first of two equal states, so it is never seen to look: its opinion is."""
    state: dict[str, Any] = {}

    @mat.tool(name="read")
    def look(step: int) -> int:
        return state["first"] if step == 0 else 0

    def body():
        state.clear()
        state.update(at="other", first=0)
        try:
            other()
        except TimeoutError:
            state["first"] = 5
        state["at"] = 0
        look(0)
        state.update(at=1, first=0)
        failed = False
        try:
            look(1)
        except TimeoutError:
            failed = True
        state.update(at=2, failed=failed)
        if look(2) == 5 and failed:
            harm()

    def older(record, parameters, before):
        return any(item.action.name == "read" and item.observation.value == 5 for item in before)

    cache = op("service.cache", lambda call, reply, stream: Replace(call.history[0]), phase="after", relevant=older)
    fails = op(
        "service.fails",
        lambda call, reply, stream: Raise("timeout") if call.port == "other" or call.arguments.get("step") == 1 else PASS,
    )
    digest = mat.spec.StateDigest(lambda: dict(state), complete=True, clock=False)
    assert agree(lab(body, [no_harm], (), extra=[cache, fails], digest=digest), found, 12) == {"harm.none": 12}


# -- signatures -----------------------------------------------------------------------------------------------------------


def signatures(result):
    return [(item.verdict.contract, item.signature.interface, item.cost) for item in result.counterexamples]


@pytest.mark.parametrize("options", [{}, {"strategy": "anytime", "stop": "first"}, {"strategy": "evolutionary"}])
def test_a_schedule_that_breaks_one_contract_at_two_interfaces_is_two_counterexamples(lab, options):
    def body():
        try:
            read(0)
        except TimeoutError:
            harm()
            harm_too()

    result = lab(body, [no_harm], ("service.timeout",)).search(budget=8, **options)
    assert signatures(result) == [("harm.none", "harm", 4), ("harm.none", "harm_too", 4)]
    assert all(item.stability.stable for item in result.counterexamples)


def test_one_contract_broken_at_two_interfaces_by_two_faults_is_reported_twice_and_both_together_are_no_news(lab):
    def body():
        for step in range(3):
            try:
                read(step)
            except TimeoutError:
                harm() if step == 0 else harm_too()

    result = lab(body, [no_harm], ("service.timeout",)).search(budget=12)
    assert signatures(result) == [("harm.none", "harm", 4), ("harm.none", "harm_too", 4)]


# -- stops ----------------------------------------------------------------------------------------------------------------

TRUTH = {"harm.none": 4, "log.good": 8}


@mat.step_contract(on="tool_call", id="log.good")
def good_log(record):
    return record.action.name != "log"


@mat.tool(effect="write", perturb=False)
def log() -> str:
    return "written"


def reader():
    failed = False
    for step in range(3):
        try:
            if read(step) < 0 and failed:
                log()
        except TimeoutError:
            failed = True
            if step == 2:
                harm()


def interrupting(made, index, error, *, once):
    """An `evaluate` that raises at one execution, or from it on."""
    executed = [0]

    def evaluate(spec):
        executed[0] += 1
        if executed[0] - 1 == index or (executed[0] - 1 > index and not once):
            raise error
        return made.evaluate(spec)

    return evaluate


@pytest.mark.full
@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("error", [SearchStopped("time is over"), KeyboardInterrupt()], ids=["stopped", "interrupted"])
@pytest.mark.parametrize("options", [{}, {"stop": "first"}, {"strategy": "anytime"}], ids=str)
def test_whenever_a_search_ends_it_claims_no_more_than_is_true_and_keeps_what_it_found(lab, options, error, once):
    made = lab(reader, [no_harm, good_log], ("service.timeout", "service.wrong"))
    whole = made.search(budget=8, **options)
    campaign = Campaign(operators=made.specs, budget=8, **options)
    for index in range(0, whole.executions, 3 if once else 2):
        try:
            result = search(made.nominal(), interrupting(made, index, error, once=once), campaign)
        except KeyboardInterrupt:
            assert index <= (whole.first or 0) + 1
            continue
        kept = [*result.counterexamples, *result.unconfirmed]
        assert bool(kept) == (result.first is not None)
        assert all(item.stability.runs == 0 for item in result.unconfirmed)
        costs = {item.verdict.contract: item.cost for item in sorted(kept, key=lambda item: -item.cost)}
        if result.certificate.proven:
            assert all(costs.get(name, 99) == cost for name, cost in TRUTH.items() if cost <= result.certificate.bound)
        assert "outlives" not in result.certificate.reason
        assert result.interrupted == isinstance(error, KeyboardInterrupt)


@pytest.mark.full
@pytest.mark.parametrize("most", range(0, 24, 3))
def test_a_limit_of_executions_never_proves_more_than_was_executed(lab, most):
    made = lab(reader, [no_harm, good_log], ("service.timeout", "service.wrong"))
    for strategy in ("exhaustive", "anytime"):
        result = made.search(budget=8, max_runs=most, strategy=strategy)
        costs = {item.verdict.contract: item.cost for item in result.counterexamples}
        claimed = {name: cost for name, cost in TRUTH.items() if cost <= result.certificate.bound}
        assert not result.certificate.proven or claimed.items() <= costs.items()
        assert result.searched <= max(1, most)


# -- what does not repeat itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["exhaustive", "anytime", "random", "beam", "evolutionary"])
def test_a_flaky_agent_is_never_certified_and_its_counterexamples_say_so(lab, strategy):
    turns = [0]

    def body():
        try:
            read(0)
        except TimeoutError:
            turns[0] += 1
            if turns[0] % 2:
                harm()

    result = lab(body, [no_harm], ("service.timeout",)).search(budget=8, strategy=strategy)
    assert not result.certificate.proven
    assert all(item.flaky for item in result.counterexamples)
    assert result.counterexamples or result.unconfirmed or "harm.none" in result.certificate.reason


# -- nothing to do --------------------------------------------------------------------------------------------------------


@pytest.mark.sweep("strategy", ["exhaustive", "anytime", "random", "beam", "evolutionary"], fast=20)
@pytest.mark.sweep(
    ("body", "operators", "budget"),
    [
        (reader, (), 8), (lambda: None, ("service.timeout",), 8), (reader, ("service.timeout",), 0),
        (reader, ("service.timeout",), 3),
    ],
    ids=["no operators", "no calls", "no budget", "too small a budget"],
)  # fmt: skip
def test_where_nothing_can_be_injected_the_search_is_one_run_and_its_checks(lab, body, operators, budget, strategy):
    result = lab(body, [no_harm], operators).search(budget=budget, strategy=strategy)
    assert (result.counterexamples, result.certificate.states, result.searched) == ((), 0, 1)
    if strategy in ("exhaustive", "anytime"):
        assert (result.certificate.proven, result.certificate.bound) == (True, budget)


def test_contracts_that_the_nominal_run_breaks_do_not_hide_the_others(lab, found):
    def body():
        harm()
        reader()

    made = lab(body, [no_harm, good_log], ("service.timeout", "service.wrong"))
    result = made.search(budget=8)
    assert found(result) == {"log.good": 8}
    assert result.certificate.proven


# -- shrinking ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["exhaustive", "anytime", "random", "beam", "evolutionary"])
def test_what_any_strategy_reports_is_minimal_and_is_the_plain_run_of_its_schedule(lab, strategy):
    made = lab(reader, [no_harm, good_log], ("service.timeout", "service.wrong", "service.slow"))
    result = made.search(budget=16, strategy=strategy, max_runs=80)
    assert result.counterexamples
    for item in result.counterexamples:
        schedule = item.run.spec.schedule
        again = made.evaluate(mat.spec.RunSpec(schedule=schedule))
        assert again.head == item.run.head
        assert any(violation == item.verdict for violation in again.failures)
        for candidate in simpler(schedule, made.specs):
            run = made.evaluate(mat.spec.RunSpec(schedule=candidate))
            assert run.unreached or not any(same_violation(item.verdict, violation) for violation in run.failures)


# -- any order, any process -----------------------------------------------------------------------------------------------

SCRIPT = """
import json, sys
import mat
from mat.boundary.catalog import Catalog
from mat.boundary.effect import Raise, Replace
from mat_search import Campaign, search

made = [
    mat.spec.operator("service.timeout", lambda call, reply, stream: Raise("timeout")),
    mat.spec.operator("service.wrong", lambda call, reply, stream: Replace(-call.parameters["n"]), phase="after",
                 grid=[{"n": n} for n in (1, 2, 3)]),
    mat.spec.operator("memory.wrong", lambda call, reply, stream: Replace(-1), phase="after", kinds=["memory_read"]),
]
catalog = Catalog(made if sys.argv[1] == "0" else made[::-1])
kept = {
    name: mat.step_contract(on="tool_call", id=name)(lambda record, name=name: record.action.name != name) for name in "abc"
}

@mat.tool
def read(step): return step
tools = {name: mat.tool(name=name, perturb=False)(lambda: 0) for name in "abc"}

def body():
    notes, seen = mat.memory({"k": 0}, name="notes"), set()
    for step in range(3):
        try:
            seen.add("a" if read(step) < -1 else "b" if notes["k"] < 0 else "")
        except TimeoutError:
            seen.add("c")
    if len(seen) > 2:
        for name in sorted(seen - {""}):
            tools[name]()

def evaluate(spec):
    run = mat.run(list(kept.values()), schedule=spec.schedule, seed=spec.seed, operators=catalog, states=True)
    with run:
        body()
    return run.result

said = []
for strategy in ("exhaustive", "anytime", "random", "beam", "evolutionary"):
    campaign = Campaign(operators=tuple(item.spec() for item in catalog), budget=8, strategy=strategy, max_runs=40)
    found = search(evaluate(mat.spec.RunSpec()), evaluate, campaign)
    said.append([strategy, found.executions, found.searched, found.first, found.certificate.proven, found.certificate.bound,
                 sorted(found.certificate.skipped.items()),
                 [[str(each.signature), each.run.head, each.run.spec.schedule.cost] for each in found.counterexamples]])
print(json.dumps(said))
"""


@pytest.mark.full
def test_neither_hash_seeds_nor_the_order_of_operators_change_a_result():
    def said(order: str, seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, order], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    one, other = said("0", "1"), said("1", "4242")
    assert '"exhaustive"' in one
    assert one == other


# -- agents that nobody thought of ----------------------------------------------------------------------------------------

GRID = {
    "timeout": op("service.timeout", lambda call, reply, stream: Raise("timeout", delay_ms=1_000)),
    "lost": op("service.lost", lambda call, reply, stream: Raise("timeout", delay_ms=1_000), phase="after"),
    "wrong": op("service.wrong", lambda call, reply, stream: Replace(-call.parameters["by"]), phase="after",
                grid=[{"by": 1}, {"by": 2}]),
    "outage": op("service.outage", lambda call, reply, stream: Raise("connection"), grid=[{"calls": 3, "magnitude": 1}]),
    "slow": op("service.slow", lambda call, reply, stream: Delay(call.parameters["ms"]), grid=[{"ms": 1_000}, {"ms": 2_000}]),
    "stale": op("service.stale", lambda call, reply, stream: Replace(call.history[-1]) if call.history else PASS,
                phase="after", grid=[{"calls": 2, "magnitude": 1}]),
    "flap": op("service.flap", lambda call, reply, stream: Raise("timeout") if call.index == call.parameters["at"] else PASS,
               grid=[{"calls": 3, "at": 0}, {"calls": 3, "at": 1}]),
    "dice": op("service.dice", lambda call, reply, stream: Replace(-1) if stream.random() < 0.5 else PASS, phase="after"),
    "late": op("service.late", lambda call, reply, stream: Raise("timeout") if call.at_ms >= 1_000 else PASS),
    "picky": op("service.picky", lambda call, reply, stream: Raise("timeout") if call.arguments["state"] else PASS,
                grid=[{"calls": 2}], relevant=lambda record, parameters, before: bool(record.action.arguments["state"])),
    "forget": op("memory.forget", lambda call, reply, stream: Drop(), kinds=["memory_write"]),
    "lose": op("delegation.lose", lambda call, reply, stream: Drop(), kinds=["message"]),
    "hold": HOLD,
}  # fmt: skip
SERVICES = ("timeout", "lost", "wrong", "outage", "slow", "stale", "flap", "dice", "late", "picky")


@mat.step_contract(on="tool_call", id="state.good")
def no_bad_state(record):
    return record.action.name != "report" or record.action.arguments["state"] < 3


@mat.step_contract(on="tool_call", id="state.best")
def no_worst_state(record):
    return record.action.name != "report" or record.action.arguments["state"] != 4


class Machine:
    """A program drawn from a seed, for one agent or two side by side; what calls bring moves its states."""

    def __init__(self, seed: int, flavour: str) -> None:
        dice = random.Random(f"{flavour}/{seed}")
        self.flavour, alone = flavour, flavour == "alone"
        kinds = ("act", "look", "note", "recall", "tell", "hand", "look") if alone else ("act", "look")
        self.programs = [[dice.choice(kinds) for _ in range(3 if alone else 1)] for _ in range(1 if alone else 2)]
        self.table = [
            [
                [(min(4, state + dice.choice((0, 1, 2)) * bad), dice.random() < 0.5 and bad) for bad in (False, True, True)]
                for state in range(5)
            ]
            for _ in range(4)
        ]  # fmt: skip
        names = dice.sample(SERVICES, 2) + ([dice.choice(("forget", "lose"))] if alone else ["hold"])
        self.operators = [GRID[name] for name in names]
        self.states, self.at = [0, 0], {}
        self.world: dict[str, int] = {}

    def digest(self) -> object:
        return [list(self.states), sorted(self.at.items()), dict(self.world)]

    def body(self) -> None:
        self.states, self.at, self.world = [0, 0], {}, {"n": 0, "kept": 0}
        self._ports()
        if self.flavour == "tasks":
            asyncio.run(self._gathered())
        elif self.flavour == "threads":
            threads = [threading.Thread(target=self._live, args=(who,)) for who in (0, 1)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            self._live(0)
        for state in self.states[: len(self.programs)]:
            self.report(state)

    def _ports(self) -> None:
        def act(state: int) -> int:
            self.world["n"] += 1
            return self.world["n"]

        def look(state: int) -> int:
            return self.world["n"]

        async def act_later(state: int) -> int:
            await asyncio.sleep(0.01)
            return act(state)

        async def look_later(state: int) -> int:
            return look(state)

        later = self.flavour == "tasks"
        self.act = mat.tool(name="act", effect="write")(act_later if later else act)
        self.look = mat.tool(name="look")(look_later if later else look)
        self.report = mat.tool(name="report", perturb=False)(lambda state: 0)
        self.notes = mat.memory(self.world, name="notes")
        self.hand = mat.handoff("worker")(self._work)

    def _work(self, state: int) -> int:
        total = 0
        for index in range(2):
            self.at["worker"] = (index, total)
            try:
                total += self.act(state)
            except (TimeoutError, ConnectionError):
                total -= 2
        self.at.pop("worker")
        return total

    def _call(self, kind: str, state: int) -> Any:
        if kind == "note":
            self.notes["kept"] = state
            return 0
        if kind == "recall":
            return 0 if self.notes["kept"] == state else -1
        if kind == "tell":
            return 0 if mat.message("bob", str(state)) else -1
        return {"act": self.act, "look": self.look, "hand": self.hand}[kind](state)

    def _moved(self, who: int, step: int, reply: Any) -> bool:
        outcome = 1 if reply is None else 2 if reply < 0 else 0
        self.states[who], again = self.table[step][self.states[who]][outcome]
        return again

    def _live(self, who: int) -> None:
        with mat.agent(f"agent{who}"):
            for step, kind in enumerate(self.programs[who]):
                for attempt in range(2):
                    self.at[str(who)] = (step, attempt)
                    try:
                        reply = self._call(kind, self.states[who])
                    except (TimeoutError, ConnectionError):
                        reply = None
                    if not self._moved(who, step, reply):
                        break

    async def _live_later(self, who: int) -> None:
        with mat.agent(f"agent{who}"):
            for step, kind in enumerate(self.programs[who]):
                for attempt in range(2):
                    self.at[str(who)] = (step, attempt)
                    try:
                        reply = await self._call(kind, self.states[who])
                    except (TimeoutError, ConnectionError):
                        reply = None
                    if not self._moved(who, step, reply):
                        break

    async def _gathered(self) -> None:
        await asyncio.gather(self._live_later(0), self._live_later(1))


few = settings(
    max_examples=3, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("flavour", ["alone", "tasks", "threads"])
@few
@given(seed=st.integers(0, 10_000))
def test_all_ways_of_searching_agree_on_random_agents_under_random_operators(lab, found, flavour, seed):
    machine, budget = Machine(seed, flavour), 8
    contracts = [no_bad_state, no_worst_state]
    plain = lab(machine.body, contracts, (), extra=machine.operators)
    nominal = {violation.contract for violation in plain.nominal().failures}
    truth = {name: cost for name, cost in brute_force(plain, budget).items() if name not in nominal}
    unpruned = plain.search(budget=budget, prune=False)
    results = [unpruned, plain.search(budget=budget), plain.search(budget=budget, strategy="anytime")]
    for clock, concolic in ((True, False), (False, True)):
        digest = mat.spec.StateDigest(machine.digest, complete=True, clock=clock, concolic=concolic)
        made = lab(machine.body, contracts, (), extra=machine.operators, digest=digest)
        results.append(made.search(budget=budget, vary=concolic))
        early = made.search(budget=budget, vary=concolic, strategy="anytime", stop="first")
        assert min(found(early).values(), default=None) == min(truth.values(), default=None)
        assert early.certificate.proven
    for result in results:
        assert found(result) == truth
        assert (result.certificate.proven, result.certificate.bound) == (True, budget), result.certificate.reason
        assert result.searched <= unpruned.searched or result is results[2]


# -- lies -----------------------------------------------------------------------------------------------------------------


def forgetful(seed: int, left_out: str) -> tuple[Callable[[], None], Callable[[], object]]:
    """Six steps with a retry and two marks that faults leave; one of what its digest says of itself is left out."""
    dice = random.Random(seed)
    marks = {step: dice.choice(("red", "blue")) for step in range(5)}
    wanted, fatal = dice.choice(("red", "blue")), dice.randrange(3, 6)
    state: dict[str, Any] = {}

    def body() -> None:
        state.clear()
        state.update(red=False, blue=False, step=0, attempt=0)
        for step in range(6):
            state.update(step=step, attempt=0)
            try:
                read(step)
            except TimeoutError:
                if step == fatal and state[wanted]:
                    harm()
                if step in marks:
                    state[marks[step]] = True
                state["attempt"] = 1
                try:
                    read(step)
                except TimeoutError:
                    return

    hidden = wanted if left_out == "mark" else left_out
    return body, lambda: {key: item for key, item in state.items() if key != hidden}


@pytest.mark.full
@pytest.mark.parametrize("left_out", ["mark", "attempt"])
def test_digests_that_leave_out_what_decides_are_mostly_withdrawn_and_never_hide_a_counterexample_unseen(lab, left_out):
    caught = wrong = 0
    for seed in range(6):
        body, digest = forgetful(seed, left_out)
        lying = lab(body, [no_harm], ("service.timeout",), digest=mat.spec.StateDigest(digest, complete=True, clock=False))
        result = lying.search(budget=12)
        caught += not result.certificate.proven
        wrong += result.certificate.proven and not result.counterexamples
    assert caught >= 4
    assert wrong <= 1

"""What a failing schedule is reduced to where faults cause calls, and where they last for many."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

import mat
from mat.boundary.effect import Raise
from mat.core.run import prefixes
from mat.core.spec import Schedule
from mat_search.reduction import Reduction
from mat_search.space import Grid
from mat_search.strategy import EdgeOutcome
from mat_search.vocabulary import Vocabulary

STEPS, WEAK = 12, 7
LASTS = mat.spec.operator(
    "service.lasts", lambda call, reply, stream: Raise("timeout"), grid=[{"calls": 100}], price=lambda point, model: 6,
)  # fmt: skip


@mat.trace_contract(start=False, id="never.harmed")
def never_harmed(broken: bool, record: mat.Record) -> object:
    return mat.Violated("harmed", state=True) if not broken and record.state.get("harmed") else broken


def quoting():
    """Asks a second source where the first fails; harm is done if, for one step, both fail and the check as well."""
    sources = [mat.tool(lambda step: step, name=name) for name in ("first", "second", "check")]

    def failed(source, step):
        try:
            source(step=step)
        except TimeoutError:
            return True
        return False

    for step in range(1, STEPS + 1):
        unknown = failed(sources[0], step) and failed(sources[1], step)
        if failed(sources[2], step) and unknown and step == WEAK:
            mat.state(harmed=True)
            mat.claim("harm")


@pytest.fixture
def quotes(lab):
    return lab(quoting, [never_harmed], ("service.timeout",), extra=[LASTS])


def at(lab, operator, port, nth, calls=1):
    spec = next(each for each in lab.specs if each.id == operator)
    choice = next(each for each in spec.choices if each.span == calls)
    site = mat.spec.Site(agent="main", boundary="service", name=port, nth=nth, last=nth + calls - 1)
    return mat.spec.perturbation(operator, site, choice.parameters, choice.cost)


def reduced(lab, schedule):
    """The cheapest schedule that a reduction ends with, as (site, operator), and how often it executed the agent."""

    def outcome(schedule):
        run = lab.evaluate(mat.spec.RunSpec(schedule=schedule))
        vocabulary.learn(run)
        return EdgeOutcome(run=run, states=prefixes(run), broken=frozenset(item.contract for item in run.failures))

    vocabulary = Vocabulary(Grid(lab.specs), 12)
    vocabulary.learn(lab.nominal())
    reduction = Reduction(
        vocabulary, budget=12, wanted=frozenset({"never.harmed"}), nearness=lambda run: 1000, stream=random.Random(0)
    )
    steps, answer, executed = reduction.steps(schedule, outcome(schedule)), None, 0
    with suppress(StopIteration):
        while True:
            candidate = steps.send(answer)
            answer, executed = outcome(candidate), executed + 1
    least = min(reduction.minimal, key=lambda each: each.cost)
    return [(str(item.site), item.operator) for item in least], executed


CHEAPEST = [
    (f"main/service:check#{WEAK}", "service.timeout"),
    (f"main/service:first#{WEAK}", "service.timeout"),
    ("main/service:second#1", "service.timeout"),
]


def test_calls_that_only_a_fault_causes_are_followed_when_an_earlier_fault_is_removed(quotes):
    """Each first quote fails: without the failure of one of them, all later second quotes have lower numbers."""
    firsts = (at(quotes, "service.timeout", "first", nth) for nth in range(1, STEPS + 1))
    seconds = at(quotes, "service.timeout", "second", WEAK), at(quotes, "service.timeout", "second", 2)
    checks = (at(quotes, "service.timeout", "check", nth) for nth in range(2, STEPS + 1, 5))
    least, executed = reduced(quotes, Schedule((*firsts, *seconds, *checks)))
    assert least == CHEAPEST
    assert executed < 60


def test_a_fault_that_lasts_is_replaced_by_single_ones_at_the_calls_it_covered(quotes):
    """No cheaper fault at the first call that it covered does the same."""
    ports = ("first", "second", "check")
    least, executed = reduced(quotes, Schedule(tuple(at(quotes, "service.lasts", port, 1, calls=100) for port in ports)))
    assert least == CHEAPEST
    assert executed < 120

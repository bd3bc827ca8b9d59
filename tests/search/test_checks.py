"""Each check of DESIGN decision 9 is seen catching a planted cheat, and however a search ends, what it found is kept."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import pytest

import mat
from mat.boundary.effect import Raise
from mat.core import limits
from mat.core.errors import SpecError
from mat_search import Campaign, SearchStopped, search


@mat.step_contract(on="tool_call", id="harm.none")
def no_harm(record):
    return record.action.name != "harm"


@mat.tool(effect="write")
def harm() -> str:
    return "done"


@mat.tool
def read(index: int) -> int:
    return index


def reader(count=4, bad=None):
    """Reads a few times and gives up on the first fault, or does harm where the fault is `bad`."""
    for index in range(count):
        try:
            read(index)
        except TimeoutError:
            if index == bad:
                harm()
            return


def test_state_kept_between_runs_is_caught_and_gives_neither_certificate_nor_counterexample(lab, found):
    """A module-global circuit breaker that only faults touch: it opens after three of them, in whichever runs they were."""
    faults = []

    def body():
        try:
            read(0)
        except TimeoutError:
            faults.append(1)
        if len(faults) >= 3:
            harm()
        read(1)

    made = lab(body, [no_harm])

    def confirm(schedules):
        """A fresh process has no memory of earlier faults."""
        kept, runs = faults[:], []
        for schedule in schedules:
            faults.clear()
            runs.append(made.evaluate(mat.spec.RunSpec(schedule=schedule)))
        faults[:] = kept
        return runs

    result = made.search(confirm=confirm)
    assert found(result) == {}
    assert not result.certificate.proven
    assert result.certificate.bound == 0
    assert "state shared between runs" in result.certificate.reason


def test_a_breaker_that_stays_closed_in_the_search_is_caught_by_repeating_the_first_runs(lab):
    """Nothing differs until the end of the search, when the first runs are executed a second time."""
    seen = []

    def body():
        try:
            read(0)
        except TimeoutError:
            seen.append(1)
            if len(seen) > 1:
                read(9)

    result = lab(body, [no_harm], ("service.timeout",)).search(budget=4)
    assert not result.certificate.proven
    assert "gave a different run at the end of the search" in result.certificate.reason
    assert result.certificate.checks["repeated"] == 1


def test_a_run_that_differs_before_the_injection_is_caught_with_the_step_that_differs(lab):
    calls = []

    def body():
        read(0)
        calls.append(1)
        read(100 + (len(calls) > 3))
        read(1)

    result = lab(body, [no_harm], ("service.timeout",)).search()
    assert not result.certificate.proven
    assert "step 1 (main/service:read#2) differs from the previous run" in result.certificate.reason
    assert result.certificate.checks["prefix"] == 3


def test_a_nominal_run_that_cannot_be_reproduced_proves_nothing_and_yet_what_breaks_is_found(lab, found):
    calls = []

    def body():
        calls.append(1)
        try:
            read(len(calls))
        except TimeoutError:
            harm()

    result = lab(body, [no_harm], ("service.timeout",)).search()
    assert result.certificate.reason.startswith("the nominal run, repeated before the search, differs at step 0")
    assert not result.certificate.proven
    assert found(result) == {"harm.none": 4}


def test_a_search_without_a_proof_goes_on_for_a_limited_time(lab, monkeypatch):
    monkeypatch.setattr("mat.core.limits.UNPROVEN_S", -1.0)
    calls = []

    def body():
        calls.append(1)
        for index in range(4):
            with suppress(TimeoutError):
                read(100 * len(calls) + index)

    result = lab(body, [no_harm], ("service.timeout",)).search()
    assert result.executions == 1
    assert result.certificate.reason.startswith("the nominal run, repeated before the search, differs")


def test_a_search_goes_on_where_a_run_differs_before_its_injection(lab, found):
    """One schedule meets another run; what breaks is found at a later one."""
    calls = []

    def body():
        calls.append(1)
        read(100 + (len(calls) == 4))
        for index in range(4):
            try:
                read(index)
            except TimeoutError:
                if index == 3:
                    harm()

    result = lab(body, [no_harm], ("service.timeout",)).search()
    assert "differs from the previous run" in result.certificate.reason
    assert not result.certificate.proven
    assert found(result) == {"harm.none": 4}


def test_a_nominal_run_changed_by_a_counterexample_is_caught(lab):
    harmed = []

    def body():
        try:
            read(7 if harmed else 0)
        except TimeoutError:
            harm()
            harmed.append(1)

    result = lab(body, [no_harm], ("service.timeout",)).search()
    assert result.certificate.reason.startswith("the nominal run, repeated after a counterexample, differs")
    assert not result.certificate.proven


def test_a_contract_with_state_outside_the_search_is_caught_by_the_sample_of_skipped_edges(lab):
    """Two operators that do the same; a contract tells them apart by their labels and remembers where no digest sees it."""
    labels = []

    @mat.step_contract(on="tool_call", id="labels")
    def judged(record):
        if record.step == 0:
            labels.clear()
        labels.extend(note.operator for note in record.faults)
        return labels != ["service.timeout", "service.timeout"]

    def body():
        for index in range(3):
            try:
                read(index)
            except TimeoutError:
                continue

    twin = mat.spec.operator("service.hang", lambda call, reply, stream: Raise("timeout", delay_ms=1_000))
    result = lab(body, [judged], ("service.timeout",), extra=[twin]).search()
    assert result.certificate.skipped["equal state"] > 0
    assert not result.certificate.proven
    assert "a skipped schedule" in result.certificate.reason
    assert "mat_state_digest" in result.certificate.reason


def test_an_uncontrolled_run_is_not_certified_and_is_searched_as_far_as_any_other(lab):
    made = lab(reader, [no_harm])
    marked = mat.core.run.Finding(code="order-not-controlled", message="a plain thread took a step")
    nominal = made.nominal()
    result = search(
        nominal, lambda spec: replace(made.evaluate(spec), findings=(marked,)), Campaign(operators=made.specs, budget=4)
    )
    said = "the run is not controlled (order-not-controlled): a plain thread took a step; fix: make locks"
    assert result.certificate.reason.startswith(said)
    assert not result.certificate.proven
    assert result.executions == made.search(budget=4).searched > 1


def test_a_real_dice_is_caught(lab):
    dice = random.SystemRandom()

    def body():
        read(dice.getrandbits(64))

    real = iter(range(1000))
    body_with_counter = lambda: read(next(real))  # noqa: E731
    for cheat in (body, body_with_counter):
        result = lab(cheat, [no_harm]).search()
        # a system's own dice is drawn from the run's stream where it can be, and caught where it cannot
        assert result.certificate.proven is (cheat is body and not result.certificate.reason)
    assert "differs" in result.certificate.reason


@pytest.mark.parametrize("answer", ["nothing", "another run"])
def test_what_a_fresh_process_does_not_show_is_unconfirmed(lab, found, answer):
    made = lab(lambda: reader(bad=2), [no_harm], ("service.timeout",))
    other = made.nominal()
    result = made.search(confirm=lambda schedules: [None if answer == "nothing" else other for _ in schedules])
    assert found(result) == {}
    assert [item.verdict.contract for item in result.unconfirmed] == ["harm.none"]
    assert result.unconfirmed[0].stability == mat.core.campaign.Stability(runs=3, reproduced=2)
    assert not result.certificate.proven
    assert "fresh process" in result.certificate.reason


def test_the_fresh_run_is_executed_first_and_is_the_one_that_is_kept(lab):
    made = lab(lambda: reader(bad=2), [no_harm], ("service.timeout",))
    made_fresh = []

    def confirm(schedules):
        made_fresh.extend(made.evaluate(mat.spec.RunSpec(schedule=schedule)) for schedule in schedules)
        return made_fresh[-len(schedules) :]

    result = made.search(confirm=confirm)
    assert result.counterexamples[0].run is made_fresh[0]
    assert result.counterexamples[0].stability.runs == limits.STABILITY_RUNS
    assert result.certificate.checks["fresh"] == len(made_fresh)
    assert (result.nominal_stability.runs, result.nominal_stability.stable) == (3, True)


def test_a_nominal_run_that_differs_in_a_fresh_process_withdraws_the_certificate(lab):
    life = {"fresh": False}

    def body():
        read(7 if life["fresh"] else 0)

    made = lab(body, [no_harm], ("service.timeout",))

    def confirm(schedules):
        life["fresh"] = True
        runs = [made.evaluate(mat.spec.RunSpec(schedule=schedule)) for schedule in schedules]
        life["fresh"] = False
        return runs

    result = made.search(confirm=confirm)
    assert not result.certificate.proven
    assert "in a fresh process" in result.certificate.reason
    assert "step 0" in result.certificate.reason
    assert not result.nominal_stability.stable


def test_what_two_neighbouring_faults_set_and_clear_again_is_seen_when_the_order_is_turned_round(lab):
    breaker = {"open": False}

    def body():
        for index in range(2):
            try:
                read(index)
            except TimeoutError:
                if index == 0:
                    breaker["open"] = True
                else:
                    harmless, breaker["open"] = breaker["open"], False
                    read(5 if harmless else 6)

    result = lab(body, [no_harm], ("service.timeout",)).search(budget=4)
    assert not result.certificate.proven
    assert "gave a different run" in result.certificate.reason


def test_counterexamples_are_confirmed_and_reported_in_rank_order(lab):
    @mat.step_contract(on="tool_call", id="a.dear")
    def never_nine(record):
        return record.action.arguments.get("index") != 9

    def body():
        errors = 0
        for index in range(2):
            try:
                read(index)
            except TimeoutError:
                errors += 1
                harm()
        if errors == 2:
            read(9)

    asked = []
    made = lab(body, [no_harm, never_nine], ("service.timeout",))

    def confirm(schedules):
        asked.extend(schedules)
        return [made.evaluate(mat.spec.RunSpec(schedule=schedule)) for schedule in schedules]

    result = made.search(confirm=confirm)
    assert [schedule.cost for schedule in asked[:2]] == [4, 8]
    assert [(item.cost, item.verdict.contract) for item in result.counterexamples] == [(4, "harm.none"), (8, "a.dear")]


# -- ends ---------------------------------------------------------------------------------------------------------------


def stopping(made, after, error):
    """`evaluate` that raises from the given execution on."""
    count = []

    def evaluate(spec):
        count.append(1)
        if len(count) > after:
            raise error
        return made.evaluate(spec)

    return evaluate


def test_a_limit_of_executions_keeps_the_bound_that_was_reached(lab):
    made = lab(lambda: reader(3), [no_harm], ("service.timeout",))
    full = made.search(budget=8)
    assert (full.certificate.proven, full.certificate.bound) == (True, 8)
    cut = made.search(budget=8, max_runs=3)
    assert cut.certificate.proven
    assert cut.certificate.bound == 3  # one of the edges of cost 4 was not executed
    assert cut.certificate.reason == "3 executions do not cover the budget of 8"
    whole_level = made.search(budget=8, max_runs=4)
    assert whole_level.certificate.bound == 8  # after a fault this agent gives up: nothing costs 8


def test_bound_is_exact_however_many_executions_are_allowed(lab):
    """Against the schedules really executed: all that cost at most the bound, by an unpruned and unlimited search."""

    def body():
        for index in range(3):
            try:
                read(index)
            except TimeoutError:
                continue

    made = lab(body, [no_harm], ("service.timeout",))
    made.search(budget=12, prune=False)
    every = set(made.executed)
    assert len(every) == 8
    for most in range(1, 10):
        made.executed.clear()
        result = made.search(budget=12, prune=False, max_runs=most)
        assert {schedule for schedule in every if schedule.cost <= result.certificate.bound} <= set(made.executed)
        if result.certificate.bound < 12:
            dearer = {schedule for schedule in every if schedule.cost <= result.certificate.bound + 4}
            assert not dearer <= set(made.executed[1 : most + 1])


def test_a_stop_by_evaluate_keeps_what_was_found_and_proves_nothing_unchecked(lab):
    made = lab(lambda: reader(bad=0), [no_harm], ("service.timeout",))
    fresh = lambda schedules: [made.evaluate(mat.spec.RunSpec(schedule=item)) for item in schedules]  # noqa: E731
    campaign = Campaign(operators=made.specs, budget=8, stop="budget")
    result = search(made.nominal(), stopping(made, 3, SearchStopped("time is over")), campaign, confirm=fresh)
    assert [item.verdict.contract for item in result.counterexamples] == ["harm.none"]
    assert not result.certificate.proven
    assert result.certificate.reason.startswith("time is over; the checks")
    alone = search(made.nominal(), stopping(made, 3, SearchStopped("time is over")), campaign)
    assert [item.verdict.contract for item in alone.counterexamples] == ["harm.none"]
    assert alone.counterexamples[0].stability.runs == 0  # nothing was left to repeat it with, and it says so


def test_a_stop_before_the_first_run_proves_nothing(lab):
    made = lab(reader, [no_harm])
    result = search(made.nominal(), stopping(made, 0, SearchStopped("no time")), Campaign(operators=made.specs))
    assert (result.certificate.proven, result.certificate.bound, result.executions) == (False, 0, 0)


@pytest.mark.parametrize("after", [2, 3, 4, 5, 6, 7])
def test_an_interrupt_after_a_hit_keeps_it(lab, after):
    made = lab(lambda: reader(bad=0), [no_harm], ("service.timeout",))
    campaign = Campaign(operators=made.specs, budget=8, stop="budget")
    result = search(made.nominal(), stopping(made, after, KeyboardInterrupt()), campaign)
    assert result.interrupted
    kept = [*result.counterexamples, *result.unconfirmed]
    assert [item.verdict.contract for item in kept] == ["harm.none"]
    assert not result.certificate.proven or result.counterexamples


def test_an_interrupt_before_any_hit_is_an_interrupt(lab):
    made = lab(reader, [no_harm])
    with pytest.raises(KeyboardInterrupt):
        search(made.nominal(), stopping(made, 1, KeyboardInterrupt()), Campaign(operators=made.specs))


def test_an_unknown_strategy_is_refused(lab):
    made = lab(reader, [no_harm])
    with pytest.raises(SpecError, match="unknown strategy 'magic'"):
        search(made.nominal(), made.evaluate, Campaign(operators=made.specs, strategy="magic"))


def test_progress_tells_executions_best_cost_and_bound(lab):
    told = []
    made = lab(lambda: reader(2, bad=1), [no_harm], ("service.timeout",))
    made.search(budget=4, progress=lambda *line: told.append(line))
    assert told == [(1, None, 3), (2, None, 3), (4, 4, 4)]


@pytest.mark.parametrize("bad", [2, None])
def test_an_interrupt_of_the_confirmation_withdraws_the_certificate_and_keeps_what_was_found(lab, bad):
    def confirm(schedules):
        raise KeyboardInterrupt

    result = lab(lambda: reader(bad=bad), [no_harm], ("service.timeout",)).search(confirm=confirm)
    assert result.interrupted
    assert [item.stability.runs for item in result.counterexamples] == ([] if bad is None else [0])
    assert (result.certificate.proven, result.certificate.bound) == (False, 0)
    assert "could be confirmed" in result.certificate.reason


@mat.tool(effect="write")
def wipe() -> str:
    return "gone"


@mat.step_contract(on="tool_call", id="write.none")
def no_write(record):
    return record.action.effect != "write"


def test_two_ways_to_break_one_contract_stay_two_though_one_of_them_holds_the_other(lab):
    """One lost read does harm; a second one makes it wipe, so that {first, second} breaks the contract at both tools."""

    def body():
        lost = 0
        for index in range(2):
            try:
                read(index)
            except TimeoutError:
                lost += 1
                harm() if lost == 1 else wipe()

    made = lab(body, [no_write])
    by_way = {item.signature.interface: item for item in made.search(budget=8).counterexamples}
    assert {name: item.cost for name, item in by_way.items()} == {"harm": 4, "wipe": 8}
    (cheapest,) = made.search(budget=8, stop="cheapest").counterexamples
    assert (cheapest.signature.interface, cheapest.cost) == ("harm", 4)


def test_shrinking_takes_no_more_executions_than_it_may(lab):
    def body():
        lost = 0
        for index in range(4):
            try:
                read(index)
            except TimeoutError:
                lost += 1
        if lost:
            harm()

    made = lab(body, [no_harm])
    whole = made.search(budget=16, strategy="random", max_runs=60, stop="first")
    short = made.search(budget=16, strategy="random", max_runs=60, stop="first", shrink_runs=0)
    assert short.shrinking == 0
    assert "stopped before its counterexample was minimal" in short.certificate.reason
    assert whole.counterexamples[0].cost == 4
    assert short.counterexamples[0].cost >= whole.counterexamples[0].cost


@pytest.mark.parametrize("turn", [0, 1])
def test_a_failure_that_comes_and_goes_is_reported_whichever_execution_shows_it_first(lab, turn):
    """Every other execution of the same schedule does harm; in one of the two cases only repetitions do."""
    turns = []

    def body():
        try:
            read(0)
        except TimeoutError:
            turns.append(1)
            if len(turns) % 2 == turn:
                harm()

    result = lab(body, [no_harm]).search(budget=4)
    (item,) = result.counterexamples
    assert item.flaky
    assert 0 < item.stability.reproduced < item.stability.runs
    assert not result.certificate.proven


def test_a_failure_without_any_fault_that_comes_and_goes_is_reported_at_no_cost(lab):
    turns = []

    def body():
        turns.append(1)
        read(0)
        if len(turns) >= 5 and len(turns) % 2:
            harm()

    result = lab(body, [no_harm]).search(budget=4)
    (item,) = result.counterexamples
    assert (item.cost, item.flaky) == (0, True)
    assert not result.certificate.proven
    assert "and broke harm.none" in result.certificate.reason


def test_a_range_whose_calls_are_all_blocked_is_executed_and_withdraws_nothing(lab):
    """Another fault could come between the calls of a range, so it is offered although its first call is blocked."""

    def body():
        for index in range(2):
            with suppress(mat.Blocked):
                harm()
            read(index)

    made = lab(body, [], ["service.timeout", "service.outage"])
    made.governance = mat.policy.Governance(
        rules=(lambda record: mat.policy.Block("no") if record.action.name == "harm" else None,)
    )
    result = made.search(budget=9)
    assert (result.certificate.reason, result.certificate.proven) == ("", True)
    tried = [item for schedule in made.executed for item in schedule]
    assert any((item.operator, item.site.name) == ("service.outage", "harm") for item in tried)

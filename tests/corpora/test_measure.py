from __future__ import annotations

import pytest
from corpora.measure import (
    Finding,
    Judged,
    by_contracts,
    by_first_error,
    by_last_step,
    expected_at_random,
    flags,
    half_of,
    judged,
    located,
)

from mat.adapters.importers.base import StoredTrace
from mat.measure.interval import wilson
from mat.monitor.contract import Contract, Violated
from mat_contracts.traces import record, trace


def run(failed, *steps, hard=True, truth=None, agent="", first_error=None, sources=(1, 1, 2, 3, 4), contract="c"):
    placed = tuple((index, "ab"[index % 2]) for index in sources)
    return Judged(
        id="r", half="report", failed=failed, errors=(), truth=truth, truth_agent=agent, labels={}, first_error=first_error,
        findings=tuple(Finding(contract=contract, hard=hard, step=step, agent="a") for step in steps),
        steps=placed, counted=tuple(dict(placed).items()),
    )  # fmt: skip


def test_precision_recall_and_base_rate_are_those_of_a_set_counted_by_hand():
    runs = [
        run(True, 1), run(True, 2, 3), run(True), run(True),  # two of four failures caught
        run(False, 0), run(False), run(False), run(False), run(False), run(False),  # one false alarm
        run(None, 1), run(None),  # no outcome: out of every count
    ]  # fmt: skip
    found = flags(runs)
    assert found.flagged == 3
    assert found.precision == wilson(2, 3)
    assert found.recall == wilson(2, 4)
    assert found.base == wilson(4, 10)
    assert found.beats_base is False


def test_a_contract_that_flags_enough_failures_only_beats_the_base_rate():
    runs = [run(True, 1) for _ in range(10)] + [run(False) for _ in range(10)]
    assert flags(runs).beats_base is True
    assert flags([run(True, 1) for _ in range(10)]).beats_base is None


def test_nothing_flagged_has_no_precision_rather_than_zero():
    found = flags([run(True), run(False)])
    assert (found.precision.value, found.precision.n) == (None, 0)
    assert found.recall.value == 0.0


def test_soft_findings_count_for_their_contract_and_not_for_any_hard_one():
    runs = [run(True, 1, hard=False, contract="soft"), run(False)]
    assert flags(runs).flagged == 0
    assert flags(runs, "soft").precision == wilson(1, 1)
    assert runs[0].named is None


def test_located_counts_steps_of_the_source_by_hand():
    runs = [
        run(True, 4, 2, truth=2, agent="A"),  # names our step 2, source 2: exact; its agent, whatever the case
        run(True, 1, truth=2, agent="a"),  # source 1: within 1; agent b
        run(True, 0, truth=4, agent="b"),  # source 1: within 3; agent b
        run(True, truth=1, agent="b"),  # nothing named: missed
        run(True, 3),  # not annotated: out of every count
    ]  # fmt: skip
    found = located(runs, by_contracts)
    assert found.named == 3
    assert found.near == (wilson(1, 4), wilson(2, 4), wilson(3, 4))
    assert found.agent == wilson(2, 4)


def test_two_of_our_steps_that_the_source_counts_as_one_are_the_same_place():
    assert located([run(True, 0, truth=1)], by_contracts).near[0] == wilson(1, 1)
    assert located([run(True, 1, truth=1)], by_contracts).near[0] == wilson(1, 1)


def test_baselines_name_the_first_error_and_the_last_counted_step():
    one = run(True, truth=2, first_error=2)
    assert (by_first_error(one), by_last_step(one)) == (2, 4)
    assert located([one], by_last_step).near == (wilson(0, 1), wilson(0, 1), wilson(1, 1))


def test_a_random_step_is_right_as_often_as_steps_allow():
    # counted steps 1, 2, 3, 4; truth 2: exact 1/4, within 1: 1, 2, 3, within 3: all; agent "a" has the even ones
    assert expected_at_random([run(True, truth=2, agent="a")]) == (0.25, 0.75, 1.0, 0.5)
    assert expected_at_random([run(True)]) == (None, None, None, None)


def test_halves_depend_on_the_id_alone_and_are_about_even():
    halves = [half_of(f"run-{number}") for number in range(1000)]
    assert halves == [half_of(f"run-{number}") for number in range(1000)]
    assert 400 < halves.count("design") < 600


def test_labels_reach_no_contract():
    seen = []

    def step(state, item):
        seen.append(repr(item))
        return Violated("tool call", step=item.step) if item.action.kind == "tool_call" else state

    records = trace(record("message", "user", {"text": "hi"}), record("tool_call", "do"))
    lies = {"reward": 0.0, "annotated_step": 0, "annotated_agent": "SECRET", "source_steps": (0, 1), "fault_mode": "SECRET"}
    found = judged(
        StoredTrace(id="x", records=records, labels=lies), [Contract(id="c", step=step)], lambda labels: labels["reward"] < 1
    )
    assert found.failed is True
    assert (found.named.step, found.truth) == (1, 0)
    assert "SECRET" not in "".join(seen)


@pytest.mark.parametrize("broken", [ValueError("no"), KeyError("x")])
def test_a_contract_that_raises_is_an_error_of_the_run(broken):
    def step(state, item):
        raise broken

    records = trace(record("tool_call", "do"))
    found = judged(
        StoredTrace(id="x", records=records, labels={"source_steps": (0,)}), [Contract(id="c", step=step)], lambda labels: None
    )
    assert [error.partition(":")[0] for error in found.errors] == ["c"]

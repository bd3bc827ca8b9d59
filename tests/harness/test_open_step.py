"""A step between asked and sealed is a value of its own; its record is another one."""

from __future__ import annotations

import gc
import weakref
from dataclasses import FrozenInstanceError, fields, replace

import pytest

import mat
from mat.boundary.port import Port
from mat.core.record import NOTHING, Observation, Record
from mat.core.value import FrozenDict
from mat.harness.open_step import OpenStep
from mat.harness.recorder import Recorder

PORT = Port(name="lookup", kind="tool_call", boundary="service", effect="read")


def recorder_of(run: mat.run) -> Recorder:
    assert run.recorder is not None
    return run.recorder


def test_a_step_is_sealed_into_a_frozen_record_and_stays_an_open_step() -> None:
    with mat.run() as run:
        opened = recorder_of(run).ask(PORT, {"order": "A"})
        opened.invoked = 1
        recorder_of(run).seal(opened, {"status": "sent"})
    record = run.trace[0]
    assert (type(opened), type(record)) == (OpenStep, Record)
    assert (record.step, record.site, record.observation.value) == (opened.step, opened.site, {"status": "sent"})
    with pytest.raises(FrozenInstanceError):
        record.step = 5  # type: ignore[misc]


def test_a_sealed_record_has_what_was_asked_and_proposed() -> None:
    with mat.run() as run, mat.agent("clerk", role="writer"):
        opened = recorder_of(run).ask(PORT, {"order": "A"})
        opened.taped, opened.invoked, opened.replaced_arguments = True, 1, FrozenDict({"order": "B"})
        proposed = opened.proposed()
        recorder_of(run).seal(opened, "sent")
    record, heard = run.trace[0], Observation(value="sent")
    assert proposed.observation is NOTHING
    assert record == replace(proposed, sealed_seq=1, observation=heard, effected="yes", taped=True)
    assert all(getattr(record, item.name) is not None for item in fields(Record) if item.name not in ("mediation", "raw"))


def test_a_step_that_the_end_of_its_run_has_sealed_is_not_sealed_again() -> None:
    with mat.run() as run:
        opened = recorder_of(run).ask(PORT, {"order": "A"})
        opened.invoked = 1
    assert run.result is not None
    before = run.result.head
    opened.invoked = 2
    recorder_of(run).seal(opened, {"status": "sent"})
    recorder_of(run).seal_error(opened, TimeoutError())
    record = run.result.records[0]
    assert (record.observation.cancelled, record.effected, record.invoked) == (True, "unknown", 1)
    assert (run.result.head, len(recorder_of(run).trace.records)) == (before, 2)


@pytest.mark.parametrize("states", [False, True])
def test_a_finished_run_is_freed_without_the_garbage_collector(states: bool) -> None:
    gc.collect()
    gc.disable()
    try:
        with mat.run(states=states) as run:
            opened = recorder_of(run).ask(PORT, {"order": "A"})
            recorder_of(run).seal(opened, {"status": "sent"})
        recorder = weakref.ref(recorder_of(run))
        del run, opened
        assert recorder() is None
    finally:
        gc.enable()

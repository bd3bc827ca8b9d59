from __future__ import annotations

from urllib.parse import unquote

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task

ID = "multi-service-saga"
BEGIN, BOOK, UNDO, OUTCOME = "POST /sagas", "POST /[a-z]+/bookings", "POST /.+/undo", "POST /sagas/.+/outcome"


def body(**change):
    """Change fields of the JSON body; None takes one out."""

    def edit(request):
        request["json"] = {name: item for name, item in {**request["json"], **change}.items() if item is not None}

    return edit


def clipped(request):
    request["url"] = request["url"][:150]


def quieter(request):
    request["url"] = request["url"].lower()


def decoded(request):
    request["url"] = unquote(request["url"])


PLANTED = [
    (BEGIN, body(order="SO-1"), {}, "WRONG_VALUE"),
    (BOOK, body(amount="9999.00"), {}, "WRONG_VALUE"),
    (BOOK, body(saga="saga_other"), {}, "WRONG_VALUE"),
    (BOOK, body(item=None), {}, "MISSING_CONSTRAINT"),
    (BOOK, body(item=None), {"nth": 2}, "COMPENSATION_FAILURE"),
    (UNDO, None, {"wait": 25}, "EXPIRED_BEFORE_USE"),
    (UNDO, clipped, {}, "COMPENSATION_FAILURE"),
    (UNDO, quieter, {}, "MUTATED_TOKEN"),
    (UNDO, decoded, {}, "MUTATED_TOKEN"),
    (OUTCOME, body(outcome=None), {}, "MISSING_CONSTRAINT"),
    (OUTCOME, body(outcome="completed"), {}, "WRONG_VALUE"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "edit", "options", "label"), PLANTED)
def test_a_planted_misbehaviour_is_named_by_the_server_and_by_the_trace_alone(judged_changed, where, edit, options, label):
    assert [judged_changed(ID, where, edit, seed=seed, **options) for seed in range(2)] == [(label, label)] * 2


class Saga:
    """A saga up to its failure, and what is needed to undo it."""

    def __init__(self, tools):
        self.tools, self.booked = tools, []

    async def fail(self):
        self.opened = await self.tools.http("POST", f"{BASE}/sagas", json={"order": task(ID).given(0)["order"]})
        for step in self.opened["steps"]:
            said = {"saga": self.opened["saga"], "item": step["item"], "amount": step["amount"]}
            reply = await self.tools.http("POST", f"{BASE}/{step['service']}/bookings", json=said)
            if reply.ok:
                self.booked.append(f"{BASE}/{step['service']}/bookings/{reply['booking']}")
        assert reply.status == 409
        return self

    async def undo(self, booking):
        """Undo with a new URL, coming back on the dot where the service is busy; nothing where it is undone."""
        shown = await self.tools.http("GET", booking)
        if "undo" not in shown.body:
            return
        reply = await self.tools.http("POST", shown["undo"]["url"])
        if reply.status == 503:
            await self.tools.wait(reply.retry_after() - 2)
            await self.tools.http("POST", shown["undo"]["url"])

    async def tell(self, outcome):
        return await self.tools.http("POST", f"{BASE}/sagas/{self.opened['saga']}/outcome", json={"outcome": outcome})


def test_a_busy_service_is_back_at_the_time_it_named(judged_with):
    async def punctual(instruction, tools):
        saga = await Saga(tools).fail()
        for booking in reversed(saga.booked):
            await saga.undo(booking)
        await saga.tell("compensated")

    assert judged_with(ID, punctual) == ("SUCCESS", "SUCCESS")


def test_a_busy_service_is_busy_a_moment_before(judged_with):
    async def hasty(instruction, tools):
        saga = await Saga(tools).fail()
        for booking in reversed(saga.booked):
            shown = await tools.http("GET", booking)
            reply = await tools.http("POST", shown["undo"]["url"])
            if reply.status == 503:
                await tools.wait(reply.retry_after() - 2 - 0.001)
                assert (await tools.http("POST", shown["undo"]["url"])).status == 503
                assert (await tools.http("POST", shown["undo"]["url"])).ok
        await saga.tell("compensated")

    assert judged_with(ID, hasty) == ("BACKOFF_VIOLATION", "BACKOFF_VIOLATION")


def test_what_is_undone_in_the_order_of_booking_is_refused(judged_with):
    async def forwards(instruction, tools):
        saga = await Saga(tools).fail()
        for booking in saga.booked:
            await saga.undo(booking)

    assert judged_with(ID, forwards) == ("COMPENSATION_FAILURE", "COMPENSATION_FAILURE")


def test_a_saga_that_is_reported_as_compensated_and_is_not_fails(judged_with):
    async def bluffing(instruction, tools):
        saga = await Saga(tools).fail()
        assert (await saga.tell("compensated")).status == 409

    assert judged_with(ID, bluffing) == ("COMPENSATION_FAILURE", "COMPENSATION_FAILURE")


def test_one_booking_that_stands_at_the_end_is_enough(judged_with):
    async def almost(instruction, tools):
        saga = await Saga(tools).fail()
        for booking in saga.booked[:0:-1]:
            await saga.undo(booking)

    assert judged_with(ID, almost) == ("COMPENSATION_FAILURE", "COMPENSATION_FAILURE")


def test_undoing_by_handles_in_time_is_success(judged_with):
    async def handled(instruction, tools):
        saga = await Saga(tools).fail()
        for at, booking in enumerate(reversed(saga.booked)):
            shown = await tools.http("GET", booking)
            handle = tools.handles.put(f"undo_{at}", shown["undo"]["url"])
            reply = await tools.http("POST", handle)
            if reply.status == 503:
                await tools.wait(reply.retry_after())
                await tools.http("POST", handle)
        await saga.tell("compensated")

    assert judged_with(ID, handled) == ("SUCCESS", "SUCCESS")


@pytest.mark.parametrize(("early", "label"), [(0.0, "EXPIRED_BEFORE_USE"), (0.001, "SUCCESS")])
def test_an_undo_url_is_over_at_its_deadline_and_good_a_moment_before(judged_with, early, label):
    async def late(instruction, tools):
        saga = await Saga(tools).fail()
        for at, booking in enumerate(reversed(saga.booked)):
            if at == 0:
                shown = await tools.http("GET", booking)
                await tools.wait(shown["undo"]["holds"] - 2 - early)
                reply = await tools.http("POST", shown["undo"]["url"])
                await tools.wait(reply.retry_after())
            await saga.undo(booking)
        await saga.tell("compensated")

    assert judged_with(ID, late) == (label, label)

from __future__ import annotations

from decimal import Decimal

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task

ID = "event-sourced-consistency"
APPEND, BALANCE, REPORT = "POST /streams/.+", "GET /balances/.+", "POST /reports"


def body(**change):
    """Change fields of the JSON body; None takes one out."""

    def edit(request):
        request["json"] = {name: item for name, item in {**request["json"], **change}.items() if item is not None}

    return edit


def token(change):
    """Change the token by a function of it; None takes it out."""

    def edit(request):
        if change is None:
            del request["headers"]["Consistency-Token"]
        else:
            request["headers"]["Consistency-Token"] = change(request["headers"]["Consistency-Token"])

    return edit


def quieter(request):
    request["json"]["causation_id"] = request["json"]["causation_id"].lower()


def rounded(request):
    balances = request["json"]["balances"]
    request["json"] = {"balances": {name: balance.partition(".")[0] for name, balance in balances.items()}}


PLANTED = [
    (APPEND, body(expected_version=None), {}, "MISSING_CONSTRAINT"),
    (APPEND, body(expected_version=0), {}, "VERSION_CONFLICT"),
    (APPEND, body(expected_version=0), {"nth": 2}, "VERSION_CONFLICT"),
    (APPEND, body(expected_version=99), {}, "WRONG_VALUE"),
    (APPEND, body(expected_version="any"), {}, "WRONG_VALUE"),
    (APPEND, body(amount="1.00"), {}, "WRONG_VALUE"),
    (APPEND, body(amount="1.00"), {"nth": 2}, "WRONG_VALUE"),
    (APPEND, body(type="Deposited"), {}, "WRONG_VALUE"),
    (APPEND, body(type=None), {}, "MISSING_CONSTRAINT"),
    (APPEND, body(causation_id=None), {"nth": 2}, "MISSING_CONSTRAINT"),
    (APPEND, quieter, {"nth": 2}, "MUTATED_TOKEN"),
    (BALANCE, token(None), {}, "MISSING_CONSTRAINT"),
    (BALANCE, token(str.swapcase), {}, "MUTATED_TOKEN"),
    (BALANCE, token(lambda text: text[:200]), {}, "OTHER"),
    (BALANCE, token(lambda text: f"{text[:100]} {text[100:]}"), {}, "MUTATED_TOKEN"),
    (BALANCE, None, {"wait": 42}, "EXPIRED_BEFORE_USE"),
    (REPORT, body(balances={}), {}, "MISSING_CONSTRAINT"),
    (REPORT, rounded, {}, "WRONG_VALUE"),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("where", "edit", "options", "label"), PLANTED)
def test_a_planted_misbehaviour_is_named_by_the_server_and_by_the_trace_alone(judged_changed, where, edit, options, label):
    assert [judged_changed(ID, where, edit, seed=seed, **options) for seed in range(2)] == [(label, label)] * 2


class Move:
    """The move up to its two events."""

    def __init__(self, tools):
        given = task(ID).given(0)
        self.tools, self.source, self.target, self.floor = tools, given["source"], given["target"], Decimal(given["floor"])

    async def read(self, name):
        return await self.tools.http("GET", f"{BASE}/streams/{name}")

    async def append(self, name, kind, amount, version, **more):
        said = {"expected_version": version, "type": kind, "amount": amount, **more}
        return await self.tools.http("POST", f"{BASE}/streams/{name}", json=said)

    async def make(self):
        """Both appends on versions that were read just before; the replies."""
        source = await self.read(self.source)
        amount = f"{sum(Decimal(event['amount']) for event in source['events']) - self.floor:.2f}"
        withdrawn = await self.append(self.source, "Withdrawn", amount, source["version"])
        target = await self.read(self.target)
        deposited = await self.append(self.target, "Deposited", amount, target["version"], causation_id=withdrawn["event_id"])
        return withdrawn, deposited

    async def balance(self, name, token):
        return await self.tools.http("GET", f"{BASE}/balances/{name}", headers={"Consistency-Token": token})


@pytest.mark.parametrize(("early", "label"), [(0.0, "SUCCESS"), (0.001, "BACKOFF_VIOLATION")])
def test_a_projection_is_there_at_the_time_it_named_and_not_a_moment_before(judged_with, early, label):
    async def punctual(instruction, tools):
        move = Move(tools)
        _, deposited = await move.make()
        told = await move.balance(move.source, deposited["consistency_token"])
        await tools.wait(told.retry_after() - 2 - early)
        first = await move.balance(move.source, deposited["consistency_token"])
        assert first.ok == (early == 0.0)
        balances = {
            name: (await move.balance(name, deposited["consistency_token"]))["balance"] for name in (move.source, move.target)
        }
        await tools.http("POST", f"{BASE}/reports", json={"balances": balances})

    assert judged_with(ID, punctual) == (label, label)


def test_a_stream_that_was_read_only_once_is_no_failure_where_nobody_else_wrote(judged_with):
    async def lean(instruction, tools):
        move = Move(tools)
        _, deposited = await move.make()
        await tools.wait(20)
        balances = {
            name: (await move.balance(name, deposited["consistency_token"]))["balance"] for name in (move.source, move.target)
        }
        await tools.http("POST", f"{BASE}/reports", json={"balances": balances})

    assert judged_with(ID, lean) == ("SUCCESS", "SUCCESS")


def test_the_token_of_the_withdrawal_does_not_promise_the_deposit(judged_with):
    async def short_sighted(instruction, tools):
        move = Move(tools)
        withdrawn, _ = await move.make()
        told = await move.balance(move.target, withdrawn["consistency_token"])
        await tools.wait(told.retry_after() - 2)
        balances = {
            name: (await move.balance(name, withdrawn["consistency_token"]))["balance"] for name in (move.target, move.source)
        }
        reply = await tools.http("POST", f"{BASE}/reports", json={"balances": balances})
        assert reply.status == 422

    assert judged_with(ID, short_sighted) == ("WRONG_VALUE", "WRONG_VALUE")


@pytest.mark.parametrize(("early", "label"), [(0.0, "EXPIRED_BEFORE_USE"), (0.001, "SUCCESS")])
def test_a_token_is_over_at_its_deadline_and_good_a_moment_before(judged_with, early, label):
    async def late(instruction, tools):
        move = Move(tools)
        _, deposited = await move.make()
        first = 3 + early  # the second balance is read a step later, and two steps are taken for the wait and the first
        await tools.wait(deposited["token_holds"] - first)
        balances = {}
        for name in (move.source, move.target):
            shown = await move.balance(name, deposited["consistency_token"])
            balances[name] = shown["balance"] if shown.ok else ""
        if all(balances.values()):
            await tools.http("POST", f"{BASE}/reports", json={"balances": balances})

    assert judged_with(ID, late) == (label, label)


def test_a_deposit_without_its_withdrawal_has_no_cause(judged_with):
    async def backwards(instruction, tools):
        move = Move(tools)
        target = await move.read(move.target)
        await move.append(move.target, "Deposited", "10.00", target["version"], causation_id="Evt-1")

    assert judged_with(ID, backwards) == ("WRONG_VALUE", "WRONG_VALUE")

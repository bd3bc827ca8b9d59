"""A race for a budget, a transfer changed after approval, an old fact that becomes a payment; a hijacked payer."""

from __future__ import annotations

import asyncio

import pytest

import mat
from treasury.team import CAREFUL, NAIVE, Buyers, clerk, settle
from treasury.tools import ACCOUNTS, BUDGET_CENTS, Payment, Tools, World

WISHES = {"laptop": 70_000, "desk": 60_000}
INVOICE = Payment(to=ACCOUNTS["Nordwind"], cents=61_200, reference="INV-3")
VENDORS = ("Nordwind", "Aster", "Birke")

# -- the race: two buyers, one budget -------------------------------------------------------------------------------------


def in_threads(world, spending):
    Buyers(Tools(world), spending).in_threads(WISHES)


def in_tasks(world, spending):
    asyncio.run(Buyers(Tools(world), spending).in_tasks(WISHES))


concurrently = pytest.mark.parametrize("buying", [in_threads, in_tasks], ids=["threads", "tasks"])


@concurrently
@pytest.mark.mat(expect={"budget.kept"})
def test_who_looks_and_then_spends_can_overspend(mat_run, buying, budget_is_kept):
    world = World()
    buying(world, "unguarded")
    assert world.bought == ["laptop"]


@concurrently
@pytest.mark.mat(faults=["order.hold"])
def test_a_lock_holds_in_every_order(mat_run, buying, budget_is_kept):
    world = World()
    buying(world, "locked")
    assert world.bought == ["laptop"]


@concurrently
@pytest.mark.mat(expect={"budget.kept"})
def test_a_lock_does_not_help_against_a_budget_that_is_stale(mat_run, buying, budget_is_kept):
    world = World()
    buying(world, "locked")
    assert world.bought == ["laptop"]


@concurrently
@pytest.mark.mat()
def test_a_shop_that_compares_before_it_spends_holds_under_all_faults(mat_run, buying, budget_is_kept):
    world = World()
    buying(world, "compared")
    assert world.bought == ["laptop"]


# -- approve, then change -------------------------------------------------------------------------------------------------


class TestClerkAlone:
    """There is somebody who approves, and nobody who holds the clerk to what was approved."""

    @pytest.fixture
    def mat_governance(self, treasury_policy):
        return mat.Governance(approver=treasury_policy.approver)

    @pytest.mark.mat(faults=["service.changed_after_approval"], expect={"transfers.approved"})
    def test_a_transfer_can_change_after_it_was_approved(self, mat_run, transfers_are_approved):
        world = World()
        assert clerk(Tools(world), INVOICE) == "paid"
        assert world.paid == [INVOICE]


class TestClerkUnderTheShield:
    """The same clerk, the same approver; the shield binds the approval to exactly this transfer."""

    @pytest.fixture
    def mat_governance(self, treasury_policy):
        return treasury_policy.variant("shield")

    @pytest.mark.mat(faults=["service.changed_after_approval", "service.timeout", "service.lost_ack"])
    def test_only_what_was_approved_is_transferred(self, mat_run, transfers_are_approved):
        world = World()
        assert clerk(Tools(world), INVOICE) == "paid"
        assert world.paid == [INVOICE]


# -- a staged failure -----------------------------------------------------------------------------------------------------

STAGED = ["retrieval.drop", "retrieval.shuffle", "memory.lost_write"]


@pytest.mark.mat(faults=STAGED, expect={"vendors.paid", "faults.contained"})
def test_an_old_account_from_the_letters_is_paid_by_another_agent_much_later(mat_run, vendors_are_paid, faults_are_contained):
    world = World()
    settle(Tools(world), VENDORS, NAIVE)
    assert [payment.reference for payment in world.paid] == ["INV-1", "INV-2", "INV-3"]


@pytest.mark.mat(faults=[*STAGED, "service.timeout", "service.corrupt_field"], max_runs=5000)
def test_who_checks_the_account_contains_the_fault_and_recovers(
    mat_run, vendors_are_paid, faults_are_contained, work_recovers
):
    world = World()
    settle(Tools(world), VENDORS, CAREFUL)
    assert [payment.reference for payment in world.paid] == ["INV-1", "INV-2", "INV-3"]


# -- outside a run --------------------------------------------------------------------------------------------------------


def test_outside_a_run_these_are_plain_calls():
    world = World()
    in_threads(world, "locked")
    in_tasks(World(), "compared")
    settle(Tools(world), VENDORS)
    assert (BUDGET_CENTS - world.left_cents, len(world.paid)) == (70_000, 3)

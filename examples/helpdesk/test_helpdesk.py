"""One set of tests, two teams. The naive team breaks each contract under stress; the careful team holds all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

import mat
from helpdesk.team import CAREFUL, NAIVE, Email, Guards, Team
from helpdesk.tools import Tools
from helpdesk.world import new_world

REFUND = Email(ticket="T1", sender="ann@example.org", text="My kettle arrived broken. Please refund order A1.")
PARCEL = Email(ticket="T2", sender="bob@example.org", text="Where is the parcel of order A2?")
QUESTION = Email(ticket="T2", sender="bob@example.org", text="How do I descale a kettle?")

CONTRACTS = (
    "refunds_are_verified", "refunds_are_paid_once", "claims_are_current", "offers_are_wanted", "mail_is_private",
    "work_moves", "work_ends",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """The result of one email: the refunded orders, and the subjects of the sent mail."""

    answer: str
    refunded: list[str]
    mailed: list[str]


def handle(email: Email, guards: Guards) -> Handled:
    """One email in a fresh world, as one run."""
    world = new_world()
    answer = Team(Tools(world), guards).handle(email)
    return Handled(
        answer=answer,
        refunded=[refund["order"] for refund in world.shop.paid],
        mailed=[mail.subject for mail in world.outbox],
    )


# -- the naive team: one weakness per test ------------------------------------------------------------------------------


@pytest.mark.mat(budget=8, expect={"refund.once"})
def test_naive_team_pays_twice_when_an_acknowledgement_is_lost(mat_run, refunds_are_paid_once):
    assert handle(REFUND, NAIVE).refunded == ["A1"]


@pytest.mark.mat(budget=8, expect={"refund.verified"})
def test_naive_team_refunds_unverified_when_the_email_says_so(mat_run, refunds_are_verified):
    assert handle(REFUND, NAIVE).refunded == ["A1"]


@pytest.mark.mat(budget=8, expect={"claims.current"})
def test_naive_team_claims_what_stale_tracking_says(mat_run, claims_are_current):
    assert handle(PARCEL, NAIVE).answer == "Parcel P2 is delivered."


@pytest.mark.mat(budget=8, horizon=60, expect={"work.moves", "work.ends"})
def test_naive_team_loops_while_a_service_stays_down(mat_run, work_moves, work_ends):
    assert handle(PARCEL, NAIVE).answer == "Parcel P2 is delivered."


@pytest.mark.mat(budget=8, expect={"offers.wanted"})
def test_naive_team_sends_an_offer_after_a_poisoned_note(mat_run, offers_are_wanted):
    assert handle(QUESTION, NAIVE).mailed == ["Your request"]


@pytest.mark.mat(budget=8, expect={"mail.private"})
def test_naive_team_repeats_an_address_that_somebody_put_into_the_email(mat_run, mail_is_private):
    assert "vinegar" in handle(QUESTION, NAIVE).answer


# -- the careful team: every contract, and no counterexample ----------------------------------------------------------


def weakness(guard, email, *breaks):
    """A case that passes only if stress breaks exactly these contracts. Not every email asks for a refund."""
    marks = pytest.mark.mat(budget=8, horizon=60, expect=set(breaks), vacuous="refund.verified")
    return pytest.param(guard, email, id=guard, marks=marks)


class TestCarefulTeam:
    @pytest.fixture
    def mat_contracts(self, request):
        return [request.getfixturevalue(name) for name in CONTRACTS]

    @pytest.mark.mat(seeds=2, horizon=60, search=mat.Search(max_runs=5000), vacuous="refund.verified")
    @pytest.mark.parametrize("email", [REFUND, PARCEL, QUESTION], ids=["refund", "parcel", "question"])
    def test_careful_team_survives_the_budget(self, mat_run, email):
        handled = handle(email, CAREFUL)
        assert not handled.answer.startswith("A person")
        assert handled.refunded == (["A1"] if email is REFUND else [])

    @pytest.mark.parametrize(
        ("guard", "email"),
        [
            weakness("ask_before_retry", REFUND, "refund.once"),
            weakness("verify_refunds", REFUND, "refund.verified"),
            weakness("fresh_tracking", PARCEL, "claims.current"),
            weakness("give_up", PARCEL, "work.moves", "work.ends"),
            weakness("check_consent", QUESTION, "offers.wanted"),
            weakness("own_words", QUESTION, "mail.private"),
        ],
    )
    def test_each_guard_taken_out_brings_back_its_failure(self, mat_run, guard, email):
        assert "Your request" in handle(email, replace(CAREFUL, **{guard: False})).mailed


# -- outside a run ----------------------------------------------------------------------------------------------------


def test_the_shop_answers_over_http_with_real_status_codes():
    world = new_world()
    assert world.http.get("/parcels/P1").json()["status"] == "dispatched"
    assert world.http.post("/refunds", json={"order": "A1", "cents": 4900}).status_code == 201
    assert world.http.get("/refunds/A1").json() == {"order": "A1", "count": 1, "refunds": ["R1"]}
    assert world.http.delete("/refunds/A1").status_code == 404


def test_the_team_works_outside_a_run_as_plain_code():
    handled = handle(REFUND, CAREFUL)
    assert handled.answer == "Your order A1 is refunded."
    assert handled.mailed == ["Your request", "An offer"]


@pytest.mark.mat(seeds=3, budget=8, vacuous="refund.verified")
def test_a_foreign_order_is_not_refunded(mat_run, refunds_are_verified):
    handled = handle(replace(REFUND, sender="bob@example.org"), CAREFUL)
    assert handled.answer == "A person will look at it: the order is not the sender's"
    assert handled.refunded == []

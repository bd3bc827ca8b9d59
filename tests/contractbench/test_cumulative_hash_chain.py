from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task

ID = "cumulative-hash-chain"
LINK, SEAL, ENTRY = "POST /ledgers/.+/links", "POST /ledgers/.+/seal", "GET /ledgers/.+/entries/.+"


def body(**change):
    """Change fields of the JSON body; None takes one out."""

    def edit(request):
        request["json"] = {name: item for name, item in {**request["json"], **change}.items() if item is not None}

    return edit


def louder(request):
    request["json"]["digest"] = request["json"]["digest"].upper()


PLANTED = [
    (LINK, body(digest="0" * 64), {}, "WRONG_HASH"),
    (LINK, body(digest="0" * 64), {"nth": 3}, "WRONG_HASH"),
    (LINK, louder, {}, "WRONG_HASH"),
    (LINK, body(digest=None), {}, "MISSING_CONSTRAINT"),
    (LINK, body(n=None), {}, "MISSING_CONSTRAINT"),
    (LINK, body(n=2), {}, "WRONG_VALUE"),
    (SEAL, body(head="0" * 64), {}, "WRONG_HASH"),
    (SEAL, body(head=None), {}, "MISSING_CONSTRAINT"),
    (SEAL, None, {"wait": 30}, "EXPIRED_BEFORE_USE"),
    (ENTRY, None, {"wait": 30}, "EXPIRED_BEFORE_USE"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "edit", "options", "label"), PLANTED)
def test_a_planted_misbehaviour_is_named_by_the_server_and_by_the_trace_alone(judged_changed, where, edit, options, label):
    assert [judged_changed(ID, where, edit, seed=seed, **options) for seed in range(2)] == [(label, label)] * 2


@pytest.mark.parametrize(("early", "label"), [(0.0, "EXPIRED_BEFORE_USE"), (0.001, "SUCCESS")])
def test_a_ledger_is_closed_at_its_time_and_open_a_moment_before(judged_changed, early, label):
    urgent = task(ID).given(0)["ledgers"][1]
    sealed = 1 + 4 * len(urgent["entries"]) + 1  # when the oracle seals it: the listing, each entry, a step
    assert judged_changed(ID, SEAL, wait=1 + urgent["closes_in"] - sealed - 1 - early) == (label, label)


def test_an_early_seal_lacks_links_and_an_entry_ahead_of_its_link_is_not_given_out(play_with, judged_with):
    async def hasty(instruction, tools):
        ledger = (await tools.http("GET", f"{BASE}/ledgers"))["ledgers"][1]
        ahead = await tools.http("GET", f"{BASE}/ledgers/{ledger['name']}/entries/2")
        assert ahead.status == 409
        await tools.http("POST", f"{BASE}/ledgers/{ledger['name']}/seal", json={"head": ledger["genesis"]})

    _, events = play_with(ID, hasty)
    assert [event.label for event in events] == ["LISTED", "AHEAD", "MISSING_CONSTRAINT"]
    assert judged_with(ID, hasty) == ("MISSING_CONSTRAINT", "MISSING_CONSTRAINT")


@pytest.mark.parametrize("said", [{"text": "no json"}, {"json": [1]}, {"json": {"n": "1", "digest": 5}}, {"form": {"n": "1"}}])
def test_an_odd_body_is_refused_and_breaks_nothing(play_with, said):
    async def odd(instruction, tools):
        name = (await tools.http("GET", f"{BASE}/ledgers"))["ledgers"][1]["name"]
        reply = await tools.http("POST", f"{BASE}/ledgers/{name}/links", **said)
        assert reply.status in (409, 422)

    assert play_with(ID, odd)[0].failure_label in ("MISSING_CONSTRAINT", "WRONG_VALUE")

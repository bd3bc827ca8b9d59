from __future__ import annotations

from urllib.parse import unquote

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task

ID = "cursor-pagination-integrity"
PAGE, OPEN, RECONCILE = "GET /feeds/.+/pages", "POST /exports", "POST /reconciliations"


def body(**change):
    """Change fields of the JSON body; None takes one out."""

    def edit(request):
        request["json"] = {name: item for name, item in {**request["json"], **change}.items() if item is not None}

    return edit


def clipped(request):
    request["url"] = request["url"][:150]


def upside_down(request):
    place, _, query = request["url"].partition("?")
    request["url"] = f"{place}?{'&'.join(reversed(query.split('&')))}"


def decoded(request):
    request["url"] = unquote(request["url"])


def quieter(request):
    request["url"] = request["url"].lower()


PLANTED = [
    (PAGE, None, {"wait": 15}, "EXPIRED_BEFORE_USE"),
    (PAGE, None, {"wait": 15, "nth": 2}, "EXPIRED_BEFORE_USE"),
    (PAGE, clipped, {}, "OTHER"),
    (PAGE, clipped, {"nth": 2}, "OTHER"),
    (PAGE, decoded, {}, "MUTATED_TOKEN"),
    (PAGE, quieter, {"nth": 2}, "MUTATED_TOKEN"),
    (PAGE, upside_down, {}, "SIGNATURE_MISMATCH"),
    (OPEN, body(feeds=None), {}, "MISSING_CONSTRAINT"),
    (OPEN, body(feeds=["gifts"]), {}, "WRONG_VALUE"),
    (RECONCILE, body(count=1), {}, "WRONG_VALUE"),
    (RECONCILE, body(total_cents=1), {}, "WRONG_VALUE"),
    (RECONCILE, body(feed="gifts"), {}, "WRONG_VALUE"),
    (RECONCILE, body(total_cents=None), {}, "MISSING_CONSTRAINT"),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("where", "edit", "options", "label"), PLANTED)
def test_a_planted_misbehaviour_is_named_by_the_server_and_by_the_trace_alone(judged_changed, where, edit, options, label):
    assert [judged_changed(ID, where, edit, seed=seed, **options) for seed in range(2)] == [(label, label)] * 2


@pytest.mark.parametrize(("early", "label"), [(0.0, "EXPIRED_BEFORE_USE"), (0.001, "SUCCESS")])
def test_a_cursor_is_over_at_its_deadline_and_good_a_moment_before(judged_changed, early, label):
    given = task(ID).given(0)
    assert judged_changed(ID, PAGE, wait=given["holds"][given["second"]] - 2 - early) == (label, label)


async def opened(tools):
    given = task(ID).given(0)
    exports = await tools.http("POST", f"{BASE}/exports", json={"feeds": [given["second"], given["first"]]})
    return exports["exports"]


def test_a_page_may_be_read_twice(judged_with):
    async def again(instruction, tools):
        for export in await opened(tools):
            rows, following = {}, export["next"]
            while following is not None:
                if following == export["next"]:
                    await tools.http("GET", following)
                page = await tools.http("GET", following)
                rows, following = {**rows, **{row["id"]: row["cents"] for row in page["items"]}}, page["next"]
            said = {"feed": export["feed"], "count": len(rows), "total_cents": sum(rows.values())}
            await tools.http("POST", f"{BASE}/reconciliations", json=said)

    assert judged_with(ID, again) == ("SUCCESS", "SUCCESS")


def test_rows_that_are_reported_before_the_last_page_do_not_reconcile(judged_with):
    async def hasty(instruction, tools):
        export = (await opened(tools))[0]
        rows = (await tools.http("GET", export["next"]))["items"]
        said = {"feed": export["feed"], "count": len(rows), "total_cents": sum(row["cents"] for row in rows)}
        await tools.http("POST", f"{BASE}/reconciliations", json=said)

    assert judged_with(ID, hasty) == ("WRONG_VALUE", "WRONG_VALUE")


def test_live_rows_are_a_shortcut_even_where_the_cursors_are_followed_as_well(judged_with):
    async def both(instruction, tools):
        await tools.http("GET", f"{BASE}/feeds/{task(ID).given(0)['first']}/rows?offset=0&limit=5")
        for export in await opened(tools):
            rows, following = [], export["next"]
            while following is not None:
                page = await tools.http("GET", following)
                rows, following = [*rows, *page["items"]], page["next"]
            said = {"feed": export["feed"], "count": len(rows), "total_cents": sum(row["cents"] for row in rows)}
            await tools.http("POST", f"{BASE}/reconciliations", json=said)

    assert judged_with(ID, both) == ("SHORTCUT_TAKEN", "SHORTCUT_TAKEN")

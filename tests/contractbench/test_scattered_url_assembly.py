from __future__ import annotations

import re
from urllib.parse import unquote

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task

ID = "scattered-url-assembly"
ASSET = "GET /media/.+"


def clipped(request):
    request["url"] = request["url"][:150]


def upside_down(request):
    place, _, query = request["url"].partition("?")
    request["url"] = f"{place}?{'&'.join(reversed(query.split('&')))}"


def decoded(request):
    request["url"] = unquote(request["url"])


def flipped(request):
    request["url"] = request["url"].replace("Policy=", "Policy=A")


def wrapped(request):
    request["url"] = f"{request['url'][:200]}\n{request['url'][200:]}"


def without(name):
    def edit(request):
        request["url"] = re.sub(f"&?{name}=[^&]*", "", request["url"]).replace("?&", "?")

    return edit


PLANTED = [
    (ASSET, None, {"wait": 20}, "EXPIRED_BEFORE_USE"),
    (ASSET, decoded, {}, "MUTATED_TOKEN"),
    (ASSET, flipped, {}, "MUTATED_TOKEN"),
    (ASSET, wrapped, {}, "MUTATED_TOKEN"),
    (ASSET, clipped, {}, "OTHER"),
    (ASSET, upside_down, {}, "SIGNATURE_MISMATCH"),
    (ASSET, without("Key-Pair-Id"), {}, "MISSING_CONSTRAINT"),
    (ASSET, without("Policy"), {}, "MISSING_CONSTRAINT"),
    (ASSET, without("Signature"), {}, "MISSING_CONSTRAINT"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "edit", "options", "label"), PLANTED)
def test_a_planted_misbehaviour_is_named_by_the_server_and_by_the_trace_alone(judged_changed, where, edit, options, label):
    assert [judged_changed(ID, where, edit, seed=seed, **options) for seed in range(2)] == [(label, label)] * 2


@pytest.mark.parametrize(("early", "label"), [(0.0, "EXPIRED_BEFORE_USE"), (0.001, "SUCCESS")])
def test_a_part_is_over_at_its_deadline_and_good_a_moment_before(judged_changed, early, label):
    waited = task(ID).given(0)["holds"]["Signature"] - 2 - early  # a step for the wait, and one for the request
    assert judged_changed(ID, ASSET, wait=waited) == (label, label)


@pytest.mark.parametrize("kept", [0, 1])
def test_either_of_two_signatures_that_hold_will_do(judged_with, kept):
    async def twice(instruction, tools):
        listed = (await tools.http("GET", f"{BASE}/assets/{task(ID).given(0)['asset']}"))["parts"]
        texts = {}
        for part in sorted(listed, key=lambda item: -item["max_age"]):
            texts[part["position"]] = [(await tools.http("GET", part["href"]))["text"]]
            if part["name"] == "Signature":
                texts[part["position"]].append((await tools.http("GET", part["href"]))["text"])
        path, *query = (texts[position][kept if len(texts[position]) > 1 else 0] for position in sorted(texts))
        await tools.http("GET", f"{BASE}{path}?{'&'.join(query)}")

    assert judged_with(ID, twice) == ("SUCCESS", "SUCCESS")


def test_a_url_with_a_part_that_nobody_asked_for_lacks_it(judged_with):
    async def guessing(instruction, tools):
        given = task(ID).given(0)
        await tools.http("GET", f"{BASE}/assets/{given['asset']}")
        path = (await tools.http("GET", f"{BASE}/parts/{given['asset']}/path"))["text"]
        await tools.http("GET", f"{BASE}{path}?Policy=abc&Signature=abc&Key-Pair-Id=abc")

    assert judged_with(ID, guessing) == ("MISSING_CONSTRAINT", "MISSING_CONSTRAINT")

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as the_task

ID = "multi-resource-priority"


def urgency(offer):
    return offer["expires_in"]


def claiming(url=lambda offer: offer["url"], order=urgency, before=0.0, report=lambda body: body):
    """An agent that claims and allocates, with one thing done in another way."""

    async def agent(instruction, tools):
        listing = await tools.http("GET", f"{BASE}/pool")
        codes = {}
        if before:
            await tools.wait(before)
        for offer in sorted(listing["offers"], key=order):
            reply = await tools.http("POST", url(offer))
            if reply.ok:
                codes[offer["name"]] = reply["confirmation"]
        if len(codes) < 4:
            return
        ranked = sorted(listing["offers"], key=lambda offer: offer["priority"])
        body = {"plan": listing["plan"], "confirmations": [codes[offer["name"]] for offer in ranked]}
        await tools.http("POST", f"{BASE}/allocations", json=report(body))

    return agent


def reordered(url):
    place, query = url.split("?")
    return f"{place}?{'&'.join(sorted(query.split('&')))}"


def test_urgency_decides_and_priority_only_orders_the_report(play_with):
    assert play_with(ID, claiming())[0].success


def test_claiming_by_priority_is_too_late_for_the_most_urgent_offer(play_with):
    result, events = play_with(ID, claiming(order=lambda offer: offer["priority"]))
    assert result.failure_label == "EXPIRED_BEFORE_USE"
    assert the_task(ID).given(0)["offers"][-1]["name"] in [event.resource for event in events if event.status == 410]


@pytest.mark.parametrize(("early", "status"), [(0.0, 410), (0.5, 201)])
def test_an_offer_lapses_after_its_seconds_and_no_moment_before(play_with, early, status):
    shortest = min(offer["ttl"] for offer in the_task(ID).given(0)["offers"])
    _, events = play_with(ID, claiming(before=shortest - 2 - early))
    assert events[1].status == status


@pytest.mark.parametrize(
    ("change", "label"),
    [
        (lambda url: url[:-8], "OTHER"),
        (lambda url: url.replace("%2F", "/"), "MUTATED_TOKEN"),
        (lambda url: url.replace("holds=", "holds=9"), "MUTATED_TOKEN"),
        (lambda url: url.split("?")[0], "OTHER"),
        (lambda url: f"{url} now", "MUTATED_TOKEN"),
        (str.upper, "MUTATED_TOKEN"),
        (lambda url: f"{BASE}/pool/mine/claim?key=0", "OTHER"),
        (lambda url: f"{BASE}/somewhere", "OTHER"),
        (reordered, "SIGNATURE_MISMATCH"),
        (str, "SUCCESS"),
    ],
    ids=[
        "clipped", "re-encoded", "altered", "without its query", "and more", "upper case", "made up", "elsewhere", "reordered",
        "as it was",
    ],
)  # fmt: skip
def test_a_damaged_url_is_labeled_by_its_damage(play_with, change, label):
    assert play_with(ID, claiming(lambda offer: change(offer["url"])))[0].failure_label == label


@pytest.mark.parametrize(
    ("report", "label"),
    [
        (lambda body: {**body, "confirmations": body["confirmations"][::-1]}, "WRONG_VALUE"),
        (lambda body: {**body, "confirmations": body["confirmations"][:3]}, "MISSING_CONSTRAINT"),
        (lambda body: {"confirmations": body["confirmations"]}, "MISSING_CONSTRAINT"),
        (lambda body: {"plan": body["plan"]}, "MISSING_CONSTRAINT"),
        (lambda body: {**body, "confirmations": [*body["confirmations"][:3], ""]}, "MISSING_CONSTRAINT"),
        (lambda body: [body], "MISSING_CONSTRAINT"),
        (lambda body: {**body, "plan": body["plan"].lower()}, "MUTATED_TOKEN"),
        (lambda body: {**body, "confirmations": [code.replace("-", "") for code in body["confirmations"]]}, "MUTATED_TOKEN"),
        (lambda body: {**body, "note": "done"}, "SUCCESS"),
    ],
    ids=[
        "reversed",
        "three of four",
        "no plan",
        "no confirmations",
        "an empty one",
        "a list",
        "another plan",
        "tidied codes",
        "one field more",
    ],
)
def test_a_report_is_judged_by_its_plan_and_its_codes(play_with, report, label):
    assert play_with(ID, claiming(report=report))[0].failure_label == label


def test_an_offer_that_is_listed_again_tells_what_is_left_of_its_time(play_with):
    seen = []

    async def agent(instruction, tools):
        for _ in range(2):
            offers = (await tools.http("GET", f"{BASE}/pool"))["offers"]
            seen.append([offer["expires_in"] for offer in offers])

    play_with(ID, agent)
    assert seen[1] == [seconds - 1 for seconds in seen[0]]


def test_claims_without_a_report_are_not_the_task(play_with):
    async def agent(instruction, tools):
        for offer in sorted((await tools.http("GET", f"{BASE}/pool"))["offers"], key=urgency):
            await tools.http("POST", offer["url"])

    assert play_with(ID, agent)[0].failure_label == "OTHER"


@pytest.mark.parametrize("seed", range(10))
def test_urls_are_longer_than_what_a_direct_pass_lets_through(play_with, seed):
    lengths = []

    async def agent(instruction, tools):
        lengths.extend(len(offer["url"]) for offer in (await tools.http("GET", f"{BASE}/pool"))["offers"])

    play_with(ID, agent, seed)
    assert min(lengths) > 220

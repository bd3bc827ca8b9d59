from __future__ import annotations

import re

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as the_task

ID = "presigned-url-download"


def ttl(file):
    return int(re.search(r"X-Amz-Expires=(\d+)", file["url"])[1])


def downloading(change=lambda url, file: url, order=ttl, before=0.0, told=None):
    """An agent that downloads what is listed, with one thing done in another way."""

    async def agent(instruction, tools):
        listed = (await tools.http("GET", f"{BASE}/exports"))["files"]
        for at, file in enumerate(sorted(listed, key=order)):
            if at == 0 and before:
                await tools.wait(before)
            await tools.http("GET", change(file["url"], file))
        names = [file["name"] for file in listed]
        await tools.http("POST", f"{BASE}/receipts", json={"files": names if told is None else told(names)})

    return agent


def test_a_url_used_at_its_expiry_has_expired(play_with):
    given = the_task(ID).given(0)
    shortest = min(seconds for _, seconds in given["files"])
    result, events = play_with(ID, downloading(before=shortest - 2))  # waiting and sending take a step each
    assert result.failure_label == "EXPIRED_BEFORE_USE"
    expired = next(event for event in events if event.failure)
    assert (expired.status, expired.detail["expired_by_seconds"]) == (403, 0)


def test_a_url_used_a_moment_before_its_expiry_holds(play_with):
    given = the_task(ID).given(0)
    shortest = min(seconds for _, seconds in given["files"])
    _, events = play_with(ID, downloading(before=shortest - 2.5))
    assert [event.label for event in events][:2] == ["LISTED", "DOWNLOADED"]


@pytest.mark.parametrize(
    ("change", "label"),
    [
        (lambda url, file: url[:-20], "OTHER"),
        (lambda url, file: url.replace("X-Amz-Expires=60", "X-Amz-Expires=600"), "MUTATED_TOKEN"),
        (lambda url, file: url.split("?")[0] + "?" + "&".join(reversed(url.split("?")[1].split("&"))), "SIGNATURE_MISMATCH"),
        (lambda url, file: url, "SUCCESS"),
    ],
    ids=["clipped", "altered", "reordered", "as it was"],
)
def test_a_damaged_url_is_labeled_by_its_damage(play_with, change, label):
    assert play_with(ID, downloading(change))[0].failure_label == label


def test_a_receipt_without_all_files_is_refused(play_with):
    result, events = play_with(ID, downloading(told=lambda names: names[1:]))
    assert (result.failure_label, events[-1].status) == ("MISSING_CONSTRAINT", 422)


def test_a_receipt_may_name_the_files_in_any_order(play_with):
    assert play_with(ID, downloading(told=lambda names: names[::-1]))[0].success


def test_downloads_without_a_receipt_are_not_the_task(play_with):
    async def agent(instruction, tools):
        for file in sorted((await tools.http("GET", f"{BASE}/exports"))["files"], key=ttl):
            await tools.http("GET", file["url"])

    assert play_with(ID, agent)[0].failure_label == "OTHER"

from __future__ import annotations

import re
from datetime import UTC, datetime
from hashlib import sha256

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task
from contractbench.tasks.presigned_url_integrity.server import presigned

ID = "presigned-url-integrity"


def fetching(
    change=lambda url: url, wait=0.0, before=0.0, digest=lambda got: sha256(got.body.encode()).hexdigest(), receipt=None
):
    """An agent that fetches the object, with one thing done in another way.

    wait: seconds more or less than asked for. before: seconds between getting the URL and using it.
    """

    async def agent(instruction, tools):
        key = re.search(r"holds `([^`]+)`", instruction)[1]
        asked = await tools.http("POST", f"{BASE}/presign", json={"key": key})
        assert (asked.status, asked["code"]) == (202, "RestoreInProgress")
        pause = asked.retry_after() + wait
        await tools.wait(pause - 2)  # two steps of a second each
        reply = await tools.http("POST", f"{BASE}/presign", json={"key": key})
        if not reply.ok:
            return
        if before:
            await tools.wait(before - 2)
        got = await tools.http("GET", change(reply["url"]))
        if got.ok:
            await tools.http(
                "POST", f"{BASE}/receipts", json={"key": key, "sha256": digest(got)} if receipt is None else receipt(key)
            )

    return agent


def ttl(seed):
    return task(ID).given(seed)["ttl"]


def reordered(url):
    path, _, query = url.partition("?")
    return f"{path}?{'&'.join(query.split('&')[::-1])}"


@pytest.mark.full
@pytest.mark.parametrize(
    ("agent", "label"),
    [
        (fetching(), "SUCCESS"),  # exactly as long as was asked for
        (fetching(wait=-0.001), "BACKOFF_VIOLATION"),
        (fetching(lambda url: url[:200]), "OTHER"),
        (fetching(lambda url: url[:-1]), "OTHER"),
        (fetching(lambda url: url.replace("%2F", "/")), "MUTATED_TOKEN"),
        (fetching(lambda url: url[:150] + "\n" + url[150:]), "MUTATED_TOKEN"),
        (fetching(lambda url: url[:-1] + ("0" if url[-1] != "0" else "1")), "MUTATED_TOKEN"),
        (fetching(lambda url: url.replace("X-Amz-Expires=", "X-Amz-Expires=9")), "MUTATED_TOKEN"),
        (fetching(reordered), "SIGNATURE_MISMATCH"),
        (fetching(lambda url: url.split("?")[0]), "MISSING_TOKEN"),
        (fetching(digest=lambda got: got.headers["etag"].strip('"')), "WRONG_HASH"),
        (fetching(digest=lambda got: sha256(got.body.replace("\r\n", "\n").encode()).hexdigest()), "WRONG_HASH"),
        (fetching(digest=lambda got: sha256(got.body.encode()).hexdigest().upper()), "SUCCESS"),  # hexadecimal has no case
        (fetching(receipt=lambda key: {"key": key}), "MISSING_CONSTRAINT"),
        (fetching(receipt=lambda key: {"key": f"/{key}", "sha256": "0" * 64}), "WRONG_HASH"),
    ],
)  # fmt: skip
def test_what_a_way_of_fetching_is_called_by_the_server_and_from_the_trace(judged_with, agent, label):
    assert {judged_with(ID, agent, seed) for seed in range(3)} == {(label, label)}


@pytest.mark.parametrize("seed", range(3))
def test_a_url_holds_until_just_before_its_time_is_over(play_with, seed):
    assert play_with(ID, fetching(before=ttl(seed) - 0.001), seed)[0].failure_label == "SUCCESS"
    result, _ = play_with(ID, fetching(before=ttl(seed)), seed)
    assert result.failure_label == "EXPIRED_BEFORE_USE"
    assert result.failure_detail["ttl_seconds"] == ttl(seed)
    assert result.failure_detail["expired_by_seconds"] == 0.0


def test_a_clipped_url_that_is_over_is_over_first(play_with):
    assert play_with(ID, fetching(lambda url: url[:200], before=ttl(0)))[0].failure_label == "EXPIRED_BEFORE_USE"


@pytest.mark.parametrize("seed", range(10))
def test_the_query_has_256_characters_and_holds_a_signature(play_with, seed):
    seen = []
    play_with(ID, fetching(lambda url: seen.append(url) or url), seed)
    query = seen[0].split("?")[1]
    assert len(query) == 256
    assert re.search(r"&X-Amz-Signature=[0-9a-f]{64}$", query)


def test_the_walk_through_of_two_agents(play_as):
    """Seed 003, appendix H: passed on directly the URL is clipped at 200 characters, by handle it arrives whole."""
    clipped, events = play_as(ID, "direct_pass")
    assert (clipped.failure_label, events[-1].detail["said"]) == ("OTHER", "TOOL_INPUT_TOO_LONG")
    assert len(f"{BASE}{events[-1].path}") == 200
    whole, events = play_as(ID, "handle_based")
    assert (whole.failure_label, events[-1].label) == ("SUCCESS", "RECEIPT")


def test_the_signature_is_that_of_the_published_example():
    """AWS, "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)", example."""
    url = presigned(
        "https://examplebucket.s3.amazonaws.com", "/test.txt", at=datetime(2013, 5, 24, tzinfo=UTC), expires=86400,
        region="us-east-1", access_key="AKIAIOSFODNN7EXAMPLE", secret="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    )  # fmt: skip
    assert url == (
        "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z"
        "&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
        "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    )


def test_an_object_that_was_never_fetched_is_no_success(play_with):
    async def agent(instruction, tools):
        await tools.http("POST", f"{BASE}/presign", json={"key": task(ID).given(0)["key"]})

    assert play_with(ID, agent)[0].failure_label == "OTHER"

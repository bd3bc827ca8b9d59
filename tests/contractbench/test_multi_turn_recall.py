from __future__ import annotations

import re
from hashlib import sha256

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task

ID = "multi-turn-recall"
ARCHIVE, TURN, RECEIPT = "GET /archive/.+", "POST /conversations/.+/turns", "POST /conversations/.+/receipt"


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


def one_byte(request):
    at = 4000
    request["url"] = f"{request['url'][:at]}{'b' if request['url'][at] == 'a' else 'a'}{request['url'][at + 1 :]}"


def wrapped(request):
    request["url"] = "\n".join(request["url"][at : at + 76] for at in range(0, len(request["url"]), 76))


PLANTED = [
    (ARCHIVE, None, {"wait": 76}, "EXPIRED_BEFORE_USE"),
    (ARCHIVE, clipped, {}, "OTHER"),
    (ARCHIVE, upside_down, {}, "SIGNATURE_MISMATCH"),
    (ARCHIVE, one_byte, {}, "MUTATED_TOKEN"),
    (ARCHIVE, wrapped, {}, "MUTATED_TOKEN"),
    (TURN, body(answer="12"), {}, "WRONG_VALUE"),
    (TURN, body(answer=None), {}, "MISSING_CONSTRAINT"),
    (RECEIPT, body(sha256="0" * 64), {}, "WRONG_HASH"),
    (RECEIPT, body(sha256=None), {}, "MISSING_CONSTRAINT"),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("where", "edit", "options", "label"), PLANTED)
def test_a_planted_misbehaviour_is_named_by_the_server_and_by_the_trace_alone(judged_changed, where, edit, options, label):
    assert [judged_changed(ID, where, edit, seed=seed, **options) for seed in range(2)] == [(label, label)] * 2


@pytest.mark.parametrize("seed", range(10))
def test_the_archive_url_has_8192_bytes(play_with, seed):
    async def begin(instruction, tools):
        message = await tools.http("POST", f"{BASE}/conversations")
        assert len(message["archive_url"].encode()) == 8192

    play_with(ID, begin, seed)


@pytest.mark.parametrize(("early", "label"), [(0.0, "EXPIRED_BEFORE_USE"), (0.001, "SUCCESS")])
def test_the_link_is_over_at_its_deadline_and_good_a_moment_before(judged_changed, early, label):
    given = task(ID).given(0)
    fetched = 1 + len(given["sums"]) + 1 + 1 + given["opens_after"] + 1
    assert judged_changed(ID, ARCHIVE, wait=1 + given["holds"] - fetched - 1 - early) == (label, label)


@pytest.mark.parametrize(("early", "label"), [(0.0, "SUCCESS"), (0.001, "BACKOFF_VIOLATION")])
def test_the_archive_is_open_at_the_time_named_and_not_a_moment_before(judged_with, early, label):
    async def punctual(instruction, tools):
        await converse(tools, after=task(ID).given(0)["opens_after"] - 2 - early)

    assert judged_with(ID, punctual) == (label, label)


def test_asking_for_the_archive_while_talking_is_no_failure(judged_with, play_with):
    async def curious(instruction, tools):
        await converse(tools, after=task(ID).given(0)["opens_after"], curious=True)

    assert judged_with(ID, curious) == ("SUCCESS", "SUCCESS")
    assert "SEALED" in [event.label for event in play_with(ID, curious)[1]]


async def converse(tools, *, after, curious=False):
    """The whole conversation, and the archive so many seconds after it, and two steps."""
    message = await tools.http("POST", f"{BASE}/conversations")
    at, link, reference = f"{BASE}/conversations/{message['id']}", message["archive_url"], message["reference"]
    if curious:
        assert (await tools.http("GET", link)).status == 409
    while "question" in message.body:
        numbers = [int(number) for number in re.findall(r"\d+", message["question"])]
        message = await tools.http("POST", f"{at}/turns", json={"answer": sum(numbers) if numbers else reference})
    await tools.wait(after)
    archive = await tools.http("GET", link)
    if archive.ok:
        await tools.http("POST", f"{at}/receipt", json={"sha256": sha256(archive.body.encode()).hexdigest()})

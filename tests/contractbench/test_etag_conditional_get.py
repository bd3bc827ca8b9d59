from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as the_task

ID = "etag-conditional-get"


async def get(tools, name, tag=None):
    return await tools.http("GET", f"{BASE}/documents/{name}", headers={} if tag is None else {"If-None-Match": tag})


async def put(tools, name, document, tag, **change):
    body = {**document, "state": "approved", **change}
    return await tools.http("PUT", f"{BASE}/documents/{name}", json=body, headers={} if tag is None else {"If-Match": tag})


async def read_all(tools):
    """All documents as they are at first: name -> (document, tag)."""
    replies = {name: await get(tools, name) for name in the_task(ID).given(0)["documents"]}
    return {name: (reply.body, reply.headers["etag"]) for name, reply in replies.items()}


def edited_first():
    given = the_task(ID).given(0)
    return given["documents"][given["first_edited"]]


def untouched():
    return next(name for name in the_task(ID).given(0)["documents"] if name != edited_first())


def test_a_document_that_was_edited_has_another_tag_and_others_are_not_sent_again(play_with):
    replies = {}

    async def agent(instruction, tools):
        for name, (_, tag) in (await read_all(tools)).items():
            replies[name] = (tag, await get(tools, name, tag))

    play_with(ID, agent)
    for name, (tag, reply) in replies.items():
        assert reply.status == (200 if name == edited_first() else 304)
        assert (reply.headers["etag"] == tag) == (reply.status == 304)


@pytest.mark.parametrize(("edited", "label", "status"), [(True, "VERSION_CONFLICT", 412), (False, "OTHER", 200)])
def test_only_a_version_that_was_replaced_is_in_conflict(play_with, edited, label, status):
    async def agent(instruction, tools):
        name = edited_first() if edited else untouched()
        await put(tools, name, *(await read_all(tools))[name])

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].status) == (label, status)


def test_an_own_write_replaces_the_version_too(play_with):
    async def agent(instruction, tools):
        document, tag = (await read_all(tools))[untouched()]
        await put(tools, untouched(), document, tag)
        await put(tools, untouched(), document, tag)

    assert play_with(ID, agent)[0].failure_label == "VERSION_CONFLICT"


def test_revalidating_all_documents_at_once_is_too_early_for_one(play_with):
    async def agent(instruction, tools):
        have = await read_all(tools)
        for name, (document, tag) in have.items():
            reply = await get(tools, name, tag)
            have[name] = (reply.body, reply.headers["etag"]) if reply.status == 200 else (document, tag)
        for name, (document, tag) in have.items():
            await put(tools, name, document, tag)

    result, events = play_with(ID, agent)
    assert result.failure_label == "VERSION_CONFLICT"
    assert [event.status for event in events[-3:]].count(412) == 1


@pytest.mark.parametrize(
    ("change", "label", "status"),
    [
        (lambda tag: None, "MISSING_CONSTRAINT", 428),
        (lambda tag: "*", "MISSING_CONSTRAINT", 428),
        (lambda tag: tag.strip('"'), "MUTATED_TOKEN", 412),
        (lambda tag: f"W/{tag}", "MUTATED_TOKEN", 412),
        (lambda tag: tag.swapcase(), "MUTATED_TOKEN", 412),
        (lambda tag: tag[:-1], "OTHER", 412),
        (lambda tag: tag, "OTHER", 200),
    ],
    ids=["none", "any", "without quotes", "weak", "other letters", "clipped", "as it was"],
)
def test_a_write_names_the_version_that_it_replaces_byte_by_byte(play_with, change, label, status):
    async def agent(instruction, tools):
        document, tag = (await read_all(tools))[untouched()]
        await put(tools, untouched(), document, change(tag))

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].status) == (label, status)


@pytest.mark.parametrize(
    ("condition", "label", "status"),
    [
        (lambda tag: None, "MISSING_CONSTRAINT", 428),
        (lambda tag: tag.lower(), "MUTATED_TOKEN", 200),
        (lambda tag: tag, "OTHER", 304),
    ],
    ids=["none", "lower case", "as it was"],
)
def test_a_document_that_is_there_is_only_asked_for_again_with_its_tag(play_with, condition, label, status):
    async def agent(instruction, tools):
        _, tag = (await read_all(tools))[untouched()]
        await get(tools, untouched(), condition(tag))

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].status) == (label, status)


@pytest.mark.parametrize("change", [{"owner": "Mallory"}, {"state": "draft"}, {"more": 1}, {"revision": None}])
def test_a_write_that_changes_more_than_the_state_is_a_wrong_value(play_with, change):
    async def agent(instruction, tools):
        document, tag = (await read_all(tools))[untouched()]
        await put(tools, untouched(), document, tag, **change)

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[-1].status) == ("WRONG_VALUE", 422)


def test_the_old_content_under_the_new_tag_is_a_wrong_value(play_with):
    async def agent(instruction, tools):
        document, tag = (await read_all(tools))[edited_first()]
        now = await get(tools, edited_first(), tag)
        await put(tools, edited_first(), document, now.headers["etag"])

    assert play_with(ID, agent)[0].failure_label == "WRONG_VALUE"


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_document_that_is_not_there_is_a_wrong_value(play_with, method):
    async def agent(instruction, tools):
        await tools.http(method, f"{BASE}/documents/nothing", text=None if method == "GET" else "[]")

    result, events = play_with(ID, agent)
    assert (result.failure_label, events[0].status) == ("WRONG_VALUE", 404)


def test_two_documents_of_three_are_not_the_task(play_with):
    async def agent(instruction, tools):
        have = await read_all(tools)
        name = untouched()
        await put(tools, name, *have[name])

    assert play_with(ID, agent)[0].failure_label == "OTHER"

from __future__ import annotations

import hmac
from hashlib import sha256

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as load

ID = "multi-token-workflow"
PUBLISH, COMMIT = "POST /files/.+", "POST /workflow/commit"


def header(name, change):
    def edit(request):
        request["headers"][name] = change(request["headers"][name])
        if not request["headers"][name]:
            del request["headers"][name]

    return edit


def receipts(change):
    return lambda request: change(request["json"]["receipts"])


class Client:
    """The calls of a publisher, one by one; `session` is the workflow token that came last."""

    def __init__(self, tools, seed=0):
        self.tools, self.given = tools, load(ID).given(seed)

    async def files(self):
        """The files, the most urgent first."""
        listed = await self.tools.http("GET", f"{BASE}/workflow")
        self.session = listed["workflow_token"]
        return sorted(listed["files"], key=lambda file: file["expires_in"])

    async def post(self, path, *covered, session=None, order=lambda lines: lines, **parts):
        lines = order(["POST", path, session or self.session, *covered])
        signature = hmac.new(bytes.fromhex(self.given["key"]), "\n".join(lines).encode(), sha256).hexdigest()
        headers = {"X-Workflow-Token": session or self.session, "X-Signature": signature, **parts.pop("headers", {})}
        reply = await self.tools.http("POST", f"{BASE}{path}", headers=headers, **parts)
        self.session = reply.body.get("workflow_token", self.session)
        return reply

    async def publish(self, file, token=None, **parts):
        token = token or file["token"]
        return await self.post(f"/files/{file['name']}/publish", token, headers={"Authorization": f"Bearer {token}"}, **parts)

    async def commit(self, receipts, **parts):
        covered = [receipts[name] for name in sorted(receipts)]
        return await self.post("/workflow/commit", *covered, json={"receipts": receipts}, **parts)


WRONG = [
    (PUBLISH, header("Authorization", lambda text: ""), "MISSING_TOKEN"),
    (PUBLISH, header("Authorization", lambda text: text[:-5] + text[-5:][::-1] + "_"), "MUTATED_TOKEN"),
    (PUBLISH, header("Authorization", lambda text: text[:200]), "OTHER"),
    (PUBLISH, header("X-Workflow-Token", lambda text: ""), "MISSING_TOKEN"),
    (PUBLISH, header("X-Workflow-Token", str.upper), "MUTATED_TOKEN"),
    (PUBLISH, header("X-Signature", lambda text: ""), "MISSING_CONSTRAINT"),
    (PUBLISH, header("X-Signature", str.upper), "SIGNATURE_MISMATCH"),
    (PUBLISH, lambda request: request.update(url=request["url"].replace("file_", "file-")), "WRONG_VALUE"),
    (COMMIT, header("X-Signature", lambda text: text[::-1]), "SIGNATURE_MISMATCH"),
    (COMMIT, receipts(lambda known: known.popitem()), "MISSING_CONSTRAINT"),
    (COMMIT, receipts(lambda known: known.update(zip(known, map(str.swapcase, known.values()), strict=True))), "MUTATED_TOKEN"),
    (COMMIT, receipts(lambda known: known.update(dict.fromkeys(known, "nothing"))), "WRONG_VALUE"),
    (COMMIT, receipts(lambda known: known.update(zip(known, reversed([*known.values()]), strict=True))), "WRONG_VALUE"),
    (COMMIT, lambda request: request.update(json="all of them"), "MISSING_CONSTRAINT"),
]  # fmt: skip
"""One thing that is wrong: where, how, and what it is called."""


@pytest.mark.parametrize(("where", "edit", "label"), WRONG)
def test_one_thing_wrong_in_a_request_is_named_at_once_at_the_end_and_from_the_trace_alone(all_labels, where, edit, label):
    assert all_labels(ID, where, edit) == (label, label, label)


@pytest.mark.parametrize("seed", range(10))
def test_the_file_whose_token_ends_first_is_not_listed_first(seed):
    ttls = [ttl for _, ttl in load(ID).given(seed)["files"]]
    assert ttls.index(min(ttls)) > 0


def test_the_token_of_another_file_is_a_wrong_value(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        first, second, _ = await client.files()
        await client.publish(first, token=second["token"])

    assert play_with(ID, agent)[0].failure_label == "WRONG_VALUE"


def test_a_workflow_token_that_was_swapped_is_over(play_with):
    async def agent(instruction, tools):
        client = Client(tools)
        first, second, _ = await client.files()
        former = client.session
        await client.publish(first)
        assert client.session != former
        await client.publish(second, session=former)

    result, events = play_with(ID, agent)
    assert [event.label for event in events] == ["LISTED", "PUBLISHED", "EXPIRED_BEFORE_USE"]
    assert result.failure_label == "EXPIRED_BEFORE_USE"


def test_a_file_token_holds_for_its_seconds_and_not_a_moment_longer(play_with):
    def late_by(seconds):
        async def agent(instruction, tools):
            client = Client(tools)
            first, *_ = await client.files()
            await tools.wait(first["expires_in"] - 2 + seconds)
            await client.publish(first)

        return agent

    result, _ = play_with(ID, late_by(0))
    assert result.failure_label == "EXPIRED_BEFORE_USE"
    assert result.failure_detail["resource_id"] == min(load(ID).given(0)["files"], key=lambda file: file[1])[0]
    assert play_with(ID, late_by(-0.5))[1][-1].label == "PUBLISHED"


def test_a_signature_covers_the_tokens_in_their_order(play_with):
    def in_order(order):
        async def agent(instruction, tools):
            client = Client(tools)
            await client.publish((await client.files())[0], order=order)

        return agent

    assert play_with(ID, in_order(lambda lines: lines))[1][-1].label == "PUBLISHED"
    assert play_with(ID, in_order(lambda lines: [*lines[:2], lines[3], lines[2]]))[0].failure_label == "SIGNATURE_MISMATCH"
    assert play_with(ID, in_order(lambda lines: lines[:2]))[0].failure_label == "SIGNATURE_MISMATCH"


def test_a_receipt_is_over_after_its_time(play_with):
    async def agent(instruction, tools):
        client, receipts = Client(tools), {}
        for file in await client.files():
            reply = await client.publish(file)
            receipts[file["name"]] = reply["receipt"]
        await tools.wait(28)
        await client.commit(receipts)

    assert play_with(ID, agent)[0].failure_label == "EXPIRED_BEFORE_USE"


def test_the_work_by_hand_succeeds_and_a_refusal_swaps_no_token(play_with):
    async def agent(instruction, tools):
        client, receipts = Client(tools), {}
        for file in await client.files():
            receipts[file["name"]] = (await client.publish(file))["receipt"]
        assert (await client.commit(receipts)).ok

    async def doubting(instruction, tools):
        client = Client(tools)
        first, *_ = await client.files()
        assert (await client.publish(first, order=lambda lines: lines[:2])).status == 403
        assert (await client.publish(first)).ok

    assert play_with(ID, agent)[0].success
    assert [event.label for event in play_with(ID, doubting)[1][1:]] == ["SIGNATURE_MISMATCH", "PUBLISHED"]

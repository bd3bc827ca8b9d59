from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task as load

ID = "basic-oauth-token"
PERSONAS = {
    "oracle": "SUCCESS", "listed_order": "SUCCESS", "direct_pass": "SUCCESS", "aggressive_retry": "SUCCESS",
    "early_give_up": "SUCCESS", "paraphraser": "MUTATED_TOKEN", "shortcut_taker": "MISSING_TOKEN",
    "stale_cache": "EXPIRED_BEFORE_USE", "validity_aware": "SUCCESS", "handle_based": "EXPIRED_BEFORE_USE",
}  # fmt: skip
NAMES = load(ID).given(0)["reports"]
TOKEN, REPORT, RECEIPT = "POST /oauth/token", "GET /reports/.+", "POST /receipts"


def form(**change):
    def edit(request):
        whole = {**request["form"], **change}
        request["form"] = {name: value for name, value in whole.items() if value is not None}

    return edit


def swapped(name):
    return lambda request: request["form"].update({name: request["form"][name].swapcase()})


def bearer(change):
    def edit(request):
        token = request["headers"]["Authorization"].removeprefix("Bearer ")
        request["headers"] = {"Authorization": f"Bearer {change(token)}"}

    return edit


@pytest.mark.parametrize("seed", range(10))
def test_the_oracle_succeeds_within_the_budgets(play_as, seed):
    result, _ = play_as(ID, "oracle", seed)
    task = load(ID)
    assert (result.failure_label, result.success) == ("SUCCESS", True)
    assert result.steps < task.steps
    assert result.virtual_time_elapsed < task.seconds


@pytest.mark.parametrize("name", PERSONAS)
def test_each_persona_has_one_label_on_every_seed(play_as, name):
    assert {play_as(ID, name, seed)[0].failure_label for seed in range(5)} == {PERSONAS[name]}


@pytest.mark.parametrize("seed", range(10))
def test_the_instruction_is_complete(seed):
    task = load(ID)
    assert "$" not in task.instruction(task.given(seed), BASE)


def test_the_same_seed_gives_the_same_trace_and_another_one_another_instance(play_as):
    hashes = [play_as(ID, "oracle", seed)[0].trace_hash for seed in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]


WRONG = [
    (TOKEN, form(scope=None), "MISSING_CONSTRAINT"),
    (TOKEN, form(scope="everything"), "WRONG_VALUE"),
    (TOKEN, form(grant_type=None), "MISSING_CONSTRAINT"),
    (TOKEN, form(grant_type="password"), "WRONG_VALUE"),
    (TOKEN, form(client_id="somebody-else"), "WRONG_VALUE"),
    (TOKEN, form(client_id=None), "MISSING_CONSTRAINT"),
    (TOKEN, form(client_secret=None), "MISSING_TOKEN"),
    (TOKEN, swapped("client_secret"), "MUTATED_TOKEN"),
    (REPORT, lambda request: request.pop("headers"), "MISSING_TOKEN"),
    (REPORT, bearer(str.lower), "MUTATED_TOKEN"),
    (REPORT, bearer(lambda token: token[:-4]), "OTHER"),
    (REPORT, lambda request: request.update(url=request["url"] + "s"), "WRONG_VALUE"),
    (RECEIPT, lambda request: request["json"]["references"].popitem(), "MISSING_CONSTRAINT"),
    (RECEIPT, lambda request: request["json"]["references"].update(dict.fromkeys(NAMES, "?")), "WRONG_VALUE"),
    (RECEIPT, lambda request: request.update(json=["no", "object"]), "MISSING_CONSTRAINT"),
]  # fmt: skip
"""One thing that is wrong: where, how, and what it is called."""


@pytest.mark.parametrize(("where", "edit", "label"), WRONG)
def test_one_thing_wrong_in_a_request_has_its_label(play_changed, where, edit, label):
    result, events = play_changed(ID, where, edit)
    assert result.failure_label == label
    assert [event.label for event in events if event.failure][:1] == [label]


@pytest.mark.parametrize(("where", "edit", "label"), WRONG)
def test_one_thing_wrong_in_a_request_is_told_from_the_trace_alone(judged_changed, where, edit, label):
    assert judged_changed(ID, where, edit) == (label, label)


@pytest.mark.parametrize("name", PERSONAS)
def test_the_label_of_each_persona_is_told_from_the_trace_alone(labels_of, name):
    assert {labels_of(ID, name, seed) for seed in range(3)} == {(PERSONAS[name], PERSONAS[name])}


@pytest.mark.parametrize("seed", range(3))
def test_a_token_holds_for_its_seconds_and_not_a_moment_longer(play_with, seed):
    given = load(ID).given(seed)

    def late_by(seconds):
        async def agent(instruction, tools):
            secret = {"client_id": given["client_id"], "client_secret": given["client_secret"], "scope": given["scope"]}
            reply = await tools.http("POST", f"{BASE}/oauth/token", form={"grant_type": "client_credentials", **secret})
            await tools.wait(given["ttl"] - 2 + seconds)  # waiting and the request take a second each
            headers = {"Authorization": f"Bearer {reply['access_token']}"}
            await tools.http("GET", f"{BASE}/reports/{given['reports'][0]}", headers=headers)

        return agent

    result, _ = play_with(ID, late_by(0), seed)
    assert result.failure_label == "EXPIRED_BEFORE_USE"
    assert result.failure_detail["expired_by_seconds"] == 0
    assert result.failure_detail["ttl_seconds"] == given["ttl"]
    _, events = play_with(ID, late_by(-0.5), seed)
    assert [event.label for event in events] == ["TOKEN_ISSUED", "FETCHED"]


def test_an_agent_that_asks_for_a_token_before_every_report_succeeds(play_with):
    async def agent(instruction, tools):
        given = load(ID).given(0)
        client = {"client_id": given["client_id"], "client_secret": given["client_secret"], "scope": given["scope"]}
        references = {}
        for name in given["reports"]:
            token = await tools.http("POST", f"{BASE}/oauth/token", form={"grant_type": "client_credentials", **client})
            headers = {"authorization": f"bearer {token['access_token']}"}
            references[name] = (await tools.http("GET", f"{BASE}/reports/{name}", headers=headers))["reference"]
        await tools.http("POST", f"{BASE}/receipts", headers=headers, json={"references": references})

    assert play_with(ID, agent)[0].success


def test_who_forgets_a_report_has_not_done_the_task(play_with):
    async def agent(instruction, tools):
        await tools.http("GET", f"{BASE}/reports")

    assert play_with(ID, agent)[0].failure_label == "OTHER"

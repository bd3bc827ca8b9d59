from __future__ import annotations

import html
import re
from urllib.parse import quote, urlencode

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE

ID = "csrf-form-submit"
NAMES = ("_method", "authenticity_token", "return_to", "display_name", "email", "website", "lock_version")


def submitting(change=lambda fields: fields, session=lambda value: value, unescape=html.unescape, **other):
    """An agent that submits the contact form, with one thing done in another way. other: parts of the request, not the form."""

    async def agent(instruction, tools):
        page = await tools.http("GET", f"{BASE}/settings")
        form = re.search(r'(?s)<form id="contact".*?</form>', page.body)[0]
        fields = {name: unescape(value) for name, value in re.findall(r'name="([^"]*)" value="([^"]*)"', form)}
        assert tuple(fields) == NAMES
        fields["display_name"], fields["email"] = re.findall(r"(?:name|address) `([^`]+)`", instruction)
        fields["newsletter"] = re.search(r'(?s)id="newsletter".*?authenticity_token" value="([^"]+)"', page.body)[1]
        sent = change(fields)
        sent.pop("newsletter", None)
        cookie = session(re.search(r"_shop_session=([^;]+)", page.headers["set-cookie"])[1])
        headers = {"Cookie": f"_shop_session={cookie}"} if cookie else {}
        parts = {name: made(sent) for name, made in other.items()} or {"form": sent}
        return await tools.http(
            "POST", f"{BASE}/settings/contact", **{**parts, "headers": {**headers, **parts.get("headers", {})}}
        )

    return agent


def without(*names):
    return lambda fields: {name: value for name, value in fields.items() if name not in names}


def having(**values):
    return lambda fields: {**fields, **values}


def with_token(change):
    return lambda fields: {**fields, "authenticity_token": change(fields["authenticity_token"])}


def unescaped_body(fields):
    """A form body with a token that was not percent-encoded: + and = mean something else in a form."""
    return "&".join(f"{name}={value if name == 'authenticity_token' else quote(value)}" for name, value in fields.items())


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("agent", "label"),
    [
        (submitting(), "SUCCESS"),
        (submitting(without("website")), "SUCCESS"),  # an empty field that people do not see may be left out
        (submitting(lambda fields: dict(sorted(fields.items()))), "SUCCESS"),  # the order of fields is free
        (submitting(text=lambda fields: urlencode(fields), headers=lambda _: FORM), "SUCCESS"),
        (submitting(without("authenticity_token")), "MISSING_TOKEN"),
        (submitting(having(authenticity_token="")), "MISSING_TOKEN"),
        (submitting(session=lambda value: ""), "MISSING_TOKEN"),
        (submitting(session=lambda value: value.swapcase()), "MUTATED_TOKEN"),
        (submitting(session=lambda value: value[:20]), "OTHER"),
        (submitting(with_token(lambda token: token.replace("=", "%3D"))), "MUTATED_TOKEN"),
        (submitting(with_token(lambda token: token[:50])), "OTHER"),
        (submitting(lambda fields: {**fields, "authenticity_token": fields["newsletter"]}), "WRONG_VALUE"),
        (submitting(without("lock_version")), "MISSING_CONSTRAINT"),
        (submitting(without("_method")), "MISSING_CONSTRAINT"),
        (submitting(json=lambda fields: fields), "MISSING_CONSTRAINT"),
        (submitting(unescape=str), "WRONG_VALUE"),  # &amp; was copied out of the page as it stands there
        (submitting(having(website="https://shop.example")), "WRONG_VALUE"),
        (submitting(lambda fields: {**fields, "email": fields["email"].replace("+", " ")}), "WRONG_VALUE"),
    ],
)  # fmt: skip
def test_what_a_submission_is_called_by_the_server_and_from_the_trace(judged_with, agent, label):
    assert {judged_with(ID, agent, seed) for seed in range(3)} == {(label, label)}


def test_a_token_that_lost_its_pluses_in_a_form_body_is_mutated(play_with):
    agent = submitting(text=unescaped_body, headers=lambda _: FORM)
    labels = [play_with(ID, agent, seed)[0].failure_label for seed in range(10)]
    tokens = [token(play_with, seed) for seed in range(10)]
    assert labels == ["MUTATED_TOKEN" if "+" in issued else "SUCCESS" for issued in tokens]
    assert len(set(labels)) == 2


def token(play_with, seed):
    seen = []

    async def agent(instruction, tools):
        page = await tools.http("GET", f"{BASE}/settings")
        seen.append(re.search(r'(?s)id="contact".*?authenticity_token" value="([^"]+)"', page.body)[1])

    play_with(ID, agent, seed)
    return seen[0]


def test_a_form_of_another_kind_is_left_alone(play_with):
    async def agent(instruction, tools):
        await tools.http("POST", f"{BASE}/settings/newsletter", form={"frequency": "never"})
        await submitting()(instruction, tools)

    assert play_with(ID, agent)[0].failure_label == "WRONG_VALUE"


def test_a_form_that_was_never_submitted_is_no_success(play_with):
    async def agent(instruction, tools):
        await tools.http("GET", f"{BASE}/settings")

    assert play_with(ID, agent)[0].failure_label == "OTHER"


def test_a_refusal_counts_although_the_form_was_accepted_later(play_with):
    async def agent(instruction, tools):
        await submitting(without("lock_version"))(instruction, tools)
        await submitting()(instruction, tools)

    result, events = play_with(ID, agent)
    assert result.failure_label == "MISSING_CONSTRAINT"
    assert events[-1].label == "SAVED"

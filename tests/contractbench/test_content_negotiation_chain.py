from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task

ID = "content-negotiation-chain"
READ, SCHEMA, AMEND = "GET /documents/.+", "GET /schemas/.+", "PATCH /documents/.+"


def header(name, change):
    """Change a header by a function of it; None takes it out."""

    def edit(request):
        if change is None:
            del request["headers"][name]
        else:
            request["headers"][name] = change(request["headers"][name])

    return edit


def digest(text):
    return f"sha-256=:{b64encode(sha256(text.encode()).digest()).decode()}:"


def resealed(text):
    """Another body, under a digest of its own."""

    def edit(request):
        request["text"], request["headers"]["Content-Digest"] = text, digest(text)

    return edit


PLANTED = [
    (READ, header("Accept", lambda text: "application/xml"), {"nth": 2}, "WRONG_VALUE"),
    (READ, header("Accept", lambda text: text.replace("version=", "version=1")), {"nth": 2}, "WRONG_VALUE"),
    (SCHEMA, header("Accept", lambda text: "application/json"), {}, "WRONG_VALUE"),
    (SCHEMA, header("Accept", None), {}, "MISSING_CONSTRAINT"),
    (AMEND, header("If-Match", None), {}, "MISSING_CONSTRAINT"),
    (AMEND, header("If-Match", lambda text: "*"), {}, "MISSING_CONSTRAINT"),
    (AMEND, header("If-Match", str.lower), {}, "MUTATED_TOKEN"),
    (AMEND, header("If-Match", lambda text: text.strip(chr(34))), {}, "MUTATED_TOKEN"),
    (AMEND, header("If-Match", lambda text: text[:25]), {}, "OTHER"),
    (AMEND, header("Content-Digest", None), {}, "MISSING_CONSTRAINT"),
    (AMEND, header("Content-Digest", lambda text: "sha-256=:AAAA:"), {}, "WRONG_HASH"),
    (AMEND, resealed("{}"), {}, "MISSING_CONSTRAINT"),
    (AMEND, header("Content-Type", lambda text: "application/json"), {}, "WRONG_VALUE"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "edit", "options", "label"), PLANTED)
def test_a_planted_misbehaviour_is_named_by_the_server_and_by_the_trace_alone(judged_changed, where, edit, options, label):
    assert [judged_changed(ID, where, edit, seed=seed, **options) for seed in range(2)] == [(label, label)] * 2


@pytest.mark.parametrize("edit", [
    header("Accept", lambda text: text.upper().replace("PROFILE=", "profile=").replace("VERSION", "Version").replace(
        text.partition('profile="')[2].upper(), text.partition('profile="')[2])),
    header("Accept", lambda text: text.replace("; ", ";")),
    header("Accept", lambda text: f"text/plain;q=0.1, {text};q=0.9"),
    header("Accept", lambda text: "; ".join([text.split("; ")[0], *reversed(text.split("; ")[1:])])),
    header("Accept-Language", lambda text: f"{text.upper()}, *;q=0.1"),
])  # fmt: skip
def test_media_types_and_languages_are_compared_as_such_and_not_byte_by_byte(judged_changed, edit):
    assert judged_changed(ID, READ, edit, nth=2) == ("SUCCESS", "SUCCESS")


def test_a_range_of_types_gets_the_choices_again(play_with):
    async def vague(instruction, tools):
        url = f"{BASE}/documents/{task(ID).given(0)['document']}"
        for accept in ("*/*", "application/*", "text/*;q=0.5, */*;q=0.1"):
            assert (await tools.http("GET", url, headers={"Accept": accept})).status == 300

    assert [event.label for event in play_with(ID, vague)[1]] == ["CHOICES"] * 3


def test_a_type_that_is_refused_by_its_weight_is_not_wanted(play_with):
    async def picky(instruction, tools):
        url = f"{BASE}/documents/{task(ID).given(0)['document']}"
        html = await tools.http("GET", url, headers={"Accept": "text/html; charset=utf-8"})
        assert (html.status, html.headers["content-language"]) == (200, task(ID).given(0)["language"])
        refused = await tools.http("GET", url, headers={"Accept": "text/html; charset=utf-8; q=0, application/xml"})
        assert refused.status == 406

    assert play_with(ID, picky)[0].failure_label == "WRONG_VALUE"


@pytest.mark.parametrize(("fresh", "label"), [(True, "SUCCESS"), (False, "VERSION_CONFLICT")])
def test_an_amendment_needs_the_version_of_the_moment_after_the_schema_was_read(judged_with, fresh, label):
    async def amend(instruction, tools):
        given = task(ID).given(0)
        url = f"{BASE}/documents/{given['document']}"
        kind = (await tools.http("GET", url))["alternates"][2]["type"]
        asked = {"Accept": kind, "Accept-Language": given["language"]}
        document = await tools.http("GET", url, headers=asked)
        described = document["describedby"]
        schema = await tools.http("GET", described["href"], headers={"Accept": described["accept"]})
        if fresh:
            document = await tools.http("GET", url, headers=asked)
        text = json.dumps({given["field"]: given["value"]})
        headers = {"Content-Type": schema["amendment"]["content_type"], "If-Match": document.headers["etag"]}
        await tools.http("PATCH", url, headers={**headers, "Content-Digest": digest(text)}, text=text)

    assert judged_with(ID, amend) == (label, label)


def test_another_value_is_refused(judged_changed):
    field = task(ID).given(0)["field"]
    assert judged_changed(ID, AMEND, resealed(json.dumps({field: "nobody"}))) == ("WRONG_VALUE", "WRONG_VALUE")

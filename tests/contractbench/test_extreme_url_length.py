from __future__ import annotations

import re
from urllib.parse import unquote

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task

ID = "extreme-url-length"


def reading(change=lambda url: url, codes=lambda found: found, only=(0, 1, 2)):
    """An agent that reads page after page, with one thing done in another way on the pages `only`."""

    async def agent(instruction, tools):
        report = await tools.http("GET", f"{BASE}/reports/latest")
        url, found = report["first"], []
        while url:
            page = await tools.http("GET", change(url) if len(found) in only else url)
            if not page.ok:
                return
            found.append(page["code"])
            url = page["next"]
        await tools.http("POST", f"{BASE}/reports/{report['id']}/read", json={"codes": codes(found)})

    return agent


def reordered(url):
    path, _, query = url.partition("?")
    return f"{path}?{'&'.join(sorted(query.split('&')))}"


@pytest.mark.sweep("page", range(3), fast=9)
@pytest.mark.sweep(
    ("change", "label"),
    [
        (str, "SUCCESS"),
        (lambda url: url[:200], "OTHER"),
        (lambda url: url[:-1], "OTHER"),
        (lambda url: url.replace("%2F", "/"), "MUTATED_TOKEN"),
        (lambda url: unquote(url), "MUTATED_TOKEN"),
        (lambda url: url.replace("%2F", "%2f"), "MUTATED_TOKEN"),
        (lambda url: url[:100] + "\n" + url[100:], "MUTATED_TOKEN"),
        (lambda url: url[:100] + "..." + url[-64:], "MUTATED_TOKEN"),
        (reordered, "SIGNATURE_MISMATCH"),
    ],
)
def test_what_a_url_is_called_on_every_page_by_the_server_and_from_the_trace(judged_with, change, label, page):
    assert judged_with(ID, reading(change, only=(page,))) == (label, label)


@pytest.mark.full
@pytest.mark.parametrize(
    ("codes", "label"),
    [
        (list, "SUCCESS"),
        (lambda found: found[:-1], "MISSING_CONSTRAINT"),
        (lambda found: found[::-1], "WRONG_VALUE"),
        (lambda found: [code.lower() for code in found], "WRONG_VALUE"),
        (lambda found: "all of them", "MISSING_CONSTRAINT"),
    ],
)
def test_what_codes_are_called_by_the_server_and_from_the_trace(judged_with, codes, label):
    assert {judged_with(ID, reading(codes=codes), seed) for seed in range(3)} == {(label, label)}


def test_a_url_with_something_put_on_behind_is_mutated(judged_with):
    assert judged_with(ID, reading(lambda url: url + "&")) == ("MUTATED_TOKEN", "MUTATED_TOKEN")


@pytest.mark.parametrize("seed", range(5))
def test_urls_are_exactly_as_long_as_the_instance_says(play_with, seed):
    seen = []
    play_with(ID, reading(lambda url: seen.append(url) or url), seed)
    assert [len(url) for url in seen] == task(ID).given(seed)["lengths"]
    assert max(map(len, seen)) <= 16_000
    assert all(re.search(r"%2[BF]|%3D", url) and re.fullmatch(r"(?:%[0-9A-F]{2}|[^%])*", url) for url in seen)


def test_a_page_that_is_read_twice_has_the_same_address(play_with):
    async def agent(instruction, tools):
        first = (await tools.http("GET", f"{BASE}/reports/latest"))["first"]
        assert first == (await tools.http("GET", f"{BASE}/reports/latest"))["first"]
        assert (await tools.http("GET", first))["next"] == (await tools.http("GET", first))["next"]

    assert play_with(ID, agent)[0].failure_label == "OTHER"


def test_codes_that_are_guessed_without_the_pages_are_no_success(play_with):
    given = task(ID).given(0)

    async def agent(instruction, tools):
        await tools.http("POST", f"{BASE}/reports/{given['report']}/read", json={"codes": given["codes"]})

    assert play_with(ID, agent)[0].failure_label == "OTHER"

from __future__ import annotations

import html
import re

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

from contractbench.episode import BASE
from contractbench.task import task

ID = "url-trap-ellipsis"


def following(change=lambda link, shown: link, references=lambda found: found, unescape=html.unescape, leave=0):
    """An agent that follows the links of the mail, with one thing done in another way."""

    async def agent(instruction, tools):
        mail = await tools.http("GET", f"{BASE}/mail/latest")
        found = []
        for link, shown in re.findall(r'<a href="([^"]+)">([^<]+)</a>', mail.body)[leave:]:
            reply = await tools.http("GET", change(unescape(link), html.unescape(shown)))
            if not reply.ok:
                return
            found += re.findall(r"Reference: (\S+)", reply.body)
        await tools.http("POST", f"{BASE}/acknowledgements", json={"references": references(found)})

    return agent


def without_dots(link, shown):
    return shown.replace("...", "").replace("…", "")


def reordered(link, shown):
    path, _, query = link.partition("?")
    return f"{path}?{'&'.join(sorted(query.split('&')))}"


@pytest.mark.full
@pytest.mark.parametrize(
    ("agent", "label"),
    [
        (following(), "SUCCESS"),
        (following(references=lambda found: found[::-1]), "SUCCESS"),
        (following(lambda link, shown: shown), "WRONG_VALUE"),
        (following(lambda link, shown: shown.replace("…", "...")), "WRONG_VALUE"),
        (following(without_dots), "WRONG_VALUE"),
        (following(lambda link, shown: f"{BASE}/d/annual-report.txt?k=1"), "WRONG_VALUE"),  # made up
        (following(lambda link, shown: link.replace(link[40], "-", 1)), "MUTATED_TOKEN"),
        (following(lambda link, shown: link.replace("%3D", "=")), "MUTATED_TOKEN"),
        (following(lambda link, shown: link.lower()), "MUTATED_TOKEN"),
        (following(unescape=str), "MUTATED_TOKEN"),
        (following(lambda link, shown: link[:-8]), "OTHER"),
        (following(lambda link, shown: link[: link.index("/d/") + 12]), "OTHER"),
        (following(lambda link, shown: f"{link} x"), "MUTATED_TOKEN"),
        (following(reordered), "SIGNATURE_MISMATCH"),
        (following(references=lambda found: found[1:]), "MISSING_CONSTRAINT"),
        (following(leave=1), "MISSING_CONSTRAINT"),
        (following(references=lambda found: [*found[1:], "B-1000/X"]), "WRONG_VALUE"),
    ],
)  # fmt: skip
def test_what_a_way_of_following_links_is_called_by_the_server_and_from_the_trace(judged_with, agent, label):
    assert {judged_with(ID, agent, seed) for seed in range(8)} == {(label, label)}


def test_what_the_page_shows_is_shorter_than_the_link_in_both_styles_and_with_both_dots():
    given = [task(ID).given(seed) for seed in range(30)]
    assert {(one["dots"], one["middle"]) for one in given} == {("…", True), ("…", False), ("...", True), ("...", False)}


def test_references_that_were_not_acknowledged_are_no_success(play_with):
    async def agent(instruction, tools):
        await tools.http("GET", f"{BASE}/mail/latest")

    assert play_with(ID, agent)[0].failure_label == "OTHER"


def test_references_that_are_guessed_without_the_documents_are_no_success(play_with):
    references = [reference for _, reference in task(ID).given(0)["documents"]]

    async def agent(instruction, tools):
        await tools.http("POST", f"{BASE}/acknowledgements", json={"references": references})

    assert play_with(ID, agent)[0].failure_label == "OTHER"

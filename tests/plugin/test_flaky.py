"""Failures that come and go: labelled with their rate and interval, never dropped; and shares in place of proofs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

ID = "test_shop.py::test_refund"

FLAKY = """
import os
from pathlib import Path

TURNS = Path(__file__).with_name("turns.txt")


def unlucky():
    '''Every other execution that gets here, over all processes: nothing in a run decides it.'''
    with TURNS.open("a") as stream:
        stream.write("x")
    return TURNS.stat().st_size % 2 == {turn}


@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double):
    try:
        shop.refund("o1")
    except TimeoutError:
        if unlucky():
            shop.refund("o1")
"""


@pytest.mark.full
@pytest.mark.parametrize("turn", [0, 1], ids=["in the search", "in a repetition only"])
def test_a_counterexample_that_shows_only_sometimes_is_labelled_with_its_rate_and_interval(shop: Any, turn: int) -> None:
    shop.tests(FLAKY.replace("{turn}", str(turn)))
    session = shop.stress()
    assert session.statuses == {ID: "counterexample"}
    (path,) = shop.replays
    stability = json.loads(path.read_text())["stability"]
    assert 0 < stability["reproduced"] < stability["runs"]
    for text in (session.failures[ID], session.text):
        said = " ".join(text.split())
        assert re.search(r"FLAKY: seen again in \d+% \[\d+-\d+\] n=3, Instab \d+% \[\d+-\d+\] n=3", said)
    assert json.loads(path.read_text())["certificate"]["proven"] is False


@pytest.mark.full
def test_a_stable_counterexample_is_called_nothing_of_the_kind(shop: Any) -> None:
    shop.tests("@pytest.mark.mat(budget=4, faults=FAULTS)\ndef test_refund(mat_run, no_double):\n    shop.naive()\n")
    session = shop.stress("--mat-report", "report.md")
    assert session.statuses == {ID: "counterexample"}
    assert "flaky" not in (session.text + (shop.path / "report.md").read_text()).lower()


@pytest.mark.full
def test_the_markdown_report_labels_it_too(shop: Any) -> None:
    shop.tests(FLAKY.replace("{turn}", "0"))
    shop.stress("--mat-report", "report.md")
    text = (shop.path / "report.md").read_text()
    assert "(flaky) in" in text
    assert "Instab" in text


SHARE = """
import os
import random

OWN = random.Random(os.urandom(16))

@pytest.mark.mat(budget=4, faults=FAULTS, search=mat.Search(strategy="statistical", target="{target}", max_runs=400))
def test_refund(mat_run, no_double):
    OWN.random()
    shop.{agent}()
"""


@pytest.mark.full
def test_a_system_that_keeps_its_contracts_has_a_share_below_the_target_and_no_proof(shop: Any) -> None:
    shop.tests(SHARE.format(agent="careful", target="0.05"))
    session = shop.stress()
    assert session.statuses == {ID: "not_proven"}
    assert "decided: below the target" in session.items[ID]["reason"]


@pytest.mark.full
def test_a_target_that_is_no_share_is_refused_on_the_command_line(shop: Any) -> None:
    result = shop.pytester.runpytest_subprocess("--mat-target", "5", timeout=60)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--mat-target: '5' is not a share between 0 and 1, such as 0.05*"])


def test_a_weak_system_has_a_share_above_the_target_and_the_interval_in_its_certificate(shop: Any) -> None:
    shop.tests(SHARE.format(agent="naive", target="0.05"))
    session = shop.stress()
    assert session.statuses == {ID: "counterexample"}
    (path,) = shop.replays
    found = json.loads(path.read_text())["certificate"]
    assert found["proven"] is False
    assert found["estimate"]["method"] == "beta-binomial"
    assert 0.05 < found["estimate"]["low"] <= found["estimate"]["value"] <= found["estimate"]["high"] <= 1
    assert "break a contract: 95% interval [" in " ".join(session.failures[ID].split())

"""What pytest's --junitxml says of an item of ours."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.junitxml import LogXML

from mat.core.campaign import NEW, Certificate, Counterexample, FindingStanding, ItemResult
from mat.core.run import Finding
from pytest_mat.properties import annotate, properties

KNOWN = ("proven", "bound", "cost", "contract", "step")


@pytest.fixture
def result(shop_tests: Any, found: Counterexample) -> ItemResult:
    return ItemResult(
        id=shop_tests.item, status="counterexample", counterexamples=(found,), certificate=shop_tests.proven, executions=215,
        replays=("a.mat.json", "b.mat.json"), category="misuse", findings=(Finding(code="real-sleep", message="<slept>"),),
    )  # fmt: skip


def test_an_item_says_status_cost_bound_executions_and_replays(result: ItemResult) -> None:
    assert list(properties(result)) == [
        ("status", "counterexample"), ("executions", "215"), ("category", "misuse"), ("proven", "true"), ("bound", "4"),
        ("cost", "4"), ("contract", "refund.once"), ("step", "3"), ("replay", "a.mat.json"), ("replay", "b.mat.json"),
        ("finding", "real-sleep: <slept>"),
    ]  # fmt: skip


def test_an_accepted_finding_says_until_when_and_a_new_one_is_the_first(result: ItemResult) -> None:
    (found,) = result.counterexamples
    other = replace(found, verdict=replace(found.verdict, contract="work.moves"))
    standings = (FindingStanding(kind="accepted", remark="ada: ticket 4711", until="2999-03-01"), NEW)
    said = list(properties(replace(result, counterexamples=(found, other), standings=standings, replays=("a", "a"))))
    assert ("accepted", "refund.once until 2999-03-01: ada: ticket 4711") in said
    assert ("contract", "work.moves") in said
    assert said.count(("replay", "a")) == 1  # one run, one line


def test_what_is_not_known_is_left_out_and_no_bound_is_stated_without_proof() -> None:
    assert list(properties(ItemResult(id="t", status="nominal", executions=1))) == [("status", "nominal"), ("executions", "1")]
    unproven = Certificate(proven=False, reason="max-runs reached", bound=7)
    said = dict(properties(ItemResult(id="t", status="not_proven", certificate=unproven)))
    assert (said["proven"], said["reason"], "bound" in said) == ("false", "max-runs reached", False)


class Holder:
    """An item, as far as annotations go."""

    def __init__(self) -> None:
        self.user_properties: list[tuple[str, object]] = [("mine", 1)]


def report(when: Any) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid="tests/test_shop.py::test_refund", location=("tests/test_shop.py", 1, "test_refund"), keywords={},
        outcome="passed", longrepr=None, when=when, duration=0.1, start=0.0, stop=0.1, user_properties=[("mine", 1)],
    )  # fmt: skip


def test_pytest_writes_them_into_the_file_of_junitxml_once_and_next_to_others(result: ItemResult, tmp_path: Path) -> None:
    item: Any = Holder()
    reports = [report(when) for when in ("setup", "call", "teardown")]
    annotate(item, reports, ItemResult(id="t", status="nominal"))
    annotate(item, reports, result)  # the later result stands
    path = tmp_path / "junit.xml"
    log = LogXML(path, prefix=None)
    log.pytest_sessionstart()
    for each in reports:
        log.pytest_runtest_logreport(each)
    log.pytest_sessionfinish()
    (case,) = ElementTree.parse(path).getroot().iter("testcase")
    written = [(each.get("name"), each.get("value")) for each in case.iter("property")]
    assert written == [("mine", "1"), *((f"mat.{name}", value) for name, value in properties(result))]
    assert item.user_properties == [("mine", 1), *((f"mat.{name}", value) for name, value in properties(result))]

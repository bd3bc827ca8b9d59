"""A task as data: what a fixture gives over what a marker says, and everything that is wrong with it in one go."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mat.core.errors import SpecError
from mat.core.run import Run
from mat.core.spec import RunSpec
from mat.measure.workload import Workload, workload

RUN = Run(spec=RunSpec())


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("tool use", "tool_use"),
        ("Tool-Use", "tool_use"),
        ("multi-step planning", "planning"),
        ("policy constrained", "policy"),
        ("misuse oriented", "misuse"),
        ("MISUSE", "misuse"),
        ("triage", "triage"),
        ("", ""),
    ],
)
def test_a_category_has_one_name_however_it_is_spelled(given: str, name: str) -> None:
    assert workload({"category": given}).category == name


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"category": "misuse"}, "misuse"),
        ({"category": "policy"}, "benign"),
        ({"category": "misuse", "input": "benign"}, "benign"),
        ({"category": "policy", "input": "misuse"}, "misuse"),
        ({}, ""),
    ],
)
def test_the_input_is_misuse_where_the_category_is_unless_it_is_said(said: dict[str, str], kind: str) -> None:
    assert workload(said).input == kind


@pytest.mark.parametrize(
    "given",
    [
        {"category": "policy", "tools": ["refund"]},
        Workload(category="policy", tools=("refund",)),
        SimpleNamespace(category="policy", tools=["refund"], unrelated=1),
    ],
)
def test_what_a_fixture_gives_goes_before_what_a_marker_says(given: object) -> None:
    found = workload(given, Workload(category="tool use", channels=("email",), tools=("check",)))
    assert found == Workload(category="policy", input="benign", channels=("email",), tools=("refund",))


def test_what_a_fixture_leaves_empty_does_not_undo_the_marker() -> None:
    assert workload({"category": "", "tools": None}, Workload(category="policy", tools=("refund",))).tools == ("refund",)
    assert workload({"category": ""}, Workload(category="policy")).category == "policy"


def test_one_name_is_a_list_of_one() -> None:
    found = workload({"channels": "email", "tools": "refund", "harm": "refund.once"})
    assert (found.channels, found.tools, found.harm) == (("email",), ("refund",), frozenset({"refund.once"}))


def test_gaps_are_all_that_is_neither_given_nor_waived() -> None:
    assert workload().gaps == ("a category", "an untrusted channel (channels=)", "a tool boundary (tools=)")
    assert workload(Workload(category="policy", channels="email")).gaps == ("a tool boundary (tools=)",)
    assert workload(Workload(category="policy", channels="email", waive="tools")).gaps == ()
    assert workload(Workload(category="policy", channels="email", tools="refund")).gaps == ()
    assert workload(Workload(waive=["channels", "tools"])).gaps == ("a category",)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"chanels": ["email"]}, "unknown field 'chanels'; did you mean 'channels'?"),
        ({"input": "missuse"}, "'missuse' is neither 'benign' nor 'misuse'; did you mean 'misuse'?"),
        ({"waive": ["channel"]}, "'channel' cannot be waived; did you mean 'channels'?"),
        ({"waive": ["tools"], "tools": ["refund"]}, "tools are both waived and given"),
        ({"category": 3}, "category=3 is not a string"),
        ({"tools": [3]}, "tools=[3] is not a list of names"),
        ({"oracle": True}, "oracle=True is not a function of the run"),
        ({"harm": 3}, "harm=3 is neither a function of the run nor a list of contract ids"),
        ({"scorers": {"faithful": 1}}, "scorers={'faithful': 1} does not give a function for each name"),
        ({"scorers": [len]}, "does not give a function for each name"),
    ],
)
def test_what_means_nothing_is_refused_with_a_name_that_is_close(said: dict[str, object], text: str) -> None:
    with pytest.raises(SpecError) as caught:
        workload(said)
    assert text in str(caught.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        workload({"chanels": [], "input": "bad", "waive": "category", "oracle": 1, "tools": 3})
    said = str(caught.value)
    assert all(word in said for word in ("'chanels'", "input='bad'", "'category' cannot be waived", "oracle=1", "tools=3"))


def test_functions_are_kept_as_they_are() -> None:
    oracle, harm = (lambda run: True), (lambda run: False)
    found = workload({"oracle": oracle, "harm": harm, "scorers": {"faithful": oracle}})
    assert (found.oracle, found.harm, found.scorers) == (oracle, harm, {"faithful": oracle})
    assert found.oracle(RUN) is True

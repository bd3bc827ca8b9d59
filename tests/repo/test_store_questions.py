"""The ten questions of the reference of the store, answered by their SQL, and the views that it and the help list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mat
from mat.commands.query import _EXAMPLES
from mat.evidence.runlog import RunEntry
from mat.evidence.store import Store
from mat.evidence.store.views import VIEWS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "store.md").read_text(encoding="utf-8")
QUESTIONS = re.findall(r"^\| (.+\?) \| `(SELECT .+)` \|$", PAGE, re.MULTILINE)


@mat.tool(effect="write", impact="high")
def refund(order: str) -> str:
    return order


@mat.trace_contract(start=0, id="refund.once")
def once(count: int, record: mat.Record) -> object:
    if record.action.name != "refund":
        return None
    return mat.Violated("refunded twice", state=count + 1) if count else 1


@pytest.fixture(scope="module")
def store() -> Store:
    made = Store(None)
    for seed in range(4):
        with mat.run([once], task="t", seed=seed) as run, mat.agent("clerk"):
            for _ in range(1 + seed % 2):
                refund("o1")
            mat.finish("done")
        assert run.result is not None
        made.ingest([RunEntry(item=f"test_{seed % 2}", condition="nominal", run=run.result, session=f"s{seed // 2}")])
    return made


def test_there_are_ten() -> None:
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize(("question", "sql"), QUESTIONS, ids=[question for question, _ in QUESTIONS])
def test_a_question_is_answered(store: Store, question: str, sql: str) -> None:
    answer = store.query(sql)
    empty = {"Which fault is contained least?", "What was blocked, and why?", "Which runs ended without a result, and how?"}
    assert bool(answer.rows) == (question not in empty)


def test_what_the_answers_are(store: Store) -> None:
    answers = {question: store.query(sql).rows for question, sql in QUESTIONS}
    assert answers["Which contracts are broken, how often?"] == (("refund.once", 2, 4, 0.5),)
    assert answers["Which agent breaks them first?"] == (("clerk", "refund.once", 2),)
    assert answers["Which tools are repeated within a run?"] == (("refund", 2),)
    assert [row[0] for row in answers["Did it get worse since the last session?"]] == ["s0", "s1"]


def test_the_reference_and_the_help_list_every_view() -> None:
    (listed,) = re.findall(r"^views: (.+)$", _EXAMPLES, re.MULTILINE)
    assert listed.split(", ") == list(VIEWS)
    assert all(re.search(rf"^\|.*\b{view}\b.*\|", PAGE, re.MULTILINE) for view in VIEWS)

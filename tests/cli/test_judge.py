"""`mat judge`: agreement with labels and the variance of answers, as counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mat.__main__ import main
from mat.measure.interval import wilson

SET = [
    {"claim": "paid 30", "texts": ["amount: 30"], "label": "supported"},
    {"claim": "paid 31", "texts": ["amount: 30"], "label": "unsupported"},
    {"claim": "the weather is fine", "texts": ["amount: 30"], "label": "unknown"},
    {"claim": "paid 30 today", "texts": ["amount: 30"], "label": "unsupported"},
]
JUDGES = """
import itertools

turns = itertools.count()


def digits(claim, texts):
    words = [word for word in claim.split() if word.isdigit()]
    return all(word in " ".join(texts) for word in words) if words else "unknown"


def coin(claim, texts):
    return next(turns) % 2 == 0


def broken(claim, texts):
    raise ValueError("no key")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("judges_of_claims.py").write_text(JUDGES)
    Path("labels.jsonl").write_text("".join(json.dumps(line) + "\n\n" for line in SET))
    return tmp_path


def measured(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["judge", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_agreement_is_that_of_a_count_by_hand(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, "labels.jsonl", "--judge", "judges_of_claims:digits")
    expected = wilson(3, 4)
    accuracy = found["agreement"]["accuracy"]
    assert (accuracy["value"], accuracy["low"], accuracy["high"]) == (expected.value, expected.low, expected.high)
    assert found["agreement"]["kappa"]["value"] == pytest.approx((3 / 4 - 5 / 16) / (1 - 5 / 16))
    assert ["unsupported", "supported", 1] in found["agreement"]["table"]
    assert found["variance"] is None


def test_answers_that_vary_are_seen(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, "labels.jsonl", "--judge", "judges_of_claims:coin", "--repeats", "2")
    assert found["variance"]["unanimous"]["value"] == 0
    assert found["variance"]["variance"]["value"] == 0.5
    assert (found["variance"]["items"], found["variance"]["repeats"]) == (4, 2)


def test_recorded_answers_need_no_judge(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [{**line, "answers": [line["label"], "unknown"]} for line in SET]
    Path("answered.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = measured(capsys, "answered.jsonl")
    assert found["agreement"]["accuracy"]["value"] == 1
    assert found["variance"]["unanimous"]["value"] == 1 / 4
    assert main(["judge", "answered.jsonl"]) == 0
    said = capsys.readouterr().out
    assert "accuracy" in said
    assert "Answers by label" in said


@pytest.mark.parametrize(
    ("arguments", "content", "reason"),
    [
        (["labels.jsonl"], None, "no answer to the claim 'paid 30'"),
        (["labels.jsonl", "--judge", "judges_of_claims:digit"], None, "did you mean 'digits'"),
        (["labels.jsonl", "--judge", "judges_of_claims:broken"], None, "raised ValueError: no key"),
        (
            ["labels.jsonl", "--judge", "judges_of_claims:JUDGES"],
            None,
            "why: it contains broken, coin, digits fix:",
        ),
        (["labels.jsonl", "--judge", "judges/of_claims.py:JUDGES"], None, "why: functions are imported by module name"),
        (["other.jsonl"], "\n", "contains no labelled claim"),
        (["other.jsonl"], '{"claim": "x", "texts": [], "label": "maybe"}', "other.jsonl:1"),
        (["other.jsonl"], '{"claim": "x", "texts": "y", "label": "supported"}', "other.jsonl:1"),
        (["other.jsonl"], "[", "other.jsonl:1"),
    ],
)
def test_what_cannot_be_measured_is_an_error(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], content: str | None, reason: str
) -> None:
    if content is not None:
        Path("other.jsonl").write_text(content)
    assert main(["judge", *arguments]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert reason in said
    for part in ("why:", "fix:"):
        assert part in said

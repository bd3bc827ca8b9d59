"""`mat report` and `mat compare` on runs that others recorded, against values computed here from the raw rows."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy
import pytest
from scipy.stats import binomtest
from tests.corpora.test_measured import AIRLINE, CONDITIONS, DATA, RETAIL, conditions, paired_by_hand, raw

from mat.__main__ import main

FORMATS = {AIRLINE: "corpora.formats.tau_bench:FORMAT", RETAIL: "corpora.formats.tau_contract:FORMAT"}


@pytest.fixture(scope="module")
def trials() -> Any:
    """Rewards, (tasks, trials)."""
    found: dict[int, dict[int, bool]] = {}
    for item in raw(AIRLINE):
        found.setdefault(item["task_id"], {})[item["trial"]] = item["reward"] == 1.0
    return numpy.array([[those[trial] for trial in sorted(those)] for those in found.values()])


def expected(trials: Any) -> dict[str, float]:
    """success@k and pass^k over all subsets of trials, and success@k of the first k, means over tasks."""
    found: dict[str, float] = {}
    for k in range(1, 5):
        subsets = trials[:, list(combinations(range(4), k))]
        found |= {f"success@{k}.unbiased": subsets.any(axis=2).mean(), f"pass^{k}": subsets.all(axis=2).mean()}
        if k > 1:  # success@1 is success
            found |= {f"success@{k}": trials[:, :k].any(axis=1).mean()}
    return found


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.full
def test_a_report_of_tau_bench_has_every_k_by_task(trials: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, "report", str(DATA / AIRLINE), "--format", FORMATS[AIRLINE])
    success = found["metrics"]["nominal.success"]
    assert (success["value"], success["n"]) == (trials.mean(), trials.size)
    assert (success["sampling_unit"], success["population"]) == ("task", "new tasks like these 31")
    for name, value in expected(trials).items():
        metric = found["metrics"][f"nominal.{name}"]
        assert (metric["value"], metric["n"], metric["population"]) == (pytest.approx(value), 31, "new tasks like these 31")
    lines = found["tables"]["tasks"]
    assert sorted(line["solved"] for line in lines) == sorted(trials.sum(axis=1).tolist())
    for line in lines:
        one = numpy.array([[place < line["solved"] for place in range(4)]])
        by_hand = expected(one)
        assert line["any_of"] == pytest.approx([by_hand[f"success@{k}.unbiased"] for k in range(1, 5)])
        assert line["all_of"] == pytest.approx([by_hand[f"pass^{k}"] for k in range(1, 5)])


@pytest.mark.full
def test_the_interval_by_task_is_about_that_of_a_bootstrap_of_tasks(
    trials: Any, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    found = asked(capsys, "report", str(DATA / AIRLINE), "--format", FORMATS[AIRLINE])["metrics"]["nominal.success"]
    stream = numpy.random.default_rng(0)
    low, high = numpy.quantile(trials[stream.integers(0, 31, (20_000, 31))].mean(axis=(1, 2)), [0.025, 0.975])
    by_run = binomtest(int(trials.sum()), trials.size).proportion_ci(method="wilson")
    assert found["high"] - found["low"] > 1.4 * (by_run.high - by_run.low)
    assert (found["low"], found["high"]) == (pytest.approx(low, abs=0.03), pytest.approx(high, abs=0.03))


@pytest.mark.full
@pytest.mark.parametrize("new", CONDITIONS[1:])
def test_conditions_are_compared_by_the_exact_test_with_crashes_apart(new: str, capsys: pytest.CaptureFixture[str]) -> None:
    old = CONDITIONS[0]
    table, crashed = paired_by_hand(conditions()[old], conditions()[new])
    found = asked(capsys, "compare", *(f"{DATA / RETAIL}:{name}" for name in (old, new)), "--format", FORMATS[RETAIL])
    counts: Mapping[str, int] = found["overall"]["paired"]["table"]
    assert counts == {name: getattr(table, name) for name in ("both", "only_old", "only_new", "neither")}
    assert sum(each["pairs"] for each in found["apart"]) == crashed
    assert all(each["reason"] not in ("", "unjudged") for each in found["apart"])
    by_hand = binomtest(table.only_old, table.only_old + table.only_new).pvalue
    assert found["overall"]["p_value"] == pytest.approx(by_hand, abs=1e-12)
    flipped: Sequence[Any] = found["flipped"]
    assert len(flipped) == table.only_old + table.only_new


@pytest.mark.full
def test_every_output_of_a_report_has_the_same_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON, CSV, Parquet, text, Markdown and page, and the metrics and views of a store, of the same runs."""
    import duckdb

    raw(AIRLINE)
    source = [str(DATA / AIRLINE), "--format", FORMATS[AIRLINE]]
    files = [str(tmp_path / f"report.{suffix}") for suffix in ("json", "csv", "parquet", "txt", "md", "html")]
    assert main(["report", *source, *(word for name in files for word in ("--out", name))]) == 0
    assert main(["import", *source, "--store", str(tmp_path / "store")]) == 0
    capsys.readouterr()
    whole = json.loads(Path(files[0]).read_text())
    stored = asked(capsys, "report", str(tmp_path / "store" / "store.duckdb"))
    lines = list(csv.DictReader(Path(files[1]).read_text().splitlines()))
    typed = duckdb.connect().execute(f"SELECT * FROM '{files[2]}'")
    rows = [dict(zip([column[0] for column in typed.description or ()], row, strict=True)) for row in typed.fetchall()]
    (cell,) = [line["metrics"] for line in whole["tables"]["evaluation"]]
    (again,) = [line["metrics"] for line in stored["tables"]["evaluation"] if line["category"] == "all"]
    for name, metric in cell.items():
        for found in (lines, rows):
            (line,) = [
                each for each in found if (each["table"], each["name"], each["category"]) == ("evaluation", name, "all")
            ]  # fmt: skip
            for field in ("value", "low", "high", "n"):
                assert (line[field] in (None, "")) == (metric[field] is None), (name, field)
                assert metric[field] is None or float(line[field]) == pytest.approx(metric[field], rel=1e-12), (name, field)
        if name in again:
            assert again[name] == {**metric, **{end: pytest.approx(metric[end]) for end in ("value", "low", "high")}}, name
    assert all(name.startswith(("success@", "pass^")) for name in set(cell) - set(again))  # a store states them in SQL
    for name in files[3:]:  # for people: rounded, with the interval
        assert re.search(r"41%\s*(?:<[^>]*>)*\\?\[28[-–]55\\?\]", Path(name).read_text()), name
    views = asked(capsys, "query", "SELECT success, violations, tokens FROM by_variant", "--store", str(tmp_path / "store"))
    assert views["rows"] == [[pytest.approx(cell["success"]["value"]), None, None]]
    assert "violations" not in cell  # no contract was armed, no model reported tokens
    assert "tokens" not in cell

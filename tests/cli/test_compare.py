"""`mat compare A B` finds a planted difference, where it is, and nothing where there is none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.test_regression import row

from mat.__main__ import main
from mat.core.campaign import ItemResult
from mat.measure.comparison import compare_systems
from mat.measure.paired import mcnemar
from mat.measure.regression import RunOutcome
from mat.measure.rows import RunCondition
from mat.report.build import build
from mat.report.comparison import sentence
from mat.report.files import write


def outcome(
    item: str, seed: int = 0, *, success: bool | None = True, category: str = "", condition: RunCondition = "nominal",
    schedule: str = "", infrastructure: str = "", variant: str = "", broken: tuple[str, ...] = (),
) -> RunOutcome:  # fmt: skip
    return RunOutcome(
        item=item, condition=condition, seed=seed, schedule=schedule, cost=0, success=success,
        outcome="fail" if broken else "pass", broken=broken, steps=3, variant=variant, category=category,
        infrastructure=infrastructure,
    )  # fmt: skip


def system(solved: int, *, tasks: int = 20, category: str = "tools") -> list[RunOutcome]:
    """One run of each task, of which the first ones succeed."""
    return [outcome(f"{category}-{place}", success=place < solved, category=category) for place in range(tasks)]


def test_a_planted_difference_is_found_in_its_category_alone() -> None:
    a = system(0) + system(20, category="talk")
    b = system(18) + system(20, category="talk")
    found = compare_systems(a, b)
    assert {each.category: each.verdict for each in found.categories} == {"tools": "better", "talk": "open"}
    assert found.overall.verdict == "better"
    assert re.match(r"B is better on tools by 90 points \[\d+, \d+\]; elsewhere no difference is shown", sentence(found))
    assert {each.task for each in found.flipped} == {f"tools-{place}" for place in range(18)}
    back = compare_systems(b, a)
    assert {each.category: each.verdict for each in back.categories} == {"tools": "worse", "talk": "open"}
    assert sentence(back).startswith("B is worse on tools by 90 points")


def test_a_small_difference_is_excluded_only_by_enough_tasks() -> None:
    few, many = system(10, tasks=20), system(400, tasks=800)
    other = [*many[:-1], outcome("tools-799", success=True, category="tools")]
    assert compare_systems(few, few).overall.verdict == "open"
    found = compare_systems(many, other)
    assert found.overall.verdict == "equivalent"
    assert sentence(found) == "A difference larger than 5 points is excluded."


def test_equal_outcomes_are_equal_whatever_their_number() -> None:
    found = compare_systems(system(1, tasks=2), system(1, tasks=2))
    assert found.identical
    assert sentence(found) == "A and B are the same on all 2 pairs: every outcome is equal."
    different = [outcome("tools-0", category="tools", broken=("once",)), *system(1, tasks=2)[1:]]
    assert not compare_systems(system(1, tasks=2), different).identical


def test_many_seeds_of_one_task_are_one_unit() -> None:
    """Twelve seeds that all flip are one task that flips: no evidence for new tasks, enough for this one."""
    a = [outcome("one", seed, success=False) for seed in range(12)] + system(5)
    b = [outcome("one", seed, success=True) for seed in range(12)] + system(5)
    assert compare_systems(a, b).overall.p_value == 1.0
    assert compare_systems(a, b).overall.verdict == "open"


def test_what_cannot_be_compared_is_counted_apart() -> None:
    a = [outcome("crashed"), outcome("unjudged"), outcome("only-a"), outcome("both", 0), outcome("both", 1)]
    b = [outcome("crashed", infrastructure="network"), outcome("unjudged", success=None), outcome("both"), outcome("only-b")]
    found = compare_systems(a, b)
    assert [(each.side, each.reason, each.pairs) for each in found.apart] == [("new", "network", 1), ("new", "unjudged", 1)]
    assert (found.only_a, found.only_b, found.unpaired) == (("only-a",), ("only-b",), 1)
    assert found.overall.paired.table.pairs == 1


def test_adversarial_runs_are_paired_by_draw_and_faults_by_schedule_too() -> None:
    a = [outcome("t", condition="adversarial", schedule="x"), outcome("t", condition="fault", schedule="x")]
    b = [outcome("t", condition="adversarial", schedule="y"), outcome("t", condition="fault", schedule="y")]
    assert compare_systems(a, b, under="adversarial").overall.paired.table.pairs == 1
    assert compare_systems(a, b, under="faults").overall.paired.table.pairs == 0
    assert sentence(compare_systems(a, b, under="faults")).startswith("Nothing can be said")


def test_p_values_of_several_categories_are_adjusted() -> None:
    a = system(0, tasks=6, category="x") + system(0, tasks=20, category="y")
    b = system(6, tasks=6, category="x") + system(0, tasks=20, category="y")
    alone = mcnemar(0, 6)
    assert alone is not None
    assert alone < 0.05
    found = {each.category: each for each in compare_systems(a, b).categories}
    assert found["x"].p_value == pytest.approx(2 * alone)
    assert found["x"].paired.difference.confidence == pytest.approx(0.975)


@given(st.lists(st.tuples(st.sampled_from("pqr"), st.integers(0, 3), st.booleans(), st.booleans()), max_size=24))
def test_the_table_of_pairs_is_that_of_a_count_by_hand(runs: list[tuple[str, int, bool, bool]]) -> None:
    last = {(task, seed): (one, other) for task, seed, one, other in runs}
    found = compare_systems(
        [outcome(task, seed, success=one) for task, seed, one, _ in runs],
        [outcome(task, seed, success=other) for task, seed, _, other in runs],
    )
    table = found.overall.paired.table
    assert table.pairs == len(last)
    assert table.only_old == sum(one and not other for one, other in last.values())
    assert table.only_new == sum(other and not one for one, other in last.values())
    gained = sum(len(each.gained) for each in found.flipped)
    assert (gained, sum(len(each.lost) for each in found.flipped)) == (table.only_new, table.only_old)


def test_what_would_settle_it_allows_for_what_the_exact_test_can_reject() -> None:
    """Four tasks that all flip have p = 2/16 at best; six have 2/64."""
    found = compare_systems(system(0, tasks=4), system(4, tasks=4)).overall
    assert (found.verdict, found.tasks_needed) == ("open", 6)
    assert compare_systems(system(0, tasks=5), system(5, tasks=5)).overall.verdict == "open"
    assert compare_systems(system(0, tasks=6), system(6, tasks=6)).overall.verdict == "better"


# -- the command ------------------------------------------------------------------------------------------------------


def report(path: Path, blocked: Iterable[bool]) -> str:
    rows = [row(f"t.py::test_{place}", blocked=each) for place, each in enumerate(blocked)]
    write(build([ItemResult(id=each.item, status="nominal") for each in rows], rows), path)
    return str(path)


def test_two_reports_are_compared_in_text_markdown_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = report(tmp_path / "old.json", [True] * 8), report(tmp_path / "new.json", [False] * 8)
    assert main(["compare", old, new, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["overall"]["verdict"] == "better"
    assert data["overall"]["paired"]["difference"]["value"] == 1.0
    assert data["overall"]["paired"]["difference"]["population"] == "new tasks like these 8"
    assert main(["compare", old, new, "--as", "md"]) == 0
    assert f"**{data['sentence']}**" in capsys.readouterr().out.replace("\\", "")
    assert main(["compare", old, new]) == 0
    said = capsys.readouterr().out
    assert data["sentence"] in " ".join(said.split())
    assert "t.py::test_0" in said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["old.json", "missing.json"], "no such file"),
        (["old.json:governed", "old.json"], "no run of the variant"),
        (["old.json", "old.json", "--under", "adversarial"], "share no adversarial run"),
        (["old.json", "old.json", "--unit", "run", "--under", "faults"], "share"),
        (["old.json", "old.json", "--margin", "0"], "percentage points"),
    ],
)
def test_what_cannot_be_compared_is_an_error(
    arguments: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report(tmp_path / "old.json", [True, False])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        raise SystemExit(main(["compare", *arguments]))
    assert stopped.value.code == 2
    assert reason in " ".join(capsys.readouterr().err.split())


@pytest.mark.full
@pytest.mark.parametrize("seeds", [1, 3, 20])
def test_a_side_that_always_succeeds_has_an_interval(seeds: int) -> None:
    """Effective numbers of runs are not whole; rounding must not give more successes than runs."""
    for tasks in range(2, 40):
        a = [outcome(f"t{task}", seed, success=task > 1) for task in range(tasks) for seed in range(seeds)]
        b = [outcome(f"t{task}", seed) for task in range(tasks) for seed in range(seeds)]
        difference = compare_systems(a, b).overall.paired.difference
        assert difference.low is not None
        assert difference.high is not None
        assert -1 <= difference.low <= 2 / tasks <= difference.high <= 1

"""`pytest --mat-gate`: what a session selects, runs and judges."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy
import pytest
import scipy.optimize
import scipy.special

KEPT = (numpy, scipy.optimize, scipy.special)
"""Loaded here: pytester forgets what an inner session imports, and these can be loaded only once."""
TESTS = """
    @pytest.fixture
    def fine():
        return True

    @pytest.mark.mat(faults=FAULTS, workload=mat.Workload(category="refunds"))
    def test_refund(mat_run, no_double, fine):
        assert shop.careful() == "refunded"

    @pytest.mark.mat(workload=mat.Workload(category="looking"))
    def test_look(mat_run, no_double):
        assert shop.check("o2")["fine"]

    def test_of_something_else():
        open("ran.txt", "w").close()
"""
GATE = ("--mat-gate=base.json", "--mat-gate-set", "tolerance.success=0.2")
SEEDS = 20
"""As many decide a tolerance of 20 %."""


@pytest.fixture(autouse=True)
def _outside_of_a_job(monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


@pytest.fixture
def gated(shop):
    """A shop with its tests and a baseline."""
    shop.tests(TESTS)
    baseline(shop)
    (shop.path / "ran.txt").unlink()
    return shop


def baseline(shop, seeds: int = SEEDS) -> None:
    shop.run("--mat-seeds", str(seeds))
    shutil.copy(shop.path / "out.json", shop.path / "base.json")


def change(shop, old: str, new: str) -> None:
    """Change the system under test."""
    text = (shop.path / "shop.py").read_text()
    assert old in text
    shop.write("shop.py", text.replace(old, new))


def refusal(shop, *arguments: str) -> str:
    """What a session says that is refused before it begins."""
    result = shop.pytester.runpytest_inprocess(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    return str(result.stderr.str())


def line(session, aspect: str) -> list[str]:
    """A row of the gate's table: verdict and counts."""
    found = next(row for row in session.text.splitlines() if row.startswith(aspect))
    return found.removeprefix(aspect).split()[:4]


@pytest.mark.full
def test_where_nothing_changed_the_gate_passes_and_runs_its_suites_alone(gated):
    session = gated.run(*GATE)
    assert session.code == 0
    assert "The gate passes. Against base.json: 2 tests on 20 of 20 seeds, 0 replays." in session.text
    assert line(session, "success ") == ["kept", "40", "0", "0"]
    assert line(session, "compliance") == ["kept", "40", "0", "0"]
    assert set(session.outcomes) == {"test_shop.py::test_refund", "test_shop.py::test_look"}
    assert not (gated.path / "ran.txt").exists()


@pytest.mark.full
def test_a_lost_success_fails_the_gate_after_all_its_seeds_and_no_test_by_itself(gated):
    change(gated, '"fine": True', '"fine": False')
    session = gated.run(*GATE)
    assert session.code == 1
    assert "The gate fails. Lost: success." in session.text
    assert line(session, "success ")[:1] == ["LOST"]
    assert "Lost: success (a single test is worse)" in session.text
    assert line(session, "compliance")[0] == "kept"
    assert "test_shop.py::test_look: 20 of 20 runs, worse on its own; first: seed 0: the task fails" in session.text
    assert session.outcomes == {"test_shop.py::test_refund": "passed", "test_shop.py::test_look": "xfailed"}


def test_a_broken_contract_fails_the_gate_by_the_line_of_contracts(gated):
    change(gated, "            refund(order)\n", "            refund(order)\n            refund(order)\n")
    session = gated.run(*GATE)
    assert session.code == 1
    assert "The gate fails. Lost: compliance." in session.text
    assert line(session, "success ")[0] == "kept"
    assert "test_shop.py::test_refund: 20 of 20 runs; first: seed 0: breaks no_double" in session.text


def test_a_change_within_its_contracts_and_its_success_is_let_through(gated):
    change(gated, "    check(order)\n", "    check(order)\n    check(order)\n")
    assert gated.run(*GATE).code == 0


@pytest.mark.nightly
def test_a_replay_that_held_must_hold_and_is_judged_with_its_faults(shop):
    shop.tests(TESTS.replace("careful", "naive"))
    shop.stress("-k", "refund")
    shop.write("shop.py", (shop.path / "shop.py").read_text().replace("tries=3", "tries=1"))
    baseline(shop)
    (name,) = [item["id"] for item in json.loads((shop.path / "base.json").read_text())["items"] if "[replay-" in item["id"]]
    session = shop.run(*GATE)
    assert session.code == 0
    assert line(session, "replays ") == ["kept", "1", "0", "0"]
    change(shop, "tries=1", "tries=3")
    session = shop.run(*GATE)
    assert session.code == 1
    assert "The gate fails. Lost: replays." in session.text
    assert session.outcomes[name] == "failed"
    assert line(session, "success ")[0] == "kept"
    baseline(shop)
    session = shop.run(*GATE)
    assert session.outcomes[name] == "failed"
    assert session.code == 0  # it was broken before
    shop.replays[0].unlink()
    session = shop.run(*GATE)
    assert f"Removed replays of the baseline\n  {name}" in session.text
    assert "replays: no run of the baseline can be compared" in session.text
    assert session.code == 1


def test_what_a_session_that_stops_early_did_not_run_is_not_taken_for_kept(gated):
    gated.write("mat_replays/test_a-3f2a91.mat.json", "{")
    gated.conftest("""
        def pytest_collection_modifyitems(items):
            items.reverse()
    """)
    session = gated.run(*GATE, "-x")
    assert session.code == 1
    assert "test_shop.py::test_refund: it did not run" in session.text
    assert "A test of the suite did not run." in session.text


@pytest.mark.full
def test_a_replay_file_that_cannot_be_read_is_a_broken_replay(gated):
    gated.write("mat_replays/test_refund-3f2a91.mat.json", "{")
    session = gated.run(*GATE)
    assert session.code == 1
    assert "The gate fails. Lost: replays." in session.text


GOVERNED = """
import mat
import pytest
from mat.govern.variant import Policy


def no_refund_for_o9(record):
    if record.action.name == "refund" and record.action.arguments["order"] == BLOCKED:
        return mat.policy.Block("not that order")


@pytest.fixture
def mat_governance():
    return Policy(rules=(no_refund_for_o9,))
"""


@pytest.mark.full
def test_governance_that_lets_more_happen_fails_the_gate_by_its_own_line(shop):
    shop.tests("""
        @pytest.mark.mat(governance="shield")
        def test_refund(mat_run, no_double):
            try:
                shop.refund("o9")
            except mat.Blocked:
                mat.finish(status="aborted")
    """)
    shop.conftest(GOVERNED.replace("BLOCKED", "'o9'"))
    baseline(shop)
    assert shop.run(*GATE).code == 0
    shop.conftest(GOVERNED.replace("BLOCKED", "'o8'"))
    session = shop.run(*GATE)
    assert session.code == 1
    assert "The gate fails. Lost: governance." in session.text
    assert "block -> allow" in session.text
    shop.conftest(GOVERNED.replace('record.action.arguments["order"] == BLOCKED', "True"))
    assert shop.run(*GATE).code == 0  # stricter is no loss


@pytest.mark.full
def test_new_and_removed_tests_are_listed_and_what_was_not_selected_is_distinguished(gated):
    gated.tests(TESTS.replace("test_look", "test_gaze"))
    session = gated.run(*GATE, "--mat-gate-set", "undecided=pass", "--mat-gate-set", "removed=list")
    assert "New tests, not in the baseline\n  test_shop.py::test_gaze" in session.text
    assert "Removed tests of the baseline\n  test_shop.py::test_look" in session.text
    assert "Categories without a selected test\n  looking" in session.text
    assert session.code == 0
    assert gated.run(*GATE, "--mat-gate-set", "undecided=pass").code == 1  # less was measured
    gated.tests(TESTS)
    session = gated.run(*GATE, "-k", "refund", "--mat-gate-set", "undecided=pass")
    assert "In the baseline, but not collected in this session\n  test_shop.py::test_look" in session.text
    assert "Removed" not in session.text


def test_few_seeds_of_a_system_that_does_the_same_every_time_are_run_until_they_decide(gated):
    session = gated.run(*GATE, "--mat-gate-set", "seeds=1")
    assert session.code == 0
    assert "The baseline has few runs, so each was compared with 7 executions" in session.text


def test_too_few_seeds_are_undecided_and_fail(gated):
    session = gated.run(*GATE, "--mat-gate-set", "seeds=3", "--mat-gate-set", "unit=seed")
    assert session.code == 1
    assert "The gate fails. Undecided: success." in session.text
    assert (
        "3 seeds do not decide a tolerance of 20%; 17 more seeds without a loss would decide it (in all, 20 seeds of each"
        in session.text
    )


def test_a_test_whose_set_up_fails_gives_no_run_and_fails_the_gate(gated):
    gated.tests(TESTS.replace("return True", "raise OSError('no database')"))
    session = gated.run(*GATE)
    assert session.code == 1
    assert "A test of the suite did not run" in session.text
    assert session.outcomes["test_shop.py::test_refund"] == "error"


@pytest.mark.full
def test_a_test_that_is_skipped_now_is_listed(gated):
    gated.tests(TESTS.replace("    def test_look", "    @pytest.mark.skip\n    def test_look"))
    assert gated.run(*GATE, "--mat-gate-set", "undecided=pass").code == 1
    session = gated.run(*GATE, "--mat-gate-set", "undecided=pass", "--mat-gate-set", "removed=list")
    assert session.code == 0
    assert "Without a run on each seed\n  test_shop.py::test_look: it was skipped" in session.text


@pytest.mark.nightly
def test_workers_of_xdist_run_what_one_process_would_and_the_judgement_is_the_same(gated):
    change(gated, '"fine": True', '"fine": False')
    alone = gated.run(*GATE)
    spread = gated.run(*GATE, "-n", "2", process=True)
    assert spread.code == 1
    said = [session.text[session.text.index("The gate") :].splitlines()[:12] for session in (alone, spread)]
    assert said[0] == said[1]


def test_the_summary_is_written_where_it_is_asked_for_and_to_the_job_summary(gated, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(gated.path / "step.md"))
    gated.run(*GATE, "--mat-gate-summary", "gate.md")
    text = (gated.path / "gate.md").read_text()
    assert text.startswith("## MAT gate: passed\n")
    assert (gated.path / "step.md").read_text() == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ('{"items": []}', "is not a report"),
        ('{"mat": 1, "items": [], "tables": {}}', "has no outcomes of runs"),
        ('{"mat": 1, "items": [], "tables": {"outcomes": [{"item": 3}]}}', "tables.outcomes.0.item"),
        ('{"mat": 1, "items": [], "tables": {"outcomes": []}}', "contains neither a nominal run nor a replay"),
    ],
)
def test_a_broken_baseline_is_refused_with_the_reason_before_anything_runs(shop, text, said):
    shop.tests(TESTS)
    shop.write("base.json", text)
    assert said in refusal(shop, *GATE)
    assert not (shop.path / "ran.txt").exists()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--mat-gate=nowhere.json",), "neither a file nor a git revision"),
        ((*GATE, "--mat-stress"), "--mat-gate and --mat-stress run different things"),
        ((*GATE, "--mat-gate-set", "seed=3"), "did you mean 'seeds'?"),
        ((*GATE, "--mat-gate-set", "tolerance.sucess=2"), "did you mean 'success'?"),
        ((*GATE, "--mat-gate-set", "tolerance.success=2"), "is not a share"),
        ((*GATE, "--mat-gate-set", "smoke=0"), "smoke '0' is not an integer >= 1, or all"),
    ],
)
def test_a_wrong_option_is_refused_with_what_it_should_be(gated, arguments, said):
    assert said in refusal(gated, *arguments)


def test_settings_stand_in_the_projects_file_and_the_command_line_wins(gated):
    project: Path = gated.write("pyproject.toml", "[tool.mat.gate]\nseeds = 3\nundecided = 'pass'\ntolerance.success = 0.3\n")
    session = gated.run("--mat-gate=base.json")
    assert session.code == 0
    assert "3 of 3 seeds" in session.text
    assert "30%" in session.text
    assert "2 of 2 seeds" in gated.run("--mat-gate=base.json", "--mat-gate-set", "seeds=2").text
    project.write_text("[tool.mat.gate]\nsede = 3\n[tool.mat.gate.tolerance]\nutility = 0.5\n")
    errors = refusal(gated, "--mat-gate=base.json")
    assert "unknown setting [tool.mat.gate] sede" in errors
    assert "unknown aspect" in errors

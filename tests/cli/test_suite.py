from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import mat
from mat.__main__ import main
from mat.core.campaign import Certificate, Counterexample, ItemResult, Stability
from mat.evidence import replay_file
from mat.measure.rows import row_of
from mat.report.build import build
from mat.report.files import write

TEST = """
import mat
import pytest


@mat.tool(effect="write", impact="high")
def refund(order):
    return {"order": order}


@pytest.fixture
def no_refund():
    return mat.step_contract(on="tool_call", id="no.refund")(lambda record: record.action.name != "refund")


@pytest.fixture
def no_look():
    return mat.step_contract(on="tool_call", id="no.look")(lambda record: record.action.name != "look")


@mat.tool
def look(order):
    return order


@pytest.mark.mat(workload=mat.Workload(category="refunds"))
@pytest.mark.parametrize("order", ["A 7"])
def test_refund(mat_run, no_look, order):
    refund(order)


def test_look(mat_run, no_refund):
    look("A7")
"""
HARD = {name: mat.step_contract(on="tool_call", id=f"no.{name}")(lambda record, name=name: record.action.name != name)
        for name in ("refund", "look")}  # fmt: skip


@mat.tool(effect="write", impact="high")
def refund(order: str) -> str:
    return order


@mat.tool
def look(order: str) -> str:
    return order


def run_of(calls: Sequence[str], *, task: str, contracts: Sequence[str] = ("refund", "look")) -> mat.Run:
    with mat.run([HARD[name] for name in contracts], task=task) as run:
        for name in calls:
            {"refund": refund, "look": look}[name]("A7")
    assert run.result is not None
    return run.result


def put(folder: Path, calls: Sequence[str], *, item: str = "test_shop.py::test_look", stability: int = 3) -> Path:
    """A replay of a run that makes these calls, found for the first of them."""
    run = run_of(calls, task=item)
    verdict = next(each for each in run.failures if each.contract == f"no.{calls[0]}")
    replay = replay_file.Replay(
        item=item,
        counterexample=Counterexample(verdict=verdict, run=run, stability=Stability(runs=3, reproduced=stability)),
        certificate=Certificate(proven=True),
    )
    path = folder / "mat_replays" / f"{'-'.join(calls)}{len(list(folder.glob('mat_replays/*')))}.mat.json"
    replay_file.write(path, replay)
    return path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_shop.py").write_text(TEST)
    monkeypatch.chdir(folder)
    return folder


def report(path: Path, *, broken: bool = False, root: str = "") -> Path:
    """A report of two tests that pass, of different categories, and on request of one that breaks a contract."""
    results = [
        ItemResult(id=f"{root}test_shop.py::test_refund[A 7]", status="nominal", category="refunds"),
        ItemResult(id=f"{root}test_shop.py::test_look", status="nominal"),
        ItemResult(id="test_shop.py::test_broken", status="violated", category="misuse"),
        ItemResult(id=f"{root}test_shop.py::test_refund[A 7-replay-3f2a91]", status="replayed", category="only replayed"),
    ]
    rows = [
        row_of(run_of(["refund"], task=results[0].id, contracts=["look"]), item=results[0].id, condition="nominal"),
        row_of(run_of(["look"], task=results[1].id, contracts=["refund"]), item=results[1].id, condition="nominal"),
    ]
    if broken:
        rows.append(row_of(run_of(["look"], task=results[2].id), item=results[2].id, condition="nominal"))
    write(build(results, rows), path)
    return path


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_the_suite_of_this_folder_is_the_fewest_replays_with_reasons(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(project, ["look"])
    put(project, ["refund", "look"])
    put(project / "deep" / "er", ["look"])
    assert main(["suite"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "1 of 3 replays covers 2 hard contracts and 2 failure signatures.\nFewer are not enough (exact set cover)"
    )
    assert "only this file covers: no.refund;" in text
    assert "covers with others: no.look;" in text
    assert text.count("covered by test_shop.py::test_look[replay-") == 2
    assert main(["suite", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["method"], data["proven"], data["bound"]) == ("exact", True, 1)
    assert [one["file"] for one in data["replays"]] == ["mat_replays/refund-look1.mat.json"]
    assert len(data["left_out"]) == 2
    assert {"kind": "contract", "contract": "no.refund"} in data["replays"][0]["only"]


def test_a_file_that_cannot_be_read_is_refused_with_its_reason_and_the_rest_goes_on(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(project, ["refund"])
    broken = project / "mat_replays" / "broken.mat.json"
    broken.write_text('{"mat": 1, "\x1b[31m')
    assert main(["suite", "--list", ".", "missing.mat.json"]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("test_shop.py::test_look[replay-")
    assert out.count("\n") == 1
    assert "broken.mat.json" in err
    assert "is not JSON" in err
    assert "no such file: missing.mat.json" in err
    assert "\x1b" not in out + err
    assert main(["suite", "--json"]) == 2
    assert len(json.loads(capsys.readouterr().out)["refused"]) == 1


def test_nothing_to_choose_from_is_a_mistake(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suite"]) == 2
    assert "no replay files" in capsys.readouterr().err


def test_environments_and_hidden_folders_are_not_searched(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(project, ["refund"])
    put(project / ".hidden", ["look"])
    put(project / "env" / "lib", ["look"])
    (project / "env" / "pyvenv.cfg").write_text("")
    assert main(["suite", "--list"]) == 0
    assert len(lines(capsys)) == 1
    assert main(["suite", "--list", "mat_replays", "mat_replays/refund0.mat.json"]) == 0  # named twice, taken once
    assert len(lines(capsys)) == 1


def test_a_report_adds_passing_tests_by_category_and_says_where_they_are_too_few(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(project, ["refund"])
    path = report(project / "report.json")
    assert main(["suite", "--report", str(path), "--passes", "2"]) == 0
    text = capsys.readouterr().out
    nominal = "  passes its nominal runs; selected for refunds: the fewest steps (2) of 1 passing test"
    assert f"test_shop.py::test_refund[A 7]\n{nominal}\n" in text
    assert "for tests without a category" in text
    assert "misuse: 0 of 2 requested passing tests" in text
    assert "only replayed" not in text
    assert "refunds: 1 of 2 requested passing tests" in text
    assert main(["suite", "--report", str(path), "--list"]) == 0
    assert lines(capsys)[1:] == ["test_shop.py::test_look", "test_shop.py::test_refund[A 7]"]


def test_the_suite_ends_with_the_command_that_runs_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(project, ["refund"])
    assert main(["suite"]) == 0
    assert lines(capsys)[-1] == "run it with: pytest $(mat suite --list)"
    assert main(["suite", "mat_replays", "--representative", "--exact-limit", "5"]) == 0
    assert lines(capsys)[-1] == "run it with: pytest $(mat suite mat_replays --representative --exact-limit 5 --list)"
    assert main(["suite", "--write", "suite.txt"]) == 0
    assert lines(capsys)[-1] == "run it with: pytest @suite.txt"


def test_ids_with_blanks_are_run_from_a_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(project / "report.json")
    assert main(["suite", "--report", "report.json", "--passes", "2"]) == 0
    assert lines(capsys)[-1] == (
        "run it with: mat suite --report report.json --passes 2 --write suite.txt && pytest @suite.txt"
    )


def test_ids_of_a_report_are_listed_as_they_are_written_in_this_folder(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = report(project / "report.json", root="above/project/")
    assert main(["suite", "--report", str(path), "--list"]) == 0
    assert lines(capsys) == ["test_shop.py::test_look", "test_shop.py::test_refund[A 7]"]
    (project / "test_shop.py").unlink()
    assert main(["suite", "--report", str(path), "--list"]) == 0
    assert lines(capsys)[0] == "above/project/test_shop.py::test_look"


def test_a_hard_contract_of_the_report_that_no_replay_breaks_is_named_and_exits_1(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(project, ["refund"])
    path = report(project / "report.json", broken=True)
    assert main(["suite", "--report", str(path)]) == 1
    assert "not covered: no.look is broken in the report, but in no replay file" in capsys.readouterr().out


def test_beyond_the_limit_the_suite_says_that_it_was_chosen_greedily(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(project, ["refund"])
    put(project, ["look"])
    assert main(["suite", "--exact-limit", "1"]) == 0
    assert "Selected greedily; fewer are not enough (the linear relaxation proves it)." in capsys.readouterr().out


def test_representatives_are_fewer_and_a_flaky_choice_is_labelled(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(project, ["refund", "look"], stability=2)
    put(project, ["refund", "refund", "look"])
    assert main(["suite", "--representative"]) == 0
    text = capsys.readouterr().out
    assert "2 hard contracts and 1 kind of failure" in text
    assert "tool_call at service" in text
    assert "flaky: its failure was reproduced in 2 of 3 runs" in text


def test_a_file_that_is_no_report_is_a_mistake(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(project, ["refund"])
    for content in ("[]", "{", '{"mat": 1, "items": [], "tables": {}}'):
        Path("odd.json").write_text(content)
        assert main(["suite", "--report", "odd.json"]) == 2
        assert "odd.json" in capsys.readouterr().err
    assert main(["suite", "--report", "missing.json"]) == 2


def session(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments], capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.stdout


@pytest.mark.nightly
def test_pytest_runs_what_the_list_names_and_what_was_written(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(project, ["refund", "look"])
    put(project, ["look"], item="test_shop.py::test_refund[A 7]")
    path = report(project / "report.json")
    assert main(["suite", "--list"]) == 0
    (listed,) = lines(capsys)
    said = session(listed)
    assert f"{listed} PASSED" in said
    assert "1 passed" in said
    assert main(["suite", "--report", str(path), "--write", "suite.txt"]) == 0
    assert "In addition, 2 tests of the report" in capsys.readouterr().out
    written = Path("suite.txt").read_text().splitlines()
    assert written == [listed, "test_shop.py::test_look", "test_shop.py::test_refund[A 7]"]
    said = session("@suite.txt")
    assert all(f"{one} PASSED" in said for one in written)
    (parametrized,) = replay_file.find(project)[:1]
    assert main(["suite", "--list", str(parametrized)]) == 0
    (named,) = lines(capsys)
    assert f"{named} PASSED" in session(named)
    assert named.startswith("test_shop.py::test_refund[A 7-replay-")


@pytest.mark.parametrize("command", ["suite", "diff", "replay"])
def test_help_has_examples_and_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert f"example: mat {command}" in text
    assert "exit codes: 0 " in text

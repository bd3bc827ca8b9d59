"""`mat gate`: rounds of sessions against a report, or against one that a git revision holds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mat.__main__ import main
from mat.commands.baseline import baseline_of, read_baseline
from mat.core.errors import SpecError

SHOP = """
import mat


@mat.tool(effect="write", impact="high")
def refund(order):
    return {"refunded": order}


def handle(order):
    refund(order)
    return "refunded"
"""
TESTS = """
import mat
import pytest
import shop
from mat_contracts import no_duplicate_effect


@pytest.fixture
def once():
    return no_duplicate_effect("refund", key="order")


@pytest.mark.mat(workload=mat.Workload(category="refunds"))
@pytest.mark.parametrize("order", ["a", "b", "c"])
def test_refund(mat_run, once, order):
    assert shop.handle(order) == "refunded"
"""
TOLERANCE = ("--tolerance", "success=0.1")
"""41 seeds without a loss decide it."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a baseline of fifty seeds."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider -p no:hypothesispytest\n")
    (folder / "shop.py").write_text(SHOP)
    (folder / "test_shop.py").write_text(TESTS)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--mat-seeds", "50", "--mat-report", "mat_baseline.json"], cwd=folder, check=True
    )
    return folder


@pytest.fixture
def project(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(made, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(folder)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return folder


def git(folder: Path, *arguments: str) -> None:
    names = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.nightly
def test_a_change_that_keeps_all_passes_in_rounds_up_to_all_seeds(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "--baseline", "mat_baseline.json", *TOLERANCE, "--summary", "gate.md", "--json", "test_shop.py"]) == 0
    out, err = capfd.readouterr()
    data = json.loads(out)
    assert (data["passed"], data["failures"], data["seeds"]) == (True, [], {"run": 50, "allowed": 50, "settled": True})
    assert {line["aspect"]: line["table"]["pairs"] for line in data["lines"] if line["verdict"] == "kept"} == {
        "success": 150, "compliance": 150, "governance": 150,
    }  # fmt: skip
    assert err.count("3 passed") == 3  # rounds up to 4, 16 and 50 seeds
    assert (project / "gate.md").read_text().startswith("## MAT gate: passed\n")


@pytest.mark.full
def test_a_regression_is_caught_in_the_first_round_with_its_line_and_its_runs(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (project / "shop.py").write_text(SHOP.replace("    refund(order)\n", "    refund(order)\n    refund(order)\n"))
    assert main(["gate", "--baseline", "mat_baseline.json", *TOLERANCE, "--", "-p", "no:randomly"]) == 1
    out, _ = capfd.readouterr()
    assert out.startswith("The gate fails. Lost: compliance. Undecided: success. Against mat_baseline.json: 3 tests on 4 of")
    assert "test_shop.py::test_refund[a]: 4 of 4 runs; first: seed 0: breaks refund.no_duplicate_effect" in out


def test_what_stands_in_the_revision_is_compared_with_whatever_the_folder_holds_now(project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "one")
    committed = (project / "mat_baseline.json").read_text()
    (project / "mat_baseline.json").write_text("{}")
    reported, name = read_baseline("HEAD", file="mat_baseline.json")
    assert len(reported.tables.outcomes) == 150
    assert name.startswith("HEAD (")
    assert name.endswith(", mat_baseline.json)")
    (project / "deep").mkdir()
    (project / "deep" / "base.json").write_text(committed)
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "two")
    below, _ = read_baseline("HEAD", file="base.json", folder=project / "deep")
    assert below == reported
    with pytest.raises(SpecError, match=r"mat_baseline\.json is not a report"):
        read_baseline("HEAD", file="mat_baseline.json")


@pytest.mark.parametrize(
    ("ref", "file", "said"),
    [
        ("HEAD", "other.json", "the revision HEAD has no baseline report other.json"),
        ("HEAD", "deep", "the revision HEAD has no baseline report deep"),
        ("no-such-branch", "mat_baseline.json", "neither a file nor a git revision"),
        ("--output=evil", "mat_baseline.json", "neither a file nor a git revision"),
        ("missing.json", "mat_baseline.json", "neither a file nor a git revision"),
    ],
)
def test_a_revision_without_a_report_is_refused_with_where_it_was_looked_for(
    project: Path, capsys: pytest.CaptureFixture[str], ref: str, file: str, said: str
) -> None:
    (project / "deep").mkdir()
    (project / "deep" / "x").write_text("")
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "one")
    assert main(["gate", f"--baseline={ref}", "--file", file]) == 2
    assert said in capsys.readouterr().err
    assert not (project / "evil").exists()


def test_a_text_conversion_of_the_repository_is_not_run(project: Path) -> None:
    (project / ".gitattributes").write_text("*.json diff=run filter=run\n")
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "one")
    for name in ("diff.run.textconv", "filter.run.smudge"):
        git(project, "config", name, "sh -c 'touch ran; cat'")
    read_baseline("HEAD", file="mat_baseline.json")
    assert not (project / "ran").exists()


def test_replays_of_a_report_are_reported_from_its_tests(project: Path) -> None:
    data = json.loads((project / "mat_baseline.json").read_text())
    data["items"].append({**data["items"][0], "id": "test_shop.py::test_refund[a-replay-3f2a91]", "status": "stale"})
    (project / "mat_baseline.json").write_text(json.dumps(data))
    found = baseline_of(read_baseline("mat_baseline.json", file="")[0])
    assert found.statuses == {"test_shop.py::test_refund[a-replay-3f2a91]": "stale"}
    assert found.categories == {f"test_shop.py::test_refund[{order}]": "refunds" for order in "abc"}


@pytest.mark.full
def test_a_session_that_cannot_run_is_no_judgement(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "test_shop.py").write_text("import nothing_of_that_name\n")
    assert main(["gate", "--baseline", "mat_baseline.json"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "the session did not finish (pytest's exit code is 2)" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tolerance", "sucess=0.1"], "did you mean 'success'?"),
        (["--tolerance", "success"], "is not NAME=VALUE"),
        (["--tolerance", "success=1"], "is not a share of at least 0 and below 1"),
        (["--tolerance", "success=nan"], "is not a share"),
        (["--confidence", "0"], "is not a share between 0 and 1"),
        (["--smoke", "some"], "smoke 'some' is not an integer >= 1, or all"),
        (["--undecided", "maybe"], "is not one of fail, pass"),
    ],
)
def test_a_wrong_option_is_a_message_and_two(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["gate", "--baseline", "mat_baseline.json", *arguments, "--json"]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert said in json.loads(out)["error"]["what"]


def test_replays_that_the_search_of_the_baseline_wrote_are_broken_there(project: Path) -> None:
    data = json.loads((project / "mat_baseline.json").read_text())
    item = data["items"][0]
    plain = {**item, "id": "test_shop.py::test_other", "replays": ["mat_replays/test_other-a1b2c3.mat.json"]}
    data["items"] += [plain]
    item["replays"] = ["mat_replays/test_refund-3f2a91.mat.json"]
    (project / "mat_baseline.json").write_text(json.dumps(data))
    found = baseline_of(read_baseline("mat_baseline.json", file="")[0])
    assert found.discovered == {f"{item['id'][:-1]}-replay-3f2a91]", "test_shop.py::test_other[replay-a1b2c3]"}
    assert found.statuses == {}


@pytest.mark.nightly
def test_the_gate_right_after_a_report_of_a_search_passes_on_the_same_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider -p no:asyncio\n")
    (tmp_path / "test_pay.py").write_text(
        "import mat, pytest\nfrom mat_contracts import no_duplicate_effect\n\n\n"
        "@mat.tool(effect='write')\ndef refund(order):\n    return {'order': order}\n\n\n"
        "@pytest.fixture\ndef once():\n    return no_duplicate_effect('refund', key='order')\n\n\n"
        "@pytest.mark.mat(budget=4, seeds=2)\ndef test_pay(mat_run, once):\n"
        "    for _ in range(2):\n        try:\n            refund('A17')\n            return\n"
        "        except TimeoutError:\n            pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--mat-stress", "--mat-report", "mat_baseline.json"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    assert list(tmp_path.glob("mat_replays/*"))
    main(["gate", "--baseline", "mat_baseline.json", "--json"])
    found = json.loads(capfd.readouterr().out)
    lines = {line["aspect"]: line["verdict"] for line in found["lines"]}
    assert lines["replays"] == "kept"

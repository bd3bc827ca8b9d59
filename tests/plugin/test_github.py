"""What a session writes for GitHub Actions: only there, or where it is asked to, and never secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

NAIVE = """
@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double):
    shop.naive()
"""


@pytest.fixture
def actions(shop: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A shop in a job of GitHub Actions, in a subfolder of the workspace."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(shop.path.parent))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(shop.path / "step.md"))
    shop.tests(NAIVE)
    return shop


def commands(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("::")]


@pytest.mark.full
def test_a_broken_contract_is_an_annotation_at_the_agents_line_and_in_the_jobs_summary(actions: Any) -> None:
    session = actions.stress("--mat-report", "out.sarif")
    (line,) = commands(session.text)
    folder = actions.path.name
    assert line.startswith(f"::error file={folder}/shop.py,line=22,title=broken%3A no_double (cost 4)::o1 was refunded twice")
    assert "%0Arepair: ask what happened before a retry%0Amat show mat_replays/" in line
    summary = (actions.path / "step.md").read_text()
    assert summary.startswith("## MAT: 1 broken")
    assert "Repair: ask what happened before a retry" in summary
    actions.run("-k", "replay")
    assert (actions.path / "step.md").read_text().count("## MAT: ") == 2  # appended
    (result,) = json.loads((actions.path / "out.sarif").read_text())["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == (f"{folder}/shop.py", 22)


@pytest.mark.full
def test_it_can_be_forbidden_and_forced(actions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert commands(actions.stress("--mat-github", "off").text) == []
    assert not (actions.path / "step.md").exists()
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name)
    assert commands(actions.stress().text) == []
    assert len(commands(actions.stress("--mat-github", "on").text)) == 1


def test_a_nominal_session_annotates_without_printing_a_summary(actions: Any) -> None:
    actions.tests(
        """
        def test_refund(mat_run, no_refund):
            shop.naive()
        """
    )
    session = actions.run()
    (line,) = commands(session.text)
    assert "title=broken%3A no_refund (nominal run)::" in line
    assert "BROKEN" not in session.text


def test_no_declared_secret_is_written(actions: Any) -> None:
    actions.conftest(
        """
        mat.secret("hunter2-hunter2")

        @pytest.fixture
        def loud():
            @mat.step_contract(on="tool_call", id="loud")
            def loud(record):
                return mat.Violated("used hunter2-hunter2", repair="do not say hunter2-hunter2")
            return loud
        """
    )
    actions.tests(
        """
        def test_refund(mat_run, loud):
            shop.naive()
        """
    )
    session = actions.run("--mat-report", "out.sarif")
    assert len(commands(session.text)) == 1
    for text in (*commands(session.text), (actions.path / "step.md").read_text(), (actions.path / "out.sarif").read_text()):
        assert "loud" in text
        assert "hunter2" not in text

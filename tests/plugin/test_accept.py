"""Findings that a project lives with: accepted until a date, or known from an earlier report. What is new still fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mat.__main__ import main

NAIVE = """
@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double):
    shop.naive()
"""
ID = "test_shop.py::test_refund"


def found(shop: Any) -> str:
    """Search, and return the name of the replay file."""
    shop.tests(NAIVE)
    assert shop.stress().outcomes[ID] == "failed"
    (path,) = shop.replays
    return str(path.name)


def accept(shop: Any, name: str, *more: str) -> int:
    return main(["accept", f"{shop.path}/mat_replays/{name}", "--reason", "the vendor fixes it", "--by", "ada", *more])


def edit(shop: Any, **changes: object) -> None:
    path = shop.path / "mat_replays/accepted.json"
    data = json.loads(path.read_text())
    data["accepted"][0].update(changes)
    path.write_text(json.dumps(data))


@pytest.mark.full
def test_an_accepted_finding_fails_neither_its_replay_nor_its_search_and_is_shown(shop: Any) -> None:
    name = found(shop)
    replay = f"{ID}[replay-{name[-15:-9]}]"
    assert shop.run().outcomes[replay] == "failed"
    assert accept(shop, name, "--until", "2999-03-01") == 0
    session = shop.run()
    assert session.outcomes == {ID: "passed", replay: "passed"}
    assert session.statuses[replay] == "accepted"
    line = (
        f"ACCEPTED test_refund[replay-{name[-15:-9]}] cost 4 no_double: o1 was refunded twice until 2999-03-01: ada: the vendor"
    )
    assert line in " ".join(session.text.split())
    session = shop.stress()
    assert session.outcomes == {ID: "passed", replay: "passed"}
    assert session.statuses == {ID: "accepted", replay: "accepted"}
    assert session.text.count("ACCEPTED test_refund") == 1  # the replay is not a second line
    assert "2 accepted" in session.text
    (entry,) = session.report["findings"]  # one counterexample, one line, though its replay shows it, too
    assert (entry["item"], entry["standing"], entry["until"]) == (ID, "accepted", "2999-03-01")
    said = f"{replay.partition('::')[2]}: no_double is accepted until 2999-03-01: ada: the vendor fixes it"
    assert said in shop.run("-v").text
    assert shop.stress("--mat-require-proof").outcomes[ID] == "passed"


@pytest.mark.nightly
def test_after_its_date_it_fails_again_and_says_so(shop: Any) -> None:
    name = found(shop)
    accept(shop, name)
    edit(shop, since="2020-01-01", until="2020-02-01")
    for session in (shop.run(), shop.stress()):
        assert "failed" in session.outcomes.values()
        assert "its acceptance ended on 2020-02-01 (ada: the vendor fixes it)" in session.text
    assert session.statuses[ID] == "counterexample"


@pytest.mark.nightly
def test_a_cheaper_one_and_one_of_another_signature_still_fail(shop: Any) -> None:
    name = found(shop)
    accept(shop, name)
    edit(shop, cost=9)
    session = shop.stress()
    assert session.statuses[ID] == "counterexample"
    assert "cheaper (4, not 9) than the accepted one" in session.text
    signature = json.loads((shop.path / "mat_replays/accepted.json").read_text())["accepted"][0]["signatures"][0]
    for changed in ({"contract": "other"}, {"interface": "check"}, {"operator_family": "model"}):
        edit(shop, cost=4, signatures=[signature | changed])
        assert shop.stress().outcomes[ID] == "failed"
        assert set(shop.run("-k", "replay").outcomes.values()) == {"failed"}
    edit(shop, cost=4, signatures=[signature])
    assert shop.stress().outcomes[ID] == "passed"
    edit(shop, stage="attempted")
    assert "more severe (hard, effected) than the accepted one" in shop.stress().text


@pytest.mark.nightly
def test_another_contract_of_the_same_run_still_fails(shop: Any) -> None:
    name = found(shop)
    accept(shop, name)
    shop.tests(NAIVE.replace("no_double)", "no_double, calm)"))
    shop.conftest(
        """
        @pytest.fixture
        def calm():
            @mat.trace_contract(start=0, id="calm")
            def calm(count, record):
                count += record.action.name == "refund"
                return mat.Violated("asked twice", state=count) if count > 1 else count
            return calm
        """
    )
    session = shop.run("-k", "replay")
    assert set(session.outcomes.values()) == {"failed"}
    assert "calm" in next(iter(session.failures.values()))
    assert shop.stress().statuses[ID] == "counterexample"


@pytest.mark.nightly
def test_an_acceptance_that_is_no_longer_needed_is_named(shop: Any, capsys: pytest.CaptureFixture[str]) -> None:
    name = found(shop)
    accept(shop, name)
    path = shop.path / "shop.py"
    path.write_text(path.read_text().replace("def naive(tries=3", "def naive(tries=1"))
    session = shop.run()
    assert set(session.outcomes.values()) == {"passed"}
    said = " ".join(session.text.split())
    assert f"no longer broken; remove the acceptance: mat accept --remove mat_replays/{name}" in said
    session = shop.stress()
    assert session.statuses[ID] == "certified"
    lines = " ".join(session.text.split()).split("mat accept --remove ")[1:]
    assert lines
    assert all(line.startswith(f"mat_replays/{name}") for line in lines)
    assert main(["accept", "--remove", f"{shop.path}/mat_replays/{name}"]) == 0
    assert not (shop.path / "mat_replays/accepted.json").exists()
    assert "fixed:" not in shop.run().text


@pytest.mark.full
@pytest.mark.parametrize("text", ["{", "[]", '{"mat": 2, "accepted": []}', '{"mat": 1, "accepted": [{}]}'])
def test_a_damaged_file_fails_the_tests_of_its_folder(shop: Any, text: str) -> None:
    name = found(shop)
    (shop.path / "mat_replays/accepted.json").write_text(text)
    session = shop.run()
    assert set(session.outcomes.values()) == {"error"}
    assert "accepted.json" in session.failures[ID]
    assert name


@pytest.mark.nightly
def test_with_a_baseline_only_what_is_new_fails(shop: Any) -> None:
    name = found(shop)
    replay = f"{ID}[replay-{name[-15:-9]}]"
    shop.stress("--mat-report", "old.json")
    session = shop.stress("--mat-baseline", "old.json")
    assert session.outcomes == {ID: "passed", replay: "passed"}
    assert session.statuses == {ID: "known", replay: "known"}
    assert "KNOWN test_refund  cost 4  no_double: o1 was refunded twice  in the baseline" in session.text
    assert "comparison" in session.report
    data = json.loads((shop.path / "old.json").read_text())
    for each in (*data["counterexamples"], *data["findings"]):
        each["cost"] = 5
    (shop.path / "costly.json").write_text(json.dumps(data))
    session = shop.stress("--mat-baseline", "costly.json")
    assert session.outcomes[ID] == "failed"
    assert "cheaper (4, not 5) than in the baseline" in session.text
    (shop.path / "none.json").write_text(json.dumps(data | {"counterexamples": [], "findings": []}))
    assert shop.stress("--mat-baseline", "none.json").outcomes[ID] == "failed"


@pytest.mark.nightly
def test_a_baseline_does_not_prolong_an_acceptance(shop: Any) -> None:
    name = found(shop)
    shop.stress("--mat-report", "old.json")
    accept(shop, name)
    edit(shop, since="2020-01-01", until="2020-02-01")
    assert shop.stress("--mat-baseline", "old.json").outcomes[ID] == "failed"


@pytest.mark.parametrize(("text", "why"), [(None, "cannot read"), ("{", "is not JSON"), ("{}", "is not a report")])
def test_a_wrong_baseline_is_refused_before_anything_runs(shop: Any, text: str | None, why: str) -> None:
    shop.tests(NAIVE)
    if text is not None:
        (shop.path / "old.json").write_text(text)
    session = shop.run("--mat-baseline", "old.json", process=True)
    assert session.code == 4
    assert why in session.errors


@pytest.mark.full
def test_a_run_that_breaks_a_contract_at_many_steps_is_one_counterexample_everywhere(shop: Any) -> None:
    shop.tests(
        """
        @pytest.fixture
        def calm():
            @mat.trace_contract(start=0, id="calm")
            def calm(failed, record):
                if failed:
                    return mat.Violated(f"{record.action.name} after a failure", state=1)
                return int(record.observation.error is not None)
            return calm

        @pytest.mark.mat(budget=4, faults=["service.unanswered"])
        def test_refund(mat_run, calm):
            for tool in (shop.check, shop.refund, shop.check, shop.refund):
                try:
                    tool("o1")
                except TimeoutError:
                    pass
        """
    )
    session = shop.stress("--mat-report", "out.md", "--junitxml", "out.xml")
    assert session.text.count("BROKEN test_refund") == 1
    assert len(session.report["counterexamples"]) == len(session.report["findings"]) == 1
    signatures = {each["signature"]["interface"] for each in session.report["findings"][0]["signatures"]}
    assert signatures >= {"check", "refund"}
    assert (shop.path / "out.md").read_text().count("Replay: ") == 1
    assert (shop.path / "out.xml").read_text().count('name="mat.replay"') == 1
    (path,) = shop.replays
    assert main(["accept", str(path), "--reason", "x"]) == 0
    assert set(shop.stress().statuses.values()) == {"accepted"}
    assert set(shop.run().outcomes.values()) == {"passed"}


@pytest.mark.full
def test_a_flaky_finding_fails_although_it_is_accepted(shop: Any) -> None:
    """An acceptance is about a failure that can be shown again."""
    accept(shop, found(shop))
    shop.tests(
        """
        import os

        IMPORTED = os.getpid()

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double):
            try:
                shop.refund("o1")
            except TimeoutError:
                if os.getpid() == IMPORTED:
                    shop.refund("o1")
        """
    )
    session = shop.stress("--deselect", f"{ID}[replay")
    assert (session.statuses[ID], session.outcomes[ID]) == ("flaky", "failed")

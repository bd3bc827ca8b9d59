"""`mat accept`: what is written next to the replay files, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mat.__main__ import main
from mat.core.errors import MatError
from mat.core.known import KnownFinding, KnownFindings
from mat.evidence import acceptance, replay_file

TODAY = datetime.now(UTC).date()
NAME = "test_refund-1fd1ed.mat.json"


@pytest.fixture
def kept(tmp_path: Path, a_replay: replay_file.Replay) -> Path:
    path = tmp_path / "tests/mat_replays" / NAME
    replay_file.write(path, a_replay)
    return path


def accepted(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((file.parent / "accepted.json").read_text())["accepted"]
    return found


def test_an_acceptance_is_one_reviewable_line_with_signature_reason_and_dates(kept: Path, capsys: Any) -> None:
    assert main(["accept", str(kept), "--reason", " ticket 4711 ", "--until", "2999-03-01", "--by", "ada"]) == 0
    assert "accepted until 2999-03-01: refund.once, cost 4, in test_shop.py::test_refund" in capsys.readouterr().out
    (entry,) = accepted(kept)
    assert entry == {
        "replay": NAME, "test": "test_shop.py::test_refund", "stage": "effected", "cost": 4,
        "signatures": [{
            "contract": "refund.once", "severity": "hard", "action_kind": "tool_call", "interface": "refund", "risk": "high",
            "operator_family": "service",
        }],
        "reason": "ticket 4711", "since": TODAY.isoformat(), "until": "2999-03-01", "by": "ada",
    }  # fmt: skip
    assert len((kept.parent / "accepted.json").read_text().splitlines()) == 6
    (read,) = acceptance.read(kept.parent / "accepted.json")
    assert read.until == "2999-03-01"


def test_without_a_date_it_ends_after_ninety_days_and_that_is_said(kept: Path, capsys: Any) -> None:
    assert main(["accept", str(kept), "--reason", "x"]) == 0
    until = (TODAY + timedelta(days=90)).isoformat()
    assert f"accepted until {until} (90 days; --until names another day)" in capsys.readouterr().out
    assert accepted(kept)[0]["until"] == until
    assert main(["accept", str(kept), "--reason", "y", "--until", TODAY.isoformat()]) == 0  # renewed, not doubled
    assert "accepted again" in capsys.readouterr().out
    assert [(each["reason"], each["until"]) for each in accepted(kept)] == [("y", TODAY.isoformat())]


def test_list_and_remove(kept: Path, capsys: Any) -> None:
    folder = str(kept.parents[1])
    assert main(["accept", "--list", folder]) == 0
    assert capsys.readouterr().out == "nothing is accepted here\n"
    main(["accept", str(kept), "--reason", "ticket 4711"])
    capsys.readouterr()
    assert main(["accept", "--list", folder]) == 0
    said = capsys.readouterr().out
    assert "refund.once  cost 4  test_shop.py::test_refund" in said
    assert "ticket 4711" in said
    data = accepted(kept)
    (kept.parent / "accepted.json").write_text(
        json.dumps({"mat": 1, "accepted": [data[0] | {"since": "2020-01-01", "until": "2020-01-02"}]})
    )
    kept.unlink()
    assert main(["accept", "--list", folder]) == 1
    said = capsys.readouterr().out
    assert "(expired: it fails its test again)" in said
    assert "its replay file is gone" in said
    assert main(["accept", "--list", "--json", folder]) == 1
    assert json.loads(capsys.readouterr().out)["accepted"][0]["ended"] is True
    assert main(["accept", "--remove", str(kept)]) == 0  # by its name, though the replay file is gone
    assert not (kept.parent / "accepted.json").exists()
    assert main(["accept", "--remove", str(kept)]) == 2
    assert "is not accepted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "an acceptance needs a reason"),
        (["--reason", "  "], "the reason is empty"),
        (["--reason", "a\x1b[31mb"], "control characters"),
        (["--reason", "x" * 2_000], "more than 1000 characters"),
        (["--reason", "x", "--until", "2020-01-01"], "--until 2020-01-01 is in the past"),
        (["--reason", "x", "--list"], "--reason cannot be combined with --list"),
    ],
)
def test_what_cannot_stand_is_refused_and_nothing_is_written(kept: Path, capsys: Any, options: list[str], said: str) -> None:
    assert main(["accept", str(kept), *options]) == 2
    assert said in capsys.readouterr().err
    assert not (kept.parent / "accepted.json").exists()


@pytest.mark.parametrize("text", ["tomorrow", "2027-13-01", "20270301", "2027-W01-1", "2027-3-1", "٢٠٢٧-٠٣-٠١"])
def test_a_date_has_one_form(kept: Path, capsys: Any, text: str) -> None:
    with pytest.raises(SystemExit):
        main(["accept", str(kept), "--reason", "x", "--until", text])
    assert "is not a date of the form YYYY-MM-DD" in capsys.readouterr().err


def test_a_wrong_file_is_refused(kept: Path, tmp_path: Path, capsys: Any, a_replay: replay_file.Replay) -> None:
    other = tmp_path / NAME
    replay_file.write(other, a_replay)
    report = tmp_path / "report.json"
    report.write_text("{}")
    for path, said in (
        (other, "is not in a folder mat_replays"),
        (report, "not a replay file"),
        (tmp_path / "no", "no such file"),
    ):
        assert main(["accept", str(path), "--reason", "x"]) == 2
        assert said in capsys.readouterr().err
    replay_file.write(kept, replace(a_replay, expected=True))
    assert main(["accept", str(kept), "--reason", "x"]) == 2
    assert "needs no acceptance" in capsys.readouterr().err
    assert main(["accept"]) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"until": "2999-02-30"}, {"until": "9999"}, {"reason": " "}, {"signatures": []}, {"cost": -1}, {"cost": "4.5"},
        {"replay": "../x.mat.json"}, {"replay": "x.py"}, {"test": "a\nb"}, {"by": "\u202e"}, {"more": 1}, {"stage": "done"},
        {"signatures": [{"contract": "a"}]},
    ],
)  # fmt: skip
def test_a_file_from_outside_is_checked_field_by_field(kept: Path, changes: dict[str, Any], capsys: Any) -> None:
    main(["accept", str(kept), "--reason", "x"])
    path = kept.parent / "accepted.json"
    path.write_text(json.dumps({"mat": 1, "accepted": [accepted(kept)[0] | changes]}))
    with pytest.raises(MatError) as caught:
        acceptance.read(path)
    assert str(caught.value).isprintable() or "\n" in str(caught.value)
    assert caught.value.where == str(path)
    assert caught.value.fix
    assert main(["accept", "--list", str(kept.parents[1])]) == 2


def test_only_the_same_finding_at_the_same_cost_or_more_is_covered(a_replay: replay_file.Replay) -> None:
    made = acceptance.acceptance_of(a_replay, NAME, reason="x", by="", today=date(2026, 1, 1), until=date(2026, 1, 31))
    signature = a_replay.counterexample.signature
    known = KnownFindings(accepted=(made,), today="2026-01-31")
    assert known.standing(signature, "effected", 4).kind == "accepted"
    assert known.standing(signature, "attempted", 9).kind == "accepted"
    assert known.standing(replace(signature, severity="soft"), "effected", 4).kind == "accepted"
    assert known.standing(signature, "effected", 3).remark == "cheaper (3, not 4) than the accepted one (x)"
    for name in ("contract", "action_kind", "interface", "risk", "operator_family"):
        assert known.standing(replace(signature, **{name: "other"}), "effected", 4).kind == "new"
    wider = replace(signature, operator_family="model+service")
    assert known.standing(wider, "effected", 4).kind == "new"
    assert known.standing(wider, "effected", 4, within=True).kind == "accepted"
    assert replace(known, today="2026-02-01").standing(signature, "effected", 4).kind == "new"
    attempted = replace(known, accepted=(replace(made, stage="attempted"),))
    assert "more severe" in attempted.standing(signature, "effected", 4).remark
    soft = KnownFinding(test="t", stage="effected", cost=4, signatures=(replace(signature, severity="soft"),))
    assert "more severe" in KnownFindings(baseline=(soft,)).standing(signature, "effected", 4).remark

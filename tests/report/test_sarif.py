"""Findings for code scanning: valid SARIF, at the agent's line, with fingerprints that stay, and inert text."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from mat.core.campaign import Counterexample, ItemResult, Signature, StagedSignature
from mat.report.build import build
from mat.report.document import Document, FindingLine
from mat.report.files import ReportExtras, rendered
from mat.report.sarif import as_sarif, fingerprint
from mat.report.source_lines import SourceFolders, SourceLine, line_of

HERE = SourceFolders()


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


TEXT: dict[str, Any] = {"type": "string"}
MESSAGE = _object("text", text={"type": "string", "minLength": 1})
LEVEL = {"enum": ["none", "note", "warning", "error"]}
LOCATION = _object(
    "physicalLocation",
    physicalLocation=_object(
        "artifactLocation",
        artifactLocation=_object("uri", uri={"type": "string", "format": "uri-reference"}, uriBaseId=TEXT),
        region=_object("startLine", startLine={"type": "integer", "minimum": 1}),
    ),
)
RULE = _object(
    "id", id=TEXT, shortDescription=MESSAGE, fullDescription=MESSAGE, help=MESSAGE,
    defaultConfiguration=_object("level", level=LEVEL), properties={"type": "object"},
)  # fmt: skip
RESULT = _object(
    "message ruleId ruleIndex", ruleId=TEXT, ruleIndex={"type": "integer", "minimum": 0}, level=LEVEL, message=MESSAGE,
    locations=_list(LOCATION), partialFingerprints={"type": "object", "additionalProperties": TEXT},
    suppressions=_list(
        _object("kind", kind={"enum": ["inSource", "external"]}, status={"enum": ["accepted"]}, justification=TEXT)
    ),
    properties={"type": "object"},
)  # fmt: skip
NOTIFICATION = _object("message", message=MESSAGE, level=LEVEL, locations=_list(LOCATION))
RUN = _object(
    "tool",
    tool=_object("driver", driver=_object("name", name=TEXT, semanticVersion=TEXT, rules={**_list(RULE), "uniqueItems": True})),
    invocations=_list(
        _object(
            "executionSuccessful",
            executionSuccessful={"type": "boolean"},
            toolExecutionNotifications=_list(NOTIFICATION),
        )
    ),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    results=_list(RESULT),
)
LOG = _object("version runs", version={"enum": ["2.1.0"]}, runs=_list(RUN), **{"$schema": {"type": "string", "format": "uri"}})
"""The rules of SARIF 2.1.0 for the objects that are written: names, types, what is required; nothing else is allowed."""

SIGNATURE = Signature(
    contract="refund.once", severity="hard", action_kind="tool_call", interface="refund", risk="high", operator_family="service"
)
FOUND = FindingLine(
    item="tests/test_shop.py::test_refund", test="tests/test_shop.py::test_refund", standing="new", contract="refund.once",
    contracts=("refund.once", "work.moves"), severity="hard", stage="effected", step=3, agent="clerk", cost=4,
    message="refunded twice", repair="send an idempotency key", causes=("the reply of the 1st refund call is lost",),
    place="shop/agent.py:22", replay="tests/mat_replays/test_refund-1fd1ed.mat.json",
    signatures=(StagedSignature(stage="effected", signature=SIGNATURE),), executions=3, reproduced=3,
)  # fmt: skip


def document(*findings: FindingLine, items: tuple[ItemResult, ...] = ()) -> Document:
    return replace(build(items, []), findings=findings)


def log_of(*findings: FindingLine, items: tuple[ItemResult, ...] = (), folders: SourceFolders = HERE) -> Any:
    data = as_sarif(document(*findings, items=items), folders=folders)
    jsonschema.validate(data, LOG)
    (run,) = data["runs"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    return run


def test_a_finding_is_a_result_at_the_agents_line_with_cause_and_repair() -> None:
    run = log_of(FOUND)
    (rule,) = run["tool"]["driver"]["rules"]
    assert (rule["id"], rule["defaultConfiguration"]["level"]) == ("refund.once", "error")
    (result,) = run["results"]
    assert result["level"] == "error"
    assert result["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "shop/agent.py", "uriBaseId": "%SRCROOT%"},
                "region": {"startLine": 22},
            }
        }
    ]
    assert result["message"]["text"] == (
        "refunded twice when the reply of the 1st refund call is lost, cost 4, in tests/test_shop.py::test_refund. "
        "The run also breaks work.moves. Repair: send an idempotency key. "
        "Steps: mat show tests/mat_replays/test_refund-1fd1ed.mat.json"
    )
    assert "suppressions" not in result


def test_the_fingerprint_stays_when_line_message_and_cost_change_and_differs_for_another_failure() -> None:
    moved = replace(FOUND, place="shop/other.py:99", message="o2 was refunded twice", cost=8, step=7, replay="x.mat.json")
    assert fingerprint(moved) == fingerprint(FOUND)
    other = (StagedSignature(stage="effected", signature=replace(SIGNATURE, interface="charge")),)
    for changed in (replace(FOUND, test="t.py::test_b"), replace(FOUND, signatures=other), replace(FOUND, contract="other")):
        assert fingerprint(changed) != fingerprint(FOUND)


def test_what_fails_no_test_is_a_note_with_a_suppression() -> None:
    accepted = replace(FOUND, standing="accepted", until="2999-01-01", remark="ada: ticket 4711")
    run = log_of(accepted, replace(FOUND, standing="expected"), replace(FOUND, standing="known", remark="in the baseline"))
    assert [result["level"] for result in run["results"]] == ["note"] * 3
    assert [result["suppressions"][0] for result in run["results"]] == [
        {"kind": "external", "status": "accepted", "justification": "ada: ticket 4711 (until 2999-01-01)"},
        {"kind": "inSource", "status": "accepted", "justification": "the test expects it (expect=)"},
        {"kind": "external", "status": "accepted", "justification": "in the baseline"},
    ]
    assert len(run["tool"]["driver"]["rules"]) == 1


def test_items_that_are_open_are_notifications() -> None:
    run = log_of(items=(ItemResult(id="t.py::test_a", status="not_proven", reason="max-runs reached"),))
    (said,) = run["invocations"][0]["toolExecutionNotifications"]
    assert said["message"]["text"] == "t.py::test_a: not proven: max-runs reached"
    assert run["results"] == []


@pytest.mark.parametrize(
    ("place", "test", "expected"),
    [
        ("agent.py:22", "test_shop.py::test_a", SourceLine(file="services/desk/agent.py", line=22)),
        ("sub\\agent.py:22", "test_shop.py::test_a", SourceLine(file="services/desk/sub/agent.py", line=22)),
        ("", "test_shop.py::test_a", SourceLine(file="services/test_shop.py")),
        ("../../etc/passwd:1", "test_shop.py::test_a", SourceLine(file="services/test_shop.py")),
        ("/etc/passwd:1", "../test_shop.py::test_a", None),
        ("C:/x.py:1", "\n::test_a", None),
        ("agent.py:0", "", None),
    ],
)
def test_no_place_of_a_report_leads_out_of_the_repository(place: str, test: str, expected: SourceLine | None) -> None:
    found = replace(FOUND, place=place, test=test)
    assert line_of(found, SourceFolders(calls="services/desk", tests="services")) == expected
    log_of(found, folders=SourceFolders(calls="services/desk", tests="services"))


def test_text_of_agents_makes_no_links_and_no_control_characters() -> None:
    evil = replace(FOUND, message="[click](http://evil) \x1b[31m\u202e", contract="a\nb", repair="[x](1)", contracts=("a\nb",))
    (result,) = log_of(evil)["results"]
    assert "\\[click\\](http://evil)" in result["message"]["text"]
    assert "\\[x\\](1)" in result["message"]["text"]
    assert result["message"]["text"].isprintable()
    assert result["ruleId"] == "a\\nb"


def test_a_report_is_written_as_sarif_by_its_suffix_with_equal_bytes() -> None:
    one, again = (rendered(document(FOUND), "sarif", ReportExtras(folders=SourceFolders(calls="a"))) for _ in range(2))
    assert one == again
    assert json.loads(one)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == (
        "a/shop/agent.py"
    )


def test_a_report_of_replay_files_or_of_an_earlier_version_has_its_counterexamples(found: Counterexample) -> None:
    result = ItemResult(id="t.py::test", status="counterexample", counterexamples=(found,), replays=("a.mat.json",))
    data = as_sarif(build([result], []), folders=HERE)
    jsonschema.validate(data, LOG)
    (said,) = data["runs"][0]["results"]
    assert (said["ruleId"], said["level"], said["properties"]["replay"]) == ("refund.once", "error", "a.mat.json")
    measured = build([replace(result, status="evaluated")], [])
    assert as_sarif(measured, folders=HERE)["runs"][0]["results"] == []

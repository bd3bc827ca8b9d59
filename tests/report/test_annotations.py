"""What GitHub shows: annotations that no text can break out of, and a short summary of the job."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from mat.core.campaign import BrokenRun, ItemResult, Signature, StagedSignature
from mat.core.spec import Schedule
from mat.core.verdict import Violation
from mat.report.annotations import MOST, annotation_lines, command
from mat.report.brief import broken_lines, namer
from mat.report.build import build
from mat.report.document import Document, FindingLine
from mat.report.findings import finding_line
from mat.report.markdown import session_summary
from mat.report.source_lines import SourceFolders, SourceLine

SIGNATURE = Signature(
    contract="refund.once", severity="hard", action_kind="tool_call", interface="refund", risk="high", operator_family="service"
)
FOUND = FindingLine(
    item="t.py::test_refund", test="t.py::test_refund", standing="new", contract="refund.once", contracts=("refund.once",),
    severity="hard", stage="effected", step=3, agent="clerk", cost=4, message="refunded twice",
    repair="send an idempotency key", causes=("the reply is lost",), place="agent.py:22", replay="mat_replays/a.mat.json",
    signatures=(StagedSignature(stage="effected", signature=SIGNATURE),),
)  # fmt: skip
ACCEPTED = replace(FOUND, standing="accepted", until="2999-01-01", remark="ada: ticket 4711")
EVIL = "100%\r\n::set-env name=PATH::x\u2028\x1b[2J::stop-commands::t"


def document(*findings: FindingLine, items: tuple[ItemResult, ...] = ()) -> Document:
    return replace(build(items, []), findings=findings)


def commands(*findings: FindingLine, items: tuple[ItemResult, ...] = ()) -> list[str]:
    return annotation_lines(document(*findings, items=items), folders=SourceFolders())


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """A command as the runner of GitHub Actions reads it."""
    match = re.fullmatch(r"::(\w+) ([^:]*)::(.*)", line)
    assert match is not None, line
    pairs = dict(pair.split("=", 1) for pair in match[2].split(","))
    for sign, code in (("\r", "%0D"), ("\n", "%0A"), (":", "%3A"), (",", "%2C"), ("%", "%25")):
        pairs = {name: value.replace(code, sign) for name, value in pairs.items()}
    message = match[3].replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
    return match[1], pairs, message


def test_a_finding_is_an_error_at_the_agents_line_and_an_accepted_one_a_notice() -> None:
    error, notice = map(parsed, commands(ACCEPTED, FOUND))
    assert error == (
        "error", {"file": "agent.py", "line": "22", "title": "broken: refund.once (cost 4)"},
        "refunded twice when the reply is lost\nrepair: send an idempotency key\nmat show mat_replays/a.mat.json",
    )  # fmt: skip
    assert notice[0] == "notice"
    assert "accepted until 2999-01-01: ada: ticket 4711" in notice[2]


def test_what_is_open_is_a_warning_and_a_failed_test_is_left_to_others() -> None:
    items = (
        ItemResult(id="t.py::test_a", status="not_proven", reason="max-runs reached"),
        ItemResult(id="t.py::test_b", status="failed"), ItemResult(id="t.py::test_c", status="certified"),
    )  # fmt: skip
    assert list(map(parsed, commands(items=items))) == [
        ("warning", {"file": "t.py", "title": "not proven: test_a"}, "max-runs reached")
    ]


@pytest.mark.parametrize("name", ["message", "repair", "remark", "test", "contract", "place"])
def test_no_text_ends_a_command_or_begins_another(name: str) -> None:
    changes: dict[str, Any] = {name: EVIL}
    if name == "contract":
        changes["contracts"] = (EVIL,)
    lines = commands(replace(FOUND, **changes))
    assert len(lines) == 1
    assert lines[0].isprintable()
    level, properties, _ = parsed(lines[0])
    assert level == "error"
    assert set(properties) <= {"file", "line", "title"}


def test_properties_escape_colons_and_commas_and_messages_keep_their_lines() -> None:
    line = command("error", "a%0Ab", "c", title="x,y:z", line=SourceLine(file="a,b:c.py", line=1))
    assert line == "::error file=a%2Cb%3Ac.py,line=1,title=x%2Cy%3Az::a%250Ab%0Ac"


def test_more_annotations_than_github_shows_say_how_many_are_left() -> None:
    many = [replace(FOUND, message=f"number {number}") for number in range(MOST + 5)]
    lines = commands(*many)
    assert len(lines) == MOST
    assert parsed(lines[-1])[2] == "6 more are in the report"


def test_the_summary_of_a_job_is_short_and_says_what_needs_a_person() -> None:
    items = (
        ItemResult(id="t.py::test_refund", status="counterexample", executions=9),
        ItemResult(id="t.py::test_b", status="accepted"),
        ItemResult(id="t.py::test_a", status="not_proven", reason="max-runs reached"),
    )  # fmt: skip
    assert session_summary(document(FOUND, ACCEPTED, items=items)).splitlines() == [
        "## MAT: 1 broken, 1 accepted, 1 not proven", "",
        "### Broken (1)", "",
        "- **refund.once**, cost 4, in t.py::test\\_refund (agent.py:22): refunded twice when the reply is lost. "
        "Repair: send an idempotency key. `mat show mat_replays/a.mat.json`", "",
        "### Open (1)", "",
        "- not proven: t.py::test\\_a: max-runs reached", "",
        "### Accepted (1)", "",
        "- **refund.once**, cost 4, in t.py::test\\_refund (agent.py:22): refunded twice when the reply is lost. "
        "Repair: send an idempotency key. **Until 2999-01-01**: ada: ticket 4711. `mat show mat_replays/a.mat.json`", "",
    ]  # fmt: skip


def test_agents_write_no_markup_links_or_lines_into_the_summary() -> None:
    evil = replace(FOUND, message="<img src=x>\n# Title | ![x](http://evil) www.evil.test", repair="`x` **y**")
    text = session_summary(document(evil))
    assert "<img" not in text
    assert "\n# Title" not in text
    assert "http://" not in text
    assert "www." not in text
    many = session_summary(document(*[replace(FOUND, message=f"{number}" * 900) for number in range(50)]))
    assert "- and 30 more" in many
    assert len(many) < 20_000


def test_no_line_of_the_summary_is_a_command_of_github() -> None:
    verdict = Violation(
        contract="c", severity="hard", stage="effected", step=0, agent="a", role="",
        message="::set-output name=a::b " + "x" * 60 + " ::stop-commands::t", repair="::error::c",
    )  # fmt: skip
    run = BrokenRun(verdict=verdict, contracts=("c",), schedule=Schedule())
    said = broken_lines([finding_line("t.py::test", run)], namer(["t.py::test"]), width=60)
    assert len(said) > 4
    assert not any(str(line).lstrip().startswith("::") for line in said)
    assert "stop-commands" in "".join(map(str, said))

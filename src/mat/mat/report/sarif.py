"""Writes the findings of a report as SARIF 2.1.0, for code scanning and editors.

A rule is a contract. A result is a run that breaks contracts: at the line of the agent's call, with cause and repair. Its
fingerprint is made of the test and the signatures, so that it is the same in each session, wherever the line has moved.
What fails no test is a note with a suppression: accepted findings until their date, and what a test expects.

Source: SARIF 2.1.0 (OASIS standard), 3.27 (result), 3.49 (reportingDescriptor), 3.35 (suppression).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any, Final
from urllib.parse import quote

from mat.core.campaign import ItemStatus
from mat.core.digest import digest
from mat.report import words
from mat.report.document import Document, FindingLine
from mat.report.findings import findings_of
from mat.report.source_lines import SourceFolders, SourceLine, line_of, test_file

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT: Final = "%SRCROOT%"
_FINGERPRINT: Final = "matFinding/v1"
_OPEN: Final[tuple[ItemStatus, ...]] = ("flaky", "missed", "stale", "vacuous", "not_proven", "not_judged")
"""The statuses of items that are reported as notifications, because none is a violation at a place."""


def sarif_text(document: Document, *, folders: SourceFolders) -> str:
    """The findings as SARIF: ASCII, indented, final newline. Equal reports give equal bytes."""
    return json.dumps(as_sarif(document, folders=folders), ensure_ascii=True, indent=1) + "\n"


def as_sarif(document: Document, *, folders: SourceFolders) -> dict[str, Any]:
    """The findings as the data of a SARIF log."""
    findings = findings_of(document)
    contracts = list(dict.fromkeys(found.contract for found in findings))
    rules = {name: place for place, name in enumerate(contracts)}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "pytest-mat",
                        "semanticVersion": _version(),
                        "rules": [_rule(name, findings) for name in contracts],
                    }
                },
                "invocations": [
                    {
                        "executionSuccessful": not document.interrupted,
                        "toolExecutionNotifications": list(_notifications(document, folders)),
                    }
                ],
                "columnKind": "unicodeCodePoints",
                "results": [_result(found, rules[found.contract], folders) for found in findings],
            }
        ],
    }


def _version() -> str:
    from importlib import metadata

    return metadata.version("pytest-mat")


def _rule(contract: str, findings: Sequence[FindingLine]) -> dict[str, Any]:
    """A contract as a rule: its severity, and the repairs that its violations name."""
    own = [found for found in findings if found.contract == contract]
    hard = any(found.severity == "hard" for found in own)
    repairs = list(dict.fromkeys(found.repair for found in own if found.repair))
    said = "; ".join(repairs) if repairs else "see the contract, and the steps of the counterexample (mat show)"
    about = f"The {'hard' if hard else 'soft'} contract {contract} must hold in every run, runs under faults included."
    return {
        "id": words.clean(contract),
        "shortDescription": _message(f"{contract} is broken"),
        "fullDescription": _message(about),
        "help": _message(f"{about} To repair a violation: {said}"),
        "defaultConfiguration": {"level": "error" if hard else "warning"},
        "properties": {"tags": ["agents", "contract"]},
    }


def _result(found: FindingLine, rule: int, folders: SourceFolders) -> dict[str, Any]:
    line = line_of(found, folders)
    return {
        "ruleId": words.clean(found.contract),
        "ruleIndex": rule,
        "level": _level(found),
        "message": _message(finding_text(found)),
        **({"locations": [_location(line)]} if line is not None else {}),
        "partialFingerprints": {_FINGERPRINT: fingerprint(found)},
        **({"suppressions": [_suppression(found)]} if found.standing != "new" else {}),
        "properties": {
            "test": words.clean(found.test), "cost": found.cost, "stage": found.stage,
            "contracts": [words.clean(name) for name in found.contracts], "replay": words.clean(found.replay),
        },
    }  # fmt: skip


def _level(found: FindingLine) -> str:
    if found.standing != "new":
        return "note"
    return "error" if found.severity == "hard" else "warning"


def fingerprint(found: FindingLine) -> str:
    """What identifies a finding in all sessions: the test and the kind of failure, not its line, message or cost."""
    kinds = sorted({(each.stage, *map(str, astuple(each.signature))) for each in found.signatures})
    return digest([found.test, found.contract, [list(kind) for kind in kinds]])


def finding_text(found: FindingLine) -> str:
    """A finding in sentences: what broke, when, by which other contracts, and what would repair it."""
    cause = f"when {'; '.join(found.causes)}" if found.causes else "in the nominal run"
    text = f"{found.message} {cause}, cost {found.cost}, in {found.test}."
    others = [name for name in found.contracts if name != found.contract]
    text += f" The run also breaks {', '.join(others)}." if others else ""
    text += f" Repair: {found.repair}." if found.repair else ""
    if found.until:
        text += f" Accepted until {found.until}: {found.remark}."
    elif found.remark:
        text += f" {found.remark[0].upper()}{found.remark[1:]}."
    return text + (f" Steps: {words.show_command(found.replay)}" if found.replay else "")


def _suppression(found: FindingLine) -> dict[str, Any]:
    """Why a finding fails no test. What a test expects stands in its source; the rest stands in a file."""
    if found.standing == "expected":
        return {"kind": "inSource", "status": "accepted", "justification": "the test expects it (expect=)"}
    until = f" (until {found.until})" if found.until else ""
    return {"kind": "external", "status": "accepted", "justification": words.clean(f"{found.remark}{until}")}


def _notifications(document: Document, folders: SourceFolders) -> Iterator[dict[str, Any]]:
    for item in document.items:
        if item.status not in _OPEN:
            continue
        line = test_file(item.id, folders)
        yield {
            "level": "warning",
            "message": _message(f"{item.id}: {item.status.replace('_', ' ')}{f': {item.reason}' if item.reason else ''}"),
            **({"locations": [_location(line)]} if line is not None else {}),
        }


def _location(line: SourceLine) -> dict[str, Any]:
    """A place in the repository. Without a line, the first one: viewers refuse a place without a region."""
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(line.file), "uriBaseId": _ROOT},
            "region": {"startLine": line.line or 1},
        }
    }


def _message(text: str) -> dict[str, str]:
    """Text from runs as a message: no control characters, and no links, which brackets would make (SARIF, 3.11.6)."""
    clean = words.clean(text).replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    return {"text": clean}

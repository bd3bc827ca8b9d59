"""The result of an item as properties of its reports, which pytest writes into the --junitxml file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from mat.core.campaign import ItemResult

PREFIX: Final = "mat."


def annotate(item: pytest.Item, reports: Sequence[pytest.TestReport], result: ItemResult) -> None:
    """Add the properties of a result to the reports of its item.

    JUnit takes them from the teardown report, which may be made again later, so the item gets them as well.
    """
    added = [(f"{PREFIX}{name}", value) for name, value in properties(result)]
    for properties_of in (item.user_properties, *(report.user_properties for report in reports)):
        kept = [known for known in properties_of if not str(known[0]).startswith(PREFIX)]
        properties_of[:] = [*kept, *added]


def properties(result: ItemResult) -> Iterator[tuple[str, str]]:
    """Names and values as text, without unknown values. Each replay file and each finding is a property of its own."""
    yield "status", result.status
    yield "executions", str(result.executions)
    if result.category:
        yield "category", result.category
    certificate = result.certificate
    if certificate is not None:
        yield "proven", "true" if certificate.proven else "false"
        if certificate.proven:
            yield "bound", str(certificate.bound)
    if result.counterexamples:
        found = result.counterexamples[0]
        yield "cost", str(found.cost)
        yield "contract", found.verdict.contract
        yield "step", str(found.verdict.step)
    reason = result.reason or (certificate.reason if certificate is not None else "")
    if reason:
        yield "reason", reason
    for path in result.replays:
        yield "replay", path
    for finding in result.findings:
        yield "finding", f"{finding.code}: {finding.message}"

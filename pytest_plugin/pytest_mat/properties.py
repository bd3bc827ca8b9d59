"""Properties in the --junitxml file: the result of each item, and the metrics of the session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pytest

from mat.core.campaign import ItemResult
from mat.core.redact import cleaned

if TYPE_CHECKING:
    from mat.measure.estimate import Estimate
    from mat.report.document import MetricLine

PREFIX: Final = "mat."


def annotate(item: pytest.Item, reports: Sequence[pytest.TestReport], result: ItemResult) -> None:
    """Add the properties of a result to the reports of its item.

    The JUnit file takes them from the teardown report. If the teardown fails, that report is made anew from the item, so the
    item gets them as well.
    """
    added = [(f"{PREFIX}{name}", value) for name, value in properties(result)]
    for properties_of in (item.user_properties, *(report.user_properties for report in reports)):
        kept = [known for known in properties_of if not str(known[0]).startswith(PREFIX)]
        properties_of[:] = cleaned([*kept, *added])


def annotate_suite(config: pytest.Config, metrics: Sequence[MetricLine]) -> None:
    """Add metrics to the properties of the whole session in the --junitxml file."""
    from _pytest.junitxml import xml_key  # pytest offers this to fixtures only

    xml = config.stash.get(xml_key, None)
    if xml is not None:
        for metric in metrics:
            xml.add_global_property(f"{PREFIX}{metric.name}", in_words(metric.estimate))


def in_words(estimate: Estimate) -> str:
    """A number with its interval and n: `0.9167 [0.3725, 0.9956] n=12`; an end without a bound is "?".

    >>> from mat.measure.interval import wilson
    >>> in_words(wilson(11, 12))
    '0.9167 [0.6461, 0.9851] n=12'
    """
    value, low, high = ("?" if number is None else f"{number:.4g}" for number in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}] n={estimate.n}"


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
        found = next(
            (each for index, each in enumerate(result.counterexamples) if result.standing(index).kind == "new"),
            result.counterexamples[0],
        )
        yield "cost", str(found.cost)
        yield "contract", found.verdict.contract
        yield "step", str(found.verdict.step)
    reason = result.reason or (certificate.reason if certificate is not None else "")
    if reason:
        yield "reason", reason
    for path in dict.fromkeys(result.replays):
        yield "replay", path
    for index, found in enumerate(result.counterexamples):
        standing = result.standing(index)
        if standing.kind == "new" and standing.remark:
            yield "remark", f"{found.verdict.contract}: {standing.remark}"
        elif standing.kind in ("accepted", "known"):
            until = f" until {standing.until}" if standing.until else ""
            yield standing.kind, f"{found.verdict.contract}{until}: {standing.remark}"
    for finding in result.findings:
        yield "finding", f"{finding.code}: {finding.message}"

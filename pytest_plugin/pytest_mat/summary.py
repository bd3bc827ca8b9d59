"""The summary at the end of a session, and the reports that it writes. Workers of pytest-xdist send the items' results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from mat.core.campaign import BROKE
from mat.core.codec import decode
from mat.core.errors import MatError
from mat.core.redact import cleaned
from mat_study.measuring import ItemReport
from pytest_mat import github
from pytest_mat.known import baseline_of
from pytest_mat.options import (
    COLLECTED,
    asked_variants,
    compares,
    ends_with_summary,
    session_began_ns,
    verbosity_of,
    width_of,
)

if TYPE_CHECKING:
    from mat.report.brief import BriefLine
    from mat.report.document import Document, FindingLine, ItemLine
    from mat.report.files import ReportExtras

_payloads: list[Any] = []
_DOCUMENT: pytest.StashKey[Document] = pytest.StashKey()
"""The report of the session."""


def keep_report(data: Any) -> None:
    """Keep an item's report, given as JSON data. It is decoded only if something prints or writes it."""
    _payloads.append(data)


def forget() -> None:
    """Drop the items' reports, so that a later session in this process starts without them."""
    _payloads.clear()


def _reports(config: pytest.Config) -> list[ItemReport]:
    """The items' reports in the order of collection, because workers of pytest-xdist finish in any order."""
    names: list[str] = config.stash.get(COLLECTED, [])
    places = {cleaned(name): place for place, name in enumerate(names)}
    ordered = sorted(_payloads, key=lambda data: places.get(data["result"]["id"], len(places)))
    return [decode(ItemReport, data, where="the report of an item") for data in ordered]


def _untried(reports: Sequence[ItemReport]) -> list[str]:
    """The contracts that are armed for several tests and that none of them triggered."""
    tried = {name for each in reports for name in each.result.tried}
    return sorted({name for each in reports for name in each.result.untried} - tried)


def print_summary(reporter: Any, config: pytest.Config, *, interrupted: bool = False) -> None:
    """Print the closing section and write the reports of --mat-report; if nothing ran, they are empty and a line says so.

    Numbers with intervals take time to compute, so this computes them only if they are printed or written.
    """
    names: Sequence[str] = config.getoption("mat_report") or ()
    asked, kept = asked_variants(config), config.getoption("mat_store")
    printed = bool(_payloads) and ends_with_summary(config)
    held = not printed and any(_is_held(data["result"]["status"], data["result"]["notes"]) for data in _payloads)
    for_github = bool(_payloads) and github.is_asked(config)
    if not (printed or held or names or asked or kept is not None or for_github):
        return
    if config.getoption("mat_evaluate"):
        _count_broken(reporter)
    reports = _reports(config)
    if printed:
        _print(reports, reporter, config, interrupted=interrupted)
    elif held:
        _print_held(reports, reporter, config)
    if for_github:
        github.write(replace(_document(reports, config), interrupted=interrupted), reporter, config)
    if reports:  # a variant that nothing ran under is a typing error, or the session has no governance
        used = {row.variant for each in reports for row in each.governed} | {"all", "none"}
        for name in asked:
            if name not in used:
                reporter.write_line(f"mat: no test of this session has the governance variant {name!r}")
    if names:
        document = replace(_document(reports, config), interrupted=interrupted)
        _write(document, names, _extras(document, reports, config), reporter, config)
    if kept is not None:
        from mat.core.errors import plural

        reporter.write_line(f"mat store: {kept} ({plural(sum(each.kept for each in reports), 'run')})")


def _count_broken(reporter: Any) -> None:
    """Count the evaluated tasks whose runs broke contracts in pytest's closing line: nothing fails, but it is not all green."""
    broken = {data["result"]["id"] for data in _payloads if any(note.endswith(BROKE) for note in data["result"]["notes"])}
    found = [report for report in reporter.getreports("passed") if cleaned(report.nodeid) in broken]
    if found:
        reporter.stats.setdefault("broken", []).extend(found)


def _print(reports: Sequence[ItemReport], reporter: Any, config: pytest.Config, *, interrupted: bool) -> None:
    """What needs a person first; then what is open or, with -v, all items; then the tables that are asked for."""
    from mat.report import brief, words

    reporter.section("mat")
    seconds = (time.time_ns() - session_began_ns()) / 1e9
    items, findings, name = _brief_of(reports)
    _write_brief(reporter, brief.headline(items, seconds=seconds, stress=config.getoption("mat_stress")))
    if interrupted:
        reporter.write_line(words.INTERRUPTED)
    has_sections = reporter.config.option.tbstyle != "no" and not reporter.no_summary
    failed = {report.nodeid for report in reporter.getreports("failed")} if has_sections else set()
    width, verbosity, evaluated = min(width_of(config), brief.WIDTH), verbosity_of(config), config.getoption("mat_evaluate")
    lines = brief.broken_lines(findings, name, width=width)
    lines += brief.held_lines(findings, name, width=width)
    if verbosity < 1 and not evaluated:
        lines += brief.open_lines(items, name, explained=failed, width=width)
    for line in lines:
        _write_brief(reporter, line)
    for contract in _untried(reports):
        reporter.write_line(f"mat: no test triggered {contract}, which mat_contracts or a hook arms for several tests")
    text = _text(reports, config)
    if text:
        reporter.write_line(f"\n{text}")


def _brief_of(reports: Sequence[ItemReport]) -> tuple[list[ItemLine], tuple[FindingLine, ...], Callable[[str], str]]:
    """What the summary is made from: the lines of the items and of their findings, and how items are called."""
    from mat.report.brief import namer
    from mat.report.findings import finding_lines, item_line

    items = [item_line(each.result) for each in reports]
    findings = finding_lines([each.result for each in reports], {each.result.id: each.broken for each in reports})
    return items, findings, namer(each.id for each in items)


def _is_held(status: str, notes: Sequence[str]) -> bool:
    """Whether an item passed with a finding that is accepted or known, or a replay with an acceptance it no longer needs."""
    return status in ("accepted", "known") or (status == "replayed" and bool(notes))


def _print_held(reports: Sequence[ItemReport], reporter: Any, config: pytest.Config) -> None:
    """In a session without a summary: the findings that fail no test, and the acceptances that can be removed."""
    from mat.report import brief

    items, findings, name = _brief_of([each for each in reports if _is_held(each.result.status, each.result.notes)])
    reporter.section("mat")
    width = min(width_of(config), brief.WIDTH)
    for line in [*brief.held_lines(findings, name, width=width), *brief.open_lines(items, name, width=width)]:
        _write_brief(reporter, line)


_MARKUP: Final[Mapping[str, Mapping[str, bool]]] = {
    "": {}, "good": {"green": True}, "open": {"yellow": True}, "bad": {"red": True, "bold": True},
}  # fmt: skip


def _write_brief(reporter: Any, line: BriefLine) -> None:
    reporter.write(line.label, **_MARKUP[line.tone])
    reporter.write(f"{line.text}\n")


def add_metrics(config: pytest.Config) -> None:
    """Add the metrics of the session to the file of --junitxml, if this session prints or writes them."""
    if _payloads and (ends_with_summary(config) or config.getoption("mat_report")):
        from pytest_mat.properties import annotate_suite

        annotate_suite(config, _document(_reports(config), config).metrics)


def _document(reports: Sequence[ItemReport], config: pytest.Config) -> Document:
    """The report of the session, made once."""
    if (made := config.stash.get(_DOCUMENT, None)) is not None:
        return made
    from mat.report.build import build

    made = build(
        [each.result for each in reports],
        [row for each in reports for row in each.rows],
        governed=[row for each in reports for row in each.governed],
        searches=[row for each in reports for row in each.searches],
        curves=[row for each in reports for row in each.curves],
        broken={each.result.id: each.broken for each in reports},
    )
    config.stash[_DOCUMENT] = made = cleaned(made)
    return made


def _text(reports: Sequence[ItemReport], config: pytest.Config) -> str:
    """Items and tables as text: all for an evaluation, else by verbosity, and in any case what an option asks to measure."""
    from mat.report.terminal import listed, selected, summary, whole

    verbosity, width = verbosity_of(config), width_of(config)
    names = [*(_GOVERNANCE if compares(config) else ()), *(_CURVES if config.getoption("mat_curve") else ())]
    if any(row.infrastructure or any(score.error for score in row.scores) for each in reports for row in each.rows):
        names.append("infrastructure")
    if config.getoption("mat_evaluate"):
        return whole(_document(reports, config), width=width)
    if verbosity > 1:
        return summary(_document(reports, config), width=width)
    parts = [listed(_document(reports, config), width=width)] if verbosity > 0 else []
    parts += [selected(_document(reports, config), names, width=width)] if names else []
    return "\n".join(filter(None, parts))


_GOVERNANCE: Final = ("governance", "governance_search", "mediation")
"""The tables that compare governance variants."""
_CURVES: Final = ("robustness_success", "robustness_compliance")


def _extras(document: Document, reports: Sequence[ItemReport], config: pytest.Config) -> ReportExtras:
    """What reports contain in addition to the document: traces, and in a gate's session the comparison with the baseline."""
    from mat.report.files import ReportExtras
    from pytest_mat.page import page_traces

    extras = ReportExtras(
        traces=page_traces(document.counterexamples, [run for each in reports for run in each.shown]),
        folders=github.source_folders(config),
    )
    baseline = baseline_of(config)
    if baseline is not None:
        from mat.measure.regression import compare

        found = compare(baseline.reported.tables.outcomes, document.outcomes)
        names = (str(config.getoption("mat_baseline")), "this session")
        extras = replace(extras, regression=found if found.runs else None, names=names)
    if config.getoption("mat_gate"):
        from pytest_mat.gate import compared

        extras = compared(config, document, extras)
    return extras


def _write(document: Document, names: Sequence[str], extras: ReportExtras, reporter: Any, config: pytest.Config) -> None:
    """Write all reports. If some cannot be written, end the session with their messages and a usage error."""
    from mat.report.files import write

    failed: list[str] = []
    for name in names:
        try:
            write(document, Path(config.invocation_params.dir, name), extras)
        except MatError as error:
            failed.append(cleaned(str(error)))
        else:
            empty = "" if _payloads else " (empty: pytest-mat ran no test in this session)"
            reporter.write_line(f"mat report: {name}{empty}")
    if failed:
        pytest.exit("\n".join(failed), returncode=pytest.ExitCode.USAGE_ERROR)

"""Collects what the sections of a page show; `templates/sections.html.jinja` renders it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from pathlib import PurePosixPath
from typing import ClassVar, Final
from xml.etree.ElementTree import Element

from mat.measure.distribution import Bin, ShareOf
from mat.measure.estimate import Estimate
from mat.measure.regression import Regression
from mat.measure.robustness import Curve
from mat.measure.suite import Cover
from mat.report import brief, regression, suite, words
from mat.report.definitions import RESULTS, definition_of
from mat.report.document import Document, FindingLine
from mat.report.findings import findings_of
from mat.report.grouping import FoundRun, found_runs, held_findings
from mat.report.page import plots
from mat.report.page.story import Story, story_of
from mat.report.page.trace import Traced
from mat.report.page.view import without_folder
from mat.report.table import Column, Table
from mat.report.tables import tables_of, tokens_reported

_BARS: Final = 12
"""The most bars in one plot of agents or action kinds; the most frequent are shown."""
_COLUMNS: Final = {
    "nominal": ("success", "@", "violations", "non_termination", "h_rate", "steps", "tokens_per_success"),
    "fault": ("success", "violations", "detected", "mitigated", "containment", "residual_harm", "p_rewrite", "p_block"),
    "adversarial": ("success", "violations", "detected", "mitigated", "containment", "residual_harm", "p_rewrite", "p_block"),
    "replay": ("success", "violations"),
}
"""The metrics of the evaluation tables, by condition; "@" means success@k and pass^k. The last table has all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFinding:
    """A finding on the first screen. `name`: its test, in short. `trace`: the index of its trace in the page; `story`: the
    number of its counterexample; None without one."""

    found: FindingLine
    name: str
    trace: int | None
    story: int | None


@dataclass(frozen=True, kw_only=True)
class PageParts:
    """The parts of a page. `opened`: for each counterexample with a trace, the index of that trace in the page. `traces`: all
    traces of the page."""

    document: Document
    regression: Regression | None = None
    suite: Cover | None = None
    HEADLINES: ClassVar[Mapping[str, str]] = {
        "nominal.success": "task success, nominal runs", "nominal.violations": "break a contract, nominal runs",
        "fault.violations": "break a contract, under faults", "containment": "faults contained",
    }  # fmt: skip
    """The headline numbers of an evaluation: metric -> what a reader calls it."""
    opened: Mapping[int, int] = field(default_factory=dict)
    traces: Sequence[Traced] = ()

    # -- the first screen ---------------------------------------------------------------------------------------------

    @property
    def counts(self) -> list[brief.BriefLine]:
        return brief.worst_first(self.document.items) or [brief.BriefLine(text="no test ran")]

    @property
    def tone(self) -> brief.Tone:
        return brief.tone_of(self.document.items) if self.document.items else "open"

    @property
    def executions(self) -> int:
        return sum(line.executions for line in self.document.items)

    @cached_property
    def name(self) -> Callable[[str], str]:
        return brief.namer(line.id for line in self.document.items)

    @cached_property
    def failing(self) -> list[ShownFinding]:
        return [self._shown(found) for found in findings_of(self.document) if found.standing == "new"]

    @cached_property
    def held(self) -> list[ShownFinding]:
        return [self._shown(found) for found in findings_of(self.document) if found.standing in ("accepted", "known")]

    def _shown(self, found: FindingLine) -> ShownFinding:
        story = next((group.number for group in self._stories if _is_of(found, group)), None)
        if story is None:
            trace = next((at for at, traced in enumerate(self.traces) if _is_trace_of(found, traced)), None)
        else:
            trace = self.opened.get(story)
        return ShownFinding(found=found, name=self.name(found.item), trace=trace, story=story)

    @cached_property
    def _stories(self) -> list[FoundRun]:
        return found_runs(self.document)

    @property
    def unsettled(self) -> list[list[brief.OpenEntry]]:
        """What was not judged or not proven, by kind."""
        return self._open(unsettled=True)

    @property
    def remarks_on_results(self) -> list[list[brief.OpenEntry]]:
        """What else is known of results, such as what a certificate takes as given, by kind."""
        return self._open(unsettled=False)

    def _open(self, *, unsettled: bool) -> list[list[brief.OpenEntry]]:
        groups = brief.open_groups(self.document.items)
        chosen = [[entry for entry in group if entry.unsettled == unsettled] for group in groups]
        return [group for group in chosen if group]

    @property
    def results(self) -> list[tuple[str, str]]:
        """Each result that a test has, and what it says."""
        return [(status, RESULTS[status]) for status in dict.fromkeys(line.status for line in self.document.items)]

    # -- numbers ------------------------------------------------------------------------------------------------------

    @property
    def numbers(self) -> Table | None:
        """Every number of the report, with its meaning."""
        table = self.tables["metrics"]
        if table is None:
            return None
        rows = tuple((*row, definition_of(str(row[0]))) for row in table.rows)
        return replace(table, columns=(*table.columns, Column(name="meaning")), rows=rows)

    @cached_property
    def tables(self) -> dict[str, Table | None]:
        """The tables of the document by name; None for a table without rows."""
        return _Missing((table.name, table) for table in tables_of(self.document))

    @cached_property
    def metrics(self) -> dict[str, Estimate | None]:
        found = {metric.name: metric.estimate for metric in self.document.metrics}
        return {name: found.get(name) for name in self.HEADLINES}

    @property
    def headline_meanings(self) -> list[tuple[str, str]]:
        return [(label, definition_of(name)) for name, label in self.HEADLINES.items() if self.metrics[name] is not None]

    @property
    def outside(self) -> int:
        """The number of runs that are in no rate; 0 with several variants, whose sum would be meaningless."""
        return 0 if self.document.variant else sum(line.runs for line in self.document.infrastructure if not line.left_out_of)

    @property
    def tokens(self) -> bool:
        return tokens_reported(self.document.nominal)

    @cached_property
    def shared(self) -> str:
        return self.shared_by(line.id for line in self.document.items)

    @staticmethod
    def shared_by(ids: Iterable[str]) -> str:
        """The file that contains all of these tests, or the folder, if there are several; "" without a folder."""
        files = {name.partition("::")[0] for name in ids}
        if len(files) == 1:
            return files.pop()
        folders = [PurePosixPath(name).parts[:-1] for name in files]
        return "/".join(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False)))

    @cached_property
    def remarks(self) -> list[tuple[str, str]]:
        """Reasons and findings, by test."""
        lines = []
        for line in self.document.items:
            texts = [line.reason, words.certified_relative_to(line), *line.notes, *line.findings]
            if line.outcomes_left_out:
                texts.append(f"{words.plural(line.outcomes_left_out, 'run')} under faults not listed individually")
            lines += [(line.id, text) for text in texts if text]
        return [(without_folder(item, self.shared), said) for item, said in (*lines, *held_findings(self.document))]

    @property
    def evaluated(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each condition of the evaluation with the metrics of its table."""
        for condition in dict.fromkeys(line.condition for line in self.document.evaluation):
            lines = [line for line in self.document.evaluation if line.condition == condition]
            known = dict.fromkeys(metric.name for line in lines for metric in line.metrics)
            yield (
                condition,
                [
                    name
                    for column in _COLUMNS[condition]
                    for name in known
                    if name == column or (column == "@" and name.startswith(("success@", "pass^")))
                    if name != "tokens_per_success" or tokens_reported(lines)
                ],
            )

    def stories(self) -> Iterator[Story]:
        for group in self._stories:
            command = words.replay_command(group.files[0]) if group.files else ""
            yield story_of(group.number, group.first, command=command)

    # -- a comparison, and a suite ------------------------------------------------------------------------------------

    @property
    def compared(self) -> dict[str, Table | None]:
        assert self.regression is not None
        return _Missing((table.name, table) for table in regression.every_table(self.regression) if table.rows)

    @property
    def apart(self) -> list[str]:
        assert self.regression is not None
        return regression.excluded(self.regression)

    @property
    def covering(self) -> dict[str, Table]:
        assert self.suite is not None
        return {table.name: table for table in suite.tables(self.suite)}

    @property
    def covered(self) -> str:
        assert self.suite is not None
        return suite.sentence(self.suite)

    # -- plots --------------------------------------------------------------------------------------------------------

    def governance_plot(self) -> Element | None:
        lines = self.document.governance
        several = len({line.condition for line in lines}) > 1
        named = [(f"{line.variant}, {line.condition}" if several else line.variant, line.shares) for line in lines]
        return plots.shares("plot-governance", named, title="Mediation by variant: shares of proposed actions")

    def profile_plot(self) -> Element | None:
        bars = [
            plots.Bar(label=words.clean(line.contract), estimate=line.frequency, style=line.severity)
            for line in self.document.violations
        ]
        return plots.bars("plot-profile", bars, title="Violation profile: share of runs that break each contract")

    @property
    def first_steps(self) -> Iterator[tuple[int, object]]:
        return enumerate(line for line in self.document.distributions if line.name == "first_violation")

    @staticmethod
    def histogram(name: str, bins: Sequence[Bin], title: str, unit: str) -> Element | None:
        return plots.histogram(name, bins, title=title, unit=unit)

    @staticmethod
    def bars(name: str, found: Sequence[ShareOf], title: str) -> Element | None:
        shown = [plots.Bar(label=words.clean(part.name) or "none", estimate=part.share) for part in found[:_BARS]]
        return plots.bars(name, shown, title=title)

    @property
    def curves(self) -> list[Curve]:
        return [curve for curve in self.document.curves if curve.area.n]

    def curve_plots(self) -> Iterator[tuple[str, Element]]:
        """Yield a title and a plot for each measure and category."""
        panels: dict[tuple[str, str], list[Curve]] = {}
        for curve in self.curves:
            panels.setdefault((curve.measure, curve.category), []).append(curve)
        for number, ((measure, category), curves) in enumerate(panels.items()):
            title = f"{words.MEASURES[measure]}: {'all tests' if category == 'all' else category}"
            yield title, plots.curve_panel(f"plot-curve-{number}", words.clean(title), curves)


def _is_of(found: FindingLine, group: FoundRun) -> bool:
    """Whether a finding is this run of a counterexample."""
    run = group.first.counterexample.run
    if found.item != group.first.item or sorted(found.causes) != sorted(map(words.perturbation_in_words, run.spec.schedule)):
        return False
    verdicts = [each.counterexample.verdict for each in group.replays]
    known = not found.replay or not group.files or found.replay in group.files
    return known and (found.contract, found.step) in [(verdict.contract, verdict.step) for verdict in verdicts]


def _is_trace_of(found: FindingLine, traced: Traced) -> bool:
    verdict = traced.verdict
    return (
        verdict is not None
        and (traced.item, verdict.contract, verdict.step) == (found.test or found.item, found.contract, found.step)
        and sorted(text for text, _, _ in traced.schedule) == sorted(found.causes)
    )


class _Missing(dict[str, Table | None]):
    """A dict that returns None for a missing name, because templates ask for tables that a report may lack."""

    def __missing__(self, name: str) -> None:
        return None

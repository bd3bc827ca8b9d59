"""Collects what the sections of a page show; `templates/sections.html.jinja` renders it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final
from xml.etree.ElementTree import Element

from mat.measure.distribution import Bin, ShareOf
from mat.measure.estimate import Estimate
from mat.measure.regression import Regression
from mat.measure.robustness import Curve
from mat.measure.suite import Cover
from mat.report import regression, suite, words
from mat.report.document import Document
from mat.report.grouping import found_runs, held_findings
from mat.report.page import plots
from mat.report.page.story import Story, story_of
from mat.report.table import Table
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
_HEADLINES: Final = ("nominal.success", "nominal.violations", "fault.violations", "containment")


@dataclass(frozen=True, kw_only=True)
class PageParts:
    """The parts of a page. `opened`: for each counterexample with a trace, the index of that trace in the page."""

    document: Document
    regression: Regression | None = None
    suite: Cover | None = None
    opened: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def tables(self) -> dict[str, Table | None]:
        """The tables of the document by name; None for a table without rows."""
        return _Missing((table.name, table) for table in tables_of(self.document))

    @cached_property
    def metrics(self) -> dict[str, Estimate | None]:
        found = {metric.name: metric.estimate for metric in self.document.metrics}
        return {name: found.get(name) for name in _HEADLINES}

    @property
    def statuses(self) -> list[tuple[str, int]]:
        return sorted(Counter(line.status for line in self.document.items).items())

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
        """The file that contains all of these tests; "" if there are several."""
        files = {name.partition("::")[0] for name in ids}
        return files.pop() if len(files) == 1 else ""

    @cached_property
    def remarks(self) -> list[tuple[str, str]]:
        """Reasons and findings, by test."""
        lines = []
        for line in self.document.items:
            texts = [line.reason, words.certified_relative_to(line), *line.notes, *line.findings]
            if line.outcomes_left_out:
                texts.append(f"{words.plural(line.outcomes_left_out, 'run')} under faults not listed individually")
            lines += [(line.id.removeprefix(f"{self.shared}::"), text) for text in texts if text]
        held = held_findings(self.document)
        return [*lines, *((item.removeprefix(f"{self.shared}::"), said) for item, said in held)]

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
        for group in found_runs(self.document):
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


class _Missing(dict[str, Table | None]):
    """A dict that returns None for a missing name, because templates ask for tables that a report may lack."""

    def __missing__(self, name: str) -> None:
        return None

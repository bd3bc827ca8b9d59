"""Precision and recall of each template over the corpus."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module

from tests.truth.templates.notation import Case

FAMILIES = (
    "effects",
    "privacy",
    "conversation",
    "coordination",
    "privilege",
    "order",
    "artefacts",
    "conduct",
    "resources",
)

FLOOR = Fraction(9, 10)

CRASHED = "could not be judged"
"""How the message of a contract begins that raised: it fails the run, but has not seen what is wrong."""


def cases() -> list[Case]:
    """The whole corpus, in the order of its files."""
    return [case for family in FAMILIES for case in import_module(f"tests.truth.templates.{family}").CORPUS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the contract said of one case."""

    case: Case
    violated: bool
    unknown: str
    message: str

    @property
    def right(self) -> bool:
        return self.violated == self.case.broken and not self.unknown


def judged(case: Case) -> Judged:
    result = case.run()
    (outcome,) = result.outcomes
    found = [violation for violation in outcome.violations if not violation.message.startswith(CRASHED)]
    crashed = [violation.message for violation in outcome.violations if violation not in found]
    message = "; ".join(f"step {item.step}: {item.message}" for item in found[:2])
    unknown = "; ".join(crashed) or (outcome.error or "unknown" if outcome.outcome == "unknown" else "")
    return Judged(case=case, violated=bool(found), unknown=unknown, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How often the violations of a template are true, and how many of the true ones it finds."""

    template: str
    broken: int
    kept: int
    precision: Fraction
    recall: Fraction
    wrong: tuple[Judged, ...]

    @property
    def worst(self) -> Fraction:
        return min(self.precision, self.recall)

    @property
    def stated(self) -> str:
        """The sentence of the template's docstring."""
        precision, recall = (f"{float(rate):.2f}".removeprefix("0") for rate in (self.precision, self.recall))
        traces = f"{self.broken + self.kept} traces written without knowledge of this template"
        return f"Precision {precision}, recall {recall} on {traces}."


def quality(all_judged: Iterable[Judged]) -> list[Quality]:
    """A line for each template, the worst first."""
    by_template: dict[str, list[Judged]] = {}
    for one in all_judged:
        by_template.setdefault(one.case.template, []).append(one)
    lines = [_quality(template, found) for template, found in by_template.items()]
    return sorted(lines, key=lambda line: (line.worst, line.precision + line.recall, line.template))


def _quality(template: str, found: list[Judged]) -> Quality:
    true = sum(one.violated and one.case.broken for one in found)
    reported = sum(one.violated for one in found)
    broken = sum(one.case.broken for one in found)
    return Quality(
        template=template,
        broken=broken,
        kept=len(found) - broken,
        precision=Fraction(true, reported) if reported else Fraction(0),
        recall=Fraction(true, broken) if broken else Fraction(0),
        wrong=tuple(one for one in found if not one.right),
    )

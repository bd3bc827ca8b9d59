"""Rows of numbers from the executions of one item."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Final

from mat.core.campaign import NOT_JUDGED, BrokenRun, ItemResult
from mat.core.run import UNCAUGHT, Finding, Run, Uncaught
from mat.govern.variant import NONE
from mat.measure.claims import count_claims
from mat.measure.governance import GovernedRow, SearchRow, governed_row
from mat.measure.robustness import CurveRow, curve_row
from mat.measure.rows import Labels, RunCondition, RunRow, lost_row, row_of
from mat.measure.scores import scored
from mat.measure.workload import Workload
from mat.monitor.faults import rules_of
from mat.monitor.triggers import Triggers, Vacuous
from mat_contracts.claims import claims_in
from mat_search import CampaignResult
from mat_study.evaluation import Evaluated
from mat_study.store import ItemRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReport:
    """Everything to report about one item; sent by the process that studied it.

    `governed` and `searches` are rows on governance variants from its runs and searches, `curves` the rows for robustness
    curves, `shown` what a page shows in addition to counterexamples; `kept` counts the runs written to the store. `broken`: its
    runs that break contracts, those that fail it first.
    """

    result: ItemResult
    rows: tuple[RunRow, ...] = ()
    governed: tuple[GovernedRow, ...] = ()
    searches: tuple[SearchRow, ...] = ()
    curves: tuple[CurveRow, ...] = ()
    shown: tuple[Run, ...] = ()
    kept: int = 0
    broken: tuple[BrokenRun, ...] = ()


class BodyFailures:
    """How many disturbed runs there were, and how many of their bodies raised, by the kind of exception."""

    def __init__(self) -> None:
        self.disturbed = 0
        self._raised: Counter[str] = Counter()

    def note(self, run: Run) -> None:
        self.disturbed += 1
        if run.error:
            self._raised[run.error.partition(":")[0]] += 1

    def text(self, *, judged: bool) -> str:
        """In words, with whether they were judged; "" if no body failed."""
        if not self._raised:
            return ""
        asserts = sum(count for name, count in self._raised.items() if name in _OWN_ASSERTS)
        others = [(name, count) for name, count in self._raised.most_common() if name not in _OWN_ASSERTS]
        kinds = ", ".join(f"{name} {count:,}" for name, count in others[:_KINDS_SHOWN])
        kinds += f" and {len(others) - _KINDS_SHOWN} more kinds" if len(others) > _KINDS_SHOWN else ""
        rest = sum(count for _, count in others)
        said = f"{asserts or rest:,} of {self.disturbed:,} disturbed runs "
        if not asserts:
            said += f"ended in an exception ({kinds})"
        else:
            said += f"failed the test's own asserts{f', {rest:,} ended in another exception ({kinds})' if others else ''}"
        return said if judged else f"{said} {NOT_JUDGED}"


_OWN_ASSERTS: Final = ("AssertionError", "Failed")
"""The exceptions of a test's own asserts: `assert`, and `pytest.fail`."""
_KINDS_SHOWN: Final = 3


class Gathered:
    """The results of an item's executions so far: a row for each RunSpec, and the runs to show.

    `task` is the id in the rows. `compared`: whether a replay of this session is compared with the nominal run of a seed;
    None if no page shows runs. `variants`: the variants to run the item under, as far as they are known.
    """

    def __init__(self, task: str, *, store: ItemRuns | None = None, compared: Callable[[int], bool] | None = None) -> None:
        self.task = task
        self.rows: list[RunRow] = []
        self.governed: list[GovernedRow] = []
        self.searches: list[SearchRow] = []
        self.curves: list[CurveRow] = []
        self.shown: list[Run] = []
        self.unjudged = ""
        self.variants: tuple[str, ...] = (NONE,)
        self._store, self._compared = store, compared
        self._counted: set[str] = set()
        self._disturbed: list[Uncaught | None] = []
        self.bodies = BodyFailures()
        self.shared: frozenset[str] = frozenset()
        self._triggers: Triggers | None = None

    @property
    def armed(self) -> bool:
        """Whether the item has a contract."""
        return self._triggers is not None

    @property
    def hard(self) -> frozenset[str]:
        """The ids of the item's hard contracts."""
        return frozenset() if self._triggers is None else self._triggers.hard

    def vacuous(self, ports: Iterable[tuple[str, str]]) -> tuple[Vacuous, ...]:
        """The contracts that no run has triggered so far. `ports`: all known ones, as (action kind, name)."""
        return () if self._triggers is None else self._triggers.vacuous(ports)

    @property
    def category(self) -> str:
        """The short name of the category from the workload, which may come from a fixture."""
        return self.rows[0].category if self.rows else ""

    def note(self, given: Evaluated, condition: RunCondition, *, repeated: bool = False) -> None:
        """Keep the run's row once per RunSpec: repetitions that check determinism add nothing. `repeated`: this one does."""
        self.unjudged = self.unjudged or _unjudged_contract(given.run)
        self.variants = given.variants
        self.shared |= given.shared
        if given.run.id in self._counted and not repeated:
            return
        self._counted.add(given.run.id)
        if len(given.run.spec.schedule):
            self._disturbed.append(given.run.uncaught)
        if given.contracts:
            self._triggers = self._triggers or Triggers(given.contracts)
            self._triggers.note(given.run.records)
            for violation in given.run.violations:
                self._triggers.reached(violation.contract)
        if condition == "fault":
            self.bodies.note(given.run)
        row, governed = measured(given, self.task, condition)
        self.rows.append(row)
        self.governed += [] if governed is None else [governed]
        if condition != "fault":  # single executions of a search are not kept
            self.keep([(given.run, row)])

    @property
    def uncaught(self) -> tuple[Finding, ...]:
        """The injected failures that the test's body did not catch, the most frequent first."""
        counts = Counter(each for each in self._disturbed if each is not None)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0].port, item[0].type))
        return tuple(
            Finding(
                code=UNCAUGHT,
                message=f"in {count:,} of {len(self._disturbed):,} disturbed runs the test's body did not catch "
                f"the {found.type} injected at {found.port.removeprefix('service:')}",
            )
            for found, count in ranked
        )

    def mark(self) -> Callable[[], None]:
        """A function that forgets the executions noted after now."""
        rows, governed, counted = len(self.rows), len(self.governed), set(self._counted)
        unjudged, disturbed, bodies = self.unjudged, len(self._disturbed), deepcopy(self.bodies)

        def forget() -> None:
            del self.rows[rows:], self.governed[governed:], self._disturbed[disturbed:]
            self._counted, self.unjudged, self.bodies = set(counted), unjudged, deepcopy(bodies)

        return forget

    def keep(self, runs: Sequence[tuple[Run, RunRow]]) -> None:
        if self._store is not None:
            self._store.keep(runs)

    def show(self, *runs: Run) -> None:
        """Keep runs for the page of a session: runs that broke something, or that such runs are compared with."""
        if self._compared is not None:
            self.shown += runs

    def show_nominal(self, run: Run) -> None:
        """Keep a nominal run for the page if a replay of this session is compared with it."""
        if self._compared is not None and self._compared(run.spec.seed):
            self.shown.append(run)

    def report(self, result: ItemResult, broken: tuple[BrokenRun, ...]) -> ItemReport:
        return ItemReport(
            result=result, broken=broken, rows=tuple(self.rows), governed=tuple(self.governed), searches=tuple(self.searches),
            curves=tuple(self.curves), shown=tuple(self.shown), kept=0 if self._store is None else self._store.count,
        )  # fmt: skip

    def of_variants(self) -> Gathered:
        """A copy for runs of other governance variants, whose rows belong only in the table of variants."""
        other = Gathered(self.task, store=self._store)
        other.governed, other.searches = self.governed, self.searches
        return other


def measured(
    given: Evaluated, task: str, condition: RunCondition, *, claims: bool = False
) -> tuple[RunRow, GovernedRow | None]:
    """The row of a run, and its row on governance. `claims`: judge its claims as well, which takes time."""
    run = given.run
    row = row_of(
        run, item=task, condition=condition, rules=rules_of(given.contracts),
        labels=replace(given.labels, variant=given.variant),
        claims=count_claims(run, claims_in) if claims else None, scores=scored(run, given.task.scorers),
    )  # fmt: skip
    return row, _governance_row(given, task, condition)


def _governance_row(given: Evaluated, task: str, condition: RunCondition) -> GovernedRow | None:
    """The row on governance; None if the item has no governance and no decision was made."""
    if given.variants == ("none",) and all(record.mediation is None for record in given.run.records):
        return None
    return governed_row(
        given.run, item=task, variant=given.variant, condition=condition, misuse=given.judged.misuse, harm=given.judged.harm,
        category=given.labels.category,
    )  # fmt: skip


def lost(task: str, workload: Workload, condition: RunCondition, why: str, *, seed: int, variant: str) -> RunRow:
    """The row of an execution that gave no run: infrastructure failures say nothing about the contracts."""
    labels = Labels(
        category=workload.category, input=workload.input, variant=variant, episode=workload.episode, infrastructure=why
    )
    return lost_row(item=task, condition=condition, seed=seed, labels=labels)


def search_row(task: str, variant: str, result: CampaignResult) -> SearchRow:
    """The result of a search under a variant; a contract that the nominal run breaks costs 0."""
    broken = next(iter(result.nominal.failures), None)
    first = min(result.counterexamples, key=lambda found: found.cost, default=None)
    cost, contract = (None, "") if first is None else (first.cost, first.verdict.contract)
    if broken is not None:
        cost, contract = 0, broken.contract
    return SearchRow(
        item=task, variant=variant, cost=cost, contract=contract, executions=result.executions,
        proven=result.certificate.proven,
    )  # fmt: skip


def curve(task: str, category: str, budget: int, result: CampaignResult) -> CurveRow:
    """The row of a search for robustness curves."""
    return curve_row(
        item=task, category=category, budget=budget, certificate=result.certificate, executed=result.executed,
        chains=result.chains,
    )  # fmt: skip


def _unjudged_contract(run: Run) -> str:
    broken = next((each for each in run.outcomes if each.severity == "hard" and each.outcome == "unknown"), None)
    return "" if broken is None else f"{broken.contract} could not be judged: {broken.error}"

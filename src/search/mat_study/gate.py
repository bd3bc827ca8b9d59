"""The suites of a session with a gate: what it selects, what it ran, and the resulting evidence. Source: A6.7."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mat.commands.gate_settings import GateSettings
from mat.core.campaign import Counterexample
from mat.measure import gate as measure
from mat.measure.gate import HELD, Baseline, Gate, GateEvidence, GatePlan, ReplayEnd, Round, Unrun
from mat.measure.regression import RunOutcome, outcome_of
from mat_study.measuring import ItemReport

_NOT_RUN: Final = "it did not run"


class Suites:
    """What a session with a gate runs and finds: all seeds of the baseline, or the part that its `round` names."""

    def __init__(self, baseline: Baseline, settings: GateSettings, round: Round | None) -> None:
        self._baseline, self._settings = baseline, settings
        self._round = round or Round(smoke=settings.smoke, seeds=settings.seeds, all_replays=settings.replays == "all")
        self.plan: GatePlan | None = None
        self._seeds: dict[str, tuple[int, ...]] = {}
        self._outcomes: list[RunOutcome] = []
        self._infrastructure: list[tuple[str, str]] = []
        self._ends: dict[str, ReplayEnd] = {}
        self._unrun: dict[str, Unrun] = {}

    def select(
        self,
        *,
        tests: Sequence[str],
        replays: Mapping[str, Counterexample],
        broken: Sequence[str],
        there: Callable[[str], bool],
    ) -> frozenset[str]:
        """The items to run. `there`: whether an item that was not collected may still exist."""
        plan = self._round.plan or measure.plan(
            self._baseline, tests=tests, replays=replays, broken=broken, there=there, smoke=self._round.smoke,
            seeds=self._round.seeds, all_replays=self._round.all_replays, least=self._settings.rules.least,
        )  # fmt: skip
        self.take(plan)
        if self._round.plan is None:
            return frozenset(plan.selected)
        return frozenset(item for item in plan.selected if self._seeds.get(item))

    def take(self, plan: GatePlan) -> None:
        """Set the plan, made here or by a worker (they all make the same), and select the seeds of this session."""
        self.plan = plan
        begin, end = self._round.begin, self._round.end
        self._seeds = {test.item: test.seeds[begin:end] * plan.executions for test in plan.smoke}

    def seeds_of(self, item: str) -> tuple[int, ...]:
        return self._seeds[item]

    def ran(self, report: ItemReport) -> None:
        result = report.result
        for row in report.rows:
            if row.infrastructure:
                self._infrastructure.append((row.item, row.infrastructure))
            else:
                self._outcomes.append(outcome_of(row))
        self._ends[result.id] = ReplayEnd(id=result.id, status=result.status, why=result.reason)

    def failed(self, item: str, why: str, *, skipped: bool) -> None:
        """Note a report that did not pass; the first of an item gives the reason."""
        self._unrun.setdefault(item, Unrun(item=item, why=why, skipped=skipped))

    def evidence(self) -> GateEvidence:
        plan = self.plan or GatePlan()
        end = plan.seeds if self._round.end is None else min(self._round.end, plan.seeds)
        names = (*plan.replays, *plan.broken) if self._round.plan is None else ()
        ran = {outcome.item for outcome in self._outcomes} | {item for item, _ in self._infrastructure}
        for test in plan.smoke:
            if self._seeds.get(test.item) and test.item not in ran:
                self.failed(test.item, _NOT_RUN, skipped=False)
        return GateEvidence(
            seeds=end,
            outcomes=tuple(self._outcomes),
            replays=tuple(self._replay_end(name) for name in names),
            apart=measure.without_infrastructure(self._infrastructure),
            unrun=tuple(self._unrun[test.item] for test in plan.smoke if test.item in self._unrun),
        )

    def judge(self, evidence: GateEvidence) -> Gate:
        return measure.judge(self._baseline, self.plan or GatePlan(), evidence, self._settings.rules)

    def _replay_end(self, name: str) -> ReplayEnd:
        """How a replay ended: its result, and if its report failed, the reason."""
        found, failed = self._ends.get(name), self._unrun.get(name)
        status = found.status if found is not None else "failed"
        if failed is None:
            return ReplayEnd(id=name, status=status, why="" if found is not None else _NOT_RUN)
        return ReplayEnd(id=name, status="failed" if status in HELD else status, why=failed.why)

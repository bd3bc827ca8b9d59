"""The searches of one item: each executes plans through the Evaluator, with a journal and workers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from mat.core import limits
from mat.core.adversary import Choose
from mat.core.checkpoint import tidy
from mat.core.codec import decode, encode
from mat.core.digest import digest
from mat.core.operator import grid_digest
from mat.core.run import Run
from mat.core.spec import NO_SCHEDULE, RunSpec, Schedule
from mat.kernel.clock import real_monotonic
from mat.kernel.entropy import KEYED
from mat_search import Campaign, CampaignResult, SearchStopped, search
from mat_search.journal import SearchJournal, open_journal
from mat_study.evaluation import Evaluated, EvaluationLost, Evaluator, Lost, Plan
from mat_study.means import Means, Subject, WriteLine
from mat_study.notices import Notice
from mat_study.sources import Sources, installed_digest
from mat_study.tasks import Judged

FOLDER: Final = Path(".mat", "campaigns")
Note = Callable[[Evaluated], None]
Stopped = Callable[[Lost, bool], str]
"""(the lost execution, whether it was under faults) -> why the search ends with its results so far; "" to abandon it."""


class SearchEvaluator:
    """Adapts an Evaluator to a search: RunSpec -> Run, under the variant of `first`, an execution of the same item.

    SearchStopped ends the search when its time is over, or for a lost execution if `stopped` says so; otherwise a lost
    execution raises EvaluationLost. `reasons` are why the search was ended, `lost` is the latest execution without a run. The
    workload's judgment of a run is kept here until the search takes the run (`taken`).
    """

    def __init__(self, evaluate: Evaluator, first: Evaluated, *, timeout_s: float | None, stopped: Stopped) -> None:
        self._evaluate, self._first, self._stop_reason = evaluate, first, stopped
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else real_monotonic() + timeout_s
        self._judgments: dict[str, Judged] = {}
        self._latest = first.judged
        self.lost: Lost | None = None
        self.reasons: list[str] = []

    def __call__(self, spec: RunSpec, *, vary: bool = False, adversary: Choose | None = None) -> Run:
        disturbed = bool(len(spec.schedule)) or adversary is not None
        if self._deadline is not None and disturbed and real_monotonic() > self._deadline:
            raise self._stop(f"--mat-timeout: the limit of {self._timeout_s} s is reached")
        try:
            return self.execute(spec.seed, spec.schedule, vary=vary, adversary=adversary)
        except EvaluationLost as ended:
            why = self._stop_reason(ended.lost, disturbed)
            if not ended.lost.unanswered:
                self.lost = ended.lost
            if not why:
                raise
            raise self._stop(why) from ended

    def execute(self, seed: int, schedule: Schedule, *, vary: bool = False, adversary: Choose | None = None) -> Run:
        """One execution without a deadline; EvaluationLost if it gives no run."""
        given = self._evaluate(
            Plan(
                mode="search", seed=seed, schedule=schedule, variant=self._first.variant, vary=vary, adversary=adversary
            )
        )  # fmt: skip
        if isinstance(given, Lost):
            raise EvaluationLost(given)
        self.learn(given.run, given.judged)
        return given.run

    def adapt(self, spec: RunSpec, choose: Choose) -> Run:
        return self(spec, adversary=choose)

    def _stop(self, why: str) -> SearchStopped:
        if why not in self.reasons:
            self.reasons.append(why)
        return SearchStopped(why)

    def learn(self, run: Run, judged: Judged) -> None:
        """Keep the workload's judgment of a run, which another process may have executed."""
        self._judgments[run.id] = self._latest = judged

    def judged(self, run: Run) -> Judged:
        return self._judgments.get(run.id, self._latest)

    def taken(self, run: Run) -> Evaluated:
        """The execution behind a run that the search takes."""
        self._latest = self._judgments.pop(run.id, self._latest)
        plan = replace(self._first.plan, mode="search", seed=run.spec.seed, schedule=run.spec.schedule)
        return replace(self._first, plan=plan, run=run, judged=self._latest)


class Searches:
    """The searches of an item, and the journals of all of them."""

    def __init__(self, subject: Subject, means: Means) -> None:
        self._subject, self._means = subject, means
        self._sources = Sources(means.began_ns)
        self._journals: list[SearchJournal] = []

    def search(self, nominal: Evaluated, *, note: Note) -> tuple[CampaignResult, SearchEvaluator]:
        """Search from a nominal execution, under its variant. `note` is called with each execution that the search takes."""
        settings, means = self._subject.settings, self._means
        campaign = campaign_of(self._subject, means)
        evaluate = SearchEvaluator(means.evaluate, nominal, timeout_s=settings.timeout_s, stopped=_stop_reason)
        journal = self._journal(nominal, campaign, evaluate)
        vary = partial(evaluate, vary=True)
        with self._workers(evaluate, vary, journal) as executor:
            result = search(
                nominal.run, evaluate, campaign, confirm=journal.confirming(means.confirm(nominal.variant)),
                progress=_progress(means.line, self._subject.name), vary=vary, adapt=evaluate.adapt, executor=executor,
                journal=journal, note=lambda run: note(evaluate.taken(run)),
            )  # fmt: skip
        return result, evaluate

    def once(self, kind: str, schedule: Schedule, *, seed: int, evaluate: SearchEvaluator) -> Evaluated:
        """One more execution that belongs to the latest search."""
        return evaluate.taken(self._journals[-1].once(kind, schedule, partial(evaluate.execute, seed, schedule)))

    def _journal(self, nominal: Evaluated, campaign: Campaign, evaluate: SearchEvaluator) -> SearchJournal:
        subject, folder = self._subject, self._means.root / FOLDER
        path = folder / f"{digest([subject.id, nominal.variant])[:20]}.jsonl"
        if self._means.fresh:
            path.unlink(missing_ok=True)
        journal = open_journal(
            path, nominal.run.spec.under(NO_SCHEDULE), key=_key(subject, nominal, campaign), source_digest=self._sources.digest,
            more=lambda run: encode(evaluate.judged(run)),
            restore=lambda run, data: evaluate.learn(run, decode(Judged, data, where="journal")),
        )  # fmt: skip
        journal.learn(self._sources.new())
        tidy(folder, kept=limits.JOURNALS_KEPT)
        self._journals.append(journal)
        return journal

    @contextmanager
    def _workers(self, evaluate: SearchEvaluator, vary: object, journal: SearchJournal) -> Iterator[Executor | None]:
        """The workers that --mat-workers asks for, ended on exit; None if this process executes everything itself."""
        if self._means.workers == 1:
            yield None
            return
        from mat_study.forks import Forked

        def unpack(run: Run, sidecar: Any) -> None:
            judged, sources = sidecar
            evaluate.learn(run, decode(Judged, judged, where="worker"))
            journal.learn(sources)

        pool = Forked(
            self._means.workers, inherited=(evaluate, vary), prepare=self._means.prepare,
            sidecar=lambda run: (encode(evaluate.judged(run)), self._sources.new()), unpack=unpack,
        )  # fmt: skip
        with pool:
            yield pool

    def notices(self) -> list[Notice]:
        """The journals, how much was reused from them, and what went wrong."""
        return [
            Notice(item=self._subject.id, path=str(each.path or ""), recalled=each.recalled, note=each.note)
            for each in self._journals
        ]

    def close(self) -> None:
        for journal in self._journals:
            journal.close()


def campaign_of(subject: Subject, means: Means) -> Campaign:
    """The campaign of `--mat-stress` for an item."""
    from mat.measure.sequential import decided, interval

    settings = subject.settings
    return Campaign(
        operators=means.operators(), budget=settings.budget, max_runs=settings.max_runs, shrink_runs=settings.shrink_runs,
        strategy=settings.strategy, stop=settings.stop, curve=settings.curve, interval=interval,
        decided=partial(decided, target=settings.target),
    )  # fmt: skip


def _stop_reason(lost: Lost, disturbed: bool) -> str:
    return lost.unanswered or ("an execution did not finish" if disturbed else "")


def _key(subject: Subject, nominal: Evaluated, campaign: Campaign) -> dict[str, Any]:
    """The facts that must be equal for executions to be equal."""
    plan = {field.name: getattr(campaign, field.name) for field in fields(campaign)}
    return {
        "item": subject.id,
        "variant": nominal.variant,
        "spec": nominal.run.spec.base,
        "the reported run": nominal.run.head,
        "draws": KEYED,
        "operators": grid_digest(campaign.operators),
        **{name: value for name, value in plan.items() if isinstance(value, str | int)},
        "python": sys.version,
        "distributions": installed_digest(),
    }


def _progress(line: WriteLine | None, name: str) -> Callable[[int, int | None, int], None] | None:
    if line is None:
        return None

    def show(executions: int, best: int | None, bound: int) -> None:
        found = "none found" if best is None else f"best cost {best}"
        line(f"{executions} runs, {found}, proven to cost {bound}: {name}")

    return show

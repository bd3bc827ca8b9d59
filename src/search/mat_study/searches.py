"""The searches of one item: each executes plans through the Evaluator, with a journal and workers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from mat.core import limits
from mat.core.adversary import Choose
from mat.core.checkpoint import tidy
from mat.core.codec import decode, encode
from mat.core.digest import digest
from mat.core.operator import grid_digest
from mat.core.run import ATTACHED, Run
from mat.core.spec import NO_SCHEDULE, RunSpec, Schedule
from mat.kernel.clock import real_monotonic
from mat.kernel.entropy import KEYED
from mat.kernel.folders import writable
from mat.kernel.isolation import OutlivedState
from mat.kernel.reads import Read
from mat_search import Campaign, CampaignResult, SearchStopped, search
from mat_search.campaign import Layer, Unanswered
from mat_search.executions import Declined, Evaluate, UnfitWorkersError
from mat_search.journal import SearchJournal, open_journal
from mat_study.evaluation import Evaluated, EvaluationLost, Evaluator, Lost, Plan
from mat_study.fresh import FreshAnswer
from mat_study.means import Means, Subject, WriteLine
from mat_study.notices import Notice
from mat_study.receiving import WorkerFailed
from mat_study.settings import ItemSettings
from mat_study.sources import Sources, installed_digest
from mat_study.tasks import Judged

T = TypeVar("T", covariant=True)
FOLDER: Final = Path(".mat", "campaigns")
_MARGIN: Final = 1.5
"""How many times the usual duration of an execution is set aside for each one that checks need."""
Note = Callable[[Evaluated], None]
Stopped = Callable[[Lost, bool], str]
"""(the lost execution, whether it was under faults) -> why the search ends with its results so far; "" to abandon it."""


@dataclass(frozen=True, slots=True)
class SearchLimit:
    """When a search must end, on the clock of `real_monotonic`, and the reason that its certificate then gives."""

    deadline_s: float
    text: str


def _timeout_text(timeout_s: float) -> str:
    return f"--mat-timeout: the limit of {timeout_s} s is reached"


class OutlivesRunError(Exception):
    """An execution left something in the process that cannot be put back, so the next one cannot begin from the same state."""


class SearchEvaluator:
    """Adapts an Evaluator to a search: RunSpec -> Run, under the variant of `first`, an execution of the same item.

    SearchStopped ends the search when its time is over (`timeout_s`, and the session's `limit`), or for a lost execution if
    `stopped` says so; otherwise a lost execution raises EvaluationLost. `reasons` are why the search was ended, `lost` is the
    latest execution without a run. The workload's judgment of a run is kept here until the search takes the run (`taken`).
    `outlived`: what outlived executions, by name; `read`: what executions in other processes have read. `forked`: each
    execution has a process of its own; otherwise OutlivesRunError ends the search where one needs it.
    """

    def __init__(
        self, evaluate: Evaluator, first: Evaluated, *, timeout_s: float | None, stopped: Stopped, forked: bool = False,
        limit: SearchLimit | None = None,
    ) -> None:  # fmt: skip
        self._evaluate, self._first, self._stop_reason = evaluate, first, stopped
        own = None if timeout_s is None else SearchLimit(real_monotonic() + timeout_s, _timeout_text(timeout_s))
        self._limit = min(filter(None, (own, limit)), key=lambda each: each.deadline_s, default=None)
        self._judgments: dict[str, Judged] = {}
        self._latest = first.judged
        self._forked = forked
        self._executions, self._spent_s = 0, 0.0
        self.outlived = {each.name: each for each in first.outlived}
        self.read: dict[Read, None] = {}
        self.lost: Lost | None = None
        self.reasons: list[str] = []

    def __call__(self, spec: RunSpec, *, vary: bool = False, adversary: Choose | None = None) -> Run:
        disturbed = bool(len(spec.schedule)) or adversary is not None
        if self._limit is not None and disturbed and real_monotonic() > self._limit.deadline_s:
            raise self._stop(self._limit.text)
        try:
            return self._timed(partial(self.execute, spec.seed, spec.schedule, vary=vary, adversary=adversary))
        except EvaluationLost as ended:
            why = self._stop_reason(ended.lost, disturbed)
            if not ended.lost.unanswered:
                self.lost = ended.lost
            if not why:
                raise
            if ended.lost.unanswered and disturbed and adversary is None:
                raise Unanswered(why, ended.lost.missing) from ended
            raise self._stop(why) from ended

    def _timed(self, execute: Callable[[], Run]) -> Run:
        began_s = real_monotonic()
        run = execute()
        self._executions += 1
        self._spent_s += real_monotonic() - began_s
        return run

    def enough(self, due: int) -> str:
        """Why exploring ends now, so that `due` more executions fit into the time; "" if there is more time than that."""
        if self._limit is None:
            return ""
        left_s = self._limit.deadline_s - real_monotonic()
        needed_s = _MARGIN * due * self._spent_s / max(1, self._executions)
        if left_s > needed_s:
            return ""
        if self._limit.text not in self.reasons:
            self.reasons.append(self._limit.text)
        return self._limit.text

    def execute(self, seed: int, schedule: Schedule, *, vary: bool = False, adversary: Choose | None = None) -> Run:
        """One execution without a deadline; EvaluationLost if it gives no run."""
        given = self._evaluate(replace(self.plan(seed, schedule, vary=vary), adversary=adversary))
        self.learn_outlived(given.outlived)
        self.read.update(dict.fromkeys(given.read))
        if isinstance(given, Lost):
            raise EvaluationLost(given)
        if not self._forked and needs_forks(given.outlived):
            raise OutlivesRunError
        self.learn(given.run, given.judged)
        return given.run

    def plan(self, seed: int, schedule: Schedule, *, vary: bool) -> Plan:
        """What is executed for a schedule, wherever it is executed."""
        return Plan(mode="search", seed=seed, schedule=schedule, variant=self._first.variant, vary=vary)

    def received(self, answer: FreshAnswer) -> Run:
        """The run of an execution on another machine, as if it had taken place here; Declined or WorkerFailed if this process
        must execute it, because it decides what follows.
        """
        if answer.run is None:
            raise Declined(answer.unanswered) if answer.unanswered else WorkerFailed(answer.why)
        if not self._forked and needs_forks(answer.outlived):
            raise Declined("it left something in its process")
        self.learn_outlived(answer.outlived)
        self.read.update(dict.fromkeys(answer.read))
        self.learn(answer.run, answer.judged)
        return answer.run

    def adapt(self, spec: RunSpec, choose: Choose) -> Run:
        return self(spec, adversary=choose)

    def _stop(self, why: str) -> SearchStopped:
        if why not in self.reasons:
            self.reasons.append(why)
        return SearchStopped(why)

    def learn(self, run: Run, judged: Judged) -> None:
        """Keep the workload's judgment of a run, which another process may have executed."""
        self._judgments[run.id] = self._latest = judged

    def learn_outlived(self, found: Iterable[OutlivedState]) -> None:
        for each in found:
            self.outlived.setdefault(each.name, each)

    def judged(self, run: Run) -> Judged:
        return self._judgments.get(run.id, self._latest)

    def taken(self, run: Run) -> Evaluated:
        """The execution behind a run that the search takes."""
        self._latest = self._judgments.pop(run.id, self._latest)
        plan = replace(self._first.plan, mode="search", seed=run.spec.seed, schedule=run.spec.schedule)
        return replace(self._first, plan=plan, run=run, judged=self._latest)


class Searches:
    """The searches of an item, and the journals of all of them.

    `limit`: when the session's time for the item is over, None without a limit. `read`: what executions in other processes have
    read. `complete`: the cost up to which the latest search was complete when the limit ended it, None if it did not.
    `because`: why the item is searched although it was certified before.
    """

    def __init__(self, subject: Subject, means: Means) -> None:
        self._subject, self._means = subject, means
        self._sources = Sources(means.began_ns)
        self._journals: list[SearchJournal] = []
        self.limit: SearchLimit | None = None
        self.complete: int | None = None
        self.read: dict[Read, None] = {}
        self.because = ""
        self._told: list[str] = []
        self._failures: set[str] = set()  # of executions of the latest search in workers

    @property
    def resumed(self) -> bool:
        """Whether executions of an interrupted search were used."""
        return any(each.recalled for each in self._journals)

    def can_resume(self, variant: str) -> bool:
        """Whether there is a journal of an interrupted search under a variant."""
        return not self._means.fresh and (writable(self._means.root / FOLDER).path / self._journal_name(variant)).exists()

    def _journal_name(self, variant: str) -> str:
        return f"{digest([self._subject.id, variant])[:20]}.jsonl"

    def search(self, nominal: Evaluated, *, note: Note, restart: Callable[[], None]) -> tuple[CampaignResult, SearchEvaluator]:
        """Search from a nominal execution, under its variant. `note` is called with each execution that the search takes.

        Where something outlives an execution that cannot be put back, the search begins anew, in forks: `restart` is called.
        """

        def begin_anew() -> None:
            restart()
            self._journals.pop().remove()

        execute = partial(self._search, nominal, note=note)
        return in_forks_if_needed(execute, self._subject.settings, nominal, begin_anew)

    def _search(self, nominal: Evaluated, *, note: Note, forked: bool) -> tuple[CampaignResult, SearchEvaluator]:
        settings, means = self._subject.settings, self._means
        campaign = campaign_of(self._subject, means, nominal.run)
        execute = means.forked(nominal) if forked else means.evaluate
        self._failures.clear()
        evaluate = SearchEvaluator(
            execute, nominal, timeout_s=settings.timeout_s, stopped=_stop_reason, forked=forked, limit=self.limit
        )
        journal = self._journal(nominal, campaign, evaluate, forked=forked)
        vary = partial(evaluate, vary=True)
        shown = None if means.line is None else _Progress(means.line, self._subject.name)
        with self._workers(evaluate, vary, journal, forked=forked) as executor:
            result = search(
                nominal.run, evaluate, campaign,
                confirm=journal.confirming(means.confirm(nominal.variant, HASH_SEEDS[0]), _FRESH[0]),
                confirm_again=journal.confirming(means.confirm(nominal.variant, HASH_SEEDS[1]), _FRESH[1]),
                begin_confirming=None if forked or executor else partial(self._begin_confirming, nominal.variant, journal),
                progress=shown.show if shown else None, layers=shown.learn if shown else None, vary=vary,
                adapt=evaluate.adapt, executor=executor, journal=journal, note=lambda run: note(evaluate.taken(run)),
                enough=evaluate.enough,
            )  # fmt: skip
        if not forked:
            result = self._looked_apart(result, evaluate, journal)
        self.read.update(evaluate.read)
        cut = self.limit is not None and self.limit.text in evaluate.reasons
        self.complete = max(0, result.complete) if cut and result.limited else None
        return result, evaluate

    def _begin_confirming(
        self, variant: str, journal: SearchJournal, batches: Sequence[tuple[bool, Sequence[Schedule]]]
    ) -> bool:  # fmt: skip
        """Begin what is not kept yet of what fresh processes will be asked for. What is kept of an interrupted search may have
        been executed at the same time.
        """
        if self._means.begin_confirming is None:
            return False
        missing = [
            (HASH_SEEDS[again], [each for each in schedules if not journal.holds(_FRESH[again], each)])
            for again, schedules in batches
        ]
        kept = sum(len(schedules) for _, schedules in batches) > sum(len(schedules) for _, schedules in missing)
        return self._means.begin_confirming(variant, [each for each in missing if each[1]]) or kept

    def _looked_apart(self, result: CampaignResult, evaluate: SearchEvaluator, journal: SearchJournal) -> CampaignResult:
        """The result of a search in this process, if no execution began from what another one had left.

        Else OutlivesRunError, or nothing is proven by a search that was interrupted.
        """
        left = self._means.look_apart()
        evaluate.learn_outlived(left)
        if not (needs_forks(left) or self._failures & {OutlivesRunError.__name__}):
            journal.flush()
            return result
        if not result.interrupted:
            raise OutlivesRunError
        reason = f"{', '.join(each.name for each in left) or 'something'} outlives a run, and the search was interrupted"
        return replace(result, certificate=replace(result.certificate, proven=False, bound=0, reason=reason))

    def once(self, kind: str, schedule: Schedule, *, seed: int, evaluate: SearchEvaluator) -> Evaluated:
        """One more execution that belongs to the latest search."""
        return evaluate.taken(self._journals[-1].once(kind, schedule, partial(evaluate.execute, seed, schedule)))

    def _journal(self, nominal: Evaluated, campaign: Campaign, evaluate: SearchEvaluator, *, forked: bool) -> SearchJournal:
        subject, folder = self._subject, writable(self._means.root / FOLDER)
        path = folder.path / self._journal_name(nominal.variant)
        if self._means.fresh:
            path.unlink(missing_ok=True)
        journal = open_journal(
            path, nominal.run.spec.under(NO_SCHEDULE), key={**search_key(subject, nominal, campaign), "forks": forked},
            source_digest=self._sources.digest, more=lambda run: _sidecar(evaluate, run),
            restore=lambda run, data: _learn(evaluate, run, data, where="journal"), looks=self._means.looks,
        )  # fmt: skip
        if folder.is_lost:
            journal.note = f"nothing is kept of this search: {folder.why}"
        elif folder.why and not journal.note:
            journal.note = f"the journal of the search is in {folder.path}, because {folder.why}"
        journal.learn(self._sources.new())
        tidy(folder.path, kept=limits.JOURNALS_KEPT)
        self._journals.append(journal)
        return journal

    @contextmanager
    def _workers(
        self, evaluate: SearchEvaluator, vary: Evaluate, journal: SearchJournal, *, forked: bool
    ) -> Iterator[Executor | None]:  # fmt: skip
        """The workers that --mat-workers or --mat-executor ask for, ended on exit; None if this process executes everything."""
        if self._means.pool is not None:

            def receive(answer: FreshAnswer) -> Run:
                if differing := self._sources.differing(answer.sources):  # what only this execution imports, say
                    raise UnfitWorkersError(
                        what=f"a worker has other sources: {', '.join(differing[:3])}",
                        why="workers must execute exactly what this process would, or certificates would mean nothing",
                        fix="give the workers the same code, in the same folder, and start them again",
                    )
                journal.learn(dict(answer.sources))
                return evaluate.received(answer)

            def plan(called: Evaluate, spec: RunSpec) -> Plan:
                return evaluate.plan(spec.seed, spec.schedule, vary=called is vary)

            with self._means.pool(plan, receive, self._told.append, forked=forked) as executor:
                yield executor
            return
        if self._means.workers == 1:
            yield None
            return
        from mat_study.forks import Forked

        def unpack(run: Run, sidecar: Any) -> None:
            known, sources, read = sidecar
            _learn(evaluate, run, known, where="worker")
            evaluate.read.update(dict.fromkeys(read))
            journal.learn(sources)

        pool = Forked(
            self._means.workers, inherited=(evaluate, vary), put_back=self._means.put_back, prepare=self._means.prepare,
            sidecar=lambda run: (_sidecar(evaluate, run), self._sources.new(), self._means.read()), unpack=unpack,
            failed=self._failures.add,
        )  # fmt: skip
        with pool:
            yield pool

    def notices(self) -> list[Notice]:
        """The journals, how much was reused from them, what went wrong, and what the session's time was not enough for."""
        found = [
            Notice(item=self._subject.id, path=str(each.path or ""), recalled=each.recalled, note=each.note)
            for each in self._journals
        ]
        found += [Notice(item=self._subject.id, note=text) for text in dict.fromkeys(self._told)]
        if self.because or self.complete is not None:
            cut = None if self.complete is None else self.complete + (self.complete >= 0)
            found.append(Notice(item=self._subject.id, because=self.because, cut=cut))
        return found

    def close(self) -> None:
        for journal in self._journals:
            journal.close()


_FRESH: Final = ("fresh", "fresh again")
"""What the journal calls the executions in fresh processes, by the place of their hash seed."""
HASH_SEEDS: Final = (1, 2)
"""The hash seeds of the fresh processes that a search compares with this one."""


def needs_forks(outlived: Iterable[OutlivedState]) -> bool:
    """Whether something cannot be put back, so that every execution needs a process of its own."""
    return any(each.remedy == "fork" for each in outlived)


class _InForks(Protocol[T]):
    def __call__(self, *, forked: bool) -> T: ...


def in_forks_if_needed(
    search: _InForks[T], settings: ItemSettings, nominal: Evaluated, restart: Callable[[], None] = lambda: None
) -> T:
    """Search in this process; in forks if the item asks for them, or if something outlives an execution that needs them."""
    if settings.isolate != "fork" and not needs_forks(nominal.outlived):
        try:
            return search(forked=False)
        except OutlivesRunError:
            restart()
    return search(forked=True)


def _sidecar(evaluate: SearchEvaluator, run: Run) -> list[Any]:
    """What is known of an execution besides its run, as JSON data."""
    outlived = [[each.name, each.text, each.remedy] for each in evaluate.outlived.values()]
    return [encode(evaluate.judged(run)), outlived]


def _learn(evaluate: SearchEvaluator, run: Run, data: Any, *, where: str) -> None:
    judged, outlived = data
    evaluate.learn(run, decode(Judged, judged, where=where))
    evaluate.learn_outlived(OutlivedState(*each) for each in outlived)


def campaign_of(subject: Subject, means: Means, nominal: Run) -> Campaign:
    """The campaign of `--mat-stress` for an item. Where a framework is attached, some operators are aimed at its tools."""
    from mat.measure.sequential import decided, estimate_data

    settings, operators = subject.settings, means.operators()
    if any(item.code == ATTACHED for item in nominal.findings):
        operators = tuple(operator.aimed(nominal.records) for operator in operators)
    return Campaign(
        operators=operators, budget=settings.budget, max_runs=settings.max_runs, shrink_runs=settings.shrink_runs,
        strategy=settings.strategy, stop=settings.stop, curve=settings.curve, interval=estimate_data, prices=settings.prices,
        decided=partial(decided, target=settings.target),
    )  # fmt: skip


def _stop_reason(lost: Lost, disturbed: bool) -> str:
    return lost.unanswered or ("an execution did not finish" if disturbed else "")


def search_key(subject: Subject, nominal: Evaluated, campaign: Campaign) -> dict[str, Any]:
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


class _Progress:
    """The line that shows how far a search is."""

    def __init__(self, line: WriteLine, name: str) -> None:
        self._line, self._name = line, name
        self._layer: Layer | None = None

    def learn(self, layer: Layer | None) -> None:
        self._layer = layer

    def show(self, executions: int, best: int | None, bound: int) -> None:
        found = "none found" if best is None else f"best cost {best}"
        self._line(f"{executions} runs, {found}, proven to cost {bound}{self._next(bound)}: {self._name}")

    def _next(self, bound: int) -> str:
        """How far the next cost is, as it was estimated last."""
        layer = self._layer
        if layer is None or layer.cost != bound + 1 or not layer.known:
            return ""
        return f", cost {layer.cost} {100 * layer.done // layer.known}% (about {layer.known - layer.done:,} left)"

"""Running an armed item: its seeds, its search, its replays, and one report for all of it (DESIGN decision 15)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from mat.core.adversary import Choose
from mat.core.campaign import Certificate, Counterexample, ItemResult, Stability, Status
from mat.core.errors import MatError
from mat.core.run import Run, same_violation
from mat.core.spec import RunSpec, Schedule
from mat.core.verdict import Violation
from mat.core.workload import Workload
from mat.kernel.clock import real_monotonic
from mat.measure.rows import Condition
from pytest_mat import live
from pytest_mat.beside import is_replayed, page_is_asked
from pytest_mat.compare import Governed, compare, measured
from pytest_mat.options import Settings, width_of
from pytest_mat.runtime import KEPT, PLAN, REPLAY, RESULT, Plan, cached_settings, catalog_of, refuse, task_of, tear_down
from pytest_mat.tasks import GIVEN, is_task

Reports = list[pytest.TestReport]


class EvaluationFailed(Exception):  # noqa: N818  (carries reports, not an error of ours)
    """An evaluation of the search did not give a run: its set-up failed, it was skipped, or it raised a MatError."""

    def __init__(self, reports: Reports) -> None:
        self.reports = reports
        super().__init__("the item could not be evaluated")


def run_item(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """pytest_runtest_protocol for armed items."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    interrupted = False
    if item.config.getoption("mat_confirm"):
        from pytest_mat.confirm import answer

        reports = answer(item, nextitem)
    else:
        running = _Item(item, nextitem)
        reports, interrupted = running.run(), running.interrupted
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    if interrupted:
        raise KeyboardInterrupt
    return True


class _Item:
    def __init__(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        self._item, self._next = item, nextitem
        self._rows: list[Any] = []
        self._counted: set[str] = set()
        self._first: Run | None = None
        self._failed: Reports = []
        self._unjudged = ""
        self._governed = Governed(item)
        self._curves: list[Any] = []
        self._aside: Any = None
        self._begun: Reports | None = None
        self._untasked = False
        self._beside: list[Run] | None = [] if page_is_asked(item.config) else None
        self.interrupted = False

    def run(self) -> Reports:
        try:
            return self._run()
        finally:
            if self._aside is not None:
                self._aside.close()

    def _run(self) -> Reports:
        item = self._item
        try:
            settings = cached_settings(item)
        except MatError as error:
            return self._torn_down([_refused(item, error)])
        replay = item.stash.get(REPLAY, None)
        if replay is not None:
            return self._replay(replay)
        if item.config.getoption("mat_gate"):
            return self._torn_down(self._smoke())
        if item.config.getoption("mat_evaluate"):
            evaluated = self._evaluate(settings)
            if evaluated is not None:
                return self._torn_down(evaluated)
        reports = self._nominal(settings)
        stress = item.config.getoption("mat_stress")
        if RESULT not in item.stash:  # skipped, failed in set-up, or a test that requests nothing of ours
            return self._torn_down(reports)
        if any(not report.passed for report in reports):
            status: Status = "violated" if self._violations(settings) else "failed"
            result = ItemResult(id=item.nodeid, status=status, executions=len(self._rows), category=self._category)
            self._show(item.stash[RESULT])
            self._attach(reports, result)
            return self._torn_down(reports)
        if not stress:
            self._attach(reports, self._nominal_result(settings))
            return self._torn_down(reports)
        return self._torn_down(self._stress(settings, reports))

    # -- nominal ----------------------------------------------------------------------------------------------------

    def _nominal(self, settings: Settings) -> Reports:
        """All seeds, fresh fixtures each; the first that fails is reported, with its seed.

        The others run all the same: a share of seeds that stops at the first failure says nothing (Wilson).
        """
        item = self._item
        told: tuple[Reports, Run | None] | None = None
        reports: Reports = []
        for seed in range(settings.seeds):
            reports = self._protocol(Plan(mode="nominal", seed=seed), "nominal", begun=self._begun if seed == 0 else None)
            run = item.stash.get(RESULT, None)
            self._first = self._first or run
            if self._first is None:
                break
            if told is None and any(not report.passed for report in reports):
                if settings.seeds > 1:
                    for report in reports:
                        report.sections.append(("mat", f"seed {seed} of {settings.seeds}"))
                told = reports, run
                if item.config.getoption("usepdb", False):  # somebody looks at this one
                    break
        if told is None:
            return reports
        reports, failed = told
        if failed is not None:
            item.stash[RESULT] = failed
        elif RESULT in item.stash:
            del item.stash[RESULT]
        return reports

    def _protocol(self, plan: Plan, condition: Condition, *, begun: Reports | None = None) -> Reports:
        """Run the item by a plan and keep its row. `begun`: the reports of where that was done just now."""
        item = self._item
        item.stash[PLAN] = plan
        reports = live.served(item, _fresh_protocol)(item) if begun is None else begun
        result = item.stash.get(RESULT, None)
        if result is not None:
            self._note(result, condition)
            if condition != "replay" and self._beside is not None and is_replayed(item, plan.seed):
                self._beside.append(result)
        return reports

    def _show(self, *runs: Run | None) -> None:
        """For the page of a session: runs that broke something, or that one which did is compared with."""
        if self._beside is not None:
            self._beside += [run for run in runs if run is not None]

    def _note(self, run: Run, condition: Condition) -> None:
        """Keep the run's row once per RunSpec: repetitions that check determinism are no further evidence."""
        self._unjudged = self._unjudged or _unjudged(run)
        if run.id in self._counted:
            return
        self._counted.add(run.id)
        row, governed = measured(self._item, run, condition)
        self._rows.append(row)
        self._governed.rows += [] if governed is None else [governed]
        if condition != "fault":  # what a search executes on its way is not kept singly
            self._keep([(run, row)])

    def _keep(self, runs: Sequence[tuple[Run, Any]]) -> None:
        """For `--mat-store`."""
        if self._item.config.getoption("mat_store") is not None:
            from pytest_mat.store import keep

            keep(self._item, runs)

    def _violations(self, settings: Settings) -> tuple[Violation, ...]:
        run = self._item.stash.get(RESULT, None)
        return tuple(found for found in run.failures if found.contract not in settings.expect) if run is not None else ()

    @property
    def _category(self) -> str:
        """As the rows have it: what the workload says, which may be a fixture's, in its short name."""
        return self._rows[0].category if self._rows else ""

    def _nominal_result(self, settings: Settings) -> ItemResult:
        run = self._item.stash[RESULT]
        vacuous = _vacuous(run, settings)
        if self._unjudged:
            self._item.warn(pytest.PytestWarning(self._unjudged))
        return ItemResult(
            id=self._item.nodeid,
            status="vacuous" if vacuous else "nominal",
            executions=len(self._rows),
            reason=vacuous or self._unjudged,
            findings=run.findings,
            category=self._category,
        )

    def _smoke(self) -> Reports:
        """The seeds of a gate's session (`--mat-gate`)."""
        from pytest_mat.gate import smoke

        return smoke(
            self._item, protocol=lambda seed: self._protocol(Plan(mode="nominal", seed=seed), "nominal"), attach=self._attach
        )

    # -- evaluation -------------------------------------------------------------------------------------------------

    def _evaluate(self, settings: Settings) -> Reports | None:
        """Measure the task under all conditions, and report that; None for a test that is no task, which was run once."""
        from pytest_mat.evaluate import as_configured

        item = self._item
        item.stash[PLAN] = Plan(mode="measure")
        with as_configured(item):
            reports = live.served(item, _fresh_protocol)(item)
            if RESULT in item.stash and not is_task(item.stash[GIVEN]):
                self._begun, self._untasked = reports, True
                return None
            if RESULT not in item.stash or any(not report.passed for report in reports):
                self._unmeasured(reports)
                return reports
            return self._measured(settings, reports)

    def _unmeasured(self, reports: Reports) -> None:
        """The task could not be evaluated: its first run did not come about."""
        from pytest_mat.evaluate import lost_at_once

        item = self._item
        journal = {"item": item.nodeid, "path": "", "recalled": 0, "said": "", "unevaluated": True}
        why, self._rows = lost_at_once(item, item.stash.get(GIVEN, Workload()), reports)
        if self._rows:
            result = ItemResult(
                id=item.nodeid, status="failed", reason=f"not evaluated: {why} in its first run", category=self._category
            )
            self._attach(reports, result, [journal], compared=False)
        else:
            reports[-1].mat_journals = [journal]  # type: ignore[attr-defined]

    def _measured(self, settings: Settings, reports: Reports) -> Reports:
        """The item was evaluated once and is a task."""
        from pytest_mat.evaluate import Evaluation
        from pytest_mat.resume import told

        item = self._item
        cancel_foreign_timer(item)
        item._mat_searching = True  # type: ignore[attr-defined]
        began = real_monotonic()
        try:
            evaluation = Evaluation(item, settings, self._executor(settings))
            try:
                evaluation.run()
            except KeyboardInterrupt:  # no report will say that there is something to go on with
                told([evaluation.left()])
                raise
        except MatError as error:
            return [_refused(item, error)]
        finally:
            item._mat_searching = False  # type: ignore[attr-defined]
            reports[1].duration += real_monotonic() - began
        total = evaluation.total
        self._rows, self._curves = total.rows, total.curves
        self._governed.rows, self._governed.searches = total.governed, total.searches
        self._show(*total.undisturbed)
        result = ItemResult(
            id=item.nodeid, status="evaluated", counterexamples=tuple(total.found), executions=total.executions,
            category=evaluation.task.category, certificate=next(iter(total.certificates), None),
            covered=next(iter(total.covered), None), reason=evaluation.reason,
        )  # fmt: skip
        self._attach(reports, result, [evaluation.said()], compared=False)
        return reports

    # -- stress -----------------------------------------------------------------------------------------------------

    def _stress(self, settings: Settings, reports: Reports) -> Reports:
        item, nominal = self._item, self._first
        assert nominal is not None
        vacuous = _vacuous(nominal, settings)
        if vacuous:
            self._attach(reports, ItemResult(id=item.nodeid, status="vacuous", executions=1, reason=vacuous))
            return reports
        cancel_foreign_timer(item)
        item._mat_searching = True  # type: ignore[attr-defined]
        began = real_monotonic()
        try:
            result = self._search(settings, nominal)
            self._governed.searched(result)
            self._curves = [_curve(item, self._category, settings, result)]
            result = replace(result, counterexamples=self._on_other_seeds(settings, result.counterexamples))
        except EvaluationFailed:
            return self._unevaluated(self._failed)
        except MatError as error:
            _fail(reports, f"the search stopped\n{error}")
            return self._unevaluated(reports)
        finally:
            item._mat_searching = False  # type: ignore[attr-defined]
            for report in reports:
                if report.when == "call":  # --durations, JUnit and the terminal tell what the search took
                    report.duration += real_monotonic() - began
        self.interrupted = result.interrupted
        unexpected = [found for found in result.counterexamples if found.verdict.contract not in settings.expect]
        if self._failed and not unexpected:
            return self._unevaluated(self._failed)
        return self._concluded(settings, reports, result)

    def _unevaluated(self, reports: Reports) -> Reports:
        """An evaluation was skipped, or failed outside its body: that is the item's outcome, unless more was found."""
        if any(report.failed for report in reports):
            self._attach(reports, ItemResult(id=self._item.nodeid, status="failed", executions=len(self._rows)))
        return reports

    def _search(self, settings: Settings, nominal: Run) -> Any:
        from mat.measure.sequential import decided, interval
        from mat_search import Campaign, search
        from pytest_mat.confirm import confirmer
        from pytest_mat.resume import Aside

        catalog = catalog_of(self._item.config)
        campaign = Campaign(
            operators=tuple(operator.spec() for operator in catalog.select(settings.faults)),
            budget=settings.budget,
            max_runs=settings.max_runs,
            shrink_runs=settings.shrink_runs,
            strategy=settings.strategy,
            stop=settings.stop,
            curve=settings.curve,
            interval=interval,
            decided=partial(decided, target=settings.target),
        )
        aside = self._aside = self._aside or Aside(self._item)
        evaluate = self._evaluator(settings)
        vary = partial(evaluate, vary=True)

        def note(run: Run) -> None:
            aside.note(run)
            self._note(run, "fault" if len(run.spec.schedule) else "nominal")

        journal = aside.journal(nominal, campaign)
        with aside.workers(evaluate, vary) as executor:
            return search(
                nominal, evaluate, campaign, confirm=journal.confirming(confirmer(self._item)), progress=self._live_line(),
                vary=vary, adapt=lambda spec, choose: evaluate(spec, adversary=choose), executor=executor, journal=journal,
                note=note,
            )  # fmt: skip

    def _evaluator(self, settings: Settings) -> Callable[..., Run]:
        from mat_search import SearchStopped

        seconds = self._item.config.getoption("mat_timeout")
        deadline = None if seconds is None else real_monotonic() + seconds
        execute = self._executor(settings)

        def evaluate(spec: RunSpec, **how: Any) -> Run:
            if deadline is not None and (len(spec.schedule) or how.get("adversary")) and real_monotonic() > deadline:
                raise SearchStopped(f"--mat-timeout: {seconds} s have passed")
            try:
                run = execute(spec.seed, spec.schedule, **how)
            except EvaluationFailed as failed:
                said = live.refused(self._item)
                if said:
                    raise SearchStopped(said) from failed
                self._failed = _under(failed.reports, spec.schedule)
                if not len(spec.schedule):
                    raise
                raise SearchStopped("an evaluation did not come to its end") from failed
            return run

        return evaluate

    def _executor(self, settings: Settings) -> Callable[..., Run]:
        return live.served(self._item, self._fork if settings.isolate == "fork" else self._here)

    def _here(self, seed: int, schedule: Schedule, **how: Any) -> Run:
        return evaluate_here(self._item, seed=seed, schedule=schedule, **how)

    def _fork(self, seed: int, schedule: Schedule, **how: Any) -> Run:
        from pytest_mat.confirm import evaluate_in_fork

        return evaluate_in_fork(self._item, seed=seed, schedule=schedule, **how)

    def _live_line(self) -> Callable[[int, int | None, int], None] | None:
        """A line that is rewritten in place, on a terminal only."""
        reporter = self._item.config.pluginmanager.getplugin("terminalreporter")
        if reporter is None or not getattr(reporter, "isatty", False) or reporter.verbosity < 0:
            return None
        last = [0.0]
        name = self._item.name

        def show(executions: int, best: int | None, bound: int) -> None:
            now = real_monotonic()
            if now - last[0] > 0.2:
                last[0] = now
                found = "none found" if best is None else f"best cost {best}"
                line = f"{executions} runs, {found}, proven to cost {bound}: {name}"
                reporter.rewrite(line[: reporter._tw.fullwidth - 1], erase=True)  # a line that wraps cannot be rewritten

        return show

    # -- conclusion -------------------------------------------------------------------------------------------------

    def _concluded(self, settings: Settings, reports: Reports, result: Any) -> Reports:
        from pytest_mat.collect import save

        item = self._item
        free = _at_no_cost(result.nominal, result.nominal_stability, settings)
        broken = {each.verdict.contract for each in free}
        found = [*free, *(each for each in result.counterexamples if each.verdict.contract not in broken)]
        contracts = frozenset(counterexample.verdict.contract for counterexample in found)
        certificate: Certificate = live.relative(item, result.certificate)
        if self._unjudged and certificate.proven:
            certificate = replace(certificate, proven=False, reason=self._unjudged, bound=0)
        proven = certificate.proven and certificate.bound >= settings.budget
        if settings.expect:
            missing, extra = settings.expect - contracts, contracts - settings.expect
            status: Status = "counterexample" if extra else "missed" if missing else "expected"
        else:
            missing, extra = frozenset(), contracts
            status = "counterexample" if found else "certified" if proven else "not_proven"
        reason = certificate.reason
        if not found and certificate.states == 0 and not reason:
            status = "vacuous"
            reason = f"no operator of the grid can change anything here within the budget of {settings.budget}"
        if found and not reason and proven is False and certificate.proven and settings.stop != "budget":
            reason = f"stop={settings.stop}: what costs more than {certificate.bound} was not looked for"
        if result.unconfirmed:
            names = ", ".join(sorted(each.verdict.contract for each in result.unconfirmed))
            reason = f"{reason} ({names} was broken in this process only)"
        replays = tuple(save(item, each, certificate, expected=each.verdict.contract in settings.expect) for each in found)
        outcome = ItemResult(
            id=item.nodeid, status=status, counterexamples=tuple(found), certificate=certificate,
            executions=result.executions, reason=reason, findings=result.findings, replays=replays, category=self._category,
            covered=result.covered,
        )  # fmt: skip
        if status in ("counterexample", "missed"):
            _fail(reports, _failure_text(item, outcome, extra, missing))
        disturbed = [each.run for each in found if len(each.run.spec.schedule)]
        self._show(*([result.nominal] if disturbed else []))
        self._keep([(run, measured(item, run, "adversarial")[0]) for run in disturbed])
        self._attach(reports, outcome)
        return reports

    def _on_other_seeds(self, settings: Settings, found: Sequence[Counterexample]) -> tuple[Counterexample, ...]:
        """Each counterexample, executed on the seeds that were not searched."""
        execute = self._executor(settings)
        shown: dict[int, list[int]] = {index: [] for index in range(len(found))}
        tried = 0
        with suppress(EvaluationFailed):
            for seed in range(1, settings.seeds):
                runs = [
                    self._aside.once(f"seed {seed}", schedule, partial(execute, seed, schedule))
                    for schedule in (each.run.spec.schedule for each in found)
                ]
                tried += 1
                for index, (each, run) in enumerate(zip(found, runs, strict=True)):
                    self._aside.note(run)
                    self._note(run, "fault")
                    if any(same_violation(violation, each.verdict) for violation in run.failures):
                        shown[index].append(seed)
        return tuple(
            replace(each, stability=replace(each.stability, other_seeds=tried, shown_on=tuple(shown[index])))
            for index, each in enumerate(found)
        )

    def _replay(self, replay: Any) -> Reports:
        from pytest_mat.collect import replay_plan

        reports = self._protocol(replay_plan(self._item, replay), "replay")
        status: Status = "replayed"
        if any(not report.passed for report in reports):
            status = self._broken_replay(replay, self._item.stash.get(RESULT, None))
            self._show(self._item.stash.get(RESULT, None))
        said = self._reproduced(replay) if status == "replayed" else ""
        self._attach(reports, ItemResult(id=self._item.nodeid, status=status, executions=1, reason=said))
        return self._torn_down(reports)

    def _reproduced(self, replay: Any) -> str:
        """What a strict replay that met its recording saw; a regression replay that passes has nothing to say."""
        if self._item.stash[PLAN].mode != "strict":
            return ""
        verdict = replay.counterexample.verdict
        return f"reproduced step by step: {verdict.contract} at step {verdict.step}, cost {replay.counterexample.cost}"

    def _broken_replay(self, replay: Any, run: Run | None) -> Status:
        from mat.evidence.replay import regression_outcome

        if run is None:
            return "failed"
        if self._item.stash[PLAN].mode == "regression" and regression_outcome(replay, run).status == "stale":
            return "stale"
        return "violated" if run.failures else "failed"

    def _attach(
        self, reports: Reports, result: ItemResult, journals: Sequence[dict[str, Any]] = (), *, compared: bool = True
    ) -> None:
        from pytest_mat.properties import annotate
        from pytest_mat.summary import payload

        problems = self._compared() if compared else []
        if problems:
            result = replace(result, reason="; ".join(filter(None, (result.reason, *problems))))
        call = next((report for report in reports if report.when == "call"), reports[-1])
        said = self._governed
        annotate(self._item, reports, result)
        call.mat = payload(  # type: ignore[attr-defined]
            result, self._rows, governed=said.rows, searches=said.searches, curves=self._curves, runs=self._beside or (),
            kept=self._item.stash.get(KEPT, 0),
        )  # fmt: skip
        journals = [*journals, *(self._aside.said() if self._aside is not None else ())]
        if self._untasked:
            journals.append({"item": self._item.nodeid, "path": "", "recalled": 0, "said": "", "untasked": True})
        if journals:
            call.mat_journals = journals  # type: ignore[attr-defined]
        self._item.ihook.pytest_mat_item_finished(item=self._item, result=result)

    def _compared(self) -> list[str]:
        """Run the item's other governance variants: they are reported, and fail nothing. Says what could not be compared."""
        item = self._item
        if item.stash.get(REPLAY, None) is not None:
            return []
        kept = (self._rows, self._counted, self._unjudged, getattr(item, "_mat_searching", False))
        self._rows, self._counted = [], set()  # rows of other variants belong in the table of variants alone
        item._mat_searching = True  # type: ignore[attr-defined]
        try:
            return compare(
                item, cached_settings(item), protocol=lambda: _fresh_protocol(item), note=self._note,
                search=self._search_variant if item.config.getoption("mat_stress") else None,
            )  # fmt: skip
        finally:
            self._rows, self._counted, self._unjudged, item._mat_searching = kept  # type: ignore[attr-defined]

    def _search_variant(self, nominal: Run) -> None:
        with suppress(EvaluationFailed, MatError):
            self._governed.searched(self._search(cached_settings(self._item), nominal))

    def _torn_down(self, reports: Reports) -> Reports:
        """Take down what the next item does not need; an error there belongs to this item."""
        item = self._item
        session = item.session
        following = None if session.shouldfail or session.shouldstop else self._next
        info = pytest.CallInfo.from_call(
            lambda: session._setupstate.teardown_exact(following), when="teardown", reraise=(pytest.exit.Exception,)
        )
        if info.excinfo is not None:
            report = item.ihook.pytest_runtest_makereport(item=item, call=info)
            reports = [*[each for each in reports if each.when != "teardown"], report]
        return reports


def evaluate_here(
    item: pytest.Item, *, seed: int, schedule: Schedule, vary: bool = False, adversary: Choose | None = None
) -> Run:
    """One evaluation in this process, through the whole item, unreported. EvaluationFailed where there is no run."""
    item.stash[PLAN] = Plan(mode="search", seed=seed, schedule=schedule, vary=vary, adversary=adversary)
    reports = _fresh_protocol(item)
    run = item.stash.get(RESULT, None)
    if run is None or any(not report.passed for report in reports):
        raise EvaluationFailed(reports)
    return run


def _fresh_protocol(item: pytest.Item) -> Reports:
    """The whole item once more, unreported: function fixtures, the class instance and captured output are new."""
    item._report_sections = []
    if RESULT in item.stash:
        del item.stash[RESULT]
    if isinstance(item.parent, pytest.Class) and "_instance" in vars(item):
        del item._instance  # type: ignore[attr-defined]
        item._obj = None  # type: ignore[attr-defined]
    try:
        return runtestprotocol(item, log=False, nextitem=item.parent)  # type: ignore[arg-type]
    except BaseException:  # an interrupt leaves the protocol half-way; the next evaluation must find nothing of it
        item.session._setupstate.teardown_exact(item.parent)  # type: ignore[arg-type]
        tear_down(item)
        item._request = False  # type: ignore[attr-defined]
        item.funcargs = None  # type: ignore[attr-defined]
        raise


def _refused(item: pytest.Item, error: MatError) -> pytest.TestReport:
    """The report of an item whose settings mean nothing: it fails in set-up, with what the error says."""

    info = pytest.CallInfo.from_call(lambda: refuse(error), when="setup")
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=info)
    return report


def _under(reports: Reports, schedule: Schedule) -> Reports:
    """Reports of an evaluation that the search asked for say what it was under."""
    said = ", ".join(f"{each.operator} at {each.site}" for each in schedule) or "no fault"
    for report in reports:
        report.sections.append(("mat", f"in the search, under {said}"))
    return reports


def _unjudged(run: Run) -> str:
    broken = next((each for each in run.outcomes if each.severity == "hard" and each.outcome == "unknown"), None)
    return "" if broken is None else f"{broken.contract} could not be judged: {broken.error}"


def _vacuous(run: Run, settings: Settings) -> str:
    if not run.outcomes and settings.objective != "task":
        return "no contract is armed"
    if not any(record.action.boundary for record in run.records):
        return "no boundary is crossed"
    return ""


def _at_no_cost(nominal: Run, stability: Stability, settings: Settings) -> list[Counterexample]:
    """Expected contracts that the nominal run itself breaks: counterexamples with an empty schedule."""
    firsts: dict[str, Violation] = {}
    for violation in nominal.failures:
        firsts.setdefault(violation.contract, violation)
    expected = [firsts[name] for name in firsts if name in settings.expect]
    return [Counterexample(verdict=violation, run=nominal, stability=stability) for violation in expected]


def _curve(item: pytest.Item, category: str, settings: Settings, result: Any) -> Any:
    from mat.measure.robustness import curve_row

    return curve_row(
        item=task_of(item), category=category, budget=settings.budget, certificate=result.certificate,
        lives=result.lives, chains=result.chains,
    )  # fmt: skip


def _failure_text(item: pytest.Item, result: ItemResult, extra: frozenset[str], missing: frozenset[str]) -> str:
    from mat.report.terminal import failure_section

    parts = []
    if missing:
        parts.append(
            f"no counterexample for {', '.join(sorted(missing))}, which expect= names\n"
            f"  why: the search was {'complete' if result.certificate and result.certificate.proven else 'not complete'}"
            f" within the budget ({result.executions} executions)\n"
            "  fix: take the contract out of expect= if the system was mended, or raise budget="
        )
    assert result.certificate is not None
    for found, path in zip(result.counterexamples, result.replays, strict=True):
        if found.verdict.contract in extra:
            certificate = result.certificate.below(found.cost)
            parts.append(failure_section(found, certificate, replay_path=path, item=item.nodeid, width=width_of(item.config)))
    return "\n\n".join(parts)


def _fail(reports: Reports, text: str) -> None:
    for report in reports:
        if report.when == "call":
            report.outcome = "failed"
            report.longrepr = text


def cancel_foreign_timer(item: pytest.Item) -> None:
    if item.config.pluginmanager.hasplugin("timeout"):
        item.ihook.pytest_timeout_cancel_timer(item=item)

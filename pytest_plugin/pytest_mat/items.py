"""Run an armed item: its study, and one report for all its executions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from mat.core.campaign import BrokenRun, ItemResult
from mat.core.codec import encode
from mat.core.errors import MatError, plural
from mat.core.operator import OperatorSpec
from mat.core.redact import cleaned
from mat.core.spec import Schedule
from mat.evidence import replay_file
from mat.kernel.clock import real_monotonic
from mat_study.evaluation import Lost, Plan
from mat_study.fresh import HashSeed
from mat_study.item import Asked, ItemStudy, study
from mat_study.means import Means, PlanOf, Receive, Subject, Tell
from mat_study.replay import moved_text, plan_of
from mat_study.searches import HASH_SEEDS
from mat_study.settings import ItemSettings
from mat_study.store import ItemRuns
from mat_study.stress import Failure
from pytest_mat import confirm, gate, notices, page, replays, reused
from pytest_mat.allotted import time_of
from pytest_mat.collector import rare_collections
from pytest_mat.evaluators import EvaluatedItem, ItemEvaluator, LostItem, reports_of
from pytest_mat.execution import live_calls, refuse, resumes, warner
from pytest_mat.known import known_findings
from pytest_mat.live_line import LiveLine
from pytest_mat.options import is_armed, is_in_the_summary, session_began_ns, settings_of, width_of
from pytest_mat.properties import annotate
from pytest_mat.protocol import Reports
from pytest_mat.session import session_of


def run_item(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """pytest_runtest_protocol for armed items."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports, interrupted = _run(item, nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    if interrupted:
        raise KeyboardInterrupt
    return True


def _run(item: pytest.Item, nextitem: pytest.Item | None) -> tuple[Reports, bool]:
    """The item's reports, and whether the session must end."""
    try:
        settings = replace(settings_of(item), known=known_findings(item))
    except MatError as error:
        if item.config.getoption("mat_confirm"):
            confirm.refuse(item, error)
        return _tear_down(item, nextitem, [_refusal_report(item, error)]), False
    if item.config.getoption("mat_confirm"):
        settings = confirm.requested_settings(item, settings)
    running = _Running(item, settings)
    if item.config.getoption("mat_confirm"):
        _cancel_foreign_timer(item)  # another plugin set it for one run of the item
        return _tear_down(item, nextitem, confirm.answer(item, running.evaluate)), False
    try:
        with _restored_xfail(item), running.collector:
            try:
                running.start_fresh_processes()
                found = running.with_reports(study(running.subject(), running.means(), running.asked()))
                running.inspect(found)
            finally:
                running.finish()
    except MatError as error:
        return _tear_down(item, nextitem, [_refusal_report(item, error)]), False
    except pytest.fail.Exception as failed:  # the timer of another plugin went off between two executions
        return _tear_down(item, nextitem, [_failed_report(item, failed)]), False
    return _tear_down(item, nextitem, running.reports_of(found)), found.interrupted


class _Running:
    """One item: the inputs of its study, and the reports made from its findings."""

    def __init__(self, item: pytest.Item, settings: ItemSettings) -> None:
        self._item, self._settings, self._session = item, settings, session_of(item.config)
        self._live = live_calls(item, settings)
        self.evaluate = ItemEvaluator(item, settings, self._live, alone=confirm.ends_at_once(item))
        self._runs = ItemRuns(self._session.store, warner(item)) if self._session.store is not None else None
        self._searching_s: float | None = None
        self._line = LiveLine(item.config)
        self._reuse = reused.reuse_of(item, settings, self.evaluate.read) if reused.is_searched(item) else None
        self.collector = ExitStack()
        """Holds what a search changes in Python's garbage collector, from its first execution to the end of the study."""

    def subject(self) -> Subject:
        item = self._item
        return Subject(
            id=item.nodeid, task=replays.task_of(item), name=item.name, settings=self._settings,
            armed=is_armed(item),
            place=item.session.items.index(item) if item.config.getoption("mat_evaluate") else 0,
            places=len(item.session.items), began_s=self._session.began_s,
            replay="" if replays.file_of(item) is None else replays.source_of(item),
        )  # fmt: skip

    def start_fresh_processes(self) -> None:
        """Before the item's first run: a process inherits more from the one that starts it than could be put back."""
        if not self._item.config.getoption("mat_stress") or replays.file_of(self._item) is not None:
            return
        if not (reused.is_searched(self._item) and reused.seem_to_hold(self._item.session)):
            self._session.fresh.begin(HASH_SEEDS)
            if self._item.config.getoption("mat_executor") is not None:
                from pytest_mat.cluster import cluster_of

                cluster_of(self._item.config)
        time_of(self._item.session)

    def asked(self) -> Asked:
        item, option = self._item, self._item.config.getoption
        file = replays.file_of(item)
        if file is not None:
            strict = option("mat_replay") is not None
            return Asked(replay=plan_of(file.replay, strict=strict, live_calls=self._settings.live_calls))
        return Asked(
            stress=option("mat_stress"),
            evaluate=option("mat_evaluate"),
            seeds=gate.seeds_of(item),
            look=option("usepdb", False),
        )

    def means(self) -> Means:
        item = self._item
        return Means(
            evaluate=self.evaluate,
            operators=self._operators,
            live=self._live,
            forked=self.evaluate.forked,
            confirm=lambda variant, hash_seed: confirm.confirmer(
                item, self._session.fresh, variant, hash_seed, recorded=self._live.recorded
            ),
            begin_confirming=self._begin_confirming,
            replays=item.path.parent / replay_file.FOLDER,
            typed=lambda path: replays.typed(item, path),
            root=item.config.rootpath,
            began_ns=session_began_ns(),
            fresh=item.config.getoption("mat_fresh"),
            workers=item.config.getoption("mat_workers") or 1,
            pool=self._pool if item.config.getoption("mat_executor") is not None else None,
            put_back=self.evaluate.put_back,
            look_apart=self.evaluate.look_apart,
            looks=self.evaluate.looks,
            prepare=self._prepare,
            searching=self._searching,
            interrupted=lambda notice: notices.keep_notices([encode(notice)]),
            store=self._runs,
            compared=page.compared(item),
            line=self._line.show,
            tell=self._line.tell,
            reuse=self._reuse,
            read=self.evaluate.read,
            allotted=lambda: time_of(item.session).allotted(item),
            saving=partial(self._session.savings.__setitem__, item.nodeid) if item.config.getoption("mat_doctor") else None,
        )

    def _operators(self) -> tuple[OperatorSpec, ...]:
        """The operators to search with; a test that can be resumed has the end of the process among the default ones."""
        chosen = self._session.catalog.select(self._settings.faults)
        if self._settings.faults is None and resumes(self._item):
            chosen = (*chosen, self._session.catalog["process.crash"])
        return tuple(operator.spec() for operator in chosen)

    def _pool(self, plan: PlanOf, receive: Receive, tell: Tell, *, forked: bool) -> Executor:
        """The workers of the session's cluster, for one search of the item."""
        from pytest_mat.cluster import cluster_of, remote_subject

        subject = remote_subject(self._item, self._live, self.evaluate.read(), forked=forked)
        return cluster_of(self._item.config).pool(subject, plan, receive, tell)

    def _prepare(self) -> None:
        """In a worker: leave the terminal alone, and make no live calls, because only one process makes them."""
        _silence(self._item.config)
        self._live.serve_only()

    def _begin_confirming(self, variant: str, batches: Sequence[tuple[HashSeed, Sequence[Schedule]]]) -> bool:
        together = () if self.evaluate.shares() else batches
        return confirm.begin(self._item, self._session.fresh, variant, together, recorded=self._live.recorded)

    def _searching(self) -> None:
        """The reported run is over: a timeout of another plugin does not apply to what follows."""
        _cancel_foreign_timer(self._item)
        self._searching_s = real_monotonic()
        self.evaluate.put_back()  # what the reported run left, else it would seem to be changed in here
        self.evaluate.settle(lambda: self.collector.enter_context(rare_collections()))

    def finish(self) -> None:
        """Leave the process as it was before a search, or before a replay: else certificates would depend on the
        replays that there are. A test that is executed once leaves what it likes.
        """
        self._line.clear()
        if replays.file_of(self._item) is None and not reused.is_searched(self._item):
            self.evaluate.finish()
        else:
            self.evaluate.put_back()
        if self._searching_s is not None:
            time_of(self._item.session).spent(real_monotonic() - self._searching_s)

    def with_reports(self, found: ItemStudy) -> ItemStudy:
        """The study with an execution of this process as the reported one.

        One that was lost in a fresh process has no reports: it is repeated here, and fails for its reason if it does not here.
        """
        lost = found.reported
        if isinstance(lost, EvaluatedItem | LostItem):
            return found
        again = self.evaluate.here(lost.plan)
        failure = found.failure
        if isinstance(lost, Lost) and lost.failed and isinstance(again, EvaluatedItem):
            failure = failure or Failure(message=lost.why)
        return replace(found, reported=again, failure=failure)

    def inspect(self, found: ItemStudy) -> None:
        """With --pdb: execute the first counterexample that makes the item fail again, with a prompt at its violating step."""
        if not self._item.config.getoption("usepdb", False) or found.failure is None or found.result is None:
            return
        for index, each in enumerate(found.result.counterexamples):
            if found.result.standing(index).kind == "new":
                spec = each.run.spec
                self.evaluate.here(Plan(mode="search", seed=spec.seed, schedule=spec.schedule, look=each.verdict))
                return

    # -- reports ----------------------------------------------------------------------------------------------------

    def reports_of(self, found: ItemStudy) -> Reports:
        """The reports of the execution that represents the item, with the findings of its study."""
        item, result, reports = self._item, found.result, reports_of(found.reported)
        self._mark_reported(reports, found)
        for report in reports:
            report.sections[:] = cleaned(report.sections)  # what the test logged and printed
        if found.failure is not None and result is not None:
            failure, shown = cleaned((found.failure, result))  # before lines are broken, in which no secret would be found
            broken = found.report.broken if found.report is not None and is_in_the_summary(item.config) else None
            text = _failure_text(failure, shown, item=cleaned(item.nodeid), width=width_of(item.config), broken=cleaned(broken))
            for report in _call_reports(reports):
                report.outcome, report.longrepr = "failed", text
        if self._searching_s is not None:
            for report in _call_reports(reports):  # --durations, JUnit and the terminal show the time of the search
                report.duration += real_monotonic() - self._searching_s
        call: Any = next(iter(_call_reports(reports)), reports[-1])
        if found.notices:
            call.mat_notices = [encode(replace(cleaned(notice), path=notice.path)) for notice in found.notices]
        for warning in filter(None, (found.unjudged, found.vacuous)):
            item.warn(pytest.PytestWarning(cleaned(warning)))
        moved = moved_text(found.reported.plan)
        if moved:
            item.warn(pytest.PytestWarning(f"the replay was {moved}; `pytest --mat-stress` writes it anew"))
        if result is not None:
            annotate(item, reports, cleaned(result))
            call.mat = encode(cleaned(found.report))
            item.ihook.pytest_mat_item_finished(item=item, result=result)
        return reports

    def _mark_reported(self, reports: Reports, found: ItemStudy) -> None:
        """State which of several executions is reported. In a gate's session an execution does not fail by itself."""
        plan, note = found.reported.plan, ""
        if plan.mode == "search":
            disturbed = ", ".join(f"{each.operator} at {each.site}" for each in plan.schedule) or "no fault"
            note = f"in the search, under {disturbed}"
        elif found.failed_seed is not None:
            note = f"seed {found.failed_seed} of {self._settings.seeds}"
        for report in reports:
            if note:
                report.sections.append(("mat", cleaned(note)))
            if found.smoke is not None and found.result is not None and report.failed:
                report.outcome = "skipped"
                report.wasxfail = f"{found.smoke} of {found.result.executions} seeds failed; the gate judges"


def _failure_text(failure: Failure, result: ItemResult, *, item: str, width: int, broken: tuple[BrokenRun, ...] | None) -> str:
    """Why the item fails: each counterexample in full, or in short if the summary tells about these broken runs."""
    from mat.report.brief import failure_lines
    from mat.report.findings import finding_line
    from mat.report.terminal import failure_section

    if failure.message:
        return failure.message
    parts = []
    certificate = result.certificate
    assert certificate is not None
    if failure.missing:
        parts.append(
            f"no counterexample for {', '.join(sorted(failure.missing))}, which expect= lists\n"
            f"  why: the search was {'complete' if certificate.proven else 'not complete'}"
            f" within the budget ({plural(result.executions, 'execution')})\n"
            "  fix: remove the contract from expect= if the system was fixed, or raise budget="
        )
    if broken is not None:
        parts += ["\n".join(failure_lines(finding_line(item, each))) for each in broken if each.standing.kind == "new"]
        return "\n".join([*parts, *failure.remarks])
    for index, (found, path) in enumerate(zip(result.counterexamples, result.replays, strict=True)):
        standing = result.standing(index)
        if standing.kind == "new":
            section = failure_section(found, certificate.below(found.cost), replay_path=path, item=item, width=width)
            parts.append(f"{section}{standing.remark}\n" if standing.remark else section)
    parts += failure.remarks
    return "\n\n".join(parts)


def _call_reports(reports: Reports) -> Reports:
    return [report for report in reports if report.when == "call"]


def _tear_down(item: pytest.Item, nextitem: pytest.Item | None, reports: Reports) -> Reports:
    """Tear down what the next item does not need. Return the item's reports, with any error of this teardown."""
    session = item.session
    next_item = None if session.shouldfail or session.shouldstop else nextitem
    info = pytest.CallInfo.from_call(
        lambda: session._setupstate.teardown_exact(next_item), when="teardown", reraise=(pytest.exit.Exception,)
    )
    if info.excinfo is not None:
        report = item.ihook.pytest_runtest_makereport(item=item, call=info)
        reports = [*[each for each in reports if each.when != "teardown"], report]
    return reports


def _refusal_report(item: pytest.Item, error: MatError) -> pytest.TestReport:
    """The report of an item with invalid settings: it fails in setup, with the text of the error."""
    info = pytest.CallInfo.from_call(lambda: refuse(error), when="setup")
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=info)
    return report


def _failed_report(item: pytest.Item, failed: BaseException) -> pytest.TestReport:
    """The report of an item that an exception ended outside of its executions."""

    def fail() -> None:
        raise failed

    call = pytest.CallInfo.from_call(fail, when="call")
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
    return report


@contextmanager
def _restored_xfail(item: pytest.Item) -> Iterator[None]:
    """Restore `--runxfail` at the end: an evaluation sets it to ignore a task's xfail mark, and later items keep theirs."""
    kept = item.config.option.runxfail
    try:
        yield
    finally:
        item.config.option.runxfail = kept


def _cancel_foreign_timer(item: pytest.Item) -> None:
    if item.config.pluginmanager.hasplugin("timeout"):
        item.ihook.pytest_timeout_cancel_timer(item=item)


def _silence(config: pytest.Config) -> None:
    """In a fork: give up the session's terminal, captured output and log file, which belong to the process it came from.

    The timer of `faulthandler_timeout` has no thread here, and whoever cancels it would wait for that thread for ever.
    """
    from _pytest.capture import MultiCapture

    if config.pluginmanager.hasplugin("faulthandler"):
        config.pluginmanager.unregister(name="faulthandler")

    with open(os.devnull, "r+b", buffering=0) as nowhere:
        for descriptor in (0, 1, 2):
            os.dup2(nowhere.fileno(), descriptor)
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture._global_capturing = MultiCapture(in_=None, out=None, err=None)
    handler: Any = getattr(config.pluginmanager.getplugin("logging-plugin"), "log_file_handler", None)
    if hasattr(handler, "setStream"):
        handler.setStream(open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (as long as the fork lives)

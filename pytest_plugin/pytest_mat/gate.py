"""`--mat-gate`: select the smoke and the replay suite, run them, and judge them against a baseline report (A6.7).

A session by itself runs all seeds that the baseline has and judges at its end. `mat gate` starts sessions in rounds instead
(`--mat-gate-round`): each runs some of the seeds and only writes down what they came to. Workers of xdist select alike; what
they ran travels with their reports, and what they selected when they end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from mat.core.campaign import Counterexample, ItemResult
from mat.core.codec import decode, encode
from mat.core.errors import MatError
from mat.measure import gate as measure
from mat.measure.gate import HELD, Baseline, Evidence, Plan, ReplayEnd, Unrun
from mat.measure.regression import RunOutcome, compare, outcome_of
from mat.measure.rows import RunRow
from pytest_mat.collect import Broken, source_of
from pytest_mat.options import width_of
from pytest_mat.runtime import REPLAY, RESULT

if TYPE_CHECKING:
    from mat.commands.gate_settings import Settings
    from mat.measure.gate import Gate
    from mat.report.document import Document
    from mat.report.files import Besides
    from mat.report.from_json import Reported

_KEEPER: Final = pytest.StashKey["Gatekeeper"]()
_ALONE: Final = ("mat_stress", "mat_replay", "mat_evaluate", "mat_confirm")
"""Options that run something else."""
_NOT_RUN: Final = "it did not run"


def register(config: pytest.Config) -> None:
    """Called once by a session with --mat-gate, before it collects. UsageError where the gate cannot mean anything."""
    from mat.commands.baseline import baseline_report
    from mat.commands.gate_settings import settings_from, settings_of

    others = [name for name in _ALONE if config.getoption(name, None)]
    if others:
        raise pytest.UsageError(f"--mat-gate and --{others[0].replace('_', '-')} run different things; give one of them")
    folder = Path(config.invocation_params.dir)
    try:
        settings = settings_of(settings_from(config.getoption("mat_gate_set") or ()), folder=folder)
        reported, name = baseline_report(config.getoption("mat_gate"), file=settings.file, folder=folder)
    except MatError as error:
        raise pytest.UsageError(f"--mat-gate: {error}") from None
    file = config.getoption("mat_gate_round")
    given = None if file is None else json.loads(Path(file).read_text(encoding="utf-8"))
    keeper = Gatekeeper(config, settings=settings, reported=reported, name=name, given=given)
    config.stash[_KEEPER] = keeper
    config.pluginmanager.register(keeper, "mat-gate")


class Gatekeeper:
    """The hooks of a session with a gate."""

    def __init__(
        self, config: pytest.Config, *, settings: Settings, reported: Reported, name: str, given: dict[str, Any] | None
    ) -> None:
        from mat.commands.baseline import baseline_of

        self._config, self._settings, self._reported, self._name, self._given = config, settings, reported, name, given
        self._baseline: Baseline = baseline_of(reported)
        self._replays: dict[str, tuple[str, Counterexample]] = {}
        self._plan: Plan | None = None
        self._seeds: dict[str, tuple[int, ...]] = {}
        self._outcomes: list[RunOutcome] = []
        self._apart: list[tuple[str, str]] = []
        self._ends: dict[str, ReplayEnd] = {}
        self._unrun: dict[str, Unrun] = {}
        self._gate: Gate | None = None

    # -- selection --------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, None, None]:
        """What was collected is noted before -k and -m deselect; the suites are chosen of what they leave."""
        noted = {item.nodeid for item in items}
        yield
        plan = self._planned(items, noted | {item.nodeid for item in items})
        chosen = [item for item in items if item.nodeid in plan.selected]
        self._take(plan)
        if self._given is not None and self._given["plan"] is not None:
            chosen = [item for item in chosen if self._seeds.get(item.nodeid)]
        left = [item for item in items if item not in chosen]
        if left:
            self._config.hook.pytest_deselected(items=left)
        items[:] = chosen
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["mat_gate"] = encode(plan)

    def _planned(self, items: list[pytest.Item], noted: set[str]) -> Plan:
        from pytest_mat import _is_armed

        if self._given is not None and self._given["plan"] is not None:
            return decode(Plan, self._given["plan"], where="the plan of the first round")
        given, settings = self._given or {}, self._settings
        replays = {item.nodeid: item.stash[REPLAY].counterexample for item in items if REPLAY in item.stash}
        self._replays = {source_of(item): (item.nodeid, replays[item.nodeid]) for item in items if REPLAY in item.stash}
        return measure.plan(
            self._baseline,
            tests=[item.nodeid for item in items if _is_armed(item) and item.nodeid not in replays],
            replays=replays,
            broken=[item.nodeid for item in items if isinstance(item, Broken)],
            there=self._elsewhere(noted),
            smoke=given.get("smoke", settings.smoke),
            seeds=given.get("seeds", settings.seeds),
            all_replays=given.get("all_replays", settings.replays == "all"),
        )

    def _elsewhere(self, noted: set[str]) -> Callable[[str], bool]:
        """Whether an item that is not in the session could be there still: deselected, or of a file that was not collected."""
        modules = {name.partition("::")[0] for name in noted}
        named = any("::" in str(argument) for argument in self._config.args)

        def there(item: str) -> bool:
            module = item.partition("::")[0]
            file = (self._config.rootpath / module).is_file()
            return item in noted or (file and (named or module not in modules))

        return there

    def _take(self, plan: Plan) -> None:
        """The plan, and of it the seeds of this session."""
        given = self._given or {}
        begin, end = given.get("begin", 0), given.get("end")
        self._plan = plan
        self._seeds = {test.item: test.seeds[begin:end] for test in plan.smoke}

    def seeds_of(self, item: pytest.Item) -> tuple[int, ...]:
        return self._seeds[item.nodeid]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Controller: a worker has ended, and says what it selected; all select alike."""
        said = getattr(node, "workeroutput", {}).get("mat_gate")
        if said is not None and self._plan is None:
            self._take(decode(Plan, said, where="the plan of a worker"))

    # -- evidence ---------------------------------------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        payload = getattr(report, "mat", None)
        if payload is not None:
            self._keep(decode(ItemResult, payload["result"], where="item result"), payload["rows"])
        if report.failed or (report.skipped and not hasattr(report, "wasxfail")):
            skipped = report.skipped
            why = "it was skipped" if skipped else _first_line(report.longreprtext) or f"its {report.when} failed"
            self._unrun.setdefault(report.nodeid, Unrun(item=report.nodeid, why=why, skipped=skipped))

    def _keep(self, result: ItemResult, rows: list[Any]) -> None:
        for row in (decode(RunRow, row, where="run row") for row in rows):
            if row.infrastructure:
                self._apart.append((row.item, row.infrastructure))
            else:
                self._outcomes.append(outcome_of(row))
        self._ends[result.id] = ReplayEnd(id=result.id, status=result.status, why=result.reason)

    def _evidence(self, plan: Plan) -> Evidence:
        given = self._given or {}
        end = plan.seeds if given.get("end") is None else min(given["end"], plan.seeds)
        names = (*plan.replays, *plan.broken) if given.get("plan") is None else ()
        ran = {outcome.item for outcome in self._outcomes} | {item for item, _ in self._apart}
        for test in plan.smoke:
            if self._seeds.get(test.item) and test.item not in ran:
                self._unrun.setdefault(test.item, Unrun(item=test.item, why=_NOT_RUN, skipped=False))
        return Evidence(
            seeds=end,
            outcomes=tuple(self._outcomes),
            replays=tuple(self._end(name) for name in names),
            apart=measure.without_infrastructure(self._apart),
            unrun=tuple(self._unrun[test.item] for test in plan.smoke if test.item in self._unrun),
        )

    def _end(self, name: str) -> ReplayEnd:
        """How a replay ended: by its result, and where its report failed, with what that says."""
        found, failed = self._ends.get(name), self._unrun.get(name)
        status = found.status if found is not None else "failed"
        if failed is None:
            return ReplayEnd(id=name, status=status, why="" if found is not None else _NOT_RUN)
        return ReplayEnd(id=name, status="failed" if status == HELD else status, why=failed.why)

    # -- the end ----------------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Not in a worker, and not where the session was interrupted or nothing could be collected."""
        if hasattr(self._config, "workerinput") or exitstatus not in (0, 1, 5):
            return
        plan = self._plan or Plan()
        evidence = self._evidence(plan)
        if self._given is not None:
            data = {"plan": encode(plan), "evidence": encode(evidence)}
            Path(self._given["out"]).write_text(json.dumps(data), encoding="utf-8")
            return
        self._gate = measure.judge(self._baseline, plan, evidence, self._settings.rules)
        # nothing but the suites ran: a replay that was broken before fails as a test, and not the gate
        session.exitstatus = pytest.ExitCode.OK if self._gate.passed else pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._gate is None:
            return
        from mat.commands.gate import summarise
        from mat.report.gate import gate_blocks
        from mat.report.terminal import told

        terminalreporter.section("mat gate")
        terminalreporter.write(told(gate_blocks(self._gate, baseline=self._name), width=width_of(self._config)))
        file = self._config.getoption("mat_gate_summary")
        summarise(self._gate, self._name, None if file is None else Path(self._config.invocation_params.dir, file))

    def told(self, document: Document, besides: Besides) -> Besides:
        """With the comparison that the gate knows: undisturbed runs against the baseline's, and what covers all failures.

        The suite is that of all replays that were collected here; a controller of xdist collects none.
        """
        from mat.measure.suite import candidates, select

        found = compare(self._reported.tables.outcomes, document.outcomes)
        cover = select(candidates({file: one for file, (_, one) in self._replays.items()})) if self._replays else None
        return replace(
            besides, regression=found if found.runs else None, names=(self._name, "this session"), suite=cover,
            nodes={file: node for file, (node, _) in self._replays.items()},
        )  # fmt: skip


def compared(config: pytest.Config, document: Document, besides: Besides) -> Besides:
    """What the reports of a gate's session say besides."""
    return config.stash[_KEEPER].told(document, besides)


def smoke(
    item: pytest.Item, *, protocol: Callable[[int], list[pytest.TestReport]], attach: Callable[[Any, ItemResult], None]
) -> list[pytest.TestReport]:
    """A test of the smoke suite on the session's seeds, all of them, whatever they come to: the gate judges their share.

    `protocol` runs the item once on a seed. Where the body, or a contract, fails on some seeds the reported outcome is an
    expected failure (x); a set-up or tear-down that fails, or a skip, is reported as it is.
    """
    reports: list[pytest.TestReport] = []
    shown: list[pytest.TestReport] = []
    failed = violated = 0
    seeds = item.config.stash[_KEEPER].seeds_of(item)
    for seed in seeds:
        reports = protocol(seed)
        run = item.stash.get(RESULT, None)
        if run is None or any(report.skipped or (report.failed and report.when != "call") for report in reports):
            attach(reports, ItemResult(id=item.nodeid, status="failed", executions=seeds.index(seed)))
            return reports
        if any(report.failed for report in reports):
            failed += 1
            violated += bool(run.failures)
            shown = shown or reports
    reports = shown or reports
    for report in reports:
        if report.failed:
            report.outcome = "skipped"
            report.wasxfail = f"{failed} of {len(seeds)} seeds failed; the gate judges"
    attach(
        reports,
        ItemResult(id=item.nodeid, status="violated" if violated else "failed" if failed else "nominal", executions=len(seeds)),
    )
    return reports


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")

"""`--mat-gate`: select the smoke and the replay suite, run them, and judge them against a baseline report.

A single session runs all seeds of the baseline and judges at its end. `mat gate` starts sessions in rounds instead
(`--mat-gate-round`): each runs some of the seeds and only writes down their results. All xdist workers select the same
items; they send results with their reports, and their selection when they end.

Source: A6.7.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from mat.core.campaign import Counterexample
from mat.core.codec import decode, encode
from mat.core.errors import MatError
from mat.core.extras import require
from mat.measure.gate import GatePlan, Round
from mat.measure.regression import compare
from mat_study.gate import Suites
from mat_study.measuring import ItemReport
from pytest_mat.options import is_armed, width_of
from pytest_mat.replays import Broken, file_of, source_of

if TYPE_CHECKING:
    from mat.commands.gate_settings import GateSettings
    from mat.measure.gate import Gate
    from mat.report.document import Document
    from mat.report.files import ReportExtras
    from mat.report.from_json import Reported

_NAME: Final = "mat-gate"
_OTHER_MODES: Final = ("mat_stress", "mat_replay", "mat_evaluate", "mat_confirm")
"""Options that select a different mode of the session."""


def register(config: pytest.Config) -> None:
    """Called once by a session with --mat-gate, before it collects. UsageError if the gate cannot apply."""
    from mat.commands.baseline import read_baseline
    from mat.commands.gate_settings import settings_from, settings_of

    others = [name for name in _OTHER_MODES if config.getoption(name, None)]
    if others:
        raise pytest.UsageError(f"--mat-gate and --{others[0].replace('_', '-')} run different things; use one of them")
    folder = Path(config.invocation_params.dir)
    try:
        require("stats", "a gate")
        settings = settings_of(settings_from(config.getoption("mat_gate_set") or ()), folder=folder)
        reported, name = read_baseline(config.getoption("mat_gate"), file=settings.file, folder=folder)
    except MatError as error:
        raise pytest.UsageError(f"--mat-gate: {error}") from None
    file = config.getoption("mat_gate_round")
    gate_round = None if file is None else decode(Round, json.loads(Path(file).read_text(encoding="utf-8")), where="the round")
    keeper = Gatekeeper(config, settings=settings, reported=reported, name=name, gate_round=gate_round)
    config.pluginmanager.register(keeper, _NAME)


class Gatekeeper:
    """The hooks of a session with a gate."""

    def __init__(
        self, config: pytest.Config, *, settings: GateSettings, reported: Reported, name: str, gate_round: Round | None
    ) -> None:
        from mat.commands.baseline import baseline_of

        self._config, self._reported, self._name, self._round = config, reported, name, gate_round
        self.suites = Suites(baseline_of(reported), settings, gate_round)
        self._replays: dict[str, tuple[str, Counterexample]] = {}
        self._gate: Gate | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, None, None]:
        """Remember the items that were collected before -k and -m deselect some; choose the suites from the rest."""
        collected = {item.nodeid for item in items}
        yield
        files = [(item, file_of(item)) for item in items]
        replays = {item.nodeid: file.replay.counterexample for item, file in files if file is not None}
        if self._round is None or self._round.plan is None:
            self._replays = {source_of(item): (item.nodeid, replays[item.nodeid]) for item in items if item.nodeid in replays}
        selected = self.suites.select(
            tests=[item.nodeid for item in items if is_armed(item) and item.nodeid not in replays],
            replays=replays,
            broken=[item.nodeid for item in items if isinstance(item, Broken)],
            there=self._may_still_exist(collected | {item.nodeid for item in items}),
        )
        deselected = [item for item in items if item.nodeid not in selected]
        if deselected:
            self._config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item.nodeid in selected]
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["mat_gate"] = encode(self.suites.plan)

    def _may_still_exist(self, collected: set[str]) -> Callable[[str], bool]:
        """A function of a node id: whether an item outside the session may exist, deselected or in a file not collected."""
        modules = {name.partition("::")[0] for name in collected}
        by_node_id = any("::" in str(argument) for argument in self._config.args)

        def may_exist(item: str) -> bool:
            module = item.partition("::")[0]
            file = (self._config.rootpath / module).is_file()
            return item in collected or (file and (by_node_id or module not in modules))

        return may_exist

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Controller: a worker has ended and reports its selection, which is the same for all workers."""
        plan = getattr(node, "workeroutput", {}).get("mat_gate")
        if plan is not None and self.suites.plan is None:
            self.suites.take(decode(GatePlan, plan, where="the plan of a worker"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        payload = getattr(report, "mat", None)
        if payload is not None:
            self.suites.ran(decode(ItemReport, payload, where="the report of an item"))
        if report.failed or (report.skipped and not hasattr(report, "wasxfail")):
            why = "it was skipped" if report.skipped else _first_line(report.longreprtext) or f"its {report.when} failed"
            self.suites.failed(report.nodeid, why, skipped=report.skipped)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Judge, except in a worker, and except when the session was interrupted or collected nothing."""
        if hasattr(self._config, "workerinput") or exitstatus not in (0, 1, 5):
            return
        evidence = self.suites.evidence()
        if self._round is not None:
            data = {"plan": encode(self.suites.plan or GatePlan()), "evidence": encode(evidence)}
            Path(self._round.out).write_text(json.dumps(data), encoding="utf-8")
            return
        self._gate = self.suites.judge(evidence)
        # only the suites ran: a replay that was broken before fails as a test but does not fail the gate
        session.exitstatus = pytest.ExitCode.OK if self._gate.passed else pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._gate is None:
            return
        from mat.commands.gate import summarise
        from mat.report.gate import gate_blocks
        from mat.report.terminal import blocks_in_text

        terminalreporter.section("mat gate")
        terminalreporter.write(blocks_in_text(gate_blocks(self._gate, baseline=self._name), width=width_of(self._config)))
        file = self._config.getoption("mat_gate_summary")
        summarise(self._gate, self._name, None if file is None else Path(self._config.invocation_params.dir, file))

    def with_comparison(self, document: Document, extras: ReportExtras) -> ReportExtras:
        """Add the gate's comparison of nominal runs with the baseline's, and the suite that covers all failures.

        The suite is made from all replays that were collected here; an xdist controller collects none.
        """
        from mat.measure.suite import candidates, select

        found = compare(self._reported.tables.outcomes, document.outcomes)
        cover = select(candidates({file: one for file, (_, one) in self._replays.items()})) if self._replays else None
        return replace(
            extras, regression=found if found.runs else None, names=(self._name, "this session"), suite=cover,
            nodes={file: node for file, (node, _) in self._replays.items()},
        )  # fmt: skip


def compared(config: pytest.Config, document: Document, extras: ReportExtras) -> ReportExtras:
    """What the reports of a gate's session contain in addition."""
    keeper = _keeper(config)
    return extras if keeper is None else keeper.with_comparison(document, extras)


def seeds_of(item: pytest.Item) -> tuple[int, ...] | None:
    """The seeds that a gate's session runs of an item; None without a gate."""
    keeper = _keeper(item.config)
    return None if keeper is None else keeper.suites.seeds_of(item.nodeid)


def _keeper(config: pytest.Config) -> Gatekeeper | None:
    found = config.pluginmanager.getplugin(_NAME)
    return found if isinstance(found, Gatekeeper) else None


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")

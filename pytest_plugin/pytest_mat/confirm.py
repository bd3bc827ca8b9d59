"""The fresh process that confirms counterexamples: a session of pytest over one item (`--mat-confirm`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mat.core.errors import MatError
from mat.core.run import Run
from mat.core.spec import Schedule
from mat_study import fresh
from mat_study.evaluation import Lost, Plan
from pytest_mat.evaluators import ItemEvaluator, Reports


def confirmer(item: pytest.Item, variant: str, *, recorded: bool) -> Callable[[Sequence[Schedule]], Iterator[Run | None]]:
    """A function that executes schedules of this item in one fresh interpreter and yields each run as soon as it is ready.

    `recorded`: runs get recorded replies, and no live call is made.
    """

    def confirm(schedules: Sequence[Schedule]) -> Iterator[Run | None]:
        return fresh.confirm(
            schedules, lambda request: _command(item, variant, request, recorded=recorded),
            folder=item.config.invocation_params.dir, where=item.nodeid,
        )  # fmt: skip

    return confirm


def _command(item: pytest.Item, variant: str, request: Path, *, recorded: bool) -> list[str]:
    config = item.config
    node = str(item.path) + item.nodeid[item.nodeid.find("::") :]
    command = [sys.executable, "-m", "pytest", node, "--rootdir", str(config.rootpath), "--mat-confirm", str(request)]
    if config.inipath is not None:
        command += ["-c", str(config.inipath)]
    for name in config.option.plugins or ():
        command += ["-p", name]
    for override in config.option.override_ini or ():
        command += ["-o", override]
    command += ["-q", "-p", "no:cacheprovider", f"--import-mode={config.getoption('importmode')}"]
    if config.pluginmanager.hasplugin("xdist"):
        command += ["-n0"]
    if config.getoption("mat_horizon") is not None:
        command += ["--mat-horizon", str(config.getoption("mat_horizon"))]
    if recorded:
        command += ["--mat-live-calls", "0"]
    return [*command, "--mat-governance", variant]


def answer(item: pytest.Item, evaluate: ItemEvaluator) -> Reports:
    """In the fresh process: execute the requested schedules, then the item itself, which is reported."""
    seed = fresh.answer(Path(item.config.getoption("mat_confirm")), evaluate.here)
    return evaluate.here(Plan(mode="search", seed=seed)).reports


def refuse(item: pytest.Item, error: MatError) -> None:
    """In the fresh process: answer that no schedule has a run.

    The item's settings are invalid without the options of the session that searches.
    """
    fresh.answer(Path(item.config.getoption("mat_confirm")), lambda plan: Lost(plan=plan, why=str(error), refused=True))

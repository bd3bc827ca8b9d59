"""What this process keeps for a pytest session: one value on its configuration."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from mat_study.cluster import Cluster

from mat.boundary.catalog import Catalog
from mat.core.errors import MatError
from mat.evidence.replay_file import Replay
from mat.harness.execute import installed_operators
from mat.kernel.clock import real_monotonic
from mat.measure.workload import Workload
from mat_search.declarations import DeclarationSaving
from mat_study.fresh import FreshProcesses, clean_environment
from mat_study.store import KeptRuns
from pytest_mat.options import environment_at_start


class SessionState:
    """What several items share. `replays`: replay files by path, each read once, or the MatError why it cannot be read.

    `replayed`: items and seeds of the replays that run. `workloads`: workloads by node id of the test, as far as they are known
    before the tests run (`--mat-evaluate`). `cluster`: that of `--mat-executor`, once it is needed. `savings`: what declaring
    effects would save, by node id (`mat doctor`).
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.replays: dict[Path, Replay | MatError] = {}
        self.workloads: dict[str, Workload] = {}
        self.replayed: frozenset[tuple[str, int]] | None = None
        self.cluster: Cluster | None = None
        self.savings: dict[str, tuple[DeclarationSaving, ...]] = {}

    @cached_property
    def catalog(self) -> Catalog:
        """The operators of installed distributions and of the pytest_mat_operators hook."""
        found = installed_operators()
        for group in self._config.hook.pytest_mat_operators(config=self._config):
            for operator in group or ():
                found.register(operator)
        return found

    @cached_property
    def store(self) -> KeptRuns | None:
        """The run log that keeps the runs of this session; None without `--mat-store`."""
        folder = self._config.getoption("mat_store")
        return None if folder is None else KeptRuns(Path(self._config.invocation_params.dir, folder), self.name)

    @cached_property
    def fresh(self) -> FreshProcesses:
        """The pristine processes of this session, which are started when they are needed (`pytest_mat.pristine`)."""
        return FreshProcesses(
            [sys.executable, "-m", "pytest_mat.pristine"],
            self._config.invocation_params.dir,
            clean_environment(environment_at_start(self._config)),
            at_once=_at_once(self._config),
        )

    def close(self) -> None:
        if self.cluster is not None:
            self.cluster.close()
        if "fresh" in vars(self):
            self.fresh.close()

    @cached_property
    def name(self) -> str:
        """A unique name of the session, the same in all its workers."""
        shared = getattr(self._config, "workerinput", {}).get("testrunuid")
        return str(shared) if shared else f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{platform.node()}-{os.getpid()}"

    @cached_property
    def process(self) -> str:
        """A name of this process, which no other one has on any machine."""
        return f"{platform.node()}-{os.getpid()}-{uuid4().hex[:12]}"

    @cached_property
    def began_s(self) -> float:
        """When the study of the first item began."""
        return real_monotonic()


def _at_once(config: pytest.Config) -> int:
    """How many fresh processes may execute at the same time: the workers of pytest-xdist share the processors."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    sessions: int = getattr(config, "workerinput", {}).get("workercount", 1)
    return max(1, min(_MOST_AT_ONCE, available // sessions))


_MOST_AT_ONCE: Final = 4
_STATE: Final = pytest.StashKey[SessionState]()


def session_of(config: pytest.Config) -> SessionState:
    found = config.stash.get(_STATE, None)
    return config.stash.setdefault(_STATE, SessionState(config)) if found is None else found

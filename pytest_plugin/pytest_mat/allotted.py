"""The time of a stress session (`--mat-session-timeout`), shared out among its searches as they begin."""

from __future__ import annotations

import time
from typing import Final

import pytest

from mat.kernel.clock import real_monotonic
from mat_study.allotment import share
from mat_study.means import Allotment
from pytest_mat.options import session_began_ns
from pytest_mat.reused import expected


class SessionTime:
    """How much of the session's time is left, and for whom. `whole_s` None: there is no limit.

    A process of pytest-xdist cannot know which items the others take. It assumes that all items after its own are still to be
    searched, and that the processes share them.
    """

    def __init__(self, session: pytest.Session) -> None:
        config = session.config
        self._session = session
        self.whole_s: float | None = config.getoption("mat_session_timeout") if config.getoption("mat_stress") else None
        began_s = real_monotonic() - (time.time_ns() - session_began_ns()) / 1e9
        self._ends_s = began_s + (self.whole_s or 0.0)
        self._first_s = real_monotonic()
        self._searching_s = 0.0
        self._processes = int(getattr(config, "workerinput", {}).get("workercount", 1))

    def spent(self, seconds: float) -> None:
        """Note what a search has taken."""
        self._searching_s += seconds

    def allotted(self, item: pytest.Item) -> Allotment | None:
        """The time for the search of an item, which begins now; None without a limit."""
        if self.whole_s is None:
            return None
        waiting = expected(self._session)
        names = list(waiting)
        after = names[names.index(item.nodeid) + 1 :]
        now_s = real_monotonic()
        done = len(names) - len(after)
        nominal_s = max(0.0, now_s - self._first_s - self._searching_s) / done * len(after)
        left_s = self._ends_s - now_s
        seconds = share(
            left_s * self._processes - nominal_s, waiting[item.nodeid], [waiting[name] for name in after]
        )  # fmt: skip
        return Allotment(seconds=min(seconds, left_s), whole_s=self.whole_s)


_TIME: Final[pytest.StashKey[SessionTime]] = pytest.StashKey()


def time_of(session: pytest.Session) -> SessionTime:
    """The time of a session; made when its first item begins."""
    found = session.config.stash.get(_TIME, None)
    if found is None:
        found = session.config.stash[_TIME] = SessionTime(session)
    return found

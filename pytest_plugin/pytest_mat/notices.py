"""The notices of items, printed at the end of the session. Workers of pytest-xdist send them with their reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mat.core.codec import decode
from mat_study import notices
from mat_study.notices import Notice

_notices: list[Notice] = []
_ended = False


def keep_notices(data: Sequence[Any]) -> None:
    """Keep notices, given as JSON data. Called where reports arrive: in the controller, or in the only process."""
    _notices.extend(decode(Notice, each, where="notice") for each in data)


def lines(*, interrupted: bool, verbose: bool) -> list[str]:
    """The notices as lines for the terminal."""
    return notices.lines(_notices, interrupted=interrupted, verbose=verbose)


def session_over(status: int, *, interrupted: bool) -> None:
    """Note whether the session came to its end: the journals of one that was interrupted are needed to resume."""
    global _ended
    _ended = not interrupted and status != pytest.ExitCode.INTERNAL_ERROR


def forget() -> None:
    """Drop the notices, so that a later session in this process starts without them, and the journals of finished studies.

    Only now, when all is printed and written: a session that is killed before can resume.
    """
    global _ended
    if _ended:
        for each in _notices:
            if each.path:
                Path(each.path).unlink(missing_ok=True)
    _ended = False
    _notices.clear()

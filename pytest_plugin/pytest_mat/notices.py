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


def keep_notices(data: Sequence[Any]) -> None:
    """Keep notices, given as JSON data. Called where reports arrive: in the controller, or in the only process."""
    _notices.extend(decode(Notice, each, where="notice") for each in data)


def lines(*, interrupted: bool) -> list[str]:
    """The notices as lines for the terminal."""
    return notices.lines(_notices, interrupted=interrupted)


def session_over(status: int, *, interrupted: bool) -> None:
    """Remove the journals of finished studies, unless the session was interrupted: then they are needed to resume."""
    if not interrupted and status != pytest.ExitCode.INTERNAL_ERROR:
        for each in _notices:
            if each.path:
                Path(each.path).unlink(missing_ok=True)


def forget() -> None:
    """Drop the notices, so that a later session in this process starts without them."""
    _notices.clear()

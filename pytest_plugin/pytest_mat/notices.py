"""What items have to say at the end of the session. Workers of xdist send it with their reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mat.core.codec import decode
from mat_study import notices
from mat_study.notices import Notice

_told: list[Notice] = []


def told(data: Sequence[Any]) -> None:
    """Called where reports arrive, with notices as JSON data: in the controller, or in the only process."""
    _told.extend(decode(Notice, each, where="notice") for each in data)


def lines(status: int) -> list[str]:
    """For the terminal. `status` is the session's exit code."""
    return notices.lines(_told, interrupted=status == pytest.ExitCode.INTERRUPTED)


def session_over(status: int) -> None:
    """Remove the journals of finished studies; they are kept where the session was ended before its end."""
    if status not in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR):
        for each in _told:
            if each.path:
                Path(each.path).unlink(missing_ok=True)


def forget() -> None:
    _told.clear()

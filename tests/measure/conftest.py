"""What the tests of this folder share: rows made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mat.measure.rows import RunRow, ViolationRow

_PLAIN: dict[str, Any] = {
    "item": "t", "condition": "nominal", "seed": 0, "success": True, "outcome": "pass", "termination": "completed", "steps": 5,
    "tool_calls": 1, "model_calls": 1, "tokens": 100, "violations": (), "faults": (), "allowed": 0, "rewritten": 0,
    "blocked": 0, "elapsed_ms": 10,
}  # fmt: skip


def made(**facts: Any) -> RunRow:
    """A row of a run in which all went well, but for what is said. `broken` is the step of a hard violation."""
    broken = facts.pop("broken", None)
    if broken is not None:
        found = ViolationRow(
            contract="c", severity="hard", stage="effected", step=broken, agent="main", action_kind="tool_call"
        )  # fmt: skip
        facts = {"violations": (found,), "outcome": "fail", "first_failure": broken, "first_failure_ms": broken, **facts}
    return RunRow(**{**_PLAIN, **facts})


@pytest.fixture
def row() -> Callable[..., RunRow]:
    return made

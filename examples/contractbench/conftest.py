"""What stressed oracles are held to, and whose doing it is where one fails: the agent's, or the path's."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("starlette", reason="the tasks' servers need starlette: pip install 'pytest-mat[examples]'")

import mat
from contractbench.task import task
from mat_contracts.observation import bytes_preserved, used_while_valid


@pytest.fixture
def promises(task_id: str) -> list[mat.Contract]:
    """The promises of the task, which speak of what the agent does; and what came through to the servers, as the path's."""
    found = task(task_id)
    return [
        *found.contracts(found.given(0)),
        bytes_preserved(form="reached", id="path.bytes", repair="mend the path, or pass artefacts on by handles"),
        used_while_valid(form="reached", id="path.time"),
    ]

"""The contracts on traces of this task: nothing is deposited while the archive is down, as the calendar has it in the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mat
from mat_contracts.observation import expected, not_during_maintenance, required

DEPOSIT = "POST /deposits"
ISSUES: tuple[Any, ...] = ()


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    down = (given["begins"] * 1000, (given["ends"] + given["put_off"]) * 1000)
    return [
        not_during_maintenance(DEPOSIT, windows=[down]),
        required(DEPOSIT, "body.document", label="WRONG_VALUE"),
        expected(DEPOSIT, {"body.document": given["documents"]}),
    ]

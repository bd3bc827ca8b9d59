"""The contracts on traces of this task: once a reply says that nothing is left of the quota, its window is waited for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mat
from mat_contracts.observation import backoff_respected, expected, required

READ, REPORT = "GET /readings", "POST /reports"
ISSUES: tuple[Any, ...] = ()


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    readings = zip(given["stations"], given["readings"], strict=True)
    return [
        # The reply that uses the last of the quota says already when to come back.
        backoff_respected(READ, statuses=(200, 404, 429), label="RATE_LIMITED"),
        required(READ, "query.station", label="WRONG_VALUE"),
        expected(READ, {"query.station": given["stations"]}),
        required(REPORT, [f"body.readings.{name}" for name in given["stations"]]),
        expected(REPORT, {f"body.readings.{name}": reading for name, reading in readings}),
    ]

"""The contracts on traces of this task: bearer tokens in time and as they came, complete token requests, stages in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mat
from mat.monitor.contract import Violated
from mat_contracts.observation import compliant, exchange, expected, required

SESSION, TOKEN = "POST /sessions", "POST /oauth/token"
ISSUES = (
    mat.artifact.issue("refresh_token", at="body.refresh_token", when={"url": "/sessions$"}),
    mat.artifact.issue("access_token", at="body.access_token", expires_in="body.expires_in", when={"url": "/oauth/token$"}),
)
CONSUMES = (
    mat.artifact.consume("refresh_token", at="form.refresh_token", when={"url": "/oauth/token$"}, required=False),
    mat.artifact.consume("access_token", at="headers.authorization", when={"url": "/jobs"}),
)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    return [
        compliant("refresh_token", on=TOKEN),
        compliant("access_token", on=["POST /jobs", "POST /jobs/*"]),
        required(SESSION, "body.client_id", label="WRONG_VALUE"),
        expected(SESSION, {"body.client_id": given["client_id"]}),
        required(TOKEN, ["body.grant_type", "body.refresh_token", "body.client_id"]),
        expected(TOKEN, {"body.grant_type": "refresh_token", "body.client_id": given["client_id"]}),
        _stages_in_order(given["stages"]),
    ]


def _stages_in_order(stages: list[str]) -> mat.Contract:
    @mat.trace_contract(start=0, on="tool_call", id="stages in order", label="WRONG_VALUE")
    def in_order(done: int, record: mat.Record) -> int | Violated:
        """Stages are asked for in the order listed."""
        found = exchange(record)
        stage = "" if found is None else found.path.partition("/stages/")[2]
        if found is None or not stage or found.status == 401:  # who may not enter has asked for nothing
            return done
        due = stages[done] if done < len(stages) else "none"
        if stage != due:
            return Violated(f"{stage} was asked for, due was {due}", state=done)
        return done + 1 if found.succeeded else done

    return in_order

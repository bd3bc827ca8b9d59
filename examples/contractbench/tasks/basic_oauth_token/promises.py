"""The contracts on traces of this task: secret and tokens are whole, a token is used in time, requests are complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mat
from mat.core.value import EMPTY, FrozenDict
from mat_contracts.observation import compliant, exchange, expected, required

ISSUES = (
    mat.artifact.issue("access_token", at="body.access_token", expires_in="body.expires_in", when={"url": r"/oauth/token$"}),
)
CONSUMES = (
    mat.artifact.consume("client_secret", at="form.client_secret", when={"url": r"/oauth/token$"}),
    mat.artifact.consume("access_token", at="headers.authorization", when={"url": r"/reports/.|/receipts$"}),
)


def known(given: Mapping[str, Any]) -> dict[str, str]:
    return {"client_secret": given["client_secret"]}


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    asked = {"body.grant_type": "client_credentials", "body.client_id": given["client_id"], "body.scope": given["scope"]}
    return [
        compliant("client_secret", on="POST /oauth/token"),
        compliant("access_token", on=["GET /reports/{name}", "POST /receipts"]),
        required("POST /oauth/token", asked),
        expected("POST /oauth/token", asked),
        expected("GET /reports/{name}", {"path.name": given["reports"]}),
        references_complete(given["reports"]),
    ]


def references_complete(reports: list[str]) -> mat.Contract:
    """The receipt has the reference of every report, as it was read."""

    @mat.trace_contract(start=EMPTY, id="reports.references", label="WRONG_VALUE")
    def checked(read: FrozenDict, record: mat.Record) -> FrozenDict | mat.Violated:
        found = exchange(record)
        if found is None:
            return read
        if found.path.startswith("/reports/") and found.status == 200:
            return FrozenDict({**read, found.reply["name"]: found.reply["reference"]})
        if found.path != "/receipts":
            return read
        said = found.value("body.references")
        if not isinstance(said, Mapping) or set(reports) - set(said):
            return mat.Violated("references are missing", state=read, label="MISSING_CONSTRAINT")
        wrong = sorted(name for name, text in said.items() if text != read.get(name))
        return mat.Violated(f"not the reference of {', '.join(wrong)}", state=read) if wrong else read

    return checked

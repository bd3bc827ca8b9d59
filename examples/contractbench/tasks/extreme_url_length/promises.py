"""The contracts on traces of this task: each page's URL arrives whole, and the codes of all pages are sent in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mat
from mat.core.record import Record
from mat_contracts.observation import compliant, exchange

ISSUES = (
    mat.artifact.issue("page", at="body.first", when={"url": r"/reports/latest$"}),
    mat.artifact.issue("page", at="body.next", when={"url": r"/reports/page\?"}),
)
CONSUMES = (mat.artifact.consume("page", at="url", when={"url": r"/reports/page"}),)


def contracts(given: Mapping[str, Any]) -> list[mat.Contract]:
    @mat.step_contract(on="tool_call", id="all_codes")
    def all_codes(record: Record) -> bool | mat.Violated:
        """The codes of all pages are sent, in the order of the pages."""
        found = exchange(record)
        if found is None or found.method != "POST" or found.path != f"/reports/{given['report']}/read":
            return True
        codes = found.fields.get("codes")
        if not isinstance(codes, list) or len(codes) < len(given["codes"]):
            return mat.Violated("codes of pages are missing", label="MISSING_CONSTRAINT")
        return list(codes) == given["codes"] or mat.Violated("a code is not that of its page", label="WRONG_VALUE")

    return [compliant("page"), all_codes]

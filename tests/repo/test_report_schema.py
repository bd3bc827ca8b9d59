"""The published JSON schema of reports, and the documented columns of CSV; run this file to write the schema again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import mat
from mat.__main__ import main
from mat.core.campaign import ItemResult
from mat.measure.rows import row_of
from mat.report.build import build
from mat.report.flat import FIELDS
from mat.report.schema import report_schema, schema_text
from mat.report.to_json import as_data

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "report.md"
PUBLISHED = PAGE.with_name("report.schema.json")


@mat.tool(effect="write", impact="high")
def refund(order: str) -> str:
    return order


small = mat.step_contract(on="tool_call", id="refund.known")(lambda record: record.action.arguments["order"] == "o1")


@pytest.fixture(scope="module")
def data() -> Any:
    rows = []
    for variant in ("none", "shield"):
        for seed in range(4):
            with mat.run([small], task="t", seed=seed) as run, mat.agent("clerk"):
                refund("o1" if seed else "o2")
                mat.finish("done")
            assert run.result is not None
            row = row_of(run.result, item=f"test_{seed % 2}", condition="nominal")
            rows.append(replace(row, variant=variant, category="pay"))
    items = [ItemResult(id=f"test_{number}", status="nominal") for number in (0, 1)]
    return json.loads(json.dumps(as_data(build(items, rows))))


def problems(data: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(report_schema()).iter_errors(data)]


def test_the_published_schema_is_that_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == schema_text()
    jsonschema.Draft202012Validator.check_schema(report_schema())
    with pytest.raises(SystemExit) as stopped:
        main(["report", "--schema"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == schema_text()


def test_a_report_is_valid(data: Any) -> None:
    assert problems(data) == []
    assert data["tables"]["variant_pairs"], "several tables are filled"
    assert data["tables"]["tasks"]


def _without_n(data: Any) -> None:
    del data["metrics"]["nominal.success"]["n"]


def _with_text(data: Any) -> None:
    data["tables"]["nominal"][0]["success"]["value"] = "100%"


def _with_more(data: Any) -> None:
    data["tables"]["nominal"][0]["mood"] = 1


def _of_another_condition(data: Any) -> None:
    data["tables"]["outcomes"][0]["condition"] = "windy"


def _of_another_format(data: Any) -> None:
    data["mat"] += 1


@pytest.mark.parametrize("spoil", [_without_n, _with_text, _with_more, _of_another_condition, _of_another_format])
def test_a_spoilt_report_is_not(data: Any, spoil: Callable[[Any], None]) -> None:
    spoilt = json.loads(json.dumps(data))
    spoil(spoilt)
    assert len(problems(spoilt)) == 1


def test_the_columns_of_csv_are_documented() -> None:
    documented = re.findall(r"^\| (\w+) \| ([A-Z]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(documented) == FIELDS


if __name__ == "__main__":
    PUBLISHED.write_text(schema_text(), encoding="utf-8")

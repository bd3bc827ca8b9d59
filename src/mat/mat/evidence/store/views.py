"""The views of a store: rates by task, category, variant, operator, contract, agent and tool, for SQL.

They are made for each connection, never stored in the file: a file that contains views or macros is refused, because they could
read other files. Runs whose infrastructure failed are left out, as in all metrics. The shares are those of the metrics of the
same names (`mat.measure.metrics`); intervals are in `mat report`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One view: what a row is, what each column is, and the SELECT that makes them."""

    comment: str
    columns: dict[str, str]
    sql: str


_RATES: Final = """
    count(*) AS runs,
    count(success) AS judged,
    count(*) FILTER (WHERE success) AS succeeded,
    succeeded / nullif(judged, 0) AS success,
    count(*) FILTER (WHERE hard > 0) AS violating,
    count(*) FILTER (WHERE armed IS NOT FALSE) AS armed_runs,
    violating / nullif(armed_runs, 0) AS violations,
    avg(steps) AS steps,
    avg(tokens) AS tokens
"""
_RATE_COLUMNS: Final = {
    "runs": "runs, without those whose infrastructure failed",
    "judged": "runs whose success something judges",
    "succeeded": "runs whose task succeeded",
    "success": "share of the judged runs that succeeded; NULL without one",
    "violating": "runs that broke a hard contract",
    "armed_runs": "runs in which a hard contract was armed",
    "violations": "share of those that broke a hard contract; NULL without one",
    "steps": "steps of a run, mean",
    "tokens": "tokens of a run, mean over the runs that stated them; NULL if none did",
}
_CONDITION: Final = {
    "condition": "nominal, fault, adversarial or replay",
    "variant": "governance variant; '' without one",
}


def _rates(comment: str, columns: dict[str, str]) -> View:
    names = ", ".join(columns)
    return View(
        comment=comment, columns={**columns, **_RATE_COLUMNS},
        sql=f"SELECT {names}, {_RATES} FROM runs WHERE infrastructure = '' GROUP BY {names}",
    )  # fmt: skip


VIEWS: Final[dict[str, View]] = {
    "by_task": _rates(
        "a row for each task, condition and variant",
        {"item": "the test", "category": "category of the task", **_CONDITION},
    ),
    "by_category": _rates(
        "a row for each category, condition and variant", {"category": "category of the tasks", **_CONDITION}
    ),
    "by_variant": _rates("a row for each condition and variant", _CONDITION),
    "by_session": _rates(
        "a row for each session, condition and variant", {"session": "the session that recorded the runs", **_CONDITION}
    ),
    "by_operator": View(
        comment="a row for each operator and boundary: what became of its faults",
        columns={
            "operator": "the operator; '' for errors that nobody injected",
            "boundary": "kind of boundary that the fault met",
            "faults": "faults that were injected and reached",
            "detected": "those that were detected in time",
            "mitigated": "those that were detected and mitigated in time",
            "contained": "those that were contained, in runs that kept their contracts",
            "final_ok": "those whose run broke no hard contract",
            "containment": "share of the faults that were contained",
        },
        sql="""
            SELECT operator, perturbations.boundary,
                count(*) AS faults,
                count(*) FILTER (WHERE perturbations.detected) AS detected,
                count(*) FILTER (WHERE perturbations.mitigated) AS mitigated,
                count(*) FILTER (WHERE perturbations.contained) AS contained,
                count(*) FILTER (WHERE perturbations.final_ok) AS final_ok,
                count(*) FILTER (WHERE perturbations.contained) / count(*) AS containment
            FROM perturbations JOIN runs USING (run)
            WHERE infrastructure = '' AND injected AND reached
            GROUP BY operator, perturbations.boundary
        """,
    ),
    "by_contract": View(
        comment="a row for each contract, condition and variant",
        columns={
            "contract": "id of the contract", "severity": "hard or soft", **_CONDITION,
            "armed": "runs in which the contract was armed",
            "violated": "those that violated it",
            "unknown": "those in which it could not be judged",
            "violations": "share of the armed runs that violated it",
        },
        sql="""
            SELECT contract, severity, condition, variant,
                count(*) AS armed,
                count(*) FILTER (WHERE contracts.outcome = 'fail') AS violated,
                count(*) FILTER (WHERE contracts.outcome = 'unknown') AS unknown,
                violated / count(*) AS violations
            FROM contracts JOIN runs USING (run)
            WHERE infrastructure = ''
            GROUP BY contract, severity, condition, variant
        """,
    ),
    "by_agent": View(
        comment="a row for each agent and kind of action",
        columns={
            "agent": "the agent", "kind": "kind of action", "steps": "steps", "errors": "steps that returned an error",
            "blocked": "steps that governance blocked", "tokens": "tokens, NULL if no step stated them",
            "runs": "runs with such a step",
        },
        sql="""
            SELECT agent, kind,
                count(*) AS steps,
                count(steps.error) AS errors,
                count(*) FILTER (WHERE decision = 'block') AS blocked,
                CAST(sum(steps.tokens) AS BIGINT) AS tokens,
                count(DISTINCT run) AS runs
            FROM steps JOIN runs USING (run)
            WHERE infrastructure = ''
            GROUP BY agent, kind
        """,
    ),
    "by_tool": View(
        comment="a row for each tool",
        columns={
            "name": "the tool", "effect": "read or write", "impact": "low or high", "calls": "calls",
            "errors": "calls that returned an error", "disturbed": "calls that met a fault",
            "blocked": "calls that governance blocked", "runs": "runs with such a call",
        },
        sql="""
            SELECT name, effect, impact,
                count(*) AS calls,
                count(steps.error) AS errors,
                count(*) FILTER (WHERE steps.faults > 0) AS disturbed,
                count(*) FILTER (WHERE decision = 'block') AS blocked,
                count(DISTINCT run) AS runs
            FROM steps JOIN runs USING (run)
            WHERE infrastructure = '' AND kind = 'tool_call'
            GROUP BY name, effect, impact
        """,
    ),
    "first_violations": View(
        comment="a row for each run that broke a hard contract: where it did so first",
        columns={
            "run": "the run", "item": "the test", "seed": "seed of the run", **_CONDITION, "contract": "the contract",
            "step": "step of the violation", "agent": "the agent that acted", "action_kind": "kind of the action",
            "message": "what was wrong",
        },
        sql="""
            SELECT run, item, seed, condition, variant, contract, violations.step, agent, action_kind, message
            FROM violations JOIN runs USING (run)
            WHERE severity = 'hard' AND infrastructure = ''
            QUALIFY row_number() OVER (PARTITION BY run ORDER BY violations.step, contract, instance) = 1
        """,
    ),
}  # fmt: skip
"""Name -> view. Their columns have comments: SELECT column_name, comment FROM duckdb_columns()."""


def create_views(connection: Any) -> None:
    """Make the views of a connection, with their comments. They belong to it alone, so a file for reading can have them."""
    for name, view in VIEWS.items():
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {view.sql}")
        connection.execute(f"COMMENT ON VIEW {name} IS {_text(view.comment)}")
        for column, comment in view.columns.items():
            connection.execute(f'COMMENT ON COLUMN {name}."{column}" IS {_text(comment)}')


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

"""The tables of the store, their version, and the migrations from earlier versions.

Every table except `runs`, `meta` and `shards` has a column `run` that refers to a row of `runs`. It is computed from the run's
key, so it is the same in every store that contains the run, and tables of several machines can be joined.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = 4
"""The version of the schema. A store of a later version is refused, one of an earlier version is migrated."""

RUNS: Final = {
    "run": "UBIGINT",
    "key": "VARCHAR",
    "session": "VARCHAR",
    "item": "VARCHAR",
    "condition": "VARCHAR",
    "category": "VARCHAR",
    "input": "VARCHAR",
    "variant": "VARCHAR",
    "episode": "VARCHAR",
    "place": "BIGINT",
    "repeat": "BIGINT",
    "written_at": "VARCHAR",
    "spec": "VARCHAR",
    "head": "VARCHAR",
    "task": "VARCHAR",
    "config": "VARCHAR",
    "seed": "BIGINT",
    "schedule": "VARCHAR",
    "cost": "BIGINT",
    "success": "BOOLEAN",
    "outcome": "VARCHAR",
    "termination": "VARCHAR",
    "error": "VARCHAR",
    "infrastructure": "VARCHAR",
    "armed": "BOOLEAN",
    "misuse": "VARCHAR",
    "steps": "BIGINT",
    "tool_calls": "BIGINT",
    "model_calls": "BIGINT",
    "tokens": "BIGINT",
    "elapsed_ms": "BIGINT",
    "hard": "BIGINT",
    "soft": "BIGINT",
    "effected": "BIGINT",
    "first_failure": "BIGINT",
    "first_failure_ms": "BIGINT",
    "final_step": "BIGINT",
    "cases": "BIGINT",
    "cases_broken": "BIGINT",
    "collapsed": "BOOLEAN",
    "faulted": "BOOLEAN",
    "harmed": "BOOLEAN",
    "faults": "BIGINT",
    "detected": "BIGINT",
    "mitigated": "BIGINT",
    "contained": "BIGINT",
    "final_ok": "BIGINT",
    "allowed": "BIGINT",
    "rewritten": "BIGINT",
    "blocked": "BIGINT",
    "high_allowed": "BIGINT",
    "high_rewritten": "BIGINT",
    "high_blocked": "BIGINT",
    "high_stopped": "BIGINT",
    "claims_final": "BIGINT",
    "claims_unsupported": "BIGINT",
    "claims_recorded": "BIGINT",
    "claims_propagated": "BIGINT",
    "claims_unknown": "BIGINT",
}
"""One row per run. `success`: Y, NULL if nothing judged it. `armed`: a hard contract was armed, NULL if that is not known.
`hard`, `soft`: violations; `effected`: hard ones with effect.
`cases`: the cases of the run; `cases_broken`: those that broke a hard contract. `collapsed`: the run did not terminate, or
broke a progress contract; `harmed`: it had a fault (`faulted`), and its final response then broke a hard contract. `faults` to
`final_ok`: faults injected and reached, and their outcomes. `allowed`, `rewritten`, `blocked`: the proposed actions of
the run by decision; `high_*`: those of high impact. `claims_*`: NULL if claims were not counted. A seed of more than 64 bits is
NULL; `spec` distinguishes runs in any case."""

TABLES: Final[dict[str, dict[str, str]]] = {
    "runs": RUNS,
    "steps": {
        "run": "UBIGINT",
        "step": "BIGINT",
        "at_ms": "BIGINT",
        "sealed_ms": "BIGINT",
        "agent": "VARCHAR",
        "role": "VARCHAR",
        "kind": "VARCHAR",
        "name": "VARCHAR",
        "boundary": "VARCHAR",
        "site": "VARCHAR",
        "effect": "VARCHAR",
        "impact": "VARCHAR",
        "effected": "VARCHAR",
        "arguments": "VARCHAR",
        "decision": "VARCHAR",
        "error": "VARCHAR",
        "error_kind": "VARCHAR",
        "invoked": "BIGINT",
        "faults": "BIGINT",
        "tokens": "BIGINT",
    },
    "violations": {
        "run": "UBIGINT",
        "contract": "VARCHAR",
        "severity": "VARCHAR",
        "stage": "VARCHAR",
        "step": "BIGINT",
        "agent": "VARCHAR",
        "role": "VARCHAR",
        "action_kind": "VARCHAR",
        "message": "VARCHAR",
        "weight": "DOUBLE",
        "instance": "VARCHAR",
        "label": "VARCHAR",
    },
    "perturbations": {
        "run": "UBIGINT",
        "operator": "VARCHAR",
        "site": "VARCHAR",
        "parameters": "VARCHAR",
        "cost": "BIGINT",
        "injected": "BOOLEAN",
        "reached": "BOOLEAN",
        "step": "BIGINT",
        "boundary": "VARCHAR",
        "detected": "BOOLEAN",
        "mitigated": "BOOLEAN",
        "contained": "BOOLEAN",
        "final_ok": "BOOLEAN",
        "detected_by": "VARCHAR",
        "mitigated_by": "VARCHAR",
    },
    "mediations": {
        "run": "UBIGINT",
        "step": "BIGINT",
        "agent": "VARCHAR",
        "kind": "VARCHAR",
        "name": "VARCHAR",
        "site": "VARCHAR",
        "impact": "VARCHAR",
        "proposed": "BOOLEAN",
        "mediated": "BOOLEAN",
        "decision": "VARCHAR",
        "rule": "VARCHAR",
        "reason": "VARCHAR",
        "approval": "VARCHAR",
    },
    "usage": {
        "run": "UBIGINT",
        "step": "BIGINT",
        "agent": "VARCHAR",
        "name": "VARCHAR",
        "input_tokens": "BIGINT",
        "output_tokens": "BIGINT",
        "tokens": "BIGINT",
    },
    "contracts": {
        "run": "UBIGINT",
        "contract": "VARCHAR",
        "severity": "VARCHAR",
        "outcome": "VARCHAR",
        "evaluations": "BIGINT",
        "error": "VARCHAR",
    },
    "scores": {"run": "UBIGINT", "name": "VARCHAR", "value": "DOUBLE", "error": "VARCHAR"},
    "findings": {"run": "UBIGINT", "code": "VARCHAR", "message": "VARCHAR", "step": "BIGINT", "shard": "VARCHAR"},
}
"""The tables that hold the parts of a run. `perturbations`: those of the schedule, reached or not, and faults that were only
observed (`injected` is false). `mediations`: proposed actions, mediated or not, and other mediated steps. `findings` of a shard
have no run."""

OWN: Final[dict[str, dict[str, str]]] = {
    "meta": {"name": "VARCHAR", "value": "VARCHAR"},
    "shards": {
        "shard": "VARCHAR",
        "size": "BIGINT",
        "line": "BIGINT",
        "byte": "BIGINT",
        "last_byte": "BIGINT",
        "last_sum": "VARCHAR",
    },
}
"""The tables of the store itself: its version, and for each shard its size when it was read and the end of its valid part."""


def create_statements(tables: dict[str, dict[str, str]]) -> tuple[str, ...]:
    """The SQL statements that create tables."""

    def columns(kinds: dict[str, str]) -> str:
        return ", ".join(f'"{name}" {kind}' for name, kind in kinds.items())

    return tuple(f"CREATE TABLE {table} ({columns(kinds)})" for table, kinds in tables.items())


CREATE: Final = (*create_statements(TABLES), *create_statements(OWN), f"INSERT INTO meta VALUES ('schema', '{VERSION}')")


def _count(table: str, condition: str) -> str:
    return f"(SELECT count(*) FROM {table} WHERE {table}.run = runs.run AND {condition})"


_HIGH: Final = "proposed AND impact = 'high'"
_STOPPED: Final = "(decision = 'block' OR approval <> '' OR (decision = 'rewrite' AND starts_with(reason, 'sandbox')))"
_COUNTED: Final = {
    "episode": "''",
    "place": "0",
    "cases": "0",
    "cases_broken": "0",
    "effected": _count("violations", "severity = 'hard' AND stage = 'effected'"),
    "collapsed": "termination IN ('horizon', 'deadlock') OR "
    + _count("violations", "starts_with(contract, 'progress.')")
    + " > 0",
    "faulted": _count("perturbations", "step IS NOT NULL") + " > 0",
    "harmed": _count(
        "violations",
        "severity = 'hard' AND action_kind = 'final_response'"
        " AND step > (SELECT min(p.step) FROM perturbations p WHERE p.run = runs.run)",
    )
    + " > 0",
    "high_allowed": _count("mediations", f"{_HIGH} AND decision = 'allow'"),
    "high_rewritten": _count("mediations", f"{_HIGH} AND decision = 'rewrite'"),
    "high_blocked": _count("mediations", f"{_HIGH} AND decision = 'block'"),
    "high_stopped": _count("mediations", f"{_HIGH} AND {_STOPPED}"),
}
"""The columns of `runs` that version 1 did not have -> the SQL that computes them."""
_TO_2: Final = (
    *create_statements({name: TABLES[name] for name in ("contracts", "scores", "findings")}),
    *create_statements({"shards": OWN["shards"]}),
    *(f'ALTER TABLE runs ADD COLUMN "{name}" {RUNS[name]}' for name in _COUNTED),
    "UPDATE runs SET " + ", ".join(f"{name} = {count}" for name, count in _COUNTED.items()),
)
"""Version 1 had six tables, from which the newer columns are computed. It had no marks for logs, so logs are read again."""

_TO_3: Final = ("ALTER TABLE violations ADD COLUMN label VARCHAR",)
"""Violations from earlier versions have no label: NULL."""

_TO_4: Final = (
    "ALTER TABLE runs ADD COLUMN armed BOOLEAN",
    "UPDATE runs SET armed = true WHERE hard > 0 OR " + _count("contracts", "severity = 'hard'") + " > 0",
)
"""Runs from earlier versions without a contract are not known to have armed none: NULL, which counts as armed."""

MIGRATIONS: Final[dict[int, tuple[str, ...]]] = {1: _TO_2, 2: _TO_3, 3: _TO_4}
"""Version -> the statements that migrate to the next version."""

"""Write contracts to files that `mat.resources.files.loads` reads as the same contracts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, get_args, get_origin

from mat.core.allowed import Allowed, is_range
from mat.core.endpoint import Endpoint, Folder, Length, Pattern
from mat.core.errors import SpecError
from mat.core.resources import Price
from mat.resources.contract import Criterion, EndCondition, Inputs, Output, ResourceContract, Schema, Skill
from mat.resources.modes import MODES
from mat.resources.terms import TYPES, Fitting, NamedFunction, Shape, StatusCondition

FORMAT: Final = 1
"""The version of the format, which `mat:` names in a file."""
_UNPRINTED: Final = re.compile("[^\n -~\u00a0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML requires to be escaped."""


def dumps(contracts: Mapping[str, ResourceContract]) -> str:
    """Write contracts as JSON text (also valid YAML). `loads` reads equal contracts from it, if it gets the same functions."""
    text = json.dumps(data(contracts), indent=2, ensure_ascii=False)
    return _UNPRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def data(contracts: Mapping[str, ResourceContract]) -> dict[str, Any]:
    """Contracts as data. Keys are paths, as in the result of `load`: `above/name` is nested in `above`.

    SpecError for functions without a name from a file and for types made in code, which a file cannot hold.
    """
    problems: list[str] = []
    top: dict[str, Any] = {}
    for path, contract in contracts.items():
        above, _, name = path.rpartition("/")
        inside = top
        for part in above.split("/") if above else ():
            if part not in inside:
                problems.append(f"{path}: there is no contract {above}")
                break
            inside = inside[part].setdefault("contracts", {})
        else:
            if name != contract.name:
                problems.append(f"{path}: the contract is called {contract.name!r}")
            inside[name] = _Writer(path, problems).terms(contract)
    if problems:
        raise SpecError(
            what=f"cannot write contracts: {'; '.join(problems)}",
            why="a file contains only data, and its contracts must agree with their paths and modes",
            fix="correct each of these; functions and types must come from a contract file that names them: load(checks=...)",
        )  # fmt: skip
    return {"mat": FORMAT, "contracts": top}


class _Writer:
    """Writes one contract as data, and notes what cannot be written."""

    def __init__(self, path: str, problems: list[str]) -> None:
        self._path, self._problems = path, problems

    def terms(self, contract: ResourceContract) -> dict[str, Any]:
        plain = ResourceContract(name=contract.name)
        found: dict[str, Any] = {
            "mode": self._mode(contract),
            "budgets": {name: _number(value) for name, value in contract.budgets.items()},
            "duration_s": None if contract.duration_s is None else _number(contract.duration_s),
            "inputs": self._inputs(contract.inputs),
            "output": self._output(contract.output),
            "criteria": [self._criterion(item) for item in contract.criteria],
            "threshold": contract.threshold,
            "ends_when": [self._end_condition(item) for item in contract.ends_when],
            "prices": {port: _price(price) for port, price in contract.prices.items()},
        }
        found = {key: value for key, value in found.items() if value not in (None, "", {}, [])}
        if contract.skills is not None:
            found["skills"] = [_skill(item) for item in contract.skills]
        if contract.hands_on is not None:
            parts = {"skills": contract.hands_on.skills, "modes": contract.hands_on.modes}
            found["hands_on"] = {name: list(value) for name, value in parts.items() if value is not None}
        for key in ("reserve_percent", "warn_at", "depth"):
            value = getattr(contract, key)
            if value != getattr(plain, key):
                found[key] = list(value) if isinstance(value, tuple) else value
        return found

    def _mode(self, contract: ResourceContract) -> str:
        preset = MODES["full"].get(contract.mode)
        if preset is not None and preset.of(contract) != contract:
            self._problems.append(f"{self._path}: a contract in mode {contract.mode} has at most {preset.duration_s} s")
        return contract.mode

    def _inputs(self, inputs: Inputs) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if inputs.schema is not None:
            found["schema"] = self._schema(inputs.schema, "the input")
        for rule in inputs.rules:
            if isinstance(rule.holds, Fitting) and len(rule.holds.rules) == 1:
                found.setdefault("rules", {})[rule.name] = _fits_data(rule.holds.rules[0][1])
            else:
                self._problems.append(f"{self._path}: the rule {rule.name} is a function")
        if inputs.prepare is not None:
            found["prepare"] = self._function_name(inputs.prepare, "the preparation of inputs")
        return found

    def _output(self, output: Output) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if output.schema is not None:
            found["schema"] = self._schema(output.schema, "the output")
        if output.quality is not None:
            found["quality"] = self._function_name(output.quality, "the scorer of the output")
        if output.least_quality:
            found["least_quality"] = output.least_quality
        if output.format is not None:
            form = output.format.holds
            found["format"] = (
                _fits_data(form.rules[0][1], full=True)
                if isinstance(form, Fitting)
                else self._function_name(form, "the format")
            )
        return found

    def _criterion(self, item: Criterion) -> dict[str, Any]:
        found: dict[str, Any] = {"name": item.name, "weight": item.weight}
        if isinstance(item.holds, StatusCondition):
            return {**found, "status": item.holds.text}
        if isinstance(item.holds, Fitting):
            return {**found, "output": {path: _fits_data(allowed) for path, allowed in item.holds.rules}}
        return {**found, "check": self._function_name(item.holds, f"the criterion {item.name}")}

    def _end_condition(self, item: EndCondition | str) -> Any:
        if isinstance(item, str):
            return item
        if isinstance(item.holds, StatusCondition):
            return {"name": item.name, "status": item.holds.text}
        return {"name": item.name, "check": self._function_name(item.holds, f"the condition {item.name}")}

    def _function_name(self, function: object, what: str) -> str:
        if isinstance(function, NamedFunction):
            return function.name
        self._problems.append(f"{self._path}: {what} is a function")
        return ""

    def _schema(self, schema: Schema, what: str) -> Any:
        for name, kind in TYPES.items():
            if schema is kind:
                return name
        origin: object = get_origin(schema)
        if origin is list:
            return [self._schema(get_args(schema)[0], what)]
        shape = getattr(schema, "__metadata__", (None,))[0]
        if isinstance(shape, Shape):
            return {f"{name}{'' if required else '?'}": self._schema(kind, what) for name, kind, required in shape.fields}
        self._problems.append(f"{self._path}: the schema of {what}, {schema!r}, is a type made in code")
        return None


def _number(value: Any) -> int | float | str:
    """An amount in exact form, so that it is read back unchanged."""
    if isinstance(value, Decimal | Fraction):
        exact = Fraction(value)
        if exact.denominator == 1:
            return int(exact)
        return format(Decimal(exact.numerator) / Decimal(exact.denominator), "f")
    return value  # type: ignore[no-any-return]


def _price(price: Price) -> dict[str, int | float | str]:
    found = {name: _number(getattr(price, name)) for name in ("call", "input", "output", "reasoning")}
    return {name: value for name, value in found.items() if value != 0}


def _skill(skill: Skill) -> Any:
    if not skill.cost and skill.success == 1:
        return skill.name
    return {"name": skill.name, "cost": {name: _number(value) for name, value in skill.cost.items()}, "success": skill.success}


def _fits_data(allowed: Allowed, *, full: bool = False) -> Any:
    """An allow-list as data for a file; `full`: always as a mapping."""
    match allowed:
        case Pattern():
            return {"pattern": allowed.expression}
        case Length():
            return {"length": {"least": allowed.least, "most": allowed.most}}
        case Endpoint():
            parts = {"hosts": allowed.hosts, "schemes": allowed.schemes, "paths": allowed.paths}
            return {"endpoint": {name: list(value) for name, value in parts.items() if value}}
        case Folder():
            return {"folder": list(allowed.paths)}
    if isinstance(allowed, tuple) and is_range(allowed):
        bounds = {"least": allowed[0], "most": allowed[1]}
        return {name: value for name, value in bounds.items() if abs(value) != float("inf")}
    values = list(allowed)  # type: ignore[arg-type]
    return {"values": values} if full else values

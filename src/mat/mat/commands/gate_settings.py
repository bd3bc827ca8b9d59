"""The settings of a gate: [tool.mat.gate] of pyproject.toml, overridden by command-line options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from mat.commands.baseline import FILE
from mat.core.errors import SpecError, did_you_mean

if TYPE_CHECKING:
    from mat.measure.gate import GateAspect, GateRules

_NAMES: Final = ("confidence", "file", "removed", "replays", "seeds", "smoke", "tolerance", "undecided", "unit", "waive")


_CHOICES: Final = {
    "undecided": ("fail", "pass"),
    "removed": ("fail", "list"),
    "replays": ("suite", "all"),
    "unit": ("run", "seed"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """How a gate runs and judges. `smoke` (tests per category) and `seeds` (per test) are None for all."""

    rules: GateRules
    file: str = FILE
    smoke: int | None = 5
    seeds: int | None = None
    replays: Literal["suite", "all"] = "suite"


def given_by(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that the options of `mat gate` give, by name."""
    found = {name: getattr(options, name) for name in _NAMES if getattr(options, name, None)}
    if "tolerance" in found:
        found["tolerance"] = dict(_name_and_value(text, "--tolerance") for text in options.tolerance)
    return found


def settings_from(texts: Sequence[str]) -> dict[str, Any]:
    """Parse settings of the form NAME=VALUE. A tolerance is tolerance.ASPECT=SHARE; waive may be repeated."""
    found: dict[str, Any] = {}
    for text in texts:
        name, value = _name_and_value(text, "a setting")
        if name.startswith("tolerance."):
            found.setdefault("tolerance", {})[name.removeprefix("tolerance.")] = value
        elif name == "waive":
            found.setdefault("waive", []).append(value)
        else:
            found[name] = value
    return found


def _name_and_value(text: str, what: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise SpecError(what=f"{what} {text!r} is not NAME=VALUE", fix="write, for example, success=0.05")
    return name.strip(), value.strip()


def settings_of(given: Mapping[str, Any], *, folder: Path) -> GateSettings:
    """The settings of [tool.mat.gate] in the nearest pyproject.toml, overridden by `given`. SpecError lists every problem."""
    from mat.measure.gate import ASPECTS, SMOKE, GateRules, with_tolerances

    stated, where = _project_settings(folder)
    problems = [f"unknown setting [tool.mat.gate] {name}{did_you_mean(name, _NAMES)}" for name in stated if name not in _NAMES]
    problems += [f"unknown setting {name}{did_you_mean(name, _NAMES)}" for name in given if name not in _NAMES]
    shares = _tolerances((stated, given), problems)
    merged = {**stated, **given}
    confidence = _parse_share(merged.get("confidence", "0.95"), least=False)
    if confidence is None:
        problems.append(f"confidence {merged['confidence']!r} is not a share between 0 and 1, such as 0.95")
    counts = {name: _parse_count(merged, name, default, problems) for name, default in (("smoke", SMOKE), ("seeds", None))}
    for name, choices in _CHOICES.items():
        if merged.get(name, choices[0]) not in choices:
            problems.append(f"{name} {merged[name]!r} is not one of {', '.join(choices)}")
    waived = [*_waived_contracts(stated, problems), *_waived_contracts(given, problems)]
    file = merged.get("file", FILE)
    if not isinstance(file, str) or not file:
        problems.append(f"file {file!r} is not a path")
    if problems:
        raise SpecError(
            what="; ".join(problems), why=f"settings are {', '.join(_NAMES)}; aspects are {', '.join(ASPECTS)}",
            fix="correct the option, or the table in pyproject.toml", where=where if stated else "",
        )  # fmt: skip
    assert confidence is not None
    rules = GateRules(
        tolerances=with_tolerances(shares), confidence=confidence, waived=frozenset(waived),
        unit=merged.get("unit", "run"), undecided=merged.get("undecided", "fail"), removed=merged.get("removed", "fail"),
    )  # fmt: skip
    return GateSettings(
        rules=rules, file=file, replays=merged.get("replays", "suite"), smoke=counts["smoke"], seeds=counts["seeds"]
    )


def _tolerances(sides: Sequence[Mapping[str, Any]], problems: list[str]) -> dict[GateAspect, Fraction]:
    """The tolerance of each aspect; later sides override earlier ones."""
    from mat.measure.gate import ASPECTS

    stated: dict[str, Any] = {}
    for side in sides:
        if isinstance(side.get("tolerance", {}), Mapping):
            stated.update(side.get("tolerance", {}))
        else:
            problems.append("tolerance is not a table of aspects")
    found: dict[GateAspect, Fraction] = {}
    for name, value in stated.items():
        share = _parse_share(value, least=True)
        aspect = next((each for each in ASPECTS if each == name), None)
        if aspect is None:
            problems.append(f"tolerance of {name!r}: unknown aspect{did_you_mean(name, ASPECTS)}")
        elif share is None:
            problems.append(f"tolerance of {name}: {value!r} is not a share of at least 0 and below 1, such as 0.05")
        else:
            found[aspect] = share
    return found


def _project_settings(folder: Path) -> tuple[Mapping[str, Any], str]:
    """The table [tool.mat.gate] of the nearest pyproject.toml, and the path of the file; empty without one."""
    import tomllib

    here = folder.resolve()
    path = next((place / "pyproject.toml" for place in (here, *here.parents) if (place / "pyproject.toml").is_file()), None)
    if path is None:
        return {}, ""
    try:
        data: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(what=f"cannot read pyproject.toml: {error}", fix="correct the file", where=str(path)) from error
    for name in ("tool", "mat", "gate"):
        data = data.get(name, {}) if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping):
        raise SpecError(
            what="[tool.mat.gate] is not a table", fix="write [tool.mat.gate] and settings below it", where=str(path)
        )
    return data, str(path)


def _parse_share(value: object, *, least: bool) -> Fraction | None:
    """A share between 0 and 1, both excluded; 0 is allowed if `least`. None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        return None
    return found if 0 < found < 1 or (least and not found) else None


def _parse_count(merged: Mapping[str, Any], name: str, default: int | None, problems: list[str]) -> int | None:
    value = merged.get(name, default)
    if value is None or value == "all":
        return None
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        problems.append(f"{name} {value!r} is not an integer >= 1, or all")
        return None
    return number


def _waived_contracts(side: Mapping[str, Any], problems: list[str]) -> list[str]:
    found = side.get("waive", [])
    if not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
        problems.append(f"waive {found!r} is not a list of contract ids")
        return []
    return list(found)

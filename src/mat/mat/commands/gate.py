"""`mat gate --baseline REF`: does a change keep what the baseline had? (A6.7)

The command starts pytest in rounds, each on further seeds of the smoke suite, and stops at the first judgement. Where the
baseline is a git revision, the report that is committed in it is read; no code of that revision runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from mat.commands.shared import PASS, VIOLATION, Add, check_files, print_json, reading, width
from mat.core import limits
from mat.core.errors import MatError, SpecError, did_you_mean

if TYPE_CHECKING:
    from mat.measure.gate import Aspect, Baseline, Evidence, Gate, Plan, Rules
    from mat.report.from_json import Reported

FILE: Final = "mat_baseline.json"
"""Where a baseline report lies in a git revision, seen from the folder of the session, unless said otherwise."""
_REPLAY: Final = re.compile(r"[\[-]replay-[0-9a-f]+\]$")
_REPORT: Final = "write one with pytest --mat-seeds 100 --mat-report FILE.json"
_NAMES: Final = ("confidence", "file", "removed", "replays", "seeds", "smoke", "tolerance", "undecided", "unit", "waive")
_CHOICES: Final = {
    "undecided": ("fail", "pass"),
    "removed": ("list", "fail"),
    "replays": ("suite", "all"),
    "unit": ("seed", "run"),
}
_TEXT: Final = "run a smoke suite and the replay suite, and fail where they lost something against a baseline report"
_EXAMPLES: Final = """mat gate --baseline mat_baseline.json
         mat gate --baseline origin/main --summary gate.md tests -- -n 4
         mat gate --baseline origin/main --tolerance success=0.1 --seeds 50

a baseline is written by pytest --mat-seeds 100 --mat-report mat_baseline.json
settings may stand in pyproject.toml, [tool.mat.gate]
exit codes: 0 it passes, 1 something is lost or undecided, 2 a wrong option, a baseline that cannot be read, or no session"""


def add_parser(add: Add) -> None:
    parser = add("gate", _TEXT, _EXAMPLES)
    option = parser.add_argument
    option(
        "rest",
        nargs="*",
        default=[],
        metavar="PYTEST_ARGUMENT",
        help="tests, and options of pytest; put -- before the first option",
    )
    option("--baseline", required=True, metavar="REF", help="a report (.json), or a git revision that holds one")
    option("--file", metavar="PATH", help=f"where the report lies in the revision, from this folder (default {FILE})")
    option(
        "--tolerance", action="append", default=[], metavar="ASPECT=SHARE",
        help="what an aspect may lose (default success=0.05, of all else nothing); may be repeated",
    )  # fmt: skip
    option("--smoke", metavar="N", help="tests for each category (default 5), or all: every test of the baseline")
    option("--seeds", metavar="N", help="most seeds of each test (default: all that the baseline has)")
    option("--confidence", metavar="SHARE", help="of the intervals (default 0.95)")
    option("--unit", metavar="WHAT", help="what is drawn independently: seed (default), or run where tests share no randomness")
    option("--replays", metavar="WHICH", help="suite: those that mat suite selects (default), or all")
    option("--waive", action="append", default=[], metavar="CONTRACT", help="a contract that the change takes away; repeatable")
    option("--undecided", metavar="HOW", help="fail (default) or pass where the seeds do not decide")
    option("--removed", metavar="HOW", help="list (default) or fail where tests or replays of the baseline are gone")
    option("--summary", type=Path, metavar="FILE", help="write a short Markdown summary, for a pull request")


def gate(options: argparse.Namespace) -> int:
    from mat.report.gate import gate_blocks, gate_data
    from mat.report.terminal import told

    settings = settings_of(_given(options), folder=Path())
    reported, name = baseline_report(options.baseline, file=settings.file)
    found = _rounds(reported, settings, options.rest)
    summarise(found, name, options.summary)
    if options.json:
        print_json(gate_data(found, baseline=name))
    else:
        print(told(gate_blocks(found, baseline=name), width=width()), end="")
    return PASS if found.passed else VIOLATION


def summarise(found: Gate, name: str, file: Path | None) -> None:
    """The Markdown summary: to the file asked for, and to the job summary where GitHub runs us."""
    from mat.report.markdown import gate_summary

    text = gate_summary(found, baseline=name)
    step = os.environ.get("GITHUB_STEP_SUMMARY")
    for path, mode in ((file, "w"), (Path(step) if step else None, "a")):
        if path is None:
            continue
        try:
            with path.open(mode, encoding="utf-8", newline="\n") as stream:
                stream.write(text)
        except OSError as error:
            raise MatError(f"cannot write {path.name}: {error.strerror}", fix="check the folder", where=str(path)) from error


# -- settings ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is asked of a gate, from [tool.mat.gate] and the command line. `smoke` and `seeds` None: all."""

    rules: Rules
    file: str = FILE
    smoke: int | None = 5
    seeds: int | None = None
    replays: Literal["suite", "all"] = "suite"


def _given(options: argparse.Namespace) -> dict[str, Any]:
    found = {name: getattr(options, name) for name in _NAMES if getattr(options, name, None)}
    if "tolerance" in found:
        found["tolerance"] = dict(_split(text, "--tolerance") for text in options.tolerance)
    return found


def settings_from(texts: Sequence[str]) -> dict[str, Any]:
    """Settings given as NAME=VALUE; a tolerance is tolerance.ASPECT=SHARE, and waive may be repeated."""
    found: dict[str, Any] = {}
    for text in texts:
        name, value = _split(text, "a setting")
        if name.startswith("tolerance."):
            found.setdefault("tolerance", {})[name.removeprefix("tolerance.")] = value
        elif name == "waive":
            found.setdefault("waive", []).append(value)
        else:
            found[name] = value
    return found


def _split(text: str, what: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise SpecError(what=f"{what} {text!r} is not NAME=VALUE", fix="write success=0.05")
    return name.strip(), value.strip()


def settings_of(given: Mapping[str, Any], *, folder: Path) -> Settings:
    """The settings of [tool.mat.gate] in the nearest pyproject.toml, those given in their place; all problems in one go."""
    from mat.measure.gate import ASPECTS, SMOKE, Rules, with_tolerances

    stated, where = _stated(folder)
    problems = [f"[tool.mat.gate] {name} is not known{did_you_mean(name, _NAMES)}" for name in stated if name not in _NAMES]
    problems += [f"{name} is not known{did_you_mean(name, _NAMES)}" for name in given if name not in _NAMES]
    shares = _tolerances((stated, given), problems)
    merged = {**stated, **given}
    confidence = _share(merged.get("confidence", "0.95"), least=False)
    if confidence is None:
        problems.append(f"confidence {merged['confidence']!r} is not a share between 0 and 1, such as 0.95")
    counts = {name: _count(merged, name, default, problems) for name, default in (("smoke", SMOKE), ("seeds", None))}
    for name, choices in _CHOICES.items():
        if merged.get(name, choices[0]) not in choices:
            problems.append(f"{name} {merged[name]!r} is not one of {', '.join(choices)}")
    waived = [*_names(stated, problems), *_names(given, problems)]
    file = merged.get("file", FILE)
    if not isinstance(file, str) or not file:
        problems.append(f"file {file!r} is not a path")
    if problems:
        raise SpecError(
            what="; ".join(problems), why=f"a gate is told {', '.join(_NAMES)}; aspects are {', '.join(ASPECTS)}",
            fix="correct the option, or the table in pyproject.toml", where=where if stated else "",
        )  # fmt: skip
    assert confidence is not None
    rules = Rules(
        tolerances=with_tolerances(shares), confidence=confidence, waived=frozenset(waived),
        unit=merged.get("unit", "seed"), undecided=merged.get("undecided", "fail"), removed=merged.get("removed", "list"),
    )  # fmt: skip
    return Settings(
        rules=rules, file=file, replays=merged.get("replays", "suite"), smoke=counts["smoke"], seeds=counts["seeds"]
    )


def _tolerances(sides: Sequence[Mapping[str, Any]], problems: list[str]) -> dict[Aspect, Fraction]:
    """What each aspect may lose; the later side wins."""
    from mat.measure.gate import ASPECTS

    stated: dict[str, Any] = {}
    for side in sides:
        if isinstance(side.get("tolerance", {}), Mapping):
            stated.update(side.get("tolerance", {}))
        else:
            problems.append("tolerance is not a table of aspects")
    found: dict[Aspect, Fraction] = {}
    for name, value in stated.items():
        share = _share(value, least=True)
        aspect = next((each for each in ASPECTS if each == name), None)
        if aspect is None:
            problems.append(f"tolerance of {name!r}: there is no such aspect{did_you_mean(name, ASPECTS)}")
        elif share is None:
            problems.append(f"tolerance of {name}: {value!r} is not a share from 0 to below 1, such as 0.05")
        else:
            found[aspect] = share
    return found


def _stated(folder: Path) -> tuple[Mapping[str, Any], str]:
    """[tool.mat.gate] of the nearest pyproject.toml, and its path; empty where there is none."""
    import tomllib

    here = folder.resolve()
    path = next((place / "pyproject.toml" for place in (here, *here.parents) if (place / "pyproject.toml").is_file()), None)
    if path is None:
        return {}, ""
    try:
        data: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(what=f"cannot read pyproject.toml: {error}", fix="mend the file", where=str(path)) from error
    for name in ("tool", "mat", "gate"):
        data = data.get(name, {}) if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping):
        raise SpecError(
            what="[tool.mat.gate] is not a table", fix="write [tool.mat.gate] and settings below it", where=str(path)
        )
    return data, str(path)


def _share(value: object, *, least: bool) -> Fraction | None:
    """A share below 1; 0 is one where `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        return None
    return found if 0 < found < 1 or (least and not found) else None


def _count(merged: Mapping[str, Any], name: str, default: int | None, problems: list[str]) -> int | None:
    value = merged.get(name, default)
    if value is None or value == "all":
        return None
    whole = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(whole, int) or isinstance(whole, bool) or whole < 1:
        problems.append(f"{name} {value!r} is not an integer >= 1, or all")
        return None
    return whole


def _names(side: Mapping[str, Any], problems: list[str]) -> list[str]:
    found = side.get("waive", [])
    if not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
        problems.append(f"waive {found!r} is not a list of contract ids")
        return []
    return list(found)


# -- the baseline -----------------------------------------------------------------------------------------------------


def baseline_report(ref: str, *, file: str, folder: Path | None = None) -> tuple[Reported, str]:
    """The report that `ref` names, and what to call it: a file, or the one committed at `file` in a git revision.

    MatError where there is neither, or where the report does not say what each run came to.
    """
    from mat.report.from_json import read, reported

    folder = folder or Path()
    path = folder / ref
    if os.path.exists(path):
        check_files(path, fix=_REPORT)
        with reading(path, fix=_REPORT):
            found = read(path)
        name = ref
    else:
        commit = _commit(ref, folder)
        where = f"{ref}:{file}"
        with reading(Path(where), fix=_REPORT):
            found = reported(_json(_blob(commit, file, ref, folder), where), where=where)
        name = f"{ref} ({commit[:12]}, {file})"
    if not any(outcome.condition in ("nominal", "replay") for outcome in found.tables.outcomes):
        raise SpecError(
            what=f"{name} has no undisturbed run and no replay", why="there is nothing that a change could be compared with",
            fix=_REPORT, where=str(path) if os.path.isfile(path) else where,
        )  # fmt: skip
    return found, name


def _json(raw: bytes, where: str) -> Any:
    from mat.core.codec import load_json

    return load_json(raw, where=where)


def _commit(ref: str, folder: Path) -> str:
    done = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if done is None or done.returncode:
        raise SpecError(
            what=f"{ref!r} is neither a file nor a git revision", why="a baseline is a report, or a revision that holds one",
            fix="check the path; in CI fetch the revision first (fetch-depth: 0)", where=str(folder.resolve()),
        )  # fmt: skip
    return done.stdout.decode("ascii", "replace").strip()


def _blob(commit: str, file: str, ref: str, folder: Path) -> bytes:
    """A file of a revision as it was committed: no filter and no text conversion of the repository runs."""
    name = f"{commit}:./{file}"
    size = _git(folder, "cat-file", "-s", name)
    kind = _git(folder, "cat-file", "-t", name)
    if size is None or size.returncode or kind is None or kind.stdout.strip() != b"blob":
        raise SpecError(
            what=f"the revision {ref} has no baseline report {file}",
            why="a gate reads the report that is committed there; it runs no code of another revision",
            fix=f"commit one (pytest --mat-seeds 100 --mat-report {file}), say where it lies (--file), or name a file",
            where=f"{ref}:{file}",
        )  # fmt: skip
    if int(size.stdout) > limits.FILE_BYTES:
        raise SpecError(
            what=f"{file} of {ref} is larger than {limits.FILE_BYTES} bytes",
            fix="write a smaller report",
            where=f"{ref}:{file}",
        )
    done = _git(folder, "cat-file", "blob", name)
    assert done is not None
    return done.stdout


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False)
    except OSError:
        return None


def baseline_of(reported: Reported) -> Baseline:
    from mat.measure.gate import Baseline

    return Baseline(
        categories={item.id: item.category for item in reported.items if not _REPLAY.search(item.id)},
        statuses={item.id: item.status for item in reported.items if _REPLAY.search(item.id)},
        outcomes=reported.tables.outcomes,
    )


# -- rounds -----------------------------------------------------------------------------------------------------------


def _rounds(reported: Reported, settings: Settings, rest: Sequence[str]) -> Gate:
    """Sessions of pytest, each on further seeds, until the judgement is settled or the seeds are used up."""
    from mat.measure.gate import FIRST, judge, next_seeds

    baseline = baseline_of(reported)
    with tempfile.TemporaryDirectory(prefix="mat-gate-") as name:
        folder = Path(name)
        _write_report(folder / "baseline.json", reported)
        plan, evidence = _round(folder, settings, rest, begin=0, end=FIRST, plan=None)
        found = judge(baseline, plan, evidence, settings.rules)
        while next_seeds(found) > found.evidence.seeds:
            _, later = _round(folder, settings, rest, begin=found.evidence.seeds, end=next_seeds(found), plan=plan)
            evidence = evidence.joined(later)
            found = judge(baseline, plan, evidence, settings.rules)
    return found


def _write_report(path: Path, reported: Reported) -> None:
    from mat.core.codec import encode

    path.write_text(json.dumps(encode(reported)), encoding="utf-8")


def _round(
    folder: Path, settings: Settings, rest: Sequence[str], *, begin: int, end: int, plan: Plan | None
) -> tuple[Plan, Evidence]:
    """One session on the seeds from the `begin`-th to before the `end`-th; without a plan it selects, and runs the replays."""
    from mat.core.codec import decode, encode
    from mat.measure.gate import Evidence, Plan, Round

    out = folder / "out.json"
    out.unlink(missing_ok=True)
    asked = Round(
        begin=begin, end=end, out=str(out), plan=plan, smoke=settings.smoke, seeds=settings.seeds,
        all_replays=settings.replays == "all",
    )  # fmt: skip
    (folder / "round.json").write_text(json.dumps(encode(asked)), encoding="utf-8")
    # with "=": pytest takes a path that stands alone for one of the tests' when it looks for the root of the session
    given = (f"--mat-gate={folder / 'baseline.json'}", f"--mat-gate-round={folder / 'round.json'}")
    command = [sys.executable, "-m", "pytest", "-q", *given, *rest]
    done = subprocess.run(command, check=False, stdout=sys.stderr)
    if done.returncode not in (0, 1, 5) or not out.is_file():
        raise MatError(
            f"the session did not come to its end (pytest's exit code {done.returncode})",
            why="pytest says above what happened",
            fix="run it without the gate first: " + " ".join(["pytest", *rest]),
        )  # fmt: skip
    said = json.loads(out.read_text(encoding="utf-8"))
    where = "what the session left"
    return decode(Plan, said["plan"], where=where), decode(Evidence, said["evidence"], where=where)

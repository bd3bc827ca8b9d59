"""`mat gate --baseline REF`: may a change land, or does it do worse than the baseline?

The command starts pytest in rounds, each on further seeds of the smoke suite, and stops as soon as the result is decided. If
the baseline is a git revision, the command reads the report committed in it; no code of that revision runs.

Source: A6.7.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mat.commands.baseline import FILE, baseline_of, read_baseline
from mat.commands.gate_settings import GateSettings, given_by, settings_of
from mat.commands.shared import PASS, VIOLATION, Add, print_json, width, write_text
from mat.core.errors import MatError
from mat.core.extras import require

if TYPE_CHECKING:
    from mat.measure.gate import Gate, GateEvidence, GatePlan
    from mat.report.from_json import Reported

_TEXT: Final = "run a smoke suite and the replay suite, and fail if they do worse than a baseline report"
_EXAMPLES: Final = """mat gate --baseline mat_baseline.json
         mat gate --baseline origin/main --summary gate.md tests -- -n 4
         mat gate --baseline origin/main --tolerance success=0.1 --seeds 50

write a baseline with pytest --mat-seeds 100 --mat-report mat_baseline.json
the table [tool.mat.gate] of pyproject.toml sets defaults for these options
exit codes: 0 the gate passes, 1 something is lost or undecided, 2 a usage error, an unreadable baseline, or a failed session"""


def add_parser(add: Add) -> None:
    parser = add("gate", _TEXT, _EXAMPLES)
    option = parser.add_argument
    option(
        "rest",
        nargs="*",
        default=[],
        metavar="PYTEST_ARGUMENT",
        help="tests and options for pytest; put -- before the first option",
    )
    option(
        "--baseline",
        required=True,
        metavar="REF",
        help="the baseline: a report (.json), or a git revision with a committed report",
    )
    option("--file", metavar="PATH", help=f"path of the report in the revision, relative to this folder (default {FILE})")
    option(
        "--tolerance", action="append", default=[], metavar="ASPECT=SHARE",
        help="share of runs that an aspect may lose (default success=0.05, other aspects 0); may be repeated",
    )  # fmt: skip
    option("--smoke", metavar="N", help="tests per category (default 5), or all for every test of the baseline")
    option("--seeds", metavar="N", help="run each test on at most N seeds (default: all seeds of the baseline)")
    option("--confidence", metavar="SHARE", help="confidence of the intervals (default 0.95)")
    option("--unit", metavar="WHAT", help="what is independent: run (default), or seed if tests share random draws")
    option("--replays", metavar="WHICH", help="replay files to run: suite (default, those that mat suite selects) or all")
    option("--waive", action="append", default=[], metavar="CONTRACT", help="ignore the loss of this contract; may be repeated")
    option("--undecided", metavar="HOW", help="when there are too few seeds to decide: fail (default) or pass")
    option("--removed", metavar="HOW", help="when tests or replays of the baseline are missing: fail (default), or list")
    option(
        "--power", action="store_true",
        help="run nothing; report how many seeds each tolerance needs, and how likely it is that the baseline's seeds suffice",
    )  # fmt: skip
    option("--summary", type=Path, metavar="FILE", help="write a short Markdown summary, for a pull request")


def gate(options: argparse.Namespace) -> int:
    from mat.report.gate import gate_blocks, gate_data
    from mat.report.terminal import blocks_in_text

    require("stats", "a gate")
    settings = settings_of(given_by(options), folder=Path())
    reported, name = read_baseline(options.baseline, file=settings.file)
    if options.power:
        return _tell_power(reported, name, settings, json=options.json)
    found = _run_rounds(reported, settings, options.rest)
    summarise(found, name, options.summary)
    if options.json:
        print_json(gate_data(found, baseline=name))
    else:
        print(blocks_in_text(gate_blocks(found, baseline=name), width=width()), end="")
    return PASS if found.passed else VIOLATION


def _tell_power(reported: Reported, name: str, settings: GateSettings, *, json: bool) -> int:
    from mat.measure.gate import plan
    from mat.report.gate import power_blocks, power_data
    from mat.report.terminal import blocks_in_text

    baseline = baseline_of(reported)
    planned = plan(baseline, tests=baseline.categories, replays={}, smoke=settings.smoke, seeds=settings.seeds)
    if json:
        print_json(power_data(planned, settings.rules, baseline=name))
    else:
        print(blocks_in_text(power_blocks(planned, settings.rules, baseline=name), width=width()), end="")
    return PASS


def summarise(found: Gate, name: str, file: Path | None) -> None:
    """Write the Markdown summary to `file`, if given, and to the job summary of GitHub Actions, if there is one."""
    from mat.report.markdown import gate_summary

    text = gate_summary(found, baseline=name)
    step = os.environ.get("GITHUB_STEP_SUMMARY")
    if file is not None:
        write_text(file, text)
    if step:
        write_text(Path(step), text, mode="a")


# -- rounds -----------------------------------------------------------------------------------------------------------


def _run_rounds(reported: Reported, settings: GateSettings, rest: Sequence[str]) -> Gate:
    """Run sessions of pytest, each on further seeds, until the result is decided or no seeds are left."""
    from mat.measure.gate import FIRST, judge, next_seeds

    baseline = baseline_of(reported)
    with tempfile.TemporaryDirectory(prefix="mat-gate-") as name:
        folder = Path(name)
        _write_report(folder / "baseline.json", reported)
        plan, evidence = _run_round(folder, settings, rest, begin=0, end=FIRST, plan=None)
        found = judge(baseline, plan, evidence, settings.rules)
        while next_seeds(found) > found.evidence.seeds:
            _, later = _run_round(folder, settings, rest, begin=found.evidence.seeds, end=next_seeds(found), plan=plan)
            evidence = evidence.joined(later)
            found = judge(baseline, plan, evidence, settings.rules)
    return found


def _write_report(path: Path, reported: Reported) -> None:
    from mat.core.codec import encode

    path.write_text(json.dumps(encode(reported)), encoding="utf-8")


def _run_round(
    folder: Path, settings: GateSettings, rest: Sequence[str], *, begin: int, end: int, plan: GatePlan | None
) -> tuple[GatePlan, GateEvidence]:
    """Run one session on the seeds `begin` to `end` (exclusive). Without a plan it also selects tests and runs the replays."""
    from mat.core.codec import decode, encode
    from mat.measure.gate import GateEvidence, GatePlan, Round

    out = folder / "out.json"
    out.unlink(missing_ok=True)
    asked = Round(
        begin=begin, end=end, out=str(out), plan=plan, smoke=settings.smoke, seeds=settings.seeds,
        all_replays=settings.replays == "all",
    )  # fmt: skip
    (folder / "round.json").write_text(json.dumps(encode(asked)), encoding="utf-8")
    # with "=": pytest would otherwise take the path for a test's when it determines the root of the session
    given = (f"--mat-gate={folder / 'baseline.json'}", f"--mat-gate-round={folder / 'round.json'}")
    command = [sys.executable, "-m", "pytest", "-q", *given, *rest]
    done = subprocess.run(command, check=False, stdout=sys.stderr)
    if done.returncode not in (0, 1, 5) or not out.is_file():
        raise MatError(
            f"the session did not finish (pytest's exit code is {done.returncode})",
            why="see the output of pytest above",
            fix="run it without the gate first: " + " ".join(["pytest", *rest]),
        )  # fmt: skip
    result = json.loads(out.read_text(encoding="utf-8"))
    where = "the result of the session"
    return decode(GatePlan, result["plan"], where=where), decode(GateEvidence, result["evidence"], where=where)

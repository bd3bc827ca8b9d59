"""`mat gate --baseline REF`: does a change keep what the baseline had? (A6.7)

The command starts pytest in rounds, each on further seeds of the smoke suite, and stops at the first judgement. Where the
baseline is a git revision, the report that is committed in it is read; no code of that revision runs.
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

from mat.commands.baseline import FILE, baseline_of, baseline_report
from mat.commands.gate_settings import GateSettings, given_by, settings_of
from mat.commands.shared import PASS, VIOLATION, Add, print_json, width, write_text
from mat.core.errors import MatError

if TYPE_CHECKING:
    from mat.measure.gate import Gate, GateEvidence, GatePlan
    from mat.report.from_json import Reported

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

    settings = settings_of(given_by(options), folder=Path())
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
    if file is not None:
        write_text(file, text)
    if step:
        write_text(Path(step), text, mode="a")


# -- rounds -----------------------------------------------------------------------------------------------------------


def _rounds(reported: Reported, settings: GateSettings, rest: Sequence[str]) -> Gate:
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
    folder: Path, settings: GateSettings, rest: Sequence[str], *, begin: int, end: int, plan: GatePlan | None
) -> tuple[GatePlan, GateEvidence]:
    """One session on the seeds from the `begin`-th to before the `end`-th; without a plan it selects, and runs the replays."""
    from mat.core.codec import decode, encode
    from mat.measure.gate import GateEvidence, GatePlan, Round

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
    return decode(GatePlan, said["plan"], where=where), decode(GateEvidence, said["evidence"], where=where)

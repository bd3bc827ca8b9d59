"""`mat check FILE...`: validate replay files; with contracts, judge recorded traces."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from mat.commands.shared import PASS, USAGE, VIOLATION, complain, print_json, reading, replay_of, width
from mat.core.errors import MatError, SpecError, printable

_FIX: Final = "record it again, or name its format with --format"
_STORED: Final = "to judge recorded traces, add --contracts MODULE:NAME"


def check(options: argparse.Namespace) -> int:
    from mat.evidence import replay_file

    if options.contracts:
        return _judge(options)
    if options.format:
        raise SpecError(
            what="--format needs --contracts",
            why="only recorded traces have a format, and contracts judge them",
            fix="add --contracts MODULE:NAME",
        )
    results: list[dict[str, Any]] = []
    for path in options.files:
        try:
            if (traces := _traces_in(path)) is not None:
                results.append({"file": str(path), "ok": True, "traces": traces})
                continue
            replay = replay_of(path)
        except MatError as error:
            fix = error.fix if path.name.endswith(replay_file.SUFFIX) else f"{error.fix}; {_STORED}".removeprefix("; ")
            results.append({"file": str(path), "ok": False, "problem": error.what, "why": error.why, "fix": fix})
        else:
            results.append(
                {"file": str(path), "ok": True, "item": replay.item, "contract": replay.counterexample.verdict.contract}
            )
    broken = [result for result in results if not result["ok"]]
    if options.json:
        print_json({"ok": not broken, "files": results})
    else:
        for result in results:
            text = "ok" if result["ok"] else _problem_text(result)
            print(text if text.startswith(printable(result["file"])) else f"{result['file']}: {text}")
    return USAGE if broken else PASS


def _traces_in(path: Path) -> int | None:
    """How many recorded traces a file holds, all of them well-formed; None for a file of another kind."""
    from mat.evidence import jsonl, replay_file

    if path.name.endswith(replay_file.SUFFIX) or not path.is_file() or not jsonl.recognises(path):
        return None
    return sum(1 for _ in jsonl.read(path))  # each is read to its end before the next


def _problem_text(result: dict[str, Any]) -> str:
    return printable(result["problem"]) + f"\n  why: {printable(result['why'])}\n  fix: {result['fix']}"


def _judge(options: argparse.Namespace) -> int:
    """Judge recorded traces. An unreadable trace ends its file, not the command; the traces before it count."""
    from mat.adapters.checking import check_format, stored_traces
    from mat.commands.recorded import judging
    from mat.core.codec import FORMAT
    from mat.monitor.triggers import Triggers
    from mat.report.check import CheckTally, check_blocks, judge_trace, report_data, trace_data
    from mat.report.terminal import blocks_in_text

    contracts = judging(options.contracts)
    check_format(options.format)
    tally, listed, triggers = CheckTally(contracts, limit=options.limit), 0, Triggers(contracts)
    if options.json:
        print(f'{{"mat": {FORMAT}, "traces": [', end="")
    for path in options.files:
        try:
            with reading(path, fix=_FIX):
                for stored in stored_traces(path, options.format):
                    judged = judge_trace(stored, contracts, triggers)
                    tally.add(judged)
                    if options.json:
                        print("," if listed else "", json.dumps(trace_data(judged), ensure_ascii=True), sep="\n", end="")
                        listed += 1
        except MatError as error:
            tally.problem(error)
            complain(error)
    report = tally.report()
    if options.json:
        print("\n]," + json.dumps(report_data(report), ensure_ascii=True, indent=1)[1:])
    else:
        print(blocks_in_text(check_blocks(report), width=width()), end="")
    return USAGE if report.problems else VIOLATION if report.failing else PASS

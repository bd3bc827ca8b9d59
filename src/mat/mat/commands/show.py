"""`mat show FILE`: show a counterexample and all its steps, or the steps of recorded traces."""

from __future__ import annotations

import argparse

from mat.commands.shared import PASS, check_files, print_json, replay_of, width
from mat.core.errors import plural


def show(options: argparse.Namespace) -> int:
    from mat.evidence import jsonl, replay_file
    from mat.report.terminal import failure_section, steps_table

    check_files(options.file, fix="name a replay file in mat_replays/, or a recorded trace (.mat.jsonl)")
    if not options.file.name.endswith(replay_file.SUFFIX) and jsonl.recognises(options.file):
        return _show_traces(options)
    replay = replay_of(options.file)
    run = replay.counterexample.run
    if options.json:
        print_json(replay_file.data_of(replay))
        return PASS
    file, columns = str(options.file), width()
    print(failure_section(replay.counterexample, replay.certificate, replay_path=file, item=replay.item, width=columns))
    title = f"All steps ({len(run.records)}); the run ended: {run.termination}"
    print(steps_table(run, run.records, title=title, width=columns))
    return PASS


def _show_traces(options: argparse.Namespace) -> int:
    """Show the steps of every trace of a file."""
    from mat.core.codec import encode
    from mat.core.run import Run
    from mat.core.spec import RunSpec
    from mat.evidence import jsonl
    from mat.report.terminal import steps_table

    shown = []
    for trace in jsonl.read(options.file):
        records = tuple(trace.records)
        if options.json:
            shown.append({"trace": trace.id, "finished": trace.finished, "records": [encode(each) for each in records]})
            continue
        run = Run(spec=RunSpec(task=trace.id), records=records, outcomes=(), termination="implicit", success=None)
        title = f"{trace.id}: {plural(len(records), 'step')}{'' if trace.finished else ', cut off'}"
        print(steps_table(run, records, title=title, width=width()))
    if options.json:
        print_json({"traces": shown})
    return PASS

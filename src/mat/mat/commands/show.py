"""`mat show FILE`: show a counterexample and all its steps."""

from __future__ import annotations

import argparse

from mat.commands.shared import PASS, print_json, replay_of, width


def show(options: argparse.Namespace) -> int:
    from mat.evidence import replay_file
    from mat.report.terminal import failure_section, steps_table

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

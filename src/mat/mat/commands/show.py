"""`mat show FILE`: a counterexample and all its steps."""

from __future__ import annotations

import argparse

from mat.commands.shared import PASS, print_json


def show(options: argparse.Namespace) -> int:
    from mat.evidence import artifact
    from mat.report.terminal import failure_section, steps_table

    replay = artifact.read(options.file)
    run = replay.counterexample.run
    if options.json:
        print_json(artifact.data_of(replay))
        return PASS
    print(failure_section(replay.counterexample, replay.certificate, replay_path=str(options.file), item=replay.item))
    print(steps_table(run, run.records, title=f"All {len(run.records)} steps; the run ended: {run.termination}"))
    return PASS

"""`mat show FILE`: step through a counterexample in a terminal, or print it, or print the steps of recorded traces."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mat.commands.shared import PASS, check_files, print_json, replay_of, width
from mat.core.errors import MatError, plural, printable

if TYPE_CHECKING:
    from mat.core.run import Run
    from mat.evidence.replay_file import Replay
    from mat.report.viewer import LineTone


def show(options: argparse.Namespace) -> int:
    from mat.core.run import ending_text
    from mat.evidence import jsonl, replay_file
    from mat.monitor.localize import region
    from mat.report.terminal import failure_section, steps_table
    from mat.report.words import WIDTH, wrap

    check_files(options.file, fix="name a replay file in mat_replays/, or a recorded trace (.mat.jsonl)")
    if not options.file.name.endswith(replay_file.SUFFIX) and jsonl.recognises(options.file):
        return _show_traces(options)
    if options.file.suffix == ".py":
        folder = options.file.parent / replay_file.FOLDER
        raise MatError(
            f"{options.file} is a Python file", why="mat show prints replay files and recorded traces",
            fix=f"name one of {folder}/*{replay_file.SUFFIX}", where=str(options.file),
        )  # fmt: skip
    replay = replay_of(options.file)
    run = replay.counterexample.run
    if options.json:
        print_json(replay_file.data_of(replay))
        return PASS
    if _is_interactive(options):
        return _view(replay, options)
    columns, around = width(), region(run.records, replay.counterexample.verdict)
    are_all = len(around) == len(run.records)
    project = replay_file.project_of(options.file, replay.item)
    is_elsewhere = project is not None and project != Path.cwd()
    section = failure_section(
        replay.counterexample, replay.certificate, item=replay.item, steps=around if are_all else (), width=columns,
        replay_path=os.path.relpath(options.file, project) if is_elsewhere else str(options.file),
        folder=str(project) if is_elsewhere else "",
    )  # fmt: skip
    print(section)
    if project is None:
        text = f"Its test {replay.item} is neither below this folder nor below one above the file; replay it in its project."
        print(f"{wrap(printable(text), hanging='  ', width=columns or WIDTH)}\n")
    title = f"All steps ({len(run.records)}); the run ended: {ending_text(run.termination)}"
    if are_all:
        print(wrap(f"{title}; the table above shows all of them", width=columns or WIDTH))
        return PASS
    print(steps_table(run, run.records, title=title, width=columns))
    return PASS


def _is_interactive(options: argparse.Namespace) -> bool:
    """Whether a person looks: both ends are terminals, and text was not asked for."""
    if options.plain or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _view(replay: Replay, options: argparse.Namespace) -> int:
    """Step through the run until the person quits. A run from a file has no places of calls in the agent's code."""
    from rich.console import Console
    from rich.text import Text

    from mat.commands.keys import single_keys
    from mat.report.viewer import Viewer

    run = replay.counterexample.run
    viewer = Viewer(run, replay.counterexample.verdict, nominal=lambda: _nominal_run(run, options))
    console = Console(markup=False, emoji=False, highlight=False)
    with single_keys() as key, console.screen(hide_cursor=True) as screen:
        view = viewer.begin()
        while not view.done:
            columns, lines = console.size
            view = viewer.fitted(view, width=columns, height=lines)
            shown = Text(no_wrap=True, overflow="crop", end="")
            for line in viewer.screen(view, width=columns, height=lines)[:lines]:
                shown.append(line.text + "\n", style=_STYLES[line.tone])
            shown.right_crop(1)
            screen.update(shown)
            view = viewer.pressed(view, key(), height=lines)
    return PASS


_STYLES: Final[dict[LineTone, str]] = {
    "": "", "title": "bold", "bad": "bold red", "fault": "yellow", "dim": "dim", "chosen": "reverse", "gone": "red",
    "added": "green",
}  # fmt: skip


def _nominal_run(run: Run, options: argparse.Namespace) -> Run | None:
    """The nominal run of the same task, configuration and seed, from the log that pytest --mat-store kept; None without it."""
    from mat.commands.sources import nominal_runs_of
    from mat.evidence import runlog

    above = options.file.absolute().parents
    folders = [options.store] if options.store is not None else [folder / runlog.FOLDER for folder in (Path(), *above)]
    log = next((folder for folder in folders if folder.is_dir()), None)
    return None if log is None else next(nominal_runs_of(log, {run.spec.base}), None)


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

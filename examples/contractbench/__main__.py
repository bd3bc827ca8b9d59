"""python -m examples.contractbench: plays tasks with agents and reports the results."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from mat.core.errors import MatError, did_you_mean
from mat.report.files import check_path, write, write_bytes

from . import levers, results
from .task import ids


def main(given: Sequence[str] | None = None) -> None:
    parser = _parser()
    options = parser.parse_args(given)
    tasks, agents = _names(options.tasks), _names(options.agents)
    problems = _unknown("task", tasks, ids()) + _unknown(
        "agent", [name for name in agents if ":" not in name], results.SCRIPTED
    )
    for name in agents:
        if ":" in name:
            problems += _refused(results.imported, name)
    counts = {"--seeds": options.seeds, "--jobs": options.jobs}
    problems += [f"{name} {count} is not at least 1" for name, count in counts.items() if count < 1]
    for path, suffix in ((options.json, ".json"), (options.html, ".html")):
        if path is not None:
            problems += [f"{path} does not end in {suffix}"] if path.suffix != suffix else _refused(check_path, path)
    if problems:
        parser.error("".join(f"\n  {problem}" for problem in problems))
    _run(options, tasks, agents)


def _run(options: argparse.Namespace, tasks: Sequence[str], agents: Sequence[str]) -> None:
    episodes = results.suite(tasks, agents, seeds=options.seeds, jobs=options.jobs)
    print(results.text(episodes, failures=options.failures))
    if options.twice:
        again = results.suite(tasks, agents, seeds=options.seeds, jobs=options.jobs)
        equal = sum(one.result.trace_hash == other.result.trace_hash for one, other in zip(episodes, again, strict=True))
        print(f"Played again: {equal} of {len(episodes)} trace hashes are equal.")
    data: dict[str, Any] = results.as_data(episodes)
    if options.levers:
        found = levers.measured(episodes, {name: name for name in agents}, jobs=options.jobs)
        print(f"\n{levers.text(found)}")
        data["levers"] = levers.as_data(found)
    if options.json is not None:
        write_bytes(options.json, results.to_json(data).encode())
    if options.html is not None:
        write(results.document(episodes), options.html)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.contractbench",
        description="33 tasks whose replies must be used in time and byte by byte: played, labelled, counted.",
    )  # fmt: skip
    parser.add_argument("--tasks", nargs="+", metavar="TASK", default=[], help="which tasks (default: all)")
    parser.add_argument(
        "--agents", nargs="+", metavar="AGENT", default=list(results.SCRIPTED),
        help=f"which agents: {', '.join(results.SCRIPTED)} (default: these), or MODULE:FUNCTION for one of your own",
    )  # fmt: skip
    parser.add_argument("--seeds", type=int, metavar="N", default=10, help="instances of each task (default: 10)")
    parser.add_argument("--jobs", type=int, metavar="N", default=1, help="processes (default: 1)")
    parser.add_argument("--levers", action="store_true", help="play everything again with each lever, and failures with notes")
    parser.add_argument("--failures", action="store_true", help="list what failed, task by task")
    parser.add_argument("--twice", action="store_true", help="play everything twice and compare the trace hashes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result record of every episode")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with the heat map")
    return parser


def _names(given: Iterable[str]) -> list[str]:
    """The names in order without duplicates; an argument may hold several, separated by commas."""
    return list(dict.fromkeys(part for name in given for part in name.split(",") if part))


def _unknown(kind: str, names: Iterable[str], known: Sequence[str]) -> list[str]:
    return [
        f"unknown {kind}: {name!r}{did_you_mean(name, known) or '; choose from ' + ', '.join(known)}"
        for name in names
        if name not in known
    ]


def _refused(check: Callable[[Any], object], given: object) -> list[str]:
    """The reason why something cannot be used, in one line; empty if it can."""
    try:
        check(given)
    except (LookupError, MatError) as error:
        return [" ".join(str(error.args[0]).split())]
    return []


if __name__ == "__main__":
    main()

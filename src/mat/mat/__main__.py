"""The command line: `mat show | replay | diff | check | doctor`. Exit codes: 0 pass, 1 violation or difference, 2 usage."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from mat.core.errors import MatError, SpecError

PASS: Final = 0
VIOLATION: Final = 1
USAGE: Final = 2
_PARTS: Final = (
    "pytest-mat", "pytest", "pluggy", "pydantic", "hypothesis", "opentelemetry-sdk", "scipy", "duckdb", "rich", "time-machine",
    "pytest-asyncio", "anyio", "pytest-xdist", "pytest-timeout",
)  # fmt: skip
_PACKAGES: Final = ("mat", "mat_contracts", "mat_faults", "mat_search", "pytest_mat")
_STORED: Final = "to judge stored traces, add --contracts module:name"
_CHECK: Final = "validate replay files and list every problem; with --contracts, judge stored traces"
_CHECK_EXAMPLES: Final = """mat check tests/mat_replays/*.mat.json
         mat check runs.mat.jsonl --contracts shop.contracts:refunds_are_verified
         mat check spans.jsonl.gz --format otlp --contracts shop.contracts:ALL --json

exit codes: 0 no hard contract is violated, 1 one is, 2 a wrong option or something that cannot be read"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. A mistake is a message on stderr and exit code 2, never a stack trace."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a character must not end the command
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        code = command(options)
        sys.stdout.flush()
    except MatError as error:
        return _refuse(options, error)
    except BrokenPipeError:  # the reader has seen enough, as in `mat show FILE | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PASS
    except KeyboardInterrupt:
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mat",
        description="Look at, check and run the replay files that pytest --mat-stress leaves in mat_replays/; judge traces.",
        epilog="example: mat show tests/mat_replays/test_refund-3f2a91.mat.json",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str, example: str) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name, help=text, description=text, epilog=f"example: {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        made.add_argument("--json", action="store_true", help="print one JSON value instead of text")
        made.set_defaults(command=command)
        return made

    file = "tests/mat_replays/test_refund-3f2a91.mat.json"
    show = add("show", _show, "show a counterexample and all its steps", f"mat show {file}")
    show.add_argument("file", type=Path, metavar="FILE")
    replay = add("replay", _replay, "run a counterexample again, strictly, under pytest", f"mat replay {file} -- -x --pdb")
    replay.add_argument("file", type=Path, metavar="FILE")
    replay.add_argument("rest", nargs="*", metavar="PYTEST_ARGUMENT", help="passed to pytest; put -- before the first option")
    diff = add("diff", _diff, "name the first step in which two replay files differ", f"mat diff old.mat.json {file}")
    diff.add_argument("one", type=Path, metavar="A")
    diff.add_argument("other", type=Path, metavar="B")
    check = add("check", _check, _CHECK, _CHECK_EXAMPLES)
    check.add_argument("files", type=Path, nargs="+", metavar="FILE", help="replay files; with --contracts, stored traces too")
    check.add_argument(
        "--contracts", action="append", default=[], metavar="MODULE:NAME",
        help="judge by these: a contract, a list of contracts, or a function that returns them; may be repeated",
    )  # fmt: skip
    check.add_argument("--format", metavar="NAME", help="the format of the files, where the first row does not tell")
    check.add_argument(
        "--limit", type=_count, default=20, metavar="N",
        help="violations and open obligations to show; JSON has all (default 20)",
    )  # fmt: skip
    add("doctor", _doctor, "report versions, plugins and operators, and what is wrong with them", "mat doctor")
    return parser


def _refuse(options: argparse.Namespace, error: MatError) -> int:
    if options.json:
        _print_json({"error": {"what": error.what, "why": error.why, "fix": error.fix, "where": error.where}})
    _complain(error)
    return USAGE


def _complain(error: MatError) -> None:
    """On stderr, and nothing in it that a terminal would obey: it may quote a file from outside."""
    from mat.evidence.artifact import printable

    print("mat:", "\n".join(printable(line) for line in str(error).split("\n")), file=sys.stderr)


def _print_json(data: Any) -> None:
    print(json.dumps(data, ensure_ascii=True, indent=1))


def _show(options: argparse.Namespace) -> int:
    from mat.evidence import artifact
    from mat.report.terminal import failure_section, steps_table

    replay = artifact.read(options.file)
    run = replay.counterexample.run
    if options.json:
        _print_json(artifact.data_of(replay))
        return PASS
    print(failure_section(replay.counterexample, replay.certificate, replay_path=str(options.file), item=replay.item))
    print(steps_table(run, run.records, title=f"All {len(run.records)} steps; the run ended: {run.termination}"))
    return PASS


def _replay(options: argparse.Namespace) -> int:
    from mat.evidence import artifact

    artifact.read(options.file)  # says what is wrong with the file before pytest starts
    command = [sys.executable, "-m", "pytest", "--mat-replay", str(options.file), *options.rest]
    done = subprocess.run(command, check=False, stdout=sys.stderr if options.json else None)
    code = done.returncode if done.returncode in (PASS, VIOLATION) else USAGE
    if options.json:
        _print_json({"file": str(options.file), "exit": code, "pytest_exit": done.returncode})
    return code


def _diff(options: argparse.Namespace) -> int:
    from mat.evidence import artifact
    from mat.evidence.replay import first_difference
    from mat.report.terminal import difference_text

    one, other = (artifact.read(path).counterexample.run for path in (options.one, options.other))
    found = first_difference(one, other)
    if options.json:
        names = ("step", "aspect", "recorded", "again", "cause")
        _print_json({"equal": found is None, "difference": found and {name: getattr(found, name) for name in names}})
    elif found is None:
        print(f"the same run: {len(one.records)} equal steps, head {one.head[:12]}")
    else:
        print(difference_text(found, one, other, names=(str(options.one), str(options.other))))
    return PASS if found is None else VIOLATION


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a count")
    return int(text)


def _check(options: argparse.Namespace) -> int:
    from mat.evidence import artifact

    if options.contracts:
        return _judge(options)
    if options.format:
        raise SpecError(
            what="--format without --contracts", why="files are judged by contracts", fix="add --contracts module:name"
        )
    results: list[dict[str, Any]] = []
    for path in options.files:
        try:
            replay = artifact.read(path)
        except MatError as error:
            fix = error.fix if path.name.endswith(artifact.SUFFIX) else f"{error.fix}; {_STORED}".removeprefix("; ")
            results.append({"file": str(path), "ok": False, "problem": error.what, "fix": fix})
        else:
            results.append(
                {"file": str(path), "ok": True, "item": replay.item, "contract": replay.counterexample.verdict.contract}
            )
    broken = [result for result in results if not result["ok"]]
    if options.json:
        _print_json({"ok": not broken, "files": results})
    else:
        for result in results:
            print(f"{result['file']}: " + ("ok" if result["ok"] else f"{result['problem']}\n  fix: {result['fix']}"))
    return USAGE if broken else PASS


def _judge(options: argparse.Namespace) -> int:
    """Judge stored traces. What cannot be read ends its file, not the command; what was judged before it counts."""
    from mat.adapters.checking import check_format, contracts_from, stored_traces
    from mat.core.codec import FORMAT
    from mat.monitor.judge import Judge
    from mat.report.check import Tally, check_text, judge_trace, report_data, trace_data

    contracts = contracts_from(options.contracts)
    Judge(contracts)  # says what is wrong with them before a file is read
    check_format(options.format)
    tally, listed = Tally(contracts, limit=options.limit), 0
    if options.json:
        print(f'{{"mat": {FORMAT}, "traces": [', end="")
    for path in options.files:
        try:
            for stored in stored_traces(path, options.format):
                judged = judge_trace(stored, contracts)
                tally.add(judged)
                if options.json:
                    print("," if listed else "", json.dumps(trace_data(judged), ensure_ascii=True), sep="\n", end="")
                    listed += 1
        except MatError as error:
            tally.problem(error)
            _complain(error)
    report = tally.report()
    if options.json:
        print("\n]," + json.dumps(report_data(report), ensure_ascii=True, indent=1)[1:])
    else:
        print(check_text(report), end="")
    return USAGE if report.problems else VIOLATION if report.failing else PASS


def _doctor(options: argparse.Namespace) -> int:
    found = _installation()
    if options.json:
        _print_json(found)
    else:
        print(f"python {found['python']}")
        for name, version in found["versions"].items():
            print(f"{name} {version or 'not installed'}")
        print(f"pytest plugins: {', '.join(found['plugins']) or 'none'}")
        print(f"operators ({len(found['operators'])}): {', '.join(found['operators']) or 'none'}")
        for problem in found["problems"]:
            print(f"problem: {problem}")
    return USAGE if found["problems"] else PASS


def _installation() -> dict[str, Any]:
    """What is installed, and every problem found with it."""
    import platform
    from importlib import metadata

    import mat

    problems = _foreign_packages()
    versions: dict[str, str | None] = {}
    for name in _PARTS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    plugins = sorted(entry.name for entry in metadata.entry_points(group="pytest11"))
    if "mat" not in plugins:
        problems.append("pytest does not know the plugin: no entry point `mat`; install pytest-mat in this environment")
    operators: list[str] = []
    try:
        from mat.harness.execute import installed_operators

        operators = [item.id for item in installed_operators()]
        if not operators:
            problems.append("no operators are registered: nothing could be stressed")
    except Exception as error:  # a foreign distribution's operators may fail in any way
        problems.append(f"the operators of an installed distribution cannot be loaded: {type(error).__name__}: {error}")
    return {
        "mat": mat.__version__, "python": platform.python_version(), "platform": platform.platform(), "versions": versions,
        "plugins": plugins, "operators": operators, "problems": problems,
    }  # fmt: skip


def _foreign_packages() -> list[str]:
    """Packages of ours that another distribution shadows; `mat` is also the name of an unrelated one."""
    from importlib.util import find_spec

    problems = []
    for name in _PACKAGES:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            spec = None
        if spec is None or spec.origin is None:
            problems.append(f"the package {name} is missing; reinstall pytest-mat")
        elif not Path(spec.origin).with_name("py.typed").exists():
            problems.append(f"the package {name} at {spec.origin} is not ours; uninstall the distribution that brings it")
    return problems


if __name__ == "__main__":
    sys.exit(main())

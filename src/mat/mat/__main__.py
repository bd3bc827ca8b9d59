"""The command line: `mat init | show | replay | report | compare | diff | suite | gate | check | query | ...`.

Exit codes: 0 pass, 1 violation or difference, 2 usage.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Final

from mat.commands import mcp_proxy
from mat.commands.shared import PASS, UNDER, USAGE, Add, complain, count, error_data, one_of, print_json
from mat.core.errors import MatError, did_you_mean
from mat.core.proxied import IN_PROXY

_SHOW: Final = "step through a counterexample in a terminal, or print its steps; or print the steps of recorded traces"
_CHECK: Final = "validate replay files and recorded traces and list every problem; with --contracts, judge recorded traces"
_CHECK_EXAMPLES: Final = """mat check tests/mat_replays/*.mat.json
         mat check runs.mat.jsonl --contracts shop.contracts:refunds_capped
         mat check spans.jsonl.gz --format otlp --contracts shop.contracts:ALL

exit codes: 0 no hard contract is violated, 1 a hard contract is violated, 2 a usage error or an unreadable file"""
_REPLAY_EXAMPLES: Final = """mat replay {file} -- -x --pdb
         mat replay {file} --as-test

exit codes: 0 the test passes (--as-test: the test is written), 1 a violation, 2 a usage error or an unusable file"""
_DIFF: Final = "show the first step at which two replay files differ, or the regressions between two reports"
_DIFF_EXAMPLES: Final = """mat diff old.mat.json {file}
         mat diff old.json new.json --under faults

write a report with pytest --mat-report FILE.json
exit codes: 0 no difference or no regression, 1 a difference or a regression, 2 files that cannot be compared"""
_SUITE: Final = "select the fewest replay files that cover all hard contracts and failure signatures, and some passing tests"
_SUITE_EXAMPLES: Final = """mat suite
         mat suite tests --report report.json --passes 2 --write suite.txt
         pytest @suite.txt
         pytest $(mat suite --list)

exit codes: 0 everything is covered, 1 a hard contract of the report has no replay, 2 a usage error or an unreadable file"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. An error is a message on stderr and exit code 2, never a traceback."""
    for stream in (sys.stdout, sys.stderr):  # a character that the terminal cannot encode must not end the command
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    parser = _parser_of_proxy() if IN_PROXY and arguments is None else parser_of_commands()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        return _first_lines()
    options = _parse(parser, given)
    try:
        name = f"{options.name}_" if iskeyword(options.name) else options.name.replace("-", "_")
        command: Callable[[argparse.Namespace], int] = getattr(import_module(f"mat.commands.{name}"), name)
        code = command(options)
        sys.stdout.flush()
    except MatError as error:
        return _refuse(options, error)
    except BrokenPipeError:  # the reader has stopped, as in `mat show FILE | head`
        return _discard_output(PASS)
    except OSError as error:  # an invalid file name, a folder without permission, a full disk
        return _refuse(options, _system_error(error))
    except KeyboardInterrupt:
        return 130
    return code


def _first_lines() -> int:
    from mat.commands.start import start

    print(start(Path()))
    return PASS


def _parse(parser: argparse.ArgumentParser, given: list[str]) -> argparse.Namespace:
    """The options of a command. An unknown command or option exits with a suggestion."""
    commands = _commands(parser)
    name = given[0]
    if name.startswith("-") and name not in ("-h", "--help", "--version"):
        parser.error(f"{name} must follow the command: mat COMMAND {name}")
    if name not in commands and not name.startswith("-"):
        suggestion = did_you_mean(name, [*commands]) or f"; commands are {', '.join(commands)}"
        parser.error(f"unknown command {name!r}{suggestion}")
    options, rest = parser.parse_known_args(given)
    if rest:
        commands[name].error(_unknown_arguments(commands[name], rest))
    return options


def _unknown_arguments(command: argparse.ArgumentParser, rest: Sequence[str]) -> str:
    """The error message for arguments that a command does not know."""
    unknown = [part.partition("=")[0] for part in rest if part.startswith("-") and part != "--"]
    known = [spelling for action in command._actions for spelling in action.option_strings]
    message = "; ".join(f"unknown option {name}{did_you_mean(name, known)}" for name in unknown)
    if not message:
        return f"too many arguments: {' '.join(rest)}"
    passes_on = any(action.dest == "rest" for action in command._actions)
    return f"{message}; put -- before the first option for pytest" if passes_on else message


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


def _system_error(error: OSError) -> MatError:
    name = str(error.filename) if error.filename is not None else ""
    return MatError(
        f"cannot use {name}: {error.strerror}" if name else str(error), why="the operating system refused access",
        fix="check the path and its permissions", where=name,
    )  # fmt: skip


def _discard_output(code: int) -> int:
    """Redirect stdout to the null device, because nobody reads it any more and Python flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _refuse(options: argparse.Namespace, error: MatError) -> int:
    code = USAGE
    if options.json:
        try:
            print_json({"error": error_data(error)})
            sys.stdout.flush()
        except BrokenPipeError:
            code = _discard_output(USAGE)
    complain(error)
    return code


def parser_of_commands() -> argparse.ArgumentParser:
    """The parser of `mat`. Each command is a function in the module of the same name in `mat.commands`."""
    from importlib import metadata

    from mat.commands import accept, compare, completion, doctor, export, gate, import_, init, judge, query, report

    parser = argparse.ArgumentParser(
        prog="mat",
        description="Show, check and run the replay files that pytest --mat-stress writes to mat_replays/; judge recorded "
        "traces; compare reports; gate changes against a baseline; query the store of recorded runs.",
        epilog="example: mat show tests/mat_replays/test_refund-3f2a91.mat.json",
    )
    parser.add_argument("--version", action="version", version=f"mat {metadata.version('pytest-mat')}")
    add = _adds_commands(parser)
    file = "tests/mat_replays/test_refund-3f2a91.mat.json"
    init.add_parser(add)
    show = add("show", _SHOW, f"mat show {file}\n         mat show session.mat.jsonl")
    show.add_argument("file", type=Path, metavar="FILE", help="a replay file, or recorded traces (.mat.jsonl)")
    show.add_argument("--plain", action="store_true", help="print text instead of stepping through, even in a terminal")
    show.add_argument(
        "--store", type=Path, metavar="FOLDER",
        help="compare with the nominal run in this store (default: the .mat/store here or above the file)",
    )  # fmt: skip
    _add_replay(
        add("replay", "run a replay file again and compare every step with its recording", _REPLAY_EXAMPLES.format(file=file))
    )
    _add_diff(add("diff", _DIFF, _DIFF_EXAMPLES.format(file=file)))
    _add_suite(add("suite", _SUITE, _SUITE_EXAMPLES))
    _add_check(add("check", _CHECK, _CHECK_EXAMPLES))
    accept.add_parser(add)
    gate.add_parser(add)
    doctor.add_parser(add)
    query.add_parser(add)
    import_.add_parser(add)
    export.add_parser(add)
    report.add_parser(add)
    compare.add_parser(add)
    judge.add_parser(add)
    mcp_proxy.add_parser(add)
    completion.add_parser(add, parser)
    return parser


def _parser_of_proxy() -> argparse.ArgumentParser:
    """The parser of `mat mcp-proxy` alone, without the other commands, which take time to load."""
    parser = argparse.ArgumentParser(prog="mat")
    mcp_proxy.add_parser(_adds_commands(parser))
    return parser


def _adds_commands(parser: argparse.ArgumentParser) -> Add:
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(name: str, text: str, example: str) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name, help=text, description=text, epilog=f"example: {example}", formatter_class=_Help,
        )  # fmt: skip
        made.add_argument("--json", action="store_true", help="print one JSON value instead of text")
        made.set_defaults(name=name)
        return made

    return add


class _Help(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of an epilog. Commands are not wrapped, so that they can be copied; prose is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        hanging = "  " if text.startswith("example: ") else ""
        return "\n".join(_fold(line, width, hanging) for line in text.splitlines())


def _fold(line: str, width: int, hanging: str) -> str:
    text = line.lstrip()
    if text.removeprefix("example: ").startswith(("mat ", "pytest ")):
        return line
    return textwrap.fill(line, width, subsequent_indent=line[: -len(text)] + hanging, break_on_hyphens=False) if text else ""


def _add_replay(replay: argparse.ArgumentParser) -> None:
    replay.add_argument("file", type=Path, metavar="FILE", help="a replay file")
    replay.add_argument(
        "rest", nargs="*", default=[], metavar="PYTEST_ARGUMENT", help="passed to pytest; put -- before the first option"
    )
    replay.add_argument(
        "--as-test", action="store_true", help="write the counterexample as a small test file next to the original test"
    )
    replay.add_argument(
        "--out", type=Path, metavar="FILE", help="with --as-test: the file to write (- for stdout; default test_..._3f2a91.py)"
    )
    replay.add_argument(
        "--embed", action="store_true", help="with --as-test: include the recorded replies, so the test needs no other file"
    )


def _add_diff(diff: argparse.ArgumentParser) -> None:
    diff.add_argument("one", type=Path, metavar="A", help="a replay file, or the report of the old configuration")
    diff.add_argument("other", type=Path, metavar="B", help="another replay file, or the report of the new configuration")
    diff.add_argument(
        "--under", type=one_of(*UNDER), choices=UNDER, default="nominal",
        help="for reports, the runs to compare: nominal (default), or faults: replays and searched schedules",
    )  # fmt: skip


def _add_suite(suite: argparse.ArgumentParser) -> None:
    suite.add_argument(
        "paths", type=Path, nargs="*", metavar="PATH", help="replay files, or folders to search for them (default: this folder)"
    )
    suite.add_argument("--report", type=Path, metavar="REPORT.json", help="add passing tests of each category from this report")
    suite.add_argument("--passes", type=count, default=1, metavar="N", help="passing tests to add per category (default 1)")
    suite.add_argument(
        "--representative", action="store_true",
        help="cover the hard contracts and one failure per interface class and action kind, not every failure signature",
    )  # fmt: skip
    suite.add_argument(
        "--exact-limit",
        type=count,
        default=2_000,
        metavar="N",
        help="with more than N replay files, select greedily (default 2000)",
    )
    written = suite.add_mutually_exclusive_group()
    written.add_argument("--list", action="store_true", help="print only the node ids for pytest, one per line")
    written.add_argument("--write", type=Path, metavar="FILE", help="write the node ids to FILE, for pytest @FILE")


def _add_check(check: argparse.ArgumentParser) -> None:
    check.add_argument("files", type=Path, nargs="+", metavar="FILE", help="replay files, or recorded traces")
    check.add_argument(
        "--contracts", action="append", default=[], metavar="MODULE:NAME",
        help="judge by these contracts: the name of a contract, of a list, or of a function that returns them; may be repeated",
    )  # fmt: skip
    check.add_argument(
        "--format", metavar="NAME",
        help="file format, if it cannot be detected from the first row: otlp, inspect, chat, mat, replay, or MODULE:NAME of "
        "your own importer",
    )  # fmt: skip
    check.add_argument(
        "--limit", type=count, default=20, metavar="N",
        help="show at most N violations and N open obligations; --json shows all (default 20)",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

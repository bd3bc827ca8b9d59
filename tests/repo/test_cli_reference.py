"""docs/cli.md is generated from the parser; run this file to regenerate it."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from mat.__main__ import parser_of_commands

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
HEAD = """# The mat command

Generated from the command's own help (`mat COMMAND --help`). Every command takes `--json` and then prints one JSON value. Exit
codes: 0 pass, 1 a violation or a difference, 2 a usage error or an unreadable file. An error is a message on stderr that
states what, why, fix and where, never a traceback. `mat completion SHELL` prints a script for shell completion.

Text is as wide as `COLUMNS` or else the terminal, 80 columns without either, as in pytest. Names of tests and paths are never
wrapped, so that they can be copied. `mat query` does not cut rows that go to a pipe unless `COLUMNS` is set. Text files
(`--out FILE.txt`) are always 120 columns wide.
"""


def page() -> str:
    (commands,) = (item for item in parser_of_commands()._actions if isinstance(item, argparse._SubParsersAction))
    return HEAD + "".join(f"\n## mat {name}\n\n{_said(name, command)}" for name, command in commands.choices.items())


def _said(name: str, command: argparse.ArgumentParser) -> str:
    rows = [
        f"| `{_spelled(item)}` | {_cell(item)} |" for item in command._actions if not isinstance(item, argparse._HelpAction)
    ]
    table = "| argument | what for |\n|---|---|\n" + "\n".join(rows) + "\n"
    examples = "\n".join(line.strip() for line in (command.epilog or "").removeprefix("example: ").splitlines())
    first = (command.description or "")[:1].upper() + (command.description or "")[1:]
    return f"{first}.\n\n{table}\n```text\n{examples}\n```\n"


def _spelled(item: argparse.Action) -> str:
    if item.choices is not None and item.metavar is None:
        name = "{" + ",".join(map(str, item.choices)) + "}"
    else:
        name = str(item.metavar or item.dest.upper())
    if not item.option_strings:
        return name
    return item.option_strings[-1] if item.nargs == 0 else f"{item.option_strings[-1]} {name}"


def _cell(item: argparse.Action) -> str:
    said = (item.help or "").replace("|", "\\|")
    return said % {"default": item.default} if "%(" in said else said


def test_the_page_of_the_command_is_its_help() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize(
    "name",
    ["show", "check", "replay", "report", "compare", "judge", "diff", "suite", "gate", "query", "import", "export", "doctor"],
)
def test_every_command_has_help_with_an_example_and_takes_json(name: str) -> None:
    (commands,) = (item for item in parser_of_commands()._actions if isinstance(item, argparse._SubParsersAction))
    command = commands.choices[name]
    assert command.description
    assert f"mat {name}" in (command.epilog or "")
    assert "--json" in command.format_help()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""docs/cli.md is made from the parser: run this file to write it anew."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from mat.__main__ import parser_of_commands

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
HEAD = """# The mat command

Made from the command's own help (`mat COMMAND --help`). Every command takes `--json` and then prints one JSON value. Exit
codes: 0 pass, 1 a violation or a difference, 2 a wrong option or something that cannot be read. A mistake is a message on
stderr that says what, why, how to mend it and where, never a stack trace. `mat completion SHELL` prints a script that
completes all of this.

Text fits the width it is told: `COLUMNS`, else the terminal's, else 80 columns, as pytest has it. Names of tests and paths
stay whole, so that they can be copied. Rows of `mat query` that go to a pipe are whole unless `COLUMNS` is set. Text files
(`--out FILE.txt`) are 120 columns wide, whoever writes them.
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
    "name", ["show", "check", "replay", "report", "diff", "suite", "gate", "query", "import", "export", "doctor"]
)
def test_every_command_has_help_with_an_example_and_takes_json(name: str) -> None:
    (commands,) = (item for item in parser_of_commands()._actions if isinstance(item, argparse._SubParsersAction))
    command = commands.choices[name]
    assert command.description
    assert f"mat {name}" in (command.epilog or "")
    assert "--json" in command.format_help()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""The files that `mat init` writes: a conftest, a first test with its contract, and a CI workflow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mat.commands.project import CLIENTS, FoundTool, Project

LISTED: Final = 20
"""The most tools that a conftest names."""
_TEST: Final = '''"""A first test under contracts: replace the stand-ins by your own agent and its tools.

    pytest                   runs the agent once, and judges its contract
    pytest --mat-stress      searches for the cheapest disturbance that breaks the contract
"""

import mat
import pytest
from mat_contracts import no_duplicate_effect


@mat.tool(effect="write", impact="high")
def refund(order, amount):
    """Stands in for a tool of your agent. What a tool does to the world is its effect: none, read or write."""
    return {"order": order, "refunded": amount}


def handle(request):
    """Stands in for your agent. To see a contract broken, let it try again after a TimeoutError."""
    with mat.agent("clerk"):
        try:
            refund("A17", amount=30)
        except (TimeoutError, ConnectionError):
            return "I do not know whether the refund was made; a person will look at it."
    return "refunded"


@pytest.fixture
def refunded_once():
    return no_duplicate_effect("refund", key="order")


@pytest.mark.mat(budget=4)
def test_agent(mat_run, refunded_once):
    assert handle("Please refund order A17")
'''
_WORKFLOW: Final = """name: agents
on:
  push:
  pull_request:
  schedule: [{{cron: "17 2 * * *"}}]
jobs:
  tests:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {{python-version: "3.12"}}
      - run: {install}
      - run: pytest
  stress:
    if: github.event_name == 'schedule'
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {{python-version: "3.12"}}
      - run: {install_with_report}
      - run: pytest --mat-stress --mat-timeout 300 --mat-report report.html
      - uses: actions/upload-artifact@v4
        if: always()
        with:
          name: mat
          path: |
            report.html
            **/mat_replays/*.mat.json
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFile:
    """A file to write, relative to the project, and what it is for."""

    path: Path
    what: str
    text: str


SAMPLE: Final = "test_mat_agent.py"
"""The name of the first test."""


def first_files(project: Project) -> tuple[FirstFile, ...]:
    settings = FirstFile(
        path=Path("pytest.ini"), what="tests import the code of this folder", text="[pytest]\npythonpath = .\n"
    )
    return (
        FirstFile(path=project.tests / "conftest.py", what="what every test of the agent needs", text=conftest(project)),
        FirstFile(path=project.tests / SAMPLE, what="a first test with a contract", text=_TEST),
        FirstFile(
            path=Path(".github", "workflows", "mat.yml"), what="CI: tests on each push, a search each night",
            text=_WORKFLOW.format(install=install(project), install_with_report=install(project, "report")),
        ),
        *([settings] if project.at_top and not project.configuration else []),
    )  # fmt: skip


def install(project: Project, *extras: str) -> str:
    """The command that installs the project, what its code needs besides, pytest-mat, and the extras of its frameworks."""
    names = sorted({*extras, *(each.extra for each in project.attached if each.extra)})
    package = f'"pytest-mat[{",".join(names)}]"' if names else "pytest-mat"
    return " ".join(filter(None, ("pip install", project.installs, *project.needs, package)))


def conftest(project: Project) -> str:
    """A conftest that attaches to what the project imports, and names the tools that no framework calls in comments."""
    usable = [each.name for each in project.attached if each.installed]
    missing = [each for each in project.attached if not each.installed]
    framework = next((each.name for each in project.attached if each.name not in CLIENTS), "")
    attached = tuple(tool for tool in project.tools if tool.called and framework)
    own = tuple(tool for tool in project.tools if tool not in attached and tool.why != "@mat.tool")
    parts = ['"""What every test of the agent needs; made by `mat init`."""\n']
    if usable:
        parts.append("import pytest\n\n")
        parts.append(f'''@pytest.fixture
def mat_attach():
    """The frameworks whose calls are steps of the run."""
{_attached_text(usable, framework, attached)}
''')
    for each in missing:
        needed = f'pip install "pytest-mat[{each.extra}]"' if each.extra else f"pip install {each.name}"
        parts.append(
            f'# The code imports {each.name}, which is not installed here: {needed}\n# and name "{each.name}" in mat_attach.\n'
        )
    if own:
        parts.append(_tools_text(own))
    return "\n".join(parts)


def _attached_text(names: list[str], framework: str, tools: tuple[FoundTool, ...]) -> str:
    """What `mat_attach` returns: names, and the effects of the framework's tools, which nothing else says."""
    if not tools or framework not in names:
        return f"    return {json.dumps(names)}"
    others = [f'        "{name}": {{}},' for name in names if name != framework]
    effects = [f'                "{tool.called}": "{tool.effect}",' for tool in tools[:LISTED]]
    guessed = "            # guessed from the names: check them; a tool that is not named counts as a write"
    first = ["    return {", f'        "{framework}": {{', guessed, '            "effects": {']
    return "\n".join([*first, *effects, "            },", "        },", *others, "    }"])


def _tools_text(tools: tuple[FoundTool, ...]) -> str:
    """Tools that no framework calls: lines to uncomment, because naming one imports its module."""
    lines = [
        "# These functions look like tools. If no framework calls them, make each a step of the run:",
        "# write `import mat` above, and uncomment. Check each effect: it is guessed from the name.",
        "# What keeps the functions themselves, such as TOOLS = {...}, calls them unseen: there, decorate them in the source.",
        *(_patch_line(tool) for tool in tools[:LISTED]),
    ]
    if len(tools) > LISTED:
        lines.append(f"# and {len(tools) - LISTED} more: mat init --dry-run --json lists them")
    return "\n".join(lines) + "\n"


def _patch_line(tool: FoundTool) -> str:
    options = f'effect="{tool.effect}"' + (f", exclude={json.dumps(list(tool.exclude))}" if tool.exclude else "")
    if tool.retried:
        return f"# {tool.name}: write @mat.tool({options}) below its @{tool.retried}, so that each attempt is a step"
    return f'# mat.patch("{tool.name}", {options})'

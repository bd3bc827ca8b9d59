"""Files and commands of the README and the guides, executed as written; `...` in an expected output stands for anything."""

from __future__ import annotations

import re

import pytest
from tests.repo.guides import ROOT, blocks, run, typed, write

GUIDES = (
    "README.md",
    "docs/artifacts.md",
    "docs/budgets.md",
    "docs/contracts.md",
    "docs/evaluation.md",
    "docs/frameworks.md",
    "docs/gate.md",
    "docs/governance.md",
    "docs/instrument.md",
    "docs/live-models.md",
    "docs/opentelemetry.md",
    "docs/reference/adapters.md",
    "docs/reference/faults.md",
    "docs/reference/govern.md",
    "docs/reference/metrics.md",
    "docs/reference/resources.md",
    "docs/reference/search.md",
    "docs/regression.md",
    "docs/search.md",
    "docs/store.md",
    "docs/time.md",
    "docs/tutorial.md",
    "examples/resources/README.md",
    "examples/treasury/README.md",
)


def _pattern(expected: str) -> str:
    lines = [
        "(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n" for line in expected.splitlines()
    ]
    return "".join(lines)


@pytest.mark.parametrize(
    ("guide", "least"),
    [
        ("README.md", 2),
        ("docs/artifacts.md", 1),
        ("docs/budgets.md", 2),
        ("docs/contracts.md", 2),
        ("docs/evaluation.md", 3),
        ("docs/frameworks.md", 1),
        ("docs/gate.md", 2),
        ("docs/governance.md", 1),
        ("docs/instrument.md", 1),
        ("docs/live-models.md", 3),
        ("docs/opentelemetry.md", 1),
        ("docs/reference/adapters.md", 5),
        ("docs/reference/faults.md", 2),
        ("docs/reference/govern.md", 1),
        ("docs/reference/metrics.md", 1),
        ("docs/reference/resources.md", 2),
        ("docs/reference/search.md", 2),
        ("docs/regression.md", 4),
        ("docs/search.md", 1),
        ("docs/store.md", 2),
        ("docs/time.md", 1),
        ("docs/tutorial.md", 5),
        ("examples/treasury/README.md", 1),
    ],
)
def test_a_guide_has_blocks_to_run(guide, least):
    assert sum(block["file"] is None for block in blocks(guide)) >= least


@pytest.mark.full
@pytest.mark.parametrize("guide", GUIDES)
def test_every_block_runs_and_prints_what_it_says(guide, tmp_path):
    for block in blocks(guide):
        if block["file"]:
            write(block, tmp_path)
            continue
        command, expected = typed(block)
        done = run(command, ROOT if guide.startswith("examples/") else tmp_path, COLUMNS="80")
        assert re.fullmatch(_pattern(expected), done.stdout), f"{command}\n{done.stdout}\n{done.stderr}"

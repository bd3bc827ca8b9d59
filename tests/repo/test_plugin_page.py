"""The reference of the plugin lists every argument of the marker."""

from __future__ import annotations

import re
from pathlib import Path

from mat_study.settings import ARGUMENTS

PAGE = Path(__file__).parents[2] / "docs/reference/plugin.md"


def test_the_page_lists_the_arguments_of_the_marker_and_no_other():
    section = PAGE.read_text(encoding="utf-8").partition("## The marker")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == sorted(ARGUMENTS)

"""The reference lists every error that the code makes, and a new one without being asked."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PLANTED = """
class Refused(SpecError):
    pass


class SpecError(MatError):
    pass


def check(name, count):
    if count:
        raise Refused(what=f"{name!r} has {count + 1} parts", why="one | is allowed", fix="take " + "one")
    raise ValueError("not ours")
"""


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("errors_page", ROOT / "docs/hooks/errors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_an_error_is_listed_with_what_it_says_why_and_the_fix(hook: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "mat" / "govern").mkdir(parents=True)
    (tmp_path / "mat" / "errors.py").write_text("class MatError(Exception):\n    pass\n")
    (tmp_path / "mat" / "govern" / "policy.py").write_text(PLANTED)
    (found,) = hook.every_error([tmp_path])
    assert (found.kind, found.room) == ("Refused", "mat.govern")
    assert (found.what, found.why, found.fix) == ("<name> has <...> parts", "one | is allowed", "take one")
    assert (
        hook.page([found]).splitlines()[-1]
        == "| Refused | &lt;name&gt; has &lt;...&gt; parts | one \\| is allowed | take one |"
    )


def test_texts_that_a_function_collects_first_are_listed_as_alternatives(hook: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "mat" / "govern").mkdir(parents=True)
    (tmp_path / "mat" / "errors.py").write_text("class MatError(Exception):\n    pass\n")
    (tmp_path / "mat" / "govern" / "policy.py").write_text(
        "def check(names, known):\n"
        "    problems = [f'unknown name: {name}' for name in names]\n"
        "    problems.append('no name at all')\n"
        "    why = 'names are fixed' if known else 'nothing is known'\n"
        "    raise MatError(what='; '.join(problems), why=why, fix=fix_of(known))\n"
    )
    (found,) = hook.every_error([tmp_path])
    assert (found.what, found.why, found.fix) == (
        "unknown name: <name> / no name at all", "names are fixed / nothing is known", hook.LATER,
    )  # fmt: skip


@pytest.mark.full
def test_the_page_has_every_place_of_the_code_that_makes_an_error(hook: ModuleType) -> None:
    page = hook.on_page_markdown((ROOT / "docs/reference/errors.md").read_text(encoding="utf-8"))
    listed = set(re.findall(r"^\| (\w+) \| ", page, re.M)) - {"error"}
    text = "".join(path.read_text(encoding="utf-8") for name in hook.SOURCES for path in (ROOT / name).rglob("*.py"))
    made = set(re.findall(r"\braise (\w+)\(", text)) & set(
        re.findall(r"^class (\w+)\(\w*(?:MatError|SpecError|CodecError)\)", text, re.M)
    )
    assert made <= listed
    assert len(page.splitlines()) > 400
    assert hook.on_page_markdown("another page") == "another page"

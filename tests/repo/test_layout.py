"""What the repository promises about itself."""

from __future__ import annotations

import pkgutil
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import pytest

import mat

ROOT = Path(__file__).parents[2]


def _tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout, so the tracked files are unknown")
    return [ROOT / name for name in done.stdout.splitlines()]


def test_the_prescribed_top_level_is_there():
    for name in (
        "pyproject.toml",
        "src/mat",
        "src/contracts_lib",
        "src/faults",
        "src/search",
        "pytest_plugin",
        "tests",
        "examples",
    ):
        assert (ROOT / name).exists(), name


def test_no_subpackage_shares_a_name_with_something_mat_exports():
    subpackages = {module.name for module in pkgutil.iter_modules(mat.__path__)}
    assert subpackages & set(mat.__all__) == set()


def test_everything_in_all_exists():
    assert [name for name in mat.__all__ if not hasattr(mat, name)] == []


def test_architecture_stays_short_and_names_the_rooms_of_the_import_linter():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 60
    layers = re.search(r"layers = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL)
    assert layers is not None
    rooms = [line.strip(' ",') for line in layers[1].strip().splitlines()]
    assert [room for room in rooms if room not in text] == []


def test_every_page_of_the_docs_is_in_the_navigation_of_the_site():
    listed = set(re.findall(r"\S+\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}


def test_every_name_and_path_that_the_docs_name_exists():
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = {(path.name, name) for path in pages for name in _named(path.read_text(encoding="utf-8"))}
    assert len(named) > 300
    missing = {(page, name) for page, name in named if not _exists(name) and f'"{name}"' not in sources}
    assert missing == set()


def _named(text: str) -> Iterator[str]:
    """Names of ours and paths that stand alone in backquotes; ".damage" after `mat.core.artifact` is `mat.core.damage`."""
    for line in text.splitlines():
        folder = place = ""
        for said in re.findall(r"`([^`]+)`", line):
            if re.fullmatch(r"(?:mat|mat_[a-z]+|pytest_mat)(?:\.\w+)+", said) and said != "mat.NAME":
                folder = said.rpartition(".")[0]
                yield said
            elif re.fullmatch(r"\.[a-z_]+", said) and folder:
                yield folder + said
            elif re.fullmatch(r"(?:tests|examples|benchmarks|docs)/[\w/.-]+", said):
                place = said if "." not in said else said.rpartition("/")[0]
                yield said
            elif re.fullmatch(r"test_\w+\.py", said) and place.startswith("tests"):
                yield f"{place}/{said}"


def _exists(name: str) -> bool:
    if "/" in name:
        return (ROOT / name).exists()
    try:
        resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_no_file_names_a_place_outside_the_project():
    here = re.compile(r"/(?:root|home/\w+|work)/")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in _tracked()
        if path.suffix in (".py", ".md", ".toml", ".json", "") and path.is_file()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if here.search(line)
    ]
    assert found == []


def test_no_file_holds_a_merge_that_was_not_finished():
    mark = re.compile(rb"^(?:<{7}|>{7}) ", re.MULTILINE)
    assert [str(path.relative_to(ROOT)) for path in _tracked() if path.is_file() and mark.search(path.read_bytes())] == []


def test_every_python_package_ships_its_type_marker():
    roots = (
        "src/mat/mat",
        "src/contracts_lib/mat_contracts",
        "src/faults/mat_faults",
        "src/search/mat_search",
        "src/search/mat_study",
    )
    for root in (*roots, "pytest_plugin/pytest_mat"):
        assert (ROOT / root / "py.typed").exists(), root


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: page.name)
def test_a_guide_ends_with_what_can_go_wrong(page: Path) -> None:
    """Pages that are looked up, not read, have no such section."""
    headings = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("## ")]
    assert page.name in ("cli.md", "glossary.md", "requirements.md") or headings[-1] == "## What can go wrong"

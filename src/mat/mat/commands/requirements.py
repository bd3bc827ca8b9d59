"""What a project needs to be installed with: its own requirements, and what its code imports that none of them names.

Files are parsed, never executed. What can only be known by building the project, as of a setup.py, counts as declared.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from typing import Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_FILES: Final = (
    "requirements.txt",
    "requirements-dev.txt",
    "requirements-test.txt",
    "dev-requirements.txt",
    "test-requirements.txt",
)
_EXTRAS: Final = ("test", "tests", "testing", "dev")
"""Extras of a project that its tests need, by their usual names."""
_OURS: Final = frozenset({"pytest", "pytest-mat"})
_INCLUSIONS: Final = 100
"""The most files of requirements that are read."""
_INCLUDED: Final = re.compile(r"^(?:-r|--requirement)[ =]*(?P<file>\S+)")


def arguments_of_pip(folder: Path) -> str:
    """What pip installs the project by, such as `-e .` and `-r requirements.txt`; "" for neither."""
    files = [f"-r {name}" for name in _FILES if (folder / name).is_file()]
    if not is_installable(folder):
        return " ".join(files)
    extra = _extra(_pyproject(folder))
    return " ".join([*files, f'-e ".[{extra}]"' if extra else "-e ."])


def is_installable(folder: Path) -> bool:
    """Whether pip can install the project itself."""
    data = _pyproject(folder)
    return "project" in data or "build-system" in data or (folder / "setup.py").is_file()


def undeclared(folder: Path, packages: set[str], *, named_so: Collection[str]) -> tuple[str, ...]:
    """The distributions with these packages, which the code imports, that no requirement of the project names.

    Those of this environment, and the packages that have the name of their distribution, `named_so`.
    """
    declared = _declared(folder)
    if declared is None:
        return ()
    by_package = packages_distributions()
    found = set()
    for name in packages - set(sys.stdlib_module_names):
        distributions = by_package.get(name) or [each for each in named_so if each == name]
        names = {str(canonicalize_name(each)) for each in distributions}
        if len(names) == 1 and not _is_own(folder, name):  # of a namespace package, nothing says which
            found |= names
    return tuple(sorted(name for name in found - declared - _OURS if not _is_local(name)))


def _is_local(name: str) -> bool:
    """Whether a distribution was installed from a folder or a file, so that its name alone installs nothing elsewhere."""
    try:
        return "file:" in (distribution(name).read_text("direct_url.json") or "")
    except PackageNotFoundError:
        return False


def _is_own(folder: Path, name: str) -> bool:
    return any((above / name).is_dir() or (above / f"{name}.py").is_file() for above in (folder, folder / "src"))


def _declared(folder: Path) -> set[str] | None:
    """The distributions that the project requires; None if that is decided by code, or while it is built."""
    data = _pyproject(folder)
    project: dict[str, Any] = data.get("project", {})
    poetry: dict[str, Any] = data.get("tool", {}).get("poetry", {})
    by_code = is_installable(folder) and not project and not poetry
    if by_code or "dependencies" in project.get("dynamic", ()):
        return None
    lines = [*project.get("dependencies", ()), *project.get("optional-dependencies", {}).get(_extra(data), ())]
    seen: set[Path] = set()
    for name in _FILES:
        lines += _requirement_lines(folder / name, seen)
    return {str(canonicalize_name(name)) for name in (*_required_names(lines), *poetry.get("dependencies", ()))}


def _requirement_lines(path: Path, seen: set[Path]) -> Iterator[str]:
    """The lines of a file of requirements and of those that it includes, each file once."""
    path = path.absolute()
    if path in seen or len(seen) == _INCLUSIONS:
        return
    seen.add(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        if included := _INCLUDED.match(line.strip()):
            yield from _requirement_lines(path.parent / included["file"], seen)
        else:
            yield line


def _required_names(lines: Iterable[object]) -> Iterator[str]:
    for line in lines:
        try:
            yield Requirement(str(line).partition(" #")[0].partition("--hash")[0].rstrip(" \\")).name
        except InvalidRequirement:  # an option, a comment, a path
            continue


def _extra(data: dict[str, Any]) -> str:
    """The extra of the project with what its tests need; "" without one."""
    given = data.get("project", {}).get("optional-dependencies", {})
    return next((name for name in _EXTRAS if name in given), "")


def _pyproject(folder: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}

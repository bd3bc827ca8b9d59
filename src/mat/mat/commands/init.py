"""`mat init`: look at a project, say what was found, and write a first conftest, a first contract and a CI workflow."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from mat.commands.first_files import SAMPLE, FirstFile, first_files
from mat.commands.project import Project, look_at
from mat.commands.shared import PASS, Add, check_files, print_json, width, write_text
from mat.core.errors import MatError, plural

_TEXT: Final = "write a first test with a contract, a conftest and a CI workflow for the project in a folder; never overwrites"
_EXAMPLES: Final = """mat init
         mat init --dry-run
         mat init services/support"""
_SHOWN: Final = 5
"""The most tools that are listed."""


def add_parser(add: Add) -> None:
    parser = add("init", _TEXT, _EXAMPLES)
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path(), metavar="FOLDER", help="the project (default: this folder)"
    )
    parser.add_argument("--dry-run", action="store_true", help="write nothing; list what would be written")


def init(options: argparse.Namespace) -> int:
    folder: Path = options.folder
    check_files(folder, fix="name the folder of a project", folders=True)
    if not folder.is_dir():
        raise MatError(f"{folder} is a file", why="a project is a folder", fix="name its folder", where=str(folder))
    project = look_at(folder)
    made = tuple(
        file for file in first_files(project)
        if (folder / file.path).exists() or not (project.has_runs and file.path.name == SAMPLE)  # it may have been deleted
    )  # fmt: skip
    new = [file for file in made if not (folder / file.path).exists()]
    if not options.dry_run:
        for file in new:
            _write(folder / file.path, file)
    if options.json:
        print_json(_facts(project, made, new, written=not options.dry_run))
    else:
        print(_text(project, made, new, dry=options.dry_run))
    return PASS


def _write(path: Path, file: FirstFile) -> None:
    """Write a new file; MatError if that fails, also if it has come into being meanwhile."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MatError(
            f"cannot make the folder {path.parent}: {error.strerror}", fix="check its permissions", where=str(path)
        ) from None
    write_text(path, file.text, mode="x")


def _facts(project: Project, made: tuple[FirstFile, ...], new: list[FirstFile], *, written: bool) -> dict[str, Any]:
    found = asdict(project) | {"folder": str(project.folder), "tests": project.tests.as_posix()}
    files = [
        {"path": file.path.as_posix(), "what": file.what, "exists": file not in new, "written": written and file in new}
        for file in made
    ]
    return {"found": found, "files": files}


def _text(project: Project, made: tuple[FirstFile, ...], new: list[FirstFile], *, dry: bool) -> str:
    from mat.report.words import filler

    fill = filler(width())
    lines = ["found:", *(fill(f"  {line}", hanging="    ") for line in _found(project)), ""]
    for file in made:
        verb = "unchanged" if file not in new else "would write" if dry else "wrote"
        lines.append(fill(f"{verb} {file.path.as_posix()}: {file.what}", hanging="  "))
    lines += [fill(f"  {line}", hanging="    ") for line in _left(project, made, new)]
    lines += [
        "",
        f"next: {_same_command(project.folder)}" if dry else f"next: pytest {(project.folder / project.tests).as_posix()}",
    ]
    if not dry:
        lines.append(f"then: pytest --mat-stress {(project.folder / project.tests).as_posix()}")
    return "\n".join(lines)


def _found(project: Project) -> list[str]:
    """What was detected, a line each; also what was looked for and not found."""
    used = [_adapter(each.name, installed=each.installed) for each in project.adapters if each.imported]
    here = [each.name for each in project.adapters if each.installed and not each.imported]
    tools = [f"{tool.name} ({tool.why})" for tool in project.tools[:_SHOWN]]
    more = len(project.tools) - _SHOWN
    lines = [
        f"frameworks and HTTP clients in the code: {', '.join(used) or 'none'}",
        *([f"installed, but not in the code: {', '.join(here)}"] if here else []),
        f"functions that look like tools: {', '.join(tools) or 'none'}{f', and {more} more' if more > 0 else ''}",
        f"tests: {project.tests.as_posix()}{'' if project.has_tests else ' (no tests yet)'}",
        f"configuration of pytest: {project.configuration or 'none'}",
        f"CI: {', '.join(project.ci) or 'none'}",
    ]
    if project.left_out:
        lines.append(f"not read: {plural(project.left_out, 'Python file')} beyond the first {project.files}")
    if project.unreadable:
        lines.append(f"not read, because they do not parse: {', '.join(project.unreadable[:_SHOWN])}")
    return lines


def _same_command(folder: Path) -> str:
    return "mat init" if folder == Path() else f"mat init {folder.as_posix()}"


def _adapter(name: str, *, installed: bool) -> str:
    return name if installed else f"{name} (not installed here)"


def _left(project: Project, made: tuple[FirstFile, ...], new: list[FirstFile]) -> list[str]:
    """What to do by hand, because a file exists."""
    conftest = made[0]
    names = [each.name for each in project.attached if each.installed]
    lines = []
    if conftest not in new and names and not project.attaches:
        lines.append(f"to attach to {', '.join(names)}: set mat_attach = {' '.join(names)} in the configuration of pytest")
    if project.at_top and project.configuration:
        lines.append(f"to import the code of this folder in tests: set pythonpath to . in {project.configuration}")
    others = [name for name in project.ci if name != ".github/workflows"]
    if others:
        lines.append(f"for {', '.join(others)}: run the commands of .github/workflows/mat.yml there")
    return lines

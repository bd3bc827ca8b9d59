"""What a session writes for GitHub Actions: annotations at the lines of findings, and the job's summary."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mat.report.source_lines import SourceFolders
from pytest_mat.options import environment_at_start

if TYPE_CHECKING:
    from mat.report.document import Document


def is_asked(config: pytest.Config) -> bool:
    """Whether something is to be written. A gate writes its own summary, and judges by itself what fails."""
    if config.getoption("mat_gate"):
        return False
    return _annotates(config) or _step_summary(config) is not None


def _annotates(config: pytest.Config) -> bool:
    when = config.getoption("mat_github") or "auto"
    return when == "on" or (when == "auto" and environment_at_start(config).get("GITHUB_ACTIONS") == "true")


def _step_summary(config: pytest.Config) -> Path | None:
    """The file of the job's summary; None without one, or with --mat-github off."""
    name = environment_at_start(config).get("GITHUB_STEP_SUMMARY")
    return Path(name) if name and config.getoption("mat_github") != "off" else None


def write(document: Document, reporter: Any, config: pytest.Config) -> None:
    """Print the annotations, and append the summary to the file of the job."""
    if _annotates(config):
        from mat.report.annotations import annotation_lines

        reporter.ensure_newline()
        for line in annotation_lines(document, folders=source_folders(config)):
            reporter.write_line(line)
    path = _step_summary(config)
    if path is not None:
        from mat.report.markdown import session_summary

        try:
            with path.open("a", encoding="utf-8", newline="\n") as stream:
                stream.write(session_summary(document))
        except OSError as error:
            reporter.write_line(f"mat: cannot write the job's summary to {path}: {error.strerror}")


def source_folders(config: pytest.Config) -> SourceFolders:
    """Where the session's paths begin in the repository: the workspace of GitHub Actions, or the nearest folder with `.git`."""
    started = Path(config.invocation_params.dir).resolve()
    root = _repository(config, started)
    return SourceFolders(calls=_relative(started, root), tests=_relative(config.rootpath.resolve(), root))


def _repository(config: pytest.Config, started: Path) -> Path | None:
    workspace = environment_at_start(config).get("GITHUB_WORKSPACE")
    if workspace and started.is_relative_to(Path(workspace).resolve()):
        return Path(workspace).resolve()
    return next((folder for folder in (started, *started.parents) if os.path.exists(folder / ".git")), None)


def _relative(folder: Path, root: Path | None) -> str:
    inside = root is not None and folder.is_relative_to(root)
    return folder.relative_to(root).as_posix().removeprefix(".") if inside and root is not None else ""

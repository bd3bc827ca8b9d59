"""`mat doctor`: what is installed, and what is wrong with it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from mat.commands.shared import PASS, USAGE, print_json

_PARTS: Final = (
    "pytest-mat", "pytest", "pluggy", "pydantic", "hypothesis", "opentelemetry-sdk", "scipy", "duckdb", "rich", "time-machine",
    "pytest-asyncio", "anyio", "pytest-xdist", "pytest-timeout", "distributed",
)  # fmt: skip
_PACKAGES: Final = ("mat", "mat_contracts", "mat_faults", "mat_search", "pytest_mat")


def doctor(options: argparse.Namespace) -> int:
    found = _installation()
    if options.json:
        print_json(found)
    else:
        print(f"python {found['python']}")
        for name, version in found["versions"].items():
            print(f"{name} {version or 'not installed'}")
        print(f"pytest plugins: {', '.join(found['plugins']) or 'none'}")
        print(f"operators ({len(found['operators'])}): {', '.join(found['operators']) or 'none'}")
        for problem in found["problems"]:
            print(f"problem: {problem}")
    return USAGE if found["problems"] else PASS


def _installation() -> dict[str, Any]:
    """What is installed, and every problem found with it."""
    import platform
    from importlib import metadata

    import mat

    problems = _foreign_packages()
    versions: dict[str, str | None] = {}
    for name in _PARTS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    plugins = sorted(entry.name for entry in metadata.entry_points(group="pytest11"))
    if "mat" not in plugins:
        problems.append("pytest does not know the plugin: no entry point `mat`; install pytest-mat in this environment")
    operators: list[str] = []
    try:
        from mat.harness.execute import installed_operators

        operators = [item.id for item in installed_operators()]
        if not operators:
            problems.append("no operators are registered: nothing could be stressed")
    except Exception as error:  # a foreign distribution's operators may fail in any way
        problems.append(f"the operators of an installed distribution cannot be loaded: {type(error).__name__}: {error}")
    return {
        "mat": mat.__version__, "python": platform.python_version(), "platform": platform.platform(), "versions": versions,
        "plugins": plugins, "operators": operators, "problems": problems,
    }  # fmt: skip


def _foreign_packages() -> list[str]:
    """Packages of ours that another distribution shadows; `mat` is also the name of an unrelated one."""
    from importlib.util import find_spec

    problems = []
    for name in _PACKAGES:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            spec = None
        if spec is None or spec.origin is None:
            problems.append(f"the package {name} is missing; reinstall pytest-mat")
        elif not Path(spec.origin).with_name("py.typed").exists():
            problems.append(f"the package {name} at {spec.origin} is not ours; uninstall the distribution that brings it")
    return problems

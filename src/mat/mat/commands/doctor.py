"""`mat doctor`: problems of the installation, or of tests: why one is not instrumented, which fixtures outlive a run, and which
declarations would save executions."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mat.commands.shared import PASS, USAGE, VIOLATION, Add, print_json, width
from mat.core.errors import MatError
from mat.core.verbs import sounds_like_reading

_TEXT: Final = "report versions, plugins, operators and problems of the installation; with TEST, problems of the tests"
_EXAMPLES: Final = """mat doctor
         mat doctor tests/test_refund.py::test_refund
         mat doctor --declarations tests/test_refund.py

exit codes: 0 no problem, 1 a test has a problem, 2 the installation has a problem or no test was found"""

_PARTS: Final = (
    "pytest-mat", "pytest", "pluggy", "pydantic", "hypothesis", "opentelemetry-sdk", "scipy", "duckdb", "rich", "jinja2",
    "time-machine",
    "pytest-asyncio", "anyio", "pytest-xdist", "pytest-timeout", "distributed",
    "shtab",
)  # fmt: skip
_PACKAGES: Final = ("mat", "mat_contracts", "mat_faults", "mat_search", "mat_study", "pytest_mat")


def add_parser(add: Add) -> None:
    parser = add("doctor", _TEXT, _EXAMPLES)
    parser.add_argument("tests", nargs="*", metavar="TEST", help="tests to examine, named as for pytest; each runs once")
    parser.add_argument(
        "--declarations", action="store_true",
        help="search each test as --mat-stress does, and count the executions that declaring the effects of tools would save",
    )  # fmt: skip


def doctor(options: argparse.Namespace) -> int:
    if options.tests:
        return _examine_tests(options)
    found = _installation()
    if options.json:
        print_json(found)
    else:
        print(f"python {found['python']}")
        for name, version in found["versions"].items():
            print(f"{name} {version or 'not installed'}")
        columns = width()
        print(_name_list("pytest plugins", found["plugins"], columns))
        print(_by_boundary(found["operators"], columns))
        for problem in found["problems"]:
            print(f"problem: {problem}")
    return USAGE if found["problems"] else PASS


def _name_list(title: str, names: Sequence[str], columns: int | None) -> str:
    """`title: a, b, c`, wrapped to the width."""
    from mat.report.words import filler

    return filler(columns)(f"{title}: {', '.join(names) or 'none'}", hanging="    ")


def _by_boundary(operators: Sequence[str], columns: int | None) -> str:
    """The operators by boundary, a paragraph each: `service.timeout` is listed as timeout under service."""
    boundaries: dict[str, list[str]] = {}
    for operator in operators:
        boundary, _, name = operator.partition(".")
        boundaries.setdefault(boundary, []).append(name)
    lines = [_name_list(f"  {boundary}", sorted(names), columns) for boundary, names in sorted(boundaries.items())]
    return "\n".join([f"operators ({len(operators)}), named boundary.name{':' if lines else ''}", *lines])


def _examine_tests(options: argparse.Namespace) -> int:
    """Run the tests once, without faults, and report the problems of each; with `--declarations`, search each of them, too."""
    seen, said = _session(options.tests)
    if not seen:
        raise MatError(
            "no test could be examined", why=said or "pytest found none",
            fix="name tests as for pytest, such as tests/test_refund.py::test_refund",
        )  # fmt: skip
    if options.declarations:
        counted = {test["item"]: test.get("declarations", []) for test in _session(options.tests, "--mat-stress")[0]}
        for test in seen:
            test["declarations"] = counted.get(test["item"], [])
    if options.json:
        print_json({"tests": seen})
    else:
        print("\n\n".join(_test_text(test) for test in seen))
    return VIOLATION if any(test["problems"] for test in seen) else PASS


def _session(tests: Sequence[str], *more: str) -> tuple[list[dict[str, Any]], str]:
    """What a session over these tests found, and the end of what it printed."""
    with tempfile.TemporaryDirectory(prefix="mat-") as folder:
        path = Path(folder, "seen.json")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--mat-doctor", str(path), *more, *tests]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        seen: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return seen, (done.stderr or done.stdout).strip()[-2000:]


def _declaration_text(saving: dict[str, Any]) -> str:
    tools = " and ".join(f"`{name}`" for name in saving["tools"])
    return f'  declare effect="read" at {tools}: saves {saving["saves"]:,} of {saving["executions"]:,} executions'


def _errors_text(found: dict[str, Any]) -> str:
    """`errors of refund: httpx (guessed: shop.py imports it); settle it with errors=...`"""
    boundary, _, name = found["port"].partition(":")
    text = f"  errors of {name if boundary == 'service' else f'{boundary} {name}'}: {', '.join(found['clients'])}"
    return f"{text} (guessed: {found['guess']}); settle it with errors=..." if found["guess"] else f"{text} (declared)"


def _attached_text(found: dict[str, Any]) -> list[str]:
    """The framework, how each tool came to its effect, and the line that settles those that nothing declares."""
    lines = [f"  attached: {found['name']} ({', '.join(found['abilities'])})"]
    lines += [f"    its own policy: {found['policy']}"] if found["policy"] else []
    by_source: dict[tuple[str, str], list[str]] = {}
    for tool in found["tools"]:
        by_source.setdefault((tool["effect"], tool["source"]), []).append(tool["port"])
    for (effect, source), names in sorted(by_source.items()):
        text = f"    {', '.join(names)}: {effect}"
        if source:
            lines.append(f"{text}, by {'your effects=' if source == 'you' else source}")
        else:
            reading = [name for name in names if sounds_like_reading(name)] or ["NAME"]
            settled = ", ".join(f'"{name}": "read"' for name in reading)
            lines.append(f"{text}, which counts as a write; where a tool only reads, settle it with effects={{{settled}}}")
    return lines


def _test_text(test: dict[str, Any]) -> str:
    lines = [f"{test['item']}: {test['outcome']}"]
    if test["armed"]:
        crossed = ", ".join(f"{name} ({count})" for name, count in test["crossings"].items())
        lines += [f"  contracts: {', '.join(test['contracts']) or 'none'}", f"  boundaries crossed: {crossed or 'none'}"]
    for found in test.get("attached", ()):
        lines += _attached_text(found)
    lines += [f"  governance variants: {', '.join(test['variants'])}"] if test["variants"] else []
    lines += [f"  category: {test['category']}"] if test["category"] else []
    kept = ", ".join(f"{name} ({scope})" for name, scope in test["persisting"].items())
    lines += [f"  fixtures that persist across evaluations: {kept}"] if kept else []
    if test["undeclared"] and "declarations" not in test:
        names = ", ".join(test["undeclared"])
        lines.append(f"  undeclared effects, which count as writes: {names} (--declarations counts what reads would save)")
    lines += [f"  {found}" for found in test.get("uncrossed", [])]
    lines += [_errors_text(found) for found in test.get("errors", [])]
    if test.get("declarations"):
        lines += [_declaration_text(saving) for saving in test["declarations"]]
        lines.append("    only where the tool changes neither the world nor its own next replies")
    for problem in test["problems"]:
        lines += [f"  problem: {problem['what']}", f"    fix: {problem['fix']}"]
    return "\n".join(lines)


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
        problems.append("pytest cannot find the plugin (no entry point `mat`): install pytest-mat in this environment")
    operators: list[str] = []
    try:
        from mat.harness.execute import installed_operators

        operators = [item.id for item in installed_operators()]
        if not operators:
            problems.append("no operators are registered, so --mat-stress has nothing to inject")
    except Exception as error:  # operators of another distribution may fail in any way
        problems.append(f"the operators of an installed distribution cannot be loaded: {type(error).__name__}: {error}")
    return {
        "mat": mat.__version__, "python": platform.python_version(), "platform": platform.platform(), "versions": versions,
        "plugins": plugins, "operators": operators, "problems": problems,
    }  # fmt: skip


def _foreign_packages() -> list[str]:
    """Problems of our packages that are missing or that another distribution shadows (`mat` is also an unrelated package)."""
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
            problems.append(f"the package {name} at {spec.origin} is not ours; uninstall the distribution that provides it")
    return problems

"""Looks at a folder: the frameworks and HTTP clients that its code imports, functions that look like tools, its tests and CI.

`mat init` writes its configuration and its first test from this. The code is parsed, never imported or executed.
"""

from __future__ import annotations

import ast
import configparser
import os
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from mat.adapters.attach import BUILT_IN
from mat.adapters.attachment import Adapter
from mat.commands.requirements import arguments_of_pip, is_installable, undeclared
from mat.core.verbs import sounds_like_reading

FILES: Final = 2_000
"""The most Python files that are read."""
CLIENTS: Final = ("aiohttp", "httpx", "requests", "urllib3")
"""The adapters of HTTP clients; the others are those of frameworks."""
_SKIPPED: Final = frozenset({"node_modules", "site-packages", "build", "dist", "__pycache__"})
_CONFIGURATION: Final = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_CI: Final = (".github/workflows", ".gitlab-ci.yml", ".circleci", "azure-pipelines.yml", "Jenkinsfile", ".buildkite")
_TOOL_NAMES: Final = frozenset({"tool", "tool_plain", "function_tool", "beta_tool"})
_RETRIES: Final = frozenset({"retry", "on_exception", "on_predicate", "retrying"})
"""Decorators of tenacity, stamina and backoff."""
_NO_DATA: Final = frozenset(
    {"AsyncClient", "AsyncConnection", "AsyncEngine", "AsyncSession", "BaseStore", "Client", "ClientSession", "Connection",
     "Context", "Cursor", "Engine", "Pool", "RunContext", "Session", "ToolContext"}
)  # fmt: skip
"""Last names of annotations of parameters that cannot be recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTool:
    """A function that looks like a tool. `name`: its dotted path; `why`: its decorator, or the module that it is in.

    `called`: its name for the framework whose decorator it has, "" without one. `exclude`: parameters that are no data, as
    their annotations say. `retried`: its decorator that calls it again, "" for none.
    """

    name: str
    why: str
    effect: str
    called: str = ""
    exclude: tuple[str, ...] = ()
    retried: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAdapter:
    """A framework or HTTP client for which there is an adapter. `imported`: by the code; `installed`: in this environment."""

    name: str
    extra: str
    imported: bool
    installed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What was found in a folder. `at_top`: code at its top that nothing installs, so that tests find it only
    with a `pythonpath`. `left_out`: Python files beyond the limit; `unreadable`: those that do not parse. `has_runs`: a test
    takes `mat_run`; `attaches`: there is a fixture `mat_attach`. `installs`: what pip installs the project by; `needs`:
    distributions that its code imports and its requirements do not name.
    """

    folder: Path
    adapters: tuple[FoundAdapter, ...]
    tools: tuple[FoundTool, ...]
    tests: Path
    has_tests: bool
    configuration: str
    installs: str
    at_top: bool
    ci: tuple[str, ...]
    files: int
    left_out: int = 0
    unreadable: tuple[str, ...] = ()
    has_runs: bool = False
    attaches: bool = False
    needs: tuple[str, ...] = ()

    @property
    def attached(self) -> tuple[FoundAdapter, ...]:
        """The frameworks that the code imports; without one, its HTTP clients."""
        imported = [each for each in self.adapters if each.imported]
        frameworks = [each for each in imported if each.name not in CLIENTS]
        if any(each.name == "langgraph" for each in frameworks):  # its adapter has all of LangChain's seams
            frameworks = [each for each in frameworks if each.name != "langchain"]
        return tuple(frameworks or imported)


def look_at(folder: Path) -> Project:
    """What a folder has."""
    paths = list(python_files(folder))
    imported: set[str] = set()
    tools: list[FoundTool] = []
    unreadable = []
    has_runs = attaches = False
    for path in paths[:FILES]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError, OSError):
            unreadable.append(str(path.relative_to(folder)))
            continue
        imported |= set(_imports(tree))
        if not _is_test(path.relative_to(folder)):
            tools += _functions(tree, path.relative_to(folder))
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                has_runs |= any(each.arg == "mat_run" for each in node.args.args)
                attaches |= node.name == "mat_attach"
    tests, has_tests = _test_folder(folder, paths)
    return Project(
        folder=folder, adapters=tuple(_adapters(imported)), tools=tuple(tools), tests=tests, has_tests=has_tests,
        configuration=_configuration(folder), installs=arguments_of_pip(folder), at_top=_is_at_top(folder, paths),
        ci=tuple(name for name in _CI if (folder / name).exists()), files=len(paths[:FILES]),
        left_out=max(0, len(paths) - FILES), unreadable=tuple(unreadable), has_runs=has_runs, attaches=attaches,
        needs=_needs(folder, imported),
    )  # fmt: skip


def python_files(folder: Path) -> Iterator[Path]:
    """The Python files of a project, in order, without those of environments, builds and hidden folders."""
    for place, folders, names in os.walk(folder):
        if "pyvenv.cfg" in names and Path(place) != folder:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        yield from (Path(place, name) for name in sorted(names) if name.endswith(".py"))


def _is_test(path: Path) -> bool:
    return path.name.startswith("test_") or path.name.endswith("_test.py") or path.name == "conftest.py"


def _imports(tree: ast.Module) -> Iterator[str]:
    """The modules that the code imports, with the packages above them: a.b.c, a.b, a."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _adapters(imported: set[str]) -> Iterator[FoundAdapter]:
    """Those that the code imports or that are installed here."""
    for name, module in sorted(BUILT_IN.items()):
        adapter: Adapter = import_module(module).ADAPTERS[name]
        in_code, here = adapter.package in imported or name in imported, _is_installed(adapter.package)
        if in_code or here:
            yield FoundAdapter(name=name, extra=adapter.extra, imported=in_code, installed=here)


def _needs(folder: Path, imported: set[str]) -> tuple[str, ...]:
    """What the code imports and no requirement names, without the frameworks that extras of pytest-mat install."""
    adapters = [import_module(module).ADAPTERS[name] for name, module in BUILT_IN.items()]
    packages = {name.partition(".")[0] for name in imported} - {each.package for each in adapters if each.extra}
    return undeclared(folder, packages, named_so=CLIENTS)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ModuleNotFoundError, ValueError):  # of a package above it
        return False


# -- tools ------------------------------------------------------------------------------------------------------------


def _functions(tree: ast.Module, path: Path) -> Iterator[FoundTool]:
    """Functions with the decorator of a tool, and public functions of modules that are named tools."""
    parts = path.with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" and len(parts) > 1 else parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    by_place = "tools" in parts
    bodies: list[tuple[str, list[ast.stmt]]] = [("", tree.body)]
    bodies += [(f"{node.name}.", node.body) for node in tree.body if isinstance(node, ast.ClassDef)]
    for owner, body in bodies:
        for node in body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
                continue
            decorator = next((each for each in node.decorator_list if _last_name(each) in _TOOL_NAMES), None)
            if decorator is None and (owner or not by_place):
                continue
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            yield FoundTool(
                name=f"{module}.{owner}{node.name}",
                why=f"@{ast.unparse(target)}" if target is not None else f"in {path.as_posix()}",
                effect="read" if sounds_like_reading(node.name) else "write",
                called=_called(decorator, node.name), exclude=_no_data(node),
                retried=next((name for name in map(_last_name, node.decorator_list) if name in _RETRIES), ""),
            )  # fmt: skip


def _last_name(node: ast.expr) -> str:
    """The last name of a decorator or an annotation: `tool` of `@mcp.tool()`; "" for another expression."""
    target = node.func if isinstance(node, ast.Call) else node
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


def _called(decorator: ast.expr | None, function: str) -> str:
    """The name that a framework gives to a tool: the decorator's first text, or else the function's name."""
    if decorator is None:
        return ""
    values: list[ast.expr] = []
    if isinstance(decorator, ast.Call):
        named = [each.value for each in decorator.keywords if each.arg in ("name", "name_override")]
        values = [*decorator.args[:1], *named]
    texts = (each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str))
    return next(texts, function)


def _no_data(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    """The parameters with an annotation that is no data, such as sqlite3.Connection or `Session | None`."""
    given = function.args
    return tuple(
        each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)
        if each.annotation is not None
        and any(_last_name(part) in _NO_DATA for part in ast.walk(each.annotation) if isinstance(part, ast.expr))
    )  # fmt: skip


# -- layout -----------------------------------------------------------------------------------------------------------


def _configuration(folder: Path) -> str:
    """The file that configures pytest; "" without one."""
    return next(
        (name for name in _CONFIGURATION if (folder / name).is_file() and _pytest_section(folder / name) is not None), ""
    )


def _pytest_section(path: Path) -> dict[str, Any] | None:
    """The settings of pytest in a file; None if it has none, or cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".toml":
            tables = tomllib.loads(text).get("tool", {}).get("pytest")
            found = tables.get("ini_options", tables) if isinstance(tables, dict) else None
            return found if isinstance(found, dict) else None
        parsed = configparser.ConfigParser(interpolation=None, strict=False)
        parsed.read_string(text)
    except (OSError, ValueError, configparser.Error):
        return None
    name = "tool:pytest" if path.name == "setup.cfg" else "pytest"
    return dict(parsed[name]) if parsed.has_section(name) else None


def _test_folder(folder: Path, paths: list[Path]) -> tuple[Path, bool]:
    """Where a new test goes, relative to the folder, and whether there are tests already."""
    has_tests = any(_is_test(path) and path.name != "conftest.py" for path in paths)
    name = _configuration(folder)
    settings = (_pytest_section(folder / name) or {}) if name else {}
    given = settings.get("testpaths", ())
    for each in given.split() if isinstance(given, str) else given:
        if (folder / str(each)).is_dir() and _is_below(folder / str(each), folder):
            return Path(each), has_tests
    for each in ("tests", "test"):
        if (folder / each).is_dir():
            return Path(each), has_tests
    with_tests = sorted({path.parent.relative_to(folder) for path in paths if _is_test(path)})
    return (with_tests[0] if with_tests else Path("tests")), has_tests


def _is_below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _is_at_top(folder: Path, paths: list[Path]) -> bool:
    """Whether code lies at the top, and neither a build nor pytest makes it importable for tests in a folder of their own."""
    name = _configuration(folder)
    if is_installable(folder) or "pythonpath" in ((_pytest_section(folder / name) or {}) if name else {}):
        return False
    tests, _ = _test_folder(folder, paths)
    if any((folder / each).exists() for each in ("conftest.py", tests / "__init__.py")):  # then pytest adds the folder
        return False
    code = (path.relative_to(folder) for path in paths if not _is_test(path))
    return any(not path.is_relative_to(tests) and path.parts[0] not in ("src", "docs") for path in code)

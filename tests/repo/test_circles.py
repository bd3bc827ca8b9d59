"""No two files of the product import each other: not in a function, not for types, not through `import_module`.

grimp, which import-linter builds on, reads the import statements. A file is a node, and so is the `__init__` of a package:
`import a.b.c` depends on `a.b.c`, and on `a` only where names are taken from it.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Final

import grimp

ROOT = Path(__file__).parents[2]

# Circles that are allowed to stay: a file of the circle, and why. An entry that is no longer true fails, too.
EXCEPTIONS: Final[Mapping[str, str]] = {}


def circles(*packages: str) -> list[tuple[list[str], list[str]]]:
    """Each circle as its files, and as the imports that tie it (`MODULE:LINE: STATEMENT`)."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    dynamic = {pair: said for module in graph.modules for pair, said in _dynamic_imports(module, graph.modules)}
    for importer, imported in dynamic:
        graph.add_import(importer=importer, imported=imported)
    found: list[tuple[list[str], list[str]]] = []
    seen: set[str] = set()
    for module in sorted(graph.modules):
        if module in seen:
            continue
        circle = graph.find_upstream_modules(module) & graph.find_downstream_modules(module) | {module}
        seen |= circle
        if len(circle) == 1:
            continue
        ties = [
            said
            for importer in sorted(circle)
            for imported in sorted(graph.find_modules_directly_imported_by(importer) & circle)
            for said in [*_statements(graph, importer, imported), dynamic.get((importer, imported), "")]
            if said
        ]
        found.append((sorted(circle), list(dict.fromkeys(ties))))
    return found


def _statements(graph: grimp.ImportGraph, importer: str, imported: str) -> list[str]:
    """The statements as they stand in the file, each in one line, so that all names are seen."""
    tree = ast.parse(_file(importer).read_text(encoding="utf-8"))
    lines = {detail["line_number"] for detail in graph.get_import_details(importer=importer, imported=imported)}
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno in lines)
    return [f"{importer}:{node.lineno}: {ast.unparse(node)}" for node in nodes]


def _dynamic_imports(module: str, known: set[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """What `import_module("...")` loads; where the end of the name is computed, everything that it can be."""
    file = _file(module)
    text = file.read_text(encoding="utf-8")
    if "import_module" not in text and "__import__" not in text:
        return
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and node.args and _called(node.func) in ("import_module", "__import__")):
            continue
        start, whole = _beginning(node.args[0], module)
        start = resolve_name(start, package) if start.startswith(".") else start
        for name in known - {module}:
            if name == start or (start and not whole and name.startswith(start)):
                yield (module, name), f"{module}:{node.lineno}: {ast.unparse(node)}"


def _beginning(name: ast.expr, module: str) -> tuple[str, bool]:
    """As much of a module's name as is written down, and whether that is all of it."""
    text = ""
    for part in name.values if isinstance(name, ast.JoinedStr) else [name]:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            text += part.value
        elif isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name) and part.value.id == "__name__":
            text += module
        else:
            return text, False
    return text, True


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _file(module: str) -> Path:
    package, *parts = module.split(".")
    spec = find_spec(package)  # of the package alone: to look for the spec of a file imports what stands above it
    assert spec is not None
    assert spec.origin is not None
    place = Path(spec.origin).parent.joinpath(*parts)
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _told(found: list[tuple[list[str], list[str]]]) -> str:
    return "\n\n".join("\n  ".join([f"circle of {len(files)} files: {', '.join(files)}", *ties]) for files, ties in found)


def test_no_files_of_the_product_import_each_other():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = circles(*settings["tool"]["importlinter"]["root_packages"])
    tied = {name for files, _ in found for name in files}
    assert [name for name in EXCEPTIONS if name not in tied] == [], "no circle any more: delete these exceptions"
    unexpected = [(files, ties) for files, ties in found if not any(name in EXCEPTIONS for name in files)]
    assert not unexpected, _told(unexpected)


# What `two`, which `one` imports, does to tie the circle; and how the tie is told.
PLANTED: Final = (
    ("def late():\n    from {name} import one\n", "{name}.two:2: from {name} import one"),
    ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {name}.one import One\n", "{name}.two:3: from {name}.one"),
    ("from . import one\n", "{name}.two:1: from . import one"),
    ("from .one import One as _One\n", "{name}.two:1: from .one import One as _One"),
    ("import {name}.one\n", "{name}.two:1: import {name}.one"),
    ("import importlib\nimportlib.import_module('{name}.one')\n", "{name}.two:2: importlib.import_module('{name}.one')"),
    ("import importlib\nimportlib.import_module('.one', '{name}')\n", "{name}.two:2: importlib.import_module('.one'"),
    ("import importlib\nimportlib.import_module(f'{name}.{{1}}')\n", "{name}.two:2: importlib.import_module(f'{name}.{{1}}')"),
    ("from {name} import NAME\n", "{name}:1: from {name}.one import One as NAME"),
)


def test_a_planted_circle_is_found_with_what_ties_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    missed = []
    for number, (back, tie) in enumerate(PLANTED):
        name = f"planted_{number}"
        back = back.format(name=name)
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"from {name}.one import One as NAME\n" if "NAME" in back else "")
        (tmp_path / name / "one.py").write_text(f"from {name}.two import (\n    TWO,\n)\nOne = 1\n")
        (tmp_path / name / "two.py").write_text(f"{back}TWO = 2\n")
        ties = [said for files, ties in circles(name) if f"{name}.one" in files and f"{name}.two" in files for said in ties]
        if not all(
            any(wanted in said for said in ties)
            for wanted in (f"{name}.one:1: from {name}.two import TWO", tie.format(name=name))
        ):
            missed.append((back, ties))
    assert missed == []


def test_an_import_of_a_file_does_not_count_as_one_of_its_package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "unplanted").mkdir()
    (tmp_path / "unplanted" / "__init__.py").write_text("from unplanted.one import ONE\n")
    (tmp_path / "unplanted" / "one.py").write_text("import unplanted.two\nONE = 1\n")
    (tmp_path / "unplanted" / "two.py").write_text("")
    assert circles("unplanted") == []

"""The page of errors, made from the code: each place that makes an error of ours, with what it says, why, and the fix.

A hook of MkDocs: it puts the tables where `docs/reference/errors.md` has the line `<!-- every error -->`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

HERE = "<!-- every error -->"
ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("src/mat", "src/contracts_lib", "src/faults", "src/search", "pytest_plugin")
BASE = "MatError"
PARTS = ("what", "why", "fix")
LATER = "(composed at run time)"
Values: TypeAlias = Mapping[str, Sequence[ast.expr]]
"""The expressions that a local variable may hold, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """One place that makes an error. `kind`: the class; `room`: the package that holds it; its parts, "" for none."""

    kind: str
    room: str
    what: str
    why: str
    fix: str


def every_error(folders: Sequence[Path]) -> list[Error]:
    """All errors of the packages in these folders, by room and text, each text once. Expressions stand as <name> or <...>."""
    texts = {path: path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    kinds = _kinds(trees.values())
    found = {
        error: None
        for path, tree in trees.items()
        if any(f"{kind}(" in texts[path] for kind in kinds)
        for folder in folders
        if path.is_relative_to(folder)
        for error in _made(tree, kinds, room=_room(path.relative_to(folder)))
    }
    return sorted(found, key=lambda error: (error.room, error.kind, error.what, error.why, error.fix))


def _kinds(trees: Any) -> frozenset[str]:
    """The classes of our errors: MatError and all that are made from it, each in a module's own body."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    kinds = {BASE}
    while more := {name for name, above in bases.items() if above & kinds} - kinds:
        kinds |= more
    return frozenset(kinds)


def _room(path: Path) -> str:
    """`mat.govern` for mat/govern/policy.py, `mat_search` for mat_search/journal.py."""
    package, *rest = path.with_suffix("").parts
    return f"{package}.{rest[0]}" if package == "mat" and len(rest) > 1 else package


def _made(tree: ast.AST, kinds: frozenset[str], *, room: str, function: ast.AST | None = None) -> Iterator[Error]:
    for node in ast.iter_child_nodes(tree):
        inside = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
            given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg in PARTS}
            if node.args:
                given.setdefault("what", node.args[0])
            values = {} if function is None else _values(function)
            texts = {part: _text(given[part], values) if part in given else "" for part in PARTS}
            yield Error(kind=node.func.id, room=room, **texts)
        yield from _made(node, kinds, room=room, function=inside)


@cache
def _values(function: ast.AST) -> Values:
    """What each local variable of a function may be: all that is assigned, or appended, to it."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            if isinstance(node.target, ast.Name) and node.value is not None:
                found.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, ast.Call):
            match node.func:
                case ast.Attribute(value=ast.Name(id=name), attr="append"):
                    found.setdefault(name, []).extend(node.args)
    return found


def _text(node: ast.expr, values: Values) -> str:
    """What an expression says, as far as it is written down in its function; alternatives are separated by " / "."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, values) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        named = {ast.Name: "id", ast.Attribute: "attr"}.get(type(node.value))
        return f"<{getattr(node.value, named)}>" if named else "<...>"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left, values) + _text(node.right, values)
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return _text(node.elt, values)
    alternatives = _alternatives(node, values)
    others = {name: given for name, given in values.items() if not (isinstance(node, ast.Name) and name == node.id)}
    known = dict.fromkeys(text for each in alternatives if (text := _text(each, others)) not in ("", LATER))
    return " / ".join(known) or LATER


def _alternatives(node: ast.expr, values: Values) -> Sequence[ast.expr]:
    if isinstance(node, ast.Name):
        return values.get(node.id, ())
    if isinstance(node, ast.IfExp):
        return (node.body, node.orelse)
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.List | ast.Tuple):
        return node.elts
    joins = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join"
    return node.args if joins else ()


def page(errors: Sequence[Error]) -> str:
    """A table for each room."""
    lines: list[str] = []
    for room in sorted({error.room for error in errors}):
        lines += [f"## {room}", "", "| error | what | why | fix |", "|---|---|---|---|"]
        for error in errors:
            if error.room == room:
                lines.append(f"| {' | '.join(_cell(text) for text in (error.kind, error.what, error.why, error.fix))} |")
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    plain = " ".join(text.split())
    for character in "\\|*_`[]#":
        plain = plain.replace(character, f"\\{character}")
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def on_page_markdown(markdown: str, **known: Any) -> str:
    """MkDocs calls this for each page."""
    return markdown.replace(HERE, page(every_error([ROOT / name for name in SOURCES]))) if HERE in markdown else markdown

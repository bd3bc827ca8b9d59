"""One word for one concept: a name that several modules define with different meanings is a concept without a name."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections import defaultdict
from pathlib import Path

import pytest

import mat
from mat_study.settings import ARGUMENTS

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "pytest_plugin")
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
SHARED = {"Array", "Rewrite"}
"""`Array` is written by each module that needs it, because the library that it names is imported late. A decision and an effect
are called `Rewrite`: policies are written with the first, and recorded runs hold the name of the second."""


def defined() -> dict[str, list[str]]:
    """Classes and type aliases, with the modules that define them."""
    found = defaultdict(list)
    for path in (path for source in SOURCES for path in sorted((ROOT / source).rglob("*.py"))):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path))
            elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
                found[ast.unparse(node.target)].append(str(path))
    return found


@pytest.mark.full
def test_a_public_class_or_alias_has_one_meaning() -> None:
    shared = {name: paths for name, paths in defined().items() if len(paths) > 1 and not name.startswith("_")}
    assert set(shared) == SHARED


@pytest.mark.full
def test_a_private_class_or_alias_is_defined_in_three_modules_at_most() -> None:
    private = {name: paths for name, paths in defined().items() if name.startswith("_")}
    assert {name: paths for name, paths in private.items() if len(paths) > 3} == {}


def test_the_classes_that_the_glossary_names_exist_under_that_name() -> None:
    named = re.findall(r"`(mat(?:\.\w+)*)\.([A-Z]\w+)`", GLOSSARY)
    assert len(named) >= 12
    assert [name for module, name in named if not hasattr(importlib.import_module(module), name)] == []


def test_a_term_of_the_glossary_stands_once_with_a_sentence() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", GLOSSARY, re.M)
    terms = [term for term, _ in rows if term not in ("term", "---")]
    assert len(terms) == len(set(terms)) >= 50
    assert [term for term, meaning in rows if term in terms and not meaning.rstrip().endswith((".", ").", "..."))] == []


def test_the_face_is_narrow_and_shadows_no_built_in() -> None:
    assert len(mat.__all__) <= 40
    assert set(mat.__all__) & set(dir(builtins)) == set()
    assert len(ARGUMENTS) == 15  # what a marker takes


@pytest.mark.parametrize("name", ["temporal", "policy", "budget", "artifact", "spec", "errors"])
def test_a_name_of_mat_has_one_home(name: str) -> None:
    module = getattr(mat, name)
    assert [each for each in module.__all__ if hasattr(mat, each)] == []
    assert [each for each in module.__all__ if getattr(module, each).__doc__ is None] == []


ORDINARY = {
    "_answer", "_call", "_check", "_entry", "_json", "_key", "_learn", "_message", "_messages", "_outcome", "_part",
    "_problems", "_prompt", "_read", "_refuse", "_request", "_response", "_table", "_text", "_violation", "_violations",
    "_write",
}  # fmt: skip
"""What small functions may be called in many modules: a verb or a noun that says what they do there."""


@pytest.mark.full
def test_a_private_function_that_many_modules_have_is_called_by_an_ordinary_word() -> None:
    found = defaultdict(set)
    for path in (path for source in SOURCES for path in sorted((ROOT / source).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and re.match(r"_[a-z]", node.name):
                found[node.name].add(path)
    assert {name for name, paths in found.items() if len(paths) >= 5} <= ORDINARY

"""Every public name has a docstring with an example, and each example prints what it says."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest

import mat
import mat_contracts
import mat_faults
import mat_search

MODULES = [
    "mat",
    *(f"mat.{name}" for name in ("adapters", "artifact", "budget", "errors", "policy", "spec", "temporal")),
    *sorted(
        item.name
        for package in (mat_contracts, mat_faults, mat_search)
        for item in [SimpleNamespace(name=package.__name__), *pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
        if hasattr(importlib.import_module(item.name), "__all__")
    ),
]
ELSEWHERE = {f"mat_contracts.{item.name}" for item in pkgutil.iter_modules(mat_contracts.__path__)}
"""Modules whose examples tests/contracts/test_templates.py runs, and so it does those of all templates."""
TEMPLATES = [item.make for item in mat_contracts.templates()]


def documented(module: ModuleType) -> Iterator[tuple[str, object, str]]:
    """(name, object, docstring) of each public name; what cannot carry a docstring is documented where its module is."""
    for name in module.__all__:
        found = getattr(module, name)
        own = inspect.isclass(found) or inspect.isroutine(found) or inspect.ismodule(found)
        text = (found if own else module).__doc__ or ""
        yield f"{module.__name__}.{name}", found, text if own or name in text else ""


def without_example(module: ModuleType) -> set[str]:
    return {name for name, _, text in documented(module) if not doctest.DocTestParser().get_examples(text)}


def failures(name: str, text: str) -> str:
    """What doctest says of the examples of a docstring, run in a namespace with nothing but `mat`; "" if they are right."""
    said: list[str] = []
    space = {"__name__": "__main__", "mat": mat}
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(text), space, name, None, 0)
    doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    return "".join(said)


@pytest.mark.sweep("name", MODULES)
def test_a_public_name_has_an_example(name: str) -> None:
    assert without_example(importlib.import_module(name)) == set()


@pytest.mark.sweep("name", MODULES)
def test_the_example_of_a_public_name_prints_what_it_says(name: str) -> None:
    wrong = [
        said
        for item, found, text in documented(importlib.import_module(name))
        if getattr(found, "__module__", None) not in ELSEWHERE and found not in TEMPLATES and (said := failures(item, text))
    ]
    assert "\n".join(wrong) == ""


def test_a_name_without_an_example_and_an_example_that_is_wrong_are_reported() -> None:
    def silent() -> None:
        """Say nothing."""

    def wrong() -> None:
        """Count.

        >>> len(mat.__all__)
        0
        """

    planted = ModuleType("planted", "LIMIT is not shown.")
    planted.__dict__.update(__all__=["LIMIT", "silent", "wrong"], LIMIT=3, silent=silent, wrong=wrong)
    assert without_example(planted) == {"planted.LIMIT", "planted.silent"}
    assert "in planted.wrong\nFailed example:\n    len(mat.__all__)" in failures("planted.wrong", wrong.__doc__ or "")

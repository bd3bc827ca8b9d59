"""Every public name has a docstring with an example that prints what it says, its shapes, units, errors and source.

What the docstring of a public function or class must say:

- Errors: each exception that the callable raises, or a function that it calls does, stands under its public name in a
  sentence with "raises": "Raises `mat.MatError` for an empty name."
- Parameters: each stands in backquotes (its plain word will do if it is a single text, flag or object), in this docstring,
  in that of its module or package, or in one to which the sentence about it refers ("`record`: as for `mat.tool`").
- Units: the name of a number ends in its unit (`timeout_ms`), or the sentence about it states a unit or a range.
- Shapes: the sentence about a mapping says what its keys and values are, the one about a callable what it gets or returns;
  a function that returns a container or a callable says what it returns.
- Source: a line "Source: ..." names requirements (docs/requirements.md), a section of a paper, or a standard.
"""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

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
LEVELS = 2
"""How many calls deep exceptions are looked for."""
CONSTRUCTORS = ("__new__", "__init__", "__post_init__")
UNIT_SUFFIXES = ("_s", "_ms", "_bytes", "_chars", "_tokens", "_percent")
UNIT = re.compile(
    r"\b(seconds?|milliseconds?|steps?|calls?|runs|executions?|bytes|characters|tokens|percent\w*|shares?|"
    r"how (many|often|long)|number of|integer|digits|units?|levels?|costs?|thousandths|from \d|between \d|at least|"
    r"at most|up to|below \d|\d+ or (more|less)|(higher|lower) is|counts?)\b"
)
MAPPING = re.compile(r" -> |\bby (?!default\b|itself\b)(\w+'s )?\w+|\{")
CALLABLE = re.compile(r"\b(functions?|predicates?|gets?|takes?|returns?|called|class)\b|`\w+\([\w, ]*\)`")
RESULT = re.compile(r"\b([Rr]eturn(s|ed)?|[Yy]ields?|[Mm]akes?)\b")
REQUIREMENT = re.compile(r"\b[A-E]\d(?:\.\w+)?\b")
PRIVATE = re.compile(r"\b(SpecError|CodecError|LimitReached|ReplayError|Uncontrolled)\b")
UNREACHABLE = {"mat.temporal.verification": "the error of `action`, whose kind and predicate it chooses itself"}
ORIGINAL = {"mat.MatError"}
"""What comes from no requirement, paper or standard."""
REFERRED = re.compile(r"\b([Tt]he (rest|others|arguments|parameters|options|fields)|[Ii]ts arguments|for async code)\b|^Like `")
"""What a sentence says that refers to the parameters of another public name as a whole."""
REFERENCE = re.compile(r"`([A-Za-z_][\w.]*)`")


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


class Rules:
    """The rules over a set of public names: dotted name -> (object, docstring)."""

    def __init__(self, documented: Mapping[str, tuple[Any, str]]) -> None:
        self.documented = documented
        self.public = {found: name for name, (found, _) in reversed(documented.items()) if inspect.isclass(found)}

    def problems(self, name: str) -> list[str]:
        """What the docstring of a public name lacks, a text each."""
        found, text = self.documented[name]
        if not (inspect.isclass(found) or inspect.isroutine(found)):
            return []
        unnamed = () if name in UNREACHABLE else self.unnamed(found, text)
        lacking = [f"does not say that it raises {error}" for error in unnamed]
        lacking += [f"names {word}, which is not public" for word in PRIVATE.findall(text)]
        lacking += [problem for parameter in parameters(found) for problem in self.about(parameter, found, text)]
        if inspect.isroutine(found) and contains(returned(found), several) and not RESULT.search(text):
            lacking.append("does not say what it returns")
        source = re.search(r"^\s*Source: (.*)", text, re.M)
        if (source is None) != (name in ORIGINAL):
            lacking.append("has no source" if source is None else "has a source")
        elif source is not None:
            lacking += [
                f"names {word}, which is no requirement"
                for word in REQUIREMENT.findall(source[1])
                if word not in requirements()
            ]
        return [f"{name}: {problem}" for problem in lacking]

    def unnamed(self, found: Any, text: str) -> list[str]:
        """The exceptions that a callable raises and its docstring does not name."""
        said = [sentence for sentence in sentences(text) if re.search(r"\b[Rr]aises?\b", sentence)]
        if "errors are the same" in " ".join(sentences(text)):
            said += [self.documented[other][1] for word in REFERENCE.findall(text) if (other := self.resolve(word, found))]
        unnamed = [names[0] for error in raised(found) if (names := self.names(error)) and not quoted(names, said)]
        return sorted(set(unnamed))

    def names(self, error: type[BaseException]) -> list[str]:
        """The public names of an exception and of its bases, nearest first."""
        return [
            self.public.get(base) or base.__name__
            for base in error.__mro__
            if (base in self.public or base.__module__ == "builtins") and base not in (Exception, BaseException, object)
        ]

    def about(self, parameter: inspect.Parameter, found: Any, text: str, seen: frozenset[str] = frozenset()) -> list[str]:
        """What is not said about a parameter, here or where the sentences about it refer to."""
        name, hint = parameter.name, parameter.annotation
        needed = [contains(hint, test) for test in (number, mapping, function)]
        about = [sentence for part in (text, *above(found)) for sentence in sentences(part) if quotes(name, sentence)]
        if not about and self.elsewhere(name, found, text, seen, REFERRED):
            return []
        if not about:
            plain = not any(needed) and re.search(rf"\b{name}s?\b", " ".join(sentences(text)), re.I)
            return [] if plain else [f"says nothing about `{name}`"]
        problems = []
        if needed[0] and not name.endswith(UNIT_SUFFIXES) and not any(map(UNIT.search, about)):
            problems.append(f"states neither a unit nor a range of `{name}`")
        if needed[1] and not any(map(MAPPING.search, about)):
            problems.append(f"does not say what the keys and values of `{name}` are")
        if needed[2] and not any(map(CALLABLE.search, about)):
            problems.append(f"does not say what `{name}` gets or returns")
        return [] if problems and self.elsewhere(name, found, " ".join(about), seen) else problems

    def elsewhere(
        self, name: str, found: Any, text: str, seen: frozenset[str], referring: re.Pattern[str] | None = None
    ) -> bool:
        """Whether a public name in sentences (those that refer to another's parameters) has and describes a parameter."""
        referred = [sentence for sentence in sentences(text) if referring is None or referring.search(sentence)]
        for other in dict.fromkeys(word for sentence in referred for word in REFERENCE.findall(sentence)):
            target = self.resolve(other, found)
            if target and target not in seen:
                there, its_text = self.documented[target]
                same = next((item for item in parameters(there) if item.name == name), None)
                if same is not None and not self.about(same, there, its_text, seen | {target}):
                    return True
        return False

    def resolve(self, word: str, found: Any) -> str:
        """The public name that a word in the docstring of `found` means, "" if it means none."""
        candidates = (word, f"{found.__module__}.{word}", f"mat.{word}")
        known = [name for name in self.documented if name in candidates or name.rpartition(".")[2] == word]
        return next((name for name in known if self.documented[name][0] is not found), "")


def sentences(text: str) -> Iterator[str]:
    """The sentences and list items of a docstring before its examples, each on one line."""
    prose = re.split(r"^\s*>>> ", inspect.cleandoc(text), maxsplit=1, flags=re.M)[0]
    for part in re.split(r"\n\s*\n|\n\s*- ", prose):
        yield from re.split(r"(?<=\.)\s(?=[A-Z`])", " ".join(part.split()))


def quoted(names: Iterable[str], said: Iterable[str]) -> bool:
    return any(f"`{name}`" in text for name in names for text in said)


def quotes(name: str, sentence: str) -> bool:
    """Whether a sentence has a parameter in backquotes: alone, with a star, called or compared."""
    return re.search(rf"`\**{name}\b[^`]*`", sentence) is not None


def above(found: Any) -> list[str]:
    """The docstrings of the module of a callable and of its packages, which describe what many of their names share."""
    parts = found.__module__.split(".")
    known = [sys.modules.get(".".join(parts[:count])) for count in range(len(parts), 0, -1)]
    return [module.__doc__ or "" for module in known if module is not None and module.__name__ != __name__]


def parameters(found: Any) -> list[inspect.Parameter]:
    """The public parameters of a callable, with evaluated annotations where that is possible."""
    try:
        signature = inspect.signature(found, eval_str=True)
    except NameError:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # a module, an exception class without a constructor of its own, a TypedDict
        return []
    return [item for item in signature.parameters.values() if not item.name.startswith("_") and item.name != "self"]


def contains(hint: Any, test: Any) -> bool:
    """Whether a type, a member of a union or an item of a sequence passes a test. What callables take does not count."""
    if isinstance(hint, str):
        return False
    if test(hint):
        return True
    origin, items = typing.get_origin(hint), typing.get_args(hint)
    union = origin in (typing.Union, types.UnionType)
    if test is number and union and any(item in (str, Any) or function(item) for item in items):
        return False  # a value of any type, or one that a text can state
    if union or (inspect.isclass(origin) and issubclass(origin, abc.Collection)):
        return any(contains(item, test) for item in items)
    return False


def number(hint: Any) -> bool:
    return hint in (int, float, Fraction)


def mapping(hint: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    return inspect.isclass(origin) and issubclass(origin, abc.Mapping)


def function(hint: Any) -> bool:
    return typing.get_origin(hint) is abc.Callable or hint is abc.Callable


def returned(found: Any) -> Any:
    try:
        return inspect.signature(found, eval_str=True).return_annotation
    except NameError:
        return None


def several(hint: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    return function(hint) or (inspect.isclass(origin) and issubclass(origin, tuple | list | abc.Mapping | abc.Iterator))


@cache
def requirements() -> frozenset[str]:
    """The ids of docs/requirements.md; A1.1-A1.3 are three."""
    text = (Path(__file__).parents[2] / "docs/requirements.md").read_text(encoding="utf-8")
    found = set()
    for word in ", ".join(re.findall(r"^\| ([A-E][\w., -]+) \|", text, re.M)).split(", "):
        first, _, last = word.partition("-")
        stem = first.rstrip("0123456789")
        numbers = range(int(first[len(stem) :]), int(last[len(stem) :]) + 1) if last else [first[len(stem) :]]
        found |= {f"{stem}{number}" for number in numbers}
    return frozenset(found)


def raised(found: Any, level: int = 0, seen: frozenset[Any] = frozenset()) -> set[type[BaseException]]:
    """The exceptions that a callable raises, or one does that it calls, `LEVELS` calls deep, and does not catch."""
    if inspect.isclass(found):
        own = [vars(found)[name] for name in CONSTRUCTORS if name in vars(found)]
        return set().union(*(raised(method, level, seen) for method in own if inspect.isroutine(method)))
    made = inspect.unwrap(getattr(found, "__func__", found))
    if not isinstance(made, types.FunctionType) or made in seen or not _ours(made):
        return set()
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(made)))
    except (OSError, SyntaxError):  # made by a decorator, as the constructor of a dataclass
        return set()
    space = {**vars(builtins), **made.__globals__, **inspect.getclosurevars(made).nonlocals}
    errors: set[type[BaseException]] = set()
    body = tree.body[0].body if isinstance(tree.body[0], ast.FunctionDef | ast.AsyncFunctionDef) else tree.body
    for node, caught in _reached(body, space, ()):
        reached: set[type[BaseException]] = set()
        if isinstance(node, ast.Raise):
            named = _named(node.exc.func if isinstance(node.exc, ast.Call) else node.exc, space)
            if isinstance(named, types.FunctionType):
                named = typing.get_type_hints(named).get("return")
            if inspect.isclass(named) and issubclass(named, BaseException):
                reached = {named}
        elif level < LEVELS and not inspect.isclass(called := _named(node.func, space)):
            reached = raised(called, level + 1, seen | {made})
        errors |= {error for error in reached if not issubclass(error, caught)}
    return errors


def _ours(found: types.FunctionType) -> bool:
    return (found.__module__ or "").startswith(("mat.", "mat_", __name__))


def _reached(
    body: Iterable[ast.AST], space: Mapping[str, Any], caught: tuple[Any, ...]
) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """(a raise or a call, the exceptions caught around it) of a body, without the functions and classes defined in it."""
    for node in body:
        if isinstance(node, ast.Raise | ast.Call):
            yield node, caught
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.Try):
            types_ = [item.elts if isinstance(item, ast.Tuple) else [item] for h in node.handlers if (item := h.type)]
            here = tuple(c for each in types_ for item in each if inspect.isclass(c := _named(item, space)))
            yield from _reached(node.body, space, (*caught, *here))
            yield from _reached([*node.handlers, *node.orelse, *node.finalbody], space, caught)
        else:
            yield from _reached(ast.iter_child_nodes(node), space, caught)


def _named(node: ast.AST | None, space: Mapping[str, Any]) -> Any:
    """What a name, or an attribute of a module or class, means."""
    if isinstance(node, ast.Name):
        return space.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _named(node.value, space)
        return getattr(base, node.attr, None) if inspect.ismodule(base) or inspect.isclass(base) else None
    return None


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


@cache
def rules() -> Rules:
    return Rules(
        {name: (found, text) for module in MODULES for name, found, text in documented(importlib.import_module(module))}
    )


@pytest.mark.sweep("name", MODULES)
def test_a_public_name_says_what_it_takes_returns_and_raises_and_where_it_comes_from(name: str) -> None:
    public = [item for item, _, _ in documented(importlib.import_module(name))]
    assert [problem for item in public for problem in rules().problems(item)] == []


def refuse(name: str) -> None:
    if not name:
        raise mat.MatError("no name")


def quiet(names: Mapping[str, int], limit: int, choose: Callable[[str], bool]) -> tuple[str, ...]:
    """Choose among `names`, at `limit`, by `choose`.

    Source: A9.9.
    """
    refuse("".join(names))
    return tuple(name for name in names if choose(name))[:limit]


def clear(names: Mapping[str, int], limit: int, choose: Callable[[str], bool]) -> tuple[str, ...]:
    """Choose among names.

    `names`: name -> its count. `limit`: at most that many are chosen. `choose`: a function of a name that returns a bool.
    Returns the names. Raises `mat.MatError` for an empty name.

    Source: A1.2.
    """
    return quiet(names, limit, choose)


def other(names: Mapping[str, int], limit: int) -> None:
    """Show some of the `names`; the rest of the parameters are as in `clear`. A SpecError ends it."""


def test_a_docstring_that_lacks_a_shape_a_unit_an_error_or_a_source_is_reported() -> None:
    planted = Rules(
        {"mat.MatError": (mat.MatError, ""), **{each.__name__: (each, each.__doc__ or "") for each in (quiet, clear, other)}}
    )
    assert planted.problems("clear") == []
    assert planted.problems("quiet") == [
        "quiet: does not say that it raises mat.MatError",
        "quiet: states neither a unit nor a range of `names`",
        "quiet: does not say what the keys and values of `names` are",
        "quiet: states neither a unit nor a range of `limit`",
        "quiet: does not say what `choose` gets or returns",
        "quiet: does not say what it returns",
        "quiet: names A9.9, which is no requirement",
    ]
    assert planted.problems("other") == [
        "other: names SpecError, which is not public",
        "other: has no source",
    ]

"""A pytest plugin for `mat replay --as-test`: sets one test up without running it, and writes its parts as JSON."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.fixtures import FixtureFunctionDefinition

from mat.core.codec import encode
from mat.core.errors import SpecError
from mat.evidence.astest import Argument, CollectedTest, literal
from mat.monitor.contract import Contract

OUT: Final = "MAT_COLLECTED"
"""The environment variable that names the file to write."""
OPERATORS: Final = "MAT_OPERATORS"
"""The environment variable that lists the operators of the schedule, separated by commas."""
_READ: Final = ("mat_contracts", "mat_governance", "mat_instrument")
"""Fixtures that pytest-mat reads even if the test does not request them."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    yield
    path = os.environ.get(OUT)
    if path and isinstance(item, pytest.Function):
        Path(path).write_text(json.dumps(encode(_collected_test(item))), encoding="utf-8")


def _collected_test(item: pytest.Function) -> CollectedTest:
    function = item.originalname or item.name
    parts = item.module.__name__.split(".")
    by_name = item.config.getoption("importmode") != "importlib" and all(part.isidentifier() for part in parts)
    contracts, hooked = _contract_sources(item)
    governance, governed = _governance_source(item)
    asynchronous = inspect.iscoroutinefunction(inspect.unwrap(item.obj))
    shares_loop = asynchronous and any(map(_is_asynchronous, _definitions(item).values()))
    return CollectedTest(
        file=item.path.name,
        function=function,
        module=item.module.__name__ if by_name else "",
        owner=item.cls.__qualname__ if item.cls else "",
        asynchronous=asynchronous,
        shares_loop=shares_loop,
        loop_marks=tuple(_loop_marks(item)) if shares_loop else (),
        arguments=tuple(_arguments(item)),
        fixtures=tuple(sorted(_own_fixtures(item).values())),
        contracts=tuple(contracts),
        governance=governance,
        operators=_operators_source(item),
        instrumented=bool(_fixture_value(item, "mat_instrument")),
        armed=tuple(sorted(contract.id for contract in _armed_contracts(item))),
        problems=(*_problems(item), *hooked, *governed),
    )


def _fixture_value(item: pytest.Function, name: str) -> Any:
    return item.funcargs[name] if name in item.funcargs else item._request.getfixturevalue(name)


def _arguments(item: pytest.Function) -> Iterator[Argument]:
    values = _parameters(item)
    for name in item._fixtureinfo.argnames:
        value = item.funcargs[name]
        if name == "mat_run":
            yield Argument(name=name, kind="run")
        elif name == "request":
            yield Argument(name=name, kind="request")
        elif name in values:
            yield Argument(name=name, kind="value", text=literal(value) if _is_literal(value) else "")
        elif isinstance(value, Contract):
            yield Argument(name=name, kind="contract")
        elif name == "mat_contracts" or _are_contracts(value):
            yield Argument(name=name, kind="contracts")
        else:
            yield Argument(name=name, kind="fixture")


def _are_contracts(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(part, Contract) for part in value)


def _parameters(item: pytest.Function) -> dict[str, Any]:
    """Arguments that parametrization gives values directly, without a fixture."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return {}
    return {name: value for name, value in callspec.params.items() if name not in _fixture_names(item)}


def _fixture_names(item: pytest.Function) -> set[str]:
    """Names of real fixtures, without those that pytest generates for parametrized values."""
    return {
        name
        for name, definitions in item._fixtureinfo.name2fixturedefs.items()
        if definitions and definitions[-1].func.__name__ != "get_direct_param_fixture_func"
    }


def _definitions(item: pytest.Function) -> dict[str, Any]:
    """The fixtures that the test uses, including those that pytest-mat reads."""
    found = {name: item._fixtureinfo.name2fixturedefs[name][-1] for name in sorted(_fixture_names(item))}
    for name in _READ:
        definitions = item.session._fixturemanager.getfixturedefs(name, item)
        if definitions:
            found[name] = definitions[-1]
    return found


def _own_fixtures(item: pytest.Function) -> dict[str, str]:
    """Fixtures that the test's module defines or imports: fixture name -> attribute of the module."""
    attributes = {
        (value.name): attribute
        for attribute, value in vars(item.module).items()
        if isinstance(value, FixtureFunctionDefinition)
    }
    module = item.getparent(pytest.Module)
    assert module is not None
    return {
        name: attributes[name]
        for name, definition in _definitions(item).items()
        if definition.baseid == module.nodeid and name in attributes
    }


def _armed_contracts(item: pytest.Function) -> list[Contract]:
    given: list[Any] = list(item.funcargs.values())
    found = [value for value in given if isinstance(value, Contract)]
    found += [part for value in given if _are_contracts(value) for part in value]
    found += [part for part in _contract_list(_fixture_value(item, "mat_contracts")) if isinstance(part, Contract)]
    found += [part for mark in item.iter_markers("mat") for part in _contract_list(mark.kwargs.get("contracts", ()))]
    return found


def _contract_list(value: Any) -> list[Any]:
    return [value] if isinstance(value, Contract) else list(value or ())


def _contract_sources(item: pytest.Function) -> tuple[list[str], list[str]]:
    """Sources of contracts other than the test's arguments, as expressions; and problems with sources that have none."""
    sources, problems = [], []
    if "mat_contracts" not in item._fixtureinfo.argnames and _fixture_value(item, "mat_contracts"):
        sources.append('*request.getfixturevalue("mat_contracts")')
    places = [(getattr(item.module, "pytestmark", []), "original.pytestmark")]
    if item.cls is None:
        function = item.originalname or item.name
        places.append((getattr(item.obj, "pytestmark", []), f"original.{function}.pytestmark"))
    seen = 0
    for marks, text in places:
        for place, mark in enumerate(marks if isinstance(marks, list) else [marks]):
            mark = getattr(mark, "mark", mark)
            if mark.name == "mat" and mark.kwargs.get("contracts"):
                seen += 1
                index = f"[{place}]" if isinstance(marks, list) else ""
                sources.append(f'*{text}{index}.kwargs["contracts"]')
    if seen < sum(bool(mark.kwargs.get("contracts")) for mark in item.iter_markers("mat")):
        problems.append("a marker that is neither on the function nor on its module gives contracts")
    if any(item.ihook.pytest_mat_contracts(item=item)):
        problems.append("the hook pytest_mat_contracts gives contracts")
    return sources, problems


def _governance_source(item: pytest.Function) -> tuple[str, list[str]]:
    """The governance of the test's own variant as an expression; "" without governance."""
    from mat.govern.mediator import Governance
    from mat.govern.variant import Policy

    given = _fixture_value(item, "mat_governance")
    variant = next((mark.kwargs["governance"] for mark in item.iter_markers("mat") if mark.kwargs.get("governance")), "")
    text = 'request.getfixturevalue("mat_governance")'
    if given is None or variant == "none":
        return "", []
    if isinstance(given, Governance):
        return text, []
    if isinstance(given, Path | Policy):
        return f"{f'load({text})' if isinstance(given, Path) else text}.variant({literal(variant)})", []
    if isinstance(given, dict) and all(isinstance(value, Governance | None) for value in given.values()):
        return f"{text}[{literal(variant or next(iter(given)))}]", []
    return "", ["mat_governance maps names to policies"]


def _operators_source(item: pytest.Function) -> str:
    """An expression that gives the schedule's operators; "" if all of them are installed."""
    from mat.harness.execute import installed_operators

    wanted = set(filter(None, os.environ.get(OPERATORS, "").split(",")))
    installed = {operator.id for operator in installed_operators()}
    if wanted <= installed:
        return ""
    hooks = "request.config.hook.pytest_mat_operators(config=request.config)"
    own = f"[one for group in {hooks} for one in group or ()]"
    return f"[*mat_faults.operators(), *{own}]" if wanted & installed else own


def _problems(item: pytest.Function) -> Iterator[str]:
    if isinstance(item, _testcase_type()):
        yield "it is a method of unittest.TestCase"
        return
    if item.cls is not None:
        for name in ("setup_method", "teardown_method", "setup_class", "teardown_class"):
            if hasattr(item.cls, name):
                yield f"its class has {name}"
    module = item.getparent(pytest.Module)
    assert module is not None
    for name, value in _parameters(item).items():
        if not _is_literal(value):
            yield f"the value of its parameter {name!r} cannot be written as a literal"
    for name in getattr(getattr(item, "callspec", None), "params", {}):
        if name in _fixture_names(item):
            yield f"its fixture {name!r} is parametrized"
    own = _own_fixtures(item)
    early = {*_READ, *(each.name for each in _arguments(item) if each.kind in ("contract", "contracts"))}
    for name, definition in _definitions(item).items():
        if definition.baseid.startswith(f"{module.nodeid}::"):
            yield f"its fixture {name!r} is defined in the class"
        elif definition.baseid == module.nodeid and name not in own:
            yield f"its fixture {name!r} has no name in the module"
        if _is_asynchronous(definition) and name in early:
            yield f"its fixture {name!r} is asynchronous, and gives what a run needs before it begins"
        if "mat_run" in definition.argnames:
            yield f"its fixture {name!r} requests mat_run"


def _is_asynchronous(definition: Any) -> bool:
    function = inspect.unwrap(definition.func)
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


_LOOP_MARKS: Final = ("anyio", "asyncio", "trio")
"""The markers by which plugins run a coroutine."""


def _loop_marks(item: pytest.Function) -> Iterator[str]:
    """The markers as expressions; one whose arguments are no literals is left to the configuration."""
    for mark in item.iter_markers():
        if mark.name in _LOOP_MARKS and all(map(_is_literal, (*mark.args, *mark.kwargs.values()))):
            given = [*map(literal, mark.args), *(f"{name}={literal(value)}" for name, value in mark.kwargs.items())]
            yield f"pytest.mark.{mark.name}" + (f"({', '.join(given)})" if given else "")


def _testcase_type() -> type[Any]:
    from _pytest.unittest import TestCaseFunction

    return TestCaseFunction


def _is_literal(value: Any) -> bool:
    try:
        literal(value)
    except SpecError:
        return False
    return True

"""The inputs of `mat check`: contracts named as `module:name`, and stored traces in a file of any known format."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

from mat.core.errors import MatError, SpecError, did_you_mean, raised_text
from mat.core.record import Record
from mat.core.value import EMPTY
from mat.evidence.jsonl import Stored
from mat.monitor.contract import Contract

if TYPE_CHECKING:
    from mat.adapters.importers.base import Format

__all__ = ["check_format", "contracts_from", "function_from", "stored_traces"]

_REPLAY: Final = "replay"
_MAT: Final = "mat"


# -- contracts --------------------------------------------------------------------------------------------------------


def contracts_from(names: Sequence[str]) -> tuple[Contract, ...]:
    """The contracts that `module:name` names, in order; modules are also searched in the current directory.

    A name is a contract, a list or tuple of contracts, or a function that needs no arguments and returns either. SpecError
    says what the name is instead, and suggests similar names.
    """
    found: list[Contract] = []
    for name in names:
        found += [contract for contract in _contracts(name) if not any(contract is known for known in found)]
    return tuple(found)


def _contracts(name: str) -> tuple[Contract, ...]:
    fix = "name a contract, a list of contracts, or a function without arguments that returns them"
    example = "mypackage.contracts:refunds_are_verified"
    value = _resolve(name, option="--contracts", example=example, kind="contracts", fits=_may_give_contracts, fix=fix)
    return _as_contracts(value, name, call=True)


def function_from(name: str, *, option: str, example: str) -> Callable[..., Any]:
    """The function that `module:name` names on the command line; modules are also searched in the current directory."""
    fix = "name a function"
    value = _resolve(name, option=option, example=example, kind="functions", fits=inspect.isfunction, fix=fix)
    if not callable(value):
        raise SpecError(what=f"{option} {name!r} is {type(value).__name__}, not a function", fix=fix)
    return cast("Callable[..., Any]", value)


def _resolve(name: str, *, option: str, example: str, kind: str, fits: Callable[[object], bool], fix: str) -> Any:
    """The object that `module:name` on the command line names; modules are also searched in the current directory.

    `kind`: what the option wants, in the plural; `fits`: whether a value of the module may be meant. Both are for the error.
    """
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does; the installed command does not
    module_name, colon, attribute = name.rpartition(":")
    if not colon or not module_name or not attribute:
        raise SpecError(what=f"{option} {name!r} is not of the form module:name", fix=f"write {example}")
    if "/" in module_name or "\\" in module_name or module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").replace("\\", "/").strip("./").replace("/", ".")
        raise SpecError(
            what=f"{option} {name!r} names a file", why=f"{kind} are imported by module name",
            fix=f"write {dotted}:{attribute}",
        )  # fmt: skip
    module = _module(module_name)
    if attribute not in vars(module) and not hasattr(module, attribute):
        offered = _fitting_names(module, fits)
        raise SpecError(
            what=f"module {module_name} has no {attribute!r}{did_you_mean(attribute, offered or vars(module))}",
            why=f"it contains {', '.join(offered) or f'no {kind}'}",
            fix=fix,
        )
    return getattr(module, attribute)


def _fitting_names(module: ModuleType, fits: Callable[[object], bool]) -> list[str]:
    """The public names of a module whose values fit, without functions of other modules."""

    def is_imported(value: object) -> bool:
        return inspect.isfunction(value) and value.__module__ != module.__name__

    found = vars(module).items()
    return sorted(name for name, value in found if not name.startswith("_") and fits(value) and not is_imported(value))


def _may_give_contracts(value: object) -> bool:
    """Whether `mat check` accepts a value: a contract, a list with one, or a function, which is called."""
    if isinstance(value, list | tuple):
        return any(isinstance(item, Contract) for item in value)
    return isinstance(value, Contract) or inspect.isfunction(value)


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise _import_error(name, error) from None
        here = sorted(item.name for item in pkgutil.iter_modules([str(Path.cwd())]))
        close = did_you_mean(name, [*here, "mat_contracts"])
        raise SpecError(
            what=f"no module named {error.name!r}{close}",
            why=f"it is neither installed nor in {Path.cwd()}",
            fix="run from the folder that contains it, or give its full dotted name",
        ) from None
    except Exception as error:  # a user's module can fail in any way while it is imported
        raise _import_error(name, error) from None


def _import_error(name: str, error: Exception) -> SpecError:
    return SpecError(
        what=f"module {name} cannot be imported: {type(error).__name__}: {error}", fix="correct the module", where=_place(error)
    )


def _place(error: Exception) -> str:
    """The innermost line that raised an exception; for a syntax error, the line with the error."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _as_contracts(value: Any, name: str, *, call: bool) -> tuple[Contract, ...]:
    if isinstance(value, Contract):
        return (value,)
    if isinstance(value, list | tuple):
        wrong = [item for item in value if not isinstance(item, Contract)]
        if wrong or not value:
            what = f"{name} contains {_type_text(wrong[0])}, which is not a contract" if wrong else f"{name} is empty"
            raise SpecError(what=what, fix="list contracts made by templates or decorators such as mat.contract")
        return tuple(value)
    if type(value).__name__ == "FixtureFunctionDefinition":
        raise SpecError(
            what=f"{name} is a pytest fixture",
            why="only pytest can call a fixture",
            fix="move its body to a plain function, name that function here, and call it in the fixture",
        )
    if call and callable(value):
        return _as_contracts(_call(value, name), f"what {name}() returned", call=False)
    raise SpecError(
        what=f"{name} is not a contract: {_type_text(value)}",
        fix="name a contract, a list of contracts, or a function without arguments that returns them",
    )


def _call(function: Any, name: str) -> Any:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = ()  # type: ignore[assignment]
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [item.name for item in parameters if item.default is inspect.Parameter.empty and item.kind not in free]
    if needed:
        module, _, attribute = name.rpartition(":")
        raise SpecError(
            what=f"{name} needs arguments: {', '.join(needed)}",
            why="a function named here is called without arguments",
            fix=f"in a module of your own, write: from {module} import {attribute}; mine = {attribute}({needed[0]}=...);"
            " then name mine",
        )
    try:
        return function()
    except MatError:
        raise
    except Exception as error:  # a user's function can fail in any way
        raise SpecError(what=f"{name}() {raised_text(error)}", fix="correct the function", where=_place(error)) from None


def _type_text(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


# -- traces -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replayed:
    """The trace of a replay file. It counts as finished, because it was judged at its end when it was recorded."""

    id: str
    records: tuple[Record, ...]
    labels: Mapping[str, Any] = EMPTY
    finished: bool = True


def check_format(name: str | None) -> None:
    """Raise SpecError if the named format is unknown."""
    if name is None:
        return
    if ":" in name:
        _imported_format(name)
        return
    from mat.adapters.importers.reading import formats

    known = dict.fromkeys((_REPLAY, _MAT, *(item.name for item in formats())))
    if name not in known:
        raise SpecError(
            what=f"unknown format: {name!r}{did_you_mean(name, known)}",
            fix=f"use one of {', '.join(known)}, or module:name for a format of your own",
        )


def _imported_format(name: str) -> Format:
    """The format that `module:name` names. The name comes from the command line, never from a file."""
    from mat.adapters.importers.base import Format

    def is_format(value: object) -> bool:
        return isinstance(value, Format)

    fix = "name a mat.adapters.importers.Format"
    given = _resolve(name, option="--format", example="mypackage.formats:FORMAT", kind="formats", fits=is_format, fix=fix)
    if not isinstance(given, Format):
        raise SpecError(what=f"{name} is not a format: {_type_text(given)}", fix=fix)
    return given


def stored_traces(path: Path, format: str | None = None) -> Iterator[Stored]:
    """The traces of a file, one after another: a replay file, our stream format, or a format that an importer knows.

    `format` is the name of a known format, or `module:name`. MatError if the file cannot be read, and later at the first
    broken row, with `file:line`.
    """
    from mat.adapters.importers.reading import read_traces
    from mat.evidence import jsonl, replay_file

    if format == _REPLAY or (format is None and path.name.endswith(replay_file.SUFFIX)):
        replay = replay_file.read(path)
        run = replay.counterexample.run
        labels = {"format": _REPLAY, "origin": str(path), "termination": run.termination, "success": run.success}
        yield _Replayed(id=replay.item, records=run.records, labels=labels)
    elif format == _MAT or (format is None and jsonl.recognises(path)):
        yield from jsonl.read(path)
    else:
        yield from read_traces(path, _imported_format(format) if format is not None and ":" in format else format)

"""Rebind names that were imported before a run, such as `sleep` by `from time import sleep`, to our replacements."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal

from mat.kernel import locks
from mat.kernel.nodes import attributes_of

_SEEN: dict[str, int] = {}
_NEWEST: list[object] = [None, 0]
_PATHS: Final = sysconfig.get_paths()
_LIBRARIES: Final = tuple(path + os.sep for key in ("purelib", "platlib") if (path := _PATHS.get(key)))
_ZIPPED: Final = tuple(path + os.sep for path in sys.path if re.fullmatch(r"python\d+\.zip", os.path.basename(path)))
"""Where an interpreter that is part of an application, as on Windows, has its standard library."""
_STANDARD: Final = (*(path + os.sep for key in ("stdlib", "platstdlib") if (path := _PATHS.get(key))), *_ZIPPED)
_INSTALLED: Final = tuple(f"{os.sep}{folder}{os.sep}" for folder in ("site-packages", "dist-packages"))
HARNESS: Final = frozenset(
    ("mat", "mat_contracts", "mat_faults", "mat_search", "mat_study", "pytest_mat", "_pytest", "pytest", "pluggy", "xdist",
     "execnet", "pytest_timeout", "pytest_asyncio", "hypothesis", "coverage", "_hypothesis_pytestplugin", "time_machine",
     "freezegun", "pytest_cov", "pytest_rerunfailures", "pexpect", "ptyprocess", "opentelemetry")
)  # fmt: skip
"""Packages that keep the machine's time, because they run the test and not the agent."""
_CLUSTERS: Final = frozenset(("distributed", "tornado"))
"""Packages whose own threads schedule work by the wall clock, some of it after the run; in run time it would be late."""


def by_the_machine(module: str) -> bool:
    """Whether a module uses the machine's wall clock in threads that do not belong to the run."""
    package = module.partition(".")[0]
    return package in _CLUSTERS or package in HARNESS


def origin(path: str) -> Literal["library", "standard", "project"]:
    """Where code comes from, by the path of its file: an installed package, the standard library, or the user's project."""
    if path.startswith(_LIBRARIES) or any(folder in path for folder in _INSTALLED):
        return "library"
    return "standard" if path.startswith(_STANDARD) else "project"


def rebind(replacements: Mapping[int, Any]) -> None:
    """In modules not seen before, rebind names of replaced objects (keys are their ids), and adopt the user's own locks."""
    last = sys.modules.get(next(reversed(sys.modules)))
    if _NEWEST[0] is last and _NEWEST[1] == len(sys.modules):
        return
    _NEWEST[:] = [last, len(sys.modules)]
    for name, module in list(sys.modules.items()):
        if _SEEN.get(name) == id(module):
            continue
        _SEEN[name] = id(module)
        path = getattr(module, "__file__", None) or ("<input>" if name == "__main__" else "")
        if not path or name.partition(".")[0] in HARNESS:
            continue
        kind = origin(path)
        if kind != "standard":
            _in_module(module, replacements, adopt=kind == "project")


def _in_module(module: Any, replacements: Mapping[int, Any], *, adopt: bool) -> None:
    for attribute, value in list(vars(module).items()):
        replacement = replacements.get(id(value))
        if replacement is None and adopt:
            replacement = locks.adopted(value)
            if replacement is None and _is_of(type(value), module):
                _in_instance(value)
        if replacement is not None:
            setattr(module, attribute, replacement)
        if adopt and issubclass(type(value), type) and _is_of(value, module):
            _in_class(value)


def _is_of(kind: type, module: Any) -> bool:
    """Whether a class is defined in a module; a class of classes may answer any question with an error."""
    try:
        return bool(kind.__module__ == module.__name__)
    except Exception:
        return False


def _in_class(kind: type) -> None:
    for attribute, value in list(vars(kind).items()):
        replacement = locks.adopted(value)
        if replacement is not None:
            setattr(kind, attribute, replacement)
        elif type(value) is cached_property:  # before 3.12 it has a lock
            held = locks.adopted(getattr(value, "lock", None))
            if held is not None:
                value.lock = held  # type: ignore[attr-defined]


def _in_instance(thing: Any) -> None:
    """Adopt the locks of a module-level instance of the module's own class."""
    held = attributes_of(thing) or {}
    for attribute, value in list(held.items()):
        replacement = locks.adopted(value)
        if replacement is not None:
            held[attribute] = replacement


def adopt_handlers() -> None:
    """Adopt the locks of logging handlers: a handler holds its lock while it formats and writes, which may wait."""
    logging = sys.modules.get("logging")
    for reference in list(getattr(logging, "_handlerList", ())):
        handler = reference()
        replacement = locks.adopted(getattr(handler, "lock", None))
        if replacement is not None:
            handler.lock = replacement

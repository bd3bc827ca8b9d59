"""Which code calls: the drawing place of a call of `random`, `uuid`, `secrets` and the like, and the agent's line of a step.

A place names the function that draws and the libraries through which it draws, never a file or a line: what moves to another
file draws the same. The user's project is one library without a name. Draws of one place do not shift those of another, so
a library that draws once in a process, at its first use, changes no other draw.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from types import CodeType, FrameType
from typing import Final, TypeAlias

from mat.kernel import names

ID_PACKAGES: Final = frozenset(("uuid6", "uuid_extensions", "uuid_utils", "fastuuid"))
"""Packages that make ids for others: their callers draw, as with the standard library."""
_SKIPPED: Final = "-"
_PROJECT: Final = ""
_HARNESS: Final = "!"
_OWNERS: Final[dict[str, str]] = {"mat.kernel.callers": _SKIPPED, "mat.kernel.randomness": _SKIPPED}
"""Who owns a module, by its name: a library, or one of the three marks above."""
_FUNCTIONS: Final[dict[str, str]] = {}


def place_of(frame: FrameType | None) -> str:
    """Return the drawing place `libraries:functions` of a call in that frame; the project draws at `:function`.

    The standard library is skipped: `uuid.uuid4` called by a library is a draw of that library. A library that draws is
    named with its own callers up to the project: two libraries that draw through pydantic have different places.
    """
    libraries = functions = last = ""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<"):  # generated, as by dataclasses; frozen; typed in
            frame = frame.f_back
            continue
        module = frame.f_globals.get("__name__")
        owner = _OWNERS.get(module) if type(module) is str else None
        if owner is None:
            owner = _owner_of(frame, module)
        if owner == _PROJECT:
            function = _outermost(frame.f_code)
            return f"{libraries}{functions}<{function}" if libraries else function
        if owner[0] == _HARNESS:
            return f"{libraries}{functions}" if libraries else f"{owner}:"
        if owner != _SKIPPED and owner != last:
            if not libraries:
                libraries, functions = owner, _outermost(frame.f_code)
            else:
                libraries = f"{libraries}<{owner}"
            last = owner
        frame = frame.f_back
    return f"{libraries}{functions}" if libraries else ":"


CallPlace: TypeAlias = tuple[str, int]
"""The file of a frame and the line that it is at."""


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return os.sep


_BEGUN_IN: Final = _working_folder()


def agent_place(frame: FrameType | None) -> CallPlace | None:
    """Where the agent is: the innermost line of the project that called, through whatever libraries; None without one."""
    while frame is not None:
        module = frame.f_globals.get("__name__")
        owner = _OWNERS.get(module) if type(module) is str else None
        if owner is None:
            owner = _owner_of(frame, module)
        if owner == _PROJECT:
            name = frame.f_code.co_filename
            if not name.startswith("<"):
                return name, frame.f_lineno
        frame = frame.f_back
    return None


def agent_frame(frame: FrameType | None) -> FrameType | None:
    """The frame of `agent_place`."""
    place = agent_place(frame)
    while frame is not None and (frame.f_code.co_filename, frame.f_lineno) != place:
        frame = frame.f_back
    return frame


def place_texts(places: Iterable[CallPlace | None]) -> tuple[str, ...]:
    """Places as `file:line`, each file relative to the working folder or else with the name of its folder; "" for None."""
    folder = _working_folder()
    return tuple(["" if place is None else _place_text(place, folder) for place in places])


@lru_cache(maxsize=10_000)
def _place_text(place: CallPlace, folder: str) -> str:
    path, line = place
    for above in (folder, _BEGUN_IN):
        if path.startswith(above + os.sep):
            return f"{path[len(above) + 1 :]}:{line}"
    above, name = os.path.split(path)
    return f"{os.path.basename(above)}/{name}:{line}"


def libraries_of(place: str) -> str:
    """The libraries of a place; "" for the project."""
    return place.partition(":")[0]


def _outermost(code: CodeType) -> str:
    """`:name` of the outermost function around the code, however it is nested in it and whatever the version of Python."""
    name = code.co_qualname
    found = _FUNCTIONS.get(name)
    if found is None:
        outer = name.partition(".<locals>")[0]
        found = _FUNCTIONS[name] = ":<module>" if outer.startswith("<") else f":{outer}"
    return found


def _owner_of(frame: FrameType, module: object) -> str:
    name = module if isinstance(module, str) else ""
    package = name.partition(".")[0]
    path = frame.f_globals.get("__file__") or frame.f_code.co_filename
    if package in names.HARNESS:
        owner = f"{_HARNESS}{package}"
    elif package in ID_PACKAGES or not isinstance(path, str):
        owner = _SKIPPED
    else:
        kind = names.origin(path)
        owner = _PROJECT if kind == "project" else _SKIPPED if kind == "standard" else package
    if name:
        _OWNERS[name] = owner
    return owner

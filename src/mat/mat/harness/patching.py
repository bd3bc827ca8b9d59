"""Instrument code without changing its source: `mat.patch("shop.api.Client.refund", effect="write")`."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from mat.boundary.instrument import instrument
from mat.core.errors import SpecError
from mat.core.record import ActionKind
from mat.core.site import Boundary

_KINDS: dict[str, tuple[ActionKind, Boundary]] = {
    "tool": ("tool_call", "service"),
    "retriever": ("retrieval", "retrieval"),
    "model": ("model_call", "model"),
}


_INHERITED: Final = object()
_PATCHED: Final[dict[str, tuple[str, Any]]] = {}
"""The functions that were patched in this process, by their path: what contracts call each, and the function itself."""


class Patch:
    """The patched attributes: (owner, attribute, original); `undo` restores them, and deletes those that were inherited."""

    def __init__(self, undo: Iterable[tuple[Any, str, Any]]) -> None:
        self._undo = tuple(undo)

    def undo(self) -> None:
        for owner, attribute, before in self._undo:
            if before is _INHERITED:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, before)


def patch(target: str, *, kind: str = "tool", name: str = "", **options: Any) -> Patch:
    """Instrument an importable function, method or class without changing its source.

    `target`: its dotted path, such as "shop.api.Client.refund". `kind`: "tool" (default), "retriever" or "model". `name`: what
    contracts and reports call it, by default the last part of the path. `options`: those of `mat.tool`, `mat.retriever` or
    `mat.model`. Names that other modules imported before are not replaced. Returns a Patch; its `undo()` restores the
    original. In tests, `mat_instrument` (a fixture, or an ini option) does both. Raises `mat.MatError` for an unknown kind, a
    path that leads nowhere, and invalid options.

    >>> import posixpath
    >>> patch = mat.patch("posixpath.basename", name="basename")
    >>> with mat.run() as run:
    ...     posixpath.basename("/tmp/a.txt")
    'a.txt'
    >>> run.trace[0].site
    'main/service:basename#1'
    >>> patch.undo()

    Source: A1.1, A1.2.
    """
    if kind not in _KINDS:
        raise SpecError(what=f"mat.patch: unknown kind: {kind!r}", fix=f"use one of {', '.join(_KINDS)}")
    owner, attribute = _resolve(target)
    own = attribute in getattr(owner, "__dict__", {attribute: None})
    original = inspect.getattr_static(owner, attribute)
    if not own and not isinstance(owner, type):
        original = getattr(owner, attribute)  # a method of one object, bound to it
    action_kind, boundary = _KINDS[kind]
    if kind != "tool":
        options.setdefault("effect", "read")
    if kind == "model":
        options.setdefault("tape", "external")
        options.setdefault("record", {"reply": "keep", "*": "hash"})
    members = dict(vars(original)) if isinstance(original, type) else {}
    wrapped = instrument(original, kind=action_kind, boundary=boundary, name=name or attribute, options=options)
    if isinstance(original, type):  # a class is instrumented in place, method by method
        return Patch((original, name, before) for name, before in members.items() if vars(original)[name] is not before)
    setattr(owner, attribute, wrapped)
    _PATCHED[target] = (name or attribute, original)
    return Patch([(owner, attribute, original if own else _INHERITED)])


def overlooked(called: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """The patched functions that nobody called, and the names that hold the function itself: what calls it there is not seen.

    `called`: the names of the ports that were called.
    """
    for target, (port, original) in _PATCHED.items():
        holders = [name for name in _holders(original) if name != target] if port not in called else []
        if holders:
            yield target, holders


def _holders(function: Any) -> Iterator[str]:
    """The globals of modules that are this function, or a collection with it."""
    for module, namespace in sorted(
        (name, vars(module)) for name, module in sys.modules.items() if hasattr(module, "__dict__")
    ):
        for name, value in list(namespace.items()):
            members = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
            if value is function or any(member is function for member in list(members)):
                yield f"{module}.{name}"


def _resolve(target: str) -> tuple[Any, str]:
    parts = target.split(".")
    if len(parts) < 2:
        raise SpecError(what=f"mat.patch: {target!r} is not a dotted path", fix='write "package.module.name"')
    for cut in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:cut])
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is not None and not module_name.startswith(error.name):
                raise
            continue
        for part in parts[cut:-1]:
            if not hasattr(found, part):
                raise SpecError(
                    what=f"mat.patch: {module_name} has no {part!r}", why=f"the target is {target!r}", fix="check the path"
                )
            found = getattr(found, part)
        if not hasattr(found, parts[-1]):
            raise SpecError(
                what=f"mat.patch: {'.'.join(parts[:-1])} has no {parts[-1]!r}",
                why=f"the target is {target!r}",
                fix="check the path",
            )
        return found, parts[-1]
    raise SpecError(what=f"mat.patch: no module of {target!r} can be imported", fix="check the path and the installation")


@contextmanager
def patched(targets: Mapping[str, Mapping[str, Any]] | Collection[str]) -> Iterator[None]:
    """Patch several targets inside a block, as the `mat_instrument` fixture says: options by target, or targets alone."""
    given = (
        targets if isinstance(targets, Mapping) else {each: {} for each in ([targets] if isinstance(targets, str) else targets)}
    )
    patches = []
    try:
        for target, options in given.items():
            patches.append(patch(target, **options))
        yield
    finally:
        for item in reversed(patches):
            item.undo()

"""Handles: short names that agents pass on instead of artifacts, which are stored byte by byte.

A port with the store gets the artifact: `@HANDLE:name` in its arguments is replaced when the port is called, after
governance, faults and tape. So no tool interface, middleware or language model on the way can damage the artifact, and
the trace contains the handle.

Source: seed 003, appendix H.
"""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final
from weakref import WeakKeyDictionary

from mat.boundary.session import active
from mat.core.errors import SpecError, did_you_mean

PREFIX: Final = "@HANDLE:"
_NAME: Final = re.compile(r"[A-Za-z0-9_\-]+")
_HANDLE: Final = re.compile(re.escape(PREFIX) + r"([A-Za-z0-9_\-]+)")


class UnknownHandle(LookupError):  # noqa: N818
    """An agent passed on a handle that is not stored; a `LookupError` that names the handles there are.

    >>> store = mat.artifact.handles()
    >>> store.put("url_1", "https://files.example.org/a?sig=9f")
    '@HANDLE:url_1'
    >>> store["@HANDLE:url_2"]
    Traceback (most recent call last):
        ...
    mat.boundary.handles.UnknownHandle: unknown handle: @HANDLE:url_2; did you mean '@HANDLE:url_1'?

    Source: D5.
    """


class Handles:
    """A store of artifacts by name; `mat.artifact.handles` makes one. Each run has its own contents, and so has code outside
    runs.

    `put(name, text)` stores a text and returns its handle. `store[handle]` is the text; UnknownHandle if none is stored.
    `resolve(value)` replaces the handles in a value by their texts. `put` raises `mat.MatError` for anything but a string, and
    for a name of other characters than letters, digits, _ and -.

    >>> store = mat.artifact.Handles()
    >>> handle = store.put("url_1", "https://files.example.org/a?sig=9f")
    >>> handle, store.resolve({"url": handle})
    ('@HANDLE:url_1', {'url': 'https://files.example.org/a?sig=9f'})

    Source: D5.
    """

    def __init__(self) -> None:
        self._outside: dict[str, str] = {}
        self._within: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()

    def put(self, name: str, text: str) -> str:
        """Store a text and return its handle. An existing name gets the new text, as for a renewed token."""
        problems = []
        if not isinstance(text, str):
            problems.append(f"{type(text).__qualname__} is not a string")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            problems.append(f"{name!r} is not a name of letters, digits, _ and -")
        if problems:
            raise SpecError(what=f"handle {name!r}: {'; '.join(problems)}", fix='write handles.put("url_1", url)')
        self._texts()[name] = text
        return PREFIX + name

    def __getitem__(self, handle: str) -> str:
        """The text behind a handle, which may be given with or without its prefix."""
        name, texts = handle.removeprefix(PREFIX), self._texts()
        if name not in texts:
            stored = [PREFIX + item for item in sorted(texts)]
            known = f"; choose from {', '.join(stored)}" if stored else "; none is stored"
            raise UnknownHandle(f"unknown handle: {PREFIX}{name}{did_you_mean(PREFIX + name, stored) or known}")
        return texts[name]

    def __contains__(self, handle: str) -> bool:
        return handle.removeprefix(PREFIX) in self._texts()

    def __iter__(self) -> Iterator[str]:
        return iter([PREFIX + name for name in self._texts()])

    def __len__(self) -> int:
        return len(self._texts())

    def resolve(self, value: Any) -> Any:
        """Replace the handles in a value by their texts: in strings, lists, tuples, sets and the values of mappings.

        A value without handles is returned itself, and nothing is changed in place. UnknownHandle if a handle is not stored.
        """
        if isinstance(value, str):
            return _HANDLE.sub(lambda found: self[found[1]], value) if PREFIX in value else value
        if isinstance(value, dict):
            new = {key: self.resolve(item) for key, item in value.items()}
            return value if all(new[key] is item for key, item in value.items()) else _collection_like(value, new)
        if isinstance(value, list | tuple | set | frozenset):
            items = list(value)
            found = [self.resolve(item) for item in items]
            return (
                value if all(one is other for one, other in zip(found, items, strict=True)) else _collection_like(value, found)
            )
        return value

    def around(self, callee: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a callable so that it gets the artifacts instead of the handles."""

        @functools.wraps(callee)
        def resolved(*args: Any, **kwargs: Any) -> Any:
            return callee(*self.resolve(args), **self.resolve(kwargs))

        return resolved

    def _texts(self) -> dict[str, str]:
        session = active()
        return self._outside if session is None else self._within.setdefault(session, {})


def _collection_like(value: Any, items: Any) -> Any:
    """A collection of the same class with other items, or a plain one if the class cannot be made from items."""
    kind = type(value)
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(items)
    if isinstance(value, OrderedDict) or kind in (list, tuple, set, frozenset, dict):
        return kind(items)
    plain: Any = next(known for known in (dict, list, tuple, frozenset, set) if isinstance(value, known))
    return plain(items)


def handles() -> Handles:
    """Make a store of byte-exact artifacts; give it to the ports that may use them: `@mat.tool(handles=store)`.

    The agent passes on handles such as `@HANDLE:url_1`, and the port gets the artifacts. Returns a Handles.

    >>> store = mat.artifact.handles()
    >>> @mat.tool(handles=store)
    ... def download(url): return f"fetched {url}"
    >>> download(store.put("url_1", "https://files.example.org/a?sig=9f"))
    'fetched https://files.example.org/a?sig=9f'

    Source: D5.
    """
    return Handles()

"""The canonical text of a value and its digest. Typed, sorted, independent of repr and of the hash seed."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from typing import Any

from mat.core.errors import CodecError

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """JSON data for a recorded value: bytes and non-finite floats become tagged objects, keys that look like tags are escaped."""
    kind = type(value)
    if kind is str or kind is int or value is None or kind is bool:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is bytes:
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return {("$" + key if key.startswith("$") else key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, frozenset | set):
        return {"$set": sorted((plain(item) for item in value), key=_encoder.encode)}
    return _instance(value)


def _instance(value: Any) -> Any:
    """Monitor states may also hold enums and frozen dataclasses."""
    import dataclasses
    import enum

    if isinstance(value, enum.Enum):
        return {"$enum": [type(value).__qualname__, plain(value.value)]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"$data": [type(value).__qualname__, fields]}
    for base in (bool, int, float, str, bytes):
        if isinstance(value, base):
            return plain(base(value))
    raise CodecError(
        what=f"no canonical form for {type(value).__module__}.{type(value).__qualname__}",
        why="digests are typed and never use repr, which may hold an address",
        fix="use plain data, tuples, frozensets, enums or frozen dataclasses",
    )


def canonical(value: Any) -> str:
    """Canonical JSON text: sorted keys, no spaces, typed."""
    kind = type(value)
    if kind is str or kind is int or value is None:
        return _encoder.encode(value)
    try:  # one pass in C where the value is plain JSON without tag-like keys
        text = _encoder.encode(value)
    except (TypeError, ValueError):
        return _encoder.encode(plain(value))
    if "$" in text or "set(" in text:
        return _encoder.encode(plain(value))
    return text


def digest(value: Any) -> str:
    """SHA-256 of the canonical text, in hex."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()


def chain(previous: str, value: Any) -> str:
    """The next link of a hash chain."""
    return hashlib.sha256((previous + canonical(value)).encode("utf-8", "surrogatepass")).hexdigest()

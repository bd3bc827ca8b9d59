"""Tool arguments and reports as the document parses them: JSON first, then one deterministic repair; a small schema check."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from mat.core.value import FrozenDict, Value, snapshot_arguments

_DEPTH: Final = 8
"""The depth to which a report is searched for stringified JSON."""
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list, tuple),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def parsed(raw: Value) -> FrozenDict | None:
    """Step one: what plain JSON gives, None if that is not an object."""
    if isinstance(raw, dict):
        return raw if isinstance(raw, FrozenDict) else snapshot_arguments(raw, "arguments")
    if not isinstance(raw, str):
        return None
    try:
        found = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return snapshot_arguments(found, "arguments") if isinstance(found, dict) else None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def repaired(raw: Value) -> FrozenDict | None:
    """Step two: the object after repair. Code fences, text around it, single quotes, bare keys, trailing commas, open braces.

    Makes only unambiguous repairs, all of which jsonrepair makes too; None for the rest.
    """
    if not isinstance(raw, str) or "{" not in raw:
        return None
    text = _extracted(raw)
    for candidate in (text, _requoted(text)):
        candidate = re.sub(r",(\s*[}\]])", r"\1", candidate)
        candidate = re.sub(r"([{,]\s*)([A-Za-z_]\w*)(\s*:)", r'\1"\2"\3', candidate)
        found = parsed(candidate)
        if found is not None:
            return found
    return None


def _requoted(text: str) -> str:
    return text.replace("'", '"') if '"' not in text else text


def _extracted(raw: str) -> str:
    """The text from the first brace to its partner; closes everything that is still open at the end."""
    start = raw.index("{")
    closing: list[str] = []
    quoted = escaped = False
    for index in range(start, len(raw)):
        char = raw[index]
        if escaped:
            escaped = False
        elif quoted:
            escaped = char == "\\"
            quoted = char != '"'
        elif char == '"':
            quoted = True
        elif char in "{[":
            closing.append("}" if char == "{" else "]")
        elif char in "}]":
            if not closing or closing.pop() != char:
                return raw[start:]
            if not closing:
                return raw[start : index + 1]
    return raw[start:].rstrip().rstrip(",") + ('"' if quoted else "") + "".join(reversed(closing))


def schema_problem(value: Any, schema: Any, where: str = "") -> str:
    """The first way in which a value does not fit a schema, empty where it does. Reads type, properties, required,
    items, enum, const and additionalProperties=false; ignores everything else in a schema."""
    if not isinstance(schema, Mapping):
        return ""
    wanted = schema.get("type")
    kinds = tuple(kind for name in ([wanted] if isinstance(wanted, str) else wanted or ()) for kind in _TYPES.get(name, ()))
    if kinds and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
        return f"{where or 'the value'} is no {wanted}"
    if "const" in schema and value != schema["const"]:
        return f"{where or 'the value'} is not {schema['const']!r}"
    if isinstance(schema.get("enum"), list | tuple) and value not in schema["enum"]:
        return f"{where or 'the value'} is none of {list(schema['enum'])}"
    if isinstance(value, Mapping):
        return _object_problem(value, schema, where)
    if isinstance(value, list | tuple) and "items" in schema:
        problems = (schema_problem(item, schema["items"], f"{where}[{index}]") for index, item in enumerate(value))
        return next((problem for problem in problems if problem), "")
    return ""


def _object_problem(value: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> str:
    known = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in value:
            return f"{where}.{name} is missing".lstrip(".")
    if schema.get("additionalProperties") is False:
        extra = sorted(set(value) - set(known))
        if extra:
            return f"{where}.{extra[0]} is not known".lstrip(".")
    for name, part in known.items():
        problem = schema_problem(value[name], part, f"{where}.{name}".lstrip(".")) if name in value else ""
        if problem:
            return problem
    return ""


def unfolded(value: Any, schema: Any, depth: int = _DEPTH) -> Any:
    """A report's content with stringified JSON parsed where the schema wants an object or an array (the repair loop of 1)."""
    if not isinstance(schema, Mapping) or depth == 0:
        return value
    if isinstance(value, str) and schema.get("type") in ("object", "array"):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return unfolded(found, schema, depth - 1) if isinstance(found, dict | list) else value
    if isinstance(value, Mapping):
        parts = schema.get("properties") or {}
        return {name: unfolded(item, parts.get(name), depth - 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [unfolded(item, schema.get("items"), depth - 1) for item in value]
    return value

"""Layered configuration: six sources, deep merge for three keys, placeholders, queue bindings. Every load is noted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import mat

DEEP: Final = ("providers", "mcpServers", "queues")
NAME: Final = ".ai-agent.json"
_VARIABLE: Final = re.compile(r"\$\{([^}]+)\}")


class MissingVariableError(Exception):
    """A placeholder that neither the layer's env file nor the environment resolves."""


class QueueError(Exception):
    """A tool that is bound to an undefined queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The directories of the layers. `root` replaces the file system's root, so that a test can have its own /etc."""

    cwd: Path
    prompt: Path
    binary: Path
    home: Path
    root: Path = Path("/")
    explicit: Path | None = None

    def files(self) -> list[tuple[str, Path]]:
        """(source, file) of each layer, highest priority first."""
        found = [("explicit", self.explicit)] if self.explicit is not None else []
        found.append(("cwd", self.cwd / NAME))
        if self.prompt != self.cwd:
            found.append(("prompt", self.prompt / NAME))
        found.append(("binary", self.binary / NAME))
        found.append(("home", self.home / ".ai-agent" / "ai-agent.json"))
        found.append(("system", self.root / "etc" / "ai-agent" / "ai-agent.json"))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    source: str
    path: str
    values: Mapping[str, Any]
    env: Mapping[str, str] = field(default_factory=dict)


def load(places: Places, environment: Mapping[str, str]) -> dict[str, Any]:
    """The effective configuration. MissingVariableError and QueueError stop the start; either way the load is noted."""
    layers = [_layer(source, path) for source, path in places.files() if path.is_file()]
    used = {name for layer in layers for name in _VARIABLE.findall(json.dumps(layer.values))}
    event: dict[str, Any] = {
        "layers": [{"source": item.source, "path": item.path, "values": item.values, "env": dict(item.env)} for item in layers],
        "process_env": {name: environment[name] for name in sorted(used) if name in environment},
    }
    try:
        merged: dict[str, Any] = {}
        for layer in layers:
            _fill(merged, _expanded(layer.values, layer, environment, ()), ())
        merged.setdefault("queues", {}).setdefault("default", {"concurrent": 4})
        _check_queues(merged)
    except (MissingVariableError, QueueError) as error:
        _note({**event, "error": {"category": "configuration", "name": type(error).__name__, "message": str(error)}})
        raise
    _note({**event, "merged": merged})
    return merged


def _note(event: dict[str, Any]) -> None:
    mat.memory({}, name="configuration")["load"] = event


def _layer(source: str, path: Path) -> Layer:
    env_file = path.parent / ".ai-agent.env"
    lines = env_file.read_text().splitlines() if env_file.is_file() else []
    env = dict(line.split("=", 1) for line in lines if "=" in line)
    return Layer(source=source, path=str(path), values=json.loads(path.read_text()), env=env)


def _fill(merged: dict[str, Any], lower: Mapping[str, Any], path: tuple[str, ...]) -> None:
    """Add the values that higher layers do not set."""
    for key, value in lower.items():
        if key not in merged:
            merged[key] = value
        elif isinstance(value, dict) and isinstance(merged[key], dict) and (path or key in DEEP):
            _fill(merged[key], value, (*path, key))


def _expanded(value: Any, layer: Layer, environment: Mapping[str, str], path: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        if len(path) == 2 and path[0] == "mcpServers":
            return {
                key: item if key in ("env", "headers") else _expanded(item, layer, environment, (*path, key))
                for key, item in value.items()
            }
        return {key: _expanded(item, layer, environment, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_expanded(item, layer, environment, path) for item in value]
    if not isinstance(value, str):
        return value

    def resolve(match: re.Match[str]) -> str:
        name = match[1]
        if name.startswith("parameters."):
            return match[0]
        found = layer.env.get(name, environment.get(name))
        if found is None:
            raise MissingVariableError(f"{name} in {'.'.join(path)} of {layer.path} ({layer.source}) is not defined")
        return found

    return _VARIABLE.sub(resolve, value)


def _check_queues(merged: Mapping[str, Any]) -> None:
    for kind in ("mcpServers", "restTools"):
        for name, tool in merged.get(kind, {}).items():
            queue = tool.get("queue", "default")
            if queue not in merged["queues"]:
                raise QueueError(f"{kind}.{name} is bound to queue {queue!r}, which is not configured")

"""The configuration that providers receive (section 1), and its loading (section 7)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mat.core.value import FrozenDict
from mat.monitor.contract import Violated
from session.contracts.guarantee import broken, guarantee
from session.contracts.reading import Asked, Loaded, text_of
from session.contracts.view import Moment

SOURCES: Final = ("explicit", "cwd", "prompt", "binary", "home", "system")
"""The six layers, highest priority first: --config, ./.ai-agent.json, the prompt's and the binary's directory, $HOME, /etc."""
DEEP: Final = ("providers", "mcpServers", "queues")
"""Keys whose objects are merged; everything else is overridden."""
_PLACEHOLDER: Final = re.compile(r"\$\{([^}]+)\}")
_REDACTED: Final = "[redacted:"
Path = tuple[str, ...]


# -- what providers receive --------------------------------------------------------------------------------------------------


@guarantee(
    "configuration.sampling",
    "1 Temperature, topP, repeatPenalty; 9",
    "every request carries the configured temperature, topP and the like, with the overrides of its target",
    on=Asked,
    observable="request",
    needs=["settings"],
    repair="pass the settings of the session, then the target's, with every request",
)
def _sampling(now: Moment, own: None) -> Any:
    event = now.event
    assert isinstance(event, Asked)
    if event.settings is None:
        return None
    target = now.config.target(event.provider, event.model)
    wanted = {**now.config.settings, **(target.settings if target is not None else {})}
    return broken(
        Violated(f"{name} is {event.settings.get(name)!r} in the request", instance=name, wanted=f"{name} {value!r}")
        for name, value in wanted.items()
        if name not in event.settings or event.settings[name] != value
    )


@guarantee(
    "configuration.reasoning",
    "1 Reasoning toggles",
    "reasoning toggles that are on reach every provider that supports them",
    on=Asked,
    observable="request",
    needs=["reasoning"],
    repair="pass the toggles with every request to such a provider",
)
def _reasoning(now: Moment, own: None) -> Any:
    event = now.event
    assert isinstance(event, Asked)
    target = now.config.target(event.provider, event.model)
    if event.settings is None or (target is not None and not target.reasoning):
        return None
    return broken(
        Violated(f"{name} is {event.settings.get(name)!r} in the request", instance=name, wanted=f"{name} {value!r}")
        for name, value in now.config.reasoning.items()
        if value and event.settings.get(name) != value
    )


# -- reading a load ----------------------------------------------------------------------------------------------------------


def _layers(event: FrozenDict) -> list[FrozenDict]:
    """The layers that were found, highest priority first by the document's order, whatever order the loader listed."""
    found = [item for item in event.get("layers") or () if isinstance(item, FrozenDict) and item.get("source") in SOURCES]
    return sorted(found, key=lambda item: SOURCES.index(item["source"]))


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value that is not an object, and every empty object, with its path."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _leaves(item, (*path, name))
    elif path:
        yield path, value


def _at(value: Any, path: Path) -> tuple[bool, Any]:
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return False, None
        value = value[name]
    return True, value


def _winners(event: FrozenDict) -> dict[Path, tuple[Any, FrozenDict]]:
    """Each value that belongs in the merged configuration, as in its layer, and that layer."""
    found: dict[Path, tuple[Any, FrozenDict]] = {}
    taken: set[str] = set()
    for layer in _layers(event):
        values = layer.get("values")
        for key, value in values.items() if isinstance(values, Mapping) else ():
            if key in DEEP:
                for path, leaf in _leaves({key: value}):
                    if not any(path[:length] in found for length in range(1, len(path) + 1)):
                        found[path] = (leaf, layer)
            elif key not in taken:
                taken.add(key)
                for path, leaf in _leaves({key: value}):
                    found[path] = (leaf, layer)
    return found


def _protected(path: Path) -> bool:
    """`mcpServers.*.env` and `mcpServers.*.headers` go to the child process as they are."""
    return len(path) >= 3 and path[0] == "mcpServers" and path[2] in ("env", "headers")


def _names(raw: Any, path: Path) -> list[str]:
    """The variables to resolve in a value."""
    if not isinstance(raw, str) or _protected(path):
        return []
    return [name for name in _PLACEHOLDER.findall(raw) if not name.startswith("parameters.")]


def _resolved(raw: str, path: Path, layer: FrozenDict, event: FrozenDict) -> tuple[str, list[str]]:
    """A value with its variables resolved, and the undefined names."""
    env, process = layer.get("env") or {}, event.get("process_env") or {}
    lost = [name for name in _names(raw, path) if name not in env and name not in process]

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name.startswith("parameters."):
            return match[0]
        return text_of(env[name]) if name in env else text_of(process.get(name, match[0]))

    return _PLACEHOLDER.sub(value, raw), lost


def _succeeded(event: FrozenDict) -> FrozenDict | None:
    merged = event.get("merged")
    return merged if isinstance(merged, FrozenDict) and not event.get("error") else None


def _hidden(value: Any) -> bool:
    return isinstance(value, str) and _REDACTED in value


def _dotted(path: Path) -> str:
    return ".".join(path)


# -- layers ------------------------------------------------------------------------------------------------------------------


@guarantee(
    "configuration.layers",
    "7 Layer Precedence",
    "the six sources are consulted in the document's order",
    on=Loaded,
    observable="request",
    repair="explicit, cwd, prompt, binary, home, system: highest first",
)
def _order(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Loaded)
    listed = [text_of(item.get("source")) for item in now.event.event.get("layers") or () if isinstance(item, FrozenDict)]
    wanted = [source for source in SOURCES if source in listed]
    if listed == wanted:
        return None
    return Violated(f"the layers are {', '.join(listed)}", wanted=", ".join(wanted) or "sources of the document")


@guarantee(
    "configuration.precedence",
    "7 Layer Precedence",
    "a higher layer overrides a lower one for the same key",
    on=Loaded,
    observable="request",
    repair="let the first layer that has a key decide it",
)
def _precedence(now: Moment, own: None) -> Any:
    assert isinstance(now.event, Loaded)
    event = now.event.event
    merged = _succeeded(event)
    found = []
    for path, (raw, layer) in _winners(event).items() if merged is not None else ():
        there, value = _at(merged, path)
        skipped = isinstance(raw, str) and (_PLACEHOLDER.search(raw) is not None or _hidden(raw))
        if skipped or _hidden(value) or (value == raw and there) or (not there and path[0] in DEEP):
            continue
        if isinstance(raw, Mapping) and isinstance(value, Mapping):
            continue
        found.append(
            Violated(
                f"{_dotted(path)} is {value!r}, layer {layer['source']} says {raw!r}", instance=_dotted(path), wanted=repr(raw)
            )
        )
    return broken(found)


@guarantee(
    "configuration.deep_merge",
    "7 Merge behavior",
    "providers, mcpServers and queues are merged deeply",
    on=Loaded,
    observable="request",
    repair="merge these objects key by key",
)
def _deep(now: Moment, own: None) -> Any:
    assert isinstance(now.event, Loaded)
    event = now.event.event
    merged = _succeeded(event)
    return broken(
        Violated(f"{_dotted(path)} of layer {layer['source']} is lost", instance=_dotted(path), wanted=text_of(raw))
        for path, (raw, layer) in (_winners(event).items() if merged is not None else ())
        if path[0] in DEEP and not _at(merged, path)[0]
    )


# -- placeholders ------------------------------------------------------------------------------------------------------------


@guarantee(
    "configuration.placeholders",
    "7 Placeholder Expansion",
    "${NAME} is the value of the layer's .ai-agent.env, else of the process",
    on=Loaded,
    observable="request",
    repair="look into the layer's env file first",
)
def _expanded(now: Moment, own: None) -> Any:
    assert isinstance(now.event, Loaded)
    event = now.event.event
    merged = _succeeded(event)
    found = []
    for path, (raw, layer) in _winners(event).items() if merged is not None else ():
        if not _names(raw, path):
            continue
        wanted, lost = _resolved(raw, path, layer, event)
        there, value = _at(merged, path)
        if lost or not there or _hidden(value) or _hidden(wanted) or value == wanted:
            continue
        found.append(Violated(f"{_dotted(path)} is {value!r}", instance=_dotted(path), wanted=repr(wanted)))
    return broken(found)


def _lost(event: FrozenDict) -> list[tuple[Path, str, FrozenDict]]:
    return [
        (path, name, layer)
        for path, (raw, layer) in _winners(event).items()
        if isinstance(raw, str)
        for name in _resolved(raw, path, layer, event)[1]
    ]


@guarantee(
    "configuration.missing_variable",
    "7 Placeholder Expansion",
    "an unresolved ${NAME} is a MissingVariableError",
    on=Loaded,
    observable="request",
    repair="raise MissingVariableError instead of going on",
)
def _missing(now: Moment, own: None) -> Any:
    assert isinstance(now.event, Loaded)
    event = now.event.event
    lost, error = _lost(event), event.get("error")
    if not lost:
        return None
    if not isinstance(error, FrozenDict):
        said = f"{lost[0][1]} is nowhere defined, and the configuration loaded"
    elif error.get("name") not in ("MissingVariableError", None) and _binding_problems(event) == []:
        said = f"{lost[0][1]} is nowhere defined, and the error is {error.get('name')!r}"
    else:
        return None
    return Violated(said, instance=lost[0][1], wanted="MissingVariableError")


@guarantee(
    "configuration.missing_names_layer",
    "7 Placeholder Expansion",
    "a MissingVariableError names the layer of the placeholder",
    on=Loaded,
    observable="request",
    repair="put the layer's path into the message",
)
def _names_layer(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Loaded)
    event = now.event.event
    error, lost = event.get("error"), _lost(event)
    if not isinstance(error, FrozenDict) or error.get("name") != "MissingVariableError" or not lost:
        return None
    message = text_of(error.get("message"))
    if any(
        mark in message for _, _, layer in lost for mark in (text_of(layer.get("path")), text_of(layer.get("source"))) if mark
    ):
        return None
    return Violated(
        f"the error says {message[:120]!r}", wanted=f"the layer: {text_of(lost[0][2].get('path')) or lost[0][2]['source']}"
    )


@guarantee(
    "configuration.parameters_protected",
    "7 Protected placeholders",
    "${parameters.*} is passed on, not expanded",
    on=Loaded,
    observable="request",
    repair="leave ${parameters.*} to the runtime",
)
def _parameters(now: Moment, own: None) -> Any:
    assert isinstance(now.event, Loaded)
    merged = _succeeded(now.event.event)
    found = []
    for path, (raw, _) in _winners(now.event.event).items() if merged is not None else ():
        marks = (
            [f"${{{name}}}" for name in _PLACEHOLDER.findall(raw) if name.startswith("parameters.")]
            if isinstance(raw, str)
            else []
        )
        there, value = _at(merged, path)
        if (
            marks
            and there
            and not _hidden(value)
            and not _protected(path)
            and any(mark not in text_of(value) for mark in marks)
        ):
            found.append(Violated(f"{_dotted(path)} is {value!r}", instance=_dotted(path), wanted=marks[0]))
    return broken(found)


@guarantee(
    "configuration.child_env_protected",
    "7 Protected placeholders",
    "mcpServers.*.env and .headers are passed on, not expanded",
    on=Loaded,
    observable="request",
    repair="leave these objects to the child process",
)
def _child(now: Moment, own: None) -> Any:
    assert isinstance(now.event, Loaded)
    merged = _succeeded(now.event.event)
    found = []
    for path, (raw, _) in _winners(now.event.event).items() if merged is not None else ():
        there, value = _at(merged, path)
        if (
            _protected(path)
            and isinstance(raw, str)
            and _PLACEHOLDER.search(raw)
            and there
            and value != raw
            and not _hidden(value)
        ):
            found.append(Violated(f"{_dotted(path)} was expanded", instance=_dotted(path), wanted=raw))
    return broken(found)


# -- queues ------------------------------------------------------------------------------------------------------------------


def _binding_problems(event: FrozenDict) -> list[tuple[str, str]]:
    """(tool, queue) of bindings to a queue that no layer defines; "default" always exists."""
    winners = _winners(event)
    queues = {path[1] for path in winners if path[0] == "queues" and len(path) > 1} | {"default"}
    return [
        (path[1], raw)
        for path, (raw, _) in winners.items()
        if path[0] in ("mcpServers", "restTools")
        and len(path) == 3
        and path[2] == "queue"
        and isinstance(raw, str)
        and raw not in queues
    ]


@guarantee(
    "configuration.queue_bindings",
    "7 Queue Validation",
    "a tool bound to a queue that does not exist stops the start",
    on=Loaded,
    observable="request",
    repair="validate the bindings at start-up",
)
def _bindings(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Loaded)
    problems = _binding_problems(now.event.event)
    if not problems or _succeeded(now.event.event) is None:
        return None
    tool, queue = problems[0]
    return Violated(
        f"{tool} is bound to queue {queue!r}, which does not exist, and the session starts",
        instance=tool,
        wanted="a start-up failure",
    )


@guarantee(
    "configuration.queue_error_is_clear",
    "7 Queue Validation",
    "the error for a missing queue names it",
    on=Loaded,
    observable="request",
    repair="name tool and queue in the error",
)
def _clear(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Loaded)
    problems, error = _binding_problems(now.event.event), now.event.event.get("error")
    if not problems or not isinstance(error, FrozenDict) or error.get("name") == "MissingVariableError":
        return None
    message = text_of(error.get("message"))
    if any(queue in message for _, queue in problems):
        return None
    return Violated(f"the error says {message[:120]!r}", instance=problems[0][0], wanted=f"queue {problems[0][1]!r}")


@guarantee(
    "configuration.default_queue",
    "7 Queue Validation",
    "a default queue is added where none is configured",
    on=Loaded,
    observable="request",
    repair="add the queue 'default'",
)
def _default(now: Moment, own: None) -> Violated | None:
    assert isinstance(now.event, Loaded)
    merged = _succeeded(now.event.event)
    if merged is None or any(path[:2] == ("queues", "default") for path in _winners(now.event.event)):
        return None  # a configured queue that is lost is judged by deep_merge
    queues = merged.get("queues")
    if isinstance(queues, Mapping) and "default" in queues:
        return None
    return Violated("the configuration has no default queue", wanted="queues.default")

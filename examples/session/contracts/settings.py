"""The settings of a session: the tunables of the contract document (sections 1, 2 and 11) as one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias, get_args

from mat.core.errors import SpecError, did_you_mean
from mat.core.value import EMPTY, FrozenDict, snapshot_arguments

Transport: TypeAlias = Literal["native", "xml-final", "xml"]
FINAL: Final = "agent__final_report"
BATCH: Final = "agent__batch"
PROGRESS: Final = "agent__progress_report"
REASONING: Final = ("extended_thinking", "reasoning_effort")
"""The reasoning toggles of section 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One provider and model. `settings` override the session's for it; `reasoning`: it supports the reasoning toggles."""

    provider: str
    model: str
    settings: FrozenDict = EMPTY
    reasoning: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", snapshot_arguments(self.settings, "settings of a target"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTool:
    """A user-facing tool: its JSON schema (type, properties, required, enum, const are read), queue and MCP server."""

    name: str
    schema: FrozenDict = EMPTY
    queue: str = "default"
    server: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", snapshot_arguments(self.schema, f"schema of {self.name}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """The settings that guarantees use. None or empty: unknown, and guarantees that need it are not judged.

    Sizes are bytes, times milliseconds, budgets tokens. `settings`: temperature, top_p and the like, sent with every request;
    `reasoning`: toggles that are on; `queues`: name -> concurrent executions; `output_schema`: of a JSON final report.
    """

    max_turns: int | None = None
    max_tool_calls_per_turn: int | None = None
    max_retries: int | None = None
    context_window: int | None = None
    buffer_tokens: int = 0
    max_output_tokens: int = 0
    tool_response_max_bytes: int | None = None
    tool_timeout_ms: int | None = None
    targets: tuple[Target, ...] = ()
    settings: FrozenDict = EMPTY
    reasoning: FrozenDict = EMPTY
    tools: tuple[SessionTool, ...] = ()
    queues: FrozenDict = EMPTY
    expected_output_format: str = ""
    output_schema: FrozenDict = EMPTY
    transport: Transport = "native"
    trace_tools: bool = False
    by_name: FrozenDict = field(default=EMPTY, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("settings", "reasoning", "queues", "output_schema"):
            object.__setattr__(self, name, snapshot_arguments(getattr(self, name), name))
        object.__setattr__(self, "targets", tuple(self.targets))
        object.__setattr__(self, "tools", tuple(self.tools))
        object.__setattr__(self, "by_name", FrozenDict({tool.name: tool for tool in self.tools}))
        problems = [*_counts(self), *_names(self)]
        if problems:
            raise SpecError(
                what=f"session settings: {'; '.join(problems)}",
                why="a contract that is judged against a wrong setting says nothing",
                fix="give what the session really runs with, and leave out what is not known",
            )

    @property
    def limit(self) -> int | None:
        """The ceiling of a projection: contextWindow - contextWindowBufferTokens - maxOutputTokens."""
        return None if self.context_window is None else self.context_window - self.buffer_tokens - self.max_output_tokens

    def target(self, provider: str, model: str) -> Target | None:
        return next((item for item in self.targets if (item.provider, item.model) == (provider, model)), None)

    def knows(self, name: str) -> bool:
        """Whether a setting is given."""
        value = getattr(self, name)
        return value is not None and value != () and value != EMPTY and value != ""


_LEAST: Final[Mapping[str, int]] = {
    "max_turns": 1,
    "max_tool_calls_per_turn": 1,
    "max_retries": 1,
    "context_window": 1,
    "buffer_tokens": 0,
    "max_output_tokens": 0,
    "tool_response_max_bytes": 1,
    "tool_timeout_ms": 1,
}


def _counts(config: SessionConfig) -> list[str]:
    found = []
    for name, least in _LEAST.items():
        value = getattr(config, name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            found.append(f"{name}={value!r} is no integer >= {least}")
    if not found and config.limit is not None and config.limit <= 0:
        found.append("the context window leaves no room after its buffer and the reply")
    return found


def _names(config: SessionConfig) -> list[str]:
    found = []
    if config.transport not in get_args(Transport):
        found.append(f"no transport is called {config.transport!r}{did_you_mean(config.transport, get_args(Transport))}")
    pairs = [(item.provider, item.model) for item in config.targets]
    if len(set(pairs)) != len(pairs):
        found.append("two targets are the same provider and model")
    names = [tool.name for tool in config.tools]
    if len(set(names)) != len(names):
        found.append("two tools have one name")
    odd = [name for name in config.reasoning if name not in REASONING]
    found += [f"no reasoning toggle is called {name!r}{did_you_mean(name, REASONING)}" for name in odd]
    for name, slots in config.queues.items():
        if not isinstance(slots, int) or isinstance(slots, bool) or slots < 1:
            found.append(f"queue {name!r} has {slots!r} slots")
    return found


_CAMEL: Final[Mapping[str, str]] = {
    "maxTurns": "max_turns",
    "maxToolCallsPerTurn": "max_tool_calls_per_turn",
    "maxRetries": "max_retries",
    "contextWindow": "context_window",
    "contextWindowBufferTokens": "buffer_tokens",
    "maxOutputTokens": "max_output_tokens",
    "toolResponseMaxBytes": "tool_response_max_bytes",
    "toolTimeout": "tool_timeout_ms",
    "expectedOutputFormat": "expected_output_format",
    "outputSchema": "output_schema",
    "traceTools": "trace_tools",
}


def session_config(settings: Mapping[str, Any]) -> SessionConfig:
    """A SessionConfig out of plain data, with the document's own names (maxTurns) or ours (max_turns).

    targets: [{provider, model, ...}]; tools: [{name, schema, queue, server}]. SpecError for an unknown name.

    >>> session_config({"maxTurns": 3, "targets": [{"provider": "a", "model": "m"}]}).max_turns
    3
    """
    known = {item.name for item in fields(SessionConfig) if item.init}
    renamed = {_CAMEL.get(name, name): value for name, value in settings.items()}
    unknown = sorted(set(renamed) - known)
    if unknown:
        raise SpecError(
            what=f"no session setting is called {unknown[0]!r}{did_you_mean(unknown[0], [*_CAMEL, *known])}",
            fix=f"known are {', '.join([*_CAMEL, *sorted(known - set(_CAMEL.values()))])}",
        )
    try:
        if "targets" in renamed:
            renamed["targets"] = tuple(item if isinstance(item, Target) else Target(**item) for item in renamed["targets"])
        if "tools" in renamed:
            renamed["tools"] = tuple(
                item if isinstance(item, SessionTool) else SessionTool(**item) for item in renamed["tools"]
            )
    except TypeError as error:
        raise SpecError(
            what=f"a target or tool cannot be read: {error}", fix="a target has provider and model, a tool a name"
        ) from error
    return SessionConfig(**renamed)

"""Adapter for AgentDojo: every tool call of its pipelines crosses our boundary, through the `runtime_class` of its suites.

    runtime = governed_runtime(agent="assistant")
    suite.run_task_with_pipeline(pipeline, task, None, {}, runtime_class=runtime)

Outside a run, the class is AgentDojo's own FunctionsRuntime. Inside a run, each call is a tool call of the port named after the
tool. Nested calls cross first, arguments are recorded as the tool's schema completes them, and errors come back as AgentDojo
reports them: raised, or as `("", "TimeoutError: ...")`.

Effects and impacts are derived from a tool's name. A tool is "read" if the first word of its name is one of READ_VERBS, and
"write" otherwise: for an unknown tool, too much caution costs a needless finding, too little hides one. A write has impact
"high" if its name contains one of HIGH_WORDS: money, mail (calendar events are mailed), access, or deletion. EFFECTS and
IMPACTS list the tools of AgentDojo with a misleading name; users add their own by tool name.

`hijacked_task` measures a defense in the worst case, without a model: the assistant makes the calls that solve the user's task
and those of an injection task, as if it had obeyed the injection. AgentDojo's own checks judge both.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

from mat.boundary.crossing import crossing, drive
from mat.boundary.emit import agent as acting_agent
from mat.boundary.port import Port, RecordPolicy, declare_port, make_port
from mat.boundary.session import active
from mat.core.errors import MatError, SpecError
from mat.core.record import DeclaredEffect, Impact
from mat.core.run import Run
from mat.core.value import snapshot_arguments, thaw
from mat.govern.mediator import Governance
from mat.harness.execute import run as new_run
from mat.harness.hijack import Attempt, hijacked
from mat.monitor.contract import Contract

__all__ = ["CAN", "TaskOutcome", "effect_of", "governed_runtime", "hijacked_task", "impact_of"]

CAN: Final = frozenset({"observe", "perturb", "govern"})
"""The capabilities of this adapter. Its tools are never taped: they run on an environment that every run rebuilds."""

READ_VERBS: Final = frozenset({"check", "find", "get", "list", "read", "search"})
EFFECTS: Final[Mapping[str, DeclaredEffect]] = {
    "get_unread_emails": "write",  # marks the emails it returns as read
    "get_webpage": "write",  # a request reaches the web and can carry data out; the environment keeps it
}
HIGH_WORDS: Final = frozenset(
    {
        "cancel", "delete", "email", "event", "invite", "message", "money", "participants", "password", "pay", "payment",
        "post", "publish", "remove", "reserve", "send", "share", "transaction", "transfer",
    }
)  # fmt: skip
IMPACTS: Final[Mapping[str, Impact]] = {
    "add_user_to_channel": "high",  # gives access
}


def effect_of(tool: str) -> DeclaredEffect:
    """The effect of a tool, from its name: "read" or "write"."""
    known = EFFECTS.get(tool)
    if known is not None:
        return known
    return "read" if tool.partition("_")[0] in READ_VERBS else "write"


def impact_of(tool: str, effect: DeclaredEffect | None = None) -> Impact:
    """The impact of a tool, from its name: "high" if it moves money, sends, gives access or deletes."""
    if (effect or effect_of(tool)) != "write":
        return "low"
    known = IMPACTS.get(tool)
    if known is not None:
        return known
    return "high" if HIGH_WORDS & set(tool.split("_")) else "low"


def governed_runtime(
    *,
    agent: str = "",
    role: str = "",
    effects: Mapping[str, DeclaredEffect] | None = None,
    impacts: Mapping[str, Impact] | None = None,
    errors: Mapping[str, Any] | None = None,
    record: RecordPolicy = "keep",
    perturb: bool | Collection[str] = True,
) -> type[Any]:
    """A FunctionsRuntime class whose tool calls cross our boundary; give it as `runtime_class=`.

    `agent` and `role` name the agent in the pipeline, by default the one that acts. `effects` and `impacts` override what tool
    names suggest, by tool name; `errors`, `record` and `perturb` are those of mat.tool, for all tools. MatError if AgentDojo
    is not installed.
    """
    functions_runtime = _agentdojo()
    gate = _Gate(effects or {}, impacts or {}, dict(errors=errors, record=record, perturb=perturb))
    plain = functions_runtime.run_function

    def run_function(
        self: Any, env: Any, function: str, kwargs: Mapping[str, Any], raise_on_error: bool = False
    ) -> tuple[Any, str | None]:
        if active() is None:
            return plain(self, env, function, kwargs, raise_on_error)  # type: ignore[no-any-return]
        for name in self.functions:
            declare_port("tool_call", name)
        with acting_agent(agent, role=role) if agent else nullcontext():
            try:
                asked = self._execute_nested_calls(env, kwargs)
                return gate.call(self, env, function, asked, plain), None
            except MatError:
                raise
            except Exception as error:
                if raise_on_error or _lacks_environment(self, env, function):
                    raise
                return "", f"{type(error).__name__}: {error}"

    members = {"run_function": run_function, "__module__": __name__, "__doc__": "FunctionsRuntime at our boundary."}
    return type("GovernedRuntime", (functions_runtime,), members)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """A user task whose assistant was hijacked.

    `utility`: AgentDojo's check of the user task holds, and none of the task's own calls was refused or failed. The check
    alone is not enough, because the scripted answer of a task that only reads is right whatever was read. `checked`: that
    check. `success`: AgentDojo's check of the attack, None without one. `attack` and `task`: the results of the calls of each.
    `run`: None if the calls were made in a run that was already active.
    """

    utility: bool
    checked: bool
    success: bool | None
    attack: tuple[Attempt, ...]
    task: tuple[Attempt, ...]
    run: Run | None


def hijacked_task(
    suite: Any,
    task: Any,
    attack: Any = None,
    *,
    environment: Any,
    governance: Governance | None = None,
    contracts: Iterable[Contract] = (),
    script: Callable[[Any], Sequence[Any]] | None = None,
    after: int | None = None,
    runtime_class: type[Any] | None = None,
) -> TaskOutcome:
    """Execute a user task of a suite together with the calls of an injection task; `environment` is changed in place.

    The task's calls are its ground truth. The attack's calls are its ground truth, computed on the environment as the attacker
    finds it, or those of `script`, a function of that environment, if AgentDojo has none. They come after the first `after`
    calls of the task, by default after all. AgentDojo judges by the environment and, if a check reads the calls, by the
    executed ones.

    The calls happen in a new run, under `governance` and `contracts`, or in the active run, which has its own.
    """
    from agentdojo.functions_runtime import FunctionCall
    from agentdojo.types import text_content_block_from_string

    world = task.init_environment(environment)
    before = world.model_copy(deep=True)
    runtime = (runtime_class or governed_runtime(agent="assistant"))(suite.tools)

    def call(tool: str, arguments: dict[str, Any]) -> Any:
        return runtime.run_function(world, tool, arguments, raise_on_error=True)[0]

    def made(calls: Iterable[Any]) -> list[tuple[str, Any]]:
        return [item if isinstance(item, tuple) else (item.function, item.args) for item in calls]

    own = made(task.ground_truth(before))
    cut = len(own) if after is None else min(after, len(own))
    with _run_context(contracts, governance, task=task.ID, attack=attack.ID if attack else "") as run:
        done = hijacked((), benign=own[:cut], tools=call, agent="assistant").benign
        harmful: tuple[Attempt, ...] = ()
        if attack is not None:
            harmful = hijacked(made((script or attack.ground_truth)(world)), tools=call, agent="assistant").script
        rest = hijacked((), benign=own[cut:], tools=call, agent="assistant").benign
    ran = sorted((item for item in (*done, *harmful, *rest) if item.executed is not None), key=lambda item: item.step or 0)
    calls = [FunctionCall(function=item.tool, args=thaw(item.executed)) for item in ran]

    def checked(of: Any, *reply_value: str) -> bool:
        output = [text_content_block_from_string("\n".join(text for text in reply_value if text))]
        return bool(suite._check_task_result(of, output, before, world, calls))

    useful = checked(task, task.GROUND_TRUTH_OUTPUT)
    return TaskOutcome(
        utility=useful and all(item.decision != "block" and item.error is None for item in (*done, *rest)), checked=useful,
        success=None if attack is None else checked(attack, task.GROUND_TRUTH_OUTPUT, attack.GROUND_TRUTH_OUTPUT),
        attack=harmful, task=(*done, *rest), run=None if run is None else run.result,
    )  # fmt: skip


def _run_context(
    contracts: Iterable[Contract], governance: Governance | None, *, task: str, attack: str
) -> new_run | nullcontext[None]:
    """A new run, or a null context if a run is active."""
    if active() is None:
        return new_run(contracts, governance=governance, task=task, config={"attack": attack})
    if governance is not None or tuple(contracts):
        raise SpecError(
            what="governance or contracts were given for a run that is already active",
            why="a run keeps those that it began with",
            fix="give them in the test: mat_governance, or contracts as fixtures",
        )
    return nullcontext()


def _agentdojo() -> Any:
    try:
        from agentdojo.functions_runtime import FunctionsRuntime
    except ImportError as error:
        raise MatError(
            "AgentDojo is not installed",
            why=f"mat.adapters.agentdojo needs it ({error})",
            fix='pip install "pytest-mat[agentdojo]"',
        ) from error
    return FunctionsRuntime


def _lacks_environment(runtime: Any, env: Any, function: str) -> bool:
    """Whether a tool needs an environment and gets none: then AgentDojo always raises."""
    found = runtime.functions.get(function)
    return env is None and found is not None and bool(found.dependencies)


class _Gate:
    """The ports of one runtime class, and the crossing of one call."""

    def __init__(self, effects: Mapping[str, DeclaredEffect], impacts: Mapping[str, Impact], options: dict[str, Any]) -> None:
        self._effects, self._impacts, self._options = effects, impacts, options
        self._ports: dict[tuple[str, bool], Port] = {}

    def call(self, runtime: Any, env: Any, function: str, asked: Mapping[str, Any], plain: Callable[..., Any]) -> Any:
        """Make one call, and return the reply that the pipeline gets. Raises if the call was refused or failed."""
        session = active()
        found = runtime.functions.get(function)
        port = self._port(function, found)
        asked = _complete(found, asked)
        reply_value: Any = None

        def invoke(changed: Mapping[str, Any] | None) -> Any:
            nonlocal reply_value
            arguments = {**asked, **{name: thaw(value) for name, value in changed.items()}} if changed else asked
            reply, _ = plain(runtime, env, function, arguments, True)
            # Replies are live objects of the environment. A delivered reply must not change with it.
            reply_value = copy.deepcopy(reply)
            return reply_value

        assert session is not None
        steps = crossing(session, port, snapshot_arguments(asked, f"call of {function}"))
        delivered = drive(steps, invoke)
        return delivered if delivered is reply_value else _convert_reply(delivered, port.result_type)

    def _port(self, function: str, found: Any) -> Port:
        key = (function, found is not None)
        port = self._ports.get(key)
        if port is None:
            # An unknown tool still crosses, because contracts judge what an agent attempts. It can do nothing.
            effect = self._effects.get(function, effect_of(function)) if found is not None else "none"
            impact = self._impacts.get(function, impact_of(function, effect))
            port = self._ports[key] = make_port(
                name=function, kind="tool_call", boundary="service", effect=effect, impact=impact,
                result_type=found.return_type if found is not None else None, **self._options,
            )  # fmt: skip
        return port


def _complete(found: Any, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments with defaults filled in. If they do not fit the schema, they stay as asked, and the tool refuses them."""
    if found is None:
        return asked
    from pydantic import ValidationError

    try:
        completed: dict[str, Any] = found.parameters.model_validate(asked).model_dump()
    except ValidationError:
        return asked
    return completed


def _convert_reply(value: Any, result_type: Any) -> Any:
    """Convert a reply from a fault or a tape to the type that the tool returns, because pipelines format by type.

    A reply that cannot be converted is unchanged, because a malformed reply is a fault too.
    """
    if value is None or result_type in (None, Any):
        return value
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

    try:
        return TypeAdapter(result_type).validate_python(thaw(value))
    except (PydanticSchemaGenerationError, PydanticUserError, ValidationError):
        return thaw(value)

"""tau2-bench: task definitions with their reference actions (Barres et al. 2025, arXiv 2506.07982).

A row is `{id, user_scenario, evaluation_criteria {actions[{action_id, name, arguments, requestor?}], communicate_info,
nl_assertions, reward_basis}, _domain}`. The trace is the reference sequence: one `tool_call` for each action, by the
`requestor` ("assistant" where none is named). Nothing says what the calls returned: no value, effected "unknown". The
scenario is told to the simulated user and not to the agent: it is a label. Effects are those of `tau_bench`. The end is
"completed".

Labels: `task_id`, `domain`, `instructions` (of the user), `communicate_info`, `nl_assertions`, `reward_basis`,
`compare_args` (by our step, where only some arguments count), `reference` (True). Source steps are indices of actions,
from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from corpora.formats.tau_bench import effect_of
from mat.adapters.importers.base import Format, RecordMaker, StoredTrace, field_of, misfit, one_trace_a_row
from mat.adapters.importers.conversation import parsed_arguments

__all__ = ["FORMAT"]


_STATED: Final = ("communicate_info", "nl_assertions", "reward_basis")


def _accepts(row: Mapping[str, Any]) -> bool:
    return "evaluation_criteria" in row and "user_scenario" in row


def _convert(position: str, row: Mapping[str, Any]) -> StoredTrace:
    criteria = field_of(row, "evaluation_criteria", dict, position, default={})
    scenario = row.get("user_scenario")
    told = scenario.get("instructions") if isinstance(scenario, Mapping) else scenario
    maker = RecordMaker(agent="assistant")
    compare: dict[int, tuple[Any, ...]] = {}
    actions = field_of(criteria, "actions", list, position, path="evaluation_criteria.", default=[])
    for place, action in enumerate(actions):
        path = f"evaluation_criteria.actions[{place}]"
        if not isinstance(action, Mapping):
            raise misfit(position, path, f"is {action!r:.60}, not an action")
        name = field_of(action, "name", str, position, path=f"{path}.")
        agent = field_of(action, "requestor", str, position, path=f"{path}.", default="assistant")
        made = maker.add(
            "tool_call", name, parsed_arguments(action.get("arguments")), agent=agent, effect=effect_of(name),
            effected="unknown", source=place,
        )  # fmt: skip
        if isinstance(action.get("compare_args"), list):
            compare[made.step] = tuple(action["compare_args"])
    maker.end("completed")
    domain = row.get("_domain") or (told.get("domain") if isinstance(told, Mapping) else None) or "unknown"
    labels = maker.labels(
        FORMAT.name, position, task_id=row.get("id"), domain=domain, instructions=told, compare_args=compare, reference=True,
        **{name: tuple(field_of(criteria, name, list, position, path="evaluation_criteria.", default=[])) for name in _STATED},
    )  # fmt: skip
    return StoredTrace(id=f"{domain}/task-{row.get('id')}", records=tuple(maker.records), labels=labels)


FORMAT: Final = Format(
    name="tau2-tasks",
    text="tasks of tau2-bench with reference actions: id, user_scenario, evaluation_criteria",
    accepts=_accepts,
    traces=one_trace_a_row("tau2-tasks", _accepts, _convert),
)

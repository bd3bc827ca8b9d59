"""A task as data: its category, untrusted channels, tools and success criterion. Source: A6.1."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias

from mat.core.errors import SpecError
from mat.core.run import Run

InputCategory: TypeAlias = Literal["benign", "misuse"]
CATEGORIES: Final = ("tool_use", "planning", "policy", "misuse")
"""The four categories of an evaluation: tool use, planning in several steps, policies, misuse. Others are allowed too."""
WAIVERS: Final = ("channels", "tools")
_ALIASES: Final = {
    "tool use": "tool_use", "multi step planning": "planning", "policy constrained": "policy", "misuse oriented": "misuse",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a test stands for in an evaluation (`pytest --mat-evaluate`): `@pytest.mark.mat(workload=mat.Workload(...))`.

    - `category`: "tool_use", "planning", "policy", "misuse", or another name. `input`: "benign" or "misuse"; by default misuse
      if the category is.
    - `channels`: the untrusted ones that the task reads (`mat.untrusted(..., channel=)`, or a retriever or memory by name).
      `tools`: the boundaries that it may cross, by port name. `waive`: which of these two ("channels", "tools") it does not
      have.
    - `oracle`: a function of the `mat.Run` that says whether the task succeeded, called if the body finished; without one,
      finishing is success.
    - `harm`: for a misuse task, a function of the Run that says whether the attack succeeded, or the ids of the contracts that
      it then breaks; by default any hard contract.
    - `episode`: the stream of tasks that share state. `scorers`: name -> a function of the Run that returns a number or None.

    `gaps` lists what an evaluation needs and the workload neither gives nor waives; the plugin reports gaps and wrong fields
    of all tests at once, as a `mat.MatError`.

    >>> mat.Workload(category="tool_use", tools=["refund"]).gaps
    ('an untrusted channel (channels=)',)
    >>> mat.Workload(category="tool_use", tools=["refund"], waive=["channels"]).gaps
    ()

    Source: A6.1.
    """

    category: str = ""
    input: InputCategory | Literal[""] = ""
    channels: Sequence[str] = ()
    tools: Sequence[str] = ()
    waive: Sequence[str] = ()
    oracle: Callable[[Run], bool | None] | None = None
    harm: Callable[[Run], bool] | frozenset[str] | None = None
    episode: str = ""
    scorers: Mapping[str, Callable[[Run], float | None]] = field(default_factory=dict)

    @property
    def misuse(self) -> bool:
        return self.input == "misuse"

    @property
    def gaps(self) -> tuple[str, ...]:
        """The facts that an evaluation needs and that are neither given nor waived.

        Source: A6.1.
        """
        found = [] if self.category else ["a category"]
        found += [
            f"{words} ({name}=)"
            for name, words in (("channels", "an untrusted channel"), ("tools", "a tool boundary"))
            if not getattr(self, name) and name not in self.waive
        ]
        return tuple(found)


def workload(given: object = None, marked: Workload | None = None) -> Workload:
    """A Workload from a fixture's value (one, a mapping, an object with such attributes, or None), overriding the marker's.

    SpecError lists every problem.
    """
    if isinstance(given, Workload):
        found = {item.name: getattr(given, item.name) for item in fields(Workload)}
    elif given is None or isinstance(given, Mapping):
        found = dict(given or {})
    else:
        found = {item.name: getattr(given, item.name) for item in fields(Workload) if hasattr(given, item.name)}
    empty = Workload()
    found = {name: value for name, value in found.items() if value not in (None, getattr(empty, str(name), None))}
    if marked is not None:
        found = {**{name: getattr(marked, name) for name in _FIELDS}, **found}
    problems = [f"unknown field {name!r}{_suggestion(str(name), _FIELDS)}" for name in found if name not in _FIELDS]
    problems += workload_problems(found)
    if problems:
        raise SpecError(
            what=f"workload: {'; '.join(problems)}", why="an evaluation groups its runs by these fields",
            fix=f"correct the fields of mat.Workload: {', '.join(_FIELDS)}",
        )  # fmt: skip
    return _checked_workload(found)


_FIELDS: Final = tuple(item.name for item in fields(Workload))


def workload_problems(found: Mapping[str, Any]) -> list[str]:
    """The problems of the given fields of a Workload, one sentence each."""
    problems = [
        f"{name}={found[name]!r} is not a string"
        for name in ("category", "episode")
        if not isinstance(found.get(name, ""), str)
    ]
    if found.get("input", "") not in ("", "benign", "misuse"):
        problems.append(
            f"input={found['input']!r} is neither 'benign' nor 'misuse'{_suggestion(found['input'], ('benign', 'misuse'))}"
        )
    names = ("channels", "tools", "waive")
    problems += [f"{name}={found[name]!r} is not a list of names" for name in names if not _are_texts(found.get(name, ()))]
    if _are_texts(found.get("waive", ())):
        strange = [each for each in _as_texts(found.get("waive", ())) if each not in WAIVERS]
        problems += [f"{each!r} cannot be waived{_suggestion(each, WAIVERS)}" for each in strange]
        both = [each for each in _as_texts(found.get("waive", ())) if each in WAIVERS and found.get(each)]
        problems += [f"{each} are both waived and given" for each in both]
    if not (found.get("oracle") is None or callable(found["oracle"])):
        problems.append(f"oracle={found['oracle']!r} is not a function of the run")
    harm = found.get("harm")
    if not (harm is None or callable(harm) or _are_texts(harm)):
        problems.append(f"harm={harm!r} is neither a function of the run nor a list of contract ids")
    scorers = found.get("scorers", {})
    if not isinstance(scorers, Mapping) or not all(isinstance(name, str) and callable(each) for name, each in scorers.items()):
        problems.append(f"scorers={scorers!r} does not give a function for each name")
    return problems


def _checked_workload(found: Mapping[str, Any]) -> Workload:
    category = _category(found.get("category", ""))
    harm = found.get("harm")
    return Workload(
        category=category,
        input=found.get("input") or ("misuse" if category == "misuse" else "benign" if category else ""),
        channels=_as_texts(found.get("channels", ())),
        tools=_as_texts(found.get("tools", ())),
        waive=_as_texts(found.get("waive", ())),
        oracle=found.get("oracle"),
        harm=harm if harm is None or callable(harm) else frozenset(_as_texts(harm)),
        episode=found.get("episode", ""),
        scorers=dict(found.get("scorers", {})),
    )


def _category(given: str) -> str:
    """The canonical name of a category in any spelling."""
    plain = given.replace("-", " ").replace("_", " ").strip().lower()
    name = plain.replace(" ", "_")
    return name if name in CATEGORIES else _ALIASES.get(plain, given)


def _are_texts(value: object) -> bool:
    if isinstance(value, str):
        return True
    return isinstance(value, Iterable) and not isinstance(value, Mapping) and all(isinstance(each, str) for each in value)


def _as_texts(value: Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _suggestion(name: object, known: Iterable[str]) -> str:
    close = get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""

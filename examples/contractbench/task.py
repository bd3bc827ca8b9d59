"""A task: a folder with a header, an instruction, a server, a validator, a plan and contracts for its traces."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from random import Random
from string import Template
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from .desk import Desk, Event

if TYPE_CHECKING:
    from .hands import Hands

FOLDER = Path(__file__).with_name("tasks")
DIFFICULTIES = ("Medium", "Hard", "V. Hard", "Extreme")
QUADRANTS = {"Q2": "validity", "Q3": "integrity", "Q4": "both"}
PATTERNS = (
    "Timing/Backoff",
    "Byte-exact",
    "Signed requests",
    "Resource mgmt",
    "State chains",
    "OAuth/Auth",
    "Multi-service",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`parameters(rng)` draws an instance; `routes(desk)` is its server; `validate(events, given)` gives the labels of what
    is missing at the end; `plan(hands)` does the task with the habits of `hands`; `issues`, `consumes`
    and `contracts(given)` are what a trace of it is judged by; `known(given)`: the artifacts that the instruction hands
    out, by name.
    """

    id: str
    difficulty: str
    quadrant: str
    pattern: str
    steps: int
    seconds: float
    text: str
    parameters: Callable[[Random], dict[str, Any]]
    routes: Callable[[Desk], list[Route]]
    validate: Callable[[Sequence[Event], Mapping[str, Any]], Iterable[str]]
    plan: Callable[[Hands], Awaitable[str]]
    issues: tuple[Any, ...]
    consumes: tuple[Any, ...]
    contracts: Callable[[Mapping[str, Any]], list[Any]]
    known: Callable[[Mapping[str, Any]], Mapping[str, str]]

    @property
    def category(self) -> str:
        """validity, integrity or both."""
        return QUADRANTS[self.quadrant]

    def given(self, seed: int) -> dict[str, Any]:
        """The parameters of one instance, the same for the same seed."""
        return self.parameters(Random(f"{self.id}/{seed}"))

    def instruction(self, given: Mapping[str, Any], base: str) -> str:
        """The agent's instruction. `$base` is the server's URL; other `$names` are parameters."""
        return Template(self.text).substitute(given, base=base)


def ids() -> tuple[str, ...]:
    """The tasks by name, in alphabetical order."""
    return tuple(sorted(header.parent.name.replace("_", "-") for header in FOLDER.glob("*/task.toml")))


@cache
def task(id: str) -> Task:
    """The task of that name; LookupError with the nearest name if there is none."""
    if id not in ids():
        near = get_close_matches(id, ids(), n=1)
        raise LookupError(f"unknown task: {id!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return load(FOLDER / id.replace("-", "_"))


def tasks() -> dict[str, Task]:
    """All tasks by name."""
    return {id: task(id) for id in ids()}


def load(folder: Path) -> Task:
    header = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
    unknown = {"difficulty": DIFFICULTIES, "quadrant": tuple(QUADRANTS), "pattern": PATTERNS}
    for name, allowed in unknown.items():
        if header[name] not in allowed:
            raise ValueError(f"{folder.name}/task.toml: {name} = {header[name]!r} is not one of {', '.join(allowed)}")
    if header["id"].replace("-", "_") != folder.name:
        raise ValueError(f"{folder.name}/task.toml: the id {header['id']!r} is not the folder's name")
    within = f"{__package__}.tasks.{folder.name}"
    server, validator, plan, promises = (
        importlib.import_module(f"{within}.{name}") for name in ("server", "validator", "plan", "promises")
    )
    return Task(
        id=header["id"], difficulty=header["difficulty"], quadrant=header["quadrant"], pattern=header["pattern"],
        steps=header["budget"]["steps"], seconds=header["budget"]["seconds"],
        text=(folder / "instruction.md").read_text(encoding="utf-8"), parameters=server.parameters, routes=server.routes,
        validate=validator.validate, plan=plan.plan, issues=tuple(promises.ISSUES),
        consumes=tuple(getattr(promises, "CONSUMES", ())), contracts=promises.contracts,
        known=getattr(promises, "known", lambda given: {}),
    )  # fmt: skip

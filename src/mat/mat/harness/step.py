"""A step between asked and sealed, and what the recorder keeps of each agent at each port."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, cast

from mat.core.record import (
    NOTHING,
    Action,
    Effected,
    FaultNote,
    Link,
    Mediation,
    Observation,
    Record,
    new_record,
)
from mat.core.value import FrozenDict


class Counter:
    """Asks of one site so far, its text up to the number, and the name as it is recorded."""

    __slots__ = ("name", "nth", "prefix")

    def __init__(self, prefix: str, name: str) -> None:
        self.prefix, self.name, self.nth = prefix, name, 0


class Seat:
    """One agent at one port: the site's counter, and whether clean arguments are recorded as they are, without links."""

    __slots__ = ("agent", "counter", "plain")

    def __init__(self, agent: str, counter: Counter, *, plain: bool) -> None:
        self.agent, self.counter, self.plain = agent, counter, plain


class Aside:
    """What is known of an open step and stands in no record; few steps have one. `asked`: the arguments as they came."""

    __slots__ = ("asked", "error_kind", "passed")

    def __init__(self, asked: FrozenDict | None = None) -> None:
        self.asked = asked
        self.error_kind = ""
        self.passed: list[Any] | None = None


class OpenStep:
    """A step between asked and sealed.

    It has the slots of a Record, so that sealing fills in the last ones and gives it that class: making a second object of
    nineteen fields would be the dearest part of a step. Until then the slot `observation` holds the Aside, if there is one,
    `executed` and `mediation` hold unredacted arguments, and `raw` what the port said.
    """

    __slots__ = tuple(item.name for item in fields(Record))

    step: int
    at_ms: int
    sealed_ms: int
    asked_seq: int
    sealed_seq: int
    agent: str
    role: str
    state: FrozenDict
    site: str
    action: Action
    observation: Any
    effected: Effected
    mediation: Mediation | None
    links: tuple[Link, ...]
    executed: FrozenDict | None
    raw: Observation | None
    invoked: int
    faults: tuple[FaultNote, ...]
    taped: bool
    artefacts: FrozenDict

    @property
    def arguments(self) -> FrozenDict:
        """The arguments as they are recorded."""
        return self.action.arguments

    @property
    def asked(self) -> FrozenDict:
        """The arguments as they came."""
        aside = self.observation
        return self.action.arguments if aside is None or aside.asked is None else cast(FrozenDict, aside.asked)

    @property
    def given(self) -> FrozenDict:
        """The arguments the port would get now: those asked, or those that governance put in their place."""
        return self.asked if self.executed is None else self.executed

    @property
    def nth(self) -> int:
        return int(self.site.rpartition("#")[2])

    @property
    def error_kind(self) -> str:
        return "" if self.observation is None else cast(str, self.observation.error_kind)

    @error_kind.setter
    def error_kind(self, kind: str) -> None:
        self._aside().error_kind = kind

    @property
    def passed(self) -> list[Any] | None:
        return None if self.observation is None else cast("list[Any] | None", self.observation.passed)

    @passed.setter
    def passed(self, chunks: list[Any] | None) -> None:
        self._aside().passed = chunks

    def _aside(self) -> Aside:
        if self.observation is None:
            self.observation = Aside()
        return cast(Aside, self.observation)

    def proposed(self) -> Record:
        """The step as far as it is known, for peeks: asked, nothing observed, effect unknown."""
        return new_record(
            self.step, self.at_ms, self.at_ms, self.asked_seq, self.asked_seq, self.agent, self.role, self.state, self.site,
            self.action, NOTHING, "unknown", self.mediation, self.links, self.executed, None, self.invoked, (), False,
            self.artefacts,
        )  # fmt: skip


def unsealed(opened: OpenStep, mediation: Mediation) -> Mediation:
    """A rewrite was made of the recorded form; the port gets the real values of what the rewrite left alone."""
    if mediation.arguments is None or opened.arguments is opened.asked:
        return mediation
    sealed = opened.arguments
    changed = {field: item for field, item in mediation.arguments.items() if field not in sealed or item is not sealed[field]}
    return replace(mediation, arguments=FrozenDict({**opened.asked, **changed}))

"""A step between asked and sealed."""

from __future__ import annotations

from typing import Any

from mat.boundary.port import Port
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


class OpenStep:
    """What is known of a step that was asked and is not sealed; the layers note on it what they do.

    `asked` holds the arguments as they came, `action.arguments` their recorded form. `mediation` and `executed` hold
    unredacted arguments, `raw` is what the port said, `passed` the chunks of a stream that the agent has got. `error_kind`
    names the kind of error that a layer raises here.
    """

    __slots__ = (
        "action", "agent", "artefacts", "asked", "asked_seq", "at_ms", "error_kind", "executed", "faults", "invoked", "links",
        "mediation", "nth", "passed", "port", "raw", "role", "site", "state", "step", "taped",
    )  # fmt: skip

    def __init__(
        self, port: Port, step: int, at_ms: int, asked_seq: int, agent: str, role: str, state: FrozenDict, site: str, nth: int,
        action: Action, asked: FrozenDict, links: tuple[Link, ...], artefacts: FrozenDict,
    ) -> None:  # fmt: skip
        self.port, self.step, self.at_ms, self.asked_seq = port, step, at_ms, asked_seq
        self.agent, self.role, self.state, self.site, self.nth = agent, role, state, site, nth
        self.action, self.asked, self.links, self.artefacts = action, asked, links, artefacts
        self.mediation: Mediation | None = None
        self.executed: FrozenDict | None = None
        self.raw: Observation | None = None
        self.invoked = 0
        self.faults: tuple[FaultNote, ...] = ()
        self.taped = False
        self.error_kind = ""
        self.passed: list[Any] | None = None

    @property
    def arguments(self) -> FrozenDict:
        """The arguments as they are recorded."""
        return self.action.arguments

    @property
    def given(self) -> FrozenDict:
        """The arguments the port would get now: those asked, or those that governance put in their place."""
        return self.asked if self.executed is None else self.executed

    def proposed(self) -> Record:
        """The step as far as it is known, for peeks: asked, nothing observed, effect unknown."""
        return new_record(
            self.step, self.at_ms, self.at_ms, self.asked_seq, self.asked_seq, self.agent, self.role, self.state, self.site,
            self.action, NOTHING, "unknown", self.mediation, self.links, self.executed, None, self.invoked, (), False,
            self.artefacts,
        )  # fmt: skip

    def effected(self, observation: Observation) -> Effected:
        """Whether the call had its effect, as far as anybody can know."""
        if observation.error is None and not observation.cancelled:
            return "yes" if self.invoked or self.taped or not self.port.boundary else "no"
        if self.invoked == 0:
            return "no"
        return "yes" if self.raw is not None and self.raw.error is None else "unknown"

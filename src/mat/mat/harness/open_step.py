"""A step between asked and sealed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

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
from mat.core.value import FrozenDict, fast_constructor


class OpenStep:
    """What is known of a step that was asked and is not sealed; the layers note on it what they do.

    `asked` holds the arguments as they came, `action.arguments` their recorded form. `mediation` and `executed` hold
    unredacted arguments, `raw` is what the port said, `passed` the chunks of a stream that the agent has got. `error_kind`
    names the kind of error that a layer raises here.
    """

    __slots__ = (
        "action", "agent", "artefacts", "asked", "asked_seq", "at_ms", "error_kind", "executed", "faults", "invoked", "links",
        "mediation", "passed", "port", "raw", "role", "site", "state", "step", "taped",
    )  # fmt: skip

    action: Action
    agent: str
    artefacts: FrozenDict
    asked: FrozenDict
    asked_seq: int
    at_ms: int
    error_kind: str
    executed: FrozenDict | None
    faults: tuple[FaultNote, ...]
    invoked: int
    links: tuple[Link, ...]
    mediation: Mediation | None
    passed: list[Any] | None
    port: Port
    raw: Observation | None
    role: str
    site: str
    state: FrozenDict
    step: int
    taped: bool

    @property
    def arguments(self) -> FrozenDict:
        """The arguments as they are recorded."""
        return self.action.arguments

    @property
    def given(self) -> FrozenDict:
        """The arguments the port would get now: those asked, or those that governance put in their place."""
        return self.asked if self.executed is None else self.executed

    @property
    def nth(self) -> int:
        """The occurrence number of the ask at its site, from 1."""
        return int(self.site.rpartition("#")[2])

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


def open_step(
    port: Port, step: int, at_ms: int, asked_seq: int, agent: str, role: str, state: FrozenDict, site: str,
    action: Action, asked: FrozenDict, links: tuple[Link, ...], artefacts: FrozenDict,
) -> OpenStep:  # fmt: skip
    """A step as it was asked. A plain function, at half the price of an `__init__`: every call makes one."""
    opened = OpenStep()
    opened.port = port
    opened.step = step
    opened.at_ms = at_ms
    opened.asked_seq = asked_seq
    opened.agent = agent
    opened.role = role
    opened.state = state
    opened.site = site
    opened.action = action
    opened.asked = asked
    opened.links = links
    opened.artefacts = artefacts
    opened.mediation = None
    opened.executed = None
    opened.raw = None
    opened.invoked = 0
    opened.faults = ()
    opened.taped = False
    opened.error_kind = ""
    opened.passed = None
    return opened


_HELD: Final = frozenset(OpenStep.__slots__) - {"mediation", "executed", "raw"}
sealed_record: Callable[..., Record] = fast_constructor(Record, copied=_HELD)
"""(opened, sealed_ms, sealed_seq, observation, effected, mediation, executed, raw): the record of a step.

The last three come in recorded form; all else is taken from the step.
"""

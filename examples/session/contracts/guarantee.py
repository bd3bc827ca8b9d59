"""A guarantee of the session contract (README.md).

It has an id, a section and a text; it says where it can be seen, and which contract judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from mat.core.record import ActionKind, Record
from mat.core.verdict import Obligation, Severity
from mat.monitor.contract import KEEP, Contract, ContractPolicy, Violated
from session.contracts.settings import SessionConfig
from session.contracts.view import START, Moment, View, observe

Observable: TypeAlias = Literal["result", "request", "log"]
Rule: TypeAlias = Callable[[Moment, Any], Any]
"""(moment, own state) -> the new own state, None to keep it, or Violated."""
End: TypeAlias = Callable[[SessionConfig, View, Any], Violated | None]
Open: TypeAlias = Callable[[SessionConfig, View, Any], tuple[Obligation, ...]]

SESSION_KINDS: Final[frozenset[ActionKind]] = frozenset(
    ("model_call", "tool_call", "memory_write", "final_response", "termination")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """One guarantee. `section` of the document, `text` in a sentence.

    `observable`: "result" if the AIAgentResult shows it, "request" if only the provider, a tool, the user or the
    configuration loader sees it, "log" if only logs show it: section 8 makes these advisory, so they are soft. `needs`: the
    settings that it requires.
    """

    id: str
    section: str
    text: str
    observable: Observable
    needs: tuple[str, ...]
    repair: str
    rule: Rule
    events: tuple[type, ...]
    start: Any = None
    end: End | None = None
    open: Open | None = None
    transports: tuple[str, ...] = ("native", "xml-final", "xml")
    streams: bool = False

    def applies(self, config: SessionConfig) -> bool:
        """Whether it applies to a session with this configuration."""
        return config.transport in self.transports and not self.missing(config)

    def missing(self, config: SessionConfig) -> tuple[str, ...]:
        """The required settings that are not given."""
        return tuple(name for name in self.needs if not config.knows(name))

    def make(
        self,
        config: SessionConfig,
        *,
        id: str = "",
        severity: Severity | Literal[""] = "",
        weight: float = -1.0,
        policy: ContractPolicy = "observe",
        repair: str = "",
    ) -> Contract:
        """The contract for a session of this configuration: hard, or soft if only logs show it."""
        rule, events, end, opened = self.rule, self.events, self.end, self.open

        def step(state: tuple[View, Any], record: Record) -> Any:
            moment = observe(config, state[0], record)
            own = state[1]
            new = rule(moment, own) if isinstance(moment.event, events) else None
            if type(new) is Violated:
                return replace(new, state=(moment.after, own if new.state is KEEP else new.state))
            if new is None:
                return state if moment.after is state[0] else (moment.after, own)
            return (moment.after, new)

        return Contract(
            id=id or self.id,
            step=step,
            start=(START, self.start),
            severity=severity or ("soft" if self.observable == "log" else "hard"),
            finish=None if end is None else lambda state: end(config, state[0], state[1]),
            obligations=None if opened is None else lambda state: opened(config, state[0], state[1]),
            kinds=SESSION_KINDS | {"message"} if self.streams else SESSION_KINDS,
            weight=weight,
            policy=policy,
            repair=repair or self.repair,
            text=self.text,
        )


_catalogue: dict[str, Guarantee] = {}


def guarantee(
    id: str,
    section: str,
    text: str,
    *,
    on: type | tuple[type, ...],
    observable: Observable,
    repair: str,
    needs: Iterable[str] = (),
    start: Any = None,
    end: End | None = None,
    open: Open | None = None,
    transports: tuple[str, ...] = ("native", "xml-final", "xml"),
    streams: bool = False,
) -> Callable[[Rule], Rule]:
    """Enter a rule into the catalogue as the guarantee `session.<id>`; `on` are the events that it judges."""

    def enter(rule: Rule) -> Rule:
        made = Guarantee(
            id=f"session.{id}",
            section=section,
            text=text,
            observable=observable,
            needs=tuple(needs),
            repair=repair,
            rule=rule,
            events=on if isinstance(on, tuple) else (on,),
            start=start,
            end=end,
            open=open,
            transports=transports,
            streams=streams,
        )
        assert made.id not in _catalogue, made.id
        _catalogue[made.id] = made
        return rule

    return enter


def entered() -> tuple[Guarantee, ...]:
    return tuple(_catalogue.values())


def broken(found: Iterable[Violated], state: Any = KEEP) -> Any:
    """Several violations of one step as one answer; without any, the state, or None to keep it."""
    items = tuple(found)
    if not items:
        return None if state is KEEP else state
    return replace(items[0], state=state, more=items[1:])

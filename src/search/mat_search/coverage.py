"""Coverage: the features of a run that no earlier run had. It guides strategies, and reports show how far a campaign looked.

A feature is a small tuple: a contract's verdict, an interface and how it answered, an action, two actions in a row, a risk, a
signal that an agent projects, or a state at a call. Coverage orders a search and never excludes anything from it, so no proof
depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from mat.core.campaign import Covered
from mat.core.record import Record
from mat.core.run import Run
from mat.core.value import EMPTY, FrozenDict, Value

Feature: TypeAlias = tuple[str, ...]
"""The kind of feature (contract, interface, action, transition, risk, signal, state), then its values."""

_STATE: Final = 16
"""How many characters of a state digest distinguish states. Collisions are harmless: no proof depends on them."""
_SIGNAL: Final = 32
"""How many characters of a projected text distinguish signals."""
_HUGE: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """How many features of a run are new: those of actions and verdicts, and states at calls."""

    behavior: int
    states: int

    @property
    def worth(self) -> int:
        """States count by their order of magnitude: a system that remembers one thing keeps having new states."""
        return self.behavior + self.states.bit_length()


class Coverage:
    """The features of all runs added so far."""

    def __init__(self) -> None:
        self._known: set[Feature] = set()

    def add(self, run: Run) -> News:
        """Add a run; returns its new features."""
        new = set(features(run)) - self._known
        self._known |= new
        states = sum(feature[0] == "state" for feature in new)
        return News(behavior=len(new) - states, states=states)

    def __len__(self) -> int:
        return len(self._known)


class CoverageTally:
    """The units that a report counts, over all executions of a search.

    Source: A6.5.
    """

    def __init__(self) -> None:
        self._armed: set[str] = set()
        self._evaluated: set[str] = set()
        self._crossed: set[tuple[str, str, str]] = set()
        self._perturbed: set[str] = set()
        self._risks: set[tuple[str, str]] = set()

    def note(self, run: Run) -> None:
        for outcome in run.outcomes:
            self._armed.add(outcome.contract)
            if outcome.evaluations:
                self._evaluated.add(outcome.contract)
        for record in run.records:
            action, mediation = record.action, record.mediation
            self._risks.add((action.impact, "" if mediation is None else mediation.decision))
            if action.boundary:
                self._crossed.add((action.boundary, action.name, met_error(record)))
        for item in run.spec.schedule:
            if item not in run.unreached:
                self._perturbed.add(f"{item.site.boundary}:{item.site.name}")

    @property
    def covered(self) -> Covered:
        return Covered(
            contracts=tuple(sorted(self._evaluated)),
            idle=tuple(sorted(self._armed - self._evaluated)),
            boundaries=tuple(sorted({boundary for boundary, _, _ in self._crossed})),
            interfaces=tuple(sorted({f"{boundary}:{name}" for boundary, name, _ in self._crossed})),
            perturbed=tuple(sorted(self._perturbed)),
            failing=tuple(sorted({f"{boundary}:{name}" for boundary, name, error in self._crossed if error})),
            risks=tuple(sorted(f"{impact}/{decision}" for impact, decision in self._risks)),
        )


def features(run: Run) -> Iterator[Feature]:
    """The features of a run, possibly with repetitions."""
    yield from _verdict_features(run)
    last: dict[str, Feature] = {}
    last_state: FrozenDict = EMPTY
    for record in run.records:
        action, met = record.action, met_error(record)
        decision = "" if record.mediation is None else record.mediation.decision
        here = (action.kind, action.name, met)
        yield ("action", action.kind, action.name, action.impact, record.effected)
        yield ("risk", action.impact, decision)
        yield ("transition", *last.get(record.agent, ()), *here)
        if action.boundary:
            yield ("interface", action.boundary, action.name, met)
        last[record.agent] = here
        if record.state is not last_state:
            last_state = record.state
            for signal, value in last_state.items():
                yield ("signal", signal, _signal_text(value))
    for state in run.states:
        yield ("state", state[:_STATE])
    yield ("transition", "", run.termination)


def _verdict_features(run: Run) -> Iterator[Feature]:
    """Features of the verdicts. Violations are counted as none, one or many, margins by their order of magnitude."""
    for outcome in run.outcomes:
        broken = sorted({f"{item.severity} {item.stage}" for item in outcome.violations})
        many = "many" if len(outcome.violations) > 1 else ""
        yield ("contract", outcome.contract, outcome.outcome, outcome.standing, *broken, many)
        if outcome.evaluations:
            yield ("contract", outcome.contract, "evaluated")
        for obligation in outcome.open:
            yield ("contract", outcome.contract, "open", obligation.text)
    for contract, margin in run.margins.items():
        yield ("contract", contract, "margin", str(magnitude(margin)))


def _signal_text(value: Value) -> str:
    """A projected signal as text; a number as its order of magnitude."""
    if isinstance(value, bool | str) or value is None:
        return str(value)[:_SIGNAL]
    return str(magnitude(int(value))) if isinstance(value, int | float) and abs(value) < _HUGE else type(value).__name__


def met_error(record: Record) -> str:
    """The kind of error that an agent met at a crossing, or its class; "" without an error."""
    error = record.observation.error
    if error is not None:
        return error.kind or error.type
    return "cancelled" if record.observation.cancelled else ""


_NO_MARGIN: Final = 1000


def magnitude(margin: int) -> int:
    """The binary order of magnitude of a margin in thousandths; negative where the contract is broken."""
    return margin.bit_length() if margin > 0 else -(-margin).bit_length()


class Nearness:
    """How near a run came to breaking a hard contract that the nominal run keeps."""

    def __init__(self, nominal: Run) -> None:
        self._broken = frozenset(item.contract for item in nominal.violations)

    def least(self, run: Run) -> int:
        """The least margin in thousandths, 0 or less if broken; a contract without a margin counts as 1000."""
        hard = [item.contract for item in run.outcomes if item.severity == "hard" and item.contract not in self._broken]
        return min((int(run.margins[contract]) for contract in hard if contract in run.margins), default=_NO_MARGIN)

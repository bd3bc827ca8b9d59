"""The conformance kit for adapters: one scripted agent for each scenario, and what each declared ability must do with it.

    from mat.adapters.conformance import Scripted, findings

    def test_the_adapter_conforms():
        assert findings("toolbox", {"tools": Scripted(run=work, real=calls, steps=(("tool_call", "refund"),))}) == ()

Each scenario is run plainly, attached outside of a run, in runs, disturbed, governed and replayed. A scenario that a framework
does not offer is left out, and says nothing; an ability that is not declared must not work either.

Source: E2, A1.2, A4.1, A6.1.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from mat.adapters.attach import adapter_named, attach
from mat.adapters.attachment import Ability
from mat.boundary.tape import Tape
from mat.core.record import Record
from mat.core.run import Run
from mat.core.spec import perturbation
from mat.govern.mediator import Block, Governance
from mat.harness.execute import run as new_run

Scenario: TypeAlias = Literal["tools", "retrieval", "memory", "delegation", "parallel", "stream", "failing"]
SCENARIOS: Final[tuple[Scenario, ...]] = ("tools", "retrieval", "memory", "delegation", "parallel", "stream", "failing")
_FAULTS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "tool_call": ("service.timeout", {}),
    "retrieval": ("retrieval.empty", {"magnitude": 1}),
    "memory_write": ("memory.lost_write", {}),
    "model_call": ("model.empty", {"magnitude": 1}),
    "delegation": ("delegation.delay", {"ms": 1000, "magnitude": 1}),
}
"""A fault for each kind of step, whose effect can be seen in its record."""
_INNER: Final = ("model_call", "memory_read", "memory_write")
"""Steps that a framework makes by itself: they are compared only where the agent names steps of that kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """An agent in the framework, without a network and with scripted models.

    `run()`: works once, from the same state each time, and returns the answer. `real()`: the names of the calls that really
    ran in the last run, in order. `steps`: (action kind, port name) of each call that crosses a boundary, in order; in the
    scenario "parallel" the order is free. Model calls, and a memory that the framework keeps by itself, may be left out.
    """

    run: Callable[[], Any]
    real: Callable[[], Sequence[str]]
    steps: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFinding:
    """Where an adapter is not what it declares: `ability` and `scenario`, and what was seen."""

    ability: Ability | Literal["detach"]
    scenario: str
    what: str

    def __str__(self) -> str:
        return f"{self.ability}, {self.scenario}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worked:
    """What came of one execution: the answer or the type of what it raised, the real calls, and the run."""

    outcome: tuple[str, Any]
    real: tuple[str, ...]
    run: Run | None = None

    @property
    def records(self) -> tuple[Record, ...]:
        return () if self.run is None else tuple(each for each in self.run.records if each.action.boundary)


def findings(name: str, agents: Mapping[Scenario, Scripted], **options: Any) -> tuple[AdapterFinding, ...]:
    """Where the adapter `name` is not what it declares, over all scenarios; empty if it conforms. `options`: as for `attach`.

    >>> import httpx
    >>> made = []
    >>> def answer(request):
    ...     made.append(f"GET shop.test{request.url.path}")
    ...     return httpx.Response(200, json={"paid": 30})
    >>> def work():
    ...     made.clear()
    ...     client = httpx.Client(transport=httpx.MockTransport(answer))
    ...     return client.get("http://shop.test/orders").json()["paid"]
    >>> findings("httpx", {"tools": Scripted(run=work, real=lambda: made, steps=(("tool_call", "GET shop.test/orders"),))})
    ()
    """
    abilities = adapter_named(name).abilities
    found: list[AdapterFinding] = []
    for scenario in SCENARIOS:
        if scenario in agents:
            kit = _Kit(name, agents[scenario], scenario, options, abilities)
            found += kit.findings()
    return tuple(found)


class _Kit:
    """One scenario of one adapter."""

    def __init__(
        self, name: str, agent: Scripted, scenario: Scenario, options: Mapping[str, Any], abilities: Sequence[Ability]
    ) -> None:
        self._name, self._agent, self._scenario, self._options = name, agent, scenario, options
        self._abilities = abilities

    def findings(self) -> Iterator[AdapterFinding]:
        plain = self._work()
        yield from self._outside(plain)
        first = self._attached()
        yield from self._observed(plain, first)
        yield from self._perturbed(first)
        yield from self._governed(first)
        yield from self._replayed(first)

    # -- executions -------------------------------------------------------------------------------------------------

    def _work(self) -> _Worked:
        try:
            outcome = "answered", self._agent.run()
        except Exception as error:
            outcome = "raised", type(error).__name__
        return _Worked(outcome=outcome, real=tuple(self._agent.real()))

    def _attached(self, *, twice: bool = False, **given: Any) -> _Worked:
        """One execution in a run, with the framework attached."""
        made, worked = new_run(**given), None
        with made, attach(self._name, **self._options):
            if twice:
                with attach(self._name, **self._options):
                    worked = self._work()
            else:
                worked = self._work()
        assert made.result is not None
        if worked is None:  # the run was ended at its horizon
            worked = _Worked(outcome=("stopped", made.result.termination), real=tuple(self._agent.real()))
        return replace(worked, run=made.result)

    # -- abilities --------------------------------------------------------------------------------------------------

    def _outside(self, plain: _Worked) -> Iterator[AdapterFinding]:
        """Outside of a run an attachment changes nothing, and after it the framework is as it was."""
        with attach(self._name, **self._options) as attachment:
            attached = self._work()
            replaced = attachment.replaced
        if (attached.outcome, attached.real) != (plain.outcome, plain.real):
            yield self._finding("observe", f"outside of a run the agent gives {attached.outcome}, not {plain.outcome}")
        left = [f"{_owner_name(owner)}.{name}" for owner, name, before in replaced if _static(owner, name) is not before]
        if left:
            yield self._finding("detach", f"still replaced after the attachment: {', '.join(sorted(set(left)))}")
        made = new_run()
        with made:
            after = self._work()
        records = () if made.result is None else [each.site for each in made.result.records if each.action.boundary]
        if records:
            yield self._finding("detach", f"a run after the attachment still records {', '.join(records)}")
        if (after.outcome, after.real) != (plain.outcome, plain.real):
            yield self._finding("detach", f"after the attachment the agent gives {after.outcome}, not {plain.outcome}")

    def _observed(self, plain: _Worked, first: _Worked) -> Iterator[AdapterFinding]:
        seen = self._seen(first)
        expected = list(self._agent.steps)
        same = Counter(seen) == Counter(expected) if self._scenario == "parallel" else seen == expected
        if "observe" not in self._abilities:
            if same:
                yield self._finding("observe", "it is not declared, but every step is recorded")
            return
        if not same:
            yield self._finding("observe", f"recorded {seen}, not {expected}")
        if (first.outcome, first.real) != (plain.outcome, plain.real):
            yield self._finding("observe", f"in a run the agent gives {first.outcome}, not {plain.outcome}")
        again, nested = self._attached(), self._attached(twice=True)
        if first.run is not None and again.run is not None and first.run.head != again.run.head:
            yield self._finding("observe", "two runs of the same agent differ: something recorded is drawn outside of the run")
        if self._seen(nested) != seen:
            yield self._finding("observe", f"attached twice, it records {self._seen(nested)}")

    def _perturbed(self, first: _Worked) -> Iterator[AdapterFinding]:
        for record in self._targets(first):
            operator, parameters = _FAULTS[record.action.kind]
            disturbed = self._attached(schedule=[perturbation(operator, record.site, parameters)])
            works = self._took_effect(disturbed, record)
            if works and "perturb" not in self._abilities:
                yield self._finding("perturb", f"it is not declared, but {operator} changes {record.site}")
            elif not works and "perturb" in self._abilities:
                yield self._finding("perturb", f"{operator} at {record.site} does not reach the agent")
            elif works and record.action.kind == "tool_call" and len(disturbed.real) >= len(first.real) > 0:
                made = Counter(disturbed.real)[record.action.name] >= Counter(first.real)[record.action.name]
                if made and disturbed.outcome == first.outcome and disturbed.records == first.records:
                    yield self._finding("perturb", f"{operator} at {record.site} is recorded, but the call really ran")

    def _took_effect(self, disturbed: _Worked, record: Record) -> bool:
        assert disturbed.run is not None
        same = next((each for each in disturbed.records if each.site == record.site), None)
        return not disturbed.run.unreached and same is not None and any(note.changed for note in same.faults)

    def _governed(self, first: _Worked) -> Iterator[AdapterFinding]:
        target = next((each for each in self._targets(first) if each.action.kind == "tool_call"), None)
        if target is None:
            return
        name = target.action.name

        def rule(record: Any) -> Any:
            return Block("the conformance kit blocks it") if record.action.name == name else None

        governed = self._attached(governance=Governance(rules=(rule,)))
        decided = [each.mediation.decision for each in governed.records if each.mediation and each.action.name == name]
        works = bool(decided) and {*decided} == {"block"} and name not in governed.real
        if works and "govern" not in self._abilities:
            yield self._finding("govern", f"it is not declared, but a block stops {name}")
        elif not works and "govern" in self._abilities:
            ran = ", but it ran" if name in governed.real else ""
            yield self._finding("govern", f"a blocked {name} is decided {decided or 'by nobody'}{ran}")

    def _replayed(self, first: _Worked) -> Iterator[AdapterFinding]:
        assert first.run is not None
        tape = Tape(first.run.tape, live=0)
        again = self._attached(tape=tape)
        assert again.run is not None
        works = again.run.head == first.run.head and tape.refused is None
        if works and "replay" not in self._abilities and self._agent.steps:
            yield self._finding("replay", "it is not declared, but a recorded run is repeated exactly")
        elif not works and "replay" in self._abilities:
            why = "a reply is missing" if tape.refused else "the repeated run differs"
            yield self._finding("replay", f"a recorded run is not repeated from its tape: {why}")

    # -- parts ------------------------------------------------------------------------------------------------------

    def _seen(self, worked: _Worked) -> list[tuple[str, str]]:
        named = {kind for kind, _ in self._agent.steps}
        found = [(each.action.kind, each.action.name) for each in worked.records]
        return [each for each in found if each[0] in named or each[0] not in _INNER]

    def _targets(self, first: _Worked) -> list[Record]:
        """The first step of each kind that a fault is tried at."""
        kinds: dict[str, Record] = {}
        for record in first.records:
            if record.action.kind in _FAULTS:
                kinds.setdefault(record.action.kind, record)
        return list(kinds.values())

    def _finding(self, ability: Ability | Literal["detach"], what: str) -> AdapterFinding:
        return AdapterFinding(ability=ability, scenario=self._scenario, what=what)


def _static(owner: Any, name: str) -> Any:
    return inspect.getattr_static(owner, name, None)


def _owner_name(owner: Any) -> str:
    return str(getattr(owner, "__qualname__", None) or getattr(owner, "__name__", None) or type(owner).__qualname__)


__all__ = ["SCENARIOS", "AdapterFinding", "Scenario", "Scripted", "findings"]

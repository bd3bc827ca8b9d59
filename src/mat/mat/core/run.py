"""A finished run as a plain value. Verdicts, measures and reports are functions of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from operator import itemgetter
from typing import Any, Final, Literal, TypeAlias

from mat.core.adversary import Seen
from mat.core.digest import canonical, chain
from mat.core.record import Record, facts, history, view
from mat.core.spec import Perturbation, RunSpec
from mat.core.value import EMPTY, EXACT_FIELDS, SPARSE, FrozenDict, Value
from mat.core.verdict import UNJUDGED, ContractOutcome, Outcome, Stage, Verdict, Violation, merge

Termination: TypeAlias = Literal["completed", "aborted", "failed", "implicit", "exception", "horizon", "deadlock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TapeEntry:
    """What a port replied to one call, before faults. `mode` is external or inprocess; `request` is the asked digest."""

    __pydantic_config__ = EXACT_FIELDS
    site: str
    request: str
    mode: str
    value: Value = None
    error: tuple[str, str, str] | None = None
    opaque: bool = False
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A note about the run for people: a code, a sentence, and the step where it was noticed."""

    __pydantic_config__ = EXACT_FIELDS
    code: str
    message: str
    step: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivalenceClass:
    """Which other grid points of a perturbation that acted would have made the same run; noted for the search.

    `effect`: the operator would have decided the same effect at this very ask. `decisions`: every decision that was taken on
    the injected numbers would have come out the same. `local`: the operator looked at the call's kind, port, agent, place in
    the range, parameters and arguments and at the reply alone, and drew nothing, so that it decides the same at any equal call.
    """

    __pydantic_config__ = EXACT_FIELDS
    site: str
    operator: str
    parameters: FrozenDict
    local: bool = False
    effect: tuple[FrozenDict, ...] = ()
    decisions: tuple[FrozenDict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PortErrors:
    """The clients whose exceptions a search injects at a port, where the tool's own declaration does not leave only one.

    `port`: "boundary:name". `kinds`: kind of failure -> names of presets of `errors=`, each of which is tried. `guess`: what
    they were read from, in words; "" if the tool or the project declares them.
    """

    __pydantic_config__ = EXACT_FIELDS
    port: str
    kinds: FrozenDict
    guess: str = ""

    @property
    def clients(self) -> tuple[str, ...]:
        """All names, each once, the likeliest first."""
        return tuple(dict.fromkeys(str(name) for names in self.kinds.values() for name in names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncaught:
    """An injected failure that left the run's body: its port, "boundary:name", and the type of its exception."""

    __pydantic_config__ = EXACT_FIELDS
    port: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished run as a value: its specification, its records and what the contracts say of them.

    `mat.run(...).result` is one, and so is a run that was stored. What users read:

    - `spec`: task, configuration, seed, schedule. `id`: their digest.
    - `records`, or `trace`: the steps, as `mat.Record`s. `verdicts`: one `mat.Verdict` for each step.
    - `outcomes`: one for each contract. `outcome`: "pass", "unknown" or "fail" over all hard contracts. `violations`: all, by
      step; `failures`: the hard ones.
    - `success`: whether the task succeeded, None if nothing judges it. `error`: the exception that ended the run, in one line.
    - `termination`: "completed", "aborted", "failed", "implicit" (the body returned without `mat.finish`), "exception",
      "horizon" or "deadlock". `term`: whether it ended by itself.
    - `elapsed_ms`: run time. `unreached`: perturbations of the schedule whose call never came. `findings`: notes for people.
    - `margins`: contract -> thousandths by which it was kept (0 or less: broken), if the contract defines a margin.
    - `places`: for each step, the line of the agent's code that made the call (`travel/assistant.py:51`). A label: no part of
      `head`, of equality and of replay files.
    - `head`: the hash chain of all facts, the same for every execution of one specification. `view`: that of what agents and
      the world got, without fault labels and the schedule.

    The rest is kept for replay and search: `tape`, `states` (monitor digests at each ask), `restricted` (port -> the only
    operators that it allows), `contended` (steps where another call could have gone first), `equivalence_classes` (of
    perturbations), `seen` (what an adversary was shown), `errors` (ports and the clients whose exceptions are injected
    there), `uncaught` (an injected failure that ended the run), and what the user vouches for: `complete`, `clocked`,
    `concolic` (see `mat.spec.StateDigest`).

    >>> with mat.run(seed=7) as run:
    ...     mat.finish("Parcel 17 arrives on Friday")
    >>> run.result.spec.seed, run.result.termination, run.result.outcome, run.result.success
    (7, 'completed', 'pass', True)

    Source: A1.6 (Eq. 4), A1.7, A3.1.
    """

    __pydantic_config__ = EXACT_FIELDS
    spec: RunSpec
    records: tuple[Record, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    outcomes: tuple[ContractOutcome, ...] = ()
    tape: tuple[TapeEntry, ...] = ()
    termination: Termination = "implicit"
    success: bool | None = None
    error: str = ""
    unreached: tuple[Perturbation, ...] = ()
    findings: tuple[Finding, ...] = ()
    states: tuple[str, ...] = ()
    restricted: FrozenDict = EMPTY
    elapsed_ms: int = 0
    contended: tuple[int, ...] = ()
    equivalence_classes: tuple[EquivalenceClass, ...] = ()
    margins: FrozenDict = EMPTY
    complete: bool = False
    clocked: bool = True
    concolic: bool = False
    seen: tuple[Seen, ...] = ()
    errors: tuple[PortErrors, ...] = ()
    uncaught: Uncaught | None = None
    places: tuple[str, ...] = field(default=(), compare=False, metadata=SPARSE)

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def trace(self) -> tuple[Record, ...]:
        return self.records

    @property
    def term(self) -> bool:
        """Whether the run ended by itself, and was not stopped at the horizon or in a deadlock."""
        return self.termination not in ("horizon", "deadlock")

    @property
    def head(self) -> str:
        """The hash chain of all facts, which identifies the run."""
        link = self.id
        for record in self.records:
            link = chain(link, facts(record))
        return chain(link, [self.termination, self.elapsed_ms])

    @property
    def view(self) -> str:
        """The hash chain of what agents and the world got, without fault labels and the schedule."""
        link = self.spec.base
        for record in self.records:
            link = chain(link, view(record))
        return chain(link, [self.termination, self.elapsed_ms])

    @property
    def violations(self) -> tuple[Violation, ...]:
        """All violations, hard and soft, by step."""
        found = [violation for outcome in self.outcomes for violation in outcome.violations]
        return tuple(sorted(found, key=lambda item: (item.step, item.contract, item.instance)))

    @property
    def failures(self) -> tuple[Violation, ...]:
        """The hard violations: Fail(tau) = 1 iff there is one."""
        return tuple(violation for violation in self.violations if violation.severity == "hard")

    @property
    def outcome(self) -> Outcome:
        return merge(item.outcome for item in self.outcomes if item.severity == "hard")

    @property
    def broken(self) -> tuple[Violation, ...]:
        """The hard violations that the agent is to blame for: not those of contracts that could not judge."""
        return tuple(violation for violation in self.failures if violation.label != UNJUDGED)

    @property
    def measured(self) -> Outcome:
        """The outcome as a measurement of the agent: unknown, not fail, where a contract could not judge and none is broken."""
        if self.broken:
            return "fail"
        return "unknown" if any(item.unjudged for item in self.outcomes if item.severity == "hard") else self.outcome

    @property
    def uncontrolled(self) -> tuple[Finding, ...]:
        """Findings that invalidate a proof: something was not under the control of the run."""
        return tuple(item for item in self.findings if item.code in UNCONTROLLED)

    def place(self, step: int) -> str:
        """The line of the agent's code that made the call of a step, as `file:line`; "" if it is not known."""
        return self.places[step] if 0 <= step < len(self.places) else ""

    def prefix(self, step: int) -> str:
        """Digest of the history of all crossings asked before `step`; two runs that agree here are the same up to that step."""
        return prefixes(self)[step]


UNCAUGHT: Final = "uncaught-failure"
"""The code of a finding: an injected failure left the body of a test. If its type is wrong, it hides what the test would do."""
ATTACHED: Final = "attached"
"""The code of a finding that names an attached framework, its release and its own policy for failures."""
UNCONTROLLED = frozenset({"order-not-controlled", "real-clock", "real-sleep", "opaque-reply"})
REFUSED: Final = frozenset({"network-refused", "process-refused"})
"""The codes of findings on ways out of the run that it refused. An agent that catches every exception hides the refusal."""
_REMEDIES: Final = {
    "network-refused": "use a fake behind the client; if this is a server on this machine that the test starts, allow it with "
    "loopback=True in the marker or mat_loopback = true in the ini file",
    "process-refused": "declare the program: mat.adapters.program([...])",
    "real-clock": 'use a fake behind the client instead of a socket; do not use clock="real"',
    "real-sleep": "wait with time.sleep or asyncio.sleep",
    "opaque-reply": "return plain data from the port (numbers, texts, lists, dicts), or wrap it in a function that does",
    "order-not-controlled": "make locks and threads in the test, and wait with the standard library",
}


def ending_text(termination: Termination) -> str:
    """How a run ended, in words."""
    return "its body returned" if termination == "implicit" else termination


def remedy(code: str) -> str:
    """What to do about a finding, by its code."""
    return _REMEDIES.get(code, "see docs/time.md")


def prefixes(run: Run) -> tuple[str, ...]:
    """For each step, D of DESIGN decision 8 as it stood when that step was asked, and one more for the end.

    Only crossings sealed before the ask lie in it whole; one still in flight lies in it with what had been asked, and a
    perturbation that acts on it is not in D: whoever compares two D must compare those too. The monitor states stand for
    the fault labels.
    """
    past, found, states = sha256(run.spec.base.encode()), [], run.states
    events = []
    for record in run.records:
        if record.sealed_seq == record.asked_seq + 1:  # nothing happened in between: one event holds both phases
            events.append((record.asked_seq, True, True, record))
        else:
            events += [(record.asked_seq, True, False, record), (record.sealed_seq, False, True, record)]
    for _, asked, sealed, record in sorted(events, key=itemgetter(0)):
        if asked:
            here = past.copy()
            here.update((states[record.step] if record.step < len(states) else "").encode())
            found.append(here.hexdigest())
        past.update(_event(history(record) if sealed else [record.site, record.action.arguments, record.at_ms]))
    past.update(_event([states[-1] if states else "", run.termination, run.elapsed_ms]))
    return (*found, past.hexdigest())


def _event(facts: list[Any]) -> bytes:
    """One event of a history, as one line, so that different sequences of events have different texts."""
    return (canonical(facts) + "\n").encode("utf-8", "surrogatepass")


def same_violation(one: Violation, other: Violation) -> bool:
    """Whether two violations count as the same for shrinking and replay: same contract and stage."""
    return one.contract == other.contract and one.stage == other.stage


def stages(run: Run) -> frozenset[tuple[str, Stage]]:
    return frozenset((violation.contract, violation.stage) for violation in run.failures)

"""The results of a search as values: counterexamples, certificates, and the result of one test item.

They are here because evidence, measures and reports read them without knowing the search that makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from mat.core.run import Finding, Run
from mat.core.spec import Schedule
from mat.core.value import EMPTY, EXACT_FIELDS, FrozenDict
from mat.core.verdict import Severity, Stage, Violation

ItemStatus: TypeAlias = Literal[
    "nominal",  # ran without stress and kept its contracts
    "violated",  # a nominal run violates a hard contract
    "certified",  # searched to the bound, no counterexample, all checks held
    "counterexample",  # found, and not expected
    "expected",  # exactly the expected contracts were broken
    "accepted",  # what is broken is accepted until a date (mat accept)
    "known",  # what is broken stands in the baseline (--mat-baseline)
    "flaky",  # broken in some executions of one schedule, and not in others
    "not_proven",  # no counterexample, and no proof: limit reached or a check failed
    "missed",  # expected contracts for which no counterexample was found
    "vacuous",  # a hard contract was never triggered, or nothing can be disturbed
    "not_judged",  # a hard contract could not judge a run, and says that this is no failure (on_error="unknown")
    "stale",  # a replay whose sites are no longer reached
    "replayed",  # a replay that holds
    "evaluated",  # measured under all conditions (--mat-evaluate)
    "failed",  # the test itself failed
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How far a search looked.

    `proven`: every schedule of the grid with cost <= `bound` was executed, or skipped because an equal state had been
    searched. `states` counts distinct (state, site, injection) edges, `skipped` those not executed, by reason. `grid` is the
    operators' grid as data, `checks` what was compared, with counts. `relative_to` names what a proof takes as given ("the
    recorded replies"); `assumptions` are declarations that it relies on ("reads that are declared to change nothing: search"):
    points that other runs cover only if these hold were left out (`mat_search.covering`). `hash_seeds`: those of the fresh
    processes that executed a sample of the schedules and agreed with this one. `estimate` is the interval that stands in
    place of a proof: {value, low, high, n, confidence, method}.
    """

    __pydantic_config__ = EXACT_FIELDS
    proven: bool
    reason: str = ""
    bound: int = 0
    executions: int = 0
    states: int = 0
    skipped: FrozenDict = EMPTY
    grid: FrozenDict = EMPTY
    seeds: tuple[int, ...] = ()
    checks: FrozenDict = EMPTY
    relative_to: str = ""
    estimate: FrozenDict = EMPTY
    assumptions: tuple[str, ...] = ()
    hash_seeds: tuple[int, ...] = ()

    @property
    def given(self) -> str:
        """What the certificate takes as given, in words: `relative_to` and the assumptions."""
        return "; ".join(part for part in (self.relative_to, *self.assumptions) if part)

    @property
    def given_in_full(self) -> str:
        """`given`, and the hash seeds that were tried."""
        seeds = f"hash seeds {' and '.join(map(str, self.hash_seeds))}" if self.hash_seeds else ""
        return "; ".join(part for part in (self.given, seeds) if part)

    def below(self, cost: int) -> Certificate:
        """The certificate of a counterexample of that cost: it proves that there is no cheaper one."""
        return replace(self, bound=min(self.bound, max(0, cost - 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """Executions of a counterexample and how many showed the same contract and stage.

    `other_seeds`: how many further seeds of its item it was executed on; `shown_on` names those that showed it too.
    """

    __pydantic_config__ = EXACT_FIELDS
    runs: int = 0
    reproduced: int = 0
    other_seeds: int = 0
    shown_on: tuple[int, ...] = ()

    @property
    def stable(self) -> bool:
        return self.runs > 0 and self.runs == self.reproduced


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What kind of failure it is.

    Source: A6.5.
    """

    __pydantic_config__ = EXACT_FIELDS
    contract: str
    severity: Severity
    action_kind: str
    interface: str
    risk: str
    operator_family: str


def signature_of(run: Run, verdict: Violation) -> Signature:
    """What kind of failure a violation of a run is."""
    record = next((item for item in run.records if item.step == verdict.step), None)
    families = sorted({item.operator.partition(".")[0] for item in run.spec.schedule})
    return Signature(
        contract=verdict.contract,
        severity=verdict.severity,
        action_kind=record.action.kind if record else "",
        interface=record.action.name if record else "",
        risk=record.action.impact if record else "",
        operator_family="+".join(families) or "none",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """A shrunk run that breaks a contract. `run.spec.schedule` is the schedule; its perturbations carry their costs."""

    __pydantic_config__ = EXACT_FIELDS
    verdict: Violation
    run: Run
    stability: Stability = Stability()

    @property
    def cost(self) -> int:
        return self.run.spec.schedule.cost

    @property
    def flaky(self) -> bool:
        """Whether only some of its repetitions showed it again."""
        return self.stability.runs > 0 and not self.stability.stable

    @property
    def signature(self) -> Signature:
        return signature_of(self.run, self.verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """What the executions of a search covered; every field is sorted.

    `contracts` were evaluated on an action, `idle` were armed and never were. `boundaries` and `interfaces` (`boundary:name`)
    were crossed; of these `perturbed` met a fault and `failing` answered with an error. `risks` are `impact/decision`, the
    decision being that of governance, "" without one.

    Source: A6.5.
    """

    __pydantic_config__ = EXACT_FIELDS
    contracts: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    boundaries: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    perturbed: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()


Standing: TypeAlias = Literal["new", "expected", "accepted", "known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingStanding:
    """Whether a finding fails its test: a new one does. The others are expected (`expect=`), accepted, or in the baseline.

    `remark`: by whom and why it is accepted; for a new one, why it is not. `until`: the last day of an acceptance.
    """

    __pydantic_config__ = EXACT_FIELDS
    kind: Standing = "new"
    remark: str = ""
    until: str = ""


NEW: Final = FindingStanding()


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSignature:
    """A signature, and whether the action was attempted or took effect."""

    __pydantic_config__ = EXACT_FIELDS
    stage: Stage
    signature: Signature


def signatures_in(run: Run, contracts: Iterable[str]) -> tuple[StagedSignature, ...]:
    """The signatures of the hard violations of these contracts in a run, each once, by step."""
    chosen = frozenset(contracts)
    found = (each for each in run.failures if each.contract in chosen)
    return tuple(dict.fromkeys(StagedSignature(stage=each.stage, signature=signature_of(run, each)) for each in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRun:
    """A run that breaks contracts, without its steps: one entry, however many contracts it breaks at however many steps.

    `verdict` is the first violation, `contracts` are all that have this `standing`, by their first step, and `signatures` are
    theirs. `place` is the line of the agent's call (`file:line`), "" if it is not known. `replays` are the files of the run,
    that of `verdict` first. `stability`: how often a counterexample was reproduced. `test`: the node id of the test.
    """

    __pydantic_config__ = EXACT_FIELDS
    verdict: Violation
    contracts: tuple[str, ...]
    schedule: Schedule
    place: str = ""
    replays: tuple[str, ...] = ()
    stability: Stability = Stability()
    signatures: tuple[StagedSignature, ...] = ()
    standing: FindingStanding = NEW
    test: str = ""

    @property
    def flaky(self) -> bool:
        """Whether only some of its repetitions showed it again."""
        return self.stability.runs > 0 and not self.stability.stable


def broken_run(
    run: Run, first: Violation, contracts: frozenset[str], *, files: Sequence[str] = (), stability: Stability = Stability()
) -> BrokenRun:
    """A run that breaks some of these contracts, `first` of all at the step of that violation."""
    others = (each.contract for each in run.failures if each.contract in contracts)
    return BrokenRun(
        verdict=first, contracts=tuple(dict.fromkeys([first.contract, *others])), schedule=run.spec.schedule,
        place=run.place(first.step), replays=tuple(dict.fromkeys(files)), stability=stability,
        signatures=signatures_in(run, contracts), test=run.spec.task,
    )  # fmt: skip


CallKey: TypeAlias = tuple[int, str, str, int]
"""A call of an external port: seed, port, digest of the request, occurrence number of that request in its run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingReply:
    """A request that no recorded reply answers. `asked`: port -> requests of its run so far, this one included."""

    __pydantic_config__ = EXACT_FIELDS
    key: CallKey
    asked: FrozenDict

    @property
    def port(self) -> str:
        return self.key[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCost:
    """An estimate of what live calls cost: how many, their tokens, and their price in millionths of a currency.

    `tokens` is None if no reply reports usage, `price` if no price is known. `unpriced`: the ports that the price leaves out.
    """

    __pydantic_config__ = EXACT_FIELDS
    calls: int
    tokens: int | None = None
    price: int | None = None
    currency: str = ""
    unpriced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """How far the recorded replies of external ports reach in a search.

    `reached` schedules were executed with them; `unreached` ones asked something new that no live call was left for, which
    would cost about `missing`. `planned`: what all live calls of the search would cost, estimated before it began.
    `made`: live calls of this session.
    """

    __pydantic_config__ = EXACT_FIELDS
    reached: int
    unreached: int
    missing: LiveCost
    planned: LiveCost | None = None
    made: int = 0


NOT_JUDGED: Final = "(not judged: objective='task')"
"""The end of a note of an item: of its disturbed runs, some failed the test's own asserts without being judged by them."""
BROKE: Final = "broke a hard contract"
"""The end of a note of an evaluated item, whose broken contracts fail nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """The result of one test item. `counterexamples` are ranked by cost, cheapest first; `replays` name their files, and
    `standings` say which of them fail the item (() if all do).

    `covered`: what its search covered, None without a search; `recorded`: how far recorded replies reached in it, None without
    any. `notes`: what its status does not say: vacuous contracts, and
    runs that failed the test's own asserts without being judged by them. Of the contracts that are armed for several tests,
    `tried` were triggered by this one, and `untried` were not. `reused`: the day on which its certificate was made
    ("2026-11-28"), if it was not searched again; `executions` are then those of this session.
    """

    __pydantic_config__ = EXACT_FIELDS
    id: str
    status: ItemStatus
    counterexamples: tuple[Counterexample, ...] = ()
    certificate: Certificate | None = None
    executions: int = 0
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    replays: tuple[str, ...] = ()
    category: str = ""
    covered: Covered | None = None
    recorded: Recorded | None = None
    notes: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    reused: str = ""
    standings: tuple[FindingStanding, ...] = ()

    def standing(self, index: int) -> FindingStanding:
        """The standing of the counterexample at this index."""
        return self.standings[index] if self.standings else NEW

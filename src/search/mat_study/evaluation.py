"""One execution of an item as values: an Evaluator takes a Plan and returns Evaluated or Lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from mat.boundary.tape import Tape
from mat.core.adversary import Choose
from mat.core.campaign import MissingReply
from mat.core.run import Finding, Run
from mat.core.spec import NO_SCHEDULE, Schedule
from mat.core.verdict import Violation
from mat.evidence.moving import MovedSite
from mat.evidence.replay_file import Replay
from mat.govern.variant import NONE
from mat.kernel.isolation import OutlivedState
from mat.kernel.reads import Read
from mat.measure.rows import Labels
from mat.measure.workload import Workload
from mat.monitor.contract import Contract
from mat_study.tasks import Judged

ExecutionMode: TypeAlias = Literal["nominal", "search", "regression", "strict", "compare", "measure"]
"""`compare`: a nominal run under another governance variant. `measure`: the first run of an evaluation; a test that is not a
task is executed as "nominal" instead, and the returned plan says so."""
TestOutcome: TypeAlias = Literal["passed", "failed", "skipped", "error"]
"""The outcome of a test in reports: `failed` in its body, `error` in its setup or teardown."""
REPORTED: Final = ("nominal", "regression", "strict")
"""Modes in which the outcome of the body is the outcome of the test; in other modes its failures are data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an evaluator executes. `variant`: the governance variant, "" for the item's own. `tape` answers external ports.

    `vary`: numbers in perturbed replies may be concolic values. `adversary` chooses perturbations during the run. `replay`:
    the counterexample that is run again. `moves`: how its schedule differs from the recorded one, because the calls that it
    disturbs have other sites now; None if nobody has looked for them. `look`: the violation that a person inspects (--pdb).
    """

    mode: ExecutionMode = "nominal"
    seed: int = 0
    schedule: Schedule = NO_SCHEDULE
    variant: str = ""
    tape: Tape | None = None
    replay: Replay | None = None
    moves: tuple[MovedSite, ...] | None = None
    vary: bool = False
    adversary: Choose | None = None
    look: Violation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """An execution that gave a run, and everything known about it.

    `outcome` is the test's. `judged` is the workload's judgment of the run. `contracts` were armed, those in `shared` (by
    id) for several tests at once. `variants` are the governance variants to run the
    item under, its own first. `outlived`: what is found to outlive executions by then. `read`: what executions in another
    process have read by then.
    """

    plan: Plan
    run: Run
    outcome: TestOutcome
    task: Workload
    judged: Judged
    contracts: tuple[Contract, ...] = ()
    shared: frozenset[str] = frozenset()
    variants: tuple[str, ...] = (NONE,)
    outlived: tuple[OutlivedState, ...] = ()
    read: tuple[Read, ...] = ()

    @property
    def variant(self) -> str:
        return self.plan.variant or self.variants[0]

    @property
    def labels(self) -> Labels:
        return self.judged.labels

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.run.findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """An execution without a run that counts: the test was skipped, or its setup or teardown failed.

    `why` is the reason, in the same words for the same cause; `outcome` is the test's. `refused`: the test requests something
    that is not available, a mistake of its author. `unanswered`: why a live call was not allowed, and the fix; `missing`:
    the request, if this process made it. `task` and `variants` hold what was known by then.
    """

    plan: Plan
    why: str
    outcome: TestOutcome = "failed"
    refused: bool = False
    unanswered: str = ""
    missing: MissingReply | None = None
    task: Workload = field(default_factory=Workload)
    variants: tuple[str, ...] = (NONE,)
    outlived: tuple[OutlivedState, ...] = ()
    read: tuple[Read, ...] = ()

    @property
    def variant(self) -> str:
        return self.plan.variant or self.variants[0]

    @property
    def failed(self) -> bool:
        return self.outcome in ("failed", "error")


Evaluator: TypeAlias = Callable[[Plan], Evaluated | Lost]


class EvaluationLost(Exception):  # noqa: N818  (named after what happened)
    """Carries a lost execution through a search, which handles runs only."""

    def __init__(self, lost: Lost) -> None:
        self.lost = lost
        super().__init__(lost.why)

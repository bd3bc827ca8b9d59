"""Verdicts: judgements about facts, kept apart from the records and outside every hash."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from mat.core.value import EXACT_FIELDS, SPARSE

Severity: TypeAlias = Literal["soft", "hard"]
Stage: TypeAlias = Literal["attempted", "effected"]
Outcome: TypeAlias = Literal["pass", "unknown", "fail"]
PrefixVerdict: TypeAlias = Literal["true", "presumably_true", "presumably_false", "false"]
"""What a contract says of a run (RV-LTL). On a prefix it can still change, so it is presumed: as if the run ended now."""
_ORDER: Final[dict[Outcome, int]] = {"pass": 0, "unknown": 1, "fail": 2}
WEIGHTS: Final[dict[Severity, float]] = {"soft": 1.0, "hard": 10.0}
"""Default weight of a contract by severity."""


UNJUDGED: Final = "unjudged"
"""The label of the violation of a contract that could not judge a step."""


def merge(outcomes: Iterable[Outcome]) -> Outcome:
    """Merge outcomes by max, with pass < unknown < fail; no outcomes are a pass."""
    return max(outcomes, key=_ORDER.__getitem__, default="pass")


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One contract broken at one step.

    - `contract`, `severity` ("hard" or "soft"), `weight`: of the contract.
    - `step`, `agent`, `role`: where, and who acted. `stage`: "effected", or "attempted" if the action was blocked or had no
      effect.
    - `message`: what is wrong. `wanted`: what would have satisfied the contract. `repair`: what a person or the agent can do.
    - `region`: the first and the last step that explain it. `witness`: the steps that matter. `instance`: the id it is about.
    - `label`: the class of failure, as observation contracts name it.

    >>> paid_once = mat.contract("paid_once", mat.temporal.always(mat.temporal.at_most(1, mat.temporal.tool_call("refund"))))
    >>> @mat.tool(effect="write")
    ... def refund(order): return "refunded"
    >>> with mat.run([paid_once]) as run, mat.agent("clerk"):
    ...     replies = [refund("A17"), refund("A17")]
    >>> [(found.contract, found.step, found.agent, found.stage, found.witness) for found in run.violations]
    [('paid_once', 1, 'clerk', 'effected', (1,))]

    Source: A1.5, A1.6.
    """

    __pydantic_config__ = EXACT_FIELDS
    contract: str
    severity: Severity
    stage: Stage
    step: int
    agent: str
    role: str
    message: str
    weight: float = 10.0
    repair: str = ""
    region: tuple[int, int] = (0, 0)
    witness: tuple[int, ...] = ()
    instance: str = ""
    wanted: str = ""
    label: str = field(default="", metadata=SPARSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obligation:
    """What a contract still waits for at the end of a prefix: in words, since which step, and for which id.

    `met` says how the contract judges it if nothing more happens: false if something must still happen (it would be a
    violation), true if something must not happen.
    """

    __pydantic_config__ = EXACT_FIELDS
    text: str
    since: int
    instance: str = ""
    met: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the armed contracts say of one step.

    `step`: its number. `checked`: the ids of the contracts that judged it. `violations`: the `mat.Violation`s found there,
    with `passed` (whether there is none) and `severity` ("hard" or "soft", the worst of them, or None). `mitigation`: the kind
    of corrective action that the step is, "" for none.

    >>> small = mat.contract("small", mat.temporal.always(mat.temporal.field("arguments.amount") <= 500))
    >>> @mat.tool(effect="write")
    ... def refund(order, amount): return "refunded"
    >>> with mat.run([small]) as run:
    ...     reply = refund("A17", amount=900)
    >>> verdict = run.result.verdicts[0]
    >>> verdict.checked, verdict.passed, verdict.severity
    (('small',), False, 'hard')

    Source: A1.5 (Eq. 7).
    """

    __pydantic_config__ = EXACT_FIELDS
    step: int
    checked: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    mitigation: str = ""

    @property
    def passed(self) -> bool:
        return not self.violations

    @property
    def severity(self) -> Severity | None:
        if not self.violations:
            return None
        return "hard" if any(violation.severity == "hard" for violation in self.violations) else "soft"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractOutcome:
    """What one contract says of a run. `error`: why it could not judge. `open`: obligations open at the end of a prefix."""

    __pydantic_config__ = EXACT_FIELDS
    contract: str
    severity: Severity
    outcome: Outcome
    violations: tuple[Violation, ...] = ()
    error: str = ""
    evaluations: int = 0
    standing: PrefixVerdict = "true"
    open: tuple[Obligation, ...] = ()

    @property
    def broken(self) -> bool:
        """Whether the agent broke the contract; not if the contract could not be judged, and nothing else is wrong."""
        return any(violation.label != UNJUDGED for violation in self.violations)

    @property
    def unjudged(self) -> bool:
        """Whether it could not judge a step, and does not fail besides."""
        return bool(self.error) and not self.broken

"""Modes of resource contracts: how an agent uses its budget (explore, write concisely, stop). Source: Sec. 5.2, 8.4.

A mode is a time limit, a reasoning effort and a rule, as data, for how an agent spends what is left (satisficing, after Simon).
The two versions of the paper agree on the efforts and differ in the time-outs: 30, 60 and 90 seconds in the full version, 8, 10
and 30 in the first. The thresholds of the rules are our choice: the paper says only that agents explore while resources are
ample and are concise when they are tight.

    with mat.budget.contracted(BALANCED.of(contract)) as work:
        for _ in work.iterations():
            plan = BALANCED.plan(work.status())
            if plan.stop:
                break
            model(prompt, max_tokens=plan.max_tokens, reasoning_effort=plan.effort)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, get_args

from mat.core.errors import SpecError, did_you_mean
from mat.core.resources import amount
from mat.core.value import FrozenDict
from mat.resources.contract import ResourceContract
from mat.resources.status import ContractStatus

Effort: TypeAlias = Literal["none", "low", "medium", "high"]
"""How much a model reasons before it answers, in the providers' words, from little to much."""
Version: TypeAlias = Literal["full", "first"]
EFFORTS: Final[tuple[Effort, ...]] = get_args(Effort)
STOPPING: Final = (
    "calls", "model_calls", "tokens", "input_tokens", "reasoning_tokens", "output_tokens", "seconds", "money",
)  # fmt: skip
"""Resources that every call of a model needs: if one of them is spent, the agent must stop. If a limit on a tool or
on iterations is spent, the agent is only concise: the last round is still a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """How an agent works while less than `below` percent of every budget, and of the time, is used or held by calls in flight.

    `effort`: the highest reasoning effort. `share`: the percentage of the tokens left that one call may take.
    """

    below: int
    effort: Effort
    share: int
    explore: bool = False
    concise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """How an agent should make its next call. `max_tokens` is None if nothing limits tokens; `reason` is for people."""

    effort: Effort
    max_tokens: int | None
    explore: bool
    concise: bool
    stop: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractMode:
    """A contract mode. `effort` is the highest of all calls; a band may lower it, not raise it.

    `bands` are ordered by rising `below`; the last one also applies beyond its limit.
    SpecError if a band allows more than the one before it: an agent would spend more because it has less.
    """

    name: str
    duration_s: int
    effort: Effort
    bands: tuple[Band, ...]
    version: str = "full"

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise SpecError(
                what=f"mode {self.name!r}: {'; '.join(problems)}", why="an agent that has less must not do more",
                fix="order the bands by `below`, lowest first, and let effort and freedom never rise from one to the next",
            )  # fmt: skip

    def _problems(self) -> Iterator[str]:
        if type(self.duration_s) is not int or self.duration_s <= 0:
            yield f"duration_s={self.duration_s!r} is not a duration"
        unknown = [name for name in (self.effort, *(band.effort for band in self.bands)) if name not in EFFORTS]
        for name in unknown:
            yield f"{name!r} is not one of {', '.join(EFFORTS)}{did_you_mean(str(name), EFFORTS)}"
        if not self.bands:
            yield "it has no band"
        wrong = [
            band for band in self.bands if not (_is_positive(band.below) and _is_positive(band.share) and band.share <= 100)
        ]
        for band in wrong:
            yield f"the band below {band.below!r} % with a share of {band.share!r} % is not a valid band"
        if not unknown and not wrong:
            for before, after in zip(self.bands, self.bands[1:], strict=False):
                yield from _band_problems(before, after)

    def of(self, contract: ResourceContract) -> ResourceContract:
        """The contract in this mode. Its time is the shorter of the mode's and its own."""
        own, time = contract.duration_ms, amount("seconds", self.duration_s)
        shorter = own is not None and own <= time
        return replace(contract, mode=self.name, duration_s=contract.duration_s if shorter else self.duration_s)

    def plan(self, status: ContractStatus, *, prompt_tokens: int = 0) -> CallPlan:
        """Plan the next call from the status alone. `prompt_tokens`: what it will read, which `max_tokens` leaves out."""
        return plan(status, self, prompt_tokens=prompt_tokens)


def plan(status: ContractStatus, mode: ContractMode, *, prompt_tokens: int = 0) -> CallPlan:
    """Plan the next call from what is left. This is a pure function of integers, so that a scripted model can follow it.

    An agent that has less never gets a plan with more effort, more freedom or more tokens.
    """
    tightest, used, whole = _tightest(status)
    band = next((item for item in mode.bands if used * 100 < item.below * whole), mode.bands[-1])
    room = _room(status, prompt_tokens)
    most = None if room is None else -(-room * band.share // 100)
    stops = _stop_reason(status) or ("no tokens are left for an answer" if most == 0 else "")
    return CallPlan(
        effort=min(mode.effort, band.effort, key=EFFORTS.index),
        max_tokens=most,
        explore=band.explore and not stops,
        concise=band.concise or bool(stops),
        stop=bool(stops),
        reason=stops or f"{used * 100 // whole} % of {tightest} is used",
    )


def _is_positive(value: object) -> bool:
    return type(value) is int and value > 0


def _tightest(status: ContractStatus) -> tuple[str, int, int]:
    """(the most constrained resource, how much of it is used or held, its budget): utilization(t) as a ratio of integers.

    What calls in flight hold and what contracts below were allocated counts as used: the next call cannot take it.
    """
    found = [("the time", status.elapsed_ms, status.duration_ms)] if status.duration_ms is not None else []
    found += [(name, budget - status.left[name], budget) for name, budget in status.budgets.items()]
    tightest = ("what was given", 0, 1)
    for name, used, whole in found:
        candidate = (name, used, whole) if whole else (name, 1, 1)
        if candidate[1] * tightest[2] > tightest[1] * candidate[2]:
            tightest = candidate
    return tightest


def _room(status: ContractStatus, prompt_tokens: int) -> int | None:
    """The tokens that the next call may still write; None if nothing limits them."""
    found = [status.left["tokens"] - prompt_tokens] if "tokens" in status.left else []
    found += [status.left["output_tokens"]] if "output_tokens" in status.left else []
    return max(0, min(found)) if found else None


def _stop_reason(status: ContractStatus) -> str:
    """Why no further call can be made, or ""."""
    if status.state != "active":
        return f"the contract is {status.state}"
    if status.duration_ms is not None and status.elapsed_ms > status.duration_ms:
        return "the time is over"
    spent = [name for name in status.left if (name in STOPPING or name.startswith("model:")) and status.left[name] == 0]
    return f"{', '.join(spent)} spent" if spent else ""


def _band_problems(before: Band, after: Band) -> list[str]:
    """The problems of a band that allows more than the one before it."""
    found = (
        [] if before.below < after.below else [f"the band below {after.below} % comes after the band below {before.below} %"]
    )
    if EFFORTS.index(after.effort) > EFFORTS.index(before.effort):
        found.append(f"below {after.below} % the effort rises from {before.effort} to {after.effort}")
    if after.share > before.share:
        found.append(f"below {after.below} % the share rises from {before.share} to {after.share} %")
    if (after.explore and not before.explore) or (before.concise and not after.concise):
        found.append(f"below {after.below} % it explores, or writes at length, again")
    return found


_URGENT: Final = (Band(below=100, effort="none", share=50, concise=True),)
_ECONOMICAL: Final = (
    Band(below=30, effort="low", share=40, explore=True),
    Band(below=60, effort="low", share=40),
    Band(below=100, effort="none", share=40, concise=True),
)
_BALANCED: Final = (
    Band(below=50, effort="medium", share=50, explore=True),
    Band(below=80, effort="low", share=50),
    Band(below=100, effort="none", share=50, concise=True),
)


def _presets(version: Version, urgent: int, economical: int, balanced: int) -> FrozenDict:
    made = (
        ContractMode(name="urgent", duration_s=urgent, effort="none", bands=_URGENT, version=version),
        ContractMode(name="economical", duration_s=economical, effort="low", bands=_ECONOMICAL, version=version),
        ContractMode(name="balanced", duration_s=balanced, effort="medium", bands=_BALANCED, version=version),
    )
    return FrozenDict({item.name: item for item in made})


MODES: Final[Mapping[str, Mapping[str, ContractMode]]] = FrozenDict(
    {"full": _presets("full", 30, 60, 90), "first": _presets("first", 8, 10, 30)}
)
"""version of the paper -> name -> mode"""
URGENT: Final = MODES["full"]["urgent"]
ECONOMICAL: Final = MODES["full"]["economical"]
BALANCED: Final = MODES["full"]["balanced"]


def mode(name: str, *, version: str = "full") -> ContractMode:
    """A preset by name: `urgent`, `economical` or `balanced`, in the `full` version of the paper or in the `first`."""
    problems = []
    if version not in MODES:
        problems.append(f"unknown version: {version!r}{did_you_mean(str(version), MODES)}")
    known = MODES["full"]
    if name not in known:
        problems.append(f"unknown mode: {name!r}{did_you_mean(str(name), known)}")
    if problems:
        raise SpecError(
            what="; ".join(problems), why="a mode is a preset or a ContractMode of your own",
            fix=f"write one of {', '.join(known)}, with version='full' or 'first'",
        )  # fmt: skip
    return MODES[version][name]

"""What was not looked at, or not judged: contracts that nothing triggered, and bodies that failed without being judged.

Green means looked at, and held. These functions turn what an item's executions left open into its status, its notes and, under
stress, its failure (docs/reference/results.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from mat.boundary.port import declared_ports
from mat.core.campaign import ItemResult, ItemStatus
from mat.monitor.triggers import Vacuous
from mat_study.means import Subject
from mat_study.measuring import Gathered
from mat_study.settings import ItemSettings
from mat_study.stress import Failure, Stressed

_PROVEN: Final[tuple[ItemStatus, ...]] = ("certified", "expected", "accepted", "known")
"""The statuses that --mat-require-proof accepts."""
_OPEN: Final[tuple[ItemStatus, ...]] = (
    "nominal", "certified", "expected", "accepted", "known", "not_proven", "not_judged", "vacuous",
)  # fmt: skip
"""The statuses of items that have not failed."""
NO_CONTRACT: Final = "no contract is armed: the test's own asserts were judged"


def in_nominal_runs(result: ItemResult, subject: Subject, gathered: Gathered) -> tuple[ItemResult, Failure | None]:
    """The result of an item whose nominal runs passed. A contract that can never be broken, by a wrong name, fails it."""
    if not subject.armed and result.status == "vacuous":  # it only requests contracts, for runs that its body makes
        return result, None
    settings = subject.settings
    vacuous, notes, untried = _vacuous_contracts(settings, gathered)
    result = replace(result, tried=tuple(sorted(gathered.shared - untried)), untried=tuple(sorted(untried)))
    if vacuous:
        result = replace(result, status="vacuous", reason=_reason(vacuous))
    elif gathered.unjudged and result.status == "nominal":
        result = replace(result, status="not_judged", reason=gathered.unjudged)
    misnamed = [each for each in vacuous if each.misnamed and each.contract not in gathered.shared]
    failure = Failure(message=_message(misnamed)) if misnamed else None
    return replace(result, notes=(*result.notes, *notes)), failure


def under_stress(stressed: Stressed, subject: Subject, gathered: Gathered) -> Stressed:
    """The outcome of a search, with what it left open: a vacuous contract fails its item, and certifies nothing.

    A test that only requests a contract, for runs that its body makes, has no run of its own that could be vacuous.
    """
    settings = subject.settings
    result = stressed.result
    if result is None:
        return stressed
    vacuous, notes, untried = _vacuous_contracts(settings, gathered)
    result = replace(result, tried=tuple(sorted(gathered.shared - untried)), untried=tuple(sorted(untried)))
    if not gathered.armed and result.status != "failed":
        notes = [NO_CONTRACT, *notes]
    unjudged = gathered.bodies.text(judged=not gathered.armed or settings.objective == "task")
    result = replace(result, notes=(*result.notes, *notes, *([unjudged] if unjudged else [])))
    if result.status not in _OPEN:
        return replace(stressed, result=result)
    failure = stressed.failure
    if vacuous and (subject.armed or result.status != "vacuous"):
        result = _uncertified(result, "vacuous", _reason(vacuous))
        failure = failure or Failure(message=_message(vacuous))
    elif gathered.unjudged and result.status in ("certified", "not_proven"):
        result = _uncertified(result, "not_judged", gathered.unjudged)
    if settings.require_proof and failure is None and result.status not in _PROVEN:
        failure = Failure(message=unproven_message(result))
    return replace(stressed, result=result, failure=failure)


def _uncertified(result: ItemResult, status: ItemStatus, reason: str) -> ItemResult:
    certificate = result.certificate
    reason = reason if result.reason in ("", reason) else f"{reason}; {result.reason}"
    if certificate is not None and certificate.proven:
        certificate = replace(certificate, proven=False, reason=reason, bound=0)
    return replace(result, status=status, reason=reason, certificate=certificate)


def _vacuous_contracts(settings: ItemSettings, gathered: Gathered) -> tuple[list[Vacuous], list[str], frozenset[str]]:
    """The vacuous hard contracts that are not allowed to be, a note on each of the others, and the ids of the shared ones.

    One that is armed for several tests need not concern each of them, but some hard contract must.
    """
    found = gathered.vacuous(declared_ports())
    untried = frozenset(each.contract for each in found) & gathered.shared
    failing = [each for each in found if each.severity == "hard" and each.contract not in settings.vacuous]
    if not gathered.hard <= {each.contract for each in failing}:
        failing = [each for each in failing if each.contract not in gathered.shared]
    notes = [
        f"{each.contract} is vacuous ({'allowed' if each.contract in settings.vacuous else 'soft'}): {each.reason}"
        for each in found
        if each not in failing and each.contract not in untried
    ]
    return failing, notes, untried


def _reason(vacuous: Iterable[Vacuous]) -> str:
    return "; ".join(f"{each.contract} is vacuous: {each.reason}" for each in vacuous)


def _message(vacuous: list[Vacuous]) -> str:
    """Why an item with vacuous contracts fails, one paragraph a contract."""
    names = ", ".join(repr(each.contract) for each in vacuous)
    return "\n".join(
        [
            *(f"{each.contract} is vacuous: {each.reason}" for each in vacuous),
            "  why: a contract that no execution triggered says nothing about the system",
            f"  fix: correct the contract, make the test reach it, or allow it by name: @pytest.mark.mat(vacuous=[{names}])",
        ]
    )


def unproven_message(result: ItemResult) -> str:
    why = f": {result.reason}" if result.reason else ""
    return (
        f"{result.status.replace('_', ' ')}{why}\n"
        "  why: --mat-require-proof accepts only tests that are certified, expected, accepted or known\n"
        "  fix: raise --mat-max-runs or lower --mat-budget if the search ended early, or give the test something to prove"
    )

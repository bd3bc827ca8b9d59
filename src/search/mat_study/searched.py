"""One item under stress: its certificate is reused if nothing that it rests on has changed; otherwise it is searched."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from mat.core.campaign import Certificate, ItemResult
from mat.core.errors import MatError
from mat.kernel.clock import real_monotonic
from mat_study.evaluation import Evaluated
from mat_study.means import Allotment, Means, Subject
from mat_study.measuring import Gathered
from mat_study.reuse import Reuse, SearchRecord
from mat_study.searches import Searches, SearchLimit, campaign_of, search_key
from mat_study.standing import not_found_again
from mat_study.stress import Failure, Stressed, stress
from mat_study.vacuity import under_stress, unproven_message


def searched(subject: Subject, means: Means, gathered: Gathered, searches: Searches, nominal: Evaluated) -> Stressed:
    """The outcome of an item under stress, after its nominal runs have passed."""
    reuse = means.reuse
    if reuse is not None and not searches.can_resume(nominal.variant):
        record, searches.because = reuse.find(subject.settings, nominal, _key(subject, means, nominal))
        if record is not None:
            return _reused(subject, gathered, record)
    allotment = means.allotted()
    if allotment is not None:
        searches.limit = SearchLimit(real_monotonic() + allotment.seconds, _limit_text(allotment))
        if allotment.seconds <= 0:
            searches.complete = -1
            return _not_searched(subject, gathered, allotment)
    return _search(subject, means, gathered, searches, nominal, reuse)


def _key(subject: Subject, means: Means, nominal: Evaluated) -> dict[str, Any]:
    with suppress(MatError):  # an unknown operator, which the search reports
        return search_key(subject, nominal, campaign_of(subject, means, nominal.run))
    return {}


def _reused(subject: Subject, gathered: Gathered, record: SearchRecord) -> Stressed:
    """The result of the last search, with its rows. The executions are those of this session."""
    kept = record.certified
    assert kept is not None
    executions = len(gathered.rows)
    gathered.rows += kept.rows
    gathered.governed += kept.governed
    gathered.searches += kept.searches
    gathered.curves += kept.curves
    notes = (*_fixed(subject, kept.result), *kept.result.notes)
    return Stressed(result=replace(kept.result, id=subject.id, executions=executions, reused=record.day, notes=notes))


def _fixed(subject: Subject, result: ItemResult) -> list[str]:
    """What a certificate says of accepted findings; it is said anew, because acceptances change by themselves."""
    return [] if result.certificate is None else not_found_again(subject.settings, (), result.certificate)


def _search(
    subject: Subject, means: Means, gathered: Gathered, searches: Searches, nominal: Evaluated, reuse: Reuse | None
) -> Stressed:
    rows, governed = len(gathered.rows), len(gathered.governed)
    began_s = real_monotonic()
    stressed = under_stress(stress(subject, means, gathered, searches, nominal), subject, gathered)
    if reuse is None or stressed.result is None or stressed.interrupted:
        return stressed
    fixed = _fixed(subject, stressed.result)
    lasting = replace(stressed.result, notes=tuple(note for note in stressed.result.notes if note not in fixed))
    reuse.keep(
        lasting, nominal, searches.read, seconds=real_monotonic() - began_s, finished=searches.complete is None,
        resumed=searches.resumed, rows=gathered.rows[rows:], governed=gathered.governed[governed:],
        searches=gathered.searches, curves=gathered.curves,
    )  # fmt: skip
    return stressed


def _limit_text(allotment: Allotment) -> str:
    return f"--mat-session-timeout: this test's share of {allotment.whole_s:g} s is used up"


def _not_searched(subject: Subject, gathered: Gathered, allotment: Allotment) -> Stressed:
    """An item that the session has no time for: nothing is proven, and nothing can be said of what only faults reach."""
    reason = f"not searched for lack of time (--mat-session-timeout {allotment.whole_s:g})"
    result = ItemResult(
        id=subject.id, status="not_proven", certificate=Certificate(proven=False, reason=reason), reason=reason,
        executions=len(gathered.rows), category=gathered.category,
    )  # fmt: skip
    failure = Failure(message=unproven_message(result)) if subject.settings.require_proof else None
    return Stressed(result=result, failure=failure)

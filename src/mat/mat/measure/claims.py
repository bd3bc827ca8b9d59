"""Rates of unsupported claims (H_rate, H_prop), and the reliability of judges of support. Source: A2.F2, A6.2.

The caller passes a function that finds claims and decides whether the trace supports them: `mat_contracts.claims.claims_in`
with its verifier, or any other that returns claims of the shape of `CheckedClaim`:

    from functools import partial
    h_rate(runs, partial(claims_in, verifier=number_match()))
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal, Protocol, TypeAlias

from mat.core.errors import SpecError
from mat.core.record import Record
from mat.core.run import Run
from mat.measure.bootstrap import share_of
from mat.measure.estimate import Estimate
from mat.measure.interval import CONFIDENCE, wilson
from mat.measure.rows import ClaimCount

ClaimStatus: TypeAlias = Literal["supported", "unsupported", "unknown"]
_WORDS: Final[tuple[ClaimStatus, ...]] = ("supported", "unsupported", "unknown")


class CheckedClaim(Protocol):
    """A judged claim of a trace. `final`: it belongs to the final response; otherwise it was recorded on its own."""

    @property
    def artefact(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def final(self) -> bool: ...
    @property
    def status(self) -> ClaimStatus: ...


Assess: TypeAlias = Callable[[Sequence[Record]], Iterable[CheckedClaim]]
Use: TypeAlias = Callable[[CheckedClaim, Record], bool]
JudgeOfSupport: TypeAlias = Callable[[str, Sequence[str]], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRate:
    """H_rate or H_prop over a set of runs.

    `mean`: the mean over the runs with claims (J > 0) of each run's share, as defined. `pooled`: the share of all
    claims of all runs; claims of one run are not independent, so its interval is too narrow if runs differ. `claims`,
    `counted` and `unknown`: all claims, those in the numerator, those the verifier could not judge. `without_claims`: runs
    with J = 0, whose share is not defined; both rates leave them out.
    """

    mean: Estimate
    pooled: Estimate
    claims: int
    counted: int
    unknown: int
    runs: int
    without_claims: int


def h_rate(
    runs: Iterable[Run | Sequence[Record]],
    assess: Assess,
    *,
    unknown: Literal["unsupported", "supported"] = "unsupported",
    confidence: float = CONFIDENCE,
) -> ClaimRate:
    """H_rate: of the claims of a run's final response, the share that is not supported; its mean over runs.

    H_rate(tau) = |{j : support(c_j, e_j) = 0}| / J. support is 1 if the evidence is sufficient and 0 otherwise, so a claim
    that the verifier does not know counts as not supported; `unknown="supported"` gives the other bound.
    """
    return _rate(
        runs, lambda records: [(_is_counted(claim, unknown), claim) for claim in assess(records) if claim.final], confidence
    )


def h_prop(
    runs: Iterable[Run | Sequence[Record]],
    assess: Assess,
    *,
    use: Use | None = None,
    unknown: Literal["unsupported", "supported"] = "unsupported",
    confidence: float = CONFIDENCE,
) -> ClaimRate:
    """H_prop: of the claims a run records, the share that is not supported and is used in a later step; its mean over runs.

    H_prop(tau) = |{j : support(c_j, e_j) = 0 and use(c_j, tau) = 1}| / J over all recorded claims.
    `use(claim, record)` says whether a later record refers to the claim; by default `is_used`.
    """
    used_in = use or is_used

    def counted(records: Sequence[Record]) -> list[tuple[bool, CheckedClaim]]:
        found = []
        for claim in assess(records):
            if not claim.final:
                bad = _is_counted(claim, unknown)
                found.append((bad and _is_used_later(claim, records, used_in), claim))
        return found

    return _rate(runs, counted, confidence)


def count_claims(
    run: Run | Sequence[Record],
    assess: Assess,
    *,
    use: Use | None = None,
    unknown: Literal["unsupported", "supported"] = "unsupported",
) -> ClaimCount:
    """Count the claims of one run, for its row (`mat.measure.rows.row_of`). Parameters as in `h_rate` and `h_prop`."""
    records = run.records if isinstance(run, Run) else run
    claims, used_in = tuple(assess(records)), use or is_used
    final = [claim for claim in claims if claim.final]
    recorded = [claim for claim in claims if not claim.final]
    return ClaimCount(
        final=len(final),
        unsupported=sum(_is_counted(claim, unknown) for claim in final),
        recorded=len(recorded),
        propagated=sum(_is_counted(claim, unknown) and _is_used_later(claim, records, used_in) for claim in recorded),
        unknown=sum(claim.status == "unknown" for claim in claims),
    )


def _is_used_later(claim: CheckedClaim, records: Sequence[Record], used_in: Use) -> bool:
    return any(used_in(claim, record) for record in records if record.step > claim.step)


def is_used(claim: CheckedClaim, record: Record) -> bool:
    """Whether a record refers to a claim: a link starts at the claim, or the arguments name its artifact or repeat its text.

    Texts are compared without case, white space and final punctuation; a text of several words may be part of a longer one. A
    blocked action refers to the same claims as its proposal. An action that only acts on the same ids does not: whether it
    depends on the claim is not visible from outside; pass `use=` if a system's own arguments show it.
    """
    if any(link.src == claim.artefact for link in record.links):
        return True
    wanted = _normalized(claim.text)
    for text in _strings_in(record.action.arguments):
        found = _normalized(text)
        if re.search(rf"(?<!\w){re.escape(claim.artefact)}(?!\d)", text):
            return True
        if wanted and (found == wanted or (" " in wanted and re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", found))):
            return True
    return False


def _normalized(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(" .!?;:,")


def _strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings_in(item)


def _is_counted(claim: CheckedClaim, unknown: str) -> bool:
    return claim.status == "unsupported" or (claim.status == "unknown" and unknown == "unsupported")


def _rate(
    runs: Iterable[Run | Sequence[Record]],
    judged: Callable[[Sequence[Record]], list[tuple[bool, CheckedClaim]]],
    confidence: float,
) -> ClaimRate:
    shares: list[Fraction] = []
    claims = counted = unknown = total = 0
    for run in runs:
        found = judged(run.records if isinstance(run, Run) else run)
        hits = sum(hit for hit, _ in found)
        total, claims, counted = total + 1, claims + len(found), counted + hits
        unknown += sum(claim.status == "unknown" for _, claim in found)
        if found:
            shares.append(Fraction(hits, len(found)))
    return ClaimRate(
        mean=share_of(shares, confidence=confidence), pooled=wilson(counted, claims, confidence), claims=claims,
        counted=counted, unknown=unknown, runs=total, without_claims=total - len(shares),
    )  # fmt: skip


# -- reliability of a judge ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A claim, the texts of its evidence, and a person's label."""

    claim: str
    texts: tuple[str, ...]
    label: ClaimStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A judge against a labelled set.

    `accuracy`: share of items on which the judge agrees with the label; unknown agrees with unknown only. `kappa`: Cohen's,
    over three words, None if chance alone would always agree. `decided`: share of items that it does not call unknown. `table`:
    counts of its answers by label, (label, answer, count), in the order supported, unsupported, unknown.
    """

    accuracy: Estimate
    kappa: Estimate
    decided: Estimate
    table: tuple[tuple[ClaimStatus, ClaimStatus, int], ...]


def labels() -> tuple[ClaimStatus, ...]:
    """The three words of labels and answers."""
    return _WORDS


def agreement(judge: JudgeOfSupport, labelled: Iterable[Labelled], *, confidence: float = CONFIDENCE) -> Agreement:
    """How well `judge(claim, texts)` agrees with a labelled set; any answer other than the three words is unknown.

    Kappa after J. Cohen, Educational and Psychological Measurement 20 (1960): (p_o - p_e) / (1 - p_e). Its interval is that of
    p_o with p_e taken as known, as in the paper, but by Wilson's score, which is valid at full agreement.

    Source: A2.F2.
    """
    counts = dict.fromkeys(((label, answer) for label in _WORDS for answer in _WORDS), 0)
    for item in labelled:
        if item.label not in _WORDS:
            raise SpecError(
                what=f"unknown label {item.label!r} of the claim {item.claim!r}", fix=f"use one of {', '.join(_WORDS)}"
            )
        counts[item.label, _status_of(judge(item.claim, item.texts))] += 1
    n = sum(counts.values())
    accuracy = wilson(sum(counts[word, word] for word in _WORDS), n, confidence)
    return Agreement(
        accuracy=accuracy,
        kappa=_kappa(counts, n, accuracy),
        decided=wilson(sum(count for (_, answer), count in counts.items() if answer != "unknown"), n, confidence),
        table=tuple((label, answer, count) for (label, answer), count in counts.items()),
    )


def _kappa(counts: dict[tuple[ClaimStatus, ClaimStatus], int], n: int, accuracy: Estimate) -> Estimate:
    by_chance = sum(
        Fraction(sum(counts[word, answer] for answer in _WORDS) * sum(counts[label, word] for label in _WORDS), n * n or 1)
        for word in _WORDS
    )
    if not n or by_chance == 1:
        return Estimate(value=None, low=None, high=None, n=n, confidence=accuracy.confidence, method="cohen, wilson")
    chance = float(by_chance)
    value, low, high = (((edge or 0.0) - chance) / (1 - chance) for edge in (accuracy.value, accuracy.low, accuracy.high))
    return Estimate(value=value, low=low, high=high, n=n, confidence=accuracy.confidence, method="cohen, wilson")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeVariance:
    """How consistent a judge is over repeats of the same question.

    `variance`: the mean over items of the unbiased variance of support (1 for the answer supported, else 0), from 0 to 0.5.
    `unanimous`: share of items with the same answer in all repeats. `unknown`: share of all answers that were unknown;
    repeats of one item are not independent.
    """

    variance: Estimate
    unanimous: Estimate
    unknown: Estimate
    items: int
    repeats: int


def variance(
    judge: JudgeOfSupport,
    items: Iterable[Labelled | tuple[str, Sequence[str]]],
    repeats: int = 5,
    *,
    confidence: float = CONFIDENCE,
) -> JudgeVariance:
    """Ask a judge the same question `repeats` times per item, and measure how much its answers vary.

    Items are (claim, texts), or labelled items, whose labels are ignored. SpecError for fewer than two repeats.

    Source: A2.F2.
    """
    if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 2:
        raise SpecError(
            what=f"repeats={repeats!r} is not an integer >= 2", why="a single answer cannot vary", fix="use 2 or more"
        )
    spreads: list[Fraction] = []
    unanimous = unknown = 0
    for item in items:
        claim, texts = (item.claim, item.texts) if isinstance(item, Labelled) else item
        answers = [_status_of(judge(claim, texts)) for _ in range(repeats)]
        yes = answers.count("supported")
        spreads.append(Fraction(yes * (repeats - yes), repeats * (repeats - 1)))
        unanimous += len(set(answers)) == 1
        unknown += answers.count("unknown")
    n = len(spreads)
    return JudgeVariance(
        variance=share_of(spreads, confidence=confidence), unanimous=wilson(unanimous, n, confidence),
        unknown=wilson(unknown, n * repeats, confidence), items=n, repeats=repeats,
    )  # fmt: skip


def _status_of(answer: object) -> ClaimStatus:
    """The answer of a judge as one of three words; a bool means (un)supported, anything else is unknown."""
    if isinstance(answer, bool):
        return "supported" if answer else "unsupported"
    word = _normalized(answer).strip("\"'`*_ .") if isinstance(answer, str) else ""
    return next((known for known in _WORDS if known == word), "unknown")

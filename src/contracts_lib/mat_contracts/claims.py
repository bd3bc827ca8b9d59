"""Claims: what an agent says is supported by evidence in the trace.

>>> from mat_contracts.claims import EVIDENCE, EVIDENCE_CHARS, STATUS
>>> EVIDENCE, EVIDENCE_CHARS > 0, "delivered" in STATUS
(64, True, True)

Source: F2.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import Final, Literal, TypeAlias, Unpack

from mat.core.errors import MatError, SpecError, enumeration, plural
from mat.core.record import ActionKind, Record
from mat.core.value import fast_constructor
from mat.monitor.contract import Contract, FoldTrigger, Violated, kinds_of
from mat_contracts._facts import MONTHS, Facts, facts_of, ids_of, plain_number
from mat_contracts._outcome import is_error_reply
from mat_contracts._reading import is_from_user, statement
from mat_contracts._sentences import sentences, units
from mat_contracts._shared import PastWindow, count_of, judged, milliseconds_of, one_of
from mat_contracts._state import CHAIN, PersistentChain, unchained
from mat_contracts.catalogue import Options, template
from mat_contracts.support import (
    EVIDENCE_CHARS,
    EvidenceContent,
    Kept,
    SupportStatus,
    Verifier,
    answer_of,
    evidence_by,
    is_long,
    kept_of,
    leaves,
    mark_of,
    normal,
    parts_of,
    text_evidence_by,
    texts_of,
)

__all__ = [
    "EVIDENCE", "EVIDENCE_CHARS", "STATUS", "JudgedClaim", "claims_in", "claims_supported", "missing", "says", "split_claims",
]  # fmt: skip

Support: TypeAlias = Callable[[str, Sequence[str]], bool]
Splitter: TypeAlias = Callable[[str], Iterable[str]]
UnknownAs: TypeAlias = Literal["unknown", "supported", "unsupported"]
EVIDENCE: Final = 64
"""Latest artifacts whose texts one contract remembers by default. For older ones only the link is judged."""
_EVIDENCE_KINDS: Final[frozenset[ActionKind]] = frozenset(
    ("tool_call", "retrieval", "memory_read", "memory_write", "model_call", "message", "claim")
)
_DIVISIBLE_KINDS: Final = ("retrieval", "memory_read", "memory_write")
"""Kinds whose records deliver several artifacts: passages or memory cells."""
_JUDGED_KINDS: Final = ("claim", "message", "final_response")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedClaim:
    """One judged claim: its artifact and text, whether it is supported (`status`), why not, and the steps of its evidence.

    `final`: the final response holds it. Claims of one answer share their artifact and differ in `index`.

    `artefact`: the id of the claim or answer, such as "claim#1"; `index`: the position in it, from 0. `step`: the number of
    the step that states it. `status`: "supported", "unsupported" or "unknown"; `why`: the reason in words, and `wanted`:
    what the evidence should have held. `witness`: the numbers of the steps that hold the evidence.

    >>> from mat_contracts.claims import claims_in
    >>> from mat_contracts.traces import record, trace
    >>> (claim,) = claims_in(trace(record("claim", "claim", {"text": "Parcel 17 arrives on Friday"})))
    >>> claim.artefact, claim.step, claim.status
    ('claim#0', 0, 'unsupported')

    Source: F2, A2.F2.
    """

    artefact: str
    index: int
    step: int
    text: str
    final: bool
    status: SupportStatus
    why: str = ""
    wanted: str = ""
    witness: tuple[int, ...] = ()


_START: Final[PersistentChain] = (0, (), (0, -1, ""))
"""(0, artifacts that later claims can cite, the latest last, (number of undecided claims, step and text of the first)). Each
further artifact is a link of the chain."""
_new_claim = fast_constructor(JudgedClaim)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """How claims are found and judged."""

    on: frozenset[ActionKind]
    verifier: Verifier | None
    splitter: Splitter
    fresh: bool
    age: PastWindow
    remember: int

    @property
    def read(self) -> Callable[[Kept], EvidenceContent]:
        """The reader of remembered evidence. The default verifier needs only its texts."""
        return text_evidence_by if self.verifier is None else evidence_by


@template
def claims_supported(
    *,
    on: ActionKind | Iterable[ActionKind] = "claim",
    verifier: Verifier | None = None,
    support: Support | None = None,
    splitter: Splitter | None = None,
    unknown: UnknownAs = "unknown",
    fresh: bool = False,
    max_age: int | None = None,
    max_age_ms: int | None = None,
    remember: int = EVIDENCE,
    **options: Unpack[Options],
) -> Contract:
    """Every claim has supporting evidence in the trace, and if the text of the evidence is known, it holds what the claim says.

    A recorded claim (`mat.claim`) rests on its links, which name earlier steps, claims, passages or memory cells. A sentence of
    an answer that repeats a recorded claim has the status of that claim. Any other sentence rests on all replies of tools,
    retrievers and memories, with the user's words as the question. Failed replies and unsupported claims support nothing.

    - `on`: where claims are found: "claim" for recorded claims, "final_response" for the answer, "message" for messages to
      "user".
    - `verifier`: decides whether evidence supports a claim (`mat_contracts.support`). The default is `says`: the evidence must
      hold the numbers, ids, dates, weekdays, quoted names and status words of the claim, in any notation.
    - `support`: a simpler verifier, `support(claim, texts)`, which gets the texts of all evidence. Give only one of the two.
    - `splitter`: text -> its claims, for answers and messages. The default is `split_claims`.
    - `unknown`: the status of a claim for which the verifier answers "unknown". By default the contract is then unknown at the
      end of the trace.
    - `fresh`: if true, a reply that a fault changed is judged by what the port itself returned. By default it is judged as
      delivered, so an agent that repeats a corrupt or stale reply is supported by it.
    - `max_age`, `max_age_ms`: evidence that was asked for longer ago (in steps, in milliseconds) does not count.
    - `remember`: how many of the latest artifacts are remembered, each with at most EVIDENCE_CHARS characters. If an artifact
      is forgotten, too long, hashed or redacted, only the link to it is judged. A sentence of an answer that no remembered
      evidence supports is then unknown.

    Raises `mat.MatError` for an action kind without claims in `on`, for both `verifier` and `support`, for an unknown
    status and for a limit below its minimum.

    Precision 1.00, recall .94 on 36 traces written without knowledge of this template.

    Source: Sec. III-B (support(c_j, e_j)), F2, A1.3, A2.F2.

    >>> from mat_contracts.traces import broken, record, trace
    >>> tracking = record("tool_call", "track", {"parcel": 17}, value={"eta": "Friday"})
    >>> friday = record("claim", "claim", {"text": "Parcel 17 arrives on Friday"}, supports=["step#0"])
    >>> monday = record("claim", "claim", {"text": "Parcel 17 arrives on Monday"}, supports=["step#0"])
    >>> broken(claims_supported(), trace(tracking, friday))
    ()
    >>> broken(claims_supported(), trace(tracking, monday))
    (1,)
    """
    rules = _rules(on, verifier, support, splitter, fresh, max_age, max_age_ms, remember)
    as_delivered, passing = not fresh, frozenset(("model_call", "message")) - rules.on
    one_of(unknown, "unknown", ("unknown", "supported", "unsupported"))

    def step(state: PersistentChain, record: Record) -> PersistentChain | Violated:
        action = record.action
        if action.kind == "tool_call" and as_delivered and state[0] < CHAIN:  # nearly all steps
            observation = record.observation
            value, mark = (
                observation.value,
                ""
                if observation.error is None and not observation.cancelled and not observation.opaque
                else mark_of(observation),
            )
            if is_long(value):
                value, mark = None, mark or "hidden"
            kept = ("", record.step, record.at_ms, "world", value, mark, action.name, action.arguments)
            return (state[0] + 1, state, kept)
        if action.kind in passing and state[0] < CHAIN:
            return (state[0] + 1, state, kept_of(record, fresh=fresh))
        new, claims = _judge_record(state, record, rules)
        if not claims or (len(claims) == 1 and claims[0].status == "supported"):
            return new
        broken = [item for item in claims if "unsupported" in (item.status, unknown if item.status == "unknown" else "")]
        if unknown == "unknown" and not all(item.status == "supported" for item in claims):
            new = _with_unknown(new, [item for item in claims if item.status == "unknown"])
        return judged([_claim_violation(item) for item in broken], new)

    return Contract(
        id="claims.supported", step=step, start=_START, finish=_raise_if_undecided, kinds=_EVIDENCE_KINDS | rules.on,
        repair="claim only what a result in the trace says and link it with supports=, or ask again before claiming",
        text="every claim is supported by evidence in the trace",
        trigger=FoldTrigger(
            text=f"a record of kind {enumeration(sorted(rules.on), 'or')}",
            holds=lambda _, record: record.action.kind in rules.on,
        ),
    )  # fmt: skip


def claims_in(
    records: Iterable[Record],
    *,
    on: ActionKind | Iterable[ActionKind] = ("claim", "final_response"),
    verifier: Verifier | None = None,
    support: Support | None = None,
    splitter: Splitter | None = None,
    fresh: bool = False,
    max_age: int | None = None,
    max_age_ms: int | None = None,
    remember: int = EVIDENCE,
) -> tuple[JudgedClaim, ...]:
    """Return all claims of a trace, judged as by `claims_supported`. `mat.measure.claims` computes H_rate and H_prop from them.

    `records`: of one run, in the order of their steps. `on`, `verifier`, `support`, `splitter`, `fresh`, `max_age`,
    `max_age_ms` and `remember` are as in `claims_supported`. Returns a tuple of `JudgedClaim`s, in the order of the trace.
    Raises `mat.MatError` as `claims_supported` does.

    >>> from mat_contracts.traces import record, trace
    >>> tracking = record("tool_call", "track", {"parcel": 17}, value={"eta": "Friday"})
    >>> answer = record("final_response", "answer", {"answer": "Hello Ann! Parcel 17 comes on Friday. It was delivered."})
    >>> [(claim.text, claim.status) for claim in claims_in(trace(tracking, answer))]
    [('Parcel 17 comes on Friday.', 'supported'), ('It was delivered.', 'unsupported')]

    Source: F2, A2.F2.
    """
    rules = _rules(on, verifier, support, splitter, fresh, max_age, max_age_ms, remember)
    state, found = _START, []
    for record in records:
        if record.action.kind in _EVIDENCE_KINDS or record.action.kind in rules.on:
            state, claims = _judge_record(state, record, rules)
            found += claims
    return tuple(found)


def _rules(
    on: ActionKind | Iterable[ActionKind],
    verifier: Verifier | None,
    support: Support | None,
    splitter: Splitter | None,
    fresh: bool,
    max_age: int | None,
    max_age_ms: int | None,
    remember: int,
) -> _Rules:
    if max_age is not None:
        count_of(max_age, "max_age", least=0)
    if max_age_ms is not None:
        milliseconds_of(max_age_ms, "max_age_ms")
    count_of(remember, "remember", least=1)
    watched = kinds_of(on) or frozenset()
    if not watched or not watched <= set(_JUDGED_KINDS):
        raise SpecError(
            what=f"on={on!r} names a kind of action without claims",
            why="claims are recorded or stated in texts",
            fix=f"use {', '.join(_JUDGED_KINDS)}",
        )
    if verifier is not None and support is not None:
        raise SpecError(
            what="both verifier= and support= are given",
            why="a contract has one way to judge support",
            fix="combine them with all_of",
        )
    if support is not None:
        verifier = _verifier_over_texts(support)
    return _Rules(
        on=watched, verifier=verifier, splitter=splitter or split_claims, fresh=fresh, age=PastWindow(max_age, max_age_ms),
        remember=remember,
    )  # fmt: skip


def _verifier_over_texts(support: Support) -> Verifier:
    return lambda claim, evidence: support(claim, [text for item in evidence for text in item.texts or ()])


def _claim_violation(item: JudgedClaim) -> Violated:
    subject = "claim" if item.artefact.startswith("claim#") else "final response says" if item.final else "message says"
    why = item.why or "it could not be decided whether its evidence supports it"
    return Violated(f"{subject} {item.text!r}: {why}", witness=item.witness, instance=item.artefact, wanted=item.wanted)


def _with_unknown(state: PersistentChain, unknown: Sequence[JudgedClaim]) -> PersistentChain:
    if not unknown:
        return state
    memory, (count, step, text) = _unchained(state)
    if not count:
        step, text = unknown[0].step, unknown[0].text
    return (0, memory, (count + len(unknown), step, text))


def _raise_if_undecided(state: PersistentChain) -> None:
    """Raise an error, which makes the contract unknown, if claims could not be judged."""
    _, (count, step, text) = _unchained(state)
    if count:
        raise MatError(
            what=f"{plural(count, 'claim')} could not be judged, the first at step {step}: {text!r}",
            why="the verifier answered unknown, or their support is no longer remembered",
            fix="give a verifier that decides, a larger remember=, or unknown='supported' or 'unsupported'",
        )


# -- claims in a text ---------------------------------------------------------------------------------------------------

_OPENERS = re.compile(
    r"^(?:(?:hi|hello|hey|dear|greetings|good (?:morning|afternoon|evening|day))\b[^,.!?:;]{0,40}[,!:]"
    r"|(?:yes|no|ok|okay|sure|certainly|absolutely|of course|great|perfect|well|alright|thanks?"
    r"|thank you[^,.!?;]{0,60}"
    r"|great news|good news|unfortunately|fortunately|as requested|please note|note)\s*[,!:–—-]"
    r"|(?:please note|note) that\b|(?:unfortunately|fortunately)\b"
    r"|(?:i['’]?m|i am|we['’]?re|we are)(?: \w+)? sorry(?: for [^,.!?;]{0,60})?,?\s*(?:but|that)\b"
    r"|i(?:['’]m| am)? (?:apologi[sz]e|regret)[^,.!?;]{0,60},?\s*(?:but|that)\b"
    r"|(?:i|we)(?: can| am happy to| are happy to)? (?:confirm|inform you|let you know)(?: that)?\b)\s*",
    re.IGNORECASE,
)
"""Openings that say nothing themselves; they are cut off and the rest is judged."""
_COURTESY = re.compile(
    r"^(?:hi|hello|hey|dear|greetings|good (?:morning|afternoon|evening|day|night)|welcome|thanks?|thank you|many thanks|cheers"
    r"|you(?:['’]re| are) (?:very )?welcome|my pleasure|no problem|sorry|(?:(?:i|we) )?(?:do )?apologi[sz]e|apologies"
    r"|my apologies"
    r"|(?:(?:i['’]?m|i am|we['’]?re|we are) )?(?:so |very |truly |really )?sorry|(?:kind |best |warm )?regards|sincerely|yours"
    r"|bye|goodbye|take care|have a (?:\w+ ){0,3}(?:day|evening|weekend|trip|flight|one|time)|enjoy|congratulations"
    r"|(?:yes|no|ok|okay|sure|certainly|absolutely|of course|great|perfect|understood|noted|got it)[\s.!]*$"
    r"|i (?:understand|see)"
    r"|(?:i|we) hope|hopefully|(?:i|we) (?:appreciate|look forward|value)"
    r"|(?:i['’]?m|i am|we['’]?re|we are) (?:here|happy|glad|pleased)"
    r"|(?:if you|should you|in case you|for (?:any )?(?:further|more|other|additional))\b.*\b(?:let|contact|reach|ask|reply"
    r"|feel|hesitate|assistance|help|questions?|write|call)"
    r"|(?:please|kindly|let|feel free|do not hesitate|don['’]t hesitate|click|visit|contact|reply"
    r"|see (?:https?|also|above|below))\b)",
    re.IGNORECASE,
)
"""Greetings, thanks, apologies, wishes, closings, requests and offers."""
_HEDGE = re.compile(
    r"\b(?:(?:i|we) (?:\w+ )?(?:think|believe|guess|suppose|assume|suspect|expect|imagine|reckon|doubt|wonder)"
    r"|(?:i|we)(?:['’]?m|['’]?re| am| are) (?:not (?:\w+ )?(?:sure|certain|aware)|unsure|uncertain|guessing)"
    r"|(?:i|we) (?:do not|don['’]t|cannot|can['’]t|could not|couldn['’]t) (?:know|tell|say|confirm|verify|find|determine)"
    r"|maybe|perhaps|possibly|probably|presumably|apparently|likely|allegedly|supposedly|might|seems?|appears? (?:to|that|as)"
    r"|looks like|it is (?:un)?clear|unclear|as far as (?:i|we) know|to my knowledge|in my opinion|could be|(?-i:may)"
    r"|could have|should be|should have|roughly speaking)\b",
    re.IGNORECASE,
)
"""Hedges. "may" is matched in lower case only, because "May" is a month."""
_INTENT = re.compile(
    r"^(?:i|we)(?:(?:['’]ll| will| shall|['’]d| would| can| could| cannot| can['’]t| am going to| are going to|['’]m going to"
    r"|['’]re going to| need| want| intend| plan| am unable| are unable| must)\b)"
    r"|^(?:would|could|shall|should|may|can|do|does|did|is|are|was|were|have|has) (?:i|we|you)\b|^(?:to"
    r"|in order to) (?:proceed|continue|confirm|help|assist|do)\b",
    re.IGNORECASE,
)
"""What the speaker will, can or must do, and questions without a question mark."""
_CONDITIONAL = re.compile(
    r"^(?:if|unless|whether|once|when(?:ever)?|as soon as|in case|provided|suppose|assuming)\b", re.IGNORECASE
)
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_FRAGMENT: Final = 3
"""Most words of a list item that is joined with the line that introduces the list."""


def split_claims(text: str) -> tuple[str, ...]:
    """Return the claims in an English text: its statements, one per sentence.

    - A sentence ends at . ! ? before white space and a capital letter, digit or quotation mark. It does not end after
      abbreviations ("Dr.", "e.g."), initials and ordinals of dates, or inside decimals, dates, e-mail addresses and URLs. A
      semicolon also separates claims.
    - List items, lines and paragraphs are read separately. A line that introduces a list ("These were sent:") is no claim; it
      is put in front of items of at most three words. Headings, code blocks and table rules are left out.
    - These are no claims: questions; greetings, thanks, apologies, wishes and closings; requests and offers; what the speaker
      will, can, must or would do; conditions ("If it was lost, ..."); and hedges ("I think", "probably", "it seems", "might").
    - An opening without content ("Hi Ann,", "Yes,", "I'm sorry, but", "I can confirm that") is cut off and the rest is judged.
    - A claim holds two words of letters, or one word and a digit ("Total: 5"). A citation alone ("[order:A1]") is no claim.

    >>> split_claims("Hi Ann, parcel 17 left on 3. May at 2.30 p.m. from example.com. It weighs 1.5 kg; it is insured. Is it?")
    ('parcel 17 left on 3. May at 2.30 p.m. from example.com.', 'It weighs 1.5 kg', 'it is insured.')
    >>> split_claims("I think it is lost. These were sent:\\n- A1\\n- B2\\nLet me know if you need more.")
    ('These were sent: A1', 'These were sent: B2')

    Source: F2, A2.F2.
    """
    found: list[str] = []
    lead = ""
    for unit, is_item in units(text):
        if not is_item:
            lead = unit if unit.endswith(":") else ""
            if lead:
                continue
        statement_text = f"{lead} {unit}" if is_item and lead and len(unit.split()) <= _FRAGMENT else unit
        for sentence in sentences(statement_text):
            for part in sentence.split("; "):
                claim = _claim(part)
                if claim:
                    found.append(claim)
    return tuple(found)


_CITATIONS: Final = re.compile(r"(?:\[[^\[\]]*\][\s.,;]*)+")


def _claim(sentence: str) -> str:
    """The claim in a sentence; "" if it holds none."""
    rest = sentence.strip()
    if rest.rstrip("\"'”’)").endswith("?") or _CITATIONS.fullmatch(rest):
        return ""
    opener = _OPENERS.match(rest)
    while opener and opener.end():
        rest = rest[opener.end() :]
        opener = _OPENERS.match(rest)
    if _COURTESY.match(rest) or _INTENT.match(rest) or _CONDITIONAL.match(rest) or _HEDGE.search(rest):
        return ""
    words = len(_LETTERS.findall(rest))
    return rest if words >= 2 or (words and any(char.isdigit() for char in rest)) else ""


# -- the default verifier -----------------------------------------------------------------------------------------------


def says(claim: str, texts: Sequence[str]) -> bool:
    """Whether evidence holds every mark of a claim: numbers, ids, dates, weekdays, quoted names, status words not negated.

    `texts`: the evidence. A date in the evidence also counts as its weekday. A claim without marks is supported.

    >>> from mat_contracts.claims import says
    >>> says("Parcel 17 arrives on Friday", ["parcel 17: Friday"]), says("Parcel 17 arrives on Monday", ["parcel 17: Friday"])
    (True, False)

    Source: A2.F2.
    """
    return not missing(claim, texts)


def missing(claim: str, texts: Sequence[str], asked: Sequence[str] = ()) -> tuple[str, ...]:
    """The marks of a claim that the evidence does not hold. Numbers, ids and quoted names may also come from the question
    `asked`. Numbers and dates count in any notation.

    `texts`: the evidence. Returns a tuple of texts, by kind of mark, such as "the date 3 May".

    >>> from mat_contracts.claims import missing
    >>> missing("Parcel 17 arrives on Monday", ["parcel 17: Friday"])
    ("'monday'",)

    Source: F2, A2.F2.
    """
    numbers, quoted, marks = _marks_of(claim)
    facts, ids = _facts_of_claim(claim)
    evidence = " \n ".join(texts)
    lost: list[str] = []
    if numbers or quoted or ids:
        whole = evidence + " \n " + " \n ".join(asked)
        topic = whole.casefold()
        if numbers:
            absent = _missing_numbers(numbers, topic)
            if facts.times:
                wrong, held = _compared_times(facts, whole)
                lost += [f"the time {item}" for item in wrong]
                absent = [item for item in absent if item not in held]
            lost += [f"the number {item}" for item in (_missing_quantities(facts, absent, whole) if absent else absent)]
        lost += [f"{item!r}" for item in _other_currencies(facts, whole)]
        lost += [f"{item!r}" for item in quoted if item.casefold() not in topic]
        lost += [f"{item!r}" for item in ids if item not in topic]
    if facts.days:
        lost += [f"the date {item}" for item in _missing_days(facts, marks, evidence)]
    if marks:
        lost += [f"{item!r}" for item in _missing_marks(marks, evidence)]
    return tuple(lost)


@lru_cache(maxsize=1024)
def _facts_of_claim(claim: str) -> tuple[Facts, tuple[str, ...]]:
    """The dates and quantities of a claim, and its ids."""
    if not any(char.isdigit() for char in claim):
        return _NO_FACTS, ()
    return facts_of(claim), ids_of(claim)


_NO_FACTS: Final = facts_of("")


def _compared_times(facts: Facts, text: str) -> tuple[list[str], frozenset[str]]:
    """The times of a claim of which a text names the other half of the day, and the numbers of those that it holds.

    "9 pm" is 21:00 and not 09:00. A text that says 9:00 leaves the half open.
    """
    known = facts_of(text).times
    wrong, held = [], set[str]()
    for item in sorted(facts.times):
        hour, minute = int(item[:2]), item[3:5]
        if item in known:
            held |= {f"{hour}", f"{hour % 12 or 12}", plain_number(minute)}
            continue
        other = f"{(hour + 12) % 24:02}{item[2:]}"
        short_form = rf"{(hour % 12) or 12}(?::{minute})?\s*[ap]\.?m"
        if other in known and re.search(rf"(?<!\d)(?:{other}|{short_form})", text, re.IGNORECASE):
            wrong.append(item)
    return wrong, frozenset(held)


def _missing_quantities(facts: Facts, absent: Sequence[str], text: str) -> list[str]:
    """The numbers that a text does not hold in any notation or unit: "1.250,00 EUR" holds 1250."""
    known = facts_of(text).quantities
    held = {
        plain_number(f"{item.stated:f}") for item in facts.quantities if any(item.agrees(other, Decimal(0)) for other in known)
    }
    days = {f"{part}" for readings in facts.days for day in readings for part in day}  # dates are compared as days
    return [item for item in absent if item not in held and item not in days]


def _other_currencies(facts: Facts, text: str) -> list[str]:
    """The amounts of a claim that a text holds in other currencies only."""
    amounts = [item for item in facts.quantities if len(item.dimension) == 3]
    if not amounts:
        return []
    known = [item for item in facts_of(text).quantities if len(item.dimension) in (0, 3)]
    return [
        item.written
        for item in amounts
        if any(other.stated == item.stated for other in known) and not any(item.agrees(other, Decimal(0)) for other in known)
    ]


def _missing_days(facts: Facts, marks: Sequence[str], text: str) -> list[str]:
    """The dates of a claim that a text which names dates does not hold."""
    known = [day for readings in facts_of(text).days for day in readings]
    if not known:
        return []
    return [
        f"{readings[0].day} {MONTHS[readings[0].month - 1].capitalize()}"
        for readings in facts.days
        if f"{readings[0].year:04}-{readings[0].month:02}-{readings[0].day:02}" not in marks  # these are compared as marks
        and not any(day.agrees(other) for day in readings for other in known)
    ]


def _missing_numbers(numbers: Sequence[str], text: str) -> list[str]:
    """The numbers that a text does not hold."""
    plainly = _NUMBER.findall(text)
    if all(item in plainly for item in numbers):  # as nearly always
        return []
    known = _numbers_in(text)
    return [item for item in numbers if item not in known]


def _missing_marks(marks: Sequence[str], text: str) -> list[str]:
    """The dates, weekdays and status words that a text does not hold."""
    low = text.casefold()
    if not any(hint in low for hint in _NEGATED) and frozenset(_TOKEN.findall(low)).issuperset(marks):  # as nearly always
        return []
    absent = frozenset(marks) - _dates_and_status(text)
    return sorted(absent - _weekdays_of_dates(text)) if absent else []


_TOKEN = re.compile(r"\w+")
_NEGATED: Final = ("no", "never", "without", "n't", "n’t", "unable", "fail", "refused", "declined")
"""Substrings of negations: a text without them holds no negation."""


@lru_cache(maxsize=1024)
def _marks_of(claim: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The marks of a claim: numbers, quoted names, and dates with weekdays and status words."""
    return (
        tuple(sorted(_numbers_in(_DAY.sub(" ", _DATE.sub(" ", claim))))),
        tuple(_quoted_names(claim)),
        tuple(sorted(_dates_and_status(claim))),
    )


_DATE = re.compile(r"(?<!\d)\d{4}-\d\d-\d\d(?!\d)")
_DAY = re.compile(r"(?<![\d./])\d\d?(?P<mark>[./])\d\d?(?P=mark)(?:19|20)\d\d(?!\d|[./]\d)")
"""A date in digits such as 17.05.2024, which is compared as a day."""
_TIME = re.compile(r"(?<=\d)[Tt](?=\d)")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?![\d])")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^“”]+)”|(?<!\w)'([^']+)'(?!\w)|‘([^‘’]+)’")
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
STATUS: Final = (
    "approved", "blocked", "cancelled", "closed", "completed", "confirmed", "delayed", "delivered", "denied", "dispatched",
    "expired", "failed", "lost", "paid", "pending", "refunded", "rejected", "resolved", "returned", "shipped",
)  # fmt: skip
"""Status words; evidence must hold those of a claim."""
_STATUS_WORD = re.compile(
    r"(?:\b(?P<no>(?:not|never|no|without|\w+n['’]t)\s+(?:\w+\s+){0,2}?|(?:cannot|unable|fail(?:ed|s)?|refused|declined)\s+"
    r"(?:\w+\s+){0,5}?))?\b(?P<word>" + "|".join((*STATUS, "canceled", *_WEEKDAYS)) + r")\b"
)


def _dates_and_status(text: str) -> frozenset[str]:
    """Dates, weekdays and status words of a text, without negated words."""
    low = text.casefold()
    words = [match["word"].replace("canceled", "cancelled") for match in _STATUS_WORD.finditer(low) if not match["no"]]
    return frozenset((*words, *_DATE.findall(low)))


def _weekdays_of_dates(text: str) -> frozenset[str]:
    """The weekdays of the dates in a text."""
    found = set()
    for day in _DATE.findall(text):
        try:
            found.add(_WEEKDAYS[datetime.date.fromisoformat(day).weekday()])
        except ValueError:  # 2024-02-31 is a text like any other
            continue
    return frozenset(found)


def _numbers_in(text: str) -> frozenset[str]:
    return frozenset(plain_number(match[0]) for match in _NUMBER.finditer(_TIME.sub(" ", text)))


def _quoted_names(text: str) -> list[str]:
    return [next(group for group in match.groups() if group is not None) for match in _QUOTED.finditer(text)]


# -- judging ------------------------------------------------------------------------------------------------------------


def _judge_record(state: PersistentChain, record: Record, rules: _Rules) -> tuple[PersistentChain, list[JudgedClaim]]:
    """The state after a record, and the judged claims of the record."""
    kind = record.action.kind
    claims: list[JudgedClaim] = []
    if kind == "claim":
        stated = statement(record)
        claim = stated if isinstance(stated, str) else ""
        item = _judge_recorded_claim(record, claim, state, rules)
        mark = "failed" if item.status == "unsupported" else ""
        whole: Kept = (item.artefact, record.step, record.at_ms, "claim", claim, mark, "", None)
        return _with_artifact(state, whole, (), rules.remember), [item] if kind in rules.on else []
    if kind in rules.on and (kind == "final_response" or _is_to_user(record)):
        claims = _judge_answer(record, _unchained(state)[0][-rules.remember :], rules)
    if kind not in _EVIDENCE_KINDS:
        return state, claims
    whole = kept_of(record, fresh=rules.fresh)
    parts = parts_of(record, fresh=rules.fresh) if kind in _DIVISIBLE_KINDS else ()
    return _with_artifact(state, whole, parts, rules.remember), claims


def _with_artifact(state: PersistentChain, whole: Kept, parts: Sequence[Kept], remember: int) -> PersistentChain:
    """The state with one more artifact, and with the passages or memory cells of its record, which replace older ones."""
    if not parts and state[0] < CHAIN:
        return (state[0] + 1, state, whole)
    memory, unjudged = _unchained(state)
    memory = memory[-remember:]
    if parts:
        again = {item[0] for item in parts}
        memory = tuple(item for item in memory if item[0] not in again)
    return (0, (*memory, whole, *parts)[-remember:], unjudged)


def _unchained(state: PersistentChain) -> tuple[tuple[Kept, ...], tuple[int, int, str]]:
    """All remembered artifacts, the latest last, and (number of undecided claims, step and text of the first)."""
    (_, known, unjudged), later = unchained(state)
    return (*known, *later), unjudged


def _latest(state: PersistentChain) -> Iterator[Kept]:
    """All remembered artifacts, the latest first."""
    while state[0]:
        yield state[2]
        state = state[1]
    yield from reversed(state[1])


def _is_to_user(record: Record) -> bool:
    return record.action.kind == "message" and record.action.name == "user" and not is_from_user(record)


def _judge_recorded_claim(record: Record, claim: str, state: PersistentChain, rules: _Rules) -> JudgedClaim:
    status, why, steps, wanted = _judge_links(record, claim, state, rules)
    witness = (*steps, record.step) if status != "supported" else steps
    return _new_claim(
        artefact=f"claim#{record.step}", index=0, step=record.step, text=claim, final=False, status=status, why=why,
        wanted=wanted, witness=witness,
    )  # fmt: skip


def _judge_links(
    record: Record, claim: str, state: PersistentChain, rules: _Rules
) -> tuple[SupportStatus, str, tuple[int, ...], str]:
    """(status of a recorded claim by its links, why it is unsupported, steps of its evidence, evidence that it needs)."""
    artefact = f"claim#{record.step}"
    linked = [link.src for link in record.links if link.rel == "supports" and link.dst == artefact]
    if not linked:
        return "unsupported", "nothing supports it", (), "a link to a result, passage or memory entry that says so"
    known = _cited_artifacts(linked, state, rules.remember)
    found = [known[name] for name in linked if name in known]
    steps = (found[0][1],) if len(found) == 1 else tuple(sorted({item[1] for item in found}))
    current = [item for item in found if _is_new(item[1], item[2], record, rules)] if rules.age.is_bounded else found
    forgotten = []
    if len(found) < len(linked):
        memory = _unchained(state)[0][-rules.remember :]
        absent = [name for name in linked if name not in known]
        missing_names = [name for name in absent if not _may_exist(name, record, memory, rules)]
        forgotten = [name for name in absent if name not in missing_names and not _is_old_step(name, record, rules)]
        if missing_names and not current and not forgotten:
            why = f"its evidence {', '.join(missing_names)} does not occur before it"
            return "unsupported", why, steps, "a link to something earlier in the trace"
    if not current and not forgotten:
        return "unsupported", "its evidence is too old", steps, "evidence from a newer request"
    texts = [_texts_for(claim, item) for item in current]
    if forgotten or None in texts or not claim:
        return "supported", "", steps, ""
    if rules.verifier is None and any(texts):
        asked = [text for item in current if item[7] for text in leaves(item[7])]
        answer, why, wanted = _judge_by_marks(claim, [text for found in texts if found for text in found], asked)
    else:
        evidence = [evidence_by(item)._replace(texts=said) for item, said in zip(current, texts, strict=True)]
        answer, why, wanted = _verify(claim, evidence, rules)
    return answer, why, steps, wanted


_FAILURE_TOLD: Final = re.compile(
    r"\b(?:no|not|never|none|nothing|neither|cannot|unable|without|error|errors|fail\w*|invalid|denied|declined|rejected"
    r"|refused|unavailable|missing|unknown|unsupported|expired|outdated|out of|timed? ?out|wrong|problem|issue"
    r"|must|require\w*|\w+n['’]t)\b",
    re.IGNORECASE,
)
"""Words of a claim that something went wrong, or is not so: the reply that reports the failure may support it."""


def _texts_for(claim: str, item: Kept) -> tuple[str, ...] | None:
    """The texts of a kept artifact that may support a claim: the report of an error supports only what is said of it."""
    failed = item[6] and is_error_reply(item[4]) and not _FAILURE_TOLD.search(claim)
    return () if failed else texts_of(item)


def _judge_by_marks(claim: str, texts: Sequence[str], asked: Sequence[str]) -> tuple[SupportStatus, str, str]:
    """(status, why, wanted) of a claim by the default verifier. `asked` are the texts of the requests and questions."""
    lost = missing(claim, texts, asked)
    if not lost:
        return _SUPPORTED
    return "unsupported", f"its evidence does not say {' or '.join(lost)}", f"evidence that says {' and '.join(lost)}"


def _cited_artifacts(names: Sequence[str], state: PersistentChain, remember: int) -> dict[str, Kept]:
    """Name -> the latest remembered artifact with that name, for the names that are remembered."""
    wanted: dict[str | int, str] = {}  # artefact, or the number of a step -> its name
    for name in names:
        number = name[5:] if name.startswith("step#") else ""
        wanted[int(number) if number.isdecimal() and f"{int(number)}" == number else name] = name
    wanted.pop("", None)
    found: dict[str, Kept] = {}
    for item in islice(_latest(state), remember):
        name = wanted.pop(item[0] or item[1], "")
        if name:
            found[name] = item
            if not wanted:
                break
    return found


def _verify(claim: str, evidence: Sequence[EvidenceContent], rules: _Rules) -> tuple[SupportStatus, str, str]:
    """(status, why, wanted) of a claim by the verifier. The texts of the evidence must be known."""
    if not any(item.texts for item in evidence):
        return "unsupported", "its evidence says nothing", f"evidence that says {claim!r}"
    if rules.verifier is not None:
        status = answer_of(rules.verifier(claim, evidence))
        why = {"supported": "", "unsupported": "its evidence does not support it"}.get(status, "")
        return status, why, f"evidence that says {claim!r}" if why else ""
    texts = [text for item in evidence for text in item.texts or ()]
    return _judge_by_marks(claim, texts, [text for item in evidence for text in item.asked])


_SUPPORTED: Final[tuple[SupportStatus, str, str]] = ("supported", "", "")


def _may_exist(artefact: str, record: Record, memory: tuple[Kept, ...], rules: _Rules) -> bool:
    """Whether an artifact that is not remembered may occur earlier in the trace.

    A step does if its number is smaller. Any other artifact is remembered until the memory is full.
    """
    family, _, number = artefact.partition("#")
    if family == "step" and number.isdigit():
        return int(number) < record.step
    full = len(memory) >= rules.remember
    if family == "claim" and number.isdigit():
        return full and int(number) < memory[0][1]
    return full or not artefact.startswith(("passage:", "memory:", "claim#"))


def _judge_answer(record: Record, memory: tuple[Kept, ...], rules: _Rules) -> list[JudgedClaim]:
    """The judged claims of an answer: by the recorded claim with the same text, else by all replies of ports.

    Texts of models and other agents are no evidence here. The user's words are the question.
    """
    final = record.action.kind == "final_response"
    claims = _claims_of(record, rules.splitter)
    if not claims:
        return []
    recorded = {normal(item[4]): item for item in memory if item[3] == "claim"}
    kept = [item for item in memory if item[3] == "world" and not item[0] and _is_new(item[1], item[2], record, rules)]
    world = [rules.read(item) for item in kept]
    errors = frozenset(item[1] for item in kept if item[6] and is_error_reply(item[4]))
    user = [rules.read(item) for item in memory if item[3] == "user"]
    asked = [item._replace(texts=(), asked=item.texts) for item in user if item.texts is not None]
    hidden = len(memory) >= rules.remember or any(item.texts is None for item in world)
    found = []
    for index, claim in enumerate(claims):
        same = recorded.get(normal(claim))
        if same is not None:
            status, why, wanted = _REPEATED if same[5] else _SUPPORTED
            steps: tuple[int, ...] = (same[1],)
        else:
            replies = world
            if errors and not _FAILURE_TOLD.search(claim):  # the report of an error supports only what is said of it
                replies = [item for item in world if item.step not in errors]
            status, why, wanted = _judge_by_replies(claim, replies, asked, hidden, rules)
            steps = ()
        found.append(
            _new_claim(
                artefact=record.artefact, index=index, step=record.step, text=claim, final=final, status=status, why=why,
                wanted=wanted, witness=(*steps, record.step),
            )
        )  # fmt: skip
    return found


_REPEATED: Final[tuple[SupportStatus, str, str]] = (
    "unsupported", "it repeats a claim that was not supported", "evidence for that claim",
)  # fmt: skip


def _judge_by_replies(
    claim: str, world: Sequence[EvidenceContent], asked: Sequence[EvidenceContent], hidden: bool, rules: _Rules
) -> tuple[SupportStatus, str, str]:
    known = [item for item in world if item.texts is not None]
    status, why, wanted = _verify(claim, [*known, *asked], rules) if known else ("unsupported", "", "")
    if status == "unsupported" and hidden:
        return "unknown", "", ""
    if not known:
        return "unsupported", "nothing in the trace supports it", "a result, passage or memory entry that says so"
    return status, why.replace("its evidence", "the trace"), wanted


def _claims_of(record: Record, splitter: Splitter) -> list[str]:
    """The claims in the texts of an answer: a text, or all texts of structured data."""
    return [claim for text in leaves(statement(record)) for claim in splitter(text)]


def _is_new(step: int, at_ms: int, record: Record, rules: _Rules) -> bool:
    return rules.age.holds(record.step - step, record.at_ms - at_ms)


def _is_old_step(artefact: str, record: Record, rules: _Rules) -> bool:
    """Age in steps of evidence that is no longer remembered; its time is not known."""
    family, _, number = artefact.partition("#")
    return family in ("step", "claim") and number.isdigit() and not rules.age.holds(record.step - int(number), 0)

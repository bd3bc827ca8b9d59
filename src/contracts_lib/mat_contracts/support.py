"""Support verifiers: does the evidence support the claim? The verifiers are functions.

A verifier takes a claim and its evidence and returns "supported", "unsupported" or "unknown", or a bool. A verifier that can
judge only some claims (`number_match`, `row_match`, a judge that abstains) returns "unknown" for the others. Combinators:

- `first_of(a, b, ...)` asks one verifier after the other until one knows.
- `any_of(...)` needs one that supports the claim, `all_of(...)` needs all; unknown lies in between (Kleene's three values).
- `by_one(verifier)` needs one piece of evidence that supports the claim alone; other verifiers read all evidence together.

>>> from mat_contracts.support import any_of, entailment, evidence, exact_match, first_of, number_match
>>> model = entailment(lambda premise, hypothesis: "lost" in premise)
>>> verifier = any_of(exact_match, first_of(number_match(), model))
>>> verifier("The refund is 1,250 euros, due on 3 May 2024.", [evidence({"refund": 1250.0, "due": "2024-05-03"})])
'supported'
>>> verifier("The refund is 1,250 dollars.", [evidence({"refund": "EUR 1250"})])
'unsupported'

Source: F2.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from mat.core.errors import SpecError
from mat.core.record import Observation, Record
from mat.core.value import FrozenDict, snapshot
from mat_contracts._facts import Facts, facts_of, ids_of, weekday_of
from mat_contracts._reading import cell_of, is_from_user, is_withheld
from mat_contracts._sentences import sentences, units

SupportStatus: TypeAlias = Literal["supported", "unsupported", "unknown"]
STATUSES: Final = ("supported", "unsupported", "unknown")
EvidenceSource: TypeAlias = Literal["world", "model", "agent", "user", "claim"]
EVIDENCE_CHARS: Final = 10_000
"""The most characters of an artifact. A longer one is remembered without its texts, and only the link is judged."""


class EvidenceContent(NamedTuple):
    """The content of an artifact.

    `texts`: the scalars of its value as texts; None if they are not known (hashed, opaque, too long), empty if there are none.
    `asked`: the scalars of the question that it answers. `about`: its keys and the name of its port. `ids`: the values under
    keys that name a row. `source`: the world (tools, retrievers, memories read), a model, an agent (its messages and memory
    writes), the user, or a claim.
    """

    artefact: str
    step: int
    at_ms: int
    texts: tuple[str, ...] | None
    asked: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    source: EvidenceSource = "world"


Verifier: TypeAlias = Callable[[str, Sequence[EvidenceContent]], SupportStatus | bool]


def evidence(value: object, *, asked: object = None, artefact: str = "step#0") -> EvidenceContent:
    """Evidence made from a value, to try a verifier and for labeled data."""
    said = snapshot(value, "evidence")
    names, ids = _keys_and_ids(said)
    return EvidenceContent(artefact, 0, 0, tuple(leaves(said)), tuple(leaves(snapshot(asked, "asked"))), names, ids)


# -- the content of a record -------------------------------------------------------------------------------------------------


Kept: TypeAlias = tuple[str, int, int, EvidenceSource, Any, str, str, "FrozenDict | None"]
"""What is kept of an artifact until a claim cites it: its name, step, at_ms, source, value, mark, tool and arguments.

The name is "" for the step itself. The mark is "failed" if there is no reply, and "hidden" if its text is not known. The
arguments are None except for tool calls. This is plain data of the record, so a step that is never cited costs little.
"""


def kept_of(record: Record, *, fresh: bool = False) -> Kept:
    """The content of a record, as an artifact named after its step.

    With `fresh`, it is the port's own reply if a fault delivered a different one.
    """
    action = record.action
    source, value, mark = _content(record, fresh)
    name, arguments = (action.name, action.arguments) if action.kind == "tool_call" else ("", None)
    return bounded("", record, source, value, mark, name, arguments)


def bounded(
    artefact: str,
    record: Record,
    source: EvidenceSource,
    value: Any,
    mark: str,
    name: str = "",
    arguments: FrozenDict | None = None,
) -> Kept:
    """What is kept of an artifact, without its value if that holds a text too long to judge."""
    if is_long(value):
        value, mark = None, mark or "hidden"
    return (artefact, record.step, record.at_ms, source, value, mark, name, arguments)


def parts_of(record: Record, *, fresh: bool = False) -> list[Kept]:
    """The passages and the memory cell that a record delivered, in addition to the step itself."""
    action = record.action
    source, value, mark = _content(record, fresh)
    if action.kind == "retrieval" and isinstance(value, list):
        passages = [item for item in value if isinstance(item, dict) and item.get("id")]
        return [bounded(f"passage:{item['id']}", record, source, item, mark) for item in passages]
    if action.kind == "memory_read" or (action.kind == "memory_write" and record.effected == "yes"):
        return [bounded(f"memory:{cell_of(record)}", record, source, value, mark)]
    return []


def _content(record: Record, fresh: bool) -> tuple[EvidenceSource, Any, str]:
    """The source, the value and the mark of a record's content."""
    action = record.action
    kind = action.kind
    reply = record.observation if not fresh or not record.faults else _port_reply(record)
    value = reply.value
    if kind == "model_call":
        return "model", value, mark_of(reply)
    if kind == "message":
        return "user" if is_from_user(record) else "agent", action.arguments.get("text") if value is None else value, ""
    if kind == "memory_write":
        return "agent", action.arguments.get("value"), "failed" if mark_of(reply) == "failed" else ""
    return "world", value, mark_of(reply)


def mark_of(reply: Observation) -> str:
    if reply.error is not None or reply.cancelled:
        return "failed"
    return "hidden" if reply.opaque else ""


def is_long(value: Any) -> bool:
    """Whether a value holds a text too long to judge."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return type(value) is str and len(value) > EVIDENCE_CHARS
    for item in value:
        if len(item) > EVIDENCE_CHARS if type(item) is str else isinstance(item, _CONTAINERS) and is_long(item):
            return True
    return False


_CONTAINERS: Final = (dict, list)


def text_evidence_by(kept: Kept) -> EvidenceContent:
    """Evidence with its texts and the question that it answers, without names and ids."""
    artefact, step, at_ms, source, _, _, _, arguments = kept
    asked = () if arguments is None else tuple(leaves(arguments))
    return EvidenceContent(artefact or f"step#{step}", step, at_ms, texts_of(kept), asked, (), (), source)


def evidence_by(kept: Kept) -> EvidenceContent:
    """The whole content of an artifact."""
    said = text_evidence_by(kept)
    _, _, _, source, value, _, name, arguments = kept
    if source == "claim":
        return said._replace(about=(value,))
    names, ids = _keys_and_ids(value) if said.texts else ((), ())
    return said._replace(about=names if arguments is None else (name, *arguments, *names), ids=ids)


def _port_reply(record: Record) -> Observation:
    """The port's own reply, before a fault changed it; empty if a fault replaced the call."""
    if not any(note.changed for note in record.faults):
        return record.observation
    if record.raw is not None:
        return record.raw
    return record.observation if record.invoked else Observation()


def texts_of(kept: Kept) -> tuple[str, ...] | None:
    """The scalars of a kept artifact; None if they are not known, empty if the call failed."""
    _, _, _, source, value, mark, _, _ = kept
    if mark:
        return () if mark == "failed" else None
    if source == "claim":
        return (value,)
    if is_withheld(value):
        return None
    found = tuple(leaves(value))
    return None if sum(map(len, found)) > EVIDENCE_CHARS else found


def leaves(value: Any) -> list[str]:
    """The scalars of a value as texts. A key counts if its value is true: {"delivered": true} gives "delivered"."""
    found: list[str] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[str]) -> None:
    kind = type(value)
    if kind is str:
        found.append(value)
    elif kind is int or kind is float:
        found.append(f"{value}")
    elif isinstance(value, dict):
        for key, item in value.items():
            if type(item) is str:
                found.append(item)
            elif item is True:
                found.append(key)
            else:
                _collect(item, found)
    elif isinstance(value, list):
        for item in value:
            _collect(item, found)


_ROW_KEY = re.compile(
    r"(?:^|.*[_\-])(?:id|ids|uuid|key|code|number|no|ref|reference|sku|isbn)$|.*(?:Id|ID|Ids|Number|Code|Ref|Key)$"
)


def _keys_and_ids(value: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(the keys of a value, the ids of its rows: scalars under an id-like key, and keys that look like ids)."""
    if not isinstance(value, dict | list):
        return (), ()
    names: dict[str, None] = {}
    ids: dict[str, None] = {}
    pending = [value]
    for item in pending:  # grows while it is read
        if isinstance(item, list):
            pending += [part for part in item if isinstance(part, dict | list)]
            continue
        names.update(dict.fromkeys(item))
        for key, part in item.items():
            row_key, like_an_id = _key_kind(key)
            if row_key:
                ids.update((text.casefold().lstrip("#"), None) for text in leaves(part))
            if isinstance(part, dict | list):
                pending.append(part)
                if like_an_id:
                    ids[like_an_id] = None
    return tuple(names), tuple(ids)


@lru_cache(maxsize=4096)
def _key_kind(key: str) -> tuple[bool, str]:
    """(whether values under a key name rows, the id that the key itself is, or "")."""
    plain = key.casefold().lstrip("#")
    return _ROW_KEY.match(key) is not None, plain if ids_of(key) == (plain,) else ""


# -- verifiers ----------------------------------------------------------------------------------------------------------


def answer_of(answer: object) -> SupportStatus:
    """The answer of a verifier, which returns a status or a bool. SpecError for anything else."""
    if answer is True or answer is False:
        return "supported" if answer else "unsupported"
    if answer in STATUSES:
        return answer
    raise SpecError(
        what=f"a support verifier returned {answer!r}",
        why="support has three values",
        fix=f"return one of {', '.join(STATUSES)}",
    )


def exact_match(claim: str, given: Sequence[EvidenceContent]) -> SupportStatus:
    """Whether a text of the evidence, or one of its sentences, equals the claim.

    The comparison ignores case, white space, quotation marks, Markdown and final punctuation, after NFKC normalization.

    >>> exact_match("Refunds take 5 days", [evidence("Opening hours are 9-5.  Refunds take **5 days**!")])
    'supported'
    >>> exact_match("Refunds take 5 days", [evidence("Refunds take 15 days")])
    'unsupported'
    """
    wanted = normal(claim)
    for text in _texts(given):
        if normal(text) == wanted or any(
            normal(sentence) == wanted for unit, _ in units(text) for sentence in (unit, *sentences(unit))
        ):
            return "supported"
    return "unsupported"


def normal(text: str) -> str:
    """A text as exact matches compare it."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(re.sub(r"[\"'`*_“”‘’]", "", folded).split()).strip(" .!?;:,")


def number_match(*, overlap: float = 0.0, tolerance: float = 0.0) -> Verifier:
    """Every number, date, time and weekday of the claim is in the evidence, and they have words in common.

    Numbers are equal across thousands separators, signs, scales and units of one dimension (2 hours, 120 min). A bare number
    agrees with any unit, and 0.5 with 50 %; different currencies never agree. `tolerance` is relative: 0.01 lets 99.5 pass
    for 100. A number may also be in the question that the evidence answers; dates and times may not. Dates agree in any
    notation, even if one has no year; a date implies its weekday. `overlap` is the least share of the claim's content words
    that the evidence, its keys and its question contain. If the claim has content words, at least one must be there.

    Unknown for a claim that names no number, date, time or weekday.

    >>> says = number_match()
    >>> says("Parcel 17 arrives on 3 May", [evidence({"eta": "2024-05-03"}, asked={"parcel": 17})])
    'unsupported'
    >>> says("Parcel 17 arrives on 3 May", [evidence({"parcel": 17, "arrival": "2024-05-03"})])
    'supported'
    >>> says("Parcel 17 arrives on 4 May", [evidence({"parcel": 17, "arrival": "2024-05-03"})])
    'unsupported'
    >>> says("The parcel is lost", [evidence({"parcel": 17})])
    'unknown'
    """
    for name, value in (("overlap", overlap), ("tolerance", tolerance)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise SpecError(what=f"{name}={value!r} is not a share", fix=f"give {name} as a number from 0 to 1")
    near = Decimal(str(tolerance))

    def verify(claim: str, given: Sequence[EvidenceContent]) -> SupportStatus:
        wanted = facts_of(claim)
        if not any(wanted):
            return "unknown"
        said = facts_of(" \n ".join(_texts(given)))
        asked = facts_of(" \n ".join(text for item in given for text in item.asked))
        if not _contains_facts(wanted, said, asked, near):
            return "unsupported"
        words = content_words(claim)
        known = content_words(" ".join(text for item in given for text in (*(item.texts or ()), *item.asked, *item.about)))
        common = len(words & known)
        enough = not words or (common > 0 and common >= overlap * len(words))
        return "supported" if enough else "unsupported"

    return verify


def _contains_facts(wanted: Facts, said: Facts, asked: Facts, near: Decimal) -> bool:
    known = [day for readings in said.days for day in readings]
    weekdays = said.weekdays | {weekday_of(day) for day in known}
    numbers = (*said.quantities, *asked.quantities)
    return (
        all(any(day.agrees(other) for day in readings for other in known) for readings in wanted.days)
        and wanted.weekdays <= weekdays
        and wanted.times <= said.times
        and all(any(item.agrees(other, near) for other in numbers) for item in wanted.quantities)
    )


_FUNCTION_WORDS: Final = (
    "a an the this that these those it its is are was were be been being am has have had do does did will would can could "
    "shall should may might must of to in on at by for from with without as into over under about after before until since and "
    "or but so if then than there here their your our my his her i we you he she they them us me him who which what when where "
    "how no not never any some all each per only also just very more most please now already still yet"
)
_STOPWORDS: Final = frozenset(_FUNCTION_WORDS.split())
_WORD = re.compile(r"[^\W\d_]{2,}")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def content_words(text: str) -> frozenset[str]:
    """The stems of the words that carry meaning, in prose and in names such as `arrival_date` and `arrivalDate`."""
    words = _WORD.findall(_CAMEL.sub(" ", text).replace("_", " "))
    return frozenset(stem(word) for word in words if word.casefold() not in _STOPWORDS)


def stem(word: str) -> str:
    """An approximate stem: the same for delivers, delivered, delivering and delivery."""
    low = word.casefold()
    for ending, rest in (("ies", "y"), ("ied", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("ery", "er"), ("al", "")):
        if low.endswith(ending) and len(low) - len(ending) >= 3 and not low.endswith("ss"):
            low = low[: -len(ending)] + rest
            break
    if len(low) > 3 and low[-1] == low[-2] and low[-1] not in "aeiou":
        low = low[:-1]
    return low.rstrip("e") if len(low) > 3 else low


def row_match(claim: str, given: Sequence[EvidenceContent]) -> SupportStatus:
    """Every id in the claim names a row of the evidence or is in the question that it answers; at least one names a row.

    Ids: e-mail addresses, #17, and words of digits and letters; a plain number if it is the id of a row. Values under keys such
    as id, order_id, orderId, code, number or sku name rows, and so do keys that look like ids.

    Unknown for a claim that names no id.

    >>> rows = [evidence([{"order_id": "W17", "status": "paid"}, {"order_id": "W18", "status": "open"}])]
    >>> row_match("Order #W17 is paid", rows), row_match("Order W19 is paid", rows), row_match("It is paid", rows)
    ('supported', 'unsupported', 'unknown')
    """
    rows = {text for item in given for text in item.ids}
    named = {*ids_of(claim), *(number for number in re.findall(r"(?<![\w.,-])\d+(?![\w]|[.,]\d)", claim) if number in rows)}
    if not named:
        return "unknown"
    asked = {token for item in given for text in item.asked for token in (*ids_of(text), text.casefold().lstrip("#"))}
    return "supported" if named & rows and named <= rows | asked else "unsupported"


def entailment(entails: Callable[[str, str], bool | float], *, threshold: float = 0.5) -> Verifier:
    """A verifier that asks the caller's `entails(premise, hypothesis)`: a bool, or a probability that is at least `threshold`.

    The premise is the evidence as text, one scalar per line, after the question that it answers. A score of NaN means unknown.
    An exception makes the contract's outcome unknown.

    >>> verifier = entailment(lambda premise, hypothesis: 0.9 if "Friday" in premise else 0.2, threshold=0.8)
    >>> verifier("It comes on Friday", [evidence("Friday")]), verifier("It comes on Friday", [evidence("Monday")])
    ('supported', 'unsupported')
    """
    if not callable(entails):
        raise SpecError(what=f"entails={entails!r} is not a function", fix="give entails(premise, hypothesis) -> bool | float")
    if isinstance(threshold, bool) or not 0 <= threshold <= 1:
        raise SpecError(what=f"threshold={threshold!r} is not a probability", fix="give threshold as a number from 0 to 1")

    def verify(claim: str, given: Sequence[EvidenceContent]) -> SupportStatus:
        score = entails("\n".join((*(text for item in given for text in item.asked), *_texts(given))), claim)
        if isinstance(score, bool):
            return answer_of(score)
        if math.isnan(score):
            return "unknown"
        return answer_of(bool(score >= threshold))

    return verify


def judged_by(judge: Callable[[str, Sequence[str]], object]) -> Verifier:
    """A constrained judge: `judge(claim, texts)` answers supported, unsupported or unknown.

    Case and final punctuation do not matter. Every other answer counts as unknown, never as support. A judge may answer
    differently from one call to the next: record its answers on a tape, and report its agreement and variance
    (`mat.measure.claims`).

    >>> verifier = judged_by(lambda claim, texts: "Supported." if claim in texts else "I would say so")
    >>> verifier("yes", [evidence(["yes"])]), verifier("no", [evidence(["yes"])])
    ('supported', 'unknown')
    """
    if not callable(judge):
        raise SpecError(what=f"judge={judge!r} is not a function", fix="give judge(claim, texts) -> str")

    def verify(claim: str, given: Sequence[EvidenceContent]) -> SupportStatus:
        reply = judge(claim, _texts(given))
        word = normal(reply) if isinstance(reply, str) else reply
        return answer_of(word) if isinstance(word, bool) or word in STATUSES else "unknown"

    return verify


def first_of(*verifiers: Verifier) -> Verifier:
    """A verifier that returns the first answer that is not unknown."""
    asked = _checked_verifiers(verifiers)

    def verify(claim: str, given: Sequence[EvidenceContent]) -> SupportStatus:
        for verifier in asked:
            answer = answer_of(verifier(claim, given))
            if answer != "unknown":
                return answer
        return "unknown"

    return verify


def any_of(*verifiers: Verifier) -> Verifier:
    """A verifier: supported if any of the verifiers says so, else unknown if any does, else unsupported."""
    return _by_precedence(_checked_verifiers(verifiers), ("supported", "unknown", "unsupported"))


def all_of(*verifiers: Verifier) -> Verifier:
    """A verifier: unsupported if any of the verifiers says so, else unknown if any does, else supported."""
    return _by_precedence(_checked_verifiers(verifiers), ("unsupported", "unknown", "supported"))


def by_one(verifier: Verifier) -> Verifier:
    """A verifier that asks about each piece of evidence alone; one piece must support the claim."""

    def verify(claim: str, given: Sequence[EvidenceContent]) -> SupportStatus:
        answers = [answer_of(verifier(claim, (item,))) for item in given]
        return next((word for word in ("supported", "unknown") if word in answers), "unsupported")

    return verify


def _by_precedence(verifiers: tuple[Verifier, ...], order: tuple[SupportStatus, SupportStatus, SupportStatus]) -> Verifier:
    """The answer that comes first in `order` wins. Once a verifier gives the first one, no other is asked."""

    def verify(claim: str, given: Sequence[EvidenceContent]) -> SupportStatus:
        worst = 2
        for verifier in verifiers:
            worst = min(worst, order.index(answer_of(verifier(claim, given))))
            if worst == 0:
                break
        return order[worst]

    return verify


def _checked_verifiers(verifiers: Iterable[Verifier]) -> tuple[Verifier, ...]:
    found = tuple(verifiers)
    if not found or not all(callable(item) for item in found):
        raise SpecError(
            what="no verifiers to combine", why="each is a function of a claim and its evidence", fix="give one or more"
        )
    return found


def _texts(given: Sequence[EvidenceContent]) -> list[str]:
    return [text for item in given for text in item.texts or ()]

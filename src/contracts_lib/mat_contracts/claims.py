"""Claims (F2): what an agent says rests on something in the trace, and that something says it too."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from mat.core.errors import SpecError
from mat.core.record import ActionKind, Observation, Record
from mat.core.verdict import Severity
from mat.monitor.contract import Contract, ContractPolicy, Violated

Support: TypeAlias = Callable[[str, Sequence[str]], bool]
EVIDENCE: Final = 64
"""Artefacts whose texts one contract remembers, the latest ones. Of older ones only the link is judged."""
EVIDENCE_CHARS: Final = 10_000
"""Characters of one artefact; a longer one is remembered without its texts, and only the link is judged."""
_KINDS: Final[frozenset[ActionKind]] = frozenset(("tool_call", "retrieval", "memory_read", "model_call", "message", "claim"))


class _Evidence(NamedTuple):
    """What an artefact says. `texts` None: unknown (hashed, opaque, too long); empty: nothing. `asked`: its question.

    A tuple, because the state holds many and a tuple is digested in one pass.
    """

    artefact: str
    step: int
    at_ms: int
    texts: tuple[str, ...] | None
    asked: tuple[str, ...] = ()


def claims_supported(
    *,
    support: Support | None = None,
    fresh: bool = False,
    max_age: int | None = None,
    max_age_ms: int | None = None,
    id: str = "",
    severity: Severity = "hard",
    weight: float = -1.0,
    policy: ContractPolicy = "observe",
    repair: str = "",
) -> Contract:
    """Each claim has a supporting link, and where the evidence's text is known, the evidence says what the claim says.

    support(c_j, e_j) of Sec. III-B, F2. `support(claim, texts)` decides over the texts of all linked evidence; the default,
    `says`, wants the claim's numbers, dates, weekdays, quoted names and status words in them. A reply that failed says
    nothing, neither does a claim that was itself unsupported. `max_age` (steps) and `max_age_ms` refuse evidence that was
    asked for longer ago. `fresh` judges by what the port itself said, where a fault delivered something else; without it
    an agent that repeats a corrupt or stale reply is supported by it.

    >>> from mat_contracts.traces import broken, record, trace
    >>> tracking = record("tool_call", "track", {"parcel": 17}, value={"eta": "Friday"})
    >>> friday = record("claim", "claim", {"text": "Parcel 17 arrives on Friday"}, supports=["step#0"])
    >>> monday = record("claim", "claim", {"text": "Parcel 17 arrives on Monday"}, supports=["step#0"])
    >>> broken(claims_supported(), trace(tracking, friday))
    ()
    >>> broken(claims_supported(), trace(tracking, monday))
    (1,)
    """
    for bound, name in ((max_age, "max_age"), (max_age_ms, "max_age_ms")):
        if bound is not None and (not isinstance(bound, int) or isinstance(bound, bool) or bound < 0):
            raise SpecError(what=f"{name}={bound!r} is not a count", fix=f"give {name} as an integer >= 0")

    def step(state: tuple[_Evidence, ...], record: Record) -> tuple[_Evidence, ...] | Violated:
        if record.action.kind != "claim":
            return _remembered(state, _evidence(record, fresh))
        claim = _claim_text(record)
        why, witness = _unsupported(record, claim, state, support, max_age, max_age_ms)
        said = () if why else (claim,)
        new = _remembered(state, [_Evidence(f"claim#{record.step}", record.step, record.at_ms, said)])
        return Violated(f"claim {claim!r}: {why}", state=new, witness=(*witness, record.step)) if why else new

    return Contract(
        id=id or "claims.supported", step=step, start=(), kinds=_KINDS, severity=severity, weight=weight, policy=policy,
        repair=repair or "say only what a result in the trace says, link it with supports=, or ask again before claiming",
        text="every claim is supported by evidence in the trace",
    )  # fmt: skip


def says(claim: str, texts: Sequence[str]) -> bool:
    """Whether evidence holds every mark of a claim: numbers, dates, weekdays, quoted names, status words that are not negated.

    A date in the evidence also says its weekday. A claim without marks is taken as said.
    """
    return not missing(claim, texts)


def missing(claim: str, texts: Sequence[str], asked: Sequence[str] = ()) -> tuple[str, ...]:
    """The marks of a claim that neither the evidence says nor, for numbers and names, the question it answers."""
    said = " \n ".join(texts)
    known = _marks(said) | _weekdays(said)
    topic = said.casefold() + " \n " + " \n ".join(asked).casefold()
    numbers = _numbers(topic)
    lost = [f"number {item}" for item in sorted(_numbers(_DATE.sub(" ", claim)) - numbers)]
    lost += [f"{item!r}" for item in _quoted(claim) if item.casefold() not in topic]
    lost += [f"{item!r}" for item in sorted(_marks(claim) - known)]
    return tuple(lost)


_DATE = re.compile(r"(?<!\d)\d{4}-\d\d-\d\d(?!\d)")
_TIME = re.compile(r"(?<=\d)[Tt](?=\d)")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?![\d])")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|(?<!\w)'([^']+)'(?!\w)|‘([^’]+)’")
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
STATUS: Final = (
    "approved", "blocked", "cancelled", "closed", "completed", "confirmed", "delayed", "delivered", "denied", "dispatched",
    "expired", "failed", "lost", "paid", "pending", "refunded", "rejected", "resolved", "returned", "shipped",
)  # fmt: skip
"""Words that say how something stands; evidence must say them too."""
_WORDS = re.compile(r"(?:\b(?P<no>not|never|no|without|\w+n['’]t)\s+(?:\w+\s+){0,2}?)?\b(?P<word>" + "|".join(
    (*STATUS, "canceled", *_WEEKDAYS)) + r")\b")  # fmt: skip


def _marks(text: str) -> frozenset[str]:
    """Dates, weekdays and status words of a text; negated words say nothing."""
    low = text.casefold()
    words = [match["word"].replace("canceled", "cancelled") for match in _WORDS.finditer(low) if not match["no"]]
    return frozenset((*words, *_DATE.findall(low)))


def _weekdays(text: str) -> frozenset[str]:
    """The weekdays of the dates in a text."""
    found = set()
    for day in _DATE.findall(text):
        try:
            found.add(_WEEKDAYS[datetime.date.fromisoformat(day).weekday()])
        except ValueError:  # 2024-02-31 is a text like any other
            continue
    return frozenset(found)


def _numbers(text: str) -> frozenset[str]:
    return frozenset(_plain_number(match[0]) for match in _NUMBER.finditer(_TIME.sub(" ", text)))


def _plain_number(text: str) -> str:
    """1,250.00 and 1250 are one number, 03 and 3 too."""
    sign = "-" if text.startswith("-") else ""
    whole, _, fraction = text.lstrip("-").replace(",", "").partition(".")
    fraction = fraction.rstrip("0")
    return sign + (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")


def _quoted(text: str) -> list[str]:
    return [next(group for group in match.groups() if group is not None) for match in _QUOTED.finditer(text)]


def _claim_text(record: Record) -> str:
    text = record.action.arguments.get("text")
    return text if isinstance(text, str) else ""


def _unsupported(
    record: Record,
    claim: str,
    state: tuple[_Evidence, ...],
    support: Support | None,
    max_age: int | None,
    max_age_ms: int | None,
) -> tuple[str, tuple[int, ...]]:
    """Why the claim is not supported, empty where it is, and the steps of the evidence."""
    linked = [link.src for link in record.links if link.rel == "supports" and link.dst == f"claim#{record.step}"]
    if not linked:
        return "nothing supports it", ()
    known = {item.artefact: item for item in state}
    found = [known[name] for name in linked if name in known]
    steps = tuple(sorted({item.step for item in found}))
    current = [item for item in found if not _is_old(item, record, max_age, max_age_ms)]
    forgotten = [name for name in linked if name not in known and not _is_old_step(name, record, max_age)]
    if not current and not forgotten:
        return "its evidence is too old", steps
    if forgotten or any(item.texts is None for item in current) or not claim:
        return "", steps
    texts = [text for item in current for text in item.texts or ()]
    if not texts:
        return "its evidence says nothing", steps
    if support is not None:
        return ("" if support(claim, texts) else "its evidence does not support it"), steps
    lost = missing(claim, texts, [text for item in current for text in item.asked])
    return (f"its evidence does not say {', '.join(lost)}" if lost else ""), steps


def _is_old(item: _Evidence, record: Record, max_age: int | None, max_age_ms: int | None) -> bool:
    too_many_steps = max_age is not None and record.step - item.step > max_age
    return too_many_steps or (max_age_ms is not None and record.at_ms - item.at_ms > max_age_ms)


def _is_old_step(artefact: str, record: Record, max_age: int | None) -> bool:
    """Age in steps of evidence that is no longer remembered; its time is not known."""
    family, _, number = artefact.partition("#")
    return max_age is not None and family in ("step", "claim") and number.isdigit() and record.step - int(number) > max_age


def _remembered(state: tuple[_Evidence, ...], new: Iterable[_Evidence]) -> tuple[_Evidence, ...]:
    for item in new:
        if not item.artefact.startswith(("step#", "claim#")):  # passages and memory cells come again
            state = tuple(other for other in state if other.artefact != item.artefact)
        state = (*state, item)
    return state[-EVIDENCE:]


def _evidence(record: Record, fresh: bool) -> list[_Evidence]:
    """What a record says, as the step and as the passage ids and memory cells it delivered."""
    action = record.action
    told = _told(record, fresh)
    asked = tuple(_leaves(action.arguments)) if action.kind == "tool_call" else ()
    if action.kind == "message":
        told = Observation(value=told.value if told.value is not None else action.arguments.get("text"))

    def made(artefact: str, value: Any) -> _Evidence:
        return _Evidence(artefact, record.step, record.at_ms, _texts(value, told), asked)

    found = [made(record.artefact, told.value)]
    if action.kind == "retrieval" and isinstance(told.value, list):
        found += [made(f"passage:{item['id']}", item) for item in told.value if isinstance(item, dict) and item.get("id")]
    if action.kind == "memory_read":
        found.append(made(f"memory:{action.name}/{action.arguments.get('key', '*')}", told.value))
    return found


def _told(record: Record, fresh: bool) -> Observation:
    """The reply as delivered or, with `fresh`, as the port gave it; nothing where a fault made it up."""
    if not fresh or not any(note.changed for note in record.faults):
        return record.observation
    if record.raw is not None:
        return record.raw
    return record.observation if record.invoked else Observation()


def _texts(value: Any, told: Observation) -> tuple[str, ...] | None:
    if told.error is not None or told.cancelled:
        return ()
    if told.opaque or _is_withheld(value):
        return None
    found = tuple(_leaves(value))
    return None if sum(map(len, found)) > EVIDENCE_CHARS else found


def _is_withheld(value: Any) -> bool:
    """Whether only a digest or a mark of the value was kept."""
    return isinstance(value, dict) and "pii" in value and ("sha256" in value or "redacted" in value)


def _leaves(value: Any) -> list[str]:
    """The scalars of a value as texts. A key counts where its value is true: {"delivered": true} says delivered."""
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in ([key] if item is True else _leaves(item))]
    if isinstance(value, list):
        return [text for item in value for text in _leaves(item)]
    if isinstance(value, bool) or value is None or isinstance(value, bytes):
        return []
    return [value] if isinstance(value, str) else [f"{value}"]

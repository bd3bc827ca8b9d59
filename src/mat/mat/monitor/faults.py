"""The rules that say what a fault is, what detects it and what mitigates it, and the fold that applies them.

The contract (`mat_contracts.containment`) and the rates (`mat.measure`) both use `DetectionRules` and `Watch`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, get_args

from mat.core.digest import canonical, digest
from mat.core.errors import SpecError, did_you_mean
from mat.core.record import Record
from mat.core.site import Boundary
from mat.core.value import EMPTY, FrozenDict
from mat.monitor.contract import Contract
from mat.monitor.judge import EPISODE

ERROR_KINDS: Final = ("connection", "invalid", "rate_limit", "server_error", "timeout")
"""Error kinds that mean a fault of the other side even if nothing was injected. Others (blocked, auth, not_found) are ordinary
answers."""
BOUNDARIES: Final = ("service", "retrieval", "memory", "model", "delegation")
"""Where faults enter. Prompt and order disturbances are perturbations of the search, not faults."""
DETECTIONS: Final = ("error", "detect", "verify", "retry")
MITIGATIONS: Final = ("mitigate", "retry", "alternate", "replan", "clarify", "escalate", "abort")
DETECT_WITHIN: Final = 5
"""How many steps after a fault it must be detected."""
MITIGATE_WITHIN: Final = 5
"""How many steps after its detection a fault must be mitigated."""

_BESIDES: Final = ("order", "process", "prompt")
"""Boundaries whose operators act on the records of other boundaries; their notes are recorded next to those of faults."""
_SPARES: Final = frozenset((
    "alt", "alternate", "alternative", "backup", "cache", "cached", "fallback", "main", "mirror", "offline", "primary",
    "replica", "second", "secondary", "spare", "standby",
))  # fmt: skip
"""Words that do not change the purpose of a port when its name contains them; so do suffixes such as v2."""
_WORD: Final = re.compile(r"[vV]\d+|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_TROUBLE: Final = re.compile(
    r"[?？]|\b(?:error|fail(?:s|ed|ing|ure)?|time[ds]?[ -]?out|unavailable|unreachable|outage|offline|(?:is|are|was|were) down"
    r"|not (?:respond|answer|work|availab|reachab)\w*|(?:does|did)(?: not|n['’]t) (?:respond|answer|work)|could(?: not|n['’]t)"
    r"|can(?:not| not|['’]t)|unable to|try again|trying again|retry(?:ing)?)\b",
    re.IGNORECASE,
)
_ENVELOPE: Final = ("sender", "delegator")
"""Arguments that are the same in all messages of one agent, so they do not identify a request."""
_REQUEST_MARKS: Final = 64
"""The largest number of arguments and words that identify a request."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that entered with the record of `step`.

    `operators` are those whose effect changed the call; if empty, the fault was observed. `error` is the kind (or type) of
    error the agent got, "" if the fault is silent: a wrong, late or missing reply. `request` is what identifies a retry.
    """

    step: int
    site: str
    agent: str
    boundary: str
    kind: str
    name: str
    operators: tuple[str, ...]
    error: str
    sealed_seq: int
    sealed_ms: int
    request: frozenset[str] = frozenset()

    @property
    def injected(self) -> bool:
        return bool(self.operators)

    @property
    def cause(self) -> str:
        return ", ".join(self.operators) or self.error

    @property
    def entered(self) -> str:
        """Where the fault entered, in words: the boundary, the site and the step."""
        return f"{self.cause} entered at {self.boundary or self.kind} ({self.site}, step {self.step})"


Predicate: TypeAlias = Callable[[Record, Fault], bool]
"""A user's own rule: whether a record, asked after a fault was known, detects or mitigates the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionRules:
    """The rules of containment with their windows, in steps. Any of them can be left out (`without`), and others added.

    A fault is an effect of an operator that changed a call at one of `boundaries`, or an error of the kinds `errors` where
    nothing was injected. Operators of the order and prompt boundaries are never faults, wherever they act.

    Windows count steps from t, the step of the fault; steps that were asked before its call came back do not count, nor do
    they answer it (calls that ran concurrently).

    Detection, at t' in [t, t + detect_within]:

    - `error`: the call gave the agent a recorded error, at t itself. It informs the agent; whether the agent noticed shows in
      what it does, so ordinary acts mitigate after it only if their words say so (see below).
    - `detect`: a `mat.detect`.
    - `verify`: a verification that failed.
    - `retry`: after an error, the same request at the same port once more. Asking again does not detect a wrong reply.

    Mitigation, at t'' in [t', t' + mitigate_within]:

    - `mitigate`: a `mat.mitigate` of any kind.
    - `retry`: the same request at the same port, `backoff_ms` of run time after the fault was known, or later.
    - `alternate`: a call of another port of that kind that serves the same purpose. `alternates` names them by port; in
      addition, two names that differ only in words such as backup, fallback, mirror, primary or v2 match: search and
      search_backup.
    - `replan`: the agent asks its model again (ordinary).
    - `clarify`: a message to "user" (ordinary).
    - `escalate`: a request for approval, or a delegation (both ordinary). If `escalates_to` names recipients, delegations and
      messages to them are escalations whatever they say, and delegations to others are not.
    - `abort`: the run ends as safely aborted.

    An ordinary act may be business as usual. It counts after `detect`, `verify` or `retry`; after nothing but the `error` it
    counts if its words ask something or mention trouble (English, and the texts `trouble`); a replan never does.

    The same request: one without arguments, or with one equal argument (or field of one), or one word shared by two texts; of
    a model, any request. Blocked actions are neither detection nor mitigation.

    `detections` and `mitigations` add rules by name, functions of (record, fault): `{"alarm": lambda record, fault:
    record.action.name == "alarm"}`. They count like a `mat.detect` or `mat.mitigate`.

    `detect_within` and `mitigate_within` are integers from 0. Raises `mat.MatError` for a negative window and for an
    unknown boundary or rule, all at once.

    >>> from mat_contracts import DetectionRules, containment
    >>> rules = DetectionRules(detect_within=3, alternates={"track": ["carrier"]})
    >>> rules.detect_within, rules.mitigate_within, containment(rules=rules).id
    (3, 5, 'containment.faults')

    Source: Eq. 10, A4.2.
    """

    detect_within: int = DETECT_WITHIN
    mitigate_within: int = MITIGATE_WITHIN
    boundaries: Collection[str] = BOUNDARIES
    errors: Collection[str] = ERROR_KINDS
    alternates: Mapping[str, Collection[str]] = EMPTY
    escalates_to: Collection[str] = ()
    backoff_ms: int = 0
    trouble: Collection[str] = ()
    detections: Mapping[str, Predicate] = field(default=EMPTY)
    mitigations: Mapping[str, Predicate] = field(default=EMPTY)
    without: Collection[str] = ()

    def __post_init__(self) -> None:
        problems = [*_count_problems(self), *_name_problems(self), *_predicate_problems(self)]
        if problems:
            raise SpecError(
                what=f"these rules cannot be applied: {'; '.join(problems)}",
                fix="correct the arguments of mat.monitor.faults.DetectionRules",
                where="Rules",
            )
        for name in ("boundaries", "errors", "escalates_to", "trouble", "without"):
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))
        alternates = {port: frozenset(others) for port, others in self.alternates.items()}
        object.__setattr__(self, "alternates", FrozenDict(alternates))
        for name in ("detections", "mitigations"):
            object.__setattr__(self, name, FrozenDict(getattr(self, name)))


def _count_problems(rules: DetectionRules) -> Iterable[str]:
    for name, least, unit in (
        ("detect_within", 1, "steps"),
        ("mitigate_within", 0, "steps"),
        ("backoff_ms", 0, "milliseconds"),
    ):
        given = getattr(rules, name)
        if not isinstance(given, int) or isinstance(given, bool) or given < least:
            yield f"{name}={given!r} is not a number of {unit} >= {least}"


def _name_problems(rules: DetectionRules) -> Iterable[str]:
    for name in ("boundaries", "errors", "escalates_to", "trouble", "without"):
        given = getattr(rules, name)
        if isinstance(given, str) or not all(isinstance(item, str) and item for item in given):
            yield f"{name}={given!r} are not names"
            return
    for wrong in sorted(set(rules.boundaries) - set(get_args(Boundary))):
        yield f"unknown boundary: {wrong!r}{did_you_mean(wrong, get_args(Boundary))}"
    known = (*DETECTIONS, *MITIGATIONS)
    for wrong in sorted(set(rules.without) - set(known)):
        yield f"unknown rule: {wrong!r}{did_you_mean(wrong, known)}"
    for port, others in rules.alternates.items():
        if isinstance(others, str) or not others or not all(isinstance(other, str) and other for other in others):
            yield f"alternates[{port!r}]={others!r} names no ports"


def _predicate_problems(rules: DetectionRules) -> Iterable[str]:
    for name, known in (("detections", DETECTIONS), ("mitigations", MITIGATIONS)):
        given = getattr(rules, name)
        if not isinstance(given, Mapping):
            yield f"{name}={given!r} is not a mapping from names to predicates"
            continue
        for rule, test in given.items():
            if rule in known:
                yield f"{name}: {rule!r} is the name of a built-in rule (leave that out with without=, or rename yours)"
            if not isinstance(rule, str) or not rule or not callable(test):
                yield f"{name}[{rule!r}] is not a predicate (record, fault) -> bool"


RULES: Final = DetectionRules()


# -- faults -----------------------------------------------------------------------------------------------------------


def fault_of(record: Record, rules: DetectionRules = RULES) -> Fault | None:
    """The fault that entered with this record, injected or observed."""
    error = record.observation.error
    if error is None and not record.faults:
        return None
    action = record.action
    operators = tuple(
        dict.fromkeys(
            note.operator for note in record.faults if note.changed and _boundary(note.operator, record) in rules.boundaries
        )
    )
    observed = (
        error is not None
        and error.kind in rules.errors
        and (not action.boundary or action.boundary in rules.boundaries)
    )  # fmt: skip
    if not operators and not observed:
        return None
    return Fault(
        step=record.step, site=record.site, agent=record.agent, boundary=action.boundary, kind=action.kind, name=action.name,
        operators=operators, error="" if error is None else error.kind or error.type, sealed_seq=record.sealed_seq,
        sealed_ms=record.sealed_ms, request=_request(action.arguments),
    )  # fmt: skip


def _boundary(operator: str, record: Record) -> str:
    family = operator.partition(".")[0]
    return family if family in _BESIDES else record.action.boundary


def _request(arguments: Mapping[str, Any]) -> frozenset[str]:
    """What identifies a request: its arguments, the fields of mappings and the words of texts among them.

    Bounded, because it stays in the states of monitors.
    """
    return frozenset(itertools.islice(_request_parts(arguments, "", 3), _REQUEST_MARKS))


def _request_parts(fields: Mapping[str, Any], path: str, depth: int) -> Iterator[str]:
    for name, value in fields.items():
        if name in _ENVELOPE:
            continue
        if isinstance(value, dict) and value and depth:
            yield from _request_parts(value, f"{path}{name}.", depth - 1)
        elif isinstance(value, str) and " " in value:
            yield from (f"{path}{name}~{word}" for word in value[:4096].casefold().split()[:_REQUEST_MARKS])
        else:
            text = canonical(value)
            yield f"{path}{name}={text if len(text) <= 64 else digest(value)[:24]}"


# -- detection and mitigation -----------------------------------------------------------------------------------------


def known_to(record: Record, fault: Fault) -> bool:
    """Whether the agent that asked for this record could know of the fault: the faulty call was sealed before."""
    return record.asked_seq > fault.sealed_seq


def is_retry(record: Record, fault: Fault) -> bool:
    """Whether a record is the same request at the same port, after the fault was known."""
    action = record.action
    if action.name != fault.name or action.kind != fault.kind or record.blocked or not known_to(record, fault):
        return False
    if action.kind == "model_call":  # a prompt grows from call to call
        return True
    request = _request(action.arguments)
    return not request or not fault.request or not request.isdisjoint(fault.request)


def is_alternate(record: Record, fault: Fault, rules: DetectionRules = RULES) -> bool:
    """Whether a record is a call of another port with the same kind and purpose, after the fault was known."""
    action = record.action
    if action.kind != fault.kind or action.name == fault.name or record.blocked or not known_to(record, fault):
        return False
    named: Collection[str] = rules.alternates.get(fault.name, ())
    if action.name in named or fault.name in rules.alternates.get(action.name, ()):
        return True
    purpose = _purpose(fault.name)
    return bool(purpose) and purpose == _purpose(action.name)


def _purpose(name: str) -> tuple[str, ...]:
    """The words of a port's name, without words that mark an alternative, such as "backup"."""
    words = (word.casefold() for word in _WORD.findall(name)) if name.isascii() else ()
    return tuple(word for word in words if word not in _SPARES and not (word[0] == "v" and word[1:].isdigit()))


def detection(record: Record, fault: Fault, rules: DetectionRules = RULES) -> str:
    """The rule by which a later record detects a fault, or ""."""
    if not known_to(record, fault):
        return ""
    kind = record.action.kind
    if kind == "detection":
        return _enabled("detect", rules)
    if kind == "verification" and record.action.arguments.get("passed") is False:
        return _enabled("verify", rules)
    if fault.error and "retry" not in rules.without and is_retry(record, fault):
        return "retry"
    return _custom_rule(rules.detections, record, fault)


def mitigation(record: Record, fault: Fault, rules: DetectionRules = RULES, *, noticed: bool) -> str:
    """The rule by which a later record mitigates a fault, or "". `noticed`: more than the error itself detected it."""
    if not known_to(record, fault):
        return ""
    found = "" if record.blocked else _act_rule(record, fault, rules, noticed)
    return (_enabled(found, rules) if found else "") or _custom_rule(rules.mitigations, record, fault)


def _act_rule(record: Record, fault: Fault, rules: DetectionRules, noticed: bool) -> str:
    action = record.action
    if action.kind == "mitigation":
        return "mitigate"
    if is_retry(record, fault):
        return "retry" if record.at_ms - fault.sealed_ms >= rules.backoff_ms else ""
    if is_alternate(record, fault, rules):
        return "alternate"
    if action.kind == "termination":
        return "abort" if action.name == "aborted" else ""
    if action.kind in ("delegation", "message") and action.boundary != "prompt" and action.name in rules.escalates_to:
        return "escalate"
    if action.kind == "model_call":
        return "replan" if noticed and record.agent == fault.agent else ""
    ordinary = _ordinary_rule(record, rules)
    return ordinary if ordinary and (noticed or _mentions_trouble(record, rules)) else ""


def _ordinary_rule(record: Record, rules: DetectionRules) -> str:
    """The mitigation rule of an act that may also be unrelated to the fault, or ""."""
    action = record.action
    if action.kind == "message":  # a message from the user is at the prompt boundary
        return "clarify" if action.name == "user" and action.boundary != "prompt" else ""
    if action.kind == "delegation":
        return "" if rules.escalates_to else "escalate"
    return "escalate" if action.kind == "approval" else ""


def _mentions_trouble(record: Record, rules: DetectionRules) -> bool:
    """Whether the texts of a record ask a question or mention trouble."""
    action = record.action
    texts = [value for name, value in action.arguments.items() if isinstance(value, str) and name not in _ENVELOPE]
    if action.kind == "approval":
        texts.append(action.name)
    if any(_TROUBLE.search(text) for text in texts):
        return True
    return any(word.casefold() in text.casefold() for word in rules.trouble for text in texts)


def _enabled(rule: str, rules: DetectionRules) -> str:
    return "" if rule in rules.without else rule


def _custom_rule(given: Mapping[str, Predicate], record: Record, fault: Fault) -> str:
    return next((name for name, test in given.items() if test(record, fault)), "")


# -- the windows ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Watch:
    """The detection and mitigation of one fault so far. Steps are -1 without one; `by` and `mitigated_by` name the rules.

    `since` is the step from which the windows count: the fault's own, or the last one that was asked before the fault was
    known, if calls ran concurrently. `detected` is the latest detection in the window, from which mitigation counts;
    `noticed`: it is more than the error itself. `first` and `first_by` are the first detection.
    """

    fault: Fault
    since: int
    detected: int = -1
    by: str = ""
    first: int = -1
    first_by: str = ""
    mitigated: int = -1
    mitigated_by: str = ""

    @property
    def noticed(self) -> bool:
        return self.by not in ("", "error")

    def deadline(self, rules: DetectionRules = RULES) -> int:
        """The last step that can still detect the fault, or mitigate it after the latest detection."""
        last = self.since + rules.detect_within
        return last if self.detected < 0 else max(last, self.detected + rules.mitigate_within)


def begin(fault: Fault, rules: DetectionRules = RULES) -> Watch:
    """The watch of a fault that has just entered; an error that the agent got detects it at once."""
    if not fault.error or "error" in rules.without:
        return Watch(fault, fault.step)
    return Watch(fault, fault.step, detected=fault.step, by="error", first=fault.step, first_by="error")


def advance(watch: Watch, record: Record, rules: DetectionRules = RULES) -> Watch:
    """The watch after one more record, of a step after the fault. A mitigated fault does not change any more.

    A detection and a mitigation may be one step: a retry is both.
    """
    fault, step = watch.fault, record.step
    if watch.mitigated >= 0:
        return watch
    if not known_to(record, fault):
        return replace(watch, since=step, detected=step, first=step) if watch.by else replace(watch, since=step)
    if step - watch.since <= rules.detect_within:
        rule = detection(record, fault, rules)
        if rule:
            first = (watch.first, watch.first_by) if watch.first >= 0 else (step, rule)
            watch = replace(watch, detected=step, by=rule, first=first[0], first_by=first[1])
    if watch.detected >= 0 and step - watch.detected <= rules.mitigate_within:
        rule = mitigation(record, fault, rules, noticed=watch.noticed)
        if rule:
            watch = replace(watch, mitigated=step, mitigated_by=rule)
    return watch


def watched(records: Iterable[Record], rules: DetectionRules = RULES) -> tuple[Watch, ...]:
    """The final watch of each fault of a finished trace, by step; the fold of the contract. Each episode starts anew."""
    found: list[Watch] = []
    for _, episode in itertools.groupby(records, key=lambda record: record.state.get(EPISODE)):
        still_open: list[Watch] = []
        for record in episode:
            after = [advance(watch, record, rules) for watch in still_open]
            ended = [watch for watch in after if watch.mitigated >= 0 or record.step >= watch.deadline(rules)]
            found += ended
            still_open = [watch for watch in after if watch not in ended] if ended else after
            fault = fault_of(record, rules)
            if fault is not None:
                still_open.append(begin(fault, rules))
        found += still_open
    return tuple(sorted(found, key=lambda watch: watch.fault.step))


def rules_of(contracts: Iterable[Contract]) -> DetectionRules:
    """The rules that the armed contracts apply: of the first that judges containment, else of the first that states
    some; the default ones otherwise."""
    steps = [contract.step for contract in contracts if isinstance(getattr(contract.step, "rules", None), DetectionRules)]
    for step in sorted(steps, key=lambda step: not getattr(step, "contains", False)):
        given: DetectionRules = step.rules  # type: ignore[attr-defined]
        return given
    return RULES

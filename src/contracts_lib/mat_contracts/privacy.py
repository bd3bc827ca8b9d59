"""Privacy and consent: no personal data where it does not belong, no message to those who opted out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from mat.core.errors import SpecError
from mat.core.record import ActionKind, Record
from mat.core.redact import find_pii
from mat.core.verdict import Severity
from mat.monitor.contract import Contract, ContractPolicy, Violated, kinds_of
from mat_contracts._shared import folded, label, let_through, names_of

_TOOL_CALLS: Final[frozenset[ActionKind]] = frozenset(("tool_call",))
PII_KINDS: Final = ("email", "phone", "iban", "card", "ssn")
"""What mat.core.redact.find_pii knows."""


def no_pii(
    *,
    allow: Iterable[str] = (),
    kinds: Iterable[str] | None = None,
    on: ActionKind | Iterable[ActionKind] = ("message", "final_response"),
    tools: Iterable[str] = (),
    ignore: Iterable[str] = (),
    id: str = "",
    severity: Severity = "hard",
    weight: float = -1.0,
    policy: ContractPolicy = "observe",
    repair: str = "",
) -> Contract:
    """No text among the arguments of a message, a final response or a call of one of `tools` holds personal data.

    `kinds` limits what is looked for (PII_KINDS), `on` names the action kinds, `allow` exact values that may appear (case
    does not count), `ignore` arguments that are not read, such as a recipient. Messages that come in from outside are
    not read. A hashed or redacted argument counts by the kinds noted on it, which `allow` cannot excuse. The message of a
    violation never repeats what it found.

    >>> from mat_contracts.traces import broken, record, trace
    >>> broken(no_pii(), trace(record("message", "user", {"text": "We wrote to you."})))
    ()
    >>> broken(no_pii(), trace(record("message", "user", {"text": "We wrote to ann@example.com."})))
    (0,)
    """
    wanted = frozenset(PII_KINDS if kinds is None else names_of(kinds, "kinds"))
    unknown = sorted(wanted - set(PII_KINDS))
    if unknown:
        raise SpecError(what=f"no personal data is called {', '.join(unknown)}", fix=f"use some of {', '.join(PII_KINDS)}")
    excused = frozenset(folded(text) for text in _listed(allow, "allow"))
    watched = kinds_of(on) or frozenset()
    called = frozenset(_listed(tools, "tools"))
    unread = frozenset(_listed(ignore, "ignore"))

    def step(state: None, record: Record) -> Violated | None:
        action = record.action
        called_tool = action.kind == "tool_call" and action.name in called
        if action.boundary == "prompt" or not (called_tool or action.kind in watched):
            return state
        problems = []
        for name, value in let_through(record).items():
            if name not in unread:
                found = Counter(kind for kind, text in _pii(value) if kind in wanted and folded(text) not in excused)
                problems += [f"{count} {kind} in {name}" for kind, count in sorted(found.items())]
        if not problems:
            return state
        return Violated(f"{action.kind} {action.name!r} holds personal data: {', '.join(problems)}", witness=(record.step,))

    return Contract(
        id=id or "privacy.no_pii", step=step, kinds=watched | (_TOOL_CALLS if called else frozenset()),
        severity=severity, weight=weight, policy=policy,
        repair=repair or "leave personal data out, or refer to it by an id",
        text=f"no {', '.join(sorted(wanted))} leaves in {', '.join(sorted(watched | called))}",
    )  # fmt: skip


def _listed(given: Iterable[str], what: str) -> list[str]:
    if isinstance(given, str):
        raise SpecError(
            what=f"{what}={given!r} is one text", why="its letters would be taken one by one", fix=f"write [{given!r}]"
        )
    return list(given)


def _pii(value: Any) -> list[tuple[str, str]]:
    """(kind, text) of all personal data inside a value; the text is empty where only its kind was kept."""
    if isinstance(value, str):
        return list(find_pii(value))
    if isinstance(value, dict):
        if "pii" in value and ("sha256" in value or "redacted" in value):
            return [(kind, "") for kind in value["pii"]]
        return [found for key, item in value.items() for part in (key, item) for found in _pii(part)]
    if isinstance(value, list):
        return [found for item in value for found in _pii(item)]
    return []


_CONSULTS: Final[frozenset[ActionKind]] = frozenset(("tool_call", "verification", "retrieval", "memory_read"))


def consent(
    *,
    send: str | Iterable[str],
    recipient: str = "to",
    opted_out: Callable[[], Iterable[str]] | Iterable[str] | None = None,
    check: str | None = None,
    id: str = "",
    severity: Severity = "hard",
    weight: float = -1.0,
    policy: ContractPolicy = "observe",
    repair: str = "",
) -> Contract:
    """No call of `send` names a recipient on the opt-out list; with `check`, the list is consulted before the first call.

    The argument `recipient` is a text or a list of texts; case and outer spaces do not count. `opted_out` is best a plain
    collection: a function is called at every send and must give the same answer whenever the trace is judged again. `check`
    names a tool, retriever, memory or verification; a consult counts from its step on, unless it failed or was blocked.

    >>> from mat_contracts.traces import broken, record, trace
    >>> mail = record("tool_call", "mail", {"to": "ann@example.com"}, effect="write")
    >>> broken(consent(send="mail", opted_out=["bob@example.com"]), trace(mail))
    ()
    >>> broken(consent(send="mail", opted_out=["Ann@example.com"]), trace(mail))
    (0,)
    """
    if opted_out is None and check is None:
        raise SpecError(what="consent has nothing to judge by", fix="give opted_out=, check= or both")
    if isinstance(opted_out, str):
        raise SpecError(what=f"opted_out={opted_out!r} is one text", fix=f"write [{opted_out!r}]")
    sends = names_of(send, "send")
    listed = opted_out if callable(opted_out) else _entries(opted_out or ())

    def step(consulted: bool, record: Record) -> bool | Violated:
        action = record.action
        if action.kind in _CONSULTS and action.name == check:
            consulted = consulted or _answered(record)
        if action.kind != "tool_call" or action.name not in sends:
            return consulted
        refused = _entries(listed()) if callable(listed) else listed
        problems = []
        if not refused.isdisjoint(_recipients(record, recipient)):
            problems.append(f"{action.name} goes to a recipient who opted out")
        if check is not None and not consulted:
            problems.append(f"{action.name} was called before {check!r} was consulted")
        return Violated("; ".join(problems), state=consulted, witness=(record.step,)) if problems else consulted

    return Contract(
        id=id or f"{label(sends)}.consent", step=step, start=False,
        kinds=_TOOL_CALLS if check is None else _CONSULTS, severity=severity, weight=weight, policy=policy,
        repair=repair or f"look the recipient up in the opt-out list before {label(sends)}, and drop those who are on it",
        text=f"{label(sends)} never goes to a recipient who opted out",
    )  # fmt: skip


def _entries(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(folded(text) for text in texts)


def _answered(record: Record) -> bool:
    return not record.blocked and record.observation.error is None and not record.observation.cancelled


def _recipients(record: Record, name: str) -> list[str]:
    """To whom a send goes. What cannot be read makes the contract unknown rather than silently passed."""
    given = let_through(record).get(name)
    found = given if isinstance(given, list) else [given]
    texts = [item for item in found if isinstance(item, str)]
    if len(texts) < len(found):
        raise SpecError(
            what=f"{record.action.name} has no recipient to read in {name!r}",
            why="it is missing, hashed or redacted, or no text",
            fix=f"give recipient= the name of the argument, and record it in the clear: @mat.tool(record={{{name!r}: 'keep'}})",
        )
    return [folded(item) for item in texts]

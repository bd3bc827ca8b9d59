"""The default selection of contracts by action kind, and one line that arms it.

| action kind | checked by default | checked if its argument is given |
|---|---|---|
| tool_call | containment | least_privilege, verify_before_act, approved_before, no_duplicate_effect, consent, |
| | | untrusted_data_never_decides |
| memory_write | memory_writes_sanitized, containment | |
| message | no_pii, containment | |
| final_response | no_pii, success_claims_match_effects | |
| claim | claims_supported | |
| termination | terminates | |
| retrieval, memory_read, model_call, delegation | containment | |
| approval, verification, detection, mitigation | nothing: they are evidence that other checks read | |

A row lists the contracts that an action of that kind can violate. A contract may read other kinds as evidence: claims_supported
reads the results that claims rest on. The facts of a final response are judged as recorded claims, and what it says was done is
compared with the ledger of effects.

Source: A1.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mat.core.errors import SpecError
from mat.core.record import ActionKind
from mat.monitor.contract import Contract
from mat_contracts.approval import approved_before
from mat_contracts.claims import claims_supported
from mat_contracts.containment import containment
from mat_contracts.effects import success_claims_match_effects
from mat_contracts.idempotency import no_duplicate_effect
from mat_contracts.injection import untrusted_data_never_decides
from mat_contracts.privacy import consent, memory_writes_sanitized, no_pii
from mat_contracts.privilege import ToolRights, least_privilege
from mat_contracts.progress import terminates
from mat_contracts.verify import verify_before_act


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSelection:
    """The templates that check actions of one kind. `given` pairs each template that needs an argument with its name."""

    kind: ActionKind
    checks: tuple[str, ...] = ()
    given: tuple[tuple[str, str], ...] = ()
    why: str = ""


SELECTION: Final[tuple[TemplateSelection, ...]] = (
    TemplateSelection(
        kind="tool_call", checks=("containment",), why="policy: who may do what, after which check, and how often",
        given=(
            ("least_privilege", "capabilities"), ("verify_before_act", "verified"), ("approved_before", "approved"),
            ("no_duplicate_effect", "once"), ("consent", "sends"), ("untrusted_data_never_decides", "data_parameters"),
        ),
    ),
    TemplateSelection(
        kind="memory_write", checks=("memory_writes_sanitized", "containment"), why="what is written is read as fact later"
    ),
    TemplateSelection(kind="message", checks=("no_pii", "containment"), why="it leaves the agent"),
    TemplateSelection(
        kind="final_response", checks=("no_pii", "success_claims_match_effects"), why="it leaves the system, and is believed"
    ),
    TemplateSelection(kind="claim", checks=("claims_supported",), why="factuality"),
    TemplateSelection(kind="termination", checks=("terminates",), why="Term(tau), A1.7"),
    TemplateSelection(kind="retrieval", checks=("containment",), why="faults enter here"),
    TemplateSelection(kind="memory_read", checks=("containment",), why="faults enter here"),
    TemplateSelection(kind="model_call", checks=("containment",), why="faults enter here"),
    TemplateSelection(kind="delegation", checks=("containment",), why="faults enter here"),
    TemplateSelection(kind="handback", why="marks the end of a delegated task"),
    TemplateSelection(kind="grant", why="evidence for least privilege"),
    TemplateSelection(kind="contract", why="ledger entries; judged by the templates of resources"),
    TemplateSelection(kind="artefact", why="what was issued; judged by the templates of observations"),
    TemplateSelection(kind="approval", why="evidence for other checks"),
    TemplateSelection(kind="verification", why="evidence for other checks"),
    TemplateSelection(kind="detection", why="evidence for containment"),
    TemplateSelection(kind="mitigation", why="evidence for containment"),
)  # fmt: skip
"""The table above, as data."""
_WITHOUT_ARGUMENT: Final[Mapping[str, Callable[..., Contract]]] = {
    "claims_supported": claims_supported, "containment": containment, "memory_writes_sanitized": memory_writes_sanitized,
    "no_pii": no_pii, "success_claims_match_effects": success_claims_match_effects, "terminates": terminates,
}  # fmt: skip


def selected(kind: ActionKind) -> tuple[str, ...]:
    """The names of all templates that the table selects for an action kind."""
    return tuple(name for row in SELECTION if row.kind == kind for name in (*row.checks, *(name for name, _ in row.given)))


def default_contracts(
    *,
    capabilities: Mapping[str, ToolRights] | None = None,
    verified: str | Iterable[str] = (),
    approved: str | Iterable[str] = (),
    once: str | Iterable[str] = (),
    sends: str | Iterable[str] = (),
    opted_out: Iterable[str] | None = None,
    data_parameters: Mapping[str, Iterable[str]] | None = None,
    without: Iterable[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[Contract, ...]:
    """The contracts of the table in one line, for a fixture: `return list(default_contracts(once="refund"))`.

    Without arguments, these are the contracts that need none. Each argument adds one: `capabilities` (agent -> its tools,
    as `least_privilege` takes them) adds least_privilege, `verified` (tools) verify_before_act, `approved` (tools)
    approved_before, `once` (tools) no_duplicate_effect for each tool, `sends` (tools) with `opted_out` consent, and
    `data_parameters` (tool -> parameters that may carry untrusted text) untrusted_data_never_decides. `without` leaves out
    templates by name. `options` gives further arguments by template name, such as {"containment": {"detect_within": 3}}.

    Returns a tuple of `mat.Contract`s. Raises `mat.MatError` for `sends` without `opted_out`, for an unknown name in
    `without` or `options`, and for arguments that a template refuses.

    >>> from mat_contracts.traces import broken, record, trace
    >>> leak = trace(record("message", "user", {"text": "Ann is ann@example.com"}))
    >>> [contract.id for contract in default_contracts() if broken(contract, leak)]
    ['privacy.no_pii']

    Source: A1.4.
    """
    if sends and opted_out is None:
        raise SpecError(
            what="sends= is given without opted_out=",
            why="consent needs the list of those who opted out",
            fix="give opted_out=, or opted_out=[] if nobody has",
        )
    made: dict[str, list[tuple[Callable[..., Contract], tuple[Any, ...], dict[str, Any]]]] = {
        name: [(make, (), {})] for name, make in _WITHOUT_ARGUMENT.items()
    }
    if capabilities is not None:
        made["least_privilege"] = [(least_privilege, (capabilities,), {})]
    if verified:
        made["verify_before_act"] = [(verify_before_act, (tool,), {}) for tool in _names(verified)]
    if approved:
        made["approved_before"] = [(approved_before, (), {"tools": _names(approved)})]
    if data_parameters is not None:
        made["untrusted_data_never_decides"] = [(untrusted_data_never_decides, (), {"data_parameters": data_parameters})]
    if once:
        made["no_duplicate_effect"] = [(no_duplicate_effect, (tool,), {}) for tool in _names(once)]
    if sends:
        made["consent"] = [(consent, (), {"send": _names(sends), "opted_out": list(opted_out or ())})]
    left_out, further = {without} if isinstance(without, str) else set(without), options or {}
    unknown = sorted((left_out - set(TEMPLATES)) | (set(further) - set(made)))
    if unknown:
        raise SpecError(
            what=f"these defaults have no contract named {', '.join(unknown)}", fix=f"choose from {', '.join(sorted(made))}"
        )
    return tuple(
        make(*positional, **{**named, **further.get(name, {})})
        for name in sorted(made)
        if name not in left_out
        for make, positional, named in made[name]
    )


TEMPLATES: Final = tuple(sorted({name for row in SELECTION for name in (*row.checks, *(name for name, _ in row.given))}))
"""All templates in the table."""


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)

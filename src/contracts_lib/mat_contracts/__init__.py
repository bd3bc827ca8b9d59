"""Contract templates: properties of agent runs, instantiated with a system's own tools, lists and windows.

Families by failure class: F1 coordination collapse (progress, coordination, retry), F2 unsupported claims
(claims, effects; verifiers in `support`), F3 role drift (role), F4 injection and excessive agency (injection, unsafe), F5
misuse (misuse). Further families: privilege, approval, idempotency, verify, order (happens-before), containment, privacy,
`resource` (what agents consume) and `conversation` (messages and turns). `defaults` selects contracts by action kind.

Every template takes the options `id`, `severity`, `weight`, `policy` and `repair` (see `mat.step_contract`), and raises
`mat.MatError` for arguments of a wrong type and for conditions that no trace could meet.

Source: Sec. IV-B, Sec. III-C.
"""

from mat.monitor.faults import DetectionRules
from mat_contracts.approval import approved_before
from mat_contracts.catalogue import Template, entered
from mat_contracts.claims import claims_supported
from mat_contracts.containment import containment
from mat_contracts.conversation import (
    messages_well_formed,
    one_entry_per_attempt,
    tool_calls_well_formed,
    truncation_noticed,
    turns_bounded,
)
from mat_contracts.coordination import (
    memory_collision,
    no_approval_deadlock,
    no_circular_delegation,
    no_oscillation,
    replanning_without_execution,
)
from mat_contracts.defaults import default_contracts
from mat_contracts.effects import success_claims_match_effects
from mat_contracts.idempotency import no_duplicate_effect
from mat_contracts.injection import interface_unchanged, no_exfiltration, untrusted_data_never_decides
from mat_contracts.misuse import misuse_outcome, misuse_refused
from mat_contracts.order import followed_by, in_order, never_concurrent, precedes
from mat_contracts.privacy import consent, memory_writes_sanitized, no_pii, redacted
from mat_contracts.privilege import delegated_authority, least_privilege
from mat_contracts.progress import collapse, progress, terminates
from mat_contracts.recovery import recovers
from mat_contracts.resource import (
    conserved,
    deadline_met,
    delegation_within_parent,
    exactly_one_terminal_state,
    no_spend_after_terminal,
    reserve_kept,
    utilisation_monotone,
    within_budget,
)
from mat_contracts.retry import backoff_respected, no_retry_storm, retries_bounded
from mat_contracts.role import Role, cites_sources, drift_below, no_external_side_effects, only_proposes_external_calls, role
from mat_contracts.shield import unsafe_never_allowed
from mat_contracts.unsafe import declared_unsafe
from mat_contracts.verify import verify_before_act

__all__ = [
    "DetectionRules",
    "Role",
    "Template",
    "approved_before",
    "backoff_respected",
    "cites_sources",
    "claims_supported",
    "collapse",
    "consent",
    "conserved",
    "containment",
    "deadline_met",
    "declared_unsafe",
    "default_contracts",
    "delegated_authority",
    "delegation_within_parent",
    "drift_below",
    "exactly_one_terminal_state",
    "followed_by",
    "in_order",
    "interface_unchanged",
    "least_privilege",
    "memory_collision",
    "memory_writes_sanitized",
    "messages_well_formed",
    "misuse_outcome",
    "misuse_refused",
    "never_concurrent",
    "no_approval_deadlock",
    "no_circular_delegation",
    "no_duplicate_effect",
    "no_exfiltration",
    "no_external_side_effects",
    "no_oscillation",
    "no_pii",
    "no_retry_storm",
    "no_spend_after_terminal",
    "one_entry_per_attempt",
    "only_proposes_external_calls",
    "precedes",
    "progress",
    "recovers",
    "redacted",
    "replanning_without_execution",
    "reserve_kept",
    "retries_bounded",
    "role",
    "success_claims_match_effects",
    "templates",
    "terminates",
    "tool_calls_well_formed",
    "truncation_noticed",
    "turns_bounded",
    "unsafe_never_allowed",
    "untrusted_data_never_decides",
    "utilisation_monotone",
    "verify_before_act",
    "within_budget",
]  # fmt: skip


def templates() -> tuple[Template, ...]:
    """All templates, sorted by family: each with its name, docstring, function and two smallest traces.

    Returns a tuple of `Template`s.

    >>> import mat_contracts
    >>> [item.name for item in mat_contracts.templates() if item.family == "role"]
    ['cites_sources', 'drift_below', 'no_external_side_effects', 'only_proposes_external_calls', 'role']

    Source: A1.9.
    """
    from mat_contracts import observation  # noqa: F401  # importing it lists its templates; few callers need them

    return entered()

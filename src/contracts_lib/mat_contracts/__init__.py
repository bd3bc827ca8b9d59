"""Contract templates: properties of agent runs, instantiated with a system's own tools, lists and windows (Sec. IV-B)."""

from mat_contracts.claims import claims_supported
from mat_contracts.containment import containment
from mat_contracts.idempotency import no_duplicate_effect
from mat_contracts.privacy import consent, no_pii
from mat_contracts.privilege import least_privilege
from mat_contracts.progress import collapse, progress, terminates
from mat_contracts.verify import verify_before_act

__all__ = [
    "claims_supported", "collapse", "consent", "containment", "least_privilege", "no_duplicate_effect", "no_pii", "progress",
    "terminates", "verify_before_act",
]  # fmt: skip

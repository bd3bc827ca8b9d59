"""Observation contracts: an agent uses what a tool returned while it is valid, and byte for byte as returned.

Each violation has a failure label of `LABELS`. `primary_label` returns the label of a whole run.

>>> from mat_contracts.observation import DAMAGE, FAILURES, INTEGRITY, LABELS, OTHER, SEVERITY, SUCCESS, VALIDITY
>>> DAMAGE["reordered"] in INTEGRITY, len(VALIDITY), len(FAILURES), set(LABELS) == set(SEVERITY) == {*FAILURES, SUCCESS, OTHER}
(True, 4, 13, True)

Source: seed 003.
"""

from mat_contracts.observation.artifacts import (
    DAMAGE,
    bytes_preserved,
    compliant,
    no_stale_write,
    present,
    used_while_valid,
    version_fresh,
)
from mat_contracts.observation.calls import Exchange, exchange
from mat_contracts.observation.conduct import (
    backoff_respected,
    compensated,
    digest_correct,
    expected,
    idempotency_key_kept,
    no_shortcut,
    not_during_maintenance,
    not_rate_limited,
    required,
    signature_verifies,
    stated_wait_ms,
    within_rate,
)
from mat_contracts.observation.labels import (
    FAILURES,
    INTEGRITY,
    LABELS,
    OTHER,
    SEVERITY,
    SUCCESS,
    VALIDITY,
    axis,
    most_severe,
    primary_label,
)

__all__ = [
    "DAMAGE", "FAILURES", "INTEGRITY", "LABELS", "OTHER", "SEVERITY", "SUCCESS", "VALIDITY", "Exchange", "axis",
    "backoff_respected", "bytes_preserved", "compensated", "compliant", "digest_correct", "exchange", "expected",
    "idempotency_key_kept", "most_severe", "no_shortcut", "no_stale_write", "not_during_maintenance", "not_rate_limited",
    "present", "primary_label", "required", "signature_verifies", "stated_wait_ms", "used_while_valid", "version_fresh",
    "within_rate",
]  # fmt: skip

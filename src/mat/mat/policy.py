"""Governance: who may do what, and what happens to an action before it is done.

`docs/governance.md` is the guide.
"""

from mat.boundary.emit import approval_async, grant_async
from mat.govern.capability import Capability, capability
from mat.govern.mediator import Allow, Block, ConvertToApproval, Governance, NeedsApproval, Rewrite, Sandbox
from mat.govern.rewrites import shield
from mat.govern.trust import Level, Trust
from mat.govern.variant import Variant
from mat.harness.hijack import hijacked, hijacked_async

__all__ = [
    "Allow", "Block", "Capability", "ConvertToApproval", "Governance", "Level", "NeedsApproval", "Rewrite", "Sandbox",
    "Trust", "Variant", "approval_async", "capability", "grant_async", "hijacked", "hijacked_async", "shield",
]  # fmt: skip

"""Message-Action Traces: assurance testing for systems built from LLM agents. See README.md; names here are public."""

from mat.boundary.catalog import Operator, operator
from mat.boundary.emit import (
    agent,
    approval,
    approval_async,
    claim,
    delegate,
    detect,
    finish,
    grant,
    grant_async,
    message,
    mitigate,
    observed,
    secret,
    state,
    untrusted,
    verify,
)
from mat.boundary.handles import Handles, UnknownHandle, handles
from mat.boundary.instrument import Memory, Passage, handoff, memory, model, retriever, tool
from mat.boundary.integrity import Integrity, ObservationContract, etag, hmac, jwt, sha256
from mat.boundary.issue import consume, issue
from mat.core.adversary import Adaptive, Seen
from mat.core.errors import Blocked, MatError, RateLimited, ReplayDivergence
from mat.core.record import Record
from mat.core.run import Run
from mat.core.site import Site
from mat.core.spec import Perturbation, RunSpec, Schedule, perturbation, schedule
from mat.core.verdict import Verdict, Violation
from mat.govern.capability import Capability, capability
from mat.govern.mediator import Allow, Block, ConvertToApproval, Governance, NeedsApproval, Rewrite, Sandbox
from mat.govern.rewrites import shield
from mat.govern.trust import Level, Trust
from mat.govern.variant import Policy, Variant
from mat.harness.digest import StateDigest
from mat.harness.execute import run
from mat.harness.hijack import hijacked, hijacked_async
from mat.harness.patching import patch
from mat.measure.workload import Workload
from mat.monitor.compile import contract
from mat.monitor.contract import Contract, Violated, step_contract, trace_contract
from mat.monitor.judge import judge
from mat.monitor.temporal import (
    action,
    always,
    at_most,
    eventually,
    field,
    for_each,
    historically,
    next,
    once,
    predicate,
    previous,
    since,
    tool_call,
    until,
    variable,
    verification,
)
from mat.resources.contract import ResourceContract
from mat.resources.ledger import BudgetSpent
from mat.resources.work import contracted

__version__ = "0.1.0"

__all__ = [
    "Adaptive", "Allow", "Block", "Blocked", "BudgetSpent", "Capability", "Contract", "ConvertToApproval", "Governance",
    "Handles", "Integrity", "Level", "MatError", "Memory", "NeedsApproval", "ObservationContract", "Operator", "Passage",
    "Perturbation", "Policy", "RateLimited", "Record", "ReplayDivergence", "ResourceContract", "Rewrite", "Run", "RunSpec",
    "Sandbox", "Schedule", "Seen", "Site", "StateDigest", "Trust", "UnknownHandle", "Variant", "Verdict", "Violated",
    "Violation", "Workload", "action", "agent", "always", "approval", "approval_async", "at_most", "capability", "claim",
    "consume", "contract", "contracted", "delegate", "detect", "etag", "eventually", "field", "finish", "for_each", "grant",
    "grant_async", "handles", "handoff", "hijacked", "hijacked_async", "historically", "hmac", "issue", "judge", "jwt",
    "memory", "message", "mitigate", "model", "next", "observed", "once", "operator", "patch", "perturbation", "predicate",
    "previous", "retriever", "run", "schedule", "secret", "sha256", "shield", "since", "state", "step_contract", "tool",
    "tool_call", "trace_contract", "until", "untrusted", "variable", "verification", "verify",
]  # fmt: skip

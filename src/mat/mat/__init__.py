"""Message-Action Traces: assurance testing for systems built from LLM agents. See README.md; names here are public.

What nearly every user writes is here. The rest is one level down: `mat.temporal` (formulas), `mat.policy` (governance),
`mat.budget` (resource contracts), `mat.artifact` (observation contracts, handles), `mat.spec` (runs, schedules, operators),
`mat.errors`.
"""

from typing import TYPE_CHECKING

from mat.core.proxied import IN_PROXY

if TYPE_CHECKING or not IN_PROXY:
    from mat import artifact, budget, errors, policy, spec, temporal  # noqa: F401  (so that `import mat` is enough for them)
    from mat.adapters.attach import attach
    from mat.boundary.calls import cross, cross_async
    from mat.boundary.emit import (
        agent,
        approval,
        claim,
        delegate,
        detect,
        finish,
        grant,
        message,
        mitigate,
        secret,
        state,
        untrusted,
        verify,
    )
    from mat.boundary.instrument import Memory, Passage, handoff, memory, model, retriever, tool
    from mat.core.errors import Blocked, MatError
    from mat.core.record import Record
    from mat.core.run import Run
    from mat.core.search import Search
    from mat.core.verdict import Verdict, Violation
    from mat.govern.variant import Policy
    from mat.harness.execute import run
    from mat.harness.patching import patch
    from mat.measure.workload import Workload
    from mat.monitor.compile import contract
    from mat.monitor.contract import Contract, Violated, step_contract, trace_contract
    from mat.monitor.judge import judge

__version__ = "0.1.0"

__all__ = [
    "Blocked", "Contract", "MatError", "Memory", "Passage", "Policy", "Record", "Run", "Search", "Verdict", "Violated",
    "Violation", "Workload", "agent", "approval", "attach", "claim", "contract", "cross", "cross_async", "delegate",
    "detect", "finish", "grant", "handoff", "judge", "memory", "message", "mitigate", "model", "patch", "retriever", "run",
    "secret", "state", "step_contract", "tool", "trace_contract", "untrusted", "verify",
]  # fmt: skip

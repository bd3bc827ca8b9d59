"""Verify before acting (Sec. IV-B): a check comes shortly before each act."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Unpack

from mat.monitor.compile import contract
from mat.monitor.contract import Contract
from mat.monitor.temporal import always, once, tool_call, verification
from mat_contracts._shared import count_of, label, names_of
from mat_contracts.catalogue import Options, template


@template
def verify_before_act(
    tool: str | Iterable[str],
    *,
    within: int = 5,
    check: str | None = None,
    **options: Unpack[Options],
) -> Contract:
    """Each call of the tool comes at most `within` steps after a passed verification.

    Sec. IV-B, A1.9. `tool` names one tool or several. With `check`, only verifications of this name count. Blocked and failed
    calls are judged, because they were attempted. A later failed check does not undo a passed one.

    >>> from mat_contracts.traces import broken, record, trace
    >>> checked = record("verification", "order belongs to the sender", {"passed": True})
    >>> refund = record("tool_call", "refund", {"order": "A1"}, effect="write")
    >>> broken(verify_before_act("refund", within=1), trace(checked, refund))
    ()
    >>> broken(verify_before_act("refund", within=1), trace(refund))
    (0,)
    """
    tools = names_of(tool, "tool")
    count_of(within, "within", least=1)
    acts = reduce(or_, [tool_call(name) for name in tools])
    wanted = "verification" if check is None else f"verification {check!r}"
    return contract(
        f"{label(tools)}.verified_before_act",
        always(acts.implies(once(verification(check, passed=True), within=within))),
        repair=options.get("repair") or f"pass a {wanted} at most {within} steps before {label(tools)}",
        message=f"{label(tools)} was called without a passed {wanted} in the {within} steps before",
    )

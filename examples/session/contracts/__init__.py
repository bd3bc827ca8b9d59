"""The session guarantees of the AI agent contract: one contract for each, and their catalogue (see `python -m session`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, get_args

from mat.core.errors import SpecError, did_you_mean
from mat.core.verdict import Severity
from mat.monitor.contract import Contract, ContractPolicy
from session.contracts import accounting, configuration, context, conversation, errors, limits, result, tools, transport
from session.contracts.guarantee import Guarantee, Observable, entered
from session.contracts.settings import SessionConfig, SessionTool, Target, session_config

_FAMILIES: Final = (limits, tools, context, errors, result, conversation, accounting, configuration, transport)
GUARANTEES: Final[tuple[Guarantee, ...]] = tuple(
    item for family in _FAMILIES for item in entered() if item.rule.__module__ == family.__name__
)
"""Every guarantee of sections 1 to 7, 9 and 11, family by family."""
BY_ID: Final = {item.id: item for item in GUARANTEES}


def session_contracts(
    config: SessionConfig, *, observable: Observable | Iterable[Observable] = ("result", "request")
) -> list[Contract]:
    """The contracts of all guarantees that apply to a session of this configuration, by where they can be observed.

    A guarantee applies if its settings are given and it supports the transport. The contracts share one fold of the
    session, so the step of all of them costs little more than that of one; it never reads the prefix.

    >>> from mat_contracts.traces import record, trace, violations
    >>> config = SessionConfig(max_turns=1)
    >>> hello = {"role": "assistant", "content": "hello"}
    >>> first, second = (record("memory_write", "conversation", {"key": key, "value": hello}) for key in "01")
    >>> armed = {contract.id: contract for contract in session_contracts(config)}
    >>> violations(armed["session.limits.max_turns"], trace(first))
    ()
    >>> [found.wanted for found in violations(armed["session.limits.max_turns"], trace(first, second))]
    ['no request after turn 1']
    """
    chosen = (observable,) if isinstance(observable, str) else tuple(observable)
    unknown = [item for item in chosen if item not in get_args(Observable)]
    if unknown:
        raise SpecError(
            what=f"no guarantee is observable in {unknown[0]!r}{did_you_mean(str(unknown[0]), get_args(Observable))}",
            fix="choose of result, request and log",
        )
    return [item.make(config) for item in GUARANTEES if item.observable in chosen and item.applies(config)]


def session_contract(
    guarantee: str,
    *,
    config: SessionConfig,
    id: str = "",
    severity: Severity | None = None,
    weight: float = -1.0,
    policy: ContractPolicy = "observe",
    repair: str = "",
) -> Contract:
    """One guarantee by its id, such as "session.limits.max_turns". SpecError if it does not apply to such a session.

    C1. `GUARANTEES` has the text of the guarantee; a log-only one is soft unless `severity` says otherwise.

    >>> from mat_contracts.traces import broken, record, trace
    >>> kept = session_contract("session.result.exit_zero_is_success", config=SessionConfig())
    >>> ended = [record("final_response", "answer", {"answer": {"success": False, "exitCode": code}}) for code in (1, 0)]
    >>> broken(kept, trace(ended[0]))
    ()
    >>> broken(kept, trace(ended[1]))
    (0,)
    """
    found = BY_ID.get(guarantee)
    if found is None:
        raise SpecError(
            what=f"no session guarantee is called {guarantee!r}{did_you_mean(guarantee, BY_ID)}", fix="see GUARANTEES"
        )
    missing = found.missing(config)
    if missing or not found.applies(config):
        raise SpecError(
            what=f"{guarantee} says nothing of this session",
            why=f"it needs {', '.join(missing)}" if missing else f"it speaks of the transports {', '.join(found.transports)}",
            fix="give the settings that the session runs with, or leave this guarantee out",
        )
    return found.make(config, id=id, severity=severity or "", weight=weight, policy=policy, repair=repair)


__all__ = [
    "BY_ID",
    "GUARANTEES",
    "Guarantee",
    "Observable",
    "SessionConfig",
    "SessionTool",
    "Target",
    "session_config",
    "session_contract",
    "session_contracts",
]

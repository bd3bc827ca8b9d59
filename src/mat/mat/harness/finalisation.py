"""Finalisation: what is derived from the records of a run when it ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mat.boundary.port import Port
from mat.core.digest import digest
from mat.core.errors import SpecError, raised_text
from mat.core.record import ErrorFact, Observation, Record
from mat.core.run import Finding, PortErrors, TapeEntry
from mat.core.value import FrozenDict, fast_constructor, snapshot_arguments
from mat.monitor.contract import Contract

_new_entry = fast_constructor(TapeEntry)


def margins(contracts: Iterable[Contract], records: Sequence[Record]) -> FrozenDict:
    """The margin by which each contract was kept, in thousandths, if it defines one. SpecError if a margin raises."""
    return FrozenDict({contract.id: _thousandths(contract, records) for contract in contracts if contract.margin is not None})


def _thousandths(contract: Contract, records: Sequence[Record]) -> int:
    assert contract.margin is not None
    try:
        return round(1000 * contract.margin(records))
    except Exception as error:
        raise SpecError(
            what=f"the margin of {contract.id!r} {raised_text(error)}",
            why="a margin is a finite number for every trace",
            fix="correct the function given as margin=",
        ) from error


def restricted(ports: Iterable[Port]) -> FrozenDict:
    """Ports that allow the search only some operators, or none."""
    found = {}
    for port in ports:
        if port.perturb is not True and port.boundary:
            found[f"{port.boundary}:{port.name}"] = sorted(port.perturb) if port.perturb else []
    return snapshot_arguments(found, "restricted ports")


def port_errors(ports: Iterable[Port], project: tuple[str, ...]) -> tuple[PortErrors, ...]:
    """The clients whose exceptions are injected, of each port for which there is something to try or to say."""
    distinct = dict.fromkeys(port for port in ports if port.boundary)
    found = {item.port: item for port in distinct if (item := port.tried(project)) is not None}
    return tuple(found[name] for name in sorted(found))


def opaque_replies(records: Iterable[Record]) -> tuple[Finding, ...]:
    names = sorted({record.action.name for record in records if record.observation.opaque})
    problem = "are not plain data: they can be neither compared nor kept in a replay file"
    return tuple(Finding(code="opaque-reply", message=f"the replies of {name} {problem}") for name in names)


def tape_entries(records: Sequence[Record], ports: Sequence[Port]) -> tuple[TapeEntry, ...]:
    """The ports' replies as tape entries. ports: one per record; the last record, which the harness writes, may have none."""
    found = []
    for record, port in zip(records, ports, strict=False):
        if port.boundary and (record.invoked or record.taped):
            asked = record.action.arguments if record.executed is None else record.executed
            found.append(tape_entry(port, record.site, asked, record.raw or record.observation))
    return tuple(found)


def tape_entry(port: Port, site: str, asked: FrozenDict, heard: Observation) -> TapeEntry:
    """One reply or error of a port, in recorded form."""
    error: ErrorFact | None = heard.error
    failure = None if error is None else (error.type, error.message, error.kind)
    retry_after_ms = None if error is None else error.retry_after_ms
    return _new_entry(site, digest(asked), port.tape, heard.value, failure, heard.opaque, retry_after_ms)

"""What `mat doctor TEST` inspects: whether tests are instrumented, what they cross, and which state outlives an evaluation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterable, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest

from mat.adapters.attach import observers
from mat.adapters.attachment import Attachment
from mat.boundary.port import declared_ports
from mat.core.errors import did_you_mean
from mat.core.run import ATTACHED, PortErrors, Run, remedy
from mat.govern.variant import NONE
from mat.harness.patching import overlooked
from mat.monitor.contract import Contract
from mat.monitor.triggers import named_ports
from mat_search.declarations import undeclared
from pytest_mat.execution import EXECUTION
from pytest_mat.session import session_of

_NOT_ARMED: Final = (
    "it is a plain test: it has no mat marker and requests neither mat_run nor a contract",
    "add the fixture mat_run, or @pytest.mark.mat()",
)
_NO_CONTRACT: Final = (
    "no contract is armed: --mat-stress judges only the test's own asserts and exceptions",
    'request a contract fixture or override mat_contracts, or write objective="task" in the marker if they are what you mean',
)
_NO_CROSSING: Final = (
    "its body crosses no boundary: it called no instrumented tool, model, memory or retriever",
    "decorate what the agent calls (@mat.tool, @mat.model, ...), or name it in mat_instrument; calls of fixtures "
    "are outside the run",
)


class Doctor:
    """A pytest plugin that inspects each item after its body has ended, and writes what it found as JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, dict[str, Any]] = {}
        self._item = ""
        self._attached: list[tuple[str, Attachment]] = []
        self._crossed: set[str] = set()

    def pytest_sessionstart(self) -> None:
        observers.append(self._observe)

    def _observe(self, attachment: Attachment) -> None:
        self._attached.append((self._item, attachment))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._item = item.nodeid

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
        report = yield
        if call.when == "call" or (call.when == "setup" and not report.passed):
            self._found[item.nodeid] = {"item": item.nodeid, "outcome": report.outcome, **examined(item, call)}
            self._crossed.update(name.partition(":")[2] for name in self._found[item.nodeid]["crossings"])
            if report.failed and self._found[item.nodeid]["armed"]:
                self._found[item.nodeid]["problems"].insert(0, _failed(call))
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        observers.remove(self._observe)
        for item, port, text in _uncrossed_options(self._attached, self._crossed):
            if item in self._found:
                _add_uncrossed(self._found[item], text, port, self._crossed)
        for id, found in session_of(session.config).savings.items():
            self._found.setdefault(id, {"item": id})["declarations"] = [asdict(each) for each in found]
        self._path.write_text(json.dumps(list(self._found.values())), encoding="utf-8")


def examined(item: pytest.Item, call: pytest.CallInfo[Any]) -> dict[str, Any]:
    """The findings on an item. `problems` are pairs of a problem and its fix."""
    known = item.stash.get(EXECUTION, None)
    run = known.run if known is not None and call.when == "call" else None
    contracts = [] if known is None else [contract.id for contract in known.contracts]
    crossings = Counter() if run is None else _calls_by_boundary(run)
    problems = []
    if known is None and call.when == "call":
        problems.append(_NOT_ARMED)
    elif run is None:
        problems.append(_stopped(call))
    else:
        judged_by_body = known is not None and known.settings.objective == "task"
        problems += [] if contracts or judged_by_body else [_NO_CONTRACT]
        unseen = list(overlooked({record.action.name for record in run.records}))
        problems += [_overlooked(*each) for each in unseen] if unseen or crossings else [_NO_CROSSING]
        problems += [
            (f"{finding.code}: {finding.message}", remedy(finding.code)) for finding in run.findings if finding.code != ATTACHED
        ]
    found = {
        "armed": run is not None,
        "contracts": contracts,
        "crossings": dict(sorted(crossings.items())),
        "variants": [name for name in (known.variants if known is not None else ()) if name != NONE],
        "category": "" if known is None else known.task.category,
        "attached": [] if known is None else [_attached(each) for each in known.attached],
        "persisting": _persisting(item),
        "undeclared": [] if run is None else undeclared([run]),
        "errors": [] if run is None else [_port_errors(item) for item in run.errors],
        "uncrossed": [],
        "problems": [{"what": what, "fix": fix} for what, fix in problems],
    }
    if known is not None and run is not None:
        crossed = {record.action.name for record in run.records if record.action.boundary}
        for contract in known.contracts:
            _examine_names(contract, found, crossed)
    return found


def _examine_names(contract: Contract, found: dict[str, Any], crossed: Set[str]) -> None:
    """The ports that a contract names, that nothing declares, and that the run did not cross."""
    known = {name for _, name in declared_ports()} | crossed
    for name in named_ports(contract):
        if name not in known:
            _add_uncrossed(found, f"contract {contract.id}", name, known)


def _uncrossed_options(attached: Iterable[tuple[str, Attachment]], crossed: Set[str]) -> list[tuple[str, str, str]]:
    """(item, port, options): the ports that options of attachments name and that no test crossed, at the first such test."""
    found: dict[tuple[str, str], str] = {}
    for item, attachment in attached:
        of = "" if attachment.adapter is None else f" of {attachment.adapter.name}"
        for port, options in attachment.options_by_port().items():
            if port not in crossed:
                found.setdefault((port, f"{', '.join(f'{option}=' for option in options)}{of}"), item)
    return [(item, port, text) for (port, text), item in found.items()]


def _add_uncrossed(found: dict[str, Any], where: str, name: str, known: Iterable[str]) -> None:
    """Add a name that no crossed boundary has: as a problem if another name is so near that it is probably misspelt."""
    text = f"{where}: no boundary called {name!r} was crossed"
    if nearest := did_you_mean(name, sorted(known)):
        found["problems"].append({"what": f"{text}{nearest}", "fix": "correct the name, as in the list of boundaries crossed"})
    else:
        found["uncrossed"].append(text)


def _overlooked(target: str, holders: list[str]) -> tuple[str, str]:
    hold = f"{', '.join(holders[:3])} {'holds' if len(holders) == 1 else 'hold'}"
    return (
        f"{target} is patched, but nobody called it there: {hold} the function itself",
        "decorate the function with @mat.tool, or patch where it is called",
    )


def _failed(call: pytest.CallInfo[Any]) -> dict[str, str]:
    """Why an item fails in plain pytest, too: the error's first line."""
    said = str(call.excinfo.value).partition("\n")[0] if call.excinfo is not None else ""
    return {"what": f"it fails{said and f': {said}'}", "fix": "make it pass with plain pytest first"}


def _stopped(call: pytest.CallInfo[Any]) -> tuple[str, str]:
    """Why there is no run: the error's first line, and the fix that it names."""
    first, *more = str(call.excinfo.value if call.excinfo is not None else "").splitlines() or [""]
    fix = next((line.strip() for line in more if line.startswith("  fix: ")), "run it with plain pytest to see more")
    return f"its {'setup' if call.when == 'setup' else 'run'} was stopped: {first}", fix.removeprefix("fix: ")


def _attached(found: Attachment) -> dict[str, Any]:
    """A framework: what it does with failures, and how the tools that were called came to their effects."""
    assert found.adapter is not None
    adapter = found.adapter
    return {
        "name": adapter.name, "policy": adapter.policy, "abilities": list(adapter.abilities),
        "tools": [asdict(each) for _, each in sorted(found.declared.items())],
    }  # fmt: skip


def _port_errors(found: PortErrors) -> dict[str, Any]:
    """The clients whose exceptions are injected at a port. `guess`: what they were read from, "" if they are declared."""
    return {"port": found.port, "clients": list(found.clients), "guess": found.guess}


def _calls_by_boundary(run: Run) -> Counter[str]:
    """How often each port was called, by boundary and name."""
    return Counter(f"{record.action.boundary}:{record.action.name}" for record in run.records if record.action.boundary)


def _persisting(item: pytest.Item) -> dict[str, str]:
    """The user's fixtures wider than a function, with their scope: each evaluation gets them as the previous one left them."""
    info = getattr(item, "_fixtureinfo", None)
    found = {}
    for name, definitions in (info.name2fixturedefs if info is not None else {}).items():
        definition = definitions[-1]
        module = str(getattr(definition.func, "__module__", ""))
        if definition.scope != "function" and not module.startswith(("_pytest", "pytest_", "xdist", "anyio", "_hypothesis")):
            found[name] = str(definition.scope)
    return dict(sorted(found.items()))

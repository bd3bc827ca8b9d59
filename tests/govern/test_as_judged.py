"""What runs is what was judged, whoever changes it in between, and nothing runs after the end of a governed run."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pydantic
import pytest

import mat
from mat.govern.mediator import Governance, NeedsApproval

REACHED: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_reached() -> None:
    REACHED.clear()


@dataclass
class Order:
    lines: list[str] = field(default_factory=lambda: ["A17"])


class Parcel(pydantic.BaseModel):
    to: str = "ann"


class Names(list[str]):
    """A list of its own class, which its recorded form does not restore."""


@mat.tool(effect="write")
def ship(what: Any, note: str = "") -> str:
    REACHED.append(what)
    return "shipped"


@mat.tool(effect="write")
def stream(what: Any, note: str = "") -> Iterator[str]:
    REACHED.append(what)
    yield "shipped"


@mat.tool(effect="write")
async def ship_later(what: Any, note: str = "") -> str:
    REACHED.append(what)
    return "shipped"


def plain(what: Any) -> None:
    ship(what)


def streamed(what: Any) -> None:
    list(stream(what))


def awaited(what: Any) -> None:
    asyncio.run(ship_later(what))


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "list": (lambda: ["ann"], lambda it: it.append("eve")),
    "dict": (lambda: {"to": ["ann"]}, lambda it: it["to"].append("eve")),
    "set": (lambda: {"ann"}, lambda it: it.add("eve")),
    "bytearray": (lambda: bytearray(b"ann"), lambda it: it.extend(b"eve")),
    "tuple": (lambda: (["ann"],), lambda it: it[0].append("eve")),
    "deque": (lambda: deque(["ann"]), lambda it: it.append("eve")),
    "subclass": (lambda: Names(["ann"]), lambda it: it.append("eve")),
    "dataclass": (Order, lambda it: it.lines.append("eve")),
    "model": (Parcel, lambda it: setattr(it, "to", "eve")),
    "list of models": (lambda: [Parcel()], lambda it: setattr(it[0], "to", "eve")),
    "no recorded form": (lambda: ["ann"], lambda it: it.append(object())),
}
RESTORED = {"list": ["ann"], "dict": {"to": ["ann"]}}
"""What the port gets where the change can be undone."""


def governance(change: Callable[[], object], *, approved: bool) -> Governance:
    """A policy under which somebody changes what was asked while it is judged: a thread, a task, the rule itself."""

    def approver(what: str, arguments: Any) -> bool:
        change()
        return True

    def rule(record: mat.Record) -> NeedsApproval | None:
        if approved:
            return NeedsApproval("shipping", approver=approver)
        change()
        return None

    return Governance(rules=(rule,))


@pytest.mark.parametrize("approved", [False, True])
@pytest.mark.parametrize("call", [plain, streamed, awaited])
@pytest.mark.parametrize("kind", CHANGES)
def test_what_was_changed_after_it_was_judged_does_not_run_changed(
    kind: str, call: Callable[[Any], None], approved: bool
) -> None:
    make, change = CHANGES[kind]
    what = make()
    with mat.run(governance=governance(lambda: change(what), approved=approved)) as run:
        if kind in RESTORED:
            call(what)
        else:
            with pytest.raises(mat.Blocked, match=r"(ship|stream|ship_later) was changed after .*: what"):
                call(what)
    assert [RESTORED[kind]] == REACHED if kind in RESTORED else not REACHED
    record = next(item for item in run.trace if item.action.kind == "tool_call")
    assert record.effected == ("yes" if kind in RESTORED else "no")
    assert record.mediation is not None
    assert record.mediation.decision == ("allow" if kind in RESTORED else "block")


@pytest.mark.parametrize("approved", [False, True])
@pytest.mark.parametrize("call", [plain, streamed, awaited])
@pytest.mark.parametrize("kind", CHANGES)
def test_what_nobody_changed_runs_as_the_object_that_was_given(kind: str, call: Callable[[Any], None], approved: bool) -> None:
    what = CHANGES[kind][0]()
    with mat.run(governance=governance(lambda: None, approved=approved)):
        call(what)
    assert REACHED[0] is what


def test_without_governance_nothing_is_compared() -> None:
    what = ["ann"]
    with mat.run():
        ship(what)
    assert REACHED[0] is what


# -- after the end ----------------------------------------------------------------------------------------------------


CLERK = Governance(capabilities={"clerk": ["ship"]})


def test_a_task_that_outlives_its_governed_run_does_nothing_more() -> None:
    refused: list[str] = []

    async def late() -> None:
        await asyncio.sleep(0.01)
        try:
            await ship_later("A17")
        except mat.Blocked as blocked:
            refused.append(str(blocked))

    async def program() -> None:
        with mat.run(governance=CLERK):
            task = asyncio.create_task(late())
        await task

    asyncio.run(program())
    assert "the run that this call belongs to has ended" in refused[0]
    assert not REACHED


@pytest.mark.parametrize("call", [plain, streamed])
def test_a_context_kept_past_the_end_calls_nothing_and_may_still_report(call: Callable[[Any], None]) -> None:
    with mat.run(governance=CLERK):
        kept = contextvars.copy_context()
    with pytest.raises(mat.Blocked, match="has ended"):
        kept.run(call, "A17")
    kept.run(mat.claim, "done")
    assert not REACHED
    thread = threading.Thread(target=call, args=("A17",))  # a context of its own: no run, and none was asked for
    thread.start()
    thread.join()
    assert REACHED == ["A17"]


def test_the_end_of_a_run_without_governance_ends_the_recording_only() -> None:
    with mat.run():
        kept = contextvars.copy_context()
    kept.run(plain, "A17")
    assert REACHED == ["A17"]

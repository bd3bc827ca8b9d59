"""The conformance kit sees a good adapter as good, and names what is wrong with each broken one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import mat
from mat.adapters import Adapter, Attachment
from mat.adapters.attach import BUILT_IN
from mat.adapters.conformance import Scripted, findings

REAL: list[str] = []


class Toolbox:
    """A framework of four calls: it tells the agent of an error as a text, and keeps notes."""

    notes: dict[str, str] = {}

    def call(self, tool: Callable[..., Any], **arguments: Any) -> Any:
        return tool(**arguments)

    def safely(self, tool: Callable[..., Any], **arguments: Any) -> Any:
        try:
            return self.call(tool, **arguments)
        except Exception as error:
            return f"error: {error}"

    def note(self, key: str, text: str) -> None:
        type(self).notes[key] = text


def refund(order: str) -> str:
    REAL.append("refund")
    return f"refunded {order}"


def search(question: str) -> list[str]:
    REAL.append("search")
    return ["Refunds take 14 days."]


def work() -> str:
    REAL.clear()
    Toolbox.notes.clear()
    box = Toolbox()
    found = box.safely(search, question="refunds")
    answer = box.safely(refund, order="A17")
    box.note("A17", answer)
    return f"{found} {answer} {len(Toolbox.notes)}"


def failing() -> str:
    REAL.clear()

    def broken(order: str) -> str:
        REAL.append("broken")
        raise ValueError("no such order")

    return str(Toolbox().safely(broken, order="A17"))


AGENTS: dict[Any, Scripted] = {
    "tools": Scripted(
        run=work, real=lambda: REAL, steps=(("retrieval", "search"), ("tool_call", "refund"), ("memory_write", "notes"))
    ),
    "failing": Scripted(run=failing, real=lambda: REAL, steps=(("tool_call", "broken"),)),
}


def good(attachment: Attachment) -> None:
    def call(real: Any) -> Any:
        def _call(self: Any, tool: Any, **arguments: Any) -> Any:
            port = attachment.tool(tool.__name__)
            return mat.cross(port, arguments, lambda changed: real(self, tool, **{**arguments, **(changed or {})}))

        return _call

    attachment.replace(Toolbox, "call", call)
    attachment.replace(Toolbox, "note", note(attachment))


def note(attachment: Attachment) -> Callable[[Any], Any]:
    def made(real: Any) -> Any:
        def _note(self: Any, key: str, text: str) -> None:
            _, write = attachment.store("notes")
            asked = {"key": key, "value": text}

            def call(changed: dict[str, Any] | None) -> None:
                now = {**asked, **(changed or {})}
                real(self, now["key"], now["value"])

            mat.cross(write, asked, call)

        return _note

    return made


def of_call(change: Callable[[Attachment, Any, Any, dict[str, Any]], Any]) -> Callable[[Attachment], None]:
    """The good adapter with another way to make a call: change(attachment, the real call, the tool, arguments)."""

    def install(attachment: Attachment) -> None:
        def call(real: Any) -> Any:
            def _call(self: Any, tool: Any, **arguments: Any) -> Any:
                return change(attachment, lambda **given: real(self, tool, **given), tool, arguments)

            return _call

        attachment.replace(Toolbox, "call", call)
        attachment.replace(Toolbox, "note", note(attachment))

    return install


def crossed(attachment: Attachment, tool: Any, arguments: dict[str, Any], call: Any, name: str = "") -> Any:
    return mat.cross(attachment.tool(name or tool.__name__), arguments, call)


def forgets_to_undo(attachment: Attachment) -> None:
    good(attachment)
    attachment._replaced.pop(0)


def wrong_name(attachment: Attachment, real: Any, tool: Any, arguments: dict[str, Any]) -> Any:
    return crossed(attachment, tool, arguments, lambda changed: real(**arguments), name="call")


def runs_first(attachment: Attachment, real: Any, tool: Any, arguments: dict[str, Any]) -> Any:
    found = real(**arguments)
    return crossed(attachment, tool, arguments, lambda changed: found)


def swallows(attachment: Attachment, real: Any, tool: Any, arguments: dict[str, Any]) -> Any:
    try:
        return crossed(attachment, tool, arguments, lambda changed: real(**arguments))
    except Exception:
        return real(**arguments)


def changes_what_it_is_outside(attachment: Attachment, real: Any, tool: Any, arguments: dict[str, Any]) -> Any:
    from mat.boundary.session import active

    if active() is None:
        return f"attached: {real(**arguments)}"
    return crossed(attachment, tool, arguments, lambda changed: real(**arguments))


def draws_by_itself(attachment: Attachment, real: Any, tool: Any, arguments: dict[str, Any]) -> Any:
    COUNT.append(1)
    return crossed(attachment, tool, {**arguments, "id": len(COUNT)}, lambda changed: real(**arguments))


def records_every_layer(attachment: Attachment, real: Any, tool: Any, arguments: dict[str, Any]) -> Any:
    inner = crossed(attachment, tool, arguments, lambda changed: real(**arguments), name=f"{tool.__name__} inner")
    return crossed(attachment, tool, arguments, lambda changed: inner)


COUNT: list[int] = []


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    def of(install: Callable[[Attachment], None], **more: Any) -> list[str]:
        module = ModuleType("toy_adapter")
        adapter = Adapter(name="toy", package="pytest", install=install, policy="a tool that raises is told as a text", **more)
        vars(module)["ADAPTERS"] = {"toy": adapter}
        monkeypatch.setitem(sys.modules, "toy_adapter", module)
        monkeypatch.setitem(BUILT_IN, "toy", "toy_adapter")
        real_call, real_note = Toolbox.call, Toolbox.note
        monkeypatch.setattr(Toolbox, "call", real_call)  # put back what a broken adapter leaves
        monkeypatch.setattr(Toolbox, "note", real_note)
        options = {"retrievers": ["search"], "effects": {"refund": "write", "broken": "write"}}
        return [str(each) for each in findings("toy", AGENTS, **options)]

    return of


def test_a_good_adapter_conforms(found: Callable[..., list[str]]) -> None:
    assert found(good) == []


@pytest.mark.parametrize(
    ("install", "said"),
    [
        (forgets_to_undo, "detach, tools: a run after the attachment still records main/retrieval:search#1"),
        (of_call(wrong_name), "observe, tools: recorded [('tool_call', 'call'), ('tool_call', 'call')"),
        (of_call(runs_first), "govern, tools: a blocked refund is decided ['block'], but it ran"),
        (of_call(swallows), "govern, tools: a blocked refund is decided ['block'], but it ran"),
        (of_call(changes_what_it_is_outside), "observe, tools: outside of a run the agent gives"),
        (of_call(draws_by_itself), "observe, tools: two runs of the same agent differ"),
        (of_call(records_every_layer), "observe, tools: recorded"),
        (lambda attachment: None, "observe, tools: recorded []"),
        (lambda attachment: None, "replay, "),
    ],
)  # fmt: skip
def test_a_broken_adapter_is_told_what_is_wrong_with_it(
    found: Callable[..., list[str]], install: Callable[[Attachment], None], said: str
) -> None:
    seen = found(install)
    if said == "replay, ":  # an adapter without steps repeats them all
        assert not any(each.startswith(said) for each in seen)
    else:
        assert any(each.startswith(said) for each in seen), seen


@pytest.mark.parametrize("missing", ["perturb", "govern", "replay"])
def test_an_ability_that_works_has_to_be_declared(found: Callable[..., list[str]], missing: str) -> None:
    abilities = tuple(each for each in ("observe", "perturb", "govern", "replay") if each != missing)
    seen = found(good, abilities=abilities)
    assert seen
    assert all(each.startswith(f"{missing}, ") and "it is not declared" in each for each in seen)

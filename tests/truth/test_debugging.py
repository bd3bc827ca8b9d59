"""A debugger stands in the agent's code at the violating step; steps say where they were called; our frames are hidden."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from _pytest.debugging import pytestPDB
from tests.plugin import conftest as plugin

import mat
from mat.boundary.catalog import operator
from mat.boundary.effect import Raise
from mat.core.codec import decode, encode
from mat.core.packed import pack, unpack
from mat.core.run import Run
from pytest_mat.debugging import without_our_frames

shop = plugin.shop

LOST = operator("service.lost_ack", lambda call, reply, stream: Raise("timeout"), phase="after")
ID = "test_shop.py::test_refund"
SCRIPTED = '''
"""A scripted debugger: it notes where it stands at each prompt, and goes on."""
import json
import pdb
from pathlib import Path

NOTES = Path(__file__).with_name("prompts.jsonl")


class Scripted(pdb.Pdb):
    def interaction(self, frame, traceback):
        stack, at = self.get_stack(frame, getattr(traceback, "__traceback__", traceback))
        self.botframe = self.botframe or stack[0][0]
        found, line = stack[at]
        values = {name: value for name, value in found.f_locals.items() if isinstance(value, (str, int))}
        with NOTES.open("a") as notes:
            notes.write(json.dumps([found.f_code.co_name, line, found.f_globals["__name__"], values]) + "\\n")
        self.do_continue("")
'''
NAIVE = """
@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double):
    shop.naive()
"""
TWICE = """
@pytest.mark.mat
def test_refund(mat_run, no_double):
    order = "o1"
    shop.refund(order)
    shop.refund(order)
    shop.refund("o2")
"""


# -- where a step was called ------------------------------------------------------------------------------------------


@mat.tool(effect="write")
def book(place: int) -> str:
    return "booked"


@mat.tool
async def look(place: int) -> str:
    return "free"


def here(offset: int) -> str:
    """The place of a line above or below the caller's."""
    frame = sys._getframe(1)
    return f"truth/test_debugging.py:{frame.f_lineno + offset}"


def ended(places: tuple[str, ...]) -> list[str]:
    """The places by folder and file, as far as the working folder of the session does not shorten them."""
    return ["/".join(place.split("/")[-2:]) for place in places]


def test_each_step_says_which_line_of_the_agent_made_the_call() -> None:
    notes = mat.memory({}, name="notes")
    with mat.run() as run:
        book(1)
        notes["eta"] = "Friday"
        mat.claim("booked")
        first = here(-3)
    assert run.result is not None
    line = int(first.rpartition(":")[2])
    assert ended(run.result.places) == [*(f"truth/test_debugging.py:{line + more}" for more in range(3)), ""]


def test_a_call_through_libraries_and_tasks_is_placed_at_the_agents_line() -> None:
    async def agent() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(look(1))
        await asyncio.gather(look(2))
        list(map(book, [3]))
        return here(-1)

    with mat.run() as run:
        line = asyncio.run(agent())
    assert run.result is not None
    assert ended(run.result.places)[2] == line
    assert len(run.result.places) == len(run.result.records)


def a_run() -> Run:
    with mat.run(seed=3) as run:
        book(1)
    assert run.result is not None
    return run.result


def test_places_are_labels_no_part_of_any_digest_or_of_equality() -> None:
    run = a_run()
    other = replace(run, places=("elsewhere.py:1", ""))
    assert (run.head, run.view, run.id) == (other.head, other.view, other.id)
    assert run == other


def test_places_survive_the_way_through_files_and_processes() -> None:
    run = a_run()
    assert run.places[0]
    assert decode(Run, encode(run), where="").places == run.places
    assert unpack(json.loads(pack(run, run.spec)), run.spec).places == run.places
    bare = replace(run, places=())
    assert unpack(json.loads(pack(bare, run.spec)), run.spec) == bare


# -- frames -----------------------------------------------------------------------------------------------------------


def frames(error: BaseException) -> Iterator[str]:
    traceback = error.__traceback__
    while traceback is not None:
        yield str(traceback.tb_frame.f_globals["__name__"]).partition(".")[0]
        traceback = traceback.tb_next


def test_our_frames_are_hidden_in_the_tracebacks_of_an_exception_and_of_its_causes() -> None:
    lost = mat.spec.perturbation("service.lost_ack", "main/service:book#1", cost=4)

    def agent() -> None:
        try:
            book(1)
        except TimeoutError as error:
            raise ExceptionGroup("both", [ValueError("one"), error]) from error

    with mat.run(schedule=[lost], operators=[LOST]), pytest.raises(ExceptionGroup) as raised:
        agent()
    caught, cause = raised.value, raised.value.__cause__
    assert cause is not None
    assert "mat" in set(frames(cause))
    without_our_frames(caught)
    for each in (caught, cause, *caught.exceptions):
        assert "mat" not in set(frames(each))
    assert list(frames(cause)) != []


def test_an_error_that_an_agent_does_not_catch_is_shown_without_our_frames(shop: Any) -> None:
    shop.tests("""
    @mat.tool
    def broken(order):
        raise KeyError(order)

    @pytest.mark.mat
    def test_refund(mat_run, no_double):
        broken("o1")
    """)
    session = shop.run("--tb=short")
    said = session.failures[ID]
    assert "raise KeyError(order)" in said
    assert "crossing.py" not in said
    assert "instrument.py" not in said


# -- the debugger -----------------------------------------------------------------------------------------------------


def prompts(shop: Any, *arguments: str) -> tuple[Any, list[Any]]:
    """A session with the scripted debugger, and its prompts: function, line, module, values."""
    shop.write("scripted.py", SCRIPTED)
    (shop.path / "prompts.jsonl").write_text("")
    pytestPDB._wrapped_pdb_cls = None  # pytest keeps a debugger's class by its name; here each session has another one
    session = shop.run("--pdb", "--pdbcls=scripted:Scripted", *arguments)
    return session, [json.loads(line) for line in (shop.path / "prompts.jsonl").read_text().splitlines()]


def line_of(shop: Any, name: str, text: str, nth: int = 1) -> int:
    lines = (shop.path / name).read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if text in line][nth - 1]


def test_a_nominal_violation_opens_one_prompt_at_the_violating_call(shop: Any) -> None:
    shop.tests(TWICE)
    session, found = prompts(shop)
    assert session.statuses == {ID: "violated"}
    line = line_of(shop, "test_shop.py", "shop.refund(order)", nth=2)
    assert [tuple(each[:3]) for each in found] == [("test_refund", line, "test_shop")]
    assert found[0][3]["order"] == "o1"
    assert f"no_double: o1 was refunded twice (test_shop.py:{line})" in session.failures[ID]


def test_without_pdb_nothing_stops(shop: Any) -> None:
    shop.tests(TWICE)
    shop.write("scripted.py", SCRIPTED)
    assert shop.run("--pdbcls=scripted:Scripted").statuses == {ID: "violated"}
    assert not (shop.path / "prompts.jsonl").exists()


def test_an_assertion_of_the_body_opens_the_prompt_that_pytest_opens(shop: Any) -> None:
    shop.tests("""
    @pytest.mark.mat
    def test_refund(mat_run, no_double):
        order = "o1"
        assert shop.refund(order) == {}
    """)
    _, found = prompts(shop)
    assert [tuple(each[:3]) for each in found] == [("test_refund", line_of(shop, "test_shop.py", "== {}"), "test_shop")]


@pytest.mark.full
def test_a_search_opens_a_prompt_at_the_violating_call_of_its_counterexample(shop: Any) -> None:
    shop.tests(NAIVE)
    session, found = prompts(shop, "--mat-stress")
    assert session.statuses == {ID: "counterexample"}
    assert [tuple(each[:3]) for each in found] == [("naive", line_of(shop, "shop.py", "refund(order)", nth=2), "shop")]
    (path,) = shop.replays
    line = line_of(shop, "shop.py", "refund(order)", nth=2)
    for arguments, place in (
        (["--mat-replay", str(path.relative_to(shop.path))], f"(shop.py:{line})"),
        ([], f"at shop.py:{line}"),
    ):
        session, found = prompts(shop, *arguments)
        assert session.outcomes[f"{ID}[replay-{path.name[-15:-9]}]"] == "failed"
        assert [tuple(each[:3]) for each in found] == [("naive", line_of(shop, "shop.py", "refund(order)", nth=2), "shop")]
        assert re.search(rf"o1 was refunded twice\s+{re.escape(place)}", session.text)


@pytest.mark.full
def test_a_person_can_look_at_values_and_step_on_in_the_agents_code(shop: Any) -> None:
    pytest.importorskip("pexpect")
    shop.tests(TWICE)
    child = shop.pytester.spawn_pytest("--pdb test_shop.py", expect_timeout=30)
    child.expect("no_double: o1 was refunded twice")
    child.expect(r"-> shop.refund\(order\)")
    child.expect(r"\(Pdb\)")
    child.sendline("p order")
    child.expect("'o1'")
    child.expect(r"\(Pdb\)")
    child.sendline("next")
    child.expect(r'-> shop.refund\("o2"\)')
    child.expect(r"\(Pdb\)")
    child.sendline("step")  # over our frames, into the tool
    child.expect(r"shop.py\(\d+\)refund\(\)")
    child.expect(r"\(Pdb\)")
    child.sendline("c")
    assert child.expect([r"1 failed", r"\(Pdb\)"]) == 0
    child.close()

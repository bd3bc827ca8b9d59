"""Stepping through a counterexample: what each key shows, on every size of screen, with nothing but printable text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

import mat
from mat.core.campaign import Counterexample
from mat.report.viewer import Viewer, ViewerState


def lines(viewer: Viewer, view: ViewerState, *, width: int = 120, height: int = 24) -> list[str]:
    view = viewer.fitted(view, width=width, height=height)
    return [line.text for line in viewer.screen(view, width=width, height=height)]


def after(viewer: Viewer, keys: Iterable[str], view: ViewerState | None = None, *, height: int = 24) -> ViewerState:
    view = view or viewer.begin()
    for key in keys:
        view = viewer.fitted(viewer.pressed(view, key, height=height), width=120, height=height)
    return view


def chosen(viewer: Viewer, view: ViewerState) -> str:
    (line,) = [text for text in lines(viewer, view) if text[:1] in (">", "v")]
    return line


@pytest.fixture
def viewer(found: Counterexample, shop_tests: Any) -> Viewer:
    return Viewer(found.run, found.verdict, nominal=shop_tests.run)


def test_it_begins_at_the_violation_and_comes_back_to_it(viewer: Viewer, found: Counterexample) -> None:
    line = chosen(viewer, viewer.begin())
    assert f"{found.verdict.step:>4} " in line
    assert "VIOLATES refund.once" in line
    away = after(viewer, "g")
    assert away.chosen == 0
    assert "VIOLATES" not in chosen(viewer, away)
    assert after(viewer, "v", away) == viewer.begin()
    shown = lines(viewer, viewer.begin())
    assert shown[0].startswith("refund.once: ")
    assert any(line.startswith("cost 4: the reply of the 1st refund call") for line in shown)


def test_the_step_moves_by_arrows_and_stops_at_the_ends(viewer: Viewer, found: Counterexample) -> None:
    last = len(found.run.records) - 1
    view = after(viewer, ["g", "up", "k"])
    assert view.chosen == 0
    assert after(viewer, ["down", "j", "up"], view).chosen == 1
    assert after(viewer, ["G", "down", "pagedown"], view).chosen == last
    assert after(viewer, ["home"], after(viewer, ["end"])).chosen == 0


def test_a_step_is_expanded_to_all_arguments_and_the_whole_reply() -> None:
    @mat.tool(effect="write")
    def refund(order: str) -> str:
        return "yes" * 100

    once = mat.contract("none", mat.temporal.always(~mat.temporal.tool_call("refund")))
    with mat.run([once]) as run, mat.agent("clerk"):
        refund("A" * 300)
    assert run.result is not None
    viewer = Viewer(run.result, run.result.failures[0])
    view = after(viewer, ["enter"])
    text = "".join(line.strip() for line in lines(viewer, view))
    assert "A" * 300 in text
    assert "yes" * 100 in text
    assert "A" * 300 not in "".join(lines(viewer, after(viewer, ["enter"], view)))
    assert after(viewer, ["e"]).expanded == frozenset(range(len(run.result.records)))


def test_a_search_goes_round_and_says_what_is_not_there(viewer: Viewer, found: Counterexample) -> None:
    places = [place for place, record in enumerate(found.run.records) if record.action.name == "refund"]
    assert len(places) >= 2
    view = after(viewer, ["g", "/", *"REFUND", "enter"])
    assert view.chosen in places
    again = after(viewer, ["n"], view)
    assert again.chosen != view.chosen
    assert after(viewer, ["N"], again).chosen == view.chosen
    missing = after(viewer, ["/", *"no such", "enter"])
    assert missing.chosen == viewer.begin().chosen
    assert "not found: no such" in lines(viewer, missing)[-1]
    assert after(viewer, ["/", "a", "q", "escape"]).done is False  # letters are typed, not commands
    typing = after(viewer, ["/", "a", "b", "backspace"])
    assert lines(viewer, typing)[-1] == "/a"
    assert after(viewer, ["n"]).said.startswith("nothing was searched for")


def test_the_next_fault_is_found(viewer: Viewer, found: Counterexample) -> None:
    view = after(viewer, ["g", "f"])
    assert found.run.records[view.chosen].faults
    assert "fault service.lost_ack" in chosen(viewer, view)


def test_the_comparison_marks_what_differs_from_the_nominal_run(viewer: Viewer, found: Counterexample, shop_tests: Any) -> None:
    view = after(viewer, ["d"])
    rows = viewer.rows(view)
    assert [row.record for row in rows if row.mark != "-"] == list(found.run.records)
    assert rows[view.chosen].record.step == found.verdict.step  # the same step as before
    assert "+" in {row.mark for row in rows}
    (differs,) = [row for row in rows if row.mark == "~" and row.record.faults]
    assert differs.other is not None
    assert differs.other.observation.error is None
    nominal = shop_tests.run()
    assert all(row.record in nominal.records for row in rows if row.mark == "-")
    assert after(viewer, ["d"], view).compares is False
    alone = Viewer(found.run, found.verdict)
    assert "the nominal run is not known" in lines(alone, after(alone, ["d"]))[-1]


def test_help_is_left_by_any_key_and_q_quits(viewer: Viewer) -> None:
    helped = after(viewer, ["?"])
    assert any(line.startswith("q ") for line in lines(viewer, helped))
    assert after(viewer, ["x"], helped).helps is False
    assert after(viewer, ["q"], helped).done
    assert after(viewer, ["q"]).done
    assert after(viewer, ["", "escape", "ü", "\t"]) == viewer.begin()


@pytest.mark.parametrize(("width", "height"), [(20, 3), (40, 8), (60, 10), (200, 50)])
def test_the_chosen_step_is_on_every_screen(viewer: Viewer, found: Counterexample, width: int, height: int) -> None:
    for keys in ([], ["e"], ["d"], ["d", "e"]):
        view = after(viewer, ["g", *keys], height=height)
        for _ in found.run.records:
            view = viewer.fitted(viewer.pressed(view, "down", height=height), width=width, height=height)
            shown = viewer.screen(view, width=width, height=height)
            assert sum(line.tone == "chosen" for line in shown) == 1
            assert all(line.text.isprintable() for line in shown)


def test_text_of_agents_cannot_move_the_cursor(found: Counterexample) -> None:
    evil = "\x1b[2J\x07\u202e\n"
    verdict = replace(found.verdict, message=evil, repair=evil)
    first = found.run.records[0]
    records = (replace(first, agent=evil, site=evil, action=replace(first.action, name=evil)), *found.run.records[1:])
    viewer = Viewer(replace(found.run, records=records), verdict)
    view = after(viewer, ["e", "/", *"\u202e", "enter"])
    assert all(line.isprintable() for line in lines(viewer, view, height=200))


def test_a_run_without_steps_is_shown(found: Counterexample) -> None:
    viewer = Viewer(replace(found.run, records=()), found.verdict)
    for key in ("down", "v", "f", "n", "e", "enter", "d", "G", "/", "?"):
        assert lines(viewer, after(viewer, [key]))

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.boundary.port import Port
from mat.core.codec import encode
from mat.core.errors import MatError, SpecError
from mat.core.run import TapeEntry
from mat.evidence import replay_file
from mat.evidence.astest import Argument, CollectedTest, as_test, file_name, literal, subject_from, taped
from mat.evidence.replay_file import Replay

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
EVIL = 'x"""\n\'\'\'\\ \u2028import os; os.system("echo") #\x1b[2J\u202e{name}'


@pytest.fixture
def subject(shop_tests: Any) -> CollectedTest:
    return CollectedTest(
        file="test_shop.py", function="test_refund", module="test_shop",
        arguments=(Argument(name="mat_run", kind="run"), Argument(name="once", kind="contract")), armed=("refund.once",),
    )  # fmt: skip


def with_message(replay: Replay, text: str) -> Replay:
    verdict = replace(replay.counterexample.verdict, message=text, repair=text)
    return replace(replay, counterexample=replace(replay.counterexample, verdict=verdict))


@given(VALUES)
def test_a_literal_reads_back_as_the_same_value_on_one_line_of_ascii(value: object) -> None:
    text = literal(value)
    assert ast.literal_eval(text) == value
    assert text.isascii()
    assert text.isprintable()


@pytest.mark.parametrize("value", [float("inf"), float("nan"), [float("nan")], object(), {"x": float("-inf")}])
def test_what_has_no_literal_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match="cannot be written as a literal"):
        literal(value)


def test_the_text_is_short_python_with_schedule_seed_and_contract_in_sight(replay: Replay, subject: CollectedTest) -> None:
    text = as_test(replay, subject, name="x.mat.json", said=["the reply is lost"])
    tree = ast.parse(text)
    values = {node.targets[0].id: ast.get_source_segment(text, node.value) for node in tree.body
              if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}  # fmt: skip
    assert (values["SEED"], values["CONTRACT"]) == ("0", '"refund.once"')
    assert eval(values["SCHEDULE"] or "", {"mat": mat}) == list(replay.counterexample.run.spec.schedule)
    assert "# - the reply is lost\n" in text
    assert len(text.splitlines()) < 60
    assert max(map(len, text.splitlines())) <= 128
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert function.name == "test_refund_keeps_refund_once_under_lost_ack"


def test_equal_replays_give_equal_text(replay: Replay, subject: CollectedTest) -> None:
    assert as_test(replay, subject, name="x") == as_test(replay, subject, name="x")


def test_nothing_that_a_replay_file_says_becomes_code(replay: Replay, subject: CollectedTest) -> None:
    calm = ast.dump(ast.parse(as_test(replay, subject, name="x.mat.json")))
    text = as_test(with_message(replay, EVIL), subject, name="x.mat.json", said=[EVIL])
    assert ast.dump(ast.parse(text)) == calm
    assert text.isascii() or all(character.isprintable() or character == "\n" for character in text)


def test_a_hostile_site_and_parameter_stay_text(shop_tests: Any, subject: CollectedTest) -> None:
    from mat.core.site import Site

    run = shop_tests.run(schedule=[shop_tests.lost_ack()])
    site = Site(agent=EVIL, boundary="prompt", name=EVIL, nth=1, last=1)
    schedule = mat.spec.schedule([mat.spec.perturbation("prompt.splice", site, {"text": EVIL, "more": "y" * 200}, cost=1)])
    replay = shop_tests.replay_of(replace(run, spec=replace(run.spec, schedule=schedule)))
    text = as_test(replay, subject, name="x")
    values = {node.targets[0].id: ast.get_source_segment(text, node.value) for node in ast.parse(text).body
              if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}  # fmt: skip
    assert eval(values["SCHEDULE"] or "", {"mat": mat}) == list(schedule)


def test_all_that_cannot_be_carried_over_is_listed_at_once(replay: Replay, subject: CollectedTest) -> None:
    with pytest.raises(SpecError) as caught:
        as_test(replay, replace(subject, problems=("one thing", "another"), armed=()), name="x")
    for said in ("one thing", "another", "'refund.once' no longer judges it"):
        assert said in caught.value.what


def test_an_expected_violation_is_a_strict_xfail_and_another_is_none(replay: Replay, subject: CollectedTest) -> None:
    assert "xfail" not in as_test(replay, subject, name="x")
    text = as_test(replace(replay, expected=True), subject, name="x")
    assert '@pytest.mark.xfail(raises=AssertionError, strict=True, reason="known: it breaks refund.once")' in text


def test_horizon_and_clock_are_carried_over_where_they_are_not_the_usual(replay: Replay, subject: CollectedTest) -> None:
    assert "horizon" not in as_test(replay, subject, name="x")
    run = replay.counterexample.run
    other = replace(run, spec=replace(run.spec, horizon_steps=50, clock="real"))
    text = as_test(replace(replay, counterexample=replace(replay.counterexample, run=other)), subject, name="x")
    assert 'mat.run(contracts, seed=SEED, schedule=SCHEDULE, horizon=50, clock="real")' in text


def test_a_lost_task_is_a_test_whose_body_must_come_to_its_end(replay: Replay, subject: CollectedTest) -> None:
    verdict = replace(replay.counterexample.verdict, contract="task")
    text = as_test(replace(replay, counterexample=replace(replay.counterexample, verdict=verdict)), subject, name="x")
    assert "except Exception" not in text
    assert "# must finish" in text
    assert "assert run.result.term" in text


ENTRY = TapeEntry(site="main/service:ask#1", request="r" * 64, mode="external", value="sunny")


def taped_replay(replay: Replay, *entries: TapeEntry) -> Replay:
    run = replace(replay.counterexample.run, tape=entries)
    return replace(replay, counterexample=replace(replay.counterexample, run=run))


def test_only_replies_of_external_ports_need_a_tape(replay: Replay, subject: CollectedTest) -> None:
    own = replace(ENTRY, mode="inprocess")
    assert "taped" not in as_test(taped_replay(replay, own, replace(ENTRY, opaque=True)), subject, name="x")
    text = as_test(taped_replay(replay, own, ENTRY), subject, name="x.mat.json")
    assert 'tape = taped(Path(__file__).parent / "mat_replays" / "x.mat.json")' in text


def test_an_embedded_tape_serves_what_was_recorded_and_refuses_the_rest(replay: Replay, subject: CollectedTest) -> None:
    second = replace(ENTRY, site="main/service:ask#2", value=EVIL)
    text = as_test(taped_replay(replay, ENTRY, second), subject, name="x", embed=True)
    values = {node.targets[0].id: node.value for node in ast.parse(text).body
              if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}  # fmt: skip
    tape = taped(ast.literal_eval(values["TAPE"]))
    port = Port(name="ask", boundary="service", kind="tool_call")
    assert [getattr(tape.serve(port, one.site, one.request), "value", None) for one in (ENTRY, second)] == ["sunny", EVIL]
    with pytest.raises(MatError, match="no taped reply"):
        tape.serve(port, "main/service:ask#3", "another")
    assert tape.refused is not None


def test_a_tape_is_read_from_its_replay_file(replay: Replay, tmp_path: Path) -> None:
    path = tmp_path / "x.mat.json"
    replay_file.write(path, taped_replay(replay, ENTRY))
    assert len(taped(path)) == 1


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"site": 1}]', "[" * 200 + "]" * 200])
def test_a_tape_that_is_none_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(MatError):
        taped(text)


def test_a_subject_survives_its_way_through_json(subject: CollectedTest) -> None:
    assert subject_from(json.dumps(encode(subject))) == subject


def test_the_file_is_named_like_the_replay(replay: Replay) -> None:
    assert file_name(replay) == f"test_refund_{replay_file.short_id(replay)}.py"
    odd = replace(replay, item="tests/test_x.py::test_Größe/../..[a]")
    assert "/" not in file_name(odd)
    assert file_name(odd).removesuffix(".py").isidentifier()

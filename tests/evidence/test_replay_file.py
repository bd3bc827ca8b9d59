from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mat
from mat.boundary.catalog import operator
from mat.boundary.effect import Replace
from mat.core import limits
from mat.core.errors import ReplayError
from mat.evidence import replay_file

ORDER = [
    "mat", "verdict", "violations", "signature", "cost", "schedule", "certificate", "spec", "stability", "head", "expected",
    "result", "tape", "records",
]  # fmt: skip


def test_the_keys_stand_in_the_order_of_the_format(replay: replay_file.Replay) -> None:
    data = json.loads(replay_file.pack(replay))
    assert list(data) == ORDER
    assert list(data["verdict"]) == ["contract", "severity", "stage", "step", "agent", "role", "message"]
    assert [list(item) for item in data["violations"]] == [list(data["verdict"])]
    assert list(data["signature"]) == ["contract", "severity", "action_kind", "interface", "risk", "operator_family"]
    assert [list(item) for item in data["schedule"]] == [["operator", "site", "parameters", "cost", "step"]]
    assert list(data["certificate"])[:8] == ["proven", "reason", "bound", "executions", "states", "skipped", "grid", "seeds"]
    assert list(data["spec"])[:3] == ["task", "config", "seed"]
    assert data["schedule"][0]["step"] == 0
    assert data["cost"] == 4
    assert data["verdict"]["contract"] == "refund.once"


def test_each_key_and_each_record_has_its_own_line(replay: replay_file.Replay) -> None:
    lines = replay_file.pack(replay).splitlines()
    for key in ORDER:
        assert sum(line.startswith(f'"{key}": ') for line in lines) == 1
    assert sum(line.startswith(' {"step": ') for line in lines) == len(replay.counterexample.run.records)


def test_equal_content_is_equal_bytes_whatever_the_order_of_the_arguments(shop_tests: Any) -> None:
    texts = set()
    for config in ({"a": 1, "b": {"x": 1, "y": 2}}, {"b": {"y": 2, "x": 1}, "a": 1}):
        with mat.run(
            [shop_tests.contract], task="t.py::test", schedule=[shop_tests.lost_ack()], operators=[shop_tests.operator],
            config=config,
        ) as run:  # fmt: skip
            shop_tests.body()
        assert run.result is not None
        texts.add(replay_file.pack(shop_tests.replay_of(run.result)))
    assert len(texts) == 1


def test_unpacking_gives_back_the_same_run_and_the_same_head(replay: replay_file.Replay) -> None:
    again = replay_file.unpack(replay_file.pack(replay), where="x")
    one, other = replay.counterexample.run, again.counterexample.run
    assert other.head == one.head
    assert other.records == one.records
    assert other.tape == one.tape
    assert other.spec == one.spec
    assert other.violations == one.violations
    assert again.counterexample.verdict == replay.counterexample.verdict
    assert (other.termination, other.success, other.error, other.elapsed_ms, other.unreached) == (
        one.termination, one.success, one.error, one.elapsed_ms, one.unreached,
    )  # fmt: skip
    assert again.certificate == replay.certificate
    assert again.counterexample.stability == replay.counterexample.stability


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.binary(max_size=8)
    | st.text(st.characters(exclude_categories=()), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.sampled_from(["$bytes", "$float", "$$", "$set"]), inner, max_size=3)
    ),
    max_leaves=8,
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("call"), values, values),
        st.tuples(st.just("fail"), st.text(max_size=6), st.none()),
        st.tuples(st.just("claim"), st.text(max_size=6), st.none()),
        st.tuples(st.just("state"), st.integers(), st.none()),
        st.tuples(st.just("message"), st.text(max_size=6), st.none()),
        st.tuples(st.just("retry"), st.none(), st.none()),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps, agent=st.text(min_size=1, max_size=6), replaced=values, seed=st.integers(0, 10**6), ends=st.booleans())
def test_a_packed_run_of_any_content_comes_back_with_its_head(
    steps: list[tuple[str, Any, Any]], agent: str, replaced: Any, seed: int, ends: bool
) -> None:
    replies: list[Any] = []

    @mat.tool(effect="write")
    def store(value: Any) -> Any:
        if replies and replies[-1] is KeyError:
            raise KeyError(value)
        return replies[-1]

    stale = operator("service.stale", lambda call, reply, stream: Replace(replaced), grid=[{"value": replaced}], phase="after")
    site = mat.spec.Site(agent=agent, boundary="service", name="store", nth=1, last=2)
    broken = mat.trace_contract(id="always.broken")(lambda state, record: mat.Violated(f"step {record.step}", instance=agent))
    schedule = [mat.spec.perturbation("service.stale", site, {"value": replaced}, cost=4)]
    with mat.run([broken], task="t.py::test_any", seed=seed, schedule=schedule, operators=[stale]) as run, mat.agent(agent):
        for kind, one, other in steps:
            if kind == "call":
                replies.append(other)
                store(one)
            elif kind == "fail":
                replies.append(KeyError)
                with suppress(KeyError):
                    store(one)
            elif kind == "claim":
                mat.claim(one, supports=replies[-1:])
            elif kind == "state":
                mat.state(count=one)
            elif kind == "message":
                mat.message("user", one)
            else:
                mat.mitigate("retry", after=one)
        if ends:
            mat.finish(replies[-1] if replies and replies[-1] is not KeyError else None)
    result = run.result
    assert result is not None
    replay = replay_file.Replay(
        item="t.py::test_any",
        counterexample=mat_counterexample(result),
        certificate=replay_file.Certificate(proven=False, reason="not finished"),
    )
    text = replay_file.pack(replay)
    again = replay_file.unpack(text, where="x")
    assert again.counterexample.run.head == result.head
    assert again.counterexample.run.records == result.records
    assert again.counterexample.run.tape == result.tape
    assert again.counterexample.run.unreached == result.unreached
    assert again.counterexample.run.violations == result.violations
    assert replay_file.pack(again) == text


def mat_counterexample(run: mat.Run) -> replay_file.Counterexample:
    return replay_file.Counterexample(verdict=run.violations[-1], run=run)


def test_a_file_cut_at_any_byte_is_refused_as_a_replay_error(replay: replay_file.Replay) -> None:
    text = replay_file.pack(replay)
    for end in range(len(text) - 1):  # without its last newline it is still whole
        with pytest.raises(ReplayError):
            replay_file.unpack(text[:end], where="cut.mat.json")
    assert replay_file.unpack(text[:-1], where="whole").item == replay.item


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_part_replaced_by_anything_gives_a_replay_or_a_replay_error(replay: replay_file.Replay, data: st.DataObject) -> None:
    file = json.loads(replay_file.pack(replay))
    place: Any = file
    for _ in range(data.draw(st.integers(0, 4))):
        inner = list(place) if isinstance(place, dict) else list(range(len(place)))
        chosen = [key for key in inner if isinstance(place[key], dict | list) and place[key]]
        if not chosen:
            break
        place = place[data.draw(st.sampled_from(chosen))]
    key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else list(range(len(place)))))
    place[key] = data.draw(JSON)
    with suppress(ReplayError):
        replay_file.pack(replay_file.unpack(json.dumps(file), where="x"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nothing", ""),
        ("not an object", "[1, 2]"),
        ("a scalar", "7"),
        ("deep lists", "[" * 200_000),
        ("deep objects", '{"mat": 2, "spec": ' + '{"a": ' * 3_000 + "1" + "}" * 3_001),
        ("a number of 5000 digits", '{"mat": ' + "9" * 5_000 + "}"),
        ("no version", '{"verdict": {}}'),
        ("version true", '{"mat": true}'),
        ("version as text", '{"mat": "1"}'),
        ("only the version", '{"mat": 2}'),
        ("lone surrogates", '{"mat": 2, "head": "\\ud800", "\\udfff": 2}'),
        ("not a number", '{"mat": NaN}'),
    ],
)
def test_hostile_text_is_refused_as_a_replay_error(name: str, text: str) -> None:
    with pytest.raises(ReplayError) as caught:
        replay_file.unpack(text, where="evil.mat.json")
    assert caught.value.where == "evil.mat.json"
    assert caught.value.fix


def test_a_file_larger_than_the_limit_is_refused_without_being_parsed(tmp_path: Path) -> None:
    path = tmp_path / "huge.mat.json"
    with path.open("wb") as stream:
        stream.truncate(limits.FILE_BYTES + 10)
    with pytest.raises(ReplayError, match="limit"):
        replay_file.read(path)


@pytest.mark.parametrize(
    ("version", "advice"), [(3, "upgrade"), (1, "pytest --mat-stress"), (0, "pytest --mat-stress"), (-1, "pytest --mat-stress")]
)
def test_another_format_version_is_refused_with_its_number_and_a_way_out(
    replay: replay_file.Replay, version: int, advice: str
) -> None:
    file = json.loads(replay_file.pack(replay)) | {"mat": version}
    with pytest.raises(ReplayError) as caught:
        replay_file.unpack(json.dumps(file), where="x")
    assert f"format {version}" in caught.value.what
    assert advice in caught.value.fix


def changed(replay: replay_file.Replay, path: str, value: Any) -> str:
    file = json.loads(replay_file.pack(replay))
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    place = file
    for part in parents:
        place = place[part]
    place[last] = value
    return json.dumps(file)


@pytest.mark.sweep(
    ("path", "value", "said"),
    [
        ("surprise", 1, "surprise"),
        ("verdict/surprise", 1, "verdict.surprise"),
        ("certificate/surprise", 1, "certificate.surprise"),
        ("stability/surprise", 1, "stability.surprise"),
        ("records/0/surprise", 1, "records.0.surprise"),
        ("cost", 5, "cost"),
        ("cost", "many", "cost"),
        ("head", "0" * 64, "head"),
        ("spec/seed", 1, "head"),
        ("spec/task", "other.py::test", "head"),
        ("spec/task", "a\nb", "control characters"),
        ("spec/horizon_steps", 0, "horizon_steps"),
        ("signature/risk", "low", "signature"),
        ("schedule/0/operator", "os.system('x')", "boundary.name"),
        ("schedule/0/operator", "memory.insert", "cannot bind"),
        ("schedule/0/site", "mailer/nowhere:refund#1", "not a site"),
        ("schedule/0/site", "../../etc", "not a site"),
        ("schedule/0/cost", -4, "negative"),
        ("schedule/0/step", 2, "schedule"),
        ("schedule/0/parameters", [], "parameters"),
        ("records/1/step", 7, "numbered"),
        ("records/0/action/arguments/amount", 1_000_000, "head"),
        ("records/0/action/kind", "rm", "records.0.action.kind"),
        ("records/0/state", {"x": {"$bytes": "###"}}, "records.0.state"),
        ("verdict/message", "all is well", "verdict"),
        ("result/verdict", 9, "result.verdict"),
        ("result/explained", [], "result.explained"),
        ("result/contracts", [], "armed"),
    ],
)
def test_a_part_that_cannot_be_is_named(replay: replay_file.Replay, path: str, value: Any, said: str) -> None:
    with pytest.raises(ReplayError) as caught:
        replay_file.unpack(changed(replay, path, value), where="x")
    assert said in caught.value.what


def test_every_problem_is_listed_not_only_the_first(replay: replay_file.Replay) -> None:
    file = json.loads(changed(replay, "cost", "many"))
    file["stability"]["runs"] = None
    del file["head"]
    with pytest.raises(ReplayError) as caught:
        replay_file.unpack(json.dumps(file), where="x")
    assert all(name in caught.value.what for name in ("cost", "stability.runs", "head"))


def test_two_perturbations_at_one_site_are_refused(replay: replay_file.Replay) -> None:
    file = json.loads(replay_file.pack(replay))
    file["schedule"].append(dict(file["schedule"][0], operator="service.stale"))
    with pytest.raises(ReplayError, match="share"):
        replay_file.unpack(json.dumps(file), where="x")


def test_operators_need_not_be_registered_to_read_a_file(replay: replay_file.Replay) -> None:
    text = replay_file.pack(replay).replace("service.lost_ack", "service.of_tomorrow")
    with pytest.raises(ReplayError, match="head"):  # the name is a fact of the run; nothing else is complained about
        replay_file.unpack(text, where="x")


def test_a_verdict_of_another_run_cannot_be_packed(replay: replay_file.Replay, shop_tests: Any) -> None:
    fine = shop_tests.run()
    stray = replay_file.Counterexample(verdict=replay.counterexample.verdict, run=fine)
    with pytest.raises(ReplayError, match="not one of the run's violations"):
        replay_file.pack(replay_file.Replay(item=replay.item, counterexample=stray, certificate=replay.certificate))


def test_the_item_must_be_the_task_of_the_run(replay: replay_file.Replay) -> None:
    wrong = replay_file.Replay(item="other.py::test", counterexample=replay.counterexample, certificate=replay.certificate)
    with pytest.raises(ReplayError, match="node id"):
        replay_file.pack(wrong)


def test_the_file_is_ascii_so_that_no_invisible_character_hides_in_a_review(shop_tests: Any) -> None:
    run = shop_tests.run(
        lambda: (mat.claim("\u202egnp.\u200b"), shop_tests.body())[0], schedule=[shop_tests.lost_ack()]
    )  # fmt: skip
    text = replay_file.pack(shop_tests.replay_of(run))
    assert text.isascii()
    assert replay_file.unpack(text, where="x").counterexample.run.head == run.head


# -- files ------------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_back_and_found(replay: replay_file.Replay, tmp_path: Path) -> None:
    path = tmp_path / replay_file.FOLDER / replay_file.name_of(replay)
    replay_file.write(path, replay)
    assert replay_file.pack(replay_file.read(path)) == replay_file.pack(replay)
    (path.parent / "notes.txt").write_text("x")
    assert replay_file.find(tmp_path) == [path]
    assert replay_file.find(tmp_path / "nowhere") == []


def test_found_files_come_sorted_by_name(replay: replay_file.Replay, tmp_path: Path) -> None:
    folder = tmp_path / replay_file.FOLDER
    for name in ("b", "a", "c"):
        replay_file.write(folder / f"{name}.mat.json", replay)
    assert [path.name for path in replay_file.find(tmp_path)] == ["a.mat.json", "b.mat.json", "c.mat.json"]


def test_a_write_that_fails_leaves_the_old_file_whole_and_no_draft(
    replay: replay_file.Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.mat.json"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReplayError, match="No space left"):
        replay_file.write(path, replay)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.mat.json"]


def test_a_reader_never_meets_half_a_file_while_it_is_rewritten(replay: replay_file.Replay, tmp_path: Path) -> None:
    path = tmp_path / "x.mat.json"
    replay_file.write(path, replay)
    whole, seen, done = replay_file.pack(replay), set(), threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(30):
        replay_file.write(path, replay)
    done.set()
    reader.join()
    assert seen <= {whole}


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x80abc"])
def test_a_file_that_is_no_text_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.mat.json"
    path.write_bytes(content)
    with pytest.raises(ReplayError) as caught:
        replay_file.read(path)
    assert caught.value.where == str(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.mat.json"):
        with pytest.raises(ReplayError, match="no replay file"):
            replay_file.read(path)


def test_the_name_holds_the_test_function_and_six_hex_digits(replay: replay_file.Replay) -> None:
    name = replay_file.name_of(replay)
    assert name == f"test_refund-{replay_file.short_id(replay)}.mat.json"
    assert len(replay_file.short_id(replay)) == 6
    assert int(replay_file.short_id(replay), 16) >= 0


@pytest.mark.parametrize(
    ("item", "function"),
    [
        ("t.py::test_a[x::y/../z]", "test_a"),
        ("t.py::A::B::test_a", "test_a"),
        ("t.py::../../evil", "evil"),
        ("t.py::test_ü b", "test__b"),
        ("t.py", "t.py"),
        ("t.py::...", "replay"),
    ],
)
def test_the_name_is_safe_whatever_the_node_id_holds(shop_tests: Any, item: str, function: str) -> None:
    replay = shop_tests.replay_of(shop_tests.run(schedule=[shop_tests.lost_ack()], task=item))
    name = replay_file.name_of(replay)
    assert name == f"{function}-{replay_file.short_id(replay)}.mat.json"
    assert Path(name).name == name
    assert name.isascii()


def test_the_short_id_tells_schedules_and_items_apart_and_nothing_else(shop_tests: Any) -> None:
    one = shop_tests.replay_of(shop_tests.run(schedule=[shop_tests.lost_ack()]))
    other_seed = shop_tests.replay_of(shop_tests.run(schedule=[shop_tests.lost_ack()], seed=5))
    other_item = shop_tests.replay_of(shop_tests.run(schedule=[shop_tests.lost_ack()], task="t.py::test_other"))
    twice = shop_tests.replay_of(
        shop_tests.run(lambda: shop_tests.body(retries=2), schedule=[shop_tests.lost_ack(), shop_tests.lost_ack(2)])
    )
    assert replay_file.short_id(one) == replay_file.short_id(other_seed)
    assert len({replay_file.short_id(item) for item in (one, other_item, twice)}) == 3


def test_a_perturbation_that_was_not_reached_has_no_step(shop_tests: Any) -> None:
    run = shop_tests.run(schedule=[shop_tests.lost_ack(), shop_tests.lost_ack(9)])
    text = replay_file.pack(shop_tests.replay_of(run))
    assert [item["step"] for item in json.loads(text)["schedule"]] == [0, None]
    assert replay_file.unpack(text, where="x").counterexample.run.unreached == run.unreached


def test_a_hostile_name_in_a_file_cannot_write_to_the_terminal(replay: replay_file.Replay) -> None:
    for path in ("\x1b[2J", "records/0/\x1b]0;x\x07", "result/contracts/0/\u202e"):
        with pytest.raises(ReplayError) as caught:
            replay_file.unpack(changed(replay, path, 1), where="x")
        assert caught.value.what.isprintable()

"""A search that is killed goes on: nothing is lost, nothing is executed twice, and what does not fit is not used."""

from __future__ import annotations

import dataclasses
import json
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mat
from mat.boundary.catalog import Catalog
from mat.boundary.effect import Raise
from mat.core import checkpoint, limits, packed
from mat.core.errors import CodecError
from mat.core.packed import pack, unpack
from mat.core.record import Link
from mat.core.run import EquivalenceClass, Finding, prefixes
from mat.core.spec import NO_SCHEDULE
from mat.core.value import FrozenDict, FrozenList, snapshot
from mat.core.verdict import ContractOutcome, Obligation, Violation
from mat_search import Campaign, search
from mat_search.journal import open_journal

OPERATORS = Catalog([
    mat.spec.operator("service.timeout", lambda call, reply, stream: Raise("timeout", delay_ms=1_000)),
    mat.spec.operator("service.lost_ack", lambda call, reply, stream: Raise("timeout", delay_ms=1_000), phase="after"),
])  # fmt: skip
SPECS = tuple(operator.spec() for operator in OPERATORS)
KEY = {"item": "here"}


@mat.tool(effect="write", impact="high")
def pay(order):
    return {"paid": order, "$tag": [1, 1.0, True, None], "note": "ünïcode \ud800 $5"}


@mat.trace_contract(start=frozenset())
def once(seen, record):
    if record.action.name != "pay" or record.effected != "yes":
        return seen
    order = record.action.arguments["order"]
    return mat.Violated("paid twice") if order in seen else seen | {order}


def evaluate(spec):
    with mat.run([once], schedule=spec.schedule, seed=spec.seed, operators=OPERATORS, states=True) as run:
        for order in ("a", "b", "c"):
            for _ in range(2):
                with suppress(TimeoutError):
                    pay(order)
                    break
    return run.result


NOMINAL = evaluate(mat.spec.RunSpec())
SPEC = NOMINAL.spec


def under(*sites, operator="service.lost_ack"):
    return mat.spec.Schedule(tuple(mat.spec.perturbation(operator, f"main/service:pay#{nth}", cost=4) for nth in sites))


def reread(run, spec=SPEC):
    return unpack(json.loads(pack(run, spec)), spec)


def equal(one, other):
    """Equal to the last type: 1, 1.0 and True are told apart, and so are the keys' order and what is not a number."""
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one):
        return all(equal(getattr(one, each.name), getattr(other, each.name)) for each in dataclasses.fields(one))
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other or (one != one and other != other)


# -- packing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [NO_SCHEDULE, under(1), under(1, 3), under(2, operator="service.timeout")])
def test_a_run_comes_back_as_it_was(schedule):
    run = evaluate(mat.spec.RunSpec(schedule=schedule))
    back = reread(run)
    assert equal(back, run)
    assert (back.head, back.view, prefixes(back)) == (run.head, run.view, prefixes(run))


def test_every_field_of_a_run_comes_back_whatever_it_holds():
    violation = Violation(
        contract="once", severity="hard", stage="effected", step=1, agent="main", role="payer", message="paid", weight=5,
        region=(0, 1), witness=(0, 1), instance="a", wanted="one",
    )  # fmt: skip
    waiting = Obligation(text="must pay", since=2, met=True)
    outcome = ContractOutcome(contract="once", severity="hard", outcome="fail", violations=(violation,), open=(waiting,))
    found = EquivalenceClass(
        site="s", operator="o", parameters=FrozenDict(ms=1), local=True, effect=(FrozenDict(ms=2), FrozenDict())
    )
    record = dataclasses.replace(
        NOMINAL.records[0], role="payer", state=FrozenDict(left=2), links=(Link(src="a", rel="used", dst="b"),),
        executed=FrozenDict(), raw=dataclasses.replace(NOMINAL.records[0].observation, chunks=0, usage=FrozenDict(tokens=3)),
        taped=True,
    )  # fmt: skip
    run = dataclasses.replace(
        NOMINAL, records=(record, *NOMINAL.records[1:]), success=False, error="no", findings=(Finding(code="a", message="b"),),
        outcomes=(outcome,),
        contended=(1, 2), margins=FrozenDict(once=-3), complete=True, clocked=False, unreached=tuple(under(9)),
        restricted=FrozenDict({"service:pay": FrozenList(["service.timeout"])}),
        equivalence_classes=(found,),
    )  # fmt: skip
    assert equal(reread(run), run)
    other = dataclasses.replace(run, spec=dataclasses.replace(SPEC, task="another", seed=3, schedule=under(1)))
    assert equal(reread(other), other)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just("$bytes"), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_every_recorded_value_comes_back_exactly(value):
    record = NOMINAL.records[0]
    observation = dataclasses.replace(record.observation, value=snapshot(value))
    run = dataclasses.replace(NOMINAL, records=(dataclasses.replace(record, observation=observation),))
    assert equal(reread(run), run)


LACKING = {"nan": math.nan, "inf": math.inf, "-0": -0.0, "huge": 10**5000, "bytes": b"\xff", "tag": {"$float": "nan", "$$": 2}}


@pytest.mark.parametrize("value", LACKING.values(), ids=LACKING)
def test_what_json_lacks_comes_back_too(value):
    record = dataclasses.replace(NOMINAL.records[0], state=FrozenDict(value=snapshot(value)))
    run = dataclasses.replace(NOMINAL, records=(record,))
    back = reread(run)
    assert equal(back, run)
    assert math.copysign(1, value) == math.copysign(1, back.records[0].state["value"]) if value == 0.0 else True


@given(st.data())
def test_text_that_no_run_packs_to_is_refused_or_is_a_run(data):
    """Whatever one part is replaced by, nothing but a run or a CodecError comes out."""
    whole = json.loads(pack(NOMINAL, SPEC))
    part, steps = whole, data.draw(st.integers(1, 6))
    for _ in range(steps):
        if not isinstance(part, list) or not part:
            break
        index = data.draw(st.integers(0, len(part) - 1))
        if isinstance(part[index], list) and part[index] and _ < steps - 1:
            part = part[index]
        else:
            part[index] = data.draw(st.sampled_from([None, True, 3, "x", [], {}, {"$bytes": "!"}, [1, 2], {"$no": 1}]))
            break
    with suppress(CodecError):
        assert isinstance(unpack(whole, SPEC), mat.Run)


def test_a_run_that_holds_what_no_run_holds_is_not_packed():
    with pytest.raises(CodecError):
        pack(dataclasses.replace(NOMINAL, error=object()), SPEC)


def test_each_class_of_a_run_is_known_to_the_packer():
    assert packed._packer(mat.Run, "value")(NOMINAL)  # an AssertionError names a kind of field it does not know


# -- the file -----------------------------------------------------------------------------------------------------------


def kept(path, *schedules, key=KEY, **options):
    journal = open_journal(path, SPEC, key=key, **options)
    for schedule in schedules:
        journal.keep("explore", schedule, evaluate(mat.spec.RunSpec(schedule=schedule)))
    journal.close()
    return path


def test_what_was_kept_is_given_back_once_and_by_kind(tmp_path):
    path = kept(tmp_path / "j.jsonl", NO_SCHEDULE, under(1), under(1))
    journal = open_journal(path, SPEC, key=KEY)
    assert (journal.found, journal.note) == (3, "")
    assert journal.holds("explore", under(1))
    assert not journal.holds("plain", under(1))
    assert journal.recall("plain", under(1)) is None
    first, second, third = (journal.recall("explore", under(1)) for _ in range(3))
    assert first == second == evaluate(mat.spec.RunSpec(schedule=under(1)))
    assert third is None
    assert not journal.holds("explore", under(1))
    assert journal.recalled == 2


def test_every_line_is_json_and_says_what_it_is(tmp_path):
    lines = [json.loads(line) for line in kept(tmp_path / "j.jsonl", under(1)).read_text().splitlines()]
    assert lines[0][2]["key"] == KEY
    assert [sorted(content) for _, _, content in lines] == [["format", "key", "kind", "version"], ["kind", "more", "of", "run"]]


def test_a_line_is_on_disk_when_keep_returns(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = open_journal(path, SPEC, key=KEY)
    for count in range(1, 4):
        journal.keep("explore", under(count), NOMINAL)
        assert len(path.read_bytes().splitlines()) == 1 + count
    journal.close()


def test_what_may_not_count_is_written_once_it_does(tmp_path):
    """Whether an execution began as it should is known from a look at what the one before has left."""
    looks, path = [0], tmp_path / "journal.jsonl"
    journal = open_journal(path, SPEC, key=KEY, looks=lambda: looks[0])

    def kept():
        return path.read_text().count('"kind":"run"')

    journal.keep("run", under(1), evaluate(mat.spec.RunSpec(schedule=under(1))))
    journal.keep("run", under(2), evaluate(mat.spec.RunSpec(schedule=under(2))))
    assert kept() == 0
    looks[0] += 1
    journal.keep("run", under(3), evaluate(mat.spec.RunSpec(schedule=under(3))))
    assert kept() == 2
    journal.flush()
    assert kept() == 3
    looks[0] += 1
    journal.keep("run", under(4), evaluate(mat.spec.RunSpec(schedule=under(4))))
    journal.close()
    assert kept() == 3


def test_a_last_line_that_is_cut_anywhere_is_dropped_and_the_rest_stands(tmp_path):
    whole = kept(tmp_path / "whole.jsonl", NO_SCHEDULE, under(1)).read_bytes()
    path = tmp_path / "j.jsonl"
    ends = [index + 1 for index, byte in enumerate(whole) if byte == ord("\n")]
    for size in sorted({0, 1, *ends, *(end - 1 for end in ends), *random.Random(1).sample(range(len(whole)), 60)}):
        path.write_bytes(whole[:size])
        journal = open_journal(path, SPEC, key=KEY)
        lines = sum(end <= size for end in ends)
        assert (journal.found, journal.note) == (max(0, lines - 1), "")
        journal.keep("explore", under(2), NOMINAL)
        journal.close()
        again = open_journal(path, SPEC, key=KEY)
        assert (again.found, again.note) == (max(0, lines - 1) + 1, "")
        again.close()


@pytest.mark.parametrize("damage", ["flip", "remove", "repeat", "swap", "garbage"])
def test_of_a_file_damaged_in_the_middle_what_stands_before_is_used_and_the_file_is_kept(tmp_path, damage):
    path = kept(tmp_path / "j.jsonl", NO_SCHEDULE, under(1), under(2))
    lines = path.read_bytes().splitlines(keepends=True)
    if damage == "flip":
        lines[2] = lines[2].replace(b"paid", b"void", 1)
    if damage == "remove":
        del lines[2]
    if damage == "repeat":
        lines.insert(2, lines[1])
    if damage == "swap":
        lines[2], lines[3] = lines[3], lines[2]
    if damage == "garbage":
        lines.insert(2, b"\x00\xff\n")
    path.write_bytes(b"".join(lines))
    journal = open_journal(path, SPEC, key=KEY)
    assert journal.found == 1
    assert journal.note.startswith(f"an interrupted search is damaged at byte {len(lines[0] + lines[1])}: ")
    assert journal.recall("explore", under(1)) is None
    assert journal.recall("explore", NO_SCHEDULE) == NOMINAL
    journal.keep("explore", under(1), NOMINAL)
    journal.close()
    assert (tmp_path / "j.aside.jsonl").read_bytes() == b"".join(lines)
    again = open_journal(path, SPEC, key=KEY)
    assert (again.found, again.note) == (2, "")


def test_a_journal_of_the_version_before_is_set_aside_with_a_word(tmp_path):
    path = tmp_path / "j.jsonl"
    path.write_text('{"sum":"5c1d09ab77fe4f53","mat":1,"key":{"item":"here"}}\n')
    journal = open_journal(path, SPEC, key=KEY)
    assert journal.note == "an interrupted search was set aside: an older version of pytest-mat wrote it"
    assert journal.found == 0


@pytest.mark.parametrize(
    ("key", "named"),
    [({"item": "there"}, "item"), ({"item": "here", "budget": 8}, "budget"), ({}, "item"), ({"item": None}, "item")],
)
def test_another_search_does_not_get_these_executions(tmp_path, key, named):
    path = kept(tmp_path / "j.jsonl", NO_SCHEDULE)
    journal = open_journal(path, SPEC, key=key)
    assert journal.note == f"an interrupted search was set aside: it has a different {named}"
    assert journal.found == 0


def test_another_version_of_the_format_is_set_aside(tmp_path, monkeypatch):
    path = kept(tmp_path / "j.jsonl", NO_SCHEDULE)
    monkeypatch.setattr(checkpoint, "VERSION", 99)
    assert open_journal(path, SPEC, key=KEY).note.endswith("another version of pytest-mat wrote it")


def test_a_source_that_changed_sets_the_executions_aside_even_one_learned_of_later(tmp_path):
    path, versions = tmp_path / "j.jsonl", {"a.py": "1", "b.py": "1"}
    journal = open_journal(path, SPEC, key=KEY)
    journal.learn({"a.py": "1"})
    journal.keep("explore", NO_SCHEDULE, NOMINAL)
    journal.learn({"a.py": "1", "b.py": "1"})
    journal.close()
    assert len(path.read_bytes().splitlines()) == 4
    same = open_journal(path, SPEC, key=KEY, source_digest=versions.__getitem__)
    assert (same.found, same.note) == (1, "")
    same.close()
    versions["b.py"] = "2"
    other = open_journal(path, SPEC, key=KEY, source_digest=versions.__getitem__)
    assert (other.found, other.note) == (0, "an interrupted search was set aside: b.py changed since")


def test_what_travels_next_to_a_run_is_given_back_with_it(tmp_path):
    path = kept(tmp_path / "j.jsonl", under(1), more=lambda run: {"harm": run.spec.schedule.cost})
    told = []
    journal = open_journal(path, SPEC, key=KEY, restore=lambda run, data: told.append((run.spec.schedule, data)))
    journal.recall("explore", under(1))
    assert told == [(under(1), {"harm": 4})]


def test_a_second_process_goes_without_and_the_first_keeps_on(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = open_journal(path, SPEC, key=KEY)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        said, found = pool.apply(said_there, (path,))
    assert said == "another process runs the same search; executions of this process are not kept"
    journal.keep("explore", NO_SCHEDULE, NOMINAL)
    journal.close()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        said, found = pool.apply(said_there, (path,))
    assert (said, found) == ("", 1)


def said_there(path):
    journal = open_journal(path, SPEC, key=KEY)
    journal.keep("explore", under(1), NOMINAL)
    return journal.note, journal.found


def test_a_fork_that_outlives_its_process_does_not_keep_the_journal(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = open_journal(path, SPEC, key=KEY)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    journal.close()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(said_there, (path,))[0] == ""
    os.close(writing)
    os.waitpid(child, 0)
    os.close(reading)


def test_an_interrupt_while_a_line_is_written_leaves_nothing_of_it(tmp_path, monkeypatch):
    path = tmp_path / "j.jsonl"
    journal = open_journal(path, SPEC, key=KEY)
    write = os.write

    def half(descriptor, data):
        write(descriptor, bytes(data[: len(data) // 2]))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(KeyboardInterrupt):
        journal.keep("explore", under(1), NOMINAL)
    monkeypatch.undo()
    journal.keep("explore", under(2), NOMINAL)
    journal.close()
    again = open_journal(path, SPEC, key=KEY)
    assert (again.found, again.note) == (1, "")
    assert again.holds("explore", under(2))


def test_a_full_disk_ends_the_journal_and_not_the_search(tmp_path, monkeypatch):
    journal = open_journal(tmp_path / "j.jsonl", SPEC, key=KEY)

    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    result = search(NOMINAL, evaluate, Campaign(operators=SPECS, budget=4), journal=journal)
    assert result.counterexamples[0].cost == 4
    assert journal.note == "the journal could not be written: [Errno 28] No space left on device"


def test_the_size_of_a_journal_has_a_limit_with_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_BYTES", 10_000)
    journal = open_journal(tmp_path / "j.jsonl", SPEC, key=KEY)
    for _ in range(20):
        journal.keep("explore", NO_SCHEDULE, NOMINAL)
    assert journal.note == "the search log has reached its limit of 10000 bytes; later executions are not kept"
    assert (tmp_path / "j.jsonl").stat().st_size <= 10_000
    again = open_journal(tmp_path / "j.jsonl", SPEC, key=KEY)
    assert 0 < again.found < 20


def test_a_folder_that_cannot_be_written_to_means_no_journal(tmp_path):
    (tmp_path / "file").write_text("")
    journal = open_journal(tmp_path / "file" / "j.jsonl", SPEC, key=KEY)
    assert journal.note.startswith("no journal is kept: ")
    journal.keep("explore", NO_SCHEDULE, NOMINAL)
    assert journal.recall("explore", NO_SCHEDULE) is None


def test_a_finished_search_leaves_nothing(tmp_path):
    journal = open_journal(tmp_path / "j.jsonl", SPEC, key=KEY)
    journal.remove()
    assert list(tmp_path.iterdir()) == []
    journal.keep("explore", NO_SCHEDULE, NOMINAL)
    assert list(tmp_path.iterdir()) == []


def test_the_fresh_process_is_asked_only_for_what_it_has_not_executed(tmp_path):
    asked = []

    def confirm(schedules):
        asked.append(list(schedules))
        return [None if schedule == under(2) else evaluate(mat.spec.RunSpec(schedule=schedule)) for schedule in schedules]

    for expected in ([NO_SCHEDULE, under(1), under(2)], [under(2)]):
        journal = open_journal(tmp_path / "j.jsonl", SPEC, key=KEY)
        runs = journal.confirming(confirm, "fresh")([NO_SCHEDULE, under(1), under(2)])
        assert runs == [NOMINAL, evaluate(mat.spec.RunSpec(schedule=under(1))), None]
        assert asked.pop() == expected
        journal.close()


# -- a search that is killed --------------------------------------------------------------------------------------------

SCRIPT = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {here!r})
import planted
from mat_search import Campaign, search
from mat_search.journal import open_journal

folder, most = Path(sys.argv[1]), int(sys.argv[2])
count = 0

def evaluate(spec):
    global count
    count += 1
    if count > most:
        os.kill(os.getpid(), signal.SIGKILL)
    run = planted.evaluate(spec)
    with open(folder / "log", "a") as log:
        log.write(run.id + "\\n")
    return run

nominal = planted.evaluate(planted.RunSpec())
journal = open_journal(folder / "j.jsonl", nominal.spec, key={{}})
result = search(nominal, evaluate, Campaign(operators=planted.SPECS, budget=8), journal=journal)
(folder / "result").write_text(repr(result))
print(journal.recalled)
"""
PLANTED = """
from contextlib import suppress
import mat
from mat.spec import RunSpec
from mat.boundary.catalog import Catalog
from mat.boundary.effect import Raise

OPERATORS = Catalog([
    mat.spec.operator("service.timeout", lambda call, reply, stream: Raise("timeout", delay_ms=1_000)),
    mat.spec.operator("service.lost_ack", lambda call, reply, stream: Raise("timeout", delay_ms=1_000), phase="after"),
])
SPECS = tuple(operator.spec() for operator in OPERATORS)

@mat.tool(effect="write", impact="high")
def pay(order):
    return {"paid": order}

@mat.trace_contract(start=frozenset())
def once(seen, record):
    if record.action.name != "pay" or record.effected != "yes":
        return seen
    order = record.action.arguments["order"]
    return mat.Violated("paid twice") if order in seen else seen | {order}

def evaluate(spec):
    with mat.run([once], schedule=spec.schedule, seed=spec.seed, operators=OPERATORS, states=True) as run:
        for order in ("a", "b"):
            for _ in range(2):
                with suppress(TimeoutError):
                    pay(order)
                    break
    return run.result
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    (folder / "planted.py").write_text(PLANTED)
    path = folder / "script.py"
    path.write_text(textwrap.dedent(SCRIPT.format(here=str(folder))))

    def run(where, most):
        where.mkdir(exist_ok=True)
        command = [sys.executable, str(path), str(where), str(most)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


@pytest.mark.nightly
def test_a_search_killed_again_and_again_executes_each_run_once_and_ends_as_one_that_was_not(script, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert script(whole, 10**6).returncode == 0
    log = (whole / "log").read_text().splitlines()
    assert len(log) > 20
    for done in range(200):
        ended = script(killed, 7)
        if ended.returncode != -signal.SIGKILL:
            break
        executed = (killed / "log").read_text().splitlines()
        assert executed == log[: 7 * (done + 1)]
        if done % 2:  # the kill came in the middle of a line
            with open(killed / "j.jsonl", "ab") as stream:
                stream.write(b'["0123')
    assert ended.returncode == 0, ended.stderr
    assert (killed / "log").read_text().splitlines() == log
    assert (killed / "result").read_text().replace(f"recalled={7 * done}", "recalled=0") == (whole / "result").read_text()
    assert int(ended.stdout) == 7 * done


@pytest.mark.full
def test_a_search_goes_on_from_any_of_its_lines(tmp_path):
    """Wherever the file ends, what is missing is executed, what is there is not, and the result is the same."""
    asked = []

    def counted(spec):
        asked.append(spec.schedule)
        return evaluate(spec)

    path = tmp_path / "j.jsonl"
    campaign = Campaign(operators=SPECS, budget=8)
    journal = open_journal(path, SPEC, key=KEY)
    expected = search(NOMINAL, counted, campaign, journal=journal)
    journal.close()
    order, whole = list(asked), path.read_bytes()
    assert expected.recalled == 0
    assert len(order) == expected.executions == len(whole.splitlines()) - 1
    draw = random.Random(3)
    for size in (0, len(whole), *(draw.randrange(len(whole)) for _ in range(12))):
        path.write_bytes(whole[:size])
        asked.clear()
        journal = open_journal(path, SPEC, key=KEY)
        noted = []
        result = search(NOMINAL, counted, campaign, journal=journal, note=noted.append)
        journal.close()
        assert asked == order[result.recalled :]
        assert result.recalled == max(0, whole[:size].count(b"\n") - 1)
        assert dataclasses.replace(result, recalled=0) == expected
        assert [run.spec.schedule for run in noted] == order
        assert path.read_bytes() == whole


@pytest.mark.full
@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32))
def test_a_journal_of_several_workers_is_taken_up_by_one(tmp_path_factory, seed):
    from concurrent.futures import ProcessPoolExecutor

    path = tmp_path_factory.mktemp("workers") / "j.jsonl"
    campaign = Campaign(operators=SPECS, budget=8)
    expected = search(NOMINAL, evaluate, campaign)
    journal = open_journal(path, SPEC, key=KEY)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as executor:
        assert search(NOMINAL, evaluate, campaign, journal=journal, executor=executor) == expected
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: random.Random(seed).randrange(len(whole))])
    journal = open_journal(path, SPEC, key=KEY)
    result = search(NOMINAL, evaluate, campaign, journal=journal)
    journal.close()
    assert dataclasses.replace(result, recalled=0) == expected
    assert result.recalled == journal.recalled <= journal.found

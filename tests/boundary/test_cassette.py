"""Recorded replies of external ports: what is served, what is called, what is kept, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import random
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import mat
from mat.boundary.cassette import Cassette, LiveCallsSpent
from mat.boundary.tape import Tape
from mat.core import limits
from mat.core.errors import CodecError, RateLimited, SpecError, Uncontrolled
from mat.core.nearest import in_words, nearest

OWN = random.Random(os.urandom(16))  # made at import, from the system's own entropy: no run decides what it draws
HEARD: list[str] = []


@mat.model("planner")
def planner(prompt: str) -> dict[str, Any]:
    HEARD.append(prompt)
    return {"text": f"{prompt}: {OWN.getrandbits(64)}"}


@pytest.fixture(autouse=True)
def forgotten():
    HEARD.clear()


def ask(cassette, *prompts, port=planner, seed=0):
    """The replies of one run, and the run."""
    with mat.run(tape=Tape(cassette=cassette, seed=seed), seed=seed) as run:
        replies = [port(prompt) for prompt in prompts]
    return replies, run.result


def test_a_second_run_hears_what_the_first_heard_and_is_the_same_run():
    cassette = Cassette(live=2)
    (first, one), (second, other) = ask(cassette, "a", "b"), ask(cassette, "a", "b")
    assert first == second
    assert one.head == other.head
    assert HEARD == ["a", "b"]


def test_without_a_cassette_the_port_is_called_every_time():
    with mat.run(tape=Tape()):
        one = planner("a")
    with mat.run():
        other = planner("a")
    assert one != other
    assert HEARD == ["a", "a"]


def test_a_prompt_that_is_sampled_twice_has_two_replies_and_the_same_two_in_every_run():
    cassette = Cassette(live=2)
    first, _ = ask(cassette, "a", "a")
    second, _ = ask(cassette, "a", "a")
    assert first[0] != first[1]
    assert second == first


def test_requests_are_found_wherever_in_the_run_they_are_made():
    cassette = Cassette(live=2)
    (a, b), _ = ask(cassette, "a", "b")
    assert ask(cassette, "b", "a")[0] == [b, a]


def test_another_seed_is_another_sample():
    cassette = Cassette(live=2)
    assert ask(cassette, "a", seed=0)[0] != ask(cassette, "a", seed=1)[0]
    assert cassette.spent == 2


def test_a_port_that_is_not_external_always_runs():
    calls = []

    @mat.tool
    def count(item: str) -> int:
        calls.append(item)
        return len(calls)

    cassette = Cassette(live=0)
    assert [ask(cassette, "a", port=count)[0], ask(cassette, "a", port=count)[0]] == [[1], [2]]
    assert len(cassette) == 0


def test_a_miss_beyond_the_live_calls_is_refused_with_what_to_do():
    cassette = Cassette(live=1)
    ask(cassette, "a")
    with pytest.raises(LiveCallsSpent, match=r"no recorded reply of model:planner.*\n(.*\n)*.*raise --mat-live-calls"):
        ask(cassette, "b")
    assert HEARD == ["a"]
    assert cassette.spent == 1


def test_an_agent_that_swallows_the_refusal_does_not_hide_it():
    tape = Tape(cassette=Cassette(live=0))
    with mat.run(tape=tape):
        with contextlib.suppress(Exception):
            planner("a")
    assert isinstance(tape.refused, LiveCallsSpent)


def test_a_run_that_is_answered_refuses_nothing():
    tape = Tape(cassette=Cassette(live=1))
    with mat.run(tape=tape):
        planner("a")
    assert tape.refused is None


def test_an_error_of_a_live_call_is_kept_as_one_of_its_kind():
    failures = []

    @mat.model("busy")
    def busy(prompt: str) -> str:
        failures.append(prompt)
        raise RateLimited("slow down", retry_after_s=2.0)

    def meet(cassette):
        with mat.run(tape=Tape(cassette=cassette)), pytest.raises(RateLimited, match="slow down") as met:
            busy("a")
        return met.value.retry_after_s

    cassette = Cassette(live=1)
    assert [meet(cassette), meet(cassette)] == [2.0, 2.0]
    assert failures == ["a"]


def test_an_error_that_could_only_come_back_as_another_is_refused_and_names_what_to_declare():
    class OverloadedError(Exception):
        pass

    def fail(prompt: str) -> str:
        raise OverloadedError("too much")

    with pytest.raises(SpecError, match="OverloadedError"):
        ask(Cassette(live=1), "a", port=mat.model("plain")(fail))
    with pytest.raises(OverloadedError):
        ask(Cassette(live=1), "a", port=mat.model("declared", errors={"server_error": OverloadedError})(fail))


@dataclass
class Answer:
    text: str


def test_a_reply_that_would_come_back_as_another_type_is_refused_unless_it_is_declared():
    def answer(prompt):
        return Answer(prompt)

    def declared(prompt) -> Answer:
        return Answer(prompt)

    with pytest.raises(SpecError, match="Answer, which comes back as dict"):
        ask(Cassette(live=1), "a", port=mat.model("untyped")(answer))
    cassette, port = Cassette(live=1), mat.model("typed")(declared)
    assert [ask(cassette, "a", port=port)[0], ask(cassette, "a", port=port)[0]] == [[Answer("a")]] * 2
    assert cassette.spent == 1


class Tagged(dict):
    """Carries more than its items."""


@pytest.mark.parametrize("reply", [Tagged(text="x"), {"inner": [Tagged(text="x")]}])
def test_a_mapping_of_a_class_of_its_own_is_refused_wherever_it_stands(reply):
    with pytest.raises(SpecError, match="Tagged, which comes back as dict"):
        ask(Cassette(live=1), "a", port=mat.model("tagged")(lambda prompt: reply))


@pytest.mark.parametrize("reply", [None, 1, 2.5, True, "x", [1, {"a": [None]}], (1, "x"), {"n": {"m": (1,)}}])
def test_plain_data_is_served_as_it_was(reply):
    cassette, port = Cassette(live=1), mat.model("plain")(lambda prompt: reply)
    ask(cassette, "a", port=port)
    (served,), _ = ask(cassette, "a", port=port)
    assert json.dumps(served) == json.dumps(reply)
    assert cassette.spent == 1


def test_a_reply_without_a_recorded_form_is_refused():
    with pytest.raises(SpecError, match="no recorded form"):
        ask(Cassette(live=1), "a", port=mat.model("handle")(lambda prompt: object()))


def test_async_models_and_streams_are_recorded_too():
    made = []

    @mat.model("async_planner")
    async def async_planner(prompt: str) -> str:
        made.append(prompt)
        return f"{OWN.getrandbits(64)}"

    @mat.model("stream")
    def stream(prompt: str):
        made.append(prompt)
        yield from (f"{OWN.getrandbits(64)}" for _ in range(3))

    def both(cassette):
        with mat.run(tape=Tape(cassette=cassette)):
            return asyncio.run(async_planner("a")), list(stream("a"))

    cassette = Cassette(live=2)
    assert both(cassette) == both(cassette)
    assert made == ["a", "a"]


def test_a_live_call_that_is_cancelled_leaves_nothing_behind():
    @mat.model("slow")
    async def slow(prompt: str) -> str:
        await asyncio.sleep(60)
        return "late"

    async def impatient():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow("a"), 1)

    cassette = Cassette(live=1)
    with mat.run(tape=Tape(cassette=cassette)):
        asyncio.run(impatient())
    assert (len(cassette), cassette.spent) == (0, 1)


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cassettes" / "x.jsonl"


def test_a_later_session_hears_the_same_without_a_call(path):
    first, one = ask(Cassette(path, item="x", live=2), "a", "a")
    second, other = ask(Cassette(path, item="x"), "a", "a")
    assert first == second
    assert one.head == other.head
    assert HEARD == ["a", "a"]


def test_the_file_is_only_ever_appended_to(path):
    ask(Cassette(path, item="x", live=1), "a")
    before = path.read_bytes()
    ask(Cassette(path, item="x", live=1), "a", "b")
    assert path.read_bytes().startswith(before)
    assert len(path.read_bytes().splitlines()) == 3


def test_a_session_that_makes_no_call_touches_no_file(path):
    with pytest.raises(LiveCallsSpent):
        ask(Cassette(path, item="x"), "a")
    assert not path.exists()


def test_a_half_written_last_line_is_cut_off_said_and_its_call_made_again(path):
    (first, _), _ = ask(Cassette(path, item="x", live=2), "a", "b")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    cassette = Cassette(path, item="x", live=1)
    assert "half-written" in cassette.notes[0]
    assert len(cassette) == 1
    replies, _ = ask(cassette, "a", "b")
    assert replies[0] == first
    assert cassette.spent == 1
    assert len(Cassette(path, item="x")) == 2


def test_a_half_written_last_line_is_gone_before_anything_else_is_written(path):
    ask(Cassette(path, item="x", live=2), "a", "b")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    Cassette(path, item="x")
    assert path.read_bytes() == b"".join(whole.splitlines(keepends=True)[:-1])


def test_a_file_that_became_shorter_while_it_was_in_use_is_refused(path):
    cassette = Cassette(path, item="x", live=2)
    ask(cassette, "a", "b")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(CodecError, match="replaced while it was in use"):
        cassette.catch_up()


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_file_cut_anywhere_is_recovered_or_refused_and_never_served_wrong(path, cut):
    (first,), _ = ask(Cassette(path, item="x", live=1), "a")
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    cassette = Cassette(path, item="x", live=1)
    assert len(cassette) == 0
    assert ask(cassette, "a")[0] != [first]
    assert len(Cassette(path, item="x")) == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace('"nth":1', '"nth":2', 1),
        lambda text: text.replace('{"item":"x"}', '{"item":"y"}'),
        lambda text: text.replace('"version":1', '"version":99'),
        lambda text: text.split("\n", 1)[1],
        lambda text: text.replace('"port":"model:planner",', "", 1),
    ],
)
def test_a_file_that_is_not_as_it_was_written_is_refused_with_its_place_and_stays(path, spoil):
    ask(Cassette(path, item="x", live=2), "a", "b")
    spoiled = spoil(path.read_text())
    path.write_text(spoiled)
    with pytest.raises(CodecError, match=r"x\.jsonl(:| at byte)"):
        Cassette(path, item="x")
    assert path.read_text() == spoiled


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_folder_or_a_pipe_in_the_place_of_the_file_is_refused(path, make):
    path.parent.mkdir()
    make(path)
    with pytest.raises(CodecError, match="is not a file"):
        Cassette(path, item="x")


def test_a_full_disk_is_said_and_the_call_can_be_made_again(path, monkeypatch):
    ask(Cassette(path, item="x", live=1), "a")
    write = os.write

    def full(descriptor, data):
        if data[:1] == b"[":
            write(descriptor, bytes(data[:20]))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(CodecError, match=r"x\.jsonl cannot be read or written: No space left on device"):
            ask(Cassette(path, item="x", live=1), "b")
    cassette = Cassette(path, item="x", live=1)
    assert len(cassette) == 1
    ask(cassette, "a", "b")
    assert len(Cassette(path, item="x")) == 2


def test_the_cassette_of_another_test_is_refused(path):
    ask(Cassette(path, item="x", live=1), "a")
    with pytest.raises(CodecError, match="not the cassette of y"):
        Cassette(path, item="y")


def test_a_file_over_the_limit_is_refused(path, monkeypatch):
    cassette = Cassette(path, item="x", live=9)
    ask(cassette, "a")
    monkeypatch.setattr(limits, "FILE_BYTES", path.stat().st_size + 10)
    with pytest.raises(CodecError, match="limit"):
        ask(cassette, "b")
    assert len(Cassette(path, item="x")) == 1


def test_what_another_process_recorded_is_heard_in_the_next_run(path):
    ours, theirs = Cassette(path, item="x", live=1), Cassette(path, item="x", live=1)
    replies, _ = ask(theirs, "a")
    assert ask(ours, "a")[0] == replies
    assert HEARD == ["a"]


def test_live_calls_that_a_fork_has_made_count_as_calls_of_its_process_and_those_of_earlier_sessions_do_not(path):
    ask(Cassette(path, item="x", live=1), "earlier")
    ours = Cassette(path, item="x", live=2)
    ask(ours, "earlier")
    assert ours.spent == 0
    child = os.fork()
    if child == 0:
        try:
            ask(ours, "a")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ours.catch_up()
    assert ours.spent == 1
    ask(ours, "a", "b")
    assert ours.spent == 2
    with pytest.raises(LiveCallsSpent, match="all 2 live calls of this item are used up"):
        ask(ours, "c")


def test_a_process_that_only_serves_refuses_a_miss_and_hears_what_the_others_add(path):
    ours, worker = Cassette(path, item="x", live=1), Cassette(path, item="x", live=1)
    worker.only_serves = True
    with pytest.raises(LiveCallsSpent, match="only serves"):
        ask(worker, "a")
    replies, _ = ask(ours, "a")
    assert ask(worker, "a")[0] == replies


def test_a_reply_with_a_secret_is_served_here_and_in_no_file(path):
    key = "sk-" + "a1b2c3d4" * 4

    def leak(prompt: str) -> dict[str, str]:
        return {"text": f"the key is {key}"}

    cassette, port = Cassette(path, item="x", live=1), mat.model("leaky")(leak)
    assert [ask(cassette, "a", port=port)[0], ask(cassette, "a", port=port)[0]] == [[{"text": f"the key is {key}"}]] * 2
    assert not path.exists()


def test_each_line_is_json_with_the_facts_of_one_reply(path):
    (reply,), _ = ask(Cassette(path, item="x", live=1), "a")
    head, line = map(json.loads, path.read_text().splitlines())
    assert (head[2]["kind"], head[2]["key"]) == ("cassette", {"item": "x"})
    line = line[2]
    assert (line["seed"], line["port"], line["nth"], line["reply"]["value"]) == (0, "model:planner", 1, reply)


# -- what a live call may do ------------------------------------------------------------------------------------------


def reach(prompt: str) -> str:
    return str(socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)[0][4])  # a number: nobody is asked


def test_only_a_live_call_may_leave_the_run_and_only_while_it_lasts():
    remote, inside = mat.model("remote")(reach), mat.tool(name="inside")(reach)
    with mat.run(tape=Tape(cassette=Cassette(live=2))):
        assert remote("a") == "('127.0.0.1', 80)"
        with pytest.raises(Uncontrolled, match="was refused during the run"):
            reach("from the agent itself")
        with pytest.raises(Uncontrolled, match="was refused during the run"):
            inside("a")
    with mat.run(), pytest.raises(Uncontrolled, match="was refused during the run"):
        remote("a")


def test_a_live_call_that_fails_leaves_the_network_out_of_reach():
    @mat.model("broken")
    def broken(prompt: str) -> str:
        raise ConnectionError("reset")

    with mat.run(tape=Tape(cassette=Cassette(live=1))):
        with pytest.raises(ConnectionError):
            broken("a")
        with pytest.raises(Uncontrolled):
            reach("a")


# -- requests, for people -------------------------------------------------------------------------------------------------


@mat.model("clerk")
def clerk(prompt: str, model: str = "small") -> dict[str, Any]:
    return {"text": "yes"}


def test_a_file_shows_what_was_asked_without_secrets_and_a_miss_says_how_the_nearest_request_differs(tmp_path: Path):
    path = tmp_path / "c.jsonl"
    with mat.run(tape=Tape(cassette=Cassette(path, item="t", live=2))):
        clerk("Refund order A17, which arrived broken")
        clerk(f"Say hello to {mat.secret('hunter2-hunter2')}")
    text = path.read_text()
    assert '"asked":{' in text
    assert "Refund order A17, which arrived broken" in text
    assert "hunter2" not in text
    again = Cassette(path, item="t", live=0)
    with pytest.raises(LiveCallsSpent) as missed:
        ask(again, "Refund order A18, which arrived broken", port=clerk)
    assert (
        "the nearest differs in prompt: recorded 'Refund order A17, which arrived broken', "
        "asked 'Refund order A18, which arrived broken'"
    ) in missed.value.why
    with pytest.raises(LiveCallsSpent, match="no request to this port is recorded"):
        ask(again, "a")


def test_a_request_that_is_asked_more_often_than_it_was_recorded_is_told_so():
    cassette = Cassette(live=1)
    ask(cassette, "a", port=clerk)
    with pytest.raises(LiveCallsSpent, match="this request was recorded fewer times than it is made"):
        ask(cassette, "a", "a", port=clerk)


def test_a_port_whose_requests_are_redacted_keeps_them_out_of_the_file(tmp_path: Path):
    @mat.model("quiet", record={"prompt": "redact", "reply": "keep"})
    def quiet(prompt: str) -> dict[str, Any]:
        return {"text": "yes"}

    path = tmp_path / "c.jsonl"
    ask(Cassette(path, item="t", live=1), "of a patient", port=quiet)
    assert "patient" not in path.read_text()


def test_long_texts_of_requests_are_cut(tmp_path: Path):
    path = tmp_path / "c.jsonl"
    ask(Cassette(path, item="t", live=1), "x" * 300_000, port=clerk)
    assert path.stat().st_size < 60_000


def test_a_request_of_many_texts_is_cut_to_a_whole_that_people_can_read(tmp_path: Path):
    path = tmp_path / "c.jsonl"
    messages = [f"message {number}: {'x' * 5_000} its end" for number in range(400)]

    @mat.model("chat")
    def chat(messages: list[str]) -> str:
        return "yes"

    ask(Cassette(path, item="t", live=2), messages, ["short"] * 100_000, port=chat)
    many, most = [json.loads(line)[2]["asked"] for line in path.read_text().splitlines()[1:]]
    assert len(json.dumps(many)) < 110_000
    assert many["messages"][399].startswith("message 399")
    assert many["messages"][0].endswith("its end")
    assert len(json.dumps(most)) < 210_000  # of so many texts that none can be cut, a part is kept as one text


def test_a_file_that_grows_to_its_limit_keeps_room_for_replies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "FILE_BYTES", 20_000)
    path = tmp_path / "c.jsonl"
    replies, _ = ask(Cassette(path, item="t", live=8), *[f"{number} {'x' * 4_000}" for number in range(8)], port=clerk)
    entries = [json.loads(line)[2] for line in path.read_text().splitlines()[1:]]
    assert ["asked" in each for each in entries] == [True] * 3 + [False] * 5
    assert ask(Cassette(path, item="t"), *[f"{number} {'x' * 4_000}" for number in range(8)], port=clerk)[0] == replies


def test_thousands_of_long_requests_are_compared_at_once_and_only_the_first_misses_are_explained():
    chat = [{"role": "user", "content": f"{number} {'x' * 5_000}"} for number in range(10)]
    recorded = [{"model": "m", "messages": [*chat, {"role": "user", "content": f"order A{number}"}]} for number in range(3_000)]
    compared: list[int] = []

    def counted():
        for each in recorded:
            compared.append(1)
            yield each

    asked = {"model": "m", "messages": [*chat, {"role": "user", "content": "order A150!"}]}
    before = time.process_time()
    found = nearest(asked, counted())
    assert time.process_time() - before < 5  # a tenth of that here
    assert len(compared) == 3_000
    assert in_words(found or ()) == "messages.10.content: recorded 'order A150', asked 'order A150!'"
    cassette = Cassette(live=1)
    ask(cassette, "a", port=clerk)
    told = []
    for number in range(102):
        with pytest.raises(LiveCallsSpent) as missed:
            ask(cassette, f"other {number}", port=clerk)
        told.append("nearest differs" in missed.value.why)
    assert told == [True] * 100 + [False] * 2


def test_the_nearest_has_the_fewest_differing_fields_and_of_those_the_most_text_in_common():
    asked = {"prompt": "Refund order A18", "model": "small", "top": 1}
    other_model = {"prompt": "Refund order A18, please", "model": "large", "top": 1}
    far, near = {**asked, "prompt": "Say hello"}, {**asked, "prompt": "Refund order A17"}
    for requests in ([far, near, other_model], [other_model, near, far]):
        found = nearest(asked, requests)
        assert [(each.path, each.recorded) for each in found or ()] == [("prompt", "Refund order A17")]
    assert nearest(asked, [asked]) == ()
    assert nearest({"top": 1}, [{"top": True}]) != ()
    assert nearest(asked, []) is None

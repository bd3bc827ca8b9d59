"""Models that do not repeat themselves, made searchable by recorded replies (--mat-live-calls)."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

ID = "test_shop.py::test_refund"

MODELS = '''
"""Models that nothing in a run decides: their generator was made at import, from the system's entropy."""
import os
import random
from pathlib import Path

import mat

OWN = random.Random(os.urandom(16))
CALLS = Path(__file__).with_name("calls.txt")


def calls():
    return CALLS.read_text().split() if CALLS.exists() else []


@mat.model("planner")
def planner(prompt) -> dict:
    with CALLS.open("a") as stream:
        stream.write(prompt.replace(" ", "_") + "\\n")
    return {"say": prompt, "mood": OWN.getrandbits(64)}
'''

NAIVE = """
import models

@pytest.mark.mat(budget=8, faults=FAULTS{more})
def test_refund(mat_run, no_double):
    models.planner("how?")
    shop.naive()
"""
CAREFUL = """
import models

@pytest.mark.mat(budget=4, faults=FAULTS{more})
def test_refund(mat_run, no_double):
    models.planner("how?")
    if models.planner("really?")["mood"] >= 0:
        shop.careful()
"""


@pytest.fixture
def models(shop: Any) -> Any:
    shop.write("models.py", MODELS)
    return shop


def calls(shop: Any) -> list[str]:
    path = shop.path / "calls.txt"
    return path.read_text().split() if path.exists() else []


def certificate(shop: Any) -> dict[str, Any]:
    (path,) = shop.replays
    return json.loads(path.read_text())["certificate"]


@pytest.mark.full
def test_without_recording_a_model_that_does_not_repeat_itself_is_never_certified(models: Any) -> None:
    models.tests(CAREFUL.format(more=""))
    session = models.stress()
    assert session.statuses == {ID: "not_proven"}
    assert "differs" in session.items[ID]["reason"]
    assert "replies of model:planner are not recorded: --mat-live-calls N records them" in session.items[ID]["reason"]
    assert not (models.path / ".mat" / "cassettes").exists()


@pytest.mark.full
def test_with_recording_it_is_certified_and_each_request_was_made_once(models: Any) -> None:
    models.tests(CAREFUL.format(more=""))
    session = models.stress("--mat-live-calls", "2")
    assert session.statuses == {ID: "certified"}
    assert calls(models) == ["how?", "really?"]


@pytest.mark.nightly
def test_the_certificate_of_a_counterexample_says_that_it_is_relative_to_the_recorded_replies(models: Any) -> None:
    models.tests(NAIVE.format(more=", live_calls=1"))
    session = models.stress("-v")
    assert session.statuses == {ID: "counterexample"}
    found = certificate(models)
    assert (found["proven"], found["relative_to"]) == (True, "the recorded replies")
    assert "exists on this grid, relative to the recorded replies" in " ".join(session.failures[ID].split())


@pytest.mark.full
def test_a_search_that_records_nothing_does_not_say_so(shop: Any) -> None:
    shop.tests(
        "@pytest.mark.mat(budget=8, faults=FAULTS, live_calls=5)\ndef test_refund(mat_run, no_double):\n    shop.naive()\n"
    )
    session = shop.stress("-v")
    assert session.statuses == {ID: "counterexample"}
    assert not certificate(shop).get("relative_to")
    assert "recorded replies" not in session.failures[ID]


@pytest.mark.nightly
def test_a_second_session_makes_no_call_and_finds_the_same(models: Any) -> None:
    models.tests(NAIVE.format(more=""))
    models.stress("--mat-live-calls", "1")
    (path,) = models.replays
    before = path.read_bytes()
    shutil.rmtree(path.parent)
    session = models.stress("--mat-live-calls", "0")
    assert session.statuses == {ID: "counterexample"}
    assert models.replays[0].read_bytes() == before
    assert calls(models) == ["how?"]


def test_a_nominal_run_without_enough_live_calls_fails_with_what_to_do(models: Any) -> None:
    models.tests(CAREFUL.format(more=", live_calls=1"))
    session = models.stress()
    assert session.outcomes == {ID: "failed"}
    assert "no recorded reply of model:planner" in session.failures[ID]
    assert "raise --mat-live-calls" in session.failures[ID]
    assert calls(models) == ["how?"]


ASKS_UNDER_FAULT = """
import models

@pytest.mark.mat(budget=4, faults=FAULTS, live_calls={live})
def test_refund(mat_run, no_double):
    models.planner("how?")
    try:
        shop.refund("o1")
    except TimeoutError:
        {body}
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "body",
    ['models.planner("and now?")', 'try: models.planner("and now?")\n        except Exception: pass'],
    ids=["shown", "swallowed"],
)
def test_a_miss_in_the_search_beyond_the_live_calls_ends_it_with_the_reason(models: Any, body: str) -> None:
    models.tests(ASKS_UNDER_FAULT.format(live=1, body=body))
    session = models.stress()
    assert session.outcomes == {ID: "passed"}
    assert session.statuses == {ID: "not_proven"}
    assert "no recorded reply of model:planner" in session.items[ID]["reason"]
    assert calls(models) == ["how?"]


@pytest.mark.full
def test_a_request_that_only_a_fault_brings_about_is_recorded_during_the_search(models: Any) -> None:
    models.tests(ASKS_UNDER_FAULT.format(live=2, body='models.planner("and now?")'))
    session = models.stress()
    assert session.statuses == {ID: "certified"}
    assert calls(models) == ["how?", "and_now?"]


@pytest.mark.full
def test_forked_evaluations_record_for_all_that_follow(models: Any) -> None:
    models.tests(ASKS_UNDER_FAULT.format(live="2, isolate='fork'", body='models.planner("and now?")'))
    session = models.stress()
    assert session.statuses == {ID: "certified"}
    assert calls(models) == ["how?", "and_now?"]


@pytest.mark.nightly
@pytest.mark.parametrize("workers", ["1", "3"])
def test_live_calls_are_made_once_and_by_the_searching_process_however_many_workers_there_are(
    models: Any, workers: str
) -> None:
    models.tests(
        """
        import os
        import models

        @mat.model("remote")
        def remote(prompt) -> dict:
            models.CALLS.open("a").write(f"{prompt} ")
            models.CALLS.with_name("who.txt").open("a").write(f"{os.getpid()} ")
            return {"mood": models.OWN.random()}

        @pytest.mark.mat(budget=8, faults=FAULTS, live_calls=20)
        def test_refund(mat_run, no_double):
            for order in ("o1", "o2", "o3"):
                try:
                    shop.refund(order)
                except TimeoutError:
                    remote(f"what-of-{order}?")
        """
    )
    session = models.stress("--mat-workers", workers)
    assert session.statuses == {ID: "certified"}
    assert sorted(calls(models)) == ["what-of-o1?", "what-of-o2?", "what-of-o3?"]
    assert len(set((models.path / "who.txt").read_text().split())) == 1
    assert "workers-lost" not in session.text + str(session.report)


@pytest.mark.full
@pytest.mark.parametrize("write", ["Path('state').write_text('x')", "Path('state').exists() or Path('state').write_text('x')"])
def test_a_file_that_the_recorded_run_writes_outlives_it_all_the_same(models: Any, write: str) -> None:
    models.tests(
        f"""
        from pathlib import Path
        import models

        @pytest.mark.mat(budget=4, faults=FAULTS, live_calls=2)
        def test_refund(mat_run, no_double):
            {write}
            models.planner("how?")
            shop.careful()
        """
    )
    session = models.stress()
    assert session.statuses == {ID: "not_proven"}
    assert "state is written outside of the run" in session.items[ID]["reason"]


@pytest.mark.full
def test_a_client_that_draws_from_the_run_on_a_live_call_leaves_no_trace_in_what_is_searched(models: Any) -> None:
    models.write("client.py", "import uuid\n")
    models.tests(
        """
        import random
        import uuid
        import models

        @mat.model("drawing")
        def drawing(prompt) -> dict:
            return {"id": str(uuid.uuid4()), "mood": models.OWN.random(), "luck": random.random()}

        @mat.tool
        def send(key):
            return {"key": key}

        @pytest.mark.mat(budget=4, faults=FAULTS, live_calls=1)
        def test_refund(mat_run, no_double):
            drawing("how?")
            send(str(uuid.uuid4()) + str(random.random()))
            shop.careful()
        """
    )
    assert models.stress().statuses == {ID: "certified"}


def test_other_seeds_are_other_samples(models: Any) -> None:
    models.tests(NAIVE.format(more=", seeds=3, live_calls=3"))
    models.run()
    assert calls(models) == ["how?"] * 3


def test_plain_pytest_hears_what_was_recorded_where_the_marker_says_so(models: Any) -> None:
    models.tests(NAIVE.format(more=", live_calls=1"))
    models.run()
    models.run()
    assert calls(models) == ["how?"]


@pytest.mark.full
def test_a_scripted_external_model_is_called_in_every_run_where_nothing_is_to_be_recorded(models: Any) -> None:
    models.tests(
        """
        import models

        @mat.model("scripted")
        def scripted(prompt) -> str:
            models.CALLS.open("a").write(prompt + "\\n")
            return "refund it"

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double):
            scripted("how?")
            shop.careful()
        """
    )
    session = models.stress()
    assert session.statuses == {ID: "not_proven"}
    assert "calls.txt is written outside of the run" in session.items[ID]["reason"]  # by the model, in every run
    assert len(calls(models)) > 3


def test_a_spoiled_cassette_fails_the_item_with_its_place(models: Any) -> None:
    models.tests(NAIVE.format(more=", live_calls=1"))
    models.run()
    (path,) = (models.path / ".mat" / "cassettes").iterdir()
    assert path.name.startswith("test_refund-")
    path.write_text(path.read_text().replace('"nth":1', '"nth":"x"'))
    session = models.stress()
    assert session.outcomes == {ID: "failed"}
    assert path.name in session.failures[ID]


def test_tests_of_one_name_have_cassettes_of_their_own(models: Any) -> None:
    models.tests(NAIVE.format(more=", live_calls=1"))
    models.tests(NAIVE.format(more=", live_calls=1"), name="test_other.py")
    models.run()
    assert len(list((models.path / ".mat" / "cassettes").iterdir())) == 2
    assert calls(models) == ["how?"] * 2


@pytest.mark.parametrize("wrong", ["live_calls=-1", "live_calls=True", "live_calls='2'"])
def test_numbers_that_mean_nothing_are_refused(models: Any, wrong: str) -> None:
    models.tests(NAIVE.format(more=f", {wrong}"))
    session = models.run()
    assert wrong.partition("=")[0] in session.failures[ID]
    assert calls(models) == []

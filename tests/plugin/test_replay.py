"""Replay files as tests: they fail while the weakness stands, pass when it is mended, and never vanish in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest

NAIVE = """
@pytest.mark.mat(budget=4, faults=FAULTS)
def test_refund(mat_run, no_double):
    shop.naive()
"""
ID = "test_shop.py::test_refund"


FOUND: dict[str, tuple[str, bytes]] = {}
"""What was found for a text of tests: the searches of test_stress.py show that a second one finds the same bytes."""


def found(shop: Any, text: str = NAIVE) -> str:
    """Search, once for each text; the short id of the one counterexample."""
    shop.tests(text)
    if text not in FOUND:
        shop.stress()
        (path,) = shop.replays
        FOUND[text] = (path.name, path.read_bytes())
    name, content = FOUND[text]
    (shop.path / "mat_replays").mkdir(exist_ok=True)
    (shop.path / "mat_replays" / name).write_bytes(content)
    return name[-15:-9]


def mend(shop: Any) -> None:
    path = shop.path / "shop.py"
    path.write_text(path.read_text().replace("def naive(tries=3", "def naive(tries=1"))


@pytest.mark.full
def test_plain_pytest_fails_with_the_replay_until_the_agent_is_mended(shop: Any) -> None:
    short = found(shop)
    session = shop.run()
    assert session.outcomes == {ID: "passed", f"{ID}[replay-{short}]": "failed"}
    assert session.statuses == {ID: "nominal", f"{ID}[replay-{short}]": "violated"}
    said = session.failures[f"{ID}[replay-{short}]"]
    assert "no_double" in said
    assert "service.unconfirmed acts on the 1st refund call by main" in said
    assert f"mat show mat_replays/test_refund-{short}.mat.json" in said
    assert "tool_call refund" not in said
    said = shop.run("-v").failures[f"{ID}[replay-{short}]"]
    assert "tool_call refund" in said
    assert f"pytest --mat-replay mat_replays/test_refund-{short}.mat.json" in said
    mend(shop)
    session = shop.run()
    assert session.outcomes == {ID: "passed", f"{ID}[replay-{short}]": "passed"}
    assert session.statuses == {ID: "nominal", f"{ID}[replay-{short}]": "replayed"}


def test_the_nominal_item_keeps_its_id_next_to_its_replays(shop: Any) -> None:
    short = found(shop)
    assert list(shop.run(ID).outcomes) == [ID, f"{ID}[replay-{short}]"]
    assert list(shop.run(f"{ID}[replay-{short}]").outcomes) == [f"{ID}[replay-{short}]"]
    assert list(shop.run("-k", "replay").outcomes) == [f"{ID}[replay-{short}]"]
    assert list(shop.run("-k", "not replay").outcomes) == [ID]


def test_a_strict_replay_shows_the_counterexample_again_and_runs_nothing_else(shop: Any) -> None:
    short = found(shop)
    file = f"mat_replays/test_refund-{short}.mat.json"
    session = shop.run("--mat-replay", file)
    assert session.outcomes == {f"{ID}[replay-{short}]": "failed"}
    said = session.failures[f"{ID}[replay-{short}]"]
    assert said.startswith("no_double: o1 was refunded twice")
    assert said.rstrip().endswith(f"Replay: pytest --mat-replay {file}")


def test_a_strict_replay_of_a_changed_agent_names_the_first_differing_step(shop: Any) -> None:
    short = found(shop)
    path = shop.path / "shop.py"
    path.write_text(path.read_text().replace("time.sleep(60)", "time.sleep(61)"))
    session = shop.run("--mat-replay", f"mat_replays/test_refund-{short}.mat.json")
    said = session.failures[f"{ID}[replay-{short}]"]
    assert "step 2 differs in its time: recorded 60000, now 61000" in said
    assert "why: likely cause: the clock" in said
    assert said.startswith("ReplayDivergence: ")
    mend(shop)
    session = shop.run("--mat-replay", f"mat_replays/test_refund-{short}.mat.json")
    assert "step 2 " in session.failures[f"{ID}[replay-{short}]"]


def test_a_replay_whose_sites_are_gone_is_stale_and_not_green(shop: Any) -> None:
    short = found(shop)
    path = shop.path / "shop.py"
    path.write_text(path.read_text().replace("            refund(order)\n", ""))
    session = shop.run()
    assert session.outcomes == {ID: "passed", f"{ID}[replay-{short}]": "failed"}
    assert session.statuses[f"{ID}[replay-{short}]"] == "stale"
    assert (
        f"schedule (main/service:refund#1); if it passes alone (pytest -k replay-{short}), a test before it left state behind"
        in session.failures[f"{ID}[replay-{short}]"]
    )


def test_a_replay_that_is_stale_after_another_test_passes_alone_as_its_message_says(shop: Any) -> None:
    short = found(shop)
    path = shop.path / "shop.py"
    text = path.read_text().replace(
        "            refund(order)\n", "            order in done or (done.append(order), refund(order))\n"
    )
    path.write_text("done = []\n" + text)
    assert shop.run().statuses[f"{ID}[replay-{short}]"] == "stale"
    assert shop.run("-k", f"replay-{short}").statuses == {f"{ID}[replay-{short}]": "replayed"}


def test_a_replay_whose_test_was_renamed_is_a_failing_item(shop: Any) -> None:
    short = found(shop)
    shop.tests(NAIVE.replace("test_refund", "test_renamed"))
    session = shop.run()
    file = f"test_refund-{short}.mat.json"
    assert session.outcomes == {"test_shop.py::test_renamed": "passed", f"test_shop.py::{file}": "failed"}
    said = session.failures[f"test_shop.py::{file}"]
    assert said.startswith(f"{file} belongs to {ID}, which no longer exists")
    for part in ("why: ", "fix: rename the test back", f"where: {shop.path}/mat_replays/{file}"):
        assert part in said


def test_a_replay_whose_module_is_gone_is_a_failing_item_of_its_folder(shop: Any) -> None:
    short = found(shop)
    (shop.path / "test_shop.py").unlink()
    shop.tests("def test_other(): pass\n", name="test_other.py")
    session = shop.run()
    assert session.outcomes == {
        "test_other.py::test_other": "passed",
        f"test_other.py::test_refund-{short}.mat.json": "failed",
    }
    # another module alone says nothing of a file whose own module stands
    shop.tests(NAIVE)
    assert shop.run("test_other.py").outcomes == {"test_other.py::test_other": "passed"}


def test_selecting_other_tests_does_not_make_replays_orphans(shop: Any) -> None:
    found(shop)
    shop.tests(NAIVE + "\ndef test_other(): pass\n")
    assert shop.run("test_shop.py::test_other").outcomes == {"test_shop.py::test_other": "passed"}
    assert shop.run("-k", "other").outcomes == {"test_shop.py::test_other": "passed"}


def _half(text: str) -> str:
    return text[: len(text) // 2]


def _newer(text: str) -> str:
    return text.replace('"mat": 2', '"mat": 99', 1)


def _nested(text: str) -> str:
    return "[" * 100_000


def _hostile(text: str) -> str:
    data = json.loads(text)
    data["spec"]["task"] = "../../etc/passwd.py::test_refund\x1b[2J"
    return json.dumps(data)


def _numbers(text: str) -> str:
    return text.replace('"cost": 4', '"cost": 1e400', 1)


def _edited(text: str) -> str:
    return text.replace('"cost": 4', '"cost": 1', 1)


@pytest.mark.full
@pytest.mark.parametrize("spoil", [_half, _newer, _nested, _hostile, _numbers, _edited, lambda text: "", lambda text: "\0"])
def test_a_spoiled_file_is_a_failing_item_and_the_other_tests_run_on(shop: Any, spoil: Any) -> None:
    short = found(shop)
    (path,) = shop.replays
    path.write_text(spoil(path.read_text()))
    session = shop.run()
    assert session.outcomes == {ID: "passed", f"test_shop.py::{path.name}": "failed"}
    said = session.failures[f"test_shop.py::{path.name}"]
    for part in ("fix: ", f"where: {path}"):
        assert part in said
    assert "Traceback" not in session.text
    assert "\x1b" not in session.text
    assert short in path.name
    refused = shop.pytester.runpytest_inprocess("--mat-replay", str(path))
    assert int(refused.ret) == 4


def test_a_replay_that_is_run_in_another_folder_is_told_its_own(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found(shop)
    (path,) = shop.replays
    elsewhere = shop.pytester.mkdir("elsewhere")
    (elsewhere / "pytest.ini").write_text("[pytest]\n")
    (elsewhere / "test_other.py").write_text("def test_other(): pass\n")
    monkeypatch.chdir(elsewhere)
    refused = shop.pytester.runpytest_inprocess(f"--mat-replay={path}")
    assert int(refused.ret) == 4
    assert f"its test {ID} was not collected\n  fix: run it in its project: cd {shop.path}" in str(refused.stderr)


def test_a_file_that_is_not_text_is_a_failing_item(shop: Any) -> None:
    found(shop)
    (path,) = shop.replays
    path.write_bytes(b"\xff\xfe\x00")
    session = shop.run()
    assert "is not text" in session.failures[f"test_shop.py::{path.name}"]
    assert session.outcomes[ID] == "passed"


def test_a_replay_of_an_unknown_operator_fails_with_its_name(shop: Any) -> None:
    short = found(shop)
    conftest = shop.path / "conftest.py"
    conftest.write_text(conftest.read_text().replace('"service.unconfirmed"', '"service.silent"'))
    session = shop.run()
    for failed in (ID, f"{ID}[replay-{short}]"):
        assert "unknown operator: 'service.unconfirmed'" in session.failures[failed]


@pytest.mark.full
def test_expected_replays_are_green_while_they_violate_and_red_when_they_do_not(shop: Any) -> None:
    short = found(shop, NAIVE.replace("budget=4", 'budget=4, expect=["no_double"]'))
    session = shop.run()
    assert session.outcomes == {ID: "passed", f"{ID}[replay-{short}]": "passed"}
    assert session.statuses == {ID: "nominal", f"{ID}[replay-{short}]": "replayed"}
    mend(shop)
    session = shop.run()
    assert session.outcomes == {ID: "passed", f"{ID}[replay-{short}]": "failed"}
    said = session.failures[f"{ID}[replay-{short}]"]
    assert "was expected to violate no_double but does not" in said


@pytest.mark.full
def test_an_expected_replay_that_breaks_another_contract_is_red(shop: Any) -> None:
    short = found(shop, NAIVE.replace("budget=4", 'budget=4, expect=["no_double"]'))
    shop.tests(NAIVE.replace("budget=4", 'budget=4, expect=["no_double"]').replace("no_double)", "no_double, no_wait)") + """
@pytest.fixture
def no_wait():
    return mat.step_contract(id="no_wait")(lambda record: record.at_ms < 1000)
""")  # fmt: skip
    session = shop.run()
    assert session.outcomes == {ID: "passed", f"{ID}[replay-{short}]": "failed"}
    assert "violates no_wait, which expect= does not name" in session.failures[f"{ID}[replay-{short}]"]


@pytest.mark.full
def test_a_counterexample_that_was_not_expected_is_not_saved_as_expected(shop: Any) -> None:
    short = found(shop, NAIVE.replace("budget=4", 'budget=4, expect=["no_such"]'))
    assert json.loads(shop.replays[0].read_text())["expected"] is False
    assert shop.run().outcomes[f"{ID}[replay-{short}]"] == "failed"


@pytest.mark.full
def test_a_replay_belongs_to_exactly_one_parameter(shop: Any) -> None:
    short = found(
        shop,
        """
        @pytest.mark.mat(budget=4, faults=FAULTS)
        @pytest.mark.parametrize("tries", [1, 2], ids=["once", "twice"])
        def test_refund(mat_run, no_double, tries):
            shop.naive(tries)
        """,
    )
    session = shop.run()
    assert session.outcomes == {
        f"{ID}[once]": "passed", f"{ID}[twice]": "passed", f"{ID}[twice-replay-{short}]": "failed",
    }  # fmt: skip
    assert set(shop.run("-k", "once").outcomes) == {f"{ID}[once]"}
    renamed = (shop.path / "test_shop.py").read_text().replace('"twice"', '"more"')
    (shop.path / "test_shop.py").write_text(renamed)
    session = shop.run()
    assert set(session.outcomes) == {f"{ID}[once]", f"{ID}[more]", f"test_shop.py::test_refund-{short}.mat.json"}
    assert session.outcomes[f"test_shop.py::test_refund-{short}.mat.json"] == "failed"


@pytest.mark.full
def test_a_parameter_selected_by_its_node_id_brings_its_replays_along(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(budget=4, faults=FAULTS)
        @pytest.mark.parametrize("tries", [1, 3], ids=["once", "thrice"])
        def test_refund(mat_run, no_double, tries):
            shop.naive(tries)
        """
    )
    shop.stress()
    (path,) = shop.replays
    replayed = f"{ID}[thrice-replay-{path.name[-15:-9]}]"
    assert shop.run(f"{ID}[thrice]").outcomes == {f"{ID}[thrice]": "passed", replayed: "failed"}
    assert shop.run(f"{ID}[once]").outcomes == {f"{ID}[once]": "passed"}


@pytest.mark.full
def test_a_replay_in_a_subdirectory_runs_from_anywhere(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.tests(NAIVE, name="inner/test_inner.py")
    session = shop.stress()
    assert "mat show inner/mat_replays/test_refund-" in session.failures["inner/test_inner.py::test_refund"]
    (path,) = (shop.path / "inner" / "mat_replays").iterdir()
    monkeypatch.chdir(path.parent)
    assert set(shop.run("--mat-replay", path.name).outcomes.values()) == {"failed"}


@pytest.mark.full
def test_external_ports_answer_from_the_tape(shop: Any) -> None:
    shop.write(
        "remote.py",
        """
        import mat
        calls = []

        @mat.tool(tape="external")
        def quote(item):
            calls.append(item)
            return {"price": 3}
        """,
    )
    short = found(
        shop,
        """
        import remote

        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double):
            assert remote.quote("x") == {"price": 3}
            shop.naive()

        def test_calls():
            assert remote.calls == ["x"]
        """,
    )
    session = shop.run()
    assert session.outcomes == {
        ID: "passed", f"{ID}[replay-{short}]": "failed", "test_shop.py::test_calls": "passed",
    }  # fmt: skip

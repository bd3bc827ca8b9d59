"""Runs without stress: contracts are judged, seeds are run, and a failure says what a person can act on."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.plugin.conftest import INI


def test_a_violation_fails_the_item_with_a_section_to_act_on(shop: Any) -> None:
    shop.tests(
        """
        def test_refund(mat_run, no_double):
            shop.naive()
            shop.refund("o1")
        """
    )
    session = shop.run()
    assert session.statuses == {"test_shop.py::test_refund": "violated"}
    lines = session.failures["test_shop.py::test_refund"].splitlines()
    assert lines[:2] == [
        "no_double: o1 was refunded twice (test_shop.py:12)",
        "  hard contract, effected at step 2 by main, in test_shop.py::test_refund",
    ]
    assert any("tool_call refund" in line and "VIOLATES no_double" in line for line in lines)
    assert "Repair: ask what happened before a retry" in lines
    assert "Traceback" not in session.text


def test_a_failing_assertion_of_the_body_is_shown_as_pytest_shows_it(shop: Any) -> None:
    shop.tests(
        """
        def test_refund(mat_run, no_double):
            assert shop.naive() == "declined"
        """
    )
    session = shop.run()
    assert session.statuses == {"test_shop.py::test_refund": "failed"}
    assert session.outcomes == {"test_shop.py::test_refund": "failed"}
    assert "AssertionError: assert 'refunded' == 'declined'" in session.text
    assert "VIOLATES" not in session.text
    assert "pytest_mat/" not in session.failures["test_shop.py::test_refund"]


def test_a_refused_connection_is_shown_though_the_agent_swallows_the_refusal(shop: Any) -> None:
    shop.tests(
        """
        import socket

        def ask():
            try:
                return socket.create_connection(("127.0.0.1", 9))
            except Exception:
                return None

        def test_refund(mat_run, no_double):
            shop.naive()
            assert ask() is not None
        """
    )
    session = shop.run()
    assert "a look-up of 127.0.0.1:9 was refused during the run" in session.text
    assert "loopback=True" in session.text


ASYNC = """
import asyncio, anyio, httpx

async def fetch(url):
    async with httpx.AsyncClient() as client:
        return (await client.get(url)).json()

async def connect(host, port):
    await anyio.connect_tcp(host, port)

async def several():
    async with asyncio.TaskGroup() as group:
        group.create_task(fetch("http://127.0.0.1:8123/a"))
        group.create_task(fetch("http://127.0.0.1:8124/a"))

async def opened():
    await asyncio.open_connection("127.0.0.1", 8123)

def test_refund(mat_run):
    with mat.attach("httpx"):
        asyncio.run(AGENT)
"""


@pytest.mark.parametrize(
    ("agent", "call", "what"),
    [
        ('fetch("http://127.0.0.1:8123/orders")', "client.get", "a connection to 127.0.0.1:8123 was refused during the run"),
        ('fetch("http://shop.invalid/orders")', "client.get", "a look-up of shop.invalid:80 was refused during the run"),
        ('connect("127.0.0.1", 8123)', "connect_tcp", "a connection to 127.0.0.1:8123 was refused during the run"),
        ("opened()", "open_connection", "a connection to 127.0.0.1:8123 was refused during the run"),
        ("several()", "client.get", "a connection to 127.0.0.1:8123 was refused during the run, and 1 more way out"),
    ],
)
def test_a_refusal_in_async_code_is_short_and_names_the_line_of_the_agent(shop: Any, agent: str, call: str, what: str) -> None:
    shop.tests(ASYNC.replace("AGENT", agent))
    said = [line.removeprefix("E").strip() for line in shop.run().failures["test_shop.py::test_refund"].splitlines()]
    code = enumerate((shop.path / "test_shop.py").read_text().splitlines(), 1)
    (place,) = [f"test_shop.py:{number}" for number, line in code if call in line]
    assert f"mat.core.errors.Uncontrolled: {what}" in said
    assert any("loopback=True" in line for line in said)
    site = r"(main/service:GET [a-z0-9.:]+/[a-z]+#1 at )?"
    assert any(re.fullmatch(f"where: {site}{place}", line) for line in said), said
    assert len(said) < 35
    assert not any("site-packages" in line or "asyncio/" in line or "mat/kernel" in line for line in said)


def test_an_assertion_and_a_violation_are_both_shown(shop: Any) -> None:
    shop.tests(
        """
        def test_refund(mat_run, no_refund):
            assert shop.naive() == "declined"
        """
    )
    session = shop.run()
    assert session.statuses == {"test_shop.py::test_refund": "violated"}
    assert "AssertionError: assert 'refunded' == 'declined'" in session.text
    assert "VIOLATES no_refund" in session.text


def test_all_seeds_run_with_fresh_fixtures_and_the_first_failing_one_is_named(shop: Any) -> None:
    shop.tests(
        """
        seen = []

        @pytest.fixture
        def box():
            return []

        @pytest.mark.mat(seeds=3)
        def test_all(mat_run, box):
            box.append(mat_run.seed)
            seen.append(list(box))
            shop.naive()

        def test_seen():
            assert seen == [[0], [1], [2]]

        @pytest.mark.mat(seeds=3)
        def test_second(mat_run):
            shop.naive()
            assert mat_run.seed < 1, "bad seed"
        """
    )
    session = shop.run()
    assert session.outcomes == {
        "test_shop.py::test_all": "passed", "test_shop.py::test_seen": "passed", "test_shop.py::test_second": "failed",
    }  # fmt: skip
    assert session.items["test_shop.py::test_all"]["executions"] == 3
    assert session.items["test_shop.py::test_second"]["executions"] == 3
    assert "seed 1 of 3" in session.text
    assert session.report["runs"] == 6
    assert session.report["metrics"]["nominal.success"]["value"] == 4 / 6


def test_randomness_differs_between_seeds_and_between_tests(shop: Any) -> None:
    shop.tests(
        """
        import os, random, secrets, uuid
        seen = []

        @pytest.mark.mat(seeds=3)
        @pytest.mark.parametrize("task", [1, 2])
        def test_draw(mat_run, task):
            system = random.SystemRandom().random()
            seen.append((random.random(), str(uuid.uuid4()), secrets.token_hex(4), os.urandom(4), system))
            shop.naive()

        def test_seen():
            assert len(seen) == 6
            for draws in zip(*seen):
                assert len(set(draws)) == 6
        """
    )
    assert shop.run().failures == {}


def test_the_horizon_stops_an_endless_loop_and_fails_the_item(shop: Any) -> None:
    shop.tests(
        """
        from mat_contracts import terminates

        def endless():
            while True:
                shop.check("o1")
                time.sleep(1)

        @pytest.mark.mat(horizon=20)
        def test_fails(mat_run):
            endless()

        @pytest.mark.mat(horizon=20, contracts=[terminates()])
        def test_violates(mat_run):
            endless()

        @pytest.mark.mat(horizon=20, contracts=[terminates()], expect=[terminates().id])
        def test_expected(mat_run):
            endless()

        @pytest.mark.mat(horizon=20)
        def test_no_steps(mat_run):
            while True:
                time.sleep(3600)
        """
    )
    session = shop.run()
    assert session.outcomes == {
        "test_shop.py::test_fails": "failed",
        "test_shop.py::test_violates": "failed",
        "test_shop.py::test_expected": "passed",
        "test_shop.py::test_no_steps": "failed",
    }
    said = session.failures["test_shop.py::test_fails"]
    assert said.startswith("the run did not terminate: horizon at step 20")
    assert "fix: raise horizon=" in said
    said = session.failures["test_shop.py::test_violates"]
    assert said.startswith("progress.terminates: the run did not terminate: horizon")


def test_a_day_of_sleep_takes_no_time_and_every_clock_agrees(shop: Any) -> None:
    shop.tests(
        """
        from time import sleep
        import datetime

        def test_sleep(mat_run):
            before = time.monotonic(), time.time(), datetime.datetime.now()
            sleep(86_400)
            shop.naive()
            after = time.monotonic(), time.time(), datetime.datetime.now()
            assert after[0] - before[0] == after[1] - before[1] == (after[2] - before[2]).total_seconds() == 86_400
            assert mat_run.trace[0].at_ms == 86_400_000
        """,
        name="test_sleeping_by_a_bound_name.py",
    )
    assert shop.run().failures == {}


def test_the_handle_shows_spec_and_trace_and_refuses_what_is_not_there_yet(shop: Any) -> None:
    shop.tests(
        """
        @pytest.fixture
        def early(mat_run):
            return mat_run.trace

        def test_early(early):
            pass

        def test_handle(mat_run):
            assert mat_run.trace == ()
            shop.naive()
            assert [record.site for record in mat_run.trace] == ["main/service:check#1", "main/service:refund#1"]
            assert mat_run.spec.task == "test_shop.py::test_handle"
        """
    )
    session = shop.run()
    assert session.outcomes == {"test_shop.py::test_early": "error", "test_shop.py::test_handle": "passed"}
    assert "the run has not started" in session.failures["test_shop.py::test_early"]


def test_episodes_judge_contracts_from_their_start(shop: Any) -> None:
    shop.tests(
        """
        def test_episodes(mat_run, no_double):
            for name in "ab":
                with mat_run.episode(name):
                    shop.naive()

        def test_one_run(mat_run, no_double):
            shop.naive()
            shop.naive()
        """
    )
    assert shop.run().outcomes == {"test_shop.py::test_episodes": "passed", "test_shop.py::test_one_run": "failed"}


def test_an_ini_option_instruments_functions_in_every_run_and_a_fixture_replaces_it(shop: Any) -> None:
    shop.write("pytest.ini", f"{INI}mat_instrument = bare.transfer bare.audit\n")
    shop.write("bare.py", "def transfer(amount):\n    return amount\ndef audit():\n    return True\n")
    shop.tests(
        """
        import bare

        def called(run):
            bare.transfer(3), bare.audit()
            return [(each.action.name, each.action.effect) for each in run.trace if each.action.boundary]

        def test_all(mat_run):
            assert called(mat_run) == [("transfer", "unknown"), ("audit", "unknown")]

        def test_with_the_default_of_the_fixture(mat_instrument, mat_run):
            assert mat_instrument == ["bare.transfer", "bare.audit"]
            assert len(called(mat_run)) == 2

        class TestOwn:
            @pytest.fixture
            def mat_instrument(self):
                return {"bare.audit": {"effect": "read"}}

            def test_one(self, mat_run):
                assert called(mat_run) == [("audit", "read")]
        """
    )
    assert shop.run().failures == {}


def test_config_governance_and_instrument_fixtures_reach_the_run(shop: Any) -> None:
    shop.write("bare.py", "def transfer(amount):\n    return amount\n")
    shop.tests(
        """
        import bare

        @pytest.fixture
        def mat_config():
            return {"model": "m-1"}

        @pytest.fixture
        def mat_governance():
            return mat.policy.Governance(capabilities={"main": ["check"]})

        @pytest.fixture
        def mat_instrument():
            return {"bare.transfer": {"effect": "write"}}

        def test_all(mat_run):
            assert mat_run.spec.config["model"] == "m-1"
            with pytest.raises(PermissionError):
                bare.transfer(3)
            assert mat_run.trace[0].action.name == "transfer"
        """
    )
    assert shop.run().failures == {}
    ungoverned = shop.run("--mat-governance=none")
    assert "DID NOT RAISE" in ungoverned.text

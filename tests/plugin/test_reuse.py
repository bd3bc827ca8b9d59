"""A certificate is reused while nothing changes that it rests on, and in no other case.

No change here alters the nominal run: all are read, or not, by what the agent does after a fault. So only the inputs of the
certificate can show them.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from mat.core.codec import FORMAT

ID = "test_shop.py::test_refund"
CAREFUL = """
import mat

@mat.tool(effect="write")
def refund(order):
    return {"refunded": order}

def naive(tries=1):
    try:
        refund("o1")
    except TimeoutError:
        failed()

def failed():
    %s
"""
Change: TypeAlias = Callable[[Any, pytest.MonkeyPatch], object]


def cases(table: Iterable[str], *fast: str) -> list[Any]:
    """The cases of a table; only those named are in the fast tier."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.full) for name in table]


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def careful(shop: Any, after_a_fault: str = "pass") -> None:
    """An agent that is certified, and the only code that runs under a fault and not in the nominal run."""
    shop.write("shop.py", CAREFUL % after_a_fault)
    shop.tests(
        """
        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double):
            shop.naive()
        """
    )


def reused(session: Any) -> dict[str, str]:
    return {name: item["reused"] for name, item in session.items.items()}


def certified(shop: Any, *arguments: str) -> None:
    """Search once, and see that a second session reuses the certificate."""
    first = shop.stress("-v", *arguments)
    assert (first.statuses, reused(first)) == ({ID: "certified"}, {ID: ""}), first.text
    second = shop.stress("-v", *arguments)
    assert (second.statuses, reused(second)) == ({ID: "certified"}, {ID: today()}), second.text
    assert second.items[ID]["executions"] == 1
    for name in ("bound", "proven", "relative_to", "covered"):
        assert second.items[ID][name] == first.items[ID][name]
    assert _without_executions(second) == _without_executions(first)


def _without_executions(session: Any) -> dict[str, Any]:
    tables: dict[str, Any] = session.report["tables"]
    return {name: table for name, table in tables.items() if name not in ("items", "coverage")}


def searched_anew(shop: Any, *arguments: str, because: str) -> None:
    third = shop.stress("-v", *arguments)
    assert reused(third) == {ID: ""}, third.text
    assert f"mat: {ID}: searched again: " in third.text
    assert because in third.text.partition("searched again: ")[2].partition("\n")[0]


@pytest.mark.full
def test_the_certificate_is_said_to_be_reused_in_terminal_json_and_page(shop: Any) -> None:
    careful(shop)
    certified(shop)
    session = shop.stress("--mat-report", "out.html", "--mat-report", "out.md")
    assert f"test_refund: certified, reused from {today()}" in session.text
    assert "1 certified (1 reused)" in session.text
    assert "(1 execution, " in session.text
    assert f"certified, reused from {today()}" in (shop.path / "out.html").read_text()


SOURCES: dict[str, tuple[str, str, str]] = {
    "the agent's module": ("shop.py", "pass", "shop.py changed"),
    "a module that it imports": ("prices.py", "import prices", "prices.py changed"),
    "a module that this module imports": ("rates.py", "import prices", "rates.py changed"),
    "a module that is imported by name": ("plans/gold.py", "importlib.import_module('plans.gold')", "plans.gold changed"),
    "a package around it": ("plans/__init__.py", "from plans import gold", "plans/__init__.py changed"),
    "a conftest file": ("conftest.py", "pass", "conftest.py changed"),
    "the test's module": ("test_shop.py", "pass", "test_shop.py changed"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("what", cases(SOURCES, "a module that this module imports"))
def test_a_changed_source_is_searched_anew(shop: Any, what: str) -> None:
    name, after_a_fault, because = SOURCES[what]
    shop.write("prices.py", "import rates\n")
    shop.write("rates.py", "")
    shop.write("plans/__init__.py", "")
    shop.write("plans/gold.py", "")
    careful(shop, f"import importlib; {after_a_fault}")
    certified(shop)
    path = shop.path / name
    status = path.stat()
    path.write_text(path.read_text() + "\n# changed\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # nobody is taken in by the time of the last change
    searched_anew(shop, because=because)


def _write(name: str, text: str) -> Change:
    return lambda shop, monkeypatch: shop.write(name, text)


def _set(name: str, value: str) -> Change:
    return lambda shop, monkeypatch: monkeypatch.setenv(name, value)


def _link(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (shop.path / "link.json").unlink()
    (shop.path / "link.json").symlink_to("other.json")


def _insert(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with sqlite3.connect(shop.path / "shop.db") as database:
        database.execute("insert into limits values (9)")
    database.close()


def _touch(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(shop.path / "limit.json", (1, 1))


READ: dict[str, tuple[str, Change, str]] = {
    "a file": ("open('limit.json').read()", _write("limit.json", "6"), "limit.json changed"),
    "a file by pathlib": ("pathlib.Path('limit.json').read_text()", _write("limit.json", "6"), "limit.json changed"),
    "a file that was missing": ("os.path.exists('extra.json')", _write("extra.json", ""), "extra.json changed"),
    "a file that could not be opened": (
        "contextlib.suppress(OSError).__enter__() or pathlib.Path('extra.json').is_file()", _write("extra.json", ""),
        "extra.json changed",
    ),
    "the names in a folder": ("os.listdir('rules')", _write("rules/b.json", ""), "the names in rules changed"),
    "the names that match": ("list(pathlib.Path('rules').glob('*'))", _write("rules/b.json", ""), "the names in rules changed"),
    "a link": ("open('link.json').read()", _link, "link.json changed"),
    "a database": ("sqlite3.connect('shop.db').close()", _insert, "shop.db changed"),
    "the time of a file": ("os.path.getmtime('limit.json')", _touch, "limit.json changed"),
    "a variable": ("os.environ.get('LIMIT')", _set("LIMIT", "6"), "the variable LIMIT changed"),
    "a variable that was set": ("os.getenv('SHOP')", _set("SHOP", "berlin"), "the variable SHOP changed"),
    "all variables": ("dict(os.environ)", _set("LIMIT", "6"), "the environment changed"),
    "a proxy": ("pass", _set("HTTPS_PROXY", "http://localhost:1"), "the variable HTTPS_PROXY changed"),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("what", cases(READ, "a file", "a variable"))
def test_what_an_execution_under_faults_has_read_is_searched_anew_when_it_changes(
    shop: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    after_a_fault, change, because = READ[what]
    monkeypatch.setenv("SHOP", "paris")
    shop.write("limit.json", "5")
    shop.write("other.json", "7")
    shop.write("rules/a.json", "")
    (shop.path / "link.json").symlink_to("limit.json")
    with sqlite3.connect(shop.path / "shop.db") as database:
        database.execute("create table limits (amount integer)")
    database.close()
    careful(shop, f"import contextlib, importlib.util, os, pathlib, sqlite3; {after_a_fault}")
    certified(shop)
    change(shop, monkeypatch)
    searched_anew(shop, because=because)


@pytest.mark.full
def test_a_module_that_could_not_be_imported_and_now_can_is_searched_anew(shop: Any) -> None:
    careful(shop, "\n    try: import fast\n    except ImportError: pass")
    certified(shop)
    shop.write("fast.py", "")
    searched_anew(shop, because="fast.py changed")


@pytest.mark.full
def test_what_is_read_while_a_module_is_imported_counts_for_the_tests_that_import_it(shop: Any) -> None:
    shop.write("limit.json", "5")
    careful(shop)
    path = shop.path / "shop.py"
    path.write_text(f"import os; LIMIT = open('limit.json').read(); CITY = os.environ.get('CITY')\n{path.read_text()}")
    certified(shop)
    shop.write("limit.json", "6")
    searched_anew(shop, because="limit.json changed")


@pytest.mark.full
def test_what_a_fixture_of_wider_scope_reads_counts_for_tests_that_did_not_make_it(shop: Any) -> None:
    shop.write("limit.json", "5")
    careful(shop)
    shop.conftest(
        """
        @pytest.fixture(scope="session")
        def limit():
            return open("limit.json").read()
        """
    )
    shop.write("test_a.py", "import pytest\n@pytest.mark.mat(budget=1)\ndef test_first(mat_run, limit): pass\n")
    path = shop.path / "test_shop.py"
    path.write_text(path.read_text().replace("no_double):", "no_double, limit):"))
    shop.stress()
    assert reused(shop.stress())[ID] == today()
    shop.write("limit.json", "6")
    session = shop.stress("-v")
    assert reused(session)[ID] == ""
    assert f"{ID}: searched again: limit.json changed" in session.text


SETTINGS: dict[str, tuple[tuple[str, ...], str]] = {
    "the budget": (("--mat-budget", "5"), "budget"),
    "the seeds": (("--mat-seeds", "2"), "seeds"),
    "the horizon": (("--mat-horizon", "50"), "horizon"),
    "the runs": (("--mat-max-runs", "500"), "max_runs"),
    "the strategy": (("--mat-strategy", "anytime"), "strategy"),
    "the stop": (("--mat-stop", "first"), "stop"),
    "an ini option": (("-o", "mat_errors=httpx"), "errors"),
    "an option of the project": (("--city", "rome"), "option city"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("what", cases(SETTINGS, "the budget"))
def test_another_setting_is_searched_anew(shop: Any, what: str) -> None:
    arguments, because = SETTINGS[what]
    careful(shop)
    shop.conftest("def pytest_addoption(parser): parser.addoption('--city', default='paris')")
    certified(shop)
    searched_anew(shop, *arguments, because=because)


@pytest.mark.full
def test_options_that_only_show_and_select_change_nothing(shop: Any) -> None:
    careful(shop)
    certified(shop)
    for arguments in (("-q",), ("-k", "refund"), ("--tb=short", "-rA"), ("--durations=3",), ("--mat-timeout", "60"), ("-x",)):
        assert reused(shop.stress(*arguments)) == {ID: today()}


CONTRACTS: dict[str, tuple[str, Change]] = {
    "from a variable": ("int(os.environ.get('MOST', '3'))", _set("MOST", "4")),
    "from a file": ("int(open('most.txt').read())", _write("most.txt", "4")),
    "from an option of the project": ("request.config.getoption('--most')", lambda shop, monkeypatch: None),
}


@pytest.mark.nightly
@pytest.mark.parametrize("what", cases(CONTRACTS, "from a variable"))
def test_another_argument_of_a_contract_is_searched_anew(shop: Any, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    argument, change = CONTRACTS[what]
    shop.write("most.txt", "3")
    careful(shop)
    shop.conftest(
        f"""
        import os
        import mat_contracts

        def pytest_addoption(parser):
            parser.addoption("--most", type=int, default=3)

        @pytest.fixture
        def no_double(request):
            return mat_contracts.retries_bounded(attempts={argument})
        """
    )
    certified(shop)
    change(shop, monkeypatch)
    searched_anew(shop, *(["--most", "4"] if "option" in what else []), because="contract any.retries_bounded")


@pytest.mark.full
def test_another_operator_and_other_code_of_an_operator_are_searched_anew(shop: Any) -> None:
    careful(shop)
    operators = "import mat\nfrom mat.boundary.effect import Raise\ndef decide(call, reply, stream): return Raise('timeout')\n"
    shop.write("faulty.py", operators)
    shop.conftest(
        """
        import sys

        def pytest_configure(config):
            import faulty

        @pytest.hookimpl(specname="pytest_mat_operators")
        def more_operators(config):
            return [mat.spec.operator("service.own", sys.modules["faulty"].decide)]
        """
    )
    certified(shop)
    shop.write("faulty.py", operators.replace("timeout", "disconnect"))
    searched_anew(shop, because="faulty.py changed")


@pytest.mark.full
def test_another_policy_is_searched_anew(shop: Any) -> None:
    policy = {"mat": 1, "rules": [{"block": {"tools": "erase", "reason": "nothing is erased"}}]}
    shop.write("policy.json", json.dumps(policy))
    careful(shop)
    shop.conftest(
        """
        import pathlib

        @pytest.fixture
        def mat_governance():
            return pathlib.Path("policy.json").absolute()
        """
    )
    certified(shop)
    shop.write("policy.json", json.dumps(policy, indent=1))
    searched_anew(shop, because="policy.json changed")


@pytest.mark.full
def test_other_recorded_replies_are_searched_anew(shop: Any) -> None:
    shop.write(
        "models.py",
        """
        import os, random
        import mat

        OWN = random.Random(os.urandom(16))

        @mat.model("planner")
        def planner(prompt) -> dict:
            return {"mood": OWN.getrandbits(64)}
        """,
    )
    careful(shop, "import models; models.planner('again?')")
    path = shop.path / "test_shop.py"
    path.write_text(path.read_text().replace("    shop.naive()", "    import models; models.planner('how?'); shop.naive()"))
    shop.stress("--mat-live-calls", "9")
    certified_later = shop.stress("-v", "--mat-live-calls", "9")
    assert reused(certified_later) == {ID: today()}, certified_later.text
    assert "the recorded replies" in certified_later.items[ID]["relative_to"]
    (cassette,) = (shop.path / ".mat" / "cassettes").glob("*.jsonl")
    lines = cassette.read_bytes().splitlines(keepends=True)
    cassette.write_bytes(b"".join(lines[:-1]))  # the last reply is that to "again?", which only faulty runs ask
    searched_anew(shop, "--mat-live-calls", "9", because=".mat/cassettes")


@pytest.mark.full
def test_replies_of_external_ports_that_are_not_recorded_are_not_known(shop: Any) -> None:
    shop.write("models.py", 'import mat\n\n@mat.model("planner")\ndef planner(prompt) -> dict:\n    return {"mood": 1}\n')
    careful(shop)
    path = shop.path / "test_shop.py"
    path.write_text(path.read_text().replace("    shop.naive()", "    import models; models.planner('how?'); shop.naive()"))
    assert shop.stress().statuses == {ID: "certified"}
    searched_anew(shop, because="replies of external ports are not recorded")


@pytest.mark.full
def test_another_version_of_an_installed_distribution_is_searched_anew(shop: Any) -> None:
    (shop.path / "agents-1.0.dist-info").mkdir()
    careful(shop)
    certified(shop)
    (shop.path / "agents-1.0.dist-info").rename(shop.path / "agents-1.1.dist-info")
    searched_anew(shop, because="distributions changed")


@pytest.mark.full
def test_another_version_of_pytest_mat_is_searched_anew(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_mat import reused as module

    careful(shop)
    certified(shop)
    versions = {**module.versions_of(), "pytest-mat": "99"}
    monkeypatch.setattr(module, "versions_of", lambda: versions)
    searched_anew(shop, because="pytest-mat")


@pytest.mark.nightly
@pytest.mark.parametrize("how", cases(("workers", "forks"), "forks"))
def test_what_other_processes_read_counts_too(shop: Any, how: str) -> None:
    shop.write("limit.json", "5")
    careful(shop, "open('limit.json').read()")
    if how == "forks":
        path = shop.path / "test_shop.py"
        path.write_text(path.read_text().replace("budget=4", 'isolate="fork", budget=4'))
    arguments = ("--mat-workers", "2") if how == "workers" else ()
    certified(shop, *arguments)
    shop.write("limit.json", "6")
    searched_anew(shop, *arguments, because="limit.json changed")


@pytest.mark.full
def test_a_module_that_only_another_test_has_loaded_counts_where_it_is_imported_by_name(shop: Any) -> None:
    shop.write("plans/__init__.py", "")
    shop.write("plans/gold.py", "")
    shop.write("test_a.py", "import plans.gold\ndef test_plain(): pass\n")
    careful(shop, "import importlib; importlib.import_module('plans.' + 'gold')")
    shop.stress()
    assert reused(shop.stress())[ID] == today()
    shop.write("plans/gold.py", "LIMIT = 6")
    session = shop.stress("-v")
    assert f"{ID}: searched again: the module plans.gold changed" in session.text


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("after_a_fault", "because"),
    [
        ("import os; os.stat('/proc/self/stat'); open('/proc/self/stat').read()", "which differs from one process to the next"),
        ("open('made.json').read()", "made.json changed while the session ran"),
    ],
)
def test_what_cannot_be_known_is_not_kept(shop: Any, after_a_fault: str, because: str) -> None:
    careful(shop, after_a_fault)
    shop.conftest("def pytest_configure(config): open('made.json', 'w').write('1')")
    assert shop.stress().statuses == {ID: "certified"}
    searched_anew(shop, because="its last certificate was not kept: ")
    assert because in shop.stress("-v").text


@pytest.mark.full
def test_a_source_that_changes_while_the_session_runs_is_not_kept(shop: Any) -> None:
    careful(shop, "import prices")
    shop.write("prices.py", "")
    shop.write("test_a.py", "def test_edits():\n    open('prices.py', 'a').write('# more')\n")
    assert shop.stress("test_a.py", "test_shop.py").statuses == {ID: "certified"}
    searched_anew(shop, "test_shop.py", because="prices.py changed while the session ran")


@pytest.mark.nightly
def test_bytecode_of_an_earlier_version_of_a_source_is_noticed(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE")
    careful(shop, "amount = 1")
    path = shop.path / "shop.py"
    os.utime(path, (1_000_000_000, 1_000_000_000))
    assert shop.stress(process=True).statuses == {ID: "certified"}
    assert reused(shop.stress(process=True)) == {ID: today()}
    path.write_text(path.read_text().replace("amount = 1", "amount = 2"))
    os.utime(path, (1_000_000_000, 1_000_000_000))  # now Python runs the earlier version, and does not know it
    assert reused(shop.stress(process=True)) == {ID: ""}
    session = shop.stress("-v", process=True)
    assert reused(session) == {ID: ""}
    assert "the bytecode of shop.py may be that of an earlier version" in session.text


@pytest.mark.nightly
@pytest.mark.parametrize(
    "how",
    ["os.open('limit.json', os.O_RDONLY, dir_fd=folder)", "os.stat('limit.json', dir_fd=folder)", "os.listdir(folder)"],
)
def test_what_is_named_by_the_descriptor_of_a_folder_is_not_known(shop: Any, how: str) -> None:
    shop.write("rules/limit.json", "")
    careful(shop, f"import os; folder = os.open('rules', os.O_RDONLY); {how}")
    assert shop.stress().statuses == {ID: "certified"}
    searched_anew(shop, because="a file is named by the descriptor of its folder")


@pytest.mark.nightly
def test_a_damaged_foreign_or_forged_record_is_not_used(shop: Any) -> None:
    careful(shop)
    certified(shop)
    (path,) = (shop.path / ".mat" / "searches").glob("*.z")
    whole = path.read_bytes()
    for damaged in (b"", whole[:100], whole[:-3] + b"abc", b"\0" * 50):
        path.write_bytes(damaged)
        assert reused(shop.stress()) == {ID: ""}
    path.write_bytes(whole)
    assert reused(shop.stress()) == {ID: today()}
    shop.tests(
        (shop.path / "test_shop.py").read_text().partition("FAULTS = ")[2].partition("\n")[2].replace("refund(m", "other(m")
    )
    shop.stress()
    other = next(each for each in (shop.path / ".mat" / "searches").glob("*.z") if each != path)
    other.write_bytes(whole)
    assert set(reused(shop.stress()).values()) == {""}


@pytest.mark.nightly
def test_it_can_be_turned_off(shop: Any) -> None:
    careful(shop)
    certified(shop)
    for arguments in (("--mat-no-reuse",), ("--mat-fresh",), ("-o", "mat_reuse=false"), ("--cache-clear",)):
        session = shop.stress(*arguments)
        assert (session.statuses, reused(session)) == ({ID: "certified"}, {ID: ""})
        assert session.items[ID]["executions"] > 1
        assert reused(shop.stress()) == {ID: today()}


@pytest.mark.full
def test_a_certificate_holds_on_the_next_day_and_whatever_was_accepted(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    careful(shop)
    certified(shop)
    shop.write(
        "mat_replays/accepted.json",
        json.dumps(
            {
                "mat": FORMAT,
                "accepted": [
                    {
                        "replay": "test_refund-1.mat.json", "test": ID, "stage": "effected", "cost": 4, "since": "2026-01-01",
                        "until": "2999-01-01", "reason": "later", "by": "ann",
                        "signatures": [
                            {
                                "contract": "other", "severity": "hard", "action_kind": "tool_call", "interface": "refund",
                                "risk": "", "operator_family": "service",
                            }
                        ],
                    }
                ],
            }
        ),
    )  # fmt: skip
    next_day_ns = time.time_ns() + 86_400 * 10**9
    monkeypatch.setattr("pytest_mat.known.session_began_ns", lambda: next_day_ns)
    for is_accepted in (True, False):
        session = shop.stress("-v")
        assert (session.statuses, list(reused(session).values())) == ({ID: "certified"}, [today()]), session.text
        assert ("fixed: other" in " ".join(session.text.split())) is is_accepted
        (shop.path / "mat_replays/accepted.json").unlink(missing_ok=True)


@pytest.mark.full
def test_a_test_that_may_ask_servers_of_this_machine_is_searched_every_time(shop: Any) -> None:
    careful(shop)
    shop.write("test_shop.py", (shop.path / "test_shop.py").read_text().replace("budget=4", "budget=4, loopback=True"))
    for _ in range(2):
        session = shop.stress("-v")
        assert (session.statuses, reused(session)) == ({ID: "certified"}, {ID: ""}), session.text
    assert "searched again: its last certificate was not kept: it may ask servers of this machine" in session.text


@pytest.mark.full
def test_an_evaluation_reuses_nothing(shop: Any) -> None:
    careful(shop)
    certified(shop)
    session = shop.run("--mat-evaluate", "--mat-stress")
    assert reused(session) == {ID: ""}


@pytest.mark.full
def test_a_counterexample_is_found_again_and_never_reused(shop: Any) -> None:
    shop.tests(
        """
        @pytest.mark.mat(budget=4, faults=FAULTS)
        def test_refund(mat_run, no_double):
            shop.naive()
        """
    )
    for _ in range(2):
        session = shop.stress()
        assert session.items[ID]["status"] == "counterexample"
        assert session.items[ID]["executions"] > 1


@pytest.mark.full
def test_the_nominal_run_is_executed_and_must_be_the_same(shop: Any) -> None:
    careful(shop)
    shop.write("test_other.py", "import shop\n\ndef test_plain():\n    shop.CITY = 'rome'\n")
    path = shop.path / "shop.py"
    path.write_text(path.read_text().replace('refund("o1")', 'refund(globals().get("CITY", "o1"))'))
    certified(shop, "test_shop.py")
    session = shop.stress("-v", "test_other.py", "test_shop.py")
    assert reused(session) == {ID: ""}
    assert f"{ID}: searched again: the nominal run changed" in session.text


@pytest.mark.nightly
@pytest.mark.parametrize("tests", [pytest.param(4, marks=pytest.mark.full), pytest.param(50, marks=pytest.mark.nightly)])
def test_of_many_tests_the_one_that_changed_is_searched_and_the_others_are_reused(shop: Any, tests: int) -> None:
    for number in range(tests):
        shop.write(f"agent_{number}.py", CAREFUL % "pass")
        shop.write(
            f"test_{number}.py",
            f"import pytest, agent_{number}\n\n@pytest.mark.mat(budget=4)\ndef test_agent(mat_run, no_double):\n"
            f"    agent_{number}.naive()\n",
        )
    assert set(shop.stress().statuses.values()) == {"certified"}
    path = shop.path / "agent_3.py"
    path.write_text(path.read_text() + "# changed\n")
    session = shop.stress("-v")
    assert [name for name, day in reused(session).items() if not day] == ["test_3.py::test_agent"]
    assert f"{tests} certified ({tests - 1} reused)" in session.text
    assert session.text.count("searched again") == 1
    assert "test_3.py::test_agent: searched again: agent_3.py changed" in session.text


@pytest.mark.nightly
def test_a_time_for_the_session_is_shared_out_and_what_it_was_not_enough_for_is_named(shop: Any) -> None:
    shop.tests(
        """
        for number in range(4):
            def agent(mat_run, no_double):
                for order in range(40):
                    try:
                        shop.naive(1, f"o{order}")
                    except ConnectionError:
                        pass
            globals()[f"test_{number}"] = pytest.mark.mat(budget=40, search=mat.Search(max_runs=50_000))(agent)
        """
    )
    session = shop.stress("--mat-session-timeout", "0.001")
    names = [f"test_shop.py::test_{number}" for number in range(4)]
    assert session.statuses == dict.fromkeys(names, "not_proven")
    assert session.outcomes == dict.fromkeys(names, "passed")
    assert {item["executions"] for item in session.items.values()} == {1}
    assert f"mat: --mat-session-timeout: not searched for lack of time: {', '.join(names)}" in session.text
    assert shop.stress("--mat-session-timeout", "0.001", "--mat-require-proof").outcomes == dict.fromkeys(names, "failed")

    session = shop.stress("--mat-session-timeout", "8")
    assert session.statuses == dict.fromkeys(names, "not_proven")
    line = next(line for line in session.text.splitlines() if line.startswith("mat: --mat-session-timeout"))
    assert [name for name in names if name not in line] == []
    assert all(item["bound"] < 40 for item in session.items.values())


@pytest.mark.nightly
def test_a_test_that_changed_gets_its_time_before_one_that_did_not(shop: Any) -> None:
    """What a session expects of each search decides about the shares (`mat_study.allotment`)."""
    shop.conftest(
        """
        import json
        from pathlib import Path

        def pytest_sessionfinish(session):
            from pytest_mat.reused import expected
            found = {name: [each.needs_s, each.first] for name, each in expected(session).items()}
            Path("expected.json").write_text(json.dumps(found))
        """
    )
    for name in ("a", "b"):
        shop.write(f"agent_{name}.py", CAREFUL % "pass")
        shop.write(
            f"test_{name}.py",
            f"import pytest, agent_{name}\n\n@pytest.mark.mat(budget=4)\ndef test_agent(mat_run, no_double):\n"
            f"    agent_{name}.naive()\n",
        )

    def expected(*arguments: str) -> list[list[Any]]:
        session = shop.stress("--mat-session-timeout", "300", *arguments)
        assert set(session.statuses.values()) == {"certified"}
        found = json.loads((shop.path / "expected.json").read_text())
        return [found[f"test_{name}.py::test_agent"] for name in ("a", "b")]

    assert expected() == [[None, True], [None, True]]
    assert expected() == [[0.0, False], [0.0, False]]
    path = shop.path / "agent_b.py"
    path.write_text(path.read_text() + "# changed\n")
    (unchanged, changed) = expected("--mat-no-reuse")
    assert (unchanged[1], changed[1]) == (False, True)
    assert min(unchanged[0], changed[0]) > 0


@pytest.mark.parametrize("value", ["0", "-1", "soon", "inf"])
def test_a_time_for_the_session_that_is_no_time_is_refused(shop: Any, value: str) -> None:
    shop.tests("def test_plain(): pass")
    result = shop.pytester.runpytest_inprocess("--mat-stress", f"--mat-session-timeout={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "number of seconds" in result.stderr.str()


@pytest.mark.nightly
def test_workers_of_xdist_keep_and_reuse_certificates(shop: Any) -> None:
    pytest.importorskip("xdist")
    careful(shop)
    assert shop.stress("-n", "1", process=True).statuses == {ID: "certified"}
    assert reused(shop.stress("-n", "1", process=True)) == {ID: today()}


def test_a_run_outside_of_stress_leaves_the_process_as_it_was() -> None:
    from pytest_mat import asked

    stat, kind = os.stat, type(os.environ)
    asked.begin()
    try:
        assert os.stat is not stat
        assert os.stat in os.supports_follow_symlinks
        assert Path(__file__).exists()
    finally:
        asked.end()
    assert os.stat is stat
    assert type(os.environ) is kind
    assert sys.modules["os"].stat in os.supports_follow_symlinks

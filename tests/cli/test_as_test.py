from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import mat
from mat.__main__ import main
from mat.core.campaign import Certificate, Counterexample, Stability
from mat.core.spec import Perturbation
from mat.evidence import replay_file

LOST = mat.spec.perturbation("service.lost_ack", "mailer/service:refund#1", cost=4)
SHOP = """
import mat
import pytest


@mat.tool(effect="write", impact="high")
def refund(order):
    return {"order": order}


def work(tries, order="A-777"):
    with mat.agent("mailer"):
        for attempt in range(tries):
            try:
                return refund(order)
            except TimeoutError:
                mat.mitigate("retry")
        raise RuntimeError("gave up")


@mat.trace_contract(start=0, id="refund.once")
def fold(count, record):
    if record.action.name != "refund" or record.effected == "no":
        return None
    return mat.Violated("refunded twice", repair="send a key", state=count + 1) if count else 1


@pytest.fixture
def refund_once():
    return fold


@pytest.fixture
def tries():
    return TRIES
"""
TESTS = """

@pytest.mark.mat
def test_refund(mat_run, refund_once, tries):
    assert mat_run.seed == 3
    work(tries)
"""


INI = "[pytest]\naddopts = -p no:cacheprovider -p no:hypothesispytest {more}\nasyncio_default_fixture_loop_scope = function\n"


class Project:
    """A folder with a test module and a replay of one of its tests, made by running what the test runs."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.folder = pytester.path / "shop"
        self.folder.mkdir()
        (self.folder / "pytest.ini").write_text(INI.format(more=""))

    def tests(self, text: str, *, tries: int = 2, shop: str = SHOP) -> None:
        (self.folder / "test_shop.py").write_text((shop + text).replace("TRIES", str(tries)))

    def module(self) -> Any:
        spec = importlib.util.spec_from_file_location("a_shop_under_test", self.folder / "test_shop.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def replay(
        self,
        name: str = "test_refund",
        body: Callable[[Any], object] = lambda module: module.work(2),
        *,
        contracts: Callable[[Any], Sequence[Any]] = lambda module: [module.fold],
        schedule: Sequence[Perturbation] = (LOST,),
        expected: bool = False,
        **options: Any,
    ) -> Path:
        """The replay of a run of `body` under the schedule; its first violation is what was found."""
        module = self.module()
        made = mat.run(contracts(module), task=f"test_shop.py::{name}", seed=3, schedule=schedule, **options)
        try:
            with made:
                body(module)
        except Exception:
            pass  # the task's failure is part of the run
        assert made.result is not None
        found = Counterexample(verdict=made.result.failures[0], run=made.result, stability=Stability(runs=3, reproduced=3))
        replay = replay_file.Replay(
            item=f"test_shop.py::{name}", counterexample=found, certificate=Certificate(proven=True), expected=expected
        )
        path = self.folder / replay_file.FOLDER / replay_file.name_of(replay)
        replay_file.write(path, replay)
        return path

    def write(self, path: Path, *arguments: str, code: int = 0) -> Path:
        """What `mat replay --as-test` writes, under a name of its own."""
        out = self.folder / f"test_written_{len(list(self.folder.glob('test_written_*')))}.py"
        done = self.mat("replay", path, "--as-test", "--out", out.name, *arguments)
        assert done.returncode == code, done.stderr
        return out

    def mat(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """The command in this process, in the project's folder."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(argument) for argument in arguments])
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def pytest(self, path: Path, *arguments: str, process: bool = False) -> str:
        """What a session says that runs this file; in a process of its own where the whole way is to be seen."""
        given = ("-q", "-p", "no:xdist", "-rA", *arguments, path.name)
        with contextlib.chdir(self.folder):
            if process:
                return self.pytester.runpytest_subprocess(*given, timeout=120).stdout.str()
            return self.pytester.runpytest_inprocess(*given).stdout.str()


@pytest.fixture
def shop(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr("sys.dont_write_bytecode", True)  # a module rewritten within a second must be read again
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return Project(pytester)


@pytest.mark.nightly
def test_the_test_fails_on_the_weak_system_passes_on_the_mended_one_and_needs_no_replay_file(shop: Project) -> None:
    shop.tests(TESTS)
    path = shop.replay()
    done = shop.mat("replay", path, "--as-test", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    written = shop.folder / data["file"]
    assert written.name == f"test_refund_{path.name[12:18]}.py"
    text = written.read_text()
    assert text == data["test"]
    assert len(text.splitlines()) < 60
    assert "# - the reply of the 1st refund call by mailer is lost after the effect happened (cost 4)" in text
    assert '    mat.spec.perturbation("service.lost_ack", "mailer/service:refund#1", cost=4),\n' in text
    assert "SEED = 3\n" in text
    assert 'CONTRACT = "refund.once"\n' in text
    path.unlink()
    said = shop.pytest(written, process=True)
    assert "AssertionError: refunded twice" in said
    assert "1 failed" in said
    assert "1 failed" in shop.pytest(written, "--mat-stress")  # it searches nothing: it is a test of its own
    shop.tests(TESTS, tries=1)
    assert "1 passed" in shop.pytest(written)  # the task fails under the disturbance, its contracts hold


@pytest.mark.full
def test_a_schedule_that_is_not_reached_any_more_does_not_pass(shop: Project) -> None:
    shop.tests(TESTS)
    written = shop.write(shop.replay())
    shop.tests(TESTS.replace("work(tries)", "pass"))
    said = shop.pytest(written)
    assert "stale: the run no longer reaches any site of the schedule" in said
    assert "1 failed" in said


@pytest.mark.full
def test_a_known_weakness_is_expected_to_fail_and_a_mended_one_says_so(shop: Project) -> None:
    weak = TESTS.replace("@pytest.mark.mat", '@pytest.mark.mat(expect={"refund.once"})')
    shop.tests(weak)
    written = shop.write(shop.replay(expected=True))
    assert "1 xfailed" in shop.pytest(written)
    shop.tests(weak, tries=1)
    said = shop.pytest(written)
    assert "XPASS(strict)" in said
    assert "1 failed" in said


EXTERNAL = """

LIVE = True


@mat.tool(tape="external")
def ask(question):
    if not LIVE:
        raise SystemExit("a live call")
    return "yes"


@pytest.mark.mat
def test_refund(mat_run, refund_once, tries):
    if ask("WORDS") == "yes":
        work(tries)
"""


@pytest.mark.full
def test_what_services_said_comes_from_the_replay_file_or_is_embedded(shop: Project) -> None:
    def body(module: Any) -> None:
        assert module.ask("may I?") == "yes"
        module.work(2)

    shop.tests(EXTERNAL.replace("WORDS", "may I?"))
    path = shop.replay(body=body)
    referring, embedding = shop.write(path), shop.write(path, "--embed")
    assert f'Path(__file__).parent / "mat_replays" / "{path.name}"' in referring.read_text()
    assert path.name not in embedding.read_text()
    shop.tests(EXTERNAL.replace("LIVE = True", "LIVE = False").replace("WORDS", "may I?"))
    assert "AssertionError: refunded twice" in shop.pytest(referring)
    path.rename(shop.folder / "elsewhere.json")
    assert "AssertionError: refunded twice" in shop.pytest(embedding)
    shop.tests(EXTERNAL.replace("WORDS", "another question"))
    said = shop.pytest(embedding)
    assert "no taped reply for main/service:ask#1" in said
    assert "1 failed" in said


INVOLVED = """

pytestmark = [pytest.mark.mat(contracts=[fold])]


@pytest.fixture
def mat_contracts():
    return [mat.step_contract(on="tool_call", id="refund.named")(lambda record: record.action.arguments["order"] != "")]


def no_second(record):
    return None


@pytest.fixture
def mat_governance():
    return mat.Policy(rules=(no_second,))


class TestShop:
    @pytest.mark.parametrize("order", ["A-1", 'B "2"'])
    @pytest.mark.mat(governance="shield")
    async def test_refund(self, mat_run, order, tries, from_conftest):
        assert from_conftest == "conftest"
        work(tries, order)
"""


@pytest.mark.full
@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_classes_coroutines_parameters_markers_governance_and_conftests_are_carried_over(shop: Project, mode: str) -> None:
    shop.tests(INVOLVED)
    (shop.folder / "conftest.py").write_text(
        "import pytest\n\n\n@pytest.fixture\ndef from_conftest():\n    return 'conftest'\n"
    )
    (shop.folder / "pytest.ini").write_text(INI.format(more=f"--import-mode={mode}") + "asyncio_mode = auto\n")
    path = shop.replay('TestShop::test_refund[B "2"]')
    written = shop.write(path)
    text = written.read_text()
    assert "asyncio.run(original.TestShop().test_refund(" in text
    assert "order='B \"2\"'" in text
    assert '*original.pytestmark[0].kwargs["contracts"]' in text
    assert '.variant("shield")' in text
    said = shop.pytest(written)
    assert "AssertionError: refunded twice" in said
    assert "1 failed" in said
    shop.tests(INVOLVED.replace("return None", 'return mat.policy.Block("no") if "#2" in record.site else None'))
    assert "1 passed" in shop.pytest(written)  # the policy stops the second refund


@pytest.mark.nightly
def test_operators_of_a_conftest_and_of_the_library_are_both_found(shop: Project) -> None:
    (shop.folder / "conftest.py").write_text(
        "import mat\nfrom mat.boundary.effect import Raise\n\n\n"
        "def pytest_mat_operators(config):\n"
        "    return [mat.spec.operator('service.odd', lambda call, reply, stream: Raise('timeout'), phase='after')]\n"
    )
    from mat.boundary.effect import Raise
    from mat.harness.execute import installed_operators

    shop.tests(TESTS)
    catalog = installed_operators()
    catalog.register(mat.spec.operator("service.odd", lambda call, reply, stream: Raise("timeout"), phase="after"))
    odd = mat.spec.perturbation("service.odd", "mailer/service:refund#1", cost=4)
    both = [odd, mat.spec.perturbation("service.delay", "mailer/service:refund#2", {"ms": 1000, "magnitude": 1}, cost=5)]
    for schedule in ([odd], both):
        written = shop.write(shop.replay(schedule=schedule, operators=catalog))
        assert "AssertionError: refunded twice" in shop.pytest(written)


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("\nimport unittest\n\n\nclass TestShop(unittest.TestCase):\n    def test_refund(self):\n        work(2)\n",
         "TestShop::test_refund", "it is a method of unittest.TestCase"),
        ("\n\nclass TestShop:\n    @pytest.fixture\n    def own(self):\n        return 1\n\n"
         "    def test_refund(self, mat_run, own, refund_once):\n        work(2)\n",
         "TestShop::test_refund", "its fixture 'own' is defined in the class"),
        ("\n\nclass TestShop:\n    def setup_method(self):\n        pass\n\n"
         "    def test_refund(self, mat_run, refund_once):\n        work(2)\n",
         "TestShop::test_refund", "its class has setup_method"),
        ("\n\n@pytest.mark.parametrize('thing', [object()])\ndef test_refund(mat_run, refund_once, thing):\n    work(2)\n",
         "test_refund[thing0]", "the value of its parameter 'thing' cannot be written as a literal"),
        ("\n\n@pytest.fixture(params=[1])\ndef number(request):\n    return request.param\n\n\n"
         "def test_refund(mat_run, refund_once, number):\n    work(2)\n",
         "test_refund[1]", "its fixture 'number' is parametrized"),
        ("\n\n@pytest.fixture\ndef helper(mat_run):\n    return mat_run\n\n\n"
         "def test_refund(helper, refund_once):\n    work(2)\n", "test_refund", "its fixture 'helper' requests mat_run"),
        ("\n\ndef test_refund(mat_run):\n    work(2)\n", "test_refund", "'refund.once' no longer judges it"),
        ("\n\ndef test_other(mat_run):\n    work(2)\n", "test_refund", "could not be collected and set up"),
    ],
)  # fmt: skip
def test_what_cannot_be_carried_over_is_refused_with_its_reason(shop: Project, text: str, name: str, said: str) -> None:
    shop.tests(text)
    path = shop.replay(name)
    done = shop.mat("replay", path, "--as-test")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert [file.name for file in shop.folder.glob("*.py")] == ["test_shop.py"]


def test_the_file_stands_next_to_its_test_and_nothing_is_overwritten(
    shop: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.tests(TESTS)
    path = shop.replay()
    monkeypatch.chdir(shop.folder)
    (shop.folder / "taken.py").write_text("")
    for out, said in (
        ("../test_x.py", "the same folder as test_shop.py"), ("test_x.txt", "must end in .py"), ("taken.py", "exists already"),
    ):  # fmt: skip
        assert main(["replay", str(path), "--as-test", "--out", out]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert ("or delete the existing file" in error) == (out == "taken.py")
    moved = shop.folder / path.name
    path.rename(moved)
    assert main(["replay", str(moved), "--as-test"]) == 2
    assert "the test of" in capsys.readouterr().err
    assert main(["replay", str(moved), "--embed", "--out", "x.py"]) == 2
    assert "--out and --embed need --as-test" in capsys.readouterr().err


@pytest.mark.full
def test_the_text_goes_to_stdout_where_that_is_asked_for(shop: Project) -> None:
    shop.tests(TESTS)
    done = shop.mat("replay", shop.replay(), "--as-test", "--out", "-")
    assert done.returncode == 0
    ast.parse(done.stdout)
    assert [file.name for file in shop.folder.glob("*.py")] == ["test_shop.py"]


ASYNC = """
import asyncio

import pytest_asyncio


class Connection:
    def __init__(self):
        self.loop = asyncio.get_running_loop()


@pytest_asyncio.fixture
async def connection():
    await asyncio.sleep(0)
    yield Connection()


{mark}@pytest.mark.mat
async def test_refund(mat_run, refund_once, tries, connection):
    assert connection.loop is asyncio.get_running_loop()
    work(tries)
"""


@pytest.mark.full
@pytest.mark.parametrize(("mode", "mark"), [("auto", ""), ("strict", '@pytest.mark.asyncio(loop_scope="function")\n')])
def test_a_test_with_asynchronous_fixtures_runs_in_their_loop(shop: Project, mode: str, mark: str) -> None:
    (shop.folder / "pytest.ini").write_text(INI.format(more="") + f"asyncio_mode = {mode}\n")
    shop.tests(ASYNC.format(mark=mark))
    written = shop.write(shop.replay())
    text = written.read_text()
    assert "\nasync def test_refund_keeps_" in text
    assert "await original.test_refund(" in text
    assert "AssertionError: refunded twice" in shop.pytest(written)
    shop.tests(ASYNC.format(mark=mark), tries=1)
    assert "1 passed" in shop.pytest(written)


@pytest.mark.full
def test_an_asynchronous_contract_is_refused_because_a_run_needs_it_before_it_begins(shop: Project) -> None:
    (shop.folder / "pytest.ini").write_text(INI.format(more="") + "asyncio_mode = auto\n")
    late = ASYNC.format(mark="").replace("tries, connection", "tries, connection, late") + (
        "\n\n@pytest_asyncio.fixture\nasync def late():\n    return fold\n"
    )
    shop.tests(late)
    path = shop.replay()
    done = shop.mat("replay", path, "--as-test")
    assert done.returncode == 2
    assert "its fixture 'late' is asynchronous, and gives what a run needs before it begins" in done.stderr

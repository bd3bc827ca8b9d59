"""The slim protocol: an execution under stress is the same as with pytest's own protocol, whatever the item does."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mat.core.packed import pack
from mat.core.spec import Schedule, perturbation
from mat_study.evaluation import Evaluated, Plan
from pytest_mat import collector, evaluators
from pytest_mat.execution import RunHandle, live_calls
from pytest_mat.options import settings_of
from pytest_mat.protocol import why_in_full

ITEMS = """
import logging, os, threading, unittest, warnings
import mat, pytest
from mat.temporal import always, tool_call

LOG = []
MOST = 3

@mat.tool(effect="write")
def pay(order):
    LOG.append(f"pay {order}")
    return "paid"

def agent():
    try:
        return pay("A1")
    except (OSError, TimeoutError):
        LOG.append("failed")
        return pay("A1")

@pytest.fixture(autouse=True)
def around(request):
    LOG.append(f"around {request.node.name}")
    yield
    LOG.append("around down")

@pytest.fixture(scope="module")
def wide():
    LOG.append("wide")
    yield
    LOG.append("wide down")

@pytest.fixture(scope="class")
def of_class(wide):
    LOG.append("of_class")
    yield
    LOG.append("of_class down")

@pytest.fixture(params=["a", "b"])
def letter(request):
    LOG.append(request.param)
    request.addfinalizer(lambda: LOG.append(f"not {request.param}"))
    return request.param

@pytest.fixture
def paid_once():
    return mat.contract("paid.once", always(tool_call("pay").implies(tool_call("pay"))))

@pytest.fixture
def logged_contract():
    LOG.append("contract")
    @mat.step_contract(on="tool_call")
    def judged(record): return True
    return judged

@pytest.fixture
def broken():
    print("from the fixture")
    raise RuntimeError("no set-up")

@pytest.fixture
def broken_later():
    yield
    LOG.append("breaks")
    raise RuntimeError("no tear-down")

@pytest.fixture
def broken_finalizer(request):
    request.addfinalizer(lambda: 1 / 0)
    request.addfinalizer(lambda: LOG.append("before that"))

@pytest.fixture
def skipping(): pytest.skip("not here")

@pytest.fixture
def marking(request): request.node.add_marker(pytest.mark.xfail(reason="dynamic"))

def test_plain(mat_run, paid_once): agent()
def test_fixtures(mat_run, letter, logged_contract, of_class): agent()
def test_made_twice(mat_run, request): LOG.append(request.getfixturevalue("letter_of")); agent()
@pytest.fixture
def letter_of(wide): return "c"
def test_asks_for_a_contract(mat_run, request): LOG.append(request.getfixturevalue("paid_once").id); agent()

@pytest.mark.usefixtures("of_class")
def test_usefixtures(mat_run): agent()
def test_folder(mat_run, tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP", "1")
    (tmp_path / "file").write_text("x")
    LOG.append(sorted(os.listdir(tmp_path)))
    agent()
def test_environment(mat_run): LOG.append(os.environ["PYTEST_CURRENT_TEST"]); agent()
def test_fails(mat_run, paid_once): agent(); assert 1 == 2, "no"
def test_fails_by_pytest(mat_run): agent(); pytest.fail("no")
def test_broken(mat_run, wide, broken): agent()
def test_broken_later(mat_run, broken_later, wide): agent()
def test_broken_finalizer(mat_run, broken_finalizer): agent()
def test_broken_both(mat_run, broken_later, broken): agent()
def test_skipping(mat_run, skipping): agent()
def test_skips(mat_run, wide): print("skip"); agent(); pytest.skip("in the body")
@pytest.mark.skip(reason="marked")
def test_skipped(mat_run): agent()
@pytest.mark.xfail(reason="known")
def test_xfails(mat_run): agent(); raise ValueError("x")
@pytest.mark.xfail(strict=True, reason="known")
def test_xfails_strictly(mat_run): agent()
@pytest.mark.xfail(run=False, reason="known")
def test_xfails_unrun(mat_run): agent()
def test_marking(mat_run, marking): agent(); raise ValueError("x")
def test_xfail_called(mat_run): agent(); pytest.xfail("in the body")
def test_interrupted(mat_run, letter, broken_later): agent(); raise KeyboardInterrupt
def test_exits(mat_run, letter): agent(); raise SystemExit(3)
def test_ends_the_session(mat_run, wide): agent(); pytest.exit("enough")
def test_speaks(mat_run): print("said"); logging.getLogger("shop").warning("logged %s", 1); warnings.warn("warned"); agent()
def test_logs_badly(mat_run):
    LOG.append(bool(logging.getLogger().handlers))
    logging.getLogger("shop").error("%d", "x")
    agent()
def test_thread(mat_run):
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start(); thread.join()
    agent()
def test_asks_for_records(mat_run, request):
    logging.getLogger("shop").error("one")
    LOG.append([record.message for record in request.getfixturevalue("caplog").records]); agent()
def test_asks_for_output(mat_run, request):
    found = request.getfixturevalue("capsys"); print("hello"); LOG.append(found.readouterr().out); agent()

class TestMethods:
    def setup_method(self): self.seen = []; LOG.append("setup_method")
    def teardown_method(self): LOG.append(("teardown_method", self.seen))
    def test_method(self, mat_run, of_class): self.seen.append(1); LOG.append(list(self.seen)); agent()

@pytest.mark.mat
class TestCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls): LOG.append("setUpClass")
    def setUp(self): LOG.append("setUp"); self.addCleanup(LOG.append, "cleanup")
    def tearDown(self): LOG.append("tearDown")
    def test_case(self): agent()
    def test_case_fails(self): agent(); self.fail("no")
    def test_case_skips(self): agent(); self.skipTest("no")
    @unittest.expectedFailure
    def test_case_expected(self): agent(); self.fail("no")

@pytest.mark.asyncio
async def test_async(mat_run): LOG.append("async"); agent()

def test_capsys(mat_run, capsys): print("x"); LOG.append(capsys.readouterr().out); agent()
def test_caplog(mat_run, caplog): logging.getLogger("shop").error("x"); LOG.append(len(caplog.records)); agent()
def test_recwarn(mat_run, recwarn): warnings.warn("x"); LOG.append(len(recwarn)); agent()
"""
IN_FULL = {
    "test_capsys": "fixture capsys", "test_caplog": "fixture caplog", "test_recwarn": "fixture recwarn",
    **dict.fromkeys(["test_case", "test_case_fails", "test_case_skips", "test_case_expected"], "it is a TestCaseFunction"),
}  # fmt: skip
SCHEDULES = (
    Schedule(),
    Schedule((perturbation("service.timeout", "main/service:pay#1", cost=2),)),
)


class Comparison:
    """Instead of running an item, executes it in full, slim, and slim again, and keeps what could be observed of each."""

    def __init__(self) -> None:
        self.found: dict[str, list[list[Any]]] = {}
        self.why: dict[str, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for item in session.items:
            self.why[item.name] = why_in_full(item)
            self.found[item.name] = [self._executed(item, slim=slim) for slim in (False, True)]
            session._setupstate.teardown_exact(None)
        return True

    def _executed(self, item: pytest.Item, *, slim: bool) -> list[Any]:
        settings = settings_of(item)
        evaluator = evaluators.ItemEvaluator(item, settings, live_calls(item, settings))
        if not slim:
            evaluator.__dict__["_slim"] = None
        item.session._setupstate.teardown_exact(None)
        item.own_markers[:] = [mark for mark in item.own_markers if mark.kwargs.get("reason") != "dynamic"]
        plans = [Plan(mode="search", schedule=schedule) for schedule in (*SCHEDULES, *SCHEDULES)]
        return [self._observed(item, evaluator, plan) for plan in plans]

    def _observed(self, item: pytest.Item, evaluator: evaluators.ItemEvaluator, plan: Plan) -> tuple[Any, ...]:
        log: list[Any] = item.getparent(pytest.Module).obj.LOG  # type: ignore[union-attr]
        log.clear()
        try:
            given = evaluator.here(plan)
        except BaseException as error:
            return type(error).__name__, str(error), tuple(map(str, log))
        if isinstance(given, Evaluated):
            assert given.outcome == "passed"
            return (
                pack(given.run, given.run.spec),
                given.judged,
                tuple(each.id for each in given.contracts),
                tuple(map(str, log)),
            )
        reports = [
            (report.when, report.outcome, without_addresses(report.longrepr), getattr(report, "wasxfail", None))
            for report in given.reports
        ]
        output = [(report.caplog, report.capstdout) for report in given.reports[-1:]]
        return given.why, given.outcome, given.refused, tuple(reports), tuple(output), tuple(map(str, log))


def without_addresses(shown: object) -> str:
    return re.sub("0x[0-9a-f]+", "0x", str(shown))


def compared(pytester: pytest.Pytester, source: str, *options: str) -> Comparison:
    pytester.makepyfile(test_items=source)
    comparison = Comparison()
    pytester.inline_run("-q", "-p", "no:cacheprovider", *options, plugins=[comparison])
    assert comparison.found
    return comparison


@pytest.mark.full
def test_slim_executions_equal_full_ones(pytester: pytest.Pytester) -> None:
    comparison = compared(pytester, ITEMS)
    assert {name: slim for name, (full, slim) in comparison.found.items() if slim != full} == {}
    assert {name: why for name, why in comparison.why.items() if why} == IN_FULL
    observed = {name: [kinds[-1] for kinds in full] for name, (full, _) in comparison.found.items()}
    assert observed["test_plain"][1] == ("around test_plain", "failed", "pay A1", "around down")


def test_the_comparison_notices_a_protocol_that_forgets_to_tear_down(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = evaluators.SlimProtocol.execute

    def forgetful(protocol: Any) -> Any:
        item = protocol._item
        fixture = item._fixtureinfo.name2fixturedefs["around"][-1]
        fixture._finalizers = []
        reports = real(protocol)
        item.getparent(pytest.Module).obj.LOG.pop()
        return reports

    monkeypatch.setattr(evaluators.SlimProtocol, "execute", forgetful)
    comparison = compared(pytester, ITEMS, "-k", "test_plain")
    full, slim = comparison.found["test_plain"]
    assert slim != full


@pytest.mark.parametrize(
    ("conftest", "why"),
    [
        ("def pytest_runtest_makereport(item, call): pass", "conftest implements pytest_runtest_makereport"),
        ("def pytest_runtest_setup(item): item.listener = 1", ""),
    ],
)
def test_a_plugin_that_observes_reports_gets_them(pytester: pytest.Pytester, conftest: str, why: str) -> None:
    pytester.makeconftest(conftest)
    comparison = compared(pytester, ITEMS, "-k", "test_plain")
    assert comparison.why == {"test_plain": why}


def test_hooks_of_other_plugins_are_called_in_slim_executions(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        def note(item, word): item.module.LOG.append(word)
        def pytest_runtest_setup(item): note(item, "set up")
        def pytest_runtest_call(item): note(item, "call")
        def pytest_runtest_teardown(item): note(item, "tear down")
        def pytest_pyfunc_call(pyfuncitem): note(pyfuncitem, "body")
        def pytest_fixture_setup(fixturedef, request): note(request._pyfuncitem, fixturedef.argname)
        """
    )
    comparison = compared(pytester, ITEMS, "-k", "test_plain or test_fixtures")
    full, slim = comparison.found["test_plain"]
    assert full == slim
    assert [word for word in full[0][-1] if word in ("paid_once", "body", "call")] == ["paid_once", "call", "body"]


def test_a_contract_that_a_test_asks_for_by_its_name_is_made_once(pytester: pytest.Pytester) -> None:
    source = """
        import mat, pytest
        from mat_contracts import no_duplicate_effect
        SEEN, COUNTED = [], []
        @pytest.fixture
        def paid_once(): return no_duplicate_effect("pay", id="paid.once")
        @pytest.fixture
        def counted():
            COUNTED.append(1)
            return no_duplicate_effect("pay", id="paid.counted")
        @pytest.fixture
        def mat_contracts(request): return [request.getfixturevalue("paid_once"), request.getfixturevalue("counted")]
        def test_it(mat_run, mat_contracts): SEEN.append(mat_contracts)
    """
    seen: list[list[Any]] = []

    class Executions:
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            (item,) = session.items
            evaluator = evaluators.ItemEvaluator(item, settings_of(item), live_calls(item, settings_of(item)))
            for _ in range(3):
                evaluator.here(Plan(mode="search"))
                seen.extend(item.module.SEEN)  # type: ignore[attr-defined]
                item.module.SEEN.clear()  # type: ignore[attr-defined]
            return True

    pytester.makepyfile(test_it=source)
    pytester.inline_run("-q", "-p", "no:cacheprovider", plugins=[Executions()])
    assert len(seen) == 3
    assert len({id(paid_once) for paid_once, _ in seen}) == 1
    assert len({id(counted) for _, counted in seen}) == 3, "its code does something else than to make a contract"


# -- drawn graphs of fixtures -----------------------------------------------------------------------------------------

ENDS = ("return", "yield", "finalizer", "raise", "raise later")


@st.composite
def fixture_graphs(draw: st.DrawFn) -> str:
    """A module of fixtures that request earlier ones, with some scope, that end in some way, and a test of some of them."""
    lines, scopes = [], ("function", "class", "module")
    widths: list[int] = []
    for index in range(draw(st.integers(1, 6))):
        width = draw(st.sampled_from((0, 0, 0, 1, 2)))
        earlier = [place for place, other in enumerate(widths) if other >= width]
        asked = sorted(draw(st.sets(st.sampled_from(earlier), max_size=3))) if earlier else []
        end = draw(st.sampled_from(ENDS if width == 0 else ENDS[:3]))
        options = [f"scope={scopes[width]!r}"]
        if draw(st.booleans()):
            options.append("autouse=True")
        lines += [
            f"@pytest.fixture({', '.join(options)})",
            f"def f{index}({', '.join(['request', *(f'f{place}' for place in asked)])}):",
            f"    LOG.append('f{index}')",
            *_ending(index, end),
        ]
        widths.append(width)
    asked = sorted(draw(st.sets(st.sampled_from(range(len(widths))))))
    lines += [f"def test_drawn({', '.join(['mat_run', *(f'f{place}' for place in asked)])}):", "    agent()"]
    head = ITEMS[: ITEMS.index("@pytest.fixture(autouse=True)")]
    return head + "\n".join(lines) + "\n"


def _ending(index: int, end: str) -> list[str]:
    return {
        "return": [f"    return {index}"],
        "yield": ["    yield", f"    LOG.append('not f{index}')"],
        "finalizer": [f"    request.addfinalizer(lambda: LOG.append('finalized f{index}'))"],
        "raise": ["    raise RuntimeError('set-up')"],
        "raise later": ["    yield", f"    LOG.append('breaks f{index}')", "    raise RuntimeError('tear-down')"],
    }[end]


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(source=fixture_graphs())
def test_fixtures_are_set_up_and_torn_down_in_the_same_order(pytester: pytest.Pytester, source: str) -> None:
    comparison = compared(pytester, source)
    full, slim = comparison.found["test_drawn"]
    assert slim == full


# -- contracts that are kept --------------------------------------------------------------------------------------------

KEPT = """
import random, time
import mat, mat_contracts, pytest
from mat.temporal import always, tool_call, field

LIMIT = 5
SEEN = []
MADE = {}

@mat.tool(effect="write")
def pay(order):
    return "paid"

def judge(record): return record.action.name != "never"
def counting(record): SEEN.append(record); return True

@pytest.fixture
def template(): return mat_contracts.no_duplicate_effect("pay", key="order", id="pay.once")
@pytest.fixture
def formula(): return mat.contract("formula", always(tool_call("pay").implies(field("action.name") == "pay")))
@pytest.fixture
def decorated():
    @mat.step_contract(on="tool_call", id="decorated")
    def judged(record): return LIMIT > 0
    return judged
@pytest.fixture
def of_constant(): return mat_contracts.no_duplicate_effect("pay", key="order", id=f"most.{LIMIT}")
@pytest.fixture
def several(): return [mat_contracts.terminates(id=name) for name in ("one", "two")]

@pytest.fixture
def drawing(): return mat_contracts.terminates(id=f"drawn.{random.random()}")
@pytest.fixture
def reading(): return mat_contracts.terminates(id=f"at.{time.time()}")
@pytest.fixture
def listing():
    SEEN.append(1)
    return mat_contracts.terminates(id="listing")
@pytest.fixture
def keeping():
    seen = []
    @mat.step_contract(on="tool_call", id="keeping")
    def judged(record):
        seen.append(record)
        return len(seen) < 3
    return judged
@pytest.fixture
def defaults():
    @mat.step_contract(on="tool_call", id="defaults")
    def judged(record, seen=[]):
        seen.append(record)
        return len(seen) < 3
    return judged
@pytest.fixture
def in_folder(tmp_path): return mat_contracts.terminates(id=tmp_path.name)
@pytest.fixture
def generated():
    yield mat_contracts.terminates(id="generated")
@pytest.fixture
def chained(in_folder): return mat_contracts.terminates(id="chained")
@pytest.fixture
def importing():
    import mat_contracts
    return mat_contracts.terminates(id="importing")

NAMES = ["template", "formula", "decorated", "of_constant", "several", "drawing", "reading", "listing", "keeping", "defaults",
         "in_folder", "generated", "chained", "importing"]

def test_all(mat_run, template, formula, decorated, of_constant, several, drawing, reading, listing, keeping, defaults,
             in_folder, generated, chained, importing):
    for name in NAMES:
        MADE.setdefault(name, []).append(locals()[name])
    pay("A1")
"""
PURE = {"template", "formula", "decorated", "of_constant"}


def only_item(session: pytest.Session) -> tuple[Any, evaluators.ItemEvaluator]:
    """The module of the only item of a session, and the item's evaluator."""
    (item,) = session.items
    assert isinstance(item, pytest.Function)
    settings = settings_of(item)
    return item.module, evaluators.ItemEvaluator(item, settings, live_calls(item, settings))


class Keeping:
    """Executes the item three times, then with another value of the constant."""

    def __init__(self) -> None:
        self.made: dict[str, list[Any]] = {}
        self.names: list[tuple[str, ...]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        module, evaluator = only_item(session)
        for limit in (5, 5, 5, 6):
            module.LIMIT = limit
            given = evaluator.here(Plan(mode="search"))
            assert isinstance(given, Evaluated), given
            assert given.run.failures == ()
            self.names.append(tuple(contract.id for contract in given.contracts))
        self.made = module.MADE
        return True


def test_contracts_are_made_once_where_their_fixtures_do_nothing_else(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_kept=KEPT)
    keeping = Keeping()
    pytester.inline_run("-q", "-p", "no:cacheprovider", plugins=[keeping])
    kept = {name for name, values in keeping.made.items() if values[0] is values[1] is values[2]}
    assert kept == PURE
    assert all(values[2] is not values[3] for values in keeping.made.values())  # a constant that they read has changed
    lists = keeping.made["several"]
    assert lists[0] is not lists[1]
    assert lists[0][0] is lists[1][0]
    assert "most.5" in keeping.names[2]
    assert "most.6" in keeping.names[3]


RUNS = """
import pytest

MADE = []

@pytest.fixture
def schedule(mat_run): return lambda: mat_run.spec.schedule
OWN
def test_run(REQUESTED, schedule):
    MADE.append((mat_run, schedule(), request.node.name, request.fixturename))
"""


class Runs:
    """Executes the item four times."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.handles: list[bool] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        module, evaluator = only_item(session)
        for _ in range(4):
            given = evaluator.here(Plan(mode="search"))
            assert isinstance(given, Evaluated), given
            self.handles.append(isinstance(module.MADE[-1][0], RunHandle))
        self.made = module.MADE
        return True


@pytest.mark.parametrize("requested", ["mat_run, request", "request, mat_run"])
@pytest.mark.parametrize("own", ["", "@pytest.fixture\ndef mat_run(mat_run, request): return [mat_run]\n"])
def test_each_execution_has_its_own_run_and_request(requested: str, own: str, pytester: pytest.Pytester) -> None:
    text = RUNS.replace("REQUESTED", requested).replace("OWN", own)
    if own:
        text = text.replace("mat_run.spec", "mat_run[0].spec")
    pytester.makepyfile(test_runs=text)
    runs = Runs()
    pytester.inline_run("-q", "-p", "no:cacheprovider", plugins=[runs])
    assert len({id(handle) for handle, *_ in runs.made}) == 4
    assert runs.handles == [not own] * 4
    assert {(len(schedule), node, name) for _, schedule, node, name in runs.made} == {(0, "test_run", None)}


# -- the garbage collector ----------------------------------------------------------------------------------------------


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    """Those of the interpreter, while nothing is frozen, as these tests are otherwise."""
    kept = gc.get_threshold()
    gc.unfreeze()
    yield kept
    gc.set_threshold(*kept)
    gc.freeze()


def test_a_search_puts_the_collector_back(thresholds: tuple[int, int, int]) -> None:
    with collector.rare_collections():
        assert gc.get_threshold() != thresholds
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == thresholds
    assert gc.get_freeze_count() == 0


def test_a_collector_that_somebody_turned_off_stays_off(thresholds: tuple[int, int, int]) -> None:
    gc.disable()
    try:
        with collector.rare_collections():
            assert not gc.isenabled()
            assert gc.get_freeze_count() == 0
    finally:
        gc.enable()

"""The pytest plugin: hook stubs and fixtures. Everything else is imported when a test needs it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_mat.options import COLLECTED, is_armed, read_ini

if TYPE_CHECKING:
    from pytest_mat.execution import RunHandle

MARKER = (
    "mat(seeds, budget, faults, contracts, expect, vacuous, objective, horizon, isolate, governance, clock, live_calls, "
    "loopback, search=mat.Search(...), workload=mat.Workload(...)): run the test under contracts; see docs/reference/plugin.md"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the `--mat-` options and the ini options."""
    from pytest_mat.options import add_options

    add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Refuse unknown `--mat-` options with a suggestion, before pytest refuses them without one.

    Under stress, what the user's code reads is watched from here on, before any of it is imported.
    """
    if any(text.startswith("--mat-") for text in args):
        from pytest_mat.options import check_names

        check_names(args)
    options = early_config.option  # in a worker of pytest-xdist, the arguments do not contain its options
    if "--mat-stress" in args or "--mat-confirm" in args or getattr(options, "mat_stress", False):
        from pytest_mat import asked

        asked.begin()


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_mat import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Turn pytest-xdist off for `mat doctor`, which examines items in the process that runs them."""
    if config.getoption("mat_doctor") and config.pluginmanager.hasplugin("xdist"):
        config.option.numprocesses, config.option.dist, config.option.tx = None, "no", []
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, read the ini options, and refuse options that cannot work, before any test is collected."""
    config.addinivalue_line("markers", MARKER)
    _refuse_foreign_mat()
    read_ini(config)
    if any(config.getoption(name) for name in ("mat_report", "mat_replay", "mat_store", "mat_baseline", "mat_executor")):
        from pytest_mat.options import check_options

        check_options(config)
    if config.getoption("mat_stress") or config.getoption("mat_evaluate"):
        from pytest_mat.options import check_temporary_folder

        check_temporary_folder()
    if config.getoption("mat_doctor"):
        from pathlib import Path

        from pytest_mat.doctor import Doctor

        config.pluginmanager.register(Doctor(Path(config.getoption("mat_doctor"))))
    if config.getoption("mat_gate"):
        from pytest_mat.gate import register

        register(config)


def _refuse_foreign_mat() -> None:
    """UsageError if `import mat` would find an unrelated package of that name. Nothing is imported to find out."""
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec("mat")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not any(Path(place, "monitor").is_dir() for place in places):
        found = "nothing" if spec is None else spec.origin or ", ".join(places)
        raise pytest.UsageError(
            f"pytest-mat needs its own package `mat`, but `import mat` finds {found}\n"
            "  why: another distribution or one of your files has the same name and precedes it on sys.path\n"
            "  fix: uninstall the other `mat` (pip uninstall mat) or rename the file, then reinstall pytest-mat"
        )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class) -> Generator[None, Any, Any]:
    """Add an item for each replay file of a test function to the items that pytest makes of the function."""
    made = yield
    if not isinstance(made, list) or not made or collector.config.getoption("mat_confirm"):
        return made
    if (collector.path.parent / "mat_replays").is_dir():
        from pytest_mat.replays import with_replays

        return with_replays(made)
    return made


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Complete the replay items of the session, or select the one of --mat-replay; prepare a search for its executions."""
    searched = config.getoption("mat_stress") or config.getoption("mat_confirm")
    if any(is_armed(item) or (searched and _may_request_contract(item)) for item in items):
        import pytest_mat.items  # noqa: F401  # import now, outside the timeout that a plugin may set for the first item

        if searched or config.getoption("mat_evaluate"):
            from pytest_mat.isolated import watch_fixtures

            watch_fixtures(config).take_tests(items)
    if config.getoption("mat_confirm"):
        return
    directories = {item.path.parent / "mat_replays" for item in items}
    if config.getoption("mat_replay") or any(directory.is_dir() for directory in sorted(directories)):
        from pytest_mat.replays import complete

        complete(session, config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """With --mat-evaluate, check all workloads before the first task runs."""
    armed = [item for item in session.items if is_armed(item)] if session.config.getoption("mat_evaluate") else []
    if armed:
        from pytest_mat.workloads import check_workloads

        check_workloads(session, armed)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Controller of pytest-xdist: report the workloads that a worker refused, which is why it ended."""
    refused = getattr(node, "workeroutput", {}).get("mat_refused")
    if refused:
        raise pytest.UsageError(refused)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Controller of pytest-xdist: keep what the first worker collected, so that its replacement ignores newer replay files."""
    node.config.stash.setdefault(COLLECTED, list(ids))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Controller of pytest-xdist: pass what the first worker collected to a replacement worker."""
    node.workerinput["mat_collected"] = node.config.stash.get(COLLECTED, None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run an item that has the marker, `mat_run` or, under stress, a contract: a study of one or more executions. For all other
    items the answer is None, and pytest runs them."""
    searched = item.config.getoption("mat_stress") or item.config.getoption("mat_confirm")
    if not is_armed(item) and not (searched and _may_request_contract(item)):
        return None
    from pytest_mat.items import run_item

    return run_item(item, nextitem)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Set up an armed item inside the world of its run, so that its fixtures get virtual time and the seed's randomness."""
    if not is_armed(item):
        return (yield)
    from pytest_mat.execution import set_up

    return (yield from set_up(item))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Open the run around the body of an item, with its contracts armed."""
    if not is_armed(item) and not _requests_contract(item):
        return (yield)
    from pytest_mat.execution import call

    return (yield from call(item))


def _may_request_contract(item: pytest.Item) -> bool:
    """Whether a fixture of the item could be a contract: the contract module is imported, and the item uses fixtures."""
    import sys

    return "mat.monitor.contract" in sys.modules and bool(getattr(item, "fixturenames", ()))


def _requests_contract(item: pytest.Item) -> bool:
    """Whether a fixture of the item is a contract or contains one; tested without importing the contract module."""
    import sys

    if "mat.monitor.contract" not in sys.modules:
        return False
    from pytest_mat.arming import requests_contract

    return requests_contract(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Leave the world of the item's run after its fixtures are torn down."""
    import sys

    try:
        return (yield)
    finally:
        if "pytest_mat.execution" in sys.modules:  # otherwise pytest-mat has executed no item
            from pytest_mat.execution import tear_down

            tear_down(item)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item) -> bool | None:
    """Let pytest-timeout limit the reported run only, not the executions of a search."""
    import sys

    if "pytest_mat.execution" not in sys.modules:
        return None
    from pytest_mat.execution import is_unreported

    return True if is_unreported(item) else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the results and notices that a report carries, which may come from a worker, for the summary."""
    payload = getattr(report, "mat", None)
    if payload is not None:
        from pytest_mat.summary import keep_report

        keep_report(payload)
    notices = getattr(report, "mat_notices", None)
    if notices:
        from pytest_mat.notices import keep_notices

        keep_notices(notices)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Add the metrics to the --junitxml file before it is written, and note how the session ended.

    Not in a worker of pytest-xdist, because the controller has all reports.
    """
    import sys

    if "pytest_mat.summary" in sys.modules and session.config.getoption("xmlpath", None):
        from pytest_mat.summary import add_metrics

        add_metrics(session.config)
    if "pytest_mat.notices" in sys.modules and not hasattr(session.config, "workerinput"):
        from pytest_mat.notices import session_over

        session_over(exitstatus, interrupted=_was_interrupted(session.config, exitstatus))


def _was_interrupted(config: pytest.Config, exitstatus: int) -> bool:
    """Whether the session was cut off. pytest gives the same exit code to one that stopped after a test, as --stepwise does."""
    stopped = getattr(config.pluginmanager.get_plugin("session"), "shouldstop", False)
    return exitstatus == pytest.ExitCode.INTERRUPTED and not stopped


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Print the summary and notices, and write the reports of --mat-report."""
    import sys

    nothing_ran = exitstatus == pytest.ExitCode.USAGE_ERROR or config.getoption("collectonly")
    if not nothing_ran and ("pytest_mat.summary" in sys.modules or config.getoption("mat_report")):
        from pytest_mat.summary import print_summary

        print_summary(terminalreporter, config, interrupted=_was_interrupted(config, exitstatus))
    if "pytest_mat.notices" in sys.modules:
        from pytest_mat.notices import lines
        from pytest_mat.options import verbosity_of

        for line in lines(interrupted=_was_interrupted(config, exitstatus), verbose=verbosity_of(config) > 0):
            terminalreporter.write_line(f"mat: {line}")
    if config.getoption("mat_evaluate") and not nothing_ran:
        from pytest_mat.workloads import ignored_options

        names = ignored_options(config)
        if names:
            why = "it searches each of them in its own way, in one process"
            terminalreporter.write_line(f"mat: --mat-evaluate ignores {', '.join(names)} for tests with a workload: {why}")


@pytest.fixture
def mat_run(request: pytest.FixtureRequest) -> RunHandle:
    """The run of this test: the body is the system under test, and the contracts that the test requests are armed."""
    from pytest_mat.execution import handle_of

    return handle_of(request.node)


@pytest.fixture
def mat_contracts() -> list[Any]:
    """Contracts for all tests of a module or directory; override it there."""
    return []


@pytest.fixture
def mat_config() -> dict[str, object]:
    """The run configuration (model ids, prompts, topology), which is part of every run's id. Override it."""
    return {}


@pytest.fixture
def mat_governance() -> Any:
    """The governance of the run: a Policy, a Governance, a dict of variants by name, the path of a policy file, or None.

    Override it.
    """
    return None


@pytest.fixture
def mat_instrument(pytestconfig: pytest.Config) -> Any:
    """Targets to patch while the test runs: dotted paths, or a dict from paths to the options of mat.patch. Override it.

    By default those that the ini option mat_instrument names.
    """
    return pytestconfig.getini("mat_instrument")


@pytest.fixture
def mat_attach(pytestconfig: pytest.Config) -> Any:
    """The frameworks to attach to while the test runs: names, or a dict from names to the options of mat.attach. Override it.

    By default those that the ini option mat_attach names.
    """
    return pytestconfig.getini("mat_attach")


@pytest.fixture
def mat_resume() -> Any:
    """A function without arguments (it may be async) that goes on where a fault has ended the agent's process. Override it.

    It does what happens when the service starts again: it makes the agent anew, and continues from what was saved.
    """
    return None


@pytest.fixture
def mat_state_digest() -> Any:
    """A function without arguments; the search adds its value to the states it compares. None adds nothing. Override it."""
    return None


@pytest.fixture
def mat_workload() -> Any:
    """The workload of this test, for reports: category, input category, channels, boundaries. Override it."""
    return None


def pytest_unconfigure(config: pytest.Config) -> None:
    import sys

    if "pytest_mat.asked" in sys.modules:
        from pytest_mat import asked

        asked.end()
    if "pytest_mat.isolated" in sys.modules:
        from pytest_mat.isolated import stop_keeping_reads

        stop_keeping_reads()
    if "pytest_mat.session" in sys.modules:
        from pytest_mat.session import session_of

        session_of(config).close()
    if "pytest_mat.summary" in sys.modules:
        from pytest_mat.summary import forget

        forget()
    if "pytest_mat.notices" in sys.modules:
        from pytest_mat.notices import forget as forget_notices

        forget_notices()

"""What pytest knows of an item that its certificate rests on, and the session's records of searches (`mat_study.reuse`)."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from mat.core.errors import MatError
from mat.evidence import replay_file
from mat.kernel import names
from mat.kernel.reads import Read
from mat_study.allotment import Waiting
from mat_study.closure import ImportGraph
from mat_study.inputs import InputReader, ItemFacts, UnknownInput, plain_text
from mat_study.live import path_of
from mat_study.reuse import Reuse, SearchRecords
from mat_study.searches import HASH_SEEDS
from mat_study.settings import ItemSettings
from pytest_mat import gate, replays
from pytest_mat.options import is_armed, session_began_ns, settings_of
from pytest_mat.session import session_of

_WITHOUT_EFFECT: Final = frozenset(
    ("basetemp", "cacheclear", "cacheshow", "capture", "code_highlight", "collect_in_virtualenv", "collectonly", "color",
     "confcutdir", "continue_on_collection_errors", "cov_append", "cov_branch", "cov_config", "cov_context",
     "cov_fail_under", "cov_report", "cov_source", "debug", "deselect", "disable_warnings", "dist", "distload",
     "durations", "durations_min", "failedfirst", "file_or_dir", "force_short_summary", "fulltrace", "help", "ignore",
     "ignore_glob", "inifilename", "junitprefix", "keepduplicates", "keyword", "last_failed_no_failures", "lf",
     "loadgroup", "log_file", "log_file_mode", "looponfail", "markers", "markexpr", "maxfail", "maxprocesses",
     "maxschedchunk", "maxworkerrestart", "newfirst", "no_cov", "no_fold_skipped", "no_header", "no_summary",
     "numprocesses", "override_ini", "pastebin", "px", "pyargs", "quiet", "reportchars", "rootdir", "rsyncdir", "rsyncignore",
     "runxfail", "setuponly", "setupplan", "setupshow", "show_fixtures_per_test", "show_xfail_tb", "showcapture",
     "showfixtures", "showlocals", "stepwise", "stepwise_reset", "stepwise_skip", "strict", "strict_config",
     "strict_markers", "tbstyle", "testrunuid", "trace", "traceconfig", "truncation_limit_chars", "truncation_limit_lines",
     "tx", "usepdb", "usepdb_cls", "verbose", "version", "xmlpath")
)  # fmt: skip
"""Options that select tests, or say what is printed and where; those of other plugins, and of the user, may matter."""
_INI_WITHOUT_EFFECT: Final = frozenset(
    ("addopts", "testpaths", "console_output_style", "cache_dir", "mat_timeout", "mat_session_timeout", "mat_reuse",
     "mat_executor", "mat_store", "mat_workers", "mat_require_proof")
)  # fmt: skip
_OURS: Final = "mat_"
"""How our own options begin: the settings of an item contain those that can matter."""


def reuse_of(item: pytest.Item, settings: ItemSettings, taken: Callable[[], tuple[Read, ...]]) -> Reuse:
    """What keeps the certificate of an item from one session to the next."""
    return Reuse(
        item.nodeid, records_of(item.config), facts_of(item, settings), began_ns=session_began_ns(), taken=taken
    )  # fmt: skip


def records_of(config: pytest.Config) -> SearchRecords:
    """The records of searches of the project; `--cache-clear` removes them."""
    known = config.stash.get(_RECORDS, None)
    if known is None:
        cleared = bool(config.getoption("cacheclear", False))
        kept = config.getini("mat_reuse") and not any(
            config.getoption(name) for name in ("mat_no_reuse", "mat_fresh", "mat_doctor")
        )
        known = config.stash[_RECORDS] = SearchRecords(config.rootpath, reuse=kept and not cleared)
        if cleared and not hasattr(config, "workerinput"):
            known.clear()
    return known


def is_searched(item: pytest.Item) -> bool:
    """Whether the item is searched, so that its certificate may be reused; an evaluation and a debugger reuse nothing."""
    option = item.config.getoption
    if not option("mat_stress") or option("mat_evaluate") or option("mat_confirm") or option("usepdb", False):
        return False
    return is_armed(item) and replays.file_of(item) is None and gate.seeds_of(item) is None


def expected(session: pytest.Session) -> Mapping[str, Waiting]:
    """For each item that will be searched, in their order, what its search will probably need; found out once."""
    known = session.config.stash.get(_EXPECTED, None)
    if known is None:
        known = session.config.stash[_EXPECTED] = {item.nodeid: _expected(item) for item in session.items if is_searched(item)}
    return known


def _expected(item: pytest.Item) -> Waiting:
    try:
        return reuse_of(item, settings_of(item), tuple).expected()
    except MatError:  # invalid settings, which its own study reports
        return Waiting(needs_s=0.0)


def seem_to_hold(session: pytest.Session) -> bool:
    """Whether every certificate of the session will probably be reused, so that no search has to be prepared."""
    return all(each.needs_s == 0.0 for each in expected(session).values())


_EXPECTED: Final[pytest.StashKey[Mapping[str, Waiting]]] = pytest.StashKey()
_RECORDS: Final[pytest.StashKey[SearchRecords]] = pytest.StashKey()


def facts_of(item: pytest.Item, settings: ItemSettings) -> ItemFacts:
    """What is known of an item before it is executed."""
    module: Any = item.getparent(pytest.Module)
    unknown = () if module is not None else (f"a {type(item).__name__} has no module",)
    roots = [*_modules(item), *([] if module is None else [module.obj])]
    facts = {**_session_facts(item.config), **versions_of(), "its parameters": _parameters(item), "its replays": _replays(item)}
    cassettes = () if settings.live_calls is None else (str(path_of(item.config.rootpath, item.nodeid)),)
    return ItemFacts(modules=tuple(roots), facts=facts, environment=dict(os.environ), files=cassettes, unknown=unknown)


def sources_of(item: pytest.Item) -> tuple[tuple[str, str], ...]:
    """The source files of an item with their digests, in whichever process collected it; MatError if one cannot be known."""
    module: Any = item.getparent(pytest.Module)
    known = ItemFacts(modules=(*_modules(item), *(() if module is None else (module.obj,))), facts={}, environment={})
    try:
        return InputReader(item.config.rootpath, ImportGraph(), known, began_ns=session_began_ns()).own_sources()
    except UnknownInput as unknown:
        raise MatError(
            "no other machine can search this test", why=str(unknown), fix="run the command again", where=item.nodeid
        ) from None


def _modules(item: pytest.Item) -> Iterator[ModuleType]:
    """The user's plugins, the conftest files that apply to the item, and the modules of the user's operators."""
    for plugin in item.config.pluginmanager.get_plugins():
        file = getattr(plugin, "__file__", None)
        if not isinstance(plugin, ModuleType) or not file or not _is_users(plugin.__name__, file):
            continue
        if Path(file).name != "conftest.py" or Path(file).parent in item.path.parents:
            yield plugin
    for name in dict.fromkeys(_operator_modules(item)):
        operators = sys.modules.get(name)
        if operators is not None and _is_users(name, getattr(operators, "__file__", None) or ""):
            yield operators


def _operator_modules(item: pytest.Item) -> Iterator[str]:
    for operator in session_of(item.config).catalog:
        for function in (operator.decide, operator.price, operator.relevant, operator.aims):
            yield str(getattr(function, "__module__", ""))


def _is_users(name: str, file: str) -> bool:
    return name.partition(".")[0] not in names.HARNESS and bool(file) and names.origin(file) == "project"


def _parameters(item: pytest.Item) -> str:
    """The values of the item's parameters, whose names in its id need not say all of them."""
    callspec = getattr(item, "callspec", None)
    return "" if callspec is None else plain_text(callspec.params)


def _replays(item: pytest.Item) -> str:
    """The names and contents of the item's replay files."""
    name = item.name.partition("[")[0]
    found = sha256()
    for path in sorted((item.path.parent / replay_file.FOLDER).glob(f"{name}-*{replay_file.SUFFIX}")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]


def _session_facts(config: pytest.Config) -> dict[str, str]:
    """The options and ini values that can matter, and where the session runs."""
    options = {
        f"option {name}": plain_text(value)
        for name, value in vars(config.option).items()
        if name not in _WITHOUT_EFFECT and not name.startswith(_OURS)
    }
    ini = {
        f"ini option {name}": plain_text(getattr(value, "value", value))
        for name, value in _written_settings(config).items()
        if name not in _INI_WITHOUT_EFFECT and not name.startswith(("verbosity", "junit_", "log_"))
    }
    folder = os.path.relpath(config.invocation_params.dir, config.rootpath)
    return {**options, **ini, "the working folder": folder}


def _written_settings(config: pytest.Config) -> dict[str, Any]:
    """The settings of the configuration file; the attribute changed its name in pytest 9.1."""
    held = vars(config)
    return dict(held.get("_inicfg", held.get("inicfg")) or {})


@lru_cache(maxsize=2)
def versions_of(*, options: bool = True) -> dict[str, str]:
    """The versions that count for all items; distributions are compared by the key of the search. `options`: also those of
    the interpreter.
    """
    return {
        "Python": sys.version,
        **({"the interpreter's options": plain_text(tuple(sys.flags))} if options else {}),
        "the platform": f"{platform.system()} {platform.machine()} {' '.join(platform.libc_ver())}",
        "pytest-mat": f"{version('pytest-mat')} {_own_code()}",
        "hash seeds": plain_text(HASH_SEEDS),
    }


def _own_code() -> str:
    """The digest of pytest-mat's own code where it is not installed but used from its sources; otherwise its version counts."""
    found_at = [find_spec(name) for name in ("mat", "pytest_mat", *_SIBLINGS)]
    roots = [Path(spec.origin).parent for spec in found_at if spec is not None and spec.origin]
    files = sorted(path for root in roots for path in root.rglob("*.py") if names.origin(str(path)) == "project")
    found = sha256()
    for path in files:
        found.update(path.read_bytes())
    return found.hexdigest()[:16] if files else ""


_SIBLINGS: Final = ("mat_contracts", "mat_faults", "mat_search", "mat_study")

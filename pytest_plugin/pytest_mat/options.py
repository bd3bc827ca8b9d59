"""Command-line and ini options, and the settings of one item: its markers, overridden by the command line."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

if TYPE_CHECKING:
    from mat_study.settings import ItemSettings

_began_ns: Final = [0]
_environment: Final[dict[str, str]] = {}
"""The environment when the options of the latest session were added, before its conftest files were imported."""
_ENVIRONMENT: Final[pytest.StashKey[Mapping[str, str]]] = pytest.StashKey()
_NAMES: Final[dict[str, None]] = {}
"""The names of our options, in the order of `pytest --help`."""
_SETTINGS: Final[dict[str, None]] = {}
"""The settings of the configuration file that are no default of an option."""
_INI_PARSERS: Final[dict[str, Callable[[str], Any]]] = {}
"""For each option that a configuration file may set: its ini name, and the function that parses its text."""
_WITHOUT_MARKER: Final = (
    "mat_baseline", "mat_executor", "mat_github", "mat_session_timeout", "mat_store", "mat_timeout", "mat_workers",
)  # fmt: skip
"""Options without a marker argument: the configuration file sets the command-line option itself."""


def session_began_ns() -> int:
    """When this session began, in nanoseconds since the epoch (as file times are): before any of its modules was loaded."""
    return _began_ns[0]


def environment_at_start(config: pytest.Config) -> Mapping[str, str]:
    """The environment of this process when its session began."""
    return config.stash[_ENVIRONMENT]


def add_options(parser: pytest.Parser) -> None:
    _began_ns[0] = time.time_ns()
    _environment.clear()
    _environment.update(os.environ)
    group = parser.getgroup("mat", "assurance testing of agents (pytest-mat)")

    def add(name: str, *, ini: Literal["string", "int", "float", ""] = "", **settings: Any) -> None:
        _NAMES.setdefault(name, None)
        group.addoption(name, **settings)
        if ini:
            parser.addini(_dest(name), f"default of {name}: {settings['help']}", type=ini, default=None)
            _INI_PARSERS[_dest(name)] = settings["type"]

    def setting(name: str, help: str, **options: Any) -> None:
        _SETTINGS.setdefault(name, None)
        parser.addini(name, help, **options)

    _add_mode_options(add)
    _add_run_options(add)
    setting("mat_faults", "operators to search with (marker: faults=; default: the operators of the default grid)", type="args")
    setting("mat_vacuous", "contracts that may be vacuous under stress, by id (marker: vacuous=)", type="args")
    setting("mat_reuse", "reuse the certificates of tests that have not changed", type="bool", default=True)
    setting("mat_require_proof", "default of --mat-require-proof", type="bool", default=False)
    setting(
        "mat_errors",
        "clients, such as httpx, whose exceptions are injected at tools that declare no errors (default: guessed)",
        type="args",
    )
    setting(
        "mat_attach",
        "frameworks to attach to in every test with a run (example: langgraph httpx); for options, write a fixture mat_attach",
        type="args",
    )  # fmt: skip
    setting(
        "mat_instrument",
        "functions to patch in every test with a run (example: shop.refund shop.look_up); for options, write a fixture "
        "mat_instrument",
        type="args",
    )
    setting(
        "mat_loopback", "allow connections to servers of this machine in a run (marker: loopback=)", type="bool", default=False
    )
    setting(
        "mat_prices",
        "what models cost, one per line: MODEL = INPUT/OUTPUT CURRENCY, per million tokens; for estimates of live calls",
        type="linelist",
    )
    setting(
        "verbosity_mat",
        "verbosity of the summary (default: that of -v): 0 only what needs a person, 1 also all items, 2 also the tables",
        default="auto",
    )
    setting("mat_governance", "the governance variant of tests whose marker names none (marker: governance=)", default=None)
    add("--mat-confirm", action="store_true", help=argparse.SUPPRESS)  # internal: a fresh process, which executes requests
    add("--mat-doctor", metavar="FILE", help=argparse.SUPPRESS)  # used by `mat doctor TEST`: write findings here


def _add_mode_options(add: Callable[..., None]) -> None:
    """Options that select what a session does, and where it writes."""
    add("--mat-stress", action="store_true", help="search for the cheapest disturbance that breaks a contract")
    add(
        "--mat-evaluate", action="store_true",
        help="run every task (a test with a workload) nominally, under faults and under adversarial schedules, on all its "
        "seeds and governance variants, and report metrics",
    )  # fmt: skip
    add(
        "--mat-store", ini="string", metavar="FOLDER", nargs="?", const=".mat/store", type=_folder,
        help="keep every reported and measured run in this folder (default: .mat/store); query it with mat query",
    )  # fmt: skip
    add("--mat-replay", metavar="FILE", help="run a replay file again and compare every step with its recording")
    add(
        "--mat-gate", metavar="REF",
        help="run a smoke suite and the replay suite, and fail if they do worse than a baseline: a report (.json), or the one "
        "committed in a git revision",
    )  # fmt: skip
    add(
        "--mat-gate-set", metavar="NAME=VALUE", action="append",
        help="set an option of the gate (tolerance.success=0.05, smoke=all, seeds=20, ...); may be repeated",
    )  # fmt: skip
    add("--mat-gate-summary", metavar="FILE", help="write a short Markdown summary of the gate, for a pull request")
    add("--mat-gate-round", metavar="FILE", help=argparse.SUPPRESS)  # used by `mat gate`: the seeds of one of its sessions
    add(
        "--mat-report", metavar="FILE", action="append",
        help="write a report; the suffix selects the format (.html .json .md .csv .parquet .txt .sarif); may be repeated",
    )  # fmt: skip
    add(
        "--mat-baseline", ini="string", metavar="FILE", type=str,
        help="fail only for new findings: counterexamples that this earlier report (.json) contains are shown as known",
    )  # fmt: skip
    add(
        "--mat-github", ini="string", metavar="WHEN", type=_one_of(_GITHUB),
        help="write annotations and the job's summary for GitHub: auto (default, inside GitHub Actions), on or off",
    )  # fmt: skip


def _add_run_options(add: Callable[..., None]) -> None:
    """Options that set how runs are made, and how far a search goes."""
    add("--mat-seeds", ini="int", type=_at_least(1), metavar="N", help="run each item on N seeds (marker: seeds=)")
    add(
        "--mat-budget",
        ini="int",
        type=_at_least(0),
        metavar="COST",
        help="try schedules up to this cost (marker: budget=; default 12)",
    )
    add(
        "--mat-max-runs",
        ini="int",
        type=_at_least(1),
        metavar="N",
        help="execute each item at most N times (marker: search=; default 2000)",
    )
    add(
        "--mat-shrink-runs",
        ini="int",
        type=_at_least(0),
        metavar="N",
        help="shrink each counterexample with at most N executions",
    )
    add(
        "--mat-strategy", ini="string", metavar="NAME", type=_one_of(_STRATEGIES),
        help=f"search strategy: {', '.join(_STRATEGIES)} (marker: search=; default portfolio)",
    )  # fmt: skip
    add(
        "--mat-stop",
        ini="string",
        metavar="WHEN",
        type=_one_of(_STOPS),
        help="when to stop the search: after all schedules up to the budget (budget, default), after those that cost as much "
        "as the cheapest counterexample (cheapest), or as soon as none can be cheaper (first)",
    )
    add(
        "--mat-curve", ini="int", type=_at_least(0), metavar="N",
        help="draw N random chains of schedules per item, for robustness curves (default 0)",
    )  # fmt: skip
    add(
        "--mat-target", ini="float", metavar="SHARE", type=_share,
        help="strategy statistical: test whether fewer than this share of random schedules break a contract (marker: search=; "
        "default 0.05)",
    )  # fmt: skip
    add(
        "--mat-horizon",
        ini="int",
        type=_at_least(1),
        metavar="STEPS",
        help="end a run after this many steps (marker: horizon=)",
    )
    add(
        "--mat-governance", metavar="VARIANT", action="append", type=_variants,
        help="run under this governance variant ('none': without governance); compare several: separate them with commas, "
        "repeat the option, or use 'all'",
    )  # fmt: skip
    add(
        "--mat-live-calls", ini="int", type=_at_least(0), metavar="N",
        help="record the replies of external ports, with at most N live calls per item (marker: live_calls=); in a replay, "
        "N limits the calls that the cassette does not answer",
    )  # fmt: skip
    add(
        "--mat-workers",
        ini="string",
        type=_workers,
        metavar="N",
        help="search each item with N processes, or 'auto' for one per CPU (default 1: this process)",
    )
    add(
        "--mat-executor", ini="string", type=_executor, metavar="WHERE",
        help="search each item on a Dask cluster: dask:tcp://HOST:8786 runs --mat-workers executions at once (default: one per "
        "thread of the cluster); dask starts a cluster of --mat-workers processes on this machine (default: one per CPU)",
    )  # fmt: skip
    add(
        "--mat-require-proof", action="store_true",
        help="with --mat-stress, fail every searched test that is not certified, expected, accepted or known "
        "(ini: mat_require_proof)",
    )  # fmt: skip
    add(
        "--mat-fresh", action="store_true",
        help="search from the beginning: reuse no certificate, and resume no interrupted search",
    )  # fmt: skip
    add(
        "--mat-no-reuse", action="store_true",
        help="search tests again even if nothing has changed since they were certified (ini: mat_reuse = false)",
    )  # fmt: skip
    add(
        "--mat-session-timeout", ini="float", type=_positive_seconds, metavar="SECONDS",
        help="divide this time among the searches of --mat-stress; the summary names searches that were cut short or not begun",
    )  # fmt: skip
    add(
        "--mat-timeout",
        ini="float",
        type=_seconds,
        metavar="SECONDS",
        help="stop an item's search after this many seconds of real time",
    )


def _dest(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


def read_ini(config: pytest.Config) -> None:
    """Read our settings from the configuration file. UsageError lists every value that cannot be read."""
    settings: dict[str, Any] = {}
    problems = []
    for name, read in _INI_PARSERS.items():
        try:
            value = config.getini(name)
            if value is not None:
                settings[name] = read(str(value))
        except argparse.ArgumentTypeError as error:
            problems.append(f"{name}: {error}")
        except (pytest.UsageError, TypeError, ValueError) as error:  # pytest converts numbers before we read them
            problems.append(f"{name} is not a number ({error})")
    try:
        verbosity_of(config)
    except ValueError:
        problems.append(f"verbosity_mat: {config.getini('verbosity_mat')!r} is neither a whole number nor auto")
    if problems:
        raise pytest.UsageError("; ".join(problems) + f"\n  where: {config.inipath or 'the command line (-o)'}")
    for name in _WITHOUT_MARKER:
        if name in settings and config.getoption(name) is None:
            setattr(config.option, name, settings[name])
    faults, governance = config.getini("mat_faults"), config.getini("mat_governance")
    settings |= {"mat_faults": tuple(faults)} if faults else {}
    config.stash[_ERRORS] = tuple(name for text in config.getini("mat_errors") for name in text.split(",") if name)
    vacuous = config.getini("mat_vacuous")
    settings |= {"mat_vacuous": tuple(vacuous)} if vacuous else {}
    settings |= {"mat_loopback": True} if config.getini("mat_loopback") else {}
    settings |= {} if governance is None else {"mat_governance": governance}
    config.stash[_ENVIRONMENT] = dict(_environment)
    config.stash[_DEFAULTS] = {name[4:]: value for name, value in settings.items() if name not in _WITHOUT_MARKER}


_DEFAULTS: Final[pytest.StashKey[dict[str, Any]]] = pytest.StashKey()
"""Defaults from the configuration file, by the marker argument or the field of `mat.Search` that they stand for."""


_ERRORS: Final[pytest.StashKey[tuple[str, ...]]] = pytest.StashKey()
"""The clients whose exceptions are injected at tools that declare none, from the configuration file."""


def check_names(arguments: Sequence[str]) -> None:
    """UsageError for unknown `--mat-` options, with a suggestion, which pytest itself would not make."""
    asked = [text.partition("=")[0] for text in arguments if text.startswith("--mat-")]
    unknown = [name for name in dict.fromkeys(asked) if name not in _NAMES]
    if unknown:
        raise pytest.UsageError(
            "; ".join(f"unknown option {name}{_instead(name)}" for name in unknown)
            + "\n  fix: see pytest --help, section 'assurance testing of agents'"
        )


def verbosity_of(config: pytest.Config) -> int:
    """How much the summary says: 0 only what needs a person, 1 also all items, 2 or more also the tables."""
    return config.get_verbosity(VERBOSITY)


def ends_with_summary(config: pytest.Config) -> bool:
    """Whether the session ends with a summary: it searches, replays, evaluates or compares, or it is verbose."""
    asked = any(config.getoption(name) for name in ("mat_stress", "mat_replay", "mat_evaluate"))
    return asked or verbosity_of(config) > 0 or compares(config)


def compares(config: pytest.Config) -> bool:
    """Whether the command line asks for a comparison of governance variants."""
    asked = asked_variants(config)
    return len(asked) > 1 or "all" in asked


def is_in_the_summary(config: pytest.Config) -> bool:
    """Whether the summary, and not the failure section of each test, says what broke and how."""
    return ends_with_summary(config) and verbosity_of(config) < 1 and not config.getoption("mat_replay")


def width_of(config: pytest.Config) -> int:
    """The width to print at: that of pytest's own writer (COLUMNS, else the terminal's, else 80), at least 60."""
    return max(60, config.get_terminal_writer().fullwidth)


def _at_least(least: int) -> Callable[[str], int]:
    """An option's type: an integer of at least `least`."""

    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer >= {least}")
        return value

    return integer


def _seconds(text: str) -> float:
    """An option's type: a time in seconds."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None


def _positive_seconds(text: str) -> float:
    """An option's type: a time in seconds, more than 0."""
    seconds = _seconds(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _one_of(names: Sequence[str]) -> Callable[[str], str]:
    """An option's type: one of these names."""

    def member(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(names)}{_suggestion(text, names)}")
        return text

    return member


def _share(text: str) -> str:
    """An option's type: a share between 0 and 1, kept as text."""
    from mat.core.search import is_share

    if not is_share(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1, such as 0.05")
    return text


def _folder(text: str) -> str:
    """An option's type: a folder. The value of `--mat-store` is optional, so a test path after it is refused."""
    if "::" in text or Path(text).suffix == ".py" or Path(text).is_file():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a folder; write --mat-store=FOLDER, or put the tests before --mat-store"
        )
    return text


def _workers(text: str) -> int:
    """An option's type: a number of processes. Workers are forks, so a platform without fork takes only 1."""
    count = (os.cpu_count() or 1) if text == "auto" else _at_least(1)(text)
    if count > 1 and not hasattr(os, "fork"):
        raise argparse.ArgumentTypeError(
            "workers are forked processes, which this platform does not support; "
            "omit --mat-workers (pytest -n searches several items at once)"
        )
    return count


def _executor(text: str) -> str:
    """An option's type: `dask`, perhaps with the address of a scheduler."""
    kind, _, address = text.partition(":")
    if kind != "dask" or (":" in text and not re.fullmatch(r"[a-z]+://\S+", address)):
        raise argparse.ArgumentTypeError(f"{text!r} is neither dask nor dask:ADDRESS, such as dask:tcp://scheduler:8786")
    return text


def _variants(text: str) -> tuple[str, ...]:
    """An option's type: names of governance variants, separated by commas. Each test declares its own variants."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} contains an empty name; write, for example, none,shield or all")
    return names


def asked_variants(config: pytest.Config) -> tuple[str, ...]:
    """The governance variants that the command line names, each once; () leaves the choice to the tests.

    An evaluation compares all variants unless the command line names some.
    """
    groups = config.getoption("mat_governance") or ()
    if not groups and config.getoption("mat_evaluate"):
        return ("all",)
    return tuple(dict.fromkeys(name for names in groups for name in names))


VERBOSITY: Final = "mat"
"""The type of output whose verbosity is that of the summary (`pytest.Config.get_verbosity`)."""
_STRATEGIES = ("exhaustive", "anytime", "portfolio", "random", "beam", "evolutionary", "adversary", "statistical")
_GITHUB = ("auto", "on", "off")
_STOPS = ("budget", "cheapest", "first")


def check_temporary_folder() -> None:
    """UsageError if there is no folder for temporary files: fresh processes keep their sockets and outputs there."""
    import tempfile

    try:
        tempfile.gettempdir()
    except OSError as error:
        raise pytest.UsageError(
            f"--mat-stress and --mat-evaluate need a folder for temporary files: {error.strerror or error}\n"
            "  why: a search executes the test in fresh processes, which answer through files there\n"
            "  fix: set TMPDIR to a folder that can be written to (docker run --tmpfs /tmp); plain pytest needs none"
        ) from None


def check_options(config: pytest.Config) -> None:
    """Refuse options that cannot work before the session runs, and let --mat-replay FILE alone collect its test's module."""
    from mat.core.errors import MatError
    from mat.report.files import can_hold_files, check_path

    for name in config.getoption("mat_report") or ():
        try:
            check_path(Path(name))
        except MatError as error:
            raise pytest.UsageError(f"--mat-report {name}: {error}") from None
    if config.getoption("mat_executor") is not None:
        from mat.core.extras import require

        try:
            require("dask", f"--mat-executor {config.getoption('mat_executor')}", otherwise="use --mat-workers on this machine")
        except MatError as error:
            raise pytest.UsageError(str(error)) from None
    kept = config.getoption("mat_store")
    if kept is not None and ".mat" not in Path(kept).parts:  # without `.mat`, runs are stored in the temporary folder
        folder = Path(config.invocation_params.dir, kept)
        existing = folder if folder.exists() else next(parent for parent in folder.parents if parent.exists())
        if not can_hold_files(existing):
            raise pytest.UsageError(f"--mat-store {kept}: cannot write to {existing}")
    baseline = config.getoption("mat_baseline")
    if baseline is not None:
        from mat.report.from_json import read_findings

        try:
            read_findings(Path(config.invocation_params.dir, baseline))
        except MatError as error:
            raise pytest.UsageError(f"--mat-baseline {baseline}: {error}") from None
    name = config.getoption("mat_replay")
    if name is None:
        return
    from mat.evidence.replay_file import read

    path = Path(config.invocation_params.dir, name)
    try:
        replay = read(path)
    except (MatError, OSError) as error:
        raise pytest.UsageError(f"--mat-replay {name}: {error}") from None
    config.option.mat_replay = str(path.resolve())
    if not config.invocation_params.args or not _names_a_test(config):
        module = replay.item.partition("::")[0]
        next_to_replays = path.resolve().parent.parent / Path(module).name
        config.args[:] = [str(next_to_replays if next_to_replays.exists() else config.rootpath / module)]


def _names_a_test(config: pytest.Config) -> bool:
    return any(not str(argument).startswith("-") and ".py" in str(argument) for argument in config.invocation_params.args)


def settings_of(item: pytest.Item) -> ItemSettings:
    """The item's settings. The command line overrides markers, inner markers outer ones, and all override the ini file."""
    from mat.core.resources import price_list
    from mat_study.settings import OVERRIDES, settings_from

    overrides = {name: item.config.getoption(f"mat_{name}") for name in OVERRIDES}
    return settings_from(
        [(marker.args, marker.kwargs) for marker in reversed(list(item.iter_markers("mat")))],
        defaults=item.config.stash.get(_DEFAULTS, {}),
        overrides={name: value for name, value in overrides.items() if value is not None},
        variants=asked_variants(item.config),
        timeout_s=item.config.getoption("mat_timeout"),
        errors=item.config.stash.get(_ERRORS, ()),
        prices=price_list(item.config.getini("mat_prices")),
        require_proof=bool(item.config.getoption("mat_require_proof") or item.config.getini("mat_require_proof")),
        where=item.nodeid,
    )


def is_armed(item: pytest.Item) -> bool:
    """Whether pytest-mat runs this test: it has the marker, or requests the fixture `mat_run`."""
    return item.get_closest_marker("mat") is not None or "mat_run" in getattr(item, "fixturenames", ())


COLLECTED: Final[pytest.StashKey[list[str]]] = pytest.StashKey()
"""In the controller of pytest-xdist: the node ids that the first worker collected."""


def _instead(option: str) -> str:
    """What to write in the place of an unknown option: the setting of this name, or the nearest option."""
    setting = option.removeprefix("--").replace("-", "_")
    return f"; it is a setting: -o {setting}=..." if setting in _SETTINGS else _suggestion(option, tuple(_NAMES))


def _suggestion(word: str, known: Sequence[str]) -> str:
    from mat.core.errors import did_you_mean

    return did_you_mean(word, known)

"""Command-line options, and the settings of one item: marker arguments, overridden by the command line."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

if TYPE_CHECKING:
    from mat_study.settings import ItemSettings

_began_ns: Final = [0]
_NAMES: Final[dict[str, None]] = {}
"""Our options, in order."""
_INI: Final[dict[str, Callable[[str], Any]]] = {}
"""Those that a configuration file may set, by their name there, and how the text is read."""
_OPTIONS_ALONE: Final = ("mat_store", "mat_timeout", "mat_workers")
"""Options that no marker sets: what the configuration file says stands for the option itself."""


def session_began_ns() -> int:
    """When this session began, in nanoseconds as files tell time: before any of its modules was loaded."""
    return _began_ns[0]


def add_options(parser: pytest.Parser) -> None:
    _began_ns[0] = time.time_ns()
    group = parser.getgroup("mat", "assurance testing of agents (pytest-mat)")

    def add(name: str, *, ini: Literal["string", "int", "float", ""] = "", **said: Any) -> None:
        _NAMES.setdefault(name, None)
        group.addoption(name, **said)
        if ini:
            parser.addini(_dest(name), f"the default of {name}: {said['help']}", type=ini, default=None)
            _INI[_dest(name)] = said["type"]

    add("--mat-stress", action="store_true", help="search for the cheapest disturbance that breaks a contract")
    add(
        "--mat-evaluate", action="store_true",
        help="measure: every task (a test with a workload) nominal, under faults and under adversarial schedules, on all its "
        "seeds and governance variants",
    )  # fmt: skip
    add(
        "--mat-store", ini="string", metavar="FOLDER", nargs="?", const=".mat/store", type=_folder,
        help="keep every reported and measured run (default folder: .mat/store); ask it with mat query",
    )  # fmt: skip
    add("--mat-replay", metavar="FILE", help="re-run one counterexample strictly, step by step")
    add(
        "--mat-gate", metavar="REF",
        help="run a smoke suite and the replay suite, and fail where they lost something against this report (.json), or the "
        "one committed in this git revision",
    )  # fmt: skip
    add(
        "--mat-gate-set", metavar="NAME=VALUE", action="append",
        help="a setting of the gate (tolerance.success=0.05, smoke=all, seeds=20, ...); may be repeated",
    )  # fmt: skip
    add("--mat-gate-summary", metavar="FILE", help="write the gate's judgement as short Markdown, for a pull request")
    add("--mat-gate-round", metavar="FILE", help=argparse.SUPPRESS)  # for `mat gate`: the seeds of one of its sessions
    add(
        "--mat-report", metavar="FILE", action="append",
        help="write a report (.html .json .md .csv .parquet .txt); may be repeated",
    )  # fmt: skip
    add("--mat-seeds", ini="int", type=_least(1), metavar="N", help="seeds per item (marker: seeds=)")
    add(
        "--mat-budget",
        ini="int",
        type=_least(0),
        metavar="COST",
        help="largest cost of a schedule (marker: budget=; default 12)",
    )
    add("--mat-max-runs", ini="int", type=_least(1), metavar="N", help="executions per item (marker: search=; default 2000)")
    add(
        "--mat-shrink-runs",
        ini="int",
        type=_least(0),
        metavar="N",
        help="executions that shrinking one counterexample may take",
    )
    add(
        "--mat-strategy", ini="string", metavar="NAME", type=_one_of(_STRATEGIES),
        help=f"one of {', '.join(_STRATEGIES)} (marker: search=; default exhaustive)",
    )  # fmt: skip
    add(
        "--mat-stop",
        ini="string",
        metavar="WHEN",
        type=_one_of(_STOPS),
        help="how far to go: budget (default), cheapest or first counterexample",
    )
    add(
        "--mat-curve", ini="int", type=_least(0), metavar="N",
        help="random chains of schedules per item, for robustness curves (default 0)",
    )  # fmt: skip
    add(
        "--mat-target", ini="float", metavar="SHARE", type=_share,
        help="statistical: is the share of random schedules that break a contract below this? (marker: search=; default 0.05)",
    )  # fmt: skip
    add("--mat-horizon", ini="int", type=_least(1), metavar="STEPS", help="steps a run may take (marker: horizon=)")
    add(
        "--mat-governance", metavar="VARIANT", action="append", type=_variants,
        help="run under this governance variant ('none': without any); several, with commas or repeated, or 'all' are compared",
    )  # fmt: skip
    add(
        "--mat-live-calls", ini="int", type=_least(0), metavar="N",
        help="record external ports' replies, with at most N live calls an item (marker: live_calls=); in a replay, calls that "
        "its tape does not answer",
    )  # fmt: skip
    add(
        "--mat-workers",
        ini="string",
        type=_workers,
        metavar="N",
        help="processes that search an item, or 'auto' (default 1: this one)",
    )
    add("--mat-fresh", action="store_true", help="search from the start, where an interrupted search could be resumed")
    add("--mat-timeout", ini="float", type=float, metavar="SECONDS", help="real seconds an item's search may take")
    parser.addini(
        "mat_faults", "operators to search with (marker: faults=), default: all that come with pytest-mat", type="args"
    )
    parser.addini(
        "mat_governance", "the governance variant in force where a marker names none (marker: governance=)", default=None
    )
    add("--mat-confirm", metavar="FILE", help=argparse.SUPPRESS)  # for ourselves: execute its schedules, write the runs
    add("--mat-doctor", metavar="FILE", help=argparse.SUPPRESS)  # for `mat doctor TEST`: write there what is seen of each test


def _dest(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


def read_ini(config: pytest.Config) -> None:
    """Take what the configuration file says of us. UsageError lists every value that cannot be read."""
    said: dict[str, Any] = {}
    problems = []
    for name, read in _INI.items():
        try:
            given = config.getini(name)
            if given is not None:
                said[name] = read(str(given))
        except (argparse.ArgumentTypeError, pytest.UsageError, TypeError, ValueError) as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise pytest.UsageError("; ".join(problems) + f"\n  where: {config.inipath or 'the command line (-o)'}")
    for name in _OPTIONS_ALONE:
        if name in said and config.getoption(name) is None:
            setattr(config.option, name, said[name])
    faults, governance = config.getini("mat_faults"), config.getini("mat_governance")
    said |= ({"mat_faults": tuple(faults)} if faults else {}) | ({} if governance is None else {"mat_governance": governance})
    config.stash[_DEFAULTS] = {name[4:]: value for name, value in said.items() if name not in _OPTIONS_ALONE}


_DEFAULTS: Final[pytest.StashKey[dict[str, Any]]] = pytest.StashKey()
"""What the configuration file says in the place of markers, by the marker's argument or the search's field."""


def check_names(arguments: Sequence[str]) -> None:
    """Refuse options under our prefix that there are none of: pytest itself would not say which was meant."""
    asked = [text.partition("=")[0] for text in arguments if text.startswith("--mat-")]
    unknown = [name for name in dict.fromkeys(asked) if name not in _NAMES]
    if unknown:
        raise pytest.UsageError(
            "; ".join(f"no option is called {name}{_close(name, tuple(_NAMES))}" for name in unknown)
            + "\n  fix: pytest --help lists ours under 'assurance testing of agents'"
        )


def width_of(config: pytest.Config) -> int:
    """Columns to print for: what pytest's own writer takes (COLUMNS, else the terminal's, else 80), at least 60."""
    return max(60, config.get_terminal_writer().fullwidth)


def _least(least: int) -> Callable[[str], int]:
    """An option's type: an integer that is not below `least`."""

    def integer(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is not an integer >= {least}")
        return value

    return integer


def _one_of(names: Sequence[str]) -> Callable[[str], str]:
    """An option's type: one of these names."""

    def chosen(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(names)}{_close(text, names)}")
        return text

    return chosen


def _share(text: str) -> str:
    """An option's type: a share between 0 and 1, kept as it was written."""
    from mat.core.search import is_share

    if not is_share(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1, such as 0.05")
    return text


def _folder(text: str) -> str:
    """An option's type: a folder. What pytest is to run is easily written behind an option whose value may be left out."""
    if "::" in text or Path(text).suffix == ".py" or Path(text).is_file():
        raise argparse.ArgumentTypeError(
            f"{text!r} is no folder; write --mat-store=FOLDER, or put what is to be run before --mat-store"
        )
    return text


def _workers(text: str) -> int:
    """An option's type: a number of processes. Workers are forks; where there are none, it is refused at once."""
    count = (os.cpu_count() or 1) if text == "auto" else _least(1)(text)
    if count > 1 and not hasattr(os, "fork"):
        raise argparse.ArgumentTypeError(
            "workers are forks of the process that has the item, and this platform has no fork; "
            "leave it out (pytest -n searches several items at once)"
        )
    return count


def _variants(text: str) -> tuple[str, ...]:
    """An option's type: names of governance variants, with commas between them. Which there are, each test says."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} holds an empty name; write none,shield or all")
    return names


def asked_variants(config: pytest.Config) -> tuple[str, ...]:
    """The governance variants that the command line asks for, each once; none where it leaves the choice to the tests.

    An evaluation compares all of them, unless some are named.
    """
    groups = config.getoption("mat_governance") or ()
    if not groups and config.getoption("mat_evaluate"):
        return ("all",)
    return tuple(dict.fromkeys(name for names in groups for name in names))


_STRATEGIES = ("exhaustive", "anytime", "random", "beam", "evolutionary", "adversary", "statistical")
_STOPS = ("budget", "cheapest", "first")


def check_options(config: pytest.Config) -> None:
    """Refuse early what cannot work, and make --mat-replay FILE collect the file's own test."""
    from mat.core.errors import MatError
    from mat.report.files import can_hold_files, check_path

    for name in config.getoption("mat_report") or ():
        try:
            check_path(Path(name))
        except MatError as error:
            raise pytest.UsageError(f"--mat-report {name}: {error}") from None
    kept = config.getoption("mat_store")
    if kept is not None:
        folder = Path(config.invocation_params.dir, kept)
        there = folder if folder.exists() else next(parent for parent in folder.parents if parent.exists())
        if not can_hold_files(there):
            raise pytest.UsageError(f"--mat-store {kept}: {there} is no folder that can be written to")
    name = config.getoption("mat_replay")
    if name is None:
        return
    from mat.evidence.artifact import read

    path = Path(config.invocation_params.dir, name)
    try:
        replay = read(path)
    except (MatError, OSError) as error:
        raise pytest.UsageError(f"--mat-replay {name}: {error}") from None
    config.option.mat_replay = str(path.resolve())
    if not config.invocation_params.args or not _names_a_test(config):
        owner = path.resolve().parent.parent / Path(replay.item.partition("::")[0]).name
        config.args[:] = [str(owner)]


def _names_a_test(config: pytest.Config) -> bool:
    return any(not str(argument).startswith("-") and ".py" in str(argument) for argument in config.invocation_params.args)


def settings_of(item: pytest.Item) -> ItemSettings:
    """The item's settings. The command line overrides markers, nearer ones outer ones, and these the configuration file."""
    from mat_study.settings import OVERRIDES, settings_from

    given = {name: item.config.getoption(f"mat_{name}") for name in OVERRIDES}
    return settings_from(
        [(marker.args, marker.kwargs) for marker in reversed(list(item.iter_markers("mat")))],
        defaults=item.config.stash.get(_DEFAULTS, {}),
        overrides={name: value for name, value in given.items() if value is not None},
        variants=asked_variants(item.config),
        timeout_s=item.config.getoption("mat_timeout"),
        where=item.nodeid,
    )


def is_armed(item: pytest.Item) -> bool:
    """Whether a test asks for a run: by its marker, or by the fixture."""
    return item.get_closest_marker("mat") is not None or "mat_run" in getattr(item, "fixturenames", ())


COLLECTED: Final[pytest.StashKey[list[str]]] = pytest.StashKey()
"""Controller of xdist: what the first worker collected."""


def _close(word: str, known: Sequence[str]) -> str:
    from mat.core.errors import did_you_mean

    return did_you_mean(word, known)

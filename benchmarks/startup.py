"""What the plugin costs an empty pytest run: it is active in every project that has it installed, used or not.

Runs with and without it take turns, the one that goes first too; the tax is the median of the differences within the turns, so
that a machine that is busy for a while slows both sides of it. All other plugins are off on both sides: otherwise imports that
they share with ours would not count. Run: python benchmarks/startup.py

`--install [SOURCE]` measures what a user gets instead: an environment with pytest alone, and one in which `pip install SOURCE`
(default: this repository) ran, with all plugins of all packages that it brings. It reports real time and processor time of an
empty session in both, the size of what was installed in addition, and the time of `import mat`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

TURNS = 15
LIMIT_S = 60
"""A run that takes longer is hung, not slow."""


def once(folder: str, *options: str) -> float:
    """Milliseconds of one pytest process over an empty test folder. Its exit code says that nothing was collected."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, folder]
    began = perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=LIMIT_S)
    elapsed = (perf_counter() - began) * 1000
    if done.returncode != 5:
        raise SystemExit(f"pytest failed: {done.stdout.decode()}{done.stderr.decode()}")
    return elapsed


def others_off() -> list[str]:
    names = sorted({entry.name for entry in entry_points(group="pytest11")})
    if "mat" not in names:
        raise SystemExit("the plugin is not installed here: pip install -e .")
    return [option for name in names if name != "mat" for option in ("-p", f"no:{name}")]


def main() -> None:
    parser = argparse.ArgumentParser(description="What the plugin costs an empty pytest session.")
    parser.add_argument(
        "--install", nargs="?", const=str(Path(__file__).parents[1]), metavar="SOURCE",
        help="measure a new environment with this package, its dependencies and their plugins",
    )  # fmt: skip
    source = parser.parse_args().install
    if source is None:
        loaded()
    else:
        installed(source)


class Spent(NamedTuple):
    """Milliseconds of a process: real time, and processor time of it and its children."""

    real_ms: float
    processor_ms: float


def spent(*command: str, folder: str) -> Spent:
    began, before = perf_counter(), os.times()
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=LIMIT_S)
    real, after = perf_counter() - began, os.times()
    if done.returncode not in (0, 5):
        raise SystemExit(f"{command[0]} failed: {done.stdout.decode()}{done.stderr.decode()}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Spent(real * 1000, used * 1000)


def environment(folder: Path, what: str) -> Path:
    """A new environment with a package; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-compile", what], check=True, stderr=subprocess.DEVNULL)
    return python


def size_mb(folder: Path) -> float:
    """Megabytes of the files below, without what Python compiled."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc") / 1e6


def installed(source: str) -> None:
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        empty = Path(place, "empty")
        empty.mkdir()
        (empty / "pytest.ini").write_text("[pytest]\n")
        sides = {"plain": environment(Path(place, "plain"), "pytest"), "with": environment(Path(place, "with"), source)}
        plain, full = (size_mb(Path(place, name)) for name in sides)
        sessions: dict[str, list[Spent]] = {name: [] for name in sides}
        imports: list[Spent] = []
        for turn in range(-1, TURNS):
            names = [*sides] if turn % 2 else [*sides][::-1]
            taken = {
                name: spent(str(sides[name]), "-m", "pytest", "-q", "-p", "no:cacheprovider", folder=str(empty))
                for name in names
            }
            bare, whole = (spent(str(sides["with"]), "-c", code, folder=str(empty)) for code in ("", "import mat"))
            if turn >= 0:
                for name, each in taken.items():
                    sessions[name].append(each)
                imports.append(Spent(whole.real_ms - bare.real_ms, whole.processor_ms - bare.processor_ms))
    pairs = list(zip(sessions["with"], sessions["plain"], strict=True))
    figures["tax_ms"] = statistics.median(one.real_ms - other.real_ms for one, other in pairs)
    figures["tax_processor_ms"] = statistics.median(one.processor_ms - other.processor_ms for one, other in pairs)
    figures["import_mat_ms"] = statistics.median(each.real_ms for each in imports)
    figures["added_mb"] = full - plain
    for name, figure in figures.items():
        print(f"{name:28} {figure:8.1f}")
    print(json.dumps({name: round(figure, 1) for name, figure in figures.items()}))


def loaded() -> None:
    off = others_off()
    with_plugin, without = [], []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pytest.ini").write_text("[pytest]\n")
        for turn in range(-1, TURNS):
            sides = [(with_plugin, off), (without, [*off, "-p", "no:mat"])]
            for times, options in sides if turn % 2 else sides[::-1]:
                elapsed = once(folder, *options)
                if turn >= 0:  # the first turn fills the file caches
                    times.append(elapsed)
    tax = statistics.median(on - bare for on, bare in zip(with_plugin, without, strict=True))
    print(f"{'empty run with the plugin':28} {statistics.median(with_plugin):8.1f} ms")
    print(f"{'empty run without it':28} {statistics.median(without):8.1f} ms")
    print(f"{'tax':28} {tax:8.1f} ms")
    print(json.dumps({"tax_ms": round(tax, 1)}))


if __name__ == "__main__":
    main()

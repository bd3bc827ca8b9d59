"""What the plugin costs an empty pytest run: it is active in every project that has it installed, used or not.

Runs with and without it take turns, the one that goes first too; the tax is the median of the differences within the turns, so
that a machine that is busy for a while slows both sides of it. All other plugins are off on both sides: otherwise imports that
they share with ours would not count. Run: python benchmarks/startup.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path
from time import perf_counter

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

"""What the plugin costs an empty pytest run. Runs with and without it take turns; the tax is the difference of the medians.

Run: python benchmarks/startup.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

RUNS = 21


def once(folder: str, *options: str) -> float:
    """Milliseconds of one pytest process over an empty test folder. Its exit code says that nothing was collected."""
    began = perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, folder], cwd=folder, capture_output=True
    )
    elapsed = (perf_counter() - began) * 1000
    if done.returncode != 5:
        raise SystemExit(f"pytest failed: {done.stdout.decode()}{done.stderr.decode()}")
    return elapsed


def main() -> None:
    with_plugin, without = [], []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pytest.ini").write_text("[pytest]\n")
        for options in ((), ("-p", "no:mat")):  # warm
            once(folder, *options)
        for _ in range(RUNS):
            with_plugin.append(once(folder))
            without.append(once(folder, "-p", "no:mat"))
    tax = statistics.median(with_plugin) - statistics.median(without)
    print(f"{'empty run with the plugin':28} {statistics.median(with_plugin):8.1f} ms")
    print(f"{'empty run without it':28} {statistics.median(without):8.1f} ms")
    print(f"{'tax':28} {tax:8.1f} ms")
    print(json.dumps({"tax_ms": round(tax, 1)}))


if __name__ == "__main__":
    main()

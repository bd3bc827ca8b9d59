"""What artifact tracking costs: a call that passes an artifact on, by the number and length of the issued artifacts.

One crossing of a tool with one argument, asked to sealed, no schedule, no governance, under `compliant()`. The argument is an
artifact, a clipped one, or a text that has nothing to do with any, in an ordinary place and in one that is declared to hold an
artifact. The baseline is the same crossing in a run in which nothing was issued; the peer is `difflib`, which finds the nearest
artifact for one damaged argument. Medians over the turns, in one process. A crossing with 1,000 artifacts must cost at most
RATIO times one with a single artifact, if its text has nothing to do with them; the exit code says so.
Run: python benchmarks/observations.py
"""

from __future__ import annotations

import difflib
import gc
import json
import statistics
import sys
from collections.abc import Callable
from random import Random

import mat
from mat.kernel import clock
from mat_contracts.observation import compliant

TURNS = 7
CALLS = 40
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
RATIO = 3.0
UNRELATED = {
    "words": "Please look up order A17 of 2026-03-05 for Ms Ruiz, and report what the carrier says about the parcel.",
    "a url": "https://docs.other.test/guide/chapter-7?lang=en&section=installation#requirements",
    "a key": "kZ83hQpL0vBn27RtYx55WcMf91DsGj46",
}
CASES = ((1, 60), (100, 60), (1_000, 60), (1, 8_000), (100, 8_000))
"""(issued artifacts, characters of each)"""


def urls(count: int, length: int) -> list[str]:
    rng = Random(length)
    start = "https://files.example/report?sig="
    return [start + "".join(rng.choices(ALPHABET, k=length - len(start))) for _ in range(count)]


@mat.tool(issues=mat.artifact.issue("url", at="*"))
def prepare(given: list[str]) -> list[str]:
    return given


@mat.tool
def fetch(url: str) -> str:
    return "bytes"


@mat.tool(consumes={"url": "url"})
def consume(url: str) -> str:
    return "bytes"


def crossings_us(given: list[str], passed: Callable[[str], str], tool: Callable[[str], str] = fetch) -> float:
    """Microseconds of a call that passes on one of the artifacts, or what is made of it: the mean of a run."""
    with mat.run(contracts=[compliant()], horizon=10_000):
        if given:
            prepare(given)
        texts = [passed((given or ["https://files.example/none"])[at % max(1, len(given))]) for at in range(CALLS)]
        gc.collect()
        began = clock.real_perf_counter_ns()
        for text in texts:
            tool(text)
        return (clock.real_perf_counter_ns() - began) / CALLS / 1_000


def crossing_us(given: list[str], passed: Callable[[str], str]) -> float:
    return statistics.median([crossings_us(given, passed) for _ in range(TURNS)])


def difflib_us(given: list[str], text: str) -> float:
    """Microseconds in which difflib finds the nearest artifact; measured once, because it takes long."""
    began = clock.real_perf_counter_ns()
    max(given, key=lambda artefact: difflib.SequenceMatcher(None, artefact, text, autojunk=False).ratio())
    return (clock.real_perf_counter_ns() - began) / 1_000


def clipped(text: str) -> str:
    return text[: len(text) * 3 // 4]


def unrelated() -> dict[str, float]:
    """Cost with 1,000 artifacts by that with one, of texts that have nothing to do with them, in turns: the least."""
    few, many, found = urls(1, 60), urls(1_000, 60), dict[str, float]()
    for tool, place in ((fetch, "ordinary"), (consume, "declared")):
        for name, text in UNRELATED.items():
            turns = [[crossings_us(given, lambda _, text=text: text, tool) for given in (few, many)] for _ in range(3 * TURNS)]
            one, thousand = (min(column) for column in zip(*turns, strict=True))
            found[f"{name}, {place} place"] = thousand / one
            print(
                f"{name + ', ' + place + ' place':28}  one {one:7.1f} us  1,000 {thousand:7.1f} us  ratio {thousand / one:5.2f}"
            )
    return found


def main() -> int:
    without = crossing_us([], str)
    print(f"{'artifacts':>9}  {'characters':>10}  {'whole us':>9}  {'clipped us':>10}  {'difflib us':>11}")
    print(f"{0:>9}  {'-':>10}  {without:>9.1f}  {'-':>10}  {'-':>11}")
    rows = []
    for count, length in CASES:
        given = urls(count, length)
        whole, damaged = crossing_us(given, str), crossing_us(given, clipped)
        peer = difflib_us(given[:10], clipped(given[0])) * count / min(10, count) if length < 1_000 else float("nan")
        rows.append({"artefacts": count, "characters": length, "whole_us": whole, "clipped_us": damaged, "difflib_us": peer})
        print(f"{count:>9}  {length:>10}  {whole:>9.1f}  {damaged:>10.1f}  {peer:>11.0f}")
    ratios = unrelated()
    cases = [{k: v for k, v in row.items() if v == v} for row in rows]
    print(json.dumps({"without_us": without, "cases": cases, "ratios": ratios, "at_most": RATIO}))
    return int(max(ratios.values()) > RATIO)


if __name__ == "__main__":
    sys.exit(main())

"""Asks the commands about simulated projects whose true rates are known.

A project has tasks of one success rate on average and runs each under several seeds. `rho` is the correlation of runs of one
task: its rate has the distribution beta, so tasks differ (0: they do not). Every figure is what a command prints as JSON.

*Intervals* (`mat report FOLDER`): how often the interval of `success`, which is for new tasks, holds the true rate, and how
wide it is compared with that of an oracle that knows rho: Wilson's at n / (1 + (seeds - 1) rho) runs. `noise` outside: each run
draws anew; inside: the two runs of a seed are equal, as those of a deterministic agent.

*Pairs* (`mat compare A B`): two systems of equal rate on the same tasks and seeds, with what each task is like for either drawn
independently. `noise` inside: a seed decides for both, as far as their rates agree; outside: each run draws for itself. How
often p is at most .01, .05 and .1, and how often the interval of the difference, which is for new tasks, holds the true one.
The same with B 15 points better.

Run: python benchmarks/figures.py [--samples 1000] [--jobs 2] [--markdown]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy

import mat
from mat.__main__ import main as command
from mat.core.campaign import ItemResult
from mat.evidence.runlog import RunEntry, RunLog
from mat.measure.interval import wilson_ends
from mat.measure.rows import Labels, RunRow
from mat.report.build import build
from mat.report.files import write

TASKS: Final = (5, 10, 30)
SEEDS: Final = (3, 8, 20)
CORRELATIONS: Final = (0.0, 0.3, 0.6, 0.9)
RATES: Final = (0.5, 0.8, 0.95)
LEVELS: Final = (0.01, 0.05, 0.1)
BETTER: Final = 0.15
RUNS_AT_ONCE: Final = 20_000
"""Runs in one folder that a report is asked for; its categories are the projects."""


@dataclass(frozen=True, kw_only=True)
class Project:
    """A simulated project. `inside`: the noise is inside of the seed."""

    tasks: int
    seeds: int
    rho: float
    rate: float
    inside: bool = False

    def rates(self, stream: numpy.random.Generator, rate: float) -> Any:
        if not self.rho:
            return numpy.full(self.tasks, rate)
        size = (1 - self.rho) / self.rho
        return stream.beta(rate * size, (1 - rate) * size, self.tasks)

    @property
    def stream(self) -> numpy.random.Generator:
        return numpy.random.default_rng([self.tasks, self.seeds, round(100 * self.rho), round(100 * self.rate), self.inside])


def asked(*words: str) -> Any:
    """What a command prints as JSON."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        code = command([*words, "--json"])
    assert code == 0, printed.getvalue()
    return json.loads(printed.getvalue())


def recorded(success: bool) -> mat.Run:
    with mat.run(task="simulated") as run:
        mat.finish("done", status="completed" if success else "failed")
    assert run.result is not None
    return replace(run.result, success=success)


# -- intervals --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class IntervalLine:
    """Coverage, mean width relative to the oracle's, and the number of projects."""

    project: Project
    coverage: float
    width: float
    samples: int


def interval_line(project: Project, samples: int) -> IntervalLine:
    stream, hits, width, oracle = project.stream, 0, 0.0, 0.0
    per_run = 2 if project.inside else 1
    at_once = max(1, RUNS_AT_ONCE // (project.tasks * project.seeds * per_run))
    made = {success: recorded(success) for success in (False, True)}
    for first in range(0, samples, at_once):
        outcomes = {
            f"project-{number}": stream.random((project.tasks, project.seeds)) < project.rates(stream, project.rate)[:, None]
            for number in range(first, min(first + at_once, samples))
        }
        for name, found in reported(outcomes, made, per_run).items():
            n, won = outcomes[name].size, int(outcomes[name].sum())
            assert (round(found["value"] * n), found["n"]) == (won, n * per_run)
            effective = n / (1 + (project.seeds - 1) * project.rho)
            least, most = wilson_ends(won / n, effective)
            hits += found["low"] - 1e-12 <= project.rate <= found["high"] + 1e-12
            width += found["high"] - found["low"]
            oracle += most - least
    return IntervalLine(project=project, coverage=hits / samples, width=width / oracle, samples=samples)


def reported(outcomes: dict[str, Any], made: dict[bool, Any], per_run: int) -> dict[str, Any]:
    """Success of each project, as `mat report` states it for the category of that name."""
    with tempfile.TemporaryDirectory() as folder:
        with RunLog(folder) as log:
            for name, won in outcomes.items():
                for (task, seed), success in numpy.ndenumerate(won):
                    run = made[bool(success)]
                    spec = replace(run.spec, task=f"{name}/{task}", seed=seed)
                    for repeat in range(per_run):
                        log.append(
                            RunEntry(
                                item=f"{name}/{task}", condition="nominal", run=replace(run, spec=spec), repeat=repeat,
                                labels=Labels(category=name),
                            )
                        )  # fmt: skip
        found = asked("report", folder)
    return {
        line["category"]: line["metrics"]["success"] for line in found["tables"]["evaluation"] if line["category"] in outcomes
    }


# -- pairs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PairLine:
    """`alarms`: how often p is at most each of LEVELS. `coverage`: how often the interval holds the true difference."""

    project: Project
    difference: float
    alarms: tuple[float, ...]
    coverage: float
    samples: int


def pair_line(project: Project, difference: float, samples: int) -> PairLine:
    stream, found = project.stream, []
    template = report_of(project)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(samples):
            names = []
            for side, won in zip("ab", drawn_pair(project, difference, stream), strict=True):
                for outcome, success in zip(template["tables"]["outcomes"], won.flat, strict=True):
                    outcome["success"] = bool(success)
                names.append(Path(folder, f"{side}.json"))
                names[-1].write_text(json.dumps(template))
            found.append(asked("compare", *map(str, names))["overall"])
    p = [1.0 if each["p_value"] is None else each["p_value"] for each in found]
    ends = [each["paired"]["difference"] for each in found]
    return PairLine(
        project=project, difference=difference, samples=samples,
        alarms=tuple(sum(each <= level + 1e-12 for each in p) / samples for level in LEVELS),
        coverage=sum(end["low"] - 1e-12 <= difference <= end["high"] + 1e-12 for end in ends) / samples,
    )  # fmt: skip


def drawn_pair(project: Project, difference: float, stream: numpy.random.Generator) -> tuple[Any, Any]:
    """The outcomes of both systems, (tasks, seeds) each."""
    shape = (project.tasks, project.seeds)
    draws = [stream.random(shape)] * 2 if project.inside else [stream.random(shape), stream.random(shape)]
    rates = [project.rates(stream, rate)[:, None] for rate in (project.rate, project.rate + difference)]
    a, b = (draw < rate for draw, rate in zip(draws, rates, strict=True))
    return a, b


def report_of(project: Project) -> Any:
    """The JSON report of a project whose runs all succeed."""
    run = recorded(success=True)
    entry = RunEntry(item="", condition="nominal", run=run)
    names = [f"task-{task:02}" for task in range(project.tasks)]
    rows: list[RunRow] = [
        replace(entry.row(), item=name, task=name, seed=seed) for name in names for seed in range(project.seeds)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.json")
        write(build([ItemResult(id=name, status="nominal") for name in names], rows), path)
        found = json.loads(path.read_text())
    order = [(outcome["item"], outcome["seed"]) for outcome in found["tables"]["outcomes"]]
    assert order == [(name, seed) for name in names for seed in range(project.seeds)]
    return found


# -- tables -----------------------------------------------------------------------------------------------------------


def interval_projects() -> Iterator[Project]:
    for rate in RATES:
        for tasks in TASKS:
            for seeds in SEEDS:
                for rho in CORRELATIONS:
                    yield Project(tasks=tasks, seeds=seeds, rho=rho, rate=rate)
    for tasks in TASKS:  # the runs of a seed are equal
        yield Project(tasks=tasks, seeds=8, rho=0.3, rate=0.8, inside=True)


def pair_projects() -> Iterator[tuple[Project, float]]:
    for difference in (0.0, BETTER):
        for tasks in TASKS:
            for seeds in SEEDS:
                for rho in CORRELATIONS[:: 1 if not difference else 2]:
                    for inside in (False, True):
                        yield Project(tasks=tasks, seeds=seeds, rho=rho, rate=0.7, inside=inside), difference


def _interval(job: tuple[Project, int]) -> IntervalLine:
    return interval_line(*job)


def _pair(job: tuple[Project, float, int]) -> PairLine:
    return pair_line(*job)


def noise(project: Project) -> str:
    return "inside" if project.inside else "outside"


def printed(head: Sequence[str], rows: Sequence[Sequence[str]], *, markdown: bool) -> None:
    if markdown:
        print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
        for row in rows:
            print("| " + " | ".join(row) + " |", flush=True)
        return
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        print("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulated projects through the commands.")
    parser.add_argument("--samples", type=int, default=1_000, help="projects of each kind")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--markdown", action="store_true", help="print the tables as in benchmarks/figures.md")
    given = parser.parse_args()
    error = math.sqrt(0.05 * 0.95 / given.samples)
    with ProcessPoolExecutor(given.jobs) as pool:
        intervals = list(pool.map(_interval, [(each, given.samples) for each in interval_projects()]))
        print(f"intervals of success: coverage (s.e. {100 * error:.1f} points) and width relative to an oracle's, by rho\n")
        cells: dict[tuple[str, ...], list[str]] = {}
        for line in intervals:
            of = line.project
            cell = (f"{100 * of.rate:.0f} %", str(of.tasks), str(of.seeds), noise(of))
            cells.setdefault(cell, []).append(f"{100 * line.coverage:.1f} x{line.width:.2f}")
        head: Sequence[str] = ("rate", "tasks", "seeds", "noise", *(f"rho {rho:g}" for rho in CORRELATIONS))
        whole = [(*key, *found) for key, found in cells.items() if len(found) == len(CORRELATIONS)]
        printed(head, whole, markdown=given.markdown)
        for key, found in cells.items():
            if len(found) == 1:
                print(f"two equal runs of each seed, rate {key[0]}, {key[1]} tasks, {key[2]} seeds, rho 0.3: {found[0]}")
        pairs = list(pool.map(_pair, [(*each, given.samples) for each in pair_projects()]))
    print("\npairs: how often p is at most the level, and how often the interval of the difference holds the true one\n")
    pair_head = ("better by", "tasks", "seeds", "rho", "noise", *(f"p <= {level:g}" for level in LEVELS), "coverage")
    printed(
        pair_head,
        [
            (f"{100 * line.difference:.0f}", str(line.project.tasks), str(line.project.seeds), f"{line.project.rho:g}",
             noise(line.project), *(f"{100 * alarm:.1f}" for alarm in line.alarms), f"{100 * line.coverage:.1f}")
            for line in pairs
        ],
        markdown=given.markdown,
    )  # fmt: skip
    equal = [line for line in pairs if not line.difference]
    alarming = [
        line for line in equal for level, alarm in zip(LEVELS, line.alarms, strict=True)
        if alarm > level + 3 * math.sqrt(level * (1 - level) / given.samples)
    ]  # fmt: skip
    low = [
        rate for rate in (*(line.coverage for line in intervals), *(line.coverage for line in pairs)) if rate < 0.93 - 2 * error
    ]
    wide = [line for line in intervals if line.width > 1.3]
    print(
        f"\nintervals below 93 %: {len(low)} of {len(intervals) + len(pairs)}; more than 1.3 times as wide as the oracle's: "
        f"{len(wide)} of {len(intervals)}; tests that alarm too often: {len(alarming)} of {len(equal)}"
    )


if __name__ == "__main__":
    main()

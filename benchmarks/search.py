"""Compares search strategies: agents with a known cheapest counterexample, the helpdesk, AgentDojo's bank.

Run: python benchmarks/search.py [--seeds 20] [--budget 3000] [--only NAMES] [--agents NAMES] [--jobs N] [--keep FILE]

`--agents planted` (the default) are the twelve of `planted.py`, `foreign`, `more`, `third` and `fourth` the ten
each of `foreign.py`, `foreign_more.py`, `foreign_third.py` and `foreign_fourth.py`; any can be named: A01,B02.
`--until-optimum` ends each search where it executes a counterexample of the least cost: cheaper to run, but without proof.

For each agent and strategy: the share of seeds whose fault was found, found at its least cost, and certified (nothing cheaper
exists, and the search says so); medians of the executions to the first hit, of all that the strategy spent (shrinking
included), and of all with the checks. A fault that was not found counts the budget. Overall: means over agents of the shares,
geometric means of the medians. A certificate or a cost that contradicts the plant ends the script with 1.

The last line is JSON: {"strategies": {name: {found, optimal, certified, first, total, with_checks}}, "cases": [...]}; the
exhaustive strategy also has `overhead_ms`, what the search spends outside the agent on one execution of 50 records.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import json
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

import foreign
import foreign_fourth
import foreign_more
import foreign_third
import planted

import mat
from mat.boundary.catalog import Catalog
from mat.core.errors import MatError
from mat.core.spec import NO_SCHEDULE
from mat_faults import operators
from mat_search import STRATEGIES, Campaign, CampaignResult, search
from mat_search.strategies import schedules
from mat_study.settings import ItemSettings

EXAMPLES: Final = Path(__file__).resolve().parent.parent / "examples"
DEFAULTS: Final = Catalog(operators())
KEYED: Final = ("portfolio", "exhaustive", "anytime")
"""Strategies that skip what equals something executed; only these are the better for a state digest."""
DEFAULT: Final = ItemSettings().strategy
"""The strategy of `pytest --mat-stress`, if nobody chooses one."""
SETS: Final = {
    "planted": tuple(planted.AGENTS), "foreign": tuple(foreign.AGENTS), "more": tuple(foreign_more.AGENTS),
    "third": tuple(foreign_third.AGENTS), "fourth": tuple(foreign_fourth.AGENTS),
}  # fmt: skip
AGENTS: Final[dict[str, Callable[[int], Benchmarked]]] = {
    **planted.AGENTS, **foreign.AGENTS, **foreign_more.AGENTS, **foreign_third.AGENTS,
    **foreign_fourth.AGENTS,
}  # fmt: skip
HYPOTHESIS: Final = "hypothesis"


class System(Protocol):
    """The input of a search. `least`: the cost of the cheapest counterexample, if known."""

    @property
    def name(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def least(self) -> int | None: ...
    @property
    def budget(self) -> int: ...
    @property
    def operators(self) -> tuple[mat.spec.Operator, ...]: ...
    def run(self, spec: mat.spec.RunSpec, *, digest: bool, vary: bool = False, adversary: Any = None) -> mat.Run: ...


class Benchmarked(System, Protocol):
    """A system whose least cost is known."""

    @property
    def least(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the tables: a strategy, with or without what the agent knows of its own state."""

    name: str
    strategy: str
    digest: bool = True
    prune: bool = True


def rows() -> dict[str, Row]:
    """Every strategy that the search offers, and Hypothesis."""
    made = []
    for name in STRATEGIES:
        made.append(Row(name=name, strategy=name))
        if name in KEYED:
            undeclared = "default, nothing declared" if name == DEFAULT else f"{name}, no digest"
            made.append(Row(name=undeclared, strategy=name, digest=False))
    made.append(Row(name=HYPOTHESIS, strategy=HYPOTHESIS))
    return {row.name: row for row in made}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one search: executions to the first hit (0: none), in all, with checks; `cost` 0 where nothing was found.

    `proven`: the cost up to which every schedule was executed or skipped for a reason, -1 without a certificate.
    """

    first: int
    total: int
    with_checks: int
    cost: int
    proven: int = -1
    reason: str = ""


# -- one search ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Stopwatch:
    """Processor time spent in executions, and between one and the next; other processes do not count."""

    inside_s: float = 0.0
    between_s: list[float] = field(default_factory=list)
    _ended_s: float | None = None

    def timed(self, execute: Callable[..., mat.Run]) -> Callable[..., mat.Run]:
        def run(*arguments: Any) -> mat.Run:
            began_s = time.process_time()
            if self._ended_s is not None:
                self.between_s.append(began_s - self._ended_s)
            try:
                return execute(*arguments)
            finally:
                self._ended_s = time.process_time()
                self.inside_s += self._ended_s - began_s

        return run


class Optimum(Exception):  # noqa: N818  (it ends a search, it is no error)
    """A counterexample of the least cost was executed."""


@dataclass(slots=True)
class Counter:
    """Counts executions, and ends the search at a counterexample that costs at most `least`."""

    least: int
    count: int = 0
    first: int = 0

    def __call__(self, run: mat.Run) -> mat.Run:
        self.count += 1
        if run.failures:
            self.first = self.first or self.count
            if sum(item.cost for item in run.spec.schedule if item not in run.unreached) <= self.least:
                raise Optimum
        return run


def campaign(
    system: System, row: Row, most: int, watch: Stopwatch | None = None, look: Callable[[mat.Run], mat.Run] = lambda run: run
) -> CampaignResult:
    """Search until nothing can be cheaper than the counterexample found, in at most `most` executions; `look` sees each."""
    timed = (watch or Stopwatch()).timed
    evaluate = timed(lambda spec: look(system.run(spec, digest=row.digest)))
    vary = timed(lambda spec: system.run(spec, digest=row.digest, vary=True))
    adapt = timed(lambda spec, choose: system.run(spec, digest=row.digest, adversary=choose))
    plan = Campaign(
        operators=tuple(operator.spec() for operator in system.operators), budget=system.budget, max_runs=most,
        strategy=row.strategy, stop="first", prune=row.prune,
    )  # fmt: skip
    nominal = system.run(mat.spec.RunSpec(seed=system.seed), digest=row.digest)
    return search(nominal, evaluate, plan, vary=vary if row.strategy in KEYED else None, adapt=adapt)


def until_optimum(system: Benchmarked, row: Row, most: int) -> Outcome:
    """The outcome of a search that ends at the optimum: it says nothing of the proof."""
    counter = Counter(system.least)
    try:
        return outcome_of(campaign(system, row, most, look=counter))
    except Optimum:
        return Outcome(first=counter.first, total=counter.count, with_checks=counter.count, cost=system.least)


def solved(system: System, row: Row, most: int) -> Outcome:
    if row.strategy == HYPOTHESIS:
        return hypothesis_search(system, most)
    return outcome_of(campaign(system, row, most))


def outcome_of(result: CampaignResult) -> Outcome:
    cost = min((item.cost for item in result.counterexamples), default=0)
    return Outcome(
        first=result.first or 0, total=result.searched + result.shrinking, with_checks=result.executions, cost=cost,
        proven=result.certificate.bound if result.certificate.proven else -1, reason=result.certificate.reason,
    )  # fmt: skip


class Spent(Exception):  # noqa: N818  (it ends a search, it is no error)
    """The budget of executions is used up."""


class Broken(AssertionError):  # noqa: N818
    """A drawn schedule broke a contract."""


def hypothesis_search(system: System, most: int) -> Outcome:
    """Hypothesis draws schedules (mat_search.strategies) with the margin as its target, and shrinks what it finds.

    Sites that exist only after a fault can be drawn, because each schedule is executed before more is added to it.
    """
    from hypothesis import HealthCheck, Phase, given, seed, settings, target

    known: dict[mat.spec.Schedule, mat.Run] = {}
    first, cost = 0, 0

    def execute(schedule: mat.spec.Schedule) -> mat.Run:
        nonlocal first, cost
        if schedule not in known:
            if len(known) >= most:
                raise Spent
            known[schedule] = run = system.run(mat.spec.RunSpec(seed=system.seed, schedule=schedule), digest=False)
            if run.failures:
                first = first or len(known)
                paid = sum(item.cost for item in schedule if item not in run.unreached)
                cost = min(cost or paid, paid)
        return known[schedule]

    drawn = schedules(execute(NO_SCHEDULE), system.operators, budget=system.budget)

    @seed(random.Random(f"{system.name}/{system.seed}/hypothesis").randrange(1 << 30))
    @settings(
        max_examples=2 * most, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False,
        phases=(Phase.generate, Phase.target, Phase.shrink), report_multiple_bugs=False,
    )  # fmt: skip
    @given(schedule=drawn)
    def keeps(schedule: mat.spec.Schedule) -> None:
        run = execute(schedule)
        broken = bool(run.failures)
        target(-float(min(run.margins.values(), default=-1000 if broken else 1000)))
        if broken:
            raise Broken

    with suppress(Spent, Broken):
        keeps()
    return Outcome(first=first, total=len(known), with_checks=len(known), cost=cost)


# -- agents whose least cost is known -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    agent: str
    seed: int
    row: Row
    most: int
    proof: bool = True


def measured(task: Task) -> Outcome:
    search_of = solved if task.proof else until_optimum
    return search_of(AGENTS[task.agent](task.seed), task.row, task.most)


def contradiction(task: Task, outcome: Outcome) -> str:
    """How an outcome contradicts the plant; empty if it agrees."""
    least = AGENTS[task.agent](task.seed).least
    where = f"{task.agent} seed {task.seed}, {task.row.name}"
    if outcome.cost and outcome.cost < least:
        return f"{where}: a counterexample of cost {outcome.cost}, where the cheapest costs {least}"
    if outcome.proven >= least and outcome.cost != least:
        return f"{where}: nothing up to cost {outcome.proven} is certified, where there is one of cost {least}"
    return ""


def summary(tasks: Sequence[Task], outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Shares and medians of one agent under one strategy, over seeds."""
    verdicts = []
    for task, outcome in zip(tasks, outcomes, strict=True):
        least, found = AGENTS[task.agent](task.seed).least, outcome.cost > 0
        verdicts.append(
            {
                "found": found, "optimal": outcome.cost == least, "certified": outcome.cost == least == outcome.proven + 1,
                "first": outcome.first if found else task.most, "total": outcome.total if found else task.most,
                "with_checks": outcome.with_checks if found else max(task.most, outcome.with_checks),
            }
        )  # fmt: skip
    shares = {name: statistics.fmean(item[name] for item in verdicts) for name in SHARES}
    return {**shares, **{name: statistics.median(item[name] for item in verdicts) for name in COUNTS}}


SHARES: Final = ("found", "optimal", "certified")
COUNTS: Final = ("first", "total", "with_checks")


def overall(agents: Sequence[dict[str, float]]) -> dict[str, float]:
    """Means of the shares over agents, geometric means of their medians."""
    shares = {name: round(statistics.fmean(item[name] for item in agents), 3) for name in SHARES}
    return {**shares, **{name: round(geometric([item[name] for item in agents]), 1) for name in COUNTS}}


def geometric(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(max(1.0, value)) for value in values))


def measure(tasks: Sequence[Task], pool: ProcessPoolExecutor, kept: Path | None) -> Iterator[Outcome]:
    """The outcomes in the order of the tasks. All strategies on 20 seeds take hours: `kept` is a file of earlier outcomes.

    Each outcome is a JSON line with a digest of the code; outcomes of other code are ignored.
    """
    if kept is None:
        yield from pool.map(measured, tasks)
        return
    code, known = code_digest(), {}
    for line in kept.read_text().splitlines() if kept.exists() else ():
        with suppress(ValueError):  # a line may have been cut
            item = json.loads(line)
            known |= {item["task"]: Outcome(**item["outcome"])} if item["code"] == code else {}
    done = pool.map(measured, [task for task in tasks if repr(task) not in known])
    with kept.open("a") as stream:
        for task in tasks:
            if repr(task) not in known:
                outcome = next(done)
                stream.write(json.dumps({"code": code, "task": repr(task), "outcome": asdict(outcome)}) + "\n")
                stream.flush()
            yield known.get(repr(task)) or outcome


def code_digest() -> str:
    """The digest of all code that the counts may depend on."""
    found = hashlib.sha256()
    packages = ("mat.core", "mat.kernel", "mat.boundary", "mat.monitor", "mat.govern", "mat.harness", "mat_search")
    folders = [Path(importlib.import_module(name).__path__[0]) for name in packages]
    for path in sorted([*Path(__file__).parent.glob("*.py"), *(path for folder in folders for path in folder.glob("*.py"))]):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def compare(chosen: Sequence[Row], agents: Sequence[str], given: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Print the tables of these agents, and return the contradictions with their least costs."""
    seeds, most = given.seeds, given.budget
    tasks = [
        Task(agent=name, seed=seed, row=row, most=most, proof=not given.until_optimum)
        for row in chosen for name in agents for seed in range(seeds)
    ]  # fmt: skip
    problems: list[str] = []
    totals: dict[str, Any] = {}
    print(f"{'strategy':24} {'agent':6} {HEAD}")
    with ProcessPoolExecutor(given.jobs) as pool:
        done = zip(tasks, measure(tasks, pool, given.keep), strict=True)
        for row in chosen:
            lines = []
            for name in agents:
                made = [next(done) for _ in range(seeds)]
                problems += filter(None, (contradiction(task, outcome) for task, outcome in made))
                lines.append(summary(*zip(*made, strict=True)))
                print(f"{row.name:24} {name:6} {cells(lines[-1])}", flush=True)
            totals[row.name] = overall(lines)
            print(f"{row.name:24} {'all':6} {cells(totals[row.name])}\n", flush=True)
    print(f"{len(agents)} agents, {seeds} seeds; means of shares, geometric means of medians; not found counts {most}")
    print(f"{'strategy':31} {HEAD}")
    for name, line in totals.items():
        print(f"{name:31} {cells(line)}")
    return totals, problems


HEAD: Final = f"{'found':>6} {'optimal':>8} {'certified':>10} {'first':>8} {'total':>8} {'with checks':>12}"


def cells(line: dict[str, float]) -> str:
    return (
        f"{line['found']:6.2f} {line['optimal']:8.2f} {line['certified']:10.2f} {line['first']:8.1f} {line['total']:8.1f} "
        f"{line['with_checks']:12.1f}"
    )


# -- what the search itself costs ---------------------------------------------------------------------------------------


def steady() -> planted.Planted:
    """50 reads with one retry each and nothing to find: 51 records with the end of the run."""

    def agent(place: planted.Place) -> None:
        for step in range(50):
            place.at("read", step)
            if planted.tried(read, step) is None:
                place.at("again", step)
                planted.tried(read, step)

    read = planted.reader("read", lambda step: step)
    contract = planted.kept("nothing.reported", "the agent reported something", planted.unless("something"))
    return planted.Planted(name="steady", seed=0, plant={}, least=0, contract=contract, agent=agent)


def overhead(most: int = 400) -> tuple[float, float]:
    """Milliseconds between two executions of 50 records, and in the whole search by execution; exhaustive, with a digest."""
    watch, row = Stopwatch(), Row(name="exhaustive", strategy="exhaustive")
    began_s = time.process_time()
    result = campaign(steady(), row, most, watch)
    outside_s = time.process_time() - began_s - watch.inside_s
    return 1000 * statistics.median(watch.between_s), 1000 * outside_s / result.executions


# -- cases that nobody planted ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A system from the examples, on the grid of mat_faults. Only broken contracts count, not failed tasks."""

    name: str
    body: Callable[[], object]
    contract: mat.Contract
    operators: tuple[mat.spec.Operator, ...]
    budget: int
    seed: int = 0
    least: int | None = None

    def run(self, spec: mat.spec.RunSpec, *, digest: bool, vary: bool = False, adversary: Any = None) -> mat.Run:
        run = mat.run(
            [self.contract], schedule=spec.schedule, seed=spec.seed, operators=DEFAULTS, states=True, vary=vary,
            adversary=adversary,
        )  # fmt: skip
        try:
            with run:
                self.body()
        except MatError:
            raise
        except Exception:  # the task failed under a disturbance; the contract is judged all the same
            pass
        assert run.result is not None
        return run.result


def helpdesk() -> Iterator[Case]:
    """The example's naive team on the default grid."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from helpdesk import team, test_helpdesk
    except ImportError as error:
        print(f"without the helpdesk: {error}")
        return
    from mat_contracts import no_duplicate_effect, progress, verify_before_act

    for name, email, contract in (
        ("helpdesk, paid twice", test_helpdesk.REFUND, no_duplicate_effect("refund", key="order", id="refund.once")),
        ("helpdesk, unverified", test_helpdesk.REFUND, verify_before_act(tool="refund", within=8, id="refund.verified")),
        ("helpdesk, loop", test_helpdesk.PARCEL, progress(window=12, id="work.goes_on")),
    ):

        def body(email: Any = email) -> object:
            return test_helpdesk.handle(email, team.NAIVE)

        yield Case(name=name, body=body, contract=contract, operators=DEFAULTS.select(), budget=6)


def banking() -> Iterator[Case]:
    """AgentDojo's banking suite, one task for each kind of payment: every payment must match what was read."""
    if importlib.util.find_spec("agentdojo") is None:
        print("without AgentDojo's bank: pip install 'pytest-mat[agentdojo]'")
        return
    found = importlib.util.spec_from_file_location("banking_example", EXAMPLES / "agentdojo" / "test_banking.py")
    assert found is not None
    assert found.loader is not None
    example = importlib.util.module_from_spec(found)
    found.loader.exec_module(example)

    @cache
    def world() -> Any:
        return example.SUITE.load_and_inject_default_environment({})

    for name in example.ONE_OF_EACH_PAYMENT:
        task = example.SUITE.user_tasks[name]

        def body(task: Any = task) -> object:
            return example._solve(task, world().model_copy(deep=True), example.bank(task))

        chosen = DEFAULTS.select(example.SERVICES)
        yield Case(name=f"banking, {name}", body=body, contract=example.verified(), operators=chosen, budget=6)


def cases(chosen: Sequence[Row], most: int) -> list[dict[str, Any]]:
    """The second table: executions, cost and certificate for systems without a planted least cost."""
    found: list[dict[str, Any]] = []
    print(f"\n{'case':24} {'strategy':14} {'cost':>5} {'first':>6} {'total':>6} {'with checks':>12}  certificate")
    for case in (*helpdesk(), *banking()):
        for row in chosen:
            made = solved(case, row, most)
            said = f"nothing up to {made.proven}" if made.proven > 0 else made.reason or "none"
            print(
                f"{case.name:24} {row.name:14} {made.cost or '-':>5} {made.first or '-':>6} {made.total:6} "
                f"{made.with_checks:12}  {said}", flush=True,
            )  # fmt: skip
            found.append(
                {
                    "case": case.name, "strategy": row.name, "cost": made.cost, "first": made.first, "total": made.total,
                    "with_checks": made.with_checks, "proven": made.proven,
                }
            )  # fmt: skip
    return found


# -- the script ---------------------------------------------------------------------------------------------------------


def options(known: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=3_000, help="executions that a strategy may spend on one agent")
    parser.add_argument("--only", default="", help=f"strategies, separated by semicolons: {'; '.join(known)}")
    parser.add_argument(
        "--agents",
        default="planted",
        help="agents or sets of them (planted, foreign, more, third, fourth), separated by commas",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; the figures do not depend on it")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write outcomes to FILE and reuse those that it contains")
    parser.add_argument("--until-optimum", action="store_true", help="end each search at the optimum, without proof")
    parser.add_argument("--no-cases", action="store_true", help="leave out the helpdesk and the bank")
    return parser.parse_args()


def main() -> int:
    known = rows()
    given = options(list(known))
    names = [name.strip() for name in given.only.split(";") if name.strip()] or list(known)
    agents = [agent for name in map(str.strip, given.agents.split(",")) for agent in SETS.get(name, (name,))]
    unknown = [*(name for name in names if name not in known), *(name for name in agents if name not in AGENTS)]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; strategies: {'; '.join(known)}; agents: {', '.join((*SETS, *AGENTS))}")
    chosen = [known[name] for name in names]
    totals, problems = compare(chosen, agents, given)
    if "exhaustive" in totals:
        between_ms, mean_ms = overhead()
        totals["exhaustive"] |= {"overhead_ms": round(between_ms, 3), "overhead_mean_ms": round(mean_ms, 3)}
        print(f"\nbetween two executions of 50 records: {between_ms:.2f} ms (median); in all {mean_ms:.2f} ms an execution")
    plain = [row for row in chosen if row.digest and row.strategy != HYPOTHESIS]
    found = [] if given.no_cases else cases(plain, given.budget)
    for problem in problems:
        print(f"WRONG: {problem}")
    print(json.dumps({"strategies": totals, "cases": found}))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

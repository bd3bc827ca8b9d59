"""What an execution under stress costs, compared with its body and with a plain run of the same body.

One agent of 5, 20 and 100 steps, sync and async, under five contracts: its body alone, in `with mat.run(...)`, its item once
as pytest reports it, under stress in this process, and under stress in a fork of a pristine process. Then the parts of an
execution under stress, by pytest's hooks, and what the comparison of the process around it costs. All figures are processor
time (user and system), that of a fork real time; the minimum over rounds that take turns.

`--baseline PATH` compares with another checkout, process by process in turns. `--examples` executes the same fixed schedules of
the helpdesk, the treasury and contractbench, chosen by a search of this checkout. Run: python benchmarks/execution.py
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = ("src/mat", "src/contracts_lib", "src/faults", "src/search", "pytest_plugin", "examples")
STEPS: Final = (5, 20, 100)
EXAMPLES: Final = {
    "helpdesk": ("helpdesk/test_helpdesk.py", "survives_the_budget and refund"),
    "treasury": ("treasury/test_treasury.py", "lock_holds or shop_that_compares"),
    "contractbench": ("contractbench/test_stress.py", "(api-key or idempotency or saga) and not replay"),
}
"""The tests of each example whose schedules are executed: a file below examples/, and an expression for -k."""
_COUNTED: Final = 30
"""The executions over which the parts are summed."""
PARTS: Final = ("set-up", "run begins", "body", "run ends", "tear-down", "rest")

AGENT: Final = '''
"""An agent that looks orders up, pays some of them, and retries what fails."""
import mat, pytest
from mat.temporal import always, once, tool_call, verification

@mat.tool(effect="read")
def lookup(order: str) -> dict: return {"status": "shipped", "days": 3, "order": order}

@mat.tool(effect="write")
def pay(order: str, amount: int) -> str: return "paid"

def agent(steps):
    for number in range(steps):
        try:
            reply = lookup(f"A{number}") if number % 5 else pay(f"A{number}", number)
        except (OSError, TimeoutError): pass

@mat.tool(effect="read")
async def alookup(order: str) -> dict: return {"status": "shipped", "days": 3, "order": order}

@mat.tool(effect="write")
async def apay(order: str, amount: int) -> str: return "paid"

async def aagent(steps):
    for number in range(steps):
        try:
            reply = await (alookup(f"A{number}") if number % 5 else apay(f"A{number}", number))
        except (OSError, TimeoutError): pass

def bare(steps, kind):
    if kind == "sync": return agent(steps)
    import asyncio
    asyncio.run(aagent(steps))

@pytest.fixture
def once_verified(): return mat.contract("bench.verified", always(tool_call("refund").implies(once(verification(passed=True)))))

@pytest.fixture
def no_delete(): return mat.contract("bench.no_delete", always(~tool_call("delete_account")))

@pytest.fixture
def after_login(): return mat.contract("bench.after_login", always(tool_call("transfer").implies(once(tool_call("login")))))

@pytest.fixture
def capped():
    @mat.step_contract(on="tool_call", id="bench.capped")
    def judged(record): return record.action.arguments.get("amount", 0) <= 500
    return judged

@pytest.fixture
def counted():
    @mat.trace_contract(start=0, id="bench.counted", on="tool_call")
    def judged(count, record): return count + 1 if count < 10**6 else mat.Violated("too many calls")
    return judged

@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("steps", [5, 20, 100])
def test_agent(mat_run, steps, kind, once_verified, no_delete, after_login, capped, counted):
    bare(steps, kind)
'''


def spent_s() -> float:
    """Processor seconds of this process and of its finished children."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def cheapest_ms(ways: dict[str, Callable[[], object]], *, times: int, rounds: int = 12) -> dict[str, float]:
    """Milliseconds of processor time by way: the minimum over rounds, in each of which every way takes its turn.

    In turns, because a machine that is shared has slow phases of a second and more, which would fall on one way alone.
    """
    found = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for way, execute in ways.items():
            began = spent_s()
            for _ in range(times):
                execute()
            found[way] = min(found[way], (spent_s() - began) / times * 1000)
    return found


# -- in a pytest session of one checkout ----------------------------------------------------------------------------------


class Parts:
    """Notes the processor time between pytest's hooks of one execution."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self._last = 0.0

    def begin(self) -> None:
        self._last = spent_s()

    def mark(self, part: str) -> None:
        now = spent_s()
        self.times[part] = self.times.get(part, 0.0) + now - self._last
        self._last = now

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        self.mark("rest")
        yield
        self.mark("set-up")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        self.mark("rest")
        yield
        self.mark("run ends")

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self) -> Generator[None, None, object]:
        self.mark("run begins")
        result = yield
        self.mark("body")
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        self.mark("rest")
        yield
        self.mark("tear-down")


class Session:
    """The plugin of a measuring session: instead of running an item it measures the item's executions."""

    def __init__(self, measure: Callable[[pytest.Item, Any], dict[str, Any]]) -> None:
        self._measure = measure
        self.found: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        from pytest_mat.evaluators import ItemEvaluator
        from pytest_mat.execution import live_calls
        from pytest_mat.options import settings_of

        for item, next_item in zip(session.items, [*session.items[1:], None], strict=True):
            settings = settings_of(item)
            evaluator = ItemEvaluator(item, settings, live_calls(item, settings))
            self.found[item.name] = self._measure(item, evaluator)
            session._setupstate.teardown_exact(next_item)
        return True


def searching() -> AbstractContextManager[Any]:
    """What the plugin does around a search, as far as this checkout does anything."""
    try:
        from pytest_mat.collector import rare_collections
    except ImportError:
        return nullcontext()
    return rare_collections()


def plan_of(mode: str, schedule: Any = None, seed: int = 0) -> Any:
    from mat_study.evaluation import Plan

    return Plan(mode=mode, seed=seed) if schedule is None else Plan(mode=mode, seed=seed, schedule=schedule)  # type: ignore[arg-type]


def measure_agent(item: pytest.Item, evaluator: Any) -> dict[str, Any]:
    """Every way to execute the agent of one item, in milliseconds, and the parts of an execution under stress."""
    import mat

    assert isinstance(item, pytest.Function)
    steps, kind = item.callspec.params["steps"], item.callspec.params["kind"]
    module: Any = item.getparent(pytest.Module)
    bare = module.obj.bare
    first = evaluator(plan_of("nominal"))
    assert first.outcome == "passed", first

    def plain_run() -> None:
        with mat.run(first.contracts):
            bare(steps, kind)

    alone = getattr(evaluator, "_execute_item", evaluator.here)
    with searching():
        found: dict[str, Any] = cheapest_ms(
            {
                "bare": lambda: [bare(steps, kind) for _ in range(20)],
                "run": plain_run,
                "item": lambda: evaluator.here(plan_of("nominal")),
                "stress": lambda: evaluator.here(plan_of("search")),
                "alone": lambda: alone(plan_of("search")),
            },
            times=max(2, 200 // steps),
        )
        found["bare"] /= 20
        fork = evaluator.forked(first) if hasattr(evaluator, "forked") else evaluator.in_fork
        fork(plan_of("search"))  # starts the pristine process
        times = []
        for _ in range(12):
            began = time.perf_counter()
            fork(plan_of("search"))
            times.append(time.perf_counter() - began)
        found["fork"] = min(times) * 1000
        parts = Parts()
        item.config.pluginmanager.register(parts)
        for _ in range(_COUNTED):
            parts.begin()
            evaluator.here(plan_of("search"))
            parts.mark("rest")
        item.config.pluginmanager.unregister(parts)
    found["parts"] = {part: parts.times.get(part, 0.0) / _COUNTED * 1000 for part in PARTS}
    return found


class Searched:
    """The plugin of a session that searches: it keeps the schedules that each item executes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.plans: dict[str, list[Any]] = {}

    @contextmanager
    def noting(self) -> Iterator[None]:
        from mat.core.codec import encode
        from pytest_mat.evaluators import ItemEvaluator

        real = ItemEvaluator.__call__

        def noted(evaluator: Any, plan: Any) -> Any:
            if plan.mode == "search" and plan.adversary is None:
                self.plans.setdefault(evaluator._item.name, []).append([plan.seed, encode(plan.schedule)])
            return real(evaluator, plan)

        ItemEvaluator.__call__ = noted  # type: ignore[method-assign]
        try:
            yield
        finally:
            ItemEvaluator.__call__ = real  # type: ignore[method-assign]

    def chosen(self) -> dict[str, list[Any]]:
        """At most so many schedules of each item, evenly spread over its search."""
        return {name: plans[:: -(-len(plans) // self._most)] for name, plans in self.plans.items()}


def measure_schedules(item: pytest.Item, evaluator: Any, *, schedules: dict[str, list[Any]]) -> dict[str, Any]:
    """Milliseconds of an execution, over the fixed schedules of an item."""
    from mat.core.codec import decode
    from mat.core.spec import Schedule

    plans = [plan_of("search", decode(Schedule, data, where="benchmark"), seed) for seed, data in schedules.get(item.name, ())]
    first = evaluator(plan_of("nominal"))
    lost = 0
    with searching():
        began = spent_s()
        for plan in plans:
            lost += evaluator.here(plan).outcome != "passed"
        spent = spent_s() - began
    return {"executions": len(plans), "lost": lost, "ms": spent * 1000, "nominal": first.outcome}


def session(request: dict[str, Any]) -> dict[str, Any]:
    """In a process of one checkout: one pytest session, whose findings are returned."""
    arguments = ["-q", "-p", "no:cacheprovider", *request["arguments"]]
    if request["what"] == "search":
        searched = Searched(request["most"])
        with searched.noting(), tempfile.TemporaryDirectory() as folder:
            report = ["--mat-report", f"{folder}/report.json"]
            pytest.main([*arguments, "--mat-stress", "--mat-fresh", *report], plugins=[searched])
        return searched.chosen()
    if request["what"] == "agent":
        plugin = Session(measure_agent)
    else:
        schedules = request["schedules"]
        plugin = Session(lambda item, evaluator: measure_schedules(item, evaluator, schedules=schedules))
    pytest.main(arguments, plugins=[plugin])
    return plugin.found


# -- the processes --------------------------------------------------------------------------------------------------------


def asked(checkout: Path, request: dict[str, Any], *, cwd: Path) -> dict[str, Any]:
    """The answer of a process that measures one checkout."""
    with tempfile.NamedTemporaryFile("w+", suffix=".json") as answer:
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(str(checkout / each) for each in SOURCES), "PYTHONHASHSEED": "0",
        }  # fmt: skip
        command = [sys.executable, str(Path(__file__).resolve()), "--answer", answer.name]
        done = subprocess.run(
            command, input=json.dumps(request), text=True, cwd=cwd, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        text = Path(answer.name).read_text(encoding="utf-8")
        if text in ("", "{}"):
            raise SystemExit(f"a measuring process failed:\n{done.stdout}")
        found: dict[str, Any] = json.loads(text)
        return found


def agents(checkouts: dict[str, Path], *, rounds: int, only: str) -> dict[str, dict[str, Any]]:
    """The minima of each checkout and item over rounds in turns."""
    found: dict[str, dict[str, Any]] = {name: {} for name in checkouts}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        Path(folder, "test_agent.py").write_text(AGENT, encoding="utf-8")
        for turn in range(rounds):
            for name in list(checkouts)[:: 1 if turn % 2 else -1]:
                request = {"what": "agent", "arguments": ["--mat-stress", "test_agent.py", *(["-k", only] if only else [])]}
                for item, times in asked(checkouts[name], request, cwd=Path(folder)).items():
                    known = found[name].setdefault(item, times)
                    if times["stress"] < known["stress"]:
                        known["parts"] = times["parts"]
                    known.update({key: min(known[key], times[key]) for key in times if key != "parts"})
    return found


def examples(checkouts: dict[str, Path], *, rounds: int, most: int, only: list[str]) -> dict[str, dict[str, float]]:
    """Milliseconds an execution of fixed schedules, by checkout and example: the median over rounds in turns."""
    found: dict[str, dict[str, float]] = {name: {} for name in checkouts}
    for example in only or list(EXAMPLES):
        file, expression = EXAMPLES[example]
        times: dict[str, list[float]] = {name: [] for name in checkouts}
        arguments = [str(ROOT / "examples" / file), "-k", expression]
        schedules = asked(ROOT, {"what": "search", "arguments": arguments, "most": most}, cwd=ROOT)
        for turn in range(rounds):
            for name in list(checkouts)[:: 1 if turn % 2 else -1]:
                checkout = checkouts[name]
                arguments = ["--mat-stress", str(checkout / "examples" / file), "-k", expression]
                each = asked(checkout, {"what": "schedules", "arguments": arguments, "schedules": schedules}, cwd=checkout)
                times[name].append(sum(one["ms"] for one in each.values()) / sum(one["executions"] for one in each.values()))
        for name in checkouts:
            found[name][example] = statistics.median(times[name])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baseline", type=Path, help="another checkout, measured in turns with this one")
    parser.add_argument("--examples", nargs="*", choices=EXAMPLES, help="time fixed schedules of the examples (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each checkout")
    parser.add_argument("--most", type=int, default=100, help="fixed schedules of each item")
    parser.add_argument("--only", default="", help="measure only agents whose name matches this -k expression")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer is not None:
        options.answer.write_text(json.dumps(session(json.load(sys.stdin))), encoding="utf-8")
        return
    checkouts = {"here": ROOT} if options.baseline is None else {"here": ROOT, "baseline": options.baseline.resolve()}
    if options.examples is not None:
        print_examples(examples(checkouts, rounds=options.rounds, most=options.most, only=options.examples))
    else:
        print_agents(agents(checkouts, rounds=options.rounds, only=options.only))


def print_agents(found: dict[str, dict[str, Any]]) -> None:
    for name, items in found.items():
        print(f"{name:26} {'bare':>9} {'run':>9} {'item':>9} {'stress':>9} {'fork':>9}  stress/run, milliseconds")
        for item, times in items.items():
            columns = " ".join(f"{times[key]:9.3f}" for key in ("bare", "run", "item", "stress", "fork"))
            print(f"{item:26} {columns} {times['stress'] / times['run']:11.2f}")
        for item, times in items.items():
            total = sum(times["parts"].values())
            parts = ", ".join(f"{part} {spent / total:.0%}" for part, spent in times["parts"].items())
            print(f"{item:26} {parts}; comparing the process {times['stress'] - times['alone']:.3f} ms")
    at_20 = found["here"].get("test_agent[20-sync]") or next(iter(found["here"].values()))
    summary = {f"{key}_ms": round(at_20[key], 4) for key in ("bare", "run", "stress", "fork")}
    ratio, per_s = at_20["stress"] / at_20["run"], 1000 / at_20["stress"]
    summary["isolation_ms"] = round(at_20["stress"] - at_20["alone"], 4)
    print(json.dumps({**summary, "ratio": round(ratio, 2), "executions_per_s": round(per_s, 1)}))


def print_examples(found: dict[str, dict[str, float]]) -> None:
    for example in found["here"]:
        columns = "  ".join(f"{name} {times[example]:8.3f} ms" for name, times in found.items())
        ratio = f"  {found['baseline'][example] / found['here'][example]:.2f} times less" if "baseline" in found else ""
        print(f"{example:16} {columns}{ratio}")
    print(json.dumps({name: {example: round(ms, 3) for example, ms in times.items()} for name, times in found.items()}))


if __name__ == "__main__":
    main()

"""The oracle's own little harness, in a process that knows nothing of pytest-mat; orders on stdin, answers on stdout.

It executes test modules with stand-ins for `mat` and `pytest`. Each schedule is tried in a fork that is made before anything of
the module is imported, so each has a process to itself that executed nothing before. What it knows of faults stands in `_call`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import os
import shutil
import signal
import sys
import tempfile
import types

LIMIT_S = 30
COSTS = {"service.timeout": {0: 4}, "service.lost_ack": {0: 4}, "service.outage": {3: 5, 100: 6}}


class Violated:
    def __init__(self, message, repair=""):
        self.message = message


class Run:
    """The run in progress: the faults of its schedule, the calls it made, and what its contracts say."""

    def __init__(self, faults, contracts):
        self.faults = {(tool, nth): (fault, calls) for tool, nth, fault, calls in faults}
        self.states = [(contract, contract.start) for contract in contracts]
        self.calls, self.counts, self.violations = [], {}, []

    def fault(self, tool, nth):
        for (port, first), (fault, calls) in self.faults.items():
            if port == tool and first <= nth < first + max(calls, 1):
                return fault
        return None

    def sealed(self, name, arguments, effected):
        action = types.SimpleNamespace(kind="tool_call", name=name, arguments=arguments)
        record = types.SimpleNamespace(action=action, effected=effected)
        for at, (contract, state) in enumerate(self.states):
            found = contract.judge(state, record)
            if isinstance(found, Violated):
                self.violations.append(found.message)
            else:
                self.states[at] = (contract, found)


CURRENT = []


def _call(function, effect, arguments, keywords):
    run, name = CURRENT[-1], function.__name__
    nth = run.counts[name] = run.counts.get(name, 0) + 1
    run.calls.append((name, nth, effect))
    bound = inspect.signature(function).bind(*arguments, **keywords).arguments
    fault = run.fault(name, nth)
    if fault == "service.timeout":
        run.sealed(name, bound, "no")
        raise TimeoutError
    if fault == "service.outage":
        run.sealed(name, bound, "no")
        raise ConnectionError
    try:
        reply = function(*arguments, **keywords)
    except BaseException:
        run.sealed(name, bound, "unknown")
        raise
    run.sealed(name, bound, "yes")
    if fault == "service.lost_ack":
        raise TimeoutError
    return reply


def tool(*, effect):
    def decorate(function):
        @functools.wraps(function)
        def call(*arguments, **keywords):
            if not CURRENT:
                return function(*arguments, **keywords)
            return _call(function, effect, arguments, keywords)

        return call

    return decorate


def trace_contract(*, start):
    return lambda function: types.SimpleNamespace(judge=function, start=start)


def fixture(function=None, *, scope="function"):
    if function is None:
        return functools.partial(fixture, scope=scope)
    function.scope = scope
    return function


class Marker:
    @staticmethod
    def mat(**options):
        def decorate(function):
            function.options = options
            return function

        return decorate


def stand_ins():
    mat, pytest = types.ModuleType("mat"), types.ModuleType("pytest")
    vars(mat).update(tool=tool, trace_contract=trace_contract, Violated=Violated)
    vars(pytest).update(fixture=fixture, mark=Marker)
    sys.modules.update(mat=mat, pytest=pytest)


# -- one execution --------------------------------------------------------------------------------------------------------


def execute(module, test, faults, wide):
    """Set-up, body, tear-down; wide fixtures stay."""
    run = Run(faults, test.options["contracts"])
    CURRENT.append(run)
    values, closing = {"mat_run": None}, []

    def value(name):
        if name not in values:
            made = getattr(module, name)
            if made.scope != "function" and name in wide:
                return wide[name]
            given = {other: value(other) for other in inspect.signature(made).parameters}
            found = made(**given)
            if inspect.isgenerator(found):
                closing.append(found)
                found = next(found)
            (values if made.scope == "function" else wide)[name] = found
            return found
        return values[name]

    error = ""
    try:
        test(**{name: value(name) for name in inspect.signature(test).parameters})
    except BaseException as caught:
        error = repr(caught)
    for generator in reversed(closing):
        next(generator, None)
    CURRENT.pop()
    unused = [fault for fault in faults if (fault[0], fault[1]) not in {call[:2] for call in run.calls}]
    return {"broken": run.violations, "calls": run.calls, "unused": len(unused), "error": error}


def tried(folder, name, schedules):
    """The last of these executions, one after another in one new fork."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        found = {"broken": [], "calls": [], "unused": 0, "error": "died"}
        try:
            signal.alarm(LIMIT_S)
            os.chdir(folder)
            sys.path.insert(0, folder)
            module = importlib.import_module(f"test_{name}")
            wide = {}
            for faults in schedules:
                found = execute(module, getattr(module, f"test_{name}"), faults, wide)
        except BaseException as error:
            found["error"] = repr(error)
        with contextlib.suppress(BaseException):
            os.write(writes, json.dumps(found).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"broken": [], "calls": [], "unused": 0, "error": "killed"}


# -- all schedules --------------------------------------------------------------------------------------------------------


def priced(faults):
    return sum(COSTS[fault][calls] for _, _, fault, calls in faults)


def longer(schedule, calls, operators):
    """The schedules that have one fault more, at a call that was made."""
    covered = {(tool, nth + more) for tool, nth, _, calls_ in schedule for more in range(max(calls_, 1))}
    for tool_, nth, effect in calls:
        for operator in operators:
            for width in COSTS[operator]:
                if operator == "service.lost_ack" and effect != "write":
                    continue
                if not covered & {(tool_, nth + more) for more in range(max(width, 1))}:
                    yield tuple(sorted([*schedule, (tool_, nth, operator, width)]))


def cheapest(folder, order, before):
    """Every schedule within the budget, cheapest first; all that cost as much as the first that breaks it."""
    seen, waiting, count, errors = {()}, [(0, ())], 0, set()
    broken = []
    while waiting:
        waiting.sort()
        cost, schedule = waiting.pop(0)
        if broken and cost > broken[0][0]:
            break
        found = tried(folder, order["name"], [*before, schedule])
        count += 1
        if found["error"]:
            errors.add(found["error"])
        if found["unused"]:
            continue
        if found["broken"]:
            broken.append((cost, schedule))
            continue
        for more in longer(schedule, found["calls"], order["faults"]):
            if more not in seen and priced(more) <= order["budget"]:
                seen.add(more)
                waiting.append((priced(more), more))
    return {
        "cost": broken[0][0] if broken else None,
        "schedules": [schedule for _, schedule in broken],
        "tried": count,
        "errors": sorted(errors),
    }


def main():
    orders = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
    for heavy in ("numpy", "pydantic"):  # imported once here, not once in each fork
        if heavy in json.dumps(orders["agents"]):
            importlib.import_module(heavy)
    stand_ins()
    root = tempfile.mkdtemp()
    for order in orders["agents"]:
        folder = os.path.join(root, order["name"])
        for path, text in order["files"].items():
            place = os.path.join(folder, path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "w") as stream:
                stream.write(text)
        for path in order["folders"]:
            os.makedirs(os.path.join(folder, path))
        answer = {"name": order["name"], "fresh": cheapest(folder, order, [])}
        if orders["warm"]:
            answer["warm"] = cheapest(folder, order, [()])
        print(json.dumps(answer), file=answers, flush=True)
    shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()

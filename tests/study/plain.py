"""A study without pytest: an Evaluator that is a plain function over `mat.run`, and what else a study is given.

Run as a script, it studies both agents and prints what became of them, as JSON.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import mat
from mat.boundary.catalog import Catalog
from mat.boundary.effect import Raise
from mat.core.run import Run
from mat.core.spec import Schedule
from mat.measure.workload import Workload
from mat_study.evaluation import REPORTED, Evaluated, Lost, Plan
from mat_study.item import Asked, ItemStudy, study
from mat_study.live import LiveCalls
from mat_study.means import Means, Subject
from mat_study.notices import Notice
from mat_study.replay import judge
from mat_study.settings import ItemSettings
from mat_study.tasks import is_task, judged


def _writes(record: Any, parameters: Any, before: Any) -> bool:
    return bool(record.action.effect == "write")


ITEM: Final = "test_shop.py::test_pay"
CATALOG: Final = Catalog([
    mat.spec.operator("service.unanswered", lambda call, reply, stream: Raise("timeout")),
    mat.spec.operator("service.unconfirmed", lambda call, reply, stream: Raise("timeout"), phase="after", relevant=_writes),
])  # fmt: skip


@mat.trace_contract(start=0, on="tool_call", id="paid.once")
def paid_once(count: int, record: Any) -> Any:
    count += record.effected == "yes"
    return mat.Violated("paid twice", state=count) if count > 1 else count


LEDGER: Final[list[str]] = []


@mat.tool(effect="write")
def pay(order: str) -> str:
    LEDGER.append(order)
    return f"paid {order}"


def retries(plan: Plan) -> None:
    """Pays a second time where it is not told that it has paid."""
    for _ in range(2):
        with suppress(TimeoutError):
            pay("o1")
            return


def gives_up(plan: Plan) -> None:
    with suppress(TimeoutError):
        pay("o1")


@dataclass
class Plain:
    """A body under `paid_once`, executed as plans say; it is told the plan.

    `plans` are all that it was asked for, `left` what there is to go on with after an interruption. `lose`: why an execution
    of this plan gives no run, "" where it does.
    """

    body: Callable[[Plan], object]
    task: Workload = field(default_factory=Workload)
    variants: tuple[str, ...] = ("none",)
    lose: Callable[[Plan], str] = lambda plan: ""
    plans: list[Plan] = field(default_factory=list)
    confirmed: list[tuple[str, Schedule]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    left: list[Notice] = field(default_factory=list)

    def evaluate(self, plan: Plan) -> Evaluated | Lost:
        if plan.mode == "measure" and not is_task(self.task):
            plan = replace(plan, mode="nominal")
        self.plans.append(plan)
        why = self.lose(plan)
        if why:
            return Lost(plan=plan, why=why, outcome="error", task=self.task)
        run = mat.run(
            [paid_once], task=ITEM, seed=plan.seed, schedule=plan.schedule, operators=CATALOG, tape=plan.tape, vary=plan.vary,
            adversary=plan.adversary, states=plan.mode == "search", config={"variant": plan.variant or self.variants[0]},
        )  # fmt: skip
        with suppress(LookupError), run:  # how an agent here says that it has failed
            self.body(plan)
        assert run.result is not None
        if plan.replay is not None:
            failed = judge(plan, run.result, ItemSettings()).fails
        else:
            failed = plan.mode in REPORTED and bool(run.result.failures)
        return Evaluated(
            plan=plan, run=run.result, outcome="failed" if failed else "passed", task=self.task,
            judged=judged(self.task, run.result), contracts=(paid_once,), variants=self.variants,
        )  # fmt: skip

    def confirm(self, variant: str, hash_seed: int) -> Callable[[Sequence[Schedule]], Iterator[Run | None]]:
        def confirm(schedules: Sequence[Schedule]) -> Iterator[Run | None]:
            for schedule in schedules:
                self.confirmed.append((variant, schedule))
                given = self.evaluate(Plan(mode="search", schedule=schedule, variant=variant))
                yield given.run if isinstance(given, Evaluated) else None

        return confirm

    def means(self, root: Path, **more: Any) -> Means:
        return Means(
            evaluate=self.evaluate,
            operators=lambda: tuple(each.spec() for each in CATALOG),
            live=LiveCalls(root, ITEM, most=None, warn=self.calls.append),
            confirm=self.confirm,
            forked=lambda known: self.evaluate,
            replays=root / "replays",
            typed=lambda path: path.parent.name,
            root=root,
            began_ns=time.time_ns(),
            searching=lambda: self.calls.append("searching"),
            interrupted=self.left.append,
            **more,
        )

    def study(self, root: Path, asked: Asked, **settings: Any) -> ItemStudy:
        subject = Subject(id=ITEM, task=ITEM, name="test_pay", settings=ItemSettings(**{"budget": 4, **settings}))
        return study(subject, self.means(root), asked)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = [Plain(body).study(Path(folder, body.__name__), Asked(stress=True)).result for body in (retries, gives_up)]
    print(json.dumps([None if each is None else each.status for each in results]))

"""What the tests of the search share: a small catalog, `evaluate` over a body, and a brute force apart from the room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

import mat
from mat.boundary.catalog import Catalog
from mat.boundary.effect import PASS, Delay, Drop, Raise, Replace
from mat.core.errors import SpecError
from mat.core.operator import CoveredBy
from mat.core.site import parse_site
from mat_search import Campaign, CampaignResult, search

OPERATORS = [
    mat.spec.operator("service.timeout", lambda call, reply, stream: Raise("timeout", delay_ms=1_000)),
    mat.spec.operator(
        "service.lost_ack", lambda call, reply, stream: Raise("timeout", delay_ms=1_000), phase="after",
        covered=CoveredBy(by="service.timeout"),
    ),
    mat.spec.operator("service.outage", lambda call, reply, stream: Raise("connection"), grid=[{"calls": 3, "magnitude": 1}]),
    mat.spec.operator("service.wrong", lambda call, reply, stream: Replace(-1), phase="after"),
    mat.spec.operator(
        "service.slow", lambda call, reply, stream: Delay(call.parameters["ms"]),
        grid=[{"ms": 1_000, "magnitude": 0}, {"ms": 5_000, "magnitude": 2}],
    ),
    mat.spec.operator("memory.forget", lambda call, reply, stream: Drop(), kinds=["memory_write"]),
    mat.spec.operator("prompt.inject", lambda call, reply, stream: Replace(str(reply.value) + " and hurry"), phase="after"),
    mat.spec.operator("delegation.lose", lambda call, reply, stream: Drop(), kinds=["message"]),
    mat.spec.operator("service.nothing", lambda call, reply, stream: PASS, relevant=lambda record, parameters, before: False),
]  # fmt: skip


@dataclass
class Lab:
    """An agent under contracts, evaluated afresh for each schedule; `executed` lists the schedules in order."""

    body: Callable[[], object]
    contracts: Sequence[Any]
    catalog: Catalog
    seed: int = 0
    digest: Any = None
    governance: Any = None
    executed: list[Any] = field(default_factory=list)

    def evaluate(self, spec: mat.spec.RunSpec, *, vary: bool = False) -> mat.Run:
        self.executed.append(spec.schedule)
        run = mat.run(
            self.contracts, schedule=spec.schedule, seed=spec.seed, operators=self.catalog, states=True,
            state_digest=self.digest, vary=vary, governance=self.governance,
        )  # fmt: skip
        with suppress(OSError), run:  # an agent that crashes on a fault has failed its task, and its contracts are judged
            self.body()
        assert run.result is not None
        return run.result

    @property
    def specs(self) -> tuple[Any, ...]:
        return tuple(operator.spec() for operator in self.catalog)

    def nominal(self) -> mat.Run:
        return self.evaluate(mat.spec.RunSpec(seed=self.seed))

    def vary(self, spec: mat.spec.RunSpec) -> mat.Run:
        return self.evaluate(spec, vary=True)

    def search(self, *, confirm: Any = None, progress: Any = None, vary: bool = False, **options: Any) -> CampaignResult:
        campaign = Campaign(operators=self.specs, **{"budget": 8, **options})
        varied = self.vary if vary else None
        return search(self.nominal(), self.evaluate, campaign, confirm=confirm, progress=progress, vary=varied)

    def brute_force(self, budget: int) -> dict[str, int]:
        """Cheapest cost per contract over every set of perturbations whose sites exist once the others act.

        Grows any run at any of its sites, before or after what is injected already, knows no order, key or relevance.
        """
        best: dict[str, int] = {}
        waiting, met = [mat.spec.Schedule()], {mat.spec.Schedule()}
        while waiting:
            schedule = waiting.pop()
            run = self.evaluate(mat.spec.RunSpec(seed=self.seed, schedule=schedule))
            for violation in run.failures if not run.unreached else ():
                best[violation.contract] = min(best.get(violation.contract, 99), schedule.cost)
            for record in run.records:
                if not record.action.boundary:
                    continue
                site = parse_site(record.site)
                for operator in self.catalog:
                    if operator.boundary != site.boundary or record.action.kind not in operator.spec().kinds:
                        continue
                    for choice in operator.spec().choices:
                        where = mat.spec.Site(agent=site.agent, boundary=site.boundary, name=site.name, nth=site.nth,
                                         last=site.nth + choice.span - 1)  # fmt: skip
                        added = mat.spec.Perturbation(
                            operator=operator.id, site=where, parameters=choice.parameters, cost=choice.cost
                        )
                        try:
                            grown = schedule.add(added)
                        except SpecError:
                            continue
                        if grown.cost <= budget and grown not in met:
                            met.add(grown)
                            waiting.append(grown)
        return best


def costs(result: CampaignResult) -> dict[str, int]:
    best: dict[str, int] = {}
    for found in result.counterexamples:
        best[found.verdict.contract] = min(best.get(found.verdict.contract, found.cost), found.cost)
    return best


@pytest.fixture(scope="session")
def lab() -> Callable[..., Lab]:
    """lab(body, contracts, operators=ids) -> Lab."""

    def make(body, contracts, operators=("service.timeout", "service.lost_ack"), extra=(), seed=0, digest=None):
        chosen = [item for item in OPERATORS if item.id in operators]
        return Lab(body, contracts, Catalog([*chosen, *extra]), seed=seed, digest=digest)

    return make


@pytest.fixture(scope="session")
def found() -> Callable[[CampaignResult], dict[str, int]]:
    """Contract -> cost of its counterexample."""
    return costs

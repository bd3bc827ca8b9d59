"""Run an adaptive adversary: show it the safe facts at each call, and check its answers.

A chosen perturbation acts as if it had been scheduled from the beginning: it acts after its site is asked, and is bound
before that call is served. So executing the schedule that a run ends with gives the same run.

Source: A3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, cast

from mat.boundary.catalog import Catalog, Operator
from mat.boundary.port import Port
from mat.core.adversary import Choose, Seen, budget_of
from mat.core.errors import SpecError, raised_text
from mat.core.record import Record
from mat.core.site import Site, name_about, parse_site, site_about
from mat.core.spec import Perturbation, Schedule
from mat.core.verdict import ContractOutcome, Verdict
from mat.harness.open_step import OpenStep
from mat.monitor.judge import Judge

_WHY: Final = "the answer is bound to the call it was asked about, and acts like a perturbation of the schedule"
_FIX: Final = "answer None, or one of Seen.operators at Seen.site (or a range that begins there) for at most Seen.rest"


class Chooser:
    """Asks a Choose at each free call. `schedule` holds the given and the chosen perturbations, `seen` what it was shown.

    `failed` is the error for the first invalid answer or exception of the Choose. The Choose is then not asked again, and the
    end of the run raises the error, even if the agent swallowed it.
    """

    __slots__ = (
        "_allowed", "_broken", "_budget", "_catalog", "_choose", "_episodes", "_failing", "_folded", "_injected", "boundaries",
        "failed", "schedule", "seen",
    )  # fmt: skip

    def __init__(self, choose: Choose, *, catalog: Catalog, schedule: Schedule) -> None:
        self._choose, self._catalog, self._budget = choose, catalog, budget_of(choose)
        self.schedule = schedule
        self.seen: list[Seen] = []
        self.failed: SpecError | None = None
        self.boundaries = frozenset(operator.boundary for operator in catalog)
        self._injected: list[str] = []
        self._allowed: dict[tuple[Port, str], tuple[str, ...]] = {}
        self._failing: Counter[tuple[str, str]] = Counter()
        self._broken: dict[str, None] = {}
        self._folded = self._episodes = 0

    def follow(
        self,
        records: Sequence[Record | OpenStep],
        verdicts: Sequence[Verdict | tuple[str, ...]],
        episodes: Sequence[Iterable[ContractOutcome]],
    ) -> None:
        """Add what has happened since the last question: sealed and judged records, and episodes that ended."""
        for index in range(self._folded, len(verdicts)):
            record, verdict = cast(Record, records[index]), verdicts[index]
            if record.observation.error is not None:
                self._failing[record.action.boundary, record.action.name] += 1
            if isinstance(verdict, Verdict):
                self._broken.update((found.contract, None) for found in verdict.violations)
        self._folded = len(verdicts)
        for outcomes in episodes[self._episodes :]:
            self._broken.update((found.contract, None) for outcome in outcomes for found in outcome.violations)
        self._episodes = len(episodes)

    def about(self, opened: OpenStep, port: Port, judge: Judge, *, order: bool) -> Perturbation | None:
        """The perturbation that the adversary chooses for a call, or for its order; None if it passes or has no choice."""
        if self.failed is not None:
            return None
        boundary = "order" if order else port.boundary
        operators = self._operators(port, boundary)
        text = site_about("order", opened.site) if order else opened.site
        if not operators:
            return None
        here = parse_site(text)
        if any(item.site.overlaps(here) for item in self.schedule):
            return None
        name = opened.action.name
        seen = Seen(
            step=opened.step, kind=port.kind, boundary=boundary, name=name_about(port.boundary, name) if order else name,
            agent=opened.agent, role=opened.role, site=text, impact=port.impact, effect=port.effect, rest=self._rest,
            operators=operators, injected=tuple(self._injected), errors=self._failing[port.boundary, name],
            open=_open_obligations(judge), broken=tuple(self._broken),
        )  # fmt: skip
        self.seen.append(seen)
        return self._checked_answer(seen, here, port)

    def operator(self, item: Perturbation) -> Operator:
        return self._catalog[item.operator]

    @property
    def _rest(self) -> int:
        return max(0, self._budget - self.schedule.cost)

    def _operators(self, port: Port, boundary: str) -> tuple[str, ...]:
        """The operators that can act on calls of a port; catalogs and ports do not change within a run."""
        found = self._allowed.get((port, boundary))
        if found is None:
            found = self._allowed[port, boundary] = tuple(
                operator.id
                for operator in self._catalog
                if operator.boundary == boundary and port.kind in operator.spec().kinds and port.allows(operator.id)
            )
        return found

    def _checked_answer(self, seen: Seen, here: Site, port: Port) -> Perturbation | None:
        try:
            answer = self._choose(seen)
        except Exception as error:
            raise self._failure(seen, [f"the adversary {raised_text(error)}"]) from error
        if answer is None:
            return None
        if not isinstance(answer, Perturbation):
            raise self._failure(seen, [f"it is a {type(answer).__name__}, not a Perturbation"])
        problems = [
            *self._operator_problems(answer, seen, port),
            *_site_problems(answer.site, here),
            *_cost_problems(answer.cost, seen.rest),
        ]
        problems += [
            f"it overlaps with {item.operator} at {item.site}" for item in self.schedule if item.site.overlaps(answer.site)
        ]
        if problems:
            raise self._failure(seen, problems)
        self.schedule = self.schedule.add(answer)
        self._injected.append(answer.operator)
        return answer

    def _operator_problems(self, answer: Perturbation, seen: Seen, port: Port) -> list[str]:
        if answer.operator not in self._catalog:
            try:
                self._catalog[answer.operator]
            except SpecError as error:
                return [error.what]
        if answer.operator in seen.operators:
            return []
        operator = self._catalog[answer.operator]
        if operator.boundary != seen.boundary:
            return [f"{operator.id} acts at the {operator.boundary} boundary"]
        if port.kind not in operator.spec().kinds:
            return [f"{operator.id} does not act on a {port.kind}"]
        return [f"the port does not allow {operator.id} (perturb=)"]

    def _failure(self, seen: Seen, problems: Sequence[str]) -> SpecError:
        self.failed = SpecError(
            what=f"an adversary's answer at {seen.site}: {'; '.join(problems)}", why=_WHY, fix=_FIX, where=seen.site
        )
        return self.failed


def _site_problems(site: Site, here: Site) -> list[str]:
    if site.port == here.port and site.nth == here.nth and site.last >= site.nth:
        return []
    return [f"its site {site} does not begin at this call"]


def _cost_problems(cost: int, rest: int) -> list[str]:
    if not isinstance(cost, int) or isinstance(cost, bool) or cost < 1:
        return [f"its cost {cost!r} is not an integer >= 1"]
    return [f"it costs {cost}, but only {rest} of the budget is left"] if cost > rest else []


def _open_obligations(judge: Judge) -> int:
    """The number of obligations that would be violations if nothing more happened; a contract that lists none counts as one."""
    count = 0
    for outcome in judge.outcomes_so_far(None):
        if outcome.standing == "presumably_false" and not outcome.error:
            count += max(1, sum(not item.met for item in outcome.open))
    return count

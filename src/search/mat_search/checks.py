"""Check the assumptions of a certificate. A failed check withdraws the certificate and gives the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeVar

from mat.core import limits
from mat.core.difference import first_difference as first_different_fact
from mat.core.difference import in_words
from mat.core.run import Run, prefixes, remedy
from mat.core.site import ABOUT_CALLS, site_about
from mat.core.spec import NO_SCHEDULE, Schedule
from mat.core.verdict import Stage
from mat.kernel.entropy import Entropy
from mat_search.executions import Executions
from mat_search.hits import JudgeRun
from mat_search.space import Edge, Grid, GridKey, edges, first_difference
from mat_search.strategy import Skips

T = TypeVar("T")
_CAUSES: Final = "likely causes: state shared between runs, a real clock, ids, threads, or the order of a set"


class WithdrawnError(Exception):
    """A check failed: conclusions from earlier runs no longer hold. `run` is a run that shows it, if there is one."""

    def __init__(self, message: str, run: Run | None = None) -> None:
        self.run = run
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    """The end of a run: D, the user's state digest, and the violations from the injected step on. Equal edges have equal ends.

    `before`: the contracts broken earlier. If states are equal only by the user's digest, histories may differ, and a
    contract can be blamed on a step that one of them has before the injection.
    """

    history: str
    state: str
    broken: frozenset[tuple[str, Stage]]
    before: frozenset[str]

    def equals(self, other: _Ending, *, exactly: bool) -> bool:
        if exactly:
            return (self.history, self.broken) == (other.history, other.broken)
        differing = {contract for contract, _ in self.broken ^ other.broken}
        return self.state == other.state and differing <= self.before | other.before


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchClaim:
    """The claim of a search: `cheapest`, the least cost found by contract, and that nothing was missed up to `bound`.

    `nominal`: the contracts that break without faults, which are not searched for.
    """

    grid: Grid
    bound: int
    cheapest: Mapping[str, int]
    nominal: frozenset[str]

    def denies(self, contract: str, cost: int) -> bool:
        """Whether the claim excludes a schedule of this cost that breaks the contract."""
        known = self.cheapest.get(contract)
        return cost <= self.bound and contract not in self.nominal and (known is None or known > cost)


class Checks:
    """Counts comparisons, and raises WithdrawnError at a difference."""

    def __init__(self, nominal: Run, executions: Executions, judge: JudgeRun, entropy: Entropy) -> None:
        self.nominal = nominal
        self._executions, self._judge, self._entropy = executions, judge, entropy
        self._endings: dict[GridKey, _Ending] = {}
        self._executed: dict[Schedule, str] = {}
        self.counts: dict[str, int] = {"prefix": 0, "nominal": 0, "skipped": 0, "repeated": 0, "fresh": 0}
        self.counts |= {"audited": 0} if nominal.complete else {}
        self.fresh_nominal = self.same_nominal = 0
        self.unexecuted = ""

    # -- while exploring --------------------------------------------------------------------------------------------

    def controlled(self, run: Run) -> None:
        """Check that all that happened in a run was decided by its spec."""
        if run.uncontrolled:
            finding = run.uncontrolled[0]
            raise WithdrawnError(f"the run is not controlled ({finding.code}): {finding.message}; fix: {remedy(finding.code)}")

    def begin(self, run: Run) -> None:
        """Check that the search begins with the run that was reported."""
        self._compare(self.nominal, run, "the nominal run, repeated before the search,")
        self.nominal = run

    def explored(self, edge: Edge, run: Run, states: Sequence[str]) -> None:
        """Check that the child equals its parent up to the injected site, and meets the injection there."""
        if edge.key is not None:
            self._check_prefix(edge, run, states)
            ending = self._run_ending(edge, run, states)
            for key in (edge.key, edge.loose):
                if key is not None:
                    self._endings.setdefault(key, ending)
        if len(run.spec.schedule):
            self._executed.setdefault(run.spec.schedule, states[-1])

    def _check_prefix(self, edge: Edge, run: Run, states: Sequence[str]) -> None:
        self.counts["prefix"] += 1
        if len(states) > edge.step + 1 and states[edge.step] == edge.state and not _wrong_site(edge, run):
            return
        differing = first_difference(edge.lineage, states)
        if differing is not None and differing <= edge.step:
            where = _step_text(run, max(0, differing - 1))
            raise WithdrawnError(f"{where} differs from the previous run, before any fault was injected; {_CAUSES}")
        raise WithdrawnError(f"step {edge.step} ({edge.site}) was not reached again under the same schedule; {_CAUSES}")

    def again(self, when: str) -> None:
        """Repeat the nominal run; it must not differ."""
        self.counts["nominal"] += 1
        self._compare(self.nominal, self._executions.again(NO_SCHEDULE), f"the nominal run, repeated {when},")
        self.same_nominal += 1

    def _compare(self, one: Run, other: Run, what: str) -> None:
        """Raise WithdrawnError if two runs differ. Only facts are compared: the reported run may have no monitor states."""
        if one.head == other.head:
            return
        found = first_different_fact(one, other)
        broken = self._newly_broken(one, other)
        if found is None:
            raise WithdrawnError(f"{what} differs at its fault labels{broken}; {_CAUSES}", other)
        where = f"{_step_text(other, found.step)} in {in_words(found)}"
        raise WithdrawnError(f"{what} differs at {where}{broken}; likely causes: {found.cause}", other)

    def _newly_broken(self, one: Run, other: Run) -> str:
        """The contracts that a repetition broke and the first run kept, as text: it reports failures that come and go."""
        names = sorted({item.contract for item in self._judge(other)} - {item.contract for item in self._judge(one)})
        return f", and broke {', '.join(names)}" if names else ""

    def _run_ending(self, edge: Edge, run: Run, states: Sequence[str]) -> _Ending:
        """The end of a run from the injection on; what came before was judged in the parents' runs."""
        found = self._judge(run)
        return _Ending(
            history=states[-1],
            state=run.states[-1] if run.states else "",
            broken=frozenset((item.contract, item.stage) for item in found if item.step >= edge.step),
            before=frozenset(item.contract for item in found if item.step < edge.step),
        )

    def due(self, skipped: int) -> int:
        """About how many executions the checks at the end will take, if this many edges are skipped."""
        executed, least, percent = len(self._executed), limits.SKIP_SAMPLE_LEAST, limits.SKIP_SAMPLE_PERCENT
        sampled = min(skipped, max(least, min(skipped * percent // 100, executed)))
        if self.nominal.complete:
            sampled += min(skipped, limits.VOUCHED_SAMPLE_LEAST + limits.AUDITS)
        return sampled + min(executed, 2 * least + executed * percent // 100) + 1

    # -- at the end -------------------------------------------------------------------------------------------------

    def verify(self, skipped: Skips, claim: SearchClaim) -> None:
        """Execute a sample of skipped edges, and repeat a sample of executed ones and the nominal run.

        The sample is larger for edges that are equal only by the user's state digest, which it tests. The first executed
        schedules are all repeated: they ran before others could leave state behind. The order is reversed, which exposes state
        that one schedule sets and its neighbour clears.
        """
        known = [(edge, of) for edge, _, of in skipped if of in self._endings]
        exact = [(edge, of) for edge, of in known if _by_history(edge, of)]
        vouched = [(edge, of) for edge, of in known if not _by_history(edge, of)]
        fair = max(limits.SKIP_SAMPLE_LEAST, min(limits.VOUCHED_SAMPLE_LEAST, len(self._executed)))
        sampled = self._sample(exact, "skipped"), self._sample(vouched, "vouched", least=fair)
        for edge, of in chain(*sampled):
            self._check_skipped(edge, of)
        for edge, _ in self._sample(vouched, "audit", most=limits.AUDITS):
            self._audit(edge.schedule, edge.step, claim)
        executed = list(self._executed.items())
        early, late = executed[: limits.SKIP_SAMPLE_LEAST], executed[limits.SKIP_SAMPLE_LEAST :]
        for schedule, ending in reversed([*early, *self._sample(late, "repeated")]):
            self._check_repeated(schedule, ending)
        self.again("at the end")

    def _check_skipped(self, edge: Edge, of: GridKey) -> None:
        """Execute a skipped edge: its run must end like that of the executed edge that it equals."""
        assert edge.key is not None
        self.counts["skipped"] += 1
        run = self._executions.again(edge.schedule)
        states = prefixes(run)
        self._check_prefix(edge, run, states)
        exactly = _by_history(edge, of) and not run.complete
        if not self._run_ending(edge, run, states).equals(self._endings[of], exactly=exactly):
            raise WithdrawnError(
                f"a skipped schedule ({words(edge.schedule)}) ended differently from the executed schedule in its "
                "equivalence class; it depends on state that the trace does not show "
                "(write a mat_state_digest fixture that shows it)",
                run,
            )

    def _audit(self, schedule: Schedule, step: int, claim: SearchClaim) -> None:
        """Grow a skipped schedule at random within the claim; the search must have found what it breaks at no greater cost.

        With an incomplete state digest, runs may end equally after one injection but not after three.
        """
        stream = self._entropy.stream(f"search/audit/{schedule.cost}/{words(schedule)}")
        while True:
            self.counts["audited"] += 1
            run = self._executions.again(schedule)
            missed = next((item.contract for item in self._judge(run) if claim.denies(item.contract, schedule.cost)), None)
            if missed is not None:
                raise WithdrawnError(
                    f"a skipped schedule ({words(schedule)}) breaks {missed}, and no schedule as cheap was found that does; "
                    "it depends on state that the digests do not show (fix the mat_state_digest fixture)",
                    run,
                )
            offers = list(edges(run, schedule, step, claim.grid, prefixes(run), budget=claim.bound))
            if not offers:
                return
            drawn = offers[stream.randrange(len(offers))]
            schedule, step = drawn.schedule, drawn.step

    def _check_repeated(self, schedule: Schedule, ending: str) -> None:
        self.counts["repeated"] += 1
        run = self._executions.again(schedule)
        if prefixes(run)[-1] != ending:
            what = f"the same schedule ({words(schedule)}) gave a different run at the end of the search"
            raise WithdrawnError(f"{what}{self._newly_broken(self.nominal, run)}; {_CAUSES}", run)

    def _sample(
        self, population: Sequence[T], name: str, *, least: int = limits.SKIP_SAMPLE_LEAST, most: int | None = None
    ) -> list[T]:
        """SKIP_SAMPLE_PERCENT of a population, between `least` and what the search executed; or `most`, if it is given."""
        share = min(len(population) * limits.SKIP_SAMPLE_PERCENT // 100, len(self._executed))
        size = max(least, share) if most is None else most
        if len(population) <= size:
            return list(population)
        chosen = sorted(self._entropy.stream(f"search/{name}").sample(range(len(population)), size))
        return [population[index] for index in chosen]

    # -- in a fresh process -----------------------------------------------------------------------------------------

    def fresh_sample(self, *, without: Sequence[Schedule]) -> list[Schedule]:
        """The schedules that a fresh process executes too: the cheapest, and a sample of the others."""
        known = [schedule for schedule in self._executed if schedule not in without]
        executed = sorted(known, key=lambda schedule: schedule.cost)
        cheapest, others = executed[: limits.FRESH_CHEAPEST], executed[limits.FRESH_CHEAPEST :]
        return [*cheapest, *self._sample(others, "fresh", most=limits.FRESH_SAMPLE)]

    def fresh(
        self, nominal: Run | None, sample: Sequence[tuple[Schedule, Run | None]], schedules: int
    ) -> tuple[str, Run | None]:
        """How the runs of a fresh process differ from those here, "" if they do not, and one that does; rather one that breaks
        a contract.

        `sample`: schedules with their runs there. `schedules`: how many others ran there, which are compared elsewhere.
        """
        self.counts["fresh"] += 1 + len(sample) + schedules
        try:
            if nominal is None:
                raise WithdrawnError(f"the nominal run could not be executed in a fresh process{self._why_not}")
            self._compare(self.nominal, nominal, "the nominal run in a fresh process, under another hash seed,")
            differing = []
            for schedule, run in sample:
                try:
                    self._check_fresh(schedule, run, self._executed[schedule])
                except WithdrawnError as withdrawn:
                    differing.append(withdrawn)
            if differing:
                raise next((each for each in differing if each.run is not None and self._judge(each.run)), differing[0])
        except WithdrawnError as withdrawn:
            return str(withdrawn), withdrawn.run
        self.fresh_nominal = 1
        return "", None

    @property
    def _why_not(self) -> str:
        return f": {self.unexecuted}" if self.unexecuted else ""

    def _check_fresh(self, schedule: Schedule, run: Run | None, ending: str) -> None:
        if run is None:
            raise WithdrawnError(f"a schedule ({words(schedule)}) could not be executed in a fresh process{self._why_not}")
        if prefixes(run)[-1] != ending:
            here = self._executions.again(schedule)
            what = f"a run in a fresh process ({words(schedule)})"
            self._compare(here, run, what)
            raise WithdrawnError(f"{what} ends in another state{self._newly_broken(here, run)}; {_CAUSES}", run)


def _by_history(edge: Edge, of: GridKey) -> bool:
    """Whether an edge equals another by its history, not only by the user's state digest."""
    return edge.key is not None and edge.key[0] == of[0]


def _wrong_site(edge: Edge, run: Run) -> bool:
    """Whether another call is now at the edge's step, or the injection was not reached there.

    A range may begin at a call that governance blocks, and then reach no other call.
    """
    record = run.records[edge.step]
    missed = edge.added in run.unreached and not record.blocked
    return edge.site not in (record.site, *(site_about(each, record.site) for each in ABOUT_CALLS)) or missed


def _step_text(run: Run, step: int) -> str:
    record = next((item for item in run.records if item.step == step), None)
    return f"step {step}" if record is None else f"step {step} ({record.site})"


def words(schedule: Schedule) -> str:
    """A schedule as text: "operator at site, ..."."""
    return ", ".join(f"{item.operator} at {item.site}" for item in schedule) or "empty"

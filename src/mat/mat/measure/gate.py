"""The change gate: a change passes if a smoke suite and the replay suite get no worse, within tolerances. Source: A6.7.

The smoke suite consists of tests whose nominal runs pass in a baseline report, some for each workload category, on the seeds of
the baseline. The replay suite consists of the stored counterexamples that `mat suite` selects, each once under its own seed and
schedule. A run is paired with the baseline's run of equal item, seed and schedule. Six aspects are judged separately:

- success: task success of smoke runs (utility);
- compliance: smoke runs that keep all hard contracts; a contract that is no longer armed is not kept;
- containment: runs of both suites that contain all faults that reached them;
- governance: runs of both suites in which no decision on a high-impact action is more permissive at the same site;
- replays: replays that hold: none breaks again, none has become stale;
- replay_success: task success of replays that succeeded.

The population is these tests on further seeds. The unit is the run, because what a run draws depends on its test and its seed.
When all seeds have run, an aspect is kept if the exact test of `mat.measure.margin` shows it: at a confidence of 95 %, one that
is worse by the tolerance passes with probability 5 % at most. Where the baseline has few runs, each is compared with several
executions, so that a system that does the same every time can pass. What is lost is looked for after every round
(`mat.measure.noninferiority`), in total and in each test alone, so that many good tests do not hide a lost one; an aspect that
is no worse fails with probability 5 % at most, half of it for each question. A gate passes only if every aspect passes, so a
wrong pass is no more likely.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias, get_args

from mat.core.campaign import Counterexample
from mat.measure.estimate import Estimate
from mat.measure.margin import difference_of, kept, pairs_needed, power
from mat.measure.noninferiority import CONFIDENCE, NonInferiority, Units, decision, difference, further, units_of, worse
from mat.measure.paired import PairTable
from mat.measure.regression import RunOutcome, RunPair, Under, compare, other_variants
from mat.measure.suite import candidates, nominal_passes, select

GateAspect: TypeAlias = Literal["success", "compliance", "containment", "governance", "replays", "replay_success"]
ASPECTS: Final[tuple[GateAspect, ...]] = get_args(GateAspect)
TOLERANCES: Final[Mapping[GateAspect, Fraction]] = {name: Fraction(name == "success", 20) for name in ASPECTS}
"""The default tolerances: a change may lose 5 % of task success, and nothing of the other aspects."""
SMOKE: Final = 5
"""The default number of tests for each category."""
FIRST: Final = 4
"""Seeds of the first round; each later round at most quadruples the number."""
HELD: Final = ("replayed", "accepted", "known")
"""The statuses of replays that fail nothing: they hold, or what they break is accepted or in the session's baseline."""
GateVerdict: TypeAlias = Literal["kept", "lost", "undecided", "nothing"]
"""nothing: there is nothing to judge, neither in the baseline nor in the change."""


# -- what is run ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The old configuration, from its report: `categories` of its tests and `statuses` of its replays, both by node id.

    `discovered`: the replays that the baseline's own search wrote, by node id. They did not run there, but are broken there.
    """

    categories: Mapping[str, str]
    statuses: Mapping[str, str]
    outcomes: tuple[RunOutcome, ...]
    discovered: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeTest:
    """A test of the smoke suite with the baseline's seeds, in their order."""

    item: str
    category: str
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePlan:
    """The tests and replays that a gate runs, and those it does not, by node id.

    `broken`: replay files that cannot be read or have no test. `left_out`: replays that the suite does not need. `new_...`
    exist in the session only, `removed_...` in the baseline only; `elsewhere`: tests and replays of the baseline that this
    session did not collect, or left out, although their files exist. `emptied`: categories of the baseline without a test
    that could represent them. `executions`: how often each test runs on each seed.
    """

    smoke: tuple[SmokeTest, ...] = ()
    replays: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    new_tests: tuple[str, ...] = ()
    new_replays: tuple[str, ...] = ()
    removed_tests: tuple[str, ...] = ()
    removed_replays: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()
    executions: int = 1

    @property
    def seeds(self) -> int:
        """The largest number of seeds of a test: what an unlimited session would run."""
        return max((len(test.seeds) for test in self.smoke), default=0)

    @property
    def selected(self) -> frozenset[str]:
        return frozenset(test.item for test in self.smoke) | frozenset(self.replays) | frozenset(self.broken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The share of one of several sessions: the seeds from the `begin`-th to before the `end`-th.

    `plan`: the selection of the first session, by `smoke`, `seeds` and `all_replays`. `out`: the file for the results.
    """

    begin: int = 0
    end: int | None = None
    plan: GatePlan | None = None
    smoke: int | None = None
    seeds: int | None = None
    all_replays: bool = False
    out: str = ""


def plan(
    baseline: Baseline,
    *,
    tests: Iterable[str],
    replays: Mapping[str, Counterexample],
    broken: Iterable[str] = (),
    there: Callable[[str], bool] = lambda item: False,
    smoke: int | None = SMOKE,
    all_replays: bool = False,
    seeds: int | None = None,
    least: int = 0,
) -> GatePlan:
    """Select both suites from what a session collected: `tests`, and `replays` by node id.

    `smoke` tests for each category, those with the fewest steps of the passing ones; None takes every test with a nominal
    run in the baseline, passing or not. `seeds` limits the seeds of each test. `there` returns whether an
    item that was not collected may still exist, because this session did not look for it. `least`: how many comparisons can
    decide at all; where the baseline has fewer runs, each is compared with several executions.
    """
    found = frozenset(tests)
    known = {item: category for item, category in baseline.categories.items() if item in found}
    runs: dict[str, list[int]] = {}
    for outcome in baseline.outcomes:
        if _suite_of(outcome) == "nominal":
            runs.setdefault(outcome.item, []).append(outcome.seed)
    if smoke is None:
        chosen = [(item, known[item]) for item in sorted(known) if item in runs]
    else:
        picked = nominal_passes(known, baseline.outcomes, each=smoke)
        chosen = [(choice.item, choice.category) for choice in picked]
    names = sorted(replays)
    taken = names if all_replays else [choice.name for choice in select(candidates(replays)).chosen]
    gone_tests = [item for item in baseline.categories if item in runs and item not in found]
    gone_replays = [item for item in baseline.statuses if item not in replays]
    had = {choice.category for choice in nominal_passes(baseline.categories, baseline.outcomes)}
    suite = tuple(
        SmokeTest(item=item, category=category, seeds=tuple(sorted(set(runs[item]))[:seeds])) for item, category in chosen
    )
    planned = sum(len(test.seeds) for test in suite)
    return GatePlan(
        smoke=suite,
        executions=max(1, -(-least // planned)) if planned else 1,
        replays=tuple(sorted(taken)),
        broken=tuple(sorted(broken)),
        left_out=tuple(name for name in names if name not in set(taken)),
        new_tests=tuple(sorted(item for item in found if item not in baseline.categories)),
        new_replays=tuple(name for name in names if name not in baseline.statuses and name not in baseline.discovered),
        removed_tests=tuple(sorted(item for item in gone_tests if not there(item))),
        removed_replays=tuple(sorted(item for item in gone_replays if not there(item))),
        elsewhere=tuple(sorted(item for item in (*gone_tests, *gone_replays) if there(item))),
        emptied=tuple(sorted(had - {category for _, category in chosen})),
    )


# -- results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayEnd:
    """How a replay of the change ended. `status` is that of an item: "replayed" if it holds."""

    id: str
    status: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedRuns:
    """Runs of a test that failed outside the system under test: an infrastructure failure, by its reason."""

    item: str
    reason: str
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrun:
    """A test of the suite without a run. `skipped`: it skipped itself; otherwise its setup or teardown failed."""

    item: str
    why: str
    skipped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GateEvidence:
    """The results of the new configuration: outcomes of smoke runs and replays, without `apart`. `seeds`: seeds run."""

    seeds: int = 0
    outcomes: tuple[RunOutcome, ...] = ()
    replays: tuple[ReplayEnd, ...] = ()
    apart: tuple[ExcludedRuns, ...] = ()
    unrun: tuple[Unrun, ...] = ()

    def joined(self, later: GateEvidence) -> GateEvidence:
        """This evidence joined with that of a later round."""
        return GateEvidence(
            seeds=max(self.seeds, later.seeds),
            outcomes=(*self.outcomes, *later.outcomes),
            replays=(*self.replays, *later.replays),
            apart=(*self.apart, *later.apart),
            unrun=tuple({one.item: one for one in (*self.unrun, *later.unrun)}.values()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """The rules of a gate. `confidence` is that of each claim, and of each limit of an interval.

    `unit`: what is independent, runs or seeds, with all tests of one; a replay is a unit of its own. `waived`: contracts that
    the change removes on purpose. `undecided`: what to do if the seeds do not decide; `removed`: what to do if something of
    the baseline no longer exists or is skipped.
    """

    tolerances: Mapping[GateAspect, Fraction]
    confidence: Fraction = CONFIDENCE
    unit: Literal["run", "seed"] = "run"
    waived: frozenset[str] = frozenset()
    undecided: Literal["fail", "pass"] = "fail"
    removed: Literal["fail", "list"] = "fail"

    @property
    def alpha(self) -> Fraction:
        """How often an aspect that is worse by its tolerance may pass."""
        return 1 - self.confidence

    @property
    def alpha_lost(self) -> Fraction:
        """How often one that is no worse may fail, for each of two questions: in total, and in a test alone."""
        return (1 - self.confidence) / 2

    @property
    def least(self) -> int:
        """The number of comparisons with which the strictest tolerance can be met at all."""
        strictest = min((each for each in self.tolerances.values() if each), default=None)
        if strictest is None or self.unit == "seed":
            return 0
        return pairs_needed(tolerance=strictest, alpha=self.alpha) or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemLoss:
    """A test with lost pairs. `alone`: it is worse by more than the tolerance, regardless of the other tests.

    `suspect`: its losses make that more likely than not, without proving it.
    """

    item: str
    lost: int
    gained: int
    pairs: int
    alone: bool
    suspect: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLine:
    """One aspect. `difference` is new minus old over units; `lost` names the pairs that had it and no longer have it.

    `chance`: how probably an unchanged system whose pairs differ as often as these passes on as many; `needed`: how many it
    takes for 80 %. Both are None for an aspect without a tolerance; where the unit is the seed, `needed` is how many more
    seeds without a difference would decide it.
    """

    aspect: GateAspect
    tolerance: Fraction
    verdict: GateVerdict
    table: PairTable
    difference: Estimate
    lost: tuple[RunPair, ...]
    items: tuple[ItemLoss, ...]
    needed: int | None = None
    chance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The judgment. `settled`: no more seeds are needed. `unpaired` counts new smoke runs without a partner.

    `variants`: the governance variants ("none -> shield") of runs whose partner was under another one.
    """

    lines: tuple[GateLine, ...]
    plan: GatePlan
    evidence: GateEvidence
    rules: GateRules
    settled: bool
    unpaired: int
    variants: tuple[str, ...] = ()

    def line(self, aspect: GateAspect) -> GateLine:
        return next(line for line in self.lines if line.aspect == aspect)

    @property
    def failures(self) -> tuple[str, ...]:
        """Why the gate fails: aspects lost or undecided, "unrun", "removed", or "empty" if nothing was judged."""
        wrong: list[str] = [line.aspect for line in self.lines if line.verdict == "lost"]
        wrong += [line.aspect for line in self.lines if line.verdict == "undecided" and self.rules.undecided == "fail"]
        plan, strict = self.plan, self.rules.removed == "fail"
        if any(strict or not one.skipped for one in self.evidence.unrun):
            wrong.append("unrun")
        if strict and (plan.removed_tests or plan.removed_replays or plan.emptied):
            wrong.append("removed")
        if all(line.verdict == "nothing" for line in self.lines):
            wrong.append("empty")
        return tuple(wrong)

    @property
    def passed(self) -> bool:
        return not self.failures


def judge(baseline: Baseline, plan: GatePlan, evidence: GateEvidence, rules: GateRules) -> Gate:
    """Judge the evidence so far."""
    pairs, again, unpaired = _pairs(baseline, evidence.outcomes)
    smoke = [pair for pair in pairs if _suite_of(pair.new) == "nominal"]
    replayed = [pair for pair in pairs if _suite_of(pair.new) == "replay"]
    facts: dict[GateAspect, list[_Fact]] = {
        "success": _facts(smoke, _success),
        "compliance": _facts(smoke, lambda pair: _compliance(pair, rules.waived)),
        "containment": _facts(pairs, _containment),
        "governance": _facts(pairs, _governance),
        "replays": _replay_facts(baseline, plan, evidence),
        "replay_success": _facts(replayed, _success),
    }
    repeated: dict[GateAspect, list[_Fact]] = {
        "success": _facts(again, _success),
        "compliance": _facts(again, lambda pair: _compliance(pair, rules.waived)),
        "containment": _facts(again, _containment),
        "governance": _facts(again, _governance),
    }
    tested, replayable = bool(plan.smoke or plan.removed_tests), bool(plan.replays or plan.removed_replays)
    expected: dict[GateAspect, bool] = {"success": tested, "compliance": tested, "replays": replayable}
    whole = evidence.seeds >= plan.seeds
    lines = tuple(
        _line(name, facts[name], repeated.get(name, []), rules, expected=expected.get(name, False), whole=whole)
        for name in ASPECTS
    )
    return Gate(
        lines=lines, plan=plan, evidence=evidence, rules=rules, unpaired=unpaired,
        variants=other_variants((pair.old, pair.new) for pair in pairs), settled=whole or _is_settled(lines, rules),
    )  # fmt: skip


def next_seeds(gate: Gate) -> int:
    """The number of seeds of each test after the next round; unchanged if no more are needed.

    Twice the number so far, four times if nothing was lost; where the unit is the seed, at most as many as decide.
    """
    done, plan = gate.evidence.seeds, gate.plan
    if gate.settled or "unrun" in gate.failures:
        return done
    if any(line.lost for line in gate.lines):
        return min(2 * done, plan.seeds)
    aim = min(4 * done, plan.seeds)
    needed = max((line.needed or 0 for line in gate.lines), default=0)
    return min(aim, done + needed) if gate.rules.unit == "seed" and needed else aim


def _is_settled(lines: Sequence[GateLine], rules: GateRules) -> bool:
    """Whether an aspect is lost; where the unit is the seed, also if all statistical ones are kept and no test is suspect."""
    if any(line.verdict == "lost" for line in lines):
        return True
    open_lines = [line for line in lines if line.tolerance and line.verdict != "nothing"]
    return (
        rules.unit == "seed"
        and bool(open_lines)
        and all(line.verdict == "kept" and not any(item.suspect for item in line.items) for line in open_lines)
    )


# -- pairs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    old: RunOutcome
    new: RunOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fact:
    """One pair of one aspect: whether each side has it, and what is wrong if it is lost. `single`: a unit of its own."""

    item: str
    seed: int
    schedule: str
    old: bool
    new: bool
    why: str
    single: bool

    @property
    def change(self) -> int:
        return self.new - self.old


def _suite_of(outcome: RunOutcome) -> Literal["nominal", "replay", ""]:
    if outcome.condition == "nominal" and not outcome.schedule:
        return "nominal"
    return "replay" if outcome.condition == "replay" else ""


def _pairs(baseline: Baseline, outcomes: Iterable[RunOutcome]) -> tuple[list[_Match], list[_Match], int]:
    """(runs with their partners, in order; further executions of them; the number of smoke runs without a partner)."""
    old = {_key(one): one for one in baseline.outcomes if _suite_of(one)}
    new: dict[tuple[str, str, int, str], list[RunOutcome]] = {}
    for one in outcomes:
        if _suite_of(one):
            new.setdefault(_key(one), []).append(one)
    matched = sorted(old.keys() & new.keys())
    first = [_Match(old=old[key], new=new[key][0]) for key in matched]
    again = [_Match(old=old[key], new=one) for key in matched for one in new[key][1:]]
    return first, again, sum(new[key][0].condition == "nominal" for key in new.keys() - old.keys())


def _key(outcome: RunOutcome) -> tuple[str, str, int, str]:
    return _suite_of(outcome), outcome.item, outcome.seed, outcome.schedule


_BothSides: TypeAlias = tuple[bool, bool, str] | None
"""(the old side has it, the new side has it, what is wrong with the new side); None if a side was not judged."""


def _facts(pairs: Iterable[_Match], fact: Callable[[_Match], _BothSides]) -> list[_Fact]:
    found = []
    for pair in pairs:
        sides = fact(pair)
        if sides is not None:
            old, new, why = sides
            run = pair.new
            found.append(
                _Fact(
                    item=run.item, seed=run.seed, schedule=run.schedule, old=old, new=new, why=why,
                    single=_suite_of(run) == "replay",
                )
            )  # fmt: skip
    return found


def _success(pair: _Match) -> _BothSides:
    old, new = pair.old.success, pair.new.success
    return None if old is None or new is None else (old, new, "the task fails")


def _compliance(pair: _Match, waived: frozenset[str]) -> _BothSides:
    old, new = pair.old, pair.new
    if not old.armed and not new.armed:
        return None
    disarmed = sorted(set(old.armed) - set(new.armed) - waived)
    reasons = [f"breaks {', '.join(new.broken)}"] if new.broken else []
    if new.outcome != "pass" and not new.broken:
        reasons.append("a contract could not be judged")
    if disarmed:
        reasons.append(f"no longer judged by {', '.join(disarmed)}")
    return old.outcome == "pass", new.outcome == "pass" and not disarmed, "; ".join(reasons)


def _containment(pair: _Match) -> _BothSides:
    old, new = pair.old, pair.new
    if not old.faults or not new.faults:
        return None
    why = f"{new.faults - new.contained} of {new.faults} faults not contained"
    return old.contained == old.faults, new.contained == new.faults, why


def _governance(pair: _Match) -> _BothSides:
    if not pair.old.decisions or not pair.new.decisions:
        return None
    under: Under = "faults" if _suite_of(pair.new) == "replay" else "nominal"
    found = compare([pair.old], [pair.new], under=under).high
    if not found.matched:
        return None
    loosened = [f"{change.site}: {change.old} -> {change.new}" for change in found.changes if change.loosened]
    return True, not loosened, ", ".join(loosened)


def _replay_facts(baseline: Baseline, plan: GatePlan, evidence: GateEvidence) -> list[_Fact]:
    """Whether each replay held in the baseline and holds now.

    One that is new counts as having held, because it should hold; one that the baseline's search discovered is broken there.
    """
    known = baseline.statuses.keys() | baseline.discovered
    found = []
    for end in sorted(evidence.replays, key=lambda end: end.id):
        held = baseline.statuses.get(end.id, "" if end.id in known else "replayed") in HELD
        why = f"{end.status}{f': {end.why}' if end.why else ''}{'' if end.id in known else ' (new)'}"
        found.append(_Fact(item=end.id, seed=0, schedule="", old=held, new=end.status in HELD, why=why, single=True))
    return found


# -- a line -----------------------------------------------------------------------------------------------------------


def _line(
    aspect: GateAspect, facts: Sequence[_Fact], again: Sequence[_Fact], rules: GateRules, *, expected: bool, whole: bool
) -> GateLine:  # fmt: skip
    """Judge one aspect. Further executions count only where nothing differs: else those of one seed are not independent."""
    if again and not any(fact.change for fact in (*facts, *again)):
        facts = [*facts, *again]
    else:
        facts = [*facts, *(fact for fact in again if fact.change < 0 and not rules.tolerances[aspect])]
    tolerance = rules.tolerances[aspect]
    table, units, items = _table(facts), _units(facts, rules), _item_losses(facts, tolerance, rules.alpha_lost)
    by_run = rules.unit == "run"
    found = _decide(table, units, tolerance, rules, whole=whole)
    if any(item.alone for item in items):
        found = "lost"
    verdict: GateVerdict = found or ("undecided" if facts or expected else "nothing")
    return GateLine(
        aspect=aspect,
        tolerance=tolerance,
        verdict=verdict,
        table=table,
        difference=_difference(table, units, rules),
        lost=tuple(
            RunPair(item=fact.item, seed=fact.seed, schedule=fact.schedule, why=fact.why) for fact in facts if fact.change < 0
        ),
        items=items,
        needed=_needed(table, units, tolerance, rules) if verdict == "undecided" and tolerance else None,
        chance=(
            power(table.pairs, tolerance=tolerance, alpha=rules.alpha, differing=_differing(table))
            if by_run and tolerance and table.pairs else None
        ),
    )  # fmt: skip


def _decide(table: PairTable, units: Units, tolerance: Fraction, rules: GateRules, *, whole: bool) -> NonInferiority:
    """Decide one aspect. A tolerance of 0 needs no statistics: one lost pair decides. Without one, the aspect is kept.

    A loss is decided after any round; "kept" only when all seeds have run, unless the unit is the seed.
    """
    if not tolerance and table.pairs:
        return "lost" if table.only_old else "kept"
    if not table.pairs:
        return ""
    if rules.unit == "seed":
        return decision(units, tolerance, rules.alpha_lost)
    if worse(units, tolerance, rules.alpha_lost):
        return "lost"
    shown = whole and kept(table.only_old, table.only_new, table.pairs, tolerance=tolerance, alpha=rules.alpha)
    return "kept" if shown else ""


def _difference(table: PairTable, units: Units, rules: GateRules) -> Estimate:
    if rules.unit == "seed":
        return difference(units, rules.confidence)
    return difference_of(table.only_old, table.only_new, table.pairs, confidence=rules.confidence)


def _needed(table: PairTable, units: Units, tolerance: Fraction, rules: GateRules) -> int | None:
    if rules.unit == "seed":
        return further(units, tolerance, rules.alpha_lost)
    return pairs_needed(tolerance=tolerance, alpha=rules.alpha, differing=_differing(table))


def _differing(table: PairTable) -> float:
    """The share of pairs that differ."""
    return (table.only_old + table.only_new) / table.pairs if table.pairs else 0.0


def _table(facts: Iterable[_Fact]) -> PairTable:
    counts = Counter((fact.old, fact.new) for fact in facts)
    return PairTable(
        both=counts[True, True], only_old=counts[True, False], only_new=counts[False, True], neither=counts[False, False]
    )


def _units(facts: Iterable[_Fact], rules: GateRules) -> Units:
    single = rules.unit == "run"
    return units_of(
        ((fact.item, fact.seed, fact.schedule) if single or fact.single else fact.seed, fact.change) for fact in facts
    )


def _item_losses(facts: Iterable[_Fact], tolerance: Fraction, alpha: Fraction) -> tuple[ItemLoss, ...]:
    """Tests with lost pairs, most first. Each is tested at its share of alpha (Bonferroni), unless the tolerance is 0."""
    by_item: dict[str, list[_Fact]] = {}
    for fact in facts:
        by_item.setdefault(fact.item, []).append(fact)
    found = []
    for item, own in by_item.items():
        table, units = _table(own), units_of((place, fact.change) for place, fact in enumerate(own))
        if table.only_old:
            found.append(
                ItemLoss(
                    item=item, lost=table.only_old, gained=table.only_new, pairs=table.pairs,
                    alone=bool(tolerance) and worse(units, tolerance, alpha / len(by_item)),
                    suspect=bool(tolerance) and worse(units, tolerance, Fraction(1)),
                )
            )  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.lost, one.item)))


def without_infrastructure(apart: Iterable[tuple[str, str]]) -> tuple[ExcludedRuns, ...]:
    """Count the (item, reason) of each infrastructure failure."""
    counts = Counter(apart)
    return tuple(ExcludedRuns(item=item, reason=reason, runs=counts[item, reason]) for item, reason in sorted(counts))


def with_tolerances(given: Mapping[GateAspect, Fraction]) -> dict[GateAspect, Fraction]:
    """The default tolerances, overridden by the given ones."""
    return {**TOLERANCES, **given}

"""An adaptive adversary that learns to break contracts during the run, call by call (A3.3, Eq. 9 of the paper).

    max  E[ sum_t gamma^t (Vio(r_t) - beta cost(delta_t)) ] - lambda E[Instab],   sum_t cost(delta_t) <= B

One execution is one episode. At each call the policy of the episode sees h_t = Obs(r_t) (mat.core.adversary.Seen) and injects
one grid point of one operator, or lets the call pass. Between episodes it learns; all figures are integers.

How it learns: real-time dynamic programming on a learned model, with optimism in the face of what it has not tried (RTDP-RMAX:
Strehl, Li and Littman, UAI 2006, "Incremental model-based learners with formal learning-time guarantees"; optimistic initial
values: Sutton and Barto, "Reinforcement Learning", 2.6). A state is an abstraction of what is seen: the port, the kind, the
role, which ask of the port it is, and in buckets how many of its calls have failed, how many obligations are open, how many
contracts are broken, which families of operators were injected in this run, and what the rest of the budget can still pay.
For each state and action the model keeps what was earned and which state came next. After an episode the states it went
through are valued anew, last one first:

    Q(s, a) = mean of (reward + gamma^steps V(s')),   V(s) = max over actions

An action that was not tried here promises PROMISE / (1 + n): what a hard violation pays, less the more often (n) its like was
tried in like states, those that differ only in which ask of the port it is. So what is new is tried first, and a state that
only an injection leads to (a fallback, a new role, an open obligation) is new: its promise is carried back to the injection
that opened it. That is how failures in stages are found whose first injection pays nothing. Where an episode has led to a
schedule that is known, the next round opens: each action is worth another trial.

Until something has paid, every episode explores. From then on episodes are drawn to exploit (by the value of Eq. 9) or to
explore (by the same, violations left out, so that a known failure does not hide the others). Instab of a schedule is the share
of its re-executions that differed; it is charged where the episode ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random
from typing import Final, Literal, TypeAlias

from mat.core.adversary import Adaptive, Choose, Seen
from mat.core.errors import SpecError
from mat.core.operator import Choice, OperatorSpec
from mat.core.run import Run
from mat.core.site import parse_site, site_text
from mat.core.spec import NO_SCHEDULE, Perturbation, Schedule
from mat.kernel.entropy import stream_seed
from mat_search.space import ROOT, Edge, Grid, Key, free
from mat_search.strategy import Plan, Skips, Told

Ratio: TypeAlias = tuple[int, int]
Mode: TypeAlias = Literal["exploit", "explore"]
Like: TypeAlias = tuple[str | int, ...]
State: TypeAlias = tuple[Like, int]
"""What is alike, and which ask of its port it is."""

UNIT: Final = 1_000_000
"""Values are integers, in millionths of the weight alpha of Eq. 6."""
PROMISE: Final = 10 * UNIT
"""What an untried action may pay: the default weight of a hard contract."""
PASS: Final = ""
MODES: Final[tuple[Mode, ...]] = ("exploit", "explore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Eq. 9 in integer ratios (numerator, denominator), each at least 0.

    `gamma`, at most 1, discounts by the step of the trace. `beta` prices a unit of cost (Eq. 8) in units of the weights alpha:
    by default a whole budget of 12 weighs about as much as an eighth of a soft violation, so that it only decides between
    equals. `lam` is what a schedule loses that never repeats: by default all that a hard violation pays. `explore`, at most 1,
    is the share of episodes that look for something new once something has paid.
    """

    gamma: Ratio = (99, 100)
    beta: Ratio = (1, 100)
    lam: Ratio = (10, 1)
    explore: Ratio = (1, 2)

    def __post_init__(self) -> None:
        problems = []
        for name, most in (("gamma", 1), ("beta", None), ("lam", None), ("explore", 1)):
            above, below = getattr(self, name)
            if not all(type(item) is int for item in (above, below)) or above < 0 or below < 1:
                problems.append(f"{name}={(above, below)!r} is no ratio of integers of at least 0")
            elif most is not None and above > below * most:
                problems.append(f"{name}={(above, below)!r} is above {most}")
        if problems:
            raise SpecError(what=f"objective: {'; '.join(problems)}", fix="give (numerator, denominator)")

    def cost(self, cost: int) -> int:
        return cost * UNIT * self.beta[0] // self.beta[1]

    def later(self, value: int, steps: int) -> int:
        """A value that comes `steps` later."""
        return value * self.gamma[0] ** steps // self.gamma[1] ** steps if steps and value else value

    def instability(self, share: Fraction, step: int) -> int:
        """lambda Instab, which Eq. 9 does not discount, as it is charged at a step: the discount up to there is undone."""
        if not share or not self.gamma[0]:
            return 0
        charged = share * Fraction(*self.lam) * UNIT * Fraction(self.gamma[1], self.gamma[0]) ** step
        return charged.numerator // charged.denominator

    def value(self, run: Run, *, instability: Fraction = Fraction(0), known: Set[str] = frozenset()) -> Fraction:
        """Eq. 9 of one run: violations (but of contracts in `known`) and costs at their steps, less lambda Instab.

        The step of a cost is that of the first ask that its perturbation covers; one that was not reached costs nothing.
        """
        gamma = Fraction(*self.gamma)
        total = Fraction(0)
        for step, paid in _violations(run, known).items():
            total += gamma**step * Fraction(paid, UNIT)
        asked = {record.site: record.step for record in run.records}
        for item in run.spec.schedule:
            step_of = asked.get(_first(item))
            if step_of is not None:
                total -= gamma**step_of * Fraction(*self.beta) * item.cost
        return total - Fraction(*self.lam) * instability


def _first(item: Perturbation) -> str:
    """The site of the first ask that a perturbation covers; of the ask itself where it orders."""
    site = item.site
    if site.boundary != "order":
        return site_text(site.agent, site.boundary, site.name, site.nth)
    boundary, _, name = site.name.partition(".")
    return site_text(site.agent, boundary, name, site.nth)


def _violations(run: Run, known: Set[str]) -> dict[int, int]:
    """Step -> Vio(r_t) of Eq. 6 in millionths."""
    paid: dict[int, int] = {}
    for violation in run.violations:
        if violation.contract not in known:
            paid[violation.step] = paid.get(violation.step, 0) + round(violation.weight * UNIT)
    return paid


# -- what is known ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One grid point of one operator, as data that travels; `text` identifies it."""

    operator: str
    choice: Choice
    text: str


@dataclass(slots=True)
class _Tried:
    """What came of one action in one state. `earned` by mode; `then` counts (next state or None for the end, steps to it)."""

    count: int = 0
    earned: dict[Mode, int] = field(default_factory=lambda: {"exploit": 0, "explore": 0})
    then: dict[tuple[State | None, int], int] = field(default_factory=dict)


class Knowledge:
    """The learned model and its values: plain data, which only `learn` and `renew` change."""

    def __init__(self, operators: Sequence[OperatorSpec], objective: Objective) -> None:
        grid = Grid(operators)
        self.objective, self.least, self.round = objective, grid.least, 1
        self.moves: dict[str, tuple[Move, ...]] = {}
        for option in grid.options:
            move = Move(operator=option.operator.id, choice=option.choice, text=option.text)
            self.moves[option.operator.boundary] = (*self.moves.get(option.operator.boundary, ()), move)
        self._model: dict[State, dict[str, _Tried]] = {}
        self._like: dict[tuple[Like, str], int] = {}
        self._values: dict[Mode, dict[State, int]] = {mode: {} for mode in MODES}
        self.paid = False

    def state(self, seen: Seen) -> State:
        """The safe abstraction of what is seen."""
        port, _, nth = seen.site.rpartition("#")
        families: dict[str, int] = {}
        for operator in seen.injected:
            family = operator.partition(".")[0]
            families[family] = min(2, families.get(family, 0) + 1)
        injected = ",".join(f"{family}{count}" for family, count in sorted(families.items()))
        like = (
            seen.boundary, port, seen.kind, seen.role, min(2, seen.errors), min(2, seen.open), min(2, len(seen.broken)), injected,
            min(3, seen.rest // self.least),
        )  # fmt: skip
        return like, int(nth)

    def affordable(self, seen: Seen) -> list[Move]:
        return [
            move
            for move in self.moves.get(seen.boundary, ())
            if move.choice.cost <= seen.rest and move.operator in seen.operators
        ]

    def scores(self, state: State, moves: Sequence[Move], mode: Mode) -> list[int]:
        """Q(s, a) for letting the call pass, and for each move."""
        tried = self._model.get(state, {})
        found = [self._tried(tried[PASS], mode) if PASS in tried else self.objective.later(PROMISE, 1)]
        for move in moves:
            known = tried.get(move.text)
            if known is not None and known.count >= self.round:
                found.append(self._tried(known, mode))
                continue
            promise = self._promise(state[0], move)
            found.append(promise if known is None else max(promise, self._tried(known, mode)))
        return found

    def _promise(self, like: Like, move: Move) -> int:
        count = self._like.get((like, move.operator), 0) + self._like.get((like, move.text), 0)
        return PROMISE // (1 + count) - self.objective.cost(move.choice.cost)

    def _tried(self, known: _Tried, mode: Mode) -> int:
        values, total = self._values[mode], known.earned[mode]
        for (state, steps), count in known.then.items():
            if state is not None:
                total += count * self.objective.later(values[state], steps)
        return total // known.count

    # -- learning ---------------------------------------------------------------------------------------------------

    def learn(self, run: Run, *, instability: Fraction = Fraction(0), known: Set[str] = frozenset()) -> None:
        """One episode: what was earned after each choice, and the values of the states it went through, last one first.

        `run.seen` says what the adversary was shown; violations of contracts in `known` do not count. `instability` is the
        share of the schedule's re-executions that differed.
        """
        shown = sorted(run.seen, key=lambda seen: seen.step)
        paid = _violations(run, known)
        self.paid = self.paid or any(step >= seen.step for seen in shown[:1] for step in paid)
        chosen = {site_text(*item.site.port, item.site.nth): item for item in run.spec.schedule}
        after: Seen | None = None
        for seen in reversed(shown):
            self._note(seen, after, chosen.get(seen.site), paid, instability)
            self._value(seen)
            after = seen

    def _note(
        self, seen: Seen, after: Seen | None, item: Perturbation | None, paid: Mapping[int, int], instability: Fraction
    ) -> None:
        state, objective = self.state(seen), self.objective
        move = None if item is None else self._move(seen, item)
        text = PASS if move is None else move.text
        known = self._model.setdefault(state, {}).setdefault(text, _Tried())
        known.count += 1
        if move is not None:
            for like in (move.operator, move.text):
                self._like[state[0], like] = self._like.get((state[0], like), 0) + 1
        violations = sum(
            objective.later(value, step - seen.step)
            for step, value in paid.items()
            if step >= seen.step and (after is None or step < after.step)
        )
        spent = 0 if item is None else objective.cost(item.cost)
        if after is None:
            spent += objective.instability(instability, seen.step)
        known.earned["exploit"] += violations - spent
        known.earned["explore"] -= spent
        then = (None, 0) if after is None else (self.state(after), after.step - seen.step)
        known.then[then] = known.then.get(then, 0) + 1

    def _move(self, seen: Seen, item: Perturbation) -> Move | None:
        span = item.site.last - item.site.nth + 1
        for move in self.moves.get(seen.boundary, ()):
            if (move.operator, move.choice.parameters, move.choice.span) == (item.operator, item.parameters, span):
                return move
        return None

    def _value(self, seen: Seen) -> None:
        state, moves = self.state(seen), self.affordable(seen)
        for mode in MODES:
            self._values[mode][state] = max(self.scores(state, moves, mode))

    def renew(self) -> None:
        """The next round: every action promises something again, until it was tried once more."""
        self.round += 1
        for mode in MODES:
            values = self._values[mode]
            for state, value in values.items():
                moves = self.moves.get(str(state[0][0]), ()) if state[0][-1] else ()
                values[state] = max(value, max((self._promise(state[0], move) for move in moves), default=value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """The policy of one execution: a Choose, a function of what is known and what is seen, so that it can travel.

    It takes the best action by its mode; equals are drawn from the stream of the episode's seed and the step.
    """

    knowledge: Knowledge
    mode: Mode
    seed: int

    def __call__(self, seen: Seen) -> Perturbation | None:
        knowledge = self.knowledge
        moves = knowledge.affordable(seen)
        if not moves:
            return None
        scores = knowledge.scores(knowledge.state(seen), moves, self.mode)
        best = max(scores)
        equals = [index for index, score in enumerate(scores) if score == best]
        stream = Random(stream_seed(self.seed, f"{seen.step}/{seen.boundary}"))
        index = equals[stream.randrange(len(equals))]
        if index == 0:
            return None
        move, site = moves[index - 1], parse_site(seen.site)
        choice = move.choice
        return Perturbation(
            operator=move.operator, site=replace(site, last=site.nth + choice.span - 1), parameters=choice.parameters,
            cost=choice.cost,
        )  # fmt: skip


class Learner:
    """What learns across the episodes of a campaign."""

    def __init__(self, operators: Sequence[OperatorSpec], objective: Objective | None = None) -> None:
        self.knowledge = Knowledge(operators, objective or Objective())

    def episode(self, stream: Random) -> Episode:
        """The policy of the next execution, from what is known now."""
        above, below = self.knowledge.objective.explore
        explores = stream.randrange(below) < above
        mode: Mode = "explore" if explores or not self.knowledge.paid else "exploit"
        return Episode(knowledge=self.knowledge, mode=mode, seed=stream.getrandbits(64))

    def learn(self, run: Run, *, instability: Fraction = Fraction(0), known: Set[str] = frozenset()) -> None:
        """See Knowledge.learn."""
        self.knowledge.learn(run, instability=instability, known=known)


# -- the strategy -----------------------------------------------------------------------------------------------------


class AdversarySearch:
    """The learner behind ask and tell. Its episodes are executed with `policy`; it proves nothing.

    The undisturbed run comes first: what that breaks is not the adversary's doing and pays nothing. The schedule of an episode
    that hit is executed plainly once more before it is learned from: whether that run is the same is what Instab is
    estimated from. After `attempts` episodes in a row that led to schedules it knew, it ends.
    """

    proves = False

    def __init__(self, plan: Plan, *, objective: Objective | None = None, attempts: int = 50) -> None:
        self._budget, self._stream, self._attempts = plan.budget, plan.stream, attempts
        self.learner = Learner(plan.operators, objective)
        self._begun = False
        self._stale = 0
        self._policy: tuple[Edge, Choose] | None = None
        self._known: frozenset[str] = frozenset()
        self._tried: set[Schedule] = {NO_SCHEDULE}
        self._doubted: list[Run] = []
        self._repeated: dict[Schedule, tuple[int, int]] = {}
        self.seen: set[Key] = set()
        self.skipped = Skips()

    def ask(self, most: int | None = None) -> Edge | None:
        """The undisturbed run, a hit to be repeated, or an episode that spends at most `most`."""
        self._policy = None
        if not self._begun:
            self._begun = True
            return ROOT
        if self._doubted:
            return free(self._doubted[-1].spec.schedule)
        budget = self._budget if most is None else min(self._budget, most)
        if budget < self.learner.knowledge.least or self._stale >= self._attempts:
            return None
        edge = free(NO_SCHEDULE)
        self._policy = edge, Adaptive(choose=self.learner.episode(self._stream), budget=budget)
        return edge

    def tell(self, edge: Edge, told: Told) -> None:
        run = told.run
        if self._policy is None or self._policy[0] is not edge:
            self._told_again(run) if self._doubted else self._told_first(run)
            return
        schedule = run.spec.schedule
        self.seen.update(_keys(run, told.states))
        if schedule in self._tried:
            self._stale += 1
            self.learner.knowledge.renew()
        else:
            self._stale = 0
            self._tried.add(schedule)
        if told.hit and schedule not in self._repeated:
            self._doubted.append(run)
        else:
            self._learn(run)

    def _told_first(self, run: Run) -> None:
        self._known = frozenset(violation.contract for violation in run.violations)

    def _told_again(self, run: Run) -> None:
        episode = self._doubted.pop()
        runs, differed = self._repeated.get(episode.spec.schedule, (0, 0))
        self._repeated[episode.spec.schedule] = runs + 1, differed + (run.head != episode.head)
        self._learn(episode)

    def _learn(self, run: Run) -> None:
        runs, differed = self._repeated.get(run.spec.schedule, (1, 0))
        self.learner.learn(run, instability=Fraction(differed, runs), known=self._known)

    def ahead(self, count: int) -> Sequence[Edge]:
        """Nothing: what the next episode does depends on what the last one taught."""
        return ()

    def policy(self, edge: Edge) -> Choose | None:
        return self._policy[1] if self._policy is not None and self._policy[0] is edge else None

    @property
    def bound(self) -> int:
        return 0


def _keys(run: Run, states: Sequence[str]) -> Iterable[Key]:
    """Each injection with D at its ask."""
    asked = {record.site: record.step for record in run.records}
    for item in run.spec.schedule:
        step = asked.get(_first(item))
        if step is not None:
            yield states[step], f"{item.operator} {item.site} {item.key[2]}"

"""An adaptive adversary: it learns to break contracts and decides during the run, call by call.

    max  E[ sum_t gamma^t (Vio(r_t) - beta cost(delta_t)) ] - lambda E[Instab],   sum_t cost(delta_t) <= B

One execution is one episode. At each call the policy of the episode sees h_t = Obs(r_t) (mat.core.adversary.Seen) and injects
one grid point of one operator, or lets the call pass. Between episodes it learns; all figures are integers.

Learning. A state is an abstraction of what the policy sees: the place (the port, the kind, the role, the number of the port's
call, and in buckets how many of its calls have failed, how many obligations are open and how many contracts are broken), the
families of operators injected before, and what the rest of the budget can pay. Episodes explore until an injection has paid
off; from then on each is drawn to explore or to exploit.

Exploiting is Monte Carlo control (Sutton and Barto, "Reinforcement Learning", 5.3): the best action by the mean objective
from there to the end over the episodes that took it. It uses the returns themselves, not the value of the next state, because
states are abstractions: not all of them show what an earlier injection did to the agent.

Exploring is real-time dynamic programming on a learned model, optimistic about what was not tried (RTDP-RMAX:
Strehl, Li and Littman, UAI 2006, "Incremental model-based learners with formal learning-time guarantees"). For each state and
action the model keeps its cost and the states that came next. After an episode the states it visited are valued anew, last
one first:

    Q(s, a) = mean of (gamma^steps V(s') - beta cost),   V(s) = max over a of Q(s, a), or of promise(s, a) where that is more

The promise of an injection is what a hard violation pays, divided by how often similar injections were tried: trials at this
place weigh most, those at other calls of the port and with other parameters little. So new injections are tried first. A place
that only an injection leads to (a fallback, a new role, an open obligation) is new: its promise is carried back to the
injection that opened it, and, through the last place that this injection led to, to the same injection after another history.
This finds failures in stages, whose first injection pays nothing. Rewards of violations do not count here, so a known failure
does not hide others. When exploring leads to known schedules, more and more of its calls are decided at random.

Instab of a schedule is the share of its re-executions that differed; it is charged at the end of the episode.

Source: A3.3, Eq. 9 of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random
from typing import Final, Literal, TypeAlias

from mat.core.adversary import Adaptive, Choose, Seen
from mat.core.errors import SpecError
from mat.core.operator import GridPoint, OperatorSpec
from mat.core.run import Run
from mat.core.site import ABOUT_CALLS, Site, parse_site, port_about, site_text
from mat.core.spec import NO_SCHEDULE, Perturbation, Schedule
from mat.kernel.entropy import stream_seed
from mat_search.campaign import Layer
from mat_search.space import ROOT, Edge, Grid, GridKey, free
from mat_search.strategy import EdgeOutcome, SearchPlan, Skips

Ratio: TypeAlias = tuple[int, int]
AdversaryMode: TypeAlias = Literal["exploit", "explore"]
Place: TypeAlias = tuple[str | int, ...]
"""What the system shows at a call; the last entry is the occurrence number of the call at its port (0: any)."""
AdversaryState: TypeAlias = tuple[Place, str, int]
"""A place, what was injected before, and how many of the cheapest injections the rest of the budget can pay."""

UNIT: Final = 1_000_000
"""Values are integers, in millionths of the weight of a hard violation."""
PROMISE: Final = 10 * UNIT
"""What an untried action may pay: the default weight of a hard contract."""
INJECTIONS_LEFT: Final = 3
"""States distinguish the rest of the budget up to this many of the cheapest injections."""
WANDER: Final = 40
PASS: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The objective in integer ratios (numerator, denominator), each at least 0.

    `gamma`, at most 1, discounts by the step of the trace. `beta` prices a unit of cost in units of the weights alpha:
    by default a whole budget of 12 weighs about as much as an eighth of a soft violation, so that it only decides between
    equals. `lam` is the penalty of a schedule that never repeats: by default all that a hard violation pays. `explore`, at
    most 1, is the share of episodes that look for something new after an injection has paid off.
    """

    gamma: Ratio = (99, 100)
    beta: Ratio = (1, 100)
    lam: Ratio = (10, 1)
    explore: Ratio = (3, 4)

    def __post_init__(self) -> None:
        problems = []
        for name, most in (("gamma", 1), ("beta", None), ("lam", None), ("explore", 1)):
            above, below = getattr(self, name)
            if not all(type(item) is int for item in (above, below)) or above < 0 or below < 1:
                problems.append(f"{name}={(above, below)!r} is not a ratio of non-negative integers")
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
        """lambda Instab as charged at a step. The objective does not discount it, so the discount up to that step is undone."""
        if not share or not self.gamma[0]:
            return 0
        charged = share * Fraction(*self.lam) * UNIT * Fraction(self.gamma[1], self.gamma[0]) ** step
        return charged.numerator // charged.denominator

    def value(self, run: Run, *, instability: Fraction = Fraction(0), known: Set[str] = frozenset()) -> Fraction:
        """The objective of one run: violations (except of contracts in `known`) and costs at their steps, less lambda Instab.

        The step of a cost is that of the first call that its perturbation covers; an unreached perturbation costs nothing.
        """
        gamma = Fraction(*self.gamma)
        total = Fraction(0)
        for step, paid in _violations(run, known).items():
            total += gamma**step * Fraction(paid, UNIT)
        asked = {record.site: record.step for record in run.records}
        for item in run.spec.schedule:
            step_of = asked.get(first_ask(item.site))
            if step_of is not None:
                total -= gamma**step_of * Fraction(*self.beta) * item.cost
        return total - Fraction(*self.lam) * instability


def first_ask(site: Site) -> str:
    """The first call that a perturbation at a site covers, as records name it; an order site represents another site."""
    return f"{port_about(site.agent, site.name)}#{site.nth}" if site.boundary in ABOUT_CALLS else _call_text(site)


def _call_text(site: Site) -> str:
    return site_text(site.agent, site.boundary, site.name, site.nth)


def _violations(run: Run, known: Set[str]) -> dict[int, int]:
    """Step -> the weight of the violations there, in millionths."""
    paid: dict[int, int] = {}
    for violation in run.violations:
        if violation.contract not in known:
            paid[violation.step] = paid.get(violation.step, 0) + round(violation.weight * UNIT)
    return paid


# -- knowledge --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One grid point of one operator, as data that travels; `text` identifies it."""

    operator: str
    choice: GridPoint
    text: str


@dataclass(slots=True)
class _Trials:
    """The results of one action in one state, summed over `count` trials.

    `returned`: the objective from there to the end. `spent`: costs up to the next state. `then` counts (next state or None for
    the end, steps to it).
    """

    count: int = 0
    returned: int = 0
    spent: int = 0
    then: dict[tuple[AdversaryState | None, int], int] = field(default_factory=dict)


class Knowledge:
    """The learned model and its values: plain data that only `learn` changes."""

    def __init__(self, operators: Sequence[OperatorSpec], objective: Objective) -> None:
        grid = Grid(operators)
        self.objective, self.least = objective, grid.least
        self.moves: dict[str, tuple[Move, ...]] = {}
        for option in grid.options:
            move = Move(operator=option.operator.id, choice=option.choice, text=option.text)
            self.moves[option.operator.boundary] = (*self.moves.get(option.operator.boundary, ()), move)
        self._model: dict[AdversaryState, dict[str, _Trials]] = {}
        self._counts: dict[tuple[Place, str], int] = {}
        self._leads: dict[tuple[Place, str], tuple[Place | None, int]] = {}
        self._promises: dict[tuple[Place, int], int] = {}
        self._values: dict[AdversaryState, int] = {}
        self.paid = False

    def state(self, seen: Seen) -> AdversaryState:
        """The safe abstraction of what is seen."""
        port, _, nth = seen.site.rpartition("#")
        families: dict[str, int] = {}
        for operator in seen.injected:
            family = operator.partition(".")[0]
            families[family] = min(2, families.get(family, 0) + 1)
        injected = ",".join(f"{family}{count}" for family, count in sorted(families.items()))
        place = (
            seen.boundary, port, seen.kind, seen.role, min(2, seen.errors), min(2, seen.open), min(2, len(seen.broken)),
            int(nth),
        )  # fmt: skip
        return place, injected, min(INJECTIONS_LEFT, seen.rest // self.least)

    def affordable(self, seen: Seen) -> list[Move]:
        return [
            move
            for move in self.moves.get(seen.boundary, ())
            if move.choice.cost <= seen.rest and move.operator in seen.operators
        ]

    def scores(self, state: AdversaryState, moves: Sequence[Move], mode: AdversaryMode) -> list[int]:
        """Q(s, a) for letting the call pass, and for each move; untried actions have a promise only in exploration."""
        tried = self._model.get(state, {})
        if mode == "exploit":
            known = [tried.get(text) for text in (PASS, *(move.text for move in moves))]
            costs = [0, *(self.objective.cost(move.choice.cost) for move in moves)]
            return [-cost if item is None else item.returned // item.count for item, cost in zip(known, costs, strict=True)]
        found = [self._model_value(tried[PASS]) if PASS in tried else self._pass_promise(state[0], state[2])]
        for move in moves:
            promise, item = self._promise(state[0], state[2], move), tried.get(move.text)
            found.append(promise if item is None else max(promise, self._model_value(item)))
        return found

    def _promise(self, place: Place, left: int, move: Move) -> int:
        """What an action may pay. It falls with every trial of a similar action: the more similar, the more a trial counts.

        It is at least the promise of the place that the action led to after another history, if the budget still pays for an
        injection there.
        """
        count, cost, anywhere = 1, move.choice.cost, (*place[:-1], 0)
        for text, weight in ((move.operator, 1), (move.text, 8)):
            count += self._counts.get((anywhere, text), 0).bit_length() + weight * self._counts.get((place, text), 0)
        value, rest = PROMISE // count, left - -(-cost // self.least)
        if rest > 0 and (place, move.text) in self._leads:
            value = max(value, self._lead_promise(place, move.text, rest))
        return value - self.objective.cost(cost)

    def _pass_promise(self, place: Place, left: int) -> int:
        """The promise of letting a call pass: that of the next place, if it was seen after another history."""
        return self._lead_promise(place, PASS, left) if (place, PASS) in self._leads else self.objective.later(PROMISE, 1)

    def _lead_promise(self, place: Place, text: str, left: int) -> int:
        lead, steps = self._leads[place, text]
        return 0 if lead is None else self.objective.later(self._promises[lead, left], steps)

    def _update_promises(self, place: Place) -> None:
        """The largest promise at a place or ahead of it, for each size of what is left of the budget."""
        moves = self.moves.get(str(place[0]), ())
        for left in range(INJECTIONS_LEFT + 1):
            promises = (self._promise(place, left, move) for move in moves if self._can_pay(left, move))
            self._promises[place, left] = max(promises, default=0) if left else 0
            if left:
                self._promises[place, left] = max(self._promises[place, left], self._pass_promise(place, left))

    def _can_pay(self, left: int, move: Move) -> bool:
        return move.choice.cost <= left * self.least

    def _model_value(self, trials: _Trials) -> int:
        total = -trials.spent
        for (state, steps), count in trials.then.items():
            if state is not None:
                total += count * self.objective.later(self._values[state], steps)
        return total // trials.count

    # -- learning ---------------------------------------------------------------------------------------------------

    def learn(self, run: Run, *, instability: Fraction = Fraction(0), known: Set[str] = frozenset()) -> None:
        """Learn from one episode: the return after each choice, and the values of the visited states, last one first.

        `run.seen` holds what the adversary saw; violations of contracts in `known` do not count. `instability` is the
        share of the schedule's re-executions that differed.
        """
        shown = sorted(run.seen, key=lambda seen: seen.step)
        paid = _violations(run, known)
        self.paid = self.paid or any(step >= seen.step for seen in shown[:1] for step in paid)
        chosen = {_call_text(item.site): item for item in run.spec.schedule}
        after, returned = None, 0
        for seen in reversed(shown):
            returned = self._note(seen, after, chosen.get(seen.site), paid, instability, returned)
            self._revalue(seen)
            after = seen

    def _note(
        self, seen: Seen, after: Seen | None, item: Perturbation | None, paid: Mapping[int, int], instability: Fraction,
        returned: int,
    ) -> int:  # fmt: skip
        """Note one choice; `returned` is the objective from the next choice on, the result from this choice on."""
        state, objective = self.state(seen), self.objective
        move = None if item is None else self._find_move(seen, item)
        text = PASS if move is None else move.text
        known = self._model.setdefault(state, {}).setdefault(text, _Trials())
        if move is not None:
            for place in (state[0], (*state[0][:-1], 0)):
                for what in (move.operator, move.text):
                    self._counts[place, what] = self._counts.get((place, what), 0) + 1
        spent = 0 if item is None else objective.cost(item.cost)
        then = (None, 0) if after is None else (self.state(after), after.step - seen.step)
        self._leads[state[0], text] = (None if then[0] is None else then[0][0]), then[1]
        known.count += 1
        known.spent += spent
        known.then[then] = known.then.get(then, 0) + 1
        returned = (
            objective.later(returned, then[1])
            - spent
            + sum(
                objective.later(value, step - seen.step)
                for step, value in paid.items()
                if step >= seen.step and (after is None or step < after.step)
            )
        )
        if after is None:
            returned -= objective.instability(instability, seen.step)
        known.returned += returned
        return returned

    def _find_move(self, seen: Seen, item: Perturbation) -> Move | None:
        span = item.site.last - item.site.nth + 1
        for move in self.moves.get(seen.boundary, ()):
            if (move.operator, move.choice.parameters, move.choice.span) == (item.operator, item.parameters, span):
                return move
        return None

    def _revalue(self, seen: Seen) -> None:
        state, moves = self.state(seen), self.affordable(seen)
        self._update_promises(state[0])
        self._values[state] = max(self.scores(state, moves, "explore"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """The policy of one execution: a Choose that depends only on the knowledge and on what it sees, so it can be pickled.

    It takes the best action of its mode and draws among equals from the stream of the episode's seed and the step. In `wander`
    of 40 cases it takes any move instead (epsilon-greedy).
    """

    knowledge: Knowledge
    mode: AdversaryMode
    seed: int
    wander: int = 0

    def __call__(self, seen: Seen) -> Perturbation | None:
        knowledge = self.knowledge
        moves = knowledge.affordable(seen)
        if not moves:
            return None
        stream = Random(stream_seed(self.seed, f"{seen.step}/{seen.boundary}"))
        if stream.randrange(WANDER) < self.wander:
            index = 1 + stream.randrange(len(moves))
        else:
            scores = knowledge.scores(knowledge.state(seen), moves, self.mode)
            best = max(scores)
            equals = [index for index, score in enumerate(scores) if score == best]
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
    """Learns across the episodes of a campaign."""

    def __init__(self, operators: Sequence[OperatorSpec], objective: Objective | None = None) -> None:
        self.knowledge = Knowledge(operators, objective or Objective())

    def episode(self, stream: Random, *, wander: int = 0) -> Episode:
        """The policy of the next execution, from the current knowledge; `wander` (0 to 40) is its epsilon in fortieths."""
        above, below = self.knowledge.objective.explore
        explores = stream.randrange(below) < above
        mode: AdversaryMode = "explore" if explores or not self.knowledge.paid else "exploit"
        seed = stream.getrandbits(64)
        return Episode(knowledge=self.knowledge, mode=mode, seed=seed, wander=wander if mode == "explore" else 0)

    def learn(self, run: Run, *, instability: Fraction = Fraction(0), known: Set[str] = frozenset()) -> None:
        """See Knowledge.learn."""
        self.knowledge.learn(run, instability=instability, known=known)


# -- the strategy -----------------------------------------------------------------------------------------------------


class AdversarySearch:
    """The learner as a Strategy. Each episode is executed under its `policy`. The search proves nothing.

    The nominal run comes first; violations of the contracts that it breaks pay nothing. The schedule of an episode that hit is
    executed once more as a plain run before the learner uses it: Instab is estimated from whether the runs are equal. The
    strategy ends after `attempts` exploring episodes in a row that led to known schedules.
    """

    proves = False

    def __init__(self, plan: SearchPlan, *, objective: Objective | None = None, attempts: int = 50) -> None:
        self._budget, self._stream, self._attempts = plan.budget, plan.stream, attempts
        self.learner = Learner(plan.operators, objective)
        self._started = False
        self._stale = 0
        self._policy: tuple[Edge, Adaptive] | None = None
        self._mode: AdversaryMode = "explore"
        self._known: frozenset[str] = frozenset()
        self._tried: set[Schedule] = {NO_SCHEDULE}
        self._to_repeat: list[Run] = []
        self._repetitions: dict[Schedule, tuple[int, int]] = {}
        self.seen: set[GridKey] = set()
        self.skipped = Skips()

    def ask(self, most: int | None = None) -> Edge | None:
        """The nominal run, a hit to repeat, or an episode that spends at most `most`."""
        self._policy = None
        if not self._started:
            self._started = True
            return ROOT
        if self._to_repeat:
            return free(self._to_repeat[-1].spec.schedule)
        budget = self._budget if most is None else min(self._budget, most)
        if budget < self.learner.knowledge.least or self._stale >= self._attempts:
            return None
        edge, episode = free(NO_SCHEDULE), self.learner.episode(self._stream, wander=min(WANDER // 4, self._stale))
        self._policy, self._mode = (edge, Adaptive(choose=episode, budget=budget)), episode.mode
        return edge

    def tell(self, edge: Edge, outcome: EdgeOutcome) -> None:
        run = outcome.run
        if self._policy is None or self._policy[0] is not edge:
            self._learn_repeated(run) if self._to_repeat else self._learn_nominal(run)
            return
        schedule = run.spec.schedule
        self.seen.update(_grid_keys(run, outcome.states))
        if schedule in self._tried:
            self._stale += self._mode == "explore"
        else:
            self._stale = 0
            self._tried.add(schedule)
        if outcome.hit and schedule not in self._repetitions:
            self._to_repeat.append(run)
        else:
            self._learn(run)

    def _learn_nominal(self, run: Run) -> None:
        self._known = frozenset(violation.contract for violation in run.violations)

    def _learn_repeated(self, run: Run) -> None:
        episode = self._to_repeat.pop()
        runs, differed = self._repetitions.get(episode.spec.schedule, (0, 0))
        self._repetitions[episode.spec.schedule] = runs + 1, differed + (run.head != episode.head)
        self._learn(episode)

    def _learn(self, run: Run) -> None:
        runs, differed = self._repetitions.get(run.spec.schedule, (1, 0))
        self.learner.learn(run, instability=Fraction(differed, runs), known=self._known)

    def upcoming(self, count: int) -> Sequence[Edge]:
        """Nothing: the next episode depends on what the learner learns from the last one."""
        return ()

    def policy(self, edge: Edge) -> Choose | None:
        return self._policy[1] if self._policy is not None and self._policy[0] is edge else None

    @property
    def bound(self) -> int:
        return 0

    @property
    def layer(self) -> Layer | None:
        return None


def _grid_keys(run: Run, states: Sequence[str]) -> Iterable[GridKey]:
    """A key for each injection: the history digest at its call, and the injection."""
    asked = {record.site: record.step for record in run.records}
    for item in run.spec.schedule:
        step = asked.get(first_ask(item.site))
        if step is not None:
            yield states[step], f"{item.operator} {item.site} {item.key[2]}"

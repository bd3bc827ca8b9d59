"""The agents of benchmarks/planted.py: what was planted is there, at that cost, nothing is cheaper, and states are whole."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import mat
from mat.core.digest import canonical
from mat.core.site import parse_site

ROOT = Path(__file__).resolve().parents[2]


def _load(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    sys.modules[module.__name__] = module
    found.loader.exec_module(module)
    return module


planted = _load("planted")
COSTS = {
    (operator.id, canonical(choice.parameters)): choice.cost
    for operator in planted.CATALOG
    for choice in operator.spec().choices
}
NAMES = list(planted.AGENTS)
SEEDS = (0, 1, 7)


def perturbed(operator, port, nth, **parameters):
    cost = COSTS[operator, canonical(parameters)]
    return mat.spec.perturbation(operator, f"main/{port}#{nth}", parameters, cost)


READ, FALLBACK, RECOVER, CHECK = "service:read", "service:fallback", "service:recover", "service:check"
NOTES, WORKER = "memory:notes", "delegation:worker"

BY_HAND = {
    "A01": lambda at: [perturbed("service.fails", READ, at["bug"] + 1)],
    "A02": lambda at: [
        perturbed("service.fails", READ, at["first"] + 1),
        perturbed("service.older", READ, at["second"] + 1, versions=1),
    ],
    "A03": lambda at: [  # the retry after the first failure is an ask too
        perturbed("service.fails", READ, at["zone"] + 1),
        perturbed("service.fails", READ, at["zone"] + 4),
    ],
    "A04": lambda at: [perturbed("service.wrong", READ, at["step"] + 1, by=at["by"])],
    "A05": lambda at: [perturbed("memory.poisoned", NOTES, at["cell"] + 1, value=at["poison"])],
    "A06": lambda at: [
        perturbed("memory.older", NOTES, at["filled"] + 1, versions=3),
        perturbed("service.fails", READ, at["used"] + 1),
    ],
    "A07": lambda at: [
        perturbed("delegation.lost", WORKER, at["first"] + 1),
        perturbed("delegation.twice", WORKER, at["second"] + 1),
    ],
    "A08": lambda at: [perturbed("service.wrong", READ, at["step"] + 1, by=5 * at["sign"])],
    "A09": lambda at: [
        perturbed("service.fails", READ, at["step"] + 1),
        perturbed("service.fails", READ, at["step"] + 2),
        perturbed("service.wrong", FALLBACK, 1, by=2),
    ],
    "A10": lambda at: [perturbed("delegation.lost", WORKER, at["step"] + 1 + lost) for lost in range(4)],
    "A11": lambda at: [
        perturbed("service.late", READ, at["step"] + 1, s=4),
        perturbed("service.late", READ, at["step"] + 2 if at["step"] < 14 else 1, s=1),
    ],
    "A12": lambda at: [  # the step is the eighth of the real ones, and one of those before it is the check
        perturbed("service.check_passes", CHECK, 1),
        perturbed("service.fails", READ, 7),
    ],
}  # fmt: skip


def scheduled(agent, items):
    return agent.run(mat.spec.RunSpec(schedule=mat.spec.schedule(items)))


def fits(record, operator, run):
    allowed = run.restricted.get(f"{record.action.boundary}:{record.action.name}")
    if record.action.kind not in operator.spec().kinds or operator.boundary != record.action.boundary:
        return False
    return allowed is None or operator.id in allowed or operator.boundary in allowed


def offers(run) -> Iterator[mat.spec.Perturbation]:
    """Every grid point at every ask of a run."""
    for record in run.records:
        for operator in planted.CATALOG if record.action.boundary else ():
            if fits(record, operator, run):
                for choice in operator.spec().choices:
                    yield mat.spec.Perturbation(
                        operator=operator.id, site=parse_site(record.site), parameters=choice.parameters, cost=choice.cost
                    )


@pytest.mark.sweep("seed", SEEDS)
@pytest.mark.sweep("name", NAMES)
class TestWhatWasPlanted:
    def test_an_undisturbed_run_keeps_the_contract(self, name, seed):
        run = planted.AGENTS[name](seed).run(mat.spec.RunSpec())
        assert (run.violations, run.uncontrolled, run.success) == ((), (), True)
        assert all(margin > 0 for margin in run.margins.values())

    def test_the_planted_schedule_breaks_it_at_exactly_the_planted_cost(self, name, seed):
        agent = planted.AGENTS[name](seed)
        run = scheduled(agent, BY_HAND[name](agent.plant))
        assert [item.contract for item in run.failures] == [agent.contract.id]
        assert run.unreached == ()
        assert run.spec.schedule.cost == agent.least
        assert all(margin <= 0 for margin in run.margins.values())

    def test_no_part_of_the_planted_schedule_is_enough(self, name, seed):
        agent = planted.AGENTS[name](seed)
        items = BY_HAND[name](agent.plant)
        for left_out in items:
            run = scheduled(agent, [item for item in items if item is not left_out])
            assert run.failures == ()
            assert all(margin > 0 for margin in run.margins.values())

    @pytest.mark.full
    def test_no_cheaper_grid_point_in_its_place_is_enough(self, name, seed):
        agent = planted.AGENTS[name](seed)
        items = BY_HAND[name](agent.plant)
        for changed in items:
            rest = [item for item in items if item is not changed]
            before = scheduled(agent, rest)
            for offer in offers(before):
                if offer.site == changed.site and offer.cost < changed.cost:
                    assert scheduled(agent, [*rest, offer]).failures == ()

    @pytest.mark.full
    def test_every_run_is_the_same_again_with_and_without_the_state(self, name, seed):
        agent = planted.AGENTS[name](seed)
        spec = mat.spec.RunSpec(schedule=mat.spec.schedule(BY_HAND[name](agent.plant)))
        heads = {agent.run(spec).head, agent.run(spec, digest=False).head, planted.AGENTS[name](seed).run(spec).head}
        assert len(heads) == 1


def cheapest(agent, limit):
    """The least cost <= limit of a schedule that breaks the contract, growing every run at every ask; None: there is none."""
    waiting, met, least = [mat.spec.Schedule()], {mat.spec.Schedule()}, None
    while waiting:
        schedule = waiting.pop()
        run = agent.run(mat.spec.RunSpec(schedule=schedule), digest=False, states=False)
        if run.failures:
            least = schedule.cost if least is None else min(least, schedule.cost)
            continue
        taken = {item.site for item in schedule}
        for offer in offers(run):
            if offer.site in taken or schedule.cost + offer.cost > limit:
                continue
            grown = schedule.add(offer)
            if grown not in met:
                met.add(grown)
                waiting.append(grown)
    return least


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["A01", "A02", "A03"])
def test_nothing_is_cheaper_than_what_was_planted(name):
    agent = planted.AGENTS[name](3)
    assert cheapest(agent, agent.least - 1) is None


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_growing_every_run_finds_what_was_planted(seed):
    agent = planted.AGENTS["A01"](seed)
    assert cheapest(agent, agent.least) == agent.least


# -- near misses of the plants, by the rule that each agent's docstring gives ---------------------------------------------

NEAR = [
    ("A02", lambda at: [perturbed("service.fails", READ, at["first"] + 1),
                        perturbed("service.wrong", READ, at["second"] + 1, by=8)]),
    ("A02", lambda at: [perturbed("service.older", READ, at["first"] + 1, versions=4),
                        perturbed("service.older", READ, at["second"] + 1, versions=4)]),
    ("A03", lambda at: [perturbed("service.fails", READ, at["zone"] + 1),
                        perturbed("service.fails", READ, at["zone"] + 5)]),
    ("A04", lambda at: [perturbed("service.wrong", READ, at["step"] + 1, by=-at["by"])]),
    ("A05", lambda at: [perturbed("memory.poisoned", NOTES, at["cell"] + 1, value=(at["poison"] + 1) % 8)]),
    ("A05", lambda at: [perturbed("memory.lost", NOTES, at["cell"] + 1)]),
    ("A06", lambda at: [perturbed("memory.older", NOTES, at["filled"] + 1, versions=2),
                        perturbed("service.fails", READ, at["used"] + 1)]),
    ("A07", lambda at: [perturbed("service.wrong", READ, nth, by=8) for nth in range(1, 13)]),
    ("A08", lambda at: [perturbed("service.late", READ, at["step"], s=1),
                        perturbed("service.wrong", READ, at["step"] + 1, by=8 * at["sign"])]),
    ("A08", lambda at: [perturbed("service.older", READ, 1, versions=1),
                        perturbed("service.wrong", READ, at["step"] + 1, by=8 * at["sign"])]),
    ("A09", lambda at: [perturbed("service.fails", READ, at["step"] + 1), perturbed("service.fails", READ, at["step"] + 2),
                        perturbed("service.wrong", FALLBACK, 1, by=1)]),
    ("A11", lambda at: [perturbed("service.late", READ, at["step"] + 1, s=4)]),
    ("A11", lambda at: [perturbed("service.late", READ, (at["step"] + 1 + nth) % 15 + 1, s=4) for nth in range(2)]),
    ("A12", lambda at: [perturbed("service.check_fails", CHECK, 1), perturbed("service.fails", READ, 7)]),
]  # fmt: skip


@pytest.mark.sweep("seed", SEEDS, fast=20)
@pytest.mark.sweep(("name", "items"), NEAR)
def test_what_only_looks_like_the_plant_breaks_nothing(name, items, seed):
    agent = planted.AGENTS[name](seed)
    run = scheduled(agent, items(agent.plant))
    assert (run.failures, run.unreached) == ((), ())


@pytest.mark.parametrize(
    ("name", "items", "margin"),
    [
        ("A03", lambda at: [perturbed("service.fails", READ, at["zone"] + 1),
                            perturbed("service.fails", READ, at["zone"] + 5)], 100),
        ("A06", lambda at: [perturbed("memory.older", NOTES, at["filled"] + 1, versions=2),
                            perturbed("service.fails", READ, at["used"] + 1)], 100),
        ("A07", lambda at: [perturbed("service.wrong", READ, 1, by=-5)], 600),
        ("A09", lambda at: [perturbed("service.fails", READ, at["step"] + 1),
                            perturbed("service.fails", READ, at["step"] + 2)], 187),
        ("A10", lambda at: [perturbed("delegation.lost", WORKER, at["step"] + 1),
                            perturbed("delegation.lost", WORKER, at["step"] + 2)], 375),
        ("A11", lambda at: [perturbed("service.late", READ, at["step"] + 1, s=4)], 55),
    ],
)  # fmt: skip
def test_the_margin_tells_how_near_a_run_came(name, items, margin):
    agent = planted.AGENTS[name](7)
    assert dict(scheduled(agent, items(agent.plant)).margins) == {agent.contract.id: margin}


# -- the grid -----------------------------------------------------------------------------------------------------------


def test_the_grid_has_the_documented_points_and_prices():
    grid = {operator.id: [choice.cost for choice in operator.spec().choices] for operator in planted.CATALOG}
    assert grid == {
        "service.fails": [2], "service.late": [2, 3, 4, 5], "service.older": [3, 4, 5, 6], "service.wrong": [5] * 8 + [6] * 8,
        "service.check_fails": [2], "service.check_passes": [5],
        "memory.older": [3, 4, 5, 6], "memory.lost": [4], "memory.poisoned": [6] * 8,
        "delegation.lost": [2], "delegation.twice": [3], "delegation.late": [2, 3, 4, 5],
    }  # fmt: skip


@pytest.mark.full
def test_every_port_is_offered_the_operators_of_its_kind_only():
    found: dict[str, set[str]] = {}
    for name in NAMES:
        for seed in SEEDS:
            agent = planted.AGENTS[name](seed)
            for run in (agent.run(mat.spec.RunSpec()), scheduled(agent, BY_HAND[name](agent.plant))):
                for offer in offers(run):
                    found.setdefault(f"{offer.site.boundary}:{offer.site.name}", set()).add(offer.operator)
    reads = {"service.fails", "service.late", "service.older", "service.wrong"}
    notes = {"memory.older", "memory.lost", "memory.poisoned"}
    assert found == {
        READ: reads, FALLBACK: reads, RECOVER: reads, "service:log": reads, NOTES: notes,
        CHECK: {"service.check_fails", "service.check_passes"},
        WORKER: {"delegation.lost", "delegation.twice", "delegation.late"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "item", "effect"),
    [
        ("A01", perturbed("service.fails", READ, 1), "Raise"),
        ("A01", perturbed("service.late", READ, 1, s=3), "Delay"),
        ("A02", perturbed("service.older", READ, 1, versions=2), "Replace"),
        ("A01", perturbed("service.wrong", READ, 1, by=-8), "Replace"),
        ("A12", perturbed("service.check_fails", CHECK, 1), "Raise"),
        ("A12", perturbed("service.check_passes", CHECK, 1), "Replace"),
        ("A06", perturbed("memory.older", NOTES, 1, versions=4), "Replace"),
        ("A05", perturbed("memory.lost", NOTES, 1), "Drop"),
        ("A05", perturbed("memory.poisoned", NOTES, 1, value=7), "Rewrite"),
        ("A10", perturbed("delegation.lost", WORKER, 1), "Drop"),
        ("A10", perturbed("delegation.twice", WORKER, 1), "Duplicate"),
        ("A10", perturbed("delegation.late", WORKER, 1, s=2), "Delay"),
    ],
    ids=lambda value: getattr(value, "operator", None),
)
def test_every_operator_is_seen_to_act(name, item, effect):
    agent = planted.AGENTS[name](1)
    run = scheduled(agent, [item])
    assert [(note.effect, note.changed) for record in run.records for note in record.faults] == [(effect, True)]
    assert run.view != agent.run(mat.spec.RunSpec()).view


# -- what is said to be the whole state ---------------------------------------------------------------------------------


def grown(agent, stream):
    """A run under up to four perturbations, some of them the planted ones, each at an ask that the others leave there."""
    items = [item for item in BY_HAND[agent.name](agent.plant) if stream.randrange(2)]
    run = scheduled(agent, items)
    if run.unreached:
        return agent.run(mat.spec.RunSpec())
    for _ in range(stream.randrange(3)):
        taken = {item.site for item in run.spec.schedule}
        offered = [offer for offer in offers(run) if offer.site not in taken]
        more = scheduled(agent, [*run.spec.schedule, offered[stream.randrange(len(offered))]])
        run = run if more.unreached else more
    return run


def futures(run, *, clocked):
    """(what is vouched for, with what is still to be injected; all that followed) for every ask with nothing in flight."""
    injected = [(record.step, [[note.operator, note.parameters] for note in record.faults]) for record in run.records]
    lived = [
        [record.site.rpartition("#")[0], record.action.kind, record.action.arguments, record.state,
         record.observation.value, record.observation.error and record.observation.error.kind]
        for record in run.records
    ]  # fmt: skip
    until_seq = -1
    for record in run.records:
        step, alone = record.step, until_seq < record.asked_seq
        until_seq = max(until_seq, record.sealed_seq)
        if not alone:
            continue
        coming = [[later - step, notes] for later, notes in injected if later >= step and notes]
        key = canonical([run.states[step], lived[step][:3], record.at_ms if clocked else None, coming])
        passed = [item.at_ms - record.at_ms for item in run.records[step:]]
        broken = [[item.contract, item.step - step] for item in run.failures if item.step >= step]
        yield key, canonical([lived[step:], passed, broken])


def contradictions(agent, *, runs=60, seed=0):
    """Asks with one vouched state and different futures."""
    stream, known, found = random.Random(f"{agent.name}/{seed}"), {}, 0
    for _ in range(runs):
        for key, future in futures(grown(agent, stream), clocked=agent.clocked):
            found += known.setdefault(key, future) != future
    return found, len(known)


@pytest.mark.nightly
@pytest.mark.sweep("seed", [2])
@pytest.mark.sweep("name", NAMES)
def test_equal_states_have_equal_futures(name, seed):
    found, known = contradictions(planted.AGENTS[name](seed))
    assert found == 0
    assert known > 20


class Forgetful(planted.Place):
    """A place that leaves out what the agent knows besides its control point and step."""

    def at(self, *here):
        super().at(*here[:2])


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["A02", "A08", "A12"])
def test_a_state_that_leaves_something_out_is_noticed(name):
    agent = planted.AGENTS[name](2)
    forgetful = planted.Planted(
        name=name, seed=2, plant=agent.plant, least=agent.least, contract=agent.contract, agent=agent.agent, place=Forgetful()
    )
    assert contradictions(forgetful)[0] > 0


# -- what the comparison makes of it ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def comparison():
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "benchmarks"))
        patched.setitem(sys.modules, "planted", planted)
        yield _load("search")
        for name in set(sys.modules) - before:
            if name.startswith("foreign"):
                del sys.modules[name]


@pytest.fixture
def outcomes(comparison):
    """outcomes(agent, strategy, ...) -> tasks and outcomes by seed, from (first, total, with_checks, cost, proven)."""

    def make(agent, *made):
        row = comparison.Row(name="exhaustive", strategy="exhaustive")
        tasks = [comparison.Task(agent=agent, seed=seed, row=row, most=500) for seed in range(len(made))]
        names = ("first", "total", "with_checks", "cost", "proven")
        return tasks, [comparison.Outcome(**dict(zip(names, item, strict=True))) for item in made]

    return make


def test_what_was_not_found_counts_the_budget(comparison, outcomes):
    line = comparison.summary(*outcomes("A03", (40, 50, 60, 4, 3), (0, 80, 90, 0, 2), (7, 9, 9, 5, -1)))
    assert line == {
        "found": 2 / 3, "optimal": 1 / 3, "certified": 1 / 3, "first": 40, "total": 50, "with_checks": 60,
    }  # fmt: skip
    assert comparison.summary(*outcomes("A03", (0, 80, 90, 0, 2)))["total"] == 500


@pytest.mark.parametrize(
    ("made", "wrong"),
    [((9, 9, 9, 4, 3), False), ((9, 9, 9, 5, -1), False), ((0, 9, 9, 0, 3), False), ((9, 9, 9, 5, 3), False),
     ((9, 9, 9, 3, 2), True), ((0, 9, 9, 0, 4), True), ((9, 9, 9, 5, 4), True)],
)  # fmt: skip
def test_a_cost_or_a_certificate_that_contradicts_the_plant_is_reported(comparison, outcomes, made, wrong):
    [task], [outcome] = outcomes("A03", made)
    assert bool(comparison.contradiction(task, outcome)) == wrong


def test_executions_are_geometric_means_over_agents(comparison):
    line = {"found": 1.0, "optimal": 1.0, "certified": 0.0, "first": 10, "total": 20, "with_checks": 0}
    other = {"found": 0.5, "optimal": 0.0, "certified": 0.0, "first": 1000, "total": 2000, "with_checks": 0}
    assert comparison.overall([line, other]) == {
        "found": 0.75, "optimal": 0.5, "certified": 0.0, "first": 100.0, "total": 200.0, "with_checks": 1.0,
    }  # fmt: skip


@pytest.mark.full
def test_hypothesis_finds_what_was_planted_and_pays_its_price(comparison):
    agent = planted.AGENTS["A01"](3)
    found = comparison.hypothesis_search(agent, 400)
    assert 0 < found.first <= found.total <= 400
    assert found.cost >= agent.least
    assert found == comparison.hypothesis_search(agent, 400)

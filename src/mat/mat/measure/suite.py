"""The smallest regression suite: replays that cover all observed failures, and passing tests by category. Source: V-D d, A6.5.

Each stored replay covers coverage units; the suite is a set cover of them. `Unit.kind`:

- `contract`: a hard contract, by id. A replay covers every hard contract that its run breaks. Always required.
- `signature`: the failure signature (contract, severity, action kind, interface, risk, operator family) of some replay. A
  replay covers its own, and that of any other violation of its run.
- `class`: interface class (service, retrieval, memory, ...) and action kind of a replay's violation: used instead of
  signatures if representatives of each are enough.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, Literal, TypeAlias

from mat.core.campaign import Counterexample
from mat.core.extras import is_installed
from mat.measure.regression import RunOutcome

EXACT_LIMIT: Final = 2_000
"""The number of replays up to which the least cover is computed; beyond it, replays are chosen greedily."""
NODES: Final = 50_000
"""Limit of branch and bound: nodes times replays in question, 25 nodes for 2,000. A count, not a time, so that the answer is
always the same."""
_BLOCK: Final = 16
"""How many names one solution orders: their weights are powers of two that doubles hold exactly."""

UnitKind: TypeAlias = Literal["contract", "signature", "class"]
SelectionMethod: TypeAlias = Literal["exact", "greedy"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CoverageUnit:
    """One thing to cover. `key` has its parts, in the order of the module's docstring."""

    kind: UnitKind
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A replay that may be chosen. `name` is unique; `steps` (records of its run) decide between equally small suites."""

    name: str
    units: frozenset[CoverageUnit]
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteChoice:
    """A chosen replay and why. `only`: units that no other candidate covers; `shared`: those that others cover too."""

    name: str
    steps: int
    only: tuple[CoverageUnit, ...]
    shared: tuple[CoverageUnit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A candidate that is not chosen, and the chosen ones that cover its units."""

    name: str
    covered_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """A suite. `bound`: no cover has fewer replays; `proven`: this suite has exactly that many. `units`: what it covers.

    `unique`: it has the fewest steps of all smallest suites, and is the first of these by name.
    """

    method: SelectionMethod
    proven: bool
    unique: bool
    bound: int
    units: tuple[CoverageUnit, ...]
    chosen: tuple[SuiteChoice, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NominalChoice:
    """A test with passing nominal runs, chosen for its category: the `rank`-th by steps of the `passing` ones."""

    item: str
    category: str
    steps: int
    rank: int
    passing: int


# -- what a replay covers ---------------------------------------------------------------------------------------------


def candidates(found: Mapping[str, Counterexample], *, representative: bool = False) -> tuple[Candidate, ...]:
    """The candidates, by name, with the units that each covers. A signature counts only if it is that of some replay."""
    indexed = {_signature(one) for one in found.values()}
    made = []
    for name in sorted(found):
        one = found[name]
        units = {CoverageUnit(kind="contract", key=(each.contract,)) for each in one.run.failures}
        if representative:
            units.add(_class(one))
        else:
            units |= {_signature(replace(one, verdict=each)) for each in one.run.violations} & indexed
            units.add(_signature(one))
        made.append(Candidate(name=name, units=frozenset(units), steps=len(one.run.records)))
    return tuple(made)


def _signature(found: Counterexample) -> CoverageUnit:
    parts = found.signature
    key = (parts.contract, parts.severity, parts.action_kind, parts.interface, parts.risk, parts.operator_family)
    return CoverageUnit(kind="signature", key=key)


def _class(found: Counterexample) -> CoverageUnit:
    record = next((item for item in found.run.records if item.step == found.verdict.step), None)
    boundary, kind = (record.action.boundary, record.action.kind) if record else ("", "")
    return CoverageUnit(kind="class", key=(boundary or "none", kind or "none"))


# -- the cover --------------------------------------------------------------------------------------------------------


def select(given: Iterable[Candidate], *, exact_limit: int = EXACT_LIMIT) -> Cover:
    """The smallest set of candidates that covers all their units.

    Up to `exact_limit` candidates by integer programming (scipy's milp), lexicographically: fewest candidates, then fewest
    steps, then first by name. So the answer is unique and does not depend on the order in which they are given. If branch
    and bound finds the least number but runs out of nodes before it has compared all suites of that size, `unique` is false.
    Beyond the limit, or if the number is not found, the choice is greedy: at most 1 + ln(units) times the least number
    (V. Chvatal, Math. Oper. Res. 4 (1979)); `bound` then comes from the linear relaxation, checked in exact arithmetic.
    Both solvers need the extra `stats`: without it, a choice that is not forced is greedy, and `bound` is 1.
    """
    ordered = sorted(given, key=lambda item: item.name)
    units = sorted({unit for item in ordered for unit in item.units})
    bits = {unit: 1 << place for place, unit in enumerate(units)}
    columns = [_Column(name=item.name, steps=item.steps, covers=sum(bits[unit] for unit in item.units)) for item in ordered]
    columns = _distinct(columns)
    whole = (1 << len(units)) - 1
    solved = _exact(_undominated(columns), whole) if len(ordered) <= exact_limit else None
    chosen = _greedy(columns, whole) if solved is None else solved.columns
    bound = _least(columns, whole) if solved is None else len(chosen)
    names = {column.name for column in chosen}
    return Cover(
        method="greedy" if solved is None else "exact",
        proven=bound == len(chosen),
        unique=solved is not None and solved.unique,
        bound=bound,
        units=tuple(units),
        chosen=_choices(ordered, names),
        left_out=_left_out(ordered, names),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A candidate with its units as bits."""

    name: str
    steps: int
    covers: int

    @property
    def rank(self) -> tuple[int, str]:
        return self.steps, self.name


def _distinct(columns: Sequence[_Column]) -> list[_Column]:
    """One column for each set of units, in order of names: the one with the fewest steps, then the first by name."""
    best: dict[int, _Column] = {}
    for column in columns:
        if column.covers and (column.covers not in best or column.rank < best[column.covers].rank):
            best[column.covers] = column
    return sorted(best.values(), key=lambda item: item.name)


def _undominated(columns: Sequence[_Column]) -> list[_Column]:
    """The columns that no other column dominates: covers all their units, with no more steps, and an earlier name if equal.

    A dominated column in a suite could be exchanged for the other, and the suite would be better; so the best suite has none.
    """
    return [
        one
        for one in columns
        if not any(other is not one and not one.covers & ~other.covers and other.rank < one.rank for other in columns)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solved:
    """A cover with the least number of columns. `unique`: it is the best of these."""

    columns: tuple[_Column, ...]
    unique: bool


def _exact(columns: Sequence[_Column], whole: int) -> _Solved | None:
    """The best cover, or None if branch and bound did not end. Every cover has the columns that alone cover a unit."""
    owners: dict[int, list[_Column]] = {}
    for column in columns:
        for unit in _bits(column.covers):
            owners.setdefault(unit, []).append(column)
    forced = {own[0].name: own[0] for own in owners.values() if len(own) == 1}
    open_units = whole
    for column in forced.values():
        open_units &= ~column.covers
    rest = [column for column in columns if column.covers & open_units]
    if not open_units:
        return _Solved(columns=tuple(forced.values()), unique=True)
    if not is_installed("stats"):
        return None
    solved = _Program(rest, open_units).solve()
    return None if solved is None else replace(solved, columns=(*forced.values(), *solved.columns))


def _bits(mask: int) -> Iterable[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class _Program:
    """The integer program over columns (by name): binary x, every open unit covered."""

    def __init__(self, columns: Sequence[_Column], units: int) -> None:
        self._columns, self._units = columns, units
        self._rows: list[tuple[list[int], int, int]] = []  # further rows: coefficients, least, most
        self._fixed: dict[int, int] = {}
        self._nodes = NODES // max(1, len(columns))

    def solve(self) -> _Solved | None:
        """Three objectives, one after the other; each is fixed before the next. If the nodes run out, the best cover so far."""
        columns = self._columns
        found = self._least([1] * len(columns))
        if found is None:
            return None
        closer = self._least([column.steps for column in columns])
        for start in range(0, len(columns), _BLOCK):
            if closer is None:
                break
            found = closer
            block = range(start, min(start + _BLOCK, len(columns)))
            if any(found[start:]):  # earlier blocks contain all remaining choices, and they are fixed
                closer = self._minimum([-(1 << (block[-1] - place)) if place in block else 0 for place in range(len(columns))])
                self._fixed.update({place: int((closer or found)[place]) for place in block})
        found = found if closer is None else closer
        return _Solved(
            columns=tuple(column for column, taken in zip(columns, found, strict=True) if taken), unique=closer is not None
        )

    def _least(self, costs: Sequence[int]) -> list[bool] | None:
        """A least x, after which a new row fixes its costs."""
        found = self._minimum(costs)
        if found is not None:
            least = sum(cost for cost, taken in zip(costs, found, strict=True) if taken)
            self._rows.append((list(costs), least, least))
        return found

    def _minimum(self, costs: Sequence[int]) -> list[bool] | None:
        """A least x, read from the solver's floats and checked in integers; None if the solver did not end."""
        import numpy as np
        from scipy.optimize import Bounds, LinearConstraint, milp

        size = len(self._columns)
        low, high = np.zeros(size), np.ones(size)
        for place, value in self._fixed.items():
            low[place] = high[place] = value
        constraints = [LinearConstraint(_matrix(self._columns, self._units), lb=1)]
        constraints += [LinearConstraint(np.array([row], dtype=float), least, most) for row, least, most in self._rows]
        solved = milp(
            np.array(costs, dtype=float), integrality=np.ones(size), bounds=Bounds(low, high), constraints=constraints,
            options={"node_limit": self._nodes, "mip_rel_gap": 0.0},
        )  # fmt: skip
        self._nodes = max(0, self._nodes - int(solved.mip_node_count or 0))
        if solved.status != 0 or solved.x is None:
            return None
        found = [value > 0.5 for value in solved.x.tolist()]
        return found if self._holds(found) else None

    def _holds(self, found: Sequence[bool]) -> bool:
        covered = 0
        for column, taken in zip(self._columns, found, strict=True):
            covered |= column.covers if taken else 0
        sums = ((sum(cost for cost, taken in zip(row, found, strict=True) if taken), a, b) for row, a, b in self._rows)
        return not self._units & ~covered and all(a <= total <= b for total, a, b in sums)


def _matrix(columns: Sequence[_Column], units: int) -> Any:
    """The matrix of units by columns, 1 if a column covers a unit."""
    from scipy.sparse import csr_array

    place = {unit: row for row, unit in enumerate(_bits(units))}
    pairs = [(place[unit], index) for index, column in enumerate(columns) for unit in _bits(column.covers & units)]
    rows, indices = [row for row, _ in pairs], [index for _, index in pairs]
    return csr_array(([1.0] * len(pairs), (rows, indices)), shape=(len(place), len(columns)))


def _greedy(columns: Sequence[_Column], whole: int) -> list[_Column]:
    """Repeatedly take the column that covers the most open units (then fewest steps, then name); drop needless columns."""
    heap = [(-column.covers.bit_count(), *column.rank, column) for column in columns]
    heap.sort(key=lambda entry: entry[:3])
    chosen: list[_Column] = []
    while whole and heap:
        gain, steps, name, column = heapq.heappop(heap)
        now = -(column.covers & whole).bit_count()  # its gain can only have shrunk since it was pushed
        if now == gain:
            chosen.append(column)
            whole &= ~column.covers
        elif now:
            heapq.heappush(heap, (now, steps, name, column))
    for column in reversed(list(chosen)):
        others = 0
        for other in chosen:
            others |= other.covers if other is not column else 0
        if not column.covers & ~others:
            chosen.remove(column)
    return chosen


def _least(columns: Sequence[_Column], whole: int) -> int:
    """A number that no cover goes below, from the dual of the linear relaxation.

    The solver's dual prices become fractions and are scaled until no column is worth more than 1, exactly. Then every cover has
    at least as many columns as the sum of the prices, whatever the solver's tolerance.
    """
    if not whole:
        return 0
    if not is_installed("stats"):
        return 1
    import numpy as np
    from scipy.optimize import linprog

    matrix = _matrix(columns, whole)
    solved = linprog(np.ones(len(columns)), A_ub=-matrix, b_ub=-np.ones(matrix.shape[0]), bounds=(0, None), method="highs")
    if solved.status != 0:
        return 1
    units = list(_bits(whole))
    prices = {
        unit: Fraction(max(0, round(-float(price) * 10**6)), 10**6)
        for unit, price in zip(units, solved.ineqlin.marginals, strict=True)
    }
    dearest = max(sum((prices[unit] for unit in _bits(column.covers)), Fraction(0)) for column in columns)
    total = sum(prices.values(), Fraction(0)) / max(dearest, Fraction(1))
    return max(1, -((-total.numerator) // total.denominator))


# -- why --------------------------------------------------------------------------------------------------------------


def _choices(ordered: Sequence[Candidate], names: set[str]) -> tuple[SuiteChoice, ...]:
    counts: dict[CoverageUnit, int] = {}
    for item in ordered:
        for unit in item.units:
            counts[unit] = counts.get(unit, 0) + 1
    return tuple(
        SuiteChoice(
            name=item.name,
            steps=item.steps,
            only=tuple(unit for unit in sorted(item.units) if counts[unit] == 1),
            shared=tuple(unit for unit in sorted(item.units) if counts[unit] > 1),
        )
        for item in ordered
        if item.name in names
    )


def _left_out(ordered: Sequence[Candidate], names: set[str]) -> tuple[LeftOut, ...]:
    by_unit: dict[CoverageUnit, str] = {}
    for item in ordered:
        if item.name in names:
            for unit in item.units:
                by_unit.setdefault(unit, item.name)
    return tuple(
        LeftOut(name=item.name, covered_by=tuple(sorted({by_unit[unit] for unit in item.units})))
        for item in ordered
        if item.name not in names
    )


# -- tests that pass --------------------------------------------------------------------------------------------------


def nominal_passes(
    categories: Mapping[str, str], outcomes: Iterable[RunOutcome], *, each: int = 1
) -> tuple[NominalChoice, ...]:
    """For each workload category, up to `each` tests with passing nominal runs, those with the fewest steps, then by name.

    `categories`: item -> its category, "" for none. A test passes if all its nominal runs succeed and keep all hard
    contracts, and at least one was armed: a test without contracts detects no loss.
    """
    runs: dict[str, list[RunOutcome]] = {}
    for outcome in outcomes:
        if outcome.condition == "nominal" and outcome.item in categories:
            runs.setdefault(outcome.item, []).append(outcome)
    passing: dict[str, list[tuple[int, str]]] = {}
    for item, found in runs.items():
        if all(run.success and run.outcome == "pass" and run.armed for run in found):
            passing.setdefault(categories[item], []).append((max(run.steps for run in found), item))
    return tuple(
        NominalChoice(item=item, category=category, steps=steps, rank=rank, passing=len(passing[category]))
        for category in sorted(passing)
        for rank, (steps, item) in enumerate(sorted(passing[category])[:each], 1)
    )

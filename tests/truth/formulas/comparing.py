"""Whether the two agree on a pair, up to a decision: one open step may stand for others like it."""

from __future__ import annotations

from collections import Counter

from tests.truth.formulas import meaning, product
from tests.truth.formulas.language import FUTURE, Contract, Next, Pair, every


def difference(pair: Pair) -> str:
    """What the two say differently of the trace, and of its first half while the run goes on; "" where they agree."""
    first = pair.facts[: len(pair.facts) // 2]
    standings = product.standing(product.contract(pair.contract), first), meaning.standing(pair.contract, first)
    if standings[0] != standings[1]:
        return f"after {len(first)} steps {standings[0]}, expected {standings[1]}"
    expected = meaning.judged(pair.contract, pair.facts)
    found = product.judged(product.contract(pair.contract), pair.facts)
    unjudged = tuple(item.step for item in found if item.unjudged)
    if unjudged != expected.unjudged[:1]:
        return f"not judged at {unjudged}, expected {expected.unjudged[:1]}"
    left = Counter((item.step, item.instance) for item in found if not item.unjudged)
    optional = [item for item in expected.broken if _stood_for(item, expected, pair.contract)]
    missing = _take([item for item in expected.broken if item not in optional], left)
    _take(optional, left)
    if +left:
        return f"broken at {sorted(+left)}, which are not; all expected: {_texts(expected)}; all found: {found}"
    return f"not found: {missing}; all found: {found}" if missing else ""


def _take(wanted: list[meaning.Broken], left: Counter[tuple[int, str]]) -> list[meaning.Broken]:
    """Take the wanted ones from what is left; those that are not there."""
    missing = []
    for item in wanted:
        place = next(((item.step, label) for label in sorted(item.labels) if left[item.step, label]), None)
        if place is not None:
            left[place] -= 1
        else:
            missing.append(item)
    return missing


def _stood_for(item: meaning.Broken, expected: meaning.Judged, contract: Contract) -> bool:
    """Whether an earlier step of an unbounded promise stands for this one: both are open, or the same step broke both."""
    unbounded = any(
        isinstance(part, FUTURE) and (isinstance(part, Next) or part.window.high is None)
        for part in every(meaning.parts_of(contract)[item.part].phi)
    )
    return unbounded and any(
        other.part == item.part and other.labels == item.labels and other.asked < item.asked and other.open == item.open
        and (item.open or other.step == item.step)
        for other in expected.broken
    )  # fmt: skip


def _texts(expected: meaning.Judged) -> list[tuple[int, int, str]]:
    return [(item.asked, item.step, "/".join(sorted(item.labels))) for item in expected.broken]

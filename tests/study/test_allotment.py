"""How a session's time is shared out among its searches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mat_study.allotment import Waiting, share

WAITING = st.builds(Waiting, needs_s=st.none() | st.floats(0, 100), first=st.booleans())


def shares(left_s: float, *items: Waiting) -> list[float]:
    """What each item gets if all were asked at the same moment."""
    return [round(share(left_s, item, [*items[:place], *items[place + 1 :]]), 6) for place, item in enumerate(items)]


def test_those_that_go_first_get_what_they_need_and_the_others_what_remains() -> None:
    changed, small, large = Waiting(needs_s=8, first=True), Waiting(needs_s=1), Waiting(needs_s=50)
    assert shares(10, changed, small, large) == [8, 1, 1]
    assert shares(6, changed, small, large) == [6, 0, 0]


def test_time_that_is_too_short_is_divided_evenly_and_nobody_gets_more_than_it_needs() -> None:
    assert shares(10, Waiting(needs_s=1), Waiting(needs_s=30), Waiting(needs_s=20)) == [1, 4.5, 4.5]


def test_time_that_nobody_needs_belongs_to_all_alike() -> None:
    assert shares(9, Waiting(needs_s=1), Waiting(needs_s=2)) == [4, 5]


def test_an_unknown_need_is_the_usual_one_or_an_even_share() -> None:
    assert shares(10, Waiting(needs_s=None), Waiting(needs_s=None)) == [5, 5]
    assert shares(10, Waiting(needs_s=None, first=True), Waiting(needs_s=20)) == [10, 0]
    assert shares(10, Waiting(needs_s=None, first=True), Waiting(needs_s=2)) == [6.5, 3.5]


@given(st.floats(-5, 1000), st.lists(WAITING, min_size=1, max_size=8))
def test_no_more_is_given_than_there_is_and_never_less_than_nothing(left_s: float, items: list[Waiting]) -> None:
    given_s = shares(left_s, *items)
    assert all(seconds >= 0 for seconds in given_s)
    assert sum(given_s) <= max(0.0, left_s) + 0.01

"""Retry-After as a date: what a service asks for, what an agent may do, and clocks that differ."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime, formatdate
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mat
from mat.adapters.http import reply_of
from mat.core.waits import EPOCH_S, RESOLUTION_MS, SKEW_MS, retry_after_ms
from mat.harness.reply import retry_after_ms as of_error
from mat_contracts import backoff_respected as growing
from mat_contracts import observation as obs
from mat_contracts.traces import broken, record, trace

DAY_S = 86_400


def date(seconds: float) -> str:
    """An HTTP-date, by the seconds of run time."""
    return formatdate(EPOCH_S + int(seconds), usegmt=True)


@given(seconds=st.integers(0, 4_000_000_000), wait=st.integers(0, 100_000))
def test_between_two_dates_of_one_clock_the_wait_is_exact_to_a_second(seconds: int, wait: int) -> None:
    """Checked against datetime, in the three forms of RFC 9110, 5.6.7."""
    sent, until = (datetime.fromtimestamp(at, UTC) for at in (seconds, seconds + wait))
    exact = max(0, wait * 1000 - RESOLUTION_MS)
    assert retry_after_ms(format_datetime(until, usegmt=True), sent=format_datetime(sent, usegmt=True)) == exact
    assert retry_after_ms(f"{until:%a %b} {until.day:2d} {until:%H:%M:%S %Y}", sent=format_datetime(sent, usegmt=True)) == exact
    if 1970 <= until.year < 2060:
        assert retry_after_ms(f"{until:%A, %d-%b-%y %H:%M:%S} GMT", sent=format_datetime(sent, usegmt=True)) == exact


@given(at_ms=st.integers(0, 10**7), wait=st.integers(1, 3_000), skew=st.integers(-10 * SKEW_MS, 10 * SKEW_MS))
def test_who_waits_by_the_services_clock_is_never_early_and_by_an_own_one_within_a_minute(
    at_ms: int, wait: int, skew: int
) -> None:
    """A service whose clock is ahead of the run's by `skew` asks to wait until a date."""
    service_s = EPOCH_S + (at_ms + skew) // 1000
    asked = retry_after_ms(formatdate(service_s + wait, usegmt=True), at_ms=at_ms, sent=formatdate(service_s, usegmt=True))
    assert asked is not None
    assert asked <= wait * 1000  # who adds the difference of the two dates to now
    until_own_clock = max(0, (service_s + wait - EPOCH_S) * 1000 - at_ms)
    if abs(skew) < SKEW_MS - RESOLUTION_MS:
        assert asked <= until_own_clock  # who waits for the date by the clock of the run
        assert asked >= wait * 1000 - abs(skew) - 2 * RESOLUTION_MS
    elif abs(skew) > SKEW_MS + RESOLUTION_MS:
        assert asked == max(0, wait * 1000 - RESOLUTION_MS)


@pytest.mark.parametrize(
    ("stated", "at_ms", "sent", "wanted"),
    [
        ("7", None, None, 7_000),
        (1.5, None, None, 1_500),
        ("-1", None, None, None),
        ("nan", None, None, None),
        (True, None, None, None),
        ("soon", 0, None, None),
        ("Mon, 99 Foo 2026 00:00:00 GMT", 0, None, None),
        (date(9), 2_500, None, 6_500),
        (date(9), 9_500, None, 0),
        (date(9), None, None, None),
        (date(2 * DAY_S), 0, None, None),  # a date of another clock, and no Date field
        (date(2 * DAY_S), 0, date(2 * DAY_S - 10), 9_000),
        (date(9), 2_500, "not a date", 6_500),
    ],
)
def test_what_is_asked_for(stated: Any, at_ms: int | None, sent: Any, wanted: int | None) -> None:
    assert retry_after_ms(stated, at_ms=at_ms, sent=sent) == wanted


@pytest.mark.parametrize(("waits", "early"), [(3.0, True), (4.99, True), (5.0, False), (6.0, False)])
def test_in_a_run_who_asks_again_before_the_date_is_early(waits: float, early: bool) -> None:
    """The service is part of the run, so its clock is the run's. It answers at 2 s: not before second 8, a second allowed."""

    @mat.tool
    def get(url: str) -> dict[str, Any]:
        now = time.time()
        asked = {"date": formatdate(now, usegmt=True), "retry-after": formatdate(now + 6, usegmt=True)}
        return {"status": 429, "headers": asked, "body": ""}

    with mat.run([obs.backoff_respected()]) as run:
        time.sleep(2)
        get("https://h.test/a")
        time.sleep(waits)
        get("https://h.test/a")
    assert run.result is not None
    assert [item.label for item in run.result.violations] == ["BACKOFF_VIOLATION"] * early


def test_all_that_reads_a_wait_reads_dates() -> None:
    headers = {"Date": date(0), "Retry-After": date(5)}
    refused = record("tool_call", "get", value={"status": 503, "headers": headers})
    again = record("tool_call", "get")
    assert obs.stated_wait_ms(replace(refused, sealed_ms=0)) == 4_000
    records = trace(refused, *[again] * 6)  # one record a second, and the refusal at second 0
    for contract in (obs.backoff_respected("get"), obs.not_during_maintenance("get")):
        assert broken(contract, records)[0] == 1
        assert 4 not in broken(contract, records)
    assert broken(growing("get", base_ms=0), records) == (1,)

    for named, wait_ms in ((headers, 4_000), ({"retry-after": "3"}, 3_000), ({}, None)):
        error = OSError("refused")
        error.response = SimpleNamespace(headers=named)  # type: ignore[attr-defined]
        assert of_error(error) == wait_ms


def test_a_recorded_reply_keeps_the_date_that_its_wait_counts_from() -> None:
    dated = reply_of(429, [("Date", date(0)), ("Retry-After", date(5)), ("Server", "x")], b"")
    assert dated["headers"] == {"date": date(0), "retry-after": date(5)}
    assert reply_of(429, [("Date", date(0)), ("Retry-After", "5")], b"")["headers"] == {"retry-after": "5"}
    assert reply_of(200, [("Date", date(0))], b"")["headers"] == {}

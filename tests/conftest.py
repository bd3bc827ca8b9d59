"""Shared by all test rooms: pytest's own harness for plugins, and a look at what a test leaves behind."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy  # noqa: F401  # pytester takes back what an inner session imports, and numpy can be loaded only once
import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

os.environ.pop("PYTEST_ADDOPTS", None)  # meant for this session, not for those that tests begin

# how many real seconds an example takes says something of the machine and of what else it does, and nothing of the property
settings.register_profile("timeless", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("timeless")


@pytest.fixture(autouse=True)
def no_world_is_left_in_place() -> Iterator[None]:
    """A test whose run leaves its clock and randomness behind fails itself, not a later one."""
    yield
    assert time.sleep.__module__ == "time"

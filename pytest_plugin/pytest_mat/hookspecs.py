"""The hooks that a conftest.py or another plugin can implement (E2)."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.hookspec
def pytest_mat_operators(config: pytest.Config) -> Any:
    """Called once per session in each process, when the operators are first needed.

    Return a list of mat.spec.Operator to add to the catalog of all items; None adds nothing.
    """


@pytest.hookspec
def pytest_mat_contracts(item: pytest.Item) -> Any:
    """Called in every execution of an armed item, after its fixtures are set up.

    Return a list of contracts to arm in addition to the item's own; None adds nothing.
    """


@pytest.hookspec
def pytest_mat_item_finished(item: pytest.Item, result: Any) -> None:
    """Called in the process that ran the item, with its ItemResult, before its reports are logged. Results are ignored."""

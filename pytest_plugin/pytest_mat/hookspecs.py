"""Hooks that a conftest or a plugin may implement (E2)."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.hookspec
def pytest_mat_operators(config: pytest.Config) -> Any:
    """Called once per item, before it runs. Return a list of mat.spec.Operator to add to the catalog; None adds nothing."""


@pytest.hookspec
def pytest_mat_contracts(item: pytest.Item) -> Any:
    """Called after an armed item's fixtures are set up. Return a list of contracts to arm besides; None adds nothing."""


@pytest.hookspec
def pytest_mat_item_finished(item: pytest.Item, result: Any) -> None:
    """Called in the process that ran the item, with its ItemResult, before the report is logged."""

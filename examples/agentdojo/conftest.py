"""AgentDojo's suites, parsed once; every run gets its own copy of the environment, as in AgentDojo."""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path

import pytest

VERSION = "v1.2.2"


@lru_cache
def _environment(name: str):
    from agentdojo.task_suite.load_suites import get_suite

    return get_suite(VERSION, name).load_and_inject_default_environment({})


@pytest.fixture(scope="session")
def policies():
    """The module policies.py next to the tests."""
    spec = importlib.util.spec_from_file_location("agentdojo_policies", Path(__file__).parent / "policies.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def environment():
    """A function from a suite's name to a fresh environment of it."""
    return lambda name: _environment(name).model_copy(deep=True)


@pytest.fixture
def mat_config():
    return {"benchmark": f"agentdojo {VERSION}", "pipeline": "ground truth"}

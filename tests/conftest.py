"""Shared by all test rooms: pytest's own harness for plugins."""

pytest_plugins = ["pytester"]

"""How a fresh process finds an item: the command line that collects its module."""

from __future__ import annotations

import pytest

from mat_study.fresh import FreshItem


def fresh_item(item: pytest.Item, *, recorded: bool) -> FreshItem:
    """The item for a fresh process. `recorded`: runs get recorded replies, and no live call is made."""
    return FreshItem(node=item.nodeid, arguments=_arguments(item), recorded=recorded)


def _arguments(item: pytest.Item) -> tuple[str, ...]:
    """The command line of pytest that collects the module of an item."""
    config = item.config
    arguments = [str(item.path), "--rootdir", str(config.rootpath), "--mat-confirm"]
    if config.inipath is not None:
        arguments += ["-c", str(config.inipath)]
    for name in config.option.plugins or ():
        arguments += ["-p", name]
    for override in config.option.override_ini or ():
        arguments += ["-o", override]
    arguments += ["-q", "-s", "-p", "no:cacheprovider", f"--import-mode={config.getoption('importmode')}", "-k", "", "-m", ""]
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # pytest-mat was imported before pytest began
    if config.pluginmanager.hasplugin("xdist"):
        arguments += ["-n0"]
    if config.getoption("mat_horizon") is not None:
        arguments += ["--mat-horizon", str(config.getoption("mat_horizon"))]
    return tuple(arguments)

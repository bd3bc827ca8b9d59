"""Packages that the default install leaves out, and the error where one is needed.

An extra is a name in brackets: `pip install "pytest-mat[report]"`. `EXTRAS` names the modules that each of our own parts
imports; extras of frameworks belong to their adapters. The default install has what `pytest --mat-stress` needs.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

from mat.core.errors import MatError, enumeration

EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "completion": ("shtab",),
    "dask": ("distributed",),
    "hypothesis": ("hypothesis",),
    "jwt": ("jwt",),
    "otel": ("opentelemetry.sdk",),
    "pii": ("phonenumbers",),
    "presidio": ("presidio_analyzer",),
    "report": ("jinja2",),
    "stats": ("numpy", "scipy"),
    "store": ("duckdb", "numpy", "scipy"),
    "yaml": ("yaml",),
}
"""The modules of each extra."""


def install_line(extra: str) -> str:
    """The command that installs an extra.

    >>> install_line("report")
    'pip install "pytest-mat[report]"'
    """
    return f'pip install "pytest-mat[{extra}]"'


def is_installed(extra: str) -> bool:
    """Whether all modules of an extra can be imported. Nothing is imported to find out."""
    return not _missing(extra)


def require(extra: str, what: str, *, why: str = "", where: str = "", otherwise: str = "") -> None:
    """MatError if a module of the extra is missing. `what` needs it; `otherwise`: what can be done without it.

    >>> require("completion", "a completion script")
    """
    missing = _missing(extra)
    if missing:
        reason = "it is not part of the default install" if len(missing) == 1 else "they are not part of the default install"
        raise MatError(
            f"{what} needs {enumeration(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            why=why or reason, fix=install_line(extra) + (f", or {otherwise}" if otherwise else ""), where=where,
        )  # fmt: skip


def _missing(extra: str) -> list[str]:
    return [name for name in EXTRAS[extra] if not _is_there(name)]


def _is_there(name: str) -> bool:
    if name in sys.modules:
        return sys.modules[name] is not None
    try:
        return find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # of a package above it
        return False

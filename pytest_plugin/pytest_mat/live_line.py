"""Progress while a search runs: one line on a terminal, a line now and then elsewhere, and lines that stay."""

from __future__ import annotations

from typing import Any, Final

import pytest

from mat.core.redact import cleaned
from mat.kernel.clock import real_monotonic

_REDRAW_INTERVAL_S: Final = 0.2
"""The shortest time between two versions of the line on a terminal."""
_LINE_INTERVAL_S: Final = 10.0
"""The shortest time between two lines without a terminal, and before the first."""


class LiveLine:
    """The progress of one item. In the workers of pytest-xdist, which have no terminal reporter, nothing is shown."""

    def __init__(self, config: pytest.Config) -> None:
        self._reporter: Any = config.pluginmanager.getplugin("terminalreporter")
        self._silent = self._reporter is None or self._reporter.verbosity < 0
        self._on_terminal = bool(getattr(self._reporter, "isatty", False))
        self._last = 0.0 if self._on_terminal else real_monotonic()
        self._covered: str | None = None

    def show(self, text: str) -> None:
        """Show how far the item is, if it was not shown just now."""
        now = real_monotonic()
        if self._silent or now - self._last <= (_REDRAW_INTERVAL_S if self._on_terminal else _LINE_INTERVAL_S):
            return
        self._last, text = now, cleaned(text)
        if not self._on_terminal:
            self._reporter.write_line(f"mat: {text}")
            return
        writer = self._reporter._tw
        if self._covered is None:
            self._covered = writer._current_line
        self._reporter.rewrite(text[: writer.fullwidth - 1], erase=True)  # a line that wraps cannot be rewritten

    def clear(self) -> None:
        """Show pytest's own line again, which the progress covered."""
        if self._covered is not None:
            writer = self._reporter._tw
            self._reporter.rewrite("", erase=True)
            self._reporter.rewrite(self._covered)
            writer._current_line, self._covered = self._covered, None

    def tell(self, text: str) -> None:
        """Write a line that stays."""
        if self._reporter is not None:
            self.clear()
            self._reporter.ensure_newline()
            self._reporter.write_line(f"mat: {cleaned(text)}")

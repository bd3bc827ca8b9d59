"""A command and what it printed in a terminal, as a page for the browser to photograph."""

from __future__ import annotations

import io
import re
from typing import Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

COLUMNS: Final = 100
RED: Final = (255, 107, 107)
_NORMAL: Final = [
    (99, 109, 120), RED, (126, 211, 133), (230, 196, 110), (122, 170, 255), (208, 150, 240), (110, 206, 220), (220, 226, 232),
]  # fmt: skip
_DARK: Final = TerminalTheme((17, 21, 27), (220, 226, 232), _NORMAL, _NORMAL)
_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>terminal</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body {{ margin: 0; background: {background}; color: {foreground} }}
main {{ width: max-content; padding: 20px }}
pre {{ margin: 0; font: 16px/20px "DejaVu Sans Mono", monospace }}
</style>
<main><pre>{code}</pre></main></html>
"""
_DURATION: Final = re.compile(r"\b\d+(\.\d+)?( ?)s\b")


def terminal_page(command: str, printed: str) -> str:
    """An HTML page as large as its text: the command behind a prompt, and its output with its colours.

    Durations are left out as the guides leave them out: they say how busy the machine was that made the picture.
    """
    console = Console(record=True, file=io.StringIO(), width=COLUMNS, highlight=False)
    console.print(Text(f"$ {command}", style="bold"), soft_wrap=True)
    console.print(Text.from_ansi(_DURATION.sub(r"...\2s", printed).rstrip()), soft_wrap=True)
    return console.export_html(theme=_DARK, code_format=_PAGE, inline_styles=True)

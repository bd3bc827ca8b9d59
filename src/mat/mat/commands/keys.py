"""Single keys from a terminal: termios on POSIX, msvcrt on Windows; elsewhere they are refused, with the reason."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from mat.core.errors import MatError

_WAIT_S: Final = 0.05
"""How long the rest of an escape sequence may take; a lone escape is the key."""
_SEQUENCES: Final = {
    "[A": "up", "[B": "down", "[C": "right", "[D": "left", "OA": "up", "OB": "down", "OC": "right", "OD": "left",
    "[H": "home", "[F": "end", "OH": "home", "OF": "end", "[1~": "home", "[4~": "end", "[7~": "home", "[8~": "end",
    "[5~": "pageup", "[6~": "pagedown",
}  # fmt: skip
_CONTROLS: Final = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x04": "q"}
_WINDOWS: Final = {
    "H": "up", "P": "down", "M": "right", "K": "left", "G": "home", "O": "end", "I": "pageup", "Q": "pagedown",
}  # fmt: skip


@contextmanager
def single_keys() -> Iterator[Callable[[], str]]:
    """A function that waits for a key and returns its name: a character, "up", "enter", "escape", ...; "q" at the end of input.

    The terminal is as it was when the block ends, however it ends. MatError if keys cannot be read one by one.
    """
    if sys.platform == "win32":
        yield _windows_key
        return
    try:
        import termios
    except ImportError as error:
        raise _unreadable(str(error)) from error
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error) as error:
        raise _unreadable(str(error)) from error
    try:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, _one_by_one(before))
        yield lambda: _posix_key(descriptor, before[6][termios.VINTR])
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _one_by_one(attributes: list[Any]) -> list[Any]:
    """A terminal's attributes, changed: keys come one by one and unseen, and an interrupt comes as a key.

    A signal may arrive while Python cannot raise its exception, as in the callback of an import, and is lost there.
    """
    import termios

    changed = [*attributes[:6], [*attributes[6]]]
    changed[3] &= ~(termios.ECHO | termios.ICANON)
    changed[6][termios.VMIN], changed[6][termios.VTIME] = 1, 0
    changed[6][termios.VINTR] = bytes([os.fpathconf(sys.stdin.fileno(), "PC_VDISABLE")])
    return changed


def _unreadable(why: str) -> MatError:
    return MatError(
        "this terminal does not deliver single keys", why=f"neither termios nor msvcrt can read them here: {why}",
        fix="use mat show --plain",
    )  # fmt: skip


def _posix_key(descriptor: int, interrupt: bytes) -> str:
    from select import select

    first = os.read(descriptor, 1)
    if not first:
        return "q"
    if first == interrupt:
        raise KeyboardInterrupt
    if first == b"\x1b":
        rest = b""
        while len(rest) < 4 and select([descriptor], [], [], _WAIT_S)[0]:
            rest += os.read(descriptor, 1)
            if rest.decode("ascii", "replace") in _SEQUENCES:
                break
        return _SEQUENCES.get(rest.decode("ascii", "replace"), "escape" if not rest else "")
    more = 3 if first[0] >= 0xF0 else 2 if first[0] >= 0xE0 else 1 if first[0] >= 0xC0 else 0
    for _ in range(more):
        first += os.read(descriptor, 1)
    return _named(first.decode("utf-8", "replace"))


def _named(text: str) -> str:
    """The name of a key that is one character; "" for a control character without a meaning here."""
    return _CONTROLS.get(text, text if text.isprintable() else "")


def _windows_key() -> str:
    import msvcrt

    getwch: Callable[[], str] = getattr(msvcrt, "getwch")  # noqa: B009  # no other platform has it
    first = getwch()
    if first == "\x03":
        raise KeyboardInterrupt
    if first in ("\x00", "\xe0"):
        return _WINDOWS.get(getwch(), "")
    return "escape" if first == "\x1b" else _named(first)

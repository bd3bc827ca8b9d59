"""What the commands share: exit codes and the two ways out."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Final, Protocol

from mat.core.errors import MatError


class Add(Protocol):
    """How the command line makes a command: name, help, examples -> its parser."""

    def __call__(self, name: str, text: str, example: str) -> argparse.ArgumentParser: ...


PASS: Final = 0
VIOLATION: Final = 1
USAGE: Final = 2


def print_json(data: Any) -> None:
    print(json.dumps(data, ensure_ascii=True, indent=1))


def complain(error: MatError) -> None:
    """On stderr, and nothing in it that a terminal would obey: it may quote a file from outside."""
    from mat.evidence.artifact import printable

    print("mat:", "\n".join(printable(line) for line in str(error).split("\n")), file=sys.stderr)


def error_data(error: MatError) -> dict[str, str]:
    return {"what": error.what, "why": error.why, "fix": error.fix, "where": error.where}

"""What pytest-mat does not do yet, by the place where state is kept. Must become empty."""

from __future__ import annotations

from typing import Final

NOT_YET: Final[dict[str, str]] = {}
"""store, or "*" for all -> why its agents may be wrongly certified, or not be certified though they are safe"""


def reason(store: str) -> str:
    """Why what is said of agents with their state there is not judged yet, or nothing."""
    return NOT_YET.get(store, NOT_YET.get("*", ""))

"""Named streams of randomness. A stream depends only on the seed and its name."""

from __future__ import annotations

import hashlib
import random


class Entropy:
    """All randomness of a run or a search. A new stream does not change the draws of the others."""

    __slots__ = ("_streams", "seed")

    def __init__(self, seed: int | str = 0) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def stream(self, name: str) -> random.Random:
        """Return the stream of that name: the same object each time, so that its draws continue."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = random.Random(stream_seed(self.seed, name))
        return found


def stream_seed(seed: int | str, name: str) -> int:
    text = f"{type(seed).__name__}:{seed}/{name}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")

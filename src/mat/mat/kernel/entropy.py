"""Named streams of randomness. A stream depends only on the seed, the task and its name."""

from __future__ import annotations

import hashlib
import random
from typing import Any, Final

from mat.core.spec import RunSpec

KEYED: Final = 2
"""Version of the rule by which draws are keyed: 1 was the seed and a stream; 2 adds the task and the drawing place."""


class Entropy:
    """All randomness of a run or a search. A new stream does not change the draws of the others.

    `seeded`: by library, the generator that its code seeded itself with `random.seed`. `remembered`: by module and library,
    what the module remembers of its last id in order of time.
    """

    __slots__ = ("_streams", "remembered", "seed", "seeded", "task")

    def __init__(self, seed: int | str = 0, task: str = "") -> None:
        self.seed, self.task = seed, task
        self._streams: dict[str, random.Random] = {}
        self.seeded: dict[str, random.Random] = {}
        self.remembered: dict[tuple[str, str], dict[str, Any]] = {}

    @classmethod
    def of(cls, spec: RunSpec) -> Entropy:
        """The randomness of a search around a run: no other configuration, such as a governance variant, changes it."""
        return cls(spec.seed, spec.task)

    def stream(self, name: str) -> random.Random:
        """Return the stream of that name: the same object each time, so that its draws continue."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = random.Random(self.seed_of(name))
        return found

    def seed_of(self, name: str) -> int:
        """The seed of the stream of that name."""
        return stream_seed(self.seed, name, self.task)


def stream_seed(seed: int | str, name: str, task: str = "") -> int:
    text = f"{type(seed).__name__}:{seed}/{name}"
    if task:
        text = f"task {len(task)}:{task}/{text}"
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:16], "big")

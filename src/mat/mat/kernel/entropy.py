"""Named streams of randomness. A stream depends only on the seed, the task and its name."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
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

    @contextmanager
    def unmoved(self) -> Iterator[None]:
        """Whatever is drawn in here is drawn again afterwards."""
        streams, seeded, remembered = self._streams, self.seeded, self.remembered
        self._streams, self.seeded = _Copies(streams), _Copies(seeded)
        self.remembered = deepcopy(remembered)
        try:
            yield
        finally:
            self._streams, self.seeded, self.remembered = streams, seeded, remembered

    def seed_of(self, name: str) -> int:
        """The seed of the stream of that name."""
        return stream_seed(self.seed, name, self.task)


class _Copies(dict[str, random.Random]):
    """Generators that continue those of another table, each copied at its first use."""

    def __init__(self, of: dict[str, random.Random]) -> None:
        super().__init__()
        self._of = of

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self and name in self._of:
            self[name] = random.Random(0)
            self[name].setstate(self._of[name].getstate())
        return super().get(name, default)

    def __bool__(self) -> bool:
        return bool(len(self) or self._of)


def stream_seed(seed: int | str, name: str, task: str = "") -> int:
    text = f"{type(seed).__name__}:{seed}/{name}"
    if task:
        text = f"task {len(task)}:{task}/{text}"
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:16], "big")

"""The state of a run as the search compares it. A run outside a search has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mat.core.digest import digest
from mat.core.redact import Redactor
from mat.core.run import EquivalenceClass, Termination
from mat.core.value import FrozenDict, snapshot
from mat.harness.digest import StateDigest
from mat.harness.equivalence import Equivalences
from mat.harness.provenance import Provenance
from mat.harness.trace import Trace
from mat.kernel.world import World


class SearchState:
    """Digests of the state that decides how a run continues, one per ask, and the equivalence classes of perturbations.

    `governed` and `metered` return the states of the mediator and the ledger. `given`: the user's state digest. `vary`: replies
    may carry concolic numbers, which stand for all grid points. `states` holds a digest per record and, once the run is closed,
    one for its end; `contended` the steps where another call could have gone first.
    """

    __slots__ = (
        "_exchangeable", "_given", "_governed", "_metered", "_provenance", "_redactor", "_trace", "_vary", "_world",
        "contended", "equivalences", "states",
    )  # fmt: skip

    def __init__(
        self,
        trace: Trace,
        provenance: Provenance,
        *,
        world: World,
        redactor: Redactor,
        governed: Callable[[], tuple[object, ...]],
        metered: Callable[[], object],
        given: StateDigest | None,
        vary: bool,
    ) -> None:
        self._trace, self._provenance, self._world, self._redactor = trace, provenance, world, redactor
        self._governed, self._metered, self._given, self._vary = governed, metered, given, vary
        self._exchangeable = True
        self.equivalences: Equivalences | None = None
        self.states: list[str] = []
        self.contended: list[int] = []

    def read(self) -> None:
        """Add the digest of the current state."""
        if self.equivalences is not None:
            self.equivalences.read()
        state = self._trace.judge.digest()
        if governed := self._governed():
            state = digest([state, governed])
        if (metered := self._metered()) is not None:
            state = digest([state, metered])
        if cut_out := self._redactor.digest():
            state = digest([state, cut_out])
        if self._given is not None:
            state = digest([state, snapshot(self._given.function(), "mat_state_digest")])
        self.states.append(state)

    def compare(self) -> Equivalences | None:
        """The equivalence classes, to be extended when a perturbation acts; None if this run has none."""
        if self.equivalences is None and self._exchangeable:
            self.equivalences = Equivalences(world=self._world, trace=self._trace, given=self._given, vary=self._vary)
            self._provenance.on_cited = self.equivalences.cited
        return self.equivalences if self._exchangeable else None

    def forgo_equivalence(self) -> None:
        """Treat nothing as equivalent in this run, because a ledger or artifact tracking now reads the calls, too."""
        self._exchangeable = False
        if self.equivalences is not None:
            self.equivalences.forget()

    def plain_arguments(self, arguments: FrozenDict) -> FrozenDict:
        """Arguments that were recorded without a snapshot, with plain numbers."""
        return arguments if self.equivalences is None else self.equivalences.recorded(arguments)

    def plain_reply(self, step: int, value: Any) -> Any:
        """A reply as it is recorded."""
        return value if self.equivalences is None else self.equivalences.plain(step, value)

    def classes(self, *, termination: Termination, elapsed_ms: int, horizon_ms: int) -> tuple[EquivalenceClass, ...]:
        """The perturbations that acted, in order, with their equivalent grid points. Call it at the end of the run."""
        found = self.equivalences
        return () if found is None else found.finish(termination=termination, elapsed_ms=elapsed_ms, horizon_ms=horizon_ms)

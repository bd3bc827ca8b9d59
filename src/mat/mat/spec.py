"""What a run is made from, and what the search may change about it: schedules, operators, the state's digest, adversaries."""

from mat.boundary.catalog import Operator, operator
from mat.core.adversary import Adaptive, Seen
from mat.core.site import Site
from mat.core.spec import Perturbation, RunSpec, Schedule, perturbation, schedule
from mat.harness.digest import StateDigest

__all__ = [
    "Adaptive", "Operator", "Perturbation", "RunSpec", "Schedule", "Seen", "Site", "StateDigest", "operator",
    "perturbation", "schedule",
]  # fmt: skip

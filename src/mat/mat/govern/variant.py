"""Governance variants as data: none, shield, shield + capabilities, shield + routing, from one policy.

Source: A5.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from mat.core.errors import SpecError, did_you_mean
from mat.govern.capability import Capability
from mat.govern.mediator import Approver, Governance, Rule
from mat.govern.trust import Trust
from mat.resources.contract import ResourceContract


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Which parts of a `mat.Policy` are in force: `shield` (rules and approvals), `capabilities`, `routing` (trust, sandboxes).

    `name`: how tables and `--mat-governance` call it. Declare your own in `mat.Policy(declared=...)`.

    >>> strict = mat.policy.Variant(name="capabilities", shield=False, capabilities=True)
    >>> list(mat.Policy(declared=(strict,)).variants())
    ['none', 'shield', 'shield+capabilities', 'shield+routing', 'capabilities']

    Source: A5.5.
    """

    name: str
    shield: bool = True
    capabilities: bool = False
    routing: bool = False


STANDARD: Final[tuple[Variant, ...]] = (
    Variant(name="none", shield=False),
    Variant(name="shield"),
    Variant(name="shield+capabilities", capabilities=True),
    Variant(name="shield+routing", routing=True),
)
"""The least set of variants to compare, in the order of the tables."""
FULL: Final = Variant(name="shield+capabilities+routing", capabilities=True, routing=True)
"""All parts of a policy: the variant in force by default."""
_KNOWN: Final = {variant.name: variant for variant in (*STANDARD, FULL)}
NONE: Final = "none"
ALL: Final = "all"
"""The name that selects every variant for a comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All parts of a policy, from which its variants select; return one from the fixture `mat_governance`.

    - The shield: `rules` (functions of the proposed `mat.Record`), `approver` (who is asked), `contracts` (resource contracts
      by agent), `default`.
    - The capability sets: `capabilities` by agent, and `granters`, what an agent may grant without holding it.
    - The routing: `trust`, and the rules of `routing`, functions as in `rules`.
    - `declared`: variants of your own, besides "none", "shield", "shield+capabilities", "shield+routing" and
      "shield+capabilities+routing". `use`: the variant in force by default, the last of these.
    - `timeout_ms`, `approve_within_ms`, `default`, `name`, `version`: as in `mat.policy.Governance`.

    `variant(name)` is the Governance of one variant (None for "none"), `variants()` those that are compared. Raises
    `mat.MatError` for an unknown or doubled variant, and for invalid parts.

    >>> policy = mat.Policy(capabilities={"clerk": ["look_up"]}, name="shop")
    >>> list(policy.variants())
    ['none', 'shield', 'shield+capabilities', 'shield+routing']
    >>> policy.variant("shield+capabilities").name, policy.variant("none")
    ('shop/shield+capabilities', None)

    Source: A5.5 (Sec. V-B).
    """

    rules: tuple[Rule, ...] = ()
    approver: Approver | None = None
    capabilities: Mapping[str, Iterable[str | Capability]] = field(default_factory=dict)
    granters: Mapping[str, Iterable[str | Capability]] = field(default_factory=dict)
    contracts: Mapping[str, ResourceContract] = field(default_factory=dict)
    trust: Trust | None = None
    routing: tuple[Rule, ...] = ()
    default: Literal["allow", "deny", ""] = ""
    timeout_ms: int | None = None
    approve_within_ms: int | None = None
    name: str = ""
    version: str = ""
    declared: tuple[Variant, ...] = ()
    use: str = FULL.name

    def __post_init__(self) -> None:
        names = [variant.name for variant in self.declared]
        problems = [f"the variant {name!r} is a standard one" for name in names if name in _KNOWN or name == ALL]
        problems += [f"two variants are called {name!r}" for name in sorted({name for name in names if names.count(name) > 1})]
        problems += [f"a variant's name may not contain {mark!r}: {name!r}" for name in names for mark in ", " if mark in name]
        if "" in names:
            problems.append("a variant has no name")
        choices = tuple(dict.fromkeys((*_KNOWN, *filter(None, names))))
        if self.use not in choices:
            problems.append(f"use={self.use!r} is not one of its variants{did_you_mean(self.use, choices)}")
        if problems:
            raise SpecError(
                what=f"policy: {'; '.join(problems)}",
                fix=f"give each variant its own name, and set use= to one of {_quoted(choices)}",
            )
        self.variant(self.use)  # report invalid parts now, not at the first run

    def variants(self) -> dict[str, Governance | None]:
        """The standard variants and the declared ones, by name, in the order of the table."""
        return {variant.name: self._governance_of(variant) for variant in (*STANDARD, *self.declared)}

    def variant(self, name: str = "") -> Governance | None:
        """The governance of a variant, None for "none"; without a name, of the one in `use`. SpecError for an unknown one."""
        wanted = name or self.use
        known = {**_KNOWN, **{variant.name: variant for variant in self.declared}}
        if wanted not in known:
            raise SpecError(
                what=f"unknown governance variant: {wanted!r}{did_you_mean(wanted, known)}",
                fix=f"choose from {_quoted(known)}",
            )
        return self._governance_of(known[wanted])

    def _governance_of(self, variant: Variant) -> Governance | None:
        if not (variant.shield or variant.capabilities or variant.routing):
            return None
        routing = (*self.routing, *((self.trust,) if self.trust is not None else ())) if variant.routing else ()
        return Governance(
            name=f"{self.name}/{variant.name}" if self.name else variant.name,
            version=self.version,
            rules=(*(self.rules if variant.shield else ()), *routing),
            approver=self.approver,
            default=self.default if variant.shield else "",
            capabilities=self.capabilities if variant.capabilities else {},
            granters=self.granters if variant.capabilities else {},
            contracts=self.contracts if variant.shield else {},
            timeout_ms=self.timeout_ms,
            approve_within_ms=self.approve_within_ms,
        )


GovernanceInput: TypeAlias = "Governance | Policy | Mapping[str, Governance | Policy | None] | None"
"""What can describe the governance of a system: one variant, a policy, variants by name, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernanceSelection:
    """Governance by variant name. `own` is the variant that decides a test's outcome; the others are only compared."""

    own: str
    governance: Mapping[str, Governance | None]

    @property
    def compared(self) -> tuple[str, ...]:
        """The variants to run, the own one first."""
        return (self.own, *(name for name in self.governance if name != self.own))


def named(given: GovernanceInput) -> tuple[str, dict[str, Governance | None]]:
    """(the default variant, all variants by name). SpecError if the input is not a governance.

    A single Governance is one variant, under its own name; "none" always exists. A mapping's first variant is the default, and
    runs carry the mapping's names.
    """
    if given is None:
        return NONE, {NONE: None}
    if isinstance(given, Policy):
        return given.use, {**given.variants(), given.use: given.variant()}
    if isinstance(given, Governance):
        return given.name, {NONE: None, given.name: given}
    if not isinstance(given, Mapping) or not given:
        raise SpecError(
            what=f"mat_governance returned {'an empty mapping' if isinstance(given, Mapping) else type(given).__qualname__}",
            why="the hook returns the governance that the system runs under",
            fix="return a mat.Policy, a mat.policy.Governance, variants by name, the path of a policy file, or None",
        )
    found: dict[str, Governance | None] = {}
    problems = []
    for name, item in given.items():
        if not isinstance(name, str) or not name or set(name) & set(", ") or name == ALL:
            problems.append(f"{name!r} is not a name for a variant")
        elif name == NONE and item is not None:
            problems.append(f"{NONE!r} is the variant without governance")
        elif item is not None and not isinstance(item, Governance | Policy):
            problems.append(f"{name!r} is {type(item).__qualname__}, which is not a governance")
        else:
            made = item.variant() if isinstance(item, Policy) else item
            found[name] = None if made is None else replace(made, name=name)  # runs of two variants are two runs
    if problems:
        raise SpecError(what=f"mat_governance: {'; '.join(problems)}", fix="map names to mat.policy.Governance values, or None")
    return next(iter(found)), found if NONE in found else {**found, NONE: None}


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def select(given: GovernanceInput, *, marker: str = "", asked: Iterable[str] = ()) -> GovernanceSelection:
    """The variants to run, from the given governance, the test's marker, and the command line.

    `asked` is empty: the marker's variant, or the default. One name: that variant, whatever the marker says. Several names
    (or "all"): each of them, and the marker's. The marker's variant then decides the outcome, else the default if it was asked
    for, else the first. SpecError lists the variants if one is unknown.
    """
    default, known = named(given)
    if isinstance(given, Policy):  # a user can name every combination; tables show the standard ones
        known = {**known, **{name: given.variant(name) for name in _KNOWN if name not in known}}
    asked = tuple(dict.fromkeys(asked))
    wanted = tuple(dict.fromkeys(name for item in asked for name in (_all_variants(given) if item == ALL else (item,))))
    unknown = [name for name in (*wanted, *((marker,) if marker else ())) if name not in known]
    if unknown:
        raise SpecError(
            what="; ".join(f"unknown governance variant: {name!r}{did_you_mean(name, known)}" for name in unknown),
            fix=f"choose from {_quoted(known)}; --mat-governance all compares them",
        )
    if len(asked) == 1 and asked[0] != ALL:
        return GovernanceSelection(own=asked[0], governance={asked[0]: known[asked[0]]})
    own = marker or (default if not wanted or default in wanted else wanted[0])
    if own not in wanted:
        wanted = (*wanted, own)
    return GovernanceSelection(own=own, governance={name: known[name] for name in wanted})


def _all_variants(given: GovernanceInput) -> tuple[str, ...]:
    """The variants that "all" means: no governance first, then every given variant."""
    _, known = named(given)
    names = [name for name in known if name != NONE]
    return (NONE, *names)

"""Artifacts are used while they are valid, byte for byte as they were issued, where they belong, and in their latest version.

The contracts read facts that the recorder notes at ports with `issues=` and `consumes=`, and at calls of
mat.artifact.observed: see `mat.core.artifact`. They do not need the artifact itself, so a trace with redacted tokens can be
judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Final, Literal, TypeAlias, Unpack

from mat.core.artifact import ABSENT, FOREIGN, LIKENESS, MENTION, UNDELIVERED, UNREAD, Used, lacking, reached, used
from mat.core.errors import SpecError, did_you_mean
from mat.core.record import Record
from mat.monitor.contract import Contract, Violated
from mat_contracts._shared import judged, names_of, one_of, writes
from mat_contracts._shared import label as joined
from mat_contracts.catalogue import Options, template
from mat_contracts.observation.calls import On, SelectedCalls
from mat_contracts.observation.labels import FAILURES, OTHER, SEVERITY

ArtifactNames: TypeAlias = str | Iterable[str]
Form: TypeAlias = Literal["asked", "reached"]
"""Which form of a use is judged: as the agent asked, or as it reached the port after governance and faults."""
DAMAGE: Final[Mapping[str, str]] = {
    "truncated": OTHER,
    "wrapped": "MUTATED_TOKEN",
    "reencoded": "MUTATED_TOKEN",
    "reordered": "SIGNATURE_MISMATCH",
    "other": "MUTATED_TOKEN",
}
"""The label of each kind of damage. What the paper calls TOOL_INPUT_TOO_LONG (truncated) counts as OTHER."""
_BECAME: Final = {
    "truncated": "was truncated",
    "wrapped": "contains a line break",
    "reencoded": "was decoded or re-encoded",
    "reordered": "has its parts in another order",
    "other": "was changed",
    "": "breaks its integrity predicate",
}
_HELD: Final = {
    ABSENT: "is empty", FOREIGN: "holds something else", UNDELIVERED: "holds it without the scheme that the place needs",
}  # fmt: skip


@template
def used_while_valid(
    artifact: ArtifactNames = "*",
    *,
    on: On = None,
    form: Form = "asked",
    label: str = "EXPIRED_BEFORE_USE",
    **options: Unpack[Options],
) -> Contract:
    """An artifact is used in [issued, issued + ttl), and not after a newer one has superseded it.

    `artifact`: names of artifacts; `*` and `?` are wildcards. `on`: the calls (ports or routes) whose uses count. `form`:
    judge the use as "asked" by the agent, or as it "reached" the port. `label`: the failure label. The time of a use is the
    time at which the call was asked. A damaged artifact can be late as well.

    Raises `mat.MatError` for an empty name and for an unknown form or label.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace  # one record a second
    >>> listed, get = record("tool_call", "list", issues=[("url", 1500)]), record("tool_call", "get", uses=["url"])
    >>> broken(used_while_valid("url"), trace(listed, get))
    ()
    >>> broken(used_while_valid("url"), trace(listed, get, get))
    (2,)

    Source: seed 003, definition 2.3.
    """
    late = partial(_lateness, label=checked_label(label))
    return _use_contract(
        "used_while_valid", artifact, on, form, late, "use the artifact before it expires, or request a new one"
    )


@template
def bytes_preserved(
    artifact: ArtifactNames = "*",
    *,
    on: On = None,
    form: Form = "asked",
    labels: Mapping[str, str] | None = None,
    **options: Unpack[Options],
) -> Contract:
    """An artifact is passed on so that its integrity predicate holds: by default, exactly as it was issued.

    Inside a URL, a header or JSON it may be encoded as the format demands. `artifact` and `on` are as in `used_while_valid`.
    `labels`: damage (truncated, wrapped, reencoded, reordered, other) -> label, to replace those in `DAMAGE`. form="reached"
    judges the artifact as it reached the port. If that is violated and form="asked" is not, the path
    changed the artifact, not the agent.

    Raises `mat.MatError` for an unknown label or kind of damage.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import record, trace, violations
    >>> listed = record("tool_call", "list", issues=[("url", None)])
    >>> whole, sorted_ = (record("tool_call", "get", uses=[use]) for use in ("url", ("url", "reordered")))
    >>> violations(bytes_preserved(), trace(listed, whole))
    ()
    >>> [(item.step, item.label) for item in violations(bytes_preserved(), trace(listed, sorted_))]
    [(1, 'SIGNATURE_MISMATCH')]

    Source: D1.
    """
    damaged = partial(_damage, labels=_labels(labels))
    return _use_contract("bytes_preserved", artifact, on, form, damaged, "pass the artifact on unchanged, or by a handle")


@template
def compliant(
    artifact: ArtifactNames = "*",
    *,
    on: On = None,
    form: Form = "asked",
    labels: Mapping[str, str] | None = None,
    **options: Unpack[Options],
) -> Contract:
    """Every use of an artifact is valid and intact, and no artifact is missing where it belongs.

    The parameters are as in `used_while_valid` and `bytes_preserved`. A use that is late and damaged is labeled as late.

    Raises `mat.MatError` for an unknown label or kind of damage.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import record, trace, violations  # one record a second
    >>> listed = record("tool_call", "list", issues=[("url", 1500)])
    >>> whole, get = (record("tool_call", "get", uses=[use]) for use in ("url", ("url", "wrapped")))
    >>> violations(compliant("url"), trace(listed, whole))
    ()
    >>> [item.label for item in violations(compliant("url"), trace(listed, get, get))]
    ['MUTATED_TOKEN', 'EXPIRED_BEFORE_USE']

    Source: seed 003, definition 2.4.
    """
    chosen = _labels(labels)

    def both(item: Used, record: Record) -> tuple[str, str] | None:
        return _lateness(item, record, label="EXPIRED_BEFORE_USE") or _damage(item, record, labels=chosen)

    return _use_contract("compliant", artifact, on, form, both, "pass the artifact on in time and unchanged", lacks=True)


@template
def present(artifact: ArtifactNames = "*", *, on: On = None, **options: Unpack[Options]) -> Contract:
    """An artifact is present wherever a port declares that it consumes one.

    If the place is empty, or holds the artifact without its scheme, the label is MISSING_TOKEN; if it holds something else,
    WRONG_VALUE. A place that could not be read is not judged. `artifact` and `on` are as in `used_while_valid`.

    Raises `mat.MatError` for an empty name.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import record, trace, violations
    >>> listed, paid = record("tool_call", "list", issues=[("token", None)]), record("tool_call", "pay", uses=["token"])
    >>> violations(present("token"), trace(listed, paid))
    ()
    >>> bare = record("tool_call", "pay", lacks=[("token", "absent")])
    >>> [(item.step, item.label) for item in violations(present("token"), trace(bare))]
    [(0, 'MISSING_TOKEN')]

    Source: D1.
    """
    return _use_contract("present", artifact, on, "asked", lambda item, record: None, "put the artifact there", lacks=True)


@template
def version_fresh(
    artifact: ArtifactNames = "*",
    *,
    on: On = None,
    label: str = "VERSION_CONFLICT",
    **options: Unpack[Options],
) -> Contract:
    """Of artifacts that supersede each other (`supersedes=True`: versions, entity tags, rotated keys), the latest one is used.

    The latest artifact is the one issued last before the call was asked. The parameters are as in `used_while_valid`.

    Raises `mat.MatError` for an empty name and an unknown label.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> read = record("tool_call", "read", issues=[("etag", None)], supersedes=True)
    >>> first, latest = record("tool_call", "get", uses=["etag#1"]), record("tool_call", "get", uses=["etag"])
    >>> broken(version_fresh("etag"), trace(read, first, read, latest))
    ()
    >>> broken(version_fresh("etag"), trace(read, read, first))
    (2,)

    Source: D1.
    """
    label = checked_label(label)

    def old(item: Used, record: Record) -> tuple[str, str] | None:
        return (label, f"{item.id} was used after a newer one was issued") if item.superseded else None

    return _use_contract("version_fresh", artifact, on, "asked", old, "read again before you write")


@template
def no_stale_write(
    artifact: ArtifactNames = "*",
    *,
    on: On = None,
    label: str = "VERSION_CONFLICT",
    **options: Unpack[Options],
) -> Contract:
    """A write names the version that it changes, and this version is the latest known one (If-Match, RFC 9110, 13.1.1).

    `artifact`: the entity tags or versions that reads issue. `on`: the calls whose uses count. `label`: the failure label.
    Writes are calls of a port with effect="write", or undeclared ones whose name does not begin with a verb that reads. A
    write without a version gets the label MISSING_CONSTRAINT if its port declares that it consumes one.

    Raises `mat.MatError` for an empty name and an unknown label.

    Precision 1.00, recall 1.00 on 20 traces written without knowledge of this template.

    >>> from mat_contracts.traces import broken, record, trace
    >>> read = record("tool_call", "read", issues=[("etag", None)], supersedes=True)
    >>> write = record("tool_call", "write", effect="write", uses=["etag#1"])
    >>> broken(no_stale_write("etag"), trace(read, write))
    ()
    >>> broken(no_stale_write("etag"), trace(read, read, write))
    (2,)

    Source: D1; RFC 9110, section 13.1.1.
    """
    label = checked_label(label)

    def is_write(record: Record) -> bool:
        return writes(record.action, named=False)

    def stale(item: Used, record: Record) -> tuple[str, str] | None:
        if not is_write(record):
            return None
        if item.superseded or not (item.intact or item.guess == MENTION):
            return label, f"a write names {item.id}, which is not the current version"
        return None

    return _use_contract(
        "no_stale_write", artifact, on, "asked", stale, "read again, and write with the version that was read",
        lacks=True, absent="MISSING_CONSTRAINT", foreign=label, where=is_write,
    )  # fmt: skip


def _lateness(item: Used, record: Record, *, label: str) -> tuple[str, str] | None:
    late = item.late_ms(record.at_ms)
    if late is not None:
        return (
            label,
            f"{item.id} was used {late / 1000:g} s after it expired (it was valid for {(item.ttl_ms or 0) / 1000:g} s)",
        )
    return (label, f"{item.id} was used after a newer one superseded it") if item.superseded else None


def _damage(item: Used, record: Record, *, labels: Mapping[str, str]) -> tuple[str, str] | None:
    if item.intact or item.guess == MENTION:
        return None
    where = f" in {item.at}" if item.at else ""
    how = " (recognized by similarity)" if item.guess == LIKENESS else ""
    return labels.get(item.damage, "MUTATED_TOKEN"), f"{item.id}{where} {_BECAME[item.damage]}{how}"


UseJudgement: TypeAlias = Callable[[Used, Record], tuple[str, str] | None]
"""A use and its record -> (label, problem), or None."""


def _use_contract(
    family: str,
    artifact: ArtifactNames,
    on: On,
    form: Form,
    judge: UseJudgement,
    repair: str,
    *,
    lacks: bool = False,
    absent: str = "MISSING_TOKEN",
    foreign: str = "WRONG_VALUE",
    where: Callable[[Record], bool] | None = None,
) -> Contract:
    """A step contract on the uses of artifacts. Each broken use at a step is one violation, the most severe first."""
    names, selected = names_of(artifact, "artifact"), SelectedCalls(on)
    one_of(form, "form", ("asked", "reached"))
    uses = used if form == "asked" else reached

    def wanted(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in names)

    def wrong(record: Record) -> Iterator[tuple[str, str, str]]:
        for item in uses(record):
            found = judge(item, record) if wanted(item.name) else None
            if found is not None:
                yield (*found, item.id)
        for gap in lacking(record) if lacks else ():
            if wanted(gap.name) and gap.what != UNREAD:
                label = foreign if gap.what == FOREIGN else absent
                yield label, f"{gap.at} should hold {gap.name}, but {_HELD[gap.what]}", gap.name

    def step(state: None, record: Record) -> Violated | None:
        if not record.artefacts or selected(record) is None or (where is not None and not where(record)):
            return state
        found = sorted(wrong(record), key=lambda item: SEVERITY.index(item[0]))
        return judged([Violated(message, instance=id, label=label) for label, message, id in found], state)

    artifacts = joined(names)
    return Contract(
        id=f"observation.{family}({artifacts})", step=step, repair=repair, text=f"{family.replace('_', ' ')}: {artifacts}",
    )  # fmt: skip


def _labels(replaced: Mapping[str, str] | None) -> dict[str, str]:
    """Damage -> label: `DAMAGE` with the given replacements."""
    unknown = sorted(set(replaced or ()) - set(DAMAGE))
    if unknown:
        raise SpecError(
            what=f"unknown kind of damage: {unknown[0]!r}{did_you_mean(unknown[0], DAMAGE)}",
            fix=f"use one of {', '.join(DAMAGE)}",
        )
    return {**DAMAGE, **{name: checked_label(item) for name, item in (replaced or {}).items()}}


def checked_label(label: str) -> str:
    if label not in (*FAILURES, OTHER):
        raise SpecError(
            what=f"unknown failure label: {label!r}{did_you_mean(label, FAILURES)}", fix=f"use one of {', '.join(FAILURES)}"
        )
    return label

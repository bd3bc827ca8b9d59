"""Which points of a grid a search leaves out because another run that it executes covers them, and what that assumes.

A search leaves out a point (an operator with parameters at a call) for one of the reasons below, and for no other. Every
premise is executed, or it was declared and stands in `Certificate.assumptions`.

| left out | because | premise | known from |
|---|---|---|---|
| a point that decides nothing | the operator would let the call pass | `OperatorSpec.relevant` | the record |
| a call that governance blocked | faults act behind the mediator | the decision | the record |
| a call in the range of another injection | a call carries one effect | the schedule | the schedule |
| another order of calls | nothing else could run | `Run.contended` | the run |
| operators that a port excludes | `perturb=` keeps them away | the declaration | assumed: "not disturbed" |
| a lost reply to a read | it is a time-out | rules 1 to 4 | assumed: "change nothing" |
| a second delivery of a read | it is the run without it | rules 1 to 3 | assumed: "change nothing" |
| an older reply equal to today's | it is the run without it | rules 1 to 3 | assumed: "change nothing" |
| an equal state, effect or decision | see `mat_search.exhaust` | a complete history | checked by samples |
| the same, by the user's state digest | see `mat_search.exhaust` | the digest is complete | assumed, and sampled |

The rules for a call that is declared to change nothing (`CoveredBy` of an operator says where they may apply):

1. The call is declared: `effect="read"` or "none", or its kind says so (`mat.retriever`, a read of `mat.memory`). An undeclared
   tool may write, or consume what it replies (`next(replies)`, `stack.pop()`), so a call that reached it differs from one that
   did not.
2. Nothing happened during the call, and it took no time: no call inside it, nobody else at work, the same instant at its start
   and end. A time-out comes earlier than a reply that is lost on the way back from a slow port.
3. The call cost nothing (no resource ledger charged it), and its reply came from the port, not from a recording that
   numbers its replies.
4. The point that covers it is in the grid of this search, at this call, with the same parameters and at no greater cost; the
   port allows it. If time-outs are not in the grid, lost replies are executed.

Later injections see no difference either: the lost reply of a read is not among the earlier replies of its port
(`mat.harness.faults`), so a stale reply cannot bring it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mat.core.operator import GridPoint, OperatorSpec
from mat.core.record import Record
from mat.core.run import Run


class Covering:
    """Decides what one search leaves out by a declaration, and remembers the declarations that it relied on.

    `executed`: the operators of the search, whose points are executed. With `active=False` nothing is left out.
    """

    def __init__(self, executed: Iterable[OperatorSpec], *, active: bool = True) -> None:
        self._executed = {item.id: item for item in executed} if active else {}
        self._active = active
        self._quiet: set[str] = set()
        self._restricted: set[str] = set()

    def covers(self, operator: OperatorSpec, point: GridPoint, record: Record, before: Sequence[Record], run: Run) -> bool:
        """Whether a point at a call makes a run that the search executes anyway.

        `record`: the call in `run`, which does not have the injection; `before`: the records that ended before it was asked.
        """
        rule = operator.covered
        if rule is None or not self._active or point.span != 1 or not _is_quiet(record, run):
            return False
        if rule.by and not self._has_point(rule.by, point, record, before, run):
            return False
        if not rule.when(record, point.parameters, before):
            return False
        self._quiet.add(_port_name(record))
        return True

    def allows(self, operator: OperatorSpec, record: Record, run: Run) -> bool:
        """Whether the port of a call allows an operator (`perturb=`)."""
        if not run.restricted:
            return True
        allowed = run.restricted.get(f"{record.action.boundary}:{record.action.name}")
        if allowed is None or operator.id in allowed or operator.boundary in allowed:
            return True
        self._restricted.add(_port_name(record))
        return False

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The declarations that points were left out for, in words."""
        found = []
        if self._quiet:
            found.append(f"reads that are declared to change nothing: {', '.join(sorted(self._quiet))}")
        if self._restricted:
            found.append(f"faults that perturb= excludes at {', '.join(sorted(self._restricted))}")
        return tuple(found)

    def _has_point(self, id: str, covered: GridPoint, record: Record, before: Sequence[Record], run: Run) -> bool:
        """Rule 4: the covering operator has such a point, and it acts at this call."""
        operator = self._executed.get(id)
        if operator is None or record.action.kind not in operator.kinds or not self.allows(operator, record, run):
            return False
        return any(
            choice.parameters == covered.parameters
            and choice.span == covered.span
            and choice.cost <= covered.cost
            and operator.relevant(record, choice.parameters, before)
            for choice in operator.choices
        )


def digest_assumptions(nominal: Run) -> tuple[str, ...]:
    """What the user's state digest vouches for (`mat.spec.StateDigest`), in words."""
    if not nominal.complete:
        return ()
    found = ["the state digest is complete"]
    found += [] if nominal.clocked else ["no result depends on time"]
    found += ["numbers in replies stay in Python code"] if nominal.concolic else []
    return tuple(found)


def _is_quiet(record: Record, run: Run) -> bool:
    """Rules 1 to 3: a call that is declared to change nothing, with nothing else at work, no duration and no cost."""
    reserved = record.mediation is not None and bool(record.mediation.reserved)
    return (
        record.action.changes_nothing
        and record.sealed_seq == record.asked_seq + 1
        and record.sealed_ms == record.at_ms
        and not (record.taped or reserved or record.observation.charged)
        and record.step not in run.contended
    )


def _port_name(record: Record) -> str:
    """The port as assumptions name it: tools by their names, others with their boundary ("memory notes")."""
    action = record.action
    return action.name if action.boundary == "service" else f"{action.boundary} {action.name}"

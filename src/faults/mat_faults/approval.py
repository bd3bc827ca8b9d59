"""Change after approval: one argument changes between the approval, or another decision of governance, and the port.

>>> from mat_faults import approval
>>> [operator.id for operator in approval.operators()][:2]
['service.changed_after_approval']

Source: A5.3.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mat.boundary.catalog import Operator, operator
from mat.boundary.effect import PASS, Call, Effect, Reply, Rewrite
from mat.core.record import Record
from mat.core.value import FrozenDict, snapshot_arguments
from mat_faults.mutators import FieldPath, leaves, with_leaf
from mat_faults.site import arguments_of, is_hidden

_AMOUNTS: Final = frozenset(
    ("amount", "cents", "sum", "total", "price", "value", "quantity", "qty", "count", "units", "limit", "percent", "euros",
     "dollars", "balance", "fee")
)  # fmt: skip
_RECIPIENTS: Final = frozenset(
    ("to", "recipient", "recipients", "cc", "bcc", "iban", "account", "payee", "beneficiary", "email", "mail", "address",
     "user", "username", "phone", "host", "url", "channel")
)  # fmt: skip
_IDS: Final = frozenset(
    ("id", "ids", "order", "number", "no", "ref", "reference", "key", "code", "invoice", "ticket", "booking", "file",
     "filename", "path", "name")
)  # fmt: skip
_ADDRESS: Final = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+|[A-Z]{2}\d{2}[A-Z0-9 ]{10,32}|https?://\S+")
_IDENTIFIER: Final = re.compile(r"[A-Za-z]{0,8}[-_#]?\d[\w-]{0,40}")
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, int | float) and not isinstance(leaf, bool)


def _words(path: FieldPath) -> frozenset[str]:
    """The words in the names of a path: `customer_id` and `customerId` have two."""
    return frozenset(word.casefold() for part in path if isinstance(part, str) for word in _WORDS.findall(part))


def _find_argument(arguments: Mapping[str, Any], what: str) -> tuple[FieldPath, Any] | None:
    """The path and value of the call's amount, recipient or id, found by its name, otherwise by its form."""
    names, has_form = _KINDS[what]
    values = list(leaves(dict(arguments)))
    named = [(path, leaf) for path, leaf in values if _words(path[-1:]) & names or (len(path) > 1 and _words(path) & names)]
    if what == "amount":
        named = [item for item in named if _is_number(item[1])]
    else:
        named = [item for item in named if isinstance(item[1], str) or (what == "id" and type(item[1]) is int)]
        if what == "id":  # names of people are recipients, and names of quantities are amounts
            named = [item for item in named if not _words(item[0]) & (_RECIPIENTS | _AMOUNTS)]
    if named:
        return named[0]
    return next(((path, leaf) for path, leaf in values if has_form(leaf)), None)


_KINDS: Final[dict[str, tuple[frozenset[str], Callable[[Any], bool]]]] = {
    "amount": (_AMOUNTS, _is_number),
    "recipient": (_RECIPIENTS, lambda leaf: isinstance(leaf, str) and _ADDRESS.fullmatch(leaf) is not None),
    "id": (_IDS, lambda leaf: isinstance(leaf, str) and _IDENTIFIER.fullmatch(leaf) is not None),
}


def _other_value(leaf: Any, what: str) -> Any:
    """A plausible other value of the same JSON type: ten times the amount, another name, the next number."""
    if _is_number(leaf):
        return _other_number(leaf, what)
    if what == "recipient" and "@" in leaf:
        return f"x{leaf}"
    last = max((index for index, char in enumerate(leaf) if char.isalnum()), default=-1)
    if last < 0:
        return f"{leaf}1"
    return leaf[:last] + _next_character(leaf[last]) + leaf[last + 1 :]


def _other_number(leaf: Any, what: str) -> Any:
    changed = leaf * 10 if what == "amount" and leaf else leaf + 1
    return changed if changed != leaf and changed - changed == 0 else type(leaf)(0) if leaf != 0 else type(leaf)(1)


def _next_character(char: str) -> str:
    """Another character of the same kind: the next digit or letter, the first after the last; outside ASCII an x."""
    for row in ("0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
        if char in row:
            return row[(row.index(char) + 1) % len(row)]
    return "x"


def _change(call: Call, reply: Reply | None, stream: random.Random) -> Effect:
    what = str(call.parameters["what"])
    found = _find_argument(call.given, what)
    if found is None:
        return PASS
    (name, *rest), leaf = found
    changed = with_leaf(call.given[str(name)], tuple(rest), _other_value(leaf, what))
    return Rewrite(snapshot_arguments({str(name): changed}, f"call of {call.port}"))


def _can_change(record: Record, parameters: FrozenDict, before: Sequence[Record]) -> bool:
    """Whether an approval or governance decided on this call, and it has an argument to change or hidden arguments."""
    if record.mediation is None and not any(item.action.kind == "approval" for item in before):
        return False
    return _find_argument(arguments_of(record), str(parameters["what"])) is not None or is_hidden(arguments_of(record))


def operators() -> tuple[Operator, ...]:
    return (
        operator(
            "service.changed_after_approval", _change,
            grid=[{"what": what, "magnitude": 1} for what in ("amount", "recipient", "id")], relevant=_can_change,
            bounds={"magnitude": 1}, default=False,
            plausible="a bug, a race or an attacker between the approval and the execution",
        ),
    )  # fmt: skip

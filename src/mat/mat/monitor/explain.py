"""Explain a violated formula in words: what happened, which steps show it, and what would have satisfied it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from mat.core.errors import plural
from mat.monitor.contract import Violated
from mat.monitor.normal_form import Goal, alternatives, occurrences
from mat.monitor.temporal import (
    And,
    AtMost,
    Eventually,
    FormulaNode,
    Next,
    Not,
    Once,
    Or,
    Since,
    Started,
    Until,
    Window,
    looks_ahead,
    text,
)


def id_text(key: Any) -> str:
    """An id as reports show it: 1 and "1" are different ids, so a text that looks like another value stands in quotes."""
    if key is None:
        return ""
    if not isinstance(key, str):
        return str(key)
    return repr(key) if key in ("None", "True", "False") or _NUMBER.fullmatch(key) else key


_NUMBER: Final = re.compile(r"[-+]?\d[\d_]*(\.\d*)?([eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The texts of a goal. `message`: broken; `unmet`: open at the end; `waiting`: open on a prefix; `wanted`: satisfied."""

    message: str
    unmet: str
    waiting: str
    wanted: str
    repair: str
    seen: tuple[str, ...]

    def violated(self, step: int, key: Any, start: int, seen: tuple[int, ...]) -> Violated:
        """A violation at a step, with the obligation open since `start` (-1: this step alone); `seen`: the last occurrences."""
        witness, wanted = self.shown(step, start, seen)
        instance = id_text(key)
        since = step if start < 0 else start
        return Violated(self.message, repair=self.repair, witness=witness, instance=instance, since=since, wanted=wanted)

    def shown(self, step: int, start: int, seen: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
        """(witness, wanted): the step of an open obligation comes first."""
        if not seen:
            return ((step,) if start < 0 or start == step else (start, step)), self.wanted
        before = {last for last in seen if 0 <= last < step}
        if start >= 0:
            return (start, *sorted((before | {step}) - {start})), self._wanted(step, seen)
        return (*sorted(before), step), self._wanted(step, seen)

    def closed(self, key: Any, since: int | None) -> Violated:
        """A violation at the end of the trace. The step that opened the obligation is to blame, not the last step."""
        return Violated(
            self.unmet,
            repair=self.repair,
            step=since,
            witness=() if since is None else (since,),
            instance=id_text(key),
            since=since,
            wanted=self.wanted,
        )

    def _wanted(self, step: int, seen: tuple[int, ...]) -> str:
        phrases = [self.wanted] if self.wanted else []
        for name, last in zip(self.seen, seen, strict=True):
            if last < 0:
                phrases.append(f"there was no {name} yet")
            elif last < step:
                phrases.append(f"{name} was last at step {last}, {plural(step - last, 'step')} before")
            else:
                phrases.append(f"{name} is at this step")
        return "; ".join(phrases)


def explained(goal: Goal, message: str, repair: str) -> Explained:
    """The texts of a goal; `message` replaces the generated sentence."""
    body = goal.body.parts[1] if goal.when == "first" else goal.body
    return Explained(
        message=message or _violation_text(body),
        unmet=message
        or (f"at the end {text(body)} does not hold" if goal.when == "last" else f"{_violation_text(body)}, and the run ended"),
        waiting=message or _wanted_text(body) or text(body),
        wanted=_wanted_text(body),
        repair=repair,
        seen=tuple(text(node.right if isinstance(node, Since) else node.part) for node in occurrences(goal.body)),
    )


def _violation_text(node: FormulaNode) -> str:
    """The violation in words: for `a implies b`, a happened without b."""
    match node:
        case Or(parts=(Not(part=left), AtMost(count=count, part=part, window=window))) if left is part:
            return f"more than {count} of {text(part)}{' ' + _before_span(window) if window.bounded else ''}"
        case Or(parts=(Not(part=left), Not(part=Once(part=part)))):
            return f"{text(left)} after {text(part)}"
        case Or(parts=(Not(part=left), right)):
            return f"{text(left)} without {text(right)}"
        case Not(part=part):
            return f"{text(part)} happened"
        case _:
            return f"{text(node)} does not hold"


def _wanted_text(node: FormulaNode) -> str:
    """What would have satisfied the formula, in words; "" if the formula does not show it."""
    triggers = [part.part for part in alternatives(node) if isinstance(part, Not) and not looks_ahead(part)]
    rest = [part for part in alternatives(node) if not (isinstance(part, Not) and not looks_ahead(part))]
    if rest:
        return " or ".join(_need_text(part) for part in rest)
    return f"no {' and '.join(text(part) for part in triggers)}" if triggers else ""


def _need_text(node: FormulaNode) -> str:
    match node:
        case Once(part=part, window=window):
            return f"{text(part)} {_before_span(window)}"
        case Since(left=left, right=right, window=window):
            return f"{text(right)} {_before_span(window)}, and {text(left)} ever since"
        case Not(part=Once(part=Not(part=part), window=window)):
            return f"{text(part)} at every step{'' if not window.bounded else ' ' + _before_span(window)}"
        case Eventually(part=part, window=window):
            return f"{_need_text(part) if looks_ahead(part) else text(part)} {_after_span(window)}"
        case Not(part=Eventually(part=part, window=window)):
            return f"no {text(part)} {_after_span(window)}"
        case Until(left=left, right=right, window=window):
            return f"{text(right)} {_after_span(window)}, and {text(left)} until then"
        case Next(part=part):
            return f"{text(part)} at the next step"
        case AtMost(count=count, part=part, window=window):
            return f"at most {count} of {text(part)}{'' if not window.bounded else ' ' + _before_span(window)}"
        case And(parts=parts):
            return " and ".join(_need_text(part) for part in parts)
        case Started():
            return ""
        case _:
            return text(node)


def _before_span(window: Window) -> str:
    return _distance_text(window, "before", "at some step before, or now")


def _after_span(window: Window) -> str:
    return _distance_text(window, "after", "at some later step, or now")


def _distance_text(window: Window, word: str, ever: str) -> str:
    spans = []
    for low, high, unit in ((window.low, window.high, "step"), (window.low_ms, window.high_ms, "ms")):
        if low and high is not None:
            span = f"exactly {_amount_text(high, unit)}" if low == high else f"{low} to {_amount_text(high, unit)}"
            spans.append(f"{span} {word}")
        elif low:
            spans.append(f"at least {_amount_text(low, unit)} {word}")
        elif high is not None:
            spans.append(f"at most {_amount_text(high, unit)} {word}")
    return " and ".join(spans) or ever


def _amount_text(count: int, unit: str) -> str:
    return f"{count} ms" if unit == "ms" else plural(count, unit)

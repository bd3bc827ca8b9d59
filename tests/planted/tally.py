"""Holds what pytest-mat says of each agent against what is true, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.planted.agents import Agent
from tests.planted.oracle import HASH_SEEDS, Truth
from tests.planted.sessions import Said

BROKEN: Final = ("counterexample", "violated")
WANTED: Final = {"breakable": ("broken", 0.95), "safe": ("certified", 0.95), "dirty": ("certified", 0.95), "shared": ("", 0.0)}
"""By kind: the word that so large a share must get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An agent, what is true of it, and what one session said."""

    agent: Agent
    truth: Truth | None
    said: Said
    mode: str

    @property
    def word(self) -> str:
        """certified | broken | flaky | not proven | ..."""
        return "broken" if self.said.status in BROKEN else self.said.status.replace("_", " ")

    @property
    def cost(self) -> int | None:
        """What the counterexample costs; a nominal run that violates costs nothing."""
        return 0 if self.said.status == "violated" else self.said.cost

    @property
    def false(self) -> str:
        """Why what was said is not true, or nothing."""
        if self.agent.kind == "shared":
            return "certified, though every process sees its state" if self.word == "certified" else ""
        if self.truth is None or self.agent.kind == "hash":
            return ""
        least, bound = self.truth.cost, self.said.bound or 0
        if self.word == "certified" and least is not None and least <= bound:
            return f"certified up to {bound}, and it breaks at {least}"
        if self.word == "broken" and least is None:
            return f"broken at {self.cost}, and no schedule up to {self.agent.budget} breaks it in a fresh process"
        if self.word == "broken" and least is not None and self.cost is not None and self.cost < least:
            return f"broken at {self.cost}, and in fresh processes nothing under {least} breaks it"
        if self.word == "broken" and self.said.proven and least is not None and least <= min(bound, (self.cost or 0) - 1):
            return f"proven up to {bound} (counterexample: {self.cost}), and it breaks at {least}"
        return ""

    @property
    def weak(self) -> str:
        """What was said is not false, and not what was wanted."""
        wanted = WANTED.get(self.agent.kind, ("", 0))[0]
        return f"{self.word}, wanted: {wanted}" if wanted and self.word != wanted and not self.false else ""


def table(cases: Sequence[Case]) -> str:
    """Counts by mode and kind."""
    lines = ["mode     kind       agents  certified  broken  other  false  wanted share"]
    for mode, kind in sorted({(case.mode, case.agent.kind) for case in cases}):
        some = [case for case in cases if (case.mode, case.agent.kind) == (mode, kind)]
        words = Counter(case.word for case in some)
        wanted, least = WANTED.get(kind, ("", 0.0))
        share = f"{wanted} {words[wanted] / len(some):.1%} (at least {least:.0%})" if wanted else "-"
        other = len(some) - words["certified"] - words["broken"]
        lines.append(
            f"{mode:8} {kind:10} {len(some):6}  {words['certified']:9}  {words['broken']:6}  {other:5}  "
            f"{sum(bool(case.false) for case in some):5}  {share}"
        )
    return "\n".join([*lines, *_other_words(cases), *_hidden(cases), *_hash_lines(cases)])


def _other_words(cases: Sequence[Case]) -> list[str]:
    words = Counter((case.agent.kind, case.word) for case in cases if case.word not in ("certified", "broken"))
    return [f"other words: {kind}: {word} {count}" for (kind, word), count in sorted(words.items())]


def _hidden(cases: Sequence[Case]) -> list[str]:
    """How many of the breakable ones show nothing in a process that has executed them once."""
    truths = {case.agent.name: case.truth for case in cases if case.agent.kind == "breakable" and case.truth}
    hidden = sum(truth.cost is not None and truth.warm is None for truth in truths.values())
    return [f"breakable ones that no schedule breaks after one undisturbed run: {hidden} of {len(truths)}"] if truths else []


def _hash_lines(cases: Sequence[Case]) -> list[str]:
    lines = []
    for mode in sorted({case.mode for case in cases if case.agent.kind == "hash"}):
        some = [case for case in cases if case.agent.kind == "hash" and case.mode == mode and case.truth]
        missed = [case for case in some if case.word == "certified"]
        words = Counter(case.word for case in some)
        lines.append(
            f"{mode}: hash-dependent: {len(missed)} of {len(some)} missed ({len(missed) / max(len(some), 1):.0%}); "
            + ", ".join(f"{word} {count}" for word, count in sorted(words.items()))
        )
        for low, high in ((1, 4), (5, 8), (9, 15)):
            share = [case for case in some if low <= len(case.truth.hash_seeds) <= high]  # type: ignore[union-attr]
            if share:
                count = sum(case.word == "certified" for case in share)
                lines.append(f"  broken under {low} to {high} of {len(HASH_SEEDS)} seeds: {count} of {len(share)} missed")
        told = Counter(case.said.relative_to for case in missed)
        lines += [f"  certified relative to: {text or '(nothing stated)'} ({count})" for text, count in told.most_common(3)]
    return lines


def different(cases: Iterable[Case]) -> list[str]:
    """Agents of whom the modes say different words."""
    by_name: dict[str, dict[str, Case]] = {}
    for case in cases:
        by_name.setdefault(case.agent.name, {})[case.mode] = case
    return [
        f"{name} ({'; '.join(f'{mode}: {case.said.words}' for mode, case in modes.items())}): "
        f"{next(iter(modes.values())).agent.what}"
        for name, modes in by_name.items()
        if len({case.said.words for case in modes.values()}) > 1
    ]


def described(case: Case) -> str:
    """One line, and why."""
    cheapest = case.truth.schedules[0] if case.truth and case.truth.schedules else ""
    reason = f"; reason: {case.said.reason}" if case.said.reason else ""
    return f"{case.agent.name} [{case.mode}] {case.false or case.weak}: {case.agent.what} {cheapest}{reason}".strip()


def too_few(cases: Sequence[Case]) -> list[str]:
    """Kinds that get the wanted word less often than they must."""
    problems = []
    for mode, kind in sorted({(case.mode, case.agent.kind) for case in cases}):
        wanted, least = WANTED.get(kind, ("", 0.0))
        some = [case for case in cases if (case.mode, case.agent.kind) == (mode, kind)]
        share = sum(case.word == wanted for case in some) / len(some)
        if wanted and share < least:
            problems.append(f"too few: {mode}: {kind}: {share:.1%} are {wanted}, and {least:.0%} must be")
    return problems

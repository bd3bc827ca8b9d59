"""One counterexample as a person reads it, without any script: what broke, under what, how sure, where, and how to run it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mat.core.record import Record
from mat.core.run import Run
from mat.core.spec import Perturbation
from mat.core.verdict import Violation
from mat.evidence.artifact import Replay, hit_step
from mat.monitor.localize import backward_slice, region
from mat.monitor.propagation import reaching, speaks_of, way
from mat.report import words
from mat.report.page.markup import Child, Markup, breakable, joined, tag

__all__ = ["badge", "counterexample"]

_CELL: Final = 90
_PATHS: Final = 3
"""Faults on the way to one violation that are told."""
_OTHERS: Final = 5
"""Other violations of the same run that are told."""


def badge(said: str, style: str) -> Markup:
    return tag("span", said, class_=f"badge {style}".rstrip())


def counterexample(number: int, replay: Replay, *, opened: int | None, how_to_replay: str) -> Markup:
    """The story. `opened`: the place of its trace in the page, None where that was left out."""
    found, verdict = replay.counterexample, replay.counterexample.verdict
    run = found.run
    head = tag(
        "header",
        tag("h3", tag("code", verdict.contract)),
        badge(verdict.severity, "bad" if verdict.severity == "hard" else "warn"),
        badge(f"cost {found.cost}", "warn"),
        badge("flaky", "warn") if found.flaky else None,
        badge("expected", "") if replay.expected else None,
        tag("a", "Open trace", href=f"#trace={opened}&step={verdict.step}", class_="button") if opened is not None else None,
    )
    return tag(
        "article",
        head,
        tag("p", verdict.message, class_="message"),
        tag("p", _where(verdict), " in ", tag("code", breakable(replay.item)), class_="where"),
        tag("dl", *_facts(replay, how_to_replay), class_="facts"),
        _steps(run, verdict),
        id=f"counterexample-{number}",
        class_="counterexample",
    )


def _where(verdict: Violation) -> str:
    who = f" by {verdict.agent}" if verdict.agent else ""
    role = f" ({verdict.role})" if verdict.role and verdict.role != verdict.agent else ""
    instance = f", instance {verdict.instance}" if verdict.instance else ""
    return f"{verdict.stage.capitalize()} at step {verdict.step}{who}{role}{instance}"


def _facts(replay: Replay, how_to_replay: str) -> Iterator[Markup]:
    found, verdict, run = replay.counterexample, replay.counterexample.verdict, replay.counterexample.run
    yield from _fact("Schedule", _schedule(run))
    yield from _fact("Certificate", words.certificate_in_words(replay.certificate, found.cost))
    yield from _fact("Stability", words.stability_in_words(found.stability))
    yield from _fact("Label", verdict.label)
    yield from _fact("Wanted", verdict.wanted)
    yield from _fact("Repair", verdict.repair)
    yield from _fact("Provenance", _provenance(run, verdict))
    yield from _fact("Also broken", _others(run, verdict))
    yield from _fact("Not controlled", "; ".join(finding.message for finding in run.uncontrolled))
    yield from _fact("Replay", tag("code", how_to_replay, class_="copy") if how_to_replay else "")


def _fact(name: str, said: Child) -> Iterator[Markup]:
    if said:
        yield joined(tag("dt", name), tag("dd", said))


def _schedule(run: Run) -> Child:
    if not len(run.spec.schedule):
        return "Empty: the undisturbed run does this."
    ordered = sorted(run.spec.schedule, key=lambda item: (_hit(run, item), item.key))
    return tag(
        "ol",
        *(
            tag(
                "li",
                words.perturbation_in_words(item),
                ". ",
                tag("code", words.perturbation_in_data(item, hit_step(run, item))),
            )
            for item in ordered
        ),
        class_="plain",
    )


def _hit(run: Run, item: Perturbation) -> int:
    step = hit_step(run, item)
    return len(run.records) if step is None else step


def _provenance(run: Run, verdict: Violation) -> Child:
    """The backward slice, and the faults whose path leads to the violating step (A4.3)."""
    lines: list[str] = []
    by_step = {record.step: record for record in run.records}
    found = backward_slice(run.records, verdict.step)
    if found:
        named = ", ".join(f"{step} ({words.action_text(by_step[step])})" if step in by_step else str(step) for step in found)
        lines.append(f"Step {verdict.step} was built from steps {named}.")
    for journey in reaching(run, verdict)[:_PATHS]:
        lines.append(f"Fault: {journey.fault.entered}.")
        path = () if speaks_of(verdict, journey.fault) else journey.path
        if len(path) > 1 and way(path) not in verdict.message:
            lines.append(f"What it touched on the way, which is not what was necessary: {way(path)}.")
    return tag("ul", *(tag("li", line) for line in lines), class_="plain") if lines else None


def _others(run: Run, verdict: Violation) -> Child:
    others = [found for found in run.violations if found != verdict]
    lines = [f"{found.contract} at step {found.step}: {found.message}" for found in others[:_OTHERS]]
    if len(others) > _OTHERS:
        lines.append(f"and {len(others) - _OTHERS} more")
    return tag("ul", *(tag("li", line) for line in lines), class_="plain") if lines else None


def _steps(run: Run, verdict: Violation) -> Markup:
    """The steps that explain the violation; the whole trace is in the viewer."""
    steps = region(run.records, verdict)
    if not steps:
        return Markup("")
    columns = ("step", "ms", "agent", "action", "arguments", "reply", "effect", "")
    head = tag("tr", *(tag("th", column or "marks", scope="col") for column in columns))
    caption = f"Steps {steps[0].step} to {steps[-1].step} of {len(run.records)}"
    body = (_step(record, run, verdict) for record in steps)
    shown = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body), class_="steps")
    return tag("div", shown, class_="scroll")


def _step(record: Record, run: Run, verdict: Violation) -> Markup:
    broken = dict.fromkeys(found.contract for found in run.violations if found.step == record.step)
    marks = [*(badge(mark, "warn") for mark in words.marks(record)), *(badge(f"violates {name}", "bad") for name in broken)]
    cells: tuple[Child, ...] = (
        record.step, record.at_ms, record.agent, words.action_text(record), words.asked_text(record, _CELL),
        words.shorten(words.observed_text(record.observation), _CELL), words.effect_text(record),
    )  # fmt: skip
    return tag(
        "tr",
        *(
            tag("td", cell, class_="num" if place < 2 else "any" if place in (4, 5) else None)
            for place, cell in enumerate(cells)
        ),
        tag("td", *marks),
        class_="broken" if record.step == verdict.step else None,
    )

"""A schedule, a certificate, a value, in words a person reads."""

from __future__ import annotations

import textwrap
from typing import Final

from mat.core.campaign import Certificate, Stability
from mat.core.digest import canonical
from mat.core.record import Observation, Record
from mat.core.site import Site
from mat.core.spec import Perturbation
from mat.core.value import FrozenDict
from mat.evidence.artifact import printable
from mat.measure.estimate import Estimate, Spread

WIDTH: Final = 110
clean: Final = printable
_PHRASES: Final = {
    "service.timeout": "{the_call} times out and has no effect",
    "service.lost_ack": "the reply of {the_call} is lost after the effect happened",
    "service.stale": "{the_call} is answered with an old reply",
    "service.corrupt_field": "a field in the reply of {the_call} is corrupted",
    "service.outage": "{port} is down: {the_call} fails",
    "service.delay": "the reply of {the_call} arrives late",
    "service.error": "{the_call} is answered with an error and has no effect",
    "service.partial": "a part of the reply of {the_call} is missing",
    "service.duplicate": "{the_call} is done twice",
    "retrieval.shuffle": "the passages of {the_call} come in another order",
    "retrieval.drop": "a passage of {the_call} is missing",
    "retrieval.poison": "{the_call} finds a document that somebody planted",
    "memory.lost_write": "{the_call} is lost without an error",
    "memory.stale_read": "{the_call} reads an old state",
    "memory.insert": "{the_call} finds an entry that the team did not write",
    "memory.reorder": "the entries of {the_call} come in another order",
    "model.rate_limit": "{the_call} is refused with a rate limit",
    "model.malformed_call": "{the_call} answers with a malformed tool call",
    "model.empty": "{the_call} answers with nothing",
    "prompt.truncate": "{the_call} is cut short",
    "delegation.drop": "{the_call} is lost",
    "prompt.splice": "text is spliced into {the_call}",
}
_CALLS: Final = {
    "service": "the {nth} {port} call by {agent}",
    "retrieval": "the {nth} search of {port} by {agent}",
    "memory": "the {nth} use of memory {port} by {agent}",
    "model": "the {nth} call of model {port} by {agent}",
    "prompt": "the {nth} message from {port} to {agent}",
    "delegation": "the {nth} message or task from {agent} to {port}",
    "order": "the {nth} turn of {port} by {agent}",
}
_FALLBACK: Final = "{operator} acts on {the_call}"


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def call_in_words(site: Site) -> str:
    nth = ordinal(site.nth) if site.last == site.nth else f"{ordinal(site.nth)} to {ordinal(site.last)}"
    return _CALLS[site.boundary].format(nth=nth, port=clean(site.name), agent=clean(site.agent))


def perturbation_in_words(item: Perturbation) -> str:
    """One perturbation as a sentence without its full stop; unknown operators get a general one."""
    phrase = _PHRASES.get(item.operator, _FALLBACK)
    return phrase.format(operator=item.operator, port=clean(item.site.name), the_call=call_in_words(item.site))


def perturbation_in_data(item: Perturbation, step: int | None) -> str:
    """The same as a person would write it in code, with its cost and the step it hit."""
    hit = "not reached" if step is None else f"step {step}"
    return f"{item.operator}{_parameters(item.parameters)} at {item.site}, cost {item.cost}, {hit}"


def _parameters(parameters: FrozenDict) -> str:
    return f"({fields(parameters, 60)})" if parameters else ""


def fields(arguments: FrozenDict, limit: int) -> str:
    """Arguments as name=value, shortened."""
    return shorten(", ".join(f"{clean(name)}={value_text(item)}" for name, item in arguments.items()), limit)


def value_text(value: object) -> str:
    return clean(canonical(value))


def observed_text(observation: Observation) -> str:
    """What came back, on one line."""
    if observation.cancelled:
        return "cancelled"
    if observation.error is not None:
        return clean(f"{observation.error.type}: {observation.error.message}")
    if observation.opaque:
        return f"<{value_text(observation.value)}>"
    return "" if observation.value is None else value_text(observation.value)


def action_text(record: Record) -> str:
    return f"{record.action.kind} {clean(record.action.name)}"


def certificate_in_words(certificate: Certificate, cost: int) -> str:
    """What the search says about cheaper counterexamples than one of this cost."""
    skipped = sum(count for count in certificate.skipped.values() if isinstance(count, int))
    looked = f"{certificate.executions} executions, bound {certificate.bound}, {skipped} skipped"
    if not certificate.proven:
        why = certificate.reason or "the search did not finish"
        return f"Not proven that it is the cheapest: {clean(why)} ({looked})."
    if certificate.bound >= cost - 1:
        return f"No cheaper counterexample exists on this grid: {looked}."
    return f"No counterexample of cost {certificate.bound} or less exists on this grid; up to {cost} it is open: {looked}."


def stability_in_words(stability: Stability) -> str:
    if stability.runs == 0:
        return "It was not run again."
    said = f"It was reproduced in {stability.reproduced} of {stability.runs} executions"
    return f"{said}." if stability.stable else f"{said}: the failure is real, but not stable."


def share(estimate: Estimate) -> str:
    """A proportion with its interval, in percent."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{100 * estimate.value:.0f}% [{100 * estimate.low:.0f}-{100 * estimate.high:.0f}] n={estimate.n}"


def seen(spread: Spread) -> str:
    """median, and the range where there is one."""
    if spread.median is None:
        return "-"
    return str(spread.median) if spread.least == spread.most else f"{spread.median} [{spread.least}-{spread.most}]"


def wrap(text: str, *, indent: str = "", hanging: str | None = None) -> str:
    """A paragraph within WIDTH; a word longer than a line is left whole, so that paths can be copied."""
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent if hanging is None else hanging, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip

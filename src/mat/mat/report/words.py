"""Turns schedules, certificates, values and numbers into the sentences and figures of reports."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Final, cast

from mat.core.campaign import Certificate, Stability
from mat.core.digest import canonical
from mat.core.errors import plural as plural
from mat.core.errors import printable
from mat.core.operator import ERRORS
from mat.core.record import Observation, Record
from mat.core.redact import is_hashed
from mat.core.run import UNCAUGHT, Run
from mat.core.site import ABOUT_CALLS, Site
from mat.core.spec import Perturbation, Schedule
from mat.core.value import FrozenDict
from mat.evidence.replay_file import hit_step
from mat.measure.estimate import Estimate, Spread
from mat.measure.stability import reproduction
from mat.report.document import ItemLine

WIDTH: Final = 110
"""The width of paragraphs in text files, in columns."""
clean: Final = printable
_PHRASES: Final = {
    "service.timeout": "{the_call} times out and has no effect",
    "service.lost_ack": "the reply of {the_call} is lost after the effect happened",
    "service.drop": "{the_call} is dropped: it has no effect and returns no reply",
    "service.drop_reply": "{the_call} takes effect but returns no reply",
    "service.stale": "{the_call} is answered with an old reply",
    "service.corrupt_field": "a field in the reply of {the_call} is corrupted",
    "service.invalid_field": "a field in the reply of {the_call} has a value that its schema does not allow",
    "service.schema_mismatch": "the reply of {the_call} does not fit its schema",
    "service.metadata": "the metadata in the reply of {the_call} is changed",
    "service.tool_description": "the tool descriptions that {the_call} lists are poisoned",
    "service.http_status": "{the_call} is refused with a status",
    "service.http_gateway": "{the_call} takes effect, and a proxy answers with a status",
    "service.http_cut": "the connection breaks while the reply of {the_call} is sent",
    "service.http_reply": "something other than the service answers {the_call}",
    "service.outage": "{port} is down during {the_call}",
    "service.flapping": "{port} is flapping: every other call fails, at {the_call}",
    "service.delay": "the reply of {the_call} arrives late",
    "service.slow": "{port} gets slower and slower during {the_call}",
    "service.error": "{the_call} is answered with an error and has no effect",
    "service.partial": "a part of the reply of {the_call} is missing",
    "service.duplicate": "{the_call} is executed twice",
    "service.path_truncate": "an argument of {the_call} is truncated on the way",
    "service.path_wrap": "a line break is inserted into a token in the arguments of {the_call}",
    "service.path_reencode": "a URL in the arguments of {the_call} is decoded on the way",
    "service.path_reorder": "the query parameters in the arguments of {the_call} are sorted on the way",
    "service.path_label": "a link in the reply of {the_call} shows its label instead of its address",
    "service.changed_after_approval": "an argument of {the_call} is changed after the call was allowed",
    "retrieval.shuffle": "the passages of {the_call} are shuffled",
    "retrieval.drop": "a passage of {the_call} is missing",
    "retrieval.poison_view": "{the_call} finds a planted document in one view of its results",
    "retrieval.poison": "{the_call} finds a planted document",
    "retrieval.truncate": "the text of a passage of {the_call} is truncated",
    "retrieval.near_duplicates": "near-duplicates of one passage crowd out others in {the_call}",
    "retrieval.score_noise": "the scores of {the_call} are noisy",
    "retrieval.empty": "{the_call} finds nothing",
    "retrieval.stale": "{the_call} returns stale results",
    "memory.lost_write": "{the_call} is lost without an error",
    "memory.stale_read": "{the_call} reads an old state",
    "memory.insert": "{the_call} finds an entry that the team did not write",
    "memory.reorder": "the entries of {the_call} are reordered",
    "memory.truncate": "entries of {the_call} are missing",
    "memory.collision": "{the_call} collides with a write by another agent",
    "model.rate_limit": "{the_call} is refused with a rate limit",
    "model.malformed_call": "{the_call} answers with a malformed tool call",
    "model.empty": "{the_call} answers with nothing",
    "model.wrong_tool": "{the_call} calls the wrong tool",
    "model.refusal": "{the_call} answers with a refusal",
    "model.truncated": "the answer of {the_call} is cut short",
    "model.token_overrun": "{the_call} does not stop and spends many more tokens",
    "model.tool_description": "{the_call} gets poisoned tool descriptions",
    "model.cut": "the stream of {the_call} ends early",
    **{
        f"{family}.stream_{name}": text
        for family in ("model", "service")
        for name, text in (
            ("error", "the stream of {the_call} reports a failure"),
            ("stall", "the stream of {the_call} is silent"),
            ("repeat", "a chunk of the stream of {the_call} comes twice"),
            ("cut", "the stream of {the_call} ends early"),
        )
        if (family, name) != ("model", "cut")
    },
    "model.unknown_tool": "{the_call} calls a tool that does not exist",
    "model.invalid_arguments": "{the_call} calls a tool with arguments that its schema does not allow",
    "model.repeated_call": "{the_call} makes one tool call twice",
    "model.contradiction": "{the_call} calls a tool and says that it does not",
    "model.stale": "{the_call} is answered with its previous reply",
    "prompt.truncate": "{the_call} is cut short",
    "prompt.splice": "text is spliced into {the_call}",
    "prompt.paraphrase": "{the_call} is paraphrased",
    "prompt.ambiguity": "{the_call} is made ambiguous",
    "prompt.reorder": "the parts of {the_call} are reordered",
    "prompt.distract": "a distraction is added to {the_call}",
    "delegation.drop": "{the_call} is lost",
    "delegation.delay": "{the_call} arrives late",
    "delegation.duplicate": "{the_call} is delivered twice",
    "delegation.alter": "the text of {the_call} is altered on the way",
    "process.crash": "{the_call} takes effect, then the process ends and is started again",
    "order.hold": "others go first: {the_call} waits",
}
_WAYS: Final = {
    ("service.error", "kind", "server_error"): "{the_call} is answered with a server error and has no effect",
    ("service.error", "kind", "rate_limit"): "{the_call} is refused with a rate limit and has no effect",
    ("service.error", "kind", "auth"): "{the_call} is refused for its credentials and has no effect",
    ("service.error", "kind", "not_found"): "{the_call} is answered with a not-found error",
    ("service.error", "kind", "invalid"): "{the_call} is refused as invalid and has no effect",
    ("service.corrupt_field", "how", "empty"): "a field in the reply of {the_call} is empty",
    ("service.corrupt_field", "how", "wrong"): "a field in the reply of {the_call} is wrong",
    ("service.invalid_field", "how", "negative"): "a number in the reply of {the_call} is negative",
    ("service.invalid_field", "how", "huge"): "a number in the reply of {the_call} is out of range",
    ("service.invalid_field", "how", "enum"): "a value in the reply of {the_call} is outside its enumeration",
    ("service.invalid_field", "how", "overlong"): "a text in the reply of {the_call} is far too long",
    ("service.invalid_field", "how", "date"): "a date in the reply of {the_call} is invalid",
    ("service.invalid_field", "how", "encoding"): "a text in the reply of {the_call} is in the wrong encoding",
    ("service.schema_mismatch", "how", "null"): "a field in the reply of {the_call} is null",
    ("service.schema_mismatch", "how", "missing"): "a key is missing in the reply of {the_call}",
    ("service.schema_mismatch", "how", "type"): "a field in the reply of {the_call} has the wrong type",
    ("service.schema_mismatch", "how", "array"): "a field in the reply of {the_call} is a list instead of a single value",
    ("service.schema_mismatch", "how", "extra"): "the reply of {the_call} has a key that its schema does not know",
    ("service.metadata", "how", "version"): "the reply of {the_call} states another version",
    ("service.metadata", "how", "etag"): "the entity tag in the reply of {the_call} is stale",
    ("service.metadata", "how", "timestamp"): "a timestamp in the reply of {the_call} is a day old",
    ("service.metadata", "how", "id"): "an id in the reply of {the_call} is replaced by another one",
    ("service.metadata", "how", "status"): "the status code in the reply of {the_call} is replaced by another one",
    ("service.metadata", "how", "content_type"): "the reply of {the_call} states another content type",
    ("service.tool_description", "how", "instruction"): "a tool that {the_call} lists gives instructions in its description",
    ("service.tool_description", "how", "required"): "a tool that {the_call} lists requires an additional parameter",
    ("service.tool_description", "how", "swap"): "two tools that {the_call} lists have swapped descriptions",
    ("service.tool_description", "how", "enum"): "a tool that {the_call} lists declares other allowed values",
    ("model.tool_description", "how", "instruction"): "{the_call} gets a tool with instructions in its description",
    ("model.tool_description", "how", "required"): "{the_call} gets a tool that requires an additional parameter",
    ("model.tool_description", "how", "swap"): "{the_call} gets two tools with swapped descriptions",
    ("model.tool_description", "how", "enum"): "{the_call} gets a tool with wrong allowed values",
    ("service.http_reply", "how", "content_type"): "{the_call} is answered with a web page",
    ("service.http_reply", "how", "redirect"): "{the_call} is answered with a redirect to a login page",
    ("service.http_reply", "how", "etag"): "{the_call} is answered with an old ETag",
    ("service.http_reply", "how", "empty"): "{the_call} is answered with an empty body",
    ("model.cut", "kind", "connection"): "the connection breaks during the stream of {the_call}",
    ("retrieval.poison_view", "view", "text"): "{the_call} finds a planted document in the text of its results alone",
    ("retrieval.poison_view", "view", "structured"): "{the_call} finds a planted document in its structured content alone",
    ("service.stream_cut", "kind", "connection"): "the connection breaks during the stream of {the_call}",
    ("model.invalid_arguments", "how", "missing"): "{the_call} calls a tool without one of its arguments",
    ("model.invalid_arguments", "how", "type"): "{the_call} calls a tool with an argument of the wrong type",
    ("model.invalid_arguments", "how", "null"): "{the_call} calls a tool with an argument that is null",
    ("model.invalid_arguments", "how", "extra"): "{the_call} calls a tool with an argument that it does not have",
    ("delegation.alter", "how", "swap_ids"): "two ids in the text of {the_call} are swapped on the way",
    ("delegation.alter", "how", "append_instruction"): "an instruction is appended to {the_call} on the way",
    ("delegation.alter", "how", "truncate"): "the text of {the_call} is cut short on the way",
    ("delegation.alter", "how", "drop_constraint"): "a condition in the text of {the_call} is lost on the way",
}
"""Phrases by operator, parameter and value, where the value says more than the operator alone."""
_CALLS: Final = {
    "service": "the {nth} {port} call by {agent}",
    "retrieval": "the {nth} search of {port} by {agent}",
    "memory": "the {nth} use of memory {port} by {agent}",
    "model": "the {nth} call of model {port} by {agent}",
    "prompt": "the {nth} message from {port} to {agent}",
    "delegation": "the {nth} message or task from {agent} to {port}",
    "order": "the {nth} turn of {port} by {agent}",
    "process": "the {nth} call of {port} by {agent}",
}
_EVERYBODY: Final = 100
"""A number of turns that means: until nothing else can run."""
_FALLBACK: Final = "{operator} acts on {the_call}"


CONDITIONS: Final = {"nominal": "nominal", "fault": "under faults", "adversarial": "adversarial", "replay": "replays"}
ASPECTS: Final = {"pass": "pass (both)", "success": "task success", "compliance": "contracts kept"}
MEASURES: Final = {"success": "Task success", "compliance": "No hard contract broken"}
DISTRIBUTED: Final = {
    "steps_to_termination": "steps to termination", "steps_to_failure": "steps to failure",
    "first_violation": "first violating step", "latency_ms": "run time",
}  # fmt: skip


def distribution_title(name: str, condition: str) -> str:
    return f"{DISTRIBUTED.get(name, name).capitalize()}, {CONDITIONS[condition]}"


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def call_in_words(site: Site) -> str:
    nth = ordinal(site.nth) if site.last == site.nth else f"{ordinal(site.nth)} to {ordinal(site.last)}"
    boundary, name = site.boundary, site.name
    if boundary in ABOUT_CALLS:  # the site names the call whose turn it is, or where the process ends
        inner, dot, rest = name.partition(".")
        if dot and rest and inner in _CALLS:
            boundary, name = inner, rest  # type: ignore[assignment]
    return _CALLS[boundary].format(nth=nth, port=clean(name), agent=clean(site.agent))


def perturbation_in_words(item: Perturbation) -> str:
    """One perturbation as a sentence without a full stop. An unknown operator gets a general sentence."""
    phrase = _PHRASES.get(item.operator, _FALLBACK)
    for name, value in item.parameters.items():
        phrase = _WAYS.get((item.operator, name, value), phrase) if isinstance(value, str) else phrase
    sentence = phrase.format(operator=item.operator, port=clean(item.site.name), the_call=call_in_words(item.site))
    client = item.parameters.get(ERRORS)
    client_text = f", as {client} reports it" if isinstance(client, str) else ""
    return (sentence + _amount(item) if item.operator in _PHRASES else sentence) + client_text


def _amount(item: Perturbation) -> str:
    """How long, how often or how much: what the parameters of a known operator add to its sentence."""
    found = item.parameters
    if item.operator in ("service.delay", "delegation.delay") and type(found.get("ms")) is int:
        return f", by {seconds(found['ms'])}"
    if item.operator == "service.slow" and type(found.get("ms")) is int:
        return f", {seconds(found['ms'])} more"
    if item.operator in ("service.http_status", "service.http_gateway") and type(found.get("status")) is int:
        return f" {found['status']}"
    if isinstance(found.get("goal"), str):
        return f" that says to {clean(found['goal'])}"
    if type(found.get("chunks")) is int:
        silence = f" for {seconds(found['ms'])}" if type(found.get("ms")) is int else ""
        return f"{silence}, after {plural(found['chunks'], 'chunk')}"
    if type(found.get("chunk")) is int:
        return f", chunk {found['chunk']}"
    if item.operator == "order.hold" and type(found.get("turns")) is int:
        return f" for {plural(found['turns'], 'other call')}" if found["turns"] < _EVERYBODY else " until nothing else can run"
    return ""


def seconds(ms: int) -> str:
    """Milliseconds as text: whole seconds as "2 s", everything else as "1500 ms"."""
    return f"{ms // 1000} s" if ms % 1000 == 0 else f"{ms} ms"


def replay_command(file: str, *, folder: str = "") -> str:
    """The command that runs a replay file again. Only with "=" does pytest not look for its root folder near the file.

    `folder`: the project's, if it is another one than this.
    """
    elsewhere = PurePath(file).is_absolute()
    first = f"cd {shlex.quote(clean(folder))} && " if folder else ""
    return f"{first}pytest --mat-replay{'=' if elsewhere else ' '}{shlex.quote(clean(file))}"


def show_command(file: str) -> str:
    """The command that shows a replay file."""
    return f"mat show {shlex.quote(clean(file))}"


def in_order_of_steps(run: Run) -> list[Perturbation]:
    """The perturbations of a run by the step that each acted on; those whose site was not reached come last."""

    def position(item: Perturbation) -> tuple[int, tuple[str, ...]]:
        step = hit_step(run, item)
        return len(run.records) if step is None else step, item.key

    return sorted(run.spec.schedule, key=position)


def in_order_of_calls(schedule: Schedule) -> list[Perturbation]:
    """The perturbations of a schedule whose run is not at hand, those of each port by the number of the call."""
    return sorted(schedule, key=lambda item: (item.site, item.key))


def under_schedule(schedule: str) -> str:
    """The schedule of a run as the end of a phrase; "" for a nominal run."""
    return f" under {schedule}" if schedule else ""


def perturbation_in_data(item: Perturbation, step: int | None) -> str:
    """One perturbation in code notation, with its cost and the step that it acted on."""
    hit = "not reached" if step is None else f"step {step}"
    return f"{item.operator}{_parameters(item.parameters)} at {item.site}, cost {item.cost}, {hit}"


def _parameters(parameters: FrozenDict) -> str:
    return f"({fields(parameters, 60)})" if parameters else ""


def fields(arguments: FrozenDict, limit: int) -> str:
    """Arguments as name=value, shortened."""
    return shorten(", ".join(f"{clean(name)}={value_text(item)}" for name, item in arguments.items()), limit)


def value_text(value: object) -> str:
    """A recorded value on one line; one that is kept as a hash says how long it was."""
    if is_hashed(value):
        assert isinstance(value, Mapping)
        return f"<hash of {plural(value['length'], 'character')}>"
    return clean(canonical(value))


def hashed_text(record: Record) -> str:
    """Which arguments of a step are kept as a hash, and the option that keeps their text; "" if none is."""
    names = [clean(name) for name, value in record.action.arguments.items() if is_hashed(value)]
    if not names:
        return ""
    option = 'record="keep"'
    if record.action.kind == "model_call":
        option += ' of mat.model or mat.patch, or prompts="keep" of mat.attach,'
    return f"{', '.join(names)}: recorded as a hash; {option} keeps the text"


def observed_text(observation: Observation) -> str:
    """The reply of a step, on one line."""
    if observation.cancelled:
        return "cancelled"
    if observation.error is not None:
        return clean(f"{observation.error.type}: {observation.error.message}")
    if observation.opaque:
        return f"<{value_text(observation.value)}>"
    return "" if observation.value is None else value_text(observation.value)


def action_text(record: Record) -> str:
    return f"{record.action.kind} {clean(record.action.name)}"


def asked_text(record: Record, limit: int) -> str:
    """The arguments of a step and, if other arguments were executed, those that differ."""
    asked, executed = record.action.arguments, record.executed
    text = fields(asked, limit)
    changed = {} if executed is None else {name: item for name, item in executed.items() if asked.get(name) != item}
    return f"{text} -> executed {fields(FrozenDict(changed), limit)}" if changed else text


def effect_text(record: Record) -> str:
    """Whether the effect of a write, or of an undeclared call, happened; "" for other steps."""
    if not record.action.may_write:
        return ""
    return f"{'write' if record.action.effect == 'write' else 'undeclared effect'}: {record.effected}"


def marks(record: Record) -> list[str]:
    """Faults that changed a step, and the mediator's decision if it was not to allow."""
    acted = [note.operator for note in record.faults if note.changed]
    found = ["held: others went first" if name.startswith("order.") else f"fault {clean(name)}" for name in acted]
    if record.mediation is not None and record.mediation.decision != "allow":
        found.append({"block": "blocked", "rewrite": "rewritten"}[record.mediation.decision])
    return found


def and_more(name: str, count: int) -> str:
    """A name and how many further ones it stands for: "refund.once (+1)"."""
    return f"{name} (+{count - 1})" if count > 1 else name


def certificate_in_words(certificate: Certificate, cost: int) -> str:
    """What the search has proven about counterexamples cheaper than `cost`, and what the proof assumes."""
    executions, bound = plural(certificate.executions, "execution"), certificate.bound
    if cost == 0:
        return f"The nominal run breaks the contract, so there is no cheaper counterexample: {executions}."
    skipped = sum(count for count in certificate.skipped.values() if isinstance(count, int))
    effort = f"{executions}, {f'bound {bound}, ' if bound else ''}{skipped} skipped"
    if certificate.estimate or not certificate.proven:
        why = certificate.reason or "the search did not finish"
        unproven = f"Not proven to be the cheapest: {clean(why)}"
        return f"{estimate_in_words(certificate)} {unproven}." if certificate.estimate else f"{unproven} ({effort})."
    given = f", relative to {clean(certificate.given)}" if certificate.given else ""
    if not bound and cost == 1:
        return f"No cheaper counterexample exists on this grid{given}: the nominal run breaks nothing ({effort})."
    if not bound:
        return f"The nominal run breaks nothing; costs 1 to {cost} are undecided: {effort}."
    if bound >= cost - 1:
        return f"No cheaper counterexample exists on this grid{given}: {effort}."
    return f"No counterexample of cost {bound} or less exists on this grid{given}; costs up to {cost} are undecided: {effort}."


def uncaught_failures(line: ItemLine) -> tuple[str, ...]:
    """Which injected failures left the body of an item's test uncaught."""
    return tuple(found.removeprefix(f"{UNCAUGHT}: ") for found in line.findings if found.startswith(f"{UNCAUGHT}: "))


def certified_relative_to(line: ItemLine) -> str:
    """What the certificate of a certified item takes as given, except the hash seeds, which every certificate names, and
    from when it is, if it is not of this session."""
    given = "; ".join(part for part in line.relative_to.split("; ") if not part.startswith("hash seeds "))
    return certified_in_words(given, line.reused) if line.status == "certified" else ""


def certified_in_words(given: str, reused: str) -> str:
    """What a certificate takes as given, and the day from which it is reused; "" if it has neither."""
    parts = [f"reused from {reused}"] if reused else []
    parts += [f"relative to {given}"] if given else []
    if not parts:
        return ""
    return f"certified, {', '.join(parts)}" if reused else f"certified {parts[0]}"


def estimate_in_words(certificate: Certificate) -> str:
    """The interval that replaces a proof; "" without an interval, or if nothing was run."""
    found = estimate_of(certificate)
    return "" if found is None else estimated_share(found)


def estimate_of(certificate: Certificate) -> Estimate | None:
    """The share of random schedules that break a contract, which replaces a proof; None without one, or if nothing was run."""
    found = certificate.estimate
    value, low, high = (found.get(name) for name in ("value", "low", "high"))
    if not isinstance(value, float) or not isinstance(low, float) or not isinstance(high, float):
        return None
    return Estimate(
        value=value, low=low, high=high, n=cast("int", found["n"]), method=str(found["method"]),
        confidence=cast("float", found["confidence"]),
    )  # fmt: skip


def estimated_share(found: Estimate) -> str:
    """The share of random schedules that break a contract, as a sentence."""
    value, low, high = (percent(cast("float", share)) for share in (found.value, found.low, found.high))
    return (
        f"{value} of random schedules within the budget break a contract: {found.confidence:.0%} interval "
        f"[{low}, {high}] after {plural(found.n, 'run')} ({clean(found.method)}, valid at any stopping time)."
    )


def percent(share: float) -> str:
    """A share in percent, with enough digits to distinguish it from 0 and 100."""
    return f"{100 * share:.1f}%" if 0.001 <= share <= 0.999 or share in (0.0, 1.0) else f"{100 * share:.3g}%"


def rounded_percent(share: float | None) -> str:
    """A share in whole percent; near 0 and 100 with enough digits to distinguish it from them."""
    if share is None:
        return "unknown"
    if 0.0 < share < 0.0995 or 0.9005 < share < 1.0:
        return f"{100 * share:.1f}%" if 0.0005 <= share <= 0.9995 else ("<0.1%" if share < 0.5 else ">99.9%")
    return f"{100 * share:.0f}%"


def built_from(run: Run, step: int, sources: Sequence[int]) -> str:
    """What recorded provenance says of a step: the steps whose values it was built from."""
    by_step = {record.step: record for record in run.records}
    steps = ", ".join(f"{each} ({action_text(by_step[each])})" if each in by_step else str(each) for each in sources)
    return f"By recorded provenance, step {step} was built from {'step' if len(sources) == 1 else 'steps'} {steps}."


def stability_in_words(stability: Stability) -> str:
    """How often a counterexample was reproduced, on its seed and on others; for a flaky one the rate and its interval."""
    if stability.runs == 0:
        return "It was not executed again."
    sentence = f"It was reproduced in {stability.reproduced} of {plural(stability.runs, 'execution')}"
    if not stability.stable:
        sentence += f": the failure is real, but not stable (FLAKY: seen again in {share(reproduction(stability))})"
    return f"{sentence}.{_on_other_seeds(stability)}"


def _on_other_seeds(stability: Stability) -> str:
    if not stability.other_seeds:
        return ""
    if not stability.shown_on:
        return f" The same schedule breaks the contract on none of {plural(stability.other_seeds, 'other seed')}."
    seeds = ", ".join(str(seed) for seed in stability.shown_on)
    return (
        f" The same schedule breaks the contract on {len(stability.shown_on)} of "
        f"{plural(stability.other_seeds, 'other seed')} too (seed {seeds})."
    )


def share(estimate: Estimate) -> str:
    """A share with its interval, in percent, and the number of observations."""
    return quantity(estimate, "share")


def quantity(estimate: Estimate, unit: str, *, n: int | None = None) -> str:
    """A value with its interval; "-" without data. The count is omitted if it equals `n`; "..." is an open end."""
    if estimate.value is None:
        return "-"
    sign = "%" if unit == "share" else ""
    number = _percent if unit == "share" else amount
    low, high = ("..." if end is None else number(end) for end in (estimate.low, estimate.high))
    to = " to " if min(estimate.value, estimate.low or 0.0, estimate.high or 0.0) < 0 else "-"
    text = f"{number(estimate.value)}{sign} [{low}{to}{high}]"
    return text if estimate.n == n else f"{text} n={estimate.n}"


def _percent(share: float) -> str:
    """Whole percent, with one decimal where that distinguishes the share from 0 and 1."""
    if 0.0 < share < 0.005 or 0.995 < share < 1.0:
        return f"{100 * share:.1f}" if 0.0005 <= share <= 0.9995 else "<0.1" if share < 0.5 else ">99.9"
    return f"{100 * share:.0f}"


def amount(value: float) -> str:
    """A number with about three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def seen(spread: Spread) -> str:
    """The median, and the range if the values differ."""
    if spread.median is None:
        return "-"
    return str(spread.median) if spread.least == spread.most else f"{spread.median} [{spread.least}-{spread.most}]"


def wrap(text: str, *, indent: str = "", hanging: str | None = None, width: int = WIDTH) -> str:
    """Wrap a paragraph. A word longer than a line stays whole, so that paths can be copied.

    No line begins with `::`: continuous integration takes such lines of a log for commands, whoever wrote them.
    """
    wrapped = textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=indent if hanging is None else hanging, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return _COMMAND.sub(r"\1: :", wrapped) if "::" in wrapped else wrapped


_COMMAND: Final = re.compile(r"^([^\S\n]*)::", re.MULTILINE)


def filler(width: int | None) -> Callable[..., str]:
    """`wrap` for one width; None means the width of text files."""
    return partial(wrap, width=width or WIDTH)


def of_variant(name: str) -> str:
    """Which governance variant the tables without a variant column show."""
    variant = f"{FIRST_VARIANTS} variant" if name == FIRST_VARIANTS else f"the governance variant {clean(name)}"
    return f"Tables without a variant column show {variant}."


FIRST_VARIANTS: Final = "each test's first"
"""What a report names as its variant if the tests ran under different ones first."""
INTERRUPTED: Final = "The session was interrupted; tests that did not run are missing."

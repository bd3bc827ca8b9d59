"""The corpora, their contracts, and the tables."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from corpora import catalog, reference, service, teams
from corpora.formats import read_traces
from corpora.measure import (
    DATA,
    NEAR,
    Flags,
    Judged,
    Located,
    Namer,
    by_contracts,
    by_first_error,
    by_last_step,
    expected_at_random,
    flags,
    judged,
    located,
)
from mat.adapters.importers import StoredTrace
from mat.core.record import Record
from mat.core.value import FrozenDict
from mat.measure.estimate import Estimate
from mat.measure.interval import wilson
from mat.monitor.contract import Contract
from mat.monitor.judge import judge

ContractsFor = Callable[[StoredTrace], Sequence[Contract]]
Failed = Callable[[Mapping[str, Any]], bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A corpus: its file below DATA, its contracts, how its labels say that a run failed, and what is asked of it.

    `keep` chooses rows by their labels. `reference`: the runs are reference solutions and no contract may object.
    """

    name: str
    path: str
    contracts: ContractsFor
    failed: Failed
    source: str
    keep: Callable[[Mapping[str, Any]], bool] = lambda labels: True
    annotated: bool = False
    reference: bool = False


def _by_reward(labels: Mapping[str, Any]) -> bool | None:
    """Failed where the reward is below 1; a run that the infrastructure crashed says nothing about the agent."""
    reward = labels.get("reward")
    return None if labels.get("crashed") or reward is None else reward < 1


def _always(labels: Mapping[str, Any]) -> bool | None:
    return True


def _never(labels: Mapping[str, Any]) -> bool | None:
    return False


def _fixed(contracts: Sequence[Contract]) -> ContractsFor:
    return lambda stored: contracts


def _agentdojo(stored: StoredTrace) -> Sequence[Contract]:
    """By what the deployment knows: the suite, and whether the task is a user's."""
    return reference.agentdojo(stored.labels["suite"], user_task=stored.labels["task_kind"] == "user")


def corpora() -> tuple[Corpus, ...]:
    """All corpora, each with its one set of contracts."""
    return (
        Corpus(
            name="massim-otel", path="massim-otel/traces.jsonl.gz", contracts=_fixed(catalog.contracts()), failed=_always,
            annotated=True, source="the catalogue's description and each task's success criteria",
        ),
        Corpus(
            name="tau-bench airline", path="tau-bench/gpt-4o-airline.jsonl.gz", contracts=_fixed(service.airline()),
            failed=_by_reward, source="the airline policy in the first message of every run",
        ),
        Corpus(
            name="tau-contract-agents retail", path="tau-contract-agents/agentverify-retail-4conditions.jsonl.gz",
            contracts=_fixed(service.retail()), failed=_by_reward, source="tau-bench's retail policy",
        ),
        Corpus(
            name="agentrx tau-retail", path="agentrx/tau-retail-failed-annotated.jsonl.gz", contracts=_fixed(service.retail()),
            failed=_always, annotated=True, source="tau-bench's retail policy",
        ),
        Corpus(
            name="agentrx magentic-one", path="agentrx/magentic-one-annotated.jsonl.gz", contracts=_fixed(teams.contracts()),
            failed=_always, annotated=True, source="general templates",
        ),
        Corpus(
            name="whowhen group chats", path="whowhen/whowhen.jsonl.gz", contracts=_fixed(teams.contracts()), failed=_always,
            annotated=True, source="general templates", keep=lambda labels: labels.get("subset") == "Algorithm-Generated",
        ),
        Corpus(
            name="whowhen magentic-one", path="whowhen/whowhen.jsonl.gz", contracts=_fixed(teams.contracts()), failed=_always,
            annotated=True, source="general templates", keep=lambda labels: labels.get("subset") != "Algorithm-Generated",
        ),
        Corpus(
            name="agentdojo reference", path="agentdojo-groundtruth/groundtruth-traces-v1.2.2.jsonl.gz", contracts=_agentdojo,
            failed=_never, reference=True, source="the suites' tools, and the words of the user",
        ),
        Corpus(
            name="bfcl reference", path="bfcl-multiturn/bfcl_v4_multi_turn.jsonl.gz", contracts=_fixed(reference.bfcl()),
            failed=_never, reference=True, source="the descriptions of the services",
        ),
        Corpus(
            name="tau2 reference", path="tau2-tasks/tau2-tasks-airline-retail.jsonl.gz", contracts=_fixed(reference.tau2()),
            failed=_never, reference=True, source="the airline and retail policies",
        ),
    )  # fmt: skip


def runs_of(corpus: Corpus) -> list[Judged]:
    """All runs of a corpus, judged; FileNotFoundError where its file is absent."""
    if not (DATA / corpus.path).is_file():
        raise FileNotFoundError(DATA / corpus.path)
    return [
        judged(stored, corpus.contracts(stored), corpus.failed)
        for stored in read_traces(DATA / corpus.path)
        if corpus.keep(stored.labels)
    ]


def ids_of(corpus: Corpus) -> tuple[str, ...]:
    """The contracts of a corpus in their order; where they depend on the run, of the first run that has most."""
    found: tuple[str, ...] = ()
    for stored in read_traces(DATA / corpus.path):
        ids = tuple(contract.id for contract in corpus.contracts(stored))
        found = ids if len(ids) > len(found) else found
    return found


# -- numbers ----------------------------------------------------------------------------------------------------------


def said(estimate: Estimate) -> str:
    """An estimate for people: value, interval and n."""
    if estimate.value is None:
        return "none (n=0)"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}] n={estimate.n}"


def number(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": _short(estimate.value), "low": _short(estimate.low), "high": _short(estimate.high), "n": estimate.n,
    }  # fmt: skip


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _flag_numbers(found: Flags) -> dict[str, Any]:
    return {
        "flagged": found.flagged, "precision": number(found.precision), "recall": number(found.recall),
        "base": number(found.base), "beats_base": found.beats_base,
    }  # fmt: skip


def _located_numbers(found: Located) -> dict[str, Any]:
    near = {
        ("exact" if distance == 0 else f"within_{distance}"): number(item)
        for distance, item in zip(NEAR, found.near, strict=True)
    }
    return {"named": found.named, **near, "agent": number(found.agent)}


NAMERS: Mapping[str, Namer] = {"contracts": by_contracts, "first error": by_first_error, "last step": by_last_step}
_YES_NO: Mapping[bool | None, str] = {True: "yes", False: "no", None: "-"}
DOMAIN_ONLY = frozenset(("catalog.plan_carries_the_question", "catalog.answer_answers"))
"""The catalogue's contracts that know its kinds of questions; the others hold of any plan, call, reply and answer."""


def by_general_contracts(run: Judged) -> int | None:
    general = tuple(finding for finding in run.findings if finding.contract not in DOMAIN_ONLY)
    return by_contracts(replace(run, findings=general))


# -- tables -----------------------------------------------------------------------------------------------------------


def report(corpus: Corpus) -> dict[str, Any]:
    """Print what the contracts say of one corpus; the same as numbers."""
    if not (DATA / corpus.path).is_file():
        print(f"\n== {corpus.name}: skipped, {corpus.path} is absent")
        return {"skipped": f"{corpus.path} is absent"}
    began = time.perf_counter()
    runs = runs_of(corpus)
    seconds = time.perf_counter() - began
    unknown = [f"{run.id}: {error}" for run in runs for error in run.errors]
    crashed = sum(bool(run.labels.get("crashed")) for run in runs)
    print(f"\n== {corpus.name}: {len(runs)} rows imported and judged in {seconds:.1f} s; contracts from {corpus.source}")
    print(f"   unknown outcomes: {len(unknown)}; crashed by the infrastructure, counted apart: {crashed}")
    found: dict[str, Any] = {"rows": len(runs), "crashed": crashed, "unknown": unknown, "halves": {}}
    for half in ("report", "all"):
        chosen = [run for run in runs if half == "all" or run.half == half]
        found["halves"][half] = _half(corpus, chosen, "all rows" if half == "all" else "report half")
    if corpus.name == "massim-otel":
        found["faults"] = _faults(runs)
        found["repaired"] = _repaired(corpus)
    if corpus.name == "agentdojo reference":
        found["injected"] = _injected(corpus)
    if crashed:
        found["conditions"] = _conditions(runs)
    return found


def _half(corpus: Corpus, runs: Sequence[Judged], title: str) -> dict[str, Any]:
    if corpus.reference:
        loud = {run.id: sorted({finding.contract for finding in run.findings}) for run in runs if run.findings}
        hard = sum(run.flagged_by() for run in runs)
        print(f"   {title}: {len(runs)} reference runs, flagged by hard contracts: {said(wilson(hard, len(runs)))}")
        if loud:
            print(f"   flagged at all: {said(wilson(len(loud), len(runs)))}: {loud}")
        return {"rows": len(runs), "hard": number(wilson(hard, len(runs))), "flagged": loud}
    overall = flags(runs)
    rows = {"any hard": overall} | {id: flags(runs, id) for id in ids_of(corpus)}
    print(f"   {title}: base rate of failure {said(overall.base)}")
    print(f"   {'contract':<42} {'flags':>5}  {'precision':<27} {'recall':<27} beats the base rate")
    for name, row in rows.items():
        if row.flagged or name == "any hard":
            print(f"   {name:<42} {row.flagged:>5}  {said(row.precision):<27} {said(row.recall):<27} {_YES_NO[row.beats_base]}")
    silent = [name for name, row in rows.items() if not row.flagged and name != "any hard"]
    print(f"   never broken: {', '.join(silent) or 'none'}")
    numbers: dict[str, Any] = {"rows": len(runs), "contracts": {name: _flag_numbers(row) for name, row in rows.items()}}
    if corpus.annotated:
        numbers["localisation"] = _localisation(runs)
    return numbers


def _localisation(runs: Sequence[Judged]) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    print(f"   {'step named by':<14} {'named':>5}  {'exact':<27} {'within 1':<27} {'within 3':<27} agent")
    for name, namer in NAMERS.items():
        found = located(runs, namer)
        numbers[name] = _located_numbers(found)
        cells = " ".join(f"{said(item):<27}" for item in found.near)
        print(f"   {name:<14} {found.named:>5}  {cells} {said(found.agent)}")
    shares = expected_at_random(runs)
    numbers["random step"] = dict(zip(("exact", "within_1", "within_3", "agent"), map(_short, shares), strict=True))
    cells = " ".join(f"{'none' if share is None else f'{share:.2f} expected':<27}" for share in shares)
    print(f"   {'random step':<14} {'':>5}  {cells}")
    blamed = Counter(run.named.contract for run in runs if run.named is not None)
    print(f"   the step was named by: {', '.join(f'{name} {count}' for name, count in sorted(blamed.items()))}")
    return numbers


def _faults(runs: Sequence[Judged]) -> dict[str, Any]:
    """massim: by kind of fault, whether it was flagged and whether the named step is the fault's; what was missed."""
    kinds = sorted({str(run.labels["fault_mode"]) for run in runs})
    chosen = {kind: [run for run in runs if run.labels["fault_mode"] == kind] for kind in kinds}
    chosen |= {"silent": [run for run in runs if _silent(run)], "all": list(runs)}
    numbers = {kind: _fault_numbers(some) for kind, some in chosen.items()}
    columns = ("runs", "flagged", "exact", "within_1", "general_exact", "first_error_exact")
    print("   " + f"{'fault':<20}" + "".join(f"{column:>19}" for column in columns))
    for kind, counts in numbers.items():
        print("   " + f"{kind:<20}" + "".join(f"{counts[column]:>19}" for column in columns))
    return {"kinds": numbers, **_blamed_elsewhere(runs)}


def _fault_numbers(runs: Sequence[Judged]) -> dict[str, int]:
    ours, general, error = (located(runs, namer) for namer in (by_contracts, by_general_contracts, by_first_error))
    return {
        "runs": len(runs), "flagged": ours.named, "exact": _hits(ours, 0), "within_1": _hits(ours, 1),
        "general_exact": _hits(general, 0), "first_error_exact": _hits(error, 0),
    }  # fmt: skip


def _blamed_elsewhere(runs: Sequence[Judged]) -> dict[str, Any]:
    """Steps before the fault are sound: what is blamed there is a false alarm. What comes later may follow from the fault."""
    early = later = 0
    for run in runs:
        truth = run.truth or 0
        early += sum(run.steps[finding.step][0] < truth for finding in run.findings)
        later += sum(run.steps[finding.step][0] > truth for finding in run.findings)
        if run.named is None or run.steps[run.named.step][0] != truth:
            named = "nothing" if run.named is None else f"step {run.steps[run.named.step][0]} ({run.named.contract})"
            print(f"   missed: {run.id} ({run.labels['fault_mode']} at step {truth}): named {named}")
    sound = sum(index < (run.truth or 0) for run in runs for index, _ in run.counted)
    print(f"   sound steps before the fault: {sound}, of them blamed: {early}; violations at later steps: {later}")
    return {"sound_steps": sound, "wrongly_blamed": early, "later": later}


def _repaired(corpus: Corpus) -> dict[str, Any]:
    """massim has no sound run: each run with the expected query and answer in place of what went wrong, judged again."""
    stored = list(read_traces(DATA / corpus.path))
    loud = {}
    for item in stored:
        _, outcomes = judge(repaired(item), corpus.contracts(item))
        broken = sorted(outcome.contract for outcome in outcomes if outcome.violations and outcome.contract != _TOOL_FAILED)
        if broken:
            loud[item.id] = broken
    print(f"   the same runs repaired by what was expected, flagged: {said(wilson(len(loud), len(stored)))} {loud or ''}")
    return {"runs": len(stored), "flagged": loud}


_TOOL_FAILED = "catalog.tool_answers"
"""A tool that failed gave no reply to put in its place: its own contract stays broken in a repaired run."""


def repaired(stored: StoredTrace) -> list[Record]:
    """The records of a massim run as they should have been, by its labels; a failed call is only given its right arguments."""
    query = FrozenDict(stored.labels["expected_arguments"])
    records = list(stored.records)
    failed = any(record.action.kind == "tool_call" and record.observation.error is not None for record in records)
    answer = _INCOMPLETE if failed else _expected(stored.labels["expected_answer"])
    return [_right(record, query, answer) for record in records]


_INCOMPLETE = "The task could not be completed."


def _expected(answer: Mapping[str, Any]) -> str:
    if "item_ids" in answer:
        return ", ".join(answer["item_ids"])
    if "answer" in answer:
        return "Yes, it does." if answer["answer"] else "No, it does not."
    return f"Item {answer['item_id']} at ${answer['price']}." if "item_id" in answer else f"There are {answer['count']}."


def _right(record: Record, query: FrozenDict, answer: str) -> Record:
    action, observation, value = record.action, record.observation, record.observation.value
    if action.kind == "final_response":
        return replace(record, action=replace(action, arguments=FrozenDict({"answer": answer})))
    if action.kind == "tool_call":
        error = observation.error and replace(observation.error, kind="timeout")
        reply = FrozenDict({**value, "query": query}) if isinstance(value, Mapping) else value
        return replace(
            record, action=replace(action, arguments=query), observation=replace(observation, value=reply, error=error)
        )
    if action.kind == "model_call" and isinstance(value, Mapping):
        right = {name: query for name in ("query", "tool_arguments") if name in value}
        return replace(record, observation=replace(observation, value=FrozenDict({**value, **right})))
    return record


def _silent(run: Judged) -> bool:
    """Whether no span of the run has an error."""
    return run.first_error is None


def _hits(found: Located, near: int) -> int:
    estimate = found.near[NEAR.index(near)]
    return round((estimate.value or 0) * estimate.n)


def _conditions(runs: Sequence[Judged]) -> dict[str, Any]:
    """tau-contract-agents: by condition, crashed runs apart."""
    numbers = {}
    print(f"   {'condition':<22} {'runs':>4} {'crashed':>7}  {'failed':<27} {'precision of any hard':<27} recall")
    for condition in sorted({run.labels["condition"] for run in runs}):
        chosen = [run for run in runs if run.labels["condition"] == condition]
        crashed, found = sum(bool(run.labels["crashed"]) for run in chosen), flags(chosen)
        numbers[condition] = {"runs": len(chosen), "crashed": crashed, **_flag_numbers(found)}
        cells = f"{said(found.base):<27} {said(found.precision):<27} {said(found.recall)}"
        print(f"   {condition:<22} {len(chosen):>4} {crashed:>7}  {cells}")
    return numbers


def _injected(corpus: Corpus) -> dict[str, Any]:
    """AgentDojo: an attacker's calls in place of a user's: each user task's words with each injection task's calls."""
    stored = list(read_traces(DATA / corpus.path))
    users = [item for item in stored if item.labels["task_kind"] == "user"]
    attacks = [item for item in stored if item.labels["task_kind"] != "user"]
    flagged = total = 0
    for attack in attacks:
        calls = [record for record in attack.records if record.action.kind == "tool_call"]
        if not any(record.action.effect == "write" for record in calls):
            continue
        for user in users:
            if user.labels["suite"] == attack.labels["suite"]:
                prompt = [record for record in user.records if record.action.kind == "message"][:1]
                _, outcomes = judge(_joined(prompt, calls), reference.agentdojo(user.labels["suite"], user_task=True))
                total += 1
                flagged += any(outcome.violations for outcome in outcomes)
    print(f"   an attacker's calls under a user's words: flagged {said(wilson(flagged, total))}")
    return {"pairs": total, "flagged": number(wilson(flagged, total))}


def _joined(prompt: Sequence[Record], calls: Sequence[Record]) -> list[Record]:
    return [
        replace(record, step=step, asked_seq=2 * step, sealed_seq=2 * step + 1, at_ms=0, sealed_ms=0)
        for step, record in enumerate((*prompt, *calls))
    ]

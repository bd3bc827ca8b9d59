"""The runs that fail an item, one entry each: what the end of a session shows of them."""

from __future__ import annotations

from collections.abc import Sequence

from mat.core.campaign import BrokenRun, Counterexample, ItemResult, Stability
from mat.core.run import Run
from mat.core.verdict import Violation
from mat.evidence.replay_file import Replay
from mat_study.evaluation import Evaluated, Lost
from mat_study.means import Subject
from mat_study.stress import Failure


def broken_runs(
    subject: Subject, result: ItemResult, failure: Failure | None, reported: Evaluated | Lost
) -> tuple[BrokenRun, ...]:
    """The counterexamples that fail the item, by run; or its nominal run or replay, if that breaks a contract.

    A strict replay has none: its report says all of it.
    """
    if failure is not None:
        return _of_search(result, failure.extra)
    if result.status != "violated" or isinstance(reported, Lost) or reported.plan.mode == "strict":
        return ()
    run = reported.run
    contracts = frozenset(each.contract for each in run.failures)
    contracts = contracts - subject.settings.expect or contracts
    recorded = reported.plan.replay
    if recorded is not None:
        return (broken_replay(run, recorded, contracts, file=subject.replay),)
    return (broken_run(run, next(each for each in run.failures if each.contract in contracts), contracts),)


def broken_replay(run: Run, recorded: Replay, contracts: frozenset[str], *, file: str) -> BrokenRun:
    """The run of a replay that breaks some of these contracts. Its file shows that only if the recorded one is among them."""
    found = [each for each in run.failures if each.contract in contracts]
    first = next((each for each in found if each.contract == recorded.counterexample.verdict.contract), None)
    return broken_run(run, found[0], contracts) if first is None else broken_run(run, first, contracts, files=[file])


def _of_search(result: ItemResult, contracts: frozenset[str]) -> tuple[BrokenRun, ...]:
    """The counterexamples to these contracts, in their order. Several that one run shows are one entry."""
    by_run: dict[str, list[tuple[Counterexample, str]]] = {}
    for found, file in zip(result.counterexamples, result.replays, strict=True):
        if found.verdict.contract in contracts:
            by_run.setdefault(found.run.id, []).append((found, file))
    entries = []
    for group in by_run.values():
        group.sort(key=lambda pair: pair[0].verdict.step)
        first, files = group[0][0], [file for _, file in group]
        stability = next((each.stability for each, _ in group if each.flaky), first.stability)
        entries.append(broken_run(first.run, first.verdict, contracts, files=files, stability=stability))
    return tuple(entries)


def broken_run(
    run: Run, first: Violation, contracts: frozenset[str], *, files: Sequence[str] = (), stability: Stability = Stability()
) -> BrokenRun:
    """A run that breaks some of these contracts, `first` of all at the step of that violation."""
    others = (each.contract for each in run.failures if each.contract in contracts)
    return BrokenRun(
        verdict=first, contracts=tuple(dict.fromkeys([first.contract, *others])), schedule=run.spec.schedule,
        place=run.place(first.step), replays=tuple(files), stability=stability,
    )  # fmt: skip

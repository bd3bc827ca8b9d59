"""The runs of an item that break contracts, one entry each: what the end of a session shows of them."""

from __future__ import annotations

from dataclasses import replace

from mat.core.campaign import (
    BrokenRun,
    Counterexample,
    FindingStanding,
    ItemResult,
    Standing,
    broken_run,
)
from mat.core.run import Run
from mat.evidence.replay_file import Replay
from mat_study.evaluation import Evaluated, Lost
from mat_study.means import Subject
from mat_study.settings import ItemSettings
from mat_study.standing import standings_in


def broken_runs(subject: Subject, result: ItemResult, reported: Evaluated | Lost) -> tuple[BrokenRun, ...]:
    """The runs of an item that break contracts, by run and standing: those that fail the item, then the others.

    They are its counterexamples; or its nominal run or replay, if that breaks a contract. A strict replay has none: its report
    says all of it.
    """
    if result.standings:
        return _of_search(result)
    if isinstance(reported, Lost) or reported.plan.mode == "strict":
        return ()
    run, recorded = reported.run, reported.plan.replay
    if recorded is not None and result.status in ("violated", "accepted", "known"):
        return replay_runs(run, recorded, subject.settings, file=subject.replay)
    if result.status != "violated":
        return ()
    contracts = frozenset(each.contract for each in run.failures)
    contracts = contracts - subject.settings.expect or contracts
    return (broken_run(run, next(each for each in run.failures if each.contract in contracts), contracts),)


def replay_runs(run: Run, recorded: Replay, settings: ItemSettings, *, file: str) -> tuple[BrokenRun, ...]:
    """The run of a replay, an entry for each standing of what it breaks: what fails it first."""
    standings = standings_in(run, settings)
    entries = []
    for kind in ("new", "accepted", "known"):
        found = [each for each in standings if each.standing.kind == kind]
        if found:
            contracts = frozenset(each.violation.contract for each in found)
            made = _broken_replay(run, recorded, contracts, file=file)
            standing = next((each.standing for each in found if each.violation == made.verdict), found[0].standing)
            entries.append(replace(made, standing=standing))
    if not entries and run.failures:  # an expected contract that a replay is not expected to break
        contracts = frozenset(each.contract for each in run.failures)
        entries.append(_broken_replay(run, recorded, contracts, file=file))
    return tuple(entries)


def _broken_replay(run: Run, recorded: Replay, contracts: frozenset[str], *, file: str) -> BrokenRun:
    """The run of a replay that breaks some of these contracts. Its file shows that only if the recorded one is among them."""
    found = [each for each in run.failures if each.contract in contracts]
    first = next((each for each in found if each.contract == recorded.counterexample.verdict.contract), None)
    return broken_run(run, found[0], contracts) if first is None else broken_run(run, first, contracts, files=[file])


def _of_search(result: ItemResult) -> tuple[BrokenRun, ...]:
    """The counterexamples of a search. Several of one standing that one run shows are one entry."""
    groups: dict[tuple[str, Standing], list[tuple[Counterexample, str, FindingStanding]]] = {}
    for found, file, standing in zip(result.counterexamples, result.replays, result.standings, strict=True):
        groups.setdefault((found.run.id, standing.kind), []).append((found, file, standing))
    entries = []
    for group in groups.values():
        group.sort(key=lambda each: each[0].verdict.step)
        first, _, standing = group[0]
        stability = next((each.stability for each, _, _ in group if each.flaky), first.stability)
        contracts = frozenset(each.verdict.contract for each, _, _ in group)
        files = [file for _, file, _ in group]
        made = broken_run(first.run, first.verdict, contracts, files=files, stability=stability)
        remark = "; ".join(dict.fromkeys(each.remark for _, _, each in group if each.remark))
        until = min((each.until for _, _, each in group if each.until), default="")
        entries.append(replace(made, standing=replace(standing, remark=remark, until=until)))
    return tuple(sorted(entries, key=lambda each: each.standing.kind != "new"))

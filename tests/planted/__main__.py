"""Draws agents, asks pytest-mat about them, and holds its words against the truth. See `--help`."""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.planted import oracle, sessions, tally
from tests.planted.agents import KINDS, Agent, draw
from tests.planted.not_yet import reason
from tests.planted.oracle import Truth
from tests.planted.tally import Case

PRINTING = threading.Lock()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    folder = Path(options.folder).resolve()
    folder.mkdir(parents=True)
    groups = [
        (kind, number, min(sessions.GROUP, options.count - start))
        for kind in options.kinds
        for number, start in enumerate(range(0, options.count, sessions.GROUP))
    ]
    groups.sort(key=lambda group: group[1])  # all kinds early, so that a run that is stopped says something of each
    with ThreadPoolExecutor(options.jobs) as pool:
        found = list(pool.map(lambda group: _group(options, folder, *group), groups))
    cases = [case for some, _ in found for case in some]
    wrongly_drawn = Counter(what for _, some in found for what in some)
    return _conclude(options, folder, cases, wrongly_drawn)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    def some(of: Sequence[str]):
        def parse(text: str) -> list[str]:
            found = [name for name in text.split(",") if name]
            if unknown := sorted({*found} - {*of}):
                raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are: {', '.join(of)}")
            return found

        return parse

    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--count", type=int, default=12, help="agents of each kind (default 12)")
    parser.add_argument("--seed", type=int, default=0, help="what they are drawn from (default 0)")
    parser.add_argument("--modes", type=some(sessions.MODES), default=["one"], help="of one,workers,resume (default one)")
    parser.add_argument("--kinds", type=some(KINDS), default=list(KINDS), help=f"of {','.join(KINDS)} (default all)")
    parser.add_argument("--jobs", type=int, default=1, help="sessions at a time (default 1)")
    parser.add_argument("--folder", required=True, help="a new folder for modules, output and failures")
    return parser.parse_args(arguments)


def _group(options: argparse.Namespace, folder: Path, kind: str, number: int, count: int) -> tuple[list[Case], list[str]]:
    """The agents of one group, in each mode."""
    stream = random.Random(f"{options.seed}/{kind}/{number}")
    prefix = f"{kind[0]}{options.seed}x{number}n"
    agents, truths, wrong = _drawn(kind, count, prefix, stream)
    hash_seed = stream.randrange(1000, 100_000)
    cases = []
    for mode in options.modes:
        place = folder / f"{kind}-{number}-{mode}"
        said = sessions.said(agents, place, mode, hash_seed=hash_seed, stream=stream)
        some = [Case(agent=agent, truth=truths.get(agent.name), said=said[agent.name], mode=mode) for agent in agents]
        _report(folder, place, some, hash_seed)
        cases += some
    return cases, wrong


def _drawn(kind: str, count: int, prefix: str, stream: random.Random) -> tuple[list[Agent], dict[str, Truth], list[str]]:
    """Agents of a kind of which the oracle says that they are, and what was drawn in vain."""
    agents: list[Agent] = []
    truths: dict[str, Truth] = {}
    wrong: list[str] = []
    serial = 0
    while len(agents) < count:
        some = []
        for _ in range(count - len(agents)):
            some.append(draw(kind, f"{prefix}{serial}", stream))
            serial += 1
        if kind == "shared":
            return some, {}, []
        found = oracle.hash_truths(some) if kind == "hash" else oracle.truths(some)
        for agent in some:
            truth = found[agent.name]
            if truth.errors or not _is(kind, truth):
                wrong.append(f"{kind}: {agent.what}: {', '.join(truth.errors) or 'no such agent'}")
            else:
                agents.append(agent)
                truths[agent.name] = truth
        assert serial < 20 * count + 100, f"hardly anything drawn is {kind}: {wrong[:5]}"
    return agents, truths, wrong


def _is(kind: str, truth: Truth) -> bool:
    if kind == "hash":
        return 0 < len(truth.hash_seeds) < len(oracle.HASH_SEEDS)
    return (truth.cost is not None) == (kind == "breakable")


def _report(folder: Path, place: Path, cases: Sequence[Case], hash_seed: int) -> None:
    """Appends what is known so far, and keeps the modules of failures apart."""
    with PRINTING, open(folder / "cases.jsonl", "a") as stream:
        for case in cases:
            line = _line(case)
            stream.write(json.dumps(line) + "\n")
            if case.false or case.weak:
                print(tally.described(case), flush=True)
                _keep(folder / "failures" / case.agent.name, case, place, hash_seed)


def _line(case: Case) -> dict[str, object]:
    return {
        "name": case.agent.name,
        "kind": case.agent.kind,
        "mode": case.mode,
        "what": case.agent.what,
        "word": case.word,
        "cost": case.said.cost,
        "bound": case.said.bound,
        "true_cost": case.truth and case.truth.cost,
        "warm": case.truth and case.truth.warm,
        "false": case.false,
        "weak": case.weak,
        "reason": case.said.reason,
        "relative_to": case.said.relative_to,
        "killed": case.said.killed,
        "not_yet": reason(case.agent.store),
    }


def _keep(kept: Path, case: Case, place: Path, hash_seed: int) -> None:
    if not kept.exists():
        sessions.write([case.agent], kept)
    with open(kept / "README.txt", "a") as stream:
        stream.write(f"{tally.described(case)}\n{case.said}\n{case.truth}\nsession: {place}\n")
        stream.write(f"PYTHONHASHSEED={hash_seed} pytest --mat-stress test_{case.agent.name}.py\n\n")


def _conclude(options: argparse.Namespace, folder: Path, cases: Sequence[Case], wrongly_drawn: Counter[str]) -> int:
    later = [case for case in cases if reason(case.agent.store)]
    judged = [case for case in cases if not reason(case.agent.store)]
    problems = [f"false: {tally.described(case)}" for case in judged if case.false]
    problems += [f"the modes differ: {line}" for line in tally.different(judged)]
    problems += tally.too_few(judged)
    lines = [tally.table(cases), f"drawn in vain: {sum(wrongly_drawn.values())}"]
    killed = [case for case in cases if case.mode == "resume"]
    if killed:
        lines.append(f"killed before the end: {sum(case.said.killed for case in killed)} of {len(killed)}")
    lines += [f"drawn in vain: {what} ({count})" for what, count in wrongly_drawn.most_common(20)]
    if later:
        lines.append(f"not judged yet: {len(later)} of {len(cases)}; see not_yet.py")
    lines += problems or ["nothing is false, and the shares are reached"]
    text = "\n".join(lines)
    (folder / "table.txt").write_text(text + "\n")
    print(text)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""The result of a gate (`mat gate`, `pytest --mat-gate`), for a terminal, for a pull request, and as JSON data."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from mat.core.codec import FORMAT
from mat.measure.estimate import Estimate
from mat.measure.gate import Gate, GateLine, GatePlan, GateRules
from mat.measure.margin import pairs_needed, power
from mat.measure.regression import RunPair
from mat.report import words
from mat.report.table import Column, Listing, ReportBlock, Table
from mat.report.to_json import data_of

_COLUMNS: Final = ("aspect", "verdict", "pairs", "lost", "gained", "new - old", "tolerance")
_WHY: Final = {
    "unrun": "A test of the suite did not run.",
    "removed": "Tests or replays of the baseline are missing.",
    "empty": "Nothing was judged: the two reports share no replay and no test whose nominal runs passed in the baseline "
    "(try --smoke all).",
}
_SHOWN: Final = 10
"""The most pairs, tests or replays that one list shows; JSON has all."""


def gate_data(found: Gate, *, baseline: str) -> dict[str, Any]:
    """The result as JSON data. Tolerances are shares; `failures` as in `Gate.failures`."""
    return {
        "mat": FORMAT,
        "passed": found.passed,
        "failures": list(found.failures),
        "baseline": baseline,
        "seeds": {"run": found.evidence.seeds, "allowed": found.plan.seeds, "settled": found.settled},
        "confidence": float(found.rules.confidence),
        "rules": {
            "unit": found.rules.unit, "waived": sorted(found.rules.waived), "undecided": found.rules.undecided,
            "removed": found.rules.removed,
        },
        "lines": [_line_data(line) for line in found.lines],
        "plan": data_of(found.plan),
        "apart": data_of(found.evidence.apart),
        "unrun": data_of(found.evidence.unrun),
        "unpaired": found.unpaired,
    }  # fmt: skip


def _line_data(line: GateLine) -> dict[str, Any]:
    return {**data_of(line), "table": {**data_of(line.table), "pairs": line.table.pairs}}


# -- for people -------------------------------------------------------------------------------------------------------


def gate_blocks(found: Gate, *, baseline: str) -> Iterator[ReportBlock]:
    """The result first, then a line for each aspect, what was lost, and what was not judged."""
    yield f"{judgement(found)} {against(found, baseline)}"
    yield aspects(found)
    yield how(found)
    yield from sections(found)


def aspects(found: Gate) -> Table:
    """The table of aspects: verdict, pairs of runs, losses, gains, difference and tolerance."""
    return Table(
        name="gate",
        title="Aspects",
        columns=tuple(Column(name=name, key=name == "aspect") for name in _COLUMNS),
        rows=tuple(_row(line) for line in found.lines),
    )


# -- sentences of terminal and Markdown -------------------------------------------------------------------------------


def judgement(found: Gate) -> str:
    """Whether the gate passes, and which aspects are lost or undecided."""
    lost, open_ones = ([line.aspect for line in found.lines if line.verdict == verdict] for verdict in ("lost", "undecided"))
    sentences = ["The gate passes." if found.passed else "The gate fails."]
    sentences += [f"Lost: {', '.join(lost)}."] if lost else []
    allowed = " (allowed)" if found.rules.undecided == "pass" else ""
    sentences += [f"Undecided{allowed}: {', '.join(open_ones)}."] if open_ones else []
    sentences += [_WHY[name] for name in found.failures if name in _WHY]
    return " ".join(sentences)


def against(found: Gate, baseline: str) -> str:
    """What was run, and the baseline that it was compared with."""
    plan = found.plan
    tests, replays = words.plural(len(plan.smoke), "test"), words.plural(len(plan.replays), "replay")
    seeds = f"{found.evidence.seeds} of {words.plural(plan.seeds, 'seed')}" if plan.smoke else ""
    return f"Against {baseline}: {tests}{f' on {seeds}' if seeds else ''}, {replays}."


def how(found: Gate) -> str:
    """How to read the table of aspects."""
    confidence = _percent(found.rules.confidence)
    if found.rules.unit == "seed":
        intervals = f"Intervals are {confidence} confidence sequences, valid at any stopping time; their unit is the seed."
    else:
        intervals = (
            f"Each limit of an interval holds with {confidence} confidence for these tests on new seeds; the unit is the run."
        )
    times = found.plan.executions
    repeated = f" The baseline has few runs, so each was compared with {times} executions." if times > 1 else ""
    empty = "" if found.plan.smoke else " The smoke suite is empty: the baseline has no test with a nominal run that passes."
    return (
        f"A pair is two runs with the same test, seed and schedule. {intervals} A tolerance of 0% allows no lost pair."
        f"{repeated}{empty}"
    )


def _row(line: GateLine) -> tuple[str, ...]:
    table = line.table
    verdict = {"lost": "LOST", "nothing": "-"}.get(line.verdict, line.verdict)
    counts = (str(table.pairs), str(table.only_old), str(table.only_new)) if table.pairs else ("-", "-", "-")
    return line.aspect, verdict, *counts, _difference(line.difference), _percent(line.tolerance)


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):g}%"


def _difference(found: Estimate) -> str:
    if found.value is None or found.low is None or found.high is None:
        return "-"
    return f"{100 * found.value:+.1f}% [{100 * found.low:+.1f}, {100 * found.high:+.1f}]".replace("+0.0%", "0.0%")


def sections(found: Gate) -> list[Listing]:
    """The non-empty lists: losses by aspect, then what was not judged."""
    plan, evidence = found.plan, found.evidence
    listed = [(f"Lost: {line.aspect}{_single_test_note(line)}", _losses(line)) for line in found.lines]
    listed += [
        ("Undecided", [_undecided_line(found, line) for line in found.lines if line.verdict == "undecided"]),
        ("Runs under a different governance variant than in the baseline", list(found.variants)),
        ("Without a run on each seed", [f"{one.item}: {one.why}" for one in evidence.unrun]),
        ("Not judged: infrastructure", [f"{one.item}: {one.reason} (runs: {one.runs})" for one in evidence.apart]),
        ("New tests, not in the baseline", list(plan.new_tests)),
        ("New replays, not in the baseline", list(plan.new_replays)),
        ("Removed tests of the baseline", list(plan.removed_tests)),
        ("Removed replays of the baseline", list(plan.removed_replays)),
        ("Categories without a selected test", [name or "tests without a category" for name in plan.emptied]),
        ("In the baseline, but not collected in this session", list(plan.elsewhere)),
        ("Replays not selected for the suite", list(plan.left_out)),
        ("Waived contracts", sorted(found.rules.waived)),
    ]  # fmt: skip
    if found.unpaired:
        listed.append(("Not judged", [f"{words.plural(found.unpaired, 'run')} without a partner in the baseline"]))
    return [Listing(title=title, lines=tuple(entries), most=_SHOWN) for title, entries in listed if entries]


def _single_test_note(line: GateLine) -> str:
    return " (a single test is worse)" if any(item.alone for item in line.items) else ""


def _losses(line: GateLine) -> list[str]:
    """The lost runs; grouped by test if there are many."""
    if len(line.lost) <= _SHOWN:
        return [_loss_line(line, pair) for pair in line.lost]
    return [
        f"{item.item}: {item.lost} of {words.plural(item.pairs, 'run')}{f', {item.gained} gained' if item.gained else ''}"
        f"{', worse on its own' if item.alone else ''}; first: {_first_loss(line, item.item)}"
        for item in line.items
    ]


def _first_loss(line: GateLine, item: str) -> str:
    pair = next(pair for pair in line.lost if pair.item == item)
    return f"seed {pair.seed}{words.under_schedule(pair.schedule)}: {pair.why}"


def _loss_line(line: GateLine, pair: RunPair) -> str:
    where = "" if line.aspect == "replays" else f" seed {pair.seed}{words.under_schedule(pair.schedule)}"
    return f"{pair.item}{where}: {pair.why}"


def _undecided_line(found: Gate, line: GateLine) -> str:
    name, pairs = line.aspect, line.table.pairs
    if not pairs:
        return f"{name}: no run of the baseline can be compared"
    if not line.tolerance or line.needed is None:
        return f"{name}: {_does_not_decide(pairs, 'pair')} this aspect"
    unit = found.rules.unit
    if unit == "run":
        return _undecided_runs(found, line, line.needed)
    done = f"{_does_not_decide(line.difference.n, unit)} a tolerance of {_percent(line.tolerance)}"
    sentence = f"{name}: {done}; {words.plural(line.needed, f'more {unit}')} without a loss would decide it"
    if not found.plan.smoke or found.evidence.seeds < found.plan.seeds:
        return sentence
    return f"{sentence} (in all, {words.plural(found.plan.seeds + line.needed, 'seed')} of each test, in the baseline too)"


def _undecided_runs(found: Gate, line: GateLine, needed: int) -> str:
    """What the pairs cannot show, how probably an unchanged system would have passed, and with how many it would."""
    table = line.table
    different = table.only_old + table.only_new
    differ = f"{words.plural(different, 'pair')} of {table.pairs} {'differs' if different == 1 else 'differ'}"
    sentence = f"{line.aspect}: {_does_not_decide(table.pairs, 'pair')} a tolerance of {_percent(line.tolerance)}; {differ}"
    if line.chance is not None:
        sentence += f"; an unchanged system whose pairs differ as often passes with a probability of {100 * line.chance:.0f}%"
    seeds = -(-needed // max(1, len(found.plan.smoke)))
    return f"{sentence}; for a probability of 80%, run {words.plural(seeds, 'seed')} of each test, in the baseline too"


def _does_not_decide(count: int, noun: str) -> str:
    return f"{words.plural(count, noun)} {'does' if count == 1 else 'do'} not decide"


# -- how many seeds a gate needs ----------------------------------------------------------------------------------------

_NOISE: Final = (0.0, 0.02, 0.05, 0.1, 0.18, 0.32)
"""Shares of pairs that differ although nothing changed: 2 p (1 - p) for a success of p = 100, 99, 97, 95, 90 and 80 %."""
_CHANCES: Final = (0.8, 0.95)


def power_data(planned: GatePlan, rules: GateRules, *, baseline: str) -> dict[str, Any]:
    """For each tolerance and share of differing pairs: the chance to pass, and the pairs needed for 80 % and 95 %."""
    pairs = sum(len(test.seeds) for test in planned.smoke)
    return {
        "mat": FORMAT, "baseline": baseline, "tests": len(planned.smoke), "seeds": planned.seeds, "pairs": pairs,
        "rows": [
            {
                "tolerance": float(tolerance), "differing": differing,
                "chance": power(pairs, tolerance=tolerance, alpha=rules.alpha, differing=differing),
                "needed": {
                    f"{chance:g}": pairs_needed(
                        tolerance=tolerance, alpha=rules.alpha, differing=differing, chance=chance
                    )
                    for chance in _CHANCES
                },
            }
            for tolerance in sorted({each for each in rules.tolerances.values() if each})
            for differing in _NOISE
        ],
    }  # fmt: skip


def power_blocks(planned: GatePlan, rules: GateRules, *, baseline: str) -> Iterator[ReportBlock]:
    """How probably an unchanged system passes with the baseline's runs, and how many seeds of each test it takes."""
    data = power_data(planned, rules, baseline=baseline)
    tests = max(1, len(planned.smoke))
    yield (
        f"{baseline} has {words.plural(len(planned.smoke), 'test')} on {words.plural(planned.seeds, 'seed')}: "
        f"{words.plural(data['pairs'], 'pair')}. A pair differs where the same test and seed end otherwise although nothing "
        "changed."
    )
    columns = ("tolerance", "pairs that differ", "passes", *(f"seeds for {100 * chance:.0f}%" for chance in _CHANCES))
    yield Table(
        name="power", title="An unchanged system",
        columns=tuple(Column(name=name, key=name == "tolerance") for name in columns),
        rows=tuple(
            (
                _percent(Fraction(row["tolerance"]).limit_denominator(10_000)), f"{100 * row['differing']:g}%",
                f"{100 * row['chance']:.0f}%", *(_seeds(needed, tests) for needed in row["needed"].values()),
            )
            for row in data["rows"]
        ),
    )  # fmt: skip


def _seeds(needed: int | None, tests: int) -> str:
    return "-" if needed is None else str(-(-needed // tests))

"""`mat judge LABELS`: how well a judge of claims agrees with people's labels, and with itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mat.commands.shared import PASS, Add, check_files, count, print_json, reading, width
from mat.core.errors import MatError, SpecError, raised_text
from mat.measure.claims import ClaimStatus

if TYPE_CHECKING:
    from mat.measure.claims import Agreement, JudgeVariance, Labelled
    from mat.report.table import Table

_TEXT: Final = "measure how well a judge of claims agrees with a labelled set, and how much its answers vary"
_EXAMPLES: Final = """mat judge labels.jsonl --judge shop.judges:supported
         mat judge labels.jsonl --judge shop.judges:supported --repeats 5
         mat judge answered.jsonl        (recorded answers, without a judge)

each line: {"claim": "...", "texts": ["...", ...], "label": "supported"}
labels and answers: supported, unsupported, unknown; a line may have "answers"
exit codes: 0 measured, 2 a usage error or an unreadable file"""
_FIX: Final = 'write lines like {"claim": "paid 30", "texts": ["amount: 30"], "label": "supported"}'


def add_parser(add: Add) -> None:
    parser = add("judge", _TEXT, _EXAMPLES)
    parser.add_argument("labels", type=Path, metavar="LABELS", help="JSON lines: claims, the texts of their evidence, labels")
    parser.add_argument(
        "--judge",
        metavar="MODULE:NAME",
        help="a function that takes a claim and its texts, and answers supported, unsupported or unknown",
    )
    parser.add_argument(
        "--repeats",
        type=count,
        default=1,
        metavar="N",
        help="ask each question N times (default 1), to measure how much the answers vary",
    )


def judge(options: argparse.Namespace) -> int:
    from mat.report.terminal import blocks_in_text
    from mat.report.to_json import data_of

    check_files(options.labels, fix=_FIX)
    with reading(options.labels, fix=_FIX):
        lines = list(_lines(options.labels))
    asked = _from_judge(options, lines) if options.judge else _recorded(options, lines)
    agreement, variance = _measured([labelled for labelled, _ in lines], asked)
    if options.json:
        print_json({"agreement": data_of(agreement), "variance": data_of(variance)})
    else:
        print(blocks_in_text(list(_tables(agreement, variance)), width=width()), end="")
    return PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledLine:
    """A line of the file: a claim, the texts of its evidence, a person's label, and recorded answers of a judge."""

    claim: str
    label: ClaimStatus
    texts: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


def _lines(path: Path) -> Iterator[tuple[Labelled, tuple[str, ...]]]:
    """Yield each labelled claim with its recorded answers."""
    from mat.core.codec import decode, load_json
    from mat.measure.claims import Labelled

    empty = True
    for number, text in enumerate(_text(path).splitlines(), 1):
        if text.strip():
            empty, where = False, f"{path}:{number}"
            line = decode(LabelledLine, load_json(text, where=where), where=where, name="labelled claim")
            yield Labelled(claim=line.claim, texts=line.texts, label=line.label), line.answers
    if empty:
        raise SpecError(what=f"{path} contains no labelled claim", why="it is empty", fix=_FIX, where=str(path))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MatError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}",
            why="labels are JSON lines in UTF-8", fix=_FIX, where=str(path),
        ) from None  # fmt: skip


def _from_judge(options: argparse.Namespace, lines: Sequence[tuple[Labelled, tuple[str, ...]]]) -> list[list[object]]:
    """The answers of the judge, `repeats` for each claim. MatError if it raises an exception."""
    from mat.adapters.checking import function_from

    function = function_from(options.judge, option="--judge", example="mypackage.judges:supported")
    found: list[list[object]] = []
    for labelled, _ in lines:
        try:
            found.append([function(labelled.claim, labelled.texts) for _ in range(max(options.repeats, 1))])
        except Exception as error:
            raise MatError(
                f"the judge {options.judge} {raised_text(error)}",
                why=f"it was asked about {labelled.claim!r}",
                fix="a judge answers supported, unsupported or unknown, or True or False",
            ) from error  # fmt: skip
    return found


def _recorded(options: argparse.Namespace, lines: Sequence[tuple[Labelled, tuple[str, ...]]]) -> list[list[object]]:
    missing = next((labelled for labelled, answers in lines if not answers), None)
    if missing is not None:
        raise SpecError(
            what=f"no answer to the claim {missing.claim!r}", why='the line has no "answers", and no judge is named',
            fix="add --judge MODULE:NAME", where=str(options.labels),
        )  # fmt: skip
    return [list(answers) for _, answers in lines]


def _measured(labelled: Sequence[Labelled], asked: Sequence[list[object]]) -> tuple[Agreement, JudgeVariance | None]:
    """Agreement of the first answers, and the variance if every claim has the same number of answers, at least two."""
    from mat.measure.claims import agreement, variance

    first = iter([answers[0] for answers in asked])
    found = agreement(lambda claim, texts: next(first), labelled)
    repeats = {len(answers) for answers in asked}
    if len(repeats) != 1 or repeats == {1}:
        return found, None
    each = iter([answer for answers in asked for answer in answers])
    return found, variance(lambda claim, texts: next(each), labelled, repeats.pop())


def _tables(agreement: Agreement, variance: JudgeVariance | None) -> Iterator[Table]:
    from mat.measure.claims import labels
    from mat.report.table import Column, Table, UnitEstimate

    rows: list[tuple[Any, ...]] = [
        ("accuracy", agreement.accuracy), ("kappa", UnitEstimate(estimate=agreement.kappa, unit="score")),
        ("decided", agreement.decided),
    ]  # fmt: skip
    if variance is not None:
        spread = UnitEstimate(estimate=variance.variance, unit="score")
        rows += [("unanimous", variance.unanimous), ("variance", spread), ("unknown", variance.unknown)]
    yield Table(
        name="judge", title="The judge", columns=(Column(name="number", key=True), Column(name="value")), rows=tuple(rows),
        note="accuracy: answers equal to the label; kappa: Cohen's kappa, the agreement beyond chance; decided: answers "
        "other than unknown"
        + (
            "; unanimous: claims with the same answer each time; "
            'variance: how much the answer "supported" varies over the repeats, from 0 to 0.5'
            if variance
            else ""
        ),
    )  # fmt: skip
    counts = {(label, answer): number for label, answer, number in agreement.table}
    yield Table(
        name="answers", title="Answers by label", columns=(Column(name="label", key=True), *map(_column, labels())),
        rows=tuple((label, *(counts[label, answer] for answer in labels())) for label in labels()),
    )  # fmt: skip


def _column(name: str) -> Any:
    from mat.report.table import Column

    return Column(name=name)

"""`python -m tests.truth.templates [NAME...]`: precision and recall of each template, and every case that is judged wrongly."""

from __future__ import annotations

import sys

from tests.truth.templates.judged import cases, judged, quality


def main(names: list[str]) -> None:
    chosen = [case for case in cases() if not names or any(name in case.template for name in names)]
    lines = quality(judged(case) for case in chosen)
    print(f"{'template':46} broken kept precision recall wrong")
    for line in lines:
        figures = f"{line.broken:6} {line.kept:4} {float(line.precision):9.2f} {float(line.recall):6.2f} {len(line.wrong):5}"
        print(f"{line.template:46} {figures}")
    for line in lines:
        for one in line.wrong:
            said = one.message or (one.unknown and f"unknown: {one.unknown}") or "nothing"
            print(f"\n{one.case.id}\n    reported: {said}")
    print(f"\n{len(chosen)} traces, {len(lines)} templates, {sum(len(line.wrong) for line in lines)} traces judged wrongly")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Recorded corpora under fixed contracts: which contracts flag which runs, and how well they name the annotated step.

Run: python benchmarks/corpora.py. Reads ../shared/data next to the repository and skips a missing corpus. Prints
tables, and as the last line JSON: {"corpora": {name: {rows, crashed, unknown, halves: {report, all}, ...}}}. Precision and
recall are against failure (a reward below 1, or an annotated failure); intervals are Wilson's at 95 %.
"""

from __future__ import annotations

import json

from corpora.report import corpora, report


def main() -> None:
    print(json.dumps({"corpora": {corpus.name: report(corpus) for corpus in corpora()}}, sort_keys=True))


if __name__ == "__main__":
    main()

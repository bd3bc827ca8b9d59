"""Prints the catalogue of guarantees: PYTHONPATH=examples python -m session"""

from __future__ import annotations

from session.contracts import GUARANTEES


def main() -> None:
    for item in GUARANTEES:
        transports = "" if len(item.transports) == 3 else f" ({', '.join(item.transports)})"
        print(f"{item.id}  [{item.observable}] section {item.section}: {item.text}{transports}")


if __name__ == "__main__":
    main()

"""`mat export FOLDER`: write the store as Parquet or CSV files, one for each table and machine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from mat.commands.shared import PASS, Add, one_of, print_json
from mat.commands.stores import add_store, file_of, opened, undamaged

_TEXT: Final = "write the store as Parquet or CSV files, one for each table, with this machine's name in the file names"
_EXAMPLES: Final = """mat export exports
         mat export exports --machine runner-3
         mat export sheets --format csv

to combine the exports of several machines: mat query SQL --parquet exports, or mat import exports
exit codes: 0 the files are written, 2 a usage error, or a file that cannot be read or written"""
_FORMS: Final = ("parquet", "csv")


def add_parser(add: Add) -> None:
    parser = add("export", _TEXT, _EXAMPLES)
    parser.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="the folder to write to; it is created if missing, and its files are replaced",
    )
    add_store(parser)
    parser.add_argument(
        "--format", type=one_of(*_FORMS), choices=_FORMS, default="parquet", help="file format (default parquet)"
    )
    parser.add_argument("--machine", default="", metavar="NAME", help="machine name for the file names (default: host name)")


def export(options: argparse.Namespace) -> int:
    with undamaged(file_of(options)), opened(options) as store:
        files = store.export(options.folder, machine=options.machine, file_format=options.format)
        ((runs,),) = store.query("SELECT count(*) FROM runs").rows
    from mat.core.errors import plural

    if options.json:
        print_json({"runs": runs, "files": [file.as_posix() for file in files]})
    else:
        print(f"{plural(runs, 'run')} in {plural(len(files), 'file')} in {options.folder}")
    return PASS

"""`mat completion SHELL`: a script that makes a shell complete the commands and options of `mat`."""

from __future__ import annotations

import argparse
from typing import Final

from mat.commands.shared import PASS, Add, one_of, print_json
from mat.core.extras import require

_TEXT: Final = "print a script that makes your shell complete mat's commands and options"
_EXAMPLES: Final = """mat completion bash > ~/.local/share/bash-completion/completions/mat
         mat completion zsh > ~/.zfunc/_mat"""
SHELLS: Final = ("bash", "zsh", "tcsh")


def add_parser(add: Add, whole: argparse.ArgumentParser) -> None:
    """`whole`: the parser of all commands, which the script completes."""
    parser = add("completion", _TEXT, _EXAMPLES)
    parser.add_argument("shell", type=one_of(*SHELLS), choices=SHELLS, help="your shell")
    parser.set_defaults(whole=whole)


def completion(options: argparse.Namespace) -> int:
    require("completion", "a completion script")
    import shtab

    script = shtab.complete(options.whole, shell=options.shell)
    if options.json:
        print_json({"shell": options.shell, "script": script})
    else:
        print(script)
    return PASS

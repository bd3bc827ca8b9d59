"""Write a replay as a standalone test (`mat replay FILE --as-test`) that a person reads, edits and keeps.

Replay files are not trusted: every value is written as a literal that Python reads back as an equal value, and every other text
as a comment on one line.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from mat.boundary.tape import Tape
from mat.core import limits
from mat.core.codec import decode, encode, load_json
from mat.core.errors import SpecError, printable
from mat.core.run import TapeEntry
from mat.core.spec import Perturbation
from mat.core.value import thaw
from mat.evidence.replay_file import FOLDER, Replay, read, short_id

ArgumentKind: TypeAlias = Literal["run", "contract", "contracts", "value", "request", "fixture"]
_WORDS: Final = re.compile(r"[^a-z0-9]+")
_WIDTH: Final = 110
_TASK: Final = "task"
"""The contract of objective="task": the body does not raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of the test function: the run, a fixture with one or several contracts, a parametrized value, ..."""

    name: str
    kind: ArgumentKind
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedTest:
    """The test as pytest collects it today.

    `module`: its import name, "" if it must be loaded by its path. `owner`: its class, or "". `fixtures`: the fixtures of the
    module that the test needs. `contracts`: further sources of contracts, `governance`
    and `operators` as Python expressions over `request` and `original`. `armed`: ids of the contracts that judge it.
    `shares_loop`: its fixtures are asynchronous, so that it must run in their event loop; `loop_marks`: the markers, as Python
    expressions, by which a plugin gives it one. `problems`: what a standalone test could not reproduce.
    """

    file: str
    function: str
    module: str = ""
    owner: str = ""
    asynchronous: bool = False
    shares_loop: bool = False
    loop_marks: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()
    fixtures: tuple[str, ...] = ()
    contracts: tuple[str, ...] = ()
    governance: str = ""
    operators: str = ""
    instrumented: bool = False
    armed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def taped(source: Path | str) -> Tape:
    """The recorded replies of a run's ports, from its replay file or from JSON text. Unknown calls are refused."""
    if isinstance(source, Path):
        return Tape(read(source).counterexample.run.tape, live=0)
    where = "the embedded tape"
    return Tape(decode(_Embedded, {"tape": load_json(source, where=where)}, where=where, name="tape").tape, live=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Embedded:
    tape: tuple[TapeEntry, ...]


def file_name(replay: Replay) -> str:
    """The default name of the test's file: test_refund_3f2a91.py."""
    return f"{_function(replay)}_{short_id(replay)}.py"


def needs_file(replay: Replay) -> bool:
    """Whether the recorded replies of external ports are needed."""
    return any(entry.mode == "external" and not entry.opaque for entry in replay.counterexample.run.tape)


def _is_task(contract: str) -> bool:
    """Whether a counterexample is about the test's body; its name goes on with the type and the line of the exception."""
    return contract == _TASK or contract.startswith(f"{_TASK}.")


def as_test(replay: Replay, subject: CollectedTest, *, name: str, said: Sequence[str] = (), embed: bool = False) -> str:
    """The text of the test. `name` is the name of the replay file, in the folder mat_replays next to the test.

    `said`: what the schedule does, in words. SpecError lists everything that a standalone test cannot reproduce.
    """
    contract = replay.counterexample.verdict.contract
    problems = list(subject.problems)
    if not _is_task(contract) and contract not in subject.armed:
        problems.append(f"the contract {contract!r} no longer judges it")
    try:
        schedule = [line for item in replay.counterexample.run.spec.schedule for line in _perturbation(item)]
    except SpecError as error:
        schedule, problems = [], [*problems, error.what]
    if problems:
        raise SpecError(
            what=f"{printable(replay.item)} cannot be written as a standalone test: {'; '.join(map(printable, problems))}",
            why="the test would not run what the replay runs",
            fix="keep the replay file, which runs all of it",
        )
    tape = needs_file(replay)
    lines = [
        *_header_lines(replay, subject, said, tape and not embed),
        "",
        *_import_lines(replay, subject, tape, embed),
        "",
        f"SEED = {replay.counterexample.run.spec.seed}",
        f"CONTRACT = {literal(contract)}",
        "SCHEDULE = [" if schedule else "SCHEDULE = []",
        *(schedule and [*(f"    {line}" for line in schedule), "]"]),
        *(_tape_lines(replay) if tape and embed else ()),
        "",
        "",
        *_test_lines(replay, subject, name, tape, embed),
    ]
    return "\n".join(lines) + "\n"


def _header_lines(replay: Replay, subject: CollectedTest, said: Sequence[str], by_file: bool) -> Iterator[str]:
    verdict = replay.counterexample.verdict
    yield '"""A counterexample that a search found, as a standalone test: read it, edit it, keep it."""'
    yield ""
    yield _comment(f"{replay.item} breaks {verdict.contract} ({verdict.severity}): {verdict.message}")
    for line in said:
        yield _comment(f"- {line}")
    if verdict.repair:
        yield _comment(f"Repair: {verdict.repair}")
    needed = f"{subject.file} next to it" + (" and the replay file, for the replies of models and services" if by_file else "")
    yield _comment(f"Needs {needed}.")


def _comment(text: str) -> str:
    return f"# {printable(text)}"


def _import_lines(replay: Replay, subject: CollectedTest, tape: bool, embed: bool) -> Iterator[str]:
    loaded = not subject.module
    runs_loop = subject.asynchronous and not subject.shares_loop
    if runs_loop:
        yield "import asyncio"
    if loaded:
        yield "import importlib.util"
        yield "import sys"
    if loaded or (tape and not embed):
        yield "from pathlib import Path"
    if loaded or runs_loop or (tape and not embed):
        yield ""
    yield "import mat"
    if subject.operators.startswith("[*mat_faults"):
        yield "import mat_faults"
    yield "import pytest"
    if tape:
        yield "from mat.evidence.astest import taped"
    if subject.governance.startswith("load("):
        yield "from mat.govern.policy import load"
    if subject.instrumented:
        yield "from mat.harness.patching import patched"
    yield ""
    if loaded:
        stem, path = literal(Path(subject.file).stem), _sibling_path(subject.file)
        yield f"spec = importlib.util.spec_from_file_location({stem}, {path})"
        yield "original = sys.modules[spec.name] = importlib.util.module_from_spec(spec)"
        yield "spec.loader.exec_module(original)"
        yield from (f"{name} = original.{name}  # a fixture" for name in subject.fixtures)
    else:
        package, _, module = subject.module.rpartition(".")
        yield (f"from {package} import {module} as original" if package else f"import {module} as original")
        if subject.fixtures:
            yield f"from {subject.module} import {', '.join(subject.fixtures)}  # noqa: F401  (fixtures)"


def _sibling_path(*names: str) -> str:
    return (
        f"Path(__file__).parent / {' / '.join(map(literal, names))}"
        if len(names) > 1
        else (f"Path(__file__).with_name({literal(names[0])})")
    )


def _perturbation(item: Perturbation) -> Iterator[str]:
    parameters = thaw(item.parameters)
    arguments = [literal(item.operator), literal(str(item.site)), *([literal(parameters)] if parameters else ())]
    line = f"mat.spec.perturbation({', '.join(arguments)}, cost={item.cost}),"
    if len(line) <= _WIDTH:
        yield line
        return
    yield "mat.spec.perturbation("
    for part in (*arguments, f"cost={item.cost}"):
        yield f"    {part},"
    yield "),"


def literal(value: Any) -> str:
    """Python text that reads back as an equal value; SpecError for a value without one, such as infinity."""
    text = _quoted(value)
    try:
        same = ast.literal_eval(text) == value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        same = False
    if not same:
        raise SpecError(what=f"a value cannot be written as a literal: {text[:60]}")
    return text


def _quoted(value: Any) -> str:
    if isinstance(value, str):
        text = ascii(value)
        return f'"{text[1:-1]}"' if text[0] == "'" and not {'"', "\\"} & set(text) else text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(key)}: {_quoted(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_quoted, value)) + "]"
    return ascii(value)


def _tape_lines(replay: Replay) -> Iterator[str]:
    """The tape as JSON, one entry per line."""
    entries = [entry for entry in replay.counterexample.run.tape if entry.mode == "external" and not entry.opaque]
    yield "TAPE = ("
    for place, entry in enumerate(entries):
        text = json.dumps(encode(entry), ensure_ascii=True, allow_nan=False)
        yield f"    {literal(('[' if place == 0 else '') + text + (']' if place == len(entries) - 1 else ','))}"
    yield ")"


def _test_lines(replay: Replay, subject: CollectedTest, name: str, tape: bool, embed: bool) -> Iterator[str]:
    contract = replay.counterexample.verdict.contract
    fixtures = [item.name for item in subject.arguments if item.kind == "fixture"]
    if replay.expected:
        yield f"@pytest.mark.xfail(raises=AssertionError, strict=True, reason={literal('known: it breaks ' + contract)})"
    yield from (f"@{mark}" for mark in subject.loop_marks)
    head = "async def" if subject.shares_loop else "def"
    yield f"{head} {_name(replay)}({', '.join(['request', *fixtures])}):"
    arguments = [item for item in subject.arguments if item.kind in ("contract", "contracts")]
    if arguments:
        yield "    # requested here, because as arguments they would arm a run of the plugin around this one"
    for item in arguments:
        yield f"    {item.name} = request.getfixturevalue({literal(item.name)})"
    yield f"    contracts = [{', '.join(_sources(subject))}]"
    if tape:
        yield f"    tape = taped({'TAPE' if embed else _sibling_path(FOLDER, name)})"
    yield f"    with {_run_call(replay, subject, tape)} as run:"
    call = f"{_callee(subject)}({', '.join(_argument(item) for item in subject.arguments)})"
    if subject.asynchronous:
        call = f"await {call}" if subject.shares_loop else f"asyncio.run({call})"
    if _is_task(contract):
        yield f"        {call}  # must finish"
    else:
        yield "        try:"
        yield f"            {call}"
        yield "        except mat.MatError:"
        yield "            raise"
        yield "        except (Exception, pytest.fail.Exception):"
        yield "            pass  # the task may fail under a disturbance; its contracts may not break"
    if tape:
        yield "    if tape.refused is not None:"
        yield "        raise tape.refused"
    if len(replay.counterexample.run.spec.schedule):
        yield "    if len(run.result.unreached) == len(SCHEDULE):"
        yield '        pytest.fail("stale: the run no longer reaches any site of the schedule")'
    yield "    broken = {each.contract: each.message for each in run.result.failures}"
    if _is_task(contract):
        yield "    assert run.result.term"
        yield "    assert broken == {}"
        return
    yield "    assert CONTRACT in [each.id for each in contracts]"
    yield "    assert CONTRACT not in broken, broken[CONTRACT]"
    if not replay.expected:
        yield "    assert broken == {}"
        yield '    assert run.outcome == "pass"'


def _sources(subject: CollectedTest) -> Iterator[str]:
    for item in subject.arguments:
        if item.kind == "contract":
            yield item.name
        elif item.kind == "contracts":
            yield f"*{item.name}"
    yield from subject.contracts


def _run_call(replay: Replay, subject: CollectedTest, tape: bool) -> str:
    spec = replay.counterexample.run.spec
    options = ["contracts", "seed=SEED", "schedule=SCHEDULE"]
    if tape:
        options.append("tape=tape")
    if subject.governance:
        options.append(f"governance={subject.governance}")
    if subject.operators:
        options.append(f"operators={subject.operators}")
    if spec.horizon_steps != limits.HORIZON_STEPS:
        options.append(f"horizon={spec.horizon_steps}")
    if spec.clock != "virtual":
        options.append(f"clock={literal(spec.clock)}")
    made = f"mat.run({', '.join(options)})"
    return f'patched(request.getfixturevalue("mat_instrument")), {made}' if subject.instrumented else made


def _callee(subject: CollectedTest) -> str:
    return f"original.{subject.owner}().{subject.function}" if subject.owner else f"original.{subject.function}"


def _argument(item: Argument) -> str:
    if item.kind == "run":
        return f"{item.name}=run"
    return f"{item.name}={item.text if item.kind == 'value' else item.name}"


def _function(replay: Replay) -> str:
    """The name of the test function, made safe for a file's name and for Python."""
    inner = replay.item.partition("::")[2].partition("[")[0].rpartition("::")[2]
    return "test_" + (_slug(inner).removeprefix("test_") or "replay")[:60]


def _name(replay: Replay) -> str:
    families = sorted({item.operator.partition(".")[2] for item in replay.counterexample.run.spec.schedule})
    under = f"_under_{_slug('_and_'.join(families))}" if families else ""
    return f"{_function(replay)}_keeps_{_slug(replay.counterexample.verdict.contract)}{under}"[:120].rstrip("_")


def _slug(text: str) -> str:
    return _WORDS.sub("_", text.lower()).strip("_")


def subject_from(text: str) -> CollectedTest:
    """Read a collected test from the JSON text of its collection."""
    return decode(CollectedTest, load_json(text, where="the collected test"), where="the collected test")


__all__ = ["Argument", "CollectedTest", "as_test", "file_name", "literal", "needs_file", "subject_from", "taped"]

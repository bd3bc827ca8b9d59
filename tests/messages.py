"""Collects every text that pytest-mat shows to a user while the tests run, for `pytest --collect-messages FILE`.

The classes and functions that carry texts are wrapped from outside, so the product has no code for it. All processes (the
workers of xdist and forks, too) append what they see to one file, `FILE.parts`; the process that began the session merges it.
A text that names no place of its own (a line of a terminal, a sentence of a page) is attributed to the string literal of the
source that shares most of its words. Output lines that share none are not ours: they come from pytest, or are values.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import functools
import json
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("src", "pytest_plugin")
KINDS = ("error", "usage", "help", "terminal", "page", "warning", "contract")
FIELDS = {
    "mat.monitor.contract": {"Violated": ("message", "repair"), "Contract": ("repair",)},
    "mat.core.verdict": {"Violation": ("message", "repair"), "Obligation": ("text",)},
    "mat.core.run": {"Finding": ("message",)},
    "mat.core.record": {"Mediation": ("reason",)},
    "mat.govern.mediator": dict.fromkeys(("Block", "NeedsApproval", "Rewrite", "ConvertToApproval", "Sandbox"), ("reason",)),
    "mat.report.table": {"Table": ("title", "note"), "Column": ("heading",), "Listing": ("title", "rest")},
}
"""Values whose fields are texts for users, by module and class."""
PAGE = ("mat.report.table",)
MARKDOWN = {"mat.report.markdown": ("to_markdown", "in_markdown", "comparison", "gate_summary")}
_CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_VALUES = (
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`"), "<quoted>"),
    (re.compile(r"[\w.\-~]*/[\w./:#\-\[\]=]+"), "<path>"),
    (re.compile(r"\b\w+(?:\.\w+)+(?:::\S+)?"), "<name>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,}\b"), "<id>"),
    (re.compile(r"\d[\d,.]*"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def same(text: str) -> str:
    """What two texts have in common that differ only in numbers, ids, paths, names with dots and quoted parts."""
    for pattern, stand_in in _VALUES:
        text = pattern.sub(stand_in, text)
    return text.strip()


@dataclass(frozen=True, slots=True)
class Message:
    """A text, the sort of text it is (`KINDS`), and `place`, the file and line that it comes from ("" while unknown)."""

    kind: str
    place: str
    text: str


class Collector:
    """A plugin of pytest that notes the messages of its process; the process that began the session writes `path`."""

    def __init__(self, path: Path, *, merges: bool) -> None:
        self._path, self._merges = path, merges
        self._parts = path.with_name(f"{path.name}.parts")
        if merges:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._parts.write_bytes(b"")
        self._file = os.open(self._parts, os.O_WRONLY | os.O_APPEND)  # forks write to it, too
        self._write = os.write
        self._known: set[tuple[str, str, str]] = set()
        self._undo: list[Callable[[], None]] = []

    def note(self, kind: str, place: str, text: str) -> None:
        text = _CODE.sub("", text).strip()
        key = (kind, place, same(text))
        if key[2] and key not in self._known:
            self._known.add(key)
            self._write(self._file, (json.dumps([kind, place, text]) + "\n").encode())

    def note_lines(self, kind: str, text: Any) -> None:
        if isinstance(text, str):
            for line in text.splitlines():
                if not re.match(r"[\s,]*[{}\[\]\"]", line):  # JSON has texts of its own
                    self.note(kind, "", line)

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        for undo in reversed(self._undo):
            undo()
        if self._merges:
            for text in _help_texts(config):
                self.note("help", "", text)
        os.close(self._file)
        if self._merges:
            found = {Message(*json.loads(line)) for line in self._parts.read_text(encoding="utf-8").splitlines()}
            self._parts.unlink()
            self._path.write_text(listed(merged(found, Literals.of(ROOT))), encoding="utf-8")

    # -- what is wrapped --------------------------------------------------------------------------------------------------

    def wrap_all(self) -> None:
        self._errors()
        self._values()
        self._output()
        self._pages()

    def _replace(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        original, own = getattr(owner, name), name in vars(owner)
        setattr(owner, name, functools.wraps(original)(make(original)))
        self._undo.append(lambda: setattr(owner, name, original) if own else delattr(owner, name))

    def _after(self, owner: Any, name: str, look: Callable[..., None]) -> None:
        """`look(returned, *arguments)` is called after each call of a function."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                returned = original(*args, **kwargs)
                look(returned, *args)
                return returned

            return wrapper

        self._replace(owner, name, make)

    def _errors(self) -> None:
        def raised(kind: str) -> Callable[..., None]:
            def look(_: None, error: BaseException, *rest: Any) -> None:
                if place := _place():
                    self.note(kind, place, f"{type(error).__name__}: {error}")

            return look

        errors = import_module("mat.core.errors")
        for name in ("MatError", "Blocked", "RateLimited", "RunStopped"):
            self._after(getattr(errors, name), "__init__", raised("contract" if name == "Blocked" else "error"))
        self._after(pytest.UsageError, "__init__", raised("usage"))
        self._after(argparse.ArgumentTypeError, "__init__", raised("usage"))

        def refused(original: Callable[..., Any]) -> Callable[..., Any]:
            def error(parser: argparse.ArgumentParser, message: str) -> Any:
                if parser.prog.startswith("mat"):
                    self.note("usage", _place(), message)
                return original(parser, message)

            return error

        def warned(original: Callable[..., Any]) -> Callable[..., Any]:
            def warn(message: Any, category: Any = None, stacklevel: int = 1, **more: Any) -> None:
                if place := _place(sys._getframe(1)):
                    self.note("warning", place, str(message))
                original(message, category, stacklevel + 1, **more)

            return warn

        self._replace(argparse.ArgumentParser, "error", refused)
        self._replace(warnings, "warn", warned)
        self._after(pytest.PytestWarning, "__init__", raised("warning"))

    def _values(self) -> None:
        for module, classes in FIELDS.items():
            kind = "page" if module in PAGE else "contract"
            for name, fields in classes.items():

                def look(_: None, value: Any, *rest: Any, kind: str = kind, fields: tuple[str, ...] = fields) -> None:
                    place = _place()
                    for field in fields:
                        self.note(kind, "" if kind == "page" else place, str(getattr(value, field)))

                self._after(getattr(import_module(module), name), "__init__", look)

    def _output(self) -> None:
        def completed(_: None, done: Any, *rest: Any) -> None:
            self.note_lines("terminal", done.stdout)
            self.note_lines("terminal", done.stderr)

        def inner(_: None, result: Any, *rest: Any) -> None:
            self.note_lines("terminal", "\n".join([*result.outlines, *result.errlines]))

        def read(captured: Any, *rest: Any) -> None:
            self.note_lines("terminal", captured.out)
            self.note_lines("terminal", captured.err)

        def printed(original: Callable[..., Any]) -> Callable[..., Any]:
            def show(*parts: Any, **settings: Any) -> None:
                if _of_product(sys._getframe(1)):
                    self.note_lines("terminal", " ".join(map(str, parts)))
                original(*parts, **settings)

            return show

        self._after(pytest.RunResult, "__init__", inner)
        self._after(subprocess.CompletedProcess, "__init__", completed)
        self._after(pytest.CaptureFixture, "readouterr", read)
        self._replace(builtins, "print", printed)
        self._replace(import_module("mat.report.words"), "wrap", self._wrapped)

    def _wrapped(self, original: Callable[..., str]) -> Callable[..., str]:
        """A paragraph before it is wrapped to the width of the terminal."""

        def wrap(text: str, **settings: Any) -> str:
            self.note("terminal", "", text)
            return original(text, **settings)

        return wrap

    def _pages(self) -> None:
        from jinja2 import Template

        self._after(Template, "render", lambda text, *_: [self.note("page", "", one) for one in visible(text)])
        for module, names in MARKDOWN.items():
            for name in names:
                self._after(import_module(module), name, lambda text, *_: self.note_lines("page", text))


def _of_product(frame: Any) -> bool:
    name = frame.f_code.co_filename
    return any(f"{ROOT}/{source}/" in name for source in SOURCES)


def _place(frame: Any = None) -> str:
    """The file and line of the nearest caller in the product that makes a value; "" if a test makes it."""
    frame = frame or sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and frame.f_code.co_name not in ("__init__", "__post_init__"):
            return f"{Path(name).relative_to(ROOT)}:{frame.f_lineno}" if _of_product(frame) else ""
        frame = frame.f_back
    return ""


def _help_texts(config: pytest.Config) -> Iterator[str]:
    """The texts of `mat --help`, of the help of each command, and of our part of `pytest --help`."""
    from mat.__main__ import parser_of_commands

    parsers = [parser_of_commands()]
    for parser in parsers:  # grows while it is read
        yield from (text for text in (parser.description, parser.epilog) if text)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
                yield from (choice.help for choice in action._choices_actions if choice.help)
            if action.help and action.help != argparse.SUPPRESS:
                yield f"{', '.join(action.option_strings) or action.metavar or action.dest}: {action.help}"
    for group in config._parser._groups:
        for option in group.options if group.name == "mat" else ():
            if option.attrs()["help"] != argparse.SUPPRESS:
                yield f"{', '.join(option.names())}: {option.attrs()['help']}"
    yield from (f"{name}: {known[0]}" for name, known in config._parser._inidict.items() if name.startswith("mat_"))
    yield from (line for line in config.getini("markers") if line.startswith("mat("))


# -- pages ----------------------------------------------------------------------------------------------------------------


class _Visible(HTMLParser):
    """The texts of a page that a reader sees or hears."""

    HIDDEN = ("script", "style")
    ATTRIBUTES = ("title", "aria-label", "placeholder", "alt")
    INLINE = ("a", "abbr", "b", "code", "em", "span", "strong", "time", "tspan")

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._open = ""
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in self.HIDDEN
        self._end(tag)
        self.texts += [value for name, value in attrs if name in self.ATTRIBUTES and value]

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in self.HIDDEN
        self._end(tag)

    def handle_data(self, data: str) -> None:
        self._open += "" if self._hidden else data

    def _end(self, tag: str) -> None:
        if tag not in self.INLINE:
            self.texts.append(self._open)
            self._open = ""


def visible(page: str) -> list[str]:
    """The visible texts of a page in HTML, a paragraph, cell or label each."""
    reader = _Visible()
    reader.feed(page)
    reader.close()
    return [" ".join(text.split()) for text in reader.texts if text.strip()]


# -- from which line a text comes -----------------------------------------------------------------------------------------


class Literals:
    """The string literals of the source, to be found by their words."""

    def __init__(self, literals: Iterable[tuple[str, str]]) -> None:
        self._grams: dict[tuple[str, ...], list[str]] = {}
        self._labels: dict[str, str] = {}
        for place, text in literals:
            words = _words(text)
            if "/report/" in place:
                self._labels.setdefault(" ".join(words), place)
            for size in (2, 3):
                for gram in zip(*(words[start:] for start in range(size)), strict=False):
                    self._grams.setdefault(gram, []).append(place)

    @classmethod
    def of(cls, root: Path) -> Literals:
        return cls(
            literal
            for source in SOURCES
            for path in sorted((root / source).rglob("*"))
            for literal in _literals(path, str(path.relative_to(root)))
        )

    def place(self, text: str) -> str:
        """The file and line of the literal that shares the most runs of two and three words with a text, "" without any.

        A label, as short as one word, counts only where it is a whole literal of the reports.
        """
        words = _words(text)
        shared: Counter[str] = Counter()
        for size in (2, 3):
            for gram in set(zip(*(words[start:] for start in range(size)), strict=False)):
                shared.update(dict.fromkeys(self._grams.get(gram, ()), size - 1))
        best, score = max(shared.items(), key=lambda found: (found[1], found[0]), default=("", 0))
        label = " ".join(words)
        return best if score >= 3 or (score and len(words) == 2) else self._labels.get(label, "") if len(label) > 2 else ""


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+(?:['-][a-z]+)*", text.lower())


def _literals(path: Path, name: str) -> Iterator[tuple[str, str]]:
    """(file and line, text) of each literal of a module, a template or a script."""
    if path.suffix in (".jinja", ".html", ".js"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{name}:{number}", re.sub(r"\{\{.*?\}\}|\{%.*?%\}|<[^>]*>", " ", line)
    if path.suffix != ".py":
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            yield f"{name}:{node.lineno}", node.value


# -- the list -------------------------------------------------------------------------------------------------------------


def merged(found: Iterable[Message], literals: Literals) -> list[Message]:
    """Each message once, with its place, by kind and place. Of a line that repeats a part of a longer text, only that text."""
    kept: dict[tuple[str, str, str], Message] = {}
    for each in sorted(found, key=lambda each: (not each.place, each.kind, each.place, -len(each.text), each.text)):
        if place := each.place or literals.place(each.text):
            kept.setdefault((each.kind, place.partition(":")[0], same(each.text)), Message(each.kind, place, each.text))
    whole = "\n".join(f"\n{same(each.text)}\n" for each in kept.values())
    return sorted((each for each in kept.values() if not (each.kind == "terminal" and _repeats(each.text, whole))), key=_order)


def _repeats(line: str, whole: str) -> bool:
    """Whether a line of a terminal is a part of another text, or that text behind the name of the program."""
    told = re.sub(r"^(?:mat|ERROR|E)\b:? ", "", same(line))
    return told in whole.replace(f"\n{same(line)}\n", "")


def _order(message: Message) -> tuple[int, str, int, str]:
    file, _, line = message.place.partition(":")
    return KINDS.index(message.kind), file, int(line), message.text


def listed(messages: Sequence[Message]) -> str:
    """The file: how many messages there are of each kind, then all of them, below the line of the source they come from."""
    counts = Counter(message.kind for message in messages)
    lines = [f"{len(messages)} messages: " + ", ".join(f"{counts[kind]} {kind}" for kind in KINDS)]
    kind = place = ""
    for message in messages:
        if message.kind != kind:
            kind, place = message.kind, ""
            lines += ["", f"## {kind}"]
        if message.place != place:
            place = message.place
            lines += ["", place]
        first, *rest = message.text.splitlines()
        lines += [f"  | {first}", *(f"  |   {line.strip()}" for line in rest)]
    return "\n".join([*lines, ""])


def collect(config: pytest.Config, path: Path) -> None:
    """Begin to collect the messages of this process. A worker of xdist appends to the file of its controller."""
    collector = Collector(path, merges=not hasattr(config, "workerinput"))
    collector.wrap_all()
    config.pluginmanager.register(collector, "collected messages")

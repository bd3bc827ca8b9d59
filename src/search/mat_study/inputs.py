"""What a certificate rests on: sources, settings, versions, and what the executions read. Equal inputs, equal certificate.

Everything is known by name and digest, so that a later session can say what changed. What cannot be known is a reason not to
keep the certificate.
"""

from __future__ import annotations

import glob
import importlib.util
import marshal
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from mat.core import limits
from mat.core.value import EXACT_FIELDS
from mat.kernel import names
from mat.kernel.reads import Read, ReadLog
from mat.monitor.contract import Contract
from mat_study.closure import Closure, ImportGraph, is_own
from mat_study.contents import absence_of, digest_of

_DIGITS: Final = 32
_DEPTH: Final = 8
_NAMES: Final = 3
_TOOLS: Final = frozenset(("__pycache__", ".mat", ".pytest_cache", ".hypothesis", ".mypy_cache", ".git", "mat_replays"))
"""Names in a folder that no program of the user reads."""
_VOLATILE: Final = ("PYTEST_", "COV_CORE_", "_", "SHLVL", "OLDPWD", "COLUMNS", "LINES", "WINDOWID", "TERM_SESSION_ID")
"""Variables that differ from one session to the next whatever the user does; those of pytest by their prefix."""
_INTERPRETER: Final = ("PYTHON", "LC_", "LANG", "TZ")
"""Variables that the interpreter itself reads."""


class UnknownInput(Exception):  # noqa: N818  (named after what happened)
    """Something cannot be compared with what it will be in another session; the text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFacts:
    """What the plugin knows of an item before it is executed.

    `modules` define it: its test module, the conftest files that apply to it, plugins of the user, and the modules of
    operators. `facts`: settings and versions by name. `environment`: the variables as they are before its first execution.
    `files`: further files that count, by path. `unknown`: why nothing can be known of it.
    """

    modules: tuple[ModuleType, ...] = ()
    facts: Mapping[str, str]
    environment: Mapping[str, str]
    files: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateInputs:
    """The inputs of a certificate: pairs of a name and a digest, sorted; of what was read also its kind."""

    __pydantic_config__ = EXACT_FIELDS
    facts: tuple[tuple[str, str], ...]
    sources: tuple[tuple[str, str], ...]
    read: tuple[tuple[str, str, str], ...] = ()


class InputReader:
    """Reads the inputs of one item as they are now. `root` shortens paths; `began_ns`: when the session began."""

    def __init__(self, root: Path, graph: ImportGraph, known: ItemFacts, *, began_ns: int) -> None:
        self._root, self._graph, self._known, self._began_ns = os.path.join(os.path.abspath(root), ""), graph, known, began_ns
        self.unknown = list(known.unknown)

    def sources(self) -> tuple[tuple[tuple[str, str], ...], Closure]:
        """The source files of the item with their digests; UnknownInput if one cannot be known."""
        closure = self._graph.of_modules(self._known.modules)
        if closure.blind:
            raise UnknownInput(f"it imports {', '.join(closure.blind)}, which reads files that Python does not see")
        return self._digests(closure.files), closure

    def own_sources(self) -> tuple[tuple[str, str], ...]:
        """The source files of the item with their digests, however large and whatever else it imports; UnknownInput if one
        cannot be known.
        """
        return self._digests(self._graph.of_modules(self._known.modules).files, digest=digest_of)

    def _digests(
        self, paths: Iterable[str], *, digest: Callable[[str], str | None] | None = None
    ) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((self.shown(path), self._source_digest(path, digest or _content)) for path in paths))

    def _source_digest(self, path: str, digest: Callable[[str], str | None]) -> str:
        found = digest(path)
        if found is None:
            raise UnknownInput(f"{self.shown(path)} cannot be read")
        if changed_after(path, self._began_ns):
            raise UnknownInput(f"{self.shown(path)} changed while the session ran")
        if _is_older_code(path):
            raise UnknownInput(f"the bytecode of {self.shown(path)} may be that of an earlier version: remove __pycache__")
        return found

    def read(self, taken: Iterable[Read], watched: ReadLog | None, closure: Closure) -> tuple[tuple[str, str, str], ...]:
        """What the item's executions and the import of its sources read, with digests; UnknownInput if that cannot be known."""
        found = dict.fromkeys(taken)
        files = [*closure.files]
        seen: set[str] = set()
        while files:
            file = files.pop()
            if file in seen or watched is None:
                continue
            seen.add(file)
            for each in watched.by_file.get(file, {}):
                found.setdefault(each)
                if each.kind == "module" and (named := self._graph.of_name(each.name)) is not None:
                    files += named.files
        if closure.dynamic:  # it may reach any module that is loaded
            found.update(dict.fromkeys(Read("file", path) for path in _loaded_sources()))
        found.update(dict.fromkeys(Read("file", path) for path in self._known.files))
        unknown = sorted({each.name for each in found if each.kind == "unknown"})
        if unknown:
            raise UnknownInput(unknown[0])
        known = {*closure.files}
        entries = {
            (each.kind, self.shown(each.name), self._lasting_digest(each))
            for each in found
            if not (each.kind == "file" and each.name in known) and not _is_volatile(each)
        }
        return tuple(sorted(entries))

    def _lasting_digest(self, read: Read) -> str:
        """A digest that still holds: what was read is not known to have changed since."""
        if read.kind in ("file", "times") and changed_after(read.name, self._began_ns) and read.name not in self._known.files:
            raise UnknownInput(f"{self.shown(read.name)} changed while the session ran")
        return self.digest(read)

    def digest(self, read: Read) -> str:
        """What was read, as it is now."""
        match read.kind:
            case "file":
                return _content(read.name) or absence_of(read.name)
            case "times":
                return _times(read.name)
            case "folder":
                return _folder_digest(read.name)
            case "variable":
                value = self._known.environment.get(read.name)
                return "not set" if value is None else _text_digest(value)
            case "environment":
                return _text_digest(repr(sorted(each for each in self._known.environment.items() if not _is_noise(each[0]))))
            case "module":
                if is_own(read.name):
                    return "of the tests' machinery"
                closure = self._graph.of_name(read.name)
                return "missing" if closure is None else _text_digest(repr(self._digests(closure.files)))
        raise UnknownInput(read.name)

    def shown(self, path: str) -> str:
        """A path without the root folder, so that another checkout has the same."""
        return path.removeprefix(self._root)

    def full(self, kind: str, name: str) -> str:
        return os.path.join(self._root, name) if kind in ("file", "times", "folder") else name


# -- what changed -------------------------------------------------------------------------------------------------------


def change(before: CertificateInputs, now: CertificateInputs, reader: InputReader) -> str:
    """What changed since, as the end of a sentence; "" if nothing did. `now` needs no reads: those of before are read again."""
    sources = _differing(before.sources, now.sources)
    read = [
        _described(kind, name)
        for kind, name, digest in before.read
        if reader.digest(Read(kind, reader.full(kind, name))) != digest  # type: ignore[arg-type]
    ]
    changed = [*sources, *read, *_differing(before.facts, now.facts)]
    if not changed:
        return ""
    more = f" and {len(changed) - _NAMES} more" if len(changed) > _NAMES else ""
    return f"{', '.join(changed[:_NAMES])}{more} changed"


def _described(kind: str, name: str) -> str:
    match kind:
        case "variable":
            return f"the variable {name}"
        case "environment":
            return "the environment"
        case "folder":
            return f"the names in {name or 'the root folder'}"
        case "module":
            return f"the module {name}"
    return name


def _differing(before: Iterable[tuple[str, str]], now: Iterable[tuple[str, str]]) -> list[str]:
    first, second = dict(before), dict(now)
    return sorted(name for name in {*first, *second} if first.get(name) != second.get(name))


def project_files(read: Iterable[Read], root: Path) -> list[str]:
    """The paths below a folder that were read as files, whether or not there is one."""
    above = os.path.join(os.path.abspath(root), "")
    files = {each.name for each in read if each.kind == "file" and each.name.startswith(above)}
    return sorted(name for name in files if not _TOOLS.intersection(name.removeprefix(above).split(os.sep)))


# -- digests of files ---------------------------------------------------------------------------------------------------


def _content(path: str) -> str | None:
    """The digest of a file's content; None if it cannot be read, UnknownInput if no certificate may rest on it."""
    try:
        if os.path.isfile(path) and os.path.getsize(path) > limits.INPUT_BYTES:
            raise UnknownInput(f"{path} has more than {limits.INPUT_BYTES:,} bytes")
    except OSError:
        return None
    return digest_of(path)


def _times(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return "missing"
    return f"{status.st_mtime_ns} {status.st_size}"


def _folder_digest(path: str) -> str:
    try:
        with os.scandir(path) as entries:
            found = sorted((each.name, each.is_dir()) for each in entries if each.name not in _TOOLS)
    except OSError:
        return "missing"
    return _text_digest(repr(found))


def changed_after(path: str, began_ns: int) -> bool:
    """Whether a file was written after a moment. The time of its last change of any kind counts, which nobody can set."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return not os.path.isdir(path) and max(status.st_mtime_ns, status.st_ctime_ns) > began_ns


def _is_older_code(path: str) -> bool:
    """Whether Python may have run bytecode that is older than the source: a change that kept size and time goes unnoticed.

    The time of the last change of any kind cannot be kept. Where it is later, the source is compiled and compared.
    """
    if not path.endswith(".py"):
        return False
    try:
        source = os.stat(path)
        folder = os.path.dirname(importlib.util.cache_from_source(path))
        stem = f"{Path(path).stem}.{sys.implementation.cache_tag}"
        found = [
            each for each in Path(folder).glob(f"{glob.escape(stem)}*.pyc") if each.stat().st_mtime_ns < source.st_ctime_ns
        ]
        return any(_stands_for(each, source) and not _is_compiled_from(each, path) for each in found)
    except (OSError, NotImplementedError):
        return False


def _stands_for(bytecode: Path, source: os.stat_result) -> bool:
    """Whether Python would run this bytecode instead of the source, by what its header says."""
    header = bytecode.read_bytes()[:16]
    flags, when, size = (int.from_bytes(header[start : start + 4], "little") for start in (4, 8, 12))
    if flags & 1:
        return not flags & 2
    return (when, size) == (int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF)


def _is_compiled_from(bytecode: Path, path: str) -> bool:
    """Whether bytecode is that of the source; not if it was changed in between, as pytest does with asserts."""
    try:
        held = marshal.loads(bytecode.read_bytes()[16:])
        return bool(held == compile(Path(path).read_bytes(), path, "exec", dont_inherit=True))
    except (ValueError, EOFError, TypeError, SyntaxError):
        return False


def _text_digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def _loaded_sources() -> list[str]:
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not is_own(name) and names.origin(file) == "project":
            found.append(os.path.abspath(file))
    return sorted(found)


def _is_volatile(read: Read) -> bool:
    return read.kind == "variable" and _is_noise(read.name)


def _is_noise(name: str) -> bool:
    return name in _VOLATILE or name.startswith(_VOLATILE[:2])


# -- settings -----------------------------------------------------------------------------------------------------------


def settings_facts(settings: Any, *, left_out: Iterable[str]) -> dict[str, str]:
    """The fields of a dataclass by name, as texts that are equal in all processes."""
    left_out = frozenset(left_out)
    return {each.name: plain_text(getattr(settings, each.name)) for each in fields(settings) if each.name not in left_out}


def contract_facts(contracts: Iterable[Contract]) -> dict[str, str]:
    """The contracts by id, with the values that their functions hold, such as the arguments of a template."""
    return {f"contract {each.id}": _text_digest(plain_text(each)) for each in contracts}


def interpreter_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that count whoever reads them: the interpreter's own, and proxies."""
    return {
        f"the variable {name}": _text_digest(value)
        for name, value in sorted(environment.items())
        if name.startswith(_INTERPRETER) or name.lower().endswith("_proxy")
    }


def plain_text(value: Any, depth: int = _DEPTH) -> str:
    """A value as a text that is equal in all processes: of functions their names and what they hold, of others their type."""
    kind = type(value)
    inner = partial(plain_text, depth=depth - 1)
    if value is None or isinstance(value, str | bytes | bool | int | float | Fraction):
        return repr(value)
    if depth == 0:
        return kind.__qualname__
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{inner(key)}: {inner(each)}' for key, each in value.items()))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inner, value))}]"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(inner, value)))}}}"
    if isinstance(value, partial):
        return f"partial({inner(value.func)}, {inner(value.args)}, {inner(value.keywords)})"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if is_dataclass(value):
        held = [f"{each.name}={inner(getattr(value, each.name, None))}" for each in fields(value)]
        return f"{kind.__qualname__}({', '.join(held)})"
    wrapped = getattr(value, "__wrapped__", None)
    if callable(value) and wrapped is not None and not hasattr(value, "__code__"):
        return f"{kind.__qualname__}({inner(wrapped)})"
    if hasattr(value, "__code__"):
        return f"{value.__module__}.{value.__qualname__}{_held_by(value, inner)}"
    return f"{kind.__module__}.{kind.__qualname__}"


def _held_by(function: Any, inner: Callable[[Any], str]) -> str:
    held = [inner(function.__defaults__), inner(function.__kwdefaults__)]
    for cell in function.__closure__ or ():
        try:
            held.append(inner(cell.cell_contents))
        except ValueError:  # an empty cell
            held.append("")
    return f"({', '.join(held)})"

"""Every execution begins from one state of the process: what outlived the one before is found by comparison and put back.

`ProcessState` keeps the state once, before the first run; `Isolation` executes between two comparisons with it. What cannot be
put back is named with its remedy: forks, whose memory is their own, or nothing, if forks would share it.
"""

from __future__ import annotations

import copy
import functools
import os
import sys
import sysconfig
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, TypeVar

from mat.kernel import reads
from mat.kernel.apart import ApartState
from mat.kernel.comparison import NodeComparison
from mat.kernel.imports import ImportWatch
from mat.kernel.nodes import MISSING, Change, DictNode, Node, Remedy
from mat.kernel.places import places
from mat.kernel.reach import OURS, Reached
from mat.kernel.writes import WriteWatch, unwatched

T = TypeVar("T")

_LIBRARIES: Final = tuple(
    {os.path.join(os.path.realpath(sysconfig.get_path(name)), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_TEXT: Final = 60


@dataclass(frozen=True, slots=True, order=True)
class OutlivedState:
    """One thing that outlived an execution. `name`: what its user calls it; `text`: what changed; `remedy`: what helps."""

    name: str
    text: str
    remedy: Remedy


@functools.lru_cache(maxsize=20_000)
def _real_path(file: str) -> str:
    """A file of a module without symbolic links: modules are asked for at the start of every item's search."""
    return os.path.realpath(file)


class Ownership:
    """Which files and modules are the user's: those below `roots`, but for installed packages and this project."""

    def __init__(self, roots: Iterable[str]) -> None:
        self._roots = tuple(sorted({os.path.join(os.path.realpath(root), "") for root in roots if root}))

    def owns(self, name: str, file: str) -> bool:
        """Whether a module, by its name and file, is the user's."""
        if name.partition(".")[0] in OURS:
            return False
        path = _real_path(file)
        installed = "site-packages" in path or "dist-packages" in path or path.startswith(_LIBRARIES)
        return path.startswith(self._roots) and not installed

    def modules(self, others: Iterable[ModuleType] = ()) -> list[ModuleType]:
        """The user's modules that are imported, and those of `others`, whose names others may have taken."""
        found = {id(each): each for each in (*sys.modules.values(), *others) if isinstance(each, ModuleType)}
        return [
            module
            for module in found.values()
            if isinstance(file := vars(module).get("__file__"), str) and self.owns(str(vars(module).get("__name__")), file)
        ]


class ProcessState:
    """The state of the process, as it was when this was made: everything that is reachable from the user's modules and from
    `roots`, the settings of the process, and context variables. `plugins`: modules of which others may have taken the names.
    `apart`: those that are no root, but for `root`.
    """

    def __init__(
        self, ownership: Ownership, roots: Mapping[str, object], apart: ApartState | None = None, *, root: object = None,
        plugins: Iterable[ModuleType] = (),
    ) -> None:  # fmt: skip
        left_out = [] if apart is None or apart.full else apart.without(root)
        ids = set(map(id, left_out))
        modules = [module for module in ownership.modules(plugins) if id(module) not in ids]
        self._reach = Reached([module.__name__ for module in modules], left_out)
        for module in modules:
            self._reach.enter_module(module)
        self._context = copy_context()
        self._enter_context()
        for name, held in roots.items():
            self._reach.enter(name, held)
        self._reach.watch()
        self._settings = []
        for name, node in places(names_modules=lambda: self._reach.names_modules, files=self._reach.files):
            self._reach.add(name, node)
            self._settings.append(node)
        self._comparison = NodeComparison(self._reach.nodes)
        self._unclear: dict[str, None] = {}
        self._process = os.getpid()

    @property
    def size(self) -> int:
        """How many nodes are compared."""
        return len(self._reach.nodes)

    @property
    def known(self) -> Container[int]:
        """The ids of the objects that are compared."""
        return self._reach.seen

    def restore(self) -> tuple[OutlivedState, ...]:
        """Put back what differs; returns it, sorted."""
        self._adopt_process()
        nodes = self._reach.nodes
        found: dict[tuple[str, str], OutlivedState] = {}
        changed = [(index, nodes[index].changes()) for index in self._comparison.differing()]
        for index, changes in changed:
            if changes:
                _put_back(nodes[index])
        for index, changes in changed:
            node = nodes[index]
            if not changes:
                continue
            back = node.remedy == "restore" and (node.same() or not node.changes())
            remedy: Remedy = "restore" if back else "fork" if node.remedy == "restore" else node.remedy
            for change in changes:
                name = self._reach.name(index, change.label)
                found.setdefault((name, remedy), OutlivedState(name, _text(name, change), remedy))
            if not back:
                node.keep()  # it is reported once, and what follows is compared with it
        for name in self._unclear:
            found.setdefault(
                (name, "fork"), OutlivedState(name, f"{name} was changed by an import or a fixture in a run", "fork")
            )
        self._unclear.clear()
        for name in self._reach.unreadable:
            found.setdefault((name, "fork"), OutlivedState(name, f"{name} cannot be read", "fork"))
        if self._reach.full:
            found.setdefault(("", "fork"), OutlivedState("more state than can be compared", "too many objects", "fork"))
        return tuple(sorted(found.values()))

    def _adopt_process(self) -> None:
        """In a fork, the settings that it was given are those to return to. Nothing that an execution left was there before."""
        if os.getpid() != self._process:
            self._process = os.getpid()
            for node in self._settings:
                node.keep()

    # -- what belongs to the state ----------------------------------------------------------------------------------

    @contextmanager
    def settling(self, roots: Callable[[], Mapping[str, object]] = dict) -> Iterator[None]:
        """What changes in here belongs to the state: an import, or a fixture that outlives the run. `roots`: what to walk then.

        An exception leaves the state as it was.
        """
        nodes = self._reach.nodes
        dirty = {index: nodes[index].changes() for index in self._comparison.differing()}
        dirty = {index: changes for index, changes in dirty.items() if changes}
        probes = {index: copy.copy(nodes[index]) for index in dirty}
        for probe in probes.values():
            probe.keep()
        before = dict(copy_context())
        with unwatched():
            yield
        for index in self._comparison.differing():
            if index not in dirty:
                self._reach.keep(index)
            elif not self._take(nodes[index], dirty[index], probes[index].changes()):
                self._unclear.setdefault(self._reach.name(index))
        for name, held in roots().items():
            self._enter(name, held)
        for variable, value in copy_context().items():
            if before.get(variable, MISSING) is not value:
                self._context.run(variable.set, value)
        self._enter_context()
        self._reach.walk()

    def _take(self, node: Node, before: Iterable[Change], now: Iterable[Change]) -> bool:
        """Keep what a fixture or an import changed of a place which the run had changed already."""
        now = tuple(now)
        if not now:
            return True
        known = {change.label for change in before}
        return isinstance(node, DictNode) and not any(change.label in known for change in now) and node.take(now)

    def _enter(self, name: str, held: object) -> None:
        if isinstance(held, ModuleType):
            self._reach.enter_module(held)
        else:
            self._reach.enter(name, held)

    # -- context variables ------------------------------------------------------------------------------------------

    def _enter_context(self) -> None:
        for variable, value in self._context.items():
            self._reach.enter(variable.name, value)

    def context(self) -> Context:
        """A context for one execution, which leaves no variable set."""
        return self._context.copy()

    def left(self, context: Context) -> tuple[OutlivedState, ...]:
        """The variables that an execution left set in its context."""
        return tuple(
            OutlivedState(name := self._variable_name(variable), f"{name}: set", "restore")
            for variable, value in context.items()
            if self._context.get(variable, MISSING) is not value and _is_users(variable)
        )

    def _variable_name(self, variable: ContextVar[Any]) -> str:
        for name in sorted(self._reach.own):
            for attribute, held in list(vars(sys.modules[name]).items()) if name in sys.modules else ():
                if held is variable:
                    return f"{name}.{attribute}"
        return variable.name


def _put_back(node: Node) -> None:
    """Put back what a place held; where an object refuses that, it counts as what cannot be put back."""
    with suppress(Exception):
        node.put_back()


def _is_users(variable: ContextVar[Any]) -> bool:
    """Whether a program may read a variable; the interpreter's decimal context and ours begin anew without notice."""
    return not variable.name.startswith(("mat.", "decimal_context"))


class Isolation:
    """Executes from one state. `shown` makes a name from a path, `kept_folder` is where pytest keeps temporary folders.

    `found` collects what outlived the executions, `read` what they read, if a session watches that. `recorded`: calls to
    servers are recorded, so they are no state.
    """

    def __init__(
        self, roots: Iterable[str], *, shown: Callable[[str], str] = str, kept_folder: str = "", recorded: bool = False
    ) -> None:
        roots = tuple(roots)
        self._ownership = Ownership(roots)
        self._writes = WriteWatch(shown=shown, kept_folder=kept_folder, roots=roots)
        self._imports = ImportWatch(self._ownership.owns, self._importing)
        self._state: ProcessState | None = None
        self._apart: ApartState | None = None
        self._executing = False
        self.recorded = recorded
        self.found: dict[OutlivedState, None] = {}
        self.read: dict[reads.Read, None] = {}
        self._found_before = 0

    def start(
        self, roots: Mapping[str, object], apart: ApartState | None = None, *, root: object = None,
        plugins: Iterable[ModuleType] = (),
    ) -> None:  # fmt: skip
        """Keep the state to begin from. `roots`: values by name that belong to it, besides the user's modules, among them the
        `plugins`. Those of `apart` belong to it where something leads to them, and `root` does in any case.
        """
        self._apart = None if apart is None or apart.full else apart
        if self._apart is not None:
            self._apart.keep()
        self._state = ProcessState(self._ownership, roots, self._apart, root=root, plugins=plugins)

    @property
    def state(self) -> ProcessState:
        assert self._state is not None
        return self._state

    def execute(self, function: Callable[[], T], *, leave: bool = False) -> T:
        """Execute between two comparisons; the state afterwards is that before. `leave`: it is put back before the next one."""
        state = self.state
        self.restore()
        if self._apart is not None and self._apart.is_due():
            self.look_apart()
        self._found_before = len(self.found)
        context = state.context()
        try:
            with ExitStack() as stack:
                stack.enter_context(self._imports.watching())
                stack.enter_context(self._writes.watching())
                if (watched := reads.watched()) is not None:
                    stack.enter_context(watched.taking(self.read, self._writes.is_own))
                self._executing = True
                return context.run(function)
        finally:
            self._executing = False
            self.note(state.left(context))
            self.note(OutlivedState(name, _written(name), "none") for name in self._writes.take() if self._counts(name))
            if not leave:
                self.restore()

    @property
    def shares(self) -> bool:
        """Whether an execution has used anything that another one at the same time would use as well."""
        return self._writes.shares

    def restore(self) -> None:
        """Put back what differs by now."""
        self.note(self.state.restore())

    @property
    def looks(self) -> int | None:
        """How often nothing had changed in modules that are apart; None if there are none."""
        return None if self._apart is None else self._apart.looks

    def look_apart(self) -> None:
        """Put back what has changed in modules that are apart, and note it: executions go on in forks then."""
        if self._apart is not None:
            changed = self._apart.restore(known=self.state.known)
            self.note(OutlivedState(name, _text(name, change), "fork") for name, change in changed)

    def discard(self) -> None:
        """Put back what the last execution left, and forget what could be put back: that execution does not count."""
        self.restore()
        found = list(self.found)
        kept = [each for each in found[self._found_before :] if each.remedy != "restore"]
        self.found = dict.fromkeys([*found[: self._found_before], *kept])

    def note(self, found: Iterable[OutlivedState]) -> None:
        for each in found:
            if all((each.name, each.remedy) != (known.name, known.remedy) for known in self.found):
                self.found[each] = None

    @contextmanager
    def settling(self, roots: Callable[[], Mapping[str, object]] = dict) -> Iterator[None]:
        """See `ProcessState.settling`; nothing outside of an execution."""
        if not self._executing:
            yield
            return
        with ExitStack() as stack:
            stack.enter_context(reads.sharing())
            if self._apart is not None:
                stack.enter_context(self._apart.settling())
            stack.enter_context(self.state.settling(roots))
            yield

    @contextmanager
    def _importing(self, module: ModuleType) -> Iterator[None]:
        with self.settling(lambda: {module.__name__: module}):
            yield

    def _counts(self, name: str) -> bool:
        return not (self.recorded and _is_address(name))


def _is_address(name: str) -> bool:
    return ":" in name and name.rpartition(":")[2].isdigit()


def _written(name: str) -> str:
    return f"{name} is {'called' if _is_address(name) else 'started' if name.startswith('process ') else 'written'}"


def _text(name: str, change: Change) -> str:
    return f"{name}: {_short(change.before)} -> {_short(change.after)}"


def _short(value: object, depth: int = 2) -> str:
    """A value as text, without running code of the user's classes."""
    if value is MISSING:
        return "nothing"
    if value is None or type(value) in (int, float, bool, str, bytes):
        text = repr(value)
        return text if len(text) <= _TEXT else f"{text[: _TEXT - 3]}..."
    inner = depth and type(value) in (list, tuple, set, dict)
    if inner and isinstance(value, dict):
        members = [f"{_short(key, depth - 1)}: {_short(each, depth - 1)}" for key, each in list(value.items())[:5]]
        return f"{{{', '.join(members)}{', ...' if len(value) > 5 else ''}}}"
    if inner and isinstance(value, list | tuple | set):
        members = [_short(each, depth - 1) for each in list(value)[:5]]
        return f"[{', '.join(members)}{', ...' if len(value) > 5 else ''}]"
    return f"<{type(value).__qualname__}>"

"""`mat.attach`: stress an agent that is written for a framework, without a line of ours in it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from mat.adapters.attachment import Adapter, Attachment
from mat.boundary.port import Errors, option_problems
from mat.core.errors import SpecError, did_you_mean
from mat.core.redact import POLICIES, RedactionPolicy

GROUP: Final = "mat.adapters"
"""The entry point group of adapters: name -> an Adapter."""
BUILT_IN: Final = {
    "aiohttp": "mat.adapters.aiohttp",
    "google_adk": "mat.adapters.google_adk",
    "httpx": "mat.adapters.httpx",
    "langchain": "mat.adapters.langchain",
    "langgraph": "mat.adapters.langchain",
    "litellm": "mat.adapters.litellm",
    "mcp": "mat.adapters.mcp",
    "openai_agents": "mat.adapters.openai_agents",
    "pydantic_ai": "mat.adapters.pydantic_ai",
    "requests": "mat.adapters.urllib3",
    "smolagents": "mat.adapters.smolagents",
    "urllib3": "mat.adapters.urllib3",
}
"""Our own adapters: what users write, and the module, which has them in ADAPTERS."""
observers: Final[list[Callable[[Attachment], object]]] = []
"""Called with each attachment that is made (by `mat doctor`)."""


def adapter_named(name: str) -> Adapter:
    """The adapter that a user names. MatError for an unknown one, and for one whose framework is not installed."""
    wanted = name.replace("-", "_").lower()
    if wanted in BUILT_IN:
        found: Any = importlib.import_module(BUILT_IN[wanted]).ADAPTERS[wanted]
    else:
        found = _foreign(wanted, name)
    if not _is_installed(found.package):
        raise SpecError(
            what=f"attach {name!r}: {found.package} is not installed",
            why="the adapter replaces parts of that framework",
            fix=f'pip install "pytest-mat[{found.extra}]"' if found.extra else f"install {found.package}",
        )
    adapter: Adapter = found
    _check_release(name, adapter)
    return adapter


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


def _check_release(name: str, adapter: Adapter) -> None:
    """Refuse a framework that is older than the adapter's seams."""
    from importlib.metadata import PackageNotFoundError, version

    from packaging.version import Version

    distribution, _, oldest = adapter.release.partition(">=")
    try:
        installed = version(distribution) if oldest else ""
    except (PackageNotFoundError, ValueError):  # put on the path by hand: nothing says which release it is
        return
    if installed and Version(installed) < Version(oldest):
        raise SpecError(
            what=f"attach {name!r}: {distribution} {installed} is too old",
            why="the adapter replaces parts of the framework that older releases do not have",
            fix=f'pip install "{adapter.release}"',
        )


def _foreign(wanted: str, name: str) -> Any:
    from importlib.metadata import entry_points

    others = {point.name.replace("-", "_").lower(): point for point in entry_points(group=GROUP)}
    if wanted not in others:
        known = ", ".join(sorted({*BUILT_IN, *others}))
        raise SpecError(what=f"there is no adapter {name!r}", why="attach names a framework", fix=f"use one of: {known}")
    found = others[wanted].load()
    if not isinstance(found, Adapter):
        raise SpecError(
            what=f"the entry point {name!r} of {GROUP} is {type(found).__qualname__}", fix="point it to a mat.adapters.Adapter"
        )
    return found


@contextmanager
def attach(
    name: str,
    *,
    effects: Mapping[str, str] | None = None,
    impacts: Mapping[str, str] | None = None,
    retrievers: Collection[str] = (),
    errors: Errors | None = None,
    models: bool | Mapping[str, str] = True,
    memory: bool | Mapping[str, str] = True,
    perturb: bool | Collection[str] | Mapping[str, bool | Collection[str]] = True,
    prompts: RedactionPolicy = "hash",
) -> Iterator[Attachment]:
    """Attach to a framework: inside the block, its tools, models and memories are boundaries of the run in progress.

    `name`: "langchain" or "langgraph", "openai_agents", "pydantic_ai", "mcp", "google_adk", "smolagents", "litellm"; of HTTP
    clients "httpx" (and httpx2), "requests", "urllib3", "aiohttp"; or an adapter that another package brings. In the ini file:
    `mat_attach = langgraph httpx`; with options, a fixture `mat_attach` that returns them by name, or this block in a fixture
    of your own.

    - `effects`, `impacts`: by the tool's name, as for `mat.tool`. What is not named has the effect that the framework or the
      protocol declares, else "unknown", which counts as a write.
    - `retrievers`: names of tools whose replies are text from outside, such as a search; they can be poisoned.
    - `errors`: what the tools' clients raise, as for `mat.tool`; by default it is guessed from the tool's own module.
    - `models`: False leaves model calls alone; a dict gives the models other names, by their ids. `memory`: the same for
      stores and check-pointers, by their names.
    - `perturb`: as for `mat.tool`, for all, or by name.
    - `prompts`: how the requests of models are recorded: "hash" (default), "keep" or "redact". Replies are kept.

    Yields the Attachment, whose `declared` says how each tool came to its effect. Raises `mat.MatError` for an unknown name,
    for a framework that is not installed, and for invalid options. Outside of a run its calls
    inside of a `mat.budget.contracted` block are admitted by the contract and charged to it. Otherwise, and after the block,
    the framework behaves as if nothing had been attached.

    >>> import httpx
    >>> shop = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json={"paid": 30})))
    >>> with mat.run() as run, mat.attach("httpx"):
    ...     shop.get("http://shop.test/orders/17").json()
    {'paid': 30}
    >>> run.trace[0].action.name, run.trace[0].action.effect
    ('GET shop.test/orders/{id}', 'read')

    Source: A1.1, A1.2, E2.
    """
    adapter = adapter_named(name)
    for option, given in (("effects", effects), ("impacts", impacts)):
        if given is not None and not isinstance(given, Mapping):
            raise SpecError(what=f"attach {name!r}: {option}={given!r} is not a dict", fix=f'write {option}={{"tool": "..."}}')
    if isinstance(retrievers, str):
        raise SpecError(what=f"attach {name!r}: retrievers={retrievers!r} is a single string", fix=f"write [{retrievers!r}]")
    _check_options(name, effects or {}, impacts or {}, errors, perturb, prompts)
    attachment = Attachment(
        adapter=adapter, effects=dict(effects or {}), impacts=dict(impacts or {}), retrievers=frozenset(retrievers),
        errors=errors, models=models, memory=memory, perturb=perturb, prompts=prompts,
    )  # fmt: skip
    try:
        _install(name, adapter, attachment)
        for observe in observers:
            observe(attachment)
        yield attachment
    finally:
        attachment.undo()


def _check_options(
    name: str,
    effects: Mapping[str, str],
    impacts: Mapping[str, str],
    errors: Errors | None,
    perturb: bool | Collection[str] | Mapping[str, bool | Collection[str]],
    prompts: RedactionPolicy,
) -> None:
    """Refuse invalid options before the run: at a tool's first call, the framework might swallow the error."""
    of_all = True if isinstance(perturb, Mapping) else perturb
    problems = option_problems(errors=errors, perturb=of_all)
    problems += [f"prompts={prompts!r} is not one of {', '.join(POLICIES)}"] if prompts not in POLICIES else []
    for option, given in (("effect", effects), ("impact", impacts), ("perturb", perturb)):
        for tool, value in given.items() if isinstance(given, Mapping) else ():
            problems += [f"{tool}: {problem}" for problem in option_problems(**{option: value})]  # type: ignore[arg-type]
    if problems:
        raise SpecError(what=f"attach {name!r}: {'; '.join(problems)}", fix="correct the options of the attachment")


def _check_names(name: str, options: object) -> None:
    """Refuse options that `attach` does not have."""
    known = [option for option in inspect.signature(attach).parameters if option != "name"]
    if not isinstance(options, Mapping):
        raise SpecError(what=f"attach {name!r}: {options!r} is not a dict of options", fix=f"write {{{name!r}: {{...}}}}")
    unknown = [f"{option!r}{did_you_mean(str(option), known)}" for option in options if option not in known]
    if unknown:
        raise SpecError(what=f"attach {name!r} has no option {', '.join(unknown)}", fix=f"choose from {', '.join(known)}")


def _install(name: str, adapter: Adapter, attachment: Attachment) -> None:
    try:
        adapter.install(attachment)
    except (AttributeError, ImportError) as missing:
        raise SpecError(
            what=f"attach {name!r}: {missing}",
            why="the adapter replaces parts of the framework, and this release does not have one of them",
            fix=f"use another release{f' ({adapter.release})' if adapter.release else ''}, and report this one to pytest-mat",
        ) from missing


@contextmanager
def attached(
    names: Mapping[str, Mapping[str, Any]] | Collection[str],
) -> Iterator[tuple[Attachment, ...]]:
    """Attach to several frameworks, as the `mat_attach` fixture says: options by name, or names alone."""
    given = names if isinstance(names, Mapping) else {name: {} for name in ([names] if isinstance(names, str) else names)}
    for name, options in given.items():
        _check_names(name, options)
    with ExitStack() as stack:
        yield tuple(stack.enter_context(attach(name, **options)) for name, options in given.items())


__all__ = ["BUILT_IN", "GROUP", "adapter_named", "attach", "attached", "observers"]

"""How a contract template is declared, and the list of all of them.

    @template
    def no_refunds(above: int, **options: Unpack[Options]) -> Contract:
        '''No refund of more than `above`. ...'''
        return Contract(id="refund.capped", step=step, repair="ask for approval")

The function returns the contract with its default id and repair. `template` adds the options that all templates take, and puts
the function on the list.
"""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Final, TypedDict, TypeVar, cast

from mat.core.errors import SpecError, did_you_mean
from mat.core.verdict import Severity
from mat.monitor.contract import Contract, ContractPolicy

__all__ = ["Options", "Template", "entered", "template"]

F = TypeVar("F", bound=Callable[..., Contract])


class Options(TypedDict, total=False):
    """The options of all templates; see `mat.step_contract`. An empty id or repair means the template's default.

    >>> from mat_contracts.catalogue import Options
    >>> sorted(Options.__annotations__)
    ['id', 'policy', 'repair', 'severity', 'weight']

    Source: A1.4, A1.6.
    """

    id: str
    severity: Severity
    weight: float
    policy: ContractPolicy
    repair: str


_DEFAULTS: Final[Options] = {"id": "", "severity": "hard", "weight": -1.0, "policy": "observe", "repair": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A template on the list. `family` is the module that defines it, such as "retry" or "observation.conduct".

    `name`: of the function. `make`: the function, which takes the template's arguments and returns a `mat.Contract`. `text`
    is its docstring, `traces` its two smallest traces as source.

    >>> import mat_contracts
    >>> terminates = next(item for item in mat_contracts.templates() if item.name == "terminates")
    >>> terminates.family, terminates.make().id
    ('progress', 'progress.terminates')

    Source: A1.9.
    """

    name: str
    family: str
    make: Callable[..., Contract]

    @property
    def text(self) -> str:
        """The docstring of the template."""
        return inspect.getdoc(self.make) or ""

    @property
    def traces(self) -> tuple[str, str]:
        """The smallest passing and the smallest failing trace, each as runnable source that prints the blamed steps."""
        setup, shown = "", []
        for example in doctest.DocTestParser().get_examples(self.text):
            if example.want:
                shown.append(setup + example.source)
            else:
                setup += example.source
        return shown[0], shown[-1]


_OWN: Final = ("id", "repair")
"""Options for which every template has a default of its own."""
_LISTED: Final[dict[str, Template]] = {}


def entered() -> tuple[Template, ...]:
    """Return the templates of all imported modules, sorted by family and name.

    >>> import mat_contracts
    >>> from mat_contracts.catalogue import entered
    >>> "terminates" in [item.name for item in entered()]
    True

    Source: A1.9.
    """
    return tuple(_LISTED[key] for key in sorted(_LISTED))


def template(make: F) -> F:
    """Decorate a function that makes a contract, so that it also takes id, severity, weight, policy and repair.

    The function declares `**options: Unpack[Options]`, so that help(), editors and mypy know these options. They also reach
    the function itself. A call with an unknown argument raises `mat.MatError`, which lists the valid ones.

    >>> import mat_contracts  # its templates are decorated so
    >>> mat_contracts.terminates(severity="soft", repair="ask for help").repair
    'ask for help'

    Source: A1.9.
    """
    name, signature = make.__name__, _signature(make)
    family = make.__module__.removeprefix("mat_contracts.")
    known = frozenset(signature.parameters)

    @wraps(make)
    def made(*arguments: Any, **given: Any) -> Contract:
        if not known.issuperset(given):
            _refuse(name, signature, next(item for item in given if item not in known))
        try:
            contract = make(*arguments, **given)
        except TypeError:
            try:
                signature.bind(*arguments, **given)
            except TypeError as error:
                raise SpecError(what=f"{name}: {error}", fix=f"call {name}{_parameter_text(signature)}") from None
            raise
        changed = {item: value for item, value in given.items() if item in _DEFAULTS and (value or item not in _OWN)}
        if "severity" in changed:
            changed.setdefault("weight", _DEFAULTS["weight"])  # -1: the weight of the severity
        selects, keys = _selectors(signature, family, arguments, given)
        if selects and contract.formula is None and (contract.kinds is None or "tool_call" in contract.kinds):
            return replace(contract, selects=selects, keys=keys, **changed)
        return replace(contract, **changed) if changed else contract

    made.__signature__ = signature  # type: ignore[attr-defined]
    _LISTED[f"{family}.{name}"] = Template(name=name, family=family, make=made)
    return cast(F, made)


_PORTS: Final = ("tool", "tools", "port", "send", "then", "trigger")
"""Parameters of templates that name the ports whose calls a contract is about."""


def _selectors(
    signature: inspect.Signature, family: str, arguments: tuple[Any, ...], given: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of ports among the arguments of a template, and the names of the arguments that it reads of their calls."""
    bound = signature.bind(*arguments, **given).arguments
    routes = family.startswith("observation")  # these take routes, which have a slash, in the place of names
    groups = [_names_in(bound.get(name)) for name in ((*_PORTS, "on") if routes else _PORTS)]
    ports = tuple(dict.fromkeys(name for group in groups for name in group if not (routes and "/" in name)))
    return ports, _names_in(bound.get("key")) if ports else ()


def _names_in(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    grouped = isinstance(value, list | tuple | set | frozenset) and all(isinstance(item, str) for item in value)
    return tuple(sorted(value)) if grouped else ()


def _signature(make: Callable[..., Contract]) -> inspect.Signature:
    """The signature of a template, with the options as parameters instead of `**options`."""
    declared = inspect.signature(make)
    own = [item for item in declared.parameters.values() if item.kind is not inspect.Parameter.VAR_KEYWORD]
    named, hints = inspect.Parameter.KEYWORD_ONLY, Options.__annotations__
    options = [
        inspect.Parameter(name, named, default=default, annotation=_annotation_text(hints[name]))
        for name, default in _DEFAULTS.items()
    ]
    return declared.replace(parameters=[*own, *options])


def _annotation_text(annotation: Any) -> Any:
    """An annotation as written in the source; a TypedDict wraps it in a ForwardRef."""
    return getattr(annotation, "__forward_arg__", annotation)


def _parameter_text(signature: inspect.Signature) -> str:
    """The parameters of a template as text, without the options."""
    own = [
        item.replace(annotation=inspect.Parameter.empty, default=_shown_default(item.default))
        for item in signature.parameters.values()
        if item.name not in _DEFAULTS
    ]
    return str(inspect.Signature(own))


def _shown_default(default: Any) -> Any:
    """A default as it is written in the source: a function by its name."""
    return _Source(default.__name__) if inspect.isfunction(default) else default


class _Source(str):
    """A text whose repr is the text itself."""

    __slots__ = ()
    __repr__ = str.__str__


def _refuse(name: str, signature: inspect.Signature, unknown: str) -> None:
    """Raise the SpecError for an unknown argument."""
    own = [item for item in signature.parameters if item not in _DEFAULTS]
    also = (
        f"choose from {', '.join(own)}, or, as in all templates, from"
        if own
        else "choose from the parameters of all templates:"
    )
    raise SpecError(
        what=f"{name} has no parameter {unknown!r}{did_you_mean(unknown, signature.parameters)}",
        fix=f"{also} {', '.join(_DEFAULTS)}",
    )

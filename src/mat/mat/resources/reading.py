"""Read configuration files as untrusted input: YAML or JSON, with a line number and plain words for each problem.

Resource contracts and policies are read with it. A file uses a closed vocabulary; nothing in it is imported, evaluated or
called. A vocabulary consists of types for pydantic: `From` names the keys of a mapping and the function (usually a dataclass)
that makes a value of them, so that a file is read straight into the values of the domain. `FileReader` collects every problem
with its place and line, and reports all of them in one SpecError.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from decimal import Decimal, InvalidOperation
from functools import partial
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    GetCoreSchemaHandler,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from mat.core import limits
from mat.core.allowed import Allowed
from mat.core.codec import load_json
from mat.core.endpoint import endpoint, folder, length, pattern
from mat.core.errors import MatError, SpecError, did_you_mean
from mat.core.extras import require

Where: TypeAlias = tuple[str | int, ...]
"""A place in a file: keys, and indices of lists."""
_T = TypeVar("_T")
_EXPRESSION_CHARS: Final = 1_000
"""The longest regular expression that is compiled."""


# -- reading ----------------------------------------------------------------------------------------------------------


def text_of(path: Path, kind: str) -> str:
    """The text of a .yaml, .yml or .json file of some kind, such as "policy"; SpecError if it cannot be read."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe would wait for its writer
            raise SpecError(f"cannot read the {kind} {path.name}: it is not a file", where=str(path))
        size = path.stat().st_size
        if size > limits.WRITTEN_BYTES:
            raise SpecError(
                f"{path.name} has {size:,} bytes; the limit is {limits.WRITTEN_BYTES:,}", fix="split it", where=str(path)
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"cannot read the {kind} {path.name}: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise SpecError(f"the {kind} {path.name} is not UTF-8: {error.reason}", where=str(path)) from error
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise SpecError(f"the {kind} {path.name} is neither YAML nor JSON", fix="name it .yaml, .yml or .json", where=str(path))
    return text


def data_of(text: str, *, json: bool, kind: str, where: str) -> tuple[Any, dict[Where, int]]:
    """(the data of a text, the line of each place in it). SpecError if the text is invalid or exceeds a limit."""
    if len(text) > limits.WRITTEN_BYTES:
        raise SpecError(
            f"the {kind} has {len(text):,} characters; the limit is {limits.WRITTEN_BYTES:,}", fix="split it", where=where
        )
    data, lines = _read_json(text, kind, where) if json else _read_yaml(text, kind, where)
    if _has_more_nodes(data, limits.WRITTEN_NODES):
        raise SpecError(f"the {kind} has more than {limits.WRITTEN_NODES:,} values", fix="split it", where=where)
    for item in _strings_in(data):
        if not item.isascii() and any("\ud800" <= character <= "\udfff" for character in item):
            raise SpecError(
                f"the {kind} contains {item[:40]!r}", why="half of a surrogate pair is not a character",
                fix="write the whole character, or remove it", where=where,
            )  # fmt: skip
    return data, lines


def _has_more_nodes(data: Any, most: int) -> bool:
    """Whether there are more values in a document; the rest is not counted."""
    waiting, count = [data], 1
    while waiting and count <= most:
        item = waiting.pop()
        if isinstance(item, dict | list):
            count += len(item)
            waiting += item.values() if isinstance(item, dict) else item
    return count > most


def _strings_in(data: object) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, list | dict):
        for item in [*data, *data.values()] if isinstance(data, dict) else data:
            yield from _strings_in(item)


class FileReader:
    """Makes values from the data of a file, and collects the problems."""

    def __init__(self, lines: Mapping[Where, int], where: str) -> None:
        self._lines, self._where = lines, where
        self.problems: list[str] = []
        self._seen: set[str] = set()
        self.noted = 0
        """How often a problem was found. `problems` holds each one once, even if its data is read twice."""

    def error(self, kind: str, *, why: str, fix: str) -> SpecError:
        """An error that lists all problems."""
        count = len(self.problems)
        return SpecError(
            what=f"the {kind} has {count} problem{'s' * (count > 1)}: {'; '.join(self.problems)}",
            why=why, fix=fix, where=self._where,
        )  # fmt: skip

    def problem(self, at: Where, what: str) -> None:
        """Add a problem at a place, with its line."""
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in at).lstrip(".") or "the file"
        line = next((self._lines[at[:size]] for size in range(len(at), -1, -1) if at[:size] in self._lines), None)
        text = f"{place}{'' if line is None else f' (line {line})'}: {what}"
        self.noted += 1
        if text not in self._seen:
            self._seen.add(text)
            self.problems.append(text)

    def read(
        self,
        kind: TypeAdapter[_T],
        data: object,
        *,
        at: Where = (),
        context: object = None,
        origins: Mapping[str, Where] = {},
    ) -> _T | None:
        """Read data with a vocabulary; None if it has problems, which are collected.

        `origins`: the places of keys that are not at `at`. `context`: see `given`.
        """
        try:
            return kind.validate_python(data, strict=True, context=context)
        except ValidationError as error:
            for item in error.errors(include_url=False):
                inside = tuple(part for part in item["loc"] if part not in _FORMS)
                above = origins.get(str(inside[0]), at) if inside else at
                self.problem((*above, *inside), words(item))
        return None


# -- vocabularies -----------------------------------------------------------------------------------------------------


def wrong(what: str) -> PydanticCustomError:
    """A problem in words, for a validator to raise."""
    return PydanticCustomError("wrong", "{what}", {"what": what})


def all_wrong(problems: Iterable[tuple[Where, str]]) -> ValidationError:
    """An error with several problems, each with its place inside the validated data."""
    details = [InitErrorDetails(type=wrong(what), loc=place, input=None) for place, what in problems]
    return ValidationError.from_exception_data("file", details)


def made(make: Callable[..., _T], *args: Any, **parts: Any) -> _T:
    """Call a function of the domain. If it raises MatError, the file has a problem."""
    try:
        return make(*args, **parts)
    except MatError as error:
        raise wrong(error.what) from error


class _Vocabulary:
    """A type for pydantic that is used in many places of a file. Its schema is made once."""

    _schema: CoreSchema | None = None

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        if self._schema is None:
            self._schema = self._build_schema(handler)
        return copy(self._schema)

    def _build_schema(self, handler: GetCoreSchemaHandler) -> CoreSchema:
        raise NotImplementedError


class From(_Vocabulary):
    """A mapping whose `keys` (name -> type) are the arguments of a function. Those without a default are required.

    A function with a parameter `context` gets the context of `FileReader.read`. `whole`: if some keys are invalid, the function
    is still called with the others, to find further problems.
    """

    def __init__(self, make: Callable[..., Any], /, *, whole: bool = False, **keys: Any) -> None:
        self._make, self._keys, self._whole = make, keys, whole
        parameters = signature(make).parameters.values()
        self._needed = {
            item.name for item in parameters if item.default is Parameter.empty and item.kind != Parameter.VAR_KEYWORD
        }
        self._takes_context = "context" in self._needed

    def _build_schema(self, handler: GetCoreSchemaHandler) -> CoreSchema:
        fields = {
            name: core_schema.typed_dict_field(handler.generate_schema(kind), required=name in self._needed)
            for name, kind in self._keys.items()
        }
        unknown = PydanticCustomError("unknown", "no such key", {"known": list(fields)})
        extras = core_schema.no_info_plain_validator_function(lambda value: _raise(unknown))
        shape = core_schema.typed_dict_schema(fields, extra_behavior="allow", extras_schema=extras)
        return core_schema.with_info_wrap_validator_function(self._read, shape)

    def _read(self, data: Any, parts_of: Callable[[Any], dict[str, Any]], info: ValidationInfo) -> Any:
        context = {"context": info.context} if self._takes_context else {}
        try:
            return made(self._make, **parts_of(data), **context)
        except ValidationError as error:
            found = error.errors(include_url=False)
            refused = {item["loc"][0] for item in found if item["loc"]}
            if not self._whole or not refused or not isinstance(data, dict):
                raise
            problems = [(item["loc"], words(item)) for item in found]
        try:  # to find problems of the valid keys
            made(self._make, **parts_of({key: value for key, value in data.items() if key not in refused}), **context)
        except PydanticCustomError as other:
            problems.append(((), other.message()))
        except ValidationError as other:
            problems += [(item["loc"], words(item)) for item in other.errors(include_url=False)]
        raise all_wrong(problems)


def as_mapping(**parts: Any) -> dict[str, Any]:
    """The keys as a mapping, for `From`."""
    return parts


def _raise(error: PydanticCustomError) -> Any:
    raise error


class OneOf(_Vocabulary):
    """A mapping with one key, the kind. It reads as the value of that key. `what` is the word for messages, such as "rule"."""

    def __init__(self, what: str, kinds: Mapping[str, Any]) -> None:
        self._what, self._kinds = what, kinds

    def _build_schema(self, handler: GetCoreSchemaHandler) -> CoreSchema:
        fields = {
            name: core_schema.typed_dict_field(handler.generate_schema(kind), required=False)
            for name, kind in self._kinds.items()
        }
        return core_schema.no_info_wrap_validator_function(self._read, core_schema.typed_dict_schema(fields))

    def _read(self, data: Any, read: Callable[[Any], dict[str, Any]]) -> Any:
        if not isinstance(data, dict):
            return read(data)
        if len(data) != 1:
            raise wrong(f"a {self._what} has one key, its kind; this one has {', '.join(map(str, data)) or 'none'}")
        (kind,) = data
        if kind not in self._kinds:
            choice = did_you_mean(str(kind), self._kinds) or f"; choose from {', '.join(self._kinds)}"
            raise wrong(f"unknown {self._what}: {kind!r}{choice}")
        return read(data)[kind]


class Text(_Vocabulary):
    """A text or a mapping. `make` reads the text, with the context of `FileReader.read`; `mapping` is the type of a mapping."""

    def __init__(self, make: Callable[[str, Any], Any], mapping: Any) -> None:
        self._make, self._mapping = make, mapping

    def _build_schema(self, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.with_info_after_validator_function(
            lambda text, info: self._make(text, info.context), core_schema.str_schema()
        )
        return _by_form({"<text>": text, "<mapping>": handler.generate_schema(self._mapping)}, "a string or a mapping")


def _by_form(choices: dict[Any, CoreSchema], expected: str) -> CoreSchema:
    forms: dict[type, str] = {str: "<text>", list: "<list>", dict: "<mapping>"}
    return core_schema.tagged_union_schema(
        choices, lambda data: forms.get(type(data)), custom_error_type="form",
        custom_error_message=f"input should be {expected}",
    )  # fmt: skip


_FORMS: Final = ("<text>", "<list>", "<mapping>")
"""Names of branches, which pydantic adds to its places although the file does not contain them."""


def named(name: str, known: Mapping[str, _T], *, what: str, argument: str) -> tuple[str, _T]:
    """(name, function) for a function that the caller of `load` passes in."""
    if name not in known:
        fix = f"load({argument}=) has {', '.join(sorted(known))}" if known else f"pass it with load({argument}=)"
        raise wrong(f"unknown {what}: {name!r}; {fix}{did_you_mean(name, known)}")
    return (name, known[name])


def given(what: str, argument: str, *, needed: bool = False) -> Any:
    """The type of the name of a function that the caller of `load` passes in. Unless it is `needed`, "" reads as None.

    The attribute `argument` of the context of `FileReader.read` maps names to functions. `what` is the word for messages, such
    as "approver".
    """

    def find(name: str, info: ValidationInfo) -> Any:
        return None if not name and not needed else named(name, getattr(info.context, argument), what=what, argument=argument)

    return Annotated[str, AfterValidator(find)]


def _instance_of(expected: str, *kinds: type) -> Any:
    def check(data: object) -> object:
        if type(data) not in kinds:
            raise wrong(f"input should be {expected}, not {kind_of(data)}")
        return data

    return PlainValidator(check)


def _name_list(data: object, *, commas: bool = False) -> str | tuple[str, ...]:
    """A name, or several. `commas`: whether a name may have a comma; otherwise it is a list that is written as one name."""
    if isinstance(data, str):
        return one_name(data, commas=commas)
    if not isinstance(data, list):
        raise wrong(f"input should be a name or a list of names, not {kind_of(data)}")
    if not data:
        raise wrong("the list is empty; give at least one name, or leave the key out")
    problems = []
    for at, item in enumerate(data):
        try:
            if not isinstance(item, str):
                raise wrong(f"input should be a name, not {kind_of(item)}")
            one_name(item, commas=commas)
        except PydanticCustomError as problem:
            problems.append(((at,), problem.message()))
    if problems:
        raise all_wrong(problems)
    return tuple(data)


def one_name(name: str, *, commas: bool = False) -> str:
    if not name.strip():
        raise wrong("the name is empty")
    if "," in name and not commas:
        names = ", ".join(part.strip() for part in name.split(",") if part.strip())
        raise wrong(f"{name!r} is one name, with a comma; write several names as a list: [{names}]")
    return name


NumberField: TypeAlias = Annotated[int | float, _instance_of("a number", int, float)]
Amount: TypeAlias = Annotated[int | float | str, _instance_of("a number, or a string such as '0.25'", int, float, str)]
ScalarField: TypeAlias = Annotated[
    str | int | float | bool | None, _instance_of("a string, a number, true, false or null", str, int, float, bool, type(None))
]
OneName: TypeAlias = Annotated[str, AfterValidator(one_name)]
NameList: TypeAlias = Annotated[str | tuple[str, ...], PlainValidator(_name_list)]
PathList: TypeAlias = Annotated[str | tuple[str, ...], PlainValidator(partial(_name_list, commas=True))]
Strings: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(lambda data: tuple(data) if isinstance(data, list) else data)]


# -- allow-lists ------------------------------------------------------------------------------------------------------


def _endpoint(*, hosts: NameList, schemes: NameList = ("https",), paths: PathList = ()) -> Allowed:
    return endpoint(hosts, schemes=schemes, paths=paths)


def short_pattern(expression: str) -> Allowed:
    """A pattern. SpecError if the regular expression is too long."""
    return pattern(short_expression(expression))


def short_expression(expression: str) -> str:
    """The regular expression. SpecError if it is too long."""
    if len(expression) > _EXPRESSION_CHARS:
        raise SpecError(f"the regular expression has {len(expression)} characters", fix=f"use at most {_EXPRESSION_CHARS}")
    return expression


def within_keys(**keys: Any) -> Allowed:
    """An allow-list from exactly one of the keys in ALLOWED_KEYS; `least` and `most` count as one."""
    forms = [name for name in ("values", "pattern", "length", "endpoint", "folder") if keys.get(name) is not None]
    if any(keys.get(name) is not None for name in ("least", "most")):
        forms.append("least/most")
    if len(forms) != 1:
        raise SpecError(
            f"it gives {' and '.join(forms) if forms else 'nothing'}; give exactly one of values, least/most, pattern, "
            "length, endpoint, folder"
        )
    form = forms[0]
    if form == "pattern":
        return short_pattern(keys[form])
    if form == "folder":
        return folder(keys[form])
    if form != "least/most":
        return keys[form]  # type: ignore[no-any-return]
    least, most = (keys.get(name) for name in ("least", "most"))
    least, most = float("-inf") if least is None else least, float("inf") if most is None else most
    if least > most:
        raise SpecError(f"least={least} is greater than most={most}")
    return (least, most)


ALLOWED_KEYS: Final[Mapping[str, Any]] = {
    "values": list[ScalarField] | None, "least": NumberField | None, "most": NumberField | None, "pattern": str | None,
    "length": Annotated[Allowed, From(lambda *, least, most: length(least, most), least=int, most=int)] | None,
    "endpoint": Annotated[Allowed, From(_endpoint, hosts=NameList, schemes=NameList, paths=PathList)] | None,
    "folder": PathList | None,
}  # fmt: skip


class _Fits(_Vocabulary):
    """An allow-list: a list of values, or a mapping that says what is allowed."""

    def _build_schema(self, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices = {
            "<list>": handler.generate_schema(list[ScalarField]),
            "<mapping>": handler.generate_schema(Annotated[Any, From(within_keys, **ALLOWED_KEYS)]),
        }
        return _by_form(choices, "a list of values, or a mapping that says what is allowed")


Fits: TypeAlias = Annotated[Allowed, _Fits()]


# -- formats ----------------------------------------------------------------------------------------------------------


def _read_json(text: str, kind: str, where: str) -> tuple[Any, dict[Where, int]]:
    try:
        load_json(text, where=f"the {kind}")
    except MatError as error:
        raise SpecError(error.what, why=error.why, fix=error.fix, where=where) from None
    doubles: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) < len(found):
            counts = Counter(name for name, _ in found)
            doubles.extend(sorted(name for name, count in counts.items() if count > 1))
        return made

    def constant(name: str) -> Any:
        raise SpecError(f"{name} is not a JSON number", fix="write a number", where=where)

    data = json.loads(text, object_pairs_hook=pairs, parse_constant=constant, parse_float=partial(_exact, place=f"in {where}"))
    if doubles:
        raise SpecError(
            f"the {kind} has the key {', '.join(map(repr, doubles))} twice", why="one would hide the other",
            fix=_TWICE, where=where,
        )  # fmt: skip
    return data, {}


_TWICE: Final = "merge the two, or remove one"
_PLAIN: Final = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+0123456789."),
    ),
)
"""Plain scalars as the core schema of YAML 1.2 reads them: `on` and `no` are texts, and there are no dates and no base 60."""


def _read_yaml(text: str, kind: str, where: str) -> tuple[Any, dict[Where, int]]:
    """The data and the line of each place in it. Only one document, without anchors, aliases and tags, is accepted."""
    require("yaml", f"a {kind} in YAML", where=where, otherwise="write it in JSON")
    yaml: Any = import_module("yaml")
    loader: Any = type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": {}})
    for tag, expression, first in _PLAIN:
        loader.add_implicit_resolver(tag, re.compile(rf"^(?:{expression})$"), first)
    try:
        _check_events(yaml, yaml.parse(text, Loader=loader), kind, where)
        node = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        line = "" if mark is None else f" on line {mark.line + 1}"
        fix = "remove the character" if mark is None else "correct this line"
        raise SpecError(f"the {kind} is not valid YAML{line}: {problem}", fix=fix, where=where) from None
    lines: dict[Where, int] = {}
    doubles: list[str] = []
    data = None if node is None else _from_node(yaml, node, (), lines, doubles)
    if doubles:
        raise SpecError(f"the {kind} has {'; '.join(doubles)}", why="one would hide the other", fix=_TWICE, where=where)
    return data, lines


def _check_events(yaml: Any, events: Iterator[Any], kind: str, where: str) -> None:
    """Refuse deep nesting, references and tags before any value is built."""
    depth = documents = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise SpecError(
                f"the {kind} has an anchor or alias on line {line}", why="files are read literally",
                fix="write the value again where it is needed", where=where,
            )  # fmt: skip
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None):
            raise SpecError(
                f"the {kind} has a tag on line {line}", why="reading a file constructs no objects", fix="remove the tag",
                where=where,
            )  # fmt: skip
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > limits.FILE_DEPTH:
                raise SpecError(f"the {kind} is nested more than {limits.FILE_DEPTH} deep on line {line}", where=where)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    if documents > 1:
        raise SpecError(f"the file contains {documents} documents", fix=f"write one {kind} per file", where=where)


def _from_node(yaml: Any, node: Any, at: Where, lines: dict[Where, int], doubles: list[str]) -> Any:
    lines.setdefault(at, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_from_node(yaml, item, (*at, place), lines, doubles) for place, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key_node, item in node.value:
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            line = key_node.start_mark.line + 1
            if key in found:
                doubles.append(f"the key {key!r} twice, the second time on line {line}")
            lines[(*at, key)] = line
            found[key] = _from_node(yaml, item, (*at, key), lines, doubles)
        return found
    tag, text = node.tag.rpartition(":")[2], node.value
    match tag:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return _integer(text, node.start_mark.line + 1)
        case "float":
            return _exact(text, place=f"on line {node.start_mark.line + 1}")
    return text


def _integer(text: str, line: int) -> int:
    try:
        return int(text, {"0x": 16, "0o": 8}.get(text[:2], 10))
    except ValueError:  # more digits than Python reads
        raise SpecError(f"the number on line {line} has {len(text)} digits", fix="write a smaller one") from None


def _exact(text: str, *, place: str) -> float:
    """The number that a text states; SpecError if it is not finite, or if a float does not hold it as it is written.

    >>> _exact("0.1", place="on line 1")
    0.1
    """
    try:
        number = float(text)
        if math.isfinite(number) and Decimal(text) == Decimal(repr(number)):
            return number
    except (ValueError, InvalidOperation):  # .inf; an exponent that decimals do not have
        number = math.nan
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    raise SpecError(
        f"the number {shown} {place} cannot be held exactly" + (f": it would become {number}" if number == number else ""),
        why="a limit must be the one that is written", fix="write an integer, or a number of at most 15 digits",
    )  # fmt: skip


# -- problems in words ------------------------------------------------------------------------------------------------


def words(item: Any) -> str:
    """The text of a problem that pydantic found."""
    match item["type"]:
        case "wrong":
            return str(item["msg"])
        case "unknown":
            name = str(item["loc"][-1])
            return f"unknown key: {name!r}{did_you_mean(name, item['ctx']['known'])}"
        case "missing":
            return "it is missing"
        case "literal_error":
            expected = str(item["ctx"]["expected"]).replace(" or ", ", ").replace("'", "")
            choices = [choice.strip() for choice in expected.split(",")]
            meant = did_you_mean(str(item["input"]), choices)
            if len(choices) == 1:
                return f"expected {choices[0]}, not {item['input']!r}"
            return f"{item['input']!r} is not one of {', '.join(filter(None, choices))}{meant}"
    text = item["msg"].replace("valid dictionary", "mapping").replace("valid list", "list").replace("valid tuple", "list")
    return f"{text[0].lower()}{text[1:]}, not {kind_of(item['input'])}"


def kind_of(data: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(data), "an empty value" if data is None else type(data).__name__)

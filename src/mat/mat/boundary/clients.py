"""Client libraries and what each of them raises, by kind of failure: the presets of `errors=`.

An exception is made as the library makes it: with its request, its response, its code. Nothing of a library is imported before
an exception of it is made. A library that raises nothing for a kind (SQLite knows no rate limit) leaves it to the built-in
exceptions (`mat.boundary.port`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, TypeAlias

from mat.core.errors import MatError, did_you_mean

BUILTIN: Final = "builtin"
"""The preset of Python's own exceptions, which every kind falls back to."""
_STATUS: Final = {"server_error": 503, "rate_limit": 429, "auth": 401, "not_found": 404, "invalid": 422}
"""The HTTP status of a kind."""
_REASON: Final = {
    401: "Unauthorized", 404: "Not Found", 422: "Unprocessable Entity", 429: "Too Many Requests", 503: "Service Unavailable",
}  # fmt: skip
_HOST: Final = "service.invalid"
_URL: Final = f"https://{_HOST}/"
"""The address of the requests that exceptions carry; the name is reserved, so it leads nowhere (RFC 2606)."""
_HTTP: Final = ("timeout", "connection", *_STATUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFailure:
    """A failure to raise. `midway`: the connection broke after a part of the reply had arrived."""

    kind: str
    text: str
    retry_after_s: float | None = None
    midway: bool = False

    @property
    def status(self) -> int:
        return _STATUS[self.kind]

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after_s is None else {"retry-after": f"{self.retry_after_s:g}"}


MakeException: TypeAlias = Callable[[ClientFailure, str], BaseException]
"""(failure, importable name of the library) -> the exception that the library raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client library. `module` is imported to make its exceptions, of these `kinds`; `parts` are the top-level names of
    modules that belong to it. `known` are its exception classes that tell the kind by themselves. `model`: it calls language
    models."""

    name: str
    module: str
    make: MakeException
    kinds: tuple[str, ...] = _HTTP
    parts: tuple[str, ...] = ()
    known: Mapping[str, str]
    model: bool = False


def names() -> tuple[str, ...]:
    """The names of all presets."""
    return (*CLIENTS, *_ALIASES, BUILTIN)


def canonical_names(given: Iterable[str]) -> tuple[str, ...]:
    """The presets of these names, each once, under its own name ("botocore" is "boto3")."""
    return tuple(dict.fromkeys(_ALIASES.get(name, name) for name in given))


def problems(given: Iterable[str]) -> list[str]:
    """What is wrong with the names of presets: unknown ones, and libraries that cannot be imported."""
    found = []
    for name in given:
        client = CLIENTS.get(_ALIASES.get(name, name)) if isinstance(name, str) else None
        if client is None:
            if name != BUILTIN:
                hint = did_you_mean(str(name), names())
                found.append(f"errors: there is no preset {name!r}{hint}; the presets are {', '.join(names())}")
        elif not _importable(client.module):
            found.append(f"errors={name!r}: {client.module} cannot be imported; install it, or name the client that is used")
    return found


def offers(name: str, kind: str) -> bool:
    """Whether a preset raises an exception of its own for failures of this kind."""
    return name == BUILTIN or (name in CLIENTS and kind in CLIENTS[name].kinds)


def exception(name: str, failure: ClientFailure) -> BaseException | None:
    """What the client raises for a failure; None if it has no exception of its own. MatError if the library is missing."""
    if name == BUILTIN:
        return None
    wrong = problems([name])
    if wrong:
        raise MatError(wrong[0], why="an injected failure is an exception of the client", fix="name another preset in errors=")
    client = CLIENTS[canonical_names([name])[0]]
    if failure.kind not in client.kinds:
        return None
    try:
        return client.make(failure, client.module)
    except Exception as error:
        raise MatError(
            f"errors={name!r}: {client.module} as installed here cannot make its exception for {failure.kind!r}"
            f" ({type(error).__name__}: {error})",
            why="the preset is written for the published versions of the library",
            fix=f"declare the exception itself: errors={{{failure.kind!r}: ...}}",
        ) from error


def not_imported(given: Iterable[str]) -> list[str]:
    """Those of the presets whose library can be imported and is not yet."""
    found = (CLIENTS.get(name) for name in canonical_names(given))
    return [client.name for client in found if client and client.module not in sys.modules and _importable(client.module)]


def import_all(given: Iterable[str]) -> None:
    """Import the libraries of presets, with the parts of them that make exceptions."""
    for name in given:
        exception(name, ClientFailure(kind="timeout", text=""))


def kind_of(name: str, error: BaseException) -> str:
    """The kind of an exception that this client raised; "" if it is not one of the client's, or tells no kind."""
    client = CLIENTS.get(name)
    if client is None or not any(part_of(kind.__module__) == name for kind in type(error).__mro__):
        return ""
    for kind in type(error).__mro__:
        if kind.__name__ in client.known and part_of(kind.__module__) == name:
            return client.known[kind.__name__]
    return _kind_of_status(error)


def part_of(module: object) -> str:
    """The client that a module belongs to, by its name; "" for none."""
    return _PARTS.get(module.partition(".")[0], "") if isinstance(module, str) else ""


def client_of(value: Any) -> str:
    """The client that a value comes from: one of its modules, classes, functions or objects, or of a subclass; "" for none.

    Nothing but types and names is looked at, because a lazy object may import or connect when it is touched.
    """
    kind = type(value)  # `isinstance` would ask a lazy object for its class
    if issubclass(kind, ModuleType):
        return part_of(vars(value).get("__name__"))
    if issubclass(kind, type):
        return _client_of_class(value)
    if kind in (FunctionType, BuiltinFunctionType):
        return part_of(value.__module__)
    return _client_of_class(kind)


def _client_of_class(kind: type) -> str:
    return next(filter(None, (part_of(vars(each).get("__module__")) for each in kind.__mro__)), "")


def _importable(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _kind_of_status(error: BaseException) -> str:
    """The kind by the HTTP status or the gRPC code that an exception carries."""
    try:
        if callable(getattr(type(error), "code", None)):
            return _GRPC_KINDS.get(error.code().name, "")  # type: ignore[attr-defined]
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            status = response["ResponseMetadata"]["HTTPStatusCode"]
        else:
            holder = error if response is None else response
            status = getattr(holder, "status_code", None) or getattr(error, "status", None)
    except Exception:  # a property of the client's own that failed: the kind is unknown
        return ""
    if not isinstance(status, int):
        return ""
    if status >= 500:
        return "server_error"
    return {401: "auth", 403: "auth", 404: "not_found", 429: "rate_limit"}.get(status, "invalid" if status >= 400 else "")


# -- HTTP -------------------------------------------------------------------------------------------------------------


def _httpx(failure: ClientFailure, module: str) -> BaseException:
    httpx: Any = import_module(module)
    request = httpx.Request("POST", _URL)
    if failure.kind == "timeout":
        return httpx.ReadTimeout(failure.text, request=request)  # type: ignore[no-any-return]
    if failure.kind == "connection":
        kind = httpx.RemoteProtocolError if failure.midway else httpx.ConnectError
        return kind(failure.text, request=request)  # type: ignore[no-any-return]
    response = httpx.Response(failure.status, headers=failure.headers, request=request)
    return httpx.HTTPStatusError(failure.text, request=request, response=response)  # type: ignore[no-any-return]


def _requests(failure: ClientFailure, module: str) -> BaseException:
    requests: Any = import_module(module)
    errors, request = requests.exceptions, requests.Request("POST", _URL).prepare()
    if failure.kind == "timeout":
        return errors.ReadTimeout(failure.text, request=request)  # type: ignore[no-any-return]
    if failure.kind == "connection":
        kind = errors.ChunkedEncodingError if failure.midway else errors.ConnectionError
        return kind(failure.text, request=request)  # type: ignore[no-any-return]
    response = requests.Response()
    response.status_code, response.reason = failure.status, _REASON[failure.status]
    response.url, response.request, response._content = _URL, request, b""
    response.headers.update(failure.headers)
    return errors.HTTPError(failure.text, request=request, response=response)  # type: ignore[no-any-return]


def _urllib3(failure: ClientFailure, module: str) -> BaseException:
    """Retries are urllib3's own, so a connection that is refused ends them; a time-out of a POST is not retried."""
    urllib3: Any = import_module(module)
    errors, pool = urllib3.exceptions, urllib3.HTTPSConnectionPool(_HOST)
    if failure.kind == "timeout":
        return errors.ReadTimeoutError(pool, "/", failure.text)  # type: ignore[no-any-return]
    if failure.midway:
        return errors.ProtocolError(failure.text)  # type: ignore[no-any-return]
    reason = errors.NewConnectionError(urllib3.connection.HTTPConnection(_HOST), failure.text)
    return errors.MaxRetryError(pool, "/", reason)  # type: ignore[no-any-return]


def _aiohttp(failure: ClientFailure, module: str) -> BaseException:
    aiohttp: Any = import_module(module)
    if failure.kind == "timeout":
        kind = getattr(aiohttp, "SocketTimeoutError", aiohttp.ServerTimeoutError)
        return kind(failure.text)  # type: ignore[no-any-return]
    if failure.kind == "connection":
        if failure.midway:
            return aiohttp.ClientPayloadError(failure.text)  # type: ignore[no-any-return]
        key: Any = import_module(f"{module}.client_reqrep").ConnectionKey
        known = {"host": _HOST, "port": 443, "is_ssl": True, "ssl": True}
        place = key(**{name: known.get(name) for name in key._fields})
        return aiohttp.ClientConnectorError(place, ConnectionRefusedError(111, failure.text))  # type: ignore[no-any-return]
    url, headers = import_module("yarl").URL(_URL), import_module("multidict").CIMultiDict(failure.headers)
    request = aiohttp.RequestInfo(url, "POST", import_module("multidict").CIMultiDictProxy(type(headers)()), url)
    return aiohttp.ClientResponseError(  # type: ignore[no-any-return]
        request, (), status=failure.status, message=failure.text, headers=headers
    )


# -- language models --------------------------------------------------------------------------------------------------

_MODEL_ERRORS: Final = {
    "server_error": "InternalServerError", "rate_limit": "RateLimitError", "auth": "AuthenticationError",
    "not_found": "NotFoundError", "invalid": "UnprocessableEntityError",
}  # fmt: skip


def _model_client(failure: ClientFailure, module: str) -> BaseException:
    """OpenAI's and Anthropic's clients are made by one generator. The stream itself is httpx's, and so is what breaks it."""
    library: Any = import_module(module)
    request: Any = import_module("httpx").Request("POST", _URL)
    if failure.kind == "timeout":
        return library.APITimeoutError(request=request)  # type: ignore[no-any-return]
    if failure.kind == "connection":
        if failure.midway:
            return _httpx(failure, "httpx")
        return library.APIConnectionError(message=failure.text, request=request)  # type: ignore[no-any-return]
    response = import_module("httpx").Response(failure.status, headers=failure.headers, request=request)
    kind = getattr(library, _MODEL_ERRORS[failure.kind])
    return kind(failure.text, response=response, body=None)  # type: ignore[no-any-return]


_MODEL_KNOWN: Final = {"APITimeoutError": "timeout", "APIConnectionError": "connection"}


# -- AWS and gRPC -----------------------------------------------------------------------------------------------------

_AWS_CODES: Final = {
    "server_error": ("ServiceUnavailable", 503), "rate_limit": ("ThrottlingException", 429),
    "auth": ("AccessDeniedException", 403), "not_found": ("ResourceNotFoundException", 404),
    "invalid": ("ValidationException", 400),
}  # fmt: skip


def _botocore(failure: ClientFailure, module: str) -> BaseException:
    errors: Any = import_module(f"{module}.exceptions")
    if failure.kind == "timeout":
        return errors.ReadTimeoutError(endpoint_url=_URL, error=failure.text)  # type: ignore[no-any-return]
    if failure.kind == "connection":
        if failure.midway:
            return errors.ResponseStreamingError(error=failure.text)  # type: ignore[no-any-return]
        return errors.EndpointConnectionError(endpoint_url=_URL, error=failure.text)  # type: ignore[no-any-return]
    code, status = _AWS_CODES[failure.kind]
    answer = {
        "Error": {"Code": code, "Message": failure.text},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": failure.headers, "RetryAttempts": 0},
    }
    return errors.ClientError(answer, "Operation")  # type: ignore[no-any-return]


_GRPC_CODES: Final = {
    "timeout": "DEADLINE_EXCEEDED", "connection": "UNAVAILABLE", "server_error": "INTERNAL", "rate_limit": "RESOURCE_EXHAUSTED",
    "auth": "UNAUTHENTICATED", "not_found": "NOT_FOUND", "invalid": "INVALID_ARGUMENT",
}  # fmt: skip
_GRPC_KINDS: Final = {
    **{code: kind for kind, code in _GRPC_CODES.items()}, "PERMISSION_DENIED": "auth", "UNKNOWN": "server_error",
}  # fmt: skip


def _grpc(failure: ClientFailure, module: str) -> BaseException:
    """The public class of the two: a synchronous stub raises a private one with the same base and the same methods."""
    grpc, aio = import_module(module), import_module(f"{module}.aio")
    code = getattr(grpc.StatusCode, _GRPC_CODES[failure.kind])
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), details=failure.text)  # type: ignore[no-any-return]


# -- databases and stores ---------------------------------------------------------------------------------------------

_SQLITE: Final = {
    "timeout": ("OperationalError", "database is locked"),
    "connection": ("OperationalError", "unable to open database file"),
    "server_error": ("OperationalError", "disk I/O error"),
    "auth": ("OperationalError", "attempt to write a readonly database"),
    "not_found": ("OperationalError", "no such table"),
    "invalid": ("DatabaseError", "file is not a database"),
}


def _sqlite3(failure: ClientFailure, module: str) -> BaseException:
    name, text = _SQLITE[failure.kind]
    return getattr(import_module(module), name)(text)  # type: ignore[no-any-return]


_POSTGRES: Final = {
    "server_error": "AdminShutdown", "rate_limit": "TooManyConnections", "auth": "InsufficientPrivilege",
    "not_found": "UndefinedTable", "invalid": "InvalidTextRepresentation",
}  # fmt: skip


def _psycopg(failure: ClientFailure, module: str) -> BaseException:
    """A lost reply is a lost connection: a cancelled statement (QueryCanceled) would not have happened."""
    if failure.kind in ("timeout", "connection"):
        return import_module(module).OperationalError(failure.text)  # type: ignore[no-any-return]
    return getattr(import_module(f"{module}.errors"), _POSTGRES[failure.kind])(failure.text)  # type: ignore[no-any-return]


_REDIS: Final = {
    "timeout": "TimeoutError", "connection": "ConnectionError", "server_error": "BusyLoadingError",
    "rate_limit": "MaxConnectionsError", "auth": "AuthenticationError", "invalid": "ResponseError",
}  # fmt: skip


def _redis(failure: ClientFailure, module: str) -> BaseException:
    errors: Any = import_module(f"{module}.exceptions")
    kind = getattr(errors, _REDIS[failure.kind], errors.ConnectionError)  # MaxConnectionsError is new in redis 4.6
    return kind(failure.text)  # type: ignore[no-any-return]


_HTTPX_KNOWN: Final = {"TimeoutException": "timeout", "TransportError": "connection"}
_CLIENTS: Final = (
    Client(name="httpx", module="httpx", make=_httpx, known=_HTTPX_KNOWN),
    Client(name="httpx2", module="httpx2", make=_httpx, known=_HTTPX_KNOWN),
    Client(
        name="requests", module="requests", make=_requests,
        known={"Timeout": "timeout", "ConnectionError": "connection", "ChunkedEncodingError": "connection"},
    ),
    Client(
        name="urllib3", module="urllib3", make=_urllib3, kinds=("timeout", "connection"),
        known={"TimeoutError": "timeout", "MaxRetryError": "connection", "ProtocolError": "connection"},
    ),
    Client(
        name="aiohttp", module="aiohttp", make=_aiohttp,
        known={
            "ServerTimeoutError": "timeout", "ClientConnectionError": "connection", "ClientPayloadError": "connection",
        },
    ),
    Client(name="openai", module="openai", make=_model_client, known=_MODEL_KNOWN, model=True),
    Client(name="anthropic", module="anthropic", make=_model_client, known=_MODEL_KNOWN, model=True),
    Client(
        name="boto3", module="botocore", make=_botocore, parts=("boto3", "botocore", "aioboto3", "aiobotocore"),
        known={
            "ReadTimeoutError": "timeout", "ConnectTimeoutError": "timeout", "ConnectionError": "connection",
            "HTTPClientError": "connection",
        },
    ),
    Client(name="grpc", module="grpc", make=_grpc, known={}),
    Client(
        name="sqlite3", module="sqlite3", make=_sqlite3, kinds=tuple(_SQLITE), parts=("sqlite3", "_sqlite3", "aiosqlite"),
        known={"OperationalError": "timeout", "DatabaseError": "invalid"},
    ),
    Client(
        name="psycopg", module="psycopg", make=_psycopg, parts=("psycopg", "psycopg_pool"),
        known={
            "QueryCanceled": "timeout", "InsufficientPrivilege": "auth", "UndefinedTable": "not_found", "DataError": "invalid",
            "OperationalError": "connection",
        },
    ),
    Client(
        name="psycopg2", module="psycopg2", make=_psycopg,
        known={"QueryCanceled": "timeout", "DataError": "invalid", "OperationalError": "connection"},
    ),
    Client(
        name="redis", module="redis", make=_redis, kinds=tuple(_REDIS),
        known={
            "TimeoutError": "timeout", "AuthenticationError": "auth", "BusyLoadingError": "server_error",
            "ConnectionError": "connection", "ResponseError": "invalid",
        },
    ),
)  # fmt: skip
CLIENTS: Final[Mapping[str, Client]] = {client.name: client for client in _CLIENTS}
_ALIASES: Final = {"botocore": "boto3"}
_PARTS: Final = {part: client.name for client in _CLIENTS for part in client.parts or (client.name,)}

"""Reads exceptions of known libraries: their keys, the errors that they wrap, and the requested delay.

Nothing is imported for it, and nothing is trusted: whatever an attribute is, does or raises, the result is None at
worst. Responses are compared with None, not used as booleans, because a failed response is false.
"""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Any, Final

MAX_WAIT_S: Final = 86_400.0
"""The longest delay that a downstream can request."""

_MAX_TEXT = 100
_TOO_MANY = re.compile(r"too many ([45]\d\d) error responses")  # urllib3 has the status only in its message
_MULTIPLE = re.compile(r"Multiple exceptions: .*?\[Errno (\d{1,5})\]")  # asyncio, when each address of a host failed
_SQLSTATE = re.compile(r"[0-9A-Z]{5}")
_KAFKA_NAME = re.compile(r"_?[A-Z][A-Z_0-9]+")

Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ErrorReader:
    """How instances of one class are read. `scheme` is the scheme of the keys, for display: "http"."""

    scheme: str
    keys: Callable[[Any], Keys] | None = None
    inner: Callable[[Any], object] | None = None
    last_resort: bool = False
    """Its keys are looked up after all classes of the exception instead of before those of its library."""


def attribute(owner: object, name: str) -> Any:
    """The attribute, or None if there is none or it cannot be read."""
    try:
        return getattr(owner, name, None)
    except BaseException:  # noqa: BLE001 - foreign code; signals arrive in the main thread, not here
        return None


def call(owner: object, name: str, *arguments: object) -> Any:
    """The result of the method, or None if it is missing or raises."""
    method = attribute(owner, name)
    if method is None:
        return None
    try:
        return method(*arguments)
    except BaseException:  # noqa: BLE001 - as above
        return None


def integer(value: object) -> int | None:
    kind = type(value)
    return int.__index__(value) if issubclass(kind, int) and kind is not bool else None  # type: ignore[arg-type]


def short_text(value: object) -> str | None:
    if not issubclass(type(value), str) or str.__len__(value) > _MAX_TEXT:  # type: ignore[arg-type]
        return None
    return str.__str__(value) or None  # pyright: ignore[reportArgumentType]


def first_argument(error: object) -> Any:
    arguments = attribute(error, "args")
    return arguments[0] if type(arguments) is tuple and arguments else None


# HTTP


def _http(*path: str) -> Callable[[Any], Keys]:
    """A reader of the status at the end of this path of attributes."""

    def keys(error: Any) -> Keys:
        value = error
        for step in path:
            value = attribute(value, step)
        return _http_keys(value)

    return keys


def _http_keys(value: object) -> Keys:
    status = integer(value)
    return (f"http:{status}",) if status is not None and 300 <= status <= 599 else ()


def _urllib3_keys(error: Any) -> Keys:
    text = short_text(first_argument(error))
    found = _TOO_MANY.search(text) if text else None
    return (f"http:{found[1]}",) if found else ()


def _any_keys(error: Any) -> Keys:
    """Reads the status or SQLSTATE of any exception under one of the common attribute names."""
    for name in ("status_code", "http_status", "http_status_code"):
        keys = _http_keys(attribute(error, name))
        if keys:
            return keys
    response = attribute(error, "response")
    keys = _http_keys(attribute(response, "status_code")) if response is not None else ()
    return keys or _sqlstate_keys(error)


# Databases, gRPC, AWS


def _sqlstate_keys(error: Any) -> Keys:
    for name in ("sqlstate", "pgcode"):
        state = short_text(attribute(error, name))
        if state and _SQLSTATE.fullmatch(state):
            return (f"sqlstate:{state}",)
    return ()


def _sqlite_keys(error: Any) -> Keys:
    """The result code and the primary one of its kind: `SQLITE_IOERR_WRITE` is an `IOERR`."""
    name = short_text(attribute(error, "sqlite_errorname"))
    if not name or not name.startswith("SQLITE_"):
        return ()
    code = name.removeprefix("SQLITE_")
    return tuple(dict.fromkeys((f"sqlite:{code}", f"sqlite:{code.partition('_')[0]}")))


def _grpc_keys(error: Any) -> Keys:
    name = short_text(attribute(call(error, "code"), "name"))
    return (f"grpc:{name}",) if name else ()


def _aws_keys(error: Any) -> Keys:
    response = attribute(error, "response")
    code = short_text(_item(_item(response, "Error"), "Code"))
    status = _http_keys(_item(_item(response, "ResponseMetadata"), "HTTPStatusCode"))
    return (f"aws:{code}", *status) if code else status


def _item(mapping: object, name: str) -> Any:
    return call(mapping, "get", name) if mapping is not None else None


# Kafka


def _confluent_keys(error: Any) -> Keys:
    inner = first_argument(error)
    name = short_text(call(inner, "name"))
    keys = [f"kafka:{name}"] if name and _KAFKA_NAME.fullmatch(name) else []
    if call(inner, "fatal") is True:
        keys.append("kafka:_FATAL")
    if call(inner, "retriable") is True:
        keys.append("kafka:retriable")
    return tuple(keys)


def _kafka_python_keys(error: Any) -> Keys:
    name = short_text(attribute(type(error), "message"))
    return (f"kafka:{name}",) if name and _KAFKA_NAME.fullmatch(name) else ()


def _kafka_python_retriable(error: Any) -> Keys:
    return ("kafka:retriable",) if attribute(error, "retriable") is True else ()


def _fault_keys(error: Any) -> Keys:
    fault = short_text(attribute(error, "fault"))
    return (f"fault:{fault}",) if fault else ()


# The operating system


def _errno_keys(error: Any) -> Keys:
    number = integer(attribute(error, "errno"))
    if number is None:
        text = first_argument(error)
        found = _MULTIPLE.match(text[:2000]) if type(text) is str else None
        number = int(found[1]) if found else None
    name = errno.errorcode.get(number) if number is not None else None
    return (f"errno:{name}",) if name else ()


READERS: Final[Mapping[str, tuple[ErrorReader, ...]]] = {
    "requests.exceptions.HTTPError": (ErrorReader("http", _http("response", "status_code")),),
    "requests.exceptions.ConnectionError": (ErrorReader("", inner=first_argument),),
    "requests.exceptions.RetryError": (ErrorReader("http", inner=first_argument),),
    "httpx.HTTPStatusError": (ErrorReader("http", _http("response", "status_code")),),
    "aiohttp.client_exceptions.ClientResponseError": (ErrorReader("http", _http("status")),),
    "urllib3.exceptions.ResponseError": (ErrorReader("http", _urllib3_keys),),
    "urllib3.exceptions.MaxRetryError": (ErrorReader("http", inner=lambda error: attribute(error, "reason")),),
    "urllib.error.HTTPError": (ErrorReader("http", _http("code")),),
    "urllib.error.URLError": (ErrorReader("errno", inner=lambda error: attribute(error, "reason")),),
    "sqlalchemy.exc.StatementError": (ErrorReader("sqlstate", inner=lambda error: attribute(error, "orig")),),
    "psycopg.Error": (ErrorReader("sqlstate", _sqlstate_keys),),
    "psycopg2.Error": (ErrorReader("sqlstate", _sqlstate_keys),),
    "asyncpg.exceptions._base.PostgresError": (ErrorReader("sqlstate", _sqlstate_keys),),
    "sqlite3.Error": (ErrorReader("sqlite", _sqlite_keys),),
    "grpc.RpcError": (ErrorReader("grpc", _grpc_keys),),
    "botocore.exceptions.ClientError": (ErrorReader("aws", _aws_keys),),
    "confluent_kafka.cimpl.KafkaException": (ErrorReader("kafka", _confluent_keys),),
    "kafka.errors.KafkaError": (
        ErrorReader("kafka", _kafka_python_keys),
        ErrorReader("kafka", _kafka_python_retriable, last_resort=True),
    ),
    "keepfast.core.errors.PortError": (ErrorReader("fault", _fault_keys),),
    "builtins.OSError": (ErrorReader("errno", _errno_keys),),
    "builtins.Exception": (ErrorReader("", _any_keys, last_resort=True),),
}
"""Class → its readers. Their keys are looked up before the classes of the same library."""


# Requested delays


def retry_after_s(error: BaseException, key: str, now_wall: float | None) -> float | None:
    """The delay in seconds that the downstream requests, or None. `now_wall` is the wall clock, for HTTP dates."""
    if key.startswith("grpc:"):
        return _grpc_wait(error)
    if key == "keepfast.core.errors.RetryLater":
        return _seconds(attribute(error, "after_s"), max_s=math.inf)  # a handler may request days
    response = attribute(error, "response")
    headers = attribute(response, "headers") if response is not None else None
    if headers is None:
        headers = _item(_item(response, "ResponseMetadata"), "HTTPHeaders") if response is not None else None
    if headers is None:
        headers = attribute(error, "headers")
    if headers is not None:
        header = short_text(call(headers, "get", "Retry-After")) or short_text(call(headers, "get", "retry-after"))
        wait_s = parse_retry_after(header, now_wall)
        if wait_s is not None:
            return wait_s
    return _seconds(attribute(error, "retry_after"))


def parse_retry_after(value: object, now_wall: float | None) -> float | None:
    """The value of a Retry-After header in seconds from now, from 0 to a day; None if it is invalid."""
    text = short_text(value)
    if text is None:
        return None
    text = text.strip()
    if re.fullmatch(r"\d{1,18}(?:\.\d{1,9})?", text, re.ASCII):
        return _bounded(float(text))
    if now_wall is None:
        return None
    from email.utils import parsedate_to_datetime  # slow to import, and dates are rare

    try:
        when = parsedate_to_datetime(text)
        return _bounded((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now_wall)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _grpc_wait(error: BaseException) -> float | None:
    """The delay in gRPC's trailing metadata. A negative number means no retry, which is not a delay: None."""
    trailer = call(error, "trailing_metadata")
    try:
        delay = {name: value for name, value in trailer}.get("grpc-retry-pushback-ms")  # noqa: C416 - pairs of any kind
    except BaseException:  # noqa: BLE001 - a foreign container
        return None
    text = short_text(delay)
    return _bounded(int(text) / 1000) if text and re.fullmatch(r"\d{1,12}", text, re.ASCII) else None


def _seconds(value: object, max_s: float = MAX_WAIT_S) -> float | None:
    kind = type(value)
    if kind is timedelta:
        return _bounded(value.total_seconds(), max_s)  # type: ignore[attr-defined]
    if kind is int or kind is float:
        return _bounded(value, max_s)  # type: ignore[arg-type]
    return None


def _bounded(seconds: float, max_s: float = MAX_WAIT_S) -> float | None:
    try:
        bounded = float(min(max(seconds, 0), max_s))
    except OverflowError:  # an integer too large for a float
        return None
    return bounded if math.isfinite(bounded) else None

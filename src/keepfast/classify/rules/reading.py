"""What an exception of a known library says about itself: its keys, what it wraps, and how long to wait.

Nothing is imported for it, and nothing is trusted: whatever an attribute is, does or raises, the answer is at worst
that there is none. Responses are compared with None, never asked for their truth: a failed one is false.
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
"""No downstream can hold a record longer than a day, whatever it asks for."""

_MAX_WORD = 100
_TOO_MANY = re.compile(r"too many ([45]\d\d) error responses")  # urllib3 says the status in words only
_MULTIPLE = re.compile(r"Multiple exceptions: .*?\[Errno (\d{1,5})\]")  # asyncio, when each address of a host failed
_SQLSTATE = re.compile(r"[0-9A-Z]{5}")
_KAFKA_NAME = re.compile(r"_?[A-Z][A-Z_0-9]+")

Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ErrorReader:
    """How instances of one class are read. `asked` names the key scheme, for people: "http"."""

    asked: str
    keys: Callable[[Any], Keys] | None = None
    inner: Callable[[Any], object] | None = None
    last_resort: bool = False
    """Asked after the rules for all classes of the exception instead of before those of its library."""


def attribute(owner: object, name: str) -> Any:
    """The attribute, or None if there is none or it cannot be read."""
    try:
        return getattr(owner, name, None)
    except BaseException:  # noqa: BLE001 - a property of a stranger; signals arrive in the main thread, not here
        return None


def called(owner: object, name: str, *arguments: object) -> Any:
    """What the method answers, or None."""
    method = attribute(owner, name)
    if method is None:
        return None
    try:
        return method(*arguments)
    except BaseException:  # noqa: BLE001 - as above
        return None


def whole(value: object) -> int | None:
    kind = type(value)
    return int.__index__(value) if issubclass(kind, int) and kind is not bool else None  # type: ignore[arg-type]


def word(value: object) -> str | None:
    if not issubclass(type(value), str) or str.__len__(value) > _MAX_WORD:  # type: ignore[arg-type]
        return None
    return str.__str__(value) or None


def first_argument(error: object) -> Any:
    arguments = attribute(error, "args")
    return arguments[0] if type(arguments) is tuple and arguments else None


# HTTP


def _http(*path: str) -> Callable[[Any], Keys]:
    """Reads the status at the end of the path of attributes."""

    def keys(error: Any) -> Keys:
        value = error
        for step in path:
            value = attribute(value, step)
        return _http_keys(value)

    return keys


def _http_keys(value: object) -> Keys:
    status = whole(value)
    return (f"http:{status}",) if status is not None and 300 <= status <= 599 else ()


def _urllib3_keys(error: Any) -> Keys:
    text = word(first_argument(error))
    found = _TOO_MANY.search(text) if text else None
    return (f"http:{found[1]}",) if found else ()


def _any_keys(error: Any) -> Keys:
    """Anybody's exception that carries a status or a SQLSTATE under one of the usual names."""
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
        state = word(attribute(error, name))
        if state and _SQLSTATE.fullmatch(state):
            return (f"sqlstate:{state}",)
    return ()


def _grpc_keys(error: Any) -> Keys:
    name = word(attribute(called(error, "code"), "name"))
    return (f"grpc:{name}",) if name else ()


def _aws_keys(error: Any) -> Keys:
    response = attribute(error, "response")
    code = word(_item(_item(response, "Error"), "Code"))
    status = _http_keys(_item(_item(response, "ResponseMetadata"), "HTTPStatusCode"))
    return (f"aws:{code}", *status) if code else status


def _item(mapping: object, name: str) -> Any:
    return called(mapping, "get", name) if mapping is not None else None


# Kafka


def _confluent_keys(error: Any) -> Keys:
    inner = first_argument(error)
    name = word(called(inner, "name"))
    keys = [f"kafka:{name}"] if name and _KAFKA_NAME.fullmatch(name) else []
    if called(inner, "fatal") is True:
        keys.append("kafka:_FATAL")
    if called(inner, "retriable") is True:
        keys.append("kafka:retriable")
    return tuple(keys)


def _kafka_python_keys(error: Any) -> Keys:
    name = word(attribute(type(error), "message"))
    return (f"kafka:{name}",) if name and _KAFKA_NAME.fullmatch(name) else ()


def _kafka_python_retriable(error: Any) -> Keys:
    return ("kafka:retriable",) if attribute(error, "retriable") is True else ()


def _fault_keys(error: Any) -> Keys:
    fault = word(attribute(error, "fault"))
    return (f"fault:{fault}",) if fault else ()


# The operating system


def _errno_keys(error: Any) -> Keys:
    number = whole(attribute(error, "errno"))
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
"""Class → how its instances are read, before they are looked up by any class that the same library brings."""


# How long to wait


def wait_of(error: BaseException, key: str, now_wall: float | None) -> float | None:
    """How many seconds the downstream asks to wait, if it does. `now_wall` is the wall clock, for HTTP dates."""
    if key.startswith("grpc:"):
        return _grpc_wait(error)
    if key == "keepfast.core.errors.RetryLater":
        return _seconds(attribute(error, "after_s"), most_s=math.inf)  # a handler may wait for days
    response = attribute(error, "response")
    headers = attribute(response, "headers") if response is not None else None
    if headers is None:
        headers = _item(_item(response, "ResponseMetadata"), "HTTPHeaders") if response is not None else None
    if headers is None:
        headers = attribute(error, "headers")
    if headers is not None:
        told = word(called(headers, "get", "Retry-After")) or word(called(headers, "get", "retry-after"))
        wait_s = parse_retry_after(told, now_wall)
        if wait_s is not None:
            return wait_s
    return _seconds(attribute(error, "retry_after"))


def parse_retry_after(value: object, now_wall: float | None) -> float | None:
    """The header's value in seconds from now: `120`, or a date; None if it is neither. At least 0, at most a day."""
    text = word(value)
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
    """gRPC's own way to say it, in the trailing metadata; a negative number means: not at all, which is no time."""
    trailer = called(error, "trailing_metadata")
    try:
        told = {name: value for name, value in trailer}.get("grpc-retry-pushback-ms")  # noqa: C416 - pairs of any kind
    except BaseException:  # noqa: BLE001 - a stranger's container
        return None
    text = word(told)
    return _bounded(int(text) / 1000) if text and re.fullmatch(r"\d{1,12}", text, re.ASCII) else None


def _seconds(value: object, most_s: float = MAX_WAIT_S) -> float | None:
    kind = type(value)
    if kind is timedelta:
        return _bounded(value.total_seconds(), most_s)  # type: ignore[attr-defined]
    if kind is int or kind is float:
        return _bounded(value, most_s)  # type: ignore[arg-type]
    return None


def _bounded(seconds: float, most_s: float = MAX_WAIT_S) -> float | None:
    try:
        bounded = float(min(max(seconds, 0), most_s))
    except OverflowError:  # a whole number without end
        return None
    return bounded if math.isfinite(bounded) else None

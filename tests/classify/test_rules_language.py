"""Python's own exceptions, validation, what handlers say themselves, chains and groups."""

from __future__ import annotations

import asyncio
import enum
import errno
import json
import socket
import ssl
from concurrent.futures import CancelledError
from typing import Literal

import msgspec
import psycopg
import psycopg2
import pydantic
import pytest
import requests

from keepfast.classify.classification import Classification, classify, is_retryable_error
from keepfast.core import errors
from tests.classify.errors import DOWN, caught, found, verdict

INVALID_VALUE = ("non-retryable", "VALUE_INVALID", False)
INVALID_TYPE = ("non-retryable", "TYPE_INVALID", False)
LOOKUP = ("non-retryable", "LOOKUP_FAILED", False)
UNKNOWN = ("retryable", "UNHANDLED_EXCEPTION", False)
DECODE = ("non-retryable", "DECODE_FAILED", False)


class Colour(enum.Enum):
    RED = "red"


class Order(pydantic.BaseModel):
    id: int
    colour: Literal["red", "blue"] = "red"


class Parcel(msgspec.Struct):
    id: int
    colour: Colour = Colour.RED


class CardFoundError(errors.Discard):
    code = "PAN_DETECTED"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("x"), INVALID_VALUE),
        (caught(lambda: int("x")), INVALID_VALUE),
        (caught(lambda: Colour("green")), INVALID_VALUE),
        (caught(lambda: 1 / 0), INVALID_VALUE),
        (RecursionError(), INVALID_VALUE),
        (TypeError(), INVALID_TYPE),
        (AttributeError(), INVALID_TYPE),
        (KeyError("id"), LOOKUP),
        (IndexError(), LOOKUP),
        (caught(lambda: json.loads("{")), DECODE),
        (caught(b"\xff".decode), DECODE),
        (caught(lambda: msgspec.json.decode(b"{")), DECODE),
        (NotImplementedError(), ("non-retryable", "CODE_ERROR", False)),
        (NameError(), ("non-retryable", "CODE_ERROR", False)),
        (errors.ConfigError("x"), ("non-retryable", "CONFIGURATION", False)),
        (FileNotFoundError(errno.ENOENT, "x"), ("non-retryable", "NOT_FOUND", False)),
        (FileNotFoundError("x"), ("non-retryable", "NOT_FOUND", False)),
        (PermissionError(errno.EACCES, "x"), ("non-retryable", "PERMISSION_DENIED", False)),
        (ConnectionError(), DOWN),
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), DOWN),
        (BrokenPipeError(), DOWN),
        (OSError(errno.ENETUNREACH, "x"), DOWN),
        (OSError(errno.EHOSTUNREACH, "x"), DOWN),
        (caught(lambda: socket.getaddrinfo("no-such-host.invalid", 80)), DOWN),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] …"), DOWN),
        (ssl.SSLCertVerificationError(1, "expired"), ("retryable", "TLS_ERROR", True)),
        (TimeoutError(), ("retryable", "TIMEOUT", True)),
        (TimeoutError(errno.ETIMEDOUT, "x"), ("retryable", "TIMEOUT", True)),
        (OSError(errno.ENOSPC, "x"), ("retryable", "RESOURCE_EXHAUSTED", False)),
        (MemoryError(), ("retryable", "RESOURCE_EXHAUSTED", False)),
        (OSError(errno.EXDEV, "x"), UNKNOWN),
        (OSError(), UNKNOWN),
        (asyncio.CancelledError(), ("retryable", "CANCELLED", False)),
        (CancelledError(), ("retryable", "CANCELLED", False)),
        (asyncio.IncompleteReadError(b"", 1), DOWN),
        (GeneratorExit(), UNKNOWN),
        (AssertionError(), UNKNOWN),
        (RuntimeError(), UNKNOWN),
        (Exception(), UNKNOWN),
        (SystemExit(0), ("halt", "HALTED", False)),
        (KeyboardInterrupt(), ("halt", "HALTED", False)),
        (errors.Halt("disk full"), ("halt", "HALTED", False)),
        (errors.Discard("a test record"), ("discard", "DISCARDED", False)),
        (CardFoundError("card number"), ("discard", "PAN_DETECTED", False)),
        (errors.Reject("no account", code="NO_ACCOUNT"), ("non-retryable", "NO_ACCOUNT", False)),
        (errors.Reject("no account"), ("non-retryable", "REJECTED", False)),
        (errors.DecodeError("", code="TOMBSTONE"), ("non-retryable", "TOMBSTONE", False)),
        (errors.RetryLater(after_s=5), ("retryable", "RETRY_LATER", False)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_an_exception_means(error: BaseException, expected: tuple[str, str, bool]) -> None:
    assert verdict(error) == expected


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (caught(lambda: Order.model_validate_json(b"{}")), "MISSING_REQUIRED_FIELD"),
        (caught(lambda: Order.model_validate_json(b'{"id": 1, "colour": "green"}')), "ENUM_INVALID"),
        (caught(lambda: Order.model_validate_json(b'{"id": "x"}')), "SCHEMA_INVALID"),
        (caught(lambda: Order.model_validate_json(b'{"colour": "green"}')), "SCHEMA_INVALID"),
        (caught(lambda: Order.model_validate_json(b"{")), "DECODE_FAILED"),
        (caught(lambda: msgspec.json.decode(b"{}", type=Parcel)), "MISSING_REQUIRED_FIELD"),
        (caught(lambda: msgspec.json.decode(b'{"id": 1, "colour": "green"}', type=Parcel)), "ENUM_INVALID"),
        (caught(lambda: msgspec.json.decode(b'{"id": "x"}', type=Parcel)), "SCHEMA_INVALID"),
    ],
)
def test_validation_is_final_with_the_narrowest_code(error: BaseException, code: str) -> None:
    assert verdict(error) == ("non-retryable", code, False)


def test_a_value_with_very_many_mistakes_is_not_searched_for_its_code() -> None:
    many = caught(lambda: pydantic.TypeAdapter(list[Order]).validate_python([{}] * 1000))
    assert verdict(many) == ("non-retryable", "SCHEMA_INVALID", False)


@pytest.mark.parametrize("after_s", [0, 0.5, 500_000])
def test_a_handler_may_wait_as_long_as_it_says(after_s: float) -> None:
    assert found(errors.RetryLater(after_s=after_s)).retry_after_s == after_s


def test_the_rule_that_decided_is_reported_with_its_place_in_the_standard() -> None:
    assert found(ConnectionResetError()) == Classification(
        kind="retryable",
        code="NETWORK_ERROR",
        rule="network",
        outage=True,
        standard="§1.1.1 Network Errors",
        matched="builtins.ConnectionError",
    )
    assert found(Exception()) == Classification(kind="retryable", code="UNHANDLED_EXCEPTION", rule="unknown")


@pytest.mark.parametrize("error", [Exception(), requests.HTTPError(response=None), GeneratorExit(), OSError()])
def test_unknown_errors_go_where_the_setting_says(error: BaseException) -> None:
    assert classify(error, unknown="retry").kind == "retryable"
    assert classify(error, unknown="dead-letter").kind == "non-retryable"


def test_what_is_known_does_not_ask_that_setting() -> None:
    assert classify(ConnectionError(), unknown="dead-letter").kind == "retryable"
    assert classify(ValueError(), unknown="retry").kind == "non-retryable"


def test_missing_things_go_where_the_setting_says() -> None:
    assert classify(FileNotFoundError(), not_found="final").kind == "non-retryable"
    assert classify(FileNotFoundError(), not_found="retry").kind == "retryable"


# Chains


class ServiceError(Exception):
    """A wrapper that says nothing by itself."""


def chained(outer: BaseException, *causes: BaseException) -> BaseException:
    error = outer
    for cause in causes:
        error.__cause__ = cause
        error = cause
    return outer


def test_where_the_outer_error_says_nothing_its_cause_decides() -> None:
    assert verdict(chained(ServiceError(), ConnectionError())) == DOWN
    assert verdict(chained(RuntimeError(), ServiceError(), KeyError())) == LOOKUP
    assert verdict(chained(ServiceError(), RuntimeError())) == UNKNOWN


def test_where_the_outer_error_says_something_its_cause_is_not_asked() -> None:
    assert verdict(chained(ValueError(), ConnectionError())) == INVALID_VALUE
    assert verdict(chained(errors.Reject("x"), ConnectionError())) == ("non-retryable", "REJECTED", False)


def test_an_error_raised_during_another_is_not_its_consequence() -> None:
    def handle() -> None:
        try:
            raise KeyError("cache miss")
        except KeyError:
            raise ServiceError  # noqa: B904 - the point of it

    error = caught(handle)
    assert isinstance(error.__context__, KeyError)
    assert verdict(error) == UNKNOWN


def test_a_chain_that_bites_its_tail_ends() -> None:
    one, other = ServiceError(), ServiceError()
    one.__cause__, other.__cause__ = other, one
    assert verdict(one) == UNKNOWN


# Groups


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([ConnectionError(), ConnectionError()], DOWN),
        ([ConnectionError(), ValueError()], INVALID_VALUE),
        ([ConnectionError(), ExceptionGroup("inner", [TypeError()])], INVALID_TYPE),
        ([ServiceError(), ConnectionError()], DOWN),
        ([ServiceError()], UNKNOWN),
        ([ValueError(), errors.Discard("x")], ("discard", "DISCARDED", False)),
        ([errors.Discard("x"), errors.Halt("x")], ("halt", "HALTED", False)),
    ],
)
def test_a_group_is_what_its_worst_member_is(members: list[Exception], expected: tuple[str, str, bool]) -> None:
    assert verdict(ExceptionGroup("several", members)) == expected


def test_a_group_waits_for_the_member_that_asks_for_most() -> None:
    group = ExceptionGroup("several", [errors.RetryLater(after_s=5), ConnectionError(), errors.RetryLater(after_s=9)])
    result = found(group)
    assert (result.kind, result.outage, result.retry_after_s) == ("retryable", True, 9)


def test_an_interrupt_inside_a_group_stops_the_app() -> None:
    assert found(BaseExceptionGroup("several", [ValueError(), KeyboardInterrupt()])).kind == "halt"


def test_an_unknown_member_makes_the_group_final_where_unknown_errors_are() -> None:
    group = ExceptionGroup("several", [ServiceError(), ConnectionError()])
    assert classify(group, unknown="dead-letter").kind == "non-retryable"


# The function of the consumer pattern, case by case


def http_error(status: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(response=response)


@pytest.mark.parametrize("error", [ConnectionError(), TimeoutError(), requests.exceptions.Timeout(), Exception()])
def test_is_retryable_error_network_timeouts_and_unknown(error: Exception) -> None:
    assert is_retryable_error(error)


def test_is_retryable_error_http() -> None:
    assert all(is_retryable_error(http_error(status)) for status in (429, 502, 503, 504, 500))
    assert not any(is_retryable_error(http_error(status)) for status in (400, 401, 403, 404))


def test_is_retryable_error_databases_and_values() -> None:
    assert is_retryable_error(psycopg2.OperationalError())
    assert is_retryable_error(psycopg.OperationalError())
    assert not is_retryable_error(psycopg2.IntegrityError())
    assert not is_retryable_error(ValueError())


@pytest.mark.parametrize("result", [None, "the service said no", 7])
def test_is_retryable_error_takes_what_is_no_exception_for_unknown(result: object) -> None:
    assert is_retryable_error(result)

"""Rules for exceptions that handlers raise on purpose, for Python's built-in exceptions, and for validation."""

from __future__ import annotations

from typing import Any, Final

from keepfast.classify.rules.readers import attribute, call, first_argument, integer
from keepfast.classify.rules.rule import Rule

_NETWORK = "§1.1.1 Network Errors"
_TIMEOUT = "§1.1.1 Timeout Errors"
_VALIDATION = "§1.1.2 Validation Errors"
_SCHEMA = "§1.1.2 Schema Errors"

_MAX_ERRORS_READ = 50
_MISSING = frozenset({"missing", "missing_argument", "missing_keyword_only_argument", "union_tag_not_found"})
_ENUM = frozenset({"enum", "literal_error", "union_tag_invalid"})
_NOT_JSON = frozenset({"json_invalid", "json_type"})


def _own_code(error: BaseException) -> object:
    return attribute(error, "code")


def _pydantic_code(error: Any) -> str | None:
    """The specific code if all errors are of one kind, otherwise None."""
    if (integer(call(error, "error_count")) or _MAX_ERRORS_READ + 1) > _MAX_ERRORS_READ:
        return None
    mistakes = error.errors(include_url=False, include_context=False, include_input=False)
    kinds = {mistake["type"] for mistake in mistakes}
    if kinds & _NOT_JSON:
        return "DECODE_FAILED"
    if kinds <= _MISSING:
        return "MISSING_REQUIRED_FIELD"
    return "ENUM_INVALID" if kinds <= _ENUM else None


def _msgspec_code(error: BaseException) -> str | None:
    text = first_argument(error)
    if type(text) is not str:
        return None
    if text.startswith("Object missing required field"):
        return "MISSING_REQUIRED_FIELD"
    return "ENUM_INVALID" if text.startswith("Invalid enum value") else None


LANGUAGE_RULES: Final = (
    # Raised by the handler on purpose
    Rule(
        "keepfast.core.errors.RetryLater",
        "retryable",
        name="retry-later",
        code="RETRY_LATER",
        code_of=_own_code,
        why="The handler requested the retry and its delay.",
    ),
    Rule(
        "keepfast.core.errors.Reject",
        "non-retryable",
        name="reject",
        code="REJECTED",
        code_of=_own_code,
        standard="§1.1.2 Business Logic Errors",
        why="The handler rejected the record.",
    ),
    Rule(
        "keepfast.core.errors.Discard",
        "discard",
        name="discard",
        code="DISCARDED",
        code_of=_own_code,
        why="The handler discarded the record on purpose.",
    ),
    Rule(
        "keepfast.core.errors.BatchError",
        "non-retryable",
        name="batch-error",
        code="REJECTED",
        why="The handler named records that are not in the batch, so it is unknown which ones failed.",
    ),
    Rule(
        "keepfast.runner.hooks.RetryableException",
        "retryable",
        name="retryable-exception",
        code="RETRY_LATER",
        why="The function of a runner raised it so that the record is retried.",
    ),
    Rule(
        "keepfast.runner.hooks.NonRetryableException",
        "non-retryable",
        name="non-retryable-exception",
        code="REJECTED",
        standard="§1.1.2 Business Logic Errors",
        why="The function of a runner raised it so that the record is dead-lettered.",
    ),
    Rule("keepfast.core.errors.Halt", "halt", name="halt", code="HALTED", why="The handler stops the app."),
    Rule(
        ("builtins.SystemExit", "builtins.KeyboardInterrupt"),
        "halt",
        name="exit",
        code="HALTED",
        why="A handler that exits the program does so on purpose; a worker must not end silently.",
    ),
    Rule(
        "keepfast.core.errors.HandlerTimeout",
        "non-retryable",
        name="handler-timeout",
        code="TIMEOUT",
        standard="§2.1 Processing timeout exceeded",
        why="The handler exceeded its time. on_timeout decides, not users' rules: its thread may still be running.",
    ),
    Rule(
        "keepfast.core.errors.MiddlewareError",
        "non-retryable",
        name="middleware",
        code="MIDDLEWARE",
        why="Only a code change helps.",
    ),
    # The shape of the record
    Rule(
        "keepfast.core.errors.DecodeError",
        "non-retryable",
        name="decode",
        code="DECODE_FAILED",
        code_of=_own_code,
        standard=_SCHEMA,
        why="A retry would decode the same bytes.",
    ),
    Rule(
        "pydantic_core.ValidationError",
        "non-retryable",
        name="pydantic",
        code="SCHEMA_INVALID",
        code_of=_pydantic_code,
        standard=_VALIDATION,
        why="The data does not match the model, and a retry does not change it.",
    ),
    Rule(
        "msgspec.ValidationError",
        "non-retryable",
        name="msgspec",
        code="SCHEMA_INVALID",
        code_of=_msgspec_code,
        standard=_VALIDATION,
        why="The data does not match the type, and a retry does not change it.",
    ),
    Rule(
        ("msgspec.DecodeError", "json.decoder.JSONDecodeError", "builtins.UnicodeDecodeError"),
        "non-retryable",
        name="malformed",
        code="DECODE_FAILED",
        standard=_SCHEMA,
        why="A retry would decode the same bytes.",
    ),
    Rule(
        ("builtins.ValueError", "builtins.ArithmeticError"),
        "non-retryable",
        name="value",
        code="VALUE_INVALID",
        standard=_VALIDATION,
        why="The same value gives the same error.",
    ),
    Rule(
        ("builtins.TypeError", "builtins.AttributeError"),
        "non-retryable",
        name="type",
        code="TYPE_INVALID",
        standard=_VALIDATION,
        why="A type mismatch: Python raises AttributeError for attribute access, TypeError for subscripts.",
    ),
    Rule(
        "builtins.LookupError",
        "non-retryable",
        name="lookup",
        code="LOOKUP_FAILED",
        standard=_VALIDATION,
        why="KeyError and IndexError: the data does not contain the key or index.",
    ),
    Rule(
        "builtins.RecursionError",
        "non-retryable",
        name="recursion",
        code="VALUE_INVALID",
        standard=_VALIDATION,
        why="Data nested too deeply, or endless recursion: the same on a retry.",
    ),
    # This process
    Rule(
        ("builtins.NameError", "builtins.NotImplementedError"),
        "non-retryable",
        name="code",
        code="CODE_ERROR",
        standard="§1.1.2",
        why="Only a code change helps.",
    ),
    Rule(
        "keepfast.core.errors.ConfigError",
        "non-retryable",
        name="configuration",
        code="CONFIGURATION",
        standard="§1.1.2 Configuration Errors",
        why="Only a configuration change helps.",
    ),
    Rule(
        (
            *(f"errno:{name}" for name in ("ENOMEM", "ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "ENOBUFS", "ENOLCK")),
            "errno:EADDRNOTAVAIL",
            "builtins.MemoryError",
        ),
        "retryable",
        name="resources",
        code="RESOURCE_EXHAUSTED",
        why="Memory, disk, descriptors or ports may soon be available again. A record that is itself too large for"
        " the memory is dead-lettered after its retries.",
    ),
    Rule(
        ("errno:EAGAIN", "errno:EINTR", "errno:EBUSY", "errno:EDEADLK", "errno:EDEADLOCK", "errno:ESTALE"),
        "retryable",
        name="busy",
        code="CONFLICT",
        standard="§1.1.1",
        why="The resource is in use.",
    ),
    Rule(
        ("errno:ENOENT", "builtins.FileNotFoundError"),
        "not-found",
        name="file-not-found",
        code="NOT_FOUND",
        standard="§1.1.2 Not Found",
        why="Like HTTP 404, it may appear later: the setting decides.",
    ),
    Rule(
        ("errno:EACCES", "errno:EPERM", "builtins.PermissionError"),
        "non-retryable",
        name="permission",
        code="PERMISSION_DENIED",
        standard="§1.1.2 Authentication/Authorization",
        why="Permissions do not change by waiting.",
    ),
    Rule(
        ("asyncio.exceptions.CancelledError", "concurrent.futures.CancelledError"),
        "retryable",
        name="cancelled",
        code="CANCELLED",
        why="keepfast did not cancel it, so the record is unfinished and not known to be bad.",
    ),
    # Network and time
    Rule(
        (
            "builtins.ConnectionError",
            *(f"errno:{name}" for name in ("ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EPIPE", "ENOTCONN")),
            *(f"errno:{name}" for name in ("ENETUNREACH", "ENETDOWN", "ENETRESET", "EHOSTUNREACH", "EHOSTDOWN")),
            *("socket.gaierror", "socket.herror", "asyncio.exceptions.IncompleteReadError"),
        ),
        "retryable",
        name="network",
        code="NETWORK_ERROR",
        outage=True,
        standard=_NETWORK,
        why="Refused, reset, unreachable, not resolved: not caused by the record.",
    ),
    Rule(
        "ssl.SSLError",
        "retryable",
        name="tls",
        code="TLS_ERROR",
        outage=True,
        standard=_NETWORK,
        why="An expired certificate affects every record, and dead-lettering them does not fix it.",
    ),
    Rule(
        "errno:ETIMEDOUT",
        "retryable",
        name="connect-timeout",
        code="TIMEOUT",
        outage=True,
        standard=_NETWORK,
        why="The operating system could not connect in time.",
    ),
    Rule(
        "builtins.TimeoutError",
        "retryable",
        name="timeout",
        code="TIMEOUT",
        outage=True,
        standard=_TIMEOUT,
        why="Also of asyncio and sockets. A service that does not respond is the most expensive outage.",
    ),
)

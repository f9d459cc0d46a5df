"""Rules for what a handler says itself, for Python's own exceptions, and for validation."""

from __future__ import annotations

from typing import Any, Final

from keepfast.classify.rules.reading import attribute, called, first_argument, whole
from keepfast.classify.rules.rule import Rule

_NETWORK = "§1.1.1 Network Errors"
_TIMEOUT = "§1.1.1 Timeout Errors"
_VALIDATION = "§1.1.2 Validation Errors"
_SCHEMA = "§1.1.2 Schema Errors"

_MAX_MISTAKES = 50
_MISSING = frozenset({"missing", "missing_argument", "missing_keyword_only_argument", "union_tag_not_found"})
_ENUM = frozenset({"enum", "literal_error", "union_tag_invalid"})
_NOT_JSON = frozenset({"json_invalid", "json_type"})


def _own_code(error: BaseException) -> object:
    return attribute(error, "code")


def _pydantic_code(error: Any) -> str | None:
    """The narrow code when all mistakes are of one kind."""
    if (whole(called(error, "error_count")) or _MAX_MISTAKES + 1) > _MAX_MISTAKES:
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
    # What the handler says itself
    Rule(
        "keepfast.core.errors.RetryLater",
        "retryable",
        name="retry-later",
        code="RETRY_LATER",
        code_of=_own_code,
        why="The handler asked for it, and named the delay.",
    ),
    Rule(
        "keepfast.core.errors.Reject",
        "non-retryable",
        name="reject",
        code="REJECTED",
        code_of=_own_code,
        standard="§1.1.2 Business Logic Errors",
        why="The handler refused the record.",
    ),
    Rule(
        "keepfast.core.errors.Discard",
        "discard",
        name="discard",
        code="DISCARDED",
        code_of=_own_code,
        why="The handler dropped the record on purpose.",
    ),
    Rule(
        "keepfast.core.errors.BatchError",
        "non-retryable",
        name="batch-error",
        code="REJECTED",
        why="The handler named records that it was not given, so nobody knows which ones it means.",
    ),
    Rule("keepfast.core.errors.Halt", "halt", name="halt", code="HALTED", why="The handler stops the app."),
    Rule(
        ("builtins.SystemExit", "builtins.KeyboardInterrupt"),
        "halt",
        name="exit",
        code="HALTED",
        why="A handler that ends the program means it; a worker must not die silently.",
    ),
    Rule(
        "keepfast.core.errors.HandlerTimeout",
        "non-retryable",
        name="handler-timeout",
        code="TIMEOUT",
        standard="§2.1 Processing timeout exceeded",
        why="The handler had its time. No rule of a user changes this: its thread may still be at work.",
    ),
    # The shape of the record
    Rule(
        "keepfast.core.errors.DecodeError",
        "non-retryable",
        name="decode",
        code="DECODE_FAILED",
        code_of=_own_code,
        standard=_SCHEMA,
        why="The bytes will be the same next time.",
    ),
    Rule(
        "pydantic_core.ValidationError",
        "non-retryable",
        name="pydantic",
        code="SCHEMA_INVALID",
        code_of=_pydantic_code,
        standard=_VALIDATION,
        why="The data does not fit the model, and will not next time.",
    ),
    Rule(
        "msgspec.ValidationError",
        "non-retryable",
        name="msgspec",
        code="SCHEMA_INVALID",
        code_of=_msgspec_code,
        standard=_VALIDATION,
        why="The data does not fit the type, and will not next time.",
    ),
    Rule(
        ("msgspec.DecodeError", "json.decoder.JSONDecodeError", "builtins.UnicodeDecodeError"),
        "non-retryable",
        name="malformed",
        code="DECODE_FAILED",
        standard=_SCHEMA,
        why="Bytes that cannot be decoded stay so.",
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
        why="A type mismatch; through a dot Python calls it AttributeError, through brackets TypeError.",
    ),
    Rule(
        "builtins.LookupError",
        "non-retryable",
        name="lookup",
        code="LOOKUP_FAILED",
        standard=_VALIDATION,
        why="KeyError and IndexError: what was looked for is not in the data.",
    ),
    Rule(
        "builtins.RecursionError",
        "non-retryable",
        name="recursion",
        code="VALUE_INVALID",
        standard=_VALIDATION,
        why="Data nested too deeply, or code that never ends: the same next time.",
    ),
    # This process
    Rule(
        ("builtins.NameError", "builtins.NotImplementedError"),
        "non-retryable",
        name="code",
        code="CODE_ERROR",
        standard="§1.1.2",
        why="Nothing but a change of the code helps.",
    ),
    Rule(
        "keepfast.core.errors.ConfigError",
        "non-retryable",
        name="configuration",
        code="CONFIGURATION",
        standard="§1.1.2 Configuration Errors",
        why="Nothing but a change of the configuration helps.",
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
        why="Memory, disk, descriptors or ports may be free again in a moment. A record that is itself too large for"
        " the memory is buried after its retries.",
    ),
    Rule(
        ("errno:EAGAIN", "errno:EINTR", "errno:EBUSY", "errno:EDEADLK", "errno:EDEADLOCK", "errno:ESTALE"),
        "retryable",
        name="busy",
        code="CONFLICT",
        standard="§1.1.1",
        why="Somebody else uses it at this moment.",
    ),
    Rule(
        ("errno:ENOENT", "builtins.FileNotFoundError"),
        "not-found",
        name="file-not-found",
        code="NOT_FOUND",
        standard="§1.1.2 Not Found",
        why="Like HTTP 404: whether it may appear later is for the setting to say.",
    ),
    Rule(
        ("errno:EACCES", "errno:EPERM", "builtins.PermissionError"),
        "non-retryable",
        name="permission",
        code="PERMISSION_DENIED",
        standard="§1.1.2 Authentication/Authorization",
        why="Rights do not change by waiting.",
    ),
    Rule(
        ("asyncio.exceptions.CancelledError", "concurrent.futures.CancelledError"),
        "retryable",
        name="cancelled",
        code="CANCELLED",
        why="Nobody here cancelled it, so it was not finished and nothing is known against the record.",
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
        why="Refused, reset, unreachable, not resolved: the record has no part in it.",
    ),
    Rule(
        "ssl.SSLError",
        "retryable",
        name="tls",
        code="TLS_ERROR",
        outage=True,
        standard=_NETWORK,
        why="An expired certificate stops every record, and is put right by people, not by burying records.",
    ),
    Rule(
        "errno:ETIMEDOUT",
        "retryable",
        name="connect-timeout",
        code="TIMEOUT",
        outage=True,
        standard=_NETWORK,
        why="The operating system gave up on a connection.",
    ),
    Rule(
        "builtins.TimeoutError",
        "retryable",
        name="timeout",
        code="TIMEOUT",
        standard=_TIMEOUT,
        why="asyncio's and socket's too. It does not name what was waited for, so it is no sign of an outage.",
    ),
)

"""Translates the client's errors: the kind of fault, and a message with the remedy."""

from __future__ import annotations

import re
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from keepfast.core.errors import ConfigError, Fault, SinkError, SourceError

# Names as `KafkaError.name()` gives them; a leading underscore is librdkafka's own, the others are the broker's.
# Errors in no list are treated as transient: retrying is harmless, giving up is not.
_NAMES: Final[dict[Fault, tuple[str, ...]]] = {
    Fault.REBALANCING: (
        "ILLEGAL_GENERATION",
        "REBALANCE_IN_PROGRESS",
        "UNKNOWN_MEMBER_ID",
        "MEMBER_ID_REQUIRED",
        "STALE_MEMBER_EPOCH",
        "FENCED_MEMBER_EPOCH",
        "UNRELEASED_INSTANCE_ID",
        "_ASSIGNMENT_LOST",
    ),
    Fault.FENCED: ("FENCED_INSTANCE_ID",),
    Fault.REFUSED: (
        "_AUTHENTICATION",
        "_SSL",
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "ILLEGAL_SASL_STATE",
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "SECURITY_DISABLED",
        "POLICY_VIOLATION",
        "INVALID_RECORD",
    ),
    Fault.MISSING: (
        "UNKNOWN_TOPIC_OR_PART",
        "UNKNOWN_TOPIC_ID",
        "TOPIC_EXCEPTION",
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
    ),
    Fault.TOO_LARGE: (
        "INVALID_COMMIT_OFFSET_SIZE",
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "OFFSET_METADATA_TOO_LARGE",
    ),
    Fault.OUT_OF_RANGE: ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION"),
    Fault.FATAL: (
        "_FATAL",
        "_DESTROY",
        "_CRIT_SYS_RESOURCE",
        "_INVALID_ARG",
        "_CONFLICT",
        "_NOT_IMPLEMENTED",
        "_UNSUPPORTED_FEATURE",
        "UNSUPPORTED_VERSION",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "UNSUPPORTED_ASSIGNOR",
        "INCONSISTENT_GROUP_PROTOCOL",
        "INVALID_GROUP_ID",
        "INVALID_SESSION_TIMEOUT",
    ),
}
_FAULTS: Final = {name: fault for fault, names in _NAMES.items() for name in names}

REMEDIES: Final = {
    Fault.FENCED: "Another member uses the same group_instance_id: give each process its own.",
    Fault.REFUSED: "Check the user name, the password, the certificates and the rights of this user.",
    Fault.MISSING: "Check the name, or create the topic.",
}

OTHER_ASSIGNOR: Final = (
    'The group has members with another assignor; those of Java and Spring use "range" unless configured otherwise.'
    ' Set assignor="range" (KEEPFAST_CONSUMER_ASSIGNOR=range), or give this consumer a group of its own.'
)
NO_RIGHT: Final = (
    "Grant this user the right (kafka-acls.sh --add); `keepfast doctor` lists the rights that an app needs."
)

# Thread, connection and time in a state: details for debugging the client.
_INNER: Final = re.compile(r"^\S+/\S+: (?=\w+ )|\s*\(after \d+ms in state \w+\)")

# A fatal error has the code "_FATAL"; the reason is only in its text.
_FENCED_TEXT: Final = KafkaError(KafkaError.FENCED_INSTANCE_ID).str().removeprefix("Broker: ")
_NO_NEW_PROTOCOL: Final = tuple(
    KafkaError(code).str()
    for code in (KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE)  # noqa: SLF001 - its public name
)
_REJOINABLE: Final = tuple(
    KafkaError(code)
    for code in (
        KafkaError.UNRELEASED_INSTANCE_ID,
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.GROUP_MAX_SIZE_REACHED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    )
)


def fault_of(error: KafkaError) -> Fault:
    """The kind of fault of a client error."""
    known = _FAULTS.get(error.name())
    if (error.fatal() or known is Fault.FATAL) and _FENCED_TEXT in error.str():
        return Fault.FENCED
    if error.fatal():
        return Fault.FATAL
    return known or Fault.RETRY


def lacks_new_protocol(error: KafkaError) -> bool:
    """Whether the client failed because the broker does not support KIP-848."""
    return _ends_client(error) and any(text in error.str() for text in _NO_NEW_PROTOCOL)


def transient_end(error: KafkaError) -> KafkaError | None:
    """The reason of a fatal error under KIP-848, if it is transient: then a new client can join. (Under the classic
    protocol the client itself retries.)
    """
    if not _ends_client(error):
        return None
    return next((known for known in _REJOINABLE if known.str() in error.str()), None)


def lacks_reason(error: KafkaError) -> bool:
    """Whether a fatal error says only that there is one: another error has the reason, and comes later."""
    return error.name() == "_FATAL" and error.str() == KafkaError(error.code()).str()


def _ends_client(error: KafkaError) -> bool:
    return error.fatal() or error.name() == "_FATAL"


def error_in(exception: BaseException) -> KafkaError | None:
    """The client's error inside its exception, if there is one."""
    inner = exception.args[0] if exception.args else None
    return inner if isinstance(inner, KafkaError) else None


def source_error(what: str, trouble: KafkaError | BaseException) -> SourceError:
    """`what` says which call failed: "commit orders[3]"."""
    text, fault, code = _read(what, trouble)
    return SourceError(text, fault=fault, code=code)


def sink_error(what: str, trouble: KafkaError | BaseException) -> SinkError:
    """`what` says which call failed: "send to orders.dlq"."""
    text, fault, code = _read(what, trouble)
    return SinkError(text, fault=fault, code=code)


def config_error(who: str, exception: Exception) -> ConfigError:
    """The client rejected its configuration."""
    error = error_in(exception)
    return ConfigError(f"The Kafka {who} rejected its configuration: {error.str() if error else exception}")


def _clean_text(text: str) -> str:
    return _INNER.sub("", text)


def _read(what: str, trouble: KafkaError | BaseException) -> tuple[str, Fault, str]:
    error = trouble if isinstance(trouble, KafkaError) else error_in(trouble)
    if error is None:  # RuntimeError of a closed client, ValueError and TypeError of an invalid argument
        return f"Could not {what}: {trouble}", Fault.FATAL, type(trouble).__name__
    fault = fault_of(error)
    text = f"Could not {what}: {_clean_text(error.str())} ({error.name()})."
    remedy = _remedy(error.name(), fault)
    return f"{text} {remedy}" if remedy else text, fault, error.name()


def _remedy(name: str, fault: Fault) -> str | None:
    if name == "INCONSISTENT_GROUP_PROTOCOL":
        return OTHER_ASSIGNOR
    return NO_RIGHT if name.endswith("_AUTHORIZATION_FAILED") else REMEDIES.get(fault)


CLIENT_ERRORS: Final = (KafkaException, RuntimeError, ValueError, TypeError)
"""What a call of the client may raise: its own error, and Python's for a closed handle or a bad argument."""

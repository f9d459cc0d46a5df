"""All error codes of the built-in rules and the crash guard, with their meaning.

They appear in letters, logs, metrics and the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

VALIDATION: Final = frozenset(
    [
        "DECODE_FAILED",
        "SCHEMA_INVALID",
        "MISSING_REQUIRED_FIELD",
        "ENUM_INVALID",
        "UNKNOWN_TYPE",
        "CONTENT_TYPE_UNKNOWN",
        "TOMBSTONE",
    ]
)
"""Codes of records that are malformed or do not match their schema."""
UNHANDLED_EXCEPTION: Final = "UNHANDLED_EXCEPTION"
CRASHED: Final = "CRASHED"
OPERATOR: Final = "OPERATOR"

CODES: Final[Mapping[str, str]] = {
    # The record itself
    "DECODE_FAILED": "The bytes cannot be decoded: not JSON, or not UTF-8.",
    "SCHEMA_INVALID": "The record does not match its schema.",
    "MISSING_REQUIRED_FIELD": "A field that the schema requires is missing.",
    "ENUM_INVALID": "A value is not one that the schema allows.",
    "UNKNOWN_TYPE": "Its tag, or its type header, names none of the types that the handler takes.",
    "CONTENT_TYPE_UNKNOWN": "There is no decoder for its content type.",
    "SCHEMA_UNKNOWN": "The schema registry has no schema with the record's id.",
    "SCHEMA_ID_MISSING": "Neither the value nor a header has the id of a schema.",
    "TOMBSTONE": "A null value that the handler does not accept.",
    "VALUE_INVALID": "The handler found a value that it cannot use.",
    "TYPE_INVALID": "The handler found a value of an unexpected type.",
    "LOOKUP_FAILED": "The handler looked up a key or an index that does not exist.",
    "PAN_DETECTED": "A card number was found; the record is discarded without a copy.",
    # Raised by the handler itself
    "REJECTED": "The handler raised Reject without a code of its own.",
    "DISCARDED": "The handler raised Discard.",
    "HALTED": "The handler raised Halt, SystemExit or KeyboardInterrupt.",
    "RETRY_LATER": "The handler raised RetryLater.",
    # Around the handler
    "MIDDLEWARE": "A middleware or provider did not yield exactly once, or suppressed the handler's exception.",
    # Downstreams
    "NETWORK_ERROR": "A connection was refused, broken or not established, or a name was not resolved.",
    "TLS_ERROR": "The TLS connection failed: a certificate or the protocol.",
    "TIMEOUT": "A response timed out, or the handler exceeded its timeout_s.",
    "AUTH_REFUSED": "The downstream refused the credentials or the permission.",
    "NOT_FOUND": "The requested resource does not exist (yet, or any more).",
    "RATE_LIMITED": "The downstream limits the request rate.",
    "SERVICE_UNAVAILABLE": "The downstream is temporarily unavailable.",
    "RESPONSE_INVALID": "The downstream's response is invalid.",
    "HTTP_<status>": "The HTTP status of the response, as in HTTP_503.",
    "GRPC_<code>": "The gRPC status of the response, as in GRPC_UNAVAILABLE.",
    "CONFLICT": "A concurrent change or lock on the same resource.",
    "DB_TRANSIENT_ERROR": "The database is unavailable or overloaded, or aborted this transaction in favor of another.",
    "DB_TIMEOUT": "The database cancelled the statement or transaction at its time limit.",
    "DB_CONSTRAINT_VIOLATION": "The data violates a constraint of the database.",
    "DB_DATA_INVALID": "The database rejected a value: too long, out of range, or of the wrong type.",
    "DB_STATEMENT_INVALID": "The statement is invalid, or names an object that does not exist.",
    "KAFKA_TRANSIENT": "Kafka is unavailable, electing leaders, or slow.",
    "KAFKA_UNKNOWN_TOPIC": "Kafka does not know the topic or partition (yet).",
    "KAFKA_TOO_LARGE": "A record is larger than the broker accepts.",
    "KAFKA_REFUSED": "Kafka rejected the record or the request.",
    "KAFKA_FATAL": "A fatal error of a Kafka client; it must be replaced.",
    # This process
    "CONFIGURATION": "Configuration is missing or invalid.",
    "CODE_ERROR": "An error in the handler's code: an undefined name, or something not implemented.",
    "RESOURCE_EXHAUSTED": "This process or machine ran out of memory, files, disk space or pooled connections.",
    "PERMISSION_DENIED": "The operating system refused access.",
    "CANCELLED": "The work was cancelled, but not by keepfast.",
    CRASHED: "The process died each time it had started this record: a segfault, out of memory, an exit.",
    "MAX_DELIVERIES": "A queue delivered it `max_deliveries` times: a process died with it, or its lock ran out.",
    OPERATOR: "An operator dead-lettered the record while it was in flight.",
    UNHANDLED_EXCEPTION: "No rule matches this exception.",
}
"""Code → meaning. Rules of users may use others."""

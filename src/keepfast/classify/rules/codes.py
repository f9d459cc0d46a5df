"""Every error code that a built-in rule or the crash guard can give, with what it means.

For letters, logs, metrics and the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

UNHANDLED_EXCEPTION: Final = "UNHANDLED_EXCEPTION"
CRASHED: Final = "CRASHED"

CODES: Final[Mapping[str, str]] = {
    # The record itself
    "DECODE_FAILED": "The bytes are not what they should be at all: no JSON, no UTF-8.",
    "SCHEMA_INVALID": "The record has another shape than its schema.",
    "MISSING_REQUIRED_FIELD": "A field that the schema requires is missing.",
    "ENUM_INVALID": "A value is none of those that the schema allows.",
    "TOMBSTONE": "A null value that the handler did not ask for.",
    "VALUE_INVALID": "The handler met a value that it cannot use.",
    "TYPE_INVALID": "The handler met a value of another type than it expected.",
    "LOOKUP_FAILED": "The handler looked for a key or a position that is not there.",
    "PAN_DETECTED": "A card number was found; the record is dropped and leaves no copy anywhere.",
    # What the handler itself said
    "REJECTED": "The handler raised Reject without a code of its own.",
    "DISCARDED": "The handler raised Discard.",
    "HALTED": "The handler raised Halt, SystemExit or KeyboardInterrupt.",
    "RETRY_LATER": "The handler raised RetryLater.",
    # Downstreams
    "NETWORK_ERROR": "A connection was refused, cut or never made; a name was not resolved.",
    "TLS_ERROR": "The encrypted connection was not made: a certificate or the protocol.",
    "TIMEOUT": "An answer did not come in time, or the handler did not end within its timeout_s.",
    "AUTH_REFUSED": "The downstream refused the identity or the right.",
    "NOT_FOUND": "What was asked for does not exist (not yet, or no longer).",
    "RATE_LIMITED": "The downstream asks to go slower.",
    "SERVICE_UNAVAILABLE": "The downstream says that it cannot answer at the moment.",
    "RESPONSE_INVALID": "The downstream's answer cannot be understood.",
    "HTTP_<status>": "The HTTP status of the answer, as in HTTP_503.",
    "GRPC_<code>": "The gRPC status of the answer, as in GRPC_UNAVAILABLE.",
    "CONFLICT": "Somebody else changed or holds the same thing at this moment.",
    "DB_TRANSIENT_ERROR": "The database is away, overloaded, or chose this transaction as a victim.",
    "DB_TIMEOUT": "The database gave the statement or the transaction up after its time limit.",
    "DB_CONSTRAINT_VIOLATION": "The data breaks a constraint of the database.",
    "DB_DATA_INVALID": "The database cannot take a value: too long, out of range, not of the type.",
    "DB_STATEMENT_INVALID": "The statement is wrong, or names what does not exist.",
    "KAFKA_TRANSIENT": "Kafka is away, moving leaders, or slow.",
    "KAFKA_UNKNOWN_TOPIC": "Kafka does not know the topic or partition (yet).",
    "KAFKA_TOO_LARGE": "A record is larger than the broker takes.",
    "KAFKA_REFUSED": "Kafka does not take the record or the request as it is.",
    "KAFKA_FATAL": "A Kafka client cannot go on; only a new one can.",
    # This process
    "CONFIGURATION": "Configuration is missing or wrong.",
    "CODE_ERROR": "The handler's code is wrong: a name that does not exist, something not implemented.",
    "RESOURCE_EXHAUSTED": "This process or machine ran out of something: memory, files, disk, pooled connections.",
    "PERMISSION_DENIED": "The operating system refused access.",
    "CANCELLED": "The work was cancelled, though nobody here asked for it.",
    CRASHED: "The process died whenever it had started this record: a segfault, no memory left, an exit.",
    UNHANDLED_EXCEPTION: "No rule knows this exception.",
}
"""Code → what it means. Rules of users may give others."""

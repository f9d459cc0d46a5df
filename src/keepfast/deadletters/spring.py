"""The format `headers`: the original key and value as they are, and headers named and encoded as Spring Kafka does.

Texts are UTF-8; the partition is 4 bytes, offset and timestamp are 8 bytes, big-endian and signed. Fields without a
Spring name follow under our own names, and last the number of original headers at the front.

Letters of Spring itself are read in `spring_letters`.
"""

from __future__ import annotations

import json
from typing import Any, Final

from keepfast.deadletters import checked, envelope, ours
from keepfast.deadletters.checked import iso
from keepfast.deadletters.letter import (
    MAX_GROUP,
    MAX_MESSAGE,
    MAX_NAME,
    MAX_REASON,
    MAX_STACK,
    Bytes,
    Headers,
    Letter,
)

TOPIC: Final = "kafka_dlt-original-topic"
PARTITION: Final = "kafka_dlt-original-partition"
OFFSET: Final = "kafka_dlt-original-offset"
TIMESTAMP: Final = "kafka_dlt-original-timestamp"
TIMESTAMP_TYPE: Final = "kafka_dlt-original-timestamp-type"
GROUP: Final = "kafka_dlt-original-consumer-group"
CLASS: Final = "kafka_dlt-exception-fqcn"
CAUSE: Final = "kafka_dlt-exception-cause-fqcn"
MESSAGE: Final = "kafka_dlt-exception-message"
STACK: Final = "kafka_dlt-exception-stacktrace"

NO_TIMESTAMP: Final = -1
_MAX_ATTEMPTS_BYTES: Final = 64_000


def write(letter: Letter) -> Headers:
    """All headers of the letter: the original's, Spring's, ours."""
    block = (*_spring(letter), *_ours(letter))
    return (*letter.headers, *block, *ours.encoded([(ours.ORIGINAL_HEADERS, str(len(letter.headers)))]))


def _spring(letter: Letter) -> Headers:
    texts = {
        TIMESTAMP_TYPE: letter.timestamp_type,
        GROUP: letter.group,
        CLASS: letter.error_class,
        CAUSE: letter.error_cause,
        MESSAGE: letter.error_message,
        STACK: letter.stack_trace,
    }
    timestamp_ms = NO_TIMESTAMP if letter.timestamp_ms is None else letter.timestamp_ms
    return (
        (TOPIC, (letter.topic or "").encode()),
        (PARTITION, (letter.partition or 0).to_bytes(4, "big", signed=True)),
        (OFFSET, (letter.offset or 0).to_bytes(8, "big", signed=True)),
        (TIMESTAMP, timestamp_ms.to_bytes(8, "big", signed=True)),
        *ours.encoded((name, text) for name, text in texts.items() if text),
    )


def _ours(letter: Letter) -> Headers:
    attempts = [{"at": iso(one.at_ms), "error_type": one.error_type} for one in letter.attempts]
    texts = {
        ours.LETTER_ID: letter.id,
        ours.ERROR_CODE: letter.error_code,
        "keepfast-error-type": letter.error_type,
        "keepfast-classification": letter.classification,
        "keepfast-reason": letter.reason,
        "keepfast-fingerprint": letter.fingerprint,
        "keepfast-failed-at": "" if letter.failed_at_ms is None else iso(letter.failed_at_ms),
        "keepfast-retry-count": str(letter.retry_count),
        "keepfast-attempts": json.dumps(attempts, ensure_ascii=False) if attempts else "",
        "keepfast-handler": letter.handler,
        "keepfast-app-version": letter.app_version,
        "keepfast-trace-id": letter.trace_id,
        "keepfast-schema": json.dumps(envelope.schema_fields(letter.schema)) if letter.schema is not None else "",
    }
    always = (ours.LETTER_ID, ours.ERROR_CODE)
    return (
        *ours.origin_note(letter),
        *ours.encoded((name, text) for name, text in texts.items() if text or name in always),
    )


def read_ours(key: Bytes, value: Bytes, headers: Headers, count: int) -> Letter:
    """A letter that `write` made: the first `count` headers are the original's."""
    fields = dict(headers[count:])
    return Letter(
        **_read_spring(fields),
        key=key,
        value=value,
        headers=headers[:count],
        error_type=_name(fields, "keepfast-error-type"),
        error_class=_name(fields, CLASS),
        error_cause=_name(fields, CAUSE),
        error_code=_name(fields, ours.ERROR_CODE),
        classification=_name(fields, "keepfast-classification"),
        reason=checked.utf8(fields.get("keepfast-reason"), MAX_REASON),
        fingerprint=_name(fields, "keepfast-fingerprint"),
        failed_at_ms=checked.instant_ms(_name(fields, "keepfast-failed-at")),
        retry_count=checked.digits(fields.get("keepfast-retry-count"), 2**31 - 1) or 0,
        attempts=envelope.attempts_of(_json(fields.get("keepfast-attempts"))),
        handler=_name(fields, "keepfast-handler"),
        app_version=_name(fields, "keepfast-app-version"),
        trace_id=_name(fields, "keepfast-trace-id"),
        schema=envelope.schema_of(_json(fields.get("keepfast-schema"))),
        format="headers",
    )


def _read_spring(fields: dict[str, Bytes]) -> dict[str, Any]:
    return {
        "topic": checked.topic(checked.utf8(fields.get(TOPIC), 1_000)),
        "partition": checked.big_endian(fields.get(PARTITION), 4),
        "offset": checked.big_endian(fields.get(OFFSET), 8),
        "timestamp_ms": checked.big_endian(fields.get(TIMESTAMP), 8),
        "timestamp_type": envelope.timestamp_type(_name(fields, TIMESTAMP_TYPE)),
        "group": checked.utf8(fields.get(GROUP), MAX_GROUP),
        "error_message": checked.utf8(fields.get(MESSAGE), MAX_MESSAGE),
        "stack_trace": checked.utf8(fields.get(STACK), MAX_STACK),
    }


def _json(fields: Bytes) -> object:
    if fields is None or len(fields) > _MAX_ATTEMPTS_BYTES:
        return None
    try:
        return json.loads(fields)
    except (ValueError, RecursionError):
        return None


def _name(fields: dict[str, Bytes], name: str) -> str:
    return checked.utf8(fields.get(name), MAX_NAME)

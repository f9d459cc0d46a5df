"""Dead letters of this service: the fields of the standard, keyed by the institution."""

from __future__ import annotations

import json
import traceback
from datetime import UTC, datetime
from typing import Any, Protocol

from neotool_common.error_classification import is_retryable_error

from institution_enhancement.tasks.message import InstitutionUpsertedMessage


class Producer(Protocol):
    def send(self, topic: str, value: bytes, key: bytes | None) -> Any: ...


def publish_to_dlq(producer: Producer, topic: str, message: object, error: Exception, retry_count: int) -> Any:
    """Returns the producer's future."""
    value = json.dumps(letter(message, error, retry_count, now=datetime.now(UTC))).encode()
    key = message.bacen_cod_inst.encode() if isinstance(message, InstitutionUpsertedMessage) else None
    return producer.send(topic, value=value, key=key)


def letter(message: object, error: BaseException, retry_count: int, *, now: datetime) -> dict[str, object]:
    """`message` is the JSON object, or the bytes, where the record could not become a message."""
    if isinstance(message, InstitutionUpsertedMessage):
        original: object = vars(message)
    else:
        original = message.decode(errors="replace") if isinstance(message, bytes) else message
    return {
        "original_message": original,
        "error_type": type(error).__name__,
        "error_message": str(error),
        "failed_at": now.isoformat().replace("+00:00", "Z"),
        "retry_count": retry_count,
        "error_classification": "retryable" if is_retryable_error(error) else "non-retryable",
        "stack_trace": "".join(traceback.format_exception(error))[-4000:],
    }

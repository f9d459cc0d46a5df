"""Dead letters of this service, by its own publisher: the fields of the standard, keyed by the institution."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

from examples.institution_enhancement.message import InstitutionUpserted
from keepfast.runner import is_retryable_error

ACKNOWLEDGED_S = 10.0


class Producer(Protocol):
    def produce(self, topic: str, value: bytes, key: bytes | None, *, on_delivery: Any) -> None: ...
    def flush(self, timeout: float) -> int: ...


Produces = Callable[[], Producer]
"""Makes the producer when it is called for the first time, and returns the same one from then on."""


def letter(message: object, error: BaseException, retry_count: int, *, now: datetime) -> dict[str, object]:
    """`message` is the JSON object, or the bytes, where the record could not become a message."""
    if isinstance(message, InstitutionUpserted):
        original: object = vars(message)
    else:
        original = message.decode(errors="replace") if isinstance(message, bytes) else message
    return {
        "original_message": original,
        "error_type": type(error).__name__,
        "error_message": str(error),
        "failed_at": now.isoformat(),
        "retry_count": retry_count,
        "error_classification": "retryable" if is_retryable_error(error) else "non-retryable",
        "stack_trace": "".join(traceback.format_exception(error))[-4000:],
    }


class LetterPublisher:
    """True when the broker has acknowledged the letter; otherwise the record is not committed, and it is called again.

    Own: one thread at a time.
    """

    def __init__(self, produces: Produces, topic: str) -> None:
        self._produces = produces
        self._topic = topic

    def __call__(self, message: object, error: BaseException, *, retry_count: int) -> bool:
        acknowledged: list[bool] = []
        producer = self._produces()
        value = json.dumps(letter(message, error, retry_count, now=datetime.now(UTC))).encode()
        key = message.bacen_cod_inst.encode() if isinstance(message, InstitutionUpserted) else None
        producer.produce(self._topic, value, key, on_delivery=lambda failed, _: acknowledged.append(failed is None))
        producer.flush(ACKNOWLEDGED_S)
        return acknowledged == [True]

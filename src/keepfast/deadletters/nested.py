"""The format `nested`: the same facts as the envelope's, grouped into `error` and `metadata`."""

from __future__ import annotations

from typing import Any, Final

from keepfast.deadletters import envelope, inline
from keepfast.deadletters.letter import Letter

# Name inside the group → name in the envelope.
_ERROR: Final = {
    "type": "error_type",
    "message": "error_message",
    "timestamp": "failed_at",
    "code": "error_code",
    "classification": "error_classification",
    "class": "error_class",
    "cause": "error_cause",
    "fingerprint": "fingerprint",
    "stack_trace": "stack_trace",
}
_TOP: Final = ("original_message", "original_encoding", "original_bytes", "reason")
_METADATA: Final = (
    "original_topic",
    "original_partition",
    "original_offset",
    "original_timestamp",
    "original_timestamp_type",
    "consumer_group",
    "handler",
    "app_version",
    "trace_id",
    "schema",
    "retry_count",
    "attempts",
    "replay_count",
    "replayed_from",
    "id",
    "version",
)


def write(letter: Letter) -> bytes:
    """The letter's value."""
    flat = envelope.fields_of(letter)
    fields: dict[str, Any] = {name: flat[name] for name in _TOP if name in flat}
    fields["error"] = {name: flat[known] for name, known in _ERROR.items()}
    fields["metadata"] = {name: flat[name] for name in _METADATA}
    return inline.as_json(fields)


def is_nested(fields: dict[str, Any]) -> bool:
    return (
        "original_message" in fields
        and isinstance(fields.get("error"), dict)
        and isinstance(fields.get("metadata"), dict)
    )


def flattened(fields: dict[str, Any]) -> dict[str, Any]:
    """The same under the envelope's names."""
    flat = {name: fields.get(name) for name in _TOP}
    flat |= {known: fields["error"].get(name) for name, known in _ERROR.items()}
    return flat | {name: fields["metadata"].get(name) for name in _METADATA}

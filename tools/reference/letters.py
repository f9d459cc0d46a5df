"""What a dead letter looks like: one letter, written in every format by the code that writes them."""

from __future__ import annotations

import json

from keepfast.core.policies import LETTER_FORMATS, LetterFormat
from keepfast.deadletters import ours
from keepfast.deadletters.letter import (
    MAX_ATTEMPTS,
    MAX_MESSAGE,
    MAX_REASON,
    MAX_STACK,
    Attempted,
    Letter,
)
from keepfast.deadletters.writing import write
from tools.reference.markdown import MADE, code, fence, table

INTRODUCTION = f"""# Dead letters

A letter holds the original key, value and headers byte for byte, and why the record could not be processed. Its Kafka
key is the original key, its headers are the original ones in their order, then ours, which all begin with
`{ours.PREFIX}`. It goes to the partition with the number of the original's. The format is the setting
`dead_letter.format`; `keepfast dlq` reads all of them.

Diagnostics are cut, the original bytes never: a message after {MAX_MESSAGE:,} characters, a reason after
{MAX_REASON:,}, of a stack trace the last {MAX_STACK:,} characters stay, of attempts the first few and the
last ones, {MAX_ATTEMPTS} in all. If Kafka finds a letter too large, more of them goes; a JSON letter is last sent in
the format `headers`, where the value stands as it is. Card numbers, passwords and tokens are
[masked](settings.md#masking) in the diagnostics, not in the original.

The same letter below, in every format: what the code writes, not what somebody typed.
"""
ABOUT: dict[LetterFormat, str] = {
    "envelope": "One flat JSON object, with all fields of the consumer standard. `original_message` is the value: as"
    " JSON if that gives back the same bytes (`original_encoding` is `json`), else in base64; a tombstone is `null`.",
    "nested": "The same content in groups, as the fraud service's decision shapes it.",
    "headers": "The value is the original's; everything else is in headers, named as Spring Kafka names them.",
}

VALUE = b'{"id":"a1","amount":-5}'
LETTER = Letter(
    topic="orders.payment.v1",
    partition=3,
    offset=17,
    timestamp_ms=1_767_225_600_000,
    key=b"a1",
    value=VALUE,
    headers=(("trace", b"t-81"),),
    error_type="Reject",
    error_class="keepfast.core.errors.Reject",
    error_message="negative amount",
    error_code="SCHEMA_INVALID",
    classification="non-retryable",
    reason="negative amount",
    fingerprint="5f2a90c1d3e47b60",
    stack_trace='Traceback (most recent call last):\n  File "app.py", line 17, in charge\nkeepfast.core.errors.Reject',
    failed_at_ms=1_767_225_601_250,
    attempts=(Attempted(1_767_225_601_250, "Reject"),),
    group="payments.charge",
    handler="charge",
    app_version="1.4.0",
)
OUR_HEADERS = {
    ours.LETTER_ID: "On a letter its id, `<group>/<topic>/<partition>/<offset>`; on a replayed record its letter's.",
    ours.ERROR_CODE: "The code, so that letters can be told apart without parsing them.",
    ours.REPLAY_COUNT: "On a replayed record: how often it was replayed.",
    ours.ORIGINAL_HEADERS: "In the format `headers`: how many headers at the front are the original's.",
}


def page() -> str:
    parts = [MADE + INTRODUCTION]
    for form in LETTER_FORMATS:
        value, headers = write(LETTER, form)
        parts.append(f"## {form}\n\n{ABOUT[form]}\n")
        parts.append(fence(_shown(value), "json", "value"))
        parts.append(table(("header", "value"), ((code(name), _header(content)) for name, content in headers)))
    rows = [(code(name), says) for name, says in OUR_HEADERS.items()]
    parts.append("## Our headers\n\n" + table(("header", "says"), rows))
    return "\n".join(parts)


def _shown(value: bytes | None) -> str:
    return (value or b"").decode() if value == VALUE else json.dumps(json.loads(value or b"null"), indent=2)


def _header(content: bytes | None) -> str:
    """Numbers are bytes as Java writes them."""
    text = (content or b"").decode("utf-8", "replace")
    if text.isprintable() or "\n" in text:
        return code(text.replace("\n", "\\n"))
    return f"{code(str(int.from_bytes(content or b'')))} in {len(content or b'')} bytes, the highest first"

"""Numbers that look like card numbers and are none. A false alarm would be the silent loss of a record."""

from __future__ import annotations

import json

import pytest

from keepfast.redact.sensitive import CardNumbers

VISA = "4111111111111111"


@pytest.mark.parametrize(
    "text",
    [
        "4111111111111112",  # the check digit is wrong
        "9111111111111111",
        f"tok_{VISA}",
        f"tok_live_{VISA}",
        "tok_4111-1111-1111-1111",
        f"{VISA}123456789",  # inside a longer run
        f"123456789{VISA}",
        f"a{VISA}",
        f"{VISA}f",
        f"00f067aa0ba9{VISA}",
        f"0.{VISA}",
        f"12.{VISA}",
        f"{VISA}.25",
        f"{VISA}e5",
        "+4915123456789",
        "+4222222222222",
        "1700000000000",
        "1700000000000000",
        "1700000000000000000",
        "DE89 3704 0044 0532 0130 00",
        "DE95 4111 1111 1111 1111 00",
        "GB33BUKB20201555555555",
        "550e8400-e29b-41d4-a716-446655440000",
        "41111111-1111-1111-1111-111111111111",
        "356938035643809",  # IMEI
        "8944500102198304826",  # ICCID
        "4006381333931",  # EAN
        "4111111111111111111111111",
        "4111  1111  1111  1111",  # two gaps
        "4111,1111,1111,1111",
        "555-123-4567 555-987-6543",
        "2026-01-27 10:30:00",
        "0000000000000000",
    ],
)
def test_a_lookalike_is_let_pass(text: str) -> None:
    for value in (text.encode(), json.dumps({"a": [text]}).encode(), json.dumps({text: 1}).encode()):
        assert CardNumbers().scan(None, value) is None
    assert CardNumbers().scan(text.encode(), None, [("h", text.encode()), (text, None)]) is None


def test_the_prefixes_of_tokens_can_be_configured() -> None:
    value = f"vault_{VISA}".encode()
    assert CardNumbers().scan(None, value)
    assert CardNumbers(token_prefixes=("vault_",)).scan(None, value) is None
    assert CardNumbers(token_prefixes=()).scan(None, f"tok_{VISA}".encode())


def test_nothing_is_found_in_nothing() -> None:
    assert CardNumbers().scan(None, None) is None
    assert CardNumbers().scan(b"", b"", []) is None
    assert CardNumbers().scan(None, None, None) is None

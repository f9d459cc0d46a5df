"""100,000 random records, headers and payloads near to letters and far from them: each is read, none raises."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from keepfast.core.policies import LETTER_FORMATS
from keepfast.core.records import Headers, Outgoing
from keepfast.core.replays import ReplayMark
from keepfast.deadletters import ours
from keepfast.deadletters.reading import read
from keepfast.deadletters.writing import shrunk, write
from tests.support.letters import filed, letter
from tests.support.thorough import examples

ROUNDS = examples(100_000)
NAMES = (
    *(name for name, _ in write(letter(), "headers")[1]),
    *(f"__{family}.errors.{name}" for family in ("connect", "streams", "dlq") for name in ("topic", "partition")),
    "traceparent",
    "mine",
    "",
)
BYTES = (None, b"", b"0", b"1", b"-1", b"\xff" * 8, b"\x00" * 4, b"\x80" + b"\x00" * 7, b"9" * 40, b"orders", b"../..")
SCRAPS: tuple[Any, ...] = (None, True, -1, 0, 2**70, 1e308, "", "x", "\ud800", "2024-01-01", [], {}, [{}], {"at": 1})


def nasty_bytes(random: Random) -> bytes | None:
    if random.random() < 0.6:
        return random.choice(BYTES)
    return random.randbytes(random.randrange(40))


def nasty_headers(random: Random) -> list[tuple[str, bytes | None]]:
    return [(random.choice(NAMES), nasty_bytes(random)) for _ in range(random.randrange(8))]


def nasty_fields(random: Random, fields: dict[str, Any]) -> dict[str, Any]:
    changed = dict(fields)
    for _ in range(random.randrange(1, 5)):
        name = random.choice(list(fields))
        kind, inner = random.randrange(3), changed.get(name)
        if kind == 0:
            changed[name] = random.choice(SCRAPS)
        elif kind == 1:
            changed.pop(name, None)
        elif isinstance(inner, dict) and inner:
            changed[name] = nasty_fields(random, inner)
    return changed


def mutated(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + random.randbytes(random.randrange(4)) + data[at + random.randrange(4) :]


@pytest.mark.timeout(300)
def test_every_record_is_read_and_none_raises() -> None:
    random = Random(20_240_101)
    whole = [write(letter(headers=(("mine", b"1"),)), form) for form in LETTER_FORMATS]
    parsed = [json.loads(value) for value, _ in whole[:2] if value is not None]
    forms: dict[str, int] = {}
    for number in range(ROUNDS):
        value, headers = random.choice(whole)
        own: Headers = headers
        match number % 4:
            case 0:
                own = nasty_headers(random)
                value = random.randbytes(random.randrange(60))
            case 1:
                own = [*headers, *nasty_headers(random)]
            case 2:
                value = json.dumps(nasty_fields(random, random.choice(parsed))).encode()
                own = nasty_headers(random) if random.random() < 0.5 else headers
            case _:
                value = mutated(random, value or b"x")
                own = [(name, nasty_bytes(random) if random.random() < 0.2 else kept) for name, kept in headers]
        found = read(filed(value, own))
        forms[found.format] = forms.get(found.format, 0) + 1
        assert found.partition is None or 0 <= found.partition < 2**31
        assert found.offset is None or 0 <= found.offset < 2**63
        assert found.id == "" or found.topic
        assert 0 <= found.replay_count <= 1_000_000
        f"{found.group} {found.error_code} {found.error_class} {found.error_message} {found.handler}".encode()
        ours.for_replay(found, ReplayMark("case", "run", 1), topic="orders")
        ours.originals(tuple(own))
        if number % 10 == 0:
            shrunk(Outgoing("dlq", value, headers=own))
            write(found, "envelope")
    assert set(forms) == {"envelope", "nested", "headers", "spring", "connect", "streams", "share", "unknown"}
    assert all(count > 100 for count in forms.values()), forms

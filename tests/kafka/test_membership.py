"""A client's place in its group, as it describes it."""

from __future__ import annotations

import struct

import pytest

from keepfast.kafka.membership import GroupMembership


def described(epoch: int, rest: bytes, head: bytes = b"CGMDv2:") -> bytes:
    return head + struct.pack("=i", epoch) + rest


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (described(3, b"g\0m-1\0\x01"), GroupMembership("g", "m-1", 3, None)),
        (described(3, b"g\0m-1\0\x00name\0"), GroupMembership("g", "m-1", 3, "name")),
        (described(-1, b"g\0\0\x01"), GroupMembership("g", "", -1, None)),
        (described(3, b"g\0m-1\0\x01", head=b"CGMDv3:"), None),
        (b"CGMDv2:", None),
        (b"", None),
    ],
)
def test_a_membership_is_read_or_not_known(metadata: bytes, expected: GroupMembership | None) -> None:
    assert GroupMembership.read(metadata) == expected

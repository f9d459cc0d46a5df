"""A client's place in its group, as it describes it to producers of transactions."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEAD = b"CGMDv2:"


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """A member of a group. `epoch` is negative and `member_id` may be empty while the client is no member. `instance`
    is the name of a static member.
    """

    group: str
    member_id: str
    epoch: int
    instance: str | None

    @classmethod
    def read(cls, metadata: bytes) -> GroupMembership | None:
        """Read the client's `consumer_group_metadata()`; None if the format is another one."""
        at = len(_HEAD) + 4
        parts = metadata[at:].split(b"\0", 2)
        if not metadata.startswith(_HEAD) or len(parts) < 3:
            return None
        group, member_id, instance = parts  # the last one behind a byte that says whether there is none
        named = instance[1:].partition(b"\0")[0] if instance.startswith(b"\0") else None
        return cls(
            group=group.decode(errors="replace"),
            member_id=member_id.decode(errors="replace"),
            epoch=struct.unpack_from("=i", metadata, len(_HEAD))[0],
            instance=None if named is None else named.decode(errors="replace"),
        )

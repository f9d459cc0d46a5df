"""A broker that becomes the leader of a partition a moment late: behind this proxy, the first batch for a topic is
refused with NOT_LEADER_OR_FOLLOWER, and everything else goes through.
"""

from __future__ import annotations

import struct

from tests.support.broker_proxy import PRODUCE, BrokerProxy

FIRST_FLEXIBLE = 9
"""From this version of a produce request on, lengths are varints."""

NOT_LEADER = 6


class LateLeader:
    """Clients connect to `address`; `refused` counts batches."""

    def __init__(self, broker: str, topic: str) -> None:
        self.topic = topic
        self.refused = 0
        self._proxy = BrokerProxy(broker, answer=self._refusal)
        self.address = self._proxy.bootstrap

    def close(self) -> None:
        self._proxy.close()

    def _refusal(self, frame: bytes) -> bytes | None:
        name = self.topic.encode()
        if struct.unpack_from(">h", frame)[0] != PRODUCE or name not in frame or self.refused:
            return None
        self.refused += 1
        return _refusal(frame, name)


def _refusal(request: bytes, topic: bytes) -> bytes:
    """The answer to a produce request of one batch."""
    _, version, number = struct.unpack_from(">hhi", request)
    assert version >= FIRST_FLEXIBLE
    at = request.index(topic) + len(topic) + 1  # behind the number of partitions, which is one
    partition = request[at : at + 4]
    one = partition + struct.pack(">hqqq", NOT_LEADER, -1, -1, -1) + b"\x01\x00\x00"
    name = bytes([len(topic) + 1]) + topic
    return struct.pack(">i", number) + b"\x00\x02" + name + b"\x02" + one + b"\x00" + bytes(4) + b"\x00"

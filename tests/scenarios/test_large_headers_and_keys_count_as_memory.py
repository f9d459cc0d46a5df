"""P11: memory is bounded by configuration, whatever the order, and the size of keys and headers: a backlog whose bytes
are in the headers, or in the keys, of records behind one slow key is not read into memory.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.member import Member
from tests.scenarios.scene import Work
from tests.support.waiting import wait_until

MIB = 1024 * 1024
RECORDS, LARGE = 6_000, b"x" * 20_000
BUFFER_BYTES, CLIENT_QUEUE_BYTES, SWEEP = MIB, 4 * MIB, 100
# Twice the quota and one fetch, the client's own queue and one answer on its way into it; as much again for what
# objects and allocators cost, and room for what the process itself takes meanwhile.
BOUND = 2 * (2 * BUFFER_BYTES + SWEEP * len(LARGE) + CLIENT_QUEUE_BYTES + MIB) + 16 * MIB
SETTINGS = {
    "buffer.bytes": BUFFER_BYTES,
    "buffer.client_queue_bytes": CLIENT_QUEUE_BYTES,
    "consumer.max_poll_records": SWEEP,
    "shutdown.timeout_s": 2,
}


def memory(member: Member) -> int:
    """What it holds in memory now, in bytes."""
    for line in Path(f"/proc/{member.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the process is gone")


@pytest.mark.parametrize("where", ["headers", "key"])
def test_what_waits_behind_a_slow_key_stays_within_what_the_buffers_allow(make_scene: MakeScene, where: str) -> None:
    scene = make_scene()
    gate = scene.gate()
    member = scene.member({**SETTINGS, "consumer.order": "key"}).wait_assigned(1)
    before = memory(member)
    key, headers = (b"k", (("h", LARGE),)) if where == "headers" else (LARGE, ())
    first = Work(key=key, headers=headers, gate=gate)
    scene.send([first, *(Work(key=key, headers=headers) for _ in range(RECORDS))], timeout_s=120)
    wait_until(scene.journal.started, "the first record is in flight")
    samples = []

    def settled() -> bool:
        samples.append(memory(member) - before)
        return len(samples) > 100

    wait_until(settled, "it reads as much as it will")
    scene.open_gate(gate)
    wait_until(lambda: sum(scene.committed().values()) >= 200, "it continues")
    member.stop()
    assert max(samples) < BOUND < RECORDS * len(LARGE) / 2, f"grew by {max(samples) / MIB:.0f} MiB"

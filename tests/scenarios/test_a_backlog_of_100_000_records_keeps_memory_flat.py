"""P11: memory is bounded by configuration, whatever the lag: with 100,000 records (100 MB) waiting, a slow consumer
holds its buffers and no more, and a fast one that works them off neither.
"""

from __future__ import annotations

from itertools import repeat
from pathlib import Path

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.member import Member
from tests.scenarios.scene import Work
from tests.support.waiting import wait_until

MIB = 1024 * 1024
PARTITIONS = 4
RECORDS = 100_000
RECORD = b"x" * 1_000

BUFFER_BYTES, CLIENT_QUEUE_BYTES = MIB, 4 * MIB
SWEEP, WORKERS = 500, 16
# By the rules of the buffers: twice the quota per partition and one sweep, beside the client's own queue and one answer
# on its way into it. What a record costs beside its value (objects, list entries, the client's own) is as much again,
# and each worker thread has its stack and its share of the allocator.
BOUND = 2 * (PARTITIONS * 2 * BUFFER_BYTES + SWEEP * len(RECORD) + CLIENT_QUEUE_BYTES + MIB) + WORKERS * MIB
SETTINGS = {
    "buffer.bytes": BUFFER_BYTES,
    "buffer.client_queue_bytes": CLIENT_QUEUE_BYTES,
    "consumer.max_poll_records": SWEEP,
    "consumer.concurrency": WORKERS,
    "commit.mode": "interval",
}


def memory(member: Member) -> int:
    """What it holds in memory now, in bytes."""
    for line in Path(f"/proc/{member.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the process is gone")


@pytest.mark.parametrize("order", ["partition", pytest.param("key", marks=pytest.mark.long)])
def test_memory_stays_within_what_the_buffers_allow(make_scene: MakeScene, order: str) -> None:
    scene = make_scene(partitions=PARTITIONS)
    gate, tally = scene.gate(), scene.folder / "tally"
    variables = {"SCENARIO_GATE": gate, "SCENARIO_TALLY": tally, "SCENARIO_RECORDS": RECORDS // PARTITIONS}
    member = scene.member({**SETTINGS, "consumer.order": order}, app="flood.py", variables=variables)
    member.wait_assigned(PARTITIONS)
    before = memory(member)
    samples = []

    def sample() -> int:
        samples.append(memory(member) - before)
        return sum(scene.committed().values())

    works = (Work(partition=n % PARTITIONS, key=b"%d" % (n % 97), value=RECORD) for n in range(RECORDS))
    scene.send(works)
    wait_until(lambda: sample() >= 400, "the slow consumer works under the backlog")
    gate.touch()
    wait_until(lambda: sample() == RECORDS, "the fast consumer has worked it off")
    assert member.stop() == 0
    assert tally.read_bytes() == b"".join(repeat(b"\x01", RECORDS)), "each record was handled once"
    assert max(samples) < BOUND < RECORDS * len(RECORD) / 2, f"grew by {max(samples) / MIB:.0f} MiB"

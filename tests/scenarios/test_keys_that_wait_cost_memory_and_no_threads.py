"""Retry in place, P4, P11: 100,000 keys over 8 partitions wait for their next attempt at one moment, with 8 threads.

What takes a minute with so many is tried with fewer first.
"""

from __future__ import annotations

from itertools import repeat
from pathlib import Path

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.member import Member
from tests.scenarios.scene import Work
from tests.support.waiting import wait_until

PARTITIONS = 8
VALUE = b"v" * 20
# 8 workers, the loop, the main thread, the sink's and a few of the client library; a thread a key would be 5,000.
MAX_THREADS = 40
# What a waiting record costs: the client's message, the case, its place in the ledger, the lane and the timer.
MAX_KB_EACH = 3


def status(member: Member, name: str) -> int:
    for line in Path(f"/proc/{member.pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise AssertionError("the process is gone")


@pytest.mark.parametrize(("keys", "wait_s"), [(5_000, 2), pytest.param(100_000, 14, marks=pytest.mark.long)])
def test_all_wait_at_one_moment_and_all_are_processed(make_scene: MakeScene, keys: int, wait_s: int) -> None:
    scene = make_scene(partitions=PARTITIONS)
    tally, each = scene.folder / "tally", keys // PARTITIONS
    variables = {"SCENARIO_TALLY": tally, "SCENARIO_RECORDS": each, "SCENARIO_WAIT_S": wait_s}
    member = scene.member(app="patient.py", variables=variables).wait_assigned(PARTITIONS)
    before_kb = status(member, "VmRSS")
    scene.send(Work(partition=n % PARTITIONS, key=b"%d" % n, value=VALUE) for n in range(keys))
    threads, grown_kb = [], []

    def sample() -> int:
        threads.append(status(member, "Threads"))
        grown_kb.append(status(member, "VmRSS") - before_kb)
        return sum(scene.committed().values())

    wait_until(lambda: sample() == keys, "all keys are processed and committed", timeout_s=200)
    assert member.stop() == 0
    once = b"".join(repeat(b"\x01", keys))
    assert tally.read_bytes() == once + once, "each failed once, and was processed once after all had failed"
    assert max(threads) <= MAX_THREADS
    assert max(grown_kb) < MAX_KB_EACH * keys, f"grew by {max(grown_kb) // 1024} MiB"
    assert member.events("partitions_lost") == member.events("partitions_revoked")[1:] == [], "it stayed a member"

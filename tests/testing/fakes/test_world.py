"""The simulated world under random faults: the same seed gives the same trace, and the broker's rules hold."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from keepfast.core.records import TopicPartition
from keepfast.testing.fakes.trace import (
    AssignCalled,
    CommitAnswered,
    CommitSent,
    Compacted,
    Delivered,
    Evicted,
    LogStartMoved,
    LostCalled,
    ProcessCrashed,
    Produced,
    Reset,
    RevokedEnd,
    Started,
)
from keepfast.testing.fakes.world import World
from tests.support.thorough import THOROUGH
from tests.testing.fakes.toy import GROUP, PARTITIONS, TOPIC, chaotic_world

SEEDS = range(40 if THOROUGH else 14)
ROOT = Path(__file__).parents[3]
DIGEST = """
import hashlib
from tests.testing.fakes.toy import chaotic_world
print(hashlib.sha256(repr(chaotic_world(11).trace.events).encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return [chaotic_world(seed) for seed in SEEDS]


def test_nothing_leaves_a_process_as_an_exception(worlds: list[World]) -> None:
    assert [(seed, world.failures) for seed, world in zip(SEEDS, worlds, strict=True) if world.failures] == []


def test_after_the_faults_every_record_is_read_and_committed(worlds: list[World]) -> None:
    for seed, world in zip(SEEDS, worlds, strict=True):
        for number in range(PARTITIONS):
            place = TopicPartition(TOPIC, number)
            last = [message.offset() for message in world.broker.existing(place).messages()][-1:]
            stored = world.broker.stored(GROUP, place)
            for offset in last:
                assert stored is not None, (seed, place)
                assert stored.offset > offset, (seed, place)


def test_records_are_handed_only_to_their_owner_in_order_and_without_a_hole(worlds: list[World]) -> None:
    for seed, world in zip(SEEDS, worlds, strict=True):
        reading: dict[tuple[str, TopicPartition], int] = {}
        visible: dict[TopicPartition, set[int]] = defaultdict(set)
        for event in world.trace.events:
            match event:
                case Produced(_, place, offset):
                    visible[place].add(offset)
                case Compacted(_, place, offset):
                    visible[place].discard(offset)
                case LogStartMoved(_, place, offset):
                    visible[place] -= set(range(offset))
                case Started(_, member, place, offset) | Reset(_, member, place, offset):
                    reading[member, place] = offset
                case RevokedEnd(_, member, _, places) | LostCalled(_, member, places):
                    for place in places:
                        reading.pop((member, place), None)
                case Delivered(_, member, place, offset):
                    assert (member, place) in reading, (seed, event)
                    assert offset >= reading[member, place], (seed, event)
                    assert visible[place].isdisjoint(range(reading[member, place], offset)), (seed, event)
                    reading[member, place] = offset + 1
                case _:
                    pass


def test_a_partition_has_a_second_owner_only_after_the_first_was_evicted(worlds: list[World]) -> None:
    for seed, world in zip(SEEDS, worlds, strict=True):
        owners: dict[TopicPartition, str] = {}
        evicted: set[str] = set()
        for event in world.trace.events:
            match event:
                case AssignCalled(_, member, _, places):
                    evicted.discard(member)
                    for place in places:
                        assert owners.get(place) is None or owners[place] in evicted | {member}, (seed, event)
                        owners[place] = member
                case RevokedEnd(_, member, _, places) | LostCalled(_, member, places):
                    for place in places:
                        if owners.get(place) == member:
                            del owners[place]
                case Evicted(_, _, member):
                    evicted.add(member)
                case _:
                    pass


def test_every_commit_is_answered_exactly_once_unless_its_process_died(worlds: list[World]) -> None:
    for seed, world in zip(SEEDS, worlds, strict=True):
        died = {event.member for event in world.trace.events if isinstance(event, ProcessCrashed)}
        sent: Counter[tuple[str, TopicPartition]] = Counter()
        end = world.trace.events[-1].at
        under_way: set[tuple[str, TopicPartition]] = (
            set()
        )  # sent so late that the world may have ended before the answer
        for event in world.trace.events:
            if isinstance(event, CommitSent):
                sent[event.member, event.place] += 1
                if event.at > end - 1.0:
                    under_way.add((event.member, event.place))
            elif isinstance(event, CommitAnswered):
                sent[event.member, event.place] -= 1
        assert all(
            left == 0 or (left == 1 and (who in died or (who, place) in under_way))
            for (who, place), left in sent.items()
        ), seed


def test_every_kind_of_fault_occurs_in_these_seeds(worlds: list[World]) -> None:
    seen: Counter[str] = Counter()
    for world in worlds:
        seen += world.trace.faults
    wanted = {
        "broker_frozen", "client_session_timeout", "commit_applied_but_failed", "commit_partial",
        "commit_rebalancing", "commit_refused_ILLEGAL_GENERATION", "commit_refused_UNKNOWN_MEMBER_ID",
        "commit_retry", "commit_unsent", "committed_read_failed", "compaction", "coordinator_frozen", "crash",
        "evicted_fenced", "evicted_session", "fetch__AUTO_OFFSET_RESET", "offset_gap", "rebalance",
        "records_deleted", "stop",
    }  # fmt: skip
    assert wanted - set(seen) == set()


def test_a_seed_has_at_least_500_events(worlds: list[World]) -> None:
    assert min(len(world.trace.events) for world in worlds) >= 500


def test_the_same_seed_gives_the_same_trace_whatever_the_hash_seed() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
        done = subprocess.run(
            [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        digests.add(done.stdout)
    assert len(digests) == 1


def test_different_seeds_give_different_traces(worlds: list[World]) -> None:
    assert worlds[0].trace.events != worlds[1].trace.events

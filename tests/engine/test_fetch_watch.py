"""Partitions that the client does not fetch: what is done about them, and what is taken for one of them and is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from keepfast.core.errors import Fault, SourceError
from keepfast.core.policies import BufferPolicy
from keepfast.core.ports import NO_ANSWER, THROTTLED, Position
from keepfast.core.records import TopicPartition
from keepfast.engine.fetch_watch import ASK_S, CHECK_INTERVAL_S, IDLE_S, REFETCH_S, RENEW_AGAIN_S, RENEW_S, THROTTLED_S
from keepfast.telemetry.state import PartitionState
from tests.engine.world import TOPIC, World
from tests.support.log_capture import LogCapture

PLACE, OTHER = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
NOTICED_S = IDLE_S + ASK_S + 3 * CHECK_INTERVAL_S
"""By then an end that lies beyond what was received is known."""


class Cluster:
    """Answers about ends at once, and counts questions about topic ids."""

    def __init__(self) -> None:
        self.ends = {PLACE: 0, OTHER: 0}
        self.asked: list[set[TopicPartition]] = []
        self.ids_asked = 0

    def ask_ends(
        self, places: Sequence[TopicPartition], answer: Callable[[Mapping[TopicPartition, int]], None]
    ) -> None:
        self.asked.append(set(places))
        answer({place: self.ends[place] for place in places if place in self.ends})

    def ask(self, topics: Sequence[str], answer: Callable[[Mapping[str, str | None]], None]) -> None:
        self.ids_asked += 1
        answer(dict.fromkeys(topics, "id"))


def world_of(cluster: Cluster, **options: Any) -> World:
    ports: dict[str, Any] = {"ask_ends": cluster.ask_ends, "topic_ids": cluster}
    return World(lambda _: None, **{"size": 1, "wait_s": 0.0} | ports | options)


def passes(world: World, seconds: float, *, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Let the loop turn about twice a second, until so much time has passed by its clock."""
    until = world.clock.now + seconds
    while world.clock.now < until:
        meanwhile()
        world.step(pass_s=0.5)
        while world.workers.out:
            world.work()
            world.step()


def occupied(cluster: Cluster) -> World:
    """A worker does not come back with a record of a third partition, and a commit of the other one is not answered."""
    world = world_of(cluster, partitions=3, buffer=BufferPolicy(records=1_000))
    world.source.answers = False
    world.feed("a", partition=1)
    world.feed("a", partition=2)
    while len(world.workers.out) < 2:
        world.step(pass_s=0.1)
    world.work()
    world.step()
    return world


def passes_occupied(world: World, seconds: float) -> None:
    """Let the loop turn twice a second, until so much time has passed by its clock."""
    until = world.clock.now + seconds
    while world.clock.now < until:
        world.step(pass_s=0.5)
        assert world.workers.out
        assert world.loop.committer.under_way


def report(world: World, code: str) -> None:
    """The client's statistics say so, as often as they come."""
    if world.clock.now % 5 < 0.5:
        world.loop.on_error(SourceError("It waits.", fault=Fault.RETRY, code=code), None)


def shown(world: World) -> PartitionState:
    return world.loop.status.state.partitions[0]


def test_records_that_are_not_fetched_are_fetched_anew_from_their_position_and_then_by_a_new_client(
    log: LogCapture,
) -> None:
    cluster = Cluster()
    world = world_of(cluster)
    world.feed("abc")
    passes(world, 5)
    cluster.ends[PLACE] = 7
    passes(world, REFETCH_S)
    assert (world.source.refetched, world.source.renewals) == ([], 0)
    passes(world, NOTICED_S)
    assert (world.source.refetched, world.source.renewals) == ([Position(PLACE, 3)], 0)
    own = shown(world)
    assert (own.position, own.end, own.lag, own.not_fetched_s >= REFETCH_S) == (3, 7, 4, True)
    passes(world, RENEW_S - REFETCH_S)
    assert (world.source.refetched, world.source.renewals) == ([Position(PLACE, 3)], 1)
    lines = log.fields("partition_not_fetched")
    assert [(one["position"], one["end"], one["consequence"]) for one in lines] == [
        (3, 7, "it is fetched again"),
        (3, 7, "the client is replaced"),
    ]
    world.feed("defg")
    passes(world, 3)
    assert shown(world).not_fetched_s == 0


def test_a_client_is_replaced_seldom_if_that_does_not_help() -> None:
    cluster = Cluster()
    world = world_of(cluster)
    cluster.ends[PLACE] = 7
    passes(world, NOTICED_S + RENEW_S + 5)
    assert world.source.renewals == 1
    passes(world, RENEW_AGAIN_S - 15)
    assert world.source.renewals == 1
    passes(world, 20)
    assert world.source.renewals == 2
    passes(world, 2 * RENEW_AGAIN_S - 25)
    assert world.source.renewals == 2


def test_offsets_that_hold_no_record_are_not_missed() -> None:
    cluster = Cluster()
    world = world_of(cluster)
    world.feed("abc")
    passes(world, 5)
    cluster.ends[PLACE] = 2_000
    world.loop.on_end(PLACE, 2_000)
    passes(world, 60)
    assert (world.source.refetched, world.source.renewals, shown(world).not_fetched_s) == ([], 0, 0)


def test_of_a_source_that_reports_no_ends_what_its_last_fetch_saw_counts() -> None:
    cluster = Cluster()
    world = world_of(cluster)
    world.source.reports_ends, world.source.seen = False, {PLACE: 2_000}
    cluster.ends[PLACE] = 2_000
    passes(world, 60)
    assert (world.source.refetched, world.source.renewals) == ([], 0)
    cluster.ends[PLACE] = 2_001
    passes(world, NOTICED_S + RENEW_S)
    assert (len(world.source.refetched), world.source.renewals) == (1, 1)


def test_a_partition_whose_buffer_is_full_is_not_missed() -> None:
    cluster = Cluster()
    world = world_of(cluster, buffer=BufferPolicy(records=10))
    world.feed("a" * 100)
    cluster.ends[PLACE] = 500
    for _ in range(200):
        world.step(pass_s=0.5)
    assert (world.source.paused, world.source.refetched, world.source.renewals) == ({PLACE}, [], 0)
    assert shown(world).end == 500, "its end is known all the same"


def test_no_time_counts_while_a_broker_throttles_the_client() -> None:
    cluster = Cluster()
    world = world_of(cluster)
    cluster.ends[PLACE] = 7
    passes(world, 60, meanwhile=lambda: report(world, THROTTLED))
    assert (world.source.refetched, world.source.renewals) == ([], 0)
    assert not world.loop.status.state.brokers, "a quota is no outage"
    passes(world, THROTTLED_S + NOTICED_S + RENEW_S)
    assert (len(world.source.refetched), world.source.renewals) == (1, 1)


def test_of_brokers_that_answer_partitions_are_missed_while_another_one_does_not() -> None:
    cluster = Cluster()
    world = world_of(cluster)
    cluster.ends[PLACE] = cluster.ends[OTHER] = 7
    passes(world, IDLE_S + 2 * CHECK_INTERVAL_S)
    del cluster.ends[OTHER]  # its leader is silent
    passes(world, 2 * (NOTICED_S + RENEW_S), meanwhile=lambda: report(world, NO_ANSWER))
    assert ({one.place for one in world.source.refetched}, world.source.renewals) == ({PLACE}, 1)
    assert world.loop.status.state.brokers


@pytest.mark.parametrize("code", [NO_ANSWER, THROTTLED])
def test_a_disturbance_stops_the_clock_and_does_not_set_it_back(code: str) -> None:
    cluster = Cluster()
    world = world_of(cluster)
    cluster.ends[PLACE] = 7
    passes(world, NOTICED_S)
    before = shown(world).not_fetched_s
    world.loop.on_error(SourceError("It waits.", fault=Fault.RETRY, code=code), None)
    passes(world, 2)
    assert 0 < before <= shown(world).not_fetched_s < before + 2


def test_what_waits_in_the_client_behind_records_of_others_is_not_missed() -> None:
    cluster = Cluster()
    world = occupied(cluster)
    world.feed("a" * 1_000, partition=1)
    world.feed("abc")
    cluster.ends[PLACE] = 3
    passes_occupied(world, 60)
    assert len(world.source.waiting) > 3, "records of the other one still wait before it"
    assert cluster.asked
    assert (world.source.refetched, world.source.renewals, shown(world).not_fetched_s) == ([], 0, 0)


def test_what_is_not_fetched_is_noticed_while_workers_and_a_commit_are_out() -> None:
    cluster = Cluster()
    world = occupied(cluster)
    cluster.ends[PLACE] = 3
    passes_occupied(world, NOTICED_S + RENEW_S + 5)
    assert (world.source.refetched, world.source.renewals) == ([Position(PLACE, 0)], 1)


def test_no_time_counts_in_which_the_loop_does_not_run() -> None:
    cluster = Cluster()
    world = world_of(cluster)
    cluster.ends[PLACE] = 7
    passes(world, IDLE_S + 2 * CHECK_INTERVAL_S)
    world.clock.now += 1_000
    passes(world, 3)
    assert (world.source.refetched, world.source.renewals) == ([], 0)


def test_partitions_that_bring_records_are_not_asked_for() -> None:
    cluster = Cluster()
    world = world_of(cluster)
    passes(world, 30, meanwhile=lambda: world.feed("a"))
    assert cluster.asked
    assert all(asked == {OTHER} for asked in cluster.asked)
    assert len(cluster.asked) <= 30 / ASK_S


def test_a_position_beyond_the_end_is_shown_when_two_answers_say_so_and_the_topics_id_is_asked_for() -> None:
    cluster = Cluster()
    world = world_of(cluster)
    world.feed("abc")
    passes(world, 5)
    before, cluster.ends[PLACE] = cluster.ids_asked, 1
    passes(world, ASK_S)
    assert not shown(world).beyond_end
    passes(world, ASK_S + 2)
    assert (shown(world).beyond_end, shown(world).position, shown(world).end) == (True, 3, 1)
    assert cluster.ids_asked > before
    assert (world.source.refetched, world.source.renewals) == ([], 0)


def test_a_topic_whose_ends_cannot_be_had_is_looked_up_at_once() -> None:
    cluster = Cluster()
    world = world_of(cluster)
    passes(world, 10)
    before = cluster.ids_asked
    del cluster.ends[PLACE]
    passes(world, NOTICED_S)
    assert before < cluster.ids_asked <= before + 4

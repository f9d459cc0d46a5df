"""The broker refuses the commits of one partition, and the client reports that for all of a request: only that one
partition waits.
"""

from __future__ import annotations

import pytest

from keepfast.core.errors import Fault, SourceError
from keepfast.core.policies import CommitPolicy
from keepfast.core.ports import CommitOutcome
from keepfast.engine.commits import COMMIT_REFUSED, MAX_RETRY_S
from tests.engine.world import World

OF_ONE = [Fault.MISSING, Fault.REFUSED]


def world_with(mode: str, *, every_s: float = 0.1) -> World:
    commit = CommitPolicy(mode=mode, every_s=every_s)  # type: ignore[arg-type]
    return World(lambda _: None, batch=None, partitions=3, max_deliveries=3, commit=commit)


def feed(world: World, count: int) -> None:
    for partition in range(len(world.places)):
        world.feed("." * count, partition=partition)


def holds(world: World) -> list[set[str]]:
    return [partition.holds for partition in world.loop.ownership]


@pytest.mark.parametrize("mode", ["each", "interval"])
@pytest.mark.parametrize("fault", OF_ONE)
def test_only_that_partition_is_held_and_goes_on_when_its_commits_are_taken_again(mode: str, fault: Fault) -> None:
    world = world_with(mode)
    feed(world, 3)
    world.play(steps=20)
    assert [world.committed(number) for number in range(3)] == [3, 3, 3]
    world.source.refused = {world.places[1]: fault}
    feed(world, 3)
    world.play(steps=100)
    assert holds(world) == [set(), {COMMIT_REFUSED}, set()]
    feed(world, 30)
    world.play(steps=200)
    assert not world.loop.holds, "the breaker for commits is for all partitions, and stays closed"
    assert [world.committed(number) for number in range(3)] == [36, 3, 36]
    refused = [name for name in world.done if name.startswith("1:")]
    assert len(refused) < 36, "nothing new of it starts"
    world.source.refused = {}
    world.play(steps=200)
    assert holds(world) == [set(), set(), set()]
    assert [world.committed(number) for number in range(3)] == [36, 36, 36]
    assert sorted(world.done) == sorted(set(world.done)), "nothing ran twice"


def test_the_others_of_a_request_that_is_refused_are_never_held() -> None:
    world = world_with("interval")
    feed(world, 2)
    world.play(steps=20)
    world.source.refused = {world.places[1]: Fault.MISSING}
    feed(world, 2)
    held = set[int]()
    for _ in range(50):
        world.step(pass_s=0.05)
        while world.workers.out:
            world.work()
        held |= {number for number, names in enumerate(holds(world)) if COMMIT_REFUSED in names}
    assert held == {1}
    assert [world.committed(number) for number in range(3)] == [4, 2, 4]


def test_after_the_split_the_others_share_requests_again_and_the_refused_one_is_tried_alone() -> None:
    world = world_with("interval", every_s=2.0)
    feed(world, 2)
    world.play(steps=20)
    world.source.refused = {world.places[0]: Fault.MISSING}
    feed(world, 2)
    world.play(steps=50)
    world.source.requests.clear()
    for _ in range(20):
        feed(world, 1)
        world.play(steps=3)
    alone, shared = [world.places[0]], [request for request in world.source.requests if len(request) > 1]
    assert shared
    assert all(world.places[0] not in request for request in shared)
    tries = world.source.requests.count(alone)
    assert 1 <= tries <= 2 + 20 * 3 * 0.3 / MAX_RETRY_S + 5, "with growing pauses"


def test_metadata_that_one_partition_cannot_commit_is_shortened_without_holding_anything() -> None:
    world = world_with("each")
    world.source.most_metadata = 3
    feed(world, 5)
    world.play(steps=100)
    assert [world.committed(number) for number in range(3)] == [5, 5, 5]
    assert holds(world) == [set(), set(), set()]


def test_a_refusal_of_a_commit_without_metadata_holds_its_partition() -> None:
    world = world_with("each")
    world.source.refused = {world.places[2]: Fault.TOO_LARGE}
    feed(world, 2)
    world.play(steps=100)
    assert holds(world) == [set(), set(), {COMMIT_REFUSED}]
    assert [world.committed(number) for number in range(3)] == [2, 2, 0]


def test_a_time_out_is_for_all_partitions() -> None:
    world = world_with("each")
    feed(world, 1)
    world.play(steps=20)
    world.source.refused = {world.places[1]: Fault.RETRY}
    feed(world, 5)
    world.play(steps=60)
    assert world.loop.holds == {"commit"}
    assert holds(world) == [set(), set(), set()]


def test_an_answer_that_confirms_some_partitions_lets_them_go_on() -> None:
    world = world_with("each")
    world.source.refused, world.source.exact = dict.fromkeys(world.places, Fault.RETRY), True
    feed(world, 1)
    world.play(steps=60)
    assert world.loop.holds == {"commit"}
    world.source.refused = {world.places[1]: Fault.RETRY}
    world.play(steps=20)
    assert [world.committed(number) for number in range(3)] == [1, 0, 1]


def test_a_drain_tries_it_once_more_and_does_not_wait_for_the_deadline() -> None:
    world = world_with("each")
    world.source.refused = {world.places[0]: Fault.REFUSED}
    feed(world, 2)
    world.play(steps=60)
    world.source.requests.clear()
    world.stop(after_s=30.0)
    begun = world.clock.now
    for _ in range(40):
        if world.loop.ending is None:
            world.step(pass_s=0.01)
    assert world.loop.ending is not None
    assert world.clock.now - begun < 2
    assert world.loop.ending.unfinished == 1, "the end is not clean: something finished is not committed"
    assert [world.places[0]] in world.source.requests


def test_a_revoke_commits_what_the_broker_takes_again() -> None:
    world = world_with("each")
    feed(world, 1)
    world.play(steps=20)
    world.source.refused = {world.places[0]: Fault.REFUSED}
    feed(world, 1)
    world.play(steps=60)
    assert [world.committed(number) for number in range(3)] == [1, 2, 2]
    world.source.refused = {}
    world.loop.on_revoked(world.places)
    assert [world.committed(number) for number in range(3)] == [2, 2, 2]


def test_a_revoke_does_not_wait_for_one_whose_first_refusal_comes_inside_it() -> None:
    world = world_with("interval", every_s=1000.0)
    feed(world, 2)
    world.play(steps=5)
    world.source.requests.clear()
    world.source.refused, world.source.exact = {world.places[0]: Fault.REFUSED}, True
    world.loop.on_revoked(world.places)
    assert [world.committed(number) for number in range(3)] == [0, 2, 2]
    assert world.source.requests == [world.places], "the refused one is not sent again, and so not waited for"


@pytest.mark.parametrize("mode", ["each", "interval"])
def test_of_a_request_that_is_given_up_with_one_partition_the_rest_is_committed_again(mode: str) -> None:
    world = world_with(mode)
    world.source.answers = False
    feed(world, 2)
    world.play(steps=20)
    assert world.source.requests
    sent, world.source._unanswered = world.source._unanswered, []
    assert {position.place for position in sent} == set(world.places)
    world.loop.on_lost(world.places[:1])
    gone = SourceError("Given up.", fault=Fault.REBALANCING, code="UNKNOWN_MEMBER_ID")
    late = SourceError("Not answered.", fault=Fault.RETRY, code="_TIMED_OUT")
    failed = tuple((position, gone if position.place == world.places[0] else late) for position in sent)
    world.loop.on_committed(CommitOutcome((), failed))
    world.source.requests.clear()
    world.source.answers = True
    world.play(steps=100)
    assert [world.committed(number) for number in range(3)] == [0, 2, 2]
    assert all(world.places[0] not in request for request in world.source.requests)
    assert holds(world) == [set(), set()]
    assert not world.loop.holds
    assert sorted(world.done) == sorted(set(world.done)), "nothing ran twice"

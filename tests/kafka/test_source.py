"""The source on a real broker: what the conformance suite does not ask of every source."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from keepfast.core.errors import ConfigError, Fault, SourceError
from keepfast.core.ports import CommitOutcome, CommittedOffset, Position
from keepfast.core.records import Message, TopicPartition
from keepfast.kafka import KafkaSource, TransactionalSource
from keepfast.kafka.commits import CommitRequest
from keepfast.testing.broker import KafkaBroker
from tests.support.members import GroupMember, Places, drive, new_group, produce
from tests.support.waiting import wait_until

Join = Callable[..., GroupMember]
Topic = Callable[..., str]

PROTOCOLS = pytest.mark.parametrize(
    "protocol", [{"assignor": "range"}, {"assignor": "roundrobin"}, {"group_protocol": "consumer"}], ids=str
)


@PROTOCOLS
def test_partitions_move_to_a_second_member_in_every_protocol(
    kafka: KafkaBroker, topic: Topic, join: Join, protocol: dict[str, str]
) -> None:
    name, group = topic(partitions=4), new_group()
    produce(kafka, name, 40, partitions=4)
    first = join(name, group, **protocol)
    drive([first], lambda: len(first.records) == 40)
    second = join(name, group, **protocol)
    drive([first, second], lambda: len(first.owned) == 2 and len(second.owned) == 2)
    drive([first, second], lambda: len(second.records) == 20)
    assert not first.owned & second.owned
    assert first.heard("lost") == second.heard("lost") == []


@PROTOCOLS
def test_a_reset_moves_one_partition_and_leaves_the_others(
    kafka: KafkaBroker, topic: Topic, join: Join, protocol: dict[str, str]
) -> None:
    name = topic(partitions=2)
    produce(kafka, name, 200, partitions=2)
    member = join(name, new_group(), **protocol)
    drive([member], lambda: len(member.records) == 200)
    member.records.clear()
    member.source.reset(Position(TopicPartition(name, 0), 90))
    drive([member], lambda: len(member.records) >= 10)
    produce(kafka, name, 2, partitions=2)
    drive([member], lambda: len(member.records) >= 12)
    assert member.offsets(TopicPartition(name, 0)) == list(range(90, 101))
    assert member.offsets(TopicPartition(name, 1)) == [100]


@PROTOCOLS
def test_out_of_range_is_reported_once_and_a_reset_gets_it_going(
    kafka: KafkaBroker, topic: Topic, join: Join, protocol: dict[str, str]
) -> None:
    name = topic()
    place = TopicPartition(name, 0)
    produce(kafka, name, 10)
    member = join(name, new_group(), start=5_000, **protocol)
    drive([member], lambda: member.errors)
    assert [(error.fault, at) for error, at in member.errors] == [(Fault.OUT_OF_RANGE, place)]
    assert member.source.edges(place, 5.0) == (0, 10)
    member.source.reset(Position(place, 8))
    drive([member], lambda: len(member.records) == 2)
    assert member.offsets(place) == [8, 9]


@PROTOCOLS
def test_a_start_with_a_leader_epoch_that_the_log_does_not_have_is_out_of_range(
    kafka: KafkaBroker, topic: Topic, join: Join, protocol: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has epoch 0 alone: whoever was in a later one has seen another log."""
    name = topic(partitions=2)
    other, known = TopicPartition(name, 0), TopicPartition(name, 1)
    produce(kafka, name, 20, partitions=2)
    starts = {other: Position(other, 5, leader_epoch=7), known: Position(known, 5, leader_epoch=0)}
    monkeypatch.setattr(GroupMember, "positions", lambda self, places: [starts[place] for place in places])
    member = join(name, new_group(), **protocol)
    drive([member], lambda: member.errors and len(member.records) >= 5)
    assert [(error.fault, at) for error, at in member.errors] == [(Fault.OUT_OF_RANGE, other)]
    assert (member.offsets(known), member.offsets(other)) == (list(range(5, 10)), [])
    member.source.reset(Position(other, 0))
    drive([member], lambda: len(member.records) == 15)
    assert member.offsets(other) == list(range(10))


@PROTOCOLS
def test_a_position_that_cannot_be_verified_while_a_commit_is_unanswered_is_verified_after_it(
    kafka: KafkaBroker, topic: Topic, join: Join, protocol: dict[str, str]
) -> None:
    """The client starts no partition while it awaits the answer to a commit, and refuses to seek in it until then."""
    name = topic()
    place = TopicPartition(name, 0)
    produce(kafka, name, 20)
    member = join(name, new_group(), **protocol)
    drive([member], lambda: len(member.records) == 20)
    member.source.commit([Position(place, 20)])
    member.source.reset(Position(place, 5, leader_epoch=7))
    drive([member], lambda: member.errors)
    assert [(error.fault, at) for error, at in member.errors] == [(Fault.OUT_OF_RANGE, place)]
    assert len(member.records) == 20, "nothing was handed out of a log that is another one"


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_a_reset_of_a_paused_partition_stays_paused_until_resumed(
    kafka: KafkaBroker, topic: Topic, join: Join, assignor: str
) -> None:
    name = topic()
    place = TopicPartition(name, 0)
    produce(kafka, name, 100)
    member = join(name, new_group(), assignor=assignor)
    drive([member], lambda: len(member.records) == 100)
    member.source.pause([place])
    member.source.reset(Position(place, 95))
    member.records.clear()
    end = time.monotonic() + 1.5
    drive([member], lambda: time.monotonic() > end)
    assert member.records == []
    member.source.resume([place])
    drive([member], lambda: len(member.records) == 5)
    assert member.offsets(place) == list(range(95, 100))


def test_a_partition_that_was_paused_when_it_left_is_not_paused_when_it_comes_back(
    kafka: KafkaBroker, topic: Topic, join: Join
) -> None:
    name, group = topic(partitions=2), new_group()
    produce(kafka, name, 20, partitions=2)
    first = join(name, group)
    drive([first], lambda: len(first.records) == 20)
    first.source.pause(list(first.owned))
    second = join(name, group)
    drive([first, second], lambda: len(second.owned) == 1 and len(first.owned) == 1)
    (moved,) = second.owned
    first.records.clear()
    second.source.close()
    drive([first], lambda: len(first.records) == 10)
    assert first.offsets(moved) == list(range(10))


def test_resume_of_what_is_not_paused_does_not_move_it(kafka: KafkaBroker, topic: Topic, join: Join) -> None:
    name = topic()
    place = TopicPartition(name, 0)
    produce(kafka, name, 50)
    member = join(name, new_group())
    drive([member], lambda: len(member.records) == 50)
    member.source.resume([place])
    produce(kafka, name, 5)
    drive([member], lambda: len(member.records) >= 55)
    assert member.offsets(place) == list(range(55))


@pytest.mark.timing
def test_a_resumed_partition_is_fetched_at_once_and_from_where_it_stood(
    kafka: KafkaBroker, topic: Topic, join: Join
) -> None:
    """By itself the client looks at it again once a second."""
    name = topic()
    place = TopicPartition(name, 0)
    produce(kafka, name, 100)
    member = join(name, new_group())
    offsets: list[int] = []
    took_s: list[float] = []
    while len(offsets) < 20:
        if (record := member.source.poll(0.1)) is not None:
            offsets.append(record.offset())
    for paused_s in (0.2, 0.35, 0.5, 0.65, 0.8):
        member.source.pause([place])
        end = time.monotonic() + paused_s
        while time.monotonic() < end:
            assert member.source.poll(0.01) is None
        begun = time.monotonic()
        member.source.resume([place])
        while (record := member.source.poll(0.1)) is None:
            pass
        took_s.append(time.monotonic() - begun)
        offsets.append(record.offset())
    assert offsets == list(range(25))
    assert sorted(took_s)[2] < 0.1, took_s


def test_after_a_reset_inside_a_callback_the_next_record_out_is_the_one_asked_for(
    kafka: KafkaBroker, topic: Topic, join: Join
) -> None:
    """The callback runs in the middle of a sweep, when the batch may already hold records of the partition."""
    name = topic()
    place = TopicPartition(name, 0)
    produce(kafka, name, 20_000)
    member = join(name, new_group())
    drive([member], lambda: member.records)
    wanted = [0]

    def reset(outcome: CommitOutcome) -> None:
        wanted[0] = (wanted[0] + 7_919) % 15_000
        member.source.reset(Position(place, wanted[0]))
        member.outcomes.append(outcome)

    member.on_committed = reset  # type: ignore[method-assign]
    wrong = []
    for number in range(8):
        drive([member], lambda: len(member.records) > 0)
        member.source.commit([Position(place, number)])
        answered, out = len(member.outcomes), list[Message]()
        while len(member.outcomes) == answered:
            out = member.source.sweep(500)
        member.records = out
        drive([member], lambda: len(member.records) > 0)
        if member.offsets(place)[0] != wanted[0]:
            wrong.append((wanted[0], member.offsets(place)[0]))
        member.records.clear()
    assert wrong == []


def test_what_a_batch_held_of_a_partition_stopped_meanwhile_is_dropped_and_fetched_again_if_it_was_started_again(
    kafka: KafkaBroker, topic: Topic, join: Join
) -> None:
    """The client gives such a batch only in a race of microseconds, so this one is put together by hand."""
    name = topic(partitions=2)
    stopped, other = TopicPartition(name, 0), TopicPartition(name, 1)
    produce(kafka, name, 20, partitions=2)
    member = join(name, new_group(), start=4)
    drive([member], lambda: len(member.records) == 12)
    batch: list[Any] = member.records
    member.source._stopped.add(stopped)
    kept = member.source._without_stopped(batch)
    assert [(m.partition(), m.offset()) for m in kept] == [(1, offset) for offset in range(4, 10)]
    member.records = []
    drive([member], lambda: len(member.records) >= 6)
    assert (member.offsets(stopped), member.offsets(other)) == (list(range(4, 10)), [])


@pytest.mark.timing
def test_serve_never_exceeds_its_timeout_when_the_coordinator_is_frozen_and_the_answer_comes_later(
    kafka: KafkaBroker, topic: Topic, join: Join
) -> None:
    name, group = topic(partitions=2), new_group()
    first = join(name, group)
    drive([first], lambda: len(first.owned) == 2)
    took_s: list[float] = []

    def commit(places: Places) -> None:
        kafka.pause()
        began = time.monotonic()
        first.source.commit([Position(place, 3, "late") for place in places])
        first.source.serve(0.7)
        first.source.serve(0.3)
        took_s.append(time.monotonic() - began)
        kafka.resume()

    first.during_revoke = commit
    second = join(name, group)
    drive([first, second], lambda: first.outcomes)
    first.during_revoke = lambda places: None
    assert 0.9 < took_s[0] < 1.5
    (outcome,) = first.outcomes
    assert outcome.failed == ()
    (position,) = outcome.confirmed
    (held,) = second.source.committed([position.place], 5.0)
    assert (held.offset, held.metadata) == (3, "late")


def test_inside_a_callback_an_offset_is_not_looked_up_by_time(kafka: KafkaBroker, topic: Topic, join: Join) -> None:
    """A request that it may need there would abort the process."""
    name, group = topic(partitions=2), new_group()
    codes = list[str]()

    def look(places: Places) -> None:
        with pytest.raises(SourceError) as caught:
            first.source.at_time(places[0], 4_000_000_000_000, 10.0)
        codes.append(caught.value.code)

    first = join(name, group)
    first.during_revoke = look
    drive([first], lambda: len(first.owned) == 2)
    second = join(name, group)
    drive([first, second], lambda: second.owned)
    assert set(codes) == {"REBALANCING"}


def test_several_commits_inside_one_revoke_are_each_answered_once(kafka: KafkaBroker, topic: Topic, join: Join) -> None:
    name, group = topic(partitions=2), new_group()
    first = join(name, group)
    drive([first], lambda: len(first.owned) == 2)

    def commit(places: Places) -> None:
        for number in range(1, 4):
            first.source.commit([Position(place, number) for place in places])
            first.source.serve(5.0)
            assert len(first.outcomes) == number

    first.during_revoke = commit
    second = join(name, group)
    drive([first, second], lambda: second.owned)
    first.during_revoke = lambda places: None
    first.source.commit([Position(place, 9) for place in first.owned])
    drive([first, second], lambda: len(first.outcomes) == 4)
    assert [outcome.confirmed[0].offset for outcome in first.outcomes] == [1, 2, 3, 9]


def test_a_second_commit_while_one_is_under_way_is_an_error(topic: Topic, join: Join) -> None:
    name = topic()
    member = join(name, new_group())
    drive([member], lambda: member.owned)
    member.source.commit([Position(TopicPartition(name, 0), 0)])
    with pytest.raises(SourceError, match="in flight"):
        member.source.commit([Position(TopicPartition(name, 0), 0)])
    drive([member], lambda: member.outcomes)


def test_a_commit_that_cannot_even_be_sent_is_answered_as_failed(topic: Topic, join: Join) -> None:
    name = topic()
    member = join(name, new_group())
    drive([member], lambda: member.owned)
    bad = Position(TopicPartition(name, 0), 0, 7)  # type: ignore[arg-type]
    member.source.commit([bad])
    assert member.outcomes == []
    drive([member], lambda: member.outcomes)
    ((position, error),) = member.outcomes[0].failed
    assert (position, error.fault) == (bad, Fault.FATAL)


def test_partitions_that_the_listener_did_not_start_hand_out_nothing(
    kafka: KafkaBroker, topic: Topic, join: Join
) -> None:
    name, group = topic(), new_group()
    produce(kafka, name, 10)
    before = join(name, group)
    drive([before], lambda: before.owned)
    before.source.commit([Position(TopicPartition(name, 0), 2)])
    drive([before], lambda: before.outcomes)
    before.source.close()
    member = join(name, group)  # left to itself, the client would continue at 2

    def fail(places: Places) -> list[Position]:
        raise LookupError("before start")

    member.positions = fail  # type: ignore[method-assign]
    with pytest.raises(LookupError):
        drive([member], lambda: False)
    end = time.monotonic() + 1.0
    drive([member], lambda: time.monotonic() > end)
    assert member.records == []


def test_an_unknown_topic_is_reported_as_missing(join: Join) -> None:
    member = join(f"no-such-{new_group()}", new_group())
    drive([member], lambda: member.errors)
    error, place = member.errors[0]
    assert (error.fault, place) == (Fault.MISSING, None)
    assert "no-such-" in str(error)


def test_a_static_member_whose_name_is_taken_hears_that_it_is_fenced(topic: Topic, join: Join) -> None:
    name, group = topic(), new_group()
    first = join(name, group, group_instance_id="one")
    drive([first], lambda: first.owned)
    second = join(name, group, group_instance_id="one")
    drive([second], lambda: second.owned)
    drive([first], lambda: first.errors)
    assert first.errors[0][0].fault is Fault.FENCED
    first.source.commit([Position(TopicPartition(name, 0), 0)])
    drive([first], lambda: first.outcomes)
    assert first.outcomes[0].confirmed == ()
    first.source.close()


def test_properties_that_the_client_does_not_take_are_a_configuration_error() -> None:
    source = KafkaSource({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "no.such.property": 1})
    with pytest.raises(ConfigError, match=r"no\.such\.property"):
        source.subscribe(["t"], None)  # type: ignore[arg-type]


@pytest.mark.timing
def test_committed_and_edges_say_so_when_the_broker_is_frozen(kafka: KafkaBroker, topic: Topic, join: Join) -> None:
    name = topic()
    place = TopicPartition(name, 0)
    member = join(name, new_group())
    drive([member], lambda: member.owned)
    kafka.pause()
    try:
        began = time.monotonic()
        for ask, of in ((member.source.committed, [place]), (member.source.edges, place)):
            with pytest.raises(SourceError) as caught:
                ask(of, 0.3)
            assert caught.value.fault is Fault.RETRY
        assert time.monotonic() - began < 2.0
    finally:
        kafka.resume()


def test_groups_do_not_see_each_others_offsets(topic: Topic, join: Join) -> None:
    name = topic()
    place = TopicPartition(name, 0)
    one, other = join(name, new_group()), join(name, new_group())
    drive([one, other], lambda: one.owned and other.owned)
    one.source.commit([Position(place, 4, "mine")])
    drive([one, other], lambda: one.outcomes)
    assert [held.offset for held in one.source.committed([place], 5.0)] == [4]
    assert [held.offset for held in other.source.committed([place], 5.0)] == [None]


@pytest.mark.parametrize("reads", ["poll", "sweep"])
def test_the_answer_to_a_commit_costs_no_record(kafka: KafkaBroker, topic: Topic, join: Join, reads: str) -> None:
    """The answer comes while records arrive, in a poll that it ends, and in a sweep that it must not end."""
    name, count = topic(partitions=2), 6_000
    place, member = TopicPartition(name, 0), join(name, new_group())
    drive([member], lambda: member.owned)
    producing = threading.Thread(target=_trickle, args=(kafka, name, count))
    producing.start()
    asked = 0

    def step() -> None:
        nonlocal asked
        if len(member.outcomes) == asked:
            asked += 1
            other = Position(TopicPartition(name, 1), 0, str(asked))
            member.source.commit([Position(place, len(member.records), str(asked)), other])
        message = member.source.poll(0.05)
        if message is not None:
            member.records.append(message)
        if reads == "sweep":
            member.records.extend(member.source.sweep(500))

    wait_until(lambda: len(member.records) >= count, "all records", timeout_s=90, between=step)
    producing.join()
    assert member.offsets(place) == list(range(count))
    assert asked > count / 100, "many answers came between the records"


def test_a_late_answer_that_went_with_an_old_client_is_not_waited_for(topic: Topic, join: Join) -> None:
    name = topic()
    member = join(name, new_group())
    drive([member], lambda: member.owned)
    position = Position(TopicPartition(name, 0), 0, "again")
    member.source._requests.under_way = CommitRequest((position,))
    assert member.source._requests.read_back([CommittedOffset(position.place, 0, "again")], 0.0)  # inside a callback
    member.source._renew()
    assert member.owned == set()
    drive([member], lambda: member.owned)
    member.source.commit([position])
    drive([member], lambda: member.outcomes)
    assert member.outcomes == [CommitOutcome(confirmed=(position,))]


@pytest.mark.timing
def test_a_poll_ends_when_a_commit_is_answered(topic: Topic, join: Join) -> None:
    name = topic()
    member = join(name, new_group())
    drive([member], lambda: member.owned)
    begun = time.monotonic()
    for number in range(50):
        member.source.commit([Position(TopicPartition(name, 0), 0, str(number))])
        while len(member.outcomes) == number:
            member.source.poll(0.09)
    assert time.monotonic() - begun < 50 * 0.09 / 2, "it waited on for records although the answer had come"


def _trickle(broker: KafkaBroker, topic: str, count: int) -> None:
    """Records by ones and twos, so that the client's queue is empty again and again."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, value=b"%d" % number, partition=0)
        if number % 2:
            producer.poll(0)
            time.sleep(0.0005)
    assert producer.flush(60) == 0


def test_a_producer_of_transactions_that_is_refused_is_reported_when_it_subscribes() -> None:
    wrong = {"bootstrap.servers": "127.0.0.1:1", "transactional.id": "g.1", "no.such.property": 1}
    source = TransactionalSource({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, producer=wrong)
    with pytest.raises(ConfigError, match=r"producer rejected its configuration: .*no\.such\.property"):
        source.subscribe(["t"], None)  # type: ignore[arg-type]

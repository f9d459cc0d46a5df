"""A connection of our own for commits: what it confirms, what it leaves to the client, and how it is opened."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import TopicPartition as ClientPlace
from confluent_kafka.admin import (  # type: ignore[attr-defined] # all of them public, says its docstring
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from keepfast.core.errors import Fault
from keepfast.core.ports import CommitOutcome, CommittedOffset, Position
from keepfast.core.records import TopicPartition
from keepfast.kafka import Connection, KafkaSource, commits
from keepfast.kafka.commit_connection import (
    CommitConnection,
    ConnectError,
    GroupMembership,
    NotPossible,
    Opener,
)
from keepfast.kafka.commits import CommitRequest, DirectCommits
from keepfast.kafka.source import _client_offsets
from keepfast.testing.broker import KafkaBroker
from keepfast.testing.plan import KEYSTORE_PASSWORD
from tests.support.members import (
    DirectSource,
    GroupMember,
    Places,
    connection,
    drive,
    drive_for,
    kafka_member,
    new_group,
    produce,
)
from tests.support.waiting import DEADLINE_S, happens, wait_until
from tests.support.wire import evict

Topic = Callable[..., str]
Join = Callable[..., GroupMember]

MEMBER = GroupMembership("g", "m-1", 3, None)
PLACE = TopicPartition("t", 0)


class Coordinator:
    """The other end of a connection, which answers what a test says."""

    def __init__(self, *, lasts_s: float = float("inf")) -> None:
        ours, self._end = socket.socketpair()
        self.connection = CommitConnection(ours, MEMBER, "test", version=8, lasts_s=lasts_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self._end.close()

    def ask(self, *positions: Position) -> bytes:
        """Send a request; returns its correlation id."""
        assert self.connection.send(self.connection.frame(positions))
        (length,) = struct.unpack(">i", self._end.recv(4, socket.MSG_WAITALL))
        return self._end.recv(length, socket.MSG_WAITALL)[4:8]

    def answer(self, wait_s: float, *, timeout_s: float = 60.0) -> bool | None:
        return self.connection.answer(wait_s, timeout_s=timeout_s)

    def write(self, content: bytes) -> None:
        self._end.sendall(content)

    def reply(self, number: bytes, body: bytes, *, throttled_ms: int = 0) -> None:
        answer = number + b"\0" + struct.pack(">i", throttled_ms) + body
        self.write(struct.pack(">i", len(answer)) + answer)

    def hang_up(self) -> None:
        self._end.close()


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    with Coordinator() as made:
        yield made


def stored(*partitions: tuple[int, int], topic: bytes = b"t") -> bytes:
    """What the broker says of one topic: pairs of partition and error."""
    body = bytes([2, len(topic) + 1]) + topic + bytes([len(partitions) + 1])
    for partition, error in partitions:
        body += struct.pack(">ih", partition, error) + b"\0"
    return body + b"\0\0"


# -- answers


def test_the_answer_that_all_is_stored_confirms(coordinator: Coordinator) -> None:
    number = coordinator.ask(Position(PLACE, 5, "text"))
    assert coordinator.connection.waiting
    assert coordinator.answer(0) is None
    coordinator.reply(number, stored((0, 0)))
    assert coordinator.answer(1) is True
    assert not coordinator.connection.waiting


def test_it_may_be_throttled_and_come_in_pieces(coordinator: Coordinator) -> None:
    number = coordinator.ask(Position(PLACE, 5))
    answer = number + b"\0" + struct.pack(">i", 1500) + stored((0, 0))
    whole = struct.pack(">i", len(answer)) + answer
    for byte in whole[:-1]:
        coordinator.write(bytes([byte]))
        assert coordinator.answer(1) is None
    coordinator.write(whole[-1:])
    assert coordinator.answer(1) is True


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(stored((0, 22)), id="an error"),
        pytest.param(stored((1, 0)), id="another partition"),
        pytest.param(stored((0, 0), topic=b"u"), id="another topic"),
        pytest.param(stored((0, 0), (1, 0)), id="one more"),
        pytest.param(stored(), id="none"),
        pytest.param(b"\1\0", id="no topic"),
        pytest.param(b"", id="nothing"),
        pytest.param(stored((0, 0)) + b"\0", id="a byte more"),
    ],
)
def test_any_other_answer_does_not(coordinator: Coordinator, body: bytes) -> None:
    coordinator.reply(coordinator.ask(Position(PLACE, 5)), body)
    assert coordinator.answer(1) is False


def test_an_answer_to_another_request_does_not(coordinator: Coordinator) -> None:
    number = coordinator.ask(Position(PLACE, 5))
    coordinator.reply(bytes([number[0] + 1]) + number[1:], stored((0, 0)))
    assert coordinator.answer(1) is False


def test_each_request_has_a_number_of_its_own(coordinator: Coordinator) -> None:
    first = coordinator.ask(Position(PLACE, 5))
    coordinator.reply(first, stored((0, 0)))
    assert coordinator.answer(1)
    second = coordinator.ask(Position(PLACE, 6))
    assert second != first
    coordinator.reply(first, stored((0, 0)))
    assert coordinator.answer(1) is False


@pytest.mark.parametrize("errors", [(0, 0), (0, 22), (22, 0)])
def test_all_partitions_of_a_request_have_to_be_stored(coordinator: Coordinator, errors: tuple[int, int]) -> None:
    number = coordinator.ask(Position(PLACE, 5), Position(TopicPartition("t", 1), 8, "more"))
    coordinator.reply(number, stored(*enumerate(errors)))
    assert coordinator.answer(1) is (errors == (0, 0))


def test_a_connection_that_ends_does_not_confirm(coordinator: Coordinator) -> None:
    coordinator.ask(Position(PLACE, 5))
    coordinator.hang_up()
    assert coordinator.answer(1) is False


def test_a_connection_that_has_ended_takes_no_request(coordinator: Coordinator) -> None:
    coordinator.hang_up()
    connected = coordinator.connection
    assert not connected.send(connected.frame([Position(PLACE, 5)]))


def test_an_answer_is_awaited_for_so_long(coordinator: Coordinator) -> None:
    coordinator.ask(Position(PLACE, 5))
    assert coordinator.answer(0.1) is None
    assert coordinator.answer(0.01, timeout_s=0.05) is False


@pytest.mark.parametrize("answered", [True, False])
def test_a_request_without_an_answer_is_not_sent_any_more_when_it_is_closed(answered: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = CommitConnection(
            socket.create_connection(server.getsockname()), MEMBER, "test", version=8, lasts_s=float("inf")
        )
        other, _ = server.accept()
    with other:
        assert made.send(made.frame([Position(PLACE, 5)]))
        request = other.recv(65_536)
        if answered:
            reply = request[8:12] + b"\0" + struct.pack(">i", 0) + stored((0, 0))
            other.sendall(struct.pack(">i", len(reply)) + reply)
            assert made.answer(DEADLINE_S, timeout_s=60.0) is True
        made.close()
        if answered:
            assert other.recv(1) == b""
        else:
            with pytest.raises(ConnectionResetError):
                other.recv(1)


def test_a_session_that_ends_soon_takes_no_further_request() -> None:
    with Coordinator(lasts_s=0.05) as coordinator:
        assert happens(lambda: not coordinator.connection.fresh, within_s=30)


def test_one_that_was_idle_takes_no_further_request(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert coordinator.connection.fresh
    monkeypatch.setattr("keepfast.kafka.commit_connection.IDLE_S", 0.0)
    assert not coordinator.connection.fresh


@pytest.mark.parametrize("text", ["", "x", "α" * 100, "y" * 4000])
def test_a_request_that_is_made_again_is_the_same_but_for_its_position(coordinator: Coordinator, text: str) -> None:
    first, again = Position(PLACE, 1, "first"), Position(PLACE, 2**40, text)
    made = coordinator.connection
    fresh = made._frame([again])
    made.frame([first])
    assert made.frame([again]) == fresh


# -- the membership, as the client describes it


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (b"CGMDv2:\x03\0\0\0g\0m-1\0\x01", GroupMembership("g", "m-1", 3, None)),
        (b"CGMDv2:\x03\0\0\0g\0m-1\0\x00name\0", GroupMembership("g", "m-1", 3, "name")),
        (b"CGMDv2:\xff\xff\xff\xffg\0\0\x01", GroupMembership("g", "", -1, None)),
        (b"CGMDv3:\x03\0\0\0g\0m-1\0\x01", None),
        (b"CGMDv2:", None),
        (b"", None),
    ],
)
def test_a_membership_is_read_or_not_known(metadata: bytes, expected: GroupMembership | None) -> None:
    if metadata[7:8] == b"\x03" or expected is not None:
        epoch = struct.unpack("<i", metadata[7:11])[0]  # as the client writes it, in the order of this machine
        metadata = metadata[:7] + struct.pack("=i", epoch) + metadata[11:]
    assert GroupMembership.read(metadata) == expected


# -- on a broker


@pytest.fixture
def direct(kafka: KafkaBroker) -> Iterator[Join]:
    """`direct(topic, group, …)`: a member that sends its commits on a connection of its own."""
    members: list[GroupMember] = []

    def join(topic: str, group: str, **how: Any) -> GroupMember:
        members.append(kafka_member(connection(kafka.bootstrap), topic, group, of=DirectSource, **how))
        return members[-1]

    yield join
    for member in members:
        member.source.close()


def answer_of(connected: CommitConnection) -> bool | None:
    return connected.answer(0.1, timeout_s=60.0)


@pytest.fixture
def silent(direct: Join, coordinator: Coordinator) -> Join:
    """`silent(topic, group, …)`: a member of two partitions with a commit for each under way that is not answered."""

    def join(topic: str, group: str, **how: Any) -> GroupMember:
        member = direct(topic, group, **how)
        drive([member], lambda: len(member.owned) == 2)
        member.source._direct._connection = coordinator.connection
        member.source.commit([Position(place, 2, "before") for place in sorted(member.owned)])
        assert member.source._direct.waiting
        return member

    return join


PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@PROTOCOLS
@pytest.mark.parametrize("name", [None, "one"], ids=["dynamic", "static"])
def test_positions_of_several_partitions_are_stored(
    topic: Topic, direct: Join, protocol: str, name: str | None
) -> None:
    member = direct(topic_name := topic(partitions=3), new_group(), group_protocol=protocol, group_instance_id=name)
    drive([member], lambda: len(member.owned) == 3)
    positions = [Position(TopicPartition(topic_name, number), 7 + number, "α" * number) for number in range(3)]
    member.source.commit(positions)
    assert member.source._direct.waiting
    drive([member], lambda: member.outcomes)
    assert member.outcomes == [CommitOutcome(tuple(positions))]
    found = member.source.committed([one.place for one in positions], 10.0)
    assert found == [CommittedOffset(one.place, one.offset, one.metadata) for one in positions]
    plain = member.source._open.committed([ClientPlace(*one.place) for one in positions], 10.0)
    assert [one.leader_epoch for one in plain] == [None] * 3, "as the client commits it"


def test_one_request_may_have_several_topics(kafka: KafkaBroker, topic: Topic, direct: Join) -> None:
    names = [topic(partitions=2), topic(partitions=2)]
    member = direct(names[0], new_group())
    drive([member], lambda: member.owned)
    positions = [Position(TopicPartition(names[number % 2], number // 2), 40 + number, "t") for number in range(4)]
    assert member.commit(*positions) == CommitOutcome(tuple(positions))
    assert member.source._direct._connection is not None, "it was confirmed there"
    held = member.source.committed([one.place for one in positions], 10.0)
    assert [one.offset for one in held] == [40, 41, 42, 43]


@PROTOCOLS
def test_a_member_that_is_not_one_any_more_gets_nothing_stored(
    kafka: KafkaBroker, topic: Topic, direct: Join, protocol: str
) -> None:
    name, group = topic(), new_group()
    place, member = TopicPartition(name, 0), direct(name, group, group_protocol=protocol)
    drive([member], lambda: member.owned)
    assert member.commit(Position(place, 1)).failed == ()
    membership = member.source._open.consumer_group_metadata()
    member.source.close()
    # Another one has the partition; the one before it still commits in its own name.
    next_one = direct(name, group, group_protocol=protocol)
    drive([next_one], lambda: next_one.owned)
    of_before = GroupMembership.read(membership)
    assert of_before is not None
    stale = Opener(next_one.source._properties).open(of_before)
    assert stale.send(stale.frame([Position(place, 9)]))
    answers: list[bool | None] = []
    wait_until(lambda: answers and answers[-1] is not None, between=lambda: answers.append(answer_of(stale)))
    assert answers[-1] is False
    stale.close()
    assert next_one.source.committed([place], 10.0) == [CommittedOffset(place, 1, "")]


def test_what_it_does_not_confirm_the_client_sends_again(topic: Topic, direct: Join) -> None:
    name = topic(partitions=2)
    member = direct(name, new_group())
    drive([member], lambda: len(member.owned) == 2)
    good, large = Position(TopicPartition(name, 0), 3, "ok"), Position(TopicPartition(name, 1), 3, "x" * 5000)
    outcome = member.commit(good, large)
    assert dict(outcome.failed)[large].fault is Fault.TOO_LARGE
    assert [held.offset for held in member.source.committed([good.place, large.place], 10.0)] == [3, None]


@pytest.mark.parametrize("prepared", [False, True])
def test_a_commit_whose_connection_breaks_is_sent_again_by_the_client(
    topic: Topic, direct: Join, prepared: bool
) -> None:
    name = topic()
    member, position = direct(name, new_group()), Position(TopicPartition(name, 0), 4, "once")
    drive([member], lambda: member.owned)
    assert member.commit(Position(position.place, 1)).failed == ()
    ready = member.source.prepare(position)
    if prepared:
        member.source.commit_prepared(ready)
    else:
        member.source.commit([position])
    member.source._direct._connection._socket.shutdown(socket.SHUT_RDWR)
    drive([member], lambda: ready.confirmed or len(member.outcomes) == 2)
    assert ready.confirmed or member.outcomes[1] == CommitOutcome((position,))
    assert member.source.committed([position.place], 10.0) == [CommittedOffset(position.place, 4, "once")]


def test_a_commit_under_way_when_partitions_are_revoked_is_answered_inside(topic: Topic, direct: Join) -> None:
    name, group = topic(partitions=2), new_group()
    first = direct(name, group)
    drive([first], lambda: len(first.owned) == 2)
    positions = [Position(place, 5, "before") for place in sorted(first.owned)]
    inside: list[CommitOutcome] = []

    def wait(_: Places) -> None:
        assert first.source._direct.waiting
        wait_until(lambda: first.outcomes, "the answer", between=lambda: first.source.serve(0.1))
        inside.extend(first.outcomes)

    first.during_revoke = wait
    first.source.commit(positions)
    second = direct(name, group)

    def step() -> None:
        first.source._open.poll(0.05)  # the client alone, so that nobody takes the answer
        second.step()

    wait_until(lambda: inside, "a callback", between=step)
    assert inside == [CommitOutcome(tuple(positions))]
    drive([first, second], lambda: len(first.owned) == len(second.owned) == 1)


@PROTOCOLS
def test_a_commit_without_an_answer_is_given_up_with_its_partitions(
    topic: Topic, direct: Join, silent: Join, coordinator: Coordinator, protocol: str
) -> None:
    """The client, which has joined the next generation by then, must not send it."""
    name, group = topic(partitions=2), new_group()
    first = silent(name, group, group_protocol=protocol)
    second = direct(name, group, group_protocol=protocol)
    drive([second], lambda: (first.source._open.poll(0.02), second.owned)[1])
    [moved] = second.owned
    assert second.commit(Position(moved, 50, "of the second"), beside=[first]).failed == ()
    coordinator.hang_up()
    drive([first], lambda: first.outcomes)
    codes = {position.place: error.code for position, error in first.outcomes[0].failed}
    assert codes.pop(moved) == "GIVEN_UP"
    assert list(codes.values()) in (["UNANSWERED"], ["GIVEN_UP"])  # KIP-848 may revoke both and give one back
    drive_for([first, second], 0.5)
    assert second.source.committed([moved], 10.0) == [CommittedOffset(moved, 50, "of the second")]


@PROTOCOLS
def test_a_commit_without_an_answer_is_given_up_with_partitions_that_are_lost(
    kafka: KafkaBroker, topic: Topic, silent: Join, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "CONFIRM_TIMEOUT_S", DEADLINE_S)
    name, group = topic(partitions=2), new_group()
    member = silent(name, group, group_protocol=protocol)
    positions = member.source._requests.under_way.positions
    evict(kafka.bootstrap, group, member.source._open.memberid())
    drive([member], lambda: member.outcomes and len(member.owned) == 2 and not member.source._direct.waiting)
    assert member.heard("lost") == [tuple(one.place for one in positions)]
    assert [(position, error.code) for position, error in member.outcomes[0].failed] == [
        (position, "GIVEN_UP") for position in positions
    ]
    drive_for([member], 0.5)
    assert [held.offset for held in member.source.committed([one.place for one in positions], 10.0)] == [None, None]
    assert len(member.outcomes) == 1


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
@pytest.mark.parametrize("answers", [True, False], ids=["answered inside", "not answered"])
def test_a_static_member_that_does_not_leave_gives_up_its_commit(
    topic: Topic, direct: Join, silent: Join, assignor: str, answers: bool
) -> None:
    name, group = topic(partitions=2), new_group()
    inside: list[CommitOutcome] = []

    def wait(_: Places) -> None:
        member.source.serve(20.0 if answers else 0.1)
        inside.extend(member.outcomes)

    how = {"group_instance_id": "one", "assignor": assignor, "group_protocol": "classic"}
    member = (direct if answers else silent)(name, group, **how)
    drive([member], lambda: len(member.owned) == 2)
    positions = [Position(TopicPartition(name, number), 2, "before") for number in range(2)]
    if answers:
        member.source.commit(positions)
    connected = member.source._direct._connection
    member.during_revoke = wait
    member.source.close(leave=False)
    assert connected._socket.fileno() == -1
    if answers:
        assert inside == [CommitOutcome(tuple(positions))]
    else:
        assert inside == []
        [outcome] = member.outcomes
        assert [(position, error.code) for position, error in outcome.failed] == [
            (position, "GIVEN_UP") for position in positions
        ]
    after = direct(name, group, **how)
    drive([after], lambda: len(after.owned) == 2)
    held = after.source.committed([one.place for one in positions], 10.0)
    assert [one.offset for one in held] == ([2, 2] if answers else [None, None])


def test_a_commit_without_an_answer_is_sent_by_the_client_while_its_partitions_stay(
    topic: Topic, silent: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "CONFIRM_TIMEOUT_S", 0.2)
    name = topic(partitions=2)
    member = silent(name, new_group())
    drive([member], lambda: member.outcomes)
    assert member.outcomes[0].failed == ()
    assert [held.offset for held in member.source.committed(sorted(member.owned), 10.0)] == [2, 2]


def test_inside_a_callback_a_commit_without_an_answer_is_sent_by_the_client_and_read_back(
    topic: Topic, direct: Join, silent: Join
) -> None:
    name, group = topic(partitions=2), new_group()
    inside: list[CommitOutcome] = []

    def wait(_: Places) -> None:
        wait_until(lambda: first.outcomes, "an outcome", between=lambda: first.source.serve(0.1))
        inside.extend(first.outcomes)

    first = silent(name, group)
    first.during_revoke = wait
    second = direct(name, group)
    drive([second], lambda: (first.source._open.poll(0.02), inside)[1])
    assert [outcome.failed for outcome in inside] == [()]
    assert len(inside[0].confirmed) == 2


def test_inside_a_callback_a_commit_that_was_stored_without_an_answer_is_not_sent_again(
    topic: Topic, direct: Join, silent: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client would repeat it if its own answer were lost, perhaps when its partitions are another member's."""
    name, group = topic(partitions=2), new_group()
    inside, sent = list[CommitOutcome](), list[CommitRequest]()

    def wait(_: Places) -> None:
        monkeypatch.setattr(first.source, "_send_by_client", sent.append)
        wait_until(lambda: first.outcomes or sent, "an outcome", between=lambda: first.source.serve(0.1))
        inside.extend(first.outcomes)

    first = silent(name, group)
    positions = first.source._requests.under_way.positions
    places = _client_offsets(positions)
    first.source._open.commit(offsets=places, asynchronous=False)
    first.during_revoke = wait
    second = direct(name, group)
    drive([second], lambda: (first.source._open.poll(0.02), inside or sent)[1])
    assert (inside, sent) == ([CommitOutcome(positions)], [])


def commit_when_revoked(first: GroupMember, second: GroupMember, seen: Callable[[DirectCommits], object]) -> object:
    """One of two partitions moves, and the first member commits it inside the callback. Returns what was seen then."""
    found = list[object]()

    def commit(places: Places) -> None:
        first.source.commit([Position(place, 3) for place in places])
        found.append(seen(first.source._direct))
        first.source.serve(20.0)

    first.during_revoke = commit
    drive([first, second], lambda: len(first.owned) == len(second.owned) == 1)
    assert first.outcomes[-1].failed == ()
    [one] = found
    return one


def test_commits_inside_a_callback_are_sent_by_the_client(topic: Topic, direct: Join) -> None:
    name, group = topic(partitions=2), new_group()
    first = direct(name, group)
    drive([first], lambda: len(first.owned) == 2)
    assert first.commit(Position(TopicPartition(name, 0), 1)).failed == ()
    assert commit_when_revoked(first, direct(name, group), lambda used: used.waiting) is False


def test_and_open_no_connection_there(topic: Topic, join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "WORTHWHILE_COMMITS", 1)
    name, group = topic(partitions=2), new_group()
    first = join(name, group)
    drive([first], lambda: len(first.owned) == 2)
    assert commit_when_revoked(first, join(name, group), lambda used: used._attempt) is None


@pytest.mark.parametrize("reads", ["poll", "sweep"])
def test_an_answer_is_taken_while_the_client_has_records(
    kafka: KafkaBroker, topic: Topic, direct: Join, coordinator: Coordinator, reads: str
) -> None:
    name = topic()
    produce(kafka, name, 2_000)
    member = direct(name, new_group())
    drive([member], lambda: member.source._open.poll(0.02))  # the client has fetched a lot
    member.source._direct._connection = coordinator.connection
    number = coordinator.ask(Position(TopicPartition(name, 0), 1))
    member.source._requests.under_way = CommitRequest((Position(TopicPartition(name, 0), 1),))
    coordinator.reply(number, stored((0, 0), topic=name.encode()))
    if reads == "poll":
        assert member.source.poll(0) is not None
    else:
        assert member.source.sweep(10)
    assert len(member.outcomes) == 1


def test_a_source_that_is_closed_closes_its_connection(topic: Topic, direct: Join) -> None:
    name = topic()
    member = direct(name, new_group())
    drive([member], lambda: member.owned)
    member.source.commit([Position(TopicPartition(name, 0), 1)])
    connected = member.source._direct._connection
    member.source.close()
    assert connected._socket.fileno() == -1


def test_after_a_rebalance_it_commits_in_the_name_of_the_new_generation(topic: Topic, direct: Join) -> None:
    name, group = topic(partitions=2), new_group()
    first = direct(name, group)
    drive([first], lambda: len(first.owned) == 2)
    before = first.commit(Position(TopicPartition(name, 0), 1))
    second = direct(name, group)
    drive([first, second], lambda: len(first.owned) == len(second.owned) == 1)
    assert first.source._direct._connection is None, "what it said was said in the name of the old one"
    [kept], [moved] = first.owned, second.owned
    outcomes = [first.commit(Position(kept, 2), beside=[second]), second.commit(Position(moved, 2), beside=[first])]
    assert [outcome.failed for outcome in (before, *outcomes)] == [(), (), ()]


def test_a_member_that_was_evicted_hears_so_from_the_client(kafka: KafkaBroker, topic: Topic, direct: Join) -> None:
    name, group = topic(), new_group()
    place, member = TopicPartition(name, 0), direct(name, group)
    drive([member], lambda: member.owned)
    assert member.commit(Position(place, 1)).failed == ()
    evict(kafka.bootstrap, group, member.source._open.memberid())
    member.source.commit([Position(place, 2)])
    drive([member], lambda: len(member.outcomes) == 2)
    [(_, error)] = member.outcomes[1].failed
    assert error.fault is Fault.REBALANCING


def test_a_frozen_coordinator_blocks_nothing(kafka: KafkaBroker, topic: Topic, direct: Join) -> None:
    name = topic()
    place, member = TopicPartition(name, 0), direct(name, new_group())
    drive([member], lambda: member.owned)
    assert member.commit(Position(place, 1)).failed == ()
    kafka.pause()
    try:
        member.source.commit([Position(place, 2)])
        polls = 0
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            member.source.poll(0.01)
            polls += 1
        assert len(member.outcomes) == 1
        assert polls >= 20, "it polls meanwhile"
    finally:
        kafka.resume()
    drive([member], lambda: len(member.outcomes) == 2)
    assert member.outcomes[1].failed == ()


def test_one_is_opened_when_there_are_many_commits(topic: Topic, join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "WITHIN_S", 60.0)
    name = topic()
    place, member = TopicPartition(name, 0), join(name, new_group())
    drive([member], lambda: member.owned)
    sent = 0

    def commit() -> None:
        nonlocal sent
        sent += 1
        assert member.commit(Position(place, sent)).failed == ()

    for _ in range(commits.WORTHWHILE_COMMITS):
        commit()
        assert member.source._direct._connection is None
    wait_until(lambda: member.source._direct._connection, "a connection", between=commit)
    commit()
    assert member.source.committed([place], 10.0) == [CommittedOffset(place, sent, "")]


def test_none_is_opened_for_few_commits_or_where_it_is_switched_off(
    kafka: KafkaBroker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "WORTHWHILE_COMMITS", 3)
    for within_s, of in ((0.0, KafkaSource), (60.0, partial(KafkaSource, direct=False))):
        monkeypatch.setattr(commits, "WITHIN_S", within_s)
        name = topic()
        place = TopicPartition(name, 0)
        with kafka_member(connection(kafka.bootstrap), name, new_group(), of=of) as member:
            drive([member], partial(getattr, member, "owned"))
            for number in range(12):
                assert member.commit(Position(place, number)).failed == ()
            assert member.source._direct._attempt is None
            assert member.source._direct._connection is None


# -- when one fails


class Opened:
    """What an opener does in a test."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.may_end = threading.Event()
        self.may_end.set()
        self.connections: list[Coordinator] = []

    def __call__(self, _: object) -> Self:
        return self

    def cancel(self) -> None:
        """What is being opened is closed when it is there."""

    def open(self, _: GroupMembership) -> CommitConnection:
        self.count += 1
        self.may_end.wait(60)
        if self.error is not None:
            raise self.error
        self.connections.append(Coordinator())
        return self.connections[-1].connection


@pytest.fixture
def opened() -> Iterator[Opened]:
    made = Opened()
    yield made
    for one in made.connections:
        one.__exit__()


METADATA = b"CGMDv2:" + struct.pack("=i", 3) + b"g\0m-1\0\x01"


def opening(monkeypatch: pytest.MonkeyPatch, opened: Opened) -> DirectCommits:
    monkeypatch.setattr(commits, "WORTHWHILE_COMMITS", 2)
    monkeypatch.setattr(commits, "WITHIN_S", 1e9)
    monkeypatch.setattr(commits, "RETRY_S", 0.0)
    monkeypatch.setattr(commits, "Opener", opened)
    return DirectCommits({}, on=True)


def by_client(direct: DirectCommits, count: int, metadata: bytes = METADATA) -> None:
    for _ in range(count):
        direct.sent_by_client(lambda: metadata)
        time.sleep(0.005)


def test_a_failure_that_may_pass_is_tried_again(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.error = ConnectError("not now")
    direct = opening(monkeypatch, opened)
    wait_until(lambda: opened.count == 2, "a second try", between=lambda: by_client(direct, 2))
    opened.error = None
    wait_until(lambda: direct.frame([Position(PLACE, 1)]), "a connection", between=lambda: by_client(direct, 2))


def test_one_that_is_not_possible_is_not(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    opened.error = NotPossible("the login was refused")
    direct = opening(monkeypatch, opened)
    wait_until(lambda: caplog.records, "a word", between=lambda: by_client(direct, 2))
    by_client(direct, 10)
    assert opened.count == 1
    assert [record.getMessage() for record in caplog.records] == [
        "commit_connection_not_possible: the client sends all commits: the login was refused"
    ]


@pytest.mark.parametrize("metadata", [b"CGMDv9:", b"CGMDv2:" + struct.pack("=i", -1) + b"g\0\0\x01"])
def test_without_a_membership_none_is_opened(opened: Opened, monkeypatch: pytest.MonkeyPatch, metadata: bytes) -> None:
    direct = opening(monkeypatch, opened)
    by_client(direct, 10, metadata)
    assert opened.count == 0


def test_one_that_is_ready_after_the_membership_has_changed_is_closed(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.may_end.clear()
    direct = opening(monkeypatch, opened)
    wait_until(lambda: opened.count, "a try", between=lambda: by_client(direct, 1))
    direct.retire()
    opened.may_end.set()
    wait_until(lambda: opened.connections, "a connection")
    wait_until(lambda: opened.connections[0].connection._socket.fileno() == -1, "closed")
    assert direct.frame([Position(PLACE, 1)]) is None


def test_after_the_membership_has_changed_only_the_answer_is_awaited(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = opening(monkeypatch, opened)
    frame = wait_until(lambda: direct.frame([Position(PLACE, 1)]), "a connection", between=lambda: by_client(direct, 2))
    assert frame is not None
    assert direct.send(frame)
    direct.retire()
    assert direct.waiting
    assert direct.frame([Position(PLACE, 2)]) is None
    opened.connections[0].reply(struct.pack(">i", 1), stored((0, 0)))
    assert direct.answer(5) is True
    assert not direct.waiting
    assert opened.connections[0].connection._socket.fileno() == -1


def test_after_that_it_is_awaited_for_less_long(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "RETIRED_TIMEOUT_S", 0.0)
    direct = opening(monkeypatch, opened)
    frame = wait_until(lambda: direct.frame([Position(PLACE, 1)]), "a connection", between=lambda: by_client(direct, 2))
    assert frame is not None
    assert direct.send(frame)
    assert direct.answer(0.01) is None
    direct.retire()
    assert direct.answer(0.01) is False


def test_after_a_failure_the_client_sends_for_a_while(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opening(monkeypatch, opened)
    monkeypatch.setattr(commits, "RETRY_S", 60.0)
    direct = DirectCommits({}, on=True)
    frame = wait_until(lambda: direct.frame([Position(PLACE, 1)]), "a connection", between=lambda: by_client(direct, 2))
    assert frame is not None
    opened.connections[0].hang_up()
    assert not direct.send(frame)
    by_client(direct, 10)
    assert opened.count == 1


def test_one_that_is_not_fresh_is_replaced_at_once(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opening(monkeypatch, opened)
    monkeypatch.setattr(commits, "RETRY_S", 60.0)
    direct = DirectCommits({}, on=True)
    frame = wait_until(lambda: direct.frame([Position(PLACE, 1)]), "a connection", between=lambda: by_client(direct, 2))
    assert frame is not None
    monkeypatch.setattr("keepfast.kafka.commit_connection.IDLE_S", 0.0)
    assert not direct.send(frame)
    wait_until(lambda: opened.count == 2, "the next one", between=lambda: by_client(direct, 2))


# -- how one is opened


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"security.protocol": "SASL_SSL"}, "GSSAPI"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "PLAIN"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "a",
                "sasl.password": "é",
            },
            "ASCII",
        ),
        ({"security.protocol": "SSL", "ssl.ca.location": "/no/such/file"}, "certificates"),
        ({"security.protocol": "SSL", "ssl.certificate.location": "/no/such/file"}, "certificates"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "X"}, r"ssl\.cipher\.suites"),
        ({"enable.ssl.certificate.verification": False}, r"enable\.ssl\.certificate\.verification"),
        ({"oauth_cb": print}, "oauth_cb"),
        ({"security.protocol": "TLS"}, "TLS"),
    ],
)
def test_security_that_only_the_client_knows_is_left_to_it(properties: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotPossible, match=reason):
        Opener({"bootstrap.servers": "127.0.0.1:1", **properties})


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaBroker]:
    """TLS, and logins by PLAIN and SCRAM that last for 3 s."""
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    config = {
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": scram,
        "connections.max.reauth.ms": "3000",
    }
    with KafkaBroker(sasl_users={"alice": "secret"}, tls=True, config=config) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            user = UserScramCredentialUpsertion("bob=, ltd", ScramCredentialInfo(mechanism, 4096), b"pa,ss=word")
            for done in admin.alter_user_scram_credentials([user]).values():
                done.result(60)
        yield broker


def login(broker: KafkaBroker, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "brokers": [broker.bootstrap_sasl],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": user,
        "sasl_password": password,
    }


def committed_directly(broker: KafkaBroker, to: dict[str, Any]) -> list[CommittedOffset]:
    """What a member with this connection stores by itself."""
    name = broker.create_topic(f"secured-{new_group()}")
    place = TopicPartition(name, 0)
    with kafka_member(Connection(**to, properties={"log_level": 0}), name, new_group(), of=DirectSource) as member:
        drive([member], lambda: member.owned)
        member.source.commit([Position(place, 11, "by hand")])
        assert member.source._direct.waiting
        drive([member], lambda: member.outcomes)
        assert member.source._direct._connection is not None, "it was confirmed there"
        return [*member.source.committed([place], 10.0)]


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        ("PLAIN", "alice", "secret"),
        ("SCRAM-SHA-256", "bob=, ltd", "pa,ss=word"),
        ("SCRAM-SHA-512", "bob=, ltd", "pa,ss=word"),
    ],
)
def test_a_login(secured: KafkaBroker, mechanism: str, user: str, password: str) -> None:
    [found] = committed_directly(secured, login(secured, mechanism, user, password))
    assert (found.offset, found.metadata) == (11, "by hand")


def test_tls(secured: KafkaBroker) -> None:
    to = {"brokers": [secured.bootstrap_tls], "security_protocol": "SSL", "ssl_ca_location": str(secured.tls_ca)}
    [found] = committed_directly(secured, to)
    assert (found.offset, found.metadata) == (11, "by hand")


def make_client_certificate(folder: Path, password: bytes) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "client")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(30))
    protection = serialization.BestAvailableEncryption(password)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    paths = folder / "client.pem", folder / "client.key"
    paths[0].write_bytes(made.sign(key, hashes.SHA256()).public_bytes(pem))
    paths[1].write_bytes(key.private_bytes(pem, pkcs8, protection))
    return paths


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaBroker, dict[str, Any]]]:
    """A broker that asks clients for a certificate, and logins by PLAIN over TLS. Beside it what such a client has."""
    folder = tmp_path_factory.mktemp("mutual")
    certificate, key = make_client_certificate(folder, b"of the key")
    config = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL,TLS:SSL",
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.tls.ssl.truststore.type": "PEM",
        "listener.name.tls.ssl.truststore.location": str(certificate),
        "listener.name.sasl.ssl.keystore.type": "PKCS12",
        "listener.name.sasl.ssl.keystore.location": str(folder / "tls" / "keystore.p12"),
        "listener.name.sasl.ssl.keystore.password": KEYSTORE_PASSWORD,
        "listener.name.sasl.ssl.key.password": KEYSTORE_PASSWORD,
    }
    with KafkaBroker(sasl_users={"alice": "secret"}, tls=True, config=config, data_dir=folder) as broker:
        yield (
            broker,
            {
                "ssl_certificate_location": str(certificate),
                "ssl_key_location": str(key),
                "ssl_key_password": "of the key",
            },
        )


def test_a_certificate_of_the_client(mutual: tuple[KafkaBroker, dict[str, Any]]) -> None:
    broker, own = mutual
    to = {"brokers": [broker.bootstrap_tls], "security_protocol": "SSL", "ssl_ca_location": str(broker.tls_ca), **own}
    [found] = committed_directly(broker, to)
    assert (found.offset, found.metadata) == (11, "by hand")


def test_without_it_none_is_opened(mutual: tuple[KafkaBroker, dict[str, Any]]) -> None:
    broker, _ = mutual
    to = {"brokers": [broker.bootstrap_tls], "security_protocol": "SSL", "ssl_ca_location": str(broker.tls_ca)}
    with pytest.raises((NotPossible, ConnectError)):  # the broker says why and hangs up, in no order
        Opener(properties_of(to)).open(MEMBER)


def test_a_login_over_tls(mutual: tuple[KafkaBroker, dict[str, Any]]) -> None:
    broker, _ = mutual
    to = login(broker, "PLAIN", "alice", "secret") | {"security_protocol": "SASL_SSL"}
    [found] = committed_directly(broker, to | {"ssl_ca_location": str(broker.tls_ca)})
    assert (found.offset, found.metadata) == (11, "by hand")


def properties_of(to: dict[str, Any]) -> dict[str, Any]:
    with_names = {name.replace("_", "."): value for name, value in to.items() if name != "brokers"}
    return {"bootstrap.servers": ",".join(to["brokers"]), "group.id": "g", **with_names}


@pytest.mark.parametrize(
    ("mechanism", "user"), [("PLAIN", "alice"), ("SCRAM-SHA-256", "bob=, ltd"), ("SCRAM-SHA-512", "nobody")]
)
def test_a_login_that_is_refused_is_not_tried_again(secured: KafkaBroker, mechanism: str, user: str) -> None:
    with pytest.raises(NotPossible, match="refused the login"):
        Opener(properties_of(login(secured, mechanism, user, "guess"))).open(MEMBER)


def test_a_certificate_that_is_not_trusted_is_not_accepted(secured: KafkaBroker) -> None:
    to = {"brokers": [secured.bootstrap_tls], "security_protocol": "SSL"}
    with pytest.raises(NotPossible, match="TLS is refused"):
        Opener(properties_of(to)).open(MEMBER)


def opened_by(opener: Opener) -> CommitConnection | None:
    """A broker has no coordinator for its first group at once."""
    with suppress(ConnectError):
        return opener.open(MEMBER)
    return None


def test_a_session_is_not_used_to_its_end(secured: KafkaBroker) -> None:
    opener = Opener(properties_of(login(secured, "PLAIN", "alice", "secret")))

    opened = wait_until(lambda: opened_by(opener), "a connection")
    assert opened is not None
    assert opened.fresh
    assert happens(lambda: not opened.fresh, within_s=30)
    opened.close()


def test_brokers_that_do_not_answer_are_passed_over(kafka: KafkaBroker) -> None:
    host, _, port = kafka.bootstrap.rpartition(":")
    others = "127.0.0.1:1,[::1],127.0.0.1:port,SSL://127.0.0.1:1"
    one = Opener({"bootstrap.servers": f"{others}, PLAINTEXT://{host}:{port},", "group.id": "g"})
    wait_until(lambda: opened_by(one), "the coordinator").close()  # type: ignore[union-attr]


@pytest.mark.parametrize("servers", ["127.0.0.1:1", "", "127.0.0.1:port"])
def test_without_a_broker_it_may_be_different_the_next_time(servers: str) -> None:
    with pytest.raises(ConnectError):
        Opener({"bootstrap.servers": servers, "group.id": "g"}).open(MEMBER)


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([b"\0\0" + struct.pack(">i", 2) + struct.pack(">hhhhhh", 8, 2, 7, 10, 0, 4)], NotPossible),
        ([b"\0\x23" + struct.pack(">i", 0)], NotPossible),
        ([b"\0\0" + struct.pack(">i", 999)], ConnectError),
        ([b""], ConnectError),
    ],
    ids=["too old", "an error", "cut off", "empty"],
)
def test_a_broker_that_says_something_else_is_left_to_the_client(answers: list[bytes], error: type[Exception]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        speaking = threading.Thread(target=speak, args=(server, answers))
        speaking.start()
        with pytest.raises(error):
            Opener({"bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}", "group.id": "g"}).open(MEMBER)
        speaking.join()


def test_a_broker_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepfast.kafka.commit_connection.BROKER_TIMEOUT_S", 0.5)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        speaking = threading.Thread(target=trickle, args=(server, ended))
        speaking.start()
        with pytest.raises(ConnectError):
            Opener({"bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}", "group.id": "g"}).open(MEMBER)
        ended.set()
        speaking.join()


def test_a_broker_that_says_nothing_is_passed_over(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepfast.kafka.commit_connection.BROKER_TIMEOUT_S", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = f"127.0.0.1:{server.getsockname()[1]}"
        opener = Opener({"bootstrap.servers": f"{silent},{kafka.bootstrap}", "group.id": "g"})
        wait_until(lambda: opened_by(opener), "the coordinator").close()  # type: ignore[union-attr]


def trickle(server: socket.socket, ended: threading.Event) -> None:
    connected, _ = server.accept()
    with connected:
        connected.sendall(struct.pack(">ii", 100_000, 1))
        while not ended.wait(0.05):
            connected.sendall(b"\0")


def speak(server: socket.socket, answers: list[bytes]) -> None:
    """Answer so many requests with these bodies, and hang up."""
    connected, _ = server.accept()
    with connected:
        for body in answers:
            (length,) = struct.unpack(">i", connected.recv(4, socket.MSG_WAITALL))
            request = connected.recv(length, socket.MSG_WAITALL)
            answer = request[4:8] + body
            connected.sendall(struct.pack(">i", len(answer)) + answer)

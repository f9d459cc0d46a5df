"""How a source joins its group and how it ends its membership, on a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import pytest

from keepfast.core.errors import Fault
from keepfast.core.ports import Position
from keepfast.core.records import TopicPartition
from keepfast.kafka import Consuming, KafkaSource, config, source_properties
from keepfast.testing.broker import KafkaBroker
from tests.support import starved_close
from tests.support.members import (
    GroupMember,
    Places,
    connection,
    drive,
    kafka_member,
    new_group,
    produce,
    static_members,
)
from tests.support.project_files import ROOT
from tests.support.waiting import DEADLINE_S

Join = Callable[..., GroupMember]
Topic = Callable[..., str]

SESSION_MS = 30_000


def pair(join: Join, name: str, group: str) -> tuple[GroupMember, GroupMember]:
    """Two static members with a long session, two partitions each."""
    one = join(name, group, group_instance_id="one", session_timeout_ms=SESSION_MS, max_poll_interval_ms=SESSION_MS)
    two = join(name, group, group_instance_id="two", session_timeout_ms=SESSION_MS, max_poll_interval_ms=SESSION_MS)
    drive([one, two], lambda: len(one.owned) == 2 and len(two.owned) == 2)
    return one, two


def test_a_static_member_that_does_not_leave_gets_its_partitions_back(
    kafka: KafkaBroker, topic: Topic, join: Join
) -> None:
    name, group = topic(partitions=4), new_group()
    one, two = pair(join, name, group)
    before, revoked = set(one.owned), two.heard("revoked")
    one.source.close(leave=False)
    assert one.owned == set()  # its listener was asked to give them up
    assert static_members(kafka.bootstrap, group) == ["one", "two"]
    again = join(name, group, group_instance_id="one", session_timeout_ms=SESSION_MS, max_poll_interval_ms=SESSION_MS)
    drive([again, two], lambda: again.owned)
    assert again.owned == before
    assert (len(two.owned), two.heard("revoked")) == (2, revoked)


def test_and_one_that_leaves_gives_them_to_the_others_at_once(topic: Topic, join: Join) -> None:
    name, group = topic(partitions=4), new_group()
    one, two = pair(join, name, group)
    one.source.close()
    drive([two], lambda: len(two.owned) == 4, timeout_s=SESSION_MS / 2_000)


def test_the_last_commit_of_a_member_that_does_not_leave_is_confirmed(topic: Topic, join: Join) -> None:
    name, group = topic(), new_group()
    place = TopicPartition(name, 0)
    member = join(name, group, group_instance_id="one")
    drive([member], lambda: member.owned)

    def commit(places: Places) -> None:
        member.source.commit([Position(place, 7, "last")])
        member.source.serve(20.0)

    member.during_revoke = commit
    member.source.close(leave=False)
    assert [outcome.confirmed for outcome in member.outcomes] == [(Position(place, 7, "last"),)]


def test_a_member_without_a_name_leaves_in_any_case(topic: Topic, join: Join) -> None:
    name, group = topic(partitions=2), new_group()
    one, two = join(name, group), join(name, group, session_timeout_ms=SESSION_MS, max_poll_interval_ms=SESSION_MS)
    drive([one, two], lambda: len(one.owned) == 1 and len(two.owned) == 1)
    one.source.close(leave=False)
    drive([two], lambda: len(two.owned) == 2, timeout_s=SESSION_MS / 2_000)


STATIC = {"group_instance_id": "one"}


@pytest.mark.parametrize(
    ("consuming", "leave"),
    [
        pytest.param(STATIC | {"group_protocol": "classic"}, False, id="static, cooperative"),
        pytest.param(STATIC | {"group_protocol": "classic"}, True, id="static, cooperative, leaving"),
        pytest.param(STATIC | {"assignor": "range"}, False, id="static, eager"),
        pytest.param(STATIC | {"group_protocol": "consumer"}, False, id="static, KIP-848"),
        pytest.param({"group_protocol": "classic"}, True, id="cooperative"),
        pytest.param({"group_protocol": "consumer"}, True, id="KIP-848"),
    ],
)
def test_a_member_closes_while_the_callback_of_its_assignment_is_queued(
    kafka: KafkaBroker, topic: Topic, consuming: dict[str, str], leave: bool
) -> None:
    """And its listener hears of no partitions that it would have to give up at once."""
    arguments = [kafka.bootstrap, topic(partitions=2), new_group(), json.dumps(consuming), json.dumps(leave)]
    program = [sys.executable, "-m", starved_close.__name__, *arguments]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert done.stdout.splitlines() == starved_close.ROUNDS * ["[]"]
    assert "source_listener_failed" not in done.stderr


def test_a_group_whose_members_have_another_assignor_names_the_setting_that_joins_it(topic: Topic, join: Join) -> None:
    name, group = topic(partitions=2), new_group()
    spring = join(name, group, assignor="range", group_protocol="classic")
    drive([spring], lambda: len(spring.owned) == 2)
    ours = join(name, group, assignor="cooperative-sticky", group_protocol="classic")
    drive([spring, ours], lambda: ours.errors)
    error, _ = ours.errors[0]
    assert (error.fault, error.code) == (Fault.FATAL, "INCONSISTENT_GROUP_PROTOCOL")
    assert 'assignor="range"' in str(error)
    also = join(name, group, assignor="range", group_protocol="classic")
    drive([spring, also], lambda: len(also.owned) == 1)


def test_a_reader_by_pattern_soon_finds_a_topic_that_it_took_for_missing(kafka: KafkaBroker, join: Join) -> None:
    """Otherwise the client looks again after five minutes."""
    name = f"appears-{uuid.uuid4().hex}"
    member = join(name, new_group(), by_pattern=True)
    drive([member], lambda: any(error.fault is Fault.MISSING for error, _ in member.errors))
    kafka.create_topic(name)
    drive([member], lambda: member.owned)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_partitions_that_are_added_get_an_owner_soon(
    kafka: KafkaBroker, topic: Topic, join: Join, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """Under the classic protocol when the members look at the topic again, otherwise after five minutes."""
    monkeypatch.setattr(config, "NEW_PARTITIONS_MS", 1_000)
    name = topic()
    member = join(name, new_group(), group_protocol=protocol)
    drive([member], lambda: member.owned)
    kafka.grow_topic(name, partitions=3)
    drive([member], lambda: len(member.owned) == 3)


@pytest.fixture(scope="module")
def older() -> Iterator[KafkaBroker]:
    """A broker that does not have KIP-848."""
    with KafkaBroker(config={"group.coordinator.rebalance.protocols": "classic"}) as broker:
        yield broker


def test_a_broker_without_kip_848_gets_a_classic_member(older: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    name = older.create_topic("older.broker.v1", partitions=2)
    produce(older, name, 10, partitions=2)
    to, consuming = connection(older.bootstrap), Consuming(group=new_group())
    newer = Consuming(group=consuming.group, group_protocol="consumer")
    source = KafkaSource(source_properties(to, newer), classic=source_properties(to, consuming))
    caplog.set_level("INFO")
    with GroupMember(source, name) as member:
        drive([member], lambda: len(member.records) == 10)
        assert member.errors == []
        member.source.commit([Position(TopicPartition(name, 0), 5)])
        drive([member], lambda: member.outcomes)
        assert member.outcomes[0].failed == ()
    printed = [record.getMessage() for record in caplog.records]
    assert sum("group_protocol_classic" in line for line in printed) == 1
    assert not any("fatal" in line.lower() for line in printed)


def test_and_one_that_insists_on_kip_848_is_reported_so(older: KafkaBroker) -> None:
    name = older.create_topic("older.broker.v2")
    to, group = connection(older.bootstrap), new_group()
    with kafka_member(to, name, group, group_protocol="consumer") as member:
        drive([member], lambda: member.errors)
        [(error, _)] = member.errors
        assert error.fault is Fault.FATAL


def test_under_kip_848_a_name_that_is_still_taken_is_waited_for(topic: Topic, join: Join) -> None:
    name, group = topic(partitions=2), new_group()
    first = join(name, group, group_instance_id="one", group_protocol="consumer")
    drive([first], lambda: first.owned)
    second = join(name, group, group_instance_id="one", group_protocol="consumer")
    drive([first, second], lambda: len(second.errors) >= 2)
    assert {error.fault for error, _ in second.errors} == {Fault.REBALANCING}
    assert {error.code for error, _ in second.errors} == {"UNRELEASED_INSTANCE_ID"}
    assert first.errors == []
    first.source.close(leave=False)
    drive([second], lambda: len(second.owned) == 2, timeout_s=60)


def test_classic_and_new_members_share_a_group_while_a_service_is_upgraded(
    kafka: KafkaBroker, topic: Topic, join: Join
) -> None:
    name, group = topic(partitions=4), new_group()
    produce(kafka, name, 40, partitions=4)
    old = join(name, group)
    drive([old], lambda: len(old.records) == 40)
    new = join(name, group, group_protocol="consumer")
    drive([old, new], lambda: len(old.owned) == 2 and len(new.owned) == 2)
    for member in (old, new):
        member.source.commit([Position(place, 10) for place in member.owned])
    drive([old, new], lambda: old.outcomes and new.outcomes)
    assert (old.outcomes[0].failed, new.outcomes[0].failed) == ((), ())
    old.source.close()
    drive([new], lambda: len(new.owned) == 4)
    assert new.heard("lost") == []

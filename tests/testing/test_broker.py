"""The real broker under the tests: what start, kill, pause, restart and the death of its owner do to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from keepfast.core.errors import ConfigError, StartError
from keepfast.testing import ExistingBroker, KafkaBroker
from keepfast.testing.java import find_java
from tests.support.waiting import DEADLINE_S, wait_until


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


def produce(bootstrap: str, topic: str, *values: bytes, **config: str | int) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, **config})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    left = producer.flush(30)
    assert (left, failures) == (0, [])


def consume(bootstrap: str, topic: str, count: int) -> list[Message]:
    """From the beginning of partition 0."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0, "fetch.max.bytes": 2**26}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    got: list[Message] = []

    def read() -> None:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            got.append(message)

    wait_until(lambda: len(got) >= count, f"{count} records", between=read)
    consumer.close()
    return got


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def answers(bootstrap: str) -> bool:
    try:
        ExistingBroker(bootstrap).admin.list_topics(timeout=2)
    except KafkaException:
        return False
    return True


def alive(pid: int) -> bool:
    """Runs, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_was_produced_is_consumed(broker: KafkaBroker) -> None:
    broker.create_topic("first", partitions=3)
    produce(broker.bootstrap, "first", b"alone", partitioner="consistent")
    assert len(broker.admin.list_topics(timeout=DEADLINE_S).topics["first"].partitions) == 3
    broker.create_topic("second")
    produce(broker.bootstrap, "second", b"a", b"b")
    assert values(consume(broker.bootstrap, "second", 2)) == [b"a", b"b"]


def test_a_record_of_10_megabytes_goes_through(broker: KafkaBroker) -> None:
    broker.create_topic("large")
    produce(broker.bootstrap, "large", b"x" * 10_000_000, **{"message.max.bytes": 16_000_000})
    assert [len(message) for message in consume(broker.bootstrap, "large", 1)] == [10_000_000]


def test_topics_are_made_only_when_asked_for(broker: KafkaBroker) -> None:
    with pytest.raises(AssertionError):
        produce(broker.bootstrap, "nobody-made-me", b"lost", **{"message.timeout.ms": 2000})


def test_records_can_be_deleted_topics_grown_and_deleted(broker: KafkaBroker) -> None:
    broker.create_topic("short-lived")
    produce(broker.bootstrap, "short-lived", b"a", b"b", b"c")
    broker.delete_records("short-lived", partition=0, before=2)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "edges"})
    assert consumer.get_watermark_offsets(TopicPartition("short-lived", 0), timeout=DEADLINE_S) == (2, 3)
    consumer.close()
    broker.grow_topic("short-lived", partitions=2)
    broker.delete_topic("short-lived")
    assert "short-lived" not in broker.admin.list_topics(timeout=DEADLINE_S).topics


def test_making_a_topic_twice_says_that_it_exists(broker: KafkaBroker) -> None:
    broker.create_topic("twice")
    with pytest.raises(StartError, match="already exists"):
        broker.create_topic("twice")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_both_group_protocols_are_served(broker: KafkaBroker, protocol: str) -> None:
    topic = broker.create_topic(f"protocol-{protocol}", partitions=2)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": f"group-{protocol}", "group.protocol": protocol}
    if protocol == "classic":
        settings |= {"session.timeout.ms": "6000"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])

    def assigned() -> bool:
        consumer.poll(0.05)
        return len(consumer.assignment()) == 2

    wait_until(assigned)
    consumer.close()


def test_compaction_happens_while_one_watches(broker: KafkaBroker) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    topic = broker.create_topic("compacted", config=config)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})

    def compacted() -> bool:
        producer.produce(topic, b"v", key=b"k")
        producer.flush(5)
        first = consume(broker.bootstrap, topic, 1)
        return (first[0].offset() or 0) > 0

    wait_until(compacted)


def test_a_killed_broker_comes_back_with_its_data_at_its_address(broker: KafkaBroker) -> None:
    broker.create_topic("survivor")
    produce(broker.bootstrap, "survivor", b"kept")
    address, first = broker.bootstrap, broker.node(1).pid
    broker.kill()
    assert not broker.node(1).running
    assert not answers(address)
    broker.start()
    assert (broker.bootstrap, broker.node(1).pid != first) == (address, True)
    assert values(consume(address, "survivor", 1)) == [b"kept"]


def test_a_restarted_broker_keeps_data_and_address(broker: KafkaBroker) -> None:
    broker.create_topic("restarted")
    produce(broker.bootstrap, "restarted", b"kept")
    address = broker.bootstrap
    broker.restart()
    assert broker.bootstrap == address
    assert values(consume(address, "restarted", 1)) == [b"kept"]


def test_a_paused_broker_accepts_connections_and_answers_nothing(broker: KafkaBroker) -> None:
    assert answers(broker.bootstrap)
    broker.pause()
    assert broker.node(1).running
    assert broker.node(1).paused
    assert not answers(broker.bootstrap)
    broker.resume()
    broker.wait_ready()
    assert answers(broker.bootstrap)


def test_the_broker_and_its_folder_go_when_its_owner_is_killed() -> None:
    code = (
        "import sys; from keepfast.testing import KafkaBroker; b = KafkaBroker().start(); "
        "print(b.node(1).pid, b.folder, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        assert alive(int(pid))
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    wait_until(lambda: not alive(int(pid)))
    wait_until(lambda: not Path(folder).exists())


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    wrong = KafkaBroker(config={"num.io.threads": "many"}, data_dir=tmp_path)
    with pytest.raises(StartError, match=r"ended while starting[\s\S]*num\.io\.threads"):
        wrong.start()
    assert not (tmp_path / "node-1" / "pid").exists()


def test_a_port_in_use_is_reported_and_its_owner_is_not_touched(broker: KafkaBroker) -> None:
    port = int(broker.bootstrap.rpartition(":")[2])
    with pytest.raises(StartError, match=f"Port {port} on 127.0.0.1 is in use"):
        KafkaBroker(port=port).start()
    assert answers(broker.bootstrap)


def test_wrong_options_are_refused_all_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        KafkaBroker(nodes=2, port=0, heap_mb=1)
    assert len(caught.value.problems) == 3


def test_without_maven_and_cache_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "java").symlink_to(find_java().program)
    environment = {**os.environ, "PATH": str(tools), "KEEPFAST_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "keepfast.testing.broker", "--fetch"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "install Maven" in done.stderr
    assert "Traceback" not in done.stderr

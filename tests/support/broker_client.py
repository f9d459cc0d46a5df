"""What a test does on a broker beside the app: produce, read back, ask for commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import confluent_kafka
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer

from keepfast.core.commit_metadata import decode
from keepfast.core.records import Headers
from keepfast.testing.topics import TopicAdmin
from tests.support.waiting import DEADLINE_S, wait_until

QUIET = {"log_level": 0}
PASSING = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "_TIMED_OUT")


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None


@dataclass(slots=True)
class Client:
    """Produces, reads back and asks, beside the app."""

    broker: TopicAdmin
    _producer: Producer | None = field(default=None)
    _readers: dict[str, Consumer] = field(default_factory=dict)

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            large = {"message.max.bytes": 100_000_000, "queue.buffering.max.kbytes": 400_000}
            # Idempotent: a batch that is sent again does not land behind those that came after it.
            # One at a time: of a new partition, a broker that is not its leader yet may refuse the first batch and take
            # the second, after which the first is taken for a duplicate, and its records are nowhere.
            safe = {"enable.idempotence": True, "linger.ms": 1, "max.in.flight": 1}
            self._producer = Producer({"bootstrap.servers": self.broker.bootstrap, **safe, **large, **QUIET})
        return self._producer

    def produce(
        self, topic: str, records: Iterable[NewRecord | bytes], *, timeout_s: float = DEADLINE_S
    ) -> list[tuple[int, int]]:
        """Where each record went, (partition, offset), in the order of `records`; all acknowledged."""
        places: dict[int, tuple[int, int]] = {}
        failed: list[str] = []

        def reporter(index: int) -> Callable[[Any, Any], None]:
            def report(error: Any, message: Any) -> None:
                if error is not None:
                    failed.append(str(error))
                places[index] = (message.partition(), message.offset())

            return report

        count = 0
        for index, one in enumerate(records):
            record = one if isinstance(one, NewRecord) else NewRecord(one)
            while not self._offer(topic, record, reporter(index)):
                self.producer.poll(0.1)
            count += 1
        assert self.producer.flush(timeout_s) == 0
        assert not failed, failed[:3]
        return [places[index] for index in range(count)]

    def _offer(self, topic: str, record: NewRecord, report: Callable[[Any, Any], None]) -> bool:
        try:
            self.producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=cast("list[tuple[str, str | bytes | None]]", list(record.headers)),
                partition=-1 if record.partition is None else record.partition,
                on_delivery=report,
            )
        except BufferError:
            return False
        return True

    def committed(self, group: str, topic: str, partition: int = 0) -> tuple[int | None, str]:
        """The group's offset and metadata; (None, "") where there is none."""
        place = confluent_kafka.TopicPartition(topic, partition)
        reader = self._reader_of(group)
        (found,) = coordinated(lambda: reader.committed([place], timeout=DEADLINE_S))
        return (found.offset, found.metadata or "") if found.offset >= 0 else (None, "")

    def is_committed(self, group: str, topic: str, offset: int, partition: int = 0) -> bool:
        """Whether the group is at this very offset, with nothing finished above it."""
        return self.committed(group, topic, partition)[0] == offset and not self.finished_above(group, topic, partition)

    def _reader_of(self, group: str) -> Consumer:
        """A consumer that never joins. The admin client's own question for offsets crashes the process (a NULL in
        librdkafka) if the coordinator has not loaded the group yet.
        """
        if group not in self._readers:
            self._readers[group] = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": group, **QUIET})
        return self._readers[group]

    def finished_above(self, group: str, topic: str, partition: int = 0) -> set[int]:
        """What the completion map in the group's commit names."""
        offset, metadata = self.committed(group, topic, partition)
        found = decode(metadata, offset=offset or 0)
        return {one for one in range(found.base, found.base + 8 * len(found.bits)) if one in found}

    def leader_epoch(self, group: str, topic: str, partition: int = 0) -> int | None:
        """That of the group's commit."""
        reader, place = self._reader_of(group), confluent_kafka.TopicPartition(topic, partition)
        [found] = coordinated(lambda: reader.committed([place], DEADLINE_S))
        epoch: int | None = found.leader_epoch
        return epoch

    def commit(
        self, group: str, topic: str, offset: int, *, partition: int = 0, metadata: str = "", leader_epoch: int = -1
    ) -> None:
        """Set the offset of a group that has no members."""
        place = confluent_kafka.TopicPartition(topic, partition, offset, metadata, leader_epoch)
        asked = ConsumerGroupTopicPartitions(group, [place])

        def alter() -> Any:
            (answer,) = self.broker.admin.alter_consumer_group_offsets([asked]).values()
            return answer.result(DEADLINE_S).topic_partitions

        coordinated(alter)

    def read(self, topic: str, count: int, *, partitions: int = 1) -> list[Any]:
        """The first `count` records of a topic, as the client's messages, partition by partition."""
        reader = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "reader", **QUIET})
        try:
            reader.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
            found: list[Any] = []

            def read() -> None:
                message = reader.poll(0.1)
                if message is not None:
                    assert message.error() is None, message.error()
                    found.append(message)

            wait_until(lambda: len(found) >= count, f"{count} records in {topic}", between=read)
            return sorted(found, key=lambda message: (message.partition(), message.offset()))
        finally:
            reader.close()

    def edges(self, topic: str, partition: int = 0) -> tuple[int, int]:
        reader = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "reader", **QUIET})
        try:
            low, high = reader.get_watermark_offsets(
                confluent_kafka.TopicPartition(topic, partition), timeout=DEADLINE_S
            )
            return low, high
        finally:
            reader.close()


def coordinated(ask: Callable[[], list[confluent_kafka.TopicPartition]]) -> list[confluent_kafka.TopicPartition]:
    """The coordinator's answer. On a new broker it loads first, so ask until it has one."""
    answers: list[list[confluent_kafka.TopicPartition]] = []

    def answered() -> bool:
        try:
            found = ask()
            errors = [one.error for one in found if one.error is not None]
        except KafkaException as error:
            errors = [error.args[0]]
        assert not errors or errors[0].name() in PASSING, errors[0]
        answers.append(found if not errors else [])
        return not errors

    wait_until(answered, "the coordinator answers")
    return answers[-1]


def numbered(count: int, *, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def order_violations(seen: Sequence[tuple[bytes | None, int]]) -> list[tuple[bytes | None, int, int]]:
    """(key, offset before, offset after) wherever a key's offsets do not ascend in the order they were seen."""
    last: dict[bytes | None, int] = {}
    found = []
    for key, offset in seen:
        if key in last and offset <= last[key]:
            found.append((key, last[key], offset))
        last[key] = offset
    return found

"""Where an example runs: a real Kafka, a real PostgreSQL, and ways to look at both from outside of the service."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import confluent_kafka

from examples.stage.postgres import Postgres
from examples.stage.process import Process, run, until
from keepfast.core.records import Record
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.reading import read
from keepfast.kafka.browser import KafkaBrowser, browser_properties
from keepfast.kafka.config import Connection
from keepfast.testing import KafkaBroker
from keepfast.testing.topics import TopicAdmin

Place = tuple[str, int, int]
"""Topic, partition, offset."""

REPLY_TIMEOUT_S = 15.0
QUIET = {"log_level": 0}
PASSING = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")


class Stage:
    """One broker and one database server for all examples; each has topics and a database of its own."""

    def __init__(self, broker: TopicAdmin, postgres: Postgres, folder: Path) -> None:
        self.broker = broker
        self.postgres = postgres
        self.folder = folder
        self.made: list[str] = []
        """Topics."""
        self._readers: dict[str, confluent_kafka.Consumer] = {}
        self._processes: list[Process] = []

    # -- what is sent ------------------------------------------------------------------------------------------------

    def topics(self, *names: str, partitions: int = 4) -> None:
        for name in names:
            self.made.append(self.broker.create_topic(name, partitions=partitions))

    def send(self, topic: str, records: Iterable[tuple[str, bytes | None]]) -> list[Place]:
        """Key and value each. Returns where they stand, when every one is acknowledged."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 5, **QUIET})
        sent = list(records)
        places: dict[int, Place] = {}

        def delivered(number: int, error: object, message: confluent_kafka.Message[bytes, bytes]) -> None:
            if error is None:
                places[number] = (topic, message.partition() or 0, message.offset() or 0)

        for number, (key, value) in enumerate(sent):
            producer.produce(topic, value, key, on_delivery=partial(delivered, number))
        producer.flush(REPLY_TIMEOUT_S)
        return [places[number] for number in range(len(sent))]

    # -- what is looked at -------------------------------------------------------------------------------------------

    def records(self, topic: str) -> list[Record]:
        """All that a topic holds."""
        brokers = self.broker.bootstrap.split(",")
        browser = KafkaBrowser(browser_properties(Connection(brokers=brokers, properties=QUIET)))
        try:
            return [one for one in browser.read(topic, browser.spans(topic, REPLY_TIMEOUT_S)) if one is not None]
        finally:
            browser.close()

    def letters(self, topic: str) -> list[Letter]:
        return [read(record) for record in self.records(topic)]

    def lag(self, group: str, topic: str) -> int | None:
        """Records that the group has not committed; None while a broker that began a moment ago cannot tell. It is
        read by a client that never joins the group.
        """
        reader = self._readers.get(group)
        if reader is None:
            config = {"bootstrap.servers": self.broker.bootstrap, "group.id": group, **QUIET}
            reader = self._readers[group] = confluent_kafka.Consumer(config)
        known = reader.list_topics(topic, timeout=REPLY_TIMEOUT_S).topics[topic].partitions
        places = [confluent_kafka.TopicPartition(topic, number) for number in known]
        try:
            committed = reader.committed(places, timeout=REPLY_TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            if error.args[0].name() in PASSING:
                return None
            raise
        lag = 0
        for place in committed:
            low, high = reader.get_watermark_offsets(place, timeout=REPLY_TIMEOUT_S)
            lag += high - max(low, place.offset)
        return lag

    # -- the service -------------------------------------------------------------------------------------------------

    def app(self, target: str, **variables: str) -> Process:
        """A service as it is run in production, with variables of its own.

        It is a static member, as one pod of a StatefulSet is: after a kill it gets its partitions back at once.
        """
        name = target.split(".")[1]
        command = ["keepfast", "run", target, "--log-format", "json"]
        return self.process(command, name, KEEPFAST_CONSUMER_GROUP_INSTANCE_ID=f"{name}-0", **variables)

    def process(self, command: list[str], name: str, **variables: str) -> Process:
        log = self.folder / f"{name}.log"
        log.touch()
        own = {"KAFKA_BROKERS": self.broker.bootstrap, "HEALTH_CHECK_ENABLED": "false", **variables}
        process = Process(command, own, log)
        self._processes.append(process)
        return process

    def keepfast(self, *words: str) -> str:
        """A command as an operator types it; returns what it prints."""
        return run(["keepfast", *words, "--brokers", self.broker.bootstrap], {})

    def until_read(self, service: Process, *reading: tuple[str, str], timeout_s: float = 90.0) -> None:
        """Until these groups have committed all of these topics."""
        for group, topic in reading:
            until(
                lambda group=group, topic=topic: service.check() and self.lag(group, topic) == 0,  # type: ignore[misc]
                f"{group} has finished {topic}",
                timeout_s,
            )

    def clear(self) -> None:
        """After a story, however it ended: no process of it is left, and the database is there."""
        for process in self._processes:
            process.kill()
        self._processes.clear()
        self.postgres.start()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


@contextmanager
def opened(broker: TopicAdmin | None = None) -> Iterator[Stage]:
    """A stage until the block ends, on a broker that is there or on one of its own; nothing is left behind."""
    with ExitStack() as left:
        kafka = broker or left.enter_context(KafkaBroker())
        folder = Path(
            left.enter_context(tempfile.TemporaryDirectory(prefix="kf-examples-", ignore_cleanup_errors=True))
        )
        postgres = Postgres(folder)
        left.callback(postgres.stop)
        postgres.start()
        stage = Stage(kafka, postgres, folder)
        left.callback(stage.close)
        yield stage

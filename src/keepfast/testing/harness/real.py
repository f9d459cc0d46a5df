"""The app on a real broker: in a new group each time, reading new records only."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import confluent_kafka

from keepfast.core.errors import SinkError, StartError
from keepfast.core.records import Outgoing, Receipt, Record, TopicPartition
from keepfast.engine.lifecycle import LoopThread
from keepfast.engine.plan import Plan
from keepfast.engine.workers import HandlerLoop
from keepfast.kafka.browser import KafkaBrowser, browser_properties
from keepfast.kafka.config import sink_properties
from keepfast.kafka.sink import KafkaSink
from keepfast.settings import ConsumerSettings, Settings
from keepfast.testing.harness.event_recorder import EventRecorder
from keepfast.testing.harness.tested import Tested
from keepfast.testing.topics import ExistingBroker
from keepfast.wiring.clients import connection_of
from keepfast.wiring.topic_discovery import with_existing

PAUSE_S = 0.02
JOIN_S = 60.0
REPLY_TIMEOUT_S = 30.0
REFRESH_S = 1.0
"""How often topics of patterns are looked up."""
NOT_YET = (
    confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
    confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
)
"""Errors of a busy broker for a partition that was just created."""


class Real:
    """Implements `backend.Backend`. The app runs in threads of this process, as `app.run` would."""

    def __init__(
        self,
        tested: Tested,
        address: str,
        recorder: EventRecorder,
        *,
        events: HandlerLoop,
        topics: Sequence[str],
        partitions: int,
    ) -> None:
        self._recorder = recorder
        self._broker = ExistingBroker(address)
        self._settings = _of_its_own(tested.settings, address)
        self._partitions = partitions
        own = [spec.needs for spec in tested.specs]
        for topic in {*topics, *(topic for one in own for topic in one.topics)}:
            self._make(topic)
        self._needs = own
        own = self._matched()
        known = {*topics, *(topic for one in own for topic in one.topics)}
        self._reader = confluent_kafka.Consumer(
            {"bootstrap.servers": address, "group.id": "keepfast-harness", "log_level": 0}
        )
        self._browser = KafkaBrowser(browser_properties(connection_of(self._settings.kafka)))
        self._begun: dict[TopicPartition, int] = {}
        for topic in {*known, *(topic for one in own for topic in one.dead_letter_topics.values())}:
            self._mark(topic)
        self._refuse_used_topics(own)
        self._sink = KafkaSink(sink_properties(connection_of(self._settings.kafka)))
        self._assembled = tested.assembled(self._settings, (recorder,), events)
        self.sink = self._assembled.sink
        self._code: int | None = None
        self._thread = threading.Thread(target=self._run, name="keepfast-harness", daemon=True)
        self._thread.start()
        self._join()

    async def consumers(self) -> list[ConsumerSettings]:
        return await asyncio.to_thread(self._matched)

    def _matched(self) -> list[ConsumerSettings]:
        if all(own.pattern is None for own in self._needs):
            return self._needs
        existing = set(self._broker.admin.list_topics(timeout=REPLY_TIMEOUT_S).topics)
        return [with_existing(own, self._needs, self._settings.app, existing) for own in self._needs]

    def _run(self) -> None:
        self._code = self._assembled.run()

    def _make(self, topic: str) -> None:
        if topic not in self._broker.admin.list_topics(timeout=REPLY_TIMEOUT_S).topics:
            self._broker.create_topic(topic, partitions=self._partitions)

    def _join(self) -> None:
        """Wait until every partition is assigned: records sent before would be missed."""
        deadline = time.monotonic() + JOIN_S
        while not all(self._is_member(one.loop.plan) for one in self._running()):
            if time.monotonic() > deadline:
                raise StartError(f"The app did not get its partitions within {JOIN_S:g} s.")
            time.sleep(PAUSE_S)

    def _running(self) -> Sequence[LoopThread]:
        if not self._thread.is_alive():
            raise StartError(f"The app has ended with code {self._code}; its log says why.")
        return self._assembled.threads

    def _is_member(self, plan: Plan) -> bool:
        """Whether it has all partitions, and has committed where it starts in those that are read from their end."""
        recorder, group = self._recorder, plan.group
        if plan.lock_s is not None:  # it starts at the beginning, so nothing is missed
            return True
        own = [place for topic in plan.topics for place in self._places(topic)]
        every = [place for topic in plan.subscription for place in self._places(topic)]
        return recorder.owned.get(group, frozenset()).issuperset(every) and all(
            (group, place) in recorder.committed for place in own
        )

    def _places(self, topic: str) -> list[TopicPartition]:
        found = self._broker.admin.list_topics(topic, timeout=REPLY_TIMEOUT_S).topics[topic]
        return [TopicPartition(topic, number) for number in sorted(found.partitions)]

    def _mark(self, topic: str) -> None:
        """Existing records are not part of this test."""
        if topic in self._broker.admin.list_topics(timeout=REPLY_TIMEOUT_S).topics:
            for place in self._places(topic):
                self._begun[place] = self._end(place)

    def _refuse_used_topics(self, consumers: Sequence[ConsumerSettings]) -> None:
        queues = {topic for own in consumers if own.order == "queue" for topic in own.topics}
        used = sorted({place.topic for place, end in self._begun.items() if end and place.topic in queues})
        if used:
            raise StartError(
                f"The topic {used[0]} has records already, and a queue starts at its beginning: test it with a topic of"
                " its own."
            )

    def _end(self, place: TopicPartition) -> int:
        asked = confluent_kafka.TopicPartition(*place)
        deadline = time.monotonic() + REPLY_TIMEOUT_S
        while True:
            try:
                _, high = self._reader.get_watermark_offsets(asked, timeout=REPLY_TIMEOUT_S)
                return int(high)
            except confluent_kafka.KafkaException as error:
                if error.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_S)

    async def produce(self, outgoing: Outgoing) -> Receipt:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Receipt | SinkError] = loop.create_future()

        def delivered(outcome: Receipt | SinkError) -> None:
            loop.call_soon_threadsafe(answer.set_result, outcome)

        self._sink.send(outgoing, delivered)
        outcome = await answer
        if isinstance(outcome, SinkError):
            raise outcome
        return outcome

    async def records(self, topic: str) -> list[Record]:
        return await asyncio.to_thread(self._read, topic)

    def _read(self, topic: str) -> list[Record]:
        if topic not in self._broker.admin.list_topics(timeout=REPLY_TIMEOUT_S).topics:
            return []
        spans = {place.partition: (self._begun.get(place, 0), self._end(place)) for place in self._places(topic)}
        found = [record for record in self._browser.read(topic, spans) if record is not None]
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def topic_id(self, topic: str) -> str:
        return self._assembled.clients.cluster.topic_ids.get(topic, "")

    def unfinished(self) -> dict[TopicPartition, int]:
        self._running()
        left: dict[TopicPartition, int] = {}
        for group, owned in list(self._recorder.owned.items()):
            for place in owned:
                committed = self._recorder.committed.get((group, place), self._begun.get(place, 0))
                count = self._end(place) - committed
                if count > 0:
                    left[place] = left.get(place, 0) + count
        for topic in {topic for own in self._needs if own.order == "queue" for topic in own.topics}:
            left |= self._left_in_queue(topic)
        everything = {place for places in self._recorder.owned.values() for place in places}
        for topic in {topic for own in self._matched() if own.pattern is not None for topic in own.topics}:
            for place in self._places(topic):
                if place not in everything and (count := self._end(place) - self._begun.get(place, 0)) > 0:
                    left[place] = count
        return left

    def _left_in_queue(self, topic: str) -> dict[TopicPartition, int]:
        """It has no position: what is not known to have ended is left."""
        ended = Counter(TopicPartition(one.topic, one.partition) for one in self._recorder.ended())
        left = {place: self._end(place) - ended[place] for place in self._places(topic)}
        return {place: count for place, count in left.items() if count > 0}

    async def run_briefly(self) -> float:
        begun = time.monotonic()
        await asyncio.sleep(PAUSE_S)
        self._running()
        return time.monotonic() - begun

    async def settle_hooks(self) -> None:
        hooks = self._assembled.hooks
        while hooks is not None and not hooks.idle:
            await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        self._assembled.stop()
        await asyncio.to_thread(self._thread.join, JOIN_S)
        self._sink.close(1.0)
        self._reader.close()
        self._browser.close()


def _of_its_own(settings: Settings, address: str) -> Settings:
    tag = uuid.uuid4().hex[:8]
    consumers = {
        name: replace(
            own,
            group=f"{own.group}.{tag}",
            auto_offset_reset="latest" if own.order != "queue" else "earliest",
            configure_group=own.order == "queue",
            topics_refresh_s=min(REFRESH_S, own.topics_refresh_s),
        )
        for name, own in settings.consumers.items()
    }
    return replace(settings, kafka=replace(settings.kafka, brokers=(address,)), consumers=consumers)

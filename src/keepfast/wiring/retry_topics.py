"""Retry topics before a consumer starts: made where they are missing, looked at where they are not, and found where an
earlier configuration has left them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from keepfast.core.errors import SourceError, StartError
from keepfast.core.retry_topics import KEPT_S, Tier, Tiers, delay_text, left_over
from keepfast.kafka import KafkaAdmin, TopicFacts
from keepfast.settings import ConsumerSettings
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.start")

ASK_TIMEOUT_S = 15.0
LARGEST = "max.message.bytes"
ROOM_BYTES = 20_000
"""For the headers that a moved record has beside its own."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A retry topic that a consumer has, or should have."""

    topic: str
    source: str
    delay_s: int
    own: ConsumerSettings

    @property
    def retention_ms(self) -> int:
        return (self.delay_s + KEPT_S) * 1000


class RetryTopicsGround:
    """Lays the retry topics of an app's consumers. Raises StartError, saying everything that is wrong at once."""

    def __init__(self, admin: KafkaAdmin, sources: Mapping[str, TopicFacts | None]) -> None:
        self._admin = admin
        self._sources = sources
        self._problems: list[str] = []
        self.topic_ids: dict[str, str] = {}

    def lay(self, consumers: Sequence[ConsumerSettings]) -> dict[str, Tiers]:
        """The retry topics of each consumer that has some, by its name."""
        existing = self._admin.names(ASK_TIMEOUT_S)
        found = {own.name: self._wanted(own, existing) for own in consumers}
        names = sorted({one.topic for wanted in found.values() for one in wanted if one.topic in existing})
        facts = self._admin.topics(names, ASK_TIMEOUT_S) if names else {}
        laid = {own.name: [self._tier(one, facts.get(one.topic)) for one in found[own.name]] for own in consumers}
        if self._problems:
            raise StartError("\n".join(self._problems))
        return {
            own.name: Tiers(
                group=own.group,
                delays_s=own.retry_topics.delays_s,
                topics={tier.topic: tier for tier in laid[own.name]},
            )
            for own in consumers
            if laid[own.name]
        }

    def _wanted(self, own: ConsumerSettings, existing: set[str]) -> list[_Wanted]:
        wanted: list[_Wanted] = []
        for source in own.topics:
            configured = own.retry_topics.topics(source, own.group)
            wanted += [_Wanted(topic, source, delay_s, own) for topic, delay_s in configured.items()]
            for topic, delay_s in left_over(existing, source, own.group, {*configured, *own.topics}).items():
                log.warning(
                    "retry_topic_left_over",
                    consumer=own.name,
                    topic=topic,
                    consequence="its delay is not configured; it is still read, so that no record is stranded in it",
                    advice="delete the topic once the group has no lag on it",
                )
                wanted.append(_Wanted(topic, source, delay_s, own))
        return wanted

    def _tier(self, wanted: _Wanted, found: TopicFacts | None) -> Tier:
        if found is None:
            found = self._make(wanted)
        else:
            self._look_at(wanted, found)
        if found.topic_id:
            self.topic_ids[found.name] = found.topic_id
        return Tier(wanted.topic, wanted.source, wanted.delay_s, found.partitions)

    def _make(self, wanted: _Wanted) -> TopicFacts:
        topic, partitions = wanted.topic, self._partitions(wanted.source)
        config = {"cleanup.policy": "delete", "retention.ms": str(wanted.retention_ms), **self._room(wanted.source)}
        settings = "".join(f" --config {name}={value}" for name, value in config.items())
        by_hand = (
            f" Create it: kafka-topics.sh --create --topic {topic} --partitions {partitions}{settings}"
            " --bootstrap-server …"
        )
        if not wanted.own.retry_topics.create_topics:
            self._problems.append(
                f"The retry topic {topic} does not exist and retry_topics.create_topics is off.{by_hand}"
            )
            return TopicFacts(topic, partitions, None)
        try:
            self._admin.create_topic(topic, partitions=partitions, timeout_s=ASK_TIMEOUT_S, config=config)
        except SourceError as error:
            self._problems.append(f"The retry topic {topic} does not exist and could not be made ({error}).{by_hand}")
            return TopicFacts(topic, partitions, None)
        log.info("retry_topic_made", topic=topic, partitions=partitions, retention_ms=wanted.retention_ms)
        return self._admin.topics([topic], ASK_TIMEOUT_S)[topic] or TopicFacts(topic, partitions, None)

    def _room(self, source: str) -> dict[str, str]:
        """A topic for large records needs a retry topic for slightly larger ones."""
        largest = self._admin.topic_config(source, ASK_TIMEOUT_S).get(LARGEST, "")
        return {LARGEST: str(int(largest) + ROOM_BYTES)} if largest.isdigit() else {}

    def _look_at(self, wanted: _Wanted, found: TopicFacts) -> None:
        """A topic that would lose what it is given is refused; one that is only odd is told."""
        config = self._admin.topic_config(wanted.topic, ASK_TIMEOUT_S)
        alter = f"kafka-configs.sh --alter --entity-type topics --entity-name {wanted.topic} --add-config"
        if "compact" in config.get("cleanup.policy", "delete"):
            self._problems.append(
                f"The retry topic {wanted.topic} is compacted, so that records with the same key would be lost there."
                f" Change it: {alter} cleanup.policy=delete --bootstrap-server …"
            )
        retention_ms = config.get("retention.ms", "-1")
        if 0 <= int(retention_ms) <= wanted.delay_s * 1000:
            self._problems.append(
                f"The retry topic {wanted.topic} deletes records after {retention_ms} ms, before they are due"
                f" ({delay_text(wanted.delay_s)}). Change it: {alter} retention.ms={wanted.retention_ms}"
                " --bootstrap-server …"
            )
        partitions = self._partitions(wanted.source)
        if found.partitions != partitions:
            log.warning(
                "retry_topic_has_other_partitions",
                topic=wanted.topic,
                partitions=found.partitions,
                of_source=partitions,
                consequence="records of partitions that it does not have are spread over its own by their key",
            )

    def _partitions(self, source: str) -> int:
        facts = self._sources[source]
        return facts.partitions if facts is not None else 1

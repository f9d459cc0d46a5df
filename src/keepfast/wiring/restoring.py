"""Dead-letter topics that vanish under a running app are made again, as they were made at its start."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence

from keepfast.core.errors import SourceError
from keepfast.kafka import KafkaAdmin
from keepfast.settings import ConsumerSettings
from keepfast.telemetry.logs import get_logger
from keepfast.wiring.preflight import ASK_TIMEOUT_S, letter_topic_config, sources_of

log = get_logger("keepfast.start")

AGAIN_S = 10.0
"""A topic is not asked for more often."""


class LetterTopics:
    """`missing` may be called by any thread, and never blocks: the work is done by a thread that ends with it."""

    def __init__(
        self, admin: KafkaAdmin, partitions: Mapping[str, int], sources: Mapping[str, Collection[str]]
    ) -> None:
        self._admin = admin
        self._partitions = partitions
        self._sources = sources  # of those that may be made
        self._lock = threading.Lock()
        self._asked_at: dict[str, float] = {}

    def missing(self, topic: str) -> None:
        """Somebody found that there is no such topic. Nothing happens if it may not be made."""
        now = time.monotonic()
        with self._lock:
            if topic not in self._sources or now - self._asked_at.get(topic, float("-inf")) < AGAIN_S:
                return
            self._asked_at[topic] = now
        threading.Thread(target=self._make, args=(topic,), name="keepfast-topic", daemon=True).start()

    def _make(self, topic: str) -> None:
        partitions = self._partitions[topic]
        try:
            config = letter_topic_config(self._admin, self._sources[topic])
            made = self._admin.create_topic(topic, partitions=partitions, timeout_s=ASK_TIMEOUT_S, config=config)
        except SourceError as error:
            log.error("dead_letter_topic_not_made", topic=topic, error=str(error))  # noqa: TRY400 - no trace is needed
            return
        if made:
            log.warning("dead_letter_topic_made_again", topic=topic, partitions=partitions)


def letter_topics(
    admin: KafkaAdmin, partitions: Mapping[str, int], consumers: Sequence[ConsumerSettings]
) -> LetterTopics:
    """Those of these consumers; what one of them may not make is not made."""
    used = {topic for own in consumers for topic in own.dead_letter_topics.values()}
    forbidden = {
        topic for own in consumers if not own.dead_letter.create_topic for topic in own.dead_letter_topics.values()
    }
    return LetterTopics(admin, partitions, {topic: sources_of(topic, consumers) for topic in used - forbidden})

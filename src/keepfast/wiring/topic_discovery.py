"""Which topics the patterns of an app's consumers stand for; and what must be there before one of them is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from keepfast.core.errors import SourceError, StartError
from keepfast.core.records import TopicPartition
from keepfast.core.retry_topics import Tiers
from keepfast.core.topic_patterns import letter_pattern, matching
from keepfast.engine.subscription import Discover, TopicsFound
from keepfast.kafka import KafkaAdmin
from keepfast.kafka.groups import KafkaGroups
from keepfast.settings import AppSettings, ConsumerSettings, Settings
from keepfast.settings.consumers import topic_refused, with_topics
from keepfast.telemetry.logs import get_logger
from keepfast.wiring.cluster import ASK_TIMEOUT_S, ClusterFacts, LetterTopics, check_topics, replay_tiers
from keepfast.wiring.consumers import ConsumerSpec, plan_of

log = get_logger("keepfast.topics")


def matched_topics(
    own: ConsumerSettings, consumers: Iterable[ConsumerSettings], env: str, existing: set[str]
) -> list[str]:
    """The topics that the pattern of a consumer stands for. Never those that it or another consumer of the app writes:
    by their names, and by the templates of dead-letter topics, so that those of topics that are gone are known, too.
    """
    if own.pattern is None:
        return []
    written, named = [], set(own.topics)
    for one in consumers:
        written.append(letter_pattern(one.dead_letter.topic, env=env, group=one.group))
        named.update(one.dead_letter_topics.values())
    return matching(own.pattern, existing, written, named)


def with_matched_topics(settings: Settings, existing: Callable[[], set[str]]) -> Settings:
    """The settings with what the patterns stand for now, for commands that look at the topics of an app. `existing` is
    called if there is a pattern.
    """
    every = settings.consumers
    if all(own.pattern is None for own in every.values()):
        return settings
    there = existing()
    found = {name: with_existing(own, every.values(), settings.app, there) for name, own in every.items()}
    return replace(settings, consumers=MappingProxyType(found))


def with_existing(
    own: ConsumerSettings, consumers: Iterable[ConsumerSettings], app: AppSettings, existing: set[str]
) -> ConsumerSettings:
    """The consumer with those of these topics that its pattern stands for. Names that Kafka would refuse are left
    out.
    """
    topics = matched_topics(own, consumers, app.env, existing)
    return with_topics(own, [topic for topic in topics if topic_refused(own, topic, app) is None], app)


@dataclass(slots=True)
class Prepared:
    """Topics that may be read, with what the cluster answered about them; and those that may not."""

    own: ConsumerSettings
    facts: ClusterFacts
    refused: dict[str, str] = field(default_factory=dict)


def prepare(admin: KafkaAdmin, own: ConsumerSettings, topics: Iterable[str], app: AppSettings) -> Prepared:
    """Create and check what these topics need to be read, as at a start. Blocks; raises SourceError."""
    only = replace(own, topics=(), names=MappingProxyType({}))
    refused = {topic: why for topic in topics if (why := topic_refused(own, topic, app)) is not None}
    left = [topic for topic in topics if topic not in refused]
    if not left:
        return Prepared(only, ClusterFacts({}, {}, {}, {}), refused)
    together = with_topics(only, left, app)
    try:
        return Prepared(together, check_topics(admin, [together]), refused)
    except StartError as error:
        if len(left) == 1:
            return Prepared(only, ClusterFacts({}, {}, {}, {}), refused | {left[0]: str(error)})
    parts = [prepare(admin, own, [topic], app) for topic in left]
    good = [topic for part in parts for topic in part.own.topics]
    refused |= {topic: why for part in parts for topic, why in part.refused.items()}
    return Prepared(with_topics(only, good, app), joined([part.facts for part in parts]), refused)


def joined(several: Sequence[ClusterFacts]) -> ClusterFacts:
    """All of them together; what is known of the cluster itself is that of the first."""

    def every(name: str) -> dict[str, Any]:
        return {key: value for one in several for key, value in getattr(one, name).items()}

    tiers: dict[str, Tiers] = {}
    for one in several:
        for consumer, own in one.tiers.items():
            known = tiers.get(consumer)
            tiers[consumer] = replace(own, topics={**known.topics, **own.topics}) if known else own
    return replace(
        several[0],
        topic_ids=every("topic_ids"),
        partition_counts=every("partition_counts"),
        letter_partitions=every("letter_partitions"),
        tiers=tiers,
    )


def discovered(
    admin: KafkaAdmin,
    cluster: ClusterFacts,
    consumers: Sequence[ConsumerSettings],
    app: AppSettings,
    groups: KafkaGroups | None,
) -> ClusterFacts:
    """What the cluster answered, with the topics of patterns that are there at the start. Without `groups`, each group
    starts for the first time. Raises StartError if no topic of a pattern may be read although some match.
    """
    patterns = [own for own in consumers if own.pattern is not None]
    if not patterns:
        return cluster
    try:
        existing = admin.names(ASK_TIMEOUT_S)
        found = {
            own.name: prepare(admin, own, matched_topics(own, consumers, app.env, existing), app) for own in patterns
        }
        appeared = {own.name: _appeared(own, found[own.name], groups) for own in patterns}
    except SourceError as error:
        raise StartError(str(error)) from error
    for own in patterns:
        part = found[own.name]
        if part.refused and not (part.own.topics or own.topics):
            raise StartError("\n".join(part.refused.values()))
        log.info("topics_matched", consumer=own.name, pattern=own.pattern, topics=list(part.own.topics))
        for topic, why in part.refused.items():
            log.error("topic_not_read", consumer=own.name, topic=topic, error=why)
    return replace(
        joined([cluster, *(part.facts for part in found.values())]),
        consumers={own.name: with_topics(own, found[own.name].own.topics, app) for own in patterns},
        appeared=appeared,
        refused={own.name: found[own.name].refused for own in patterns},
    )


def _appeared(own: ConsumerSettings, found: Prepared, groups: KafkaGroups | None) -> frozenset[str]:
    """The topics that were not there when the group started first: those without any committed offset, if the pattern
    has others that have one. With `earliest` it makes no difference. Raises SourceError.
    """
    if groups is None or own.auto_offset_reset == "earliest" or len(found.own.topics) < 2:
        return frozenset()
    counts = found.facts.partition_counts
    places = [TopicPartition(topic, number) for topic in found.own.topics for number in range(counts[topic])]
    stored = groups.stored(own.group, places, ASK_TIMEOUT_S)
    read = {one.place.topic for one in stored if one.offset is not None}
    return frozenset(found.own.topics) - read if read else frozenset()


class TopicDiscovery:
    """Looks for topics of patterns and for topics of replays while consumers run. Any thread may ask; each question has
    a thread that ends with it, and one of them is answered at a time.
    """

    def __init__(self, admin: KafkaAdmin, settings: Settings, letter_topics: LetterTopics) -> None:
        self._admin = admin
        self._settings = settings
        self._letter_topics = letter_topics
        self._lock = threading.Lock()

    def of(self, spec: ConsumerSpec) -> Discover:
        """The question of one consumer."""
        return partial(self._ask, spec)

    def _ask(self, spec: ConsumerSpec, known: Collection[str], answer: Callable[[TopicsFound], None]) -> None:
        target = partial(self._look, spec, frozenset(known), answer)
        threading.Thread(target=target, name="keepfast-topics", daemon=True).start()

    def _look(self, spec: ConsumerSpec, known: Collection[str], answer: Callable[[TopicsFound], None]) -> None:
        try:
            with self._lock:
                found = self.found(spec, known)
        except Exception as error:  # noqa: BLE001 - the thread's edge: it is asked again
            log.warning("topics_not_looked_up", consumer=spec.name, error=f"{type(error).__name__}: {error}")
            found = TopicsFound()
        answer(found)

    def found(self, spec: ConsumerSpec, known: Collection[str]) -> TopicsFound:
        """The answer. Blocks; raises SourceError."""
        own, app = spec.settings, self._settings.app
        existing = self._admin.names(ASK_TIMEOUT_S)
        matched = matched_topics(own, self._settings.consumers.values(), app.env, existing)
        new = [topic for topic in matched if topic not in known]
        replays, ids = replay_tiers(self._admin, own.group, known, existing)
        if not new:
            return TopicsFound(matched=frozenset(matched), replays=replays, replay_ids=ids)
        part = prepare(self._admin, own, new, app)
        if part.own.topics:
            self._letter_topics.add(part.facts.letter_partitions, [part.own])
        facts = replace(part.facts, consumers={own.name: part.own})
        plan = plan_of(spec, self._settings, facts) if part.own.topics else None
        return TopicsFound(
            matched=frozenset(matched), ready=plan, refused=part.refused, replays=replays, replay_ids=ids
        )

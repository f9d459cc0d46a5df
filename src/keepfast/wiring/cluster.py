"""What must be there before a consumer starts: the broker, its topics, dead-letter topics, retry topics.

What is missing and may be created is created; everything else that is wrong is reported at once. A dead-letter topic
that is deleted under a running app is created again, as at the start.
"""

from __future__ import annotations

import difflib
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from keepfast.core.errors import Fault, SourceError, StartError
from keepfast.core.replays import replay_topic
from keepfast.core.retry_topics import KEPT_S, Tier, Tiers, delay_text, left_over
from keepfast.kafka import KafkaAdmin, TopicFacts
from keepfast.kafka.config import MAX_RECORD_BYTES
from keepfast.settings import ConsumerSettings, Settings
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.start")

ASK_TIMEOUT_S = 15.0
PROTOCOL_TIMEOUT_S = 3.0
"""For the versions that the brokers support. Without an answer the first attempt to join tells."""
MAX_BYTES = "max.message.bytes"
CONNECT_TIMEOUT_S = 30.0
"""How long a broker that is down is waited for, unless it is to be waited for without end."""

WAIT_HINT = "`keepfast run --wait` waits for as long as it takes"
LOG_INTERVAL_S = 5.0

LETTER_TOPIC_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1"}
LETTER_ROOM, LETTER_ROOM_BYTES = 2.5, 64 * 1024
"""How much larger than its record a letter may be: the value as JSON or base64, headers, and the error's text."""
MIN_ROOM_BYTES = 4 * 1024
"""For the smallest letter of a record: the original bytes and an id."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the cluster answered before the start: each topic's id where it is known, how many partitions each topic and
    each dead-letter topic has, the retry topics of each consumer that has some, and whether it is the embedded broker.
    `has_topic_ids`: ids that are missing can still be asked for. `new_protocol`: whether it supports the group protocol
    of KIP-848, None if that is unknown or was not asked. `offsets_retention_s`: how long it keeps a committed offset,
    if it says.

    Of consumers with a pattern: the settings with the topics that it stands for, those among them that were not there
    when the group started first, and those that may not be read, with the reason.
    """

    topic_ids: Mapping[str, str]
    partition_counts: Mapping[str, int]
    letter_partitions: Mapping[str, int]
    tiers: Mapping[str, Tiers]
    embedded: bool = False
    has_topic_ids: bool = True
    new_protocol: bool | None = None
    offsets_retention_s: float | None = None
    consumers: Mapping[str, ConsumerSettings] = field(default_factory=dict)
    appeared: Mapping[str, frozenset[str]] = field(default_factory=dict)
    refused: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def letters_of(self, dead_letter_topics: Mapping[str, str]) -> dict[str, int]:
        """Where a consumer's letters go, with the number of partitions; nothing for letters that go elsewhere."""
        wanted = set(dead_letter_topics.values())
        return {topic: count for topic, count in self.letter_partitions.items() if topic in wanted}


def preflight(
    admin: KafkaAdmin,
    consumers: Sequence[ConsumerSettings],
    *,
    wait: bool,
    abandoned: Callable[[], bool] = lambda: False,
) -> ClusterFacts:
    """Check the cluster, and create what is missing and may be created. Raises StartError with everything that is
    missing and what to do.
    """
    _reach(admin, wait=wait, abandoned=abandoned)
    try:
        cluster = check_topics(admin, consumers)
        retention_s = admin.offsets_retention_s(ASK_TIMEOUT_S)
    except SourceError as error:
        raise StartError(str(error)) from error
    return replace(cluster, new_protocol=_new_protocol(admin, consumers), offsets_retention_s=retention_s)


def _new_protocol(admin: KafkaAdmin, consumers: Sequence[ConsumerSettings]) -> bool | None:
    """Ask the brokers if a consumer depends on the answer. Raises StartError if one cannot do without the protocol."""
    asking = [own for own in consumers if own.order != "queue" and own.group_protocol != "classic"]
    if not asking or admin.embedded:
        return None
    supported = admin.has_new_protocol(PROTOCOL_TIMEOUT_S)
    if supported is False and (fixed := [own.name for own in asking if own.group_protocol == "consumer"]):
        raise StartError(
            f"group_protocol=consumer (of {', '.join(fixed)}) is KIP-848, which these brokers do not support: Kafka 4.0"
            " or newer does. Set auto, which takes the classic protocol there."
        )
    return supported


def topics_of(settings: Settings) -> set[str]:
    """Every topic that the app's consumers read or dead-letter to, retry topics too."""
    found: set[str] = set()
    for own in settings.consumers.values():
        found.update(own.topics, own.dead_letter_topics.values())
        for topic in own.topics:
            found.update(own.retry_topics.topics(topic, own.group))
    return found


def _reach(admin: KafkaAdmin, *, wait: bool, abandoned: Callable[[], bool]) -> None:
    begun = time.monotonic()
    hint = {} if wait else {"gives_up_after_s": round(CONNECT_TIMEOUT_S), "hint": WAIT_HINT}
    while True:
        try:
            admin.check(LOG_INTERVAL_S, abandoned)
            return
        except SourceError as error:
            waited_s = time.monotonic() - begun
            if abandoned() or error.fault is not Fault.RETRY or (waited_s >= CONNECT_TIMEOUT_S and not wait):
                raise StartError(str(error)) from error
            log.warning("waiting_for_broker", waited_s=round(waited_s), error=str(error), **hint)
            hint = {}  # only once


def check_topics(admin: KafkaAdmin, consumers: Sequence[ConsumerSettings]) -> ClusterFacts:
    """Check the topics of these consumers, and create what is missing and may be created. Raises StartError, and
    SourceError if the cluster does not answer.
    """
    sources = sorted({topic for own in consumers for topic in own.topics})
    letters = sorted({letter for own in consumers for letter in own.dead_letter_topics.values()})
    facts = admin.topics(sources + letters, ASK_TIMEOUT_S)
    missing = [topic for topic in sources if facts[topic] is None]
    if missing:
        there = admin.names(ASK_TIMEOUT_S)
        raise StartError("\n".join(_missing(admin, topic, there) for topic in missing))
    for own in consumers:
        _compare_inbox(admin, own)
    letter_partitions = {letter: _letter_topic(admin, letter, consumers, facts) for letter in letters}
    retries = RetryTopicsCheck(admin, facts)
    tiers = retries.run(consumers)
    ids = {fact.name: fact.topic_id for fact in facts.values() if fact is not None and fact.topic_id}
    known = {topic: ids[topic] for topic in sources if topic in ids}
    counts = {topic: fact.partitions for topic in sources if (fact := facts[topic]) is not None}
    return ClusterFacts(
        known | retries.topic_ids,
        counts,
        letter_partitions,
        tiers,
        embedded=admin.embedded,
        has_topic_ids=admin.has_topic_ids,
    )


def letter_topic_config(admin: KafkaAdmin, sources: Iterable[str]) -> dict[str, str]:
    """The settings of a dead-letter topic for records of these topics. Raises SourceError."""
    largest = _largest(admin, sources)
    return LETTER_TOPIC_CONFIG | ({} if largest is None else {MAX_BYTES: str(_room_for(largest))})


def sources_of(letter: str, consumers: Iterable[ConsumerSettings]) -> set[str]:
    """The topics whose letters go to this one."""
    return {topic for own in consumers for topic, target in own.dead_letter_topics.items() if target == letter}


def _largest(admin: KafkaAdmin, sources: Iterable[str]) -> int | None:
    """The largest batch that one of these topics takes; None where that is not known."""
    sizes = [admin.topic_config(topic, ASK_TIMEOUT_S).get(MAX_BYTES, "") for topic in sorted(sources)]
    return max((int(size) for size in sizes if size.isdigit()), default=None)


def _room_for(largest: int) -> int:
    return min(MAX_RECORD_BYTES, math.ceil(LETTER_ROOM * largest) + LETTER_ROOM_BYTES)


def _compare(admin: KafkaAdmin, letter: str, sources: Iterable[str]) -> None:
    """Warn about a dead-letter topic that exists and takes less than its letters may need."""
    limit, largest = admin.topic_config(letter, ASK_TIMEOUT_S).get(MAX_BYTES, ""), _largest(admin, sources)
    if largest is None or not limit.isdigit() or int(limit) >= _room_for(largest):
        return
    if int(limit) < largest + MIN_ROOM_BYTES:
        consequence = "a record near the limit of its topic cannot be dead-lettered, and blocks its partition"
    else:
        consequence = "letters of large records are cut: stack trace and messages go first"
    log.warning(
        "dead_letter_topic_too_small",
        topic=letter,
        max_message_bytes=int(limit),
        of_source=largest,
        consequence=consequence,
        advice=f"kafka-configs.sh --alter --entity-type topics --entity-name {letter}"
        f" --add-config {MAX_BYTES}={_room_for(largest)} --bootstrap-server {admin.bootstrap}",
    )


def kept_days(config: Mapping[str, str]) -> float | None:
    """How long a topic keeps its records, by its configuration: `inf` for always; None where it is not known."""
    retention_ms = config.get("retention.ms", "")
    if "compact" in config.get("cleanup.policy", "") or retention_ms == "-1":
        return math.inf
    return int(retention_ms) / 86_400_000 if retention_ms.isdigit() else None


def _compare_inbox(admin: KafkaAdmin, own: ConsumerSettings) -> None:
    """Warn about topics that keep records longer than the inbox of their consumer knows them."""
    for topic in own.topics if own.inbox_days is not None else ():
        kept = kept_days(admin.topic_config(topic, ASK_TIMEOUT_S))
        if kept is not None and own.inbox_days is not None and kept > own.inbox_days:
            log.warning(
                "inbox_forgets_too_early",
                consumer=own.name,
                topic=topic,
                topic_keeps_days="forever" if kept == math.inf else round(kept, 1),
                inbox_keeps_days=own.inbox_days,
                consequence="a record that is replayed from its topic later than that is processed again",
                advice="increase retention_days of the inbox, or use upserts that bear a repetition",
            )


def _missing(admin: KafkaAdmin, topic: str, there: Iterable[str]) -> str:
    near = difflib.get_close_matches(topic, list(there), n=1, cutoff=0.8)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"Topic {topic} does not exist, or this user may not describe it.{hint} {create_hint(admin, topic)}"


def create_hint(admin: KafkaAdmin, topic: str) -> str:
    """How to create a topic of the user's on the broker that the admin client has asked."""
    if admin.embedded:
        return (
            f"The embedded broker creates it when it starts: `keepfast broker --embedded --topic {topic}`;"
            " `keepfast dev` creates the topics of an app."
        )
    return (
        f"Create it: {create_command(topic, bootstrap=admin.bootstrap)}; `keepfast dev` creates the topics of an app,"
        " on a broker of its own."
    )


def _by_hand(admin: KafkaAdmin, topic: str, command: str) -> str:
    """How to create a topic that could not be created: no admin client can do it on the embedded broker."""
    return f" Create it: {f'keepfast broker --embedded --topic {topic}' if admin.embedded else command}"


def create_command(topic: str, partitions: int = 4, *, bootstrap: str, letters: bool = False, largest: str = "") -> str:
    """The command that creates a topic, or a dead-letter topic; `largest`: for letters up to this size."""
    config = " --config retention.ms=-1" if letters else ""
    config += f" --config {MAX_BYTES}={largest}" if largest else ""
    return f"kafka-topics.sh --create --topic {topic} --partitions {partitions}{config} --bootstrap-server {bootstrap}"


def _letter_topic(
    admin: KafkaAdmin, letter: str, consumers: Sequence[ConsumerSettings], facts: Mapping[str, TopicFacts | None]
) -> int:
    """Create the dead-letter topic if it is missing and may be created; returns its partition count."""
    found = facts[letter]
    users = [own for own in consumers if letter in own.dead_letter_topics.values()]
    sources = sources_of(letter, users)
    if found is not None:
        _compare(admin, letter, sources)
        return found.partitions
    partitions = max(fact.partitions for topic in sources if (fact := facts[topic]) is not None)
    config = letter_topic_config(admin, sources)
    largest = config.get(MAX_BYTES, "")
    command = create_command(letter, partitions, bootstrap=admin.bootstrap, letters=True, largest=largest)
    by_hand = _by_hand(admin, letter, command)
    if not all(own.dead_letter.create_topic for own in users):
        raise StartError(f"The dead-letter topic {letter} does not exist and dead_letter.create_topic is off.{by_hand}")
    try:
        admin.create_topic(letter, partitions=partitions, timeout_s=ASK_TIMEOUT_S, config=config)
    except SourceError as error:
        raise StartError(
            f"The dead-letter topic {letter} does not exist and could not be created ({error}).{by_hand}"
        ) from error
    log.info("dead_letter_topic_created", topic=letter, partitions=partitions)
    return partitions


RETRY_ROOM_BYTES = 20_000
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


class RetryTopicsCheck:
    """The retry topics of an app's consumers: created where they are missing, checked where they are not, and found
    where an earlier configuration has left them.
    """

    def __init__(self, admin: KafkaAdmin, sources: Mapping[str, TopicFacts | None]) -> None:
        self._admin = admin
        self._sources = sources
        self._problems: list[str] = []
        self.topic_ids: dict[str, str] = {}

    def run(self, consumers: Sequence[ConsumerSettings]) -> dict[str, Tiers]:
        """The retry topics of each consumer that has some, by its name. Raises StartError with everything that is
        wrong.
        """
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
            if (replays := replay_topic(source, own.group)) in existing:
                wanted.append(_Wanted(replays, source, 0, own))
            for topic, delay_s in left_over(existing, source, own.group, {*configured, *own.topics}).items():
                log.warning(
                    "retry_topic_not_configured",
                    consumer=own.name,
                    topic=topic,
                    consequence="its delay is not configured; it is still read, so that no record is stranded in it",
                    advice="delete the topic once the group has no lag on it",
                )
                wanted.append(_Wanted(topic, source, delay_s, own))
        return wanted

    def _tier(self, wanted: _Wanted, found: TopicFacts | None) -> Tier:
        if found is None:
            found = self._create(wanted)
        else:
            self._compare(wanted, found)
        if found.topic_id:
            self.topic_ids[found.name] = found.topic_id
        return Tier(wanted.topic, wanted.source, wanted.delay_s, found.partitions)

    def _create(self, wanted: _Wanted) -> TopicFacts:
        topic, partitions = wanted.topic, self._partitions(wanted.source)
        config = {"cleanup.policy": "delete", "retention.ms": str(wanted.retention_ms), **self._room(wanted.source)}
        settings = "".join(f" --config {name}={value}" for name, value in config.items())
        command = (
            f"kafka-topics.sh --create --topic {topic} --partitions {partitions}{settings}"
            f" --bootstrap-server {self._admin.bootstrap}"
        )
        by_hand = _by_hand(self._admin, topic, command)
        if not wanted.own.retry_topics.create_topics:
            self._problems.append(
                f"The retry topic {topic} does not exist and retry_topics.create_topics is off.{by_hand}"
            )
            return TopicFacts(topic, partitions, None)
        try:
            self._admin.create_topic(topic, partitions=partitions, timeout_s=ASK_TIMEOUT_S, config=config)
        except SourceError as error:
            self._problems.append(
                f"The retry topic {topic} does not exist and could not be created ({error}).{by_hand}"
            )
            return TopicFacts(topic, partitions, None)
        log.info("retry_topic_created", topic=topic, partitions=partitions, retention_ms=wanted.retention_ms)
        return self._admin.topics([topic], ASK_TIMEOUT_S)[topic] or TopicFacts(topic, partitions, None)

    def _room(self, source: str) -> dict[str, str]:
        """A topic for large records needs a retry topic for slightly larger ones."""
        largest = self._admin.topic_config(source, ASK_TIMEOUT_S).get(MAX_BYTES, "")
        return {MAX_BYTES: str(int(largest) + RETRY_ROOM_BYTES)} if largest.isdigit() else {}

    def _compare(self, wanted: _Wanted, found: TopicFacts) -> None:
        """A topic that would lose records is refused; one that is only unusual is logged."""
        config = self._admin.topic_config(wanted.topic, ASK_TIMEOUT_S)
        alter = f"kafka-configs.sh --alter --entity-type topics --entity-name {wanted.topic} --add-config"
        if "compact" in config.get("cleanup.policy", "delete"):
            self._problems.append(
                f"The retry topic {wanted.topic} is compacted, so that records with the same key would be lost there."
                f" Change it: {alter} cleanup.policy=delete --bootstrap-server {self._admin.bootstrap}"
            )
        retention_ms = config.get("retention.ms", "-1")
        if 0 <= int(retention_ms) <= wanted.delay_s * 1000:
            self._problems.append(
                f"The retry topic {wanted.topic} deletes records after {retention_ms} ms, before they are due"
                f" ({delay_text(wanted.delay_s)}). Change it: {alter} retention.ms={wanted.retention_ms}"
                f" --bootstrap-server {self._admin.bootstrap}"
            )
        partitions = self._partitions(wanted.source)
        if found.partitions != partitions:
            log.warning(
                "retry_topic_partitions_differ",
                topic=wanted.topic,
                partitions=found.partitions,
                of_source=partitions,
                consequence="records of partitions that it does not have are spread over its own by their key",
            )

    def _partitions(self, source: str) -> int:
        facts = self._sources[source]
        return facts.partitions if facts is not None else 1


def replay_tiers(
    admin: KafkaAdmin, group: str, sources: Iterable[str], existing: Collection[str]
) -> tuple[dict[str, Tier], dict[str, str]]:
    """The existing topics that records of these topics are replayed to for this group alone, and their ids. Raises
    SourceError.
    """
    wanted = {name: source for source in sources if (name := replay_topic(source, group)) in existing}
    found = admin.topics(sorted(wanted), ASK_TIMEOUT_S) if wanted else {}
    facts = [one for one in found.values() if one is not None]
    tiers = {one.name: Tier(one.name, wanted[one.name], 0, one.partitions) for one in facts}
    return tiers, {one.name: one.topic_id for one in facts if one.topic_id}


RECREATE_INTERVAL_S = 10.0
"""A topic is not created more often."""


class LetterTopics:
    """The dead-letter topics of running consumers. `missing` may be called by any thread, and never blocks: the work is
    done by a thread that ends with it.
    """

    def __init__(
        self, admin: KafkaAdmin, partitions: Mapping[str, int], sources: Mapping[str, Collection[str]]
    ) -> None:
        self._admin = admin
        self._partitions = dict(partitions)
        self._sources = {topic: set(of) for topic, of in sources.items()}  # of those that may be created
        self._lock = threading.Lock()
        self._asked_at: dict[str, float] = {}

    def add(self, partitions: Mapping[str, int], consumers: Sequence[ConsumerSettings]) -> None:
        """More topics of these consumers. Any thread."""
        with self._lock:
            for topic, sources in _sources_by_letter_topic(consumers).items():
                self._sources.setdefault(topic, set()).update(sources)
                self._partitions.setdefault(topic, partitions[topic])

    def missing(self, topic: str) -> None:
        """There is no such topic any more. Nothing happens if it may not be created."""
        now = time.monotonic()
        with self._lock:
            if topic not in self._sources or now - self._asked_at.get(topic, float("-inf")) < RECREATE_INTERVAL_S:
                return
            self._asked_at[topic] = now
        threading.Thread(target=self._create, args=(topic,), name="keepfast-topic", daemon=True).start()

    def _create(self, topic: str) -> None:
        with self._lock:
            partitions, sources = self._partitions[topic], set(self._sources[topic])
        try:
            config = letter_topic_config(self._admin, sources)
            created = self._admin.create_topic(topic, partitions=partitions, timeout_s=ASK_TIMEOUT_S, config=config)
        except SourceError as error:
            log.error("dead_letter_topic_not_created", topic=topic, error=str(error))  # noqa: TRY400 - no trace is needed
            return
        if created:
            log.warning("dead_letter_topic_recreated", topic=topic, partitions=partitions)


def letter_topics_of(
    admin: KafkaAdmin, partitions: Mapping[str, int], consumers: Sequence[ConsumerSettings]
) -> LetterTopics:
    """Those of these consumers; what one of them may not create is not created."""
    return LetterTopics(admin, partitions, _sources_by_letter_topic(consumers))


def _sources_by_letter_topic(consumers: Sequence[ConsumerSettings]) -> dict[str, set[str]]:
    """Of those that all their consumers may create."""
    used = {topic for own in consumers for topic in own.dead_letter_topics.values()}
    forbidden = {
        topic for own in consumers if not own.dead_letter.create_topic for topic in own.dead_letter_topics.values()
    }
    return {topic: sources_of(topic, consumers) for topic in used - forbidden}

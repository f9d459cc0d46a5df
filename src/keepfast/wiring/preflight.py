"""What must be there before a consumer starts: the broker, the topics, the dead-letter topics, the retry topics."""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from keepfast.core.errors import Fault, SourceError, StartError
from keepfast.core.retry_topics import Tiers
from keepfast.kafka import KafkaAdmin, TopicFacts
from keepfast.kafka.config import LARGEST_RECORD_BYTES
from keepfast.settings import ConsumerSettings, Settings
from keepfast.telemetry.logs import get_logger
from keepfast.wiring.retry_topics import LARGEST, RetryTopicsGround

log = get_logger("keepfast.start")

PATIENCE_S = 30.0
"""How long a broker that is away is waited for, unless told to wait for ever."""

WAIT_HINT = "`keepfast run --wait` waits for as long as it takes"
SAY_EVERY_S = 5.0
ASK_TIMEOUT_S = 15.0
LETTER_TOPIC_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1"}
LETTER_ROOM, LETTER_ROOM_BYTES = 2.5, 64 * 1024
"""How much larger than its record a letter may be: the value as JSON or base64, headers, and what the error says."""
LEAST_ROOM_BYTES = 4 * 1024
"""For the smallest letter of a record: the original bytes and an id."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What the cluster said: each topic's id where it tells one, how many partitions each topic and each dead-letter
    topic has, the retry topics of each consumer that has some, and whether it is the embedded broker. `tells_ids`: ids
    that are missing can still be asked for.
    """

    topic_ids: Mapping[str, str]
    partition_counts: Mapping[str, int]
    letter_partitions: Mapping[str, int]
    tiers: Mapping[str, Tiers]
    embedded: bool = False
    tells_ids: bool = True

    def letters_of(self, dead_letter_topics: Mapping[str, str]) -> dict[str, int]:
        """Where a consumer's letters go, with the number of partitions; nothing for letters that go elsewhere."""
        wanted = set(dead_letter_topics.values())
        return {topic: count for topic, count in self.letter_partitions.items() if topic in wanted}


def preflight(admin: KafkaAdmin, consumers: Sequence[ConsumerSettings], *, wait: bool) -> Ground:
    """Look, and make what is missing and may be made. Raises StartError, saying everything that is missing and what to
    do.
    """
    _reach(admin, wait=wait)
    try:
        return _look(admin, consumers)
    except SourceError as error:
        raise StartError(str(error)) from error


def topics_of(settings: Settings) -> set[str]:
    """Every topic that the app's consumers read or bury into, retry topics too."""
    found: set[str] = set()
    for own in settings.consumers.values():
        found.update(own.topics, own.dead_letter_topics.values())
        for topic in own.topics:
            found.update(own.retry_topics.topics(topic, own.group))
    return found


def _reach(admin: KafkaAdmin, *, wait: bool) -> None:
    begun = time.monotonic()
    hint = {} if wait else {"gives_up_after_s": round(PATIENCE_S), "hint": WAIT_HINT}
    while True:
        try:
            admin.check(SAY_EVERY_S)
            return
        except SourceError as error:
            waited_s = time.monotonic() - begun
            if error.fault is not Fault.RETRY or (waited_s >= PATIENCE_S and not wait):
                raise StartError(str(error)) from error
            log.warning("waiting_for_broker", waited_s=round(waited_s), error=str(error), **hint)
            hint = {}  # said once


def _look(admin: KafkaAdmin, consumers: Sequence[ConsumerSettings]) -> Ground:
    sources = sorted({topic for own in consumers for topic in own.topics})
    letters = sorted({letter for own in consumers for letter in own.dead_letter_topics.values()})
    facts = admin.topics(sources + letters, ASK_TIMEOUT_S)
    missing = [topic for topic in sources if facts[topic] is None]
    if missing:
        there = admin.names(ASK_TIMEOUT_S)
        raise StartError("\n".join(_missing(topic, there) for topic in missing))
    letter_partitions = {letter: _letter_topic(admin, letter, consumers, facts) for letter in letters}
    retries = RetryTopicsGround(admin, facts)
    tiers = retries.lay(consumers)
    ids = {fact.name: fact.topic_id for fact in facts.values() if fact is not None and fact.topic_id}
    known = {topic: ids[topic] for topic in sources if topic in ids}
    counts = {topic: fact.partitions for topic in sources if (fact := facts[topic]) is not None}
    return Ground(
        known | retries.topic_ids,
        counts,
        letter_partitions,
        tiers,
        embedded=admin.embedded,
        tells_ids=admin.tells_ids,
    )


def letter_topic_config(admin: KafkaAdmin, sources: Iterable[str]) -> dict[str, str]:
    """The settings of a dead-letter topic for records of these topics. Raises SourceError."""
    largest = _largest(admin, sources)
    return LETTER_TOPIC_CONFIG | ({} if largest is None else {LARGEST: str(_room_for(largest))})


def sources_of(letter: str, consumers: Iterable[ConsumerSettings]) -> set[str]:
    """The topics whose letters go to this one."""
    return {topic for own in consumers for topic, target in own.dead_letter_topics.items() if target == letter}


def _largest(admin: KafkaAdmin, sources: Iterable[str]) -> int | None:
    """The largest batch that one of these topics takes; None where nobody can tell."""
    told = [admin.topic_config(topic, ASK_TIMEOUT_S).get(LARGEST, "") for topic in sorted(sources)]
    return max((int(size) for size in told if size.isdigit()), default=None)


def _room_for(largest: int) -> int:
    return min(LARGEST_RECORD_BYTES, math.ceil(LETTER_ROOM * largest) + LETTER_ROOM_BYTES)


def _compare(admin: KafkaAdmin, letter: str, sources: Iterable[str]) -> None:
    """Warn of a dead-letter topic that is there and takes less than its letters may need."""
    told, largest = admin.topic_config(letter, ASK_TIMEOUT_S).get(LARGEST, ""), _largest(admin, sources)
    if largest is None or not told.isdigit() or int(told) >= _room_for(largest):
        return
    if int(told) < largest + LEAST_ROOM_BYTES:
        consequence = "a record near the limit of its topic cannot be dead-lettered, and holds up its partition"
    else:
        consequence = "letters of large records are cut: stack trace and messages go first"
    log.warning(
        "dead_letter_topic_takes_less",
        topic=letter,
        max_message_bytes=int(told),
        of_source=largest,
        consequence=consequence,
        advice=f"kafka-configs.sh --alter --entity-type topics --entity-name {letter}"
        f" --add-config {LARGEST}={_room_for(largest)} --bootstrap-server …",
    )


def _missing(topic: str, there: Iterable[str]) -> str:
    near = difflib.get_close_matches(topic, list(there), n=1, cutoff=0.8)
    hint = f" Did you mean {near[0]}?" if near else ""
    return (
        f"Topic {topic} does not exist, or this login may not see it.{hint} Create it: {create_command(topic)}; to try"
        " things out, `keepfast dev` makes the topics of an app."
    )


def create_command(topic: str, partitions: int = 4, *, letters: bool = False, largest: str = "") -> str:
    """The command that makes a topic, or a dead-letter topic; `largest`: for letters up to this size."""
    config = " --config retention.ms=-1" if letters else ""
    config += f" --config {LARGEST}={largest}" if largest else ""
    return f"kafka-topics.sh --create --topic {topic} --partitions {partitions}{config} --bootstrap-server …"


def _letter_topic(
    admin: KafkaAdmin, letter: str, consumers: Sequence[ConsumerSettings], facts: Mapping[str, TopicFacts | None]
) -> int:
    """Make the dead-letter topic if it is missing and may be made; returns its partition count."""
    found = facts[letter]
    users = [own for own in consumers if letter in own.dead_letter_topics.values()]
    sources = sources_of(letter, users)
    if found is not None:
        _compare(admin, letter, sources)
        return found.partitions
    partitions = max(fact.partitions for topic in sources if (fact := facts[topic]) is not None)
    config = letter_topic_config(admin, sources)
    by_hand = f" Create it: {create_command(letter, partitions, letters=True, largest=config.get(LARGEST, ''))}"
    if not all(own.dead_letter.create_topic for own in users):
        raise StartError(f"The dead-letter topic {letter} does not exist and dead_letter.create_topic is off.{by_hand}")
    try:
        admin.create_topic(letter, partitions=partitions, timeout_s=ASK_TIMEOUT_S, config=config)
    except SourceError as error:
        raise StartError(
            f"The dead-letter topic {letter} does not exist and could not be made ({error}).{by_hand}"
        ) from error
    log.info("dead_letter_topic_made", topic=letter, partitions=partitions)
    return partitions

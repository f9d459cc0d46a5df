"""`keepfast doctor`, what an app needs in the cluster: topics, rights, dead-letter topics, and clocks that agree.

Every function here is pure: from what the cluster said to findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from keepfast.cli.doctor_findings import DoctorFinding, Section
from keepfast.core.errors import Fault, SourceError
from keepfast.kafka.probe import GroupFacts, Operations, RetainedRecords, TopicProbe
from keepfast.settings import ConsumerSettings
from keepfast.wiring.clients import create_command

SHORT_RETENTION_MS: Final = 7 * 86_400_000
AHEAD_MS: Final = 5_000
DIAGNOSTICS_BYTES: Final = 20_000
"""What a letter has besides the record, when it was cut as far as it can be."""
LARGEST: Final = "max.message.bytes"

Told = TopicProbe | SourceError


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen:
    """Everything that the cluster said about the topics and groups of an app."""

    topics: Mapping[str, Told]
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    groups: Mapping[str, GroupFacts | SourceError] = field(default_factory=dict)
    held: Mapping[str, RetainedRecords] = field(default_factory=dict)
    cluster: Operations = None
    brokers: int = 1
    user: str = "…"

    def probe(self, topic: str) -> TopicProbe | None:
        found = self.topics.get(topic)
        return found if isinstance(found, TopicProbe) else None


def findings(own: ConsumerSettings, seen: TopicSeen, now_ms: int) -> Iterator[DoctorFinding]:
    """Of one consumer."""
    for topic in own.topics:
        yield from _source(topic, seen)
    yield from _group(own.group, seen)
    for source, letters in own.dead_letter_topics.items():
        yield from _letters(own, source, letters, seen)
    for topic in own.topics:
        for retry in own.retry_topics.topics(topic, own.group):
            yield from _retry_topic(own, retry, seen)
    yield from _clock(own, seen, now_ms)


def _source(topic: str, seen: TopicSeen) -> Iterator[DoctorFinding]:
    told = seen.topics[topic]
    if isinstance(told, SourceError):
        yield _not_seen("topics", topic, told, seen, create_command(topic))
        return
    partitions = f"{told.partitions} partition{'s' * (told.partitions != 1)}"
    yield DoctorFinding(
        "topics", "ok", f"{topic} has {partitions}, {told.replicas} cop{'ies' if told.replicas > 1 else 'y'}"
    )
    if told.replicas == 1 and seen.brokers > 1:
        text = f"{topic} has one copy: a broker that is away takes its partitions along"
        yield DoctorFinding("topics", "warning", text, "Let kafka-reassign-partitions.sh give it 3 copies.")
    yield from _rights(topic, told.operations, ("READ",), seen, "read from")


def _not_seen(at: Section, topic: str, why: SourceError, seen: TopicSeen, create: str) -> DoctorFinding:
    if why.fault is Fault.MISSING:
        return DoctorFinding(at, "problem", f"{topic} does not exist, or this login may not see it", create)
    if why.fault is Fault.REFUSED:
        return DoctorFinding(
            "rights", "problem", f"This login may not see {topic}", _acl(seen, "Describe", "topic", topic)
        )
    return DoctorFinding(at, "problem", str(why), "Try again; if it stays, look at the broker's log.")


def _rights(
    topic: str, allowed: Operations, needed: tuple[str, ...], seen: TopicSeen, verb: str
) -> Iterator[DoctorFinding]:
    if allowed is None:
        return
    missing = [operation for operation in needed if operation not in allowed]
    if not missing:
        yield DoctorFinding("rights", "ok", f"This login may {verb} {topic}")
    for operation in missing:
        text = f"This login may not {verb} {topic}: it has no right to {operation}"
        yield DoctorFinding("rights", "problem", text, _acl(seen, operation.capitalize(), "topic", topic))


def _group(group: str, seen: TopicSeen) -> Iterator[DoctorFinding]:
    told = seen.groups.get(group)
    if told is None:
        return
    acl = _acl(seen, "Read", "group", group)
    if isinstance(told, SourceError):
        if told.fault is Fault.REFUSED:
            yield DoctorFinding("rights", "problem", f"This login may not use the group {group}", acl)
        else:
            yield DoctorFinding("rights", "unknown", f"Nobody tells about the group {group}: {told}")
        return
    if told.operations is not None and "READ" not in told.operations:
        yield DoctorFinding("rights", "problem", f"This login may not join the group {group} or commit for it", acl)
        return
    members = f"{told.members} member{'s' * (told.members != 1)}" if told.members else "nobody in it now"
    yield DoctorFinding("rights", "ok", f"This login may join the group {group} ({members})")


def _letters(own: ConsumerSettings, source: str, letters: str, seen: TopicSeen) -> Iterator[DoctorFinding]:
    told = seen.topics[letters]
    from_source = seen.probe(source)
    count = from_source.partitions if from_source else 4
    if isinstance(told, SourceError):
        yield _letters_not_seen(own, letters, count, told, seen)
        return
    held = seen.held.get(letters)
    waiting = (
        f"; {held.offsets:,} letter{'s' * (held.offsets != 1)}: keepfast dlq list {letters}"
        if held and held.offsets
        else ""
    )
    yield DoctorFinding("dead letters", "ok", f"{letters} has {told.partitions} partitions{waiting}")
    if told.partitions < count:
        text = f"{letters} has fewer partitions than {source} ({count}): letters do not keep their partition"
        fix = f"kafka-topics.sh --alter --topic {letters} --partitions {count} --bootstrap-server …"
        yield DoctorFinding("dead letters", "warning", text, fix)
    yield from _letters_config(own, source, letters, seen)
    yield from _rights(letters, told.operations, ("WRITE",), seen, "write to")


def _letters_not_seen(
    own: ConsumerSettings, letters: str, count: int, why: SourceError, seen: TopicSeen
) -> DoctorFinding:
    create = create_command(letters, count, letters=True)
    if why.fault is not Fault.MISSING:
        return _not_seen("dead letters", letters, why, seen, create)
    if not own.dead_letter.create_topic:
        return DoctorFinding("dead letters", "problem", f"{letters} does not exist, and create_topic is off", create)
    if seen.cluster is not None and "CREATE" not in seen.cluster:
        text = f"{letters} does not exist, and this login has no right to make topics"
        return DoctorFinding("dead letters", "problem", text, f"{create}, or {_acl(seen, 'Create', 'topic', letters)}")
    return DoctorFinding("dead letters", "ok", f"{letters} does not exist yet; the first start makes it")


def _letters_config(own: ConsumerSettings, source: str, letters: str, seen: TopicSeen) -> Iterator[DoctorFinding]:
    config = seen.configs.get(letters, {})
    if "compact" in config.get("cleanup.policy", ""):
        text = f"{letters} is compacted: of letters with the same key only the last is kept"
        yield DoctorFinding("dead letters", "problem", text, _alter(letters, "cleanup.policy=delete"))
    retention = config.get("retention.ms", "-1")
    if 0 <= int(retention) <= SHORT_RETENTION_MS:
        text = f"{letters} forgets its letters after {_days(int(retention))}"
        yield DoctorFinding("dead letters", "warning", text, _alter(letters, "retention.ms=-1"))
    limits = [seen.configs.get(name, {}).get(LARGEST, "") for name in (source, letters)]
    if all(limit.isdigit() for limit in limits):
        largest, room = map(int, limits)
        needed = letter_bytes(largest, own.dead_letter.format)
        if room < needed:
            text = (
                f"{letters} takes up to {room:,} bytes, but a letter of the largest record of {source} needs"
                f" {needed:,}: its partition would stop there"
            )
            yield DoctorFinding("dead letters", "warning", text, _alter(letters, f"{LARGEST}={needed}"))


def letter_bytes(record_bytes: int, form: str) -> int:
    """What the letter of a record of this size may take: in JSON, bytes that are no JSON themselves become base64."""
    return (record_bytes if form == "headers" else record_bytes * 4 // 3) + DIAGNOSTICS_BYTES


def _retry_topic(own: ConsumerSettings, topic: str, seen: TopicSeen) -> Iterator[DoctorFinding]:
    told = seen.topics[topic]
    if isinstance(told, TopicProbe):
        yield DoctorFinding("topics", "ok", f"{topic} has {told.partitions} partitions")
        yield from _rights(topic, told.operations, ("READ", "WRITE"), seen, "read from and write to")
    elif told.fault is not Fault.MISSING:
        yield _not_seen("topics", topic, told, seen, "")
    elif not own.retry_topics.create_topics or (seen.cluster is not None and "CREATE" not in seen.cluster):
        text = f"The retry topic {topic} does not exist, and may not be made"
        fix = "`keepfast run` says how to make it; or allow retry_topics.create_topics and the right to Create."
        yield DoctorFinding("topics", "problem", text, fix)
    else:
        yield DoctorFinding("topics", "ok", f"The retry topic {topic} does not exist yet; the first start makes it")


def _clock(own: ConsumerSettings, seen: TopicSeen, now_ms: int) -> Iterator[DoctorFinding]:
    newest = {topic: held.newest_ms for topic, held in seen.held.items() if topic in own.topics and held.newest_ms}
    for topic, at_ms in newest.items():
        ahead_ms = (at_ms or 0) - now_ms
        if ahead_ms > AHEAD_MS:
            text = (
                f"The newest record of {topic} is {ahead_ms / 1000:,.0f} s from the future: this machine's clock is"
                " behind, or its producer's is ahead"
            )
            fix = "Let both follow a time server: the ages of records and the delays of retry topics go by the clock."
            yield DoctorFinding("clock", "warning", text, fix)
        else:
            yield DoctorFinding("clock", "ok", f"No record of {topic} is from the future")


def _acl(seen: TopicSeen, operation: str, kind: str, name: str) -> str:
    return (
        f"kafka-acls.sh --add --allow-principal User:{seen.user} --operation {operation} --{kind} {name}"
        " --bootstrap-server …"
    )


def _alter(topic: str, what: str) -> str:
    return (
        f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {what} --bootstrap-server …"
    )


def _days(milliseconds: int) -> str:
    hours = milliseconds / 3_600_000
    return f"{hours / 24:g} days" if hours >= 48 else f"{hours:g} hours"

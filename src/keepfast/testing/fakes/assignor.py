"""Cooperative-sticky assignment: balance with few moves; a partition is never reassigned before its owner has released
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from keepfast.core.records import TopicPartition


@dataclass(frozen=True, slots=True)
class Claim:
    """A member's join request: its topics and its partitions."""

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...]


def assign(claims: Sequence[Claim], partitions: Mapping[str, int]) -> dict[str, tuple[TopicPartition, ...]]:
    """The assignment of one generation. A partition that is to move is left out until its owner has released it."""
    holders: dict[TopicPartition, str] = {}
    for claim in claims:
        for place in claim.owned:
            holders.setdefault(place, claim.member_id)
    target = _balance(claims, partitions, holders)
    return {
        member_id: tuple(sorted(place for place in places if holders.get(place, member_id) == member_id))
        for member_id, places in target.items()
    }


def _balance(
    claims: Sequence[Claim], partitions: Mapping[str, int], holders: Mapping[TopicPartition, str]
) -> dict[str, list[TopicPartition]]:
    topics = sorted({topic for claim in claims for topic in claim.topics if topic in partitions})
    places = [TopicPartition(topic, number) for topic in topics for number in range(partitions[topic])]
    share, extra = divmod(len(places), len(claims))
    target: dict[str, list[TopicPartition]] = {}
    for claim in claims:
        held = [p for p in places if holders.get(p) == claim.member_id and p.topic in claim.topics]
        room = share + (1 if extra and len(held) > share else 0)
        extra -= room - share
        target[claim.member_id] = held[:room]
    placed = {place for kept in target.values() for place in kept}
    for place in places:
        if place in placed:
            continue
        readers = [claim.member_id for claim in claims if place.topic in claim.topics]
        if readers:
            target[min(readers, key=lambda member_id: len(target[member_id]))].append(place)
    return target

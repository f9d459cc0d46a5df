"""What a consumer reads: fixed for most; with a pattern, topics come and go, and a topic for replays to its group alone
may appear. Owner: the loop thread.

The plan's mappings by topic belong to this class and only grow: a record of a topic that is not read any more may
still be on its way to its dead-letter topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, cast

from keepfast.core.events import SubscriptionChanged
from keepfast.core.ports import AskUnowned, Mailbox
from keepfast.core.records import TopicPartition
from keepfast.core.retry_topics import Tier, Tiers
from keepfast.engine.events import Events
from keepfast.engine.plan import Plan
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.topics")

CONFIRM_S = 5.0
"""A topic is gone when two answers in a row lack it, so far apart: a broker may be behind the others."""

AGAIN_S = 1.0
"""Between two questions, however many events want an answer."""

OPEN_S = 300.0
"""A question that is not answered by then may be asked again. Creating topics for many new ones takes its time."""

REMIND_S = 60.0
"""How often a wait for the first topic is logged."""

CHECK_S, REPLY_TIMEOUT_S, RECHECK_S = 2.0, 15.0, 60.0
"""Between two questions about partitions without an owner, on average, doubled up to the last of these while nothing is
known; when a question that was not answered is asked again; and when the first question is asked after the member has
joined again, doubled each time.
"""

MAX_REJOINS = 3
"""How often a member joins its group again because of partitions without an owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsFound:
    """An answer for the loop. `matched`: all topics that the pattern stands for now; None: unknown. `ready`
    is a plan with those among them that were not known and may be read now: their dead-letter and retry topics are
    there. `refused`: those that may not, and why. `replays`: the topics that records are replayed to for this group
    alone, and `replay_ids` their ids.
    """

    matched: frozenset[str] | None = None
    ready: Plan | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    replays: Mapping[str, Tier] = field(default_factory=dict)
    replay_ids: Mapping[str, str] = field(default_factory=dict)


Discover = Callable[[Collection[str], Callable[[TopicsFound], None]], None]
"""Looks up the topics of a pattern and those for replays, given those that are read already, without their retry
topics: returns at once, and answers once, from any thread.
"""


def growing(plan: Plan) -> Plan:
    """The plan with mappings that `Subscription` may add topics to: without a pattern, only those for replays."""
    tiers = plan.tiers or Tiers(group=plan.group)
    if plan.pattern is None:
        return replace(plan, tiers=replace(tiers, topics=dict(tiers.topics)))
    return replace(
        plan,
        dead_letter_topics=dict(plan.dead_letter_topics),
        letter_partitions=dict(plan.letter_partitions),
        partition_counts=dict(plan.partition_counts),
        names=dict(plan.names),
        appeared=set(plan.appeared),
        tiers=replace(tiers, topics=dict(tiers.topics)),
    )


class Subscription:
    """`topics` are those that are read now, `every` has their retry topics, too; `refused` are those that match and
    cannot be read, with the reason. Any thread may read these: they are replaced as a whole.
    """

    def __init__(self, plan: Plan, discover: Discover | None, mailbox: Mailbox, now: float, events: Events) -> None:
        self._plan = plan
        self._discover = discover
        self._mailbox = mailbox
        self._events = events
        self._fixed = frozenset(plan.topics) - plan.matched
        self._missing: dict[str, float] = {}  # since when answers lack them
        self._open_since: float | None = None
        self._asked_at = float("-inf")
        self._due_at = now + plan.refresh_s if plan.pattern is not None else float("inf")
        self._reminded_at = float("-inf")
        self._replay_topics: Collection[str] = ()
        self.topics = plan.topics
        self.every = plan.subscription
        self.refused = plan.refused

    @property
    def waits(self) -> bool:
        """Whether there is no topic to read yet."""
        return not self.topics

    def step(self, now: float, replay_topics: Collection[str] = ()) -> None:
        """Ask if it is time to, or if there are topics for replays that are not read yet."""
        if self._discover is None:
            return
        if replay_topics is not self._replay_topics and now - self._asked_at >= self._plan.refresh_s:
            self._replay_topics = replay_topics
            if not set(replay_topics) <= set(self.every):
                self._due_at = now
        if self.waits and now - self._reminded_at >= REMIND_S:
            self._reminded_at = now
            log.info("waiting_for_topics", consumer=self._plan.name, pattern=self._plan.pattern)
        if now < self._due_at or now - self._asked_at < AGAIN_S:
            return
        if self._open_since is not None and now - self._open_since < OPEN_S:
            return
        self._open_since = self._asked_at = now
        self._due_at = now + self._plan.refresh_s if self._plan.pattern is not None else float("inf")
        self._discover(self.topics, self._mailbox.post)

    def suspect(self, now: float) -> None:
        """A topic may be gone: if it is one of a pattern, ask as soon as possible."""
        if self._plan.pattern is not None:
            self._due_at = min(self._due_at, now)

    def answered(self, found: TopicsFound, now: float) -> bool:
        """An answer is there. Whether something else is to be read now."""
        self._open_since = None
        if found.matched is None:
            return False
        self._report_refused(found.refused)
        removed = self._removed(found.matched, now)
        added = [topic for topic in found.ready.topics if topic not in self.topics] if found.ready else []
        replays = [topic for topic in found.replays if topic not in self.every]
        if not added and not removed and not replays:
            return False
        if found.ready is not None:
            self._learn(found.ready)
        if self._plan.tiers is not None:
            _add(self._plan.tiers.topics, found.replays)
        self.topics = (*(topic for topic in self.topics if topic not in removed), *added)
        tiers = self._plan.tiers.topics.values() if self._plan.tiers else ()
        self.every = (*self.topics, *(tier.topic for tier in tiers if tier.source in self.topics))
        self._events.emit(
            SubscriptionChanged(
                *self._events.source, added=(*added, *replays), removed=tuple(sorted(removed)), topics=self.topics
            )
        )
        return True

    def _removed(self, matched: Collection[str], now: float) -> set[str]:
        """The topics that have been gone for long enough."""
        gone = {topic for topic in self.topics if topic not in matched and topic not in self._fixed}
        self._missing = {topic: self._missing.get(topic, now) for topic in gone}
        removed = {topic for topic, since in self._missing.items() if now - since >= CONFIRM_S}
        if gone - removed:
            self._due_at = min(self._due_at, now + CONFIRM_S)
        return removed

    def _learn(self, ready: Plan) -> None:
        """A topic that appears while the consumer runs is read from its beginning."""
        plan = self._plan
        _add(plan.dead_letter_topics, ready.dead_letter_topics)
        _add(plan.letter_partitions, ready.letter_partitions)
        _add(plan.partition_counts, ready.partition_counts)
        _add(plan.names, ready.names)
        cast(set[str], plan.appeared).update(ready.topics)
        if plan.tiers is not None and ready.tiers is not None:
            _add(plan.tiers.topics, ready.tiers.topics)

    def _report_refused(self, refused: Mapping[str, str]) -> None:
        for topic, why in refused.items():
            if self.refused.get(topic) != why:
                log.error(
                    "topic_not_read",
                    consumer=self._plan.name,
                    topic=topic,
                    error=why,
                    consequence=f"it is not read, and tried again in {self._plan.refresh_s:g} s",
                )
        self.refused = dict(refused)


def _add(mapping: Mapping[str, Any], more: Mapping[str, Any]) -> None:
    cast(dict[str, Any], mapping).update(more)


@dataclass(frozen=True, slots=True)
class UnownedFound:
    """An answer for the loop: the partitions of its topics that no member of the group has. None: that is not known."""

    places: frozenset[TopicPartition] | None


class RejoinCheck:
    """Whether a static member of the classic protocol has to join its group again, because partitions of its topics
    have no owner. Owner: the loop thread.

    Killed between the two rounds of a cooperative rebalance and back within its session, it gets the assignment of the
    first round, and the group does not rebalance. No member begins the second round, which would assign what it was to
    revoke. So it asks, from its first assignment on, until all partitions have an owner. While another member finishes
    what is in flight in partitions that it revokes, they have no owner either: those only count that have none for
    longer than that may take.
    """

    def __init__(self, plan: Plan, ask: AskUnowned, mailbox: Mailbox, random: Random) -> None:
        self._plan = plan
        self._ask = ask
        self._mailbox = mailbox
        self._random = random
        self._due_at: float | None = None  # when the next question is due; None: before the first assignment
        self._unowned: frozenset[TopicPartition] = frozenset()
        self._since = 0.0  # from when on these were without an owner in every answer
        self._unknown = 0  # answers in a row that say nothing
        self._rejoins = 0
        self._wanted = False

    def assigned(self, now: float) -> None:
        """The group has rebalanced: what was found before does not count any more."""
        self._unowned, self._wanted = frozenset(), False
        if self._due_at is None:
            self._due_at = now

    def step(self, now: float, topics: Collection[str]) -> bool:
        """Ask about these topics if it is time to. Whether to join the group again now."""
        wanted, self._wanted = self._wanted, False
        if self._due_at is not None and now >= self._due_at:
            self._due_at = now + REPLY_TIMEOUT_S
            self._ask(topics, lambda places: self._mailbox.post(UnownedFound(places)))
        return wanted

    def answered(self, found: UnownedFound, now: float) -> None:
        if found.places is not None and not found.places:
            self._unowned, self._due_at = frozenset(), float("inf")
            return
        places = found.places or frozenset()
        if not self._unowned & places:
            self._unowned, self._since = places, now
        self._unowned &= places
        self._unknown = 0 if places else self._unknown + 1
        wait_s = min(RECHECK_S, CHECK_S * 2 ** max(0, min(self._unknown, 10) - 1))
        self._due_at = now + wait_s * (0.5 + self._random.random())  # so that of several members one is the first
        if self._unowned and now - self._since >= self._plan.revoke_timeout_s + CONFIRM_S:
            self._rejoin(now)

    def _rejoin(self, now: float) -> None:
        self._wanted = self._rejoins < MAX_REJOINS
        log.warning(
            "partitions_without_owner",
            consumer=self._plan.name,
            partitions=[str(place) for place in sorted(self._unowned)],
            consequence="this member joins its group again" if self._wanted else "they are not read until one joins",
        )
        self._due_at = now + RECHECK_S * 2**self._rejoins if self._wanted else float("inf")
        self._rejoins += 1
        self._unowned = frozenset()

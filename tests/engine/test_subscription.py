"""Topics of a pattern come and go: asked again and again, and believed with care."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import Any

from keepfast.core.events import Event, SubscriptionChanged
from keepfast.core.records import TopicPartition
from keepfast.core.retry_topics import Tier, Tiers
from keepfast.engine.events import Events
from keepfast.engine.plan import Plan
from keepfast.engine.subscription import (
    AGAIN_S,
    CONFIRM_S,
    OPEN_S,
    RECHECK_S,
    REPLY_TIMEOUT_S,
    RejoinCheck,
    Subscription,
    TopicsFound,
    UnownedFound,
    growing,
)
from tests.support.fakes import ListMailbox

Question = tuple[Collection[str], Callable[[TopicsFound], None]]


class Told:
    """Implements `core.events.Observer`."""

    wants = frozenset({SubscriptionChanged})
    keeps_errors = False

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)


class Asked:
    """A subscription of which the test answers the questions."""

    def __init__(self, *topics: str, fixed: tuple[str, ...] = (), pattern: str | None = "a.*") -> None:
        self.questions: list[Question] = []
        self.told = Told()
        self.plan = growing(
            Plan(
                name="c",
                group="g",
                topics=(*fixed, *topics),
                pattern=pattern,
                matched=frozenset(topics),
                refresh_s=30,
            )
        )
        events = Events("c", "g", (self.told,))
        self.subscription = Subscription(self.plan, self._ask, ListMailbox(), 0.0, events)

    def _ask(self, known: Collection[str], answer: Callable[[TopicsFound], None]) -> None:
        self.questions.append((known, answer))

    def answered(self, at: float, *matched: str, ready: Plan | None = None, **more: Any) -> bool:
        return self.subscription.answered(TopicsFound(matched=frozenset(matched), ready=ready, **more), at)


def ready(*topics: str) -> Plan:
    return Plan(
        name="c",
        group="g",
        topics=topics,
        dead_letter_topics={topic: f"{topic}.dlq" for topic in topics},
        letter_partitions={f"{topic}.dlq": 3 for topic in topics},
        partition_counts=dict.fromkeys(topics, 3),
        tiers=Tiers(
            group="g",
            delays_s=(5,),
            topics={f"{topic}.g.retry.5s": Tier(f"{topic}.g.retry.5s", topic, 5, 3) for topic in topics},
        ),
    )


def test_it_is_asked_at_the_interval_and_not_while_a_question_is_open() -> None:
    asked = Asked("a1")
    asked.subscription.step(29.0)
    assert asked.questions == []
    asked.subscription.step(30.0)
    asked.subscription.suspect(31.5)
    asked.subscription.step(31.5)
    assert [known for known, _ in asked.questions] == [("a1",)]
    assert not asked.answered(32.0, "a1")
    asked.subscription.step(32.0)
    assert len(asked.questions) == 2, "what happened meanwhile wants an answer of its own"
    asked.subscription.step(31.0 + OPEN_S)
    assert len(asked.questions) == 2
    asked.subscription.step(32.0 + OPEN_S)
    assert len(asked.questions) == 3, "one that is never answered is asked again"


def test_many_events_at_once_are_one_question() -> None:
    asked = Asked("a1")
    for number in range(50):
        asked.subscription.suspect(1.0 + number / 100)
        asked.subscription.step(1.0 + number / 100)
        asked.answered(1.0 + number / 100, "a1")
    assert len(asked.questions) == 1
    asked.subscription.step(1.0 + AGAIN_S)
    assert len(asked.questions) == 2


def test_a_topic_that_appears_is_read_from_its_beginning_with_all_that_its_records_need() -> None:
    asked = Asked("a1")
    assert asked.answered(30.0, "a1", "a2", ready=ready("a2"))
    assert asked.subscription.topics == ("a1", "a2")
    assert asked.subscription.every == ("a1", "a2", "a2.g.retry.5s")
    plan = asked.plan
    assert plan.appeared == {"a2"}
    assert plan.dead_letter_topics["a2"] == "a2.dlq"
    assert (plan.letter_partitions["a2.dlq"], plan.partition_counts["a2"]) == (3, 3)
    assert plan.tiers is not None
    assert plan.tiers.topics["a2.g.retry.5s"].source == "a2"
    [event] = asked.told.events
    assert event == SubscriptionChanged("c", "g", added=("a2",), removed=(), topics=("a1", "a2"))
    assert not asked.answered(60.0, "a1", "a2")


def test_a_topic_is_gone_when_answers_lack_it_for_a_while() -> None:
    asked = Asked("a1", "a2")
    assert not asked.answered(30.0, "a1")
    assert not asked.answered(30.0 + CONFIRM_S / 2, "a1"), "two answers from one broker that is behind"
    assert asked.answered(30.0 + CONFIRM_S, "a1")
    assert asked.subscription.topics == ("a1",)


def test_a_topic_that_is_seen_again_was_not_gone() -> None:
    asked = Asked("a1", "a2")
    asked.answered(30.0, "a1")
    asked.answered(32.0, "a1", "a2")
    assert not asked.answered(30.0 + CONFIRM_S, "a1")
    assert asked.subscription.topics == ("a1", "a2")


def test_what_is_missing_is_looked_up_again_soon() -> None:
    asked = Asked("a1")
    asked.subscription.step(30.0)
    asked.answered(30.0)
    asked.subscription.step(30.0 + CONFIRM_S)
    assert len(asked.questions) == 2
    assert asked.answered(30.0 + CONFIRM_S)
    assert asked.subscription.waits


def test_a_question_that_failed_changes_nothing() -> None:
    asked = Asked("a1")
    assert not asked.subscription.answered(TopicsFound(), 30.0)
    assert not asked.subscription.answered(TopicsFound(), 90.0)
    assert asked.subscription.topics == ("a1",)


def test_topics_that_are_named_stay() -> None:
    asked = Asked("a1", fixed=("b",))
    asked.answered(30.0)
    assert asked.answered(30.0 + CONFIRM_S)
    assert asked.subscription.topics == ("b",)


def test_topics_that_cannot_be_read_are_known_with_the_reason() -> None:
    asked = Asked("a1")
    assert not asked.answered(30.0, "a1", "a2", refused={"a2": "no dead-letter topic"})
    assert asked.subscription.refused == {"a2": "no dead-letter topic"}
    asked.answered(60.0, "a1")
    assert asked.subscription.refused == {}


def test_without_a_pattern_nothing_is_asked_and_the_plan_reads_the_same() -> None:
    plan = growing(Plan(name="c", group="g", topics=("t",)))
    assert plan.subscription == ("t",)
    subscription = Subscription(plan, None, ListMailbox(), 0.0, Events("c", "g", ()))
    subscription.step(1e9)
    assert (subscription.topics, subscription.every) == (("t",), ("t",))


def test_a_topic_for_replays_is_looked_up_once_it_exists_also_without_a_pattern() -> None:
    asked = Asked(fixed=("a",), pattern=None)
    asked.subscription.step(100.0)
    asked.subscription.suspect(100.0)
    asked.subscription.step(101.0, frozenset())
    assert asked.questions == []  # most consumers never ask
    there = frozenset({"a.g.replay"})
    asked.subscription.step(102.0, there)
    asked.subscription.step(110.0, there)
    assert [known for known, _ in asked.questions] == [("a",)]
    tier = Tier("a.g.replay", "a", 0, 3)
    assert asked.answered(111.0, replays={"a.g.replay": tier})
    assert asked.subscription.topics == ("a",)
    assert asked.subscription.every == ("a", "a.g.replay")
    assert asked.plan.reset_of("a.g.replay") == "earliest"
    [told] = asked.told.events
    assert isinstance(told, SubscriptionChanged)
    assert (told.added, told.topics) == (("a.g.replay",), ("a",))
    asked.subscription.step(200.0, frozenset(there))
    assert len(asked.questions) == 1
    assert not asked.answered(201.0, replays={"a.g.replay": tier})


def test_a_topic_for_replays_that_cannot_be_read_yet_is_looked_up_again_at_the_interval() -> None:
    asked = Asked(fixed=("a",), pattern=None)
    for at in (1.0, 2.0, 20.0, 32.0, 33.0):
        asked.subscription.step(at, frozenset({"a.g.replay"}))
        asked.subscription.answered(TopicsFound(), at)
    assert len(asked.questions) == 2


class Group:
    """A check of which the test answers the questions: once a second, for as long as there are any."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked_at: list[float] = []
        plan = Plan(name="c", group="g", topics=("t",), revoke_timeout_s=10)
        self.check = RejoinCheck(plan, self._ask, ListMailbox(), Random(1))
        self._open = False

    def _ask(self, topics: Collection[str], answer: Callable[[frozenset[TopicPartition] | None], None]) -> None:
        assert topics == ("t",)
        self.asked_at.append(self.now)
        self._open = True

    def rejoins(self, seconds: int, *unowned: int, known: bool = True) -> list[float]:
        """For so long these partitions have no owner. When the member joined again, from the beginning of that."""
        begun, found = self.now, []
        for _ in range(seconds):
            self.now += 1.0
            if self.check.step(self.now, ("t",)):
                found.append(self.now - begun)
                self.check.assigned(self.now)
            if self._open:
                self._open = False
                places = frozenset(TopicPartition("t", number) for number in unowned) if known else None
                self.check.answered(UnownedFound(places), self.now)
        return found


def test_a_member_of_a_group_in_which_all_partitions_have_an_owner_asks_once() -> None:
    group = Group()
    assert group.rejoins(60) == []
    assert group.asked_at == []  # before it has an assignment
    group.check.assigned(group.now)
    assert group.rejoins(1000) == []
    group.check.assigned(group.now)
    assert group.rejoins(1000, 1, 2) == []
    assert len(group.asked_at) == 1


def test_it_joins_again_when_partitions_have_no_owner_for_longer_than_a_revoke_takes_and_at_most_three_times() -> None:
    group = Group()
    group.check.assigned(0.0)
    first, second, third = group.rejoins(10_000, 1, 2)
    assert 10 + CONFIRM_S <= first < 20
    assert second - first >= RECHECK_S
    assert third - second >= 2 * RECHECK_S
    asked = len(group.asked_at)
    assert group.rejoins(10_000, 1, 2) == []
    assert len(group.asked_at) == asked


def test_every_contrary_answer_and_every_assignment_starts_the_wait_over() -> None:
    group = Group()
    group.check.assigned(0.0)
    for _ in range(20):
        assert group.rejoins(12, 1, 2) == []
        assert group.rejoins(4, known=False) == []  # the group rebalances
        assert group.rejoins(12, 1, 2) == []
        group.check.assigned(group.now)
        assert group.rejoins(12, 1) == []
        assert group.rejoins(5, 2) == []  # the other one has an owner now
        group.check.assigned(group.now)
    assert len(group.rejoins(20, 2)) == 1
    group.check.assigned(group.now)
    assert group.rejoins(200) == []


def test_a_member_that_may_not_describe_its_group_asks_less_and_less_often() -> None:
    group = Group()
    group.check.assigned(0.0)
    assert group.rejoins(3_600, known=False) == []
    assert 3_600 / (1.5 * RECHECK_S) <= len(group.asked_at) <= 3_600 / RECHECK_S + 30


def test_a_question_without_an_answer_is_asked_again() -> None:
    group = Group()
    group.check.assigned(0.0)
    for now in range(100):
        group.check.step(float(now), ("t",))
    assert len(group.asked_at) == 1 + 99 // REPLY_TIMEOUT_S

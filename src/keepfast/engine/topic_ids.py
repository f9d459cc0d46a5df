"""Which topics the names stand for, looked at again while the consumer runs. Owner: the loop thread.

A topic that is deleted and created again has the old name and other records. The client notices nothing: it continues
at the old offset, and what the new topic has below it would never be read.

An id is believed with care, because a broker may be behind the others: an answer counts only for events before it was
asked for, a question that failed is no answer, and a changed id counts when two answers agree on it. An id that is
missing at the start (the cluster had no controller) is asked for until it is known.

A topic that is deleted, and not created again, is `missing` when two answers agree on that: nothing else would say
why its records do not come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from keepfast.core.events import TopicRecreated
from keepfast.core.ports import Mailbox, TopicIds
from keepfast.engine.events import Events
from keepfast.engine.plan import Plan
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.topics")

CHECK_INTERVAL_S = 60.0
ASK_AGAIN_S = 0.5
"""Between two questions, however many events want an answer."""

REPLY_TIMEOUT_S = 15.0
"""A question that is not answered by then may be asked again."""

CONFIRM_S = 5.0
"""A changed id, or that there is no such topic, counts when it was answered twice, so far apart, with no other answer
in between.
"""

FORMER_S = 60.0
"""So long an answer with the id from before a change is ignored: it comes from a broker that is behind."""


@dataclass(frozen=True, slots=True)
class TopicIdsAnswer:
    """An answer for the loop, as `core.ports.TopicIds` says, and when it was asked for."""

    ids: Mapping[str, str | None]
    asked_at: float


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer about one topic."""

    topic_id: str
    asked_at: float
    at: float


class Identities:
    """`ids` is what is known; who reads or writes commits looks there. `recreated`: topics that have got another id
    since the process started. `missing`: topics that do not exist. `topic_ids` is None where ids are not available:
    then nothing is ever requested.
    """

    def __init__(self, plan: Plan, topic_ids: TopicIds | None, mailbox: Mailbox, now: float, events: Events) -> None:
        self._events = events
        self.ids = dict(plan.topic_ids)
        self.recreated: set[str] = set()
        self.missing: set[str] = set()
        self._name = plan.name
        self._topics = plan.subscription
        self._topic_ids = topic_ids
        self._mailbox = mailbox
        self._answers: dict[str, _Answer] = {}  # the last one of each topic
        self._candidates: dict[str, _Answer] = {}  # the first answer with an id that is not confirmed yet
        self._absent: dict[str, float] = {}  # since when answers say that there is no such topic: not confirmed yet
        self._last_asked_at = float("-inf")  # when the latest answer was asked for
        self._named = frozenset(plan.subscription) - plan.matched  # what a pattern matches comes and goes
        self._former: dict[str, dict[str, float]] = {}  # topic → id → when it was given up
        self._open_since: float | None = None
        self._asked_at = float("-inf")
        self._due_at = now + CHECK_INTERVAL_S if self._is_complete() else now

    def step(self, now: float) -> None:
        """Ask if it is time to."""
        if now < self._due_at or self._topic_ids is None or now - self._asked_at < ASK_AGAIN_S or not self._topics:
            return
        if self._open_since is not None and now - self._open_since < REPLY_TIMEOUT_S:
            return
        self._open_since = self._asked_at = now
        self._due_at = now + (CHECK_INTERVAL_S if self._is_complete() else CONFIRM_S)
        mailbox = self._mailbox
        self._topic_ids.ask(self._topics, lambda ids: mailbox.post(TopicIdsAnswer(ids, now)))

    def follow(self, topics: tuple[str, ...], ids: Mapping[str, str]) -> None:
        """Other topics are read now; these are the ids of those that are new. What is not read is forgotten: should it
        come back, its id counts as at the start.
        """
        for gone in set(self._topics).difference(topics):
            for known in (self.ids, self._answers, self._candidates, self._former, self._absent):
                known.pop(gone, None)
        self.missing.intersection_update(topics)
        self._topics = topics
        for topic in topics:
            if topic not in self.ids and topic in ids:
                self.ids[topic] = ids[topic]

    def suspect(self, now: float) -> None:
        """Something happened that a recreated topic would explain: ask as soon as possible."""
        self._due_at = min(self._due_at, now)

    def lacks(self, topic: str, now: float) -> bool:
        """Whether its id is not known yet: a question is due then. False where ids are not available."""
        if self._topic_ids is None or self.ids.get(topic):
            return False
        self.suspect(now)
        return True

    def belongs(self, topic: str, topic_id: str, since: float) -> bool | None:
        """Whether a commit under this id, found at `since`, is about the topic of today. None: that is not known yet,
        and a question is due.
        """
        known = self.ids.get(topic, "")
        if not known and topic_id and self._topic_ids is not None:
            self.suspect(since)
            return None
        if not topic_id or not known or topic_id == known or _cluster(topic_id) != _cluster(known):
            return True  # of another cluster: the group's offsets were copied here, for this topic
        answer = self._answers.get(topic)
        if self._topic_ids is None or (answer is not None and answer.asked_at >= since and answer.topic_id == known):
            return False
        if answer is None or answer.asked_at < since:
            self.suspect(since)
        return None

    def answered(self, answer: TopicIdsAnswer, now: float) -> list[str]:
        """An answer is there. Returns the topics that are not what they were."""
        if answer.asked_at == self._open_since:
            self._open_since = None
        changed = [
            name
            for name, topic_id in answer.ids.items()
            if topic_id and self._heard(name, topic_id, answer.asked_at, now)
        ]
        self._note_absent(answer)
        for since in (*(one.at for one in self._candidates.values()), *self._absent.values()):
            until_s = since + CONFIRM_S - now  # negative while questions fail: each is as long after the one before
            self._due_at = min(self._due_at, now + abs(until_s))
        return changed

    def _note_absent(self, answer: TopicIdsAnswer) -> None:
        """Which topics do not exist."""
        if answer.asked_at < self._last_asked_at:
            return  # overtaken by a later answer
        self._last_asked_at = answer.asked_at
        for name, topic_id in answer.ids.items():
            if topic_id is not None:
                self._absent.pop(name, None)
                self.missing.discard(name)
            elif name in self._topics and name in self._named and name not in self.missing:
                self._note_absence(name, answer.asked_at)

    def _note_absence(self, name: str, asked_at: float) -> None:
        if asked_at - self._absent.setdefault(name, asked_at) < CONFIRM_S:
            return
        del self._absent[name]
        self.missing.add(name)
        consequence = "nothing of it is read until it is created again"
        log.warning("topic_missing", consumer=self._name, topic=name, consequence=consequence)

    def _is_complete(self) -> bool:
        return all(map(self.ids.get, self._topics))

    def _heard(self, name: str, topic_id: str, asked_at: float, now: float) -> bool:
        """Whether this answer shows that the topic was recreated."""
        if name not in self.ids:  # as an answer at the start: what is known from now on, but no decision yet
            self.ids[name] = topic_id
            return False
        known = self.ids[name]
        before = self._answers.get(name)
        given_up_at = self._former.get(name, {}).get(topic_id)
        if (before is not None and asked_at < before.asked_at) or (
            given_up_at is not None and now - given_up_at < FORMER_S
        ):
            return False  # overtaken by a later answer, or from a broker that is behind
        answer = self._answers[name] = _Answer(topic_id, asked_at, now)
        if topic_id == known:
            self._candidates.pop(name, None)
            return False
        first = self._candidates.get(name)
        if first is None or first.topic_id != topic_id:
            self._candidates[name] = answer
            return False
        if asked_at - first.at < CONFIRM_S:
            return False
        del self._candidates[name]
        self._former.setdefault(name, {})[known] = now
        self.ids[name] = topic_id
        self.recreated.add(name)
        self._events.emit(TopicRecreated(*self._events.source, topic=name, old_id=known, new_id=topic_id))
        return True


def _cluster(topic_id: str) -> str:
    """Ids are `<id>@<cluster>`, as far as the cluster is known."""
    return topic_id.partition("@")[2]

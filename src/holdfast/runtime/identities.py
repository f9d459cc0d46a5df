"""Which topics the names stand for, looked at again while the consumer runs. Owner: the loop thread.

A topic that is deleted and made anew has the old name and other records. The client notices nothing: it goes on at the
old offset, and what the new topic has below it would never be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.core.ports import Mailbox, TopicIds
from holdfast.observe.logs import get_logger
from holdfast.runtime.plan import Plan

log = get_logger("holdfast.identities")

LOOK_EVERY_S = 60.0
FRESH_S = 10.0
"""What was heard so recently need not be asked for again."""

PATIENCE_S = 15.0
"""A question that is not answered by then may be asked again."""


@dataclass(frozen=True, slots=True)
class TopicsTold:
    """Word to the loop: these are the topics' ids."""

    ids: Mapping[str, str]


class Identities:
    """`ids` is what is known; everybody who reads or writes commits looks there."""

    def __init__(self, plan: Plan, topic_ids: TopicIds | None, mailbox: Mailbox, now: float) -> None:
        self.ids = dict(plan.topic_ids)
        self._topics = plan.subscription
        self._topic_ids = topic_ids
        self._mailbox = mailbox
        self._former: dict[str, set[str]] = {}
        self._asked_at: float | None = None
        self._heard_at = now
        self._due_at = now + LOOK_EVERY_S

    def step(self, now: float) -> None:
        """Ask if it is time to."""
        if now < self._due_at or self._topic_ids is None or not self.ids:
            return
        if self._asked_at is not None and now - self._asked_at < PATIENCE_S:
            return
        self._asked_at = now
        self._due_at = now + LOOK_EVERY_S
        mailbox = self._mailbox
        self._topic_ids.ask(self._topics, lambda ids: mailbox.post(TopicsTold(ids)))

    def suspect(self, now: float) -> None:
        """Something happened that a topic made anew would explain: ask now, unless that was done a moment ago."""
        if self._asked_at is None and now - self._heard_at >= FRESH_S:
            self._due_at = now

    def belongs(self, topic: str, topic_id: str, now: float) -> bool | None:
        """Whether something that was written down under this id is about the topic of today. None: that cannot be said
        yet, and somebody is being asked.
        """
        known = self.ids.get(topic, "")
        if not topic_id or not known or topic_id == known or _cluster(topic_id) != _cluster(known):
            return True  # of another cluster: somebody has brought the group's offsets here, for this topic
        if topic_id in self._former.get(topic, ()) or self._topic_ids is None or now - self._heard_at < FRESH_S:
            return False
        self.suspect(now)
        return None

    def told(self, word: TopicsTold, now: float) -> list[str]:
        """The answer is there. Returns the topics that are not what they were.

        An id that was given up before is no news: a broker may be behind the others.
        """
        self._asked_at = None
        self._heard_at = now
        changed = []
        for name, topic_id in word.ids.items():
            known = self.ids.setdefault(name, topic_id)
            former = self._former.setdefault(name, set())
            if topic_id != known and topic_id not in former:
                former.add(known)
                self.ids[name] = topic_id
                changed.append(name)
                log.error("topic_made_anew", topic=name, was=known, is_now=topic_id)
        return changed


def _cluster(topic_id: str) -> str:
    """Ids are `<id>@<cluster>`, as far as the cluster is known."""
    return topic_id.partition("@")[2]

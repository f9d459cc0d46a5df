"""The client's half of the classic group protocol with cooperative rebalancing, as its background thread runs it.

Joining and heartbeats need no poll; only the callbacks do. A member therefore rejoins a rebalance that leaves its
partitions alone without its application noticing more than an empty assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from math import inf

from keepfast.core.records import TopicPartition
from keepfast.testing.fakes.assignor import assign
from keepfast.testing.fakes.broker import FakeBroker
from keepfast.testing.fakes.coordinator import Assignment, Group, Identity, Joined
from keepfast.testing.fakes.operations import AssignOp, ErrorOp, LostOp, Operations, RevokeOp
from keepfast.testing.fakes.process import Process
from keepfast.testing.fakes.wire import Channel, Failure

REJOIN_DELAY_S = 0.1
RENEW_S = 1.0
"""How long after its end a client is replaced."""


class Phase(Enum):
    """Where a member stands."""

    OUT = auto()
    JOINING = auto()
    SYNCING = auto()
    CALLBACK = auto()
    STEADY = auto()
    FENCED = auto()


class Membership:
    """One member. `owned` is what it claims when it joins; the source reports each callback it has served."""

    def __init__(
        self,
        process: Process,
        broker: FakeBroker,
        channel: Channel,
        operations: Operations,
        *,
        group: Group,
        instance_id: str | None,
        suspend: Callable[[], None],
        may_rejoin: Callable[[], bool],
    ) -> None:
        self._process = process
        self._broker = broker
        self._channel = channel
        self._operations = operations
        self._group = group
        self._instance_id = instance_id
        self._suspend = suspend
        self._may_rejoin = may_rejoin
        self._topics: tuple[str, ...] = ()
        self._attempt = 0
        self._beating = self._ticking = False
        self._serving = False
        self._lost_meanwhile = False
        self._leaving = False
        self._rejoin = False
        self._releasing = False
        self._added: tuple[TopicPartition, ...] = ()
        self._beat_at = 0.0
        self.phase = Phase.OUT
        self.polled_at = inf
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[TopicPartition, ...] = ()

    def identity(self) -> Identity:
        return Identity(self._process.name, self.member_id, self.generation, self._instance_id)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Again: the next generation is about the new topics, and partitions of others are given up in it."""
        self._topics = tuple(topics)
        self.polled_at = self._now()
        if not topics:
            self._give_up_all()
        elif self.phase in (Phase.OUT, Phase.STEADY):
            self._join()
        else:
            self._rejoin = True
        if topics and not self._ticking:
            self._ticking = True
            self._process.later(self._broker.settings.heartbeat_s, self._tick)

    def _give_up_all(self) -> None:
        if self.owned and self.phase is not Phase.FENCED:
            self._attempt += 1
            self.phase = Phase.CALLBACK
            self._suspend()
            self._operations.append(RevokeOp(self.owned))
        elif self.member_id:
            self.leave()

    def polled(self) -> None:
        if self.phase is Phase.OUT and self._topics:
            self._join()

    def serving(self) -> None:
        """A rebalance callback begins."""
        self._serving = True

    def assigned(self, places: Sequence[TopicPartition]) -> None:
        """on_assigned has returned."""
        self._serving = False
        self.owned = tuple(sorted({*self.owned, *places}))
        self._settle()

    def released(self, places: Sequence[TopicPartition]) -> None:
        """on_revoked has returned, the partitions are released."""
        self._serving = False
        self.owned = tuple(place for place in self.owned if place not in places)
        if not self._topics:
            self.leave()
            return
        self._rejoin = self._releasing = True
        self._settle()

    def forgotten(self) -> None:
        """on_lost has returned."""
        self._serving = False
        self.owned = ()
        self._lost_meanwhile = False
        self._releasing = True
        self._join()

    def commit_answered(self) -> None:
        """A client that released partitions delays its rejoin until its commits are answered."""
        if self.phase is Phase.STEADY and self._rejoin:
            self._join()

    def stop_joining(self) -> None:
        """The client is being closed: rebalances no longer concern it, a loss that is not reported yet does."""
        self._leaving = True
        self._attempt += 1
        for operation in [op for op in self._operations if isinstance(op, AssignOp | RevokeOp)]:
            self._operations.remove(operation)
        if self.phase in (Phase.JOINING, Phase.SYNCING):
            self.phase = Phase.STEADY

    def leave(self, why: str = "left") -> None:
        """Leave the group. A static member does not: its assignment is kept until its session ends."""
        who, self._topics = self.identity(), ()
        self._attempt += 1
        self.phase = Phase.OUT
        if who.member_id and (self._instance_id is None or why != "left"):
            self._send_leave(who, why)

    def renew(self) -> None:
        """The client is replaced: its partitions are lost, and a new one joins."""
        if self.member_id:
            self._send_leave(self.identity(), "renewed")
            self._lose()

    def end_client(self) -> float:
        """The client has ended itself for a reason that passes. Returns when a new one takes its place."""
        self._operations.append(ErrorOp(Failure("GROUP_AUTHORIZATION_FAILED").error("joining the group"), None))
        self._process.later(RENEW_S, lambda: None if self._leaving else self.renew())
        return self._now() + RENEW_S

    def _send_leave(self, who: Identity, why: str) -> None:
        timeout_s = self._broker.settings.request_timeout_s
        self._channel.send(lambda respond: self._group.leave(who, why, respond), lambda _: None, timeout_s=timeout_s)

    def _join(self) -> None:
        if not self._topics or self._leaving or self.phase is Phase.FENCED:
            return
        if all(self._broker.partitions(topic) is None for topic in self._topics):
            self.phase = Phase.OUT  # a client joins when there is something to read
            return
        if self._releasing and not self._may_rejoin():
            self.phase, self._rejoin = Phase.STEADY, True
            return
        self._rejoin = self._releasing = False
        self.phase = Phase.JOINING
        self._attempt += 1
        attempt, who, owned, topics = self._attempt, self.identity(), self.owned, self._topics
        self._channel.send(
            lambda respond: self._group.join(who, topics, owned, respond),
            lambda answer: self._on_join(answer, attempt),
            timeout_s=self._broker.settings.max_poll_interval_s + 5,
            cuts=True,
        )

    def _on_join(self, answer: Failure | Joined, attempt: int) -> None:
        if attempt != self._attempt:
            return
        if isinstance(answer, Failure):
            self._refused(answer.code)
            return
        self.member_id, self.generation = answer.member_id, answer.generation
        self.phase = Phase.SYNCING
        plan: Assignment | None = None
        if answer.claims is not None:
            plan = assign(answer.claims, self._broker.partition_counts())
        who = self.identity()
        self._channel.send(
            lambda respond: self._group.sync(who, plan, respond),
            lambda synced: self._on_sync(synced, attempt),
            timeout_s=self._broker.settings.max_poll_interval_s + 5,
        )

    def _on_sync(self, answer: Failure | tuple[TopicPartition, ...], attempt: int) -> None:
        if attempt != self._attempt:
            return
        if isinstance(answer, Failure):
            self._refused(answer.code)
            return
        self._beat_at = self._now()
        self.phase = Phase.CALLBACK
        self._suspend()
        revoked = tuple(place for place in self.owned if place not in answer)
        self._added = tuple(place for place in answer if place not in self.owned)
        if revoked:
            self._operations.append(RevokeOp(revoked))
        else:
            self._offer()

    def _offer(self) -> None:
        added, self._added = self._added, ()
        self._operations.append(AssignOp(added))

    def _settle(self) -> None:
        """A callback was served: what comes next?"""
        if self._lost_meanwhile:
            self._lost_meanwhile = False
            self._lose()
        elif self._added:
            self._suspend()
            self._offer()
        else:
            self.phase = Phase.STEADY
            if self._rejoin:
                self._join()

    def _refused(self, code: str) -> None:
        if code == "UNKNOWN_MEMBER_ID":
            self._lose()
        elif code == "FENCED_INSTANCE_ID":
            self._fenced()
        elif code in ("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION"):
            self._join()
        else:
            attempt = self._attempt
            self._process.later(REJOIN_DELAY_S, lambda: self._join() if attempt == self._attempt else None)

    def _fenced(self) -> None:
        self.phase = Phase.FENCED
        self._suspend()
        self._operations.append(ErrorOp(Failure("FENCED_INSTANCE_ID").error("the group fenced this member"), None))

    def _lose(self, *, park: bool = False) -> None:
        """The group continues without this member: its partitions are lost, which a poll reports to the application."""
        self._attempt += 1
        self.member_id, self.generation, self._added, self._rejoin = "", -1, (), False
        for operation in [op for op in self._operations if isinstance(op, AssignOp | RevokeOp | LostOp)]:
            self._operations.remove(operation)
        self.phase = Phase.CALLBACK
        if self._serving:
            self._lost_meanwhile = True
        elif self.owned:
            self._suspend()
            self._operations.append(LostOp(self.owned))
        elif park:
            self.phase = Phase.OUT
        else:
            self._join()

    def _tick(self) -> None:
        if not self._topics or self.phase is Phase.FENCED:
            self._ticking = False
            return
        settings, now = self._broker.settings, self._now()
        in_group = self.phase in (Phase.STEADY, Phase.CALLBACK) and self.member_id != ""
        if self.member_id and now - self.polled_at > settings.max_poll_interval_s:
            self._exceeded()
        elif in_group and now - self._beat_at > settings.session_s:
            self._broker.trace.fault("client_session_timeout")
            self._lose()
        elif in_group and not self._beating:
            self._beat()
        self._process.later(settings.heartbeat_s, self._tick)

    def _exceeded(self) -> None:
        self._broker.trace.fault("max_poll_exceeded")
        self._send_leave(self.identity(), "poll_interval")
        self._operations.append(ErrorOp(Failure("_MAX_POLL_EXCEEDED").error("the application did not poll"), None))
        self._lose(park=True)

    def _beat(self) -> None:
        self._beating = True
        who, attempt = self.identity(), self._attempt
        self._channel.send(
            lambda respond: respond(self._group.heartbeat(who)),
            lambda answer: self._on_beat(answer, attempt),
            timeout_s=self._broker.settings.request_timeout_s,
        )

    def _on_beat(self, answer: Failure | str, attempt: int) -> None:
        self._beating = False
        if attempt != self._attempt or isinstance(answer, Failure):
            return
        if answer in ("", "REBALANCE_IN_PROGRESS"):
            self._beat_at = self._now()
        if answer == "REBALANCE_IN_PROGRESS":
            if self.phase is Phase.STEADY:
                self._join()
            else:
                self._rejoin = True
        elif answer == "FENCED_INSTANCE_ID":
            self._fenced()
        elif answer:
            self._lose()

    def _now(self) -> float:
        return self._process.clock.monotonic()

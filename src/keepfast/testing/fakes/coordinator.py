"""The broker's half of the classic group protocol: joins, generations, sessions, fencing and stored commits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from keepfast.core.ports import Position
from keepfast.core.records import TopicPartition
from keepfast.testing.fakes.assignor import Claim
from keepfast.testing.fakes.clock import SimClock, Timer
from keepfast.testing.fakes.settings import WorldSettings
from keepfast.testing.fakes.trace import Evicted, Generation, Trace
from keepfast.testing.fakes.wire import Failure, Gate, Respond

Assignment = Mapping[str, tuple[TopicPartition, ...]]


@dataclass(frozen=True, slots=True)
class Identity:
    """A member: the process's name, its member id ("" before the first join), its generation, its static name."""

    name: str
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a join; `claims` only goes to the leader, who has to assign."""

    member_id: str
    generation: int
    claims: tuple[Claim, ...] | None


class State(Enum):
    """Where the group stands."""

    EMPTY = auto()
    PREPARING = auto()
    COMPLETING = auto()
    STABLE = auto()


@dataclass(slots=True)
class _Member:
    member_id: str
    name: str
    instance_id: str | None
    claim: Claim
    join: Respond | None = None
    sync: Respond | None = None
    session: Timer | None = None
    assignment: tuple[TopicPartition, ...] = ()


@dataclass(slots=True)
class Group:
    """One consumer group. Every method answers through `respond` or returns the refusal's code, "" for none."""

    name: str
    clock: SimClock
    gate: Gate
    trace: Trace
    settings: WorldSettings
    state: State = State.EMPTY
    generation: int = 0
    commits: dict[TopicPartition, Position] = field(default_factory=dict)
    _members: dict[str, _Member] = field(default_factory=dict)
    _leader: str = ""
    _deadline: Timer | None = None
    _numbered: int = 0
    _moving: bool = False

    def join(self, who: Identity, topics: Sequence[str], owned: Sequence[TopicPartition], respond: Respond) -> None:
        if who.member_id and who.member_id not in self._members:
            respond(Failure(self._unknown(who)))
            return
        member = self._members.get(who.member_id)
        if member is None:
            if self._replace_static(who, topics, respond):
                return
            member = self._admit(who, topics)
        member.claim = Claim(member.member_id, tuple(topics), tuple(owned))
        member.join = respond
        if member.session is not None:
            member.session.cancel()
        if self.state is not State.PREPARING:
            self.prepare()
        self._maybe_complete()

    def sync(self, who: Identity, assignment: Assignment | None, respond: Respond) -> None:
        code = self.check(who)
        if not code and self.state is State.PREPARING:
            code = "REBALANCE_IN_PROGRESS"
        if code:
            respond(Failure(code))
            return
        member = self._members[who.member_id]
        self._refresh(member)
        if self.state is State.STABLE:
            respond(member.assignment)
            return
        member.sync = respond
        if who.member_id == self._leader and assignment is not None:
            self.state = State.STABLE
            self._moving = False
            for other in self._members.values():
                other.assignment = assignment.get(other.member_id, ())
                self._moving |= not set(other.claim.owned) <= set(other.assignment)
                reply, other.sync = other.sync, None
                if reply is not None:
                    reply(other.assignment)

    def heartbeat(self, who: Identity) -> str:
        code = self.check(who)
        if code:
            return code
        self._refresh(self._members[who.member_id])
        return "REBALANCE_IN_PROGRESS" if self.state is State.PREPARING else ""

    def leave(self, who: Identity, why: str, respond: Respond) -> None:
        respond("")
        if who.member_id in self._members:
            self._remove(self._members[who.member_id], why)

    def evict(self, name: str) -> None:
        """An operator removes the members of this process; one that is joining is kept."""
        for member in [one for one in self._members.values() if one.name == name and one.join is None]:
            self._remove(member, "by_hand")

    def check(self, who: Identity) -> str:
        """The code with which this member's requests are refused, "" when it is a member of this generation."""
        if who.member_id not in self._members:
            return self._unknown(who)
        return "" if who.generation == self.generation else "ILLEGAL_GENERATION"

    def check_commit(self, who: Identity) -> str:
        """As the broker does: by member and generation only. The owner of the partition is not checked."""
        if who.generation < 0 and self.state is State.EMPTY:
            return ""  # a client outside any generation may commit for a group without members
        code = self.check(who)
        if not code and self.state is State.COMPLETING:
            return "REBALANCE_IN_PROGRESS"
        if not code:
            self._refresh(self._members[who.member_id])
        return code

    def prepare(self) -> None:
        """Begin a rebalance: members learn of it by their heartbeats and have the rebalance time-out to join again."""
        if self.state is State.PREPARING or not self._members:
            return
        self.state = State.PREPARING
        self.trace.fault("rebalance")
        for member in self._members.values():
            reply, member.sync = member.sync, None
            if reply is not None:
                reply(Failure("REBALANCE_IN_PROGRESS"))
        self._deadline = self.gate.after(self.settings.max_poll_interval_s, self._give_up)

    def members(self) -> tuple[str, ...]:
        """Names of the processes the coordinator counts as members."""
        return tuple(member.name for member in self._members.values())

    def _unknown(self, who: Identity) -> str:
        fenced = who.instance_id is not None and any(m.instance_id == who.instance_id for m in self._members.values())
        return "FENCED_INSTANCE_ID" if fenced and who.member_id else "UNKNOWN_MEMBER_ID"

    def _admit(self, who: Identity, topics: Sequence[str]) -> _Member:
        member_id = self._new_id(who.name)
        member = _Member(member_id, who.name, who.instance_id, Claim(member_id, tuple(topics), ()))
        self._members[member_id] = member
        return member

    def _new_id(self, name: str) -> str:
        self._numbered += 1
        return f"{name}-{self._numbered}"

    def _replace_static(self, who: Identity, topics: Sequence[str], respond: Respond) -> bool:
        """A static member is back: in a stable group it resumes its assignment, without a rebalance."""
        old = next((m for m in self._members.values() if who.instance_id and m.instance_id == who.instance_id), None)
        if old is None:
            return False
        # While partitions move, a member has to join again; if that was the old one, they would not move.
        quiet = self.state is State.STABLE and old.claim.topics == tuple(topics) and not self._moving
        if not quiet:
            self._remove(old, "fenced", rebalance=self.state is not State.STABLE)
            return False
        member_id = self._new_id(who.name)
        heir = _Member(member_id, who.name, who.instance_id, Claim(member_id, tuple(topics), ()))
        heir.assignment = old.assignment
        self._drop_timers(old)
        self.trace.add(Evicted(self.clock.monotonic(), self.name, old.name, old.member_id, "fenced"))
        self._members = {heir.member_id if k == old.member_id else k: m for k, m in self._members.items()}
        self._members[heir.member_id] = heir
        self._leader = heir.member_id if self._leader == old.member_id else self._leader
        self._refresh(heir)
        respond(Joined(member_id, self.generation, None))
        return True

    def _give_up(self) -> None:
        for member in [m for m in self._members.values() if m.join is None]:
            self._remove(member, "rebalance", rebalance=False)
        self._maybe_complete()

    def _maybe_complete(self) -> None:
        if self.state is not State.PREPARING or any(m.join is None for m in self._members.values()):
            return
        if self._deadline is not None:
            self._deadline.cancel()
        if not self._members:
            self.state = State.EMPTY
            return
        self.generation += 1
        self.state = State.COMPLETING
        self.trace.add(Generation(self.clock.monotonic(), self.name, self.generation, tuple(self._members)))
        claims = tuple(member.claim for member in self._members.values())
        if self._leader not in self._members:
            self._leader = claims[0].member_id
        for member in self._members.values():
            reply, member.join = member.join, None
            self._refresh(member)
            if reply is not None:
                leads = member.member_id == self._leader
                reply(Joined(member.member_id, self.generation, claims if leads else None))

    def _refresh(self, member: _Member) -> None:
        if member.session is not None:
            member.session.cancel()
        if member.join is None:
            member.session = self.gate.after(self.settings.session_s, self._expiry(member))

    def _expiry(self, member: _Member) -> Callable[[], None]:
        def expire() -> None:
            if self._members.get(member.member_id) is member and member.join is None:
                self._remove(member, "session")

        return expire

    def _drop_timers(self, member: _Member) -> None:
        if member.session is not None:
            member.session.cancel()

    def _remove(self, member: _Member, why: str, *, rebalance: bool = True) -> None:
        self._drop_timers(member)
        del self._members[member.member_id]
        self.trace.add(Evicted(self.clock.monotonic(), self.name, member.name, member.member_id, why))
        if why != "left":
            self.trace.fault(f"evicted_{why}")
        for reply in (member.join, member.sync):
            if reply is not None:
                reply(Failure("FENCED_INSTANCE_ID" if why == "fenced" else "UNKNOWN_MEMBER_ID"))
        if not self._members:
            self.state = State.EMPTY
            self.generation += 1
            if self._deadline is not None:
                self._deadline.cancel()
        elif self.state is State.PREPARING:
            self._maybe_complete()
        elif rebalance:
            self.prepare()

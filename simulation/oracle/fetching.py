"""P16, of fetching: a partition that its client does not fetch is fetched again, and no client is replaced in vain."""

from __future__ import annotations

from keepfast.core.records import TopicPartition
from keepfast.testing.fakes import trace
from keepfast.testing.fakes.broker import FakeBroker
from simulation.member import Member
from simulation.oracle.health import Health
from simulation.oracle.violation import Blame

STALL_S = 35.0
"""The longest time for which records are there and not received, while nothing disturbs the member."""


class FetchRules:
    """Looks at the partitions of each member, and at what is ordered from its client."""

    def __init__(self, broker: FakeBroker, blame: Blame, health: Health) -> None:
        self._broker = broker
        self._blame = blame
        self._health = health
        self._neglected: set[tuple[str, TopicPartition]] = set()
        self._waits: dict[tuple[str, TopicPartition], tuple[int, int, float]] = {}  # epoch, next offset, since when

    def neglected(self, event: trace.Neglected) -> None:
        self._neglected.add((event.member, event.place))

    def refetched(self, event: trace.Refetched) -> None:
        if (event.member, event.place) not in self._neglected:
            self._blame("P16", f"{event.member} fetches {event.place} again, which its client had not neglected")

    def replaced(self, event: trace.ClientReplaced) -> None:
        if all(member != event.member for member, _ in self._neglected):
            self._blame("P16", f"{event.member} replaces its client, which had neglected nothing")

    def probe(self, member: Member, now: float) -> None:
        """Are there records that this member has not received for too long?"""
        disturbed_at = max(self._health.broker_disturbed_at(), self._health.process_disturbed_at(member.name))
        for partition in member.loop.ownership:
            key, log = (member.name, partition.place), self._broker.log(partition.place)
            next_offset = partition.ledger.next_offset
            held = partition.closing or partition.pauses or member.loop.intake.closed or member.process.in_callback
            if log is None or held or not log.has(max(next_offset, log.start)):
                self._waits.pop(key, None)
                continue
            epoch, offset, since = self._waits.get(key, (-1, -1, now))
            if (epoch, offset) != (partition.epoch, next_offset) or disturbed_at > since:
                since = now
            self._waits[key] = partition.epoch, next_offset, since
            if now - since > STALL_S:
                text = f"{member.name} has not received anything of {partition.place} from offset {next_offset} on"
                self._blame("P16", f"{text} for {now - since:.0f} s, and there are records")

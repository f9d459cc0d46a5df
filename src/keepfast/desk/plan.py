"""What a replay would do: the records to send, frozen, and the cases left out with the reason. Sends nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from keepfast.core import checks
from keepfast.core.errors import ConfigError, SourceError
from keepfast.core.names import topic_problem
from keepfast.core.replays import replay_topic
from keepfast.deadletters import ours
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import DEFAULT_REPLAY_LIMIT, Case, CaseState
from keepfast.desk.cluster import DeskCluster
from keepfast.desk.facts import PlanItem
from keepfast.desk.index import hash_of_key

MAX_RATE: Final = 1_000_000
MAX_LATER: Final = 100_000
"""Records of the source topics that a plan looks at, for later ones of the same keys."""
MAX_LATER_OF_ONE: Final = 10_000
"""The same, for one record that is looked at."""
MAX_REASONS: Final = 100
OTHER: Final = "for other reasons"
MARKED: Final = (CaseState.DISCARDED, CaseState.PERMANENTLY_FAILED, CaseState.ARCHIVED)

PartitionCount = Callable[[str], int | None]
"""How many partitions a topic has; None if there is no such topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPolicy:
    """How records are sent back. Raises ConfigError.

    `to` "topic": to the original topic and partition, where every group reads them; "group": to
    `<topic>.<group>.replay`, which only the group of the case reads; None: not chosen, which is an error where other
    groups read the topic. `topic`: to this topic instead, and the key decides about the partition. Timestamps are those
    of the sending unless `keep_timestamp`: with the original one, a topic with a retention time may delete a replayed
    record before it is read.
    """

    to: Literal["topic", "group"] | None = None
    topic: str | None = None
    rate_per_s: float | None = None
    canary: int = 0
    """Send so many first, and the rest only after all of these were processed."""
    stop_if_failing: float | None = None
    """Stop when more than so many percent of what was processed has failed again."""
    limit: int = DEFAULT_REPLAY_LIMIT
    """A case that was replayed this often is left out."""
    again: bool = False
    """Also send cases that are being replayed, or are resolved."""
    keep_timestamp: bool = False
    inexact: bool = False
    """Also send records whose original bytes are known only as far as JSON preserves them."""
    transform: str = ""
    """`module:function`, applied to each record before it is sent."""

    def __post_init__(self) -> None:
        percent = self.stop_if_failing
        problems = {
            "limit": checks.whole(self.limit, 1, 1_000_000),
            "canary": checks.whole(self.canary, 0, 1_000_000),
            "rate": None if self.rate_per_s is None else checks.number(self.rate_per_s, 0, MAX_RATE, above=True),
            "stop_if_failing": None if percent is None else checks.number(percent, 0, 100),
        }
        found = [f"{name} {problem}." for name, problem in problems.items() if problem]
        if self.to == "group" and self.topic is not None:
            found.append("--to group chooses the topic itself; leave out --topic, or leave out --to.")
        if found:
            raise ConfigError(*found)

    def fields(self) -> dict[str, Any]:
        """What differs from the defaults, for the fact of a run."""
        default = asdict(ReplayPolicy())
        return {name: value for name, value in asdict(self).items() if value != default[name]}

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> ReplayPolicy:
        """From the fact of a run. Raises ConfigError."""
        known = {name: value for name, value in fields.items() if name in cls.__dataclass_fields__}
        return cls(**known)

    @property
    def to_group(self) -> bool:
        return self.to == "group"

    def words(self) -> list[str]:
        """The same policy in the words of the command line."""
        words = [f"--to {self.to}"] if self.to else []
        words += [f"--topic {self.topic}"] if self.topic else []
        words += [f"--rate {self.rate_per_s:g}/s"] if self.rate_per_s is not None else []
        words += [f"--canary {self.canary}"] if self.canary else []
        words += [f"--stop-if-failing {self.stop_if_failing:g}"] if self.stop_if_failing is not None else []
        words += [f"--max-replays {self.limit}"] if self.limit != DEFAULT_REPLAY_LIMIT else []
        words += [f"--transform {self.transform}"] if self.transform else []
        flags = {"--again": self.again, "--keep-timestamp": self.keep_timestamp, "--inexact": self.inexact}
        return words + [flag for flag, given in flags.items() if given]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """The dry run: which records would be sent where, and what is left out. The selection is frozen."""

    dlq: str
    where: CaseFilter
    policy: ReplayPolicy
    items: tuple[PlanItem, ...]
    cases: int
    """Cases that these records are sent for: more than records where several groups have failed at one record."""
    destinations: Mapping[str, int]
    excluded: Mapping[str, int]
    """Reason → how many cases."""
    groups: frozenset[str]
    """Groups of the chosen cases."""
    other_readers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Destination → other groups that read it, and get the records too."""
    readers_known: bool = True
    later: int | None = None
    """Records with a later record of the same key in their topic: replaying applies older state. None: not looked."""
    later_partial: bool = False
    """Not all later records were looked at."""
    unreported: int = 0
    """Cases without a group: what becomes of them is not reported."""

    @property
    def records(self) -> int:
        return len(self.items)

    @property
    def left_out(self) -> int:
        return sum(self.excluded.values())

    @property
    def must_choose(self) -> bool:
        """Whether other groups read a destination, and it was not chosen that they may get the records."""
        return self.policy.to is None and self.policy.topic is None and bool(self.other_readers)

    @property
    def choice(self) -> str:
        """What to choose, in words."""
        readers = "; ".join(
            f"{topic} is also read by {', '.join(some[:5])}" for topic, some in self.other_readers.items()
        )
        own = ", ".join(sorted(self.groups))
        return f"{readers}. Choose who gets the records: --to topic (all of them) or --to group (only {own})."

    def duration_s(self) -> float | None:
        """How long sending takes at the chosen rate; None without one."""
        return None if self.policy.rate_per_s is None else self.records / self.policy.rate_per_s


class Planner:
    """Collects cases into a plan. Cases of one record are sent once; with `to="group"`, once for each group."""

    def __init__(self, dlq: str, policy: ReplayPolicy, partitions_of: PartitionCount) -> None:
        self._dlq = dlq
        self._policy = policy
        self._partitions_of = partitions_of
        self._known: dict[str, int | None] = {}
        self._chosen: dict[str, list[Case]] = {}
        self.excluded: Counter[str] = Counter()
        self.groups: set[str] = set()
        self.destinations: Counter[str] = Counter()

    def add(self, case: Case) -> None:
        problem = self._problem(case)
        if problem:
            known = problem in self.excluded or len(self.excluded) < MAX_REASONS
            self.excluded[problem if known else OTHER] += 1
            return
        record = case.id if self._policy.to_group else case.id.removeprefix(case.group)
        self._chosen.setdefault(record, []).append(case)
        if case.group:
            self.groups.add(case.group)

    def items(self) -> Iterator[PlanItem]:
        """In the order of the original records, which is that of each key."""
        for cases in sorted(self._chosen.values(), key=_order):
            self.destinations[destination(cases[0], self._policy)] += 1
            place = cases[0].letter
            yield PlanItem(place.partition, place.offset, tuple((one.id, one.replays + 1) for one in cases))

    @property
    def chosen(self) -> Iterable[Case]:
        return (case for cases in self._chosen.values() for case in cases)

    def _problem(self, case: Case) -> str:
        policy = self._policy
        if case.state in MARKED:
            return f"{case.state.replace('-', ' ')} (`keepfast dlq restore` takes that back)"
        if case.state is not CaseState.OPEN and not policy.again:
            return f"{case.state} already (--again sends them once more)"
        if case.replays >= policy.limit:
            return f"replayed {case.replays} times already (--max-replays {case.replays + 1} allows it once more)"
        if not case.exact and not policy.inexact:
            return "the original bytes are not known exactly (--inexact sends them as far as they are known)"
        return self._destination_problem(case)

    def _destination_problem(self, case: Case) -> str:
        policy = self._policy
        if policy.to_group and not (case.group and case.topic and case.offset is not None):
            return "the letter does not name its group and record (--to topic sends to every group)"
        if policy.to_group and not case.own:
            return "another program wrote the letter, and reads no topic for replays (--to topic sends to every group)"
        if not case.topic and not policy.topic:
            return "the original topic is not known (--topic names one)"
        topic = policy.topic or case.topic
        if topic == self._dlq:
            return f"it would go into {topic} itself, among the letters"
        if topic.startswith("__"):
            return f"topic {topic} is Kafka's own"
        if topic not in self._known:
            self._known[topic] = self._partitions_of(topic)
        count = self._known[topic]
        if count is None:
            return f"topic {topic} does not exist (--topic names another)"
        if policy.topic is None and not policy.to_group and (case.partition or 0) >= count:
            return f"topic {topic} has no partition {case.partition} any more (with --topic {topic} the key decides)"
        return ""


def settled_since(state: CaseState, replays: int, n: int, policy: ReplayPolicy) -> str:
    """Why a case that was planned as its n-th replay is not sent any more; empty: it is sent. With `again`, what other
    runs had sent before the plan does not matter, but what they have sent since does.
    """
    elsewhere = replays >= n
    if state in MARKED or (state is not CaseState.OPEN and (elsewhere or not policy.again)):
        return f"{state.replace('-', ' ')} since the run was planned"
    if elsewhere and replays >= policy.limit:
        return f"replayed {replays} times already"
    return ""


def destination(case: Case, policy: ReplayPolicy) -> str:
    if policy.to_group:
        return replay_topic(case.topic, case.group)
    return policy.topic or case.topic


def _order(cases: list[Case]) -> tuple[str, int, int, int, int]:
    first = cases[0]
    known = first.offset is not None
    return (first.topic, first.partition or 0, (first.offset or 0) if known else -1, *first.letter[1:])


def other_readers(
    cluster: DeskCluster, planner: Planner, policy: ReplayPolicy
) -> tuple[dict[str, tuple[str, ...]], bool]:
    if policy.to_group or not planner.destinations:
        return {}, True
    try:
        found = cluster.readers(set(planner.destinations))
    except SourceError:
        return {}, False
    others = {topic: tuple(sorted(groups - planner.groups)) for topic, groups in found.items()}
    return {topic: groups for topic, groups in others.items() if groups}, True


def later_records(cluster: DeskCluster, planner: Planner) -> tuple[int, bool]:
    """How many of the chosen records have a later one with the same key in their topic that is not chosen: those that
    are come after it again.
    """
    last: dict[tuple[str, int], dict[str, set[int]]] = {}
    for case in planner.chosen:
        if case.key_hash and case.partition is not None and case.offset is not None:
            last.setdefault((case.topic, case.partition), {}).setdefault(case.key_hash, set()).add(case.offset)
    later, left, partial = 0, MAX_LATER, False
    for (topic, partition), keys in last.items():
        low, high = cluster.spans(topic).get(partition, (0, 0))
        begin = max(low, min(offset for offsets in keys.values() for offset in offsets) + 1)
        end = min(high, begin + left)
        partial, left = partial or end < high, left - max(0, end - begin)
        newest: dict[str, int] = {}
        for record in cluster.read(topic, {partition: (begin, end)}):
            key = "" if record.key is None else hash_of_key(record.key)
            if key in keys and record.offset not in keys[key] and not ours.replays(record.headers):
                newest[key] = record.offset
        later += sum(offset < newest.get(key, -1) for key, offsets in keys.items() for offset in offsets)
    return later, partial


@dataclass(frozen=True, slots=True)
class LaterRecords:
    """Records behind one of the same key, in its topic. `newest`: the offset of the last; `processed`: whether the
    group has committed past that. `partial`: not all records were looked at.
    """

    count: int
    newest: int
    processed: bool
    partial: bool = False


def later_of(cluster: DeskCluster, case: Case) -> LaterRecords | None:
    """Later records of the same key as a case; None if there are none, or where that cannot be known. Raises
    SourceError.
    """
    if not case.key_hash or case.partition is None or case.offset is None:
        return None
    if topic_problem(case.topic) or cluster.topics([case.topic])[case.topic] is None:  # a letter may name anything
        return None
    low, high = cluster.spans(case.topic).get(case.partition, (0, 0))
    begin = max(low, case.offset + 1)
    end = min(high, begin + MAX_LATER_OF_ONE)
    found = [
        record.offset
        for record in cluster.read(case.topic, {case.partition: (begin, end)})
        if record.key is not None and hash_of_key(record.key) == case.key_hash and not ours.replays(record.headers)
    ]
    if not found:
        return None
    committed = cluster.committed(case.group, [(case.topic, case.partition)]) if case.group else {}
    processed = (committed.get((case.topic, case.partition)) or 0) > found[-1]
    return LaterRecords(len(found), found[-1], processed, partial=end < high)

"""What one seed is about: how the consumer is configured, what its records look like, and what goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

from keepfast.core.commit_metadata import WINDOW
from keepfast.core.guards import BreakerPolicy, RatePolicy, StormPolicy
from keepfast.core.policies import BatchPolicy, BufferPolicy, CommitPolicy, Order, RetryPolicy
from keepfast.core.retry_topics import Tier, Tiers, topic_name
from keepfast.core.timeouts import TimeoutPolicy
from keepfast.testing.fakes.settings import WorldSettings

GROUP = "g"

FAULTS = (
    "crash", "crash_soon", "stop", "freeze", "cut_off", "commits", "reads", "sends", "join", "leave", "delete", "gaps",
    "compact", "recreate", "grow",
)  # fmt: skip
"""What may be done to the world; each seed takes some of it."""

RARE = ("recreate", "grow", "cut_off")

TROUBLES = ("flaky", "doomed", "later", "reject", "decode", "discard", "halt")
"""What a handler may do other than succeed."""

TIERED = 0.3
"""The share of seeds with retry topics."""

REFUSED = 0.3
"""The share of seeds in which commits of single partitions are refused."""

FILTERED = 0.3
"""The share of seeds with a filter, of those that may have one."""

RECORDED = 0.5
"""The share of seeds with flight recorders."""

DELAYED = 0.25
"""The share of seeds in which commits are delivered late, of those that may have it."""

Keys = Literal["few", "many", "null", "mixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Every choice of a seed that does not depend on what happens."""

    order: Order
    commit: CommitPolicy
    retry: RetryPolicy
    buffer: BufferPolicy
    sweep: int
    capacity: int
    window: int
    reset: Literal["earliest", "latest"]
    revoke_timeout_s: float
    shutdown_timeout_s: float
    max_deliveries: int | None
    alone_s: float
    """How long a record that may be a killer is waited for."""
    recorder: bool = False
    """Processes note what they have in flight, and find what others noted: they are on one host."""
    killers: int
    """So many records kill their process, whenever they are handled."""
    threads: bool
    """Runs are walked in one go, as by a thread that is not interrupted; else record by record, as by a coroutine."""
    members: int
    static: bool
    partitions: dict[str, int]
    later: tuple[str, ...] = ()
    """Those among the topics that do not exist yet when the group starts: it reads by a pattern."""
    keys: Keys
    pace: tuple[float, float]
    """Bounds of a handler's time in seconds."""
    slow: float
    """The share of records that take seconds."""
    trouble: float
    """The share of records that fail somehow."""
    troubles: tuple[str, ...]
    faults: tuple[str, ...]
    late_commits: bool = False
    """Connections break with a commit on its way, which arrives seconds after its copy."""
    refused_s: tuple[float, ...] = (1.0, 4.0, 12.0)
    """How long commits of a partition are refused: one of these."""
    tiers: tuple[int, ...] = ()
    """Delays of the retry topics in seconds; most seeds have none."""
    left_over: int = 0
    """So many records lie in each retry topic before the group starts, and it has no commits."""
    churn: tuple[str, ...]
    """More of the same: members that come and go in order, which is what makes partitions move."""
    chaos_s: float
    records: int
    world: WorldSettings
    breaker: BreakerPolicy | None = None
    storm_guard: StormPolicy | None = None
    rate: RatePolicy | None = None
    outages: tuple[str, ...] = ()
    """What befalls the service that the handler calls, now and then."""
    spool: bool = False
    torn: bool = False
    """The power goes again and again while its disk, which has room, is written to."""
    batch: BatchPolicy | None = None
    """The handler takes lists."""
    atomic: bool = False
    header_bytes: int = 0
    """The least size of the header that every record has."""
    names: bool = False
    """It says which of them are bad."""
    timeout: TimeoutPolicy = field(default_factory=TimeoutPolicy)
    hang: float = 0.0
    """The share of records whose handler takes longer than it may, or never ends."""
    stuck: int = 0
    """So many handlers, without a time limit, do not end by themselves: see `Entry.stuck`."""
    cancels: bool = False
    """Something in the process cancels worker coroutines, at a record or idle. They are the engine's own then."""
    filters: bool = False
    """A filter drops some of the records; not of batches, and not where guards look for successes."""
    sends: bool = False
    """Handlers send records with `ctx.send`; only where `cancels` or `once`."""
    once: bool = False
    """Commits are transactions."""
    inbox: bool = False
    """Effects are in a database, with the identities of their records."""
    manners: tuple[str, ...] = ("polite",)
    """What a coroutine does when it is cancelled: ends, returns as if nothing were, continues; or it blocks its loop.
    """

    @property
    def inline(self) -> bool:
        """Whether the loop's own thread may walk runs: they are of one record each, which waits for its commit."""
        one_by_one = self.order == "partition" and self.commit.mode == "each" and self.batch is None
        other = self.stuck or self.sends or self.inbox or self.cancels or self.timeout.timeout_s is not None
        return self.threads and one_by_one and not other

    def retry_topics(self) -> Tiers | None:
        """As the engine gets them."""
        if not self.tiers:
            return None
        topics = {
            (name := topic_name(source, GROUP, delay_s)): Tier(name, source, delay_s, partitions)
            for source, partitions in self.partitions.items()
            for delay_s in self.tiers
        }
        return Tiers(group=GROUP, delays_s=self.tiers, topics=topics)


def setup_for(seed: int) -> Setup:
    """The setup of a seed: always the same for the same seed.

    Most seeds take a bit of everything; every fourth moves partitions in order, with little else going wrong, every
    fourth loses them, every eighth deletes records that were not read yet, every sixteenth recreates topics. About a
    third has retry topics.
    """
    return _with_recorder(seed, _with_refusals(seed, _with_tiers(seed, _setup_for(seed))))


def _with_refusals(seed: int, setup: Setup) -> Setup:
    """In some seeds commits of single partitions are refused: chosen apart, so that the others stay what they are."""
    rng = Random(seed * 19 + 11)
    return replace(setup, faults=(*setup.faults, "refuse")) if rng.random() < REFUSED else setup


def changing(setup: Setup, seed: int) -> Setup:
    """Some seeds read from the end a topic that gets more partitions, or is recreated while requests for its id fail,
    for everybody or for those that run.

    Chosen apart, and last: the other seeds stay what they are.
    """
    if setup.hang:
        return setup
    if seed % 10 == 7:
        few = {topic: min(count, 3) for topic, count in setup.partitions.items()}
        return replace(setup, reset="latest", partitions=few, faults=(*setup.faults, "grow", "grow", "join", "leave"))
    if seed % 10 == 3:
        return replace(setup, reset="latest", faults=(*setup.faults, "recreate", "ids", "join", "leave"))
    if seed % 60 in (29, 32, 35, 44):
        return replace(
            setup,
            reset="latest",
            faults=("unnoticed", "gaps"),
            churn=(),
            chaos_s=max(14.0, setup.chaos_s),
            members=2,
            static=False,
            killers=0,
            spool=False,
        )
    return setup


def filtering(setup: Setup, seed: int) -> Setup:
    """Some seeds have a filter. Chosen apart, and last: the other seeds stay what they are."""
    others = (setup.batch, setup.breaker, setup.storm_guard, setup.rate, setup.outages, setup.sends, setup.cancels)
    return replace(setup, filters=not any(others) and Random(seed * 29 + 17).random() < FILTERED)


def ending_clients(setup: Setup, seed: int) -> Setup:
    """In some seeds clients end themselves, and others take their place. Chosen apart, and last: the other seeds stay
    what they are. Not beside refused partitions: one whose commits are refused keeps the count of a suspect's start,
    and the others do not wait for that (docs/known-gaps.md).
    """
    others = setup.static or setup.hang or setup.once or "refuse" in setup.faults
    chosen = seed % 60 in (16, 39, 51) and not others
    return replace(setup, faults=(*setup.faults, "clients", "clients", "join", "leave")) if chosen else setup


def hanging_producers(setup: Setup, seed: int) -> Setup:
    """In a fifth of the seeds with transactions a producer's call does not return. Chosen apart, and last: the other
    seeds stay what they are.
    """
    return replace(setup, faults=(*setup.faults, "hang", "hang")) if setup.once and seed % 5 == 4 else setup


def walking(setup: Setup, seed: int) -> Setup:
    """In some seeds the loop's own thread runs the handlers, of few partitions. Chosen apart, and last: the other seeds
    stay what they are.
    """
    walked = replace(
        setup,
        threads=True,
        order="partition",
        commit=CommitPolicy(mode="each"),
        pace=(1e-6, 4e-5),
        partitions=dict.fromkeys(setup.partitions, 1 + seed // 20 % 2),
        buffer=BufferPolicy(),
        sweep=500,
        trouble=setup.trouble / 4,
        world=replace(setup.world, latency_s=(0.0001, 0.0028), fetch_records=100, prefetch_records=200),
    )
    return walked if seed % 20 in (4, 13) and walked.inline and not (setup.rate or setup.once or setup.hang) else setup


def _with_tiers(seed: int, setup: Setup) -> Setup:
    """Some seeds have retry topics: chosen apart, so that the others stay what they are."""
    rng = Random(seed * 7 + 5)
    if rng.random() >= TIERED:
        return setup
    return replace(
        setup,
        tiers=rng.choice(((1,), (1, 2), (1, 1), (2, 1))),
        retry=setup.retry if setup.retry.max_retries is not None else replace(setup.retry, max_retries=1),
        trouble=max(setup.trouble, 0.3),
        troubles=tuple(dict.fromkeys((*setup.troubles, "flaky", "doomed"))),
        faults=(*setup.faults, "forge"),
    )


def _setup_for(seed: int) -> Setup:
    rng = Random(seed * 2 + 1)
    setup = _with_crash_guard(_mixed(rng), Random(seed * 2 + 2))
    if seed % 4 == 2:
        return replace(
            setup,
            faults=tuple(fault for fault in ("commits", "sends", "reads", "gaps") if rng.random() < 0.3),
            churn=("join", "leave"),
            members=rng.choice((2, 3)),
            capacity=rng.choice((1, 2, 16)),
            slow=rng.choice((0.0, 0.04, 0.08)),
            revoke_timeout_s=rng.choice((0.1, 0.3, 3.0)),
            commit=replace(setup.commit, every_s=1.0, every_records=10_000),
            pace=rng.choice((setup.pace, (0.02, 0.25))),  # so that something is in flight when a partition goes
        )
    if seed % 4 == 3:
        return replace(
            setup,
            faults=("cut_off", "stop", *(fault for fault in ("freeze", "sends", "delete") if rng.random() < 0.3)),
            churn=(),
            members=rng.choice((1, 2)),
            capacity=rng.choice((1, 1, 2, 4)),
            slow=rng.choice((0.02, 0.05)),
            trouble=0.4,
            troubles=("flaky", "doomed", rng.choice(TROUBLES)),
        )
    if seed % 16 == 12:
        return replace(
            setup,
            faults=("recreate", *(fault for fault in ("gaps", "crash_soon", "commits", "stop") if rng.random() < 0.4)),
            reset="latest" if seed % 32 == 12 else "earliest",
        )
    if seed % 8 == 5:
        return replace(
            setup,
            faults=("delete", "delete", *(fault for fault in ("stop", "gaps", "reads") if rng.random() < 0.3)),
            churn=(),
            members=rng.choice((1, 2)),
            buffer=BufferPolicy(records=rng.choice((3, 10))),
            slow=rng.choice((0.02, 0.05)),
        )
    return setup


def _with_crash_guard(setup: Setup, rng: Random) -> Setup:
    """A quarter of the seeds has killers. What else goes wrong in a seed does not depend on it."""
    if rng.random() < 0.25:
        return replace(
            setup,
            max_deliveries=rng.choice((1, 2, 3)),
            alone_s=rng.choice((300.0, 300.0, 1.5)),
            killers=rng.choice((1, 2, 4)),
        )
    return replace(setup, max_deliveries=rng.choice((3, 3, 3, 1, None)))


def _with_recorder(seed: int, setup: Setup) -> Setup:
    """Half of the seeds have flight recorders: chosen apart, so that the others stay what they are."""
    return replace(setup, recorder=True) if Random(seed * 23 + 13).random() < RECORDED else setup


def _mixed(rng: Random) -> Setup:
    order: Order = rng.choice(("partition", "key", "key", "none"))
    reset: Literal["earliest", "latest"] = "latest" if rng.random() < 0.12 else "earliest"
    faults = tuple(fault for fault in FAULTS if rng.random() < (0.2 if fault in RARE else 0.45))
    return Setup(
        order=order,
        commit=CommitPolicy(
            mode=rng.choice(("each", "interval")),
            every_s=rng.choice((0.1, 0.3, 1.0)),
            every_records=rng.choice((3, 20, 10_000)),
        ),
        retry=_retry(rng),
        buffer=BufferPolicy(records=rng.choice((3, 10, 30, 50)), bytes=rng.choice((60, 400, 1 << 24))),
        sweep=rng.choice((1, 7, 30, 100)),
        capacity=rng.choice((1, 2, 4, 16)),
        window=rng.choice((WINDOW, WINDOW, 24, 64)),
        reset=reset,
        revoke_timeout_s=rng.choice((0.3, 1.0, 3.0)),
        shutdown_timeout_s=rng.choice((1.0, 3.0, 6.0)),
        max_deliveries=3,
        alone_s=300.0,
        killers=0,
        threads=rng.random() < 0.4,
        members=rng.choice((1, 1, 2, 3, 4)),
        static=rng.random() < 0.2,
        partitions=_partitions(rng),
        keys=rng.choice(("few", "many", "null", "mixed")),
        pace=rng.choice(((1e-5, 4e-5), (1e-5, 4e-5), (0.0005, 0.01), (0.005, 0.1), (0.00001, 0.3))),
        slow=rng.choice((0.0, 0.0, 0.02, 0.04)),
        trouble=rng.choice((0.0, 0.1, 0.3, 0.5)),
        troubles=tuple(trouble for trouble in TROUBLES if rng.random() < (0.25 if trouble == "halt" else 0.5)),
        faults=faults,
        churn=rng.choice(((), ("join", "leave") * 2, ("join", "leave") * 5)),
        chaos_s=rng.uniform(4.0, 10.0),
        records=rng.randint(60, 150),
        world=WorldSettings(
            fetch_records=rng.choice((1, 5, 25)),
            prefetch_records=rng.choice((5, 60)),
            latency_s=rng.choice(((0.0003, 0.004), (0.002, 0.05))),
            ack_delay_s=rng.choice(((0.001, 0.05), (0.05, 0.8))),
        ),
    )


def _retry(rng: Random) -> RetryPolicy:
    delay_ms = rng.choice((1.0, 20.0, 150.0))
    if rng.random() < 0.2:
        return RetryPolicy(max_retries=None, initial_delay_ms=delay_ms, max_delay_ms=300, multiplier=1.5)
    return RetryPolicy(
        max_retries=rng.randint(0, 3),
        initial_delay_ms=delay_ms,
        max_delay_ms=500,
        multiplier=rng.choice((1.0, 2.0)),
        max_elapsed_s=0.5 if rng.random() < 0.15 else None,
    )


def _partitions(rng: Random) -> dict[str, int]:
    topics = ("orders",) if rng.random() < 0.7 else ("orders", "payments")
    return {topic: rng.randint(1, 6 if len(topics) == 1 else 3) for topic in topics}


def delaying(setup: Setup, seed: int) -> Setup:
    """The setup with commits that are delivered late, in some of the seeds in which that can do no harm but to repeat
    records: what a commit says about crashes and seeks is out of date then, and a transaction has no second copy.
    Drawn apart, so that the other seeds are what they were without.
    """
    harmed = setup.once or setup.killers or setup.recorder or "seek" in (*setup.faults, *setup.churn)
    return setup if harmed or Random(seed * 31 + 21).random() >= DELAYED else replace(setup, late_commits=True)

"""Seeds that are about one thing which hardly ever happens by chance in the others."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from keepfast.core.guards import StormPolicy
from keepfast.core.policies import BatchPolicy, BufferPolicy, CommitPolicy
from keepfast.core.timeouts import TimeoutPolicy
from simulation.setup import Setup

SUSPECTS = (21, 45, 55)
LARGE_HEADERS = (41, 51)
TORN = (8, 50)
REFUSED = (19, 39, 59)
DELETED = (16, 54)
SOUGHT = (10, 34, 40, 58)
STORMS = (53,)
HALTS = (47,)
NEGLECTED = (65, 106)
"""The remainders by sixty of the seeds with suspects that change owners, with headers larger than values, with
segments of the spool that are torn by power cuts, with refused commits of single partitions, with records that are
deleted before a group gets to them that began at the end, with operators who seek, with so many dead letters that the
storm guard trips at its default level, and with records that halt the consumer. NEGLECTED: the remainders by 120 of
those with partitions that the client does not fetch."""

BY_DEFAULT = 5
"""Every fifth of the other seeds without a breaker has the storm guard at its defaults."""

LEFT_OVER = 4


def rare(setup: Setup, seed: int) -> Setup:
    """The setup of a seed that is about something rare; of any other seed as it is, but with records left over in its
    retry topics if it reads from the end. Drawn apart, and last.
    """
    rng = Random(seed * 29 + 17)
    kinds = (
        (SUSPECTS, _suspects),
        (LARGE_HEADERS, _large_headers),
        (TORN, _torn),
        (REFUSED, _refused),
        (DELETED, _deleted),
        (SOUGHT, _sought),
        (STORMS, _storms),
        (HALTS, _halts),
    )
    if seed % 120 in NEGLECTED:
        return _neglected(setup, rng)
    for remainders, make in kinds:
        if seed % 60 in remainders:
            return make(setup, rng)
    if seed % BY_DEFAULT == 2 and setup.storm_guard is None and setup.breaker is None:
        setup = replace(setup, storm_guard=StormPolicy())
    return replace(setup, left_over=LEFT_OVER) if setup.tiers and setup.reset == "latest" else setup


def _suspects(setup: Setup, rng: Random) -> Setup:
    """Killers, with several records in flight that take long. Partitions change owners while records are suspected, in
    order and because live owners are evicted; processes find what others noted.
    """
    return replace(
        _plain(setup),
        max_deliveries=rng.choice((2, 3)),
        alone_s=300.0,
        recorder=True,
        killers=4,
        order=rng.choice(("key", "none")),
        keys="many",
        threads=False,
        capacity=4,
        partitions={"orders": rng.choice((1, 2))},
        members=2,
        static=False,
        pace=(0.1, 0.8),
        slow=0.15,
        trouble=0.1,
        troubles=("flaky",),
        faults=("evict", rng.choice(("gaps", "stop")), *("evict_at_a_suspect",) * 4),
        churn=("join", "leave"),
        shutdown_timeout_s=1.0,
        reset="earliest",
        chaos_s=rng.uniform(16.0, 20.0),
        records=150,
        world=replace(setup.world, session_s=2.0, heartbeat_s=0.5),
    )


def _large_headers(setup: Setup, rng: Random) -> Setup:
    """A partition's buffer is full of headers long before it is full of values."""
    return replace(
        _plain(setup),
        header_bytes=60,
        buffer=BufferPolicy(records=50, bytes=400),
        sweep=rng.choice((1, 7)),
        capacity=rng.choice((1, 2)),
        pace=(0.02, 0.1),
        partitions={"orders": 2},
        members=1,
        killers=0,
        faults=("commits", "commits", "gaps", "leave"),
        churn=(),
        records=300,
    )


def _torn(setup: Setup, rng: Random) -> Setup:
    """Of a seed with a spool, which has room. Records are committed as soon as their letters are kept, so that no
    member keeps these again when they are lost; and several letters lie in a segment when it is torn.
    """
    return replace(
        setup,
        torn=True,
        commit=CommitPolicy(mode=rng.choice(("each", "interval")), every_s=0.1),
        faults=("gaps",),
        members=1,
        chaos_s=rng.uniform(16.0, 20.0),
        records=400,
    )


def _refused(setup: Setup, rng: Random) -> Setup:
    """Commits of one partition are refused for long, again and again, and the others have to continue: there is always
    something to do in all of them. Nothing else excuses a standstill, not even the turns of another process.
    """
    return replace(
        _plain(setup),
        faults=("refuse", "refuse", "gaps"),
        refused_s=(8.0, 15.0),
        churn=(),
        order=rng.choice(("partition", "none")),
        commit=replace(setup.commit, mode=rng.choice(("each", "interval", "interval")), every_s=0.3),
        buffer=BufferPolicy(records=30),
        members=1,
        partitions={topic: max(3, count) for topic, count in setup.partitions.items()},
        capacity=16,
        slow=0.0,
        trouble=min(setup.trouble, 0.1),
        troubles=tuple(trouble for trouble in setup.troubles if trouble != "halt"),
        killers=0,
        reset="earliest",
        chaos_s=rng.uniform(25.0, 30.0),
        records=400,
    )


def _deleted(setup: Setup, rng: Random) -> Setup:
    """Records are deleted in partitions that are read slowly, by a group that began at the end: it continues at the
    oldest record that is left.
    """
    return replace(
        _plain(setup),
        reset="latest",
        faults=("delete", "delete", "delete", "gaps", rng.choice(("stop", "leave"))),
        churn=(),
        members=rng.choice((1, 2)),
        partitions={"orders": 2},
        buffer=BufferPolicy(records=3),
        sweep=1,
        capacity=1,
        pace=(0.02, 0.1),
        slow=0.0,
        trouble=0.1,
        killers=0,
        chaos_s=rng.uniform(14.0, 18.0),
        records=400,
        world=replace(setup.world, prefetch_records=5, fetch_records=5),
    )


def _sought(setup: Setup, rng: Random) -> Setup:
    """Operators move partitions back and forth while records are in flight, commits fail and members come and go."""
    return replace(
        _plain(setup),
        batch=rng.choice((None, None, BatchPolicy(size=rng.choice((3, 12)), wait_s=0.05))),
        order=rng.choice(("partition", "key", "none")),
        commit=replace(setup.commit, mode=rng.choice(("each", "interval")), every_s=0.3),
        faults=("seek",) * 10 + ("commits", rng.choice(("crash", "leave", "stop", "gaps", "freeze", "evict"))),
        churn=(),
        members=rng.choice((1, 2)),
        partitions={"orders": rng.choice((1, 3))},
        capacity=rng.choice((1, 4, 16)),
        pace=rng.choice((setup.pace, (0.02, 0.25))),
        slow=rng.choice((0.0, 0.05)),
        troubles=tuple(trouble for trouble in setup.troubles if trouble != "halt"),
        revoke_timeout_s=rng.choice((0.1, 0.3, 3.0)),
        killers=0,
        reset="earliest",
        chaos_s=rng.uniform(12.0, 16.0),
        records=200,
        world=replace(setup.world, session_s=2.0, heartbeat_s=0.5),
    )


def _neglected(setup: Setup, rng: Random) -> Setup:
    """A client does not fetch one of its partitions any more, at most once in a minute. No member leaves and no
    partition moves, which would end that.
    """
    return replace(
        _plain(setup),
        faults=("neglect", "neglect", "gaps", rng.choice(("compact", "commits"))),
        churn=(),
        members=1,
        partitions={"orders": rng.choice((1, 3))},
        capacity=rng.choice((1, 4, 16)),
        slow=0.0,
        troubles=tuple(trouble for trouble in setup.troubles if trouble != "halt"),
        killers=0,
        reset="earliest",
        chaos_s=rng.uniform(50.0, 90.0),
        records=300,
    )


def _storms(setup: Setup, rng: Random) -> Setup:
    """A bad deploy of the handler rejects everything, for longer than the storm guard lets it."""
    return replace(
        _plain(setup),
        storm_guard=StormPolicy(probe_every_s=2.0),
        outages=("bad",),
        order=rng.choice(("partition", "key", "none")),
        pace=(1e-5, 4e-5),
        slow=0.0,
        trouble=0.0,
        killers=0,
        capacity=16,
        faults=("gaps",),
        churn=(),
        members=1,
        chaos_s=20.0,
        records=2500,
        reset="earliest",
        world=replace(setup.world, fetch_records=25, prefetch_records=60, ack_delay_s=(0.001, 0.01)),
    )


def _halts(setup: Setup, rng: Random) -> Setup:
    """Records stop the consumer, again and again, and little else goes wrong."""
    return replace(
        _plain(setup),
        order=rng.choice(("partition", "key", "none")),
        pace=(0.0005, 0.01),
        slow=0.0,
        trouble=0.5,
        troubles=("halt", "flaky"),
        killers=0,
        faults=("gaps",),
        churn=(),
        members=1,
        records=120,
        reset="earliest",
    )


def _plain(setup: Setup) -> Setup:
    """Without limits, guards, batches, retry topics and spools."""
    return replace(
        setup,
        timeout=TimeoutPolicy(),
        hang=0.0,
        tiers=(),
        breaker=None,
        storm_guard=None,
        rate=None,
        outages=(),
        spool=False,
        batch=None,
        cancels=False,
        sends=False,
    )

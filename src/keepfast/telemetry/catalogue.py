"""Every metric there is: name, kind, labels, unit, and what it says. The exposition, the reference, the dashboard and
the alerts are made from this list; a metric that is not here does not exist.

Labels are bounded: topics, partitions and groups are configured; `error_type` has at most `MAX_LABELS` values per
topic (then `other`); `retry_attempt` is 1 to 9, then `10+`. Never an offset, a key or a text of an error.
"""

from __future__ import annotations

from typing import Final

from keepfast.telemetry.metrics import BOUNDS_S, DELAY_BOUNDS_S, Metric

_TOPIC: Final = ("group", "topic")
_PARTITION: Final = ("group", "topic", "partition")
_GROUP: Final = ("group",)

# -- what the consumer standard and the consumer pattern ask of each topic

PROCESSED = Metric(
    name="{domain}.{entity}.processed",
    kind="counter",
    help="Records that reached their end: success, or failure (buried or discarded).",
    labels=("status", *_TOPIC),
)
DURATION = Metric(
    name="{domain}.{entity}.processing.duration",
    kind="histogram",
    help="How long one call of the handler took, decoding included, failed ones too.",
    labels=_TOPIC,
    unit="seconds",
    bounds=BOUNDS_S,
)
RETRIES = Metric(
    name="{domain}.{entity}.retry.count",
    kind="counter",
    help="Retries that were decided on, in place or by a retry topic, by their number.",
    labels=("retry_attempt", *_TOPIC),
)
RETRY_DELAY = Metric(
    name="{domain}.{entity}.retry.delay",
    kind="histogram",
    help="How long a record waits before a retry, by the number of the retry.",
    labels=("retry_attempt", *_TOPIC),
    unit="seconds",
    bounds=DELAY_BOUNDS_S,
)
DEAD_LETTERS = Metric(
    name="{domain}.{entity}.dlq.count",
    kind="counter",
    help="Records whose dead letter was acknowledged by Kafka or kept by the spool.",
    labels=("error_type", "error_classification", *_TOPIC),
)
ERRORS = Metric(
    name="{domain}.{entity}.error.count",
    kind="counter",
    help="Failed attempts.",
    labels=("error_type", "error_classification", *_TOPIC),
)
PUBLISH_FAILURES = Metric(
    name="{domain}.{entity}.dlq.publish.failure",
    kind="counter",
    help="Attempts to publish a dead letter that failed; each letter is tried until it is somewhere.",
    labels=_TOPIC,
)
TOPIC_METRICS: Final = (PROCESSED, DURATION, RETRIES, RETRY_DELAY, DEAD_LETTERS, ERRORS, PUBLISH_FAILURES)

# -- the same under the names of the fraud service and of the Spring-style strategy

LAG = Metric(
    name="kafka.consumer.lag",
    kind="gauge",
    help="Records of a partition that are not finished: its end, as the last fetch saw it, less what may be committed.",
    labels=_PARTITION,
)
LAG_AGE = Metric(
    name="kafka.consumer.lag.seconds",
    kind="gauge",
    help="How old the oldest record of a partition is that is not finished, by its timestamp in Kafka, to within a"
    " second; while it is not fetched, how long it has been missed. 0 while there is none.",
    labels=_PARTITION,
    unit="seconds",
)
LAG_MAX = Metric(
    name="kafka.consumer.records.lag.max",
    kind="gauge",
    help="The largest lag among the assigned partitions of the group's own topics; retry topics do not count.",
    labels=_GROUP,
)
CONSUMED = Metric(
    name="kafka.consumer.records.consumed",
    kind="counter",
    help="Records received from the brokers, those that come again included.",
    labels=_TOPIC,
)
DLQ_MESSAGES = Metric(
    name="kafka.dlq.messages",
    kind="counter",
    help="Dead letters, by the topic that the records came from and the dead-letter topic.",
    labels=(*_TOPIC, "dead_letter_topic"),
)
DLQ_DEPTH = Metric(
    name="kafka.dlq.depth",
    kind="gauge",
    help="Letters that a dead-letter topic holds, replayed ones too, until its retention takes them; asked for every"
    " 30 s.",
    labels=("group", "dead_letter_topic"),
)
DLQ_BY_TYPE = Metric(
    name="kafka.dlq.errors_by_type",
    kind="counter",
    help="Dead letters by the type of the error.",
    labels=("error_type", *_TOPIC),
)
EVENTS_PROCESSED = Metric(
    name="ingestion.events_processed", kind="counter", help="Records that were processed with success.", labels=_TOPIC
)
EVENTS_FAILED = Metric(
    name="ingestion.events_failed", kind="counter", help="Records that were buried or discarded.", labels=_TOPIC
)

# -- how the engine fares

INFO = Metric(
    name="keepfast.app.info",
    kind="gauge",
    help="1; which app this is, and by which keepfast it runs.",
    labels=("app", "version", "keepfast"),
)
COMMITS = Metric(name="keepfast.commits", kind="counter", help="Commit requests that were sent.", labels=_GROUP)
COMMIT_FAILURES = Metric(
    name="keepfast.commit.failures", kind="counter", help="Commit requests that were not confirmed.", labels=_GROUP
)
MEMBER = Metric(name="keepfast.group.member", kind="gauge", help="1 while it is a member of its group.", labels=_GROUP)
ASSIGNED = Metric(
    name="keepfast.assigned.partitions", kind="gauge", help="Partitions that are its own now.", labels=_TOPIC
)
REBALANCES = Metric(
    name="keepfast.rebalances",
    kind="counter",
    help="Times that partitions were assigned, revoked or lost; each rebalance of the group assigns once.",
    labels=("event", *_GROUP),
)
IN_FLIGHT = Metric(
    name="keepfast.in.flight.records", kind="gauge", help="Records that workers have in hand.", labels=_GROUP
)
OLDEST = Metric(
    name="keepfast.oldest.in.flight",
    kind="gauge",
    help="How long the oldest run has been with its worker.",
    labels=_GROUP,
    unit="seconds",
)
BUFFERED = Metric(
    name="keepfast.buffered.records", kind="gauge", help="Records received that did not start yet.", labels=_PARTITION
)
BUFFERED_BYTES = Metric(
    name="keepfast.held",
    kind="gauge",
    help="Bytes of values, keys and headers (estimated) that were received and are not finished.",
    labels=_PARTITION,
    unit="bytes",
)
WAITING = Metric(
    name="keepfast.waiting.records",
    kind="gauge",
    help="Failed records that wait for their next attempt.",
    labels=_GROUP,
)
SETTLING = Metric(
    name="keepfast.settling.records",
    kind="gauge",
    help="Records whose letter, or copy for a retry topic, is not acknowledged yet.",
    labels=_GROUP,
)
REFUSED = Metric(
    name="keepfast.refused.records",
    kind="gauge",
    help="Of these, the ones that nobody takes; each holds up its lane, uncommitted.",
    labels=_GROUP,
)
HOLD = Metric(
    name="keepfast.hold", kind="gauge", help="1 while this holds the whole consumer.", labels=("hold", *_GROUP)
)
PAUSED = Metric(
    name="keepfast.paused.partitions", kind="gauge", help="Partitions that are not fetched now.", labels=_GROUP
)
STUCK = Metric(
    name="keepfast.stuck.partitions",
    kind="gauge",
    help="Partitions whose lag grows while nothing of them finishes.",
    labels=_GROUP,
)
BREAKER_OPEN = Metric(
    name="keepfast.breaker.open", kind="gauge", help="1 while the breaker is open, also during a probe.", labels=_GROUP
)
BREAKER_OPENED = Metric(
    name="keepfast.breaker.opened", kind="counter", help="Times that the breaker opened.", labels=_GROUP
)
STORM_HELD = Metric(
    name="keepfast.storm.guard.tripped", kind="gauge", help="1 while the storm guard holds the consumer.", labels=_GROUP
)
STORM_TRIPS = Metric(
    name="keepfast.storm.guard.trips", kind="counter", help="Times that the storm guard tripped.", labels=_GROUP
)
GUARD_WAITS = Metric(
    name="keepfast.guard.waits",
    kind="counter",
    help="Failed attempts that a guard neither counted nor buried.",
    labels=_GROUP,
)
TIMED_OUT = Metric(
    name="keepfast.handler.timeouts", kind="counter", help="Handler calls that took too long.", labels=_GROUP
)
STUCK_HANDLERS = Metric(
    name="keepfast.stuck.handlers",
    kind="gauge",
    help="Handlers that have been at one record for longer than `stuck_after_s`.",
    labels=_GROUP,
)
BLOCKED = Metric(
    name="keepfast.event.loop.blocked",
    kind="gauge",
    help="1 while the event loop of async handlers does not turn.",
    labels=_GROUP,
)
ABANDONED = Metric(
    name="keepfast.abandoned.threads",
    kind="gauge",
    help="Workers that were given up and did not come back.",
    labels=_GROUP,
)
MOVED = Metric(
    name="keepfast.moved.records", kind="counter", help="Records that went on to a retry topic.", labels=_TOPIC
)
MOVE_FAILURES = Metric(
    name="keepfast.move.failures", kind="counter", help="Attempts to move a record that failed.", labels=_GROUP
)
DISCARDED = Metric(
    name="keepfast.discarded.records",
    kind="counter",
    help="Records that were dropped because a rule said so, or because of sensitive data in them.",
    labels=("why", *_TOPIC),
)
LOOP_AGE = Metric(
    name="keepfast.loop.turn.age",
    kind="gauge",
    help="How long ago the loop of the consumer began its last turn.",
    labels=_GROUP,
    unit="seconds",
)
SPOOL_LETTERS = Metric(name="keepfast.spool.letters", kind="gauge", help="Letters that wait in the spool.")
SPOOL_BYTES = Metric(name="keepfast.spool", kind="gauge", help="Bytes in the spool.", unit="bytes")
SPOOL_STUCK = Metric(
    name="keepfast.spool.stuck.letters", kind="gauge", help="Spooled letters that Kafka refuses for themselves."
)
SPOOL_SENT_ON = Metric(
    name="keepfast.spool.sent.on", kind="counter", help="Letters that the spool has handed over to Kafka."
)
SPOOL_REFUSING = Metric(name="keepfast.spool.refusing", kind="gauge", help="1 while the spool does not take letters.")
SHUTDOWN = Metric(
    name="keepfast.shutdown.duration",
    kind="gauge",
    help="How long the shutdown has taken so far; 0 before it begins.",
    unit="seconds",
)
SHUTDOWN_TIMEOUT = Metric(
    name="keepfast.shutdown.timeout", kind="gauge", help="How long a shutdown may take.", unit="seconds"
)
PROCESS_UP = Metric(
    name="keepfast.process.up",
    kind="gauge",
    help="1 if this child of the supervisor answers.",
    labels=("process",),
)

# -- what the operating system says of the process; names as the usual client libraries have them

CPU = Metric(name="process.cpu", kind="counter", help="User and system time spent.", unit="seconds")
MEMORY = Metric(name="process.resident_memory", kind="gauge", help="Resident memory.", unit="bytes")
VIRTUAL_MEMORY = Metric(name="process.virtual_memory", kind="gauge", help="Virtual memory.", unit="bytes")
STARTED = Metric(name="process.start_time", kind="gauge", help="When it started, since the epoch.", unit="seconds")
OS_THREADS = Metric(name="process.threads", kind="gauge", help="Threads, those of the Kafka client included.")
THREADS_ALIVE = Metric(name="python.threads", kind="gauge", help="Threads that run Python code.")
OPEN_FILES = Metric(name="process.open_fds", kind="gauge", help="Open file descriptors.")
MAX_FILES = Metric(name="process.max_fds", kind="gauge", help="How many file descriptors may be open.")
NETWORK_RECEIVED = Metric(
    name="process.network.receive",
    kind="counter",
    help="Bytes received on the interfaces that this process sees, the loopback left out.",
    unit="bytes",
)
NETWORK_SENT = Metric(
    name="process.network.transmit",
    kind="counter",
    help="Bytes sent on the interfaces that this process sees, the loopback left out.",
    unit="bytes",
)

CATALOGUE: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
"""All of them, in this order."""

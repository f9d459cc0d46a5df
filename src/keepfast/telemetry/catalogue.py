"""All metrics: name, kind, labels, unit and description. `/metrics`, the reference, the dashboard and the alerts are
made from this list.

Labels are bounded: topics, partitions and groups are configured; `error_type` and `error_code` have at most
`MAX_LABELS` values per topic (then `other`); `retry_attempt` is 1 to 9, then `10+`. Never an offset, a key or a text
of an error.
"""

from __future__ import annotations

from typing import Final

from keepfast.telemetry.metrics import BOUNDS_S, DELAY_BOUNDS_S, Metric

_TOPIC: Final = ("group", "topic")
_PARTITION: Final = ("group", "topic", "partition")
_GROUP: Final = ("group",)

# -- per topic, as the consumer standard and the consumer pattern define them

PROCESSED = Metric(
    name="{domain}.{entity}.processed",
    kind="counter",
    help="Finished records, by status: success, or failure (dead-lettered or discarded).",
    labels=("status", *_TOPIC),
)
DURATION = Metric(
    name="{domain}.{entity}.processing.duration",
    kind="histogram",
    help="Duration of a handler call, with decoding; failed calls included.",
    labels=_TOPIC,
    unit="seconds",
    bounds=BOUNDS_S,
)
RETRIES = Metric(
    name="{domain}.{entity}.retry.count",
    kind="counter",
    help="Scheduled retries, in place or through a retry topic, by retry number.",
    labels=("retry_attempt", *_TOPIC),
)
RETRY_DELAY = Metric(
    name="{domain}.{entity}.retry.delay",
    kind="histogram",
    help="Delay before a retry, by retry number.",
    labels=("retry_attempt", *_TOPIC),
    unit="seconds",
    bounds=DELAY_BOUNDS_S,
)
DEAD_LETTERS = Metric(
    name="{domain}.{entity}.dlq.count",
    kind="counter",
    help="Records whose dead letter was acknowledged by Kafka or written to the spool.",
    labels=("error_type", "error_classification", "error_code", *_TOPIC),
)
ERRORS = Metric(
    name="{domain}.{entity}.error.count",
    kind="counter",
    help="Failed attempts.",
    labels=("error_type", "error_classification", "error_code", *_TOPIC),
)
PUBLISH_FAILURES = Metric(
    name="{domain}.{entity}.dlq.publish.failure",
    kind="counter",
    help="Failed attempts to publish a dead letter; a letter is retried until it is acknowledged or spooled.",
    labels=_TOPIC,
)
TOPIC_METRICS: Final = (PROCESSED, DURATION, RETRIES, RETRY_DELAY, DEAD_LETTERS, ERRORS, PUBLISH_FAILURES)

# -- the same, under the names of the fraud service and of the Spring-style strategy

LAG = Metric(
    name="kafka.consumer.lag",
    kind="gauge",
    help="The end offset of the last fetch of a partition, minus the position: the sum of keepfast_behind_records and"
    " keepfast_finished_above_records.",
    labels=_PARTITION,
)
BEHIND = Metric(
    name="keepfast.behind.records",
    kind="gauge",
    help="The part of the lag of a partition that is not finished: received records, and offsets not received yet.",
    labels=_PARTITION,
)
FINISHED_ABOVE = Metric(
    name="keepfast.finished.above.records",
    kind="gauge",
    help="The part of the lag of a partition that is finished, above the first unfinished record.",
    labels=_PARTITION,
)
LAG_AGE = Metric(
    name="kafka.consumer.lag.seconds",
    kind="gauge",
    help="Age of the oldest unfinished record of a partition, by its Kafka timestamp, accurate to a second; while it"
    " has not been fetched, the time since it was first missing. 0 if there is none.",
    labels=_PARTITION,
    unit="seconds",
)
LAG_MAX = Metric(
    name="kafka.consumer.records.lag.max",
    kind="gauge",
    help="The largest lag of the assigned partitions; retry topics are excluded.",
    labels=_GROUP,
)
CONSUMED = Metric(
    name="kafka.consumer.records.consumed",
    kind="counter",
    help="Records received from the brokers, redelivered ones included.",
    labels=_TOPIC,
)
DLQ_MESSAGES = Metric(
    name="kafka.dlq.messages",
    kind="counter",
    help="Dead letters, by source topic and dead-letter topic.",
    labels=(*_TOPIC, "dead_letter_topic"),
)
DLQ_DEPTH = Metric(
    name="kafka.dlq.depth",
    kind="gauge",
    help="Letters in a dead-letter topic, replayed ones included, until its retention deletes them; read every 30 s.",
    labels=("group", "dead_letter_topic"),
)
UNRESOLVED = Metric(
    name="keepfast.dlq.unresolved",
    kind="gauge",
    help="Dead-lettered records of a topic that are open or being replayed: neither processed after a replay nor"
    " discarded, failed permanently or archived. Counted every 30 s by the process with partition 0, of a"
    " queue by each.",
    labels=_TOPIC,
)
OUTCOMES_LOST = Metric(
    name="keepfast.outcomes.lost",
    kind="counter",
    help="Replayed records that were finished, but could not be reported to the desk within 10 s.",
    labels=_GROUP,
)
DLQ_BY_TYPE = Metric(
    name="kafka.dlq.errors_by_type",
    kind="counter",
    help="Dead letters, by exception type; `reason` is validation_error if the record is malformed or does not match"
    " its schema, else unexpected_error.",
    labels=("error_type", "error_code", "reason", *_TOPIC),
)
EVENTS_PROCESSED = Metric(
    name="ingestion.events_processed", kind="counter", help="Records that were processed successfully.", labels=_TOPIC
)
EVENTS_FAILED = Metric(
    name="ingestion.events_failed", kind="counter", help="Records that were dead-lettered or discarded.", labels=_TOPIC
)

# -- the engine

INFO = Metric(
    name="keepfast.app.info",
    kind="gauge",
    help="1; the labels have the name and version of the app, and the version of keepfast.",
    labels=("app", "version", "keepfast"),
)
COMMITS = Metric(name="keepfast.commits", kind="counter", help="Commit requests.", labels=_GROUP)
COMMIT_FAILURES = Metric(
    name="keepfast.commit.failures", kind="counter", help="Commit requests that were not confirmed.", labels=_GROUP
)
MEMBER = Metric(
    name="keepfast.group.member", kind="gauge", help="1 while the consumer is a member of its group.", labels=_GROUP
)
ASSIGNED = Metric(name="keepfast.assigned.partitions", kind="gauge", help="Assigned partitions.", labels=_TOPIC)
REBALANCES = Metric(
    name="keepfast.rebalances",
    kind="counter",
    help="Assignments, revocations and losses of partitions; each rebalance of the group assigns once.",
    labels=("event", *_GROUP),
)
IN_FLIGHT = Metric(
    name="keepfast.in.flight.records", kind="gauge", help="Records in flight: handed to a worker.", labels=_GROUP
)
OLDEST = Metric(
    name="keepfast.oldest.in.flight",
    kind="gauge",
    help="How long the oldest run has been in flight.",
    labels=_GROUP,
    unit="seconds",
)
BUFFERED = Metric(
    name="keepfast.buffered.records", kind="gauge", help="Received records that have not started.", labels=_PARTITION
)
BUFFERED_BYTES = Metric(
    name="keepfast.held",
    kind="gauge",
    help="Bytes of received, unfinished records: values, keys and headers, estimated.",
    labels=_PARTITION,
    unit="bytes",
)
WAITING = Metric(
    name="keepfast.waiting.records",
    kind="gauge",
    help="Failed records that wait for a retry.",
    labels=_GROUP,
)
SETTLING = Metric(
    name="keepfast.settling.records",
    kind="gauge",
    help="Records whose dead letter or copy for a retry topic is not acknowledged yet.",
    labels=_GROUP,
)
REFUSED = Metric(
    name="keepfast.refused.records",
    kind="gauge",
    help="Settling records whose publish was refused; each blocks its lane, uncommitted.",
    labels=_GROUP,
)
HOLD = Metric(
    name="keepfast.hold", kind="gauge", help="1 while this hold stops the whole consumer.", labels=("hold", *_GROUP)
)
PAUSED = Metric(name="keepfast.paused.partitions", kind="gauge", help="Paused partitions.", labels=_GROUP)
PAUSE_AGE = Metric(
    name="keepfast.operator.pause.age",
    kind="gauge",
    help="How long the oldest pause by an operator has lasted, of the consumer or of an assigned partition; 0 without"
    " one.",
    labels=_GROUP,
    unit="seconds",
)
ENDED = Metric(
    name="keepfast.consumer.ended",
    kind="gauge",
    help="1 while the process runs and the consumer has ended without being stopped: its client failed, it was fenced,"
    " or it was halted.",
    labels=_GROUP,
)
CLIENTS_REPLACED = Metric(
    name="keepfast.clients.replaced",
    kind="counter",
    help="Clients that failed, or did not fetch a partition, and were replaced by new ones.",
    labels=_GROUP,
)
STUCK = Metric(
    name="keepfast.stuck.partitions",
    kind="gauge",
    help="Partitions whose lag grows while no record of them finishes.",
    labels=_GROUP,
)
NOT_FETCHED = Metric(
    name="keepfast.not.fetched.partitions",
    kind="gauge",
    help="Partitions with records that the client has not fetched for ten seconds, though nothing holds it back.",
    labels=_GROUP,
)
BREAKER_OPEN = Metric(
    name="keepfast.breaker.open", kind="gauge", help="1 while the breaker is open or half-open.", labels=_GROUP
)
BREAKER_OPENED = Metric(
    name="keepfast.breaker.opened", kind="counter", help="How often the breaker opened.", labels=_GROUP
)
STORM_HELD = Metric(
    name="keepfast.storm.guard.tripped", kind="gauge", help="1 while the storm guard stops the consumer.", labels=_GROUP
)
STORM_TRIPS = Metric(
    name="keepfast.storm.guard.trips", kind="counter", help="How often the storm guard tripped.", labels=_GROUP
)
GUARD_WAITS = Metric(
    name="keepfast.guard.waits",
    kind="counter",
    help="Failed attempts that were not counted because a guard was active.",
    labels=_GROUP,
)
TIMED_OUT = Metric(
    name="keepfast.handler.timeouts", kind="counter", help="Handler calls that timed out.", labels=_GROUP
)
LOCKS_EXPIRED = Metric(
    name="keepfast.queue.locks.expired",
    kind="counter",
    help="Queues: records whose lock ran out before they were finished; they are delivered again.",
    labels=_GROUP,
)
REDELIVERED = Metric(
    name="keepfast.queue.redelivered",
    kind="counter",
    help="Queues: records that were delivered before, to this member or another.",
    labels=_GROUP,
)
STUCK_HANDLERS = Metric(
    name="keepfast.stuck.handlers",
    kind="gauge",
    help="Handler calls that have been running for longer than `stuck_after_s`.",
    labels=_GROUP,
)
BLOCKED = Metric(
    name="keepfast.event.loop.blocked",
    kind="gauge",
    help="1 while the event loop of async handlers is blocked.",
    labels=_GROUP,
)
ABANDONED = Metric(
    name="keepfast.abandoned.threads",
    kind="gauge",
    help="Worker threads that were abandoned and have not returned.",
    labels=_GROUP,
)
MOVED = Metric(
    name="keepfast.moved.records", kind="counter", help="Records that were moved to a retry topic.", labels=_TOPIC
)
MOVE_FAILURES = Metric(
    name="keepfast.move.failures",
    kind="counter",
    help="Failed attempts to publish a record to a retry topic.",
    labels=_GROUP,
)
DISCARDED = Metric(
    name="keepfast.discarded.records",
    kind="counter",
    help="Discarded records, because of a rule or of sensitive data in them.",
    labels=("why", *_TOPIC),
)
FILTERED = Metric(
    name="keepfast.filtered.records",
    kind="counter",
    help="Records that did not pass the consumer's filter: finished without a call of the handler.",
    labels=_TOPIC,
)
SKIPPED = Metric(
    name="keepfast.skipped.records",
    kind="counter",
    help="Records that the inbox knew already: finished without a call of the handler.",
    labels=_TOPIC,
)
LOOP_AGE = Metric(
    name="keepfast.loop.turn.age",
    kind="gauge",
    help="Time since the consumer's loop began its last iteration.",
    labels=_GROUP,
    unit="seconds",
)
HOOK_FAILURES = Metric(name="keepfast.hook.failures", kind="counter", help="Calls of hooks (`@app.on`) that raised.")
HOOK_DROPPED = Metric(
    name="keepfast.hook.events.dropped",
    kind="counter",
    help="Events that were not reported to hooks, because their queue was full or the app had ended.",
)
SPOOL_LETTERS = Metric(name="keepfast.spool.letters", kind="gauge", help="Letters in the spool.")
SPOOL_BYTES = Metric(name="keepfast.spool", kind="gauge", help="Bytes in the spool.", unit="bytes")
SPOOL_STUCK = Metric(name="keepfast.spool.stuck.letters", kind="gauge", help="Spooled letters that Kafka refuses.")
SPOOL_SENT_ON = Metric(
    name="keepfast.spool.sent.on", kind="counter", help="Spooled letters that were published to Kafka."
)
SPOOL_REFUSING = Metric(name="keepfast.spool.refusing", kind="gauge", help="1 while the spool refuses letters.")
OUTBOX_ROWS = Metric(
    name="keepfast.outbox.rows",
    kind="gauge",
    help="Events of the app in the outbox that are not sent, as each process sees them; more than 100,000 are not"
    " counted.",
)
OUTBOX_AGE = Metric(
    name="keepfast.outbox.age",
    kind="gauge",
    help="Age of the oldest event in the outbox that is not sent; 0 without one.",
    unit="seconds",
)
OUTBOX_SENT = Metric(
    name="keepfast.outbox.sent", kind="counter", help="Events of the outbox that this process has sent."
)
OUTBOX_FAILURES = Metric(
    name="keepfast.outbox.failures", kind="counter", help="Failed attempts to send an event of the outbox."
)
SHUTDOWN = Metric(
    name="keepfast.shutdown.duration",
    kind="gauge",
    help="Duration of the shutdown so far; 0 before it.",
    unit="seconds",
)
SHUTDOWN_TIMEOUT = Metric(
    name="keepfast.shutdown.timeout", kind="gauge", help="The deadline of a shutdown.", unit="seconds"
)
SHUTDOWN_TIMEOUTS = Metric(
    name="keepfast.shutdown.timeouts",
    kind="counter",
    help="Shutdowns of the app on this host that passed their deadline; counted by the next process that starts, from"
    " the state directory.",
)
PROCESS_UP = Metric(
    name="keepfast.process.up",
    kind="gauge",
    help="1 if this child process answers its supervisor.",
    labels=("process",),
)

# -- the process; prometheus-client exposes CPU, memory, start time and file descriptors by itself

CPU = Metric(name="process.cpu", kind="counter", help="User and system CPU time.", unit="seconds")
MEMORY = Metric(name="process.resident_memory", kind="gauge", help="Resident memory.", unit="bytes")
VIRTUAL_MEMORY = Metric(name="process.virtual_memory", kind="gauge", help="Virtual memory.", unit="bytes")
STARTED = Metric(
    name="process.start_time", kind="gauge", help="Start time of the process, since the epoch.", unit="seconds"
)
OS_THREADS = Metric(name="process.threads", kind="gauge", help="Threads, those of the Kafka client included.")
THREADS_ALIVE = Metric(name="python.threads", kind="gauge", help="Threads that run Python code.")
OPEN_FILES = Metric(name="process.open_fds", kind="gauge", help="Open file descriptors.")
MAX_FILES = Metric(name="process.max_fds", kind="gauge", help="Maximum number of open file descriptors.")
NETWORK_RECEIVED = Metric(
    name="process.network.receive",
    kind="counter",
    help="Bytes received on all visible interfaces except loopback.",
    unit="bytes",
)
NETWORK_SENT = Metric(
    name="process.network.transmit",
    kind="counter",
    help="Bytes sent on all visible interfaces except loopback.",
    unit="bytes",
)

CATALOGUE: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
"""All of them, in this order."""

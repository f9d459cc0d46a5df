"""keepfast: a Kafka consumer runtime. Write one function; it fetches, orders, runs, retries, dead-letters and commits
around it.

Names are loaded when they are first used, so that `import keepfast` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keepfast.app import App as App
    from keepfast.app import Router as Router
    from keepfast.app.sends import SendFuture as SendFuture
    from keepfast.classify.classification import Rule as Rule
    from keepfast.core.alerts import AlertPolicy as AlertPolicy
    from keepfast.core.errors import BatchError as BatchError
    from keepfast.core.errors import ConfigError as ConfigError
    from keepfast.core.errors import ConsumerFailed as ConsumerFailed
    from keepfast.core.errors import ControlRefused as ControlRefused
    from keepfast.core.errors import Discard as Discard
    from keepfast.core.errors import DrainTimeout as DrainTimeout
    from keepfast.core.errors import Halt as Halt
    from keepfast.core.errors import KeepfastError as KeepfastError
    from keepfast.core.errors import LifecycleError as LifecycleError
    from keepfast.core.errors import Reject as Reject
    from keepfast.core.errors import RetryLater as RetryLater
    from keepfast.core.errors import SinkError as SinkError
    from keepfast.core.errors import StartError as StartError
    from keepfast.core.events import Assigned as Assigned
    from keepfast.core.events import BatchFailed as BatchFailed
    from keepfast.core.events import BreakerClosed as BreakerClosed
    from keepfast.core.events import BreakerOpened as BreakerOpened
    from keepfast.core.events import CommitFailed as CommitFailed
    from keepfast.core.events import Committed as Committed
    from keepfast.core.events import DeadLettered as DeadLettered
    from keepfast.core.events import Discarded as Discarded
    from keepfast.core.events import DrainFinished as DrainFinished
    from keepfast.core.events import DrainStarted as DrainStarted
    from keepfast.core.events import Event as Event
    from keepfast.core.events import Halted as Halted
    from keepfast.core.events import HandlerAbandoned as HandlerAbandoned
    from keepfast.core.events import HandlerTimedOut as HandlerTimedOut
    from keepfast.core.events import Held as Held
    from keepfast.core.events import LockExpired as LockExpired
    from keepfast.core.events import Lost as Lost
    from keepfast.core.events import Moved as Moved
    from keepfast.core.events import PartitionReset as PartitionReset
    from keepfast.core.events import PreviousOwnerCrashed as PreviousOwnerCrashed
    from keepfast.core.events import ProbationEnded as ProbationEnded
    from keepfast.core.events import ProbationStarted as ProbationStarted
    from keepfast.core.events import PublishFailed as PublishFailed
    from keepfast.core.events import RecordEvent as RecordEvent
    from keepfast.core.events import RecordFailed as RecordFailed
    from keepfast.core.events import Released as Released
    from keepfast.core.events import RetryScheduled as RetryScheduled
    from keepfast.core.events import RetrySucceeded as RetrySucceeded
    from keepfast.core.events import Revoked as Revoked
    from keepfast.core.events import RunFinished as RunFinished
    from keepfast.core.events import Sought as Sought
    from keepfast.core.events import Spooled as Spooled
    from keepfast.core.events import StormGuardReleased as StormGuardReleased
    from keepfast.core.events import StormGuardTripped as StormGuardTripped
    from keepfast.core.events import SubscriptionChanged as SubscriptionChanged
    from keepfast.core.events import TopicRecreated as TopicRecreated
    from keepfast.core.guards import BreakerPolicy as BreakerPolicy
    from keepfast.core.guards import RatePolicy as RatePolicy
    from keepfast.core.guards import StormPolicy as StormPolicy
    from keepfast.core.inbox import Inbox as Inbox
    from keepfast.core.inbox import RecordIdentity as RecordIdentity
    from keepfast.core.policies import BatchPolicy as BatchPolicy
    from keepfast.core.policies import BufferPolicy as BufferPolicy
    from keepfast.core.policies import CommitPolicy as CommitPolicy
    from keepfast.core.policies import DeadLetterPolicy as DeadLetterPolicy
    from keepfast.core.policies import RetryPolicy as RetryPolicy
    from keepfast.core.records import Receipt as Receipt
    from keepfast.core.records import Record as Record
    from keepfast.core.records import TopicPartition as TopicPartition
    from keepfast.core.retry_topics import RetryTopics as RetryTopics
    from keepfast.core.schemas import Avro as Avro
    from keepfast.core.schemas import CloudEvents as CloudEvents
    from keepfast.core.schemas import JsonSchema as JsonSchema
    from keepfast.core.schemas import Protobuf as Protobuf
    from keepfast.core.topic_patterns import Pattern as Pattern
    from keepfast.decode.signature import Provide as Provide
    from keepfast.engine.context import BatchContext as BatchContext
    from keepfast.engine.context import Context as Context
    from keepfast.engine.context import RawRecord as RawRecord
    from keepfast.inbox import PostgresInbox as PostgresInbox
    from keepfast.inbox import SqliteInbox as SqliteInbox
    from keepfast.inbox import upsert as upsert
    from keepfast.redact.sensitive import CardNumbers as CardNumbers
    from keepfast.redact.sensitive import SensitiveData as SensitiveData
    from keepfast.runner.retry import RetryConfig as RetryConfig
    from keepfast.runner.runner import KafkaConsumerRunner as KafkaConsumerRunner
    from keepfast.telemetry.state import SeekResult as SeekResult

__version__ = "0.1.0"

_HOMES = {
    "AlertPolicy": "keepfast.core.alerts",
    "App": "keepfast.app",
    "Assigned": "keepfast.core.events",
    "Avro": "keepfast.core.schemas",
    "BatchContext": "keepfast.engine.context",
    "BatchError": "keepfast.core.errors",
    "BatchFailed": "keepfast.core.events",
    "BatchPolicy": "keepfast.core.policies",
    "BreakerClosed": "keepfast.core.events",
    "BreakerOpened": "keepfast.core.events",
    "BreakerPolicy": "keepfast.core.guards",
    "BufferPolicy": "keepfast.core.policies",
    "CardNumbers": "keepfast.redact.sensitive",
    "CloudEvents": "keepfast.core.schemas",
    "CommitFailed": "keepfast.core.events",
    "CommitPolicy": "keepfast.core.policies",
    "Committed": "keepfast.core.events",
    "ConfigError": "keepfast.core.errors",
    "ConsumerFailed": "keepfast.core.errors",
    "Context": "keepfast.engine.context",
    "ControlRefused": "keepfast.core.errors",
    "DeadLetterPolicy": "keepfast.core.policies",
    "DeadLettered": "keepfast.core.events",
    "Discard": "keepfast.core.errors",
    "Discarded": "keepfast.core.events",
    "DrainFinished": "keepfast.core.events",
    "DrainStarted": "keepfast.core.events",
    "DrainTimeout": "keepfast.core.errors",
    "Event": "keepfast.core.events",
    "Halt": "keepfast.core.errors",
    "Halted": "keepfast.core.events",
    "HandlerAbandoned": "keepfast.core.events",
    "HandlerTimedOut": "keepfast.core.events",
    "Held": "keepfast.core.events",
    "Inbox": "keepfast.core.inbox",
    "JsonSchema": "keepfast.core.schemas",
    "KafkaConsumerRunner": "keepfast.runner.runner",
    "KeepfastError": "keepfast.core.errors",
    "LifecycleError": "keepfast.core.errors",
    "LockExpired": "keepfast.core.events",
    "Lost": "keepfast.core.events",
    "Moved": "keepfast.core.events",
    "PartitionReset": "keepfast.core.events",
    "Pattern": "keepfast.core.topic_patterns",
    "PostgresInbox": "keepfast.inbox",
    "PreviousOwnerCrashed": "keepfast.core.events",
    "ProbationEnded": "keepfast.core.events",
    "ProbationStarted": "keepfast.core.events",
    "Protobuf": "keepfast.core.schemas",
    "Provide": "keepfast.decode.signature",
    "PublishFailed": "keepfast.core.events",
    "RatePolicy": "keepfast.core.guards",
    "RawRecord": "keepfast.engine.context",
    "Receipt": "keepfast.core.records",
    "Record": "keepfast.core.records",
    "RecordEvent": "keepfast.core.events",
    "RecordIdentity": "keepfast.core.inbox",
    "RecordFailed": "keepfast.core.events",
    "Reject": "keepfast.core.errors",
    "Released": "keepfast.core.events",
    "RetryConfig": "keepfast.runner.retry",
    "RetryLater": "keepfast.core.errors",
    "RetryPolicy": "keepfast.core.policies",
    "RetryScheduled": "keepfast.core.events",
    "RetrySucceeded": "keepfast.core.events",
    "RetryTopics": "keepfast.core.retry_topics",
    "Revoked": "keepfast.core.events",
    "Router": "keepfast.app",
    "Rule": "keepfast.classify.classification",
    "RunFinished": "keepfast.core.events",
    "SeekResult": "keepfast.telemetry.state",
    "SendFuture": "keepfast.app.sends",
    "SensitiveData": "keepfast.redact.sensitive",
    "SinkError": "keepfast.core.errors",
    "Sought": "keepfast.core.events",
    "Spooled": "keepfast.core.events",
    "SqliteInbox": "keepfast.inbox",
    "StartError": "keepfast.core.errors",
    "StormGuardReleased": "keepfast.core.events",
    "StormGuardTripped": "keepfast.core.events",
    "StormPolicy": "keepfast.core.guards",
    "SubscriptionChanged": "keepfast.core.events",
    "TopicPartition": "keepfast.core.records",
    "TopicRecreated": "keepfast.core.events",
    "upsert": "keepfast.inbox",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - the same names as above, once


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'keepfast' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

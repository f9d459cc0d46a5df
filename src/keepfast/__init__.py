"""keepfast: a Kafka consumer runtime. Write one function; it fetches, orders, runs, retries, dead-letters and commits
around it.

Names are loaded when they are first used, so that `import keepfast` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keepfast.app import App as App
    from keepfast.classify.classification import Rule as Rule
    from keepfast.core.alerts import AlertPolicy as AlertPolicy
    from keepfast.core.errors import BatchError as BatchError
    from keepfast.core.errors import ConfigError as ConfigError
    from keepfast.core.errors import Discard as Discard
    from keepfast.core.errors import Halt as Halt
    from keepfast.core.errors import KeepfastError as KeepfastError
    from keepfast.core.errors import Reject as Reject
    from keepfast.core.errors import RetryLater as RetryLater
    from keepfast.core.errors import StartError as StartError
    from keepfast.core.guards import BreakerPolicy as BreakerPolicy
    from keepfast.core.guards import RatePolicy as RatePolicy
    from keepfast.core.guards import StormPolicy as StormPolicy
    from keepfast.core.policies import BatchPolicy as BatchPolicy
    from keepfast.core.policies import BufferPolicy as BufferPolicy
    from keepfast.core.policies import CommitPolicy as CommitPolicy
    from keepfast.core.policies import DeadLetterPolicy as DeadLetterPolicy
    from keepfast.core.policies import RetryPolicy as RetryPolicy
    from keepfast.core.records import Record as Record
    from keepfast.core.retry_topics import RetryTopics as RetryTopics
    from keepfast.decode.signature import Provide as Provide
    from keepfast.engine.context import BatchContext as BatchContext
    from keepfast.engine.context import Context as Context
    from keepfast.redact.sensitive import CardNumbers as CardNumbers
    from keepfast.redact.sensitive import SensitiveData as SensitiveData
    from keepfast.runner.retry import RetryConfig as RetryConfig
    from keepfast.runner.runner import KafkaConsumerRunner as KafkaConsumerRunner

__version__ = "0.1.0"

_HOMES = {
    "AlertPolicy": "keepfast.core.alerts",
    "App": "keepfast.app",
    "BatchContext": "keepfast.engine.context",
    "BatchError": "keepfast.core.errors",
    "BatchPolicy": "keepfast.core.policies",
    "BreakerPolicy": "keepfast.core.guards",
    "BufferPolicy": "keepfast.core.policies",
    "CardNumbers": "keepfast.redact.sensitive",
    "CommitPolicy": "keepfast.core.policies",
    "ConfigError": "keepfast.core.errors",
    "Context": "keepfast.engine.context",
    "DeadLetterPolicy": "keepfast.core.policies",
    "Discard": "keepfast.core.errors",
    "Halt": "keepfast.core.errors",
    "KeepfastError": "keepfast.core.errors",
    "KafkaConsumerRunner": "keepfast.runner.runner",
    "Provide": "keepfast.decode.signature",
    "RatePolicy": "keepfast.core.guards",
    "Record": "keepfast.core.records",
    "Reject": "keepfast.core.errors",
    "RetryConfig": "keepfast.runner.retry",
    "RetryLater": "keepfast.core.errors",
    "RetryPolicy": "keepfast.core.policies",
    "RetryTopics": "keepfast.core.retry_topics",
    "Rule": "keepfast.classify.classification",
    "SensitiveData": "keepfast.redact.sensitive",
    "StartError": "keepfast.core.errors",
    "StormPolicy": "keepfast.core.guards",
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

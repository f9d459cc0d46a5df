"""holdfast: a Kafka consumer runtime. Write one function; it fetches, orders, runs, retries, dead-letters and commits
around it.

Names are loaded when they are first used, so that `import holdfast` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.app import App as App
    from holdfast.core.alerts import AlertPolicy as AlertPolicy
    from holdfast.core.breaker import BreakerPolicy as BreakerPolicy
    from holdfast.core.classification import Rule as Rule
    from holdfast.core.errors import BatchError as BatchError
    from holdfast.core.errors import ConfigError as ConfigError
    from holdfast.core.errors import Discard as Discard
    from holdfast.core.errors import Halt as Halt
    from holdfast.core.errors import HoldfastError as HoldfastError
    from holdfast.core.errors import Reject as Reject
    from holdfast.core.errors import RetryLater as RetryLater
    from holdfast.core.errors import StartError as StartError
    from holdfast.core.pace import RatePolicy as RatePolicy
    from holdfast.core.policies import BatchPolicy as BatchPolicy
    from holdfast.core.policies import BufferPolicy as BufferPolicy
    from holdfast.core.policies import CommitPolicy as CommitPolicy
    from holdfast.core.policies import DeadLetterPolicy as DeadLetterPolicy
    from holdfast.core.policies import RetryPolicy as RetryPolicy
    from holdfast.core.records import Record as Record
    from holdfast.core.retry_topics import RetryTopics as RetryTopics
    from holdfast.core.sensitive import CardNumbers as CardNumbers
    from holdfast.core.sensitive import SensitiveData as SensitiveData
    from holdfast.core.storm import StormPolicy as StormPolicy
    from holdfast.runner.retry import RetryConfig as RetryConfig
    from holdfast.runner.runner import KafkaConsumerRunner as KafkaConsumerRunner
    from holdfast.runtime.batch_handler import BatchContext as BatchContext
    from holdfast.runtime.context import Context as Context

__version__ = "0.1.0"

_HOMES = {
    "AlertPolicy": "holdfast.core.alerts",
    "App": "holdfast.app",
    "BatchContext": "holdfast.runtime.batch_handler",
    "BatchError": "holdfast.core.errors",
    "BatchPolicy": "holdfast.core.policies",
    "BreakerPolicy": "holdfast.core.breaker",
    "BufferPolicy": "holdfast.core.policies",
    "CardNumbers": "holdfast.core.sensitive",
    "CommitPolicy": "holdfast.core.policies",
    "ConfigError": "holdfast.core.errors",
    "Context": "holdfast.runtime.context",
    "DeadLetterPolicy": "holdfast.core.policies",
    "Discard": "holdfast.core.errors",
    "Halt": "holdfast.core.errors",
    "HoldfastError": "holdfast.core.errors",
    "RatePolicy": "holdfast.core.pace",
    "KafkaConsumerRunner": "holdfast.runner.runner",
    "Record": "holdfast.core.records",
    "Reject": "holdfast.core.errors",
    "RetryConfig": "holdfast.runner.retry",
    "RetryLater": "holdfast.core.errors",
    "RetryPolicy": "holdfast.core.policies",
    "RetryTopics": "holdfast.core.retry_topics",
    "Rule": "holdfast.core.classification",
    "SensitiveData": "holdfast.core.sensitive",
    "StartError": "holdfast.core.errors",
    "StormPolicy": "holdfast.core.storm",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - the same names as above, once


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

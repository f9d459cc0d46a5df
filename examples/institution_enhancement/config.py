"""The configuration: read once, from the environment, by whoever starts the service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from holdfast import ConfigError
from holdfast.runner import RetryConfig


@dataclass(frozen=True, kw_only=True)
class Config:
    """`rate_limit_s`: the registry takes 5 requests a minute, so one every 12 s."""

    brokers: str = "localhost:9092"
    topic: str = "financial_data.institution.v1"
    group: str = "financial_data.parent_institution.v1"
    letters: str = "financial_data.institution.dlq"
    database_url: str = "postgresql://localhost/institutions"
    pool_min: int = 2
    pool_max: int = 10
    registry_url: str = "http://localhost:8081"
    registry_timeout_s: float = 10.0
    rate_limit_s: float = 12.0
    health_port: int = 8080
    retry: RetryConfig = field(default_factory=RetryConfig)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Raises ConfigError with everything that is wrong."""
        names = {
            "brokers": "KAFKA_BROKERS",
            "topic": "KAFKA_INPUT_TOPIC",
            "group": "KAFKA_CONSUMER_GROUP",
            "letters": "KAFKA_DLQ_TOPIC",
            "database_url": "DATABASE_URL",
            "registry_url": "REGISTRY_URL",
        }
        told: dict[str, object] = {own: environ[name] for own, name in names.items() if name in environ}
        numbers = {
            "pool_min": ("POSTGRES_POOL_MIN", int),
            "pool_max": ("POSTGRES_POOL_MAX", int),
            "registry_timeout_s": ("REGISTRY_TIMEOUT_S", float),
            "rate_limit_s": ("REGISTRY_RATE_LIMIT_S", float),
            "health_port": ("HEALTH_CHECK_PORT", int),
        }
        problems = []
        for own, (name, kind) in numbers.items():
            try:
                told.update({own: kind(environ[name])} if name in environ else {})
            except ValueError:
                problems.append(f"{name} must be a number; got {environ[name]!r}.")
        if problems:
            raise ConfigError(*problems)
        return cls(**told)  # type: ignore[arg-type] # checked above, name by name

"""The configuration: read once, from the environment, at the start of the service."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from keepfast import ConfigError
from keepfast.runner import RetryConfig

DATABASE_S, SPARE_S = 5, 5

_VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "brokers": ("KAFKA_BROKERS", str),
    "topic": ("KAFKA_INPUT_TOPIC", str),
    "group": ("KAFKA_CONSUMER_GROUP", str),
    "letters": ("KAFKA_DLQ_TOPIC", str),
    "postgres_host": ("POSTGRES_HOST", str),
    "postgres_port": ("POSTGRES_PORT", int),
    "postgres_db": ("POSTGRES_DB", str),
    "postgres_user": ("POSTGRES_USER", str),
    "postgres_password": ("POSTGRES_PASSWORD", str),
    "pool_min": ("POSTGRES_POOL_MIN", int),
    "pool_max": ("POSTGRES_POOL_MAX", int),
    "registry_url": ("REGISTRY_URL", str),
    "registry_timeout_s": ("REGISTRY_TIMEOUT_S", float),
    "rate_limit_s": ("REGISTRY_RATE_LIMIT_S", float),
    "health_enabled": ("HEALTH_CHECK_ENABLED", lambda text: {"true": True, "false": False}[text.lower()]),
    "health_port": ("HEALTH_CHECK_PORT", int),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """`rate_limit_s`: the registry takes 5 requests a minute, so one every 12 s."""

    brokers: str = "localhost:9092"
    topic: str = "financial_data.institution.v1"
    group: str = "financial_data.parent_institution.v1"
    letters: str = "financial_data.institution.dlq"
    postgres_host: str = "localhost"
    postgres_port: int = 5432
    postgres_db: str = "institutions"
    postgres_user: str = "institutions"
    postgres_password: str = field(default="", repr=False)
    pool_min: int = 2
    pool_max: int = 10
    registry_url: str = "http://localhost:8081"
    registry_timeout_s: float = 10.0
    rate_limit_s: float = 12.0
    health_enabled: bool = True
    health_port: int = 8080
    retry: RetryConfig = field(default_factory=RetryConfig)

    @property
    def record_s(self) -> float:
        """The longest that a good record takes: its turn at the registry, connecting there and the answer, the same
        with the database, and a little more. A shorter timeout would dead-letter records because others are slow.
        """
        return self.rate_limit_s + 2 * self.registry_timeout_s + 2 * DATABASE_S + SPARE_S

    def __post_init__(self) -> None:
        problems = []
        if not 0 <= self.pool_min <= self.pool_max or self.pool_max < 1:
            problems.append(
                f"POSTGRES_POOL_MIN ({self.pool_min}) must not be above POSTGRES_POOL_MAX ({self.pool_max}), which must"
                " be 1 or more."
            )
        if self.registry_timeout_s <= 0 or self.rate_limit_s < 0:
            problems.append("REGISTRY_TIMEOUT_S must be above 0, and REGISTRY_RATE_LIMIT_S not below.")
        if problems:
            raise ConfigError(*problems)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Raises ConfigError with everything that is wrong."""
        given: dict[str, Any] = {}
        problems = []
        for own, (name, read) in _VARIABLES.items():
            if name not in environ:
                continue
            try:
                given[own] = read(environ[name])
            except (ValueError, KeyError):
                kind = "true or false" if own == "health_enabled" else "a number"
                problems.append(f"{name} must be {kind}; got {environ[name]!r}.")
        if problems:
            raise ConfigError(*problems)
        return cls(**given)

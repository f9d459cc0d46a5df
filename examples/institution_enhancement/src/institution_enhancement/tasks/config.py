"""The configuration: read once, from the environment, when the consumer is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from neotool_common.retry_utils import RetryConfig

from keepfast import ConfigError


@dataclass(frozen=True, kw_only=True)
class DatabaseConfig:
    host: str = "localhost"
    port: int = 5432
    name: str = "neotool_db"
    user: str = "neotool"
    password: str = field(default="", repr=False)
    pool_min: int = 2
    pool_max: int = 10
    timeout_seconds: int = 5


@dataclass(frozen=True, kw_only=True)
class KafkaConfig:
    brokers: str = "localhost:9092"
    input_topic: str = "financial_data.institution.v1"
    consumer_group: str = "financial_data.parent_institution.v1"
    dlq_topic: str = "financial_data.institution.dlq"
    group_instance_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class CnpjaConfig:
    """The registry takes 5 requests a minute, so one every 12 s."""

    url: str = "http://localhost:8081"
    timeout_seconds: float = 10.0
    rate_limit_seconds: float = 12.0


@dataclass(frozen=True, kw_only=True)
class HealthCheckConfig:
    enabled: bool = True
    port: int = 8080


@dataclass(frozen=True, kw_only=True)
class Config:
    database: DatabaseConfig = field(default_factory=DatabaseConfig)
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    cnpja: CnpjaConfig = field(default_factory=CnpjaConfig)
    health_check: HealthCheckConfig = field(default_factory=HealthCheckConfig)
    retry: RetryConfig = field(default_factory=RetryConfig)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Raises ConfigError with everything that is wrong."""
        read = _Variables(environ)
        config = cls(
            database=DatabaseConfig(
                host=read.text("POSTGRES_HOST", DatabaseConfig.host),
                port=int(read.number("POSTGRES_PORT", DatabaseConfig.port)),
                name=read.text("POSTGRES_DB", DatabaseConfig.name),
                user=read.text("POSTGRES_USER", DatabaseConfig.user),
                password=read.text("POSTGRES_PASSWORD", ""),
                pool_min=int(read.number("POSTGRES_POOL_MIN", DatabaseConfig.pool_min)),
                pool_max=int(read.number("POSTGRES_POOL_MAX", DatabaseConfig.pool_max)),
            ),
            kafka=KafkaConfig(
                brokers=read.text("KAFKA_BROKERS", KafkaConfig.brokers),
                input_topic=read.text("KAFKA_INPUT_TOPIC", KafkaConfig.input_topic),
                consumer_group=read.text("KAFKA_CONSUMER_GROUP", KafkaConfig.consumer_group),
                dlq_topic=read.text("KAFKA_DLQ_TOPIC", KafkaConfig.dlq_topic),
                group_instance_id=environ.get("KAFKA_GROUP_INSTANCE_ID"),
            ),
            cnpja=CnpjaConfig(
                url=read.text("CNPJA_URL", CnpjaConfig.url),
                timeout_seconds=read.number("CNPJA_TIMEOUT_SECONDS", CnpjaConfig.timeout_seconds),
                rate_limit_seconds=read.number("CNPJA_RATE_LIMIT_SECONDS", CnpjaConfig.rate_limit_seconds),
            ),
            health_check=HealthCheckConfig(
                enabled=read.text("HEALTH_CHECK_ENABLED", "true").lower() == "true",
                port=int(read.number("HEALTH_CHECK_PORT", HealthCheckConfig.port)),
            ),
        )
        read.problems += _problems(config)
        if read.problems:
            raise ConfigError(*read.problems)
        return config


class _Variables:
    """Reads variables, and notes what is wrong with them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []

    def text(self, name: str, default: str) -> str:
        return self._environ.get(name, default)

    def number(self, name: str, default: float) -> float:
        try:
            return float(self._environ.get(name, default))
        except ValueError:
            self.problems.append(f"{name} must be a number; got {self._environ[name]!r}.")
            return default


def _problems(config: Config) -> list[str]:
    pool, cnpja = config.database, config.cnpja
    problems = []
    if not 0 <= pool.pool_min <= pool.pool_max or pool.pool_max < 1:
        problems.append(
            f"POSTGRES_POOL_MIN ({pool.pool_min}) must not be above POSTGRES_POOL_MAX ({pool.pool_max}), which must"
            " be 1 or more."
        )
    if cnpja.timeout_seconds <= 0 or cnpja.rate_limit_seconds < 0:
        problems.append("CNPJA_TIMEOUT_SECONDS must be above 0, and CNPJA_RATE_LIMIT_SECONDS not below.")
    return problems

"""The environment of `keepfast dev`: an app's settings adapted to the broker that was started for it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

import click

from keepfast.app import Consumer
from keepfast.app.assembly import decoding_of
from keepfast.core.errors import SourceError, StartError
from keepfast.core.policies import TimingPolicy
from keepfast.core.replays import DESK_TOPIC
from keepfast.core.timeouts import TimeoutPolicy
from keepfast.decode.annotation import element_of
from keepfast.decode.sample import sample
from keepfast.kafka import KafkaAdmin, admin_properties
from keepfast.settings import ConsumerSettings, HealthSettings, Settings
from keepfast.telemetry.clean import clean_text
from keepfast.testing.loopback import free_ports, is_free
from keepfast.wiring.clients import connection_of
from keepfast.wiring.cluster import topics_of

REQUEST_TIMEOUT_S = 15.0
BROKER_VARIABLES = ("KEEPFAST_KAFKA_BROKERS", "KAFKA_BROKERS")
BLOCKED_REPORT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DevTimeouts(TimeoutPolicy):
    """Logs a blocked event loop soon, while its author is watching; nothing else happens earlier."""

    @property
    def blocked_report_s(self) -> float | None:
        return None if self.blocked_s is None else min(self.blocked_s, BLOCKED_REPORT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevEnvironment:
    """The broker that `keepfast dev` started for this app."""

    address: str
    embedded: bool
    partitions: int
    health_port: int = 0
    """For the app's health server where none is configured; 0: any free one."""

    def adapt(self, settings: Settings) -> Settings:
        """The settings for this broker: an unencrypted connection without credentials, and short sessions, so that
        a restarted app gets its partitions soon.
        """
        kafka = replace(
            settings.kafka,
            brokers=(self.address,),
            security_protocol="PLAINTEXT",
            sasl_mechanism=None,
            sasl_username=None,
            sasl_password=None,
            ssl_ca_location=None,
            ssl_certificate_location=None,
            ssl_key_location=None,
            ssl_key_password=None,
            librdkafka=MappingProxyType({}),
        )
        consumers = {name: self._with_short_session(_for_development(own)) for name, own in settings.consumers.items()}
        return replace(
            settings, kafka=kafka, consumers=MappingProxyType(consumers), health=_health(settings, self.health_port)
        )

    def _with_short_session(self, own: ConsumerSettings) -> ConsumerSettings:
        if self.embedded:  # its sessions are short anyway, and it knows the classic protocol only
            return replace(own, group_protocol="classic", assignor=own.assignor or "cooperative-sticky")
        if own.timings.session_timeout_ms is None:
            return own
        timings = TimingPolicy(
            session_timeout_ms=6_000,  # Apache Kafka accepts none below
            heartbeat_interval_ms=1_500,
            max_poll_interval_ms=max(own.timings.max_poll_interval_ms, 6_000),
            revoke_timeout_s=own.timings.revoke_timeout_s,
        )
        return replace(own, timings=timings, group_protocol="classic", assignor=own.assignor or "cooperative-sticky")

    def create_topics(self, settings: Settings) -> None:
        """Create all topics that the app reads or writes. Raises StartError."""
        if self.embedded:
            from keepfast.testing.embedded import make_topics

            make_topics(self.address, sorted(topics_of(settings)))
            return
        admin = KafkaAdmin(admin_properties(connection_of(settings.kafka)))
        sources = {topic for own in settings.consumers.values() for topic in own.topics}
        try:  # startup creates the other topics, as in production
            for topic in sorted(sources - admin.names(REQUEST_TIMEOUT_S)):
                admin.create_topic(topic, partitions=self.partitions, timeout_s=REQUEST_TIMEOUT_S)
        except SourceError as error:
            raise StartError(str(error)) from error

    def create_desk_topics(self) -> None:
        """The embedded broker knows no request that creates topics. Raises StartError."""
        if self.embedded:
            from keepfast.testing.embedded import make_topics

            make_topics(self.address, [DESK_TOPIC, f"{DESK_TOPIC}.audit"])

    def print_summary(self, settings: Settings, consumers: Sequence[Consumer]) -> None:
        """Print the consumers, and a command that sends a record to the first one."""
        for consumer in consumers:
            own = settings.consumers[consumer.name]
            letters = ", ".join(sorted(set(own.dead_letter_topics.values()))) or own.dead_letter.topic
            topics = ", ".join([*own.topics, *([own.pattern] if own.pattern is not None else [])])
            click.echo(
                f"  {topics} → {click.style(clean_text(own.name), bold=True)}"
                f"   group {own.group}, dead letters {letters}",
                err=True,
            )
        first = consumers[0]
        topic = next(iter(settings.consumers[first.name].topics), "TOPIC")
        annotation = element_of(first.shape.annotation) if first.shape.batch else first.shape.annotation
        kind, headers = decoding_of(first, settings).example(annotation, topic)
        options = "".join(f" --header {shlex.quote(f'{name}={value}')}" for name, value in headers.items())
        value = shlex.quote(sample(kind) or '{"…": "…"}')
        command = f"keepfast send {topic} {value}{options}{self._brokers_option()}"
        click.echo(f"To send a record, from another terminal: {command}", err=True)

    def _brokers_option(self) -> str:
        """The option that other commands need if the environment names other brokers."""
        named = any(os.environ.get(name) for name in BROKER_VARIABLES)
        return f" --brokers {self.address}" if named else ""


def _for_development(own: ConsumerSettings) -> ConsumerSettings:
    """The settings with topic creation enabled, whatever they say for production, and early reports."""
    timeout = DevTimeouts(**{part.name: getattr(own.timeout, part.name) for part in fields(own.timeout)})
    return replace(
        own,
        timeout=timeout,
        dead_letter=replace(own.dead_letter, create_topic=True),
        retry_topics=replace(own.retry_topics, create_topics=True),
    )


def _health(settings: Settings, port: int) -> HealthSettings:
    """Health settings; where not configured, on loopback only, and on this port."""
    health = settings.health
    host = health.host if "health.host" in settings.origins else "127.0.0.1"
    return replace(health, host=host, port=health.port if "health.port" in settings.origins else port)


def free_health_port() -> int:
    """The default port, or another one if it is in use."""
    default = HealthSettings().port
    return default if is_free(default) else free_ports(1)[0]

"""The consumer of `keepfast dev`: the user's app with the settings of a broker that was made for it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import click

from keepfast.app import Consumer
from keepfast.core.errors import SourceError, StartError
from keepfast.core.policies import TimingPolicy
from keepfast.decode.sample import sample
from keepfast.kafka import KafkaAdmin, admin_properties
from keepfast.settings import ConsumerSettings, HealthSettings, Settings
from keepfast.telemetry.clean import clean_text
from keepfast.testing.loopback import is_free
from keepfast.wiring.clients import connection_of, topics_of

ASK_TIMEOUT_S = 15.0
BROKER_VARIABLES = ("KEEPFAST_KAFKA_BROKERS", "KAFKA_BROKERS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The broker that was started for this app."""

    address: str
    embedded: bool
    partitions: int

    def prepared(self, settings: Settings) -> Settings:
        """The same app on this broker: reached plainly, whatever the settings say about another, and with short
        sessions, because the next version of the code is waiting.
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
        consumers = {name: self._quick(_made(own)) for name, own in settings.consumers.items()}
        return replace(settings, kafka=kafka, consumers=MappingProxyType(consumers), health=_health(settings))

    def _quick(self, own: ConsumerSettings) -> ConsumerSettings:
        # The embedded broker keeps a new member waiting for the session of the one that has left, less a second; below
        # 3 s, which the first member waits, no session begins. Apache Kafka takes no shorter one than 6 s.
        session_ms, heartbeat_ms = (4_500, 500) if self.embedded else (6_000, 1_500)
        if own.timings.session_timeout_ms is None and not self.embedded:
            return own
        timings = TimingPolicy(
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=heartbeat_ms,
            max_poll_interval_ms=max(own.timings.max_poll_interval_ms, session_ms),
            revoke_timeout_s=own.timings.revoke_timeout_s,
            unsafe=True,
        )
        return replace(own, timings=timings, group_protocol="classic", assignor=own.assignor or "cooperative-sticky")

    def make_topics(self, settings: Settings) -> None:
        """Everything that the app reads or writes by itself. Raises StartError."""
        if self.embedded:
            from keepfast.testing.embedded import make_topics

            make_topics(self.address, sorted(topics_of(settings)))
            return
        admin = KafkaAdmin(admin_properties(connection_of(settings.kafka)))
        sources = {topic for own in settings.consumers.values() for topic in own.topics}
        try:  # all others are made by the start, as in production
            for topic in sorted(sources - admin.names(ASK_TIMEOUT_S)):
                admin.create_topic(topic, partitions=self.partitions, timeout_s=ASK_TIMEOUT_S)
        except SourceError as error:
            raise StartError(str(error)) from error

    def say(self, settings: Settings, consumers: Sequence[Consumer]) -> None:
        """What runs, and how to feed it."""
        for consumer in consumers:
            own = settings.consumers[consumer.name]
            letters = ", ".join(sorted(set(own.dead_letter_topics.values())))
            click.echo(
                f"  {', '.join(own.topics)} → {click.style(clean_text(own.name), bold=True)}"
                f"   group {own.group}, dead letters {letters}",
                err=True,
            )
        shape = consumers[0].shape
        value = sample(shape.annotation, batch=shape.batch) or '{"…": "…"}'
        words = f"keepfast send {settings.consumers[consumers[0].name].topics[0]} {shlex.quote(value)}{self._told()}"
        click.echo(f"Feed it from another terminal: {words}", err=True)

    def _told(self) -> str:
        """What commands need that would look elsewhere."""
        named = any(os.environ.get(name) for name in BROKER_VARIABLES)
        return f" --brokers {self.address}" if named else ""


def _made(own: ConsumerSettings) -> ConsumerSettings:
    """Here everything may be made, whatever holds where the app will run."""
    return replace(
        own,
        dead_letter=replace(own.dead_letter, create_topic=True),
        retry_topics=replace(own.retry_topics, create_topics=True),
    )


def _health(settings: Settings) -> HealthSettings:
    """Where nothing was told: for this machine alone, and on any port if another app has the usual one."""
    health = settings.health
    host = health.host if "health.host" in settings.origins else "127.0.0.1"
    free = "health.port" in settings.origins or is_free(health.port)
    return replace(health, host=host, port=health.port if free else 0)

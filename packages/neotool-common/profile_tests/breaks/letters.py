"""Breaks of dead letters: what they say, where they go, and how they come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from profile_tests.breaking import add, breaks, change, replace, wrap

from keepfast.core import names, policies
from keepfast.core.errors import SinkError
from keepfast.core.replays import ReplayMark
from keepfast.deadletters import envelope, inline, nested, ours, spring
from keepfast.desk.index import Index
from keepfast.desk.run import ReplayRun
from keepfast.engine import forwarding
from keepfast.engine.forwarding import Forwarder, Settled
from keepfast.kafka.admin import KafkaAdmin
from keepfast.wiring import cluster


def _lettered(evidence: str, what: str, make: Callable[[str], None]) -> None:
    add(evidence, f"{evidence}_without_{what}".lower().replace("-", "_"), lambda: make(what))


# -- forms


def _envelope_without(field: str) -> None:
    def fields_of(letter: Any) -> dict[str, Any]:
        fields: dict[str, Any] = before(letter)
        fields[f"{field}x"] = fields.pop(field)
        return fields

    before = replace(envelope, "fields_of", fields_of)


for _field in (
    *("original_message", "error_type", "error_message", "error_classification"),
    *("failed_at", "retry_count", "stack_trace"),
):
    _lettered("ENVELOPE", _field, _envelope_without)


def _nested_without(field: str) -> None:
    if field in nested._ERROR:
        replace(nested, "_ERROR", {(f"{name}x" if name == field else name): of for name, of in nested._ERROR.items()})
    else:
        replace(nested, "_METADATA", tuple(name for name in nested._METADATA if name != field))


for _field in ("type", "message", "timestamp", *(f"original_{name}" for name in ("topic", "partition", "offset"))):
    _lettered("NESTED", _field, _nested_without)
_lettered("NESTED", "consumer_group", _nested_without)

_SPRING: Final = {
    "original-topic": "TOPIC",
    "original-partition": "PARTITION",
    "original-offset": "OFFSET",
    "original-timestamp": "TIMESTAMP",
    "exception-fqcn": "CLASS",
    "exception-message": "MESSAGE",
    "exception-stacktrace": "STACK",
}


def _spring_without(header: str) -> None:
    replace(spring, _SPRING[header], f"kafka_dlt-{header}x")


for _header in _SPRING:
    _lettered("SPRING_HEADERS", _header, _spring_without)


@breaks("SPRING_HEADERS")
def the_partition_is_little_endian() -> None:
    def headers(letter: Any) -> Any:
        return tuple((name, of[::-1] if name == spring.PARTITION else of) for name, of in before(letter))

    before = replace(spring, "_spring", headers)


@breaks("BYTES_KEPT")
def json_is_put_in_without_the_bytes_beside_it() -> None:
    def encode_value(value: bytes | None) -> Any:
        fields = before(value)
        fields.pop("original_bytes", None)
        return fields

    before = replace(inline, "encode_value", encode_value)


# -- publishing


@breaks("PUBLISHED_AGAIN")
def every_wait_is_as_long_as_the_first() -> None:
    replace(forwarding, "backoff_s", lambda failures: forwarding.FIRST_BACKOFF_S)


@breaks("PUBLISHED_AGAIN")
def what_was_refused_is_not_sent_again() -> None:
    replace(Forwarder, "step", lambda self, now: None)


@breaks("UNCOMMITTED")
def a_letter_that_was_refused_counts_as_published() -> None:
    def settled(self: Forwarder, answer: Settled, now: float) -> None:
        if isinstance(answer.outcome, SinkError):
            self._done(answer.record, "topic")
        else:
            before(self, answer, now)

    before = replace(Forwarder, "settled", settled)


@breaks("SPOOLED")
def the_spool_gets_no_letter() -> None:
    def after_failure(*facts: Any, **more: Any) -> Any:
        return before(*facts, **{**more, "has_spool": False})

    before = replace(forwarding, "after_failure", after_failure)


@breaks("LETTER_TOPIC_MADE")
def topics_that_may_not_be_made_are_made() -> None:
    def letter_topic(admin: Any, letter: str, consumers: Any, facts: Any) -> Any:
        for own in consumers:
            change(own.dead_letter, create_topic=True)
        return before(admin, letter, consumers, facts)

    before = replace(cluster, "_letter_topic", letter_topic)


@breaks("LETTER_TOPIC_MADE")
def no_topic_is_made() -> None:
    replace(KafkaAdmin, "create_topic", lambda self, name, **how: None)


@breaks("LETTERS_STAY")
def letters_are_gone_after_a_second() -> None:
    cluster.LETTER_TOPIC_CONFIG["retention.ms"] = "1000"


@breaks("LETTER_NAMES")
def letters_have_another_default_topic() -> None:
    def derive(self: policies.DeadLetterPolicy) -> None:
        if self.topic == "{domain}.{entity}.dlq":
            change(self, topic="{domain}.{entity}.dead")
        before(self)

    before = replace(policies.DeadLetterPolicy, "__post_init__", derive)


@breaks("LETTER_NAMES")
def patterns_know_only_the_domain() -> None:
    def expand(pattern: str, fields: Mapping[str, str], *rest: Any, **more: Any) -> Any:
        return before(pattern, {name: text for name, text in fields.items() if name == "domain"}, *rest, **more)

    before = replace(names, "expand", expand)


# -- coming back


@breaks("REPLAYED")
def every_letter_is_left_out() -> None:
    replace(ReplayRun, "_outgoing", lambda self, item, record: None)


@breaks("REPLAYED")
def a_replay_loses_the_original_headers() -> None:
    def for_replay(letter: Any, *marks: Any, topic: str) -> Any:
        return before(letter, *marks, topic=topic)[len(letter.headers) :]

    before = replace(ours, "for_replay", for_replay)


@breaks("BURIED_AGAIN")
def replays_are_not_counted() -> None:
    replace(ReplayMark, "of", lambda headers, group="": None)


@breaks("CAUSES")
def the_rarest_cause_comes_first() -> None:
    wrap(Index, "causes", lambda before: lambda self, where, now_ms: before(self, where, now_ms=now_ms)[::-1])

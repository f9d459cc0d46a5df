"""The built-in rules themselves: complete, spelled right, and fit to be printed."""

from __future__ import annotations

import importlib
import re
from collections import Counter

import confluent_kafka
import grpc
import kafka.errors
import psycopg.errors
import pytest

from keepfast.classify.classification import classify_key
from keepfast.classify.rules import CODES, RULES, Rule
from keepfast.classify.rules.error_keys import _names
from keepfast.classify.rules.readers import READERS

CLASSES = sorted({key for rule in RULES for key in rule.keys if ":" not in key} | set(READERS))
MADE_CODES = re.compile(r"(HTTP_\d{3}|GRPC_[A-Z_]+)")

# Names that some client gives to a Kafka error, and librdkafka or kafka-python alone does not know.
KAFKA_NAMES = {name for name in dir(confluent_kafka.KafkaError) if name.isupper()} | {
    str(getattr(each, "message", "")) for each in vars(kafka.errors).values()
}


def test_no_two_rules_share_a_key_or_a_name() -> None:
    assert [key for key, count in Counter(key for rule in RULES for key in rule.keys).items() if count > 1] == []
    assert [name for name, count in Counter(rule.name for rule in RULES).items() if count > 1] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.name))
def test_a_rule_explains_itself(rule: Rule) -> None:
    assert rule.why.endswith(".")
    assert rule.standard == "" or rule.standard.startswith(("§1.1.", "§2.1"))
    assert rule.code in CODES or not rule.code
    assert (
        rule.standard.startswith("§1.1.1") is (rule.kind == "retryable")
        or not rule.standard
        or rule.kind == "not-found"
    )


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_in_the_table_exists_under_that_name(name: str) -> None:
    """With the real library: a name that is misspelled, or that a new version has moved, would never match."""
    module, _, last = name.rpartition(".")
    module = {"confluent_kafka.cimpl": "confluent_kafka"}.get(module, module)
    cls = getattr(importlib.import_module(module), last)
    assert name in _names(cls)


def test_statuses_and_states_in_the_table_exist() -> None:
    for rule in RULES:
        for key in rule.keys:
            scheme, _, value = key.partition(":")
            if scheme == "grpc":
                assert value in grpc.StatusCode.__members__
            if scheme == "sqlstate" and len(value) == 5 and value != "40002":
                assert psycopg.errors.lookup(value)
            if scheme == "kafka" and value != "retriable":
                assert value in KAFKA_NAMES, value


def test_every_status_has_a_rule_and_a_code() -> None:
    for status in range(300, 600):
        found = classify_key(f"http:{status}")
        assert found.rule != "unknown"
        assert found.code in CODES or MADE_CODES.fullmatch(found.code)


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("§1.1.1 Network Errors", "retryable"),
        ("§1.1.1 Service Unavailable", "retryable"),
        ("§1.1.1 Rate Limiting", "retryable"),
        ("§1.1.1 Database Transient Errors", "retryable"),
        ("§1.1.1 Kafka Transient Errors", "retryable"),
        ("§1.1.1 Timeout Errors", "retryable"),
        ("§1.1.2 Validation Errors", "non-retryable"),
        ("§1.1.2 Authentication/Authorization", "non-retryable"),
        ("§1.1.2 Not Found", "not-found"),
        ("§1.1.2 Business Logic Errors", "non-retryable"),
        ("§1.1.2 Schema Errors", "non-retryable"),
        ("§1.1.2 Configuration Errors", "non-retryable"),
    ],
)
def test_every_category_of_the_standard_has_rules(category: str, kind: str) -> None:
    assert any(rule.kind == kind for rule in RULES if rule.standard == category)


@pytest.mark.parametrize(
    "code",
    [
        "SCHEMA_INVALID",
        "MISSING_REQUIRED_FIELD",
        "ENUM_INVALID",
        "PAN_DETECTED",
        "DB_TRANSIENT_ERROR",
        "DB_CONSTRAINT_VIOLATION",
        "DB_TIMEOUT",
        "UNHANDLED_EXCEPTION",
    ],
)
def test_the_codes_of_the_fraud_service_exist(code: str) -> None:
    assert CODES[code].endswith(".")


def test_every_code_is_used_by_a_rule_or_by_a_part_that_says_so() -> None:
    used = {rule.code for rule in RULES}
    elsewhere = {"MISSING_REQUIRED_FIELD", "ENUM_INVALID", "TOMBSTONE", "PAN_DETECTED", "UNHANDLED_EXCEPTION"}
    elsewhere |= {"CRASHED"}  # the crash guard's
    elsewhere |= {"CONTENT_TYPE_UNKNOWN", "UNKNOWN_TYPE", "SCHEMA_ID_MISSING", "SCHEMA_UNKNOWN"}  # of decoding
    elsewhere |= {"OPERATOR"}  # of control
    elsewhere |= {"MAX_DELIVERIES"}  # of queues
    assert set(CODES) - used - elsewhere == {"HTTP_<status>", "GRPC_<code>"}

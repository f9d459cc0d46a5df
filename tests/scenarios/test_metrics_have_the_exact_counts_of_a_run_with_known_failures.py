"""Twelve records with known fates; then /metrics has the exact numbers, under the names and labels of the documents."""

from __future__ import annotations

import json
from typing import Any, Literal

from prometheus_client import parser
from pydantic import BaseModel

from keepfast import Discard, RetryPolicy
from keepfast.testing import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until
from tests.support.web import OPEN_METRICS, Labels, Web, web_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
FAULTS: dict[str, list[type[Exception]]] = {
    "bad": [ValueError],
    "flaky": [TimeoutError, TimeoutError],
    "down": [ConnectionError, ConnectionError, ConnectionError],
    "unwanted": [Discard],
}


class Payment(BaseModel):
    fate: Literal["good", "bad", "flaky", "down", "unwanted"]


MALFORMED = (b'{"fate":', b'{"faet": "good"}', b'{"fate": "odd"}')


def test_the_counts_names_and_labels_are_exact(kafka: KafkaBroker, topic: TopicFactory) -> None:
    app, name = app_for(kafka), topic()
    left = {fate: list(faults) for fate, faults in FAULTS.items()}

    @app.consumer(
        name,
        domain="orders",
        entity="payment",
        retry=RetryPolicy(max_retries=2, initial_delay_ms=20, jitter=False),
        dead_letter=f"{name}.dlq",
    )
    def charge(payment: Payment) -> None:
        if left.get(payment.fate):
            raise left[payment.fate].pop(0)("known")

    client = Client(kafka)
    fates = ["good", "good", "bad", "good", "flaky", "down", "unwanted", "good", "good"]
    with RunningApp(app) as running, web_of(running) as web:
        running.wait_assigned(1)
        traced = [("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01".encode())]
        values = [*(json.dumps({"fate": fate}).encode() for fate in fates), *MALFORMED]
        client.produce(name, [NewRecord(value, headers=traced) for value in values])
        own: Labels = frozenset({("group", "scenario.charge"), ("topic", name)})
        wait_until(lambda: lag_of(web, name) == 0 and done(web, own) == 12, "all twelve have ended, and the lag is 0")
        found = {one: {labels: sample.value for labels, sample in of.items()} for one, of in web.samples().items()}

        def series(metric: str, **labels: str) -> float:
            return float(found[metric][own | set(labels.items())])

        assert series("orders_payment_processed_total", status="success") == 6
        assert series("orders_payment_processed_total", status="failure") == 6
        assert series("orders_payment_processing_duration_seconds_count") == 16, "every call of the handler"
        codes = ("DECODE_FAILED", "MISSING_REQUIRED_FIELD", "ENUM_INVALID")
        invalid = {error("ValidationError", "non-retryable", code): 1 for code in codes}
        assert {labels - own: value for labels, value in found["orders_payment_error_count_total"].items()} == {
            error("ValueError", "non-retryable", "VALUE_INVALID"): 1,
            error("TimeoutError", "retryable", "TIMEOUT"): 2,
            error("ConnectionError", "retryable", "NETWORK_ERROR"): 3,
            error("Discard", "discard", "DISCARDED"): 1,
            **invalid,
        }
        assert {labels - own: value for labels, value in found["orders_payment_dlq_count_total"].items()} == {
            error("ValueError", "non-retryable", "VALUE_INVALID"): 1,
            error("ConnectionError", "retryable", "NETWORK_ERROR"): 1,
            **invalid,
        }
        retries = {frozenset({("retry_attempt", "1")}): 2, frozenset({("retry_attempt", "2")}): 2}
        for metric in ("orders_payment_retry_count_total", "orders_payment_retry_delay_seconds_count"):
            assert {labels - own: value for labels, value in found[metric].items()} == retries
        assert series("orders_payment_retry_delay_seconds_sum", retry_attempt="2") == 2 * 0.04
        assert series("orders_payment_dlq_publish_failure_total") == 0
        assert series("kafka_dlq_messages_total", dead_letter_topic=f"{name}.dlq") == 5
        by_type = {
            ("ValueError", "VALUE_INVALID", "unexpected_error"): 1,
            ("ConnectionError", "NETWORK_ERROR", "unexpected_error"): 1,
            **{("ValidationError", code, "validation_error"): 1 for code in codes},
        }
        for (kind, code, reason), count in by_type.items():
            labels = {"error_type": kind, "error_code": code, "reason": reason}
            assert series("kafka_dlq_errors_by_type_total", **labels) == count
        assert len(found["kafka_dlq_errors_by_type_total"]) == len(by_type)
        assert (series("ingestion_events_processed_total"), series("ingestion_events_failed_total")) == (6, 6)
        assert series("kafka_consumer_records_consumed_total") == 12
        group = frozenset({("group", "scenario.charge")})
        assert found["kafka_consumer_records_lag_max"] == {group: 0}
        assert found["keepfast_group_member"] == {group: 1}
        assert found["keepfast_assigned_partitions"] == {own: 1}
        assert found["keepfast_rebalances_total"][group | {("event", "assigned")}] == 1
        assert found["keepfast_commit_failures_total"] == {group: 0}
        assert found["keepfast_commits_total"][group] >= 12

        examples = web.samples()
        [bad] = [
            one for one in examples["orders_payment_dlq_count_total"].values() if "ValueError" in one.labels.values()
        ]
        assert bad.exemplar.labels == {"trace_id": TRACE}
        assert any(one.exemplar for one in examples["orders_payment_processing_duration_seconds_bucket"].values())

        plain = web.get("/metrics")
        assert (plain.status, plain.kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        read_plain: Any = parser.text_string_to_metric_families
        names = {sample.name for family in read_plain(plain.body.decode()) for sample in family.samples}
        assert names == set(found)
        assert web.get("/metrics", OPEN_METRICS).kind.startswith("application/openmetrics-text; version=1.0.0")


def error(name: str, kind: str, code: str) -> Labels:
    return frozenset({("error_type", name), ("error_classification", kind), ("error_code", code)})


def lag_of(web: Web, topic: str) -> float | None:
    series = web.samples().get("kafka_consumer_lag", {})
    return next((one.value for one in series.values() if one.labels["topic"] == topic), None)


def done(web: Web, own: Labels) -> float:
    series = web.samples()["orders_payment_processed_total"]
    return float(sum(one.value for labels, one in series.items() if own <= labels))

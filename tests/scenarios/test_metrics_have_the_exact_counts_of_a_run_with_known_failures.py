"""Nine records with known fates; then /metrics has the exact numbers, under the names and labels of the documents."""

from __future__ import annotations

import json
from typing import Any

from prometheus_client import parser

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
    def charge(payment: dict[str, Any]) -> None:
        if left.get(payment["fate"]):
            raise left[payment["fate"]].pop(0)("known")

    client = Client(kafka)
    fates = ["good", "good", "bad", "good", "flaky", "down", "unwanted", "good", "good"]
    with RunningApp(app) as running, web_of(running) as web:
        running.wait_assigned(1)
        traced = [("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01".encode())]
        client.produce(name, [NewRecord(json.dumps({"fate": fate}).encode(), headers=traced) for fate in fates])
        own: Labels = frozenset({("group", "scenario.charge"), ("topic", name)})
        wait_until(lambda: lag_of(web, name) == 0 and done(web, own) == 9, "all nine have ended, and the lag is 0")
        found = {one: {labels: sample.value for labels, sample in of.items()} for one, of in web.samples().items()}

        def series(metric: str, **labels: str) -> float:
            return float(found[metric][own | set(labels.items())])

        assert series("orders_payment_processed_total", status="success") == 6
        assert series("orders_payment_processed_total", status="failure") == 3
        assert series("orders_payment_processing_duration_seconds_count") == 13, "every call of the handler"
        assert {labels - own: value for labels, value in found["orders_payment_error_count_total"].items()} == {
            error("ValueError", "non-retryable"): 1,
            error("TimeoutError", "retryable"): 2,
            error("ConnectionError", "retryable"): 3,
            error("Discard", "discard"): 1,
        }
        assert {labels - own: value for labels, value in found["orders_payment_dlq_count_total"].items()} == {
            error("ValueError", "non-retryable"): 1,
            error("ConnectionError", "retryable"): 1,
        }
        retries = {frozenset({("retry_attempt", "1")}): 2, frozenset({("retry_attempt", "2")}): 2}
        for metric in ("orders_payment_retry_count_total", "orders_payment_retry_delay_seconds_count"):
            assert {labels - own: value for labels, value in found[metric].items()} == retries
        assert series("orders_payment_retry_delay_seconds_sum", retry_attempt="2") == 2 * 0.04
        assert series("orders_payment_dlq_publish_failure_total") == 0
        assert series("kafka_dlq_messages_total", dead_letter_topic=f"{name}.dlq") == 2
        assert series("kafka_dlq_errors_by_type_total", error_type="ValueError") == 1
        assert (series("ingestion_events_processed_total"), series("ingestion_events_failed_total")) == (6, 3)
        assert series("kafka_consumer_records_consumed_total") == 9
        group = frozenset({("group", "scenario.charge")})
        assert found["kafka_consumer_records_lag_max"] == {group: 0}
        assert found["keepfast_group_member"] == {group: 1}
        assert found["keepfast_assigned_partitions"] == {own: 1}
        assert found["keepfast_rebalances_total"][group | {("event", "assigned")}] == 1
        assert found["keepfast_commit_failures_total"] == {group: 0}
        assert found["keepfast_commits_total"][group] >= 9

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


def error(name: str, kind: str) -> Labels:
    return frozenset({("error_type", name), ("error_classification", kind)})


def lag_of(web: Web, topic: str) -> float | None:
    series = web.samples().get("kafka_consumer_lag", {})
    return next((one.value for one in series.values() if one.labels["topic"] == topic), None)


def done(web: Web, own: Labels) -> float:
    series = web.samples()["orders_payment_processed_total"]
    return float(sum(one.value for labels, one in series.items() if own <= labels))
